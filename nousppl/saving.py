"""A trust in one netCDF file: draws as arviz reads them, the encoding as JSON beside them."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from nousppl.affinity import Affinities
from nousppl.blueprint import Blueprint, assemble
from nousppl.domains import Domains, is_confused
from nousppl.errors import FileError, ModelError, NousError
from nousppl.model import TrustModel
from nousppl.models.hierarchy import Encoding
from nousppl.models.priors import Prior
from nousppl.models.shapes import SHAPES, AnyOf, Number, Shape, WhileTrue
from nousppl.models.specification import Errors, Origin
from nousppl.models.terms import Declared, declare, full_name
from nousppl.value_text import question_names

if TYPE_CHECKING:
    from nousppl.trust import Trust

Functions = Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]]
"""Terms of the user's own, or these by the name that a file knows them under."""
FORMAT = 3
"""Version of the layout of the file; files with a higher one are refused."""
WITHOUT_SHAPES = 2
"""The same of a trust whose answers are all one of several, which earlier versions read too."""
WITHOUT_TERMS = 1
"""The same of one whose model has no terms of the user's own either."""
MARK = "nousppl_trust"
ANSWERS = {
    "base_rates": "answer",
    "errors_bias": "answer",
    "errors_confusion": "answer_pair",
    "errors_bias|source": "source_answer",
    "errors_confusion|source": "source_answer_pair",
}
"""Sites with an element an answer, or a pair of a true and a wrong one, -> name of that dimension."""
BY_ATTRIBUTE: dict[str, tuple[str, type[Shape]]] = {
    "numbers_log_scale": ("number attribute", Number),
    "numbers_log_slope": ("number attribute", Number),
    "items_logit_prevalence": ("set attribute", AnyOf),
    "state_logit_on": ("state attribute", WhileTrue),
    "state_log_duration": ("state attribute", WhileTrue),
    "state_logit_stated": ("state attribute", WhileTrue),
}
"""Sites with an element an attribute of one shape -> name of that dimension, and the shape."""


def datasets(trust: Trust) -> dict[str, xr.Dataset]:
    """Group -> dataset with named dimensions, as arviz expects them: posterior, sample_stats and constant_data (the
    table of sources)."""
    out = {"posterior": named(trust.blueprint, trust.posterior_draws)}
    if trust.sample_stats:
        stats = {name: np.atleast_2d(value) for name, value in trust.sample_stats.items()}
        # The loss of an SVI fit is per step, not per draw.
        axis = "step" if "loss" in stats else "draw"
        first = next(iter(stats.values()))
        coords = {"chain": np.arange(first.shape[0]), axis: np.arange(first.shape[1])}
        out["sample_stats"] = xr.Dataset({name: (("chain", axis), value) for name, value in stats.items()}, coords)
    if len(trust.table):
        out["constant_data"] = xr.Dataset.from_dataframe(trust.table)
    return out


def named(blueprint: Blueprint, draws: Mapping[str, NDArray[np.float64]]) -> xr.Dataset:
    """Draws of the parameters, (chain, draw, ...), with the names of their levels."""
    data = xr.Dataset(coords=_coordinates(blueprint, draws))
    for name, value in draws.items():
        dims = ("chain", "draw", *_dimension(blueprint, name)[: value.ndim - 2])
        data[quoted(name)] = (dims, value)
    return data


def by_question(values: NDArray[np.float64], questions: pd.DataFrame) -> xr.DataArray:
    """(chain, draw, question) values with the names of the questions."""
    names = question_names(questions["entity"], questions["attribute"])
    coords = {
        "chain": np.arange(values.shape[0]),
        "draw": np.arange(values.shape[1]),
        "question": names,
        "entity": ("question", questions["entity"].to_numpy(object)),
        "attribute": ("question", questions["attribute"].to_numpy(object)),
    }
    return xr.DataArray(values, coords, ("chain", "draw", "question"), "questions")


