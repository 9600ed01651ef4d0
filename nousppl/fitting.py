"""From evidence to draws of the parameters."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.alike import alike, merged, of_claims
from nousppl.asking import own_draws, pair_draws
from nousppl.blueprint import Blueprint, centring, confusion_index, design_arrays
from nousppl.compile import Problem, compile_problem, with_blocks
from nousppl.difficulty import node_grid
from nousppl.encode import Encoded
from nousppl.errors import InferenceError
from nousppl.inference.options import NUTS, SVI
from nousppl.inference.result import Fit
from nousppl.models.layout import Layout
from nousppl.models.program import OF_QUESTIONS, Plan
from nousppl.padding import Mould, pad, pad_last, pad_own, rounded
from nousppl.ragged import ranges
from nousppl.text import grid_of
from nousppl.votes import excess, share_votes

FROM_ALL = frozenset(
    {
        "base_rates",
        "errors_difficulty_sd",
        "errors_logit_hard",
        "errors_hard_shift",
        "errors_logit_hard|attribute_raw",
        "errors_logit_hard|attribute_sigma",
    }
)
"""What a cut learns from all questions."""


def learned_questions(encoded: Encoded, learn_from: str) -> NDArray[np.int64]:
    """Questions that the hierarchy is learned from: those with a settled truth, or all.

    Raises:
        InferenceError: nothing is settled, or ``learn_from`` is unknown.
    """
    if learn_from == "all":
        return np.arange(encoded.parts.questions)
    if learn_from not in ("settled", "cut"):
        raise InferenceError(f"learn_from={learn_from!r}: allowed are 'settled', 'all' and 'cut'")
    chosen = np.flatnonzero(encoded.settled_cell[: encoded.parts.questions] >= 0)
    if not len(chosen):
        raise InferenceError(
            f"learn_from={learn_from!r}, but no truth is settled: give settled=..., or learn_from='all'"
        )
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
        names = list(blueprint.domains.lists)
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
    if any(problem.layout.slot_blocks for problem in problems):
        problems = [with_blocks(problem) for problem in problems]
    problems = [with_pair(problem, problems) for problem in problems]
    everything = np.concatenate([p.claims for p in problems])
    widest = max(problems, key=lambda p: p.layout.nodes)
    shared = shared_arrays(blueprint, encoded, widest, everything)
    layout, most, of_problems = designed(encoded, problems)
    if mould is not None:
        layout, most = mould.hold(layout, most)
        if layout.nodes > widest.layout.nodes:
            shared["nodes"], shared["node_log_weights"] = node_grid(layout.nodes)
    parts = []
    for problem, data in zip(problems, of_problems, strict=True):
        data = pad(replace(problem, data=data), layout)
        data["question_weight"] = data["question_weight"] * len(problems)
        sizes = {"claim": most, OF_QUESTIONS: layout.questions}
        parts.append({n: _padded_design(n, a, sizes) for n, a in data.items() if n not in shared})
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return layout, shared, stacked


def designed(encoded: Encoded, problems: list[Problem]) -> tuple[Layout, int, list[dict[str, NDArray[Any]]]]:
    """The layout of some problems, the most claims of one, and their arrays with those of their designs; claims that
    are alike are laid out once."""
    layout = problems[0].layout if len(problems) == 1 else rounded([p.layout for p in problems])
    arrays = [problem.data | designs(encoded, problem) for problem in problems]
    kinds = alike(arrays)
    if kinds is not None:
        arrays = [merged(data, of) for data, of in zip(arrays, kinds, strict=True)]
        layout = layout._replace(in_place=False)
    return layout, max(len(data["claim_zero"]) for data in arrays), arrays


def designs(encoded: Encoded, problem: Problem) -> dict[str, NDArray[Any]]:
    """Design arrays of all predictors for the claims, or the questions, of a problem."""
    parts = [
        design_arrays(part, design, problem.questions if part == OF_QUESTIONS else problem.claims)
        for part, design in encoded.designs.items()
    ]
    return {name: array for arrays in parts for name, array in arrays.items()}


def _padded_design(name: str, array: NDArray[Any], sizes: dict[str, int]) -> NDArray[Any]:
    """Arrays of claims padded to their number, those of the predictor by question to that of questions."""
    if name.startswith(OF_QUESTIONS + " "):
        return pad_last(array, sizes[OF_QUESTIONS])
    if name.endswith(" own"):
        return pad_own(array, sizes["claim"])
    return pad_last(array, sizes["claim"]) if of_claims(name) else array


def with_pair(problem: Problem, others: list[Problem]) -> Problem:
    """The problem, with what the user's pair terms read of a pair of another one to pad with, where it lists none."""
    if problem.layout.listed or "listed_own" not in problem.data:
        return problem
    one = next((other.data["listed_own"][:, :1] for other in others if other.layout.listed), None)
    return problem if one is None else replace(problem, data=problem.data | {"listed_own": one})


