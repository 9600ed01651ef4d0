"""The most probable whole lists of questions that are in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem
from nousppl.encode import Encoded
from nousppl.models.shapes import AnyOf
from nousppl.ragged import Floats, Ints, offsets, ranges
from nousppl.sets import words_of_cells

MOST_LISTS = 64
"""Lists of a question that are told apart; the others are one answer, "other"."""


class WholeLists(NamedTuple):
    """The most probable lists of a question, most probable first, and then all others."""

    question: int
    mean: Floats
    """(lists + 1,) probability."""
    sd: Floats
    """(lists + 1,) its standard deviation over draws."""
    support: Floats
    """(lists + 1,) independent witnesses: of the part that shows the fewest; none of the others."""
    places: Ints
    """(lists, parts) cell of each part, among its cells."""

    def text(self, encoded: Encoded, shape: AnyOf) -> list[str]:
        """(lists,) each as text."""
        items = encoded.cells.items
        assert items is not None
        parts = encoded.parts.of(np.array([self.question]))
        words = [words_of_cells(items, int(part)) for part in parts]
        out = []
        for row in self.places.tolist():
            chosen = [of_part[place] for of_part, place in zip(words, row, strict=True)]
            held = sorted(name for whole, _ in chosen for name in whole)
            out.append(shape.text((*held, *(some for _, part in chosen for some in part))))
        return out

    def stand_for(self, encoded: Encoded) -> Floats:
        """(lists + 1,) number of lists that each stands for."""
        cells, parts = encoded.cells, encoded.parts.of(np.array([self.question]))
        assert cells.items is not None
        each = cells.count[cells.offset[:-1][parts] + self.places].prod(1)
        return np.append(each, max(2.0 ** int(cells.items.many[self.question]) - each.sum(), 1.0))


def whole_lists(encoded: Encoded, problem: Problem, draws: Floats, support: Floats) -> list[WholeLists]:
    """Those of the questions of a problem that are in parts.

    Args:
        encoded: the evidence.
        problem: questions with all their parts.
        draws: (draws, cells) probability of each cell under each draw.
        support: (cells,) fresh witnesses behind each.
    """
    whole = encoded.parts.whole[problem.questions]
    start = offsets(np.diff(encoded.cells.offset)[problem.questions])
    out = []
    for question in np.unique(whole[problem.questions >= encoded.parts.questions]).tolist():
        parts = np.flatnonzero(whole == question)
        found = [draws[:, start[p] : start[p + 1]] for p in parts]
        places, chance = most_probable(found)
        chance = np.hstack([chance, np.maximum(1.0 - chance.sum(1, keepdims=True), 0.0)])
        behind = support[start[parts] + places].min(1)
        out.append(WholeLists(question, chance.mean(0), chance.std(0), np.append(behind, 0.0), places))
    return out


def most_probable(parts: Sequence[Floats]) -> tuple[Ints, Floats]:
    """Combinations of cells of independent parts, the most probable ones of each number of parts kept.

    Args:
        parts: of each (draws, cells).

    Returns:
        (lists, parts) cells, and (draws, lists) their probabilities, the most probable first.
    """
    places, chance = np.zeros((1, 0), np.int64), np.ones((len(parts[0]), 1))
    for part in parts:
        mean = chance.T @ part / len(part)
        best = np.argsort(-mean, axis=None, kind="stable")[:MOST_LISTS]
        before, cell = np.unravel_index(best, mean.shape)
        places, chance = np.hstack([places[before], cell[:, None]]), chance[:, before] * part[:, cell]
    return places, chance


def in_order(questions: Ints, sizes: Ints, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Columns that lie question by question, in the order of the questions.

    Args:
        questions: as they lie.
        sizes: length of each.
        columns: (sum of the sizes,) each.
    """
    order = np.argsort(questions, kind="stable")
    place = ranges(offsets(sizes)[:-1][order], sizes[order])
    return [column[place] for column in columns]
