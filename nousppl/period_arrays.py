"""States that are true for a while in the likelihood: arrays of their entries and cells, and the law of a claim on
one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from nousppl.models.logs import NOTHING
from nousppl.periods import Bools, PeriodCells, Periods
from nousppl.ragged import Floats, Ints


def log_normal_between(low: Floats, high: Floats) -> Floats:
    """log of the standard normal probability of an interval, accurate in both tails; low <= high."""
    flipped = low > 0.0
    low, high = np.where(flipped, -high, low), np.where(flipped, -low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = log_ndtr(high) + np.log1p(-np.exp(log_ndtr(low) - log_ndtr(high)))
    return np.where(high > low, out, -np.inf)


def log_in_interval(cells: PeriodCells, start: Floats) -> Floats:
    """(cells,) log probability that a stated end lies in the cell, given which component is true: a normal law that
    begins at the first time (cells,); 0 for points and for ends that nobody stated, whose law has parameters."""
    normal = cells.sd > 0.0
    scale = np.where(normal, cells.sd, 1.0)
    middle = np.where(normal, cells.end, 0.0)
    with np.errstate(invalid="ignore"):
        z = [np.where(normal, (edge - middle) / scale, 0.0) for edge in (cells.low, cells.high, start)]
    inside = log_normal_between(z[0], z[1]) - log_ndtr(-z[2])
    return np.where(normal, inside, 0.0)


def cell_arrays(periods: Periods, cells: PeriodCells, cell: Ints) -> dict[str, NDArray[Any]]:
    """Arrays of the cells of states, given their places among all cells; see ``nousppl.models.while_true.log_mass``."""
    question = cells.question
    ends, last = periods.ends[question], periods.last[question]
    is_open, empty = cells.component == last, cells.high <= cells.low
    point = ~is_open & ~(cells.sd > 0.0)
    # The ends that nobody stated are alike, and one of them is the true one.
    left = ends - (last - 1.0)
    log = np.where(is_open, np.where(left > 0.0, np.log(np.maximum(left, 1.0)), NOTHING), 0.0) - np.log(ends)
    log += np.maximum(log_in_interval(cells, periods.start[question]), NOTHING)
    bounded = is_open & np.isfinite(cells.high) & ~empty
    width = np.where(bounded, cells.high, 1.0) - np.where(bounded, cells.low, 0.0)
    return {
        "periodcell_cell": cell,
        "periodcell_attribute": periods.attribute[question],
        "periodcell_on": cells.component > 0,
        "periodcell_open": is_open & ~empty,
        "periodcell_last": np.isinf(cells.high),
        "periodcell_stated": periods.heard[question],
        "periodcell_lead": periods.lead[question],
        "periodcell_begin": np.where(is_open, cells.low, 0.0) - np.where(is_open, periods.start[question], 0.0),
        "periodcell_width": width,
        "periodcell_log": np.where(empty & ~point, NOTHING, log),
    }


def factors(
    periods: Periods, says: Bools, stated: Ints, on: Bools, component: Ints, ends: Floats
) -> dict[str, NDArray[Any]]:
    """What the law of a fresh claim is made of, see ``nousppl.models.while_true.log_fresh``: how often a and 1 - a, s
    and 1 - s occur in it, and the log of the rest."""
    dated, right = says & (stated > 0), says & (stated > 0) & (stated == component)
    agrees = (says == on).astype(np.float64)
    among = np.where(on, np.where(right, 1.0, ends - 1.0), ends)
    return {
        "right": agrees + (dated & on & right),
        "wrong": 1.0 - agrees + (dated & on & ~right),
        "stated": dated.astype(np.float64),
        "plain": (says & ~dated).astype(np.float64),
        "log": np.where(dated, -np.log(among), 0.0),
    }


def entry_arrays(
    periods: Periods, cells: PeriodCells, chosen: Ints, claim: Ints, time: Floats, places: tuple[Ints, Ints, Ints]
) -> dict[str, NDArray[Any]]:
    """Arrays of the entries of states.

    Args:
        periods: of the evidence.
        cells: of the problem.
        chosen: (periods,) which of these cells each entry is about.
        claim: (periods,) its claim, in the evidence.
        time: (periods,) time of that claim.
        places: (periods,) place of each entry among all entries, its slot, and its claim in the problem.
    """
    question = cells.question[chosen]
    on, component = time <= cells.low[chosen], cells.component[chosen]
    made_of = factors(periods, periods.says[claim], periods.stated[claim], on, component, periods.ends[question])
    entry, slot, local = places
    out: dict[str, NDArray[Any]] = {"period_entry": entry, "period_slot": slot, "period_claim": local}
    out["period_attribute"] = periods.attribute[question]
    return out | {f"period_{name}": array for name, array in made_of.items()}


def law_of_states(
    periods: Periods, cells: PeriodCells, claims: Ints, times: Floats, right: Floats, stated: float
) -> tuple[Floats, Floats, Floats, tuple[Any, ...]]:
    """The law of each claim on one state, for the readable program.

    Args:
        periods: of the evidence.
        cells: those of the question.
        claims: (n,) its claims, in the evidence.
        times: (n,) their times.
        right: (n,) P(right | fresh).
        stated: chance that a claim that the state is on states an end.

    Returns:
        (n, cells, V) the law, (n, V) what each claim says, (V,) the law of a repetition that goes wrong, and the V
        values: pairs of what is said of the state and the component whose end is stated, and None for any other.
    """
    said = list(zip(periods.says[claims].tolist(), periods.stated[claims].tolist(), strict=True))
    values, K = sorted(set(said)), float(periods.ends[cells.question[0]])
    law = np.zeros((len(claims), len(cells.low), len(values) + 1))
    for j, a in enumerate(right):
        for c, (low, component) in enumerate(zip(cells.low, cells.component, strict=True)):
            on = times[j] <= low
            p_on = a if on else 1.0 - a
            for v, (says, end) in enumerate(values):
                p = 1.0 - p_on
                if says and not end:
                    p = p_on * (1.0 - stated)
                elif says:
                    among = (a if end == component else (1.0 - a) / (K - 1.0)) if on else 1.0 / K
                    p = p_on * stated * among
                law[j, c, v] = p
    law[:, :, -1] = np.maximum(1.0 - law.sum(-1), 0.0)
    weights = np.zeros((len(claims), len(values) + 1))
    weights[np.arange(len(claims)), [values.index(one) for one in said]] = 1.0
    random = np.r_[np.full(len(values), 1.0 / (K + 2.0)), max(1.0 - len(values) / (K + 2.0), 0.0)]
    return law, weights, random, (*values, None)
