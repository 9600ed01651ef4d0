"""The belief about a set-valued question: how probable it is of each item that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from html import escape
from math import comb, prod
from typing import TYPE_CHECKING, Any, NamedTuple

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


class ItemsPart(NamedTuple):
    """The belief about some items of a question."""

    belief: Belief
    """About which of their sets holds. Up to 12 items an answer is a set of them; beyond, an answer says how many items
    hold of each group of items that all claims treat alike."""
    groups: tuple[tuple[str, ...], ...]
    """The groups; up to 12 items each is one by itself."""
    shares: Floats
    """(answers, I) chance that each item holds, given an answer."""

    @property
    def names(self) -> tuple[str, ...]:
        """The I items."""
        return tuple(name for group in self.groups for name in group)

    def chance(self, path: Floats) -> Floats:
        """(rows, I) probability of each item, given that of the answers."""
        return np.asarray(path @ self.shares)

    def place(self, items: set[str]) -> tuple[int, int]:
        """Answer in which exactly these of the items hold, and the number of sets that it stands for."""
        place, step, ways = 0, 1, 1
        for group in self.groups:
            many = len(items & set(group))
            place, step, ways = place + many * step, step * (len(group) + 1), ways * comb(len(group), many)
        return place, ways

    @property
    def ways(self) -> Floats:
        """(answers,) how many sets each answer stands for."""
        ways = np.ones(1)
        for group in self.groups:
            ways = np.outer([comb(len(group), many) for many in range(len(group) + 1)], ways).ravel()
        return ways

    @property
    def entropy(self) -> float:
        """In bits; sets that all claims treat alike are equally likely."""
        p = self.belief.path[-1]
        return float(-(p * np.log2(np.where(p > 0, p / self.ways, 1.0))).sum() + 0.0)

    @property
    def log_odds(self) -> Floats:
        """(n + 2, I) log-odds of each item, from sums over the sets with and without it."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.chance(self.belief.path)) - np.log(self.belief.path @ (1.0 - self.shares)))


