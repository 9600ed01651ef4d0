"""The generative program that is fitted: hierarchical parameters, and the exact likelihood of every question.

The latent truths and origins are summed out by ``nousppl.models.one_of``, so the only sites are the parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.errors import InferenceError
from nousppl.models.base_rates import base_log_mass
from nousppl.models.denial import LOG_DENIAL
from nousppl.models.layout import Layout
from nousppl.models.logs import log_add
from nousppl.models.namespace import Array, Namespace
from nousppl.models.one_of import likelihood
from nousppl.models.origin import subset_weights, subsets
from nousppl.models.priors import Prior
from nousppl.models.terms import OwnTerm, added, by_read, pair_weights

AFFINITY_LIMIT = 20.0
"""Largest log ratio of the weight of a pair of sources to that of strangers: beyond it nothing changes any more."""
COPY_ERROR = 1e-4
"""eps, chance that a repetition comes out as a random answer."""

EMPTY = -1e30
"""Stands for the log of an empty sum where minus infinity would do harm."""

TINY = 1e-37
"""Smallest standard deviation whose log is taken."""

PARTS = {
    "reliability": "logit",
    "freshness": "log_concentration",
    "popularity": "log_beta",
    "change": "log_rate",
    "sensitivity": "logit_sensitivity",
    "specificity": "logit_specificity",
    "shift": "shift",
    "spread": "log_spread",
    "shared": "log_shared",
}
"""What a formula may predict for each claim -> its name among the parameters of the likelihood."""
OF_QUESTIONS = "change"
"""The one that is predicted for each question instead."""


class Site(NamedTuple):
    """One parameter of the model."""

    name: str
    prior: Prior
    """Of each element; for group effects the prior of their standard deviation's site is a site of its own."""
    size: int | None = None
    """Number of elements; None for a scalar."""
    scale: str | None = None
    """Name of the standard deviation's site, for group effects: they are that times a raw effect with this prior."""


class Predictor(NamedTuple):
    """The parameters of one linear predictor."""

    part: str
    """One of `PARTS`."""
    fixed: tuple[str, ...]
    """Sites of the fixed coefficients, in the order of the design's columns ("" for a column without a site:
    coefficient 0)."""
    groups: tuple[str, ...]
    """Sites of the group effects, in the order of the design's terms."""
    own: tuple[OwnTerm, ...] = ()
    """Terms that the user wrote."""


