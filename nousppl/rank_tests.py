"""Whether ranks are uniform: an exact test over the whole distribution function, and one false-alarm rate for many.

The test asks for the largest departure of the empirical distribution function of n ranks, judged at every point by the
tail of its binomial law (Säilynoja, Bürkner & Vehtari 2022, section 2), and its p-value is exact: between points the
counts are a Markov chain, so that the chance to stay within the bands is a sum over its paths.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
POINTS = 50
"""Most points at which the distribution functions are compared."""


def points(levels: int) -> Ints:
    """Numbers of lowest ranks, of ``levels`` possible ones, at which distribution functions are compared; increasing,
    the last one all but some."""
    return np.unique(np.linspace(0, levels, min(POINTS, levels) + 1).round().astype(np.int64))[1:-1]


def counts(ranks: Ints, levels: int) -> Ints:
    """(points,) number of ranks below each of `points`."""
    return np.searchsorted(np.sort(ranks), points(levels), side="left")


def tail(found: Ints, fits: int, levels: int) -> Floats:
    """(points,) twice the smaller tail of the binomial law of each count; above 1 for counts in the middle."""
    share = points(levels) / levels
    return 2.0 * np.minimum(binom.cdf(found, fits, share), binom.sf(found - 1, fits, share))


def p_value(ranks: Ints, levels: int) -> float:
    """The chance that uniform ranks depart as far at some point as these do.

    Args:
        ranks: (n,) whole numbers from 0 to ``levels - 1``.
        levels: number of possible ranks.
    """
    return chance_outside(float(tail(counts(ranks, levels), len(ranks), levels).min()), len(ranks), levels)


@lru_cache(maxsize=256)
def chance_outside(level: float, fits: int, levels: int) -> float:
    """The chance that the tail of some count of uniform ranks is ``level`` or less."""
    low, high = _bands(level, fits, levels)
    if (low > high).any():
        return 1.0
    below, before = points(levels) / levels, 0.0
    # mass[c]: chance that c ranks lie below the point and that every count so far was within its band.
    mass = np.zeros(fits + 1)
    mass[0] = 1.0
    for k, share in enumerate(below):
        step = (share - before) / (1.0 - before)
        mass = _moved(mass, step, low[k], high[k])
        before = share
    return float(min(max(1.0 - mass.sum(), 0.0), 1.0))


def _moved(mass: Floats, step: float, low: int, high: int) -> Floats:
    """Of those not below the last point each lies below the next with chance ``step``."""
    fits, out = len(mass) - 1, np.zeros(len(mass))
    held = np.flatnonzero(mass)
    wanted = np.arange(low, high + 1)
    if len(held) and len(wanted):
        out[wanted] = mass[held] @ binom.pmf(wanted[None] - held[:, None], fits - held[:, None], step)
    return out


def _bands(level: float, fits: int, levels: int) -> tuple[Ints, Ints]:
    """Lowest and highest count at each point whose tail is above ``level``; where there is none, the lowest is the
    larger."""
    every = np.arange(fits + 1)[:, None]
    share = points(levels) / levels
    tails = np.minimum(binom.cdf(every, fits, share), binom.sf(every - 1, fits, share))
    # Equal tails are one event: what was seen is outside, whatever rounding says.
    inside = 2.0 * tails > level * (1.0 + 1e-9)
    return np.where(inside.any(0), inside.argmax(0), fits + 1), fits - inside[::-1].argmax(0)


def band(alpha: float, fits: int, levels: int) -> tuple[Floats, Floats, Floats]:
    """Points, and the lowest and highest share below each, between which uniform ranks lie everywhere with a chance of
    at least ``1 - alpha``."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chance_outside(middle, fits, levels) <= alpha else (low, middle)
    least, most = _bands(low, fits, levels)
    return points(levels) / levels, least / fits, most / fits


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """p-values adjusted for their number (Holm 1979): rejecting those below alpha rejects anything that is right with a
    chance of at most alpha, however the tests depend on each other."""
    out: dict[str, float] = {}
    so_far = 0.0
    for place, name in enumerate(sorted(p, key=p.__getitem__)):
        so_far = max(so_far, min(1.0, (len(p) - place) * p[name]))
        out[name] = so_far
    return {name: out[name] for name in p}
