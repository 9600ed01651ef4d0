"""Beliefs in arviz's container, under arviz 0.x (InferenceData) and 1.x (DataTree) alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import arviz_bridge
from nousppl.value_text import question_names, write

if TYPE_CHECKING:
    import xarray as xr

    from nousppl.beliefs import Beliefs


def container(beliefs: Beliefs, settled: pd.DataFrame | None, draws: int, seed: int) -> Any:
    """See :meth:`nousppl.beliefs.Beliefs.to_arviz`."""
    return arviz_bridge.container(_groups(beliefs, settled, draws, seed))


def _groups(beliefs: Beliefs, settled: pd.DataFrame | None, draws: int, seed: int) -> dict[str, xr.Dataset]:
    import xarray as xr

    names = question_names(beliefs.questions["entity"], beliefs.questions["attribute"])
    cells = {
        "entity": ("cell", beliefs.questions["entity"].to_numpy(dtype=object)[beliefs.cell_question]),
        "attribute": ("cell", beliefs.questions["attribute"].to_numpy(dtype=object)[beliefs.cell_question]),
        "answer": ("cell", beliefs.cell_answer),
        "chain": [0],
        "draw": [0],
    }
    probability = (("chain", "draw", "cell"), beliefs.probability[None, None])
    groups = {
        "predictions": xr.Dataset({"probability": probability}, cells, dict(beliefs.meta)),
        "constant_data": xr.Dataset({"claims": ("question", beliefs.claims)}, {"question": names}),
    }
    if beliefs.numbers is not None:
        groups = {name: data.merge(part) for (name, data), part in zip(groups.items(), _numbers(beliefs), strict=True)}
    return groups if settled is None else groups | predicted(beliefs, settled, (1, draws), seed)


def _numbers(beliefs: Beliefs) -> tuple[xr.Dataset, xr.Dataset]:
    """Mean and standard deviation of each number, by ``number_question``; and the numbers of their claims."""
    import xarray as xr

    assert beliefs.numbers is not None
    questions, laws = beliefs.numbers.questions, beliefs.numbers.mixtures
    coords = _named("number_question", questions) | {"chain": [0], "draw": [0]}
    dims = ("chain", "draw", "number_question")
    moments = {name: (dims, np.array([getattr(law, name) for law in laws])[None, None]) for name in ("mean", "sd")}
    claims = {"number_claims": ("number_question", beliefs.numbers.claims)}
    return xr.Dataset(moments, coords), xr.Dataset(claims, {"number_question": coords["number_question"]})


def _named(dimension: str, questions: pd.DataFrame) -> dict[str, Any]:
    """Coordinates of some questions about numbers."""
    entity, attribute = (questions[name].to_numpy(dtype=object) for name in ("entity", "attribute"))
    return {
        dimension: question_names(entity, attribute),
        "number_entity": (dimension, entity),
        "number_attribute": (dimension, attribute),
    }


def predicted(beliefs: Beliefs, settled: pd.DataFrame, shape: tuple[int, int], seed: int) -> dict[str, xr.Dataset]:
    """observed_data and posterior_predictive with one variable, ``right``: whether the top answer of each settled
    question is the truth, and draws of that under the beliefs; where there are questions about numbers also ``number``,
    the settled ones and draws of them. There is nothing else in the two groups, so that arviz's calibration plots find
    their variable by themselves.

    Args:
        beliefs: of these questions.
        settled: see :meth:`nousppl.beliefs.Beliefs.match`.
        shape: number of chains and of draws of each.
        seed: of the draws.
    """
    import xarray as xr

    numbers = _predicted_numbers(beliefs, settled, shape, seed)
    if not len(beliefs):
        return numbers
    facts = beliefs.match(settled)
    marks = beliefs.marks(settled)
    question = beliefs.cell_question[facts.cell]
    entity, attribute = (beliefs.questions[name].to_numpy(dtype=object)[question] for name in ("entity", "attribute"))
    coords: Mapping[str, Any] = {
        "fact": question_names(entity, attribute),
        "entity": ("fact", entity),
        "attribute": ("fact", attribute),
        "answer": ("fact", [write(answer) for answer in beliefs.cell_answer[beliefs.top[question]]]),
    }
    drawn = np.random.default_rng(seed).random((*shape, len(question))) < marks.confidence
    right = (("chain", "draw", "fact"), drawn.astype(np.int64))
    sampled = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    answers = {
        "observed_data": xr.Dataset({"right": ("fact", marks.right.astype(np.int64))}, coords),
        "posterior_predictive": xr.Dataset({"right": right}, {**coords, **sampled}),
    }
    return {name: data.merge(numbers[name]) if numbers else data for name, data in answers.items()}


def _predicted_numbers(
    beliefs: Beliefs, settled: pd.DataFrame, shape: tuple[int, int], seed: int
) -> dict[str, xr.Dataset]:
    """The same of numbers: ``number`` by ``number_fact``; nothing where none is settled."""
    import xarray as xr

    if beliefs.numbers is None:
        return {}
    truth = beliefs.numbers.truths(settled)
    rows = np.flatnonzero(~np.isnan(truth))
    if not len(rows):
        return {}
    # Other random numbers than those of the answers.
    rng, size = np.random.default_rng((seed, 1)), int(np.prod(shape))
    drawn = [beliefs.numbers.mixtures[row].samples(size, rng).reshape(shape) for row in rows]
    coords = _named("number_fact", beliefs.numbers.questions.iloc[rows])
    sampled = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    number = (("chain", "draw", "number_fact"), np.stack(drawn, axis=-1))
    return {
        "observed_data": xr.Dataset({"number": ("number_fact", truth[rows])}, coords),
        "posterior_predictive": xr.Dataset({"number": number}, {**coords, **sampled}),
    }
