"""Truths that change: what is learned from simulated worlds, how old news is believed, and what the scans cost."""

from __future__ import annotations

import time
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from benchmarks.halves import recovered
from benchmarks.table import Row, at_least, at_most, shown
from numpy.typing import NDArray

import nousppl as nous
from nousppl.asking import ready
from nousppl.calibration import Marks, score
from nousppl.compile import compile_problem
from nousppl.inference import exact
from nousppl.trust import Trust

SEEDS = 20
DAYS = {"city": 900.0, "job": 200.0, "plan": 20.0}
"""Mean days between two changes."""
ANSWERS = {name: [f"{name} {i}" for i in range(6)] for name in DAYS}
MODEL = nous.TrustModel("1 + (1|source)", "1", change="1 + (1|attribute)", answers=ANSWERS)
AGES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""Days after the last claim."""


@cache
def world(seed: int, entities: int = 150) -> tuple[nous.Evidence, pd.DataFrame, dict[str, NDArray[np.float64]]]:
    """Claims of 20 sources over a year on three attributes of each entity; the truth at the time of each claim is
    settled for half of the entities. Also the truths of the others by claim, and the true parameters."""
    rng = np.random.default_rng(seed)
    rows = [
        (f"e{e:03d}", attribute, f"s{rng.integers(20):02d}", day)
        for e in range(entities)
        for attribute in DAYS
        for day in np.sort(rng.uniform(0.0, 365.0, 6))
    ]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "time"])
    design["claim"] = [f"c{i}" for i in range(len(design))]
    logs = -np.log([DAYS[name] for name in sorted(DAYS)])
    given = {"change_Intercept": logs.mean(), "change_1|attribute_sigma": 1.0, "change_1|attribute": logs - logs.mean()}
    truth, evidence = MODEL.simulate(design, seed, given)
    facts = evidence.claims[["entity", "attribute", "time"]]
    facts = facts.assign(value=truth.truths[evidence.claims["claim"]].to_numpy())
    known = facts["entity"] < f"e{entities // 2:03d}"
    return evidence.with_settled(facts[known]), facts[~known], truth.parameters


@cache
def fitted(seed: int) -> Trust:
    """Learned from the settled half."""
    return MODEL.fit(world(seed)[0], learn_from="settled", seed=seed)


def with_truth(trust: Trust, parameters: dict[str, NDArray[np.float64]]) -> Trust:
    """The trust of someone who knows the true parameters: one draw."""
    draws = {name: np.asarray(value)[None, None] for name, value in parameters.items()}
    return Trust(trust.model, trust.blueprint, draws, {}, trust.table, trust.record, trust.seen)


def recovery() -> list[Row]:
    """Parameters inside their intervals, log loss against that under the true parameters, and calibration."""
    inside, losses, best, parts = [], [], [], []
    for seed in range(SEEDS):
        evidence, rest, parameters = world(seed)
        trust = fitted(seed)
        # The effects were not drawn with their sigma.
        inside.append(recovered(trust, {n: x for n, x in parameters.items() if n != "change_1|attribute_sigma"}))
        last = rest.groupby(["entity", "attribute"], as_index=False).last()
        at = last.set_index(["entity", "attribute"])["time"]
        questions = pd.MultiIndex.from_frame(evidence.questions[["entity", "attribute"]])
        times = at.reindex(questions).fillna(0.0).to_numpy()
        hidden = evidence.with_settled(None)
        beliefs = trust.posteriors(hidden, at=times)
        parts.append(beliefs.marks(last))
        losses.append(float(beliefs.score(last)["log_loss"]))
        best.append(float(with_truth(trust, parameters).posteriors(hidden, at=times).score(last)["log_loss"]))
    share = float(np.concatenate(inside).mean())
    ece = float(np.mean([score(part, 0)["ece"] for part in parts]))
    together = score(Marks(*(np.concatenate(column) for column in zip(*parts, strict=True))), 0)
    n, pooled = int(together["n"]), float(together["ece"])
    where = f"{SEEDS} worlds of 450 questions and 2,700 claims, half settled, truth at the last claim of the others"
    count = len(np.concatenate(inside))
    return [
        at_least("change: parameters inside their 90 % interval", where, count, share, 0.85),
        at_most("change: parameters inside their 90 % interval", where, count, share, 0.95),
        at_most(
            "change: log loss over that of the true parameters", where, SEEDS, np.mean(losses) / np.mean(best), 1.03
        ),
        at_most("change: calibration error of all worlds together", where, n, pooled, 0.02),
        shown("change: calibration error of a world, mean", where, SEEDS, ece),
    ]


def staleness() -> list[Row]:
    """Beliefs some days after the last claim, against what was true then."""
    parts = []
    for seed in range(5):
        evidence, _, parameters = world(seed)
        rng = np.random.default_rng((seed, 1))
        trust, hidden = fitted(seed), evidence.with_settled(None)
        claims = hidden.claims.groupby(["entity", "attribute"]).last()
        rate = np.exp(parameters["change_Intercept"] + parameters["change_1|attribute"])
        rate = pd.Series(rate, sorted(DAYS))[claims.index.get_level_values("attribute")].to_numpy()
        _, rest, _ = world(seed)
        true = rest.groupby(["entity", "attribute"])["value"].last().reindex(claims.index)
        asked = true.notna().to_numpy()
        for age in AGES:
            at = claims["time"].to_numpy() + age
            anew = rng.random(len(at)) >= np.exp(-rate * age)
            drawn = [str(rng.choice(ANSWERS[name])) for name in claims.index.get_level_values("attribute")]
            then = np.where(anew, drawn, true.to_numpy(object))
            facts = claims.index.to_frame(index=False).assign(value=then)[asked]
            parts.append(trust.posteriors(hidden, at=at).marks(facts))
    together = Marks(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    ece = float(score(together, 0)["ece"])
    where = f"5 worlds, {', '.join(f'{age:g}' for age in AGES)} days after the last claim"
    return [at_most("change: calibration error over a sweep of ages", where, len(together.right), ece, 0.03)]


def milliseconds(questions: int, change: str | None) -> float:
    """Processor time of the posterior of the cells under one draw, the best of five, compilation not counted."""
    rng = np.random.default_rng(0)
    shape = (questions, 8)
    value = np.where(rng.random(shape) < 0.7, 0, rng.integers(1, 5, shape))
    times, sources = np.sort(rng.uniform(0.0, 400.0, shape), axis=1), rng.integers(0, 200, shape)
    columns = {"entity": np.indices(shape)[0], "value": value, "source": sources, "time": times}
    claims = pd.DataFrame({name: column.ravel() for name, column in columns.items()}).assign(attribute="x")
    model = nous.TrustModel(change=change, answers={"x": list(range(5))})
    trust = model.default_trust(draws=1)
    encoded = trust.encoded(nous.Evidence(claims))
    problem = compile_problem(encoded, np.arange(questions), 0, np.full(questions, 200.0))
    data, draws = ready(trust.blueprint, encoded, problem, problem.layout, trust.asked(), len(problem.claims))
    data = {name: jnp.asarray(array) for name, array in data.items()}
    best = np.inf
    for _ in range(6):
        start = time.process_time()
        jax.block_until_ready(exact.cell_logs(problem.layout, trust.blueprint.plan.features, data, draws))
        best = min(best, time.process_time() - start)
    return 1e3 * best


def speed() -> list[Row]:
    """Filter and smoother against the static marginal, and how they grow."""
    where = "100,000 questions of 8 claims and 5 answers, asked about the middle of the time; one draw"
    still, moving, few = milliseconds(100_000, None), milliseconds(100_000, "1"), milliseconds(5_000, "1")
    power = float(np.log(moving / few) / np.log(20.0))
    return [
        shown("change: ms of the static marginal", where, 800_000, still),
        shown("change: ms of filter and smoother", where, 800_000, moving),
        at_most("change: filter and smoother over the static marginal", where, 800_000, moving / still, 3.0),
        at_most("change: power of the number of claims, from 5,000 questions on", where, 800_000, power, 1.1),
    ]


def rows() -> list[Row]:
    """All figures."""
    return [*recovery(), *staleness(), *speed()]
