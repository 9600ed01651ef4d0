"""The belief about one question: how probable each answer is, how sure that is, and which claim moved it how far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from nousppl import display, value_text
from nousppl.delta_log import delta_log
from nousppl.errors import QuestionError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from nousppl.question import Question

Floats = NDArray[np.float64]

CLEAR = 0.8
"""Probability from which the top answer is called clear."""
WITNESS = 0.5
"""Independent witnesses from which the runner-up counts as a real disagreement."""


def verdicts(unnamed: ArrayLike, probability: ArrayLike, opposition: ArrayLike) -> NDArray[np.str_]:
    """Verdict in words, for one belief or many.

    * "not named": the top answer is that nobody has named the truth;
    * "clear": the top answer has probability at least .8;
    * "sources disagree": it has not, and at least half an independent witness stands behind the next named answer;
    * "too little evidence": anything else.

    Args:
        unnamed: whether the top answer is "other".
        probability: probability of the top answer.
        opposition: independent witnesses behind the next named answer; 0 where there is none.
    """
    tests = [np.asarray(unnamed), np.asarray(probability) >= CLEAR, np.asarray(opposition) >= WITNESS]
    return np.select(tests, ["not named", "clear", "sources disagree"], "too little evidence")


@dataclass(frozen=True, eq=False, repr=False)
class Belief:
    """Posterior of one question given its n claims and the trust in their sources."""

    question: Question
    """What was asked; its claims are in the order of the n claims here."""
    answers: tuple[Any, ...]
    """The V answers; the last one is "other" where the domain is open."""
    open: bool
    """Whether the last answer stands for all those that nobody named."""
    others: int
    """How many unnamed answers "other" stands for; 0 where the list of answers is closed."""
    samples: Floats
    """(D, V) probability of each answer under each draw of the trust; the belief is their mean."""
    path: Floats
    """(n+2, V) belief before any claim (row 0, the prior), after each claim, and at the time asked about."""
    log_odds: Floats
    """(n+2, V) log-odds of the path, each answer against the rest, in nats; infinite only where settled or rejected."""
    origins_of: Callable[[], Floats]
    """Gives (n, n+1): probability that claim j is fresh (column 0) or repeats claim k (column 1+k)."""
    status: tuple[str, ...]
    """(n,) why a claim adds nothing ("repeats claim 3 (given)", "own note", "revoked"), else ""."""
    fresh_of: Callable[[], Floats] | None = None
    """Gives (n,) column 0 of the origins, where that is cheaper than all of them; optional."""
    before: tuple[Floats, Floats] | None = None
    """(n, V) belief just before each claim and its log-odds, where it drifts between claims; else None."""
    said: Floats | None = None
    """(n, V) weight with which each claim names each answer, where its value is not the answer's name; optional."""
    witnesses: Floats | None = None
    """(V,) independent witnesses behind each answer, where known without the origins; optional."""
    facts_of: Callable[[], tuple[NDArray[np.int64], Floats, Floats]] | None = None
    """Gives the places (F,) among ``question.settled`` of what holds at a time of its own, and the belief (F, V) just
    before and after it; None where what is settled is not accounted for."""
    ends: pd.DataFrame | None = None
    """Of what is true for a while: candidates for its end, one row each. ``end`` is "never on", "stated" (with
    ``until`` and ``until_sd``) or "not stated"; the column ``probability`` sums to 1; ``lower``, ``median`` and
    ``upper`` are the 5, 50 and 95 % quantiles of the end if this candidate is the true one, the claims being what they
    are. None for other questions."""

    def __post_init__(self) -> None:
        n, size = len(self.status), len(self.answers)
        if self.samples.ndim != 2 or self.samples.shape[1] != size:
            raise ValueError(f"samples must be (draws, {size}), got {self.samples.shape}")
        if self.path.shape != (n + 2, size) or self.log_odds.shape != (n + 2, size):
            raise ValueError(
                f"path and log_odds must be ({n + 2}, {size}), got {self.path.shape}, {self.log_odds.shape}"
            )

    @cached_property
    def top(self) -> int:
        """Position of the top answer in ``answers``."""
        return int(self.path[-1].argmax())

    @cached_property
    def _claims(self) -> pd.DataFrame:
        """One row a claim: claim, source, value (of a soft claim the likeliest answer), time."""
        coded, span = self.question.evidence.coded, self._span
        rows = self.question.claims
        first = coded.row_start[span.start : span.stop] - coded.row_start[span.start]
        top = self._said.argmax(axis=1)
        return pd.DataFrame(
            {
                "claim": coded.claim_id[span],
                "source": coded.sources.to_numpy(dtype=object)[coded.claim_source[span]],
                "value": self._index.to_numpy()[top],
                "time": rows["time"].to_numpy()[first] if "time" in rows else np.nan,
            }
        )

    @property
    def _span(self) -> slice:
        """Place of the claims among those of the evidence."""
        start = self.question.evidence.coded.claim_start
        return slice(int(start[self.question.index]), int(start[self.question.index + 1]))

    @cached_property
    def _said(self) -> Floats:
        """(n, V) weight with which each claim names each answer: 1 for a hard claim."""
        if self.said is not None:
            return self.said
        coded, span = self.question.evidence.coded, self._span
        rows = slice(int(coded.row_start[span.start]), int(coded.row_start[span.stop]))
        answer = coded.row_answer[rows]
        place = {(value_text.kind_of(name), name): i for i, name in enumerate(self._named)}
        column = {
            code: place[value_text.kind_of(value), value] for code, value in _named_by(coded.answer_value, answer)
        }
        said = np.zeros((len(self.status), len(self.answers)))
        said[coded.row_claim[rows] - span.start, [column[code] for code in answer]] = coded.row_weight[rows]
        return said

    @property
    def _named(self) -> tuple[Any, ...]:
        return self.answers[:-1] if self.open else self.answers

    @property
    def probabilities(self) -> pd.Series:
        """Probability by answer, "other" last where the domain is open."""
        return pd.Series(self.path[-1], index=self._index, name="probability")

    @property
    def _index(self) -> pd.Index:
        return pd.Index(self.answers, dtype=object, name="answer")

    @property
    def answer(self) -> Any:
        """The most probable answer; "other" where it is most probable that nobody named the truth."""
        return self.answers[self.top]

    @property
    def probability(self) -> float:
        """Probability of :attr:`answer`."""
        return float(self.path[-1, self.top])

    def interval(self, p: float = 0.9) -> pd.DataFrame:
        """Central interval of each answer's probability over the draws of the trust: the doubt about the sources.

        Args:
            p: probability of the interval.

        Returns:
            Columns ``lower`` and ``upper``, by answer.

        Raises:
            QuestionError: p is not between 0 and 1.
        """
        return central(self.samples, self._index, p)

    @property
    def entropy(self) -> float:
        """Entropy of the belief in bits; "other" counts as the answers that it stands for, equally probable."""
        p = self.path[-1]
        return float(-(p * np.log2(np.where(p > 0, p / self._sizes, 1.0))).sum() + 0.0)

    @property
    def _sizes(self) -> Floats:
        sizes = np.ones(len(self.answers))
        if self.open:
            sizes[-1] = max(self.others, 1)
        return sizes

    def surprise(self, value: Any) -> float:
        """Bits of surprise if ``value`` turned out true: minus log2 of its probability.

        Raises:
            QuestionError: the list of answers is closed and does not hold the value.
        """
        with np.errstate(divide="ignore"):
            return float(-np.log2(self._probability_of(value)) + 0.0)

    def _probability_of(self, value: Any) -> float:
        for i, answer in enumerate(self._named):
            if value_text.same(answer, value):
                return float(self.path[-1, i])
        if not self.open:
            allowed = ", ".join(value_text.show(answer, 30) for answer in self.answers[:10])
            raise QuestionError(f"{display.title(self.question)}: {value!r} is no answer; answers are {allowed}")
        return float(self.path[-1, -1] / max(self.others, 1))

    @property
    def _before(self) -> tuple[Floats, Floats]:
        """(n, V) belief just before each claim, and its log-odds."""
        return (self.path[:-2], self.log_odds[:-2]) if self.before is None else self.before

    @cached_property
    def _points(self) -> Floats:
        """(n+2,) change of the log-odds of the top answer by the prior, by each claim and by time."""
        odds, before = self.log_odds[:, self.top], self._before[1][:, self.top]
        drift = np.r_[before, odds[-1]]
        with np.errstate(invalid="ignore"):
            by_claim, by_time = odds[1:-1] - before, drift[1:] - odds[1:-1]
        by_claim[odds[1:-1] == before], by_time[drift[1:] == odds[1:-1]] = 0.0, 0.0
        return np.r_[drift[0], by_claim, by_time.sum()]

    @property
    def points(self) -> pd.DataFrame:
        """What moved the belief: a row "prior", a row for each claim in the order of events, and a row "time".

        Column ``points`` is the change of the log-odds of the top answer against the rest, in nats; the rows add up to
        the log-odds of the belief. Where truths change, the row "time" is what happened between the claims and since
        the last: old news counts for less, and what was settled in between counts. ``note`` says why a claim adds
        nothing.
        """
        claims = self._claims
        labels = ["prior", *claims["claim"], "time"]
        table = claims.reset_index(drop=True).reindex(range(-1, len(claims) + 1))
        table["points"] = self._points
        table["note"] = ["", *self.status, ""]
        return table.set_axis(pd.Index(labels, dtype=object, name="row"))

    @cached_property
    def _origins(self) -> Floats:
        return np.asarray(self.origins_of(), dtype=np.float64)

    @property
    def origins(self) -> pd.DataFrame:
        """Where each claim comes from: probability of "fresh" and of repeating each other claim; rows sum to 1."""
        return origins_table(self._origins, list(self._claims["claim"]))

    @cached_property
    def fresh(self) -> Floats:
        """(n,) probability that the source of each claim looked for itself."""
        return self._origins[:, 0] if self.fresh_of is None else np.asarray(self.fresh_of(), dtype=np.float64)

    @cached_property
    def _support(self) -> Floats:
        """(V,) independent witnesses behind each answer."""
        return self.fresh @ self._said if self.witnesses is None else self.witnesses

    @property
    def effective_claims(self) -> float:
        """Independent witnesses behind the top answer: P(fresh) summed over the claims that name it."""
        return float(self._support[self.top])

    @property
    def runner_up(self) -> Any | None:
        """The most probable named answer other than the top one; None where there is none."""
        place = self._second
        return None if place is None else self.answers[place]

    @cached_property
    def _second(self) -> int | None:
        order = [i for i in np.argsort(-self.path[-1], kind="stable") if i != self.top and i < len(self._named)]
        return int(order[0]) if order else None

    @property
    def verdict(self) -> str:
        """One of "clear", "sources disagree", "too little evidence", "not named"; see :func:`verdicts`."""
        unnamed = self.open and self.top == len(self.answers) - 1
        opposition = 0.0
        if not unnamed and self.probability < CLEAR and self._second is not None:
            opposition = self._support[self._second]
        return str(verdicts(unnamed, self.probability, opposition))

    def history(self) -> pd.DataFrame:
        """The log of what moved the belief, event by event.

        Returns:
            A row an event in the order of events: ``time``; ``event``, which is "claim", "settled", "rejected" or
            "revoked"; ``claim``, ``source`` and ``value``; ``prior`` and ``posterior`` (probability of the final top
            answer just before and after it); ``surprise`` (bits of what was claimed or settled under the belief before
            it; of a rejection, that the answer is wrong). Where truths change, the belief drifts between events, so a
            prior is not the posterior before it. What was revoked is on record and moves nothing: its numbers are
            missing. What is settled at no time, or where truths stay, holds from the start: it comes first, and its
            prior and surprise are missing.
        """
        return delta_log(self, self._claims, self._before[0], self._said)

    @property
    def draws(self) -> xr.DataArray:
        """The belief under each draw of the trust, dims ``draw`` and ``answer``."""
        import xarray as xr

        return xr.DataArray(
            self.samples, dims=("draw", "answer"), coords={"answer": self._index.to_numpy()}, name="probability"
        )

    def plot(self, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
        """Draws the answers with their intervals, and the points of the claims coloured by how fresh they are.

        Args:
            axes: two axes to draw on; a new figure by default.
        """
        from nousppl import plotting

        return plotting.plot_belief(self, axes)

    def to_dict(self) -> dict[str, Any]:
        """The belief as plain lists, numbers and text, ready for json; infinite points are the text "inf" or "-inf"."""
        return display.belief_dict(self)

    def __repr__(self) -> str:
        return display.belief_text(self)

    def _repr_html_(self) -> str:
        return display.belief_html(self)


def central(samples: Floats, names: pd.Index, p: float) -> pd.DataFrame:
    """Columns lower and upper, by name: central intervals of probabilities (draws, names).

    Raises:
        QuestionError: p is not between 0 and 1.
    """
    if not 0 < p < 1:
        raise QuestionError(f"interval(p={p!r}): p must be above 0 and below 1, for instance .9")
    bounds = np.quantile(samples, [(1 - p) / 2, (1 + p) / 2], axis=0)
    return pd.DataFrame(bounds.T, index=names, columns=["lower", "upper"])


def origins_table(origins: Floats, names: list[Any]) -> pd.DataFrame:
    """Origins (n, n + 1) of the claims with these names, "fresh" first."""
    return pd.DataFrame(origins, index=pd.Index(names, name="claim"), columns=["fresh", *names])


def _named_by(values: NDArray[np.object_], codes: NDArray[np.int32]) -> list[tuple[int, Any]]:
    return [(int(code), values[code]) for code in np.unique(codes)]
