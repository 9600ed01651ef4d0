"""Listed pairs of claims: what cannot be summed by groups is listed pair by pair, up to a number of most recent claims.

Pairs are listed by recency alone, whatever their values: a cap that looked at values would change the law of what is
said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.encode import Encoded
from nousppl.own import pair_reads
from nousppl.ragged import Ints, ranges
from nousppl.slots import Chains, Slots


def recent(slots: Slots, most: int) -> tuple[Ints, Ints]:
    """(later, earlier) slots of the same instance at most ``most`` places apart, by later slot."""
    place = np.arange(len(slots.claim)) - slots.start[slots.instance]
    count = np.minimum(place, most)
    later = np.repeat(np.arange(len(count)), count)
    return later, ranges(np.arange(len(count)) - count, count)


def same_value(slots: Slots, by_cell: Chains, later: Ints, earlier: Ints) -> tuple[Ints, Ints, Ints]:
    """Pairs of rows of these pairs of slots that name the same answer: later row, earlier row, and which pair."""
    first = np.searchsorted(slots.row_slot, np.arange(len(slots.claim)))
    if len(slots.row) == len(slots.claim):
        match = np.flatnonzero(slots.row_value[later] == slots.row_value[earlier])
        return later[match], earlier[match], match
    count = np.bincount(slots.row_slot, minlength=len(slots.claim))
    row = ranges(first[later], count[later])
    which = np.repeat(np.arange(len(later)), count[later])
    total = len(slots.claim) + 1
    key = slots.row_value[by_cell.order] * total + slots.row_slot[by_cell.order]
    wanted = slots.row_value[row] * total + earlier[which]
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    match = key[place] == wanted if len(key) else np.zeros(0, bool)
    return row[match], by_cell.order[place[match]], which[match]


def listed_affinities(encoded: Encoded, slots: Slots, claims: Ints, by_cell: Chains) -> dict[str, NDArray[Any]]:
    """Pairs of a claim and an earlier one whose sources have a weight of their own, among the most recent claims.

    Returns:
        ``kin_row``, ``kin_slot``, ``kin_link``, ``kin_share``, ``kin_lag``: pairs of a row and an earlier slot that
        says the same; ``apart_...``: pairs of two slots, with the share that the earlier one gives to answers that the
        later one does not name. Links are one-based into ``link_pair``, the pairs that occur.
    """
    affinity, code = encoded.affinity, encoded.affinity_code
    if affinity is None or code is None or encoded.origin is None:
        return {}
    later, earlier = recent(slots, encoded.origin.max_listed)
    of = code[claims[slots.claim]] if len(slots.claim) else np.zeros(0, np.int64)
    link = affinity.link(of[later], of[earlier])
    later, earlier, link = later[link > 0], earlier[link > 0], link[link > 0]
    pairs, link = np.unique(link, return_inverse=True)
    lag = np.maximum(slots.time[later] - slots.time[earlier], 0.0)
    row, earlier_row, which = same_value(slots, by_cell, later, earlier)
    share = encoded.row_share[slots.row[earlier_row]]
    left = 1.0 - np.bincount(which, weights=share, minlength=len(later))
    apart = np.flatnonzero(left > 1e-9)
    return {
        "link_pair": pairs - 1,
        "kin_row": row,
        "kin_slot": earlier[which],
        "kin_link": link[which] + 1,
        "kin_share": share,
        "kin_lag": lag[which],
        "apart_slot": later[apart],
        "apart_origin": earlier[apart],
        "apart_link": link[apart] + 1,
        "apart_share": left[apart],
        "apart_lag": lag[apart],
    }


def listed_own(encoded: Encoded, slots: Slots, claims: Ints, by_cell: Chains) -> dict[str, NDArray[Any]]:
    """All pairs of a claim and one of its most recent earlier ones, where the model has pair terms of the user's own.

    Returns:
        ``listed_slot``, ``listed_origin``, ``listed_lag``: later slot, earlier slot and time between; ``listed_own``
        (reads, pairs): what the terms read; ``echo_row``, ``echo_pair``, ``echo_share``: pairs of a row and an earlier
        one with the same value, in the order of those with text.
    """
    columns = encoded.own_pairs
    if columns is None or encoded.origin is None:
        return {}
    later, earlier = recent(slots, encoded.origin.max_listed)
    lag = np.maximum(slots.time[later] - slots.time[earlier], 0.0)
    row, earlier_row, which = same_value(slots, by_cell, later, earlier)
    return {
        "listed_slot": later,
        "listed_origin": earlier,
        "listed_lag": lag,
        "listed_own": pair_reads(columns, claims[slots.claim[later]], claims[slots.claim[earlier]], lag),
        "echo_row": row,
        "echo_pair": which,
        "echo_share": encoded.row_share[slots.row[earlier_row]],
    }


def pair_links(
    encoded: Encoded, slots: Slots, claims: Ints, data: dict[str, NDArray[Any]], links: Ints
) -> NDArray[np.int64]:
    """(pairs,) one-based link of each listed pair of texts; 0 where the two have no weight of their own."""
    assert encoded.affinity is not None and encoded.affinity_code is not None
    of = encoded.affinity_code[claims[slots.claim]]
    pair = encoded.affinity.link(of[slots.row_slot[data["pair_row"]]], of[data["pair_origin_slot"]])
    place = np.minimum(np.searchsorted(links, pair - 1), len(links) - 1)
    return np.where((pair > 0) & (links[place] == pair - 1), place + 1, 0)
