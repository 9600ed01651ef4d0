"""Small tools for ragged tables: consecutive groups laid end to end."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def offsets(counts: Ints) -> Ints:
    """(n + 1,) start of each group, and the total at the end."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def ranges(starts: Ints, counts: Ints) -> Ints:
    """``concatenate([arange(s, s + c) for s, c in zip(starts, counts)])`` without the loop."""
    counts = np.asarray(counts, np.int64)
    total = int(counts.sum())
    begin = np.cumsum(counts) - counts
    return np.arange(total, dtype=np.int64) + np.repeat(np.asarray(starts, np.int64) - begin, counts)


def group_order(key: Ints) -> tuple[Ints, Ints]:
    """Stable order of rows by ``key``, and the place of each ordered row within its group."""
    order = np.argsort(key, kind="stable")
    return order, place_in_group(key[order])


def place_in_group(sorted_key: Ints) -> Ints:
    """Place of each row within its run of equal keys, from 0."""
    index = np.arange(len(sorted_key), dtype=np.int64)
    if not len(index):
        return index
    start = np.ones(len(index), bool)
    start[1:] = sorted_key[1:] != sorted_key[:-1]
    return index - np.maximum.accumulate(np.where(start, index, 0))


def inverse(order: Ints) -> Ints:
    """The permutation that undoes ``order``."""
    out = np.empty(len(order), np.int64)
    out[order] = np.arange(len(order))
    return out


def sums_before(values: NDArray[np.float64], place: Ints) -> NDArray[np.float64]:
    """Sum of the earlier values of the same group, for values in group order (groups begin where ``place`` is 0)."""
    running = np.cumsum(values) - values
    start = np.flatnonzero(place == 0)
    return running - np.repeat(running[start], np.diff(np.append(start, len(values))))


def mix(*parts: NDArray[np.uint64] | int) -> NDArray[np.uint64]:
    """A 64-bit hash of several arrays or integers (splitmix64 finaliser, Steele et al. 2014), element by element."""
    state: Any = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for part in parts:
            value = np.uint64(part & 0xFFFFFFFFFFFFFFFF) if isinstance(part, int) else part
            state = (state ^ value) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state)


def uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes as numbers strictly between 0 and 1."""
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
