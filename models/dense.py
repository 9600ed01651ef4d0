"""One question at one value of the parameters, written out densely.

This is the meeting point of the readable programs: the reference program, the simulator and the brute-force check
all take a
`DenseQuestion`; the fast marginal never builds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Change(NamedTuple):
    """A truth that changes, and what is known of it for certain; times in the unit of the claims' times."""

    rate: float
    """Rate at which the truth is drawn anew from the base rates, per unit of time."""
    times: Sequence[float]
    """(n,) time of each claim, not decreasing."""
    at: float
    """The time asked about."""
    pins: tuple[tuple[float, int], ...]
    """Time and answer of each settled truth."""
    rejections: tuple[tuple[float, int], ...]
    """Time and answer of each rejection: from then on the truth is not this answer at any time at which something is
    said, settled, rejected or asked. Minus infinity for one without a time."""


class DenseQuestion(NamedTuple):
    """One one-of-several question, its n claims in event order, all K answers of its domain written out (unnamed
    ones included).

    Conventions (pairs are ``[j, k]`` with k < j; entries with k >= j are zero):

    * ``a_j(z) = min(sigmoid(logit[j, z] + difficulty_sd * d), ceiling[j])`` with ``d ~ N(0, 1)`` shared by the
      claims of the question;
    * weights before the originality factor ``w0_jk = base[j, k] + strong[j, k]``;
      ``r_k = alpha_k / (alpha_k + sum_{l<k} w0_kl match(k, l))`` (0 where the denominator is 0);
      ``w_jk = base[j, k] * r_k + strong[j, k]``;
    * ``match(j, k) = sum_v s_j(v) s_k(v)`` with ``s_k(v) = weights[k, v] / sum_v weights[k, v]`` (one-hot for a
      hard claim);
    * popularity ``n_j(x) = sum_{k<j} r_k s_k(x)``; wrong-answer law
      ``u_j(x; z) = (n_j(x) + beta_j c_j(z, x)) / (n_j(all) - n_j(z) + beta_j)`` for x != z, and ``c_j(z, x)`` where
      ``beta`` is None or K = 2; ``c_j = confusion[j]``, or 1/(K-1) where that is None;
    * clip, open domains only: ``cap_j(z) = max(a_j(z) / (1 - a_j(z)), 1/(K-1))``; where the largest ``u_j(x; z)``
      over x != z exceeds cap, the law
      is mixed with the uniform law just enough to bring its largest value to cap:
      ``u <- (1-t) u + t/(K-1)``, ``t = (max u - cap) / (max u - 1/(K-1))``. It still sums to one and never exceeds cap;
    * for a value v: ``W_j = sum_k w_jk``, ``M_j(v) = sum_k w_jk rho_jk s_k(v)``,
      ``m_j(v) = ((1-eps) M_j(v) + eps/K W_j) / (alpha_j + W_j)``, ``f_j = alpha_j / (alpha_j + W_j)``;
      ``p_j(v | z) = f_j a_j(z) + m_j(v)`` if v == z else ``f_j (1 - a_j(z)) u_j(v; z) + m_j(v)``;
      the likelihood of the claim is ``none_j / K + sum_v weights[j, v] p_j(v | z)``, ``none_j = 1 - sum_v
      weights[j, v]``;
      it is 1 where ``alpha_j + W_j == 0`` (an own note that is first in its question).
    * where the truth changes z is the truth at the time of the claim, a chain with the law ``prior`` at any time and
      ``P(z(t + d) = y | z(t) = x) = exp(-rate d) 1[x = y] + (1 - exp(-rate d)) prior[y]``; the popularity of a wrong
      answer fades as truths do, ``n_j(x) = sum_{k<j} r_k exp(-rate (t_j - t_k)) s_k(x)``; ``pins`` and ``rejections``
      are observed of the chain;
    * a claim may deny an answer y other than its value, ``denies[j] = y``, and last only in part; with ``L_j =
      lasting[j]``, kappa ``denial`` and, of what is denied, only the ratio to a denial at random,
      ``p_j(v, y | z) = f_j (L_j D_j(v, y; z) p_j(v | z, fresh) + (1 - L_j) / K) + m_j(v)``;
      ``D_j(v, y; z)`` is 1 for z = v or no denial, else ``T / (T + (kappa-1) w(z))``, times kappa for z = y; at random
      what an earlier claim names (v apart) is denied with weight w = 1, each other answer with 1 / their number, and T
      is the sum of all w;
    * where ``strong_denied`` is given, ``strong[j, k] + h_jk (strong_denied[j, k] - strong[j, k])`` stands for
      ``strong[j, k]`` in all formulas, with ``h_jk = sum_v s_k(v) 1[a claim between k and j denies v]``;
    * ``P(o_j = k | x, z)`` is proportional to ``w_jk ((1 - none_j) (rho_jk (1-eps) match(j, k) + eps/K) + none_j/K)``.
    """

    prior: Floats
    """(K,) P(z); zero for rejected answers."""
    weights: Floats
    """(n, K) what each claim says: one-hot for a hard claim, a reader's weights for a soft one (sum at most 1)."""
    logit: Floats
    """(n, K) logit P(right | fresh, truth z) of an average question, before the ceiling."""
    ceiling: Floats
    """(n,) upper bound of the reliability; inf where there is none."""
    difficulty_sd: float
    """Standard deviation of the question's difficulty on the logit scale; 0 for none."""
    alpha: Floats
    """(n,) concentration of looking for oneself; 0 for the assistant's own notes."""
    base: Floats
    """(n, n) weight of strangers with its lag decay, plus affinity of the two sources."""
    strong: Floats
    """(n, n) weight of pairs that share a source, a channel and so on, with its lag decay."""
    rho: Floats
    """(n, n) likelihood ratio of the text similarity of a same-value pair; 1 where nothing is known."""
    copy_error: float
    """eps, chance that a repetition comes out as a random answer."""
    beta: Floats | float | None
    """Weight of the uniform law against the popularity of wrong answers, one number or one for each claim (n,); None
    for no popularity."""
    closed: bool
    """True where the list of answers is closed: no clip of the popularity."""
    confusion: Floats | None = None
    """(n, K, K) law c_j(z, x) of the wrong answers x of a fresh claim where z is true, whatever was said before; 0 at
    x = z. None for the uniform law."""
    base_rates: Floats | None = None
    """(K,) law of what the question looks like in a trap: the prior before any answer was rejected."""
    trap: float | None = None
    """Chance that the claims follow, in place of the truth, an answer drawn anew from the base rates; None for never.
    In all formulas above z is what the question looks like."""
    hard: float | None = None
    """Chance that the question is hard: ``d`` is -1 with that chance and else 0; None where it is normal."""
    correlation: float | None = None
    """rho of the power posterior ``(P(z) L(z)) ** (1 / (1 + (n - 1) rho))`` that the truth follows given the claims, n
    the number of claims that are no own notes; None for none. See `nousppl.models.program.truth_logs`: it is no program
    that claims could be drawn from."""

    change: Change | None = None
    """How the truth changes; None where it does not."""
    law: Floats | None = None
    """Where the answer has another shape than one of several: (n, K, V) law of the value of a fresh claim j under each
    of the K truths, in place of reliability, wrong answers and popularity. The V values are those that the question's
    claims have, and last all others together; ``weights`` and shares are over them."""
    random: Floats | None = None
    """(V,) law of the value of a repetition that goes wrong, with `law`; else each of the K answers has 1/K."""
    denies: NDArray[np.int64] | None = None
    """(n,) the answer that each claim expressly denies, -1 for none; None where no claim denies one."""
    denial: float = 1.0
    """kappa: how much likelier a fresh claim that is wrong denies any other answer than it denies the truth."""
    lasting: Floats | None = None
    """(n,) how far each claim is about the state, from 0 (about a moment) to 1; None where all last."""
    strong_denied: Floats | None = None
    """(n, n) as ``strong``, where the value of the earlier claim has been denied by one between the two; None where
    that makes no difference."""

    @property
    def size(self) -> int:
        """K, the number of answers."""
        return len(self.prior)

    @property
    def values(self) -> int:
        """V, the number of values that a claim may have; K where they are the answers."""
        return self.size if self.random is None else len(self.random)

    def beta_of(self, j: int) -> Any:
        """beta of claim j; None for no popularity."""
        return self.beta if self.beta is None or np.ndim(self.beta) == 0 else self.beta[j]  # type: ignore[index]
