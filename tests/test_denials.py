"""What claims deny and claims that are not meant to last: tables, likelihood against brute force, programs, draws."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import test_change
import test_three_ways
import witness
from numpy.typing import NDArray
from random_evidence import features_of
from random_questions import random_question

import nousppl as nous
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.inference import enumeration
from nousppl.models import denial, one_of, origin
from nousppl.models.dense import Change, DenseQuestion
from nousppl.padding import pad, rounded
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


def told(rows: list[tuple[Any, ...]], columns: str = "value source time denies", **more: Any) -> nous.Evidence:
    """One question."""
    return nous.Evidence(pd.DataFrame(rows, columns=columns.split()).assign(entity="maya", attribute="day", **more))


# ------------------------------------------------------------------------------------------------------------ tables

DAYS = [("tue", "ann", 1.0, None), ("wed", "bob", 2.0, "tue"), ("tue", "cat", 3.0, "thu")]


def test_what_is_denied_is_an_answer() -> None:
    coded = told(DAYS, lasting=[1.0, None, 0.4]).coded
    assert coded.answer_value.tolist() == ["thu", "tue", "wed"]
    assert coded.claim_denied.tolist() == [-1, 1, 0]
    assert coded.claim_lasting.tolist() == [1.0, 1.0, 0.4]


def test_it_is_compared_by_the_rule_of_values() -> None:
    merged = nous.Evidence(told(DAYS).claims, same_value={"thu": "wed"})
    assert merged.coded.answer_value.tolist() == ["tue", "wed"]
    assert merged.claims["denies"].isna()[0] and merged.claims["denies"].to_list()[1:] == ["tue", "wed"]
    numbers = told([(3, "ann", 1.0, None), (4, "bob", 2.0, 3.0)])
    assert numbers.coded.answer_value.tolist() == [3, 4] and numbers.coded.claim_denied.tolist() == [-1, 0]
    truths = told([(True, "ann", 1.0, None), (False, "bob", 2.0, True)])
    assert truths.coded.claim_denied.tolist() == [-1, 1]


def test_parts_of_an_evidence_know_what_their_claims_deny() -> None:
    evidence = told(DAYS)
    assert evidence.before(2.5).coded.answer_value.tolist() == ["tue", "wed"]
    left = evidence.without([evidence.claims["claim"][1]]).coded
    assert left.answer_value.tolist() == ["thu", "tue"] and left.claim_denied.tolist() == [-1, 0]
    assert "claims that deny a value" in str(evidence.report)
    assert "not meant to last" in str(told(DAYS, lasting=0.5).report)


def test_csv_keeps_it_as_it_stands(tmp_path: Any) -> None:
    frame = told([("007", "ann", 1.0, None), ("08", "bob", 2.0, "007")], lasting=["", "0.25"]).claims
    frame.to_csv(tmp_path / "claims.csv", index=False)
    coded = nous.Evidence.from_csv(tmp_path / "claims.csv").coded
    assert coded.claim_denied.tolist() == [-1, 0] and coded.claim_lasting.tolist() == [1.0, 0.25]


SOFT = {"claim": ["a", "b", "b"], "weight": 0.5, "source": "ann", "time": 1.0, "value": ["tue", "wed", "thu"]}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"denies": [None, "wed", None]},
            r"'denies': the value that the claim itself names in 1 of 3 rows; first: row 1",
        ),
        ({"denies": [None, 3, None]}, "'denies': numbers, where values of the attribute are text, in 1 of 3 rows"),
        ({"denies": [None, None, float("inf")]}, "'denies': a number that is not finite in 1 of 3 rows; first: row 2"),
        ({"denies": [None, object(), None]}, "'denies': a value of no known kind in 1 of 3 rows"),
        (
            {"denies": "mon", "weight": [1.0, 0.5, 1.0]},
            "'denies': a denial in a soft claim in 1 of 3 rows; first: row 1",
        ),
        ({"lasting": [None, 1.5, -1.0]}, r"'lasting': a number outside \[0, 1\] in 2 of 3 rows; first: row 1"),
        ({"lasting": "long"}, "'lasting': not a finite number in 3 of 3 rows"),
        (
            SOFT | {"denies": ["x", "y", None]},
            "'denies': another cell than in the fir",
        ),
        (SOFT | {"lasting": [1, 0, 1]}, "'lasting': another cell than in the first"),
    ],
)
def test_one_clear_error(columns: dict[str, Any], words: str) -> None:
    frame = told(DAYS).claims.drop(columns=["denies", "claim"])
    with pytest.raises(nous.EvidenceError, match=words):
        nous.Evidence(frame.assign(**columns))


def test_a_denied_value_is_in_the_closed_list() -> None:
    with pytest.raises(nous.ModelError, match=r"outside its closed list, first 'thu'.*allowed are \['tue', 'wed'\]"):
        nous.TrustModel(answers={"day": ["tue", "wed"]}).default_trust().posteriors(told(DAYS))


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
    frame = told(rows).claims
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


# ----------------------------------------------------------------------------------------------------- what it does


def sure(**more: Any) -> nous.TrustModel:
    return nous.TrustModel(
        "1", "1", **({"answers": {"day": 5}, "priors": {"reliability": {"1": dist.Normal(1.5, 0.01)}}} | more)
    )


def belief(model: nous.TrustModel, evidence: nous.Evidence) -> pd.Series:
    return model.default_trust(draws=20).posterior(evidence.question("maya", "day")).probabilities


def test_what_is_denied_is_believed_less() -> None:
    plain, denied = (belief(sure(), told([("tue", "ann", 1.0, None), ("wed", "bob", 2.0, y)])) for y in (None, "tue"))
    assert denied["tue"] < 0.6 * plain["tue"] and denied["wed"] > plain["wed"]


def test_points_say_what_is_denied() -> None:
    evidence = told(DAYS, lasting=[None, None, 0.5])
    points = sure().default_trust(draws=5).posterior(evidence.question("maya", "day")).points
    assert points["note"].to_list() == ["", "", "denies tue", "denies thu; lasting 0.5", ""]
    assert points["points"].notna().all()


def test_with_two_answers_a_denial_says_nothing_more() -> None:
    rows = [("T", "ann", 1.0, None), ("F", "bob", 2.0, None)]
    plain = belief(sure(answers={"day": ["T", "F"]}), told(rows))
    denied = belief(sure(answers={"day": ["T", "F"]}), told([rows[0], ("F", "bob", 2.0, "T")]))
    np.testing.assert_allclose(plain, denied, rtol=0, atol=1e-7)


@pytest.mark.parametrize("change", [None, "1"])
def test_a_claim_about_a_moment_says_nothing_of_the_state(change: str | None) -> None:
    model = sure(change=change, origin=None, errors=nous.Errors(popularity=False))
    rows = [("tue", "ann", 1.0, None), ("wed", "bob", 2.0, None)]
    columns = "value source time lasting"
    plain = belief(model, told(rows, columns))
    moment = belief(model, told([*rows, ("wed", "cat", 3.0, 0.0)], columns))
    half = belief(model, told([*rows, ("wed", "cat", 3.0, 0.5)], columns))
    whole = belief(model, told([*rows, ("wed", "cat", 3.0, None)], columns))
    np.testing.assert_allclose(moment, plain, rtol=0, atol=0.005 if change else 1e-7)  # time goes on until day 3
    assert plain["wed"] + 0.05 < half["wed"] < whole["wed"] - 0.05


def test_it_may_still_be_repeated() -> None:
    columns = "value source time lasting"
    model, rows = sure(origin=nous.Origin(lag=False)), [("wed", "ann", 1.0, None)]
    alone = belief(model, told(rows, columns))
    after = belief(model, told([("wed", "ann", 0.0, 0.0), *rows], columns))
    assert after["wed"] < alone["wed"] - 0.05


def test_models_without_the_columns_are_laid_out_as_before() -> None:
    plain = told([row[:3] for row in DAYS], "value source time")
    trust = sure(errors=nous.Errors(popularity=False)).default_trust()
    problem = compile_problem(trust.encoded(plain), np.array([0]))
    assert one_of.alone(problem.layout)
    names = {"row_aside", "term_aside", "term_denial", "slot_lasting", "denied_slot", "again_row", "pair_denied"}
    assert not names & set(problem.data)
    for evidence in (told(DAYS), told([row[:3] for row in DAYS], "value source time", lasting=0.5)):
        assert not one_of.alone(compile_problem(trust.encoded(evidence), np.array([0])).layout)


def test_what_has_no_denials_is_padded_to_what_has_some() -> None:
    trust = sure().default_trust(draws=5)
    plain, denied = told([row[:3] for row in DAYS], "value source time"), told(DAYS, lasting=0.5)
    problems = [compile_problem(trust.encoded(evidence), np.array([0])) for evidence in (plain, denied)]
    layout = rounded([problem.layout for problem in problems])
    assert layout.denials and layout.lasting
    arrays = pad(problems[0], layout)
    assert not arrays["row_aside"].any() and not arrays["term_denial"].any() and (arrays["slot_lasting"] == 1.0).all()
    assert {n: x.shape for n, x in arrays.items()} == {n: x.shape for n, x in pad(problems[1], layout).items()}


# -------------------------------------------------------------------------------------- parameters, files, simulation


def test_kappa_is_a_parameter_where_claims_deny_something() -> None:
    model, plain = sure(), told([row[:3] for row in DAYS], "value source time")
    assert str(model.priors()["errors"]["log_denial"]) == "Normal(-2, 1)"
    assert "errors_log_denial" in draw_up(model, told(DAYS)).plan.names
    assert "errors_log_denial" not in draw_up(model, plain).plan.names
    given = sure(priors=model.given_priors | {"errors": {"log_denial": dist.Normal(-5.0, 0.01)}})
    one = told([DAYS[0], DAYS[2]])
    assert belief(given, one)["thu"] < belief(model, one)["thu"]


def test_a_trust_that_saw_no_denials_takes_the_middle_of_the_prior() -> None:
    model, plain = sure(), told([row[:3] for row in DAYS], "value source time")
    default = model.default_trust(draws=1)
    default.posterior_draws["errors_log_denial"][:] = denial.LOG_DENIAL
    kept = {name: x for name, x in default.posterior_draws.items() if name != "errors_log_denial"}
    unaware = replace(default, blueprint=draw_up(model, plain), posterior_draws=kept)
    one, two = (trust.posterior(told(DAYS).question("maya", "day")).probabilities for trust in (default, unaware))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-7)


def test_a_pair_feature_among_others() -> None:
    both = nous.Origin("same_source + repeats_denied + same_channel")
    assert both.features == ("same_source", "same_channel") and both.denied
    assert nous.Origin("repeats_denied").features == () and not nous.Origin().denied
    priors = nous.TrustModel(origin=both).priors()["origin"]
    assert str(priors["repeats_denied"]) == "Normal(0, 1)"
    with pytest.raises(
        nous.ModelError, match="'denied' is no pair feature; allowed are same_source and same_<column>, a"
    ):
        nous.Origin("denied")
    with pytest.raises(nous.ModelError, match="a feature is named twice"):
        nous.Origin("repeats_denied + repeats_denied")


def test_own_terms_do_not_read_what_is_denied() -> None:
    def read(xp: Any, sample: Any, columns: Any) -> Any:
        return columns["denies"]

    with pytest.raises(nous.ModelError, match="reads the column 'denies'"):
        nous.TrustModel(terms={"reliability": [read]})


def test_a_trust_is_saved_with_it(tmp_path: Any) -> None:
    model = nous.TrustModel("1", "1", nous.Origin("same_source + repeats_denied"), answers={"day": 5})
    trust = model.default_trust(draws=10)
    assert {"errors_log_denial", "origin_repeats_denied"} <= set(trust.idata.posterior.data_vars)
    trust.save(tmp_path / "trust.nc")
    again = nous.load(tmp_path / "trust.nc")
    assert again.model.origin == model.origin and again.blueprint.denials
    np.testing.assert_array_equal(again.posteriors(told(DAYS)).probability, trust.posteriors(told(DAYS)).probability)


DESIGN = pd.DataFrame(
    {
        "entity": np.repeat([f"e{i:03d}" for i in range(200)], 3),
        "attribute": "day",
        "source": ["ann", "bob", "cat"] * 200,
        "time": [1.0, 2.0, 3.0] * 200,
        "denies": [None, "something", None] * 200,
    }
)


@pytest.mark.parametrize("answers", [4, ["a", "b", "c", "d"]])
def test_a_simulation_draws_what_is_denied(answers: Any) -> None:
    given = {"reliability_Intercept": 0.0, "errors_log_denial": -20.0, "origin_log_strangers": 1.0}
    origin = nous.Origin("same_source + repeats_denied")
    truth, evidence = nous.TrustModel("1", "1", origin, answers={"day": answers}).simulate(DESIGN, 0, given)
    claims = evidence.claims
    says = claims["denies"].notna().to_numpy()
    np.testing.assert_array_equal(says, DESIGN["denies"].notna())
    assert (claims["denies"] != claims["value"])[says].all()
    fresh = truth.origins[claims["claim"]].isna().to_numpy()
    is_truth = (claims["denies"] == truth.truths[claims["claim"]].to_numpy())[says]
    assert not is_truth[fresh[says]].any() and is_truth[~fresh[says]].any()


def test_a_program_draws_no_denials() -> None:
    program = sure().program(told(DAYS), learn_from="all")
    with pytest.raises(nous.ModelError, match=r"column 'denies'\) draws no claims: TrustModel.simulate draws them"):
        program.simulator({}, 0)
