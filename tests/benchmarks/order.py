"""The order in which the rows of a table arrive changes nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.table import Row, read

import nousppl as nous
from nousppl.beliefs import Beliefs

PERMUTATIONS = 3


def beliefs(claims: pd.DataFrame, settled: pd.DataFrame, few: int) -> Beliefs:
    """Fit on settled rumours and ask all."""
    evidence = nous.Evidence(claims, settled=settled)
    model = nous.TrustModel(answers={"true": ["T", "F"]}, errors=nous.Errors(bias="class"), base_rates="learned")
    return model.fit(evidence, nous.SVI(steps=few), learn_from="settled").posteriors(evidence)


def rows() -> list[Row]:
    """All rows."""
    claims, settled = read("covid_rumor")
    settled = settled.sort_values("entity").head(200)
    claims = claims[claims["entity"].isin(settled["entity"])].drop(columns=["fact_checker", "url"])
    claims["time"] = pd.to_datetime(claims["time"], errors="coerce")
    settled = settled[settled["entity"].isin(claims["entity"])]
    rng, different = np.random.default_rng(0), 0
    first = beliefs(claims, settled.head(100), few=200)
    for _ in range(PERMUTATIONS):
        shuffled = claims.iloc[rng.permutation(len(claims))]
        again = beliefs(shuffled, settled.head(100).iloc[rng.permutation(100)], few=200)
        different += int((first.probability != again.probability).sum() + (first.support != again.support).sum())
    where = (
        f"200 rumours of covid_rumor with ties and missing times, {PERMUTATIONS} permutations of rows, fit and asked"
    )
    return [
        Row(
            "arrival order: answers that differ in any bit",
            where,
            len(first.probability),
            different,
            "0",
            different == 0,
        )
    ]
