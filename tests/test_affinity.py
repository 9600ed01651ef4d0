"""Learned weights of pairs of sources: who gets one, whether they are found, and what a fit without them believes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl import kin
from nousppl.affinity import Affinities, find_pairs
from nousppl.blueprint import draw_up

GROUPS = (("a1", "a2", "a3"), ("b1", "b2"))
SOURCES = ("a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3", "c4")
MODEL = nous.TrustModel(
    reliability="1 + (1|source)",
    freshness="1",
    origin=nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=1),
    answers={"x": 6},
)


def design(questions: int, rng: np.random.Generator, times: bool = False) -> pd.DataFrame:
    """Every question is answered by most sources, in random order."""
    rows = []
    for q in range(questions):
        present = [s for s in rng.permutation(SOURCES) if rng.random() < 0.8]
        rows += [(f"q{q:04d}", "x", s, float(i) if times else np.nan) for i, s in enumerate(present)]
    return pd.DataFrame(rows, columns=["entity", "attribute", "source", "time"])


def drawn(
    model: nous.TrustModel, table: pd.DataFrame, kin_pairs: set[tuple[str, str]]
) -> tuple[pd.DataFrame, nous.Evidence]:
    """Claims in which these (later, earlier) pairs repeat each other nearly always, and the truths."""
    found = find_pairs("source", table, nous.Evidence(table.assign(value="v")).coded, None, model.origin.order)
    effect = [
        8.0 if (found.labels[i], found.labels[j]) in kin_pairs else -1.0
        for i, j in zip(found.later, found.earlier, strict=True)
    ]
    given = {
        "reliability_Intercept": 0.3,
        "reliability_1|source": np.zeros(len(SOURCES)),
        "origin_log_strangers": -5.0,
        "origin_affinity": np.array(effect),
        "errors_log_popularity": 2.0,
    }
    truth, evidence = model.simulate(table, seed=3, parameters=given)
    return truth.settled, evidence


def both_ways(groups: tuple[tuple[str, ...], ...]) -> set[tuple[str, str]]:
    return {(a, b) for group in groups for a in group for b in group if a != b}


@pytest.fixture(scope="module")
def world() -> tuple[nous.Evidence, pd.DataFrame, nous.Trust]:
    """300 questions, 150 of them settled, and the trust learned from these."""
    settled, evidence = drawn(MODEL, design(300, np.random.default_rng(1)), both_ways(GROUPS))
    learn, test = settled.iloc[:150], settled.iloc[150:]
    trust = MODEL.fit(evidence.with_settled(learn), seed=0)
    return evidence, test, trust


@pytest.mark.slow
def test_groups_that_echo_each_other_are_found(world: tuple[nous.Evidence, pd.DataFrame, nous.Trust]) -> None:
    _, _, trust = world
    assert {frozenset(group) for group in GROUPS} == set(kin.echo_groups(trust.echoes, least=0.8))
    table = trust.echoes
    assert list(table.columns) == kin.COLUMNS and len(table) == len(SOURCES) * (len(SOURCES) - 1) // 2
    real = [{row.source, row.origin} <= set(group) for row in table.itertuples() for group in GROUPS]
    real = np.array(real).reshape(-1, len(GROUPS)).any(1)
    # The four real pairs come first, far above all others.
    assert real.sum() == 4 and real[:4].all()
    assert table["lower"][:4].min() > 10 * table["weight"][4:].max()


@pytest.mark.slow
def test_without_affinities_echoes_count_as_witnesses(world: tuple[nous.Evidence, pd.DataFrame, nous.Trust]) -> None:
    evidence, test, trust = world
    learn = evidence.questions.iloc[:150]
    assert trust.record["settled"] == len(learn)
    asked = evidence.subset(np.arange(150, 300))
    good = trust.posteriors(asked).score(test)
    none = nous.TrustModel("1 + (1|source)", origin=None, errors=nous.Errors(difficulty=False), answers={"x": 6})
    known = evidence.with_settled(_settled_of(trust, evidence, test))
    bad = none.fit(known, learn_from="settled", seed=0).posteriors(asked).score(test)
    assert good["log_loss"] < bad["log_loss"] - 0.05
    assert good["ece"] < bad["ece"]


def _settled_of(trust: nous.Trust, evidence: nous.Evidence, test: pd.DataFrame) -> pd.DataFrame:
    """The truths that the trust was learned from, drawn again with the same seed."""
    settled, _ = drawn(MODEL, design(300, np.random.default_rng(1)), both_ways(GROUPS))
    return settled[~settled["entity"].isin(test["entity"])]


@pytest.mark.slow
def test_the_direction_is_found_where_times_tell() -> None:
    model = nous.TrustModel(
        "1 + (1|source)",
        freshness="1",
        origin=nous.Origin(strong=None, affinity="source", lag=False),
        answers={"x": 6},
    )
    one_way = {("a2", "a1"), ("b1", "b2")}
    settled, evidence = drawn(model, design(500, np.random.default_rng(2), times=True), one_way)
    table = model.fit(evidence.with_settled(settled), seed=0).echoes.set_index(["source", "origin"])
    for later, earlier in one_way:
        assert table["repeats_lower"][later, earlier] > 0.8
        assert table["repeats"][earlier, later] < 0.2


def test_the_same_trust_comes_back_from_its_file(
    world: tuple[nous.Evidence, pd.DataFrame, nous.Trust], tmp_path: Path
) -> None:
    evidence, _, trust = world
    trust.save(tmp_path / "t.nc")
    back = nous.load(tmp_path / "t.nc")
    pd.testing.assert_frame_equal(back.echoes, trust.echoes)
    asked = evidence.subset(np.arange(3))
    assert np.array_equal(back.posteriors(asked).probability, trust.posteriors(asked).probability)


def test_a_single_belief_is_that_of_the_batch(world: tuple[nous.Evidence, pd.DataFrame, nous.Trust]) -> None:
    evidence, _, trust = world
    many = trust.posteriors(evidence.subset(np.arange(5)))
    for q in range(5):
        belief = trust.posterior(evidence.question(f"q{q:04d}", "x"))
        mine = many.probability[many.cell_question == q]
        np.testing.assert_allclose(belief.path[-1], mine, atol=2e-5)
        np.testing.assert_allclose(belief.origins.to_numpy().sum(1), 1.0, atol=1e-6)


def test_new_sources_are_strangers(world: tuple[nous.Evidence, pd.DataFrame, nous.Trust]) -> None:
    _, _, trust = world
    table = pd.DataFrame({"entity": "n", "attribute": "x", "value": ["u", "u"], "source": ["a1", "new"]})
    encoded = trust.encoded(nous.Evidence(table))
    assert sorted(encoded.affinity_code) == [-1, 0]
    known = table.assign(source=["a1", "a2"])
    alone, echo = (trust.posterior(nous.Evidence(t).question("n", "x")) for t in (table, known))
    assert echo.effective_claims < 1.2 < alone.effective_claims


# ------------------------------------------------------------------------------------------------ which pairs


def meetings(
    *counts: tuple[str, str, int], column: str = "source", times: bool = False
) -> tuple[pd.DataFrame, nous.Evidence]:
    rows = []
    for left, right, count in counts:
        for _ in range(count):
            q = f"q{len(rows):05d}"
            rows += [(q, left, 1.0 if times else np.nan), (q, right, 2.0 if times else np.nan)]
    table = pd.DataFrame(rows, columns=["entity", column, "time"]).assign(attribute="x", value="v")
    if column != "source":
        table["source"] = [f"s{i}" for i in range(len(table))]
    return table, nous.Evidence(table)


def pairs_of(found: Affinities) -> dict[tuple[str, str], int]:
    return {
        (found.labels[i], found.labels[j]): int(n)
        for i, j, n in zip(found.later, found.earlier, found.met, strict=True)
    }


def test_pairs_must_meet_in_ten_questions() -> None:
    _, evidence = meetings(("a", "b", 10), ("a", "c", 9), ("b", "c", 30))
    found = find_pairs("source", evidence.covariates, evidence.coded, None, "unknown")
    assert pairs_of(found) == {("b", "a"): 10, ("c", "b"): 30} and not found.directed


def test_only_questions_that_are_learned_from_count() -> None:
    _, evidence = meetings(("a", "b", 10), ("b", "c", 30))
    found = find_pairs("source", evidence.covariates, evidence.coded, np.arange(25), "unknown")
    assert pairs_of(found) == {("b", "a"): 10, ("c", "b"): 15}


def test_pairs_have_two_directions_where_times_tell() -> None:
    _, evidence = meetings(("a", "b", 12), times=True)
    both = find_pairs("source", evidence.covariates, evidence.coded, None, "time")
    assert both.directed and pairs_of(both) == {("a", "b"): 12, ("b", "a"): 12}
    assert not find_pairs("source", evidence.covariates, evidence.coded, None, "unknown").directed
    assert both.link(np.array([0, 1, 0, -1]), np.array([1, 0, 0, 1])).tolist() == [1, 2, 0, 0]


def test_any_column_can_be_compared() -> None:
    _, evidence = meetings(("web", "mail", 11), column="channel")
    found = find_pairs("channel", evidence.covariates, evidence.coded, None, "time")
    assert pairs_of(found) == {("web", "mail"): 11}
    with pytest.raises(nous.ModelError, match=r"Origin\(affinity='shop'\): no such column; there are"):
        find_pairs("shop", evidence.covariates, evidence.coded, None, "time")


def test_a_blank_level_is_refused() -> None:
    table, _ = meetings(("web", "mail", 2), column="channel")
    table.loc[1, "channel"] = None
    model = nous.TrustModel(origin=nous.Origin(affinity="channel"))
    with pytest.raises(nous.ModelError, match=r"the column is blank in 1 claims, first in row"):
        draw_up(model, nous.Evidence(table))
    with pytest.raises(nous.ModelError, match=r"Origin\(affinity=' '\): give 'source' or the name"):
        nous.Origin(affinity=" ")


def test_thousands_of_sources_have_only_the_pairs_that_meet() -> None:
    rng = np.random.default_rng(0)
    sources = 5000
    entity = np.repeat(np.arange(4000), 8)
    # A few large sites meet everywhere, the others hardly ever.
    source = np.where(
        rng.random(len(entity)) < 0.3, rng.integers(0, 20, len(entity)), rng.integers(0, sources, len(entity))
    )
    table = pd.DataFrame({"entity": entity, "attribute": "x", "value": "v", "source": source}).drop_duplicates()
    evidence = nous.Evidence(table)
    found = find_pairs("source", evidence.covariates, evidence.coded, None, "unknown")
    assert 150 <= len(found) <= 300 and (found.met >= 10).all()
    blueprint = draw_up(nous.TrustModel(origin=nous.Origin(affinity="source", order="unknown")), evidence)
    sizes = {site.name: site.size for site in blueprint.plan.sites}
    assert sizes["origin_affinity"] == len(found)


# ------------------------------------------------------------------------------------------------ groups of a table


def table_of(*edges: tuple[str, str, float]) -> pd.DataFrame:
    return pd.DataFrame(edges, columns=["source", "origin", "repeats_lower"])


def test_two_groups_that_share_a_member_stay_two() -> None:
    first = [("a", "b", 0.99), ("b", "c", 0.99), ("a", "c", 0.97)]
    second = [("c", "d", 0.99), ("d", "e", 0.96), ("c", "e", 0.99)]
    groups = kin.echo_groups(table_of(*first, *second, ("x", "y", 0.98), ("x", "z", 0.5)))
    assert groups == [frozenset("abc"), frozenset("cde"), frozenset("xy")]
    assert kin.echo_groups(table_of(*first, *second, ("a", "e", 0.99))) != groups


def test_no_pairs_no_groups() -> None:
    trust = nous.TrustModel().default_trust(draws=3)
    assert trust.echoes.empty and list(trust.echoes.columns) == kin.COLUMNS and trust.echo_groups == []
