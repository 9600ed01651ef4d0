"""arviz's own functions run on a trust as it is, under arviz 0.x and 1.x alike."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nousppl as nous
from nousppl import arviz_bridge, saving
from nousppl.simulate import World
from nousppl.trust import Trust

KNOWN = 120
"""Settled truths that the fit sees, of 200."""


@pytest.fixture(scope="module")
def seen(small: World) -> nous.Evidence:
    return nous.Evidence(small.claims, settled=small.settled.iloc[:KNOWN])


@pytest.fixture(scope="module")
def trust(small: World, seen: nous.Evidence) -> Trust:
    origin, errors = nous.Origin("same_channel", lag=False), nous.Errors(difficulty=False)
    model = nous.TrustModel("1 + (1|source)", "1", origin, errors, answers=small.answers)
    return model.fit(seen, nous.SVI(steps=1000, draws=400), seed=1)


@pytest.fixture(scope="module")
def chains(trust: Trust) -> Trust:
    """The same with its draws as two chains, and statistics of a sampler that diverged twice."""
    draws = {n: v.reshape(2, -1, *v.shape[2:]) for n, v in trust.posterior_draws.items()}
    diverging = np.zeros((2, 200), bool)
    diverging[0, [3, 50]] = True
    return replace(trust, posterior_draws=draws, sample_stats={"diverging": diverging})


@pytest.fixture(scope="module")
def told(trust: Trust, evidence: nous.Evidence) -> Any:
    """All groups, on the evidence in which 80 more questions are settled."""
    return trust.to_arviz(evidence, log_likelihood=True, prior=True, posterior_predictive=True)


@pytest.fixture(autouse=True)
def nothing_is_shown() -> Iterator[None]:
    """Figures are drawn without a screen and closed."""
    import matplotlib.pyplot as plt

    with mpl.rc_context({"figure.dpi": 50, "figure.max_open_warning": 0}), warnings.catch_warnings():
        plt.switch_backend("agg")
        yield
        plt.close("all")


def draw(name: str, *args: Any, **options: Any) -> None:
    """A plot of arviz, in which there are lines; in the line 0.x some lie in arviz_plots."""
    import arviz
    import matplotlib.pyplot as plt

    if not hasattr(arviz, name):
        import arviz_plots as arviz
    with warnings.catch_warnings():
        # Libraries that arviz draws with announce changes of their own.
        warnings.simplefilter("ignore")
        getattr(arviz, name)(*args, **options)
    axes = [ax for number in plt.get_fignums() for ax in plt.figure(number).axes]
    assert sum(len(ax.lines) for ax in axes) > 0


# ------------------------------------------------------------------------------------------------------------- groups


def test_the_groups_have_named_dimensions(told: Any, small: World) -> None:
    names = sorted(small.claims["source"].unique())
    for group in ("posterior", "prior"):
        effects = told[group]["reliability_1|source"]
        assert effects.dims == ("chain", "draw", "source") and effects.coords["source"].values.tolist() == names
    constant = told["constant_data"]
    claims = small.claims.set_index("claim")
    order = constant["claim"].values
    assert constant["claim_source"].values.tolist() == claims.loc[order, "source"].tolist()
    assert constant["claim_value"].values.tolist() == claims.loc[order, "value"].tolist()
    assert constant["question_claims"].values.sum() == len(claims) == constant.sizes["claim"]
    assert constant["reliability"].dims == ("source",) and constant["question_answers"].dims == ("question",)
    assert told["log_likelihood"]["questions"].dims == ("chain", "draw", "question")
    assert told["posterior_predictive"]["right"].dims == ("chain", "draw", "fact")


def test_base_rates_and_biases_are_named_by_answer() -> None:
    claims = pd.DataFrame({"entity": [1, 1, 2, 2], "attribute": "x", "value": list("aabc"), "source": list("stst")})
    errors = nous.Errors(bias="source", difficulty=False)
    answers = {"x": ["a", "b", "c"]}
    model = nous.TrustModel(origin=None, errors=errors, answers=answers, base_rates="learned")
    trust = model.fit(nous.Evidence(claims), nous.SVI(steps=100, draws=10), learn_from="all")
    posterior = trust.idata["posterior"]
    assert posterior["base_rates"].coords["answer"].values.tolist() == ["x=a", "x=b", "x=c"]
    assert posterior["errors_confusion"].coords["answer_pair"].values.tolist()[:3] == [
        "x: a -> b",
        "x: a -> c",
        "x: b -> a",
    ]
    assert posterior["errors_bias|source"].coords["source_answer"].values.tolist()[2:4] == ["s · x=c", "t · x=a"]
    assert posterior["errors_confusion|source"].coords["source_answer_pair"].values.tolist()[6] == "t · x: a -> b"


def test_what_is_not_asked_for_is_not_computed(trust: Trust, seen: nous.Evidence) -> None:
    assert set(names(trust.idata)) == {"posterior", "sample_stats", "constant_data"}
    assert set(names(trust.to_arviz(seen))) == {"posterior", "sample_stats", "constant_data", "observed_data"}
    values = trust.to_arviz(seen)["observed_data"]["value"]
    assert values.dims == ("claim",) and "claim_source" in values.coords


def names(data: Any) -> list[str]:
    return list(data.groups()) if arviz_bridge.first_line() else list(data.children)


def test_the_log_likelihood_is_that_of_what_was_learned_from(
    trust: Trust, told: Any, seen: nous.Evidence, evidence: nous.Evidence
) -> None:
    found = told["log_likelihood"]["questions"]
    assert found.sizes["question"] == KNOWN
    known = seen.subset(seen.coded.settled_truths)
    np.testing.assert_allclose(found, trust.log_likelihood(known), rtol=1e-5)
    with pytest.raises(nous.QuestionError, match=r"to_arviz\(log_likelihood=True\): learned from 120 settled"):
        trust.to_arviz(evidence.subset(range(100)), log_likelihood=True)


def test_only_truths_that_the_fit_has_not_seen_are_predicted(
    trust: Trust, told: Any, seen: nous.Evidence, small: World
) -> None:
    right = told["posterior_predictive"]["right"]
    assert right.shape == (1, 400, 200 - KNOWN)
    beliefs = trust.posteriors(nous.Evidence(small.claims))
    facts = set(map(tuple, small.settled.iloc[KNOWN:][["entity", "attribute"]].itertuples(index=False)))
    found = list(zip(right["entity"].values, right["attribute"].values, strict=True))
    assert set(found) == facts
    table = beliefs.frame.set_index(["entity", "attribute"]).loc[found]
    assert np.abs(right.mean(("chain", "draw")).values - table["probability"]).max() < 0.13  # 5 sd of 400 coins
    assert right["answer"].values.tolist() == table["answer"].tolist()
    truths = small.settled.set_index(["entity", "attribute"])["value"].loc[found]
    assert (told["observed_data"]["right"].values == (table["answer"] == truths)).all()
    with pytest.raises(nous.QuestionError, match="of the 120 settled truths of this evidence the fit has used all"):
        trust.to_arviz(seen, posterior_predictive=True)


def test_prior_draws_are_of_the_priors(told: Any, trust: Trust) -> None:
    intercept = told["prior"]["reliability_Intercept"].values
    assert intercept.shape == (1, 400)
    assert abs(intercept.mean() - 1.1) < 0.2 and abs(intercept.std() - 1.0) < 0.2
    again = trust.to_arviz(prior=True, seed=5)["prior"]["reliability_Intercept"].values
    assert not np.allclose(again, intercept)


def test_all_groups_go_into_a_file_of_arviz(told: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        # xarray adds a filter of its own when it writes or opens a tree.
        told.to_netcdf(str(tmp_path / "all.nc"))
        with xr.open_datatree(tmp_path / "all.nc", engine="h5netcdf") as tree:
            assert set(tree.children) == set(names(told))
            np.testing.assert_array_equal(tree["observed_data"]["right"], told["observed_data"]["right"])


# ------------------------------------------------------------------------------------------------- arviz's functions


def test_summary(chains: Trust) -> None:
    import arviz

    table = arviz.summary(chains.idata, var_names=["reliability_Intercept", "reliability_1|source"])
    assert table.index[0] == "reliability_Intercept" and table.index[1] == "reliability_1|source[s00]"
    assert len(table) == 21 and table["r_hat"].astype(float).between(0.98, 1.1).all()


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")
def test_loo(told: Any, trust: Trust, seen: nous.Evidence) -> None:
    import arviz

    share = float(told["log_likelihood"]["questions"].attrs["efficiency"])
    assert 0.1 < share < 1.0
    found = arviz.loo(told, pointwise=True, reff=share)
    known = seen.subset(seen.coded.settled_truths)
    ours = arviz_bridge.loo(trust.log_likelihood(known), saving.datasets(trust)["posterior"])
    assert np.asarray(found.loo_i if arviz_bridge.first_line() else found.elpd_i) == pytest.approx(ours.elpd)


def test_plot_forest(chains: Trust) -> None:
    draw("plot_forest", chains.idata, var_names=["reliability_1|source"])


def test_plot_trace(chains: Trust) -> None:
    draw("plot_trace", chains.idata, var_names=["reliability_Intercept", "reliability_1|source_sigma"])


def test_plot_ess(chains: Trust) -> None:
    draw("plot_ess", chains.idata, var_names=["reliability_Intercept"])


def test_plots_of_a_variational_fit(trust: Trust) -> None:
    """Its loss is by step, which is no dimension of the draws."""
    for name in ("plot_forest", "plot_trace", "plot_ess"):
        draw(name, trust.idata, var_names=["reliability_Intercept"])


def test_plot_ppc_pava(told: Any) -> None:
    draw("plot_ppc_pava", told)


def test_plot_ppc_pava_of_beliefs(trust: Trust, small: World) -> None:
    draw("plot_ppc_pava", trust.posteriors(nous.Evidence(small.claims)).to_arviz(small.settled, draws=100))
