"""Claims with the same design are laid out once, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from test_mixed_shapes import CLAIMS, MODEL

import nousppl as nous
from nousppl import alike, fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference.backend import JAX
from nousppl.inference.packed import log_density, packing
from nousppl.models.layout import Layout
from nousppl.models.program import Plan

SOURCES, QUESTIONS, SAID = 5, 24, 6
LISTED = ["a", "b", "c"]
LONG = "1 + long + attribute + (1 + long | source)"


def claims(seed: int = 3) -> pd.DataFrame:
    """Claims of five sources, long ones or short ones."""
    rng = np.random.default_rng(seed)
    question = np.repeat(np.arange(QUESTIONS), SAID)
    return pd.DataFrame(
        {
            "entity": question,
            "attribute": np.where(question % 2, "colour", "shape"),
            "value": rng.choice(["a", "b", "c"], len(question)),
            "source": rng.integers(0, SOURCES, len(question)),
            "site": rng.integers(0, 3, len(question)),
            "time": rng.permutation(len(question)).astype(float),
            "long": rng.choice([0.0, 1.0], len(question)),
        }
    )


MODELS: dict[str, Callable[[], nous.TrustModel]] = {
    "reliability": lambda: nous.TrustModel(LONG, origin=None),
    "freshness": lambda: nous.TrustModel("1 + (1|source)", LONG),
    "popularity": lambda: nous.TrustModel(errors=nous.Errors(popularity="1 + long")),
    "bias": lambda: nous.TrustModel(
        "1 + (1|source)", errors=nous.Errors(bias="source"), answers={"colour": LISTED, "shape": LISTED}
    ),
    "change": lambda: nous.TrustModel("1 + long", change="1"),
}


def compiled(model: nous.TrustModel, evidence: nous.Evidence, parts: int) -> tuple[Plan, Layout, list[Any]]:
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    questions = np.arange(encoded.parts.questions)
    problems = [compile_problem(encoded, part) for part in np.array_split(questions, parts)]
    layout, shared, stacked = fitting.batched(blueprint, encoded, problems)
    whole = [shared | {name: value[i] for name, value in stacked.items()} for i in range(parts)]
    return blueprint.plan, layout, whole


def density(plan: Plan, layout: Layout, data: dict[str, Any]) -> tuple[float, np.ndarray]:
    pack = packing(plan, 0)
    point = jnp.asarray(np.random.default_rng(0).normal(0.0, 0.3, pack.size))
    value, gradient = jax.jit(jax.value_and_grad(log_density(JAX, plan, layout, pack)))(point, JAX.arrays(data))
    return float(value), np.asarray(gradient)


def agree(model: nous.TrustModel, evidence: nous.Evidence, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, layout, merged = compiled(model, evidence, parts)
    monkeypatch.setattr(alike, "WORTH", np.inf)
    same, longer, single = compiled(model, evidence, parts)
    assert plan.key == same.key
    for few, many in zip(merged, single, strict=True):
        assert len(few["claim_zero"]) * 2 <= len(many["claim_zero"])
        (value, gradient), (other, slope) = density(plan, layout, few), density(plan, longer, many)
        np.testing.assert_allclose(value, other, rtol=1e-6)
        np.testing.assert_allclose(gradient, slope, atol=1e-5 * (1.0 + np.abs(slope).max()))


@pytest.mark.parametrize(("name", "parts"), [("reliability", 2), *((name, 1) for name in MODELS)])
def test_the_density_is_that_of_all_claims_by_themselves(
    name: str, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with jax.enable_x64(True):
        agree(MODELS[name](), nous.Evidence(claims()), parts, monkeypatch)


def test_other_shapes_refer_to_their_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    with jax.enable_x64(True):
        agree(MODEL, nous.Evidence(CLAIMS), 1, monkeypatch)


def test_claims_that_differ_in_one_column_are_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is not compared gives another density."""
    evidence, model = nous.Evidence(claims()), MODELS["reliability"]()
    plan, layout, right = compiled(model, evidence, 1)
    known = alike.alike
    fixed = "reliability fixed"

    def careless(problems: list[alike.Arrays]) -> list[alike.Alike] | None:
        return known([data | {fixed: 0.0 * data[fixed]} for data in problems])

    monkeypatch.setattr(fitting, "alike", careless)
    _, shorter, wrong = compiled(model, evidence, 1)
    value, other = density(plan, layout, right[0])[0], density(plan, shorter, wrong[0])[0]
    assert len(wrong[0]["claim_zero"]) < len(right[0]["claim_zero"])
    assert abs(value - other) > 0.05


def test_kinds_are_as_many_as_designs_and_claims_without_a_double_stay() -> None:
    data = {
        "claim_zero": np.zeros(6),
        "reliability index": np.array([[0, 1, 0, 1, 2, 2]]),
        "change fixed": np.ones((1, 9)),
    }
    (found,) = alike.alike([data]) or [None]
    assert found is not None
    np.testing.assert_array_equal(found.kind, [0, 1, 0, 1, 2, 2])
    np.testing.assert_array_equal(found.first, [0, 1, 4])
    few = alike.merged(data | {"slot_claim": np.array([5, 0, 3])}, found)
    np.testing.assert_array_equal(few["slot_claim"], [2, 0, 1])
    np.testing.assert_array_equal(few["reliability index"], [[0, 1, 2]])
    assert few["change fixed"].shape == (1, 9)
    assert alike.alike([data | {"reliability fixed": np.arange(6.0)[None]}]) is None


def test_a_fit_is_the_same_but_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, model = nous.Evidence(claims()), MODELS["reliability"]()
    method = nous.SVI(steps=200, draws=50, weighed=0)
    one = model.fit(evidence, method, learn_from="all")
    monkeypatch.setattr(alike, "WORTH", np.inf)
    two = model.fit(evidence, method, learn_from="all")
    for name, draws in one.posterior_draws.items():
        np.testing.assert_allclose(draws, two.posterior_draws[name], atol=1e-3)
