"""From the table of claims to a `Record`: what a claim is, its order, its key and its lineage."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import _keys
from nousppl._denials import read_denials, read_lasting, refuse_soft_denials
from nousppl._lineage import roots
from nousppl._record import Claims, Facts, Questions, Record, Rows, pair_up
from nousppl._report import Note
from nousppl._soft import Grouping, group_rows
from nousppl._times import Times, show_table, table_times
from nousppl._values import SameValue, read_values, refuse_mixed
from nousppl.tables import Table, is_blank

CEILING = "a number above 0 and at most 1, or a blank for none"


@dataclass(frozen=True)
class ReadClaims:
    """The claims of a record that has no settled facts yet, and their table in the same order."""

    record: Record
    frame: pd.DataFrame
    notes: tuple[Note, ...]


def read_claims(table: Table, same_value: SameValue | None) -> ReadClaims:
    """Check and code the table of claims. Raises `EvidenceError` for every kind of bad row."""
    entity, attribute, source = (table.labels(column) for column in ("entity", "attribute", "source"))
    values, vocabulary = read_values(table, same_value)
    refuse_mixed(table, attribute, vocabulary.kinds[values])
    denied, vocabulary = read_denials(table, values, vocabulary, same_value)
    times, kind = table_times(table)
    ceiling = table.numbers("ceiling") if "ceiling" in table else np.full(len(table), np.nan)
    table.refuse("ceiling", (ceiling <= 0) | (ceiling > 1), "a ceiling outside (0, 1]", CEILING)
    derived = table.flags("derived", blank=False) if "derived" in table else np.zeros(len(table), dtype=bool)
    lasting = read_lasting(table)
    group = group_rows(table, values, merged=same_value is not None)
    refuse_soft_denials(table, denied, group)
    questions, (question,) = pair_up(entity.names, attribute.names, (entity.codes, attribute.codes))
    origin = _origins(table, group, question, times["time"].values)
    first = group.first
    claims = Claims(
        question=question[first],
        time=times["time"].values[first],
        known_at=times["known_at"].values[first],
        source=source.codes[first],
        ceiling=np.where(np.isnan(ceiling), np.inf, ceiling)[first],
        derived=derived[first],
        denied=denied[first],
        lasting=lasting[first],
        origin=origin,
        key=np.zeros(len(first), dtype=np.uint64),
        id=pd.RangeIndex(len(first)) if group.ids is None else group.ids,
    )
    key, twins = _claim_keys(table, group, questions, claims, source.names, vocabulary.hashes()[values[group.kept]])
    rows = Rows(group.claim, values[group.kept], group.weight, group.kept)
    record = Record(questions, source.names, vocabulary, replace(claims, key=key), rows, Facts.none(), kind)
    record, frame, mixed = _sort(record, table, times, group.ids is not None, same_value is not None)
    notes = [Note("claims", "rows read", len(table)), *group.notes]
    if twins:
        notes.append(
            Note("claims", "claims that say what another claim of their source says at the same time; all kept", twins)
        )
    if mixed:
        notes.append(Note("claims", "claims with an origin but another value, taken as fresh", mixed))
    return ReadClaims(record, frame, tuple(notes))


def _origins(
    table: Table, group: Grouping, question: NDArray[np.int64], time: NDArray[np.float64]
) -> NDArray[np.int64]:
    """(J,) the claim that each claim is given as repeating, whatever it says, else -1."""
    none = np.full(len(group.first), -1, dtype=np.int64)
    if "origin" not in table or is_blank(table.frame["origin"]).all():
        return none
    allowed = "the id of an earlier claim on the same question, or a blank"
    given = ~is_blank(table.frame["origin"])
    if group.ids is None:
        table.refuse("origin", given, "an origin, but the table has no column 'claim' with ids", allowed)
    at = np.flatnonzero(given)
    named = Table(table.name, table.frame.iloc[at].reset_index(drop=True)).labels("origin")
    known = table.labels("claim")
    found = np.full(len(table), -1, dtype=np.int64)
    found[at] = known.names.get_indexer(named.names)[named.codes] if named.text == known.text else -1
    table.refuse("origin", given & (found < 0), "an id that no claim has", allowed)
    table.refuse("origin", given & (found == known.codes), "the claim itself", allowed)
    first = np.empty(len(known.names), dtype=np.int64)
    first[known.codes[::-1]] = np.arange(len(table))[::-1]
    there = np.where(found < 0, np.arange(len(table)), first[found])
    table.refuse("origin", question[there] != question, "a claim on another question", allowed)
    table.refuse("origin", time[there] > time, "a later claim", allowed)
    chain = np.full(len(known.names), -1, dtype=np.int64)
    chain[known.codes] = found
    table.refuse(
        "origin", given & (roots(chain) < 0)[known.codes], "claims that repeat each other in a circle", allowed
    )
    place = np.full(len(known.names) + 1, -1, dtype=np.int64)
    place[known.names.get_indexer(group.ids)] = np.arange(len(group.first))
    return place[found[group.first]]


def _claim_keys(
    table: Table,
    group: Grouping,
    questions: Questions,
    claims: Claims,
    sources: pd.Index,
    value_hash: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], int]:
    """(J,) unique keys, and how many claims say exactly what another says."""
    size = len(claims.question)
    said = np.zeros(size, dtype=np.uint64)
    np.add.at(said, group.claim, _keys.mix(value_hash))
    keys = _keys.chain(
        _keys.hash_names(questions.entities)[questions.entity[claims.question]],
        _keys.hash_names(questions.attributes)[questions.attribute[claims.question]],
        _keys.hash_names(sources)[claims.source],
        said,
        _keys.hash_times(claims.time),
    )
    tied = np.flatnonzero(pd.Series(keys).duplicated(keep=False))
    if not len(tied):
        return keys, 0
    if group.ids is None:
        rest = _keys.hash_rows(table.frame.iloc[group.first[tied]])
    else:
        rest = _keys.hash_names(group.ids[tied])
    return _keys.unique_keys(keys, tied, rest)


def _sort(
    record: Record, table: Table, times: dict[str, Times], given_ids: bool, merged: bool
) -> tuple[Record, pd.DataFrame, int]:
    """The record and its table with claims in order and with ids; and how many origins have another value and were cut.

    Claims are sorted by question, time and key, rows by claim and value.
    """
    claims, rows = record.claims, record.rows
    order = np.lexsort((claims.key, claims.time, claims.question))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    value_rank = record.vocabulary.ranks(np.arange(len(record.vocabulary))) if len(rows.claim) > len(order) else None
    of = rank[rows.claim]
    rows = rows.take(np.argsort(of, kind="stable") if value_rank is None else np.lexsort((value_rank[rows.value], of)))
    rows = replace(rows, claim=rank[rows.claim])
    claims = claims.take(order)
    if not given_ids:
        claims = replace(claims, id=pd.Index("claim " + pd.Series(np.arange(len(order))).astype("str")))
    origin, other = _same_value_only(np.where(claims.origin < 0, -1, rank[claims.origin]), rows)
    claims = replace(claims, origin=origin)
    values = record.vocabulary.values[rows.value] if merged else None
    frame = show_table(table, rows.position, times, values).assign(claim=claims.id.take(rows.claim))
    if merged and "denies" in table:
        denied = np.array([*record.vocabulary.values, None], dtype=object)[claims.denied[rows.claim]]
        frame["denies"] = pd.Series(denied, dtype=object).infer_objects()
    rows = replace(rows, position=np.arange(len(rows.claim)))
    return replace(record, claims=claims, rows=rows), frame, other


def _same_value_only(origin: NDArray[np.int64], rows: Rows) -> tuple[NDArray[np.int64], int]:
    """Origins (J,) where the claim has the top value of its origin, else -1; and how many have another value."""
    if (origin < 0).all():
        return origin, 0
    order = np.lexsort((-rows.weight, rows.claim))
    top = rows.value[order][np.searchsorted(rows.claim, np.arange(len(origin)))]
    other = (origin >= 0) & (top[origin] != top)
    return np.where(other, -1, origin), int(other.sum())
