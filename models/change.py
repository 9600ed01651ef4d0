"""A truth that changes: the forward filter and the smoother of a hidden Markov model, over all questions at once.

Between two events the truth is drawn anew from the base rates at a rate gamma, so that a transition is the identity
plus a matrix of rank one, and a step costs as much as there are answers (Rabiner 1989, "A tutorial on hidden Markov
models", equations 19 to 27, with that transition). What is carried is ``phi(z)``, the likelihood of the events so far
given the truth z now, relative to their probability: ``sum_z pi(z) phi(z) = 1``. The chain looks the same in both
directions of time, so that the events before and after the time asked about are taken by the same scan, which ends
there on either side.

A *run* is the events of a question, in one of the orders of its claims, on one side of the time asked about. Runs lie
end to end in *lanes* that are scanned side by side, in sets by the number of answers (see
``nousppl.models.layout.Lanes``).
"""

from __future__ import annotations

from typing import NamedTuple

from nousppl.models.layout import Layout
from nousppl.models.logs import NEVER, log_add, log_one_minus_exp
from nousppl.models.namespace import Array, Namespace


class Carried(NamedTuple):
    """What the scans give; logs."""

    slot: Array
    """(slots,) probability of each claim given the events before it in its run."""
    settled: Array
    """(instances,) the same of what is settled or rejected."""
    now: Array
    """(icells,) phi of both sides at the time asked about, added up."""


def carry(
    xp: Namespace,
    layout: Layout,
    data: dict[str, Array],
    rate: Array,
    law: Array,
    slot_log: Array,
    entry_log: Array,
) -> Carried:
    """Carry the likelihoods of all claims to the time asked about.

    Args:
        xp: the array namespace.
        layout: static sizes.
        data: arrays of the problem.
        rate: (questions,) changes per unit of time.
        law: (cells,) log base rate of each cell.
        slot_log: (slots,) log likelihood of each claim for a truth not named before.
        entry_log: (entries,) what is added to it where the entry's cell is the truth.
    """
    slot, settled, now = slot_log, xp.zeros(layout.instances), xp.zeros(layout.icells)
    for lanes in layout.lanes:
        own = {name.partition(" ")[2]: x for name, x in data.items() if name.startswith(f"lane{lanes.width} ")}
        gain = xp.sum_by(entry_log, own["entry"], lanes.steps * lanes.lanes * lanes.width)
        gain = gain.reshape(lanes.steps, lanes.lanes, lanes.width)
        if layout.pinned:
            gain = xp.where(own["closed"], xp.array(NEVER), gain)
        table = xp.where(own["real"], xp.take(law, own["cell"]), xp.array(NEVER))
        passing = xp.take(xp.take(rate, own["question"]), own["run"]) * own["gap"]
        phi, total = filtered(xp, table, own["run"], own["start"], gain, passing)
        phi, total = xp.after_zero(phi.reshape(-1)), total.reshape(-1)
        now = now + xp.take(phi, own["forward"]) + xp.take(phi, own["backward"])
        slot = slot + xp.take(xp.after_zero(total), own["slot"])
        settled = settled + xp.sum_by(total, own["silent"].reshape(-1), layout.instances)
    return Carried(slot, settled, now)


def filtered(xp: Namespace, table: Array, run: Array, start: Array, gain: Array, passing: Array) -> tuple[Array, Array]:
    """The filter.

    Args:
        xp: the array namespace.
        table: (runs, width) log base rates.
        run: (steps, lanes) run of each step.
        start: (steps, lanes) True where a run begins.
        gain: (steps, lanes, width) log likelihood of what is observed, by truth, up to what all truths have in common.
        passing: (steps, lanes) expected number of changes between this event and the next, or the time asked about.

    Returns:
        (steps, lanes, width) log phi after that time; (steps, lanes) log probability of what is observed, given what
        was before in its run, less what all truths have in common.
    """

    def step(phi: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        gain, run, start, stay, jump = now
        phi = xp.where(start[:, None], xp.array(0.0), phi) + gain
        total = xp.logsumexp_last(xp.rows(table, run) + phi)
        phi = log_add(xp, phi - total[:, None] - stay[:, None], jump[:, None])
        return phi, (phi, total)

    jump = log_one_minus_exp(xp, passing)
    return xp.scan(step, 0.0 * gain[0], (gain, run, start, passing, jump))
