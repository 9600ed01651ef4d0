"""Formulas of the trust hierarchy: text -> `Formula` -> `Encoding` (learned once, saved) -> `Design` (arrays).

``1 + hedging + (1|kind) + (1|kind:channel) + (1|source)`` has an intercept, a fixed effect and three sets of group
effects. The formula language and the rule for coding categories are those of the library `formulae`; an intercept is
implied unless the formula says ``0 +``, and ``(hedging|source)`` means ``(1|source) + (0 + hedging|source)``.

Columns of numbers are standardised: less their mean and over their standard deviation in the table that the encoding
was learned from, also in new tables. A coefficient is per standard deviation, the intercept holds at the mean, and
priors need no knowledge of units. Truth values stay 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from formulae.contrasts import pick_contrasts
from formulae.parser import Parser
from formulae.resolver import Resolver
from formulae.scanner import Scanner
from formulae.terms import GroupSpecificTerm, Intercept, Model, Term, Variable
from numpy.typing import NDArray

from nousppl.errors import FileError, ModelError
from nousppl.models.columns import NUMBER, Coded, Reader

INTERCEPT = "1"

Factor = tuple[str, str | None]
"""A column, and the category it is compared with (None: the column is a number, standardised)."""
Categories = Mapping[str, tuple[str, ...]]
"""Column -> its categories, reference first."""
Scale = tuple[float, float]
"""Mean and standard deviation of a column of numbers."""


class GroupTerm(NamedTuple):
    """One set of group effects, for example ``(1|kind:channel)`` or the slope in ``(hedging|source)``."""

    name: str
    """As formulae writes it: ``1|kind:channel``, ``hedging|source``."""
    factors: tuple[str, ...]
    """Columns whose combination names the group."""
    slope: str | None
    """Numeric column that the effect multiplies; None for a group intercept."""


@dataclass(frozen=True)
class Formula:
    """A parsed linear predictor; it knows columns by name only."""

    name: str
    """What is predicted, as errors call it: ``reliability``."""
    text: str
    """The formula as the user wrote it."""
    intercept: bool
    """Whether the fixed part has an intercept."""
    fixed: tuple[str, ...]
    """Names of the fixed terms without the intercept, main effects before interactions."""
    fixed_factors: tuple[tuple[str, ...], ...]
    """Columns of each fixed term."""
    groups: tuple[GroupTerm, ...]
    """The sets of group effects in the order of the formula."""

    @staticmethod
    def parse(name: str, text: str) -> Formula:
        """Parse `text`; cached. Raises ModelError, showing the formula, for anything that is not understood."""
        if not isinstance(text, str):
            raise ModelError(f"the formula of {name} must be text such as '1 + (1|source)', but it is {text!r}")
        return _parse(name, text)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that the formula needs, each once, fixed effects first."""
        used = [column for term in self.fixed_factors for column in term]
        for group in self.groups:
            used += [*group.factors, *([group.slope] if group.slope else [])]
        return tuple(dict.fromkeys(used))

    def __str__(self) -> str:
        return f"{self.name} = '{self.text}'"


@dataclass(frozen=True)
class GroupColumn:
    """One set of group effects on the rows of a table."""

    term: str
    """Name of the group term, as in `GroupTerm.name`."""
    index: NDArray[np.int32]
    """(J,) index into the levels of the encoding followed by `new_levels`."""
    new_levels: tuple[str, ...]
    """Labels that the encoding does not know, sorted, numbered after the known ones."""
    value: NDArray[np.float64]
    """(J,) what the effect is multiplied by: the slope's column, or ones."""


class Design(NamedTuple):
    """A formula on the rows of a table; row j of every array is row j of the table."""

    fixed: NDArray[np.float64]
    """(J, P) columns of the fixed effects, intercept first where there is one; P may be 0."""
    fixed_names: tuple[str, ...]
    """(P,) their names: ``1``, ``hedging``, ``kind[site]``, ``kind[site]:hedging``."""
    groups: tuple[GroupColumn, ...]
    """One for each group term of the formula, in its order."""
    own: NDArray[np.float64] = np.zeros((0, 0))
    """(reads, J) what the user's own terms read, as it stands."""


