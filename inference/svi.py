"""Stochastic variational inference with one compiled block of steps and a judged end.

The evidence lower bound is estimated with reparameterised draws (Kucukelbir et al. 2017). A fit advances by blocks of
steps: first without noise, which moves the means quickly to where the posterior is, then with it. When the mean loss
of a block no longer falls by more than its noise the step size is lowered, and when that happens after two lowerings
the fit has settled. The parameters returned are the average over the last blocks, those in which the loss no longer
fell (Polyak & Juditsky 1992).

Two things make that average accurate. At the end, and with batches from the start, every draw is followed by its mirror
image on the same batch (antithetic variates): near a normal posterior the noise of the two gradients of the means
cancels. And batches are taken in random order without replacement, so that over a pass the gradients add up to that of
all questions (random reshuffling; Mishchenko et al. 2020); the loss of a block is compared batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from nousppl.errors import InferenceError
from nousppl.inference.backend import JAX
from nousppl.inference.guide import State, constrain, draw, entropy, initial, place, transform, with_echoes
from nousppl.inference.judgement import BLOCK, LOWERED, LOWERINGS, Deck, Schedule, judge, level, mirrored
from nousppl.inference.options import SVI
from nousppl.inference.packed import Packing, log_density, packing
from nousppl.inference.result import Fit
from nousppl.models.layout import Layout
from nousppl.models.program import Plan

ADAM = optax.scale_by_adam()
VOTE_BLOCKS = 1
"""Blocks in which unsettled truths follow the votes, where a fit starts from them."""
CLIMB_BLOCKS = 2
"""Blocks without noise after that: only the means move, quickly, to where the posterior is."""
CLIMB_RATE = 3.0
WEIGHED_CLAIMS, WEIGHED_PARAMETERS = 20_000, 128
"""Claims, in all orders that are averaged, and parameters up to which draws are taken by importance: with more claims
the guide is closer and a step dearer, with more parameters few draws would carry all the weight."""
TAILS, WIDER = 5, 1.2
"""Degrees of freedom and scale of the draws of the standard deviations of groups that are weighed: of 5 levels the
posterior has such tails."""
ENOUGH, LEAST, MOST = 200, 0.1, 0.2
"""So many of the weighed draws must be effective, a tenth of them if that is more and a fifth if that is fewer; where
fewer are the weights are tempered."""

Progress = Callable[[int, float], None]
"""Called after each block with the number of steps taken and the mean loss."""
Batches = tuple[dict[str, Any], dict[str, Any]]
"""Arrays that all batches share, and arrays with a leading axis of batches."""


class Start(NamedTuple):
    """Where a fit goes on from, in place of the priors."""

    state: State
    lowered: int = 0
    """How often the step size counts as lowered already."""
    still: tuple[str, ...] = ()
    """Sites that stay as they are, their raw effects under the name of the site with ``_raw``."""


def fit(
    plan: Plan,
    layout: Layout,
    batches: Batches,
    options: SVI,
    seed: int,
    from_vote: bool,
    progress: Progress | None,
    start: Start | None = None,
    backend: str = "numpyro",
    repeats: NDArray[np.float64] | None = None,
) -> Fit:
    """Fit by SVI.

    Args:
        plan: the parameters.
        layout: static sizes, the same for all batches.
        batches: shared arrays and batched arrays of the problem; a step sees one batch.
        options: see `nousppl.inference.options.SVI`.
        seed: of the noise and of the draws.
        from_vote: spend the first blocks on the bound in which unsettled truths follow the votes.
        progress: told the loss after each block.
        start: where to go on from; None starts at the priors' medians, with steps that only move the means.
        backend: "numpyro" or "pyro", on which the steps are taken.
        repeats: see `nousppl.inference.guide.with_echoes`; None to start all pairs as strangers.

    Raises:
        InferenceError: the loss is not finite from the start, or soon after.
    """
    pack = packing(plan, options.full_size)
    blocks = make_blocks(backend)(plan, layout, pack, batches, options, start.still if start else ())
    count = len(next(iter(batches[1].values())))
    asking = course(
        plan, pack, count, options, seed, from_vote, progress, start, repeats, is_weighed(layout, pack, options)
    )
    block = next(asking)
    while True:
        if block.restart is not None:
            blocks.restart(block.restart)
        done = blocks.run(block.noise, block.batch, block.at_vote, block.spread, block.rate)
        try:
            block = asking.send(done)
        except StopIteration as end:
            found: Fit = end.value
            return found


class Block(NamedTuple):
    """A block of steps that a fit asks for, see `Blocks.run`."""

    restart: State | None
    """The state to go on from with an optimiser that remembers nothing; None to go on as it is."""
    noise: NDArray[np.float64]
    batch: NDArray[np.int64]
    at_vote: bool
    spread: float
    rate: float


Done = tuple[State, State, NDArray[np.float64]]
"""What comes of a block, see `Blocks.run`."""


def course(
    plan: Plan,
    pack: Packing,
    count: int,
    options: SVI,
    seed: int,
    from_vote: bool,
    progress: Progress | None = None,
    start: Start | None = None,
    repeats: NDArray[np.float64] | None = None,
    weigh: bool = False,
) -> Generator[Block, Done, Fit]:
    """The course of a fit: asks for blocks, is sent what comes of each, and returns the fit.

    Whoever takes the steps is outside, so that many fits side by side follow the course that one follows alone.

    Args:
        plan: the parameters.
        pack: their order.
        count: number of batches.
        options: see `nousppl.inference.options.SVI`.
        seed: as in `fit`.
        from_vote: as in `fit`.
        progress: as in `fit`.
        start: as in `fit`.
        repeats: as in `fit`.
        weigh: whether draws are taken by importance, see `by_importance`.

    Raises:
        InferenceError: as in `fit`.
    """
    state = start.state if start else initial(plan, pack)
    if repeats is not None and not start:
        state = with_echoes(state, plan, pack, repeats)
    restart: State | None = state
    generator = np.random.default_rng(seed)
    lowered = start.lowered if start else 0
    first_rate = 1.0 if options.optim is not None else options.learning_rate
    schedule = Schedule(first_rate * LOWERED**lowered, np.inf, 0, lowered)
    voted = VOTE_BLOCKS if from_vote and not start else 0
    ascent = 0 if start else voted + CLIMB_BLOCKS
    deck = Deck(count, generator)
    losses: list[float] = []
    averages: list[State] = [state]
    taken, settled = 0, False
    while taken < options.steps and not settled:
        noise = generator.standard_normal((BLOCK, options.samples, pack.size))
        noise = mirrored(noise[: BLOCK // 2]) if count > 1 or schedule.lowered >= LOWERINGS else noise
        index = np.repeat(deck.take(BLOCK // 2), 2)
        climbing = taken < ascent * BLOCK
        rate = schedule.rate * (CLIMB_RATE if climbing else 1.0)
        asked = Block(restart, noise, index, taken < voted * BLOCK, 0.0 if climbing else 1.0, rate)
        state, latest, block = yield asked
        # After the ascent the scales had no gradient so far, and Adam would take huge first steps for them.
        restart = state if taken + BLOCK == ascent * BLOCK else None
        losses.extend(block)
        bad = np.flatnonzero(~np.isfinite(block))
        if len(bad) and taken == 0:
            raise InferenceError(_no_start(int(bad[0]), options))
        taken += BLOCK
        if progress is not None:
            progress(taken, float(block.mean()))
        if len(bad):
            break
        stalled = schedule.stalls > 0
        if taken > ascent * BLOCK:
            schedule = judge(schedule, *level(block, index, count), options.tolerance)
            settled = schedule.lowered > LOWERINGS
        averages = [*averages, latest] if stalled and (schedule.stalls > 0 or settled) else [latest]
    average = jax.tree.map(lambda *parts: sum(parts) / len(parts), *averages)
    vectors = draw(average, seed, options.draws)
    if weigh and count == 1 and not (start and start.still) and np.isfinite(losses[-BLOCK:]).all():
        vectors = yield from by_importance(average, pack, options, generator)
    values = constrain(plan, pack, vectors)
    chained: dict[str, NDArray[Any]] = {name: value[None] for name, value in values.items()}
    return Fit(chained, {"loss": np.array(losses)}, settled, _advice(losses, taken, settled, count), average)


def is_weighed(layout: Layout, pack: Packing, options: SVI) -> bool:
    """Whether a fit of this size takes its draws by importance."""
    small = layout.slots <= WEIGHED_CLAIMS and pack.size <= WEIGHED_PARAMETERS
    return small and options.weighed > 0 and options.samples == 1


def by_importance(
    state: State, pack: Packing, options: SVI, generator: np.random.Generator
) -> Generator[Block, Done, NDArray[np.float64]]:
    """Draws of the guide taken by importance, (draws, size), with truncated weights (Ionides 2008).

    A normal guide is narrower than a posterior with long tails, most of all in the standard deviations of groups: in
    these the draws are from a wider one with longer tails, Student's t (Geweke 1989). The ratios come from steps of
    length 0, so that nothing else is compiled: the loss of a step is minus the log density at its draw, less the
    entropy of the guide.
    """
    vectors, logs, spreads = [], [], list(pack.spreads)
    for _ in range(-(-options.weighed // BLOCK)):
        noise = generator.standard_normal((BLOCK, 1, len(state.mean)))
        noise[:, 0, spreads] = WIDER * generator.standard_t(TAILS, (BLOCK, len(spreads)))
        _, _, losses = yield Block(state, noise, np.zeros(BLOCK, np.int64), False, 1.0, 0.0)
        square = np.square(noise[:, 0])
        minus_log = 0.5 * square
        minus_log[:, spreads] = 0.5 * (TAILS + 1) * np.log1p(square[:, spreads] / (WIDER**2 * TAILS))
        vectors.append(place(state, noise[:, 0]))
        logs.append(minus_log.sum(1) - losses)
    drawn, ratios = np.concatenate(vectors), np.concatenate(logs)
    ratios = np.where(np.isfinite(ratios), ratios, -np.inf)
    weight = np.exp(ratios - ratios.max())
    weight = tempered(np.minimum(weight, weight.mean() * np.sqrt(len(weight))))
    # Systematic resampling: evenly spaced points on the cumulated weights.
    points = (np.arange(options.draws) + generator.random()) / options.draws
    chosen = np.searchsorted(np.cumsum(weight) / weight.sum(), points)
    return np.asarray(drawn[generator.permutation(np.minimum(chosen, len(drawn) - 1))])


def tempered(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights raised to the largest power, at most 1, at which the effective number of draws (Kish 1965) is a share of
    at least what `ENOUGH` says, so that a few draws never stand for all."""
    share = np.clip(ENOUGH / len(weight), LEAST, MOST)
    low, high, power = 0.0, 1.0, 1.0
    while power == 1.0 or high - low > 1e-3:
        found = weight**power
        enough = found.sum() ** 2 / np.square(found).sum() >= share * len(weight)
        if power == 1.0 and enough:
            return weight
        low, high = (power, high) if enough else (low, power)
        power = 0.5 * (low + high)
    return np.asarray(weight**low)


