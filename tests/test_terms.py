"""Terms of one's own: every part of the package computes with them. How they are learned is tested in
test_terms_learned.py, what is refused in test_terms_refused.py.

That marginal, reference program and brute force agree with them, and that both backends do, is tested with all other
features in test_three_ways.py and test_two_backends.py.
"""

from __future__ import annotations

from collections.abc import Callable
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
from own_terms import (
    EVERYWHERE,
    NEVER,
    PLAIN,
    asked,
    by_place,
    on_log,
    quotes,
    recent,
    some_evidence,
    wears_off,
)

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.inference import packed
from nousppl.inference.backend import JAX
from nousppl.models import namespace
from nousppl.models.on_numpy import Numpy
from nousppl.models.terms import by_draw, declare


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
    for given in (OWN, {f"{f.__module__}:{f.__name__}": f for f in OWN}):
        back = nous.load(path, terms=given)
        assert back.model.terms == trust.model.terms and back.blueprint.plan.key == trust.blueprint.plan.key
        np.testing.assert_array_equal(back.posteriors(evidence).probability, trust.posteriors(evidence).probability)


def test_a_file_wants_the_terms_that_it_was_learned_with(saved: tuple[Path, nous.Trust]) -> None:
    path, _ = saved
    with pytest.raises(nous.ModelError, match=r"own terms.*give nous\.load\(path, terms=\[\.\.\.\]\) the functions"):
        nous.load(path)
    with pytest.raises(nous.ModelError, match=rf"the functions {recent.__module__}:recent \(got .*wears_off"):
        nous.load(path, terms=OWN[:-1])
    with pytest.raises(nous.ModelError, match=r"learned without the term .*:on_log"):
        nous.load(path, terms=[*OWN, on_log])
    changed = {f"{f.__module__}:{f.__name__}": f for f in OWN} | {f"{wears_off.__module__}:wears_off": by_place}
    with pytest.raises(nous.ModelError, match=r"wears_off declares other parameters than it did .*level.*slope"):
        nous.load(path, terms=changed)


def test_a_file_without_terms_takes_none(tmp_path: Path) -> None:
    nous.TrustModel().default_trust(draws=3).save(tmp_path / "t.nc")
    assert nous.load(tmp_path / "t.nc").model.terms == {}
    with pytest.raises(nous.ModelError, match="learned without the term .*wears_off; its terms are"):
        nous.load(tmp_path / "t.nc", terms=[wears_off])
