"""The frozen dated histories, asked of a trust that was learned on a separate world."""

from __future__ import annotations

from functools import cache

import pandas as pd
from benchmarks.assistant_world import ANSWERS, assistant_world
from benchmarks.dated_histories import DISAGREE, LABELS, OTHER, read
from benchmarks.table import Row, at_least, at_most, shown

import nousppl as nous
from nousppl.belief import CLEAR
from nousppl.trust import Trust

HELD = 0.85
MODEL = nous.TrustModel(
    reliability="1 + hedging + (1|kind)",
    freshness="1 + (1|kind)",
    origin=nous.Origin(strong="same_source + same_channel + repeats_denied"),
    change="1 + (1|attribute)",
    answers=ANSWERS,
)


@cache
def learned() -> Trust:
    """What the world teaches about kinds of source and attributes."""
    claims, settled = assistant_world()
    return MODEL.fit(nous.Evidence(claims, settled=settled), learn_from="settled")


def answers(trust: Trust) -> pd.DataFrame:
    """A row a history: what it tests, the right answer, the answer, its probability and the verdict, whether it is
    right, and whether it is held."""
    claims, truths = read()
    evidence = nous.Evidence(claims.drop(columns=list(LABELS)))
    traps = claims.drop_duplicates("history").set_index("history")["trap"]
    rows = []
    for truth in truths.itertuples():
        belief = trust.posterior(evidence.question(truth.entity, truth.attribute), at=truth.at)
        right = belief.answer == truth.right
        if truth.right == DISAGREE:
            right = belief.probability < CLEAR
        if truth.right == OTHER:
            right = belief.answer == OTHER
        held = belief.probability >= HELD
        rows.append(
            (
                truth.history,
                traps[truth.history],
                truth.right,
                belief.answer,
                belief.probability,
                belief.verdict,
                right,
                held,
            )
        )
    return pd.DataFrame(rows, columns=["history", "trap", "truth", "answer", "probability", "verdict", "right", "held"])


def rows() -> list[Row]:
    """How many histories come out right, and how many that are held come out wrong."""
    table = answers(learned())
    where = f"{len(table)} dated histories, trust learned on a simulated world"
    wrong = int((~table["right"] & table["held"]).sum())
    by_trap = [
        shown(f"histories right: {trap}", where, len(part), float(part["right"].sum()))
        for trap, part in table.groupby("trap")
    ]
    return [
        at_least("histories right", where, len(table), float(table["right"].sum()), 34.0),
        at_most("histories held at .85 and wrong", where, int(table["held"].sum()), float(wrong), 0.0),
        *by_trap,
    ]
