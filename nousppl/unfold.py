"""The belief about one question, unfolded: after each claim, and over the possible origins of each claim."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from nousppl.compile import Problem, node_grid
from nousppl.encode import Encoded
from nousppl.errors import QuestionError
from nousppl.models.origin import subsets
from nousppl.models.program import COPY_ERROR
from nousppl.ragged import Ints

Floats = NDArray[np.float64]

SMALL = 64
"""Up to this many answers the sums over the other answers are taken one by one."""
LARGEST = 5_000
"""Most claims of a question for which the table of origins is built."""


class Unfolded:
    """Per-claim likelihoods of one question under every draw.

    Attributes:
        claim_log: (draws, nodes, orders, claims, cells) log likelihood of each claim, claims in event order; with no
            difficulty there is one node.
        prior: (draws, cells) log prior mass.
    """

    def __init__(self, problem: Problem, logs: dict[str, Any]) -> None:
        slot, entry = logs["slot"], logs["entry"]
        layout, data = problem.layout, problem.data
        cells, orders = layout.cells, layout.instances
        by_cell = np.repeat(slot[..., None], cells, axis=-1)
        icell = data["entry_icell"]
        by_cell[:, :, data["entry_slot"], icell - data["icell_instance"][icell] * cells] += entry
        claims = len(problem.claims)
        back = np.lexsort((problem.slot_claim, data["slot_instance"]))
        self.claim_log = by_cell[:, :, back].reshape(*slot.shape[:2], orders, claims, cells)
        self.prior = logs["prior"]
        self.repeated = logs["repeated"][:, back].reshape(len(slot), orders, claims)
        looks = np.zeros(claims)
        looks[problem.slot_claim] = data["slot_looks"]
        self.looks = looks
        self.node_log = node_grid(layout.nodes)[1] if layout.nodes else np.zeros(1)

    def path(self) -> tuple[Floats, Floats, Floats]:
        """Beliefs after each claim.

        Returns:
            samples (draws, cells) of the final belief; path (claims + 1, cells), the belief averaged over draws
            before any claim and after each; log_odds (claims + 1, cells) of the path, taken from sums over the other
            answers so that they stay finite where the path rounds to 1.
        """
        total = self._log_joint()
        largest = total.max(0)
        p = np.exp(total - largest)
        if len(p) <= SMALL:
            rest = np.tensordot(1.0 - np.eye(len(p)), p, axes=1)
        else:
            rest = np.exp(log_rest(total - logsumexp(total, axis=0)))
        whole = p.sum(0)
        p, rest = p / whole, rest / whole
        mean, others = p.mean(1).T, rest.mean(1).T
        with np.errstate(divide="ignore"):
            log_odds = np.log(mean) - np.log(others)
        if not (mean > 0.0).all() or not (others > 0.0).all():
            log_odds = _log_odds(total - logsumexp(total, axis=0))
        return p[:, :, -1].T, mean, log_odds

    def _log_joint(self) -> Floats:
        """(cells, draws, claims + 1) log joint of the truth and the claims so far, orders and difficulty averaged."""
        joint = np.cumsum(np.moveaxis(self.claim_log, -1, 0), axis=4)
        if joint.shape[2] * joint.shape[3] == 1:
            joint = joint[:, :, 0, 0]
        else:
            joint = logsumexp(joint + self.node_log[:, None, None], axis=(2, 3)) - np.log(joint.shape[3])
        start = np.zeros((*joint.shape[:2], 1))
        return np.concatenate([start, joint], axis=2) + self.prior.T[:, :, None]

    def fresh(self) -> Floats:
        """(claims,) probability that each claim is fresh, averaged over the truth, the orders and the draws."""
        inverse = self.mean_inverse()
        repeats = (self.order_weight[:, :, None] * self.repeated * inverse).sum(1).mean(0)
        return np.asarray(np.clip(1.0 - repeats, 0.0, 1.0) * self.looks)

    def mean_inverse(self) -> Floats:
        """(draws, orders, claims) mean over the truth (and the difficulty) of ``1 / p(claim | truth)``."""
        total = self.claim_log.sum(3) + self.node_log[:, None, None] + self.prior[:, None, None, :]
        weight = np.exp(total - logsumexp(total, axis=(1, 2, 3), keepdims=True))
        inverse = np.exp(-self.claim_log)
        per_order = weight.sum((1, 3))
        mean = np.einsum("dnrc,dnrjc->drj", weight, inverse)
        self.order_weight = per_order
        return mean / np.maximum(per_order, 1e-300)[:, :, None]


def log_rest(log_p: Floats) -> Floats:
    """``log(1 - p)`` for log probabilities normalised along the first axis, accurate where p is near 1."""
    top = log_p.argmax(0)[None]
    out = np.log1p(-np.minimum(np.exp(log_p), 1.0 - 1e-16))
    without = log_p.copy()
    np.put_along_axis(without, top, -np.inf, axis=0)
    with np.errstate(divide="ignore"):
        np.put_along_axis(out, top, logsumexp(without, axis=0, keepdims=True), axis=0)
    return out


def _log_odds(log_p: Floats) -> Floats:
    """(claims + 1, cells) log-odds of the mean over draws wholly in logs: for odds beyond the range of floats."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (logsumexp(log_p, axis=1) - logsumexp(log_rest(log_p), axis=1)).T


