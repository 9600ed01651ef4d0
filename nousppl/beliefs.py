"""Beliefs about many questions at once: tables of answers, their scores against settled facts, and their files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import beliefs_items, calibration, display
from nousppl._values import KINDS, join, read_values
from nousppl.belief import verdicts
from nousppl.beliefs_files import beliefs_columns, read_columns, read_file, write_file
from nousppl.calibration import Floats, Ints, Marks
from nousppl.errors import QuestionError
from nousppl.models.shapes import Shape
from nousppl.number_beliefs import NumberBeliefs
from nousppl.tables import Table, open_table, show_row


class Facts(NamedTuple):
    """Settled facts that were found among the beliefs."""

    cell: Ints
    """(n,) cell that holds the truth, one for each settled question: "other" where nobody named it."""
    missing: int
    """Facts about questions that the beliefs do not hold."""
    rejected: int
    """Rejections ("this is wrong"), which are not scored."""


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs:
    """Posteriors of Q questions, a *cell* for each of their C answers.

    The answers that nobody named are one cell, "other", last within its question.
    """

    questions: pd.DataFrame
    """Q rows: entity, attribute."""
    cell_question: Ints
    """(C,) question of each cell, ascending."""
    cell_answer: NDArray[np.object_]
    """(C,) answer of each cell; "other" for the unnamed ones together."""
    cell_other: NDArray[np.bool_]
    """(C,) whether the cell stands for the answers that nobody named."""
    cell_count: Floats
    """(C,) number of answers that the cell stands for."""
    probability: Floats
    """(C,) posterior probability; sums to 1 within a question."""
    sd: Floats
    """(C,) standard deviation of the probability over draws of the trust."""
    support: Floats
    """(C,) independent witnesses behind the answer."""
    claims: Ints
    """(Q,) number of claims."""
    seen: NDArray[np.bool_]
    """(Q,) whether a settled truth of the question was used in the fit."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Where the beliefs come from: number of draws, version."""
    numbers: NumberBeliefs | None = None
    """Beliefs about numbers, which have no cells and are no part of the Q questions; None where there are none."""
    shapes: Mapping[Any, Shape] = field(default_factory=dict)
    """Attribute -> shape, where it is not one of several; an answer of ``AnyOf`` is a whole list of items."""
    items: pd.DataFrame = field(default_factory=beliefs_items.no_items)
    """A row an item of a set-valued question: entity, attribute, item, probability that it holds."""

    def __post_init__(self) -> None:
        cells, size = len(self.cell_question), len(self.questions)
        columns = (self.cell_answer, self.cell_other, self.cell_count, self.probability, self.sd, self.support)
        if any(len(column) != cells for column in columns) or len(self.claims) != size or len(self.seen) != size:
            raise ValueError(f"every cell column must have {cells} entries, claims and seen {size}")
        if (np.diff(self.cell_question) < 0).any() or not np.array_equal(
            np.unique(self.cell_question), np.arange(size)
        ):
            raise ValueError(f"cell_question must ascend and hold every question from 0 to {size - 1}")

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def top(self) -> Ints:
        """(Q,) cell of the top answer; among equals the first one."""
        return calibration.ranked_cells(self.cell_question, self.probability)[0]

    @cached_property
    def runner_up(self) -> Ints:
        """(Q,) cell of the most probable named answer other than the top one; -1 where there is none."""
        barred = self.cell_other.copy()
        barred[self.top] = True
        masked = np.where(barred, -1.0, self.probability)
        best = calibration.ranked_cells(self.cell_question, masked)[0]
        return np.where(masked[best] >= 0, best, -1)

    @property
    def frame(self) -> pd.DataFrame:
        """A row a question.

        Columns: entity, attribute, answer, probability, sd (over draws of the trust), runner_up (next named answer),
        entropy (bits), claims, effective_claims (independent witnesses behind the answer), verdict (see
        :func:`nousppl.belief.verdicts`), seen (its settled truth was used in the fit).
        """
        top, second = self.top, self.runner_up
        opposition = np.where(second >= 0, self.support[second], 0.0)
        table = self.questions.reset_index(drop=True)
        table["answer"] = self.cell_answer[top]
        table["probability"], table["sd"] = self.probability[top], self.sd[top]
        table["runner_up"] = pd.Series(self.cell_answer[second], dtype=object).where(second >= 0, None)
        table["entropy"] = self.entropy
        table["claims"], table["effective_claims"] = self.claims, self.support[top]
        table["verdict"] = verdicts(self.cell_other[top], self.probability[top], opposition)
        table["seen"] = self.seen
        return table

    @property
    def entropy(self) -> Floats:
        """(Q,) entropy in bits; "other" counts as the answers that it stands for, equally probable."""
        p = self.probability
        share = np.where(p > 0, p / np.maximum(self.cell_count, 1), 1.0)
        bits = np.bincount(self.cell_question, weights=-p * np.log2(share), minlength=len(self))
        return np.asarray(bits + 0.0, dtype=np.float64)

    @property
    def probabilities(self) -> pd.DataFrame:
        """A row an answer: entity, attribute, answer, probability, other (stands for what nobody named)."""
        table = self.questions.iloc[self.cell_question].reset_index(drop=True)
        table["answer"], table["probability"], table["other"] = self.cell_answer, self.probability, self.cell_other
        return table

    def score_numbers(self, settled: pd.DataFrame, unseen: bool = False) -> pd.Series:
        """Scores of the beliefs about numbers against settled ones.

        Args:
            settled: entity, attribute and value; facts about other attributes are left aside.
            unseen: leave out the questions whose truth was used in the fit; else they are counted as ``seen``.

        Returns:
            coverage_50 and coverage_90 (share of truths in the central intervals), log_score (mean log density of the
            truth, nats per unit of the values), crps (continuous ranked probability score) and rmse (of the mean), in
            the unit of the values, n, seen, missing (facts about other questions).

        Raises:
            QuestionError: there are no beliefs about numbers.
            EvidenceError: a settled value is no number, or nothing is to be scored.
        """
        if self.numbers is None:
            raise QuestionError("score_numbers: none of these beliefs is about a number; use score")
        return self.numbers.score(settled, unseen)

    def score_items(self, settled: pd.DataFrame) -> pd.Series:
        """`calibration.score` of the items of set-valued questions, each a question of its own with two answers.

        Args:
            settled: entity, attribute and value, the list of all items that hold.

        Raises:
            EvidenceError: none of the facts is about a set-valued question.
        """
        return calibration.score(beliefs_items.item_marks(self, settled))

    def to_frame(self) -> pd.DataFrame:
        """Everything in one long table for files, answers as text with their kind; :meth:`from_frame` reads it."""
        return beliefs_columns(self)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Beliefs:
        """Beliefs from a long table: entity, attribute, answer, probability, and where it has them the other columns of
        :meth:`to_frame`. So any forecaster's probabilities can be scored.

        Raises:
            EvidenceError: a column is missing, or probabilities are not between 0 and 1 or do not sum to 1.
        """
        return cls(**read_columns(frame))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes :meth:`to_frame` to a file ending in .parquet, .csv or .csv.gz: answers, items, and the whole law of
        each number.

        Raises:
            FileError: another ending, or the file cannot be written.
        """
        write_file(self.to_frame(), Path(path))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Beliefs:
        """Reads what :meth:`write` wrote.

        Raises:
            FileError: the file cannot be read.
            EvidenceError: its table is not as :meth:`from_frame` needs it.
        """
        return cls.from_frame(read_file(Path(path)))

    def match(self, settled: pd.DataFrame) -> Facts:
        """Finds settled facts among the beliefs; a fact that is given twice counts once.

        Args:
            settled: entity, attribute, value, and perhaps verdict; values are compared as in ``Evidence``. Where that
                merged values (``same_value``), hand in ``evidence.settled`` or settle by the merged ones.

        Raises:
            EvidenceError: the table is no table of settled facts, none of them is about these questions, a question has
                two truths, or a truth is outside a closed list of answers.
        """
        if self.numbers is not None:
            settled = settled[~self.numbers.concerns(settled)]
        table = open_table(beliefs_items.canonical(self, settled), "settled")
        if not len(table):
            return Facts(np.empty(0, np.intp), 0, 0)
        code = self._find_questions(table)
        true = table.flags("verdict", blank=True) if "verdict" in table else np.ones(len(table), dtype=bool)
        missing = int(((code < 0) & true).sum())
        if missing and missing == true.sum():
            _refuse_strangers(table, self.questions)
        return Facts(self._find_cells(table, code, true & (code >= 0)), missing, int((~true).sum()))

    def _find_questions(self, table: Table) -> Ints:
        own = Table("beliefs", self.questions)
        keys = []
        for column in ("entity", "attribute"):
            labels = table.labels(column)
            table.one_kind(column, labels, own.labels(column), "the table of beliefs")
            keys.append(labels.names.to_numpy()[labels.codes])
        return pd.MultiIndex.from_frame(self.questions).get_indexer(pd.MultiIndex.from_arrays(keys))

    def _find_cells(self, table: Table, code: Ints, used: NDArray[np.bool_]) -> Ints:
        named = np.flatnonzero(~self.cell_other)
        own, vocabulary = read_values(Table("beliefs", pd.DataFrame({"value": self.cell_answer[named]})))
        given, others = read_values(table)
        self._refuse_other_kinds(table, code, used, vocabulary.kinds[own], others.kinds[given])
        vocabulary, place = join(vocabulary, others)
        key = code.astype(np.int64) * len(vocabulary) + place[given]
        cells = pd.Index(self.cell_question[named].astype(np.int64) * len(vocabulary) + own)
        found = cells.get_indexer(pd.Index(key))
        lump = np.full(len(self), -1)
        lump[self.cell_question[self.cell_other]] = np.flatnonzero(self.cell_other)
        cell = np.where(found >= 0, named[found], lump[code]) if len(named) else lump[code]
        table.refuse("value", used & (cell < 0), "a value outside the closed list of answers", "one of the answers")
        first = pd.DataFrame({"question": code, "key": key, "used": used})
        once = first["used"] & ~first.duplicated(["key", "used"])
        again = once & first[once].duplicated("question").reindex(first.index, fill_value=False)
        table.refuse("value", again.to_numpy(), "a second truth for its question", "one truth for each question")
        return cell[once.to_numpy()].astype(np.intp)

    def _refuse_other_kinds(
        self, table: Table, code: Ints, used: NDArray[np.bool_], own: NDArray[np.int8], given: NDArray[np.int8]
    ) -> None:
        """Text can never match a number: refuse it where the attribute's answers are of one other kind."""
        attribute, names = pd.factorize(self.questions["attribute"])
        held = np.zeros((len(names), len(KINDS)), dtype=bool)
        held[attribute[self.cell_question[~self.cell_other]], own] = True
        mine = held[attribute[code]]
        wrong = used & mine.any(axis=1) & ~mine[np.arange(len(code)), given]
        kinds = " or ".join(KINDS[kind] for kind in np.flatnonzero(mine[wrong.argmax()]))
        table.refuse("value", wrong, "a value of another kind than the answers", f"{kinds}, as the beliefs hold them")

    def marks(self, settled: pd.DataFrame, unseen: bool = False) -> Marks:
        """What the scores in :mod:`nousppl.calibration` need, a row for each settled question.

        Args:
            settled: as in :meth:`match`.
            unseen: leave out the questions whose truth was used in the fit.
        """
        return self._marks(self.match(settled), unseen)

    def _marks(self, facts: Facts, unseen: bool) -> Marks:
        cell = facts.cell[~self.seen[self.cell_question[facts.cell]]] if unseen else facts.cell
        return calibration.mark(self.cell_question, self.probability, cell)

    def score(self, settled: pd.DataFrame, unseen: bool = False) -> pd.Series:
        """Scores against settled facts.

        A truth that nobody named is scored by the probability of "other", and is right where "other" is the top answer.

        Args:
            settled: as in :meth:`match`.
            unseen: leave out the questions whose truth was used in the fit; else they are counted as ``seen``.

        Returns:
            accuracy, log_loss (nats), brier (0 to 2), ece (top answer, 15 bins), held_85, right_85, held_95, right_95
            (share held at that probability, and how often those are right), aurc, n, seen, missing (facts about other
            questions), rejected (rejections, not scored).
        """
        facts = self.match(settled)
        marks = self._marks(facts, unseen)
        seen = 0 if unseen else int(self.seen[self.cell_question[facts.cell]].sum())
        more = pd.Series({"missing": float(facts.missing), "rejected": float(facts.rejected)})
        return pd.concat([calibration.score(marks, seen), more]).rename("score")

    def calibration(self, settled: pd.DataFrame, bins: int = calibration.BINS, unseen: bool = False) -> pd.DataFrame:
        """How often the top answers were right, by bin of their probability; see :func:`nousppl.calibration.curve`."""
        return calibration.curve(self.marks(settled, unseen), bins)

    def to_arviz(self, settled: pd.DataFrame | None = None, draws: int = 1000, seed: int = 0) -> Any:
        """The beliefs in arviz's container.

        Groups: ``predictions`` (probability of each cell), ``constant_data`` (claims of each question) and, with
        settled facts, ``observed_data.right`` and ``posterior_predictive.right``: whether each top answer is right, and
        draws of it under the beliefs, as ``plot_ppc_pava`` of arviz takes them.

        Args:
            settled: as in :meth:`match`.
            draws: number of draws of ``right``.
            seed: seed of these draws.
        """
        from nousppl.beliefs_arviz import container

        return container(self, settled, draws, seed)

    def __repr__(self) -> str:
        count = pd.Series(self.frame["verdict"]).value_counts()
        words = ", ".join(f"{number:,} {verdict}" for verdict, number in count.items())
        numbers = "" if self.numbers is None else f"; {len(self.numbers):,} numbers"
        return f"Beliefs({len(self):,} questions, {int(self.claims.sum()):,} claims: {words}{numbers})"

    def _repr_html_(self) -> str:

        return display.beliefs_html(self)


def _refuse_strangers(table: Table, questions: pd.DataFrame) -> None:
    held = show_row(questions, 0) if len(questions) else "no question"
    table.refuse(
        "entity",
        np.ones(len(table), dtype=bool),
        "a question that the beliefs do not hold",
        f"entity and attribute of a question among the beliefs, such as {held}",
    )
