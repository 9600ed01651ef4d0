"""Chains of the no-U-turn sampler, compiled once for all data of one shape.

numpyro makes the transitions; what differs from ``numpyro.infer.MCMC`` is that the data are arguments of the compiled
code, that a fit compiles two functions and not some hundreds, and that the chains move in better coordinates (see
``nousppl.inference.location``), so that a second fit of the same shape compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.infer
import optax
from jax.scipy.special import erf, ndtr, ndtri
from numpyro.infer.hmc import hmc
from numpyro.infer.util import ParamInfo

from nousppl.inference.backend import JAX
from nousppl.inference.guide import initial
from nousppl.inference.location import Link, mover
from nousppl.inference.packed import Packing, log_density
from nousppl.models.layout import Layout
from nousppl.models.priors import Prior
from nousppl.models.program import Plan

ADAM = optax.scale_by_adam()
BLOCK = 50
"""Transitions between two reports of the progress."""
CLIMB, RATE = 100, 0.05
"""Steps of Adam from the medians of the priors, with the votes and again without, and their size."""
JITTER = 0.1
"""Standard deviation of the start values of chains around that place."""
SQRT_2, LOG_2 = float(np.sqrt(2.0)), float(np.log(2.0))
FIELDS = ("diverging", "num_steps", "potential_energy", "energy", "accept_prob")
"""What is kept of each transition."""


class Kernel(numpyro.infer.NUTS):
    """numpyro's kernel with a potential that takes the data as an argument and start values that are given."""

    def __init__(self, potential: Callable[[Any], Callable[[Any], Any]], **options: Any) -> None:
        # It stands where numpyro looks whether there is a model: of its parameters the mass matrix has blocks by name.
        super().__init__(potential, **options)
        self._potential = potential

    def _init_state(self, rng_key: Any, model_args: Any, model_kwargs: Any, init_params: Any) -> Any:
        # numpyro would trace the model site by site, and evaluate it outside of compiled code.
        self._init_fn, self._sample_fn = hmc(
            potential_fn_gen=self._potential, kinetic_fn=self._kinetic_fn, algo=self._algo
        )
        return init_params


class Chains(NamedTuple):
    """Compiled functions of one model on data of one shape."""

    begin: Callable[..., Any]
    """(key, data) -> state of a chain at its start."""
    advance: Callable[..., Any]
    """(state, data, number) -> state, and arrays of the first ``number`` of `BLOCK` transitions: packed unconstrained
    parameters, and `FIELDS`."""
    last: Callable[..., Any]
    """(state, data) -> the state in the coordinates of the model."""


class Setting(NamedTuple):
    """What chains are compiled for, besides the model and its sizes."""

    num_warmup: int
    together: bool
    """Whether all chains are advanced by one call."""
    dense: tuple[str, ...]
    """Slots of the leading parameters, whose mass matrix is dense unless ``kernel`` says otherwise."""
    kernel: tuple[tuple[str, Any], ...]
    """Further arguments of numpyro's kernel."""


def compiled(frozen: Any, layout: Layout, pack: Packing, chain: tuple[Link, ...], setting: Setting) -> Chains:
    """The compiled functions; the same for equal arguments, so that a second fit of the same shape compiles nothing.

    Args:
        frozen: the plan, as ``nousppl.inference.svi.Frozen``.
        layout: static sizes.
        pack: order of the parameters.
        chain: see `nousppl.inference.location.links`.
        setting: see `Setting`.
    """
    try:
        return _compiled(frozen, layout, pack, chain, setting)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        # Arrays among the kernel's arguments, such as a mass matrix.
        return _compiled.__wrapped__(frozen, layout, pack, chain, setting)


