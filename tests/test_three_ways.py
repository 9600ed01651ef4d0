"""The fast marginal, the reference program and brute force agree on random small problems, every feature on and off."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from random_evidence import FEATURES, features_of, random_case

import nousppl as nous
from nousppl.asking import ready
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import Written, write_out
from nousppl.inference import enumeration, exact
from nousppl.inference.backend import JAX
from nousppl.model import prior_draws
from nousppl.models import one_of, origin, program, reference
from nousppl.trust import Trust

# 12 models with 25 questions each; the questions of one model share its compilations.
MODELS, EACH = range(60, 72), 25
COVER = (61, 63, 65, 67, 71)
"""Models that have every feature on and off, and run by default; compiling them takes the time."""
SINGLE, DOUBLE = 1e-5, 1e-10


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty, which no comparison minds: both sides sum over the same. And sources that met in
    few questions are pairs."""
    monkeypatch.setattr("nousppl.affinity.MET", 3)
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 9)


def case(seed: int, **given: Any) -> tuple[nous.Evidence, Trust]:
    evidence, model = random_case(seed, **given)
    trust = model.default_trust(seed=seed, draws=1)
    if model.origin is None or model.origin.affinity is None:
        return evidence, trust
    # Affinities belong to pairs of sources, which a trust without a fit does not know.
    blueprint = draw_up(model, evidence)
    draws = prior_draws(blueprint, seed, 1) | trust.posterior_draws
    return evidence, replace(
        trust, blueprint=replace(trust.blueprint, affinity=blueprint.affinity), posterior_draws=draws
    )


def written(trust: Trust, evidence: nous.Evidence, question: int) -> list[Written]:
    return write_out(trust.blueprint, trust.encoded(evidence), trust.asked(), question, seed=trust.model.order_seed)


def grid_of(trust: Trust, evidence: nous.Evidence, index: int) -> witness.Grid:
    if trust.model.errors.mixture:
        hard = written(trust, evidence, index)[0].question.hard
        return ((0.0, 1.0 - hard), (-1.0, hard))
    nodes = compile_problem(trust.encoded(evidence), np.array([index])).layout.nodes
    return witness.equispaced(nodes) if nodes else witness.NO_DIFFICULTY


def joint_by_witness(one: Written, grid: witness.Grid) -> NDArray[np.float64]:
    """(K,) P(z, x) in one order of the claims."""
    return np.exp(witness.log_marginal(one.question, one.values, grid))


def joint_by_reference(one: Written, grid: witness.Grid) -> NDArray[np.float64]:
    """The same by the reference program."""
    nodes = reference.Grid(np.array([d for d, _ in grid]), np.array([weight for _, weight in grid]))
    evidence = np.exp(enumeration.log_evidence(one.question, one.values, nodes))
    return np.asarray(enumeration.posterior(one.question, one.values, nodes) * evidence)


def posterior_of(orders: list[Written], joint: Callable[[Written], NDArray[np.float64]]) -> dict[str, float]:
    """Posterior by answer, orders averaged; the unnamed answers together as "other"."""
    question = orders[0].question
    originals = float(np.mean([sum(witness.read(one.question, one.values).r) for one in orders]))
    if question.correlation is not None:  # the power is taken of the likelihood averaged over the orders
        looks = {"prior": question.base_rates, "trap": None, "correlation": None}
        orders = [one._replace(question=one.question._replace(**looks)) for one in orders]
    total = sum((joint(one) for one in orders), np.zeros(len(orders[0].answers)))
    if question.correlation is not None:
        assert question.base_rates is not None
        given = np.log(total / len(orders) / question.base_rates)
        total = np.exp(witness.correlated(question, given.tolist(), originals))
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
    beliefs = trust.posteriors(evidence)
    batched = beliefs.probabilities.assign(witnesses=beliefs.support)
    out = []
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        grid = grid_of(trust, evidence, index)
        exact_one = posterior_of(written(trust, evidence, index), lambda one, grid=grid: joint(one, grid))
        belief = trust.posterior(evidence.question(entity, attribute))
        many = batched[batched["entity"] == entity].set_index("answer")
        single, expected = belief.probabilities, pd.Series(exact_one)
        assert set(single.index) == set(many.index) == set(expected.index)
        apart = [(single - expected).abs().max(), (many["probability"] - expected).abs().max()]
        out.append(float(np.max(apart)))
        if not trust.model.errors.difficulty:  # else the batch takes a question of average difficulty
            assert belief.effective_claims == pytest.approx(many["witnesses"][belief.answer], abs=10 * SINGLE)
    return out


