"""Events of questions whose truth changes, laid end to end in lanes for the scans of ``nousppl.models.change``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.models.layout import Lanes, Layout
from nousppl.ragged import Floats, Ints, offsets, place_in_group, ranges
from nousppl.settled import Settled
from nousppl.slots import Slots

LONGER = 4
"""A lane is as long as so many of the longest run, so that little of it stays empty."""
FEWEST = 64
"""Lanes are not made longer than the longest run where that would leave fewer than so many."""


class Events(NamedTuple):
    """What is known of the truths at some times: claims, settled truths and rejections, in the order of the scans."""

    instance: Ints
    later: NDArray[np.bool_]
    """Whether it is after the time asked about."""
    gap: Floats
    """Time to the next event of its run, or to the time asked about."""
    slot: Ints
    """Slot of a claim; -1 for what is settled or rejected."""
    time: Floats
    pinned: Ints
    """Settled cell, among those of its question; -1 for none."""
    opening: NDArray[np.bool_]
    """True where a run begins."""


def events_of(slots: Slots, settled: Settled, at: Floats) -> Events:
    """All events of some questions, run by run.

    Args:
        slots: claims in their orders.
        settled: of these questions.
        at: (questions,) times asked about.
    """
    counts = np.diff(slots.start)
    of_slot = np.repeat(np.arange(len(slots.question)), counts)
    parts = [(of_slot, slots.begin[of_slot] + slots.time, np.arange(len(of_slot)), np.full(len(of_slot), -1))]
    dated = np.isfinite(settled.time)
    first, many = offsets(slots.orders), slots.orders[settled.question[dated]]
    instance = ranges(first[:-1][settled.question[dated]], many)
    pinned = np.where(settled.rejected, -1, settled.cell)[dated]
    parts.append((instance, np.repeat(settled.time[dated], many), np.full(len(instance), -1), np.repeat(pinned, many)))
    columns: tuple[Any, ...] = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    instance, time, slot, pinned = columns
    asked = at[slots.question[instance]] if len(instance) else np.zeros(0)
    later = time > asked
    order = np.lexsort((slot, np.where(later, -time, time), later, instance))
    instance, time, slot, pinned = (column[order] for column in columns)
    opening, closing = _ends(instance, later[order])
    follows = np.where(closing, asked[order], np.append(time[1:], 0.0))
    return Events(instance, later[order], np.abs(follows - time), slot, time, pinned, opening)


def _ends(instance: Ints, later: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Where runs begin, and where they end."""
    edge = np.ones(len(instance) + 1, bool)
    edge[1:-1] = (instance[1:] != instance[:-1]) | (later[1:] != later[:-1])
    return edge[:-1], edge[1:]


def kept(events: Events, chosen: NDArray[np.bool_]) -> Events:
    """Some of the events."""
    columns: tuple[Any, ...] = tuple(x[chosen] for x in events)
    return Events(*columns)


def lay_lanes(
    data: dict[str, Any], slots: Slots, settled: Settled, cells: Ints, at: Floats, still: NDArray[np.bool_]
) -> tuple[dict[str, Any], tuple[Lanes, ...]]:
    """Arrays and sizes of all lanes.

    Args:
        data: arrays of the problem so far; entries and icells among them.
        slots: claims in their orders.
        settled: of these questions.
        cells: (questions,) number of cells of each question.
        at: (questions,) times asked about.
        still: (questions,) whether the truth of a question stays, so that it is in no lane.
    """
    events = events_of(slots, settled, at)
    moves = ~still[slots.question[events.instance]]
    events = kept(events, moves)
    out: dict[str, Any] = {}
    sizes = []
    width = widths(cells)
    of_event = width[slots.question[events.instance]] if len(events.instance) else np.zeros(0, np.int64)
    for one in np.unique(of_event):
        mine = kept(events, of_event == one)
        arrays, lanes = _lanes(data, slots, settled, mine, int(one), cells)
        sizes.append(lanes)
        out |= {f"lane{one} {name}": array for name, array in arrays.items()}
    return out, tuple(sizes)


