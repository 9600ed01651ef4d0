"""All parameters of a program in one vector, and its log density there.

The density equals that of ``nousppl.models.program.program`` in unconstrained parameters, Jacobians included; priors
are evaluated together instead of site by site, which compiles several times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import potential_energy

from nousppl.inference.backend import JAX, distribution
from nousppl.models.layout import Layout
from nousppl.models.program import Plan, log_likelihood, program

Density = Callable[[jax.Array, dict[str, Any]], jax.Array]
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

    def unpack(self, vector: jax.Array) -> dict[str, jax.Array]:
        """Site -> unconstrained values, last axis split."""
        return {
            s.name: vector[..., s.start] if s.scalar else vector[..., s.start : s.start + s.size] for s in self.slots
        }


def packing(plan: Plan, full_size: int) -> Packing:
    """Top-level parameters first, then group effects from the smallest set to the largest; as many whole sets as fit
    get
    a full covariance."""
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


def log_density(plan: Plan, layout: Layout, pack: Packing) -> Density:
    """Log joint density as a function of the packed vector and the data."""
    families = {site.prior.family for site in plan.sites if site.scale is None}
    if not families <= TOGETHER:
        model = partial(program, JAX, plan, layout)
        return lambda vector, data: -potential_energy(model, (data,), {}, pack.unpack(vector))
    prior = TopLevel.of(plan, pack)

    def density(vector: jax.Array, data: dict[str, Any]) -> jax.Array:
        values = natural_values(plan, pack, prior, vector)
        total = prior.log_density(vector[: prior.size])
        for site in plan.sites:
            if site.scale is not None and site.prior.family != "Normal":
                raw = values[site.name]
                total = total + jnp.sum(distribution(site.prior).log_prob(raw))
                values[site.name] = values[site.scale] * raw
            elif site.scale is not None:
                raw, centred = values[site.name], data["centred " + site.name]
                scale = jnp.where(centred, values[site.scale], 1.0)
                total = (
                    total - 0.5 * jnp.sum(jnp.square(raw / scale)) - jnp.sum(jnp.log(scale)) - 0.5 * raw.size * LOG_2PI
                )
                values[site.name] = jnp.where(centred, raw, values[site.scale] * raw)
        return total + log_likelihood(JAX, plan, layout, data, values)

    return density


LOG_2PI = float(np.log(2.0 * np.pi))


class TopLevel(NamedTuple):
    """Priors of the top-level parameters, which come first in the packed vector."""

    size: int
    half: np.ndarray
    """(size,) True for a half-normal prior of a positive parameter, False for a normal prior (of its log where
    positive)."""
    positive: np.ndarray
    """(size,) whether the parameter is the exponential of the packed value."""
    loc: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, plan: Plan, pack: Packing) -> TopLevel:
        """Collect the priors."""
        sites = {site.name: site for site in plan.sites if site.scale is None}
        rows = []
        for slot in pack.slots:
            if slot.name in sites:
                prior = sites[slot.name].prior
                row = (prior.family, prior.parameters.get("loc", 0.0), prior.parameters["scale"])
                rows += [row] * slot.size
        family = np.array([row[0] for row in rows])
        return cls(
            len(rows),
            family == "HalfNormal",
            family != "Normal",
            np.array([row[1] for row in rows]),
            np.array([row[2] for row in rows]),
        )

    def log_density(self, top: jax.Array) -> jax.Array:
        """Log prior density of the packed values, Jacobian included."""
        natural = jnp.where(self.half, jnp.exp(jnp.where(self.half, top, 0.0)), top)
        square = -0.5 * jnp.square((natural - self.loc) / self.scale) - np.log(self.scale) - 0.5 * LOG_2PI
        return jnp.sum(square + jnp.where(self.half, top + float(np.log(2.0)), 0.0))


def natural_values(plan: Plan, pack: Packing, prior: TopLevel, vector: jax.Array) -> dict[str, jax.Array]:
    """Site -> value on the natural scale; group effects still raw, under the name of their site."""
    top = vector[: prior.size]
    natural = jnp.concatenate(
        [jnp.where(prior.positive, jnp.exp(jnp.where(prior.positive, top, 0.0)), top), vector[prior.size :]]
    )
    values = pack.unpack(natural)
    return {site.name: values[site.name if site.scale is None else site.name + "_raw"] for site in plan.sites}
