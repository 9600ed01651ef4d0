"""Simulation-based calibration of a model and a method of inference on a design (Talts et al. 2018).

Where parameters are drawn from their prior and data from the model, the rank of a true value among draws of its
posterior is uniform. A method that gives other ranks gives another posterior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import rank_tests, ranked
from nousppl.errors import InferenceError
from nousppl.inference import many
from nousppl.inference.options import NUTS, SVI
from nousppl.model import TrustModel, options_of
from nousppl.simulated_sets import Sets, draw_sets

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
RANKS = 99
"""Most draws that a true value is ranked among: 100 possible ranks."""
LEVELS = (0.5, 0.8, 0.9, 0.95)
SHIFT, WIDTH = 0.05, 0.05
"""Mean rank and share of 90 % intervals from which a departure is named after them."""


def simulation_based_calibration(
    model: TrustModel,
    design: pd.DataFrame,
    method: str | SVI | NUTS = "svi",
    fits: int = 256,
    seed: int = 0,
    *,
    settled: float = 0.5,
    learn_from: str | None = "all",
    fitted: TrustModel | None = None,
    effects: int = 2,
    at_once: int = many.AT_ONCE,
) -> SimulationBasedCalibration:
    """Draw many data sets from a model, fit each, and rank what they were drawn from among the draws of the fit.

    All fits run side by side in compiled code, on the package's own programs: each is the fit that ``TrustModel.fit``
    makes of that evidence with that seed, up to rounding.

    What is ranked: every scalar parameter; some effects of each group; the log likelihood and the log joint density of
    parameters and data, which see what the parameters one by one do not (Modrák et al. 2023); and, learning from all,
    what came true of the questions that the fit did not see settled, by the log score of all truths of a set and by
    the number of its questions whose most probable answer is true. So truths of one set count as one observation.

    Args:
        model: drawn from, with declared answers for each attribute. Its priors are what parameters are drawn from:
            vague ones give data that no one will meet.
        design: claims without values: entity, attribute, source, time and whatever the formulas use. Where the order of
            claims is not known, data come in one order and the likelihood averages over several, so that ranks are
            uniform only nearly.
        method: "svi", "nuts", or ``nousppl.SVI`` / ``nousppl.NUTS`` with options.
        fits: number of data sets.
        seed: of everything random.
        settled: share of the questions whose truth is known to a fit.
        learn_from: as in ``TrustModel.fit``. With "settled" the posterior of the truths is that of a cut, which is not
            calibrated by construction, and truths are not ranked.
        fitted: another model to fit, to see what a wrong one does; default the model itself.
        effects: how many effects of each group are ranked.
        at_once: fits side by side.

    Raises:
        ModelError: see `nousppl.generate.simulate`; a share outside of 0 to 1.
        InferenceError: fewer than 2 fits, fewer draws than 8, or a fit that cannot be made; learning by a cut.
    """
    options = options_of(method)
    if learn_from == "cut":
        raise InferenceError("learn_from='cut' has no joint density, so there is no posterior to calibrate")
    if fits < 2:
        raise InferenceError(f"fits={fits}: calibration needs at least 2, and some hundred to see anything")
    sets = draw_sets(model, fitted or model, design, fits, seed, settled, learn_from)
    draws, record = sample(sets, options, at_once)
    return evaluate(sets, draws, seed, effects, record)


def sample(sets: Sets, options: SVI | NUTS, at_once: int) -> tuple[dict[str, Floats], dict[str, Any]]:
    """Fit all sets.

    Returns:
        site as it is fitted -> (fits, draws, ...), about twice `RANKS` of them, and how the fits went.
    """
    if isinstance(options, SVI):
        results = many.svi(sets.plan, sets.fit, options, sets.seeds, at_once)
        draws = {name: np.stack([np.asarray(r.draws[name][0]) for r in results]) for name in sets.plan.raw_names}
        good = np.array([result.converged for result in results])
        return draws, {"method": f"SVI, {options.guide} guide", "settled fits": float(good.mean())}
    total = options.num_chains * options.num_samples
    thin = max(1, total // (2 * RANKS))
    found, stats = many.nuts(sets.plan, sets.fit, options, sets.seeds, thin, at_once)
    draws = {name: value.reshape(value.shape[0], -1, *value.shape[3:]) for name, value in found.items()}
    share = float(stats["diverging"].sum() / (sets.fit.fits * total))
    return draws, {"method": f"NUTS, one of {thin} draws", "divergences a draw": share}


def evaluate(
    sets: Sets, draws: Mapping[str, Floats], seed: int, effects: int, record: Mapping[str, Any]
) -> SimulationBasedCalibration:
    """Rank what the sets were drawn from.

    Args:
        sets: the data.
        draws: site as it is fitted -> (fits, draws, ...); every other one gives ranks, the rest the beliefs.
        seed: of ranks among equals and of truths.
        effects: how many effects of each group are ranked.
        record: kept with the result.
    """
    rng = np.random.default_rng([seed, 1])
    count = next(iter(draws.values())).shape[1]
    ranks = min(RANKS, count // 2)
    if ranks < 4:
        raise InferenceError(f"{count} draws of a fit are too few to rank a true value among: at least 8 are needed")
    values = ranked.natural(sets, draws)
    mine = {name: value[:, : 2 * ranks : 2] for name, value in values.items()}
    quantities = dict(ranked.parameter_quantities(sets, mine, effects))
    quantities |= dict(ranked.density_quantities(sets, mine))
    asked: list[ranked.Asked] = []
    if sets.asked is not None:
        others = {name: value[:, 1 : 2 * ranks : 2] for name, value in values.items()}
        of_truths, asked = ranked.truth_quantities(sets, mine, others, rng)
        quantities |= of_truths if sets.learn_from == "all" else {}
    table = pd.DataFrame({name: ranked.rank(quantity, rng) for name, quantity in quantities.items()})
    kinds = {name: quantity.kind for name, quantity in quantities.items()}
    beliefs = pd.DataFrame(asked, columns=list(ranked.Asked._fields))
    return SimulationBasedCalibration(table.rename_axis(index="fit"), ranks + 1, kinds, beliefs, dict(record))


@dataclass(frozen=True, eq=False, repr=False)
class SimulationBasedCalibration:
    """Ranks of true values among draws of their posteriors.

    Attributes:
        ranks: (fits × quantities) number of draws below the true value, from 0 to ``levels - 1``.
        levels: number of possible ranks.
        kinds: quantity -> "parameter", "density" or "truth".
        beliefs: one row a question that a fit did not see settled: fit, question, confidence (probability of the most
            probable answer), right (whether it is true), truth (probability that the truth was given).
        record: how the fits were made.
    """

    ranks: pd.DataFrame
    levels: int
    kinds: Mapping[str, str]
    beliefs: pd.DataFrame
    record: Mapping[str, Any]

    def coverage(self, levels: tuple[float, ...] = LEVELS) -> pd.DataFrame:
        """How often central intervals hold the true value: one row a quantity, one column for each nominal level, the
        mean rank (0 to 1, .5 is right) and n, the number of fits."""
        table = pd.DataFrame({level: self._inside(level).mean(axis=0) for level in levels}).reindex(self.ranks.columns)
        table["mean rank"] = (self.ranks.mean(axis=0) + 0.5) / self.levels
        table["n"] = len(self.ranks)
        return table.rename_axis(index="quantity", columns="nominal")

    def _inside(self, level: float) -> pd.DataFrame:
        """Whether each rank lies in the central interval; a rank that its end cuts counts with the share inside."""
        away = np.abs(self.ranks - 0.5 * (self.levels - 1))
        return pd.DataFrame(np.clip(0.5 * (self.levels * level + 1.0) - away, 0.0, 1.0))

    def truths(self, edges: tuple[float, ...] = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)) -> pd.DataFrame:
        """Beliefs about unsettled questions against what came true, by the probability of the most probable answer:
        number of questions, mean probability, share that was right, and the standard error of the difference, which
        takes the questions of one fit as one observation."""
        table = self.beliefs.assign(
            bin=pd.cut(self.beliefs["confidence"], list(edges), include_lowest=True),
            excess=self.beliefs["right"].astype(float) - self.beliefs["confidence"],
        )
        grouped = table.groupby("bin", observed=True)
        sums = table.groupby(["bin", "fit"], observed=True)["excess"].sum()
        error = np.sqrt(sums.pow(2).groupby("bin", observed=True).sum()) / grouped.size()
        return pd.DataFrame(
            {
                "n": grouped.size(),
                "believed": grouped["confidence"].mean(),
                "right": grouped["right"].mean(),
                "error": error,
            }
        )

    def check(self, alpha: float = 1e-3) -> CalibrationCheck:
        """Whether the ranks are uniform: a right posterior passes with a chance of at least ``1 - alpha``, all
        quantities together (Holm's adjustment of exact p-values, see `nousppl.rank_tests`)."""
        if not 0.0 < alpha < 1.0:
            raise InferenceError(f"alpha={alpha!r}: the rate of false alarms lies between 0 and 1")
        p = {name: rank_tests.p_value(self.ranks[name].to_numpy(), self.levels) for name in self.ranks}
        adjusted = rank_tests.holm(p)
        table = self.coverage().drop(columns="n")
        table.insert(0, "kind", pd.Series(self.kinds))
        table.insert(1, "p", pd.Series(p))
        table.insert(2, "adjusted", pd.Series(adjusted))
        table["fails"] = table["adjusted"] <= alpha
        return CalibrationCheck(table, alpha, len(self.ranks), str(self.record.get("method", "")))

    def to_arviz(self) -> xr.DataTree:
        """The ranks as values between 0 and 1, group ``prior_sbc`` with one draw a fit, as simuk has them and
        ``arviz_plots.plot_ecdf_pit`` reads them."""
        import xarray as xr

        values = (self.ranks + 0.5) / self.levels
        data = {str(name): (("chain", "draw"), values[name].to_numpy()[None]) for name in values}
        return xr.DataTree.from_dict({"/prior_sbc": xr.Dataset(data)})

    def plot(self, alpha: float = 1e-3, columns: int = 4) -> Figure:
        """Each quantity's distribution function of ranks minus that of uniform ones, with the band that uniform ranks
        stay within everywhere; all bands together are left with a chance of at most ``alpha``."""
        from nousppl.plotting import plot_rank_differences

        each = rank_tests.band(alpha / max(self.ranks.shape[1], 1), len(self.ranks), self.levels)
        curves = {name: rank_tests.counts(self.ranks[name].to_numpy(), self.levels) for name in self.ranks}
        return plot_rank_differences({n: c / len(self.ranks) for n, c in curves.items()}, *each, columns)

    def __repr__(self) -> str:
        return (
            f"SimulationBasedCalibration({self.record.get('method', '')}: {len(self.ranks)} fits, "
            f"{self.ranks.shape[1]} quantities)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationCheck:
    """What a check of calibration found.

    Attributes:
        table: one row a quantity: kind, p, adjusted (for the number of quantities), observed coverage by nominal level,
            mean rank, fails.
        alpha: chance that a right posterior fails, all quantities together.
        fits: number of fits.
        method: how they were made.
    """

    table: pd.DataFrame
    alpha: float
    fits: int
    method: str

    @property
    def passed(self) -> bool:
        """Whether no quantity fails."""
        return not bool(self.table["fails"].any())

    def __bool__(self) -> bool:
        return self.passed

    @cached_property
    def failures(self) -> dict[str, str]:
        """Quantity that fails -> what is wrong with it, in words."""
        rows = self.table[self.table["fails"]].sort_values("p")
        return {str(name): _words(row) for name, row in rows.iterrows()}

    def __repr__(self) -> str:
        rate = f"false-alarm rate {self.alpha:g} over {len(self.table)} quantities"
        if self.passed:
            worst = self.table["adjusted"].idxmin()
            least = f"least adjusted p {self.table['adjusted'].min():.2g} ({worst})"
            return f"calibrated as far as {self.fits} fits show ({self.method}; {rate}; {least})"
        lines = [f"  {name}: {said}" for name, said in self.failures.items()]
        return "\n".join([f"not calibrated ({self.method}; {self.fits} fits; {rate}):", *lines])


def _words(row: pd.Series) -> str:
    said = []
    shift, share = row["mean rank"] - 0.5, row[0.9]
    what = "draws" if row["kind"] == ranked.PARAMETER else "values under the draws"
    if abs(shift) >= SHIFT:
        said.append(
            f"{what} lie too {'low' if shift > 0 else 'high'} (mean rank {row['mean rank']:.2f} in place of .50)"
        )
    if abs(share - 0.9) >= WIDTH:
        narrow = share < 0.9
        said.append(f"{what} are too {'narrow' if narrow else 'wide'} (90 % intervals hold {share:.0%} of true values)")
    if not said:
        said.append("ranks are not uniform: draws have another shape than the posterior")
    return f"{'; '.join(said)}; p = {row['p']:.1e}"
