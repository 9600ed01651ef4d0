"""One answer out of several: the likelihood of every claim under every possible truth, and of every question.

Fresh claims name the truth with the source's reliability; wrong ones follow the popularity of earlier wrong answers,
clipped so that a claim for an answer never counts against it in an open domain. Repetitions come from
``nousppl.models.origin``. With all reliabilities equal, no origins and no popularity this is the multi-class model of
Dawid & Skene (1979) with one coin per source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nousppl.models.base_rates import base_log_mass
from nousppl.models.change import carry
from nousppl.models.denial import stated
from nousppl.models.layout import Layout
from nousppl.models.logs import log_add, within
from nousppl.models.namespace import Array, Namespace
from nousppl.models.number import log_marginals
from nousppl.models.origin import Echo, by_row_of_slot, echo, of_slots, popularity
from nousppl.models.parts import told_by_parts
from nousppl.models.shaped import with_density, with_shapes
from nousppl.models.wrong import betas, by_question, by_term, clip, confusion, leaders


class Likelihood(NamedTuple):
    """Log likelihoods of the claims of each question."""

    by_cell: Array
    """(cells,) log p(claims | the truth is this cell's answer), averaged over orders, difficulty integrated."""
    originality: Array
    """(slots,) r of each claim."""


class Terms(NamedTuple):
    """What the difficulty does not touch."""

    echo: Echo
    wrong_row: Array
    """(rows,) law of the row's value among the wrong answers, the truth not named before (before the clip)."""
    top_row: Array
    """(rows,) largest such law over the answers named before."""
    wrong: Array
    """(terms,) law of the row's value among the wrong answers where the entry's cell is the truth (before the clip)."""
    top: Array
    """(terms,) largest such law over the wrong answers."""


def likelihood(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Likelihood:
    """Log likelihood of the claims for each cell.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters; ``logit`` (claims,), ``log_concentration`` (claims,), ``beta``, or ``log_beta``
            (claims,) where it differs from claim to claim; ``difficulty_sd``, ``bias`` (classes,), ``bias_source``
            (levels * classes,) or absent, ``confusion`` (pairs,), ``confusion_source`` (levels * pairs,) or absent,
            and those of `nousppl.models.origin.echo`.
    """
    terms = prepare(xp, layout, data, theta)
    return Likelihood(by_cell(xp, layout, data, theta, terms), terms.echo.originality)


def by_cell(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], terms: Terms) -> Array:
    """(cells,) log likelihood of the claims for each cell, difficulty integrated and orders averaged."""
    in_order = by_icell(xp, layout, data, theta, terms)
    return with_density(xp, layout, data, theta, over_orders(xp, layout, data, in_order))


def by_icell(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], terms: Terms) -> Array:
    """(icells,) the same for each order of the claims by itself.

    Where the truth changes it is the truth at the time asked about, and what is settled or rejected at other times
    counts among the claims.
    """

    def given(difficulty: Array) -> Array:
        if alone(layout):
            slot_log, own_log = own_logs(xp, layout, data, theta, terms, difficulty)
            return add_up(xp, layout, data, slot_log, own_log, data["row_icell"])
        slot_log, entry_log = claim_logs(xp, layout, data, theta, terms, difficulty)
        if not layout.change:
            return add_up(xp, layout, data, slot_log, entry_log, data["entry_icell"])
        rate, law = xp.exp(theta["log_rate"]), base_log_mass(xp, layout, data, theta)
        carried = carry(xp, layout, data, rate, law, slot_log, entry_log)
        of_order, now = by_instance(xp, layout, data, carried.slot) + carried.settled, carried.now
        if layout.shaped:
            # Truths of other shapes stay.
            now = xp.where(data["icell_shaped"], xp.sum_by(entry_log, data["entry_icell"], layout.icells), now)
        return now + xp.take(of_order, data["icell_instance"])

    logs = over_difficulty(xp, layout, data, theta, given)
    return logs + log_marginals(xp, layout, data, theta, terms.echo) if layout.numbers else logs


