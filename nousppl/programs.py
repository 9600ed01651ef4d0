"""The program that is fitted, for those who want to run it themselves: under numpyro or pyro, with predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl import fitting
from nousppl.blueprint import Blueprint, draw_up
from nousppl.compile import Problem, compile_problem
from nousppl.densify import write_out
from nousppl.encode import Encoded
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.inference.options import check_backend
from nousppl.model import TrustModel, resolve_learn_from
from nousppl.models.layout import Layout
from nousppl.models.program import program
from nousppl.simulate import simulate_question
from nousppl.trust import Trust
from nousppl.updating import labels

Ints = NDArray[np.int32]
Values = Mapping[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A model of the parameters and of what is observed of some questions, without arguments that must be given.

    It is a numpyro or pyro model: calling it declares the sites. Truths and origins are summed out, so every latent
    site is continuous: group effects under their name with ``_raw``, the others under the names of a trust's draws. The
    site ``questions`` holds what is observed, see ``nousppl.models.program.Law``.
    """

    blueprint: Blueprint
    encoded: Encoded
    layout: Layout
    data: dict[str, Any]
    """Arrays by name, of the backend."""
    questions: NDArray[np.int64]
    """(questions,) index of each question in the evidence; those beyond are further parts of set-valued ones, each a
    question here."""
    centred: dict[str, NDArray[np.float64]]
    """How far group effects are sampled on their own scale, 0 to 1."""
    backend: Any
    """The namespace that the program is run in."""
    simulator: Simulator

    def __call__(self, observed: bool = True) -> None:
        """Declare all sites; with ``observed=False`` what is observed is drawn anew."""
        program(self.backend, self.blueprint.plan, self.layout, self.data, self.simulator, observed)

    def samples(self, trust: Trust) -> dict[str, Any]:
        """The draws of a trust as those of this program's latent sites, (draws, ...): for ``Predictive`` and for
        ``log_likelihood``.

        Raises:
            ModelError: the trust has other parameters, for it was learned from other sources or with another model.
        """
        plan = self.blueprint.plan
        known = all(labels(trust.blueprint, name) == labels(self.blueprint, name) for name in plan.names)
        if trust.blueprint.plan.key != plan.key or not known:
            raise ModelError(
                "the trust has other parameters than this program: it was learned from other sources or settled facts, "
                "or with another model"
            )
        out = {}
        for site, name in zip(plan.sites, plan.raw_names, strict=True):
            value = trust.flat[site.name]
            if site.scale is not None:
                value = value / trust.flat[site.scale][..., None] ** (1.0 - self.centred["centred " + site.name])
            out[name] = value
        return self.backend.arrays(out)

    def __repr__(self) -> str:
        sites = len(self.blueprint.plan.sites)
        return f"Program({len(self.questions)} questions, {sites} parameters, on {type(self.backend).__name__.lower()})"


