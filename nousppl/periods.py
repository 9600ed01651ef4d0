"""States that are true for a while (``WhileTrue``) as arrays: candidates for the end of a state, and cells of them.

On the names: an *end* is when the state ends, a *component* a candidate for it (0: never on; then the ends that claims
state; last an end that nobody stated), a *cell* a component, or one interval of it between two times of interest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.parts import Parts
from nousppl.ragged import Floats, Ints, offsets, ranges
from nousppl.statements import as_states, distinct_ends, read_statements

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Periods:
    """States of an evidence; those of its questions that have another shape have no component, time or fact."""

    attributes: tuple[Any, ...]
    """Attributes of this shape, the axis of their parameters."""
    attribute: Ints
    """(Q,) place among `attributes`; -1 for questions of another shape."""
    says: Bools
    """(J,) whether each claim says that the state is on."""
    stated: Ints
    """(J,) component whose end it states; 0 for none."""
    heard: Floats
    """(Q,) number of different ends that claims state."""
    lead: Floats
    """(Q,) sum of the times from the first time to these ends."""
    start: Floats
    """(Q,) time of the first claim or settled fact: the state is on from then, or never."""
    ends: Floats
    """(Q,) K, number of plausible ends."""
    component_offset: Ints
    """(Q + 1,)"""
    end: Floats
    """(components,) stated end; NaN where none is."""
    sd: Floats
    """(components,) its standard deviation, 0 where it is known; NaN where no end is stated."""
    time_offset: Ints
    """(Q + 1,)"""
    time: Floats
    """Different times of claims and settled facts after the first, sorted by question."""
    fact_offset: Ints
    """(Q + 1,)"""
    fact_time: Floats
    fact_on: Bools
    """Settled facts: whether the state is on at that time."""

    @property
    def settled(self) -> Bools:
        """(Q,) whether anything is settled."""
        return (self.attribute >= 0) & (np.diff(self.fact_offset) > 0)

    @property
    def last(self) -> Ints:
        """(Q,) place of the component whose end nobody stated."""
        return np.diff(self.component_offset) - 1

    def variant(self) -> Ints:
        """(J,) tells claims apart that state different ends."""
        return self.stated

    def sizes(self) -> Ints:
        """(Q,) number of cells; whatever time is asked about."""
        return np.bincount(self._question(), weights=self._cells(), minlength=len(self.attribute)).astype(np.int64)

    def labels(self) -> NDArray[np.object_]:
        """What each cell is, in words."""
        place = ranges(np.zeros(len(self.attribute), np.int64), np.diff(self.component_offset))
        words = ["no stated end"] * len(place)
        for i in np.flatnonzero(place == 0):
            words[i] = "never"
        for i in np.flatnonzero(~np.isnan(self.end)):
            words[i] = f"until {self.end[i]:g}" + (f" +- {self.sd[i]:g}" if self.sd[i] > 0.0 else "")
        return np.repeat(np.array([*words, None], object)[:-1], self._cells())

    def _question(self) -> Ints:
        return np.repeat(np.arange(len(self.attribute)), np.diff(self.component_offset))

    def _cells(self) -> Ints:
        """(components,) number of cells of each: intervals of what is no point."""
        question = self._question()
        place = np.arange(len(question)) - self.component_offset[question]
        wide = (place == self.last[question]) | (self.sd > 0.0)
        return np.where(wide, np.diff(self.time_offset)[question] + 2, 1)


class PeriodCells(NamedTuple):
    """Cells of some questions, end to end."""

    question: Ints
    """Index in the evidence."""
    component: Ints
    """Place among the components of the question."""
    end: Floats
    """Of the component; NaN where none is stated."""
    sd: Floats
    low: Floats
    """The end lies above this time (for a point: at it), so the state is on at all times up to it; minus infinity for a
    state that is never on."""
    high: Floats
    """And not above this one."""
    asked: Floats
    """The time asked about, not before the first."""

    @property
    def on(self) -> Bools:
        """Whether the state is on at the time asked about."""
        return self.asked <= self.low


def find_periods(
    evidence: Evidence | Parts,
    attributes: Iterable[Any],
    closed: Mapping[Any, tuple[Any, ...]],
    size: Mapping[Any, int],
) -> Periods | None:
    """States of the attributes that are true for a while; None where there are none.

    Args:
        evidence: claims and settled facts.
        attributes: those of this shape.
        closed: attributes with a closed list of answers, which none of these may have.
        size: attribute -> number of plausible ends.

    Raises:
        ModelError: what `read_statements` refuses, a closed list, fewer ends than claims state, settled
            facts that contradict each other.
    """
    names = tuple(attributes)
    if not names:
        return None
    for name in names:
        if name in closed:
            raise ModelError(
                f"answers[{name!r}] = {list(closed[name])!r}: what is true for a while has no list of answers; give "
                "the number of plausible ends, or leave it out"
            )
    coded = evidence.coded
    said = read_statements(evidence, names)
    found = distinct_ends(coded, said)
    question = found["question"].to_numpy(np.int64)
    count = np.bincount(question, minlength=len(coded.questions))
    given = np.array([*(float(size.get(name, 2)) for name in names), 0.0])[said.attribute]
    _refuse_few(coded, count, given, said.attribute)
    mine = said.attribute >= 0
    component = offsets(np.where(mine, count + 2, 0))
    end, sd = np.full(int(component[-1]), np.nan), np.full(int(component[-1]), np.nan)
    place = component[question] + 1 + np.arange(len(question)) - offsets(count)[question]
    end[place], sd[place] = found["until"], found["sd"]
    keys = ["question", "until", "sd"]
    claims = pd.DataFrame({"question": coded.claim_question.astype(np.int64), "until": said.until, "sd": said.sd})
    stated = claims.merge(found.assign(place=place - component[question]), on=keys, how="left")["place"]
    fact_question, fact_time, fact_on = _facts(coded, mine)
    start, time_offset, time = _times(coded, mine, fact_question, fact_time)
    of_claim = np.where(np.isnan(said.until), 0, stated.fillna(0)).astype(np.int64)
    leads = found["until"].to_numpy(np.float64) - start[question]
    return Periods(
        attributes=names,
        attribute=said.attribute,
        says=said.says,
        stated=of_claim,
        heard=count.astype(np.float64),
        lead=np.bincount(question, leads, minlength=len(count)).astype(np.float64),
        start=start,
        ends=given,
        component_offset=component,
        end=end,
        sd=sd,
        time_offset=time_offset,
        time=time,
        fact_offset=offsets(np.bincount(fact_question, minlength=len(coded.questions))),
        fact_time=fact_time,
        fact_on=fact_on,
    )


def _refuse_few(coded: Coded, count: Ints, given: Floats, attribute: Ints) -> None:
    few = np.flatnonzero((attribute >= 0) & (given < count))
    if len(few):
        row = coded.questions.iloc[few[0]]
        raise ModelError(
            f"answers[{row['attribute']!r}] = {int(given[few[0]])}: claims on {len(few)} questions state more ends, "
            f"first entity {row['entity']!r} with {count[few[0]]}; the number of plausible ends is at least that of "
            "the stated ones"
        )


def _facts(coded: Coded, mine: Bools) -> tuple[Ints, Floats, Bools]:
    """Question, time and state of the settled facts, by question and time; a rejection settles the other state."""
    kept = np.flatnonzero(mine[coded.settled_question])
    question, time = coded.settled_question[kept].astype(np.int64), coded.settled_time[kept]
    on = as_states(coded.answer_value[coded.settled_answer[kept]]) != coded.settled_rejected[kept]
    order = np.lexsort((~on, time, question))
    question, time, on = question[order], time[order], on[order]
    back = (question[1:] == question[:-1]) & on[1:] & ~on[:-1]
    back |= (question[1:] == question[:-1]) & (time[1:] == time[:-1]) & (on[1:] != on[:-1])
    if back.any():
        row = coded.questions.iloc[question[1:][back][0]]
        raise ModelError(
            f"settled: entity {row['entity']!r}, attribute {row['attribute']!r} is settled not to be so and, at the "
            "same time or later, to be so; what is true for a while does not come back: a second time is another "
            "entity or attribute"
        )
    return question, time, on


def _times(coded: Coded, mine: Bools, fact_question: Ints, fact_time: Floats) -> tuple[Floats, Ints, Floats]:
    """(Q,) first time of each question, and the different later ones."""
    chosen = mine[coded.claim_question]
    question = np.concatenate([coded.claim_question[chosen].astype(np.int64), fact_question])
    time = np.concatenate([coded.claim_time[chosen], fact_time])
    both = np.unique(np.stack([question.astype(np.float64), time]), axis=1)
    question, time = both[0].astype(np.int64), both[1]
    first = np.ones(len(question), bool)
    first[1:] = question[1:] != question[:-1]
    start = np.zeros(len(mine))
    start[question[first]] = time[first]
    return start, offsets(np.bincount(question[~first], minlength=len(mine))), time[~first]


def cells_of(periods: Periods, questions: Ints, at: Floats) -> PeriodCells:
    """Cells of some questions when asked about some times; others than states have none.

    Args:
        periods: of the evidence.
        questions: indices of questions.
        at: (questions,) times asked about.
    """
    later = np.diff(periods.time_offset)[questions]
    asked = np.maximum(at, periods.start[questions])
    edge = offsets(later + 2)
    edges = np.empty(int(edge[-1]))
    edges[edge[:-1]], edges[edge[1:] - 1] = periods.start[questions], asked
    edges[ranges(edge[:-1] + 1, later)] = periods.time[ranges(periods.time_offset[:-1][questions], later)]
    edges = edges[np.lexsort((edges, np.repeat(np.arange(len(questions)), later + 2)))]
    components = np.diff(periods.component_offset)[questions]
    whole = ranges(periods.component_offset[:-1][questions], components)
    cells = periods._cells()[whole]
    component, k = np.repeat(np.arange(len(whole)), cells), ranges(np.zeros(len(whole), np.int64), cells)
    local = np.repeat(np.arange(len(questions)), components)[component]
    place = ranges(np.zeros(len(questions), np.int64), components)[component]
    end, sd = periods.end[whole][component], periods.sd[whole][component]
    point = (place == 0) | (sd == 0.0)
    fixed = np.where(place == 0, -np.inf, end)
    low = np.where(point, fixed, edges[edge[local] + k])
    following = np.append(edges, np.inf)[np.minimum(edge[local] + k + 1, len(edges))]
    high = np.where(point, fixed, np.where(k + 1 < later[local] + 2, following, np.inf))
    return PeriodCells(questions[local], place, end, sd, low, high, asked[local])


def possible(periods: Periods, cells: PeriodCells) -> Floats:
    """0 for the cells that agree with what is settled, else minus infinity."""
    count = np.diff(periods.fact_offset)[cells.question]
    cell = np.repeat(np.arange(len(count)), count)
    fact = ranges(periods.fact_offset[:-1][cells.question], count)
    wrong = (periods.fact_time[fact] <= cells.low[cell]) != periods.fact_on[fact]
    out = np.zeros(len(count))
    out[cell[wrong]] = -np.inf
    return out
