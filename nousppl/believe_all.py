"""The beliefs about all questions of an evidence, in one batched call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.asking import Answers
from nousppl.beliefs import Beliefs
from nousppl.beliefs_items import item_table
from nousppl.errors import QuestionError
from nousppl.evidence import Evidence
from nousppl.number_asking import believe_numbers
from nousppl.number_beliefs import NumberBeliefs
from nousppl.ragged import offsets
from nousppl.shown import shown_answers

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
    index, numbers = np.flatnonzero(~cells.measured), np.flatnonzero(cells.measured)
    answers, times = Answers(trust.blueprint, encoded, asked, trust.model.order_seed, mould), asked_at(evidence, at)
    if times is not None and len(times) > 1:
        times = times[index]
    shown = shown_answers(cells.periods, cells.offset, cells.value, (cells.other, cells.count))
    # The one cell of a number is certain, whatever the number is.
    kept = ~np.repeat(cells.measured, shown.counts)
    mean, sd, support = np.ones(len(kept)), np.zeros(len(kept)), np.zeros(len(kept))
    if len(index):
        mean[kept], sd[kept], support[kept] = answers.cells(index, times)
    keys = zip(questions["entity"], questions["attribute"], strict=True)
    seen, claims = np.array([key in trust.seen for key in keys], bool), np.diff(encoded.claim_offset)
    about = None
    if len(numbers):
        found = believe_numbers(answers, numbers)
        mine = questions.iloc[numbers].reset_index(drop=True)
        about = NumberBeliefs(mine, tuple(found.mixtures), claims[numbers], found.witnesses, seen[numbers])
    return Beliefs(
        questions=questions.iloc[index].reset_index(drop=True),
        cell_question=np.repeat(np.arange(len(index)), shown.counts[index]),
        cell_answer=shown.answer[kept],
        cell_other=shown.other[kept],
        cell_count=shown.stands_for[kept],
        probability=mean[kept],
        sd=sd[kept],
        support=support[kept],
        claims=claims[index],
        seen=seen[index],
        meta={
            "draws": len(next(iter(asked.values()))),
            "method": trust.record["method"],
            "base_rates": trust.model.base_rates,
        },
        shapes=trust.model.shapes,
        items=item_table(cells.items, questions, offsets(shown.counts), mean),
        numbers=about,
    )


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
