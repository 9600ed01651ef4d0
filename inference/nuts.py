"""The no-U-turn sampler of numpyro on the exact marginal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from numpyro.diagnostics import summary
from numpyro.infer import MCMC
from numpyro.infer import NUTS as Kernel

from nousppl.errors import InferenceError
from nousppl.inference.backend import JAX
from nousppl.inference.chains import BLOCK, FIELDS, Chains, Setting, compiled
from nousppl.inference.guide import constrain
from nousppl.inference.location import links
from nousppl.inference.options import NUTS
from nousppl.inference.packed import Packing, packing
from nousppl.inference.result import Fit
from nousppl.inference.svi import Frozen
from nousppl.models.layout import Layout
from nousppl.models.program import Plan, program

DEEPEST = 10
"""numpyro's largest depth of a tree, unless it is told otherwise."""
DENSE = 30
"""Most parameters in the dense block of the mass matrix."""
OWN = ("model", "potential_fn", "init_strategy")
"""Arguments of numpyro's kernel that are not the user's to give."""


def fit(plan: Plan, layout: Layout, data: dict[str, Any], options: NUTS, seed: int, progress: Any) -> Fit:
    """Sample the parameters.

    Args:
        plan: the parameters.
        layout: static sizes.
        data: arrays of the problem, all questions.
        options: see `nousppl.inference.options.NUTS`.
        seed: of the chains.
        progress: told the number of transitions and the mean of minus the log density, after each block.

    Raises:
        InferenceError: an argument of the kernel that numpyro does not have, or that is set here.
    """
    check(options.kernel)
    pack = packing(plan, DENSE)
    chain, above = links(plan, data)
    arrays = {name: jnp.asarray(value) for name, value in (data | above).items()}
    together = options.chain_method == "vectorized" and options.num_chains > 1
    functions = compiled(Frozen(plan), layout, pack, chain, setting_of(pack, options, together))
    keys = jax.random.split(jax.random.key(seed), options.num_chains)
    found, last = run(functions, keys, arrays, options, progress)
    vectors = found.pop("vector")
    samples = natural(plan, pack, vectors, data)
    kept: dict[str, NDArray[Any]] = {name: samples[name] for name in plan.raw_names}
    stats = statistics(found, options.kernel.get("max_tree_depth", DEEPEST))
    said, good = advice(kept, stats, options)
    return Fit(kept, stats, good, said, as_numpyro(plan, layout, arrays, options, samples | found, last))


def setting_of(pack: Packing, options: NUTS, together: bool) -> Setting:
    """What chains are compiled for; ``together`` where all of them are advanced by one call."""
    dense = tuple(slot.name for slot in pack.slots if slot.start + slot.size <= pack.full)
    kernel = tuple((name, _hashable(value)) for name, value in sorted(options.kernel.items()))
    return Setting(options.num_warmup, together, dense, kernel)


def check(kernel: dict[str, Any]) -> None:
    """See that numpyro's kernel takes these arguments.

    Raises:
        InferenceError: one of them is unknown, or set by the fit itself.
    """
    allowed = [name for name in signature(Kernel).parameters if name not in OWN]
    for name in kernel:
        if name not in allowed:
            raise InferenceError(f"NUTS(kernel={{{name!r}: ...}}): allowed are {', '.join(allowed)}")


def run(
    functions: Chains, keys: jax.Array, data: dict[str, Any], options: NUTS, progress: Any
) -> tuple[dict[str, NDArray[Any]], Any]:
    """All chains, after their warm-up.

    Returns:
        (chains, draws, ...) arrays of packed parameters under ``vector`` and of the fields of the transitions, and the
        last state, leading axis chains where there are several.
    """
    if options.num_chains == 1:
        found, last = one_run(functions, keys[0], data, options, progress)
        return {name: value[None] for name, value in found.items()}, last
    if options.chain_method == "vectorized":
        found, last = one_run(functions, keys, data, options, progress)
        return found, last
    several = min(options.num_chains, 8) if options.chain_method == "parallel" else 1
    with ThreadPoolExecutor(several) as pool:
        alone = partial(one_run, functions, data=data, options=options, progress=progress)
        parts = list(pool.map(alone, keys))
    joined = {name: np.stack([found[name] for found, _ in parts]) for name in parts[0][0]}
    return joined, jax.tree.map(lambda *states: jnp.stack(states), *(last for _, last in parts))


def one_run(
    functions: Chains, keys: jax.Array, data: dict[str, Any], options: NUTS, progress: Any
) -> tuple[dict[str, NDArray[Any]], Any]:
    """One chain, or all of them at once; arguments and result as in `run`."""
    state = functions.begin(keys, data)
    blocks: list[dict[str, NDArray[Any]]] = []
    total = options.num_warmup + options.num_samples
    taken = 0
    while taken < total:
        end = options.num_warmup if taken < options.num_warmup else total
        number = min(BLOCK, end - taken)
        state, rows = functions.advance(state, data, number)
        rows = {name: np.asarray(value) for name, value in rows.items()}
        rows = {n: v[..., :number, :] if n == "vector" else v[..., :number] for n, v in rows.items()}
        if taken >= options.num_warmup:
            blocks.append(rows)
        taken += number
        if progress is not None:
            progress(taken, float(rows["potential_energy"].mean()))
    joined = {n: np.concatenate([b[n] for b in blocks], axis=-2 if n == "vector" else -1) for n in blocks[0]}
    return joined, functions.last(state, data)


def natural(plan: Plan, pack: Packing, vectors: NDArray[Any], data: dict[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Site -> (chains, draws, ...) on the natural scale, the raw effects under their own names too."""
    flat = constrain(plan, pack, vectors.reshape(-1, pack.size).astype(np.float64))
    out = {name: value.reshape(*vectors.shape[:2], *value.shape[1:]) for name, value in flat.items()}
    for site in plan.sites:
        if site.scale is not None:
            raw, scale = out[site.name + "_raw"], out[site.scale][..., None]
            centred = data.get("centred " + site.name, 0.0) if site.prior.family == "Normal" else 0.0
            out[site.name] = raw * scale ** (1.0 - centred)
    return out


def as_numpyro(
    plan: Plan, layout: Layout, arrays: dict[str, Any], options: NUTS, found: dict[str, NDArray[Any]], last: Any
) -> MCMC:
    """The run as numpyro's object, of its own kernel and the program without arguments: ``get_samples``,
    ``print_summary`` and ``get_extra_fields`` show it, and ``run`` goes on from ``last_state`` or starts anew."""
    kernel = Kernel(partial(program, JAX, plan, layout, arrays), **options.kernel)
    mcmc = MCMC(
        kernel,
        num_warmup=options.num_warmup,
        num_samples=options.num_samples,
        num_chains=options.num_chains,
        chain_method="sequential" if options.chain_method == "parallel" else options.chain_method,
        progress_bar=False,
    )
    states = {name: found.pop(name) for name in FIELDS}
    mcmc._states = {name: jnp.asarray(value) for name, value in states.items()}
    mcmc._states["z"] = {name: jnp.asarray(value, float) for name, value in found.items()}
    mcmc._last_state = last
    return mcmc


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


def _hashable(value: Any) -> Any:
    """Lists as tuples, for the key of compiled code."""
    return tuple(_hashable(item) for item in value) if isinstance(value, list | tuple) else value


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
