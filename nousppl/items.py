"""Set-valued questions (``AnyOf``) as arrays: items as bits of whole numbers, sets of items as cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.models.shapes import AnyOf
from nousppl.ragged import Floats, Ints, ranges

MOST_ITEMS = 12
"""Most items of a question whose sets are all summed over."""
DENIES = "denies"
"""Column of the claims with the items that are denied."""


@dataclass(frozen=True)
class Items:
    """Items of the set-valued questions of an evidence; a set of items is a whole number with their bits."""

    attributes: tuple[Any, ...]
    """Set-valued attributes, the axis of prevalences."""
    names: Mapping[int, tuple[str, ...]]
    """Question -> its items, sorted; that of bit i is the i-th."""
    attribute: Ints
    """(Q,) place among `attributes`; -1 for questions of another shape."""
    named: Ints
    """(J,) items that each claim names."""
    denied: Ints
    """(J,) items that it denies."""
    absent: Ints
    """(Q,) how many items of the attribute are none of the question's."""
    certain: Ints
    """(Q,) items that are settled to hold."""
    excluded: Ints
    """(Q,) items that are settled not to hold, or rejected."""
    settled: NDArray[np.bool_]
    """(Q,) whether it is settled which items hold, or that some do."""
    answer_set: Ints
    """(answers,) the set that each of ``coded.answers`` lists."""

    def sizes(self) -> dict[int, int]:
        """Question -> number of sets."""
        return {question: 1 << len(names) for question, names in self.names.items()}


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
    names = _names(coded, attribute, shapes, closed, answer_items, denied_items)
    bit = {question: {item: 1 << i for i, item in enumerate(items)} for question, items in names.items()}
    answer_set = np.zeros(len(coded.answers), np.int64)
    for answer, items in answer_items.items():
        of_item = bit[int(coded.answers["question"].iat[answer])]
        answer_set[answer] = sum(of_item[item] for item in items)
    named, denied = np.zeros(claims, np.int64), np.zeros(claims, np.int64)
    of_set = np.flatnonzero(attribute[coded.claim_question] >= 0)
    _refuse_soft(coded, of_set)
    named[of_set] = answer_set[coded.row_answer[coded.row_start[:-1][of_set]]]
    for claim, items in denied_items.items():
        denied[claim] = sum(bit[int(coded.claim_question[claim])][item] for item in items)
    _refuse_both(coded, named, denied)
    absent = np.zeros(questions, np.int64)
    for question, items in names.items():
        absent[question] = max(int(size[list(shapes)[attribute[question]]]) - len(items), 0)
    certain, excluded, settled = _settled(coded, list(shapes.values()), attribute, names, answer_set)
    return Items(tuple(shapes), names, attribute, named, denied, absent, certain, excluded, settled, answer_set)


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


def _names(
    coded: Coded,
    attribute: Ints,
    shapes: Mapping[Any, AnyOf],
    closed: Mapping[Any, tuple[Any, ...]],
    answer_items: Mapping[int, tuple[str, ...]],
    denied_items: Mapping[int, tuple[str, ...]],
) -> dict[int, tuple[str, ...]]:
    found: dict[int, set[str]] = {int(q): set() for q in np.flatnonzero(attribute >= 0)}
    of_answer = coded.answers["question"].to_numpy()
    for answer, listed in answer_items.items():
        found[int(of_answer[answer])] |= set(listed)
    for claim, listed in denied_items.items():
        found[int(coded.claim_question[claim])] |= set(listed)
    out = {}
    for question, stated in found.items():
        items, name = stated, list(shapes)[attribute[question]]
        row = coded.questions.iloc[question]
        if name in closed:
            allowed = {str(item) for item in closed[name]}
            if items - allowed:
                raise ModelError(
                    f"answers[{name!r}]: item {min(items - allowed)!r} of entity {row['entity']!r} is outside its "
                    f"closed list; allowed are {sorted(allowed)}"
                )
            items = allowed
        if len(items) > MOST_ITEMS:
            raise ModelError(
                f"entity {row['entity']!r}, attribute {name!r}: {len(items)} items; allowed are {MOST_ITEMS}"
            )
        out[question] = tuple(sorted(items))
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
    coded: Coded, shapes: list[AnyOf], attribute: Ints, names: Mapping[int, tuple[str, ...]], answer_set: Ints
) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """What is settled to hold and not to hold in each question, and whether a truth is."""
    certain, excluded = np.zeros(len(attribute), np.int64), np.zeros(len(attribute), np.int64)
    settled = np.zeros(len(attribute), bool)
    facts = zip(coded.settled_question.tolist(), coded.settled_answer.tolist(), coded.settled_rejected, strict=True)
    for question, answer, rejected in facts:
        if attribute[question] < 0:
            continue
        items, everything = int(answer_set[answer]), (1 << len(names[question])) - 1
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


