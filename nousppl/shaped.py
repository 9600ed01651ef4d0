"""Arrays of the questions of other shapes than one of several: their entries, each a claim under one possible truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl import period_arrays, periods
from nousppl import sets as of_sets
from nousppl.encode import Encoded
from nousppl.items import Items
from nousppl.ragged import Floats, Ints, offsets
from nousppl.slots import Slots


def shaped_arrays(
    encoded: Encoded, data: dict[str, Any], slots: Slots, questions: Ints, claims: Ints, at: Floats
) -> dict[str, NDArray[Any]]:
    """Arrays of the shapes of a problem; none where all questions are one of several.

    Args:
        encoded: the evidence.
        data: arrays of the problem so far, entries and cells among them.
        slots: claims in their orders.
        questions: of the problem.
        claims: (claims,) those of the problem, in the evidence.
        at: (questions,) times asked about.
    """
    sets, states = encoded.cells.items, encoded.cells.periods
    shaped = encoded.cells.shaped[questions]
    if sets is None and states is None and not shaped.any():
        return {}
    of_icell = shaped[data["icell_question"]]
    out: dict[str, NDArray[Any]] = {
        "entry_shaped": of_icell[data["entry_icell"]],
        "slot_shaped": shaped[slots.question[slots.instance]],
        "icell_shaped": of_icell,
        "question_shaped": shaped,
    }
    if sets is not None:
        out |= _of_sets(sets, data, slots, questions, claims)
        out |= _of_parts(encoded.parts.whole[questions], data, out, slots)
    if states is not None:
        out |= _of_states(encoded, states, data, slots, questions, claims, at)
    return out


def _of_sets(sets: Items, data: dict[str, Any], slots: Slots, questions: Ints, claims: Ints) -> dict[str, NDArray[Any]]:
    mine = (sets.attribute >= 0)[questions]
    entry, chosen = _entries(mine, data, slots)
    slot = data["entry_slot"][entry]
    question = questions[data["icell_question"][data["entry_icell"][entry]]]
    claim = slots.claim[slot]
    out = of_sets.entry_arrays(sets, question, claims[claim], claim, entry, slot, chosen)
    of_cell = data["cell_question"]
    start = offsets(np.bincount(of_cell, minlength=len(questions)))
    cell = np.flatnonzero(mine[of_cell])
    return out | of_sets.cell_arrays(sets, questions[of_cell[cell]], cell, cell - start[of_cell[cell]])


def _of_parts(whole: Ints, data: dict[str, Any], out: dict[str, Any], slots: Slots) -> dict[str, NDArray[Any]]:
    """Which slots stand for one claim in the parts of its question, and the share of each; 0 of other shapes.

    Args:
        whole: (questions,) question of the evidence that each is a part of.
        data: arrays of the problem so far.
        out: arrays of shapes so far.
        slots: claims in their orders, which are the same in all parts of a question.
    """
    _, first, of, count = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    question = slots.question[slots.instance]
    begin = np.searchsorted(question, np.arange(len(whole)))
    entry = out["any_entry"]
    listed = np.isin(np.arange(len(question)), out["any_slot"])
    return {
        "any_to": out["any_slot"],
        "any_icell": data["entry_icell"][entry],
        "slot_whole": np.arange(len(question)) - begin[question] + begin[first[of]][question],
        "slot_share": np.where(listed, 1.0 / count[of][question], 0.0),
    }


def _of_states(
    encoded: Encoded,
    states: periods.Periods,
    data: dict[str, Any],
    slots: Slots,
    questions: Ints,
    claims: Ints,
    at: Floats,
) -> dict[str, NDArray[Any]]:
    mine = (states.attribute >= 0)[questions]
    cells = periods.cells_of(states, questions, at)
    entry, chosen = _entries(mine, data, slots)
    slot = data["entry_slot"][entry]
    local = data["icell_question"][data["entry_icell"][entry]]
    claim = slots.claim[slot]
    first = offsets(np.where(mine, states.sizes()[questions], 0))[local]
    time = encoded.coded.claim_time[claims[claim]]
    out = period_arrays.entry_arrays(states, cells, first + chosen, claims[claim], time, (entry, slot, claim))
    return out | period_arrays.cell_arrays(states, cells, np.flatnonzero(mine[data["cell_question"]]))


def _entries(mine: NDArray[np.bool_], data: dict[str, Any], slots: Slots) -> tuple[Ints, Ints]:
    """Entries of some questions, and the place of the cell of each among those of its question."""
    entry = np.flatnonzero(mine[data["icell_question"]][data["entry_icell"]])
    icell = data["entry_icell"][entry]
    return entry, icell - slots.icell_offset[:-1][data["icell_instance"][icell]]
