"""The simulator against exact enumeration: how often every (truth, origins, values) of a tiny question is drawn."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from scipy.stats import chi2

from nousppl.models.dense import DenseQuestion
from nousppl.simulate import FRESH, NOTE, fresh_probability, simulate_question, wrong_answer_law

FALSE_ALARM = 1e-4
"""Chance that a correct simulator fails one of the frequency tests; the seeds are fixed."""
DRAWS = 5_000
Path = tuple[int, tuple[int, ...], tuple[int, ...]]


def lower(n: int, weight: float) -> np.ndarray:
    return np.tril(np.full((n, n), weight), -1)


def make(n: int = 3, size: int = 3, **changes: object) -> DenseQuestion:
    strong = lower(n, 0.0)
    strong[n - 1, n - 2] = 1.5
    fields: dict[str, object] = {
        "prior": np.arange(1.0, size + 1) / (size * (size + 1) / 2),
        "weights": np.zeros((n, size)),
        "logit": np.linspace(-0.5, 1.5, n)[:, None] + np.linspace(0.0, 0.6, size),
        "ceiling": np.full(n, np.inf),
        "difficulty_sd": 0.0,
        "alpha": np.linspace(1.0, 0.5, n),
        "base": lower(n, 0.8),
        "strong": strong,
        "rho": np.ones((n, n)),
        "copy_error": 0.3,
        "beta": 0.7,
        "closed": True,
    }
    return DenseQuestion(**(fields | changes))  # type: ignore[arg-type]


QUESTIONS = {
    "plain": make(),
    "two answers": make(size=2),
    "no popularity": make(beta=None),
    "popularity": make(beta=0.05, alpha=np.full(3, 3.0), logit=np.full((3, 3), -1.0)),
    "open": make(beta=0.05, closed=False, alpha=np.full(3, 3.0), logit=np.full((3, 3), -1.0)),
    "ceiling": make(ceiling=np.array([np.inf, 0.3, 0.4])),
    "difficulty": make(difficulty_sd=2.0),
    "rejected": make(prior=np.array([0.6, 0.0, 0.4])),
    "own note later": make(alpha=np.array([1.0, 0.0, 0.5])),
    "own note first": make(alpha=np.array([0.0, 1.0, 0.5])),
    "originality": make(base=lower(3, 3.0), alpha=np.array([1.0, 0.2, 1.0]), strong=lower(3, 0.0)),
    "copy error": make(copy_error=0.9),
}


def rule(values: tuple[int, ...], k: int, question: DenseQuestion, without: str) -> float:
    """r_k: the chance that claim k is no repetition, from what came before it."""
    if without == "originality":
        return 1.0
    total = question.alpha[k]
    for earlier in range(k):
        if values[earlier] == values[k]:
            total += question.base[k, earlier] + question.strong[k, earlier]
    return question.alpha[k] / total if total > 0 else 0.0


def wrong(values: tuple[int, ...], j: int, truth: int, a: float, question: DenseQuestion, without: str) -> float:
    """u_j(x_j; z) of a fresh wrong claim, written out from the definition."""
    size = len(question.prior)
    if question.beta is None or size == 2 or without == "popularity":
        return 1 / (size - 1)
    counts = [0.0] * size
    for k in range(j):
        counts[values[k]] += rule(values, k, question, without)
    bottom = sum(counts) - counts[truth] + question.beta
    law = {x: (counts[x] + question.beta / (size - 1)) / bottom for x in range(size) if x != truth}
    cap, top = max(a / (1 - a), 1 / (size - 1)), max(law.values())
    if not question.closed and top > cap and without != "clip":
        t = (top - cap) / (top - 1 / (size - 1))
        law = {x: (1 - t) * u + t / (size - 1) for x, u in law.items()}
    return law[values[j]]


def step(
    values: tuple[int, ...], origin: int, j: int, truth: int, d: float, question: DenseQuestion, without: str
) -> float:
    """P(o_j, x_j | the claims before, truth, difficulty)."""
    size = len(question.prior)
    alpha = float(question.alpha[j])
    w = [question.base[j, k] * rule(values, k, question, without) + question.strong[j, k] for k in range(j)]
    if without == "strong":
        w = [question.base[j, k] * rule(values, k, question, without) for k in range(j)]
    total = alpha + sum(w)
    if total == 0:
        return 1 / size if origin == NOTE else 0.0
    if origin == NOTE:
        return 0.0
    if origin >= 0:
        eps = 0.0 if without == "copy error" else question.copy_error
        return w[origin] / total * ((1 - eps) * (values[origin] == values[j]) + eps / size)
    sd = 0.0 if without == "difficulty" else question.difficulty_sd
    a = 1 / (1 + math.exp(-(question.logit[j, truth] + sd * d)))
    a = a if without == "ceiling" else min(a, question.ceiling[j])
    return alpha / total * (a if values[j] == truth else (1 - a) * wrong(values, j, truth, a, question, without))


def enumerate_paths(question: DenseQuestion, without: str = "") -> dict[Path, float]:
    """Probability of every (truth, origins, values); ``without`` takes one mechanism out."""
    n, size = len(question.alpha), len(question.prior)
    nodes = [(0.0, 1.0)]
    if question.difficulty_sd:
        grid = [i / 5 for i in range(-30, 31)]
        norm = sum(math.exp(-d * d / 2) for d in grid)
        nodes = [(d, math.exp(-d * d / 2) / norm) for d in grid]
    paths: dict[Path, float] = {}
    for truth in range(size):
        for origins in itertools.product(*[[NOTE, *range(FRESH, j)] for j in range(n)]):
            for values in itertools.product(range(size), repeat=n):
                total = 0.0
                for d, mass in nodes:
                    p = question.prior[truth] * mass
                    for j in range(n):
                        p *= step(values, origins[j], j, truth, d, question, without)
                        if p == 0:
                            break
                    total += p
                paths[truth, origins, values] = total
    return paths


@functools.cache
def draw_counts(name: str) -> dict[Path, int]:
    rng, question = np.random.default_rng(1), QUESTIONS[name]
    counts: dict[Path, int] = {}
    for _ in range(DRAWS):
        truth, values, origins, *_ = simulate_question(rng, question)
        path = (truth, tuple(origins.tolist()), tuple(values.tolist()))
        counts[path] = counts.get(path, 0) + 1
    return counts


def p_value(counts: dict[Path, int], paths: dict[Path, float]) -> float:
    """Chi-squared test of the counts; paths expected less than five times are one cell, impossible ones seen give 0."""
    if any(paths[path] == 0 for path in counts):
        return 0.0
    expected = {path: DRAWS * p for path, p in paths.items()}
    large = [path for path, e in expected.items() if e >= 5]
    cells = [(counts.get(path, 0), expected[path]) for path in large]
    rest = (DRAWS - sum(c for c, _ in cells), DRAWS - sum(e for _, e in cells))
    if rest[1] > 1e-6:
        cells.append(rest)
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    return float(chi2.sf(statistic, len(cells) - 1))


@pytest.mark.parametrize("name", QUESTIONS)
def test_frequencies_are_the_enumerated_probabilities(name: str) -> None:
    question = QUESTIONS[name]
    paths = enumerate_paths(question)
    assert sum(paths.values()) == pytest.approx(1.0, abs=1e-12)
    assert p_value(draw_counts(name), paths) > FALSE_ALARM


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("popularity", "popularity"),
        ("open", "clip"),
        ("ceiling", "ceiling"),
        ("difficulty", "difficulty"),
        ("originality", "originality"),
        ("plain", "strong"),
        ("copy error", "copy error"),
    ],
)
def test_a_missing_mechanism_is_found(name: str, without: str) -> None:
    question = QUESTIONS[name]
    assert p_value(draw_counts(name), enumerate_paths(question, without)) < FALSE_ALARM


def test_same_seed_same_draw_and_other_seed_other_draw() -> None:
    question = make(n=40, size=6, alpha=np.full(40, 2.0), base=lower(40, 0.1), strong=lower(40, 0.0))
    one, two, three = (simulate_question(np.random.default_rng(seed), question) for seed in (3, 3, 4))
    assert one.truth == two.truth
    assert np.array_equal(one.values, two.values) and np.array_equal(one.origins, two.origins)
    assert not np.array_equal(one.values, three.values)


def test_origins_come_before_and_carry_their_value() -> None:
    n = 60
    question = make(n=n, size=5, alpha=np.ones(n), base=lower(n, 0.05), strong=lower(n, 0.05), copy_error=0.0)
    _, values, origins, *_ = simulate_question(np.random.default_rng(0), question)
    assert (origins < np.arange(n)).all() and (origins >= 0).sum() > 10
    copies = np.flatnonzero(origins >= 0)
    assert (values[copies] == values[origins[copies]]).all()


def test_fresh_probability_is_the_frequency_of_fresh_claims() -> None:
    n, rng = 8, np.random.default_rng(5)
    question = make(n=n, size=4, alpha=np.linspace(2, 0.5, n), base=lower(n, 0.6), strong=lower(n, 0.3))
    draws = [simulate_question(rng, question) for _ in range(2_000)]
    expected = np.array([fresh_probability(question, draw.values) for draw in draws])
    fresh = np.array([draw.origins == FRESH for draw in draws])
    score = (fresh - expected).sum(0) / np.sqrt((expected * (1 - expected)).sum(0).clip(1e-12))
    assert (np.abs(score) < 5).all()
    alone = question.alpha / (question.alpha + (question.base + question.strong).sum(1))
    wrong_score = (fresh - alone).sum(0) / np.sqrt((alone * (1 - alone) * len(draws)).clip(1e-12))
    assert np.abs(wrong_score).max() > 5


def test_a_first_own_note_has_no_origin_and_makes_nothing_popular() -> None:
    question = QUESTIONS["own note first"]
    draw = simulate_question(np.random.default_rng(0), question)
    assert draw.origins[0] == NOTE
    assert np.isnan(fresh_probability(question, draw.values)[0])


@pytest.mark.parametrize("accuracy", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("closed", [True, False])
def test_wrong_answer_law_sums_to_one_and_open_domains_keep_the_cap(accuracy: float, closed: bool) -> None:
    law = wrong_answer_law(np.array([0.0, 9.0, 1.0, 0.0]), 3, accuracy, 0.01, closed)
    assert law.sum() == pytest.approx(1.0) and law[3] == 0
    cap = max(accuracy / (1 - accuracy), 1 / 3) if accuracy < 1 else math.inf
    assert (law.max() <= cap + 1e-12) == (not closed or cap > 0.9)
