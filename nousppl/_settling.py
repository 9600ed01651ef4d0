"""Settled facts: from their table into a `Record`, and what contradicts itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._record import Facts, Record, join_vocabularies, pair_up, union
from nousppl._report import Note
from nousppl._times import Times, as_time, show_table, show_times, table_times
from nousppl._values import KINDS, SameValue, read_values, refuse_mixed
from nousppl.tables import Labels, Table, show_row


@dataclass(frozen=True)
class Settled:
    """A table of settled facts, sorted, and what of it is left aside since it repeats another row."""

    frame: pd.DataFrame
    """Rows that are used; ``Facts.position`` is their place here."""
    aside: pd.DataFrame
    """Rows that repeat another one."""
    repeats: NDArray[np.int64]
    """(rows of `aside`,) place in `frame` of what each repeats."""
    notes: tuple[Note, ...] = ()

    @classmethod
    def nothing(cls) -> Settled:
        """No facts."""
        frame = pd.DataFrame(columns=["entity", "attribute", "value"])
        return cls(frame, frame, np.empty(0, dtype=np.int64))

    def stated(self, facts: Facts) -> pd.DataFrame:
        """Rows in use and rows that repeat them."""
        aside = self.aside[np.isin(self.repeats, facts.position)]
        used = self.frame.take(facts.position)
        return pd.concat([used, aside], ignore_index=True) if len(aside) else used.reset_index(drop=True)


def one_more(stated: pd.DataFrame, fact: dict[str, Any], time: Any, kind: str | None) -> pd.DataFrame:
    """A table of settled facts and one more, at a time or at none (None), in evidence with times of this `kind`."""
    row = pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in fact.items()})
    if time is not None:
        row["time"] = time if kind is None else show_times(np.array([as_time(time, kind)]), kind)
    if not len(stated):
        return row
    if "verdict" not in stated:
        stated = stated.assign(verdict="true")
    return pd.concat([stated, row], ignore_index=True)


def add_facts(record: Record, table: Table, same_value: SameValue | None) -> tuple[Record, Settled]:
    """The record with the settled facts of a table in place of its own, and that table sorted."""
    entity, attribute = table.labels("entity"), table.labels("attribute")
    table.one_kind("entity", entity, Labels(entity.codes, record.questions.entities), "claims")
    table.one_kind("attribute", attribute, Labels(attribute.codes, record.questions.attributes), "claims")
    values, vocabulary = read_values(table, same_value)
    refuse_mixed(table, attribute, vocabulary.kinds[values])
    times, kind = table_times(table, record.claim_times)
    rejected = ~table.flags("verdict", blank=True) if "verdict" in table else np.zeros(len(table), dtype=bool)
    record, codes = join_vocabularies(record, vocabulary)
    record, question = _ask_as_well(replace(record, fact_times=kind), entity, attribute)
    _same_kind_as_claims(record, table, question, codes[values])
    facts = Facts(
        question, codes[values], times["time"].values, times["known_at"].values, rejected, np.arange(len(table))
    )
    return _sort_facts(record, facts, table, times, same_value is not None)


def _same_kind_as_claims(record: Record, table: Table, question: NDArray[np.int64], values: NDArray[np.int64]) -> None:
    kinds = record.vocabulary.kinds
    held = np.full(len(record.questions.attributes), -1, dtype=np.int8)
    held[record.questions.attribute[record.claims.question[record.rows.claim]]] = kinds[record.rows.value]
    of_claims = held[record.questions.attribute[question]]
    bad = (of_claims >= 0) & (of_claims != kinds[values])
    problem = (
        f"{KINDS[kinds[values][bad][0]]}, where claims have {KINDS[of_claims[bad][0]]} for the attribute,"
        if bad.any()
        else ""
    )
    table.refuse("value", bad, problem, "the kind of value that claims on the attribute have")


def _ask_as_well(record: Record, entity: Labels, attribute: Labels) -> tuple[Record, NDArray[np.int64]]:
    """The record with the questions of other rows as well, and the question of each of those rows."""
    old = record.questions
    entities, my_entity, their_entity = union(old.entities, entity.names)
    attributes, my_attribute, their_attribute = union(old.attributes, attribute.names)
    questions, (mine, theirs) = pair_up(
        entities,
        attributes,
        (my_entity[old.entity], my_attribute[old.attribute]),
        (their_entity[entity.codes], their_attribute[attribute.codes]),
    )
    claims = replace(record.claims, question=mine[record.claims.question])
    facts = replace(record.facts, question=mine[record.facts.question])
    return replace(record, questions=questions, claims=claims, facts=facts), theirs


def _sort_facts(
    record: Record, facts: Facts, table: Table, times: dict[str, Times], merged: bool
) -> tuple[Record, Settled]:
    _refuse_conflicts(table, facts)
    value_hash = record.vocabulary.hashes()[facts.value] if len(facts.value) else np.empty(0, dtype=np.uint64)
    order = np.lexsort((facts.known_at, value_hash, facts.rejected, facts.time, facts.question))
    same = _fact_frame(facts.take(order)).duplicated().to_numpy()
    values = record.vocabulary.values[facts.value[order]] if merged else None
    frame = show_table(table, facts.position[order], times, values)
    facts = facts.take(order[~same])
    facts = replace(facts, position=np.arange(len(facts.position)))
    notes = [Note("settled", "rows read", len(table))]
    if same.any():
        row = show_row(table.frame, int(order[same][0]))
        notes.append(Note("settled", "settled facts left aside that repeat another one", int(same.sum()), row))
    aside, used = (frame[chosen].reset_index(drop=True) for chosen in (same, ~same))
    repeats = (np.cumsum(~same) - 1)[same]
    return replace(record, facts=facts), Settled(used, aside, repeats, tuple(notes))


def _fact_frame(facts: Facts) -> pd.DataFrame:
    return pd.DataFrame(
        {"question": facts.question, "value": facts.value, "time": facts.time, "rejected": facts.rejected}
    )


def _refuse_conflicts(table: Table, facts: Facts) -> None:
    """Refuse facts that contradict each other in any model: at one time, or where one has no time, so holds always."""
    frame = _fact_frame(facts)
    truths = frame[~frame["rejected"]].drop_duplicates()
    at_once = truths.duplicated(["question", "time"])
    untimed = truths["question"].isin(truths.loc[truths["time"].isna(), "question"])
    several = untimed & (truths.groupby("question")["value"].transform("nunique") > 1) & truths.duplicated("question")
    bad = np.zeros(len(table), dtype=bool)
    bad[truths.index[at_once | several]] = True
    table.refuse(
        "value",
        bad,
        "another truth for a question that is settled at this time",
        "one truth for a question at one time",
    )
    pairs = frame[frame["rejected"]].reset_index().merge(truths, on=["question", "value"], suffixes=("", "_true"))
    clash = pairs["time"].isna() | pairs["time_true"].isna() | (pairs["time"] == pairs["time_true"])
    bad[pairs.loc[clash, "index"]] = True
    table.refuse(
        "verdict", bad, "an answer rejected that is settled as the truth", "true or false for an answer at one time"
    )
