"""Values as text: written exactly to files, shortly to tables, and read back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

KINDS = ("number", "text", "boolean")
"""Kinds of values; values of different kinds are never the same."""


def kind_of(value: Any) -> str:
    """Kind of a value: "boolean", "number" or "text" (everything else)."""
    if isinstance(value, bool | np.bool_):
        return "boolean"
    return "number" if isinstance(value, int | float | np.integer | np.floating) else "text"


def plain(value: Any) -> Any:
    """The value as a plain Python bool, int, float or str; whole floats become ints, so that 1.0 is written as 1 is."""
    item = value.item() if isinstance(value, np.generic) else value
    if isinstance(item, float) and item.is_integer():
        return int(item)
    return item if isinstance(item, bool | int | float | str) else str(item)


def same(first: Any, second: Any) -> bool:
    """Whether two values are the same: numbers by value (1 is 1.0), text exactly, booleans as booleans."""
    return kind_of(first) == kind_of(second) and bool(first == second)


def write(value: Any) -> str:
    """Exact text of a value; :func:`read` with its kind gives the value back."""
    item = plain(value)
    return repr(item) if isinstance(item, float) else str(item)


def read(text: str, kind: str) -> Any:
    """The value that :func:`write` wrote.

    Raises:
        ValueError: the text is no value of this kind.
    """
    if kind == "text":
        return text
    if kind == "boolean" and text in ("True", "False"):
        return text == "True"
    if kind == "number":
        return plain(float(text)) if any(sign in text for sign in ".enif") else int(text)
    raise ValueError(f"{text!r} is no {kind}; kinds are {', '.join(KINDS)}, booleans are True and False")


def show(value: Any, width: int = 60) -> str:
    """Short text of a value for tables: at most ``width`` characters."""
    item = plain(value)
    text = f"{item:.6g}" if isinstance(item, float) else str(item)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def question_names(entities: Iterable[Any], attributes: Iterable[Any]) -> list[str]:
    """One short name for each question."""
    return [f"{show(entity)} · {show(attribute)}" for entity, attribute in zip(entities, attributes, strict=True)]
