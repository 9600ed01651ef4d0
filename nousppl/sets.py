"""Sets of items as cells: arrays of set-valued questions, and the law of their lists for the readable programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from nousppl.items import Items
from nousppl.models.shapes import AnyOf
from nousppl.ragged import Floats, Ints


def holding(items: Items, question: Ints, cell: Ints) -> Ints:
    """(cells, G) how many items of each group hold in some cells, given by question and place among its cells."""
    return cell[:, None] // items.strides[question] % (items.sizes[question] + 1)


def of_all_cells(items: Items, question: int) -> Ints:
    """(cells, G) the same of every cell of a question."""
    cells = np.arange(items.cells(question))
    return holding(items, np.full(len(cells), question), cells)


def ways(items: Items, question: int) -> Floats:
    """(cells,) how many sets each cell of a question stands for."""
    return np.asarray(comb(items.sizes[question], of_all_cells(items, question)).prod(-1))


def words_of_cells(items: Items, question: int) -> list[tuple[list[str], list[str]]]:
    """(cells,) the items that hold in every cell of a question, and of groups that hold in part how many of their items
    do."""
    groups = items.groups[question]
    counts = of_all_cells(items, question)
    out = []
    for row in counts.tolist():
        whole = [name for group, many in zip(groups, row, strict=False) if many == len(group) for name in group]
        part = [
            f"{many} of ({', '.join(group)})" for group, many in zip(groups, row, strict=False) if 0 < many < len(group)
        ]
        out.append((whole, part))
    return out


def as_text(items: Items, shape: AnyOf, question: int) -> list[str]:
    """(cells,) every cell of a question as text; of a group that holds in part, how many of its items do."""
    return [shape.text((*sorted(whole), *part)) for whole, part in words_of_cells(items, question)]


def shares(items: Items, question: int) -> Floats:
    """(cells, items) chance that each item of a question holds, given the cell."""
    sizes = items.sizes[question]
    counts = of_all_cells(items, question)
    kept = sizes > 0
    return np.repeat(counts[:, kept] / sizes[kept], sizes[kept], axis=1)


def entry_arrays(
    items: Items, question: Ints, claim: Ints, slot_claim: Ints, entry: Ints, slot: Ints, cell: Ints
) -> dict[str, NDArray[Any]]:
    """Arrays of the entries of set-valued questions.

    Args:
        items: of the evidence.
        question: (any,) question of each entry.
        claim: (any,) claim of each entry, in the evidence.
        slot_claim: (any,) the same in the problem.
        entry: (any,) place among all entries.
        slot: (any,) slot of each entry.
        cell: (any,) the entry's cell, among those of its question.
    """
    out: dict[str, Any] = {"any_entry": entry, "any_slot": slot, "any_claim": slot_claim}
    kinds = [(z, said) for z in ("true", "false") for said in ("named", "denied", "silent")]
    out |= {f"any_{z}_{said}": np.zeros(len(entry)) for z, said in kinds}
    # Group by group, so that nothing is larger than the entries.
    for group in range(int((items.sizes > 0).sum(1).max(initial=0))):
        size, stride = items.sizes[question, group], items.strides[question, group]
        holds = cell // stride % (size + 1)
        named, denied = items.named[claim] >> group & 1, items.denied[claim] >> group & 1
        for said, there in (("named", named), ("denied", denied), ("silent", 1 - named - denied)):
            out[f"any_true_{said}"] += there * holds
            out[f"any_false_{said}"] += there * (size - holds)
    out["any_false_silent"] += items.absent[question]
    return out


def cell_arrays(items: Items, question: Ints, place: Ints, cell: Ints) -> dict[str, NDArray[Any]]:
    """Arrays of the cells of set-valued questions: their questions, places among all cells, and among those of the
    question."""
    holds, sizes = holding(items, question, cell), items.sizes[question]
    return {
        "anycell_cell": place,
        "anycell_attribute": items.attribute[question],
        "anycell_true": holds.sum(1).astype(np.float64),
        "anycell_false": (sizes - holds).sum(1).astype(np.float64),
    }


def possible(items: Items, question: Ints, cell: Ints) -> Floats:
    """0 for the cells that agree with what is settled, else minus infinity."""
    holds, sizes = holding(items, question, cell), items.sizes[question]
    bits = np.arange(sizes.shape[1])
    certain, excluded = (x[question][:, None] >> bits & 1 for x in (items.certain, items.excluded))
    wrong = (certain & (holds < sizes)) | (excluded & (holds > 0))
    return np.where(wrong.any(1), -np.inf, 0.0)


class Chances(NamedTuple):
    """What the sources of n claims do with the items of a set-valued question."""

    sensitivity: Floats
    """(n,) P(named | holds, fresh)."""
    specificity: Floats
    """(n,) P(not named | does not hold, fresh)."""
    denial: float
    """P(denied | does not hold, not named)."""
    slip: float
    """P(denied | holds, not named)."""
    prevalence: float
    """P(holds)."""


def law_of_lists(
    items: Items, question: int, claims: Ints, size: float, chances: Chances
) -> tuple[Floats, Floats, Floats, tuple[Any, ...]]:
    """The law of each claim's list, item by item, for the readable program.

    Args:
        items: of the evidence.
        question: which one.
        claims: (n,) its claims, in the evidence.
        size: number of values that a repetition that goes wrong may come out as.
        chances: of the claims' sources.

    Returns:
        (n, sets, V) the law, (n, V) what each claim says, (V,) the law of a repetition that goes wrong, and the V
        values: pairs of the set named and the set denied, and None for any other.
    """
    said = list(zip(items.named[claims].tolist(), items.denied[claims].tolist(), strict=True))
    values = sorted(set(said))
    sizes = items.sizes[question].tolist()
    held = of_all_cells(items, question).tolist()
    law = np.zeros((len(claims), len(held), len(values) + 1))
    for j, (sensitivity, specificity) in enumerate(zip(chances.sensitivity, chances.specificity, strict=True)):
        for cell, counts in enumerate(held):
            passed_over = (specificity * (1.0 - chances.denial)) ** items.absent[question]
            for v, (named, denied) in enumerate(values):
                p = passed_over
                for group, (many_items, holds) in enumerate(zip(sizes, counts, strict=True)):
                    true, false = (sensitivity, chances.slip), (1.0 - specificity, chances.denial)
                    for (chance, denial), many in ((true, holds), (false, many_items - holds)):
                        if named >> group & 1:
                            p *= chance**many
                        else:
                            p *= ((1.0 - chance) * (denial if denied >> group & 1 else 1.0 - denial)) ** many
                law[j, cell, v] = p
    law[:, :, -1] = np.maximum(1.0 - law.sum(-1), 0.0)
    weights = np.zeros((len(claims), len(values) + 1))
    weights[np.arange(len(claims)), [values.index(one) for one in said]] = 1.0
    random = np.r_[np.full(len(values), 1.0 / size), max(1.0 - len(values) / size, 0.0)]
    return law, weights, random, (*values, None)
