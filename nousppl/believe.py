"""The belief about one question in full: from a trust and the question's claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nousppl.asking import OneQuestion
from nousppl.belief import Belief
from nousppl.compile import compile_problem
from nousppl.encode import Encoded
from nousppl.models.layout import Layout
from nousppl.question import Question
from nousppl.unfold import Course, Unfolded, origins
from nousppl.unfold_time import UnfoldedInTime

if TYPE_CHECKING:
    from nousppl.trust import Trust

Floats = NDArray[np.float64]

WORK = 50_000_000
"""Likelihoods (draws x nodes x orders x claims x answers) above which a belief averages over fewer draws."""
FEWEST_DRAWS = 20
ASKED_DRAWS = 200
"""Draws of the parameters that a belief averages over, unless it is told otherwise."""


def unfold(trust: Trust, encoded: Encoded, question: Question, at: Floats | None = None) -> Belief:
    """Compute the belief about one question in full, at a time (1,) or at the latest."""
    problem = compile_problem(encoded, np.array([question.index]), trust.model.order_seed, at)
    asked = OneQuestion(trust.blueprint, encoded, trust.asked(affordable(problem.layout)), problem)
    unfolded = (Unfolded if problem.settled is None else UnfoldedInTime)(problem, asked.parts)
    path = unfolded.path()
    start, stop = encoded.claim_offset[question.index : question.index + 2]
    used = encoded.used[start:stop]
    cells = slice(encoded.cells.offset[question.index], encoded.cells.offset[question.index + 1])
    other = bool(encoded.cells.other[cells][-1])

    def origins_of() -> NDArray[np.float64]:
        features = len(encoded.features)
        among = origins(encoded, problem, unfolded, asked.parameters, features, trust.blueprint.text_grid)
        return with_lineage(encoded, int(start), used, among)

    def fresh_of() -> NDArray[np.float64]:
        out = np.zeros(len(used))
        out[used] = unfolded.fresh()
        return out

    return Belief(
        question=question,
        answers=tuple(encoded.cells.value[cells]),
        open=other,
        others=int(encoded.cells.count[cells][-1]) if other else 0,
        samples=path.samples,
        path=_with_unused(used, path.before, path.after, path.final),
        log_odds=_with_unused(used, path.before_odds, path.after_odds, path.final_odds),
        before=None if problem.settled is None else _before(used, path),
        origins_of=origins_of,
        fresh_of=fresh_of,
        status=tuple(_status(encoded, int(start), j) for j in range(int(stop - start))),
    )


def _with_unused(used: NDArray[np.bool_], before: Floats, after: Floats, final: Floats) -> Floats:
    """(n + 2, V) rows before any claim, after each and at the end; a claim that adds nothing has the row of the one
    before it."""
    rows = np.concatenate([before[:1] if len(before) else final[None], after])
    return np.concatenate([rows[np.concatenate([[0], np.cumsum(used)])], final[None]])


def _before(used: NDArray[np.bool_], path: Course) -> tuple[Floats, Floats]:
    """(n, V) belief just before each claim and its log-odds; for one that adds nothing, the row of the one before."""
    out = []
    for before, after, final in (
        (path.before, path.after, path.final),
        (path.before_odds, path.after_odds, path.final_odds),
    ):
        rows = _with_unused(used, before, after, final)[:-2].copy()
        rows[used] = before
        out.append(rows)
    return out[0], out[1]


def affordable(layout: Layout) -> int:
    """Number of draws that the belief about a question averages over: fewer, but at least 20, for very long ones."""
    one = layout.slots * layout.cells * max(layout.nodes, 1)
    return int(np.clip(WORK // max(one, 1), FEWEST_DRAWS, ASKED_DRAWS))


def _status(encoded: Encoded, start: int, j: int) -> str:
    coded = encoded.coded
    if coded.claim_origin[start + j] >= 0:
        return f"repeats {coded.claim_id[coded.claim_origin[start + j]]} (given)"
    notes = ["own note"] if coded.claim_derived[start + j] else []
    if coded.claim_denied[start + j] >= 0:
        notes.append(f"denies {coded.answer_value[coded.claim_denied[start + j]]}")
    if coded.claim_lasting[start + j] < 1.0:
        notes.append(f"lasting {coded.claim_lasting[start + j]:g}")
    return "; ".join(notes)


def with_lineage(
    encoded: Encoded, start: int, used: NDArray[np.bool_], among: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Origins among all claims of a question, those whose origin is given included."""
    n = len(used)
    out = np.zeros((n, n + 1))
    kept = np.flatnonzero(used)
    out[np.ix_(kept, np.concatenate([[0], kept + 1]))] = among
    given = np.flatnonzero(~used)
    out[given, encoded.coded.claim_origin[start + given] - start + 1] = 1.0
    return out