def sets_as_text(shape: AnyOf, names: tuple[str, ...]) -> list[str]:
    """(2 ** items,) every set as text, in the order of the whole numbers."""
    return [
        shape.text(tuple(name for i, name in enumerate(names) if number >> i & 1)) for number in range(1 << len(names))
    ]


def entry_arrays(
    items: Items, question: Ints, claim: Ints, slot_claim: Ints, entry: Ints, slot: Ints, chosen: Ints
) -> dict[str, NDArray[Any]]:
    """Arrays of the entries of set-valued questions.

    Args:
        items: of the evidence.
        question: (any,) question of each entry.
        claim: (any,) claim of each entry, in the evidence.
        slot_claim: (any,) the same in the problem.
        entry: (any,) place among all entries.
        slot: (any,) slot of each entry.
        chosen: (any,) the set of items of the entry's cell.
    """
    named, denied = items.named[claim], items.denied[claim]
    everything = (1 << np.array([len(items.names.get(q, ())) for q in range(len(items.attribute))], np.int64)) - 1
    false = everything[question] & ~chosen
    silent = everything[question] & ~named & ~denied
    out: dict[str, Any] = {"any_entry": entry, "any_slot": slot, "any_claim": slot_claim}
    for name, among in (("true", chosen), ("false", false)):
        for kind, said in (("named", named), ("denied", denied), ("silent", silent)):
            out[f"any_{name}_{kind}"] = np.bitwise_count(among & said).astype(np.float64)
    out["any_false_silent"] += items.absent[question]
    return out


def cell_arrays(items: Items, question: Ints, cell: Ints, chosen: Ints) -> dict[str, NDArray[Any]]:
    """Arrays of the cells (sets) of set-valued questions, given their questions, places and sets."""
    holds = np.bitwise_count(chosen).astype(np.float64)
    count = np.array([len(items.names.get(q, ())) for q in range(len(items.attribute))], np.int64)
    return {
        "anycell_cell": cell,
        "anycell_attribute": items.attribute[question],
        "anycell_true": holds,
        "anycell_false": count[question] - holds,
    }


def possible(items: Items, question: Ints, chosen: Ints) -> Floats:
    """0 for the sets that agree with what is settled, else minus infinity."""
    certain, excluded = items.certain[question], items.excluded[question]
    agrees = ((chosen & certain) == certain) & ((chosen & excluded) == 0)
    return np.where(agrees, 0.0, -np.inf)


def all_sets(counts: Ints) -> Ints:
    """The sets of questions with so many cells, end to end."""
    return ranges(np.zeros(len(counts), np.int64), counts)


def law_of_lists(
    items: Items, question: int, claims: Ints, size: float, chances: tuple[Floats, Floats, float, float]
) -> tuple[Floats, Floats, Floats, tuple[Any, ...]]:
    """The law of each claim's list, item by item, for the readable program.

    Args:
        items: of the evidence.
        question: which one.
        claims: (n,) its claims, in the evidence.
        size: number of values that a repetition that goes wrong may come out as.
        chances: sensitivity and specificity (n,) of the claims; chance that an item that is not named is denied, where
            it does not hold and where it does.

    Returns:
        (n, sets, V) the law, (n, V) what each claim says, (V,) the law of a repetition that goes wrong, and the V
        values: pairs of the set named and the set denied, and None for any other.
    """
    said = list(zip(items.named[claims].tolist(), items.denied[claims].tolist(), strict=True))
    values = sorted(set(said))
    count = len(items.names[question])
    law = np.zeros((len(claims), 1 << count, len(values) + 1))
    for j, (sensitivity, specificity) in enumerate(zip(*chances[:2], strict=True)):
        for chosen in range(1 << count):
            passed_over = (specificity * (1.0 - chances[2])) ** items.absent[question]
            for v, (named, denied) in enumerate(values):
                p = passed_over
                for bit in (1 << i for i in range(count)):
                    left_out = 1.0 - sensitivity if chosen & bit else specificity
                    denial = chances[3] if chosen & bit else chances[2]
                    if named & bit:
                        p *= 1.0 - left_out
                    else:
                        p *= left_out * (denial if denied & bit else 1.0 - denial)
                law[j, chosen, v] = p
    law[:, :, -1] = np.maximum(1.0 - law.sum(-1), 0.0)
    weights = np.zeros((len(claims), len(values) + 1))
    weights[np.arange(len(claims)), [values.index(one) for one in said]] = 1.0
    random = np.r_[np.full(len(values), 1.0 / size), max(1.0 - len(values) / size, 0.0)]
    return law, weights, random, (*values, None)
