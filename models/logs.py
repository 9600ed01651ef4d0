"""Sums and logs that stay finite, with their gradients."""

from __future__ import annotations

from nousppl.models.namespace import Array, Namespace

NOTHING = -1e30
"""Stands for the log of 0; finite, so that its gradient is."""


LOGIT_LIMIT = 30.0
"""Logits of reliability are kept inside ±30, so that neither a nor 1 - a rounds to 0 in single precision."""


def within(xp: Namespace, logit: Array, limit: float = LOGIT_LIMIT) -> Array:
    """The logit inside its limits."""
    return xp.minimum(xp.maximum(logit, xp.array(-limit)), xp.array(limit))


def log_add(xp: Namespace, one: Array, other: Array) -> Array:
    """``log(exp(one) + exp(other))``, ``other`` finite."""
    top = xp.maximum(one, other)
    return top + xp.log(xp.exp(one - top) + xp.exp(other - top))


def log_or_nothing(xp: Namespace, p: Array) -> Array:
    """log p, and `NOTHING` for 0."""
    there = p > 0.0
    return xp.where(there, xp.log(xp.where(there, p, xp.array(1.0))), xp.array(NOTHING))
