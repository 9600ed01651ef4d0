"""The program that is fitted, run by numpyro itself: its law, its draws, and what arviz makes of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.handlers import condition, seed, trace
from numpyro.infer import Predictive, log_likelihood

import nousppl as nous
from nousppl.arviz_bridge import first_line
from nousppl.programs import Program
from nousppl.simulate import World

FORMULA = "1 + (1|source)"


def site(program: Program, values: dict[str, Any], observed: bool = True) -> dict[str, Any]:
    """The site of the questions at these parameters."""
    found: dict[str, Any] = trace(seed(condition(program, values), 0)).get_trace(observed)["questions"]
    return found


# ----------------------------------------------------------------------------- the law sums to one and is sampled


def all_sequences(settled: bool, rejected: bool = False, **errors: Any) -> tuple[nous.TrustModel, nous.Evidence]:
    """Every way in which two sources can make three claims of three answers (and every truth), a question each."""
    said = list(product("abc", repeat=3))
    cases = [(z, values) for z in (("a", "b", "c") if settled else (None,)) for values in said]
    rows = [
        (f"q{i:03d}", value, source, time)
        for i, (_, values) in enumerate(cases)
        for value, source, time in zip(values, "sts", (0.0, 2.0, 9.0), strict=True)
    ]
    claims = pd.DataFrame(rows, columns=["entity", "value", "source", "time"]).assign(attribute="x")
    facts = [(f"q{i:03d}", z, "true") for i, (z, _) in enumerate(cases) if z is not None]
    facts += [(f"q{i:03d}", "c", "false") for i in range(len(cases))] if rejected else []
    table = pd.DataFrame(facts, columns=["entity", "value", "verdict"]).assign(attribute="x") if facts else None
    model = nous.TrustModel(FORMULA, FORMULA, errors=nous.Errors(**errors), answers={"x": ["a", "b", "c"]})
    return model, nous.Evidence(claims, settled=table)


LAWS: dict[str, dict[str, Any]] = {
    "truths settled": {"settled": True},
    "mixture, bias by source": {"settled": True, "difficulty": "mixture", "bias": "source"},
    "trap": {"settled": True, "trap": True},
    "an answer rejected": {"settled": False, "rejected": True, "difficulty": True},
}
DRAWS = 1000


def misfit(law: str, shift: float = 0.0) -> float:
    """By how many of its standard deviations Pearson's statistic exceeds its mean: draws against the densities of all
    values that one question can have, which sum to one; ``shift`` moves the reliability that is drawn with."""
    model, evidence = all_sequences(**LAWS[law])
    program = model.program(evidence, learn_from="all")
    found = site(program, {})["fn"].law
    chance = np.exp(np.asarray(found.log_prob(program.backend), np.float64))
    assert chance.sum() == pytest.approx(2 / 3 if "rejected" in law else 1.0, abs=1e-5)
    values = {name: np.asarray(value) for name, value in found.values.items()}
    values["reliability_Intercept"] = values["reliability_Intercept"] + shift
    drawn = np.concatenate([program.simulator(values, i) for i in range(DRAWS // len(chance) + 1)]).tolist()
    place = {tuple(value): i for i, value in enumerate(program.simulator.said.tolist())}
    count = np.bincount([place[tuple(value)] for value in drawn], minlength=len(chance))
    expected = chance / chance.sum() * len(drawn)
    few = expected < 5.0  # these are taken together
    seen, should = np.r_[count[~few], count[few].sum()], np.r_[expected[~few], expected[few].sum() + 1e-9]
    freedom = len(seen) - 1
    assert freedom >= 6
    return float((((seen - should) ** 2 / should).sum() - freedom) / np.sqrt(2.0 * freedom))


@pytest.mark.parametrize("law", LAWS)
def test_draws_follow_the_law(law: str) -> None:
    assert misfit(law) < 4.0


def test_draws_of_another_law_are_noticed() -> None:
    assert misfit("truths settled", shift=1.0) > 10.0


# ------------------------------------------------------------------------------------- numpyro's tools and arviz's


@pytest.fixture(scope="module")
def model(small: World) -> nous.TrustModel:
    return nous.TrustModel(FORMULA, "1", nous.Origin(lag=False), nous.Errors(popularity=False), answers=small.answers)


@pytest.fixture(scope="module")
def part(evidence: nous.Evidence) -> nous.Evidence:
    return evidence.subset(np.arange(40))


@pytest.fixture(scope="module")
def trust(model: nous.TrustModel, part: nous.Evidence) -> nous.Trust:
    return model.fit(part, nous.SVI(steps=500, draws=200))


@pytest.fixture(scope="module")
def program(model: nous.TrustModel, part: nous.Evidence) -> Program:
    return model.program(part)


# Of 40 questions a few decide much, and arviz warns of them.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_log_likelihood_is_by_question_and_loo_takes_it(
    program: Program, trust: nous.Trust, part: nous.Evidence
) -> None:
    samples = program.samples(trust)
    found = log_likelihood(program, samples)["questions"]
    expected = trust.log_likelihood(part).values[0]
    assert found.shape == (200, 40)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    groups = {
        "posterior": {n: np.asarray(v)[None] for n, v in samples.items()},
        "log_likelihood": {"questions": np.asarray(found)[None]},
    }
    old = first_line()
    loo = az.loo(az.from_dict(**groups) if old else az.from_dict(groups), pointwise=True)
    assert (loo.loo_i if old else loo.elpd_i).shape == (40,)
    assert found.mean(0).sum() - 20.0 < (loo.elpd_loo if old else loo.elpd) < found.mean(0).sum() + 5.0


def test_predictions_are_claims_as_often_right_as_the_real_ones(program: Program, trust: nous.Trust) -> None:
    predict = Predictive(program, {name: value[:30] for name, value in program.samples(trust).items()})
    said = np.asarray(predict(jax.random.key(0), observed=False)["questions"])
    real = program.simulator.said
    assert said.shape == (30, *real.shape)
    np.testing.assert_array_equal(said[0] >= 0, real >= 0)

    def right(values: Any) -> float:
        truth, claims = values[..., :1], values[..., 1:]
        return float((claims == truth).sum() / (claims >= 0).sum())

    assert right(said) == pytest.approx(right(real), abs=0.05)
    again = np.asarray(predict(jax.random.key(0), observed=False)["questions"])
    np.testing.assert_array_equal(said, again)
    assert (said != np.asarray(predict(jax.random.key(1), observed=False)["questions"])).any()


def test_observed_values_stay_in_predictions(program: Program, trust: nous.Trust) -> None:
    said = Predictive(program, program.samples(trust))(jax.random.key(0))["questions"]
    np.testing.assert_array_equal(said[3], program.simulator.said)


def test_prior_predictions_need_no_trust(program: Program) -> None:
    found = Predictive(program, num_samples=2)(jax.random.key(0), observed=False)
    assert found["questions"].shape == (2, *program.simulator.said.shape)
    assert found["reliability_Intercept"].shape == (2,)


def test_the_value_is_what_the_claims_say(program: Program, part: nous.Evidence) -> None:
    said, answers = program.simulator.said, program.encoded.cells
    settled = part.settled.set_index(["entity", "attribute"])["value"]
    for row, index in enumerate(program.questions):
        entity, attribute = part.questions.iloc[index][["entity", "attribute"]]
        names = answers.value[answers.offset[index] : answers.offset[index + 1]]
        assert names[said[row, 0]] == settled[entity, attribute]
        values = part.question(entity, attribute).claims["value"].to_list()
        assert [names[code] for code in said[row, 1:] if code >= 0] == values


def test_other_values_have_no_density(program: Program, trust: nous.Trust) -> None:
    law = site(program, {name: value[0] for name, value in program.samples(trust).items()})["fn"]
    other = jnp.asarray(program.simulator.said).at[5, 1].add(1)
    with pytest.raises(nous.InferenceError, match="for other claims make an Evidence of them"):
        law.log_prob(other)
    same = jnp.asarray(np.array(program.simulator.said))
    np.testing.assert_array_equal(law.log_prob(same), law.log_prob(law.said))
    compiled = np.asarray(jax.jit(law.log_prob)(other))
    assert np.isnan(compiled).tolist() == [row == 5 for row in range(40)]


def test_the_law_draws_as_many_as_asked_for(program: Program, trust: nous.Trust) -> None:
    law = site(program, {name: value[0] for name, value in program.samples(trust).items()})["fn"]
    drawn = np.asarray(law.sample(jax.random.key(3), (2, 3)))
    assert drawn.shape == (2, 3, *program.simulator.said.shape)
    assert len({one.tobytes() for one in drawn.reshape(6, -1)}) == 6
    with pytest.raises(nous.InferenceError, match="made for a fit and draws no claims; use TrustModel.program"):
        law.law._replace(simulate=None).draw({}, 0)


def test_correlated_errors_cannot_be_drawn(part: nous.Evidence, small: World) -> None:
    spec = nous.TrustModel(origin=None, errors=nous.Errors(correlation=True), answers=small.answers)
    program = spec.program(part)
    with pytest.raises(nous.ModelError, match="a power posterior, which no claims can be drawn from"):
        program.simulator({name: np.asarray(v) for name, v in site(program, {})["fn"].law.values.items()}, 0)


def test_a_trust_in_other_sources_is_refused(model: nous.TrustModel, program: Program) -> None:
    with pytest.raises(nous.ModelError, match="the trust has other parameters than this program"):
        program.samples(model.default_trust())


def test_a_program_says_what_it_is(program: Program) -> None:
    assert repr(program) == "Program(40 questions, 5 parameters, on jax)"
