"""A number: the likelihood of claims that measure it, with bias, spread and an error that all of them share.

The truth z of a question is a real number and what its sources can see of it is y = c z + u, where c is the slope of
the attribute (polls understate margins, as some have not decided) and u the error that they share (the polls of a race
err together). A fresh claim is a proper measurement with the chance a that its source
is reliable, y plus the source's bias and an error with its spread, and else follows a wide law of the attribute; it is
then rounded, so that what has a likelihood is the rounding cell of a value, whatever the unit. A repetition repeats the
number. Everything is in units of the attribute: its centre is 0 and its scale is 1.

Given y the claims are independent of z, so that one integral over y remains (``nousppl.models.number_grid``); given y
the truth is normal.
"""

from __future__ import annotations

from typing import NamedTuple

from nousppl.models.layout import Layout, NumberSet
from nousppl.models.logs import within
from nousppl.models.namespace import Array, Namespace
from nousppl.models.number_grid import Centres, nodes
from nousppl.models.origin import Echo

LOG_2PI = 1.8378770664093453
SPREADS = (-8.0, 6.0)
"""The log of a source's spread, in units of the attribute's scale, is kept inside these limits."""
SHARED = (-9.0, 3.0)
"""The same for the log of the error that the claims of a question share, which is never 0."""
NARROW = 0.1
"""Rounding cells narrower than so many standard deviations are integrated by a series."""
OUTLYING = 300.0
"""Standard deviations of what can be seen beyond which no nodes are laid: thousands of claims would have to agree there
before anything were probable."""
FARTHEST = 30.0
"""Standard deviations beyond which the normal law has nothing left."""


class Numbers(NamedTuple):
    """Parameters of the claims and questions of one set: n claims a question, R orders of them."""

    value: Array
    """(Q, n)"""
    real: Array
    """(Q, n) False for claims that only pad."""
    bias: Array
    spread: Array
    right: Array
    """(Q, n) chance of a proper measurement."""
    wide: Array
    """(Q, n) chance of the value's rounding cell times that of no proper measurement."""
    step: Array
    """(Q,) width of the rounding cells."""
    fresh: Array
    """(Q, R, n)"""
    repeated: Array
    """(Q, R, n)"""
    silent: Array
    """(Q, R, n)"""
    truth: Array
    """(Q,) settled truth."""
    settled: Array
    """(Q,) whether there is one."""
    scale: Array
    """(Q,) standard deviation of the truths of the attribute."""
    slope: Array
    """(Q,) that of what can be seen over the truth."""
    shared: Array
    """(Q,) that of the shared error."""
    group: Array
    """(Q, n) group of neighbours."""
    order_log: Array
    """(Q, R) log weight of each order."""
    gap: Array | None = None
    """(Q, k) middles of rounding cells that are rejected; None where nothing is."""
    gap_real: Array | None = None
    """(Q, k) False for what only pads."""


class Integrand(NamedTuple):
    """What is summed over the nodes of one set."""

    node: Array
    """(Q, G) y."""
    log_mass: Array
    """(Q, G) log weight of the node, times the density of y, and of the settled truth where there is one."""
    by_claim: Array
    """(Q, R, n, G) log likelihood of each claim in each order."""


def cell_chance(xp: Namespace, distance: Array, width: Array) -> Array:
    """Mass of the standard normal law in a cell around ``distance`` with this width, accurate for narrow and wide ones.

    Args:
        xp: the array namespace.
        distance: of the middle from 0, in standard deviations, at least 0.
        width: of the cell, in standard deviations.
    """
    return xp.with_slopes(lambda d, w: _chance(xp, d, w), lambda d, w: _slopes(xp, d, w), distance, width)


def _chance(xp: Namespace, distance: Array, width: Array) -> Array:
    root = 0.7071067811865476
    low, high = distance - 0.5 * width, distance + 0.5 * width
    wide = 0.5 * (xp.erfc(root * low) - xp.erfc(root * high))
    # Of nearly equal numbers the difference would be inaccurate: a series in the width, with Hermite polynomials.
    m, d = _near(xp, distance, width)
    m2, d2 = m * m, d * d
    series = 1.0 + d2 / 24.0 * (
        m2
        - 1.0
        + d2 / 80.0 * (m2 * m2 - 6.0 * m2 + 3.0 + d2 / 168.0 * (m2 * m2 * m2 - 15.0 * m2 * m2 + 45.0 * m2 - 15.0))
    )
    narrow = _density(xp, m) * d * xp.maximum(series, xp.array(0.0))
    return xp.where(width < NARROW, narrow, wide)


