"""A report that explains a fit: one html file with everything in it, pictures included."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from nousppl import calibration, display, echoes, kin, plotting
from nousppl._writing import replacing
from nousppl.belief import Belief
from nousppl.beliefs import Beliefs
from nousppl.believe import AnyBelief
from nousppl.items_belief import ItemsBelief

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 15
"""Rows of a table of echoes."""
MOST_SOURCES = 40
"""Sources shown: those with most claims."""
SHARES = ("accuracy", "held_85", "right_85", "held_95", "right_95")
COUNTS = ("n", "seen", "missing", "rejected")
SCORE_NAMES = {
    "accuracy": "top answer right",
    "log_loss": "log loss (nats)",
    "brier": "Brier score (0 to 2)",
    "ece": "calibration error (top answer, 15 bins)",
    "held_85": "share held at .85 or more",
    "right_85": "of these right",
    "held_95": "share held at .95 or more",
    "right_95": "of these right ",
    "aurc": "area under the risk-coverage curve",
    "n": "settled questions scored",
    "seen": "of these seen in the fit",
    "missing": "facts about other questions",
    "rejected": "rejections, not scored",
}


KEYS = ["entity", "attribute"]
NUMBER_NAMES = {
    "coverage_50": "share inside the 50 % intervals",
    "coverage_90": "share inside the 90 % intervals",
    "log_score": "log score (nats, large is good)",
    "crps": "continuous ranked probability score",
    "rmse": "root mean square error of the mean",
    "n": "settled numbers scored",
    "seen": "of these seen in the fit",
}


class Example(NamedTuple):
    """One belief that a report shows."""

    label: str
    """Why it is shown."""
    belief: AnyBelief
    outcome: str = ""
    """What turned out later, in words."""


class Content(NamedTuple):
    """What a report is about."""

    title: str
    summary: Sequence[str]
    """What was fitted on what, in sentences."""
    sources: pd.DataFrame
    """``Trust.sources``: index source; reliability, freshness with _lower and _upper; claims, settled."""
    beliefs: Beliefs
    """Beliefs about all questions."""
    settled: pd.DataFrame
    """Facts to score them on, held out of the fit."""
    explained: Sequence[AnyBelief]
    """Beliefs about single questions from which the echoes are read."""
    examples: Sequence[Example]
    """The beliefs that are shown in full."""
    remarks: Sequence[str] = ()
    """What more there is to say about how good the beliefs are, in sentences."""
    affinities: pd.DataFrame | None = None
    """``Trust.echoes``, where the model has affinities of sources."""


def write_report(path: str | os.PathLike[str], content: Content, seed: int = 0) -> None:
    """Writes a self-contained report; a file that is there is replaced.

    Args:
        path: the html file.
        content: what to report.
        seed: seed of the simulated calibration error of a perfect forecaster.

    Raises:
        FileError: the file cannot be written.
    """
    page = render(content, seed)
    with replacing(Path(path)) as part:
        part.write_text(page, encoding="utf-8")


def render(content: Content, seed: int = 0) -> str:
    """The report as html text."""
    from jinja2 import Environment, StrictUndefined

    text = resources.files("nousppl").joinpath("report.html.j2").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(text)
    return template.render(
        title=content.title,
        style=_safe(display.STYLE),
        summary=content.summary,
        **_quality(content, seed),
        **_sources(content.sources),
        **_echoes(content.explained),
        **_affinities(content.affinities),
        examples=[_example(example) for example in content.examples],
    )


def score_rows(scores: pd.Series) -> pd.DataFrame:
    """Scores as text: a row each with its name in words."""
    rows = []
    for name, value in scores.items():
        if name in COUNTS:
            if name == "n" or value > 0:
                rows.append((SCORE_NAMES[str(name)], f"{int(value):,}"))
        else:
            rows.append((SCORE_NAMES[str(name)], "none" if pd.isna(value) else _number(str(name), value)))
    return pd.DataFrame(rows, columns=["score", "value"])


def other_scores(beliefs: Beliefs, settled: pd.DataFrame, unseen: bool = False) -> list[tuple[str, pd.DataFrame]]:
    """Title and rows of the scores of what is no single answer: items of lists, one by one, and numbers."""
    out = []
    asked = beliefs.items[KEYS].merge(settled[KEYS]) if len(beliefs.items) else beliefs.items
    if len(asked):
        out.append(("Lists, item by item", score_rows(beliefs.score_items(settled))))
    numbers = beliefs.numbers
    if numbers is not None and numbers.concerns(settled).any():
        scores = numbers.score(settled, unseen)
        rows = [(NUMBER_NAMES[str(name)], f"{value:.4g}") for name, value in scores.items() if name in NUMBER_NAMES]
        out.append(("Numbers, in the unit of the values", pd.DataFrame(rows, columns=["score", "value"])))
    return out


def _number(name: str, value: float) -> str:
    return f"{value:.1%}" if name in SHARES else f"{value:.3f}"


def _quality(content: Content, seed: int) -> dict[str, Any]:
    others = [(title, _table(rows)) for title, rows in other_scores(content.beliefs, content.settled)]
    if not len(content.beliefs):
        blank = {"scores": "", "calibration": "", "calibration_picture": ""}
        return {"verdict": [*content.remarks], "other_scores": others, **blank}
    marks = content.beliefs.marks(content.settled)
    curve = calibration.curve(marks)
    shown = curve.assign(bin=[f"{low:.2f} – {high:.2f}" for low, high in curve[["low", "high"]].to_numpy()])
    shown = shown.drop(columns=["low", "high"]).rename(columns=lambda name: name.replace("_", " "))
    return {
        "verdict": [calibration.in_words(marks, seed), *content.remarks],
        "other_scores": others,
        "scores": _table(score_rows(content.beliefs.score(content.settled))),
        "calibration": _table(shown),
        "calibration_picture": _picture(lambda figure: plotting.plot_calibration(curve, figure.subplots()), 4.5, 4),
    }


def _sources(sources: pd.DataFrame) -> dict[str, Any]:
    order = sources["claims"].to_numpy().argsort(kind="stable")[::-1][:MOST_SOURCES]
    shown = sources.iloc[order].sort_values("reliability", ascending=False, kind="stable")
    count = len(sources)
    which = f"All {count:,} sources" if len(shown) == count else f"The {len(shown)} sources with most claims"
    note = f"{which}. Reliability: how often a claim is right when its source looked for itself. "
    if np.isfinite(sources["freshness"]).any():
        note += "Freshness: how readily it does so instead of repeating, as a log weight against what it may repeat. "
    note += "In brackets 90 % intervals; then how many claims it made and on how many settled facts its record rests."
    height = 0.22 * len(shown) + 0.8
    picture = _picture(lambda figure: plotting.plot_sources(shown, figure.subplots()), 7, height)
    return {"sources": _table(display.sources_table(shown)), "sources_note": note, "sources_picture": picture}


def _echoes(beliefs: Iterable[AnyBelief]) -> dict[str, Any]:
    # Of lists of items the origins are those of whole lists.
    chosen = [belief.whole if isinstance(belief, ItemsBelief) else belief for belief in beliefs]
    pairs = echoes.echo_pairs(chosen)
    claims = sum(len(belief.status) for belief in chosen)
    likely = echoes.likeliest_origins(pairs)
    found = (
        f"{len(likely):,} of these are more likely echoes than fresh; {pairs['probability'].sum():.0f} echoes are "
        "expected in all."
    )
    read = f"Read from {display.count(len(chosen), 'question')} with {display.count(claims, 'claim')}: "
    note = read + (found if len(pairs) else "none of these is likely an echo.")
    text = {"entity": "entity", "attribute": "attribute", "claim": "claim", "source": "source", "value": "value"}
    renamed = {**text, "origin": "echo of", "origin_source": "by", "probability": "P(this origin)", "echo": "P(echo)"}
    repeats = echoes.who_repeats_whom(pairs).rename(columns={"origin_source": "repeats", "echoes": "expected echoes"})
    return {
        "echoes_note": note,
        "echoes": _table(likely[list(renamed)].rename(columns=renamed).head(MOST_ROWS)),
        "most_echoed": _table(echoes.most_echoed(pairs).rename(columns={"echoes": "expected echoes"}).head(MOST_ROWS)),
        "repeats": _table(repeats.head(MOST_ROWS)),
    }


def _affinities(pairs: pd.DataFrame | None) -> dict[str, Any]:
    """Groups of sources that echo each other, and the matrix of their members."""
    if pairs is None or not len(pairs):
        return {"groups": None}
    groups = kin.echo_groups(pairs)
    order = list(dict.fromkeys(str(name) for group in groups for name in sorted(map(str, group))))[:MOST_SOURCES]
    names = pairs.assign(source=pairs["source"].astype(str), origin=pairs["origin"].astype(str))
    shown = names[names["source"].isin(order) & names["origin"].isin(order)]
    place = {name: i for i, name in enumerate(order)}
    rank = np.minimum(shown["source"].map(place), shown["origin"].map(place))
    shown = shown.iloc[rank.to_numpy().argsort(kind="stable")]
    lines = [", ".join(sorted(map(str, group))) for group in groups]
    size = 2.5 + 0.16 * len(order)
    picture = _picture(lambda figure: plotting.plot_echoes(shown, figure.subplots()), size, size) if groups else ""
    return {
        "groups": lines[:MOST_ROWS],
        "groups_note": f"{display.count(len(groups), 'group')} among {len(pairs):,} pairs of sources that met often.",
        "groups_picture": picture,
        "pairs": _table(pairs.head(MOST_ROWS).round(3)),
    }


def _example(example: Example) -> dict[str, Any]:
    belief, named = example.belief, {"label": example.label, "outcome": example.outcome}
    if not isinstance(belief, Belief):
        picture = _picture(lambda figure: belief.plot(figure.subplots()), 7, 3.2)
        return named | {"picture": picture, "html": _safe(belief._repr_html_())}
    height = 0.24 * min(len(belief.status) + 3, display.SHOWN_CLAIMS + 3) + 1.0
    picture = _picture(lambda figure: plotting.plot_belief(belief, figure.subplots(1, 2)), 10, height)
    html = _safe(display.belief_html(belief, style=False))
    return named | {"picture": picture, "html": html}


def _safe(html: str) -> Any:
    from markupsafe import Markup

    return Markup(html)


def _table(frame: pd.DataFrame) -> Any:
    if not len(frame):
        return _safe('<p class="note">none</p>')
    return _safe(display.table_html(frame))


def _picture(draw: Callable[[Figure], object], width: float, height: float) -> str:
    """A drawing as the address of an svg picture that holds all its data; the same drawing gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(figure)
    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "nousppl"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(file.getvalue()).decode()}"
