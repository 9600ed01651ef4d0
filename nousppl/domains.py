"""Which answers an attribute may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.items import universe
from nousppl.models.shapes import AnyOf, Shape, WhileTrue
from nousppl.numbers import find_scales
from nousppl.statements import most_ends, read_statements

Ints = NDArray[np.int64]


Kind = TypeVar("Kind")
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
