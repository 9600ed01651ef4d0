"""Quadrature over the difficulty of a question, a normal number."""

from __future__ import annotations

import numpy as np

from nousppl.ragged import Floats


def difficulty_nodes(claims: int, smooth: bool = True) -> int:
    """Number of equispaced nodes over ±5 standard deviations for questions of up to ``claims`` claims.

    The integrand narrows like one over the square root of the number of claims; the trapezoid rule is exact to
    rounding while the step stays well below that width and the integrand is smooth: a ceiling or the clip of open
    domains puts kinks into it.
    """
    if claims <= 8 and smooth:
        return 21
    if claims <= 300:
        return 81
    return 81 + 2 * int(np.ceil(40 * (np.sqrt(claims / 300) - 1)))


def node_grid(nodes: int) -> tuple[Floats, Floats]:
    """Nodes in standard deviations and their log weights under the standard normal law."""
    grid = np.linspace(-5.0, 5.0, nodes)
    weights = np.exp(-0.5 * grid**2)
    return grid, np.log(weights / weights.sum())
