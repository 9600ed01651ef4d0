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
    place = pd.MultiIndex.from_frame(beliefs.questions[KEYS]).get_indexer(pd.MultiIndex.from_frame(wanted[KEYS]))
    if (place < 0).any():
        entity, attribute = wanted[KEYS].iloc[int((place < 0).argmax())]
        raise QuestionError(
            f"{who}: no belief about {int((place < 0).sum())} of {len(wanted)} questions that were asked; first: "
            f"({shorten(entity)}, {shorten(attribute)}). Give one about every question of the evidence handed in."
        )
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
    )


def join(parts: Sequence[Beliefs]) -> Beliefs:
    """Beliefs about different questions, end to end."""
    start = np.cumsum([0, *(len(part) for part in parts[:-1])])
    cells: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("cell_answer", "cell_other", "cell_count", "probability", "sd", "support", "claims", "seen")
    }
    return replace(
        parts[0],
        questions=pd.concat([part.questions for part in parts], ignore_index=True),
        cell_question=np.concatenate([part.cell_question + first for part, first in zip(parts, start, strict=True)]),
        **cells,
    )


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidation:
    """Beliefs about settled questions, each made without its settled truth.

    Attributes:
        beliefs: Q questions; ``seen`` is False for all of them.
        settled: the hidden truths: entity, attribute, value, and the other columns of the settled facts.
        folds: Q rows in the order of ``beliefs``: entity, attribute, fold, and of forecasts in order the ``time`` at
            which the truth became known.
        by_fold: a row a fold (index ``fold``): n (questions), learned (settled truths that the fit was given), seconds,
            accuracy, log_loss, converged (missing for what is no trust), status (words and advice); of forecasts in
            order also ``fitted`` and ``until``: when the window began and ended.
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
        """All held-out questions scored together, see ``Beliefs.score``."""
        return self.beliefs.score(self.settled)

    def calibration(self, bins: int = calibration.BINS) -> pd.DataFrame:
        """How often the top answers were right, by bin of their probability; see ``Beliefs.calibration``."""
        return self.beliefs.calibration(self.settled, bins)

    @cached_property
    def pointwise(self) -> pd.DataFrame:
        """Q rows in the order of ``beliefs``: entity, attribute, fold, (time,) truth (probability given to it),
        log_loss (nats), confidence (of the top answer) and right."""
        return pointwise(self.beliefs, self.settled, self.folds)

    def __len__(self) -> int:
        return len(self.beliefs)

    @property
    def _heading(self) -> str:
        steps = f"{len(self.by_fold)} " + ("folds" if self.record["kind"] == "folds" else "windows in order")
        score = self.scores
        unasked = self.record["unasked"]
        aside = f"; {unasked} settled questions without a claim left out" if unasked else ""
        late = self.by_fold.index[self.by_fold["converged"].eq(False)].tolist()
        doubt = f"; not converged: {', '.join(map(str, late))} (see by_fold)" if late else ""
        return (
            f"{len(self):,} questions held out in {steps}: accuracy {score['accuracy']:.4f}, "
            f"log loss {score['log_loss']:.4f}, ECE {score['ece']:.4f}{aside}{doubt}"
        )

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
    scores = points.groupby("fold").agg(accuracy=("right", "mean"), log_loss=("log_loss", "mean"))
    table = pd.DataFrame(rows).set_index("fold").join(scores)
    table["converged"] = table["converged"].astype("boolean")
    last = ["converged", "status"]
    return CrossValidation(beliefs, settled, folds, table[[*table.columns.difference(last, sort=False), *last]], record)
