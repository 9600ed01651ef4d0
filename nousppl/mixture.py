"""Mixtures of normal laws: what is believed of a number, averaged over what is not known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

GRID, FINER = 257, 33
"""Points at which the distribution function is taken to find quantiles: over all, and within a bracket."""
BINS, KERNELS = 200, 8
"""Places and widths that a mixture of many parts is brought down to."""
CORE, WITHIN = 0.5, 40.0
"""Standard deviations around the mean within which these places are about even, and that they cover at all; what lies
beyond is moved to the edge."""
TAIL = 1e-5
"""Probability on either side that a score leaves out."""
BLOCK = 4_000_000
"""Numbers that are in memory at once."""


LEAST = 1e-300
"""Stands for a probability that has come out as 0."""
Gaps = tuple[tuple[float, float], ...]
"""Intervals, low and high, that hold no probability; they do not overlap."""


def outside(place: Floats, width: Floats, gaps: Gaps) -> tuple[Floats, Floats, Floats]:
    """Probability, first and second moment of normal laws outside some intervals, none of them divided by the first.

    Args:
        place: means.
        width: standard deviations, above 0.
        gaps: the intervals.
    """
    mass, first, second = np.ones_like(place), place.copy(), place**2 + width**2
    for low, high in gaps:
        ends = (low - place) / width, (high - place) / width
        below, above = (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi) for z in ends)
        # From the side on which the tail is small and accurate.
        held = np.where(ends[0] > 0.0, ndtr(-ends[0]) - ndtr(-ends[1]), ndtr(ends[1]) - ndtr(ends[0]))
        mass = mass - held
        first = first - (place * held + width * (below - above))
        second = second - ((place**2 + width**2) * held + width * ((low + place) * below - (high + place) * above))
    return np.maximum(mass, 0.0), first, np.maximum(second, 0.0)


@dataclass(frozen=True, eq=False)
class Mixture:
    """``sum_i weight[i] Normal(place[i], width[i])``, given that the number lies in none of the gaps."""

    place: Floats
    """(n,)"""
    width: Floats
    """(n,) standard deviations; 0 for a known number."""
    weight: Floats
    """(n,) sums to 1."""
    gaps: Gaps = ()
    """Where the number does not lie, ascending: rounding cells that were rejected."""

    @cached_property
    def mean(self) -> float:
        """The mean."""
        return self._moments[0]

    @cached_property
    def sd(self) -> float:
        """The standard deviation."""
        return self._moments[1]

    @cached_property
    def _moments(self) -> tuple[float, float]:
        centre = float((self.weight * self.place).sum())
        if not self.gaps:
            return centre, float(np.sqrt((self.weight * ((self.place - centre) ** 2 + self.width**2)).sum()))
        gaps = tuple((low - centre, high - centre) for low, high in self.gaps)
        mass, first, second = (float((self.weight * x).sum()) for x in outside(self.place - centre, self.width, gaps))
        mean = first / max(mass, LEAST)
        return centre + mean, float(np.sqrt(max(second / max(mass, LEAST) - mean**2, 0.0)))

    def cdf(self, x: Any) -> Floats:
        """P(number <= x), elementwise."""
        below = whole = self._over(x, ndtr)
        if not self.gaps:
            return below
        asked, left = np.asarray(x, np.float64), 1.0
        for low, high in self.gaps:
            at_low, at_high = self._over(np.array([low, high]), ndtr)
            below = below - np.where(asked > high, at_high - at_low, np.where(asked > low, whole - at_low, 0.0))
            left -= at_high - at_low
        return np.clip(below / max(left, LEAST), 0.0, 1.0)

    def density(self, x: Any) -> Floats:
        """The density at x, elementwise; infinite at a known number."""
        if self.known is not None:
            return np.where(np.asarray(x) == self.known, np.inf, 0.0)
        found = self._over(x, lambda z: np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi), per_width=True)
        if not self.gaps:
            return found
        asked = np.asarray(x, np.float64)
        inside = np.any([(asked > low) & (asked < high) for low, high in self.gaps], axis=0)
        left = float((self.weight * outside(self.place, self.width, self.gaps)[0]).sum())
        return np.where(inside, 0.0, found / max(left, LEAST))

    def samples(self, size: int, rng: np.random.Generator) -> Floats:
        """(size,) draws."""
        if self.known is not None:
            return np.full(size, self.known)
        if self.gaps:
            return np.asarray(self.quantile(rng.uniform(size=size)))
        part = rng.choice(len(self.weight), size, p=self.weight / self.weight.sum())
        return np.asarray(self.place[part] + self.width[part] * rng.standard_normal(size))

    def _over(self, x: Any, function: Any, per_width: bool = False) -> Floats:
        asked = np.asarray(x, np.float64)
        if self.known is not None:
            return (asked >= self.known).astype(np.float64)
        weight = self.weight / self.width if per_width else self.weight
        step = max(BLOCK // len(weight), 1)
        flat = asked.ravel()
        parts = [
            function((flat[i : i + step, None] - self.place) / self.width) @ weight for i in range(0, len(flat), step)
        ]
        return np.concatenate(parts).reshape(asked.shape) if parts else asked.copy()

    @property
    def known(self) -> float | None:
        """The number, where it is certain."""
        return float(self.place[0]) if len(self.place) == 1 and self.width[0] == 0.0 else None

    def quantile(self, q: Any) -> Floats:
        """Quantiles, elementwise, by finer and finer grids of the distribution function."""
        wanted = np.asarray(q, np.float64)
        if self.known is not None:
            return np.full(wanted.shape, self.known)
        asked = wanted.ravel()[:, None]
        low = np.full(asked.shape, (self.place - 9.0 * self.width).min())
        high = np.full(asked.shape, (self.place + 9.0 * self.width).max())
        whole = np.linspace(low[:1, 0], high[:1, 0], GRID).T
        grid, below = whole, self.cdf(whole)
        for points in (FINER, FINER, FINER, 0):
            left = np.clip((below < asked).sum(1) - 1, 0, grid.shape[1] - 2)[:, None]
            grid, below = (np.broadcast_to(x, (len(asked), x.shape[1])) for x in (grid, below))
            low, high = (np.take_along_axis(grid, left + side, 1) for side in (0, 1))
            under, over = (np.take_along_axis(below, left + side, 1) for side in (0, 1))
            if points:
                grid = low + (high - low) * np.linspace(0.0, 1.0, points)
                below = self.cdf(grid)
        share = np.clip((asked - under) / np.where(over > under, over - under, 1.0), 0.0, 1.0)
        return np.asarray((low + share * (high - low)).reshape(wanted.shape))

    def crps(self, x: float) -> float:
        """Continuous ranked probability score of a number that turned out as x, in its unit; 0 is best.

        The integral of the squared difference of distribution functions (Gneiting & Raftery 2007, "Strictly proper
        scoring rules, prediction, and estimation", equation 20), on a grid.
        """
        if self.known is not None:
            return abs(x - self.known)
        # Beyond these ends next to nothing is left to integrate.
        coarse = np.linspace((self.place - 9.0 * self.width).min(), (self.place + 9.0 * self.width).max(), GRID)
        below = self.cdf(coarse)
        ends = coarse[below <= TAIL].max(), coarse[below >= 1.0 - TAIL].min()
        grid = np.union1d(np.linspace(min(*ends, x), max(*ends, x), 401), [x])
        middle, step = 0.5 * (grid[1:] + grid[:-1]), np.diff(grid)
        return float(step @ (self.cdf(middle) - (middle >= x)) ** 2)

    def thinned(self) -> Mixture:
        """About the same law with at most ``BINS`` times ``KERNELS`` parts: places are shared out between neighbouring
        bins, so that the mean stays, and widths are grouped."""
        if len(self.place) <= BINS * KERNELS:
            return self
        reach = np.arcsinh(WITHIN / CORE)
        place = self.mean + max(self.sd, LEAST) * CORE * np.sinh(np.linspace(-reach, reach, BINS))
        left = np.clip(np.searchsorted(place, self.place, side="right") - 1, 0, BINS - 2)
        share = np.clip((self.place - place[left]) / (place[left + 1] - place[left]), 0.0, 1.0)
        order = np.argsort(self.width, kind="stable")
        total = np.cumsum(self.weight[order])
        kernel = np.empty(len(order), np.int64)
        kernel[order] = np.minimum((total / total[-1] * KERNELS).astype(np.int64), KERNELS - 1)
        size = BINS * KERNELS
        weight = sum(
            np.bincount(kernel * BINS + left + side, self.weight * part, size)
            for side, part in ((0, 1.0 - share), (1, share))
        )
        square = np.bincount(kernel, self.weight * self.width**2, KERNELS)
        mass = np.bincount(kernel, self.weight, KERNELS)
        width = np.sqrt(square / np.where(mass > 0.0, mass, 1.0))
        kept = np.asarray(weight) > 0.0
        place, width, found = np.tile(place, KERNELS)[kept], np.repeat(width, BINS)[kept], np.asarray(weight)[kept]
        return Mixture(place, width, found, self.gaps)
