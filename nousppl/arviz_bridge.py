"""What is taken from arviz, under 0.x (``InferenceData``) and 1.x (``DataTree``) alike.

The version decides which; asking arviz 1.x for a name of 0.x gives a warning.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nousppl.errors import InferenceError

FEWEST = 25
"""Draws of which a fifth, the tail that a shape is fitted to, are 5: arviz 1.x wants as many."""
DELTA = 0.01
"""Powers 1 / (1 + DELTA) and 1 + DELTA are what the sensitivity is the difference of."""


class Loo(NamedTuple):
    """Leave-one-out cross-validation of Q data points by Pareto-smoothed importance sampling (Vehtari et al. 2017)."""

    elpd: NDArray[np.float64]
    """(Q,) expected log predictive density of each point, in nats."""
    parameters: float
    """Effective number of parameters."""
    pareto_k: NDArray[np.float64]
    """(Q,) shape of the tail of the importance ratios."""
    good_k: float
    """Largest shape at which the estimate can be trusted with this many draws."""
    raw: Any
    """arviz's own object."""


def first_line() -> bool:
    """Whether the installed arviz is of the line 0.x."""
    return int(version("arviz").partition(".")[0]) < 1


def container(groups: Mapping[str, xr.Dataset]) -> Any:
    """The groups as the installed arviz holds them."""
    if first_line():
        import arviz

        return arviz.InferenceData(**groups)  # type: ignore[arg-type]
    return xr.DataTree.from_dict({f"/{name}": data for name, data in groups.items()})


def loo(log_likelihood: xr.DataArray, posterior: xr.Dataset) -> Loo:
    """Leave one question out at a time.

    Args:
        log_likelihood: (chain, draw, question).
        posterior: the draws, by which their efficiency is judged where there are several chains; that of one chain is
            judged by how often its draws repeat each other, see `efficiency`.

    Raises:
        InferenceError: there are fewer than `FEWEST` draws.
    """
    import arviz

    draws = log_likelihood.sizes["chain"] * log_likelihood.sizes["draw"]
    if draws < FEWEST:
        raise InferenceError(
            f"{draws} draws are too few to leave questions out by importance: fit with {FEWEST} or more "
            f"(nous.SVI(draws={FEWEST}), or num_samples)"
        )
    alone = efficiency(log_likelihood) if log_likelihood.sizes["chain"] == 1 else None
    data = container({"posterior": posterior, "log_likelihood": log_likelihood.to_dataset(name="questions")})
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        # Large shapes are given back and told by whoever asked; candidates for a shape that cannot be overflow in 0.23.
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto distribution")
        raw = arviz.loo(data, pointwise=True, reff=alone)
    elpd, parameters = (raw.loo_i, raw.p_loo) if first_line() else (raw.elpd_i, raw.p)
    return Loo(np.asarray(elpd), float(parameters), np.asarray(raw.pareto_k), float(raw.good_k), raw)


def efficiency(log_likelihood: xr.DataArray) -> float:
    """Effective share (Kish 1965) of draws that were taken by importance, with as many copies as they weigh.

    Without it the tail of the importance ratios is fitted to the largest of fewer draws than are told, most of them
    copies: shapes scatter the more, the more draws are taken. arviz 1.x, which takes copies of the cutoff into the
    tail, then finds large shapes or none.

    Args:
        log_likelihood: (chain, draw, question).
    """
    rows = log_likelihood.transpose("chain", "draw", ...).to_numpy()
    rows = rows.reshape(rows.shape[0] * rows.shape[1], -1)
    copies = np.array(list(Counter(row.tobytes() for row in rows).values()), np.float64)
    return float(copies.sum() / np.square(copies).sum())


def stacking_weights(candidates: Mapping[str, Loo]) -> dict[str, float]:
    """Weights of the mixture of predictions that would predict best (Yao et al. 2018)."""
    import arviz

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Estimated shape parameter of Pareto distribution")
        # arviz 0.23 uses what pandas 3.1 deprecates.
        warnings.filterwarnings("ignore", "The inplace keyword in DataFrame.sort_values")
        table = arviz.compare({name: one.raw for name, one in candidates.items()}, method="stacking")
    return {name: float(table.loc[name, "weight"]) for name in candidates}


def mixing(posterior: xr.Dataset) -> dict[str, xr.Dataset]:
    """``r_hat`` (rank-normalised, split), ``bulk`` and ``tail`` effective sample sizes of each variable (Vehtari et al.
    2021, "Rank-normalization, folding, and localization").

    Args:
        posterior: (chain, draw, ...) variables.
    """
    import arviz

    with np.errstate(divide="ignore", invalid="ignore"):
        # Draws that never moved give NaN, which whoever asked has to judge.
        return {
            "r_hat": arviz.rhat(posterior),
            "bulk": arviz.ess(posterior, method="bulk"),
            "tail": arviz.ess(posterior, method="tail"),
        }


def energy_fraction(energy: NDArray[np.float64]) -> NDArray[np.float64]:
    """(chains,) estimated Bayesian fraction of missing information (Betancourt 2016, "Diagnosing suboptimal cotangent
    disintegrations") of (chain, draw) energies."""
    import arviz

    return np.asarray(arviz.bfmi(np.asarray(energy, np.float64)), np.float64)


def pareto_k(log_ratios: NDArray[np.float64]) -> float:
    """Shape of the tail of importance ratios (Vehtari et al. 2024, "Pareto smoothed importance sampling") of
    independent draws, from their logs."""
    import arviz

    if first_line():
        return float(arviz.psislw(log_ratios)[1])
    # The line 1.x takes minus the logs, as the likelihood is given to leave-one-out.
    return float(xr.DataArray(-log_ratios, dims="draw").azstats.psislw(dim="draw")[1])


def power_sensitivity(
    posterior: xr.Dataset,
    log_prior: xr.Dataset,
    log_likelihood: xr.DataArray,
    component: str,
    names: Sequence[str] | None = None,
) -> xr.Dataset:
    """How fast the posterior of each variable moves when the prior or the likelihood is raised to a power: the
    sensitivity of Kallioinen et al. (2024), from a cumulative Jensen-Shannon distance.

    Args:
        posterior: (chain, draw, ...) variables.
        log_prior: (chain, draw) log prior densities.
        log_likelihood: (chain, draw) log likelihood.
        component: "prior" or "likelihood".
        names: variables of ``log_prior`` that are powered together; default all.
    """
    import arviz

    chosen = log_prior if names is None else log_prior[list(names)]
    likelihood = log_likelihood.to_dataset(name="questions")
    data = container({"posterior": posterior, "log_prior": chosen, "log_likelihood": likelihood})
    if first_line():
        return arviz.psens(data, component=component, delta=DELTA)
    return arviz.psense(  # type: ignore[attr-defined]
        data, group=component, alphas=(1 / (1 + DELTA), 1 + DELTA)
    )
