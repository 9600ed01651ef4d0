"""Claims drawn from a model: for prior predictive checks and for calibration by simulation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl._times import show_times
from nousppl.blueprint import Blueprint, draw_up
from nousppl.compile import Problem, compile_problem
from nousppl.densify import Written, write_out
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.model import TrustModel, prior_draws
from nousppl.models.shapes import NO_ITEM, AnyOf, Number, WhileTrue
from nousppl.number_simulate import simulate_number
from nousppl.numbers import number_shapes
from nousppl.parts import DENIES
from nousppl.simulate import simulate_question
from nousppl.simulate_lists import simulate_lists
from nousppl.simulate_states import NONE, SimulatedState, simulate_state, states_of
from nousppl.statements import UNTIL
from nousppl.tables import is_blank


class Truth(NamedTuple):
    """What a simulation knows."""

    settled: pd.DataFrame
    """One row a question: entity, attribute, value; where truths change or something is true for a while also time, the
    latest of the design, at which it is true."""
    origins: pd.Series
    """Claim id -> id of the claim that it repeats; missing where it is fresh."""
    parameters: dict[str, NDArray[np.float64]]
    """Site -> value; group effects in the order of the sorted levels."""
    truths: pd.Series
    """Claim id -> the truth at the time of the claim."""
    states: pd.DataFrame
    """One row a question about what is true for a while: entity, attribute, ``on`` (at its first claim) and ``until``
    (when it ends, if it is on)."""


def simulate(
    model: TrustModel, design: pd.DataFrame, seed: int, parameters: Mapping[str, Any] | None = None
) -> tuple[Truth, Evidence]:
    """Draw parameters, truths, origins and values for a design.

    Args:
        model: the specification; every attribute of the design needs its answers there.
        design: claims without values: entity, attribute, source, and whatever the formulas and origins use. A claim
            that is not blank in ``denies`` denies an answer, whatever stands there: which one is drawn.
        seed: of the draw.
        parameters: site -> value, in place of a draw from its prior; group effects by sorted level.

    Raises:
        ModelError: an attribute without declared answers, correlated errors (a power posterior), a site that the model
            does not have, or of another size.
    """
    return Generator(model, design).draw(seed, parameters)


class Drawn(NamedTuple):
    """One draw of a question with n claims, in the words of its answers."""

    values: Any
    """(n,)"""
    origins: NDArray[np.int64]
    """(n,)"""
    truth: Any
    truths: Any
    """(n,) truth at the time of each claim."""
    denied: list[str | None]
    """(n,) items that each claim denies, where its value is a list."""
    until: Any = None
    """(n,) ends that claims state, NaN where they state none; None where the question is of another shape."""


class Generator:
    """Draws from a model on one design; what does not change from draw to draw is compiled once.

    Args:
        model: as in `simulate`.
        design: as in `simulate`.

    Raises:
        ModelError: an attribute without declared answers.
    """

    def __init__(self, model: TrustModel, design: pd.DataFrame) -> None:
        numbers = number_shapes(model.shapes)
        missing = sorted({str(a) for a in design["attribute"].unique() if a not in model.answers and a not in numbers})
        if missing:
            raise ModelError(
                f"simulate: answers of attribute {missing[0]!r} are not declared; give TrustModel(answers={{...}})"
            )
        first, second = ({a: _labels(given)[i] for a, given in model.answers.items()} for i in (0, 1))
        for attribute, shape in model.shapes.items():
            if isinstance(shape, AnyOf) and isinstance(model.answers.get(attribute), int):
                raise ModelError(
                    f"simulate: answers[{attribute!r}] = {model.answers[attribute]}: a set-valued attribute needs the "
                    "list of its items"
                )
            plain = True if isinstance(shape, WhileTrue) else NO_ITEM
            first[attribute] = _centre(attribute, shape) if isinstance(shape, Number) else plain
        self.model = model
        filled = {"value": design["attribute"].map(first)}
        if DENIES in design:
            second |= dict.fromkeys(model.shapes)
            filled["denies"] = design["attribute"].map(second).astype(object).where(~is_blank(design["denies"]), None)
        self.placeholder = Evidence(design.assign(**filled))
        self.blueprint = draw_up(model, self.placeholder)
        self.encoded = self.blueprint.encode(self.placeholder)

    @cached_property
    def problems(self) -> list[Problem]:
        """Every question compiled by itself."""
        return [
            compile_problem(self.encoded, np.array([index]), self.model.order_seed)
            for index in range(len(self.encoded.coded.questions))
        ]

    def draw(self, seed: int, parameters: Mapping[str, Any] | None = None) -> tuple[Truth, Evidence]:
        """One draw, see `simulate`."""
        model, blueprint, encoded = self.model, self.blueprint, self.encoded
        draws = {name: value[0] for name, value in prior_draws(blueprint, seed, 1).items()}
        draws |= _given(blueprint, draws, parameters or {})
        rng = np.random.default_rng(seed)
        coded = encoded.coded
        values = np.empty(len(coded.claim_question), object)
        origins, true_then, denied = (np.full(len(values), None, object) for _ in range(3))
        truths, until, states = [], np.full(len(values), np.nan), []
        for index, attribute in enumerate(coded.questions["attribute"]):
            problem = self.problems[index]
            if attribute in number_shapes(model.shapes):
                found = simulate_number(rng, blueprint, encoded, draws, problem)
                ids = coded.claim_id[problem.claims]
                values[problem.claims], true_then[problem.claims] = found.values, found.truth
                origins[problem.claims] = [ids[k] if k >= 0 else None for k in found.origins]
                truths.append(found.truth)
                continue
            written = write_out(blueprint, encoded, draws, index, seed=model.order_seed, problem=problem, laws=False)[0]
            if isinstance(model.shapes.get(attribute), WhileTrue):
                state = simulate_state(rng, written.question, states_of(blueprint, encoded, draws, problem, written))
                drawn = self._of_state(state, coded.claim_time[written.claims])
                until[written.claims] = drawn.until
                states.append((index, state.on, state.ends[state.true]))
            else:
                drawn = self._drawn(rng, written, index, attribute)
            values[written.claims], true_then[written.claims] = drawn.values, drawn.truths
            denied[written.claims] = drawn.denied
            ids = coded.claim_id[written.claims]
            origins[written.claims] = [ids[k] if k >= 0 else None for k in drawn.origins]
            truths.append(drawn.truth)
        claims = self.placeholder.claims.assign(value=values)
        if encoded.cells.items is not None or DENIES in claims:
            claims[DENIES] = denied
        settled = coded.questions[["entity", "attribute"]].assign(value=truths)
        if model.change is not None or states:
            settled["time"] = self.placeholder.claims["time"].max()
        if states:
            claims[UNTIL] = self._shown(until)
        by_claim = {
            name: pd.Series(column, index=coded.claim_index, name=name)
            for name, column in (("origin", origins), ("truth", true_then))
        }
        parameters = {name: value[0] for name, value in draws.items()}
        table = coded.questions.iloc[[index for index, _, _ in states]].reset_index(drop=True)
        ends = self._shown(np.array([end for _, _, end in states]))
        table = table.assign(on=[on for _, on, _ in states], until=ends)
        return Truth(settled, by_claim["origin"], parameters, by_claim["truth"], table), Evidence(claims)

    def _shown(self, times: NDArray[np.float64]) -> Any:
        """Times as the design has its own."""
        return show_times(times, self.placeholder.time_kind)

    def _of_state(self, state: SimulatedState, times: NDArray[np.float64]) -> Drawn:
        """One draw of a state; its truth is that at the latest time of the design."""
        until = np.where(state.stated == NONE, np.nan, state.ends[state.stated])
        truths = [state.at(time) for time in times]
        return Drawn(state.says, state.origins, state.at(self.encoded.latest), truths, [None] * len(times), until)

    def _drawn(self, rng: np.random.Generator, written: Written, index: int, attribute: Any) -> Drawn:
        """One draw of a question, in the words of its answers."""
        shape, items, n = self.model.shapes.get(attribute), self.encoded.cells.items, len(written.claims)
        if isinstance(shape, AnyOf) and items is not None and written.lists is not None:
            names = items.names(index)
            lists = simulate_lists(rng, written.question, written.lists, len(names))

            def text(chosen: NDArray[np.bool_]) -> str:
                return shape.text(tuple(name for name, held in zip(names, chosen, strict=True) if held))

            truth = text(lists.truth)
            denied = [text(row) if row.any() else None for row in lists.denied]
            return Drawn([text(row) for row in lists.named], lists.origins, truth, [truth] * n, denied)
        drawn = simulate_question(rng, written.question)
        labels = np.array(_labels(self.model.answers[attribute])[: written.question.size], object)
        return Drawn(
            labels[drawn.values],
            drawn.origins,
            labels[drawn.truth],
            labels[drawn.truths],
            [labels[k] if k >= 0 else None for k in drawn.denies],
        )


def _centre(attribute: Any, shape: Number) -> float:
    """The centre of a number whose unit is given."""
    if shape.centre is None or shape.scale is None:
        raise ModelError(
            f"simulate: attribute {attribute!r} is a number, whose unit is not known before there are claims; "
            "give Number(centre=..., scale=...)"
        )
    return shape.centre


def _labels(given: Any) -> list[Any]:
    """The closed list, or a name for each of K answers."""
    return [f"answer {i:05d}" for i in range(given)] if isinstance(given, int) else list(given)


def _given(
    blueprint: Blueprint, draws: dict[str, Any], parameters: Mapping[str, Any]
) -> dict[str, NDArray[np.float64]]:
    out = {}
    for name, value in parameters.items():
        if name not in draws:
            raise ModelError(f"simulate: no parameter {name!r} in this model; there are {list(blueprint.plan.names)}")
        array = np.asarray(value, np.float64)[None]
        if array.shape != draws[name].shape:
            raise ModelError(
                f"simulate: parameter {name!r} must have shape {draws[name].shape[1:]}, got {array.shape[1:]}"
            )
        out[name] = array
    return out
