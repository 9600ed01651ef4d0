"""The belief about numbers under draws of the parameters: the nodes of each integral, and how probable each is."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nousppl.inference.backend import JAX
from nousppl.inference.exact import theta_of
from nousppl.models.layout import Layout
from nousppl.models.number import Integrand, Numbers, integrand, log_outside, numbers_of, truth_given_seen
from nousppl.models.one_of import prepare

POINTS = 128
"""Intervals that the integral over a number is cut into where a belief is asked for, and one: more than in a fit, so
that quantiles are fine too."""


class Found(NamedTuple):
    """What is believed of what the sources of Q questions can see (y), in units of their attributes."""

    node: NDArray[np.float64]
    """(draws, Q, G) y."""
    log_mass: NDArray[np.float64]
    """(draws, Q, G) log of weight and prior density of the node."""
    by_order: NDArray[np.float64]
    """(draws, Q, R, G) log likelihood of the claims in each order."""
    width: NDArray[np.float64]
    """(draws, Q, G) width of the part of the line that the node stands for."""
    share: NDArray[np.float64]
    """(draws, Q) mean of the truth given y, as a share of y."""
    sd: NDArray[np.float64]
    """(draws, Q) its standard deviation given y."""
    fresh: NDArray[np.float64]
    """(draws, Q, n) chance that each claim is fresh; 0 for what only pads."""
    order: NDArray[np.float64]
    """(draws, Q, R) probability of each order."""
    outside: NDArray[np.float64]
    """(draws, Q, G) log chance, a part of ``log_mass``, that the truth lies in no rejected rounding cell."""


class ByClaim(NamedTuple):
    """The same of one question, claim by claim."""

    found: Found
    """Of the one question."""
    claim: NDArray[np.float64]
    """(draws, R, n, G) log likelihood of each claim in each order."""
    repeated: NDArray[np.float64]
    """(draws, R, n) chance that the claim comes out as it did by repetition."""


def found_of(given: Numbers, sums: Integrand) -> Found:
    """What is believed, from what is summed over the nodes."""
    logs = sums.by_claim
    by_order = logs.sum(2)
    joint = by_order + sums.log_mass[:, None, :] + given.order_log[:, :, None]
    weight = jax.nn.softmax(joint.reshape(joint.shape[0], -1), axis=-1).reshape(joint.shape)
    # Whether a claim repeats does not depend on the truth but by its likelihood: m / p(x | y).
    inverse = jnp.einsum("qrg,qrng->qrn", weight, jnp.exp(-logs))
    order = weight.sum(-1)
    fresh = jnp.where(given.silent, 0.0, order[:, :, None] - given.repeated * inverse).sum(1)
    node = sums.node
    ends = jnp.concatenate([node[:, :1], 0.5 * (node[:, 1:] + node[:, :-1]), node[:, -1:]], axis=1)
    outside = jnp.zeros_like(node) if given.gap is None else log_outside(JAX, given, node)
    return Found(node, sums.log_mass, by_order, jnp.diff(ends), *truth_given_seen(given), fresh, order, outside)  # type: ignore[arg-type]


@partial(jax.jit, static_argnums=(0, 1, 2))
def find(layout: Layout, features: tuple[str, ...], by_claim: bool, data: dict[str, Any], draws: dict[str, Any]) -> Any:
    """`Found` for each set of questions, or `ByClaim`; under each draw."""

    def one(draw: dict[str, Any]) -> Any:
        theta = theta_of(features, draw, data.get("text_grid"))
        echo = prepare(JAX, layout, data, theta).echo
        out = []
        for of in layout.numbers:
            given = numbers_of(JAX, layout, data, theta, echo, of)
            sums = integrand(JAX, given, layout.points)
            found = found_of(given, sums)
            out.append(ByClaim(found, sums.by_claim[0], given.repeated[0]) if by_claim else found)
        return tuple(out)

    return jax.vmap(one)(draws)


def pairs(layout: Layout) -> int:
    """Numbers of pairs of a claim and a node that one draw needs."""
    return sum(of.questions * of.orders * of.claims for of in layout.numbers) * 2 * layout.points
