"""All data sets and all methods in one table: ``python tests/benchmarks/scoreboard.py --data FOLDER --out FILE``.

Every method answers the same questions of a data set and learns from the same settled facts, or from none. The table is
printed and written to FILE.csv and FILE.md. Log losses clip probabilities at 1e-15, those marked 1e-6 there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pandas as pd
from benchmarks import data_sets, table
from benchmarks.data_sets import Task
from benchmarks.methods import Method, methods
from benchmarks.table import VARIABLE, MissingDataError, watch
from rich.console import Console
from rich.table import Table

import nousppl as nous
from nousppl import calibration
from nousppl.calibration import Marks

SOFT_CLIP = 1e-6
COPIES = ("book", "crowd_rte", "crowd_possent")
"""Data sets to which copies of the worst source are added."""


@dataclass(frozen=True)
class Row:
    """One method on one task."""

    data: str
    protocol: str
    method: str
    settled: str
    """Whether the method saw settled facts."""
    n: int
    accuracy: float = np.nan
    log_loss: float = np.nan
    log_loss_soft: float = np.nan
    """The same with probabilities clipped at 1e-6."""
    ece: float = np.nan
    floor: float = np.nan
    """95th percentile of the ECE of a perfect forecaster with these probabilities."""
    held_95: float = np.nan
    right_95: float = np.nan
    below_best: float = np.nan
    """P of such a shortfall in accuracy against the best other method of the task, paired, by chance (one-sided)."""
    seconds: float = np.nan
    note: str = ""
    marks: Marks | None = field(default=None, repr=False, compare=False)


HEADINGS = {
    "data": "data",
    "protocol": "protocol",
    "method": "method",
    "settled": "saw settled",
    "n": "n",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "log_loss_soft": "log loss (1e-6)",
    "ece": "ECE",
    "floor": "floor",
    "held_95": "held ≥ .95",
    "right_95": "of these right",
    "below_best": "p below best",
    "seconds": "seconds",
    "note": "note",
}


@dataclass
class Run:
    """What a method made of a task."""

    marks: Marks
    """Of all tested facts, split after split."""
    graded: bool
    """Whether the method gives probabilities."""
    seconds: float


Memory = dict[tuple[nous.Evidence, str], tuple[nous.Beliefs, float]]
"""Beliefs of methods that learn nothing from settled facts, and how long they took."""


def forecast(method: Method, task: Task, seed: int, memory: Memory) -> Run:
    """Forecast all tested facts; a method that learns nothing from settled facts is run once for all tasks."""
    forecaster = method.make(task)
    parts, beliefs, seconds = [], None, 0.0
    for split in (task if method.learns else task.unsettled()).splits:
        evidence = task.evidence.with_settled(split.learned) if len(split.learned) else task.evidence
        key = (evidence, method.name)
        if key not in memory:
            with watch() as taken:
                beliefs = forecaster(evidence, seed)
            memory[key] = beliefs, taken.wall
        beliefs, wall = memory[key]
        seconds += wall
        parts.append(beliefs.marks(split.tested))
    marks = Marks(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return Run(marks, beliefs is None or beliefs.meta.get("probabilities", True), seconds)


def row_of(method: Method, task: Task, seed: int, memory: Memory) -> Row:
    """The scores of one method on one task; a method that breaks down is a row that says so."""
    saw = "yes" if method.learns and task.settled else "no"
    n = sum(len(split.tested) for split in task.splits)
    start = (task.data, task.protocol, method.name, saw, n)
    try:
        run = forecast(method, task, seed, memory)
    except Exception as error:
        # Other packages fail in ways of their own, and the other rows are still wanted.
        return Row(*start, note=f"{type(error).__name__}: {error}"[:200])
    marks = run.marks
    right = calibration.accuracy(marks)
    if not run.graded:
        return Row(*start, right, seconds=run.seconds, note="labels only", marks=marks)
    held, held_right = calibration.held(marks, 0.95)
    soft = float(-np.log(np.clip(marks.truth, SOFT_CLIP, 1.0)).mean())
    floor = calibration.ece_floor(marks.confidence, None, seed)
    loss, error = calibration.log_loss(marks), calibration.ece(marks)
    return Row(*start, right, loss, soft, error, floor, held, held_right, seconds=run.seconds, marks=marks)


def shortfall(marks: Marks, other: Marks) -> float:
    """P of being right on so few, or fewer, of the facts on which only one of two methods is right (sign test)."""
    from scipy.stats import binomtest

    mine, theirs = int((marks.right & ~other.right).sum()), int((other.right & ~marks.right).sum())
    return float(binomtest(mine, mine + theirs, alternative="less").pvalue) if mine + theirs else 1.0


def paired(rows: list[Row]) -> list[Row]:
    """The rows of one task, each compared with the best other method."""
    out = []
    for row in rows:
        others = [other for other in rows if other is not row and other.marks is not None]
        if row.marks is None or not others:
            out.append(row)
            continue
        best = max(others, key=lambda other: other.accuracy)
        values = {f.name: getattr(row, f.name) for f in fields(Row)}
        out.append(Row(**(values | {"below_best": shortfall(row.marks, best.marks or row.marks)})))
    return out


def scoreboard(
    names: list[str] | None = None, chosen: list[str] | None = None, seed: int = 0, copies: tuple[int, ...] = ()
) -> Iterator[Row]:
    """The rows of some data sets (all that are there), for some methods (all that are installed), task after task.

    Raises:
        MissingDataError: a data set is not there.
    """
    there = methods()
    used = [there[name] for name in chosen or there]
    for name in names or data_sets.names():
        memory: Memory = {}
        for task in data_sets.load(name):
            copied = [data_sets.with_copies(task, count) for count in copies if name in COPIES]
            for one in (task, *copied):
                yield from paired([_told(method, one, seed, memory) for method in used if method.fits(one)])


def _told(method: Method, task: Task, seed: int, memory: Memory) -> Row:
    print(f"{task.data}, {task.protocol}: {method.name} ...", end=" ", file=sys.stderr, flush=True)
    row = row_of(method, task, seed, memory)
    figures = f"accuracy {row.accuracy:.3f}, log loss {row.log_loss:.3f}, {row.seconds:.1f} s"
    told = figures if row.marks is not None else "no figures"
    print(f"{told} ({row.note})" if row.note else told, file=sys.stderr, flush=True)
    return row


def frame_of(rows: list[Row]) -> pd.DataFrame:
    """The rows as a table, without the marks."""
    return pd.DataFrame([{name: value for name, value in asdict(row).items() if name != "marks"} for row in rows])


def falls(frame: pd.DataFrame) -> pd.DataFrame:
    """How far accuracy falls at most, by data set, protocol and method, when copies of the worst source are added."""
    base, count = frame["data"].str.partition(" + ")[0], frame["data"].str.extract(r" \+ (\d+) copies")[0]
    keys = [base.rename("data"), frame["protocol"], frame["method"]]
    before = frame["accuracy"].where(count.isna()).groupby(keys).first()
    after = frame["accuracy"].where(count.notna()).groupby(keys).min()
    out = pd.DataFrame({"accuracy": before, "with copies": after, "fall": before - after})
    return out[after.notna()].reset_index()


def sums(frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracies and log losses of the methods summed over the crowd sets, for methods that ran on all of them."""
    crowd = frame[frame["data"].str.startswith("crowd_") & ~frame["data"].str.contains(" + ", regex=False)]
    out = crowd.groupby(["protocol", "method"], sort=False).agg(
        sets=("accuracy", "count"),
        accuracy=("accuracy", "sum"),
        log_loss=("log_loss", lambda x: x.sum(min_count=len(x))),
    )
    return out.reset_index()


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not np.isfinite(value):
        return ""
    if name in ("n", "sets"):
        return f"{value:,.0f}"
    return f"{value:.1f}" if name == "seconds" else f"{value:.3f}"