class Blocks(Protocol):
    """A variational state and blocks of steps that move it."""

    def restart(self, state: State) -> None:
        """Go on from a state, with an optimiser that remembers nothing."""
        ...

    def run(
        self, noise: NDArray[np.float64], index: NDArray[np.int64], at_vote: bool, spread: float, rate: float
    ) -> tuple[State, State, NDArray[np.float64]]:
        """Take a block of steps.

        Args:
            noise: (steps, samples, size) standard normal numbers.
            index: (steps,) batch of each step.
            at_vote: whether unsettled truths follow the votes.
            spread: 1, or 0 for steps without noise, which only move the means.
            rate: step size.

        Returns:
            the state after the block, its mean over the block, and the losses (steps,).
        """
        ...


def make_blocks(backend: str) -> Callable[..., Blocks]:
    """The steps of a backend, from plan, layout, packing, batches, options and the sites that stay."""
    if backend == "pyro":
        from nousppl.inference import torch_svi

        return torch_svi.Blocks
    return JaxBlocks


class JaxBlocks:
    """Blocks of steps on jax, each one compiled scan."""

    def __init__(
        self, plan: Plan, layout: Layout, pack: Packing, batches: Batches, options: SVI, still: tuple[str, ...]
    ) -> None:
        own = options.optim is not None
        self.optim = optax.chain(options.optim, optax.scale(-1.0)) if own else ADAM
        self.steps = block_runner(Frozen(plan), layout, pack, self.optim, options.samples, still)
        self.shared, self.split = jax.device_put(batches)

    def restart(self, state: State) -> None:
        """As `Blocks.restart`."""
        self.state, self.inner = state, jax.jit(self.optim.init)(state)

    def run(
        self, noise: NDArray[np.float64], index: NDArray[np.int64], at_vote: bool, spread: float, rate: float
    ) -> tuple[State, State, NDArray[np.float64]]:
        """As `Blocks.run`."""
        scalars = {"at_vote": np.asarray(float(at_vote)), "spread": np.asarray(spread)}
        arrays = (noise, index, self.shared | scalars, self.split, np.asarray(rate))
        self.state, self.inner, latest, losses = self.steps(self.state, self.inner, *arrays)
        now, mean = jax.tree.map(np.asarray, (self.state, latest))
        return now, mean, np.asarray(losses, np.float64)


