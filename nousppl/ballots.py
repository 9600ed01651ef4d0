"""What forecasters without a model of their own share: claims as ballots over cells, and beliefs from cell scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.beliefs import Beliefs
from nousppl.cells import Cells, build_cells
from nousppl.domains import Domains
from nousppl.evidence import Evidence
from nousppl.parts import find_parts
from nousppl.ragged import mix, uniform
from nousppl.settled import settled_cells

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ballots:
    """The claims of an evidence as N rows that name a cell, and what is settled about its Q questions and C cells.

    Claims that are known to repeat another one and the assistant's own notes say nothing new and are left out.
    """

    evidence: Evidence
    cells: Cells
    """Answers of all questions, laid out as for a :class:`nousppl.TrustModel` with the same ``answers``."""
    claim: Ints
    """(N,) claim of each row, ascending."""
    cell: Ints
    """(N,) cell that the row names."""
    weight: Floats
    """(N,) 1, or the weight of the value in a soft claim."""
    settled: Ints
    """(Q,) cell of the settled truth; -1 where nothing is settled."""
    allowed: NDArray[np.bool_]
    """(C,) false where the answer is known to be wrong."""

    @classmethod
    def of(cls, evidence: Evidence, answers: Mapping[Any, Any] | None) -> Ballots:
        """Lay out an evidence.

        Args:
            evidence: claims, and settled facts if there are any.
            answers: attribute -> number of plausible answers, or the closed list, as in :class:`nousppl.TrustModel`.

        Raises:
            ModelError: a value is outside a closed list, a domain is too small, settled facts contradict each other.
        """
        coded = evidence.coded
        cells = build_cells(find_parts(evidence, {}, {}), Domains.of(answers, evidence))
        settled, rejected = settled_cells(coded, cells, False)
        allowed = np.ones(len(cells.value), bool)
        allowed[rejected] = False
        counts = (coded.claim_origin < 0) & ~coded.claim_derived
        row = np.flatnonzero(counts[coded.row_claim])
        cell = cells.of_answer[coded.row_answer[row]]
        return cls(
            evidence, cells, coded.row_claim[row].astype(np.int64), cell, coded.row_weight[row], settled, allowed
        )

    @cached_property
    def question(self) -> Ints:
        """(C,) question of each cell."""
        return np.repeat(np.arange(len(self.settled)), np.diff(self.cells.offset))

    @cached_property
    def votes(self) -> Floats:
        """(C,) weight of the claims that name each cell."""
        return np.bincount(self.cell, weights=self.weight, minlength=len(self.question)).astype(np.float64)

    def chance(self, seed: int) -> Floats:
        """(C,) numbers between 0 and 1 that break ties: a hash of seed, entity, attribute and answer, of no row."""
        questions = self.evidence.coded.questions
        parts = [_hashes(questions[column])[self.question] for column in ("entity", "attribute")]
        return uniform(mix(seed, *parts, self._answer_hash))

    def luck(self, seed: int) -> Floats:
        """(N,) numbers between 0 and 1 that break ties between rows: a hash of seed, claim and answer."""
        return uniform(mix(seed, self.evidence.coded.claim_key[self.claim], self._answer_hash[self.cell]))

    @cached_property
    def _answer_hash(self) -> NDArray[np.uint64]:
        return _hashes(pd.Series(self.cells.value, dtype=object))

    def beliefs(self, score: Floats, method: str, learned: bool, **meta: Any) -> Beliefs:
        """Beliefs from (C,) scores that are proportional to probabilities within each question.

        Rejected answers get nothing and a settled truth all, as in :meth:`nousppl.Trust.posteriors`.

        Args:
            score: not negative; where the scores of a question are all 0, its answers are equally probable.
            method: name of the method, kept in ``meta``.
            learned: whether settled facts were used to find the scores, which makes their questions ``seen``.
            meta: more to be kept.
        """
        size = len(self.settled)
        value = np.where(self.allowed, score, 0.0)
        total = np.bincount(self.question, weights=value, minlength=size)
        even = self.allowed / np.bincount(self.question, weights=self.allowed, minlength=size)[self.question]
        known = total[self.question] > 0
        value = np.where(known, value / np.where(known, total[self.question], 1.0), even)
        fixed = self.settled[self.question]
        value = np.where(fixed >= 0, fixed == np.arange(len(value)), value)
        coded = self.evidence.coded
        return Beliefs(
            questions=coded.questions.reset_index(drop=True),
            cell_question=self.question,
            cell_answer=self.cells.value,
            cell_other=self.cells.other,
            cell_count=self.cells.count,
            probability=value,
            sd=np.zeros(len(value)),
            support=self.votes,
            claims=np.diff(coded.claim_start),
            seen=(self.settled >= 0) & learned,
            meta={"method": method, **meta},
        )


def _hashes(values: pd.Series) -> NDArray[np.uint64]:
    """(n,) hash of numbers, texts or booleans as text."""
    codes, names = pd.factorize(values.astype(object), use_na_sentinel=False)
    return pd.util.hash_array(np.array([str(name) for name in names], object), categorize=False)[codes]
