"""Fits on pyro: the same estimates as on numpyro, and a trust that does not know where it was fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpyro.distributions as dist
import optax
import pandas as pd
import pytest

import nousppl as nous
from nousppl.inference import guide
from nousppl.inference.options import check_backend
from nousppl.simulate import World

torch = pytest.importorskip("torch", reason="torch is not installed: there is no second backend to fit on")
pyro = pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to fit on")

from nousppl.inference import torch_svi  # noqa: E402
from nousppl.inference.torch_backend import one_thread, random_numbers  # noqa: E402

SHORT = nous.SVI(steps=400, draws=100)
SAME = 1e-3
"""Both backends take the same steps with the same noise: means differ by less than this many posterior standard
deviations (measured: 2e-5 after 2,500 steps), and standard deviations by less than this share."""
ALIKE = 0.5
"""Posterior standard deviations by which means may differ where one is of a short chain: of 100 draws the noise of a
mean is about .1 to .15, and the largest difference of 22 parameters is compared (measured: .2)."""


@pytest.fixture(scope="module")
def model(small: World) -> nous.TrustModel:
    return nous.TrustModel(
        "1 + (1|source)", "1", nous.Origin(lag=False), nous.Errors(popularity=False), answers=small.answers
    )


@pytest.fixture(scope="module")
def part(evidence: nous.Evidence) -> nous.Evidence:
    return evidence.subset(np.arange(60))


@pytest.fixture(scope="module")
def trusts(model: nous.TrustModel, part: nous.Evidence) -> dict[str, nous.Trust]:
    return {backend: model.fit(part, SHORT, seed=1, backend=backend) for backend in ("numpyro", "pyro")}


def apart(one: nous.Trust, two: nous.Trust) -> float:
    """Largest difference of means, in standard deviations of the first, or of log standard deviations."""
    assert list(one.posterior_draws) == list(two.posterior_draws)
    out = []
    for name, draws in one.flat.items():
        other = two.flat[name]
        assert other.shape[1:] == draws.shape[1:]
        out.append(np.abs((draws.mean(0) - other.mean(0)) / draws.std(0)).max())
        out.append(np.abs(np.log(draws.std(0) / other.std(0))).max())
    return float(np.max(out))


def means_apart(one: nous.Trust, two: nous.Trust) -> float:
    return max(float(np.abs((d.mean(0) - two.flat[name].mean(0)) / d.std(0)).max()) for name, d in one.flat.items())


# ---------------------------------------------------------------------------------------------------- estimates


def test_svi_is_the_same_on_both_backends(trusts: dict[str, nous.Trust]) -> None:
    assert apart(trusts["numpyro"], trusts["pyro"]) < SAME
    losses = [trust.sample_stats["loss"] for trust in trusts.values()]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert trusts["pyro"].record == {**trusts["numpyro"].record, "backend": "pyro"}
    assert trusts["pyro"].status == trusts["numpyro"].status


@pytest.fixture(scope="module")
def plain(small: World) -> nous.TrustModel:
    """Reliability and easy and hard questions: quick to compile."""
    return nous.TrustModel(
        origin=None, errors=nous.Errors(popularity=False, difficulty="mixture"), answers=small.answers
    )


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "batches and several samples, from the vote": ({"batch_claims": 150, "samples": 2}, {"learn_from": "all"}),
    "a cut, and independent parameters": ({"full_size": 0}, {"learn_from": "cut"}),
}


@pytest.mark.parametrize("case", CASES)
def test_svi_is_the_same_with(case: str, plain: nous.TrustModel, small: World) -> None:
    options, given = CASES[case]
    evidence = nous.Evidence(small.claims, settled=small.learn).subset(np.arange(60))
    svi = nous.SVI(steps=300, draws=50, **options)
    one, two = (plain.fit(evidence, svi, seed=2, backend=backend, **given) for backend in ("numpyro", "pyro"))
    assert apart(one, two) < SAME


def test_priors_of_other_families(plain: nous.TrustModel, part: nous.Evidence) -> None:
    priors = {
        "reliability": {"1": dist.StudentT(4.0, 1.0, 1.0), "source": dist.Gamma(2.0, 3.0)},
        "errors": {"hard_shift": dist.Uniform(0.0, 6.0)},
    }
    spec = nous.TrustModel(origin=None, errors=plain.errors, answers=plain.answers, priors=priors)
    svi = nous.SVI(steps=200, draws=50)
    one, two = (spec.fit(part, svi, backend=backend) for backend in ("numpyro", "pyro"))
    assert apart(one, two) < SAME


@pytest.mark.slow
def test_nuts_on_both_backends_and_svi_agree(small: World, part: nous.Evidence) -> None:
    errors = nous.Errors(popularity=False, difficulty=False)
    model = nous.TrustModel(origin=None, errors=errors, answers=small.answers)
    one = model.fit(part, nous.NUTS(num_warmup=100, num_samples=300, num_chains=1), seed=3)
    two = model.fit(part, nous.NUTS(num_warmup=50, num_samples=100, num_chains=1), seed=3, backend="pyro")
    guide = model.fit(part, seed=3)
    assert guide.record["converged"]
    assert means_apart(one, two) < ALIKE
    assert means_apart(one, guide) < ALIKE
    assert two.sample_stats["diverging"].shape == (1, 100)
    assert len(two.mcmc) == 1 and "NUTS: 1 chains of 100 draws, largest R-hat" in two.status


# ------------------------------------------------------------------------------------------- one kind of trust


def test_a_trust_from_pyro_answers_as_one_from_numpyro(trusts: dict[str, nous.Trust], part: nous.Evidence) -> None:
    one, two = (trust.posteriors(part).probabilities["probability"] for trust in trusts.values())
    np.testing.assert_allclose(one, two, atol=1e-3)
    question = part.question(*part.questions.iloc[0][["entity", "attribute"]])
    one, two = (trust.posterior(question).probabilities for trust in trusts.values())
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_a_trust_from_pyro_is_saved_and_loaded(
    trusts: dict[str, nous.Trust], part: nous.Evidence, tmp_path: Path
) -> None:
    trusts["pyro"].save(tmp_path / "trust.nc")
    again = nous.load(tmp_path / "trust.nc")
    assert again.record["backend"] == "pyro"
    found, expected = (t.posteriors(part).probabilities["probability"] for t in (again, trusts["pyro"]))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("first", "then"), [("pyro", "numpyro"), pytest.param("numpyro", "pyro", marks=pytest.mark.long)]
)
def test_a_fit_goes_on_on_the_other_backend(
    first: str, then: str, trusts: dict[str, nous.Trust], part: nous.Evidence
) -> None:
    went_on = trusts[first].update(part, nous.SVI(steps=100, draws=100), backend=then)
    stayed = trusts[first].update(part, nous.SVI(steps=100, draws=100), backend=first)
    assert apart(went_on, stayed) < SAME


def test_the_program_of_pyro_is_that_of_numpyro(
    model: nous.TrustModel, trusts: dict[str, nous.Trust], part: nous.Evidence
) -> None:
    program = model.program(part, backend="pyro")
    assert repr(program) == "Program(60 questions, 5 parameters, on torch)"
    samples = program.samples(trusts["pyro"])
    expected = trusts["pyro"].log_likelihood(part).values[0]
    for i in range(3):
        at = {name: value[i] for name, value in samples.items()}
        trace = pyro.poutine.trace(pyro.poutine.condition(program, at)).get_trace()
        trace.compute_log_prob()
        site = trace.nodes["questions"]
        np.testing.assert_allclose(site["log_prob"].numpy(), expected[i], rtol=1e-4, atol=1e-5)
        # Everything else is given; a plate is a node of its own.
        assert site["is_observed"] and list(trace.stochastic_nodes) == ["question"]
    assert site["fn"].expand([60]) is site["fn"]
    with pytest.raises(ValueError, match=r"the law of \(60,\) questions cannot be expanded"):
        site["fn"].expand([2, 60])
    with pytest.raises(nous.InferenceError, match="for other claims make an Evidence of them"):
        site["fn"].log_prob(site["value"] + 1)


def test_predictions_of_pyro(model: nous.TrustModel, trusts: dict[str, nous.Trust], part: nous.Evidence) -> None:
    program = model.program(part, backend="pyro")
    samples = {name: value[:10] for name, value in program.samples(trusts["pyro"]).items()}
    with random_numbers(5):
        said = pyro.infer.Predictive(program, samples)(observed=False)["questions"].numpy()
    real = program.simulator.said
    assert said.shape == (10, *real.shape)
    np.testing.assert_array_equal(said[0] >= 0, real >= 0)
    right = [(v[..., 1:] == v[..., :1]).sum() / (v[..., 1:] >= 0).sum() for v in (said, real)]
    assert right[0] == pytest.approx(right[1], abs=0.06)
    with random_numbers(5):
        np.testing.assert_array_equal(said, pyro.infer.Predictive(program, samples)(observed=False)["questions"])


# ------------------------------------------------------------------------------------------------- housekeeping


def test_the_guide_of_torch_is_that_of_jax() -> None:
    rng = np.random.default_rng(0)
    state = guide.State(rng.normal(size=5), rng.normal(size=(3, 3)), rng.normal(size=2))
    noise = rng.normal(size=(4, 5))
    parts = [torch.tensor(part) for part in state]
    np.testing.assert_allclose(
        torch_svi.transform(parts, torch.tensor(noise)), guide.transform(state, noise), rtol=1e-5, atol=1e-5
    )
    assert float(torch_svi.entropy(parts)) == pytest.approx(float(guide.entropy(state)), rel=1e-5)


def test_threads_and_random_numbers_of_torch_are_as_before() -> None:
    threads, numbers = torch.get_num_threads(), torch.get_rng_state()
    with one_thread(), random_numbers(3):
        assert torch.get_num_threads() == 1
        first = torch.rand(2)
    with pytest.raises(ZeroDivisionError, match="division"), one_thread(), random_numbers(4):
        print(torch.rand(2) / torch.rand(1) / (1 // 0))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), numbers)
    with random_numbers(3):
        assert torch.equal(first, torch.rand(2))


def test_chains_on_pyro_are_drawn_by_seed(plain: nous.TrustModel, part: nous.Evidence) -> None:
    few = part.subset(np.arange(6))
    options = nous.NUTS(num_warmup=3, num_samples=4, num_chains=2)
    one, two, other = (
        plain.fit(few, options, seed=seed, backend="pyro", learn_from="settled").flat for seed in (0, 0, 1)
    )
    name = "reliability_Intercept"
    np.testing.assert_array_equal(one[name], two[name])
    assert (one[name] != other[name]).any()


def test_an_optimiser_of_optax_is_refused(model: nous.TrustModel, part: nous.Evidence) -> None:
    with pytest.raises(nous.InferenceError, match="is an optax transformation of jax; backend='pyro' takes Adam steps"):
        model.fit(part, nous.SVI(optim=optax.scale_by_adam()), backend="pyro")


def test_a_prior_that_pyro_does_not_know_is_refused(plain: nous.TrustModel, part: nous.Evidence) -> None:
    priors = {"reliability": {"1": dist.Gompertz(1.0, 1.0)}}
    spec = nous.TrustModel(origin=None, errors=plain.errors, answers=plain.answers, priors=priors)
    with pytest.raises(nous.ModelError, match="Gompertz.* has no counterpart in pyro.distributions"):
        spec.fit(part, SHORT, backend="pyro")


def test_an_unknown_backend_is_refused(model: nous.TrustModel, part: nous.Evidence) -> None:
    with pytest.raises(nous.ModelError, match="backend='torch': allowed are 'numpyro' and 'pyro'"):
        model.fit(part, backend="torch")
    check_backend("pyro")
    assert isinstance(part.claims, pd.DataFrame)


# ------------------------------------------------------------------------------------- fits by way of something else


def test_folds_are_fitted_on_the_backend_that_is_asked_for(plain: nous.TrustModel, part: nous.Evidence) -> None:
    scores = {
        backend: nous.cross_validate(plain, part, folds=2, method=nous.SVI(steps=200), backend=backend).scores
        for backend in ("numpyro", "pyro")
    }
    np.testing.assert_allclose(scores["numpyro"]["log_loss"], scores["pyro"]["log_loss"], rtol=1e-4)
    with pytest.raises(nous.ModelError, match="allowed are 'numpyro' and 'pyro'"):
        nous.cross_validate(plain, part, backend="stan")


def test_the_command_line_fits_on_pyro(small: World, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from nousppl.cli import app

    claims, settled, out = (tmp_path / name for name in ("claims.csv", "settled.csv", "trust.nc"))
    few = small.settled.iloc[:60]
    keys = few.set_index(["entity", "attribute"]).index
    rows = small.claims.set_index(["entity", "attribute"]).index.isin(keys)
    small.claims[rows].to_csv(claims, index=False)
    few.to_csv(settled, index=False)
    model = tmp_path / "model.toml"
    model.write_text(
        'origin = false\n[errors]\ndifficulty = "mixture"\n[fit]\nbackend = "pyro"\n[fit.svi]\nsteps = 200'
    )
    for more in ((), ("--backend", "numpyro")):
        arguments = ("fit", claims, "--settled", settled, "--model", model, "--out", out, *more)
        done = CliRunner().invoke(app, [str(word) for word in arguments])
        assert done.exit_code == 0, done.stderr
        assert nous.load(out).record["backend"] == (more[1] if more else "pyro")
