"""Which claims repeat earlier ones: the distance-dependent Chinese restaurant process, summed out over ragged tables.

Every claim's value is observed, so the origin of a claim integrates out exactly, one claim at a time. What is needed
of the earlier claims are sums: over all of them, over those with the same value, and over those that share a source
or a channel. They are running sums along chains (Blei & Frazier 2011 give the process; the sums are exact, not
truncated).
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from nousppl.models.denial import denied_sums, denied_weights
from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace


class Echo(NamedTuple):
    """What the origins contribute to the likelihood of each claim."""

    fresh: Array
    """(slots,) f, prior chance that the claim is fresh."""
    repeated: Array
    """(rows,) m, chance that the claim comes out as this row's value by repetition; does not depend on the truth."""
    silent: Array
    """(slots,) True where nothing could be repeated and the claim cannot be fresh: its likelihood is 1."""
    originality: Array
    """(slots,) r, chance that the claim is not itself a repetition, given the values."""
    counts: tuple[Array, Array, Array] | None = None
    """What `popularity` gives, where the sums over earlier originals are the same ones: weights do not fade."""
    weights: tuple[Array, Array, Array] | None = None
    """The weights of looking for oneself (slots,), of repeating this row's value (rows,), and of both and of repeating
    something else (slots,): the chances above are the first two, divided by the third. None where the chances were
    changed since."""
    lasting: Array | None = None
    """(slots,) chance that a claim that is fresh is about the state, where it is not as given."""


def subsets(count: int) -> tuple[tuple[int, ...], ...]:
    """All non-empty subsets of ``range(count)``, small ones first: the groups of pair features."""
    return tuple(c for size in range(1, count + 1) for c in combinations(range(count), size))


def subset_weights(xp: Namespace, coefficients: list[Array]) -> list[Array]:
    """Additive weights v_U with ``sum_{U subset of T} v_U = exp(sum_{f in T} c_f)`` for each non-empty T (Moebius
    inversion).

    A pair that shares exactly the features T then gets ``exp`` of the sum of their coefficients when the sums over
    all pairs that share at least U are added up with weights v_U.
    """
    groups = subsets(len(coefficients))
    total = {group: xp.exp(sum(coefficients[f] for f in group)) for group in groups}
    return [
        sum((-1.0) ** (len(group) - len(inner)) * total[inner] for inner in groups if set(inner) <= set(group))
        for group in groups
    ]


