"""Numbers: the marginal is brute force and the integral, and beliefs about numbers do what they should."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from scipy.integrate import quad_vec
from scipy.special import expit, ndtr
from scipy.stats import kstest, norm
from scipy.stats import t as student_t

import nousppl as nous
from nousppl import fitting, mixture
from nousppl.asking import ready
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.inference import enumeration, packed
from nousppl.inference.backend import JAX
from nousppl.inference.exact import theta_of
from nousppl.models import number
from nousppl.models.one_of import prepare
from nousppl.models.program import COPY_ERROR
from nousppl.number_asking import one_number
from nousppl.number_belief import NumberBelief
from nousppl.padding import rounded
from nousppl.pair_world import PairWorld
from nousppl.trust import Trust

Floats = NDArray[np.float64]
DOUBLE = 1e-10
ORIGINS: dict[str, Any] = {
    "echoes": nous.Origin(strong="same_source", lag=False),
    "fading": nous.Origin(strong="same_source", lag=True),
}
KNOWN: dict[str, Any] = {
    "reliability_Intercept": 2.0,
    "reliability_1|source_sigma": 0.0,
    "freshness_1|source_sigma": 0.0,
    "shift_1|source_sigma": 0.0,
    "spread_Intercept": -1.0,
    "spread_1|source_sigma": 0.0,
    "origin_log_strangers": -4.0,
    "origin_same_source": 3.0,
    "origin_half_life": 30.0,
    "errors_log_popularity": 1.0,
    "numbers_log_scale": [0.0],
    "numbers_log_slope": [0.0],
    "shared_Intercept": np.log(0.2),
}


def known(model: nous.TrustModel, **given: Any) -> Trust:
    """A trust that knows the parameters, and that all sources are alike."""
    trust = model.default_trust(draws=1)
    values = KNOWN | given
    draws = {name: np.asarray(values.get(name, 0.0), float)[None, None] for name in trust.posterior_draws}
    return replace(trust, posterior_draws=draws)


def polls(values: list[float], sources: list[str] | None = None, **more: Any) -> pd.DataFrame:
    names = [f"s{j}" for j in range(len(values))] if sources is None else sources
    columns = {"entity": "race", "attribute": "margin", "value": values, "source": names}
    return pd.DataFrame(columns | {"time": np.arange(len(values), dtype=float)} | more)


def model_of(resolution: float = 1.0, centre: float = 0.0, scale: float = 10.0, **more: Any) -> nous.TrustModel:
    shape = nous.Number(resolution=resolution, unit="%", centre=centre, scale=scale)
    return nous.TrustModel(**({"shapes": {"margin": shape}} | more))


def belief(claims: pd.DataFrame, trust: Trust, settled: pd.DataFrame | None = None) -> NumberBelief:
    found = trust.posterior(nous.Evidence(claims, settled=settled).question("race", "margin"))
    assert isinstance(found, NumberBelief)
    return found


def random_polls(seed: int, questions: int, claims: int, resolution: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(questions):
        z = rng.normal(0.0, 10.0)
        for j in range(claims):
            x = z + rng.normal(0.0, 3.0) if rng.random() < 0.8 else rng.normal(0.0, 30.0)
            x = rows[-1][2] if j and rng.random() < 0.3 else float(np.round(x / resolution) * resolution)
            rows.append((f"e{q:02d}", "margin", x, f"s{rng.integers(3)}", float(j)))
    return pd.DataFrame(rows, columns=["entity", "attribute", "value", "source", "time"])


class Parts:
    """One question at one draw, as arrays, and brute force on them."""

    def __init__(self, trust: Trust, evidence: nous.Evidence, question: int, points: int = 64) -> None:
        encoded = trust.encoded(evidence)
        problem = compile_problem(encoded, np.array([question]))
        layout = rounded([problem.layout])._replace(points=points)
        data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), layout.slots)
        theta = theta_of(trust.blueprint.plan.features, {n: jnp.asarray(v[0]) for n, v in draws.items()}, None)
        data = {name: jnp.asarray(value) for name, value in data.items()}
        echo = prepare(JAX, layout, data, theta).echo
        self.given = number.numbers_of(JAX, layout, data, theta, echo, layout.numbers[0])
        self.sums = number.integrand(JAX, self.given, points)
        logs = number.log_marginals(JAX, layout, data, theta, echo)
        self.log_marginal = float(logs[0])
        self.numbers, self.index = encoded.cells.numbers, question
        self.n = len(problem.claims)
        self.theta = {name: np.asarray(value[0], float) for name, value in draws.items()}
        self.size = float(encoded.cells.size[question])
        answers = encoded.coded.row_answer[encoded.coded.row_start[:-1][problem.claims]]
        self.code, self.value = self.numbers.code[answers], self.numbers.value[answers]
        self.step = float(self.numbers.step[0])
        zero = np.zeros((self.n, self.n))
        self.base, self.strong, self.alpha = zero, zero, np.ones(self.n)
        if encoded.origin is not None:
            world = PairWorld(encoded, problem, len(encoded.features), None)
            self.base, self.strong, _, _ = world.weights(self.theta, 0)
            self.alpha = np.exp(self.theta["log_concentration"][: self.n]) * world.looks

    def fresh(self, j: int, y: Floats) -> Floats:
        """Chance of the rounding cell of claim j where it is fresh."""
        right, half = expit(self.theta["logit"][j]), 0.5 * self.step
        away = self.value[j] - y - self.theta["shift"][j]
        spread = np.exp(self.theta["log_spread"][j])
        # The tail that holds no 1 is the accurate one.
        cell = ndtr((-np.abs(away) + half) / spread) - ndtr((-np.abs(away) - half) / spread)
        x = abs(self.value[j])
        wide = student_t.cdf(-x + half, 3) - student_t.cdf(-x - half, 3)
        return np.asarray(right * cell + (1 - right) * wide)

    def claims(self, y: Floats) -> Floats:
        """P(claims | y): a sum over all origins, by the standard library alone."""
        n, eps, same = self.n, COPY_ERROR, self.code[:, None] == self.code
        original = []
        for j in range(n):
            matched = sum((self.base[j, k] + self.strong[j, k]) * same[j, k] for k in range(j))
            original.append(self.alpha[j] / (self.alpha[j] + matched))
        total, fresh = np.zeros_like(y), [self.fresh(j, y) for j in range(n)]
        for origin in itertools.product(*(range(-1, j) for j in range(n))):
            p = np.ones_like(y)
            for j, k in enumerate(origin):
                weights = [self.base[j, i] * original[i] + self.strong[j, i] for i in range(j)]
                chance = (self.alpha[j] if k < 0 else weights[k]) / (self.alpha[j] + sum(weights))
                said = fresh[j] if k < 0 else (1 - eps) * same[j, k] + eps / self.size
                p = p * chance * said
            total = total + p
        return total

    def prior(self, y: Floats) -> Floats:
        """Density of y, and of the settled truth with it."""
        truth, scale = self.numbers.truth[self.index], np.exp(self.theta["numbers_log_scale"][0])
        shared = np.exp(np.clip(self.theta["log_shared"][0], *number.SHARED))
        slope = np.exp(self.theta["numbers_log_slope"][0])
        if np.isnan(truth):
            density = norm.pdf(y, 0.0, np.hypot(slope * scale, shared))
            share = slope * scale**2 / (slope**2 * scale**2 + shared**2)
            sd = np.sqrt(share / slope) * shared
            start, stop = self.numbers.gap_offset[self.index : self.index + 2]
            out = np.ones_like(y)
            for middle in self.numbers.gap[start:stop]:
                ends = [(middle + side * self.step - share * y) / sd for side in (-0.5, 0.5)]
                out = out - (ndtr(ends[1]) - ndtr(ends[0]))
            return np.asarray(density * out)
        return np.asarray(norm.pdf(truth, 0.0, scale) * norm.pdf(y, slope * truth, shared))

    def integral(self, cuts: Floats) -> float:
        """P(claims), and the settled truth, by adaptive quadrature between the cuts."""
        ends = itertools.pairwise(cuts)
        return float(sum(quad_vec(lambda y: self.prior(y) * self.claims(y), *pair, epsrel=1e-9)[0] for pair in ends))


SETTLED = pd.DataFrame({"entity": ["e01"], "attribute": "margin", "value": [2.5]})
REJECTED = pd.DataFrame({"entity": "e00", "attribute": "margin", "value": [3.2, -4.0, 3.4], "verdict": "false"})
"""Two rounding cells of the first question."""


@pytest.mark.parametrize("name", ORIGINS)
def test_marginal_is_brute_force_on_the_nodes(name: str) -> None:
    evidence = nous.Evidence(random_polls(1, 2, 4), settled=pd.concat([SETTLED.assign(verdict="true"), REJECTED]))
    trust = known(model_of(origin=ORIGINS[name]), numbers_log_slope=[-0.3])
    with jax.enable_x64(True):
        for question in range(2):
            parts = Parts(trust, evidence, question)
            node, mass = np.asarray(parts.sums.node[0]), np.asarray(parts.sums.log_mass[0])
            weight = np.exp(mass) / parts.prior(node)
            total = (weight * parts.prior(node) * parts.claims(node)).sum()
            assert abs(parts.log_marginal - np.log(total)) < DOUBLE
            # Weights are those of the line.
            assert weight.sum() == pytest.approx(np.ptp(node), rel=0.15)


@pytest.mark.parametrize("resolution", [pytest.param(0.01, marks=pytest.mark.long), 20.0])
def test_quadrature_is_the_integral(resolution: float) -> None:
    evidence = nous.Evidence(random_polls(2, 2, 4, resolution), settled=SETTLED)
    trust = known(model_of(resolution, origin=ORIGINS["echoes"]), shared_Intercept=np.log(0.05))
    with jax.enable_x64(True):
        for question in range(2):
            parts = Parts(trust, evidence, question)
            edges = np.concatenate(
                [parts.value - 0.5 * parts.step, parts.value, parts.value + 0.5 * parts.step, [0.25]]
            )
            cuts = np.unique(
                np.concatenate([edges + 1.5 * d for d in (-1, -0.3, -0.05, 0, 0.05, 0.3, 1)] + [[-9.0, 9.0]])
            )
            cuts = cuts[np.abs(cuts) <= 9.0]
            whole = parts.integral(cuts)
            assert parts.log_marginal == pytest.approx(np.log(whole), abs=1e-3)
            finer = Parts(trust, evidence, question, points=512)
            assert finer.log_marginal == pytest.approx(np.log(whole), abs=1e-5)


def test_quadrature_follows_the_edges_of_what_is_rejected() -> None:
    """The cells of resolution 1, with a shared error of a twentieth of that."""
    evidence = nous.Evidence(random_polls(2, 2, 4), settled=REJECTED)
    trust = known(model_of(), shared_Intercept=np.log(0.005))
    with jax.enable_x64(True):
        parts = Parts(trust, evidence, 0)
        assert len(parts.numbers.gap) == 2
        middles = np.concatenate([parts.value, parts.numbers.gap])
        edges = np.concatenate([middles + side * parts.step for side in (-0.5, 0.0, 0.5)])
        steps = np.outer([-1.0, 1.0], [0.0, 2e-3, 5e-3, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0]).ravel()
        cuts = np.unique(np.clip(np.concatenate([(edges[:, None] + steps).ravel(), np.linspace(-9, 9, 37)]), -9, 9))
        place, weight = np.polynomial.legendre.leggauss(12)
        half = 0.5 * np.diff(cuts)[:, None]
        y = cuts[:-1, None] + half * (place + 1.0)
        density = (parts.prior(y.ravel()) * parts.claims(y.ravel())).reshape(y.shape)
        whole = float((half * weight * density).sum())
        assert parts.log_marginal == pytest.approx(np.log(whole), abs=2e-3)
        assert Parts(trust, evidence, 0, points=512).log_marginal == pytest.approx(np.log(whole), abs=2e-5)


def test_what_is_rejected_is_out() -> None:
    """The truth is not in the rounding cell; the rest of the law is as it was, and the claim that said so stays."""
    claims, trust = polls([12.0, 12.0, 14.0, 9.0]), known(model_of())
    before, out = belief(claims, trust), belief(claims, trust, fact(12.2, verdict="false"))
    assert before.probability_of(11.5, 12.5) > 0.1
    assert out.probability_of(11.5, 12.5) < 1e-9 and out.density(12.0) == 0.0 < out.density(12.6)
    left = 1.0 - before.probability_of(11.5, 12.5)
    for low, high in ((-40.0, 11.5), (12.5, 14.0), (11.0, 13.0)):
        inside = before.probability_of(low, high) - before.probability_of(max(low, 11.5), min(max(high, 11.5), 12.5))
        expected = inside if high <= 11.5 or low >= 12.5 else before.probability_of(low, high) - (1.0 - left)
        assert out.probability_of(low, high) == pytest.approx(expected / left, abs=2e-3)
    assert not 11.5 < out.median < 12.5 and len(out.history()) == 4
    drawn = out.samples(4000, seed=0)
    assert not ((drawn > 11.51) & (drawn < 12.49)).any()
    assert drawn.mean() == pytest.approx(out.mean, abs=5 * out.sd / 63) and drawn.std() == pytest.approx(
        out.sd, rel=0.1
    )
    assert out.points["mean"].sum() == pytest.approx(out.mean, abs=1e-3 * out.sd)
    assert np.exp(out.points["log_sd"].sum()) == pytest.approx(out.sd, rel=1e-3)
    table = trust.posteriors(nous.Evidence(claims, settled=fact(12.2, verdict="false"))).numbers
    assert table is not None and table.mixtures[0].mean == pytest.approx(out.mean, abs=0.02 * out.sd)
    again = nous.Evidence(claims).reject("race", "margin", 12.0)
    assert trust.posterior(again.question("race", "margin")).mean == pytest.approx(out.mean, abs=1e-6)


def test_draws_count_the_same_whatever_is_rejected() -> None:
    """A draw under which the rejected number was probable is no less believed than before: the trust has learned."""
    claims, shift = polls([12.0, 12.0, 12.0]), 6.0
    trust = known(model_of())
    two = {name: np.concatenate([value, value], axis=1) for name, value in trust.posterior_draws.items()}
    two["shift_1|source_sigma"] = np.zeros((1, 2))
    two["numbers_log_scale"] = np.array([[[0.0], [np.log(shift)]]])
    both = replace(trust, posterior_draws=two)
    one = [replace(trust, posterior_draws={n: v[:, i : i + 1] for n, v in two.items()}) for i in range(2)]
    rejected = fact(12.0, verdict="false")
    alone = [belief(claims, each, rejected).probability_of(12.5, 13.5) for each in one]
    assert belief(claims, both, rejected).probability_of(12.5, 13.5) == pytest.approx(np.mean(alone), abs=1e-6)


def test_slopes_of_cells_are_their_derivatives() -> None:
    """Those that are given, against those that jax finds by itself in the same formula."""
    d, w = (x.ravel() for x in np.meshgrid([0.0, 0.4, 1.7, 4.0, 9.0], [1e-3, 0.05, 0.099, 0.101, 0.9, 4.0]))
    with jax.enable_x64(True):
        given = number._slopes(JAX, jnp.asarray(d), jnp.asarray(w))
        total = jax.grad(lambda d, w: number._chance(JAX, d, w).sum(), (0, 1))(jnp.asarray(d), jnp.asarray(w))
        used = jax.grad(lambda d, w: number.cell_chance(JAX, d, w).sum(), argnums=(0, 1))(
            jnp.asarray(d), jnp.asarray(w)
        )
    for ours, theirs, taken in zip(given, total, used, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-16)
        np.testing.assert_array_equal(ours, taken)


def test_cells_are_exact_wide_and_narrow_near_and_far() -> None:
    distance = np.array([0.0, 0.3, 1.0, 2.5, 5.0, 8.0])
    for width in (1e-6, 1e-3, 0.05, 0.099, 0.101, 1.0, 30.0):
        exact = norm.sf(distance - 0.5 * width) - norm.sf(distance + 0.5 * width)
        for double, limit in ((True, 1e-9), (False, 1e-4)):
            with jax.enable_x64(double):
                found = np.asarray(number.cell_chance(JAX, jnp.asarray(distance), jnp.full(6, width)), float)
            # Where the difference itself is exact.
            fine = exact > (1e-10 if width < 1e-2 else 1e-300)
            near = norm.pdf(distance) * width
            expected = np.where(width < 1e-2, near * (1 + width**2 / 24 * (distance**2 - 1)), exact)
            np.testing.assert_allclose(found[fine], expected[fine], rtol=max(limit, 1e-9))


def quantiles(trust: Trust, evidence: nous.Evidence) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    found = trust.posteriors(evidence).numbers
    assert found is not None
    q = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    return np.array([law.quantile(q) for law in found.mixtures]), np.array([law.sd for law in found.mixtures])


def test_the_readable_programs_are_the_marginal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the nodes of the marginal; by brute force, on numpyro and, where it is there, on pyro."""
    monkeypatch.setattr("nousppl.number_asking.POINTS", 16)
    evidence = nous.Evidence(random_polls(1, 2, 3))
    trust = model_of(origin=ORIGINS["fading"]).default_trust(seed=1, draws=1)
    with jax.enable_x64(True):
        encoded, draws = trust.encoded(evidence), trust.asked()
        for index in range(2):
            one = write_out(trust.blueprint, encoded, draws, index)[0]
            problem = compile_problem(encoded, np.array([index]))
            found = one_number(trust.blueprint, encoded, draws, problem)[0].found
            expected = float(np.log(np.exp(found.by_order[0, 0, 0] + found.log_mass[0, 0]).sum()))
            assert np.log(witness.evidence(one.question, one.values)) == pytest.approx(expected, rel=DOUBLE)
            assert float(enumeration.log_evidence(one.question, one.values)) == pytest.approx(expected, rel=DOUBLE)
            if find_spec("pyro") is not None:
                import torch

                from nousppl.inference import torch_enumeration

                by_pyro = torch_enumeration.log_evidence(one.question, one.values, dtype=torch.float64)
                assert float(by_pyro) == pytest.approx(expected, rel=DOUBLE)


