"""Memory: what was replaced keeps its dates, what was rejected is out, what was revoked is on record."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous
from nousppl.trust import Trust

DATES = pd.to_datetime(["2026-01-05", "2026-02-01", "2026-03-01", "2026-06-01", "2026-06-20", "2026-07-01"])
CITIES = ["oslo", "oslo", "oslo", "rome", "rome", "oslo"]


def told(values: list[str], times: Any, settled: pd.DataFrame | None = None, **more: Any) -> nous.Evidence:
    """One question: values with their times, each by a source of its own."""
    claims = pd.DataFrame({"entity": "maya", "attribute": "city", "value": values, "time": times, **more})
    claims["source"] = claims["claim"] = [f"s{i}" for i in range(len(values))]
    return nous.Evidence(claims, settled)


def fixed(rate: float, model: nous.TrustModel | None = None) -> Trust:
    """Few draws of a model in which truths change at a rate per day."""
    sure = {"1": dist.Normal(1.5, 0.2), "source": dist.HalfNormal(0.1)}
    model = nous.TrustModel(change="1", answers={"city": 5}, priors={"reliability": sure}, origin=None)
    trust = model.default_trust(draws=3)
    trust.posterior_draws["change_Intercept"][:] = np.log(rate)
    return trust


@pytest.fixture(scope="module")
def trust() -> Trust:
    return fixed(0.005)


def test_each_time_is_that_of_the_posterior(trust: Trust) -> None:
    facts = pd.DataFrame({"entity": "maya", "attribute": "city", "value": ["bonn", "oslo", "rome"]})
    facts["time"], facts["verdict"] = [30.0, 60.0, 45.0], ["false", "true", "false"]
    evidence = told(["oslo", "rome", "bonn", "rome", "oslo"], [0.0, 20.0, 25.0, 50.0, 90.0], facts)
    question, times = evidence.question("maya", "city"), [0.0, 10.0, 25.0, 30.0, 44.0, 45.0, 60.0, 75.0, 90.0, 200.0]
    with jax.enable_x64(True):
        found = trust.timeline(question, times).probabilities
        for time in times:
            np.testing.assert_allclose(found.loc[time], trust.posterior(question, at=time).probabilities, atol=1e-9)


def test_an_answer_that_was_replaced_keeps_its_dates(trust: Trust) -> None:
    evidence = told(CITIES[:5], DATES[:5])
    history = trust.timeline(evidence.question("maya", "city"))
    periods = history.periods
    assert periods["answer"].tolist() == ["oslo", "rome"] and periods["claims"].tolist() == [3, 2]
    assert periods["since"].iloc[0] == DATES[0] and periods["until"].iloc[0] == periods["since"].iloc[1]
    assert DATES[2] < periods["since"].iloc[1] < DATES[3] and pd.isna(periods["until"].iloc[1])
    assert history.probabilities.index.tolist() == DATES[:5].tolist()
    np.testing.assert_allclose(history.probabilities.sum(axis=1), 1.0)
    # The moment at which the two are equally probable, to a few minutes.
    change = periods["since"].iloc[1]
    around = trust.timeline(evidence.question("maya", "city"), [change - pd.Timedelta(hours=1), change])
    assert around.periods["answer"].tolist() == ["oslo", "rome"]
    assert "oslo" in repr(history) and "<table" in history._repr_html_()


def test_the_past_is_seen_as_it_looks_now(trust: Trust) -> None:
    """Before the second city is confirmed, its one claim is less than a move; later it is the beginning of one."""
    evidence = told(["oslo", "oslo", "rome", "rome"], [0.0, 10.0, 20.0, 60.0])
    then = trust.timeline(evidence.known_by(20.0).question("maya", "city")).probabilities
    now = trust.timeline(evidence.question("maya", "city")).probabilities
    assert now.loc[20.0, "rome"] > then.loc[20.0, "rome"] + 0.2
    back = told(CITIES, DATES)
    assert trust.timeline(back.question("maya", "city")).periods["answer"].tolist()[0] == "oslo"


def test_one_answer_has_one_period(trust: Trust) -> None:
    periods = trust.timeline(told(["oslo", "oslo"], [0.0, 5.0]).question("maya", "city")).periods
    assert periods["answer"].tolist() == ["oslo"] and periods["since"].tolist() == [0.0]
    assert np.isnan(periods["until"].iloc[0])


def test_mistakes(trust: Trust) -> None:
    question = told(["oslo"], [0.0]).question("maya", "city")
    with pytest.raises(nous.QuestionError, match=r"truths do not change in this model.*change="):
        nous.TrustModel().default_trust(draws=1).timeline(question)
    with pytest.raises(nous.QuestionError, match="timeline: no times"):
        trust.timeline(question, [])
    with pytest.raises(nous.EvidenceError, match="'2026-01-01' is of the kind dates"):
        trust.timeline(question, "2026-01-01")


# ------------------------------------------------------------------------------------------------ reject and settle


@pytest.mark.parametrize("times", [[0.0, 10.0, 40.0, 50.0], list(DATES[:4]), list(DATES[:4].tz_localize("UTC"))])
def test_what_is_rejected_is_out_from_then_on(trust: Trust, times: list[Any]) -> None:
    evidence = told(["oslo"] * 4, times)
    out = evidence.reject("maya", "city", "oslo", time=times[2])
    question = out.question("maya", "city")
    assert trust.posterior(question, at=times[1]).probabilities["oslo"] > 0.0
    for at in times[2:]:
        assert trust.posterior(question, at=at).probabilities["oslo"] == 0.0
    assert trust.posterior(evidence.question("maya", "city"), at=times[3]).answer == "oslo"
    table = trust.timeline(question).probabilities["oslo"]
    assert (table.iloc[:2] > 0.0).all() and (table.iloc[2:] == 0.0).all()
    # All is on record: the claims, and what is rejected.
    assert len(question.claims) == 4 and question.settled["verdict"].tolist() == ["false"]
    assert len(evidence.settled) == 0


def test_facts_come_one_by_one() -> None:
    evidence = told(["oslo", "rome"], DATES[:2])
    step = evidence.settle("maya", "city", "oslo", time="2026-02-01").reject("maya", "city", "rome")
    assert step.settled["value"].tolist() == ["oslo", "rome"]
    assert step.settled["verdict"].tolist() == ["true", "false"]
    assert step.settled["time"].iloc[0] == DATES[1] and pd.isna(step.settled["time"].iloc[1])
    again = nous.Evidence(evidence.claims, step.settled)
    np.testing.assert_array_equal(step.coded.settled_time, again.coded.settled_time)
    assert len(step.settle("maya", "city", "oslo", time="2026-02-01").settled) == 2
    untimed = nous.Evidence(evidence.claims.drop(columns="time")).reject("maya", "city", "rome")
    belief = nous.posterior(untimed.question("maya", "city"))
    assert belief.probabilities["rome"] == 0.0


def test_facts_join_those_that_are_there() -> None:
    settled = pd.DataFrame(
        {"entity": ["maya", "tom"], "attribute": "city", "value": ["oslo", "bonn"], "note": ["x", "y"]}
    )
    evidence = told(["oslo", "rome"], [1.0, 2.0]).with_settled(settled).reject("maya", "city", "rome", time=3.0)
    assert evidence.settled["value"].tolist() == ["oslo", "rome", "bonn"] or len(evidence.settled) == 3
    assert evidence.settled["note"].dropna().tolist() == ["x", "y"]
    with pytest.raises(nous.EvidenceError, match=r"'verdict': an answer rejected that is settled as the truth"):
        evidence.reject("maya", "city", "oslo")
    with pytest.raises(nous.EvidenceError, match=r"'time': .*dates|time: .*kind dates"):
        evidence.reject("maya", "city", "rome", time="2026-01-01")


# ------------------------------------------------------------------------------------------------------ the delta log


def test_the_log_has_what_was_settled_and_what_was_revoked(trust: Trust) -> None:
    evidence = told(["oslo", "rome", "bonn", "rome"], [0.0, 10.0, 20.0, 40.0])
    evidence = evidence.settle("maya", "city", "rome", time=30.0).reject("maya", "city", "oslo", time=15.0)
    belief = trust.posterior(evidence.revoke("s2").question("maya", "city"))
    log = belief.history()
    assert log["event"].tolist() == ["claim", "claim", "rejected", "revoked", "settled", "claim"]
    assert log["time"].tolist() == [0.0, 10.0, 15.0, 20.0, 30.0, 40.0]
    assert log["value"].tolist() == ["oslo", "rome", "oslo", "bonn", "rome", "rome"]
    assert belief.answer == "rome"
    settled, rejected, revoked = (log[log["event"] == event].iloc[0] for event in ("settled", "rejected", "revoked"))
    assert settled["posterior"] == 1.0 and settled["surprise"] == pytest.approx(-np.log2(settled["prior"]))
    assert rejected["posterior"] > rejected["prior"] and rejected["surprise"] > 0.5
    assert revoked["claim"] == "s2" and log.loc[3, ["prior", "posterior", "surprise"]].isna().all()
    # Just before it was settled: the belief at that time, without it and without what came later.
    early = evidence.revoke("s2").with_settled(evidence.settled[:1]).without(["s3"])
    assert early.settled["verdict"].tolist() == ["false"]
    before = trust.posterior(early.question("maya", "city"), at=30.0).probabilities["rome"]
    assert settled["prior"] == pytest.approx(before, abs=1e-6)


def test_drift_between_events_is_in_the_log(trust: Trust) -> None:
    log = trust.posterior(told(["oslo", "oslo"], [0.0, 300.0]).question("maya", "city")).history()
    assert log["prior"].iloc[1] < log["posterior"].iloc[0] - 0.1
    assert log["surprise"].iloc[1] == pytest.approx(-np.log2(log["prior"].iloc[1]))


def test_where_truths_stay_what_is_settled_comes_first() -> None:
    evidence = told(["oslo", "rome"], DATES[:2]).reject("maya", "city", "rome", time=DATES[3])
    belief = nous.posterior(evidence.revoke("s1").question("maya", "city"))
    log = belief.history()
    assert log["event"].tolist() == ["rejected", "claim", "revoked"] and log["time"].iloc[0] == DATES[3]
    assert np.isnan(log["prior"].iloc[0]) and log["posterior"].iloc[0] == log["prior"].iloc[1]
