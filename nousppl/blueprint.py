"""A model on some evidence: the encodings of its formulas, its domains and its parameters. Saved with every trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.affinity import Affinities, find_pairs
from nousppl.default_priors import formulas, group_key, priors_of
from nousppl.domains import Domains
from nousppl.encode import Encoded, encode_claims
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.models.hierarchy import INTERCEPT, Design, Encoding, Formula, encode
from nousppl.models.priors import Prior, normal, student_t
from nousppl.models.program import OF_QUESTIONS, Plan, Predictor, Site
from nousppl.models.shapes import AnyOf, Number
from nousppl.models.specification import Errors, Origin
from nousppl.models.terms import PAIRS, OwnTerm
from nousppl.text import GRID

if TYPE_CHECKING:
    from nousppl.model import TrustModel

HALF_CENTRED = {"reliability": 100.0}
"""Claims of a level from which its effect is rather centred than not, by part of the model."""
HALF_CENTRED_ELSE = 500.0
"""The same for the other parts, of which a claim says less."""

_ORIGIN_SITES = {"strangers": "origin_log_strangers", "affinity": "origin_affinity_sigma"}

Priors = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Blueprint:
    """What is needed to compile any evidence for a model."""

    encodings: Mapping[str, Encoding]
    """Part of the model -> the encoding of its formula, for each part that has one."""
    bias: Encoding | None
    domains: Domains
    origin: Origin | None
    errors: Errors
    base_rates: str
    plan: Plan
    text_grid: NDArray[np.float64] | None = None
    affinity: Affinities | None = None
    denials: bool = False
    """Whether kappa of denials is among the parameters: it was seen that claims deny something, or nothing was seen."""

    def encode(self, evidence: Evidence) -> Encoded:
        """Encode an evidence exactly as the one that the model was fitted on."""
        domains = self.domains.with_evidence(evidence)
        return encode_claims(
            evidence,
            self.encodings,
            domains,
            self.origin,
            self.errors,
            self.bias,
            self.affinity,
            self.domains.attributes,
            self.plan.own,
        )


def draw_up(model: TrustModel, evidence: Evidence | None, questions: NDArray[np.int64] | None = None) -> Blueprint:
    """The blueprint of a model on an evidence; without one, that of the default trust, which knows no levels.

    Args:
        model: the specification.
        evidence: claims.
        questions: those in which pairs of sources must meet to have an affinity of their own; None for all.
    """
    encodings = {part: _encode(formula, evidence) for part, formula in formulas(model).items()}
    by_source = Formula.parse("bias", "0 + (1|source)")
    bias = _encode(by_source, evidence) if model.errors.bias == "source" else None
    affinity = None
    column = model.origin.affinity if model.origin is not None else None
    if evidence is not None and model.origin is not None and column is not None:
        affinity = find_pairs(column, evidence.covariates, evidence.coded, questions, model.origin.order)
    domains = Domains.of(model.answers, evidence, model.shapes)
    denials = evidence is None or _denies(model, evidence)
    return assemble(model, encodings, bias, domains, affinity=affinity, denials=denials)


def _denies(model: TrustModel, evidence: Evidence) -> bool:
    """Whether claims about one-of-several questions deny anything; denials of items have parameters of their own."""
    coded = evidence.coded
    denied = coded.questions["attribute"].iloc[coded.claim_question[coded.claim_denied >= 0]]
    return not bool(denied.isin(list(model.shapes)).all())


def assemble(
    model: TrustModel,
    encodings: Mapping[str, Encoding],
    bias: Encoding | None,
    domains: Domains,
    text_grid: NDArray[np.float64] | None = None,
    affinity: Affinities | None = None,
    denials: bool = False,
) -> Blueprint:
    """The blueprint of a model with these encodings and domains: declares its parameters.

    Raises:
        ModelError: a class bias without closed lists of answers.
    """
    priors = priors_of(model)
    classes = len(domains.classes)
    if not classes and model.errors.bias != "none":
        raise ModelError(
            f"Errors(bias={model.errors.bias!r}): give the closed lists of answers, "
            "e.g. answers={'stance': ['T', 'F']}"
        )
    sites: list[Site] = []
    predictors: list[Predictor] = []
    for part, encoding in encodings.items():
        of_part, predictor = _formula_sites(part, encoding, priors[part])
        sites += of_part + _own_sites(model, part, priors[part])
        predictors.append(predictor._replace(own=_own(model, part)))
    own_sites = _own_sites(model, PAIRS, priors.get(PAIRS, {}))
    own_names = {site.name for site in own_sites}
    origin_sites = [Site(_ORIGIN_SITES.get(n, f"origin_{n}"), p) for n, p in priors.get(PAIRS, {}).items()]
    sites += [site for site in origin_sites if site.name not in own_names] + own_sites
    if affinity is not None and len(affinity):
        # Most pairs are strangers, a few copy nearly everything: the tail must be heavy.
        sites.append(Site("origin_affinity", student_t(3.0), len(affinity), "origin_affinity_sigma"))
    sites += _error_sites(priors.get("errors", {}), len(domains.attributes), classes, len(domains.confusion_rows), bias)
    if "base_rates" in priors and classes:
        sites.append(Site("base_rates", priors["base_rates"]["logit"], classes))
    sets = len(domains.of_shape(AnyOf))
    for name, prior in priors.get("items", {}).items():
        sites.append(Site(f"items_{name}", prior, sets if name == "logit_prevalence" else None))
    measured = len(domains.of_shape(Number))
    sites += [Site(f"numbers_{name}", prior, measured) for name, prior in priors.get("numbers", {}).items()]
    sites += [Site(f"state_{name}", prior, len(domains.lasting)) for name, prior in priors.get("state", {}).items()]
    if denials:
        sites.append(Site("errors_log_denial", priors["errors"]["log_denial"]))
    features = model.origin.features if model.origin is not None else ()
    plan = Plan(tuple(sites), tuple(predictors), features, _own(model, PAIRS))
    if text_grid is None and model.origin is not None and model.origin.text is not None:
        # Until a fit has seen texts, similarities are taken to be spread evenly.
        text_grid = np.linspace(0.0, 1.0, GRID)
    return Blueprint(
        encodings,
        bias,
        domains,
        model.origin,
        model.errors,
        model.base_rates,
        plan,
        text_grid,
        affinity,
        denials,
    )


def _own(model: TrustModel, part: str) -> tuple[OwnTerm, ...]:
    return tuple(declared.term for declared in model.declared.get(part, ()))


def _own_sites(model: TrustModel, part: str, priors: Mapping[str, Prior]) -> list[Site]:
    """Sites of the user's own terms."""
    return [
        Site(term.site(name), priors[term.key(name)], size)
        for term, _, sizes in model.declared.get(part, ())
        for name, size in zip(term.parameters, sizes, strict=True)
    ]


