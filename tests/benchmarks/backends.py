"""Time of a step of SVI on numpyro and on pyro, and of pyro with the truths enumerated: ``python
tests/benchmarks/backends.py``; ratios are of one run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoNormal

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.fits import ANSWERS, CLAIMS, QUESTIONS, SOURCES, table

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference.guide import initial
from nousppl.inference.packed import packing
from nousppl.inference.svi import make_blocks
from nousppl.inference.torch_backend import one_thread, random_numbers

STEPS, REPEATS = 20, 4
ORIGINS = {"no origins": None, "origins": nous.Origin(lag=False)}


def ours(claims: pd.DataFrame, origin: nous.Origin | None, backend: str) -> Callable[[], Any]:
    """A block of steps of our fit, nothing settled."""
    evidence = nous.Evidence(claims)
    errors = nous.Errors(popularity=False, difficulty=False)
    model = nous.TrustModel(origin=origin, errors=errors, answers={"x": list(range(ANSWERS))})
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    problem = compile_problem(encoded, np.arange(QUESTIONS))
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    pack = packing(blueprint.plan, 0)
    blocks = make_blocks(backend)(blueprint.plan, layout, pack, (shared, stacked), nous.SVI(), ())
    blocks.restart(initial(blueprint.plan, pack))
    noise = np.random.default_rng(0).standard_normal((STEPS, 1, pack.size))
    return lambda: blocks.run(noise, np.zeros(STEPS, np.int64), False, 1.0, 0.01)


def enumerated(claims: pd.DataFrame) -> Callable[[], Any]:
    """Steps of the model without origins as pyro users write it, the truths summed out by pyro."""
    shape = (QUESTIONS, CLAIMS)
    source, value = (torch.tensor(claims[name].to_numpy().reshape(shape)) for name in ("source", "value"))

    @config_enumerate
    def model() -> None:
        mean, spread = pyro.sample("mean", dist.Normal(1.1, 1.0)), pyro.sample("spread", dist.HalfNormal(0.7))
        raw = pyro.sample("raw", dist.Normal(0.0, 1.0).expand([SOURCES]).to_event(1))
        right = torch.sigmoid(mean + spread * raw)[source]
        with pyro.plate("question", QUESTIONS, dim=-2):
            truth = pyro.sample("truth", dist.Categorical(torch.full((ANSWERS,), 1.0 / ANSWERS)))
            with pyro.plate("claim", CLAIMS, dim=-1):
                true = torch.nn.functional.one_hot(truth, ANSWERS).bool()
                wrong = ((1.0 - right) / (ANSWERS - 1))[..., None]
                law = torch.where(true, right[..., None], wrong)
                pyro.sample("value", dist.Categorical(law), obs=value)

    pyro.clear_param_store()
    guide = AutoNormal(pyro.poutine.block(model, expose=["mean", "spread", "raw"]))
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.01}), TraceEnum_ELBO(max_plate_nesting=2))
    return lambda: [svi.step() for _ in range(STEPS)]


def milliseconds(run: Callable[[], Any]) -> float:
    """The best of some blocks, a step; the first, which compiles, is not counted."""
    run()
    best = np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best / STEPS


def main() -> None:
    """Print the table."""
    claims = table()
    with one_thread(), random_numbers(0):
        found = {
            f"{name}, {backend}": milliseconds(ours(claims, origin, backend))
            for name, origin in ORIGINS.items()
            for backend in ("numpyro", "pyro")
        }
        found["no origins, pyro, truths enumerated"] = milliseconds(enumerated(claims))
    print(f"{QUESTIONS} questions of {CLAIMS} claims and {ANSWERS} answers, {SOURCES} sources: ms a step")
    for name, value in found.items():
        print(f"  {name:40s} {value:8.2f}")
    print(
        f"enumerated over ours on pyro: {found['no origins, pyro, truths enumerated'] / found['no origins, pyro']:.1f}"
    )


if __name__ == "__main__":
    main()
