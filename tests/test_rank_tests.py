"""The test of uniform ranks is exact, and it fires."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from nousppl import rank_tests


@pytest.mark.parametrize(("fits", "levels"), [(4, 5), (5, 4), (3, 7)])
def test_p_values_are_exact(fits: int, levels: int) -> None:
    """Over all samples of uniform ranks, the share of those at most as probable is the p-value itself."""
    samples = np.array(list(product(range(levels), repeat=fits)))
    p = np.array([rank_tests.p_value(sample, levels) for sample in samples])
    for value in np.unique(p):
        assert (p <= value * (1 + 1e-9)).mean() == pytest.approx(value, abs=1e-12)


def uniform(fits: int, levels: int = 100) -> NDArray[np.int64]:
    """As even as can be."""
    return (np.arange(fits) * levels) // fits


def test_even_ranks_are_far_from_rejected() -> None:
    assert rank_tests.p_value(uniform(256), 100) > 0.9


WRONG = {
    "too low": lambda u: u**1.5,
    "too narrow": lambda u: 0.5 + 0.5 * np.sign(u - 0.5) * np.abs(2 * u - 1) ** 0.5,
    "too wide": lambda u: 0.5 + 0.5 * np.sign(u - 0.5) * np.abs(2 * u - 1) ** 2.0,
}


@pytest.mark.parametrize("kind", WRONG)
def test_each_departure_is_rejected(kind: str) -> None:
    even = (np.arange(256) + 0.5) / 256
    ranks = np.minimum((100 * WRONG[kind](even)).astype(int), 99)
    assert rank_tests.p_value(ranks, 100) < 1e-3


def test_the_band_holds_what_it_says() -> None:
    share, low, high = rank_tests.band(0.05, 100, 20)
    rng = np.random.default_rng(0)
    samples = [rank_tests.counts(rng.integers(0, 20, 100), 20) / 100 for _ in range(4000)]
    out = np.mean([bool(((s < low - 1e-12) | (s > high + 1e-12)).any()) for s in samples])
    # The level is at most .05; counts are discrete, so that it is somewhat less.
    assert 0.02 < out < 0.062
    assert (low < share).all() and (share < high).all()


def test_holm_by_hand() -> None:
    assert rank_tests.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.9}) == pytest.approx(
        {"a": 0.04, "b": 0.09, "c": 0.09, "d": 0.9}
    )
