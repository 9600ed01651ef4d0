"""What claims deny and claims that are not meant to last: tables, beliefs, parameters, files and simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.models import denial, one_of
from nousppl.padding import pad, rounded


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty."""
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
