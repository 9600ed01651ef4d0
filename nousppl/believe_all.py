"""The beliefs about all questions of an evidence, in one batched call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.asking import Answers
from nousppl.beliefs import Beliefs
from nousppl.beliefs_items import item_table
from nousppl.encode import Encoded
from nousppl.errors import QuestionError
from nousppl.evidence import Evidence
from nousppl.models.shapes import AnyOf, Shape
from nousppl.number_asking import believe_numbers
from nousppl.number_beliefs import NumberBeliefs
from nousppl.ragged import Ints, offsets
from nousppl.shown import shown_answers
from nousppl.whole_lists import WholeLists

if TYPE_CHECKING:
    from nousppl.padding import Mould
    from nousppl.trust import Trust

Floats = NDArray[np.float64]


def believe_all(
    trust: Trust, evidence: Evidence, draws: int | None = None, mould: Mould | None = None, at: Any = None
) -> Beliefs:
    """See `nousppl.Trust.posteriors`; with a mould, padded to its sizes."""
    encoded = trust.encoded(evidence)
    cells, questions, asked = encoded.cells, evidence.questions, trust.asked(draws)
    measured = cells.measured[: len(questions)]
    index, numbers = np.flatnonzero(~measured), np.flatnonzero(measured)
    answers, times = Answers(trust.blueprint, encoded, asked, trust.model.order_seed, mould), asked_at(evidence, at)
    if times is not None and len(times) > 1:
        times = times[index]
    shown = shown_answers(cells.periods, cells.offset, cells.value, (cells.other, cells.count))
    # The one cell of a number is certain, whatever the number is.
    kept = ~np.repeat(cells.measured, shown.counts)
    mean, sd, support = np.ones(len(kept)), np.zeros(len(kept)), np.zeros(len(kept))
    lists: tuple[WholeLists, ...] = ()
    if len(index):
        mean[kept], sd[kept], support[kept], lists = answers.cells(index, times)
    columns = (shown.answer, shown.other, shown.stands_for, mean, sd, support)
    table = _table(encoded, trust.model.shapes, shown.counts, columns, lists)
    keys = zip(questions["entity"], questions["attribute"], strict=True)
    seen, claims = np.array([key in trust.seen for key in keys], bool), np.diff(encoded.claim_offset)[: len(questions)]
    about = None
    if len(numbers):
        found = believe_numbers(answers, numbers)
        mine = questions.iloc[numbers].reset_index(drop=True)
        about = NumberBeliefs(mine, tuple(found.mixtures), claims[numbers], found.witnesses, seen[numbers])
    return Beliefs(
        questions=questions.iloc[index].reset_index(drop=True),
        **table,
        claims=claims[index],
        seen=seen[index],
        meta={
            "draws": len(next(iter(asked.values()))),
            "method": trust.record["method"],
            "base_rates": trust.model.base_rates,
        },
        shapes=trust.model.shapes,
        items=item_table(cells.items, encoded.parts, questions, offsets(shown.counts), mean),
        numbers=about,
    )


COLUMNS = ("cell_answer", "cell_other", "cell_count", "probability", "sd", "support")


def _table(
    encoded: Encoded,
    shapes: Mapping[Any, Shape],
    counts: Ints,
    columns: Sequence[NDArray[Any]],
    lists: Sequence[WholeLists],
) -> dict[str, NDArray[Any]]:
    """Columns of the cells of all questions but those about numbers, questions counted among these.

    Args:
        encoded: the evidence.
        shapes: attribute -> shape.
        counts: (questions and parts,) answers of each.
        columns: (answers of all,) in the order of `COLUMNS`.
        lists: of the questions that are in parts, in place of the answers of the parts.
    """
    parts, cells = encoded.parts, encoded.cells
    question = np.repeat(np.arange(len(counts)), counts)
    in_parts = np.isin(parts.whole, [one.question for one in lists])
    kept = ~(in_parts | cells.measured)[question]
    owners, found = [question[kept]], [[column[kept]] for column in columns]
    for one in lists:
        shape = shapes[encoded.coded.questions["attribute"].iat[one.question]]
        assert isinstance(shape, AnyOf)
        size = len(one.mean)
        names = np.array([*one.text(encoded, shape), "other", None], object)[:-1]
        rest = (np.arange(size) == size - 1, one.stand_for(encoded), one.mean, one.sd, one.support)
        owners.append(np.full(size, one.question))
        for column, more in zip(found, (names, *rest), strict=True):
            column.append(more)
    question = np.concatenate(owners)
    order = np.argsort(question, kind="stable")
    place = np.cumsum(~cells.measured[: parts.questions]) - 1
    return {"cell_question": place[question[order]]} | {
        name: np.concatenate(column)[order] for name, column in zip(COLUMNS, found, strict=True)
    }


def asked_at(evidence: Evidence, at: Any) -> Floats | None:
    """(questions,) or (1,) times asked about as the evidence counts them; None, or a missing one, for the latest.

    Raises:
        QuestionError: a time of another kind than those of the evidence, or one for some of the questions only.
    """
    if at is None:
        return None
    if isinstance(at, str) or not hasattr(at, "__len__"):
        return np.array([evidence.as_time(at)])
    if len(at) != len(evidence.questions):
        raise QuestionError(f"at: {len(at)} times for {len(evidence.questions)} questions; give one for each, or one")
    return np.array([np.nan if pd.isna(time) else evidence.as_time(time) for time in at])
