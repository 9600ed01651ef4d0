"""The belief about one question whose truth changes, unfolded: what each claim did to it, and what time did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem
from nousppl.unfold import Fresh, Logs, Unfolded, log_sum_exp

Floats = NDArray[np.float64]


class Event(NamedTuple):
    """A claim, something settled, or the moment asked about."""

    time: float
    claim: int | None
    """Index of the claim."""
    closed: NDArray[np.bool_]
    """(cells,) answers that are ruled out."""
    asked: bool
    """Whether it is the moment asked about."""
    fact: int | None
    """Index of what is settled."""
    barred: NDArray[np.bool_]
    """(cells,) answers that were rejected before."""


def events_of(problem: Problem) -> list[Event]:
    """Events of a question in order of time; the moment asked about comes after what happens at that time."""
    known, cells = problem.settled, problem.layout.cells
    assert known is not None
    at = float(problem.at[0])
    # All claims are dated, so that they have the same time in every order.
    times = np.empty(len(problem.claims))
    times[problem.slot_claim] = problem.times
    found = [(time, 0, claim) for claim, time in enumerate(times.tolist())]
    found += [(time, 1, fact) for fact, time in enumerate(known.time.tolist()) if np.isfinite(time)]
    out = []
    for time, kind, number in sorted([*found, (at, 2, 0)], key=lambda one: one[:2]):
        pinned = kind == 1 and not known.rejected[number]
        closed = np.arange(cells) != known.cell[number] if pinned else np.zeros(cells, bool)
        closed[known.cell[known.rejected & (known.time <= time)]] = True
        barred = np.zeros(cells, bool)
        barred[known.cell[known.rejected & (known.time < time)]] = True
        claim, fact = (number if kind == one else None for one in (0, 1))
        out.append(Event(time, claim, closed, kind == 2, fact, barred))
    return out


class UnfoldedInTime(Unfolded):
    """As ``nousppl.unfold.Unfolded``, for a truth that changes.

    Up to the moment asked about the belief after a claim is that about the truth at the time of the claim (the filter);
    after it, that about the truth at the moment asked about (a smoother that takes one claim more each time).
    """

    def __init__(self, problem: Problem, parts: Callable[[], Iterable[Iterable[Logs]]]) -> None:
        super().__init__(problem, parts)
        self.events = events_of(problem)

    def _rows(self, part: Iterable[Logs]) -> Floats:
        """(2 claims + 1, cells, draws) logs of the joint before each claim, after each, and of the final one."""
        rows: list[Floats] = []
        for logs in part:
            rows = [reduce(np.logaddexp, [*rows, self._filtered(logs)])]
        return rows[0]

    def facts(self) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Places (F,) among what is settled of what has a time, and the belief (F, cells) just before and after it."""
        dated = np.array([event.fact for event in self.events if event.fact is not None], np.int64)
        if not len(dated):
            return dated, *np.empty((2, 0, self.problem.layout.cells))
        rows = [reduce(np.logaddexp, (self._filtered(logs, dated) for logs in part)) for part in self.parts()]
        beliefs = np.concatenate([np.exp(row - log_sum_exp(row, axis=1, keepdims=True)) for row in rows], -1).mean(-1)
        return dated, beliefs[: len(dated)], beliefs[len(dated) : -1]

    def _filtered(self, logs: Logs, facts: NDArray[np.int64] | None = None) -> Floats:
        """(2 n + 1, cells, draws) logs of the joint before each of n claims (or of the `facts`), after each, and of the
        final one."""
        claim_log, law = self._claim_log(logs), law_of(logs)
        n = len(self.problem.claims) if facts is None else len(facts)
        place = {} if facts is None else {fact: row for row, fact in enumerate(facts.tolist())}
        out = np.empty((2 * n + 1, *law.shape))
        joint = np.broadcast_to(law, (*claim_log.shape[:2], *law.shape))
        weight = logs.node_log.T[:, None, None] - np.log(claim_log.shape[1])
        last, asked = self.events[0].time, False
        for event in self.events:
            # From the moment asked about on, the axis before the last but one is the truth at that moment.
            joint = moved(joint, law, logs, event.time - last)
            last = event.time

            def seen(joint: Floats, asked: bool = asked) -> Floats:
                return log_sum_exp((log_sum_exp(joint, axis=-2) if asked else joint) + weight, axis=(0, 1))

            row = event.claim if facts is None else place.get(event.fact)
            if row is not None:
                out[row] = seen(ruled_out(joint, event.barred))
            if event.claim is not None:
                said = claim_log[:, :, event.claim]
                joint = joint + (said[:, :, None] if asked else said)
            joint = ruled_out(joint, event.closed)
            if row is not None:
                out[n + row] = seen(joint)
            if event.asked:
                joint, asked = _held(joint), True
        out[-1] = log_sum_exp(log_sum_exp(joint, axis=-2) + weight, axis=(0, 1))
        return out

    def by_draw(self) -> Iterator[Fresh]:
        """See ``nousppl.unfold.Fresh``."""
        orders, claims = self.problem.layout.instances, len(self.problem.claims)
        for part in self.parts():
            weights: list[Floats] = []
            inverses: list[Floats] = []
            for logs in part:
                claim_log, law, node = self._claim_log(logs), law_of(logs), logs.node_log.T[:, None]
                forward, total = self._forward(claim_log, law, logs)
                backward = self._backward(claim_log, law, logs)
                weights = [reduce(np.logaddexp, [*weights, log_sum_exp(total + node, axis=0)])]
                without = log_sum_exp(forward + backward, axis=-2) + node[:, :, None]
                inverses = [reduce(np.logaddexp, [*inverses, log_sum_exp(without, axis=0)])]
            weight, inverse = weights[0].T, inverses[0].transpose(2, 0, 1)
            order = np.exp(weight - log_sum_exp(weight, axis=1, keepdims=True))
            repeated = logs.repeated[:, self.back].reshape(len(order), orders, claims)
            yield Fresh(order, np.exp(inverse - weight[:, :, None]), repeated)

    def _forward(self, claim_log: Floats, law: Floats, logs: Logs) -> tuple[Floats, Floats]:
        """(nodes, orders, claims, cells, draws) log joint of the truth and the claims before each; (nodes, orders,
        draws) log density of everything."""
        out = np.empty_like(claim_log)
        joint = np.broadcast_to(law, (*claim_log.shape[:2], *law.shape))
        last = self.events[0].time
        for event in self.events:
            joint = ruled_out(moved(joint, law, logs, event.time - last), event.closed)
            last = event.time
            if event.claim is not None:
                out[:, :, event.claim] = joint
                joint = joint + claim_log[:, :, event.claim]
        return out, log_sum_exp(joint, axis=-2)

    def _backward(self, claim_log: Floats, law: Floats, logs: Logs) -> Floats:
        """(nodes, orders, claims, cells, draws) log density of what is after each claim, given the truth at its
        time."""
        out = np.empty_like(claim_log)
        # The chain looks the same backwards, so this is a joint with the law, which is taken off at the end.
        joint = np.broadcast_to(law, (*claim_log.shape[:2], *law.shape))
        last = self.events[-1].time
        for event in reversed(self.events):
            joint = moved(joint, law, logs, last - event.time)
            last = event.time
            if event.claim is not None:
                out[:, :, event.claim] = joint - law
                joint = joint + claim_log[:, :, event.claim]
            joint = ruled_out(joint, event.closed)
        return out


def law_of(logs: Logs) -> Floats:
    """(cells, draws) log of the law that truths are drawn from."""
    assert logs.base is not None
    return np.asarray(logs.base.T)


def moved(joint: Floats, law: Floats, logs: Logs, by: float) -> Floats:
    """Log joints (..., cells, draws) after some time, in which the truth may have been drawn anew from its law."""
    assert logs.log_rate is not None
    if by <= 0.0:
        return joint
    passing = np.exp(logs.log_rate) * by
    with np.errstate(divide="ignore"):
        jump = np.log(-np.expm1(-passing))
    return np.logaddexp(joint - passing, log_sum_exp(joint, axis=-2, keepdims=True) + jump + law)


def ruled_out(joint: Floats, closed: NDArray[np.bool_]) -> Floats:
    """Log joints (..., cells, draws) without the answers that are ruled out."""
    return np.where(closed[:, None], -np.inf, joint) if closed.any() else joint


def _held(joint: Floats) -> Floats:
    """(..., cells, cells, draws) joints of the truth now and later, from those of the truth now."""
    same = np.eye(joint.shape[-2], dtype=bool)[..., None]
    return np.where(same, joint[..., None, :, :], -np.inf)
