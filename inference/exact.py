"""The exact posterior of the truth, given draws of the parameters: one call for any number of questions.

Truths and origins are summed out in closed form (``nousppl.models.one_of``); averaging over draws carries the
uncertainty about the sources into the belief.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nousppl.inference.backend import JAX
from nousppl.models.base_rates import base_log_mass
from nousppl.models.layout import Layout
from nousppl.models.one_of import Terms, by_icell, claim_logs, likelihood, over_orders, prepare
from nousppl.models.origin import by_row_of_slot
from nousppl.models.program import PARTS, Plan, constants, look_log_prior, question_logs, truth_logs

Draws = dict[str, NDArray[np.float32]]
"""What the formulas predict, ``logit`` and so on (draws, claims), ``listed`` (draws, listed) weights of listed pairs by
the user's own terms, the other sites by name (draws,) or (draws, size)."""


FARTHEST = 80.0
"""Largest log whose exponential single precision holds, with room for a factor."""


class ClaimLogs(NamedTuple):
    """Per-claim likelihoods of one question."""

    slot: NDArray[np.float32]
    """(draws, nodes, slots) log likelihood for a truth not named before."""
    entry: NDArray[np.float32]
    """(draws, nodes, entries) what is added where the entry's cell is the truth."""
    prior: NDArray[np.float32]
    """(draws, cells) log prior mass of what the question looks like."""
    base: NDArray[np.float32] | None
    """(draws, cells) log base rate, whatever is settled or rejected; None where the truth stays and there is neither of
    the next two."""
    trap: NDArray[np.float32] | None
    """(draws,) chance of a trap."""
    correlation: NDArray[np.float32] | None
    """(draws,) correlation of the errors."""
    original: NDArray[np.float32] | None
    """(draws, slots) chance that the claim is not itself a repetition; None without correlation."""
    repeated: NDArray[np.float32]
    """(draws, slots) chance that the claim comes out as it did by repetition."""
    node_log: NDArray[np.float32]
    """(draws, nodes) log weights of the nodes."""
    log_rate: NDArray[np.float32] | None
    """(draws,) log rate of change; None where the truth stays."""


def repeated_by_slot(layout: Layout, data: dict[str, Any], terms: Terms) -> jax.Array:
    """(slots,) chance that each claim comes out as it did by repetition; it does not depend on the truth."""
    if not layout.soft:
        return terms.echo.repeated
    silence = data["slot_silence"] * (1.0 - terms.echo.fresh)
    return JAX.sum_by(data["row_weight"] * terms.echo.repeated, data["row_slot"], layout.slots) + silence


def theta_of(features: tuple[str, ...], draw: dict[str, Any], grid: Any) -> dict[str, Any]:
    """Parameters of the likelihood from one draw."""
    theta = constants(JAX, Plan((), (), features), draw, grid)
    return theta | {name: draw[name] for name in (*PARTS.values(), "listed") if name in draw}


@partial(jax.jit, static_argnums=(0, 1))
def cell_logs(layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: dict[str, Any]) -> jax.Array:
    """(draws, cells) log posterior of each cell under each draw."""

    def one(draw: dict[str, Any]) -> jax.Array:
        theta = theta_of(features, draw, data.get("text_grid"))
        joint = truth_logs(JAX, layout, data, theta, *likelihood(JAX, layout, data, theta))
        evidence = JAX.logsumexp_by(joint, data["cell_question"], layout.questions)
        return joint - evidence[data["cell_question"]]

    return jax.vmap(one)(draws)


@partial(jax.jit, static_argnums=(0, 1))
def question_log_densities(
    layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: dict[str, Any]
) -> jax.Array:
    """(draws, questions) log density of each question's claims, and settled truth where there is one, by draw."""

    def one(draw: dict[str, Any]) -> jax.Array:
        return question_logs(JAX, layout, data, theta_of(features, draw, data.get("text_grid")))

    return jax.vmap(one)(draws)


