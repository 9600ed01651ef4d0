"""A world of messages to learn trust on before the dated histories are asked; the habits of its sources are known.

Everything that is true of the world stands in the tables below. They were set by common sense, once, and to no result:
neither a model nor the right answers of the histories had a part in them. Days are whole; the state on a day is the one
after that day's change.

A question is one attribute of one entity. It is followed for `STAYS` average stays of its attribute, at most three
years, at a random time of those years. Its state is a Markov jump process with uniform targets. Claims come four ways:

* `Poisson(CHATTER)` claims and one more, at most `MOST`, at uniform times, of kinds drawn by `Kind.share`;
* `ANNOUNCED` of all changes are made known by the principal some days later, most often with the old value denied;
* `SYNDICATED` of the claims by web sites and strangers who looked, right or wrong, are copied within their channel;
* a share of the questions (`Attribute.fraud`) meets an unknown sender who insists on a wrong value and denies the true.

A claim of the first way repeats an earlier one of its question with probability 1 - `Kind.fresh`, where there is one,
picked with weights `(1 + SAME_CHANNEL [same channel] + WELL_PLACED [by a principal or record]) 2^(-age / half-life)`.
It keeps the warnings of what it repeats (lasting, hedging) with probability `KEEPS`. Else the source looked for itself,
some days ago, at the state of that day.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit, logit

START, DAYS = pd.Timestamp("2023-01-01"), 1095


class Attribute(NamedTuple):
    """What may be asked."""

    stay: float
    """Mean days between changes."""
    answers: int
    """Plausible answers, named or not."""
    fraud: float
    """Share of questions that meet an insistent false claim."""


class Kind(NamedTuple):
    """Habits of a sort of source."""

    share: float
    """Of the claims that come by themselves."""
    fresh: float
    """Probability of having looked, where there is something to repeat."""
    wrong: float
    """Probability that a fresh claim without warning differs from the state it saw, for the typical source."""
    lag: float
    """Mean days since it looked; at most half a stay."""
    half_life: float
    """Days after which an earlier claim is half as likely to be the one that is repeated."""
    hedges: float
    """Share of its fresh claims with a warning."""
    one_off: float
    """Share of its fresh claims that speak of a moment only."""
    names_old: float
    """Probability that a fresh claim that is right, and about a state that replaced another, denies the former one."""


ATTRIBUTES = {
    "appointment": Attribute(stay=21, answers=30, fraud=0.05),
    "price": Attribute(stay=180, answers=100, fraud=0.05),
    "dose": Attribute(stay=270, answers=12, fraud=0.03),
    "employer": Attribute(stay=1460, answers=100, fraud=0.03),
    "address": Attribute(stay=1825, answers=200, fraud=0.05),
    "bank_account": Attribute(stay=2920, answers=500, fraud=0.25),
    "fact": Attribute(stay=36500, answers=20, fraud=0.05),
}
KINDS = {
    "principal": Kind(0.20, 0.95, 0.03, 0, 30, 0.05, 0.06, 0.4),
    "colleague": Kind(0.17, 0.60, 0.12, 7, 30, 0.20, 0.04, 0.2),
    "reminder": Kind(0.18, 0.10, 0.05, 30, 365, 0.00, 0.00, 0.0),
    "record": Kind(0.10, 0.90, 0.02, 30, 90, 0.00, 0.00, 0.2),
    "web": Kind(0.15, 0.50, 0.15, 90, 180, 0.10, 0.02, 0.0),
    "stranger": Kind(0.12, 0.85, 0.50, 15, 30, 0.25, 0.02, 0.2),
    "note": Kind(0.08, 0.10, 0.20, 15, 30, 0.10, 0.00, 0.0),
}
ANSWERS = {name: attribute.answers for name, attribute in ATTRIBUTES.items()}
SPREAD = 0.4
"""Standard deviation over sources of the log odds of being wrong."""
WARNED = 3.0
"""Log odds of being wrong that hedging 1 adds."""
HEDGINGS, LASTINGS = (0.5, 0.7, 0.9), (0.05, 0.1, 0.2)
FORMER, NATURAL = 0.25, 0.35
"""Share of errors that name the state before, where there is one, and the question's natural mistake; else uniform."""
STAYS, CHATTER, MOST = 8.0, 4.0, 9
"""Stays for which a question is followed; mean and most of its claims of the first way."""
ANNOUNCED, ANNOUNCED_AFTER, ANNOUNCED_DENIAL = 0.6, 2.0, 0.7
"""Share of the changes, mean days until it is said, probability that the old value is denied."""
SYNDICATED, COPIES, COPIED_AFTER = 0.15, (2, 5), 5.0
"""Share of the claims, least and most copies, mean days from one to the next."""
FRAUD_MESSAGES, FRAUD_EVERY = (1, 4), 4.0
"""Least and most messages, mean days between them after the first."""
SAME_CHANNEL, WELL_PLACED, KEEPS = 10.0, 2.0, 0.7
"""What is repeated, and whether its warnings are."""
SETTLED, SETTLED_TIMES = 0.5, (1, 3)
"""Share of questions whose truth comes out, and on how many days."""
COLLEAGUES, SITES, NETWORKS = 3, 24, 8
"""Colleagues of each entity; web sites, and the networks (channels) that they share."""
SHARED = {"reminder": (6, "calendar"), "record": (6, "registry"), "note": (10, "mail")}
"""Number of sources that serve all entities, each with a channel of its own, and the medium."""
COLUMNS = (
    "entity", "attribute", "value", "source", "kind", "channel", "time", "claim", "denies", "lasting", "hedging",
)  # fmt: skip


