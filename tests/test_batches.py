"""Fits on batches of questions: what a batch says, in which order batches come, and how their losses are judged."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.datasets import world
from nousppl.inference import judgement, packed
from nousppl.inference.backend import JAX
from nousppl.simulate import World

FORMULA = "1 + (1|kind) + (1|source)"
BATCHES = 6


class Parts:
    """The log density and its gradient on all settled questions, on each batch, and of the prior alone."""

    def __init__(self, small: World) -> None:
        model = nous.TrustModel(FORMULA, FORMULA, answers=small.answers)
        evidence = nous.Evidence(small.claims, settled=small.learn)
        self.blueprint = draw_up(model, evidence)
        self.encoded = self.blueprint.encode(evidence)
        questions = fitting.learned_questions(self.encoded, "settled")
        pieces = np.array_split(questions, BATCHES)
        self.problems = [fitting.compile_problem(self.encoded, piece, 0) for piece in pieces]
        self.pack = packed.packing(self.blueprint.plan, 20)
        self.compiled: dict[Any, Any] = {}
        self.point = jnp.asarray(np.random.default_rng(0).normal(0, 0.3, self.pack.size))
        whole = [fitting.compile_problem(self.encoded, questions, 0)]
        self.density, self.full = self.at(whole)[0]
        self.density_of_batch, self.of_batch = zip(*self.at(self.problems), strict=True)
        _, self.prior = self.at(whole, 0.0)[0]

    def at(self, problems: list[Any], weight: float = 1.0) -> list[tuple[float, np.ndarray]]:
        """Density and gradient of each problem, its questions weighted by this times what the fit gives them."""
        layout, shared, stacked = fitting.batched(self.blueprint, self.encoded, problems)
        if layout not in self.compiled:
            density = packed.log_density(JAX, self.blueprint.plan, layout, self.pack)
            self.compiled[layout] = jax.jit(jax.value_and_grad(density))
        both = self.compiled[layout]
        stacked = stacked | {"question_weight": stacked["question_weight"] * weight}
        data = [{n: jnp.asarray(v) for n, v in shared.items()} for _ in problems]
        for i, arrays in enumerate(data):
            arrays |= {name: jnp.asarray(value[i]) for name, value in stacked.items()}
        return [(float(value), np.asarray(gradient)) for value, gradient in (both(self.point, a) for a in data)]


@pytest.fixture(scope="module")
def small() -> World:
    return world(questions=60, sources=40, seed=3)


@pytest.fixture(scope="module")
def parts(small: World) -> Parts:
    return Parts(small)


def test_densities_and_gradients_of_batches_average_to_those_of_all_questions(parts: Parts) -> None:
    assert np.mean(parts.density_of_batch) == pytest.approx(parts.density, rel=1e-4)
    np.testing.assert_allclose(np.mean(parts.of_batch, axis=0), parts.full, rtol=1e-3, atol=2e-2)


def test_a_batch_whose_weight_is_not_scaled_is_noticed(parts: Parts) -> None:
    unscaled = np.mean([gradient for _, gradient in parts.at(parts.problems, 1.0 / BATCHES)], axis=0)
    assert np.abs(unscaled - parts.full).max() > 5.0


@pytest.mark.parametrize("part", ["reliability", "freshness"])
def test_sources_that_a_batch_does_not_hold_are_left_to_their_prior(parts: Parts, part: str) -> None:
    slot = next(s for s in parts.pack.slots if s.name == f"{part}_1|source_raw")
    here = slice(slot.start, slot.start + slot.size)
    design = parts.encoded.designs[part]
    level = next(g.index for g in design.groups if g.term == "1|source")
    for problem, gradient in zip(parts.problems, parts.of_batch, strict=True):
        absent = np.setdiff1d(np.arange(slot.size), level[problem.claims])
        moved = np.abs(gradient[here] - parts.prior[here])
        assert len(absent) > 0
        np.testing.assert_allclose(moved[absent], 0.0, atol=1e-5)
        assert (np.delete(moved, absent) > 1e-4).mean() > 0.6


def test_every_batch_comes_once_before_any_comes_again() -> None:
    deck = judgement.Deck(7, np.random.default_rng(0))
    drawn = np.concatenate([deck.take(50) for _ in range(7)]).reshape(-1, 7)
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(7), (50, 1)))
    assert len(np.unique(drawn, axis=0)) > 40


def test_draws_are_followed_by_their_mirror_images() -> None:
    noise = judgement.mirrored(np.random.default_rng(0).standard_normal((5, 2, 3)))
    assert noise.shape == (10, 2, 3)
    np.testing.assert_array_equal(noise[1::2], -noise[::2])


def steps(count: int, between: float, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses of a block of steps around 1000, the batches apart by so much, and their batches."""
    rng = np.random.default_rng(seed)
    index = np.repeat(judgement.Deck(count, rng).take(judgement.BLOCK // 2), 2)
    offset = rng.normal(0, between, count)
    return 1000 + (offset - offset.mean())[index] + rng.normal(0, noise, judgement.BLOCK), index


def test_the_loss_of_a_block_is_judged_batch_by_batch() -> None:
    """Batches that lie far apart hide no fall of the loss: the error is that of the noise within batches."""
    found = np.array([judgement.level(*steps(8, 300.0, 2.0, seed), 8) for seed in range(200)])
    assert found[:, 0].std() == pytest.approx(0.2, rel=0.2)
    assert found[:, 1].mean() == pytest.approx(0.2, rel=0.1)
    block, _ = steps(8, 300.0, 2.0, 0)
    assert block.std() / np.sqrt(len(block)) > 10 * found[0, 1]


@pytest.mark.parametrize("count", [1, 60])
def test_one_batch_and_very_many_are_judged_by_all_their_losses(count: int) -> None:
    block, index = steps(count, 0.0, 2.0, 0)
    mean, error = judgement.level(block, index, count)
    assert mean == pytest.approx(block.mean()) and error == pytest.approx(0.2, rel=0.25)


@pytest.mark.slow
def test_a_fit_in_batches_ends_where_that_on_all_questions_ends() -> None:
    larger = world(questions=300, sources=30, seed=3)
    model = nous.TrustModel(FORMULA, FORMULA, nous.Origin("same_source + same_channel"), answers=larger.answers)
    evidence = nous.Evidence(larger.claims, settled=larger.learn)
    batched, whole = (
        model.fit(evidence, nous.SVI(draws=2000, batch_claims=size), learn_from="settled", seed=1)
        for size in (600, 400_000)
    )
    assert "batches" in batched.status and "batches" not in whole.status
    one, other = batched.flat, whole.flat
    name = "reliability_1|source"
    difference = (one[name].mean(0) - other[name].mean(0)) / other[name].std(0)
    assert np.sqrt(np.square(difference).mean()) < 0.1
    assert 0.8 < np.median(one[name].std(0) / other[name].std(0)) < 1.25
