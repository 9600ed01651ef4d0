"""Claims that every formula of a model treats alike: a fit computes what depends on the formulas once for all of them.

Where reliability depends on the source, 40,000 claims of 200 sources have 200 different designs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.models.program import OF_QUESTIONS, PARTS
from nousppl.ragged import Ints

WORTH = 2
"""Claims that a design has to stand for, on average, to be worth looking it up."""

Arrays = dict[str, NDArray[Any]]


class Alike(NamedTuple):
    """Claims of a problem by what is alike in them."""

    first: Ints
    """(kinds,) one claim of each kind."""
    kind: Ints
    """(claims,) kind of each claim."""


def of_claims(name: str) -> bool:
    """Whether the last axis of an array of a problem or of its designs is that of claims."""
    return name.startswith(("claim_", *(f"{part} " for part in PARTS if part != OF_QUESTIONS)))


def alike(problems: Sequence[Arrays]) -> list[Alike] | None:
    """The kinds of claims of each problem; None where there are nearly as many kinds as claims.

    Args:
        problems: arrays of problems and their designs, not padded.
    """
    found = [_kinds([array for name, array in data.items() if of_claims(name)]) for data in problems]
    claims, kinds = (sum(len(one[k]) for one in found) for k in (1, 0))
    return found if kinds * WORTH <= claims else None


def _kinds(arrays: list[NDArray[Any]]) -> Alike:
    """Claims in which all rows of all arrays are equal."""
    columns = [row for array in arrays for row in np.atleast_2d(array)]
    kind = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, values = pd.factorize(column, use_na_sentinel=False)
        kind, _ = pd.factorize(kind * max(len(values), 1) + codes)
    first = np.zeros(kind.max(initial=-1) + 1, np.int64)
    first[kind[::-1]] = np.arange(len(kind))[::-1]
    return Alike(first, kind)


def merged(data: Arrays, kinds: Alike) -> Arrays:
    """The arrays with kinds in the place of claims."""
    if not len(kinds.kind):
        return data
    out = dict(data)
    for name, array in data.items():
        if of_claims(name):
            out[name] = array[..., kinds.first]
        elif name.endswith(("_claim", " claim")):
            out[name] = kinds.kind[array].astype(array.dtype)
    return out
