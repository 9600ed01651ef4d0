"""Computes the figures to reach and prints one table: ``python tests/benchmarks/run.py [names] [--data FOLDER]``.

Names: robust, worlds, order, covid, crowd, product, one_question, flights, echoes, batches, scale, change, lists,
states, numeric, traps, pollsters, agreement, fits; all where none is given.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.table import VARIABLE, MissingDataError, Row, show, watch

NAMES = (
    "robust",
    "worlds",
    "order",
    "covid",
    "crowd",
    "product",
    "one_question",
    "flights",
    "echoes",
    "batches",
    "scale",
    "change",
    "lists",
    "states",
    "numeric",
    "traps",
    "pollsters",
    "agreement",
    "fits",
)


def rows_of(name: str) -> list[Row]:
    """The rows of one benchmark; those of speed are functions of one module.

    Raises:
        MissingDataError: its data set is not there.
    """
    if name in ("product", "one_question", "flights"):
        return list(getattr(importlib.import_module("benchmarks.speed"), name)())
    return list(importlib.import_module(f"benchmarks.{name}").rows())


def compute(names: list[str]) -> tuple[list[Row], dict[str, str]]:
    """Rows of some benchmarks, and why others were skipped."""
    rows: list[Row] = []
    skipped: dict[str, str] = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with watch() as taken:
            try:
                rows += rows_of(name)
            except MissingDataError as error:
                skipped[name] = str(error)
        print(f"{name}: {taken.wall:.0f} s, {taken.cpu:.0f} s of processor time", file=sys.stderr, flush=True)
    return rows, skipped


def main() -> int:
    """Exit code 0 where all that was computed is reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; default all")
    parser.add_argument("--data", help=f"folder of public data sets, one folder a set; default ${VARIABLE}")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    if given.data:
        os.environ[VARIABLE] = given.data
    rows, skipped = compute(given.names or list(NAMES))
    show(rows, skipped)
    return 1 if any(row.reached is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
