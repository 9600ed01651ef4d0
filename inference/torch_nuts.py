"""The no-U-turn sampler of pyro on the exact marginal: for small problems, a step takes many evaluations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pyro.infer import MCMC
from pyro.infer import NUTS as Kernel

from nousppl.inference.guide import constrain, initial
from nousppl.inference.nuts import advice
from nousppl.inference.options import NUTS
from nousppl.inference.packed import log_density, packing
from nousppl.inference.result import Fit
from nousppl.inference.torch_backend import Torch, one_thread, random_numbers
from nousppl.models.layout import Layout
from nousppl.models.program import Plan

JITTER = 0.1
"""Standard deviation of the start values around the medians of the priors, in unconstrained parameters."""


def fit(plan: Plan, layout: Layout, data: dict[str, Any], options: NUTS, seed: int, progress: Any) -> Fit:
    """Sample the parameters, chain after chain; arguments as in ``nousppl.inference.nuts.fit``."""
    xp, pack = Torch(), packing(plan, 0)
    density, arrays = log_density(xp, plan, layout, pack), xp.arrays(data)
    start = np.asarray(initial(plan, pack).mean, np.float64)
    chains, vectors = [], []
    with one_thread(), random_numbers(seed):
        for _ in range(options.num_chains):
            point = xp.array(start) + JITTER * torch.randn(pack.size, dtype=xp.dtype)
            kernel = Kernel(potential_fn=partial(_potential, density, arrays), **options.kernel)
            chain = MCMC(
                kernel,
                num_samples=options.num_samples,
                warmup_steps=options.num_warmup,
                initial_params={"vector": point},
                disable_progbar=progress is None,
            )
            chain.run()
            chains.append(chain)
            vectors.append(chain.get_samples()["vector"].numpy().astype(np.float64))
    draws = [constrain(plan, pack, vector) for vector in vectors]
    kept: dict[str, Any] = {name: np.stack([one[name] for one in draws]) for name in draws[0]}
    stats: dict[str, Any] = {"diverging": np.stack([_diverging(chain, options.num_samples) for chain in chains])}
    said, good = advice(kept, stats, options)
    return Fit(kept, stats, good, said, chains)


def _potential(density: Any, data: dict[str, torch.Tensor], values: dict[str, torch.Tensor]) -> torch.Tensor:
    return -density(values["vector"], data)


def _diverging(chain: MCMC, samples: int) -> NDArray[np.bool_]:
    """(draws,) which draws ended a diverging trajectory."""
    out = np.zeros(samples, bool)
    out[chain.diagnostics()["divergences"]["chain 0"]] = True
    return out
