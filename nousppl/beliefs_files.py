"""Beliefs as one long table, and as parquet and csv files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import value_text
from nousppl._writing import replacing
from nousppl.beliefs_rows import split, with_more_rows
from nousppl.errors import EvidenceError, FileError
from nousppl.tables import Table

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

REQUIRED = ("entity", "attribute", "answer", "probability")
ENDINGS = (".parquet", ".csv", ".csv.gz")
SUM_TOLERANCE = 1e-3
"""How far from 1 the probabilities of a question may sum."""
TEXT = dict.fromkeys(("entity", "attribute", "answer", "answer_kind", "row", "shape", "law"), "str")
BLANK = {name: [""] for name in ("support", "sd", "probability", "count", "mean")}
"""Columns of csv files in which a row may have no number."""


def beliefs_columns(beliefs: Beliefs) -> pd.DataFrame:
    """A row a cell: entity, attribute, answer (text), answer_kind, other, count, probability, sd, support.

    Further columns: claims and seen, which belong to the question. Where some questions have another shape than one of
    several also those of ``nousppl.beliefs_rows``, with rows for items and for numbers.
    """
    table = beliefs.questions.iloc[beliefs.cell_question].reset_index(drop=True)
    table["answer"] = pd.Series([value_text.write(answer) for answer in beliefs.cell_answer], dtype="str")
    table["answer_kind"] = pd.Series([value_text.kind_of(answer) for answer in beliefs.cell_answer], dtype="str")
    table["other"], table["count"] = beliefs.cell_other, beliefs.cell_count
    table["probability"], table["sd"], table["support"] = beliefs.probability, beliefs.sd, beliefs.support
    table["claims"], table["seen"] = beliefs.claims[beliefs.cell_question], beliefs.seen[beliefs.cell_question]
    table.attrs = dict(beliefs.meta)
    return with_more_rows(beliefs, table)


def read_columns(frame: pd.DataFrame) -> dict[str, Any]:
    """Fields of ``Beliefs`` from a table as :func:`beliefs_columns` writes it; only those required must be there."""
    for column in REQUIRED:
        if column not in frame:
            raise EvidenceError(f"beliefs: no column {column!r} (found: {', '.join(map(str, frame.columns))})")
    frame, more = split(frame.reset_index(drop=True))
    table = Table("beliefs", frame.reset_index(drop=True))
    if not len(table) and "numbers" not in more:
        raise EvidenceError("beliefs: the table is empty (0 rows). Allowed: at least one answer.")
    entity, attribute = table.labels("entity"), table.labels("attribute")
    code, _ = pd.factorize(entity.codes * len(attribute.names) + attribute.codes, sort=True)
    order = np.argsort(code, kind="stable")
    first = order[np.flatnonzero(np.diff(code[order], prepend=-1) != 0)]
    questions = {
        column: labels.names.take(labels.codes[first])
        for column, labels in (("entity", entity), ("attribute", attribute))
    }
    other = table.flags("other", blank=False) if "other" in table else np.zeros(len(table), dtype=bool)
    counts = table.numbers("claims")[first] if "claims" in table else np.zeros(len(first))
    return {
        "questions": pd.DataFrame(questions),
        "cell_question": code[order].astype(np.intp),
        "cell_answer": _answers(table, other)[order],
        "cell_other": other[order],
        "cell_count": _column(table, "count", 1.0)[order],
        "probability": _probability(table, code)[order],
        "sd": _column(table, "sd", 0.0)[order],
        "support": _column(table, "support", np.nan)[order],
        "claims": np.nan_to_num(counts).astype(np.intp),
        "seen": (table.flags("seen", blank=False) if "seen" in table else np.zeros(len(table), dtype=bool))[first],
        "meta": dict(frame.attrs),
        **more,
    }


def _column(table: Table, column: str, default: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return table.numbers(column) if column in table else np.full(len(table), default)


def _probability(table: Table, code: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    probability = table.numbers("probability")
    outside = ~((probability >= 0) & (probability <= 1 + 1e-9))
    table.refuse("probability", outside, "no probability", "a number from 0 to 1 in every row")
    total = np.bincount(code, weights=probability, minlength=1) if len(code) else np.ones(1)
    bad = np.abs(total - 1) > SUM_TOLERANCE
    what = f"answers whose probabilities sum to {total[bad.argmax()]:.6g}"
    table.refuse("probability", bad[code], what, "probabilities that sum to 1 within each question")
    return probability


def _answers(table: Table, other: np.ndarray[Any, np.dtype[np.bool_]]) -> np.ndarray[Any, np.dtype[np.object_]]:
    answers = table.frame["answer"].to_numpy(dtype=object).copy()
    if "answer_kind" not in table:
        return answers
    kinds = table.frame["answer_kind"].to_numpy(dtype=object)
    bad = np.zeros(len(answers), dtype=bool)
    for place in np.flatnonzero(~other):
        try:
            answers[place] = value_text.read(str(answers[place]), kinds[place])
        except ValueError:
            bad[place] = True
    kinds_allowed = f"an answer that reads as its answer_kind, one of {', '.join(value_text.KINDS)}"
    table.refuse("answer", bad, "no value of its kind", kinds_allowed)
    return answers


def ending_of(path: Path) -> str:
    """Ending of a file of beliefs.

    Raises:
        FileError: it is none of .parquet, .csv, .csv.gz.
    """
    for ending in ENDINGS:
        if path.name.endswith(ending):
            return ending
    raise FileError(f"{path}: unknown ending; allowed are {', '.join(ENDINGS)}")


def write_file(table: pd.DataFrame, path: Path) -> None:
    """Writes a table of beliefs; a file that is there is replaced as a whole, and only once the new one is complete."""
    ending = ending_of(path)
    with replacing(path) as part:
        if ending == ".parquet":
            table.to_parquet(part, index=False)
        else:
            table.to_csv(part, index=False, compression="gzip" if ending == ".csv.gz" else None)


def read_file(path: Path) -> pd.DataFrame:
    """Reads a table of beliefs."""
    ending = ending_of(path)
    try:
        if ending == ".parquet":
            return pd.read_parquet(path)
        return pd.read_csv(path, dtype=TEXT, keep_default_na=False, na_values=BLANK)
    except FileNotFoundError as error:
        raise FileError(f"{path}: there is no such file") from error
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise FileError(f"{path}: not a readable {ending} file of beliefs ({str(error).splitlines()[0]})") from error
