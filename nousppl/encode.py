"""First half of compilation: evidence and a model's encoding -> flat numpy tables of claims, rows and cells.

It is done once for an evidence and a trust; ``nousppl.compile`` then cuts out any set of questions quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.affinity import Affinities
from nousppl.cells import Cells, build_cells
from nousppl.coded import Coded
from nousppl.domains import Domains
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.models.hierarchy import Design, Encoding
from nousppl.models.program import OF_QUESTIONS
from nousppl.models.shapes import AnyOf
from nousppl.models.specification import Errors, Origin
from nousppl.models.terms import PAIRS, OwnTerm
from nousppl.own import PairColumns, claim_columns, pair_columns
from nousppl.parts import Parts, find_parts
from nousppl.periods import find_periods
from nousppl.ragged import offsets
from nousppl.settled import Settled, settled_cells, settled_in_time

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """Everything about each claim that the model needs, for all claims of an evidence."""

    parts: Parts
    """Which questions are parts of others."""
    coded: Coded
    """Of the evidence, and then of the further parts of its questions."""
    cells: Cells
    designs: Mapping[str, Design]
    """Part of the model -> its formula, and what own terms read, on the claims; for each part that has a formula."""
    own_pairs: PairColumns | None
    """What own pair terms read of the claims; None where there are none."""
    features: tuple[Ints, ...]
    """Codes of the columns that the pair features compare, one array per feature."""
    attribute_level: Ints
    """(Q,) one plus the place of the question's attribute among those that the fit knew; 0 for a new one."""
    affinity: Affinities | None
    affinity_code: Ints | None
    """Level of each claim in the column that affinities compare."""
    text: NDArray[np.object_] | None
    bias_level: Ints | None
    """Source level of each claim for the class bias by source."""
    claim_offset: Ints
    """(Q + 1,)"""
    row_offset: Ints
    """(J + 1,)"""
    row_cell: Ints
    row_variant: Ints | None
    """Tells values of one cell apart, such as lists of items that deny different ones; None where there are none."""
    row_share: Floats
    denied_cell: Ints | None
    """(J,) cell of the answer that each claim denies, -1 for none; None where no claim denies one."""
    passing: bool
    """Whether some claim is not meant to last, or only in part."""
    used: NDArray[np.bool_]
    """False for claims that are known to repeat another one: they add nothing."""
    origin: Origin | None
    errors: Errors
    settled_cell: Ints
    """(Q,) cell of the settled truth, the last one where it changes; -1 where nothing is settled."""
    rejected_cells: Ints
    confusion_start: Ints
    """See `Domains.confusion_start`; all -1 in a model without a class bias."""
    settled: Settled | None
    """What is settled at which time; None where truths do not change."""
    latest: float
    """Time of the latest claim or settled fact."""
    cache: dict[str, Any] = field(default_factory=dict, compare=False)


def encode_claims(
    evidence: Evidence,
    encodings: Mapping[str, Encoding],
    domains: Domains,
    origin: Origin | None,
    errors: Errors,
    bias: Encoding | None = None,
    affinity: Affinities | None = None,
    attributes: tuple[Any, ...] = (),
    own: tuple[OwnTerm, ...] = (),
) -> Encoded:
    """Encode an evidence for a model.

    Raises:
        ModelError: a column is missing, a value is outside a closed list, K is too small, contradictory settled
            facts.
    """
    parts = find_parts(evidence, domains.of_shape(AnyOf), domains.closed)
    coded, frame = parts.coded, parts.covariates
    cells = build_cells(parts, domains, find_periods(parts, domains.lasting, domains.closed, domains.size))
    columns = origin.columns if origin is not None else ()
    features = tuple(_feature_codes(frame, column) for column in columns)
    count = np.bincount(coded.row_claim, weights=coded.row_weight, minlength=len(coded.claim_question))
    changes = OF_QUESTIONS in encodings
    settled, rejected = settled_cells(coded, cells, changes)
    frames = {OF_QUESTIONS: coded.questions}
    return Encoded(
        parts=parts,
        coded=coded,
        cells=cells,
        designs={
            part: encoding.design(frames.get(part, frame))._replace(own=claim_columns(frame, _of(own, part)))
            for part, encoding in encodings.items()
        },
        own_pairs=pair_columns(frame, _of(own, PAIRS)),
        features=features,
        attribute_level=1 + pd.Index(attributes, dtype=object).get_indexer(coded.questions["attribute"].astype(object)),
        affinity=affinity,
        affinity_code=None if affinity is None else affinity.codes(frame),
        text=_text(frame, origin),
        bias_level=None if bias is None else np.asarray(bias.design(frame).groups[0].index, np.int64),
        claim_offset=offsets(np.bincount(coded.claim_question, minlength=len(coded.questions))),
        row_offset=offsets(np.bincount(coded.row_claim, minlength=len(coded.claim_question))),
        row_cell=cells.of_answer[coded.row_answer],
        row_variant=_variants(coded, cells),
        row_share=coded.row_weight / count[coded.row_claim],
        denied_cell=_denied_cells(coded, cells),
        passing=bool((coded.claim_lasting < 1.0).any()),
        used=_used(coded, cells),
        origin=origin,
        errors=errors,
        settled_cell=settled,
        rejected_cells=rejected,
        confusion_start=np.where(errors.bias != "none", domains.confusion_start, -1),
        settled=settled_in_time(coded, cells) if changes else None,
        latest=_latest(coded),
    )