def _slopes(xp: Namespace, distance: Array, width: Array) -> tuple[Array, Array]:
    """Derivatives of the mass by distance and by width: the difference and the mean of the densities at the edges."""
    low, high = _density(xp, distance - 0.5 * width), _density(xp, distance + 0.5 * width)
    m, d = _near(xp, distance, width)
    m2, d2 = m * m, d * d
    series = 1.0 + d2 / 24.0 * (
        m2
        - 3.0
        + d2 / 80.0 * (m2 * m2 - 10.0 * m2 + 15.0 + d2 / 168.0 * (m2 * m2 * m2 - 21.0 * m2 * m2 + 105.0 * m2 - 105.0))
    )
    narrow = -m * _density(xp, m) * d * xp.maximum(series, xp.array(0.0))
    return xp.where(width < NARROW, narrow, high - low), 0.5 * (low + high)


def _near(xp: Namespace, distance: Array, width: Array) -> tuple[Array, Array]:
    """Distance and width inside the limits of the series."""
    return xp.minimum(distance, xp.array(FARTHEST)), xp.minimum(width, xp.array(NARROW))


def _density(xp: Namespace, x: Array) -> Array:
    return xp.exp(-0.5 * (x * x + LOG_2PI))


def numbers_of(
    xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], echo: Echo, of: NumberSet
) -> Numbers:
    """Parameters of one set of questions."""
    part = {name: data[f"{of.prefix}{name}"] for name in ARRAYS}
    claim, slot, attribute = part["claim"], part["slot"], part["attribute"]
    held = within(xp, xp.take(theta["logit"], claim))
    right, wrong = xp.sigmoid(held), xp.sigmoid(-held)
    if layout.ceiling:
        ceiling = xp.take(data["claim_ceiling"], claim)
        capped = right > ceiling
        right, wrong = xp.where(capped, ceiling, right), xp.where(capped, 1.0 - ceiling, wrong)
    if layout.lasting:
        # What is not meant to last measures nothing.
        right = right * xp.take(data["slot_lasting"], slot)[:, 0]
        wrong = 1.0 - right
    log_spread = xp.take(theta["log_spread"], claim)
    log_spread = xp.minimum(xp.maximum(log_spread, xp.array(SPREADS[0])), xp.array(SPREADS[1]))
    row = xp.take(data["slot_first_row"], slot) if layout.soft else slot
    return Numbers(
        value=part["value"],
        real=part["real"],
        bias=xp.take(theta["shift"], claim),
        spread=xp.exp(log_spread),
        right=right,
        wide=wrong * xp.exp(part["log_wide"]),
        step=part["step"],
        fresh=xp.take(echo.fresh, slot),
        repeated=xp.take(echo.repeated, row),
        silent=xp.take(echo.silent, slot) | (part["real"][:, None, :] < 0.5),
        truth=part["truth"],
        settled=part["settled"],
        scale=xp.exp(xp.take(theta["log_scale"], attribute)),
        slope=xp.exp(xp.take(theta["log_slope"], attribute)),
        shared=_shared(xp, xp.take(theta["log_shared"], claim), part["real"]),
        group=part["group"],
        order_log=part["order_log"],
        gap=data[f"{of.prefix}gap"] if of.gaps else None,
        gap_real=data[f"{of.prefix}gap_real"] if of.gaps else None,
    )


def _shared(xp: Namespace, by_claim: Array, real: Array) -> Array:
    """(Q,) standard deviation of the shared error: the log of it is the mean over the claims (Q, n) of a question."""
    log = (by_claim * real).sum(-1) / xp.maximum(real.sum(-1), xp.array(1.0))
    return xp.exp(xp.minimum(xp.maximum(log, xp.array(SHARED[0])), xp.array(SHARED[1])))


ARRAYS = (
    "claim",
    "slot",
    "value",
    "real",
    "log_wide",
    "step",
    "attribute",
    "truth",
    "settled",
    "group",
    "order_log",
)
"""Arrays of a set, see `nousppl.number_layout.lay_numbers`."""


def claim_logs(xp: Namespace, given: Numbers, node: Array) -> Array:
    """(Q, R, n, G) log likelihood of each claim in each order where y is a node (Q, G)."""
    away = (given.value - given.bias)[:, :, None] - node[:, None, :]
    spread = given.spread[:, :, None]
    distance = xp.maximum(away, -away) / spread
    chance = cell_chance(xp, distance, given.step[:, None, None] / spread)
    fresh = given.right[:, :, None] * chance + given.wide[:, :, None]
    whole = given.fresh[:, :, :, None] * fresh[:, None] + given.repeated[:, :, :, None]
    # Silent claims say nothing; the log of what stands in their place would have no finite gradient at 0.
    silent = given.silent[:, :, :, None]
    return xp.log(xp.where(silent, xp.array(1.0), whole))


