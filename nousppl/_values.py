"""Values of claims and settled facts: one declared rule of equality, whatever column type they come in.

Numbers are equal by value (1 = 1.0), text exactly, booleans as booleans; values of different kinds are never equal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import EvidenceError
from nousppl.tables import Labels, Table, plain, shorten

KINDS = ("numbers", "text", "booleans")
NUMBER, TEXT, BOOLEAN = range(len(KINDS))
ALLOWED = "a number, a text or a boolean in every row, one kind within an attribute"
SameValue = Callable[[Any], Any] | Mapping[Any, Any]


@dataclass(frozen=True)
class Vocabulary:
    """Distinct values, in the order in which they were met."""

    values: NDArray[np.object_]
    """(V,) `str`, `bool`, or a number: `int` where it is whole, else `float`."""
    kinds: NDArray[np.int8]
    """(V,) NUMBER, TEXT or BOOLEAN."""

    def __len__(self) -> int:
        return len(self.values)

    def ranks(self, used: NDArray[np.int64]) -> NDArray[np.int64]:
        """Position of each of the `used` values (n distinct codes) when they are sorted by kind, then value."""
        rank = np.empty(len(used), dtype=np.int64)
        start = 0
        for kind in range(len(KINDS)):
            places = np.flatnonzero(self.kinds[used] == kind)
            rank[places[np.argsort(self.values[used[places]], kind="stable")]] = start + np.arange(len(places))
            start += len(places)
        return rank

    def hashes(self) -> NDArray[np.uint64]:
        """(V,) hash of each value; the same on every platform, and for 1 and 1.0."""
        found = np.empty(len(self), dtype=np.uint64)
        for kind, dtype in ((NUMBER, np.float64), (TEXT, object), (BOOLEAN, np.float64)):
            places = self.kinds == kind
            salted = pd.util.hash_array(self.values[places].astype(dtype), categorize=False)
            found[places] = salted ^ np.uint64(0x9E3779B97F4A7C15 * (kind + 1) & 0xFFFFFFFFFFFFFFFF)
        return found


def read_values(table: Table, same_value: SameValue | None = None) -> tuple[NDArray[np.int64], Vocabulary]:
    """Codes (rows,) of the column `value`, and their vocabulary; `same_value` has merged what is to be the same."""
    codes, found, kinds = _distinct(table, plain(table.frame["value"]))
    if same_value is not None:
        found = _merged(found, same_value)
        kinds = np.array([_kind(value) for value in found], dtype=np.int8)
        table.refuse("value", (kinds < 0)[codes], "same_value gave something else than a value", ALLOWED)
    blank = np.array([isinstance(value, str) and not value.strip() for value in found], dtype=bool)
    table.refuse("value", blank[codes], "a blank value", ALLOWED)
    endless = np.array(
        [kind == NUMBER and _endless(value) for kind, value in zip(kinds, found, strict=True)], dtype=bool
    )
    table.refuse("value", endless[codes], "a number that is not finite", ALLOWED)
    return _compact(codes, found, kinds)


def join(mine: Vocabulary, theirs: Vocabulary) -> tuple[Vocabulary, NDArray[np.int64]]:
    """Both vocabularies in one, `mine` first with its codes kept; and the new code of each of `theirs`."""
    both_values = np.concatenate([mine.values, theirs.values])
    both_kinds = np.concatenate([mine.kinds, theirs.kinds])
    codes, vocabulary = _compact(np.arange(len(both_values)), both_values, both_kinds)
    return vocabulary, codes[len(mine) :]


def _kind_conflict(
    attribute: NDArray[np.int64], kind: NDArray[np.int8], names: pd.Index
) -> tuple[NDArray[np.bool_], str] | None:
    """Rows of the rarer kind within their attribute, and words for it; None where each attribute has one kind."""
    count = np.bincount(attribute * len(KINDS) + kind, minlength=len(names) * len(KINDS)).reshape(
        len(names), len(KINDS)
    )
    mixed = np.flatnonzero((count > 0).sum(1) > 1)
    if not len(mixed):
        return None
    first = mixed[0]
    held = " and ".join(f"{KINDS[k]} ({count[first, k]} rows)" for k in np.flatnonzero(count[first]))
    rare = (attribute == first) & (kind != count[first].argmax())
    return rare, f"attribute {shorten(names[first])} mixes {held}; the rarer kind"


def refuse_mixed(table: Table, attribute: Labels, kinds: NDArray[np.int8]) -> None:
    conflict = _kind_conflict(attribute.codes, kinds, attribute.names)
    if conflict is not None:
        table.refuse("value", conflict[0], conflict[1], "numbers, text or booleans, one kind within an attribute")


def look_alikes(texts: pd.Series[str], within: pd.Series[int]) -> list[tuple[str, ...]]:
    """Groups of different `texts` of one group in `within` that look the same, sorted.

    They differ in case, spacing, accents, or letters of other scripts that are drawn alike.
    """
    frame = pd.DataFrame({"within": within, "text": texts}).drop_duplicates()
    codes, found = pd.factorize(frame["text"])
    frame["look"] = np.array([skeleton(text) for text in found], dtype=object)[codes]
    frame = frame[frame.duplicated(["within", "look"], keep=False)].sort_values(["within", "look", "text"])
    return [tuple(group) for _, group in frame.groupby(["within", "look"])["text"]]


# Letters of other scripts that are drawn like a Latin one, after case folding.
_DRAWN_ALIKE = str.maketrans(
    "авезкмнорстухіјѕһԁԛԝαβεζηικμνορτυχω",
    "abe3kmhopctyxijshdqwabezhikmvoptuxw",
)


def skeleton(text: str) -> str:
    """What a text looks like: compatibility forms, case, spacing, accents and look-alike letters folded away."""
    folded = text.casefold()
    if not folded.isascii():
        folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", folded).casefold())
        folded = "".join(sign for sign in folded if unicodedata.category(sign) not in ("Cf", "Mn"))
        folded = folded.translate(_DRAWN_ALIKE)
    return " ".join(folded.split())


def _kind(value: object) -> int:
    return _kind_of_type(type(value))


def _endless(number: Any) -> bool:
    try:
        return not np.isfinite(float(number))
    except OverflowError:
        return True


def _distinct(table: Table, cells: pd.Series[Any]) -> tuple[NDArray[np.int64], NDArray[np.object_], NDArray[np.int8]]:
    """Codes (rows,), distinct cells (V,) and their kinds (V,). Missing cells and cells of no kind are refused."""
    table.refuse("value", cells.isna().to_numpy(dtype=bool), "a missing value", ALLOWED)
    if cells.dtype != object:
        codes, found = pd.factorize(cells)
        found = np.asarray(found, dtype=object)
        kinds = np.array([_kind(value) for value in found], dtype=np.int8)
        table.refuse("value", (kinds < 0)[codes], f"a value of the kind {cells.dtype}", ALLOWED)
        return codes, found, kinds
    # Python holds 1 == True, so kinds are told apart before cells are.
    types, type_list = pd.factorize(np.array([*map(type, cells)], dtype=object))
    kinds = np.array([_kind_of_type(one) for one in type_list], dtype=np.int8)[types]
    table.refuse("value", kinds < 0, "a value of no known kind", ALLOWED)
    codes = np.empty(len(cells), dtype=np.int64)
    distinct: list[Any] = []
    distinct_kinds: list[int] = []
    for kind in range(len(KINDS)):
        places = kinds == kind
        codes[places], found = pd.factorize(cells.to_numpy()[places])
        codes[places] += len(distinct)
        distinct.extend(found)
        distinct_kinds.extend([kind] * len(found))
    return codes, _objects(distinct), np.array(distinct_kinds, dtype=np.int8)


def _kind_of_type(one: type) -> int:
    if issubclass(one, str):
        return TEXT
    if issubclass(one, (bool, np.bool_)):
        return BOOLEAN
    return NUMBER if issubclass(one, (int, float, np.integer, np.floating, Decimal, Fraction)) else -1


def _compact(
    codes: NDArray[np.int64], found: NDArray[np.object_], kinds: NDArray[np.int8]
) -> tuple[NDArray[np.int64], Vocabulary]:
    """Bring values into their one form each and merge those that have become equal."""
    known: dict[tuple[int, Any], int] = {}
    new = np.empty(len(found), dtype=np.int64)
    for place, (kind, value) in enumerate(zip(kinds.tolist(), found, strict=True)):
        new[place] = known.setdefault((kind, _form(kind, value)), len(known))
    return new[codes], Vocabulary(
        _objects([value for _, value in known]), np.array([kind for kind, _ in known], dtype=np.int8)
    )


def _form(kind: int, value: Any) -> Any:
    if kind == TEXT:
        return str(value)
    if kind == BOOLEAN:
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() else number


def standing(value: Any, same_value: SameValue | None) -> Any:
    """The value that stands for a value."""
    return value if same_value is None else _merged(_objects([value]), same_value)[0]


def _merged(found: NDArray[np.object_], same_value: SameValue) -> NDArray[np.object_]:
    if isinstance(same_value, Mapping):
        return _objects([same_value.get(value, value) for value in found])
    if not callable(same_value):
        raise EvidenceError(
            f"same_value: expected a function of one value, or a mapping, got {type(same_value).__name__}. "
            "Allowed: a function that gives the value that stands for it."
        )
    return _objects([same_value(value) for value in found])


def _objects(values: list[Any]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
