"""Terms of one's own: what they declare, that every part of the package computes with them, and that they are learned.

That marginal, reference program and brute force agree with them, and that both backends do, is tested with all other
features in test_three_ways.py and test_two_backends.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from numpyro.infer import log_likelihood

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.inference import packed, svi
from nousppl.inference.backend import JAX
from nousppl.models import namespace
from nousppl.models.on_numpy import Numpy
from nousppl.models.terms import SAID, by_draw, declare
from nousppl.padding import ladder
from nousppl.trust import Trust

NEVER = -np.inf
PLAIN = nous.Errors(popularity=False, difficulty=False)
"""For what errors do not matter to: quick to compile."""


def wears_off(xp: Any, sample: Any, columns: Any) -> Any:
    return -sample("slope", dist.HalfNormal(1.0)) * xp.log1p(columns["age"])


def quotes(xp: Any, sample: Any, pairs: Any) -> Any:
    b = sample("b", dist.Normal(0.0, 2.0))
    return xp.where(pairs.later["quotes"] > 0.5, b - 0.1 * pairs.earlier["age"], NEVER)


def table(rng: np.random.Generator, questions: int, claims: int) -> pd.DataFrame:
    """Who says something, and when; what they say is drawn."""
    n = questions * claims
    return pd.DataFrame(
        {
            "entity": np.repeat([f"q{i:04d}" for i in range(questions)], claims),
            "attribute": "x",
            "source": rng.choice(list("abcdefgh"), n),
            "time": np.tile(np.arange(1.0, claims + 1.0), questions),
            "age": rng.exponential(3.0, n),
            "quotes": rng.random(n) < 0.4,
            "channel": rng.choice(["mail", "web"], n),
            "place": rng.integers(0, 3, n),
        }
    )


def some_evidence(seed: int, questions: int, claims: int, **columns: Any) -> nous.Evidence:
    rng = np.random.default_rng(seed)
    frame = table(rng, questions, claims)
    return nous.Evidence(frame.assign(value=rng.choice(["u", "v", "w"], len(frame)), **columns))


# --------------------------------------------------------------------------------------------- by hand, everywhere


def by_place(xp: Any, sample: Any, columns: Any) -> Any:
    level = sample("level", dist.Normal(0.0, 1.0), 3)
    return xp.take(level, xp.whole(columns["place"])) * columns["quotes"]


def recent(xp: Any, sample: Any, pairs: Any) -> Any:
    same = pairs.same("channel")
    return xp.where(same, sample("c", dist.Normal(0.0, 1.0)) - pairs.lag, 0.1 * pairs.later["place"])


EVERYWHERE = nous.TrustModel(
    reliability="1 + (1|source)",
    origin=nous.Origin(strong="same_source", max_listed=2),
    errors=nous.Errors(popularity="1"),
    answers={"x": 5},
    terms={
        "reliability": [wears_off, by_place],
        "freshness": [by_place],
        "popularity": [wears_off],
        "origin": [quotes, recent],
    },
)


@functools.cache
def asked() -> tuple[nous.Evidence, Trust]:
    """A trust that knows no source, and under which sources do not differ: an effect is drawn anew with every draw."""
    trust = EVERYWHERE.default_trust(seed=4, draws=6)
    draws = {n: 0.0 * v if n.endswith("source_sigma") else v for n, v in trust.posterior_draws.items()}
    return some_evidence(5, 12, 4), replace(trust, posterior_draws=draws)


def hand_written(draws: dict[str, Any], claims: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """The numbers of a dense question that own terms enter, claim by claim."""
    place, quoting = claims["place"].to_numpy(), claims["quotes"].to_numpy(float)
    age, time = claims["age"].to_numpy(), claims["time"].to_numpy()
    beta = draws["popularity_Intercept"] - draws["popularity_wears_off_slope"] * np.log(1.0 + age)
    logit = draws["reliability_Intercept"] - draws["reliability_wears_off_slope"] * np.log(1.0 + age)
    logit = logit + draws["reliability_by_place_level"][place] * quoting
    strong = np.zeros((4, 4))
    for j in range(4):
        for k in range(j):
            log_weights = []
            if claims["source"][j] == claims["source"][k]:
                log_weights.append(draws["origin_same_source"])
            if j - k <= 2 and quoting[j]:
                log_weights.append(draws["origin_quotes_b"] - 0.1 * age[k])
            if j - k <= 2:
                near = claims["channel"][j] == claims["channel"][k]
                log_weights.append(draws["origin_recent_c"] - (time[j] - time[k]) if near else 0.1 * place[j])
            fading = 0.5 ** ((time[j] - time[k]) / draws["origin_half_life"])
            strong[j, k] = sum(np.exp(log_weights)) * fading
    fresh = draws["freshness_by_place_level"][place] * quoting
    return {"logit": logit, "log_alpha": fresh, "log_beta": beta, "strong": strong}


def test_questions_are_written_out_as_by_hand() -> None:
    evidence, trust = asked()
    encoded, flat = trust.encoded(evidence), trust.flat
    for index in range(len(evidence.questions)):
        claims = evidence.claims.iloc[4 * index : 4 * index + 4].reset_index(drop=True)
        for d in range(6):
            (one,) = write_out(trust.blueprint, encoded, flat, index, draw=d)
            expected = hand_written({name: v[d] for name, v in flat.items()}, claims)
            np.testing.assert_allclose(one.question.logit[:, 0], expected["logit"], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(np.log(one.question.alpha), expected["log_alpha"], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(np.log(one.question.beta), expected["log_beta"], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(one.question.strong, expected["strong"], rtol=1e-10)


def test_single_and_batched_beliefs_are_the_average_of_brute_force() -> None:
    evidence, trust = asked()
    encoded, batched = trust.encoded(evidence), trust.posteriors(evidence).probabilities
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        parts = []
        for d in range(6):
            (one,) = write_out(trust.blueprint, encoded, trust.flat, index, draw=d)
            by_answer: dict[str, float] = {}
            for answer, p in zip(one.answers, witness.marginal_posterior(one.question, one.values), strict=True):
                key = "other" if str(answer).startswith("other ") else str(answer)
                by_answer[key] = by_answer.get(key, 0.0) + p
            parts.append(by_answer)
        expected = pd.DataFrame(parts).mean()
        single = trust.posterior(evidence.question(entity, attribute)).probabilities
        many = batched[batched["entity"] == entity].set_index("answer")["probability"]
        assert (single - expected).abs().max() < 1e-5 and (many - expected).abs().max() < 1e-5


def test_origins_know_pair_terms() -> None:
    evidence, trust = asked()
    for index, (entity, attribute) in enumerate(evidence.questions.head(4).itertuples(index=False)):
        tables = []
        for d in range(6):
            (one,) = write_out(trust.blueprint, trust.encoded(evidence), trust.flat, index, draw=d)
            tables.append(np.array(witness.origins(one.question, one.values)))
        found = trust.posterior(evidence.question(entity, attribute)).origins.to_numpy()
        np.testing.assert_allclose(found, np.mean(tables, axis=0), atol=1e-5)


@pytest.mark.parametrize("backend", ["numpyro", "pyro"])
def test_the_program_has_the_density_of_the_trust(backend: str) -> None:
    """What is fitted calls the terms in compiled code or on torch; the trust calls them on numpy."""
    evidence, _ = asked()
    program = EVERYWHERE.program(evidence, backend=backend, learn_from="all") if backend == "numpyro" else None
    trust = EVERYWHERE.fit(evidence, nous.SVI(steps=100, draws=5), learn_from="all")
    expected = trust.log_likelihood(evidence).to_numpy()[0]
    if program is not None:
        found = log_likelihood(program, program.samples(trust))["questions"]
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        return
    pyro = pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend")
    program = EVERYWHERE.program(evidence, backend=backend, learn_from="all")
    for d in range(5):
        at = {name: value[d] for name, value in program.samples(trust).items()}
        found = pyro.poutine.trace(pyro.poutine.condition(program, at)).get_trace()
        law = found.nodes["questions"]["fn"].log_prob(found.nodes["questions"]["value"])
        np.testing.assert_allclose(law.detach().numpy(), expected[d], rtol=2e-5, atol=2e-5)


def test_the_table_of_sources_averages_over_what_terms_read() -> None:
    evidence, _ = asked()
    model = nous.TrustModel("1", origin=None, errors=PLAIN, answers={"x": 5}, terms={"reliability": [wears_off]})
    trust = model.fit(evidence, nous.SVI(steps=100, draws=20), learn_from="all")
    claims, flat = evidence.claims, trust.flat
    logit = flat["reliability_Intercept"][:, None] - np.outer(
        flat["reliability_wears_off_slope"], np.log1p(claims["age"])
    )
    right = pd.Series((1.0 / (1.0 + np.exp(-logit))).mean(0)).groupby(claims["source"].to_numpy()).mean()
    np.testing.assert_allclose(trust.sources["reliability"].sort_index(), right.sort_index(), rtol=1e-5)


def awkward(xp: Any, sample: Any, columns: Any) -> Any:
    """What does not broadcast over draws: the place of an element, a vector beside numbers."""
    level, slope = sample("level", dist.Normal(0.0, 1.0), 2), sample("slope", dist.Normal(0.0, 1.0))
    return xp.stack([level[0], level[-1], 0.5])[1] * columns["age"] + level.sum() * slope


def picks(xp: Any, sample: Any, columns: Any) -> Any:
    level, slope = sample("level", dist.Normal(0.0, 1.0), 3), sample("slope", dist.Normal(0.0, 1.0))
    steps = xp.take(xp.array([0.5, 1.5, 2.5]), xp.whole(columns["place"]))
    both = xp.stack([slope, level[1]])
    return xp.take(level, xp.whole(columns["place"])) + steps * slope + xp.take(both, xp.whole(columns["quotes"]))


@pytest.mark.parametrize("function", [wears_off, by_place, awkward, picks])
def test_all_draws_together_are_each_by_itself(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    term = declare("reliability", function).term
    frame = some_evidence(5, 12, 4).claims
    rows = {read: frame[read[1]].to_numpy(float) for read in term.reads}
    rng = np.random.default_rng(0)
    sizes = dict(zip(term.parameters, declare("reliability", function).sizes, strict=True))
    draws = {term.site(n): rng.normal(size=(7, s) if s else 7) for n, s in sizes.items()}
    together = by_draw((term,), rows, draws, len(frame))
    monkeypatch.setattr("nousppl.models.terms.AT_ONCE", 0)
    alone = by_draw((term,), rows, draws, len(frame))
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert np.ptp(alone, axis=0).min() > 0.0 or function is by_place


def test_most_terms_are_called_once_for_all_draws() -> None:
    calls = []

    def counted(xp: Any, sample: Any, columns: Any) -> Any:
        calls.append(type(xp).__name__)
        return picks(xp, sample, columns)

    evidence, _ = asked()
    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [counted]})
    trust = model.default_trust(draws=50)
    calls.clear()
    trust.posteriors(evidence)
    assert calls == ["AllDraws", "Numpy", "Numpy", "Numpy"]


# ------------------------------------------------------------------------------------------- the same as a formula


def density(model: nous.TrustModel, evidence: nous.Evidence, point: Callable[[str, int], Any]) -> Any:
    """Log density and its gradient by slot, in double precision, at a point given by name of slot."""
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    problem = compile_problem(encoded, np.arange(len(evidence.questions)))
    blueprint = fitting.with_text_grid(blueprint, [problem])
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    pack = packed.packing(blueprint.plan, 0)
    vector = np.concatenate([np.ravel(point(slot.name, slot.size)) for slot in pack.slots])
    with jax.enable_x64(True):
        data = {n: jnp.asarray(v) for n, v in (shared | {n: v[0] for n, v in stacked.items()}).items()}
        run = jax.jit(jax.value_and_grad(packed.log_density(JAX, blueprint.plan, layout, pack)))
        value, gradient = run.lower(jnp.asarray(vector), data).compile({"xla_backend_optimization_level": 0})(
            jnp.asarray(vector), data
        )
        return float(value), {
            slot.name: np.asarray(gradient)[slot.start : slot.start + slot.size] for slot in pack.slots
        }


def same_density(one: nous.TrustModel, other: nous.TrustModel, evidence: nous.Evidence, names: dict[str, str]) -> None:
    """Two models whose parameters differ by name have the same density and gradient at the same point."""

    def point(name: str, size: int) -> NDArray[np.float64]:
        seed = sum(map(ord, names.get(name, name)))
        return np.random.default_rng(seed).normal(0.0, 0.5, size)

    (value, gradient), (theirs, their_gradient) = (density(model, evidence, point) for model in (one, other))
    assert value == pytest.approx(theirs, rel=1e-10)
    assert {names.get(name, name) for name in gradient} == set(their_gradient)
    assert any(np.abs(gradient[name]).max() > 1e-3 for name in names)
    for name, mine in gradient.items():
        np.testing.assert_allclose(mine, their_gradient[names.get(name, name)], rtol=1e-8, atol=1e-8)


def test_a_term_that_copies_a_column_of_a_formula_is_that_formula() -> None:
    evidence = some_evidence(6, 20, 4)
    age = evidence.claims["age"].to_numpy()
    mean, sd = age.mean(), age.std()

    def aged(xp: Any, sample: Any, columns: Any) -> Any:
        return sample("coefficient", dist.Normal(0.0, 1.0)) * (columns["age"] - mean) / sd

    own = nous.TrustModel(
        "1 + (1|source)",
        "1",
        errors=PLAIN,
        answers={"x": 5},
        terms={"reliability": [aged], "freshness": [aged]},
    )
    formula = nous.TrustModel("1 + age + (1|source)", "1 + age", errors=PLAIN, answers={"x": 5})
    names = {f"{part}_aged_coefficient": f"{part}_age" for part in ("reliability", "freshness")}
    same_density(own, formula, evidence, names)


@pytest.mark.parametrize("text", [None, "words"])
def test_a_pair_term_that_copies_a_strong_feature_is_that_feature(text: str | None) -> None:
    """As long as every pair is listed."""

    def channels(xp: Any, sample: Any, pairs: Any) -> Any:
        return xp.where(pairs.same("channel"), sample("c", dist.Normal(0.0, 1.0)), NEVER)

    words = np.random.default_rng(1).choice(["it is late", "late it is", "nobody knows"], 100)
    evidence = some_evidence(7, 20, 5, words=words)
    own, strong = (
        nous.TrustModel("1", "1", nous.Origin(strong=strong, text=text), PLAIN, answers={"x": 5}, terms=terms)
        for strong, terms in ((None, {"origin": [channels]}), ("same_channel", None))
    )
    same_density(own, strong, evidence, {"origin_channels_c": "origin_same_channel"})
    few = nous.TrustModel(
        "1",
        "1",
        nous.Origin(strong=None, text=text, max_listed=2),
        PLAIN,
        answers={"x": 5},
        terms={"origin": [channels]},
    )
    with pytest.raises(AssertionError):
        same_density(few, strong, evidence, {"origin_channels_c": "origin_same_channel"})


# ------------------------------------------------------------------------------------------------ a world to learn


WORLD = {
    "origin": nous.Origin(strong=None, lag=False),
    "errors": nous.Errors(popularity=False),
    "answers": {"x": 5},
}
TRUE = {
    "reliability_Intercept": 2.5,
    "reliability_wears_off_slope": 1.5,
    "origin_log_strangers": -4.0,
    "origin_quotes_b": 2.5,
}
TERMS: dict[str, Any] = {"reliability": [wears_off], "origin": [quotes]}


@pytest.fixture(scope="module")
def world() -> tuple[nous.Evidence, pd.DataFrame]:
    """500 questions, 250 of them settled, and the truths of the others."""
    truth, evidence = nous.TrustModel("1", "1", terms=TERMS, **WORLD).simulate(
        table(np.random.default_rng(3), 500, 6), seed=11, parameters=TRUE
    )
    return evidence.with_settled(truth.settled.iloc[:250]), truth.settled.iloc[250:]


@pytest.fixture(scope="module")
def learned(world: tuple[nous.Evidence, pd.DataFrame]) -> nous.Trust:
    return nous.TrustModel("1", "1", terms=TERMS, **WORLD).fit(world[0], seed=0)


def loss(trust: nous.Trust, evidence: nous.Evidence, test: pd.DataFrame) -> float:
    return float(trust.posteriors(evidence).score(test)["log_loss"])


@pytest.mark.slow
def test_the_parameters_of_terms_are_learned(learned: nous.Trust) -> None:
    for name, true in TRUE.items():
        draws = learned.flat[name]
        assert abs(draws.mean() - true) < 3.0 * draws.std(), name
    # The world tells of both terms: far from nothing, and narrower than the prior.
    for name, prior_sd in (("reliability_wears_off_slope", 0.6), ("origin_quotes_b", 2.0)):
        draws = learned.flat[name]
        assert draws.std() < 0.3 * prior_sd and draws.mean() > 4.0 * draws.std(), name


@pytest.mark.long
def test_beliefs_are_better_with_the_terms_than_without_or_with_shuffled_columns(
    learned: nous.Trust, world: tuple[nous.Evidence, pd.DataFrame]
) -> None:
    evidence, test = world
    good = loss(learned, evidence, test)
    without = nous.TrustModel("1", "1", **WORLD).fit(evidence, seed=0)
    assert good < loss(without, evidence, test) - 0.02
    rng = np.random.default_rng(0)
    shuffled = {name: rng.permutation(evidence.claims[name].to_numpy()) for name in ("age", "quotes")}
    noise = nous.Evidence(evidence.claims.assign(**shuffled), settled=evidence.settled)
    blind = nous.TrustModel("1", "1", terms=TERMS, **WORLD).fit(noise, seed=0)
    assert good < loss(blind, noise, test) - 0.02
    assert blind.flat["reliability_wears_off_slope"].mean() < 0.3 * learned.flat["reliability_wears_off_slope"].mean()


# ------------------------------------------------------------------------------------------------- ways of fitting


def on_log(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("slope", dist.Normal(0.0, 1.0)) * xp.log(columns["age"])


def on_log_lag(xp: Any, sample: Any, pairs: Any) -> Any:
    return sample("b", dist.Normal(0.0, 1.0)) * (xp.log(pairs.lag) + xp.log(pairs.later["age"]))


LOGS = nous.TrustModel(
    "1",
    "1",
    nous.Origin(strong=None),
    PLAIN,
    answers={"x": 5},
    terms={"reliability": [on_log], "origin": [on_log_lag]},
)


@pytest.mark.parametrize("backend", ["numpyro", "pyro"])
def test_padding_gives_terms_only_rows_that_there_are(backend: str) -> None:
    """log(0) of a row of padding would leave no gradient."""
    if backend == "pyro":
        pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to fit on")
    evidence = some_evidence(8, 40, 3)
    alone = some_evidence(9, 40, 1).claims.assign(entity=lambda t: "z" + t["entity"])
    both = nous.Evidence(pd.concat([evidence.claims, alone]).drop(columns="claim"))
    fit = LOGS.fit(both, nous.SVI(steps=200, draws=20, batch_claims=60), learn_from="all", backend=backend)
    assert all(np.isfinite(draws).all() for draws in fit.flat.values()) and np.isfinite(fit.sample_stats["loss"]).all()


def test_a_batch_without_pairs_is_padded_with_a_pair_of_another_one() -> None:
    evidence = some_evidence(8, 6, 3)
    blueprint = draw_up(LOGS, evidence)
    encoded = blueprint.encode(evidence)
    problems = [compile_problem(encoded, np.arange(first, first + 2)) for first in (0, 2, 4)]
    lone = some_evidence(9, 3, 1)
    single = compile_problem(blueprint.encode(lone), np.arange(3))
    assert single.layout.listed == 0 and fitting.with_pair(problems[0], problems) is problems[0]
    found = fitting.with_pair(single, [single, *problems]).data["listed_own"]
    np.testing.assert_array_equal(found[:, 0], problems[0].data["listed_own"][:, 0])
    layout, _, stacked = fitting.batched(blueprint, encoded, problems, fitting.Mould(2.0))
    assert layout.listed > problems[0].layout.listed and (stacked["listed_own"] > 0.0).all()
    assert (stacked["reliability own"] > 0.0).all() and stacked["reliability own"].shape[-1] > 6


def test_a_single_question_is_not_padded_for_the_sake_of_its_pairs() -> None:
    model = nous.TrustModel(terms={"origin": [quotes]}, answers={"x": 5})
    blueprint = draw_up(model, None)
    for claims in (3, 16, 33, 60, 128, 300):
        evidence = some_evidence(2, 1, claims)
        layout = compile_problem(blueprint.encode(evidence), np.arange(1)).layout
        assert layout.listed == sum(min(j, 32) for j in range(claims))
        padded = ladder(layout)
        assert padded.listed >= layout.listed and padded.slots < max(2 * claims, 17)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["numpyro", "pyro"])
def test_both_samplers_take_terms(backend: str) -> None:
    if backend == "pyro":
        pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to fit on")
    evidence = some_evidence(8, 15, 3)
    options = nous.NUTS(num_warmup=30, num_samples=20, num_chains=1)
    fit = LOGS.fit(evidence, options, learn_from="all", backend=backend)
    assert fit.posterior_draws["reliability_on_log_slope"].shape == (1, 20)
    assert fit.flat["origin_on_log_lag_b"].std() > 0.1


def test_a_fit_goes_on_with_terms() -> None:
    evidence = some_evidence(8, 15, 3)
    first = LOGS.fit(evidence, nous.SVI(steps=100, draws=10), learn_from="all")
    second = first.update(evidence, nous.SVI(steps=100, draws=10))
    assert list(second.flat) == list(first.flat) and "reliability_on_log_slope" in second.flat


def test_terms_of_one_name_share_no_compiled_code() -> None:
    def make(sign: float) -> Any:
        def tilt(xp: Any, sample: Any, columns: Any) -> Any:
            return sign * sample("slope", dist.HalfNormal(1.0)) + 0.0 * columns["age"]

        return tilt

    evidence = some_evidence(8, 15, 3)
    one, two = make(1.0), make(-1.0)
    models = [
        nous.TrustModel("1", origin=None, errors=PLAIN, answers={"x": 5}, terms={"reliability": [f]})
        for f in (one, two, one)
    ]
    keys = [draw_up(model, evidence).plan.key for model in models]
    assert keys[0] == keys[2] and keys[0] != keys[1] and hash(keys[0]) == hash(keys[2])
    before = svi.block_runner.cache_info().misses
    fits = [model.fit(evidence, nous.SVI(steps=100, draws=10), learn_from="all") for model in models]
    assert svi.block_runner.cache_info().misses == before + 2
    losses = [fit.sample_stats["loss"] for fit in fits]
    np.testing.assert_array_equal(losses[0], losses[2])
    assert (losses[0] != losses[1]).any()


# ------------------------------------------------------------------------------------------------ names and priors


def test_parameters_are_named_and_their_priors_replaced() -> None:
    shown = EVERYWHERE.priors()
    assert str(shown["reliability"]["wears_off_slope"]) == "HalfNormal(1)"
    assert str(shown["reliability"]["by_place_level"]) == "Normal(0, 1)"
    assert {"quotes_b", "recent_c"} < set(shown["origin"])
    other = nous.TrustModel(
        terms={"reliability": [wears_off]}, priors={"reliability": {"wears_off_slope": dist.LogNormal(0.0, 0.3)}}
    )
    assert str(other.priors()["reliability"]["wears_off_slope"]) == "LogNormal(0, 0.3)"
    trust = EVERYWHERE.default_trust(draws=7)
    shapes = {name: draws.shape for name, draws in trust.posterior_draws.items()}
    assert shapes["reliability_wears_off_slope"] == (1, 7) and shapes["freshness_by_place_level"] == (1, 7, 3)
    assert other.terms == {"reliability": (wears_off,)} and nous.TrustModel().terms == {}
    assert "terms={'reliability': ['wears_off']}" in repr(other) and "terms" not in repr(nous.TrustModel())


def test_arviz_sees_the_parameters() -> None:
    posterior = EVERYWHERE.default_trust(draws=7).to_arviz().posterior
    assert posterior["reliability_by_place_level"].dims == ("chain", "draw", "reliability_by_place_level_dim")
    assert posterior["origin_quotes_b"].dims == ("chain", "draw")


def test_numpy_has_what_a_term_may_call() -> None:
    one, two = np.array([0.5, 2.0, 1.0]), np.array([1.0, 1.0, 3.0])
    for name in ("exp", "log", "log1p", "sigmoid"):
        np.testing.assert_allclose(getattr(Numpy, name)(one), getattr(JAX, name)(one), rtol=1e-6)
    for name in ("minimum", "maximum"):
        np.testing.assert_allclose(getattr(Numpy, name)(one, two), getattr(JAX, name)(one, two), rtol=1e-6)
    found, expected = (
        [
            xp.where(xp.array(one) > 1.0, xp.array(two), -1.0),
            xp.stack([xp.array(one), xp.array(two)]),
            xp.take(xp.array(one), xp.whole(xp.array([2.0, 0.0]))),
            xp.positive(xp.whole(xp.array([-1.0, 2.0]))),
            xp.zeros(2),
            xp.arange(3),
        ]
        for xp in (Numpy(), JAX)
    )
    # `whole` and `array` are used along the way.
    assert len(found) + 6 + 2 == len([n for n in vars(namespace.Arithmetic) if not n.startswith("_")])
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs)
    with pytest.raises(IndexError, match="negative"):
        Numpy.take(one, np.array([-1]))


# --------------------------------------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nous.Trust]:
    trust = asked()[1]
    path = tmp_path_factory.mktemp("terms") / "t.nc"
    trust.save(path)
    return path, trust


OWN = (wears_off, by_place, quotes, recent)


def test_a_saved_trust_comes_back_with_its_terms(saved: tuple[Path, nous.Trust]) -> None:
    path, trust = saved
    evidence, _ = asked()
    for given in (OWN, {f"{__name__}:{f.__name__}": f for f in OWN}):
        back = nous.load(path, terms=given)
        assert back.model.terms == trust.model.terms and back.blueprint.plan.key == trust.blueprint.plan.key
        np.testing.assert_array_equal(back.posteriors(evidence).probability, trust.posteriors(evidence).probability)


def test_a_file_wants_the_terms_that_it_was_learned_with(saved: tuple[Path, nous.Trust]) -> None:
    path, _ = saved
    with pytest.raises(nous.ModelError, match=r"own terms.*give nous\.load\(path, terms=\[\.\.\.\]\) the functions"):
        nous.load(path)
    with pytest.raises(nous.ModelError, match=rf"the functions {__name__}:recent \(got .*wears_off"):
        nous.load(path, terms=OWN[:-1])
    with pytest.raises(nous.ModelError, match=r"learned without the term .*:on_log"):
        nous.load(path, terms=[*OWN, on_log])
    changed = {f"{__name__}:{f.__name__}": f for f in OWN} | {f"{__name__}:wears_off": by_place}
    with pytest.raises(nous.ModelError, match=r"wears_off declares other parameters than it did .*level.*slope"):
        nous.load(path, terms=changed)


def test_a_file_without_terms_takes_none(tmp_path: Path) -> None:
    nous.TrustModel().default_trust(draws=3).save(tmp_path / "t.nc")
    assert nous.load(tmp_path / "t.nc").model.terms == {}
    with pytest.raises(nous.ModelError, match="learned without the term .*wears_off; its terms are"):
        nous.load(tmp_path / "t.nc", terms=[wears_off])


# --------------------------------------------------------------------------------------------------------- errors


def twice(xp: Any, sample: Any, columns: Any) -> Any:
    return (sample("a", dist.Normal(0.0, 1.0)) + sample("a", dist.Normal(0.0, 1.0))) * columns["age"]


def number(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", dist.Normal(0.0, 1.0))


def nothing(xp: Any, sample: Any, columns: Any) -> Any:
    return None


def averages(xp: Any, sample: Any, columns: Any) -> Any:
    return columns["age"] - columns["age"].mean()


def fails(xp: Any, sample: Any, columns: Any) -> Any:
    return xp.cosine(columns["age"])


def lists(xp: Any, sample: Any, columns: Any) -> Any:
    return sum(columns[name] for name in columns)


def no_prior(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", 1.0) * columns["age"]


def no_size(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", dist.Normal(0.0, 1.0), 0) * columns["age"]


def no_name(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a b", dist.Normal(0.0, 1.0)) * columns["age"]


def by_number(xp: Any, sample: Any, columns: Any) -> Any:
    return columns[3]


def peeks(xp: Any, sample: Any, columns: Any) -> Any:
    return columns["value"]


def agrees(xp: Any, sample: Any, pairs: Any) -> Any:
    return xp.where(pairs.same("value"), 1.0, pairs.lag)


def log(xp: Any, sample: Any, pairs: Any) -> Any:
    return sample("strangers", dist.Normal(0.0, 1.0)) + pairs.lag


def age(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("x", dist.Normal(0.0, 1.0)) + columns["age"]


DECLARING = [
    ("reliability", twice, r"terms\['reliability'\]: twice: sample\('a', \.\.\.\) is called twice"),
    ("reliability", number, r"must give an array of shape \(claims,\), here \(5,\), but gave shape \(\)"),
    ("reliability", nothing, "must give an array of shape .* but gave None"),
    ("reliability", averages, "what it gives for a row depends on other rows"),
    ("reliability", fails, "fails failed with AttributeError: .*cosine"),
    ("reliability", lists, "lists failed with TypeError: the columns of a term cannot be listed"),
    ("reliability", no_prior, "sample.'a', .*a prior must be a scalar numpyro distribution"),
    ("reliability", no_size, r"sample\('a', size=0\): the size is a whole number from 1, or None"),
    ("reliability", no_name, r"sample\('a b', \.\.\.\): the name of a parameter is a word"),
    ("reliability", by_number, "reads the column 3: the name of a column is text"),
    ("reliability", peeks, "reads the column 'value': only what is known before a claim is read may enter"),
    ("origin", agrees, "reads the column 'value'"),
    ("origin", wears_off, "wears_off failed with TypeError"),
    ("reliability", lambda xp, sample, columns: columns["age"], "is no term; give functions with a name"),
    ("reliability", "wears_off", "is no term; give functions with a name"),
    ("reliability", dict, "is no term; give functions with a name"),
]


@pytest.mark.parametrize(("part", "function", "message"), DECLARING)
def test_a_term_that_does_not_keep_to_the_protocol_is_refused(part: str, function: Any, message: str) -> None:
    with pytest.raises(nous.ModelError, match=message):
        nous.TrustModel(terms={part: [function]})


MODELS: list[tuple[dict[str, Any], str]] = [
    ({"terms": {"errors": [wears_off]}}, r"no part 'errors' takes terms; allowed are \['reliability', 'freshness'"),
    ({"terms": {"reliability": wears_off}}, "must be a list of functions"),
    ({"terms": {"reliability": [wears_off, wears_off]}}, "two terms are called 'wears_off'"),
    ({"terms": {"origin": [quotes]}, "origin": None}, r"no part 'origin' that takes terms in this model; there are"),
    ({"terms": {"freshness": [wears_off]}, "origin": None}, r"no part 'freshness' that takes terms"),
    ({"terms": {"popularity": [wears_off]}}, r'popularity has one with Errors\(popularity="1"\)'),
    ({"terms": {"origin": [log]}}, r"its parameter 'strangers' would be called 'log_strangers', as another one"),
    ({"terms": {"reliability": [age]}, "reliability": "1 + age_x"}, "would be called 'age_x', as another one"),
    (
        {"terms": {"reliability": [wears_off]}, "priors": {"reliability": {"slope": dist.Normal(0, 1)}}},
        "wears_off_slope",
    ),
]


@pytest.mark.parametrize(("given", "message"), MODELS)
def test_terms_where_there_is_no_place_for_them_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(nous.ModelError, match=message):
        nous.TrustModel(**given)


def test_what_a_claim_says_is_no_column() -> None:
    for column in SAID:

        def reads(xp: Any, sample: Any, pairs: Any, column: str = column) -> Any:
            return pairs.earlier[column]

        with pytest.raises(nous.ModelError, match=f"reads the column '{column}'"):
            declare("origin", reads)


COLUMNS: list[tuple[Any, str]] = [
    (lambda t: t.drop(columns="age"), r"wears_off: there is no column 'age'"),
    (
        lambda t: t.assign(age=t["age"].where(t.index > 2)),
        r"column 'age' is missing in 3 of 12 rows.*do without",
    ),
    (lambda t: t.assign(age="old"), r"wears_off: column 'age' must hold numbers; it holds for example 'old'"),
    (lambda t: t.assign(age=-2.0), r"wears_off gives nan for 12 of 12 claims, first where claim age = -2"),
]


@pytest.mark.parametrize(("change", "message"), COLUMNS)
def test_columns_that_a_term_cannot_use_are_refused(change: Any, message: str) -> None:
    evidence = nous.Evidence(change(some_evidence(1, 4, 3).claims))
    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [wears_off]})
    with pytest.raises(nous.ModelError, match=message):
        model.fit(evidence, nous.SVI(steps=100), learn_from="all")
    with pytest.raises(nous.ModelError, match=message):
        model.program(evidence, learn_from="all")
    with pytest.raises(nous.ModelError, match=message):
        model.default_trust(draws=3).posteriors(evidence)


def test_columns_of_pairs_are_checked_too() -> None:
    claims = some_evidence(1, 4, 3).claims
    model = nous.TrustModel("1", "1", answers={"x": 5}, terms={"origin": [recent]})
    with pytest.raises(nous.ModelError, match=r"terms\['origin'\]: recent: column 'channel' is missing in 1 of 12"):
        model.fit(nous.Evidence(claims.assign(channel=claims["channel"].where(claims.index != 4))))
    logs = nous.TrustModel("1", "1", answers={"x": 5}, terms={"origin": [on_log_lag]})
    with pytest.raises(nous.ModelError, match="on_log_lag gives nan for 12 of 12 pairs, first where lag = 1, later"):
        logs.default_trust(draws=2).posteriors(nous.Evidence(claims.assign(age=-1.0)))


def test_a_term_that_branches_on_values_is_refused_where_it_is_compiled() -> None:
    def branches(xp: Any, sample: Any, columns: Any) -> Any:
        slope = sample("slope", dist.Normal(0.0, 1.0))
        return slope * columns["age"] if slope > 0.0 else 0.0 * columns["age"]

    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [branches]})
    with pytest.raises(nous.ModelError, match="branches failed with TracerBoolConversionError"):
        model.fit(some_evidence(1, 4, 3), nous.SVI(steps=100), learn_from="all")


def test_a_term_keeps_to_what_it_declared() -> None:
    calls = []

    def unsteady(xp: Any, sample: Any, columns: Any) -> Any:
        calls.append(1)
        name, column = ("a", "age") if len(calls) <= 2 else ("b", "age")
        if len(calls) == 5:
            name, column = "a", "place"
        return sample(name, dist.Normal(0.0, 1.0)) * columns[column]

    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [unsteady]})
    evidence = some_evidence(1, 4, 3)
    trust = model.default_trust(draws=2)
    for message in ("declares 'b', which", "declares 'b', which", "reads 'claim place', which"):
        with pytest.raises(nous.ModelError, match=f"{message} it did not when the model was made"):
            trust.posteriors(evidence)
