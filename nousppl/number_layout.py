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
        one = NumberSet(*key, int(mine.sum()))
        arrays = _set(numbers, coded, slots, questions, claims, asked[mine], one)
        out |= {one.prefix + name: array for name, array in arrays.items()}
        sets.append(one)
    return out, tuple(sets)


def widths(count: Ints) -> Ints:
    """2, 8, 32 and so on: the smallest that holds so many claims. Few different ones, since code is compiled for
    each."""
    return 2 << 2 * np.ceil(np.log2(np.maximum(count, 2) / 2.0) / 2.0).astype(np.int64)


def _set(
    numbers: Numbers, coded: Coded, slots: Slots, questions: Ints, claims: Ints, local: Ints, of: NumberSet
) -> dict[str, NDArray[Any]]:
    """Arrays of the questions of one set, ``local`` in the problem; see `nousppl.models.number.Numbers`."""
    instance = offsets(slots.orders)[:-1][local][:, None] + np.arange(of.orders)[None, :]
    count = np.diff(slots.start)[instance[:, 0]]
    real = np.arange(of.width)[None, :] < count[:, None]
    by_claim = np.lexsort((slots.claim, slots.instance))
    place = slots.start[:-1][instance][:, :, None] + np.arange(of.width)
    last = max(len(by_claim) - 1, 0)
    slot = np.where(real[:, None, :], by_claim[np.minimum(place, last)], 0) if len(by_claim) else 0 * place
    claim = slots.claim[slot[:, 0]] if len(by_claim) else slot[:, 0]
    known = numbers.attribute[questions[local]]
    answer = coded.row_answer[coded.row_start[:-1][claims[claim]]] if len(claims) else 0 * claim
    value = np.where(real, numbers.value[answer], 0.0)
    truth = numbers.truth[questions[local]]
    return {
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
                array[: was.questions] = data[one.prefix + name]
            if name == "icell":
                array[array >= old.icells] = new.icells
            out[one.prefix + name] = array
    return out


def _shapes(of: NumberSet) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shapes and types of the arrays of a set."""
    one, claims, orders = (of.questions,), (of.questions, of.width), (of.questions, of.orders)
    return {
        "claim": (claims, np.int32),
        "slot": ((*orders, of.width), np.int32),
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
    }


def rounded_numbers(layouts: list[Layout], room: float = 1.0) -> tuple[NumberSet, ...]:
    """The smallest sets, by width and orders, with sizes of the form 2^k or 3/4 2^k that hold all of these."""
    most: dict[tuple[int, int], int] = {}
    for one in (one for layout in layouts for one in layout.numbers):
        key = one.width, one.orders
        most[key] = max(most.get(key, 0), int(np.ceil(one.questions * room)))
    return tuple(NumberSet(*key, _round_up(size)) for key, size in sorted(most.items()))


def _round_up(size: int) -> int:
    power = 1 << (max(size, 1) - 1).bit_length()
    return power * 3 // 4 if power >= 4 and size <= power * 3 // 4 else power
