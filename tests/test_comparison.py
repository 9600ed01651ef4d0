"""Trusts compared by leave-one-out and held-out forecasts compared in pairs; how far priors are behind a trust."""

from __future__ import annotations

import gc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from voting import vote

import nousppl as nous
from nousppl import arviz_bridge, asking, saving
from nousppl.comparison import paired, permutation_p, sign_p
from nousppl.held_out import CrossValidation
from nousppl.power_scaling import log_prior
from nousppl.simulate import World
from nousppl.trust import Trust

OPTIONS = nous.SVI(draws=400)


def model(small: World, echoes: bool, **options: Any) -> nous.TrustModel:
    origin = nous.Origin("same_channel", lag=False) if echoes else None
    return nous.TrustModel(
        "1 + (1|source)", origin=origin, errors=nous.Errors(difficulty=False), answers=small.answers, **options
    )


@pytest.fixture(scope="module")
def trust(small: World, evidence: nous.Evidence) -> Trust:
    return model(small, echoes=True).fit(evidence, OPTIONS, seed=1)


@pytest.fixture(scope="module")
def blind(small: World, evidence: nous.Evidence) -> Trust:
    """A trust that knows no echoes, in a world full of them."""
    return model(small, echoes=False).fit(evidence, OPTIONS, seed=1)


# ---------------------------------------------------------------------------------------------------- log likelihood


def test_the_log_likelihood_is_that_behind_the_beliefs(trust: Trust, small: World) -> None:
    """p(truth | claims) under a draw is p(claims, truth) / p(claims)."""
    bare = nous.Evidence(small.claims)
    told = trust.log_likelihood(nous.Evidence(small.claims, settled=small.settled))
    assert told.dims == ("chain", "draw", "question") and told.shape == (1, 400, 200)
    ratio = np.exp(told.values - trust.log_likelihood(bare).values)[0].mean(0)
    beliefs = trust.posteriors(bare, draws=400)
    facts = beliefs.match(small.settled)
    expected = np.empty(200)
    # A truth that nobody named is one of those that "other" stands for.
    expected[beliefs.cell_question[facts.cell]] = (beliefs.probability / beliefs.cell_count)[facts.cell]
    np.testing.assert_allclose(ratio, expected, rtol=1e-4)
    assert told.coords["entity"].values.tolist() == beliefs.questions["entity"].tolist()


