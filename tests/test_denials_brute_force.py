"""What claims deny and claims that are not meant to last: likelihood, programs and draws against brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import test_change
import test_three_ways
import witness
from numpy.typing import NDArray
from random_evidence import features_of
from random_questions import random_question

import nousppl as nous
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.inference import enumeration
from nousppl.models import denial, one_of, origin
from nousppl.models.dense import Change, DenseQuestion
from nousppl.simulate import simulate_question

DOUBLE, SINGLE = 1e-10, 1e-5
BESIDE = {"denials": True, "lasting": True}
ON = dict.fromkeys(("origin", "lag", "text", "popularity", "soft", "notes", "ceiling", "affinity", "own terms"), True)
OFF = dict.fromkeys(("closed", "bias", "difficulty", "undated", "lineage", "rejected", "trap", "correlation"), False)


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty, which both sides sum over alike; and sources that met in few questions are
    pairs."""
    monkeypatch.setattr("nousppl.affinity.MET", 3)
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 5)


# --------------------------------------------------------------------------------------------- against brute force


@pytest.mark.parametrize(
    ("seed", "features"),
    [(805, ON | OFF), (806, OFF | dict.fromkeys(("origin", "popularity", "soft", "notes"), False) | {"closed": True})],
)
def test_beliefs_are_those_of_brute_force(seed: int, features: dict[str, bool]) -> None:
    with jax.enable_x64(True):
        evidence, trust = test_three_ways.case(seed, questions=6, claims=4, **BESIDE, **features)
        flags = features_of(evidence, trust.model)
        assert flags["denials"] and flags["lasting"] and flags["denied since"] == flags["origin"]
        assert test_three_ways.worst(test_three_ways.differences(evidence, trust)) < DOUBLE


def test_beliefs_are_those_of_brute_force_where_truths_change() -> None:
    with jax.enable_x64(True):
        evidence, trust = test_change.case(713, questions=5, claims=4, **BESIDE, **(ON | OFF | {"rejected": True}))
        assert trust.model.origin.denied
        assert test_change.differences(evidence, trust, 4.5) < DOUBLE


@pytest.mark.long
@pytest.mark.parametrize("seed", range(700, 712))
def test_many_more_models(seed: int) -> None:
    with jax.enable_x64(True):
        static = test_three_ways.case(seed, questions=10, claims=4, **BESIDE)
        assert test_three_ways.worst(test_three_ways.differences(*static)) < DOUBLE
        changing = test_change.case(seed, questions=6, claims=4, **BESIDE)
        assert test_change.differences(*changing, (None, 4.5, 60.0)[seed % 3]) < DOUBLE


def test_a_long_question() -> None:
    """Sums in blocks, and pairs beyond the listed ones."""
    rng = np.random.default_rng(0)
    rows = [(v, f"s{rng.integers(9)}", float(t), None) for t, v in enumerate(rng.choice(["a", "b", "c"], 280))]
    frame = pd.DataFrame(rows, columns=["value", "source", "time", "denies"]).assign(entity="maya", attribute="day")
    others = np.array([rng.choice([v for v in "abc" if v != value]) for value in frame["value"]], object)
    evidence = nous.Evidence(frame.assign(denies=np.where(rng.random(280) < 0.1, others, None)))
    strong = nous.Origin("same_source + repeats_denied", max_listed=6)
    trust = nous.TrustModel("1", "1", strong, answers={"day": 4}).default_trust(seed=1, draws=1)
    (one,) = write_out(trust.blueprint, trust.encoded(evidence), trust.asked(), 0)
    assert compile_problem(trust.encoded(evidence), np.array([0])).layout.slot_blocks
    expected = witness.marginal_posterior(one.question, one.values)
    with jax.enable_x64(True):
        found = trust.posterior(evidence.question("maya", "day")).probabilities
        np.testing.assert_allclose(found.to_numpy(), expected, rtol=0, atol=DOUBLE)
    unaware = witness.marginal_posterior(one.question, one.values, without=["denied since"])
    assert np.abs(np.subtract(unaware, expected)).max() > 1e-4


