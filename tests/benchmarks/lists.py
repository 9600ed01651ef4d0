"""Set-valued answers: what is learned from simulated worlds, and how the items are believed."""

from __future__ import annotations

import numpy as np
from benchmarks.change import with_truth
from benchmarks.halves import drawn, recovered
from benchmarks.table import Row, at_least, at_most

import nousppl as nous
from nousppl.beliefs_items import item_marks
from nousppl.calibration import Marks, score

SEEDS = 20
ITEMS = ["eggs", "fish", "milk", "nuts", "soy"]
SHAPE = nous.AnyOf()
MODEL = nous.TrustModel(
    freshness="1",
    origin=nous.Origin(strong="same_source + same_channel"),
    shapes={"allergy": SHAPE},
    answers={"allergy": ITEMS},
)


def rows() -> list[Row]:
    """Parameters inside their intervals, calibration of the items, and log loss against that of the true parameters."""
    inside, marks, best = [], [], []
    for seed in range(SEEDS):
        learn, facts, asked, parameters = drawn(MODEL, "allergy", seed, 500, 15, 6)
        trust = MODEL.fit(learn, learn_from="settled", seed=seed)
        inside.append(recovered(trust, parameters))
        marks.append(item_marks(trust.posteriors(asked), facts))
        best.append(item_marks(with_truth(trust, parameters).posteriors(asked), facts))
    where = f"{SEEDS} worlds of 250 settled and 250 asked questions, 5 items, 15 sources, 6 claims each"
    share, count = float(np.concatenate(inside).mean()), len(np.concatenate(inside))
    found, ideal = (score(Marks(*(np.concatenate(c) for c in zip(*parts, strict=True)))) for parts in (marks, best))
    ratio, n = float(found["log_loss"] / ideal["log_loss"]), int(found["n"])
    return [
        at_least("lists: parameters inside their 90 % interval", where, count, share, 0.85),
        at_most("lists: parameters inside their 90 % interval", where, count, share, 0.95),
        at_most("lists: calibration error of the items", where, n, float(found["ece"]), 0.02),
        at_most("lists: log loss of the items over that of the true parameters", where, n, ratio, 1.03),
    ]
