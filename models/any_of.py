"""Any of several items: the likelihood of a list under every set of items that may hold, and the mass of those sets."""

from __future__ import annotations

from nousppl.models.layout import Layout
from nousppl.models.logs import within
from nousppl.models.namespace import Array, Namespace

LOGIT_LIMIT = 15.0
"""Logits of sensitivity, specificity and so on are kept inside these limits."""


def log_chances(xp: Namespace, logit: Array) -> tuple[Array, Array]:
    """log p and log(1 - p)."""
    held = within(xp, logit, LOGIT_LIMIT)
    return -xp.log1p(xp.exp(-held)), -xp.log1p(xp.exp(held))


def log_fresh(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(any,) log probability of a fresh claim's list where the cell's items are those that hold.

    The items of a question are alike for a source, so that counts suffice: of the items that hold, how many the claim
    names, denies and passes over; and the same of those that do not. Of the items of the attribute that are none of the
    question's, all are passed over and none holds.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: ``logit_sensitivity`` and ``logit_specificity`` (claims,), ``logit_denial`` and ``logit_slip``.
    """
    claim = data["any_claim"]
    named_true, missed = log_chances(xp, xp.take(theta["logit_sensitivity"], claim))
    left_out, named_false = log_chances(xp, xp.take(theta["logit_specificity"], claim))
    denied, silent = log_chances(xp, theta["logit_denial"])
    slip = log_chances(xp, theta["logit_slip"])[0] + denied
    # A denial of what holds is less likely than one of what does not.
    no_slip = xp.log1p(-xp.exp(slip))
    return (
        data["any_true_named"] * named_true
        + data["any_true_denied"] * (missed + slip)
        + data["any_true_silent"] * (missed + no_slip)
        + data["any_false_named"] * named_false
        + data["any_false_denied"] * (left_out + denied)
        + data["any_false_silent"] * (left_out + silent)
    )


def log_mass(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(anycells,) log probability of one set of each cell: items hold by themselves, with the prevalence of the
    attribute."""
    holds, lacks = log_chances(xp, xp.take(theta["logit_prevalence"], data["anycell_attribute"]))
    return data["anycell_true"] * holds + data["anycell_false"] * lacks
