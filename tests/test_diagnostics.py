"""Every check of a fit fires on what it is for, and none on a healthy fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import multivariate_normal

import nousppl as nous
from nousppl import arviz_bridge, checks, diagnostics, importance
from nousppl.checks import Finding
from nousppl.diagnostics import check
from nousppl.fitting import learned_questions
from nousppl.inference import guide, nuts, options
from nousppl.simulate import World
from nousppl.trust import Trust

RNG = np.random.default_rng(0)
SPREADS = {"reliability_1|kind_sigma": (0.5, 0.41, 0.56, 0.42)}

# check -> function of whether it is to fire, and what its advice says then
CASES: dict[str, tuple[Callable[[bool], Finding], str]] = {
    "divergences": (lambda bad: checks.divergences(np.eye(2, 100) * bad), "2 of 200 draws diverged"),
    "R-hat": (lambda bad: checks.mixed_chains({"a": 1.0, "b": [1.0, 1.02 if bad else 1.005]}), "have not mixed"),
    "effective draws, bulk": (
        lambda bad: checks.enough_draws("bulk", {"a": [500.0, 90.0 if bad else 210.0]}, 2),
        "means are noisy: raise num_samples .* factor of 3",
    ),
    "effective draws, tail": (
        lambda bad: checks.enough_draws("tail", {"a": 90.0 if bad else 210.0}, 2),
        "ends of intervals are noisy",
    ),
    "tree depth": (lambda bad: checks.tree_depth(np.arange(200) < (10 if bad else 1)), "5% of the trajectories"),
    "energy (E-BFMI)": (lambda bad: checks.energy([0.9, 0.2 if bad else 0.8]), "slowly through the tails"),
    "finite loss": (lambda bad: checks.finite([1.0, np.nan if bad else 1.0]), "diverged .* lower learning_rate"),
    "settled": (lambda bad: checks.settled(not bad, 100), r"stopped after 100 steps .*SVI\(steps=400\)"),
    "loss at rest": (
        lambda bad: checks.falling(RNG.normal(np.repeat([105.0 if bad else 100.0, 100.0], 100), 5.0)),
        "loss still falls",
    ),
    "covariance": (lambda bad: checks.together(["a"] * bad, 300), r"independent of all others.*full_size=300"),
    "guide (Pareto k)": (lambda bad: checks.guide_shape(0.9 if bad else 0.5, True), "take intervals with care"),
    "above chance": (
        lambda bad: checks.mirrored([0.2, 0.8], [9, 1] if bad else [1, 9], 0.5, 0),
        "50% of the sources .* nothing is settled, so the fit may hold liars for honest",
    ),
    "echoes identified": (lambda bad: checks.echoes(0.1 if bad else 0.5), "not identified: .* settle facts|Settle"),
    "groups learned": (
        lambda bad: checks.groups_learned(SPREADS if bad else {"x_sigma": (0.5, 0.2, 0.56, 0.42)}, 40),
        r"the settled facts \(40\) do not tell how much",
    ),
    "prior and data": (
        lambda bad: checks.conflict({"a": (0.3, 0.2 if bad else 0.01), "b": (0.01, 0.3)}, 0.05),
        "different directions",
    ),
    "leave one out (Pareto k)": (
        lambda bad: checks.leave_one_out([0.9 if bad else 0.3, 0.1, np.nan if bad else 0.1], 0.7, ["p", "q", "r"]),
        "66.7% of the questions",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_check_fires_and_stays_silent(name: str) -> None:
    make, said = CASES[name]
    fired, silent = make(True), make(False)
    assert fired.check == silent.check == name
    assert fired.fired and re.search(said, fired.advice), fired.advice
    assert not silent.fired and silent.advice == silent.what == ""


def test_a_finding_names_the_worst_first_and_counts_the_rest() -> None:
    r_hat = {f"site{i}": 1.02 + i / 100 for i in range(7)} | {"stuck": np.nan, "fine": 1.0}
    found = checks.mixed_chains(r_hat)
    assert found.what.startswith("stuck (inf), site6 (1.080), site5 (1.070)") and found.what.endswith("and 3 more")
    assert checks.leave_one_out([0.8, 0.9], 0.7, ["p", "q"]).what == "q, p"
    assert checks.groups_learned(SPREADS, 3).what == "reliability_1|kind"


def test_a_group_that_the_data_moved_away_counts_as_learned() -> None:
    assert not checks.groups_learned({"x_sigma": (1.4, 0.41, 0.56, 0.42)}, 40).fired


def test_where_facts_are_settled_low_reliability_has_another_cause() -> None:
    assert "though 50 facts are settled: see whether they are worded" in checks.mirrored([0.2], [3], 0.5, 50).advice
    assert "raise steps" in checks.guide_shape(2.0, False).advice


# -------------------------------------------------------------------------------------------------------------- fits


def model(small: World, **given: Any) -> nous.TrustModel:
    errors = nous.Errors(difficulty=False)
    origin = nous.Origin("same_channel", lag=False)
    return nous.TrustModel("1 + (1|source)", "1", origin, errors, answers=small.answers, **given)


@pytest.fixture(scope="module")
def healthy(small: World, evidence: nous.Evidence) -> Trust:
    """Priors that agree with the world, as many steps as are needed, enough draws."""
    priors = {"reliability": {"source": dist.HalfNormal(1.5)}, "origin": {"strangers": dist.Normal(-3.0, 1.0)}}
    return model(small, priors=priors).fit(evidence, nous.SVI(draws=1000), seed=1)


def crowd() -> tuple[pd.DataFrame, pd.DataFrame]:
    """150 questions of two answers, each answered by 12 sources that are mostly right."""
    rng = np.random.default_rng(0)
    right = 1 / (1 + np.exp(-rng.normal(1.2, 0.8, 12)))
    truth = rng.integers(2, size=150)
    said = np.where(rng.random((150, 12)) < right, truth[:, None], 1 - truth[:, None])
    rows = [(f"q{i:03d}", "x", f"s{j:02d}", int(said[i, j])) for i in range(150) for j in range(12)]
    facts = pd.DataFrame({"entity": [f"q{i:03d}" for i in range(150)], "attribute": "x", "value": truth})
    return pd.DataFrame(rows, columns=["entity", "attribute", "source", "value"]), facts


def plain(**priors: Any) -> nous.TrustModel:
    errors = nous.Errors(difficulty=False, popularity=False)
    return nous.TrustModel(origin=None, errors=errors, answers={"x": [0, 1]}, priors={"reliability": priors})


def test_a_healthy_variational_fit(healthy: Trust, evidence: nous.Evidence) -> None:
    report = check(healthy, evidence)
    assert report.ok and not len(report.found) and report.left_out == {}, str(report)
    assert "10 checks, nothing found" in str(report)
    assert (report.table["advice"] == "").all()


@pytest.mark.long
def test_a_healthy_fit_by_sampling() -> None:
    claims, facts = crowd()
    known = nous.Evidence(claims, settled=facts)
    trust = plain(source=dist.HalfNormal(1.5)).fit(known, nous.NUTS(num_samples=1500), seed=1)
    report = check(trust, known)
    assert report.ok and report.left_out == {}, str(report)
    assert set(report.table.index) >= {"divergences", "R-hat", "tree depth", "energy (E-BFMI)"}
    assert {"lp", "n_steps", "acceptance_rate"} <= set(trust.sample_stats)


@pytest.mark.slow
def test_chains_that_hardly_warmed_up() -> None:
    claims, facts = crowd()
    known = nous.Evidence(claims, settled=facts)
    kernel = {"max_tree_depth": 2}
    trust = plain().fit(known, nous.NUTS(num_warmup=20, num_samples=50, kernel=kernel), seed=1)
    found = check(trust).found
    assert {"R-hat", "effective draws, bulk", "effective draws, tail", "tree depth"} <= set(found.index)
    assert "reliability_Intercept" in found.loc["R-hat", "what"]


def test_a_fit_that_was_cut_short(small: World, evidence: nous.Evidence) -> None:
    """Some questions are not settled, and some were settled after the fit."""
    known = nous.Evidence(small.claims, settled=small.settled.iloc[:150])
    trust = model(small).fit(known, nous.SVI(steps=50, draws=1000), seed=1)
    report = check(trust, evidence)
    assert {"settled", "guide (Pareto k)"} <= set(report.found.index) and report.left_out == {}
    pd.testing.assert_frame_equal(report.table, check(trust, known).table)
    assert "- settled: 0 (limit 1)\n  the fit was stopped after 100 steps" in str(report)


def test_small_steps_that_end_too_early(small: World, evidence: nous.Evidence) -> None:
    trust = model(small).fit(evidence, nous.SVI(steps=200, learning_rate=0.002), seed=1)
    assert "loss at rest" in check(trust).found.index


def test_liars_by_prior_without_a_settled_fact() -> None:
    claims, _ = crowd()
    liars = plain(**{"1": dist.Normal(-1.5, 0.05), "source": dist.HalfNormal(0.1)})
    trust = liars.fit(nous.Evidence(claims), nous.SVI(draws=50), seed=1)
    row = check(trust).found.loc["above chance"]
    assert row["value"] < 0.4 and row["limit"] == 0.5 and "settle some facts" in row["advice"]


def test_one_question_teaches_nothing(small: World, evidence: nous.Evidence) -> None:
    few = evidence.subset([0])
    trust = model(small).fit(few, nous.SVI(full_size=5, draws=2000, weighed=4000), seed=1, learn_from="settled")
    found = check(trust).found
    assert set(found.index) == {"covariance", "echoes identified", "groups learned"}
    assert found.loc["covariance", "what"] == "reliability_1|source"
    assert "the settled facts (1) do not tell" in found.loc["groups learned", "advice"]
    assert "echoes not identified" in trust.status


def test_a_prior_against_the_data(small: World, evidence: nous.Evidence) -> None:
    """The priors of `healthy`, but for a typical source that is more often wrong than right."""
    priors = {
        "reliability": {"1": dist.Normal(-1.0, 0.5), "source": dist.HalfNormal(1.5)},
        "origin": {"strangers": dist.Normal(-3.0, 1.0)},
    }
    trust = model(small, priors=priors).fit(evidence, nous.SVI(draws=1000), seed=1)
    row = check(trust, evidence).found.loc["prior and data"]
    assert "reliability_1|source_sigma" in row["what"] and row["value"] > 0.08


def test_too_few_draws_to_leave_questions_out(healthy: Trust, evidence: nous.Evidence) -> None:
    """With so few draws many a question has too long a tail."""
    few = replace(healthy, posterior_draws={n: v[:, :25] for n, v in healthy.posterior_draws.items()})
    report = check(few, evidence)
    assert report.left_out["prior and data"].startswith("25 draws are too few to weight: fit with 1,000 or more")
    row = report.found.loc["leave one out (Pareto k)"]
    assert row["value"] > 0.01 and " · status" in row["what"]
    fewer = replace(few, posterior_draws={n: v[:, :24] for n, v in few.posterior_draws.items()})
    assert check(fewer, evidence).left_out["leave one out (Pareto k)"].startswith("24 draws are too few to leave")


def test_every_check_has_a_case(healthy: Trust) -> None:
    sampled = replace(
        healthy, record={**healthy.record, "method": "nuts"}, sample_stats={"diverging": np.zeros((1, 9))}
    )
    made = {name for trust in (healthy, sampled) for name, _ in diagnostics._checks(trust, None)}
    assert made == set(CASES)


# ----------------------------------------------------------------------------------------------------------- reports


def test_the_report_is_shown(healthy: Trust) -> None:
    broken = replace(healthy, record={**healthy.record, "converged": False})
    report = check(broken)
    assert not report.ok and report.table.columns.tolist() == ["ok", "what", "value", "limit", "advice"]
    assert "7 checks, 1 found something" in repr(report)
    assert "guide (Pareto k): not checked, it needs the evidence" in str(report)
    page = report._repr_html_()
    assert "<table>" in page and "raise steps" in page and "not checked" in page


def test_a_trust_from_a_file(healthy: Trust, evidence: nous.Evidence, tmp_path: Path) -> None:
    healthy.save(tmp_path / "trust.nc")
    report = check(nous.load(tmp_path / "trust.nc"), evidence)
    assert report.ok and set(report.left_out) == {"covariance", "guide (Pareto k)"}


def test_statistics_of_the_sampler_are_kept_in_the_file(healthy: Trust, tmp_path: Path) -> None:
    draws = {n: v.reshape(2, -1, *v.shape[2:]) for n, v in healthy.posterior_draws.items()}
    rng = np.random.default_rng(0)
    stats = {
        "diverging": np.arange(1000).reshape(2, 500) == 3,
        "reached_max_treedepth": np.ones((2, 500), bool),
        "energy": rng.normal(size=(2, 500)).cumsum(1),
    }
    record = {**healthy.record, "method": "nuts"}
    replace(healthy, posterior_draws=draws, sample_stats=stats, record=record).save(tmp_path / "new.nc")
    found = check(nous.load(tmp_path / "new.nc")).found
    assert found.index.tolist() == ["divergences", "tree depth", "energy (E-BFMI)"]
    assert found.loc["energy (E-BFMI)", "what"].startswith("chain 0 (0.0")
    older = replace(healthy, posterior_draws=draws, sample_stats={"diverging": stats["diverging"]}, record=record)
    why = check(older).left_out
    assert why["tree depth"] == why["energy (E-BFMI)"] == diagnostics.OLD_FILE


def test_what_cannot_be_checked(healthy: Trust, evidence: nous.Evidence) -> None:
    with pytest.raises(nous.QuestionError, match="diagnostics.check: draws of the priors, nothing was learned"):
        check(nous.default_trust())
    with pytest.raises(nous.QuestionError, match=r"diagnostics.check: learned from 200 settled truths"):
        check(healthy, evidence.subset([0, 1]))
    cut = replace(healthy, record={**healthy.record, "learn_from": "cut"})
    assert check(cut, evidence).left_out == {"guide (Pareto k)": "a cut has no joint density"}


# ------------------------------------------------------------------------------------------------------ the quantities


def test_the_density_of_the_guide_is_that_of_its_draws() -> None:
    rng = np.random.default_rng(3)
    state = guide.State(*(rng.normal(size=shape) for shape in ((5,), (3, 3), (2,))))
    lower = np.zeros((5, 5))
    lower[:3, :3] = np.asarray(guide.cholesky(state))
    lower[[3, 4], [3, 4]] = np.exp(state.log_scale)
    vectors = guide.draw(state, 0, 50)
    expected = multivariate_normal(state.mean, lower @ lower.T).logpdf(vectors)
    np.testing.assert_allclose(guide.log_density(state, vectors), expected, rtol=1e-5)


@pytest.mark.parametrize("k", [0.3, 0.9])
def test_the_shape_of_a_known_tail_is_found(k: float) -> None:
    """U ** -k has a Pareto tail of shape k; its inverse has none."""
    logs = k * np.random.default_rng(1).exponential(size=20_000)
    assert arviz_bridge.pareto_k(logs) == pytest.approx(k, abs=0.2)
    assert arviz_bridge.pareto_k(-logs) < 0


def test_copies_of_draws_do_not_lengthen_the_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 draws with the tails of normal log likelihoods, taken by importance until they are 6,000."""
    rng = np.random.default_rng(0)
    weight, logs = rng.gamma(0.5, size=300), rng.normal(scale=0.3, size=(300, 200))
    taken = np.searchsorted(np.cumsum(weight) / weight.sum(), (np.arange(6000) + 0.5) / 6000)
    likelihood = xr.DataArray(logs[taken][None], dims=("chain", "draw", "question"))
    posterior = xr.Dataset({"x": (("chain", "draw"), rng.normal(size=(1, 6000)))})
    kish = weight.sum() ** 2 / np.square(weight).sum()
    assert arviz_bridge.efficiency(likelihood) == pytest.approx(kish / 6000, rel=0.01)
    assert arviz_bridge.efficiency(likelihood[:, np.unique(taken, return_index=True)[1]]) == 1.0

    def too_large() -> float:
        found = arviz_bridge.loo(likelihood, posterior)
        return float((~(found.pareto_k <= found.good_k)).mean())

    assert too_large() <= checks.LOO_SHARE
    monkeypatch.setattr(arviz_bridge, "efficiency", lambda _: 1.0)
    assert too_large() > 3 * checks.LOO_SHARE


