"""The fast marginal, the reference program and brute force agree on random small problems, every feature on and off."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from random_evidence import FEATURES, random_case

import nousppl as nous
from nousppl.asking import ready
from nousppl.compile import compile_problem
from nousppl.densify import Written, write_out
from nousppl.inference import exact
from nousppl.inference.backend import JAX
from nousppl.models import one_of, origin, program, reference
from nousppl.trust import Trust

# 24 models with 13 questions each are 312 problems; the questions of one model share its compilations.
GROUPS, EACH = 24, 13
SINGLE, DOUBLE = 1e-5, 1e-10


def case(seed: int, **given: Any) -> tuple[nous.Evidence, Trust]:
    evidence, model = random_case(seed, **given)
    return evidence, model.default_trust(seed=seed, draws=1)


def written(trust: Trust, evidence: nous.Evidence, question: int) -> list[Written]:
    return write_out(trust.blueprint, trust.encoded(evidence), trust.asked(), question, seed=trust.model.order_seed)


def values_of(dense: Written) -> list[int]:
    weights = dense.question.weights
    hard = np.isclose(weights.max(1), 1.0)
    return np.where(hard, weights.argmax(1), -1).tolist()


def grid_of(trust: Trust, evidence: nous.Evidence, index: int) -> witness.Grid:
    nodes = compile_problem(trust.encoded(evidence), np.array([index])).layout.nodes
    return witness.equispaced(nodes) if nodes else witness.NO_DIFFICULTY


def joint_by_witness(one: Written, grid: witness.Grid) -> NDArray[np.float64]:
    """(K,) P(z, x) in one order of the claims."""
    return np.exp(witness.log_marginal(one.question, values_of(one), grid))


def joint_by_reference(one: Written, grid: witness.Grid) -> NDArray[np.float64]:
    """The same by the reference program."""
    nodes = reference.Grid(np.array([d for d, _ in grid]), np.array([weight for _, weight in grid]))
    evidence = np.exp(reference.log_evidence(one.question, values_of(one), nodes))
    return np.asarray(reference.posterior(one.question, values_of(one), nodes) * evidence)


def posterior_of(orders: list[Written], joint: Callable[[Written], NDArray[np.float64]]) -> dict[str, float]:
    """Posterior by answer, orders averaged; the unnamed answers together as "other"."""
    total = sum((joint(one) for one in orders), np.zeros(len(orders[0].answers)))
    total /= total.sum()
    out: dict[str, float] = {}
    for answer, p in zip(orders[0].answers, total, strict=True):
        key = "other" if str(answer).startswith("other ") else str(answer)
        out[key] = out.get(key, 0.0) + float(p)
    return out


def differences(
    evidence: nous.Evidence, trust: Trust, joint: Callable[..., NDArray[np.float64]] = joint_by_witness
) -> list[float]:
    """Largest difference of a probability by question; the single question and the batch of all are both compared."""
    batched = trust.posteriors(evidence).probabilities
    out = []
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        grid = grid_of(trust, evidence, index)
        exact_one = posterior_of(written(trust, evidence, index), lambda one, grid=grid: joint(one, grid))
        single = trust.posterior(evidence.question(entity, attribute)).probabilities
        many = batched[batched["entity"] == entity].set_index("answer")["probability"]
        assert set(single.index) == set(many.index) == set(exact_one)
        expected = pd.Series(exact_one)
        out.append(float(np.maximum((single - expected).abs().max(), (many - expected).abs().max())))
    return out


def worst(values: list[float]) -> float:
    """The largest; NaN if one of them is."""
    return float(np.max(values))


# ------------------------------------------------------------------------------------------------------- posteriors


@pytest.mark.parametrize("group", range(GROUPS))
def test_marginal_is_brute_force_in_single_precision(group: int) -> None:
    assert worst(differences(*case(group, questions=EACH))) < SINGLE


def test_the_random_problems_have_every_feature_on_and_off() -> None:
    evidences, models = zip(*(random_case(group, questions=EACH) for group in range(GROUPS)), strict=True)
    assert sum(len(evidence.questions) for evidence in evidences) >= 300
    on = {
        "origin": [m.origin is not None for m in models],
        "no strong weights": [m.origin is not None and m.origin.strong is None for m in models],
        "two features": [m.origin is not None and len(m.origin.features) == 2 for m in models],
        "lag": [m.origin is not None and m.origin.lag for m in models],
        "text": [m.origin is not None and m.origin.text is not None for m in models],
        "unknown order": [m.origin is not None and m.origin.order == "unknown" for m in models],
        "popularity": [m.errors.popularity for m in models],
        "difficulty": [m.errors.difficulty for m in models],
        "bias by class": [m.errors.bias == "class" for m in models],
        "bias by source": [m.errors.bias == "source" for m in models],
        "closed": [isinstance(m.answers["x"], list) for m in models],
        "base rates": [m.base_rates == "learned" and isinstance(m.answers["x"], list) for m in models],
        "soft": ["weight" in e.claims and bool((e.claims["weight"] < 1).any()) for e in evidences],
        "notes": [bool(e.coded.claim_derived.any()) for e in evidences],
        "ceiling": [bool(np.isfinite(e.coded.claim_ceiling).any()) for e in evidences],
        "rejected": [bool(e.coded.settled_rejected.any()) for e in evidences],
        "undated": [bool(np.isnan(e.coded.claim_time).any()) for e in evidences],
        "lineage": [bool((e.coded.claim_origin >= 0).any()) for e in evidences],
    }
    assert {name: any(flags) and not all(flags) for name, flags in on.items()} == dict.fromkeys(on, True)


@pytest.mark.parametrize("seed", range(100, 106))
def test_marginal_is_brute_force_in_double_precision(seed: int) -> None:
    with jax.enable_x64(True):
        assert worst(differences(*case(seed, questions=8))) < DOUBLE


@pytest.mark.parametrize("popularity", [True, False])
def test_marginal_is_the_reference_program(popularity: bool) -> None:
    """All three: questions of three claims over three named answers, so that they share the program's compilation."""
    seen = []
    for seed in range(4):
        features = {"popularity": popularity, "origin": True, "difficulty": seed % 2 == 0, "undated": False}
        evidence, trust = case(200 + seed, questions=2, claims=3, named=3, K=4, lineage=False, **features)
        seen += differences(evidence, trust, joint_by_reference)
    assert len(seen) == 8
    assert worst(seen) < SINGLE
