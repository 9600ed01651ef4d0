"""Which sites of the flight data republish each other: pairs found against those known, and the time taken."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from benchmarks import data_sets
from benchmarks.table import Row, at_least, at_most, shown, watch

import nousppl as nous

KNOWN = (
    "flytecomm airtravelcenter helloflight myrateplan",
    "flightview allegiantair foxbusiness gofox panynj",
    "flightaware wunderground flightwise",
    "flightstats quicktrip ifly world-flight-tracker",
    "flights businesstravellogue flylouisville world-flight-tracker",
)
"""Groups of sites of which, where at least one of a pair is wrong, both give the same wrong value 99.5 % of the time or
more (counted in the data; among other pairs the median is 3 %). One site republishes two others."""


def pairs_of(groups: Iterable[Iterable[object]]) -> set[frozenset[str]]:
    """All pairs inside the groups, names in lower case."""
    names = [[str(name).lower() for name in group] for group in groups]
    return {frozenset(pair) for group in names for pair in combinations(group, 2)}


def found(what: str, pairs: set[frozenset[str]], where: str) -> list[Row]:
    """Precision and recall of pairs."""
    known = pairs_of(name.split() for name in KNOWN)
    hits = len(pairs & known)
    return [
        at_least(f"{what}: precision", where, len(pairs), hits / max(len(pairs), 1), 0.95),
        at_least(f"{what}: recall", where, len(known), hits / len(known), 0.9),
    ]


def rows() -> list[Row]:
    """SVI on all flight questions with a known truth, the first 14 days settled, from tables to a settled fit."""
    task = data_sets.flight()[0]
    evidence = task.evidence.with_settled(task.splits[0].learned)
    origin = nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=1)
    answers = dict.fromkeys(evidence.questions["attribute"].unique(), 50)
    errors = nous.Errors(difficulty=False)
    formula = "1 + (1|attribute) + (1|source) + (1|attribute:source)"
    model = nous.TrustModel(formula, "1", origin, errors, answers=answers)
    with watch() as taken:
        trust = model.fit(evidence, nous.SVI(full_size=100), seed=0, learn_from="settled")
    where = f"flight, affinity of sources; {trust.status.partition(';')[0]}; settled: {trust.record['converged']}"
    n = len(task.splits[0].learned)
    groups = trust.echo_groups
    # A pair that is in no group of three is a group of its own.
    return [
        *found("flight: pairs in groups of echoes", pairs_of(groups), f"{where}; {len(groups)} groups"),
        at_most("flight: SVI to settled", where, n, taken.wall, 120, " s"),
        shown("the same in processor time, s", where, n, taken.cpu),
    ]
