"""Forward sampling: one question, or a whole world of them whose true parameters are known.

The law is the one written at ``nousppl.models.dense.DenseQuestion``. Sampling is sequential because what a claim may
repeat and which wrong answers are popular depend on the values that came before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import ModelError
from nousppl.models.dense import Change, DenseQuestion, Floats

FRESH = -1
"""Origin of a claim whose source looked for itself."""
NOTE = -2
"""Origin of a claim that is neither fresh nor a repetition: an own note that is first in its question."""


class SimulatedQuestion(NamedTuple):
    """One draw of a question with n claims; answers are positions in its domain of K answers."""

    truth: int
    """The true answer, 0 to K - 1; where it changes, at the time asked about."""
    values: NDArray[np.int64]
    """(n,) the answer each claim names."""
    origins: NDArray[np.int64]
    """(n,) the claim that each claim repeats, ``FRESH`` or ``NOTE``."""
    truths: NDArray[np.int64]
    """(n,) the true answer at the time of each claim."""


@dataclass(frozen=True, eq=False)
class Parameters:
    """The true values of everything that a fit has to learn; units of the logit or log scale unless said otherwise.

    A claim of kind g by source s, if fresh, is right with logit
    ``intercept + kind.reliability[g] + source.reliability[s]`` and looks for itself with log concentration
    ``kind.freshness[g] + source.freshness[s]``. A pair of claims that are ``lag`` days apart has base weight
    ``exp(log_w0) 2^(-lag / half_life)``, and, where the source or the channel is the same, strong weight
    ``exp(log_same_source [same source] + log_same_channel [same channel]) 2^(-lag / half_life)``.
    """

    intercept: float
    """Logit of the reliability of a source whose effects are zero."""
    kind: pd.DataFrame
    """Effects of the kind (index) on reliability and freshness (columns)."""
    source: pd.DataFrame
    """Effects of the source (index) on reliability and freshness (columns), drawn from Normal(0, tau_source)."""
    tau_source: dict[str, float]
    """Standard deviation of the effects of the sources, for reliability and freshness."""
    log_w0: float
    """Log weight of strangers."""
    log_same_source: float
    """Coefficient of a pair with the same source."""
    log_same_channel: float
    """Coefficient of a pair on the same channel."""
    half_life: float
    """Days in which the weight of an earlier claim halves."""
    beta: float
    """Weight of the uniform law of wrong answers against their popularity, in claims."""
    eps: float = 1e-4
    """Probability that a repetition comes out as a random answer."""

    def logit(self, claims: pd.DataFrame) -> Floats:
        """Logit of the reliability of each claim; (n,)."""
        return self.intercept + self._effect(claims, "reliability")

    def log_alpha(self, claims: pd.DataFrame) -> Floats:
        """Log concentration of freshness of each claim; (n,)."""
        return self._effect(claims, "freshness")

    def _effect(self, claims: pd.DataFrame, column: str) -> Floats:
        kind, source = claims["kind"].map(self.kind[column]), claims["source"].map(self.source[column])
        return np.asarray(kind + source, np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class World:
    """A simulated world: what is claimed, what is settled, and everything that is true of it."""

    claims: pd.DataFrame
    """A row a claim, sorted by time within its question: claim (id), entity, attribute, value, source, kind, channel,
    time (timestamps, or numbers in days)."""
    settled: pd.DataFrame
    """The truth of every question, in random order: entity, attribute, value, time (after the last claim on it)."""
    sources: pd.DataFrame
    """A row a source: source and medium (what sort of thing it is)."""
    truth: pd.DataFrame
    """A row a claim, as ``claims``: claim, truth (the true answer), origin (id of the claim it repeats, missing where
    it is fresh), fresh, right, and p_fresh (P(fresh) under the true parameters before the claim's value is read)."""
    parameters: Parameters
    """The true parameters."""
    values: Mapping[str, list[str]]
    """All plausible answers of each attribute."""
    share_settled: float
    """Share of the questions whose truth is for learning."""

    def __repr__(self) -> str:
        return f"World({len(self.settled)} questions, {len(self.claims)} claims, {len(self.sources)} sources)"

    @property
    def answers(self) -> dict[str, int]:
        """Number of plausible answers of each attribute, the ``answers`` of a ``TrustModel``."""
        return {attribute: len(names) for attribute, names in self.values.items()}

    @property
    def learn(self) -> pd.DataFrame:
        """The settled facts to learn from: the first ``share_settled`` of ``settled``."""
        return self.settled.iloc[: round(self.share_settled * len(self.settled))].reset_index(drop=True)

    @property
    def test(self) -> pd.DataFrame:
        """The settled facts that are kept for a test: the rest of ``settled``."""
        return self.settled.iloc[round(self.share_settled * len(self.settled)) :].reset_index(drop=True)

    def dense(self) -> Iterator[tuple[str, str, DenseQuestion]]:
        """Entity, attribute and dense question (true parameters, claims written out), in the order of ``claims``."""
        for rows, question in _dense(self.claims, self.parameters, self.answers):
            first = self.claims.iloc[rows.start]
            names = self.values[first["attribute"]]
            codes = pd.Index(names).get_indexer(self.claims["value"].iloc[rows])
            yield first["entity"], first["attribute"], question._replace(weights=np.eye(len(names))[codes])


def simulate_question(rng: np.random.Generator, question: DenseQuestion) -> SimulatedQuestion:
    """Draw the truth, the origins and the values of the claims of one question.

    Every simulated claim is hard: ``question.weights`` is not read. ``question.rho`` is not read either (taken as 1): a
    likelihood ratio of texts is no part of the program that makes values. A claim of likelihood 1 (``NOTE``) tells
    nothing about the truth; it is drawn uniformly over the answers.

    Args:
        rng: source of randomness.
        question: the question at one value of the parameters, claims in event order.

    Raises:
        ModelError: the errors are correlated, which is no law that claims could be drawn from.
    """
    if question.correlation is not None:
        raise ModelError(
            "Errors(correlation=True) is a power posterior, which no claims can be drawn from: simulate the same "
            "model with correlation=False"
        )
    n, size = len(question.alpha), question.size
    truth = _pick(float(rng.random()), question.prior)
    truths, fading = np.full(n, truth), np.ones(n)
    if question.change is not None:
        truth, truths, fading = _changing(rng, question.prior, question.change, truth)
    looks = truths if question.trap is None else np.full(n, _looks(rng, question, truth))
    accuracy = _accuracy(question, looks, _difficulty(rng, question))
    uniforms = rng.random((n, 3))
    values, origins = np.zeros(n, np.int64), np.full(n, FRESH, np.int64)
    originality, popularity = np.zeros(n), np.zeros(size)
    for j in range(n):
        popularity *= fading[j]
        origins[j] = pick_origin(uniforms[j, 0], question, j, originality)
        if origins[j] >= 0:
            values[j] = _repeat(uniforms[j, 1], uniforms[j, 2], values[origins[j]], question.copy_error, size)
        elif origins[j] == NOTE:
            values[j] = int(uniforms[j, 1] * size)
        elif uniforms[j, 1] < accuracy[j]:
            values[j] = looks[j]
        else:
            confusion = None if question.confusion is None else question.confusion[j, looks[j]]
            law = wrong_answer_law(popularity, looks[j], accuracy[j], question.beta_of(j), question.closed, confusion)
            values[j] = _pick(uniforms[j, 2], law)
        same = values[:j] == values[j]
        repeated = float(((question.base[j, :j] + question.strong[j, :j]) * same).sum())
        originality[j] = share(question.alpha[j], repeated)
        popularity[values[j]] += originality[j]
    return SimulatedQuestion(truth, values, origins, truths)


def _changing(
    rng: np.random.Generator, law: Floats, change: Change, first: int
) -> tuple[int, NDArray[np.int64], Floats]:
    """A path of the truth from the first time on: the truth at the time asked about, and at each claim (n,); and the
    chance (n,) that it stayed the same since the claim before."""
    times = np.append(change.times, change.at)
    order = np.argsort(times, kind="stable")
    stay = np.exp(-change.rate * np.diff(times[order], prepend=times[order[0]]))
    anew = rng.random(len(times)) >= stay
    drawn = np.array([first if i == 0 else _pick(u, law) for i, u in enumerate(rng.random(len(times)))])
    since = np.maximum.accumulate(np.where(anew, np.arange(len(times)), 0))
    path = np.empty(len(times), np.int64)
    path[order] = drawn[since]
    fading = np.exp(-change.rate * np.diff(change.times, prepend=change.times[:1]))
    return int(path[-1]), path[:-1], fading


def wrong_answer_law(
    popularity: Floats,
    truth: int,
    accuracy: float,
    beta: float | None,
    closed: bool,
    confusion: Floats | None = None,
) -> Floats:
    """Probability of each answer for a fresh claim that is wrong; (K,), zero at the truth.

    Args:
        popularity: (K,) how often each answer was given before, counted in origins.
        truth: position of the true answer.
        accuracy: probability that this claim, if fresh, is right.
        beta: weight of the uniform law against popularity; None for the uniform law alone.
        closed: whether the list of answers is closed; in an open domain the law is kept from exceeding the odds of
            being right, so that a claim for an answer never counts against it.
        confusion: (K,) law of the wrong answers whatever was said before, zero at the truth; None for the uniform one.
    """
    size = len(popularity)
    flat = 1.0 / (size - 1)
    law = np.full(size, flat) if confusion is None else confusion.copy()
    if beta is not None and size > 2:
        others = popularity.copy()
        others[truth] = 0.0
        law = (others + beta * law) / (others.sum() + beta)
        law[truth] = 0.0
        cap = max(accuracy / (1.0 - accuracy), flat) if accuracy < 1.0 else np.inf
        largest = float(law.max())
        if not closed and largest > cap:
            mix = (largest - cap) / (largest - flat)
            law = (1.0 - mix) * law + mix * flat
    law[truth] = 0.0
    return law


def _looks(rng: np.random.Generator, question: DenseQuestion, truth: int) -> int:
    """What the claims follow: the truth, or in a trap an answer drawn from the base rates."""
    if question.trap is None or question.base_rates is None or rng.random() >= question.trap:
        return truth
    return _pick(float(rng.random()), question.base_rates)


def fresh_probability(question: DenseQuestion, values: NDArray[np.int64]) -> Floats:
    """P(fresh) of every claim given the values before it, its own not read; (n,), nan where the origin is ``NOTE``."""
    earlier = np.tril(np.ones_like(question.base), -1)
    base, strong = question.base * earlier, question.strong * earlier
    repeated = ((base + strong) * (values[:, None] == values)).sum(1)
    with np.errstate(invalid="ignore"):
        originality = np.nan_to_num(question.alpha / (question.alpha + repeated))
        return np.asarray(question.alpha / (question.alpha + (base * originality + strong).sum(1)))


def draw_world(
    rng: np.random.Generator,
    claims: pd.DataFrame,
    sources: pd.DataFrame,
    parameters: Parameters,
    values: dict[str, list[str]],
    share_settled: float,
) -> World:
    """Draw what is true and what is said, given who speaks where and when.

    Args:
        rng: source of randomness.
        claims: columns entity, attribute, source, kind, channel, time (timestamps, or numbers in days); the claims on a
            question stand together, in order of time.
        sources: becomes ``World.sources``.
        parameters: the true parameters.
        values: all plausible answers of each attribute; every domain is open and its truths are uniform.
        share_settled: share of the questions whose truth is for learning.
    """
    n = len(claims)
    said, true, p_fresh = np.empty(n, object), np.empty(n, object), np.empty(n)
    origin, last = np.empty(n, np.int64), []
    for rows, question in _dense(claims, parameters, {name: len(v) for name, v in values.items()}):
        draw = simulate_question(rng, question)
        names = np.array(values[claims["attribute"].iloc[rows.start]], dtype=object)
        said[rows], true[rows] = names[draw.values], names[draw.truth]
        origin[rows] = np.where(draw.origins < 0, FRESH, draw.origins + rows.start)
        p_fresh[rows] = fresh_probability(question, draw.values)
        last.append(rows.stop - 1)
    ids = pd.Series([f"c{i:0{len(str(n - 1))}d}" for i in range(n)], dtype="str")
    table = claims.assign(claim=ids.to_numpy(), value=pd.Series(said, dtype="str").to_numpy())
    table = table[["claim", "entity", "attribute", "value", "source", "kind", "channel", "time"]]
    settled = _settle(rng, table.assign(value=pd.Series(true, dtype="str").to_numpy()).iloc[last])
    truth = pd.DataFrame(
        {
            "claim": ids,
            "truth": pd.Series(true, dtype="str"),
            "origin": ids.reindex(origin).to_numpy(),
            "fresh": origin == FRESH,
            "right": said == true,
            "p_fresh": p_fresh,
        }
    )
    return World(table, settled, sources, truth, parameters, values, share_settled)


def _pick(uniform: float, weights: Floats) -> int:
    """Position drawn in proportion to the weights, by inversion of one uniform number."""
    total = np.cumsum(weights)
    return min(int(np.searchsorted(total, uniform * total[-1], side="right")), len(total) - 1)


def share(part: float, rest: float) -> float:
    """``part / (part + rest)``; 0 where both are."""
    return part / (part + rest) if part + rest > 0 else 0.0


def _difficulty(rng: np.random.Generator, question: DenseQuestion) -> float:
    """The standardised difficulty of the question."""
    if question.hard is None:
        return float(rng.standard_normal())
    return -1.0 if rng.random() < question.hard else 0.0


def _accuracy(question: DenseQuestion, truths: NDArray[np.int64], difficulty: float) -> Floats:
    """(n,) probability of being right if fresh, for a question of the given standardised difficulty, given the truth
    at the time of each claim."""
    logit = question.logit[np.arange(len(truths)), truths] + question.difficulty_sd * difficulty
    return np.minimum(0.5 * (1.0 + np.tanh(0.5 * logit)), question.ceiling)


def pick_origin(uniform: float, question: DenseQuestion, j: int, originality: Floats) -> int:
    """Origin of claim j by inversion of one uniform number: ``FRESH``, ``NOTE`` or an earlier claim."""
    weights = np.empty(j + 1)
    weights[0] = question.alpha[j]
    weights[1:] = question.base[j, :j] * originality[:j] + question.strong[j, :j]
    return _pick(uniform, weights) - 1 if weights.sum() > 0 else NOTE


def _repeat(uniform: float, answer: float, value: np.int64, copy_error: float, size: int) -> int:
    return int(answer * size) if uniform < copy_error else int(value)


def _settle(rng: np.random.Generator, last: pd.DataFrame) -> pd.DataFrame:
    """Truths (``value``) of the questions in random order, each known 1 to 20 days after its last claim."""
    days = rng.uniform(1, 20, size=len(last))
    if pd.api.types.is_datetime64_any_dtype(last["time"]):
        time = (last["time"] + pd.to_timedelta(days, unit="D")).dt.normalize().astype(last["time"].dtype)
    else:
        time = last["time"] + days
    settled = last[["entity", "attribute", "value"]].assign(time=time)
    return settled.iloc[rng.permutation(len(settled))].reset_index(drop=True)


def _dense(
    claims: pd.DataFrame, parameters: Parameters, answers: Mapping[str, int]
) -> Iterator[tuple[slice, DenseQuestion]]:
    """Rows and dense question (claims not written out, weights zero) of each question of a sorted table."""
    logit, alpha = parameters.logit(claims), np.exp(parameters.log_alpha(claims))
    source, channel = (pd.factorize(claims[column])[0] for column in ("source", "channel"))
    time = _days(claims["time"])
    keys = claims[["entity", "attribute"]]
    starts = np.flatnonzero((keys != keys.shift()).any(axis=1))
    sizes = claims["attribute"].iloc[starts].map(dict(answers))
    for start, stop, size in zip(starts, [*starts[1:], len(claims)], sizes, strict=True):
        rows = slice(int(start), int(stop))
        base, strong = _pair_weights(parameters, time[rows], source[rows], channel[rows])
        question = DenseQuestion(
            prior=np.full(size, 1 / size),
            weights=np.zeros((len(base), size)),
            logit=np.repeat(logit[rows, None], size, axis=1),
            ceiling=np.full(len(base), np.inf),
            difficulty_sd=0.0,
            alpha=alpha[rows],
            base=base,
            strong=strong,
            rho=np.ones_like(base),
            copy_error=parameters.eps,
            beta=parameters.beta,
            closed=False,
        )
        yield rows, question


def _pair_weights(
    parameters: Parameters, time: Floats, source: NDArray[np.int64], channel: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    """Base and strong weight of each pair [j, k], k < j; (n, n) each."""
    same_source, same_channel = source[:, None] == source, channel[:, None] == channel
    decay = np.tril(np.exp2(-np.abs(time[:, None] - time) / parameters.half_life), -1)
    strong = np.exp(parameters.log_same_source * same_source + parameters.log_same_channel * same_channel)
    return np.exp(parameters.log_w0) * decay, (same_source | same_channel) * strong * decay


def _days(time: pd.Series) -> Floats:
    if pd.api.types.is_datetime64_any_dtype(time):
        time = (time - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return np.asarray(time, np.float64)