@dataclass(frozen=True, eq=False, repr=False)
class ItemsBelief:
    """Posterior of a question whose answer is any of I items, given its n claims.

    Its items are not independent of each other given the claims, since a list that is copied is copied whole. A
    question with too many sets of items is in parts, see `nousppl.AnyOf`: items of different parts are independent
    given the trust, each part having heard of the others which claims are copies.
    """

    parts: tuple[ItemsPart, ...]
    """One, or several where there are too many sets."""
    shape: AnyOf

    @property
    def whole(self) -> Belief:
        """The belief about which of all sets is the true one.

        Raises:
            QuestionError: the question is in parts.
        """
        if len(self.parts) > 1:
            raise QuestionError(
                f"{display.title(self.question)}: {len(self.names)} items have too many sets for a belief about each; "
                f"they are in {len(self.parts)} parts: ask for probabilities, probability_of or parts"
            )
        return self.parts[0].belief

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.parts[0].belief.question

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """Place of each item among those of the parts end to end; of several parts they are sorted."""
        names = [name for part in self.parts for name in part.names]
        return np.arange(len(names)) if len(self.parts) == 1 else np.argsort(np.array(names, object), kind="stable")

    def _together(self, by_part: list[Floats]) -> Floats:
        """(..., I) numbers by item from those of each part."""
        return np.concatenate(by_part, axis=-1)[..., self._order]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The I items."""
        names = [name for part in self.parts for name in part.names]
        return tuple(names[place] for place in self._order)

    @property
    def _index(self) -> pd.Index:
        return pd.Index(self.names, dtype=object, name="item")

    @property
    def probabilities(self) -> pd.Series:
        """Probability that each item holds."""
        chance = self._together([part.chance(part.belief.path[-1]) for part in self.parts])
        return pd.Series(chance, index=self._index, name="probability")

    @cached_property
    def samples(self) -> Floats:
        """(D, I) probability of each item under each draw of the trust; the belief is their mean."""
        return self._together([part.chance(part.belief.samples) for part in self.parts])

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
        found = [(part, *part.place(set(given))) for part in self.parts]
        ways = prod(ways for _, _, ways in found)
        if len(found) == 1:
            return float(found[0][0].belief.path[-1, found[0][1]]) / ways
        # Items of different parts are independent under each draw, not over all of them.
        return float(np.prod([part.belief.samples[:, place] for part, place, _ in found], axis=0).mean()) / ways

    def surprise(self, items: str | tuple[str, ...] | list[str]) -> float:
        """Bits of surprise if exactly these items turned out to hold."""
        with np.errstate(divide="ignore"):
            return float(-np.log2(self.probability_of(items)) + 0.0)

    @property
    def entropy(self) -> float:
        """Entropy of the belief about the whole list, in bits; sets that all claims treat alike are equally likely. Of
        a question in parts, the sum over these."""
        return sum(part.entropy for part in self.parts)

    def interval(self, p: float = 0.9) -> pd.DataFrame:
        """Central interval of each item's probability over the draws of the trust; columns lower and upper.

        Raises:
            QuestionError: p is not between 0 and 1.
        """
        return central(self.samples, self._index, p)

    @property
    def points(self) -> pd.DataFrame:
        """What moved the belief: a row "prior", a row a claim and a row "time", and a column for each item.

        They are changes of the item's log-odds in nats, and add up to the log-odds of the belief; an item that is
        settled has infinite ones. In parts, what a part has heard of the others it knows from the start.
        """
        odds = self._together([part.log_odds for part in self.parts])
        with np.errstate(invalid="ignore"):
            steps = np.diff(odds, axis=0, prepend=0.0)
        # From infinity to infinity nothing changes.
        steps[np.isnan(steps)] = 0.0
        whole = self._with_lists(self.parts[0].belief.points, slice(1, -1))
        table = pd.DataFrame(steps, columns=self._index, index=whole.index)
        return pd.concat([whole[["claim", "source", "value", "time"]], table, whole[["note"]]], axis=1)

    def _with_lists(self, table: pd.DataFrame, claims: slice | NDArray[np.bool_]) -> pd.DataFrame:
        """A table with whole lists as the values of the claims; a part has only its own items."""
        if len(self.parts) > 1:
            values = [self.shape.text(self.shape.items(value)) for value in self.question.claims["value"]]
            column = table["value"].to_numpy(object).copy()
            column[claims] = values
            table["value"] = column
        return table

    def history(self) -> pd.DataFrame:
        """The belief event by event, see `nousppl.Belief.history`: a row for each event and item.

        Returns:
            time, event, claim, source, value, item, prior and posterior (probability of the item just before and after
            a claim), and surprise (bits of the whole list under the belief before it; of a question in parts, their
            sum).
        """
        tables = [part.belief.history().drop(columns=["prior", "posterior"]) for part in self.parts]
        whole = tables[0]
        claims = (whole["event"] == "claim").to_numpy()
        whole["surprise"] = sum(table["surprise"].to_numpy(float) for table in tables)
        whole = self._with_lists(whole, claims)
        chances = np.full((len(whole), len(self.names), 2), np.nan)
        path = self._together([part.chance(part.belief.path) for part in self.parts])
        chances[claims] = np.stack([path[:-2], path[1:-1]], axis=-1)
        table = whole.loc[whole.index.repeat(len(self.names))].reset_index(drop=True)
        place = len(whole.columns) - 1
        table.insert(place, "item", np.tile(np.array(self.names, object), len(whole)))
        table.insert(place + 1, "prior", chances[..., 0].ravel())
        table.insert(place + 2, "posterior", chances[..., 1].ravel())
        return table

    @property
    def origins(self) -> pd.DataFrame:
        """Where each claim comes from: probability of "fresh" and of repeating each other claim; rows sum to 1. Of a
        question in parts, the mean of what these say."""
        found = [part.belief.origins for part in self.parts]
        return found[0] if len(found) == 1 else pd.DataFrame(sum(found) / len(found))

    @property
    def effective_claims(self) -> float:
        """Independent witnesses among the claims: P(fresh) summed over all of them."""
        return float(np.mean([part.belief.fresh.sum() for part in self.parts]))

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
        return "\n".join([*lines, f"  {display.count(len(self.parts[0].belief.status), 'claim')}, {witnesses}"])

    def _repr_html_(self) -> str:
        head = f"<b>{escape(display.title(self.question))}</b>: {escape(self.shape.text(self.answer))}"
        table = pd.DataFrame({"item": self.names, "probability": self.probabilities.to_numpy()})
        bounds = self.interval()
        table["90% interval"] = [f"{low:.2f} – {high:.2f}" for low, high in bounds.to_numpy()]
        parts = [f"<p>{head} {self.probability:.3f}</p>", display.table_html(table)]
        parts.append(display.table_html(self.points.reset_index()))
        return f'<style>{display.STYLE}</style><div class="nous">{"".join(parts)}</div>'
