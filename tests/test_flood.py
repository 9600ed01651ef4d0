"""Floods of one claim and the discrediting of a true one, on the whole path from tables to beliefs, nothing learned.

Each defence has a control: without it the harm is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.typing import NDArray

import nousppl as nous
from nousppl.asking import parameter_draws, ready
from nousppl.compile import compile_problem
from nousppl.inference.exact import cell_logs, posterior_cells
from nousppl.models import one_of, origin
from nousppl.trust import Trust

Floats = NDArray[np.float64]

COPIES = (1, 10, 100, 1000, 10_000, 100_000)
BAD = (1, 10, 100, 1000, 10_000)
FLOOD, TRUE, SECOND = "flood", "true", 1 / 86_400


def model(K: int, strong: str | None = "same_source", **others: Any) -> nous.TrustModel:
    """The default model, but for reliabilities, which are given as logits in the column ``rel``."""
    priors = {"reliability": {"rel": dist.Normal(1.0, 1e-6)}}
    echoes = None if strong is None else nous.Origin(strong=strong)
    return nous.TrustModel("0 + rel", origin=echoes, answers={"x": K}, priors=priors, **others)


def claims(value: str, count: int, source: str, channel: str, right: float, **columns: Any) -> pd.DataFrame:
    """Claims of one value; a source or channel that ends in ``*`` is another one for every claim."""
    names = [[f"{name[:-1]}{i}" if name.endswith("*") else name for i in range(count)] for name in (source, channel)]
    table = pd.DataFrame({"value": value, "source": names[0], "channel": names[1], "rel": np.log(right / (1 - right))})
    return table.assign(**columns)


def in_order(entity: str, *parts: pd.DataFrame) -> pd.DataFrame:
    """Claims about one question, a second apart."""
    table = pd.concat(parts, ignore_index=True).assign(entity=entity, attribute="x")
    return table.assign(time=np.arange(len(table)) * SECOND)


class Asked:
    """Log probabilities by draw, of several questions at once."""

    def __init__(self, trust: Trust, tables: Sequence[pd.DataFrame], draws: int) -> None:
        evidence = nous.Evidence(pd.concat(tables, ignore_index=True))
        encoded = trust.encoded(evidence)
        questions = np.arange(len(evidence.questions))
        problem = compile_problem(encoded, questions, trust.model.order_seed)
        layout, size = problem.layout, len(problem.claims)
        data, self.parameters = ready(trust.blueprint, encoded, problem, layout, trust.asked(draws), size)
        logs, _ = posterior_cells(layout, trust.blueprint.plan.features, data, self.parameters, False)
        cells, entities = encoded.cells, evidence.questions["entity"].to_numpy()
        names = zip(np.repeat(entities, np.diff(cells.offset)), cells.value, strict=True)
        self.by_answer = dict(zip(names, np.asarray(logs, np.float64).T, strict=True))

    def log(self, entity: str, answer: str) -> Floats:
        """(draws,) log probability."""
        return self.by_answer[entity, answer]

    def p(self, entity: str, answer: str) -> float:
        return float(np.exp(self.log(entity, answer)).mean())


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Compiled code is kept by layout; a rule that is taken out shows only in code that is traced again."""
    cell_logs.clear_cache()
    yield
    cell_logs.clear_cache()


# ------------------------------------------------------------------------------------------------------------ floods


def flooded(trust: Trust, copies: Sequence[int], draws: int) -> Asked:
    """Copies of a wrong claim by one source in its channel, before and after two honest strangers, all right at .95."""
    tables = []
    for n in copies:
        wrong, right = claims("wrong", n, FLOOD, FLOOD, 0.95), claims("right", 2, "honest*", "h*", 0.95)
        tables += [in_order(f"first {n}", wrong, right), in_order(f"last {n}", right, wrong)]
    return Asked(trust, tables, draws)


@pytest.mark.slow
@pytest.mark.parametrize("K", [2, 8])
def test_two_honest_strangers_outweigh_any_flood(K: int) -> None:
    trust = model(K).default_trust()
    draws, asked = trust.asked(16), flooded(trust, COPIES, 16)
    lone = trust.encoded(nous.Evidence(in_order("e", claims("wrong", 1, FLOOD, FLOOD, 0.95))))
    alpha = np.exp(
        parameter_draws(trust.blueprint, lone, draws, compile_problem(lone, np.array([0])))["log_concentration"][:, 0]
    )
    weight = np.exp(draws["origin_same_source"])
    for order in ("first", "last"):
        odds = [asked.log(f"{order} {n}", "wrong") - asked.log(f"{order} {n}", "right") for n in COPIES]
        assert all(asked.p(f"{order} {n}", "right") > asked.p(f"{order} {n}", "wrong") for n in COPIES)
        # Message m adds at most alpha / (w m): a sum of 1/m, which is the logarithm but for the first few.
        first = sum(1 / m for m in range(1, 10))
        growth = np.array([first, *np.diff(np.log(COPIES[1:]))])
        gain = np.diff(odds, axis=0) / growth[:, None]
        assert (gain > 0).all() and (gain <= 1.05 * alpha / weight).all()


