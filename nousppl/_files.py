"""Tables from files: csv, csv.gz and parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from nousppl.errors import EvidenceError, FileError
from nousppl.tables import OPTIONAL, REQUIRED

BLOCK = 1 << 26
"""Bytes read at a time; a row of a csv file may not be longer."""


def read_table(path: str | Path, name: str) -> pd.DataFrame:
    """The table in a csv, csv.gz or parquet file.

    In a csv file the columns that nousppl knows are text as it stands (so that 007 stays 007), except weight,
    ceiling and lasting (numbers), and an empty cell is missing. Times are read when the table is checked. A column of
    the user's own is numbers or booleans where all its cells are.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{name}: there is no file {str(path)!r}.")
    if path.suffix == ".parquet":
        try:
            return pyarrow.parquet.read_table(path).to_pandas()
        except (pa.ArrowException, OSError) as error:
            raise FileError(f"{name}: {str(path)!r} is not a readable parquet file: {error}") from error
    return _typed(_read_csv(path, name), name)


def _read_csv(path: Path, name: str) -> pd.DataFrame:
    wrong: list[pyarrow.csv.InvalidRow] = []

    def note(row: pyarrow.csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    try:
        header = _header(path, note)
        table = pyarrow.csv.read_csv(
            path,
            # Lines are numbered only when they are read in order.
            read_options=pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
    except (pa.ArrowException, OSError, EOFError) as error:
        if wrong:
            raise EvidenceError(
                f"{name}: line {wrong[0].number} of {str(path)!r} has {wrong[0].actual_columns} fields instead of "
                f"{wrong[0].expected_columns}: {wrong[0].text[:99]!r}. Allowed: as many fields as the first line names."
            ) from error
        raise EvidenceError(f"{name}: {str(path)!r} is not a readable csv file in UTF-8: {error}") from error
    return table.to_pandas()


def _header(path: Path, note: object) -> list[str]:
    with pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=BLOCK, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
    ) as reader:
        return reader.schema.names


def _typed(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    own = [column for column in frame.columns if column not in (*REQUIRED[name], *OPTIONAL[name])]
    typed = {
        column: _number_or_flag(frame[column]) for column in (*own, "weight", "ceiling", "lasting") if column in frame
    }
    return frame.assign(**typed)


def _number_or_flag(cells: pd.Series[str]) -> pd.Series[object]:
    codes, found = pd.factorize(cells)
    lower = found.str.strip().str.lower()
    if len(found) and lower.isin(["true", "false"]).all() and (codes >= 0).all():
        return pd.Series((lower == "true")[codes])
    numbers = pd.to_numeric(found, errors="coerce")
    if len(found) == 0 or np.isnan(numbers).any():
        return cells
    return pd.Series(numbers[codes]) if (codes >= 0).all() else pd.Series(np.append(numbers, np.nan)[codes])
