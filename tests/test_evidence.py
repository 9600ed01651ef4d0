"""Evidence: what is read, in what order, and what its parts hold."""

from __future__ import annotations

import datetime as dt
import gzip
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nousppl._lineage import repeats_of, roots, survivors
from nousppl._values import skeleton
from nousppl.coded import Coded
from nousppl.errors import QuestionError
from nousppl.evidence import Evidence


def table(rows: list[tuple[Any, ...]], columns: str) -> pd.DataFrame:
    """A frame of rows with these columns, after entity, attribute, value and source."""
    return pd.DataFrame(rows, columns=["entity", "attribute", "value", "source", *columns.split()])


def facts(rows: list[tuple[Any, ...]], columns: str = "") -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["entity", "attribute", "value", *columns.split()])


def world(rows: int = 400, seed: int = 3) -> pd.DataFrame:
    """Claims with tied and missing times, identical rows, ceilings, notes and covariates; no claim ids."""
    rng = np.random.default_rng(seed)
    time = rng.integers(0, 4, rows).astype(float)
    time[rng.random(rows) < 0.3] = np.nan
    return pd.DataFrame(
        {
            "entity": rng.choice(["maya", "tom", "zoë"], rows),
            "attribute": rng.choice(["diet", "city"], rows),
            "value": rng.choice(["a", "b", "c"], rows),
            "source": rng.choice(["s1", "s2", "s3", "s4"], rows),
            "time": time,
            "ceiling": rng.choice([0.5, np.nan], rows),
            "derived": rng.random(rows) < 0.1,
            "length": rng.integers(0, 3, rows),
        }
    )


def soft_world(rows: int = 120, seed: int = 4) -> pd.DataFrame:
    """The same with ids, lineage and soft claims of up to three values."""
    frame = world(rows, seed).assign(claim=[f"c{row}" for row in range(rows)], weight=1.0)
    rng = np.random.default_rng(seed)
    parts = []
    for row in range(0, rows, 3):
        names = rng.permutation(["a", "b", "c"])[: rng.integers(1, 4)]
        weights = rng.dirichlet(np.ones(len(names))) * 0.9
        parts.extend(frame.iloc[[row]].assign(value=value, weight=w) for value, w in zip(names, weights, strict=True))
    frame = pd.concat([frame[np.arange(rows) % 3 != 0], *parts], ignore_index=True)
    return frame.merge(_lineage(frame), on="claim", how="left")


def _lineage(frame: pd.DataFrame) -> pd.DataFrame:
    heads = frame.drop_duplicates("claim").dropna(subset="time").sort_values("time")
    before = heads.groupby(["entity", "attribute"])["claim"].shift(1)
    return pd.DataFrame({"claim": heads["claim"], "origin": before.where(heads["length"] == 0)})


SETTLED = facts([("maya", "diet", "a", 1.0), ("tom", "city", "q", 3.0), ("ida", "city", "b", 2.0)], "time")


def same(first: Coded, second: Coded, but: tuple[str, ...] = ()) -> None:
    """Assert that two codings are the same, types included."""
    for field in fields(Coded):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if field.name in but:
            continue
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other)
        elif isinstance(one, pd.Index):
            pd.testing.assert_index_equal(one, other)
        else:
            assert one.dtype == other.dtype, field.name
            np.testing.assert_array_equal(one, other, err_msg=field.name)


# What is read


