"""The fast marginal, the reference program and brute force agree on random small problems, with every feature on and off."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nousppl as nous
from nousppl.compile import compile_problem
from nousppl.densify import Written, write_out
from nousppl.trust import Trust
import witness
from random_evidence import random_case


def case(seed: int, **features: bool) -> tuple[nous.Evidence, Trust]:
    evidence, model = random_case(seed, **features)
    return evidence, model.default_trust(seed=seed, draws=1)


def written(trust: Trust, evidence: nous.Evidence, question: int) -> list[Written]:
    return write_out(trust.blueprint, trust.encoded(evidence), trust.asked(), question, seed=trust.model.order_seed)


def values_of(dense: Written) -> list[int]:
    weights = dense.question.weights
    hard = np.isclose(weights.max(1), 1.0)
    return np.where(hard, weights.argmax(1), -1).tolist()


def by_brute_force(orders: list[Written], nodes: int) -> dict[str, float]:
    """Posterior by answer, orders averaged; the unnamed answers together as "other"."""
    total = np.zeros(len(orders[0].answers))
    for one in orders:
        q, values = one.question, values_of(one)
        grid = witness.equispaced(nodes) if nodes else witness.NO_DIFFICULTY
        reading = witness.read(q, values)
        for z, prior in enumerate(q.prior):
            if prior > 0.0:
                logs = [
                    np.log(p) + sum(np.log(witness.claim_marginal(reading, j, z, d)) for j in range(len(values))) for d, p in grid
                ]
                total[z] += prior * np.exp(witness.log_sum_exp(logs))
    total /= total.sum()
    out: dict[str, float] = {}
    for answer, p in zip(orders[0].answers, total, strict=True):
        key = "other" if str(answer).startswith("other ") else str(answer)
        out[key] = out.get(key, 0.0) + float(p)
    return out


def nodes(trust: Trust, evidence: nous.Evidence, index: int) -> int:
    return compile_problem(trust.encoded(evidence), np.array([index])).layout.nodes


def difference(seed: int, **features: bool) -> float:
    evidence, trust = case(seed, **features)
    worst = 0.0
    beliefs = trust.posteriors(evidence).probabilities
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        exact = by_brute_force(written(trust, evidence, index), nodes(trust, evidence, index))
        belief = trust.posterior(evidence.question(entity, attribute))
        for answer, p in belief.probabilities.items():
            worst = max(worst, abs(p - exact[str(answer)]))
        batched = beliefs[(beliefs["entity"] == entity) & (beliefs["attribute"] == attribute)]
        for answer, p in zip(batched["answer"], batched["probability"], strict=True):
            worst = max(worst, abs(p - exact[str(answer)]))
    return worst


@pytest.mark.parametrize("block", range(10))
def test_marginal_is_brute_force_in_single_precision(block: int) -> None:
    assert max(difference(seed) for seed in range(block * 15, block * 15 + 15)) < 1e-5
