"""How a fit is computed: options of the two methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nousppl.errors import InferenceError


@dataclass(frozen=True)
class SVI:
    """Stochastic variational inference (Hoffman et al. 2013; reparameterised gradients).

    Attributes:
        guide: "structured" (full covariance over top-level parameters and group effects up to ``full_size``,
            mean-field for the rest), or an autoguide class of ``numpyro.infer.autoguide``.
        optim: an optax gradient transformation; default Adam.
        steps: most steps that are taken; the fit stops earlier when the loss has settled.
        learning_rate: step size of the default optimiser at the start; it is lowered when the loss stops falling.
        samples: Monte-Carlo samples of the gradient a step.
        draws: number of draws of the parameters that the trust keeps.
        full_size: most parameters in the full-covariance block.
        tolerance: the fit has settled when a block of steps lowers the mean loss by less than this share of its
            noise.
        batch_claims: above this many claims a step sees a batch of the questions, below it all of them.
    """

    guide: Any = "structured"
    optim: Any = None
    steps: int = 4000
    learning_rate: float = 0.05
    samples: int = 1
    draws: int = 200
    full_size: int = 200
    tolerance: float = 0.5
    batch_claims: int = 400_000

    def __post_init__(self) -> None:
        if self.steps < 1 or self.draws < 1 or self.samples < 1:
            raise InferenceError("SVI: steps, draws and samples must be at least 1")
        if not self.learning_rate > 0:
            raise InferenceError(f"SVI(learning_rate={self.learning_rate}): must be above 0")


@dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler (Hoffman & Gelman 2014) of numpyro.

    Attributes:
        num_warmup: adaptation steps a chain.
        num_samples: draws a chain.
        num_chains: number of chains.
        chain_method: "sequential", "vectorized" or "parallel", as in ``numpyro.infer.MCMC``.
        kernel: further arguments of ``numpyro.infer.NUTS``, for instance ``{"target_accept_prob": 0.9}``.
    """

    num_warmup: int = 500
    num_samples: int = 500
    num_chains: int = 2
    chain_method: str = "vectorized"
    kernel: dict[str, Any] = field(default_factory=dict)
