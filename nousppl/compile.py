"""Second half of compilation: encoded claims of some questions -> an immutable ragged ``Problem``.

No Python loop runs over claims: chains of earlier claims, entries (claim x answer) and listed pairs are laid out by
sorting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nousppl.denied import denied_icells, denied_pairs, more_entries, stated_arrays, stated_sizes
from nousppl.difficulty import difficulty_nodes, node_grid
from nousppl.encode import Encoded
from nousppl.lanes import lay_lanes
from nousppl.listed import listed_affinities, listed_own, pair_links
from nousppl.models.layout import Layout
from nousppl.models.origin import subsets
from nousppl.number_layout import lay_numbers
from nousppl.ragged import (
    Floats,
    Ints,
    offsets,
    place_in_group,
    ranges,
    sums_before,
)
from nousppl.settled import Settled, log_possible
from nousppl.shaped import shaped_arrays
from nousppl.slots import Chains, Slots, chain, joint, lay_out
from nousppl.text import listed_pairs

TRACKED = 64
"""Most named answers of a question whose own popularity is subtracted when they are the truth; of the rarer ones it is
neglected."""
BLOCK = 256
"""Longer sums than this are taken in blocks."""


@dataclass(frozen=True)
class Problem:
    """Questions compiled for the array code.

    Attributes:
        layout: static sizes and switches.
        data: arrays by name; integer indices int32, numbers float64 (the backend takes them in its own precision).
        questions: (questions,) index of each question in the evidence, those of further parts beyond.
        claims: (claims,) index of each claim in the evidence, those of further parts beyond.
        cells: (cells,) index of each cell in ``encoded.cells``.
        slot_claim: (slots,) index into ``claims`` of each slot.
        row_value: (rows,) equal for rows of one order of a question that say the same.
        links: (links,) the pairs of sources that occur, index into the model's affinities.
        times: (slots,) time of each slot.
        at: (questions,) times asked about, where truths change or last for a while.
        settled: what is settled of the questions at which time, where truths change; else None.
    """

    layout: Layout
    data: dict[str, NDArray[Any]]
    questions: Ints
    claims: Ints
    cells: Ints
    slot_claim: Ints
    row_value: Ints
    links: Ints
    times: Floats
    at: Floats
    settled: Settled | None


def compile_problem(
    encoded: Encoded, questions: Ints, seed: int = 0, at: Floats | None = None, part: bool = False
) -> Problem:
    """Lay out the claims of some questions.

    Args:
        encoded: the encoded evidence.
        questions: sorted indices of questions of the evidence; all parts of these are laid out.
        seed: keys the random orders of claims whose order is not known.
        at: (questions,) times asked about, where truths change; default the latest time of the evidence.
        part: whether the questions are parts, which are laid out by themselves.
    """
    at = np.full(len(questions), encoded.latest) if at is None else np.where(np.isnan(at), encoded.latest, at)
    if encoded.parts.split and not part:
        asked, questions = questions, encoded.parts.of(questions)
        at = at[np.searchsorted(asked, encoded.parts.whole[questions])]
    offset = encoded.claim_offset
    claims = ranges(offset[questions], np.diff(offset)[questions])
    local = np.repeat(np.arange(len(questions)), np.diff(offset)[questions])
    keep = encoded.used[claims]
    claims, local = claims[keep], local[keep]
    slots = lay_out(encoded, questions, claims, local, seed)
    chains = [chain(slots.instance[slots.row_slot]), chain(slots.row_value)]
    groups = subsets(len(encoded.features)) if encoded.origin is not None else ()
    for group in groups:
        code = np.zeros(len(slots.claim), np.int64)
        for f in group:
            feature = encoded.features[f][claims]
            code = code * (int(feature.max(initial=0)) + 1) + feature[slots.claim]
        chains.append(chain(joint(slots.instance, code)[slots.row_slot]))
        chains.append(chain(joint(slots.row_value, code[slots.row_slot])))
    data: dict[str, Any] = {}
    _claims(data, encoded, claims)
    _slots(data, encoded, slots, questions, claims)
    _cells(data, encoded, slots, questions, at)
    _chains(data, encoded, slots, chains, len(groups))
    denied = denied_icells(encoded, slots, questions, claims)
    _entries(data, encoded, slots, chains[1], questions, denied)
    data |= stated_arrays(encoded, slots, questions, claims, data, denied)
    data |= listed_affinities(encoded, slots, claims, chains[1])
    data |= listed_pairs(encoded, slots, claims, chains[1], groups)
    data |= listed_own(encoded, slots, claims, chains[1])
    data |= denied_pairs(encoded, slots, claims, chains[1], groups, denied, data)
    links = data.get("link_pair", np.zeros(0, np.int64))
    if "pair_row" in data and len(links):
        data["pair_link"] = pair_links(encoded, slots, claims, data, links)
    if "pair_row" in data and "echo_pair" in data:
        data["pair_listed"] = data["echo_pair"]
    data |= shaped_arrays(encoded, data, slots, questions, claims, at)
    arrays, sets = lay_numbers(encoded.cells.numbers, encoded.coded, slots, questions, claims)
    data |= arrays
    layout = _layout(encoded, slots, questions, claims, data, len(groups))._replace(numbers=sets)
    known = None if encoded.settled is None else encoded.settled.of(questions)
    if known is not None:
        sizes = np.diff(encoded.cells.offset)[questions]
        arrays, lanes = lay_lanes(data, slots, known, sizes, at, encoded.cells.shaped[questions])
        data |= arrays
        layout = layout._replace(change=True, pinned=len(known.question) > 0, lanes=lanes)
    cells = ranges(encoded.cells.offset[questions], np.diff(encoded.cells.offset)[questions])
    laid, said, answers, of_slot, values, pairs = (
        _frozen(array.astype(np.int64)) for array in (questions, claims, cells, slots.claim, slots.row_value, links)
    )
    times = np.repeat(slots.begin, np.diff(slots.start)) + slots.time
    return Problem(layout, _cast(data), laid, said, answers, of_slot, values, pairs, times, at, known)


def _claims(data: dict[str, Any], encoded: Encoded, claims: Ints) -> None:
    coded = encoded.coded
    data["claim_ceiling"] = coded.claim_ceiling[claims]
    data["claim_zero"] = np.zeros(len(claims))
    if encoded.bias_level is not None:
        data["claim_bias_level"] = encoded.bias_level[claims]


def _slots(data: dict[str, Any], encoded: Encoded, slots: Slots, questions: Ints, claims: Ints) -> None:
    coded, of_slot = encoded.coded, claims[slots.claim]
    question = questions[slots.question]
    size = encoded.cells.size[question]
    weight = coded.row_weight[slots.row]
    silence = 1.0 - np.bincount(slots.row_slot, weights=weight, minlength=len(of_slot))
    data["slot_claim"] = slots.claim
    data["slot_instance"] = slots.instance
    if encoded.errors.correlation or encoded.settled is not None:
        data["slot_question"] = slots.question[slots.instance]
    if encoded.errors.correlation:
        data["slot_part"] = 1.0 / slots.orders[data["slot_question"]]
    data["slot_looks"] = np.where(coded.claim_derived[of_slot], 0.0, 1.0)
    data["slot_size"] = size[slots.instance]
    data["row_open"] = ~encoded.cells.closed[question][slots.instance][slots.row_slot]
    data["row_uniform"] = (1.0 / (size - 1.0))[slots.instance][slots.row_slot]
    data["slot_silence"] = np.maximum(silence, 0.0) / size[slots.instance]
    data["slot_first_row"] = np.searchsorted(slots.row_slot, np.arange(len(of_slot)))
    data["row_slot"] = slots.row_slot
    data["row_icell"] = slots.row_icell
    data["row_weight"] = weight
    data["row_share"] = encoded.row_share[slots.row]


def _cells(data: dict[str, Any], encoded: Encoded, slots: Slots, questions: Ints, at: Floats) -> None:
    cells = encoded.cells
    count = np.diff(cells.offset)[questions]
    index = ranges(cells.offset[questions], count)
    local = offsets(count)
    question = np.repeat(np.arange(len(questions)), count)
    data["cell_question"] = question
    data["cell_log_count"] = np.log(cells.count[index])
    # Other shapes have a law of their own.
    size = np.where(cells.shaped, 1.0, cells.size)[questions][question]
    data["cell_log_mass"] = np.log(cells.count[index]) - np.log(size)
    data["cell_class"] = cells.klass[index]
    data["cell_log_possible"] = log_possible(encoded, questions, index, question, at)
    data["cell_log_orders"] = np.log(slots.orders)[question]
    per_instance = np.diff(slots.icell_offset)
    data["icell_instance"] = np.repeat(np.arange(len(per_instance)), per_instance)
    data["icell_cell"] = ranges(local[:-1][slots.question], per_instance)
    data["cell_vote"] = votes(data, data["row_weight"], cells.other[index], len(questions))
    data["icell_question"] = slots.question[data["icell_instance"]]
    data["question_level"] = encoded.attribute_level[questions]
    data["question_weight"] = np.ones(len(questions))
    if encoded.settled is not None:
        data["question_zero"] = np.zeros(len(questions))
        data["question_pinned"] = encoded.settled_cell[questions] >= 0


def votes(
    data: Mapping[str, NDArray[Any]], weight: NDArray[np.float64], other: NDArray[np.bool_], questions: int
) -> NDArray[np.float64]:
    """(cells,) share of the votes of each answer that is possible; a named one without votes has a tenth of a vote.

    Args:
        data: arrays of a problem.
        weight: (rows,) how much each row counts.
        other: (cells,) whether the cell stands for all answers that are not named.
        questions: number of questions.
    """
    cell, question = data["icell_cell"][data["row_icell"]], data["cell_question"]
    named = np.bincount(cell, weight * np.exp(-data["cell_log_orders"])[cell], minlength=len(other))
    found = (named + np.where(other, 0.0, 0.1)) * np.isfinite(data["cell_log_possible"])
    total = np.bincount(question, found, minlength=questions)[question]
    return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), 0.0)


def _chains(data: dict[str, Any], encoded: Encoded, slots: Slots, chains: list[Chains], groups: int) -> None:
    """Chains for the running sums that depend on parameters; sums that do not are taken here."""
    share = data["row_share"]
    lag = encoded.origin is not None and encoded.origin.lag
    timed = lag or encoded.settled is not None
    kept = chains if lag else chains[:2]
    data["chain_order"] = np.stack([c.order for c in kept])
    data["chain_position"] = np.stack([c.place for c in kept])
    data["chain_inverse"] = np.stack([c.inverse for c in kept])
    if timed:
        time = slots.time[slots.row_slot]
        data["chain_time"] = np.stack([time[c.order] for c in kept])
    if lag:
        return
    sums = [sums_before(share[c.order], c.place)[c.inverse] for c in chains]
    data["same_count"] = sums[1]
    if groups:
        data["strong_slot"] = np.stack([sums[2 + 2 * g][data["slot_first_row"]] for g in range(groups)])
        data["strong_row"] = np.stack([sums[3 + 2 * g] for g in range(groups)])


def _entries(
    data: dict[str, Any], encoded: Encoded, slots: Slots, by_cell: Chains, questions: Ints, denied: Ints | None
) -> None:
    """Pairs of a slot and a cell whose likelihood differs from that of a cell not named before."""
    icells = int(slots.icell_offset[-1])
    in_order = slots.row_icell[by_cell.order]
    first = np.full(icells, -1, np.int64)
    opening = by_cell.place == 0
    first[in_order[opening]] = slots.row_slot[by_cell.order[opening]]
    instance = data["icell_instance"]
    question = questions[slots.question[instance]]
    popular = encoded.errors.shared & (encoded.cells.size[question] > 2)
    full = (encoded.errors.bias != "none") & encoded.cells.closed[question] | encoded.cells.shaped[question]
    spread = (popular & (first >= 0) & _tracked(slots, in_order, instance, icells)) | full
    begin = np.where(full, slots.start[instance], first)[spread]
    count = slots.start[1:][instance[spread]] - begin
    alone = ~spread[in_order]
    slot = np.concatenate([ranges(begin, count), slots.row_slot[by_cell.order[alone]]])
    icell = np.concatenate([np.repeat(np.flatnonzero(spread), count), in_order[alone]])
    if alone.any() and spread.any():
        order = np.lexsort((slot, icell))
        slot, icell = slot[order], icell[order]
    slots_total = max(len(slots.claim), 1)
    if denied is not None:
        slot, icell = more_entries(slot, icell, denied, slots)
    key = in_order * slots_total + slots.row_slot[by_cell.order]
    last = np.searchsorted(key, icell * slots_total + slot) - 1
    named = (last >= 0) & (in_order[np.maximum(last, 0)] == icell) if len(in_order) else np.zeros(len(slot), bool)
    data["entry_slot"], data["entry_icell"] = slot, icell
    data["entry_last"], data["entry_named"] = np.where(named, last, 0), named
    if encoded.settled is not None:
        of_row = slots.time[slots.row_slot[by_cell.order]]
        data["entry_lag"] = np.where(named, slots.time[slot] - of_row[np.where(named, last, 0)], 0.0)
    rows = np.bincount(slots.row_slot, minlength=len(slots.claim))
    data["term_entry"] = np.repeat(np.arange(len(slot)), rows[slot])
    data["term_row"] = row = ranges(data["slot_first_row"][slot], rows[slot])
    data["term_slot"] = slots.row_slot[row]
    data["term_claim"] = slots.claim[data["term_slot"]]
    data["term_own"] = slots.row_icell[row] == icell[data["term_entry"]]
    data["term_uniform"], data["term_open"] = data["row_uniform"][row], data["row_open"][row]
    of_icell = data["cell_class"][data["icell_cell"]]
    truth, said = of_icell[icell[data["term_entry"]]], of_icell[slots.row_icell[row]]
    data["term_class"] = np.maximum(truth, 0)
    if (encoded.confusion_start >= 0).any():
        data["term_pair"] = _confused(encoded, truth, said)


def _confused(encoded: Encoded, truth: Ints, said: Ints) -> Ints:
    """Pair of a true and a wrong answer of each term; -1 where there is none."""
    start = np.where(truth >= 0, encoded.confusion_start[np.maximum(truth, 0)], -1)
    away = said - truth
    return np.where((start >= 0) & (away != 0), start + away - (away > 0), -1)


def _tracked(slots: Slots, in_order: Ints, instance: Ints, icells: int) -> NDArray[np.bool_]:
    """The most named answers of each question, at most TRACKED."""
    if not len(slots.icell_offset) > 1 or int(np.diff(slots.icell_offset).max()) <= TRACKED:
        return np.ones(icells, bool)
    count = np.bincount(in_order, minlength=icells)
    order = np.lexsort((np.arange(icells), -count, instance))
    out = np.zeros(icells, bool)
    out[order] = place_in_group(instance[order]) < TRACKED
    return out


def _layout(encoded: Encoded, slots: Slots, questions: Ints, claims: Ints, data: dict[str, Any], groups: int) -> Layout:
    longest = int(data["chain_position"].max(initial=0)) + 1
    lone = encoded.cells.size[questions] <= 2
    popular = encoded.errors.shared and not bool(lone.all())
    if longest > BLOCK:
        data |= _block_arrays(data)
    slot_blocks, entry_blocks = len(data.get("block_instance", ())), len(data.get("block_icell", ()))
    nodes = 0
    if encoded.errors.has_difficulty(encoded.origin):
        smooth = not (popular and data["row_open"].any()) and not np.isfinite(data["claim_ceiling"]).any()
        nodes = difficulty_nodes(int(np.bincount(slots.instance, minlength=1).max(initial=0)), smooth)
        data["nodes"], data["node_log_weights"] = node_grid(nodes)
    return Layout(
        questions=len(questions),
        instances=len(slots.question),
        slots=len(slots.claim),
        rows=len(slots.row),
        cells=len(data["cell_question"]),
        icells=len(data["icell_cell"]),
        entries=len(data["entry_slot"]),
        terms=len(data["term_row"]),
        pairs=len(data.get("pair_row", ())),
        kin=len(data.get("kin_row", ())),
        apart=len(data.get("apart_slot", ())),
        links=len(data.get("link_pair", ())),
        listed=len(data.get("listed_slot", ())),
        echoed=len(data.get("echo_row", ())),
        slot_blocks=slot_blocks,
        entry_blocks=entry_blocks,
        rounds=(longest - 1).bit_length(),
        nodes=nodes,
        mixture=encoded.errors.mixture,
        groups=groups,
        origins=encoded.origin is not None,
        lag=encoded.origin is not None and encoded.origin.lag,
        popularity=popular,
        soft=len(slots.row) > len(slots.claim) or bool((data["row_weight"] < 1.0).any()),
        bias=encoded.errors.bias != "none",
        confusion=int((encoded.confusion_start >= 0).sum()),
        full=encoded.errors.bias != "none" and bool(encoded.cells.closed[questions].all()),
        notes=bool((data["slot_looks"] == 0.0).any()),
        ceiling=bool(np.isfinite(data["claim_ceiling"]).any()),
        open=bool(data["row_open"].any()),
        orders=bool((slots.orders > 1).any()),
        in_place=np.array_equal(slots.claim, np.arange(len(claims))),
        shaped="entry_shaped" in data,
        sets=len(data.get("any_entry", ())),
        set_cells=len(data.get("anycell_cell", ())),
        parts=encoded.parts.split,
        periods=len(data.get("period_entry", ())),
        period_cells=len(data.get("periodcell_cell", ())),
        **stated_sizes(data),
    )


def with_blocks(problem: Problem) -> Problem:
    """The problem with its sums taken in blocks, as those of problems with long questions are: batches are laid out
    alike."""
    if problem.layout.slot_blocks:
        return problem
    arrays = {name: _frozen(array.astype(np.int32)) for name, array in _block_arrays(problem.data).items()}
    slots, entries = len(arrays["block_instance"]), len(arrays["block_icell"])
    layout = problem.layout._replace(slot_blocks=slots, entry_blocks=entries)
    return replace(problem, layout=layout, data=problem.data | arrays)


def _block_arrays(data: dict[str, Any]) -> dict[str, Ints]:
    slot_block, block_instance = _blocks(data["slot_instance"])
    entry_block, block_icell = _blocks(data["entry_icell"])
    return {
        "slot_block": slot_block,
        "block_instance": block_instance,
        "entry_block": entry_block,
        "block_icell": block_icell,
    }


def _blocks(key: Ints) -> tuple[Ints, Ints]:
    """Blocks of at most BLOCK equal keys (sorted): block of each element, and key of each block."""
    block = place_in_group(key) // BLOCK
    starts = np.ones(len(key), bool)
    starts[1:] = (key[1:] != key[:-1]) | (block[1:] != block[:-1])
    return np.cumsum(starts) - 1, key[starts]


def _cast(data: dict[str, Any]) -> dict[str, NDArray[Any]]:
    out = {}
    for name, value in data.items():
        array = np.asarray(value)
        kind = array.dtype.kind
        out[name] = _frozen(array if kind == "b" else array.astype(np.float64 if kind == "f" else np.int32))
    return out


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
