"""From draws of the parameters to beliefs about numbers: mixtures of normal laws, in the unit of the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.asking import Answers, chunks, ready
from nousppl.blueprint import Blueprint
from nousppl.compile import Problem, compile_problem
from nousppl.encode import Encoded
from nousppl.inference.numbers import POINTS, ByClaim, Found, find, pairs
from nousppl.mixture import LEAST, Mixture, outside
from nousppl.models.layout import Layout
from nousppl.number_layout import whole_width
from nousppl.numbers import Numbers
from nousppl.padding import rounded
from nousppl.ragged import Ints

Floats = NDArray[np.float64]
Draws = dict[str, NDArray[np.float64]]

AT_ONCE = 30_000_000
"""Pairs of a claim and a node, over all draws, that are evaluated at once."""
CHUNK = 1_000
"""Claims whose questions are asked at once."""


class Believed(NamedTuple):
    """What is believed of some numbers."""

    mixtures: list[Mixture]
    """One a question, thinned."""
    witnesses: Floats
    """(Q,) expected number of fresh claims."""


def in_blocks(
    layout: Layout, features: tuple[str, ...], by_claim: bool, data: dict[str, Any], parameters: dict[str, Any]
) -> Any:
    """What ``nousppl.inference.numbers.find`` gives under all draws, some at a time, in double precision."""
    total = len(parameters["logit"])
    step = max(1, min(total, AT_ONCE // max(pairs(layout), 1)))
    parts = []
    for start in range(0, total, step):
        index = np.minimum(np.arange(start, start + step), total - 1)
        found = find(layout, features, by_claim, data, {name: value[index] for name, value in parameters.items()})
        parts.append(_trimmed(found, min(step, total - start)))
    return _joined(parts)


def _trimmed(found: Any, kept: int) -> Any:
    if isinstance(found, tuple):
        parts = [_trimmed(part, kept) for part in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return np.asarray(found, np.float64)[:kept]


def _joined(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, tuple):
        joined = [_joined(list(column)) for column in zip(*parts, strict=True)]
        return type(first)(*joined) if hasattr(first, "_fields") else tuple(joined)
    return first if len(parts) == 1 else np.concatenate(parts)


def weights(found: Found, q: int) -> Floats:
    """(draws, G) probability of each node of a question, all claims read."""
    joint = found.by_order[:, q] + found.log_mass[:, q, None]
    return normalised(mean_over_orders(joint))


def mean_over_orders(logs: Floats) -> Floats:
    """(draws, ..., G) log of the mean over the orders (draws, R, ..., G)."""
    top = logs.max(1, keepdims=True)
    return np.log(np.exp(logs - top).mean(1)) + top[:, 0]


def normalised(logs: Floats) -> Floats:
    """Probabilities along the last axis."""
    p = np.exp(logs - logs.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def kernels(numbers: Numbers, question: int, found: Found, q: int) -> tuple[Floats, Floats]:
    """(draws, G) mean and standard deviation of the truth given each node, in the unit of the values."""
    share = found.share[:, q, None]
    # A node stands for its part of the line.
    sd = np.sqrt(found.sd[:, q, None] ** 2 + (share * found.width[:, q]) ** 2 / 12.0)
    attribute = numbers.attribute[question]
    unit = numbers.scale[attribute]
    return numbers.centre[attribute] + unit * share * found.node[:, q], unit * sd


def known_number(numbers: Numbers, question: int) -> Mixture | None:
    """The settled truth of a question; None where there is none."""
    truth, attribute = numbers.truth[question], numbers.attribute[question]
    if np.isnan(truth):
        return None
    place = numbers.centre[attribute] + numbers.scale[attribute] * truth
    return Mixture(np.array([place]), np.zeros(1), np.ones(1))


def mixture_of(numbers: Numbers, question: int, found: Found, q: int) -> Mixture:
    """The belief about the number of one question of a set, averaged over draws."""
    known = known_number(numbers, question)
    if known is not None:
        return known
    place, width = kernels(numbers, question, found, q)
    gaps = numbers.gaps_of(question)
    if not gaps:
        weight = weights(found, q)
        return Mixture(place.ravel(), width.ravel(), weight.ravel() / len(weight))
    # As it would be if nothing were rejected; each draw then counts the same with the gaps cut out.
    weight = weights(found._replace(log_mass=found.log_mass - found.outside), q)
    weight = weight / np.maximum((weight * outside(place, width, gaps)[0]).sum(-1, keepdims=True), LEAST)
    return Mixture(place.ravel(), width.ravel(), weight.ravel() / weight.sum(), gaps)


def believe_numbers(answers: Answers, questions: Ints) -> Believed:
    """The beliefs about many numbers, chunk after chunk; chunks are padded to common sizes."""
    numbers = answers.encoded.cells.numbers
    assert numbers is not None
    mixtures: list[Mixture] = []
    witnesses: list[float] = []
    for problem, layout, size in _pieces(answers, questions):
        data, parameters = ready(answers.blueprint, answers.encoded, problem, layout, answers.draws, size)
        sets = in_blocks(layout, answers.blueprint.plan.features, False, data, parameters)
        found = {}
        for of, one in zip(layout.numbers, sets, strict=True):
            for q, local in enumerate(_asked(problem, of.prefix)):
                question = int(problem.questions[local])
                found[question] = (
                    mixture_of(numbers, question, one, q).thinned(),
                    float(one.fresh[:, q].sum(-1).mean()),
                )
        mixtures += [found[int(question)][0] for question in problem.questions]
        witnesses += [found[int(question)][1] for question in problem.questions]
    return Believed(mixtures, np.array(witnesses))


def _asked(problem: Problem, prefix: str) -> Any:
    """The questions of a set before it was padded, by their place in the problem."""
    return problem.data.get(prefix + "question", ())


def _pieces(answers: Answers, questions: Ints) -> Iterator[tuple[Problem, Layout, int]]:
    """Chunks of the questions compiled, with the layout and the number of claims to pad them to: common ones, and those
    of the answers' mould."""
    encoded = answers.encoded
    problems = [compile_problem(encoded, piece, answers.seed) for piece in chunks(encoded, questions, CHUNK)]
    size = max(max(len(problem.claims) for problem in problems), 1)
    layouts = [_with_room(problem.layout) for problem in problems]
    layout = layouts[0] if len(problems) == 1 else rounded(layouts)
    if answers.mould is not None:
        layout, size = answers.mould.hold(layout, size)
    for problem in problems:
        yield problem, layout._replace(points=POINTS), size


def _with_room(layout: Layout) -> Layout:
    """A layout with room for a claim, also where there is none: what pads a question refers to the first."""
    return layout._replace(slots=max(layout.slots, 1), rows=max(layout.rows, 1))


def one_number(
    blueprint: Blueprint, encoded: Encoded, draws: Draws, problem: Problem
) -> tuple[ByClaim, dict[str, Any]]:
    """The likelihoods of the claims of one question at the nodes, and the parameters of its claims."""
    held = rounded([_with_room(problem.layout)])
    layout = held._replace(points=POINTS, numbers=whole_width(held.numbers))
    data, parameters = ready(blueprint, encoded, problem, layout, draws, layout.slots)
    return in_blocks(layout, blueprint.plan.features, True, data, parameters)[0], parameters
