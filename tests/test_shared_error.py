"""Errors that are shared to a different degree by different claims: a formula of log beta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import witness
from test_three_ways import SINGLE, case, differences, worst, written

import nousppl as nous
from nousppl.asking import linear_draws, parameter_draws
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.errors import ModelError
from nousppl.generate import Truth
from nousppl.inference.packed import packing

FORMULA = "1 + (1|attribute)"
K, QUESTIONS, CLAIMS, SOURCES = 8, 400, 10, 12
TRUE = {"one mistake": -2.0, "own mistakes": 4.0}
"""log beta of two attributes: in the first all who go wrong say the same."""
QUICK = nous.SVI(steps=100, draws=30)


def model(popularity: bool | str, **given: Any) -> nous.TrustModel:
    errors = nous.Errors(popularity=popularity, difficulty=False)
    return nous.TrustModel(origin=None, errors=errors, answers=dict.fromkeys(TRUE, K), **given)


@pytest.fixture(scope="module")
def world() -> tuple[Truth, pd.DataFrame]:
    """Truths, and claims by sources that are right half of the time on average."""
    rng = np.random.default_rng(0)
    rows = [
        {"entity": f"e{i:03d}", "attribute": list(TRUE)[i % 2], "source": f"s{s:02d}", "time": float(t)}
        for i in range(QUESTIONS)
        for t, s in enumerate(rng.choice(SOURCES, CLAIMS, replace=False))
    ]
    effects = {"popularity_Intercept": 1.0, "popularity_1|attribute": [TRUE[name] - 1.0 for name in sorted(TRUE)]}
    spreads = {"popularity_1|attribute_sigma": 3.0, "reliability_1|source_sigma": 0.7}
    given = effects | spreads | {"reliability_Intercept": 0.0}
    truth, evidence = model(FORMULA).simulate(pd.DataFrame(rows), seed=1, parameters=given)
    return truth, evidence.claims


@pytest.fixture(scope="module")
def halves(world: tuple[Truth, pd.DataFrame]) -> tuple[nous.Evidence, pd.DataFrame]:
    """Every other pair of questions is learned from, the others are the test."""
    truth, claims = world
    learn = np.arange(QUESTIONS) % 4 < 2
    return nous.Evidence(claims, settled=truth.settled[learn]), truth.settled[~learn]


@pytest.fixture(scope="module")
def trust(halves: tuple[nous.Evidence, pd.DataFrame]) -> nous.Trust:
    return model(FORMULA).fit(halves[0], nous.SVI(steps=1500, draws=200), learn_from="settled")


@pytest.fixture(scope="module")
def scalar(halves: tuple[nous.Evidence, pd.DataFrame]) -> nous.Trust:
    """The control: the same errors for all attributes."""
    return model(True).fit(halves[0], nous.SVI(steps=1500, draws=200), learn_from="settled")


# ------------------------------------------------------------------------------------- the law, in all its forms


@pytest.mark.parametrize("closed", [True, False])
def test_marginal_is_brute_force_with_a_beta_for_each_claim(closed: bool) -> None:
    on = {"popularity": True, "shared by claim": True, "closed": closed, "lineage": False, "difficulty": False}
    evidence, trust = case(400, questions=8, claims=4, named=4, K=6, **on)
    betas = [one.question.beta for i in range(8) for one in written(trust, evidence, i)]
    assert all(np.shape(beta) == (4,) for beta in betas) and max(np.ptp(np.log(beta)) for beta in betas) > 0.5
    assert worst(differences(evidence, trust)) < SINGLE


def test_probabilities_sum_to_one_by_brute_force() -> None:
    on = {"popularity": True, "shared by claim": True, "soft": False, "notes": False, "lineage": False, "text": False}
    for seed, closed in ((410, True), (411, False)):
        evidence, trust = case(seed, questions=2, claims=3, named=3, K=4, closed=closed, rejected=False, **on)
        question = written(trust, evidence, 0)[0].question
        assert np.shape(question.beta) == (3,)
        assert witness.total_probability(question._replace(correlation=None)) == pytest.approx(1.0, abs=1e-12)


def test_an_intercept_alone_is_the_one_beta_of_all(scalar: nous.Trust, halves: Any) -> None:
    blueprint = draw_up(model("1"), halves[0])
    names = {"errors_log_popularity": "popularity_Intercept"}
    draws = {names.get(name, name): value for name, value in scalar.posterior_draws.items()}
    same = nous.Trust(model("1"), blueprint, draws, {}, scalar.table, scalar.record)
    with jax.enable_x64(True):
        one, other = (t.posteriors(halves[0]).probability for t in (scalar, same))
    np.testing.assert_allclose(one, other, atol=1e-12)
    assert set(scalar.blueprint.plan.names) == {
        "reliability_Intercept",
        "reliability_1|source_sigma",
        "reliability_1|source",
        "errors_log_popularity",
    }


# ------------------------------------------------------------------------------------------------ what is learned


def test_attributes_are_told_apart(trust: nous.Trust) -> None:
    groups = trust.groups.set_index(["part", "term", "level"])
    low, high = (groups.loc[("popularity", "1|attribute", name)] for name in TRUE)
    assert low["upper"] < high["lower"]
    for name, level in zip(TRUE, (low, high), strict=True):
        draws = trust.flat["popularity_Intercept"] + trust.flat["popularity_1|attribute"][:, sorted(TRUE).index(name)]
        assert abs(draws.mean() - TRUE[name]) < 3.0 * draws.std() + 0.2, level
    assert ("popularity", "1|attribute", "sd") in groups.index


def test_held_out_truths_are_predicted_better_than_with_one_beta(
    trust: nous.Trust, scalar: nous.Trust, halves: Any
) -> None:
    evidence, test = halves
    mine, theirs = (t.posteriors(evidence).score(test)["log_loss"] for t in (trust, scalar))
    assert mine < theirs - 0.02


def test_held_out_claims_are_likelier_than_with_one_beta(
    trust: nous.Trust, scalar: nous.Trust, halves: Any, world: Any
) -> None:
    """In nats a question, claims and truth together."""
    test = halves[1]["entity"]
    evidence = nous.Evidence(world[1][world[1]["entity"].isin(test)], settled=halves[1])
    logs = [np.exp(t.log_likelihood(evidence)).mean(("chain", "draw")) for t in (trust, scalar)]
    assert len(logs[0]) == len(test) == QUESTIONS // 2
    assert float((np.log(logs[0]) - np.log(logs[1])).mean()) > 0.3


@pytest.mark.long
def test_batches_of_different_sizes_learn_the_same(halves: Any, trust: nous.Trust) -> None:
    options = nous.SVI(steps=1500, draws=200, batch_claims=600)
    found = model(FORMULA).fit(halves[0], options, learn_from="settled").flat["popularity_1|attribute"]
    whole = trust.flat["popularity_1|attribute"]
    np.testing.assert_allclose(found.mean(0), whole.mean(0), atol=0.5 * whole.std())


def test_effects_of_attributes_have_a_full_covariance_with_the_top_level(trust: nous.Trust) -> None:
    plan = trust.blueprint.plan
    pack = packing(plan, nous.SVI().full_size)
    ends = {slot.name: slot.start + slot.size for slot in pack.slots}
    assert max(ends[name] for name in ends if name.startswith("popularity_")) <= pack.full


def test_a_new_attribute_is_drawn_from_the_law_of_its_group(trust: nous.Trust, world: Any) -> None:
    new = nous.Evidence(world[1].head(CLAIMS).assign(attribute="unheard of"))
    encoded, draws = trust.encoded(new), trust.flat
    problem = compile_problem(encoded, np.arange(len(new.questions)))
    found = parameter_draws(trust.blueprint, encoded, draws, problem)["log_beta"]
    assert (found == found[:, :1]).all()
    effect = (found[:, 0] - draws["popularity_Intercept"]) / draws["popularity_1|attribute_sigma"]
    assert abs(effect.mean()) < 0.25 and effect.std() == pytest.approx(1.0, abs=0.2)
    predictor = next(p for p in trust.blueprint.plan.predictors if p.part == "popularity")
    again = linear_draws(predictor, encoded.designs["popularity"], draws, np.arange(CLAIMS))
    np.testing.assert_array_equal(found, again)


@pytest.mark.slow
def test_a_number_is_standardised_and_new_claims_are_read_on_its_scale(halves: Any, world: Any) -> None:
    claims = world[1].assign(size=np.random.default_rng(3).gamma(2.0, 50.0, len(world[1])))
    fitted = model("1 + size").fit(nous.Evidence(claims, settled=world[0].settled), QUICK)
    scale = fitted.blueprint.encodings["popularity"].scales["size"]
    assert scale == pytest.approx((claims["size"].mean(), claims["size"].std(ddof=0)))
    some = fitted.encoded(nous.Evidence(claims.head(CLAIMS)))
    found = some.designs["popularity"].fixed[:, 1]
    np.testing.assert_allclose(found, (claims["size"].head(CLAIMS) - scale[0]) / scale[1])


# ------------------------------------------------------------------------------------------ saved, updated, priors


def test_a_loaded_trust_believes_the_same_to_the_last_bit(trust: nous.Trust, halves: Any, tmp_path: Path) -> None:
    trust.save(tmp_path / "t.nc")
    loaded = nous.load(tmp_path / "t.nc")
    assert loaded.model.errors == trust.model.errors and loaded.blueprint.plan == trust.blueprint.plan
    np.testing.assert_array_equal(loaded.posteriors(halves[0]).probability, trust.posteriors(halves[0]).probability)
    pd.testing.assert_frame_equal(loaded.groups, trust.groups)
    effects = trust.idata["posterior"]["popularity_1|attribute"]
    assert effects.coords["attribute"].values.tolist() == sorted(TRUE)


@pytest.mark.slow
def test_groups_and_easy_or_hard_questions_keep_their_attributes(halves: Any) -> None:
    """Both have effects by attribute; the one knows attributes that are declared only."""
    errors = nous.Errors(popularity=FORMULA, difficulty="mixture")
    answers = {"declared only": 3} | dict.fromkeys(TRUE, K)
    fitted = nous.TrustModel(origin=None, errors=errors, answers=answers).fit(halves[0], QUICK)
    posterior = fitted.idata["posterior"]
    assert posterior["popularity_1|attribute"].coords["attribute"].values.tolist() == sorted(TRUE)
    hard = posterior["errors_logit_hard|attribute"]
    assert hard.coords[hard.dims[-1]].values.tolist() == list(fitted.blueprint.domains.attributes)


@pytest.mark.slow
def test_update_goes_on_with_the_levels_it_knows(trust: nous.Trust, world: Any) -> None:
    truth, claims = world
    more = claims[claims["entity"] < "e008"].assign(
        attribute="a new one", claim=[f"new {i}" for i in range(8 * CLAIMS)]
    )
    settled = truth.settled[truth.settled["entity"] < "e008"].assign(attribute="a new one")
    evidence = nous.Evidence(pd.concat([claims, more]), settled=pd.concat([truth.settled, settled]))
    updated = trust.update(evidence, nous.SVI(steps=200, draws=50))
    levels = updated.blueprint.encodings["popularity"].levels["1|attribute"]
    assert levels == ("a new one", *sorted(TRUE))
    effects = updated.flat["popularity_1|attribute"].mean(0)
    assert effects[levels.index("own mistakes")] - effects[levels.index("one mistake")] > 2.0


def test_priors_are_shown_and_set() -> None:
    shown = model("1 + size + (1|attribute)").priors()["popularity"]
    assert {name: str(prior) for name, prior in shown.items()} == {
        "1": "Normal(1, 1)",
        "size": "Normal(0, 1)",
        "attribute": "HalfNormal(0.7)",
    }
    assert list(model(FORMULA).priors()["errors"]) == ["log_denial"] and "popularity" not in model(True).priors()
    import numpyro.distributions as dist

    given = model(FORMULA, priors={"popularity": {"1": dist.Normal(2, 0.5), "attribute": dist.HalfNormal(3)}})
    assert str(given.priors()["popularity"]["1"]) == "Normal(2, 0.5)"
    sites = {site.name: site.prior for site in draw_up(given, None).plan.sites}
    assert str(sites["popularity_Intercept"]) == "Normal(2, 0.5)"
    assert str(sites["popularity_1|attribute_sigma"]) == "HalfNormal(3)"


def test_sensitivity_names_the_parameters_of_the_formula(trust: nous.Trust, halves: Any) -> None:
    table = nous.sensitivity(trust, halves[0])
    assert {"popularity_Intercept", "popularity_1|attribute_sigma", "popularity_1|attribute"} <= set(table.index)
    assert table.loc["popularity_1|attribute", "level"] in TRUE


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("popularity", "message"),
    [
        (
            "1 + (1|atribute)",
            r"popularity = '1 \+ \(1\|atribute\)': there is no column 'atribute' \(did you mean 'attr",
        ),
        ("1 + log(size)", r"popularity = '1 \+ log\(size\)': log\(size\) is a function call"),
        ("", "popularity = '' is not a formula"),
        (3, r"Errors\(popularity=3\): allowed are True, False and a formula such as '1 \+ \(1\|attribute\)'"),
        (None, r"Errors\(popularity=None\): allowed are True, False and a formula"),
    ],
)
def test_mistakes_are_named(popularity: Any, message: str, halves: Any) -> None:
    with pytest.raises(ModelError, match=message):
        model(popularity).fit(halves[0])


def test_a_value_that_is_missing_is_named(halves: Any, world: Any) -> None:
    claims = world[1].assign(size=1.0)
    claims.loc[5, "size"] = np.nan
    with pytest.raises(ModelError, match=r"popularity = '1 \+ size': column 'size' is missing in 1 of 4000 rows"):
        model("1 + size").fit(nous.Evidence(claims))


@pytest.mark.parametrize(("part", "name"), [("popularity", "source"), ("errors", "log_popularity")])
def test_priors_of_what_is_not_there_are_refused(part: str, name: str) -> None:
    import numpyro.distributions as dist

    with pytest.raises(ModelError, match=rf"priors\['{part}'\]: no parameter '{name}'"):
        model(FORMULA, priors={part: {name: dist.HalfNormal(1)}})
