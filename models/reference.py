"""One question as an ordinary probabilistic program: the truth and the origin of every claim are sites of their own.

This is the form to read, to draw (``numpyro.render_model(program, (question, values))``) and to change. Its discrete
sites are enumerated by numpyro, so it is meant for questions of a few claims; large evidence goes through the marginal.

The origins follow a distance-dependent Chinese restaurant process (Blei & Frazier 2011, "Distance dependent Chinese
restaurant processes", JMLR 12): a claim is fresh or repeats an earlier one. Fresh claims are noisy readings of a latent
truth (Dawid & Skene 1979, "Maximum likelihood estimation of observer error-rates using the EM algorithm", Applied
Statistics 28). The conventions of the arrays stand in ``nousppl.models.dense``.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nousppl.errors import InferenceError
from nousppl.models.dense import DenseQuestion

FRESH = 0
"""Value of an origin site whose claim is fresh; 1 + k says that the claim repeats claim k."""


class Grid(NamedTuple):
    """Nodes that stand for the difficulty of a question, a standard normal."""

    nodes: ArrayLike
    """(D,) difficulties, in standard deviations."""
    weights: ArrayLike
    """(D,) their probabilities; they sum to one."""


def equispaced(count: int = 81, width: float = 5.0) -> Grid:
    """``count`` equispaced nodes over +-``width`` standard deviations with normal weights.

    A Gauss-Hermite rule of a few nodes is too coarse: the likelihood of a hundred claims is sharper than their spacing.
    """
    nodes = jnp.linspace(-width, width, count)
    return Grid(nodes, jax.nn.softmax(-(nodes**2) / 2))


# ------------------------------------------------------------------------------------------------------ the program


def program(question: DenseQuestion, values: ArrayLike | None = None, grid: Grid | None = None) -> None:
    """Truth, difficulty, and for each claim in event order its origin and what it says.

    Args:
        question: one question at one value of the parameters.
        values: (n,) the answer that each claim names, -1 for a soft claim, whose row of ``question.weights`` stands.
            None draws the claims instead of observing them.
        grid: a discrete law for the difficulty, which can be enumerated; by default it is normal.

    Sites: ``truth`` (0..K-1), ``looks`` (where there is a trap: the answer that the claims follow in place of the
    truth), ``difficulty`` (where there is any), ``origin_j`` (0 fresh, 1 + k a repetition of
    claim k) and ``claim_j`` (the row of weights that claim j gives to the answers).

    Raises:
        InferenceError: the errors are correlated, which no program of the claims expresses.
    """
    if question.correlation is not None:
        raise InferenceError(
            "Errors(correlation=True) is a power posterior and no generative program of the claims; "
            "the program can be written out for the same model with correlation=False"
        )
    q = as_jax(question)
    said = None if values is None else rows_said(q, values)
    share = jnp.zeros((0, q.size))  # what the claims so far say, each row summing to one
    r = jnp.zeros(0)  # chance that each of them is not itself a repeat

    # Enumeration writes into the infer dictionary of a site, so no two sites may share one.
    truth = numpyro.sample("truth", dist.Categorical(probs=q.prior), infer={"enumerate": "parallel"})
    looks = truth if q.trap is None else draw_looks(q, truth)
    difficulty = draw_difficulty(q, grid)
    for j in range(len(q.alpha)):
        weights = q.base[j, :j] * r + q.strong[j, :j]
        silent = q.alpha[j] + weights.sum() == 0  # an own note that repeats nothing
        origin = numpyro.sample(
            f"origin_{j}", dist.Categorical(probs=origin_law(q.alpha[j], weights)), infer={"enumerate": "parallel"}
        )

        a = reliability(q.logit[j, looks] + q.difficulty_sd * difficulty, q.ceiling[j])
        c = None if q.confusion is None else q.confusion[j, looks]
        u = wrong_answer_law(r @ share, looks, q.beta_of(j), c)
        u = jnp.where(q.closed, u, clip(u, a, looks))
        fresh = fresh_law(a, u, looks)
        repeats = repeat_laws(share, q.rho[j, :j], q.copy_error)
        law = jnp.where((origin == FRESH)[..., None], fresh, with_row_for_fresh(repeats)[origin])
        row = numpyro.sample(f"claim_{j}", Saying(law).mask(~silent), obs=None if said is None else said[j])

        row = row / row.sum(-1, keepdims=True)
        r = jnp.append(r, originality(q.alpha[j], q.base[j, :j] + q.strong[j, :j], share @ row))
        share = jnp.vstack([share, row])


def as_jax(question: DenseQuestion) -> Any:
    """The question with jax arrays, which enumerated sites can index."""
    arrays: dict[str, Any] = {name: jnp.asarray(x) for name, x in question._asdict().items() if hasattr(x, "shape")}
    return question._replace(**arrays)


def rows_said(question: Any, values: ArrayLike) -> Array:
    """(n, K): one-hot rows of the values, and the question's own rows where a value is -1."""
    values = jnp.asarray(values)
    return jnp.where((values >= 0)[:, None], jax.nn.one_hot(values, question.size), question.weights)


