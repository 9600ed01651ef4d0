"""Truths that change: filter, smoother and relaxation against brute force, with negative controls."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from random_evidence import features_of, random_case

import nousppl as nous
from nousppl.asking import ready
from nousppl.believe_all import asked_at
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import Written, write_out
from nousppl.inference import enumeration, exact
from nousppl.inference.backend import JAX
from nousppl.model import prior_draws
from nousppl.models import change, one_of, origin, program
from nousppl.padding import Mould
from nousppl.trust import Trust

SINGLE, DOUBLE = 1e-5, 1e-10
MODELS, EACH = (504, 516, 519, 607, 612, 618), 8
"""Chosen so that each feature is on in one at least and off in one."""
TIMES = (None, 4.5, 1.0, 60.0)
"""Asked about: the latest time, between the claims, at the first of them, and after all."""


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty, which both sides sum over alike; and sources that met in few questions are
    pairs."""
    monkeypatch.setattr("nousppl.affinity.MET", 3)
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 5)


def case(seed: int, **given: Any) -> tuple[nous.Evidence, Trust]:
    evidence, model = random_case(seed, change=True, **given)
    blueprint = draw_up(model, evidence)
    record = model.default_trust(draws=1).record
    return evidence, Trust(model, blueprint, prior_draws(blueprint, seed, 1), {}, pd.DataFrame(), record)


def written(trust: Trust, evidence: nous.Evidence, index: int, at: float | None) -> list[Written]:
    encoded, seed = trust.encoded(evidence), trust.model.order_seed
    problem = compile_problem(encoded, np.array([index]), seed, asked_at(evidence, at))
    return write_out(trust.blueprint, encoded, trust.asked(), index, seed=seed, problem=problem)


def grid_of(trust: Trust, orders: list[Written]) -> witness.Grid:
    hard = orders[0].question.hard
    if hard is not None:
        return ((0.0, 1.0 - hard), (-1.0, hard))
    return witness.equispaced(5) if trust.model.errors.has_difficulty(trust.model.origin) else witness.NO_DIFFICULTY


def expected(trust: Trust, orders: list[Written], without: tuple[str, ...] = ()) -> pd.Series:
    """Posterior by answer by brute force, the unnamed answers together."""
    grid = grid_of(trust, orders)
    joint = sum(np.exp(witness.log_marginal_at(one.question, one.values, grid, without)) for one in orders)
    names = ["other" if str(answer).startswith("other ") else answer for answer in orders[0].answers]
    return pd.Series(joint / joint.sum(), names).groupby(level=0).sum()


def differences(evidence: nous.Evidence, trust: Trust, at: float | None) -> float:
    """Largest difference of a probability, of the batch and of single questions."""
    batch = trust.posteriors(evidence, at=at).probabilities.set_index(["entity", "answer"])["probability"]
    out = []
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        exact_one = expected(trust, written(trust, evidence, index, at))
        single = trust.posterior(evidence.question(entity, attribute), at=at).probabilities
        out += [(batch[entity] - exact_one).abs().max(), (single - exact_one).abs().max()]
    return float(np.max(out))


# ------------------------------------------------------------------------------------------- against brute force


@pytest.mark.parametrize(("group", "at"), [(group, TIMES[i % 4]) for i, group in enumerate(MODELS)])
def test_beliefs_are_those_of_brute_force(group: int, at: float | None) -> None:
    assert differences(*case(group, questions=EACH, claims=4), at) < SINGLE


def test_the_problems_have_every_feature_on_and_off() -> None:
    flags = pd.DataFrame([features_of(*random_case(g, change=True, questions=EACH, claims=4)) for g in MODELS])
    assert set(flags.columns[~flags.any()]) == {
        "unknown order",
        "trap",
        "correlation",
        "undated",
        "denials",
        "denied since",
        "lasting",
    }
    assert set(flags.columns[flags.all()]) == {"change", "truths at times"}


@pytest.mark.parametrize(("seed", "at"), [(521, 4.5), pytest.param(522, None, marks=pytest.mark.long)])
def test_in_double_precision(seed: int, at: float | None) -> None:
    with jax.enable_x64(True):
        assert differences(*case(seed, questions=6, claims=4, origin=True, popularity=True), at) < DOUBLE