class Plan(NamedTuple):
    """The parameters of a model on some evidence; hashable through ``key``."""

    sites: tuple[Site, ...]
    predictors: tuple[Predictor, ...]
    """One for each formula of the model."""
    features: tuple[str, ...]
    """Pair features of the origins."""
    pair_terms: tuple[OwnTerm, ...] = ()
    """Pair features that the user wrote."""

    @property
    def own(self) -> tuple[OwnTerm, ...]:
        """All terms that the user wrote."""
        return (*(term for predictor in self.predictors for term in predictor.own), *self.pair_terms)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(site.name for site in self.sites)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """Names under which the sites are fitted."""
        return tuple(site.name if site.scale is None else site.name + "_raw" for site in self.sites)

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable value that is equal for equal plans; terms are equal where they are the same function."""
        sites = tuple((s.name, s.prior.family, tuple(s.prior.parameters.items()), s.size, s.scale) for s in self.sites)
        return (sites, *self[1:])


def sample_sites(xp: Namespace, plan: Plan, data: dict[str, Array]) -> dict[str, Array]:
    """Declare all parameters; group effects are centred level by level as far as ``data["centred <site>"]`` says, from
    0 to 1: levels with many claims want centred effects, levels with few non-centred ones (Betancourt & Girolami 2015),
    and those between something between (Papaspiliopoulos, Roberts & Sköld 2007)."""
    values: dict[str, Array] = {}
    for site in plan.sites:
        if site.scale is None:
            values[site.name] = xp.sample(site.name, site.prior, site.size)
        else:
            scale = values[site.scale]
            if site.prior.family != "Normal":
                raw = xp.sample(site.name + "_raw", site.prior, site.size)
                values[site.name] = xp.deterministic(site.name, scale * raw)
                continue
            centred = data["centred " + site.name]
            log_scale = xp.log(xp.maximum(scale, xp.array(TINY)))
            raw = xp.sample_normal(site.name + "_raw", xp.exp(centred * log_scale))
            values[site.name] = xp.deterministic(site.name, raw * xp.exp((1.0 - centred) * log_scale))
    return values


def linear(xp: Namespace, predictor: Predictor, data: dict[str, Array], values: dict[str, Array]) -> Array:
    """(claims,), or (questions,) for `OF_QUESTIONS`, linear predictor: fixed effects, group effects and own terms."""
    total, part = xp.array(0.0), predictor.part
    for column, name in enumerate(predictor.fixed):
        if name:
            total = total + values[name] * data[part + " fixed"][column]
    for term, name in enumerate(predictor.groups):
        total = total + xp.take(values[name], data[part + " index"][term]) * data[part + " value"][term]
    zero = data["question_zero" if part == OF_QUESTIONS else "claim_zero"]
    if predictor.own:
        table = by_read(predictor.own, data.get(part + " own", ()))
        total = total + added(xp, predictor.own, table, values, zero.shape[0])
    return total + zero


def constants(xp: Namespace, plan: Plan, values: dict[str, Array], text_grid: Array | None = None) -> dict[str, Array]:
    """Parameters that are not per claim, in the form the likelihood takes them."""
    theta: dict[str, Array] = {"rate": xp.array(0.0), "copy_error": xp.array(COPY_ERROR)}
    if "origin_log_strangers" in values:
        theta["strangers"] = xp.exp(values["origin_log_strangers"])
        coefficients = [values["origin_" + feature] for feature in plan.features]
        theta["strong"] = subset_weights(xp, coefficients)
        exact = [sum(coefficients[f] for f in group) for group in subsets(len(coefficients))]
        theta["strong_exact"] = xp.stack([xp.array(0.0), *(xp.exp(c) for c in exact)])
    if "origin_repeats_denied" in values:
        theta["denied"] = xp.exp(values["origin_repeats_denied"])
    if "origin_affinity" in values:
        effect = xp.minimum(values["origin_affinity"], xp.array(AFFINITY_LIMIT))
        theta["affinity"] = theta["strangers"] * (xp.exp(xp.after_zero(effect)) - 1.0)
    if "origin_half_life" in values:
        theta["rate"] = math.log(2.0) / values["origin_half_life"]
    if "origin_text" in values and text_grid is not None:
        theta["text"] = values["origin_text"]
        theta["text_mean"] = xp.log(xp.mean(xp.exp(values["origin_text"] * text_grid)))
    if "errors_log_popularity" in values:
        theta["beta"] = xp.exp(values["errors_log_popularity"])
    theta["denial"] = xp.exp(values.get("errors_log_denial", xp.array(LOG_DENIAL)))
    if "errors_difficulty_sd" in values:
        theta["difficulty_sd"] = values["errors_difficulty_sd"]
    if "errors_logit_hard" in values:
        theta["hard_shift"] = values["errors_hard_shift"]
        effects = values.get("errors_logit_hard|attribute", xp.zeros(0))
        theta["hard"] = values["errors_logit_hard"] + xp.after_zero(effects)
    if "errors_bias" in values:
        theta["bias"] = values["errors_bias"]
    if "errors_bias|source" in values:
        theta["bias_source"] = values["errors_bias|source"]
    if "errors_confusion" in values:
        theta["confusion"] = values["errors_confusion"]
    if "errors_confusion|source" in values:
        theta["confusion_source"] = values["errors_confusion|source"]
    for name in ("trap", "correlation"):
        if f"errors_logit_{name}" in values:
            theta[name] = xp.sigmoid(values[f"errors_logit_{name}"])
    if "base_rates" in values:
        theta["base_rates"] = values["base_rates"]
    for prefix in ("items_", "numbers_", "state_"):
        theta |= {name.removeprefix(prefix): values[name] for name in values if name.startswith(prefix)}
    return theta


def truth_logs(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], by_cell: Array, originality: Array
) -> Array:
    """(cells,) log joint density of the claims and each truth.

    Without trap and correlation it is the product of base rate and likelihood. With them it is the law of independent
    claims, p(x), times the law of the truth given n claims,
    ``p(z | x) = (1 - trap) p_rho(z | x) + trap base_rate(z)`` with ``p_rho(z | x)`` proportional to
    ``(base_rate(z) L(z)) ** (1 / (1 + (n - 1) rho))``, where n counts originals and not repetitions. With a trap
    alone that equals the sum over what the question looks like. Where nothing is settled the factor ``p(z | x)`` sums
    to one, so the claims do not move trap and rho.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters, ``trap`` and ``correlation`` among them where the model has them.
        by_cell: (cells,) log likelihood of the claims.
        originality: (slots,) chance that each claim is not itself a repetition.
    """
    if "trap" not in theta and "correlation" not in theta:
        return by_cell + cell_log_prior(xp, layout, data, theta)
    base, question = base_log_mass(xp, layout, data, theta), data["cell_question"]

    def total(logs: Array) -> Array:
        # Questions that only pad a batch have no cells; their infinities would reach the gradient as NaN.
        return xp.take(xp.maximum(xp.logsumexp_by(logs, question, layout.questions), xp.array(EMPTY)), question)

    joint = by_cell + base
    law = joint
    if "correlation" in theta:
        # By question: cells that only pad a batch are infinite, and their gradient would reach the correlation as NaN.
        power = xp.take(1.0 / (1.0 + theta["correlation"] * (originals(xp, layout, data, originality) - 1.0)), question)
        law = power * (joint - data["cell_log_count"]) + data["cell_log_count"]
    law = law - total(law)
    if "trap" in theta:
        law = log_add(xp, law + xp.log(1.0 - theta["trap"]), base + xp.log(theta["trap"]))
    return total(joint) + law + data["cell_log_possible"]


def originals(xp: Namespace, layout: Layout, data: dict[str, Array], originality: Array) -> Array:
    """(questions,) expected number of claims that are not repetitions, at least 1; the mean over the orders."""
    total = xp.sum_by(originality * data["slot_part"], data["slot_question"], layout.questions)
    return xp.maximum(total, xp.array(1.0))


def look_log_prior(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(cells,) log prior mass of what the question looks like, which is the truth where there is no trap."""
    if "trap" not in theta:
        return cell_log_prior(xp, layout, data, theta)
    base, question = base_log_mass(xp, layout, data, theta), data["cell_question"]
    possible = xp.exp(data["cell_log_possible"])
    allowed = xp.take(xp.sum_by(possible * xp.exp(base), question, layout.questions), question)
    return base + xp.log((1.0 - theta["trap"]) * possible + theta["trap"] * allowed)


