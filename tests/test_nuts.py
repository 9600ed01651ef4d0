"""Chains of numpyro's sampler: compiled once, in better coordinates, and still numpyro's object."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from benchmarks.speed import compilations
from jax.flatten_util import ravel_pytree

import nousppl as nous
from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference.chains import BLOCK
from nousppl.inference.location import Link, links, mover
from nousppl.padding import Mould

OPTIONS = nous.NUTS(num_warmup=40, num_samples=BLOCK + 10, num_chains=2)


def table(questions: int, seed: int = 0) -> pd.DataFrame:
    """Claims of 6 sources of 2 kinds through 3 channels; kind and source are nested, channel is crossed with both."""
    rng = np.random.default_rng(seed)
    entity, source = (part.ravel() for part in np.indices((questions, 6)))
    right = rng.random(len(entity)) < np.linspace(0.6, 0.95, 6)[source]
    return pd.DataFrame(
        {
            "entity": entity,
            "attribute": "x",
            "value": np.where(right, "a", rng.choice(["b", "c"], len(entity))),
            "source": np.char.add("s", source.astype(str)),
            "kind": np.where(source < 3, "k0", "k1"),
            "channel": rng.choice(["c0", "c1", "c2"], len(entity)),
            "rank": (source % 3).astype(float),
        }
    )


def model(reliability: str = "1 + (1|source)") -> nous.TrustModel:
    errors = nous.Errors(popularity=False, difficulty=False)
    return nous.TrustModel(reliability, origin=None, errors=errors, answers={"x": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def evidence() -> nous.Evidence:
    return nous.Evidence(table(60))


@pytest.fixture(scope="module")
def trust(evidence: nous.Evidence) -> nous.Trust:
    return model().fit(evidence, OPTIONS, seed=1)


def arrays(reliability: str, mould: Mould | None = None) -> tuple[nous.blueprint.Plan, dict[str, np.ndarray]]:
    blueprint = draw_up(model(reliability), nous.Evidence(table(60)))
    encoded = blueprint.encode(nous.Evidence(table(60)))
    problem = compile_problem(encoded, np.arange(60))
    _, shared, stacked = fitting.batched(blueprint, encoded, [problem], mould)
    return blueprint.plan, shared | {name: value[0] for name, value in stacked.items()}


def test_a_second_fit_compiles_nothing_and_repeats_itself(evidence: nous.Evidence, trust: nous.Trust) -> None:
    other = nous.Evidence(table(60, seed=1))
    with compilations() as names:
        again = model().fit(evidence, OPTIONS, seed=1)
        elsewhere = model().fit(other, OPTIONS, seed=1)
    assert names == []
    for name, value in trust.posterior_draws.items():
        assert (value == again.posterior_draws[name]).all()
    one, two = (t.posterior_draws["reliability_Intercept"] for t in (trust, elsewhere))
    assert one.shape == (2, BLOCK + 10) and (one != two).all()
    assert (model().fit(evidence, OPTIONS, seed=2).posterior_draws["reliability_Intercept"] != one).all()
    # What one trust keeps is not the other's.
    assert trust.mcmc is not again.mcmc and trust.mcmc.sampler is not again.mcmc.sampler


def test_chains_differ_and_the_way_they_are_run_changes_no_draw(evidence: nous.Evidence, trust: nous.Trust) -> None:
    one = trust.posterior_draws["reliability_Intercept"]
    assert (one[0] != one[1]).all()
    options = nous.NUTS(OPTIONS.num_warmup, OPTIONS.num_samples, 2, "sequential")
    assert (model().fit(evidence, options, seed=1).posterior_draws["reliability_Intercept"] == one).all()


@pytest.mark.long
def test_vectorised_chains_sample_the_same_posterior(evidence: nous.Evidence) -> None:
    means = []
    for method in ("parallel", "vectorized"):
        fitted = model().fit(evidence, nous.NUTS(100, 400, 2, method), seed=1)
        assert fitted.posterior_draws["reliability_Intercept"].shape == (2, 400)
        means.append(fitted.posterior_draws["reliability_1|source"].mean((0, 1)))
        spread = fitted.posterior_draws["reliability_1|source"].std((0, 1)).min()
    assert np.abs(means[0] - means[1]).max() < 0.4 * spread


def test_it_is_an_object_of_numpyro(trust: nous.Trust, capsys: pytest.CaptureFixture[str]) -> None:
    samples = trust.mcmc.get_samples(group_by_chain=True)
    for name, value in trust.posterior_draws.items():
        assert np.allclose(samples[name], value, rtol=1e-5)
    assert trust.mcmc.get_samples()["reliability_1|source_raw"].shape == (2 * (BLOCK + 10), 6)
    assert trust.mcmc.get_extra_fields()["num_steps"].shape == (2 * (BLOCK + 10),)
    trust.mcmc.print_summary()
    out = capsys.readouterr().out
    assert "reliability_1|source_raw[5]" in out and "reliability_1|source[5]" not in out
    assert "Number of divergences: " in out


@pytest.mark.long
def test_numpyro_goes_on_from_where_the_chains_ended(evidence: nous.Evidence) -> None:
    mcmc = model().fit(evidence, nous.NUTS(100, 300, 1), seed=1).mcmc
    before, last = mcmc.get_samples(), mcmc.last_state
    assert np.isclose(last.z["reliability_Intercept"], before["reliability_Intercept"][-1])
    mcmc.post_warmup_state = last
    mcmc.run(jax.random.key(3))
    # The potential that numpyro finds at this place, and its gradient, are those that the chain came with.
    fresh = mcmc.sampler.refresh(last, (), {})
    assert np.isclose(fresh.potential_energy, last.potential_energy, rtol=1e-5)
    for name, gradient in fresh.z_grad.items():
        assert np.allclose(gradient, last.z_grad[name], rtol=1e-3, atol=1e-2)
    after = mcmc.get_samples()["reliability_Intercept"]
    # In numpyro's own coordinates it mixes slowly.
    assert abs(after.mean() - before["reliability_Intercept"].mean()) < before["reliability_Intercept"].std()


def test_chains_do_not_start_among_the_liars() -> None:
    """Nothing settled and a prior that does not know whether sources are better than chance."""
    import numpyro.distributions as dist

    vague = nous.TrustModel(
        "1 + (1|source)",
        origin=None,
        errors=nous.Errors(popularity=False, difficulty=False),
        answers={"x": ["a", "b"]},
        priors={"reliability": {"1": dist.Normal(-0.5, 1.0)}},
    )
    claims = table(60)
    two = claims.assign(value=np.where(claims["value"] == "a", "a", "b"))
    fitted = vague.fit(nous.Evidence(two), nous.NUTS(60, 40, 4, "vectorized"), seed=0, learn_from="all")
    assert (fitted.posterior_draws["reliability_Intercept"].mean(1) > 0.5).all()


def test_progress_is_told_transitions(evidence: nous.Evidence) -> None:
    told: list[tuple[int, float]] = []
    options = nous.NUTS(OPTIONS.num_warmup, OPTIONS.num_samples, 1)
    model().fit(evidence, options, seed=1, progress=lambda taken, loss: told.append((taken, loss)))
    assert [taken for taken, _ in told] == [40, 40 + BLOCK, 50 + BLOCK]
    assert all(np.isfinite(loss) for _, loss in told)


def test_wrong_options_are_refused(evidence: nous.Evidence) -> None:
    with pytest.raises(nous.InferenceError, match=r"NUTS\(kernel=\{'accept': ...\}\): allowed are kinetic_fn,"):
        model().fit(evidence, nous.NUTS(kernel={"accept": 0.9}))
    with pytest.raises(nous.InferenceError, match=r"NUTS\(chain_method='threads'\): allowed are 'parallel'"):
        nous.NUTS(chain_method="threads")
    with pytest.raises(nous.InferenceError, match="num_samples must be at least 4"):
        nous.NUTS(num_chains=0)


# ------------------------------------------------------------------------------------------------------ coordinates


@pytest.mark.parametrize("mould", [None, Mould(2.0)], ids=["exact", "padded"])
@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("1 + (1|source)", {"source": ({"Intercept"}, set())}),
        ("1 + (1|kind) + (1|source)", {"kind": ({"Intercept"}, set()), "source": ({"Intercept"}, {"kind"})}),
        (
            "1 + rank + (1|kind) + (1|source)",
            {"kind": ({"Intercept"}, set()), "source": ({"Intercept", "rank"}, {"kind"})},
        ),
        ("1 + (1|channel) + (1|source)", {"source": ({"Intercept"}, set())}),
        ("1 + (rank|source)", {"source": ({"Intercept"}, set())}),
        ("0 + (1|kind) + (1|source)", {"source": (set(), {"kind"})}),
    ],
)
def test_what_lies_above_a_term(
    formula: str, expected: dict[str, tuple[set[str], set[str]]], mould: Mould | None
) -> None:
    plan, data = arrays(formula, mould)
    chain, _ = links(plan, data)
    found = {
        link.site.removeprefix("reliability_1|"): (
            {name.removeprefix("reliability_") for name in link.fixed},
            {name.removeprefix("reliability_1|") for name in link.groups},
        )
        for link in chain
    }
    assert found == expected


def test_the_coordinates_are_those_of_the_formula_and_keep_volume() -> None:
    plan, data = arrays("1 + rank + (1|kind) + (1|source)")
    chain, above = links(plan, data)
    assert chain[0] == Link("reliability_1|kind", ("reliability_Intercept",), ())
    arrays_ = {name: jnp.asarray(value) for name, value in (data | above).items()}
    arrays_["centred reliability_1|source"] = jnp.ones(6).at[2].set(0.0)
    arrays_["centred reliability_1|kind"] = jnp.ones(2)
    rng = np.random.default_rng(0)
    z = {
        site.name + ("_raw" if site.scale else ""): jnp.asarray(rng.normal(size=site.size or ()), float)
        for site in plan.sites
    }
    natural = {site.scale: jnp.exp(z[site.scale]) for site in plan.sites if site.scale}
    move = mover(plan, chain)
    moved = move(z, natural, arrays_, 1.0)
    back = move(moved, natural, arrays_, -1.0)
    assert all(np.allclose(back[name], value, atol=1e-5) for name, value in z.items())
    ranks = [data["reliability fixed"][1][data["reliability index"][1] == source].mean() for source in range(6)]
    expected = z["reliability_Intercept"] + z["reliability_rank"] * np.array(ranks)
    expected = expected + np.repeat(z["reliability_1|kind_raw"], 3) + z["reliability_1|source_raw"]
    inside = np.arange(6) != 2
    assert np.allclose(moved["reliability_1|source_raw"][inside], expected[inside], atol=1e-5)
    assert moved["reliability_1|source_raw"][2] == z["reliability_1|source_raw"][2]
    flat, unravel = ravel_pytree(z)

    def whole(vector: jax.Array) -> jax.Array:
        values = unravel(vector)
        scales = {name: jnp.exp(values[name]) for name in natural}
        return ravel_pytree(move(values, scales, arrays_, 1.0))[0]

    sign, log = np.linalg.slogdet(np.asarray(jax.jacobian(whole)(flat), np.float64))
    assert sign == 1.0 and abs(log) < 1e-5
