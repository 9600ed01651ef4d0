"""A question about a number of a design, drawn at one value of the parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nousppl.asking import parameter_draws
from nousppl.blueprint import Blueprint
from nousppl.compile import Problem
from nousppl.encode import Encoded
from nousppl.models.program import COPY_ERROR
from nousppl.number_worlds import Drawn, Law, draw_number
from nousppl.pair_world import PairWorld

Draws = dict[str, NDArray[np.float64]]


def simulate_number(
    rng: np.random.Generator, blueprint: Blueprint, encoded: Encoded, draws: Draws, problem: Problem
) -> Drawn:
    """Draw truth, origins and values of one question about a number, in the unit of the values; origins and values in
    the order of ``problem.claims``.

    Args:
        rng: of the draw.
        blueprint: of the model.
        encoded: the design with any values.
        draws: site -> (1, ...), the parameters.
        problem: the question, compiled.
    """
    numbers, question = encoded.cells.numbers, int(problem.questions[0])
    assert numbers is not None
    theta = {name: np.asarray(value[0]) for name, value in parameter_draws(blueprint, encoded, draws, problem).items()}
    n, attribute = len(problem.claims), int(numbers.attribute[question])
    world = PairWorld(encoded, problem, len(encoded.features), blueprint.text_grid)
    zero = np.zeros((n, n))
    echoes = encoded.origin is not None
    base, strong, _, place = world.weights(theta, 0) if echoes else (zero, zero, zero, world.place(0))
    by = np.argsort(place)
    alpha = np.exp(theta["log_concentration"][:n]) * world.looks if echoes else world.looks
    ceiling = encoded.coded.claim_ceiling[problem.claims]
    centre, scale, step = numbers.centre[attribute], numbers.scale[attribute], numbers.step[attribute]
    law = Law(
        right=np.minimum(expit(theta["logit"][:n]), ceiling)[by],
        bias=theta["shift"][:n][by],
        log_spread=theta["log_spread"][:n][by],
        scale=float(np.exp(theta["numbers_log_scale"][attribute])),
        slope=float(np.exp(theta["numbers_log_slope"][attribute])),
        log_shared=float(theta["log_shared"][:n].mean()) if n else 0.0,
        step=float(step),
        # Values are multiples of the resolution.
        offset=float(-(centre / (scale * step) - np.rint(centre / (scale * step))) * step),
        alpha=alpha[by],
        base=base[np.ix_(by, by)],
        strong=strong[np.ix_(by, by)],
        copy_error=COPY_ERROR,
    )
    drawn = draw_number(rng, law)
    values, origins = np.empty(n), np.full(n, -1, np.int64)
    resolution = step * scale
    values[by] = np.rint((centre + scale * drawn.values) / resolution) * resolution
    origins[by] = np.where(drawn.origins >= 0, by[drawn.origins], -1)
    return Drawn(float(centre + scale * drawn.truth), values, origins)
