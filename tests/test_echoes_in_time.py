"""Late repetitions of what was true earlier, with trust learned on another world: a moved appointment and a reminder.

The world is written here and is not drawn from the model: people know their appointments, move them and may say which
day no longer holds; calendars repeat what somebody entered earlier, right or outdated; colleagues are often wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.belief import Belief
from nousppl.trust import Trust

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
RATES = {"appointment": 1 / 20, "shift": 1 / 80}
RIGHT = {"principal": 0.97, "colleague": 0.75, "reminder": 0.8}
MODEL = nous.TrustModel(
    reliability="1 + (1|kind)",
    freshness="1 + (1|kind)",
    origin=nous.Origin(strong="same_source + repeats_denied"),
    errors=nous.Errors(difficulty=False),
    change="1 + (1|attribute)",
    answers=dict.fromkeys(RATES, DAYS),
)


def another(rng: np.random.Generator, day: str) -> str:
    return str(rng.choice([other for other in DAYS if other != day]))


def history(rng: np.random.Generator, entity: int, attribute: str) -> list[dict[str, Any]]:
    """The claims on one question, each with the truth at its time."""
    truth, last, said = str(rng.choice(DAYS)), 0.0, []
    for i, time in enumerate(np.sort(rng.uniform(0.0, 60.0, rng.integers(4, 8)))):
        if rng.random() > np.exp(-RATES[attribute] * (time - last)):
            truth = str(rng.choice(DAYS))
        last = float(time)
        kind = "principal" if i == 0 else str(rng.choice(["principal", "colleague", "reminder"], p=[0.4, 0.2, 0.4]))
        value = truth if rng.random() < RIGHT[kind] else another(rng, truth)
        if kind == "reminder" and rng.random() < 0.95:
            value = said[rng.integers(len(said))]["value"]
        own = [claim["value"] for claim in said if claim["kind"] == "principal"]
        # Who expressly says that a day no longer holds nearly always knows it.
        knows = 0.6 if own and own[-1] != truth else 0.05
        moved = kind == "principal" and own and own[-1] != value and rng.random() < knows
        source = {"principal": entity, "colleague": rng.integers(6), "reminder": rng.integers(3)}[kind]
        said.append(
            {
                "entity": f"e{entity:02d}",
                "attribute": attribute,
                "value": value,
                "source": f"{kind} {source}",
                "kind": kind,
                "time": last,
                "denies": own[-1] if moved else None,
                "truth": truth,
            }
        )
    return said


def world(seed: int, entities: int = 60) -> nous.Evidence:
    """Claims of many people, and what was true at the time of half of them."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame([row for e in range(entities) for name in RATES for row in history(rng, e, name)])
    facts = rows[["entity", "attribute", "time"]].assign(value=rows["truth"]).sample(frac=0.5, random_state=seed)
    return nous.Evidence(rows.drop(columns="truth"), settled=facts)


@pytest.fixture(scope="module")
def learned() -> Trust:
    return MODEL.fit(world(3), nous.SVI(steps=500, draws=200), learn_from="settled")


def ask(trust: Trust, *rows: tuple[str, float, str, str | None]) -> Belief:
    """The belief about one appointment after claims: day, time, source (its first word is its kind), denied day."""
    claims = pd.DataFrame(rows, columns=["value", "time", "source", "denies"])
    claims = claims.assign(entity="maya", attribute="appointment", kind=claims["source"].str.split().str[0])
    claims["claim"] = [f"c{i}" for i in range(len(claims))]
    return trust.posterior(nous.Evidence(claims).question("maya", "appointment"))


def moved(denies: str | None) -> list[tuple[str, float, str, str | None]]:
    """She says Tuesday, and ten days later Thursday."""
    return [("tue", 0.0, "principal", None), ("thu", 10.0, "principal", denies)]


def deaf(trust: Trust) -> Trust:
    """The same trust, to which nothing is an echo."""
    weights = ("origin_log_strangers", "origin_same_source", "origin_repeats_denied")
    nothing = {name: np.full_like(trust.posterior_draws[name], -30.0) for name in weights}
    return replace(trust, posterior_draws=trust.posterior_draws | nothing)


