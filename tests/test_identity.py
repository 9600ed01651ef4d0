"""Identity: what two beliefs have in common against arithmetic over all answers, and duplicates among many entities."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import nousppl as nous
from nousppl import identities as module
from nousppl.beliefs import Beliefs

ATTRIBUTES, SOURCES = 10, 30


def believed(*rows: tuple[Any, ...]) -> Beliefs:
    """Beliefs from rows of entity, attribute, {answer: probability}, number of unnamed answers; the rest is theirs."""
    cells = []
    for entity, attribute, named, unnamed in rows:
        given = [(entity, attribute, answer, p, False, 1) for answer, p in named.items()]
        rest = [(entity, attribute, "other", 1.0 - sum(named.values()), True, unnamed)] if unnamed else []
        cells += given + rest
    return Beliefs.from_frame(
        pd.DataFrame(cells, columns=["entity", "attribute", "answer", "probability", "other", "count"])
    )


def spread(named: dict[str, float], answers: list[str]) -> np.ndarray:
    """Probability of each answer of a whole domain."""
    rest = (1.0 - sum(named.values())) / max(len(answers) - len(named), 1)
    return np.array([named.get(answer, rest) for answer in answers])


def by_em(laws: list[np.ndarray], steps: int = 300) -> np.ndarray:
    """The most probable base rates given all beliefs of an attribute, each formed with equal rates."""
    rate = np.full(len(laws[0]), 1.0 / len(laws[0]))
    for _ in range(steps):
        each = [rate * law / (rate * law).sum() for law in laws]
        rate = (sum(each) + 1.0 / len(rate)) / (len(laws) + 1)
    return rate


ANN, BOB = {"oslo": 0.7, "rome": 0.1}, {"oslo": 0.5, "bonn": 0.3}
CITIES = ["oslo", "rome", "bonn", *(f"c{i}" for i in range(17))]


def test_two_beliefs_over_the_whole_domain() -> None:
    beliefs = believed(("ann", "city", ANN, 18), ("bob", "city", BOB, 18))
    row = nous.identity(beliefs).iloc[0]
    p, q = spread(ANN, CITIES), spread(BOB, CITIES)
    assert (row["entity"], row["other"], row["shared"]) == ("ann", "bob", 1)
    assert row["divergence"] == pytest.approx((p * np.log2(p / q)).sum() + (q * np.log2(q / p)).sum(), rel=1e-12)
    rate = by_em([p, q])
    factor = np.log((rate * p * q).sum() / ((rate * p).sum() * (rate * q).sum()))
    assert row["log_bayes_factor"] == pytest.approx(factor, abs=1e-4)
    term = nous.identity(beliefs, by_attribute=True).iloc[0]
    assert term["agreement"] == pytest.approx((p * q).sum(), rel=1e-12)
    assert (term["attribute"], term["divergence"]) == ("city", row["divergence"])


def test_closed_lists_and_learned_base_rates() -> None:
    people = {"ann": [0.6, 0.3, 0.1], "bob": [0.5, 0.1, 0.4], "cid": [0.9, 0.05, 0.05]}
    beliefs = believed(*((name, "vote", dict(zip("xyz", p, strict=True)), 0) for name, p in people.items()))
    p, q = np.array(people["ann"]), np.array(people["bob"])
    mean = (np.sum([*people.values()], 0) + 1 / 3) / 4
    formed = nous.identity(beliefs, pairs=[("bob", "ann")], base_rates="learned").iloc[0]
    assert formed["log_bayes_factor"] == pytest.approx(np.log((p * q / mean).sum() / (p.sum() * q.sum())), rel=1e-12)
    rate = by_em([np.array(one) for one in people.values()])
    uniform = nous.identity(beliefs, pairs=[("bob", "ann")]).iloc[0]
    expected = np.log((rate * p * q).sum() / ((rate * p).sum() * (rate * q).sum()))
    assert uniform["log_bayes_factor"] == pytest.approx(expected, abs=1e-4)
    assert formed["divergence"] == uniform["divergence"] == pytest.approx(((p - q) * np.log2(p / q)).sum())


def test_a_domain_holds_all_answers_named() -> None:
    """Two beliefs with three answers of a domain of four name five together."""
    ann, bob = {"a": 0.5, "b": 0.2, "c": 0.2}, {"a": 0.6, "d": 0.2, "e": 0.1}
    row = nous.identity(believed(("ann", "x", ann, 1), ("bob", "x", bob, 1))).iloc[0]
    p, q = spread(ann, list("abcde")), spread(bob, list("abcde"))
    assert row["divergence"] == pytest.approx(((p - q) * np.log2(p / q)).sum())


def test_a_settled_truth_rules_out() -> None:
    beliefs = believed(("ann", "x", {"a": 1.0}, 4), ("bob", "x", {"a": 0.9}, 4), ("cid", "x", {"b": 1.0, "a": 0.0}, 3))
    table = nous.identity(beliefs, pairs=[("ann", "bob"), ("ann", "cid"), ("ann", "bob")]).set_index("other")
    assert np.isinf(table["divergence"]).all()
    assert (table.loc["bob", "log_bayes_factor"] > 0).all() and table.loc["cid", "log_bayes_factor"] == -np.inf


def test_vague_beliefs_are_close_and_say_nothing() -> None:
    known = {"a": 0.96}
    rows = [(name, "x", {"a": 0.2}, 4) for name in ("ann", "bob")] + [(f"p{i}", "x", known, 4) for i in range(50)]
    table = nous.identity(believed(*rows), pairs=[("ann", "bob"), ("p0", "p1")]).set_index("entity")
    assert table.loc["ann", "divergence"] == 0.0
    assert table.loc["ann", "log_bayes_factor"] == pytest.approx(0.0, abs=1e-9)
    # What nearly everyone has in common says next to nothing; it says most where few have it.
    assert 0.0 < table.loc["p0", "log_bayes_factor"] < 0.1
    rare = believed(*rows, ("q0", "x", {"b": 0.96}, 4), ("q1", "x", {"b": 0.96}, 4))
    assert nous.identity(rare).iloc[0][["entity", "other"]].tolist() == ["q0", "q1"]


def test_values_of_different_kinds_are_not_the_same() -> None:
    one, text = ("ann", "x", {1: 0.9}, 4), ("bob", "x", {"1": 0.9}, 4)
    assert nous.identity(believed(one, text)).empty
    assert len(nous.identity(believed(one, ("bob", "x", {1.0: 0.9}, 4)))) == 1


def test_only_shared_attributes_count() -> None:
    beliefs = believed(
        ("ann", "x", {"a": 0.8}, 4), ("ann", "y", {"a": 0.8}, 4), ("bob", "x", {"a": 0.8}, 4), ("bob", "z", {"a": 1}, 4)
    )
    assert nous.identity(beliefs)["shared"].tolist() == [1]
    assert nous.identity(beliefs, least_shared=2).empty
    assert nous.identity(beliefs, least_shared=2, by_attribute=True).columns.tolist()[-1] == "agreement"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"most": 0}, r"identity: most=0. Allowed: a whole number from 1 on"),
        ({"least_shared": -1}, r"identity: least_shared=-1"),
        ({"base_rates": "flat"}, r"base_rates='flat'. Allowed: 'uniform', 'learned'"),
        ({"pairs": [("ann", "eve")]}, r"column 'other': an entity that the beliefs do not hold in 1 of 1 row.*'eve'"),
        ({"pairs": [("ann", "ann")]}, r"'other': an entity and itself in 1 of 1 row"),
        ({"pairs": pd.DataFrame({"entity": ["ann"]})}, r"pairs: no column 'other' \(found: entity\)"),
    ],
)
def test_mistakes(given: dict[str, Any], words: str) -> None:
    with pytest.raises(nous.EvidenceError, match=words):
        nous.identity(believed(("ann", "x", {"a": 0.8}, 4), ("bob", "x", {"a": 0.8}, 4)), **given)


# ------------------------------------------------------------------------------------------------------ duplicates


def population(seed: int, people: int = 200, twins: int = 10) -> tuple[nous.Evidence, set[tuple[str, str]]]:
    """Claims about people, of whom some are on record twice, under two names with claims of their own.

    Three claims an attribute, right with probability .8; answers are not equally common. What is true of the first
    `twins` names is, one by one, true of the last ones too.
    """
    rng = np.random.default_rng(seed)
    names = np.array([f"p{i:04d}" for i in range(people)])
    truth = np.stack([rng.choice(20, people, p=rng.dirichlet(np.ones(20))) for _ in range(ATTRIBUTES)], 1)
    truth[-twins:] = truth[:twins]
    person, attribute, _ = (x.ravel() for x in np.meshgrid(np.arange(people), np.arange(ATTRIBUTES), np.arange(3)))
    right = rng.random(len(person)) < 0.8
    value = np.where(right, truth[person, attribute], rng.integers(0, 20, len(person)))
    claims = pd.DataFrame({"entity": names[person], "attribute": np.char.add("a", attribute.astype(str))})
    claims["value"] = np.char.add("v", value.astype(str))
    claims["source"] = np.char.add("s", rng.integers(0, SOURCES, len(person)).astype(str))
    return nous.Evidence(claims), {(names[i], names[people - twins + i]) for i in range(twins)}


@pytest.fixture(scope="module")
def trust() -> nous.Trust:
    sure = {"1": dist.Normal(1.4, 1e-2), "source": dist.HalfNormal(1e-2)}
    answers = {f"a{i}": 20 for i in range(ATTRIBUTES)}
    model = nous.TrustModel(origin=None, reliability="1 + (1|source)", answers=answers, priors={"reliability": sure})
    return model.default_trust(draws=5)


@pytest.fixture(scope="module")
def found(trust: nous.Trust) -> tuple[pd.DataFrame, Beliefs, set[tuple[str, str]]]:
    evidence, twins = population(0)
    beliefs = trust.posteriors(evidence)
    return nous.identity(beliefs), beliefs, twins


def are_twins(table: pd.DataFrame, twins: set[tuple[str, str]]) -> np.ndarray:
    return np.array([pair in twins for pair in zip(table["entity"], table["other"], strict=True)])


def test_planted_duplicates_come_first(found: tuple[pd.DataFrame, Beliefs, set[tuple[str, str]]]) -> None:
    table, beliefs, twins = found
    same = are_twins(table, twins)
    assert same[: len(twins)].all() and same.sum() == len(twins)
    everyone = beliefs.questions["entity"].unique()
    pairs = [(a, b) for i, a in enumerate(everyone) for b in everyone[i + 1 :]]
    whole = nous.identity(beliefs, pairs=pairs)
    same = are_twins(whole, twins)
    assert roc_auc_score(same, whole["log_bayes_factor"]) == 1.0
    assert roc_auc_score(same, -whole["divergence"]) > 0.999
    # The search leaves out no pair that the whole comparison finds among the best.
    best = whole.head(3 * len(twins))[["entity", "other"]]
    assert len(best.merge(table)) == len(best)


def test_no_duplicates_no_finds(trust: nous.Trust) -> None:
    """Negative control: the same people without a second name. A log Bayes factor above log t has at most a chance of
    1 / t between strangers, so of all pairs at most one in a hundred is above log 100."""
    evidence, twins = population(1)
    names = {other for _, other in twins}
    alone = evidence.subset(np.flatnonzero(~evidence.questions["entity"].isin(names)))
    table = nous.identity(trust.posteriors(alone))
    people = 200 - len(names)
    pairs = people * (people - 1) / 2
    assert table["log_bayes_factor"].max() < np.log(pairs) + 5.0
    assert (table["log_bayes_factor"] > np.log(100)).sum() < pairs / 100


def test_what_rates_are_for(found: tuple[pd.DataFrame, Beliefs, set[tuple[str, str]]], monkeypatch: Any) -> None:
    """Without base rates common answers speak as much as rare ones, and the twins stand out less."""
    table, beliefs, twins = found
    monkeypatch.setattr(module, "STEPS", 0)
    flat = nous.identity(beliefs)

    def margin(frame: pd.DataFrame) -> float:
        same = are_twins(frame, twins)
        return float(frame["log_bayes_factor"][same].min() - frame["log_bayes_factor"][~same].max())

    assert margin(table) > margin(flat) + 1.0


def test_order_does_not_depend_on_rows(found: tuple[pd.DataFrame, Beliefs, set[tuple[str, str]]]) -> None:
    table, beliefs, _ = found
    shuffled = Beliefs.from_frame(beliefs.to_frame().sample(frac=1.0, random_state=0))
    pd.testing.assert_frame_equal(nous.identity(shuffled, base_rates="uniform"), table)


def test_common_answers_are_left_out_of_the_search_only(
    found: tuple[pd.DataFrame, Beliefs, set[tuple[str, str]]], monkeypatch: Any
) -> None:
    table, beliefs, twins = found
    monkeypatch.setattr(module, "MET", 5_000)
    fewer = nous.identity(beliefs)
    assert are_twins(fewer, twins).sum() >= len(twins) - 1
    both = fewer.merge(table, on=["entity", "other"], suffixes=("", "_whole"))
    pd.testing.assert_series_equal(both["log_bayes_factor"], both["log_bayes_factor_whole"], check_names=False)


def test_ten_thousand_entities() -> None:
    import time

    rng = np.random.default_rng(0)
    size = 10_000
    answers = [f"v{i}" for i in range(200)]
    table = pd.DataFrame({"entity": np.repeat(np.arange(size), 6), "attribute": np.tile(list("aabbcc"), size)})
    table["answer"] = np.where(np.arange(6 * size) % 2, "other", rng.choice(answers, 6 * size))
    table["probability"] = np.tile([0.8, 0.2], 3 * size)
    table["other"], table["count"] = np.tile([False, True], 3 * size), np.tile([1.0, 299.0], 3 * size)
    table.loc[table["entity"] == size - 1, "answer"] = table.loc[table["entity"] == 0, "answer"].to_numpy()
    start = time.perf_counter()
    found = nous.identity(Beliefs.from_frame(table))
    assert found.iloc[:20][["entity", "other"]].to_numpy().tolist().count([0, size - 1]) == 1
    assert time.perf_counter() - start < 30
