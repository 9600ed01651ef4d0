"""Blocks of SVI steps on torch: what ``nousppl.inference.svi`` compiles for jax, step by step.

The noise, the batches, the judgement of convergence and the averaging are those of the one fit in
``nousppl.inference.svi``, so that a seed gives the same draws up to rounding on both backends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nousppl.errors import InferenceError
from nousppl.inference.guide import STRIDE, State
from nousppl.inference.options import SVI
from nousppl.inference.packed import Packing, log_density
from nousppl.inference.torch_backend import Torch, one_thread
from nousppl.models.layout import Layout
from nousppl.models.program import Plan

Parts = Any
"""Mean, factor and log scale of `State` as tensors."""


class Blocks:
    """See ``nousppl.inference.svi.Blocks``.

    Raises:
        InferenceError: an optimiser of optax, which does not run on torch.
    """

    def __init__(
        self, plan: Plan, layout: Layout, pack: Packing, batches: tuple[Any, Any], options: SVI, still: tuple[str, ...]
    ) -> None:
        if options.optim is not None:
            raise InferenceError("SVI(optim=...) is an optax transformation of jax; backend='pyro' takes Adam steps")
        xp = Torch()
        self.xp, self.pack, self.still = xp, pack, still
        self.density = log_density(xp, plan, layout, pack)
        shared, split = xp.arrays(batches[0]), xp.arrays(batches[1])
        count = len(next(iter(split.values())))
        self.batches = [shared | {name: value[i] for name, value in split.items()} for i in range(count)]
        self.moving, self.free = (xp.array(mask) for mask in pack.masks(still))

    def restart(self, state: State) -> None:
        """Forget the moments of the gradients."""
        self.parts: Parts = tuple(
            torch.tensor(np.asarray(part), dtype=self.xp.dtype, requires_grad=True) for part in state
        )
        self.adam = torch.optim.Adam(self.parts)

    def run(
        self,
        noise: NDArray[np.float64],
        index: NDArray[np.int64],
        at_vote: bool,
        spread: float,
        rate: float,
    ) -> tuple[State, State, NDArray[np.float64]]:
        """As ``nousppl.inference.svi.Blocks.run``."""
        losses, totals = [], [torch.zeros_like(part) for part in self.parts]
        self.adam.param_groups[0]["lr"] = rate
        vote = {"at_vote": self.xp.array(1.0)} if at_vote else {}
        with one_thread():
            for eps, i in zip(self.xp.array(spread * noise), index, strict=True):
                self.adam.zero_grad()
                vectors = transform(self.parts, eps)
                data = self.batches[i] | vote
                value = torch.stack([self.density(vector, data) for vector in vectors]).mean()
                loss = -(value + spread * entropy(self.parts))
                loss.backward()
                self._hold(spread)
                self.adam.step()
                losses.append(loss.detach())
                for total, part in zip(totals, self.parts, strict=True):
                    total += part.detach()
        latest: Any = [total.numpy() / len(noise) for total in totals]
        now: Any = [part.detach().numpy().copy() for part in self.parts]
        return State(*now), State(*latest), torch.stack(losses).numpy().astype(np.float64)

    def _hold(self, spread: float) -> None:
        """No gradient for what stays as it is."""
        mean, factor, log_scale = (part.grad for part in self.parts)
        if spread == 0.0:
            mean *= self.moving
        if self.still:
            full = self.pack.full
            mean *= self.free
            factor *= self.free[:full, None]
            log_scale *= self.free[full:]


def transform(parts: Parts, noise: torch.Tensor) -> torch.Tensor:
    """As ``nousppl.inference.guide.transform``: standard normal noise (..., size) -> draws of the packed parameters."""
    mean, factor, log_scale = parts
    full = len(factor)
    unit = torch.eye(full, dtype=factor.dtype) + STRIDE * torch.tril(factor, -1)
    lower = torch.exp(torch.diagonal(factor))[:, None] * unit
    rest = noise[..., full:] * torch.exp(log_scale)
    return mean + torch.cat([noise[..., :full] @ lower.T, rest], dim=-1)


def entropy(parts: Parts) -> torch.Tensor:
    """As ``nousppl.inference.guide.entropy``."""
    return torch.diagonal(parts[1]).sum() + parts[2].sum()