def _coordinates(blueprint: Blueprint, draws: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    first = next(iter(draws.values()))
    coords: dict[str, Any] = {"chain": np.arange(first.shape[0]), "draw": np.arange(first.shape[1])}
    for part, encoding in blueprint.encodings.items():
        for term, levels in encoding.levels.items():
            name = f"{part}_{term}"
            if name in draws:
                coords[_dimension(blueprint, name)[0]] = np.array(levels, object)
    if "errors_logit_hard|attribute" in draws:
        names = [str(name) for name in blueprint.domains.attributes]
        coords[_dimension(blueprint, "errors_logit_hard|attribute")[0]] = np.array(names, object)
    for name, (dimension, shape) in BY_ATTRIBUTE.items():
        if name in draws:
            coords[dimension] = np.array([str(attribute) for attribute in blueprint.domains.of_shape(shape)], object)
    affinity = blueprint.affinity
    if affinity is not None and "origin_affinity" in draws:
        pairs = [
            (affinity.labels[i], affinity.labels[j]) for i, j in zip(affinity.later, affinity.earlier, strict=True)
        ]
        coords["pair"] = np.array([f"{later} <- {earlier}" for later, earlier in pairs], object)
    return coords | _answer_coordinates(blueprint, draws)


def _answer_coordinates(blueprint: Blueprint, draws: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Names of the answers of closed lists, of the pairs of a true and a wrong one, and of both by source."""
    domains = blueprint.domains
    answers = [f"{attribute}={answer}" for attribute, answer in domains.classes]
    confused = [(a, values) for a, values in domains.lists.items() if is_confused(values)]
    pairs = [f"{a}: {true} -> {wrong}" for a, v in confused for true in v for wrong in v if wrong != true]
    coords: dict[str, list[str]] = {}
    for name, labels in (("errors_bias", answers), ("base_rates", answers), ("errors_confusion", pairs)):
        if name in draws:
            coords[_dimension(blueprint, name)[0]] = labels
        if f"{name}|source" in draws and blueprint.bias is not None:
            sources = next(iter(blueprint.bias.levels.values()))
            both = [f"{source} · {label}" for source in sources for label in labels]
            coords[_dimension(blueprint, f"{name}|source")[0]] = both
    return {name: np.array(labels, object) for name, labels in coords.items()}


def _dimension(blueprint: Blueprint, name: str) -> tuple[str, ...]:
    """Name of the last axis of a site: ``source`` for the effects of ``(1|source)``."""
    if name in ANSWERS:
        return (ANSWERS[name],)
    if name in BY_ATTRIBUTE:
        return (BY_ATTRIBUTE[name][0],)
    if name == "errors_logit_hard|attribute":
        # A formula's groups are the attributes of the claims, these are all that the model knows.
        terms = [term for encoding in blueprint.encodings.values() for term in encoding.levels]
        return ("errors attribute" if any(term.endswith("|attribute") for term in terms) else "attribute",)
    if name == "origin_affinity":
        return ("pair",)
    part, _, term = name.partition("_")
    if "|" in term:
        group = quoted(term.partition("|")[2])
        # All formulas see the same claims, so a group has the same levels in all.
        known = [encoding.levels[term] for encoding in blueprint.encodings.values() if term in encoding.levels]
        same = all(levels == known[0] for levels in known)
        return (group if same else f"{part} {group}",)
    return (f"{quoted(name)}_dim",)


def quoted(name: str) -> str:
    """netCDF names hold no slash."""
    return name.replace("%", "%25").replace("/", "%2F")


def save(trust: Trust, path: Path) -> None:
    """Write a trust; the file appears whole or not at all.

    Raises:
        FileError: the file cannot be written.
    """
    older = WITHOUT_SHAPES if trust.model.declared else WITHOUT_TERMS
    written = FORMAT if trust.model.shapes else older
    root = xr.Dataset(
        attrs={MARK: written, "nousppl_version": version("nousppl"), "nousppl": json.dumps(_description(trust))}
    )
    tree = xr.DataTree.from_dict({"/": root} | {f"/{name}": data for name, data in datasets(trust).items()})
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        os.close(handle)
        try:
            tree.to_netcdf(temporary, engine="h5netcdf")
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"{path}: the trust cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_tree(path: Path) -> Any:
    """All groups of a netCDF file, in memory."""
    # xarray adds a filter of its own when it opens a tree; the filters belong to the user.
    with warnings.catch_warnings(), xr.open_datatree(path, engine="h5netcdf") as opened:
        return opened.load()


def load(path: Path, terms: Functions = ()) -> Trust:
    """Read a trust; see ``nousppl.load``.

    Raises:
        FileError: missing, damaged, not a trust, or from a newer version.
        ModelError: the terms given are not those that the trust was learned with.
    """
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        tree = read_tree(path)
    except Exception as error:  # h5py and xarray raise many kinds for damaged bytes
        raise FileError(
            f"{path}: not a readable netCDF file (truncated, damaged or of another kind): {error}"
        ) from error
    if MARK not in tree.attrs:
        raise FileError(f"{path}: a netCDF file, but not one that nousppl saved; use Trust.save")
    found = int(tree.attrs[MARK])
    if found > FORMAT:
        raise FileError(
            f"{path}: written by nousppl {tree.attrs.get('nousppl_version')} in format {found}; "
            f"this version reads up to {FORMAT}; upgrade nousppl"
        )
    own = _own(tree, terms, path)
    try:
        return _restore(tree, own)
    except (KeyError, ValueError, TypeError, NousError) as error:
        raise FileError(f"{path}: the saved trust is damaged: {error!r}") from error


def _description(trust: Trust) -> dict[str, Any]:
    blueprint, model = trust.blueprint, trust.model
    encodings = {**blueprint.encodings, "bias": blueprint.bias}
    domains = blueprint.domains
    return {
        "model": {
            "reliability": model.reliability,
            "change": model.change,
            "freshness": model.freshness,
            "origin": None if model.origin is None else asdict(model.origin),
            "errors": asdict(model.errors),
            "base_rates": model.base_rates,
            "answers": [[a, _plain(v if np.isscalar(v) else list(v))] for a, v in model.answers.items()],
            "shapes": [[_plain(a), _shape_name(s), asdict(s)] for a, s in model.shapes.items()],
            "priors": {part: {n: list(p) for n, p in given.items()} for part, given in model.given_priors.items()},
            "order_seed": model.order_seed,
            "terms": {part: [_term(one) for one in declared] for part, declared in model.declared.items()},
        },
        "encodings": {name: None if e is None else e.to_dict() for name, e in encodings.items()},
        "closed": [[_plain(a), [_plain(x) for x in v]] for a, v in domains.closed.items()],
        "size": [[_plain(a), k] for a, k in domains.size.items()],
        "scales": [[_plain(a), list(pair)] for a, pair in domains.scales.items()],
        "declared": [_plain(a) for a in domains.declared],
        "affinity": None if blueprint.affinity is None else _affinity_plain(blueprint.affinity),
        "text_grid": None if blueprint.text_grid is None else list(blueprint.text_grid),
        "denials": blueprint.denials,
        "record": {name: _plain(value) for name, value in trust.record.items()},
        "seen": [[_plain(x) for x in pair] for pair in sorted(trust.seen, key=repr)],
        "sites": list(trust.posterior_draws),
    }


def _shape_name(shape: Shape) -> str:
    return next(name for name, kind in SHAPES.items() if isinstance(shape, kind))


def _affinity_plain(affinity: Affinities) -> dict[str, Any]:
    pairs = {name: getattr(affinity, name).tolist() for name in ("later", "earlier", "met")}
    return {"column": affinity.column, "labels": list(affinity.labels), "directed": affinity.directed} | pairs


def _affinity(saved: dict[str, Any] | None) -> Affinities | None:
    if saved is None:
        return None
    pairs = {name: np.array(saved[name], np.int64) for name in ("later", "earlier", "met")}
    return Affinities(saved["column"], tuple(saved["labels"]), directed=saved["directed"], **pairs)


def _plain(value: Any) -> Any:
    """numpy scalars as JSON can hold them."""
    return value.item() if isinstance(value, np.generic) else value


def _restore(tree: Any, terms: Mapping[str, Sequence[Any]]) -> Trust:
    from nousppl.trust import Trust

    saved = json.loads(tree.attrs["nousppl"])
    model = _model(saved["model"], terms)
    encodings = {n: Encoding.from_dict(e) for n, e in saved["encodings"].items() if e is not None}
    bias = encodings.pop("bias", None)
    closed = {a: tuple(values) for a, values in saved["closed"]}
    scales = {a: (float(centre), float(scale)) for a, (centre, scale) in saved.get("scales", ())}
    domains = Domains(closed, dict(map(tuple, saved["size"])), frozenset(saved["declared"]), model.shapes, scales)
    grid = None if saved["text_grid"] is None else np.array(saved["text_grid"], float)
    affinity = _affinity(saved.get("affinity"))
    blueprint = assemble(model, encodings, bias, domains, grid, affinity, saved.get("denials", False))
    posterior = tree["posterior"].to_dataset()
    draws = {name: np.asarray(posterior[quoted(name)].values, np.float64) for name in saved["sites"]}
    stats: dict[str, Any] = {}
    if "sample_stats" in tree.children:
        stats = {str(n): v.values for n, v in tree["sample_stats"].to_dataset().data_vars.items()}
    return Trust(model, blueprint, draws, stats, _table(tree), saved["record"], frozenset(map(tuple, saved["seen"])))


def _term(declared: Declared) -> dict[str, Any]:
    """A term as a file keeps it: its name, and the names and sizes of its parameters."""
    parameters = zip(declared.term.parameters, declared.sizes, strict=True)
    return {"name": declared.term.full_name, "parameters": [list(one) for one in parameters]}


def _own(tree: Any, terms: Functions, path: Path) -> dict[str, list[Any]]:
    """Part -> the functions given, by the names that the file keeps.

    Raises:
        ModelError: one is missing, one is not wanted, or declares other parameters.
    """
    try:
        saved = json.loads(tree.attrs["nousppl"])["model"].get("terms", {})
        names = [one["name"] for listed in saved.values() for one in listed]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise FileError(f"{path}: the saved trust is damaged: {error!r}") from error
    given = dict(terms) if isinstance(terms, Mapping) else {full_name(function): function for function in terms}
    missing = [name for name in names if name not in given]
    if missing:
        raise ModelError(
            f"{path}: the trust was learned with own terms, of which a file keeps the names only: give "
            f"nous.load(path, terms=[...]) the functions {', '.join(missing)} (got {', '.join(given) or 'none'}); a "
            f"mapping {{{missing[0]!r}: function}} says which function it is where it has another name now"
        )
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ModelError(f"{path}: the trust was learned without the term {unknown[0]}; its terms are {names}")
    for part, listed in saved.items():
        for one in listed:
            found = _term(declare(part, given[one["name"]]))["parameters"]
            if found != one["parameters"]:
                raise ModelError(
                    f"{path}: the term {one['name']} declares other parameters than it did when the trust was learned: "
                    f"{found} now, {one['parameters']} then (name and size)"
                )
    return {part: [given[one["name"]] for one in listed] for part, listed in saved.items()}


def _model(saved: dict[str, Any], terms: Mapping[str, Sequence[Any]]) -> TrustModel:
    priors = {part: {n: Prior(*p) for n, p in given.items()} for part, given in saved["priors"].items()}
    return TrustModel(
        reliability=saved["reliability"],
        change=saved.get("change"),
        freshness=saved["freshness"],
        origin=None if saved["origin"] is None else Origin(**saved["origin"]),
        errors=Errors(**saved["errors"]),
        base_rates=saved["base_rates"],
        answers=dict(saved["answers"]),
        shapes={attribute: SHAPES[name](**fields) for attribute, name, fields in saved.get("shapes", ())},
        priors=priors,
        order_seed=saved["order_seed"],
        terms=terms,
    )


def _table(tree: Any) -> pd.DataFrame:
    from nousppl.summaries import COLUMNS, no_sources

    if "constant_data" not in tree.children:
        return no_sources()
    table = tree["constant_data"].to_dataset().to_dataframe()
    return table[[*COLUMNS, *(name for name in table if name not in COLUMNS)]]
