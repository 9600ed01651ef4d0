"""What a trust says of sources it knows and of new ones, and the density that it is fitted by."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest
from numpyro.infer.util import potential_energy
from packed_spreads import by_log
from random_evidence import random_case
from scipy.stats import kstest

import nousppl as nous
from nousppl import fitting
from nousppl.asking import level_draws, noise, parameter_draws
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.datasets import world
from nousppl.inference import packed, svi
from nousppl.inference.backend import JAX
from nousppl.models.program import program
from nousppl.simulate import World
from nousppl.trust import Trust

FORMULA = "1 + (1|kind) + (1|source)"


# -------------------------------------------------------------------------------------------- a fit and its sources


@pytest.fixture(scope="module")
def small() -> World:
    return world(questions=400, sources=40, seed=3)


@pytest.fixture(scope="module")
def trust(small: World) -> Trust:
    origin = nous.Origin(strong="same_source + same_channel")
    model = nous.TrustModel(FORMULA, FORMULA, origin, answers=small.answers)
    return model.fit(nous.Evidence(small.claims, settled=small.learn), seed=1)


def test_intervals_of_the_sources_cover_their_true_values(trust: Trust, small: World) -> None:
    """Nominal 90 %; fewer than 28 of 40 would happen by chance once in ten thousand times, were they independent."""
    lines = small.claims.drop_duplicates("source").set_index("source")
    true = small.parameters
    logit = pd.Series(true.logit(lines.reset_index()), lines.index).reindex(trust.sources.index)
    fresh = pd.Series(true.log_alpha(lines.reset_index()), lines.index).reindex(trust.sources.index)
    table = trust.sources
    right = 1 / (1 + np.exp(-logit))
    inside = (table["reliability_lower"] <= right) & (right <= table["reliability_upper"])
    assert inside.sum() >= 28
    assert np.corrcoef(table["reliability"], right)[0, 1] > 0.88
    assert np.corrcoef(table["freshness"], fresh)[0, 1] > 0.6
    assert table["claims"].sum() == len(small.claims)
    assert 0 < table["settled"].sum() < len(small.claims)


def test_the_origin_weights_are_found(trust: Trust, small: World) -> None:
    draws, true = trust.asked(), small.parameters
    expected = {
        "origin_log_strangers": true.log_w0,
        "origin_same_source": true.log_same_source,
        "origin_same_channel": true.log_same_channel,
        "errors_log_popularity": np.log(true.beta),
    }
    for name, value in expected.items():
        assert abs(draws[name].mean() - value) < max(3 * draws[name].std(), 0.3), name


def test_settled_questions_of_the_fit_are_marked(trust: Trust, small: World) -> None:
    beliefs = trust.posteriors(nous.Evidence(small.claims))
    learned = set(small.learn["entity"])
    assert [entity in learned for entity in beliefs.questions["entity"]] == beliefs.seen.tolist()
    told = trust.posteriors(nous.Evidence(small.claims, settled=small.learn)).probabilities
    truth = small.learn.set_index("entity")["value"]
    pinned = told[told["entity"].isin(truth.index) & (told["answer"] == told["entity"].map(truth))]
    named = small.claims.groupby("entity")["value"].agg(set)
    assert (pinned["probability"] == 1.0).all()
    assert len(pinned) == len(truth) >= sum(truth[e] in named[e] for e in truth.index)


def test_only_what_was_known_is_used(trust: Trust, small: World) -> None:
    half = float(small.claims["time"].median())
    early = small.claims[small.claims["time"] <= half]
    one = trust.posteriors(nous.Evidence(small.claims, settled=small.learn), known_by=half)
    two = trust.posteriors(nous.Evidence(early, settled=small.learn[small.learn["time"] <= half]))
    np.testing.assert_array_equal(one.probability, two.probability)


def test_a_belief_hangs_together(trust: Trust, small: World) -> None:
    evidence = nous.Evidence(small.claims)
    for entity in small.test["entity"].head(5):
        belief = trust.posterior(evidence.question(entity, "status"))
        np.testing.assert_allclose(belief.path[-1], belief.samples.mean(0), atol=1e-12)
        np.testing.assert_allclose(belief.path.sum(1), 1.0, atol=1e-12)
        odds = np.log(belief.path) - np.log1p(-belief.path)
        np.testing.assert_allclose(belief.log_odds, odds, atol=1e-6)
        assert belief.points["points"].sum() == pytest.approx(belief.log_odds[-1, belief.top], abs=1e-9)
        table = belief.origins.to_numpy()
        np.testing.assert_allclose(table.sum(1), 1.0, atol=1e-6)
        np.testing.assert_allclose(table[:, 0], belief.fresh, atol=1e-6)


# ------------------------------------------------------------------------------------------------------ new sources


def test_a_new_level_has_the_law_of_its_group() -> None:
    sigma = np.full(4000, 0.5)
    draws = {"g": np.zeros((4000, 2)), "g_sigma": sigma}
    effects = level_draws("g", np.array([1, 2, 3]), ("new", "newer"), draws)
    assert (effects[:, 0] == 0).all()
    for column in (1, 2):
        assert kstest(effects[:, column] / sigma, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(effects[:, 1], effects[:, 2])[0, 1]) < 0.06
    np.testing.assert_array_equal(effects[:, 2], level_draws("g", np.array([2]), ("newer",), draws)[:, 0])


def test_noise_depends_on_name_label_and_draw_alone() -> None:
    one, two = noise("g", np.array(["a", "b"], object), 50), noise("g", np.array(["b"], object), 80)
    np.testing.assert_array_equal(one[:, 1], two[:50, 0])
    assert (noise("h", np.array(["b"], object), 50)[:, 0] != one[:, 1]).all()


def test_a_new_source_is_one_source_in_all_its_questions(trust: Trust) -> None:
    rows = [(f"q{i}", "status", "v1", source) for i in range(6) for source in ("newcomer", "s01", "another")]
    claims = pd.DataFrame(rows, columns=["entity", "attribute", "value", "source"])
    evidence = nous.Evidence(claims.assign(kind="person", channel="channel 01", time=1.0))
    encoded = trust.encoded(evidence)
    draws = parameter_draws(trust.blueprint, encoded, trust.asked(), compile_problem(encoded, np.arange(6)))
    source = encoded.coded.sources.to_numpy()[encoded.coded.claim_source]
    for name in ("logit", "log_concentration"):
        for who in ("newcomer", "another", "s01"):
            mine = draws[name][:, source == who]
            assert (mine == mine[:, :1]).all() and mine.std() > 0.05
        assert (draws[name][:, source == "newcomer"][:, 0] != draws[name][:, source == "another"][:, 0]).all()
    spread = {who: draws["logit"][:, source == who][:, 0].std() for who in ("newcomer", "s01")}
    assert spread["newcomer"] > spread["s01"]


# ---------------------------------------------------------------------------------------------------- default trust


def numeric(prior: Any = None, **columns: Any) -> tuple[nous.TrustModel, nous.Evidence]:
    priors = {"reliability": {"rel": dist.Normal(1.0, 1e-6) if prior is None else prior}}
    claims = pd.DataFrame({"entity": "e", "attribute": "x", "value": ["a", "b"], "source": ["s", "t"]} | columns)
    return nous.TrustModel("0 + rel", origin=None, answers={"x": ["a", "b"]}, priors=priors), nous.Evidence(claims)


def test_the_default_trust_takes_numeric_columns() -> None:
    model, evidence = numeric(rel=[2.0, 1.0])
    errors = nous.Errors(difficulty=False)
    plain = nous.TrustModel("0 + rel", origin=None, errors=errors, answers=model.answers, priors=model.given_priors)
    belief = plain.default_trust().posterior(evidence.question("e", "x"))
    assert belief.log_odds[-1, 0] == pytest.approx(1.0, abs=1e-4)


def test_the_default_trust_takes_slopes() -> None:
    _, evidence = numeric(rel=[2.0, -1.0])
    model = nous.TrustModel("1 + (0 + rel|source)", origin=None, answers={"x": ["a", "b"]})
    assert np.isfinite(model.default_trust().posterior(evidence.question("e", "x")).log_odds).all()


def test_the_default_trust_knows_no_categories() -> None:
    model, evidence = numeric(rel=["much", "little"])
    with pytest.raises(nous.ModelError, match="column 'rel' must hold numbers"):
        model.default_trust().posterior(evidence.question("e", "x"))


def test_the_default_trust_is_drawn_from_the_priors_by_seed() -> None:
    model = nous.TrustModel()
    one, two, other = model.default_trust(), model.default_trust(), model.default_trust(seed=1)
    for name, draws in one.posterior_draws.items():
        np.testing.assert_array_equal(draws, two.posterior_draws[name])
        assert (draws != other.posterior_draws[name]).all()
    assert one.default and len(one.sources) == 0
    assert "draws of the priors, nothing was learned" in one.status
    with pytest.raises(nous.QuestionError, match="draws=0: at least 1 is needed"):
        one.asked(0)


# --------------------------------------------------------------------------------------------------- packed density


CASES: dict[str, tuple[dict[str, bool], dict[str, Any]]] = {
    "origins": ({"origin": True, "text": True, "lag": True, "difficulty": False}, {}),
    "bias": ({"origin": False, "closed": True, "bias": True, "difficulty": True}, {}),
    "other families": (
        {"origin": True, "difficulty": True},
        {"origin": {"strangers": dist.StudentT(4.0, -4.0, 1.0)}, "reliability": {"source": dist.Gamma(2.0, 3.0)}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_packed_density_is_that_of_the_program(name: str) -> None:
    """At random points, in double precision, centred and non-centred levels."""
    features, priors = CASES[name]
    evidence, given = random_case(4, questions=40, **features)
    model = nous.TrustModel(
        origin=given.origin, errors=given.errors, base_rates=given.base_rates, answers=given.answers, priors=priors
    )
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    problem = fitting.compile_problem(encoded, np.arange(40), 0)
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    pack = packed.packing(blueprint.plan, 20)
    with jax.enable_x64(True):
        data = {n: jnp.asarray(v) for n, v in shared.items()} | {n: jnp.asarray(v[0]) for n, v in stacked.items()}
        plain = partial(program, JAX, blueprint.plan, layout)
        density = jax.jit(packed.log_density(JAX, blueprint.plan, layout, pack))
        energy = jax.jit(lambda vector, data: potential_energy(plain, (data,), {}, pack.unpack(vector)))
        found, expected = [], []
        for seed in range(5):
            vector = jnp.asarray(np.random.default_rng(seed).normal(0, 0.7, pack.size))
            found.append(float(density(vector, data)))
            logs, change = by_log(blueprint.plan, pack, np.asarray(vector))
            expected.append(change - float(energy(jnp.asarray(logs), data)))
        np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert any(np.asarray(shared[n]).any() for n in shared if n.startswith("centred"))


# -------------------------------------------------------------------------------------------------- a fit that fails


def plain_fit(small: World, options: nous.SVI) -> Trust:
    model = nous.TrustModel("1", origin=None, errors=nous.Errors(difficulty=False), answers=small.answers)
    return model.fit(nous.Evidence(small.claims, settled=small.learn), options)


def test_a_huge_step_size_is_told(small: World) -> None:
    with pytest.raises(
        nous.InferenceError, match=r"SVI diverged after [1-9]\d* steps: lower learning_rate \(now 10000\)"
    ):
        plain_fit(small, nous.SVI(learning_rate=1e4))


def test_a_density_that_is_not_finite_at_the_start_is_told(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    start = svi.initial
    monkeypatch.setattr(svi, "initial", lambda *args: start(*args)._replace(mean=jnp.full(2, jnp.nan)))
    with pytest.raises(nous.InferenceError, match="SVI: the loss is not finite at the start values; check priors"):
        plain_fit(small, nous.SVI())


def test_a_fit_that_diverges_later_keeps_what_it_had(small: World) -> None:
    late = optax.scale_by_schedule(lambda step: jnp.where(step < 150, 0.01, 1e30))
    trust = plain_fit(small, nous.SVI(optim=optax.chain(optax.scale_by_adam(), late), draws=20))
    assert not trust.record["converged"]
    assert trust.status.startswith("SVI diverged after 200 steps: lower learning_rate")
    assert all(np.isfinite(draws).all() for draws in trust.posterior_draws.values())
    assert np.isfinite(trust.posteriors(nous.Evidence(small.claims)).probability).all()
