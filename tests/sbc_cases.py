"""Small designs and models that are calibrated by simulation, and a fit whose likelihood is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

import nousppl as nous
from nousppl.simulated_sets import Sets

ANSWERS = {"colour": ["red", "green", "blue", "grey"], "stance": ["T", "F"]}
FULL = nous.TrustModel(reliability="1 + (1|kind) + (1|source)", answers=ANSWERS)
"""Echoes with lag and same source, popular errors, groups of kinds and sources: the defaults, and a kind."""
PLAIN = nous.TrustModel(origin=None, errors=nous.Errors(popularity=False, difficulty=False), answers=ANSWERS)
"""Sources of different reliability that look for themselves."""
SHIFT = 1.0
"""Of the logits, in the wrong likelihood."""


def design(questions: int = 40, sources: int = 8, claims: int = 4, seed: int = 0) -> pd.DataFrame:
    """Who speaks when: sources at random, half of them press and half forum, on two attributes in turn."""
    rng = np.random.default_rng(seed)
    rows = []
    for question in range(questions):
        times = np.sort(rng.uniform(0, 60, claims)).round(3)
        for who, time in zip(rng.integers(0, sources, claims), times, strict=True):
            kind = ("press", "forum")[who % 2]
            row = (f"e{question:03d}", ("colour", "stance")[question % 2], f"s{who}", kind, time)
            rows.append(row)
    return pd.DataFrame(rows, columns=["entity", "attribute", "source", "kind", "time"])


def biased(sets: Sets) -> Sets:
    """The same data for fits whose likelihood adds `SHIFT` to every linear predictor."""
    split = sets.fit.split
    wrong = split | {"claim_zero": split["claim_zero"] + SHIFT}
    return replace(sets, fit=sets.fit._replace(split=wrong))
