"""Denials laid out for the array code: what claims deny, and earlier claims whose value has been denied since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nousppl.encode import Encoded
from nousppl.listed import same_value
from nousppl.models.denial import OTHER, TRUE
from nousppl.ragged import Floats, Ints, ranges
from nousppl.slots import Chains, Slots

if TYPE_CHECKING:
    from nousppl.compile import Problem


def denied_icells(encoded: Encoded, slots: Slots, questions: Ints, claims: Ints) -> Ints | None:
    """(slots,) icell of the answer that each claim denies, -1 for none; None where no claim of the evidence does."""
    if encoded.denied_cell is None:
        return None
    cell = encoded.denied_cell[claims][slots.claim]
    local = cell - encoded.cells.offset[questions][slots.question[slots.instance]]
    return np.where(cell >= 0, slots.icell_offset[slots.instance] + local, -1)


def more_entries(slot: Ints, icell: Ints, denied: Ints, slots: Slots) -> tuple[Ints, Ints]:
    """Entries, sorted by icell and slot, with those of the denied answers and of what was named before among them, for
    claims that deny something.

    Args:
        slot: (entries,) of the entries so far, which are sorted so.
        icell: (entries,)
        denied: (slots,) see `denied_icells`.
        slots: claims in their orders.
    """
    total = max(len(slots.claim), 1)
    denier, first = np.flatnonzero(denied >= 0), named_first(slots)
    instance = slots.instance[denier]
    count = np.diff(slots.icell_offset)[instance]
    of_denier = np.repeat(denier, count)
    every = ranges(slots.icell_offset[:-1][instance], count)
    before = first[every] < of_denier
    keys = np.concatenate([icell * total + slot, denied[denier] * total + denier, (every * total + of_denier)[before]])
    keys = np.unique(keys)
    return keys % total, keys // total


def named_first(slots: Slots) -> Ints:
    """(icells,) first slot that names each; the number of slots where none does."""
    first = np.full(int(slots.icell_offset[-1]), len(slots.claim), np.int64)
    np.minimum.at(first, slots.row_icell, slots.row_slot)
    return first


def asides(encoded: Encoded, slots: Slots, questions: Ints, denied: Ints) -> tuple[Floats, Floats]:
    """(slots,) share of a value that was named before, and of an answer that was not, among what a claim that denies
    something denies at random; 0 of other claims."""
    first, n = named_first(slots), len(slots.claim)
    new = np.bincount(slots.row_slot, first[slots.row_icell] == slots.row_slot, minlength=n)
    so_far = np.cumsum(new) - new
    so_far -= so_far[np.minimum(slots.start[:-1], max(n - 1, 0))][slots.instance]
    own = np.zeros(n, bool)
    own[slots.row_slot] = first[slots.row_icell] < slots.row_slot
    named = so_far - own
    unnamed = encoded.cells.size[questions[slots.question[slots.instance]]] - named - 1
    total = np.maximum(named + (unnamed > 0), 1)
    denies = denied >= 0
    return np.where(denies, 1.0 / total, 0.0), np.where(denies, 1.0 / (total * np.maximum(unnamed, 1)), 0.0)


def stated_arrays(
    encoded: Encoded, slots: Slots, questions: Ints, claims: Ints, data: dict[str, Any], denied: Ints | None
) -> dict[str, NDArray[Any]]:
    """What ``nousppl.models.denial.stated`` reads; nothing where no claim of the evidence denies or passes."""
    out: dict[str, NDArray[Any]] = {}
    if denied is not None:
        row, entry = data["term_row"], data["term_entry"]
        of_term = denied[slots.row_slot[row]]
        kind = np.where(of_term == data["entry_icell"][entry], TRUE, OTHER)
        named, unnamed = asides(encoded, slots, questions, denied)
        out["row_aside"] = unnamed[slots.row_slot]
        of_row, icell = slots.row_slot[row], data["entry_icell"][entry]
        before = named_first(slots)[icell] < of_row
        out["term_aside"] = np.where(before, named[of_row], unnamed[of_row])
        # A claim for the truth denies any other answer.
        out["term_denial"] = np.where((of_term >= 0) & ~data["term_own"], kind, 0)
    if encoded.passing:
        out["slot_lasting"] = encoded.coded.claim_lasting[claims][slots.claim]
    return out


def denied_pairs(
    encoded: Encoded,
    slots: Slots,
    claims: Ints,
    by_cell: Chains,
    groups: tuple[tuple[int, ...], ...],
    denied: Ints | None,
    data: dict[str, Any],
) -> dict[str, NDArray[Any]]:
    """Pairs of a claim and one of its most recent earlier ones whose value has been denied by a claim between them.

    Returns:
        ``denied_slot``, ``denied_origin``, ``denied_lag``: later slot, earlier slot and time between;
        ``denied_share``, what the earlier one gives to answers that have been denied (1 of a hard claim);
        ``denied_group``, one-based group of exactly the features that the two share, 0 for none; ``again_row``,
        ``again_pair``, ``again_share``: those of a row and an earlier one with the same value; ``pair_denied``,
        one-based place of each pair of texts in ``data`` among these pairs, 0 for none. Nothing where it is no pair
        feature of the model.
    """
    if encoded.origin is None or not encoded.origin.denied:
        return {}
    later, earlier, share = _since(slots, encoded, denied, encoded.origin.max_listed)
    row, earlier_row, which = same_value(slots, by_cell, later, earlier)
    out = {
        "denied_slot": later,
        "denied_origin": earlier,
        "denied_lag": np.maximum(slots.time[later] - slots.time[earlier], 0.0),
        "denied_share": share,
        "denied_group": exact_groups(encoded, claims[slots.claim[later]], claims[slots.claim[earlier]], groups),
        "again_row": row,
        "again_pair": which,
        "again_share": encoded.row_share[slots.row[earlier_row]],
    }
    if "pair_row" in data:
        wanted = slots.row_slot[data["pair_row"]], data["pair_origin_slot"]
        out["pair_denied"] = _places(later, earlier, *wanted, len(slots.claim))
    return out


def stated_sizes(data: dict[str, Any]) -> dict[str, Any]:
    """What of ``nousppl.models.layout.Layout`` tells of denials and of what does not last."""
    return {
        "denied": len(data.get("denied_slot", ())),
        "again": len(data.get("again_row", ())),
        "denials": bool(np.any(data.get("row_aside", 0.0) > 0.0)),
        "lasting": bool(np.any(data.get("slot_lasting", 1.0) < 1.0)),
    }


def exact_groups(encoded: Encoded, later: Ints, earlier: Ints, groups: tuple[tuple[int, ...], ...]) -> Ints:
    """(pairs,) one-based group of exactly the features that two claims of the evidence share, 0 for none."""
    shared = np.zeros(len(later), np.int64)
    for f, codes in enumerate(encoded.features):
        shared |= (codes[later] == codes[earlier]).astype(np.int64) << f
    place = np.zeros(1 << len(encoded.features), np.int64)
    for i, group in enumerate(groups):
        place[sum(1 << f for f in group)] = i + 1
    return place[shared]


def _since(slots: Slots, encoded: Encoded, denied: Ints | None, most: int) -> tuple[Ints, Ints, NDArray[np.float64]]:
    """(later, earlier) slots, sorted, and the share of the earlier one that has been denied between."""
    none = np.zeros(0, np.int64)
    if denied is None or not (denied >= 0).any():
        return none, none, np.zeros(0)
    total = len(slots.claim)
    denier = np.flatnonzero(denied >= 0)
    key = np.sort(denied[denier] * total + denier)
    # The next claim that denies what a row says; within an icell keys are in event order.
    next_one = np.searchsorted(key, slots.row_icell * total + slots.row_slot, side="right")
    there = next_one < len(key)
    first = np.where(there, key[np.minimum(next_one, len(key) - 1)], -1)
    row = np.flatnonzero(there & (first // total == slots.row_icell))
    by = first[row] % total
    end = np.minimum(slots.start[1:][slots.instance[slots.row_slot[row]]], slots.row_slot[row] + most + 1)
    count = np.maximum(end - by - 1, 0)
    later, of_row = ranges(by + 1, count), np.repeat(row, count)
    pairs, back = np.unique(later * total + slots.row_slot[of_row], return_inverse=True)
    share = np.bincount(back, encoded.row_share[slots.row[of_row]], len(pairs)).astype(np.float64)
    return pairs // total, pairs % total, share


def _places(later: Ints, earlier: Ints, wanted_later: Ints, wanted_earlier: Ints, slots: int) -> Ints:
    """One-based place of some pairs of slots among others, which are sorted; 0 for those that are not there."""
    if not len(later):
        return np.zeros(len(wanted_later), np.int64)
    key, wanted = later * slots + earlier, wanted_later * slots + wanted_earlier
    place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[place] == wanted, place + 1, 0)


def undone(problem: Problem) -> NDArray[np.float64]:
    """(orders, claims, claims) how far the value of an earlier claim has been denied by a claim between the two."""
    claims, data, claim = len(problem.claims), problem.data, problem.slot_claim
    out = np.zeros((problem.layout.instances, claims, claims))
    later = data["denied_slot"]
    out[data["slot_instance"][later], claim[later], claim[data["denied_origin"]]] = data["denied_share"]
    return out
