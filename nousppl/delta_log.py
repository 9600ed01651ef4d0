"""What moved the belief about one question, event by event, and what is on record of it without moving it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import value_text
from nousppl._times import read_times
from nousppl.tables import Table

if TYPE_CHECKING:
    from nousppl.belief import Belief

Floats = NDArray[np.float64]

COLUMNS = ["time", "event", "claim", "source", "value", "prior", "posterior", "surprise"]
ALWAYS, CLAIM, AFTER = range(3)


def delta_log(belief: Belief, claims: pd.DataFrame, before: Floats, said: Floats) -> pd.DataFrame:
    """See `nousppl.Belief.history`.

    Args:
        belief: the belief.
        claims: (n) time, claim, source, value.
        before: (n, V) belief just before each claim.
        said: (n, V) weight with which each claim names each answer.
    """
    coded, index = belief.question.evidence.coded, belief.question.index
    start = coded.claim_start
    table = claims[["time", "claim", "source", "value"]].copy()
    table["event"], table["when"] = "claim", coded.claim_time[start[index] : start[index + 1]][: len(table)]
    table["rank"], table["prior"], table["posterior"] = CLAIM, before[:, belief.top], belief.path[1:-1, belief.top]
    weight = said / np.maximum(said.sum(axis=1, keepdims=True), 1e-300)
    table["surprise"] = _bits((weight * before).sum(axis=1))
    parts = [part for part in (table, _facts(belief), _revoked(belief)) if part is not None and len(part)]
    if len(parts) <= 1:
        return (parts or [table])[0][COLUMNS]
    whole = pd.concat([part.astype({"time": object}) for part in parts], ignore_index=True)
    whole["time"] = whole["time"].infer_objects()
    order = np.lexsort((whole["rank"], whole["when"]))
    return whole.iloc[order].reset_index(drop=True)[COLUMNS]


def _bits(probability: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return -np.log2(probability) + 0.0


def _facts(belief: Belief) -> pd.DataFrame | None:
    """A row for each settled fact; what holds always comes first and has no prior."""
    if belief.facts_of is None:
        return None
    coded, index = belief.question.evidence.coded, belief.question.index
    rows = slice(coded.settled_start[index], coded.settled_start[index + 1])
    shown, rejected = belief.question.settled, coded.settled_rejected[rows]
    table = pd.DataFrame({"value": coded.answer_value[coded.settled_answer[rows]]}, dtype=object)
    table["time"] = shown["time"].to_numpy() if "time" in shown else np.nan
    table["event"] = np.where(rejected, "rejected", "settled")
    table["when"], table["rank"] = -np.inf, ALWAYS
    table["prior"], table["posterior"], table["surprise"] = np.nan, belief.path[0, belief.top], np.nan
    place, before, after = belief.facts_of()
    if len(place):
        cell = [_cell(belief, value) for value in table["value"].iloc[place]]
        chance = before[np.arange(len(place)), cell]
        table.loc[place, "when"], table.loc[place, "rank"] = coded.settled_time[rows][place], AFTER
        table.loc[place, "prior"], table.loc[place, "posterior"] = before[:, belief.top], after[:, belief.top]
        table.loc[place, "surprise"] = _bits(np.where(rejected[place], 1.0 - chance, chance))
    return table


def _cell(belief: Belief, value: Any) -> int:
    named = belief.answers[:-1] if belief.open else belief.answers
    return next(i for i, answer in enumerate(named) if value_text.same(answer, value))


def _revoked(belief: Belief) -> pd.DataFrame:
    """A row for each row of a revoked claim: it is on record and moves nothing."""
    question = belief.question
    rows = question.evidence.revoked
    rows = rows[(rows["entity"] == question.entity) & (rows["attribute"] == question.attribute)].reset_index(drop=True)
    table = rows[["claim", "source", "value"]].astype({"value": object})
    table["time"] = rows.get("time", np.nan)
    table["when"] = read_times(Table("claims", rows), "time").values if "time" in rows else np.nan
    table["event"], table["rank"] = "revoked", CLAIM
    table["prior"] = table["posterior"] = table["surprise"] = np.nan
    return table
