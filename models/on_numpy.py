"""The arithmetic of the models on numpy, in double precision: for terms of one's own outside of compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Numpy:
    """``nousppl.models.namespace.Arithmetic`` on numpy arrays."""

    @staticmethod
    def exp(x: Any) -> Any:
        """As ``np.exp``."""
        return np.exp(x)

    @staticmethod
    def log(x: Any) -> Any:
        """As ``np.log``."""
        return np.log(x)

    @staticmethod
    def log1p(x: Any) -> Any:
        """As ``np.log1p``."""
        return np.log1p(x)

    @staticmethod
    def sigmoid(x: Any) -> Any:
        """The logistic function."""
        return 0.5 * (1.0 + np.tanh(0.5 * np.asarray(x)))

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> NDArray[Any]:
        """As ``np.where``."""
        return np.where(condition, x, y)

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        """As ``np.minimum``."""
        return np.minimum(x, y)

    @staticmethod
    def maximum(x: Any, y: Any) -> Any:
        """As ``np.maximum``."""
        return np.maximum(x, y)

    @staticmethod
    def stack(arrays: Sequence[Any]) -> NDArray[Any]:
        """A new first axis."""
        return np.stack([np.asarray(a, np.float64) for a in arrays])

    @staticmethod
    def take(x: NDArray[Any], index: Any) -> NDArray[Any]:
        """As ``np.take``; an index out of bounds is an error here, a negative one too."""
        if np.any(np.asarray(index) < 0):
            raise IndexError("an index is negative")
        return np.take(x, index)

    @staticmethod
    def whole(x: Any) -> NDArray[np.int64]:
        """Rounded."""
        return np.rint(x).astype(np.int64)

    @staticmethod
    def positive(index: Any) -> Any:
        """Indices with the negative ones set to 0."""
        return np.maximum(index, 0)

    @staticmethod
    def zeros(size: int) -> NDArray[np.float64]:
        """As ``np.zeros``."""
        return np.zeros(size)

    @staticmethod
    def array(x: Any) -> NDArray[np.float64]:
        """A constant."""
        return np.asarray(x, np.float64)

    @staticmethod
    def arange(size: int) -> NDArray[np.int64]:
        """As ``np.arange``."""
        return np.arange(size)


class Trial(Numpy):
    """The same for the dummy numbers that a term is tried on, which are no indices."""

    @staticmethod
    def take(x: NDArray[Any], index: Any) -> NDArray[Any]:
        """Indices out of bounds wrap around."""
        return np.take(x, index, mode="wrap")


class AllDraws(Numpy):
    """The same for all draws together: a number is one of each draw, (draws, 1), a vector is (size, draws, 1), and
    columns are (rows,), so that what only broadcasts gives (draws, rows)."""

    @staticmethod
    def take(x: NDArray[Any], index: Any) -> NDArray[Any]:
        """Of each draw's vector."""
        if np.ndim(x) < 3:
            return Numpy.take(x, index) if np.ndim(x) == 1 else x[:, index]
        return np.moveaxis(x[..., 0][index], 0, -1)
