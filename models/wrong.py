"""The law of wrong answers: uniform or learned by confusion, more probable the more popular they are, and clipped so
that in an open domain no answer is likelier as an error than as the truth."""

from __future__ import annotations

from typing import NamedTuple

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace
from nousppl.models.origin import by_row_of_slot, of_slots


def confusion(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(terms,) c_z(x), law of the row's value among the wrong answers whatever was said before, the entry's cell being
    the truth: uniform, or the source's row of confusion, a softmax over the wrong answers."""
    if not layout.confusion:
        return data["term_uniform"]
    logits, row, index = theta["confusion"], data["confusion_row"], xp.positive(data["term_pair"])
    pairs = logits.shape[0]
    if "confusion_source" in theta:
        logits = (theta["confusion_source"].reshape(-1, pairs) + logits).reshape(-1)
        index = index + xp.take(data["claim_bias_level"], data["term_claim"]) * pairs
    total = xp.logsumexp_by(logits, row, logits.shape[0] // pairs * layout.confusion)
    law = xp.exp(logits - xp.take(total, row))
    return xp.where(data["term_pair"] >= 0, xp.take(law, index), data["term_uniform"])


class Betas(NamedTuple):
    """Weight of the law whatever was said before, against popularity: three times one number, or that of each
    element's claim."""

    row: Array
    """(rows,) or a number."""
    entry: Array
    """(entries,) or a number."""
    term: Array
    """(terms,) or a number."""


def betas(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Betas:
    """beta of each claim where it has a formula, else the one of all claims."""
    if "log_beta" not in theta:
        return Betas(theta["beta"], theta["beta"], theta["beta"])
    slot = of_slots(xp, layout, data, xp.exp(theta["log_beta"]))
    row = by_row_of_slot(xp, layout, data, slot)
    return Betas(row, xp.take(slot, data["entry_slot"]), xp.take(slot, data["term_slot"]))


def by_question(xp: Namespace, data: dict[str, Array], log_rate: Array, slot: Array) -> Array:
    """Rate of change of the question of some slots."""
    return xp.take(xp.exp(log_rate), xp.take(data["slot_question"], slot))


def leaders(xp: Namespace, layout: Layout, data: dict[str, Array], named: Array) -> tuple[Array, Array]:
    """Largest count of a named answer before each slot (slots,), and of the other answers at each entry (entries,).

    The two largest are looked up by their places, so that the gradient takes one pass instead of one a comparison.
    """
    slot = data["entry_slot"]
    first = xp.place_of_max_by(named, slot, layout.slots)
    is_first = xp.arange(layout.entries) == xp.take(first, slot)
    second = xp.place_of_max_by(xp.where(is_first, xp.array(0.0), named), slot, layout.slots)
    padded = xp.after_zero(named)
    rival = xp.where(is_first, xp.take(second, slot), xp.take(first, slot))
    return xp.take(padded, first + 1), xp.take(padded, rival + 1)


def by_term(xp: Namespace, layout: Layout, data: dict[str, Array], of_entry: Array) -> Array:
    """The value of each term's entry; without soft claims a term is an entry."""
    return xp.take(of_entry, data["term_entry"]) if layout.soft else of_entry


def clip(xp: Namespace, law: Array, top: Array, odds: Array, uniform: Array, open_: Array) -> Array:
    """Mix the law of wrong answers with the uniform one just enough that no answer is likelier as an error than as the
    truth.

    Args:
        xp: the array namespace.
        law: probability of the value among the wrong answers.
        top: the largest probability of that law.
        odds: P(right | fresh) / P(wrong | fresh).
        uniform: 1 / (K - 1).
        open_: where the domain is open; elsewhere nothing is clipped.
    """
    cap = xp.maximum(odds, uniform)
    over = open_ & (top > cap)
    mix = xp.where(over, (top - cap) / xp.where(over, top - uniform, xp.array(1.0)), xp.array(0.0))
    return law + mix * (uniform - law)