def over_orders(xp: Namespace, layout: Layout, data: dict[str, Array], in_order: Array) -> Array:
    """(cells,) log of the mean over the orders of a question, given logs by order (icells,)."""
    if not layout.orders:
        return in_order
    return xp.logsumexp_by(in_order, data["icell_cell"], layout.cells) - data["cell_log_orders"]


def over_difficulty(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], given: Callable[[Array], Array]
) -> Array:
    """Integrate ``exp(given(d))`` over the difficulty: ``d ~ N(0, sd)`` on equispaced nodes, or easy and hard, or no
    difficulty, ``given(0)``."""
    if layout.mixture:
        # The law of the difficulty of each question: easy, or hard with a chance that depends on the attribute.
        logit = xp.take(xp.take(theta["hard"], data["question_level"]), data["icell_question"])
        easy = given(xp.array(0.0)) + xp.log(xp.sigmoid(-logit))
        return log_add(xp, easy, given(-theta["hard_shift"]) + xp.log(xp.sigmoid(logit)))
    if not layout.nodes:
        return given(xp.array(0.0))
    nodes, weights = data["nodes"], data["node_log_weights"]
    return xp.over_nodes(lambda node: given(theta["difficulty_sd"] * node), nodes, weights, layout.rows + layout.terms)


def prepare(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Terms:
    """Origins and popularity of all claims: everything that does not depend on reliability."""
    if layout.origins:
        alpha = of_slots(xp, layout, data, xp.exp(theta["log_concentration"])) * data["slot_looks"]
        echoes = echo(xp, layout, data, theta | {"concentration": alpha})
    else:
        ones = data["slot_looks"]
        echoes = Echo(ones, xp.zeros(layout.rows), ones <= 0.0, ones)
    if layout.parts:
        echoes = told_by_parts(xp, layout, data, theta, echoes)
    if not layout.popularity:
        row, term = data["row_uniform"], confusion(xp, layout, data, theta)
        return Terms(echoes, row, row, term, term)
    return _popular(xp, layout, data, theta, echoes)


def _popular(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], echoes: Echo) -> Terms:
    """Laws of wrong answers by popularity; where there is only one wrong answer (K = 2) it has probability 1."""
    zero, one = xp.array(0.0), xp.array(1.0)
    counts = echoes.counts or popularity(xp, layout, data, echoes.originality, theta.get("log_rate"))
    everyone, with_value, by_value = counts
    slot, beta = data["entry_slot"], betas(xp, layout, data, theta)
    named = xp.where(data["entry_named"], xp.take(by_value, data["entry_last"]), zero)
    if layout.change:
        # The sum is as of the last claim for the value.
        named = named * xp.exp(-by_question(xp, data, theta["log_rate"], slot) * data["entry_lag"])
    first, rival = leaders(xp, layout, data, named) if layout.open else (xp.zeros(layout.slots), named)
    rest = xp.maximum(xp.take(everyone, slot) - named, zero) + beta.entry
    total = by_row_of_slot(xp, layout, data, everyone) + beta.row
    top = by_row_of_slot(xp, layout, data, first)

    def law(count: Array, among: Array, uniform: Array, mass: Array) -> Array:
        return xp.where(uniform >= 1.0, one, (count + mass) / among)

    row, term = data["row_uniform"], data["term_uniform"]
    confused = confusion(xp, layout, data, theta)
    count, rival, rest = (
        xp.take(with_value, data["term_row"]),
        by_term(xp, layout, data, rival),
        by_term(xp, layout, data, rest),
    )
    row_law, row_top = law(with_value, total, row, beta.row * row), law(top, total, row, beta.row * row)
    # The largest law counts in open domains only, where no row of confusion is learned.
    of_term, of_rival = beta.term * confused, beta.term * term
    return Terms(echoes, row_law, row_top, law(count, rest, term, of_term), law(rival, rest, term, of_rival))


def reliability(xp: Namespace, logit: Array, ceiling: Array | None, difficulty: Array) -> tuple[Array, Array]:
    """P(right | fresh) and P(wrong | fresh), both accurate near 0, under a ceiling."""
    shifted = within(xp, logit + difficulty)
    right, wrong = xp.sigmoid(shifted), xp.sigmoid(-shifted)
    if ceiling is None:
        return right, wrong
    capped = right > ceiling
    return xp.where(capped, ceiling, right), xp.where(capped, 1.0 - ceiling, wrong)


