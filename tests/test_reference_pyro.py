"""The readable program on pyro: exact answers, draws, rules that are taken out; and its picture, the same on both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import numpyro
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from random_questions import FEATURES, random_question
from test_reference import GRID, NODES, close, questions

import nousppl as nous
from nousppl.errors import InferenceError
from nousppl.models import reference, sites
from nousppl.models.dense import DenseQuestion

torch = pytest.importorskip("torch", reason="torch is not installed: there is no second backend")
pyro = pytest.importorskip("pyro", reason="pyro is not installed: there is no second backend")

from nousppl.inference import enumeration  # noqa: E402
from nousppl.inference import torch_enumeration as ours  # noqa: E402
from nousppl.inference.torch_backend import random_numbers  # noqa: E402

Case = tuple[DenseQuestion, NDArray[np.int64]]
SINGLE, DOUBLE = 1e-5, 1e-10


# ------------------------------------------------------------------------------------------------------ exact answers


@pytest.mark.parametrize(("n", "K", "popularity"), [(1, 2, True), (2, 4, False), (3, 3, True), (4, 2, True)])
def test_exact_answers_are_those_of_the_witness(n: int, K: int, popularity: bool) -> None:
    for question, values in questions(n, K, popularity, count=14):
        posterior = ours.posterior(question, values, GRID, torch.float64)
        assert posterior.dtype == torch.float64
        close(posterior, witness.posterior(question, values, NODES), DOUBLE)
        close(ours.origins(question, values, GRID, torch.float64), witness.origins(question, values, NODES), DOUBLE)
        evidence = math.log(witness.evidence(question, values, NODES))
        close(ours.log_evidence(question, values, GRID, torch.float64), evidence, DOUBLE)


def test_single_precision_is_good_to_five_places() -> None:
    for question, values in questions(3, 3, True, count=16):
        posterior = ours.posterior(question, values, GRID)
        assert posterior.dtype == torch.float32
        close(posterior, witness.posterior(question, values, NODES), SINGLE)
        close(ours.origins(question, values, GRID), witness.origins(question, values, NODES), SINGLE)


def with_errors_of_a_closed_list(rng: np.random.Generator, case: Case) -> Case:
    """The question with learned rows of confusion, a trap, and easy or hard."""
    question, values = case
    n, K = question.weights.shape
    confusion = rng.dirichlet(np.ones(K), (n, K)) * (1 - np.eye(K))
    more = {"confusion": confusion / confusion.sum(-1, keepdims=True), "base_rates": rng.dirichlet(np.ones(K))}
    beta = None if question.beta is None else np.exp(rng.normal(0, 1, n))
    return question._replace(**more, trap=0.3, hard=0.4, difficulty_sd=2.0, beta=beta, closed=True), values


@cache
def control() -> list[tuple[Case, list[float], float, list[list[float]]]]:
    """Questions with everything on, and what brute force makes of them: an open and a closed list each."""
    rng = np.random.default_rng(11)
    on = dict.fromkeys(FEATURES, True)
    cases = [random_question(rng, n=4, K=3, **on) for _ in range(2)]
    cases += [with_errors_of_a_closed_list(rng, case) for case in cases]
    return [
        (
            (question, values),
            witness.posterior(question, values, NODES),
            math.log(witness.evidence(question, values, NODES)),
            witness.origins(question, values, NODES),
        )
        for question, values in cases
    ]


def apart() -> float:
    """Largest difference of a probability or a log density in the control."""
    out = []
    for (question, values), posterior, evidence, origins in control():
        given = (question, values, None if question.hard is not None else GRID, torch.float64)
        out += [np.abs(np.asarray(ours.posterior(*given)) - posterior).max()]
        out += [abs(float(ours.log_evidence(*given)) - evidence)]
        out += [np.abs(np.asarray(ours.origins(*given)) - origins).max()]
    return float(np.max(out))


def nobody_is_silent(name: str, law: Any, silent: Any, said: Any) -> Any:
    return SAY(name, law, silent & False, said)


ORIGINALITY, REPEATS, WRONG, SAY = (
    reference.originality,
    reference.repeat_laws,
    reference.wrong_answer_law,
    ours.Pyro.say,
)
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "repeats count as originals": (reference, "originality", lambda xp, alpha, *rest: alpha * 0 + 1),
    "no clip": (reference, "clip", lambda xp, law, *rest: law),
    "texts are not compared": (
        reference,
        "repeat_laws",
        lambda xp, share, rho, eps, *rest: REPEATS(xp, share, 0 * rho + 1, eps, *rest),
    ),
    "copies are perfect": (reference, "repeat_laws", lambda xp, s, rho, eps, *rest: REPEATS(xp, s, rho, 0.0)),
    "nothing is popular": (reference, "wrong_answer_law", lambda xp, n, z, beta, c=None: WRONG(xp, n, z, None, c)),
    "all wrong answers are alike": (
        reference,
        "wrong_answer_law",
        lambda xp, n, z, beta, c=None: WRONG(xp, n, z, beta),
    ),
    "questions look as they are": (reference, "draw_looks", lambda xp, question, truth: truth),
    "all questions are easy": (reference, "easy_or_hard", lambda hard: reference.Grid([0.0], [1.0])),
    "no ceiling": (ours.Pyro, "at_most", staticmethod(lambda x, bound: x)),
    "own notes that repeat nothing speak": (ours.Pyro, "say", staticmethod(nobody_is_silent)),
}


def test_the_control_agrees() -> None:
    assert apart() < DOUBLE


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*BROKEN[rule])
    assert not apart() < 10 * SINGLE


def test_what_is_rejected_stays_impossible() -> None:
    """Whatever is said for it, also in single precision: torch would raise its probability to 1e-7."""
    off = dict.fromkeys(FEATURES, False)
    question, values = random_question(np.random.default_rng(3), n=8, K=3, **off)
    question = question._replace(
        prior=np.array([0.0, 0.5, 0.5]), weights=np.eye(3)[[0] * 8], logit=np.full((8, 3), 4.0)
    )
    assert ours.posterior(question, 0 * values).tolist() == pytest.approx([0.0, 0.5, 0.5], abs=1e-6)


def test_questions_without_claims_and_with_many() -> None:
    question, values = random_question(np.random.default_rng(8), n=22, K=4, rejected=True)
    empty = question._replace(
        **{name: getattr(question, name)[:0] for name in ("weights", "logit", "ceiling", "alpha")},
        **{name: getattr(question, name)[:0, :0] for name in ("base", "strong", "rho")},
    )
    close(ours.posterior(empty, values[:0]), question.prior, 1e-6)
    assert ours.origins(empty, values[:0]).shape == (0, 1)
    logs = np.array(witness.log_marginal(question, values, witness.equispaced(81)))
    close(ours.posterior(question, values, None, torch.float64), np.exp(logs - witness.log_sum_exp(list(logs))), DOUBLE)
    with pytest.raises(InferenceError, match="at most 22 claims; this one has 23: use the marginal"):
        ours.posterior(*random_question(np.random.default_rng(9), n=23, K=2))


# ----------------------------------------------------------------------------- the difficulty, which has no grid


def hard_question() -> tuple[Case, NDArray[np.float64], NDArray[np.float64]]:
    """Two good sources that contradict each other, and the law of the difficulty on nodes by brute force."""
    features = dict.fromkeys(FEATURES, False) | dict.fromkeys(("difficulty", "popularity", "base", "copy_error"), True)
    question, _ = random_question(np.random.default_rng(6), n=2, K=4, **features)
    question, values = question._replace(logit=np.full((2, 4), 3.0), difficulty_sd=2.0), np.array([0, 1])
    nodes = np.linspace(-6.0, 6.0, 61)
    law = np.exp(-(nodes**2) / 2) * [witness.evidence(question, values, [(d, 1.0)]) for d in nodes]
    return (question, values), nodes, law / law.sum()


def test_the_density_of_the_difficulty_has_a_gradient() -> None:
    (question, values), *_ = hard_question()
    d = torch.tensor(-0.7, dtype=torch.float64, requires_grad=True)
    model = partial(pyro.poutine.condition(ours.program, {"difficulty": d}), question, values, None, torch.float64)
    density = -pyro.infer.TraceEnum_ELBO(max_plate_nesting=0).differentiable_loss(model, lambda: None)
    logs = [math.log(witness.evidence(question, values, [(-0.7 + h, 1.0)])) for h in (-1e-4, 0.0, 1e-4)]
    assert density.item() == pytest.approx(logs[1] - 0.7**2 / 2 - math.log(2 * math.pi) / 2, abs=1e-10)
    (gradient,) = torch.autograd.grad(density, d)
    assert float(gradient) == pytest.approx((logs[2] - logs[0]) / 2e-4 + 0.7, abs=1e-6)


def test_a_step_of_nuts_runs_on_the_program_of_both() -> None:
    """Draws that are finite and move; that they are right takes more of them."""
    (question, values), *_ = hard_question()
    sampler = numpyro.infer.NUTS(enumeration.program)
    on_numpyro = numpyro.infer.MCMC(sampler, num_warmup=10, num_samples=10, progress_bar=False)
    on_numpyro.run(jax.random.key(0), question, values)
    with random_numbers(0):
        on_pyro = pyro.infer.MCMC(pyro.infer.NUTS(ours.program), num_samples=4, warmup_steps=4, disable_progbar=True)
        on_pyro.run(question, values)
    for draws in (on_numpyro.get_samples()["difficulty"], on_pyro.get_samples()["difficulty"]):
        assert np.isfinite(np.asarray(draws)).all() and len(np.unique(np.asarray(draws))) > 1


@pytest.mark.long
def test_nuts_samples_the_difficulty_on_both() -> None:
    """Means within four standard errors at a quarter of the draws; the prior's mean is further away."""
    (question, values), nodes, law = hard_question()
    mean, sd = float(law @ nodes), float(np.sqrt(law @ nodes**2 - (law @ nodes) ** 2))
    sampler = numpyro.infer.NUTS(enumeration.program)
    on_numpyro = numpyro.infer.MCMC(sampler, num_warmup=200, num_samples=400, progress_bar=False)
    on_numpyro.run(jax.random.key(0), question, values)
    with random_numbers(0):
        on_pyro = pyro.infer.MCMC(pyro.infer.NUTS(ours.program), num_samples=100, warmup_steps=50, disable_progbar=True)
        on_pyro.run(question, values)
    for draws in (on_numpyro.get_samples()["difficulty"], on_pyro.get_samples()["difficulty"]):
        within = 4 * sd / math.sqrt(len(draws) / 4)
        assert abs(float(draws.mean()) - mean) < within < abs(mean)


