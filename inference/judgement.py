"""When a variational fit has settled, and the order in which it sees batches.

The mean loss of a block of steps is compared with the best one so far, and a fall counts where it is larger than its
noise.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 100
"""Steps between two judgements."""
RELATIVE = 5e-4
"""A fall of the loss by less than this share of it counts as none."""
LOWERINGS = 2
"""How often the step size is lowered before the fit counts as settled."""
LAST_STALLS = 3
"""Blocks without a fall, after the first, that are averaged at the end."""
LOWERED = 0.2


class Schedule(NamedTuple):
    """How far the judgement of convergence has come."""

    rate: float
    best: float
    stalls: int
    lowered: int


class Deck:
    """Batches in random order, each once before any comes again."""

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        self.count, self.generator = count, generator
        self.left = np.zeros(0, np.int64)

    def take(self, number: int) -> NDArray[np.int64]:
        """The next so many."""
        while len(self.left) < number:
            self.left = np.concatenate([self.left, self.generator.permutation(self.count)])
        out, self.left = self.left[:number], self.left[number:]
        return out


def mirrored(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Every draw followed by its mirror image."""
    return np.stack([noise, -noise], axis=1).reshape(-1, *noise.shape[1:])


def level(block: NDArray[np.float64], index: NDArray[np.int64], count: int) -> tuple[float, float]:
    """Mean loss over all batches and its standard error, given the losses of steps in mirrored pairs and their batches.

    Batches differ much more than the losses of one batch do from step to step. Where each was seen at least twice, only
    the latter is noise.
    """
    pairs, of = block.reshape(-1, 2).mean(1), index[::2]
    seen = np.bincount(of, minlength=count)
    if count == 1 or seen.min() < 2:
        return float(pairs.mean()), float(pairs.std()) / np.sqrt(len(pairs))
    means = np.bincount(of, weights=pairs, minlength=count) / seen
    rest = float(np.square(pairs - means[of]).sum()) / (len(pairs) - count)
    return float(means.mean()), float(np.sqrt(rest * (1.0 / seen).mean() / count))


def judge(schedule: Schedule, mean: float, error: float, tolerance: float) -> Schedule:
    """Lower the step size when the loss of a block has not fallen by more than ``tolerance`` standard errors twice
    running; at the last step size it must have stood still for longer, and those blocks are averaged."""
    if mean < schedule.best - max(tolerance * error, RELATIVE * abs(mean)):
        return schedule._replace(best=mean, stalls=0)
    if schedule.stalls < (LAST_STALLS if schedule.lowered >= LOWERINGS else 1):
        return schedule._replace(best=min(mean, schedule.best), stalls=schedule.stalls + 1)
    return Schedule(schedule.rate * LOWERED, np.inf, 0, schedule.lowered + 1)
