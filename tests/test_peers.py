"""crowd-kit's methods as forecasters; what it needs is the extra ``peers``."""

import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.peers import Peer

NAMES = ["dawid_skene", "one_coin", "glad", "mace", "mmsr", "wawa", "zero_based_skill"]
OPTIONS: dict[str, dict[str, Any]] = {"glad": {"n_iter": 5}, "mace": {"n_restarts": 2, "n_iter": 10}}
ANSWERS = {"label": ["a", "b", "c"]}


def crowd(questions: int = 120, seed: int = 0) -> tuple[nous.Evidence, pd.DataFrame]:
    """Six workers right 80 % of the time answer every question; one more mostly says "a"."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=questions)
    said = np.where(rng.random((7, questions)) < 0.8, truth, rng.integers(3, size=(7, questions)))
    said[6] = np.where(rng.random(questions) < 0.9, 0, said[6])
    rows = [(f"q{q}", f"w{w}", "abc"[said[w, q]]) for w in range(7) for q in range(questions)]
    claims = pd.DataFrame(rows, columns=["entity", "source", "value"]).assign(attribute="label")
    settled = pd.DataFrame({"entity": [f"q{q}" for q in range(questions)], "value": list(np.array(list("abc"))[truth])})
    return nous.Evidence(claims), settled.assign(attribute="label")


def run(name: str, evidence: nous.Evidence, **more: Any) -> nous.Beliefs:
    if find_spec("crowdkit") is None:
        pytest.skip("crowd-kit is not installed; the extra peers brings it")
    peer: Peer = getattr(nous.peers, name)
    return peer(evidence, 1, answers=ANSWERS, **OPTIONS.get(name, {}), **more)


@pytest.mark.parametrize("name", NAMES)
def test_each_method_finds_the_truth_of_a_small_world(name: str) -> None:
    evidence, settled = crowd()
    beliefs = run(name, evidence)
    score = beliefs.score(settled)
    assert score["accuracy"] > 0.9 and score["n"] == len(settled)
    assert list(beliefs.probabilities["answer"].iloc[:3]) == ANSWERS["label"]
    assert beliefs.meta == {"method": getattr(nous.peers, name).name, "probabilities": name != "mmsr"}
    if name != "mmsr":
        assert score["log_loss"] < 0.6


@pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # crowd-kit's use of pandas
def test_dawid_skene_is_what_crowd_kit_computes() -> None:
    evidence, _ = crowd()
    beliefs = run("dawid_skene", evidence)
    from crowdkit.aggregation import DawidSkene

    table = evidence.claims.rename(columns={"entity": "task", "source": "worker", "value": "label"})
    direct = DawidSkene().fit_predict_proba(table[["task", "worker", "label"]])
    direct = direct.loc[beliefs.questions["entity"], ["a", "b", "c"]]
    np.testing.assert_allclose(beliefs.probability.reshape(-1, 3), direct.to_numpy(), atol=1e-6)


def test_settled_facts_reach_dawid_skene_and_only_where_they_are_handed_in() -> None:
    evidence, settled = crowd()
    shown, hidden = settled.iloc[:60], settled.iloc[60:]
    blind = run("dawid_skene", evidence)
    with_facts = run("dawid_skene", evidence.with_settled(shown))
    asked = blind.match(hidden).cell
    assert with_facts.seen.sum() == 60 and not blind.seen.any()
    assert np.abs(with_facts.probability - blind.probability)[asked].max() > 1e-4
    aside = run("dawid_skene", evidence.with_settled(shown), true_labels=False)
    np.testing.assert_array_equal(aside.probability[asked], blind.probability[asked])
    assert not aside.seen.any()


def test_other_gets_what_is_given_to_labels_that_the_question_does_not_name() -> None:
    evidence, _ = crowd()
    closed = run("dawid_skene", evidence)
    opened = nous.peers.dawid_skene(evidence, 1)
    table = closed.probabilities.merge(
        opened.probabilities[~opened.probabilities["other"]], how="left", on=["entity", "attribute", "answer"]
    )
    named = table["probability_y"].notna()
    np.testing.assert_allclose(table["probability_x"][named], table["probability_y"][named], atol=1e-9)
    unnamed = table[~named].groupby("entity")["probability_x"].sum()
    others = opened.probabilities[opened.probabilities["other"]].set_index("entity")["probability"]
    np.testing.assert_allclose(others.loc[unnamed.index], unnamed, atol=1e-9)
    assert others.drop(unnamed.index).max() < 1e-9


def test_two_attributes_are_aggregated_each_on_its_own() -> None:
    evidence, _ = crowd()
    claims = evidence.claims.drop(columns="claim")
    turned = claims.assign(attribute="turned", value=claims["value"].map({"a": "x", "b": "y", "c": "z"}))
    both = nous.Evidence(pd.concat([claims, turned]))
    alone, together = run("dawid_skene", evidence), run("dawid_skene", both)
    frame = together.probabilities
    first = frame[frame["attribute"] == "label"].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, alone.probabilities)


def test_without_crowd_kit_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crowdkit", None)
    with pytest.raises(nous.ModelError, match=r"DawidSkene is a method of crowd-kit.*pip install 'nousppl\[peers\]'"):
        nous.peers.dawid_skene(crowd()[0])


def test_a_settled_truth_that_no_claim_names_stays_settled_and_is_not_handed_over() -> None:
    evidence, settled = crowd()
    strange = settled.head(1).assign(value="d")
    answers = {"label": ["a", "b", "c", "d"]}
    if find_spec("crowdkit") is None:
        pytest.skip("crowd-kit is not installed; the extra peers brings it")
    beliefs = nous.peers.dawid_skene(evidence.with_settled(pd.concat([strange, settled.tail(20)])), 1, answers=answers)
    assert beliefs.score(strange)["accuracy"] == 1.0
    assert beliefs.score(settled.iloc[1:])["accuracy"] > 0.9


def test_a_soft_claim_counts_as_its_value_of_most_weight() -> None:
    evidence, _ = crowd()
    claims = evidence.claims
    others = claims.assign(value=claims["value"].map({"a": "b", "b": "c", "c": "a"}), weight=0.3)
    soft = nous.Evidence(pd.concat([others, claims.assign(weight=0.6)]))
    whole = run("dawid_skene", evidence)
    np.testing.assert_allclose(run("dawid_skene", soft).probability, whole.probability, atol=1e-6)
