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
from nousppl.parts import Parts
from nousppl.ragged import Floats, Ints
from nousppl.sets import shares

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

COLUMNS = ["entity", "attribute", "item", "probability"]


def no_items() -> pd.DataFrame:
    """The table of items where no question is set-valued."""
    return pd.DataFrame(columns=COLUMNS)


def item_table(
    items: Items | None, parts: Parts, questions: pd.DataFrame, offset: Ints, probability: Floats
) -> pd.DataFrame:
    """A row an item of a set-valued question: entity, attribute, item, probability that it holds.

    Args:
        items: of the set-valued questions; None where there are none.
        parts: which questions are parts of others.
        questions: all questions.
        offset: (questions and parts + 1,) where the cells of each start.
        probability: (cells,)
    """
    if items is None:
        return no_items()
    of, names, chances = [], [], []
    for question in items.groups:
        if question >= parts.questions:
            continue
        mine = parts.of(np.array([question])).tolist()
        found = [probability[offset[q] : offset[q + 1]] @ shares(items, q) for q in mine]
        listed, chance = parts.names(question), np.concatenate(found)
        if len(mine) > 1:
            listed, chance = tuple(sorted(listed)), chance[np.argsort(np.array(listed, object))]
        of.append(question)
        names.append(listed)
        chances.append(chance)
    rows = questions.iloc[np.repeat(np.array(of, np.int64), [len(some) for some in names])]
    table = rows[["entity", "attribute"]].reset_index(drop=True)
    table["item"] = pd.Series([name for some in names for name in some], dtype=object)
    return table.assign(probability=np.concatenate([*chances, np.zeros(0)]))


def item_marks(beliefs: Beliefs, settled: pd.DataFrame) -> Marks:
    """Whether each item of the settled questions holds, against its probability; rejections are left out.

    Raises:
        EvidenceError: no settled fact is about a set-valued question of these.
    """
    table = beliefs.items
    if "verdict" in settled:
        settled = settled[settled["verdict"].astype(str).str.lower() != "false"]
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
