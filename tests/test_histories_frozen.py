"""The dated histories are what their description says, and the world of training has the habits it states."""

import hashlib
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from benchmarks.assistant_world import (
    ANNOUNCED,
    ATTRIBUTES,
    COLUMNS,
    FORMER,
    KEEPS,
    KINDS,
    NATURAL,
    SAME_CHANNEL,
    SETTLED,
    SPREAD,
    SYNDICATED,
    WELL_PLACED,
    World,
    assistant_world,
    begin,
    draw,
    repeat,
)
from benchmarks.dated_histories import DISAGREE, FOLDER, LABELS, OTHER, read
from scipy.special import expit, logit

import nousppl as nous

FROZEN = {
    "claims.csv": "65e676830e577235ddac30e311737d1b6a474af84de2e892094708a6916d7d8a",
    "truths.csv": "c02c3d1223a13d01cd21f23d78d3866ccd37677f697acde2457f1cbd0d8b4e48",
}
"""SHA-256 of the tables: they were written before any model was run on them, and a change voids what was measured."""
FIELDS = ["addresses", "calendar", "finance", "health", "household", "law", "science", "technology", "travel", "work"]
TRAPS = (
    "bank details",
    "copies",
    "disagreement",
    "forged record",
    "low trust right",
    "never named",
    "newest right",
    "newest wrong",
    "one-off",
    "self-warning",
    "stale reminder",
)
ENTITIES = 700
ERRORS = 5.0
"""Standard errors by which a share may miss its true value: some 60 shares are compared, each once."""

Histories = list[tuple[pd.DataFrame, pd.Series]]


@pytest.fixture(scope="module")
def histories() -> Histories:
    """Claims and truth of each history."""
    claims, truths = read()
    parts = dict(list(claims.groupby("history", sort=False)))
    return [(parts[row["history"]], row) for _, row in truths.iterrows()]


@pytest.fixture(scope="module")
def large() -> World:
    return draw(ENTITIES, seed=5)


@pytest.fixture(scope="module")
def told(large: World) -> pd.DataFrame:
    """Claims with what is true of them."""
    return large.claims.merge(large.ledger, on="claim", validate="1:1")


def of_trap(histories: Histories, trap: str) -> Histories:
    return [(claims, truth) for claims, truth in histories if claims["trap"].iloc[0] == trap]


# The histories


@pytest.mark.parametrize("name", FROZEN)
def test_the_tables_are_those_that_were_frozen(name: str) -> None:
    assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == FROZEN[name]


