"""Evidence: claims, what is settled, and what is known of the sources, checked and in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from nousppl import _merging
from nousppl._files import read_table
from nousppl._lineage import repeats_of
from nousppl._notes import after_the_fact, find_claims, first_notes, no_question, revoked_notes
from nousppl._reading import read_claims
from nousppl._record import Facts, Record
from nousppl._record_files import read_record, write_record
from nousppl._report import Note, Report
from nousppl._settling import Settled, add_facts, one_more
from nousppl._sources import read_sources
from nousppl._times import as_time
from nousppl._values import SameValue, standing
from nousppl.coded import Coded
from nousppl.errors import EvidenceError, QuestionError
from nousppl.question import Question
from nousppl.tables import Table, open_table, shorten

__all__ = ["Coded", "Evidence"]


class Evidence:
    """Checked tables of claims, settled facts and sources. Immutable: every method gives a new `Evidence`.

    Args:
        claims: a row a claim: entity, attribute, value, source; optional time, claim (unique id), origin (id of the
            claim that it is known to repeat), ceiling (upper bound on reliability), known_at (default time), weight
            (soft claims: several rows with one claim id), derived (true: the assistant's own note), denies (a value
            that the claim expressly says is not, or no longer, the answer; not of a soft claim), lasting (0 to 1, how
            far the statement is meant to last; default 1), revoked (true: withdrawn, see `revoke`), stated_entity (see
            `merged`). Other columns are the user's own.
        settled: what turned out: entity, attribute, value; optional time, known_at, verdict ("true", or "false" for a
            rejection), stated_entity.
        sources: a row a source: source and columns of the user's own.
        same_value: a function (or mapping) from a value to the value that stands for it, e.g. "New York" for "NYC".

    A fresh claim that denies an answer is evidence against it, as strong as priors()["errors"]["log_denial"] of the
    model is (learned where claims deny something); what a repetition denies says nothing. A claim with lasting 0 is
    about a moment and says nothing of the answer; it still counts as one that others may repeat, among the wrong
    answers given before, and as a witness of its value. A claim with a given origin adds nothing, what it denies
    neither. See ``nousppl.models.denial``.

    Entities, attributes, sources and claim ids are whole numbers or text, one kind a column. Values are numbers, text
    or booleans, one kind within an attribute; numbers are equal by value, text exactly. Times are numbers throughout or
    ISO dates throughout (text that is all numeric is numbers); dates with a time zone are converted to UTC.

    Raises:
        EvidenceError: for any row that cannot be used, with the table, the column, the number of rows, the first of
            them, and what is allowed. The frames handed in are never modified.
    """

    def __init__(
        self,
        claims: pd.DataFrame,
        settled: pd.DataFrame | None = None,
        sources: pd.DataFrame | None = None,
        *,
        same_value: SameValue | None = None,
    ) -> None:
        table = open_table(claims, "claims")
        read = read_claims(table, same_value)
        self._record = read.record
        self._claims = read.frame
        self._same_value = same_value
        self._sources, source_notes = read_sources(sources, table, read.record.sources)
        self._settled = Settled.nothing()
        self._notes: tuple[Note, ...] = (*read.notes, *source_notes)
        _merging.names_of("claims", self._claims, stated=True)
        gone = Table("claims", self._claims).flags("revoked", blank=False) if "revoked" in self._claims else None
        self._claims = self._claims.drop(columns="revoked", errors="ignore")
        self._revoked = self._claims.head(0)
        if gone is not None and gone.any():
            self._withdraw(gone[self._record.first_rows])
        if settled is not None:
            self._settle(settled)

    @classmethod
    def from_csv(
        cls,
        claims: str | Path,
        settled: str | Path | None = None,
        sources: str | Path | None = None,
        **same: SameValue | None,
    ) -> Self:
        """Evidence from files: csv, csv.gz or parquet.

        In csv files entity, attribute, value, denies, source, claim and origin are text as it stands (007 stays 007,
        1.0 is not 1), an empty cell is missing, times follow the rule of the class, and columns of the user's own are
        numbers or booleans where every cell is.

        Args:
            claims, settled, sources: paths of the tables.
            **same: `same_value`, as in the class.

        Raises:
            EvidenceError: where a csv file has a line with a wrong number of fields (the line is named), or a table
                cannot be used.
            FileError: where there is no such file.
        """
        read = (path and read_table(path, name) for path, name in ((settled, "settled"), (sources, "sources")))
        return cls(read_table(claims, "claims"), *read, **same)

    def write(self, folder: str | Path) -> None:
        """Everything on record in claims, settled and sources.parquet of a folder, what is revoked and of whom it was
        stated included; `read` gives it back."""
        write_record(self, Path(folder))

    @classmethod
    def read(cls, folder: str | Path, **same: SameValue | None) -> Self:
        """What `write` wrote; `same_value` is for facts that come later."""
        evidence = cls(**read_record(Path(folder)))
        evidence._same_value = same.get("same_value")
        return evidence

    # Tables

    @cached_property
    def _own_claims(self) -> pd.DataFrame:
        position = self._record.rows.position
        whole = len(position) == len(self._claims)
        return self._claims if whole else self._claims.take(position).reset_index(drop=True)

    @property
    def claims(self) -> pd.DataFrame:
        """A row a claim and value, sorted by question, time and key, with ids; a copy."""
        return self._own_claims.copy(deep=False)

    @property
    def settled(self) -> pd.DataFrame:
        """Settled facts sorted by question and time; a copy."""
        return self._settled.frame.take(self._record.facts.position).reset_index(drop=True)

    @property
    def sources(self) -> pd.DataFrame:
        """What was given about sources, sorted by source; a copy."""
        return self._sources.frame.copy(deep=False)

    @property
    def revoked(self) -> pd.DataFrame:
        """Rows of claims that were revoked: kept on record, never used; a copy."""
        return self._revoked.copy(deep=False)

    @property
    def questions(self) -> pd.DataFrame:
        """Entity and attribute of each question that has a claim or a settled fact, sorted; a copy."""
        return self.coded.questions.copy(deep=False)

    @cached_property
    def coded(self) -> Coded:
        """The same as arrays."""
        return self._record.code()

    @cached_property
    def covariates(self) -> pd.DataFrame:
        """A row a claim, aligned with `coded`: columns of the claims (first row of a soft claim) and of the sources."""
        frame = self._own_claims
        if len(frame) > len(self._record.claims.key):
            frame = frame.take(self.coded.row_start[:-1]).reset_index(drop=True)
        return self._sources.join(frame, self.coded.sources, self.coded.claim_source)

    @cached_property
    def report(self) -> Report:
        """What was read, what was left aside and why, and what looks doubtful."""
        return Report((*self._notes, *self._settled.notes, *first_notes(self.coded)))

    def __len__(self) -> int:
        """Number of claims in use."""
        return len(self._record.claims.key)

    def __repr__(self) -> str:
        coded = self.coded
        return (
            f"Evidence({len(self):,} claims, {len(coded.questions):,} questions, {len(coded.sources):,} sources, "
            f"{len(coded.settled_question):,} settled facts)"
        )

    # Questions

    @cached_property
    def _places(self) -> dict[tuple[Any, Any], int]:
        frame = self.coded.questions
        return {
            pair: place
            for place, pair in enumerate(zip(frame["entity"].tolist(), frame["attribute"].tolist(), strict=True))
        }

    def question(self, entity: object, attribute: object) -> Question:
        """The question about one attribute of one entity.

        Raises:
            QuestionError: where no claim and no settled fact in use is about it.
        """
        place = self._places.get((entity, attribute))
        if place is None:
            raise QuestionError(no_question(self.coded.questions, entity, attribute))
        return Question(self, place)

    def claims_of(self, index: int) -> pd.DataFrame:
        """Rows of `claims` about the question at `index` of `questions`."""
        coded = self.coded
        first, last = coded.claim_start[index], coded.claim_start[index + 1]
        return self._own_claims.iloc[coded.row_start[first] : coded.row_start[last]].reset_index(drop=True)

    def settled_of(self, index: int) -> pd.DataFrame:
        """Rows of `settled` about the question at `index` of `questions`."""
        start = self.coded.settled_start
        position = self._record.facts.position[start[index] : start[index + 1]]
        return self._settled.frame.take(position).reset_index(drop=True)

    # Parts and variants

    def subset(self, questions: ArrayLike) -> Evidence:
        """Only these questions, given by their rows in `questions`, in any order; nothing is checked again."""
        wanted = np.unique(np.asarray(questions, dtype=np.int64))
        size = len(self.coded.questions)
        if len(wanted) and (wanted[0] < 0 or wanted[-1] >= size):
            bad = wanted[(wanted < 0) | (wanted >= size)]
            raise EvidenceError(
                f"subset: {len(bad)} rows are none of the {size} questions; first: {bad[0]}. Allowed: 0 to {size - 1}."
            )
        note = Note("claims", f"questions of {size:,} in this part", len(wanted))
        return self._with(self._record.of_questions(self._question_codes[wanted]), note)

    @cached_property
    def _question_codes(self) -> NDArray[np.int64]:
        return np.sort(pd.unique(np.concatenate([self._record.claims.question, self._record.facts.question])))

    def hide(self, questions: ArrayLike) -> Evidence:
        """As if nothing were settled of these questions, given by their rows in `questions`; their claims stay.

        A question that has no claim is gone with its facts, and so are the answers that only those facts name.
        """
        codes = self._question_codes[np.asarray(questions, dtype=np.int64)]
        kept = ~np.isin(self._record.facts.question, codes)
        note = Note("settled", "settled facts hidden by hide()", int((~kept).sum()))
        return self._with(self._record.take(np.arange(len(self)), np.flatnonzero(kept)), note)

    def each_by(self, claims_by: ArrayLike, settled_before: ArrayLike) -> Evidence:
        """Each question as it was known at a time of its own, on the scale of `as_time`.

        Args:
            claims_by: (questions,) claims with known_at <= this stay; NaN for none.
            settled_before: (questions,) settled facts with known_at < this stay; NaN for none.
        """
        by, before = np.asarray(claims_by, dtype=np.float64), np.asarray(settled_before, dtype=np.float64)
        claims, facts = self._record.claims, self._record.facts
        kept = claims.known_at <= by[np.searchsorted(self._question_codes, claims.question)]
        settled = facts.known_at < before[np.searchsorted(self._question_codes, facts.question)]
        note = Note("claims", "left aside by each_by(): not known by the time of their question", int((~kept).sum()))
        return self._with(self._record.take(np.flatnonzero(kept), np.flatnonzero(settled)), note)

    def before(self, time: object) -> Evidence:
        """What was known before a time: claims and settled facts with known_at (else time) < `time`.

        The rest is as in `known_by`.
        """
        return self._known("before", time, np.less)

    def known_by(self, time: object) -> Evidence:
        """What was known at a time: claims and settled facts with known_at (else time) <= `time`.

        What has neither is left aside, and so are questions of which nothing was known. A date stands for its midnight.
        Where the origin of a claim is not known yet, the first claim that repeats it stands for it.
        """
        return self._known("known_by", time, np.less_equal)

    def _known(self, name: str, time: object, compare: np.ufunc) -> Evidence:
        limit = as_time(time, self._record.time_kind)
        claims, facts = self._record.claims, self._record.facts
        kept, settled = compare(claims.known_at, limit), compare(facts.known_at, limit)
        record = self._record.take(np.flatnonzero(kept), np.flatnonzero(settled))
        return self._with(record, *after_the_fact(name, shorten(time), kept, claims.known_at, settled, facts.known_at))

    def without(self, claims: Iterable[object]) -> Evidence:
        """As if these claims (ids) had not been recorded: the first claim known to repeat one of them stands for it."""
        gone = find_claims(self._record.claims.id, claims)
        note = Note("claims", "claims taken out by without()", int(gone.sum()))
        return self._with(self._record.take(np.flatnonzero(~gone), np.arange(len(self._record.facts.value))), note)

    def revoke(self, claims: Iterable[object]) -> Evidence:
        """Withdraw these claims (ids): they and claims known to repeat them are in `revoked` and are never used."""
        evidence = self._with(self._record)
        evidence._withdraw(find_claims(self._record.claims.id, claims))
        return evidence

    def _withdraw(self, named: NDArray[np.bool_]) -> None:
        gone = repeats_of(self._record.claims.origin, named)
        rows = self._own_claims[gone[self._record.rows.claim]]
        self._revoked = pd.concat([self._revoked, rows] if len(self._revoked) else [rows], ignore_index=True)
        self._record = self._record.take(np.flatnonzero(~gone), np.arange(len(self._record.facts.value)))
        self._notes = (*self._notes, *revoked_notes(named, gone))
        self.__dict__.pop("_own_claims", None)

    def with_settled(self, settled: pd.DataFrame | None) -> Evidence:
        """The same claims with these settled facts in place of the present ones; None for none."""
        evidence = self._with(replace(self._record, facts=Facts.none(), fact_times=None))
        evidence._settled = Settled.nothing()
        if settled is not None:
            evidence._settle(settled)
        return evidence

    def settle(self, entity: object, attribute: object, value: object, time: object = None) -> Evidence:
        """One more settled fact: this is the truth; at `time`, where truths change.

        Raises:
            EvidenceError: it contradicts what is settled, or cannot be used in another way.
        """
        return self._one_more(entity, attribute, value, time, "true")

    def reject(self, entity: object, attribute: object, value: object, time: object = None) -> Evidence:
        """One more rejection: this is not the truth, whatever is claimed; where truths change, from `time` on (None for
        always). Its claims stay, and so does their word on who repeats whom.

        Raises:
            EvidenceError: it is settled as the truth at that time, or cannot be used in another way.
        """
        return self._one_more(entity, attribute, value, time, "false")

    def _one_more(self, entity: object, attribute: object, value: object, time: object, verdict: str) -> Evidence:
        fact = {"entity": entity, "attribute": attribute, "value": standing(value, self._same_value)}
        stated = self._settled.stated(self._record.facts)
        frame = one_more(stated, fact | {"verdict": verdict}, time, self.time_kind)
        evidence = self.with_settled(None)
        evidence._settle(frame, standing=True)
        return evidence

    def merged(self, aliases: Mapping[Any, Any]) -> Evidence:
        """The view in which some entities are one: what was stated of an alias is about the entity it is given, and
        column ``stated_entity`` of claims and settled facts says of whom it was; `unmerged` gives both back.

        Args:
            aliases: alias -> the entity that remains, as in ``{"maya k.": "maya"}``; see `nousppl.identity`.

        Raises:
            EvidenceError: an entity that nothing is about, an alias of an alias, or settled facts that contradict
                each other once they are about one entity.
        """
        given = _merging.checked(aliases, pd.Index(self.coded.questions["entity"].unique()))
        note = Note("claims", "entities merged into others", len(given), ", ".join(map(shorten, given)))
        return self._about(False, given, note)

    def unmerged(self) -> Evidence:
        """Claims and settled facts about those of whom they were stated, as far as they are in use; itself where
        nothing was merged."""
        if not any(_merging.STATED in frame for frame in (self._claims, self._settled.frame)):
            return self
        return self._about(True, {}, Note("claims", "merged entities taken apart", 1))

    def _about(self, stated: bool, aliases: Mapping[Any, Any], note: Note) -> Evidence:
        """Told of what those named are `aliases` of or, with `stated`, of those it was stated of."""
        told = partial(_merging.told, stated=stated, aliases=aliases)
        claims, facts = told("claims", self._own_claims), self._settled.stated(self._record.facts)
        names = pd.Index(claims["entity"]).take(self._record.first_rows)
        record, place = _merging.about(self._record, names)
        evidence = self._with(record, note)
        evidence._claims = claims.take(place).reset_index(drop=True)
        evidence._settled = Settled.nothing()
        evidence._revoked = told("claims", self._revoked)
        if len(facts):
            try:
                evidence._settle(told("settled", facts), standing=True)
            except EvidenceError as error:
                raise EvidenceError(f"merged: what is settled of entities that become one clashes. {error}") from error
        return evidence

    def as_time(self, time: object) -> float:
        """A time (number, date, timestamp or ISO text) on the scale of `coded.claim_time`."""
        return as_time(time, self._record.time_kind)

    @property
    def time_kind(self) -> str | None:
        """ "numbers", "dates without a time zone" or "dates with a time zone"; None where nothing has a time."""
        return self._record.time_kind

    def _settle(self, settled: pd.DataFrame, standing: bool = False) -> None:
        """Take in settled facts; `standing` where their values stand for others already."""
        table, same_value = open_table(settled, "settled"), None if standing else self._same_value
        self._record, self._settled = add_facts(self._record, table, same_value)
        _merging.names_of("settled", self._settled.frame, stated=True)

    def _with(self, record: Record, *notes: Note) -> Evidence:
        other = object.__new__(Evidence)
        other._record = record
        other._claims, other._settled, other._sources = self._claims, self._settled, self._sources
        other._revoked, other._same_value = self._revoked, self._same_value
        other._notes = (*self._notes, *notes)
        return other
