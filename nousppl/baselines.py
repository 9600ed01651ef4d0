"""Rules that a trust has to beat: functions ``(evidence, seed) -> Beliefs`` that learn from its settled facts only.

>>> import nousppl as nous
>>> world = nous.datasets.world(50, seed=1)
>>> score = nous.baselines.majority(nous.Evidence(world.claims)).score(world.settled)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.ballots import Ballots
from nousppl.beliefs import Beliefs
from nousppl.evidence import Evidence

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SMOOTHING = 0.5
"""Votes that every cell has before the first claim (the estimator of Krichevsky & Trofimov 1981)."""
PULL = 5.0
"""Claims on settled questions that weigh as much as the level that a source's accuracy is shrunk towards."""
AHEAD = 1e-9
"""How far the winner of a tie is put ahead."""


def majority(evidence: Evidence, seed: int = 0, *, answers: Mapping[Any, Any] | None = None) -> Beliefs:
    """Vote shares: every claim is a vote, whoever makes it.

    The probability of a cell is (votes + 1/2) / (all votes + cells / 2), the estimator of Krichevsky & Trofimov (1981);
    in an open domain the answers that nobody named are one cell more. Ties are broken by a hash of seed, question and
    answer.

    Args:
        evidence: claims. A question whose truth is settled has probability 1 on it; nothing is learned from that.
        seed: of the ties.
        answers: attribute -> number of plausible answers, or the closed list, as in :class:`nousppl.TrustModel`.

    Raises:
        ModelError: the evidence does not fit `answers`, or its settled facts contradict each other.
    """
    ballots = Ballots.of(evidence, answers)
    ahead = np.where(ballots.cells.other, 0.0, AHEAD * ballots.chance(seed))
    return ballots.beliefs(ballots.votes + SMOOTHING + ahead, "majority", learned=False)


def best_source(evidence: Evidence, seed: int = 0, *, answers: Mapping[Any, Any] | None = None) -> Beliefs:
    """Follow the present source that was most accurate on the settled facts about the same attribute.

    Accuracies are shrunk twice, each time as by 5 further claims: that of a source on an attribute towards the
    source's on all attributes, and that towards the accuracy of all claims, (right + 1) / (claims + 2). The answer
    followed has the shrunk accuracy as its probability, the rest is spread evenly over the other cells of the question
    (in an open domain the answers that nobody named are one cell). In an open domain the answer followed has at least
    an even share, so that it stays the top answer; in a closed list a source that is mostly wrong speaks against what
    it says. Among equals the latest claim is followed, then one by a hash of seed and claim.

    Args:
        evidence: claims and settled facts. Where nothing is settled, all sources are equal. A question whose truth is
            settled has probability 1 on it.
        seed: of the ties.
        answers: attribute -> number of plausible answers, or the closed list, as in :class:`nousppl.TrustModel`.

    Raises:
        ModelError: the evidence does not fit `answers`, or its settled facts contradict each other.
    """
    ballots = Ballots.of(evidence, answers)
    followed, probability = _followed(ballots, _accuracy(ballots), seed)
    question = ballots.question
    cells = np.bincount(question, weights=ballots.allowed, minlength=len(ballots.settled))
    even = 1.0 / np.maximum(cells, 1)
    open_domain = ~ballots.cells.closed
    probability = np.where(open_domain, np.maximum(probability, even), probability)
    rest = np.where(cells > 1, (1 - probability) / np.maximum(cells - 1, 1), 0.0)
    score = rest[question]
    some = followed >= 0
    score[followed[some]] = probability[some] + AHEAD
    score[~some[question]] = 0.0
    return ballots.beliefs(score, "best source", learned=True)


def _accuracy(ballots: Ballots) -> Floats:
    """(N,) shrunk accuracy of the source of each row on the attribute of its question."""
    coded = ballots.evidence.coded
    question = ballots.question[ballots.cell]
    source = coded.claim_source[ballots.claim].astype(np.int64)
    both = source * len(coded.attributes) + coded.question_attribute[question]
    known = ballots.settled[question] >= 0
    weight = ballots.weight[known]
    right = weight * (ballots.cell == ballots.settled[question])[known]
    level = np.array([(right.sum() + 1) / (weight.sum() + 2)])
    sources = len(coded.sources)
    level = _shrunk(right, weight, source[known], np.zeros(sources, np.int64), level)
    level = _shrunk(right, weight, both[known], np.arange(sources).repeat(len(coded.attributes)), level)
    return np.asarray(level[both])


def _shrunk(right: Floats, weight: Floats, group: Ints, parent: Ints, level: Floats) -> Floats:
    """Accuracy of each group, shrunk towards that of its parent."""
    size = len(parent)
    total = np.bincount(group, weights=weight, minlength=size)
    return np.asarray(
        (np.bincount(group, weights=right, minlength=size) + PULL * level[parent]) / (total + PULL), np.float64
    )


def _followed(ballots: Ballots, accuracy: Floats, seed: int) -> tuple[Ints, Floats]:
    """(Q,) cell that is followed, -1 where there is no claim, and the accuracy of its source."""
    coded = ballots.evidence.coded
    accuracy = np.minimum(accuracy, coded.claim_ceiling[ballots.claim])
    usable = np.flatnonzero(ballots.allowed[ballots.cell])
    claim, cell = ballots.claim[usable], ballots.cell[usable]
    question = ballots.question[cell]
    time = coded.claim_time[claim]
    order = np.lexsort(
        (
            ballots.luck(seed)[usable],
            -np.where(np.isnan(time), -np.inf, time),
            -(accuracy * ballots.weight)[usable],
            question,
        )
    )
    first = order[np.r_[True, np.diff(question[order]) != 0]] if len(order) else order
    followed = np.full(len(ballots.settled), -1, np.int64)
    probability = np.zeros(len(ballots.settled))
    followed[question[first]] = cell[first]
    probability[question[first]] = accuracy[usable][first]
    return followed, probability