def test_the_tables_have_the_described_columns_and_sets() -> None:
    claims, truths = read()
    assert set(claims) == {*LABELS, *COLUMNS}
    assert list(truths) == ["history", "entity", "attribute", "right", "at", "why"]
    assert claims.drop(columns="denies").notna().all(axis=None) and truths.notna().all(axis=None)
    assert claims["claim"].is_unique and truths["history"].is_unique and truths["entity"].is_unique
    assert sorted(set(claims["field"])) == FIELDS and sorted(set(claims["trap"])) == sorted(TRAPS)
    assert set(claims["kind"]) == set(KINDS) and set(claims["attribute"]) == set(ATTRIBUTES)
    assert claims[["lasting", "hedging"]].stack().between(0, 1).all()
    assert claims["channel"].str.fullmatch(r"[a-z]+:[a-z0-9-]+").all()
    description = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{word}`" in description for word in [*claims, *truths, *TRAPS, *KINDS, *ATTRIBUTES])
    assert all(field in description for field in FIELDS)


def test_there_are_enough_histories_of_every_sort(histories: Histories) -> None:
    firsts = pd.DataFrame([claims.iloc[0] for claims, _ in histories])
    assert len(firsts) >= 40 and firsts["field"].nunique() >= 8
    assert firsts["trap"].value_counts().min() >= 3 and firsts["attribute"].value_counts().min() >= 3
    assert all(claims["trap"].nunique() == claims["entity"].nunique() == 1 for claims, _ in histories)


def test_evidence_takes_the_histories_as_they_stand() -> None:
    claims, truths = read()
    evidence = nous.Evidence(claims)
    assert len(evidence) == len(claims) and len(evidence.questions) == len(truths)


def test_each_history_is_in_order_and_known_when_asked(histories: Histories) -> None:
    for claims, truth in histories:
        days = pd.to_datetime(claims["time"], format="%Y-%m-%d")
        assert 3 <= len(claims) <= 9 and claims["value"].nunique() >= 2, truth["history"]
        assert days.is_monotonic_increasing and days.max() <= pd.to_datetime(truth["at"], format="%Y-%m-%d")
        assert (claims[["entity", "attribute"]] == truth[["entity", "attribute"]]).all(axis=None)
        assert claims["claim"].tolist() == [f"{truth['history']}.{i}" for i in range(1, len(claims) + 1)]


def test_the_right_answer_is_named_unless_there_is_none(histories: Histories) -> None:
    for claims, truth in histories:
        special = {"never named": OTHER, "disagreement": DISAGREE}.get(claims["trap"].iloc[0])
        assert truth["right"] == special if special else truth["right"] in set(claims["value"]), truth["history"]


def test_what_is_denied_was_said_before(histories: Histories) -> None:
    for claims, truth in histories:
        for i, denied in enumerate(claims["denies"]):
            if pd.notna(denied):
                assert denied != claims["value"].iloc[i] and denied in set(claims["value"].iloc[:i]), truth["history"]


def alike(claims: pd.DataFrame, column: str) -> bool:
    """Whether each value has the same entries in a column."""
    return len({tuple(sorted(part[column])) for _, part in claims.groupby("value")}) == 1


# What a trap says of: claims, those of the right answer, those of others.
SAYS = {
    "bank details": lambda claims, said, wrong: claims["denies"].notna().any(),
    "copies": lambda claims, said, wrong: len(said) == 1 and len(wrong) >= 4 and wrong["channel"].nunique() == 1,
    "disagreement": lambda claims, said, wrong: alike(claims, "kind") and alike(claims, "time"),
    "forged record": lambda claims, said, wrong: "stranger" in set(wrong["kind"]) <= {"stranger", "note"},
    "low trust right": lambda claims, said, wrong: set(said["kind"]) <= {"stranger", "web"} and len(said) > 2,
    "never named": lambda claims, said, wrong: not len(said),
    "newest right": lambda claims, said, wrong: len(said) == 1 and claims["claim"].iloc[-1] == said["claim"].iloc[0],
    "newest wrong": lambda claims, said, wrong: claims["claim"].iloc[-1] == wrong["claim"].iloc[-1],
    "one-off": lambda claims, said, wrong: (wrong["lasting"] < 1).any() and (said["lasting"] == 1).all(),
    "self-warning": lambda claims, said, wrong: wrong["hedging"].max() >= 0.8 and said["hedging"].max() == 0,
    "stale reminder": lambda claims, said, wrong: (
        wrong.loc[wrong["kind"] == "reminder", "time"].iloc[-1] > said["time"].iloc[-1]
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_is_what_its_name_says(histories: Histories, trap: str) -> None:
    for claims, truth in of_trap(histories, trap):
        right = claims["value"] == truth["right"]
        assert SAYS[trap](claims, claims[right], claims[~right]), truth["history"]


def test_independent_strangers_come_by_ways_of_their_own(histories: Histories) -> None:
    for claims, truth in of_trap(histories, "low trust right"):
        assert claims.loc[claims["value"] == truth["right"], "channel"].is_unique, truth["history"]


def test_two_accounts_are_changed_and_two_are_not(histories: Histories) -> None:
    changed = [truth["right"] != claims["value"].iloc[0] for claims, truth in of_trap(histories, "bank details")]
    assert sum(changed) == 2 and len(changed) == 4


# The world


def near(shares: pd.Series | np.ndarray, expected: float) -> bool:
    """Whether a share of events is what it should be, up to chance."""
    return abs(np.mean(shares) - expected) <= ERRORS * np.sqrt(expected * (1 - expected) / len(shares)) + 1e-9


def test_a_seed_gives_one_world() -> None:
    one, again, other = assistant_world(6, seed=1), assistant_world(6, seed=1), assistant_world(6, seed=2)
    for a, b in zip(one, again, strict=True):
        pd.testing.assert_frame_equal(a, b)
    assert not one[0].equals(other[0])


def test_the_world_is_evidence_with_the_columns_of_the_histories(large: World) -> None:
    assert tuple(large.claims) == COLUMNS and set(COLUMNS) == set(read()[0]) - set(LABELS)
    assert set(large.claims["kind"]) == set(KINDS) and set(large.claims["attribute"]) == set(ATTRIBUTES)
    small = draw(20, seed=0)
    evidence = nous.Evidence(small.claims, settled=small.settled)
    assert len(evidence) == len(small.claims) and len(evidence.settled) == len(small.settled)


def test_settled_facts_are_states_of_about_half_of_the_questions(large: World) -> None:
    facts = large.settled.assign(day=pd.to_datetime(large.settled["time"]))
    states = large.states.assign(day=pd.Timestamp("2023-01-01") + pd.to_timedelta(large.states["day"], unit="D"))
    by = ["entity", "attribute"]
    joined = pd.merge_asof(facts.sort_values("day"), states.sort_values("day"), on="day", by=by, suffixes=("", "_true"))
    assert (joined["value"] == joined["value_true"]).all()
    every = states[by].drop_duplicates().merge(facts[by].drop_duplicates(), how="left", on=by, indicator=True)
    assert near(every["_merge"] == "both", SETTLED)


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_wrong_as_often_as_stated(told: pd.DataFrame, name: str) -> None:
    fresh = told[(told["way"] == "fresh") & (told["kind"] == name)]
    wrong = fresh["value"] != fresh["seen"]
    for part in (fresh["hedging"] == 0, fresh["hedging"] > 0):
        spread = np.sqrt((fresh["chance"][part] * (1 - fresh["chance"][part])).sum())
        assert abs((wrong[part] - fresh["chance"][part]).sum()) <= ERRORS * spread
    plain, normal = fresh["hedging"] == 0, np.random.default_rng(0).standard_normal(100_000)
    stated = expit(logit(KINDS[name].wrong) + SPREAD * normal)
    by_source = stated.std() / np.sqrt(fresh["source"].nunique())
    assert abs(wrong[plain].mean() - stated.mean()) <= 0.01 + ERRORS * by_source
    if KINDS[name].hedges:
        assert near(~plain, KINDS[name].hedges)
        assert wrong[~plain].mean() > 1.5 * wrong[plain].mean()


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_changes_at_the_stated_rate(large: World, name: str) -> None:
    states, stay = large.states[large.states["attribute"] == name], ATTRIBUTES[name].stay
    length = int(min(1095, 8 * stay))
    changes, expected = len(states) - ENTITIES, ENTITIES * (length - 1) * -np.expm1(-1 / stay)
    assert abs(changes - expected) <= ERRORS * np.sqrt(expected)
    questions = states.groupby("entity")["value"].apply(list)
    assert all(a != b for values in questions for a, b in pairwise(values))


QUESTION = ["entity", "attribute"]


def test_who_repeats(told: pd.DataFrame) -> None:
    first = told.groupby(QUESTION)["time"].transform("min") == told["time"]
    for name in ("colleague", "reminder", "record", "web", "note"):
        later = told[~first & (told["kind"] == name) & (told["way"] != "copy")]
        assert near(later["way"] == "repeat", 1 - KINDS[name].fresh), name
    outdated = (told["value"] != told["state"]).groupby(told["kind"]).mean()
    assert outdated["reminder"] > 3 * outdated["principal"] and outdated.idxmax() == "stranger"


def test_a_repetition_names_what_was_said_before_and_may_lose_the_warning(told: pd.DataFrame) -> None:
    again = told[told["way"] == "repeat"]
    pairs = again.merge(told, on=[*QUESTION, "value"], suffixes=("", "_model"))
    pairs = pairs[pairs["time_model"] < pairs["time"]]
    assert set(pairs["claim"]) == set(again["claim"])
    sole = pairs[~pairs.duplicated("claim", keep=False)]
    warned = sole[(sole["hedging_model"] > 0) | (sole["lasting_model"] < 1)]
    kept = (warned["hedging"] == warned["hedging_model"]) & (warned["lasting"] == warned["lasting_model"])
    assert near(kept, KEEPS)


@pytest.mark.parametrize(
    ("of", "days", "weight"),
    [
        (("note 2", "note", "mail:note-1"), 0, 1 + SAME_CHANNEL),
        (("record 1", "record", "registry:record-1"), 0, 1 + WELL_PLACED),
        (("site 1", "web", "web:network-1"), 30, 0.5),
    ],
)
def test_what_is_near_well_placed_and_new_is_repeated_more(of: tuple[str, str, str], days: int, weight: float) -> None:
    """Against a claim of that day by a site of no network in common, weight 1."""
    scene = begin(0, "fact", np.random.default_rng(1))
    scene.add(100 - days, of, 1, "fresh")
    scene.add(100, ("site 0", "web", "web:network-0"), 2, "fresh")
    models = list(scene.claims)
    for _ in range(2000):
        repeat(scene, models, 100, ("note 1", "note", "mail:note-1"))
    said = np.array([claim["value"] for claim in scene.claims[2:]])
    assert near(said == 1, weight / (weight + 1))


def test_copies_come_from_claims_that_looked_right_or_wrong(told: pd.DataFrame) -> None:
    key = [*QUESTION, "channel"]
    looked = told[(told["way"] == "fresh") & told["kind"].isin(["web", "stranger"])].copy()
    copies = told[told["way"] == "copy"].groupby(key).size().rename("copies")
    assert set(copies.index) <= set(looked.groupby(key).groups)
    copied = looked.merge(copies, left_on=key, right_index=True, how="left")["copies"].notna()
    # Some of the copies would come after the last day, and two claims of one network share theirs.
    assert 0.85 * SYNDICATED < copied.mean() < 1.2 * SYNDICATED
    wrong = (looked["value"] != looked["seen"]).to_numpy()
    assert abs(copied[wrong].mean() - copied[~wrong].mean()) < 0.05


def test_who_looks_sees_the_state_of_some_days_ago(told: pd.DataFrame) -> None:
    fresh = told[(told["way"] == "fresh") & (told["attribute"] == "price")]
    stale = (fresh["seen"] != fresh["state"]).groupby(fresh["kind"]).mean()
    assert stale["principal"] == 0 and stale.idxmax() == "web"
    for name in ("record", "web"):
        # Chance of a change within an exponential lag.
        rate = KINDS[name].lag / ATTRIBUTES["price"].stay
        assert 0.6 * rate / (1 + rate) < stale[name] < 1.1 * rate / (1 + rate)


def test_sources_of_a_kind_differ(told: pd.DataFrame) -> None:
    plain = told[(told["way"] == "fresh") & (told["hedging"] == 0)]
    for name in ("principal", "colleague", "stranger"):
        own = logit(plain[plain["kind"] == name].groupby("source")["chance"].first()) - logit(KINDS[name].wrong)
        assert abs(own.std() / SPREAD - 1) < ERRORS / np.sqrt(2 * len(own)), name


def test_a_mistake_is_the_state_before_or_the_natural_one_or_any() -> None:
    scene = begin(0, "bank_account", np.random.default_rng(1))
    scene.days, scene.states, scene.natural = [0, 10], [1, 2], 3
    values, any_other = np.array([scene.mistake(1) for _ in range(4000)]), (1 - FORMER - NATURAL) / 499
    assert near(values == 1, FORMER + any_other) and near(values == 3, NATURAL + any_other)
    assert not (values == 2).any()
    assert near(np.array([scene.mistake(0) for _ in range(4000)]) == 3, NATURAL + (1 - NATURAL) / 499)


def test_independent_mistakes_meet(told: pd.DataFrame) -> None:
    """Two wrong claims on the same state name one answer far more often than among 500 answers by chance."""
    fresh = told[(told["way"] == "fresh") & (told["value"] != told["seen"]) & (told["attribute"] == "bank_account")]
    pairs = fresh.merge(fresh, on=[*QUESTION, "seen"], suffixes=("", "_two"))
    pairs = pairs[pairs["claim"] < pairs["claim_two"]]
    assert len(pairs) > 50 and (pairs["value"] == pairs["value_two"]).mean() > 0.5 * NATURAL**2


def test_changes_are_announced_with_the_old_value_denied(large: World, told: pd.DataFrame) -> None:
    denial = told[told["denies"].notna()]
    honest, fraud = denial[denial["way"] == "fresh"], denial[denial["way"] == "fraud"]
    assert (honest["value"] == honest["seen"]).all() and (honest["denies"] != honest["value"]).all()
    assert (fraud["denies"] != fraud["value"]).all() and (fraud["kind"] == "stranger").all()
    assert fraud.groupby(["entity", "attribute"])[["source", "value"]].nunique().max(axis=None) == 1
    hit = fraud.drop_duplicates(["entity", "attribute"])["attribute"].value_counts()
    assert all(near(np.arange(ENTITIES) < hit[name], ATTRIBUTES[name].fraud) for name in ATTRIBUTES)
    slow = large.states.groupby(["entity", "attribute"])["day"].diff() > 0
    changes = large.states[slow & (large.states["attribute"] == "employer")]
    said = honest[(honest["attribute"] == "employer") & (honest["kind"] == "principal")]
    named = changes.merge(said, on=["entity", "attribute", "value"], how="left").drop_duplicates(["entity", "day"])
    assert named["claim"].notna().mean() > 0.7 * ANNOUNCED * (1 - KINDS["principal"].wrong)


def test_a_statement_about_a_moment_is_marked(told: pd.DataFrame) -> None:
    moment = told["way"] == "one-off"
    assert (told.loc[moment, "lasting"] < 1).all() and (told.loc[told["way"] == "fresh", "lasting"] == 1).all()
    own = moment | (told["way"] == "fresh")
    announced = told["kind"] == "principal"
    for name in ("colleague", "web", "stranger"):
        assert near(moment[own & (told["kind"] == name)], KINDS[name].one_off), name
    assert 0 < moment[own & announced].mean() <= KINDS["principal"].one_off
