"""Claims in event order: slots, rows and chains of earlier claims.

Where ties or missing times leave the order of a question's claims open, the claims are laid out in several random
orders, keyed by hashes of the claims and never by their place in a table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nousppl.encode import Encoded
from nousppl.ragged import Floats, Ints, group_order, inverse, mix, offsets, ranges, uniform

UNORDERED = 8
"""Random orders that are averaged in a model without origins, where the popularity of wrong answers needs an order."""


@dataclass(frozen=True)
class Slots:
    """Claims in the orders that are averaged."""

    claim: Ints
    """(slots,) index into the problem's claims."""
    instance: Ints
    time: Floats
    question: Ints
    """(instances,)"""
    start: Ints
    """(instances + 1,)"""
    orders: Ints
    """(questions,) number of orders."""
    row: Ints
    """(rows,) index into the evidence's rows."""
    row_slot: Ints
    row_icell: Ints
    row_value: Ints
    """(rows,) equal for rows of an instance that say the same."""
    icell_offset: Ints
    """(instances + 1,)"""
    begin: Floats
    """(instances,) when the first claim was made, from which ``time`` counts; 0 where there is none."""


@dataclass(frozen=True)
class Chains:
    """Order of rows by chain, place in the chain, and the inverse order, for each family of chains."""

    order: Ints
    place: Ints
    inverse: Ints


def lay_out(encoded: Encoded, questions: Ints, claims: Ints, local: Ints, seed: int) -> Slots:
    """Claims of each question in event order; in several random orders where ties or missing times leave it open."""
    coded = encoded.coded
    counts = np.bincount(local, minlength=len(questions))
    time = coded.claim_time[claims]
    unknown = encoded.origin is not None and encoded.origin.order == "unknown"
    if unknown:
        time = np.zeros(len(claims))
    orders = np.where(_is_open(encoded, questions, local, time), _orders(encoded), 1)
    question = np.repeat(np.arange(len(questions)), orders)
    replica = ranges(np.zeros(len(questions), np.int64), orders)
    per_instance = counts[question]
    start = offsets(per_instance)
    claim = ranges(offsets(counts)[:-1][question], per_instance)
    instance = np.repeat(np.arange(len(question)), per_instance)
    slot_time = time[claim]
    if (orders > 1).any() or np.isnan(slot_time).any():
        bits = mix(coded.claim_key[claims][claim], seed, replica[instance].astype(np.uint64))
        slot_time = _placed_times(time, claim, slot_time, question[instance], counts, bits)
        several = orders[question[instance]] > 1
        order = np.lexsort((np.where(several, bits, np.uint64(0)), slot_time, instance))
        claim, slot_time = claim[order], slot_time[order]
    first = np.minimum(start[:-1], max(len(claim) - 1, 0))
    begin = np.zeros(len(question))
    if len(claim):
        begin = np.where(per_instance > 0, slot_time[first], 0.0)
        slot_time = slot_time - np.repeat(begin, per_instance)
    rows = np.diff(encoded.row_offset)[claims][claim]
    row = ranges(encoded.row_offset[:-1][claims][claim], rows)
    row_slot = np.repeat(np.arange(len(claim)), rows)
    cells = np.diff(encoded.cells.offset)[questions][question]
    icell = offsets(cells)
    row_instance = instance[row_slot]
    row_icell = icell[row_instance] + encoded.row_cell[row] - encoded.cells.offset[questions][question[row_instance]]
    value = row_icell if encoded.row_variant is None else joint(row_icell, encoded.row_variant[row])
    return Slots(claim, instance, slot_time, question, start, orders, row, row_slot, row_icell, value, icell, begin)


def _orders(encoded: Encoded) -> int:
    return encoded.origin.orders if encoded.origin is not None else UNORDERED


def _is_open(encoded: Encoded, questions: Ints, local: Ints, time: Floats) -> NDArray[np.bool_]:
    """Where the order of a question's claims matters to the model and is not known."""
    tied = np.isnan(time[1:]) | (time[1:] == time[:-1])
    within = local[1:] == local[:-1]
    out = np.zeros(len(questions), bool)
    out[local[1:][tied & within]] = True
    if encoded.origin is None:
        out &= encoded.errors.shared & (encoded.cells.size[questions] > 2) & ~encoded.cells.shaped[questions]
    return out


def _placed_times(
    time: Floats, claim: Ints, slot_time: Floats, question: Ints, counts: Ints, bits: NDArray[np.uint64]
) -> Floats:
    """Times of the slots; an undated claim stands beside a dated claim of its question drawn at random."""
    missing = np.isnan(slot_time)
    if not missing.any():
        return slot_time
    first = offsets(counts)[:-1]
    local = np.repeat(np.arange(len(counts)), counts)
    dated = np.bincount(local[~np.isnan(time)], minlength=len(counts))
    place = (uniform(mix(bits[missing], 1)) * dated[question[missing]]).astype(np.int64)
    anchor = np.minimum(first[question[missing]] + place, max(len(time) - 1, 0))
    out = slot_time.copy()
    out[missing] = np.where(dated[question[missing]] > 0, time[anchor], 0.0)
    return out


def chain(key: Ints) -> Chains:
    """The chains of rows with equal keys."""
    order, place = group_order(key)
    return Chains(order, place, inverse(order))


def joint(left: Ints, right: Ints) -> Ints:
    """One key for a pair of keys."""
    return left * (int(right.max(initial=0)) + 1) + right
