"""Problems padded to common sizes, so that compiled code is shared by questions and batches of different sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.compile import Problem
from nousppl.lanes import padded_lanes
from nousppl.models.layout import Lanes, Layout
from nousppl.number_layout import padded_numbers, rounded_numbers

SIZES = (
    "questions",
    "instances",
    "slots",
    "rows",
    "cells",
    "icells",
    "entries",
    "terms",
    "pairs",
    "kin",
    "apart",
    "links",
    "listed",
    "echoed",
    "sets",
    "set_cells",
    "periods",
    "period_cells",
    "denied",
    "again",
    "slot_blocks",
    "entry_blocks",
)
"""Fields of `Layout` that count something."""

_DIMENSION = {
    "chain": "rows",
    "same_count": "rows",
    "strong_row": "rows",
    "strong_slot": "slots",
    "block_instance": "slot_blocks",
    "block_icell": "entry_blocks",
    "row": "rows",
    "slot": "slots",
    "entry": "entries",
    "term": "terms",
    "pair": "pairs",
    "kin": "kin",
    "apart": "apart",
    "link": "links",
    "listed": "listed",
    "echo": "echoed",
    "denied": "denied",
    "again": "again",
    "cell": "cells",
    "icell": "icells",
    "question": "questions",
    "any": "sets",
    "anycell": "set_cells",
    "period": "periods",
    "periodcell": "period_cells",
}
"""Name of an array, or its first word -> the size of its last axis."""

_TARGET = {
    "slot_instance": "instances",
    "row_slot": "slots",
    "row_icell": "icells",
    "entry_slot": "slots",
    "entry_icell": "icells",
    "slot_question": "questions",
    "term_entry": "entries",
    "term_row": "rows",
    "pair_row": "rows",
    "kin_row": "rows",
    "apart_slot": "slots",
    "listed_slot": "slots",
    "echo_row": "rows",
    "denied_slot": "slots",
    "again_row": "rows",
    "icell_cell": "cells",
    "icell_instance": "instances",
    "cell_question": "questions",
    "term_slot": "slots",
    "any_entry": "entries",
    "any_to": "slots",
    "any_icell": "icells",
    "slot_whole": "slots",
    "anycell_cell": "cells",
    "period_entry": "entries",
    "periodcell_cell": "cells",
    "slot_block": "slot_blocks",
    "entry_block": "entry_blocks",
    "block_instance": "instances",
    "block_icell": "icells",
}
"""Index arrays that things are summed by -> the size that marks an element as padding."""

# A slot that only pads says nothing, so that its likelihood is 1: of 0 the gradient would not be a number.
_FILL = dict.fromkeys(("slot_looks", "slot_silence", "slot_lasting", "row_uniform", "term_uniform"), 1.0)
_FILL |= {"slot_size": 2.0, "periodcell_width": 1.0}


def ladder(layout: Layout) -> Layout:
    """The layout of single questions that this one is padded to: powers of two, all sizes tied to one of them."""
    step = 16
    while True:
        # All pairs of a few claims; of many the 32 most recent ones of each, unless the user wants more.
        near = step * min(step // 2, 32)
        sizes = {
            "questions": 1,
            "instances": 8,
            "slots": step,
            "rows": step,
            "cells": max(8, step // 4),
            "icells": max(16, step),
            "entries": 4 * step,
            "terms": 4 * step,
            "pairs": 8 * step if layout.pairs else 0,
            "kin": 8 * step if layout.links else 0,
            "apart": 8 * step if layout.links else 0,
            "links": 4 * step if layout.links else 0,
            "listed": near if layout.listed else 0,
            "echoed": near if layout.listed else 0,
            "denied": near if layout.denied else 0,
            "again": near if layout.denied else 0,
            "slot_blocks": step // 64 if layout.slot_blocks else 0,
            "entry_blocks": step // 16 if layout.entry_blocks else 0,
        }
        rounds = step.bit_length() - 1
        if all(getattr(layout, name) <= size for name, size in sizes.items()) and layout.rounds <= rounds:
            # A single belief carries its claims through time by itself.
            return layout._replace(**sizes, rounds=rounds, orders=True, in_place=False, lanes=())  # type: ignore[arg-type]
        step *= 2


def roomy(layout: Layout) -> Layout:
    """The layout that a single question of another shape than one of several is padded to: what follows from the
    numbers of claims and of cells is as large as these allow once they are rounded, so that questions of about the same
    size share compiled code."""
    held = rounded([layout])
    entries = max(held.entries, held.slots * held.cells)
    sizes = {"entries": entries, "terms": max(held.terms, entries), "icells": max(held.icells, held.cells)}
    for of_entries, of_cells in (("sets", "set_cells"), ("periods", "period_cells")):
        if getattr(layout, of_cells):
            sizes |= {of_entries: entries, of_cells: held.cells}
    rounds = max(held.rounds, (held.slots - 1).bit_length())
    return held._replace(**sizes, rounds=rounds, in_place=False)  # type: ignore[arg-type]


def rounded(layouts: list[Layout]) -> Layout:
    """The smallest layout with sizes of the form 2^k or 3/4 2^k that holds all of these."""
    largest = {name: _round_up(max(getattr(layout, name) for layout in layouts)) for name in SIZES}
    first = layouts[0]
    soft = any(layout.soft for layout in layouts)
    if not soft:
        largest["rows"] = largest["slots"] = max(largest["rows"], largest["slots"])
        largest["terms"] = largest["entries"] = max(largest["terms"], largest["entries"])
    return first._replace(
        **largest,  # type: ignore[arg-type]
        soft=soft,
        rounds=max(layout.rounds for layout in layouts),
        nodes=max(layout.nodes for layout in layouts),
        popularity=any(layout.popularity for layout in layouts),
        full=all(layout.full for layout in layouts),
        notes=any(layout.notes for layout in layouts),
        ceiling=any(layout.ceiling for layout in layouts),
        open=any(layout.open for layout in layouts),
        orders=any(layout.orders for layout in layouts),
        in_place=all(layout.in_place for layout in layouts),
        shaped=any(layout.shaped for layout in layouts),
        parts=any(layout.parts for layout in layouts),
        denials=any(layout.denials for layout in layouts),
        lasting=any(layout.lasting for layout in layouts),
        numbers=rounded_numbers(layouts),
        pinned=any(layout.pinned for layout in layouts),
        lanes=_rounded_lanes([lanes for layout in layouts for lanes in layout.lanes], 1.0),
    )


def _rounded_lanes(lanes: list[Lanes], room: float) -> tuple[Lanes, ...]:
    """The smallest sets of lanes, by width, with sizes of the form 2^k or 3/4 2^k that hold all of these."""
    widths = sorted({one.width for one in lanes})
    largest = [np.max([one[1:] for one in lanes if one.width == width], axis=0) for width in widths]
    return tuple(
        Lanes(width, *(_round_up(int(size * room)) for size in sizes))
        for width, sizes in zip(widths, largest, strict=True)
    )


class Mould:
    """Sizes that several fits or calls in a row are padded to, so that they share compiled code; they only grow.

    Args:
        room: how much larger it is made than what it is made for, so that what comes next fits too.
    """

    def __init__(self, room: float = 1.125) -> None:
        self._room = room
        self._held: dict[tuple[bool, bool], tuple[Layout, int]] = {}

    def hold(self, layout: Layout, claims: int) -> tuple[Layout, int]:
        """The layout and the number of claims to pad to, large enough for these and for all before."""
        # The arrays of blocks are there or not; no padding makes up for that.
        key = (layout.slot_blocks > 0, layout.entry_blocks > 0)
        held, most = self._held.get(key, (None, 0))
        if held is None or rounded([held, layout]) != held:
            wide = layout._replace(
                **{name: int(getattr(layout, name) * self._room) for name in SIZES},  # type: ignore[arg-type]
                lanes=_rounded_lanes(list(layout.lanes), self._room),
                numbers=rounded_numbers([layout], self._room),
            )
            held = rounded([wide if held is None else held, wide])
        self._held[key] = held, most if claims <= most else _round_up(int(claims * self._room))
        return self._held[key]


def _round_up(size: int) -> int:
    if size <= 8:
        return 8 if size else 0
    power = 1 << (size - 1).bit_length()
    return power * 3 // 4 if size <= power * 3 // 4 else power


def pad(problem: Problem, layout: Layout) -> dict[str, NDArray[Any]]:
    """Arrays of the problem with the sizes of ``layout``; what is added takes part in no sum.

    The arrays of claims (``claim_...``) keep their size: they belong to the designs.
    """
    out = padded_lanes(problem.data, problem.layout, layout) | padded_numbers(problem.data, problem.layout, layout)
    for name, array in problem.data.items():
        if name.startswith(("lane", "number")):
            continue
        dimension = _DIMENSION.get(name) or _DIMENSION.get(name.split("_")[0])
        out[name] = array if dimension is None else _padded(name, array, dimension, problem.layout, layout)
    return out | _without(out, layout)


def _without(data: dict[str, NDArray[Any]], layout: Layout) -> dict[str, NDArray[Any]]:
    """What the layout has of denials and of what does not last, for an evidence without any."""
    out: dict[str, NDArray[Any]] = {}
    if layout.denials and "row_aside" not in data:
        out = {
            "row_aside": np.zeros(layout.rows),
            "term_aside": np.zeros(layout.terms),
            "term_denial": np.zeros(layout.terms, np.int32),
        }
    if layout.lasting and "slot_lasting" not in data:
        out["slot_lasting"] = np.ones(layout.slots)
    return out


def pad_last(array: NDArray[Any], size: int, fill: float = 0.0) -> NDArray[Any]:
    """The array with its last axis extended to ``size``."""
    held = array.shape[-1]
    if size <= held:
        return array
    out = np.empty((*array.shape[:-1], size), array.dtype)
    out[..., :held] = array
    out[..., held:] = fill
    return out


def pad_own(array: NDArray[Any], size: int) -> NDArray[Any]:
    """(reads, size) what the user's own terms read, the last row of the table repeated: of a number that no row holds a
    term might give no finite gradient."""
    if not array.shape[-1]:
        return np.ones((*array.shape[:-1], size), array.dtype)
    return np.concatenate([array, np.repeat(array[..., -1:], max(size - array.shape[-1], 0), axis=-1)], axis=-1)


def _padded(name: str, array: NDArray[Any], dimension: str, old: Layout, new: Layout) -> NDArray[Any]:
    size = getattr(new, dimension)
    if array.shape[-1] == size and getattr(old, dimension) == size:
        return array
    if name in ("chain_order", "chain_inverse"):
        own = np.broadcast_to(
            np.arange(array.shape[-1], size, dtype=array.dtype), (*array.shape[:-1], size - array.shape[-1])
        )
        return np.concatenate([array, own], axis=-1)
    if name == "listed_own":
        return pad_own(array, size)
    fill = getattr(new, _TARGET[name]) if name in _TARGET else _FILL.get(name, 0.0)
    return pad_last(array, size, fill)
