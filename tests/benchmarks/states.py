"""States that are true for a while, in simulated worlds: what is learned of them, and how sure beliefs are later on."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.table import Row, at_least, at_most, shown

import nousppl as nous
from nousppl.calibration import Marks, score
from nousppl.inference.options import SVI
from nousppl.padding import Mould
from nousppl.trust import Trust

SEEDS = 20
QUESTIONS = 400
SOURCES, CHANNELS = 12, 3
ENDS = 3
"""Plausible ends of each question."""
AGES = (0.0, 3.0, 10.0, 30.0, 60.0, 120.0)
"""Days after the last claim at which beliefs are asked for."""
MODEL = nous.TrustModel(
    "1 + (1|source)",
    "1",
    nous.Origin(strong="same_channel", lag=False),
    nous.Errors(difficulty=False),
    shapes={"away": nous.WhileTrue()},
    answers={"away": ENDS},
)


@dataclass(frozen=True)
class True_:
    """The true parameters."""

    reliability: Any
    """(sources,) effects of the sources on the logit of reliability."""
    intercept: float = 1.2
    spread: float = 0.6
    log_strangers: float = -2.5
    log_same_channel: float = 0.7
    logit_on: float = 0.8
    duration: float = 40.0
    logit_stated: float = 0.3

    def sites(self, trust: Trust) -> dict[str, Any]:
        """By the names of the model's sites, with one chain and one draw."""
        effect = trust.blueprint.encodings["reliability"].levels["1|source"]
        known = {
            "reliability_Intercept": self.intercept,
            "reliability_1|source_sigma": self.spread,
            "reliability_1|source": self.reliability[[int(str(level)[1:]) for level in effect]],
            "origin_log_strangers": self.log_strangers,
            "origin_same_channel": self.log_same_channel,
            "state_logit_on": [self.logit_on],
            "state_log_duration": [np.log(self.duration)],
            "state_logit_stated": [self.logit_stated],
        }
        # Answers of one of several, of which there are none, have the others.
        rest = {name: value[0, 0] for name, value in trust.posterior_draws.items() if name not in known}
        return {name: np.asarray(value, np.float64)[None, None] for name, value in (known | rest).items()}


@dataclass(frozen=True)
class State:
    """One state."""

    on: bool
    """Whether it is on at first."""
    end: float
    ends: tuple[tuple[float, float], ...]
    """The plausible ends, date and spread; the first is the true one."""

    def at(self, when: float) -> bool:
        """Whether it is on at a time."""
        return self.on and when <= self.end


def sigmoid(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))


def draw_state(rng: np.random.Generator, true: True_) -> State:
    """A state, and plausible ends of it, a third of them uncertain ones."""
    dates = rng.exponential(true.duration, ENDS)
    ends = tuple((float(date), float(sd)) for date, sd in zip(dates, rng.choice([0.0, 0.0, 2.0], ENDS), strict=True))
    end = -1.0
    while end < 0.0:
        end = float(rng.normal(*ends[0]))
    return State(bool(rng.random() < sigmoid(true.logit_on)), end, ends)


def fresh_value(
    rng: np.random.Generator, state: State, when: float, right: float, stated: float
) -> tuple[bool, int | None]:
    """What a source says that looks for itself: whether the state is on, and which of the ends it states."""
    on = state.at(when)
    says = on == bool(rng.random() < right)
    if not says or rng.random() >= stated:
        return says, None
    others = [i for i, (date, _) in enumerate(state.ends) if date >= when and not (on and i == 0)]
    if on and state.ends[0][0] >= when and (rng.random() < right or not others):
        return says, 0
    # An end that has passed is not stated any more.
    return says, int(rng.choice(others)) if others else None


def draw_claims(rng: np.random.Generator, state: State, true: True_) -> list[dict[str, Any]]:
    """Claims of a week: each of a source that looks for itself, or repeats an earlier claim."""
    times = np.r_[0.0, np.sort(rng.uniform(0.1, 7.0, 4))]
    said: list[tuple[bool, int | None]] = []
    rows: list[dict[str, Any]] = []
    originality: list[float] = []
    for when in times:
        source, channel = int(rng.integers(SOURCES)), int(rng.integers(CHANNELS))
        same = np.array([row["channel"] == f"c{channel}" for row in rows], float)
        base, strong = np.full(len(rows), np.exp(true.log_strangers)), same * np.exp(true.log_same_channel)
        weights = np.r_[1.0, base * originality + strong]
        origin = int(rng.choice(len(weights), p=weights / weights.sum())) - 1
        right = sigmoid(true.intercept + true.reliability[source])
        value = fresh_value(rng, state, when, right, sigmoid(true.logit_stated)) if origin < 0 else said[origin]
        end = None if value[1] is None else state.ends[value[1]]
        if end is not None and end[0] < when:
            continue  # nobody forwards an end that has passed
        match = np.array([earlier == value for earlier in said], float)
        originality.append(float(1.0 / (1.0 + ((base + strong) * match).sum())))
        said.append(value)
        columns = {"value": value[0], "until": end and end[0], "until_sd": end and end[1]}
        rows.append({"source": f"s{source:02d}", "channel": f"c{channel}", "time": when, **columns})
    return rows


