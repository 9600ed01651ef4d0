"""The parts of a model that have formulas, and the prior of every parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nousppl.domains import is_confused
from nousppl.errors import ModelError
from nousppl.models.denial import LOG_DENIAL
from nousppl.models.hierarchy import INTERCEPT, Formula
from nousppl.models.priors import Prior, half_normal, log_normal, normal
from nousppl.models.shapes import AnyOf, Number, WhileTrue
from nousppl.models.specification import DENIED
from nousppl.models.terms import PAIRS

if TYPE_CHECKING:
    from nousppl.model import TrustModel

_INTERCEPTS = {
    "reliability": normal(1.1, 1.0),
    "popularity": normal(1.0, 1.0),
    "change": normal(-float(np.log(365.0)), 1.5),
    "sensitivity": normal(1.0, 1.0),
    "specificity": normal(3.0, 1.0),
    "spread": normal(-1.2, 1.0),
    "shared": normal(-1.2, 1.0),
}
"""Priors of intercepts; where a part has none its intercept is 0 unless the user gives it a prior."""
GROUP_SD = {"shift": 0.3}
"""Scale of the half-normal prior of a group's standard deviation, where it is not 0.7."""
TRAP, CORRELATION = 0.02, 0.35
"""Medians of the priors of a trap and of the correlation of errors, which claims alone cannot move: chosen by the log
loss on three public sets of crowd labels (rte, product and dog of Zheng et al. 2017), nothing settled."""

_TAKEN = {"origin_log_strangers", "origin_affinity_sigma", "origin_affinity_raw"}
"""Sites whose names do not tell those of their priors."""


def formulas(model: TrustModel) -> dict[str, Formula]:
    """Part of the model -> its formula, for each part that has one."""
    texts = {"reliability": model.reliability}
    if model.origin is not None:
        texts["freshness"] = model.freshness
    if model.errors.shared_formula is not None:
        texts["popularity"] = model.errors.shared_formula
    if model.change is not None:
        texts["change"] = model.change
    for shape in model.shapes.values():
        texts |= shape.formulas
    return {part: Formula.parse(part, text) for part, text in texts.items()}


def default_priors(model: TrustModel) -> dict[str, dict[str, Prior]]:
    """The prior of every parameter of a model, by part and name; what the user gives replaces these."""
    out = {part: _formula_priors(formula, _INTERCEPTS.get(part)) for part, formula in formulas(model).items()}
    if model.origin is not None:
        out["origin"] = {"strangers": normal(-4.0, 1.0)}
        for feature in model.origin.features:
            out["origin"][feature] = normal(3.0, 1.0) if feature == "same_source" else normal(0.0, 1.0)
        if model.origin.denied:
            out["origin"][DENIED] = normal(0.0, 1.0)
        if model.origin.affinity is not None:
            out["origin"]["affinity"] = half_normal(2.0)
        if model.origin.lag:
            out["origin"]["half_life"] = log_normal(float(np.log(30.0)), 1.0)
        if model.origin.text is not None:
            out["origin"]["text"] = normal(2.0, 1.0)
    errors: dict[str, Prior] = {}
    if model.errors.shared and model.errors.shared_formula is None:
        errors["log_popularity"] = normal(1.0, 1.0)
    if model.errors.has_difficulty(model.origin):
        errors["difficulty_sd"] = half_normal(1.0)
    if model.errors.bias != "none":
        errors["bias"] = normal(0.0, 1.0)
    if model.errors.bias == "source":
        errors["bias|source"] = half_normal(0.7)
    lists = (answers for attribute, answers in model.answers.items() if attribute not in model.shapes)
    if model.errors.bias != "none" and any(is_confused(answers) for answers in lists):
        errors["confusion"] = normal(0.0, 1.0)
        if model.errors.bias == "source":
            errors["confusion|source"] = half_normal(0.7)
    if model.errors.mixture:
        errors["logit_hard"] = normal(logit(0.1), 1.0)
        errors["hard_shift"] = log_normal(float(np.log(3.0)), 0.5)
        errors["hard|attribute"] = half_normal(1.0)
    if model.errors.trap:
        errors["logit_trap"] = normal(logit(TRAP), 0.5)
    if model.errors.correlation:
        errors["logit_correlation"] = normal(logit(CORRELATION), 0.5)
    errors["log_denial"] = normal(LOG_DENIAL, 1.0)
    out["errors"] = errors
    if model.base_rates == "learned":
        out["base_rates"] = {"logit": normal(0.0, 1.5)}
    if any(isinstance(shape, AnyOf) for shape in model.shapes.values()):
        out["items"] = {
            "logit_prevalence": normal(-1.0, 1.5),
            "logit_denial": normal(-3.0, 1.5),
            "logit_slip": normal(-2.0, 1.0),
        }
    if any(isinstance(shape, Number) for shape in model.shapes.values()):
        # In units of the attribute's scale.
        out["numbers"] = {"log_scale": normal(0.0, 0.5), "log_slope": normal(0.0, 0.2)}
    if any(isinstance(shape, WhileTrue) for shape in model.shapes.values()):
        out["state"] = {
            "logit_on": normal(0.0, 1.5),
            "log_duration": normal(float(np.log(30.0)), 1.5),
            "logit_stated": normal(0.0, 1.5),
        }
    _add_own(model, out)
    return out


