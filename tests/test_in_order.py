"""Forecasts in order: nothing that became known later reaches a belief."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from voting import vote

import nousppl as nous
from nousppl.datasets import world
from nousppl.folds import windows
from nousppl.inference import svi
from nousppl.simulate import World


def table(days: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Forty questions, three claims each at times 10 q + 0, 1, 2, settled at 10 q + 15; every third claim is wrong."""
    q = np.repeat(np.arange(40), 3)
    claims = pd.DataFrame({"entity": q, "attribute": "a", "source": np.tile(["x", "y", "z"], 40)})
    claims["value"] = np.where(claims["source"] == "z", "F", "T")
    claims["time"] = 10.0 * q + np.tile([0, 1, 2], 40)
    settled = pd.DataFrame({"entity": np.arange(40), "attribute": "a", "value": "T", "time": 10.0 * np.arange(40) + 15})
    if days:
        for frame in (claims, settled):
            frame["time"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["time"], unit="D")
    return claims, settled


class Watch:
    """The vote, which keeps what it was handed."""

    def __init__(self) -> None:
        self.handed: list[nous.Evidence] = []

    def __call__(self, evidence: nous.Evidence, seed: int) -> nous.Beliefs:
        self.handed.append(evidence)
        return vote(evidence, seed)


def test_only_what_was_known_is_handed_over() -> None:
    claims, settled = table()
    watch = Watch()
    result = nous.prequential(watch, nous.Evidence(claims, settled), start=205.0, every=5)
    assert len(watch.handed) == len(result.by_fold) == 5
    for (number, row), part in zip(result.by_fold.iterrows(), watch.handed, strict=True):
        asked = result.folds[result.folds["fold"] == number].set_index("entity")["time"]
        assert (part.settled["time"] < row["fitted"]).all() and len(part.settled) == row["learned"]
        assert not set(asked.index) & set(part.settled["entity"])
        own = part.claims["entity"].map(asked)
        assert (part.claims.loc[own.notna(), "time"] <= own.dropna()).all()
        assert (part.claims.loc[own.isna(), "time"] < row["fitted"]).all()
        assert own.notna().sum() == 3 * row["n"]
    assert result.folds["time"].is_monotonic_increasing and result.folds["entity"].tolist() == list(range(19, 40))
    assert result.by_fold["fitted"].tolist() == [205.0, 255.0, 305.0, 355.0, 405.0]
    assert result.by_fold["until"].tolist() == [245.0, 295.0, 345.0, 395.0, 405.0]
    assert repr(result).startswith("CrossValidation(21 questions held out in 5 windows in order: accuracy 1.0")


def test_a_claim_that_became_known_later_is_not_used() -> None:
    """Late claims that tell the truth would make every answer right; known late, they change nothing."""
    claims, settled = table()
    claims["value"] = np.where(claims["source"] == "x", "T", "F")
    late = pd.concat([claims.assign(source=f"late {i}", value="T") for i in range(3)])
    known = {"known_at": late["time"] + 100.0}
    plain = nous.prequential(vote, nous.Evidence(claims, settled), start=100.0, every=10)
    hidden = nous.prequential(
        vote, nous.Evidence(pd.concat([claims, late.assign(**known)]), settled), start=100.0, every=10
    )
    leaked = nous.prequential(vote, nous.Evidence(pd.concat([claims, late]), settled), start=100.0, every=10)
    assert plain.scores["accuracy"] == hidden.scores["accuracy"] == 0.0
    np.testing.assert_array_equal(plain.beliefs.probability, hidden.beliefs.probability)
    assert leaked.scores["accuracy"] == 1.0


def test_a_fact_is_learned_from_when_it_is_known() -> None:
    claims, settled = table()
    settled["known_at"] = settled["time"] + 50.0
    watch = Watch()
    result = nous.prequential(watch, nous.Evidence(claims, settled), start=205.0, every=5)
    assert result.folds["entity"].min() == 14
    for (_, row), part in zip(result.by_fold.iterrows(), watch.handed, strict=True):
        assert (part.settled["known_at"] < row["fitted"]).all()


def test_a_rejection_known_before_is_used_and_a_later_one_is_not() -> None:
    claims, settled = table()
    early = settled.assign(value="F", verdict="false", time=settled["time"] - 1)
    late = settled.assign(value="G", verdict="false", time=settled["time"] + 1)
    watch = Watch()
    facts = pd.concat([settled.assign(verdict="true"), early, late])
    nous.prequential(watch, nous.Evidence(claims, facts), start=205.0, every=100)
    asked = watch.handed[0].settled
    assert set(asked.loc[asked["entity"] >= 21, "value"]) == {"F"}


