"""Beliefs about questions whose truth was hidden, with their scores: what cross-validation gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import calibration, display
from nousppl.beliefs import Beliefs
from nousppl.errors import QuestionError
from nousppl.models.shapes import AnyOf, Number, OneOf
from nousppl.number_beliefs import concatenated
from nousppl.ragged import ranges
from nousppl.tables import shorten

Ints = NDArray[np.int64]
KEYS = ["entity", "attribute"]
SCORES = ["accuracy", "log_loss"]


def pick(beliefs: Beliefs, wanted: pd.DataFrame, who: str) -> Beliefs:
    """The beliefs about these questions (entity, attribute), in this order, marked as not seen in the fit.

    Raises:
        QuestionError: some of the questions are missing; ``who`` says whose beliefs they are.
    """
    asked = pd.MultiIndex.from_frame(wanted[KEYS])
    place = _places(beliefs.questions, asked)
    of_number = np.full(len(place), -1) if beliefs.numbers is None else _places(beliefs.numbers.questions, asked)
    missing = (place < 0) & (of_number < 0)
    if missing.any():
        entity, attribute = wanted[KEYS].iloc[int(missing.argmax())]
        raise QuestionError(
            f"{who}: no belief about {int(missing.sum())} of {len(wanted)} questions that were asked; first: "
            f"({shorten(entity)}, {shorten(attribute)}). Give one about every question of the evidence handed in."
        )
    place, of_number = place[place >= 0], of_number[of_number >= 0]
    items = beliefs.items
    if len(items):
        items = items[pd.MultiIndex.from_frame(items[KEYS]).isin(asked)].reset_index(drop=True)
    start = np.searchsorted(beliefs.cell_question, place, side="left")
    count = np.searchsorted(beliefs.cell_question, place, side="right") - start
    cells = ranges(start, count)
    return replace(
        beliefs,
        questions=beliefs.questions.iloc[place].reset_index(drop=True),
        cell_question=np.repeat(np.arange(len(place)), count),
        cell_answer=beliefs.cell_answer[cells],
        cell_other=beliefs.cell_other[cells],
        cell_count=beliefs.cell_count[cells],
        probability=beliefs.probability[cells],
        sd=beliefs.sd[cells],
        support=beliefs.support[cells],
        claims=beliefs.claims[place],
        seen=np.zeros(len(place), bool),
        numbers=None if beliefs.numbers is None or not len(of_number) else beliefs.numbers.take(of_number, seen=False),
        items=items,
    )


def in_order_of(beliefs: Beliefs, table: pd.DataFrame) -> pd.DataFrame:
    """Rows with the keys of all questions, those that have answers first and then those about numbers."""
    numbers = np.zeros(len(table), bool)
    if beliefs.numbers is not None:
        numbers = _places(beliefs.numbers.questions, pd.MultiIndex.from_frame(table[KEYS])) >= 0
    return pd.concat([table[~numbers], table[numbers]], ignore_index=True)


def _places(questions: pd.DataFrame, asked: pd.MultiIndex) -> Ints:
    """Row of each question that was asked; -1 where there is none."""
    if not len(questions):
        return np.full(len(asked), -1, np.int64)
    return np.asarray(pd.MultiIndex.from_frame(questions[KEYS]).get_indexer(asked), np.int64)


def join(parts: Sequence[Beliefs]) -> Beliefs:
    """Beliefs about different questions, end to end."""
    start = np.cumsum([0, *(len(part) for part in parts[:-1])])
    cells: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("cell_answer", "cell_other", "cell_count", "probability", "sd", "support", "claims", "seen")
    }
    numbers = [part.numbers for part in parts if part.numbers is not None]
    items = [part.items for part in parts if len(part.items)]
    return replace(
        parts[0],
        questions=pd.concat([part.questions for part in parts if len(part)] or [parts[0].questions], ignore_index=True),
        cell_question=np.concatenate([part.cell_question + first for part, first in zip(parts, start, strict=True)]),
        numbers=concatenated(numbers) if numbers else None,
        items=pd.concat(items, ignore_index=True) if items else parts[0].items,
        **cells,
    )


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """Beliefs about settled questions, each made without its settled truth.

    Attributes:
        beliefs: of the Q questions; ``seen`` is False for all of them.
        settled: the hidden truths: entity, attribute, value, and the other columns of the settled facts.
        folds: Q rows: entity, attribute, fold, and of forecasts in order the ``time`` at which the truth became known;
            first the questions that have answers, in the order of ``beliefs``, then those about numbers, in the order
            of ``beliefs.numbers``.
        by_fold: a row a fold (index ``fold``): n (questions), learned (settled truths that the fit was given), seconds,
            accuracy, log_loss (of the questions that have answers), crps and log_score (of those about numbers, where
            there are some), converged (missing for what is no trust), status (words and advice); of forecasts in order
            also ``fitted`` and ``until``: when the window began and ended.
        record: how it was made: kind ("folds" or "in order"), by, seed, model, and unasked (settled questions that were
            left out, since nothing was claimed about them).
    """

    beliefs: Beliefs
    settled: pd.DataFrame
    folds: pd.DataFrame
    by_fold: pd.DataFrame
    record: dict[str, Any]

    @cached_property
    def scores(self) -> pd.Series:
        """All held-out questions that have answers scored together, see ``Beliefs.score`` (a list of items is an answer
        as a whole); where all are about numbers ``Beliefs.score_numbers``. See `by_shape` where there are both."""
        if not len(self.beliefs):
            return self.beliefs.score_numbers(self.settled)
        return self.beliefs.score(self.settled)

    @cached_property
    def by_shape(self) -> pd.DataFrame:
        """A row a shape of the held-out questions (index ``shape``), with the scores that it has: n, accuracy, log_loss
        and ece of the top answers (one of several, true for a while, whole lists); items, item_accuracy, item_log_loss
        and item_ece of lists item by item; coverage_50, coverage_90, log_score (nats, per unit of the values), crps and
        rmse of numbers."""
        return by_shape(self.beliefs, self.settled)

    def calibration(self, bins: int = calibration.BINS) -> pd.DataFrame:
        """How often the top answers were right, by bin of their probability; see ``Beliefs.calibration``."""
        return self.beliefs.calibration(self.settled, bins)

    @cached_property
    def pointwise(self) -> pd.DataFrame:
        """Q rows in the order of ``folds``: entity, attribute, fold, (time,) truth (probability given to it), log_loss
        (nats), confidence (of the top answer) and right. Where there are numbers also ``crps``: of a number ``truth``
        and ``log_loss`` are those of its density (per unit of the values), and it has no top answer."""
        return pointwise(self.beliefs, self.settled, self.folds)

    def __len__(self) -> int:
        return len(self.folds)

    @property
    def _heading(self) -> str:
        steps = f"{len(self.by_fold)} " + ("folds" if self.record["kind"] == "folds" else "windows in order")
        score = self.scores
        unasked = self.record["unasked"]
        aside = f"; {unasked} settled questions without a claim left out" if unasked else ""
        late = self.by_fold.index[self.by_fold["converged"].eq(False)].tolist()
        doubt = f"; not converged: {', '.join(map(str, late))} (see by_fold)" if late else ""
        words = []
        if len(self.beliefs):
            words = [f"accuracy {score['accuracy']:.4f}, log loss {score['log_loss']:.4f}, ECE {score['ece']:.4f}"]
        if self.beliefs.numbers is not None:
            found = self.beliefs.score_numbers(self.settled)
            words.append(
                f"{int(found['n']):,} numbers with CRPS {found['crps']:.4g}, log score {found['log_score']:.4f}, "
                f"{found['coverage_90']:.1%} in their 90 % intervals"
            )
        return f"{len(self):,} questions held out in {steps}: {'; '.join(words)}{aside}{doubt}"

    def __repr__(self) -> str:
        return f"CrossValidation({self._heading})"

    def _repr_html_(self) -> str:
        shown = self.by_fold.reset_index()
        return (
            f'<style>{display.STYLE}</style><div class="nous">{display.paragraphs([self._heading])}'
            f"{display.table_html(shown)}</div>"
        )


def pointwise(beliefs: Beliefs, settled: pd.DataFrame, folds: pd.DataFrame) -> pd.DataFrame:
    """See :attr:`CrossValidation.pointwise`."""
    if beliefs.numbers is None:
        return _of_answers(beliefs, settled, folds)
    answers, numbers = folds.iloc[: len(beliefs)], folds.iloc[len(beliefs) :]
    points = beliefs.numbers.pointwise(settled)
    table = numbers.assign(truth=points["density"], log_loss=points["log_loss"], confidence=np.nan, right=None)
    parts = [_of_answers(beliefs, settled, answers).assign(crps=np.nan)] if len(answers) else []
    out = pd.concat([*parts, table.assign(crps=points["crps"])])
    return out.assign(right=out["right"].astype("boolean"))


def by_shape(beliefs: Beliefs, settled: pd.DataFrame) -> pd.DataFrame:
    """See :attr:`CrossValidation.by_shape`."""
    names = beliefs.questions["attribute"].map(lambda a: beliefs.shapes[a].name if a in beliefs.shapes else OneOf.name)
    rows: dict[str, dict[str, float]] = {}
    if len(beliefs):
        facts = beliefs.match(settled)
        of_fact = names.to_numpy()[beliefs.cell_question[facts.cell]]
        for name in dict.fromkeys(names):
            marks = calibration.mark(beliefs.cell_question, beliefs.probability, facts.cell[of_fact == name])
            found = calibration.score(marks)
            rows[str(name)] = {key: float(found[key]) for key in ("n", "accuracy", "log_loss", "ece")}
    if len(beliefs.items):
        found = beliefs.score_items(settled)
        named = (("items", "n"), ("item_accuracy", "accuracy"), ("item_log_loss", "log_loss"), ("item_ece", "ece"))
        rows[AnyOf.name] |= {name: float(found[key]) for name, key in named}
    if beliefs.numbers is not None:
        found = beliefs.score_numbers(settled)
        rows[Number.name] = {str(key): float(found[key]) for key in NUMBER_SCORES}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index="shape")


NUMBER_SCORES = ("n", "coverage_50", "coverage_90", "log_score", "crps", "rmse")


def _of_answers(beliefs: Beliefs, settled: pd.DataFrame, folds: pd.DataFrame) -> pd.DataFrame:
    facts = beliefs.match(settled)
    marks = calibration.mark(beliefs.cell_question, beliefs.probability, facts.cell)
    place = np.empty(len(beliefs), np.intp)
    place[beliefs.cell_question[facts.cell]] = np.arange(len(facts.cell))
    return folds.assign(
        truth=marks.truth[place],
        log_loss=-np.log(np.clip(marks.truth[place], calibration.SMALLEST, 1.0)),
        confidence=marks.confidence[place],
        right=marks.right[place],
    )


def result(
    beliefs: Beliefs, settled: pd.DataFrame, folds: pd.DataFrame, rows: list[dict[str, Any]], record: dict[str, Any]
) -> CrossValidation:
    """The beliefs of all folds with their scores by fold; ``rows`` has the other columns of ``by_fold``."""
    points = pointwise(beliefs, settled, folds)
    answers = points[points["confidence"].notna()]
    scores = answers.groupby("fold").agg(accuracy=("right", "mean"), log_loss=("log_loss", "mean"))
    if beliefs.numbers is not None:
        numbers = points[points["crps"].notna()].assign(log_score=lambda table: -table["log_loss"])
        scores = scores.join(
            numbers.groupby("fold").agg(crps=("crps", "mean"), log_score=("log_score", "mean")), how="outer"
        )
    table = pd.DataFrame(rows).set_index("fold").join(scores)
    table["converged"] = table["converged"].astype("boolean")
    last = ["converged", "status"]
    return CrossValidation(beliefs, settled, folds, table[[*table.columns.difference(last, sort=False), *last]], record)