def test_coding_of_a_small_table() -> None:
    claims = table(
        [
            ("tom", "city", "oslo", "bob", "2026-01-03", None, None),
            ("maya", "diet", "vegan", "cid", None, 0.5, None),
            ("maya", "diet", "omnivore", "bob", "2026-01-02", None, True),
            ("maya", "diet", "vegan", "ann", "2026-01-01", None, "false"),
        ],
        "time ceiling derived",
    )
    settled = facts([("maya", "diet", "meat", None, "false"), ("tom", "city", "oslo", None, "true")], "time verdict")
    evidence = Evidence(claims, settled)
    coded = evidence.coded
    assert coded.questions.to_numpy().tolist() == [["maya", "diet"], ["tom", "city"]]
    assert coded.attributes.tolist() == ["city", "diet"]
    assert coded.question_attribute.tolist() == [1, 0]
    assert coded.sources.tolist() == ["ann", "bob", "cid"]
    assert coded.answers.to_numpy().tolist() == [[0, "meat"], [0, "omnivore"], [0, "vegan"], [1, "oslo"]]
    assert coded.claim_question.tolist() == [0, 0, 0, 1]
    np.testing.assert_array_equal(coded.claim_time, [20454, 20455, np.nan, 20456])
    np.testing.assert_array_equal(coded.claim_known_at, coded.claim_time)
    assert coded.claim_source.tolist() == [0, 1, 2, 1]
    assert coded.claim_ceiling.tolist() == [np.inf, np.inf, 0.5, np.inf]
    assert coded.claim_derived.tolist() == [False, True, False, False]
    assert coded.claim_origin.tolist() == [-1] * 4
    assert coded.claim_id.tolist() == ["claim 0", "claim 1", "claim 2", "claim 3"]
    assert coded.row_claim.tolist() == [0, 1, 2, 3]
    assert coded.row_answer.tolist() == [2, 1, 2, 3]
    assert coded.row_weight.tolist() == [1.0] * 4
    assert coded.settled_question.tolist() == [0, 1]
    assert coded.settled_answer.tolist() == [0, 3]
    assert coded.settled_rejected.tolist() == [True, False]
    assert coded.claim_start.tolist() == [0, 3, 4]
    assert coded.answer_start.tolist() == [0, 3, 4]
    assert coded.row_start.tolist() == [0, 1, 2, 3, 4]
    assert coded.settled_start.tolist() == [0, 1, 2]
    assert [coded.claim_question.dtype, coded.row_answer.dtype, coded.claim_origin.dtype] == ["int32", "int32", "int64"]
    assert evidence.claims["claim"].tolist() == coded.claim_id.tolist()
    assert repr(evidence) == "Evidence(4 claims, 2 questions, 3 sources, 2 settled facts)"


@pytest.mark.parametrize("make", [world, soft_world])
def test_order_of_rows_does_not_matter(make: Callable[[], pd.DataFrame]) -> None:
    frame = make()
    first = Evidence(frame, SETTLED)
    for seed in range(5):
        other = Evidence(frame.sample(frac=1, random_state=seed), SETTLED.sample(frac=1, random_state=seed))
        same(first.coded, other.coded)
        pd.testing.assert_frame_equal(first.claims, other.claims)
        pd.testing.assert_frame_equal(first.settled, other.settled)
        pd.testing.assert_frame_equal(first.covariates, other.covariates)


def test_order_of_columns_and_types_do_not_matter() -> None:
    frame = world()
    first = Evidence(frame)
    other = Evidence(frame[frame.columns[::-1]].astype({"entity": "category", "value": "category", "source": object}))
    same(first.coded, other.coded)


def test_claims_are_sorted() -> None:
    coded = Evidence(soft_world(), SETTLED).coded
    time = np.where(np.isnan(coded.claim_time), np.inf, coded.claim_time)
    order = np.lexsort((coded.claim_key, time, coded.claim_question))
    assert (order == np.arange(len(order))).all()
    assert (np.diff(coded.row_claim) >= 0).all()
    within = np.diff(coded.row_claim) == 0
    assert (np.diff(coded.row_answer)[within] > 0).all()


def test_keys_are_unique_and_fixed() -> None:
    """The numbers were computed with pandas 3.1.1; they may never change, as averaged orders of claims hang on them."""
    rows = [("maya", "diet", "vegan", "ann", 1.0)] * 2 + [("maya", "diet", "vegan", "ann", None)]
    coded = Evidence(table(rows, "time")).coded
    assert len(set(coded.claim_key.tolist())) == 3
    assert coded.claim_key.tolist() == KEYS
    numbers = Evidence(table([(1, 2, 3, 4)], "")).coded.claim_key
    floats = Evidence(table([(1.0, 2.0, 3.0, 4.0)], "")).coded.claim_key
    assert numbers.tolist() == floats.tolist()
    assert Evidence(table([(1, 2, True, 4)], "")).coded.claim_key != numbers
    assert Evidence(table([(1, 2, "3", 4)], "")).coded.claim_key != numbers


