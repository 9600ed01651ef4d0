"""Checks of tables as they are handed in: columns, kinds and ranges; a failure is an `EvidenceError` with its row."""

from __future__ import annotations

import difflib
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import EvidenceError, NousWarning

REQUIRED = {
    "claims": ("entity", "attribute", "value", "source"),
    "settled": ("entity", "attribute", "value"),
    "sources": ("source",),
}
OPTIONAL = {
    "claims": ("time", "claim", "origin", "ceiling", "known_at", "weight", "derived", "revoked", "stated_entity"),
    "settled": ("time", "known_at", "verdict", "stated_entity"),
    "sources": (),
}
FLAGS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
SHOWN = 60
BLANK, WHOLE, TEXT, OTHER = range(4)
NAMES = "a whole number in every row, or a text in every row"


def shorten(value: object) -> str:
    """How a cell is shown in a message: its `repr`, cut so that a value of any length gives a readable line."""
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[:SHOWN]!r}... ({len(value)} characters)"
    if isinstance(value, np.generic):
        value = value.item()
    text = repr(value)
    return text if len(text) <= 2 * SHOWN else f"{text[: 2 * SHOWN]}..."


def show_row(frame: pd.DataFrame, position: int) -> str:
    """One row as it stands: its position counting from 0, and its cells."""
    cells = ", ".join(f"{name}={shorten(cell)}" for name, cell in zip(frame.columns, frame.iloc[position], strict=True))
    return f"row {position} ({cells})"


@dataclass(frozen=True)
class Labels:
    """A column of names, coded."""

    codes: NDArray[np.int64]
    """(rows,) index into `names`."""
    names: pd.Index
    """Sorted unique names, whole numbers or text."""

    @property
    def text(self) -> bool:
        """Whether the names are text (else whole numbers)."""
        return self.names.dtype.kind != "i"


@dataclass(frozen=True)
class Table:
    """A table under its name ("claims", "settled", "sources"), with the checks that read one column each.

    Every method returns clean values for all rows, or raises an `EvidenceError` that names the table, the column, how
    many rows are wrong, the first of them as it stands, and what is allowed.
    """

    name: str
    frame: pd.DataFrame

    def __contains__(self, column: str) -> bool:
        return column in self.frame.columns

    def __len__(self) -> int:
        return len(self.frame)

    def refuse(self, column: str, bad: NDArray[np.bool_], problem: str, allowed: str) -> None:
        """Raise where any row is `bad` (rows,); `problem` says what is wrong with it, `allowed` what would be right."""
        if not bad.any():
            return
        count, first = int(bad.sum()), int(bad.argmax())
        what = "row" if len(self) == 1 else "rows"
        raise EvidenceError(
            f"{self.name}: column {column!r}: {problem} in {count} of {len(self)} {what}; "
            f"first: {show_row(self.frame, first)}. Allowed: {allowed}."
        )

    def labels(self, column: str) -> Labels:
        """Names of entities, attributes, sources or claims: whole numbers or text, one kind a column, none missing."""
        codes, found = pd.factorize(plain(self.frame[column]))
        names = pd.Index(found)
        kinds = _name_kinds(names)
        self.refuse(column, np.append(kinds == BLANK, True)[codes], "a missing or blank name", NAMES)
        self.refuse(column, (kinds == OTHER)[codes], "neither a whole number nor a text", NAMES)
        if len(names) and (kinds != kinds[0]).any():
            rare = TEXT if (kinds[codes] == TEXT).sum() * 2 <= len(codes) else WHOLE
            self.refuse(column, (kinds == rare)[codes], "whole numbers and text are mixed, the rarer kind", NAMES)
        names = names.astype("str" if len(names) and kinds[0] == TEXT else np.int64)
        order = names.argsort()
        rank = np.empty(len(names), dtype=np.int64)
        rank[order] = np.arange(len(names))
        return Labels(rank[codes], names[order])

    def numbers(self, column: str) -> NDArray[np.float64]:
        """(rows,) finite numbers, NaN where the cell is blank; text that reads as a number is taken as one."""
        cells = plain(self.frame[column])
        if cells.dtype.kind in "bmM":
            self.refuse(column, ~is_blank(cells), f"a cell of the kind {cells.dtype}", "a number or a blank")
        if cells.dtype.kind not in "iuf":
            cells = cells.where(~is_blank(cells), None)
        found = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        bad = (np.isnan(found) & ~is_blank(cells)) | np.isinf(found)
        self.refuse(column, bad, "not a finite number", "a number or a blank")
        return found

    def flags(self, column: str, blank: bool) -> NDArray[np.bool_]:
        """(rows,) true or false; `blank` is what an empty cell means."""
        cells = plain(self.frame[column])
        if cells.dtype == bool:
            return cells.to_numpy(copy=True)
        empty = is_blank(cells)
        found = cells.astype("str").str.strip().str.lower().map(FLAGS)
        bad = found.isna().to_numpy() & ~empty
        self.refuse(column, bad, "neither true nor false", "true, false (or 1, 0), or a blank")
        return np.where(empty, blank, found == True).astype(bool)  # noqa: E712

    def one_kind(self, column: str, mine: Labels, theirs: Labels, other: str) -> None:
        """Refuse names that can never match those of another table because one holds text and the other numbers."""
        if len(mine.names) and len(theirs.names) and mine.text != theirs.text:
            words = ("whole numbers", "text")
            raise EvidenceError(
                f"{self.name}: column {column!r} holds {words[mine.text]} in {len(self)} rows, {other} holds "
                f"{words[theirs.text]}; first: {show_row(self.frame, 0)}. Allowed: the same kind in both."
            )