def _variants(coded: Coded, cells: Cells) -> Ints | None:
    out = np.zeros(len(coded.claim_question), np.int64)
    if cells.items is not None:
        out += cells.items.variant
    if cells.periods is not None:
        out += cells.periods.stated
    if cells.numbers is not None:
        code = cells.numbers.code[coded.row_answer[coded.row_start[:-1]]]
        out += np.where(cells.measured[coded.claim_question], code - cells.numbers.code.min(initial=0), 0)
    return out[coded.row_claim] if out.any() else None


def _used(coded: Coded, cells: Cells) -> NDArray[np.bool_]:
    """(J,) False for claims that are known to repeat another one and say the same, the variant of its value too."""
    variant = _variants(coded, cells)
    if variant is None:
        return coded.claim_origin < 0
    of_claim = variant[coded.row_start[:-1]]
    return (coded.claim_origin < 0) | (of_claim[coded.claim_origin] != of_claim)


def _denied_cells(coded: Coded, cells: Cells) -> Ints | None:
    denies, question = coded.claim_denied >= 0, coded.claim_question
    bad = denies & (cells.shaped & ~cells.sets)[question]
    if bad.any():
        row = coded.questions.iloc[question[bad][0]]
        raise ModelError(
            f"claims: column 'denies' is given in {int(bad.sum())} claims about numbers or states, first of entity "
            f"{row['entity']!r}, attribute {row['attribute']!r}; only answers that are one of several, and items of a "
            "list, can be denied"
        )
    # Of a list of items it is items that are denied.
    denies &= ~cells.shaped[question]
    return np.where(denies, cells.of_answer[np.maximum(coded.claim_denied, 0)], -1) if denies.any() else None


def _latest(coded: Coded) -> float:
    times = np.concatenate([coded.claim_time, coded.settled_time])
    return float(np.max(times[np.isfinite(times)], initial=-np.inf)) if np.isfinite(times).any() else 0.0


def _of(terms: tuple[OwnTerm, ...], part: str) -> tuple[OwnTerm, ...]:
    return tuple(term for term in terms if term.part == part)


def _feature_codes(frame: pd.DataFrame, column: str) -> Ints:
    if column not in frame:
        raise ModelError(
            f"Origin(strong=...): same_{column} needs column {column!r} in claims or sources; "
            f"there are {list(frame.columns)}"
        )
    codes = pd.factorize(frame[column])[0].astype(np.int64)
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise ModelError(
            f"Origin(strong=...): column {column!r} is missing in {(codes < 0).sum()} claims, "
            f"first in row {frame.iloc[row].to_dict()}; every claim needs a value"
        )
    return codes


def _text(frame: pd.DataFrame, origin: Origin | None) -> NDArray[np.object_] | None:
    if origin is None or origin.text is None:
        return None
    if origin.text not in frame:
        raise ModelError(f"Origin(text={origin.text!r}): no such column; there are {list(frame.columns)}")
    return frame[origin.text].fillna("").astype(str).to_numpy(object)
