"""Shapes of answers in the likelihood: what a claim of another shape than one of several says about each possible
truth.

A shape gives the log probability of a fresh claim under each cell of its question, and the log mass of the cells.
Whether the claim is fresh or a repetition is the same question for all shapes: what is repeated is the whole value, a
list with all its items, and ``nousppl.models.origin`` knows no more of values than which are equal.
"""

from __future__ import annotations

from nousppl.models import any_of, while_true
from nousppl.models.layout import Layout
from nousppl.models.logs import log_add, log_or_nothing
from nousppl.models.namespace import Array, Namespace
from nousppl.models.origin import Echo


def with_shapes(
    xp: Namespace,
    layout: Layout,
    data: dict[str, Array],
    theta: dict[str, Array],
    echo: Echo,
    logs: tuple[Array, Array],
) -> tuple[Array, Array]:
    """Log likelihoods of the claims of all shapes, given those of one of several.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        theta: parameters, those of the shapes among them.
        echo: what the origins contribute.
        logs: (slots,) log likelihood of each claim for a truth not named before and (entries,) what is added to it
            where the entry's cell is the truth. A claim of another shape has entries for all cells of its question, and
            0 for the first.
    """
    slot_log, entry_log = logs
    zero, shaped = xp.array(0.0), xp.zeros(layout.entries)
    if layout.sets:
        fresh, slot = any_of.log_fresh(xp, layout, data, theta), data["any_slot"]
        whole = either_origin(xp, layout, data, echo, fresh, slot)
        shaped = shaped + xp.sum_by(whole, data["any_entry"], layout.entries)
    if layout.periods:
        fresh, slot = while_true.log_fresh(xp, layout, data, theta), data["period_slot"]
        whole = either_origin(xp, layout, data, echo, fresh, slot)
        shaped = shaped + xp.sum_by(whole, data["period_entry"], layout.entries)
    return xp.where(data["slot_shaped"], zero, slot_log), xp.where(data["entry_shaped"], shaped, entry_log)


def either_origin(
    xp: Namespace, layout: Layout, data: dict[str, Array], echo: Echo, log_fresh: Array, slot: Array
) -> Array:
    """Log of ``f p(value | fresh) + m`` for some slots; 0 where a claim can neither be fresh nor repeat anything."""
    first = data["slot_first_row"] if layout.soft else None
    repeated = echo.repeated if first is None else xp.take(echo.repeated, first)
    one = log_or_nothing(xp, echo.fresh)
    other = log_or_nothing(xp, repeated)
    if layout.lasting:
        # What is not meant to last may be anything.
        lasting = data["slot_lasting"] if echo.lasting is None else echo.lasting
        lasts, size = xp.take(lasting, slot), xp.take(data["slot_size"], slot)
        log_fresh = log_add(xp, log_or_nothing(xp, lasts) + log_fresh, log_or_nothing(xp, (1.0 - lasts) / size))
    fresh, copied = xp.take(one, slot) + log_fresh, xp.take(other, slot)
    whole = log_add(xp, fresh, copied)
    return xp.where(xp.take(echo.silent, slot), xp.array(0.0), whole) if layout.notes else whole


def with_density(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], logs: Array) -> Array:
    """(cells,) log likelihoods with the density of what claims say of numbers that no truth goes by."""
    if not layout.period_cells:
        return logs
    return logs + xp.sum_by(while_true.log_stated(xp, layout, data, theta), data["periodcell_cell"], layout.cells)


def shaped_mass(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array], one_of: Array) -> Array:
    """(cells,) log base rate of each cell, given that of one-of-several answers."""
    mass = one_of
    if layout.set_cells:
        mass = mass + xp.sum_by(any_of.log_mass(xp, layout, data, theta), data["anycell_cell"], layout.cells)
    if layout.period_cells:
        mass = mass + xp.sum_by(while_true.log_mass(xp, layout, data, theta), data["periodcell_cell"], layout.cells)
    return mass
