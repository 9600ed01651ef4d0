"""The model written once computes the same on jax and on torch: beliefs, densities and gradients, every feature on and
off."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from random_evidence import features_of, random_case
from test_three_ways import BROKEN, CONTROL

from nousppl import fitting
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference import packed
from nousppl.inference.backend import JAX
from nousppl.models import namespace, one_of, program
from nousppl.models.layout import Layout
from nousppl.models.on_numpy import Numpy
from nousppl.models.program import Plan

torch = pytest.importorskip("torch", reason="torch is not installed: there is no second backend to compare with")
pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to compare with")

from nousppl.inference.torch_backend import Torch  # noqa: E402

# Models as tests/test_three_ways.py draws them: few, since compiling takes the time, chosen so that each
# feature is on in one at least and off in one.
MODELS, EACH = (101, 153, 172, 237, 244), 8
SINGLE, DOUBLE = 1e-5, 1e-10


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty; and sources that met in few questions are pairs."""
    monkeypatch.setattr("nousppl.affinity.MET", 3)
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 9)


class Case:
    """A model and all its claims, compiled as for a fit, and a point of its parameters."""

    def __init__(self, seed: int, questions: int = EACH, pad: bool = False, **given: Any) -> None:
        evidence, model = random_case(seed, questions=questions, **given)
        blueprint = draw_up(model, evidence)
        encoded = blueprint.encode(evidence)
        problems = [compile_problem(encoded, np.arange(len(evidence.questions)), seed)]
        blueprint = fitting.with_text_grid(blueprint, problems)
        mould = fitting.Mould() if pad else None
        self.layout, shared, stacked = fitting.batched(blueprint, encoded, problems, mould)
        self.plan: Plan = blueprint.plan
        self.data: dict[str, NDArray[Any]] = {**shared, **{name: value[0] for name, value in stacked.items()}}
        self.pack = packed.packing(self.plan, 20)
        self.vector = np.random.default_rng(seed).normal(0.0, 0.7, self.pack.size)

    def at(self, point: Any, xp: Any, data: dict[str, Any]) -> dict[str, Any]:
        """Parameters of the likelihood."""
        values, _ = packed.OneByOne(xp, self.plan, self.pack).values(point)
        for site in self.plan.sites:
            if site.scale is not None:
                values[site.name] = values[site.scale] * values[site.name]
        return program.parameters(xp, self.plan, self.layout, data, values)


def marginals(xp: Any, layout: Layout, data: dict[str, Any], theta: dict[str, Any]) -> tuple[Any, Any]:
    by_cell, originality = one_of.likelihood(xp, layout, data, theta)
    return by_cell, program.truth_logs(xp, layout, data, theta, by_cell, originality)


def on_jax(case: Case) -> list[NDArray[np.float64]]:
    """Log likelihood and log joint by cell, log density, and its gradient."""
    data = {name: jnp.asarray(value) for name, value in case.data.items()}
    density = packed.log_density(JAX, case.plan, case.layout, case.pack)

    def everything(point: Any, data: dict[str, Any]) -> Any:
        cells = marginals(JAX, case.layout, data, case.at(point, JAX, data))
        return cells, jax.value_and_grad(density)(point, data)

    point = jnp.asarray(case.vector)
    # Compiling takes nearly all the time, and half of it is spent on speed that one evaluation does not need.
    quick = jax.jit(everything).lower(point, data).compile({"xla_backend_optimization_level": 0})
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(quick(point, data))]


def on_torch(case: Case, dtype: Any) -> list[NDArray[np.float64]]:
    xp = Torch(dtype)
    data, point = xp.arrays(case.data), xp.array(case.vector).requires_grad_()
    cells = marginals(xp, case.layout, data, case.at(point, xp, data))
    density = packed.log_density(xp, case.plan, case.layout, case.pack)(point, data)
    (gradient,) = torch.autograd.grad(density, point)
    return [leaf.detach().numpy().astype(np.float64) for leaf in (*cells, density, gradient)]


