"""Beliefs about set-valued questions, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import calibration
from nousppl.calibration import Marks
from nousppl.errors import EvidenceError
from nousppl.models.shapes import AnyOf

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

COLUMNS = ["entity", "attribute", "item", "probability"]


def item_table(beliefs: Beliefs) -> pd.DataFrame:
    """A row an item of a set-valued question: entity, attribute, item, probability that it holds."""
    parts = []
    for attribute, shape in beliefs.shapes.items():
        if isinstance(shape, AnyOf):
            mine = np.flatnonzero((beliefs.questions["attribute"] == attribute).to_numpy())
            parts.append(_items_of(beliefs, shape, np.isin(beliefs.cell_question, mine)))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def _items_of(beliefs: Beliefs, shape: AnyOf, cells: NDArray[np.bool_]) -> pd.DataFrame:
    table = pd.DataFrame({"question": beliefs.cell_question[cells], "probability": beliefs.probability[cells]})
    answer, sets = pd.factorize(beliefs.cell_answer[cells])
    lists = pd.Series([shape.items(text) for text in sets], dtype=object)
    table["item"] = lists.to_numpy(object)[answer]
    listed = table.explode("item").dropna(subset="item")
    total = listed.groupby(["question", "item"], as_index=False)["probability"].sum()
    names = beliefs.questions.iloc[total["question"]].reset_index(drop=True)
    return pd.concat([names[["entity", "attribute"]], total[["item", "probability"]]], axis=1)


def item_marks(beliefs: Beliefs, settled: pd.DataFrame) -> Marks:
    """Whether each item of the settled questions holds, against its probability.

    Raises:
        EvidenceError: no settled fact is about a set-valued question of these.
    """
    table = item_table(beliefs)
    facts = settled[["entity", "attribute", "value"]].drop_duplicates(["entity", "attribute"])
    table = table.merge(facts, on=["entity", "attribute"])
    if not len(table):
        raise EvidenceError(
            f"settled: none of {len(settled)} rows is about a set-valued question of these beliefs; allowed are "
            "questions whose shape is AnyOf"
        )
    shapes = {attribute: shape for attribute, shape in beliefs.shapes.items() if isinstance(shape, AnyOf)}
    rows = zip(table["attribute"], table["item"], table["value"], strict=True)
    holds = np.array([item in shapes[attribute].items(value) for attribute, item, value in rows])
    chances = np.clip(table["probability"].to_numpy(), 0.0, 1.0)
    return calibration.mark_matrix(np.stack([1.0 - chances, chances], axis=1), holds.astype(np.intp))


def canonical(beliefs: Beliefs, settled: pd.DataFrame) -> pd.DataFrame:
    """The settled facts with lists written as the answers are."""
    shapes = {attribute: shape for attribute, shape in beliefs.shapes.items() if isinstance(shape, AnyOf)}
    if not shapes or not {"attribute", "value"} <= set(settled.columns):
        return settled
    pairs = zip(settled["attribute"], settled["value"], strict=True)
    values = [shapes[a].text(shapes[a].items(v)) if a in shapes else v for a, v in pairs]
    return settled.assign(value=pd.Series(values, dtype=object, index=settled.index))
