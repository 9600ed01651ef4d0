"""Variational fits against chains, and the two backends against each other: means, widths and intervals of all
parameters.

What is compared is the posteriors that the two methods give, so that many draws are kept and weighed; a trust keeps 200
draws of 1,000 by default, whose means scatter by a tenth of a standard deviation. Chains are long and take small steps;
the table says how many of their 8,000 draws diverged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from benchmarks.table import Row, at_most, shown
from numpy.typing import NDArray

import nousppl as nous
from nousppl.simulate import World

LIMIT = 0.1
QUESTIONS, SOURCES = 400, 40
MANY = nous.SVI(draws=8000, weighed=40_000)
CHAINS = nous.NUTS(num_warmup=1000, num_samples=2000, num_chains=4, kernel={"target_accept_prob": 0.98})
PLAIN = nous.Errors(popularity=False, difficulty=False)
NESTED = "1 + (1|kind) + (1|source)"
Floats = NDArray[np.float64]


def reliability_only(world: World) -> nous.TrustModel:
    """Sources within kinds, no echoes."""
    return nous.TrustModel(NESTED, origin=None, errors=PLAIN, answers=world.answers)


def echoes(world: World) -> nous.TrustModel:
    """Sources that repeat each other, alike in how often."""
    origin = nous.Origin(strong="same_source + same_channel", lag=False)
    return nous.TrustModel("1 + (1|source)", "1", origin, PLAIN, answers=world.answers)


def everything(world: World) -> nous.TrustModel:
    """Sources within kinds for reliability and for freshness, shared errors, hard questions."""
    origin = nous.Origin(strong="same_source + same_channel", lag=False)
    return nous.TrustModel(NESTED, NESTED, origin, answers=world.answers)


CASES: tuple[tuple[str, Callable[[World], nous.TrustModel], int], ...] = (
    ("reliability only", reliability_only, 0),
    ("reliability only, another world", reliability_only, 1),
    ("with origins", echoes, 1),
    ("all of the default model", everything, 0),
)


class Apart(NamedTuple):
    """Two posteriors, parameter by parameter, the second in terms of the first."""

    mean: Floats
    """Difference of the means in standard deviations of the first."""
    width: Floats
    """Ratio of the standard deviations."""
    inside: Floats
    """Share of the first within the central 90 % interval of the second."""


def apart(one: nous.Trust, two: nous.Trust) -> Apart:
    """All parameters on their natural scale, group effects one by one."""
    parts = []
    for name, draws in one.flat.items():
        a, b = draws.reshape(len(draws), -1), two.flat[name].reshape(len(two.flat[name]), -1)
        low, high = np.quantile(b, [0.05, 0.95], axis=0)
        inside = ((a >= low) & (a <= high)).mean(0)
        parts.append(np.stack([(b.mean(0) - a.mean(0)) / a.std(0), b.std(0) / a.std(0), inside]))
    return Apart(*np.concatenate(parts, axis=1))


def of_case(name: str, model: nous.TrustModel, evidence: nous.Evidence, guide: nous.Trust) -> list[Row]:
    """Rows of one model on one world, and of its variational fit."""
    chains = model.fit(evidence, CHAINS, seed=1, learn_from="settled")
    found = apart(chains, guide)
    n, diverging = len(found.mean), int(chains.sample_stats["diverging"].sum())
    where = f"{name}; {QUESTIONS} questions, {SOURCES} sources, half settled; {diverging} divergences"
    rows = [
        at_most("SVI against NUTS: largest difference of a mean, in sd", where, n, np.abs(found.mean).max(), LIMIT),
        shown("the same, root mean square", name, n, np.sqrt(np.square(found.mean).mean())),
        shown("sd of SVI over that of NUTS, median", name, n, np.median(found.width)),
        shown("sd of SVI over that of NUTS, least", name, n, found.width.min()),
        shown("NUTS inside the 90 % intervals of SVI, mean", name, n, found.inside.mean()),
        shown("NUTS inside the 90 % intervals of SVI, least", name, n, found.inside.min()),
    ]
    usual = apart(chains, model.fit(evidence, nous.SVI(), seed=1, learn_from="settled"))
    return [*rows, shown("as kept by default: root mean square", name, n, np.sqrt(np.square(usual.mean).mean()))]


def backends(name: str, model: nous.TrustModel, evidence: nous.Evidence, guide: nous.Trust) -> list[Row]:
    """The two backends from one seed; no row where pyro is not installed."""
    try:
        other = model.fit(evidence, MANY, seed=1, learn_from="settled", backend="pyro")
    except nous.ModelError:
        return []
    found = apart(guide, other)
    return [at_most("SVI on pyro and numpyro: largest difference", name, len(found.mean), abs(found.mean).max(), LIMIT)]


def rows() -> list[Row]:
    """All rows."""
    out: list[Row] = []
    for name, model, seed in CASES:
        world = nous.datasets.world(QUESTIONS, sources=SOURCES, seed=seed)
        evidence = nous.Evidence(world.claims, settled=world.learn)
        guide = model(world).fit(evidence, MANY, seed=1, learn_from="settled")
        out += of_case(name, model(world), evidence, guide)
        if model is everything:
            out += backends(name, model(world), evidence, guide)
    return out
