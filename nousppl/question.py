"""One question: an attribute of an entity, with the claims about it."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pandas as pd

from nousppl.tables import shorten

if TYPE_CHECKING:
    from nousppl.evidence import Evidence
    from nousppl.models.reference import QuestionProgram
    from nousppl.trust import Trust

SHOWN_CLAIMS = 12


@dataclass(frozen=True, eq=False, repr=False)
class Question:
    """A question of an `Evidence`. It holds no copy: claims are looked up when they are asked for."""

    evidence: Evidence
    """The evidence it belongs to."""
    index: int
    """Its row in `evidence.questions`."""

    @property
    def entity(self) -> Any:
        """What is asked about, e.g. "maya"."""
        return self.evidence.coded.questions["entity"].iat[self.index]

    @property
    def attribute(self) -> Any:
        """What is asked of it, e.g. "diet"."""
        return self.evidence.coded.questions["attribute"].iat[self.index]

    @property
    def answers(self) -> list[Any]:
        """Values that a claim, a settled fact or a rejection names, sorted."""
        coded = self.evidence.coded
        return coded.answer_value[coded.answer_start[self.index] : coded.answer_start[self.index + 1]].tolist()

    @property
    def claims(self) -> pd.DataFrame:
        """Rows of `evidence.claims` about it, in event order (a row for each value of a soft claim)."""
        return self.evidence.claims_of(self.index)

    @property
    def settled(self) -> pd.DataFrame:
        """Rows of `evidence.settled` about it, by time."""
        return self.evidence.settled_of(self.index)

    def program(self, trust: Trust | None = None, backend: str = "numpyro") -> QuestionProgram:
        """The readable probabilistic program for exactly this question: a model without arguments that must be given,
        which ``numpyro.render_model`` or ``pyro.render_model`` draws (that needs graphviz).

        Args:
            trust: whose posterior mean the parameters are; default the default trust. See `nousppl.Trust.program`.
            backend: "numpyro", or "pyro" where that extra is installed.

        Raises:
            ModelError: there is no such backend, or what it needs is not installed.
        """
        if trust is None:
            # The one call upwards: a question is asked of a trust, and this is the trust of someone who has none.
            trust = import_module("nousppl.trust").default_trust()
        return trust.program(self, backend)

    def __len__(self) -> int:
        """Number of claims."""
        start = self.evidence.coded.claim_start
        return int(start[self.index + 1] - start[self.index])

    def __repr__(self) -> str:
        claims = self.claims
        lines = [self._title(), claims.head(SHOWN_CLAIMS).map(shorten).to_string(index=False)]
        return "\n".join([*lines, *self._rest(len(claims))])

    def _repr_html_(self) -> str:
        claims = self.claims
        table = claims.head(SHOWN_CLAIMS).map(shorten).to_html(index=False, border=0)
        lines = [f"<p>{escape(line)}</p>" for line in (self._title(), *self._rest(len(claims)))]
        return "".join([lines[0], table, *lines[1:]])

    def _title(self) -> str:
        answers = self.answers
        named = ", ".join([*map(shorten, answers[:SHOWN_CLAIMS]), *(["..."] if len(answers) > SHOWN_CLAIMS else [])])
        asked = f"{shorten(self.entity)}, {shorten(self.attribute)}"
        return f"Question({asked}): {len(self)} claims, {len(answers)} answers named ({named})"

    def _rest(self, rows: int) -> list[str]:
        return [f"... and {rows - SHOWN_CLAIMS} more rows"] if rows > SHOWN_CLAIMS else []