def test_without_origins_a_flood_wins() -> None:
    trust = model(8, strong=None, errors=nous.Errors(difficulty=False)).default_trust()
    asked = flooded(trust, (1, 10), 16)
    assert asked.p("first 1", "right") > asked.p("first 1", "wrong")
    assert asked.p("first 10", "right") < 1e-6 and asked.p("last 10", "right") < 1e-6


def test_without_originality_strangers_look_like_echoes_of_the_flood(
    traced_anew: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest strangers who confirm what is flooded are heard, because a flood is one possible origin and not many."""

    def gain() -> float:
        flood = claims("right", 1000, FLOOD, FLOOD, 0.75)
        confirmed = in_order("confirmed", flood, claims("right", 2, "honest*", "h*", 0.75))
        asked = Asked(trust, [in_order("flood", flood), confirmed], 50)
        odds = [np.log(asked.p(e, "right")) - np.log1p(-asked.p(e, "right")) for e in ("flood", "confirmed")]
        return float(odds[1] - odds[0])

    trust = model(2).default_trust()
    heard = gain()
    kept = origin.sums_of_originals
    monkeypatch.setattr(
        origin,
        "sums_of_originals",
        lambda xp, layout, data, originality, *rest: kept(xp, layout, data, originality * 0.0 + 1.0, *rest),
    )
    cell_logs.clear_cache()
    assert gain() < 0.3 * heard


# --------------------------------------------------------------------------------------------------------- discredit


def discredited(trust: Trust, counts: Sequence[int], source: str, channel: str, draws: int = 50) -> dict[str, float]:
    """P(true) where bad sources repeat the true answer before or after five who confirm it and one liar."""
    tables = []
    for count in counts:
        for name, ceiling in (("", 1.0), (" under a ceiling", 0.2)):
            bad = claims(TRUE, count, source, channel, 0.3, ceiling=ceiling)
            honest = claims(TRUE, 5, "honest*", "h*", 0.9, ceiling=1.0)
            liar = claims("lie", 1, "liar", "l", 0.3, ceiling=1.0)
            tables += [
                in_order(f"first {count}{name}", bad, honest, liar),
                in_order(f"last {count}{name}", honest, liar, bad),
            ]
    asked = Asked(trust, tables, draws)
    return {entity: asked.p(entity, TRUE) for entity, answer in asked.by_answer if answer == TRUE}


@pytest.mark.slow
def test_a_bad_source_cannot_discredit_a_truth_by_repeating_it() -> None:
    found = discredited(model(8).default_trust(), BAD, "bad", "bad")
    assert len(found) == 4 * len(BAD)
    assert min(found.values()) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("channel", "least"), [("one", 0.95), ("b*", 0.3)])
def test_many_bad_sources_cannot_discredit_a_truth_by_repeating_it(channel: str, least: float) -> None:
    """What was confirmed stays confirmed. Who confirms it later may be an echo of all these, the more so the less is
    known of what they have in common; such confirmations fade, but never turn into their opposite."""
    found = discredited(model(8, "same_source + same_channel").default_trust(), BAD, "bad*", channel)
    first, last = (min(p for name, p in found.items() if name.startswith(order)) for order in ("first", "last"))
    assert last >= 0.999
    assert first >= least


def independent() -> nous.TrustModel:
    """Without echoes, where nothing but the clip defends the truth against many unrelated bad sources."""
    return model(8, strong=None, errors=nous.Errors(difficulty=False))


def test_unrelated_bad_sources_without_echoes() -> None:
    found = discredited(independent().default_trust(), (100, 1000), "bad*", "b*")
    assert min(found.values()) >= 0.99


@pytest.mark.parametrize("echoes", [True, False])
def test_without_the_clip_they_can(echoes: bool, traced_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_of, "clip", lambda xp, law, *rest: law)
    trust = (model(8) if echoes else independent()).default_trust()
    found = discredited(trust, (100, 1000), "bad*", "b*")
    assert max(found["first 100"], found["last 100"]) < 0.5
    assert max(found["first 1000"], found["last 1000"]) < 0.01
