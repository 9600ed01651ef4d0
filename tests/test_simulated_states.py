"""Simulated states follow the law of the likelihood: shares of what claims say, and beliefs that are as sure as they
may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit

import nousppl as nous
from nousppl.generate import Truth

K = 3
RIGHT, ON, STATED, DURATION = 0.8, 0.7, 0.6, 40.0


def model_of(**more: Any) -> nous.TrustModel:
    given: dict[str, Any] = {"origin": None, "freshness": "1", "errors": nous.Errors(difficulty=False)}
    return nous.TrustModel("1", shapes={"away": nous.WhileTrue()}, answers={"away": K}, **given | more)


def design(entities: int, claims: int = 3, last: float = 30.0, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0.0, last, (entities, claims)), axis=1)
    times[:, 0] = 0.0
    return pd.DataFrame(
        {
            "entity": np.repeat([f"e{e:04d}" for e in range(entities)], claims),
            "attribute": "away",
            "source": [f"s{s}" for s in rng.integers(4, size=entities * claims)],
            "time": times.ravel(),
        }
    )


PARAMETERS: dict[str, Any] = {
    "reliability_Intercept": logit(RIGHT),
    "state_logit_on": [logit(ON)],
    "state_logit_stated": [logit(STATED)],
    "state_log_duration": [np.log(DURATION)],
}


def drawn(model: nous.TrustModel, table: pd.DataFrame, seed: int = 1, **more: Any) -> tuple[Truth, pd.DataFrame]:
    """What is true, and a row a claim beside it."""
    truth, evidence = model.simulate(table, seed, PARAMETERS | more)
    claims = evidence.claims.merge(truth.states, on=["entity", "attribute"], suffixes=("", "_true"))
    claims["on_then"] = claims["on"] & (claims["time"] <= claims["until_true"])
    return truth, claims


def test_shares_of_claims_are_those_of_the_law() -> None:
    """Each within four standard errors; all claims are fresh."""
    truth, claims = drawn(model_of(), design(3000))
    states, n = truth.states, len(claims)
    says, on = claims["value"].astype(bool), claims["on_then"]
    stated = claims["until"].notna()

    def near(found: pd.Series, expected: float) -> bool:
        return abs(float(found.mean()) - expected) < 4 * np.sqrt(expected * (1 - expected) / len(found))

    assert n == 9000 and near(states["on"], ON)
    assert states["until"].mean() == pytest.approx(DURATION, abs=4 * DURATION / np.sqrt(len(states)))
    assert near(says == on, RIGHT)
    # Where the state is on no statement fails for want of an end.
    assert near(stated[says & on], STATED) and not stated[~says].any()
    true = claims["until"] == claims["until_true"]
    first = claims["time"] == 0.0
    assert near(true[stated & on & first], RIGHT)
    # Before any end has passed, whoever is wrong about the state states one end as likely as another.
    assert near(true[stated & ~on & first], 1.0 / K)
    assert (claims["until"][stated] >= claims["time"][stated]).all()
    assert (truth.truths.to_numpy() == on.to_numpy()).all()


def test_beliefs_under_the_true_parameters_are_calibrated() -> None:
    """With echoes; about the latest time of the design, long after the last claim of most."""
    model = model_of(origin=nous.Origin(strong="same_source", lag=False))
    table = design(1500, 4)
    more = {"origin_log_strangers": -2.0, "origin_same_source": 1.0}
    truth, evidence = model.simulate(table, 3, PARAMETERS | more)
    assert truth.origins.notna().mean() > 0.05
    copies = truth.origins.dropna()
    rows = evidence.claims.set_index("claim")
    assert (rows["value"][copies.index].to_numpy() == rows["value"][copies.to_numpy()].to_numpy()).mean() > 0.99
    trust = model.default_trust(draws=1)
    draws = {name: np.asarray(value, float)[None, None] for name, value in truth.parameters.items()}
    trust = replace(trust, posterior_draws=trust.posterior_draws | draws)
    latest = float(table["time"].max())
    score = trust.posteriors(evidence, at=latest).score(truth.settled)
    assert score["n"] == 1500 and score["ece"] < 0.035 and score["accuracy"] > 0.75
    # Who takes the sources for better than they are is not.
    wrong = replace(trust, posterior_draws=trust.posterior_draws | {"reliability_Intercept": np.full((1, 1), 4.0)})
    assert wrong.posteriors(evidence, at=latest).score(truth.settled)["ece"] > 0.06


def test_dates_claims_of_a_moment_and_notes() -> None:
    """Ends are dates where times are; what is not meant to last may say anything."""
    table = design(400, 2)
    table["time"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(table["time"], unit="D")
    truth, evidence = model_of().simulate(table, 0, PARAMETERS)
    assert evidence.claims["until"].dtype.kind == "M" and evidence.claims["until"].notna().any()
    assert truth.states["until"].dtype.kind == "M" and truth.settled["time"].nunique() == 1
    _, passing = drawn(model_of(), design(1500, 2).assign(lasting=0.0), 2)
    says = passing["value"].astype(bool)
    assert float(says.mean()) == pytest.approx(1 - 1 / (K + 2), abs=0.035)
    again = model_of().simulate(table, 0, PARAMETERS)[1]
    pd.testing.assert_frame_equal(again.claims, evidence.claims)


def test_states_beside_other_shapes() -> None:
    """One design of all shapes; a world that a fit can read again."""
    one = design(12, 3)
    parts = [one.assign(attribute=name) for name in ("away", "colour", "allergy", "guests")]
    shapes = {"away": nous.WhileTrue(), "allergy": nous.AnyOf(), "guests": nous.Number(1.0, centre=10.0, scale=4.0)}
    answers = {"away": K, "colour": ["red", "blue"], "allergy": ["milk", "nuts"]}
    model = nous.TrustModel(shapes=shapes, answers=answers, errors=nous.Errors(difficulty=False))
    truth, evidence = model.simulate(pd.concat(parts, ignore_index=True), 5)
    assert len(evidence) == 144 and len(truth.settled) == 48 and len(truth.states) == 12
    again = evidence.with_settled(truth.settled)
    beliefs = model.default_trust(draws=5).posteriors(again)
    assert len(beliefs) == 36 and beliefs.numbers is not None and len(beliefs.numbers) == 12
    with pytest.raises(nous.ModelError, match="answers of attribute 'away' are not declared"):
        nous.TrustModel(shapes={"away": nous.WhileTrue()}).simulate(one, 0)