def test_origins_are_those_of_brute_force() -> None:
    on = ON | OFF | BESIDE | {"text": False, "affinity": False, "own terms": False, "notes": False}
    evidence, trust = test_three_ways.case(301, questions=6, claims=3, **on)
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        orders = test_three_ways.written(trust, evidence, index)
        expected = test_three_ways.origins_by_witness(orders, witness.NO_DIFFICULTY, 3)
        found = trust.posterior(evidence.question(entity, attribute)).origins.to_numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=SINGLE)


# --------------------------------------------------------------------------------------------- both backends, controls


def control() -> Any:
    """All claims of some questions compiled as for a fit, most features on."""
    pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend")
    from test_two_backends import Case

    return Case(805, 8, claims=4, **BESIDE, **(ON | OFF))


def on_torch(case: Any) -> list[NDArray[np.float64]]:
    import torch
    from test_two_backends import on_torch as compute

    return compute(case, torch.float64)


def test_the_backends_agree() -> None:
    """With gradients; truths change."""
    from_torch = pytest.importorskip("test_two_backends", reason="pyro is not installed: there is no second backend")
    case = from_torch.Case(713, 6, claims=4, change=True, **BESIDE, **(OFF | {"origin": True, "own terms": False}))
    with jax.enable_x64(True):
        assert from_torch.apart(from_torch.on_jax(case), on_torch(case)) < DOUBLE


