"""Crowd labels (Zheng et al. 2017; Sheng, Provost & Ipeirotis 2008; Snow et al. 2008): closed lists of answers, no
times, many workers a question. One model for seven data sets, with nothing settled and with a tenth of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from benchmarks.table import Row, at_least, at_most, read, shown, watch

import nousppl as nous
from nousppl import calibration
from nousppl.calibration import Marks

LIMITS = {
    "bluebird": 0.45,
    "rte": 0.25,
    "dog": 0.57,
    "product": 0.23,
    "possent": 0.165,
    "trec": 0.61,
    "adult": 0.71,
}
"""Log loss to stay below where nothing is settled; below the best of the peers measured here too."""
SHARE = 0.1
"""Share of the questions whose truth is settled in the second protocol."""
BEHIND = -1.96
"""Standard errors of the paired difference that an accuracy may lie behind."""


OPTIONS = nous.SVI(full_size=20, learning_rate=0.05)
"""Full covariance over the top-level parameters only: the effects of hundreds of workers are nearly independent."""


def model(answers: Mapping[Any, Any] | None) -> nous.TrustModel:
    """Hierarchical Dawid-Skene with a trap and correlated errors; the same for every set.

    Workers do not see each other's labels, so that strangers hardly ever repeat each other; accounts of one person may.
    """
    return nous.TrustModel(
        "1 + (1|source)",
        "1",
        nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=1),
        nous.Errors(popularity=False, difficulty=False, bias="source", trap=True, correlation=True),
        base_rates="learned",
        answers=answers,
        priors={"origin": {"strangers": dist.Normal(-10.0, 0.3)}},
    )


def data(name: str) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Claims (the first of each worker on a question), settled facts and answers of a set."""
    claims, settled = read(f"crowd_{name}")
    claims = claims.drop_duplicates(["entity", "source"], ignore_index=True)
    settled = settled.drop_duplicates("entity").sort_values("entity", ignore_index=True)
    settled = settled[settled["entity"].isin(claims["entity"])]
    return claims, settled, sorted({*claims["value"], *settled["value"]})


def table_of(beliefs: nous.Beliefs, answers: list[str]) -> pd.DataFrame:
    """Probabilities, a row a question and a column an answer."""
    return beliefs.probabilities.pivot(index="entity", columns="answer", values="probability")[answers]


def marked(table: pd.DataFrame, tested: pd.DataFrame, answers: list[str]) -> Marks:
    """Marks of a table of probabilities."""
    rows = table.reindex(index=tested["entity"], columns=answers).fillna(0.0).to_numpy(np.float64)
    return calibration.mark_matrix(rows, pd.Index(answers).get_indexer(tested["value"]))


def ahead(one: Marks, other: Marks) -> float:
    """Difference of two accuracies in paired standard errors."""
    difference = one.right.astype(float) - other.right.astype(float)
    error = difference.std() / np.sqrt(len(difference))
    return float(difference.mean() / error) if error > 0 else 0.0


def peers(claims: pd.DataFrame, known: pd.Series | None) -> dict[str, pd.DataFrame]:
    """Probabilities of the methods of crowd-kit, where it is installed: the questions of ``known`` are settled."""
    if importlib.util.find_spec("crowdkit") is None:
        return {}
    from crowdkit.aggregation import DawidSkene, MajorityVote, OneCoinDawidSkene

    votes = claims.rename(columns={"entity": "task", "source": "worker", "value": "label"})[["task", "worker", "label"]]
    if known is not None:
        return {"Dawid-Skene": DawidSkene(n_iter=100).fit_predict_proba(votes, known)}
    return {
        "Dawid-Skene": DawidSkene(n_iter=100).fit_predict_proba(votes),
        "one-coin Dawid-Skene": OneCoinDawidSkene(n_iter=100).fit_predict_proba(votes),
        "majority vote": MajorityVote().fit_predict_proba(votes),
    }


def figures(name: str, share: float) -> tuple[list[Row], dict[str, float]]:
    """Rows of one set with a share of its questions settled, and the accuracy of every method ("" is ours)."""
    claims, settled, answers = data(name)
    chosen = np.random.default_rng(0).random(len(settled)) < share
    known, tested = settled[chosen], settled[~chosen]
    evidence = nous.Evidence(claims, settled=known if share else None)
    with watch() as taken:
        trust = model({"label": answers}).fit(evidence, OPTIONS, learn_from="all")
        ours = marked(table_of(trust.posteriors(evidence), answers), tested, answers)
    where, n = f"crowd {name}, {share:.0%} settled", len(tested)
    others = {
        peer: marked(table, tested, answers)
        for peer, table in peers(claims, known.set_index("entity")["value"] if share else None).items()
    }
    score = calibration.score(ours)
    losses = [calibration.log_loss(other) for other in others.values()]
    limit = min([*([] if share else [LIMITS[name]]), *losses], default=np.inf)
    out = [at_most(f"{name}: log loss", where, n, score["log_loss"], round(limit, 4))]
    for peer, other in others.items():
        out.append(at_least(f"{name}: accuracy ahead of {peer}, standard errors", where, n, ahead(ours, other), BEHIND))
    out += [shown(f"{name}: {key}", where, n, score[key]) for key in ("accuracy", "ece")]
    out.append(shown(f"{name}: seconds, fit and beliefs", where, n, taken.wall))
    for peer, other in others.items():
        out.append(shown(f"{name}: log loss of {peer}", where, n, calibration.log_loss(other)))
        out.append(shown(f"{name}: accuracy of {peer}", where, n, calibration.accuracy(other)))
    return out, {"": score["accuracy"]} | {peer: calibration.accuracy(other) for peer, other in others.items()}


def rows() -> list[Row]:
    """All rows."""
    out: list[Row] = []
    for share in (0.0, SHARE):
        parts = [figures(name, share) for name in LIMITS]
        out += [row for some, _ in parts for row in some]
        sums = pd.DataFrame([accuracies for _, accuracies in parts]).sum()
        where = f"{len(LIMITS)} crowd sets, {share:.0%} settled"
        best = round(float(sums.drop("").max()), 4) if len(sums) > 1 else 0.0
        out.append(at_least("crowd: sum of accuracies, best peer's", where, None, float(sums[""]), best))
    return out