# -------------------------------------------------------------------------------------------------------------- draws


def sequence_misfit(drawn: NDArray[np.int64], expected: Case) -> float:
    """Pearson's statistic of the 9 ways in which two claims can name three answers."""
    counts = np.bincount(drawn @ np.array([3, 1]), minlength=9)
    chance = [witness.evidence(expected[0], x, NODES) for x in itertools.product(range(3), repeat=2)]
    assert min(chance) * len(drawn) > 5
    return float(sum((c - len(drawn) * p) ** 2 / (len(drawn) * p) for c, p in zip(counts, chance, strict=True)))


def test_draws_follow_the_probabilities() -> None:
    """Chi-squared at 8 degrees of freedom, false alarm at one in 10,000 (fixed seed); and it has the power to tell that
    claims repeat each other."""
    on = dict.fromkeys(("popularity", "open", "base", "strong", "copy_error", "difficulty"), True)
    question, values = random_question(
        np.random.default_rng(4), n=2, K=3, **on, **dict.fromkeys(set(FEATURES) - set(on), False)
    )
    draws = []
    with random_numbers(0):
        for _ in range(1500):
            trace = pyro.poutine.trace(ours.program).get_trace(question, None, GRID)
            draws.append([int(trace.nodes[f"claim_{j}"]["value"].argmax()) for j in range(2)])
    assert sequence_misfit(np.array(draws), (question, values)) < 31.83
    alone = question._replace(base=0 * question.base, strong=0 * question.strong)
    assert sequence_misfit(np.array(draws), (alone, values)) > 31.83


