"""Where a fit goes on from: the posterior of an earlier fit, level by level, as start values of the next."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.blueprint import Blueprint, centring
from nousppl.domains import is_confused
from nousppl.encode import Encoded
from nousppl.fitting import learned_questions, used_claims
from nousppl.models.program import Site

Draws = dict[str, NDArray[np.float64]]
Moments = tuple[NDArray[np.float64], NDArray[np.float64]]
Start = dict[str, Moments]
"""Name of a parameter as it is fitted -> mean and standard deviation on the unconstrained scale, (size,) each."""
Exponents = dict[str, NDArray[np.float64]]

TINY = 1e-30
LEAST = 1e-3
"""Smallest standard deviation to start from."""
GOING_ON = 1
"""How often the step size counts as lowered when a fit goes on."""
REAL = ("Normal", "StudentT", "Laplace", "Cauchy")


def labels(blueprint: Blueprint, site: str) -> list[Any]:
    """What the elements of a parameter stand for; one element for a scalar."""
    domains, affinity = blueprint.domains, blueprint.affinity
    bias = next(iter(blueprint.bias.levels.values())) if blueprint.bias is not None else ()
    part, _, term = site.partition("_")
    encoding = blueprint.encodings.get(part)
    if encoding is not None and term in encoding.levels:
        return list(encoding.levels[term])
    if site == "origin_affinity" and affinity is not None:
        pairs = zip(affinity.later, affinity.earlier, strict=True)
        return [(affinity.labels[i], affinity.labels[j]) for i, j in pairs]
    confused = [
        (attribute, true, wrong)
        for attribute, values in domains.closed.items()
        if is_confused(values)
        for true in values
        for wrong in values
        if wrong != true
    ]
    axes: dict[str, list[Any]] = {
        "errors_bias": list(domains.classes),
        "base_rates": list(domains.classes),
        "errors_bias|source": list(product(bias, domains.classes)),
        "errors_confusion": confused,
        "errors_confusion|source": list(product(bias, confused)),
        "errors_logit_hard|attribute": list(domains.attributes),
    }
    return axes.get(site, [None])


def start(
    old: Blueprint,
    draws: Draws,
    state: Any,
    new: Blueprint,
    encoded: Encoded,
    full_size: int,
    learn_from: str,
) -> Any:
    """``nousppl.inference.svi.Start`` of a fit that goes on from an earlier one: its own variational state where the
    parameters are the same, else their means and standard deviations.

    Args:
        old: the blueprint of the earlier fit.
        draws: its draws, see `start_values`.
        state: its variational state, if there is one.
        new: the blueprint of the fit to come.
        encoded: the evidence of the fit to come.
        full_size: see `nousppl.inference.options.SVI`.
        learn_from: see ``TrustModel.fit``.
    """
    from nousppl.inference.guide import State, moments
    from nousppl.inference.packed import packing
    from nousppl.inference.svi import Start

    pack = packing(new.plan, full_size)
    same = all(labels(old, site) == labels(new, site) for site in new.plan.names) and old.plan.key == new.plan.key
    if isinstance(state, State) and same and state.factor.shape[0] == pack.full:
        return Start(state, GOING_ON)
    centred = centring(new.plan, encoded, new, used_claims(encoded, learned_questions(encoded, learn_from)))
    return Start(moments(new.plan, pack, start_values(old, draws, new, centred)), GOING_ON)


def start_values(old: Blueprint, draws: Draws, new: Blueprint, centred: Exponents) -> Start:
    """Means and standard deviations to start a fit from.

    Args:
        old: the blueprint of the earlier fit.
        draws: its draws, site -> (draws,) or (draws, size), natural scale.
        new: the blueprint of the fit to come; levels that the earlier one did not know start from their group's law.
        centred: exponents of the fit to come, see `nousppl.blueprint.centring`.
    """
    out: Start = {}
    for site in new.plan.sites:
        if site.name not in draws:
            continue
        if site.scale is not None:
            out[site.name + "_raw"] = _effects(site, draws, old, new, centred)
        elif (found := _parameters(site, draws, old, new)) is not None:
            out[site.name] = found
    return out


def _parameters(site: Site, draws: Draws, old: Blueprint, new: Blueprint) -> Moments | None:
    """Of top-level parameters; None where their axis has changed."""
    from nousppl.inference.packed import from_half_normal

    if labels(old, site.name) != labels(new, site.name):
        return None
    value = draws[site.name].reshape(len(draws[site.name]), -1)
    if site.prior.family == "HalfNormal":
        value = from_half_normal(value / site.prior.parameters["scale"])
    elif site.prior.family not in REAL:
        value = np.log(np.maximum(value, TINY))
    return value.mean(0), np.maximum(value.std(0), LEAST)


def _effects(site: Site, draws: Draws, old: Blueprint, new: Blueprint, centred: Exponents) -> Moments:
    """Of group effects, by the labels of their levels."""
    assert site.scale is not None
    sigma = draws[site.scale][:, None]
    natural = centred.get("centred " + site.name, np.zeros(site.size or 1))
    place = {label: i for i, label in enumerate(labels(old, site.name))}
    index = np.array([place.get(label, -1) for label in labels(new, site.name)])
    value = draws[site.name][:, np.maximum(index, 0)] / np.maximum(sigma, TINY) ** (1.0 - natural)
    known = index >= 0
    spread = float(sigma.mean()) ** natural
    return np.where(known, value.mean(0), 0.0), np.maximum(np.where(known, value.std(0), spread), LEAST)
