"""Times of claims and settled facts: numbers, or dates with or without a time zone; never a mixture."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import EvidenceError
from nousppl.tables import Table, is_blank, plain, shorten

NUMBER, DATE, ZONED = "numbers", "dates without a time zone", "dates with a time zone"
ALLOWED = (
    "numbers, or ISO dates and timestamps (2026-11-01, 2026-11-01T09:30), throughout; all in one time zone or in none"
)
DAY = np.timedelta64(1, "D") / np.timedelta64(1, "us")


@dataclass(frozen=True)
class Times:
    """One column of times."""

    values: NDArray[np.float64]
    """(rows,) days since 1970-01-01 (UTC where there is a time zone), or the numbers as given; NaN where missing."""
    shown: pd.Series[Any]
    """(rows,) the same as datetime64 or float, for display."""
    kind: str | None
    """NUMBER, DATE or ZONED; None where every row is blank."""


def read_times(table: Table, column: str) -> Times:
    """Times of a column. Text is read as numbers where all of it is numeric, else as ISO 8601."""
    cells = plain(table.frame[column])
    if pd.api.types.is_datetime64_any_dtype(cells):
        return _from_dates(cells)
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells):
        return _from_numbers(cells, table.numbers(column))
    blank = is_blank(cells)
    if blank.all():
        return Times(np.full(len(cells), np.nan), pd.Series(np.full(len(cells), np.nan)), None)
    return _from_cells(table, column, cells.where(~blank, None))


def same_kind(table: Table, column: str, times: Times, kind: str | None, place: str) -> str | None:
    """The kind of a column and of what was read before it, which has `kind` and is at `place`; refuses a mixture."""
    if kind is not None and times.kind is not None and times.kind != kind:
        table.refuse(column, ~np.isnan(times.values), f"{times.kind}, where {place} has {kind},", ALLOWED)
    return kind or times.kind


def as_time(value: object, kind: str | None) -> float:
    """One time, given as a number, date or ISO text, on the scale of evidence of this `kind`."""
    if kind is None:
        raise EvidenceError(
            f"claims: no row has a time, so {shorten(value)} cannot be compared with any. Give a column 'time'."
        )
    found = read_times(Table("time", pd.DataFrame({"time": pd.Series([value], dtype=object)})), "time")
    if found.kind != kind:
        raise EvidenceError(
            f"time: {shorten(value)} is of the kind {found.kind or 'missing'}, the evidence has {kind}."
        )
    return float(found.values[0])


def show_times(values: NDArray[np.float64], kind: str | None) -> Any:
    """Times on the scale of evidence of this `kind` as it shows them: dates (missing where NaN), or the numbers."""
    if kind in (None, NUMBER):
        return values
    missing = np.isnan(values)
    moments = np.round(np.where(missing, 0.0, values) * 86_400e6).astype(np.int64).astype("datetime64[us]")
    moments[missing] = np.datetime64("NaT", "us")
    return pd.DatetimeIndex(moments).tz_localize("UTC" if kind == ZONED else None)


def _from_dates(cells: pd.Series[Any]) -> Times:
    zoned = cells.dt.tz is not None
    shown = (cells.dt.tz_convert("UTC") if zoned else cells).dt.as_unit("us")
    naive = shown.dt.tz_localize(None) if zoned else shown
    values = naive.to_numpy(dtype="datetime64[us]").astype(np.int64) / DAY
    values[cells.isna().to_numpy()] = np.nan
    return Times(values, shown, (ZONED if zoned else DATE) if not cells.isna().all() else None)


def _from_numbers(cells: pd.Series[Any], values: NDArray[np.float64]) -> Times:
    return Times(values, cells, None if np.isnan(values).all() else NUMBER)


def _from_cells(table: Table, column: str, cells: pd.Series[Any]) -> Times:
    """Cells of any type: each distinct cell is looked at once."""
    codes, found = pd.factorize(cells)
    found = np.asarray(found, dtype=object)
    numeric = np.array([_is_number(cell) for cell in found] + [False], dtype=bool)[codes]
    if numeric.any():
        minority = numeric if numeric.sum() * 2 <= (codes >= 0).sum() else ~numeric & (codes >= 0)
        mixed = ~numeric & (codes >= 0)
        table.refuse(column, minority if mixed.any() else mixed, "numbers and dates are mixed, the rarer kind", ALLOWED)
        values = np.append([float(cell) for cell in found], np.nan)[codes]
        table.refuse(column, np.isinf(values), "a time that is not finite", ALLOWED)
        return _from_numbers(pd.Series(values), values)
    zones = np.append(np.array([_zone(cell) for cell in found], dtype=object), "")[codes]
    present = codes >= 0
    other = present & (zones != zones[present][0])
    table.refuse(column, other, f"time zones are mixed (first {zones[present][0] or 'none'!r}), another one", ALLOWED)
    zoned = zones[present][0] != ""
    dates = _parse(found, zoned)
    bad = np.append(dates.isna(), False)[codes]
    table.refuse(column, bad, "neither a number nor an ISO date", ALLOWED)
    return _from_dates(pd.Series(dates.append(pd.DatetimeIndex([pd.NaT], tz=dates.tz))[codes]))


def _is_number(cell: object) -> bool:
    if isinstance(cell, str):
        try:
            float(cell)
        except ValueError:
            return False
        return "_" not in cell
    return isinstance(cell, Real) and not isinstance(cell, bool)


def _zone(cell: object) -> str:
    """The name or offset of the time zone of a date, "" where there is none."""
    if isinstance(cell, dt.datetime):
        return "" if cell.tzinfo is None else str(cell.tzinfo)
    text = str(cell).strip()
    clock = text[10:]
    if not clock:
        return ""
    if clock[-1] in "zZ":
        return "UTC"
    sign = max(clock.rfind("+"), clock.rfind("-"))
    if sign < 0:
        return ""
    offset = clock[sign:].replace(":", "").ljust(5, "0")
    return "UTC" if offset[1:] == "0000" else offset


def _parse(found: NDArray[np.object_], zoned: bool) -> pd.DatetimeIndex:
    # pandas would also take words such as "now".
    text = [iso if iso[:4].isdigit() else None for iso in map(_iso, found)]
    return pd.DatetimeIndex(pd.to_datetime(pd.Index(text, dtype=object), format="ISO8601", errors="coerce", utc=zoned))


def _iso(cell: object) -> str:
    return cell.isoformat() if isinstance(cell, (dt.date, dt.datetime)) else str(cell).strip()


def table_times(table: Table, kind: str | None = None) -> tuple[dict[str, Times], str | None]:
    """The columns time and known_at, known_at filled in by time; and their kind, where `kind` is that of the claims."""
    place = "claims"
    given = {column: read_times(table, column) for column in ("time", "known_at") if column in table}
    for column, times in given.items():
        kind = same_kind(table, column, times, kind, place)
        place = f"column {column!r}"
    nothing = np.full(len(table), np.nan)
    time = given.get("time", Times(nothing, pd.Series(nothing), None))
    known = given.get("known_at", time)
    filled = np.where(np.isnan(known.values), time.values, known.values)
    return {"time": time, "known_at": replace(known, values=filled)}, kind


def show_table(
    table: Table, positions: NDArray[np.int64], times: dict[str, Times], values: NDArray[np.object_] | None
) -> pd.DataFrame:
    """Rows at `positions`, with times as they were read, and with `values` (rows,) where some were merged."""
    shown: dict[str, Any] = {column: read.shown for column, read in times.items() if column in table}
    frame = table.frame.assign(**shown).take(positions).reset_index(drop=True)
    return frame if values is None else frame.assign(value=pd.Series(values, dtype=object).infer_objects())
