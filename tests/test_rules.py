"""Each rule of the model for one-of-several answers does what it is for, and the harm is there when it is taken out.

All of it is computed by the witness, in plain Python, at the middle of the default priors unless a test says otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import witness
from numpy.polynomial.hermite_e import hermegauss
from random_questions import random_question

from nousppl.models.dense import DenseQuestion

STRANGERS = math.exp(-4)
SAME_CHANNEL = math.exp(3)
BETA = math.e
OPEN, CLOSED = False, True


def ask(
    values: Sequence[int],
    K: int,
    channels: Sequence[Any],
    *,
    closed: bool,
    right: float | Sequence[float] = 0.75,
    alpha: float | Sequence[float] = 1.0,
    strangers: float = STRANGERS,
    same_channel: float = SAME_CHANNEL,
    beta: float | None = BETA,
    copy_error: float = 1e-4,
    ceiling: float = math.inf,
    difficulty_sd: float = 0.0,
) -> DenseQuestion:
    """Hard claims in event order, each from its channel; two claims of one channel have a strong weight."""
    n = len(values)
    earlier = np.tril(np.ones((n, n)), -1)
    same = np.array([[one == other for other in channels] for one in channels])
    a = np.broadcast_to(right, n)
    return DenseQuestion(
        prior=np.full(K, 1 / K),
        weights=np.eye(K)[list(values)],
        logit=np.repeat(np.log(a / (1 - a))[:, None], K, axis=1),
        ceiling=np.full(n, ceiling),
        difficulty_sd=difficulty_sd,
        alpha=np.broadcast_to(alpha, n).astype(float),
        base=earlier * strangers,
        strong=earlier * same * same_channel,
        rho=np.ones((n, n)),
        copy_error=copy_error,
        beta=beta,
        closed=closed,
    )


def belief(
    question: DenseQuestion, without: Sequence[str] = (), grid: witness.Grid = witness.NO_DIFFICULTY
) -> list[float]:
    """P(z | x) of the values in the question's own rows."""
    return witness.marginal_posterior(question, question.weights.argmax(1).tolist(), grid, without)


def log_odds(question: DenseQuestion, z: int, without: Sequence[str] = ()) -> float:
    logs = witness.log_marginal(question, question.weights.argmax(1).tolist(), without=without)
    return logs[z] - witness.log_sum_exp([p for other, p in enumerate(logs) if other != z])


# ----------------------------------------------------------------------------------------------------------- origins


def test_honest_strangers_who_confirm_a_flood_are_heard() -> None:
    """Without r_k every message of the flood is a possible origin, and the strangers look like its echoes."""
    flood = ask([0] * 200, 2, [0] * 200, closed=CLOSED)
    confirmed = ask([0] * 200 + [0, 0], 2, [0] * 200 + [1, 2], closed=CLOSED)
    two_independent_claims = 2 * math.log(3)

    gain = log_odds(confirmed, 0) - log_odds(flood, 0)
    assert gain > 0.9 * two_independent_claims
    without = ["originality"]
    assert log_odds(confirmed, 0, without) - log_odds(flood, 0, without) < 0.15 * two_independent_claims


def test_honest_strangers_who_contradict_a_flood_are_heard() -> None:
    """Where copies are often garbled, what contradicts a flood looks like a garbled echo of it, unless r_k is there."""
    question = ask([1] * 300 + [0, 0], 2, [0] * 300 + [1, 2], closed=CLOSED, strangers=0.1, copy_error=0.02)
    assert belief(question)[0] > 0.65
    assert belief(question, ["originality"])[0] < 0.5


def test_a_flood_gains_by_its_logarithm() -> None:
    """Four times the messages add (alpha / w) (a - (1 - a) u) ln 4; without origins they add a claim each."""
    few, many = (ask([0] * n, 2, [0] * n, closed=CLOSED, right=0.95) for n in (50, 200))
    gain = log_odds(many, 0) - log_odds(few, 0)
    assert 0 < gain < 1.05 * (0.95 - 0.05) / SAME_CHANNEL * math.log(4)

    few, many = (few._replace(strong=0 * few.strong, base=0 * few.base) for few in (few, many))
    assert log_odds(many, 0) - log_odds(few, 0) == pytest.approx(150 * math.log(0.95 / 0.05))


def test_weights_know_nothing_of_the_value() -> None:
    """A weight that depends on the value of its claim breaks the sum to one; text as a likelihood ratio does not.

    Every pair's texts are alike or not, half of the time each, with ratios 1.8 and 0.2, whose mean is one.
    """
    rng = np.random.default_rng(0)
    for _ in range(5):
        question, _ = random_question(rng, n=3, K=2, base=True, strong=True, own_notes=False)
        kept, broken = [], []
        for ratios in itertools.product((1.8, 0.2), repeat=3):
            rho = np.ones((3, 3))
            rho[np.tril_indices(3, -1)] = ratios
            kept.append(witness.total_probability(question._replace(rho=rho)))
            broken.append(witness.total_probability(question._replace(rho=rho), without=["known before"]))
        assert np.mean(kept) == pytest.approx(1, abs=1e-12)
        assert abs(np.mean(broken) - 1) > 1e-3