@lru_cache(maxsize=16)
def _compiled(frozen: Any, layout: Layout, pack: Packing, chain: tuple[Link, ...], setting: Setting) -> Chains:
    plan: Plan = frozen.plan
    density, move, natural = log_density(JAX, plan, layout, pack), mover(plan, chain), _naturals(plan)
    start, (moving, _) = np.asarray(initial(plan, pack).mean), pack.masks(())

    def to_model(z: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        return move(z, natural(z), data, -1.0)

    def packed(z: dict[str, Any]) -> jax.Array:
        return jnp.concatenate([jnp.atleast_1d(z[slot.name]) for slot in pack.slots])

    def potential(data: dict[str, Any]) -> Callable[[Any], jax.Array]:
        return lambda z: -density(packed(to_model(z, data)), data)

    options = {"dense_mass": (setting.dense,)} | dict(setting.kernel)
    dense = options.pop("dense_mass")
    kernel = Kernel(potential, dense_mass=dense if isinstance(dense, bool) else list(dense), **options)

    def enter(key: jax.Array, where: Any, data: dict[str, Any]) -> Any:
        return kernel.init(key, setting.num_warmup, where, (data,), {})

    def begin(key: jax.Array, data: dict[str, Any]) -> Any:
        own, key = jax.random.split(key)
        noise = JITTER * jax.random.normal(own, (pack.size,))
        first = pack.unpack(start + noise)
        climb = Climb(lambda z, vote: potential(data | {"at_vote": vote})(z), pack.unpack(moving), pack.unpack(noise))
        return enter(key, climb(move(first, natural(first), data, 1.0)), data)

    def advance(state: Any, data: dict[str, Any], number: jax.Array) -> Any:
        # Without it the kernel's own adaptation would not be there, or belong to another trace.
        enter(state.rng_key, ParamInfo(state.z, state.potential_energy, state.z_grad), data)

        def one(i: jax.Array, carry: Any) -> Any:
            state, kept = carry
            state = kernel.sample(state, (data,), {})
            row = {"vector": packed(to_model(state.z, data))} | {name: getattr(state, name) for name in FIELDS}
            return state, jax.tree.map(lambda rows, value: rows.at[i].set(value), kept, row)

        empty = {name: jnp.zeros(BLOCK, getattr(state, name).dtype) for name in FIELDS}
        empty["vector"] = jnp.zeros((BLOCK, pack.size), start.dtype)
        return jax.lax.fori_loop(0, number, one, (state, empty))

    def last(state: Any, data: dict[str, Any]) -> Any:
        u = as_numpyro(plan, to_model(state.z, data))

        def to_sampler(u: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
            z, log_slope = from_numpyro(plan, u)
            return move(z, natural(z), data, 1.0), log_slope

        (_, log_slope), back = jax.vjp(to_sampler, u)
        (gradient,) = back((state.z_grad, jnp.full_like(log_slope, -1.0)))
        return state._replace(z=u, z_grad=gradient, potential_energy=state.potential_energy - log_slope)

    if setting.together:
        batched = (jax.vmap(begin, (0, None)), jax.vmap(advance, (0, None, None)), jax.vmap(last, (0, None)))
        return Chains(*(jax.jit(function) for function in batched))
    return Chains(jax.jit(begin), jax.jit(advance), jax.jit(last))


class Climb(NamedTuple):
    """Steps of Adam to where a chain starts: first unsettled truths follow the votes, then they are summed out, so that
    no chain starts in the mirror mode in which all sources are liars."""

    potential: Callable[[Any, Any], jax.Array]
    """Of parameters and whether truths follow the votes."""
    moving: Any
    """0 for the standard deviations of groups: at the maximum of the density they are 0."""
    noise: Any
    """Added at the end."""

    def __call__(self, z: Any) -> ParamInfo:
        """The place that is reached from one, its potential and gradient."""

        def step(i: jax.Array, carry: Any) -> Any:
            z, inner, *_ = carry
            value, gradient = jax.value_and_grad(self.potential)(z, jnp.where(i < CLIMB, 1.0, 0.0))
            held = jax.tree.map(jnp.multiply, gradient, self.moving)
            change, inner = ADAM.update(held, inner, z)
            # The last round only looks at where it has arrived; so the density is compiled once.
            rate, noise = jnp.where(i < 2 * CLIMB, RATE, 0.0), jnp.where(i == 2 * CLIMB - 1, 1.0, 0.0)
            z = jax.tree.map(lambda p, c, n: p - rate * c + noise * n, z, change, self.noise)
            return z, inner, value, gradient

        zero = jnp.zeros((), jnp.result_type(float))
        z, _, value, gradient = jax.lax.fori_loop(0, 2 * CLIMB + 1, step, (z, ADAM.init(z), zero, z))
        return ParamInfo(z, value, gradient)


def _naturals(plan: Plan) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Standard deviations of groups on their natural scale."""
    scales = {site.scale for site in plan.sites}
    priors = {site.name: site.prior for site in plan.sites if site.name in scales}

    def natural(prior: Prior, x: Any) -> jax.Array:
        if prior.family == "HalfNormal":
            return prior.parameters["scale"] * JAX.half_normal(x)
        return JAX.from_real(prior, x)[0]

    return lambda z: {name: natural(prior, z[name]) for name, prior in priors.items()}


def _half_normals(plan: Plan) -> dict[str, float]:
    """Sites with a half-normal prior, which numpyro takes by their logs, and its scale."""
    top = {site.name: site.prior for site in plan.sites if site.scale is None}
    return {name: prior.parameters["scale"] for name, prior in top.items() if prior.family == "HalfNormal"}


def as_numpyro(plan: Plan, z: dict[str, Any]) -> dict[str, Any]:
    """Parameters in numpyro's unconstrained coordinates, from the packed ones by name."""
    return z | {name: jnp.log(scale * JAX.half_normal(z[name])) for name, scale in _half_normals(plan).items()}


def from_numpyro(plan: Plan, u: dict[str, Any]) -> tuple[dict[str, Any], jax.Array]:
    """The inverse of `as_numpyro`, and the log of the volume that it takes up."""
    out, log_slope = dict(u), jnp.zeros(())
    for name, scale in _half_normals(plan).items():
        x = jnp.exp(u[name]) / scale
        # The normal number with the same quantile, from the side on which single precision sees it.
        low, high = ndtri(erf(jnp.minimum(x, 1.0) / SQRT_2)), -ndtri(2.0 * ndtr(-jnp.maximum(x, 1.0)))
        out[name] = jnp.where(x < 1.0, low, high)
        log_slope = log_slope + (LOG_2 + jnp.log(x) + 0.5 * (out[name] ** 2 - x * x)).sum()
    return out, log_slope