@pytest.mark.parametrize("denies", [None, "tue"])
def test_a_reminder_with_the_old_date_is_an_echo(learned: Trust, denies: str | None) -> None:
    belief = ask(learned, *moved(denies), ("tue", 11.0, "reminder", None))
    assert belief.answer == "thu" and belief.probability > 0.8
    assert belief.origins.loc["c2", "c0"] > 0.9


def test_it_is_clearer_where_she_says_what_no_longer_holds(learned: Trust) -> None:
    reminder = ("tue", 11.0, "reminder", None)
    silent, express = (ask(learned, *moved(denies), reminder) for denies in (None, "tue"))
    assert express.probabilities["tue"] < 0.7 * silent.probabilities["tue"]
    assert express.origins.loc["c2", "fresh"] < 0.5 * silent.origins.loc["c2", "fresh"]


@pytest.mark.parametrize("denies", [None, "tue"])
def test_a_genuine_change_back_is_followed(learned: Trust, denies: str | None) -> None:
    back = ("tue", 25.0, "principal", "thu" if denies else None)
    belief = ask(learned, *moved(denies), back)
    assert belief.answer == "tue" and belief.probability > 0.8
    assert belief.origins.loc["c2", "fresh"] > 0.75


@pytest.mark.parametrize(("denies", "most"), [(None, 0.3), ("tue", 0.7)])
def test_the_same_words_from_one_who_looks_for_himself_count(learned: Trust, denies: str | None, most: float) -> None:
    """Negative control: not the value and the time make an echo of it, but who says it."""
    echo, fresh = (ask(learned, *moved(denies), ("tue", 11.0, who, None)) for who in ("reminder", "principal 2"))
    assert fresh.probabilities["thu"] < most < 0.8 < echo.probabilities["thu"]
    assert fresh.probabilities["tue"] > 5.0 * echo.probabilities["tue"]


@pytest.mark.parametrize(("denies", "reminders", "most"), [(None, 1, 0.4), (None, 3, 0.1), ("tue", 3, 0.1)])
def test_without_echoes_reminders_outvote_her(learned: Trust, denies: str | None, reminders: int, most: float) -> None:
    """Negative control: as many reminders with the old date as there are."""
    rows = [*moved(denies), *(("tue", 11.0 + i, "reminder", None) for i in range(reminders))]
    wrong = ask(deaf(learned), *rows)
    assert wrong.answer == "tue" and wrong.probabilities["thu"] < most
    assert ask(learned, *rows).probabilities["thu"] > 0.75


@pytest.mark.long
def test_a_model_without_echoes_is_misled() -> None:
    """The same where it is learned that there are no echoes; and on histories that it has not seen it is worse."""
    evidence, later = world(3), world(4)
    known = later.settled
    last = known.loc[known.groupby(["entity", "attribute"])["time"].idxmax()]
    plain = nous.TrustModel(
        MODEL.reliability, origin=None, errors=MODEL.errors, change=MODEL.change, answers=MODEL.answers
    )
    trusts = [model.fit(evidence, nous.SVI(steps=800), learn_from="settled") for model in (MODEL, plain)]
    reminders = [("tue", 11.0 + i, "reminder", None) for i in range(2)]
    right, wrong = (ask(trust, *moved(None), *reminders) for trust in trusts)
    assert right.probabilities["thu"] > 0.8 and wrong.probabilities["thu"] < right.probabilities["thu"] - 0.15
    hidden = later.with_settled(None)
    places = pd.MultiIndex.from_frame(hidden.questions[["entity", "attribute"]])
    at = last.set_index(["entity", "attribute"])["time"].reindex(places).fillna(60.0).to_numpy()
    scores = [trust.posteriors(hidden, at=at).score(last)["log_loss"] for trust in trusts]
    assert scores[0] < scores[1] - 0.02


def test_one_day_only_is_no_move(learned: Trust) -> None:
    """ "This week on Friday instead" is about a moment."""
    columns = ["value", "time", "kind", "lasting"]
    claims = pd.DataFrame([("tue", 0.0, "principal", None), ("fri", 3.0, "principal", 0.0)], columns=columns)
    claims = claims.assign(entity="maya", attribute="appointment", source="maya's " + claims["kind"])
    question = nous.Evidence(claims).question("maya", "appointment")
    taken = nous.Evidence(claims.drop(columns="lasting")).question("maya", "appointment")
    assert learned.posterior(question).probabilities["tue"] > 0.8
    assert learned.posterior(taken).answer == "fri"