def worst(values: list[float]) -> float:
    """The largest; NaN if one of them is."""
    return float(np.max(values))


# ------------------------------------------------------------------------------------------------------- posteriors


@pytest.mark.parametrize(
    "group", [group if group in COVER else pytest.param(group, marks=pytest.mark.long) for group in MODELS]
)
def test_marginal_is_brute_force_in_single_precision(group: int) -> None:
    assert worst(differences(*case(group, questions=EACH))) < SINGLE


def test_the_random_problems_have_every_feature_on_and_off() -> None:
    cases = [random_case(group, questions=EACH) for group in MODELS]
    assert sum(len(evidence.questions) for evidence, _ in cases) >= 300
    flags = pd.DataFrame([features_of(*one) for one in cases])
    flags.index = MODELS
    later = ["denials", "denied since", "lasting", "change", "truths at times"]
    for some in (flags, flags.loc[list(COVER)]):
        assert some.columns[some.all() | ~some.any()].to_list() == later


@pytest.mark.parametrize(
    ("seed", "features"),
    [
        (101, {}),
        (103, {}),
        pytest.param(104, dict.fromkeys(("origin", "lag", "text"), True), marks=pytest.mark.long),
        (106, {"popularity": True, "shared by claim": True, "closed": False}),
        (107, dict.fromkeys(("origin", "lag", "text", "popularity", "shared by claim", "own terms"), True)),
    ],
)
def test_marginal_is_brute_force_in_double_precision(seed: int, features: dict[str, bool]) -> None:
    with jax.enable_x64(True):
        assert worst(differences(*case(seed, questions=10, **features))) < DOUBLE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "features"),
    [
        (3, {"popularity": True, "difficulty": False, "closed": False}),
        # With these, test_five_ways.py compares the program too.
        pytest.param(
            3,
            {"popularity": True, "shared by claim": True, "difficulty": False, "closed": False},
            marks=pytest.mark.long,
        ),
        pytest.param(
            3, {"popularity": True, "own terms": True, "difficulty": False, "closed": False}, marks=pytest.mark.long
        ),
        (2, {"popularity": False, "difficulty": True, "closed": True}),
    ],
)
def test_marginal_is_the_reference_program(claims: int, features: dict[str, bool]) -> None:
    """Eight questions of one shape, which share the program's compilation."""
    on = features | {"origin": True, "lineage": False}
    cases = [case(seed, questions=4, claims=claims, named=3, K=4, **on) for seed in (200, 201)]
    assert worst([d for one in cases for d in differences(*one, joint_by_reference)]) < SINGLE


# ------------------------------------------------------------------------------------------- origins, sums to one


def origins_by_witness(orders: list[Written], grid: witness.Grid, claims: int) -> NDArray[np.float64]:
    """(claims, claims + 1) origins, the orders weighted by how probable they make what was said."""
    total, weights = np.zeros((claims, claims + 1)), 0.0
    for one in orders:
        weight = witness.evidence(one.question, one.values, grid)
        place = one.claims - min(one.claims)
        table = np.array(witness.origins(one.question, one.values, grid))
        total[np.ix_(place, np.r_[0, place + 1])] += weight * table
        weights += weight
    return total / weights


@pytest.mark.parametrize("soft", [True, False])
@pytest.mark.parametrize("difficulty", [True, False])
def test_origins_are_those_of_brute_force(soft: bool, difficulty: bool) -> None:
    for seed in (300, 301):
        on = {"origin": True, "lineage": False, "soft": soft, "difficulty": difficulty}
        evidence, trust = case(seed, questions=6, claims=3, **on)
        for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
            expected = origins_by_witness(written(trust, evidence, index), grid_of(trust, evidence, index), 3)
            found = trust.posterior(evidence.question(entity, attribute)).origins.to_numpy()
            np.testing.assert_allclose(found, expected, rtol=0, atol=SINGLE)


