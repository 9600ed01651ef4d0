"""The readable program of one question on numpyro, and its exact answers with every discrete site enumerated.

``torch_enumeration`` has the same on pyro. These answers need the package funsor and are compiled for each shape of a
question, from a second for a few claims to a minute for the most.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nousppl.models import reference
from nousppl.models.dense import Change, DenseQuestion
from nousppl.models.reference import Grid


class Numpyro:
    """``nousppl.models.sites.Sites`` on jax arrays and numpyro sites."""

    @staticmethod
    def arrays(question: Any) -> Any:
        """The question with jax arrays, which enumerated sites can index."""
        arrays: dict[str, Any] = {name: jnp.asarray(x) for name, x in question._asdict().items() if hasattr(x, "shape")}
        return question._replace(**arrays)

    @staticmethod
    def array(x: Any) -> Array:
        """Numbers."""
        return jnp.asarray(x, dtype=float)

    @staticmethod
    def integers(x: Any) -> Array:
        """Integers."""
        return jnp.asarray(x, dtype=int)

    @staticmethod
    def zeros(*shape: int) -> Array:
        """As ``jnp.zeros``."""
        return jnp.zeros(shape)

    @staticmethod
    def arange(size: int) -> Array:
        """As ``jnp.arange``."""
        return jnp.arange(size)

    @staticmethod
    def one_hot(index: Array, size: int) -> Array:
        """As ``jax.nn.one_hot``."""
        return jax.nn.one_hot(index, size)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Array:
        """As ``jnp.where``."""
        return jnp.where(condition, x, y)

    @staticmethod
    def sigmoid(x: Array) -> Array:
        """The logistic function."""
        return jax.nn.sigmoid(x)

    @staticmethod
    def at_most(x: Array, bound: Any) -> Array:
        """As ``jnp.minimum``."""
        return jnp.minimum(x, bound)

    @staticmethod
    def at_least(x: Array, bound: Any) -> Array:
        """As ``jnp.maximum``."""
        return jnp.maximum(x, bound)

    @staticmethod
    def largest(x: Array) -> Array:
        """Maximum along the last axis."""
        return x.max(-1)

    @staticmethod
    def append(x: Array, y: Array) -> Array:
        """Along the first axis."""
        return jnp.concatenate([x, y])

    @staticmethod
    def pair(x: Array, y: Array) -> Array:
        """As ``jnp.stack``."""
        return jnp.stack([x, y], axis=-1)

    @staticmethod
    def choose(name: str, law: Array, said: int | None = None) -> Array:
        """A categorical numpyro site."""
        if said is not None:
            return numpyro.sample(name, dist.Categorical(probs=law), obs=jnp.asarray(said))
        # Enumeration writes into the infer dictionary of a site, so no two sites may share one. An array: a user may
        # condition a site on a plain number.
        return jnp.asarray(numpyro.sample(name, dist.Categorical(probs=law), infer={"enumerate": "parallel"}))

    @staticmethod
    def normal(name: str) -> Array:
        """A standard normal numpyro site."""
        return numpyro.sample(name, dist.Normal(0.0, 1.0))

    @staticmethod
    def say(name: str, law: Array, silent: Array, said: Array | None) -> Array:
        """A numpyro site with a `Saying` distribution."""
        return numpyro.sample(name, Saying(law).mask(~silent), obs=said)


NUMPYRO = Numpyro()

program = partial(reference.program, NUMPYRO)
"""See ``nousppl.models.reference.program``: a numpyro model with the arguments question, values and grid."""


class Saying(dist.Distribution):
    """See ``nousppl.models.sites.Sites.say``. Draws are one-hot."""

    arg_constraints: ClassVar[dict[str, Any]] = {"law": constraints.nonnegative}
    support = constraints.real_vector
    pytree_data_fields = ("law",)

    def __init__(self, law: Array, *, validate_args: bool | None = None) -> None:
        self.law = law
        super().__init__(law.shape[:-1], law.shape[-1:], validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One-hot rows, sample_shape + (..., K)."""
        value = jax.random.categorical(key, jnp.log(self.law), shape=sample_shape + self.batch_shape)
        return jax.nn.one_hot(value, self.law.shape[-1])

    def log_prob(self, value: Array) -> Array:
        """Log probability of rows of weights (..., K)."""
        none = 1 - value.sum(-1)
        return jnp.log(none / self.law.shape[-1] + (value * self.law).sum(-1))


# ------------------------------------------------------------------------------------------------------ exact answers


def log_evidence(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """log P(x), with truth, origins and difficulty enumerated; where answers are rejected, of claims and rejections.

    Arguments as for ``program``; where there is a difficulty the grid is by default ``reference.equispaced()``. This
    function and the two below raise InferenceError above ``reference.MOST_CLAIMS`` claims.
    """
    return _density(question, values, grid, {}) + jnp.log(jnp.asarray(question.prior).sum())


def posterior(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """(K,): P(truth | x), from the program's density at each value of the truth."""
    return _given_each_value("truth", len(question.prior), question, values, grid)


def origins(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """(n, 1 + n): P(claim j is fresh | x) in column 0 and P(it repeats claim k | x) in column 1 + k.

    The row of an own note that repeats nothing is zero: it has no origin.
    """
    n = len(question.alpha)
    rows = [_given_each_value(f"origin_{j}", 1 + j, question, values, grid) for j in range(n)]
    table = jnp.stack([jnp.pad(row, (0, n - j)) for j, row in enumerate(rows)]) if n else jnp.zeros((0, 1))
    never_fresh = (jnp.asarray(question.alpha) == 0) & (table[:, 0] == 1)
    return jnp.where(never_fresh[:, None], 0.0, table)


def _given_each_value(site: str, count: int, question: DenseQuestion, values: ArrayLike, grid: Grid | None) -> Array:
    return jax.nn.softmax(jax.vmap(lambda value: _density(question, values, grid, {site: value}))(jnp.arange(count)))


def _density(question: DenseQuestion, values: ArrayLike, grid: Grid | None, fixed: dict[str, Any]) -> Array:
    grid, change = reference.enumerable(question, grid), question.change
    if change is not None:
        change = change._replace(times=tuple(map(float, change.times)))
    return _log_density(question._replace(change=None), change, jnp.asarray(values), grid, fixed)


@partial(jax.jit, static_argnums=1)
def _log_density(
    question: DenseQuestion, change: Change | None, values: Array, grid: Grid, fixed: dict[str, Any]
) -> Array:
    # Imported late: enumeration brings in funsor, which only the reference program needs.
    from numpyro.contrib.funsor import enum, log_density

    model = enum(numpyro.handlers.condition(program, fixed), first_available_dim=-1)
    return log_density(model, (question._replace(change=change), values, grid), {}, {})[0]