KEYS = [6123753115241332254, 15511076397393086736, 4265246060885824681]


def test_identical_claims_are_told_apart_by_the_rest_of_their_rows() -> None:
    rows = [("maya", "diet", "vegan", "ann", length) for length in (1, 2, 1)]
    first, other = Evidence(table(rows, "length")), Evidence(table(rows[::-1], "length"))
    pd.testing.assert_frame_equal(first.claims, other.claims)
    assert first.report.count("at the same time; all kept") == 2
    assert len(first) == 3


def test_the_users_frames_are_never_written() -> None:
    frames = [soft_world(), SETTLED.copy(), pd.DataFrame({"source": ["s2", "s1"], "kind": ["x", "y"]})]
    before = [frame.copy(deep=True) for frame in frames]
    evidence = Evidence(*frames)
    for shown in (evidence.claims, evidence.settled, evidence.sources, evidence.questions, evidence.covariates):
        shown.loc[:, shown.columns[0]] = "spoilt"
    shown = evidence.question("maya", "diet").claims
    shown["value"] = "spoilt"
    for frame, old in zip(frames, before, strict=True):
        pd.testing.assert_frame_equal(frame, old)
    same(evidence.coded, Evidence(*before).coded)
    assert "spoilt" not in evidence.claims.to_numpy()


def test_later_changes_of_the_users_frame_do_not_reach_the_evidence() -> None:
    frame = world()
    evidence = Evidence(frame)
    held = evidence.claims.copy(deep=True)
    frame.loc[:, "value"] = "spoilt"
    pd.testing.assert_frame_equal(evidence.claims, held)


# Values


def test_values_are_equal_by_the_declared_rule() -> None:
    values = [1, 1.0, Decimal(1), np.float32(1), 2.5, True, np.True_, False, "1", "1.0", "a", "A"]
    attributes = ["number"] * 5 + ["flag"] * 3 + ["text"] * 4
    rows = [("e", attribute, value, "s") for attribute, value in zip(attributes, values, strict=True)]
    evidence = Evidence(table(rows, ""))
    assert evidence.question("e", "number").answers == [1, 2.5]
    assert evidence.question("e", "flag").answers == [False, True]
    assert evidence.question("e", "text").answers == ["1", "1.0", "A", "a"]
    assert [type(answer) for answer in evidence.question("e", "flag").answers] == [bool, bool]


def test_a_number_has_one_form() -> None:
    for values in ([1.0, 2.5, 1], [1, 2.5, 1.0]):
        evidence = Evidence(table([("e", "a", value, "s") for value in values], ""))
        assert [type(answer) for answer in evidence.question("e", "a").answers] == [int, float]


def test_great_whole_numbers_stay_distinct() -> None:
    evidence = Evidence(table([("e", "a", 2**60 + step, "s") for step in range(3)], ""))
    assert evidence.question("e", "a").answers == [2**60, 2**60 + 1, 2**60 + 2]


@pytest.mark.parametrize("rule", [{"NYC": "New York"}, lambda value: "New York" if value == "NYC" else value])
def test_same_value_merges(rule: Any) -> None:
    rows = [("e", "a", "NYC", "s", "x", 0.5), ("e", "a", "New York", "s", "x", 0.3), ("e", "a", "Rome", "s", "x", 0.1)]
    evidence = Evidence(table(rows, "claim weight"), facts([("e", "a", "NYC")]), same_value=rule)
    coded = evidence.coded
    assert evidence.question("e", "a").answers == ["New York", "Rome"]
    np.testing.assert_allclose(coded.row_weight, [0.8, 0.1])
    assert coded.settled_answer.tolist() == [0]
    assert evidence.claims["value"].tolist() == ["New York", "Rome"]
    assert evidence.settled["value"].tolist() == ["New York"]
    assert evidence.report.count("as same_value says") == 1
    assert evidence.with_settled(facts([("e", "a", "NYC")])).coded.settled_answer.tolist() == [0]


