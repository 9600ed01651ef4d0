"""What the draws of a variational fit are taken from: the packed spreads, and draws by importance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from sbc_cases import PLAIN, design
from scipy.stats import halfnorm, kstest, norm, t

import nousppl as nous
from nousppl.blueprint import centring, draw_up
from nousppl.generate import Generator
from nousppl.inference import packed, svi
from nousppl.inference.backend import JAX
from nousppl.inference.guide import State
from nousppl.inference.options import SVI

PLACES = np.linspace(-11.0, 11.0, 90)
SLOPES = np.exp(norm.logpdf(PLACES) - halfnorm.logpdf(packed.half_normal(PLACES)))


def test_a_spread_is_packed_by_its_place_in_the_prior() -> None:
    """A normal number becomes a half-normal one, and comes back."""
    np.testing.assert_allclose(halfnorm.logsf(packed.half_normal(PLACES)), norm.logsf(PLACES), rtol=1e-12)
    np.testing.assert_allclose(packed.from_half_normal(packed.half_normal(PLACES)), PLACES, atol=1e-9)
    drawn = packed.half_normal(np.random.default_rng(0).standard_normal(4000))
    assert kstest(drawn, "halfnorm").pvalue > 1e-3


def test_beyond_the_ends_nothing_is_infinite() -> None:
    np.testing.assert_array_equal(
        packed.half_normal(np.array([-40.0, 40.0])), packed.half_normal(np.array([-12.0, 12.0]))
    )
    assert np.isfinite(packed.from_half_normal(np.array([0.0, 1e-300, 50.0]))).all()


def test_jax_maps_spreads_alike_with_its_gradient() -> None:
    np.testing.assert_allclose(JAX.half_normal(jnp.asarray(PLACES)), packed.half_normal(PLACES), rtol=1e-4)
    slope = jax.vmap(jax.grad(lambda x: JAX.half_normal(x)))(jnp.asarray(PLACES))
    np.testing.assert_allclose(slope, SLOPES, rtol=1e-4, atol=1e-12)


def test_torch_maps_spreads_alike_with_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    from nousppl.inference.torch_backend import Torch

    x = torch.tensor(PLACES, dtype=torch.float64, requires_grad=True)
    y = Torch(torch.float64).half_normal(x)
    np.testing.assert_allclose(y.detach().numpy(), packed.half_normal(PLACES), rtol=1e-9)
    (slope,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(slope.numpy(), SLOPES, rtol=1e-9, atol=1e-12)


def test_effects_are_centred_by_degrees() -> None:
    """The more claims a level has, the more; there is no jump at which levels of one group part ways."""
    generator = Generator(PLAIN, design())
    blueprint, encoded = draw_up(PLAIN, generator.placeholder), generator.encoded
    claims = np.flatnonzero(encoded.used)
    found = centring(blueprint.plan, encoded, blueprint, claims)["centred reliability_1|source"]
    counts = np.bincount(encoded.designs["reliability"].groups[0].index[claims])
    order = np.argsort(counts)
    assert (np.diff(found[order]) >= 0).all() and 0.0 < found.min() < found.max() < 0.5
    few = centring(blueprint.plan, encoded, blueprint, claims[:8])["centred reliability_1|source"]
    assert (few < found).all() and np.isclose(few, 0.0, atol=0.05).all()


# -------------------------------------------------------------------------------------------------- draws by importance


def run(state: State, density: Any, options: SVI, seed: int = 0, spreads: tuple[int, ...] = ()) -> NDArray[np.float64]:
    """Draws by importance where a step's loss is that of ``density``."""
    pack = packed.Packing((), len(state.mean), 0, spreads)
    asking = svi.by_importance(state, pack, options, np.random.default_rng(seed))
    block = next(asking)
    while True:
        assert block.rate == 0.0 and block.restart is state
        vectors = np.asarray(state.mean) + block.noise[:, 0] * np.exp(np.asarray(state.log_scale))
        try:
            block = asking.send((state, state, -(density(vectors) + float(np.sum(state.log_scale)))))
        except StopIteration as end:
            drawn: NDArray[np.float64] = end.value
            return drawn


def narrow(scale: float, size: int = 2) -> State:
    return State(jnp.zeros(size), jnp.zeros((0, 0)), jnp.full(size, jnp.log(scale)))


def standard(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return norm.logpdf(vectors).sum(1)


def test_draws_are_taken_by_importance() -> None:
    """A guide that is too narrow gives draws of the right width."""
    drawn = run(narrow(0.8), standard, SVI(weighed=20_000, draws=4000))
    assert drawn.shape == (4000, 2)
    np.testing.assert_allclose(drawn.std(0), 1.0, atol=0.04)
    np.testing.assert_allclose(drawn.mean(0), 0.0, atol=0.06)


def test_long_tails_of_a_spread_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws of a normal guide hardly reach where a spread of few levels may be."""

    def long_tailed(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        return t.logpdf(vectors[:, 0], 5) + norm.logpdf(vectors[:, 1])

    def far() -> float:
        guide = narrow(0.6)._replace(log_scale=np.log([0.6, 1.0]))
        drawn = run(guide, long_tailed, SVI(weighed=20_000, draws=8000), spreads=(0,))
        np.testing.assert_allclose(drawn[:, 1].std(), 1.0, atol=0.06)
        return float(np.quantile(drawn[:, 0], 0.995) / t.ppf(0.995, 5))

    assert far() == pytest.approx(1.0, abs=0.1)
    monkeypatch.setattr(svi, "TAILS", 10_000)
    monkeypatch.setattr(svi, "WIDER", 1.0)
    assert far() < 0.9


def test_draws_by_importance_are_in_no_order() -> None:
    """Neighbours are no more alike than others, so that any half of the draws will do."""
    drawn = run(narrow(0.7), standard, SVI(weighed=1000, draws=400))[:, 0]
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.2


def test_a_density_that_is_not_a_number_weighs_nothing() -> None:
    def broken(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(vectors[:, 0] > 0.0, np.nan, standard(vectors))

    assert (run(narrow(0.8), broken, SVI(weighed=1000, draws=200))[:, 0] <= 0.0).all()


def test_a_few_draws_never_stand_for_all() -> None:
    weight = np.exp(np.random.default_rng(0).normal(0.0, 5.0, 1000))
    found = svi.tempered(weight)
    assert 200 <= found.sum() ** 2 / np.square(found).sum() < 205
    assert np.square(weight.sum()) / np.square(weight).sum() < 10
    many = svi.tempered(np.exp(np.random.default_rng(0).normal(0.0, 5.0, 20_000)))
    assert 2000 <= many.sum() ** 2 / np.square(many).sum() < 2050
    np.testing.assert_array_equal(np.argsort(found), np.argsort(weight))
    even = np.random.default_rng(0).uniform(0.5, 1.5, 1000)
    np.testing.assert_array_equal(svi.tempered(even), even)


def test_a_trust_keeps_draws_by_importance_unless_told_otherwise() -> None:
    _, evidence = Generator(PLAIN, design(20, 4, 3)).draw(1)
    kept = [PLAIN.fit(evidence, SVI(steps=300, weighed=n), learn_from="all").posterior_draws for n in (0, 1000)]
    name = "reliability_1|source_sigma"
    assert not np.array_equal(kept[0][name], kept[1][name])
    with pytest.raises(nous.InferenceError, match="weighed=-1"):
        SVI(weighed=-1)