def test_probabilities_sum_to_one() -> None:
    """Over all sequences of values, with every feature on and off; an own note that repeats nothing has K times one."""
    rng = np.random.default_rng(1)
    for n, K in [(1, 4), (2, 3), (3, 2), (3, 3), (4, 2)] * 4:
        question, values = random_question(rng, n=n, K=K, rho=False)
        x = witness.read(question, [0] * n)
        silent = sum(witness.is_silent(x, j) for j in range(n))
        total = witness.total_probability(question, witness.equispaced(5))
        assert total == pytest.approx(K**silent, abs=1e-10), values


# ------------------------------------------------------------------------------------------------------ shared errors


def test_popularity_counts_origins() -> None:
    """A true answer flooded by one bad channel stays an unusual thing to say by mistake."""
    claims = [0] * 60 + [0, 0, 0] + [1, 1]
    question = ask(claims, 10, [0] * 60 + [1, 2, 3, 4, 5], closed=CLOSED, right=[0.5] * 60 + [0.75] * 5)
    assert belief(question)[0] > 0.85
    assert belief(question, ["origins counted"])[0] < 0.6


def test_bad_sources_cannot_discredit_a_truth_by_repeating_it() -> None:
    """Without the clip, thirty claims by sources that are right three times in ten make the truth a popular error."""
    bad = ask([0] * 30, 10, range(30), closed=OPEN, right=0.3, strangers=0)
    assert belief(bad)[0] > 0.3  # the prior is .1
    assert belief(bad, ["clip"])[0] < 1e-4

    honest = ask([0] * 5 + [1], 10, range(6), closed=OPEN, right=[0.75] * 5 + [0.3], strangers=0)
    both = ask([0] * 5 + [1] + [0] * 30, 10, range(36), closed=OPEN, right=[0.75] * 5 + [0.3] * 31, strangers=0)
    assert belief(both)[0] >= belief(honest)[0] > 0.99
    assert belief(both, ["clip"])[0] < 0.01


def test_a_clipped_law_sums_to_one_and_stays_below_its_cap() -> None:
    rng = np.random.default_rng(2)
    clipped = 0
    for _ in range(200):
        question, values = random_question(rng, n=5, K=4, popularity=True, open=True, soft=False)
        x, free = witness.read(question, values), witness.read(question, values, ["clip"])
        a = witness.reliability(x, 4, 0, 0.0)
        u = witness.wrong_answer_law(x, 4, 0, a)
        assert sum(u) == pytest.approx(1)
        assert max(u) <= max(a / (1 - a), 1 / 3) + 1e-12
        clipped += u != witness.wrong_answer_law(free, 4, 0, a)
    assert clipped > 20


def test_without_shared_error_common_mistakes_look_like_echoes() -> None:
    """Independent sources meet on one natural mistake. A fit without popularity takes them for echoes of each other,
    and hardly anything is held with confidence any more.
    """
    rng = np.random.default_rng(0)
    K, n = 20, 12

    def draw() -> tuple[int, list[int]]:
        truth, mistake = rng.permutation(K)[:2]
        return int(truth), [int(truth if rng.random() < 0.7 else mistake) for _ in range(n)]

    def made(values: list[int], strangers: float, beta: float | None) -> DenseQuestion:
        return ask(values, K, range(n), closed=CLOSED, right=0.7, strangers=strangers, beta=beta)

    def log_likelihood(strangers: float, beta: float | None) -> float:
        readings = [(truth, witness.read(made(values, strangers, beta), values)) for truth, values in settled]
        return sum(math.log(witness.claim_marginal(x, j, z, 0.0)) for z, x in readings for j in range(n))

    settled, asked = [draw() for _ in range(40)], [draw() for _ in range(40)]
    weights, betas = (0.0, STRANGERS, 0.1, 0.3, 1.0, 3.0), (0.03, 0.1, 0.3, 1.0)
    shared = max(itertools.product(weights, betas), key=lambda fit: log_likelihood(*fit))
    echoes = max(itertools.product(weights, [None]), key=lambda fit: log_likelihood(*fit))
    assert shared[0] <= 0.1 and echoes[0] >= 1
    assert log_likelihood(*shared) > log_likelihood(*echoes) + 20

    def held(fit: tuple[float, float | None]) -> tuple[float, float]:
        beliefs = [(truth, belief(made(values, *fit))) for truth, values in asked]
        loss = -np.mean([math.log(p[truth]) for truth, p in beliefs])
        return float(np.mean([max(p) > 0.95 for _, p in beliefs])), float(loss)

    confident, loss = held(shared)
    confident_in_echoes, loss_of_echoes = held(echoes)
    assert confident > 0.3 and confident_in_echoes < 0.1
    assert loss < loss_of_echoes - 0.05