def _add_own(model: TrustModel, priors: dict[str, dict[str, Prior]]) -> None:
    """Add the priors of the user's own terms.

    Raises:
        ModelError: a part that the model does not have, or a parameter called like another one.
    """
    parts = (*formulas(model), *((PAIRS,) if model.origin is not None else ()))
    for part, declared in model.declared.items():
        if part not in parts:
            hint = '; popularity has one with Errors(popularity="1")' if part == "popularity" else ""
            raise ModelError(f"terms: no part {part!r} that takes terms in this model; there are {list(parts)}{hint}")
        for term, given, _ in declared:
            for parameter, prior in zip(term.parameters, given, strict=True):
                key = term.key(parameter)
                if key in priors[part] or term.site(parameter) in _TAKEN:
                    raise ModelError(
                        f"{term.where}: its parameter {parameter!r} would be called {key!r}, as another one of "
                        f"{part!r} is; rename the function"
                    )
                priors[part][key] = prior


def logit(p: float) -> float:
    """Log odds of a probability."""
    return float(np.log(p / (1.0 - p)))


def _formula_priors(formula: Formula, intercept: Prior | None) -> dict[str, Prior]:
    priors: dict[str, Prior] = {}
    if formula.intercept and intercept is not None:
        priors[INTERCEPT] = intercept
    priors |= dict.fromkeys(formula.fixed, normal(0.0, 1.0))
    sd = GROUP_SD.get(formula.name, 0.7)
    return priors | {group_key(group.name): half_normal(sd) for group in formula.groups}


def group_key(term: str) -> str:
    """``source`` for ``1|source``, ``hedging|source`` for a slope."""
    return term.removeprefix("1|")


def priors_of(model: TrustModel) -> dict[str, dict[str, Prior]]:
    """Default priors with the user's in their place.

    Raises:
        ModelError: a part or a name that the model does not have.
    """
    priors, parts = default_priors(model), formulas(model)
    for part, given in model.given_priors.items():
        if part not in priors:
            raise ModelError(f"priors: no part {part!r} in this model; there are {list(priors)}")
        free = {INTERCEPT} if part in parts and parts[part].intercept else set()
        for name, prior in given.items():
            if name not in priors[part] and name not in free:
                raise ModelError(f"priors[{part!r}]: no parameter {name!r}; there are {sorted({*priors[part], *free})}")
            priors[part][name] = Prior.of(prior)
    return priors