@pytest.mark.parametrize("at", [4.5, 60.0])
def test_origins_and_witnesses_are_those_of_brute_force(at: float) -> None:
    evidence, trust = case(530, questions=6, claims=3, origin=True, lineage=False, notes=False, difficulty=False)
    beliefs = trust.posteriors(evidence, at=at)
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        table, total = np.zeros((3, 4)), 0.0
        for one in written(trust, evidence, index, at):
            place = one.claims - min(one.claims)
            total += np.exp(witness.log_marginal_at(one.question, one.values)).sum()
            for j in range(3):
                for k in range(-1, j):
                    joint = np.exp(witness.log_marginal_at(one.question, one.values, origin=(j, k))).sum()
                    table[place[j], 0 if k < 0 else 1 + place[k]] += joint
        belief = trust.posterior(evidence.question(entity, attribute), at=at)
        np.testing.assert_allclose(belief.origins.to_numpy(), table / total, rtol=0, atol=SINGLE)
        mine = beliefs.cell_question == index
        support = dict(zip(beliefs.cell_answer[mine], beliefs.support[mine], strict=True))
        assert belief.effective_claims == pytest.approx(support[belief.answer], abs=10 * SINGLE)


def test_padding_changes_nothing() -> None:
    evidence, trust = case(502, questions=EACH, claims=4)
    apart = trust._posteriors(evidence, mould=Mould(room=2.0), at=4.5).probability
    np.testing.assert_allclose(apart, trust.posteriors(evidence, at=4.5).probability, rtol=0, atol=1e-6)


def test_the_order_of_arrival_does_not_matter() -> None:
    evidence, trust = case(503, questions=EACH, claims=5)
    rows = evidence.claims.sample(frac=1.0, random_state=0), evidence.settled.sample(frac=1.0, random_state=1)
    shuffled = nous.Evidence(*rows)
    for at in TIMES[:2]:
        one, two = trust.posteriors(evidence, at=at), trust.posteriors(shuffled, at=at)
        np.testing.assert_array_equal(one.probability, two.probability)


def test_the_readable_program_is_brute_force() -> None:
    on = {"origin": True, "popularity": True, "rejected": True}
    evidence, trust = case(612, questions=1, claims=2, named=3, difficulty=False, lineage=False, **on)
    one = written(trust, evidence, 0, 4.5)[0]
    exact_one = np.array(witness.log_marginal_at(one.question, one.values))
    total = np.logaddexp.reduce(exact_one)
    with jax.enable_x64(True):
        ours = enumeration.posterior(one.question, one.values)
        density = enumeration.log_evidence(one.question, one.values)
    np.testing.assert_allclose(ours, np.exp(exact_one - total), rtol=0, atol=DOUBLE)
    assert float(density) == pytest.approx(total, abs=DOUBLE)


@pytest.mark.skipif(find_spec("pyro") is None, reason="pyro is not installed: there is no second backend")
@pytest.mark.parametrize("at", [4.5, 60.0])
def test_the_readable_program_on_pyro_is_brute_force(at: float) -> None:
    import torch

    from nousppl.inference import torch_enumeration

    on = {"origin": True, "popularity": True, "rejected": True}
    evidence, trust = case(612, questions=3, claims=3, named=3, difficulty=False, lineage=False, **on)
    for index in range(3):
        one = written(trust, evidence, index, at)[0]
        exact_one = np.array(witness.log_marginal_at(one.question, one.values))
        theirs = torch_enumeration.posterior(one.question, one.values, dtype=torch.float64)
        np.testing.assert_allclose(theirs, np.exp(exact_one - np.logaddexp.reduce(exact_one)), rtol=0, atol=DOUBLE)


def test_drawn_paths_follow_the_rate() -> None:
    """The simulator's truths stay from one claim to the next as often as the law says, and start at the base rates."""
    rate, gap, K = 0.1, 5.0, 4
    answers = list("abcd")
    design = pd.DataFrame({"entity": np.repeat(np.arange(4000), 2), "attribute": "x", "source": "s"})
    design["time"] = np.tile([0.0, gap], 4000)
    model = nous.TrustModel(change="1", origin=None, errors=nous.Errors(difficulty=False), answers={"x": answers})
    truth, _ = model.simulate(design, 0, {"change_Intercept": np.log(rate)})
    first, second = truth.truths.to_numpy().reshape(-1, 2).T
    stay = np.exp(-rate * gap) + (1.0 - np.exp(-rate * gap)) / K
    assert abs((first == second).mean() - stay) < 4.0 * np.sqrt(stay * (1.0 - stay) / 4000)
    counts = pd.Series(second).value_counts().to_numpy()
    assert len(counts) == K and np.square(counts - 1000.0).sum() / 1000.0 < 25.0
    assert (truth.settled["value"].to_numpy() == second).all() and (truth.settled["time"] == gap).all()


