"""Random small tables of claims with every feature of the model on or off, for tests that compare ways to compute."""

from __future__ import annotations

import numpy as np
import pandas as pd

import nousppl as nous

FEATURES = (
    "origin", "lag", "text", "popularity", "difficulty", "bias", "closed", "soft", "notes", "ceiling", "rejected", "undated", "lineage"
)  # fmt: skip
WORDS = ["the train is late", "a train is late today", "no trains run", "trains as planned", "nobody knows"]


def random_case(seed: int, **features: bool) -> tuple[nous.Evidence, nous.TrustModel]:
    """An evidence of one to three questions of at most five claims, and a model; features by a fair coin unless given."""
    rng = np.random.default_rng(seed)
    on = {name: bool(rng.random() < 0.5) for name in FEATURES} | features
    on["bias"] &= on["closed"]
    size = int(rng.integers(2, 5))
    values = ["a", "b", "c", "d"][:size]
    frames = [_claims(rng, f"e{q}", values, on) for q in range(int(rng.integers(1, 4)))]
    claims = pd.concat(frames, ignore_index=True)
    settled = None
    if on["rejected"]:
        settled = pd.DataFrame({"entity": ["e0"], "attribute": ["x"], "value": [values[0]], "verdict": ["false"]})
    named = int(claims.groupby("entity")["value"].nunique().max())
    answers = {"x": values} if on["closed"] else {"x": max(named, int(rng.integers(2, 7)))}
    origin = None
    if on["origin"]:
        strong = ["same_source", "same_channel", "same_source + same_channel", None][rng.integers(4)]
        origin = nous.Origin(
            strong=strong,
            lag=on["lag"],
            text="text" if on["text"] else None,
            order="unknown" if rng.random() < 0.2 else "time",
            orders=3,
        )
    bias = ["class", "source"][rng.integers(2)] if on["bias"] else "none"
    errors = nous.Errors(popularity=on["popularity"], difficulty=on["difficulty"], bias=bias)
    model = nous.TrustModel(
        origin=origin,
        errors=errors,
        answers=answers,
        base_rates="learned" if rng.random() < 0.3 else "uniform",
        order_seed=seed,
    )
    return nous.Evidence(claims, settled=settled), model


def _claims(rng: np.random.Generator, entity: str, values: list[str], on: dict[str, bool]) -> pd.DataFrame:
    n = int(rng.integers(1, 6))
    time = rng.choice([1.0, 2.0, 5.0, 40.0], n)
    if on["undated"]:
        time = np.where(rng.random(n) < 0.4, np.nan, time)
    frame = pd.DataFrame(
        {
            "claim": [f"{entity} {i}" for i in range(n)],
            "entity": entity,
            "attribute": "x",
            "value": rng.choice(values, n),
            "source": rng.choice(["s", "t", "u"], n),
            "channel": rng.choice(["mail", "web"], n),
            "time": time,
            "text": rng.choice(WORDS, n),
            "weight": 1.0,
        }
    )
    if on["notes"]:
        frame["derived"] = rng.random(n) < 0.4
    if on["ceiling"]:
        frame["ceiling"] = np.where(rng.random(n) < 0.5, rng.uniform(0.1, 0.9, n), np.nan)
    if on["lineage"]:
        frame["origin"] = _lineage(rng, frame)
    return _soft(rng, frame, values) if on["soft"] else frame


def _lineage(rng: np.random.Generator, frame: pd.DataFrame) -> list[str | None]:
    """Now and then a claim is known to repeat one of a strictly earlier time."""
    out: list[str | None] = []
    for j in range(len(frame)):
        earlier = frame["claim"][frame["time"] < frame["time"][j]].to_list()
        out.append(str(rng.choice(earlier)) if earlier and rng.random() < 0.4 else None)
    return out


def _soft(rng: np.random.Generator, frame: pd.DataFrame, values: list[str]) -> pd.DataFrame:
    """Half of the claims become readings with weights on two answers."""
    rows = []
    for _, row in frame.iterrows():
        if rng.random() < 0.5:
            rows.append(row)
            continue
        weights = rng.dirichlet(np.ones(3))
        for value, weight in zip(rng.permutation(values)[:2], weights, strict=False):
            rows.append(row.copy())
            rows[-1]["value"], rows[-1]["weight"] = value, weight
    return pd.DataFrame(rows).reset_index(drop=True)
