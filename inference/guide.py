"""The default variational family: full covariance over the leading parameters, independent normals for the rest."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.distributions import biject_to
from scipy.linalg import solve_triangular

from nousppl.inference.backend import distribution
from nousppl.inference.packed import Packing, from_half_normal, half_normal
from nousppl.models.namespace import Array
from nousppl.models.priors import Prior
from nousppl.models.program import Plan

STRIDE = 0.5
"""A row of the factor has as many elements as there are parameters before it, and all of them jitter by the step size
of the optimiser: their steps are this much smaller, so that together they do not drown the row's scale."""


SURE = 0.9
"""Share of repetitions from which a pair of sources starts as one that repeats."""


class State(NamedTuple):
    """Variational parameters."""

    mean: Array
    """(size,)"""
    factor: Array
    """(full, full): log scales on the diagonal, below it the Cholesky factor in units of row scale over `STRIDE`."""
    log_scale: Array
    """(size - full,)"""


def initial(plan: Plan, pack: Packing, scale: float = 0.02) -> State:
    """Prior medians with a spread so small that the first gradients are hardly noisy; it grows soon."""
    mean = np.zeros(pack.size)
    priors = {site.name: site.prior for site in plan.sites if site.scale is None}
    for slot in pack.slots:
        prior = priors.get(slot.name)
        if prior is not None:
            mean[slot.start : slot.start + slot.size] = _start(prior.family, prior.parameters)
    return _state(mean, np.log(scale) * np.eye(pack.full), np.full(pack.size - pack.full, np.log(scale)))


def _state(mean: NDArray[np.float64], factor: NDArray[np.float64], log_scale: NDArray[np.float64]) -> State:
    """In the working precision; numpy arrays, since a function of jax that is not part of a larger one is compiled by
    itself, and a first fit would take the longer."""
    kind = jnp.result_type(float)
    return State(mean.astype(kind), factor.astype(kind), log_scale.astype(kind))


def moments(plan: Plan, pack: Packing, known: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> State:
    """A state with these means and standard deviations of the unconstrained parameters, by the name of their slot;
    those not given are as in `initial`, with a spread of 0.1."""
    mean = np.array(initial(plan, pack).mean, np.float64)
    scale = np.full(pack.size, 0.1)
    for slot in pack.slots:
        if slot.name in known:
            mean[slot.start : slot.start + slot.size], scale[slot.start : slot.start + slot.size] = known[slot.name]
    log_scale = np.log(scale)
    return _state(mean, np.diag(log_scale[: pack.full]), log_scale[pack.full :])


def with_echoes(state: State, plan: Plan, pack: Packing, repeats: NDArray[np.float64]) -> State:
    """The state in which pairs of sources that nearly always seem to repeat each other start with such a weight.

    From the weight of strangers it is a long way that a fit does not find where those who copy are the majority.

    Args:
        state: to start from.
        plan: the parameters.
        pack: of a model with affinities.
        repeats: (pairs,) crude share of the claims of each pair that are repetitions.
    """
    slots = {slot.name: slot for slot in pack.slots}
    raw, mean = slots["origin_affinity_raw"], np.array(state.mean, np.float64)
    strangers, spread = (mean[slots[name].start] for name in ("origin_log_strangers", "origin_affinity_sigma"))
    chance = np.clip(repeats, SURE, 0.999)
    sites = {site.name: site.prior for site in plan.sites}
    weight = (np.log(chance / (1.0 - chance)) - strangers) / natural(sites["origin_affinity_sigma"], spread)
    mean[raw.start : raw.start + raw.size] = np.where(repeats > SURE, weight, 0.0)
    return state._replace(mean=mean.astype(state.mean.dtype))


def _start(family: str, parameters: dict[str, float]) -> float:
    if family == "HalfNormal":
        return float(from_half_normal(np.asarray(0.6)))
    return float(parameters.get("loc", 0.0))


def cholesky(state: State) -> jax.Array:
    """(full, full) lower Cholesky factor of the leading block."""
    scale = jnp.exp(jnp.diagonal(state.factor))[:, None]
    return scale * (jnp.eye(len(scale)) + STRIDE * jnp.tril(state.factor, -1))


def transform(state: State, noise: jax.Array) -> jax.Array:
    """Standard normal noise (..., size) -> draws of the packed parameters."""
    full = state.factor.shape[0]
    lead = noise[..., :full] @ cholesky(state).T
    rest = noise[..., full:] * jnp.exp(state.log_scale)
    return state.mean + jnp.concatenate([lead, rest], axis=-1)


def entropy(state: State) -> jax.Array:
    """Entropy up to a constant: sum of the logs of the diagonal."""
    return jnp.diagonal(state.factor).sum() + state.log_scale.sum()


def draw(state: State, seed: int, count: int) -> NDArray[np.float64]:
    """(count, size) draws in double precision, by seed."""
    return place(state, np.random.default_rng(seed).standard_normal((count, len(state.mean))))


def place(state: State, noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `transform` for (count, size) noise, in double precision."""
    mean, lower, scale = _double(state)
    full = len(lower)
    return np.asarray(mean + np.concatenate([noise[:, :full] @ lower.T, noise[:, full:] * scale], axis=1))


def log_density(state: State, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) log density of the family at (n, size) packed parameters, in double precision."""
    mean, lower, scale = _double(state)
    full = len(lower)
    away = vectors - mean
    lead = solve_triangular(lower, away[:, :full].T, lower=True).T
    square = np.square(lead).sum(1) + np.square(away[:, full:] / scale).sum(1)
    return -0.5 * (square + len(mean) * np.log(2.0 * np.pi)) - np.log(np.diagonal(lower)).sum() - np.log(scale).sum()


def _double(state: State) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Means, Cholesky factor of the leading block and scales of the rest, in double precision."""
    mean, factor, log_scale = (np.asarray(part, np.float64) for part in state)
    lower = np.exp(np.diagonal(factor))[:, None] * (np.eye(len(factor)) + STRIDE * np.tril(factor, -1))
    return mean, lower, np.exp(log_scale)


def constrain(plan: Plan, pack: Packing, vectors: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Packed unconstrained draws -> site -> draws on the natural scale (group effects still raw)."""
    priors = {site.name: site.prior for site in plan.sites if site.scale is None}
    out = {}
    for slot in pack.slots:
        value = vectors[:, slot.start] if slot.scalar else vectors[:, slot.start : slot.start + slot.size]
        prior = priors.get(slot.name)
        out[slot.name] = value if prior is None else natural(prior, value)
    return out


def natural(prior: Prior, value: NDArray[np.float64]) -> NDArray[np.float64]:
    """A packed value on the scale of its prior."""
    if prior.family in ("Normal", "StudentT", "Laplace", "Cauchy"):
        return value
    if prior.family == "HalfNormal":
        return prior.parameters["scale"] * half_normal(value)
    if prior.family in ("LogNormal", "Gamma", "Exponential", "HalfCauchy"):
        return np.exp(value)
    return np.asarray(biject_to(distribution(prior).support)(jnp.asarray(value)), np.float64)