def markdown(frame: pd.DataFrame) -> str:
    """The table in markdown."""
    lines = [[HEADINGS.get(name, name) for name in frame], ["---"] * len(frame.columns)]
    lines += [[_text(name, value).replace("|", "/") for name, value in row.items()] for row in frame.to_dict("records")]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def more_tables(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Summaries that have something to say."""
    parts = [("Sums over the crowd sets", sums(frame)), ("Copies of the worst source", falls(frame))]
    return [(title, part) for title, part in parts if len(part)]


def write(frame: pd.DataFrame, path: Path) -> None:
    """Write path.csv and path.md."""
    frame.to_csv(path.with_suffix(".csv"), index=False)
    text = [f"{table.load()}, nousppl {nous.__version__}\n", markdown(frame)]
    text += [f"{title}\n\n{markdown(part)}" for title, part in more_tables(frame)]
    path.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")


def show(title: str, frame: pd.DataFrame) -> None:
    """Print a table."""
    out = Table(title=title)
    for name in frame:
        out.add_column(HEADINGS.get(name, name), justify="left" if frame[name].dtype.kind in "OU" else "right")
    for row in frame.to_dict("records"):
        out.add_row(*(_text(name, value) for name, value in row.items()))
    Console(highlight=False, width=None if Console().is_terminal else 200).print(out)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 where every row was computed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="name", help="data sets; default all in the folder")
    parser.add_argument("--data", help=f"folder of public data sets, one folder a set; default ${VARIABLE}")
    parser.add_argument("--methods", nargs="+", choices=list(methods()), help="default all that are installed")
    parser.add_argument("--copies", nargs="+", type=int, default=[], help=f"copies added to {', '.join(COPIES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="FILE.csv and FILE.md are written, after every task")
    given = parser.parse_args(arguments)
    if given.data:
        os.environ[VARIABLE] = given.data
    rows: list[Row] = []
    try:
        for row in scoreboard(given.names, given.methods, given.seed, tuple(given.copies)):
            rows.append(row)
            if given.out:
                write(frame_of(rows), given.out)
    except MissingDataError as error:
        parser.error(str(error))
    frame = frame_of(rows)
    show(f"Scoreboard ({table.load()})", frame)
    for title, part in more_tables(frame):
        show(title, part)
    return int(frame["accuracy"].isna().any())


if __name__ == "__main__":
    sys.exit(main())
