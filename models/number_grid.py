"""Where the law of a number is evaluated: nodes that lie densely where its density is large, for quadrature.

A question's claims may be as sharp as the most precise source and as far apart as its truths can be, so no fixed grid
serves. The first nodes are those that the claims suggest: at either edge of the rounding cell of each claim, at
distances that grow like a hyperbolic sine from the scale of the source's error on, so that every scale is covered by a
few of them; and the same around the prior. With the density there, the range is cut into intervals of about equal mass
(equidistribution, de Boor 1973, "Good approximation by splines with variable knots"), and each of these gets the two
nodes of Gauss and Legendre. Where the nodes lie has no gradient; what is summed over them has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nousppl.models.namespace import Array, Namespace

CENTRES = 12
"""Most claims of a question around which first nodes are laid; of more, the most precise one of each group of
neighbours."""
NEAR, WIDE = 12, 16
"""First nodes around an edge of a rounding cell, and around the prior."""
REACH = 6.0
"""Standard deviations of the prior beyond which there are no nodes."""
GAUSS = 0.5773502691896258
"""Place of the two nodes of Gauss and Legendre in an interval from -1 to 1."""
SHARES = (0.3, 0.2, 0.5)
"""How many intervals go by the mass between the first nodes, by that of the density's fourth root, which reaches into
the tails, and by the number of first nodes, which mark the edges."""
FAR = 1e30
"""Larger than all numbers here, and finite."""


class Centres(NamedTuple):
    """Where first nodes are laid around, of Q questions with up to n claims each."""

    middle: Array
    """(Q, n) each claim's value less the bias of its source: the middle of a rounding cell of y."""
    spread: Array
    """(Q, n) the standard deviation of its source."""
    group: Array
    """(Q, n) group of neighbours that it belongs to, from 0; at least `CENTRES` where it only pads."""
    step: Array
    """(Q,) width of the rounding cells."""
    prior_mean: Array
    """(Q,) mean of y before any claim."""
    prior_sd: Array
    """(Q,) its standard deviation."""
    edge: Array | None = None
    """(Q, e) places of y at which the prior density falls off, where values are rejected."""
    edge_sd: Array | None = None
    """(Q,) how wide the fall is."""


def first_nodes(xp: Namespace, centres: Centres) -> Array:
    """(Q, g) nodes that the claims suggest, ascending."""
    questions, groups = centres.middle.shape[0], min(centres.middle.shape[1], CENTRES)
    mean, sd = centres.prior_mean[:, None], centres.prior_sd[:, None]
    inside = centres.group[:, None, :] == xp.arange(groups)[None, :, None]
    far = xp.array(-FAR)
    spread = -xp.max_last(xp.where(inside, -centres.spread[:, None, :], far))
    same = inside & (centres.spread[:, None, :] <= spread[:, :, None])
    middle = xp.max_last(xp.where(same, centres.middle[:, None, :], far))
    # A group that holds no claim lies at the prior.
    empty = middle <= 0.5 * far
    spread, middle = xp.where(empty, sd, spread), xp.where(empty, mean, middle)
    half, parts, centre = 0.5 * centres.step[:, None], [], xp.array(0.5)
    shifts = (xp.arange(groups) + centre) / groups - 0.5
    for edge in (middle - half, middle + half):
        reach = xp.log(_asinh_exp(xp, (xp.maximum(edge - mean, mean - edge) + REACH * sd) / spread))
        # Shifted against each other, so that claims that agree make a finer grid together.
        place = (2.0 * (xp.arange(NEAR)[None, :] + centre + 0.5 * shifts[:, None]) / NEAR - 1.0)[None]
        near = edge[:, :, None] + spread[:, :, None] * _sinh(xp, reach[:, :, None] * place)
        parts.append(near.reshape(questions, groups * NEAR))
    if centres.edge is not None and centres.edge_sd is not None:
        fall, edge = centres.edge_sd[:, None], centres.edge
        reach = xp.log(_asinh_exp(xp, (xp.maximum(edge - mean, mean - edge) + REACH * sd) / fall))
        place = (2.0 * (xp.arange(NEAR) + centre) / NEAR - 1.0)[None, None]
        near = edge[:, :, None] + fall[:, :, None] * _sinh(xp, reach[:, :, None] * place)
        parts.append(near.reshape(questions, edge.shape[1] * NEAR))
    wide = (xp.arange(WIDE) + centre) * (2.0 / WIDE) - 1.0
    around = mean + sd * _sinh(xp, xp.log(_asinh_exp(xp, xp.array(REACH + 2.0))) * wide)[None, :]
    return xp.sort_last([*parts, around])


def _sinh(xp: Namespace, x: Array) -> Array:
    return 0.5 * (xp.exp(x) - xp.exp(-x))


def _asinh_exp(xp: Namespace, x: Array) -> Array:
    """``exp(asinh(x))`` of a positive number."""
    return x + (x * x + 1.0) ** 0.5


def nodes(xp: Namespace, centres: Centres, log_density: Callable[[Array], Array], points: int) -> tuple[Array, Array]:
    """(Q, 2 (points - 1)) nodes and their weights, neither with a gradient.

    Args:
        xp: the array namespace.
        centres: what is known of where the mass is.
        log_density: from nodes (Q, g) to the log density there, up to a constant by question.
        points: ends of the intervals.
    """
    first = first_nodes(xp, Centres(*(x if x is None else xp.fixed(x) for x in centres)))
    logs = xp.fixed(log_density(first))
    logs = logs - xp.max_last(logs)[:, None]
    width = first[:, 1:] - first[:, :-1]
    masses = []
    for power in (1.0, 0.25):
        density = xp.exp(power * logs)
        mass = width * (density[:, 1:] + density[:, :-1])
        masses.append(mass / mass.sum(-1)[:, None])
    share = SHARES[0] * masses[0] + SHARES[1] * masses[1] + SHARES[2] / width.shape[1]
    ends = xp.cut_evenly(first, share, points)
    middle, half = 0.5 * (ends[:, 1:] + ends[:, :-1]), 0.5 * (ends[:, 1:] - ends[:, :-1])
    place = xp.stack([middle - GAUSS * half, middle + GAUSS * half])
    both = xp.stack([half, half])
    return _side_by_side(place), _side_by_side(both)


def _side_by_side(pair: Array) -> Array:
    """(Q, 2 k) of (2, Q, k)."""
    return pair.swapaxes(0, 1).reshape(pair.shape[1], -1)
