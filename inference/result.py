"""What every method of inference returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Fit(NamedTuple):
    """Draws of the parameters from their posterior, and how they were obtained."""

    draws: dict[str, NDArray[np.floating[Any]]]
    """Site -> (chains, draws) or (chains, draws, size), on the natural scale."""
    stats: dict[str, NDArray[np.floating[Any]]]
    """Per draw or per step: ``loss`` for SVI; ``diverging`` and the like for NUTS, (chains, draws)."""
    converged: bool
    advice: str
    """In words: what happened, and what to do if it went wrong."""
    backend: Any
    """The backend's own object: the variational state, ``numpyro.infer.MCMC``, or ``pyro.infer.MCMC`` by chain."""
