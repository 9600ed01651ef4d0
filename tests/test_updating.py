"""Fits that go on from where an earlier one ended, and fits in two stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nousppl as nous
from nousppl.trust import Trust

WORLD = nous.datasets.world(400, sources=30)
MODEL = nous.TrustModel("1 + (1|kind) + (1|source)", "1 + (1|source)", nous.Origin(), answers=WORLD.answers)
LESS = WORLD.learn.iloc[: len(WORLD.learn) * 4 // 5]


@pytest.fixture(scope="module")
def evidence() -> nous.Evidence:
    return nous.Evidence(WORLD.claims)


@pytest.fixture(scope="module")
def earlier(evidence: nous.Evidence) -> Trust:
    return MODEL.fit(evidence.with_settled(LESS), seed=0)


@pytest.fixture(scope="module")
def fresh(evidence: nous.Evidence) -> Trust:
    return MODEL.fit(evidence.with_settled(WORLD.learn), seed=0)


def steps(trust: Trust) -> int:
    return len(trust.sample_stats["loss"])


def apart(one: Trust, other: Trust) -> float:
    """Mean distance of the sources' reliabilities in posterior standard deviations."""
    name = "reliability_1|source"
    a, b = one.flat[name], other.flat[name]
    return float(np.abs((a.mean(0) - b.mean(0)) / b.std(0)).mean())


@pytest.mark.slow
def test_an_update_ends_where_a_fresh_fit_ends_in_fewer_steps(
    evidence: nous.Evidence, earlier: Trust, fresh: Trust
) -> None:
    updated = earlier.update(evidence.with_settled(WORLD.learn))
    assert updated.record["settled"] == len(WORLD.learn) > len(LESS) == earlier.record["settled"]
    assert steps(updated) <= 0.6 * steps(fresh)
    again = MODEL.fit(evidence.with_settled(WORLD.learn), seed=1)
    # As near as another seed ends, and nearer than what the new facts moved.
    assert apart(updated, fresh) < max(1.5 * apart(again, fresh), 0.15)
    assert updated.sample_stats["loss"][-100:].mean() < fresh.sample_stats["loss"][-100:].mean() + 2.0


@pytest.mark.slow
def test_an_update_knows_new_sources_and_a_trust_from_a_file(
    evidence: nous.Evidence, earlier: Trust, tmp_path: Path
) -> None:
    earlier.save(tmp_path / "t.nc")
    loaded = nous.load(tmp_path / "t.nc")
    new = WORLD.claims.iloc[:60].assign(source="newcomer", claim=[f"new {i}" for i in range(60)])
    grown = nous.Evidence(pd.concat([WORLD.claims, new]), settled=WORLD.learn)
    few = nous.SVI(steps=200, draws=50)
    updated, direct = loaded.update(grown, few), earlier.update(grown, few)
    assert "newcomer" in updated.sources.index and "newcomer" not in earlier.sources.index
    for name, draws in direct.flat.items():
        np.testing.assert_array_equal(updated.flat[name], draws)


@pytest.mark.long
def test_an_update_with_new_sources_ends_where_a_fresh_fit_ends(evidence: nous.Evidence, earlier: Trust) -> None:
    new = WORLD.claims.iloc[:60].assign(source="newcomer", claim=[f"new {i}" for i in range(60)])
    grown = nous.Evidence(pd.concat([WORLD.claims, new]), settled=WORLD.learn)
    updated, direct = earlier.update(grown), MODEL.fit(grown, seed=0)
    assert steps(updated) < steps(direct) and apart(updated, direct) < 0.25


def test_an_update_is_by_svi(evidence: nous.Evidence, earlier: Trust) -> None:
    with pytest.raises(nous.InferenceError, match="update goes on by SVI; fit again for draws by NUTS"):
        earlier.update(evidence.with_settled(LESS), method="nuts")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ cut


def two_coins(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """True or false questions; among the settled ones half are true, among all others one in ten."""
    rows, settled = [], []
    for q in range(600):
        truth = rng.random() < (0.5 if q < 100 else 0.1)
        settled.append((f"q{q:04d}", "x", "T" if truth else "F"))
        for s in rng.choice(12, 4, replace=False):
            right = rng.random() < 0.75
            rows.append((f"q{q:04d}", "x", f"s{s:02d}", "T" if truth == right else "F"))
    claims = pd.DataFrame(rows, columns=["entity", "attribute", "source", "value"])
    return claims, pd.DataFrame(settled, columns=["entity", "attribute", "value"])


@pytest.fixture(scope="module")
def schedules() -> dict[str, Any]:
    claims, settled = two_coins(np.random.default_rng(0))
    model = nous.TrustModel(
        origin=None, errors=nous.Errors(difficulty=False), base_rates="learned", answers={"x": ["T", "F"]}
    )
    evidence = nous.Evidence(claims, settled=settled.iloc[:100])
    method = nous.SVI(draws=1000, weighed=5000)
    out: dict[str, Any] = {
        how: model.fit(evidence, method, learn_from=how, seed=0) for how in ("settled", "cut", "all")
    }
    asked = evidence.subset(np.arange(100, 600))
    out["loss"] = {
        how: float(trust.posteriors(asked).score(settled.iloc[100:])["log_loss"]) for how, trust in out.items()
    }
    return out


def rate(trust: Trust) -> float:
    """Mean base rate of "T"."""
    logits = trust.flat["base_rates"]
    return float((1.0 / (1.0 + np.exp(logits[:, 1] - logits[:, 0]))).mean())


@pytest.mark.slow
def test_a_cut_learns_base_rates_from_all_and_sources_from_settled_facts(schedules: dict[str, Any]) -> None:
    settled, cut = schedules["settled"], schedules["cut"]
    assert rate(settled) == pytest.approx(0.5, abs=0.12)
    # 50 of the 100 settled ones and 50 of the 500 others.
    assert rate(cut) == pytest.approx(100 / 600, abs=0.05)
    for name in ("reliability_Intercept", "reliability_1|source_sigma", "reliability_1|source"):
        np.testing.assert_allclose(cut.flat[name].mean(0), settled.flat[name].mean(0), atol=0.06)
        np.testing.assert_allclose(cut.flat[name].std(0), settled.flat[name].std(0), rtol=0.25)
    assert schedules["loss"]["cut"] < schedules["loss"]["settled"] - 0.05
    assert "base rates and difficulties from all 600 questions" in cut.status
    assert cut.record["settled"] == 100


def test_a_cut_needs_something_to_learn_from_all(evidence: nous.Evidence) -> None:
    known = evidence.with_settled(LESS)
    with pytest.raises(nous.InferenceError, match="this model has neither: give base_rates='learned'"):
        MODEL.fit(known, learn_from="cut")
    with pytest.raises(nous.InferenceError, match="two stages by SVI; it has no joint density"):
        MODEL.fit(known, learn_from="cut", method="nuts")
    with pytest.raises(nous.InferenceError, match="allowed are 'settled', 'all' and 'cut'"):
        MODEL.fit(known, learn_from="none")