class World(NamedTuple):
    """A draw with everything that is true of it."""

    claims: pd.DataFrame
    """COLUMNS; `denies` is missing where nothing is denied."""
    settled: pd.DataFrame
    """entity, attribute, value, time: states of about half of the questions on random days."""
    ledger: pd.DataFrame
    """By claim: `way` (fresh, one-off, repeat, copy, fraud), `state` (on its day), and of fresh ones `seen` (the state
    that was looked at) and `chance` (probability with which it was to be wrong)."""
    states: pd.DataFrame
    """entity, attribute, day, value: first state of each question and all changes."""


@dataclass
class Scene:
    """One question while it is drawn."""

    rng: np.random.Generator
    entity: int
    attribute: str
    first: int
    last: int
    days: list[int]
    states: list[int]
    natural: int
    claims: list[dict[str, Any]] = field(default_factory=list)

    def place(self, day: int) -> int:
        """Which of the states holds on a day; the first one before it began."""
        return max(int(np.searchsorted(self.days, day, side="right")) - 1, 0)

    def state(self, day: int) -> int:
        return self.states[self.place(day)]

    def other_than(self, state: int) -> int:
        """A value drawn uniformly from the others."""
        answers = ATTRIBUTES[self.attribute].answers
        return int((state + self.rng.integers(1, answers)) % answers)

    def mistake(self, place: int) -> int:
        """A wrong answer where the state at `place` was seen."""
        state, former = self.states[place], self.states[place - 1] if place else self.states[place]
        draw = self.rng.random()
        if former != state and draw < FORMER:
            return former
        if self.natural != state and FORMER <= draw < FORMER + NATURAL:
            return self.natural
        return self.other_than(state)

    def add(self, day: int, who: tuple[str, str, str], value: int, way: str, **more: Any) -> dict[str, Any]:
        """Write a claim down; `who` is source, kind, channel."""
        source, kind, channel = who
        claim: dict[str, Any] = {"day": day, "source": source, "kind": kind, "channel": channel, "value": value}
        claim |= {"way": way, "seen": None, "chance": np.nan, "denies": None, "lasting": 1.0, "hedging": 0.0}
        self.claims.append(claim | {"state": self.state(day)} | more)
        return self.claims[-1]