def slot_reliability(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], difficulty: Array
) -> tuple[Array, Array]:
    """(slots,) twice: `reliability` of the claim of each slot, found once for claims that are alike."""
    ceiling = data["claim_ceiling"] if layout.ceiling else None
    right, wrong = reliability(xp, theta["logit"], ceiling, difficulty)
    return of_slots(xp, layout, data, right), of_slots(xp, layout, data, wrong)


def claim_logs(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], terms: Terms, difficulty: Array
) -> tuple[Array, Array]:
    """Log likelihood of each claim.

    Returns:
        (slots,) log p(claim | a truth not named before), and (entries,) what is added to it where the entry's cell is
        the truth.
    """
    slot = data["term_slot"]
    right, wrong = slot_reliability(xp, layout, data, theta, difficulty)
    clipped = layout.open and layout.popularity
    odds = right / wrong if clipped else right
    if layout.bias:
        shift = class_bias(xp, data, theta)
        claim = data["term_claim"]
        ceiling = xp.take(data["claim_ceiling"], claim) if layout.ceiling else None
        right_term, wrong_term = reliability(xp, xp.take(theta["logit"], claim) + shift, ceiling, difficulty)
        odds_term = right_term / wrong_term
    else:
        right_term, wrong_term = xp.take(right, slot), xp.take(wrong, slot)
        odds_term = xp.take(odds, slot)
    law_row, law_term = terms.wrong_row, terms.wrong
    if clipped:
        odds_row = by_row_of_slot(xp, layout, data, odds)
        law_row = clip(xp, law_row, terms.top_row, odds_row, data["row_uniform"], data["row_open"])
        law_term = clip(xp, law_term, terms.top, odds_term, data["term_uniform"], data["term_open"])
    wrong_row = by_row_of_slot(xp, layout, data, wrong) * law_row
    value = xp.where(data["term_own"], right_term, wrong_term * law_term)
    if layout.denials or layout.lasting:
        wrong_row, value = stated(xp, layout, data, theta, wrong_row, value)
    logs = _logs(xp, layout, data, terms, wrong_row, value)
    return with_shapes(xp, layout, data, theta, terms.echo, logs) if layout.shaped else logs


def _logs(
    xp: Namespace, layout: Layout, data: dict[str, Array], terms: Terms, wrong_row: Array, value: Array
) -> tuple[Array, Array]:
    """Logs of the likelihood of each slot for a truth not named before and of its change at each entry, accurate for
    small and large changes.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        terms: see `Terms`.
        wrong_row: (rows,) P(the row's value | fresh, an unnamed truth).
        value: (terms,) P(the row's value | fresh, the entry's cell).
    """
    one = xp.array(1.0)
    fresh, repeated, row, silent = terms.echo.fresh, terms.echo.repeated, data["term_row"], terms.echo.silent
    if layout.full:
        whole = over_terms(xp, layout, data, xp.take(fresh, data["term_slot"]) * value + xp.take(repeated, row), one)
        if layout.notes:
            whole = xp.where(xp.take(silent, data["entry_slot"]), one, whole)
        return xp.zeros(layout.slots), xp.log(whole)
    base = by_row_of_slot(xp, layout, data, fresh) * wrong_row + repeated
    if layout.soft:
        base = xp.sum_by(data["row_weight"] * base, data["row_slot"], layout.slots) + data["slot_silence"]
    if layout.notes:
        base = xp.where(silent, one, base)
    # In units of the likelihood for an unnamed truth: what is divided claim by claim need not be term by term.
    share, copied = xp.take(fresh / base, data["term_slot"]), repeated / by_row_of_slot(xp, layout, data, base)
    change = share * (value - xp.take(wrong_row, row))
    if layout.soft:
        change = xp.sum_by(xp.take(data["row_weight"], row) * change, data["term_entry"], layout.entries)
    whole = over_terms(xp, layout, data, share * value + xp.take(copied, row), base)
    return xp.log(base), _log_change(xp, change, whole)


