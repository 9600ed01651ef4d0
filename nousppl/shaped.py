"""Arrays of the questions of other shapes than one of several: their entries, each a claim under one possible truth."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl import items
from nousppl.encode import Encoded
from nousppl.ragged import Ints, offsets
from nousppl.slots import Slots


def shaped_arrays(
    encoded: Encoded, data: dict[str, Any], slots: Slots, questions: Ints, claims: Ints
) -> dict[str, NDArray[Any]]:
    """Arrays of the shapes of a problem; none where all questions are one of several.

    Args:
        encoded: the evidence.
        data: arrays of the problem so far, entries and cells among them.
        slots: claims in their orders.
        questions: of the problem.
        claims: (claims,) those of the problem, in the evidence.
    """
    sets = encoded.cells.items
    shaped = encoded.cells.shaped[questions]
    if not shaped.any() and sets is None:
        return {}
    of_icell = shaped[data["icell_question"]]
    out: dict[str, NDArray[Any]] = {
        "entry_shaped": of_icell[data["entry_icell"]],
        "slot_shaped": shaped[slots.question[slots.instance]],
        "icell_shaped": of_icell,
        "question_shaped": shaped,
    }
    if sets is None:
        return out
    of_sets = encoded.cells.sets[questions]
    of_icell = of_sets[data["icell_question"]]
    entry = np.flatnonzero(of_icell[data["entry_icell"]])
    icell, slot = data["entry_icell"][entry], data["entry_slot"][entry]
    first = slots.icell_offset[:-1][data["icell_instance"][icell]]
    question = questions[data["icell_question"][icell]]
    claim = slots.claim[slot]
    out |= items.entry_arrays(sets, question, claims[claim], claim, entry, slot, icell - first)
    of_cell = data["cell_question"]
    start = offsets(np.bincount(of_cell, minlength=len(questions)))
    cell = np.flatnonzero(of_sets[of_cell])
    return out | items.cell_arrays(sets, questions[of_cell[cell]], cell, cell - start[of_cell[cell]])
