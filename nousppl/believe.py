"""The belief about one question in full: from a trust and the question's claims."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nousppl.asking import OneQuestion, parameter_draws
from nousppl.belief import Belief
from nousppl.compile import compile_problem
from nousppl.encode import Encoded
from nousppl.items_belief import ItemsBelief, ItemsPart
from nousppl.lineage import status_of, with_lineage
from nousppl.models.layout import Layout
from nousppl.models.shapes import AnyOf, Number, WhileTrue
from nousppl.number_belief import NumberBelief
from nousppl.number_believe import believe_number
from nousppl.periods import cells_of
from nousppl.periods_belief import state_belief
from nousppl.question import Question
from nousppl.sets import shares
from nousppl.unfold import Course, Unfolded, origins
from nousppl.unfold_time import UnfoldedInTime

if TYPE_CHECKING:
    from nousppl.trust import Trust

Floats = NDArray[np.float64]
AnyBelief = Belief | ItemsBelief | NumberBelief
"""A belief in the form that the shape of its question asks for."""

WORK = 50_000_000
"""Likelihoods (draws x nodes x orders x claims x answers) above which a belief averages over fewer draws."""
FEWEST_DRAWS = 20
ASKED_DRAWS = 200
"""Draws of the parameters that a belief averages over, unless it is told otherwise."""


def believe(trust: Trust, encoded: Encoded, question: Question, at: Floats | None = None) -> AnyBelief:
    """The belief about one question in full, in the form that its shape asks for."""
    shape = trust.model.shapes.get(question.attribute)
    if isinstance(shape, Number):
        return believe_number(trust, encoded, question, shape)
    if isinstance(shape, AnyOf) and encoded.cells.items is not None:
        return believe_items(trust, encoded, question, shape, at)
    belief = unfold(trust, encoded, question, at)
    states = encoded.cells.periods
    if isinstance(shape, WhileTrue) and states is not None:
        cells = cells_of(states, np.array([question.index]), np.array([encoded.latest]) if at is None else at)
        draws = trust.asked(len(belief.samples))["state_log_duration"]
        return state_belief(belief, states, cells, np.exp(draws[:, states.attribute[question.index]]))
    return belief


def believe_items(
    trust: Trust, encoded: Encoded, question: Question, shape: AnyOf, at: Floats | None = None
) -> ItemsBelief:
    """The belief about a set-valued question, which may be in parts."""
    items, parts = encoded.cells.items, encoded.parts.of(np.array([question.index])).tolist()
    assert items is not None
    if len(parts) == 1:
        beliefs = [unfold(trust, encoded, question, at)]
    else:
        seed = trust.model.order_seed
        problem = compile_problem(encoded, np.array([question.index]), seed, at)
        draws = trust.asked(affordable(problem.layout))
        asked = OneQuestion(trust.blueprint, encoded, draws, problem)
        beliefs = []
        for place, part in enumerate(parts):
            alone = compile_problem(encoded, np.array([part]), seed, at, part=True)
            unfolded = Unfolded(alone, partial(asked.part, place))
            parameters = partial(parameter_draws, trust.blueprint, encoded, draws, alone)
            beliefs.append(_belief(trust, encoded, question, part, unfolded, parameters))
    return ItemsBelief(
        tuple(
            ItemsPart(belief, items.groups[part], shares(items, part))
            for part, belief in zip(parts, beliefs, strict=True)
        ),
        shape,
    )


def unfold(trust: Trust, encoded: Encoded, question: Question, at: Floats | None = None) -> Belief:
    """Compute the belief about the cells of one question, at a time (1,) or at the latest."""
    problem = compile_problem(encoded, np.array([question.index]), trust.model.order_seed, at)
    asked = OneQuestion(trust.blueprint, encoded, trust.asked(affordable(problem.layout)), problem)
    changes = problem.settled is not None and not encoded.cells.shaped[question.index]
    unfolded = (UnfoldedInTime if changes else Unfolded)(problem, asked.parts)
    return _belief(trust, encoded, question, question.index, unfolded, lambda: asked.parameters)


def _belief(
    trust: Trust,
    encoded: Encoded,
    question: Question,
    index: int,
    unfolded: Unfolded,
    parameters: Callable[[], dict[str, Any]],
) -> Belief:
    """The belief about the cells of a question, or of a part of it, which has an index of its own."""
    problem, path = unfolded.problem, unfolded.path()
    start, stop = encoded.claim_offset[index : index + 2]
    used = encoded.used[start:stop]
    cells = slice(encoded.cells.offset[index], encoded.cells.offset[index + 1])
    other = bool(encoded.cells.other[cells][-1])

    def origins_of() -> NDArray[np.float64]:
        features = len(encoded.features)
        among = origins(encoded, problem, unfolded, parameters(), features, trust.blueprint.text_grid)
        return with_lineage(encoded, int(start), used, among)

    def fresh_of() -> NDArray[np.float64]:
        out = np.zeros(len(used))
        out[used] = unfolded.fresh()
        return out

    def facts_of() -> tuple[NDArray[np.int64], Floats, Floats]:
        if isinstance(unfolded, UnfoldedInTime):
            return unfolded.facts()
        return np.empty(0, np.int64), *np.empty((2, 0, problem.layout.cells))

    return Belief(
        question=question,
        answers=tuple(encoded.cells.value[cells]),
        open=other,
        others=int(encoded.cells.count[cells][-1]) if other else 0,
        samples=path.samples,
        path=_with_unused(used, path.before, path.after, path.final),
        log_odds=_with_unused(used, path.before_odds, path.after_odds, path.final_odds),
        before=_before(used, path) if isinstance(unfolded, UnfoldedInTime) else None,
        origins_of=origins_of,
        fresh_of=fresh_of,
        facts_of=facts_of,
        status=tuple(status_of(encoded, int(start), j) for j in range(int(stop - start))),
        said=_said(encoded, index, int(start), int(stop)),
    )


def _said(encoded: Encoded, question: int, start: int, stop: int) -> Floats | None:
    """(n, V) which set each claim of a set-valued question names; None for other questions."""
    items = encoded.cells.items
    if items is None or items.attribute[question] < 0:
        return None
    out = np.zeros((stop - start, items.cells(question)))
    named = items.cell_of(np.full(stop - start, question), items.named[start:stop])
    out[np.arange(stop - start), named] = 1.0
    return out


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
