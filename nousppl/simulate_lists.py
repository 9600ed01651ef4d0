"""Forward sampling of a set-valued question: which items hold, and the lists of the claims about it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.models.dense import DenseQuestion
from nousppl.sets import Chances
from nousppl.simulate import FRESH, pick_origin, share


class SimulatedLists(NamedTuple):
    """One draw of a question with n claims and I items; sets as rows of booleans."""

    truth: NDArray[np.bool_]
    """(I,) items that hold."""
    named: NDArray[np.bool_]
    """(n, I) items that each claim names."""
    denied: NDArray[np.bool_]
    """(n, I) items that it denies."""
    origins: NDArray[np.int64]
    """(n,) the claim that each claim repeats, ``FRESH`` or ``NOTE``."""


def simulate_lists(rng: np.random.Generator, question: DenseQuestion, chances: Chances, items: int) -> SimulatedLists:
    """Draw the items that hold, the origins and the lists of the claims of one question.

    Args:
        rng: source of randomness.
        question: the origins of its claims, in event order; its laws are not read.
        chances: what the sources do with items.
        items: number of items.
    """
    n = len(question.alpha)
    truth = rng.random(items) < chances.prevalence
    named, denied = np.zeros((n, items), bool), np.zeros((n, items), bool)
    origins, originality = np.full(n, FRESH, np.int64), np.zeros(n)
    for j in range(n):
        origins[j] = pick_origin(rng.random(), question, j, originality)
        if origins[j] >= 0 and rng.random() >= question.copy_error:
            named[j], denied[j] = named[origins[j]], denied[origins[j]]
        elif origins[j] != FRESH:
            # A repetition that goes wrong, or a note of one's own that can repeat nothing: anything.
            state = rng.integers(3, size=items)
            named[j], denied[j] = state == 1, state == 2
        else:
            chance = np.where(truth, chances.sensitivity[j], 1.0 - chances.specificity[j])
            named[j] = rng.random(items) < chance
            denied[j] = ~named[j] & (rng.random(items) < np.where(truth, chances.slip, chances.denial))
        same = (named[:j] == named[j]).all(1) & (denied[:j] == denied[j]).all(1)
        repeated = float(((question.base[j, :j] + question.strong[j, :j]) * same).sum())
        originality[j] = share(question.alpha[j], repeated)
    return SimulatedLists(truth, named, denied, origins)
