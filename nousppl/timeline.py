"""The history of one question's answers: which was the truth from when until when, seen in the light of all claims."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._times import show_times
from nousppl.asking import OneQuestion
from nousppl.believe import affordable
from nousppl.compile import Problem, compile_problem
from nousppl.display import title
from nousppl.errors import QuestionError
from nousppl.question import Question
from nousppl.unfold import Logs, log_sum_exp
from nousppl.unfold_time import Event, UnfoldedInTime, law_of, moved, ruled_out

if TYPE_CHECKING:
    from nousppl.trust import Trust

Floats = NDArray[np.float64]

WITHIN, ROUNDS = 16, 3
"""The time between two events in which the top answer changes is cut into so many parts, so many times over."""


@dataclass(frozen=True, eq=False, repr=False)
class Timeline:
    """What was believed true of one question at each time, given everything that is known now."""

    question: Question
    probabilities: pd.DataFrame
    """Probability of each answer (columns, "other" last where the domain is open) at each time (index), by the
    smoother: given the claims and settled facts before that time and after it."""
    periods: pd.DataFrame
    """The answers in the order in which they were the most probable ones: ``answer``, ``since`` (when it became that),
    ``until`` (when another one did; missing for the last), ``probability`` (the highest it had in between) and
    ``claims`` (that name it with a time in the period). An answer that was replaced stays, with its dates."""

    def __repr__(self) -> str:
        return f"Timeline({title(self.question)})\n{self.periods.to_string(index=False)}"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(title(self.question))}</p>{self.periods.to_html(index=False, border=0)}"


def timeline(trust: Trust, question: Question, times: Any = None) -> Timeline:
    """See `nousppl.Trust.timeline`."""
    evidence = question.evidence
    encoded = trust.encoded(evidence)
    problem = compile_problem(encoded, np.array([question.index]), trust.model.order_seed, None)
    if problem.settled is None or encoded.cells.shaped[question.index]:
        raise QuestionError(
            "timeline: truths do not change in this model, or not those of this shape: one answer holds at all times. "
            "Allowed: one-of-several answers in a model with change=..., such as '1 + (1|attribute)'."
        )
    asked = OneQuestion(trust.blueprint, encoded, trust.asked(affordable(problem.layout)), problem)
    unfolded = UnfoldedInTime(problem, asked.parts)
    given = _given(question, times)
    at = np.unique([event.time for event in unfolded.events]) if given is None else given
    found = smoothed(unfolded, at)
    for _ in range(ROUNDS if given is None else 0):
        top = found.argmax(1)
        before = np.flatnonzero(top[1:] != top[:-1])
        if not len(before):
            break
        share = np.arange(1, WITHIN) / WITHIN
        between = (at[before, None] + share * (at[before + 1] - at[before])[:, None]).ravel()
        at, order = np.unique(np.concatenate([at, between]), return_index=True)
        found = np.concatenate([found, smoothed(unfolded, between)])[order]
    cells = slice(*encoded.cells.offset[question.index : question.index + 2])
    answers = pd.Index(encoded.cells.value[cells], dtype=object, name="answer")
    shown = pd.Index(show_times(at, evidence.time_kind), name="time")
    kept = np.isin(at, [event.time for event in unfolded.events]) if given is None else np.ones(len(at), bool)
    frame = pd.DataFrame(found[kept], index=shown[kept], columns=answers)
    return Timeline(question, frame, _periods(question, at, found, answers, shown))


def _given(question: Question, times: Any) -> Floats | None:
    if times is None:
        return None
    each = [times] if isinstance(times, str) or not isinstance(times, Iterable) else [*times]
    if not each:
        raise QuestionError("timeline: no times. Allowed: one time or more, or None for those of the events.")
    return np.unique([question.evidence.as_time(time) for time in each])


def _periods(question: Question, at: Floats, found: Floats, answers: pd.Index, shown: pd.Index) -> pd.DataFrame:
    """A row for each run of times with one top answer."""
    top = found.argmax(1)
    start = np.flatnonzero(np.r_[True, top[1:] != top[:-1]])
    number = np.cumsum(np.r_[True, top[1:] != top[:-1]]) - 1
    best = np.zeros(len(start))
    np.maximum.at(best, number, found[np.arange(len(at)), top])
    since = pd.Series(shown[start]).reset_index(drop=True)
    periods = pd.DataFrame({"answer": answers[top[start]], "since": since, "until": since.shift(-1)})
    periods["probability"] = best
    periods["claims"] = _naming(question, at[start], periods["answer"])
    return periods


def _naming(question: Question, since: Floats, answers: pd.Series[Any]) -> NDArray[np.int64]:
    """(periods,) number of claims with a time in each period that name its answer."""
    coded = question.evidence.coded
    first, last = coded.claim_start[question.index : question.index + 2]
    rows = slice(coded.row_start[first], coded.row_start[last])
    period = np.searchsorted(since, coded.claim_time[coded.row_claim[rows]], side="right") - 1
    same = coded.answer_value[coded.row_answer[rows]] == answers.to_numpy()[np.maximum(period, 0)]
    return np.bincount(period[same & (period >= 0)], minlength=len(since))


def smoothed(unfolded: UnfoldedInTime, times: Floats) -> Floats:
    """(times, cells) probability of each answer at each of some times, ascending, given everything."""
    told = [event for event in unfolded.events if not event.asked]
    # Sorting is stable: what happens at a time comes before that time is asked about.
    events = sorted([*told, *(_asked(unfolded.problem, time) for time in times.tolist())], key=lambda event: event.time)
    total, draws = np.zeros((len(times), unfolded.problem.layout.cells)), 0
    for part in unfolded.parts():
        logs = [_at_times(unfolded, events, one) for one in part]
        joint = reduce(np.logaddexp, logs)
        total += np.exp(joint - log_sum_exp(joint, axis=1, keepdims=True)).sum(-1)
        draws += joint.shape[-1]
    return total / draws


def _asked(problem: Problem, time: float) -> Event:
    """A moment asked about: what is rejected by then is out."""
    known = problem.settled
    assert known is not None
    closed = np.zeros(problem.layout.cells, bool)
    closed[known.cell[known.rejected & (known.time <= time)]] = True
    return Event(time, None, closed, True, None, closed)


def _at_times(unfolded: UnfoldedInTime, events: list[Event], logs: Logs) -> Floats:
    """(times, cells, draws) log joint of the truth at each time asked about and everything said and settled, orders and
    nodes averaged."""
    claim_log, law = unfolded._claim_log(logs), law_of(logs)
    weight = logs.node_log.T[:, None, None]
    start = np.broadcast_to(law, (*claim_log.shape[:2], *law.shape))
    forward, joint, last = [], start, events[0].time
    for event in events:
        joint, last = moved(joint, law, logs, event.time - last), event.time
        if event.asked:
            # To ask is no evidence: what is out at that time is out in the answer only.
            forward.append(ruled_out(joint, event.closed))
            continue
        joint = ruled_out(joint, event.closed)
        if event.claim is not None:
            joint = joint + claim_log[:, :, event.claim]
    backward, joint, last = [], start, events[-1].time
    for event in reversed(events):
        joint, last = moved(joint, law, logs, last - event.time), event.time
        if event.asked:
            # The chain looks the same backwards: this is a joint with the law, which is taken off.
            backward.append(joint - law)
            continue
        if event.claim is not None:
            joint = joint + claim_log[:, :, event.claim]
        joint = ruled_out(joint, event.closed)
    pairs = zip(forward, reversed(backward), strict=True)
    return np.stack([log_sum_exp(ahead + back + weight, axis=(0, 1)) for ahead, back in pairs])
