"""A truth that changes: the forward filter and the smoother of a hidden Markov model, over all questions at once.

Between two events the truth is drawn anew from the base rates at a rate gamma, so that a transition is the identity
plus a matrix of rank one, and a step costs as much as there are answers (Rabiner 1989, "A tutorial on hidden Markov
models", equations 19 to 27, with that transition). What is carried is the probability of each truth given the events so
far; divided by the base rates it is their relative likelihood given that truth, phi. The chain looks the same in both
directions of time, so that the events before and after the time asked about are taken by the same scan, which ends
there on either side.

A *run* is the events of a question, in one of the orders of its claims, on one side of the time asked about. Runs lie
end to end in *lanes* that are scanned side by side, in sets by the number of answers (see
``nousppl.models.layout.Lanes``).
"""

from __future__ import annotations

from typing import NamedTuple

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace

NEVER = -1e30
"""Log likelihood of an answer that is ruled out; finite, so that its gradient is."""
LEAST = 1e-30
"""Smallest probability that is told from 0."""


class Carried(NamedTuple):
    """What the scans give; logs."""

    slot: Array
    """(slots,) probability of each claim given the events before it in its run."""
    settled: Array
    """(instances,) the same of what is settled or rejected."""
    now: Array
    """(icells,) phi of both sides at the time asked about, multiplied."""


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
    of_icell = xp.take(law, data["icell_cell"])
    for lanes in layout.lanes:
        own = {name.partition(" ")[2]: x for name, x in data.items() if name.startswith(f"lane{lanes.width} ")}
        gain = xp.sum_by(entry_log, own["entry"], lanes.steps * lanes.lanes * lanes.width)
        gain = gain.reshape(lanes.steps, lanes.lanes, lanes.width)
        if layout.pinned:
            gain = xp.where(own["closed"], xp.array(NEVER), gain)
        rates = xp.where(own["real"], xp.exp(xp.take(law, own["cell"])), xp.array(0.0))
        passing = xp.take(xp.take(rate, own["question"]), own["run"]) * own["gap"]
        given, total = filtered(xp, rates, own["run"], own["start"], gain, passing)
        given, total = xp.after_zero(given.reshape(-1)), total.reshape(-1)
        for side in ("forward", "backward"):
            there = own[side] > 0
            phi = xp.log(xp.where(there, xp.take(given, own[side]), xp.array(1.0))) - of_icell
            now = now + xp.where(there, phi, xp.array(0.0))
        slot = slot + xp.take(xp.after_zero(total), own["slot"])
        settled = settled + xp.sum_by(total, own["silent"].reshape(-1), layout.instances)
    return Carried(slot, settled, now)


def filtered(xp: Namespace, rates: Array, run: Array, start: Array, gain: Array, passing: Array) -> tuple[Array, Array]:
    """The filter.

    Args:
        xp: the array namespace.
        rates: (runs, width) base rates; 0 beyond the cells of a question.
        run: (steps, lanes) run of each step.
        start: (steps, lanes) True where a run begins.
        gain: (steps, lanes, width) log likelihood of what is observed, by truth, up to what all truths have in common.
        passing: (steps, lanes) expected number of changes between this event and the next, or the time asked about.

    Returns:
        (steps, lanes, width) probability of each truth after that time; (steps, lanes) log probability of what is
        observed, given what was before in its run, less what all truths have in common.
    """

    def step(given: Array, now: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        said, top, run, start, stay = now
        law = xp.rows(rates, run)
        joint = xp.where(start[:, None], law, given) * said
        total = xp.maximum(joint.sum(-1), xp.array(LEAST))
        # Kept off 0: its logarithm is taken, and it may have to grow again.
        given = xp.maximum((stay / total)[:, None] * joint + (1.0 - stay)[:, None] * law, xp.array(LEAST))
        return given, (given, xp.log(total) + top)

    top = xp.max_last(gain)
    # Lanes that only pad begin with no run: from 0 their gradient would not be a number.
    return xp.scan(step, 0.0 * gain[0] + 1.0, (xp.exp(gain - top[..., None]), top, run, start, xp.exp(-passing)))