def _log_change(xp: Namespace, change: Array, whole: Array) -> Array:
    """``log(1 + change)``, which equals ``log(whole)``, accurate near 0 and near minus infinity."""
    far = change < -0.5
    return xp.where(far, xp.log(xp.where(far, whole, xp.array(1.0))), xp.log1p(xp.where(far, xp.array(0.0), change)))


def over_terms(xp: Namespace, layout: Layout, data: dict[str, Array], said: Array, base: Array) -> Array:
    """(entries,) likelihood in units of ``base`` (slots,), given that of the values named (terms,)."""
    if not layout.soft:
        return said
    weight = xp.take(data["row_weight"], data["term_row"])
    silence = xp.take(data["slot_silence"] / base, data["entry_slot"])
    return xp.sum_by(weight * said, data["term_entry"], layout.entries) + silence


def class_bias(xp: Namespace, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(terms,) what the true answer adds to the logit of reliability, in general and for the source."""
    shift = xp.take(theta["bias"], data["term_class"])
    if "bias_source" in theta:
        classes = theta["bias"].shape[0]
        level = xp.take(data["claim_bias_level"], data["term_claim"])
        shift = shift + xp.take(theta["bias_source"], level * classes + data["term_class"])
    return shift


def alone(layout: Layout) -> bool:
    """Whether each claim changes the likelihood of no answer but the one it names, and names one: entries are slots,
    and nothing need be gathered by entry."""
    beside = layout.slot_blocks or layout.entry_blocks or layout.denials or layout.lasting or layout.shaped
    return not (layout.change or layout.soft or layout.popularity or layout.bias or layout.confusion or beside)


def own_logs(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], terms: Terms, difficulty: Array
) -> tuple[Array, Array]:
    """As `claim_logs` where claims are `alone`: (slots,) log p(claim | another truth), and (slots,) what is added to it
    where the answer that it names is the truth."""
    law = terms.wrong_row
    if not (layout.origins or layout.ceiling or layout.notes):
        # The ratio of the two likelihoods is that of right and wrong.
        log_law, logit = xp.log(law), within(xp, theta["logit"] + difficulty)
        log_wrong = of_slots(xp, layout, data, xp.log(xp.sigmoid(-logit)))
        return log_wrong + log_law, of_slots(xp, layout, data, logit) - log_law
    right, wrong = slot_reliability(xp, layout, data, theta, difficulty)
    looks, repeats, all_weights = terms.echo.weights or (terms.echo.fresh, terms.echo.repeated, xp.array(1.0))
    other = wrong * law
    base = looks * other + repeats
    if layout.notes:
        base, all_weights = (xp.where(terms.echo.silent, xp.array(1.0), x) for x in (base, all_weights))
    return xp.log(base / all_weights), _log_change(xp, looks / base * (right - other), (looks * right + repeats) / base)


def add_up(
    xp: Namespace, layout: Layout, data: dict[str, Array], slot_log: Array, entry_log: Array, entry_icell: Array
) -> Array:
    """(icells,) log likelihood of each answer in each order of its question."""
    of_instance = by_instance(xp, layout, data, slot_log)
    if layout.entry_blocks:
        entry_log = xp.sum_by(entry_log, data["entry_block"], layout.entry_blocks)
        by_icell = xp.sum_by(entry_log, data["block_icell"], layout.icells)
    else:
        by_icell = xp.sum_by(entry_log, entry_icell, layout.icells)
    return by_icell + xp.take(of_instance, data["icell_instance"])


def by_instance(xp: Namespace, layout: Layout, data: dict[str, Array], slot_log: Array) -> Array:
    """(instances,) sums of what the slots of each question have, in each order."""
    if not layout.slot_blocks:
        return xp.sum_by(slot_log, data["slot_instance"], layout.instances)
    slot_log = xp.sum_by(slot_log, data["slot_block"], layout.slot_blocks)
    return xp.sum_by(slot_log, data["block_instance"], layout.instances)
