"""Set-valued answers: what is learned from simulated worlds, and how the items are believed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.change import with_truth
from benchmarks.table import Row, at_least, at_most
from numpy.typing import NDArray

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


def world(
    seed: int, entities: int = 500, sources: int = 15
) -> tuple[nous.Evidence, pd.DataFrame, nous.Evidence, dict[str, NDArray[np.float64]]]:
    """Lists of 15 sources on three channels about the items of each entity, six claims each, with parameters drawn from
    their priors: the first half with what is true of it, the truths of the second half, its claims, and the
    parameters."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"e{e:03d}", "allergy", f"s{s:02d}", f"c{s % 3}", day)
        for e in range(entities)
        for s, day in zip(rng.integers(sources, size=6), np.sort(rng.uniform(0.0, 100.0, 6)), strict=True)
    ]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "channel", "time"])
    truth, evidence = MODEL.simulate(design, seed)
    known = f"e{entities // 2:03d}"
    claims, facts = evidence.claims, truth.settled
    learn = nous.Evidence(claims[claims["entity"] < known], settled=facts[facts["entity"] < known])
    rest = facts[facts["entity"] >= known]
    return learn, rest, nous.Evidence(claims[claims["entity"] >= known]), truth.parameters


def rows() -> list[Row]:
    """Parameters inside their intervals, calibration of the items, and log loss against that of the true parameters."""
    inside, marks, best = [], [], []
    for seed in range(SEEDS):
        learn, facts, asked, parameters = world(seed)
        trust = MODEL.fit(learn, learn_from="settled", seed=seed)
        for name, value in parameters.items():
            low, high = np.quantile(trust.flat[name], [0.05, 0.95], axis=0)
            inside.append(np.atleast_1d((low <= value) & (value <= high)))
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
