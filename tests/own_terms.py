"""Terms of one's own, and models with them, that several test modules use."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd

import nousppl as nous
from nousppl.trust import Trust

NEVER = -np.inf
PLAIN = nous.Errors(popularity=False, difficulty=False)
"""For what errors do not matter to: quick to compile."""


def wears_off(xp: Any, sample: Any, columns: Any) -> Any:
    return -sample("slope", dist.HalfNormal(1.0)) * xp.log1p(columns["age"])


def quotes(xp: Any, sample: Any, pairs: Any) -> Any:
    b = sample("b", dist.Normal(0.0, 2.0))
    return xp.where(pairs.later["quotes"] > 0.5, b - 0.1 * pairs.earlier["age"], NEVER)


def table(rng: np.random.Generator, questions: int, claims: int) -> pd.DataFrame:
    """Who says something, and when; what they say is drawn."""
    n = questions * claims
    return pd.DataFrame(
        {
            "entity": np.repeat([f"q{i:04d}" for i in range(questions)], claims),
            "attribute": "x",
            "source": rng.choice(list("abcdefgh"), n),
            "time": np.tile(np.arange(1.0, claims + 1.0), questions),
            "age": rng.exponential(3.0, n),
            "quotes": rng.random(n) < 0.4,
            "channel": rng.choice(["mail", "web"], n),
            "place": rng.integers(0, 3, n),
        }
    )


def some_evidence(seed: int, questions: int, claims: int, **columns: Any) -> nous.Evidence:
    rng = np.random.default_rng(seed)
    frame = table(rng, questions, claims)
    return nous.Evidence(frame.assign(value=rng.choice(["u", "v", "w"], len(frame)), **columns))


def by_place(xp: Any, sample: Any, columns: Any) -> Any:
    level = sample("level", dist.Normal(0.0, 1.0), 3)
    return xp.take(level, xp.whole(columns["place"])) * columns["quotes"]


def recent(xp: Any, sample: Any, pairs: Any) -> Any:
    same = pairs.same("channel")
    return xp.where(same, sample("c", dist.Normal(0.0, 1.0)) - pairs.lag, 0.1 * pairs.later["place"])


EVERYWHERE = nous.TrustModel(
    reliability="1 + (1|source)",
    origin=nous.Origin(strong="same_source", max_listed=2),
    errors=nous.Errors(popularity="1"),
    answers={"x": 5},
    terms={
        "reliability": [wears_off, by_place],
        "freshness": [by_place],
        "popularity": [wears_off],
        "origin": [quotes, recent],
    },
)


@functools.cache
def asked() -> tuple[nous.Evidence, Trust]:
    """A trust that knows no source, and under which sources do not differ: an effect is drawn anew with every draw."""
    trust = EVERYWHERE.default_trust(seed=4, draws=6)
    draws = {n: 0.0 * v if n.endswith("source_sigma") else v for n, v in trust.posterior_draws.items()}
    return some_evidence(5, 12, 4), replace(trust, posterior_draws=draws)


def on_log(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("slope", dist.Normal(0.0, 1.0)) * xp.log(columns["age"])


def on_log_lag(xp: Any, sample: Any, pairs: Any) -> Any:
    return sample("b", dist.Normal(0.0, 1.0)) * (xp.log(pairs.lag) + xp.log(pairs.later["age"]))


LOGS = nous.TrustModel(
    "1",
    "1",
    nous.Origin(strong=None),
    PLAIN,
    answers={"x": 5},
    terms={"reliability": [on_log], "origin": [on_log_lag]},
)
