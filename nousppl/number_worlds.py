"""Forward sampling of questions about numbers: truths, shared errors, origins, and what claims say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.models.number import SHARED, SPREADS
from nousppl.numbers import FREEDOM, RANGE

Floats = NDArray[np.float64]
FRESH = -1
"""Origin of a claim whose source looked for itself."""


class Law(NamedTuple):
    """One question about a number at one value of the parameters, its n claims in event order; in units of the
    attribute."""

    right: Floats
    """(n,) chance of a proper measurement."""
    bias: Floats
    """(n,)"""
    log_spread: Floats
    """(n,)"""
    scale: float
    """Standard deviation of the truths of the attribute."""
    slope: float
    """That of what can be seen over the truth."""
    log_shared: float
    """Log of that of the shared error."""
    step: float
    """Width of the rounding cells."""
    offset: float
    """The middle of one of them."""
    alpha: Floats
    """(n,) concentration of looking for oneself; 0 for the assistant's own notes."""
    base: Floats
    """(n, n) weights of strangers, before the chance that the earlier claim is original."""
    strong: Floats
    """(n, n) weights of pairs that share a source and so on."""
    copy_error: float


class Drawn(NamedTuple):
    """One draw."""

    truth: float
    values: Floats
    """(n,) rounded."""
    origins: NDArray[np.int64]
    """(n,) the claim that each repeats, or ``FRESH``; an own note that is first in its question counts as fresh."""


def draw_number(rng: np.random.Generator, law: Law) -> Drawn:
    """Draw the truth, the origins and the values of the claims of one question."""
    n = len(law.right)
    truth = law.scale * float(rng.standard_normal())
    seen = law.slope * truth + np.exp(np.clip(law.log_shared, *SHARED)) * float(rng.standard_normal())
    spread = np.exp(np.clip(law.log_spread, *SPREADS))
    code, origins, original = np.zeros(n, np.int64), np.full(n, FRESH, np.int64), np.zeros(n)
    for j in range(n):
        weights = np.r_[law.alpha[j], law.base[j, :j] * original[:j] + law.strong[j, :j]]
        if weights.sum() > 0:
            origins[j] = int(rng.choice(j + 1, p=weights / weights.sum())) - 1
        if origins[j] >= 0 and rng.random() >= law.copy_error:
            code[j] = code[origins[j]]
        else:
            code[j] = np.rint((_value(rng, law, j, origins[j] >= 0, seen, spread[j]) - law.offset) / law.step)
        repeated = float(((law.base[j, :j] + law.strong[j, :j]) * (code[:j] == code[j])).sum())
        original[j] = law.alpha[j] / (law.alpha[j] + repeated) if law.alpha[j] + repeated > 0 else 0.0
    return Drawn(truth, np.asarray(law.offset + law.step * code, np.float64), origins)


def _value(rng: np.random.Generator, law: Law, j: int, slip: bool, seen: float, spread: float) -> float:
    """What a claim says before it is rounded: a repetition that goes wrong, a proper measurement, or anything."""
    if slip:
        return RANGE * (float(rng.random()) - 0.5)
    if rng.random() < law.right[j]:
        return seen + float(law.bias[j]) + spread * float(rng.standard_normal())
    return float(rng.standard_t(FREEDOM))
