"""The belief about one question, unfolded: after each claim, and over the possible origins of each claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem
from nousppl.encode import Encoded
from nousppl.errors import QuestionError
from nousppl.pair_world import PairWorld

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

TINY = 1e-300
SMALL = 64
"""Up to this many answers the sums over the other answers are taken one by one."""
LARGEST = 5_000
"""Most claims of a question for which the table of origins is built."""


class Logs(NamedTuple):
    """Likelihoods of the claims of one question under some draws, at some nodes of its difficulty."""

    slot: Floats
    """(draws, nodes, slots) log likelihood for a truth not named before."""
    entry: Floats
    """(draws, nodes, entries) what is added where the entry's cell is the truth."""
    prior: Floats
    """(draws, cells) log prior mass of what the question looks like: the truth, where there is no trap."""
    base: Floats | None
    """(draws, cells) log base rate, whatever is settled or rejected; None where the truth stays and there is neither of
    the next two."""
    trap: Floats | None
    """(draws,) chance of a trap."""
    correlation: Floats | None
    """(draws,) correlation of the errors."""
    original: Floats | None
    """(draws, slots) chance that the claim is not itself a repetition; None without correlation."""
    repeated: Floats
    """(draws, slots) chance that the claim comes out as it did by repetition."""
    node_log: Floats
    """(draws, nodes) log weights of the nodes; one node of weight 1 where there is no difficulty."""
    log_rate: Floats | None
    """(draws,) log rate of change; None where the truth stays."""

    def of(self, slot: Bools, entry: Bools, cell: Bools) -> Logs:
        """Those of some slots, entries and cells."""
        return self._replace(
            slot=self.slot[..., slot],
            entry=self.entry[..., entry],
            prior=self.prior[:, cell],
            base=None if self.base is None else self.base[:, cell],
            original=None if self.original is None else self.original[:, slot],
            repeated=self.repeated[:, slot],
        )


class Course(NamedTuple):
    """The belief claim by claim, averaged over draws."""

    samples: Floats
    """(draws, cells) the final belief under each draw."""
    before: Floats
    """(claims, cells) just before each claim."""
    after: Floats
    """(claims, cells) just after it."""
    final: Floats
    """(cells,)"""
    before_odds: Floats
    """(claims, cells) log-odds of each, from sums over the other answers, so that they stay finite where a probability
    rounds to 1."""
    after_odds: Floats
    """(claims, cells)"""
    final_odds: Floats
    """(cells,)"""


class Fresh(NamedTuple):
    """What the chance to be fresh needs, under some draws."""

    order: Floats
    """(draws, orders) probability of each order."""
    inverse: Floats
    """(draws, orders, claims) mean over the truth and the difficulty of ``1 / p(claim | truth)``."""
    repeated: Floats
    """(draws, orders, claims) see `Logs`."""