LOOK_ALIKES = {
    "cyrillic": ("Paris", "\u0420\u0430ris"),
    "greek": ("OPEL", "\u039f\u03a1\u0395L"),
    "full width": ("ABC", "\uff21\uff22\uff23"),
    "ligature": ("office", "o\ufb03ce"),
    "zero width": ("paypal", "pay\u200bpal"),
    "composed": ("Z\u00fcrich", "Zu\u0308rich"),
    "accent": ("caf\u00e9", "cafe"),
    "case": ("Vegan", "vegan"),
    "spacing": ("New  York ", "New York"),
    "no-break space": ("New\u00a0York", "New York"),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_look_alikes_are_kept_distinct_and_reported(name: str) -> None:
    first, other = LOOK_ALIKES[name]
    evidence = Evidence(table([("e", "a", first, "s"), ("e", "a", other, "t"), ("e", "a", "else", "t")], ""))
    assert len(evidence.question("e", "a").answers) == 3
    assert evidence.report.count("values of one attribute that look alike, kept distinct") == 1
    assert skeleton(first) == skeleton(other)


def test_values_that_differ_are_not_look_alikes() -> None:
    words = ["Paris", "Oslo", "москва", "минск", "東京", "京都", "1", "10"]
    evidence = Evidence(table([("e", "a", word, "s") for word in words] + [("e", "b", "paris", "s")], ""))
    assert evidence.report.count("look alike") == 0


def test_look_alike_sources_are_reported() -> None:
    evidence = Evidence(table([("e", "a", "x", "reuters"), ("e", "a", "x", "r\u0435uters")], ""))
    note = evidence.report.frame.query("what.str.contains('sources that look alike')")
    assert note["first"].tolist() == ["'reuters' / 'r\u0435uters' = 'r\\u0435uters'"]
    assert len(evidence.coded.sources) == 2


def test_a_value_of_a_megabyte_works() -> None:
    text = "x" * 1_000_000
    evidence = Evidence(table([("e", "a", text, "s"), ("e", "a", text + "y", "t"), ("e", "a", text, "u")], ""))
    question = evidence.question("e", "a")
    assert [len(answer) for answer in question.answers] == [1_000_000, 1_000_001]
    assert len(repr(question)) < 2000
    assert "(1000000 characters)" in question._repr_html_()


def test_a_hundred_thousand_claims_on_one_question_work() -> None:
    rows = 100_000
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"entity": "e", "attribute": "a", "value": rng.integers(0, 9, rows), "source": np.arange(rows)}
    )
    frame = frame.assign(claim=np.arange(rows), origin=np.where(frame.index % 2, np.arange(rows) - 1.0, np.nan), time=1)
    evidence = Evidence(frame)
    coded = evidence.coded
    assert coded.claim_start.tolist() == [0, rows]
    assert (coded.claim_origin >= 0).sum() + evidence.report.count("but another value") == rows // 2
    assert len(evidence.without(range(0, rows, 2))) == rows // 2


# Times

