"""Model files: the arguments of ``TrustModel`` and of its fit, written in TOML.

Example::

    reliability = "1 + (1|kind) + (1|source)"
    freshness = "1 + (1|source)"
    change = "1 + (1|attribute)"   # log rate at which truths change; left out, they stay

    [origin]                  # origin = false: no echoes
    strong = "same_source + same_channel"
    lag = true

    [errors]
    popularity = true         # or the formula of log beta, "1 + (1|attribute)"
    difficulty = "auto"
    bias = "none"

    [answers]                 # number of plausible answers, or their closed list
    city = 5000
    stance = ["T", "F"]

    [shapes]                  # of attributes whose answers are not one of several
    allergy = "any_of"        # or a table, { shape = "any_of", separator = "," }

    [fit]
    method = "svi"            # or "nuts"
    backend = "numpyro"       # or "pyro"
    learn_from = "settled"
    seed = 0

    [fit.svi]                 # options of the method, as of nousppl.SVI; [fit.nuts] as of nousppl.NUTS
    steps = 8000
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from nousppl.errors import FileError, ModelError
from nousppl.inference.options import NUTS, SVI
from nousppl.models.shapes import SHAPES, Shape
from nousppl.models.specification import Errors, Origin

TOP = {"reliability": (str,), "freshness": (str,), "change": (str,), "base_rates": (str,)}
"""Keys at the top, and the kinds of value that they take."""
TABLES = ("origin", "errors", "answers", "shapes", "fit")
FIT = {"method": (str,), "learn_from": (str,), "seed": (int,), "backend": (str,)}
METHODS: dict[str, type[SVI] | type[NUTS]] = {"svi": SVI, "nuts": NUTS}
"""Tables of options within that of the fit."""
NUMBER = (float, int)
EITHER = {"popularity": (bool, str), "difficulty": (bool, str), "learning_rate": NUMBER, "tolerance": NUMBER}
EITHER |= dict.fromkeys(("resolution", "centre", "scale"), NUMBER)
"""Arguments that take values of several kinds."""
WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a model file.

    Args:
        path: a TOML file; see the module for an example.

    Returns:
        Arguments of ``TrustModel``, with ``Origin`` and ``Errors`` objects, and arguments of its ``fit``. What the file
        does not name is left to their defaults.

    Raises:
        FileError: the file cannot be read or is no TOML.
        ModelError: a key is unknown, or a value is not of the kind that its key takes.
        InferenceError: an option of the method is out of range.
    """
    document = _load(Path(path))
    _check_keys(document, (*TOP, *TABLES), f"{path}")
    model = {key: _kind(document[key], kinds, f"{path}: {key}") for key, kinds in TOP.items() if key in document}
    if "origin" in document:
        model["origin"] = _origin(document["origin"], f"{path}: [origin]")
    if "errors" in document:
        model["errors"] = Errors(**_arguments(document["errors"], Errors, f"{path}: [errors]"))
    if "answers" in document:
        model["answers"] = _answers(document["answers"], f"{path}: [answers]")
    if "shapes" in document:
        model["shapes"] = _shapes(document["shapes"], f"{path}: [shapes]")
    return model, _fit(document.get("fit", {}), f"{path}: [fit]")


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: not a TOML file ({error})") from error


def _check_keys(table: Mapping[str, Any], allowed: tuple[str, ...], place: str) -> None:
    unknown = [key for key in table if key not in allowed]
    if unknown:
        raise ModelError(f"{place}: unknown key {unknown[0]!r}; allowed are {', '.join(allowed)}")


def _kind(value: Any, kinds: tuple[type, ...], place: str) -> Any:
    if type(value) not in kinds:
        allowed = " or ".join(WORDS[kind] for kind in kinds)
        raise ModelError(f"{place} = {value!r}: must be {allowed}")
    return value


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ModelError(f"{place} must be a table, got {value!r}")
    return value


def _arguments(value: Any, owner: type, place: str) -> dict[str, Any]:
    """Arguments of a dataclass: its field names, each value of the kind of the default (None stands for text)."""
    table = _table(value, place)
    # An optimiser is an object, which no file holds.
    known = {field.name: _kinds(field) for field in fields(owner) if field.name != "optim"}
    _check_keys(table, tuple(known), place)
    return {key: _kind(given, known[key], f"{place} {key}") for key, given in table.items()}


def _kinds(field: Field[Any]) -> tuple[type, ...]:
    """Kinds of value that a field takes."""
    if field.name in EITHER:
        return EITHER[field.name]
    if field.default_factory is dict:
        return (dict,)
    return (str if field.default is None else type(field.default),)


def _origin(value: Any, place: str) -> Origin | None:
    if value is False:
        return None
    if not isinstance(value, dict):
        raise ModelError(f"{place} must be a table, or origin = false for no echoes; got {value!r}")
    arguments = _arguments(value, Origin, place)
    kept: dict[str, Any] = {key: given or None if key == "strong" else given for key, given in arguments.items()}
    return Origin(**kept)


def _answers(value: Any, place: str) -> dict[str, int | list[Any]]:
    table = _table(value, place)
    for attribute, given in table.items():
        if type(given) is int and given >= 2:
            continue
        if not (isinstance(given, list) and all(isinstance(answer, bool | int | float | str) for answer in given)):
            allowed = "a whole number from 2 (how many answers are plausible) or the closed list of answers"
            raise ModelError(f"{place} {attribute} = {given!r}: must be {allowed}")
    return dict(table)


def _shapes(value: Any, place: str) -> dict[str, Shape]:
    out: dict[str, Shape] = {}
    for attribute, given in _table(value, place).items():
        where = f"{place} {attribute}"
        options = dict(given) if isinstance(given, dict) else {"shape": given}
        name = options.pop("shape", None)
        if name not in SHAPES:
            raise ModelError(f"{where} = {given!r}: allowed are {', '.join(SHAPES)}, or a table with such a shape")
        out[attribute] = SHAPES[name](**_arguments(options, SHAPES[name], where))
    return out


def _fit(value: Any, place: str) -> dict[str, Any]:
    table = _table(value, place)
    _check_keys(table, (*FIT, *METHODS), place)
    out = {key: _kind(given, FIT[key], f"{place} {key}") for key, given in table.items() if key in FIT}
    given = [name for name in METHODS if name in table]
    name = out.get("method", *given[:1]) if given else None
    if given and given != [name]:
        raise ModelError(f"{place}: options of {' and '.join(given)}, and the method is {name!r}; allowed are its own")
    if name is not None:
        own = METHODS[name]
        out["method"] = own(**_arguments(table[name], own, place.replace("[fit]", f"[fit.{name}]")))
    return out