def test_batches_give_the_ratios_of_the_whole(
    healthy: Trust, evidence: nous.Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = healthy.encoded(evidence)
    given = (healthy.blueprint, encoded, healthy.svi, "settled", 1, 20)
    whole = importance.log_ratios(*given)
    monkeypatch.setattr(options.SVI, "batch_claims", 700)
    parts = importance.split(learned_questions(encoded, "settled"), encoded, 700, 1)
    assert len(parts) > 2
    np.testing.assert_allclose(importance.log_ratios(*given), whole, atol=0.02)


def test_statistics_of_the_sampler_have_the_names_of_arviz() -> None:
    steps = np.array([[1, 3, 7, 1023, 600]])
    zeros = np.zeros((1, 5))
    found = {
        "diverging": zeros,
        "num_steps": steps,
        "potential_energy": zeros + 2,
        "energy": zeros,
        "accept_prob": zeros,
    }
    stats = nuts.statistics(found, 10)
    assert stats["tree_depth"].tolist() == [[1, 2, 3, 10, 10]]
    assert stats["reached_max_treedepth"].tolist() == [[False, False, False, True, True]]
    assert (stats["lp"] == -2).all()
    assert nuts.statistics(found, (12, 3))["reached_max_treedepth"].tolist() == [[False, False, True, True, True]]
