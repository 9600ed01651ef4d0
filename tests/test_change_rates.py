"""Truths that change: rates are learned, and believed as far as they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.trust import Trust

WORLD = nous.TrustModel(
    change="1 + (1|attribute)",
    origin=None,
    errors=nous.Errors(difficulty=False),
    answers={"job": list("abcdef"), "mood": list("uvwxyz")},
)
RATES = {"job": 1 / 300.0, "mood": 1 / 10.0}


def world(seed: int, entities: int = 150) -> tuple[nous.Evidence, pd.DataFrame, pd.Series]:
    """Claims about jobs, which stay, and moods, which do not; the truth at the time of each claim is settled for half
    of the entities. Also: what is true of the others, and true parameters."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"e{e:03d}", attribute, f"s{rng.integers(12):02d}", time)
        for e in range(entities)
        for attribute in RATES
        for time in np.sort(rng.uniform(0.0, 100.0, 6))
    ]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "time"])
    design["claim"] = [f"c{i}" for i in range(len(design))]
    logs = np.log([RATES[name] for name in sorted(RATES)])
    given = {"change_Intercept": logs.mean(), "change_1|attribute_sigma": 1.0, "change_1|attribute": logs - logs.mean()}
    truth, evidence = WORLD.simulate(design, seed, given)
    facts = evidence.claims[["entity", "attribute", "time"]].assign(
        value=truth.truths[evidence.claims["claim"]].to_numpy()
    )
    known = facts["entity"] < f"e{entities // 2:03d}"
    return evidence.with_settled(facts[known]), facts[~known], pd.Series(truth.parameters)


@pytest.fixture(scope="module")
def learned() -> tuple[Trust, nous.Evidence, pd.DataFrame]:
    evidence, rest, _ = world(0)
    return WORLD.fit(evidence, nous.SVI(steps=1500), learn_from="settled"), evidence, rest


def test_rates_are_learned(learned: tuple[Trust, nous.Evidence, pd.DataFrame]) -> None:
    trust, _, _ = learned
    draws = trust.flat["change_Intercept"][:, None] + trust.flat["change_1|attribute"]
    for column, name in enumerate(sorted(RATES)):
        z = (np.log(RATES[name]) - draws[:, column].mean()) / draws[:, column].std()
        assert abs(z) < 3.0, (name, z)
        assert draws[:, column].std() < 0.5


def test_old_news_is_believed_as_far_as_it_holds(learned: tuple[Trust, nous.Evidence, pd.DataFrame]) -> None:
    """The truths of other entities, at times between and after their claims, come true as often as believed."""
    trust, evidence, rest = learned
    for attribute, hold in (("job", 0.7), ("mood", 0.7)):
        asked = rest[rest["attribute"] == attribute].groupby(["entity", "attribute"]).last()
        # The last claim of each is left out, and its time asked about.
        earlier = evidence.without(evidence.claims.groupby(["entity", "attribute"])["claim"].last().to_list())
        earlier = earlier.with_settled(None)
        times = asked["time"].reindex(pd.MultiIndex.from_frame(earlier.questions[["entity", "attribute"]])).fillna(0.0)
        table = trust.posteriors(earlier, at=times.to_numpy()).frame.set_index(["entity", "attribute"]).loc[asked.index]
        right = (table["answer"] == asked["value"]).to_numpy(float)
        believed = table["probability"].to_numpy()
        assert abs(right.mean() - believed.mean()) < 4.0 * np.sqrt((believed * (1 - believed)).sum()) / len(right)
        assert (believed.mean() > hold) == (attribute == "job")


@pytest.mark.long
def test_a_static_model_is_worse_on_a_changing_world(learned: tuple[Trust, nous.Evidence, pd.DataFrame]) -> None:
    trust, evidence, rest = learned
    last = rest.groupby(["entity", "attribute"]).last().reset_index()
    hidden = evidence.with_settled(None)
    changing = trust.posteriors(hidden, at=100.0).score(last)
    one_each = evidence.settled.groupby(["entity", "attribute"]).last().reset_index()
    still = nous.TrustModel(origin=None, errors=WORLD.errors, answers=WORLD.answers)
    static = still.fit(hidden.with_settled(one_each), nous.SVI(steps=800)).posteriors(hidden).score(last)
    assert changing["log_loss"] < static["log_loss"] - 0.05


def test_a_trust_is_saved_with_its_rates(learned: tuple[Trust, nous.Evidence, pd.DataFrame], tmp_path: Any) -> None:
    trust, evidence, _ = learned
    trust.save(tmp_path / "trust.nc")
    again = nous.load(tmp_path / "trust.nc")
    assert again.model.change == "1 + (1|attribute)"
    np.testing.assert_array_equal(
        again.posteriors(evidence, at=120.0).probability, trust.posteriors(evidence, at=120.0).probability
    )


def test_chains_know_questions_from_claims() -> None:
    """Of a formula for each question, what its terms have in common is looked for among questions."""
    evidence, _, _ = world(3, 12)
    chains = nous.NUTS(num_warmup=4, num_samples=4, num_chains=1)
    trust = WORLD.fit(evidence, method=chains, learn_from="settled")
    assert np.isfinite(trust.flat["change_Intercept"]).all()
