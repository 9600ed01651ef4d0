"""One question as an ordinary probabilistic program: the truth and the origin of every claim are sites of their own.

This is the form to read, to draw and to change. It is written once for numpyro and for pyro: ``xp`` is the backend, an
object of ``nousppl.models.sites.Sites``. ``Question.program(backend=...)`` gives it for a question of an evidence, and
``nousppl.inference.enumeration`` and ``torch_enumeration`` its exact answers, with all discrete sites enumerated: that
is meant for questions of a few claims; large evidence goes through the marginal.

The origins follow a distance-dependent Chinese restaurant process (Blei & Frazier 2011, "Distance dependent Chinese
restaurant processes", JMLR 12): a claim is fresh or repeats an earlier one. Fresh claims are noisy readings of a latent
truth (Dawid & Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", Applied
Statistics 28). The conventions of the arrays stand in ``nousppl.models.dense``.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nousppl.errors import InferenceError
from nousppl.models.dense import Change, DenseQuestion
from nousppl.models.namespace import Array
from nousppl.models.sites import Sites

FRESH = 0
"""Value of an origin site whose claim is fresh; 1 + k says that the claim repeats claim k."""

MOST_CLAIMS = 22
"""Enumeration lays every discrete site along an axis of its own, and numpyro has 25."""


class Grid(NamedTuple):
    """Nodes that stand for the difficulty of a question, a standard normal."""

    nodes: ArrayLike
    """(D,) difficulties, in standard deviations."""
    weights: ArrayLike
    """(D,) their probabilities; they sum to one."""


# ------------------------------------------------------------------------------------------------------ the program


def program(xp: Sites, question: DenseQuestion, values: ArrayLike | None = None, grid: Grid | None = None) -> None:
    """Truth, difficulty, and for each claim in event order its origin and what it says.

    Args:
        xp: the backend.
        question: one question at one value of the parameters.
        values: (n,) the answer that each claim names, -1 for a soft claim, whose row of ``question.weights`` stands.
            None draws the claims instead of observing them.
        grid: a discrete law for the difficulty, which can be enumerated; by default it is normal.

    Sites: ``truth`` (0..K-1; where it changes, at the time asked about, and ``truth_i`` at the i-th of the other times
    of which something is known), ``looks`` (where there is a trap: the answer that the claims follow in place of the
    truth), ``difficulty`` (where there is any), ``origin_j`` (0 fresh, 1 + k a repetition of claim k) and ``claim_j``
    (the row of weights that claim j gives to the answers). Where claims deny answers, ``denied_j`` (a row with 1 at the
    answer that claim j denies), and where some are not meant to last, ``lasts_j`` (1 if claim j, where it is fresh, is
    about the state, 0 if it is about a moment). Where the truth changes, ``settled_i`` is observed: that the
    truth is one of the answers that are left at that time.

    Raises:
        InferenceError: the errors are correlated, which no program of the claims expresses.
    """
    if question.correlation is not None:
        raise InferenceError(
            "Errors(correlation=True) is a power posterior and no generative program of the claims; "
            "the program can be written out for the same model with correlation=False"
        )
    q = xp.arrays(question)
    said = None if values is None else rows_said(xp, q, values)
    share = xp.zeros(0, q.values)  # what the claims so far say, each row summing to one
    r = xp.zeros(0)  # chance that each of them is not itself a repeat

    truths, fading = draw_truths(xp, q, question.change)
    difficulty = draw_difficulty(xp, question, grid)
    standing = share  # the same without what has been denied since
    for j, looks in enumerate(truths):
        strong = strong_weights(q, j, 1.0 - standing.sum(-1))
        weights = q.base[j, :j] * r + strong
        silent = q.alpha[j] + weights.sum() == 0  # an own note that repeats nothing
        origin = xp.choose(f"origin_{j}", origin_law(xp, q.alpha[j], weights))

        stated = origin == FRESH
        if q.law is None:
            a = reliability(xp, q.logit[j, looks] + q.difficulty_sd * difficulty, q.ceiling[j])
            c = None if q.confusion is None else q.confusion[j, looks]
            u = wrong_answer_law(xp, (r * fading[j, :j]) @ share, looks, q.beta_of(j), c)
            u = xp.where(q.closed, u, clip(xp, u, a, looks))
            fresh = fresh_law(xp, a, u, looks)
        else:
            fresh = q.law[j, looks]
        if q.lasting is not None:  # else every claim is about the state
            lasts = xp.choose(f"lasts_{j}", xp.pair(1.0 - q.lasting[j], q.lasting[j])) == 1
            fresh, stated = xp.where(lasts[..., None], fresh, 1.0 / q.size), stated & lasts
        repeated = repeat_laws(xp, share, q.rho[j, :j], q.copy_error, q.random)
        law = xp.where((origin == FRESH)[..., None], fresh, repeated[origin])
        row = xp.say(f"claim_{j}", law, silent, None if said is None else said[j])
        if q.denies is not None:
            denies = xp.integers(q.denies[j])
            law = denial_law(xp, denial_weights(xp, share, row), looks, stated, q.denial)
            target = None if said is None else xp.one_hot(denies, q.size)
            target = xp.say(f"denied_{j}", law, silent | (denies < 0), target)
            standing = xp.where(denies >= 0, standing * (1.0 - target), standing)

        row = row / row.sum()
        r = xp.append(r, originality(xp, q.alpha[j], q.base[j, :j] + strong, share @ row)[None])
        share, standing = xp.append(share, row[None]), xp.append(standing, row[None])


def rows_said(xp: Sites, question: Any, values: ArrayLike) -> Array:
    """(n, K): one-hot rows of the values, and the question's own rows where a value is -1."""
    index = xp.integers(values)
    return xp.where((index >= 0)[:, None], xp.one_hot(index, question.values), question.weights)


