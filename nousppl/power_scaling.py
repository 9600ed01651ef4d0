"""How much of what was learned comes from the priors: power-scaling sensitivity (Kallioinen et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from nousppl import saving
from nousppl.arviz_bridge import power_sensitivity
from nousppl.errors import QuestionError
from nousppl.evidence import Evidence
from nousppl.learned import evidence_of, learned_from
from nousppl.trust import Trust

THRESHOLD = 0.05
"""Sensitivity from which a parameter counts as moved (Kallioinen et al. 2024, section 3.2)."""
SAYINGS = {
    (True, True): "prior and data may be in conflict",
    (True, False): "the prior is strong or the data say little",
    (False, True): "",
    (False, False): "neither prior nor data move it",
}
"""(moved by the prior, moved by the likelihood) -> what that means."""


def sensitivity(trust: Trust, evidence: Evidence | None = None, priors: Sequence[str] | None = None) -> pd.DataFrame:
    """How much the posterior of each parameter moves when the priors, or the likelihood, are made a little stronger.

    Nothing is fitted again: draws are weighted by a power of the prior or likelihood with smoothed importance weights.
    Priors are those of the top-level parameters, standard deviations of groups included; the law of group effects given
    their standard deviation is part of the model and is not scaled. With few draws the figures are noisy: 1,000 or more
    (``nous.SVI(draws=1000)``) are recommended.

    Args:
        trust: a fit.
        evidence: what it was learned from; default the evidence of the fit, while that is still held.
        priors: names of the parameters whose priors are scaled together; default all of them. One at a time tells which
            prior it is.

    Returns:
        A row a top-level parameter, and a row a group for the effect in it that the priors move most (index
        ``parameter``): level (the one shown of several), prior and likelihood (sensitivities; from .05 on the parameter
        moves), diagnosis (words, blank where the data decide).

    Raises:
        QuestionError: nothing was learned, or not from this evidence; or there is no such prior.
    """
    part = learned_from(trust, evidence_of(trust, evidence, "trust"), "trust")
    posterior = saving.datasets(trust)["posterior"]
    density = log_prior(trust)
    unknown = [name for name in priors or () if name not in density]
    if unknown:
        raise QuestionError(f"priors: no parameter {unknown[0]!r}; there are {list(map(str, density.data_vars))}")
    likelihood = trust.log_likelihood(part).sum("question")
    moved = {
        component: power_sensitivity(posterior, density, likelihood, component, priors)
        for component in ("prior", "likelihood")
    }
    rows = [
        _row(name, posterior[name], moved["prior"][name], moved["likelihood"][name]) for name in map(str, posterior)
    ]
    table = pd.DataFrame(rows).set_index("parameter")
    return table.loc[sorted(table.index, key=lambda name: posterior[name].ndim > 2)]


def log_prior(trust: Trust) -> xr.Dataset:
    """(chain, draw) log prior density of each top-level parameter at the draws, on its natural scale."""
    from nousppl.inference.backend import distribution

    out: dict[str, Any] = {}
    for site in trust.blueprint.plan.sites:
        if site.scale is None:
            value = trust.posterior_draws[site.name]
            density = np.asarray(distribution(site.prior).log_prob(value), np.float64)
            out[saving.quoted(site.name)] = (("chain", "draw"), density.reshape(*value.shape[:2], -1).sum(-1))
    return xr.Dataset(out)


def _row(name: str, draws: xr.DataArray, prior: xr.DataArray, likelihood: xr.DataArray) -> dict[str, Any]:
    by_prior, by_data = np.ravel(prior), np.ravel(likelihood)
    place = int(np.argmax(np.nan_to_num(by_prior)))
    level = ""
    if draws.ndim > 2:
        names = draws.coords.get(draws.dims[-1])
        level = str(place if names is None else names.to_numpy()[place])
    found = {"prior": float(by_prior[place]), "likelihood": float(by_data[place])}
    said = SAYINGS[found["prior"] >= THRESHOLD, found["likelihood"] >= THRESHOLD]
    return {"parameter": name, "level": level, **found, "diagnosis": said}