def _encode(formula: Formula, evidence: Evidence | None) -> Encoding:
    if formula.name == OF_QUESTIONS:
        _refuse_other_columns(formula)
    if evidence is not None:
        return encode(formula, evidence.coded.questions if formula.name == OF_QUESTIONS else evidence.covariates)
    # Without rows the categories of a column are not known, so fixed effects and slopes are numbers.
    numbers = {column for term in formula.fixed_factors for column in term} | {group.slope for group in formula.groups}
    columns = {name: pd.Series(dtype=float if name in numbers else object) for name in formula.columns}
    return encode(formula, pd.DataFrame(columns))


def _refuse_other_columns(formula: Formula) -> None:
    """A rate of change is one of a question, not of a claim."""
    other = [column for column in formula.columns if column not in ("entity", "attribute")]
    if other:
        raise ModelError(
            f"change = '{formula.text}': column {other[0]!r} is not one of a question; allowed are entity and attribute"
        )


def _error_sites(
    priors: Mapping[str, Prior], attributes: int, classes: int, pairs: int, bias: Encoding | None
) -> list[Site]:
    scalars = ("log_popularity", "difficulty_sd", "logit_hard", "hard_shift", "logit_trap", "logit_correlation")
    sites = [Site("errors_" + name, priors[name]) for name in scalars if name in priors]
    if "hard|attribute" in priors:
        name, scale = "errors_logit_hard|attribute", "errors_logit_hard|attribute_sigma"
        sites.append(Site(scale, priors["hard|attribute"]))
        if attributes:
            sites.append(Site(name, normal(0.0, 1.0), attributes, scale))
    for name, size in (("bias", classes), ("confusion", pairs)):
        if name in priors:
            sites.append(Site("errors_" + name, priors[name], size))
        if f"{name}|source" in priors and bias is not None:
            levels = len(next(iter(bias.levels.values())))
            effects, scale = f"errors_{name}|source", f"errors_{name}|source_sigma"
            sites.append(Site(scale, priors[f"{name}|source"]))
            if levels:
                sites.append(Site(effects, normal(0.0, 1.0), levels * size, scale))
    return sites


