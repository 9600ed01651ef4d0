"""Cross-validation and forecasts in order: what is hidden stays hidden, and what leaks would show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from voting import vote

import nousppl as nous
from nousppl.compile import compile_problem
from nousppl.folds import assign, groups_of, settled_questions
from nousppl.held_out import CrossValidation
from nousppl.inference import exact, svi
from nousppl.padding import SIZES, Mould
from nousppl.simulate import World

FORMULA = "1 + (1|source)"


@pytest.fixture(scope="module")
def by_vote(evidence: nous.Evidence) -> CrossValidation:
    return nous.cross_validate(vote, evidence)


@pytest.fixture(scope="module")
def model(small: World) -> nous.TrustModel:
    return nous.TrustModel(FORMULA, origin=nous.Origin("same_channel", lag=False), answers=small.answers)


@pytest.fixture(scope="module")
def by_model(model: nous.TrustModel, evidence: nous.Evidence) -> CrossValidation:
    return nous.cross_validate(model, evidence, folds=3, seed=1)


# ------------------------------------------------------------------------------------------------------------- folds


def test_every_settled_question_is_held_out_once(by_vote: CrossValidation, small: World) -> None:
    keys = ["entity", "attribute"]
    asked = by_vote.beliefs.questions
    assert not asked.duplicated().any()
    assert set(map(tuple, asked.to_numpy())) == set(map(tuple, small.settled[keys].to_numpy()))
    assert by_vote.by_fold["n"].sum() == len(by_vote) == by_vote.scores["n"]
    assert (by_vote.by_fold["n"] + by_vote.by_fold["learned"] == len(small.settled)).all()
    assert not by_vote.beliefs.seen.any() and by_vote.scores["seen"] == 0
    pd.testing.assert_frame_equal(by_vote.folds[keys], asked[keys])


def test_the_folds_do_not_depend_on_the_order_of_rows(small: World, by_vote: CrossValidation) -> None:
    shuffled = nous.Evidence(small.claims.sample(frac=1, random_state=1), small.settled.sample(frac=1, random_state=2))
    again = nous.cross_validate(vote, shuffled)
    pd.testing.assert_frame_equal(again.folds, by_vote.folds)
    np.testing.assert_array_equal(again.beliefs.probability, by_vote.beliefs.probability)


def test_a_question_stays_in_its_fold_whatever_else_there_is(small: World, by_vote: CrossValidation) -> None:
    kept = small.settled["entity"].iloc[:150]
    claims = small.claims[small.claims["entity"].isin(kept)]
    fewer = nous.cross_validate(vote, nous.Evidence(claims, small.settled.iloc[:150]))
    both = fewer.folds.merge(by_vote.folds, on=["entity", "attribute"])
    assert len(both) == 150 and (both["fold_x"] == both["fold_y"]).all()


def test_another_seed_gives_other_folds_of_about_equal_size(evidence: nous.Evidence) -> None:
    asked, _ = settled_questions(evidence)
    groups = groups_of(evidence, asked, "question")
    one, two = assign(groups, 5, 0), assign(groups, 5, 1)
    assert 0.6 < (one != two).mean() < 0.95
    many = assign(np.array([f"q{i}" for i in range(10_000)], object), 5, 0)
    assert np.abs(np.bincount(many) - 2000).max() < 4 * np.sqrt(1600)


def test_groups_are_held_out_together(small: World) -> None:
    day = pd.util.hash_array(small.claims["entity"].to_numpy(object)) % 11
    evidence = nous.Evidence(small.claims.assign(day=day.astype(np.int64)), settled=small.settled)
    result = nous.cross_validate(vote, evidence, by="day")
    fold_of = result.folds.set_index("entity")["fold"]
    table = pd.DataFrame({"day": pd.Series(day, small.claims["entity"]).groupby(level=0).first(), "fold": fold_of})
    assert (table.groupby("day")["fold"].nunique() == 1).all()
    entities = nous.cross_validate(vote, evidence, by="entity").folds
    assert (entities.groupby("entity")["fold"].nunique() == 1).all()


def test_what_cannot_be_a_fold_is_refused(evidence: nous.Evidence, small: World) -> None:
    with pytest.raises(nous.EvidenceError, match=r"no column 'colour' to take folds by. Allowed: 'question'"):
        nous.cross_validate(vote, evidence, by="colour")
    with pytest.raises(nous.EvidenceError, match=r"'source' is missing or takes several values within a question in"):
        nous.cross_validate(vote, evidence, by="source")
    part = small.claims.assign(day="monday")
    part.loc[part.index[5], "day"] = None
    with pytest.raises(
        nous.EvidenceError, match=r"'day' is missing or takes several values within a question in \d of"
    ):
        nous.cross_validate(vote, nous.Evidence(part, small.settled), by="day")
    with pytest.raises(nous.EvidenceError, match=r"folds=5: all 1 groups of settled questions fall into one fold"):
        nous.cross_validate(vote, nous.Evidence(small.claims.assign(day="monday"), small.settled), by="day")
    with pytest.raises(nous.EvidenceError, match="folds=1: at least 2"):
        nous.cross_validate(vote, evidence, folds=1)
    with pytest.raises(nous.EvidenceError, match=r"none of 0 settled truths .* nothing to hold out"):
        nous.cross_validate(vote, nous.Evidence(small.claims))


# ----------------------------------------------------------------------------------------------- nothing is let slip


def test_a_fold_that_leaks_would_score_suspiciously_well(evidence: nous.Evidence, by_vote: CrossValidation) -> None:
    """The same forecaster told the truth has no errors; ours, whose evidence hides it, errs as votes do."""
    leaked = vote(evidence, 0).score(evidence.settled)
    assert leaked["accuracy"] == 1.0 and leaked["log_loss"] < 1e-3
    told_nothing = vote(evidence.with_settled(None), 0).score(evidence.settled)
    assert by_vote.scores["log_loss"] == pytest.approx(told_nothing["log_loss"])
    assert by_vote.scores["accuracy"] == pytest.approx(told_nothing["accuracy"]) and by_vote.scores["accuracy"] < 0.9


def test_hidden_facts_and_their_answers_are_not_in_the_evidence(small: World) -> None:
    """Nor are rejections about hidden questions, nor answers that nobody but a fact names."""
    entity = small.settled["entity"].iloc[0]
    facts = small.settled.assign(verdict="true")
    facts.loc[facts["entity"] == entity, "value"] = "only the fact says so"
    no = facts[facts["entity"] == entity].assign(value="a rejected one", verdict="false")
    evidence = nous.Evidence(small.claims, settled=pd.concat([facts, no], ignore_index=True))
    handed: list[nous.Evidence] = []

    def watched(evidence: nous.Evidence, seed: int) -> nous.Beliefs:
        handed.append(evidence)
        return vote(evidence, seed)

    result = nous.cross_validate(watched, evidence)
    assert len(handed) == 5
    for number, part in enumerate(handed):
        hidden = set(result.folds.loc[result.folds["fold"] == number, "entity"])
        assert not hidden & set(part.settled["entity"])
        assert hidden <= set(part.questions["entity"])
        named = set(part.coded.answers["value"])
        assert ("only the fact says so" in named) == ("a rejected one" in named) == (entity not in hidden)
    assert len(evidence.hide([]).settled) == len(evidence.settled)


def test_a_fold_of_a_model_is_an_ordinary_fit_on_the_rest(
    model: nous.TrustModel, evidence: nous.Evidence, by_model: CrossValidation
) -> None:
    """Padding to a shared size changes nothing but rounding."""
    held = by_model.folds[by_model.folds["fold"] == 2]
    rest = evidence.settled[~evidence.settled["entity"].isin(held["entity"])]
    plain = model.fit(evidence.with_settled(rest), seed=1).posteriors(evidence.with_settled(rest)).frame
    both = by_model.beliefs.frame.merge(plain, on="entity", suffixes=("", "_plain"))
    both = both[both["entity"].isin(held["entity"])]
    assert len(both) == len(held)
    np.testing.assert_allclose(both["probability"], both["probability_plain"], atol=0.02)
    assert (both["answer"] == both["answer_plain"]).mean() > 0.98


def test_a_model_is_compiled_once_for_all_folds_and_results_are_those_of_the_seed(
    model: nous.TrustModel, evidence: nous.Evidence, by_model: CrossValidation
) -> None:
    svi.block_runner.cache_clear()
    exact.witnesses.clear_cache()
    again = nous.cross_validate(model, evidence, folds=3, seed=1)
    assert svi.block_runner.cache_info().misses == 1
    assert exact.witnesses._cache_size() == 1
    np.testing.assert_array_equal(again.beliefs.probability, by_model.beliefs.probability)


def test_a_mould_grows_only_when_something_does_not_fit(model: nous.TrustModel, evidence: nous.Evidence) -> None:
    trust = model.default_trust(draws=1)
    encoded = trust.encoded(evidence)
    sizes = [compile_problem(encoded, np.arange(n)).layout for n in (100, 104, 96, 180)]
    mould = Mould()
    first, same, smaller, larger = (mould.hold(layout, layout.slots) for layout in sizes)
    assert first == same == smaller != larger
    for layout, (held, claims) in zip(sizes, (first, same, smaller, larger), strict=True):
        assert claims >= layout.slots
        assert all(getattr(held, name) >= getattr(layout, name) for name in SIZES)


def test_a_model_beats_the_vote_where_sources_differ(by_model: CrossValidation, by_vote: CrossValidation) -> None:
    assert by_model.scores["log_loss"] < by_vote.scores["log_loss"]
    assert by_model.by_fold["converged"].all() and by_model.by_fold["status"].str.contains("settled facts").all()


# ----------------------------------------------------------------------------------------------------------- results


def test_scores_by_fold_add_up(by_vote: CrossValidation) -> None:
    table, points = by_vote.by_fold, by_vote.pointwise
    for column in ("accuracy", "log_loss"):
        assert np.average(table[column], weights=table["n"]) == pytest.approx(by_vote.scores[column])
    assert points["log_loss"].mean() == pytest.approx(by_vote.scores["log_loss"])
    assert points["right"].mean() == pytest.approx(by_vote.scores["accuracy"])
    np.testing.assert_allclose(points["confidence"], by_vote.beliefs.frame["probability"])
    assert by_vote.calibration()["n"].sum() == len(by_vote)


def test_displays(by_vote: CrossValidation, by_model: CrossValidation) -> None:
    assert repr(by_vote).startswith("CrossValidation(200 questions held out in 5 folds: accuracy 0.")
    assert "log_loss" in by_vote._repr_html_() and "<table>" in by_model._repr_html_()


def test_settled_questions_without_a_claim_are_counted(small: World) -> None:
    silent = small.settled["entity"].iloc[:3]
    claims = small.claims[~small.claims["entity"].isin(silent)]
    result = nous.cross_validate(vote, nous.Evidence(claims, small.settled))
    assert result.record["unasked"] == 3 and len(result) == 197
    assert "3 settled questions without a claim left out" in repr(result)


@pytest.mark.parametrize(
    ("forecaster", "error", "message"),
    [
        ("svi", nous.ModelError, "model='svi': allowed are a TrustModel, or a function"),
        (lambda evidence, seed: 1, nous.ModelError, r"gave int; allowed are Beliefs"),
        (
            lambda evidence, seed: vote(evidence.subset(range(50)), seed),
            nous.QuestionError,
            r"no belief about \d+ of \d+ questions that were asked; first: \('",
        ),
    ],
)
def test_forecasters_that_cannot_be_used(
    forecaster: Any, error: type[Exception], message: str, evidence: nous.Evidence
) -> None:
    with pytest.raises(error, match=message):
        nous.cross_validate(forecaster, evidence)


def test_progress_is_a_line_a_fold(evidence: nous.Evidence, capsys: pytest.CaptureFixture[str]) -> None:
    nous.cross_validate(vote, evidence, folds=3, progress=True)
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["fold 0", "fold 1", "fold 2"]
