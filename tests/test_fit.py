"""Fits: the density that is fitted, recovery, seeds, batches, start values, and what is said of a fit."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from numpyro.infer.util import potential_energy
from packed_spreads import by_log

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.datasets import world
from nousppl.inference import packed, svi
from nousppl.inference.backend import JAX
from nousppl.models.program import program
from nousppl.simulate import World

FORMULA = "1 + (1|kind) + (1|source)"
SHORT = nous.SVI(steps=300, draws=50)


@pytest.fixture(scope="module")
def small() -> World:
    return world(questions=400, sources=40, seed=3)


@pytest.fixture(scope="module")
def model(small: World) -> nous.TrustModel:
    return nous.TrustModel(FORMULA, FORMULA, nous.Origin(strong="same_source + same_channel"), answers=small.answers)


@pytest.fixture(scope="module")
def evidence(small: World) -> nous.Evidence:
    return nous.Evidence(small.claims, settled=small.learn)


@pytest.fixture(scope="module")
def trust(model: nous.TrustModel, evidence: nous.Evidence) -> nous.Trust:
    return model.fit(evidence, seed=1)


@pytest.mark.parametrize("origin", [nous.Origin(), None], ids=["origins", "no origins"])
def test_the_packed_density_is_that_of_the_program(evidence: nous.Evidence, small: World, origin: Any) -> None:
    spec = nous.TrustModel(FORMULA, FORMULA, origin, nous.Errors(difficulty=False), answers=small.answers)
    blueprint = draw_up(spec, evidence)
    encoded = blueprint.encode(evidence)
    problem = fitting.compile_problem(encoded, fitting.learned_questions(encoded, "settled")[:30], 0)
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    data = {name: jnp.asarray(value) for name, value in shared.items()}
    data |= {name: jnp.asarray(value[0]) for name, value in stacked.items()}
    pack = packed.packing(blueprint.plan, 20)
    density = packed.log_density(JAX, blueprint.plan, layout, pack)
    plain = partial(program, JAX, blueprint.plan, layout)
    for seed in range(3):
        vector = jnp.asarray(np.random.default_rng(seed).normal(0, 0.5, pack.size))
        logs, change = by_log(blueprint.plan, pack, np.asarray(vector))
        expected = change - float(potential_energy(plain, (data,), {}, pack.unpack(jnp.asarray(logs, float))))
        assert density(vector, data) == pytest.approx(expected, rel=1e-5)


def test_a_fit_recovers_the_world(trust: nous.Trust, small: World) -> None:
    true = small.parameters
    draws = trust.asked()
    kinds = list(trust.blueprint.encodings["reliability"].levels["1|kind"])
    found = draws["reliability_1|kind"] + draws["reliability_Intercept"][:, None]
    expected = (true.kind["reliability"] + true.intercept).reindex(kinds).to_numpy()
    assert np.abs((found.mean(0) - expected) / found.std(0)).max() < 4.0
    assert np.corrcoef(found.mean(0), expected)[0, 1] > 0.95
    assert trust.record["converged"]
    assert "learned from 200 settled facts" in trust.status


def test_held_out_beliefs_are_better_than_without_echoes(
    trust: nous.Trust, model: nous.TrustModel, small: World, evidence: nous.Evidence
) -> None:
    asked = nous.Evidence(small.claims)
    plain = nous.TrustModel(FORMULA, origin=None, errors=nous.Errors(difficulty=False), answers=small.answers)
    with_echoes = trust.posteriors(asked).score(small.test)["log_loss"]
    without = plain.fit(evidence, seed=1).posteriors(asked).score(small.test)["log_loss"]
    assert with_echoes < 0.8 * without


def test_the_same_seed_gives_the_same_draws(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    one, two = model.fit(evidence, SHORT, seed=5), model.fit(evidence, SHORT, seed=5)
    other = model.fit(evidence, SHORT, seed=6)
    name = "reliability_1|source"
    np.testing.assert_array_equal(one.posterior_draws[name], two.posterior_draws[name])
    assert (one.posterior_draws[name] != other.posterior_draws[name]).all()


def test_the_order_of_the_rows_changes_no_bit(model: nous.TrustModel, small: World) -> None:
    few = small.claims[small.claims["entity"].isin(small.claims["entity"].unique()[:80])]
    claims = few.assign(time=few["time"].round(-1).mask(few.index % 5 == 0))
    rng = np.random.default_rng(0)
    shuffled, facts = claims.iloc[rng.permutation(len(claims))], small.learn.iloc[rng.permutation(len(small.learn))]
    svi = nous.SVI(steps=200, draws=10)
    one = model.fit(nous.Evidence(claims, settled=small.learn), svi).posteriors(nous.Evidence(claims))
    two = model.fit(nous.Evidence(shuffled, settled=facts), svi).posteriors(nous.Evidence(shuffled))
    np.testing.assert_array_equal(one.probability, two.probability)
    np.testing.assert_array_equal(one.support, two.support)


def test_a_new_source_is_the_same_in_every_question_and_way_of_asking(trust: nous.Trust, small: World) -> None:
    fresh = small.claims.groupby("entity").head(3).assign(source="newcomer", claim=lambda c: "new " + c["claim"])
    asked = nous.Evidence(pd.concat([small.claims, fresh.head(60)]))
    beliefs = trust.posteriors(asked).probabilities
    for entity in fresh["entity"].unique()[:5]:
        single = trust.posterior(asked.question(entity, fresh["attribute"].iloc[0])).probabilities
        batched = beliefs[beliefs["entity"] == entity].set_index("answer")["probability"]
        np.testing.assert_allclose(single.to_numpy(), batched[list(single.index)].to_numpy(), atol=2e-6)


def test_batches_hold_every_question_once(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    questions = fitting.learned_questions(encoded, "settled")
    pieces = fitting.split(questions, encoded, 400, seed=0)
    assert len(pieces) > 3
    np.testing.assert_array_equal(np.sort(np.concatenate(pieces)), questions)


@pytest.mark.long
def test_mini_batches_end_where_the_full_batch_ends(
    trust: nous.Trust, model: nous.TrustModel, evidence: nous.Evidence
) -> None:
    batched = model.fit(evidence, nous.SVI(batch_claims=700), seed=1)
    assert "batches" in batched.status
    name = "reliability_1|kind"
    full, found = trust.asked()[name], batched.asked()[name]
    assert np.abs(full.mean(0) - found.mean(0)).max() < 1.0 * full.std(0).max()


def mirror(start: str) -> float:
    """Correlation of estimated with true logits where nothing is settled and there are two answers."""
    rng = np.random.default_rng(0)
    right = 1 / (1 + np.exp(-rng.normal(1.2, 0.8, 12)))
    truth = rng.integers(2, size=150)
    said = np.where(rng.random((150, 12)) < right, truth[:, None], 1 - truth[:, None])
    rows = [(f"q{i}", "x", f"s{j:02d}", int(said[i, j])) for i in range(150) for j in range(12)]
    claims = pd.DataFrame(rows, columns=["entity", "attribute", "source", "value"])
    spec = nous.TrustModel(origin=None, errors=nous.Errors(difficulty=False), answers={"x": [0, 1]})
    if start == "liars":
        blueprint_start = svi.initial

        def reversed_start(plan: Any, pack: Any) -> Any:
            state = blueprint_start(plan, pack)
            place = next(s.start for s in pack.slots if s.name == "reliability_Intercept")
            mean = state.mean.copy()
            mean[place] = -4.0
            return state._replace(mean=mean)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(svi, "initial", reversed_start)
            patch.setattr(svi, "VOTE_BLOCKS", 0)
            found = spec.fit(nous.Evidence(claims), nous.SVI(steps=1500), learn_from="all")
    else:
        found = spec.fit(nous.Evidence(claims), nous.SVI(steps=1500), learn_from="all")
    return float(np.corrcoef(found.sources["reliability"], right)[0, 1])


def test_a_fit_from_the_vote_is_not_in_the_mirror_mode() -> None:
    assert mirror("vote") > 0.8


def test_a_fit_from_liars_without_the_vote_is() -> None:
    assert mirror("liars") < -0.5


def test_a_fit_that_was_cut_short_says_so(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    cut = model.fit(evidence, nous.SVI(steps=100, draws=20))
    assert not cut.record["converged"]
    assert "had not settled after 100 steps: raise steps" in cut.status


def test_a_fit_that_diverged_says_so(small: World, evidence: nous.Evidence) -> None:
    wild = nous.SVI(optim=optax.chain(optax.scale(-1e30)), draws=20)
    with pytest.raises(nous.InferenceError, match=r"SVI diverged|the loss is not finite"):
        nous.TrustModel(origin=None, errors=nous.Errors(difficulty=False), answers=small.answers).fit(evidence, wild)


def test_progress_is_told_steps_and_loss(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    told: list[tuple[int, float]] = []
    model.fit(evidence, SHORT, progress=lambda steps, loss: told.append((steps, loss)))
    assert [steps for steps, _ in told] == [100, 200, 300]
    assert all(np.isfinite(loss) for _, loss in told)


def test_echoes_are_said_to_be_identified_only_where_the_data_narrowed_them(trust: nous.Trust) -> None:
    assert "; echoes identified" in trust.status
    lonely = pd.DataFrame({"entity": [f"e{i}" for i in range(40)], "attribute": "x", "value": "v", "source": "s"})
    alone = nous.TrustModel(answers={"x": 4}).fit(nous.Evidence(lonely, settled=lonely.drop(columns="source")))
    assert "echoes not identified" in alone.status


@pytest.mark.long
def test_nuts_and_svi_agree(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    few = np.arange(0, 400, 4)
    part = evidence.subset(few)
    spec = nous.TrustModel(
        "1 + (1|kind)", "1", nous.Origin(lag=False), nous.Errors(popularity=False), answers=model.answers
    )
    chains = spec.fit(part, nous.NUTS(num_warmup=200, num_samples=200, num_chains=2), learn_from="settled")
    guide = spec.fit(part, learn_from="settled")
    assert "NUTS: 2 chains of 200 draws, largest R-hat" in chains.status
    assert chains.mcmc is not None and guide.svi is not None
    for name in ("reliability_Intercept", "reliability_1|kind"):
        one, two = chains.asked(400)[name], guide.asked()[name]
        assert np.abs(one.mean(0) - two.mean(0)).max() < 0.5 * one.std(0).max()


def test_a_mean_field_guide_has_no_covariance() -> None:
    assert nous.SVI(guide="mean_field") == nous.SVI(guide="mean_field", full_size=0)
    assert nous.SVI(guide="mean_field").full_size == 0 < nous.SVI().full_size
    with pytest.raises(nous.InferenceError, match=r"SVI\(guide='normal'\): allowed are 'structured' and 'mean_field'"):
        nous.SVI(guide="normal")
