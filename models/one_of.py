"""One answer out of several: the likelihood of every claim under every possible truth, and of every question.

Fresh claims name the truth with the source's reliability; wrong ones follow the popularity of earlier wrong answers, clipped so that a
claim for an answer never counts against it in an open domain. Repetitions come from ``nousppl.models.origin``. With all reliabilities equal,
no origins and no popularity this is the multi-class model of Dawid & Skene (1979) with one coin per source.
"""

from __future__ import annotations

from typing import NamedTuple

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace
from nousppl.models.origin import Echo, echo, popularity

LOGIT_LIMIT = 30.0
"""Logits of reliability are kept inside ±30, so that neither a nor 1 - a rounds to 0 in single precision."""


class Likelihood(NamedTuple):
    """Log likelihoods of the claims of each question."""

    by_cell: Array
    """(cells,) log p(claims | the truth is this cell's answer), averaged over orders, difficulty integrated."""
    originality: Array
    """(slots,) r of each claim."""


class Terms(NamedTuple):
    """What the difficulty does not touch."""

    echo: Echo
    fresh: Array
    """(terms,) f of the term's slot."""
    wrong_row: Array
    """(rows,) law of the row's value among the wrong answers, the truth not named before (before the clip)."""
    top_row: Array
    """(rows,) largest such law over the answers named before."""
    wrong: Array
    """(terms,) law of the row's value among the wrong answers where the entry's cell is the truth (before the clip)."""
    top: Array
    """(terms,) largest such law over the wrong answers."""
    own: Array
    """(terms,) True where the row names the entry's cell."""


def likelihood(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Likelihood:
    """Log likelihood of the claims for each cell.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters; ``logit`` (claims,), ``log_concentration`` (claims,), ``beta``, ``difficulty_sd``, ``bias`` (terms-wise
            callable not needed: ``bias_cell`` (classes,) and ``bias_source`` (sources, classes) or absent) and those of
            `nousppl.models.origin.echo`.
    """
    terms = prepare(xp, layout, data, theta)

    def given(difficulty: Array) -> Array:
        slot_log, entry_log = claim_logs(xp, layout, data, theta, terms, difficulty)
        return add_up(xp, layout, data, slot_log, entry_log)

    by_icell = over_difficulty(xp, layout, data, theta, given)
    by_cell = by_icell
    if layout.orders:
        by_cell = xp.logsumexp_by(by_icell, data["icell_cell"], layout.cells) - data["cell_log_orders"]
    return Likelihood(by_cell, terms.echo.originality)


def over_difficulty(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], given) -> Array:  # type: ignore[no-untyped-def]
    """Integrate ``exp(given(d))`` over the difficulty ``d ~ N(0, sd)`` on equispaced nodes, or take ``given(0)``."""
    if not layout.nodes:
        return given(xp.array(0.0))
    return xp.over_nodes(lambda node: given(theta["difficulty_sd"] * node), data["nodes"], data["node_log_weights"])


