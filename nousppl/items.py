"""Items of set-valued questions (``AnyOf``): which there are, and which of them are named, denied and settled.

Items of a question that all its claims treat alike are exchangeable, so that only their number matters: they form a
*group*, and a cell says how many items of each group hold. Up to 12 items each is a group of its own, and a cell is a
set of items.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.models.shapes import AnyOf
from nousppl.ragged import Ints

ALONE = 12
"""Up to this many items each is a group of its own."""
MOST_CELLS = 4096
"""Most cells of a question."""
DENIES = "denies"
"""Column of the claims with the items that are denied."""


@dataclass(frozen=True)
class Items:
    """Items of the set-valued questions of an evidence; what is said of groups is a whole number with their bits."""

    attributes: tuple[Any, ...]
    """Set-valued attributes, the axis of prevalences."""
    groups: Mapping[int, tuple[tuple[str, ...], ...]]
    """Question -> its groups of items."""
    attribute: Ints
    """(Q,) place among `attributes`; -1 for questions of another shape."""
    sizes: Ints
    """(Q, 12) number of items in each group; 0 where there are fewer groups."""
    named: Ints
    """(J,) groups that each claim names."""
    denied: Ints
    """(J,) groups that it denies."""
    absent: Ints
    """(Q,) how many items of the attribute are none of the question's."""
    certain: Ints
    """(Q,) groups that are settled to hold."""
    excluded: Ints
    """(Q,) groups that are settled not to hold, or rejected."""
    settled: NDArray[np.bool_]
    """(Q,) whether it is settled which items hold, or that some do."""
    answer_set: Ints
    """(answers,) the groups that each of ``coded.answers`` lists."""

    def names(self, question: int) -> tuple[str, ...]:
        """Items of a question, group by group."""
        return tuple(name for group in self.groups[question] for name in group)

    @cached_property
    def strides(self) -> Ints:
        """(Q, 12) how many cells on the next number of items of a group is."""
        return np.cumprod(np.hstack([np.ones((len(self.sizes), 1), np.int64), self.sizes[:, :-1] + 1]), axis=1)

    def cells(self, question: int) -> int:
        """Number of cells of a question."""
        return int(np.prod(self.sizes[question] + 1))

    def cell_of(self, question: Ints, chosen: Ints) -> Ints:
        """Place of the cell in which exactly some groups hold, all their items, among those of its question."""
        bits = chosen[:, None] >> np.arange(ALONE) & 1
        return (bits * self.sizes[question] * self.strides[question]).sum(1)


def universe(coded: Coded, attribute: Any, shape: AnyOf, given: Iterable[Any] | None) -> tuple[str, ...]:
    """All items of an attribute: the closed list, or those that the evidence lists."""
    if given is not None:
        return tuple(sorted(str(item) for item in given))
    place = coded.attributes.get_loc(attribute) if attribute in coded.attributes else -1
    mine = coded.question_attribute[coded.answers["question"].to_numpy()] == place
    return tuple(sorted({item for value in set(coded.answer_value[mine]) for item in shape.items(value)}))


def find_items(
    coded: Coded,
    frame: pd.DataFrame,
    shapes: Mapping[Any, AnyOf],
    closed: Mapping[Any, tuple[Any, ...]],
    size: Mapping[Any, int],
) -> Items:
    """Items of all set-valued questions.

    Args:
        coded: the evidence.
        frame: covariates of the claims, ``denies`` among them where it is given.
        shapes: set-valued attribute -> shape.
        closed: attribute -> closed list of items, where there is one.
        size: attribute -> number of its items, where there is none.

    Raises:
        ModelError: an item outside a closed list, named and denied by one claim, or settled and rejected; a question
            with too many items.
    """
    questions, claims = len(coded.questions), len(coded.claim_question)
    attribute = pd.Index(list(shapes), dtype=object).get_indexer(coded.questions["attribute"].astype(object))
    answer_items = _answer_items(coded, attribute, shapes)
    denied_items = _denied_items(coded, frame, attribute, shapes)
    groups = _groups(coded, attribute, shapes, closed, answer_items, denied_items)
    bit = {q: {item: 1 << i for i, group in enumerate(of_q) for item in group} for q, of_q in groups.items()}

    def as_bits(question: int, listed: tuple[str, ...]) -> int:
        return sum({bit[question][item] for item in listed})

    answer_set = np.zeros(len(coded.answers), np.int64)
    for answer, listed in answer_items.items():
        answer_set[answer] = as_bits(int(coded.answers["question"].iat[answer]), listed)
    named, denied = np.zeros(claims, np.int64), np.zeros(claims, np.int64)
    of_set = np.flatnonzero(attribute[coded.claim_question] >= 0)
    _refuse_soft(coded, of_set)
    named[of_set] = answer_set[coded.row_answer[coded.row_start[:-1][of_set]]]
    for claim, listed in denied_items.items():
        denied[claim] = as_bits(int(coded.claim_question[claim]), listed)
    _refuse_both(coded, named, denied)
    sizes, absent = np.zeros((questions, ALONE), np.int64), np.zeros(questions, np.int64)
    for question, of_question in groups.items():
        sizes[question, : len(of_question)] = [len(group) for group in of_question]
        absent[question] = max(int(size[list(shapes)[attribute[question]]]) - sizes[question].sum(), 0)
    certain, excluded, settled = _settled(coded, list(shapes.values()), attribute, groups, answer_set)
    return Items(tuple(shapes), groups, attribute, sizes, named, denied, absent, certain, excluded, settled, answer_set)


