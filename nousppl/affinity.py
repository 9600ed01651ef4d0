"""Affinity: a learned weight for each pair of sources (or of levels of another column) that meet often enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.ragged import Ints

MET = 10
"""Pairs that meet in fewer questions have the weight of strangers."""
ORDERED = 0.5
"""Share of neighbouring claims that one must know the order of for the two directions of a pair to be told apart."""


@dataclass(frozen=True)
class Affinities:
    """The pairs that have a weight of their own.

    Attributes:
        column: what is compared: "source" or another column of the claims or the sources.
        labels: (L,) its levels.
        later: (P,) level of the claim that may repeat, index into ``labels``; pairs are sorted by ``later``, then
            ``earlier``.
        earlier: (P,) level of the claim that may be repeated. Where ``directed`` is False the larger index is ``later``
            and the pair stands for both directions.
        met: (P,) number of questions in which the two meet.
        directed: whether a pair has a weight for each direction.
    """

    column: str
    labels: tuple[Any, ...]
    later: Ints
    earlier: Ints
    met: Ints
    directed: bool

    def __len__(self) -> int:
        return len(self.later)

    def codes(self, frame: pd.DataFrame) -> Ints:
        """(claims,) level of each claim; -1 for levels that the fit did not know."""
        labels = pd.Index(np.array([*self.labels, None], object)[:-1])
        return np.asarray(labels.get_indexer(pd.Index(_column(frame, self.column).to_numpy(object))), np.int64)

    def link(self, later: Ints, earlier: Ints) -> Ints:
        """One plus the pair of each two levels; 0 where they have no weight of their own."""
        if not len(self):
            return np.zeros(len(later), np.int64)
        high, low = (later, earlier) if self.directed else (np.maximum(later, earlier), np.minimum(later, earlier))
        size = len(self.labels)
        keys, wanted = self.later * size + self.earlier, high * size + low
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = (keys[place] == wanted) & (low >= 0) & (high >= 0)
        return np.where(known, place + 1, 0)


def find_pairs(column: str, frame: pd.DataFrame, coded: Coded, questions: Ints | None, order: str) -> Affinities:
    """The pairs of levels that meet in at least `MET` questions.

    Args:
        column: what is compared.
        frame: covariates, a row a claim.
        coded: the claims.
        questions: those that count; None for all.
        order: see ``Origin.order``.

    Raises:
        ModelError: the column is missing, or blank in some claims.
    """
    code, labels = pd.factorize(_column(frame, column), sort=True)
    if (code < 0).any():
        raise ModelError(
            f"Origin(affinity={column!r}): the column is blank in {(code < 0).sum()} claims, "
            f"first in row {frame.iloc[int(np.argmax(code < 0))].to_dict()}; every claim needs a value"
        )
    question = coded.claim_question.astype(np.int64)
    if questions is not None:
        chosen = np.isin(question, questions)
        code, question = code[chosen], question[chosen]
    place = np.unique(question * len(labels) + code)
    ones = np.ones(len(place), np.int32)
    size = (len(coded.questions), len(labels))
    present = sparse.csr_array((ones, (place // len(labels), place % len(labels))), shape=size)
    often = np.flatnonzero(np.asarray(present.sum(0)).ravel() >= MET)
    some = present[:, often]
    together = sparse.tril(some.T @ some, k=-1).tocoo()
    enough = together.data >= MET
    later, earlier = often[together.row[enough]], often[together.col[enough]]
    met = together.data[enough].astype(np.int64)
    directed = order == "time" and _ordered(coded) > ORDERED
    if directed:
        later, earlier, met = np.r_[later, earlier], np.r_[earlier, later], np.r_[met, met]
    by = np.lexsort((earlier, later))
    names = tuple(_plain(label) for label in labels)
    return Affinities(column, names, later[by].astype(np.int64), earlier[by].astype(np.int64), met[by], directed)


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _column(frame: pd.DataFrame, column: str) -> pd.Series:
    if column not in frame:
        raise ModelError(f"Origin(affinity={column!r}): no such column; there are {list(frame.columns)}")
    return frame[column]


def _ordered(coded: Coded) -> float:
    """Share of neighbouring claims of a question of which the later one is known."""
    beside = coded.claim_question[1:] == coded.claim_question[:-1]
    time = coded.claim_time
    return float((time[1:] > time[:-1])[beside].mean()) if beside.any() else 0.0
