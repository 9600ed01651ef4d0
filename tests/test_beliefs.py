"""Many beliefs: tables, scores against settled facts, files."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from nousppl.beliefs import Beliefs
from nousppl.errors import EvidenceError, FileError


@pytest.fixture
def beliefs() -> Beliefs:
    """Four questions: clear, disagreed on, nobody named the truth, and a closed list of yes and no."""
    return Beliefs(
        questions=pd.DataFrame(
            {"entity": ["ann", "ann", "bob", "cem"], "attribute": ["city", "diet", "city", "member"]}
        ),
        cell_question=np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 3]),
        cell_answer=np.array(
            ["Oslo", "Rome", "other", "vegan", "halal", "other", "Oslo", "other", False, True], dtype=object
        ),
        cell_other=np.array([0, 0, 1, 0, 0, 1, 0, 1, 0, 0], dtype=bool),
        cell_count=np.array([1.0, 1, 18, 1, 1, 5, 1, 19, 1, 1]),
        probability=np.array([0.9, 0.04, 0.06, 0.5, 0.4, 0.1, 0.3, 0.7, 0.45, 0.55]),
        sd=np.linspace(0.01, 0.1, 10),
        support=np.array([2.5, 0.7, 0, 1.2, 0.9, 0, 0.6, 0, 0.4, 0.8]),
        claims=np.array([5, 3, 1, 2]),
        seen=np.array([False, True, False, False]),
        meta={"draws": 200, "version": "0.1"},
    )  # fmt: skip


SETTLED = pd.DataFrame(
    {
        "entity": ["ann", "bob", "cem", "ann"],
        "attribute": ["diet", "city", "member", "city"],
        "value": ["halal", "Lima", True, "Oslo"],
    }
)


def facts(*rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["entity", "attribute", "value", "verdict"][: len(rows[0])])


def test_frame_has_a_row_a_question(beliefs):
    frame = beliefs.frame
    assert frame["answer"].tolist() == ["Oslo", "vegan", "other", True]
    assert frame["probability"].tolist() == [0.9, 0.5, 0.7, 0.55]
    assert frame["runner_up"].tolist() == ["Rome", "halal", "Oslo", False]
    assert frame["verdict"].tolist() == ["clear", "sources disagree", "not named", "too little evidence"]
    assert frame["effective_claims"].tolist() == [2.5, 1.2, 0, 0.8]
    assert frame["claims"].tolist() == [5, 3, 1, 2]
    assert frame["seen"].tolist() == [False, True, False, False]
    assert frame["sd"].iloc[3] == pytest.approx(0.1)


def test_entropy_spreads_the_unnamed(beliefs):
    expected = -sum(p * math.log2(p) for p in [0.9, 0.04, *[0.06 / 18] * 18])
    assert beliefs.frame["entropy"].iloc[0] == pytest.approx(expected)


def test_one_cell_has_no_runner_up_and_no_entropy():
    table = pd.DataFrame({"entity": [1], "attribute": ["a"], "answer": ["x"], "probability": [1.0]})
    single = Beliefs.from_frame(table)
    row = single.frame.iloc[0]
    assert (row["runner_up"], row["entropy"], row["verdict"]) == (None, 0, "clear")


def test_probabilities_are_long(beliefs):
    table = beliefs.probabilities
    assert table.columns.tolist() == ["entity", "attribute", "answer", "probability", "other"]
    assert table.groupby(["entity", "attribute"])["probability"].sum().to_numpy() == pytest.approx(np.ones(4))


def test_hand_worked_scores(beliefs):
    scores = beliefs.score(SETTLED)
    assert scores["n"] == 4
    assert scores["accuracy"] == pytest.approx(3 / 4)
    # halal .4, unnamed Lima by "other" .7, True .55, Oslo .9
    assert scores["log_loss"] == pytest.approx(-np.log([0.4, 0.7, 0.55, 0.9]).mean())
    brier = [0.25 + 0.36 + 0.01, 0.09 + 0.09, 0.45**2 * 2, 0.01 + 0.04**2 + 0.06**2]
    assert scores["brier"] == pytest.approx(np.mean(brier))
    assert (scores["held_85"], scores["right_85"], scores["held_95"]) == (0.25, 1.0, 0.0)
    assert (scores["seen"], scores["missing"], scores["rejected"]) == (1, 0, 0)


def test_facts_seen_in_the_fit_can_be_left_out(beliefs):
    scores = beliefs.score(SETTLED, unseen=True)
    assert (scores["n"], scores["seen"], scores["accuracy"]) == (3, 0, 1)


def test_scores_do_not_depend_on_the_order_of_the_facts(beliefs):
    turned = beliefs.score(SETTLED.iloc[::-1])
    assert turned.to_numpy() == pytest.approx(beliefs.score(SETTLED).to_numpy(), nan_ok=True)


def test_calibration_counts_the_facts(beliefs):
    table = beliefs.calibration(SETTLED, bins=2)
    assert table["n"].tolist() == [1, 3]
    assert table["accuracy"].tolist() == [0, 1]


def test_unnamed_truth_is_right_where_other_leads(beliefs):
    assert beliefs.marks(facts(("bob", "city", "Paris"))).right.tolist() == [True]
    assert beliefs.marks(facts(("ann", "city", "Paris"))).truth.tolist() == [0.06]


def test_text_other_is_not_the_lump(beliefs):
    named = replace(beliefs, cell_answer=np.where(np.arange(10) == 1, "other", beliefs.cell_answer))
    assert named.marks(facts(("ann", "city", "other"))).truth.tolist() == [0.04]


def test_values_are_compared_by_value_and_kind():
    table = pd.DataFrame({"entity": "e", "attribute": "a", "answer": [1, 2.5], "probability": [0.8, 0.2]})
    beliefs = Beliefs.from_frame(table)
    assert beliefs.marks(facts(("e", "a", 1.0))).truth.tolist() == [0.8]
    for other in (True, "1"):
        with pytest.raises(EvidenceError, match=r"another kind than the answers in 1 of 1 .*Allowed: numbers, as"):
            beliefs.marks(facts(("e", "a", other)))


def test_rejections_are_counted_and_not_scored(beliefs):
    scores = beliefs.score(facts(("ann", "diet", "halal", "true"), ("ann", "city", "Oslo", "false")))
    assert (scores["n"], scores["rejected"]) == (1, 1)


def test_facts_on_other_questions_are_counted(beliefs):
    scores = beliefs.score(facts(("ann", "diet", "halal"), ("eve", "diet", "halal"), ("eve", "city", "Rome")))
    assert (scores["n"], scores["missing"]) == (1, 2)


def test_a_fact_given_twice_counts_once(beliefs):
    assert beliefs.score(facts(("ann", "diet", "halal"), ("ann", "diet", "halal")))["n"] == 1


def test_no_settled_facts(beliefs):
    scores = beliefs.score(SETTLED.head(0))
    assert scores["n"] == 0
    assert math.isnan(scores["accuracy"])


@pytest.mark.parametrize(
    ("settled", "message"),
    [
        (facts(("eve", "diet", "halal")), r"column 'entity': a question that the beliefs do not hold in 1 of 1"),
        (
            facts(("ann", "diet", "halal"), ("ann", "diet", "vegan")),
            r"a second truth for its question in 1 of 2.*'vegan'",
        ),
        (facts(("bob", "city", "Lima"), ("bob", "city", "Bonn")), r"a second truth for its question"),
        (facts(("cem", "member", "perhaps")), r"another kind than the answers in 1 of 1 .*Allowed: booleans"),
        (facts(("dan", "vote", "perhaps")), r"outside the closed list of answers in 1 of 1 .*'perhaps'"),
        (facts(("ann", "diet", None)), r"settled: column 'value': a missing value"),
        (facts((3, "diet", "vegan")), r"'entity' holds whole numbers .* the table of beliefs holds text"),
        (SETTLED.drop(columns="value"), r"settled: no column 'value'"),
    ],
)
def test_bad_settled_facts(beliefs, settled, message):
    vote = pd.DataFrame({"entity": "dan", "attribute": "vote", "answer": ["no", "yes"], "probability": 0.5})
    both = Beliefs.from_frame(pd.concat([beliefs.to_frame(), vote.assign(answer_kind="text", other=False)]))
    with pytest.raises(EvidenceError, match=message):
        both.score(settled)


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_files_give_the_same_beliefs_back(beliefs, tmp_path, ending):
    path = tmp_path / f"beliefs{ending}"
    beliefs.write(path)
    read = Beliefs.read(path)
    pd.testing.assert_frame_equal(read.frame, beliefs.frame, check_dtype=False)
    assert read.cell_answer.tolist() == beliefs.cell_answer.tolist()
    assert [type(answer) for answer in read.cell_answer] == [type(answer) for answer in beliefs.cell_answer]
    assert np.array_equal(read.probability, beliefs.probability) and np.array_equal(read.cell_count, beliefs.cell_count)
    assert list(tmp_path.iterdir()) == [path]
    if ending == ".parquet":
        assert read.meta == beliefs.meta


def test_odd_answers_survive_files(tmp_path):
    answers = ["NA", "", "1", "True", 'a "quoted", line\nbreak', "  spaced ", 1e300, 0.1, -7, 10**15, True]
    table = pd.DataFrame({"entity": "e", "attribute": "a", "answer": answers, "probability": np.full(11, 1 / 11)})
    beliefs = Beliefs.from_frame(table)
    for ending in (".parquet", ".csv"):
        beliefs.write(tmp_path / f"beliefs{ending}")
        assert Beliefs.read(tmp_path / f"beliefs{ending}").cell_answer.tolist() == answers


def test_rows_may_come_in_any_order(beliefs):
    shuffled = beliefs.to_frame().sample(frac=1, random_state=1)
    frame = Beliefs.from_frame(shuffled).frame
    pd.testing.assert_frame_equal(frame, beliefs.frame, check_dtype=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probability": [0.5, 0.6]}, r"probabilities sum to 1.1 in 2 of 2 rows; first: row 0"),
        ({"probability": [-0.5, 1.5]}, r"column 'probability': no probability in 2 of 2"),
        ({"probability": [np.nan, 1]}, r"column 'probability': no probability in 1 of 2"),
        ({"answer_kind": ["number", "text"]}, r"'answer': no value of its kind in 1 of 2 .*number, text, boolean"),
        ({"entity": [None, "e"]}, r"beliefs: column 'entity': a missing or blank name"),
    ],
)
def test_bad_tables_of_beliefs(change, message):
    table = pd.DataFrame({"entity": "e", "attribute": "a", "answer": ["x", "y"], "probability": [0.5, 0.5]})
    with pytest.raises(EvidenceError, match=message):
        Beliefs.from_frame(table.assign(**change))


def test_missing_column_and_empty_table():
    with pytest.raises(EvidenceError, match=r"beliefs: no column 'attribute' \(found: entity\)"):
        Beliefs.from_frame(pd.DataFrame({"entity": ["e"]}))
    with pytest.raises(EvidenceError, match=r"the table is empty"):
        Beliefs.from_frame(pd.DataFrame(columns=["entity", "attribute", "answer", "probability"]))


def test_files_that_cannot_be_read_or_written(beliefs, tmp_path):
    with pytest.raises(FileError, match=r"no such file"):
        Beliefs.read(tmp_path / "none.parquet")
    with pytest.raises(FileError, match=r"unknown ending; allowed are .parquet, .csv, .csv.gz"):
        beliefs.write(tmp_path / "beliefs.xlsx")
    with pytest.raises(FileError, match=r"cannot be written"):
        beliefs.write(tmp_path / "nowhere" / "beliefs.csv")
    broken = tmp_path / "broken.parquet"
    beliefs.write(broken)
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(FileError, match=r"not a readable .parquet file"):
        Beliefs.read(broken)


def test_a_failed_write_leaves_the_old_file(beliefs, tmp_path, monkeypatch):
    path = tmp_path / "beliefs.csv"
    beliefs.write(path)
    before = path.read_bytes()

    def fail(self, part, **options):
        part.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(pd.DataFrame, "to_csv", fail)
    with pytest.raises(FileError, match="disk full"):
        beliefs.write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_arviz_container(beliefs):
    data = beliefs.to_arviz(SETTLED, draws=4000, seed=0)
    assert data["predictions"]["probability"].shape == (1, 1, 10)
    assert data["observed_data"]["right"].sum() == 3
    rates = data["posterior_predictive"]["right"].mean(("chain", "draw")).to_numpy()
    assert np.sort(rates) == pytest.approx([0.5, 0.55, 0.7, 0.9], abs=0.03)


def test_shapes_are_checked(beliefs):
    with pytest.raises(ValueError, match="every cell column must have 10 entries"):
        replace(beliefs, sd=beliefs.sd[1:])
    with pytest.raises(ValueError, match="cell_question must ascend"):
        replace(beliefs, cell_question=beliefs.cell_question[::-1])


def test_displays(beliefs):
    assert repr(beliefs).startswith("Beliefs(4 questions, 11 claims: 1 clear, 1 sources disagree")
    assert "Oslo" in beliefs._repr_html_() and "4 questions" in beliefs._repr_html_()


def test_a_hundred_thousand_questions_are_scored_in_seconds():
    import time

    n = 100_000
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"entity": np.repeat(np.arange(n), 3), "attribute": "a"})
    table["answer"] = np.tile(["x", "y", "z"], n)
    table["probability"] = rng.dirichlet([1, 1, 1], size=n).ravel()
    start = time.perf_counter()
    scores = Beliefs.from_frame(table).score(pd.DataFrame({"entity": np.arange(n), "attribute": "a", "value": "x"}))
    assert scores["n"] == n
    assert time.perf_counter() - start < 20
