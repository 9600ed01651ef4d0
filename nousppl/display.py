"""How beliefs look: text for consoles, html for notebooks and reports, plain data for json."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import value_text
from nousppl.errors import QuestionError

if TYPE_CHECKING:
    from nousppl.belief import Belief
    from nousppl.beliefs import Beliefs
    from nousppl.question import Question

SHOWN_CLAIMS = 12
"""Claims that a display of one belief lists; the others are counted."""
STYLE = """
.nous {font: 14px/1.45 system-ui, sans-serif; color: #222; max-width: 60em}
.nous table {border-collapse: collapse; margin: .4em 0 1em}
.nous th, .nous td {text-align: left; padding: .15em .8em .15em 0; border-bottom: 1px solid #ddd; vertical-align: top}
.nous td.number, .nous th.number {text-align: right; font-variant-numeric: tabular-nums}
.nous .bar {background: #e9eef5; width: 12em; height: .8em; position: relative}
.nous .bar div {background: #3b6ea8; height: 100%}
.nous .verdict {background: #eef1f4; border-radius: .6em; padding: .05em .6em; margin-left: .6em}
.nous .note {color: #666}
"""


def title(question: Question) -> str:
    """One line that names a question."""
    return f"{value_text.show(question.entity, 40)} · {value_text.show(question.attribute, 40)}"


def claim_notes(belief: Belief) -> list[str]:
    """For each claim where it comes from: "fresh 0.93", "echo 0.80 (of claim 2 0.75)", or why it adds nothing.

    The origin stays blank in questions of so many claims that their origins are not computed.
    """
    names = belief.points["claim"].tolist()[1:-1]
    try:
        origins = belief.origins.to_numpy()
    except QuestionError:
        return list(belief.status)
    notes = []
    for status, origin in zip(belief.status, origins, strict=True):
        likeliest = int(origin[1:].argmax()) + 1
        echo = f"echo {1 - origin[0]:.2f} (of {names[likeliest - 1]} {origin[likeliest]:.2f})"
        known = f"fresh {origin[0]:.2f}" if origin[0] >= 0.5 else echo
        notes.append(status or known)
    return notes


def reasons(belief: Belief) -> pd.DataFrame:
    """The points of a belief as a table to read: rows "prior", the claims and "time", with the origin of each claim.

    Where there are more claims than can be shown, those that move the belief most are kept, in the order of events.
    Column ``claim`` holds the whole id, ``row`` what to show.
    """
    table = belief.points
    table["origin"] = ["", *claim_notes(belief), ""]
    table["row"] = ["prior", *[f"{value_text.show(name, 24)}" for name in table["claim"][1:-1]], "time"]
    shown = table[["claim", "row", "time", "source", "value", "points", "origin"]].reset_index(drop=True)
    hidden = len(shown) - 2 - SHOWN_CLAIMS
    if hidden <= 0:
        return shown
    strength = shown["points"].abs().to_numpy().copy()
    strength[[0, -1]] = np.inf
    kept = np.sort(np.argsort(-strength, kind="stable")[: SHOWN_CLAIMS + 2])
    rest = shown.drop(index=kept)
    line = pd.DataFrame([{"row": f"{hidden} more claims", "points": rest["points"].sum()}])
    return pd.concat([shown.loc[kept[:-1]], line, shown.loc[kept[-1:]]], ignore_index=True)


def cell(value: Any) -> str:
    """Short text of one table cell: blank for what is missing, times to the minute, three decimals for floats."""
    if value is None or (not isinstance(value, str) and bool(pd.isna(value))):
        return ""
    if isinstance(value, pd.Timestamp):
        return str(value).removesuffix(":00").removesuffix(" 00:00")
    if isinstance(value, float | np.floating):
        return f"{value:.3f}" if math.isfinite(value) else ("∞" if value > 0 else "-∞")
    return value_text.show(value)


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural where there are several."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def signed(value: Any) -> str:
    """Points with their sign."""
    return "" if pd.isna(value) else f"{value:+.2f}".replace("inf", "∞")


def sources_table(sources: pd.DataFrame) -> pd.DataFrame:
    """Sources to show: reliability and freshness with their intervals, claims and settled facts.

    Args:
        sources: ``Trust.sources``. A model without echoes has infinite freshness, which is left out.
    """
    table = pd.DataFrame({"source": sources.index})
    for name in ("reliability", "freshness"):
        columns = sources[[name, f"{name}_lower", f"{name}_upper"]].to_numpy(dtype=float)
        if np.isfinite(columns).any():
            table[name] = [f"{middle:.2f} ({low:.2f} – {high:.2f})" for middle, low, high in columns]
    table["claims"], table["settled"] = sources["claims"].to_numpy(), sources["settled"].to_numpy()
    return table


def table_html(frame: pd.DataFrame, formats: Mapping[str, Any] | None = None) -> str:
    """A table without its index; every cell is escaped.

    Args:
        frame: what to show.
        formats: function from value to text by column; :func:`cell` for the others.
    """
    known = formats or {}
    number = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in frame}
    head = "".join(_tag("th", escape(str(name)), number[name]) for name in frame)
    rows = []
    for record in frame.itertuples(index=False):
        cells = zip(frame.columns, record, strict=True)
        rows.append("".join(_tag("td", escape(known.get(name, cell)(value)), number[name]) for name, value in cells))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _tag(name: str, inside: str, number: bool) -> str:
    kind = ' class="number"' if number else ""
    return f"<{name}{kind}>{inside}</{name}>"


def bars_html(belief: Belief, p: float = 0.9) -> str:
    """The answers with a bar each, their probability and its interval over draws of the trust."""
    bounds = belief.interval(p).to_numpy()
    rows = []
    for answer, probability, (lower, upper) in zip(belief.answers, belief.path[-1], bounds, strict=True):
        bar = f'<div class="bar"><div style="width:{100 * probability:.1f}%"></div></div>'
        numbers = _tag("td", f"{probability:.3f}", True) + _tag("td", f"{lower:.2f} – {upper:.2f}", True)
        rows.append(f"<tr><td>{escape(answer_name(belief, answer))}</td><td>{bar}</td>{numbers}</tr>")
    head = f"<tr><th>answer</th><th></th><th>probability</th><th>{p:.0%} interval</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def answer_name(belief: Belief, answer: Any) -> str:
    """Name of an answer to show; of "other", how many it stands for."""
    if belief.open and answer is belief.answers[-1]:
        return f"other ({belief.others:,} not named)"
    return value_text.show(answer)


def witnesses(belief: Belief) -> str:
    """How many claims there are, how many independent witnesses (where that is known), and the sum of the points."""
    claims = count(len(belief.status), "claim")
    total = f"points (nats) add up to {signed(belief.log_odds[-1, belief.top])}"
    try:
        return f"{claims}, {belief.effective_claims:.2f} independent witnesses for the answer; {total}"
    except QuestionError:
        return f"{claims}; {total}"


def belief_html(belief: Belief, style: bool = True) -> str:
    """A belief with its answers and its reasons.

    Args:
        belief: what to show.
        style: whether to put the style sheet in front; a report has it once.
    """
    sheet = f"<style>{STYLE}</style>" if style else ""
    verdict = f'<span class="verdict">{escape(belief.verdict)}</span>'
    name = escape(answer_name(belief, belief.answer))
    head = f"<b>{escape(title(belief.question))}</b>: {name} {belief.probability:.3f}{verdict}"
    note = f'<p class="note">{escape(witnesses(belief))}</p>'
    why = table_html(reasons(belief).drop(columns="claim"), {"points": signed})
    return f'{sheet}<div class="nous"><p>{head}</p>{bars_html(belief)}{why}{note}</div>'


def belief_text(belief: Belief) -> str:
    """A belief in a few lines of plain text."""
    lines = [
        f"Belief({title(belief.question)}): {value_text.show(belief.answer)} {belief.probability:.3f}, {belief.verdict}"
    ]
    bounds = belief.interval().to_numpy()
    order = np.argsort(-belief.path[-1], kind="stable")[:5]
    for i in order:
        name = answer_name(belief, belief.answers[i])
        lines.append(f"  {name:<24} {belief.path[-1, i]:.3f}  [{bounds[i, 0]:.2f}, {bounds[i, 1]:.2f}]")
    if len(belief.answers) > len(order):
        lines.append(f"  and {len(belief.answers) - len(order)} more answers")
    lines.append(f"  {witnesses(belief)}")
    return "\n".join(lines)


def belief_dict(belief: Belief) -> dict[str, Any]:
    """A belief as plain data for json."""
    bounds = belief.interval().to_numpy()
    answers = [
        {"answer": value_text.plain(answer), "probability": float(p), "lower": float(low), "upper": float(high)}
        for answer, p, (low, high) in zip(belief.answers, belief.path[-1], bounds, strict=True)
    ]
    points = belief.points.reset_index()
    points["origin"] = ["", *claim_notes(belief), ""]
    return {
        "entity": value_text.plain(belief.question.entity),
        "attribute": value_text.plain(belief.question.attribute),
        "answer": value_text.plain(belief.answer),
        "probability": belief.probability,
        "verdict": belief.verdict,
        "entropy_bits": belief.entropy,
        "effective_claims": belief.effective_claims,
        "open": belief.open,
        "unnamed_answers": int(belief.others),
        "interval": 0.9,
        "answers": answers,
        "points": [_record(row) for row in points.drop(columns="claim").to_dict("records")],
    }


def _record(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): jsonable(value) for name, value in row.items()}


def jsonable(value: Any) -> Any:
    """The value as json can hold it: missing as null, times as ISO text, infinities as "inf" and "-inf"."""
    if isinstance(value, Mapping):
        return _record(value)
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if value is None or (not isinstance(value, str) and bool(pd.isna(value))):
        return None
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    item = value_text.plain(value)
    return item if not isinstance(item, float) or math.isfinite(item) else str(item)


def paragraphs(lines: Iterable[str]) -> str:
    """Each line as an escaped paragraph."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def beliefs_html(beliefs: Beliefs, most: int = 20) -> str:
    """The first questions of many beliefs, and how many there are."""
    table = beliefs.frame
    note = count(len(table), "question") if len(table) <= most else f"first {most} of {len(table):,} questions"
    parts = [table_html(table.head(most)), f'<p class="note">{note}</p>'] if len(table) else []
    if beliefs.numbers is not None:
        numbers = beliefs.numbers.frame
        shown = f"{min(most, len(numbers))} of {count(len(numbers), 'number')}"
        parts += [table_html(numbers.head(most)), f'<p class="note">{shown}</p>']
    return f'<style>{STYLE}</style><div class="nous">{"".join(parts)}</div>'
