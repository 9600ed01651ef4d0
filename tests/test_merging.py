"""Merged views: the same as evidence that was typed in so, with everything stated still there."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous
from nousppl.coded import Coded

ALIASES = {"maya k.": "maya", "m. kern": "maya", "tom b.": "tom"}


def tables(seed: int = 0, rows: int = 90) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims with ids, lineage, ties in time, soft ones and claims that say the same, about people under several names;
    and settled facts, one of which is stated of two names."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"claim": [f"c{i:03d}" for i in range(rows)]})
    frame["entity"] = rng.choice(["maya", "maya k.", "m. kern", "tom", "tom b.", "zoë"], rows)
    frame["attribute"], frame["value"] = rng.choice(["diet", "city"], rows), rng.choice(list("abc"), rows)
    frame["source"], frame["time"] = rng.choice(["s1", "s2", "s3"], rows), rng.integers(0, 9, rows).astype(float)
    frame["ceiling"], frame["derived"] = rng.choice([0.6, np.nan], rows), rng.random(rows) < 0.1
    frame = frame.sort_values(["time", "claim"], ignore_index=True)
    before = frame.groupby(["entity", "attribute", "value"])["claim"].shift(1)
    frame["origin"] = before.where(rng.random(rows) < 0.3)
    frame["weight"] = 1.0
    soft = frame.iloc[::7].assign(value="d", weight=0.3, origin=None)
    frame.loc[::7, ["weight", "origin"]] = [0.6, None]
    settled = [
        ("maya", "diet", "a", 20.0, "true"),
        ("maya k.", "diet", "a", 20.0, "true"),
        ("m. kern", "diet", "b", 3.0, "false"),
        ("zoë", "city", "c", 9.0, "true"),
        ("tom b.", "city", "c", None, "false"),
    ]
    return (
        pd.concat([frame, soft], ignore_index=True),
        pd.DataFrame(settled, columns=["entity", "attribute", "value", "time", "verdict"]),
    )


def typed_in(seed: int = 0) -> nous.Evidence:
    claims, settled = tables(seed)
    return nous.Evidence(*(frame.assign(entity=frame["entity"].replace(ALIASES)) for frame in (claims, settled)))


def same(first: Coded, second: Coded) -> None:
    for field in fields(Coded):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, pd.DataFrame):
            pd.testing.assert_frame_equal(one, other)
        else:
            np.testing.assert_array_equal(one, other, err_msg=field.name)


@pytest.mark.parametrize("seed", range(3))
def test_a_merged_view_is_the_evidence_typed_in_so(seed: int) -> None:
    evidence = nous.Evidence(*tables(seed))
    merged, direct = evidence.merged(ALIASES), typed_in(seed)
    same(merged.coded, direct.coded)
    pd.testing.assert_frame_equal(merged.claims.drop(columns="stated_entity"), direct.claims)
    pd.testing.assert_frame_equal(merged.covariates.drop(columns="stated_entity"), direct.covariates)
    pd.testing.assert_frame_equal(merged.settled.drop(columns="stated_entity"), direct.settled)


def test_beliefs_are_those_of_the_evidence_typed_in_so() -> None:
    trust = nous.TrustModel(reliability="1 + (1|source)").default_trust(draws=5)
    merged, direct = nous.Evidence(*tables()).merged(ALIASES), typed_in()
    np.testing.assert_array_equal(trust.posteriors(merged).probability, trust.posteriors(direct).probability)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost(seed: int) -> None:
    evidence = nous.Evidence(*tables(seed))
    before = evidence.claims.copy(), evidence.settled.copy()
    merged = evidence.merged(ALIASES)
    stated = merged.claims.drop_duplicates("claim").set_index("claim")["stated_entity"]
    own = evidence.claims.drop_duplicates("claim").set_index("claim")["entity"]
    pd.testing.assert_series_equal(stated.sort_index(), own.sort_index(), check_names=False)
    back = merged.unmerged()
    same(back.coded, evidence.coded)
    pd.testing.assert_frame_equal(back.claims, evidence.claims)
    pd.testing.assert_frame_equal(back.settled, evidence.settled)
    for now, then in zip((evidence.claims, evidence.settled), before, strict=True):
        pd.testing.assert_frame_equal(now, then)
    assert merged.report.count("entities merged into others") == 3
    assert merged.report.count("settled facts left aside that repeat another one") == 1


def test_one_after_the_other_is_both_at_once() -> None:
    evidence = nous.Evidence(*tables())
    twice = evidence.merged({"m. kern": "maya k."}).merged({"maya k.": "maya", "tom b.": "tom"})
    same(twice.coded, evidence.merged(ALIASES).coded)
    same(twice.unmerged().coded, evidence.coded)
    assert evidence.unmerged() is evidence


def test_what_is_done_to_a_merged_view_stays() -> None:
    evidence = nous.Evidence(*tables())
    gone = evidence.claims["claim"].iloc[[0, 4]].tolist()
    merged = evidence.merged(ALIASES)
    same(merged.revoke(gone).coded, evidence.revoke(gone).merged(ALIASES).coded)
    same(merged.revoke(gone).unmerged().coded, evidence.revoke(gone).coded)
    back = merged.revoke(gone).unmerged().revoked
    assert sorted(back["entity"]) == sorted(evidence.revoke(gone).revoked["entity"]) and "stated_entity" not in back
    same(merged.known_by(5.0).coded, evidence.known_by(5.0).merged(_known(evidence.known_by(5.0))).coded)
    same(merged.known_by(5.0).unmerged().coded, evidence.known_by(5.0).coded)
    rejected = merged.reject("maya", "city", "a", time=30.0)
    same(rejected.unmerged().coded, evidence.reject("maya", "city", "a", time=30.0).coded)


def _known(evidence: nous.Evidence) -> dict[str, str]:
    names = set(evidence.questions["entity"])
    return {alias: entity for alias, entity in ALIASES.items() if alias in names}


def test_all_of_it_is_in_the_files(tmp_path: Any) -> None:
    """Revoked, rejected, merged: read again it is the same, and can be taken apart."""
    evidence = nous.Evidence(*tables())
    gone = evidence.claims["claim"].iloc[[0, 4]].tolist()
    kept = evidence.merged(ALIASES).revoke(gone).reject("zoë", "diet", "a", time=30.0)
    kept.write(tmp_path)
    again = nous.Evidence.read(tmp_path)
    same(again.coded, kept.coded)
    assert sorted(again.revoked["claim"]) == sorted(kept.revoked["claim"])
    same(again.unmerged().coded, kept.unmerged().coded)
    assert again.unmerged().settled["entity"].tolist() == kept.unmerged().settled["entity"].tolist()
    claims = tables()[0]
    claims["value"] = claims["value"].map({"a": 1, "b": 2.5, "c": -3, "d": 10**6})
    numbers = nous.Evidence(claims).without([gone[0]])
    numbers.write(tmp_path)
    same(nous.Evidence.read(tmp_path).coded, numbers.coded)


def test_values_merged_before_stay_merged() -> None:
    claims = pd.DataFrame({"entity": ["maya", "m."], "attribute": "city", "value": ["NYC", "New York"], "source": "s"})
    settled = pd.DataFrame({"entity": ["m."], "attribute": "city", "value": ["NYC"]})
    evidence = nous.Evidence(claims, settled, same_value={"NYC": "New York", "New York": "Gotham"})
    merged = evidence.merged({"m.": "maya"})
    assert sorted(merged.claims["value"]) == sorted(evidence.claims["value"]) == ["Gotham", "New York"]
    assert merged.settled["value"].tolist() == evidence.settled["value"].tolist() == ["New York"]
    # A value given anew is replaced once, those that stand already are not replaced again.
    with pytest.raises(nous.EvidenceError, match=r"rejected that is settled as the truth .*value='New York'"):
        merged.reject("maya", "city", "NYC")
    assert merged.reject("maya", "city", "New York").settled["value"].tolist() == ["New York", "Gotham"]


def test_whole_numbers_may_name_entities() -> None:
    claims = pd.DataFrame({"entity": [7, 8], "attribute": "city", "value": "oslo", "source": ["s", "t"]})
    merged = nous.Evidence(claims).merged({8: 7})
    assert sorted(merged.claims[["entity", "stated_entity"]].to_numpy().tolist()) == [[7, 7], [7, 8]]
    assert len(merged.question(7, "city")) == 2


@pytest.mark.parametrize(
    ("aliases", "words"),
    [
        (
            {"eve": "maya"},
            r"merged: nothing in use is about 'eve'. Allowed: entities of evidence.questions, .*'m. kern'",
        ),
        ({"maya k.": "Maya"}, r"nothing in use is about 'Maya'"),
        ({"maya": "maya"}, r"'maya' is given as an alias of itself"),
        ({"m. kern": "maya k.", "maya k.": "maya"}, r"'m. kern' is given as 'maya k.', and that as 'maya'"),
        ({"maya": "maya k.", "maya k.": "maya"}, r"'maya' is given as 'maya k.', and that as 'maya'"),
        (["maya"], r"merged: expected a mapping from alias to entity, got list"),
    ],
)
def test_mistakes(aliases: Any, words: str) -> None:
    with pytest.raises(nous.EvidenceError, match=words):
        nous.Evidence(*tables()).merged(aliases)


def test_contradictions_are_refused() -> None:
    claims, _ = tables()
    rows = [("maya", "diet", "a", 20.0), ("maya k.", "diet", "b", 20.0)]
    settled = pd.DataFrame(rows, columns=["entity", "attribute", "value", "time"])
    evidence = nous.Evidence(claims, settled)
    with pytest.raises(
        nous.EvidenceError, match=r"merged: what is settled .* clashes. settled: column 'value': another"
    ):
        evidence.merged(ALIASES)
    rejected = nous.Evidence(claims, settled.assign(value="a", verdict=["true", "false"]))
    with pytest.raises(nous.EvidenceError, match=r"clashes. settled: column 'verdict': .*stated_entity='maya k.'"):
        rejected.merged(ALIASES)


def test_a_column_of_another_kind_is_refused() -> None:
    claims, _ = tables()
    with pytest.raises(nous.EvidenceError, match=r"'stated_entity' holds whole numbers .* column 'entity' holds text"):
        nous.Evidence(claims.assign(stated_entity=3))


def test_duplicates_found_are_merged() -> None:
    """From what is believed of two names to what is believed of the person."""
    rows = [(name, f"a{i}", f"v{i}", s) for i in range(6) for name, s in (("ann", "s1"), ("ann", "s2"), ("a.", "s3"))]
    rows += [(f"p{k}", f"a{i}", f"v{(i + k) % 9}", "s4") for k in range(9) for i in range(6)]
    evidence = nous.Evidence(pd.DataFrame(rows, columns=["entity", "attribute", "value", "source"]))
    sure = {"1": dist.Normal(1.5, 1e-3)}
    trust = nous.TrustModel(origin=None, reliability="1", priors={"reliability": sure}).default_trust(draws=2)
    best = nous.identity(trust.posteriors(evidence)).iloc[0]
    assert {best["entity"], best["other"]} == {"a.", "ann"}
    merged = evidence.merged({"a.": "ann"})
    apart = trust.posterior(evidence.question("ann", "a0")).probability
    assert trust.posterior(merged.question("ann", "a0")).probability > apart
