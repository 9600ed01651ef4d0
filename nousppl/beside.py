"""What simulated claims say beside their values: which answer they deny, and whether they are about the state."""

from __future__ import annotations

import numpy as np

from nousppl.models.dense import DenseQuestion, Floats


class Beside:
    """Draws what the claims of one question deny, claim after claim, and knows what has been denied so far.

    Nothing is drawn for a question without denials and in which all claims last.

    Args:
        rng: source of randomness.
        question: the question at one value of the parameters; of ``denies`` only which claims deny something is read.
    """

    def __init__(self, rng: np.random.Generator, question: DenseQuestion) -> None:
        n = len(question.alpha)
        self.question = question
        self.denies = np.full(n, -1, np.int64)
        self._values = np.full(n, -1, np.int64)
        self._denied = np.zeros(n, bool)
        self._uniforms = None if question.denies is None else rng.random(n)
        self._lasting = None if question.lasting is None else rng.random(n) < question.lasting

    def strong(self, j: int) -> Floats:
        """(j,) strong weights of the claims before claim j, by what has been denied by then."""
        question = self.question
        plain = question.strong[j, :j]
        if question.strong_denied is None:
            return plain
        return np.where(self._denied[:j], question.strong_denied[j, :j], plain)

    def stated(self, j: int) -> bool:
        """Whether claim j, where it is fresh, is about the state."""
        return self._lasting is None or bool(self._lasting[j])

    def say(self, j: int, value: np.int64, truth: np.int64, stated: bool) -> None:
        """Note the value of claim j, and draw what it denies.

        Args:
            j: the claim.
            value: that it names.
            truth: at its time.
            stated: whether it is fresh and about the state.
        """
        question = self.question
        self._values[j] = value
        if question.denies is None or self._uniforms is None or question.denies[j] < 0:
            return
        named = np.isin(np.arange(question.size), self._values[:j])
        named[value] = False
        rest = ~named & (np.arange(question.size) != value)
        mass = np.where(named, 1.0, rest / max(int(rest.sum()), 1))
        if stated:
            mass[truth] *= question.denial
        total = np.cumsum(mass)
        self.denies[j] = np.searchsorted(total, self._uniforms[j] * total[-1], side="right")
        self._denied[:j] |= self._values[:j] == self.denies[j]
