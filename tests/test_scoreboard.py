"""The scoreboard on a small made-up folder of data sets: protocols that leak nothing, and one command end to end."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from benchmarks import data_sets, methods, scoreboard
from benchmarks.data_sets import KEYS, Task
from benchmarks.methods import Method
from benchmarks.table import VARIABLE, MissingDataError

import nousppl as nous
from nousppl.calibration import Marks

FIT = nous.SVI(steps=60, full_size=10)


def claims_about(truth: dict[tuple[str, str], str], accuracy: dict[str, float], labels: str, seed: int) -> pd.DataFrame:
    """Every source says something about every question, right with its accuracy, else any label."""
    rng = np.random.default_rng(seed)
    rows = [
        (*key, source, value if rng.random() < right else labels[rng.integers(len(labels))])
        for key, value in truth.items()
        for source, right in accuracy.items()
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "source", "value"])


def put(root: Path, name: str, claims: pd.DataFrame, settled: pd.DataFrame) -> None:
    (root / name).mkdir()
    claims.to_csv(root / name / "claims.csv.gz", index=False)
    settled.to_csv(root / name / "settled.csv.gz", index=False)


def settled_of(truth: dict[tuple[str, str], str]) -> pd.DataFrame:
    return pd.DataFrame([(*key, value) for key, value in truth.items()], columns=[*KEYS, "value"])


def truths(count: int, attribute: str, labels: str, seed: int) -> dict[tuple[str, str], str]:
    rng = np.random.default_rng(seed)
    return {(f"e{i}", attribute): labels[rng.integers(len(labels))] for i in range(count)}


ACCURACY = {"good": 0.95, "fair": 0.7, "poor": 0.6, "bad": 0.2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    truth = truths(80, "label", "01", 0)
    put(root, "crowd_tiny", claims_about(truth, ACCURACY, "01", 1), settled_of(truth))
    truth = truths(360, "authors", "abcde", 2)
    put(root, "book", claims_about(truth, ACCURACY, "abcdefgh", 3), settled_of(truth))
    truth = {(f"{day:02}|f{i}", "act_dep"): "xyz"[(day + i) % 3] for day in range(1, 24) for i in range(6)}
    claims = claims_about(truth, ACCURACY | {"aa": 1.0, "CO": 1.0, "ua": 1.0}, "xyzw", 4)
    day = claims["entity"].str[:2]
    settled = settled_of(truth).assign(time=lambda t: "2011-12-" + t["entity"].str[:2])
    settled.loc[0, "value"] = np.nan
    put(root, "flight", claims.assign(time="2011-12-" + day), settled)
    truth = truths(30, "Population2000", "123456", 5)
    put(root, "population", claims_about(truth, ACCURACY, "123456789", 6), settled_of(truth))
    (root / "unknown").mkdir()
    return root


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setattr(methods, "OURS", {name: replace(spec, options=FIT) for name, spec in methods.OURS.items()})


def key_set(facts: pd.DataFrame) -> set[tuple[str, str]]:
    return set(zip(facts["entity"], facts["attribute"], strict=True))


def test_all_sets_with_a_protocol_are_found() -> None:
    assert data_sets.names() == ["flight", "book", "population", "crowd_tiny"]


@pytest.mark.parametrize("name", ["flight", "book", "population", "crowd_tiny"])
def test_nothing_is_learned_from_that_is_tested_and_nothing_is_tested_twice(name: str) -> None:
    for task in data_sets.load(name):
        assert not len(task.evidence.settled)
        tested = [key for split in task.splits for key in key_set(split.tested)]
        assert len(tested) == len(set(tested)) > 0
        assert all(not key_set(split.learned) & key_set(split.tested) for split in task.splits)


def test_the_protocols_are_as_they_say() -> None:
    sizes = {
        task.data + ", " + task.protocol: [(len(split.learned), len(split.tested)) for split in task.splits]
        for name in data_sets.names()
        for task in data_sets.load(name)
    }
    assert sizes == {
        "flight, first 14 days settled, next 7 tested": [(14 * 6 - 1, 7 * 6)],
        "flight, nothing settled": [(0, 7 * 6)],
        "book, 300 settled, rest tested": [(300, 60)],
        "population, 5 folds": [(24, 6)] * 5,
        "crowd_tiny, nothing settled": [(0, 80)],
        "crowd_tiny, 10 % settled": [(8, 72)],
    }


def test_the_airlines_are_left_out_of_flight() -> None:
    task = data_sets.load("flight")[0]
    assert set(task.evidence.claims["source"]) == set(ACCURACY)


def test_liar_is_predicted_from_what_came_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 50
    claims = pd.DataFrame({"entity": [f"{i}" for i in range(size)], "attribute": "true", "value": "T"})
    claims = claims.assign(time=range(1, size + 1), source="s", job="j", party=None, context="c")
    settled = claims[[*KEYS]].assign(value=["T", "F"] * 25)
    put(tmp_path, "liar", claims.sample(frac=1, random_state=1), settled.sample(frac=1, random_state=2))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(data_sets, "START", 20)
    monkeypatch.setattr(data_sets, "BLOCK", 12)
    (task,) = data_sets.load("liar")
    assert [(len(s.learned), len(s.tested)) for s in task.splits] == [(20, 12), (32, 12), (44, 6)]
    for split in task.splits:
        assert split.learned["entity"].astype(int).max() < split.tested["entity"].astype(int).min()


def test_the_rule_of_the_split_does_not_depend_on_the_order_of_rows() -> None:
    facts = settled_of(truths(50, "label", "01", 7))
    one, two = data_sets.folds(facts), data_sets.folds(facts.sample(frac=1, random_state=0))
    assert all(key_set(a.tested) == key_set(b.tested) for a, b in zip(one, two, strict=True))


def test_one_command_prints_and_writes_the_table(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scoreboard, "COPIES", ("crowd_tiny",))
    chosen = ["majority", "best_source"]
    out = tmp_path / "board"
    arguments = ["--data", str(folder), "--methods", *chosen, "--copies", "1", "8", "--out", str(out)]
    assert scoreboard.main(arguments) == 0
    frame = pd.read_csv(out.with_suffix(".csv")).set_index(["data", "protocol", "method"]).sort_index()
    row = frame.loc[("crowd_tiny", "10 % settled", "best source")]
    assert row["settled"] == "yes" and row["n"] == 72 and row["accuracy"] > 0.85 and row["seconds"] > 0
    assert ("crowd_tiny", "nothing settled", "best source") not in frame.index
    assert frame.loc[("book", "300 settled, rest tested", "best source"), "accuracy"] > 0.85
    assert frame[["accuracy", "log_loss", "ece", "floor", "held_95"]].notna().all().all()
    text = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "| crowd_tiny | 10 % settled | best source | yes | 72 |" in text
    assert "Sums over the crowd sets" in text and "Copies of the worst source" in text
    printed = capsys.readouterr().out
    assert "Scoreboard" in printed and "best source" in printed
    falls = scoreboard.falls(frame.reset_index()).set_index(["protocol", "method"])["fall"]
    assert falls["nothing settled", "majority vote"] > 0.2 > 0.01 > falls["10 % settled", "best source"]


@pytest.mark.slow
def test_our_model_is_fitted_and_learns_from_settled_facts() -> None:
    tasks = data_sets.load("crowd_tiny")
    rows = [scoreboard.row_of(methods.methods()["ours"], task, 0, {}) for task in tasks]
    assert [(row.settled, row.n, row.note) for row in rows] == [("no", 80, ""), ("yes", 72, "")]
    assert all(row.accuracy > 0.9 and row.log_loss < 0.3 for row in rows)


def test_a_method_that_learns_nothing_is_run_once_and_scored_on_the_tested_facts_alone() -> None:
    none, tenth = data_sets.load("crowd_tiny")
    calls = []

    def make(task: Task) -> methods.Forecaster:
        def forecaster(evidence: nous.Evidence, seed: int) -> nous.Beliefs:
            calls.append(len(evidence.settled))
            return nous.baselines.majority(evidence, seed, answers=task.answers)

        return forecaster

    memory: scoreboard.Memory = {}
    rows = [scoreboard.row_of(Method("m", make), task, 0, memory) for task in (none, tenth)]
    assert calls == [0] and [row.n for row in rows] == [80, 72]
    direct = nous.baselines.majority(tenth.evidence, 0, answers=tenth.answers).score(tenth.splits[0].tested)
    assert rows[1].accuracy == direct["accuracy"] and rows[1].log_loss == direct["log_loss"]


def test_a_method_that_breaks_down_is_a_row_and_the_exit_code_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(task: Task) -> methods.Forecaster:
        raise ValueError("no such thing")

    found = {"broken": Method("broken", broken), "majority": methods.methods()["majority"]}
    monkeypatch.setattr(scoreboard, "methods", lambda: found)
    assert scoreboard.main(["crowd_tiny", "--data", str(folder)]) == 1
    assert "ValueError: no such thing" in capsys.readouterr().err


def test_labels_without_probabilities_are_scored_by_accuracy_alone() -> None:
    none, _ = data_sets.load("crowd_tiny")

    def make(task: Task) -> methods.Forecaster:
        def forecaster(evidence: nous.Evidence, seed: int) -> nous.Beliefs:
            return replace(nous.baselines.majority(evidence, seed), meta={"probabilities": False})

        return forecaster

    row = scoreboard.row_of(Method("m", make), none, 0, {})
    assert row.accuracy > 0.5 and np.isnan([row.log_loss, row.ece, row.held_95]).all() and row.note == "labels only"


def marks(right: list[int]) -> Marks:
    flags = np.array(right, bool)
    return Marks(flags * 0.9, np.full(len(flags), 0.9), flags, np.full(len(flags), 0.8))


def test_the_paired_comparison_is_the_sign_test() -> None:
    mine, best = marks([1, 0, 0, 0, 0, 0, 1, 0]), marks([0, 1, 1, 1, 1, 1, 1, 0])
    assert scoreboard.shortfall(mine, best) == pytest.approx((1 + 6) / 2**6)
    assert scoreboard.shortfall(best, best) == 1.0
    rows = [
        scoreboard.Row("d", "p", name, "no", 8, float(m.right.mean()), marks=m)
        for name, m in zip("ab", (mine, best), strict=True)
    ]
    first, second = scoreboard.paired(rows)
    assert first.below_best == pytest.approx(7 / 64) and second.below_best == pytest.approx(1 - 1 / 64)


def test_copies_are_identical_and_of_the_worst_source() -> None:
    _, task = data_sets.load("crowd_tiny")
    assert data_sets.worst_source(task) == "bad"
    copied = data_sets.with_copies(task, 3)
    claims = copied.evidence.claims
    own = claims[claims["source"] == "bad"][[*KEYS, "value"]].reset_index(drop=True)
    for k in range(3):
        copy = claims[claims["source"] == f"bad, copy {k + 1}"][[*KEYS, "value"]].reset_index(drop=True)
        pd.testing.assert_frame_equal(copy, own)
    assert len(copied.evidence) == len(task.evidence) + 3 * len(own)


def test_a_source_with_few_claims_is_not_the_worst() -> None:
    _, task = data_sets.load("crowd_tiny")
    facts = task.facts
    wrong = facts.head(7).assign(source="rare", value=facts["value"].head(7).map({"0": "1", "1": "0"}))
    claims = pd.concat([task.evidence.claims.drop(columns="claim"), wrong])
    assert data_sets.worst_source(replace(task, evidence=nous.Evidence(claims))) == "bad"


def test_a_missing_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(MissingDataError, match=r"named by --data or \$NOUSPPL_DATA; there is no .*nowhere"):
        data_sets.names()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(MissingDataError, match="holds none of flight, book"):
        data_sets.names()


def test_peers_are_there_where_crowd_kit_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "find_spec", lambda name: None)
    assert list(methods.methods()) == ["majority", "best_source", "ours"]
    monkeypatch.setattr(methods, "find_spec", lambda name: True)
    found = methods.methods()
    none, tenth = data_sets.load("crowd_tiny")
    book = data_sets.load("book")[0]
    assert [name for name, method in found.items() if method.fits(book)] == ["majority", "best_source", "ours"]
    assert "dawid_skene_true" not in [name for name, method in found.items() if method.fits(none)]
    assert all(method.fits(tenth) for method in found.values())
