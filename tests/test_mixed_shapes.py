"""Every public command and method on one evidence with all shapes of answers: it works, or says in words that it does
not."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import rich.status  # noqa: F401  (it draws from the global random numbers when it is first loaded)
from typer.testing import CliRunner

import nousppl as nous
from nousppl import cli, diagnostics, report
from nousppl.beliefs import Beliefs
from nousppl.trust import Trust

SHAPES: dict[str, Any] = {
    "allergy": nous.AnyOf(),
    "away": nous.WhileTrue(),
    "guests": nous.Number(1.0, "people", centre=12.0, scale=4.0),
}
MODEL = nous.TrustModel(
    "1 + (1|source)",
    "1",
    nous.Origin(strong="same_source", lag=False),
    nous.Errors(difficulty=False, popularity=False),
    shapes=SHAPES,
    answers={"away": 3, "allergy": ["milk", "nuts"], "colour": ["red", "blue"]},
)
FAST = nous.SVI(steps=100, draws=40, weighed=0)
ENTITIES = 8


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims of four sources about each shape, and all truths, known one after the other."""
    rows = [
        (f"e{e}", attribute, f"s{(e + j) % 4}", float(j))
        for attribute in ("allergy", "away", "colour", "guests")
        for e in range(ENTITIES)
        for j in range(3)
    ]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "time"])
    truth, evidence = MODEL.simulate(design, 4)
    order = np.argsort(truth.settled["entity"].to_numpy(), kind="stable")
    settled = truth.settled.assign(time=3.0, known_at=4.0 + np.argsort(order))
    return evidence.claims, settled


CLAIMS, SETTLED = tables()
LEARNED = SETTLED[SETTLED["entity"] < "e4"]


@pytest.fixture(scope="module")
def evidence() -> nous.Evidence:
    return nous.Evidence(CLAIMS, settled=LEARNED)


@pytest.fixture(scope="module")
def trust(evidence: nous.Evidence) -> Trust:
    return MODEL.fit(evidence, method=FAST, learn_from="settled")


