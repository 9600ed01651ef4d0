"""Known lineage: claims whose origin is given. Everything is array code over the claims that have an origin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.int64]


def roots(origin: Positions) -> Positions:
    """(J,) the claim at the end of each chain of origins, itself where there is none; -1 where a chain is a circle."""
    here = np.arange(len(origin))
    up = np.where(origin < 0, here, origin)
    for _ in range(max(len(origin), 1).bit_length()):
        up = up[up]
    return np.where(origin[up] < 0, up, -1)


def repeats_of(origin: Positions, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(J,) the claims in `gone` and all claims known to repeat one of them, at any distance."""
    up = np.where(origin < 0, np.arange(len(origin)), origin)
    found = gone.copy()
    for _ in range(max(len(origin), 1).bit_length()):
        found = found | found[up]
        up = up[up]
    return found


def survivors(origin: Positions, kept: Positions) -> Positions:
    """Origins (n,) among the `kept` claims (n sorted positions), counted within them.

    A claim whose origin is not kept repeats the nearest kept claim up its chain. Where the whole chain is gone, the
    first kept claim of the same root stands for it and has no origin, so that what was said once still counts once.
    """
    place = np.full(len(origin), -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    here = np.arange(len(origin))
    up = np.where((origin < 0) | (place >= 0), here, origin)
    for _ in range(max(len(origin), 1).bit_length()):
        up = up[up]
    given = origin[kept]
    new = np.where(given >= 0, place[up[given]], -1)
    orphans = np.flatnonzero((given >= 0) & (new < 0))
    if len(orphans):
        _, first, family = np.unique(roots(origin)[kept[orphans]], return_index=True, return_inverse=True)
        eldest = orphans[first[family]]
        new[orphans] = np.where(eldest == orphans, -1, eldest)
    return new
