"""Brute force, the marginal on jax and on torch, and the readable program on numpyro and on pyro say the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from random_evidence import features_of, random_case
from test_three_ways import case, grid_of, joint_by_witness, posterior_of, written

import nousppl as nous
from nousppl.asking import ready
from nousppl.compile import compile_problem
from nousppl.densify import Written
from nousppl.inference import enumeration
from nousppl.inference.backend import JAX
from nousppl.models import one_of, program
from nousppl.models.reference import Grid
from nousppl.trust import Trust

torch = pytest.importorskip("torch", reason="torch is not installed: there is no second backend to compare with")
pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend to compare with")

from nousppl.inference import torch_enumeration  # noqa: E402
from nousppl.inference.torch_backend import Torch  # noqa: E402

MODELS = (168, 189, 195, 257)
SMALL: dict[str, Any] = {"questions": 4, "claims": 3, "named": 3, "K": 4, "correlation": False, "lineage": False}
SINGLE, DOUBLE = 1e-5, 1e-10
Joint = Callable[[Written, witness.Grid], NDArray[np.float64]]


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few nodes for the difficulty; and sources that met in few questions are pairs."""
    monkeypatch.setattr("nousppl.affinity.MET", 3)
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda claims, smooth=True: 9)


def joint(ways: Any, one: Written, grid: witness.Grid, **kwargs: Any) -> NDArray[np.float64]:
    """(K,) P(z, x) by the readable program."""
    given = (one.question, one.values, Grid(np.array([d for d, _ in grid]), np.array([w for _, w in grid])))
    evidence, posterior = ways.log_evidence(*given, **kwargs), ways.posterior(*given, **kwargs)
    return np.asarray(posterior, np.float64) * np.exp(float(evidence))


def by_sums(evidence: nous.Evidence, trust: Trust, of_one: Joint) -> NDArray[np.float64]:
    """Posterior of all cells, question after question."""
    out: list[float] = []
    for index in range(len(evidence.questions)):
        grid = grid_of(trust, evidence, index)
        out += posterior_of(written(trust, evidence, index), partial(lambda g, one: of_one(one, g), grid)).values()
    return np.array(out)


def by_marginal(evidence: nous.Evidence, trust: Trust, xp: Any) -> NDArray[np.float64]:
    """The same by the marginal."""
    encoded = trust.encoded(evidence)
    problem = compile_problem(encoded, np.arange(len(evidence.questions)), trust.model.order_seed)
    layout, size = problem.layout, len(problem.claims)
    data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), size)
    first = {name: np.asarray(value)[0] for name, value in draws.items()}

    def joint(data: dict[str, Any], draw: dict[str, Any]) -> Any:
        plan = program.Plan((), (), trust.blueprint.plan.features)
        theta = program.constants(xp, plan, draw, data.get("text_grid"))
        theta |= {name: draw[name] for name in program.PARTS.values() if name in draw}
        return program.truth_logs(xp, layout, data, theta, *one_of.likelihood(xp, layout, data, theta))

    logs = (jax.jit(joint) if xp is JAX else joint)(xp.arrays(data), xp.arrays(first))
    p = np.exp(np.asarray(logs, np.float64))
    return p / np.bincount(problem.data["cell_question"], p)[problem.data["cell_question"]]


def test_the_models_have_every_feature_on_and_off() -> None:
    flags = pd.DataFrame([features_of(*random_case(seed, **SMALL)) for seed in MODELS])
    flags = flags.drop(columns=["lineage", "correlation"])  # no claims' program has them
    assert flags.columns[flags.all() | ~flags.any()].to_list() == []


@pytest.mark.parametrize("seed", MODELS)
def test_five_ways_agree(seed: int) -> None:
    evidence, trust = case(seed, **SMALL)
    with jax.enable_x64(True):
        expected = by_sums(evidence, trust, joint_by_witness)
        single = by_sums(evidence, trust, partial(joint, torch_enumeration))
        ways = {
            "marginal, jax": by_marginal(evidence, trust, JAX),
            "marginal, torch": by_marginal(evidence, trust, Torch(torch.float64)),
            "program, numpyro": by_sums(evidence, trust, partial(joint, enumeration)),
            "program, pyro": by_sums(evidence, trust, partial(joint, torch_enumeration, dtype=torch.float64)),
        }
    for way, found in ways.items():
        np.testing.assert_allclose(found, expected, rtol=0, atol=DOUBLE, err_msg=way)
    np.testing.assert_allclose(single, expected, rtol=0, atol=SINGLE)