class Unfolded:
    """The belief about one question from the likelihoods of its claims.

    Args:
        problem: the question, compiled.
        parts: gives the likelihoods: for each block of draws, those at each block of nodes.
    """

    def __init__(self, problem: Problem, parts: Callable[[], Iterable[Iterable[Logs]]]) -> None:
        self.problem, self.parts = problem, parts
        data = problem.data
        self.back = np.lexsort((problem.slot_claim, data["slot_instance"]))
        self.looks = np.zeros(len(problem.claims))
        self.looks[problem.slot_claim] = data["slot_looks"]

    def path(self) -> Course:
        """The belief before and after each claim."""
        sums = [_sums(self._rows(part)) for part in self.parts()]
        samples = np.concatenate([some for some, _, _ in sums])
        log_p, log_q = (reduce(np.logaddexp, logs) for logs in ([p for _, p, _ in sums], [q for _, _, q in sums]))
        path, odds, n = np.exp(log_p - np.log(len(samples))), log_p - log_q, len(self.problem.claims)
        if len(path) == n + 1:
            # Nothing happens between two claims, and nothing after the last.
            return Course(samples, path[:-1], path[1:], path[-1], odds[:-1], odds[1:], odds[-1])
        return Course(samples, path[:n], path[n:-1], path[-1], odds[:n], odds[n:-1], odds[-1])

    def _rows(self, part: Iterable[Logs]) -> Floats:
        """(rows, cells, draws) log joint of the truth and the claims so far, orders and difficulty averaged: before any
        claim and after each."""
        return self._log_joint(part)

    def _claim_log(self, logs: Logs) -> Floats:
        """(nodes, orders, claims, cells, draws) log likelihood of each claim, claims in event order.

        The draws come last, since all that follows runs over whole vectors of them.
        """
        layout, data = self.problem.layout, self.problem.data
        slot, entry = (np.ascontiguousarray(part.transpose(1, 2, 0)) for part in (logs.slot, logs.entry))
        by_cell = np.repeat(slot[:, :, None], layout.cells, axis=2)
        icell = data["entry_icell"]
        by_cell[:, data["entry_slot"], icell - data["icell_instance"][icell] * layout.cells] += entry
        shape = (slot.shape[0], layout.instances, len(self.problem.claims), layout.cells, slot.shape[2])
        return by_cell[:, self.back].reshape(shape)

    def _log_joint(self, part: Iterable[Logs]) -> Floats:
        """(claims + 1, cells, draws) log joint of the truth and the claims so far, orders and difficulty averaged."""
        orders, joints = self.problem.layout.instances, []
        for logs in part:
            joint = np.cumsum(self._claim_log(logs), axis=2)
            weight = logs.node_log.T[:, None, None, None]
            if joint.shape[0] * orders == 1:
                joints.append((joint + weight)[0, 0])
            else:
                joints.append(log_sum_exp(joint + weight, axis=(0, 1)) - np.log(orders))
            joints = [reduce(np.logaddexp, joints)]
        start = np.zeros((1, *joints[0].shape[1:]))
        return self._log_truth(np.concatenate([start, joints[0]]), logs)

    def _log_truth(self, likelihood: Floats, logs: Logs) -> Floats:
        """What ``nousppl.models.program.truth_logs`` makes of the likelihood after each claim, up to a factor by draw
        and claim; (claims + 1, cells, draws)."""
        if logs.base is None:
            return np.asarray(likelihood + logs.prior.T)
        base, possible = logs.base.T, self.problem.data["cell_log_possible"][:, None]
        law = likelihood + base
        if logs.correlation is not None:
            count = self.problem.data["cell_log_count"][:, None]
            law = (law - count) / (1.0 + logs.correlation * (self._originals(logs) - 1.0)) + count
        law = law - log_sum_exp(law, axis=1, keepdims=True)
        if logs.trap is not None:
            law = np.logaddexp(law + np.log1p(-logs.trap), base + np.log(logs.trap))
        return np.asarray(law + possible)

    def _originals(self, logs: Logs) -> Floats:
        """(claims + 1, 1, draws) expected number of claims so far that are no repetitions, orders averaged."""
        assert logs.original is not None
        shape = (self.problem.layout.instances, len(self.problem.claims), len(logs.original))
        so_far = np.cumsum(logs.original.T[self.back].reshape(shape), axis=1).mean(0)
        return np.maximum(np.concatenate([np.ones((1, shape[2])), so_far]), 1.0)[:, None]

    def fresh(self) -> Floats:
        """(claims,) probability that each claim is fresh, averaged over the truth, the orders and the draws."""
        repeats = [(part.order[:, :, None] * part.repeated * part.inverse).sum(1) for part in self.by_draw()]
        return np.asarray(np.clip(1.0 - np.concatenate(repeats).mean(0), 0.0, 1.0) * self.looks)

    def by_draw(self) -> Iterator[Fresh]:
        """See `Fresh`, for each block of draws."""
        orders, claims = self.problem.layout.instances, len(self.problem.claims)
        for part in self.parts():
            weights, inverses = [], []
            for logs in part:
                claim_log = self._claim_log(logs)
                total = claim_log.sum(2) + logs.node_log.T[:, None, None] + logs.prior.T
                weights.append(log_sum_exp(total, axis=(0, 2)))
                inverses.append(log_sum_exp(total[:, :, None] - claim_log, axis=(0, 3)))
                weights, inverses = [reduce(np.logaddexp, weights)], [reduce(np.logaddexp, inverses)]
            weight, inverse = weights[0].T, inverses[0].transpose(2, 0, 1)
            order = np.exp(weight - log_sum_exp(weight, axis=1, keepdims=True))
            repeated = logs.repeated[:, self.back].reshape(len(order), orders, claims)
            yield Fresh(order, np.exp(inverse - weight[:, :, None]), repeated)


