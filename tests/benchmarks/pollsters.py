"""Polls of elections in the United States (FiveThirtyEight): learned on races to 2014, tested on those of 2016 to 2018.

The number is the margin of a race in percentage points, an attribute for each kind of race, since the errors that
polls share are larger in primaries than in general elections. Beside it stands what needs no pollsters: the mean of a
race's polls, whose error has a shared part and one that shrinks with their number, both learned on the same races.

In one year the errors of many states go the same way, which the model does not know: each race has a shared error of
its own. In 2016 that made its intervals too narrow, and those of the mean too.
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

LEARNED, TESTED = (1998, 2014), (2016, 2018)
"""Years of the elections, both ends among them."""
OPTIONS = nous.SVI(steps=1500, learning_rate=0.02, batch_claims=3000)
KINDS = ("Pres-P", "Pres-G", "Sen-G", "House-G", "Gov-G")
"""Kinds of races."""


def model(weights: bool) -> nous.TrustModel:
    """Pollsters with a bias and a spread each, or all alike; polls do not repeat each other."""
    source = " + (1|source)" if weights else ""
    shape = nous.Number(1.0, " points", bias="0 + (1|partisan)" + source, spread="1 + (1|attribute)" + source)
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
        columns = ["entity", "attribute", "source", "value", "time", "partisan"]
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


def rows() -> list[Row]:
    """All rows."""
    learned, tested = Polls.of(*LEARNED), Polls.of(*TESTED)
    evidence = nous.Evidence(learned.claims, settled=learned.results)
    mean, sd, result = equal_weights(learned, tested)
    by_mean = float(norm.logpdf(result, mean, sd).mean())
    cover = float((np.abs(result - mean) <= norm.ppf(0.95) * sd).mean())
    scores = {}
    for weights in (True, False):
        trust = model(weights).fit(evidence, method=OPTIONS, learn_from="settled", seed=0)
        scores[weights] = asked(trust, tested).score(tested.results)
    score, alike = scores[True], scores[False]
    n = int(score["n"])
    where = f"pollsters, {len(learned.results):,} races to {LEARNED[1]}, tested on {TESTED[0]} to {TESTED[1]}"
    return [
        at_least("pollsters: cover of 90 % intervals", where, n, score["coverage_90"], 0.87),
        at_most("pollsters: cover of 90 % intervals", where, n, score["coverage_90"], 0.93),
        at_least(
            "pollsters: log score, at least that of equal weights", where, n, score["log_score"], round(by_mean, 4)
        ),
        shown("pollsters: log score of equal weights", f"{where}; one shared error", n, by_mean),
        shown("pollsters: cover of equal weights", f"{where}; one shared error", n, cover),
        shown("pollsters: root mean square error, points", where, n, score["rmse"]),
        shown("pollsters: the same of equal weights", where, n, float(np.sqrt(((mean - result) ** 2).mean()))),
        shown("pollsters: log score, all pollsters alike", f"{where}; same model", n, alike["log_score"]),
        shown("pollsters: cover of 90 %, all pollsters alike", f"{where}; same model", n, alike["coverage_90"]),
        shown("pollsters: continuous ranked probability score, points", where, n, score["crps"]),
    ]
