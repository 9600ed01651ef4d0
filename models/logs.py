"""Sums and logs that stay finite, with their gradients."""

from __future__ import annotations

from nousppl.models.namespace import Array, Namespace

NOTHING = -1e30
"""Stands for the log of 0; finite, so that its gradient is."""


def log_add(xp: Namespace, one: Array, other: Array) -> Array:
    """``log(exp(one) + exp(other))``, ``other`` finite."""
    top = xp.maximum(one, other)
    return top + xp.log(xp.exp(one - top) + xp.exp(other - top))


def log_or_nothing(xp: Namespace, p: Array) -> Array:
    """log p, and `NOTHING` for 0."""
    there = p > 0.0
    return xp.where(there, xp.log(xp.where(there, p, xp.array(1.0))), xp.array(NOTHING))
