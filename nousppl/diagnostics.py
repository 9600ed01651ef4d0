"""What is wrong with a fit, and what to do about it, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from nousppl import arviz_bridge, checks, display, saving, summaries
from nousppl.checks import Finding
from nousppl.errors import InferenceError, QuestionError
from nousppl.evidence import Evidence
from nousppl.learned import learned_from, without_later_facts
from nousppl.models.shapes import AnyOf, Number, WhileTrue
from nousppl.power_scaling import THRESHOLD, sensitivity
from nousppl.trust import Trust

ENOUGH_DRAWS = 1000
"""Draws from which sensitivities to the priors are not mostly noise."""
RATIOS = 1000
"""Draws of the guide whose importance ratios are looked at."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What the checks of a fit found."""

    fit: str
    """How the trust was made, in words."""
    table: pd.DataFrame
    """A row a check (index ``check``): ok, what (sites or questions concerned, the worst first), value (the worst),
    limit (what it is held to), advice (what is wrong and what to do; blank where it is ok)."""
    left_out: dict[str, str]
    """Checks that were not made -> why."""

    @property
    def ok(self) -> bool:
        """Whether no check found anything."""
        return bool(self.table["ok"].all())

    @property
    def found(self) -> pd.DataFrame:
        """The rows of `table` that found something."""
        return self.table[~self.table["ok"]]

    @property
    def _head(self) -> str:
        bad, made = len(self.found), display.count(len(self.table), "check")
        return f"{self.fit}: {made}, " + (f"{bad} found something" if bad else "nothing found")

    def __str__(self) -> str:
        lines = [self._head]
        for name, row in self.found.iterrows():
            what = f"; {row['what']}" if row["what"] else ""
            lines.append(f"- {name}: {row['value']:.4g} (limit {row['limit']:.4g}{what})\n  {row['advice']}")
        lines += [f"- {name}: not checked, {why}" for name, why in self.left_out.items()]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        formats = {"value": "{:.4g}".format, "limit": "{:.4g}".format, "what": str, "advice": str}
        shown = self.table.assign(ok=np.where(self.table["ok"], "yes", "no")).reset_index()
        notes = [f"{name}: not checked, {why}" for name, why in self.left_out.items()]
        rest = "".join(f'<p class="note">{escape(note)}</p>' for note in notes)
        table = display.table_html(shown, formats)
        return f'<style>{display.STYLE}</style><div class="nous"><p>{escape(self._head)}</p>{table}{rest}</div>'


def check(trust: Trust, evidence: Evidence | None = None) -> Report:
    """Look for what is wrong with a fit: in its draws, the statistics of the sampler or the loss, and its record; with
    the evidence, also in how well the guide fits, in the priors, and in single questions.

    NUTS: divergences, R-hat above 1.01, fewer than 100 effective draws a chain (bulk, tail; Vehtari et al. 2021),
    trajectories cut off, E-BFMI below .3 (Betancourt 2016). SVI: a loss that is not finite, had not settled or still
    falls; parameters outside the block with full covariance. Both: sources below chance (the mode in which honest ones
    are taken for liars), echoes that the data do not identify, groups that the data say nothing of (Schad et al. 2021).
    With an evidence: Pareto k of the guide's importance ratios above .7 (SVI; Yao et al. 2018), conflict of prior and
    data (power scaling; Kallioinen et al. 2024), Pareto k of leaving out a question (Vehtari et al. 2017).

    Args:
        trust: a fit.
        evidence: what it was learned from, for example ``trust.evidence``; None leaves out the checks that need it.
            They took a third of the time of a fit to 40,000 claims, and as long as a fit to 1,500, where most is
            compilation.

    Raises:
        QuestionError: nothing was learned, or not from this evidence.
    """
    if trust.default:
        raise QuestionError("diagnostics.check: draws of the priors, nothing was learned; fit it first")
    if evidence is not None:
        evidence = without_later_facts(trust, evidence)
        learned_from(trust, evidence, "diagnostics.check")
    rows: list[Finding] = []
    left_out: dict[str, str] = {}
    for name, make in _checks(trust, evidence):
        result = make()
        if isinstance(result, str):
            left_out[name] = result
        else:
            rows.append(result)
    table = pd.DataFrame(rows, columns=Finding._fields)
    table.insert(1, "ok", ~table.pop("fired").to_numpy(bool))
    return Report(str(trust.record["advice"]), table.set_index("check"), left_out)


def _checks(trust: Trust, evidence: Evidence | None) -> Iterator[tuple[str, Callable[[], Finding | str]]]:
    """Name and function of every check; one that cannot be made says why."""
    if trust.record["method"] == "nuts":
        yield from _sampler(trust)
    else:
        yield from _variational(trust)
    yield "above chance", lambda: _above_chance(trust)
    contraction = summaries.echo_contraction(trust.blueprint, trust.flat)
    if contraction is not None:
        yield "echoes identified", lambda: checks.echoes(contraction)
    spreads = _spreads(trust)
    if spreads:
        yield "groups learned", lambda: checks.groups_learned(spreads, int(trust.record["settled"]))
    if trust.record["method"] == "svi":
        yield "guide (Pareto k)", lambda: NO_EVIDENCE if evidence is None else _guide(trust, evidence)
    yield "prior and data", lambda: NO_EVIDENCE if evidence is None else _conflict(trust, evidence)
    yield "leave one out (Pareto k)", lambda: NO_EVIDENCE if evidence is None else _leave_one_out(trust, evidence)