TIMES: dict[str, tuple[Any, str, list[float]]] = {
    "numbers": ([3, 1.5], "numbers", [1.5, 3]),
    "numbers as text": (["3", " 1.5"], "numbers", [1.5, 3]),
    "dates as text": (["2026-01-02", "2026-01-01T12:00"], "dates without a time zone", [20454.5, 20455]),
    "dates": ([dt.date(2026, 1, 2), dt.date(2026, 1, 1)], "dates without a time zone", [20454, 20455]),
    "timestamps": (
        pd.to_datetime(["2026-01-02 00:00", "2026-01-01 06:00"]),
        "dates without a time zone",
        [20454.25, 20455],
    ),
    "far dates": (["9999-12-31", "0001-01-01"], "dates without a time zone", [-719162, 2932896]),
    "one offset": (["2026-01-01T12:00+12:00", "2026-01-01T00:00+1200"], "dates with a time zone", [20453.5, 20454]),
    "UTC written twice": (["2026-01-01T12:00Z", "2026-01-01T00:00+00:00"], "dates with a time zone", [20454, 20454.5]),
    "a zone with summer time": (
        pd.to_datetime(["2026-07-01 02:00", "2026-01-01 01:00"]).tz_localize("Europe/Berlin"),
        "dates with a time zone",
        [20454, 20635],
    ),
    "some missing": ([None, "2026-01-01"], "dates without a time zone", [20454, np.nan]),
    "categories": (pd.Categorical(["2026-01-02", "2026-01-01"]), "dates without a time zone", [20454, 20455]),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_are_read(name: str) -> None:
    given, kind, days = TIMES[name]
    frame = table([("e", "a", "x", "s"), ("e", "a", "y", "s")], "").assign(time=given)
    evidence = Evidence(frame)
    assert evidence.time_kind == kind
    np.testing.assert_allclose(evidence.coded.claim_time, days, rtol=0, atol=1e-9)
    last = evidence.claims["time"].dropna().iloc[-1]
    assert evidence.as_time(last) == np.nanmax(days)
    assert len(evidence.known_by(last)) == np.isfinite(days).sum()


def test_a_column_of_blank_times_is_no_time() -> None:
    evidence = Evidence(table([("e", "a", "x", "s", None), ("e", "a", "y", "s", " ")], "time"))
    assert evidence.time_kind is None
    assert np.isnan(evidence.coded.claim_time).all()


def test_times_of_settled_facts_alone() -> None:
    evidence = Evidence(table([("e", "a", "x", "s")], ""), facts([("e", "a", "x", "2026-01-01")], "time"))
    assert evidence.as_time("2026-01-02") == 20455
    assert evidence.with_settled(facts([("e", "a", "x", 3)], "time")).time_kind == "numbers"


# Soft claims


def test_soft_claims() -> None:
    rows = [
        ("e", "a", "y", "s", "c1", 0.6, 7),
        ("e", "a", "x", "s", "c1", 0.3, 7),
        ("e", "a", "z", "s", "c1", 0.0, 7),
        ("e", "a", "x", "t", "c2", None, 8),
        ("e", "a", "x", "u", "c3", 0.0, 9),
    ]
    evidence = Evidence(table(rows, "claim weight length"))
    coded = evidence.coded
    ids = coded.claim_id.tolist()
    assert sorted(ids) == ["c1", "c2"]
    soft = slice(coded.row_start[ids.index("c1")], coded.row_start[ids.index("c1") + 1])
    assert coded.row_weight[soft].tolist() == [0.3, 0.6]
    assert coded.answers["value"].to_numpy()[coded.row_answer[soft]].tolist() == ["x", "y"]
    assert evidence.question("e", "a").answers == ["x", "y"]
    assert len(evidence.question("e", "a")) == 2
    assert evidence.covariates["length"].tolist() == [{"c1": 7, "c2": 8}[one] for one in ids]
    assert evidence.report.count("rows with weight 0 left aside") == 2
    assert evidence.report.count("claims left aside that give no weight") == 1
    assert evidence.report.count("claims in use") == 2


def test_weights_a_hair_above_one_are_scaled() -> None:
    rows = [("e", "a", value, "s", "c", weight) for value, weight in zip("xyz", (0.7, 0.2, 0.1 + 1e-9), strict=True)]
    weights = Evidence(table(rows, "claim weight")).coded.row_weight
    assert weights.sum() <= 1
    np.testing.assert_allclose(weights, [0.7, 0.2, 0.1], atol=1e-8)


# Lineage


def chain(values: str = "xxxyx") -> Evidence:
    """c0 <- c1 <- c2 <- c3 (other value by default) and c4 <- c0, in order of time."""
    origins = [None, "c0", "c1", "c2", "c0"]
    rows = [("e", "a", value, f"s{j}", f"c{j}", origins[j], j) for j, value in enumerate(values)]
    return Evidence(table(rows, "claim origin time"))


def test_origins_are_coded() -> None:
    evidence = chain()
    assert evidence.coded.claim_origin.tolist() == [-1, 0, 1, -1, 0]
    assert evidence.report.count("claims with an origin but another value, taken as fresh") == 1
    assert evidence.report.count("claims with a known origin") == 3


def test_origin_of_soft_claims_goes_by_their_top_value() -> None:
    rows = [
        ("e", "a", "x", "s", "c0", 0.6, None),
        ("e", "a", "y", "s", "c0", 0.4, None),
        ("e", "a", "x", "t", "c1", 1.0, "c0"),
        ("e", "a", "y", "u", "c2", 1.0, "c0"),
    ]
    coded = Evidence(table(rows, "claim weight origin")).coded
    origin = dict(zip(coded.claim_id.tolist(), coded.claim_origin.tolist(), strict=True))
    assert origin == {"c0": -1, "c1": coded.claim_id.tolist().index("c0"), "c2": -1}


def test_what_is_taken_out_is_stood_for() -> None:
    assert chain().without(["c0"]).coded.claim_origin.tolist() == [-1, 0, -1, 0]
    assert chain().without(["c1"]).coded.claim_origin.tolist() == [-1, 0, -1, 0]
    assert chain().without(["c0", "c1"]).coded.claim_origin.tolist() == [-1, -1, 0]


def test_an_origin_not_known_yet_is_stood_for() -> None:
    rows = [("e", "a", "x", f"s{j}", f"c{j}", "c0" if j else None, j, 9 if j == 0 else j) for j in range(4)]
    evidence = Evidence(table(rows, "claim origin time known_at"))
    early = evidence.known_by(3)
    assert early.coded.claim_id.tolist() == ["c1", "c2", "c3"]
    assert early.coded.claim_origin.tolist() == [-1, 0, 0]
    assert evidence.known_by(9).coded.claim_origin.tolist() == [-1, 0, 0, 0]


def test_revoked_claims_take_their_repetitions_along() -> None:
    evidence = chain().revoke(["c1"])
    assert evidence.coded.claim_id.tolist() == ["c0", "c3", "c4"]
    assert evidence.revoked["claim"].tolist() == ["c1", "c2"]
    assert evidence.report.count("claims revoked") == 1
    assert evidence.report.count("known to repeat a revoked one") == 1
    assert evidence.revoke("c3").revoked["claim"].tolist() == ["c1", "c2", "c3"]
    assert len(chain().revoke(["c0"])) == 1


def test_lineage_of_long_chains() -> None:
    size = 5000
    origin = np.arange(size) - 1
    assert (roots(origin) == 0).all()
    gone = np.arange(size) == 10
    assert repeats_of(origin, gone).sum() == size - 10
    kept = np.flatnonzero(np.arange(size) % 7 == 3)
    assert survivors(origin, kept).tolist() == [-1, *range(len(kept) - 1)]
    ring = np.roll(np.arange(6), 1)
    assert (roots(ring) == -1).all()


# Settled facts


def test_settled_facts() -> None:
    claims = table([("maya", "diet", "a", "s", 1.0)], "time")
    rows = [
        ("maya", "diet", "a", 2, 5, "true"),
        ("maya", "diet", "a", 2, 4, None),
        ("maya", "diet", "b", 9, None, "false"),
        ("maya", "diet", "c", 7, None, "true"),
        ("ida", "city", "q", None, None, "true"),
    ]
    evidence = Evidence(claims, facts(rows, "time known_at verdict"))
    coded = evidence.coded
    assert coded.questions["entity"].tolist() == ["ida", "maya"]
    assert coded.settled_question.tolist() == [0, 1, 1, 1]
    np.testing.assert_array_equal(coded.settled_time, [np.nan, 2, 7, 9])
    np.testing.assert_array_equal(coded.settled_known_at, [np.nan, 4, 7, 9])
    assert coded.answer_value[coded.settled_answer].tolist() == ["q", "a", "c", "b"]
    assert coded.settled_rejected.tolist() == [False, False, False, True]
    assert evidence.report.count("settled facts left aside that repeat another one") == 1
    assert evidence.report.count("questions with a settled fact and no claim") == 1
    assert evidence.report.count("of these, rejections") == 1
    assert evidence.question("ida", "city").claims.empty
    assert evidence.question("maya", "diet").settled["value"].tolist() == ["a", "c", "b"]
    assert "0 claims, 1 answers named ('q')" in repr(evidence.question("ida", "city"))


def test_rejecting_every_named_answer_is_reported() -> None:
    claims = table([("e", "a", "x", "s"), ("e", "a", "y", "s"), ("f", "a", "x", "s")], "")
    evidence = Evidence(claims, facts([("e", "a", "x", "false"), ("e", "a", "y", "false")], "verdict"))
    assert evidence.report.count("all of whose named answers are rejected") == 1


def test_with_settled_replaces() -> None:
    frame = soft_world()
    evidence = Evidence(frame)
    same(evidence.with_settled(SETTLED).coded, Evidence(frame, SETTLED).coded)
    same(Evidence(frame, SETTLED).with_settled(None).coded, evidence.coded)
    assert evidence.with_settled(SETTLED).report.frame.equals(Evidence(frame, SETTLED).report.frame)
    again = Evidence(frame, SETTLED).with_settled(SETTLED.head(1))
    assert len(again.settled) == len(again.coded.settled_question) == 1
    assert len(evidence.with_settled(SETTLED.head(0)).coded.settled_question) == 0
    assert evidence.settled.empty


# Parts


def test_a_part_is_what_its_rows_alone_would_be() -> None:
    frame = soft_world()
    evidence = Evidence(frame, SETTLED)
    for wanted in ([0], [3, 1, 1], [2, 4, 5], [6], []):
        part = evidence.subset(wanted)
        kept = evidence.questions.iloc[sorted(set(wanted))]
        rows = frame.merge(kept, on=["entity", "attribute"])
        assert part.questions.to_numpy().tolist() == kept.to_numpy().tolist()
        if len(rows):
            alone = Evidence(rows, SETTLED.merge(kept, on=["entity", "attribute"]))
            same(part.coded, alone.coded, but=("claim_key",))
            pd.testing.assert_frame_equal(part.claims, alone.claims)
            pd.testing.assert_frame_equal(part.covariates, alone.covariates)
            pd.testing.assert_frame_equal(part.settled, alone.settled)


def test_parts_keep_keys_and_ids() -> None:
    evidence = Evidence(world(), SETTLED)
    part = evidence.subset([1, 3]).without(evidence.subset([1]).coded.claim_id[:2])
    key = dict(zip(evidence.coded.claim_id.tolist(), evidence.coded.claim_key.tolist(), strict=True))
    assert [key[one] for one in part.coded.claim_id.tolist()] == part.coded.claim_key.tolist()


def test_a_part_reads_no_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = Evidence(world(), SETTLED)
    monkeypatch.delattr("nousppl.tables.Table.labels")
    assert len(evidence.subset([0]).known_by(2).coded.questions) == 1


def test_cuts_in_time() -> None:
    claims = table(
        [("e", "a", value, "s", j, known) for j, (value, known) in enumerate(zip("xyz", (5, None, 2), strict=True))],
        "time known_at",
    )
    claims.loc[3] = ["e", "a", "w", "s", None, None]
    evidence = Evidence(claims, facts([("e", "a", "x", 3), ("e", "b", "y", None)], "time"))
    assert evidence.known_by(2).claims["value"].tolist() == ["y", "z"]
    assert evidence.before(2).claims["value"].tolist() == ["y"]
    assert evidence.before(2).settled.empty
    assert evidence.known_by(3).settled["value"].tolist() == ["x"]
    assert evidence.known_by(9).claims["value"].tolist() == ["x", "y", "z"]
    assert evidence.known_by(2).questions.to_numpy().tolist() == [["e", "a"]]
    assert evidence.known_by(2).question("e", "a").answers == ["y", "z"]
    report = evidence.known_by(2).report
    assert report.count("left aside by known_by(2): known later") == 2
    assert report.count("left aside by known_by(2): no time") == 2
    assert len(evidence.before(0).coded.questions) == 0
    assert repr(evidence.before(0).report)


def test_sources_are_joined() -> None:
    claims = table([("e", "a", "x", "ann"), ("e", "a", "y", "bob"), ("e", "a", "y", "eve")], "")
    sources = pd.DataFrame({"source": ["bob", "ann", "zed"], "kind": ["press", "friend", "press"], "age": [3, 4, 5]})
    evidence = Evidence(claims, sources=sources)
    joined = evidence.covariates.set_index("source")
    assert joined["kind"].loc[["ann", "bob"]].tolist() == ["friend", "press"]
    assert joined["age"].loc["ann"] == 4
    assert joined.loc["eve", ["kind", "age"]].isna().all()
    assert evidence.sources["source"].tolist() == ["ann", "bob", "zed"]
    assert evidence.report.count("sources without a claim") == 1
    assert evidence.report.count("sources of claims without a row") == 1
    assert evidence.subset([0]).covariates.equals(evidence.covariates)
    whole = pd.DataFrame({"source": [1, 2], "kind": ["x", "y"]})
    assert Evidence(table([(1, 1, 1, 2.0)], ""), sources=whole).covariates["kind"].tolist() == ["y"]


# Questions


def test_a_question_shows_its_claims() -> None:
    evidence = Evidence(soft_world(), SETTLED)
    question = evidence.question("maya", "diet")
    assert (question.entity, question.attribute) == ("maya", "diet")
    assert evidence.questions.iloc[question.index].tolist() == ["maya", "diet"]
    assert question.evidence is evidence
    expected = evidence.claims.query("entity == 'maya' and attribute == 'diet'").reset_index(drop=True)
    pd.testing.assert_frame_equal(question.claims, expected)
    assert question.answers == ["a", "b", "c"]
    assert len(question) == expected["claim"].nunique()
    assert repr(question).startswith("Question('maya', 'diet'): ")
    assert "more rows" in repr(question)
    assert question._repr_html_().count("<tr") == 13


def test_html_is_escaped() -> None:
    evidence = Evidence(table([("<b>", "a", "<script>", "s")], ""))
    assert "<script>" not in evidence.question("<b>", "a")._repr_html_()
    assert "<b>" not in evidence.question("<b>", "a")._repr_html_()


def test_unknown_questions_are_refused() -> None:
    evidence = Evidence(table([("maya", "diet", "vegan", "ann")], ""))
    with pytest.raises(
        QuestionError, match=r"no question \('maya', 'city'\) among 1: 'maya' has the attributes 'diet'"
    ):
        evidence.question("maya", "city")
    with pytest.raises(QuestionError, match=r"no claim is about 'tom'; entities are for example 'maya'"):
        evidence.question("tom", "city")
    with pytest.raises(QuestionError, match="no question"):
        evidence.without(["claim 0"]).question("maya", "diet")


# Files


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_files_are_read(ending: str, tmp_path: Path) -> None:
    frame = soft_world().astype({"derived": bool})
    for name, one in (("claims", frame), ("settled", SETTLED)):
        path = tmp_path / f"{name}.{ending}"
        one.to_parquet(path) if ending == "parquet" else one.to_csv(path, index=False)
    evidence = Evidence.from_csv(tmp_path / f"claims.{ending}", tmp_path / f"settled.{ending}")
    same(evidence.coded, Evidence(frame, SETTLED).coded)


def test_csv_keeps_text_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    path.write_text(
        "\ufeffentity,attribute,value,source,time,age,kind,flag\n"
        "007,a,1.0,1,2026-01-01,3,x,true\n"
        '007,a,1,NA,,,"two\nlines, ""quoted""",false\n'
        "007,b,true,null,2026-01-02,4.5,5,true\n",
        encoding="utf-8",
    )
    evidence = Evidence.from_csv(path)
    assert evidence.question("007", "a").answers == ["1", "1.0"]
    assert evidence.question("007", "b").answers == ["true"]
    assert evidence.coded.sources.tolist() == ["1", "NA", "null"]
    shown = evidence.covariates.set_index("source")
    assert shown["age"].dtype == float and np.isnan(shown["age"].loc["NA"])
    assert shown["flag"].dtype == bool
    assert shown["kind"].loc["NA"] == 'two\nlines, "quoted"'


def test_csv_takes_same_value_and_long_cells(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv.gz"
    text = "x" * 1_000_000
    path.write_bytes(gzip.compress(f"entity,attribute,value,source\ne,a,{text},s\ne,a,NYC,s\n".encode()))
    evidence = Evidence.from_csv(path, same_value={"NYC": "New York"})
    assert evidence.question("e", "a").answers == ["New York", text]


def test_report_shows_what_was_read() -> None:
    report = Evidence(soft_world(), SETTLED).report
    assert list(report.frame.columns) == ["table", "what", "count", "first"]
    assert report.count("rows read") == len(soft_world()) + len(SETTLED)
    assert len(repr(report).splitlines()) == len(report.frame)
    assert "<table" in report._repr_html_()