def cell_log_prior(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(cells,) log prior mass of each cell; very negative where the answer is rejected or another one is settled."""
    return base_log_mass(xp, layout, data, theta) + data["cell_log_possible"]


def question_logs(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(questions,) log joint density of the claims and the settled truth, or of the claims where nothing is settled.

    Where ``data["at_vote"]`` is above 0, unsettled truths are weighted by the share of votes instead of summed out: a
    bound whose maximum is a good place to start from, since it cannot lie in the mirror mode in which all sources are
    liars.
    """
    by_cell, originality = likelihood(xp, layout, data, theta)

    def summed() -> Array:
        logs = truth_logs(xp, layout, data, theta, by_cell, originality)
        return xp.logsumexp_by(logs, data["cell_question"], layout.questions)

    def voted() -> Array:
        joint, vote = by_cell + cell_log_prior(xp, layout, data, theta), data["cell_vote"]
        logs = xp.sum_by(xp.where(vote > 0.0, vote * joint, xp.array(0.0)), data["cell_question"], layout.questions)
        # The votes say nothing of what is settled at another time than that asked about.
        logs = xp.where(data["question_pinned"], summed(), logs) if layout.pinned else logs
        # Votes are for whole values, not for items.
        return xp.where(data["question_shaped"], summed(), logs) if layout.shaped else logs

    return xp.either(data["at_vote"] > 0.0, voted, summed) if "at_vote" in data else summed()


def log_likelihood(
    xp: Namespace, plan: Plan, layout: Layout, data: dict[str, Array], values: dict[str, Array]
) -> Array:
    """Log density of all questions given the parameters, on their natural scale."""
    return weighted_logs(xp, plan, layout, data, values).sum()


def weighted_logs(xp: Namespace, plan: Plan, layout: Layout, data: dict[str, Array], values: dict[str, Array]) -> Array:
    """(questions,) log density of each question, times its weight."""
    weight = data["question_weight"]
    logs = question_logs(xp, layout, data, parameters(xp, plan, layout, data, values))
    # A question that only pads a batch has no cells: its log density is -inf and its weight 0.
    return xp.where(weight > 0.0, weight * logs, xp.array(0.0))


def parameters(
    xp: Namespace, plan: Plan, layout: Layout, data: dict[str, Array], values: dict[str, Array]
) -> dict[str, Array]:
    """What the likelihood takes, from the parameters on their natural scale."""
    if layout.links:
        values = values | {"origin_affinity": xp.take(values["origin_affinity"], data["link_pair"])}
    theta = constants(xp, plan, values, data.get("text_grid"))
    theta |= {PARTS[predictor.part]: linear(xp, predictor, data, values) for predictor in plan.predictors}
    if layout.listed:
        table = by_read(plan.pair_terms, data["listed_own"])
        theta["listed"] = pair_weights(xp, plan.pair_terms, table, values, layout.listed)
    return theta


Simulate = Callable[[Mapping[str, NDArray[np.floating[Any]]], int], NDArray[np.int32]]
"""From parameters on their natural scale, by site, and a seed to a draw of what `Law` is the law of."""


class Law(NamedTuple):
    """The law of what is observed of the questions, given the parameters; truths and origins are summed out.

    A value is an integer matrix (questions, 1 + most claims of a question): the settled truth of the question, then the
    answer that each of its claims names, in order of time; answers by their place in the question's list of them, -1
    for a truth that is not settled, for a claim that is no single answer, and for claims that it has fewer.
    """

    plan: Plan
    layout: Layout
    data: dict[str, Array]
    """Arrays of the problem and its designs; ``said`` among them is the value that they were compiled from. Without it,
    as in a fit, which draws no values, a value has no columns."""
    values: dict[str, Array]
    """Parameters on their natural scale, by site."""
    simulate: Simulate | None = None

    def log_prob(self, xp: Namespace) -> Array:
        """(questions,) log density of the value that the problem was compiled from."""
        return weighted_logs(xp, self.plan, self.layout, self.data, self.values)

    def draw(self, values: Mapping[str, NDArray[np.floating[Any]]], seed: int) -> NDArray[np.int32]:
        """A draw of the value.

        Raises:
            InferenceError: there is nothing to draw with.
        """
        if self.simulate is None:
            raise InferenceError("this program was made for a fit and draws no claims; use TrustModel.program")
        return self.simulate(values, seed)

    def refuse(self) -> InferenceError:
        """The error for another value than the one compiled."""
        return InferenceError(
            "the log density is that of the claims that the program was compiled from; for other claims make an "
            "Evidence of them and a program of that"
        )


def program(
    xp: Namespace,
    plan: Plan,
    layout: Layout,
    data: dict[str, Array],
    simulate: Simulate | None = None,
    observed: bool = True,
) -> None:
    """The probabilistic program: parameters, then what is observed of all questions, one site of its own law.

    Args:
        xp: the namespace of the backend.
        plan: the parameters.
        layout: static sizes of the problem.
        data: arrays of the problem and its designs.
        simulate: draws truths and claims, for predictions.
        observed: False to draw them.
    """
    values = sample_sites(xp, plan, data)
    xp.observe("questions", Law(plan, layout, data, values, simulate), observed)
