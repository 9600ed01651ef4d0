"""Sums and differences of probabilities that are held as logarithms, accurate at both ends."""

from __future__ import annotations

from nousppl.models.namespace import Array, Namespace

SHORT = 0.05
"""Below it ``log(1 - exp(-x))`` is taken as a series, of which the next term is 3e-10 and less."""
NEVER = -1e30
"""Stands for the log of 0 where minus infinity would do harm."""


def log_add(xp: Namespace, one: Array, other: Array) -> Array:
    """``log(exp(one) + exp(other))``, ``other`` finite."""
    top = xp.maximum(one, other)
    return top + xp.log(xp.exp(one - top) + xp.exp(other - top))


def log_one_minus_exp(xp: Namespace, x: Array) -> Array:
    """``log(1 - exp(-x))`` for x >= 0; `NEVER` at 0."""
    positive, short = x > 0.0, x < SHORT
    small = xp.where(positive & short, x, xp.array(SHORT))
    square = small * small
    series = xp.log(small) - small / 2.0 + square / 24.0 - square * square / 2880.0
    large = xp.log1p(-xp.exp(-xp.where(short, xp.array(SHORT), x)))
    return xp.where(positive, xp.where(short, series, large), xp.array(NEVER))
