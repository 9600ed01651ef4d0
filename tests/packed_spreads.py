"""Packed parameters as numpyro has them: it takes the log of a parameter with a half-normal prior."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nousppl.inference.packed import Packing, half_normal
from nousppl.models.program import Plan


def by_log(plan: Plan, pack: Packing, vector: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
    """The vector with those logs, and the log of the change of density."""
    priors = {site.name: site.prior for site in plan.sites if site.scale is None}
    logs, change = np.array(vector, np.float64), 0.0
    for slot in pack.slots:
        if slot.name in priors and priors[slot.name].family == "HalfNormal":
            packed = float(vector[slot.start])
            value = float(half_normal(np.asarray(packed)))
            logs[slot.start] = np.log(priors[slot.name].parameters["scale"] * value)
            # Equal masses: 2 phi(value) d value = phi(packed) d packed.
            change += 0.5 * (value**2 - packed**2) - np.log(2.0 * value)
    return logs, change
