"""The cost of fits: a step of SVI against the model with enumerated truths and origins, NUTS against the plain
non-centred model, a cold fit against ``numpyro.infer.SVI.run``.

5,000 questions of 8 claims and 4 answers, 200 sources, nothing settled. What is compared is run in turn, the best of
several rounds is taken, and verdicts are on processor time: it depends less on what else runs.

The enumerated model with origins is written in two ways. The truth of each question and the origin of each claim (fresh
or an earlier claim) are ``infer={"enumerate": "parallel"}`` in both. Plainly, there are plates of questions and of
claims, an origin site in both of them, and numpyro sums one table of (origins, answers, questions, claims, values).
With more care, as what earlier claims say is data, an origin occurs in the law of its own claim only: a site for each
place among the claims, and tables of (origins of one claim, answers, questions, values). Neither makes the product of
all origins. Both log densities are compared with ours before anything is timed. What is to be reached is against the
plain way, in which such a model is written first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from benchmarks.table import Row, at_least, at_most, shown
from numpyro.contrib.funsor import config_enumerate, enum
from numpyro.contrib.funsor import log_density as enumerated_density
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, SVI, TraceEnum_ELBO, init_to_median
from numpyro.infer import NUTS as Kernel
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.util import log_density as plain_density
from numpyro.ops.indexing import Vindex
from numpyro.optim import Adam

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference.backend import JAX
from nousppl.inference.guide import initial
from nousppl.inference.packed import packing
from nousppl.inference.svi import ADAM, Frozen, block_runner
from nousppl.models.layout import Layout
from nousppl.models.program import COPY_ERROR, Plan, program

QUESTIONS, CLAIMS, ANSWERS, SOURCES = 5_000, 8, 4, 200
ORIGINS = {"reliability only": None, "with origins": nous.Origin(lag=False)}
STEPS = {"reliability only": (100, 20), "with origins": (40, 3)}
"""Steps of a block of ours and of the enumerated model."""
WAYS: dict[str, dict[str, dict[str, bool]]] = {
    "reliability only": {
        "laws from a table": {"origins": False, "by_table": True},
        "laws written out for each claim": {"origins": False, "by_table": False},
    },
    "with origins": {"written plainly, in plates of claims": {}, "with care, claim by claim": {"origins": True}},
}
"""How the enumerated model is written: arguments of `enumerated`, or none for `enumerated_plainly`."""
FASTER = {"reliability only": 12, "with origins": 40}
REPEATS = 5
SAME = 1e-5
TOTAL, MIB = QUESTIONS * CLAIMS, 2**20
CHAINS = nous.NUTS(num_warmup=200, num_samples=200, num_chains=2)
HYPERPARAMETERS = ("reliability_Intercept", "reliability_1|source_sigma")
COLD_STEPS, COLD_REPEATS = 1500, 2
OURS = "trust = model.fit(evidence, nous.SVI(steps=int(sys.argv[2]), tolerance=-1e9), learn_from='all', seed=0)"
THEIRS = """
from jax import random
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.optim import Adam
program = model.program(evidence, learn_from="all")
SVI(program, AutoNormal(program), Adam(0.05), Trace_ELBO()).run(random.key(0), int(sys.argv[2]), progress_bar=False)
"""
COLD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from benchmarks import fits
import nousppl as nous
evidence, model = nous.Evidence(fits.table()), fits.model_of(None)
wall, cpu = time.perf_counter(), time.process_time()
{fit}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


class Case(NamedTuple):
    """Our side: the parameters, sizes and arrays of the fit."""

    plan: Plan
    layout: Layout
    shared: dict[str, Any]
    stacked: dict[str, Any]


def table(seed: int = 0) -> pd.DataFrame:
    """Claims of sources that are right .5 to .95 of the time; the truth is always answer 0."""
    rng = np.random.default_rng(seed)
    source = np.stack([rng.choice(SOURCES, CLAIMS, replace=False) for _ in range(QUESTIONS)])
    right = rng.random(source.shape) < rng.uniform(0.5, 0.95, SOURCES)[source]
    value = np.where(right, 0, rng.integers(1, ANSWERS, source.shape))
    question, place = np.indices(source.shape)
    columns = {"entity": question, "value": value, "source": source, "time": place}
    return pd.DataFrame({name: column.ravel() for name, column in columns.items()}).assign(attribute="x")


def model_of(origin: nous.Origin | None) -> nous.TrustModel:
    """Reliability by source, with origins or without."""
    errors = nous.Errors(popularity=False, difficulty=False)
    return nous.TrustModel(origin=origin, errors=errors, answers={"x": list(range(ANSWERS))})


def case(origin: nous.Origin | None) -> Case:
    """The problem of a fit on all questions."""
    evidence = nous.Evidence(table())
    blueprint = draw_up(model_of(origin), evidence)
    encoded = blueprint.encode(evidence)
    problem = compile_problem(encoded, np.arange(QUESTIONS))
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    return Case(blueprint.plan, layout, shared, stacked)


def learned(source: Any, same: Any, origins: bool) -> tuple[Any, Any, Any, Any]:
    """Sites of the parameters, in the names of ours; P(right) by source and by claim, and for (questions, claims) the
    weights of looking for oneself and of being repeated (None without origins)."""
    effects = {}
    intercept = numpyro.sample("reliability_Intercept", dist.Normal(1.1, 1.0))
    for part in ("reliability", "freshness") if origins else ("reliability",):
        spread = numpyro.sample(f"{part}_1|source_sigma", dist.HalfNormal(0.7))
        raw = numpyro.sample(f"{part}_1|source_raw", dist.Normal(0.0, 1.0).expand([SOURCES]).to_event(1))
        effects[part] = spread * raw
    right_of = jax.nn.sigmoid(intercept + effects["reliability"])
    right = right_of[source]
    if not origins:
        return right_of, right, None, None
    strangers = jnp.exp(numpyro.sample("origin_log_strangers", dist.Normal(-4.0, 1.0)))
    numpyro.sample("origin_same_source", dist.Normal(3.0, 1.0))
    fresh = jnp.exp(effects["freshness"])[source]
    return right_of, right, fresh, strangers * fresh / (fresh + strangers * same)


def enumerated(source: Any, value: Any, same: Any, origins: bool, by_table: bool = True) -> None:
    """The model as numpyro users write it, in the names of our parameters.

    Args:
        source: (questions, claims) index.
        value: (questions, claims) answer.
        same: (questions, claims) number of earlier claims with the same answer.
        origins: whether a claim may repeat an earlier one.
        by_table: without origins, look laws up in a table by source and truth, as the models of crowd labels among
            numpyro's own examples do (``annotation.py``), else write them out for each claim.
    """
    right_of, right, fresh, weight = learned(source, same, origins)
    answers, flat = jnp.arange(ANSWERS), dist.Categorical(probs=jnp.full(ANSWERS, 1.0 / ANSWERS))
    if not origins:
        with numpyro.plate("question", QUESTIONS, dim=-2):
            truth = numpyro.sample("truth", flat, infer={"enumerate": "parallel"})
            with numpyro.plate("claim", CLAIMS, dim=-1):
                if by_table:
                    wrong = (1.0 - right_of)[:, None, None] / (ANSWERS - 1)
                    laws = jnp.where(jnp.eye(ANSWERS) > 0.0, right_of[:, None, None], wrong)
                    law = dist.Categorical(logits=Vindex(jnp.log(laws))[source, truth, :])
                else:
                    wrong = (1.0 - right[..., None]) / (ANSWERS - 1)
                    law = dist.Categorical(probs=jnp.where(truth[..., None] == answers, right[..., None], wrong))
                numpyro.sample("value", law, obs=value)
        return
    with numpyro.plate("question", QUESTIONS):
        truth = numpyro.sample("truth", flat, infer={"enumerate": "parallel"})
        for j in range(CLAIMS):
            wrong = (1.0 - right[:, j, None]) / (ANSWERS - 1)
            law = jnp.where(truth[..., None] == answers, right[:, j, None], wrong)
            if j:
                prior = jnp.concatenate([fresh[:, j : j + 1], weight[:, :j]], axis=1)
                origin = numpyro.sample(
                    f"origin_{j}",
                    dist.Categorical(probs=prior / prior.sum(1, keepdims=True)),
                    infer={"enumerate": "parallel"},
                )
                earlier = value[jnp.arange(QUESTIONS), jnp.maximum(origin - 1, 0)]
                copied = (1.0 - COPY_ERROR) * (earlier[..., None] == answers) + COPY_ERROR / ANSWERS
                law = jnp.where((origin == 0)[..., None], law, copied)
            numpyro.sample(f"claim_{j}", dist.Categorical(probs=law), obs=value[:, j])


def enumerated_plainly(source: Any, value: Any, same: Any) -> None:
    """The model with origins as it is written first: plates of questions and of claims, a truth in the one and an
    origin in both. Arguments as of `enumerated`."""
    _, right, fresh, weight = learned(source, same, True)
    earlier = jnp.tril(jnp.ones((CLAIMS, CLAIMS)), -1)[:, :-1] * weight[:, None, :-1]
    prior = jnp.concatenate([fresh[..., None], earlier], axis=-1)
    answers, flat = jnp.arange(ANSWERS), dist.Categorical(probs=jnp.full(ANSWERS, 1.0 / ANSWERS))
    with numpyro.plate("question", QUESTIONS, dim=-2):
        truth = numpyro.sample("truth", flat, infer={"enumerate": "parallel"})
        with numpyro.plate("claim", CLAIMS, dim=-1):
            law = dist.Categorical(probs=prior / prior.sum(-1, keepdims=True))
            origin = numpyro.sample("origin", law, infer={"enumerate": "parallel"})
            repeated = value[jnp.arange(QUESTIONS)[:, None], jnp.maximum(origin - 1, 0)]
            copied = (1.0 - COPY_ERROR) * (repeated[..., None] == answers) + COPY_ERROR / ANSWERS
            wrong = (1.0 - right[..., None]) / (ANSWERS - 1)
            looked = jnp.where(truth[..., None] == answers, right[..., None], wrong)
            law = jnp.where((origin == 0)[..., None], looked, copied)
            numpyro.sample("value", dist.Categorical(probs=law), obs=value)


def as_arrays() -> tuple[Any, Any, Any]:
    """Arguments of `enumerated`."""
    claims = table()
    source, value = (claims[name].to_numpy().reshape(QUESTIONS, CLAIMS) for name in ("source", "value"))
    # Levels are in the order of their names.
    source = pd.Index(sorted(map(str, range(SOURCES)))).get_indexer(source.astype(str).ravel()).reshape(source.shape)
    same = np.stack([(value[:, :j] == value[:, j : j + 1]).sum(1) for j in range(CLAIMS)], axis=1)
    return jnp.asarray(source, jnp.int32), jnp.asarray(value, jnp.int32), jnp.asarray(same, float)


def difference(ours: Case, origins: bool, plainly: bool = False) -> float:
    """Relative difference of our log density and the enumerated one at a point away from the mode."""
    rng = np.random.default_rng(1)
    values = {}
    for site in ours.plan.sites:
        name = site.name if site.scale is None else site.name + "_raw"
        value = rng.normal(0.3, 0.3, site.size or ())
        values[name] = jnp.asarray(np.abs(value) if name.endswith("_sigma") else value, float)
    one, _ = plain_density(partial(program, JAX, ours.plan, ours.layout), (not_centred(ours),), {}, values)
    how = {} if plainly else {"origins": origins}
    written = config_enumerate(enumerated_plainly if plainly else enumerated)
    model = enum(written, first_available_dim=-2 if origins and not plainly else -3)
    two, _ = enumerated_density(model, as_arrays(), how, values)
    return abs(float(one) - float(two)) / abs(float(two))


def not_centred(ours: Case) -> dict[str, Any]:
    """Arrays of the problem with all effects non-centred."""
    data = ours.shared | {name: value[0] for name, value in ours.stacked.items()}
    return {n: jnp.asarray(np.zeros_like(v) if n.startswith("centred ") else v) for n, v in data.items()}


class Compiled(NamedTuple):
    """A block of steps."""

    run: Callable[[], Any]
    steps: int
    bytes: int
    """Of temporary arrays, as XLA plans them."""


def our_steps(ours: Case, steps: int) -> Compiled:
    """A block of steps of our fit."""
    pack = packing(ours.plan, 0)
    state = initial(ours.plan, pack)
    noise = jnp.asarray(np.random.default_rng(0).standard_normal((steps, 1, pack.size)), float)
    shared = {name: jnp.asarray(value) for name, value in ours.shared.items()}
    shared |= {"at_vote": jnp.asarray(0.0), "spread": jnp.asarray(1.0)}
    split = {name: jnp.asarray(value) for name, value in ours.stacked.items()}
    given = (state, ADAM.init(state), noise, jnp.zeros(steps, jnp.int32), shared, split, jnp.asarray(0.01))
    code = block_runner(Frozen(ours.plan), ours.layout, pack, ADAM, 1).lower(*given).compile()
    return Compiled(lambda: jax.block_until_ready(code(*given)), steps, code.memory_analysis().temp_size_in_bytes)


def their_steps(steps: int, **how: Any) -> Compiled:
    """The same number of steps of numpyro's SVI on the enumerated model, in one compiled scan; without arguments on
    that of `enumerated_plainly`."""
    arrays = as_arrays()
    model = enumerated if how else enumerated_plainly
    hidden = ["truth", *([f"origin_{j}" for j in range(1, CLAIMS)] if how else ["origin"])]
    svi = SVI(
        config_enumerate(model),
        AutoNormal(numpyro.handlers.block(model, hide=hidden)),
        Adam(0.01),
        TraceEnum_ELBO(max_plate_nesting=1 if how.get("origins") else 2),
    )
    state = svi.init(jax.random.key(0), *arrays, **how)

    @jax.jit
    def block(state: Any, *arrays: Any) -> Any:
        return jax.lax.scan(lambda s, _: svi.update(s, *arrays, **how), state, None, length=steps)

    code = block.lower(state, *arrays).compile()
    memory = code.memory_analysis().temp_size_in_bytes
    return Compiled(lambda: jax.block_until_ready(code(state, *arrays)), steps, memory)


def in_turn(blocks: list[Compiled]) -> list[tuple[float, float]]:
    """Seconds a step of each, of the processors and on the wall: the best of several rounds."""
    found: list[list[tuple[float, float]]] = [[] for _ in blocks]
    for _ in range(REPEATS):
        for block, times in zip(blocks, found, strict=True):
            wall, cpu = time.perf_counter(), time.process_time()
            block.run()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            times.append((cpu / block.steps, wall / block.steps))
    return [tuple(np.min(times, axis=0)) for times in found]


def steps() -> list[Row]:
    """A step of SVI on numpyro, against the enumerated model."""
    rows = []
    for name, origin in ORIGINS.items():
        ours, origins = case(origin), origin is not None
        for plainly in (False, True)[: 1 + origins]:
            apart = difference(ours, origins, plainly)
            where = f"{name}{', plates of claims' if plainly else ''}"
            rows.append(at_most("enumerated: relative difference of log densities", where, TOTAL, apart, SAME))
        mine, other = STEPS[name]
        blocks = [our_steps(ours, mine), *(their_steps(other, **how) for how in WAYS[name].values())]
        (cpu, wall), *found = in_turn(blocks)
        for way, block, (their_cpu, their_wall) in zip(WAYS[name], blocks[1:], found, strict=True):
            how = f"{name}, {way}"
            ms = f"{how}; processor time, best of {REPEATS} in turn: {1e3 * cpu:.2f} and {1e3 * their_cpu:.2f} ms"
            ratio = ("step of SVI, enumerated over ours", ms, TOTAL, their_cpu / cpu)
            judged = way == next(iter(WAYS[name]))
            rows.append(at_least(*ratio, FASTER[name]) if judged else shown(*ratio))
            rows.append(shown("the same on the wall", how, TOTAL, their_wall / wall))
            memory = f"temporary arrays as XLA plans them: {blocks[0].bytes / MIB:.1f} and {block.bytes / MIB:.1f} MiB"
            share = ("its memory, ours over enumerated", f"{how}; {memory}", TOTAL, blocks[0].bytes / block.bytes)
            rows.append(at_most(*share, 1 / 20) if origins and judged else shown(*share))
    return rows


def steps_on_pyro() -> list[Row]:
    """The same on pyro, reliability only; no row where pyro is not installed."""
    try:
        from benchmarks import backends

        from nousppl.inference.torch_backend import one_thread, random_numbers
    except ModuleNotFoundError as error:
        print(f"steps on pyro: left out ({error})", file=sys.stderr)
        return []
    claims = table()
    with one_thread(), random_numbers(0):
        ours = backends.milliseconds(backends.ours(claims, None, "pyro"))
        theirs = backends.milliseconds(backends.enumerated(claims))
    where = f"reliability only, one thread: {ours:.2f} ms and {theirs:.2f} ms a step"
    return [at_least("step of SVI on pyro, enumerated over ours", where, len(claims), theirs / ours, 5)]


class Sampled(NamedTuple):
    """A run of chains."""

    least: float
    """Effective draws of the hyperparameter that has the fewest."""
    cpu: float
    wall: float


def sampled(run: Callable[[], dict[str, Any]]) -> Sampled:
    """Time of a run and the effective draws of what it returns by hyperparameter, (chains, draws)."""
    wall, cpu = time.perf_counter(), time.process_time()
    draws = run()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return Sampled(min(float(effective_sample_size(np.asarray(draws[n]))) for n in HYPERPARAMETERS), cpu, wall)


def our_chains(seed: int) -> Sampled:
    """Our fit by NUTS, tables to draws."""
    evidence = nous.Evidence(table())
    return sampled(lambda: dict(model_of(None).fit(evidence, CHAINS, seed, "all").posterior_draws))


def plain_chains() -> Callable[[int], Sampled]:
    """numpyro's NUTS on the same marginal density, all effects non-centred; called again it compiles nothing."""
    ours = case(None)
    data = not_centred(ours)
    mcmc = MCMC(
        Kernel(partial(program, JAX, ours.plan, ours.layout), init_strategy=init_to_median),
        num_warmup=CHAINS.num_warmup,
        num_samples=CHAINS.num_samples,
        num_chains=CHAINS.num_chains,
        chain_method="sequential",
        progress_bar=False,
        jit_model_args=True,
    )

    def run(seed: int) -> dict[str, Any]:
        mcmc.run(jax.random.key(seed), data)
        return mcmc.get_samples(group_by_chain=True)

    return lambda seed: sampled(lambda: run(seed))