def draw_truths(xp: Sites, question: Any, change: Change | None) -> tuple[list[Array], Array]:
    """What each claim follows, the truth at its time where there is no trap; and (n, n) how far the popularity of an
    earlier claim has faded at a later one."""
    n = len(question.alpha)
    if change is None:
        truth = xp.choose("truth", question.prior / question.prior.sum())
        return [truth if question.trap is None else draw_looks(xp, question, truth)] * n, xp.zeros(n, n) + 1.0
    known = {change.at, *change.times, *(time for time, _ in change.pins + change.rejections)}
    at, last, others = {}, None, 0
    for time in sorted(known - {-math.inf}):
        stay = 0.0 if last is None else math.exp(-change.rate * (time - last))
        same = 0.0 if last is None else xp.one_hot(at[last], question.size)
        name = "truth" if time == change.at else f"truth_{others}"
        at[time] = xp.choose(name, stay * same + (1.0 - stay) * question.prior)
        left = [float(answer in answers_left(change, time, question.size)) for answer in range(question.size)]
        if min(left) < 1.0:
            agrees = xp.array(left)[at[time]]
            xp.choose(f"settled{name.removeprefix('truth')}", xp.pair(1.0 - agrees, agrees), 1)
        others, last = others + (time != change.at), time
    apart = np.subtract.outer(np.asarray(change.times), np.asarray(change.times))
    return [at[time] for time in change.times], xp.array(np.exp(-change.rate * np.maximum(apart, 0.0)))


def answers_left(change: Change, time: float, size: int) -> set[int]:
    """Answers that the truth may be at a time."""
    settled = {answer for when, answer in change.pins if when == time}
    rejected = {answer for when, answer in change.rejections if when <= time}
    return (settled or set(range(size))) - rejected


def draw_looks(xp: Sites, question: Any, truth: Array) -> Array:
    """What the question looks like: the truth, or in a trap an answer drawn from the base rates."""
    law = (1.0 - question.trap) * xp.one_hot(truth, question.size) + question.trap * question.base_rates
    return xp.choose("looks", law)


