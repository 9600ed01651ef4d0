"""How far a variational fit is from the posterior that it stands for, by importance ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.blueprint import Blueprint
from nousppl.compile import compile_problem
from nousppl.encode import Encoded
from nousppl.fitting import batched, learned_questions, split
from nousppl.inference.options import SVI


def log_ratios(
    blueprint: Blueprint, encoded: Encoded, state: Any, learn_from: str, seed: int, count: int
) -> NDArray[np.float64]:
    """(count,) log joint density minus log density of the guide at draws of the guide.

    Up to a constant these are the log importance ratios of Yao et al. (2018), "Yes, but did it work?", section 3.1.

    Args:
        blueprint: of the fit.
        encoded: the evidence that was learned from.
        state: variational parameters, see `nousppl.inference.guide.State`.
        learn_from: "settled" or "all".
        seed: of the fit, and of the draws.
        count: number of draws.
    """
    import jax
    import jax.numpy as jnp

    from nousppl.inference import guide, packed
    from nousppl.inference.backend import JAX

    pack = packed.packing(blueprint.plan, state.factor.shape[0])
    questions = split(learned_questions(encoded, learn_from), encoded, SVI.batch_claims, seed)
    problems = [compile_problem(encoded, part, seed) for part in questions]
    layout, shared, stacked = batched(blueprint, encoded, problems)
    density = packed.log_density(JAX, blueprint.plan, layout, pack)
    # Another stream than that of the draws that the trust keeps.
    vectors = guide.draw(state, seed + 1, count)
    run = jax.jit(lambda v, data: jax.lax.map(lambda one: density(one, data), v))
    total = np.zeros(count)
    for part in range(len(problems)):
        data = {name: jnp.asarray(value) for name, value in shared.items()}
        data |= {name: jnp.asarray(value[part]) for name, value in stacked.items()}
        # Each batch is weighted to stand for all of them, so the joint density is the mean over batches.
        total += np.asarray(run(jnp.asarray(vectors, float), data), np.float64) / len(problems)
    return total - guide.log_density(state, vectors)