class Frozen:
    """A plan as a cache key."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __hash__(self) -> int:
        return hash(self.plan.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.plan.key == other.plan.key


@lru_cache(maxsize=32)
def block_runner(
    frozen: Frozen, layout: Layout, pack: Packing, optim: Any, samples: int, still: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """The jitted block of steps; cached, so that a second fit of the same shape compiles nothing."""
    plan = frozen.plan
    density = log_density(JAX, plan, layout, pack)

    def loss(state: State, noise: jax.Array, data: dict[str, Any]) -> jax.Array:
        vectors = transform(state, data["spread"] * noise)
        value = jax.vmap(lambda v: density(v, data))(vectors) if samples > 1 else density(vectors[0], data)
        return -(jnp.mean(value) + data["spread"] * entropy(state))

    moving, free = pack.masks(still)

    @jax.jit
    def run(
        state: State, inner: Any, noise: jax.Array, index: jax.Array, shared: Any, split: Any, rate: jax.Array
    ) -> Any:
        alone = jax.tree.leaves(split)[0].shape[0] == 1
        whole = shared | jax.tree.map(lambda x: jax.lax.squeeze(x, [0]), split) if alone else shared

        def step(carry: Any, this: Any) -> Any:
            state, inner, total = carry
            eps, i = this
            data = (
                whole
                if alone
                else shared | jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), split)
            )
            value, gradient = jax.value_and_grad(loss)(state, eps, data)
            gradient = gradient._replace(mean=gradient.mean * jnp.where(data["spread"] > 0.0, 1.0, moving))
            if still:
                gradient = held(gradient, free)
            change, inner = optim.update(gradient, inner, state)
            state = jax.tree.map(lambda p, c: p - rate * c, state, change)
            return (state, inner, jax.tree.map(jnp.add, total, state)), value

        zero = jax.tree.map(jnp.zeros_like, state)
        (state, inner, total), losses = jax.lax.scan(step, (state, inner, zero), (noise, index))
        return state, inner, jax.tree.map(lambda t: t / BLOCK, total), losses

    return run


def held(gradient: State, free: NDArray[np.float64]) -> State:
    """The gradient without that of parameters that stay."""
    full = gradient.factor.shape[0]
    return State(gradient.mean * free, gradient.factor * free[:full, None], gradient.log_scale * free[full:])


def _no_start(steps: int, options: SVI) -> str:
    if steps == 0:
        return "SVI: the loss is not finite at the start values; check priors and numeric covariates for extremes"
    return (
        f"SVI diverged after {steps} steps: lower learning_rate (now {options.learning_rate:g}) or the step size of "
        "your optim, or check covariates for extreme values"
    )


def _advice(losses: list[float], taken: int, settled: bool, batches: int) -> str:
    if not np.isfinite(losses[-BLOCK:]).all():
        return f"SVI diverged after {taken} steps: lower learning_rate, or check covariates for extreme values"
    how = "" if batches == 1 else f" on {batches} batches"
    if settled:
        return f"SVI settled after {taken} steps{how}, loss {np.mean(losses[-BLOCK:]):.1f}"
    return f"SVI had not settled after {taken} steps{how}: raise steps (nous.SVI(steps=...)) and fit again"