@cache
def asked() -> tuple[nous.Question, nous.Trust]:
    """A question of four claims, and a trust with traps and difficulty."""
    world = nous.datasets.world(questions=20, sources=8, seed=0)
    evidence = nous.Evidence(world.claims)
    every = (evidence.question(*key) for key in evidence.questions[["entity", "attribute"]].itertuples(index=False))
    errors = nous.Errors(trap=True, difficulty=True)
    return next(q for q in every if len(q) == 4), nous.TrustModel(errors=errors, answers=world.answers).default_trust()


def test_both_programs_draw_what_they_observe() -> None:
    question, trust = asked()
    one, two = question.program(trust, "pyro"), question.program(trust)
    assert repr(one) == repr(two).replace("numpyro", "pyro")
    K = len(one.answers)
    assert f"4 claims, {K} answers ['v0', 'v1', 'other 1', " in repr(one)
    with random_numbers(0):
        drawn = pyro.infer.Predictive(one, num_samples=5)(observed=False)
    also = numpyro.infer.Predictive(two, num_samples=5)(jax.random.key(0), observed=False)
    names = {"truth", "looks", "difficulty", *(f"{kind}_{j}" for kind in ("origin", "claim") for j in range(4))}
    assert set(also) == names <= set(drawn)
    for name in names:
        assert drawn[name].shape == also[name].shape == ((5, K) if name.startswith("claim") else (5,))
    for j in range(4):
        assert sorted(np.unique(np.asarray(drawn[f"claim_{j}"]).sum(-1))) == [1.0]


