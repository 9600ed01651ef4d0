"""The readable program of one question on pyro, and its exact answers with every discrete site enumerated.

``enumeration`` has the same on numpyro.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from numpy.typing import ArrayLike
from pyro import poutine
from pyro.infer import TraceEnum_ELBO
from torch.distributions import constraints
from torch.nn.functional import pad

from nousppl.models import reference
from nousppl.models.dense import DenseQuestion
from nousppl.models.reference import Grid


class Pyro:
    """``nousppl.models.sites.Sites`` on torch tensors and pyro sites.

    Args:
        dtype: the working precision; default torch's default type.
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = torch.get_default_dtype() if dtype is None else dtype

    def arrays(self, question: Any) -> Any:
        """The question with tensors."""
        return question._replace(**{n: self.array(x) for n, x in question._asdict().items() if hasattr(x, "shape")})

    def array(self, x: Any) -> torch.Tensor:
        """Numbers as a tensor in the working precision."""
        return torch.tensor(np.asarray(x), dtype=self.dtype)

    def integers(self, x: Any) -> torch.Tensor:
        """Integers as a tensor of 64 bits, which torch wants for indices."""
        return torch.tensor(np.asarray(x), dtype=torch.int64)

    def zeros(self, *shape: int) -> torch.Tensor:
        """As ``torch.zeros``."""
        return torch.zeros(shape, dtype=self.dtype)

    def arange(self, size: int) -> torch.Tensor:
        """As ``torch.arange``."""
        return torch.arange(size)

    def one_hot(self, index: torch.Tensor, size: int) -> torch.Tensor:
        """1 at the index, all zeros where that is negative."""
        return (self.arange(size) == index[..., None]).to(self.dtype)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> torch.Tensor:
        """As ``torch.where``; the condition may be one bool."""
        return torch.where(torch.as_tensor(condition), x, y)

    @staticmethod
    def sigmoid(x: torch.Tensor) -> torch.Tensor:
        """The logistic function."""
        return torch.sigmoid(x)

    @staticmethod
    def at_most(x: torch.Tensor, bound: Any) -> torch.Tensor:
        """As ``torch.clamp``."""
        return torch.clamp(x, max=bound)

    @staticmethod
    def at_least(x: torch.Tensor, bound: Any) -> torch.Tensor:
        """As ``torch.clamp``."""
        return torch.clamp(x, min=bound)

    @staticmethod
    def largest(x: torch.Tensor) -> torch.Tensor:
        """Maximum along the last axis."""
        return x.amax(-1)

    @staticmethod
    def append(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Along the first axis."""
        return torch.cat([x, y])

    @staticmethod
    def pair(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """As ``torch.stack``."""
        return torch.stack([x, y], dim=-1)

    @staticmethod
    def choose(name: str, law: torch.Tensor, said: int | None = None) -> torch.Tensor:
        """A categorical pyro site."""
        # By logits: torch raises a probability of zero to the smallest that it can tell from one.
        law = dist.Categorical(logits=torch.log(law))
        if said is not None:
            return pyro.sample(name, law, obs=torch.tensor(said))
        return pyro.sample(name, law, infer={"enumerate": "parallel"})

    def normal(self, name: str) -> torch.Tensor:
        """A standard normal pyro site."""
        return pyro.sample(name, dist.Normal(self.zeros(), self.zeros() + 1.0))

    @staticmethod
    def say(name: str, law: torch.Tensor, silent: torch.Tensor, said: torch.Tensor | None) -> torch.Tensor:
        """A pyro site with a `Saying` distribution."""
        return pyro.sample(name, Saying(law).mask(~silent), obs=said)


def program(
    question: DenseQuestion, values: ArrayLike | None = None, grid: Grid | None = None, dtype: torch.dtype | None = None
) -> None:
    """See ``nousppl.models.reference.program``: a pyro model.

    Args:
        question, values, grid: see there.
        dtype: the working precision; default torch's default type.
    """
    reference.program(Pyro(dtype), question, values, grid)


class Saying(dist.TorchDistribution):
    """See ``nousppl.models.sites.Sites.say``. Draws are one-hot."""

    arg_constraints: ClassVar[dict[str, Any]] = {"law": constraints.nonnegative}
    support = constraints.real_vector
    has_rsample = False

    def __init__(self, law: torch.Tensor, validate_args: bool | None = None) -> None:
        self.law = law
        super().__init__(law.shape[:-1], law.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Saying:
        """With its law expanded."""
        return Saying(self.law.expand(*batch_shape, *self.event_shape))

    def sample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        """One-hot rows, sample_shape + (..., K)."""
        value = dist.Categorical(logits=torch.log(self.law)).sample(torch.Size(sample_shape))
        return (torch.arange(self.law.shape[-1]) == value[..., None]).to(self.law.dtype)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log probability of rows of weights (..., K)."""
        none = 1 - value.sum(-1)
        return torch.log(none / self.law.shape[-1] + (value * self.law).sum(-1))


# ------------------------------------------------------------------------------------------------------ exact answers


def log_evidence(
    question: DenseQuestion, values: ArrayLike, grid: Grid | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """log P(x), with truth, origins and difficulty enumerated; where answers are rejected, of claims and rejections.

    Arguments as for ``program``; where there is a difficulty the grid is by default ``reference.equispaced()``. This
    function and the two below raise InferenceError above ``reference.MOST_CLAIMS`` claims.
    """
    loss = TraceEnum_ELBO(max_plate_nesting=0).loss(*_model(question, values, grid, dtype))
    return torch.tensor(np.log(np.sum(question.prior)) - loss, dtype=dtype)


def posterior(
    question: DenseQuestion, values: ArrayLike, grid: Grid | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """(K,): P(truth | x)."""
    return _marginals(question, values, grid, dtype)["truth"]


def origins(
    question: DenseQuestion, values: ArrayLike, grid: Grid | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """(n, 1 + n): P(claim j is fresh | x) in column 0 and P(it repeats claim k | x) in column 1 + k.

    The row of an own note that repeats nothing is zero: it has no origin.
    """
    n = len(question.alpha)
    found = _marginals(question, values, grid, dtype)
    table = torch.stack([pad(found[f"origin_{j}"], (0, n - j)) for j in range(n)]) if n else torch.zeros(0, 1)
    never_fresh = torch.tensor(np.asarray(question.alpha) == 0) & (table[:, 0] == 1)
    return torch.where(never_fresh[:, None], 0.0, table)


def _marginals(
    question: DenseQuestion, values: ArrayLike, grid: Grid | None, dtype: torch.dtype | None
) -> dict[str, torch.Tensor]:
    """Posterior of every discrete site by its name."""
    found = TraceEnum_ELBO(max_plate_nesting=0).compute_marginals(*_model(question, values, grid, dtype))
    return {"origin_0": torch.ones(1, dtype=dtype)} | {name: law.probs for name, law in found.items()}


def _model(question: DenseQuestion, values: ArrayLike, grid: Grid | None, dtype: torch.dtype | None) -> tuple[Any, Any]:
    """The program and an empty guide. Sites with a single value are held at it: pyro's marginals have none of them."""
    grid = reference.enumerable(question, grid)
    single = ["origin_0", "difficulty"] if len(np.asarray(grid.nodes)) == 1 else ["origin_0"]
    held = dict.fromkeys(single, torch.tensor(0))
    return poutine.condition(partial(program, question, values, grid, dtype), held), lambda: None
