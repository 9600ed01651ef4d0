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
BLOCK = 4_000_000
"""Numbers that are in memory at once."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """``sum_i weight[i] Normal(place[i], width[i])``."""

    place: Floats
    """(n,)"""
    width: Floats
    """(n,) standard deviations; 0 for a known number."""
    weight: Floats
    """(n,) sums to 1."""

    @cached_property
    def mean(self) -> float:
        """The mean."""
        return float((self.weight * self.place).sum())

    @cached_property
    def sd(self) -> float:
        """The standard deviation."""
        return float(np.sqrt((self.weight * ((self.place - self.mean) ** 2 + self.width**2)).sum()))

    def cdf(self, x: Any) -> Floats:
        """P(number <= x), elementwise."""
        return self._over(x, ndtr)

    def density(self, x: Any) -> Floats:
        """The density at x, elementwise; infinite at a known number."""
        if self.known is not None:
            return np.where(np.asarray(x) == self.known, np.inf, 0.0)
        return self._over(x, lambda z: np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi), per_width=True)

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
        ends = [*self.quantile(np.array([1e-5, 1 - 1e-5])), x]
        grid = np.union1d(np.linspace(min(ends), max(ends), 401), [x])
        middle, step = 0.5 * (grid[1:] + grid[:-1]), np.diff(grid)
        return float(step @ (self.cdf(middle) - (middle >= x)) ** 2)

    def thinned(self) -> Mixture:
        """About the same law with at most ``BINS`` times ``KERNELS`` parts: places are shared out between neighbouring
        bins, so that the mean stays, and widths are grouped."""
        if len(self.place) <= BINS * KERNELS:
            return self
        reach = np.arcsinh(WITHIN / CORE)
        place = self.mean + max(self.sd, 1e-300) * CORE * np.sinh(np.linspace(-reach, reach, BINS))
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
        return Mixture(np.tile(place, KERNELS)[kept], np.repeat(width, BINS)[kept], np.asarray(weight)[kept])
