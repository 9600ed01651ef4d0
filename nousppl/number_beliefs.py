"""Beliefs about many numbers: a table, and scores against settled numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.errors import EvidenceError
from nousppl.mixture import Mixture

Floats = NDArray[np.float64]
KEYS = ["entity", "attribute"]
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
"""Columns of the table -> quantiles."""


@dataclass(frozen=True, eq=False, repr=False)
class NumberBeliefs:
    """Posteriors of Q numbers."""

    questions: pd.DataFrame
    """Q rows: entity, attribute."""
    mixtures: tuple[Mixture, ...]
    """(Q,) in the unit of the values."""
    claims: NDArray[np.int64]
    """(Q,) number of claims."""
    witnesses: Floats
    """(Q,) independent witnesses among them."""
    seen: NDArray[np.bool_]
    """(Q,) whether a settled truth of the question was used in the fit."""

    def __len__(self) -> int:
        return len(self.questions)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row a question: entity, attribute, mean, sd, q05, q25, median, q75, q95, claims, effective_claims, seen."""
        table = self.questions.reset_index(drop=True)
        table["mean"] = np.array([law.mean for law in self.mixtures], np.float64)
        table["sd"] = np.array([law.sd for law in self.mixtures], np.float64)
        wanted = np.array(list(QUANTILES.values()))
        bounds = np.array([law.quantile(wanted) for law in self.mixtures]).reshape(len(self), len(wanted))
        for i, name in enumerate(QUANTILES):
            table[name] = bounds[:, i]
        table["claims"], table["effective_claims"], table["seen"] = self.claims, self.witnesses, self.seen
        return table

    def score(self, settled: pd.DataFrame, unseen: bool = False) -> pd.Series:
        """Scores against settled numbers, see `nousppl.beliefs.Beliefs.score_numbers`."""
        truth, missing = self._match(settled)
        held = ~np.isnan(truth) & ~(self.seen & unseen)
        if not held.any():
            raise EvidenceError("settled: no settled number is to be scored; allowed are facts about these questions")
        points = self._points(truth)[held]
        away = np.abs(points["place"] - 0.5)
        return pd.Series(
            {
                "coverage_50": float((away <= 0.25).mean()),
                "coverage_90": float((away <= 0.45).mean()),
                "log_score": -float(points["log_loss"].mean()),
                "crps": float(points["crps"].mean()),
                "rmse": float(np.sqrt((points["error"] ** 2).mean())),
                "n": float(len(points)),
                "seen": float(self.seen[held].sum()),
                "missing": float(missing),
            },
            name="score",
        )

    def pointwise(self, settled: pd.DataFrame) -> dict[str, Floats]:
        """Scores question by question, (Q,) each: ``density`` of the belief at the settled number, ``log_loss`` (minus
        its log), ``place`` (belief that the number is below it), ``crps`` and ``error`` of the mean; NaN where nothing
        is settled."""
        points = self._points(self._match(settled)[0])
        return {str(name): points[name].to_numpy(np.float64) for name in points}

    def truths(self, settled: pd.DataFrame) -> Floats:
        """(Q,) settled number of each question, NaN where there is none."""
        return self._match(settled)[0]

    def _points(self, truth: Floats) -> pd.DataFrame:
        rows = [
            (float(law.density(x)), float(law.cdf(x)), law.crps(x), law.mean - x) if not np.isnan(x) else (np.nan,) * 4
            for law, x in zip(self.mixtures, truth, strict=True)
        ]
        table = pd.DataFrame(rows, columns=["density", "place", "crps", "error"])
        with np.errstate(divide="ignore"):
            return table.assign(log_loss=-np.log(table["density"].to_numpy(np.float64)))

    def take(self, rows: NDArray[np.int64], seen: bool | None = None) -> NumberBeliefs:
        """Some of the questions, in this order; with ``seen`` in place of what is known of that."""
        return NumberBeliefs(
            self.questions.iloc[rows].reset_index(drop=True),
            tuple(self.mixtures[row] for row in rows),
            self.claims[rows],
            self.witnesses[rows],
            self.seen[rows] if seen is None else np.full(len(rows), seen),
        )

    def _match(self, settled: pd.DataFrame) -> tuple[Floats, int]:
        """(Q,) settled number of each question, NaN where there is none; and how many facts about numbers of these
        attributes are about other questions."""
        table = self.of_numbers(settled)
        if "verdict" in table:
            table = table[table["verdict"].astype(str).str.lower() != "false"]
        value = pd.to_numeric(table["value"], errors="coerce")
        if value.isna().any():
            bad = table[value.isna()].iloc[0]
            raise EvidenceError(
                f"settled: column 'value' of {int(value.isna().sum())} numbers is none, first {bad['value']!r} of "
                f"entity {bad['entity']!r}; allowed are numbers"
            )
        known = pd.Series(value.to_numpy(np.float64), index=pd.MultiIndex.from_frame(table[KEYS]))
        known = known[~known.index.duplicated(keep="last")]
        asked = pd.MultiIndex.from_frame(self.questions[KEYS])
        return known.reindex(asked).to_numpy(np.float64), int((~known.index.isin(asked)).sum())

    def of_numbers(self, settled: pd.DataFrame) -> pd.DataFrame:
        """The settled facts about attributes that are numbers."""
        return settled[self.concerns(settled)]

    def concerns(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """(rows,) whether a row of a table with a column ``attribute`` is about one of these attributes."""
        if "attribute" not in table:
            return np.zeros(len(table), bool)
        mine: Any = table["attribute"].isin(self.questions["attribute"].unique())
        return np.asarray(mine, bool)

    def __repr__(self) -> str:
        return f"NumberBeliefs({len(self):,} numbers)"


def concatenated(parts: Sequence[NumberBeliefs]) -> NumberBeliefs:
    """Beliefs about different questions, end to end."""
    return NumberBeliefs(
        pd.concat([part.questions for part in parts], ignore_index=True),
        tuple(law for part in parts for law in part.mixtures),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("claims", "witnesses", "seen")),
    )
