"""Rows of the long table of beliefs that are no answers: items of set-valued questions, and numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl.errors import EvidenceError
from nousppl.mixture import Mixture
from nousppl.models.shapes import SHAPES, Shape
from nousppl.number_beliefs import NumberBeliefs
from nousppl.tables import Table

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

ROW, SHAPE, LAW = "row", "shape", "law"
"""Columns: what the row is about, the shape of its attribute as json, and the law of a number as json."""
ANSWER, ITEM, NUMBER = "answer", "item", "number"
FIELDS = ("place", "width", "weight")


def with_more_rows(beliefs: Beliefs, answers: pd.DataFrame) -> pd.DataFrame:
    """The table of answers as it is where all questions are one of several, else with the columns ``row`` ("answer",
    "item" or "number"), ``shape`` and ``law``, and a row for each item and for each number.

    Args:
        beliefs: what the table is of.
        answers: a row an answer, see ``nousppl.beliefs_files.beliefs_columns``.
    """
    if not beliefs.shapes and beliefs.numbers is None and not len(beliefs.items):
        return answers
    parts = [answers.assign(**{ROW: ANSWER, LAW: ""})]
    if len(beliefs.items):
        kept = beliefs.items[["entity", "attribute", "item", "probability"]].rename(columns={"item": "answer"})
        parts.append(kept.assign(**{"answer_kind": "text", ROW: ITEM, LAW: ""}))
    if beliefs.numbers is not None:
        parts.append(_number_rows(beliefs.numbers))
    # Of a column that a row has no use for.
    blank: dict[str, Any] = {"answer": "", "answer_kind": "", "other": False, "seen": False, "claims": 0}
    blank |= dict.fromkeys(("count", "probability", "sd", "support"), np.nan)
    filled = [part.assign(**{n: v for n, v in blank.items() if n not in part}) for part in parts if len(part)]
    table = pd.concat(filled, ignore_index=True)
    written = {attribute: json.dumps(_plain(shape)) for attribute, shape in beliefs.shapes.items()}
    table[SHAPE] = table["attribute"].map(written).astype(object).where(table["attribute"].isin(list(written)), "")
    text = {name: table[name].astype("str") for name in ("answer", "answer_kind", ROW, SHAPE, LAW)}
    table = table.assign(**text)
    table.attrs = answers.attrs
    return table


def _plain(shape: Shape) -> dict[str, Any]:
    name = next(name for name, kind in SHAPES.items() if isinstance(shape, kind))
    return {"shape": name, **asdict(shape)}


def _number_rows(numbers: NumberBeliefs) -> pd.DataFrame:
    frame = numbers.frame.drop(columns="effective_claims")
    laws = [{name: getattr(law, name).tolist() for name in FIELDS} | {"gaps": law.gaps} for law in numbers.mixtures]
    text = [json.dumps(law) for law in laws]
    columns: dict[str, Any] = {"support": numbers.witnesses, ROW: NUMBER, LAW: text}
    return frame.assign(**columns)


def split(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The rows of answers, and the fields of ``Beliefs`` that the other rows hold.

    Raises:
        EvidenceError: another kind of row, or what it holds cannot be read.
    """
    if ROW not in frame:
        return frame, {}
    bad = ~frame[ROW].isin([ANSWER, ITEM, NUMBER])
    if bad.any():
        raise EvidenceError(
            f"beliefs: column {ROW!r} is {frame[ROW][bad].iloc[0]!r} in {int(bad.sum())} rows; allowed are "
            f"{ANSWER!r}, {ITEM!r} and {NUMBER!r}"
        )
    kinds = {kind: frame[frame[ROW] == kind].reset_index(drop=True) for kind in (ANSWER, ITEM, NUMBER)}
    out: dict[str, Any] = {"shapes": _shapes(frame)}
    if len(kinds[ITEM]):
        part = kinds[ITEM]
        out["items"] = _keys(part).assign(
            item=part["answer"].astype(object), probability=part["probability"].to_numpy(np.float64)
        )
    if len(kinds[NUMBER]):
        out["numbers"] = _numbers(kinds[NUMBER])
    kinds[ANSWER].attrs = frame.attrs
    return kinds[ANSWER], out


def _keys(part: pd.DataFrame) -> pd.DataFrame:
    """Entity and attribute, as the answers have them."""
    table = Table("beliefs", part)
    labels = {name: table.labels(name) for name in ("entity", "attribute")}
    return pd.DataFrame({name: one.names.take(one.codes) for name, one in labels.items()})


def _numbers(part: pd.DataFrame) -> NumberBeliefs:
    table = Table("beliefs", part)
    return NumberBeliefs(
        questions=_keys(part),
        mixtures=tuple(_law(text) for text in part[LAW]),
        claims=table.numbers("claims").astype(np.int64),
        witnesses=table.numbers("support"),
        seen=table.flags("seen", blank=False),
    )


def _law(text: str) -> Mixture:
    try:
        read = json.loads(text)
        place, width, weight = (np.array(read[name], np.float64) for name in FIELDS)
        gaps = tuple((float(low), float(high)) for low, high in read["gaps"])
    except (ValueError, TypeError, KeyError) as error:
        raise EvidenceError(
            f"beliefs: column {LAW!r}: {str(text)[:40]!r} is no law of a number ({error}); allowed is what "
            "Beliefs.write writes: json with place, width, weight and gaps"
        ) from error
    return Mixture(place, width, weight, gaps)


def _shapes(frame: pd.DataFrame) -> Mapping[Any, Shape]:
    if SHAPE not in frame:
        return {}
    known = frame[frame[SHAPE].astype("str").str.len() > 0].drop_duplicates("attribute")
    out: dict[Any, Shape] = {}
    for attribute, text in zip(known["attribute"], known[SHAPE], strict=True):
        try:
            fields = json.loads(text)
            out[attribute] = SHAPES[fields.pop("shape")](**fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise EvidenceError(
                f"beliefs: column {SHAPE!r} of attribute {attribute!r} is no shape ({error}); allowed is what "
                "Beliefs.write writes"
            ) from error
    return out
