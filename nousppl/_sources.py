"""What is known of the sources, and its join to claims."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._report import Note
from nousppl.errors import EvidenceError
from nousppl.tables import OPTIONAL, REQUIRED, Labels, Table, open_table, show_row


@dataclass(frozen=True)
class Sources:
    """The table of sources, sorted."""

    frame: pd.DataFrame
    names: pd.Index
    """The source of each row."""

    def join(self, claims: pd.DataFrame, sources: pd.Index, source: NDArray[np.int32]) -> pd.DataFrame:
        """`claims` (J rows, row j from `sources[source[j]]`) with columns of their sources, missing where unknown."""
        own = self.frame.drop(columns="source")
        if own.columns.empty:
            return claims.copy(deep=False)
        place = self.names.get_indexer(sources)[source]
        return pd.concat([claims, own.reindex(place).reset_index(drop=True)], axis=1)


def read_sources(sources: pd.DataFrame | None, claims: Table, heard: pd.Index) -> tuple[Sources, tuple[Note, ...]]:
    """The checked table of sources (empty where none is given), and notes on it."""
    if sources is None:
        return Sources(pd.DataFrame({"source": heard[:0]}), heard[:0]), ()
    table = open_table(sources, "sources")
    labels = table.labels("source")
    table.one_kind("source", labels, Labels(labels.codes, heard), "claims")
    table.refuse(
        "source",
        pd.Series(labels.codes).duplicated().to_numpy(),
        "a source that an earlier row has",
        "one row a source",
    )
    _refuse_shared(table, claims)
    order = np.argsort(labels.codes)
    notes = [Note("sources", "rows read", len(table))]
    for what, names in (
        ("sources without a claim", labels.names.difference(heard)),
        ("sources of claims without a row", heard.difference(labels.names)),
    ):
        if len(names):
            notes.append(Note("sources", what, len(names), repr(names[0])))
    return Sources(table.frame.take(order).reset_index(drop=True), labels.names), tuple(notes)


def _refuse_shared(table: Table, claims: Table) -> None:
    taken = {*REQUIRED["claims"], *OPTIONAL["claims"], *claims.frame.columns} - {"source"}
    shared = [column for column in table.frame.columns if column in taken]
    if shared and len(table):
        raise EvidenceError(
            f"sources: column {shared[0]!r} in {len(table)} rows is a column of claims as well; "
            f"first: {show_row(table.frame, 0)}. Allowed: column names that claims do not have."
        )
