"""What simulation-based calibration ranks: parameters, log densities, and what came true of the questions asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.inference import many
from nousppl.inference.backend import distribution
from nousppl.models.program import Plan
from nousppl.simulated_sets import Sets
from nousppl.updating import labels
from nousppl.value_text import show

Floats = NDArray[np.float64]
Draws = dict[str, Floats]
"""Site -> (fits, draws) or (fits, draws, size), natural scale."""
LIKELIHOOD, DENSITY = "log likelihood", "log joint density"
SCORE, RIGHT = "truths: log score", "truths: number right"
PARAMETER, DATA, TRUTH = "parameter", "density", "truth"


class Quantity(NamedTuple):
    """A function of parameters and data whose value at the true parameters is ranked among those at the draws."""

    kind: str
    true: Floats
    """(fits,)"""
    draws: Floats
    """(fits, draws)"""


class Asked(NamedTuple):
    """What was believed of one question that a fit did not see settled, and what came true."""

    fit: int
    question: int
    confidence: float
    """Probability of the most probable answer."""
    right: bool
    truth: float
    """Probability that the truth was given."""


def natural(sets: Sets, raw: Mapping[str, Floats]) -> Draws:
    """Draws of sites as they are fitted, (fits, draws, ...), with group effects on their natural scale."""
    out = {}
    for site, name in zip(sets.plan.sites, sets.plan.raw_names, strict=True):
        out[site.name] = raw[name]
        if site.scale is not None:
            centred = sets.fit.shared["centred " + site.name][:, None]
            out[site.name] = raw[name] * out[site.scale][..., None] ** (1.0 - centred)
    return out


def true_values(sets: Sets) -> Draws:
    """(fits, 1, ...) parameters that the sets were drawn from, those that are fitted."""
    drawn = [truth.parameters for truth in sets.truths]
    names = [name for name in sets.plan.names if name in drawn[0]]
    return {name: np.stack([each[name] for each in drawn])[:, None] for name in names}


def parameter_quantities(sets: Sets, draws: Draws, effects: int) -> Iterator[tuple[str, Quantity]]:
    """Every scalar parameter, and so many effects of each group, evenly spread over its levels."""
    for name, true in true_values(sets).items():
        if true.ndim == 2:
            yield name, Quantity(PARAMETER, true[:, 0], draws[name])
            continue
        size = true.shape[-1]
        of = labels(sets.blueprint, name)
        for i in np.unique(np.linspace(0, size - 1, min(effects, size)).round().astype(int)):
            label = " ".join(show(part, 32) for part in (of[i] if isinstance(of[i], tuple) else (of[i],)))
            yield f"{name}[{label}]", Quantity(PARAMETER, true[:, 0, i], draws[name][..., i])


def density_quantities(sets: Sets, draws: Draws) -> Iterator[tuple[str, Quantity]]:
    """Log density of the data, and of data and parameters together (Modrák et al. 2023); nothing where the sets were
    drawn from a model with other parameters."""
    true = true_values(sets)
    if set(true) != set(sets.plan.names):
        return
    likelihoods = [many.log_likelihoods(sets.plan, sets.fit, values) for values in (true, draws)]
    priors = [log_prior(sets.plan, values) for values in (true, draws)]
    yield LIKELIHOOD, Quantity(DATA, likelihoods[0][:, 0], likelihoods[1])
    yield DENSITY, Quantity(DATA, (likelihoods[0] + priors[0])[:, 0], likelihoods[1] + priors[1])


def log_prior(plan: Plan, values: Draws) -> Floats:
    """(fits, draws) log density of the parameters on their natural scale."""
    total: Floats | float = 0.0
    for site in plan.sites:
        value, law = values[site.name], distribution(site.prior)
        if site.scale is None:
            part = np.asarray(law.log_prob(value), np.float64)
        else:
            scale = values[site.scale][..., None]
            part = np.asarray(law.log_prob(value / scale), np.float64) - np.log(scale)
        total = total + (part if part.ndim == 2 else part.sum(-1))
    return np.asarray(total)


def truth_quantities(
    sets: Sets, draws: Draws, believing: Draws, rng: np.random.Generator
) -> tuple[dict[str, Quantity], list[Asked]]:
    """What came true of the questions that no fit saw settled, against truths drawn with the parameters.

    Given the data the true parameters and truths are a draw from the same law as any other draw of parameters with
    truths drawn given them. So any function of truths and data has uniform ranks, however truths of one set hang
    together. Two are taken, with the probabilities that other draws give: the log score of all truths of a set, and the
    number of its questions whose most probable answer is true.

    Args:
        sets: the data.
        draws: to draw truths with.
        believing: other draws, whose mean posterior is the belief.
        rng: of the truths.
    """
    assert sets.asked is not None
    belief = np.exp(many.cell_logs(sets.plan, sets.asked, believing)).mean(1)
    logs = many.cell_logs(sets.plan, sets.asked, draws)
    score, right, asked = [], [], []
    for fit, (starts, true) in enumerate(zip(sets.cells, sets.true_cell, strict=True)):
        of_fit = np.maximum(belief[fit, : starts[-1]], 1e-300)
        tops = _top(of_fit[None], starts)[0]
        noisy = logs[fit, :, : starts[-1]]
        cells = np.concatenate([true[None], _top(noisy + rng.gumbel(size=noisy.shape), starts)])
        score.append(np.log(of_fit)[cells].sum(1))
        right.append((cells == tops).sum(1))
        confidence, given, hit = of_fit[tops], of_fit[true], true == tops
        asked += [Asked(fit, q, *row) for q, row in enumerate(zip(confidence, hit, given, strict=True))]
    found = {SCORE: np.stack(score), RIGHT: np.stack(right).astype(np.float64)}
    return {name: Quantity(TRUTH, value[:, 0], value[:, 1:]) for name, value in found.items()}, asked


def _top(values: Floats, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n, questions) place of the largest of the cells of each question, in (n, cells) values."""
    return np.stack([a + values[:, a:b].argmax(1) for a, b in pairwise(starts)], axis=1)


def rank(quantity: Quantity, rng: np.random.Generator) -> NDArray[np.int64]:
    """(fits,) number of draws below the true value; among equals the place is drawn."""
    below = (quantity.draws < quantity.true[:, None]).sum(1)
    return below + rng.integers(0, (quantity.draws == quantity.true[:, None]).sum(1) + 1)
