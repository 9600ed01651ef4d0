"""Similarity of the texts of claims: evidence that one repeats the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from rapidfuzz import fuzz
from rapidfuzz.process import cpdist

from nousppl.denied import exact_groups
from nousppl.encode import Encoded
from nousppl.listed import recent, same_value
from nousppl.ragged import Ints
from nousppl.slots import Chains, Slots

GRID = 101


def listed_pairs(
    encoded: Encoded, slots: Slots, claims: Ints, by_cell: Chains, groups: tuple[tuple[int, ...], ...]
) -> dict[str, Any]:
    """Pairs of a row and an earlier one with the same value among the most recent claims, with the similarity of their
    texts.

    Pairs are listed by recency alone, whatever their values, up to ``Origin.max_listed``; of these only the ones that
    say the same matter, since similarity multiplies matches.
    """
    if encoded.text is None or encoded.origin is None:
        return {}
    later, earlier = recent(slots, encoded.origin.max_listed)
    row, earlier_row, _ = same_value(slots, by_cell, later, earlier)
    later, earlier = slots.row_slot[row], slots.row_slot[earlier_row]
    of_later, of_earlier = claims[slots.claim[later]], claims[slots.claim[earlier]]
    return {
        "pair_row": row,
        "pair_origin_slot": earlier,
        "pair_share": encoded.row_share[slots.row[earlier_row]],
        "pair_lag": np.maximum(slots.time[later] - slots.time[earlier], 0.0),
        "pair_group": exact_groups(encoded, of_later, of_earlier, groups),
        "pair_similarity": similarity(encoded, of_later, of_earlier),
    }


def similarity(encoded: Encoded, left: Ints, right: Ints) -> np.ndarray:
    """Token-order-free similarity of the texts of pairs of claims, from 0 to 1 (rapidfuzz ``token_sort_ratio``)."""
    assert encoded.text is not None
    low, high = np.minimum(left, right), np.maximum(left, right)
    pairs, back = np.unique(low * (len(encoded.text) + 1) + high, return_inverse=True)
    first, second = encoded.text[pairs // (len(encoded.text) + 1)], encoded.text[pairs % (len(encoded.text) + 1)]
    scores = cpdist(list(first), list(second), scorer=fuzz.token_sort_ratio) / 100.0 if len(pairs) else np.zeros(0)
    scores = np.where((first == "") | (second == ""), 0.0, scores) if len(pairs) else scores
    return np.asarray(scores, float)[back]


def grid_of(similarities: np.ndarray) -> np.ndarray:
    """Quantiles of the similarities of same-value pairs: what the likelihood ratio of a similarity is relative to."""
    if not len(similarities):
        return np.zeros(GRID)
    return np.quantile(similarities, np.linspace(0.0, 1.0, GRID))
