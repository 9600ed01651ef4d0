"""The belief about a number: a law on the real line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import display
from nousppl.belief import origins_table
from nousppl.errors import QuestionError
from nousppl.mixture import Mixture
from nousppl.models.shapes import Number

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

    from nousppl.question import Question

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class NumberBelief:
    """Posterior of a question whose answer is a number, given its n claims, averaged over D draws of the trust.

    All numbers are in the unit of the values.
    """

    question: Question
    """What was asked."""
    shape: Number
    mixture: Mixture
    """The belief: a mixture of normal laws. Of a settled question it is the settled number."""
    means: Floats
    """(n + 1,) mean of the number before any claim and after each."""
    sds: Floats
    """(n + 1,) its standard deviation."""
    draw_means: Floats
    """(D,) mean of the number under each draw of the trust."""
    draw_sds: Floats
    """(D,) its standard deviation under each draw."""
    surprises: Floats
    """(n,) bits of surprise at each claim: minus log2 of the probability of its rounding cell before it was read."""
    origins_of: Callable[[], Floats]
    """Gives (n, n+1): probability that claim j is fresh (column 0) or repeats claim k (column 1+k)."""
    fresh_of: Callable[[], Floats]
    """Gives (n,) its column 0, which is cheaper."""
    status: tuple[str, ...]
    """(n,) why a claim adds nothing, else ""."""

    @cached_property
    def mean(self) -> float:
        """The mean."""
        return self.mixture.mean

    @cached_property
    def sd(self) -> float:
        """The standard deviation."""
        return self.mixture.sd

    @cached_property
    def median(self) -> float:
        """The median."""
        return float(self.mixture.quantile(0.5))

    @property
    def answer(self) -> float:
        """The median, rounded to the resolution."""
        return float(np.round(self.median / self.shape.resolution) * self.shape.resolution)

    def quantile(self, q: float | list[float] | Floats) -> Any:
        """The number below which the truth lies with probability q; an array for several.

        Raises:
            QuestionError: q is not between 0 and 1.
        """
        wanted = np.asarray(q, np.float64)
        if not ((wanted > 0) & (wanted < 1)).all():
            raise QuestionError(f"quantile(q={q!r}): q must be above 0 and below 1, for instance .5")
        found = self.mixture.quantile(wanted)
        return float(found) if wanted.ndim == 0 else found

    def interval(self, p: float = 0.9) -> tuple[float, float]:
        """The central interval that holds the truth with probability p.

        Raises:
            QuestionError: p is not between 0 and 1.
        """
        if not 0 < p < 1:
            raise QuestionError(f"interval(p={p!r}): p must be above 0 and below 1, for instance .9")
        low, high = self.mixture.quantile(np.array([(1 - p) / 2, (1 + p) / 2]))
        return float(low), float(high)

    def probability_of(self, low: float = -np.inf, high: float = np.inf) -> float:
        """Probability that the number lies above ``low`` and not above ``high``.

        Raises:
            QuestionError: low is above high.
        """
        if not low <= high:
            raise QuestionError(f"probability_of(low={low!r}, high={high!r}): low must not be above high")
        bounds = self.mixture.cdf(np.array([low, high], np.float64))
        return float(np.clip(bounds[1] - bounds[0], 0.0, 1.0))

    def density(self, value: float | Floats) -> Any:
        """Density of the number, per unit of the values; an array for several."""
        found = self.mixture.density(value)
        return float(found) if np.ndim(value) == 0 else found

    @cached_property
    def _claims(self) -> pd.DataFrame:
        """One row a claim: claim, source, value, time."""
        coded, index = self.question.evidence.coded, self.question.index
        span = slice(int(coded.claim_start[index]), int(coded.claim_start[index + 1]))
        rows = self.question.claims
        return pd.DataFrame(
            {
                "claim": coded.claim_id[span],
                "source": coded.sources.to_numpy(dtype=object)[coded.claim_source[span]],
                "value": rows["value"].to_numpy(),
                "time": rows["time"].to_numpy() if "time" in rows else np.nan,
            }
        )

    @property
    def points(self) -> pd.DataFrame:
        """What moved the belief: a row "prior", a row for each claim in the order of events, and a row "time".

        Columns ``mean`` and ``log_sd`` are the changes of the mean, in the unit of the values, and of the log of the
        standard deviation; they add up to those of the belief. Numbers do not change, so that time changes nothing.
        """
        claims = self._claims
        table = claims.reindex(range(-1, len(claims) + 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            log_sd = np.log(self.sds)
            steps = np.diff(log_sd)
        table["mean"] = np.r_[self.means[0], np.diff(self.means), 0.0]
        table["log_sd"] = np.r_[log_sd[0], np.where(np.isnan(steps), 0.0, steps), 0.0]
        table["note"] = ["", *self.status, ""]
        labels = ["prior", *claims["claim"], "time"]
        return table.set_axis(pd.Index(labels, dtype=object, name="row"))

    def history(self) -> pd.DataFrame:
        """The belief claim by claim.

        Returns:
            A row a claim in the order of events: time, claim, source, value, ``prior_mean``, ``prior_sd``,
            ``posterior_mean``, ``posterior_sd`` and ``surprise`` (bits).
        """
        table = self._claims[["time", "claim", "source", "value"]].copy()
        table["prior_mean"], table["prior_sd"] = self.means[:-1], self.sds[:-1]
        table["posterior_mean"], table["posterior_sd"] = self.means[1:], self.sds[1:]
        table["surprise"] = self.surprises
        return table

    @cached_property
    def _origins(self) -> Floats:
        return np.asarray(self.origins_of(), np.float64)

    @property
    def origins(self) -> pd.DataFrame:
        """Where each claim comes from: probability of "fresh" and of repeating each other claim; rows sum to 1."""
        return origins_table(self._origins, list(self._claims["claim"]))

    @cached_property
    def fresh(self) -> Floats:
        """(n,) probability that the source of each claim looked for itself."""
        return np.asarray(self.fresh_of(), np.float64)

    @property
    def effective_claims(self) -> float:
        """Independent witnesses among the claims: P(fresh) summed over all of them."""
        return float(self.fresh.sum())

    @property
    def draws(self) -> xr.Dataset:
        """The mean and standard deviation of the number under each draw of the trust, dim ``draw``."""
        import xarray as xr

        return xr.Dataset({"mean": ("draw", self.draw_means), "sd": ("draw", self.draw_sds)})

    def samples(self, size: int, seed: int) -> Floats:
        """(size,) draws of the number from the belief.

        Args:
            size: how many.
            seed: of the draws.
        """
        return self.mixture.samples(size, np.random.default_rng(seed))

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the density with its 90 % interval, and what the claims say.

        Args:
            axes: to draw on; a new figure by default.
        """
        from nousppl import plotting

        return plotting.plot_number(self, axes)

    def to_dict(self) -> dict[str, Any]:
        """The belief as plain lists, numbers and text, ready for json."""
        low, high = self.interval()
        return {
            "entity": display.jsonable(self.question.entity),
            "attribute": display.jsonable(self.question.attribute),
            "shape": self.shape.name,
            "unit": self.shape.unit,
            "resolution": self.shape.resolution,
            "answer": self.answer,
            "mean": self.mean,
            "sd": self.sd,
            "median": self.median,
            "interval": 0.9,
            "lower": low,
            "upper": high,
            "effective_claims": self.effective_claims,
            "points": display.jsonable(self.points.reset_index().to_dict("records")),
        }

    def _title(self) -> str:
        low, high = (self.shape.text(bound) for bound in self.interval())
        return f"{self.shape.text(self.mean)} ± {self.shape.text(self.sd)}, 90% interval {low} to {high}"

    def __repr__(self) -> str:
        lines = [f"Belief({display.title(self.question)}): {self._title()}"]
        for row in self.points.iloc[1:-1].itertuples():
            note = f"  {row.note}" if row.note else ""
            lines.append(f"  {row.source!s:<24} {row.value:>10}  mean {row.mean:+.4g}, log sd {row.log_sd:+.3f}{note}")
        witnesses = f"{self.effective_claims:.2f} independent witnesses"
        return "\n".join([*lines, f"  {display.count(len(self.status), 'claim')}, {witnesses}"])

    def _repr_html_(self) -> str:
        head = f"<p><b>{escape(display.title(self.question))}</b>: {escape(self._title())}</p>"
        table = display.table_html(self.points.reset_index())
        return f'<style>{display.STYLE}</style><div class="nous">{head}{table}</div>'