def test_windows_of_a_length_of_time() -> None:
    claims, settled = table(days=True)
    evidence = nous.Evidence(claims, settled)
    result = nous.prequential(vote, evidence, start="2026-04-11", every="100D")
    assert result.by_fold["fitted"].tolist() == [
        pd.Timestamp("2026-04-11") + pd.Timedelta(days=100 * i) for i in range(4)
    ]
    assert result.by_fold["n"].tolist() == [10, 10, 10, 1]
    numbers = nous.prequential(vote, nous.Evidence(*table()), start=100, every=100.0)
    assert numbers.folds["fold"].tolist() == result.folds["fold"].tolist()
    np.testing.assert_array_equal(numbers.beliefs.probability, result.beliefs.probability)
    zoned = [frame.assign(time=frame["time"].dt.tz_localize("UTC")) for frame in (claims, settled)]
    assert nous.prequential(vote, nous.Evidence(*zoned), start="2026-04-11T00:00Z", every="100D").folds["time"].dt.tz


def test_what_is_known_at_the_same_time_stays_together() -> None:
    window, begins = windows(np.array([1.0, 2, 2, 2, 3, 4]), 0.5, 2, counted=True)
    assert window.tolist() == [0, 0, 0, 0, 1, 1] and begins.tolist() == [0.5, 3.0]
    window, begins = windows(np.array([1.0, 2, 2, 5]), 1.0, 1.0, counted=False)
    assert window.tolist() == [0, 1, 1, 2] and begins.tolist() == [1.0, 2.0, 5.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every=0: at least 1 settled truth"),
        ({"every": "7D"}, r"every='7D': times are numbers here. Allowed: a whole number of settled truths \(100\)"),
        ({"every": -1.0}, r"every=-1.0: times are numbers here"),
        ({"start": "2026-01-01"}, "the evidence has numbers"),
        ({"start": 1e6}, r"no question that has a claim by then gets settled from 1000000.0 on"),
        ({"by": "entity"}, "by='entity': allowed is 'time'"),
    ],
)
def test_what_cannot_be_done_in_order(options: dict[str, object], message: str) -> None:
    with pytest.raises(nous.EvidenceError, match=message):
        nous.prequential(vote, nous.Evidence(*table()), **{"start": 100.0, "every": 5, **options})


def test_facts_without_a_time_are_refused() -> None:
    claims, settled = table()
    settled.loc[3, "time"] = np.nan
    with pytest.raises(
        nous.EvidenceError, match=r"1 of 40 settled truths have neither time nor known_at; first: \(3, 'a'"
    ):
        nous.prequential(vote, nous.Evidence(claims, settled), start=100.0, every=5)
    claims, settled = table(days=True)
    with pytest.raises(nous.EvidenceError, match=r"every=7.0: times are dates here. Allowed: .* such as '7D'"):
        nous.prequential(vote, nous.Evidence(claims, settled), start="2026-04-11", every=7.0)


def test_questions_that_nobody_spoke_of_in_time_are_counted() -> None:
    claims, settled = table()
    claims.loc[claims["entity"] == 39, "time"] += 1000.0
    result = nous.prequential(vote, nous.Evidence(claims, settled), start=100.0, every=10)
    assert result.record["unasked"] == 1 and 39 not in result.folds["entity"].tolist()


@pytest.fixture(scope="module")
def small() -> World:
    return world(questions=150, sources=15, seed=5)


def test_the_trust_stays_between_refits(small: World) -> None:
    """A question is answered by the trust of its window: the same as that of a fit on what was known then."""
    evidence = nous.Evidence(small.claims, small.settled)
    model = nous.TrustModel("1 + (1|source)", origin=nous.Origin("same_channel", lag=False), answers=small.answers)
    times = np.sort(small.settled["time"])
    svi.block_runner.cache_clear()
    result = nous.prequential(model, evidence, start=times[75], every=50, seed=2)
    assert result.by_fold["learned"].tolist() == [75, 125] and result.by_fold["n"].tolist() == [50, 25]
    assert svi.block_runner.cache_info().misses <= 2
    trust = model.fit(evidence.before(times[125]), seed=2)
    last = result.folds[result.folds["fold"] == 1]
    expected = trust.posteriors(evidence.with_settled(None)).frame.set_index("entity")["probability"]
    mine = result.beliefs.frame.set_index("entity")["probability"]
    np.testing.assert_allclose(mine[last["entity"]], expected[last["entity"]], atol=0.02)
