"""Scores against hand-worked figures, scikit-learn, and forecasters that are known to be wrong."""

import math

import numpy as np
import pytest
from sklearn import metrics

from nousppl import calibration

# Three questions: the truths have probability .7 (top), .3 (second of two) and .25 (third of three).
QUESTION = [0, 0, 1, 1, 3, 3, 3]
PROBABILITY = [0.7, 0.3, 0.7, 0.3, 0.5, 0.25, 0.25]
TRUTH = [0, 3, 6]


@pytest.fixture
def marks() -> calibration.Marks:
    return calibration.mark(QUESTION, PROBABILITY, TRUTH)


def matrix_of(n: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A perfect forecaster: probabilities, and truths drawn from them."""
    rng = np.random.default_rng(seed)
    probability = rng.dirichlet(np.full(size, 0.5), size=n)
    truth = (rng.random((n, 1)) > probability.cumsum(axis=1)).sum(axis=1).clip(max=size - 1)
    return probability, truth


def sharpened(probability: np.ndarray, power: float) -> np.ndarray:
    powered = probability**power
    return powered / powered.sum(axis=1, keepdims=True)


def test_marks_of_ragged_cells(marks):
    assert marks.truth == pytest.approx([0.7, 0.3, 0.25])
    assert marks.confidence == pytest.approx([0.7, 0.7, 0.5])
    assert marks.right.tolist() == [True, False, False]
    assert marks.squares == pytest.approx([0.58, 0.58, 0.375])


def test_marks_follow_the_order_of_the_facts():
    turned = calibration.mark(QUESTION, PROBABILITY, TRUTH[::-1])
    assert turned.truth == pytest.approx([0.25, 0.3, 0.7])


def test_ranked_cells_keep_the_first_of_equals():
    top, second = calibration.ranked_cells([4, 4, 4, 9], [0.4, 0.2, 0.4, 1.0])
    assert top.tolist() == [0, 3]
    assert second.tolist() == [2, -1]


def test_matrix_and_ragged_marks_agree():
    probability, truth = matrix_of(50, 4, seed=1)
    cells = calibration.mark(np.repeat(np.arange(50), 4), probability.ravel(), np.arange(50) * 4 + truth)
    assert all(np.array_equal(a, b) for a, b in zip(cells, calibration.mark_matrix(probability, truth), strict=True))


def test_hand_worked_scores(marks):
    scores = calibration.score(marks, seen=1)
    assert scores["accuracy"] == pytest.approx(1 / 3)
    assert scores["log_loss"] == pytest.approx(-(math.log(0.7) + math.log(0.3) + math.log(0.25)) / 3)
    # (.3² + .3²), (.7² + .7²), (.5² + .25² + .75²)
    assert scores["brier"] == pytest.approx((0.18 + 0.98 + 0.875) / 3)
    # bin of .7: two predictions, one right, |1.4 - 1| = .4; bin of .5: |.5 - 0|
    assert scores["ece"] == pytest.approx(0.9 / 3)
    # kept by confidence: two at .7 with mean error 1/2 each, then one wrong: risks 1/2, 1/2, 2/3
    assert scores["aurc"] == pytest.approx((1 / 2 + 1 / 2 + 2 / 3) / 3)
    assert scores["held_85"] == 0
    assert math.isnan(scores["right_85"])
    assert (scores["n"], scores["seen"]) == (3, 1)


def test_held_counts_the_threshold_itself():
    marks = calibration.mark_matrix([[0.95, 0.05], [0.85, 0.15], [0.9, 0.1], [0.6, 0.4]], [0, 1, 0, 0])
    assert calibration.held(marks, 0.85) == pytest.approx((3 / 4, 2 / 3))
    assert calibration.held(marks, 0.95) == pytest.approx((1 / 4, 1))


def test_log_loss_and_brier_are_those_of_scikit_learn():
    probability, truth = matrix_of(400, 5, seed=2)
    marks = calibration.mark_matrix(probability, truth)
    assert calibration.log_loss(marks) == pytest.approx(
        metrics.log_loss(truth, probability, labels=range(5)), rel=1e-12
    )
    expected = metrics.brier_score_loss(truth, probability, labels=range(5), scale_by_half=False)
    assert calibration.brier(marks) == pytest.approx(expected, rel=1e-12)


def test_log_loss_of_an_impossible_truth_is_clipped():
    assert calibration.log_loss(calibration.mark_matrix([[1.0, 0.0]], [1])) == pytest.approx(-math.log(1e-15))


@pytest.mark.parametrize(
    ("confidence", "expected"), [(0.0, 0), (1 / 15, 0), (0.0667, 1), (0.2, 2), (0.5, 7), (1.0, 14)]
)
def test_bins_hold_their_upper_edge(confidence, expected):
    marks = calibration.Marks(np.array([confidence]), np.array([confidence]), np.array([True]), np.array([1.0]))
    assert calibration.curve(marks)["bin"].tolist() == [expected]


def test_curve_counts_and_interval():
    probability = [[0.9, 0.1]] * 10 + [[0.6, 0.4]] * 5
    table = calibration.curve(calibration.mark_matrix(probability, [0] * 8 + [1] * 2 + [0] * 2 + [1] * 3))
    assert table["n"].tolist() == [5, 10]
    assert table["accuracy"].tolist() == pytest.approx([0.4, 0.8])
    assert table["confidence"].tolist() == pytest.approx([0.6, 0.9])
    # Wilson's interval of 8 of 10, from its closed form
    z = 1.959964
    centre, half = (0.8 + z**2 / 20) / (1 + z**2 / 10), z / (1 + z**2 / 10) * math.sqrt(0.016 + z**2 / 400)
    assert table.loc[1, ["accuracy_lower", "accuracy_upper"]].tolist() == pytest.approx(
        [centre - half, centre + half], 1e-5
    )


def test_curve_and_ece_tell_the_same():
    marks = calibration.mark_matrix(*matrix_of(500, 3, seed=3))
    table = calibration.curve(marks)
    gaps = (table["n"] * (table["confidence"] - table["accuracy"]).abs()).sum() / table["n"].sum()
    assert calibration.ece(marks) == pytest.approx(gaps)


@pytest.mark.parametrize("power", [0.4, 3.0])
def test_a_miscalibrated_forecaster_has_the_larger_error(power):
    probability, truth = matrix_of(2000, 4, seed=4)
    honest = calibration.mark_matrix(probability, truth)
    bent = calibration.mark_matrix(sharpened(probability, power), truth)
    assert calibration.ece(honest) < calibration.ece_floor(honest.confidence, None, seed=0)
    assert calibration.ece(bent) > 2 * calibration.ece_floor(bent.confidence, None, seed=0)
    assert calibration.log_loss(bent) > calibration.log_loss(honest)
    assert calibration.brier(bent) > calibration.brier(honest)
    assert calibration.accuracy(bent) == calibration.accuracy(honest)


def test_floor_is_exceeded_by_a_perfect_forecaster_one_time_in_twenty():
    over = 0
    for seed in range(300):
        marks = calibration.mark_matrix(*matrix_of(100, 3, seed=1000 + seed))
        over += calibration.ece(marks) > calibration.ece_floor(marks.confidence, None, seed=seed, draws=200)
    # Binomial(300, .05): mean 15, standard deviation 3.8; outside 3 to 31 with probability below 2e-4
    assert 3 <= over <= 31


def test_floor_falls_with_the_size_of_the_sample():
    confidence = matrix_of(200, 3, seed=5)[0].max(axis=1)
    small, large = (calibration.ece_floor(confidence, n, seed=0) for n in (100, 10_000))
    assert small / large == pytest.approx(10, rel=0.25)
    assert calibration.ece_floor(confidence, 100, seed=0) == small


def test_risk_of_a_confidence_that_knows_nothing_is_the_error_rate():
    right = np.array([True, False, True, True])
    flat = calibration.Marks(right * 1.0, np.full(4, 0.5), right, right * 1.0)
    assert calibration.aurc(flat) == pytest.approx(0.25)
    knowing = flat._replace(confidence=np.where(right, 0.9, 0.2))
    misled = flat._replace(confidence=np.where(right, 0.2, 0.9))
    assert calibration.aurc(knowing) == pytest.approx(0.25 / 4)
    assert calibration.aurc(misled) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_scores_do_not_depend_on_the_order_of_the_questions():
    probability, truth = matrix_of(300, 3, seed=6)
    probability = probability.round(1)
    order = np.random.default_rng(0).permutation(300)
    ours = calibration.score(calibration.mark_matrix(probability, truth))
    other = calibration.score(calibration.mark_matrix(probability[order], truth[order]))
    assert ours.to_numpy() == pytest.approx(other.to_numpy(), nan_ok=True)


def test_nothing_settled():
    marks = calibration.mark([0, 0], [0.5, 0.5], [])
    scores = calibration.score(marks)
    assert scores["n"] == 0
    assert scores.drop(["n", "seen"]).isna().all()
    assert calibration.curve(marks).empty
    assert "Nothing was settled" in calibration.in_words(marks, seed=0)


def test_words_name_the_direction_of_the_error():
    probability, truth = matrix_of(2000, 4, seed=7)
    words = {
        power: calibration.in_words(calibration.mark_matrix(sharpened(probability, power), truth), seed=0)
        for power in (0.4, 1, 3)
    }
    assert "under-confident" in words[0.4]
    assert "no miscalibration" in words[1]
    assert "over-confident" in words[3]
    assert all("2,000 settled facts" in sentence for sentence in words.values())


def test_words_tell_errors_that_cancel():
    confidence = np.repeat([0.9, 0.6], 500)
    right = np.concatenate([np.arange(500) < 350, np.arange(500) < 400])
    marks = calibration.Marks(confidence, confidence, right, confidence**2)
    assert "too sure in some ranges" in calibration.in_words(marks, seed=0)