@dataclass(frozen=True)
class Encoding:
    """A formula and what was learned from a table, so that new tables get exactly the same columns."""

    formula: Formula
    kinds: Mapping[str, str]
    """Column -> "number", "text", "truth value" or "time"; a column seen without rows has no entry."""
    categories: Categories
    """Categorical column among the fixed effects -> its categories; the first is the reference."""
    fixed: tuple[tuple[Factor, ...], ...]
    """(P,) each column of the fixed effects as a product of factors; the empty product is the intercept."""
    levels: Mapping[str, tuple[str, ...]]
    """Group term -> its sorted levels; one of ``kind:channel`` is ``site:feed``, a colon in a label becomes ``\\:``."""
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """Column of numbers among the fixed effects and slopes -> its mean and standard deviation; others are used raw."""
    _positions: dict[str, dict[str, int]] = field(init=False, repr=False, compare=False, default_factory=dict)

    @cached_property
    def fixed_names(self) -> tuple[str, ...]:
        """(P,) names of the columns of the fixed effects."""
        return tuple(":".join(map(_factor_name, factors)) or INTERCEPT for factors in self.fixed)

    def design(self, frame: pd.DataFrame) -> Design:
        """Arrays of the formula on `frame` (J rows, none dropped).

        Raises ModelError for a missing column, a missing value, a column whose kind changed, and a category of a fixed
        effect that was not there at encoding. Levels of group terms that were not there become new levels.
        """
        reader = Reader(frame, str(self.formula))
        reader.require(self.formula.columns)
        for column, known in self.categories.items():
            self._refuse_unseen(reader, column, known)
        fixed = np.ones((reader.rows, len(self.fixed)))
        for p, factors in enumerate(self.fixed):
            for column, category in factors:
                part = self._number(reader, column) if category is None else reader.coded(column).equals(category)
                fixed[:, p] *= part
        return Design(fixed, self.fixed_names, tuple(self._group(reader, group) for group in self.formula.groups))

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "name": self.formula.name,
            "text": self.formula.text,
            "kinds": dict(self.kinds),
            "categories": {column: list(labels) for column, labels in self.categories.items()},
            "fixed": [[list(factor) for factor in factors] for factors in self.fixed],
            "levels": {term: list(labels) for term, labels in self.levels.items()},
            "scales": {column: list(scale) for column, scale in self.scales.items()},
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Encoding:
        """Back from `to_dict`. Raises FileError where something is missing or does not fit the formula."""
        try:
            formula = Formula.parse(saved["name"], saved["text"])
            encoding = cls(
                formula,
                dict(saved["kinds"]),
                {column: tuple(labels) for column, labels in saved["categories"].items()},
                tuple(tuple((column, level) for column, level in factors) for factors in saved["fixed"]),
                {term: tuple(labels) for term, labels in saved["levels"].items()},
                {column: (float(mean), float(sd)) for column, (mean, sd) in saved["scales"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileError(f"the saved encoding of a formula is damaged: {error!r}") from error
        if list(encoding.levels) != [group.name for group in formula.groups]:
            raise FileError(f"the saved encoding of {formula} has levels for {list(encoding.levels)} only")
        return encoding

    def _refuse_unseen(self, reader: Reader, column: str, known: tuple[str, ...]) -> None:
        coded = reader.coded(column, self.kinds.get(column))
        unseen = sorted(set(coded.labels).difference(known))
        if unseen:
            bad = np.isin(coded.codes, [coded.labels.index(label) for label in unseen])
            problem = f"holds {_listed(unseen)}, which this fixed effect does not know,"
            raise reader.error(column, bad, problem, f"allowed are {_listed(known)}")

    def _group(self, reader: Reader, group: GroupTerm) -> GroupColumn:
        coded = _combined([reader.coded(column, self.kinds.get(column)) for column in group.factors])
        known = self._known(group.name)
        new_levels = tuple(sorted(label for label in coded.labels if label not in known))
        numbers = {label: len(known) + i for i, label in enumerate(new_levels)}
        index = np.array([known[label] if label in known else numbers[label] for label in coded.labels], np.int32)
        value = np.ones(reader.rows) if group.slope is None else self._number(reader, group.slope)
        return GroupColumn(group.name, index[coded.codes], new_levels, value)

    def _number(self, reader: Reader, column: str) -> NDArray[np.float64]:
        mean, sd = self.scales.get(column, (0.0, 1.0))
        return (reader.numbers(column) - mean) / sd

    def _known(self, term: str) -> dict[str, int]:
        if term not in self._positions:
            self._positions[term] = {label: i for i, label in enumerate(self.levels[term])}
        return self._positions[term]


def encode(formula: Formula, frame: pd.DataFrame) -> Encoding:
    """Learn from `frame` what `formula` needs: kinds of columns, categories of fixed effects, levels of group terms.

    Numbers among the fixed effects and slopes are standardised, truth values are 0 and 1; text and categorical columns
    are coded against their first category, as formulae does. Raises ModelError as `Encoding.design` does.
    """
    reader = Reader(frame, str(formula))
    reader.require(formula.columns)
    categories = {}
    for column in dict.fromkeys(column for term in formula.fixed_factors for column in term):
        if reader.is_numeric(column):
            reader.numbers(column)
        else:
            categories[column] = reader.categories(column)
    for group in formula.groups:
        if group.slope is not None:
            _check_slope(reader, group, group.slope)
    levels = {g.name: tuple(sorted(_combined([reader.coded(c) for c in g.factors]).labels)) for g in formula.groups}
    kinds = {column: kind for column in formula.columns if (kind := reader.kind(column))}
    fixed = _fixed_columns(formula, categories)
    numeric = [column for factors in fixed for column, category in factors if category is None]
    slopes = [group.slope for group in formula.groups if group.slope is not None]
    scales = {c: scale for c in dict.fromkeys(numeric + slopes) if (scale := _scale(reader, c))}
    return Encoding(formula, kinds, categories, fixed, levels, scales)


def _scale(reader: Reader, column: str) -> Scale | None:
    """Mean and standard deviation of a column of numbers; of one that never varies only the mean is taken off."""
    if reader.kind(column) != NUMBER or not reader.rows:
        return None
    # Sorted, so that the order of the rows does not change the last bit.
    values = np.sort(reader.numbers(column))
    sd = float(values.std()) if values[0] < values[-1] else 1.0
    return float(values.mean()), sd


def _check_slope(reader: Reader, group: GroupTerm, slope: str) -> None:
    if not reader.is_numeric(slope):
        advice = f"for an effect per category write (1|{':'.join([*group.factors, slope])})"
        raise ModelError(f"{reader.where}: the slope {slope!r} of ({group.name}) is not a number; {advice}")
    reader.numbers(slope)


@lru_cache(maxsize=256)
def _parse(name: str, text: str) -> Formula:
    model = _model(name, text)
    terms = sorted((t for t in model.common_terms if isinstance(t, Term)), key=lambda term: len(term.components))
    intercept = any(isinstance(term, Intercept) for term in model.common_terms)
    where = f"{name} = '{text}'"
    factors = tuple(_columns_of(term, where) for term in terms)
    groups = tuple(_group_term(term, where) for term in model.group_terms)
    return Formula(name, text, intercept, tuple(map(":".join, factors)), factors, groups)


def _model(name: str, text: str) -> Model:
    where = f"{name} = '{text}'"
    try:
        tokens = Scanner(text).scan()
        parser = Parser(tokens)
        tree = parser.parse()
        # formulae stops reading where an expression is complete.
        if not parser.at_end():
            raise ValueError(f"it goes on where it should end, at '{parser.peek().lexeme}'")
        # formulae reads x**2 as x and says so in a log only.
        if any(b.kind == "STAR_STAR" and a.kind != "RIGHT_PAREN" for a, b in pairwise(tokens)):
            raise ValueError("the power of a column is not computed; add it to the table as a column of its own")
        model = Resolver(tree).resolve()
        model = model if isinstance(model, Model) else Model(model)
    except Exception as error:
        raise ModelError(f"{where} is not a formula: {error}") from error
    if model.response is not None:
        raise ModelError(f"{where}: only the right-hand side is wanted, without '~'")
    return model


def _columns_of(term: Term, where: str) -> tuple[str, ...]:
    for part in term.components:
        if not isinstance(part, Variable):
            raise ModelError(f"{where}: {part.name} is a function call; add it to the table as a column of its own")
        if not isinstance(part.name, str):
            raise ModelError(
                f"{where}: {part.name} is no column; of numbers only 1 (intercept) and 0 (none) are allowed"
            )
        if part.reference is not None:
            raise ModelError(f"{where}: {part.name}[{part.reference}] picks a category; write {part.name} alone")
    return tuple(part.name for part in term.components)


def _group_term(term: GroupSpecificTerm, where: str) -> GroupTerm:
    factors = _columns_of(term.factor, where)
    if isinstance(term.expr, Intercept):
        return GroupTerm(term.name, factors, None)
    slope = _columns_of(term.expr, where)
    if len(slope) > 1:
        raise ModelError(f"{where}: the slope of ({term.name}) must be one column, not {':'.join(slope)}")
    return GroupTerm(term.name, factors, slope[0])


def _fixed_columns(formula: Formula, categories: Categories) -> tuple[tuple[Factor, ...], ...]:
    """Products of factors that make up the fixed part, at full rank.

    Whether a term gets all its categories or all but the first is the choice of formulae (and patsy). Terms with the
    same numeric columns compete for the same space, so the choice is made within each such set.
    """
    terms = [((), INTERCEPT)] * formula.intercept + list(zip(formula.fixed_factors, formula.fixed, strict=True))
    spaces: dict[frozenset[str], dict[str, list[str]]] = {}
    for columns, name in terms:
        space = spaces.setdefault(frozenset(columns) - set(categories), {})
        space[name] = [column for column in columns if column in categories]
    codings = {name: coding for space in spaces.values() for name, coding in pick_contrasts(space).items()}
    return tuple(
        product
        for columns, name in terms
        for coding in codings[name]
        for product in _products(columns, coding, categories)
    )


def _products(columns: tuple[str, ...], coding: Mapping[str, bool], categories: Categories) -> list[tuple[Factor, ...]]:
    products: list[tuple[Factor, ...]] = [()]
    for column in columns:
        if column not in categories:
            products = [(*product, (column, None)) for product in products]
        elif column in coding:
            labels = categories[column][0 if coding[column] else 1 :]
            products = [(*product, (column, label)) for product in products for label in labels]
    return products


def _combined(parts: list[Coded]) -> Coded:
    """Codes of the combinations that occur; their labels joined by colons, with colons inside a label escaped."""
    if len(parts) == 1:
        return parts[0]
    return reduce(_pair, (Coded(part.codes, [_escaped(label) for label in part.labels]) for part in parts))


def _pair(left: Coded, right: Coded) -> Coded:
    width = max(len(right.labels), 1)
    codes, pairs = pd.factorize(left.codes * np.int64(width) + right.codes)
    return Coded(codes, [f"{left.labels[pair // width]}:{right.labels[pair % width]}" for pair in pairs])


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace(":", "\\:")


def _factor_name(factor: Factor) -> str:
    column, category = factor
    return column if category is None else f"{column}[{category}]"


def _listed(labels: Iterable[str], limit: int = 10) -> str:
    names = list(labels)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(repr, names[:limit])) + more