def running_sums(xp: Namespace, values: Array, position: Array, time: Array | None, rate: Array, rounds: int) -> Array:
    """Inclusive running sums along chains, each term fading by ``exp(-rate * elapsed time)``.

    Args:
        xp: the array namespace.
        values: (..., rows) in chain order.
        position: (..., rows) place of each row in its chain, from 0.
        time: (..., rows) times in chain order, or None for no fading.
        rate: fading rate per unit of time.
        rounds: such that no chain is longer than ``2 ** rounds``.

    Returns:
        (..., rows) sums by doubling (Hillis & Steele 1986): a tree of additions, accurate for millions of terms.
    """
    zero = xp.array(0.0)
    if time is None:

        def double(by: Array, total: Array) -> Array:
            return total + xp.where(position >= by, xp.shift(total, by), zero)

        return xp.fold_doubling(double, values, rounds)

    def double_faded(by: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
        total, fading = pair
        inside = position >= by
        # ``fading`` spans the last ``by`` steps of the chain, and twice as many after this round.
        return (
            total + xp.where(inside, fading * xp.shift(total, by), zero),
            xp.where(inside, fading * xp.shift(fading, by), zero),
        )

    return xp.fold_doubling(double_faded, (values, step_fading(xp, position, time, rate)), rounds)[0]


def step_fading(xp: Namespace, position: Array, time: Array, rate: Array) -> Array:
    """Fading from the row before in the chain; 0 for the first row of a chain."""
    zero = xp.array(0.0)
    return xp.where(position >= 1, xp.exp(-rate * xp.maximum(time - xp.shift(time, 1), zero)), zero)


def before(xp: Namespace, totals: Array, position: Array, time: Array | None, rate: Array) -> Array:
    """The running sum just before each row: everything earlier in its chain, faded to the row's own time."""
    earlier = xp.shift(totals, 1)
    if time is not None:
        return earlier * step_fading(xp, position, time, rate)
    return xp.where(position >= 1, earlier, xp.array(0.0))


def strong_sums(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]
) -> tuple[Array, Array, Array]:
    """Sums that do not depend on who is original: strong weights before each claim, and same-value ones.

    Returns:
        strong weight of all earlier claims (slots,), of those with the row's value (rows,), and the decayed number of
        earlier rows with the same value (rows,).
    """
    rate = theta["rate"]
    if layout.lag:
        order, position, time = data["chain_order"], data["chain_position"], data["chain_time"]
        values = xp.take(data["row_share"], order[1:])
        totals = running_sums(xp, values, position[1:], time[1:], rate, layout.rounds)
        sums = before(xp, totals, position[1:], time[1:], rate)
        by_row = [xp.take(sums[i], data["chain_inverse"][1 + i]) for i in range(layout.families - 1)]
        same, pairs = by_row[0], by_row[1:]
        everyone = [by_slot(xp, layout, data, pairs[2 * g]) for g in range(len(pairs) // 2)]
        matching = [pairs[2 * g + 1] for g in range(len(pairs) // 2)]
    else:
        same = data["same_count"]
        everyone = [data["strong_slot"][g] for g in range(layout.groups)]
        matching = [data["strong_row"][g] for g in range(layout.groups)]
    strong, strong_same, zero = xp.zeros(layout.slots), xp.zeros(layout.rows), xp.array(0.0)
    if layout.groups:
        weights = theta["strong"]
        strong = xp.maximum(sum(w * s for w, s in zip(weights, everyone, strict=True)), zero)
        strong_same = xp.maximum(sum(w * s for w, s in zip(weights, matching, strict=True)), zero)
    if layout.listed:
        more, more_same = listed_sums(xp, layout, data, theta)
        strong, strong_same = strong + more, strong_same + more_same
    if layout.denied:
        more, more_same = denied_sums(xp, layout, data, theta)
        strong, strong_same = xp.maximum(strong + more, zero), xp.maximum(strong_same + more_same, zero)
    return strong, strong_same, same


def listed_sums(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> tuple[Array, Array]:
    """What the user's own pair terms add to the strong weights of earlier claims (slots,), and of those with the row's
    value (rows,)."""
    weight = theta["listed"]
    if layout.lag:
        weight = weight * xp.exp(-theta["rate"] * data["listed_lag"])
    same = xp.take(weight, data["echo_pair"]) * data["echo_share"]
    return xp.sum_by(weight, data["listed_slot"], layout.slots), xp.sum_by(same, data["echo_row"], layout.rows)


def of_slots(xp: Namespace, layout: Layout, data: dict[str, Array], of_claims: Array) -> Array:
    """(slots,) what the claim of each slot has; computed once for claims that are alike, which are one here."""
    claims = of_claims.shape[0]
    if layout.in_place and claims == layout.slots:
        return of_claims
    # Kept, or the compiler computes it anew for each slot; of many that costs as much as it saves.
    few = 2 * claims <= layout.slots
    return xp.take(xp.once({"": of_claims})[""] if few else of_claims, data["slot_claim"])


def by_slot(xp: Namespace, layout: Layout, data: dict[str, Array], by_row: Array) -> Array:
    """The value of each slot's first row; without soft claims a row is a slot."""
    return xp.take(by_row, data["slot_first_row"]) if layout.soft else by_row


def by_row_of_slot(xp: Namespace, layout: Layout, data: dict[str, Array], of_slot: Array) -> Array:
    """The value of each row's slot; without soft claims a row is a slot."""
    return xp.take(of_slot, data["row_slot"]) if layout.soft else of_slot


def text_sums(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], originality: Array
) -> Array:
    """(rows,) what text similarity adds to the same-value weights: ``sum_k w_jk (rho_jk - 1) s_k`` over the listed
    pairs."""
    if not layout.pairs:
        return xp.zeros(layout.rows)
    fading = xp.exp(-theta["rate"] * data["pair_lag"])
    strong = xp.array(0.0)
    if layout.groups:
        strong = xp.take(theta["strong_exact"], data["pair_group"])
    if layout.listed:
        strong = strong + xp.take(theta["listed"], data["pair_listed"])
    if layout.denied:
        strong = strong + xp.take(xp.after_zero(denied_weights(xp, data, theta)), data["pair_denied"])
    base = theta["strangers"]
    if layout.links:
        base = base + xp.take(theta["affinity"], data["pair_link"])
    weight = (base * xp.take(originality, data["pair_origin_slot"]) + strong) * fading
    gain = weight * (xp.exp(theta["text"] * data["pair_similarity"] - theta["text_mean"]) - 1.0) * data["pair_share"]
    return xp.sum_by(gain, data["pair_row"], layout.rows)


def kin_weights(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], kind: str) -> Array:
    """What the listed pairs of a kind ("kin" or "apart") weigh more than strangers, before the originality."""
    if not layout.links:
        return xp.zeros(0)
    weight = xp.take(theta["affinity"], data[kind + "_link"])
    if layout.soft:
        weight = weight * data[kind + "_share"]
    return weight * xp.exp(-theta["rate"] * data[kind + "_lag"]) if layout.lag else weight


def affinity_sums(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], originality: Array, kin: Array
) -> tuple[Array, Array]:
    """What affinities add to the weight of all earlier claims (slots,) and of those with the row's value (rows,)."""
    same = xp.sum_by(kin * xp.take(originality, data["kin_slot"]), data["kin_row"], layout.rows)
    apart = kin_weights(xp, layout, data, theta, "apart") * xp.take(originality, data["apart_origin"])
    total = xp.sum_by(apart, data["apart_slot"], layout.slots)
    return total + (xp.sum_by(same, data["row_slot"], layout.slots) if layout.soft else same), same


def popularity(
    xp: Namespace, layout: Layout, data: dict[str, Array], originality: Array, log_rate: Array | None = None
) -> tuple[Array, Array, Array]:
    """Running counts of originals: all before each slot (slots,), with the row's value before it (rows,), and the
    inclusive sums by value in chain order (rows,), which the entries point into.

    Where truths change, at ``log_rate`` (questions,), counts fade by the chance that a truth is still the same.
    """
    time, rate = None, xp.array(0.0)
    if log_rate is not None:
        time = data["chain_time"][:2]
        rate = both_ways(xp, data, by_row_of_slot(xp, layout, data, xp.take(xp.exp(log_rate), data["slot_question"])))
    return sums_of_originals(xp, layout, data, originality, time, rate)


def both_ways(xp: Namespace, data: dict[str, Array], of_row: Array) -> Array:
    """(2, rows) what rows have, in the order of the chains of all claims, in which rows lie, and of those by value."""
    return xp.stack([of_row, xp.permuted(of_row, data["chain_order"][1], data["chain_inverse"][1])])


def sums_of_originals(
    xp: Namespace, layout: Layout, data: dict[str, Array], originality: Array, time: Array | None, rate: Array
) -> tuple[Array, Array, Array]:
    """As `popularity`, fading at a rate over times in chain order."""
    position = data["chain_position"][:2]
    values = both_ways(xp, data, by_row_of_slot(xp, layout, data, originality) * data["row_share"])
    totals = running_sums(xp, values, position, time, rate, layout.rounds)
    everyone, by_value = before(xp, totals, position, time, rate)
    with_value = xp.permuted(by_value, data["chain_inverse"][1], data["chain_order"][1])
    return by_slot(xp, layout, data, everyone), with_value, totals[1]


def echo(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Echo:
    """Sum out the origins of all claims.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: ``concentration`` (slots,) alpha; ``strangers`` w0; ``strong`` weights by feature group; ``rate`` of
            lag decay; ``copy_error`` eps; ``text`` and ``text_mean``; ``affinity`` (links + 1,) what the weight of a
            pair of sources exceeds that of strangers by; ``listed`` (listed,) what the user's own pair terms add to the
            strong weights; ``denied``, the factor for earlier values that have been denied since.
    """
    alpha, zero = theta["concentration"], xp.array(0.0)
    strong, strong_same, same = strong_sums(xp, layout, data, theta)
    kin = kin_weights(xp, layout, data, theta, "kin")
    matched = theta["strangers"] * same + strong_same
    if layout.links:
        matched = xp.maximum(matched + xp.sum_by(kin, data["kin_row"], layout.rows), zero)
    matched = data["row_share"] * matched
    if layout.soft:
        matched = xp.sum_by(matched, data["row_slot"], layout.slots)
    original = _ratio(xp, layout, alpha, alpha + matched)
    # Where neither weights nor truths fade, the sums are those of the popularity of wrong answers.
    counts = None if layout.lag or layout.change else popularity(xp, layout, data, original)
    base, base_same, _ = counts or sums_of_originals(xp, layout, data, original, data["chain_time"][:2], theta["rate"])
    total = theta["strangers"] * base + strong
    same_value = theta["strangers"] * base_same + strong_same + text_sums(xp, layout, data, theta, original)
    if layout.links:
        more, more_same = affinity_sums(xp, layout, data, theta, original, kin)
        total, same_value = xp.maximum(total + more, zero), xp.maximum(same_value + more_same, zero)
    rivals = alpha + total
    eps = theta["copy_error"]
    spread = eps / data["slot_size"] * total
    by_repetition = (1.0 - eps) * same_value + by_row_of_slot(xp, layout, data, spread)
    fresh, repeated = (
        _ratio(xp, layout, alpha, rivals),
        _ratio(xp, layout, by_repetition, by_row_of_slot(xp, layout, data, rivals)),
    )
    return Echo(fresh, repeated, rivals <= 0.0, original, counts, (alpha, by_repetition, rivals))


def _ratio(xp: Namespace, layout: Layout, numerator: Array, denominator: Array) -> Array:
    """``numerator / denominator``; where the denominator is 0, as it can be for notes only, 0, with a gradient that
    stays finite."""
    if not layout.notes:
        return numerator / denominator
    safe = xp.where(denominator > 0.0, denominator, xp.array(1.0))
    return xp.where(denominator > 0.0, numerator / safe, xp.array(0.0))
