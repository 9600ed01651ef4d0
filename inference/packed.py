"""All parameters of a program in one vector, and its log density there.

The density equals that of ``nousppl.models.program.program`` in unconstrained parameters, Jacobians included; priors
are evaluated together instead of site by site, which compiles several times faster.

Parameters with a normal prior are packed as they are, with a log-normal one by their log, and those with a half-normal
one, the standard deviations of groups, by the normal number that has the same place in its distribution. So every one
of these priors is normal in the packed vector, and where data say little of a standard deviation its posterior is
nearly normal too: that of its log has a long tail towards 0, which a normal guide cuts off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, erfinv, ndtr, ndtri

from nousppl.models.layout import Layout
from nousppl.models.namespace import FARTHEST, Array, Namespace
from nousppl.models.program import TINY, Plan, log_likelihood

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Density = Callable[[Array, dict[str, Any]], Array]
TOGETHER = {"Normal", "HalfNormal", "LogNormal"}
"""Families whose priors are evaluated together."""


class Slot(NamedTuple):
    """Where a site lies in the packed vector of unconstrained parameters."""

    name: str
    start: int
    size: int
    scalar: bool


class Packing(NamedTuple):
    """Order of all sites in one vector; the first ``full`` elements get a full covariance."""

    slots: tuple[Slot, ...]
    size: int
    full: int
    spreads: tuple[int, ...]
    """Places of the standard deviations of group effects."""

    def unpack(self, vector: Array) -> dict[str, Array]:
        """Site -> unconstrained values, last axis split."""
        return {
            s.name: vector[..., s.start] if s.scalar else vector[..., s.start : s.start + s.size] for s in self.slots
        }

    def masks(self, still: tuple[str, ...]) -> tuple[Floats, Floats]:
        """(size,) 1 for what moves in steps without noise, and 1 for what moves at all where some sites stay."""
        # Without noise the density has a spike where a standard deviation and its effects shrink to 0 together.
        moving, free = np.ones(self.size), np.ones(self.size)
        moving[list(self.spreads)] = 0.0
        for slot in self.slots:
            if slot.name in still:
                free[slot.start : slot.start + slot.size] = 0.0
        return moving, free


def packing(plan: Plan, full_size: int) -> Packing:
    """Top-level parameters first, then group effects from the smallest set to the largest; as many whole sets as fit
    get a full covariance."""
    sites = sorted(plan.sites, key=lambda site: (site.scale is not None, site.size or 1))
    slots, start, full = [], 0, 0
    for site in sites:
        size = site.size or 1
        name = site.name if site.scale is None else site.name + "_raw"
        slots.append(Slot(name, start, size, site.size is None))
        start += size
        if start <= full_size:
            full = start
    scales = {site.scale for site in plan.sites}
    return Packing(tuple(slots), start, full, tuple(s.start for s in slots if s.name in scales))


def log_density(xp: Namespace, plan: Plan, layout: Layout, pack: Packing) -> Density:
    """Log joint density as a function of the packed vector and the data."""
    families = {site.prior.family for site in plan.sites if site.scale is None}
    top = TopLevel.of(xp, plan, pack) if families <= TOGETHER else OneByOne(xp, plan, pack)

    def density(vector: Array, data: dict[str, Any]) -> Array:
        values, total = top.values(vector)
        for site in plan.sites:
            if site.scale is not None and site.prior.family != "Normal":
                raw = values[site.name]
                total = total + xp.log_prob(site.prior, raw).sum()
                values[site.name] = values[site.scale] * raw
            elif site.scale is not None:
                raw, log_spread = values[site.name], xp.log(xp.maximum(values[site.scale], xp.array(TINY)))
                centred = data["centred " + site.name]
                ratio, size = raw * xp.exp(-centred * log_spread), site.size or 1
                total = total - 0.5 * (ratio * ratio).sum() - (centred * log_spread).sum() - 0.5 * size * LOG_2PI
                values[site.name] = raw * xp.exp((1.0 - centred) * log_spread)
        return total + log_likelihood(xp, plan, layout, data, xp.once(values))

    return density


LOG_2PI = float(np.log(2.0 * np.pi))


class TopLevel(NamedTuple):
    """Priors of the top-level parameters, which come first in the packed vector, all taken at once."""

    xp: Namespace
    plan: Plan
    pack: Packing
    half: Ints
    """Places of the parameters with a half-normal prior."""
    half_scale: Floats
    """The scale of each of these priors."""
    positive: Ints
    """Places of the parameters that are the exponential of the packed value."""
    loc: Floats
    """(size,) mean of the packed value under its prior, which is normal."""
    scale: Floats
    """(size,) its standard deviation."""

    @classmethod
    def of(cls, xp: Namespace, plan: Plan, pack: Packing) -> TopLevel:
        """Collect the priors."""
        sites = {site.name: site for site in plan.sites if site.scale is None}
        rows: list[tuple[str, float, float]] = []
        for slot in pack.slots:
            if slot.name in sites:
                prior = sites[slot.name].prior
                row = (prior.family, prior.parameters.get("loc", 0.0), prior.parameters["scale"])
                rows += [row] * slot.size
        families = np.array([family for family, _, _ in rows])
        half, positive = (np.flatnonzero(families == family) for family in ("HalfNormal", "LogNormal"))
        given = np.array([scale for _, _, scale in rows])
        scale = np.where(families == "HalfNormal", 1.0, given)
        return cls(xp, plan, pack, half, given[half], positive, np.array([row[1] for row in rows]), scale)

    def values(self, vector: Array) -> tuple[dict[str, Array], Array]:
        """Site -> value on the natural scale, group effects still raw, and the log prior density of the packed
        values, which are normal."""
        xp, size = self.xp, len(self.loc)
        values = self.pack.unpack(vector)
        # The functions are taken of the few values that need them, together: each costs time and, more, compilation.
        if len(self.half):
            values |= self._those(self.half, xp.array(self.half_scale) * xp.half_normal(vector[self.half]))
        if len(self.positive):
            values |= self._those(self.positive, xp.exp(vector[self.positive]))
        ratio = (vector[:size] - xp.array(self.loc)) / xp.array(self.scale)
        constant = -float(np.log(self.scale).sum()) - 0.5 * size * LOG_2PI
        return by_site(self.plan, values), constant - 0.5 * (ratio * ratio).sum()

    def _those(self, places: Ints, natural: Array) -> dict[str, Array]:
        """Site -> value on the natural scale, of the sites at some places."""
        out = {}
        for slot in self.pack.slots:
            begin, end = np.searchsorted(places, [slot.start, slot.start + slot.size])
            if end > begin:
                out[slot.name] = natural[begin] if slot.scalar else natural[begin:end]
        return out


class OneByOne(NamedTuple):
    """The same for priors of any family, site by site."""

    xp: Namespace
    plan: Plan
    pack: Packing

    def values(self, vector: Array) -> tuple[dict[str, Array], Array]:
        """As `TopLevel.values`."""
        values, total = by_site(self.plan, self.pack.unpack(vector)), self.xp.array(0.0)
        for site in self.plan.sites:
            if site.scale is None and site.prior.family == "HalfNormal":
                packed = values[site.name]
                values[site.name] = site.prior.parameters["scale"] * self.xp.half_normal(packed)
                total = total - 0.5 * (packed * packed + LOG_2PI).sum()
            elif site.scale is None:
                values[site.name], jacobian = self.xp.from_real(site.prior, values[site.name])
                total = total + (self.xp.log_prob(site.prior, values[site.name]) + jacobian).sum()
        return values, total


def half_normal(x: Floats) -> Floats:
    """As ``nousppl.models.namespace.Namespace.half_normal``, in double precision."""
    x = np.clip(x, -FARTHEST, FARTHEST)
    return np.where(x < 0.0, np.sqrt(2.0) * erfinv(ndtr(np.minimum(x, 0.0))), -ndtri(0.5 * ndtr(-np.maximum(x, 0.0))))


def from_half_normal(y: Floats) -> Floats:
    """The inverse of `half_normal`."""
    y = np.maximum(y, 0.0)
    below = ndtri(np.maximum(erf(y / np.sqrt(2.0)), ndtr(-FARTHEST)))
    return np.where(below < 0.0, below, -ndtri(np.maximum(2.0 * ndtr(-y), ndtr(-FARTHEST))))


def by_site(plan: Plan, values: dict[str, Array]) -> dict[str, Array]:
    """Raw group effects under the name of their site."""
    return {site.name: values[name] for site, name in zip(plan.sites, plan.raw_names, strict=True)}
