"""The namespace of the models on numpyro and jax."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from nousppl.inference.options import AT_ONCE
from nousppl.models.namespace import FARTHEST
from nousppl.models.priors import Prior
from nousppl.models.program import Law

WRITTEN_OUT = 4
"""Rounds of doubling that are written out; questions have up to ``2 ** rounds`` claims."""


def distribution(prior: Prior) -> dist.Distribution:
    """The numpyro distribution of a prior."""
    return getattr(dist, prior.family)(**prior.parameters)


class Jax:
    """``nousppl.models.namespace.Namespace`` on jax arrays and numpyro sites."""

    @staticmethod
    def arrays(data: Mapping[str, Any]) -> dict[str, jax.Array]:
        """As ``jnp.asarray``."""
        return {name: jnp.asarray(value) for name, value in data.items()}

    @staticmethod
    def exp(x: Any) -> jax.Array:
        """As ``jnp.exp``."""
        return jnp.exp(x)

    @staticmethod
    def log(x: Any) -> jax.Array:
        """As ``jnp.log``."""
        return jnp.log(x)

    @staticmethod
    def log1p(x: Any) -> jax.Array:
        """As ``jnp.log1p``."""
        return jnp.log1p(x)

    @staticmethod
    def sigmoid(x: Any) -> jax.Array:
        """The logistic function."""
        return jax.nn.sigmoid(x)

    @staticmethod
    def half_normal(x: Any) -> jax.Array:
        """By the inverse error function below 0, and by the upper tail above; its slope is the ratio of densities."""
        return _half_normal(jnp.clip(x, -FARTHEST, FARTHEST))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> jax.Array:
        """As ``jnp.where``."""
        return jnp.where(condition, x, y)

    @staticmethod
    def minimum(x: Any, y: Any) -> jax.Array:
        """As ``jnp.minimum``."""
        return jnp.minimum(x, y)

    @staticmethod
    def maximum(x: Any, y: Any) -> jax.Array:
        """As ``jnp.maximum``."""
        return jnp.maximum(x, y)

    @staticmethod
    def mean(x: Any) -> jax.Array:
        """As ``jnp.mean``."""
        return jnp.mean(x)

    @staticmethod
    def zeros(size: int) -> jax.Array:
        """Zeros of shape (size,)."""
        return jnp.zeros(size)

    @staticmethod
    def array(x: Any) -> jax.Array:
        """A constant."""
        return jnp.asarray(x, dtype=float) if not isinstance(x, float) else x  # type: ignore[return-value]

    @staticmethod
    def stack(arrays: Sequence[Any]) -> jax.Array:
        """A new first axis."""
        return jnp.stack([jnp.asarray(a, dtype=float) for a in arrays])

    @staticmethod
    def after_zero(x: Any) -> jax.Array:
        """One element longer."""
        return jnp.concatenate([jnp.zeros(1, x.dtype), x])

    @staticmethod
    def take(x: jax.Array, index: jax.Array) -> jax.Array:
        """Gather without the checks of ``x[index]``."""
        return x.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)

    @staticmethod
    def whole(x: Any) -> jax.Array:
        """Rounded, 32 bits."""
        return jnp.rint(x).astype(jnp.int32)

    @staticmethod
    def permuted(x: jax.Array, order: jax.Array, inverse: jax.Array) -> jax.Array:
        """Gathers forwards and backwards: scattering is slow."""
        return _permuted(x, order, inverse)

    @staticmethod
    def positive(index: jax.Array) -> jax.Array:
        """Indices with the negative ones set to 0."""
        return jnp.maximum(index, 0)

    @staticmethod
    def shift(x: jax.Array, by: Any) -> jax.Array:
        """Move to the right along the last axis."""
        size = x.shape[-1]
        if isinstance(by, int):
            return jnp.concatenate([jnp.zeros_like(x[..., :by]), x[..., : max(size - by, 0)]], axis=-1)
        twice = jnp.concatenate([jnp.zeros_like(x), x], axis=-1)
        return jax.lax.dynamic_slice_in_dim(twice, size - jnp.minimum(by, size), size, axis=-1)

    @staticmethod
    def fold_doubling(function: Callable[[Any, Any], Any], start: Any, rounds: int) -> Any:
        """A scan, so that the compiled code does not grow with the number of rounds; a few of them are written out,
        which is faster."""
        if rounds <= WRITTEN_OUT:
            for i in range(rounds):
                start = function(2**i, start)
            return start
        steps = jnp.left_shift(1, jnp.arange(rounds, dtype=jnp.int32))
        return jax.lax.scan(lambda x, by: (function(by, x), None), start, steps)[0]

    @staticmethod
    def rows(x: jax.Array, index: jax.Array) -> jax.Array:
        """As `take`, of a matrix."""
        return Jax.take(x, index)

    @staticmethod
    def max_last(x: jax.Array) -> jax.Array:
        """As ``jnp.max``."""
        return jax.lax.stop_gradient(x).max(-1)

    @staticmethod
    def once(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """By a scatter, which the compiler fuses with nothing; else it puts the transforms of a few parameters into the
        loops over all claims. (Of ``jax.lax.optimization_barrier`` nothing is left when it fuses for processors.)"""
        names, parts = list(values), [jnp.atleast_1d(x) for x in values.values()]
        ends = np.cumsum([part.shape[0] for part in parts])
        whole = jnp.concatenate(parts)
        kept = jnp.zeros_like(whole).at[jnp.arange(whole.shape[0])].set(whole, unique_indices=True)
        split = jnp.split(kept, ends[:-1])
        return {name: x.reshape(values[name].shape) for name, x in zip(names, split, strict=True)}

    @staticmethod
    def fixed(x: Any) -> jax.Array:
        """As ``jax.lax.stop_gradient``."""
        return jax.lax.stop_gradient(x)

    @staticmethod
    def erfc(x: Any) -> jax.Array:
        """As ``jax.scipy.special.erfc``."""
        return jax.scipy.special.erfc(x)

    @staticmethod
    def with_slopes(function: Callable[..., Any], slopes: Callable[..., Any], *x: Any) -> jax.Array:
        """By ``jax.custom_jvp``."""
        known = jax.custom_jvp(function)
        known.defjvp(lambda at, move: (known(*at), sum(s * m for s, m in zip(slopes(*at), move, strict=True))))
        return known(*x)

    @staticmethod
    def sort_last(parts: Sequence[jax.Array]) -> jax.Array:
        """As ``jnp.sort``."""
        rows = max(part.shape[0] for part in parts)
        whole = jnp.concatenate([jnp.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)
        return _sorted(jax.lax.stop_gradient(whole))

    @staticmethod
    def cut_evenly(x: jax.Array, mass: jax.Array, points: int) -> jax.Array:
        """By interpolation in the running sums."""
        x, mass = jax.lax.stop_gradient((x, mass))
        total = jnp.concatenate([jnp.zeros_like(mass[:, :1]), jnp.cumsum(mass, axis=-1)], axis=-1)
        wanted = total[:, -1:] * jnp.arange(points) / (points - 1.0)
        return jax.vmap(jnp.interp)(wanted, total, x)

    @staticmethod
    def scan(function: Callable[[Any, Any], Any], start: Any, over: tuple[jax.Array, ...]) -> Any:
        """As ``jax.lax.scan``."""
        return jax.lax.scan(function, start, over)[1]

    @staticmethod
    def sum_by(x: jax.Array, index: jax.Array, size: int) -> jax.Array:
        """Segment sums; indices of ``size`` or more are dropped."""
        return jnp.zeros(size, x.dtype).at[index].add(x, mode="drop", wrap_negative_indices=False)

    @staticmethod
    def place_of_max_by(x: jax.Array, index: jax.Array, size: int) -> jax.Array:
        """Places of segment maxima above 0, else -1."""
        x = jax.lax.stop_gradient(x)
        top = jnp.zeros(size, x.dtype).at[index].max(x, mode="drop", wrap_negative_indices=False)
        here = jnp.where((x > 0.0) & (x >= Jax.take(top, index)), Jax.arange(len(x)), -1)
        return jnp.full(size, -1, jnp.int32).at[index].max(here, mode="drop", wrap_negative_indices=False)

    @staticmethod
    def arange(size: int) -> jax.Array:
        """As ``jnp.arange``, 32 bits."""
        return jnp.arange(size, dtype=jnp.int32)

    @staticmethod
    def logsumexp_by(x: jax.Array, index: jax.Array, size: int) -> jax.Array:
        """Segment log-sum-exp; empty segments give -inf."""
        top = jax.lax.stop_gradient(
            jnp.full(size, -jnp.inf, x.dtype).at[index].max(x, mode="drop", wrap_negative_indices=False)
        )
        safe = jnp.where(jnp.isfinite(top), top, 0.0)
        total = Jax.sum_by(jnp.exp(x - Jax.take(safe, index)), index, size)
        occupied = total > 0.0
        return jnp.where(occupied, safe + jnp.log(jnp.where(occupied, total, 1.0)), -jnp.inf)

    @staticmethod
    def either(condition: Any, function: Callable[[], Any], other: Callable[[], Any]) -> jax.Array:
        """As ``jax.lax.cond``."""
        return jax.lax.cond(condition, function, other)

    @staticmethod
    def over_nodes(function: Callable[[Any], Any], nodes: jax.Array, log_weights: jax.Array, size: int) -> jax.Array:
        """Log of the weighted sum over nodes, as many at once as fit into ``AT_ONCE``."""
        most = max(AT_ONCE // max(size, 1), 1)
        logs = jax.vmap(function)(nodes) if most >= len(nodes) else jax.lax.map(function, nodes, batch_size=most)
        return jax.nn.logsumexp(logs + log_weights[:, None], axis=0)

    @staticmethod
    def log_prob(prior: Prior, x: Any) -> jax.Array:
        """By the numpyro distribution."""
        return distribution(prior).log_prob(x)

    @staticmethod
    def from_real(prior: Prior, x: Any) -> tuple[jax.Array, jax.Array]:
        """By ``numpyro.distributions.biject_to``."""
        transform = dist.biject_to(distribution(prior).support)
        y = transform(x)
        return y, transform.log_abs_det_jacobian(x, y)

    @staticmethod
    def sample(name: str, prior: Prior, size: int | None = None) -> jax.Array:
        """A latent numpyro site."""
        base = distribution(prior)
        return numpyro.sample(name, base if size is None else base.expand([size]).to_event(1))

    @staticmethod
    def sample_normal(name: str, scale: jax.Array) -> jax.Array:
        """A latent numpyro site, Normal(0, scale) by element."""
        return numpyro.sample(name, dist.Normal(0.0, scale).to_event(1))

    @staticmethod
    def deterministic(name: str, value: jax.Array) -> jax.Array:
        """A numpyro deterministic site."""
        return numpyro.deterministic(name, value)

    @staticmethod
    def observe(name: str, law: Law, observed: bool) -> None:
        """A numpyro site with a `Questions` distribution."""
        questions = Questions(law)
        with numpyro.plate("question", law.layout.questions):
            numpyro.sample(name, questions, obs=questions.said if observed else None)


def _sorted(x: jax.Array) -> jax.Array:
    """Finite numbers in ascending order along the last axis.

    By whole numbers that are ordered as they are, since on processors XLA sorts these with a comparison of its own: 4
    times as fast as ``jnp.sort``, which calls one for numbers that need not be finite.
    """
    kind, bits = (jnp.int64, 63) if x.dtype == jnp.float64 else (jnp.int32, 31)

    def ordered(key: jax.Array) -> jax.Array:
        # Of negative numbers all bits but the sign are turned over; done twice nothing is.
        return key ^ ((key >> bits) & jnp.iinfo(kind).max)

    key = ordered(jax.lax.bitcast_convert_type(x, kind))
    key = jax.lax.sort(key, dimension=-1, is_stable=False)
    return jax.lax.bitcast_convert_type(ordered(key), x.dtype)


@jax.custom_jvp
def _half_normal(x: jax.Array) -> jax.Array:
    low = math.sqrt(2.0) * jax.scipy.special.erfinv(jax.scipy.special.ndtr(jnp.minimum(x, 0.0)))
    return jnp.where(x < 0.0, low, -jax.scipy.special.ndtri(0.5 * jax.scipy.special.ndtr(-jnp.maximum(x, 0.0))))


@_half_normal.defjvp
def _half_normal_slope(at: tuple[jax.Array], move: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    y = _half_normal(*at)
    return y, 0.5 * jnp.exp(0.5 * (y - at[0]) * (y + at[0])) * move[0]


@jax.custom_vjp
def _permuted(x: jax.Array, order: jax.Array, inverse: jax.Array) -> jax.Array:
    return Jax.take(x, order)


def _permuted_forward(x: jax.Array, order: jax.Array, inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
    return Jax.take(x, order), inverse


def _permuted_back(inverse: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None, None]:
    rows, places = gradient.reshape(-1, gradient.shape[-1]), inverse.reshape(-1, inverse.shape[-1])
    parts = [Jax.take(row, place) for row, place in zip(rows, places, strict=True)]
    return sum(parts[1:], parts[0]), None, None


_permuted.defvjp(_permuted_forward, _permuted_back)


class Questions(dist.Distribution):
    """``nousppl.models.program.Law`` as a numpyro distribution, an event by question.

    Under ``jit`` or ``vmap`` the log density of another value than the compiled one is NaN; elsewhere it is an error.
    Draws are made outside of the compiled code, question by question.
    """

    support = constraints.independent(constraints.integer_greater_than(-1), 1)
    pytree_data_fields = ("law", "said")

    def __init__(self, law: Law, *, validate_args: bool | None = None) -> None:
        said = law.data.get("said")
        self.law, self.said = law, jnp.zeros((law.layout.questions, 0), jnp.int32) if said is None else said
        shape = jnp.shape(self.said)
        super().__init__(shape[:1], shape[1:], validate_args=validate_args)

    def log_prob(self, value: Any) -> jax.Array:
        """(questions,) log density of the claims of each question, and its settled truth."""
        logs = self.law.log_prob(JAX)
        if value is self.said:
            return logs
        same = jnp.all(jnp.asarray(value) == self.said, axis=-1)
        if not isinstance(same, jax.core.Tracer) and not same.all():
            raise self.law.refuse()
        return jnp.where(same, logs, jnp.nan)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw truths, origins and what claims say."""
        shape = jax.ShapeDtypeStruct((*sample_shape, *jnp.shape(self.said)), jnp.int32)
        bits = jax.random.bits(key, dtype=jnp.uint32)

        def draw(bits: Any, values: dict[str, Any]) -> Any:
            at = {name: np.asarray(value, np.float64) for name, value in values.items()}
            seeds = np.random.SeedSequence(int(bits)).generate_state(math.prod(sample_shape))
            return np.stack([self.law.draw(at, int(seed)) for seed in seeds]).reshape(shape.shape)

        return jax.pure_callback(draw, shape, bits, self.law.values, vmap_method="sequential")


JAX = Jax()
