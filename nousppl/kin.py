"""Which sources echo each other: tables of learned affinities, and the groups that they form."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.blueprint import Blueprint
from nousppl.models.program import AFFINITY_LIMIT

Draws = dict[str, NDArray[np.float64]]
COLUMNS = ["source", "origin", "met", "weight", "lower", "upper", "repeats", "repeats_lower"]
QUANTILES = (0.05, 0.95)
LIKELY = 0.95


def echoes(blueprint: Blueprint, flat: Draws) -> pd.DataFrame:
    """Pairs of sources by the posterior of the weight with which the one repeats the other.

    Returns:
        A row a pair, heaviest first: source, origin (the one that it may repeat; where the order of claims does not
        tell who repeats whom, a pair stands once), met (number of questions in which the two meet), weight (posterior
        median, against 1 for an average source's looking for itself), lower and upper (90 % interval), repeats (mean of
        ``weight / (1 + weight)``: the chance that a claim repeats the other one's, had nobody else spoken) and
        repeats_lower (its 5 % quantile).
    """
    affinity = blueprint.affinity
    if affinity is None or not len(affinity):
        return pd.DataFrame({name: pd.Series(dtype=object if i < 2 else float) for i, name in enumerate(COLUMNS)})
    log_weight = flat["origin_log_strangers"][:, None] + np.minimum(flat["origin_affinity"], AFFINITY_LIMIT)
    labels = np.array([*affinity.labels, None], object)[:-1]
    lower, middle, upper = np.exp(np.quantile(log_weight, (QUANTILES[0], 0.5, QUANTILES[1]), axis=0))
    values = (
        labels[affinity.later],
        labels[affinity.earlier],
        affinity.met,
        middle,
        lower,
        upper,
        (1.0 / (1.0 + np.exp(-log_weight))).mean(0),
        lower / (1.0 + lower),
    )
    table = pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))
    return table.sort_values(["weight", "source", "origin"], ascending=[False, True, True], ignore_index=True)


def echo_groups(table: pd.DataFrame, least: float = LIKELY) -> list[frozenset[object]]:
    """Groups of sources that echo each other, largest first; a source may belong to several.

    Pairs whose ``repeats_lower`` is at least ``least`` make a graph: with 95 % probability, so large a share of claims
    would be repeated. Its triangles that share an edge are one group (clique
    percolation with k = 3, Palla et al. 2005), so that two groups which share one member stay two; pairs in no triangle
    are groups of their own.

    Args:
        table: see `echoes`.
        least: the least chance to repeat, between 0 and 1.
    """
    import networkx as nx

    chosen = table[table["repeats_lower"] >= least]
    graph = nx.Graph()
    graph.add_edges_from(zip(chosen["source"], chosen["origin"], strict=True))
    groups = [frozenset(group) for group in nx.community.k_clique_communities(graph, 3)] if graph else []
    inside = {frozenset(edge) for group in groups for edge in graph.subgraph(group).edges}
    groups += [frozenset(edge) for edge in graph.edges if frozenset(edge) not in inside]
    return sorted(groups, key=lambda group: (-len(group), _names(group)))


def _names(group: Iterable[object]) -> list[str]:
    return sorted(map(str, group))
