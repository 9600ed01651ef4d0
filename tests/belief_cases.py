"""Beliefs made by hand: every number follows from independent claims of known reliability, without inference code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from nousppl.belief import Belief
from nousppl.evidence import Evidence
from nousppl.question import Question


def asked(claims: pd.DataFrame) -> Question:
    """The question of what maya drinks, with these claims, which may be none."""
    rows = claims.assign(entity="maya", attribute="drink")
    if not len(claims):
        rows = pd.DataFrame([["noah", "drink", "c0", "alice", "tea", 0.0]])
        rows.columns = ["entity", "attribute", *claims.columns]
    fact = pd.DataFrame(
        {"entity": ["maya"], "attribute": "drink", "value": rows["value"].iloc[:1], "time": rows["time"].iloc[:1]}
    )
    return Evidence(rows, fact).question("maya", "drink")


def table(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["claim", "source", "value", "time"])


def handmade(
    claims: pd.DataFrame,
    answers: tuple[Any, ...],
    *,
    domain: int,
    reliability: list[float],
    fresh: list[float] | None = None,
    is_open: bool = True,
    status: tuple[str, ...] | None = None,
) -> Belief:
    """Belief after independent claims: a right one has probability r, each of the K - 1 wrong ones (1 - r) / (K - 1).

    Args:
        answers: the answers that are named.
        domain: K.
        reliability: r of all claims, one for each draw of the trust.
        fresh: P(fresh) of each claim; what is missing to 1 is an echo of the claim before it.
    """
    n, named = len(claims), len(answers)
    lumped = domain - named if is_open else 0
    size = np.r_[np.ones(named), [lumped] if is_open else []]
    path = np.zeros((len(reliability), n + 1, len(size)))
    for d, r in enumerate(reliability):
        path[d, 0] = size / size.sum()
        for j, value in enumerate(claims["value"]):
            likelihood = np.full(len(size), (1 - r) / (domain - 1))
            likelihood[answers.index(value)] = r
            path[d, j + 1] = path[d, j] * likelihood / (path[d, j] * likelihood).sum()
    mean = path.mean(axis=0)[[*range(n + 1), n]]  # nothing happens after the last claim
    share = np.ones(n) if fresh is None else np.asarray(fresh)
    origins = np.zeros((n, n + 1))
    origins[:, 0] = share
    origins[np.arange(1, n), np.arange(1, n)] = 1 - share[1:]
    with np.errstate(divide="ignore"):
        log_odds = np.log(mean) - np.log1p(-mean)
    return Belief(
        question=asked(claims),
        answers=(*answers, "other") if is_open else answers,
        open=is_open,
        others=lumped,
        samples=path[:, -1],
        path=mean,
        log_odds=log_odds,
        origins_of=lambda: origins,
        status=status if status is not None else ("",) * n,
    )


def drinks(**changes: Any) -> Belief:
    """Two say tea, one coffee; five drinks exist; the second "tea" is mostly an echo of the first."""
    claims = table(
        ("c1", "alice", "tea", pd.Timestamp("2026-01-01")),
        ("c2", "bob", "tea", pd.Timestamp("2026-01-02")),
        ("c3", "carol", "coffee", pd.Timestamp("2026-01-05")),
    )
    given: dict[str, Any] = {"domain": 5, "reliability": [0.6, 0.8], "fresh": [1.0, 0.2, 1.0]} | changes
    return handmade(claims, ("coffee", "tea"), **given)
