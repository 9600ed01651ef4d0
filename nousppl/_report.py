"""What was read and what was left aside and why, in words and as a table."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Note:
    """One line of a report."""

    table: str
    """"claims", "settled" or "sources"."""
    what: str
    """What was read, left aside or noticed, in words."""
    count: int
    """How many rows, claims, values ... it concerns."""
    first: str = ""
    """The first of them, or an explanation."""


@dataclass(frozen=True)
class Report:
    """Notes on a set of tables, in the order in which they were taken."""

    notes: tuple[Note, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """A row a note: table, what, count, first."""
        return pd.DataFrame([*self.notes], columns=["table", "what", "count", "first"])

    def count(self, what: str) -> int:
        """The sum of the counts of the notes whose words contain `what`; 0 where there is none."""
        return sum(note.count for note in self.notes if what in note.what)

    def __repr__(self) -> str:
        lines = [
            f"{note.table:8} {note.count:>10,}  {note.what}{f' ({note.first})' if note.first else ''}"
            for note in self.notes
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.frame.to_html(index=False, border=0)
