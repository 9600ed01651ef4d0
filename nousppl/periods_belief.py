"""The belief about a state that is true for a while: whether it is on at the time asked about, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from nousppl.belief import Belief
from nousppl.periods import PeriodCells, Periods

Floats = NDArray[np.float64]

LEVELS = (0.05, 0.5, 0.95)
"""Quantiles of an end that are shown."""
NEVER, STATED, OPEN = "never on", "stated", "not stated"


def state_belief(belief: Belief, periods: Periods, cells: PeriodCells, mean: Floats) -> Belief:
    """The belief about True and False, given that about the cells.

    Args:
        belief: about the cells of one question.
        periods: states of the evidence.
        cells: of the question.
        mean: (draws,) mean duration of a state whose end nobody stated, under each draw.
    """
    state = np.stack([cells.on, ~cells.on], axis=1).astype(np.float64)
    path = np.asarray(belief.path @ state)
    path = path / path.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_odds = np.log(path) - np.log(path[:, ::-1])
    span = belief.question.evidence.coded.claim_start[[belief.question.index, belief.question.index + 1]]
    says = periods.says[span[0] : span[1]]
    return replace(
        belief,
        answers=(True, False),
        open=False,
        others=0,
        samples=np.asarray(belief.samples @ state),
        path=path,
        log_odds=log_odds,
        said=np.stack([says, ~says], axis=1).astype(np.float64),
        ends=ends_table(belief, periods, cells, mean),
    )


def ends_table(belief: Belief, periods: Periods, cells: PeriodCells, mean: Floats) -> pd.DataFrame:
    """Candidates for the end of the state: see `nousppl.Belief.ends`."""
    start = float(periods.start[belief.question.index])
    last = int(periods.last[belief.question.index])
    rows: list[dict[str, Any]] = []
    kind = belief.question.evidence.time_kind
    for component in range(last + 1):
        mine = cells.component == component
        draws = belief.samples[:, mine]
        one = PeriodCells(*(column[mine] for column in cells))
        bounds = [np.nan] * len(LEVELS)
        if component and draws.sum() > 0.0:
            bounds = quantiles(one, draws, start, mean)
        rows.append(
            {
                "end": NEVER if not component else OPEN if component == last else STATED,
                "until": as_shown(float(one.end[0]), kind),
                "until_sd": float(one.sd[0]),
                "probability": float(belief.path[-1, mine].sum()),
                **{name: as_shown(x, kind) for name, x in zip(("lower", "median", "upper"), bounds, strict=True)},
            }
        )
    return pd.DataFrame(rows)


def as_shown(time: float, kind: str | None) -> Any:
    """A time as the evidence shows its own: a number, or a date."""
    if kind is None or kind == "numbers":
        return time
    return pd.NaT if np.isnan(time) else pd.to_datetime(time, unit="D", utc=kind == "dates with a time zone")


def quantiles(cells: PeriodCells, draws: Floats, start: float, mean: Floats) -> list[float]:
    """Quantiles of the end, given that one component is the true one.

    Args:
        cells: those of the component.
        draws: (draws, cells) their probabilities under each draw.
        start: first time of the question.
        mean: (draws,) mean duration where the end is not stated.
    """
    if cells.sd[0] == 0.0:
        return [float(cells.end[0])] * len(LEVELS)
    draws = draws / draws.sum()

    def below(time: float) -> float:
        """Probability that the end lies below a time."""
        held = np.clip(time, cells.low, cells.high)
        if np.isnan(cells.sd[0]):
            low, held_, high = (-np.expm1(-(x - start) / mean[:, None]) for x in (cells.low, held, cells.high))
        else:
            low, held_, high = (ndtr((x - cells.end) / cells.sd)[None] for x in (cells.low, held, cells.high))
        width = high - low
        share = np.where(width > 0.0, (held_ - low) / np.where(width > 0.0, width, 1.0), held >= cells.high)
        return float((draws * share).sum())

    top = start + 1.0
    while below(top) < max(LEVELS) and top - start < 1e12:
        top = start + 2.0 * (top - start)
    out = []
    for p in LEVELS:
        # Of an end that is all but certain to lie outside, the nearer bound.
        crossed = below(start) < p <= below(top)
        found = brentq(lambda time, p=p: below(time) - p, start, top, xtol=1e-9) if crossed else None
        out.append(float(found if found is not None else start if below(start) >= p else top))
    return out