class Cast:
    """Who speaks: the sources of the world, each with its own log odds beside the kind's."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.leaning: dict[str, float] = {}
        self.unknown = 0

    def wrong(self, source: str, kind: str, hedging: float) -> float:
        """Probability that what this source saw comes out wrong."""
        own = self.leaning.setdefault(source, float(SPREAD * self.rng.standard_normal()))
        return float(expit(logit(KINDS[kind].wrong) + own + WARNED * hedging))

    def pick(self, kind: str, entity: int) -> tuple[str, str, str]:
        """Source, kind and channel of a claim."""
        rng = self.rng
        if kind == "principal":
            return f"principal {entity}", kind, f"{rng.choice(['mail', 'mail', 'phone'])}:principal-{entity}"
        if kind == "colleague":
            one = f"{entity}-{rng.integers(COLLEAGUES)}"
            return f"colleague {one}", kind, f"{rng.choice(['phone', 'chat'])}:colleague-{one}"
        if kind == "web":
            site = int(rng.integers(SITES))
            return f"site {site}", kind, f"web:network-{site % NETWORKS}"
        if kind == "stranger":
            self.unknown += 1
            return f"unknown {self.unknown}", kind, f"{rng.choice(['mail', 'phone', 'desk'])}:unknown-{self.unknown}"
        number, medium = SHARED[kind]
        one = int(rng.integers(number))
        return f"{kind} {one}", kind, f"{medium}:{kind}-{one}"


def begin(entity: int, attribute: str, rng: np.random.Generator) -> Scene:
    """A question with its states and no claims."""
    facts = ATTRIBUTES[attribute]
    length = int(min(DAYS, STAYS * facts.stay))
    first = int(rng.integers(DAYS - length + 1))
    changes = np.flatnonzero(rng.random(length - 1) < -np.expm1(-1 / facts.stay)) + 1
    scene = Scene(rng, entity, attribute, first, first + length, [first, *(first + changes).tolist()], [], 0)
    for _ in scene.days:
        scene.states.append(scene.other_than(scene.states[-1]) if scene.states else int(rng.integers(facts.answers)))
    scene.natural = int(rng.integers(facts.answers))
    return scene


def look(scene: Scene, cast: Cast, day: int, who: tuple[str, str, str], announcement: bool = False) -> None:
    """A claim of a source that looked for itself."""
    rng, (source, name, _) = scene.rng, who
    kind = KINDS[name]
    lag = 0 if announcement else int(rng.exponential(min(kind.lag, ATTRIBUTES[scene.attribute].stay / 2)))
    place = scene.place(day - lag)
    seen = scene.states[place]
    if not announcement and rng.random() < kind.one_off:
        scene.add(day, who, scene.other_than(seen), "one-off", lasting=float(rng.choice(LASTINGS)))
        return
    hedging = float(rng.choice(HEDGINGS)) if rng.random() < kind.hedges else 0.0
    chance = cast.wrong(source, name, hedging)
    value = scene.mistake(place) if rng.random() < chance else seen
    denial = ANNOUNCED_DENIAL if announcement else kind.names_old
    former = scene.states[place - 1] if place and value == seen and rng.random() < denial else None
    claim = scene.add(day, who, value, "fresh", seen=seen, chance=chance, hedging=hedging, denies=former)
    if name in ("web", "stranger") and rng.random() < SYNDICATED:
        syndicate(scene, claim)


def syndicate(scene: Scene, claim: dict[str, Any]) -> None:
    """Copies of a claim in its channel, right or wrong."""
    day, channel = claim["day"], claim["channel"]
    warnings = {name: claim[name] for name in ("denies", "lasting", "hedging")}
    for number in range(int(scene.rng.integers(COPIES[0], COPIES[1] + 1))):
        day += int(scene.rng.exponential(COPIED_AFTER))
        if day < scene.last:
            kind = "web" if claim["kind"] == "web" else "note"
            scene.add(day, (f"copy {number} in {channel}", kind, channel), claim["value"], "copy", **warnings)


def repeat(scene: Scene, earlier: list[dict[str, Any]], day: int, who: tuple[str, str, str]) -> None:
    """A claim that says again what an earlier one said."""
    _, kind, channel = who
    weights = [
        (1 + SAME_CHANNEL * (c["channel"] == channel) + WELL_PLACED * (c["kind"] in ("principal", "record")))
        * 2.0 ** (-(day - c["day"]) / KINDS[kind].half_life)
        for c in earlier
    ]
    model = earlier[int(scene.rng.choice(len(earlier), p=np.array(weights) / sum(weights)))]
    kept = scene.rng.random() < KEEPS
    warnings = {"lasting": model["lasting"], "hedging": model["hedging"]} if kept else {}
    scene.add(day, who, model["value"], "repeat", **warnings)


def defraud(scene: Scene, cast: Cast) -> None:
    """An unknown sender who insists on a wrong value and denies the state."""
    day, who = int(scene.rng.integers(scene.first, scene.last)), cast.pick("stranger", scene.entity)
    state = scene.state(day)
    value = scene.other_than(state)
    for _ in range(int(scene.rng.integers(FRAUD_MESSAGES[0], FRAUD_MESSAGES[1] + 1))):
        if day < scene.last:
            scene.add(day, who, value, "fraud", denies=state)
        day += 1 + int(scene.rng.exponential(FRAUD_EVERY))


def tell(scene: Scene, cast: Cast) -> None:
    """All claims on a question, in order of time."""
    rng = scene.rng
    number = min(1 + int(rng.poisson(CHATTER)), MOST)
    agenda = [(int(day), False) for day in rng.integers(scene.first, scene.last, number)]
    for day in scene.days[1:]:
        told = day + int(rng.exponential(ANNOUNCED_AFTER))
        if rng.random() < ANNOUNCED and told < scene.last:
            agenda.append((told, True))
    if rng.random() < ATTRIBUTES[scene.attribute].fraud:
        defraud(scene, cast)
    names, shares = list(KINDS), [kind.share for kind in KINDS.values()]
    for day, announcement in sorted(agenda):
        name = "principal" if announcement else str(rng.choice(names, p=shares))
        who = cast.pick(name, scene.entity)
        earlier = [claim for claim in scene.claims if claim["day"] < day]
        if announcement or not earlier or rng.random() < KINDS[name].fresh:
            look(scene, cast, day, who, announcement)
        else:
            repeat(scene, earlier, day, who)
    scene.claims.sort(key=lambda claim: claim["day"])


def dates(days: pd.Series) -> pd.Series:
    return (START + pd.to_timedelta(days, unit="D")).dt.strftime("%Y-%m-%d")


def named(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The same with codes of answers as text: the attribute and a number; no answer stays missing."""
    for column in columns:
        pairs = zip(frame["attribute"], frame[column], strict=True)
        frame[column] = [None if pd.isna(code) else f"{name} {int(code)}" for name, code in pairs]
    return frame