def check_terms(plan: Plan, encoded: Encoded, problems: list[Problem]) -> None:
    """Call the user's own terms once on all that is to be fitted, at the medians of the priors or so.

    Raises:
        ModelError: one fails, gives another shape, or no finite number.
    """
    if not plan.own:
        return
    from nousppl.inference.guide import constrain, initial
    from nousppl.inference.packed import packing

    pack = packing(plan, 0)
    draws = constrain(plan, pack, np.asarray(initial(plan, pack).mean, np.float64)[None])
    for problem in problems:
        for predictor in plan.predictors:
            own_draws(predictor, encoded.designs[predictor.part], draws, problem.claims)
        pair_draws(plan, problem, draws)


def with_text_grid(blueprint: Blueprint, problems: list[Problem]) -> Blueprint:
    """The blueprint with the similarities of same-value pairs that the likelihood ratios are relative to."""
    if blueprint.origin is None or blueprint.origin.text is None:
        return blueprint
    return replace(blueprint, text_grid=grid_of(np.concatenate([p.data["pair_similarity"] for p in problems])))


def fit(
    blueprint: Blueprint,
    encoded: Encoded,
    method: SVI | NUTS,
    learn_from: str,
    seed: int,
    progress: Any,
    mould: Mould | None = None,
    start: Any = None,
    backend: str = "numpyro",
) -> tuple[Blueprint, Fit, int]:
    """Fit the parameters; with a mould, code compiled for one fit serves the next one of about the same size.

    Args:
        blueprint: encodings and parameters.
        encoded: the evidence.
        method: options.
        learn_from: "settled", "all" or "cut": the hierarchy from settled truths, and then, while it stays as it is,
            base rates and difficulties from all questions.
        seed: of everything random.
        progress: told the loss.
        mould: sizes to pad to.
        start: ``nousppl.inference.svi.Start`` to go on from.
        backend: "numpyro" or "pyro".

    Returns:
        the blueprint completed by what the fit learned about texts, the fit, and the number of settled truths it
        used.

    Raises:
        InferenceError: there is nothing to learn from; a cut by another method, or without anything to learn from all.
    """
    questions = learned_questions(encoded, learn_from)
    if learn_from != "cut":
        return _fit_on(questions, blueprint, encoded, method, seed, progress, mould, start, None, backend)
    if isinstance(method, NUTS):
        raise InferenceError("learn_from='cut' is fitted in two stages by SVI; it has no joint density to sample from")
    still = tuple(name for name in blueprint.plan.raw_names if name not in FROM_ALL)
    if len(still) == len(blueprint.plan.raw_names):
        raise InferenceError(
            "learn_from='cut' learns base rates and difficulties from all questions, and this model has neither: give "
            "base_rates='learned' or Errors(difficulty=...), or learn_from='settled'"
        )
    from nousppl.inference.svi import Start

    blueprint, first, settled = _fit_on(
        questions, blueprint, encoded, method, seed, progress, None, start, None, backend
    )
    centred = centring(blueprint.plan, encoded, blueprint, used_claims(encoded, questions))
    everything, onward = np.arange(encoded.parts.questions), Start(first.backend, 0, still)
    _, second, _ = _fit_on(everything, blueprint, encoded, method, seed, progress, mould, onward, centred, backend)
    loss = np.concatenate([first.stats["loss"], second.stats["loss"]])
    advice = f"settled facts: {first.advice}; all questions: {second.advice}"
    good = first.converged and second.converged
    return blueprint, second._replace(stats={"loss": loss}, converged=good, advice=advice), settled