def test_padding_changes_nothing() -> None:
    from_torch = pytest.importorskip("test_two_backends", reason="pyro is not installed: there is no second backend")
    features = ON | OFF | BESIDE | {"text": True}
    bare, padded = (on_torch(from_torch.Case(805, 6, pad, **features)) for pad in (False, True))
    np.testing.assert_allclose(bare[0], padded[0][: len(bare[0])], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(bare[3], padded[3], rtol=1e-9, atol=1e-9)


STATED, SUMS = denial.stated, denial.denied_sums


def left_out(name: str) -> Any:
    return lambda xp, layout, *rest: STATED(xp, layout._replace(**{name: False}), *rest)


def no_sums(xp: Any, layout: Any, *rest: Any) -> Any:
    return xp.zeros(layout.slots), xp.zeros(layout.rows)


def unfading(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return SUMS(xp, layout, data, theta | {"rate": 0.0 * theta["rate"]})


BROKEN = {
    "denials say nothing": (one_of, "stated", left_out("denials")),
    "every claim lasts": (one_of, "stated", left_out("lasting")),
    "nobody knows what was denied": (origin, "denied_sums", no_sums),
    "weights of what was denied do not fade": (origin, "denied_sums", unfading),
    "texts do not know what was denied": (origin, "denied_weights", lambda xp, data, *rest: 0.0 * data["denied_lag"]),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = control()
    kept = on_torch(case)[0]
    monkeypatch.setattr(*BROKEN[rule])
    assert np.abs(on_torch(case)[0] - kept).max() > 1e-3


# ------------------------------------------------------------------------------------------------- dense questions


def dense(seed: int, K: int = 3, change: bool = False, **features: bool) -> tuple[DenseQuestion, NDArray[np.int64]]:
    """A question of three claims: the second, sometimes the third, denies an answer; some are not meant to last."""
    rng = np.random.default_rng(seed)
    on = {"base": True, "strong": True, "own_notes": False, "difficulty": False, "soft": False} | features
    question, values = random_question(rng, n=3, K=K, **on)
    others = (values + rng.integers(1, K, 3)) % K
    if values[0] != values[1]:  # what the first says is denied by the second, and said again
        others[1] = values[2] = values[0]
        others[2] = values[1]
    pairs = np.tril(np.ones((3, 3)), -1)
    times = Change(0.3, (0.0, 1.0, 4.0), 2.0, (), ((3.0, int(rng.integers(K))),))
    return question._replace(
        denies=np.where([False, True, bool(seed % 2)], others, -1),
        denial=float(np.exp(rng.normal(-1.0, 1.0))),
        lasting=np.array([1.0, 0.7, 0.2]),
        strong_denied=pairs * np.exp(rng.normal(1.0, 1.0, (3, 3))),
        change=times if change else None,
    ), values


def log_sum(question: DenseQuestion, values: NDArray[np.int64]) -> float:
    """log P(x) of brute force, the chances of what is denied among it."""
    logs = witness.log_marginal_at(question, values) if question.change else witness.log_marginal(question, values)
    said = (question.denies >= 0) & (question.alpha + question.base.sum(1) + question.strong.sum(1) > 0)
    read, total = witness.read(question, values), witness.log_sum_exp(logs)
    for j in np.flatnonzero(said):
        weights = witness.at_random(read, int(j))
        total += math.log(weights[question.denies[j]] / sum(weights))
    return total


@pytest.mark.parametrize("change", [True, False])
def test_the_readable_program_is_brute_force(change: bool) -> None:
    question, values = dense(3, change=change, own_notes=not change, rho=False)
    logs = witness.log_marginal_at(question, values) if change else witness.log_marginal(question, values)
    expected = np.exp(np.array(logs) - witness.log_sum_exp(logs))
    with jax.enable_x64(True):
        np.testing.assert_allclose(enumeration.posterior(question, values), expected, rtol=0, atol=DOUBLE)
    torch = pytest.importorskip("torch", reason="torch is not installed: there is no second backend")
    on_torch = pytest.importorskip("nousppl.inference.torch_enumeration", reason="pyro is not installed")
    found = on_torch.posterior(question, values, dtype=torch.float64)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=DOUBLE)
    evidence = float(on_torch.log_evidence(question, values, dtype=torch.float64))
    assert evidence == pytest.approx(log_sum(question, values), abs=DOUBLE)


def test_brute_force_sums_to_one() -> None:
    for seed in range(6):
        question, _ = dense(seed, popularity=True, rho=False)
        assert witness.total_probability(question) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("rule", ["denials", "denied since", "lasting"])
def test_a_rule_taken_out_of_brute_force_is_noticed(rule: str) -> None:
    cases = [dense(seed, copy_error=True, rho=False) for seed in range(8)]
    for question, values in cases:
        np.testing.assert_allclose(witness.posterior(question, values), witness.marginal_posterior(question, values))
    kept, broken = (np.array([witness.posterior(q, x, without=without) for q, x in cases]) for without in ([], [rule]))
    assert np.abs(kept - broken).max() > 0.005


def test_draws_follow_the_probabilities() -> None:
    """Frequencies of all sequences of claims with what is denied: chi-squared, false alarm at one in 10,000."""
    question, _ = dense(2, popularity=True, rho=False, ceiling=False)
    rng, draws = np.random.default_rng(0), 20_000
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        drawn = simulate_question(rng, question)
        assert drawn.denies[[0, 2]].tolist() == [-1, -1]
        key = (*drawn.values.tolist(), int(drawn.denies[1]))
        counts[key] = counts.get(key, 0) + 1
    chi_squared, cells = 0.0, 0
    for values in itertools.product(range(3), repeat=3):
        for y in set(range(3)) - {values[1]}:
            said = question._replace(denies=np.array([-1, y, -1]))
            expected = draws * math.exp(log_sum(said, np.array(values)))
            chi_squared += (counts.get((*values, y), 0) - expected) ** 2 / expected
            cells += 1
    assert cells == 54 and sum(counts.values()) == draws
    assert chi_squared < 100.9  # the .9999 quantile at 53 degrees of freedom


def test_the_marginal_sums_to_one() -> None:
    """Over all that three claims can say, the second of which denies an answer."""
    said = [(values, y) for values in itertools.product("abcd", repeat=3) for y in "abcd" if y != values[1]]
    rows = [
        {"entity": f"q{i:03d}", "value": v, "source": s, "time": t, "denies": y if t == 3.0 else None, "lasting": 0.6}
        for i, (values, y) in enumerate(said)
        for v, s, t in zip(values, "stt", (0.0, 3.0, 40.0), strict=True)
    ]
    evidence = nous.Evidence(pd.DataFrame(rows).assign(attribute="x"))
    strong = nous.Origin("same_source + repeats_denied")
    trust = nous.TrustModel(origin=strong, answers={"x": list("abcd")}).default_trust(seed=1, draws=3)
    assert len(evidence.questions) == 192
    with jax.enable_x64(True):
        densities = np.exp(test_three_ways.log_evidences(evidence, trust))
    # A denial counts relative to one at random.
    chances = [
        (1.0 if y == values[0] else 1.0 / (4 - len({*values[:2]}))) / (1 + (values[0] != values[1]))
        for values, y in said
    ]
    total = densities @ np.array(chances)
    np.testing.assert_allclose(total, 1.0, atol=1e-12)