def prepare(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Terms:
    """Origins and popularity of all claims: everything that does not depend on reliability."""
    if layout.origins:
        alpha = xp.exp(theta["log_concentration"][data["slot_claim"]]) * data["slot_looks"]
        echoes = echo(xp, layout, data, theta | {"concentration": alpha})
    else:
        ones = data["slot_looks"]
        zero = xp.array(0.0)
        echoes = Echo(ones, ones[data["row_slot"]] * zero, ones <= zero, ones)
    uniform = 1.0 / (data["slot_size"] - 1.0)
    row_uniform = uniform[data["row_slot"]]
    own = data["row_icell"][data["term_row"]] == data["entry_icell"][data["term_entry"]]
    fresh = echoes.fresh[data["entry_slot"][data["term_entry"]]]
    if not layout.popularity:
        term_uniform = row_uniform[data["term_row"]]
        return Terms(echoes, fresh, row_uniform, row_uniform, term_uniform, term_uniform, own)
    return _popular(xp, layout, data, theta, echoes, fresh, own, row_uniform)


def _popular(
    xp: Namespace,
    layout: Layout,
    data: dict[str, Array],
    theta: dict[str, Array],
    echoes: Echo,
    fresh: Array,
    own: Array,
    row_uniform: Array,
) -> Terms:
    zero = xp.array(0.0)
    everyone, with_value, by_value = popularity(xp, layout, data, echoes.originality)
    slot, row, entry = data["entry_slot"], data["term_row"], data["term_entry"]
    named = xp.where(data["entry_named"], by_value[data["entry_last"]], zero)
    first = xp.max_by(named, slot, layout.slots)
    is_first = named >= first[slot]
    second = xp.max_by(xp.where(is_first, zero, named), slot, layout.slots)
    ties = xp.sum_by(xp.where(is_first, xp.array(1.0), zero), slot, layout.slots)
    rival = xp.where(is_first & (ties[slot] < 1.5), second[slot], first[slot])
    beta = theta["beta"]
    spread = beta * row_uniform
    rest = xp.maximum(everyone[slot] - named, zero) + beta
    total = everyone[data["row_slot"]] + beta
    lone = row_uniform >= 1.0

    def law(count: Array, sum_: Array, rows: Array) -> Array:
        return xp.where(lone[rows], xp.array(1.0), (count + spread[rows]) / sum_)

    every = data["row_index"]
    return Terms(
        echoes,
        fresh,
        law(with_value, total, every),
        law(first[data["row_slot"]], total, every),
        law(with_value[row], rest[entry], row),
        law(rival[entry], rest[entry], row),
        own,
    )


def clip(xp: Namespace, law: Array, top: Array, right: Array, wrong: Array, uniform: Array, open_: Array) -> Array:
    """Mix the law of wrong answers with the uniform one just enough that no answer is likelier as an error than as the truth.

    Args:
        xp: the array namespace.
        law: probability of the value among the wrong answers.
        top: the largest probability of that law.
        right: P(right | fresh).
        wrong: P(wrong | fresh).
        uniform: 1 / (K - 1).
        open_: where the domain is open; elsewhere nothing is clipped.
    """
    cap = xp.maximum(right / wrong, uniform)
    over = open_ & (top > cap)
    mix = xp.where(over, (top - cap) / xp.where(over, top - uniform, xp.array(1.0)), xp.array(0.0))
    return law + mix * (uniform - law)


def reliability(
    xp: Namespace, logit: Array, ceiling: Array, difficulty: Array
) -> tuple[Array, Array]:
    """P(right | fresh) and P(wrong | fresh), both accurate near 0, under a ceiling."""
    shifted = xp.minimum(xp.maximum(logit + difficulty, xp.array(-LOGIT_LIMIT)), xp.array(LOGIT_LIMIT))
    right = xp.sigmoid(shifted)
    capped = right > ceiling
    return xp.where(capped, ceiling, right), xp.where(capped, 1.0 - ceiling, xp.sigmoid(-shifted))


def claim_logs(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], terms: Terms, difficulty: Array
) -> tuple[Array, Array]:
    """Log likelihood of each claim.

    Returns:
        (slots,) log p(claim | a truth not named before), and (entries,) what is added to it where the entry's cell is the truth.
    """
    slot_row = data["row_slot"]
    claim = data["slot_claim"]
    ceiling = data["claim_ceiling"][claim]
    logit = theta["logit"][claim]
    right, wrong = reliability(xp, logit, ceiling, difficulty)
    open_ = data["slot_open"]
    uniform = 1.0 / (data["slot_size"] - 1.0)
    fresh_row = terms.echo.fresh[slot_row]
    law_row = clip(
        xp, terms.wrong_row, terms.top_row, right[slot_row], wrong[slot_row], uniform[slot_row], open_[slot_row]
    )
    wrong_row = wrong[slot_row] * law_row
    slot = data["entry_slot"][data["term_entry"]]
    if layout.bias:
        shift = class_bias(data, theta, claim[slot])
        right_term, wrong_term = reliability(xp, logit[slot] + shift, ceiling[slot], difficulty)
    else:
        right_term, wrong_term = right[slot], wrong[slot]
    law = clip(xp, terms.wrong, terms.top, right_term, wrong_term, uniform[slot], open_[slot])
    by_term = xp.where(terms.own, right_term, wrong_term * law)
    base, change, whole = _by_slot(xp, layout, data, terms, fresh_row * wrong_row, by_term, wrong_row)
    silent = terms.echo.silent
    base_log = xp.log(xp.where(silent, xp.array(1.0), base))
    relative = change / base[data["entry_slot"]]
    far = relative < -0.5
    entry_log = xp.where(
        far,
        xp.log(xp.where(far, whole, xp.array(1.0))) - base_log[data["entry_slot"]],
        xp.log1p(xp.where(far, xp.array(0.0), relative)),
    )
    return xp.where(silent, xp.array(0.0), base_log), xp.where(silent[data["entry_slot"]], xp.array(0.0), entry_log)


def _by_slot(
    xp: Namespace,
    layout: Layout,
    data: dict[str, Array],
    terms: Terms,
    fresh_wrong: Array,
    by_term: Array,
    wrong_row: Array,
) -> tuple[Array, Array, Array]:
    """Likelihood of each slot for an unnamed truth, its change at each entry, and the whole likelihood at each entry."""
    row = data["term_row"]
    base = fresh_wrong + terms.echo.repeated
    change = terms.fresh * (by_term - wrong_row[row])
    whole = terms.fresh * by_term + terms.echo.repeated[row]
    if not layout.soft:
        return base, change, whole
    weight = data["row_weight"]
    silence = data["slot_silence"]
    base = xp.sum_by(weight * base, data["row_slot"], layout.slots) + silence
    change = xp.sum_by(weight[row] * change, data["term_entry"], layout.entries)
    whole = xp.sum_by(weight[row] * whole, data["term_entry"], layout.entries) + silence[data["entry_slot"]]
    return base, change, whole


def class_bias(data: dict[str, Array], theta: dict[str, Array], claim: Array) -> Array:
    """(terms,) what the true answer adds to the logit of reliability, in general and for the source."""
    answer = data["entry_class"][data["term_entry"]]
    shift = theta["bias"][answer]
    if "bias_source" in theta:
        shift = shift + theta["bias_source"][data["claim_bias_level"][claim] * theta["bias"].shape[0] + answer]
    return shift


def add_up(xp: Namespace, layout: Layout, data: dict[str, Array], slot_log: Array, entry_log: Array) -> Array:
    """(icells,) log likelihood of each answer in each order of its question."""
    if layout.slot_blocks:
        slot_log = xp.sum_by(slot_log, data["slot_block"], layout.slot_blocks)
        by_instance = xp.sum_by(slot_log, data["block_instance"], layout.instances)
    else:
        by_instance = xp.sum_by(slot_log, data["slot_instance"], layout.instances)
    if layout.entry_blocks:
        entry_log = xp.sum_by(entry_log, data["entry_block"], layout.entry_blocks)
        by_icell = xp.sum_by(entry_log, data["block_icell"], layout.icells)
    else:
        by_icell = xp.sum_by(entry_log, data["entry_icell"], layout.icells)
    return by_icell + by_instance[data["icell_instance"]]
