"""Random small dense questions with every feature of the model on or off, for tests that compare ways to compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nousppl.models.dense import DenseQuestion

FEATURES = (
    "popularity",
    "open",
    "base",
    "strong",
    "copy_error",
    "ceiling",
    "own_notes",
    "soft",
    "difficulty",
    "rejected",
    "rho",
)
"""What can be on or off. Off: uniform errors, a closed list, no weights of that kind, copies without error, no ceiling,
no own notes, hard claims, no difficulty, no rejected answers, texts that say nothing."""


def random_question(
    rng: np.random.Generator, *, n: int | None = None, K: int | None = None, **features: bool
) -> tuple[DenseQuestion, NDArray[np.int64]]:
    """A question and the values that its claims name (-1: a soft claim, whose row of ``weights`` stands).

    ``n`` claims (default 1 to 5) over ``K`` answers (default 2 to 4); each of ``FEATURES`` is on or off as given, else
    by a fair coin.
    """
    if unknown := set(features) - set(FEATURES):
        raise TypeError(f"no such features: {sorted(unknown)}; there are {FEATURES}")
    n = int(rng.integers(1, 6)) if n is None else n
    K = int(rng.integers(2, 5)) if K is None else K
    on = {name: bool(rng.random() < 0.5) for name in FEATURES} | features

    pairs = np.tril(np.ones((n, n)), -1)
    base = on["base"] * pairs * np.exp(rng.normal(-1, 1, (n, n)))
    strong = on["strong"] * pairs * (rng.random((n, n)) < 0.5) * np.exp(rng.normal(1, 1, (n, n)))
    alpha = np.exp(rng.normal(0, 1, n))
    if on["own_notes"]:
        alpha[rng.random(n) < 0.4] = 0.0
        alpha[rng.integers(n)] = 0.0
    copy_error = float(rng.choice([1e-4, 0.03, 0.2])) if on["copy_error"] else 0.0
    weights, values = _claims(rng, n, K, soft=on["soft"])
    if copy_error == 0.0:
        _agree_where_nothing_else_is_possible(rng, alpha, base, strong, weights, values)

    question = DenseQuestion(
        prior=_prior(rng, K, rejected=on["rejected"]),
        weights=weights,
        logit=rng.normal(0.5, 1.5, (n, K)),
        ceiling=np.where(on["ceiling"] & (rng.random(n) < 0.5), rng.uniform(0.1, 0.9, n), np.inf),
        difficulty_sd=float(rng.uniform(0.3, 2.0)) if on["difficulty"] else 0.0,
        alpha=alpha,
        base=base,
        strong=strong,
        rho=np.where(pairs > 0, np.exp(rng.normal(0, 1, (n, n))), 1.0) if on["rho"] else np.ones((n, n)),
        copy_error=copy_error,
        beta=float(np.exp(rng.normal(0, 1))) if on["popularity"] else None,
        closed=not on["open"],
    )
    return question, values


def _claims(rng: np.random.Generator, n: int, K: int, *, soft: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    # A skewed law, so that values repeat and popularity grows.
    values = rng.choice(K, size=n, p=rng.dirichlet(np.full(K, 0.7)))
    weights = np.eye(K)[values]
    is_soft = soft & (rng.random(n) < 0.5)
    weights[is_soft] = (rng.dirichlet(np.ones(K), n) * rng.choice([0.3, 0.8, 1.0], (n, 1)))[is_soft]
    return weights, np.where(is_soft, -1, values)


def _agree_where_nothing_else_is_possible(
    rng: np.random.Generator,
    alpha: NDArray[np.float64],
    base: NDArray[np.float64],
    strong: NDArray[np.float64],
    weights: NDArray[np.float64],
    values: NDArray[np.int64],
) -> None:
    """Without copy error an own note can only repeat: make it name what it may have repeated."""
    for j in np.flatnonzero(alpha == 0):
        earlier = [k for k in range(j) if strong[j, k] > 0 or (base[j, k] > 0 and alpha[k] > 0)]
        if earlier:
            k = rng.choice(earlier)
            values[j] = np.argmax(weights[k])
            weights[j] = np.eye(weights.shape[1])[values[j]]


def _prior(rng: np.random.Generator, K: int, *, rejected: bool) -> NDArray[np.float64]:
    prior = rng.dirichlet(np.full(K, 2.0))
    if rejected:
        prior[rng.permutation(K)[: rng.integers(1, K)]] = 0.0
    return prior / prior.sum()
