"""All parameters of a program in one vector, and its log density there.

The density equals that of ``nousppl.models.program.program`` in unconstrained parameters, Jacobians included; priors
are evaluated together instead of site by site, which compiles several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace
from nousppl.models.program import Plan, log_likelihood

Floats = NDArray[np.float64]
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
                raw, centred = values[site.name], data["centred " + site.name]
                scale = xp.where(centred, values[site.scale], xp.array(1.0))
                ratio, size = raw / scale, site.size or 1
                total = total - 0.5 * (ratio * ratio).sum() - xp.log(scale).sum() - 0.5 * size * LOG_2PI
                values[site.name] = xp.where(centred, raw, values[site.scale] * raw)
        return total + log_likelihood(xp, plan, layout, data, values)

    return density


LOG_2, LOG_2PI = float(np.log(2.0)), float(np.log(2.0 * np.pi))


class TopLevel(NamedTuple):
    """Priors of the top-level parameters, which come first in the packed vector, all taken at once."""

    xp: Namespace
    plan: Plan
    pack: Packing
    half: Floats
    """(size,) 1 for a half-normal prior of a positive parameter, 0 for a normal prior (of its log where positive)."""
    positive: Floats
    """(all,) 1 where the parameter is the exponential of the packed value; 0 for group effects."""
    loc: Floats
    scale: Floats

    @classmethod
    def of(cls, xp: Namespace, plan: Plan, pack: Packing) -> TopLevel:
        """Collect the priors."""
        sites = {site.name: site for site in plan.sites if site.scale is None}
        rows = []
        for slot in pack.slots:
            if slot.name in sites:
                prior = sites[slot.name].prior
                row = (prior.family, prior.parameters.get("loc", 0.0), prior.parameters["scale"])
                rows += [row] * slot.size
        family = np.array([row[0] for row in rows])
        positive = np.zeros(pack.size)
        positive[: len(rows)] = family != "Normal"
        half = (family == "HalfNormal").astype(float)
        return cls(xp, plan, pack, half, positive, np.array([row[1] for row in rows]), np.array([r[2] for r in rows]))

    def values(self, vector: Array) -> tuple[dict[str, Array], Array]:
        """Site -> value on the natural scale, group effects still raw, and the log prior density of the packed
        values, Jacobian included."""
        xp, size, zero = self.xp, len(self.loc), self.xp.array(0.0)
        positive, half = xp.array(self.positive) > 0.0, xp.array(self.half) > 0.0
        natural = xp.where(positive, xp.exp(xp.where(positive, vector, zero)), vector)
        top = vector[:size]
        ratio = (xp.where(half, natural[:size], top) - xp.array(self.loc)) / xp.array(self.scale)
        constant = -float(np.log(self.scale).sum()) - 0.5 * size * LOG_2PI
        jacobian = xp.where(half, top + LOG_2, zero).sum()
        return by_site(self.plan, self.pack.unpack(natural)), jacobian - 0.5 * (ratio * ratio).sum() + constant


class OneByOne(NamedTuple):
    """The same for priors of any family, site by site."""

    xp: Namespace
    plan: Plan
    pack: Packing

    def values(self, vector: Array) -> tuple[dict[str, Array], Array]:
        """As `TopLevel.values`."""
        values, total = by_site(self.plan, self.pack.unpack(vector)), self.xp.array(0.0)
        for site in self.plan.sites:
            if site.scale is None:
                values[site.name], jacobian = self.xp.from_real(site.prior, values[site.name])
                total = total + (self.xp.log_prob(site.prior, values[site.name]) + jacobian).sum()
        return values, total


def by_site(plan: Plan, values: dict[str, Array]) -> dict[str, Array]:
    """Raw group effects under the name of their site."""
    return {site.name: values[name] for site, name in zip(plan.sites, plan.raw_names, strict=True)}