def _answer_items(coded: Coded, attribute: Ints, shapes: Mapping[Any, AnyOf]) -> dict[int, tuple[str, ...]]:
    """Items that each answer of a set-valued question lists."""
    of_answer = attribute[coded.answers["question"].to_numpy()]
    by_place = list(shapes.values())
    return {int(a): by_place[of_answer[a]].items(coded.answer_value[a]) for a in np.flatnonzero(of_answer >= 0)}


def _denied_items(
    coded: Coded, frame: pd.DataFrame, attribute: Ints, shapes: Mapping[Any, AnyOf]
) -> dict[int, tuple[str, ...]]:
    """Items that each claim denies."""
    if DENIES not in frame:
        return {}
    by_place, given = list(shapes.values()), frame[DENIES]
    mine = np.flatnonzero((attribute[coded.claim_question] >= 0) & given.notna().to_numpy())
    values = given.to_numpy(object)
    return {int(j): by_place[attribute[coded.claim_question[j]]].items(values[j]) for j in mine}


def _groups(
    coded: Coded,
    attribute: Ints,
    shapes: Mapping[Any, AnyOf],
    closed: Mapping[Any, tuple[Any, ...]],
    answer_items: Mapping[int, tuple[str, ...]],
    denied_items: Mapping[int, tuple[str, ...]],
) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Items of each question that all its lists treat alike; each by itself where there are few."""
    lists: dict[int, list[tuple[str, ...]]] = {int(q): [] for q in np.flatnonzero(attribute >= 0)}
    of_answer = coded.answers["question"].to_numpy()
    for answer, listed in answer_items.items():
        lists[int(of_answer[answer])].append(listed)
    for claim, listed in denied_items.items():
        lists[int(coded.claim_question[claim])].append(listed)
    out = {}
    for question, of_question in lists.items():
        name = list(shapes)[attribute[question]]
        items = {item for listed in of_question for item in listed}
        if name in closed:
            items = _of_closed(coded, question, name, items, closed[name])
        groups: dict[Any, list[str]] = {}
        for item in sorted(items):
            alike = tuple(item in listed for listed in of_question) if len(items) > ALONE else item
            groups.setdefault(alike, []).append(item)
        out[question] = tuple(tuple(group) for group in groups.values())
        cells = math.prod(len(group) + 1 for group in out[question])
        if cells > MOST_CELLS:
            row = coded.questions.iloc[question]
            raise ModelError(
                f"entity {row['entity']!r}, attribute {name!r}: {len(items)} items, which its lists treat in "
                f"{len(out[question])} different ways, are {cells} sets; at most {MOST_CELLS} are summed over: 12 "
                "items, or more that are named together"
            )
    return out


def _of_closed(coded: Coded, question: int, name: Any, items: set[str], closed: tuple[Any, ...]) -> set[str]:
    allowed = {str(item) for item in closed}
    if items - allowed:
        raise ModelError(
            f"answers[{name!r}]: item {min(items - allowed)!r} of entity "
            f"{coded.questions['entity'].iat[question]!r} is outside its closed list; allowed are {sorted(allowed)}"
        )
    return allowed


def _refuse_soft(coded: Coded, claims: Ints) -> None:
    rows = np.diff(coded.row_start)[claims] > 1
    soft = rows | (coded.row_weight[coded.row_start[:-1][claims]] < 1.0)
    if soft.any():
        claim = claims[soft][0]
        raise ModelError(
            f"claims: {int(soft.sum())} soft claims on lists of items, first {coded.claim_id[claim]!r}; a list has one "
            "row and no weight"
        )


def _refuse_both(coded: Coded, named: Ints, denied: Ints) -> None:
    both = np.flatnonzero(named & denied)
    if len(both):
        raise ModelError(
            f"claims: column {DENIES!r} of {len(both)} claims lists an item that the value names, first of claim "
            f"{coded.claim_id[both[0]]!r}; an item is named, denied or neither"
        )


def _settled(
    coded: Coded, shapes: list[AnyOf], attribute: Ints, groups: Mapping[int, Any], answer_set: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """What is settled to hold and not to hold in each question, and whether a truth is."""
    certain, excluded = np.zeros(len(attribute), np.int64), np.zeros(len(attribute), np.int64)
    settled = np.zeros(len(attribute), bool)
    facts = zip(coded.settled_question.tolist(), coded.settled_answer.tolist(), coded.settled_rejected, strict=True)
    for question, answer, rejected in facts:
        if attribute[question] < 0:
            continue
        items, everything = int(answer_set[answer]), (1 << len(groups[question])) - 1
        if rejected:
            excluded[question] |= items
            continue
        settled[question] = True
        certain[question] |= items
        if shapes[attribute[question]].settled == "whole":
            excluded[question] |= everything & ~items
    clash = np.flatnonzero(certain & excluded)
    if len(clash):
        row = coded.questions.iloc[clash[0]]
        raise ModelError(
            f"settled: entity {row['entity']!r}, attribute {row['attribute']!r}: an item is settled to hold and not to "
            "hold; AnyOf(settled='whole') takes a settled list for the whole truth, 'items' for a part of it"
        )
    return certain, excluded, settled