def draw_difficulty(xp: Sites, question: DenseQuestion, grid: Grid | None) -> Array:
    """How much harder the question is than an average one, in standard deviations; -1 for a hard one of a mixture."""
    if grid is None and question.hard is not None:
        grid = easy_or_hard(question.hard)
    if grid is not None:
        return xp.array(grid.nodes)[xp.choose("difficulty", xp.array(grid.weights))]
    return xp.normal("difficulty") if question.difficulty_sd > 0 else 0.0


def easy_or_hard(hard: float) -> Grid:
    """The law of the difficulty of a question that is hard with that chance, else easy."""
    return Grid(np.array([0.0, -1.0]), np.array([1.0 - hard, hard]))


def equispaced(count: int = 81, width: float = 5.0) -> Grid:
    """``count`` equispaced nodes over +-``width`` standard deviations with normal weights.

    A Gauss-Hermite rule of a few nodes is too coarse: the likelihood of a hundred claims is sharper than their spacing.
    """
    nodes = np.linspace(-width, width, count)
    heights = np.exp(-(nodes**2) / 2)
    return Grid(nodes, heights / heights.sum())


@dataclass(frozen=True, eq=False, repr=False)
class QuestionProgram:
    """The program of one question, without arguments that must be given: a numpyro or a pyro model.

    Calling it declares the sites of `program`; with ``observed=False`` the claims are drawn, not observed. What to do
    with it: draw it (``render_model``), condition it (``condition``), run it (``Predictive``, ``NUTS``), or ask for its
    exact answers (``nousppl.inference.enumeration.posterior(program.question, program.values)``).
    """

    xp: Sites
    """The backend."""
    question: DenseQuestion
    values: NDArray[np.int64]
    """(n,) the answer that each claim names, -1 for a soft claim."""
    answers: tuple[Any, ...]
    """(K,) what ``truth`` and ``values`` number: answer k is ``answers[k]``."""

    def __call__(self, observed: bool = True) -> None:
        """Declare all sites."""
        program(self.xp, self.question, self.values if observed else None)

    def __repr__(self) -> str:
        sizes = f"{len(self.values)} claims, {len(self.answers)} answers {reprlib.repr([*map(str, self.answers)])}"
        return f"QuestionProgram({sizes}, on {type(self.xp).__name__.lower()})"


def enumerable(question: DenseQuestion, grid: Grid | None) -> Grid:
    """The grid that the difficulty is enumerated over: the one that is given, or the question's own.

    Raises:
        InferenceError: the question has more than `MOST_CLAIMS` claims; where truths change, claims and times of them;
            where some are not meant to last, each counts twice.
    """
    axes = len(question.alpha) + len(set(question.change.times) if question.change is not None else ())
    axes += 0 if question.lasting is None else len(question.lasting)
    if axes > MOST_CLAIMS:
        raise InferenceError(
            f"the reference program enumerates questions of at most {MOST_CLAIMS} claims; this one has "
            f"{len(question.alpha)}: use the marginal"
        )
    if grid is not None:
        return grid
    if question.hard is not None:
        return easy_or_hard(question.hard)
    return equispaced() if question.difficulty_sd > 0 else Grid(np.zeros(1), np.ones(1))


# --------------------------------------------------------------------------------------------- the laws it is made of


def origin_law(xp: Sites, alpha: Array, weights: Array) -> Array:
    """(1 + j,): P(fresh) proportional to alpha, P(repeats k) to the weight of k."""
    masses = xp.append(alpha[None], weights)
    total = masses.sum()
    # Nothing to choose from: the site needs some law, and the claim is silent.
    only_fresh = xp.one_hot(xp.integers(FRESH), len(masses))
    return xp.where(total > 0, masses / xp.where(total > 0, total, 1.0), only_fresh)


def originality(xp: Sites, alpha: Array, weights: Array, match: Array) -> Array:
    """r: the chance that a claim is not itself a repeat of an earlier claim of the same value; 0 for an own note."""
    total = alpha + weights @ match
    return xp.where(total > 0, alpha / xp.where(total > 0, total, 1.0), 0.0)


