"""One belief: hand-worked figures for everything it derives from its arrays."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from belief_cases import asked, drinks, handmade, table
from matplotlib.figure import Figure

from nousppl.belief import Belief, verdicts
from nousppl.errors import QuestionError


@pytest.fixture
def belief() -> Belief:
    return drinks()


def worked(r: float) -> list[float]:
    """Coffee, tea and three others after tea, tea, coffee: likelihoods r w², r² w and w³ with w = (1 - r) / 4."""
    w = (1 - r) / 4
    terms = [r * w**2, r**2 * w, 3 * w**3]
    return [term / sum(terms) for term in terms]


def test_probabilities_are_the_mean_over_draws(belief):
    expected = (np.array(worked(0.6)) + np.array(worked(0.8))) / 2
    assert belief.probabilities.index.tolist() == ["coffee", "tea", "other"]
    assert belief.probabilities.to_numpy() == pytest.approx(expected)
    assert (belief.answer, belief.probability) == ("tea", pytest.approx(expected[1]))


def test_interval_spans_the_draws(belief):
    whole = belief.interval(0.999999)
    assert whole.loc["tea"].tolist() == pytest.approx(sorted([worked(0.6)[1], worked(0.8)[1]]), abs=1e-5)
    half = belief.interval(0.5)
    assert (half["upper"] - half["lower"]).to_numpy() == pytest.approx(
        (whole["upper"] - whole["lower"]).to_numpy() / 2, rel=1e-4
    )
    certain = drinks(reliability=[0.8, 0.8])
    assert np.ptp(certain.interval().to_numpy(), axis=1) == pytest.approx([0, 0, 0])


@pytest.mark.parametrize("p", [0, 1, 1.5])
def test_interval_refuses_what_is_no_probability(belief, p):
    with pytest.raises(QuestionError, match=r"p must be above 0 and below 1"):
        belief.interval(p)


def test_entropy_spreads_the_unnamed(belief):
    coffee, tea, other = belief.path[-1]
    parts = [coffee, tea, *[other / 3] * 3]
    assert belief.entropy == pytest.approx(-sum(p * math.log2(p) for p in parts))
    untouched = handmade(table(), ("tea",), domain=8, reliability=[0.7])
    assert untouched.entropy == pytest.approx(3)


def test_entropy_of_certainty_is_zero():
    settled = handmade(table(), ("no", "yes"), domain=2, reliability=[0.7], is_open=False)
    certain = replace(settled, path=np.array([[0.0, 1.0]] * 2), samples=np.array([[0.0, 1.0]]),
                        log_odds=np.array([[-np.inf, np.inf]] * 2))  # fmt: skip
    assert certain.entropy == 0
    assert certain.points["points"].tolist() == [np.inf, 0.0]


def test_surprise_in_bits(belief):
    assert belief.surprise("tea") == pytest.approx(-math.log2(belief.path[-1, 1]))
    assert belief.surprise("water") == pytest.approx(-math.log2(belief.path[-1, 2] / 3))
    assert belief.surprise("other") == belief.surprise("water")


def test_surprise_compares_numbers_by_value_and_booleans_as_booleans():
    rows = table(("a", "s", 1, 0.0))
    belief = handmade(rows, (1,), domain=4, reliability=[0.7])
    assert belief.surprise(1.0) == pytest.approx(-math.log2(0.7))
    assert belief.surprise(True) == belief.surprise("1") == pytest.approx(-math.log2(0.1))


def test_surprise_refuses_what_a_closed_list_does_not_hold():
    belief = handmade(table(), ("no", "yes"), domain=2, reliability=[0.7], is_open=False)
    with pytest.raises(QuestionError, match=r"maya · drink: 'perhaps' is no answer; answers are no, yes"):
        belief.surprise("perhaps")


def test_points_add_up_to_the_log_odds(belief):
    points = belief.points
    assert points.index.tolist() == ["prior", "c1", "c2", "c3", "time"]
    assert points["source"].tolist()[1:-1] == ["alice", "bob", "carol"]
    p = belief.probability
    assert points["points"].sum() == pytest.approx(math.log(p / (1 - p)), abs=1e-12)
    assert points["points"].iloc[0] == pytest.approx(math.log(0.2 / 0.8))
    assert np.sign(points["points"]).tolist() == [-1, 1, 1, -1, 0]


def test_points_follow_the_log_odds_where_the_path_is_rounded(belief):
    far = replace(belief, log_odds=belief.log_odds + np.array([[0], [10], [500], [900], [900]]))
    change = np.diff(belief.log_odds[:-1, 1]) + np.array([10, 490, 400])
    assert far.points["points"].to_numpy()[1:-1] == pytest.approx(change)


def test_points_carry_why_a_claim_adds_nothing():
    belief = drinks(status=("", "repeats claim c1 (given)", ""))
    assert belief.points["note"].tolist() == ["", "", "repeats claim c1 (given)", "", ""]


def test_origins_and_effective_claims(belief):
    origins = belief.origins
    assert origins.columns.tolist() == ["fresh", "c1", "c2", "c3"]
    assert origins.loc["c2"].tolist() == pytest.approx([0.2, 0.8, 0, 0])
    assert belief.effective_claims == pytest.approx(1.2)
    assert drinks(fresh=None).effective_claims == pytest.approx(2)


def test_fresh_is_taken_from_the_cheaper_function_where_there_is_one(belief):
    def never() -> np.ndarray:
        raise AssertionError("the origins were computed")

    cheap = replace(belief, origins_of=never, fresh_of=lambda: np.array([1.0, 0.5, 1.0]))
    assert cheap.effective_claims == pytest.approx(1.5)
    assert cheap.verdict == belief.verdict


def test_a_question_with_too_many_claims_for_its_origins_is_still_shown(belief):
    def refused() -> np.ndarray:
        raise QuestionError("the table of origins is built for at most 2 claims")

    large = replace(belief, origins_of=refused, witnesses=np.array([1.0, 1.2, 0.0]))
    assert large.effective_claims == 1.2
    assert large.verdict == belief.verdict
    assert "1.20 independent witnesses" in large._repr_html_()
    assert len(large.plot(Figure().subplots(1, 2))) == 2
    assert large.to_dict()["points"][1]["origin"] == ""
    with pytest.raises(QuestionError, match="at most 2 claims"):
        _ = large.origins
    bare = replace(belief, origins_of=refused)
    assert bare.verdict == "clear"
    assert "3 claims; points (nats) add up to" in repr(bare)


def test_origins_are_computed_once_and_only_when_asked(belief):
    calls = []

    def origins() -> np.ndarray:
        calls.append(1)
        return belief.origins.to_numpy()

    lazy = replace(belief, origins_of=origins)
    assert lazy.answer == "tea" and not calls
    assert lazy.effective_claims and lazy.verdict and lazy.origins is not None
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("unnamed", "probability", "opposition", "expected"),
    [
        (False, 0.8, 2.0, "clear"),
        (False, 0.79, 0.5, "sources disagree"),
        (False, 0.79, 0.49, "too little evidence"),
        (True, 0.99, 2.0, "not named"),
    ],
)
def test_verdicts(unnamed, probability, opposition, expected):
    assert verdicts(unnamed, probability, opposition) == expected


def test_verdict_of_a_belief():
    assert drinks(reliability=[0.4]).verdict == "sources disagree"
    assert drinks(reliability=[0.9]).verdict == "clear"
    assert drinks(reliability=[0.4], fresh=[1.0, 1.0, 0.3]).verdict == "too little evidence"
    assert drinks(reliability=[0.01]).verdict == "not named"


def test_runner_up_is_named():
    belief = drinks(reliability=[0.6])
    assert belief.runner_up == "coffee"
    assert handmade(table(("a", "s", "tea", 0)), ("tea",), domain=3, reliability=[0.6]).runner_up is None


def test_history_tells_the_surprise_of_each_claim(belief):
    history = belief.history()
    assert history.columns.tolist() == ["time", "event", "claim", "source", "value", "prior", "posterior", "surprise"]
    assert history["surprise"].iloc[0] == pytest.approx(math.log2(5))
    assert history["surprise"].iloc[2] == pytest.approx(-math.log2(belief.path[2, 0]))
    assert history["posterior"].iloc[-1] == belief.probability
    assert history["prior"].tolist()[1:] == history["posterior"].tolist()[:-1]


def test_soft_claims_count_by_their_weights():
    soft = pd.DataFrame(
        {
            "claim": ["a", "a", "b"],
            "source": ["x", "x", "y"],
            "value": ["tea", "coffee", "tea"],
            "weight": [0.3, 0.6, 1.0],
            "time": [1.0, 1.0, 2.0],
        }
    )
    path = np.array([[0.5, 0.5], [0.6, 0.4], [0.4, 0.6], [0.4, 0.6]])
    belief = Belief(
        question=asked(soft),
        answers=("coffee", "tea"),
        open=False,
        others=0,
        samples=path[-1:],
        path=path,
        log_odds=np.log(path) - np.log1p(-path),
        origins_of=lambda: np.array([[1.0, 0, 0], [0.5, 0.5, 0]]),
        status=("", ""),
    )
    assert belief.points["value"].tolist()[1:-1] == ["coffee", "tea"]
    assert belief.effective_claims == pytest.approx(0.3 + 0.5)
    assert belief.history()["surprise"].tolist() == pytest.approx([1, -math.log2(0.4)])


def test_draws_are_named(belief):
    draws = belief.draws
    assert draws.dims == ("draw", "answer")
    assert float(draws.mean("draw").sel(answer="tea")) == pytest.approx(belief.probability)


def test_question_without_claims():
    belief = handmade(table(), ("no", "yes"), domain=2, reliability=[0.7], is_open=False)
    assert (belief.verdict, belief.effective_claims, len(belief.history())) == ("too little evidence", 0, 0)
    assert belief.points["points"].tolist() == [0, 0]
    assert "0 claims" in repr(belief)


def test_dict_is_json(belief):
    read = json.loads(json.dumps(belief.to_dict(), allow_nan=False))
    assert read["answer"] == "tea"
    assert sum(row["probability"] for row in read["answers"]) == pytest.approx(1)
    assert read["points"][1]["time"] == "2026-01-01T00:00:00"
    assert read["points"][0]["time"] is None
    assert read["points"][2]["origin"] == "echo 0.80 (of c1 0.80)"


def test_dict_of_a_settled_question_is_json(belief):
    settled = replace(belief, log_odds=np.full((5, 3), np.inf))
    assert json.loads(json.dumps(settled.to_dict(), allow_nan=False))["points"][0]["points"] == "inf"


def test_text_and_html(belief):
    text = repr(belief)
    assert text.startswith("Belief(maya · drink): tea 0.")
    assert "other (3 not named)" in text
    html = belief._repr_html_()
    assert "echo 0.80 (of c1 0.80)" in html and "sources disagree" not in html
    assert "2026-01-02" in html


def test_html_escapes_what_people_say():
    rows = table(("<a>", "<script>alert(1)</script>", "<b>tea</b>", 0.0))
    html = handmade(rows, ("<b>tea</b>",), domain=3, reliability=[0.9])._repr_html_()
    assert "<script>" not in html and "<b>tea" not in html
    assert "&lt;script&gt;" in html


def test_displays_stay_short_for_long_values_and_many_claims():
    rows = table(*[(f"c{i}", f"s{i}", "x" * 1_000_000 if i % 2 else "tea", float(i)) for i in range(40)])
    belief = handmade(rows, ("tea", "x" * 1_000_000), domain=9, reliability=[0.7])
    html = belief._repr_html_()
    assert len(html) < 20_000
    assert "28 more claims" in html
    assert len(repr(belief)) < 1_000


def test_hidden_claims_still_add_up(belief):
    from nousppl.display import reasons

    rows = table(*[(f"c{i}", f"s{i}", "tea", float(i)) for i in range(40)])
    many = handmade(rows, ("tea",), domain=9, reliability=[0.7])
    assert reasons(many)["points"].sum() == pytest.approx(many.log_odds[-1, 0])
    assert len(reasons(belief)) == 5


def test_plot_shows_answers_and_claims(belief):
    axes = belief.plot(Figure().subplots(1, 2))
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["tea", "coffee", "other (3 not named)"]
    assert len(axes[1].patches) == 5
    colours = [patch.get_facecolor() for patch in axes[1].patches]
    assert colours[1] == colours[3] != colours[2]


def test_arrays_of_the_wrong_shape_are_refused(belief):
    with pytest.raises(ValueError, match=r"path and log_odds must be \(5, 3\)"):
        replace(belief, path=belief.path[1:])
    with pytest.raises(ValueError, match=r"samples must be \(draws, 3\)"):
        replace(belief, samples=belief.samples[:, :2])
