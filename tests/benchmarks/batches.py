"""SVI on batches of questions against SVI on all of them, and both against NUTS: means, and widths of intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.table import Row, at_most, shown
from benchmarks.worlds import model
from numpy.typing import NDArray

import nousppl as nous
from nousppl.simulate import World

LARGE = {"questions": 1600, "sources": 60}
SMALL = {"questions": 300, "sources": 30}
"""Sizes of the worlds; half of the questions are settled and learned from."""
BATCHES = 8
DRAWS = 4000
CHAINS = nous.NUTS(num_warmup=400, num_samples=1000, num_chains=2)
LIMIT = 0.1
"""Posterior standard deviations by which means of reliabilities may differ, as root mean square over sources."""


def evidence_of(world: World) -> nous.Evidence:
    """Its claims, with the settled half."""
    return nous.Evidence(world.claims, settled=world.learn)


def in_batches(evidence: nous.Evidence) -> nous.SVI:
    """Options that make about so many batches of the claims on settled questions."""
    settled = evidence.settled[["entity", "attribute"]]
    claims = len(evidence.claims.merge(settled, on=["entity", "attribute"]))
    return nous.SVI(draws=DRAWS, batch_claims=4 * claims // BATCHES)


def reliabilities(trust: nous.Trust, world: World) -> NDArray[np.float64]:
    """(draws, sources) logit of the reliability of each source."""
    levels, draws = trust.blueprint.encodings["reliability"].levels, trust.flat
    kind_of = world.claims.drop_duplicates("source").set_index("source")["kind"]
    kinds = pd.Index(levels["1|kind"]).get_indexer(kind_of.reindex(list(levels["1|source"])))
    intercept = draws["reliability_Intercept"][:, None]
    return intercept + draws["reliability_1|kind"][:, kinds] + draws["reliability_1|source"]


def apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Root mean square and largest difference of means, in standard deviations of the second."""
    difference = (one.mean(0) - other.mean(0)) / other.std(0)
    return float(np.sqrt(np.square(difference).mean())), float(np.abs(difference).max())


def compared(what: str, where: str, one: NDArray[np.float64], other: NDArray[np.float64]) -> list[Row]:
    """Rows of a comparison of means."""
    rms, most = apart(one, other)
    n = one.shape[1]
    return [
        at_most(f"{what}: reliabilities, difference of means in sd", where, n, rms, LIMIT),
        shown(f"{what}: the largest", where, n, most),
    ]


def widths(svi: nous.Trust, chains: nous.Trust, where: str) -> list[Row]:
    """Standard deviations of SVI over those of NUTS: medians by sort of parameter."""
    sorts: dict[str, list[float]] = {}
    for site in svi.blueprint.plan.sites:
        ratio = svi.flat[site.name].std(0) / chains.flat[site.name].std(0)
        if site.name.endswith("_sigma"):
            sort = "standard deviations of groups"
        elif site.scale is None:
            sort = "top-level parameters"
        else:
            sort = "effects of sources" if site.name.endswith("source") else "effects of kinds"
        sorts.setdefault(sort, []).extend(np.atleast_1d(ratio))
    return [
        shown(
            f"SVI against NUTS: sd ratio, {sort}",
            f"{where}; from {min(r):.2f} to {max(r):.2f}",
            len(r),
            float(np.median(r)),
        )
        for sort, r in sorts.items()
    ]


def rows() -> list[Row]:
    """All rows."""
    world = nous.datasets.world(seed=3, **LARGE)
    evidence, spec = evidence_of(world), model(world)
    full = spec.fit(evidence, nous.SVI(draws=DRAWS), learn_from="settled", seed=1)
    parts = spec.fit(evidence, in_batches(evidence), learn_from="settled", seed=1)
    where = f"world of {LARGE['questions']:,} questions, {BATCHES} batches"
    out = compared("batches against all at once", where, reliabilities(parts, world), reliabilities(full, world))

    world = nous.datasets.world(seed=3, **SMALL)
    evidence, spec = evidence_of(world), model(world)
    chains = spec.fit(evidence, CHAINS, learn_from="settled", seed=1)
    full = spec.fit(evidence, nous.SVI(draws=DRAWS), learn_from="settled", seed=1)
    parts = spec.fit(evidence, in_batches(evidence), learn_from="settled", seed=1)
    where = f"world of {SMALL['questions']:,} questions; {chains.status.partition(';')[0]}"
    for name, trust in (("batches", parts), ("all at once", full)):
        out += compared(f"{name} against NUTS", where, reliabilities(trust, world), reliabilities(chains, world))
    return out + widths(full, chains, where)
