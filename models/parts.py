"""Questions about many items in parts: what the parts of a question tell each other of the origins of its claims.

A list has one origin, fresh or not. Given the origins the items are independent, so that the parts of a question (see
``nousppl.parts``) share nothing else. The exact sum over the origins of all claims is replaced by belief propagation
between parts and claims (Pearl 1988; Kschischang, Frey & Loeliger 2001, "Factor graphs and the sum-product algorithm",
IEEE Trans. Inf. Theory 47): in each part the truth of the items and the origins are summed out exactly, each claim
being fresh with the chance that the other parts' items leave it, and the density of the question is Bethe's (Yedidia,
Freeman & Weiss 2005, "Constructing free-energy approximations", ibid. 51). Of a question in one part both are exact.
"""

from __future__ import annotations

from nousppl.models.any_of import log_fresh
from nousppl.models.base_rates import base_log_mass
from nousppl.models.layout import Layout
from nousppl.models.logs import NOTHING, log_add, log_or_nothing
from nousppl.models.namespace import Array, Namespace
from nousppl.models.origin import Echo, by_row_of_slot

FARTHEST = 80.0
"""Largest log that is taken out of a probability again."""
TINY = 1e-37
"""Smallest probability whose log is taken."""
ROUNDS = 3
"""How often each part hears of the others."""


def told_by_parts(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], echo: Echo) -> Echo:
    """Origins as the other parts of a question leave them.

    With f and m the chances that a claim is fresh, and that its list comes out by repetition, and ``u_b`` the mean of
    its probability in part b, fresh, over the items that hold given all other claims, part b of B sees the weights
    ``f' = f prod_{c != b} u_c`` and m, both times ``(f prod_c u_c + m)^(1/B) / (f' u_b + m)``. The factor does not
    depend on what is true; with it the densities of the parts multiply to that of the question. A fresh claim that is
    not meant to last says as little of the items as a repetition, and counts there.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters.
        echo: origins as each part sees them by itself.
    """
    mine, zero = data["slot_share"] > 0.0, xp.array(0.0)
    alone, copied = log_or_nothing(xp, echo.fresh), log_or_nothing(xp, echo.repeated)
    if layout.soft:
        copied = xp.take(copied, data["slot_first_row"])
    lost = xp.array(NOTHING)
    if layout.lasting:
        lost = alone + log_or_nothing(xp, 1.0 - data["slot_lasting"])
        alone = alone + log_or_nothing(xp, data["slot_lasting"])
        copied = log_add(xp, copied, lost - xp.log(data["slot_size"]))
    fresh = log_fresh(xp, layout, data, theta)
    heard = xp.zeros(layout.slots)
    # Where the messages have come to rest the density does not change with them, so that its gradient needs none.
    fixed = [xp.fixed(part) for part in (alone, copied, fresh, base_log_mass(xp, layout, data, theta))]
    for _ in range(ROUNDS):
        heard = _heard(xp, layout, data, fixed, echo.silent, _others(xp, layout, data, heard)[1])
    total, others = _others(xp, layout, data, heard)
    factor = data["slot_share"] * log_add(xp, alone + total, copied) - log_add(xp, alone + others + heard, copied)
    factor = xp.where(mine, factor, zero)
    if layout.notes:
        factor = xp.where(echo.silent, zero, factor)
    of_row = by_row_of_slot(xp, layout, data, factor)
    listed = by_row_of_slot(xp, layout, data, data["slot_share"]) > 0.0
    either = log_add(xp, alone + others, lost) if layout.lasting else alone + others
    return echo._replace(
        fresh=xp.where(mine, xp.exp(either + factor), echo.fresh),
        repeated=xp.where(listed, xp.exp(log_or_nothing(xp, echo.repeated) + of_row), echo.repeated),
        lasting=xp.where(mine, xp.exp(alone + others - either), data["slot_lasting"]) if layout.lasting else None,
        weights=None,
    )


def _others(xp: Namespace, layout: Layout, data: dict[str, Array], heard: Array) -> tuple[Array, Array]:
    """(slots,) log probability of the whole list, and of it in the other parts."""
    total = xp.take(xp.sum_by(heard, data["slot_whole"], layout.slots), data["slot_whole"])
    total = xp.where(data["slot_share"] > 0.0, total, xp.array(0.0))
    return total, total - heard


def _heard(
    xp: Namespace, layout: Layout, data: dict[str, Array], logs: list[Array], silent: Array, others: Array
) -> Array:
    """(slots,) log of the mean probability of each list in its part, fresh, over the items that hold, given the other
    claims; 0 for claims of other questions."""
    alone, copied, fresh, prior = logs
    slot, to, icell = data["any_slot"], data["any_to"], data["any_icell"]
    whole = log_add(xp, xp.take(alone + others, slot) + fresh, xp.take(copied, slot))
    largest = log_add(xp, alone + others, copied)
    if layout.notes:
        # Before anything is repeated, an own note says nothing.
        whole = xp.where(xp.take(silent, slot), xp.array(0.0), whole)
        largest = xp.where(silent, xp.array(0.0), largest)
    possible = xp.maximum(data["cell_log_possible"], xp.array(NOTHING))
    at_icell = xp.take(prior + possible, data["icell_cell"]) + xp.sum_by(whole, icell, layout.icells)
    of_order = xp.logsumexp_by(at_icell, data["icell_instance"], layout.instances)
    law = at_icell - xp.take(of_order, data["icell_instance"])
    # Without the claim itself, in units of its largest likelihood, so that nothing overflows.
    rest = xp.exp(xp.take(law, icell) + xp.minimum(xp.take(largest, slot) - whole, xp.array(FARTHEST)))
    total = xp.maximum(xp.sum_by(rest, to, layout.slots), xp.array(TINY))
    mean = xp.maximum(xp.sum_by(rest * xp.exp(fresh), to, layout.slots) / total, xp.array(TINY))
    return xp.where(data["slot_share"] > 0.0, xp.log(mean), xp.array(0.0))