def _lanes(
    data: dict[str, Any], slots: Slots, settled: Settled, events: Events, width: int, cells: Ints
) -> tuple[dict[str, Any], Lanes]:
    """The lanes of one width."""
    run = np.cumsum(events.opening) - 1
    first = np.flatnonzero(events.opening)
    length = np.diff(np.append(first, len(run)))
    step, lane, lanes = place(length, width)
    step, lane = step[run] + place_in_group(run), lane[run]
    shape = (lanes.steps, lanes.lanes)
    question = slots.question[events.instance]
    local = offsets(cells)
    cell = np.arange(width)[None, :] + local[:-1][question[first]][:, None]
    real = np.arange(width)[None, :] < cells[question[first]][:, None]
    spot = step * lanes.lanes + lane
    of_slot = np.zeros(len(slots.claim), np.int64)
    said = events.slot >= 0
    of_slot[events.slot[said]] = 1 + spot[said]
    arrays = {
        "run": _spread(shape, step, lane, run),
        "gap": _spread(shape, step, lane, events.gap),
        "start": _spread(shape, step, lane, events.opening),
        "silent": _spread(shape, step, lane, np.where(said, len(slots.question), events.instance), len(slots.question)),
        "question": question[first],
        "cell": np.where(real, cell, 0),
        "real": real,
        "slot": of_slot,
        "entry": _entries(data, slots, of_slot, width, lanes),
    }
    last = np.append(first[1:], len(run)) - 1
    arrays |= _ends_of_runs(data, slots, events, last, 1 + spot * width)
    if len(settled.question):
        closed = _closed(settled, events, question, width)
        arrays["closed"] = np.zeros((*shape, width), bool)
        arrays["closed"][step, lane] = closed
    return arrays, lanes


