"""Questions about numbers laid out for the array code: sets of questions with about as many claims, in whole tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.models.layout import Layout, NumberSet
from nousppl.models.number_grid import CENTRES
from nousppl.numbers import Numbers
from nousppl.ragged import Floats, Ints, offsets
from nousppl.slots import Slots


def lay_numbers(
    numbers: Numbers | None, coded: Coded, slots: Slots, questions: Ints, claims: Ints
) -> tuple[dict[str, NDArray[Any]], tuple[NumberSet, ...]]:
    """Arrays of the questions about numbers of a problem, by the number of their claims and orders; and their sizes.

    Args:
        numbers: of the evidence.
        coded: the evidence.
        slots: claims in their orders.
        questions: of the problem.
        claims: (claims,) those of the problem, in the evidence.
    """
    if numbers is None:
        return {}, ()
    asked = np.flatnonzero(numbers.attribute[questions] >= 0)
    instance = offsets(slots.orders)[:-1]
    count = np.diff(slots.start)[instance[asked]] if len(asked) else np.zeros(0, np.int64)
    width = widths(count)
    out: dict[str, NDArray[Any]] = {}
    sets = []
    for key in sorted({*zip(width.tolist(), slots.orders[asked].tolist(), strict=True)}):
        mine = (width == key[0]) & (slots.orders[asked] == key[1])
        gaps = int(np.diff(numbers.gap_offset)[questions[asked[mine]]].max())
        one = NumberSet(*key, int(mine.sum()), max(int(count[mine].max()), 1), gaps)
        arrays = _set(numbers, coded, slots, questions, claims, asked[mine], one)
        out |= {one.prefix + name: array for name, array in arrays.items()}
        sets.append(one)
    return out, tuple(sets)


def widths(count: Ints) -> Ints:
    """2, 8, 32 and so on: the smallest that holds so many claims. Few different ones, since code is compiled for each
    set; its arrays are as wide as the longest of its questions."""
    return 2 << 2 * np.ceil(np.log2(np.maximum(count, 2) / 2.0) / 2.0).astype(np.int64)


def _set(
    numbers: Numbers, coded: Coded, slots: Slots, questions: Ints, claims: Ints, local: Ints, of: NumberSet
) -> dict[str, NDArray[Any]]:
    """Arrays of the questions of one set, ``local`` in the problem; see `nousppl.models.number.Numbers`."""
    instance = offsets(slots.orders)[:-1][local][:, None] + np.arange(of.orders)[None, :]
    count = np.diff(slots.start)[instance[:, 0]]
    real = np.arange(of.claims)[None, :] < count[:, None]
    by_claim = np.lexsort((slots.claim, slots.instance))
    place = slots.start[:-1][instance][:, :, None] + np.arange(of.claims)
    last = max(len(by_claim) - 1, 0)
    slot = np.where(real[:, None, :], by_claim[np.minimum(place, last)], 0) if len(by_claim) else 0 * place
    claim = slots.claim[slot[:, 0]] if len(by_claim) else slot[:, 0]
    known = numbers.attribute[questions[local]]
    answer = coded.row_answer[coded.row_start[:-1][claims[claim]]] if len(claims) else 0 * claim
    value = np.where(real, numbers.value[answer], 0.0)
    truth = numbers.truth[questions[local]]
    return _gaps(numbers, questions[local], of) | {
        "claim": claim,
        "slot": slot,
        "value": value,
        "real": real,
        "log_wide": np.where(real, numbers.log_wide[answer], 0.0),
        "step": numbers.step[known],
        "attribute": known,
        "truth": np.nan_to_num(truth),
        "settled": ~np.isnan(truth),
        "group": _groups(value, real),
        "order_log": np.full(instance.shape, -np.log(of.orders)),
        "icell": slots.icell_offset[:-1][instance],
        "question": local,
    }


def _gaps(numbers: Numbers, questions: Ints, of: NumberSet) -> dict[str, NDArray[Any]]:
    """Rejected rounding cells of the questions of a set; none where nothing is rejected."""
    if not of.gaps:
        return {}
    start, count = numbers.gap_offset[questions], np.diff(numbers.gap_offset)[questions]
    real = np.arange(of.gaps)[None, :] < count[:, None]
    place = np.minimum(start[:, None] + np.arange(of.gaps), len(numbers.gap) - 1)
    return {"gap": np.where(real, numbers.gap[place], 0.0), "gap_real": real}


def _groups(value: Floats, real: NDArray[np.bool_]) -> Ints:
    """(Q, n) group of neighbours of each claim: itself where there are few, else by the rank of its value."""
    width = value.shape[1]
    rank = np.argsort(np.argsort(np.where(real, value, np.inf), axis=1, kind="stable"), axis=1, kind="stable")
    count = real.sum(1)[:, None]
    group = np.where(count > CENTRES, rank * CENTRES // np.maximum(count, 1), np.arange(width)[None, :])
    return np.where(real, group, CENTRES)


_FILL = {"step": 1.0}


def padded_numbers(data: Mapping[str, NDArray[Any]], old: Layout, new: Layout) -> dict[str, NDArray[Any]]:
    """The arrays of the sets in the sizes of another layout; what is added takes part in nothing."""
    held = {(one.width, one.orders): one for one in old.numbers}
    out: dict[str, NDArray[Any]] = {}
    for one in new.numbers:
        was = held.get((one.width, one.orders), one._replace(questions=0))
        for name, (shape, dtype) in _shapes(one).items():
            fill = new.icells if name == "icell" else CENTRES if name == "group" else _FILL.get(name, 0)
            array = np.full(shape, fill, dtype)
            if was.questions:
                old_array = data.get(one.prefix + name, np.zeros((0, 0)))
                array[tuple(map(slice, old_array.shape))] = old_array
            if name == "icell":
                array[array >= old.icells] = new.icells
            out[one.prefix + name] = array
    return out


def _shapes(of: NumberSet) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shapes and types of the arrays of a set."""
    gaps = {"gap": ((of.questions, of.gaps), np.float64), "gap_real": ((of.questions, of.gaps), bool)}
    one, claims, orders = (of.questions,), (of.questions, of.claims), (of.questions, of.orders)
    return {
        "claim": (claims, np.int32),
        "slot": ((*orders, of.claims), np.int32),
        "value": (claims, np.float64),
        "real": (claims, bool),
        "log_wide": (claims, np.float64),
        "step": (one, np.float64),
        "attribute": (one, np.int32),
        "truth": (one, np.float64),
        "settled": (one, bool),
        "group": (claims, np.int32),
        "order_log": (orders, np.float64),
        "icell": (orders, np.int32),
        "question": (one, np.int32),
        **(gaps if of.gaps else {}),
    }


def rounded_numbers(layouts: list[Layout], room: float = 1.0) -> tuple[NumberSet, ...]:
    """The smallest sets, by width and orders, with sizes of the form 2^k or 3/4 2^k that hold all of these."""
    most: dict[tuple[int, int], tuple[int, int, int]] = {}
    for one in (one for layout in layouts for one in layout.numbers):
        found = int(np.ceil(one.questions * room)), one.claims, one.gaps
        held = most.get((one.width, one.orders), found)
        most[one.width, one.orders] = (max(held[0], found[0]), max(held[1], found[1]), max(held[2], found[2]))
    sizes = {key: (*map(_round_up, held[:2]), _round_up(held[2]) if held[2] else 0) for key, held in most.items()}
    return tuple(NumberSet(*key, *sizes[key]) for key in sorted(sizes))


def whole_width(sets: tuple[NumberSet, ...]) -> tuple[NumberSet, ...]:
    """The sets with arrays as wide as their questions may be: single questions share compiled code."""
    return tuple(one._replace(claims=one.width) for one in sets)


def _round_up(size: int) -> int:
    power = 1 << (max(size, 1) - 1).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power
