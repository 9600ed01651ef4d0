"""Polls of elections in the United States (FiveThirtyEight): learned on races to 2014, tested on those of 2016 to 2018.

The number is the margin of a race in percentage points, an attribute for each kind of race, since the errors that
polls share are larger in primaries than in general elections. In one year the errors of many races go the same way: the
bias of a poll has a part for each kind and year of election, of which a new year has one of its own. Beside it stands
what needs no pollsters: the mean of a race's polls, whose error has a shared part and one that shrinks with their
number, both learned on the same races.

The model was chosen on the races of 2012 and 2014, learned on those to 2010; the figures of these years are shown too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from benchmarks.table import Row, at_least, at_most, read, shown
from scipy.optimize import minimize
from scipy.stats import norm

import nousppl as nous
from nousppl.number_beliefs import NumberBeliefs

FIRST = 1998
TESTED, CHOSEN = (2016, 2018), (2012, 2014)
"""Years of the elections, both ends among them; what is learned from is all before."""
OPTIONS = nous.SVI(steps=1500, learning_rate=0.02, batch_claims=3000)
KINDS = ("Pres-P", "Pres-G", "Sen-G", "House-G", "Gov-G")
"""Kinds of races."""


def model(weights: bool) -> nous.TrustModel:
    """Pollsters with a bias and a spread each, or all alike; polls do not repeat each other."""
    source = " + (1|source)" if weights else ""
    bias, by_kind = "0 + (1|partisan) + (1|cycle)" + source, "1 + (1|attribute)"
    shape = nous.Number(1.0, " points", bias=bias, spread=by_kind + source, shared=by_kind)
    return nous.TrustModel(reliability="1", origin=None, errors=NO_SHARED, shapes=dict.fromkeys(KINDS, shape))


NO_SHARED = nous.Errors(popularity=False, difficulty=False)


@dataclass(frozen=True)
class Polls:
    """Claims and results of the races of some years."""

    claims: pd.DataFrame
    results: pd.DataFrame

    @classmethod
    def of(cls, first: int, last: int) -> Polls:
        """Those of the elections of these years."""
        claims, settled = read("pollsters")
        claims["value"], settled["value"] = claims["value"].astype(float), settled["value"].astype(float)
        claims["partisan"] = claims["partisan"].fillna("none")
        year = pd.to_datetime(claims["electiondate"]).dt.year
        claims = claims[(year >= first) & (year <= last)]
        claims["cycle"] = year.astype(str) + " " + claims["race_type"]
        columns = ["entity", "attribute", "source", "value", "time", "partisan", "cycle"]
        # A kind of race is an attribute.
        claims["attribute"] = claims["race_type"]
        settled = settled[settled["entity"].isin(claims["entity"])]
        settled["attribute"] = settled["entity"].map(claims.drop_duplicates("entity").set_index("entity")["attribute"])
        return cls(claims[columns].reset_index(drop=True), settled.reset_index(drop=True))


def equal_weights(learned: Polls, tested: Polls) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, standard deviation and result of each tested race by the mean of its polls; two variances and a bias by
    maximum likelihood on the learned races."""

    def table(polls: Polls) -> pd.DataFrame:
        found = polls.claims.groupby("entity")["value"].agg(["mean", "size"])
        return found.join(polls.results.set_index("entity")["value"], how="inner")

    train, test = table(learned), table(tested)

    def loss(logs: np.ndarray) -> float:
        sd = np.sqrt(np.exp(2 * logs[0]) + np.exp(2 * logs[1]) / train["size"])
        return -float(norm.logpdf(train["value"] - train["mean"] - logs[2], 0.0, sd).sum())

    best = minimize(loss, [1.0, 1.5, 0.0], method="Nelder-Mead", options={"maxiter": 4000}).x
    sd = np.sqrt(np.exp(2 * best[0]) + np.exp(2 * best[1]) / test["size"])
    return (test["mean"] + best[2]).to_numpy(), sd.to_numpy(), test["value"].to_numpy()


def asked(trust: nous.Trust, polls: Polls) -> NumberBeliefs:
    """Beliefs about all races from their polls alone."""
    found = trust.posteriors(nous.Evidence(polls.claims)).numbers
    assert found is not None
    return found


def compared(years: tuple[int, int], weights: bool) -> tuple[dict[str, float], dict[str, float], str]:
    """Scores of the model and of equal weights in some years, learned on all before, and words on the data."""
    learned, tested = Polls.of(FIRST, years[0] - 1), Polls.of(*years)
    evidence = nous.Evidence(learned.claims, settled=learned.results)
    trust = model(weights).fit(evidence, method=OPTIONS, learn_from="settled", seed=0)
    mean, sd, result = equal_weights(learned, tested)
    equal = {
        "log_score": float(norm.logpdf(result, mean, sd).mean()),
        "coverage_90": float((np.abs(result - mean) <= norm.ppf(0.95) * sd).mean()),
        "rmse": float(np.sqrt(((mean - result) ** 2).mean())),
    }
    where = f"pollsters, {len(learned.results):,} races before {years[0]}, tested on {years[0]} to {years[1]}"
    return dict(asked(trust, tested).score(tested.results)), equal, where


def rows() -> list[Row]:
    """All rows."""
    score, equal, where = compared(TESTED, True)
    alike, _, _ = compared(TESTED, False)
    before, equal_before, chosen = compared(CHOSEN, True)
    n, earlier, one = int(score["n"]), int(before["n"]), "one shared error"
    bar = round(equal["log_score"], 4)
    return [
        at_least("pollsters: cover of 90 % intervals", where, n, score["coverage_90"], 0.87),
        at_most("pollsters: cover of 90 % intervals", where, n, score["coverage_90"], 0.93),
        at_least("pollsters: log score, at least that of equal weights", where, n, score["log_score"], bar),
        shown("pollsters: cover of equal weights", f"{where}; {one}", n, equal["coverage_90"]),
        shown("pollsters: root mean square error, points", where, n, score["rmse"]),
        shown("pollsters: the same of equal weights", where, n, equal["rmse"]),
        shown("pollsters: continuous ranked probability score, points", where, n, score["crps"]),
        shown("pollsters: log score, all pollsters alike", f"{where}; same model", n, alike["log_score"]),
        shown("pollsters: cover of 90 %, all pollsters alike", f"{where}; same model", n, alike["coverage_90"]),
        shown("pollsters: cover of 90 % intervals", chosen, earlier, before["coverage_90"]),
        shown("pollsters: log score", chosen, earlier, before["log_score"]),
        shown("pollsters: log score of equal weights", f"{chosen}; {one}", earlier, equal_before["log_score"]),
    ]
