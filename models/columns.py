"""Columns of a table as a formula reads them: numbers, or codes with text labels; none missing, kinds never mixed."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import ModelError

NUMBER, TEXT, TRUTH, TIME = "number", "text", "truth value", "time"
KINDS = {
    "integer": NUMBER,
    "floating": NUMBER,
    "mixed-integer-float": NUMBER,
    "string": TEXT,
    "boolean": TRUTH,
    "datetime": TIME,
    "datetime64": TIME,
    "date": TIME,
    "period": TIME,
}


class Coded(NamedTuple):
    """A column as integer codes."""

    codes: NDArray[np.int64]
    """(J,) index into labels."""
    labels: list[str]
    """Labels that occur, each once: numbers by value (1 and 1.0 are both "1"), text as it is, times in ISO form."""

    def equals(self, label: str) -> NDArray[np.bool_]:
        """(J,) whether a row holds `label`."""
        matches: NDArray[np.bool_] = self.codes == (self.labels.index(label) if label in self.labels else -1)
        return matches


class Reader:
    """Reads columns of one table for one formula or term; every column is read once, and errors name what reads it and
    what to do ``otherwise`` than give every row a value."""

    def __init__(self, frame: pd.DataFrame, where: str, otherwise: str = "take the column out of the formula") -> None:
        self.frame = frame
        self.where = where
        self.otherwise = otherwise
        self.rows = len(frame)
        self._series: dict[str, pd.Series] = {}
        self._coded: dict[str, Coded] = {}
        self._kinds: dict[str, str] = {}
        self._numbers: dict[str, NDArray[np.float64]] = {}

    def require(self, columns: tuple[str, ...]) -> None:
        """Raise ModelError where the table lacks one of the columns, or has it twice."""
        names = self.frame.columns.tolist()
        for column in columns:
            if names.count(column) > 1:
                raise ModelError(f"{self.where}: the table has {names.count(column)} columns called {column!r}")
            if column not in names:
                close = difflib.get_close_matches(column, map(str, names), n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                has = ", ".join(map(repr, names))
                raise ModelError(f"{self.where}: there is no column {column!r}{hint}; the table has {has}")
            self._series[column] = self.frame[column]

    def kind(self, column: str) -> str | None:
        """Kind of value in the column; None where there are no rows to tell it from."""
        if column not in self._kinds:
            kind = self._infer(self._series[column])
            if kind is None:
                return None
            self._kinds[column] = kind
        return self._kinds[column]

    def is_numeric(self, column: str) -> bool:
        """Whether a fixed effect or a slope can use the column as it is: numbers and truth values, not categorical."""
        if self.rows == 0 and self.kind(column) is None:
            raise ModelError(f"{self.where}: the table has no rows, so the kind of column {column!r} cannot be told")
        return self.kind(column) in (NUMBER, TRUTH) and not isinstance(self._series[column].dtype, pd.CategoricalDtype)

    def numbers(self, column: str) -> NDArray[np.float64]:
        """(J,) the column as numbers, truth values as 0 and 1.

        Raises ModelError where one is missing, infinite, or no number.
        """
        if column not in self._numbers:
            if self.kind(column) not in (NUMBER, TRUTH, None):
                raise ModelError(f"{self.where}: column {column!r} must hold numbers; it holds {self._example(column)}")
            values = self._series[column].to_numpy(np.float64, na_value=np.nan)
            self._refuse(column, np.isnan(values), "is missing")
            self._refuse(column, np.isinf(values), "is infinite")
            self._numbers[column] = values
        return self._numbers[column]

    def coded(self, column: str, kind: str | None = None) -> Coded:
        """The column as codes and labels.

        Raises ModelError where one is missing, kinds are mixed, or the kind is not `kind`.
        """
        if column not in self._coded:
            self._coded[column] = self._code(column)
        found = self.kind(column)
        if kind and found and found != kind:
            raise ModelError(
                f"{self.where}: column {column!r} held values of the kind {kind} when the formula was first used and "
                f"now holds the kind {found} ({self._example(column)}); 1 and '1' are not the same level"
            )
        return self._coded[column]

    def categories(self, column: str) -> tuple[str, ...]:
        """Categories of a fixed effect: as a categorical column declares them, else those that occur, sorted."""
        coded = self.coded(column)
        dtype = self._series[column].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return tuple(_label(value) for value in dtype.categories)
        return tuple(sorted(coded.labels))

    def error(self, column: str, bad: NDArray[np.bool_], problem: str, advice: str) -> ModelError:
        """A ModelError that names the column, how many rows are bad, and the first of them as it stands."""
        first = int(np.argmax(bad))
        row = str(self.frame.iloc[first].to_dict())
        row = row if len(row) <= 300 else row[:300] + "..."
        count = f"in {int(bad.sum())} of {self.rows} rows, first in row {self.frame.index[first]!r}: {row}"
        return ModelError(f"{self.where}: column {column!r} {problem} {count}; {advice}")

    def _refuse(self, column: str, bad: NDArray[np.bool_], problem: str) -> None:
        if bad.any():
            advice = f"no row is dropped: give every row a value, or {self.otherwise}"
            raise self.error(column, bad, problem, advice)

    def _code(self, column: str) -> Coded:
        series = self._series[column]
        if isinstance(series.dtype, pd.CategoricalDtype):
            codes, used = pd.factorize(series.cat.codes.to_numpy())
            self._refuse(column, series.isna().to_numpy(), "is missing")
            values = series.cat.categories.take(used)
        else:
            codes, values = pd.factorize(series)
            self._refuse(column, codes < 0, "is missing")
        self.kind(column)
        labels = [_label(value) for value in values]
        blank = [code for code, label in enumerate(labels) if not label.strip()]
        if blank:
            self._refuse(column, np.isin(codes, blank), "is blank")
        return Coded(codes.astype(np.int64, copy=False), labels)

    def _infer(self, series: pd.Series) -> str | None:
        dtype = series.dtype
        values = dtype.categories if isinstance(dtype, pd.CategoricalDtype) else series
        if values.dtype.kind == "b":
            return TRUTH
        if values.dtype.kind in "iuf":
            return NUMBER
        if isinstance(values.dtype, pd.StringDtype):
            return TEXT
        name = pd.api.types.infer_dtype(values, skipna=True)
        if name == "empty":
            return None
        if name not in KINDS:
            raise ModelError(
                f"{self.where}: column {series.name!r} holds {_mixture(values)}; "
                "a column of a formula holds only numbers, only text, only truth values or only times"
            )
        return KINDS[name]

    def _example(self, column: str) -> str:
        return f"for example {self._series[column].iloc[0]!r}"


def _mixture(values: pd.Series | pd.Index) -> str:
    examples = {type(value).__name__: value for value in reversed(values.dropna().tolist())}
    return ", ".join(f"{value!r} ({name})" for name, value in sorted(examples.items())[:4])


def _label(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