def test_origins_where_some_are_given() -> None:
    evidence, trust = case(7, questions=20, claims=4, origin=True, lineage=True, notes=False, undated=False)
    given = evidence.coded.claim_origin
    assert (given >= 0).sum() >= 5
    for entity, attribute in evidence.questions.itertuples(index=False):
        question = evidence.question(entity, attribute)
        table = trust.posterior(question).origins.to_numpy()
        np.testing.assert_allclose(table.sum(1), 1.0, atol=1e-9)
        start = 4 * question.index
        mine = given[start : start + 4]
        for j in np.flatnonzero(mine >= 0):
            assert table[j, 1 + mine[j] - start] == 1.0
            assert (table[mine < 0, 1 + j] == 0.0).all()  # nobody else repeats what adds nothing


def sequences(values: list[str], K: int | list[str], derived: bool, **errors: Any) -> tuple[nous.Evidence, Trust]:
    """All sequences of three claims, each a question of its own: the same three sources, channels and times."""
    notes = (False, derived, False)
    frame = pd.DataFrame(
        [
            {"entity": f"q{i:03d}", "value": value, "source": source, "channel": channel, "time": time, "derived": note}
            for i, said in enumerate(itertools.product(values, repeat=3))
            for value, source, channel, time, note in zip(said, "stt", "mmn", (0.0, 3.0, 40.0), notes, strict=True)
        ]
    ).assign(attribute="x")
    strong = nous.Origin(strong="same_source + same_channel")
    model = nous.TrustModel(origin=strong, answers={"x": K}, errors=nous.Errors(**errors))
    return nous.Evidence(frame), model.default_trust(seed=1, draws=3)


def log_evidences(evidence: nous.Evidence, trust: Trust) -> NDArray[np.float64]:
    """(draws, questions) log P(x) by the marginal."""
    encoded, plan = trust.encoded(evidence), trust.blueprint.plan
    problem = compile_problem(encoded, np.arange(len(evidence.questions)))
    layout, size = problem.layout, len(problem.claims)
    data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), size)
    data = {name: jnp.asarray(value) for name, value in data.items()}
    theta = [exact.theta_of(plan.features, {n: jnp.asarray(v[d]) for n, v in draws.items()}, None) for d in range(3)]
    logs = jax.jit(lambda t: program.question_logs(JAX, layout, data, t))
    return np.stack([np.asarray(logs(t)) for t in theta])


@pytest.mark.parametrize(
    ("K", "derived", "errors"),
    [
        (["a", "b", "c", "d"], False, {}),
        (["a", "b", "c", "d"], False, {"bias": "source"}),
        (["a", "b", "c", "d"], True, {"popularity": False}),
        (["a", "b", "c", "d"], False, {"popularity": "1 + (1|channel) + (1|source)", "bias": "source"}),
        (4, False, {"popularity": "1 + (1|channel) + (1|source)"}),
        (4, False, {}),
        (4, True, {"difficulty": True}),
    ],
)
def test_probabilities_sum_to_one_over_all_sequences(K: Any, derived: bool, errors: dict[str, Any]) -> None:
    """In the marginal itself; three claims can name three answers, so an open domain keeps its four."""
    evidence, trust = sequences(["a", "b", "c", "d"], K, derived, **errors)
    assert len(evidence.questions) == 64
    with jax.enable_x64(True):
        np.testing.assert_allclose(np.exp(log_evidences(evidence, trust)).sum(1), 1.0, atol=1e-12)


# ------------------------------------------------------------------------------------------------ negative controls


def all_are_original(xp: Any, layout: Any, data: Any, originality: Any, time: Any, rate: Any) -> Any:
    # Without times they are the counts behind the popularity of wrong answers.
    everyone = originality if time is None else originality * 0.0 + 1.0
    return ORIGINALS(xp, layout, data, everyone, time, rate)


def repeats_are_popular(xp: Any, layout: Any, data: Any, originality: Any, *rest: Any) -> Any:
    return POPULARITY(xp, layout, data, originality * 0.0 + 1.0, *rest)


