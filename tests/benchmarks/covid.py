"""COVID-19 rumours (Cheng et al. 2021): 5 folds by rumour, with echoes and without."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from benchmarks.table import Row, at_least, at_most, read, shown

import nousppl as nous
from nousppl import calibration
from nousppl.calibration import Marks

FOLDS = 5
PRIORS = {"origin": {"strangers": dist.Normal(1.0, 1.0)}}
"""Domains that report the same news are no strangers: an earlier claim weighs about as much as looking for oneself."""
OPTIONS = nous.SVI(full_size=20, learning_rate=0.05, steps=1000)
ORDERS = 4
"""Random orders of ties and undated claims that are averaged; half the default, for speed."""


def model(echoes: bool) -> nous.TrustModel:
    """Two-coin reliability by domain and month; the same program with and without origins."""
    return nous.TrustModel(
        reliability="1 + (1|source) + (1|month)",
        origin=nous.Origin(strong="same_source", lag=True, orders=ORDERS) if echoes else None,
        errors=nous.Errors(bias="class", difficulty=False),
        base_rates="learned",
        answers={"true": ["T", "F"]},
        priors=PRIORS if echoes else None,
    )


def data() -> tuple[nous.Evidence, pd.DataFrame]:
    """Claims on the rumours whose truth is known, fact-checkers left out; undated claims stay undated."""
    claims, settled = read("covid_rumor")
    claims = claims[(claims["fact_checker"] != "1") & claims["entity"].isin(settled["entity"])]
    settled = settled[settled["entity"].isin(claims["entity"])].sort_values("entity", ignore_index=True)
    time = pd.to_datetime(claims["time"], errors="coerce")
    claims = claims.assign(time=time, month=time.dt.strftime("%Y-%m").fillna("undated"))
    return nous.Evidence(claims.drop(columns=["fact_checker", "url"])), settled


def cross_validated(trust_model: nous.TrustModel, evidence: nous.Evidence, settled: pd.DataFrame) -> Marks:
    """Marks of every rumour under the trust learned from the other folds."""
    fold = np.random.default_rng(0).integers(FOLDS, size=len(settled))
    parts = []
    for k in range(FOLDS):
        trust = trust_model.fit(evidence.with_settled(settled[fold != k]), method=OPTIONS, learn_from="settled")
        asked = evidence.questions["entity"].isin(settled["entity"][fold == k])
        beliefs = trust.posteriors(evidence.subset(np.flatnonzero(asked)))
        parts.append(beliefs.marks(settled[fold == k]))
    return Marks(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def rows() -> list[Row]:
    """All rows."""
    evidence, settled = data()
    where = f"covid_rumor, {FOLDS} folds by rumour"
    marks = cross_validated(model(True), evidence, settled)
    score, n = calibration.score(marks), len(settled)
    without = calibration.score(cross_validated(model(False), evidence, settled))
    floor = calibration.ece_floor(marks.confidence, None, 0)
    return [
        at_most("covid: log loss", where, n, score["log_loss"], 0.28),
        at_most("covid: calibration error", where, n, score["ece"], 0.035),
        shown("covid: calibration error of a perfect forecaster, 95 %", where, n, floor),
        at_least("covid: right where held ≥ .95", f"{where}; {score['held_95']:.0%} are", n, score["right_95"], 0.975),
        shown("covid: accuracy", where, n, score["accuracy"]),
        at_least("covid: log loss without origins", f"{where}, the same program", n, without["log_loss"], 0.5),
        shown(
            "covid: right where held ≥ .95, without origins",
            f"{where}; {without['held_95']:.0%} are",
            n,
            without["right_95"],
        ),
    ]
