"""Terms of one's own are learned, on both backends and in every way of fitting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from own_terms import (
    LOGS,
    PLAIN,
    quotes,
    some_evidence,
    table,
    wears_off,
)

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference import svi
from nousppl.padding import ladder

WORLD = {
    "origin": nous.Origin(strong=None, lag=False),
    "errors": nous.Errors(popularity=False),
    "answers": {"x": 5},
}
TRUE = {
    "reliability_Intercept": 2.5,
    "reliability_wears_off_slope": 1.5,
    "origin_log_strangers": -4.0,
    "origin_quotes_b": 2.5,
}
TERMS: dict[str, Any] = {"reliability": [wears_off], "origin": [quotes]}


@pytest.fixture(scope="module")
def world() -> tuple[nous.Evidence, pd.DataFrame]:
    """500 questions, 250 of them settled, and the truths of the others."""
    truth, evidence = nous.TrustModel("1", "1", terms=TERMS, **WORLD).simulate(
        table(np.random.default_rng(3), 500, 6), seed=11, parameters=TRUE
    )
    return evidence.with_settled(truth.settled.iloc[:250]), truth.settled.iloc[250:]


@pytest.fixture(scope="module")
def learned(world: tuple[nous.Evidence, pd.DataFrame]) -> nous.Trust:
    return nous.TrustModel("1", "1", terms=TERMS, **WORLD).fit(world[0], seed=0)


def loss(trust: nous.Trust, evidence: nous.Evidence, test: pd.DataFrame) -> float:
    return float(trust.posteriors(evidence).score(test)["log_loss"])


@pytest.mark.slow
def test_the_parameters_of_terms_are_learned(learned: nous.Trust) -> None:
    for name, true in TRUE.items():
        draws = learned.flat[name]
        assert abs(draws.mean() - true) < 3.0 * draws.std(), name
    # The world tells of both terms: far from nothing, and narrower than the prior.
    for name, prior_sd in (("reliability_wears_off_slope", 0.6), ("origin_quotes_b", 2.0)):
        draws = learned.flat[name]
        assert draws.std() < 0.3 * prior_sd and draws.mean() > 4.0 * draws.std(), name


@pytest.mark.long
def test_beliefs_are_better_with_the_terms_than_without_or_with_shuffled_columns(
    learned: nous.Trust, world: tuple[nous.Evidence, pd.DataFrame]
) -> None:
    evidence, test = world
    good = loss(learned, evidence, test)
    without = nous.TrustModel("1", "1", **WORLD).fit(evidence, seed=0)
    assert good < loss(without, evidence, test) - 0.02
    rng = np.random.default_rng(0)
    shuffled = {name: rng.permutation(evidence.claims[name].to_numpy()) for name in ("age", "quotes")}
    noise = nous.Evidence(evidence.claims.assign(**shuffled), settled=evidence.settled)
    blind = nous.TrustModel("1", "1", terms=TERMS, **WORLD).fit(noise, seed=0)
    assert good < loss(blind, noise, test) - 0.02
    assert blind.flat["reliability_wears_off_slope"].mean() < 0.3 * learned.flat["reliability_wears_off_slope"].mean()


# ------------------------------------------------------------------------------------------------- ways of fitting


@pytest.mark.parametrize("backend", ["numpyro", "pyro"])
def test_padding_gives_terms_only_rows_that_there_are(backend: str) -> None:
    """log(0) of a row of padding would leave no gradient."""
    if backend == "pyro":
        pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to fit on")
    evidence = some_evidence(8, 40, 3)
    alone = some_evidence(9, 40, 1).claims.assign(entity=lambda t: "z" + t["entity"])
    both = nous.Evidence(pd.concat([evidence.claims, alone]).drop(columns="claim"))
    fit = LOGS.fit(both, nous.SVI(steps=200, draws=20, batch_claims=60), learn_from="all", backend=backend)
    assert all(np.isfinite(draws).all() for draws in fit.flat.values()) and np.isfinite(fit.sample_stats["loss"]).all()


def test_a_batch_without_pairs_is_padded_with_a_pair_of_another_one() -> None:
    evidence = some_evidence(8, 6, 3)
    blueprint = draw_up(LOGS, evidence)
    encoded = blueprint.encode(evidence)
    problems = [compile_problem(encoded, np.arange(first, first + 2)) for first in (0, 2, 4)]
    lone = some_evidence(9, 3, 1)
    single = compile_problem(blueprint.encode(lone), np.arange(3))
    assert single.layout.listed == 0 and fitting.with_pair(problems[0], problems) is problems[0]
    found = fitting.with_pair(single, [single, *problems]).data["listed_own"]
    np.testing.assert_array_equal(found[:, 0], problems[0].data["listed_own"][:, 0])
    layout, _, stacked = fitting.batched(blueprint, encoded, problems, fitting.Mould(2.0))
    assert layout.listed > problems[0].layout.listed and (stacked["listed_own"] > 0.0).all()
    assert (stacked["reliability own"] > 0.0).all() and stacked["reliability own"].shape[-1] > 6


def test_a_single_question_is_not_padded_for_the_sake_of_its_pairs() -> None:
    model = nous.TrustModel(terms={"origin": [quotes]}, answers={"x": 5})
    blueprint = draw_up(model, None)
    for claims in (3, 16, 33, 60, 128, 300):
        evidence = some_evidence(2, 1, claims)
        layout = compile_problem(blueprint.encode(evidence), np.arange(1)).layout
        assert layout.listed == sum(min(j, 32) for j in range(claims))
        padded = ladder(layout)
        assert padded.listed >= layout.listed and padded.slots < max(2 * claims, 17)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["numpyro", "pyro"])
def test_both_samplers_take_terms(backend: str) -> None:
    if backend == "pyro":
        pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to fit on")
    evidence = some_evidence(8, 15, 3)
    options = nous.NUTS(num_warmup=30, num_samples=20, num_chains=1)
    fit = LOGS.fit(evidence, options, learn_from="all", backend=backend)
    assert fit.posterior_draws["reliability_on_log_slope"].shape == (1, 20)
    assert fit.flat["origin_on_log_lag_b"].std() > 0.1


def test_a_fit_goes_on_with_terms() -> None:
    evidence = some_evidence(8, 15, 3)
    first = LOGS.fit(evidence, nous.SVI(steps=100, draws=10), learn_from="all")
    second = first.update(evidence, nous.SVI(steps=100, draws=10))
    assert list(second.flat) == list(first.flat) and "reliability_on_log_slope" in second.flat


def test_terms_of_one_name_share_no_compiled_code() -> None:
    def make(sign: float) -> Any:
        def tilt(xp: Any, sample: Any, columns: Any) -> Any:
            return sign * sample("slope", dist.HalfNormal(1.0)) + 0.0 * columns["age"]

        return tilt

    evidence = some_evidence(8, 15, 3)
    one, two = make(1.0), make(-1.0)
    models = [
        nous.TrustModel("1", origin=None, errors=PLAIN, answers={"x": 5}, terms={"reliability": [f]})
        for f in (one, two, one)
    ]
    keys = [draw_up(model, evidence).plan.key for model in models]
    assert keys[0] == keys[2] and keys[0] != keys[1] and hash(keys[0]) == hash(keys[2])
    before = svi.block_runner.cache_info().misses
    fits = [model.fit(evidence, nous.SVI(steps=100, draws=10), learn_from="all") for model in models]
    assert svi.block_runner.cache_info().misses == before + 2
    losses = [fit.sample_stats["loss"] for fit in fits]
    np.testing.assert_array_equal(losses[0], losses[2])
    assert (losses[0] != losses[1]).any()
