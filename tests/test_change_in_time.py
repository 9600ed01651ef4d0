"""Truths that change: what time does to beliefs, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous
from nousppl.trust import Trust


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty."""
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 5)


def told(rows: list[tuple[str, float]], settled: list[tuple[str, float]] = (), **more: Any) -> nous.Evidence:
    """One question: values with their times, each by a source of its own, and settled values with theirs."""
    claims = pd.DataFrame(rows, columns=["value", "time"]).assign(entity="maya", attribute="city", **more)
    claims["source"] = [f"s{i}" for i in range(len(claims))]
    facts = pd.DataFrame(settled, columns=["value", "time"]).assign(entity="maya", attribute="city")
    return nous.Evidence(claims, settled=facts if len(facts) else None)


def fixed(rate: float, answers: Any = 5, **more: Any) -> Trust:
    """One draw of a model in which truths change at a rate per unit of time."""
    sure = {"1": dist.Normal(1.5, 1e-3), "source": dist.HalfNormal(1e-3)}
    model = nous.TrustModel(change="1", answers={"city": answers}, priors={"reliability": sure}, **more)
    trust = model.default_trust(draws=1)
    trust.posterior_draws["change_Intercept"][:] = np.log(rate)
    return trust


def test_relaxation_is_entropy_decay() -> None:
    rate, K = 0.01, 5
    evidence, trust = told([("oslo", 0.0), ("rome", 3.0), ("oslo", 10.0)]), fixed(rate, K)
    now = trust.posterior(evidence.question("maya", "city")).probabilities
    share = np.array([1, 1, K - 2])  # "other" stands for three answers
    with jax.enable_x64(True):
        for later in (1.0, 30.0, 1000.0):
            kept = np.exp(-rate * later)
            then = trust.posterior(evidence.question("maya", "city"), at=10.0 + later).probabilities
            formula = kept * now[then.index] + (1.0 - kept) * share / K
            np.testing.assert_allclose(then, formula, rtol=0, atol=1e-6)
            batch = trust.posteriors(evidence, at=10.0 + later).probability
            np.testing.assert_allclose(batch, formula, rtol=0, atol=1e-6)


def test_without_change_the_static_model_is_the_limit() -> None:
    evidence = told([("oslo", 0.0), ("rome", 3.0), ("oslo", 10.0), ("bonn", 400.0)])
    slow = fixed(1e-11)
    still = nous.TrustModel(answers={"city": 5}, priors={"reliability": slow.model.given_priors["reliability"]})
    still = still.default_trust(draws=1)
    still.posterior_draws.update({n: v for n, v in slow.posterior_draws.items() if n in still.posterior_draws})
    question = evidence.question("maya", "city")
    np.testing.assert_allclose(
        slow.posterior(question).probabilities, still.posterior(question).probabilities, rtol=0, atol=1e-6
    )


def test_a_settled_truth_holds_at_its_time_only() -> None:
    evidence, trust = told([("rome", 50.0)], [("oslo", 0.0), ("bonn", 100.0)]), fixed(0.01)
    question = evidence.question("maya", "city")
    by_time = {t: trust.posterior(question, at=t).probabilities for t in (0.0, 10.0, 50.0, 90.0, 100.0, 1e5)}
    assert by_time[0.0]["oslo"] == by_time[100.0]["bonn"] == 1.0
    assert 0.8 < by_time[10.0]["oslo"] < 1.0 and 0.8 < by_time[90.0]["bonn"] < 1.0
    assert by_time[50.0]["rome"] > 0.3
    assert by_time[1e5].drop("other").to_numpy() == pytest.approx(0.2, abs=1e-6)


def test_a_rejection_holds_from_its_time_on() -> None:
    facts = pd.DataFrame({"entity": ["maya"], "attribute": "city", "value": "oslo", "time": [20.0], "verdict": "false"})
    evidence = told([("oslo", 0.0), ("oslo", 40.0)]).with_settled(facts)
    question, trust = evidence.question("maya", "city"), fixed(0.001)
    assert trust.posterior(question, at=0.0).probabilities["oslo"] > 0.01
    for at in (20.0, 30.0, 40.0, 500.0):
        assert trust.posterior(question, at=at).probabilities["oslo"] == 0.0


