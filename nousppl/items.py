"""Items of set-valued questions (``AnyOf``): which there are, and which of them are named, denied and settled.

Items of a question that all its claims treat alike are exchangeable, so that only their number matters: they form a
*group*, and a cell says how many items of each group hold. Up to 12 items each is a group of its own, and a cell is a
set of items. A question with too many cells is in parts, see ``nousppl.parts``, and each part is a question here.
"""

from __future__ import annotations

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
from nousppl.parts import DENIES, Groups, Parts
from nousppl.ragged import Ints

MOST_VALUES = 60
"""Items beyond which the number of lists that a repetition may come out as, 3 for each, counts as no larger."""


@dataclass(frozen=True)
class Items:
    """Items of the set-valued questions of an evidence; what is said of groups is a whole number with their bits."""

    attributes: tuple[Any, ...]
    """Set-valued attributes, the axis of prevalences."""
    groups: Mapping[int, Groups]
    """Question -> its groups of items."""
    attribute: Ints
    """(Q,) place among `attributes`; -1 for questions of another shape."""
    sizes: Ints
    """(Q, G) number of items in each group; 0 where there are fewer groups."""
    many: Ints
    """(Q,) number of items; of a part those of the whole question."""
    named: Ints
    """(J,) groups that each claim names."""
    denied: Ints
    """(J,) groups that it denies."""
    variant: Ints
    """(J,) tells lists apart that name the same groups: what they deny, and of a part the lists as a whole."""
    absent: Ints
    """(Q,) how many items of the attribute are none of the question's; counted in the first part."""
    certain: Ints
    """(Q,) groups that are settled to hold."""
    excluded: Ints
    """(Q,) groups that are settled not to hold, or rejected."""
    settled: NDArray[np.bool_]
    """(Q,) whether it is settled which items hold, or that some do."""
    answer_set: Ints
    """(answers,) the groups that each of ``coded.answers`` lists."""

    @property
    def values(self) -> NDArray[np.float64]:
        """(Q,) number of lists that a repetition that goes wrong may come out as: any items named, any others
        denied."""
        return np.asarray(np.maximum(3.0 ** np.minimum(self.many, MOST_VALUES), 2.0))

    def names(self, question: int) -> tuple[str, ...]:
        """Items of a question, group by group."""
        return tuple(name for group in self.groups[question] for name in group)

    @cached_property
    def strides(self) -> Ints:
        """(Q, G) how many cells on the next number of items of a group is."""
        return np.cumprod(np.hstack([np.ones((len(self.sizes), 1), np.int64), self.sizes + 1]), axis=1)[:, :-1]

    def cells(self, question: int) -> int:
        """Number of cells of a question."""
        return int(np.prod(self.sizes[question] + 1))

    def cell_of(self, question: Ints, chosen: Ints) -> Ints:
        """Place of the cell in which exactly some groups hold, all their items, among those of its question."""
        bits = chosen[:, None] >> np.arange(self.sizes.shape[1]) & 1
        return (bits * self.sizes[question] * self.strides[question]).sum(1)


def universe(coded: Coded, attribute: Any, shape: AnyOf, given: Iterable[Any] | None) -> tuple[str, ...]:
    """All items of an attribute: the closed list, or those that the evidence lists."""
    if given is not None:
        return tuple(sorted(str(item) for item in given))
    place = coded.attributes.get_loc(attribute) if attribute in coded.attributes else -1
    mine = coded.question_attribute[coded.answers["question"].to_numpy()] == place
    return tuple(sorted({item for value in set(coded.answer_value[mine]) for item in shape.items(value)}))


def find_items(parts: Parts, shapes: Mapping[Any, AnyOf], size: Mapping[Any, int]) -> Items:
    """Items of all set-valued questions, and of their parts.

    Args:
        parts: the evidence.
        shapes: set-valued attribute -> shape.
        size: attribute -> number of its items.

    Raises:
        ModelError: an item named and denied by one claim, or settled and rejected; a soft claim.
    """
    coded, groups = parts.coded, parts.groups
    questions, claims = len(coded.questions), len(coded.claim_question)
    attribute = pd.Index(list(shapes), dtype=object).get_indexer(coded.questions["attribute"].astype(object))
    bit = {q: {item: 1 << i for i, group in enumerate(of_q) for item in group} for q, of_q in groups.items()}

    def as_bits(question: int, listed: tuple[str, ...]) -> int:
        # A part has not all of the items.
        return sum({bit[question].get(item, 0) for item in listed})

    answer_set = np.zeros(len(coded.answers), np.int64)
    of_answer = coded.answers["question"].to_numpy()
    for answer, listed in parts.named.items():
        answer_set[answer] = as_bits(int(of_answer[answer]), listed)
    named, denied = np.zeros(claims, np.int64), np.zeros(claims, np.int64)
    of_set = np.flatnonzero(attribute[coded.claim_question] >= 0)
    _refuse_soft(coded, of_set[of_set < parts.claims])
    said = coded.row_answer[coded.row_start[:-1]].astype(np.int64)
    named[of_set] = answer_set[said[of_set]]
    for claim, listed in parts.denied.items():
        denied[claim] = as_bits(int(coded.claim_question[claim]), listed)
    _refuse_both(coded, named, denied)
    most = max((len(of_question) for of_question in groups.values()), default=0)
    sizes, absent = np.zeros((questions, most), np.int64), np.zeros(questions, np.int64)
    for question, of_question in groups.items():
        sizes[question, : len(of_question)] = [len(group) for group in of_question]
    many = np.bincount(parts.whole, sizes.sum(1), minlength=questions).astype(np.int64)[parts.whole]
    for question in groups:
        if question < parts.questions:
            absent[question] = max(int(size[list(shapes)[attribute[question]]]) - many[question], 0)
    certain, excluded, settled = _settled(coded, list(shapes.values()), attribute, groups, answer_set)
    return Items(
        attributes=tuple(shapes),
        groups=groups,
        attribute=attribute,
        sizes=sizes,
        many=many,
        named=named,
        denied=denied,
        variant=_variants(parts, of_set, said, denied),
        absent=absent,
        certain=certain,
        excluded=excluded,
        settled=settled,
        answer_set=answer_set,
    )


def _variants(parts: Parts, of_set: Ints, said: Ints, denied: Ints) -> Ints:
    """See `Items.variant`."""
    if not parts.split:
        return denied
    out = denied.copy()
    several = np.isin(parts.whole, parts.whole[parts.questions :])
    codes: dict[Any, int] = {}
    for claim in of_set[several[parts.coded.claim_question[of_set]]].tolist():
        lists = parts.named[int(said[claim])], parts.denied.get(claim, ())
        out[claim] = codes.setdefault(lists, len(codes))
    return out


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
