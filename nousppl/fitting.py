"""From evidence to draws of the parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.blueprint import Blueprint, centring, confusion_index, design_arrays
from nousppl.compile import Problem, compile_problem, node_grid
from nousppl.encode import Encoded
from nousppl.errors import InferenceError
from nousppl.inference.options import NUTS, SVI
from nousppl.inference.result import Fit
from nousppl.padding import Mould, pad, pad_last, rounded
from nousppl.ragged import ranges
from nousppl.text import grid_of


def learned_questions(encoded: Encoded, learn_from: str) -> NDArray[np.int64]:
    """Questions that a fit uses: those with a settled truth, or all.

    Raises:
        InferenceError: nothing is settled, or ``learn_from`` is unknown.
    """
    if learn_from == "all":
        return np.arange(len(encoded.settled_cell))
    if learn_from != "settled":
        raise InferenceError(f"learn_from={learn_from!r}: allowed are 'settled' and 'all'")
    chosen = np.flatnonzero(encoded.settled_cell >= 0)
    if not len(chosen):
        raise InferenceError("learn_from='settled', but no truth is settled: give settled=..., or learn_from='all'")
    return chosen


def split(questions: NDArray[np.int64], encoded: Encoded, batch_claims: int, seed: int) -> list[NDArray[np.int64]]:
    """All questions at once, or random batches of about equal size above ``batch_claims`` claims."""
    claims = np.diff(encoded.claim_offset)[questions]
    total = int(claims.sum())
    if total <= batch_claims:
        return [questions]
    count = -(-total // max(batch_claims // 4, 1))
    shuffled = np.random.default_rng(seed).permutation(questions)
    bounds = np.cumsum(np.diff(encoded.claim_offset)[shuffled])
    batch = np.minimum((bounds - 1) * count // total, count - 1)
    return [np.sort(shuffled[batch == b]) for b in range(count)]


def shared_arrays(
    blueprint: Blueprint, encoded: Encoded, problem: Problem, claims: NDArray[np.int64]
) -> dict[str, Any]:
    """Arrays that do not belong to particular questions."""
    out: dict[str, Any] = dict(centring(blueprint.plan, encoded, blueprint, claims))
    classes = blueprint.domains.classes
    if classes:
        names = list(blueprint.domains.closed)
        out["class_attribute"] = np.array([names.index(a) for a, _ in classes], np.int32)
    for name in ("nodes", "node_log_weights"):
        if name in problem.data:
            out[name] = problem.data[name]
    if problem.layout.confusion:
        sizes = {site.name: site.size or 0 for site in blueprint.plan.sites}
        by_source = sizes.get("errors_confusion|source", sizes["errors_confusion"])
        out["confusion_row"] = confusion_index(blueprint, by_source // sizes["errors_confusion"])
    if blueprint.text_grid is not None:
        out["text_grid"] = blueprint.text_grid
    return out


def batched(
    blueprint: Blueprint, encoded: Encoded, problems: list[Problem], mould: Mould | None = None
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Layout, shared arrays and stacked arrays of the batches of a fit; with a mould, all padded to its sizes."""
    everything = np.concatenate([p.claims for p in problems])
    widest = max(problems, key=lambda p: p.layout.nodes)
    shared = shared_arrays(blueprint, encoded, widest, everything)
    layout = problems[0].layout if len(problems) == 1 else rounded([p.layout for p in problems])
    most = max(len(p.claims) for p in problems)
    if mould is not None:
        layout, most = mould.hold(layout, most)
        if layout.nodes > widest.layout.nodes:
            shared["nodes"], shared["node_log_weights"] = node_grid(layout.nodes)
    parts = []
    for problem in problems:
        data = pad(problem, layout) | designs(blueprint, encoded, problem.claims)
        data["question_weight"] = data["question_weight"] * len(problems)
        parts.append({n: _claims_padded(n, a, most) for n, a in data.items() if n not in shared})
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return layout, shared, stacked


def designs(blueprint: Blueprint, encoded: Encoded, claims: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Design arrays of all predictors for some claims."""
    out = design_arrays("reliability", encoded.reliability, claims)
    if encoded.freshness is not None:
        out |= design_arrays("freshness", encoded.freshness, claims)
    return out


def _claims_padded(name: str, array: NDArray[Any], size: int) -> NDArray[Any]:
    of_claims = name.startswith(("claim_", "reliability ", "freshness "))
    return pad_last(array, size) if of_claims else array


def with_text_grid(blueprint: Blueprint, problems: list[Problem]) -> Blueprint:
    """The blueprint with the similarities of same-value pairs that the likelihood ratios are relative to."""
    if blueprint.origin is None or blueprint.origin.text is None:
        return blueprint
    from dataclasses import replace

    return replace(blueprint, text_grid=grid_of(np.concatenate([p.data["pair_similarity"] for p in problems])))


def fit(
    blueprint: Blueprint,
    encoded: Encoded,
    method: SVI | NUTS,
    learn_from: str,
    seed: int,
    progress: Any,
    mould: Mould | None = None,
) -> tuple[Blueprint, Fit, int]:
    """Fit the parameters; with a mould, code compiled for one fit serves the next one of about the same size.

    Returns:
        the blueprint completed by what the fit learned about texts, the fit, and the number of settled truths it
        used.
    """
    questions = learned_questions(encoded, learn_from)
    size = method.batch_claims if isinstance(method, SVI) else np.iinfo(np.int64).max
    problems = [compile_problem(encoded, q, seed) for q in split(questions, encoded, int(size), seed)]
    if not sum(len(p.claims) for p in problems):
        raise InferenceError("there are no claims to learn from")
    blueprint = with_text_grid(blueprint, problems)
    layout, shared, stacked = batched(blueprint, encoded, problems, mould)
    settled = int((encoded.settled_cell[questions] >= 0).sum())
    if isinstance(method, NUTS):
        from nousppl.inference import nuts

        data = shared | {name: value[0] for name, value in stacked.items()}
        return blueprint, nuts.fit(blueprint.plan, layout, data, method, seed, progress), settled
    from nousppl.inference import svi

    from_vote = settled < len(questions)
    return blueprint, svi.fit(blueprint.plan, layout, (shared, stacked), method, seed, from_vote, progress), settled


def natural_effects(
    blueprint: Blueprint, encoded: Encoded, draws: dict[str, NDArray[Any]], learn_from: str
) -> dict[str, NDArray[np.float64]]:
    """Draws with raw group effects turned into effects."""
    questions = learned_questions(encoded, learn_from)
    offset = encoded.claim_offset
    claims = ranges(offset[questions], np.diff(offset)[questions])
    centred = centring(blueprint.plan, encoded, blueprint, claims[encoded.used[claims]])
    out = {}
    for site in blueprint.plan.sites:
        if site.scale is None:
            out[site.name] = np.asarray(draws[site.name], np.float64)
        else:
            raw = np.asarray(draws[site.name + "_raw"], np.float64)
            out[site.name] = np.where(centred["centred " + site.name], raw, raw * out[site.scale][..., None])
    return out