def draw_looks(question: Any, truth: Array) -> Array:
    """What the question looks like: the truth, or in a trap an answer drawn from the base rates."""
    K = question.prior.shape[-1]
    law = (1.0 - question.trap) * jax.nn.one_hot(truth, K) + question.trap * question.base_rates
    return numpyro.sample("looks", dist.Categorical(probs=law), infer={"enumerate": "parallel"})


def draw_difficulty(question: Any, grid: Grid | None) -> ArrayLike:
    """How much harder the question is than an average one, in standard deviations; -1 for a hard one of a mixture."""
    if grid is None and question.hard is not None:
        grid = easy_or_hard(question)
    if grid is not None:
        node = numpyro.sample(
            "difficulty", dist.Categorical(probs=jnp.asarray(grid.weights)), infer={"enumerate": "parallel"}
        )
        return jnp.asarray(grid.nodes)[node]
    return numpyro.sample("difficulty", dist.Normal(0.0, 1.0)) if question.difficulty_sd > 0 else 0.0


# --------------------------------------------------------------------------------------------- the laws it is made of


def origin_law(alpha: ArrayLike, weights: Array) -> Array:
    """(1 + j,): P(fresh) proportional to alpha, P(repeats k) to the weight of k."""
    masses = jnp.append(alpha, weights)
    total = masses.sum()
    # Nothing to choose from: the site needs some law, and the claim is masked.
    only_fresh = jnp.zeros_like(masses).at[FRESH].set(1.0)
    return jnp.where(total > 0, masses / jnp.where(total > 0, total, 1.0), only_fresh)


def originality(alpha: ArrayLike, weights: Array, match: Array) -> Array:
    """r: the chance that a claim is not itself a repeat of an earlier claim of the same value; 0 for an own note."""
    total = alpha + weights @ match
    return jnp.where(total > 0, alpha / jnp.where(total > 0, total, 1.0), 0.0)


def reliability(logit: Array, ceiling: ArrayLike) -> Array:
    """a: the chance that a fresh claim is right."""
    return jnp.minimum(jax.nn.sigmoid(logit), ceiling)


def wrong_answer_law(popularity: Array, truth: Array, beta: float | None, confusion: Array | None = None) -> Array:
    """u, (..., K): law of a wrong answer, by how many origins named it so far (K,); 0 at the truth.

    ``beta`` is the weight of ``confusion`` (..., K), the law whatever was said before, against the popularity; None is
    that law itself. By default it is uniform.
    """
    K = popularity.shape[-1]
    law = jnp.full(K, 1 / (K - 1)) if confusion is None else confusion
    if beta is not None:
        wrong = popularity.sum() - popularity[truth]
        law = (popularity + beta * law) / (wrong + beta)[..., None]
    return jnp.where(is_truth(truth, K), 0.0, law)


def clip(law: Array, a: Array, truth: Array) -> Array:
    """The law of a wrong answer, mixed with the uniform law just enough to stay below a / (1 - a).

    A fresh claim for an answer then never counts against it, however often bad sources have named it before, as long as
    the source is right more often than by chance (a >= 1/K) and equally often whatever the truth.
    """
    K = law.shape[-1]
    uniform = 1 / (K - 1)
    top = law.max(-1)
    cap = jnp.maximum(a / (1 - a), uniform)
    over = top > cap
    t = jnp.where(over, (top - cap) / jnp.where(over, top - uniform, 1.0), 0.0)[..., None]
    return jnp.where(is_truth(truth, K), 0.0, (1 - t) * law + t * uniform)


def fresh_law(a: Array, u: Array, truth: Array) -> Array:
    """(..., K): the truth with probability a, else a wrong answer."""
    return jnp.where(is_truth(truth, u.shape[-1]), a[..., None], (1 - a)[..., None] * u)


def repeat_laws(share: Array, rho: Array, copy_error: ArrayLike) -> Array:
    """(j, K): what a repetition of each earlier claim says, times the ratio rho of the two texts where it agrees."""
    return rho[:, None] * (1 - copy_error) * share + copy_error / share.shape[-1]


