"""Many fits of one model side by side in one compiled call: the same program on other data, each with its own seed.

Every fit is the one that the package makes of its data alone, up to rounding. Variational fits follow their own course
(``nousppl.inference.svi.course``), a compiled lane each, and the next one takes the lane of one that has settled.
Samplers run as one ``vmap`` of all chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from nousppl.errors import InferenceError
from nousppl.inference.backend import JAX
from nousppl.inference.chains import Chains, Setting, compiled
from nousppl.inference.guide import State, constrain, initial
from nousppl.inference.judgement import BLOCK
from nousppl.inference.location import Link, links
from nousppl.inference.nuts import DENSE, check, one_run, setting_of
from nousppl.inference.options import NUTS, SVI
from nousppl.inference.packed import Packing, packing
from nousppl.inference.result import Fit
from nousppl.inference.svi import ADAM, Block, Done, Frozen, block_runner, course, is_weighed
from nousppl.models.layout import Layout
from nousppl.models.one_of import likelihood
from nousppl.models.program import Plan, log_likelihood, parameters, truth_logs

Arrays = dict[str, NDArray[Any]]
Draws = dict[str, NDArray[np.float64]]
AT_ONCE = 64
"""Fits side by side: more of them take more memory and hardly less time each."""


class Stack(NamedTuple):
    """The problems of many fits, all padded to one layout."""

    layout: Layout
    shared: Arrays
    """(fits, ...) arrays by name that do not belong to particular questions."""
    split: Arrays
    """(fits, 1, ...) the others; each fit sees all its questions in every step."""
    from_vote: bool
    """Whether unsettled truths follow the votes at first."""
    repeats: Sequence[NDArray[np.float64] | None]
    """See ``nousppl.inference.svi.fit``, by fit."""

    @property
    def fits(self) -> int:
        """How many there are."""
        return len(next(iter(self.split.values())))

    @property
    def whole(self) -> dict[str, jax.Array]:
        """(fits, ...) all arrays."""
        return JAX.arrays(self.shared | {name: value[:, 0] for name, value in self.split.items()})


def svi(plan: Plan, stack: Stack, options: SVI, seeds: Sequence[int], at_once: int = AT_ONCE) -> list[Fit]:
    """The variational fit of each problem.

    Args:
        plan: the parameters.
        stack: the problems.
        options: see `nousppl.inference.options.SVI`.
        seeds: of each fit.
        at_once: lanes.

    Raises:
        InferenceError: one of them has no finite loss at its start.
    """
    pack = packing(plan, options.full_size)
    lanes = _Lanes(plan, stack, pack, options, min(at_once, stack.fits))
    weigh = is_weighed(stack.layout, pack, options)
    courses = [
        course(plan, pack, 1, options, seed, stack.from_vote, repeats=r, weigh=weigh)
        for seed, r in zip(seeds, stack.repeats, strict=True)
    ]
    found: list[Fit | None] = [None] * stack.fits
    waiting = list(range(stack.fits))[::-1]
    asked: dict[int, tuple[int, Block]] = {}
    while True:
        for lane in range(lanes.count):
            if lane not in asked and waiting:
                fit = waiting.pop()
                asked[lane] = fit, next(courses[fit])
        if not asked:
            return [fit for fit in found if fit is not None]
        done = lanes.run(asked)
        for lane, (fit, _) in list(asked.items()):
            try:
                asked[lane] = fit, courses[fit].send(done[lane])
            except StopIteration as end:
                found[fit] = end.value
                del asked[lane]
            except InferenceError as error:
                raise InferenceError(f"fit {fit} of {stack.fits}: {error}") from error


class _Lanes:
    """Variational states side by side, and blocks of steps that move them."""

    def __init__(self, plan: Plan, stack: Stack, pack: Packing, options: SVI, count: int) -> None:
        own = options.optim is not None
        optim = optax.chain(options.optim, optax.scale(-1.0)) if own else ADAM
        self.count, self.shape = count, (BLOCK, options.samples, pack.size)
        self.steps = side_by_side(Frozen(plan), stack.layout, pack, optim, options.samples)
        self.data = JAX.arrays(stack.shared), JAX.arrays(stack.split)
        one = initial(plan, pack)
        self.fresh: Any = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], count, 0), one)
        self.state: Any = jax.tree.map(jnp.asarray, self.fresh)
        self.inner = jax.vmap(optim.init)(self.state)
        self.which = np.zeros(count, np.int32)
        self.noise = np.zeros((count, *self.shape))
        self.scalars = {name: np.zeros(count) for name in ("at_vote", "spread", "rate", "anew")}

    def run(self, asked: dict[int, tuple[int, Block]]) -> dict[int, Done]:
        """Take the block that each lane asks for; lanes that ask for nothing go on as before, seen by nobody."""
        for lane, (fit, block) in asked.items():
            self.which[lane], self.noise[lane] = fit, block.noise
            numbers = (block.at_vote, block.spread, block.rate, block.restart is not None)
            for name, number in zip(self.scalars, numbers, strict=True):
                self.scalars[name][lane] = float(number)
            if block.restart is not None:
                for all_lanes, mine in zip(self.fresh, block.restart, strict=True):
                    all_lanes[lane] = np.asarray(mine)
        arrays = (jnp.asarray(self.which), jnp.asarray(self.noise), JAX.arrays(self.scalars))
        fresh = jax.tree.map(jnp.asarray, self.fresh)
        self.state, self.inner, latest, losses = self.steps(self.state, self.inner, fresh, *self.data, *arrays)
        now, mean = (jax.tree.map(np.asarray, state) for state in (self.state, latest))
        loss = np.asarray(losses, np.float64)
        return {
            lane: (State(*(x[lane].copy() for x in now)), State(*(x[lane].copy() for x in mean)), loss[lane])
            for lane in asked
        }


@lru_cache(maxsize=8)
def side_by_side(frozen: Frozen, layout: Layout, pack: Packing, optim: Any, samples: int) -> Callable[..., Any]:
    """The jitted block of steps of ``nousppl.inference.svi`` for all lanes; cached."""
    steps = block_runner(frozen, layout, pack, optim, samples)
    index = jnp.zeros(BLOCK, jnp.int32)

    @jax.jit
    def run(state: Any, inner: Any, fresh: Any, shared: Any, split: Any, which: Any, noise: Any, scalars: Any) -> Any:
        def lane(state: Any, inner: Any, fresh: Any, shared: Any, split: Any, noise: Any, given: Any) -> Any:
            anew = given["anew"] > 0.0
            state, inner = jax.tree.map(
                lambda new, old: jnp.where(anew, new, old), (fresh, optim.init(fresh)), (state, inner)
            )
            known = shared | {name: given[name] for name in ("at_vote", "spread")}
            return steps(state, inner, noise, index, known, split, given["rate"])

        mine, own = jax.tree.map(lambda x: x[which], (shared, split))
        return jax.vmap(lane)(state, inner, fresh, mine, own, noise, scalars)

    return run


def nuts(
    plan: Plan, stack: Stack, options: NUTS, seeds: Sequence[int], thin: int = 1, at_once: int = AT_ONCE
) -> tuple[Draws, Arrays]:
    """Chains of the no-U-turn sampler on each problem, one compiled run of warm-up and sampling for all of them.

    Args:
        plan: the parameters.
        stack: the problems.
        options: see `nousppl.inference.options.NUTS`; ``chain_method`` has no meaning here.
        seeds: of each problem.
        thin: every so many draws one is kept.
        at_once: problems side by side.

    Returns:
        site as it is fitted -> (fits, chains, draws // thin, ...) draws on the natural scale, group effects raw; and
        ``diverging`` (fits, chains), the number of divergences.
    """
    check(options.kernel)
    pack, whole, parts = packing(plan, DENSE), stack.whole, []
    each = [links(plan, {name: np.asarray(value[i]) for name, value in whole.items()}) for i in range(stack.fits)]
    chain = each[0][0]
    # One design has one chain of links: the same levels, with the same claims.
    whole = whole | {name: jnp.stack([jnp.asarray(above[name]) for _, above in each]) for name in each[0][1]}
    functions = sampler(Frozen(plan), stack.layout, pack, chain, setting_of(pack, options, False))
    keys = jnp.stack([jax.random.split(jax.random.key(s), options.num_chains) for s in seeds])
    count = min(at_once, stack.fits)
    for start in range(0, stack.fits, count):
        index = np.minimum(np.arange(start, start + count), stack.fits - 1)
        data = {name: value[index] for name, value in whole.items()}
        found, _ = one_run(functions, keys[index], data, options, None)
        kept = slice(min(count, stack.fits - start))
        parts.append((found["vector"][kept, :, thin - 1 :: thin], found["diverging"][kept].sum(-1)))
    vectors, diverging = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    flat = constrain(plan, pack, vectors.reshape(-1, pack.size).astype(np.float64))
    draws = {name: value.reshape(*vectors.shape[:3], *value.shape[1:]) for name, value in flat.items()}
    return {name: draws[name] for name in plan.raw_names}, {"diverging": diverging}


@lru_cache(maxsize=8)
def sampler(frozen: Frozen, layout: Layout, pack: Packing, chain: tuple[Link, ...], setting: Setting) -> Chains:
    """The functions of a fit's chains, on many problems and all their chains at once; cached."""
    one = compiled(frozen, layout, pack, chain, setting)
    begin = jax.vmap(jax.vmap(one.begin, (0, None)))
    advance = jax.vmap(jax.vmap(one.advance, (0, None, None)), (0, 0, None))
    return Chains(jax.jit(begin), jax.jit(advance), lambda state, data: state)


@lru_cache(maxsize=8)
def _likelihoods(frozen: Frozen, layout: Layout) -> Callable[..., Any]:
    def one(given: Any) -> Any:
        values, data = given
        return jax.vmap(lambda v: log_likelihood(JAX, frozen.plan, layout, data, v))(values)

    return jax.jit(lambda values, data: jax.lax.map(one, (values, data)))


def log_likelihoods(plan: Plan, stack: Stack, values: Draws) -> NDArray[np.float64]:
    """(fits, n) log density of all that is observed, at (fits, n, ...) parameters on their natural scale."""
    run = _likelihoods(Frozen(plan), stack.layout)
    return np.asarray(run(JAX.arrays(values), stack.whole), np.float64)


@lru_cache(maxsize=8)
def _cells(frozen: Frozen, layout: Layout) -> Callable[..., Any]:
    plan = frozen.plan

    def one(given: Any) -> Any:
        values, data = given

        def at(values: dict[str, Any]) -> jax.Array:
            theta = parameters(JAX, plan, layout, data, values)
            joint = truth_logs(JAX, layout, data, theta, *likelihood(JAX, layout, data, theta))
            evidence = JAX.logsumexp_by(joint, data["cell_question"], layout.questions)
            return joint - JAX.take(evidence, jnp.minimum(data["cell_question"], layout.questions - 1))

        return jax.vmap(at)(values)

    return jax.jit(lambda values, data: jax.lax.map(one, (values, data)))


def cell_logs(plan: Plan, stack: Stack, values: Draws) -> NDArray[np.float64]:
    """(fits, n, cells) log posterior of every answer of every question, at (fits, n, ...) parameters on their natural
    scale."""
    run = _cells(Frozen(plan), stack.layout)
    return np.asarray(run(JAX.arrays(values), stack.whole), np.float64)