def draw(entities: int = 240, seed: int = 0) -> World:
    """A world of `entities` × all attributes, with everything that is true of it.

    Args:
        entities: number of entities; each has one question an attribute.
        seed: the same seed gives the same world.
    """
    rng = np.random.default_rng(seed)
    cast, claims, settled, states = Cast(rng), [], [], []
    for entity in range(entities):
        for attribute in ATTRIBUTES:
            scene = begin(entity, attribute, rng)
            tell(scene, cast)
            about = {"entity": f"entity {entity}", "attribute": attribute}
            claims += [about | claim for claim in scene.claims]
            states += [about | {"day": d, "value": v} for d, v in zip(scene.days, scene.states, strict=True)]
            if rng.random() < SETTLED:
                times = rng.integers(SETTLED_TIMES[0], SETTLED_TIMES[1] + 1)
                days = np.sort(rng.choice(np.arange(scene.first, scene.last), times, replace=False)).tolist()
                settled += [about | {"value": scene.state(day), "day": day} for day in days]
    table = named(pd.DataFrame(claims), "value", "denies", "seen", "state")
    table["claim"] = [f"c{number}" for number in range(len(table))]
    table["time"] = dates(table["day"])
    facts = named(pd.DataFrame(settled), "value")
    facts["time"] = dates(facts["day"])
    return World(
        table[list(COLUMNS)],
        facts.drop(columns="day"),
        table[["claim", "way", "seen", "state", "chance"]],
        named(pd.DataFrame(states), "value"),
    )


def assistant_world(entities: int = 240, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims and settled facts, the latter with value and time, as `nousppl.Evidence` takes them.

    Args:
        entities: number of entities; each has one question an attribute.
        seed: the same seed gives the same world.
    """
    world = draw(entities, seed)
    return world.claims, world.settled