def apart(ours: list[NDArray[np.float64]], theirs: list[NDArray[np.float64]]) -> float:
    """The largest difference of what `on_jax` and `on_torch` give: relative ones of the log densities, and of the
    gradient in units of 1 + its largest element."""
    out = []
    for one, two in zip(ours[:3], theirs[:3], strict=True):
        fine = np.isfinite(one)
        if not np.array_equal(fine, np.isfinite(two)):
            return np.inf
        out.append(float((np.abs(one[fine] - two[fine]) / (1.0 + np.abs(one[fine]))).max()))
    assert np.isfinite(ours[3]).all()
    return float(np.max([*out, np.abs(ours[3] - theirs[3]).max() / (1.0 + np.abs(ours[3]).max())]))


def test_the_models_have_every_feature_on_and_off() -> None:
    flags = pd.DataFrame([features_of(*random_case(seed, questions=EACH)) for seed in MODELS])
    flags = flags.drop(columns=["change", "truths at times"])  # below, by itself
    assert flags.sum().between(1, len(MODELS) - 1).all()


@pytest.mark.parametrize(("seed", "given"), [*((seed, {}) for seed in MODELS), (516, {"change": True})])
def test_the_backends_agree(seed: int, given: dict[str, bool]) -> None:
    case = Case(seed, **given)
    with jax.enable_x64(True):
        exact = on_jax(case)
    assert apart(exact, on_torch(case, torch.float64)) < DOUBLE
    assert apart(exact, on_torch(case, torch.float32)) < SINGLE


@pytest.mark.long
@pytest.mark.parametrize("seed", [172])
def test_the_backends_agree_in_single_precision(seed: int) -> None:
    case = Case(seed)
    assert apart(on_jax(case), on_torch(case, torch.float32)) < SINGLE


@cache
def control() -> tuple[Case, list[NDArray[np.float64]]]:
    """Questions with most features on, and what jax makes of them."""
    case = Case(2, 12, claims=5, named=3, K=6, **CONTROL)
    with jax.enable_x64(True):
        return case, on_jax(case)


def test_the_control_case_agrees() -> None:
    case, exact = control()
    assert apart(exact, on_torch(case, torch.float64)) < DOUBLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_one_side_breaks_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, exact = control()
    monkeypatch.setattr(*BROKEN[rule])
    assert apart(exact, on_torch(case, torch.float64)) > 10 * SINGLE


@pytest.mark.parametrize("seed", [*MODELS, *range(60, 72)])
def test_padding_changes_nothing_on_torch(seed: int) -> None:
    bare, padded = Case(seed), Case(seed, pad=True)
    assert padded.layout.slots > bare.layout.slots and padded.layout.questions > bare.layout.questions
    one, two = on_torch(bare, torch.float64), on_torch(padded, torch.float64)
    np.testing.assert_allclose(one[0], two[0][: len(one[0])], rtol=1e-12, atol=1e-12)
    assert one[2] == pytest.approx(two[2], rel=1e-12)
    np.testing.assert_allclose(one[3], two[3], rtol=1e-9, atol=1e-9)


def test_padded_soft_claims_have_a_gradient_on_jax() -> None:
    case = Case(65, pad=True)
    assert case.layout.soft
    assert apart(on_jax(case), on_torch(case, torch.float32)) < SINGLE


def test_the_namespaces_have_the_methods_of_the_protocol() -> None:
    both = vars(namespace.Arithmetic) | vars(namespace.Namespace)
    wanted = {n: f for n, f in both.items() if inspect.isfunction(f) and not n.startswith("_")}
    assert len(wanted) > 25 and len(vars(namespace.Arithmetic)) > 10
    for name, function in wanted.items():
        names = list(inspect.signature(function).parameters)[1:]
        defaults = [p.default for p in inspect.signature(function).parameters.values()][1:]
        for backend in (JAX, Torch(), *([Numpy()] if name in vars(namespace.Arithmetic) else [])):
            found = inspect.signature(getattr(backend, name)).parameters
            assert list(found) == names, f"{type(backend).__name__}.{name}"
            assert [p.default for p in found.values()] == defaults, f"{type(backend).__name__}.{name}"
