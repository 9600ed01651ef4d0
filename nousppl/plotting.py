"""Pictures of beliefs, calibration and sources, drawn on axes that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import display, value_text
from nousppl.errors import QuestionError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nousppl.belief import Belief
    from nousppl.items_belief import ItemsBelief
    from nousppl.number_belief import NumberBelief
    from nousppl.question import Question

Floats = NDArray[np.float64]
BLUE, GREY, RED = "#3b6ea8", "#9aa5b1", "#b4432f"


def plot_belief(belief: Belief, axes: Sequence[Axes] | None = None) -> Sequence[Axes]:
    """Answers with the interval over draws (left), and what each claim adds, darker the fresher it is (right)."""
    if axes is None:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
        figure.suptitle(display.title(belief.question))
    left, right = axes
    _plot_answers(belief, left)
    _plot_points(belief, right)
    return axes


def plot_items(belief: ItemsBelief, axes: Axes | None = None) -> Axes:
    """How probable it is of each item that it holds, with the interval over draws."""
    axes = _own_axes(belief.question) if axes is None else axes
    _bars(axes, belief.probabilities.to_numpy(), belief.interval().to_numpy(), [str(name) for name in belief.names])
    axes.set_xlabel("probability that it holds, with its 90 % interval")
    return axes


def plot_number(belief: NumberBelief, axes: Axes | None = None) -> Axes:
    """The density of a number, its 90 % interval, and what the claims say, darker the fresher they are."""
    axes = _own_axes(belief.question) if axes is None else axes
    said = belief.points["value"].to_numpy()[1:-1].astype(np.float64)
    low, high = belief.interval(0.9)
    if low == high:
        axes.axvline(low, color=BLUE)
    else:
        ends = belief.quantile([0.001, 0.999])
        grid = np.linspace(
            min(ends[0], *said) if len(said) else ends[0], max(ends[1], *said) if len(said) else ends[1], 400
        )
        density = belief.density(grid)
        inside = (grid >= low) & (grid <= high)
        axes.plot(grid, density, color=BLUE)
        axes.fill_between(grid, 0.0, density, where=inside.tolist(), color=BLUE, alpha=0.3, label="90 % interval")
        axes.legend(frameon=False)
    for value, fresh in zip(said, belief.fresh, strict=True):
        axes.plot([value], [0.0], marker="|", markersize=14, color=_shade(float(fresh)), clip_on=False)
    axes.set_yticks([])
    axes.set_xlabel(_plain(f"{belief.question.attribute} {belief.shape.unit}".strip()))
    _frameless(axes)
    return axes


def _own_axes(question: Question) -> Axes:
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axes.set_title(_plain(display.title(question)))
    return axes


def _plot_answers(belief: Belief, axes: Axes, most: int = 8) -> None:
    shown = np.argsort(-belief.path[-1], kind="stable")[:most]
    bounds = belief.interval().to_numpy()[shown]
    _bars(axes, belief.path[-1][shown], bounds, [display.answer_name(belief, belief.answers[i]) for i in shown])
    axes.set_xlabel("probability, with its 90 % interval")


def _bars(axes: Axes, probability: Floats, bounds: Floats, names: Sequence[str]) -> None:
    """Probabilities (n,) with their intervals (n, 2), from above."""
    place = np.arange(len(probability))
    axes.barh(place, probability, color=BLUE)
    spread = np.abs(bounds.T - probability)
    axes.errorbar(probability, place, xerr=spread, fmt="none", ecolor="black", capsize=2, linewidth=1)
    axes.set_yticks(place, [_plain(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    _frameless(axes)


def _plot_points(belief: Belief, axes: Axes) -> None:
    table = display.reasons(belief)
    shades = _freshness(belief).reindex(table["claim"])
    place = np.arange(len(table))
    points = table["points"].to_numpy(dtype=float)
    finite = np.abs(points[np.isfinite(points)])
    limit = 1.2 * finite.max() if finite.size and finite.max() > 0 else 1.0
    axes.barh(place, np.clip(points, -limit, limit), color=[_shade(share) for share in shades])
    names = [
        f"{row}: {display.cell(source)} says {display.cell(value)}" if isinstance(source, str) else str(row)
        for row, source, value in zip(table["row"], table["source"], table["value"], strict=True)
    ]
    axes.set_yticks(place, [_plain(value_text.show(name, 48)) for name in names])
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("points for the top answer, in nats\n(pale: likely an echo)")
    _frameless(axes)


def _freshness(belief: Belief) -> pd.Series:
    """P(fresh) by claim; nothing where there are too many claims to compute it."""
    try:
        return pd.Series(belief.fresh, index=belief.points["claim"][1:-1])
    except QuestionError:
        return pd.Series(dtype=float)


def _shade(fresh: float) -> tuple[float, float, float, float]:
    from matplotlib.colors import to_rgba

    if np.isnan(fresh):
        return to_rgba(GREY)
    red, green, blue, _ = to_rgba(BLUE)
    return red, green, blue, 0.15 + 0.85 * float(np.clip(fresh, 0, 1))


def plot_calibration(curve: pd.DataFrame, axes: Axes) -> Axes:
    """How often the top answer is right against how sure it was, with the interval of each bin.

    Args:
        curve: what :func:`nousppl.calibration.curve` gives.
    """
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    if len(curve):
        middle = curve["accuracy"].to_numpy()
        spread = np.abs(curve[["accuracy_lower", "accuracy_upper"]].to_numpy().T - middle)
        axes.errorbar(curve["confidence"], middle, yerr=spread, fmt="o", color=BLUE, capsize=2, linewidth=1)
        for x, y, n in zip(curve["confidence"], middle, curve["n"], strict=True):
            axes.annotate(f"{n:,}", (x, y), textcoords="offset points", xytext=(6, -10), fontsize=7, color="#555")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("probability of the top answer")
    axes.set_ylabel("how often it was right")
    _frameless(axes)
    return axes


def plot_sources(sources: pd.DataFrame, axes: Axes) -> Axes:
    """Reliability of sources with its interval, one line each.

    Args:
        sources: index source; columns reliability, reliability_lower, reliability_upper.
    """
    place = np.arange(len(sources))
    middle = sources["reliability"].to_numpy(dtype=float)
    spread = np.abs(sources[["reliability_lower", "reliability_upper"]].to_numpy(dtype=float).T - middle)
    axes.errorbar(middle, place, xerr=spread, fmt="o", color=BLUE, capsize=2, linewidth=1, markersize=4)
    axes.set_yticks(place, [_plain(value_text.show(name, 32)) for name in sources.index])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("reliability: how often it is right when it looks for itself")
    _frameless(axes)
    return axes


def plot_echoes(table: pd.DataFrame, axes: Axes) -> Axes:
    """A matrix of sources: how surely one repeats the other.

    Args:
        table: what `nousppl.kin.echoes` gives; sources in the order in which they are to stand.
    """
    from matplotlib.ticker import PercentFormatter

    names = list(dict.fromkeys(table[["source", "origin"]].to_numpy().ravel()))
    place = {name: i for i, name in enumerate(names)}
    matrix = np.full((len(names), len(names)), np.nan)
    rows, columns = table["source"].map(place), table["origin"].map(place)
    matrix[columns, rows] = table["repeats"]
    # A pair that stands for both directions is shown in both; one with two directions overwrites its mirror.
    matrix[rows, columns] = table["repeats"]
    picture = axes.imshow(matrix, vmin=0.0, vmax=1.0, cmap="Blues")
    labels = [_plain(value_text.show(name, 24)) for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), labels, fontsize=7)
    axes.set_ylabel("repeats ...")
    axes.figure.colorbar(picture, ax=axes, shrink=0.8, format=PercentFormatter(1.0, decimals=0))
    return axes


def plot_rank_differences(
    curves: Mapping[str, NDArray[np.float64]],
    share: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    columns: int,
) -> Figure:
    """Distribution functions minus the uniform one, a panel each; those that leave the band in red.

    Args:
        curves: name -> (points,) share of ranks below each point.
        share: (points,) share of uniform ranks below it.
        low: (points,) lower end of the band.
        high: (points,) its upper end.
        columns: panels in a row.
    """
    import matplotlib.pyplot as plt

    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(2.6 * columns, 1.8 * rows),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for panel, (name, curve) in zip(axes.flat, curves.items(), strict=False):
        outside = bool(((curve < low) | (curve > high)).any())
        panel.fill_between(share, low - share, high - share, color=GREY, alpha=0.4, linewidth=0)
        panel.plot(share, curve - share, color=RED if outside else BLUE, linewidth=1.2)
        panel.set_title(_plain(name), fontsize=7)
        _frameless(panel)
    for panel in axes.flat[len(curves) :]:
        panel.set_visible(False)
    figure.supxlabel("rank of the true value among the draws")
    figure.supylabel("share of ranks below, less the uniform share")
    return figure


def _plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _frameless(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
