"""Cross-validation over settled questions: hide their truth, fit on the rest, ask, compare with what was hidden."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.beliefs import Beliefs
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.folds import assign, groups_of, settled_questions
from nousppl.held_out import KEYS, CrossValidation, in_order_of, join, pick, result
from nousppl.inference.options import NUTS, SVI, check_backend
from nousppl.model import TrustModel, options_of
from nousppl.models.shapes import WhileTrue
from nousppl.padding import Mould
from nousppl.trust import Trust

Ints = NDArray[np.int64]
Forecaster = Callable[[Evidence, int], Beliefs]
"""Anything that forms beliefs: gets an evidence (claims, and the settled facts that may be used) and a seed, and gives
beliefs about all its questions."""


class Contestant:
    """A model or a forecaster as cross-validation uses it: fit on an evidence, then ask about another."""

    def __init__(
        self,
        model: TrustModel | Forecaster,
        method: str | SVI | NUTS,
        seed: int,
        learn_from: str | None,
        backend: str = "numpyro",
    ) -> None:
        if not isinstance(model, TrustModel) and not callable(model):
            raise ModelError(
                f"model={model!r}: allowed are a TrustModel, or a function of (evidence, seed) that gives Beliefs"
            )
        check_backend(backend)
        self.model, self.seed, self.learn_from, self.backend = model, seed, learn_from, backend
        self.options = options_of(method)
        # Folds have about the same size: code that is compiled for one of them serves the others.
        self.fits, self.asks = Mould(), Mould()

    def fit(self, learned: Evidence) -> Trust | None:
        """The trust of a model; None for a forecaster, which has to see the questions."""
        if not isinstance(self.model, TrustModel):
            return None
        return self.model._fit(learned, self.options, self.seed, self.learn_from, mould=self.fits, backend=self.backend)

    def ask(self, trust: Trust | None, evidence: Evidence, wanted: pd.DataFrame, at: Any = None) -> Beliefs:
        """Beliefs about the wanted questions of an evidence, whose questions are asked about at these times."""
        if trust is not None:
            return pick(trust._posteriors(evidence, mould=self.asks, at=at), wanted, "trust")
        assert not isinstance(self.model, TrustModel)
        beliefs = self.model(evidence, self.seed)
        if not isinstance(beliefs, Beliefs):
            raise ModelError(
                f"model={self.model!r} gave {type(beliefs).__name__}; allowed are Beliefs, "
                "which Beliefs.from_frame makes"
            )
        return pick(beliefs, wanted, f"model={self.model!r}")

    @property
    def changing(self) -> bool:
        """Whether it knows truths that change, so that it matters which time is asked about."""
        if not isinstance(self.model, TrustModel):
            return False
        return self.model.change is not None or lasts(self.model)

    @property
    def name(self) -> str:
        """What it is, for the record."""
        return (
            repr(self.model)
            if isinstance(self.model, TrustModel)
            else getattr(self.model, "__name__", repr(self.model))
        )


def lasts(model: TrustModel) -> bool:
    """Whether something of what it knows is true for a while."""
    return any(isinstance(shape, WhileTrue) for shape in model.shapes.values())


def cross_validate(
    model: TrustModel | Forecaster,
    evidence: Evidence,
    folds: int = 5,
    by: str = "question",
    method: str | SVI | NUTS = "svi",
    seed: int = 0,
    learn_from: str | None = None,
    progress: bool = False,
    backend: str = "numpyro",
) -> CrossValidation:
    """Hold out the settled questions fold by fold: what is settled of them is hidden, the rest is learned from.

    Nothing that is settled of a held-out question (rejections too) is in the evidence that is fitted or asked; its
    claims stay, and are learned from as those of any unsettled question where ``learn_from="all"``. Of a question that
    was settled at several times the last is asked about; a model of truths that change is asked about that time. All
    shapes are held out together; `nousppl.CrossValidation.by_shape` has the scores of each.

    Args:
        model: a ``TrustModel``, or a function of (evidence, seed) that gives ``Beliefs`` about the questions of that
            evidence, so that baselines and other packages are scored in the very same way.
        evidence: claims and settled facts.
        folds: number of folds.
        by: what is held out together: "question", "entity", "attribute", or a column of claims or sources that is
            constant within each question, such as a date.
        method: as in ``TrustModel.fit``, and so are ``seed`` (of the folds too) and ``learn_from``.
        seed: of the folds and of everything random in the fits. The fold of a question depends on the seed and its
            group alone.
        learn_from: "settled" or "all"; by default as many truths as are left in a fold decide.
        progress: True writes a line a fold to stderr.
        backend: as in ``TrustModel.fit``.

    Raises:
        EvidenceError: nothing can be held out, or ``by`` cannot be used.
        ModelError: the evidence does not fit the model.
        InferenceError: a fit cannot be made.
        QuestionError: a function gave no belief about a held-out question.
    """
    contestant = Contestant(model, method, seed, learn_from, backend)
    asked, unasked = settled_questions(evidence)
    fold = assign(groups_of(evidence, asked, by), folds, seed)
    parts, rows = [], []
    for number in np.unique(fold):
        wanted = asked[fold == number]
        began = time.perf_counter()
        learned = evidence.hide(wanted)
        trust = contestant.fit(learned)
        keys = evidence.coded.questions.iloc[wanted].reset_index(drop=True)
        asked_of = learned if trust is None else learned.subset(rows_of(learned, keys))
        at = truths(evidence, asked_of.questions)["time"].to_list() if contestant.changing else None
        parts.append(contestant.ask(trust, asked_of, keys, at))
        rows.append({"fold": int(number), **row_of(trust, learned, len(wanted), began)})
        show(progress, "fold", rows[-1])
    keys = evidence.coded.questions.iloc[asked].reset_index(drop=True)
    beliefs = pick(join(parts), keys, "beliefs")
    table = in_order_of(beliefs, keys.assign(fold=fold))
    record = {"kind": "folds", "by": by, "seed": seed, "model": contestant.name, "unasked": unasked}
    return result(beliefs, truths(evidence, keys), table, rows, record)


def rows_of(evidence: Evidence, keys: pd.DataFrame) -> Ints:
    """Rows in ``evidence.questions`` of some questions, all of which are there."""
    index = pd.MultiIndex.from_frame(evidence.coded.questions[KEYS])
    return index.get_indexer(pd.MultiIndex.from_frame(keys[KEYS])).astype(np.int64)


def truths(evidence: Evidence, questions: pd.DataFrame, first: bool = False) -> pd.DataFrame:
    """Settled truths of some questions, as the evidence shows them; the last of each, or that which was known first."""
    coded, settled = evidence.coded, evidence.settled
    wanted = np.flatnonzero(np.isin(coded.settled_question, rows_of(evidence, questions)) & ~coded.settled_rejected)
    if first:
        known = wanted[np.argsort(coded.settled_known_at[wanted], kind="stable")]
        _, place = np.unique(coded.settled_question[known], return_index=True)
        return settled.iloc[known[place]].reset_index(drop=True)
    return settled.iloc[wanted].drop_duplicates(KEYS, keep="last").reset_index(drop=True)


def row_of(trust: Trust | None, learned: Evidence, n: int, began: float) -> dict[str, Any]:
    """What ``by_fold`` says of one fit."""
    return {
        "n": n,
        "learned": len(learned.coded.settled_truths),
        "seconds": time.perf_counter() - began,
        "converged": None if trust is None else bool(trust.record["converged"]),
        "status": "" if trust is None else trust.status,
    }


def show(progress: bool, what: str, row: dict[str, Any]) -> None:
    """One line on stderr about a fold or window, where progress is wanted."""
    if progress:
        sys.stderr.write(f"{what} {row['fold']}: {row['n']} questions in {row['seconds']:.1f} s; {row['status']}\n")