def with_row_for_fresh(laws: Array) -> Array:
    """(1 + j, K): the laws by value of the origin site, with an empty row for fresh."""
    return jnp.vstack([jnp.zeros((1, laws.shape[-1])), laws])


def is_truth(truth: Array, K: int) -> Array:
    """(..., K): True at the truth."""
    return jnp.arange(K) == truth[..., None]


class Saying(dist.Distribution):
    """What a claim says: a row of weights over the K answers, read under a law of its value (..., K).

    A one-hot row has the probability of its answer; a reader's weights have ``none / K + sum_v weights[v] law[v]`` with
    ``none = 1 - sum_v weights[v]``. Draws are one-hot. The law need not sum to one: text ratios are folded into it.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"law": constraints.nonnegative}
    support = constraints.real_vector
    pytree_data_fields = ("law",)

    def __init__(self, law: Array, *, validate_args: bool | None = None) -> None:
        self.law = law
        super().__init__(law.shape[:-1], law.shape[-1:], validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """One-hot rows, sample_shape + (..., K)."""
        value = jax.random.categorical(key, jnp.log(self.law), shape=sample_shape + self.batch_shape)
        return jax.nn.one_hot(value, self.law.shape[-1])

    def log_prob(self, value: Array) -> Array:
        """Log probability of rows of weights (..., K)."""
        none = 1 - value.sum(-1)
        return jnp.log(none / self.law.shape[-1] + (value * self.law).sum(-1))


# ------------------------------------------------------------------------------------------------------ exact answers


MOST_CLAIMS = 22
"""Enumeration lays every discrete site along an axis of its own, and numpyro has 25. Compilation grows with the claims,
from a second for a few to a minute for the most."""


def log_evidence(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """log P(x), with truth, origins and difficulty enumerated.

    Arguments as for ``program``; where there is a difficulty the grid is by default ``equispaced()``. This function and
    the two below need the package funsor, and raise InferenceError above ``MOST_CLAIMS`` claims.
    """
    return _density(question, values, grid, {})


def posterior(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """(K,): P(truth | x), from the program's density at each value of the truth."""
    return _given_each_value("truth", len(question.prior), question, values, grid)


def origins(question: DenseQuestion, values: ArrayLike, grid: Grid | None = None) -> Array:
    """(n, 1 + n): P(claim j is fresh | x) in column 0 and P(it repeats claim k | x) in column 1 + k.

    The row of an own note that repeats nothing is zero: it has no origin.
    """
    n = len(question.alpha)
    rows = [_given_each_value(f"origin_{j}", 1 + j, question, values, grid) for j in range(n)]
    table = jnp.stack([jnp.pad(row, (0, n - j)) for j, row in enumerate(rows)]) if n else jnp.zeros((0, 1))
    never_fresh = (jnp.asarray(question.alpha) == 0) & (table[:, 0] == 1)
    return jnp.where(never_fresh[:, None], 0.0, table)


def _given_each_value(site: str, count: int, question: DenseQuestion, values: ArrayLike, grid: Grid | None) -> Array:
    return jax.nn.softmax(jax.vmap(lambda value: _density(question, values, grid, {site: value}))(jnp.arange(count)))


def _density(question: DenseQuestion, values: ArrayLike, grid: Grid | None, fixed: dict[str, Any]) -> Array:
    if len(question.alpha) > MOST_CLAIMS:
        raise InferenceError(
            f"the reference program enumerates questions of at most {MOST_CLAIMS} claims; this one has "
            f"{len(question.alpha)}: use the marginal"
        )
    return _log_density(question, jnp.asarray(values), _grid(question, grid), fixed)


def easy_or_hard(question: Any) -> Grid:
    """The law of the difficulty of a question that is easy or hard."""
    return Grid(jnp.array([0.0, -1.0]), jnp.stack([1.0 - jnp.asarray(question.hard), jnp.asarray(question.hard)]))


def _grid(question: DenseQuestion, grid: Grid | None) -> Grid:
    if grid is not None:
        return grid
    if question.hard is not None:
        return easy_or_hard(question)
    return equispaced() if question.difficulty_sd > 0 else Grid(jnp.zeros(1), jnp.ones(1))


@jax.jit
def _log_density(question: DenseQuestion, values: Array, grid: Grid, fixed: dict[str, Any]) -> Array:
    # Imported late: enumeration brings in funsor, which only the reference program needs.
    from numpyro.contrib.funsor import enum, log_density

    model = enum(numpyro.handlers.condition(program, fixed), first_available_dim=-1)
    return log_density(model, (question, values, grid), {}, {})[0]
