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
from test_three_ways import case, grid_of, joint_by_witness, written

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
    """log P(z, x) of all cells, question after question: orders averaged, the unnamed answers together."""
    out: list[float] = []
    for index in range(len(evidence.questions)):
        grid, orders = grid_of(trust, evidence, index), written(trust, evidence, index)
        total = sum((of_one(one, grid) for one in orders), np.zeros(len(orders[0].answers))) / len(orders)
        unnamed = np.array([str(answer).startswith("other ") for answer in orders[0].answers])
        out += [*total[~unnamed], *([total[unnamed].sum()] if unnamed.any() else [])]
    with np.errstate(divide="ignore"):
        return np.log(out)


def by_marginal(evidence: nous.Evidence, trust: Trust, xp: Any) -> NDArray[np.float64]:
    """The same by the marginal."""
    encoded = trust.encoded(evidence)
    problem = compile_problem(encoded, np.arange(len(evidence.questions)), trust.model.order_seed)
    layout, size = problem.layout, len(problem.claims)
    data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), size)
    first = {name: np.asarray(value)[0] for name, value in draws.items()}

    def logs(data: dict[str, Any], draw: dict[str, Any]) -> Any:
        plan = program.Plan((), (), trust.blueprint.plan.features)
        theta = program.constants(xp, plan, draw, data.get("text_grid"))
        theta |= {name: draw[name] for name in (*program.PARTS.values(), "listed") if name in draw}
        return program.truth_logs(xp, layout, data, theta, *one_of.likelihood(xp, layout, data, theta))

    return np.asarray((jax.jit(logs) if xp is JAX else logs)(xp.arrays(data), xp.arrays(first)), np.float64)


def apart(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Largest relative difference of a log density; what is impossible for the one is so for the other."""
    possible = np.isfinite(expected)
    assert (found[~possible] < -1e20).all()
    found, expected = found[possible], expected[possible]
    return float((np.abs(found - expected) / (1.0 + np.abs(expected))).max())


def test_the_models_have_every_feature_on_and_off() -> None:
    flags = pd.DataFrame([features_of(*random_case(seed, **SMALL)) for seed in MODELS])
    # No claims' program has the first two; denials, what passes and truths that change have tests of their own.
    apart = ["lineage", "correlation", "denials", "denied since", "lasting", "change", "truths at times"]
    flags = flags.drop(columns=apart)
    assert flags.columns[flags.all() | ~flags.any()].to_list() == []


@pytest.mark.parametrize("seed", MODELS)
def test_five_ways_agree(seed: int) -> None:
    evidence, trust = case(seed, **SMALL)
    with jax.enable_x64(True):
        brute = by_sums(evidence, trust, joint_by_witness)
        ways = {
            "marginal, jax": by_marginal(evidence, trust, JAX),
            "marginal, torch": by_marginal(evidence, trust, Torch(torch.float64)),
            "program, numpyro": by_sums(evidence, trust, partial(joint, enumeration)),
            "program, pyro": by_sums(evidence, trust, partial(joint, torch_enumeration, dtype=torch.float64)),
        }
        single = by_sums(evidence, trust, partial(joint, torch_enumeration))
    assert {way: apart(found, brute) < DOUBLE for way, found in ways.items()} == dict.fromkeys(ways, True)
    assert apart(single, brute) < SINGLE