def _fit_on(
    questions: NDArray[np.int64],
    blueprint: Blueprint,
    encoded: Encoded,
    method: SVI | NUTS,
    seed: int,
    progress: Any,
    mould: Mould | None,
    start: Any,
    centred: dict[str, NDArray[np.float64]] | None,
    backend: str,
) -> tuple[Blueprint, Fit, int]:
    """One fit on some questions; ``centred`` exponents in place of those that the questions suggest."""
    size = method.batch_claims if isinstance(method, SVI) else np.iinfo(np.int64).max
    blueprint, problems, settled, close = prepared(questions, blueprint, encoded, int(size), seed)
    layout, shared, stacked = batched(blueprint, encoded, problems, mould)
    shared |= centred or {}
    if isinstance(method, NUTS):
        sample = import_module("nousppl.inference." + ("torch_nuts" if backend == "pyro" else "nuts")).fit
        data = shared | {name: value[0] for name, value in stacked.items()}
        return blueprint, sample(blueprint.plan, layout, data, method, seed, progress), settled
    from nousppl.inference import svi

    batches, from_vote = (shared, stacked), settled < len(questions)
    result = svi.fit(blueprint.plan, layout, batches, method, seed, from_vote, progress, start, backend, close)
    return blueprint, result, settled


def prepared(
    questions: NDArray[np.int64], blueprint: Blueprint, encoded: Encoded, batch_claims: int, seed: int
) -> tuple[Blueprint, list[Problem], int, NDArray[np.float64] | None]:
    """The compiled batches of a fit on some questions.

    Returns:
        the blueprint completed by what is known of texts, the batches, the number of settled truths, and the excess of
        agreement of pairs of sources where a fit starts from votes.

    Raises:
        InferenceError: there are no claims.
        ModelError: one of the user's own terms fails.
    """
    problems = [compile_problem(encoded, q, seed) for q in split(questions, encoded, batch_claims, seed)]
    if not sum(len(p.claims) for p in problems):
        raise InferenceError("there are no claims to learn from")
    check_terms(blueprint.plan, encoded, problems)
    settled = int((encoded.settled_cell[questions] >= 0).sum())
    close = excess(problems, encoded) if settled < len(questions) else None
    if close is not None:
        problems = share_votes(problems, encoded, close)
    return with_text_grid(blueprint, problems), problems, settled, close


def used_claims(encoded: Encoded, questions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Claims of some questions that add something."""
    offset = encoded.claim_offset
    claims = ranges(offset[questions], np.diff(offset)[questions])
    return claims[encoded.used[claims]]


def natural_effects(
    blueprint: Blueprint, encoded: Encoded, draws: dict[str, NDArray[Any]], learn_from: str
) -> dict[str, NDArray[np.float64]]:
    """Draws with raw group effects turned into effects."""
    claims = used_claims(encoded, learned_questions(encoded, learn_from))
    centred = centring(blueprint.plan, encoded, blueprint, claims)
    out = {}
    for site in blueprint.plan.sites:
        if site.scale is None:
            out[site.name] = np.asarray(draws[site.name], np.float64)
        else:
            raw = np.asarray(draws[site.name + "_raw"], np.float64)
            out[site.name] = raw * out[site.scale][..., None] ** (1.0 - centred["centred " + site.name])
    return out