class Simulator:
    """Draws truths and claims of some questions; one question after the other, about 1 ms each.

    Who speaks, when and in which order stays as it is, and so do texts and rejections. Every claim drawn is hard. Where
    a question is averaged over several orders of its claims, one of them is taken at random.
    """

    def __init__(self, blueprint: Blueprint, encoded: Encoded, questions: NDArray[np.int64], seed: int) -> None:
        self.blueprint, self.encoded, self.questions, self.seed = blueprint, encoded, questions, seed

    @cached_property
    def problems(self) -> list[Problem]:
        """Every question compiled by itself."""
        return [compile_problem(self.encoded, np.array([index]), self.seed) for index in self.questions]

    @cached_property
    def said(self) -> Ints:
        """(questions, 1 + most) what was observed."""
        encoded, offset = self.encoded, self.encoded.cells.offset
        counts = np.array([encoded.used[slice(*self._bounds(index))].sum() for index in self.questions])
        out = np.full((len(counts), 1 + int(counts.max(initial=0))), -1, np.int32)
        settled = encoded.settled_cell[self.questions]
        out[:, 0] = np.where(settled >= 0, settled - offset[self.questions], -1)
        coded = encoded.coded
        for row, index in enumerate(self.questions):
            claims = np.arange(*self._bounds(index))
            claims = claims[encoded.used[claims]]
            first = coded.row_start[claims]
            alone = (np.diff(coded.row_start)[claims] == 1) & (coded.row_weight[first] > 1.0 - 1e-9)
            cell = encoded.cells.of_answer[coded.row_answer[first]] - offset[index]
            out[row, 1 : 1 + len(claims)] = np.where(alone, cell, -1)
        return out

    def __call__(self, values: Values, seed: int) -> Ints:
        """A draw, in the shape of `said`.

        Raises:
            ModelError: correlated errors, which are a power posterior and no law of claims; truths that change, of
                which `nousppl.TrustModel.simulate` draws whole paths; claims that deny an answer, and questions of
                other shapes than one of several, which it draws too.
        """
        shaped = self.encoded.cells.shaped[self.questions]
        if shaped.any():
            first = self.encoded.coded.questions.iloc[self.questions[int(shaped.argmax())]]
            raise ModelError(
                f"a program draws no claims about numbers, lists of items and states, such as attribute "
                f"{first['attribute']!r}: TrustModel.simulate draws them; allowed are one-of-several answers"
            )
        if self.encoded.settled is not None:
            raise ModelError(
                "a program of truths that change (change=...) draws no claims: TrustModel.simulate draws them with the "
                "path of their truth"
            )
        if self.encoded.denied_cell is not None:
            raise ModelError(
                "a program of claims that deny an answer (column 'denies') draws no claims: TrustModel.simulate draws "
                "them with what they deny"
            )
        rng = np.random.default_rng(seed)
        draws = {name: np.asarray(value, np.float64)[None] for name, value in values.items()}
        out = np.full_like(self.said, -1)
        for row, (index, problem) in enumerate(zip(self.questions, self.problems, strict=True)):
            orders = write_out(self.blueprint, self.encoded, draws, int(index), seed=self.seed, problem=problem)
            written = orders[int(rng.integers(len(orders)))]
            question = written.question
            if self.said[row, 0] >= 0:
                question = question._replace(prior=self._prior(int(index), question.base_rates))
            drawn = simulate_question(rng, question)
            out[row, 1 + np.searchsorted(problem.claims, written.claims)] = drawn.values
            out[row, 0] = drawn.truth if self.said[row, 0] >= 0 else -1
        return out

    def _prior(self, index: int, rates: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """(K,) law of a truth that will be settled: the base rates of what is not rejected."""
        assert rates is not None
        start, stop = self.encoded.cells.offset[index : index + 2]
        rejected = np.isin(np.arange(start, stop), self.encoded.rejected_cells)
        counts = np.rint(self.encoded.cells.count[start:stop]).astype(int)
        return np.where(np.repeat(rejected, counts), 0.0, rates)

    def _bounds(self, index: int) -> tuple[int, int]:
        start, stop = self.encoded.claim_offset[index : index + 2]
        return int(start), int(stop)


def make(model: TrustModel, evidence: Evidence, backend: str, learn_from: str | None) -> Program:
    """See ``nousppl.TrustModel.program``."""
    check_backend(backend)
    learn_from = resolve_learn_from(evidence, learn_from)
    blueprint = draw_up(model, evidence, None if learn_from == "all" else evidence.coded.settled_truths)
    encoded = blueprint.encode(evidence)
    questions = fitting.learned_questions(encoded, learn_from)
    problem = compile_problem(encoded, questions, model.order_seed)
    fitting.check_terms(blueprint.plan, encoded, [problem])
    blueprint = fitting.with_text_grid(blueprint, [problem])
    layout, shared, stacked = fitting.batched(blueprint, encoded, [problem])
    questions = problem.questions
    simulator = Simulator(blueprint, encoded, questions, model.order_seed)
    data = shared | {name: value[0] for name, value in stacked.items()} | {"said": simulator.said}
    xp = _namespace(backend)
    centred = {name: value for name, value in shared.items() if name.startswith("centred ")}
    return Program(blueprint, encoded, layout, xp.arrays(data), questions, centred, xp, simulator)


def _namespace(backend: str) -> Any:
    if backend == "pyro":
        from nousppl.inference.torch_backend import Torch

        return Torch()
    from nousppl.inference.backend import JAX

    return JAX
