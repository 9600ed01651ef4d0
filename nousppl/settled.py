"""What is settled of questions: which answer is true, or ruled out; where truths change, at which time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nousppl import periods, sets
from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.ragged import Floats, Ints

if TYPE_CHECKING:
    from nousppl.cells import Cells
    from nousppl.encode import Encoded


@dataclass(frozen=True)
class Settled:
    """Settled truths and rejections, by question."""

    question: Ints
    cell: Ints
    """Place among the cells of the question."""
    time: Floats
    """Minus infinity for a rejection without a time."""
    rejected: NDArray[np.bool_]

    def of(self, questions: Ints) -> Settled:
        """Those of some questions (sorted), which are counted from 0."""
        place = np.searchsorted(questions, self.question)
        kept = np.isin(self.question, questions)
        return Settled(place[kept], self.cell[kept], self.time[kept], self.rejected[kept])


def settled_in_time(coded: Coded, cells: Cells) -> Settled:
    """The settled facts of an evidence.

    Args:
        coded: the evidence.
        cells: answers of all questions; truths of other shapes than one of several do not change.

    Raises:
        ModelError: a claim or a settled truth has no time.
    """
    shaped = cells.shaped
    undated = np.isnan(coded.claim_time) & ~shaped[coded.claim_question]
    if undated.any():
        row = coded.questions.iloc[coded.claim_question[undated][0]]
        raise ModelError(
            f"claims: column 'time' is missing in {int(undated.sum())} of {len(undated)} claims, first of entity "
            f"{row['entity']!r}, attribute {row['attribute']!r}; where truths change (change=...) a claim is about the "
            "truth at its time, so each needs one"
        )
    question, rejected = coded.settled_question.astype(np.int64), coded.settled_rejected
    cell = cells.of_answer[coded.settled_answer]
    bad = np.isnan(coded.settled_time) & ~rejected & ~shaped[question]
    if bad.any():
        row = coded.questions.iloc[question[bad][0]]
        raise ModelError(
            f"settled: column 'time' is missing in {int(bad.sum())} of {len(bad)} rows, first of entity "
            f"{row['entity']!r}, attribute {row['attribute']!r}; where truths change (change=...) a settled truth "
            "holds at its time, so each needs one"
        )
    time = np.where(np.isnan(coded.settled_time), -np.inf, coded.settled_time)
    kept, place = ~shaped[question], cell - cells.offset[question]
    return Settled(question[kept], place[kept], time[kept], rejected[kept])


def settled_cells(coded: Coded, cells: Cells, changes: bool) -> tuple[Ints, Ints]:
    """Cell of each question's settled truth (-1 for none, the last one where truths change), and the rejected cells."""
    cell = cells.of_answer[coded.settled_answer]
    one_of = ~cells.shaped[coded.settled_question]
    truth = ~coded.settled_rejected & one_of
    out = np.full(len(coded.questions), -1, np.int64)
    if cells.items is not None:
        certain = cells.items.cell_of(np.arange(len(out)), cells.items.certain)
        out = np.where(cells.items.settled, cells.offset[:-1] + certain, -1)
    if cells.numbers is not None:
        out = np.where(np.isfinite(cells.numbers.truth), cells.offset[:-1], out)
    if cells.periods is not None:
        out = np.where(cells.periods.settled, cells.offset[:-1], out)
    question = coded.settled_question
    out[question[truth]] = cell[truth]
    clash = truth & (out[question] != cell)
    if clash.any() and not changes:
        i = int(np.flatnonzero(clash)[0])
        row = coded.questions.iloc[question[i]]
        raise ModelError(
            f"settled: entity {row['entity']!r}, attribute {row['attribute']!r} is settled as {cells.value[cell[i]]!r} "
            f"and as {cells.value[out[question[i]]]!r} at different times; a truth that changes needs "
            "change=..., such as '1 + (1|attribute)'"
        )
    rejected = np.unique(cell[coded.settled_rejected & one_of])
    _refuse_all_rejected(coded, cells, out, rejected, changes)
    return out, rejected


def _refuse_all_rejected(coded: Coded, cells: Cells, settled: Ints, rejected: Ints, changes: bool) -> None:
    question = np.searchsorted(cells.offset, rejected, side="right") - 1
    gone = np.bincount(question, minlength=len(coded.questions))
    full = np.flatnonzero((gone > 0) & (gone == np.diff(cells.offset)))
    if len(full):
        row = coded.questions.iloc[full[0]]
        raise ModelError(
            f"settled: all {gone[full[0]]} answers of entity {row['entity']!r}, attribute {row['attribute']!r} are "
            "rejected; in a closed list one must remain"
        )
    both = rejected[np.isin(rejected, settled)]
    if len(both) and not changes:
        row = coded.questions.iloc[int(np.searchsorted(cells.offset, both[0], side="right") - 1)]
        raise ModelError(
            f"settled: {cells.value[both[0]]!r} is both the settled truth and rejected for entity {row['entity']!r}, "
            f"attribute {row['attribute']!r}"
        )


def log_possible(encoded: Encoded, questions: Ints, index: Ints, question: Ints, at: Floats) -> Floats:
    """(cells,) 0, or minus infinity for an answer that is rejected, or where another one is settled; where truths
    change, what was rejected by the time asked about."""
    possible = np.zeros(len(index))
    items = encoded.cells.items
    if items is not None:
        mine = (items.attribute >= 0)[questions][question]
        of_cell = questions[question[mine]]
        possible[mine] = sets.possible(items, of_cell, index[mine] - encoded.cells.offset[of_cell])
    states = encoded.cells.periods
    if states is not None:
        mine = (states.attribute >= 0)[questions][question]
        possible[mine] = periods.possible(states, periods.cells_of(states, questions, at))
    if encoded.settled is not None:
        known = encoded.settled.of(questions)
        gone = known.rejected & (known.time <= at[known.question])
        first = np.searchsorted(question, known.question[gone])
        possible[first + known.cell[gone]] = -np.inf
        return possible
    settled = np.where(encoded.cells.shaped, -1, encoded.settled_cell)[questions][question]
    possible[(settled >= 0) & (settled != index)] = -np.inf
    possible[np.isin(index, encoded.rejected_cells)] = -np.inf
    return possible
