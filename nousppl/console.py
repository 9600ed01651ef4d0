"""Beliefs, scores and sources as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nousppl import display
from nousppl.belief import Belief

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs
    from nousppl.believe import AnyBelief
    from nousppl.number_beliefs import NumberBeliefs
    from nousppl.trust import Trust

VERDICT_STYLES = {"clear": "green", "sources disagree": "yellow", "too little evidence": "yellow", "not named": "cyan"}
MOST_SOURCES = 12
MOST_ANSWERS = 6


def frame_table(frame: pd.DataFrame, title: str = "", formats: dict[str, Any] | None = None) -> Table:
    """A table of a frame, numbers to the right; nothing in it is read as markup."""
    known = formats or {}
    table = Table(title=Text(title, style="bold") if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for name in frame:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        table.add_column(Text(str(name)), justify="right" if numeric else "left", overflow="fold")
    for record in frame.itertuples(index=False):
        row = zip(frame.columns, record, strict=True)
        table.add_row(*(Text(known.get(name, display.cell)(value)) for name, value in row))
    return table


def belief_view(belief: AnyBelief, label: str = "", outcome: str = "") -> RenderableType:
    """One belief: what is asked and answered, how sure, and the points of each claim with its origin; of lists of items
    and of numbers as they show themselves."""
    head = Text()
    if label:
        head.append(f"{label}\n", style="bold underline")
    if not isinstance(belief, Belief):
        head.append(repr(belief))
        return Group(head, *([Text(outcome)] if outcome else []), Text())
    head.append(f"{display.title(belief.question)}: ")
    head.append(f"{display.answer_name(belief, belief.answer)} {belief.probability:.3f}", style="bold")
    head.append(f"  {belief.verdict}", style=VERDICT_STYLES[belief.verdict])
    bounds = belief.interval().to_numpy()
    order = (-belief.path[-1]).argsort(kind="stable")[:MOST_ANSWERS]
    head.append("\n")
    head.append(
        "  ".join(
            f"{display.answer_name(belief, belief.answers[i])} {belief.path[-1][i]:.2f} "
            f"[{bounds[i, 0]:.2f}–{bounds[i, 1]:.2f}]"
            for i in order
        ),
        style="dim",
    )
    why = display.reasons(belief).drop(columns="claim").rename(columns={"row": "claim", "value": "says"})
    foot = Text(display.witnesses(belief), style="dim")
    parts: list[RenderableType] = [head, frame_table(why, formats={"points": display.signed}), foot]
    if outcome:
        parts.append(Text(outcome, style="green" if outcome.endswith("right.") else "red"))
    return Group(*parts, Text())


def sources_view(trust: Trust) -> RenderableType:
    """The sources with most claims: reliability and freshness with their intervals."""
    sources = trust.sources
    if not len(sources):
        return Text("no sources", style="dim")
    shown = sources.sort_values("claims", ascending=False, kind="stable").head(MOST_SOURCES)
    rest = len(sources) - len(shown)
    title = "Sources" if not rest else f"Sources with most claims ({rest:,} more)"
    return frame_table(display.sources_table(shown), title)


def scores_view(rows: pd.DataFrame, sentences: Sequence[str]) -> RenderableType:
    """Scores, and what they mean in words."""
    return Group(frame_table(rows), *(Text(sentence) for sentence in sentences))


def beliefs_view(beliefs: Beliefs, most: int = 10) -> RenderableType:
    """How many beliefs there are of each verdict, and the first of them."""
    frame = beliefs.frame
    counts = frame["verdict"].value_counts().rename_axis("verdict").reset_index(name="questions")
    columns = ["entity", "attribute", "answer", "probability", "claims", "effective_claims", "verdict"]
    first = frame[columns].head(most)
    title = f"First {len(first)} of {display.count(len(frame), 'question')}" if len(frame) > len(first) else ""
    parts = [frame_table(counts), frame_table(first, title)] if len(frame) else []
    if beliefs.numbers is not None:
        parts.append(frame_table(*numbers_shown(beliefs.numbers, most)))
    return Group(*parts)


def numbers_shown(numbers: NumberBeliefs, most: int) -> tuple[pd.DataFrame, str]:
    """The first beliefs about numbers, and a title."""
    shown = numbers.frame[["entity", "attribute", "mean", "sd", "q05", "q95", "claims", "effective_claims"]].head(most)
    return shown, f"First {len(shown)} of {display.count(len(numbers), 'number')}"


def sentence(text: str) -> Text:
    """A sentence in which nothing is read as markup."""
    return Text(text)
