"""All pairs of claims of one question, written out: where origins are read, and a check of the fast sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem
from nousppl.denied import undone
from nousppl.encode import Encoded
from nousppl.models.origin import subsets
from nousppl.models.program import AFFINITY_LIMIT, COPY_ERROR
from nousppl.ragged import Ints

Floats = NDArray[np.float64]


class PairWorld:
    """All pairs of claims of one question, written out: the slow twin of ``nousppl.models.origin``."""

    def __init__(self, encoded: Encoded, problem: Problem, features: int, grid: Floats | None) -> None:
        data, claims = problem.data, len(problem.claims)
        self.claims, self.grid = claims, grid
        self.slots = [np.flatnonzero(data["slot_instance"] == r) for r in range(problem.layout.instances)]
        self.slot_claim, self.slot_first_row = problem.slot_claim, data["slot_first_row"]
        self.lag = encoded.origin is not None and encoded.origin.lag
        self.time = self._slot_times(problem)
        first = data["slot_instance"][data["row_slot"]] == 0
        values, value = np.unique(problem.row_value[first], return_inverse=True)
        said = np.zeros((claims, len(values)))
        said[problem.slot_claim[data["row_slot"][first]], value] = data["row_share"][first]
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
        self.link = self._links(encoded, problem)
        self.listed = self._listed(problem) if problem.layout.listed else None
        self.undone = undone(problem) if problem.layout.denied else None
        self.similarity = np.full((problem.layout.instances, claims, claims), np.nan)
        if "pair_row" in data:
            later = data["row_slot"][data["pair_row"]]
            where = (
                data["slot_instance"][later],
                problem.slot_claim[later],
                problem.slot_claim[data["pair_origin_slot"]],
            )
            self.similarity[where] = data["pair_similarity"]

    def _links(self, encoded: Encoded, problem: Problem) -> Ints:
        """(orders, claims, claims) one-based link of each listed pair, 0 for strangers."""
        out = np.zeros((problem.layout.instances, self.claims, self.claims), np.int64)
        data, claim = problem.data, problem.slot_claim
        for kind, later in (("kin", "kin_row"), ("apart", "apart_slot")):
            if later in data:
                slot = data["row_slot"][data[later]] if kind == "kin" else data[later]
                earlier = data["kin_slot" if kind == "kin" else "apart_origin"]
                out[data["slot_instance"][slot], claim[slot], claim[earlier]] = data[kind + "_link"]
        return out

    def _listed(self, problem: Problem) -> Ints:
        """(orders, claims, claims) one-based place of each pair that the user's own terms weigh, 0 for the others."""
        out = np.zeros((problem.layout.instances, self.claims, self.claims), np.int64)
        data, claim = problem.data, problem.slot_claim
        later = data["listed_slot"]
        out[data["slot_instance"][later], claim[later], claim[data["listed_origin"]]] = 1 + np.arange(len(later))
        return out

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

    def weights(
        self, theta: dict[str, Any], order: int, denied: Floats | None = None
    ) -> tuple[Floats, Floats, Floats, Ints]:
        """Base and strong weights (claims, claims) of earlier claims, text ratios, and the place of each claim in this
        order.

        Args:
            theta: one draw of the parameters.
            order: which of the orders.
            denied: (claims, claims) how far the value of the earlier claim is taken to have been denied since; None
                for what the claims say.
        """
        slots, place = self.slots[order], self.place(order)
        time = np.empty(self.claims)
        time[self.slot_claim[slots]] = self.time[slots]
        rate = np.log(2.0) / theta["origin_half_life"] if "origin_half_life" in theta else 0.0
        fading = np.exp(-rate * np.maximum(time[:, None] - time[None, :], 0.0)) * (place[:, None] > place[None, :])
        base = np.exp(theta["origin_log_strangers"]) * fading
        if "origin_affinity" in theta:
            base = base * np.exp(np.r_[0.0, np.minimum(theta["origin_affinity"], AFFINITY_LIMIT)])[self.link[order]]
        coefficients = [theta["origin_" + name] for name in self.names(theta)]
        strong = np.zeros_like(base)
        for group in self.groups:
            exact = self.shared == sum(1 << f for f in group)
            strong += np.where(exact, np.exp(sum(coefficients[f] for f in group)), 0.0) * fading
        denied = self.undone[order] if denied is None and self.undone is not None else denied
        if denied is not None and "origin_repeats_denied" in theta:
            factor = np.exp(theta["origin_repeats_denied"])
            strong += denied * np.where(self.shared > 0, (factor - 1.0) * strong, factor * fading)
        if self.listed is not None:
            strong += np.r_[0.0, theta["listed"]][self.listed[order]] * fading
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