def chains() -> list[Row]:
    """NUTS: effective draws per second of the hyperparameter that has the fewest."""
    plain = plain_chains()
    cold = [our_chains(0), plain(0)]
    warm = [our_chains(1), plain(1)]
    rows = []
    for what, (one, two) in (("without compilation", warm), ("with compilation", cold)):
        speeds = f"{one.least:.0f} in {one.cpu:.1f} s and {two.least:.0f} in {two.cpu:.1f} s of processor time"
        where = f"{CHAINS.num_chains} chains of {CHAINS.num_warmup} + {CHAINS.num_samples}, {what}; {speeds}"
        ratio, n = (one.least / one.cpu) / (two.least / two.cpu), QUESTIONS * CLAIMS
        title = "NUTS, least effective draws per second, ours over plain"
        rows.append(at_least(title, where, n, ratio, 10))
        rows.append(shown("the same on the wall", what, n, (one.least / one.wall) / (two.least / two.wall)))
    return rows


def alone(fit: str) -> tuple[float, float]:
    """Seconds on the wall and of the processors that a fit takes in a process of its own, imports not counted."""
    root = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-W", "ignore", "-c", COLD.format(fit=fit), root, str(COLD_STEPS)]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    wall, cpu = done.stdout.split()[-2:]
    return float(wall), float(cpu)


def cold() -> list[Row]:
    """A first fit of a process: ours against numpyro's own loop on the same density, the same number of steps."""
    found = [(alone(OURS), alone(THEIRS)) for _ in range(COLD_REPEATS)]
    (wall, cpu), (their_wall, their_cpu) = np.min(found, axis=0)
    where = f"reliability only, {COLD_STEPS} steps, best of {COLD_REPEATS}: "
    n = QUESTIONS * CLAIMS
    by = f"processor time {cpu:.1f} s and {their_cpu:.1f} s"
    return [
        at_most("cold fit, ours over numpyro's SVI.run", where + by, n, cpu / their_cpu, 1 / 3),
        shown("the same on the wall", where + f"{wall:.1f} s and {their_wall:.1f} s", n, wall / their_wall),
    ]


def rows() -> list[Row]:
    """All rows."""
    return [*steps(), *steps_on_pyro(), *chains(), *cold()]
