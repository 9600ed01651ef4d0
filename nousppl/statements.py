"""What claims about a state that is true for a while say: whether it is on, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._times import read_times
from nousppl.coded import Coded
from nousppl.errors import EvidenceError, ModelError
from nousppl.evidence import Evidence
from nousppl.models.shapes import WhileTrue
from nousppl.parts import Parts
from nousppl.ragged import Floats, Ints
from nousppl.tables import Table, show_row

UNTIL, UNTIL_SD = "until", "until_sd"
"""Columns of the claims with the stated end, and how uncertain it is (standard deviation, in days or units of time)."""


class Statements(NamedTuple):
    """Of the claims about states; NaN and False for the others."""

    attribute: Ints
    """(Q,) place of the question's attribute among those whose answers are true for a while; -1 for the others."""
    says: NDArray[np.bool_]
    """(J,) whether the claim says that the state is on."""
    until: Floats
    """(J,) the end that it states; NaN for none."""
    sd: Floats
    """(J,) standard deviation of that end, 0 where it is known."""


def read_statements(evidence: Evidence | Parts, attributes: Iterable[Any]) -> Statements:
    """Read the claims of some attributes.

    Raises:
        ModelError: a value that is neither True nor False, a claim or a settled fact without a time, a soft claim, an
            end of another kind than the times, before the claim, or of a claim that the state is off; a negative
            ``until_sd``, or one without an end.
    """
    coded = evidence.coded
    attribute = pd.Index(list(attributes), dtype=object).get_indexer(coded.questions["attribute"].astype(object))
    says, until, sd = (np.full(len(coded.claim_question), fill) for fill in (False, np.nan, np.nan))
    mine = np.flatnonzero(attribute[coded.claim_question] >= 0)
    _refuse_values(coded, attribute)
    _refuse_soft_and_undated(coded, attribute, mine)
    if len(mine):
        says[mine] = as_states(coded.answer_value[coded.row_answer[coded.row_start[:-1][mine]]])
        table = Table("claims", evidence.covariates.iloc[mine].reset_index(drop=True))
        until[mine], sd[mine] = _ends(table, evidence.time_kind, coded.claim_time[mine], says[mine])
    return Statements(attribute, says, until, sd)


def as_states(values: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Values about states as truth values; what is none counts as False."""
    return np.array([WhileTrue.state(value) is True for value in values], bool)


def _refuse_values(coded: Coded, attribute: Ints) -> None:
    question = coded.answers["question"].to_numpy()
    for answer in np.flatnonzero(attribute[question] >= 0):
        if WhileTrue.state(coded.answer_value[answer]) is None:
            row = coded.questions.iloc[question[answer]]
            raise ModelError(
                f"entity {row['entity']!r}, attribute {row['attribute']!r}: {coded.answer_value[answer]!r} is no value "
                "of what is true for a while; allowed are True and False"
            )


def _refuse_soft_and_undated(coded: Coded, attribute: Ints, claims: Ints) -> None:
    soft = (np.diff(coded.row_start)[claims] > 1) | (coded.row_weight[coded.row_start[:-1][claims]] < 1.0)
    if soft.any():
        raise ModelError(
            f"claims: {int(soft.sum())} soft claims on what is true for a while, first "
            f"{coded.claim_id[claims[soft][0]]!r}; such a claim has one row and no weight"
        )
    for table, question, time in (
        ("claims", coded.claim_question, coded.claim_time),
        ("settled", coded.settled_question, coded.settled_time),
    ):
        bad = (attribute[question] >= 0) & np.isnan(time)
        if bad.any():
            row = coded.questions.iloc[question[bad][0]]
            raise ModelError(
                f"{table}: column 'time' is missing in {int(bad.sum())} rows on what is true for a while, first of "
                f"entity {row['entity']!r}, attribute {row['attribute']!r}; each says how things are at its time"
            )


def _ends(table: Table, kind: str | None, time: Floats, says: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """(rows,) stated ends and their standard deviations."""
    until, sd = np.full(len(table), np.nan), np.full(len(table), np.nan)
    try:
        if UNTIL in table:
            read = read_times(table, UNTIL)
            until = read.values
            if read.kind not in (None, kind):
                _refuse(table, UNTIL, ~np.isnan(until), f"{read.kind}, where 'time' has {kind},", f"{kind}, or a blank")
        if UNTIL_SD in table:
            sd = table.numbers(UNTIL_SD)
    except EvidenceError as error:
        raise ModelError(str(error)) from error
    stated = ~np.isnan(until)
    _refuse(table, UNTIL, stated & ~says, "an end of what is claimed not to be so", "an end of a claim that is True")
    _refuse(table, UNTIL, until < time, "an end before the claim itself", "the time of the claim, or later")
    _refuse(table, UNTIL_SD, sd < 0.0, "a negative number", "a number of days (units of 'time') from 0 on, or a blank")
    _refuse(table, UNTIL_SD, ~np.isnan(sd) & ~stated, "a spread without an end", "one beside an end in 'until'")
    return until, np.where(stated, np.where(np.isnan(sd), 0.0, sd), np.nan)


def _refuse(table: Table, column: str, bad: NDArray[np.bool_], problem: str, allowed: str) -> None:
    if bad.any():
        raise ModelError(
            f"claims: column {column!r}: {problem} in {int(bad.sum())} claims on what is true for a while; first: "
            f"{show_row(table.frame, int(bad.argmax()))}. Allowed: {allowed}."
        )


def most_ends(coded: Coded, statements: Statements, attributes: Iterable[Any]) -> dict[Any, int]:
    """Attribute -> one more than the most different ends that claims state of one entity."""
    found = distinct_ends(coded, statements)
    counts = np.bincount(found["question"].to_numpy(), minlength=len(coded.questions))
    return {
        name: 1 + max(1, int(counts[statements.attribute == place].max(initial=0)))
        for place, name in enumerate(attributes)
    }


def distinct_ends(coded: Coded, statements: Statements) -> pd.DataFrame:
    """Different ends of each question, sorted: question, until, sd. Two are the same where date and spread are."""
    stated = ~np.isnan(statements.until)
    columns = {"question": coded.claim_question, "until": statements.until, "sd": statements.sd}
    frame = pd.DataFrame(columns)[stated]
    return frame.drop_duplicates().sort_values(list(columns)).reset_index(drop=True)
