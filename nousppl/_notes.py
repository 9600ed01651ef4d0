"""Notes that are taken after reading: what was cut off, and what looks doubtful."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._report import Note
from nousppl._values import look_alikes
from nousppl.coded import Coded
from nousppl.errors import EvidenceError
from nousppl.tables import shorten

SPELT = 20


def after_the_fact(
    name: str,
    time: str,
    kept: NDArray[np.bool_],
    known: NDArray[np.float64],
    settled: NDArray[np.bool_],
    settled_known: NDArray[np.float64],
) -> list[Note]:
    """Notes on a cut-off in time: what became known later, and what has no time."""
    notes = []
    for table, stays, when in (("claims", kept, known), ("settled", settled, settled_known)):
        missing = np.isnan(when)
        later, undated = int((~stays & ~missing).sum()), int(missing.sum())
        if later:
            notes.append(Note(table, f"left aside by {name}({time}): known later", later))
        if undated:
            notes.append(
                Note(table, f"left aside by {name}({time}): no time, so not known to be known by then", undated)
            )
    return notes


def first_notes(coded: Coded) -> list[Note]:
    """Notes on what is in use."""
    notes = [
        Note("claims", "claims in use", len(coded.claim_key)),
        Note("claims", "questions", len(coded.questions)),
        Note("claims", "sources", len(coded.sources)),
        Note("claims", "answers named", len(coded.answers)),
    ]
    for table, what, count in (
        ("claims", "claims without a time", np.isnan(coded.claim_time).sum()),
        ("claims", "claims with a known origin, which add nothing", (coded.claim_origin >= 0).sum()),
        ("claims", "own notes", coded.claim_derived.sum()),
        ("settled", "settled facts in use", len(coded.settled_question)),
        ("settled", "of these, rejections", coded.settled_rejected.sum()),
        ("settled", "questions with a settled fact and no claim", (np.diff(coded.claim_start) == 0).sum()),
    ):
        if count:
            notes.append(Note(table, what, int(count)))
    return [*notes, *_rejected(coded), *_alike(coded)]


def _rejected(coded: Coded) -> list[Note]:
    """Questions all of whose named answers are rejected: only an answer that nobody named is left."""
    out = np.zeros(len(coded.answers), dtype=bool)
    out[coded.settled_answer[coded.settled_rejected]] = True
    left = np.bincount(coded.answers["question"].to_numpy()[~out], minlength=len(coded.questions))
    none = np.flatnonzero(left == 0)
    if not len(none):
        return []
    entity, attribute = coded.questions.iloc[none[0]]
    return [
        Note(
            "settled",
            "questions all of whose named answers are rejected",
            len(none),
            f"{shorten(entity)}, {shorten(attribute)}",
        )
    ]


def _alike(coded: Coded) -> list[Note]:
    """Values of one attribute, and sources, that are different texts and look alike."""
    attribute = pd.Series(coded.question_attribute[coded.answers["question"].to_numpy()])
    is_text = coded.answers["value"].map(lambda value: isinstance(value, str)).astype(bool)
    groups = {"values of one attribute": look_alikes(coded.answers["value"][is_text], attribute[is_text])}
    if coded.sources.dtype.kind != "i":
        groups["sources"] = look_alikes(coded.sources.to_series(), pd.Series(0, index=coded.sources))
    return [
        Note(
            "claims",
            f"groups of {what} that look alike, kept distinct",
            len(found),
            " / ".join(map(_spelt, found[0][:3])),
        )
        for what, found in groups.items()
        if found
    ]


def _spelt(text: str) -> str:
    return shorten(text) if text.isascii() else f"{shorten(text)} = {text[:SPELT]!a}"


def no_question(questions: pd.DataFrame, entity: object, attribute: object) -> str:
    """What to say where there is no such question."""
    known = questions.loc[questions["entity"] == entity, "attribute"].tolist()
    if known:
        hint = f"{shorten(entity)} has the attributes {', '.join(map(shorten, known[:10]))}"
    else:
        examples = ", ".join(map(shorten, questions["entity"].unique()[:5]))
        hint = f"no claim is about {shorten(entity)}; entities are for example {examples}"
    return f"There is no question ({shorten(entity)}, {shorten(attribute)}) among {len(questions):,}: {hint}."


def revoked_notes(named: NDArray[np.bool_], gone: NDArray[np.bool_]) -> list[Note]:
    """Notes on claims that were revoked (J,) and on those that are left aside with them."""
    notes = [Note("claims", "claims revoked", int(named.sum()))]
    more = int(gone.sum() - named.sum())
    if more:
        notes.append(Note("claims", "claims left aside that are known to repeat a revoked one", more))
    return notes


def find_claims(ids: pd.Index, claims: Iterable[object]) -> NDArray[np.bool_]:
    """(J,) whether each claim is one of those named by their ids, or by one id.

    Raises:
        EvidenceError: one of them is none.
    """
    wanted = [claims] if isinstance(claims, (str, int)) else [*claims]
    place = pd.Index(ids).get_indexer(pd.Index(wanted, dtype=object))
    if (place < 0).any():
        missing = [one for one, at in zip(wanted, place, strict=True) if at < 0]
        raise EvidenceError(
            f"claims: column 'claim': {len(missing)} of {len(wanted)} ids are of no claim in use; "
            f"first: {shorten(missing[0])}. Allowed: ids in evidence.claims['claim']."
        )
    found = np.zeros(len(ids), dtype=bool)
    found[place] = True
    return found
