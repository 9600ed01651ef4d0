"""Scores of probabilities against what turned out true: pure functions on arrays, for beliefs and baselines alike.

Predictions are ragged: one row (*cell*) per question and answer, sorted by question, the answers that nobody named
taken together as one cell. The calibration error is always that of the top answer, over 15 equally wide bins.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BINS = 15
"""Number of equally wide bins of confidence."""
SMALLEST = 1e-15
"""Probabilities are clipped here before their logarithm is taken."""
HELD = (0.85, 0.95)
"""Probabilities from which an answer counts as held."""


class Marks(NamedTuple):
    """What the scores need to know of n predictions whose truth is known."""

    truth: Floats
    """(n,) probability given to the truth, or to the unnamed answers together where nobody named it."""
    confidence: Floats
    """(n,) probability of the top answer."""
    right: NDArray[np.bool_]
    """(n,) whether the top answer is the truth."""
    squares: Floats
    """(n,) sum of the squared probabilities of all answers."""


def ranked_cells(question: ArrayLike, probability: ArrayLike) -> tuple[Ints, Ints]:
    """Most and second most probable cell of each question; among equals the one that comes first.

    Args:
        question: (C,) code of the question of each cell, ascending.
        probability: (C,) probability of each cell.

    Returns:
        Index of the top cell and of the runner-up (-1 where a question has one cell), one for each distinct question.
    """
    codes, values = np.asarray(question), np.asarray(probability, dtype=np.float64)
    if codes.size == 0:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    order = np.lexsort((np.arange(len(codes)), -values, codes))
    first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    size = np.diff(np.r_[first, len(codes)])
    second = np.where(size > 1, order[np.minimum(first + 1, len(codes) - 1)], -1)
    return order[first], second


def mark(question: ArrayLike, probability: ArrayLike, truth: ArrayLike) -> Marks:
    """Marks of ragged predictions.

    Args:
        question: (C,) code of the question of each cell, ascending.
        probability: (C,) probability of each cell, summing to 1 within a question.
        truth: (n,) index of the cell that holds the truth, one for each question to be scored.
    """
    codes, values = np.asarray(question), np.asarray(probability, dtype=np.float64)
    cell = np.asarray(truth, dtype=np.intp)
    if cell.size == 0:
        return Marks(np.empty(0), np.empty(0), np.empty(0, np.bool_), np.empty(0))
    first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    segment = np.searchsorted(codes[first], codes[cell])
    top = ranked_cells(codes, values)[0][segment]
    squares = np.add.reduceat(values**2, first)[segment]
    return Marks(values[cell], values[top], top == cell, squares)


def mark_matrix(probability: ArrayLike, truth: ArrayLike) -> Marks:
    """Marks of n predictions over the same K answers.

    Args:
        probability: (n, K), rows sum to 1.
        truth: (n,) column of the truth.
    """
    values = np.asarray(probability, dtype=np.float64)
    n, size = values.shape
    start = np.arange(n) * size
    return mark(np.repeat(np.arange(n), size), values.ravel(), start + np.asarray(truth, dtype=np.intp))


def accuracy(marks: Marks) -> float:
    """Share of predictions whose top answer is the truth; NaN where there are none."""
    return float(marks.right.mean()) if len(marks.right) else float("nan")


def log_loss(marks: Marks) -> float:
    """Mean of minus the natural logarithm of the probability given to the truth, clipped at 1e-15."""
    if not len(marks.truth):
        return float("nan")
    return float(-np.log(np.clip(marks.truth, SMALLEST, 1.0)).mean())


def brier(marks: Marks) -> float:
    """Mean squared distance to the truth, summed over all answers of a question: between 0 and 2 (Brier 1950)."""
    if not len(marks.truth):
        return float("nan")
    return float((marks.squares - 2 * marks.truth + 1).mean())


def _bin(confidence: Floats, bins: int) -> Ints:
    """Bin of each confidence; a bin holds its upper edge, the first one also 0."""
    return np.digitize(confidence, np.linspace(0, 1, bins + 1)[1:-1], right=True)


def _binned_error(gap: Floats, cell: Ints, bins: int) -> float:
    """Sum over bins of |sum of gaps|, over the number of gaps."""
    return float(np.abs(np.bincount(cell, weights=gap, minlength=bins)).sum() / len(gap))


def ece(marks: Marks, bins: int = BINS) -> float:
    """Expected calibration error of the top answer: mean over predictions of |confidence - accuracy| of their bin."""
    if not len(marks.right):
        return float("nan")
    return _binned_error(marks.confidence - marks.right, _bin(marks.confidence, bins), bins)


def ece_floor(
    confidence: ArrayLike, n: int | None, seed: int, *, bins: int = BINS, draws: int = 1000, level: float = 0.95
) -> float:
    """Calibration error that a perfect forecaster stays under with probability ``level``, by simulation.

    An ECE is never negative, so that of a finite sample is above 0 however good the forecaster; one below the floor is
    no sign of miscalibration.

    Args:
        confidence: probabilities of the top answers.
        n: size of the sample; None for one prediction per confidence, else confidences are drawn with replacement.
        seed: seed of the simulation.
    """
    given = np.asarray(confidence, dtype=np.float64)
    if given.size == 0:
        return float("nan")
    rng = np.random.default_rng(seed)
    simulated = np.empty(draws)
    for draw in range(draws):
        drawn = given if n is None else rng.choice(given, size=n)
        simulated[draw] = _binned_error(drawn - (rng.random(len(drawn)) < drawn), _bin(drawn, bins), bins)
    return float(np.quantile(simulated, level))


def risk_coverage(marks: Marks) -> pd.DataFrame:
    """Share of wrong top answers among the most confident predictions, for every share kept.

    Returns:
        Columns ``coverage`` and ``risk``, n rows. Predictions of equal confidence count with their mean error, so that
        the order of the rows does not matter.
    """
    n = len(marks.right)
    level, position = np.unique(-marks.confidence, return_inverse=True)
    size = np.bincount(position, minlength=len(level))
    wrong = np.bincount(position, weights=~marks.right, minlength=len(level))
    errors = np.repeat(wrong / np.maximum(size, 1), size)
    kept = np.arange(1, n + 1)
    return pd.DataFrame({"coverage": kept / max(n, 1), "risk": np.cumsum(errors) / kept})


def aurc(marks: Marks) -> float:
    """Area under the risk-coverage curve (Geifman & El-Yaniv 2017): mean risk over the n coverages; small is good."""
    return float(risk_coverage(marks)["risk"].mean())


def held(marks: Marks, threshold: float) -> tuple[float, float]:
    """Share of predictions with confidence at least ``threshold``, and how often those are right (NaN if none is)."""
    sure = marks.confidence >= threshold
    share = float(sure.mean()) if len(sure) else float("nan")
    return share, float(marks.right[sure].mean()) if sure.any() else float("nan")


def score(marks: Marks, seen: int = 0) -> pd.Series:
    """All scores of n predictions.

    Args:
        marks: the predictions.
        seen: how many of the truths were used in the fit; shown beside ``n``.

    Returns:
        Series with accuracy, log_loss (nats), brier, ece, held_85, right_85, held_95, right_95, aurc, n, seen.
    """
    result = {"accuracy": accuracy(marks), "log_loss": log_loss(marks), "brier": brier(marks), "ece": ece(marks)}
    for threshold in HELD:
        share, right = held(marks, threshold)
        result |= {f"held_{threshold * 100:.0f}": share, f"right_{threshold * 100:.0f}": right}
    result |= {"aurc": aurc(marks), "n": float(len(marks.right)), "seen": float(seen)}
    return pd.Series(result, name="score")


def curve(marks: Marks, bins: int = BINS, level: float = 0.95) -> pd.DataFrame:
    """Calibration of the top answer by bin of confidence; bins without predictions are left out.

    Returns:
        Columns ``bin`` (from 0), ``low``, ``high`` (edges), ``n``, ``confidence`` (mean), ``accuracy``, and
        ``accuracy_lower``, ``accuracy_upper``: Wilson's interval of the accuracy at ``level``.
    """
    from scipy.stats import binomtest

    cell = _bin(marks.confidence, bins)
    n = np.bincount(cell, minlength=bins)
    used = np.flatnonzero(n)
    right = np.bincount(cell, weights=marks.right, minlength=bins)[used]
    confidence = np.bincount(cell, weights=marks.confidence, minlength=bins)[used]
    n = n[used]
    intervals = [binomtest(int(k), int(m)).proportion_ci(level, method="wilson") for k, m in zip(right, n, strict=True)]
    return pd.DataFrame(
        {
            "bin": used,
            "low": used / bins,
            "high": (used + 1) / bins,
            "n": n,
            "confidence": confidence / n,
            "accuracy": right / n,
            "accuracy_lower": [interval.low for interval in intervals],
            "accuracy_upper": [interval.high for interval in intervals],
        }
    )


def in_words(marks: Marks, seed: int) -> str:
    """One sentence on how far the confidence of the top answers is from how often they are right.

    Args:
        marks: the predictions.
        seed: seed of the simulation behind :func:`ece_floor`.
    """
    n = len(marks.right)
    if n == 0:
        return "Nothing was settled, so nothing can be said about how right these beliefs are."
    right, sure = accuracy(marks), float(marks.confidence.mean())
    error, floor = ece(marks), ece_floor(marks.confidence, None, seed)
    gap = sure - right
    facts = "1 settled fact" if n == 1 else f"{n:,} settled facts"
    start = f"On {facts} the top answer was right {right:.1%} of the time and held at {sure:.1%} on average"
    limit = f"calibration error {error:.3f}; a perfect forecaster stays below {floor:.3f} in 95 % of such samples"
    if error <= floor:
        return f"{start}: no miscalibration that chance would not explain ({limit})."
    if abs(gap) < error / 2:
        return f"{start}: too sure in some ranges of confidence and not sure enough in others ({limit})."
    direction = "over-confident" if gap > 0 else "under-confident"
    return f"{start}: {direction} by {abs(gap) * 100:.1f} points on average ({limit})."
