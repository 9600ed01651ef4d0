"""Which settled questions are held out together: folds by a hash, windows by the time of settling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import EvidenceError
from nousppl.evidence import Evidence
from nousppl.ragged import mix, uniform
from nousppl.tables import shorten

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def settled_questions(evidence: Evidence) -> tuple[Ints, int]:
    """Rows in ``evidence.questions`` of what can be held out, and how many cannot be asked.

    Returns:
        questions with a settled truth and a claim; the number of those with a settled truth and no claim.

    Raises:
        EvidenceError: there are none.
    """
    coded = evidence.coded
    settled = coded.settled_truths
    asked = settled[np.diff(coded.claim_start)[settled] > 0]
    if not len(asked):
        raise EvidenceError(
            f"settled: none of {len(settled)} settled truths is of a question that has a claim, so there is nothing to "
            "hold out. Give Evidence(claims, settled=...)."
        )
    return asked, len(settled) - len(asked)


def groups_of(evidence: Evidence, questions: Ints, by: str) -> NDArray[np.object_]:
    """(questions,) name of the group that each question is held out with.

    Args:
        evidence: where the questions are.
        questions: rows in ``evidence.questions``; each has a claim.
        by: "question" (each alone), "entity", "attribute", or a column of claims or sources that is constant within
            each question.

    Raises:
        EvidenceError: no such column, or it is missing or not constant in one of the questions.
    """
    frame = evidence.coded.questions.iloc[questions]
    if by == "question":
        return np.array([f"{e}\x1f{a}" for e, a in zip(frame["entity"], frame["attribute"], strict=True)], object)
    if by in ("entity", "attribute"):
        return frame[by].astype(str).to_numpy(object)
    covariates = evidence.covariates
    if by not in covariates.columns:
        allowed = ", ".join(map(repr, ["question", *covariates.columns]))
        raise EvidenceError(f"claims: no column {by!r} to take folds by. Allowed: {allowed}.")
    place = np.full(len(evidence.coded.questions), -1)
    place[questions] = np.arange(len(questions))
    of_claim = place[evidence.coded.claim_question]
    column = covariates[by][of_claim >= 0].reset_index(drop=True)
    of_claim = of_claim[of_claim >= 0]
    codes, _ = pd.factorize(column)
    first = np.full(len(questions), -2)
    first[of_claim[::-1]] = codes[::-1]
    bad = (codes < 0) | (codes != first[of_claim])
    if bad.any():
        row = int(bad.argmax())
        entity, attribute = frame.iloc[of_claim[row]]
        raise EvidenceError(
            f"claims: column {by!r} is missing or takes several values within a question in {int(bad.sum())} of "
            f"{len(bad)} rows of settled questions; first: {shorten(column.iloc[row])} in the question "
            f"({shorten(entity)}, {shorten(attribute)}). Allowed: a column that is constant within each question."
        )
    values = np.empty(len(questions), object)
    values[of_claim] = column.astype(str).to_numpy(object)
    return values


def assign(groups: NDArray[np.object_], folds: int, seed: int) -> Ints:
    """(questions,) fold of each question, 0 to ``folds`` - 1: a hash of the seed and its group, nothing else.

    So a question stays in its fold whatever other questions there are and however the rows are ordered.

    Raises:
        EvidenceError: fewer than two folds have a question.
    """
    if folds < 2:
        raise EvidenceError(f"folds={folds}: at least 2 are needed")
    keys = pd.util.hash_array(np.asarray(groups, object), categorize=False)
    fold = (uniform(mix(keys, seed)) * folds).astype(np.int64)
    if len(np.unique(fold)) < 2:
        raise EvidenceError(
            f"folds={folds}: all {len(pd.unique(groups))} groups of settled questions fall into one fold. Give more "
            "settled questions, finer groups or another seed."
        )
    return fold


def settling_times(evidence: Evidence, questions: Ints) -> Floats:
    """(questions,) when the truth of each question became known (its earliest ``known_at``, else time).

    Raises:
        EvidenceError: a settled truth has neither.
    """
    coded = evidence.coded
    truth = ~coded.settled_rejected & np.isin(coded.settled_question, questions)
    undated = truth & np.isnan(coded.settled_known_at)
    if undated.any():
        entity, attribute = coded.questions.iloc[coded.settled_question[undated][0]]
        raise EvidenceError(
            f"settled: {int(undated.sum())} of {int(truth.sum())} settled truths have neither time nor known_at; "
            f"first: ({shorten(entity)}, {shorten(attribute)}). Allowed: a time, or a number in the order of settling, "
            "for each of them."
        )
    known = np.full(len(coded.questions), np.inf)
    np.minimum.at(known, coded.settled_question[truth], coded.settled_known_at[truth])
    return np.asarray(known[questions])


def windows(times: Floats, start: float, every: float, counted: bool) -> tuple[Ints, Floats]:
    """Windows of settlings; the trust is fitted anew where one begins.

    Args:
        times: (n,) when each truth became known, ascending, from ``start`` on.
        start: where the first window begins.
        every: number of truths in a window (more where the last of them are known at the same time), or its length.
        counted: whether ``every`` is a number of truths.

    Returns:
        (n,) window of each settling, from 0; (windows,) when each window begins.
    """
    if not counted:
        step = np.floor((times - start) / every)
        found, window = np.unique(step, return_inverse=True)
        return np.asarray(window, np.int64), start + found * every
    window, first = np.empty(len(times), np.int64), 0
    begins: list[float] = []
    while first < len(times):
        last = times[min(first + int(every), len(times)) - 1]
        stop = int(np.searchsorted(times, last, side="right"))
        window[first:stop] = len(begins)
        begins.append(times[first] if begins else start)
        first = stop
    return window, np.array(begins)


def span(every: Any, kind: str | None) -> float:
    """A length of time on the scale of evidence of this kind of time: days for dates, the number for numbers.

    Raises:
        EvidenceError: not a length of time, or not of this kind.
    """
    if kind == "numbers":
        if isinstance(every, float | np.floating) and np.isfinite(every) and every > 0:
            return float(every)
        raise EvidenceError(
            f"every={shorten(every)}: times are numbers here. Allowed: a whole number of settled truths (100), or a "
            "length of time as a positive float (100.0)."
        )
    try:
        days = pd.Timedelta(every) / pd.Timedelta(days=1) if not isinstance(every, float) else float("nan")
    except (ValueError, TypeError):
        days = float("nan")
    if not days > 0:
        raise EvidenceError(
            f"every={shorten(every)}: times are dates here. Allowed: a whole number of settled truths (100), or a "
            "length of time above 0 such as '7D' or a timedelta."
        )
    return float(days)
