"""Rows of the table of figures, the folder of public data sets, and how the table is printed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

VARIABLE = "NOUSPPL_DATA"
"""Environment variable that names the folder of public data sets: a folder each, with claims.csv.gz, settled.csv.gz."""


class MissingDataError(Exception):
    """A data set that a row needs is not there."""


@dataclass(frozen=True)
class Row:
    """One figure."""

    what: str
    protocol: str
    n: int | None
    figure: float
    must: str
    """What is to be reached, in words; "" for a figure that is shown for comparison."""
    reached: bool | None
    """None where nothing is to be reached."""

    @property
    def verdict(self) -> str:
        """The word for it: yes, no or shown."""
        return "shown" if self.reached is None else "yes" if self.reached else "no"


def at_most(what: str, protocol: str, n: int | None, figure: float, limit: float, unit: str = "") -> Row:
    """A figure that must not be larger than its limit."""
    return Row(what, protocol, n, figure, f"≤ {limit:g}{unit}", bool(figure <= limit))


def at_least(what: str, protocol: str, n: int | None, figure: float, limit: float, unit: str = "") -> Row:
    """A figure that must not be smaller than its limit."""
    return Row(what, protocol, n, figure, f"≥ {limit:g}{unit}", bool(figure >= limit))


def shown(what: str, protocol: str, n: int | None, figure: float) -> Row:
    """A figure without a limit, for comparison."""
    return Row(what, protocol, n, figure, "", None)


def folder(name: str) -> Path:
    """Folder of a public data set.

    Raises:
        MissingDataError: the environment variable is not set, or the folder is not there.
    """
    if not (root := os.environ.get(VARIABLE)):
        raise MissingDataError(
            f"the public data set {name} is read from a folder that --data or ${VARIABLE} names; neither is given"
        )
    path = Path(root) / name
    if not (path / "claims.csv.gz").is_file():
        raise MissingDataError(f"{path} has no claims.csv.gz")
    return path


def read(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims and settled facts of a public data set, all columns as text."""
    path = folder(name)
    claims, settled = (pd.read_csv(path / f"{table}.csv.gz", dtype=str) for table in ("claims", "settled"))
    return claims, settled


@dataclass
class Watch:
    """Seconds on the wall and of this process's processors."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def watch() -> Iterator[Watch]:
    """Take the time of a block."""
    out = Watch()
    wall, cpu = time.perf_counter(), time.process_time()
    yield out
    out.wall, out.cpu = time.perf_counter() - wall, time.process_time() - cpu


def load() -> str:
    """Load of the machine, in words: times mean little where others work on it."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def show(rows: list[Row], skipped: dict[str, str]) -> None:
    """Print the table."""
    table = Table(title=f"Figures ({load()})", show_lines=False)
    for column in ("what", "protocol"):
        table.add_column(column, overflow="fold")
    for column in ("n", "figure", "must"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("reached", no_wrap=True)
    for row in rows:
        count = "" if row.n is None else f"{row.n:,}"
        table.add_row(row.what, row.protocol, count, _number(row.figure), row.must, row.verdict)
    console = Console(highlight=False, width=None if Console().is_terminal else 150)
    console.print(table)
    for name, reason in skipped.items():
        console.print(f"{name}: skipped, {reason}")


def _number(value: Any) -> str:
    if not np.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
