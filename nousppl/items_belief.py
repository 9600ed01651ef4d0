"""The belief about a set-valued question: how probable it is of each item that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import display
from nousppl.belief import Belief
from nousppl.errors import QuestionError
from nousppl.models.shapes import AnyOf

if TYPE_CHECKING:
    import xarray as xr

    from nousppl.question import Question

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ItemsBelief:
    """Posterior of a question whose answer is any of I items, given its n claims.

    Its items are not independent of each other given the claims, since a list that is copied is copied whole:
    :attr:`whole` is the belief about which of all sets is the true one.
    """

    whole: Belief
    """The belief about the whole list, one answer a set."""
    names: tuple[str, ...]
    """The I items."""
    shape: AnyOf

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.whole.question

    @cached_property
    def _holds(self) -> Floats:
        """(sets, I) 1 where the item is in the set."""
        sets = np.arange(1 << len(self.names))[:, None]
        return (sets >> np.arange(len(self.names)) & 1).astype(np.float64)

    @property
    def _index(self) -> pd.Index:
        return pd.Index(self.names, dtype=object, name="item")

    @property
    def probabilities(self) -> pd.Series:
        """Probability that each item holds."""
        return pd.Series(self.whole.path[-1] @ self._holds, index=self._index, name="probability")

    @cached_property
    def samples(self) -> Floats:
        """(D, I) probability of each item under each draw of the trust; the belief is their mean."""
        return np.asarray(self.whole.samples @ self._holds)

    @property
    def answer(self) -> tuple[str, ...]:
        """The items that are more probable than not."""
        return tuple(self.probabilities.index[self.probabilities > 0.5])

    @property
    def probability(self) -> float:
        """Probability that exactly the items of :attr:`answer` hold."""
        return self.probability_of(self.answer)

    def probability_of(self, items: str | tuple[str, ...] | list[str]) -> float:
        """Probability that exactly these items hold, given as text (as in a claim) or as a sequence.

        Raises:
            QuestionError: an item that the question does not have.
        """
        given = self.shape.items(items) if isinstance(items, str) else tuple(items)
        unknown = [item for item in given if item not in self.names]
        if unknown:
            raise QuestionError(
                f"{display.title(self.question)}: {unknown[0]!r} is no item; items are {', '.join(self.names)}"
            )
        return float(self.whole.path[-1, sum(1 << self.names.index(item) for item in set(given))])

    def surprise(self, items: str | tuple[str, ...] | list[str]) -> float:
        """Bits of surprise if exactly these items turned out to hold."""
        with np.errstate(divide="ignore"):
            return float(-np.log2(self.probability_of(items)) + 0.0)

    @property
    def entropy(self) -> float:
        """Entropy of the belief about the whole list, in bits."""
        return self.whole.entropy

    def interval(self, p: float = 0.9) -> pd.DataFrame:
        """Central interval of each item's probability over the draws of the trust; columns lower and upper.

        Raises:
            QuestionError: p is not between 0 and 1.
        """
        if not 0 < p < 1:
            raise QuestionError(f"interval(p={p!r}): p must be above 0 and below 1, for instance .9")
        bounds = np.quantile(self.samples, [(1 - p) / 2, (1 + p) / 2], axis=0)
        return pd.DataFrame(bounds.T, index=self._index, columns=["lower", "upper"])

    @cached_property
    def _log_odds(self) -> Floats:
        """(n + 2, I) log-odds of each item, from sums over the sets with and without it."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.whole.path @ self._holds) - np.log(self.whole.path @ (1.0 - self._holds)))

    @property
    def points(self) -> pd.DataFrame:
        """What moved the belief: a row "prior", a row a claim and a row "time", and a column for each item.

        They are changes of the item's log-odds in nats, and add up to the log-odds of the belief; an item that is
        settled has infinite ones.
        """
        with np.errstate(invalid="ignore"):
            steps = np.diff(self._log_odds, axis=0, prepend=0.0)
        # From infinity to infinity nothing changes.
        steps[np.isnan(steps)] = 0.0
        whole = self.whole.points
        table = pd.DataFrame(steps, columns=self._index, index=whole.index)
        return pd.concat([whole[["claim", "source", "value", "time"]], table, whole[["note"]]], axis=1)

    def history(self) -> pd.DataFrame:
        """The belief claim by claim: a row for each claim and item.

        Returns:
            time, claim, source, value, item, prior and posterior (probability of the item just before and after), and
            surprise (bits of the whole list under the belief before it).
        """
        whole = self.whole.history()
        before = self.whole.path[:-2] if self.whole.before is None else self.whole.before[0]
        chances = np.stack([before @ self._holds, self.whole.path[1:-1] @ self._holds], axis=-1)
        table = whole[["time", "claim", "source", "value", "surprise"]]
        table = table.loc[table.index.repeat(len(self.names))].reset_index(drop=True)
        table.insert(4, "item", np.tile(np.array(self.names, object), len(whole)))
        table.insert(5, "prior", chances[..., 0].ravel())
        table.insert(6, "posterior", chances[..., 1].ravel())
        return table

    @property
    def origins(self) -> pd.DataFrame:
        """Where each claim comes from: probability of "fresh" and of repeating each other claim; rows sum to 1."""
        return self.whole.origins

    @property
    def effective_claims(self) -> float:
        """Independent witnesses among the claims: P(fresh) summed over all of them."""
        return float(self.whole.fresh.sum())

    @property
    def draws(self) -> xr.DataArray:
        """The belief under each draw of the trust, dims ``draw`` and ``item``."""
        import xarray as xr

        coords = {"item": self._index.to_numpy()}
        return xr.DataArray(self.samples, dims=("draw", "item"), coords=coords, name="probability")

    def to_dict(self) -> dict[str, Any]:
        """The belief as plain lists, numbers and text, ready for json."""
        bounds = self.interval().to_numpy()
        rows = zip(self.names, self.probabilities, bounds, strict=True)
        return {
            "entity": display.jsonable(self.question.entity),
            "attribute": display.jsonable(self.question.attribute),
            "shape": self.shape.name,
            "answer": list(self.answer),
            "probability": self.probability,
            "entropy_bits": self.entropy,
            "effective_claims": self.effective_claims,
            "interval": 0.9,
            "items": [
                {"item": name, "probability": float(p), "lower": float(low), "upper": float(high)}
                for name, p, (low, high) in rows
            ],
            "points": display.jsonable(self.points.reset_index().to_dict("records")),
        }

    def __repr__(self) -> str:
        lines = [f"Belief({display.title(self.question)}): {self.shape.text(self.answer)}, {self.probability:.3f}"]
        bounds = self.interval().to_numpy()
        for name, p, (low, high) in zip(self.names, self.probabilities, bounds, strict=True):
            lines.append(f"  {name:<24} {p:.3f}  [{low:.2f}, {high:.2f}]")
        witnesses = f"{self.effective_claims:.2f} independent witnesses"
        return "\n".join([*lines, f"  {display.count(len(self.whole.status), 'claim')}, {witnesses}"])

    def _repr_html_(self) -> str:
        head = f"<b>{escape(display.title(self.question))}</b>: {escape(self.shape.text(self.answer))}"
        table = pd.DataFrame({"item": self.names, "probability": self.probabilities.to_numpy()})
        bounds = self.interval()
        table["90% interval"] = [f"{low:.2f} – {high:.2f}" for low, high in bounds.to_numpy()]
        parts = [f"<p>{head} {self.probability:.3f}</p>", display.table_html(table)]
        parts.append(display.table_html(self.points.reset_index()))
        return f'<style>{display.STYLE}</style><div class="nous">{"".join(parts)}</div>'
