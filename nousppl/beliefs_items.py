"""Beliefs about set-valued questions, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import calibration
from nousppl.calibration import Marks
from nousppl.errors import EvidenceError
from nousppl.items import Items
from nousppl.models.shapes import AnyOf, WhileTrue
from nousppl.ragged import Floats, Ints
from nousppl.sets import shares

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

COLUMNS = ["entity", "attribute", "item", "probability"]


def no_items() -> pd.DataFrame:
    """The table of items where no question is set-valued."""
    return pd.DataFrame(columns=COLUMNS)


def item_table(items: Items | None, questions: pd.DataFrame, offset: Ints, probability: Floats) -> pd.DataFrame:
    """A row an item of a set-valued question: entity, attribute, item, probability that it holds.

    Args:
        items: of the set-valued questions; None where there are none.
        questions: all questions.
        offset: (questions + 1,) where the cells of each start.
        probability: (cells,)
    """
    if items is None:
        return no_items()
    of, names = list(items.groups), [items.names(question) for question in items.groups]
    chances = [probability[offset[q] : offset[q + 1]] @ shares(items, q) for q in of]
    rows = questions.iloc[np.repeat(of, [len(some) for some in names])]
    table = rows[["entity", "attribute"]].reset_index(drop=True)
    table["item"] = pd.Series([name for some in names for name in some], dtype=object)
    return table.assign(probability=np.concatenate([*chances, np.zeros(0)]))


def item_marks(beliefs: Beliefs, settled: pd.DataFrame) -> Marks:
    """Whether each item of the settled questions holds, against its probability.

    Raises:
        EvidenceError: no settled fact is about a set-valued question of these.
    """
    table = beliefs.items
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
    """The settled facts with lists and states written as the answers are."""
    shapes = {attribute: shape for attribute, shape in beliefs.shapes.items() if isinstance(shape, AnyOf | WhileTrue)}
    if not shapes or not {"attribute", "value"} <= set(settled.columns):
        return settled

    def written(attribute: Any, value: Any) -> Any:
        shape = shapes.get(attribute)
        if isinstance(shape, AnyOf):
            return shape.text(shape.items(value))
        state = None if shape is None else shape.state(value)
        return value if state is None else state

    pairs = zip(settled["attribute"], settled["value"], strict=True)
    values = [written(attribute, value) for attribute, value in pairs]
    return settled.assign(value=pd.Series(values, dtype=object, index=settled.index))