@pytest.fixture(scope="module")
def beliefs(trust: Trust, evidence: nous.Evidence) -> Beliefs:
    return trust.posteriors(evidence.with_settled(None), at=3.0)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_files_keep_items_and_whole_laws_of_numbers(beliefs: Beliefs, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"beliefs.{ending}"
    beliefs.write(path)
    again = Beliefs.read(path)
    assert again.numbers is not None and beliefs.numbers is not None
    assert again.shapes == beliefs.shapes
    pd.testing.assert_frame_equal(again.items, beliefs.items, check_dtype=False)
    pd.testing.assert_frame_equal(again.numbers.frame, beliefs.numbers.frame, check_dtype=False)
    for one, other in zip(again.numbers.mixtures, beliefs.numbers.mixtures, strict=True):
        assert (one.cdf([8.0, 12.5]) == other.cdf([8.0, 12.5])).all() and one.gaps == other.gaps
    pd.testing.assert_series_equal(again.score(SETTLED), beliefs.score(SETTLED))
    pd.testing.assert_series_equal(again.score_items(items_of()), beliefs.score_items(items_of()))
    pd.testing.assert_series_equal(again.score_numbers(SETTLED), beliefs.score_numbers(SETTLED))


def items_of() -> pd.DataFrame:
    return SETTLED[SETTLED["attribute"] == "allergy"]


def test_files_of_numbers_alone_and_of_what_is_rejected(trust: Trust, tmp_path: Path) -> None:
    guests = nous.Evidence(CLAIMS[CLAIMS["attribute"] == "guests"]).reject("e0", "guests", 12)
    found = trust.posteriors(guests)
    found.write(tmp_path / "numbers.csv")
    again = Beliefs.read(tmp_path / "numbers.csv")
    assert len(again) == 0 and again.numbers is not None
    law = again.numbers.mixtures[0]
    assert law.gaps == ((11.5, 12.5),) and law.density(12.0) == 0.0
    assert law.quantile(0.3) == found.numbers.mixtures[0].quantile(0.3)
    damaged = found.to_frame().assign(law="nothing")
    with pytest.raises(nous.EvidenceError, match="column 'law': 'nothing' is no law of a number"):
        Beliefs.from_frame(damaged)
    with pytest.raises(nous.EvidenceError, match="column 'row' is 'else' in"):
        Beliefs.from_frame(found.to_frame().assign(row="else"))


def test_rejections_are_no_truths(beliefs: Beliefs) -> None:
    facts = items_of().assign(verdict="true")
    some = facts.assign(verdict=np.where(np.arange(len(facts)) < 3, "false", "true"))
    assert beliefs.score_items(some)["n"] == beliefs.score_items(facts)["n"] - 6
    with pytest.raises(nous.EvidenceError, match="none of 0 rows is about a set-valued question"):
        beliefs.score_items(facts.assign(verdict="false"))


def test_names_are_compared_by_answers_alone(trust: Trust) -> None:
    guests = trust.posteriors(nous.Evidence(CLAIMS[CLAIMS["attribute"] == "guests"]))
    assert not len(nous.identity(guests))


def test_numbers_that_nobody_claims(trust: Trust) -> None:
    """Settled, rejected or neither: by one question and in the table of all."""
    settled = pd.DataFrame({"entity": ["known", "out"], "attribute": "guests", "value": [9.0, 12.0]})
    evidence = nous.Evidence(CLAIMS, settled=settled.assign(verdict=["true", "false"]))
    table = trust.posteriors(evidence).numbers
    assert table is not None
    frame = table.frame.set_index("entity")
    for entity in ("known", "out"):
        one = trust.posterior(evidence.question(entity, "guests"))
        assert one.mean == pytest.approx(frame["mean"][entity], rel=1e-3)
    assert frame["mean"]["known"] == 9.0 and frame["sd"]["out"] > 1.0


@pytest.mark.parametrize("far", [1e3, 1e6, 1e12])
def test_one_absurd_number_moves_no_interval(trust: Trust, far: float) -> None:
    claims = CLAIMS[(CLAIMS["attribute"] == "guests") & (CLAIMS["entity"] < "e2")].reset_index(drop=True)
    more = claims.iloc[[0]].assign(source="s9", time=4.0, claim="far")
    ends = []
    for value in (60.0, far):
        evidence = nous.Evidence(pd.concat([claims, more.assign(value=value)], ignore_index=True))
        ends.append(trust.posteriors(evidence).numbers.frame.loc[0, ["sd", "q05", "median", "q95"]].to_numpy(float))
    np.testing.assert_allclose(ends[1], ends[0], atol=0.3)
    with pytest.raises(nous.ModelError, match=r"column 'value' is 1e\+30 for entity 'e0'.*2\^53 times the resolution"):
        trust.posteriors(nous.Evidence(pd.concat([claims, more.assign(value=1e30)], ignore_index=True)))


def check_every_shape(run: nous.CrossValidation) -> None:
    """No question is dropped, each shape has its own scores, and the heading names both kinds."""
    assert len(run) == len(run.folds) == len(run.pointwise) == 4 * ENTITIES == run.by_fold["n"].sum()
    table = run.by_shape
    assert set(table.index) == {"one of several", "any of several", "true for a while", "number"}
    assert (table["n"] == ENTITIES).all() and table.loc["any of several", "items"] == 2 * ENTITIES
    assert table.loc["number", ["crps", "log_score", "rmse"]].notna().all()
    assert table.loc["true for a while", ["accuracy", "log_loss"]].notna().all()
    points = run.pointwise
    numbers = points["attribute"] == "guests"
    assert points["crps"].notna().equals(numbers) and points["right"].isna().equals(numbers)
    assert -points["log_loss"][numbers].mean() == pytest.approx(table.loc["number", "log_score"])
    folds = points[~numbers].groupby("fold")
    assert run.by_fold["log_loss"].to_dict() == pytest.approx(folds["log_loss"].mean().to_dict())
    assert run.by_fold["crps"].notna().all() and "CRPS" in repr(run) and "accuracy" in repr(run)
    assert run._repr_html_()
    compared = nous.compare({"a": run, "b": run}, seed=0)
    assert compared["accuracy"].notna().all() and (compared["n"] == 4 * ENTITIES).all()


def test_every_shape_is_held_out(trust: Trust) -> None:
    """By a function that forms beliefs, so that nothing is fitted."""
    evidence = nous.Evidence(CLAIMS, settled=SETTLED)

    def ask(told: nous.Evidence, seed: int) -> Beliefs:
        return trust.posteriors(told.with_settled(None), at=3.0)

    run = nous.cross_validate(ask, evidence, folds=2, by="entity")
    check_every_shape(run)
    whole = trust.posteriors(evidence.with_settled(None), at=3.0)
    for name in ("n", "accuracy", "log_loss", "brier"):
        assert run.scores[name] == pytest.approx(whole.score(SETTLED)[name], rel=1e-3)
    alone = nous.Evidence(CLAIMS, settled=SETTLED[SETTLED["attribute"] == "guests"])
    numbers = nous.cross_validate(ask, alone, folds=2)
    assert list(numbers.scores.index) == list(whole.score_numbers(SETTLED).index)
    assert "accuracy" not in repr(numbers) and len(numbers.pointwise) == ENTITIES


@pytest.mark.long
def test_cross_validation_scores_every_shape() -> None:
    evidence = nous.Evidence(CLAIMS, settled=SETTLED)
    check_every_shape(nous.cross_validate(MODEL, evidence, 2, "entity", FAST, learn_from="settled"))


@pytest.fixture
def fitted(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fit gives the same trust, so that none is waited for."""
    monkeypatch.setattr("nousppl.validation.Contestant.fit", lambda self, learned: trust)


@pytest.mark.usefixtures("fitted")
def test_forecasts_in_order_ask_every_shape() -> None:
    evidence = nous.Evidence(CLAIMS, settled=SETTLED)
    run = nous.prequential(MODEL, evidence, start=20.0, every=100, method=FAST, learn_from="settled")
    assert set(run.by_shape.index) == {"one of several", "any of several", "true for a while", "number"}
    assert len(run) == 4 * ENTITIES - 16 == len(run.settled)
    with pytest.raises(nous.ModelError, match=r"change=None; cross_validate takes those that change"):
        nous.prequential(nous.TrustModel(change="1"), evidence, start=20.0, every=100)


@pytest.mark.usefixtures("fitted")
def test_the_first_settling_of_a_state_is_what_is_asked(trust: Trust) -> None:
    """Known to be on at 1 and, later, to be off at 9: the forecast is about 1, of what was known then."""
    claims = CLAIMS[CLAIMS["attribute"] == "away"]
    states = SETTLED[SETTLED["attribute"] == "away"]
    twice = pd.DataFrame(
        {"entity": "e7", "attribute": "away", "value": [True, False], "time": [1.0, 9.0], "known_at": [50.0, 60.0]}
    )
    evidence = nous.Evidence(claims, settled=pd.concat([states[states["entity"] < "e7"], twice]))
    run = nous.prequential(MODEL, evidence, start=45.0, every=100, method=FAST, learn_from="settled")
    assert len(run) == 1 and run.settled["value"].tolist() == [True] and run.settled["time"].tolist() == [1.0]
    one = nous.Evidence(claims).question("e7", "away")
    asked = [trust.posterior(one, at=time).probabilities[True] for time in (1.0, 40.0)]
    assert run.pointwise["truth"].iloc[0] == pytest.approx(asked[0], abs=1e-4)
    # Far more than the tolerance with which the forecast is the first of the two.
    assert asked[0] > asked[1] + 0.005


def test_arviz_has_every_site_and_question(trust: Trust, evidence: nous.Evidence) -> None:
    import arviz

    asked = nous.Evidence(CLAIMS, settled=SETTLED)
    data = trust.to_arviz(evidence, log_likelihood=True, prior=True)
    for group in ("posterior", "prior"):
        found = data[group]
        assert found["numbers_log_slope"].dims[2:] == ("number attribute",)
        assert found["state_log_duration"].dims[2:] == ("state attribute",)
        assert found["items_logit_prevalence"].dims[2:] == ("set attribute",)
        assert found["number attribute"].values.tolist() == ["guests"]
        assert found["sensitivity_1|source"].dims[2:] == ("source",) == found["shift_1|source"].dims[2:]
    logs = data["log_likelihood"]["questions"]
    assert logs.sizes["question"] == 16 and np.isfinite(logs).all()
    assert set(logs["attribute"].values.tolist()) == {"allergy", "away", "colour", "guests"}
    assert "value" in data["observed_data"]
    with warnings.catch_warnings():
        # So few draws are no fit.
        warnings.simplefilter("ignore")
        assert np.isfinite(arviz.summary(data, kind="stats")["mean"].astype(float)).all()
        found = arviz.loo(data)
        assert np.isfinite(float(found.elpd_loo if "elpd_loo" in dir(found) else found.elpd))
    data = trust.to_arviz(asked, posterior_predictive=True)
    drawn, seen = data["posterior_predictive"], data["observed_data"]
    assert drawn["right"].sizes["fact"] == 12 == seen["right"].sizes["fact"]
    assert drawn["number"].sizes["number_fact"] == 4 == seen["number"].sizes["number_fact"]
    assert 0.0 < float(drawn["number"].mean()) < 30.0
    found = diagnostics.check(trust, evidence).table
    assert found["what"].notna().all()
    # Two colours, and a state is on or off: numbers, lists and ends are no answers that could be right by chance.
    assert found.loc["above chance", "limit"] == pytest.approx(0.5)


def test_single_beliefs_and_their_pictures(trust: Trust, evidence: nous.Evidence) -> None:
    from matplotlib import pyplot as plt

    for attribute in ("allergy", "away", "colour", "guests"):
        question = evidence.question("e5", attribute)
        belief = trust.posterior(question, at=3.0)
        assert belief.to_dict() and repr(belief) and belief._repr_html_()
        assert len(belief.history()) == (6 if attribute == "allergy" else 3)
        assert belief.effective_claims >= 0.0 and len(belief.points) == 5
        assert trust.program(question) is not None
        assert belief.plot() is not None
        with pytest.raises(nous.QuestionError, match="timeline: truths do not change in this model"):
            trust.timeline(question)
    plt.close("all")


def test_what_is_not_drawn_is_refused_in_words(evidence: nous.Evidence) -> None:
    from numpyro.infer import Predictive

    program = MODEL.program(evidence)
    with pytest.raises(Exception, match="a program draws no claims about numbers, lists of items and states"):
        Predictive(program, num_samples=1)(jax.random.key(0), observed=False)
    design = CLAIMS.drop(columns=["value", "until", "denies", "claim"], errors="ignore")
    with pytest.raises(nous.ModelError, match="is a number or true for a while, and what is ranked"):
        nous.simulation_based_calibration(MODEL, design, fits=2, settled=0.5)


def test_tables_of_beliefs(beliefs: Beliefs, trust: Trust, evidence: nous.Evidence) -> None:
    assert len(beliefs.frame) == 3 * ENTITIES and len(beliefs.numbers.frame) == ENTITIES
    assert repr(beliefs) and beliefs._repr_html_() and beliefs.calibration(SETTLED) is not None
    groups = beliefs.to_arviz(SETTLED)
    assert groups["predictions"].sizes["number_question"] == ENTITIES
    assert nous.compare({"a": trust, "b": trust}, evidence).shape[0] == 2
    assert len(trust.sources) == 4 and trust.groups is not None and trust.status
    again = trust.update(evidence, method=FAST)
    assert again.record["settled"] == 16


def test_report(trust: Trust, beliefs: Beliefs, evidence: nous.Evidence, tmp_path: Path) -> None:
    """All shapes in one, and numbers alone."""
    asked = [trust.posterior(evidence.question("e5", attribute)) for attribute in ("allergy", "away", "guests")]
    content = report.Content(
        title="All shapes",
        summary=["A fit."],
        sources=trust.sources,
        beliefs=beliefs,
        settled=SETTLED,
        explained=asked,
        examples=[report.Example("one", belief) for belief in asked],
    )
    report.write_report(tmp_path / "report.html", content)
    page = (tmp_path / "report.html").read_text()
    assert "Lists, item by item" in page and "ranked probability" in page and page.count("<img") > 4
    numbers = trust.posteriors(nous.Evidence(CLAIMS[CLAIMS["attribute"] == "guests"]))
    facts = SETTLED[SETTLED["attribute"] == "guests"]
    assert "ranked probability" in report.render(content._replace(beliefs=numbers, settled=facts))


def test_commands(trust: Trust, tmp_path: Path) -> None:
    claims, facts, saved, out = (tmp_path / name for name in ("claims.csv", "facts.csv", "trust.nc", "beliefs.csv"))
    CLAIMS.to_csv(claims, index=False)
    SETTLED.to_csv(facts, index=False)
    trust.save(saved)
    runner = CliRunner()

    def run(*words: Any) -> str:
        result = runner.invoke(cli.app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        return result.output

    for attribute in ("allergy", "away", "colour", "guests"):
        for more in ((), ("--json",)):
            assert run("posterior", saved, "--claims", claims, "--entity", "e5", "--attribute", attribute, *more)
    run("posteriors", saved, "--claims", claims, "--out", out, "--at", "3.0")
    text = run("score", out, "--settled", facts)
    assert "Lists, item by item" in text and "Numbers, in the unit of the values" in text and "top answer right" in text
