"""Other packages' methods as functions ``(evidence, seed) -> Beliefs``, to be compared with a trust on equal terms.

All are from crowd-kit (Ustalov et al. 2024), which the extra ``peers`` installs. Each attribute is aggregated on its
own, over the values that claims name in it. In an open domain "other" gets what the method gives to values that the
question itself does not name; in a closed list, answers that no claim names anywhere get nothing. Probabilities are the
methods' own, some of them 0 or 1: a score clips them.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.ballots import Ballots
from nousppl.beliefs import Beliefs
from nousppl.errors import ModelError
from nousppl.evidence import Evidence

Answers = Mapping[Any, Any] | None


@dataclass(frozen=True)
class Peer:
    """A method of another package; call it as ``peer(evidence, seed)``."""

    name: str
    """Name of the class in crowd-kit."""
    uses_settled: bool = False
    """Whether it can learn from settled facts."""
    probabilities: bool = True
    """False where it names one label a question: its accuracy can be compared, its log loss not."""
    seeded: bool = False
    """Whether it draws random numbers of its own, from the seed."""
    votes: bool = False
    """Whether its probabilities are vote shares weighted by the skills that it finds."""

    def __call__(
        self, evidence: Evidence, seed: int = 0, *, answers: Answers = None, true_labels: bool = True, **options: Any
    ) -> Beliefs:
        """The beliefs about all questions of an evidence.

        Args:
            evidence: claims, soft ones by their value of most weight. A question whose truth is settled has
                probability 1 on it.
            seed: of what the method draws at random, and of ties between labels.
            answers: attribute -> number of plausible answers, or the closed list, as in :class:`nousppl.TrustModel`.
            true_labels: hand the settled facts to the method, where it can learn from them.
            **options: of the class in crowd-kit, for example ``n_iter``.

        Raises:
            ModelError: crowd-kit is not installed, or the evidence does not fit `answers`.
        """
        ballots = Ballots.of(evidence, answers)
        learns = self.uses_settled and true_labels and bool((ballots.settled >= 0).any())
        table, truth = _tables(ballots)
        score = np.zeros(len(ballots.question))
        with _apart(seed):
            method = self._method(seed, options)
            for attribute in table["attribute"].unique():
                part = table[table["attribute"] == attribute]
                usable = truth.index.isin(part["task"].unique()) & truth.isin(part["label"].unique())
                known = truth[usable] if learns else None
                found = self._probabilities(method, part[["task", "worker", "label"]], known)
                _enter(score, ballots, found, int(attribute))
        return ballots.beliefs(score, self.name, learned=learns, probabilities=self.probabilities)

    def _method(self, seed: int, options: Mapping[str, Any]) -> Any:
        try:
            from crowdkit import aggregation
        except ImportError as error:
            raise ModelError(
                f"{self.name} is a method of crowd-kit, which is not installed: pip install 'nousppl[peers]'"
            ) from error
        own = {"random_state": seed} if self.seeded else {}
        return getattr(aggregation, self.name)(**(own | dict(options)))

    def _probabilities(self, method: Any, table: pd.DataFrame, truth: pd.Series | None) -> pd.DataFrame:
        more = {} if truth is None or not len(truth) else {"true_labels": truth}
        if self.votes:
            # Its own predict_proba does exactly this, after a check that scikit-learn 1.7 and later refuse.
            from crowdkit.aggregation import MajorityVote

            return MajorityVote().fit(table, skills=method.fit(table).skills_).probas_
        if self.probabilities:
            return method.fit_predict_proba(table, **more)
        labels = method.fit_predict(table)
        return pd.get_dummies(labels.astype(np.int64), dtype=np.float64)


def _tables(ballots: Ballots) -> tuple[pd.DataFrame, pd.Series]:
    """Claims as attribute, task, worker, label, the label a code of the value; and the true labels of settled tasks."""
    coded = ballots.evidence.coded
    order = np.lexsort((-ballots.weight, ballots.claim))
    first = order[np.r_[True, np.diff(ballots.claim[order]) != 0]] if len(order) else order
    task = ballots.question[ballots.cell[first]]
    label = labels_of(ballots)
    table = pd.DataFrame(
        {
            "attribute": coded.question_attribute[task],
            "task": task,
            "worker": coded.claim_source[ballots.claim[first]],
            "label": label[ballots.cell[first]],
        }
    )
    known = np.flatnonzero(ballots.settled >= 0)
    return table, pd.Series(label[ballots.settled[known]], index=pd.Index(known, name="task"), name="agg_label")


def labels_of(ballots: Ballots) -> NDArray[np.int64]:
    """(C,) code of the value of each cell, the same in all questions; -1 for the cells of unnamed answers."""
    label = pd.factorize(pd.Series(ballots.cells.value, dtype=object))[0].astype(np.int64)
    return np.where(ballots.cells.other, -1, label)


def _enter(score: NDArray[np.float64], ballots: Ballots, found: pd.DataFrame, attribute: int) -> None:
    """Write a table of probabilities, task x label, into the cells of the questions of one attribute."""
    label, question = labels_of(ballots), ballots.question
    mine = ballots.evidence.coded.question_attribute[question] == attribute
    row = pd.Index(found.index).get_indexer(pd.Index(question))
    column = pd.Index(found.columns).get_indexer(pd.Index(label))
    values = np.nan_to_num(found.to_numpy(np.float64))
    named = np.flatnonzero(mine & (row >= 0) & (column >= 0))
    score[named] = values[row[named], column[named]]
    unnamed = np.flatnonzero(mine & (row >= 0) & ballots.cells.other)
    held = np.bincount(question[named], weights=score[named], minlength=len(ballots.settled))
    score[unnamed] = np.maximum(values.sum(axis=1)[row[unnamed]] - held[question[unnamed]], 0.0)


@contextmanager
def _apart(seed: int) -> Iterator[None]:
    """Give numpy's global random numbers, which crowd-kit breaks ties with, this seed, and put them back after.

    While it is loaded it draws from those of the standard library, which are put back too. How crowd-kit uses
    pandas is its own concern: warnings of what pandas will drop are not shown.
    """
    state, standard = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
        random.setstate(standard)


dawid_skene = Peer("DawidSkene", uses_settled=True)
"""A confusion matrix a source, by EM (Dawid & Skene 1979)."""
one_coin = Peer("OneCoinDawidSkene")
"""One reliability a source, by EM."""
glad = Peer("GLAD")
"""Reliability of sources and difficulty of questions (Whitehill et al. 2009)."""
mace = Peer("MACE", seeded=True)
"""Sources that answer honestly or spam (Hovy et al. 2013)."""
mmsr = Peer("MMSR", probabilities=False, seeded=True)
"""Reliabilities by matrix completion (Ma & Olshevsky 2020)."""
wawa = Peer("Wawa", votes=True)
"""Vote weighted by agreement with the majority."""
zero_based_skill = Peer("ZeroBasedSkill", votes=True)
"""Vote weighted by a skill found by gradient steps."""
