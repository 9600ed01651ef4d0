"""Many data sets drawn from a model on one design, compiled to one shape: what calibration by simulation fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import fitting
from nousppl.blueprint import Blueprint, draw_up
from nousppl.compile import Problem, compile_problem
from nousppl.encode import Encoded
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.generate import Generator, Truth
from nousppl.inference.many import Stack
from nousppl.model import TrustModel, resolve_learn_from
from nousppl.models.program import Plan
from nousppl.models.shapes import Number, WhileTrue
from nousppl.padding import Mould

Ints = NDArray[np.int64]
KEYS = ["entity", "attribute"]


@dataclass(frozen=True, eq=False)
class Sets:
    """Data sets of one design, ready to be fitted side by side."""

    plan: Plan
    blueprint: Blueprint
    """Of the first set; the parameters and what they stand for are the same in all."""
    learn_from: str
    seeds: tuple[int, ...]
    truths: tuple[Truth, ...]
    evidences: tuple[Evidence, ...]
    """What each fit sees."""
    fit: Stack
    asked: Stack | None
    """The questions whose truth no fit sees; None where all are settled."""
    cells: tuple[Ints, ...]
    """(asked + 1,) by set: where the answers of each asked question start among the cells of `asked`."""
    true_cell: tuple[Ints, ...]
    """(asked,) by set: the cell of the truth."""


def draw_sets(
    model: TrustModel,
    fitted: TrustModel,
    design: pd.DataFrame,
    count: int,
    seed: int,
    settled: float,
    learn_from: str | None,
) -> Sets:
    """Draw data sets and compile them.

    Args:
        model: drawn from.
        fitted: that will be fitted.
        design: claims without values.
        count: number of sets.
        seed: the sets have seeds of their own that follow from it.
        settled: share of the questions whose truth is known to a fit, at random, the same questions in all sets.
        learn_from: see ``TrustModel.fit``.

    Raises:
        ModelError: as `nousppl.generate.simulate`; nothing settled or all of it where that cannot be.
    """
    if not 0.0 <= settled <= 1.0:
        raise ModelError(f"settled={settled!r}: the share of questions whose truth is known lies between 0 and 1")
    other = [a for m in (model, fitted) for a, shape in m.shapes.items() if isinstance(shape, Number | WhileTrue)]
    if other and settled < 1.0:
        raise ModelError(
            f"settled={settled!r}: attribute {other[0]!r} is a number or true for a while, and what is ranked of the "
            "questions that stay open is the chance of their true answer; allowed with these shapes is settled=1.0, "
            "which ranks the parameters"
        )
    generator = Generator(model, design)
    seeds = tuple(int(s) // 2 for s in np.random.SeedSequence(seed).generate_state(count))
    questions = len(generator.encoded.coded.questions)
    known = np.random.default_rng(seed).permutation(questions)[: round(settled * questions)]
    truths, evidences = [], []
    for each in seeds:
        truth, evidence = generator.draw(each)
        truths.append(truth)
        facts = truth.settled.iloc[np.sort(known)].reset_index(drop=True)
        evidences.append(evidence.with_settled(facts) if len(facts) else evidence)
    return compile_sets(fitted, truths, evidences, seeds, learn_from)


def compile_sets(
    model: TrustModel,
    truths: Sequence[Truth],
    evidences: Sequence[Evidence],
    seeds: Sequence[int],
    learn_from: str | None,
) -> Sets:
    """Compile data sets to common sizes."""
    learn_from = resolve_learn_from(evidences[0], learn_from)
    asked = np.flatnonzero(~np.isin(np.arange(len(truths[0].settled)), evidences[0].coded.settled_question))
    blueprints, encoded, fits, settled, close, asking = [], [], [], [], [], []
    for evidence, seed in zip(evidences, seeds, strict=True):
        blueprint = draw_up(model, evidence, None if learn_from == "all" else evidence.coded.settled_truths)
        read = blueprint.encode(evidence)
        learned = fitting.learned_questions(read, learn_from)
        everything = np.iinfo(np.int64).max
        blueprint, problems, facts, shares = fitting.prepared(learned, blueprint, read, everything, seed)
        _refuse_parts(read)
        blueprints.append(blueprint)
        encoded.append(read)
        fits.append(problems)
        settled.append(facts < len(learned))
        close.append(shares)
        asking.append([compile_problem(read, asked, seed)] if len(asked) else [])
    if any(b.plan.key != blueprints[0].plan.key for b in blueprints):
        raise ModelError(
            "the simulated sets have different parameters (an affinity needs pairs of sources that meet by design, "
            "whatever they say)"
        )
    return Sets(
        plan=blueprints[0].plan,
        blueprint=blueprints[0],
        learn_from=learn_from,
        seeds=tuple(seeds),
        truths=tuple(truths),
        evidences=tuple(evidences),
        fit=_stack(blueprints, encoded, fits, settled[0], close),
        asked=_stack(blueprints, encoded, asking, False, [None] * len(seeds)) if len(asked) else None,
        cells=tuple(_starts(e, asked) for e in encoded),
        true_cell=tuple(_true(e, t, asked) for e, t in zip(encoded, truths, strict=True)) if len(asked) else (),
    )


def _refuse_parts(encoded: Encoded) -> None:
    if encoded.parts.split:
        row = encoded.coded.questions.iloc[encoded.parts.whole[-1]]
        raise ModelError(
            f"simulated sets: the items of entity {row['entity']!r}, attribute {row['attribute']!r} are in parts, and "
            f"no cell of it stands for its truth; allowed are lists of up to 12 items"
        )


def _stack(
    blueprints: Sequence[Blueprint],
    encoded: Sequence[Encoded],
    problems: Sequence[list[Problem]],
    from_vote: bool,
    close: Sequence[Any],
) -> Stack:
    mould = Mould(room=1.0)
    for each, batches in zip(encoded, problems, strict=True):
        mould.hold(*fitting.designed(each, batches)[:2])
    ready = [fitting.batched(*each, mould) for each in zip(blueprints, encoded, problems, strict=True)]
    shared, split = ([row[k] for row in ready] for k in (1, 2))
    return Stack(
        ready[0][0],
        {name: np.stack([row[name] for row in shared]) for name in shared[0]},
        {name: np.stack([row[name] for row in split]) for name in split[0]},
        from_vote,
        tuple(close),
    )


def _starts(encoded: Encoded, questions: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(np.diff(encoded.cells.offset)[questions])])


def _true(encoded: Encoded, truth: Truth, questions: Ints) -> Ints:
    """Cell of each truth, counted from the first cell of these questions; that of the others where nobody names it."""
    starts, offset, values = _starts(encoded, questions), encoded.cells.offset, truth.settled["value"].to_numpy(object)
    out = np.empty(len(questions), np.int64)
    for row, question in enumerate(questions):
        named = encoded.cells.value[offset[question] : offset[question + 1]]
        place = np.flatnonzero(named == values[question])
        out[row] = starts[row] + (place[0] if len(place) else len(named) - 1)
    return out
