"""Which rows make up one claim, and with what weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._report import Note
from nousppl.tables import Table, show_row

SUM_TOLERANCE = 1e-6
SHARED = (
    "entity",
    "attribute",
    "source",
    "time",
    "known_at",
    "ceiling",
    "derived",
    "origin",
    "revoked",
    "stated_entity",
)


@dataclass(frozen=True)
class Grouping:
    """Rows of the claims table that are used, and the claim of each."""

    kept: NDArray[np.int64]
    """(N,) positions of the rows in use, as in the table."""
    claim: NDArray[np.int64]
    """(N,) claim of each of them, 0 ... J-1."""
    first: NDArray[np.int64]
    """(J,) position in the table of the first row in use of each claim."""
    weight: NDArray[np.float64]
    """(N,)"""
    ids: pd.Index | None
    """(J,) the user's ids; None where the table has no column `claim`."""
    notes: tuple[Note, ...]


def group_rows(table: Table, values: NDArray[np.int64], merged: bool) -> Grouping:
    """Group rows by claim id and check their weights.

    Args:
        table: the claims.
        values: (rows,) code of the value of each row.
        merged: whether `same_value` may have made two values of one claim equal; their weights are then added.
    """
    everything = np.arange(len(table))
    labels = table.labels("claim") if "claim" in table else None
    claim = labels.codes if labels is not None else everything
    ids = labels.names if labels is not None else None
    repeated = _repeated(claim)
    if "weight" not in table:
        table.refuse(
            "claim",
            repeated,
            "an id that an earlier row has",
            "each id once, unless a column weight makes a claim soft",
        )
        return Grouping(everything, claim, _first(claim), np.ones(len(table)), ids, ())
    weight = _weights(table, claim, repeated)
    if repeated.any():
        _same_in_all_rows(table, claim)
    doubled = _repeated(claim * (values.max() + 1) + values)
    if not merged:
        table.refuse("claim", doubled, "an id with a value that an earlier row of it has", "each value once in a claim")
    return _settle_rows(table, claim, weight, values, doubled, ids)


def _weights(table: Table, claim: NDArray[np.int64], repeated: NDArray[np.bool_]) -> NDArray[np.float64]:
    weight = table.numbers("weight")
    blank = np.isnan(weight)
    alone = np.bincount(claim)[claim] == 1
    allowed = (
        "numbers from 0 to 1 that sum to at most 1 over the rows of a claim; a blank is 1 where a claim has one row"
    )
    table.refuse("claim", blank & repeated, "an id that an earlier row has, and no weight", allowed)
    table.refuse("weight", blank & ~alone, "a blank weight in a claim of several rows", allowed)
    table.refuse("weight", weight < 0, "a negative weight", allowed)
    weight = np.where(blank, 1.0, weight)
    total = np.bincount(claim, weight)
    table.refuse("weight", total[claim] > 1 + SUM_TOLERANCE, "weights of one claim that sum above 1", allowed)
    return weight / np.maximum(total, 1.0)[claim]


def _same_in_all_rows(table: Table, claim: NDArray[np.int64]) -> None:
    first = _first(claim)[claim]
    for column in SHARED:
        if column in table:
            codes, _ = pd.factorize(table.frame[column])
            differs = codes != codes[first]
            table.refuse(
                column, differs, "another cell than in the first row of the claim", "the same in all rows of a claim"
            )


def _settle_rows(
    table: Table,
    claim: NDArray[np.int64],
    weight: NDArray[np.float64],
    values: NDArray[np.int64],
    doubled: NDArray[np.bool_],
    ids: pd.Index | None,
) -> Grouping:
    notes = []
    if doubled.any():
        codes, _ = pd.factorize(claim * (values.max() + 1) + values)
        weight = np.bincount(codes, weight)[codes]
        notes.append(
            Note("claims", "rows of soft claims added to an earlier row, as same_value says", int(doubled.sum()))
        )
    empty = ~doubled & (weight == 0)
    kept = np.flatnonzero(~doubled & ~empty)
    if empty.any():
        row = show_row(table.frame, int(empty.argmax()))
        notes.append(Note("claims", "rows with weight 0 left aside", int(empty.sum()), row))
    used, new = np.unique(claim[kept], return_inverse=True)
    silent = int(claim.max()) + 1 - len(used)
    if silent:
        notes.append(Note("claims", "claims left aside that give no weight to any value", silent))
    ids = ids[used] if ids is not None else None
    return Grouping(kept, new, kept[_first(new)], weight[kept], ids, tuple(notes))


def _first(claim: NDArray[np.int64]) -> NDArray[np.int64]:
    """(J,) the first place of each claim; the codes are dense."""
    first = np.empty(int(claim.max(initial=-1)) + 1, dtype=np.int64)
    first[claim[::-1]] = np.arange(len(claim))[::-1]
    return first


def _repeated(codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return pd.Series(codes).duplicated().to_numpy()
