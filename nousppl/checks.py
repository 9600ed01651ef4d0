"""Checks of a fit, each a function of the arrays it needs, with its limit and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

R_HAT = 1.01
"""Vehtari et al. (2021), section 4."""
DRAWS_A_CHAIN = 100
"""Effective draws that are needed for each chain (Vehtari et al. 2021: 400 for the usual four)."""
ENERGY = 0.3
"""Betancourt (2016), section 5; the Stan reference manual and arviz use the same."""
SATURATED = 0.01
"""Share of draws whose tree was cut off, from which the sampler is held back; single ones only cost time."""
FALL = 3.0
"""Standard errors by which the loss of the last block of steps lies below that of the one before it."""
STEPS = 100
"""Steps of such a block."""
SHAPE = 0.7
"""Pareto k above which importance ratios say that the guide is far off (Yao et al. 2018, section 3.1)."""
LOO_SHARE = 0.01
"""Share of the questions that may have too large a Pareto k: sums over questions hardly feel so few."""
CONTRACTION = 0.1
"""1 - posterior variance / prior variance below which a parameter was not learned (Schad et al. 2021, "Toward a
principled Bayesian workflow"; Betancourt's posterior contraction)."""
IDENTIFIED = 0.2
"""Share by which the data must narrow the weight of strangers for echoes to count as identified."""
NAMED = 5
"""Sites or questions that a finding names."""


class Finding(NamedTuple):
    """What one check saw."""

    check: str
    """Its name."""
    fired: bool
    """Whether something is wrong."""
    what: str
    """Sites or questions concerned; blank where nothing is wrong or all are."""
    value: float
    """The worst value."""
    limit: float
    """What it is held to."""
    advice: str
    """What is wrong and what to do, in words; blank where nothing is."""


def finding(check: str, fired: bool, what: str, value: float, limit: float, advice: str) -> Finding:
    """A finding without words where nothing is wrong."""
    return Finding(check, bool(fired), what if fired else "", float(value), float(limit), advice if fired else "")


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


# ------------------------------------------------------------------------------------------------------------- NUTS


def divergences(diverging: ArrayLike) -> Finding:
    """(chain, draw) divergent transitions: the sampler cannot follow the posterior there (Betancourt 2017, "A
    conceptual introduction to Hamiltonian Monte Carlo", section 6.2)."""
    count = int(np.sum(diverging))
    advice = (
        f"{count} of {np.size(diverging)} draws diverged, part of the posterior is missing: raise target_accept_prob "
        "(nous.NUTS(kernel={'target_accept_prob': 0.95})), and num_warmup where it was short; if they stay, give the "
        "standard deviations of groups tighter priors"
    )
    return finding("divergences", count > 0, "", count, 0, advice)


def mixed_chains(r_hat: Mapping[str, ArrayLike]) -> Finding:
    """R-hat by site (rank-normalised and split; Vehtari et al. 2021); NaN, of draws that never moved, counts as bad."""
    worst = {name: _largest(values) for name, values in r_hat.items()}
    bad = sorted((name for name in worst if not worst[name] <= R_HAT), key=lambda name: -worst[name])
    advice = (
        "the chains have not mixed, so neither means nor intervals can be trusted: raise num_warmup and num_samples "
        "(nous.NUTS(num_warmup=1000, num_samples=1000, num_chains=4)); if it stays, the posterior has several modes: "
        "settle some facts, or give reliability a prior above chance"
    )
    what = listed([f"{name} ({worst[name]:.3f})" for name in bad])
    return finding("R-hat", bool(bad), what, max(worst.values(), default=1.0), R_HAT, advice)


def enough_draws(kind: str, sizes: Mapping[str, ArrayLike], chains: int) -> Finding:
    """Effective sample sizes by site (Vehtari et al. 2021), ``kind`` "bulk" (means) or "tail" (ends of intervals)."""
    least = {name: -_largest(-np.asarray(values, float)) for name, values in sizes.items()}
    limit = DRAWS_A_CHAIN * chains
    bad = sorted((name for name in least if not least[name] >= limit), key=lambda name: least[name])
    about = {"bulk": "means are", "tail": "ends of intervals are"}[kind]
    advice = (
        f"too few effective draws, {about} noisy: raise num_samples (nous.NUTS(num_samples=...)) by a factor of "
        f"{_times(limit, min(least.values(), default=limit))} or so"
    )
    what = listed([f"{name} ({least[name]:.0f})" for name in bad])
    return finding(f"effective draws, {kind}", bool(bad), what, min(least.values(), default=limit), limit, advice)


def tree_depth(reached: ArrayLike) -> Finding:
    """(chain, draw) whether the tree was as deep as allowed: the trajectory was cut off (Hoffman & Gelman 2014)."""
    share = float(np.asarray(reached, float).mean())
    advice = (
        f"{share:.0%} of the trajectories were cut off, and draws are more alike than need be: raise max_tree_depth "
        "(nous.NUTS(kernel={'max_tree_depth': 12})) or num_warmup"
    )
    return finding("tree depth", share > SATURATED, "", share, SATURATED, advice)


def energy(fraction: ArrayLike) -> Finding:
    """(chains,) fraction of missing information: whether changes of the energy reach its tails (Betancourt 2016)."""
    values = np.atleast_1d(np.asarray(fraction, float))
    bad = np.flatnonzero(~(values >= ENERGY))
    advice = (
        "the sampler moves slowly through the tails of the posterior: raise num_warmup; if it stays, give the standard "
        "deviations of groups tighter priors, or drop groups with few claims a level"
    )
    what = listed([f"chain {i} ({values[i]:.2f})" for i in bad])
    return finding("energy (E-BFMI)", bool(len(bad)), what, -_largest(-values), ENERGY, advice)


# -------------------------------------------------------------------------------------------------------------- SVI


def finite(loss: ArrayLike) -> Finding:
    """(steps,) whether the loss stayed finite."""
    bad = int((~np.isfinite(np.asarray(loss, float))).sum())
    advice = (
        "the fit diverged and its draws mean nothing: lower learning_rate (nous.SVI(learning_rate=0.01)), and look for "
        "extreme values in the numeric covariates"
    )
    return finding("finite loss", bad > 0, "", bad, 0, advice)


def settled(converged: bool, steps: int) -> Finding:
    """Whether the fit judged that its loss had settled."""
    advice = f"the fit was stopped after {steps} steps before it had settled: raise steps (nous.SVI(steps={4 * steps}))"
    return finding("settled", not converged, "", float(converged), 1, advice)


def falling(loss: ArrayLike) -> Finding:
    """(steps,) fall of the mean loss between the last two blocks of steps, in standard errors of that difference.

    Steps come in pairs with mirrored noise, so that a pair is the unit.
    """
    blocks = np.asarray(loss, float)[-2 * STEPS :]
    blocks = blocks[len(blocks) % 4 :].reshape(2, -1, 2).mean(-1)
    fall = float(blocks[0].mean() - blocks[1].mean())
    error = float(np.sqrt((blocks.var(1, ddof=1) / blocks.shape[1]).sum())) if blocks.shape[1] > 1 else np.inf
    z = fall / error if error > 0 else np.inf * np.sign(fall) if fall else 0.0
    advice = (
        f"the loss still falls, by {fall:.1f} nats in the last {blocks.shape[1] * 2} steps: raise steps, or the "
        "learning rate where it is far below .05"
    )
    return finding("loss at rest", not z <= FALL, "", z, FALL, advice)


def together(outside: Sequence[str], size: int) -> Finding:
    """Sites beyond the block with full covariance, and the number of all parameters."""
    advice = (
        "these parameters are taken as independent of all others, so that their intervals are too narrow: raise "
        f"full_size (nous.SVI(full_size={size}); time and memory grow with its square), or use NUTS on small data"
    )
    return finding("covariance", bool(outside), listed(outside), len(outside), 0, advice)


def guide_shape(k: float, converged: bool) -> Finding:
    """Pareto k of the importance ratios of posterior and guide (Yao et al. 2018, "Yes, but did it work?"), and whether
    the fit had settled."""
    advice = (
        "the posterior is wider than the normal guide, or of another shape: means are often fair, but take intervals "
        "with care, and use NUTS where the data are small"
        if converged
        else "the guide is far from the posterior: raise steps"
    )
    return finding("guide (Pareto k)", not k <= SHAPE, "", k, SHAPE, advice)


# ------------------------------------------------------------------------------------------------------------- both


def mirrored(reliability: ArrayLike, claims: ArrayLike, chance: float, facts: int) -> Finding:
    """Mean reliability of the sources (S,), weighted by their claims (S,), against what guessing would give.

    Where nothing is settled, everything is as probable with truth and lie exchanged (two answers), or nearly so.

    Args:
        reliability: mean reliability of each source.
        claims: number of claims of each source.
        chance: reliability of a source that guesses, 1/K.
        facts: number of settled truths that were learned from.
    """
    values, weights = np.asarray(reliability, float), np.asarray(claims, float)
    mean = float(np.average(values, weights=weights)) if weights.sum() > 0 else 1.0
    low = float((values < chance).mean()) if len(values) else 0.0
    why = (
        f"though {facts} facts are settled: see whether they are worded as the claims are (same_value), and not "
        "exchanged"
        if facts
        else "and nothing is settled, so the fit may hold liars for honest sources: settle some facts, or give "
        "reliability a prior above chance (priors={'reliability': {'1': dist.Normal(1.5, 0.5)}})"
    )
    advice = f"{low:.0%} of the sources are believed to be right less often than guessing, {why}"
    return finding("above chance", mean < chance, "reliability", mean, chance, advice)


def echoes(contraction: float) -> Finding:
    """Share by which the data narrowed the weight of strangers (`nousppl.summaries.echo_contraction`)."""
    advice = (
        "echoes are not identified: whether sources repeat each other, and how a flood of repetitions counts, is up to "
        "the prior of origin_log_strangers; beliefs about other questions may still be fair. Settle facts on questions "
        "where sources are wrong together, or leave echoes out (origin=None)"
    )
    return finding("echoes identified", contraction < IDENTIFIED, "origins", contraction, IDENTIFIED, advice)


def groups_learned(spreads: Mapping[str, tuple[float, float, float, float]], facts: int) -> Finding:
    """Whether the data moved the standard deviations of the groups of the formulas.

    One counts as not learned where its variance has hardly shrunk and its mean lies within one standard deviation of
    that of the prior.

    Args:
        spreads: site -> mean and standard deviation under the posterior, and under the prior.
        facts: number of settled truths that were learned from.
    """
    left: dict[str, float] = {}
    for name, (mean, sd, prior_mean, prior_sd) in spreads.items():
        if abs(mean - prior_mean) < prior_sd:
            left[name] = 1.0 - (sd / prior_sd) ** 2
    bad = sorted((name for name in left if left[name] < CONTRACTION), key=lambda name: left[name])
    basis = f"the settled facts ({facts}) do" if facts else "the claims do"
    advice = (
        f"{basis} not tell how much the levels of these groups differ, the prior does: settle more facts, learn_from="
        "'all', or take these groups out of the formulas"
    )
    what = listed([name.removesuffix("_sigma") for name in bad])
    return finding("groups learned", bool(bad), what, min(left.values(), default=1.0), CONTRACTION, advice)


# -------------------------------------------------------------------------------------------------- with an evidence


def conflict(sensitivity: Mapping[str, tuple[float, float]], limit: float) -> Finding:
    """Parameters that prior and likelihood both move (Kallioinen et al. 2024): parameter -> both sensitivities."""
    worst = {name: min(pair) for name, pair in sensitivity.items()}
    bad = sorted((name for name in worst if worst[name] >= limit), key=lambda name: -worst[name])
    advice = (
        "prior and data pull these parameters in different directions: see nous.sensitivity(trust), and widen a prior "
        "if it does not say what you know"
    )
    return finding("prior and data", bool(bad), listed(bad), max(worst.values(), default=0.0), limit, advice)


def leave_one_out(k: ArrayLike, good: float, questions: Sequence[str]) -> Finding:
    """(Q,) Pareto k of leaving one question out (Vehtari et al. 2017), and the largest that is good."""
    values = np.asarray(k, float)
    bad = np.flatnonzero(~(values <= good))
    bad = bad[np.argsort(-np.nan_to_num(values[bad], nan=np.inf), kind="stable")]
    share = len(bad) / max(len(values), 1)
    advice = (
        f"{share:.1%} of the questions have a Pareto k above {good:.2f}: a few questions decide what is learned, and "
        "nous.compare is off on them. Look at their claims; take more draws (of nous.SVI also more weighed ones), "
        "or nous.cross_validate"
    )
    what = listed([questions[int(i)] for i in bad])
    return finding("leave one out (Pareto k)", share > LOO_SHARE, what, share, LOO_SHARE, advice)


def _largest(values: ArrayLike) -> float:
    """The largest element; infinite where one is not a number."""
    array = np.asarray(values, float)
    return float(np.where(np.isnan(array), np.inf, array).max(initial=-np.inf))


def _times(wanted: float, found: float) -> int:
    """Factor by which to raise the number of draws, one leading digit."""
    if not (np.isfinite(found) and found > 0):
        return 10
    return int(max(2, np.ceil(wanted / found)))