def reliability(xp: Sites, logit: Array, ceiling: Array) -> Array:
    """a: the chance that a fresh claim is right."""
    return xp.at_most(xp.sigmoid(logit), ceiling)


def wrong_answer_law(
    xp: Sites, popularity: Array, truth: Array, beta: Array | None, confusion: Array | None = None
) -> Array:
    """u, (..., K): law of a wrong answer, by how many origins named it so far (K,); 0 at the truth.

    ``beta`` is the weight of ``confusion`` (..., K), the law whatever was said before, against the popularity; None is
    that law itself. By default it is uniform.
    """
    K = popularity.shape[-1]
    law = xp.zeros(K) + 1 / (K - 1) if confusion is None else confusion
    if beta is not None:
        wrong = popularity.sum() - popularity[truth]
        law = (popularity + beta * law) / (wrong + beta)[..., None]
    return xp.where(is_truth(xp, truth, K), 0.0, law)


def clip(xp: Sites, law: Array, a: Array, truth: Array) -> Array:
    """The law of a wrong answer, mixed with the uniform law just enough to stay below a / (1 - a).

    A fresh claim for an answer then never counts against it, however often bad sources have named it before, as long as
    the source is right more often than by chance (a >= 1/K) and equally often whatever the truth.
    """
    K = law.shape[-1]
    uniform = 1 / (K - 1)
    top = xp.largest(law)
    cap = xp.at_least(a / (1 - a), uniform)
    over = top > cap
    t = xp.where(over, (top - cap) / xp.where(over, top - uniform, 1.0), 0.0)[..., None]
    return xp.where(is_truth(xp, truth, K), 0.0, (1 - t) * law + t * uniform)


def fresh_law(xp: Sites, a: Array, u: Array, truth: Array) -> Array:
    """(..., K): the truth with probability a, else a wrong answer."""
    return xp.where(is_truth(xp, truth, u.shape[-1]), a[..., None], (1 - a)[..., None] * u)


def strong_weights(question: Any, j: int, denied: Array) -> Array:
    """(j,) strong weights of the earlier claims, of whose values so much has been denied since."""
    strong = question.strong[j, :j]
    if question.strong_denied is None:
        return strong
    return strong + denied * (question.strong_denied[j, :j] - strong)


def denial_weights(xp: Sites, share: Array, said: Array) -> Array:
    """(K,) how readily a claim that says this denies each answer at random: what was named before has weight 1, all the
    rest has it together."""
    named = xp.where(share.sum(0) > 0, 1.0, 0.0) * (1.0 - said)
    rest = (1.0 - named) * (1.0 - said)
    return named + rest / xp.at_least(rest.sum(), 1.0)


def denial_law(xp: Sites, weights: Array, truth: Array, stated: Array, kappa: Array) -> Array:
    """(..., K): law of the answer that a claim denies: the truth only in proportion to kappa where the claim is about
    it, and fresh."""
    about = stated[..., None] & is_truth(xp, truth, weights.shape[-1])
    mass = xp.where(about, kappa * weights, weights)
    return mass / mass.sum(-1)[..., None]


def repeat_laws(xp: Sites, share: Array, rho: Array, copy_error: Array, random: Array | None = None) -> Array:
    """(1 + j, K), by value of the origin site: what a repetition of each earlier claim says, times the ratio rho of the
    two texts where it agrees; one that goes wrong follows ``random``, by default uniform. The row of a fresh claim is
    empty."""
    K = share.shape[-1]
    wrong = copy_error / K if random is None else copy_error * random
    return xp.append(xp.zeros(1, K), rho[:, None] * (1 - copy_error) * share + wrong)


def is_truth(xp: Sites, truth: Array, K: int) -> Array:
    """(..., K): True at the truth."""
    return xp.arange(K) == truth[..., None]
