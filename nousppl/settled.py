"""What is settled of questions whose truth changes: which answer was true, or ruled out, at which time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.ragged import Floats, Ints


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


def settled_in_time(coded: Coded, cell: Ints, offset: Ints) -> Settled:
    """The settled facts of an evidence.

    Args:
        coded: the evidence.
        cell: (settled facts,) cell of each among those of all questions.
        offset: (questions + 1,) first cell of each question.

    Raises:
        ModelError: a claim or a settled truth has no time.
    """
    undated = np.isnan(coded.claim_time)
    if undated.any():
        row = coded.questions.iloc[coded.claim_question[undated][0]]
        raise ModelError(
            f"claims: column 'time' is missing in {int(undated.sum())} of {len(undated)} claims, first of entity "
            f"{row['entity']!r}, attribute {row['attribute']!r}; where truths change (change=...) a claim is about the "
            "truth at its time, so each needs one"
        )
    question, rejected = coded.settled_question.astype(np.int64), coded.settled_rejected
    bad = np.isnan(coded.settled_time) & ~rejected
    if bad.any():
        row = coded.questions.iloc[question[bad][0]]
        raise ModelError(
            f"settled: column 'time' is missing in {int(bad.sum())} of {len(bad)} rows, first of entity "
            f"{row['entity']!r}, attribute {row['attribute']!r}; where truths change (change=...) a settled truth "
            "holds at its time, so each needs one"
        )
    time = np.where(np.isnan(coded.settled_time), -np.inf, coded.settled_time)
    return Settled(question, cell - offset[question], time, rejected)
