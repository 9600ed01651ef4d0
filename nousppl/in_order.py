"""Forecasts in the order of time: fit on what was known, answer what gets settled next, fit again (Dawid 1984)."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pandas as pd

from nousppl._times import show_times
from nousppl.beliefs import Beliefs
from nousppl.errors import EvidenceError, ModelError
from nousppl.evidence import Evidence
from nousppl.folds import Floats, Ints, settled_questions, settling_times, span, windows
from nousppl.held_out import KEYS, CrossValidation, in_order_of, join, result
from nousppl.inference.options import NUTS, SVI
from nousppl.model import TrustModel
from nousppl.tables import shorten
from nousppl.validation import Contestant, Forecaster, row_of, show, truths


def prequential(
    model: TrustModel | Forecaster,
    evidence: Evidence,
    start: Any,
    every: Any,
    by: str = "time",
    method: str | SVI | NUTS = "svi",
    seed: int = 0,
    learn_from: str | None = None,
    progress: bool = False,
    backend: str = "numpyro",
) -> CrossValidation:
    """Answer every question as of just before it was settled, by a trust that is fitted anew from time to time.

    The trust of a window is fitted on claims and settled facts known strictly before the window begins. A question that
    gets settled in the window is asked with the claims that were known when it was settled (one with the same time as
    the settling counts as made before it; date it later if it was not) and with rejections known before. What is true
    for a while is asked about the time of the settled fact, and where that is settled at several times about the first
    that became known.

    Args:
        model: a ``TrustModel``, or a function of (evidence, seed) as in :func:`cross_validate`; it is handed what was
            known before the window, and the questions to be answered with their claims.
        evidence: claims and settled facts that have times: dates, or numbers where only their order is known. What was
            known when follows ``known_at``, which is the time where it is not given.
        start: when the first window begins (date, timestamp, ISO text or number).
        every: how often the trust is fitted anew: a whole number of settled truths, or a length of time ("7D" or a
            timedelta between dates; a float between numbers).
        by: "time" is the only order there is.
        method: as in ``TrustModel.fit``, and so are ``seed`` and ``learn_from``.
        seed: of everything random in the fits.
        learn_from: "settled" or "all".
        progress: True writes a line a window to stderr.
        backend: as in ``TrustModel.fit``.

    Returns:
        A :class:`CrossValidation` in the order of settling; its folds are the windows.

    Raises:
        EvidenceError: times are missing, or nothing is settled from ``start`` on.
        ModelError: a model of truths that change (``change=...``): of such a question every settling is a truth of its
            own, and it would be asked about the first alone.
    """
    if isinstance(model, TrustModel) and model.change is not None:
        raise ModelError(
            "prequential: a truth that changes (change=...) is settled again and again, and a question is asked once, "
            "when it is first settled: allowed are models with change=None; cross_validate takes those that change"
        )
    if by != "time":
        raise EvidenceError(f"by={by!r}: allowed is 'time'; cross_validate takes folds by other columns")
    counted = isinstance(every, int | np.integer) and not isinstance(every, bool)
    if counted and every < 1:
        raise EvidenceError(f"every={every}: at least 1 settled truth is needed")
    contestant = Contestant(model, method, seed, learn_from, backend)
    begin = evidence.as_time(start)
    step = float(every) if counted else span(every, evidence.time_kind)
    asked, times, unasked = settled_from(evidence, begin, start)
    window, begins = windows(times, begin, step, counted)
    parts: list[Beliefs] = []
    rows: list[dict[str, Any]] = []
    for number, opening in enumerate(begins):
        chosen = window == number
        parts.append(_answer(contestant, evidence, asked[chosen], times[chosen], float(opening), number, rows))
        show(progress, "window", rows[-1])
    beliefs = join(parts)
    keys = evidence.coded.questions.iloc[asked].reset_index(drop=True)
    table = keys.assign(fold=window, time=show_times(times, evidence.time_kind))
    record = {"kind": "in order", "by": by, "seed": seed, "model": contestant.name, "unasked": unasked}
    for row, opening, end in zip(
        rows, show_times(begins, evidence.time_kind), table.groupby("fold")["time"].last(), strict=True
    ):
        row |= {"fitted": opening, "until": end}
    return result(beliefs, truths(evidence, keys, contestant.changing), in_order_of(beliefs, table), rows, record)


def settled_from(evidence: Evidence, begin: float, start: Any) -> tuple[Ints, Floats, int]:
    """Questions that get settled from a time on and have a claim by then, in order; when; and how many have no claim.

    Raises:
        EvidenceError: there are none.
    """
    asked, unasked = settled_questions(evidence)
    times = settling_times(evidence, asked)
    asked, times = asked[times >= begin], times[times >= begin]
    coded = evidence.coded
    first = np.full(len(coded.questions), np.inf)
    known = ~np.isnan(coded.claim_known_at)
    np.minimum.at(first, coded.claim_question[known], coded.claim_known_at[known])
    heard = first[asked] <= times
    unasked += int((~heard).sum())
    order = np.lexsort((asked[heard], times[heard]))
    if not len(order):
        raise EvidenceError(
            f"settled: no question that has a claim by then gets settled from {shorten(start)} on. Allowed: a start "
            "before the last settled truth, and claims with a time (or known_at) not after it."
        )
    return asked[heard][order], times[heard][order], unasked


def _answer(
    contestant: Contestant,
    evidence: Evidence,
    asked: Ints,
    times: Floats,
    opening: float,
    number: int,
    rows: list[dict[str, Any]],
) -> Beliefs:
    """Beliefs about the questions of one window."""
    began = time.perf_counter()
    size = len(evidence.coded.questions)
    opened = np.full(size, opening)
    # The latest time before it, since claims known by a time include those known at it.
    earlier = np.nextafter(opened, -np.inf)
    learned = evidence.each_by(earlier, opened)
    trust = contestant.fit(learned)
    # A trust has learned; who has not is told what was known before the window along with the questions.
    own = np.full(size, np.nan)
    own[asked] = times
    others = np.isnan(own) & (trust is None)
    told = evidence.each_by(np.where(others, earlier, own), np.where(others, opened, own))
    wanted = evidence.coded.questions.iloc[asked].reset_index(drop=True)
    at = None
    if trust is not None and contestant.changing:
        facts = truths(evidence, wanted, first=True).set_index(KEYS)["time"]
        at = facts.reindex(pd.MultiIndex.from_frame(told.questions[KEYS])).to_list()
    beliefs = contestant.ask(trust, told, wanted, at)
    rows.append({"fold": number, **row_of(trust, learned, len(asked), began)})
    return beliefs
