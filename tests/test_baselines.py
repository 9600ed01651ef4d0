"""Majority vote and best source against cases worked out by hand, and what must not move them."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.baselines import best_source, majority

RULES = [majority, best_source]


def table(*rows: tuple[str, str, str]) -> pd.DataFrame:
    """Claims from (entity, source, value), all about the attribute "a" unless the entity says "entity.attribute"."""
    frame = pd.DataFrame(rows, columns=["entity", "source", "value"])
    parts = frame["entity"].str.split(".")
    return frame.assign(entity=parts.str[0], attribute=[p[1] if len(p) > 1 else "a" for p in parts])


def facts(*rows: tuple[str, str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["entity", "value"])
    parts = frame["entity"].str.split(".")
    return frame.assign(entity=parts.str[0], attribute=[p[1] if len(p) > 1 else "a" for p in parts])


def probabilities(beliefs: nous.Beliefs, entity: str, attribute: str = "a") -> dict[str, float]:
    frame = beliefs.probabilities
    mine = frame[(frame["entity"] == entity) & (frame["attribute"] == attribute)]
    return dict(zip(mine["answer"], mine["probability"], strict=True))


def test_majority_is_the_smoothed_share_of_votes() -> None:
    evidence = nous.Evidence(table(("q", "s1", "x"), ("q", "s2", "x"), ("q", "s3", "y")))
    open_list = probabilities(majority(evidence), "q")
    assert open_list == pytest.approx({"x": 2.5 / 4.5, "y": 1.5 / 4.5, "other": 0.5 / 4.5})
    closed = probabilities(majority(evidence, answers={"a": ["x", "y", "z", "w"]}), "q")
    assert closed == pytest.approx({"x": 2.5 / 5, "y": 1.5 / 5, "z": 0.5 / 5, "w": 0.5 / 5})


def test_soft_claims_vote_with_their_weight_and_repeats_and_own_notes_not_at_all() -> None:
    claims = pd.DataFrame(
        [
            ("c1", "s1", "x", 0.75, None, False),
            ("c1", "s1", "y", 0.25, None, False),
            ("c2", "s2", "x", 1.0, "c3", False),
            ("c3", "s3", "x", 1.0, None, False),
            ("c4", "s4", "y", 1.0, None, True),
        ],
        columns=["claim", "source", "value", "weight", "origin", "derived"],
    ).assign(entity="q", attribute="a", time=[1, 1, 3, 2, 4])
    beliefs = majority(nous.Evidence(claims))
    assert probabilities(beliefs, "q") == pytest.approx({"x": 2.25 / 3.5, "y": 0.75 / 3.5, "other": 0.5 / 3.5})


def test_best_source_has_the_twice_shrunk_accuracy() -> None:
    claims = table(
        ("1", "good", "x"), ("2", "good", "x"), ("3.b", "good", "x"), ("1", "bad", "y"), ("2", "bad", "x"),
        ("q", "good", "x"), ("q", "bad", "y"), ("q", "new", "z"), ("r", "bad", "y"),
    )  # fmt: skip
    evidence = nous.Evidence(claims, settled=facts(("1", "x"), ("2", "x"), ("3.b", "y")))
    beliefs = best_source(evidence)
    everyone = (3 + 1) / (5 + 2)
    good = (2 + 5 * (2 + 5 * everyone) / (3 + 5)) / (2 + 5)
    bad = (1 + 5 * (1 + 5 * everyone) / (2 + 5)) / (2 + 5)
    assert good > everyone > bad
    rest = (1 - good) / 3
    assert probabilities(beliefs, "q") == pytest.approx({"x": good, "y": rest, "z": rest, "other": rest})
    assert probabilities(beliefs, "r") == pytest.approx({"y": bad, "other": 1 - bad})
    assert probabilities(beliefs, "1") == {"x": 1.0, "y": 0.0, "other": 0.0}
    assert list(beliefs.frame.loc[beliefs.seen, "entity"]) == ["1", "2", "3"]


def test_a_source_is_followed_where_it_is_good() -> None:
    many = [
        (f"{i}.{a}", s, "x" if s == best else "y")
        for a, best in (("a", "s"), ("b", "t"))
        for s in "st"
        for i in range(9)
    ]
    claims = table(*many, ("q.a", "s", "x"), ("q.a", "t", "y"), ("q.b", "s", "x"), ("q.b", "t", "y"))
    settled = facts(*((f"{i}.{a}", "x") for i in range(9) for a in "ab"))
    frame = best_source(nous.Evidence(claims, settled=settled)).frame.set_index(["entity", "attribute"])
    assert list(frame.loc["q", "answer"]) == ["x", "y"]


def test_a_liar_in_a_closed_list_speaks_against_what_it_says_and_in_an_open_domain_stays_the_answer() -> None:
    claims = table(*((str(i), "liar", "x") for i in range(20)), ("q", "liar", "x"))
    evidence = nous.Evidence(claims, settled=facts(*((str(i), "y") for i in range(20))))
    closed = best_source(evidence, answers={"a": ["x", "y"]})
    assert closed.frame.set_index("entity").loc["q", "answer"] == "y"
    frame = best_source(evidence).frame.set_index("entity")
    assert frame.loc["q", "answer"] == "x" and frame.loc["q", "probability"] == pytest.approx(0.5)


def test_among_equals_the_latest_claim_is_followed_and_a_ceiling_bounds_it() -> None:
    claims = table(("q", "s1", "x"), ("q", "s2", "y")).assign(time=[2, 1])
    assert best_source(nous.Evidence(claims)).frame["answer"][0] == "x"
    assert best_source(nous.Evidence(claims.assign(ceiling=[0.3, 1.0]))).frame["answer"][0] == "y"


def test_a_settled_fact_moves_the_best_source() -> None:
    claims = table(("1", "s", "x"), ("1", "t", "y"), ("q", "s", "x"), ("q", "t", "y"))
    answers = [
        best_source(nous.Evidence(claims, settled=facts(("1", truth)))).frame.set_index("entity").loc["q", "answer"]
        for truth in "xy"
    ]
    assert answers == ["x", "y"]


def world() -> tuple[nous.Evidence, pd.DataFrame]:
    made = nous.datasets.world(200, seed=3)
    return nous.Evidence(made.claims), made.settled


@pytest.mark.parametrize("rule", RULES)
def test_hidden_facts_do_not_leak(rule: Callable[..., nous.Beliefs]) -> None:
    evidence, settled = world()
    shown, hidden = settled.iloc[::2], settled.iloc[1::2]
    whole = rule(evidence.with_settled(settled)).score(hidden)
    assert whole["accuracy"] == 1.0
    with_facts = rule(evidence.with_settled(shown))
    # The hidden truths changed: nothing that was not settled in the evidence may have been used.
    other = hidden.assign(value=np.roll(hidden["value"], 1))
    assert with_facts.match(hidden).missing == 0
    again = rule(evidence.with_settled(other).with_settled(shown))
    assert again.to_frame().equals(with_facts.to_frame())
    assert with_facts.score(hidden)["accuracy"] < 1.0


@pytest.mark.parametrize("rule", RULES)
def test_the_order_of_rows_changes_nothing(rule: Callable[..., nous.Beliefs]) -> None:
    evidence, settled = world()
    order = np.random.default_rng(0).permutation(len(evidence.claims))
    claims = evidence.claims.drop(columns="claim")
    one = rule(nous.Evidence(claims, settled=settled.iloc[::2]), seed=4)
    two = rule(nous.Evidence(claims.iloc[order], settled=settled.iloc[::2][::-1]), seed=4)
    pd.testing.assert_frame_equal(one.to_frame(), two.to_frame())


@pytest.mark.parametrize("rule", RULES)
def test_ties_fall_to_either_side_by_the_seed(rule: Callable[..., nous.Beliefs]) -> None:
    evidence = nous.Evidence(table(*((str(i), s, v) for i in range(400) for s, v in (("s", "x"), ("t", "y")))))
    shares = [(rule(evidence, seed).frame["answer"] == "x").mean() for seed in range(3)]
    assert all(abs(share - 0.5) < 0.1 for share in shares) and len(set(shares)) > 1


@pytest.mark.parametrize("rule", RULES)
def test_what_is_rejected_is_not_answered(rule: Callable[..., nous.Beliefs]) -> None:
    claims = table(("q", "s", "x"), ("q", "t", "x"), ("q", "u", "y"))
    beliefs = rule(nous.Evidence(claims, settled=facts(("q", "x")).assign(verdict="false")))
    found = probabilities(beliefs, "q")
    assert found["x"] == 0.0 and sum(found.values()) == pytest.approx(1.0)
    assert beliefs.frame["answer"][0] == "y"


@pytest.mark.parametrize("rule", RULES)
def test_a_question_without_claims_is_even(rule: Callable[..., nous.Beliefs]) -> None:
    settled = facts(("q", "x"), ("r", "y")).assign(verdict=["true", "false"])
    found = probabilities(rule(nous.Evidence(table(("q", "s", "x")), settled), answers={"a": ["x", "y", "z"]}), "r")
    assert found == pytest.approx({"x": 0.5, "y": 0.0, "z": 0.5})


def test_a_value_outside_the_closed_list_is_refused() -> None:
    evidence = nous.Evidence(table(("q", "s", "x")))
    with pytest.raises(nous.ModelError, match=r"outside its closed list, first 'x' \(entity 'q'\); allowed are"):
        majority(evidence, answers={"a": ["y", "z"]})
