"""Calibration by simulation of the package's own fits, and wrong fits that it rejects.

All of it together raises a false alarm with a chance of at most `RATE`; `tests/benchmarks/sbc.py` is the long run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sbc_cases import ANSWERS, FULL, PLAIN, biased, design

import nousppl as nous
from nousppl import ranked, simulation_calibration
from nousppl.inference import many
from nousppl.simulated_sets import Sets, compile_sets, draw_sets
from nousppl.simulation_calibration import SimulationBasedCalibration

RATE = 1e-3
"""Of false alarms in a run of this file; each of the two checks that have to pass may take half of it."""
FITS = 128


@pytest.fixture(scope="module")
def sets() -> Sets:
    return draw_sets(PLAIN, PLAIN, design(), FITS, 1, 0.5, "all")


def calibrate(sets: Sets, method: nous.SVI | nous.NUTS) -> SimulationBasedCalibration:
    draws, record = simulation_calibration.sample(sets, method, many.AT_ONCE)
    return simulation_calibration.evaluate(sets, draws, 1, 2, record)


@pytest.fixture(scope="module")
def default(sets: Sets) -> SimulationBasedCalibration:
    return calibrate(sets, nous.SVI())


# ------------------------------------------------------------------------------------------- pass, and what must fail


def test_svi_with_the_default_guide_is_calibrated(default: SimulationBasedCalibration) -> None:
    check = default.check(RATE / 2)
    assert check.passed, repr(check)
    assert default.record["settled fits"] == 1.0
    assert set(default.ranks) == {
        "reliability_Intercept",
        "reliability_1|source_sigma",
        "reliability_1|source[s0]",
        "reliability_1|source[s7]",
        ranked.LIKELIHOOD,
        ranked.DENSITY,
        ranked.SCORE,
        ranked.RIGHT,
    }


@pytest.mark.long
def test_nuts_is_calibrated(sets: Sets) -> None:
    few = compile_sets(PLAIN, sets.truths[:64], sets.evidences[:64], sets.seeds[:64], "all")
    options = nous.NUTS(num_warmup=200, num_samples=400, num_chains=1, kernel={"target_accept_prob": 0.9})
    check = calibrate(few, options).check(RATE / 2)
    assert check.passed, repr(check)


def test_the_mean_field_guide_is_rejected() -> None:
    """Three sources that are known well: their common level and their effects make up for each other."""
    known = draw_sets(PLAIN, PLAIN, design(sources=3), 96, 3, 1.0, "all")
    check = calibrate(known, nous.SVI(guide="mean_field", weighed=0)).check(RATE)
    assert "too narrow" in check.failures["reliability_Intercept"]


def test_a_biased_likelihood_is_rejected(sets: Sets) -> None:
    few = compile_sets(PLAIN, sets.truths[:64], sets.evidences[:64], sets.seeds[:64], "all")
    check = calibrate(biased(few), nous.SVI(steps=800)).check(RATE)
    assert "draws lie too low" in check.failures["reliability_Intercept"]
    assert "not calibrated" in repr(check)


@pytest.mark.long
def test_a_forgotten_origin_is_rejected() -> None:
    """Sources echo each other, and the fit takes every claim for a witness."""
    found = nous.simulation_based_calibration(FULL, design(), fits=FITS, seed=2, fitted=PLAIN)
    check = found.check(RATE)
    assert not check.passed
    assert ranked.SCORE in check.failures
    # What only one of the two models has is not ranked.
    assert "reliability_1|source_sigma" in found.ranks and "origin_same_source" not in found.ranks


# -------------------------------------------------------------------------------------------- the package's own fits


def test_a_fit_among_many_is_the_fit_alone(sets: Sets) -> None:
    options = nous.SVI(steps=600, draws=50)
    few = compile_sets(PLAIN, sets.truths[:3], sets.evidences[:3], sets.seeds[:3], "all")
    # Two lanes for three fits: the third one takes the lane of another.
    side_by_side = many.svi(few.plan, few.fit, options, few.seeds, at_once=2)
    alone = PLAIN.fit(few.evidences[2], options, few.seeds[2], learn_from="all")
    np.testing.assert_allclose(side_by_side[2].stats["loss"], alone.sample_stats["loss"], rtol=1e-4)
    effects = ranked.natural(few, {name: side_by_side[2].draws[name] for name in few.plan.raw_names})
    for name, value in alone.posterior_draws.items():
        # Draws are taken by importance: rounding may tip which of two neighbours one is.
        assert np.isclose(effects[name][0], value[0], rtol=5e-3, atol=5e-3).mean() >= 0.9
    own = PLAIN.fit(few.evidences[1], options, few.seeds[1], learn_from="all").posterior_draws[name]
    assert np.isclose(effects[name][0], own[0], rtol=5e-3, atol=5e-3).mean() < 0.5


@pytest.mark.long
def test_a_chain_among_many_is_the_chain_alone() -> None:
    """Thinned, every so many draws of it."""
    model = nous.TrustModel("1", origin=None, errors=PLAIN.errors, answers=ANSWERS)
    few = draw_sets(model, model, design(12, 4, 3), 2, 5, 0.5, "all")
    options = nous.NUTS(num_warmup=6, num_samples=8, num_chains=2)
    found, _ = many.nuts(few.plan, few.fit, options, few.seeds, thin=4)
    alone = model.fit(few.evidences[1], options, few.seeds[1], learn_from="all")
    for name, value in alone.posterior_draws.items():
        np.testing.assert_allclose(found[name][1], value[:, 3::4], rtol=1e-3, atol=1e-3)


# ------------------------------------------------------------------------------------------------- tables and words


def made(ranks: dict[str, Any], levels: int = 100, kinds: dict[str, str] | None = None) -> SimulationBasedCalibration:
    table = pd.DataFrame(ranks)
    kinds = kinds or dict.fromkeys(ranks, ranked.PARAMETER)
    return SimulationBasedCalibration(table, levels, kinds, pd.DataFrame(columns=list(ranked.Asked._fields)), {})


def test_even_ranks_are_covered_as_they_should_be() -> None:
    found = made({"x": np.arange(100)}).coverage()
    np.testing.assert_allclose(found.loc["x", [0.5, 0.8, 0.9, 0.95]].astype(float), [0.5, 0.8, 0.9, 0.95], atol=1e-12)
    assert found.loc["x", "mean rank"] == pytest.approx(0.5) and found.loc["x", "n"] == 100


def test_the_words_say_what_is_wrong() -> None:
    even = np.tile(np.arange(100), 3)
    check = made(
        {
            "fine": even,
            "low": np.minimum(even + 20, 99),
            "high": even // 2,
            "narrow": np.where(even < 50, even // 3, 99 - (99 - even) // 3),
            "wide": 25 + even // 2,
        }
    ).check()
    said = check.failures
    assert set(said) == {"low", "high", "narrow", "wide"}
    assert "lie too low" in said["low"] and "lie too high" in said["high"]
    assert "too narrow" in said["narrow"] and "too wide" in said["wide"]
    assert not check and "low: draws lie too low" in repr(check)
    assert "calibrated as far as 300 fits show" in repr(made({"fine": even}).check())


def test_many_quantities_share_one_rate() -> None:
    ranks = np.minimum(np.arange(100) + 12, 99)
    alone = made({"x": ranks}).check().table.loc["x"]
    among = made({"x": ranks} | {f"y{i}": np.arange(100) for i in range(9)}).check().table.loc["x"]
    assert among["adjusted"] == pytest.approx(min(1.0, 10 * alone["p"])) and alone["adjusted"] == alone["p"]


def test_ranks_among_equals_are_drawn() -> None:
    quantity = ranked.Quantity(ranked.TRUTH, np.zeros(4000), np.zeros((4000, 3)))
    counts = np.bincount(ranked.rank(quantity, np.random.default_rng(0)), minlength=4)
    assert (np.abs(counts - 1000) < 150).all()


def test_beliefs_are_compared_with_what_came_true(default: SimulationBasedCalibration) -> None:
    table = default.truths()
    assert table["n"].sum() == FITS * 20
    assert (np.abs(table["right"] - table["believed"]) < 5 * table["error"] + 0.01).all()


def test_ranks_go_to_arviz_as_simuk_has_them(default: SimulationBasedCalibration) -> None:
    values = default.to_arviz()["prior_sbc"]["reliability_Intercept"]
    assert values.dims == ("chain", "draw") and values.shape == (1, FITS)
    assert 0.0 < float(values.min()) < float(values.max()) < 1.0


def test_the_picture_shows_each_quantity_and_paints_what_leaves_the_band() -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    with mpl.rc_context(), mpl.rc_context({"backend": "agg"}):
        figure = made({"good": np.arange(100), "bad": np.arange(100) // 2}).plot(columns=2)
        good, bad = figure.axes
        assert good.get_title() == "good" and good.lines[0].get_color() != bad.lines[0].get_color()
        plt.close(figure)


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"fits": 1}, nous.InferenceError, "fits=1: calibration needs at least 2"),
        ({"learn_from": "cut"}, nous.InferenceError, "a cut|cut' has no joint density"),
        ({"settled": 1.5}, nous.ModelError, "settled=1.5: the share of questions"),
        ({"method": nous.SVI(steps=100, draws=6)}, nous.InferenceError, "6 draws of a fit are too few"),
        ({"method": "vi"}, nous.InferenceError, "method='vi': allowed are"),
    ],
)
def test_bad_input_is_told(given: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        nous.simulation_based_calibration(PLAIN, design(6, 3, 2), **({"fits": 2} | given))


def test_a_rate_outside_of_0_to_1_is_told() -> None:
    with pytest.raises(nous.InferenceError, match="alpha=2: the rate of false alarms"):
        made({"x": np.arange(10)}).check(alpha=2)
