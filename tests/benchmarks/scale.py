"""How the cost of a fit grows with the claims, against one pass of numpy and against other packages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from benchmarks.table import Row, at_most, shown
from numpy.typing import NDArray

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.inference.packed import log_density, packing

SITES = 35
PER_QUESTION = 19.1
"""Claims on a question, about."""
PAIRS_AT = 258_000
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Numbers of claims between which the growth is taken."""
REPEATS = 7


def snapshot(claims: int, seed: int = 0) -> tuple[nous.Evidence, nous.TrustModel]:
    """A snapshot of many sites as in flight data: about so many claims, all settled, without an order."""
    rng = np.random.default_rng(seed)
    questions = int(claims / PER_QUESTION)
    there = rng.random((questions, SITES)) < PER_QUESTION / SITES
    question, source = np.nonzero(there)
    right = rng.random(len(question)) < rng.beta(6, 2, SITES)[source]
    # A site repeats the one before it in its group of five half the time.
    value = np.where(right, 0, rng.integers(1, 5, len(question)))
    table = np.full((questions, SITES), -1)
    table[question, source] = value
    for site in range(1, SITES):
        if site % 5:
            copied = there[:, site] & there[:, site - 1] & (rng.random(questions) < 0.5)
            table[copied, site] = table[copied, site - 1]
    frame = pd.DataFrame(
        {
            "entity": question,
            "attribute": "time",
            "value": table[question, source],
            "source": pd.Categorical.from_codes(source, [f"s{i:02d}" for i in range(SITES)]).astype(str),
        }
    )
    settled = pd.DataFrame({"entity": np.unique(question), "attribute": "time", "value": 0})
    origin = nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=1)
    return nous.Evidence(frame, settled=settled), nous.TrustModel(origin=origin, answers={"time": 50})


def density(evidence: nous.Evidence, model: nous.TrustModel) -> tuple[Callable[..., Any], NDArray[Any], dict[str, Any]]:
    """Value and gradient of the log density, a point, and the arrays of the problem."""
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    problem = fitting.compile_problem(encoded, fitting.learned_questions(encoded, "settled"), 0)
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    data = shared | {name: value[0] for name, value in stacked.items()}
    pack = packing(blueprint.plan, 20)
    function = jax.jit(jax.value_and_grad(log_density(blueprint.plan, layout, pack)))
    point = np.random.default_rng(0).normal(0, 0.3, pack.size)
    return function, point, data


def seconds(function: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The best time of a few."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def numpy_pass(data: dict[str, NDArray[Any]], point: NDArray[Any]) -> float:
    """What a plain reading of the model costs forward, without gradients: on each table (claims, listed pairs, pairs
    of a claim and an answer) gather by its indices, take one exponential, and add up by segment once."""
    effect = point.astype(np.float32)
    slots, cells = len(data["slot_claim"]), len(data["cell_question"])
    claim = np.exp(effect[data["reliability index"][0]] + effect[data["freshness index"][0]])[data["slot_claim"]]
    before = np.zeros(slots)
    for link, later, earlier in (("kin_link", "kin_row", "kin_slot"), ("apart_link", "apart_slot", "apart_origin")):
        weight = np.exp(effect[data[link] % len(effect)]) * claim[data[earlier]]
        before += np.bincount(data[later], weights=weight, minlength=slots)
    entry = np.exp(-claim[data["term_slot"]]) * before[data["entry_slot"]]
    by_answer = np.bincount(data["entry_icell"], weights=entry, minlength=cells)
    by_instance = np.bincount(data["slot_instance"], weights=before)
    logs = np.exp(-by_answer - by_instance[data["icell_instance"]])
    return float(np.bincount(data["cell_question"], weights=logs).sum())
