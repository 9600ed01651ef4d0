"""Shapes of answers: what the truth of an attribute may be, and what its sources are described by.

A shape is a small object. It names the formulas of its sources' parameters; the array code of
``nousppl.models.any_of`` and its sisters gives the likelihood of a fresh claim under each possible truth (*cell*), and
``nousppl.shaped`` lays out those truths. Everything else, origins above all, is the same for all shapes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nousppl.errors import ModelError


@dataclass(frozen=True)
class OneOf:
    """One answer out of several, the default."""

    name: ClassVar[str] = "one of several"

    @property
    def formulas(self) -> dict[str, str]:
        """Part of the model -> formula, beyond those that all shapes share."""
        return {}


@dataclass(frozen=True)
class AnyOf:
    """Any of several items: allergies, authors, languages spoken.

    The truth says of every item whether it holds, items independently, each with the chance ``prevalence`` of its
    attribute (latent truth model, Zhao, Rubinstein, Gemmell & Han 2012, "A Bayesian approach to discovering truth from
    conflicting sources for data integration", PVLDB 5). A claim is a list of items as text, ``"milk; peanuts"``, blank
    text or "none" for the empty list. A fresh one names an item that holds with the source's sensitivity (its
    completeness: what it does not name is weak evidence against it) and leaves out one that does not hold with its
    specificity; of items that are not named it may deny some (column ``denies`` of the claims, a list like the value).
    A list is copied whole, so that a claim has one origin.

    The items of a question are those that its claims name or deny, or that are settled, and where the attribute has a
    closed list (``answers``) that list. Others of the attribute count as not true.

    Up to 12 items, or more that lists treat alike as long as there are at most 4,096 sets to tell apart, sums over sets
    are exact. Beyond, the items are in parts of up to 6 (64 sets), and the parts tell each other by belief propagation
    how probable it is of each list that it is a copy. That is exact where no list is a copy; else the origins of
    several claims count as independent given what each part says of them. Measured on questions of 12 items, half of
    their lists copies, probabilities are off by .0001 on average and .002 at most. Only a readable program of the sets
    (``Trust.program``) is refused.

    Attributes:
        sensitivity: formula of logit P(named | holds, fresh) over columns of claims and sources.
        specificity: formula of logit P(not named | does not hold, fresh).
        separator: between the items of a list.
        settled: "whole": a settled value lists all items that hold; "items": it lists items that hold, others may.
            A rejection (verdict "false") says of each of its items that it does not hold.
    """

    name: ClassVar[str] = "any of several"
    sensitivity: str = "1 + (1|source)"
    specificity: str = "1 + (1|source)"
    separator: str = ";"
    settled: str = "whole"

    def __post_init__(self) -> None:
        if self.settled not in ("whole", "items"):
            raise ModelError(f"AnyOf(settled={self.settled!r}): allowed are 'whole' and 'items'")
        if not isinstance(self.separator, str) or not self.separator.strip():
            raise ModelError(f"AnyOf(separator={self.separator!r}): give the text between two items, such as ';'")

    @property
    def formulas(self) -> dict[str, str]:
        """Part of the model -> formula, beyond those that all shapes share."""
        return {"sensitivity": self.sensitivity, "specificity": self.specificity}

    def items(self, value: Any) -> tuple[str, ...]:
        """The items of a list, sorted, each once; none of "none" or blank text."""
        parts = {part.strip() for part in str(value).split(self.separator)} - {""}
        return () if parts == {NO_ITEM} else tuple(sorted(parts))

    def text(self, items: tuple[str, ...]) -> str:
        """A list as text; `items` undoes it."""
        return f"{self.separator} ".join(items) if items else NO_ITEM


@dataclass(frozen=True)
class Number:
    """A number: a poll's margin, a year, a count of guests.

    The truth z is a real number, and what the sources can see of it is z times the slope of the attribute (learned from
    settled numbers; less than 1 where differences are understated) plus an error that they all share. A fresh claim is
    that plus the bias of its source and an error with its spread, with the chance that the source is reliable
    (``TrustModel(reliability=...)``), and any number like those that are claimed of the attribute else; rounded to the
    resolution. A repetition repeats the number. Numbers do not change over time.

    The model counts in units of the attribute: its scale is the robust standard deviation (1.48 times the median
    absolute deviation) of its claims in the evidence that is fitted, its centre their median. So bias, spread and
    shared error are the same in percent as in fractions, and their priors fit any unit.

    Attributes:
        resolution: values that round to the same multiple of it are the same; in the unit of the values.
        unit: shown beside numbers.
        bias: formula of a source's bias, in units of the attribute's scale, over columns of claims and sources.
        spread: formula of the log standard deviation of a source's error, in units of the attribute's scale.
        shared: formula of the log standard deviation of the error that the claims about a question share, in units of
            the attribute's scale; over columns of claims, of which the mean over the claims of the question counts.
            "1 + (1|attribute)" lets several attributes differ.
        centre: of the attribute, in place of the median of its claims.
        scale: in place of the robust standard deviation of its claims.
    """

    name: ClassVar[str] = "number"
    resolution: float
    unit: str = ""
    bias: str = "0 + (1|source)"
    spread: str = "1 + (1|source)"
    shared: str = "1"
    centre: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("resolution", self.resolution), ("scale", self.scale)):
            if value is not None and not (_is_number(value) and value > 0):
                raise ModelError(f"Number({name}={value!r}): allowed is a number above 0, in the unit of the values")
        if self.centre is not None and not _is_number(self.centre):
            raise ModelError(f"Number(centre={self.centre!r}): allowed is a number, in the unit of the values")
        if not isinstance(self.unit, str):
            raise ModelError(f"Number(unit={self.unit!r}): give text, such as '%'")

    @property
    def formulas(self) -> dict[str, str]:
        """Part of the model -> formula, beyond those that all shapes share."""
        return {"shift": self.bias, "spread": self.spread, "shared": self.shared}

    def text(self, value: float) -> str:
        """A number with its unit, to about a tenth of the resolution."""
        digits = max(1 - math.floor(math.log10(self.resolution)), 0)
        return f"{value:.{digits}f}{' ' if self.unit and self.unit[0].isalpha() else ''}{self.unit}"

    @staticmethod
    def number(value: Any) -> float | None:
        """A value as a number, text that reads as one too: a csv file whose column holds other values is all text. None
        where it is none."""
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except TypeError:
        return False


@dataclass(frozen=True)
class WhileTrue:
    """True for a while: travelling, on sick leave, closed for works. On until its end, then off; no fade before.

    Claims are True (it is so now) or False (it is not), with a time. Column ``until`` of the claims may state when it
    ends, ``until_sd`` how uncertain that is (standard deviation in days, or units of ``time``; blank for 0). The state
    is on up to and including its end; what ended does not come back, so that a second time is another question.

    The end is one latent number. At the first claim or settled fact of a question the state is on with a learned chance
    of its attribute (before that it counts as then). If it is on, one of K ends is the true one, each equally probable:
    those that claims state, points or normal laws, and ends that nobody stated, which are exponential with a learned
    mean duration; those that are stated come from that law too, and so tell how long states last. K is
    ``answers={attribute: K}``, or one more than claims state of one entity. A fresh claim is right about the state at
    its time with the source's reliability, and where it states an end, about that with the same reliability; how often
    ends are stated is learned. Questions have no difficulty, and wrong ends no popularity.
    """

    name: ClassVar[str] = "true for a while"

    @property
    def formulas(self) -> dict[str, str]:
        """Part of the model -> formula, beyond those that all shapes share."""
        return {}

    @staticmethod
    def state(value: Any) -> bool | None:
        """A value as a state, the texts "True" and "False" too: a csv file whose column holds other values is all text.
        None where it is none."""
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value.strip().lower())
        return bool(value) if isinstance(value, bool | np.bool_) else None


NO_ITEM = "none"
"""The empty list."""

Shape = OneOf | AnyOf | WhileTrue | Number
SHAPES: dict[str, type[Shape]] = {"one_of": OneOf, "any_of": AnyOf, "while_true": WhileTrue, "number": Number}
"""Shapes by the names that files know them under."""


def checked_shapes(given: Mapping[Any, Any] | None) -> dict[Any, Shape]:
    """Shapes by attribute, those that are the default left out.

    Raises:
        ModelError: something else than a shape; attributes of one shape whose formulas differ.
    """
    out: dict[Any, Shape] = {}
    first: dict[type, tuple[Any, dict[str, str]]] = {}
    for attribute, shape in (given or {}).items():
        if not isinstance(shape, Shape):
            names = ", ".join(f"nousppl.{one.__name__}()" for one in SHAPES.values())
            raise ModelError(f"shapes[{attribute!r}] = {shape!r}: allowed are {names}")
        known, formulas = first.setdefault(type(shape), (attribute, shape.formulas))
        if formulas != shape.formulas:
            raise ModelError(
                f"shapes[{attribute!r}] and shapes[{known!r}] differ in their formulas, {shape.formulas} and "
                f"{formulas}; all attributes of a shape share them: let them depend on the attribute by a term such as "
                "(1|attribute)"
            )
        if not isinstance(shape, OneOf):
            out[attribute] = shape
    return out
