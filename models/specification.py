"""What a model assumes about echoes and about errors: the declarative parts of ``TrustModel``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nousppl.errors import ModelError

DENIED = "repeats_denied"
"""The pair feature that the value of the earlier claim has been denied since."""


@dataclass(frozen=True)
class Origin:
    """How a claim may repeat an earlier one: a distance-dependent Chinese restaurant process (Blei & Frazier 2011).

    Attributes:
        strong: features of a pair of claims, joined by ``+``: ``same_source`` or ``same_<column>`` for any column of
            the claims or the sources, and ``repeats_denied``, which holds where a claim between the two denied (column
            ``denies``) the value that the earlier one named. The strong weight of a pair is ``exp`` of the sum of the
            coefficients of the features that hold, and 0 where none holds.
        affinity: "source" or another column of the claims or the sources: every pair of its levels that meets in at
            least 10 questions has a weight of its own in place of that of strangers, one for each direction where the
            times of the claims tell who was first, else one for both.
        text: column of text whose similarity (rapidfuzz token ratio, 0 to 1) is evidence for a repetition.
        lag: whether weights halve with every half-life (learned, days or units of ``time``) between the two claims.
        order: "time" (ties and missing times are averaged over random orders) or "unknown" (all orders are).
        max_listed: number of most recent earlier claims whose text and affinity are looked at, that terms of one's
            own (``TrustModel(terms={"origin": ...})``) weigh, and for which ``repeats_denied`` may hold; all earlier
            ones have the weights of strangers and of the other strong features.
        orders: number of random orders that are averaged where the order is not known.
    """

    strong: str | None = "same_source"
    affinity: str | None = None
    text: str | None = None
    lag: bool = True
    order: str = "time"
    max_listed: int = 32
    orders: int = 8

    def __post_init__(self) -> None:
        if self.order not in ("time", "unknown"):
            raise ModelError(f"Origin(order={self.order!r}): allowed are 'time' and 'unknown'")
        if self.affinity is not None and (not isinstance(self.affinity, str) or not self.affinity.strip()):
            raise ModelError(
                f"Origin(affinity={self.affinity!r}): give 'source' or the name of another column, or None"
            )
        if self.max_listed < 1 or self.orders < 1:
            raise ModelError(f"Origin(max_listed={self.max_listed}, orders={self.orders}): both must be at least 1")
        if len(self.features) > 4:
            raise ModelError(f"Origin(strong={self.strong!r}): at most 4 columns, got {len(self.features)}")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the pair features that compare a column, ``same_source`` and the like."""
        return tuple(name for name in self._named if name != DENIED)

    @property
    def denied(self) -> bool:
        """Whether it is a pair feature that the earlier value has been denied since."""
        return DENIED in self._named

    @property
    def _named(self) -> tuple[str, ...]:
        if not self.strong:
            return ()
        names = tuple(part.strip() for part in self.strong.split("+"))
        for name in names:
            if name != DENIED and not re.fullmatch(r"same_\S+", name):
                raise ModelError(
                    f"Origin(strong={self.strong!r}): {name!r} is no pair feature; "
                    f"allowed are same_source and same_<column>, and {DENIED}, joined by +"
                )
        if len(set(names)) < len(names):
            raise ModelError(f"Origin(strong={self.strong!r}): a feature is named twice")
        return names

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the claims that the features compare."""
        return tuple(name.removeprefix("same_") for name in self.features)


@dataclass(frozen=True)
class Errors:
    """How fresh claims go wrong.

    Attributes:
        popularity: wrong answers that were given before are likelier to be given again (shared error). True: the weight
            beta of the law whatever was said before, against the popularity so far, is one number for all claims;
            False: popularity does not matter. Text such as ``"1 + (1|attribute)"`` is the formula of log beta of each
            claim over columns of claims and sources: where beta is small, sources that go wrong meet on the same
            mistakes, where it is large each makes its own.
        difficulty: True, False, "auto" or "mixture". True: a normal random effect of the question on the logit of
            reliability. "auto" turns it on where there are no origins, since with echoes in the model it is not
            identified beside them. "mixture": a share of the questions, learned for each attribute, is hard, and there
            the logits of all reliabilities are lower by a learned amount; it takes two evaluations where the normal
            effect takes dozens.
        bias: "none"; "class" (closed lists: reliability depends on the true answer, two-coin for T/F, and lists of 3
            to 20 answers have a learned row of confusion, the law of the wrong answers, for each true one); "source"
            (so it does, by source: the hierarchical Dawid-Skene model; Dawid & Skene 1979, Paun et al. 2018).
        trap: with a small probability a question looks as if its truth were drawn anew from the base rates: all its
            sources agree on what it looks like. No belief is then surer than that probability allows. The law of the
            claims alone is the same with a trap and without, so only settled facts move its prior.
        correlation: errors on a question go together, which the claims alone do not show. Sources are fitted as if
            claims were independent; the truth given n claims then follows the power ``1 / (1 + (n - 1) rho)`` of the
            posterior of independent claims: n claims count as the n / (1 + (n - 1) rho) of a design effect (Kish
            1965, "Survey Sampling"). Beside origins n is the expected number of originals, so that a flood of
            repetitions takes nothing from those who looked for themselves. The top answer stays the same under each
            draw of the parameters. It is a power posterior (Bissiri, Holmes & Walker 2016) and no generative program
            of the claims: they keep the law of independent ones, so that only settled facts move the prior of rho, and
            a simulation is refused.
    """

    popularity: bool | str = True
    difficulty: bool | str = "auto"
    bias: str = "none"
    trap: bool = False
    correlation: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.popularity, str) and self.popularity not in (True, False):
            raise ModelError(
                f"Errors(popularity={self.popularity!r}): allowed are True, False and a formula such as "
                "'1 + (1|attribute)'"
            )
        for name in ("trap", "correlation"):
            if getattr(self, name) not in (True, False):
                raise ModelError(f"Errors({name}={getattr(self, name)!r}): allowed are True and False")
        if self.difficulty not in (True, False, "auto", "mixture"):
            raise ModelError(f"Errors(difficulty={self.difficulty!r}): allowed are True, False, 'auto' and 'mixture'")
        if self.bias not in ("none", "class", "source"):
            raise ModelError(f"Errors(bias={self.bias!r}): allowed are 'none', 'class' and 'source'")

    def has_difficulty(self, origin: Origin | None) -> bool:
        """Whether the normal difficulty is in the model, ``"auto"`` resolved."""
        return origin is None if self.difficulty == "auto" else self.difficulty is True

    @property
    def shared(self) -> bool:
        """Whether wrong answers follow the popularity of those given before."""
        return isinstance(self.popularity, str) or bool(self.popularity)

    @property
    def shared_formula(self) -> str | None:
        """The formula of log beta of each claim; None where all have the same."""
        return self.popularity if isinstance(self.popularity, str) else None

    @property
    def mixture(self) -> bool:
        """Whether a question is easy or hard."""
        return self.difficulty == "mixture"
