"""The belief about one number in full: claim by claim, and over the possible origins of each claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem, compile_problem
from nousppl.encode import Encoded
from nousppl.inference.numbers import POINTS, ByClaim
from nousppl.lineage import status_of, with_lineage
from nousppl.mixture import LEAST, outside
from nousppl.models.shapes import Number
from nousppl.number_asking import kernels, known_number, mean_over_orders, mixture_of, normalised, one_number
from nousppl.number_belief import NumberBelief
from nousppl.question import Question
from nousppl.unfold import Fresh, origins

if TYPE_CHECKING:
    from nousppl.trust import Trust

Floats = NDArray[np.float64]

WORK = 100_000_000
"""Likelihoods (draws x nodes x orders x claims) above which a belief averages over fewer draws."""
DRAWS = 20, 200
"""Fewest and most draws that a belief averages over."""


class UnfoldedNumber:
    """What the origins of the claims of one question need: see ``nousppl.unfold.Unfolded``."""

    def __init__(self, problem: Problem, asked: ByClaim) -> None:
        data = problem.data
        self.claims, self.asked = len(problem.claims), asked
        self.looks = np.zeros(self.claims)
        self.looks[problem.slot_claim] = data["slot_looks"]

    def by_draw(self) -> Iterator[Fresh]:
        """The probability of each order, and the mean of ``1 / p(claim | truth)``."""
        asked, n = self.asked, self.claims
        weight = normalised(asked.found.by_order[:, 0] + asked.found.log_mass[:, 0, None])
        inverse = np.einsum("drg,drng->drn", weight, np.exp(-asked.claim[:, :, :n]))
        yield Fresh(asked.found.order[:, 0], inverse, asked.repeated[:, :, :n])


def believe_number(trust: Trust, encoded: Encoded, question: Question, shape: Number) -> NumberBelief:
    """Compute the belief about one number."""
    problem = compile_problem(encoded, np.array([question.index]), trust.model.order_seed)
    one = max(sum(of.width * of.orders for of in problem.layout.numbers) * 2 * POINTS, 1)
    draws = trust.asked(int(np.clip(WORK // one, *DRAWS)))
    asked, parameters = one_number(trust.blueprint, encoded, draws, problem)
    unfolded = UnfoldedNumber(problem, asked)
    start, stop = encoded.claim_offset[question.index : question.index + 2]
    used = encoded.used[start:stop]
    numbers = encoded.cells.numbers
    assert numbers is not None
    steps = np.concatenate([[0], np.cumsum(used)])
    means, sds, surprises = _course(encoded, question.index, problem, asked)
    surprise = np.zeros(len(used))
    surprise[used] = surprises

    def origins_of() -> Floats:
        features, grid = len(encoded.features), trust.blueprint.text_grid
        among = origins(encoded, problem, unfolded, parameters, features, grid)
        return with_lineage(encoded, int(start), used, among)

    def fresh_of() -> Floats:
        out = np.zeros(len(used))
        out[used] = np.clip(asked.found.fresh[:, 0, : used.sum()].mean(0), 0.0, 1.0)
        return out

    return NumberBelief(
        question=question,
        shape=shape,
        mixture=mixture_of(numbers, question.index, asked.found, 0),
        means=means.mean(0)[steps],
        sds=_total_sd(means, sds)[steps],
        draw_means=means[:, -1],
        draw_sds=sds[:, -1],
        surprises=surprise,
        origins_of=origins_of,
        fresh_of=fresh_of,
        status=tuple(status_of(encoded, int(start), j) for j in range(int(stop - start))),
    )


def _total_sd(means: Floats, sds: Floats) -> Floats:
    """(n + 1,) standard deviation over draws and within each."""
    return np.asarray(np.sqrt((sds**2).mean(0) + means.var(0)))


def _course(encoded: Encoded, question: int, problem: Problem, asked: ByClaim) -> tuple[Floats, Floats, Floats]:
    """(draws, n + 1) mean and standard deviation of the number before any claim and after each, and (n,) bits of
    surprise at each claim: those of its rounding cell under the belief before it."""
    numbers, found, n = encoded.cells.numbers, asked.found, len(problem.claims)
    assert numbers is not None
    so_far = np.cumsum(asked.claim[:, :, :n], axis=2)
    logs = np.concatenate([np.zeros_like(found.log_mass[:, :1]), mean_over_orders(so_far)], axis=1)
    logs = logs + found.log_mass[:, :1]
    top = logs.max(-1, keepdims=True)
    evidence = np.log(np.exp(logs - top).sum(-1)) + top[..., 0]
    surprise = -np.log2(np.exp(np.diff(evidence, axis=1)).mean(0))
    known = known_number(numbers, question)
    if known is not None:
        shape = (len(logs), n + 1)
        return np.full(shape, known.mean), np.zeros(shape), surprise
    weight = normalised(logs - found.outside[:, :1])
    place, width = kernels(numbers, question, found, 0)
    centre = float(np.einsum("dng,dg->dn", weight, place)[:, -1].mean())
    gaps = tuple((low - centre, high - centre) for low, high in numbers.gaps_of(question))
    mass, first, second = outside(place - centre, width, gaps)
    left = np.maximum(np.einsum("dng,dg->dn", weight, mass), LEAST)
    mean, square = (np.einsum("dng,dg->dn", weight, moment) / left for moment in (first, second))
    return centre + mean, np.sqrt(np.maximum(square - mean**2, 0.0)), surprise
