"""What terms of the user's own read: columns of the claims, and of the listed pairs of claims."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.models.columns import Reader
from nousppl.models.terms import OwnTerm, Read, reads_of

Floats = NDArray[np.float64]


class PairColumns(NamedTuple):
    """What pair terms read of the claims."""

    terms: tuple[OwnTerm, ...]
    by_read: dict[Read, NDArray[Any]]
    """What is read -> (claims,) numbers of the later or earlier claim, or the codes that are compared."""


def claim_columns(frame: pd.DataFrame, terms: tuple[OwnTerm, ...]) -> Floats:
    """(reads, claims) what some terms of claims read.

    Raises:
        ModelError: a column is not there or no number, or one is missing or infinite.
    """
    columns = _columns(frame, terms)
    return np.stack([columns[read] for read in reads_of(terms)]) if columns else np.zeros((0, len(frame)))


def pair_columns(frame: pd.DataFrame, terms: tuple[OwnTerm, ...]) -> PairColumns | None:
    """What pair terms read; None where there are none. Raises ModelError as `claim_columns` does."""
    return PairColumns(terms, _columns(frame, terms)) if terms else None


def _columns(frame: pd.DataFrame, terms: tuple[OwnTerm, ...]) -> dict[Read, NDArray[Any]]:
    out: dict[Read, NDArray[Any]] = {}
    for term in terms:
        reader = Reader(frame, term.where, "do without the column in the term")
        wanted = [read for read in term.reads if read[0] != "lag"]
        reader.require(tuple(dict.fromkeys(column for _, column in wanted)))
        for kind, column in wanted:
            out[kind, column] = reader.coded(column).codes if kind == "same" else reader.numbers(column)
    return out


def pair_reads(columns: PairColumns, later: NDArray[np.int64], earlier: NDArray[np.int64], lag: Floats) -> Floats:
    """(reads, pairs) what pair terms read of some pairs of claims, whose time apart is ``lag``."""
    out = []
    for read in reads_of(columns.terms):
        kind = read[0]
        if kind == "lag":
            out.append(lag)
        elif kind == "same":
            codes = columns.by_read[read]
            out.append((codes[later] == codes[earlier]).astype(np.float64))
        else:
            out.append(columns.by_read[read][later if kind == "later" else earlier])
    return np.stack(out) if out else np.zeros((0, len(lag)))
