"""The record behind an `Evidence`: arrays coded against lists of names that may be longer than what is in use.

So taking a part of it is cheap, and nothing is checked twice.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._lineage import survivors
from nousppl._values import Vocabulary, join
from nousppl.coded import Coded

Positions = NDArray[np.int64]


class _Columns:
    """Columns of one length, taken together."""

    def take(self, positions: Positions) -> Self:
        """The rows at `positions`, in that order."""
        columns = {column.name: getattr(self, column.name)[positions] for column in fields(self)}  # type: ignore[arg-type]
        return replace(self, **columns)  # type: ignore[type-var]


@dataclass(frozen=True)
class Claims(_Columns):
    """One entry a claim (J), sorted by question, time (missing last) and key."""

    question: NDArray[np.int64]
    time: NDArray[np.float64]
    known_at: NDArray[np.float64]
    source: NDArray[np.int64]
    ceiling: NDArray[np.float64]
    derived: NDArray[np.bool_]
    origin: NDArray[np.int64]
    key: NDArray[np.uint64]
    id: pd.Index


@dataclass(frozen=True)
class Rows(_Columns):
    """One entry a claim and value it names (N), sorted by claim and value."""

    claim: NDArray[np.int64]
    value: NDArray[np.int64]
    weight: NDArray[np.float64]
    position: NDArray[np.int64]
    """Row of the sorted table of claims."""


@dataclass(frozen=True)
class Facts(_Columns):
    """One entry a settled fact (F), sorted by question and time."""

    question: NDArray[np.int64]
    value: NDArray[np.int64]
    time: NDArray[np.float64]
    known_at: NDArray[np.float64]
    rejected: NDArray[np.bool_]
    position: NDArray[np.int64]
    """Row of the sorted table of settled facts."""

    @classmethod
    def none(cls) -> Self:
        """No facts."""
        whole, real = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(whole, whole, real, real, np.empty(0, dtype=bool), whole)


@dataclass(frozen=True)
class Questions:
    """Pairs of entity and attribute, sorted."""

    frame: pd.DataFrame
    """Columns entity, attribute."""
    entity: NDArray[np.int64]
    attribute: NDArray[np.int64]
    entities: pd.Index
    attributes: pd.Index


@dataclass(frozen=True)
class Record:
    """Claims, their rows and settled facts, with codes into `questions`, `sources` and `vocabulary`."""

    questions: Questions
    sources: pd.Index
    vocabulary: Vocabulary
    claims: Claims
    rows: Rows
    facts: Facts
    claim_times: str | None
    """Kind of the times of the claims; None where there are none."""
    fact_times: str | None = None
    """Kind of the times of the settled facts."""

    @property
    def time_kind(self) -> str | None:
        """Kind of all times; None where there are none."""
        return self.claim_times or self.fact_times

    @property
    def first_rows(self) -> Positions:
        """(J,) first row of each claim."""
        return np.searchsorted(self.rows.claim, np.arange(len(self.claims.question)))

    def take(self, claims: Positions, facts: Positions) -> Record:
        """The record with only these claims and facts (sorted positions)."""
        kept = self.claims.take(claims)
        if (kept.origin >= 0).any():
            kept = replace(kept, origin=survivors(self.claims.origin, claims))
        start, count = _spans(self.rows.claim, claims)
        rows = replace(self.rows.take(_ranges(start, count)), claim=np.repeat(np.arange(len(claims)), count))
        return replace(self, claims=kept, rows=rows, facts=self.facts.take(facts))

    def of_questions(self, questions: Positions) -> Record:
        """The record with only these questions (sorted positions in `questions`)."""
        return self.take(
            _ranges(*_spans(self.claims.question, questions)), _ranges(*_spans(self.facts.question, questions))
        )

    def code(self) -> Coded:
        """The arrays that models are compiled from, on the names in use only."""
        asked, question = _in_use(len(self.questions.entity), self.claims.question, self.facts.question)
        heard, source = _in_use(len(self.sources), self.claims.source)
        named, value = _in_use(len(self.vocabulary), self.rows.value, self.facts.value)
        rank = self.vocabulary.ranks(named)
        row_pair = question[self.claims.question[self.rows.claim]] * len(named) + rank[value[self.rows.value]]
        fact_pair = question[self.facts.question] * len(named) + rank[value[self.facts.value]]
        pairs = np.sort(pd.unique(np.concatenate([row_pair, fact_pair])))
        values = self.vocabulary.values[named[np.argsort(rank)]]
        of, attribute = _in_use(len(self.questions.attributes), self.questions.attribute[asked])
        of_question, place = np.divmod(pairs, max(len(named), 1))
        answers = pd.DataFrame({"question": of_question, "value": pd.Series(values[place], dtype=object)})
        return Coded(
            questions=self.questions.frame.take(asked).reset_index(drop=True),
            attributes=self.questions.attributes[of],
            question_attribute=_int32(attribute[self.questions.attribute[asked]]),
            sources=self.sources[heard],
            answers=answers,
            claim_question=_int32(question[self.claims.question]),
            claim_time=self.claims.time,
            claim_known_at=self.claims.known_at,
            claim_source=_int32(source[self.claims.source]),
            claim_ceiling=self.claims.ceiling,
            claim_derived=self.claims.derived,
            claim_origin=self.claims.origin,
            claim_key=self.claims.key,
            claim_index=self.claims.id,
            row_claim=_int32(self.rows.claim),
            row_answer=_int32(np.searchsorted(pairs, row_pair)),
            row_weight=self.rows.weight,
            settled_question=_int32(question[self.facts.question]),
            settled_answer=_int32(np.searchsorted(pairs, fact_pair)),
            settled_time=self.facts.time,
            settled_known_at=self.facts.known_at,
            settled_rejected=self.facts.rejected,
        )


def pair_up(
    entities: pd.Index, attributes: pd.Index, *pairs: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[Questions, list[NDArray[np.int64]]]:
    """Questions of all `pairs` of (entity codes, attribute codes), and the question code of each pair."""
    width = max(len(attributes), 1)
    joint = [entity * width + attribute for entity, attribute in pairs]
    found = np.sort(pd.unique(np.concatenate(joint)))
    entity, attribute = found // width, found % width
    frame = pd.DataFrame({"entity": entities[entity], "attribute": attributes[attribute]})
    return Questions(frame, entity, attribute, entities, attributes), [np.searchsorted(found, one) for one in joint]


def union(mine: pd.Index, theirs: pd.Index) -> tuple[pd.Index, NDArray[np.int64], NDArray[np.int64]]:
    """Both name lists in one, sorted, and the place of each old name in it."""
    both = mine.union(theirs, sort=True) if len(theirs) else mine
    return both, both.get_indexer(mine), both.get_indexer(theirs)


def join_vocabularies(record: Record, theirs: Vocabulary) -> tuple[Record, NDArray[np.int64]]:
    """The record with a vocabulary that holds `theirs` as well, and the new codes of `theirs`."""
    vocabulary, codes = join(record.vocabulary, theirs)
    return replace(record, vocabulary=vocabulary), codes


def _in_use(size: int, *codes: NDArray[np.int64]) -> tuple[Positions, NDArray[np.int64]]:
    """Sorted codes that occur, and a table (size,) from old code to new."""
    used = np.sort(pd.unique(np.concatenate(codes)))
    table = np.empty(size, dtype=np.int64)
    table[used] = np.arange(len(used))
    return used, table


def _spans(sorted_codes: NDArray[np.int64], wanted: Positions) -> tuple[Positions, Positions]:
    """Where the entries of each of the `wanted` codes start, and how many they are."""
    start = np.searchsorted(sorted_codes, wanted, side="left")
    return start, np.searchsorted(sorted_codes, wanted, side="right") - start


def _ranges(start: Positions, count: Positions) -> Positions:
    """start[0], start[0] + 1, ... (count[0] of them), start[1], ..."""
    before = np.cumsum(count) - count
    return np.repeat(start - before, count) + np.arange(count.sum())


def _int32(codes: NDArray[Any]) -> NDArray[np.int32]:
    return codes.astype(np.int32)
