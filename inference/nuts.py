"""The no-U-turn sampler of numpyro on the exact marginal."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, init_to_median
from numpyro.infer import NUTS as Kernel

from nousppl.inference.backend import JAX
from nousppl.inference.options import NUTS
from nousppl.inference.result import Fit
from nousppl.models.layout import Layout
from nousppl.models.program import Plan, program

FIELDS = ("diverging", "num_steps", "potential_energy", "energy", "accept_prob")
"""What the sampler is asked to keep of each draw."""
DEEPEST = 10
"""numpyro's largest depth of a tree, unless it is told otherwise."""


def fit(plan: Plan, layout: Layout, data: dict[str, Any], options: NUTS, seed: int, progress: Any) -> Fit:
    """Sample the parameters.

    Args:
        plan: the parameters.
        layout: static sizes.
        data: arrays of the problem, all questions.
        options: see `nousppl.inference.options.NUTS`.
        seed: of the chains.
        progress: anything but None shows numpyro's progress bar.
    """
    model = partial(program, JAX, plan, layout)
    kernel = Kernel(model, init_strategy=init_to_median(num_samples=15), **options.kernel)
    mcmc = MCMC(
        kernel,
        num_warmup=options.num_warmup,
        num_samples=options.num_samples,
        num_chains=options.num_chains,
        chain_method=options.chain_method,
        progress_bar=progress is not None,
    )
    arrays = {name: jnp.asarray(value) for name, value in data.items()}
    mcmc.run(jax.random.key(seed), arrays, extra_fields=FIELDS)
    samples: dict[str, Any] = {n: np.asarray(v, np.float64) for n, v in mcmc.get_samples(group_by_chain=True).items()}
    kept = {name: value for name, value in samples.items() if name in _sites(plan)}
    found = {n: np.asarray(v) for n, v in mcmc.get_extra_fields(group_by_chain=True).items()}
    stats = statistics(found, options.kernel.get("max_tree_depth", DEEPEST))
    said, good = advice(kept, stats, options)
    return Fit(kept, stats, good, said, mcmc)


def statistics(found: dict[str, NDArray[Any]], deepest: int | tuple[int, int]) -> dict[str, NDArray[Any]]:
    """(chain, draw) statistics under the names of arviz's schema.

    Args:
        found: numpyro's fields, see `FIELDS`.
        deepest: largest depth of a tree, for warm-up and sampling where there are two.
    """
    # A tree of depth d has 2 ** d - 1 steps, or fewer where its last half turned back.
    depth = np.ceil(np.log2(found["num_steps"] + 1.0)).astype(np.int64)
    limit = deepest if isinstance(deepest, int) else deepest[1]
    return {
        "diverging": found["diverging"],
        "n_steps": found["num_steps"],
        "tree_depth": depth,
        "reached_max_treedepth": depth >= limit,
        "lp": -found["potential_energy"],
        "energy": found["energy"],
        "acceptance_rate": found["accept_prob"],
    }


def _sites(plan: Plan) -> set[str]:
    return {site.name if site.scale is None else site.name + "_raw" for site in plan.sites}


def advice(samples: dict[str, Any], stats: dict[str, Any], options: NUTS) -> tuple[str, bool]:
    """Divergences and split R-hat (Vehtari et al. 2021) in words."""
    diverging = int(stats["diverging"].sum())
    table = summary(samples, group_by_chain=True)
    worst_name, worst = max(((n, float(np.nanmax(v["r_hat"]))) for n, v in table.items()), key=lambda item: item[1])
    said = [
        f"NUTS: {options.num_chains} chains of {options.num_samples} draws, largest R-hat {worst:.3f} ({worst_name}), "
        f"{diverging} divergences"
    ]
    if diverging:
        said.append("raise target_accept_prob (nous.NUTS(kernel={'target_accept_prob': 0.95}))")
    if worst > 1.05:
        said.append("the chains have not mixed: raise num_warmup and num_samples")
    return "; ".join(said), not diverging and worst <= 1.05