@partial(jax.jit, static_argnums=(0, 1))
def witnesses(
    layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: dict[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """Posterior of the cells, and the expected number of fresh claims behind each, averaged over the draws.

    Returns:
        (draws, cells) log posterior and (draws, cells) expected number of fresh claims that name the cell, of a
        question of average difficulty (where truths change, of any).
    """

    def one(draw: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        theta = theta_of(features, draw, data.get("text_grid"))
        terms = prepare(JAX, layout, data, theta)
        in_order = by_icell(JAX, layout, data, theta, terms)
        by_cell = over_orders(JAX, layout, data, in_order)
        truth = truth_logs(JAX, layout, data, theta, by_cell, terms.echo.originality)
        posterior = truth - JAX.logsumexp_by(truth, data["cell_question"], layout.questions)[data["cell_question"]]
        # What is fresh goes by what the question looks like.
        prior = look_log_prior(JAX, layout, data, theta)
        evidence = JAX.logsumexp_by(by_cell + prior, data["cell_question"], layout.questions)
        # Of a truth and an order together.
        shift = prior - evidence[data["cell_question"]] - data["cell_log_orders"]
        at_icell = jnp.exp(in_order + shift[data["icell_cell"]])
        of_order = JAX.sum_by(at_icell, data["icell_instance"], layout.instances)[data["slot_instance"]]
        if layout.change:
            repeats = repeats_through_time(layout, data, theta, terms, prior)
        else:
            repeats = repeats_of_claims(layout, data, theta, terms, at_icell, of_order)
        fresh = jnp.clip(of_order - repeats, 0.0, 1.0) * data["slot_looks"]
        by_row = fresh[data["row_slot"]] * data["row_weight"]
        # Rows that only pad may not reach the last cell, where all answers are of this problem.
        cell = jnp.where(data["row_icell"] < layout.icells, data["icell_cell"][data["row_icell"]], layout.cells)
        return posterior, JAX.sum_by(by_row, cell, layout.cells)

    return jax.vmap(one)(draws)


def repeats_of_claims(
    layout: Layout, data: dict[str, Any], theta: dict[str, Any], terms: Terms, at_icell: jax.Array, of_order: jax.Array
) -> jax.Array:
    """(slots,) chance that each claim is a repetition, and the order that of its slot."""
    slot_log, entry_log = claim_logs(JAX, layout, data, theta, terms, jnp.asarray(0.0))
    # P(not fresh | x, z) = m / p(x | z); the sum over z needs only the entries and the rest that shares one
    # likelihood.
    inverse_rest = jnp.exp(-slot_log)
    # A list that is next to impossible under some truths would overflow, and those have no probability left.
    inverse_of_entry = jnp.expm1(jnp.minimum(-entry_log, FARTHEST))
    change = at_icell[data["entry_icell"]] * inverse_rest[data["entry_slot"]] * inverse_of_entry
    inverse = of_order * inverse_rest + JAX.sum_by(change, data["entry_slot"], layout.slots)
    return repeated_by_slot(layout, data, terms) * inverse


def repeats_through_time(
    layout: Layout, data: dict[str, Any], theta: dict[str, Any], terms: Terms, prior: jax.Array
) -> jax.Array:
    """The same where truths change: the derivative of the log evidence by the log of what each claim has from
    repetition."""

    def log_evidence(shift: jax.Array) -> jax.Array:
        scale, echo = jnp.exp(shift), terms.echo
        repeated = echo.repeated * by_row_of_slot(JAX, layout, data, scale)
        silence = data["slot_silence"] * (echo.fresh + (1.0 - echo.fresh) * scale)
        scaled = terms._replace(echo=echo._replace(repeated=repeated, weights=None))
        logs = by_icell(JAX, layout, data | {"slot_silence": silence}, theta, scaled)
        joint = over_orders(JAX, layout, data, logs) + prior
        evidence = JAX.logsumexp_by(joint, data["cell_question"], layout.questions)
        # A question that only pads has no cells.
        return jnp.where(jnp.isfinite(evidence), evidence, 0.0).sum()

    return jax.grad(log_evidence)(jnp.zeros(layout.slots))


def difficulty_nodes(layout: Layout, data: dict[str, Any], theta: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
    """Difficulties of a single question, and the logs of their weights."""
    if layout.mixture:
        logit = theta["hard"][data["question_level"][0]]
        return (
            jnp.stack([0.0 * theta["hard_shift"], -theta["hard_shift"]]),
            jax.nn.log_sigmoid(jnp.stack([-logit, logit])),
        )
    if layout.nodes:
        return data["nodes"] * theta["difficulty_sd"], data["node_log_weights"]
    return jnp.zeros(1), jnp.zeros(1)


@partial(jax.jit, static_argnums=(0, 1))
def claim_by_claim(layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: dict[str, Any]) -> ClaimLogs:
    """The fields of `ClaimLogs`; with no difficulty there is one node."""

    def one(draw: dict[str, Any]) -> Any:
        theta = theta_of(features, draw, data.get("text_grid"))
        terms = prepare(JAX, layout, data, theta)
        nodes, node_log = difficulty_nodes(layout, data, theta)
        needs_base = layout.change or "trap" in theta or "correlation" in theta
        slot_log, entry_log = jax.vmap(lambda d: claim_logs(JAX, layout, data, theta, terms, d))(nodes)
        return ClaimLogs(
            slot_log,
            entry_log,
            look_log_prior(JAX, layout, data, theta),
            base_log_mass(JAX, layout, data, theta) if needs_base else None,
            theta.get("trap"),
            theta.get("correlation"),
            terms.echo.originality if "correlation" in theta else None,
            repeated_by_slot(layout, data, terms),  # type: ignore[arg-type]
            node_log,  # type: ignore[arg-type]
            theta["log_rate"][0] if layout.change else None,
        )

    return jax.vmap(one)(draws)


def block_size(layout: Layout, draws: int, budget: int = 4_000_000) -> int:
    """Draws evaluated at once, so that temporaries stay within ``budget`` numbers (times a small factor)."""
    one = max(layout.rows + layout.terms + layout.cells, 1) * max(layout.nodes, 1)
    return int(max(1, min(draws, budget // one)))


def blocks(layout: Layout, draws: Draws) -> Iterator[tuple[Draws, int]]:
    """Draws in blocks of one size, the last one filled up, and how many of each count."""
    total = len(draws["logit"])
    step = block_size(layout, total)
    for start in range(0, total, step):
        index = np.minimum(np.arange(start, start + step), total - 1)
        yield {name: value[index] for name, value in draws.items()}, min(step, total - start)


def posterior_questions(
    layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: Draws
) -> NDArray[np.float32]:
    """(draws, questions) log density of each question by draw, see `question_log_densities`."""
    device = {name: jnp.asarray(value) for name, value in data.items()}
    parts = [
        np.asarray(question_log_densities(layout, features, device, part))[:kept]
        for part, kept in blocks(layout, draws)
    ]
    return np.concatenate(parts)


def posterior_cells(
    layout: Layout, features: tuple[str, ...], data: dict[str, Any], draws: Draws, with_witnesses: bool
) -> tuple[Any, Any]:
    """Log posterior by draw and cell (draws, cells), and the mean number of fresh witnesses (cells,) if wanted.

    Draws are taken in blocks of one size, so that memory is bounded and one compilation serves all blocks.
    """
    total = len(draws["logit"])
    logs, support = [], np.zeros(layout.cells)
    device = {name: jnp.asarray(value) for name, value in data.items()}
    for part, kept in blocks(layout, draws):
        if with_witnesses:
            block, fresh = witnesses(layout, features, device, part)
            support += np.asarray(fresh, np.float64)[:kept].sum(0)
        else:
            block = cell_logs(layout, features, device, part)
        logs.append(np.asarray(block)[:kept])
    return np.concatenate(logs), support / total
