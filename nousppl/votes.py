"""The votes that a fit starts from where truths are not settled: sources that agree too often share one vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem, votes
from nousppl.encode import Encoded

Floats = NDArray[np.float64]

WEAK = 2.0
"""Questions that weigh as much as the agreement of the average pair, where the agreement of a pair is judged."""


def excess(problems: Sequence[Problem], encoded: Encoded) -> Floats | None:
    """(pairs,) agreement of each listed pair of sources beyond that of the average pair, as a share of what is left:
    0 for the average pair, near 1 for two that always agree.

    Args:
        problems: the compiled questions of a fit.
        encoded: the evidence; None is returned where no pair of its sources has a weight of its own.
    """
    if encoded.affinity is None or not len(encoded.affinity):
        return None
    pairs = len(encoded.affinity)
    same, apart = np.zeros(pairs), np.zeros(pairs)
    for problem in problems:
        data = problem.data
        link = data["link_pair"]
        if len(link):
            same += np.bincount(link[data["kin_link"] - 1], data["kin_share"], minlength=pairs)
            apart += np.bincount(link[data["apart_link"] - 1], data["apart_share"], minlength=pairs)
    met = same + apart
    usual = same.sum() / max(met.sum(), 1.0)
    return np.maximum(same - usual * met, 0.0) / ((1.0 - usual) * met + WEAK)


def share_votes(problems: Sequence[Problem], encoded: Encoded, close: Floats) -> list[Problem]:
    """The problems with votes in which sources that agree too often to have looked for themselves count for one.

    A majority of copies would else be the truth that a fit starts from, and it would stay there: that some sources are
    always right explains their agreement as well as that they copy. Only the start is concerned; how far they copy is
    learned.

    Args:
        problems: the compiled questions of a fit.
        encoded: the evidence.
        close: see `excess`.
    """
    return [_shared(problem, encoded, close) for problem in problems]


def _shared(problem: Problem, encoded: Encoded, close: Floats) -> Problem:
    data, slots = problem.data, problem.layout.slots
    if not len(data["link_pair"]):
        return problem
    weight = close[data["link_pair"][data["kin_link"] - 1]] * data["kin_share"]
    later = np.bincount(data["row_slot"][data["kin_row"]], weight, slots)
    others = later + np.bincount(data["kin_slot"], weight, slots)
    counted = data["row_weight"] / (1.0 + others[data["row_slot"]])
    shares = votes(data, counted, encoded.cells.other[problem.cells], problem.layout.questions)
    return replace(problem, data=data | {"cell_vote": shares})
