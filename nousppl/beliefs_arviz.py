"""Beliefs in arviz's container, under arviz 0.x (InferenceData) and 1.x (DataTree) alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import arviz_bridge
from nousppl.value_text import show

if TYPE_CHECKING:
    import xarray as xr

    from nousppl.beliefs import Beliefs


def container(beliefs: Beliefs, settled: pd.DataFrame | None, draws: int, seed: int) -> Any:
    """See :meth:`nousppl.beliefs.Beliefs.to_arviz`."""
    return arviz_bridge.container(_groups(beliefs, settled, draws, seed))


def _groups(beliefs: Beliefs, settled: pd.DataFrame | None, draws: int, seed: int) -> dict[str, xr.Dataset]:
    import xarray as xr

    names = [f"{show(e)} · {show(a)}" for e, a in beliefs.questions[["entity", "attribute"]].itertuples(index=False)]
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
        "observed_data": xr.Dataset({"claims": ("question", beliefs.claims)}, {"question": names}),
    }
    if settled is None:
        return groups
    marks = beliefs.marks(settled)
    drawn = np.random.default_rng(seed).random((1, draws, len(marks.right))) < marks.confidence
    groups["observed_data"]["right"] = ("fact", marks.right.astype(np.int64))
    groups["posterior_predictive"] = xr.Dataset({"right": (("chain", "draw", "fact"), drawn.astype(np.int64))})
    return groups