def all_share_alike(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return BETAS(xp, layout, data, {"beta": xp.exp(xp.mean(theta["log_beta"]))})


def no_ceiling(xp: Any, logit: Any, ceiling: Any, difficulty: Any) -> Any:
    return RELIABILITY(xp, logit, None, difficulty)


def strangers(data: dict[str, Any], kind: str) -> Any:
    return 0.0 * data[kind + "_share"]


def affinity_of_repeats(xp: Any, layout: Any, data: Any, theta: Any, originality: Any, kin: Any) -> Any:
    return AFFINITY_SUMS(xp, layout, data, theta, originality * 0.0 + 1.0, kin)


def no_pair_terms(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return xp.zeros(layout.slots), xp.zeros(layout.rows)


def texts_of_no_pair_terms(xp: Any, layout: Any, data: Any, theta: Any, originality: Any) -> Any:
    return TEXT_SUMS(xp, layout, data, theta | {"listed": 0.0 * theta["listed"]}, originality)


def unfading_pair_terms(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return LISTED_SUMS(xp, layout, data, theta | {"rate": 0.0 * theta["rate"]})


def texts_of_strangers(xp: Any, layout: Any, data: Any, theta: Any, originality: Any) -> Any:
    return TEXT_SUMS(xp, layout, data, theta | {"affinity": 0.0 * theta["affinity"]}, originality)


AFFINITY_SUMS, TEXT_SUMS, LISTED_SUMS = origin.affinity_sums, origin.text_sums, origin.listed_sums
ORIGINALS, POPULARITY, RELIABILITY, BETAS = (
    origin.sums_of_originals,
    one_of.popularity,
    one_of.reliability,
    one_of.betas,
)
BROKEN = {
    "every claim counts as an original": (origin, "sums_of_originals", all_are_original),
    "popularity counts repeats": (one_of, "popularity", repeats_are_popular),
    "all errors are equally shared": (one_of, "betas", all_share_alike),
    "no clip": (one_of, "clip", lambda xp, law, *rest: law),
    "sums include the claim itself": (origin, "before", lambda xp, totals, *rest: totals),
    "copies are perfect": (program, "COPY_ERROR", 0.0),
    "no ceiling": (one_of, "reliability", no_ceiling),
    "texts are not compared": (origin, "text_sums", lambda xp, layout, *rest: xp.zeros(layout.rows)),
    "pairs of sources are strangers": (
        origin,
        "kin_weights",
        lambda xp, layout, data, theta, kind: strangers(data, kind),
    ),
    "affinities count repeats": (origin, "affinity_sums", affinity_of_repeats),
    "texts do not know affinities": (origin, "text_sums", texts_of_strangers),
    "own pair terms weigh nothing": (origin, "listed_sums", no_pair_terms),
    "own pair terms do not fade": (origin, "listed_sums", unfading_pair_terms),
    "texts do not know own pair terms": (origin, "text_sums", texts_of_no_pair_terms),
    "weights do not fade": (origin, "step_fading", lambda xp, position, *rest: xp.where(position >= 1, 1.0, 0.0)),
}
CONTROL = dict.fromkeys((*FEATURES, "affinity", "shared by claim", "own terms"), True) | dict.fromkeys(
    ("closed", "bias", "difficulty", "lineage", "undated"), False
)


@functools.cache
def control_case() -> tuple[nous.Evidence, Trust, pd.DataFrame]:
    """Questions with most features on, and their posteriors by brute force."""
    evidence, trust = case(2, questions=12, claims=5, named=3, K=6, **CONTROL)
    assert trust.model.origin == nous.Origin("same_source + same_channel", "source", "text", orders=3)
    exact_ones = [
        posterior_of(written(trust, evidence, index), lambda one: joint_by_witness(one, witness.NO_DIFFICULTY))
        for index in range(len(evidence.questions))
    ]
    return evidence, trust, pd.DataFrame(exact_ones)


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Compiled code is kept by layout; a rule that is taken out shows only in code that is traced again."""
    control_case()
    exact.witnesses.clear_cache()
    yield
    exact.witnesses.clear_cache()


def batched_difference() -> float:
    evidence, trust, expected = control_case()
    table = trust.posteriors(evidence).probabilities
    found = table.pivot(index="entity", columns="answer", values="probability").reset_index(drop=True)
    return float((found - expected).abs().to_numpy()[expected.notna().to_numpy()].max())


def test_the_control_case_agrees(traced_anew: None) -> None:
    assert batched_difference() < SINGLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, traced_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[rule])
    assert not batched_difference() < 10 * SINGLE
