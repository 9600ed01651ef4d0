"""The reference program says the same as explicit sums in plain Python."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import witness
from numpy.typing import ArrayLike, NDArray
from numpyro.infer.inspect import get_model_relations
from random_questions import FEATURES, random_question

from nousppl.errors import InferenceError
from nousppl.inference import enumeration
from nousppl.models import reference
from nousppl.models.dense import DenseQuestion

# One grid for all, so that questions of one size share a compilation. It is coarse, which no comparison minds.
NODES = witness.equispaced(11)
GRID = reference.Grid(np.array([d for d, _ in NODES]), np.array([weight for _, weight in NODES]))


def close(one: ArrayLike, other: ArrayLike, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=0, atol=tolerance)


def questions(n: int, K: int, popularity: bool, count: int) -> list[tuple[DenseQuestion, NDArray[np.int64]]]:
    """Every other feature alone, all of them together, none, and random mixtures."""
    rng = np.random.default_rng(100 * n + 10 * K + popularity)
    others = [name for name in FEATURES if name != "popularity"]
    off = dict.fromkeys(others, False)
    fixed = [off, dict.fromkeys(others, True), *(off | {name: True} for name in others)]
    mixtures: list[dict[str, bool]] = [{} for _ in range(count - len(fixed))]
    return [random_question(rng, n=n, K=K, popularity=popularity, **features) for features in fixed + mixtures]


@pytest.mark.parametrize(("n", "K", "popularity"), [(1, 2, True), (2, 4, False), (3, 3, True), (4, 2, True)])
def test_posterior_and_evidence_are_those_of_the_witness(n: int, K: int, popularity: bool) -> None:
    with jax.enable_x64(True):
        for question, values in questions(n, K, popularity, count=30):
            posterior = enumeration.posterior(question, values, GRID)
            assert posterior.dtype == jnp.float64
            close(posterior, witness.posterior(question, values, NODES), 1e-10)
            evidence = math.log(witness.evidence(question, values, NODES))
            close(enumeration.log_evidence(question, values, GRID), evidence, 1e-10)


def test_single_precision_is_good_to_five_places() -> None:
    for question, values in questions(3, 3, True, count=60):
        posterior = enumeration.posterior(question, values, GRID)
        assert posterior.dtype == jnp.float32
        close(posterior, witness.posterior(question, values, NODES), 1e-5)


def test_origins_are_those_of_the_witness() -> None:
    with jax.enable_x64(True):
        for question, values in questions(3, 3, True, count=40):
            origins = enumeration.origins(question, values, GRID)
            close(origins, witness.origins(question, values, NODES), 1e-10)


def test_the_witness_has_two_ways_that_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        question, values = random_question(rng)
        marginal = witness.log_marginal(question, values, NODES)
        evidence = witness.evidence(question, values, NODES)
        assert math.exp(witness.log_sum_exp(marginal)) == pytest.approx(evidence, rel=1e-12)
        posterior = witness.posterior(question, values, NODES)
        close(witness.marginal_posterior(question, values, NODES), posterior, 1e-12)


def test_probabilities_sum_to_one_over_all_sequences() -> None:
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        for _ in range(10):
            question, _ = random_question(rng, n=3, K=3, popularity=True, own_notes=False, soft=False, rho=False)
            sequences = itertools.product(range(3), repeat=3)
            total = sum(float(jnp.exp(enumeration.log_evidence(question, np.array(x), GRID))) for x in sequences)
            assert total == pytest.approx(1, abs=1e-12)


def test_draws_follow_the_probabilities() -> None:
    """Frequencies of all 9 sequences of claims: chi-squared, false alarm at one in 10,000 (fixed key)."""
    rng = np.random.default_rng(4)
    on = dict.fromkeys(("popularity", "open", "base", "strong", "copy_error", "difficulty"), True)
    off = dict.fromkeys(set(FEATURES) - set(on), False)
    question, _ = random_question(rng, n=2, K=3, **on, **off)

    def draw(key: jax.Array) -> jax.Array:
        trace = numpyro.handlers.trace(numpyro.handlers.seed(enumeration.program, key)).get_trace(question, None, GRID)
        return jnp.array([jnp.argmax(trace[f"claim_{j}"]["value"]) for j in range(2)])

    draws = 20_000
    values = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), draws))
    counts = np.bincount(np.asarray(values @ jnp.array([3, 1])), minlength=9)
    expected = [draws * witness.evidence(question, x, NODES) for x in itertools.product(range(3), repeat=2)]
    assert min(expected) > 5
    chi_squared = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    assert chi_squared < 31.83  # the .9999 quantile at 8 degrees of freedom


def test_default_grid_has_81_nodes() -> None:
    with jax.enable_x64(True):
        close(np.stack([np.asarray(x) for x in reference.equispaced()], 1), witness.equispaced(81), 1e-14)
        question, values = random_question(np.random.default_rng(5), n=1, K=2, popularity=False, difficulty=True)
        expected = witness.posterior(question, values, witness.equispaced(81))
        close(enumeration.posterior(question, values), expected, 1e-12)


def test_difficulty_is_normal_without_a_grid() -> None:
    from numpyro.contrib.funsor import enum, log_density

    question, values = random_question(np.random.default_rng(6), n=2, K=4, difficulty=True)
    model = enum(enumeration.program, first_available_dim=-1)
    density = jax.jit(lambda d: log_density(model, (question, values), {}, {"difficulty": d})[0])(jnp.array(0.7))
    expected = math.log(witness.evidence(question, values, [(0.7, 1.0)])) - 0.7**2 / 2 - math.log(2 * math.pi) / 2
    assert float(density) == pytest.approx(expected, abs=1e-5)


def test_the_program_can_be_drawn() -> None:
    question, values = random_question(np.random.default_rng(7), n=3, K=3, difficulty=True)
    relations = get_model_relations(enumeration.program, (question, values))
    assert relations["observed"] == ["claim_0", "claim_1", "claim_2"]
    parents = {site: set(names) for site, names in relations["sample_sample"].items()}
    assert parents["claim_0"] == {"truth", "difficulty", "origin_0"}
    assert parents["claim_2"] == {"truth", "difficulty", "origin_2", "claim_0", "claim_1"}
    assert parents["truth"] == set()

    easy, values = random_question(np.random.default_rng(7), n=2, K=3, difficulty=False)
    assert "difficulty" not in get_model_relations(enumeration.program, (easy, values))["sample_sample"]


def test_sites_can_be_held_at_plain_numbers() -> None:
    question, values = random_question(np.random.default_rng(7), n=2, K=3, difficulty=False)
    model = numpyro.handlers.condition(enumeration.program, {"truth": 2, "origin_0": 0, "origin_1": 1})
    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace(question, values)
    law = trace["claim_0"]["fn"].base_dist.law
    a = min(1 / (1 + math.exp(-question.logit[0, 2])), question.ceiling[0])
    assert float(law[2]) == pytest.approx(a, abs=1e-6)


def test_a_question_without_claims_keeps_its_prior() -> None:
    question, values = random_question(np.random.default_rng(8), n=1, K=4, rejected=True)
    empty = question._replace(
        **{name: getattr(question, name)[:0] for name in ("weights", "logit", "ceiling", "alpha")},
        **{name: getattr(question, name)[:0, :0] for name in ("base", "strong", "rho")},
    )
    close(enumeration.posterior(empty, values[:0]), question.prior, 1e-6)
    assert enumeration.origins(empty, values[:0]).shape == (0, 1)


def test_too_many_claims_are_refused() -> None:
    question, values = random_question(np.random.default_rng(9), n=23, K=2)
    with pytest.raises(InferenceError, match="at most 22 claims; this one has 23: use the marginal"):
        enumeration.posterior(question, values)
