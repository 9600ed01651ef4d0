"""What claims say beside their value: that another answer is not the case, and that they are not meant to last.

What a claim denies is mostly what was said before. At random, one of the m values that earlier claims of its question
name, its own apart, has weight 1, and the U answers that nobody named have 1 together; so a repetition denies. A fresh
claim denies the truth less (or more) readily, with kappa times the weight ``w`` that it has::

    p(x, denies y | z) = f D(y; x, z) p(x | z) + m          taken relative to a denial at random
    D = 1 where z = x,  else  T / (T + (kappa - 1) w(z)),  times kappa where z = y
    T = m + 1 (m where U = 0),  w = 1 for what was named, 1 / U for the rest

so that a claim weighs the same whether or not the column is there, and a denial speaks against what it denies as far as
kappa is below 1, however many answers are plausible.

Only in part (``lasting`` below 1) a fresh claim is about the state: ``lasting D p(x | z) + (1 - lasting) / K``.

Later claims are then less (or more) likely to repeat a claim whose value has been denied since: that is known before
they are read, and so enters the weights.
"""

from __future__ import annotations

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace

LOG_DENIAL = -2.0
"""Centre of the prior of log kappa, where it stands in a trust that was learned from claims without denials."""
OTHER, TRUE = 1, 2
"""Where the entry's cell is the truth, a denial in a term: of another answer, of the truth itself; else 0."""


def stated(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], by_row: Array, by_term: Array
) -> tuple[Array, Array]:
    """What denials and what is not meant to last make of the law of fresh claims.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters; ``denial`` kappa.
        by_row: (rows,) P(the row's value | fresh, a truth that is neither named before nor denied by the claim).
        by_term: (terms,) P(the row's value | fresh, the entry's cell).
    """
    if layout.denials:
        kappa, one = theta["denial"], xp.array(1.0)
        kind = data["term_denial"]
        # The share w / T of each truth among what may be denied is given; 0 of claims that deny nothing.
        by_row = by_row / (one + (kappa - one) * data["row_aside"])
        denied = one / (one + (kappa - one) * data["term_aside"])
        by_term = by_term * xp.where(kind == TRUE, kappa * denied, xp.where(kind == OTHER, denied, one))
    if layout.lasting:
        row_lasting = xp.take(data["slot_lasting"], data["row_slot"])
        term_lasting = xp.take(data["slot_lasting"], data["term_slot"])
        row_size, term_size = (xp.take(data["slot_size"], data[name]) for name in ("row_slot", "term_slot"))
        by_row = row_lasting * by_row + (1.0 - row_lasting) / row_size
        by_term = term_lasting * by_term + (1.0 - term_lasting) / term_size
    return by_row, by_term


def denied_weights(xp: Namespace, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(denied,) what the strong weights of listed pairs exceed those by that they would have if the earlier value had
    not been denied; before they fade."""
    group = data["denied_group"]
    more = xp.take(theta["strong_exact"], group) * (theta["denied"] - 1.0)
    return xp.where(group > 0, more, theta["denied"]) * data["denied_share"]


def denied_sums(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> tuple[Array, Array]:
    """What `denied_weights` add to the strong weights of earlier claims (slots,), and of those with the row's value
    (rows,)."""
    weight = denied_weights(xp, data, theta)
    if layout.lag:
        weight = weight * xp.exp(-theta["rate"] * data["denied_lag"])
    same = xp.take(weight, data["again_pair"]) * data["again_share"]
    return xp.sum_by(weight, data["denied_slot"], layout.slots), xp.sum_by(same, data["again_row"], layout.rows)
