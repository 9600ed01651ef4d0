"""The few array and sampling operations that the models are written in.

A backend (see ``nousppl.inference.backend``) supplies one object with these methods, so that the same model code runs
on numpyro/jax and can run on pyro/torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nousppl.models.priors import Prior

if TYPE_CHECKING:
    from nousppl.models.program import Law

Array = Any
"""An array of the backend (``jax.Array`` or ``torch.Tensor``)."""


FARTHEST = 12.0
"""Beyond it single precision has no tail of the normal distribution left."""


class Arithmetic(Protocol):
    """What works on the rows of a table one by one: all that a term of one's own (``nousppl.models.terms``) may call,
    besides ``+ - * / **``, comparisons and ``abs``."""

    def exp(self, x: Array) -> Array:
        """Elementwise ``exp``."""
        ...

    def log(self, x: Array) -> Array:
        """Elementwise ``log``."""
        ...

    def log1p(self, x: Array) -> Array:
        """Elementwise ``log1p``."""
        ...

    def sigmoid(self, x: Array) -> Array:
        """Elementwise ``sigmoid``."""
        ...

    def where(self, condition: Array, x: Array, y: Array) -> Array:
        """``x`` where the condition holds, else ``y``."""
        ...

    def minimum(self, x: Array, y: Array) -> Array:
        """Elementwise ``minimum``."""
        ...

    def maximum(self, x: Array, y: Array) -> Array:
        """Elementwise ``maximum``."""
        ...

    def stack(self, arrays: Sequence[Any]) -> Array:
        """Arrays along a new first axis."""
        ...

    def take(self, x: Array, index: Array) -> Array:
        """``x[index]`` along the last axis of a vector; indices are in bounds, or of padding whose value does not
        matter."""
        ...

    def whole(self, x: Array) -> Array:
        """Whole numbers as the integer indices that `take` wants."""
        ...

    def positive(self, index: Array) -> Array:
        """Integer indices with the negative ones set to 0."""
        ...

    def zeros(self, size: int) -> Array:
        """Zeros of shape (size,) in the working precision."""
        ...

    def array(self, x: Any) -> Array:
        """A constant in the working precision."""
        ...

    def arange(self, size: int) -> Array:
        """The integers below ``size``."""
        ...


class Namespace(Arithmetic, Protocol):
    """What model code may call; shapes as in numpy."""

    def arrays(self, data: Mapping[str, Any]) -> dict[str, Array]:
        """Arrays by name, numbers in the working precision."""
        ...

    def mean(self, x: Array) -> Array:
        """Mean of all elements."""
        ...

    def after_zero(self, x: Array) -> Array:
        """The vector with a 0 before it."""
        ...

    def shift(self, x: Array, by: Array | int) -> Array:
        """``x`` moved ``by`` places to the right along the last axis, zeros moved in."""
        ...

    def fold_doubling(self, function: Callable[[Array, Any], Any], start: Any, rounds: int) -> Any:
        """``start`` after ``x = function(1, x)``, ``x = function(2, x)``, ``function(4, x)`` and so on, ``rounds``
        times."""
        ...

    def half_normal(self, x: Array) -> Array:
        """Elementwise map of a standard normal onto a standard half-normal number, increasing: the quantile function of
        the one at the distribution function of the other, within `FARTHEST` of 0."""
        ...

    def permuted(self, x: Array, order: Array, inverse: Array) -> Array:
        """``x[order]`` of a vector; each row (last axis) of ``order`` is a permutation and that of ``inverse`` the one
        that undoes it, so that the gradient need not be scattered."""
        ...

    def rows(self, x: Array, index: Array) -> Array:
        """``x[index]`` along the first axis of a matrix, as `take`."""
        ...

    def max_last(self, x: Array) -> Array:
        """The largest element along the last axis, without a gradient."""
        ...

    def once(self, values: dict[str, Array]) -> dict[str, Array]:
        """The same values, each computed once and kept, not anew for every element of what is computed from it."""
        ...

    def fixed(self, x: Array) -> Array:
        """``x`` without a gradient."""
        ...

    def erfc(self, x: Array) -> Array:
        """Elementwise complementary error function."""
        ...

    def with_slopes(self, function: Callable[..., Any], slopes: Callable[..., Any], *x: Array) -> Array:
        """The function of arrays, elementwise; ``slopes`` gives its derivative by each, for backends that would find
        them at more expense."""
        ...

    def sort_last(self, parts: Sequence[Array]) -> Array:
        """Matrices side by side, each row sorted; without a gradient. A matrix with one row has it for all rows."""
        ...

    def cut_evenly(self, x: Array, mass: Array, points: int) -> Array:
        """(rows, points) places that cut the mass of each row into equal parts, both ends among them; without a
        gradient. ``x`` (rows, g) ascends, ``mass`` (rows, g - 1) is that of the intervals, spread evenly in each."""
        ...

    def scan(self, function: Callable[[Any, Any], tuple[Any, Any]], start: Any, over: tuple[Array, ...]) -> Any:
        """``state, out = function(state, (x[i] for x in over))`` for each i in turn; the outs stacked."""
        ...

    def sum_by(self, x: Array, index: Array, size: int) -> Array:
        """Sums of ``x`` (last axis) by ``index``; an index of ``size`` or more is left out."""
        ...

    def place_of_max_by(self, x: Array, index: Array, size: int) -> Array:
        """Place in ``x`` of the largest element by ``index``; -1 where none is above 0. Has no gradient."""
        ...

    def logsumexp_by(self, x: Array, index: Array, size: int) -> Array:
        """Log of the sum of ``exp(x)`` by ``index`` (last axis)."""
        ...

    def either(self, condition: Array, function: Callable[[], Array], other: Callable[[], Array]) -> Array:
        """What one of two functions gives, by a scalar condition; the other is not evaluated."""
        ...

    def over_nodes(self, function: Callable[[Array], Array], nodes: Array, log_weights: Array, size: int) -> Array:
        """``log(sum_i exp(log_weights[i] + function(nodes[i])))``; an evaluation makes arrays of about ``size``."""
        ...

    def log_prob(self, prior: Prior, x: Array) -> Array:
        """Elementwise log density of a prior."""
        ...

    def from_real(self, prior: Prior, x: Array) -> tuple[Array, Array]:
        """Elementwise map of the real line onto the support of a prior, and the log of its derivative; not for a
        half-normal prior, for which there is `half_normal`."""
        ...

    def sample(self, name: str, prior: Prior, size: int | None = None) -> Array:
        """A latent site: scalar, or a vector of independent draws."""
        ...

    def sample_normal(self, name: str, scale: Array) -> Array:
        """A latent vector of independent ``Normal(0, scale)``."""
        ...

    def deterministic(self, name: str, value: Array) -> Array:
        """Record a derived quantity."""
        ...

    def observe(self, name: str, law: Law, observed: bool) -> None:
        """A site with that law: its compiled value, or a draw where it is not observed."""
        ...
