"""How a fit is computed: options of the two methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from nousppl.errors import InferenceError, ModelError

AT_ONCE = 50_000_000
"""Numbers that one temporary array of the evaluations at the nodes of the difficulty may hold."""


BACKENDS = ("numpyro", "pyro")
CHAIN_METHODS = ("parallel", "sequential", "vectorized")


def check_backend(backend: str) -> None:
    """See that a backend can be used.

    Raises:
        ModelError: there is no such backend, or what it needs is not installed.
    """
    if backend not in BACKENDS:
        raise ModelError(f"backend={backend!r}: allowed are 'numpyro' and 'pyro'")
    if backend == "pyro":
        try:
            import_module("pyro")
        except ImportError as error:
            raise ModelError(
                f"backend='pyro' needs torch and pyro, the extra of that name: pip install nousppl[pyro] ({error})"
            ) from error


@dataclass(frozen=True)
class SVI:
    """Stochastic variational inference (Hoffman et al. 2013; reparameterised gradients).

    Above ``batch_claims`` a step sees a random batch of the questions, weighted so that batches stand for all of them;
    sources that a batch does not hold are left to their prior. Means then end where those of a fit on all questions
    end, within a tenth of a posterior standard deviation (root mean square over 30 sources; the largest was .14).

    Intervals by simulation-based calibration (``tests/benchmarks/sbc.py``; 256 data sets): of small fits, whose draws
    are weighed, 90 % intervals hold .90 to .93 of the true values where there are no echoes, and .83 (effects of kinds)
    to .93 where there are. Of larger ones draws are not weighed, and intervals of spreads are narrower: .81 in the same
    data without echoes, .76 with them. Against NUTS (``tests/benchmarks/agreement.py``) the means of weighed fits lie
    within .1 standard deviations (root mean square .03), and the standard deviations are .98 of those of NUTS in the
    median, .79 in the spread of five kinds. Parameters beyond ``full_size`` are independent in the guide, which narrows
    them further. Where the width of an interval matters and the data are small, use `NUTS`. A learning rate far below
    the default can end in a poorer optimum, where the effects of sources and their standard deviation have shrunk to 0
    together.

    Attributes:
        guide: "structured" (full covariance over top-level parameters and group effects up to ``full_size``,
            mean-field for the rest), or "mean_field" (all parameters independent; ``full_size`` then becomes 0).
        optim: an optax gradient transformation, on numpyro only; default Adam.
        steps: most steps that are taken; the fit stops earlier when the loss has settled.
        learning_rate: step size of the default optimiser at the start; it is lowered when the loss stops falling.
        samples: Monte-Carlo samples of the gradient a step.
        draws: number of draws of the parameters that the trust keeps.
        full_size: most parameters in the full-covariance block.
        tolerance: the fit has settled when a block of steps lowers the mean loss by less than this share of its
            noise.
        batch_claims: above this many claims a step sees a batch of the questions, below it all of them.
        weighed: the draws that the trust keeps are taken from so many of the guide, by their importance; 0 keeps draws
            of the guide as they are. Not done above 20,000 claims or 128 parameters, nor with more than one sample
            a step.
    """

    guide: str = "structured"
    optim: Any = None
    steps: int = 4000
    learning_rate: float = 0.05
    samples: int = 1
    draws: int = 200
    full_size: int = 200
    tolerance: float = 0.5
    batch_claims: int = 400_000
    weighed: int = 1000

    def __post_init__(self) -> None:
        if self.steps < 1 or self.draws < 1 or self.samples < 1:
            raise InferenceError("SVI: steps, draws and samples must be at least 1")
        if self.weighed < 0:
            raise InferenceError(f"SVI(weighed={self.weighed}): give the number of draws to weigh, or 0")
        if not self.learning_rate > 0:
            raise InferenceError(f"SVI(learning_rate={self.learning_rate}): must be above 0")
        if self.guide not in ("structured", "mean_field"):
            raise InferenceError(f"SVI(guide={self.guide!r}): allowed are 'structured' and 'mean_field'")
        if self.guide == "mean_field":
            object.__setattr__(self, "full_size", 0)


@dataclass(frozen=True)
class NUTS:
    """The no-U-turn sampler (Hoffman & Gelman 2014) of numpyro, or of pyro.

    Effects of levels with many claims are sampled on their own scale and together with what lies above them, those of
    the others in units of their standard deviation (``nousppl.inference.location``).

    Two chains on two processors that others used too (5,000 questions of 8 claims, 200 sources; 200 + 200
    transitions): 48 s in threads of their own, 61 s one after the other, 66 s in one vectorised loop, in which every
    transition waits for the longest tree.

    Attributes:
        num_warmup: adaptation steps a chain.
        num_samples: draws a chain.
        num_chains: number of chains.
        chain_method: "parallel" (each chain in a thread of its own), "sequential" (the same draws, one chain after the
            other) or "vectorized" (all in one loop: for accelerators); on pyro always sequential.
        kernel: further arguments of the backend's ``infer.NUTS``, for instance ``{"target_accept_prob": 0.9}``.
    """

    num_warmup: int = 500
    num_samples: int = 500
    num_chains: int = 2
    chain_method: str = "parallel"
    kernel: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_warmup < 0 or self.num_samples < 4 or self.num_chains < 1:
            raise InferenceError(
                "NUTS: num_samples must be at least 4, since chains are compared in halves, num_chains at least 1 and "
                "num_warmup at least 0"
            )
        if self.chain_method not in CHAIN_METHODS:
            raise InferenceError(
                f"NUTS(chain_method={self.chain_method!r}): allowed are 'parallel', 'sequential' and 'vectorized'"
            )