def test_many_questions_are_taken_in_parts(
    trust: Trust, evidence: nous.Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trust.log_likelihood(evidence)
    monkeypatch.setattr(asking, "CHUNK", 1600)
    np.testing.assert_allclose(trust.log_likelihood(evidence), whole, rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------------------ trusts


def test_a_worse_model_is_ranked_worse(trust: Trust, blind: Trust) -> None:
    table = nous.compare({"none": blind, "echoes": trust})
    assert table.index.tolist() == ["echoes", "none"]
    assert table.loc["echoes", "elpd_diff"] == 0.0 == table.loc["echoes", "diff_se"]
    assert table.loc["none", "elpd_diff"] < -5 * table.loc["none", "diff_se"] < 0.0
    assert table.loc["none", "elpd"] - table.loc["echoes", "elpd"] == pytest.approx(table.loc["none", "elpd_diff"])
    assert table["weight"].sum() == pytest.approx(1.0) and table.loc["echoes", "weight"] > 0.9
    assert (table["n"] == 200).all() and (table["parameters"] > 0).all()
    other_way = nous.compare({"none": blind, "echoes": trust}, reference="none")
    assert other_way.loc["echoes", "elpd_diff"] == pytest.approx(-table.loc["none", "elpd_diff"])


def test_leave_one_out_is_near_what_a_fit_without_the_questions_gives(
    trust: Trust, small: World, evidence: nous.Evidence
) -> None:
    """Ten questions that a second fit has never seen, by their density under that fit."""
    out = np.arange(0, 200, 20)
    rest = evidence.subset(np.setdiff1d(np.arange(200), out))
    logs = model(small, echoes=True).fit(rest, OPTIONS, seed=1).log_likelihood(evidence.subset(out)).values[0]
    direct = np.logaddexp.reduce(logs, axis=0) - np.log(len(logs))
    found = arviz_bridge.loo(trust.log_likelihood(evidence), saving.datasets(trust)["posterior"]).elpd[out]
    assert abs((found - direct).sum()) < 1.0
    within = trust.log_likelihood(evidence).values[0, :, out].T
    assert (np.logaddexp.reduce(within, axis=0) - np.log(400)).sum() > found.sum()


def test_too_few_draws_are_told(trust: Trust, blind: Trust) -> None:
    few = {
        name: replace(one, posterior_draws={n: v[:, :25] for n, v in one.posterior_draws.items()})
        for name, one in (("echoes", trust), ("none", blind))
    }
    one = few["none"]
    fewer = few | {"none": replace(one, posterior_draws={n: v[:, :24] for n, v in one.posterior_draws.items()})}
    with pytest.raises(nous.InferenceError, match=r"^24 draws are too few to leave questions out by importance"):
        nous.compare(fewer)
    table = nous.compare(few)
    assert (table["bad_k"] > 0).all()
    assert table["note"].str.contains(r"% of the questions have a Pareto k above 0.28: take more draws").all()


def test_trusts_of_other_questions_are_refused(
    trust: Trust, blind: Trust, evidence: nous.Evidence, small: World, tmp_path: Path
) -> None:
    fewer = evidence.with_settled(small.settled.iloc[:150])
    part = model(small, echoes=False).fit(fewer, nous.SVI(steps=100), seed=1)
    with pytest.raises(nous.QuestionError, match=r"'a' was learned from 200 questions and 'b' from 150, not the same"):
        nous.compare({"a": trust, "b": part})
    with pytest.raises(nous.QuestionError, match=r"b: learned from 150 settled truths .* this evidence has 200 of 200"):
        nous.compare({"a": trust, "b": part}, evidence)
    with pytest.raises(nous.QuestionError, match="b: draws of the priors, nothing was learned"):
        nous.compare({"a": trust, "b": nous.default_trust()}, evidence)
    blind.save(tmp_path / "trust.nc")
    read = nous.load(tmp_path / "trust.nc")
    with pytest.raises(nous.QuestionError, match="b: the evidence of the fit is not at hand any more; give it as"):
        nous.compare({"a": trust, "b": read})
    assert nous.compare({"a": blind, "b": read}, evidence)["elpd_diff"].tolist() == [0.0, 0.0]
    assert trust.evidence is evidence
    del fewer
    gc.collect()
    assert part.evidence is None


def test_what_cannot_be_compared(trust: Trust, by_vote: CrossValidation) -> None:
    with pytest.raises(nous.QuestionError, match="1 candidates given; at least 2"):
        nous.compare({"a": trust})
    with pytest.raises(nous.QuestionError, match=r"'b': 'CrossValidation'.*allowed are only Trust, or only"):
        nous.compare({"a": trust, "b": by_vote})
    with pytest.raises(nous.QuestionError, match=r"reference='c' is none of the candidates \['a', 'b'\]"):
        nous.compare({"a": by_vote, "b": by_vote}, reference="c")


# ------------------------------------------------------------------------------------------------- held-out forecasts


def noisy(evidence: nous.Evidence, seed: int) -> nous.Beliefs:
    """The vote, with the answers of every third question swapped round."""
    beliefs = vote(evidence, seed)
    turned = beliefs.probability.copy()
    for q in range(0, len(beliefs), 3):
        cells = np.flatnonzero(beliefs.cell_question == q)
        turned[cells] = np.roll(turned[cells], 1)
    return replace(beliefs, probability=turned)


@pytest.fixture(scope="module")
def by_vote(evidence: nous.Evidence) -> CrossValidation:
    return nous.cross_validate(vote, evidence)


def test_a_worse_forecaster_is_ranked_worse(evidence: nous.Evidence, by_vote: CrossValidation) -> None:
    worse = nous.cross_validate(noisy, evidence, folds=4)
    table = nous.compare({"noisy": worse, "vote": by_vote})
    assert table.index.tolist() == ["vote", "noisy"] and (table["n"] == 200).all()
    line = table.loc["noisy"]
    assert line["log_loss_diff"] > 3 * line["log_loss_se"] > 0 and line["log_loss_p"] < 0.001
    assert line["accuracy_diff"] < -3 * line["accuracy_se"] < 0 and line["accuracy_p"] < 0.001
    assert line["log_loss"] - table.loc["vote", "log_loss"] == pytest.approx(line["log_loss_diff"])
    both = worse.pointwise.merge(by_vote.pointwise, on=["entity", "attribute"])
    gap = both["log_loss_x"] - both["log_loss_y"]
    assert line["log_loss_se"] == pytest.approx(gap.std() / np.sqrt(200))


def test_equals_differ_by_nothing(by_vote: CrossValidation) -> None:
    table = nous.compare({"a": by_vote, "b": by_vote})
    assert table["log_loss_diff"].tolist() == table["accuracy_diff"].tolist() == [0.0, 0.0]
    assert table["log_loss_p"].tolist() == table["accuracy_p"].tolist() == [1.0, 1.0]


def test_other_questions_or_truths_are_refused(evidence: nous.Evidence, small: World, by_vote: CrossValidation) -> None:
    fewer = nous.cross_validate(vote, evidence.with_settled(small.settled.iloc[:190]))
    with pytest.raises(
        nous.QuestionError, match=r"'a' held out 200 questions and 'b' 190: 10 are not in both, first \('e"
    ):
        nous.compare({"a": by_vote, "b": fewer})
    entity = small.claims["entity"].iloc[0]
    wrong = small.settled.assign(value=small.settled["value"].where(small.settled["entity"] != entity, "else"))
    other = nous.cross_validate(vote, evidence.with_settled(wrong))
    with pytest.raises(
        nous.QuestionError, match=r"settled truths of 'a' and 'b' differ in 1 of 200 questions, first \('"
    ):
        nous.compare({"a": by_vote, "b": other})


def test_the_two_tests_keep_their_level() -> None:
    """Where there is no difference p is below .1 in about a tenth of 200 samples: between 6 and 38, or 1 in 10,000."""
    rng = np.random.default_rng(0)
    permuted = [permutation_p(rng.standard_t(3, size=40), seed) for seed in range(200)]
    assert 6 < np.sum(np.array(permuted) < 0.1) < 38
    signs = [sign_p(rng.random(60) < 0.5, rng.random(60) < 0.5) for _ in range(200)]
    assert np.sum(np.array(signs) < 0.1) < 38
    assert permutation_p(rng.standard_normal(40) + 1.0, 0) < 0.001
    assert sign_p(np.ones(12, bool), np.zeros(12, bool)) == pytest.approx(2.0**-11)
    assert paired(np.array([1.0, 2, 4]), np.array([1.0, 1, 1])) == pytest.approx(
        (4 / 3, np.std([0, 1, 3], ddof=1) / 3**0.5)
    )
    assert np.isnan(paired(np.ones(1), np.zeros(1))[1])


# ------------------------------------------------------------------------------------------------------- sensitivity


def test_a_conflicting_prior_is_flagged(small: World, evidence: nous.Evidence, trust: Trust) -> None:
    """Sources are right far more often than a confident prior has it; the wide default prior is no trouble."""
    name = "reliability_Intercept"
    prior = {"reliability": {"1": dist.Normal(-3.0, 0.3)}}
    wrong = model(small, echoes=True, priors=prior).fit(evidence, OPTIONS, seed=1)
    table, usual = nous.sensitivity(wrong), nous.sensitivity(trust)
    assert table.loc[name, "prior"] > 0.15 > usual.loc[name, "prior"]
    assert table.loc[name, "diagnosis"] == "prior and data may be in conflict"
    alone = nous.sensitivity(wrong, priors=[name])
    assert alone.loc[name, "prior"] > 0.15
    without = nous.sensitivity(wrong, priors=["errors_log_popularity"])
    assert without.loc[name, "prior"] < 0.05
    assert set(table.index) == set(trust.posterior_draws)
    assert table.loc["reliability_1|source", "level"] in set(small.claims["source"])


def test_a_prior_that_alone_decides_is_flagged(small: World, evidence: nous.Evidence) -> None:
    """With next to no data the posterior is the prior."""
    few = evidence.subset([0])
    lone = model(small, echoes=True).fit(few, OPTIONS, seed=1, learn_from="settled")
    table = nous.sensitivity(lone, few)
    line = table.loc["errors_log_popularity"]
    assert line["prior"] >= 0.05 > line["likelihood"]
    assert line["diagnosis"] == "the prior is strong or the data say little"


def test_the_prior_density_is_that_of_the_top_level(trust: Trust) -> None:
    found = log_prior(trust)
    draws = trust.posterior_draws["reliability_Intercept"]
    np.testing.assert_allclose(found["reliability_Intercept"], dist.Normal(1.1, 1.0).log_prob(draws), rtol=1e-5)
    assert "reliability_1|source_sigma" in found and "reliability_1|source" not in found
    with pytest.raises(nous.QuestionError, match=r"priors: no parameter 'tau'; there are \['reliability_Intercept'"):
        nous.sensitivity(trust, priors=["tau"])


# ------------------------------------------------------------------------------------------------------------- arviz


@pytest.mark.parametrize(("version", "first"), [("0.23.4", True), ("1.0.0", False), ("2.1", False)])
def test_the_version_tells_which_container_arviz_has(
    version: str, first: bool, monkeypatch: pytest.MonkeyPatch, trust: Trust
) -> None:
    monkeypatch.setattr(arviz_bridge, "version", lambda name: version)
    assert arviz_bridge.first_line() == first
    if not first:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = arviz_bridge.container({"posterior": xr.Dataset({"x": (("chain", "draw"), np.zeros((1, 2)))})})
        assert isinstance(tree, xr.DataTree) and tree["posterior/x"].shape == (1, 2)
        assert isinstance(nous.Beliefs.from_frame(_one()).to_arviz(), xr.DataTree)


def _one() -> pd.DataFrame:
    return pd.DataFrame({"entity": ["e"], "attribute": ["a"], "answer": ["x"], "probability": [1.0]})
