"""How the cost of a fit grows with the claims, against one pass of numpy and against other packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from benchmarks import data_sets
from benchmarks.table import Row, at_least, at_most, folder, shown, watch
from numpy.typing import NDArray

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.inference.backend import JAX
from nousppl.inference.packed import log_density, packing

SITES = 35
PER_QUESTION = 19.1
"""Claims on a question, about."""
PAIRS_AT = 258_000
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Numbers of claims between which the growth is taken."""
REPEATS = 7
ROUNDS = 25
PATIENCE = 600.0
"""Seconds after which a method of another package is stopped."""
ENOUGH = 15.0
"""It is stopped earlier where it has taken so many times our time."""
PEER = """
import sys, time
import pandas as pd
from crowdkit import aggregation
table = pd.read_csv(sys.argv[1], dtype=str).rename(columns={"entity": "task", "source": "worker", "value": "label"})
table = table[["task", "worker", "label"]]
start = time.perf_counter()
getattr(aggregation, sys.argv[2])().fit_predict_proba(table)
print(time.perf_counter() - start)
"""
OURS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from benchmarks import crowd, data_sets
import nousppl as nous
if len(sys.argv) > 3:
    nous.keep_compiled(sys.argv[3])
task = data_sets.crowd(sys.argv[2])[0]
start = time.perf_counter()
crowd.model(task.answers).fit(task.evidence, crowd.OPTIONS, learn_from="all").posteriors(task.evidence)
print(time.perf_counter() - start)
"""


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
    function = jax.jit(jax.value_and_grad(log_density(JAX, blueprint.plan, layout, pack)))
    point = np.random.default_rng(0).normal(0, 0.3, pack.size)
    return function, point, data


def timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the wall and of the processors."""
    with watch() as taken:
        function()
    return taken.wall, taken.cpu


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


def gradient_ratio() -> list[Row]:
    """Value and gradient of the log density against one pass of numpy, taken turn about."""
    function, point, data = density(*snapshot(PAIRS_AT))
    device, at = jax.device_put({n: jnp.asarray(v) for n, v in data.items()}), jnp.asarray(point)
    jax.block_until_ready(function(at, device))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(timed(lambda: jax.block_until_ready(function(at, device))))
        theirs.append(timed(lambda: numpy_pass(data, point)))
    (wall, cpu), (plain, plain_cpu) = np.min(ours, axis=0), np.min(theirs, axis=0)
    pairs = len(data["kin_row"]) + len(data["apart_slot"])
    where = (
        f"{pairs:,} listed pairs, {len(data['term_row']):,} pairs of claim and answer; one pass of numpy forward only"
    )
    times = f"best of {ROUNDS} in turn: {1000 * wall:.0f} ms and {1000 * plain:.0f} ms"
    n = len(data["claim_zero"])
    return [
        at_most("log density and gradient: ratio", f"{where}; {times}", n, wall / plain, 3),
        shown("the same in processor time", where, n, cpu / plain_cpu),
    ]


def growth() -> list[Row]:
    """Exponent of the time of a value and gradient in the number of claims."""
    claims, times = [], []
    for size in SIZES:
        function, point, data = density(*snapshot(size))
        device, at = jax.device_put({n: jnp.asarray(v) for n, v in data.items()}), jnp.asarray(point)
        jax.block_until_ready(function(at, device))
        runs = [timed(lambda f=function, a=at, d=device: jax.block_until_ready(f(a, d))) for _ in range(REPEATS)]
        claims.append(len(data["claim_zero"]))
        times.append(np.min(runs, axis=0))
    wall, cpu = np.polyfit(np.log(claims), np.log(times), 1)[0]
    where = "value and gradient at " + ", ".join(
        f"{n:,}: {1000 * t[0]:.0f} ms" for n, t in zip(claims, times, strict=True)
    )
    return [
        at_most("growth with the claims: exponent", where, max(claims), float(wall), 1.1),
        shown("the same in processor time", where, max(claims), float(cpu)),
    ]


def peers() -> list[Row]:
    """Crowd labels from tables to beliefs, each method in a process of its own: ours with everything compiled anew, and
    with compiled code kept from the run before, against crowd-kit's GLAD and MACE."""
    rows = []
    for name in ("crowd_product", "crowd_adult"):
        n = len(data_sets.crowd(name)[0].evidence.claims)
        program = [OURS, str(Path(__file__).resolve().parent.parent), name]
        with TemporaryDirectory() as kept:
            cold = alone(program, PATIENCE)
            _, warm = (alone([*program, kept], PATIENCE) for _ in range(2))
        for peer in ("GLAD", "MACE"):
            patience = min(PATIENCE, max(ENOUGH * cold, 60.0))
            seconds = alone([PEER, str(folder(name) / "claims.csv.gz"), peer], patience)
            more = "" if seconds < patience else "more than "
            where = f"{name}, nothing settled, compilation included: {cold:.1f} s against {more}{seconds:.0f} s"
            rows.append(at_least(f"crowd-kit {peer}: times as long", where, n, seconds / cold, 10))
            kept_too = f"{name}, nothing settled, compiled code kept: {warm:.1f} s"
            rows.append(shown(f"crowd-kit {peer}: times as long", kept_too, n, seconds / warm))
    return rows


def alone(program: list[str], patience: float) -> float:
    """Seconds that a program says it took, in a process of its own; at most ``patience``."""
    command = [sys.executable, "-W", "ignore", "-c", *program]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return patience
    return float(done.stdout.split()[-1])


def rows() -> list[Row]:
    """All rows."""
    return [*gradient_ratio(), *growth(), *peers()]
