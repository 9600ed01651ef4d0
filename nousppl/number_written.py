"""A question about a number, written out for the readable programs: the nodes of its integral are its truths."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from nousppl.blueprint import Blueprint
from nousppl.compile import Problem
from nousppl.encode import Encoded
from nousppl.models.dense import DenseQuestion
from nousppl.number_asking import one_number

Floats = NDArray[np.float64]


def with_number(
    dense: DenseQuestion,
    blueprint: Blueprint,
    encoded: Encoded,
    draws: dict[str, Floats],
    problem: Problem,
    theta: dict[str, Any],
    order: NDArray[np.int64],
) -> tuple[DenseQuestion, tuple[Any, ...]]:
    """The question with what its sources can see of the number as its truth, on the nodes of the integral.

    Args:
        dense: the origins of its claims, in the given order.
        blueprint: of the trust.
        encoded: the evidence.
        draws: site -> (1, ...), the parameters.
        problem: the question, compiled.
        theta: the parameters of its claims.
        order: of the claims.

    Returns:
        The question, and the nodes in the unit of the values.
    """
    numbers, question, claims = encoded.cells.numbers, int(problem.questions[0]), problem.claims[order]
    assert numbers is not None
    attribute = int(numbers.attribute[question])
    found = one_number(blueprint, encoded, draws, problem)[0].found
    node, mass = found.node[0, 0], np.exp(found.log_mass[0, 0])
    answer = encoded.coded.row_answer[encoded.coded.row_start[:-1][claims]]
    codes, said = np.unique(numbers.code[answer], return_inverse=True)
    first = np.array([answer[said == v][0] for v in range(len(codes))], np.int64)
    right = np.minimum(expit(theta["logit"][: len(claims)][order]), dense.ceiling)
    spread = np.exp(theta["log_spread"][: len(claims)][order])
    law = np.empty((len(claims), len(node), len(codes) + 1))
    for v, a in enumerate(first):
        away = np.abs(numbers.value[a] - theta["shift"][: len(claims)][order][:, None] - node[None, :])
        half = 0.5 * numbers.step[attribute]
        # From the far side, where the tail is small and accurate.
        chance = ndtr(-(away - half) / spread[:, None]) - ndtr(-(away + half) / spread[:, None])
        law[:, :, v] = right[:, None] * chance + (1.0 - right)[:, None] * np.exp(numbers.log_wide[a])
    law[:, :, -1] = np.maximum(1.0 - law[:, :, :-1].sum(-1), 0.0)
    weights = np.zeros((len(claims), len(codes) + 1))
    weights[np.arange(len(claims)), said] = 1.0
    size = float(encoded.cells.size[question])
    random = np.r_[np.full(len(codes), 1.0 / size), max(1.0 - len(codes) / size, 0.0)]
    places = numbers.centre[attribute] + numbers.scale[attribute] * node
    written = dense._replace(
        prior=mass,
        base_rates=mass,
        law=law,
        weights=weights,
        random=random,
        logit=np.zeros((len(claims), len(node))),
        beta=None,
        confusion=None,
        difficulty_sd=0.0,
        hard=None,
        trap=None,
        correlation=None,
    )
    return written, tuple(places.tolist())
