"""Evidence as arrays: what models are compiled from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Coded:
    """Claims and settled facts of Q questions from S sources as numpy arrays.

    Nothing in it depends on the order of the input rows. Times are days since 1970-01-01 for dates (UTC where there is
    a time zone), the number itself for numbers, NaN where missing.
    """

    questions: pd.DataFrame
    """Q rows: entity, attribute; sorted."""
    attributes: pd.Index
    """Sorted."""
    question_attribute: Ints
    """(Q,) index into `attributes`."""
    sources: pd.Index
    """Sorted."""
    answers: pd.DataFrame
    """C rows, question (int) and value: the answers that claims name or deny and settled facts or rejections name,
    sorted by both."""
    claim_question: Ints
    """(J,) claims are sorted by question, time (missing last) and key."""
    claim_time: Floats
    """(J,)"""
    claim_known_at: Floats
    """(J,) when the claim became known here; its time where not given."""
    claim_source: Ints
    """(J,) index into `sources`."""
    claim_ceiling: Floats
    """(J,) upper bound of the reliability; inf where there is none."""
    claim_derived: NDArray[np.bool_]
    """(J,) true for the assistant's own notes."""
    claim_denied: Ints
    """(J,) index into `answers` of the value that the claim expressly denies; -1 for none."""
    claim_lasting: Floats
    """(J,) how far the claim is meant to last, from 0 (a moment) to 1."""
    claim_origin: NDArray[np.int64]
    """(J,) index of the claim it is known to repeat (the same top value), else -1.

    Where times are tied or missing it may be the larger index.
    """
    claim_key: NDArray[np.uint64]
    """(J,) unique hash of entity, attribute, source, values and time."""
    claim_index: pd.Index
    """(J,) the user's claim ids, or generated ones."""
    row_claim: Ints
    """(N,) nondecreasing; one row for each value that a claim names."""
    row_answer: Ints
    """(N,) index into `answers`."""
    row_weight: Floats
    """(N,) above 0; at most 1 in sum over a claim."""
    settled_question: Ints
    """(F,) nondecreasing."""
    settled_answer: Ints
    """(F,) index into `answers`."""
    settled_time: Floats
    """(F,)"""
    settled_known_at: Floats
    """(F,)"""
    settled_rejected: NDArray[np.bool_]
    """(F,) true where the answer is known to be wrong, false where it is known to be the truth."""

    @cached_property
    def claim_id(self) -> NDArray[np.object_]:
        """(J,) ids of the claims."""
        return self.claim_index.to_numpy(dtype=object)

    @cached_property
    def claim_start(self) -> NDArray[np.int64]:
        """(Q+1,) claims of question q are claim_start[q] : claim_start[q+1]."""
        return _starts(self.claim_question, len(self.questions))

    @cached_property
    def answer_start(self) -> NDArray[np.int64]:
        """(Q+1,) answers of question q are answer_start[q] : answer_start[q+1]."""
        return _starts(self.answers["question"].to_numpy(), len(self.questions))

    @cached_property
    def row_start(self) -> NDArray[np.int64]:
        """(J+1,) rows of claim j are row_start[j] : row_start[j+1]."""
        return _starts(self.row_claim, len(self.claim_question))

    @cached_property
    def settled_start(self) -> NDArray[np.int64]:
        """(Q+1,) settled facts of question q are settled_start[q] : settled_start[q+1]."""
        return _starts(self.settled_question, len(self.questions))

    @cached_property
    def settled_truths(self) -> NDArray[np.int64]:
        """Questions with a settled truth, ascending; rejections are none."""
        return np.unique(self.settled_question[~self.settled_rejected]).astype(np.int64)

    @cached_property
    def answer_value(self) -> NDArray[np.object_]:
        """(C,) the values of `answers`."""
        return self.answers["value"].to_numpy(dtype=object)


def _starts(codes: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(np.bincount(codes, minlength=size))).astype(np.int64)