def log_prior(xp: Namespace, given: Numbers, node: Array) -> Array:
    """(Q, G) log density of y at the nodes, and of the settled truth with it where there is one."""
    truth, scale, shared = given.truth[:, None], given.scale[:, None], given.shared[:, None]
    known = _log_normal(xp, truth, scale) + _log_normal(xp, node - given.slope[:, None] * truth, shared)
    unknown = _log_normal(xp, node, seen_sd(given)[:, None])
    if given.gap is not None:
        unknown = unknown + log_outside(xp, given, node)
    return xp.where(given.settled[:, None] > 0.5, known, unknown)


def log_outside(xp: Namespace, given: Numbers, node: Array) -> Array:
    """(Q, G) log chance that the truth, which is normal given y, lies in none of the rejected rounding cells."""
    assert given.gap is not None and given.gap_real is not None
    share, sd = truth_given_seen(given)
    away = given.gap[:, :, None] - (share[:, None] * node)[:, None, :]
    distance = xp.maximum(away, -away) / sd[:, None, None]
    inside = cell_chance(xp, distance, (given.step / sd)[:, None, None])
    total = xp.where(given.gap_real[:, :, None] > 0.5, inside, xp.array(0.0)).sum(1)
    return xp.log(xp.maximum(1.0 - total, xp.array(TINY)))


def seen_sd(given: Numbers) -> Array:
    """(Q,) standard deviation of what can be seen."""
    return (given.slope * given.slope * given.scale * given.scale + given.shared * given.shared) ** 0.5


def truth_given_seen(given: Numbers) -> tuple[Array, Array]:
    """(Q,) mean of the truth as a share of y, and its standard deviation given y."""
    wide = seen_sd(given)
    return given.slope * given.scale * given.scale / (wide * wide), given.scale * given.shared / wide


def _log_normal(xp: Namespace, x: Array, sd: Array) -> Array:
    scaled = x / sd
    return -0.5 * (scaled * scaled + LOG_2PI) - xp.log(sd)


def centres_of(xp: Namespace, given: Numbers) -> Centres:
    """Where the nodes of a set are laid around."""
    known = given.settled > 0.5
    mean = xp.where(known, given.slope * given.truth, 0.0 * given.truth)
    sd = xp.where(known, given.shared, seen_sd(given))
    most = OUTLYING * seen_sd(given)[:, None]

    def near(x: Array) -> Array:
        return xp.minimum(xp.maximum(x, -most), most)

    centres = Centres(near(given.value - given.bias), given.spread, given.group, given.step, mean, sd)
    if given.gap is None or given.gap_real is None:
        return centres
    share, fall = (x[:, None] for x in truth_given_seen(given))
    # Of what only pads at the prior.
    middle = near(xp.where(given.gap_real > 0.5, given.gap / share, mean[:, None]))
    half = 0.5 * given.step[:, None] / share
    edges = xp.stack([middle - half, middle + half]).swapaxes(0, 1).reshape(middle.shape[0], 2 * middle.shape[1])
    return centres._replace(edge=edges, edge_sd=(fall / share)[:, 0])


def integrand(xp: Namespace, given: Numbers, points: int) -> Integrand:
    """What is to be summed over the nodes of a set, to be cut into ``points - 1`` intervals."""

    def log_density(node: Array) -> Array:
        logs = claim_logs(xp, given, node).sum(2)
        if logs.shape[1] == 1:
            return logs[:, 0] + log_prior(xp, given, node)
        return log_sum(xp, logs + given.order_log[:, :, None], axis=1) + log_prior(xp, given, node)

    node, weight = nodes(xp, centres_of(xp, given), log_density, points)
    mass = log_prior(xp, given, node) + xp.log(xp.maximum(weight, xp.array(TINY)))
    return Integrand(node, mass, claim_logs(xp, given, node))


TINY = 1e-37
"""Smallest weight of a node."""


def log_sum(xp: Namespace, x: Array, axis: int) -> Array:
    """Log of the sum of exponentials of finite numbers along an axis other than the first."""
    moved = x.swapaxes(axis, -1)
    top = xp.max_last(moved)[..., None]
    total = xp.log(xp.exp(moved - top).sum(-1))[..., None] + top
    return total.swapaxes(axis, -1).squeeze(axis)


def log_marginals(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], echo: Echo) -> Array:
    """(icells,) log density of the claims about each number in each order, with its settled truth where there is one; 0
    for the cells of other questions."""
    total = xp.zeros(layout.icells)
    for of in layout.numbers:
        given = numbers_of(xp, layout, data, theta, echo, of)
        found = integrand(xp, given, layout.points)
        logs = log_sum(xp, found.by_claim.sum(2) + found.log_mass[:, None, :], axis=2)
        total = total + xp.sum_by(logs.reshape(-1), data[f"{of.prefix}icell"].reshape(-1), layout.icells)
    return total
