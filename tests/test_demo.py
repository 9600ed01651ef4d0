"""Which beliefs a demonstration shows, by rules that are told apart from each other."""

import pandas as pd
import pytest

from nousppl import demo
from nousppl.beliefs import Beliefs
from nousppl.evidence import Evidence

COLUMNS = ["verdict", "probability", "effective_claims", "claims", "votes", "margin", "entropy", "right"]


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        ("clear", 0.99, 3.0, 4, 4, 0, 0.1, True),
        ("clear", 0.90, 1.2, 9, 2, 5, 0.4, True),
        ("sources disagree", 0.50, 1.0, 5, 2, 0, 1.2, True),
        ("clear", 0.97, 2.0, 6, 5, 0, 0.2, False),
        ("not named", 0.60, 0.0, 2, 0, 2, 2.0, None),
        ("too little evidence", 0.55, 0.6, 1, 1, 0, 1.5, True),
        ("clear", 0.85, 1.1, 12, 10, 0, 0.5, None),
    ]
    return pd.DataFrame(rows, columns=COLUMNS, index=range(10, 17))


def test_each_rule_picks_its_belief(table):
    assert demo.choose(table, most=7) == [
        ("Clear", 10),
        ("Most claims say otherwise", 11),
        ("Sources disagree", 12),
        ("The surest mistake", 13),
        ("Nobody named it", 14),
        ("Too little evidence", 15),
        ("Many claims, few witnesses", 16),
    ]


def test_at_most_as_many_as_asked_for_and_none_twice(table):
    assert [row for _, row in demo.choose(table, most=5)] == [10, 11, 12, 13, 14]
    few = demo.choose(table.head(1), most=5)
    assert few == [("Clear", 10)]


def test_questions_with_most_claims_fill_up(table):
    plain = table[table["verdict"] == "clear"].assign(margin=0, votes=0, right=True)
    assert demo.choose(plain, most=3) == [("Clear", 10), ("Many claims", 16), ("Many claims", 11)]


def test_only_the_mistake_looks_at_what_turned_out(table):
    blind = demo.choose(table.assign(right=None), most=7)
    seen = dict(demo.choose(table, most=7))
    assert {label: row for label, row in blind if label in seen and label != "Many claims"} == {
        label: row for label, row in seen.items() if label != "The surest mistake"
    }


def evidence() -> Evidence:
    claims = pd.DataFrame(
        {
            "entity": ["a"] * 4 + ["b"] * 2,
            "attribute": "colour",
            "value": ["red", "red", "red", "blue", "green", "blue"],
            "source": list("uvwxyz"),
            "time": range(6),
        }
    )
    return Evidence(claims)


def test_overview_counts_what_is_named():
    answers = pd.DataFrame({"entity": ["a", "a", "b", "b"], "attribute": "colour"})
    answers["answer"], answers["probability"] = ["blue", "red", "blue", "green"], [0.9, 0.1, 0.4, 0.6]
    settled = pd.DataFrame({"entity": ["a"], "attribute": "colour", "value": ["red"]})
    table = demo.overview(Beliefs.from_frame(answers), evidence(), settled)
    assert table["named_most"].tolist() == ["red", None]
    assert table["votes"].tolist() == [1, 1]
    assert table["margin"].tolist() == [2, 0]
    assert table["right"].tolist() == [False, None]
    rows = list(table.itertuples())
    assert demo.outcome(rows[0]) == "Settled later: red, so the belief was wrong."
    assert demo.outcome(rows[1]) == ""


def test_last_polls_keeps_one_poll_for_each_pollster_and_state():
    claims = pd.DataFrame(
        {"entity": ["x", "x", "y", "x"], "source": ["p", "p", "p", "q"], "time": [2, 5, 1, 3], "value": list("abcd")}
    )
    assert sorted(demo.last_polls(claims)["value"]) == ["b", "c", "d"]
