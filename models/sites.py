"""The few array operations and discrete sites that the readable program of a question is written in.

A backend supplies one object with these methods (``nousppl.inference.enumeration``: numpyro and jax,
``nousppl.inference.torch_enumeration``: pyro and torch). All else in the program are operators and indices, which both
kinds of array share.
"""

from __future__ import annotations

from typing import Any, Protocol

from nousppl.models.namespace import Array


class Sites(Protocol):
    """What the readable program may call; shapes as in numpy."""

    def arrays(self, question: Any) -> Any:
        """The question with arrays of the backend for those of numpy, in the working precision."""
        ...

    def array(self, x: Any) -> Array:
        """Numbers in the working precision."""
        ...

    def integers(self, x: Any) -> Array:
        """Integers."""
        ...

    def zeros(self, *shape: int) -> Array:
        """Zeros in the working precision."""
        ...

    def arange(self, size: int) -> Array:
        """The integers below ``size``."""
        ...

    def one_hot(self, index: Array, size: int) -> Array:
        """``index.shape + (size,)``: 1 at the index, else 0."""
        ...

    def where(self, condition: Array, x: Array, y: Array) -> Array:
        """``x`` where the condition holds, else ``y``; one of the two may be a number."""
        ...

    def sigmoid(self, x: Array) -> Array:
        """Elementwise logistic function."""
        ...

    def at_most(self, x: Array, bound: Array) -> Array:
        """Elementwise minimum of an array and a bound, which may be a number."""
        ...

    def at_least(self, x: Array, bound: Array) -> Array:
        """Elementwise maximum of an array and a bound, which may be a number."""
        ...

    def largest(self, x: Array) -> Array:
        """Maximum along the last axis."""
        ...

    def append(self, x: Array, y: Array) -> Array:
        """``y`` after ``x`` along the first axis."""
        ...

    def pair(self, x: Array, y: Array) -> Array:
        """``(..., 2)``: two arrays of one shape along a new last axis."""
        ...

    def choose(self, name: str, law: Array, said: int | None = None) -> Array:
        """A site with one of ``law.shape[-1]`` values, an integer from 0, which can be enumerated or is observed."""
        ...

    def normal(self, name: str) -> Array:
        """A standard normal site."""
        ...

    def say(self, name: str, law: Array, silent: Array, said: Array | None) -> Array:
        """A site for what a claim says: a row of weights over the K answers, read under a law of its value (..., K).

        A one-hot row has the probability of its answer; a reader's weights have ``none / K + sum_v weights[v] law[v]``
        with ``none = 1 - sum_v weights[v]``. The law need not sum to one: text ratios are folded into it.

        Args:
            name: of the site.
            law: of its value.
            silent: whether the claim counts for nothing.
            said: (K,) the row that is observed; None draws a one-hot one.
        """
        ...
