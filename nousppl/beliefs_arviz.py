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
    return groups if settled is None else groups | predicted(beliefs, settled, (1, draws), seed)


def predicted(beliefs: Beliefs, settled: pd.DataFrame, shape: tuple[int, int], seed: int) -> dict[str, xr.Dataset]:
    """observed_data and posterior_predictive with one variable, ``right``: whether the top answer of each settled
    question is the truth, and draws of that under the beliefs. There is nothing else in the two groups, so that arviz's
    calibration plots find their variable by themselves.

    Args:
        beliefs: of these questions.
        settled: see :meth:`nousppl.beliefs.Beliefs.match`.
        shape: number of chains and of draws of each.
        seed: of the draws.
    """
    import xarray as xr

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
    return {
        "observed_data": xr.Dataset({"right": ("fact", marks.right.astype(np.int64))}, coords),
        "posterior_predictive": xr.Dataset({"right": right}, {**coords, **sampled}),
    }