@pytest.mark.parametrize(("resolution", "spread"), [(0.1, -1.0), (1.0, -3.0), (20.0, -4.0)])
def test_halving_the_step_moves_no_quantile(resolution: float, spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding cells much wider than the errors of sources among them, and outliers."""
    evidence = nous.Evidence(random_polls(3, 40, 5, resolution))
    trust = known(model_of(resolution), spread_Intercept=spread, shared_Intercept=np.log(0.05))
    found, sd = quantiles(trust, evidence)
    from nousppl.inference import numbers

    monkeypatch.setattr("nousppl.number_asking.POINTS", 2 * numbers.POINTS - 1)
    finer, _ = quantiles(trust, evidence)
    assert (np.abs(found - finer) / sd[:, None]).max() < 0.01


def test_the_unit_does_not_matter() -> None:
    claims = random_polls(4, 12, 4).assign(value=lambda frame: frame["value"] / 100.0)
    percent = claims.assign(value=(claims["value"] * 100.0).round())
    found = []
    for frame, resolution in ((claims, 0.01), (percent, 1.0)):
        model = nous.TrustModel(shapes={"margin": nous.Number(resolution)})
        evidence = nous.Evidence(frame)
        trust = known(model)
        numbers = trust.posteriors(evidence).numbers
        assert numbers is not None
        found.append((numbers.frame, trust.log_likelihood(evidence).to_numpy()))
    columns = ["mean", "sd", "q05", "q95"]
    np.testing.assert_allclose(100.0 * found[0][0][columns], found[1][0][columns], rtol=2e-4, atol=2e-4)
    np.testing.assert_allclose(found[0][0]["effective_claims"], found[1][0]["effective_claims"], rtol=1e-4)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5)


FRESH = {"origin_same_source": -60.0, "origin_log_strangers": -60.0}
"""Claims that all but never repeat."""


def narrowed(trust: Trust, sources: list[str]) -> float:
    """How much 100 claims narrow the belief after a first one that said the same; in log sd."""
    sds = belief(polls([12.0] * 101, sources), trust).sds
    return float(np.log(sds[1] / sds[-1]))


def test_what_is_not_meant_to_last_measures_nothing() -> None:
    trust = known(model_of())
    # The wide law of the other claims stays, whatever the number is.
    nothing = belief(polls([25.0]).assign(lasting=0.0), trust)
    assert nothing.mean == pytest.approx(0.0, abs=0.02)
    assert belief(polls([25.0]), trust).mean > 10.0
    with pytest.raises(nous.ModelError, match="column 'denies' is given in 1 claims about numbers or states"):
        belief(polls([25.0, 30.0]).assign(denies=[np.nan, 25.0]), trust)


def test_copies_are_not_polls() -> None:
    """A hundred copies of one poll narrow the belief a little, a hundred polls that agree a lot; where nothing is
    taken for a copy both are the same."""
    strong = {"origin_same_source": 6.0, "origin_log_strangers": -9.0, "shared_Intercept": np.log(0.01)}
    one, many = ["s0"] * 101, [f"s{j}" for j in range(101)]
    trust, without = known(model_of(), **strong), known(model_of(), **(strong | FRESH))
    assert narrowed(trust, one) < 0.15 * narrowed(trust, many)
    assert narrowed(without, one) > 0.95 * narrowed(without, many)


def test_outliers_do_not_drag(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wild value among five is set aside; where the wide component is next to nothing it is not."""
    claims = polls([4.0, 5.0, 5.0, 6.0, 45.0])
    assert abs(belief(claims, known(model_of(), **FRESH)).mean - 5.0) < 1.0
    monkeypatch.setattr("nousppl.numbers.log_wide_mass", lambda value, step: np.full(len(value), -80.0))
    assert abs(belief(claims, known(model_of(), **FRESH)).mean - 5.0) > 3.0


def test_shared_error_is_a_floor() -> None:
    """Many polls leave the error that they share, here 2 points; without one they leave next to nothing."""
    claims = polls(list(np.round(np.random.default_rng(0).normal(3.0, 3.7, 120))))
    floor = belief(claims, known(model_of(), **FRESH))
    assert 2.0 / np.hypot(1.0, 0.2) <= floor.sd < 2.1
    assert belief(claims, known(model_of(), shared_Intercept=-9.0, **FRESH)).sd < 0.5


def test_what_is_understated_is_read_accordingly() -> None:
    """What can be seen is .8 of the truth and a shared error: one exact claim gives the normal law of that."""
    exact = {"spread_Intercept": -6.0, "reliability_Intercept": 12.0, **FRESH}
    found = belief(polls([8.0]), known(model_of(0.01), numbers_log_slope=[np.log(0.8)], **exact))
    share = 0.8 / (0.8**2 + 0.2**2)
    assert (found.mean, found.sd) == pytest.approx((8.0 * share, 10.0 * 0.2 * np.sqrt(share / 0.8)), rel=0.01)
    as_it_is = belief(polls([8.0]), known(model_of(0.01), **exact))
    assert as_it_is.mean == pytest.approx(8.0 / (1.0 + 0.2**2), rel=0.01)


def test_the_shared_error_may_depend_on_columns() -> None:
    """Its log is the mean over the claims of a question; claims of another kind of race share a larger one."""
    many = polls(list(np.round(np.random.default_rng(0).normal(3.0, 3.7, 120))))
    model = nous.TrustModel(shapes={"margin": nous.Number(1.0, "%", shared="1 + local", centre=0.0, scale=10.0)})
    trust = known(model, shared_local=1.0, **FRESH)
    sds = [belief(many.assign(local=local), trust).sd for local in (0.0, 1.0, np.arange(120.0) % 2.0)]
    expected = [10.0 * 0.2 * np.exp(x) / np.hypot(1.0, 0.2 * np.exp(x)) for x in (0.0, 1.0, 0.5)]
    assert sds == pytest.approx(expected, rel=0.04)


def test_beliefs_are_consistent() -> None:
    """Single and batched beliefs agree, rows add up, probabilities are those of quantiles."""
    evidence = nous.Evidence(random_polls(5, 6, 5))
    trust = model_of().default_trust(seed=1, draws=20)
    table = trust.posteriors(evidence).numbers
    assert table is not None
    for index in range(6):
        one = trust.posterior(evidence.question(*evidence.questions.iloc[index]))
        assert isinstance(one, NumberBelief)
        row = table.frame.iloc[index]
        for name, value in {"mean": one.mean, "median": one.median, "q95": one.quantile(0.95)}.items():
            assert row[name] == pytest.approx(value, abs=0.02 * one.sd)
        assert row["sd"] == pytest.approx(one.sd, rel=0.02)
        assert row["effective_claims"] == pytest.approx(one.effective_claims, abs=1e-3)
        assert one.points["mean"].sum() == pytest.approx(one.mean, abs=1e-3 * one.sd)
        assert np.exp(one.points["log_sd"].sum()) == pytest.approx(one.sd, rel=1e-3)
        np.testing.assert_allclose(one.origins.sum(axis=1), 1.0, atol=1e-4)
        np.testing.assert_allclose(one.origins["fresh"], one.fresh, atol=1e-4)
        low, high = one.interval(0.8)
        assert one.probability_of(low, high) == pytest.approx(0.8, abs=1e-4)
        assert one.mixture.cdf(one.median) == pytest.approx(0.5, abs=1e-6)
    history = one.history()
    assert history["posterior_mean"].iloc[-1] == pytest.approx(one.mean, abs=1e-3 * one.sd)
    assert (history["surprise"] > 0).all()
    drawn = one.samples(4000, seed=0)
    assert drawn.mean() == pytest.approx(one.mean, abs=0.1 * one.sd)
    assert one.draws["mean"].mean() == pytest.approx(one.mean, abs=1e-3 * one.sd)
    assert f"{one.to_dict()['unit']}" in repr(one) and "90% interval" in one._repr_html_()


def test_mixture() -> None:
    law = mixture.Mixture(np.array([0.0, 3.0]), np.array([1.0, 0.5]), np.array([0.25, 0.75]))
    q = np.array([0.001, 0.2, 0.5, 0.999])
    np.testing.assert_allclose(law.cdf(law.quantile(q)), q, atol=1e-9)
    assert law.density(1.0) == pytest.approx(0.25 * norm.pdf(1.0) + 0.75 * norm.pdf(1.0, 3.0, 0.5))
    standard = mixture.Mixture(np.zeros(1), np.ones(1), np.ones(1))
    exact = 0.5 * (2 * norm.cdf(0.5) - 1) + 2 * norm.pdf(0.5) - 1 / np.sqrt(np.pi)
    assert standard.crps(0.5) == pytest.approx(exact, abs=1e-4)
    rng = np.random.default_rng(0)
    many = mixture.Mixture(rng.normal(size=9000), rng.uniform(0.1, 0.2, 9000), np.full(9000, 1 / 9000))
    thin = many.thinned()
    assert len(thin.place) < 2000 and thin.mean == pytest.approx(many.mean, abs=1e-6)
    np.testing.assert_allclose(thin.quantile(q), many.quantile(q), atol=0.01)


def test_settled_numbers_are_known_and_scored() -> None:
    claims = random_polls(6, 8, 5)
    truths = pd.DataFrame({"entity": [f"e{q:02d}" for q in range(8)], "attribute": "margin", "value": 1.0})
    trust = known(model_of())
    beliefs = trust.posteriors(nous.Evidence(claims))
    assert beliefs.numbers is not None
    score = beliefs.score_numbers(pd.concat([truths, truths.iloc[:1].assign(entity="nowhere")]))
    assert (score["n"], score["missing"]) == (8, 1)
    laws = beliefs.numbers.mixtures
    assert score["log_score"] == pytest.approx(np.mean([np.log(law.density(1.0)) for law in laws]))
    assert 0 < score["crps"] < score["rmse"]
    one = claims[claims["entity"] == "e00"].assign(entity="race")
    fact = truths.iloc[:1].assign(entity="race")
    certain = belief(one, trust, fact)
    assert (certain.mean, certain.sd, certain.interval()) == (1.0, 0.0, (1.0, 1.0))
    with pytest.raises(nous.QuestionError, match="none of these beliefs is about a number"):
        replace(beliefs, numbers=None).score_numbers(truths)


def test_both_backends_agree() -> None:
    """Log density and gradient of all parameters, with every kind of question; double precision."""
    torch = pytest.importorskip("torch")
    from nousppl.inference.torch_backend import Torch

    evidence, model = mixed()
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    problem = compile_problem(encoded, np.arange(len(evidence.questions)))
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    arrays = {**shared, **{name: value[0] for name, value in stacked.items()}}
    pack = packed.packing(blueprint.plan, 0)
    point = np.random.default_rng(0).normal(0.0, 0.5, pack.size)
    with jax.enable_x64(True):
        density = packed.log_density(JAX, blueprint.plan, layout, pack)
        data = {name: jnp.asarray(value) for name, value in arrays.items()}
        quick = jax.jit(jax.value_and_grad(density)).lower(jnp.asarray(point), data)
        found = quick.compile({"xla_backend_optimization_level": 0})(jnp.asarray(point), data)
        ours = [np.asarray(x) for x in found]
    xp = Torch(torch.float64)
    there = xp.array(point).requires_grad_()
    value = packed.log_density(xp, blueprint.plan, layout, pack)(there, xp.arrays(arrays))
    (gradient,) = torch.autograd.grad(value, there)
    assert np.isfinite(ours[1]).all()
    assert float(value.detach()) == pytest.approx(float(ours[0]), rel=DOUBLE)
    np.testing.assert_allclose(gradient.numpy(), ours[1], rtol=1e-8, atol=1e-8 * np.abs(ours[1]).max())


def mixed() -> tuple[nous.Evidence, nous.TrustModel]:
    """Numbers beside lists and changing answers, some settled."""
    numbers = random_polls(7, 6, 4)
    rng = np.random.default_rng(8)
    lists = numbers.assign(attribute="allergy", value=rng.choice(["milk", "milk; nuts", "none"], len(numbers)))
    colours = numbers.assign(attribute="colour", value=rng.choice(["red", "blue"], len(numbers)))
    counts = numbers.assign(attribute="guests", value=rng.integers(0, 30, len(numbers)))
    settled = pd.DataFrame(
        [("e00", "margin", 3.0), ("e01", "allergy", "milk"), ("e02", "colour", "red"), ("e03", "guests", 12.0)],
        columns=["entity", "attribute", "value"],
    ).assign(time=9.0)
    claims = pd.concat([numbers, lists, colours, counts], ignore_index=True)
    shapes = {"margin": nous.Number(1.0, "%"), "guests": nous.Number(1.0), "allergy": nous.AnyOf()}
    model = nous.TrustModel(shapes=shapes, change="1", errors=nous.Errors(difficulty=False))
    return nous.Evidence(claims, settled=settled), model


def test_numbers_beside_other_questions(tmp_path: Path) -> None:
    """A fit of all kinds together, its file, and its beliefs; those about a number do not depend on the neighbours."""
    evidence, model = mixed()
    trust = model.fit(evidence, method=nous.SVI(steps=20, draws=20), learn_from="all")
    beliefs = trust.posteriors(evidence)
    assert len(beliefs) == 12 and beliefs.numbers is not None and len(beliefs.numbers) == 12
    assert not set(beliefs.frame["attribute"]) & {"margin", "guests"}
    assert "12 numbers" in repr(beliefs)
    colours = evidence.settled[evidence.settled["attribute"] != "allergy"]
    assert beliefs.score(colours)["n"] == 1
    beliefs.write(tmp_path / "beliefs.csv")
    read = nous.Beliefs.read(tmp_path / "beliefs.csv")
    assert read.numbers is not None and read.numbers.mixtures[3].quantile(0.3) == beliefs.numbers.mixtures[3].quantile(
        0.3
    )
    trust.save(tmp_path / "trust.nc")
    again = nous.load(tmp_path / "trust.nc")
    assert again.blueprint.domains.scales == trust.blueprint.domains.scales
    pd.testing.assert_frame_equal(again.posteriors(evidence).numbers.frame, beliefs.numbers.frame)
    question = evidence.question("e02", "margin")
    alone = nous.Evidence(evidence.claims[lambda f: (f["entity"] == "e02") & (f["attribute"] == "margin")])
    assert again.posterior(alone.question("e02", "margin")).mean == pytest.approx(
        trust.posterior(question).mean, rel=1e-4
    )


def test_simulated_numbers_follow_the_model() -> None:
    """Of worlds drawn at known parameters the beliefs under these hold the truth as often as they say; without the
    shared error they do not."""
    rng = np.random.default_rng(0)
    rows = [(f"e{q:03d}", "margin", f"s{rng.integers(6)}", float(j)) for q in range(300) for j in range(4)]
    design = pd.DataFrame(rows, columns=["entity", "attribute", "source", "time"])
    model = model_of()
    trust = known(model, shared_Intercept=np.log(0.4))
    # No claim of the design denies anything.
    known_sites = trust.posterior_draws.items()
    parameters = {name: value[0, 0] for name, value in known_sites if name != "errors_log_denial"}
    blueprint = draw_up(model, nous.Evidence(design.assign(value=0.0)))
    effects = {s.name: np.zeros(s.size) for s in blueprint.plan.sites if s.scale is not None}
    truth, evidence = model.simulate(design, 1, parameters | effects)
    assert (evidence.claims["value"].astype(float) % 1.0 == 0.0).all()
    copied = truth.origins.dropna()
    value = evidence.claims.set_index("claim")["value"] if "claim" in evidence.claims else None
    assert len(copied) > 100
    if value is not None:
        assert (value[copied.index].to_numpy() == value[copied.to_numpy()].to_numpy()).mean() > 0.99

    def places(asked: Trust) -> NDArray[np.float64]:
        found = asked.posteriors(evidence).numbers
        assert found is not None
        pairs = zip(found.mixtures, truth.settled["value"], strict=True)
        return np.array([float(law.cdf(x)) for law, x in pairs])

    assert kstest(places(trust), "uniform").pvalue > 0.01
    assert kstest(places(known(model, shared_Intercept=-9.0)), "uniform").pvalue < 1e-4


@pytest.mark.long
def test_a_fit_finds_bias_spread_and_shared_error() -> None:
    """Learned from settled numbers; each within three posterior standard deviations of the truth."""
    rng = np.random.default_rng(5)
    bias, spread = np.array([0.6, -0.6, 0.0, 0.0]), np.array([0.1, 0.1, 0.1, 0.6])
    rows, facts = [], []
    for q in range(80):
        z = float(rng.normal())
        y = 0.7 * z + 0.3 * float(rng.normal())
        facts.append((f"e{q:02d}", "margin", 10.0 * z))
        said = np.round(10.0 * (y + bias + spread * rng.normal(size=4)))
        rows += [(f"e{q:02d}", "margin", float(x), f"s{s}") for s, x in enumerate(said)]
    evidence = nous.Evidence(
        pd.DataFrame(rows, columns=["entity", "attribute", "value", "source"]),
        settled=pd.DataFrame(facts, columns=["entity", "attribute", "value"]),
    )
    trust = model_of(origin=None).fit(evidence, method=nous.SVI(steps=600), seed=0)
    draws = trust.flat
    found = {
        "shared": (draws["shared_Intercept"], np.log(0.3)),
        "slope": (draws["numbers_log_slope"][:, 0], np.log(0.7)),
        "spread of s3": (draws["spread_Intercept"] + draws["spread_1|source"][:, 3], np.log(0.6)),
        "bias of s0 over s1": (draws["shift_1|source"][:, 0] - draws["shift_1|source"][:, 1], 1.2),
    }
    apart = {name: abs(x.mean() - true) / x.std() for name, (x, true) in found.items()}
    assert max(apart.values()) < 3.0, apart


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "text": (
        lambda: known(model_of()).posteriors(nous.Evidence(polls([1.0]).assign(value="much"))),
        "attribute 'margin' is a number .* first 'much' of entity 'race'",
    ),
    "no resolution": (lambda: nous.Number(resolution=0.0), "resolution=0.0.: allowed is a number above 0"),
    "negative scale": (lambda: nous.Number(resolution=1.0, scale=-1.0), "scale=-1.0"),
    "unknown centre": (lambda: nous.Number(resolution=1.0, centre=float("nan")), "centre=nan"),
    "soft": (
        lambda: known(model_of()).posteriors(nous.Evidence(polls([1.0, 2.0], claim=["a", "b"], weight=[0.6, 1.0]))),
        "column 'weight': 1 claims about numbers are soft, first 'a'",
    ),
    "settled and rejected": (
        lambda: belief(
            polls([1.0]), known(model_of()), pd.concat([fact(2.0, verdict="true"), fact(2.3, verdict="false")])
        ),
        "settled as 2.0 and column 'verdict' rejects 2.3, which rounds to the same",
    ),
    "two truths": (
        lambda: belief(polls([1.0]), known(model_of()), pd.concat([fact(1.0, time=0.0), fact(2.0, time=1.0)])),
        "settled as 1.0 and as 2.0; a number has one truth",
    ),
    "declared answers": (
        lambda: known(model_of(answers={"margin": 5})).posteriors(nous.Evidence(polls([1.0]))),
        "answers..margin..: the attribute is a number",
    ),
    "no unit to simulate in": (
        lambda: nous.TrustModel(shapes={"margin": nous.Number(1.0)}).simulate(polls([1.0]).drop(columns="value"), 0),
        r"give Number\(centre=..., scale=...\)",
    ),
}


def fact(value: Any, **more: Any) -> pd.DataFrame:
    return pd.DataFrame({"entity": ["race"], "attribute": "margin", "value": [value]} | more)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words(name: str) -> None:
    call, message = BAD[name]
    with pytest.raises(nous.NousError, match=message):
        call()


def test_impossible_questions_of_a_belief() -> None:
    one = belief(polls([1.0]), known(model_of()))
    for call in (lambda: one.interval(1.0), lambda: one.quantile(0.0), lambda: one.probability_of(2.0, 1.0)):
        with pytest.raises(nous.QuestionError, match="must"):
            call()
    with pytest.raises(nous.EvidenceError, match="of 1 numbers is none, first 'much'"):
        known(model_of()).posteriors(nous.Evidence(polls([1.0]))).score_numbers(fact("much"))