@cache
def world(seed: int) -> tuple[nous.Evidence, tuple[State, ...], True_]:
    """Claims on states; of every other one it is settled whether it was on at two times."""
    rng = np.random.default_rng((2026, seed))
    true = True_(rng.normal(0.0, 0.6, SOURCES))
    states = tuple(draw_state(rng, true) for _ in range(QUESTIONS))
    claims = [
        {"entity": f"e{q:04d}", "attribute": "away", **row}
        for q, state in enumerate(states)
        for row in draw_claims(rng, state, true)
    ]
    facts = [
        {"entity": f"e{q:04d}", "attribute": "away", "value": states[q].at(when), "time": when}
        for q in range(0, QUESTIONS, 2)
        for when in (float(rng.uniform(0.0, 7.0)), float(rng.uniform(7.0, 100.0)))
    ]
    return nous.Evidence(pd.DataFrame(claims), settled=pd.DataFrame(facts)), states, true


FITS, ASKS = Mould(), Mould()


@cache
def fitted(seed: int) -> Trust:
    """Learned from the settled half."""
    return MODEL._fit(world(seed)[0], SVI(), seed, "settled", mould=FITS)


def knowing(trust: Trust, true: True_) -> Trust:
    """The trust of someone who knows the true parameters: one draw."""
    return Trust(trust.model, trust.blueprint, true.sites(trust), {}, trust.table, trust.record, trust.seen)


def inside(seed: int) -> dict[str, list[bool]]:
    """Whether each parameter lies in its 90 % interval."""
    trust, true = fitted(seed), world(seed)[2]
    out = {}
    for name, value in true.sites(trust).items():
        if name.startswith(("reliability", "origin", "state")):
            low, high = np.quantile(trust.flat[name], [0.05, 0.95], axis=0)
            out[name] = np.atleast_1d((low <= value[0, 0]) & (value[0, 0] <= high)).tolist()
    return out


def asked(seed: int) -> tuple[list[Marks], list[Marks]]:
    """Marks of the beliefs about states that are not settled, at several ages; of the trust, and of who knows the
    parameters."""
    evidence, states, true = world(seed)
    trust, hidden = fitted(seed), evidence.with_settled(None)
    last = hidden.claims.groupby("entity")["time"].max()
    parts: tuple[list[Marks], list[Marks]] = ([], [])
    for age in AGES:
        at = last.to_numpy() + age
        chosen = [q for q, name in enumerate(last.index) if int(name[1:]) % 2]
        truth = [states[int(last.index[q][1:])].at(at[q]) for q in chosen]
        facts = pd.DataFrame({"entity": last.index[chosen], "attribute": "away", "value": truth})
        for one, marks in zip((trust, knowing(trust, true)), parts, strict=True):
            marks.append(one._posteriors(hidden, mould=ASKS, at=at).marks(facts))
    return parts


def together(parts: list[Marks]) -> Marks:
    return Marks(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def progress(seed: int, begun: float, mine: list[Marks], known: list[Marks], hits: dict[str, list[bool]]) -> str:
    """A line on one world."""
    ours, best = (score(together(parts), 0) for parts in (mine, known))
    states = {name.removeprefix("state_"): int(values[0]) for name, values in hits.items() if name.startswith("state")}
    share = np.mean([hit for values in hits.values() for hit in values])
    return (
        f"world {seed}: {time.perf_counter() - begun:.0f} s; log loss {ours['log_loss']:.4f}, knowing the parameters "
        f"{best['log_loss']:.4f}; calibration error {ours['ece']:.4f}, {best['ece']:.4f}; inside {share:.2f}, {states}"
    )


def rows(seeds: int = SEEDS) -> list[Row]:
    """All figures."""
    found, ours, best = [], [], []
    begun = time.perf_counter()
    for seed in range(seeds):
        found.append(inside(seed))
        mine, known = asked(seed)
        ours += mine
        best += known
        print(progress(seed, begun, mine, known, found[-1]), file=sys.stderr, flush=True)
        pooled = score(together(ours), 0)["ece"]
        print(f"  calibration error so far {pooled:.4f}", file=sys.stderr, flush=True)
    hits = [hit for one in found for values in one.values() for hit in values]
    states = [hit for one in found for name, values in one.items() if name.startswith("state") for hit in values]
    learned, knows = (score(together(parts), 0) for parts in (ours, best))
    each = [score(together(ours[i : i + len(AGES)]), 0)["ece"] for i in range(0, len(ours), len(AGES))]
    where = f"{seeds} worlds of {QUESTIONS} states, half settled; 0 to {AGES[-1]:g} days after the last claim"
    ratio = float(learned["log_loss"] / knows["log_loss"])
    return [
        at_least("while true: parameters inside their 90 % interval", where, len(hits), float(np.mean(hits)), 0.85),
        at_most("while true: parameters inside their 90 % interval", where, len(hits), float(np.mean(hits)), 0.95),
        shown("while true: those of the states alone", where, len(states), float(np.mean(states))),
        at_most("while true: log loss over that of the true parameters", where, int(learned["n"]), ratio, 1.03),
        at_most("while true: calibration error over the ages", where, int(learned["n"]), float(learned["ece"]), 0.02),
        shown("while true: calibration error of a world, mean", where, seeds, float(np.mean(each))),
        shown("while true: calibration error of the true parameters", where, int(knows["n"]), float(knows["ece"])),
    ]


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    for row in rows(count):
        print(row)
    worlds = [inside(seed) for seed in range(count)]
    means = {name: np.mean([hit for one in worlds for hit in one[name]]) for name in worlds[0]}
    print(pd.Series(means).round(2).to_string())
