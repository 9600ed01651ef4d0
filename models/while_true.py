"""True for a while: the likelihood of a claim under every possible end of a state, and the mass of those ends.

The end E of a state is one latent number. A cell is a candidate for it (never on at all, an end that was stated, an end
that nobody stated) and, where the candidate is no point, an interval of E between two times at which something is known
or asked: within it the state is on or off at each of those times, so that sums over cells are exact integrals over E.
"""

from __future__ import annotations

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace

LOGIT_LIMIT = 30.0
"""Logits are kept inside these limits."""
SHORT = 0.1
"""Below this share of the mean duration the mass of an interval is taken from a series."""


def log_chances(xp: Namespace, logit: Array) -> tuple[Array, Array]:
    """log p and log(1 - p)."""
    held = xp.minimum(xp.maximum(logit, xp.array(-LOGIT_LIMIT)), xp.array(LOGIT_LIMIT))
    return -xp.log1p(xp.exp(-held)), -xp.log1p(xp.exp(held))


def log_right(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> tuple[Array, Array]:
    """(periods,) log P(right | fresh) and log P(wrong | fresh) of each entry's claim, under its ceiling."""
    claim = data["period_claim"]
    right, wrong = log_chances(xp, xp.take(theta["logit"], claim))
    if not layout.ceiling:
        return right, wrong
    ceiling = xp.take(data["claim_ceiling"], claim)
    capped = xp.exp(right) > ceiling
    held = xp.where(capped, ceiling, xp.array(0.5))
    # A ceiling of 1 caps nothing.
    return xp.where(capped, xp.log(held), right), xp.where(capped, xp.log1p(-held), wrong)


def log_fresh(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(periods,) log probability of a fresh claim where the cell holds the end.

    With a = P(right | fresh), s the chance that a claim that the state is on states an end, and K ends:

    ======================  =============  ====================
    the claim               on at its time  off
    ======================  =============  ====================
    it is not so            1 - a          a
    it is so                a (1 - s)      (1 - a) (1 - s)
    it is so, until E       a s a          --
    it is so, until another  a s (1-a)/(K-1)  (1 - a) s / K
    ======================  =============  ====================

    It sums to 1 over all K + 2 values. Whatever end is stated, such a claim says as much about the state at its time as
    one that states none.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem; ``period_right`` and ``period_wrong`` count the factors a and 1 - a of each entry,
            ``period_log`` has the numbers of ends.
        theta: ``logit`` (claims,), ``logit_stated`` (attributes,).
    """
    right, wrong = log_right(xp, layout, data, theta)
    stated, plain = log_chances(xp, xp.take(theta["logit_stated"], data["period_attribute"]))
    return (
        data["period_right"] * right
        + data["period_wrong"] * wrong
        + data["period_stated"] * stated
        + data["period_plain"] * plain
        + data["period_log"]
    )


def log_stated(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(period cells,) log density of the ends that claims on the question state, the same for all of its cells.

    All K ends of a question come from one exponential law, so that what is stated tells how long states last.
    """
    log_mean = xp.take(theta["log_duration"], data["periodcell_attribute"])
    return -data["periodcell_stated"] * log_mean - data["periodcell_lead"] * xp.exp(-log_mean)


def log_mass(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(period cells,) log probability of each cell: that the state is on at first, which of the K ends is the true one,
    and that it lies in the cell's interval. An end that nobody stated is exponential from the first time on."""
    attribute = data["periodcell_attribute"]
    on, never = log_chances(xp, xp.take(theta["logit_on"], attribute))
    mean = xp.exp(xp.take(theta["log_duration"], attribute))
    survived = -data["periodcell_begin"] / mean
    within = xp.where(data["periodcell_last"], xp.array(0.0), log_one_minus_exp(xp, data["periodcell_width"] / mean))
    given_on = data["periodcell_log"] + xp.where(data["periodcell_open"], survived + within, xp.array(0.0))
    return xp.where(data["periodcell_on"], on + given_on, never)


def log_one_minus_exp(xp: Namespace, x: Array) -> Array:
    """``log(1 - exp(-x))`` for x > 0, accurate near 0 too."""
    one = xp.array(1.0)
    near = xp.where(x < SHORT, x, one)
    far = xp.where(x < SHORT, one, x)
    terms = one
    # 1 - x/2 (1 - x/3 (1 - x/4 ...)) is (1 - exp(-x)) / x.
    for k in range(9, 1, -1):
        terms = one - near / k * terms
    return xp.where(x < SHORT, xp.log(near) + xp.log(xp.where(x < SHORT, terms, one)), xp.log1p(-xp.exp(-far)))
