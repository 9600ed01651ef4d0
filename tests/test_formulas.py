"""Formulas at full strength: what was put into a simulation comes out of the fit, for reliability and for freshness."""

from __future__ import annotations

from typing import Any

import arviz
import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.generate import Truth

SOURCES, QUESTIONS, CLAIMS = 24, 500, 10
RELIABILITY = "1 + hedging + size + (hedging|source) + (1|attribute:source) + (1|kind/channel)"
"""A column of the claims and one of the sources, a slope, an interaction, nested and crossed groups."""
FRESHNESS = "1 + hedging + size + (hedging|source) + (1|kind/channel)"
MODEL = nous.TrustModel(
    RELIABILITY,
    FRESHNESS,
    nous.Origin(strong="same_channel", lag=False),
    nous.Errors(popularity=False, difficulty=False),
    answers={"colour": 12, "height": 12},
)
GIVEN = {
    "reliability_Intercept": 0.8,
    "reliability_hedging": -0.7,
    "reliability_size": 0.5,
    "reliability_hedging|source_sigma": 0.6,
    "reliability_1|attribute:source_sigma": 0.7,
    "freshness_hedging": 0.9,
    "freshness_size": -0.6,
    "freshness_hedging|source_sigma": 0.7,
    "origin_log_strangers": -4.0,
    "origin_same_channel": 0.5,
}


def design() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims without values, and the sources: three kinds, two channels within each."""
    rng = np.random.default_rng(0)
    names = [f"s{i:02d}" for i in range(SOURCES)]
    sources = pd.DataFrame({"source": names, "size": np.exp(rng.normal(3, 1, SOURCES)).round(1)})
    sources["kind"] = [("site", "paper", "person")[i % 3] for i in range(SOURCES)]
    rows = QUESTIONS * CLAIMS
    who = np.concatenate([rng.choice(SOURCES, CLAIMS, replace=False) for _ in range(QUESTIONS)])
    claims = pd.DataFrame(
        {
            "entity": np.repeat([f"e{i:03d}" for i in range(QUESTIONS)], CLAIMS),
            "attribute": np.repeat(rng.choice(["colour", "height"], QUESTIONS), CLAIMS),
            "source": np.array(names)[who],
            "time": np.tile(np.arange(CLAIMS), QUESTIONS),
            "channel": rng.choice(["one", "two"], rows),
            "hedging": rng.gamma(2.0, 10.0, rows).round(2),
        }
    )
    return claims, sources


def simulated() -> tuple[Truth, nous.Evidence, dict[str, Any]]:
    """A simulation from the model with the parameters above, the rest from their priors, all settled."""
    claims, sources = design()
    wide = claims.merge(sources, on="source")
    given: dict[str, Any] = dict(GIVEN)
    rng = np.random.default_rng(1)
    for part in ("reliability", "freshness"):
        name = f"{part}_hedging|source"
        given[name] = rng.normal(0, GIVEN[name + "_sigma"], SOURCES)
    given["reliability_1|attribute:source"] = rng.normal(0, 0.7, 2 * SOURCES)
    truth, drawn = MODEL.simulate(wide, seed=3, parameters=given)
    values = drawn.claims[["entity", "attribute", "source", "time", "channel", "hedging", "value"]]
    return truth, nous.Evidence(values, settled=truth.settled, sources=sources), given


@pytest.fixture(scope="module")
def world() -> tuple[Truth, nous.Evidence, dict[str, Any]]:
    return simulated()


@pytest.mark.slow
def test_every_term_comes_out_as_it_went_in(world: tuple[Truth, nous.Evidence, dict[str, Any]]) -> None:
    truth, evidence, _ = world
    trust = MODEL.fit(evidence, nous.SVI(steps=2500, draws=400), seed=0, learn_from="settled")
    draws, true = trust.asked(), truth.parameters
    for name in ("reliability_hedging", "reliability_size", "freshness_hedging", "freshness_size"):
        assert abs(draws[name].mean() - true[name]) < 4.0 * draws[name].std() + 0.1, name
        assert abs(draws[name].mean()) > 1.5 * draws[name].std(), name
    found = {name: value.mean(0) for name, value in draws.items()}
    for name, least in {"reliability_hedging|source": 0.6, "freshness_hedging|source": 0.6}.items():
        assert np.corrcoef(found[name], true[name])[0, 1] > least, name
    apart = [np.subtract(*values["reliability_1|attribute:source"].reshape(2, SOURCES)) for values in (found, true)]
    # How good a source is in one attribute more than in the other, which its own effect says nothing about.
    assert np.corrcoef(*apart)[0, 1] > 0.6


@pytest.fixture(scope="module")
def short(world: tuple[Truth, nous.Evidence, dict[str, Any]]) -> nous.Trust:
    return MODEL.fit(world[1], nous.SVI(steps=100, draws=20, full_size=10), seed=0, learn_from="settled")


def test_group_effects_are_shown_by_label(short: nous.Trust) -> None:
    groups = short.groups.set_index(["part", "term", "level"])
    for part in ("reliability", "freshness"):
        for term, level in (
            ("hedging|source", "s03"),
            ("1|source", "s23"),
            ("1|kind", "paper"),
            ("1|kind:channel", "site:two"),
            ("1|kind", "sd"),
        ):
            assert np.isfinite(groups.loc[(part, term, level)].astype(float)).all(), (part, term, level)
    assert ("reliability", "1|attribute:source", "colour:s05") in groups.index
    effects = short.groups[(short.groups["term"] == "1|attribute:source") & (short.groups["level"] != "sd")]
    assert len(effects) == 2 * SOURCES


def test_partial_pooling_is_drawn_by_arviz_with_labels(short: nous.Trust) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")

    if int(arviz.__version__.partition(".")[0]) >= 1:
        pytest.skip("the forest plot of arviz 1.x has another interface")
    try:
        axes = arviz.plot_forest(short.idata, var_names=["reliability_1|kind", "reliability_hedging|source"])
        labels = [label.get_text() for label in axes[0].get_yticklabels()]
    finally:
        plt.close("all")
    assert any("paper" in label for label in labels) and any("s07" in label for label in labels)


def test_new_claims_are_read_on_the_scale_of_the_fit(short: nous.Trust) -> None:
    """Two questions asked alone must get what they get among all others, though their own mean and spread differ."""
    claims, sources = design()
    claims = claims.assign(value="answer 00001")
    everything = nous.Evidence(claims, sources=sources)
    some = claims[claims["entity"].isin(["e001", "e002"])]
    one = short.posteriors(nous.Evidence(some, sources=sources)).frame
    all_ = short.posteriors(everything).frame
    both = all_[all_["entity"].isin(["e001", "e002"])]
    np.testing.assert_allclose(one["probability"], both["probability"], atol=2e-6)
    assert short.blueprint.encodings["reliability"].scales["hedging"] == pytest.approx(
        (claims["hedging"].mean(), claims["hedging"].std(ddof=0))
    )