def origins(
    encoded: Encoded,
    problem: Problem,
    unfolded: Unfolded,
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
    inverse = unfolded.mean_inverse()
    world = PairWorld(encoded, problem, features, grid)
    draws = len(inverse)
    for d in range(draws):
        theta = {name: value[d] for name, value in parameters.items()}
        for r in range(problem.layout.instances):
            out[:, 1:] += unfolded.order_weight[d, r] * world.repeats(theta, r) * inverse[d, r][:, None]
    out[:, 1:] /= draws
    out[:, 0] = np.maximum(1.0 - out[:, 1:].sum(1), 0.0) * (world.looks > 0.0)
    return out


class PairWorld:
    """All pairs of claims of one question, written out: the slow twin of ``nousppl.models.origin``."""

    def __init__(self, encoded: Encoded, problem: Problem, features: int, grid: Floats | None) -> None:
        data, claims = problem.data, len(problem.claims)
        self.claims, self.grid = claims, grid
        self.slots = [np.flatnonzero(data["slot_instance"] == r) for r in range(problem.layout.instances)]
        self.slot_claim, self.slot_first_row = problem.slot_claim, data["slot_first_row"]
        self.lag = encoded.origin is not None and encoded.origin.lag
        self.time = self._slot_times(problem)
        cells = problem.layout.cells
        said = np.zeros((claims, cells))
        first = data["slot_instance"][data["row_slot"]] == 0
        said[problem.slot_claim[data["row_slot"][first]], data["row_icell"][first]] = data["row_share"][first]
        self.match = said @ said.T
        self.size = float(data["slot_size"][0]) if len(data["slot_size"]) else 2.0
        self.looks, self.silence = np.zeros(claims), np.zeros(claims)
        self.looks[problem.slot_claim] = data["slot_looks"]
        self.silence[problem.slot_claim] = data["slot_silence"] * self.size
        self.groups = subsets(features)
        shared = np.zeros((claims, claims), np.int64)
        for f, codes in enumerate(encoded.features):
            mine = codes[problem.claims]
            shared |= (mine[:, None] == mine[None, :]).astype(np.int64) << f
        self.shared = shared
        self.similarity = np.full((problem.layout.instances, claims, claims), np.nan)
        if "pair_row" in data:
            later = data["row_slot"][data["pair_row"]]
            where = (
                data["slot_instance"][later],
                problem.slot_claim[later],
                problem.slot_claim[data["pair_origin_slot"]],
            )
            self.similarity[where] = data["pair_similarity"]

    def _slot_times(self, problem: Problem) -> Floats:
        time = np.zeros(len(problem.slot_claim))
        if self.lag:
            rows = problem.data["chain_order"][0]
            time[problem.data["row_slot"][rows]] = problem.data["chain_time"][0]
        return time

    def place(self, order: int) -> Ints:
        """(claims,) place of each claim in one of the orders."""
        out = np.empty(self.claims, np.int64)
        out[self.slot_claim[self.slots[order]]] = np.arange(self.claims)
        return out

    def weights(self, theta: dict[str, Any], order: int) -> tuple[Floats, Floats, Floats, Ints]:
        """Base and strong weights (claims, claims) of earlier claims, text ratios, and the place of each claim in this
        order."""
        slots, place = self.slots[order], self.place(order)
        time = np.empty(self.claims)
        time[self.slot_claim[slots]] = self.time[slots]
        rate = np.log(2.0) / theta["origin_half_life"] if "origin_half_life" in theta else 0.0
        fading = np.exp(-rate * np.maximum(time[:, None] - time[None, :], 0.0)) * (place[:, None] > place[None, :])
        base = np.exp(theta["origin_log_strangers"]) * fading
        coefficients = [theta["origin_" + name] for name in self.names(theta)]
        strong = np.zeros_like(base)
        for group in self.groups:
            exact = self.shared == sum(1 << f for f in group)
            strong += np.where(exact, np.exp(sum(coefficients[f] for f in group)), 0.0) * fading
        ratio = np.ones_like(base)
        if self.grid is not None and "origin_text" in theta:
            mean = np.mean(np.exp(theta["origin_text"] * self.grid))
            known = np.isfinite(self.similarity[order])
            ratio[known] = np.exp(theta["origin_text"] * self.similarity[order][known]) / mean
        return base, strong, ratio, place

    @staticmethod
    def names(theta: dict[str, Any]) -> list[str]:
        """Pair features among the parameters, in the order of the specification."""
        return [n.removeprefix("origin_") for n in theta if n.startswith("origin_same_")]

    def repeats(self, theta: dict[str, Any], order: int) -> Floats:
        """(claims, claims) joint chance that j repeats k and comes out as it did."""
        base, strong, ratio, _ = self.weights(theta, order)
        alpha = np.exp(theta["log_concentration"][: self.claims].astype(np.float64)) * self.looks
        matched = ((base + strong) * self.match).sum(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            original = np.where(alpha + matched > 0.0, alpha / (alpha + matched), 0.0)
        weight = base * original[None, :] + strong
        total = alpha + weight.sum(1)
        spoken = 1.0 - self.silence[:, None]
        chance = weight * (
            spoken * (ratio * (1.0 - COPY_ERROR) * self.match + COPY_ERROR / self.size) + (1.0 - spoken) / self.size
        )
        return np.where(total[:, None] > 0.0, chance / np.maximum(total, 1e-300)[:, None], 0.0)
