"""Entities that turn out to be one: the same record under other names, and the names under which it was stated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import _keys
from nousppl._record import Facts, Record, pair_up
from nousppl.errors import EvidenceError
from nousppl.tables import Labels, Table, is_blank, shorten

STATED = "stated_entity"
SHOWN = 5


def checked(aliases: Mapping[Any, Any], entities: pd.Index) -> dict[Any, Any]:
    """Alias -> entity, all of them among `entities` and none both.

    Raises:
        EvidenceError: else.
    """
    if not isinstance(aliases, Mapping | pd.Series):
        raise EvidenceError(
            f"merged: expected a mapping from alias to entity, got {type(aliases).__name__}. "
            'Allowed: for example {"maya k.": "maya"}.'
        )
    found = dict(aliases)
    for alias, entity in found.items():
        for name in (alias, entity):
            if name not in entities:
                examples = ", ".join(map(shorten, entities[:SHOWN]))
                raise EvidenceError(
                    f"merged: nothing in use is about {shorten(name)}. Allowed: entities of evidence.questions, for "
                    f"example {examples}."
                )
        if alias == entity:
            raise EvidenceError(f"merged: {shorten(alias)} is given as an alias of itself. Allowed: another entity.")
        if entity in found:
            raise EvidenceError(
                f"merged: {shorten(alias)} is given as {shorten(entity)}, and that as {shorten(found[entity])}. "
                "Allowed: for each alias the entity that remains."
            )
    return found


def names_of(table: str, frame: pd.DataFrame, stated: bool) -> pd.Index:
    """(rows,) entity of each row, or the one it was stated of, where that is another.

    Raises:
        EvidenceError: these are of another kind than the entities.
    """
    labels = Table(table, frame).labels("entity")
    names = labels.names.take(labels.codes)
    if not stated or STATED not in frame:
        return names
    given = ~is_blank(frame[STATED])
    if not given.any():
        return names
    rows = Table(table, frame[given].reset_index(drop=True))
    others = rows.labels(STATED)
    rows.one_kind(STATED, others, Labels(labels.codes, labels.names), "column 'entity'")
    place = np.cumsum(given) - 1
    return names.where(~given, others.names.take(others.codes[np.maximum(place, 0)]))


def told(table: str, frame: pd.DataFrame, stated: bool, aliases: Mapping[Any, Any]) -> pd.DataFrame:
    """Rows about what those named are `aliases` of, and a column with whom it was stated of; or, with `stated`, about
    those whom that column names."""
    first = names_of(table, frame, stated=True)
    if stated:
        return frame.assign(entity=first).drop(columns=STATED, errors="ignore")
    return frame.assign(entity=renamed(names_of(table, frame, stated=False), aliases), **{STATED: first})


def renamed(names: pd.Index, aliases: Mapping[Any, Any]) -> pd.Index:
    """Each name, or what it is an alias of."""
    codes, found = pd.factorize(names)
    index = pd.Index([aliases.get(name, name) for name in found.tolist()], dtype=names.dtype)
    return index.take(codes)


def about(record: Record, names: pd.Index) -> tuple[Record, NDArray[np.int64]]:
    """The claims of a record told of other entities, without its settled facts.

    Args:
        record: claims.
        names: (J,) entity of each claim.

    Returns:
        The record in its order, keys anew so that it is that of claims which were made of these entities, and the
        places (N,) that its rows had.
    """
    claims, rows, old = record.claims, record.rows, record.questions
    entities = old.entities.union(names.unique(), sort=True)
    pairs = entities.get_indexer(names), old.attribute[claims.question]
    questions, (question,) = pair_up(entities, old.attributes, pairs)
    claims = replace(claims, question=question)
    claims = replace(claims, key=_new_keys(replace(record, questions=questions, claims=claims)))
    order = np.lexsort((claims.key, claims.time, claims.question))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    place = np.argsort(rank[rows.claim], kind="stable")
    rows = rows.take(place)
    rows = replace(rows, claim=rank[rows.claim], position=np.arange(len(place)))
    claims = claims.take(order)
    claims = replace(claims, origin=np.where(claims.origin < 0, -1, rank[claims.origin]))
    new = replace(record, questions=questions, claims=claims, rows=rows, facts=Facts.none(), fact_times=None)
    return new, place


def _new_keys(record: Record) -> NDArray[np.uint64]:
    claims, questions = record.claims, record.questions
    said = np.zeros(len(claims.question), dtype=np.uint64)
    np.add.at(said, record.rows.claim, _keys.mix(record.vocabulary.hashes()[record.rows.value]))
    keys = _keys.chain(
        _keys.hash_names(questions.entities)[questions.entity[claims.question]],
        _keys.hash_names(questions.attributes)[questions.attribute[claims.question]],
        _keys.hash_names(record.sources)[claims.source],
        said,
        _keys.hash_times(claims.time),
    )
    tied = np.flatnonzero(pd.Series(keys).duplicated(keep=False))
    return _keys.unique_keys(keys, tied, _keys.hash_names(claims.id[tied]))[0] if len(tied) else keys