NO_EVIDENCE = "it needs the evidence: check(trust, evidence)"
OLD_FILE = "the statistic was not kept: the trust was fitted by an earlier version"


def _sampler(trust: Trust) -> Iterator[tuple[str, Callable[[], Finding | str]]]:
    stats = trust.sample_stats
    chains = next(iter(trust.posterior_draws.values())).shape[0]
    mixing = {
        kind: {str(name): values.to_numpy() for name, values in by_site.items()}
        for kind, by_site in arviz_bridge.mixing(saving.datasets(trust)["posterior"]).items()
    }
    yield "divergences", lambda: checks.divergences(stats["diverging"])
    yield "R-hat", lambda: checks.mixed_chains(mixing["r_hat"])
    yield "effective draws, bulk", lambda: checks.enough_draws("bulk", mixing["bulk"], chains)
    yield "effective draws, tail", lambda: checks.enough_draws("tail", mixing["tail"], chains)
    reached, energy = stats.get("reached_max_treedepth"), stats.get("energy")
    yield "tree depth", lambda: OLD_FILE if reached is None else checks.tree_depth(reached)
    yield (
        "energy (E-BFMI)",
        lambda: OLD_FILE if energy is None else checks.energy(arviz_bridge.energy_fraction(energy)),
    )


def _variational(trust: Trust) -> Iterator[tuple[str, Callable[[], Finding | str]]]:
    loss = np.ravel(trust.sample_stats["loss"])
    yield "finite loss", lambda: checks.finite(loss)
    yield "settled", lambda: checks.settled(bool(trust.record["converged"]), len(loss))
    yield "loss at rest", lambda: checks.falling(loss)
    yield "covariance", lambda: _covariance(trust)


def _covariance(trust: Trust) -> Finding | str:
    if trust.svi is None:
        return "the guide is not kept in a file"
    from nousppl.inference.packed import packing

    pack = packing(trust.blueprint.plan, trust.svi.factor.shape[0])
    outside = [slot.name.removesuffix("_raw") for slot in pack.slots if slot.start >= pack.full]
    return checks.together(outside, pack.size)


def _above_chance(trust: Trust) -> Finding | str:
    domains = trust.blueprint.domains
    sizes = {**domains.size, **{attribute: len(values) for attribute, values in domains.closed.items()}}
    # A state is on or off, however many ends it may have; what a number or a list would be by chance is no share.
    sizes = {a: 2 if isinstance(domains.shapes.get(a), WhileTrue) else k for a, k in sizes.items()}
    sizes = {a: k for a, k in sizes.items() if not isinstance(domains.shapes.get(a), AnyOf | Number)}
    if not len(trust.table) or not sizes:
        return "no sources, or no attributes with answers that could be right by chance"
    reliability, claims = trust.table["reliability"], trust.table["claims"]
    chance = float(np.mean([1.0 / k for k in sizes.values()]))
    return checks.mirrored(reliability, claims, chance, int(trust.record["settled"]))


def _spreads(trust: Trust) -> dict[str, tuple[float, float, float, float]]:
    """Standard deviations of groups: mean and sd under the posterior, and under the prior where those exist."""
    from nousppl.inference.backend import distribution

    out = {}
    wanted = {site.scale for site in trust.blueprint.plan.sites} - {None}
    for site in trust.blueprint.plan.sites:
        if site.name in wanted:
            prior, draws = distribution(site.prior), trust.flat[site.name]
            mean, sd = float(prior.mean), float(np.sqrt(prior.variance))
            if np.isfinite([mean, sd]).all():
                out[site.name] = (float(draws.mean()), float(draws.std()), mean, sd)
    return out


def _guide(trust: Trust, evidence: Evidence) -> Finding | str:
    if trust.svi is None:
        return "the guide is not kept in a file"
    if trust.record["learn_from"] == "cut":
        return "a cut has no joint density"
    from nousppl.importance import log_ratios

    record = trust.record
    encoded = trust.encoded(evidence)
    ratios = log_ratios(trust.blueprint, encoded, trust.svi, str(record["learn_from"]), int(record["seed"]), RATIOS)
    k = arviz_bridge.pareto_k(ratios) if np.isfinite(ratios).all() else np.inf
    return checks.guide_shape(k, bool(record["converged"]))


def _conflict(trust: Trust, evidence: Evidence) -> Finding | str:
    draws = int(np.prod(next(iter(trust.posterior_draws.values())).shape[:2]))
    if draws < ENOUGH_DRAWS:
        more = f"{ENOUGH_DRAWS:,} or more (nous.SVI(draws={ENOUGH_DRAWS}), or num_samples)"
        return f"{draws} draws are too few to weight: fit with {more}"
    table = sensitivity(trust, evidence)
    pairs = zip(table["prior"].to_numpy(), table["likelihood"].to_numpy(), strict=True)
    return checks.conflict(dict(zip(map(str, table.index), pairs, strict=True)), THRESHOLD)


def _leave_one_out(trust: Trust, evidence: Evidence) -> Finding | str:
    logs = trust.log_likelihood(learned_from(trust, evidence, "diagnostics.check"))
    try:
        found = arviz_bridge.loo(logs, saving.datasets(trust)["posterior"])
    except InferenceError as too_few:
        return str(too_few)
    return checks.leave_one_out(found.pareto_k, found.good_k, [str(name) for name in logs["question"].to_numpy()])