def widths(cells: Ints) -> Ints:
    """The smallest number of the form 2^k or 3/4 2^k that holds so many."""
    power = 1 << np.ceil(np.log2(np.maximum(cells, 2))).astype(np.int64)
    return np.where(cells <= power * 3 // 4, power * 3 // 4, power)


def place(length: Ints, width: int) -> tuple[Ints, Ints, Lanes]:
    """Where runs of some lengths begin: step and lane of each, and the size of the lanes."""
    longest, total = int(length.max()), int(length.sum())
    size = longest * (LONGER if total >= LONGER * longest * FEWEST else 1)
    order = np.argsort(-length, kind="stable")
    begin = np.empty(len(length), np.int64)
    begin[order] = offsets(length[order])[:-1]
    lane = begin // size
    step = begin - lane * size
    # The run that begins last in a lane may go beyond it; the next lane begins later by as much.
    lead = np.full(int(lane.max()) + 1, size)
    np.minimum.at(lead, lane, step)
    step -= lead[lane]
    return step, lane, Lanes(width, int((step + length).max()), int(lane.max()) + 1, len(length))


def _spread(shape: tuple[int, int], step: Ints, lane: Ints, values: NDArray[Any], fill: int = 0) -> NDArray[Any]:
    out = np.full(shape, fill, values.dtype)
    out[step, lane] = values
    return out


def _entries(data: dict[str, Any], slots: Slots, of_slot: Ints, width: int, lanes: Lanes) -> Ints:
    """Place of each entry in (steps, lanes, width); what is in other lanes is out of range."""
    slot, icell = data["entry_slot"], data["entry_icell"]
    cell = icell - slots.icell_offset[data["icell_instance"][icell]]
    return np.where(of_slot[slot] > 0, (of_slot[slot] - 1) * width + cell, lanes.steps * lanes.lanes * width)


def _ends_of_runs(data: dict[str, Any], slots: Slots, events: Events, last: Ints, place: Ints) -> dict[str, Ints]:
    """One plus the place of each icell's phi at the end of the runs before and after the time asked about; 0 where
    there are none."""
    out = {}
    for name, side in (("forward", False), ("backward", True)):
        end = np.zeros(len(slots.question), np.int64)
        chosen = last[events.later[last] == side]
        end[events.instance[chosen]] = place[chosen]
        of_icell = end[data["icell_instance"]]
        cell = np.arange(len(of_icell)) - slots.icell_offset[data["icell_instance"]]
        out[name] = np.where(of_icell > 0, of_icell + cell, 0)
    return out


def _closed(settled: Settled, events: Events, question: Ints, width: int) -> NDArray[np.bool_]:
    """(events, width) answers that are ruled out at each event: all but the settled one, and those rejected by then."""
    out = (events.pinned >= 0)[:, None] & (np.arange(width) != events.pinned[:, None])
    order = np.argsort(question, kind="stable")
    for rejected_question, cell, time in zip(
        settled.question[settled.rejected],
        settled.cell[settled.rejected],
        settled.time[settled.rejected],
        strict=True,
    ):
        start, stop = np.searchsorted(question[order], [rejected_question, rejected_question + 1])
        rows = order[start:stop]
        out[rows[events.time[rows] >= time], cell] = True
    return out


def padded_lanes(data: dict[str, Any], old: Layout, new: Layout) -> dict[str, Any]:
    """The arrays of the lanes in the sizes of another layout; what is added takes part in nothing."""
    held = {lanes.width: lanes for lanes in old.lanes}
    out: dict[str, Any] = {}
    for lanes in new.lanes:
        was = held.get(lanes.width, Lanes(lanes.width, 0, 0, 0))
        own = {
            name.partition(" ")[2]: array for name, array in data.items() if name.startswith(f"lane{lanes.width} ")
        } or _nothing(old, lanes.width)
        if new.pinned and "closed" not in own:
            own["closed"] = np.zeros((was.steps, was.lanes, lanes.width), bool)
        padded = {name: _padded(name, array, was, lanes, old, new) for name, array in own.items()}
        out |= {f"lane{lanes.width} {name}": array for name, array in padded.items()}
    return out


def _nothing(layout: Layout, width: int) -> dict[str, Any]:
    """Lanes without a run."""
    grid = np.zeros((0, 0))
    return {
        "run": grid.astype(np.int32),
        "gap": grid,
        "start": grid.astype(bool),
        "silent": grid.astype(np.int32),
        "question": np.zeros(0, np.int32),
        "cell": np.zeros((0, width), np.int32),
        "real": np.zeros((0, width), bool),
        "slot": np.zeros(layout.slots, np.int32),
        "entry": np.zeros(layout.entries, np.int32),
        "forward": np.zeros(layout.icells, np.int32),
        "backward": np.zeros(layout.icells, np.int32),
    }


def _padded(name: str, array: NDArray[Any], was: Lanes, now: Lanes, old: Layout, new: Layout) -> NDArray[Any]:
    if name in ("run", "gap", "start", "silent", "closed"):
        shape = (now.steps, now.lanes, *array.shape[2:])
        if name == "silent":
            array = np.where(array == old.instances, new.instances, array)
        out = np.full(shape, new.instances if name == "silent" else 0, array.dtype)
        out[: was.steps, : was.lanes] = array
        return out
    if name in ("question", "cell", "real"):
        return np.concatenate([array, np.zeros((now.runs - was.runs, *array.shape[1:]), array.dtype)])
    if name == "entry":
        return _moved(array, was, now, now.width, new.entries, fill=now.steps * now.lanes * now.width)
    if name == "slot":
        return _moved(array - 1, was, now, 1, new.slots, fill=-1) + 1
    return _moved(array - 1, was, now, now.width, new.icells, fill=-1) + 1


def _moved(place: NDArray[Any], was: Lanes, now: Lanes, width: int, size: int, fill: int) -> NDArray[Any]:
    """Places in lanes of one size as places in lanes of another; ``fill`` for those that are none, up to ``size``."""
    inside = (place >= 0) & (place < was.steps * was.lanes * width)
    step, rest = np.divmod(np.where(inside, place, 0), max(was.lanes, 1) * width)
    out = np.full(size, fill, np.int64)
    out[: len(place)] = np.where(inside, step * now.lanes * width + rest, fill)
    return out.astype(np.int32)