def test_the_laws_of_all_sites_are_proper() -> None:
    """Also where an answer is rejected, so that what is left of the prior does not sum to one."""
    _, trust = asked()
    claims = pd.DataFrame({"entity": "e", "attribute": "status", "value": ["a", "b", "b"], "source": ["s", "t", "u"]})
    rejected = pd.DataFrame({"entity": ["e"], "attribute": "status", "value": "a", "verdict": "false"})
    question = nous.Evidence(claims, settled=rejected).question("e", "status")
    with numpyro.validation_enabled(True):
        trace = numpyro.handlers.trace(numpyro.handlers.seed(question.program(trust), 0)).get_trace()
    with pyro.validation_enabled(True), random_numbers(0):
        other = pyro.poutine.trace(question.program(trust, "pyro")).get_trace()
    assert float(trace["truth"]["fn"].probs.sum()) == pytest.approx(1.0, abs=1e-6)
    close(other.nodes["truth"]["fn"].probs, trace["truth"]["fn"].probs, 1e-6)
    assert trace["truth"]["fn"].probs[0] == 0.0


# ----------------------------------------------------------------------------------------------------------- pictures


def test_the_picture_is_the_same_on_both() -> None:
    pytest.importorskip("graphviz", reason="graphviz is not installed: nothing can be drawn")
    question, trust = asked()
    for shown in (None, trust):
        one, two = question.program(shown, "pyro"), question.program(shown)
        picture = str(pyro.render_model(one))
        assert picture == str(numpyro.render_model(two)).replace("grey", "gray")
        assert picture.count("fillcolor=gray") == 4
        assert ("truth -> looks" in picture) == (shown is trust)
        assert "claim_0 -> origin_2" in picture and "claim_3 ->" not in picture
    render: tuple[Callable[..., Any], ...] = (pyro.render_model, numpyro.render_model)
    for draw, model in zip(render, (one, two), strict=True):
        assert "claim_3 ~ Saying" in str(draw(model, render_distributions=True, render_params=True))


def test_both_backends_have_the_methods_of_the_protocol() -> None:
    wanted = [name for name in vars(sites.Sites) if not name.startswith("_")]
    assert len(wanted) > 10
    for backend in (enumeration.NUMPYRO, ours.Pyro()):
        assert [name for name in wanted if not callable(getattr(backend, name, None))] == []
