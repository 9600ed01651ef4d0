"""Shorter ways of computing the same density: claims that stand alone, and gradients without scattering."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import fits

import nousppl as nous
from nousppl import alike
from nousppl.inference import backend
from nousppl.inference.backend import JAX
from nousppl.inference.packed import log_density, packing
from nousppl.models import one_of


def value_and_gradient(ours: fits.Case) -> tuple[float, np.ndarray]:
    pack = packing(ours.plan, 0)
    density = log_density(JAX, ours.plan, ours.layout, pack)
    point = jnp.asarray(np.random.default_rng(0).normal(0.0, 0.3, pack.size), float)
    value, gradient = jax.jit(jax.value_and_grad(density))(point, fits.not_centred(ours))
    return float(value), np.asarray(gradient)


@pytest.mark.parametrize("origin", [None, nous.Origin(lag=False)], ids=["no origins", "origins"])
def test_the_short_way_is_the_long_way(origin: nous.Origin | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "QUESTIONS", 60)
    monkeypatch.setattr(fits, "SOURCES", 20)
    ours = fits.case(origin)
    assert one_of.alone(ours.layout)
    value, gradient = value_and_gradient(ours)
    monkeypatch.setattr(alike, "WORTH", np.inf)
    ours = fits.case(origin)
    assert ours.layout.in_place
    assert np.isclose(value_and_gradient(ours)[0], value, rtol=1e-6)
    monkeypatch.setattr(one_of, "alone", lambda layout: False)
    ours = ours._replace(layout=ours.layout._replace(in_place=False))
    monkeypatch.setattr(backend, "WRITTEN_OUT", 0)
    monkeypatch.setattr(type(JAX), "permuted", staticmethod(lambda x, order, inverse: JAX.take(x, order)))
    slow, slow_gradient = value_and_gradient(ours)
    assert np.isclose(value, slow, rtol=1e-5)
    assert np.abs(gradient - slow_gradient).max() < 1e-4 * (1.0 + np.abs(slow_gradient).max())


def test_claims_in_another_order_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim without a time is put at a random one, so that the slots are not the claims in place; taken as they lie,
    the density is another one."""
    monkeypatch.setattr(fits, "QUESTIONS", 60)
    monkeypatch.setattr(fits, "SOURCES", 20)
    monkeypatch.setattr(alike, "WORTH", np.inf)
    dated = fits.table()
    monkeypatch.setattr(fits, "table", lambda: dated.assign(time=dated["time"].where(dated["time"] != 3)))
    ours = fits.case(nous.Origin(lag=False, orders=1))
    assert ours.layout.slots == 60 * fits.CLAIMS and not ours.layout.in_place
    value, _ = value_and_gradient(ours)
    wrong, _ = value_and_gradient(ours._replace(layout=ours.layout._replace(in_place=True)))
    assert abs(value - wrong) > 0.05


def test_the_density_is_that_of_the_enumerated_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "QUESTIONS", 60)
    monkeypatch.setattr(fits, "SOURCES", 20)
    # Every claim more is an origin more to enumerate, and compiling that takes the time.
    monkeypatch.setattr(fits, "CLAIMS", 4)
    for origin in fits.ORIGINS.values():
        for plainly in (False, True)[: 1 + (origin is not None)]:
            assert fits.difference(fits.case(origin), origin is not None, plainly) < fits.SAME


def again(ours: fits.Case, size: int) -> list[str]:
    """What compiled code computes inside its loops over claims of vectors of some size: logs, roots and so on."""
    pack = packing(ours.plan, 0)
    density = log_density(JAX, ours.plan, ours.layout, pack)
    code = jax.jit(density).lower(jnp.zeros(pack.size), fits.not_centred(ours)).compile().as_text()
    claims, found = ours.layout.slots, []
    for computation in re.findall(r"^%fused.*?^}", code, re.MULTILINE | re.DOTALL):
        if f"[{claims}" in computation.splitlines()[0].partition("->")[2]:
            of_size = rf"= f\d+\[{size}\]\S* "
            found += re.findall(of_size + r"(log|log-plus-one|exponential|sqrt|divide|select)\(", computation)
    return found


@pytest.mark.parametrize("worth", [np.inf, alike.WORTH], ids=["claim by claim", "alike"])
def test_what_sources_have_is_computed_once(worth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for each claim, as the compiler likes to: effects, and the reliability of claims that are alike."""
    monkeypatch.setattr(fits, "QUESTIONS", 60)
    monkeypatch.setattr(fits, "SOURCES", 20)
    monkeypatch.setattr(alike, "WORTH", worth)
    ours = fits.case(None)
    assert len(ours.stacked["claim_zero"][0]) == (20 if np.isfinite(worth) else 480)
    assert again(ours, 20) == []
    monkeypatch.setattr(type(JAX), "once", staticmethod(lambda values: values))
    assert again(ours, 20)


@pytest.mark.parametrize("flag", [True, False])
def test_the_branch_that_is_asked_for_is_taken_and_no_other(flag: bool) -> None:
    """In compiled code and in its gradient, where `jax.numpy.where` would evaluate both, and give NaN."""
    ran: list[str] = []

    def branch(name: str, function: Callable[[], jax.Array]) -> Callable[[], jax.Array]:
        def run() -> jax.Array:
            jax.debug.callback(lambda: ran.append(name))
            return function()

        return run

    def chosen(x: jax.Array, flag: jax.Array) -> jax.Array:
        return JAX.either(flag, branch("root", lambda: jnp.sqrt(x)), branch("twice", lambda: 2.0 * x))

    value, gradient = jax.jit(jax.value_and_grad(chosen))(jnp.asarray(4.0 if flag else 0.0), jnp.asarray(flag))
    jax.effects_barrier()
    assert set(ran) == {"root" if flag else "twice"}
    assert (float(value), float(gradient)) == ((2.0, 0.25) if flag else (0.0, 2.0))
