"""The belief about a set-valued question: how probable it is of each item that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import display
from nousppl.belief import Belief, central
from nousppl.errors import QuestionError
from nousppl.models.shapes import AnyOf

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from nousppl.question import Question

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ItemsBelief:
    """Posterior of a question whose answer is any of I items, given its n claims.

    Its items are not independent of each other given the claims, since a list that is copied is copied whole:
    :attr:`whole` is the belief about which of all sets is the true one.
    """

    whole: Belief
    """The belief about the whole list. Up to 12 items an answer is a set of them; beyond, an answer says how many items
    hold of each group of items that all claims treat alike."""
    groups: tuple[tuple[str, ...], ...]
    """The groups; up to 12 items each is one by itself."""
    shares: Floats
    """(answers, I) chance that each item holds, given an answer."""
    shape: AnyOf

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.whole.question

    @property
    def names(self) -> tuple[str, ...]:
        """The I items."""
        return tuple(name for group in self.groups for name in group)

    @property
    def _index(self) -> pd.Index:
        return pd.Index(self.names, dtype=object, name="item")

    @property
    def probabilities(self) -> pd.Series:
        """Probability that each item holds."""
        return pd.Series(self.whole.path[-1] @ self.shares, index=self._index, name="probability")

    @cached_property
    def samples(self) -> Floats:
        """(D, I) probability of each item under each draw of the trust; the belief is their mean."""
        return np.asarray(self.whole.samples @ self.shares)

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
        held = [len(set(given) & set(group)) for group in self.groups]
        place, step, ways = 0, 1, 1
        for many, group in zip(held, self.groups, strict=True):
            place, step, ways = place + many * step, step * (len(group) + 1), ways * comb(len(group), many)
        return float(self.whole.path[-1, place]) / ways

    def surprise(self, items: str | tuple[str, ...] | list[str]) -> float:
        """Bits of surprise if exactly these items turned out to hold."""
        with np.errstate(divide="ignore"):
            return float(-np.log2(self.probability_of(items)) + 0.0)

    @property
    def entropy(self) -> float:
        """Entropy of the belief about the whole list, in bits; sets that all claims treat alike are equally likely."""
        p = self.whole.path[-1]
        return float(-(p * np.log2(np.where(p > 0, p / self._ways, 1.0))).sum() + 0.0)

    @cached_property
    def _ways(self) -> Floats:
        """(answers,) how many sets each answer stands for."""
        ways = np.ones(1)
        for group in self.groups:
            ways = np.outer([comb(len(group), many) for many in range(len(group) + 1)], ways).ravel()
        return ways

    def interval(self, p: float = 0.9) -> pd.DataFrame:
        """Central interval of each item's probability over the draws of the trust; columns lower and upper.

        Raises:
            QuestionError: p is not between 0 and 1.
        """
        return central(self.samples, self._index, p)

    @cached_property
    def _log_odds(self) -> Floats:
        """(n + 2, I) log-odds of each item, from sums over the sets with and without it."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.whole.path @ self.shares) - np.log(self.whole.path @ (1.0 - self.shares)))

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
        """The belief event by event, see `nousppl.Belief.history`: a row for each event and item.

        Returns:
            time, event, claim, source, value, item, prior and posterior (probability of the item just before and after
            a claim), and surprise (bits of the whole list under the belief before it).
        """
        whole = self.whole.history().drop(columns=["prior", "posterior"])
        claims = (whole["event"] == "claim").to_numpy()
        chances = np.full((len(whole), len(self.names), 2), np.nan)
        before = self.whole.path[:-2] if self.whole.before is None else self.whole.before[0]
        chances[claims] = np.stack([before @ self.shares, self.whole.path[1:-1] @ self.shares], axis=-1)
        table = whole.loc[whole.index.repeat(len(self.names))].reset_index(drop=True)
        place = len(whole.columns) - 1
        table.insert(place, "item", np.tile(np.array(self.names, object), len(whole)))
        table.insert(place + 1, "prior", chances[..., 0].ravel())
        table.insert(place + 2, "posterior", chances[..., 1].ravel())
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

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the items with their intervals.

        Args:
            axes: to draw on; a new figure by default.
        """
        from nousppl import plotting

        return plotting.plot_items(self, axes)

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
