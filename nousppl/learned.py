"""What a trust was learned from: the evidence of its fit, and the questions of it that count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import QuestionError
from nousppl.evidence import Evidence
from nousppl.held_out import KEYS

if TYPE_CHECKING:
    from nousppl.trust import Trust


def learned_from(trust: Trust, evidence: Evidence, name: str) -> Evidence:
    """The questions of the evidence that a trust was learned from.

    Raises:
        QuestionError: nothing was learned, or not from this evidence.
    """
    record, coded = trust.record, evidence.coded
    if trust.default:
        raise QuestionError(f"{name}: draws of the priors, nothing was learned; fit it first")
    settled = coded.settled_truths
    keys = set(zip(*(coded.questions[column].iloc[settled] for column in KEYS), strict=True))
    same = record["questions"] == len(coded.questions) and record["claims"] == len(coded.claim_key)
    if not same or (record["settled"] > 0 and keys != set(trust.seen)):
        raise QuestionError(
            f"{name}: learned from {record['settled']} settled truths of {record['questions']} questions and "
            f"{record['claims']} claims; this evidence has {len(settled)} of {len(coded.questions)} and "
            f"{len(coded.claim_key)}, or others. Give the evidence of the fit."
        )
    return evidence if record["learn_from"] == "all" else evidence.subset(settled)


def evidence_of(trust: Trust, evidence: Evidence | None, name: str) -> Evidence:
    """The evidence given, or that of the fit.

    Raises:
        QuestionError: none is given, and that of the fit is gone.
    """
    found = trust.evidence if evidence is None else evidence
    if found is None:
        raise QuestionError(f"{name}: the evidence of the fit is not at hand any more; give it as evidence=...")
    return found


def without_later_facts(trust: Trust, evidence: Evidence) -> Evidence:
    """The evidence without the settled truths that the fit did not use; rejections stay."""
    coded = evidence.coded
    used = is_seen(trust, coded.questions.iloc[coded.settled_question])
    return _keep_facts(evidence, used | coded.settled_rejected)


def without_truths(evidence: Evidence) -> Evidence:
    """The evidence without its settled truths; rejections stay."""
    return _keep_facts(evidence, evidence.coded.settled_rejected)


def unseen_facts(trust: Trust, evidence: Evidence) -> Evidence:
    """The questions that are settled in the evidence and whose truth the fit did not use.

    Raises:
        QuestionError: there are none.
    """
    coded = evidence.coded
    settled = coded.settled_truths
    unseen = settled[~is_seen(trust, coded.questions.iloc[settled])]
    if not len(unseen):
        raise QuestionError(
            f"posterior_predictive: of the {len(settled)} settled truths of this evidence the fit has used all; give "
            "an evidence with settled truths that it has not seen, or use cross_validate"
        )
    return evidence.subset(unseen)


def is_seen(trust: Trust, questions: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,) whether the settled truth of each question (rows of entity, attribute) was used in the fit."""
    return np.array([key in trust.seen for key in questions[KEYS].itertuples(index=False, name=None)], bool)


def _keep_facts(evidence: Evidence, keep: NDArray[np.bool_]) -> Evidence:
    """The evidence with these rows of its settled facts, which lie in the order of its arrays."""
    if keep.all():
        return evidence
    return evidence.with_settled(evidence.settled[keep] if keep.any() else None)
