"""Worlds of one attribute, drawn from a model with parameters from their priors: one half to learn from, one to ask."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import nousppl as nous
from nousppl.trust import Trust


def drawn(
    model: nous.TrustModel, attribute: str, seed: int, entities: int, sources: int, claims: int
) -> tuple[nous.Evidence, pd.DataFrame, nous.Evidence, dict[str, NDArray[np.float64]]]:
    """So many claims of sources on three channels about each entity: the first half with its truths, the truths of the
    second half, its claims, and the parameters."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"e{e:03d}", attribute, f"s{s:02d}", f"c{s % 3}", day)
        for e in range(entities)
        for s, day in zip(rng.integers(sources, size=claims), np.sort(rng.uniform(0.0, 100.0, claims)), strict=True)
    ]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "channel", "time"])
    truth, evidence = model.simulate(design, seed)
    known, told, facts = f"e{entities // 2:03d}", evidence.claims, truth.settled
    learn = nous.Evidence(told[told["entity"] < known], settled=facts[facts["entity"] < known])
    asked = nous.Evidence(told[told["entity"] >= known])
    return learn, facts[facts["entity"] >= known], asked, truth.parameters


def recovered(trust: Trust, parameters: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """(parameters,) whether each lies in its 90 % interval."""
    inside = []
    for name, value in parameters.items():
        low, high = np.quantile(trust.flat[name], [0.05, 0.95], axis=0)
        inside.append(np.atleast_1d((low <= value) & (value <= high)))
    return np.concatenate(inside)