def open_table(frame: object, name: str) -> Table:
    """The table after its columns were checked; `frame` is copied on write, so the user's own is never touched."""
    if not isinstance(frame, pd.DataFrame):
        raise EvidenceError(f"{name}: expected a pandas DataFrame, got {type(frame).__name__}.")
    columns = [*frame.columns]
    if not all(isinstance(column, str) for column in columns):
        odd = next(column for column in columns if not isinstance(column, str))
        raise EvidenceError(f"{name}: column {odd!r} has no text name. Allowed: column names that are text.")
    doubled = sorted({column for column in columns if columns.count(column) > 1})
    if doubled:
        raise EvidenceError(f"{name}: column {doubled[0]!r} occurs {columns.count(doubled[0])} times. Allowed: once.")
    for column in REQUIRED[name]:
        if column not in columns:
            raise EvidenceError(f"{name}: no column {column!r}{_guess(column, columns)}. {_allowed(name)}")
    if len(frame) == 0 and name == "claims":
        raise EvidenceError("claims: the table is empty (0 rows). Allowed: at least one claim.")
    _warn_of_misspelt(name, columns)
    return Table(name, frame.reset_index(drop=True))


def plain(cells: pd.Series[Any]) -> pd.Series[Any]:
    """The cells themselves where the column is categorical."""
    return cells.astype(cells.cat.categories.dtype) if isinstance(cells.dtype, pd.CategoricalDtype) else cells


def is_blank(cells: pd.Series[Any]) -> NDArray[np.bool_]:
    """(rows,) true where a cell is missing or is text without a visible character."""
    missing = cells.isna().to_numpy(dtype=bool)
    if not isinstance(cells.dtype, pd.StringDtype) and cells.dtype != object:
        return missing
    codes, found = pd.factorize(cells)
    empty = np.array([isinstance(cell, str) and not cell.strip() for cell in found] + [False], dtype=bool)
    return missing | empty[codes]


def _allowed(name: str) -> str:
    text = f"Required: {', '.join(REQUIRED[name])}"
    return f"{text}; optional: {', '.join(OPTIONAL[name])}." if OPTIONAL[name] else f"{text}."


def _guess(column: str, columns: list[str]) -> str:
    close = difflib.get_close_matches(column, [name.strip().lower() for name in columns], n=1, cutoff=0.7)
    if not close:
        return f" (found: {', '.join(columns)})"
    found = next(name for name in columns if name.strip().lower() == close[0])
    return f" (found {found!r}: is that it?)"


def _warn_of_misspelt(name: str, columns: list[str]) -> None:
    known = (*REQUIRED[name], *OPTIONAL[name])
    for column in columns:
        close = difflib.get_close_matches(column.strip().lower(), known, n=1, cutoff=0.8)
        if close and column not in known and close[0] not in columns:
            warnings.warn(
                f"{name}: column {column!r} is taken as your own; if it was meant as {close[0]!r}, rename it.",
                NousWarning,
                stacklevel=4,
            )


def _name_kinds(names: pd.Index) -> NDArray[np.int8]:
    """(names,) BLANK, WHOLE, TEXT or OTHER."""
    if isinstance(names.dtype, pd.StringDtype):
        return np.where(names.str.strip() == "", BLANK, TEXT).astype(np.int8)
    if names.dtype.kind in "iu":
        return np.full(len(names), WHOLE, dtype=np.int8)
    return np.array([_name_kind(name) for name in names], dtype=np.int8)


def _name_kind(name: object) -> int:
    if isinstance(name, str):
        return TEXT if name.strip() else BLANK
    if isinstance(name, (bool, np.bool_)) or not isinstance(name, (int, float, np.integer, np.floating)):
        return OTHER
    return WHOLE if float(name).is_integer() else OTHER
