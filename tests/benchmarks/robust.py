"""Floods and discredit: many copies of one claim, under the default trust (draws of the priors, nothing learned)."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from benchmarks.table import Row, at_least, at_most, shown

import nousppl as nous

COPIES = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
HONEST = 2
FLOOD_RELIABILITY = 0.95
BAD = (1, 10, 100, 1000, 10_000)
BAD_RELIABILITY, CEILING = 0.3, 0.2
HONEST_RELIABILITY = 0.9


def certain(value: float) -> dist.Distribution:
    """A prior that leaves no doubt."""
    return dist.Normal(value, 1e-6)


def model(answers: int, strong: str = "same_source") -> nous.TrustModel:
    """The default model, but for reliabilities that are given as logits in the column ``rel``."""
    priors = {"reliability": {"rel": certain(1.0)}}
    return nous.TrustModel("0 + rel", origin=nous.Origin(strong=strong), answers={"a": answers}, priors=priors)


def claims(*groups: tuple[str, int, str, str, float]) -> pd.DataFrame:
    """Claims one after the other, a minute apart.

    Args:
        groups: (value, number of claims, source, channel, reliability); a source that ends in "*" is another one for
            every claim, and so is such a channel.
    """
    parts = []
    for value, count, source, channel, right in groups:
        number = np.arange(count).astype(str)
        names = [np.char.add(name[:-1], number) if name.endswith("*") else name for name in (source, channel)]
        part = pd.DataFrame({"value": value, "source": names[0], "channel": names[1]}, index=np.arange(count))
        parts.append(part.assign(rel=np.log(right / (1 - right))))
    table = pd.concat(parts, ignore_index=True).assign(entity="e", attribute="a")
    return table.assign(time=np.arange(len(table)) / 1440)


def belief(trust: nous.Trust, table: pd.DataFrame) -> pd.Series:
    """Probability of each answer."""
    frame = trust.posteriors(nous.Evidence(table)).probabilities
    return frame.set_index("answer")["probability"]


def log_odds(trust: nous.Trust, table: pd.DataFrame, answer: str) -> float:
    """Log-odds of an answer against the rest, accurate where it is nearly certain."""
    found = trust.posterior(nous.Evidence(table).question("e", "a"))
    return float(found.log_odds[-1, found.answers.index(answer)])


def flood(answers: int, first: bool) -> list[Row]:
    """Copies of a wrong claim by one source in its channel, against two honest strangers, all equally reliable."""
    trust = model(answers).default_trust()
    margins, odds = [], []
    for n in COPIES:
        groups = [("wrong", n, "flood", "flood", FLOOD_RELIABILITY), ("right", HONEST, "honest*", "c*", FLOOD_RELIABILITY)]
        table = claims(*groups) if first else claims(*groups[::-1])
        p = belief(trust, table)
        margins.append(p["right"] - p["wrong"])
        odds.append(np.log(p["wrong"] / p["right"]))
    weight = float(np.exp(-trust.posterior_draws["origin_same_source"]).mean())
    steps = np.diff(odds) / np.diff(np.log(COPIES))
    where = f"K = {answers}, flood {'first' if first else 'last'}, n = 1 to 10^6"
    print(where, np.round(margins, 4), np.round(odds, 3), np.round(steps, 4), weight)
    return [
        at_least("flood: lead of the right answer", where, len(COPIES), min(margins), 0.0),
        at_most("flood: change of log-odds per ln n", where, len(COPIES), float(np.abs(steps).max()), 1.05 * weight),
    ]


def rows() -> list[Row]:
    """All rows."""
    return [row for answers in (2, 8) for first in (True, False) for row in flood(answers, first)]


__all__ = ["rows", "shown"]