def _formula_sites(part: str, encoding: Encoding, priors: Mapping[str, Prior]) -> tuple[list[Site], Predictor]:
    """Sites of a predictor, and their names by column and by group term."""
    sites, fixed, groups = [], [], []
    terms = dict(zip(encoding.fixed_names, _term_names(encoding), strict=True))
    for column in encoding.fixed_names:
        prior = priors.get(terms[column])
        if prior is None:
            fixed.append("")
            continue
        name = f"{part}_{'Intercept' if column == INTERCEPT else column}"
        sites.append(Site(name, prior))
        fixed.append(name)
    for term, levels in encoding.levels.items():
        name = f"{part}_{term}"
        sites.append(Site(name + "_sigma", priors[group_key(term)]))
        groups.append(name)
        if levels:
            sites.append(Site(name, normal(0.0, 1.0), len(levels), name + "_sigma"))
    return sites, Predictor(part, tuple(fixed), tuple(groups))


def _term_names(encoding: Encoding) -> list[str]:
    """The term of the formula that each fixed column belongs to: ``kind`` for ``kind[site]``."""
    return [":".join(column for column, _ in factors) or INTERCEPT for factors in encoding.fixed]


def design_arrays(part: str, design: Design, claims: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Arrays of a predictor for the program: fixed columns, group indices and slope values of some claims, and what
    own terms read."""
    empty = np.zeros((0, len(claims)))
    out: dict[str, NDArray[Any]] = {
        part + " fixed": design.fixed[claims].T,
        part + " index": np.stack([g.index[claims] for g in design.groups]).astype(np.int32)
        if design.groups
        else empty.astype(np.int32),
        part + " value": np.stack([g.value[claims] for g in design.groups]) if design.groups else empty,
    }
    return out | ({part + " own": design.own[:, claims]} if len(design.own) else {})


def confusion_index(blueprint: Blueprint, sources: int) -> NDArray[np.int32]:
    """(sources * pairs,) row of confusion of each pair of a true and a wrong answer, source by source."""
    row = blueprint.domains.confusion_rows
    rows = int(row.max(initial=-1)) + 1
    return (np.arange(sources)[:, None] * rows + row).ravel().astype(np.int32)


def claims_of(encoded: Encoded, part: str, claims: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of some claims that a part of the model is about."""
    of_shape = dict.fromkeys(("sensitivity", "specificity"), "sets") | dict.fromkeys(
        ("shift", "spread", "shared"), "measured"
    )
    if part not in of_shape:
        return claims
    questions: NDArray[np.bool_] = getattr(encoded.cells, of_shape[part])
    return claims[questions[encoded.coded.claim_question[claims]]]


def centring(
    plan: Plan, encoded: Encoded, blueprint: Blueprint, claims: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """``centred <site>`` exponents: 1 for a level whose effect is its parameter, 0 for one whose effect is that times
    the standard deviation of the group; near 1 for levels with many claims."""
    out = {}
    sizes = {site.name: site.size or 0 for site in plan.sites if site.scale is not None}
    claims = claims[claims < encoded.parts.claims]
    for predictor in plan.predictors:
        rows = claims_of(encoded, predictor.part, claims)
        if predictor.part == OF_QUESTIONS:
            rows = np.unique(encoded.coded.claim_question[claims])
        for group, name in zip(encoded.designs[predictor.part].groups, predictor.groups, strict=True):
            if name in sizes:
                counts = np.bincount(group.index[rows], minlength=sizes[name])[: sizes[name]]
                out["centred " + name] = counts / (counts + HALF_CENTRED.get(predictor.part, HALF_CENTRED_ELSE))
    for name in ("origin_affinity", "errors_logit_hard|attribute", "errors_bias|source", "errors_confusion|source"):
        if name in sizes:
            out["centred " + name] = np.zeros(sizes[name])
    return out
