"""Answers of all questions laid end to end: what a question may have as its truth, by shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.domains import Domains
from nousppl.errors import ModelError
from nousppl.items import Items, find_items
from nousppl.models.shapes import AnyOf
from nousppl.numbers import Numbers, find_numbers
from nousppl.parts import Parts
from nousppl.periods import Periods
from nousppl.ragged import offsets
from nousppl.sets import as_text, ways
from nousppl.statements import as_states

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


NUMBER = "number"
"""Stands for the answer of a question about a number, which has one cell whatever is claimed."""


@dataclass(frozen=True)
class Cells:
    """Answers of all questions end to end: the named ones in sorted order and then "other", or the closed list."""

    offset: Ints
    """(Q + 1,)"""
    value: NDArray[np.object_]
    other: NDArray[np.bool_]
    count: Floats
    """Number of answers that the cell stands for."""
    klass: Ints
    """Index into `Domains.classes`; -1 where the domain is open."""
    size: Floats
    """(Q,) K."""
    closed: NDArray[np.bool_]
    """(Q,)"""
    of_answer: Ints
    """(named answers,) cell of each row of ``coded.answers``."""
    items: Items | None = None
    """Of set-valued questions; None where there are none."""
    numbers: Numbers | None = None
    """Of questions about numbers, which have one cell each; None where there are none."""
    periods: Periods | None = None
    """Of questions about what is true for a while; None where there are none."""

    @property
    def shaped(self) -> NDArray[np.bool_]:
        """(Q,) whether a question has another shape than one of several."""
        out = np.zeros(len(self.size), bool)
        for shape in (self.items, self.periods, self.numbers):
            if shape is not None:
                out |= shape.attribute >= 0
        return out

    @property
    def sets(self) -> NDArray[np.bool_]:
        """(Q,) whether a question is set-valued."""
        return np.zeros(len(self.size), bool) if self.items is None else self.items.attribute >= 0

    @property
    def measured(self) -> NDArray[np.bool_]:
        """(Q,) whether a question is about a number."""
        return np.zeros(len(self.size), bool) if self.numbers is None else self.numbers.attribute >= 0


def build_cells(parts: Parts, domains: Domains, periods: Periods | None = None) -> Cells:
    """Lay out the answers of all questions.

    Args:
        parts: the evidence.
        domains: of the model.
        periods: of what is true for a while.

    Raises:
        ModelError: a value outside a closed list, or K smaller than the number of named answers.
    """
    coded = parts.coded
    question = coded.answers["question"].to_numpy(np.int64)
    values = coded.answers["value"].to_numpy(object)
    attributes = list(coded.attributes)
    lists, sets = domains.lists, domains.of_shape(AnyOf)
    items = find_items(parts, sets, {**domains.size, **_counts(domains.closed)})
    numbers = find_numbers(coded, domains.shapes, domains.scales)
    of_sets = items.attribute >= 0
    lasting = np.zeros(len(of_sets), bool) if periods is None else periods.attribute >= 0
    measured = np.zeros(len(of_sets), bool) if numbers is None else numbers.attribute >= 0
    is_closed = np.array([a in lists for a in attributes], bool)
    lengths = [len(lists[a]) if a in lists else 0 for a in attributes]
    sizes = np.array([lengths[i] or domains.size.get(a, 2) for i, a in enumerate(attributes)], float)
    attribute = coded.question_attribute
    closed = is_closed[attribute] | of_sets | lasting | measured
    named = np.bincount(question, minlength=len(coded.questions))
    size = np.where(closed, sizes[attribute], np.maximum(sizes[attribute], named + 1.0))
    _refuse_small_domains(coded, domains, named, attribute)
    count = np.where(closed, np.array(lengths, np.int64)[attribute], named + 1)
    for one in items.groups:
        count[one] = items.cells(one)
    size = np.where(of_sets, items.values, size)
    if periods is not None:
        count = np.where(lasting, periods.sizes(), count)
        # It is not so, it is so, it is so until one of the ends.
        size = np.where(lasting, periods.ends + 2.0, size)
    if numbers is not None:
        count[measured], size[measured] = 1, numbers.size(numbers.attribute[measured])
    offset = offsets(count)
    rank = np.arange(len(question)) - offsets(named)[question]
    place = np.where(of_sets[question], items.cell_of(question, items.answer_set), rank)
    place[lasting[question]] = as_states(values[lasting[question]])
    of_answer = offset[question] + place
    of_answer[measured[question]] = offset[question[measured[question]]]
    total = int(offset[-1])
    value, klass = np.empty(total, object), np.full(total, -1, np.int64)
    for i, a in enumerate(attributes):
        if a in lists:
            first_class = [c[0] for c in domains.classes].index(a)
            _place_closed(coded, lists[a], i, offset, question, values, of_answer, value, klass, first_class)
    is_open_answer = ~closed[question]
    _refuse_other(coded, question, values, is_open_answer)
    value[of_answer[is_open_answer]] = values[is_open_answer]
    for one in items.groups:
        shape = sets[items.attributes[items.attribute[one]]]
        value[offset[one] : offset[one + 1]] = as_text(items, shape, one)
    if periods is not None:
        value[np.repeat(lasting, count)] = periods.labels()
    value[offset[:-1][measured]] = NUMBER
    other = np.zeros(total, bool)
    last = offset[1:][~closed] - 1
    other[last] = True
    value[last] = "other"
    stands_for = np.ones(total)
    stands_for[last] = (size - named)[~closed]
    for one in items.groups:
        stands_for[offset[one] : offset[one + 1]] = ways(items, one)
    found = items if sets else None
    return Cells(offset, value, other, stands_for, klass, size, closed, of_answer, found, numbers, periods)


def _counts(closed: Mapping[Any, tuple[Any, ...]]) -> dict[Any, int]:
    return {attribute: len(values) for attribute, values in closed.items()}


def _place_closed(
    coded: Coded,
    answers: tuple[Any, ...],
    attribute: int,
    offset: Ints,
    question: Ints,
    values: NDArray[np.object_],
    of_answer: Ints,
    value: NDArray[np.object_],
    klass: Ints,
    first_class: int,
) -> None:
    """Fill in the cells of the questions of one attribute with a closed list."""
    mine = np.flatnonzero(coded.question_attribute[question] == attribute)
    place = pd.Index(answers, dtype=object).get_indexer(pd.Index(values[mine], dtype=object))
    if (place < 0).any():
        bad = mine[np.flatnonzero(place < 0)]
        row = coded.questions.iloc[question[bad[0]]]
        raise ModelError(
            f"answers: {len(bad)} answers of attribute {coded.attributes[attribute]!r} are outside its closed list, "
            f"first {values[bad[0]]!r} (entity {row['entity']!r}); allowed are {list(answers)}"
        )
    of_answer[mine] = offset[question[mine]] + place
    starts = offset[:-1][coded.question_attribute == attribute]
    where = starts[:, None] + np.arange(len(answers))
    value[where] = np.array([*answers, None], object)[:-1]
    klass[where] = first_class + np.arange(len(answers))


def _refuse_other(coded: Coded, question: Ints, values: NDArray[np.object_], is_open: NDArray[np.bool_]) -> None:
    """ "other" is the name of the answers that nobody named."""
    bad = np.flatnonzero(is_open & (values == "other"))
    if len(bad):
        row = coded.questions.iloc[question[bad[0]]]
        raise ModelError(
            f"claims: {len(bad)} questions name the answer 'other', first entity {row['entity']!r}, attribute "
            f"{row['attribute']!r}; in an open domain that is the name of all answers that nobody named: rename it, or "
            "give the closed list of answers"
        )


def _refuse_small_domains(coded: Coded, domains: Domains, named: Ints, attribute: NDArray[np.int32]) -> None:
    for i, a in enumerate(coded.attributes):
        if a in domains.declared and a not in domains.shapes:
            over = np.flatnonzero((attribute == i) & (named > domains.size[a]))
            if len(over):
                row = coded.questions.iloc[over[0]]
                raise ModelError(
                    f"answers[{a!r}] = {domains.size[a]}: {len(over)} questions name more answers, first entity "
                    f"{row['entity']!r} with {named[over[0]]}; K must be at least the number of named answers"
                )
