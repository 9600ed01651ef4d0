"""First half of compilation: evidence and a model's encoding -> flat numpy tables of claims, rows and cells.

It is done once for an evidence and a trust; ``nousppl.compile`` then cuts out any set of questions quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.affinity import Affinities
from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.items import Items, find_items, universe
from nousppl.models.hierarchy import Design, Encoding
from nousppl.models.program import OF_QUESTIONS
from nousppl.models.shapes import AnyOf, Shape, WhileTrue
from nousppl.models.specification import Errors, Origin
from nousppl.models.terms import PAIRS, OwnTerm
from nousppl.numbers import Numbers, find_numbers, find_scales
from nousppl.own import PairColumns, claim_columns, pair_columns
from nousppl.periods import Periods, find_periods
from nousppl.ragged import offsets
from nousppl.sets import as_text, ways
from nousppl.settled import Settled, settled_cells, settled_in_time
from nousppl.statements import most_ends, read_statements

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


Kind = TypeVar("Kind")
NUMBER = "number"
"""Stands for the answer of a question about a number, which has one cell whatever is claimed."""
CONFUSED = 20
"""Longest closed lists whose wrong answers have a learned law; in longer ones all are alike."""


@dataclass(frozen=True)
class Domains:
    """Which answers an attribute may have.

    Attributes:
        closed: attribute -> the complete list of its answers.
        size: attribute -> K, number of plausible answers of an open domain.
        declared: open attributes whose K the user gave.
        shapes: attribute -> shape, where it is not one of several.
        scales: attribute -> centre and scale, where it is a number.
    """

    closed: Mapping[Any, tuple[Any, ...]]
    size: Mapping[Any, int]
    declared: frozenset[Any] = frozenset()
    shapes: Mapping[Any, Shape] = field(default_factory=dict)
    scales: Mapping[Any, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, answers: Mapping[Any, Any] | None, evidence: Evidence | None, shapes: Mapping[Any, Shape] | None = None
    ) -> Domains:
        """Domains as given, and for the other attributes one more than the different values that the evidence names.

        Raises:
            ModelError: K below 2, an empty or repeated list.
        """
        closed: dict[Any, tuple[Any, ...]] = {}
        size: dict[Any, int] = {}
        for attribute, given in (answers or {}).items():
            if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
                if given < 2:
                    raise ModelError(f"answers[{attribute!r}] = {given}: a question needs at least 2 plausible answers")
                size[attribute] = int(given)
                continue
            if isinstance(given, str) or not hasattr(given, "__iter__"):
                raise ModelError(f"answers[{attribute!r}] = {given!r}: give K (a whole number) or the list of answers")
            values = tuple(given)
            if len(set(values)) < len(values) or len(values) < 2:
                raise ModelError(
                    f"answers[{attribute!r}] = {list(values)!r}: a closed list needs 2 or more different answers"
                )
            closed[attribute] = values
        declared = frozenset(size)
        named = {} if evidence is None else _named_sizes(evidence, shapes or {})
        coded = None if evidence is None else evidence.coded
        return cls(closed, named | size, declared, shapes or {}, find_scales(coded, shapes or {}, {}, answers or {}))

    @property
    def classes(self) -> tuple[tuple[Any, Any], ...]:
        """(attribute, answer) of all closed lists, in order: the axis of class biases and base rates."""
        return tuple((attribute, value) for attribute, values in self.lists.items() for value in values)

    @property
    def lists(self) -> dict[Any, tuple[Any, ...]]:
        """Closed lists of one-of-several answers; those of items of other shapes are no classes."""
        return {attribute: values for attribute, values in self.closed.items() if attribute not in self.shapes}

    @property
    def lasting(self) -> tuple[Any, ...]:
        """Attributes whose answers are true for a while."""
        return tuple(attribute for attribute, shape in self.shapes.items() if isinstance(shape, WhileTrue))

    def of_shape(self, kind: type[Kind]) -> dict[Any, Kind]:
        """Attributes of a shape."""
        return {attribute: shape for attribute, shape in self.shapes.items() if isinstance(shape, kind)}

    @property
    def confusion_start(self) -> Ints:
        """(classes,) where the pairs of each true answer lie among all pairs of a true and a wrong
        answer, which go by true answer and then by wrong one; -1 where there are none: lists of two answers, and long
        ones. The pair with the answer ``d`` places on in the list is ``d - (d > 0)`` places on."""
        starts: list[int] = []
        total = 0
        for values in self.lists.values():
            wrong = len(values) - 1 if is_confused(values) else 0
            starts += [total + i * wrong + i if wrong else -1 for i in range(len(values))]
            total += len(values) * wrong
        return np.array(starts, np.int64)

    @property
    def confusion_rows(self) -> Ints:
        """(pairs,) row of each pair of a true and a wrong answer."""
        wrong = [len(values) - 1 for values in self.lists.values() if is_confused(values) for _ in values]
        return np.repeat(np.arange(len(wrong)), wrong)

    @property
    def attributes(self) -> tuple[Any, ...]:
        """All attributes, in the order of their effects."""
        return tuple(dict.fromkeys([*self.closed, *self.size]))

    def with_evidence(self, evidence: Evidence) -> Domains:
        """The same domains, with attributes that only this evidence has, and never fewer answers than it names."""
        named = _named_sizes(evidence, self.shapes)
        merged = {
            a: self.size[a] if a in self.declared else max(self.size.get(a, 2), named.get(a, 2))
            for a in {**self.size, **named}
        }
        scales = find_scales(evidence.coded, self.shapes, self.scales)
        return Domains(self.closed, merged, self.declared, self.shapes, scales)


def is_confused(answers: Any) -> bool:
    """Whether a declared domain is a closed list short enough for learned rows of confusion."""
    return hasattr(answers, "__iter__") and not isinstance(answers, str) and 2 < len(list(answers)) <= CONFUSED


def _named_sizes(evidence: Evidence, shapes: Mapping[Any, Shape]) -> dict[Any, int]:
    """Number of different values named in each attribute, plus one; of items where it is set-valued, of ends that are
    stated of one entity where it is true for a while."""
    coded = evidence.coded
    attribute = coded.question_attribute[coded.answers["question"].to_numpy()]
    codes = pd.factorize(coded.answers["value"])[0]
    pairs = np.unique(attribute.astype(np.int64) * (len(codes) + 1) + codes) // (len(codes) + 1)
    counts = np.bincount(pairs, minlength=len(coded.attributes))
    sizes = {a: max(int(n) + 1, 2) for a, n in zip(coded.attributes, counts, strict=True)}
    sets = {a: shape for a, shape in shapes.items() if isinstance(shape, AnyOf) and a in sizes}
    sizes |= {a: len(universe(coded, a, shape, None)) for a, shape in sets.items()}
    lasting = [a for a, shape in shapes.items() if isinstance(shape, WhileTrue)]
    return sizes | (most_ends(coded, read_statements(evidence, lasting), lasting) if lasting else {})


@dataclass(frozen=True)
class Cells:
    """Answers of all questions end to end: the named ones in sorted order and then "other", or the closed list."""

    offset: Ints
    """(Q + 1,)"""
    value: NDArray[np.object_]
    other: NDArray[np.bool_]
    count: Floats
    """Number of answers that the cell stands for."""
    klass: Ints
    """Index into `Domains.classes`; -1 where the domain is open."""
    size: Floats
    """(Q,) K."""
    closed: NDArray[np.bool_]
    """(Q,)"""
    of_answer: Ints
    """(named answers,) cell of each row of ``coded.answers``."""
    items: Items | None = None
    """Of set-valued questions; None where there are none."""
    numbers: Numbers | None = None
    """Of questions about numbers, which have one cell each; None where there are none."""
    periods: Periods | None = None
    """Of questions about what is true for a while; None where there are none."""

    @property
    def shaped(self) -> NDArray[np.bool_]:
        """(Q,) whether a question has another shape than one of several."""
        out = np.zeros(len(self.size), bool)
        for shape in (self.items, self.periods, self.numbers):
            if shape is not None:
                out |= shape.attribute >= 0
        return out

    @property
    def sets(self) -> NDArray[np.bool_]:
        """(Q,) whether a question is set-valued."""
        return np.zeros(len(self.size), bool) if self.items is None else self.items.attribute >= 0

    @property
    def measured(self) -> NDArray[np.bool_]:
        """(Q,) whether a question is about a number."""
        return np.zeros(len(self.size), bool) if self.numbers is None else self.numbers.attribute >= 0


@dataclass(frozen=True)
class Encoded:
    """Everything about each claim that the model needs, for all claims of an evidence."""

    coded: Coded
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
    coded = evidence.coded
    frame = evidence.covariates
    cells = build_cells(coded, frame, domains, find_periods(evidence, domains.lasting, domains.closed, domains.size))
    columns = origin.columns if origin is not None else ()
    features = tuple(_feature_codes(frame, column) for column in columns)
    count = np.bincount(coded.row_claim, weights=coded.row_weight, minlength=len(coded.claim_question))
    changes = OF_QUESTIONS in encodings
    settled, rejected = settled_cells(coded, cells, changes)
    frames = {OF_QUESTIONS: coded.questions}
    return Encoded(
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
        out += cells.items.denied
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
    # Of a list of items it is items that are denied.
    denies = (coded.claim_denied >= 0) & ~cells.shaped[coded.claim_question]
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


def build_cells(coded: Coded, frame: pd.DataFrame, domains: Domains, periods: Periods | None = None) -> Cells:
    """Lay out the answers of all questions.

    Args:
        coded: the evidence.
        frame: covariates of its claims.
        domains: of the model.
        periods: of what is true for a while.

    Raises:
        ModelError: a value outside a closed list, or K smaller than the number of named answers.
    """
    question = coded.answers["question"].to_numpy(np.int64)
    values = coded.answers["value"].to_numpy(object)
    attributes = list(coded.attributes)
    lists, sets = domains.lists, domains.of_shape(AnyOf)
    items = find_items(coded, frame, sets, domains.closed, {**domains.size, **_counts(domains.closed)})
    numbers = find_numbers(coded, domains.shapes, domains.scales)
    of_sets = items.attribute >= 0
    lasting = np.zeros(len(of_sets), bool) if periods is None else periods.attribute >= 0
    measured = np.zeros(len(of_sets), bool) if numbers is None else numbers.attribute >= 0
    is_closed = np.array([a in lists for a in attributes], bool)
    lengths = [len(lists[a]) if a in lists else 0 for a in attributes]
    sizes = np.array([lengths[i] or domains.size.get(a, 2) for i, a in enumerate(attributes)], float)
    attribute = coded.question_attribute
    closed = is_closed[attribute] | of_sets | lasting | measured
    named = np.bincount(question, minlength=len(coded.questions))
    size = np.where(closed, sizes[attribute], np.maximum(sizes[attribute], named + 1.0))
    _refuse_small_domains(coded, domains, named, attribute)
    count = np.where(closed, np.array(lengths, np.int64)[attribute], named + 1)
    for one, cells_of_it in items.cells().items():
        count[one] = cells_of_it
        # What a repetition that goes wrong comes out as: any items named, any others denied.
        size[one] = max(3.0 ** len(items.names(one)), 2.0)
    if periods is not None:
        count = np.where(lasting, periods.sizes(), count)
        # It is not so, it is so, it is so until one of the ends.
        size = np.where(lasting, periods.ends + 2.0, size)
    if numbers is not None:
        count[measured], size[measured] = 1, numbers.size(numbers.attribute[measured])
    offset = offsets(count)
    rank = np.arange(len(question)) - offsets(named)[question]
    place = np.where(of_sets[question], items.cell_of(question, items.answer_set), rank)
    of_answer = offset[question] + np.where(lasting[question], values == True, place)  # noqa: E712
    of_answer[measured[question]] = offset[question[measured[question]]]
    total = int(offset[-1])
    value = np.empty(total, object)
    klass = np.full(total, -1, np.int64)
    for i, a in enumerate(attributes):
        if a in lists:
            first_class = [c[0] for c in domains.classes].index(a)
            _place_closed(coded, lists[a], i, offset, question, values, of_answer, value, klass, first_class)
    is_open_answer = ~closed[question]
    _refuse_other(coded, question, values, is_open_answer)
    value[of_answer[is_open_answer]] = values[is_open_answer]
    for one in items.groups:
        shape = sets[items.attributes[items.attribute[one]]]
        value[offset[one] : offset[one + 1]] = as_text(items, shape, one)
    if periods is not None:
        value[np.repeat(lasting, count)] = periods.labels()
    value[offset[:-1][measured]] = NUMBER
    other = np.zeros(total, bool)
    last = offset[1:][~closed] - 1
    other[last] = True
    value[last] = "other"
    stands_for = np.ones(total)
    stands_for[last] = (size - named)[~closed]
    for one in items.groups:
        stands_for[offset[one] : offset[one + 1]] = ways(items, one)
    found = items if sets else None
    return Cells(offset, value, other, stands_for, klass, size, closed, of_answer, found, numbers, periods)


def _counts(closed: Mapping[Any, tuple[Any, ...]]) -> dict[Any, int]:
    return {attribute: len(values) for attribute, values in closed.items()}


def _place_closed(
    coded: Coded,
    answers: tuple[Any, ...],
    attribute: int,
    offset: Ints,
    question: Ints,
    values: NDArray[np.object_],
    of_answer: Ints,
    value: NDArray[np.object_],
    klass: Ints,
    first_class: int,
) -> None:
    """Fill in the cells of the questions of one attribute with a closed list."""
    mine = np.flatnonzero(coded.question_attribute[question] == attribute)
    place = pd.Index(answers, dtype=object).get_indexer(pd.Index(values[mine], dtype=object))
    if (place < 0).any():
        bad = mine[np.flatnonzero(place < 0)]
        row = coded.questions.iloc[question[bad[0]]]
        raise ModelError(
            f"answers: {len(bad)} answers of attribute {coded.attributes[attribute]!r} are outside its closed list, "
            f"first {values[bad[0]]!r} (entity {row['entity']!r}); allowed are {list(answers)}"
        )
    of_answer[mine] = offset[question[mine]] + place
    starts = offset[:-1][coded.question_attribute == attribute]
    where = starts[:, None] + np.arange(len(answers))
    value[where] = np.array([*answers, None], object)[:-1]
    klass[where] = first_class + np.arange(len(answers))


def _refuse_other(coded: Coded, question: Ints, values: NDArray[np.object_], is_open: NDArray[np.bool_]) -> None:
    """ "other" is the name of the answers that nobody named."""
    bad = np.flatnonzero(is_open & (values == "other"))
    if len(bad):
        row = coded.questions.iloc[question[bad[0]]]
        raise ModelError(
            f"claims: {len(bad)} questions name the answer 'other', first entity {row['entity']!r}, attribute "
            f"{row['attribute']!r}; in an open domain that is the name of all answers that nobody named: rename it, or "
            "give the closed list of answers"
        )


def _refuse_small_domains(coded: Coded, domains: Domains, named: Ints, attribute: NDArray[np.int32]) -> None:
    for i, a in enumerate(coded.attributes):
        if a in domains.declared and a not in domains.shapes:
            over = np.flatnonzero((attribute == i) & (named > domains.size[a]))
            if len(over):
                row = coded.questions.iloc[over[0]]
                raise ModelError(
                    f"answers[{a!r}] = {domains.size[a]}: {len(over)} questions name more answers, first entity "
                    f"{row['entity']!r} with {named[over[0]]}; K must be at least the number of named answers"
                )