def log_sum_exp(x: Floats, axis: int | tuple[int, ...], keepdims: bool = False) -> Floats:
    """Log of the sum of exponentials; -inf where all are. Several times faster than scipy's on long arrays."""
    top = x.max(axis, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    shifted = x - top
    np.exp(shifted, out=shifted)
    with np.errstate(divide="ignore"):
        out = np.log(shifted.sum(axis, keepdims=True)) + top
    return out if keepdims else out.squeeze(axis)


def _sums(total: Floats) -> tuple[Floats, Floats, Floats]:
    """Beliefs from log joints (claims + 1, cells, draws).

    Returns:
        (draws, cells) the final ones; logs of their sums over draws (claims + 1, cells), and of those of the rest.
    """
    p = np.exp(total - total.max(1, keepdims=True))
    cells = p.shape[1]
    if cells <= SMALL:
        rest = (1.0 - np.eye(cells)) @ p
    else:
        whole_log = log_sum_exp(total, axis=1, keepdims=True)
        rest = np.exp(log_rest(total - whole_log) + np.log(p.sum(1, keepdims=True)))
    whole = p.sum(1, keepdims=True)
    p /= whole
    rest /= whole
    mean, others = p.sum(2), rest.sum(2)
    if (mean > 0.0).all() and (others > 0.0).all():
        return p[-1].T, np.log(mean), np.log(others)
    # Beyond the range of floats, wholly in logs.
    log_p = total - log_sum_exp(total, axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return p[-1].T, log_sum_exp(log_p, axis=2), log_sum_exp(log_rest(log_p), axis=2)


def log_rest(log_p: Floats) -> Floats:
    """``log(1 - p)`` for log probabilities normalised along the second axis, accurate where p is near 1."""
    top = log_p.argmax(1)[:, None]
    out = np.log1p(-np.minimum(np.exp(log_p), 1.0 - 1e-16))
    without = log_p.copy()
    np.put_along_axis(without, top, -np.inf, axis=1)
    with np.errstate(divide="ignore"):
        np.put_along_axis(out, top, log_sum_exp(without, axis=1, keepdims=True), axis=1)
    return out


class ByDraw(Protocol):
    """What `origins` needs of a belief unfolded."""

    looks: Floats

    def by_draw(self) -> Iterator[Fresh]:
        """See `Fresh`, for each block of draws."""
        ...


def origins(
    encoded: Encoded,
    problem: Problem,
    unfolded: ByDraw,
    parameters: dict[str, Any],
    features: int,
    grid: Floats | None,
) -> Floats:
    """(claims, claims + 1) probability that each claim is fresh (column 0) or repeats claim k (column 1 + k), averaged
    over the truth, the orders and the draws.

    Raises:
        QuestionError: more than 5,000 claims.
    """
    claims = len(problem.claims)
    if claims > LARGEST:
        raise QuestionError(f"the table of origins is built for at most {LARGEST} claims, this question has {claims}")
    out = np.zeros((claims, claims + 1))
    if encoded.origin is None:
        out[:, 0] = unfolded.looks
        return out
    world = PairWorld(encoded, problem, features, grid)
    order, inverse, repeated = (np.concatenate(some) for some in zip(*unfolded.by_draw(), strict=True))
    for d in range(len(order)):
        theta = {name: value[d] for name, value in parameters.items()}
        for r in range(problem.layout.instances):
            chance = world.repeats(theta, r)
            if problem.layout.parts:
                # As the other parts leave it.
                chance = chance * (repeated[d, r] / np.maximum(chance.sum(1), TINY))[:, None]
            out[:, 1:] += order[d, r] * chance * inverse[d, r][:, None]
    out[:, 1:] /= len(order)
    out[:, 0] = np.maximum(1.0 - out[:, 1:].sum(1), 0.0) * (world.looks > 0.0)
    return out
