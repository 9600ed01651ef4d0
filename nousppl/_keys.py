"""Keys of claims: hashes of what a claim says, so that nothing depends on the order of the rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def mix(hashes: Hashes) -> Hashes:
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014): every bit of the input moves every bit of the output."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def hash_names(names: pd.Index) -> Hashes:
    """(names,) hash of whole numbers or texts."""
    whole = names.dtype.kind == "i"
    return pd.util.hash_array(names.to_numpy(dtype=np.int64 if whole else object), categorize=False)


def hash_times(times: NDArray[np.float64]) -> Hashes:
    """(n,) hash of times; all missing times are alike."""
    return mix(np.where(np.isnan(times), -1e308, times + 0.0).view(np.uint64))


def chain(*parts: Hashes) -> Hashes:
    """(n,) hash of several hashes, in their order."""
    total = np.zeros_like(parts[0])
    for part in parts:
        total = mix(total + part + np.uint64(0x9E3779B97F4A7C15))
    return total


def hash_rows(frame: pd.DataFrame) -> Hashes:
    """(rows,) hash of all cells of each row as text, whatever their type and the order of the columns."""
    parts = []
    for name in sorted(frame.columns):
        cells = frame[name]
        text = cells.astype(object).map(str, na_action="ignore").astype(object).fillna("")
        parts.append(pd.util.hash_array(text.to_numpy(dtype=object), categorize=False))
    return chain(*parts)


def unique_keys(keys: Hashes, tie_break: NDArray[np.int64], tied: Hashes) -> tuple[Hashes, int]:
    """Mix an occurrence number into equal keys, so that all differ.

    Args:
        keys: (J,) hashes; equal for claims that say the same.
        tie_break: positions of the claims whose key is not the only one of its value.
        tied: hash of everything else that the tables say about each claim in `tie_break`; claims that are alike in that
            as well are interchangeable.

    Returns:
        (J,) unique keys, and how many claims say exactly what an earlier one says.
    """
    order = tie_break[np.lexsort((tied, keys[tie_break]))]
    ordered = keys[order]
    first = np.append(True, ordered[1:] != ordered[:-1])
    start = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    occurrence = np.arange(len(order)) - start
    unique = keys.copy()
    unique[order] = np.where(occurrence > 0, mix(ordered + occurrence.astype(np.uint64)), ordered)
    return unique, int((occurrence > 0).sum())