def test_points_add_up_and_time_has_its_row() -> None:
    evidence, trust = told([("oslo", 0.0), ("rome", 3.0), ("oslo", 300.0), ("rome", 310.0)]), fixed(0.005)
    question = evidence.question("maya", "city")
    for at in (305.0, 200.0, 1000.0):
        belief = trust.posterior(question, at=at)
        points = belief.points["points"]
        assert points.sum() == pytest.approx(belief.log_odds[-1, belief.top], abs=1e-9)
        assert abs(points["time"]) > 0.1
        history = belief.history()
        # The belief drifts between two claims.
        assert (history["prior"].to_numpy()[1:] != history["posterior"].to_numpy()[:-1]).any()
    assert trust.posterior(question, at=200.0).answer != trust.posterior(question, at=1e6).answer


def test_what_is_known_by_a_time() -> None:
    evidence, trust = told([("oslo", 0.0), ("rome", 30.0)], known_at=[0.0, 90.0]), fixed(0.01)
    question = evidence.question("maya", "city")
    early = trust.posterior(question, at=30.0, known_by=50.0)
    assert len(early.question.claims) == 1 and early.answer == "oslo"
    assert trust.posterior(question, at=30.0).probabilities["rome"] > 0.3
    batch = trust.posteriors(evidence, at=30.0, known_by=50.0).probabilities
    np.testing.assert_allclose(batch["probability"], early.probabilities[batch["answer"]], rtol=0, atol=1e-6)
    assert nous.posterior(question, trust, at=30.0, known_by=50.0).probability == early.probability


# ------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"errors": nous.Errors(trap=True)}, r"Errors\(trap=True\) beside change"),
        ({"errors": nous.Errors(correlation=True)}, r"Errors\(correlation=True\) beside change"),
        ({"origin": nous.Origin(order="unknown")}, r"Origin\(order='unknown'\) beside change"),
    ],
)
def test_what_does_not_go_with_change(given: dict[str, Any], words: str) -> None:
    with pytest.raises(nous.ModelError, match=words):
        nous.TrustModel(change="1", **given)


def test_rates_are_of_questions() -> None:
    with pytest.raises(nous.ModelError, match="column 'source' is not one of a question; allowed are entity and attr"):
        nous.TrustModel(change="1 + (1|source)").default_trust()


def test_everything_has_a_time() -> None:
    trust = fixed(0.01)
    with pytest.raises(
        nous.ModelError, match=r"claims: column 'time' is missing in 1 of 2 claims, first of entity 'maya"
    ):
        trust.posteriors(told([("oslo", 0.0), ("rome", np.nan)]))
    with pytest.raises(
        nous.ModelError, match=r"settled: column 'time' is missing in 1 of 1 rows, first of entity 'maya"
    ):
        trust.posteriors(told([("oslo", 0.0)], [("rome", np.nan)]))


def test_times_asked_about() -> None:
    evidence, trust = told([("oslo", 0.0)]), fixed(0.01)
    with pytest.raises(nous.QuestionError, match="at: 2 times for 1 questions"):
        trust.posteriors(evidence, at=[1.0, 2.0])
    still = nous.TrustModel(answers={"city": 5})
    with pytest.raises(nous.ModelError, match="a truth that changes needs change"):
        still.fit(told([("oslo", 0.0)], [("rome", 1.0), ("oslo", 2.0)]), learn_from="settled")


def test_priors_show_the_rate() -> None:
    assert str(nous.TrustModel(change="1 + (1|attribute)").priors()["change"]["1"]).startswith("Normal")
    assert nous.TrustModel(change="1", priors={"change": {"1": dist.Normal(-1.0, 1.0)}}).change == "1"
