"""Numbers: what is learned from simulated worlds, and whether beliefs about numbers are as sure as they may be."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.change import with_truth
from benchmarks.halves import drawn, recovered
from benchmarks.table import Row, at_least, at_most
from numpy.typing import NDArray

import nousppl as nous
from nousppl.beliefs import Beliefs

SEEDS = 20
RESOLUTION = 0.1
LEVELS = np.arange(0.05, 1.0, 0.05)
"""Probabilities below which so many truths should lie."""
MODEL = nous.TrustModel(
    freshness="1",
    origin=nous.Origin(strong="same_source + same_channel"),
    shapes={"guests": nous.Number(resolution=RESOLUTION, centre=0.0, scale=1.0)},
)


def places(beliefs: Beliefs, facts: pd.DataFrame) -> NDArray[np.float64]:
    """(questions,) belief that the number is below the truth."""
    assert beliefs.numbers is not None
    true = facts.set_index("entity")["value"].reindex(beliefs.numbers.questions["entity"])
    return np.array([float(law.cdf(x)) for law, x in zip(beliefs.numbers.mixtures, true, strict=True)])


def rows() -> list[Row]:
    """Parameters inside their intervals, calibration of the beliefs, and log loss against that of the true ones."""
    inside, below, learned, best = [], [], [], []
    for seed in range(SEEDS):
        learn, facts, asked, parameters = drawn(MODEL, "guests", seed, 400, 12, 5)
        trust = MODEL.fit(learn, learn_from="settled", seed=seed)
        inside.append(recovered(trust, parameters))
        beliefs, ideal = trust.posteriors(asked), with_truth(trust, parameters).posteriors(asked)
        below.append(places(beliefs, facts))
        learned.append(float(beliefs.score_numbers(facts)["log_score"]))
        best.append(float(ideal.score_numbers(facts)["log_score"]))
    where = f"{SEEDS} worlds of 200 settled and 200 asked numbers, 12 sources, 5 claims each"
    share, count = float(np.concatenate(inside).mean()), len(np.concatenate(inside))
    found = np.concatenate(below)
    apart = float(np.abs((found[:, None] <= LEVELS).mean(0) - LEVELS).mean())
    # Of the rounding cell that holds the truth, in nats.
    losses = [-float(np.mean(scores)) - np.log(RESOLUTION) for scores in (learned, best)]
    covered = float((np.abs(found - 0.5) <= 0.45).mean())
    return [
        at_least("numbers: parameters inside their 90 % interval", where, count, share, 0.85),
        at_most("numbers: parameters inside their 90 % interval", where, count, share, 0.95),
        at_most("numbers: calibration error, mean over 19 levels", where, len(found), apart, 0.02),
        at_least("numbers: truths inside 90 % intervals", where, len(found), covered, 0.87),
        at_most("numbers: truths inside 90 % intervals", where, len(found), covered, 0.93),
        at_most("numbers: log loss over that of the true parameters", where, len(found), losses[0] / losses[1], 1.03),
    ]