def test_a_time_for_each_question() -> None:
    evidence, trust = case(505, questions=EACH, claims=4)
    at = np.linspace(0.0, 60.0, EACH)
    many = trust.posteriors(evidence, at=at)
    for index in range(EACH):
        mine = many.probability[many.cell_question == index]
        one = trust.posterior(evidence.question(f"e{index:02d}", "x"), at=at[index])
        np.testing.assert_allclose(mine, one.probabilities, rtol=0, atol=SINGLE)


def test_the_gradient_is_finite_where_a_problem_is_padded() -> None:
    """Lanes without a run would make the gradient of the rate not a number, and a fit in folds diverge."""
    evidence, model = random_case(4, questions=6, claims=4, change=True, soft=False)
    trust = model.default_trust(draws=1)
    encoded, features = trust.encoded(evidence), trust.blueprint.plan.features
    problem = compile_problem(encoded, np.arange(len(evidence.questions)))
    layout, size = Mould().hold(problem.layout, len(problem.claims))
    data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), size)
    data = {name: jnp.asarray(array) for name, array in data.items()}

    def total(log_rate: Any) -> Any:
        draw = {name: jnp.asarray(value[0]) for name, value in draws.items()} | {"log_rate": log_rate}
        logs = program.question_logs(JAX, layout, data, exact.theta_of(features, draw, data.get("text_grid")))
        return jnp.where(data["question_weight"] > 0.0, logs, 0.0).sum()

    assert np.isfinite(jax.jit(jax.grad(total))(jnp.asarray(draws["log_rate"][0]))).all()


def test_a_program_draws_no_paths() -> None:
    evidence, trust = case(501, questions=2, claims=2)
    program = trust.model.program(evidence, learn_from="all")
    with pytest.raises(nous.ModelError, match=r"TrustModel.simulate draws them with the path"):
        program.simulator({}, 0)


# ---------------------------------------------------------------------------------------------- negative controls


def same_popularity(xp: Any, layout: Any, data: Any, originality: Any, *rest: Any) -> Any:
    return POPULARITY(xp, layout, data, originality)


def no_change(xp: Any, rates: Any, run: Any, start: Any, gain: Any, passing: Any) -> Any:
    return FILTERED(xp, rates, run, start, gain, 0.0 * passing)


def one_side(xp: Any, layout: Any, data: Any, *rest: Any) -> Any:
    return CARRY(xp, layout, {n: 0 * x if n.endswith("backward") else x for n, x in data.items()}, *rest)


def nothing_settled(xp: Any, layout: Any, *rest: Any) -> Any:
    return CARRY(xp, layout._replace(pinned=False), *rest)


POPULARITY, FILTERED, CARRY = origin.popularity, change.filtered, change.carry
BROKEN = {
    "the truth stays": (change, "filtered", no_change),
    "popularity does not fade": (one_of, "popularity", same_popularity),
    "popularity fades by the last claim": (one_of, "by_question", lambda xp, data, log_rate, slot: 0.0),
    "what was said later is left out": (one_of, "carry", one_side),
    "nothing is settled": (one_of, "carry", nothing_settled),
}


@functools.cache
def control_case() -> tuple[nous.Evidence, Trust, NDArray[np.float64]]:
    """Questions with most features on, asked about a time among their claims, and their posteriors by brute force."""
    on = dict.fromkeys(("origin", "lag", "popularity", "rejected"), True)
    off = dict.fromkeys(("closed", "difficulty", "bias", "shared by claim", "affinity"), False)
    evidence, trust = case(4, questions=12, claims=5, named=3, K=6, **on, **off)
    rows = [expected(trust, written(trust, evidence, index, 4.5)) for index in range(len(evidence.questions))]
    return evidence, trust, pd.DataFrame(rows).to_numpy()


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Compiled code is kept by layout; a rule that is taken out shows only in code that is traced again."""
    control_case()
    exact.witnesses.clear_cache()
    yield
    exact.witnesses.clear_cache()


def control_difference() -> float:
    evidence, trust, exact_ones = control_case()
    table = trust.posteriors(evidence, at=4.5).probabilities
    found = table.pivot(index="entity", columns="answer", values="probability").to_numpy()
    return float(np.nanmax(np.abs(found - exact_ones)))


def test_the_control_case_agrees(traced_anew: None) -> None:
    assert control_difference() < SINGLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, traced_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[rule])
    assert not control_difference() < 10 * SINGLE
