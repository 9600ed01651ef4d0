"""The namespace of the models on pyro and torch; loaded only where the second backend is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from torch.distributions import constraints
from torch.nn.functional import pad

from nousppl.errors import ModelError
from nousppl.inference.options import AT_ONCE
from nousppl.models.namespace import FARTHEST
from nousppl.models.priors import Prior
from nousppl.models.program import Law


class Torch:
    """``nousppl.models.namespace.Namespace`` on torch tensors and pyro sites.

    Args:
        dtype: the working precision; default torch's default type. Indices are 64 bits, as torch wants them.
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = torch.get_default_dtype() if dtype is None else dtype

    def arrays(self, data: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """The arrays of a problem as tensors in the working precision."""
        out = {}
        for name, value in data.items():
            array = np.asarray(value)
            dtype = {"f": self.dtype, "b": torch.bool}.get(array.dtype.kind, torch.int64)
            out[name] = torch.tensor(array, dtype=dtype)
        return out

    def distribution(self, prior: Prior) -> dist.TorchDistribution:
        """The pyro distribution of a prior.

        Raises:
            ModelError: pyro has no distribution of that name.
        """
        family = getattr(dist, prior.family, None)
        if family is None:
            raise ModelError(f"the prior {prior} has no counterpart in pyro.distributions: fit it with numpyro")
        return family(**{name: self.array(value) for name, value in prior.parameters.items()})

    def exp(self, x: Any) -> torch.Tensor:
        """As ``torch.exp``."""
        return torch.exp(self.array(x))

    def log(self, x: Any) -> torch.Tensor:
        """As ``torch.log``."""
        return torch.log(self.array(x))

    def log1p(self, x: Any) -> torch.Tensor:
        """As ``torch.log1p``."""
        return torch.log1p(self.array(x))

    def sigmoid(self, x: Any) -> torch.Tensor:
        """The logistic function."""
        return torch.sigmoid(self.array(x))

    def half_normal(self, x: Any) -> torch.Tensor:
        """As on jax; tails by ``erfc``, since ``torch.special.ndtr`` has none."""
        below, above = torch.clamp(x, -FARTHEST, 0.0), torch.clamp(x, 0.0, FARTHEST)
        root = math.sqrt(2.0)
        low = root * torch.erfinv(0.5 * torch.erfc(-below / root))
        return torch.where(x < 0.0, low, -torch.special.ndtri(0.25 * torch.erfc(above / root)))

    def where(self, condition: Any, x: Any, y: Any) -> torch.Tensor:
        """As ``torch.where``."""
        return torch.where(condition, x, self.array(y) if isinstance(x, float) else y)

    def minimum(self, x: Any, y: Any) -> torch.Tensor:
        """As ``torch.minimum``."""
        return torch.minimum(self.array(x), self.array(y))

    def maximum(self, x: Any, y: Any) -> torch.Tensor:
        """As ``torch.maximum``."""
        return torch.maximum(self.array(x), self.array(y))

    def mean(self, x: Any) -> torch.Tensor:
        """As ``torch.mean``."""
        return torch.mean(x)

    def zeros(self, size: int) -> torch.Tensor:
        """Zeros of shape (size,)."""
        return torch.zeros(size, dtype=self.dtype)

    def array(self, x: Any) -> torch.Tensor:
        """A constant; tensors are left as they are."""
        return x if isinstance(x, torch.Tensor) else torch.as_tensor(x, dtype=self.dtype)

    def stack(self, arrays: Sequence[Any]) -> torch.Tensor:
        """A new first axis."""
        return torch.stack([self.array(a) for a in arrays])

    def after_zero(self, x: Any) -> torch.Tensor:
        """One element longer."""
        return pad(x, (1, 0))

    def take(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Gather; the indices of padding give the last element, or 0 where there is none, without a gradient."""
        size = len(x)
        if not size:
            return x.new_zeros(index.shape)
        longer = torch.cat([x, x[-1:].detach()])
        # Its gradient is a sum by index, several times faster than that of x[index].
        return torch.index_select(longer, 0, index.reshape(-1).clamp(max=size)).reshape(index.shape)

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        """Rounded, 64 bits."""
        return torch.round(x).to(torch.int64)

    def permuted(self, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        """As ``take``."""
        return self.take(x, order)

    def positive(self, index: torch.Tensor) -> torch.Tensor:
        """Indices with the negative ones set to 0."""
        return index.clamp(min=0)

    def shift(self, x: torch.Tensor, by: Any) -> torch.Tensor:
        """Move to the right along the last axis."""
        size = x.shape[-1]
        return pad(x, (int(by), 0))[..., :size]

    def fold_doubling(self, function: Callable[[Any, Any], Any], start: Any, rounds: int) -> Any:
        """A loop."""
        for i in range(rounds):
            start = function(1 << i, start)
        return start

    def rows(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """As ``torch.index_select``; there is no padding whose index would be too large."""
        return torch.index_select(x, 0, index)

    def max_last(self, x: torch.Tensor) -> torch.Tensor:
        """As ``torch.amax``."""
        return x.detach().amax(-1)

    def once(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """As they are: nothing is compiled together."""
        return values

    def fixed(self, x: torch.Tensor) -> torch.Tensor:
        """As ``detach``."""
        return x.detach()

    def erfc(self, x: torch.Tensor) -> torch.Tensor:
        """As ``torch.special.erfc``."""
        return torch.special.erfc(x)

    def with_slopes(self, function: Callable[..., Any], slopes: Callable[..., Any], *x: torch.Tensor) -> torch.Tensor:
        """The function, whose slopes torch finds by itself."""
        found: torch.Tensor = function(*x)
        return found

    def sort_last(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """As ``torch.sort``."""
        rows = max(part.shape[0] for part in parts)
        whole = torch.cat([part.expand(rows, part.shape[1]) for part in parts], dim=1)
        return whole.detach().sort(dim=-1).values

    def cut_evenly(self, x: torch.Tensor, mass: torch.Tensor, points: int) -> torch.Tensor:
        """By interpolation in the running sums."""
        x, mass = x.detach(), mass.detach()
        total = pad(mass.cumsum(-1), (1, 0))
        wanted = total[:, -1:] * torch.arange(points, dtype=total.dtype) / (points - 1.0)
        right = torch.searchsorted(total, wanted, right=True).clamp(1, x.shape[1] - 1)
        low, high = total.gather(1, right - 1), total.gather(1, right)
        width = high - low
        share = torch.where(width > 0.0, (wanted - low) / torch.where(width > 0.0, width, 1.0), 0.0)
        left = x.gather(1, right - 1)
        return left + share.clamp(0.0, 1.0) * (x.gather(1, right) - left)

    def scan(self, function: Callable[[Any, Any], Any], start: Any, over: tuple[torch.Tensor, ...]) -> Any:
        """A loop."""
        outs = []
        for now in zip(*over, strict=True):
            start, out = function(start, now)
            outs.append(out)
        return tuple(torch.stack(parts) for parts in zip(*outs, strict=True))

    def sum_by(self, x: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        """Segment sums; what is out of range goes to an element more, which is cut off."""
        return x.new_zeros(size + 1).index_add(0, index.clamp(max=size), x)[:size]

    def place_of_max_by(self, x: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        """Places of segment maxima above 0, the last of equal ones, else -1."""
        x, index = x.detach(), index.clamp(max=size)
        top = x.new_zeros(size + 1).scatter_reduce(0, index, x, "amax")
        here = torch.where((x > 0.0) & (x >= top[index]), self.arange(len(x)), -1)
        return here.new_full((size + 1,), -1).scatter_reduce(0, index, here, "amax")[:size]

    def arange(self, size: int) -> torch.Tensor:
        """As ``torch.arange``."""
        return torch.arange(size)

    def logsumexp_by(self, x: torch.Tensor, index: torch.Tensor, size: int) -> torch.Tensor:
        """Segment log-sum-exp; empty segments give -inf."""
        inside = index.clamp(max=size)
        top = x.new_full((size + 1,), -torch.inf).scatter_reduce(0, inside, x.detach(), "amax")
        safe = torch.where(torch.isfinite(top), top, 0.0)
        total = self.sum_by(torch.exp(x - self.take(safe, inside)), index, size)
        occupied = total > 0.0
        return torch.where(occupied, safe[:size] + torch.log(torch.where(occupied, total, 1.0)), -torch.inf)

    @staticmethod
    def either(condition: Any, function: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """The one that is asked for."""
        return function() if bool(condition) else other()

    def over_nodes(
        self, function: Callable[[Any], Any], nodes: torch.Tensor, log_weights: torch.Tensor, size: int
    ) -> torch.Tensor:
        """Log of the weighted sum over nodes, as many at once as fit into ``AT_ONCE``."""
        most = max(AT_ONCE // max(size, 1), 1)
        logs = torch.func.vmap(function, chunk_size=min(most, len(nodes)))(nodes)
        return torch.logsumexp(logs + log_weights[:, None], dim=0)

    def log_prob(self, prior: Prior, x: Any) -> torch.Tensor:
        """By the pyro distribution."""
        return self.distribution(prior).log_prob(x)

    def from_real(self, prior: Prior, x: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """By ``torch.distributions.biject_to``."""
        transform = torch.distributions.biject_to(self.distribution(prior).support)
        y = transform(x)
        return y, transform.log_abs_det_jacobian(x, y)

    def sample(self, name: str, prior: Prior, size: int | None = None) -> torch.Tensor:
        """A latent pyro site."""
        base = self.distribution(prior)
        return pyro.sample(name, base if size is None else base.expand([size]).to_event(1))

    def sample_normal(self, name: str, scale: torch.Tensor) -> torch.Tensor:
        """A latent pyro site, Normal(0, scale) by element."""
        return pyro.sample(name, dist.Normal(torch.zeros_like(scale), scale).to_event(1))

    def deterministic(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A pyro deterministic site."""
        return pyro.deterministic(name, value)

    def observe(self, name: str, law: Law, observed: bool) -> None:
        """A pyro site with a `Questions` distribution."""
        questions = Questions(self, law)
        with pyro.plate("question", law.layout.questions):
            pyro.sample(name, questions, obs=questions.said if observed else None)


class Questions(dist.TorchDistribution):
    """``nousppl.models.program.Law`` as a pyro distribution, an event by question."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.independent(constraints.integer_interval(-1, torch.iinfo(torch.int32).max), 1)
    has_rsample = False

    def __init__(self, xp: Torch, law: Law, validate_args: bool | None = None) -> None:
        said = law.data.get("said")
        self.xp, self.law = xp, law
        self.said = torch.zeros((law.layout.questions, 0), dtype=torch.int64) if said is None else said
        super().__init__(self.said.shape[:1], self.said.shape[1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Questions:
        """Itself: there are as many questions as there are.

        Raises:
            ValueError: another number of them.
        """
        if tuple(batch_shape) != tuple(self.batch_shape):
            raise ValueError(f"the law of {tuple(self.batch_shape)} questions cannot be expanded to {batch_shape}")
        return self

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """(questions,) log density of the claims of each question, and its settled truth.

        Raises:
            InferenceError: the value is not the compiled one.
        """
        if value is not self.said and not torch.equal(value.to(torch.int64), self.said):
            raise self.law.refuse()
        return self.law.log_prob(self.xp)

    def sample(self, sample_shape: Sequence[int] = ()) -> torch.Tensor:
        """Draw truths, origins and what claims say."""
        values = {name: value.detach().numpy().astype(np.float64) for name, value in self.law.values.items()}
        seeds = torch.randint(2**31, (math.prod(sample_shape),)).tolist()
        drawn = np.stack([self.law.draw(values, seed) for seed in seeds])
        return torch.tensor(drawn, dtype=torch.int64).reshape(*sample_shape, *self.said.shape)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread, as before afterwards: with more, small operations are many times slower under load."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def random_numbers(seed: int) -> Iterator[None]:
    """torch's random numbers by seed; afterwards they go on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
