"""Answers as they are shown where they are not those that are computed with: of a state, whether it is on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.periods import Bools, Periods, cells_of
from nousppl.ragged import Floats, Ints, offsets


class Shown(NamedTuple):
    """Answers of questions as they are shown: of a state True and False in place of its cells."""

    counts: Ints
    """(Q,) answers of each question."""
    answer: NDArray[np.object_]
    other: Bools
    stands_for: Floats
    """Number of answers that each stands for."""


def shown_answers(
    periods: Periods | None, offset: Ints, value: NDArray[np.object_], rest: tuple[Bools, Floats]
) -> Shown:
    """The answers that are shown of all questions.

    Args:
        periods: states of the evidence.
        offset: (Q + 1,) cells of each question.
        value: (cells,) answers.
        rest: (cells,) whether a cell is "other", and how many answers it stands for.
    """
    count = np.diff(offset)
    if periods is None:
        return Shown(count, value, *rest)
    kept = ~np.repeat(periods.attribute >= 0, count) | (np.arange(len(value)) - np.repeat(offset[:-1], count) < 2)
    first = offset[:-1][periods.attribute >= 0]
    answer = value.copy()
    answer[first], answer[first + 1] = True, False
    return Shown(np.where(periods.attribute >= 0, 2, count), answer[kept], rest[0][kept], rest[1][kept])


def shown_sizes(periods: Periods | None, questions: Ints, sizes: Ints) -> Ints:
    """(questions,) number of answers that are shown of each, given that of its cells."""
    return sizes if periods is None else np.where(periods.attribute[questions] >= 0, 2, sizes)


def by_state(
    periods: Periods | None, questions: Ints, sizes: Ints, at: Floats, draws: Floats, support: Floats
) -> tuple[Floats, Floats]:
    """Probabilities by draw, and witnesses, of the answers that are shown, given those of the cells.

    Args:
        periods: states of the evidence.
        questions: (questions,) indices in the evidence.
        sizes: (questions,) number of cells of each.
        at: (questions,) times asked about.
        draws: (draws, cells) probability of each cell under each draw.
        support: (cells,) fresh witnesses: of states, of "it is not so" and "it is so" in the first two cells.
    """
    if periods is None or not (periods.attribute[questions] >= 0).any():
        return draws, support
    lasting = periods.attribute[questions] >= 0
    of_cell, start = np.repeat(np.arange(len(questions)), sizes), offsets(sizes)[:-1]
    first = offsets(np.where(lasting, 2, sizes))
    place = np.arange(len(of_cell)) - start[of_cell]
    mine = lasting[of_cell]
    place[mine] = np.where(cells_of(periods, questions, at).on, 0, 1)
    out = np.zeros((len(draws), int(first[-1])))
    np.add.at(out.T, first[of_cell] + place, draws.T)
    # Sums of numbers in single precision may end a hair above 1.
    out = np.minimum(out, 1.0)
    fresh = np.zeros(int(first[-1]))
    fresh[first[of_cell[~mine]] + place[~mine]] = support[~mine]
    fresh[first[:-1][lasting]], fresh[first[:-1][lasting] + 1] = support[start[lasting] + 1], support[start[lasting]]
    return out, fresh