# ----------------------------------------------------------------------------------------- notes, ceilings, soft claims


def test_own_note_is_no_witness() -> None:
    """First in its question it leaves the belief as it is, and later strangers do not become its echoes."""
    alone = ask([0, 0], 3, [1, 2], closed=CLOSED)
    with_note = ask([1, 0, 0], 3, [0, 1, 2], closed=CLOSED, alpha=[0.0, 1.0, 1.0])
    np.testing.assert_allclose(belief(with_note), belief(alone), atol=1e-12)
    assert belief(with_note, ["own notes"])[0] < belief(alone)[0] - 0.1
    assert witness.origins(with_note, [1, 0, 0])[0] == [0, 0, 0, 0]


def test_own_note_that_repeats_says_nothing_new() -> None:
    alone = ask([0, 1, 1], 3, [0, 1, 2], closed=CLOSED)
    repeated = ask([0, 1, 1, 0], 3, [0, 1, 2, 0], closed=CLOSED, alpha=[1.0, 1.0, 1.0, 0.0])
    np.testing.assert_allclose(belief(repeated), belief(alone), atol=1e-12)
    fresh = repeated._replace(alpha=np.ones(4))
    assert abs(belief(fresh)[0] - belief(alone)[0]) > 1e-3


def test_ceiling_holds_whatever_the_record() -> None:
    question = ask([1, 1, 1, 0], 3, [0, 1, 2, 3], closed=CLOSED, right=[0.95] * 3 + [0.9])
    question = question._replace(ceiling=np.array([0.4, 0.4, 0.4, np.inf]))
    assert belief(question)[0] > 0.7
    assert belief(question, ["ceiling"])[1] > 0.9


def test_soft_claim_is_an_origin_by_what_it_says() -> None:
    """Counted with its chance of saying nothing, the law of the next claim does not sum to one."""
    question = ask([0, 0], 3, [0, 0], closed=CLOSED)
    question = question._replace(weights=np.array([[0.3, 0.1, 0.0], [1.0, 0.0, 0.0]]))

    def law_of_next(without: Sequence[str] = ()) -> float:
        first = witness.evidence(question._replace(weights=question.weights[:1], alpha=question.alpha[:1]), [-1])
        return sum(witness.evidence(question, [-1, v], without=without) for v in range(3)) / first

    assert law_of_next() == pytest.approx(1, abs=1e-12)
    assert law_of_next(["shares"]) < 0.6


# ---------------------------------------------------------------------------------------------- answers, difficulty


def test_answers_that_nobody_named_are_alike() -> None:
    """So that they can be kept as one lump; a claim that names one of them sets it apart."""
    question = ask([0, 1, 0, 2], 6, [0, 1, 2, 3], closed=OPEN, difficulty_sd=1.0)
    unnamed = belief(question, grid=witness.equispaced(11))[3:]
    np.testing.assert_allclose(unnamed, unnamed[0], atol=1e-15)
    named = ask([0, 1, 0, 3], 6, [0, 1, 2, 3], closed=OPEN, difficulty_sd=1.0)
    assert np.ptp(belief(named, grid=witness.equispaced(11))[3:]) > 0.01


def test_rejected_answer_stays_rejected() -> None:
    question = ask([1] * 8 + [0], 3, range(9), closed=OPEN)
    assert belief(question)[1] > 0.99
    rejected = belief(question._replace(prior=np.array([0.5, 0.0, 0.5])))
    assert rejected[1] == 0
    assert rejected[0] > rejected[2]


def test_difficulty_needs_many_nodes() -> None:
    """A Gauss-Hermite rule of 7 nodes turns sixty against forty claims the wrong way round; 81 equispaced do not."""
    question = ask([0] * 60 + [1] * 40, 2, range(100), closed=CLOSED, strangers=0, difficulty_sd=1.0)
    nodes, weights = hermegauss(7)
    coarse = list(zip(nodes.tolist(), (weights / weights.sum()).tolist(), strict=True))
    fine = belief(question, grid=witness.equispaced(161))[0]
    assert fine == pytest.approx(belief(question, grid=witness.equispaced(81))[0], abs=1e-6)
    assert fine > 0.65
    assert belief(question, grid=coarse)[0] < 0.35


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="no such rules: {'luck'}"):
        witness.read(ask([0], 2, [0], closed=CLOSED), [0], ["luck"])
