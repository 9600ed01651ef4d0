"""The figures to reach, one test a benchmark: ``pytest -m benchmark tests/benchmarks -s``."""

from __future__ import annotations

import pytest
from benchmarks.run import NAMES, rows_of
from benchmarks.table import MissingDataError, show

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_reached(name: str) -> None:
    try:
        rows = rows_of(name)
    except MissingDataError as error:
        pytest.skip(str(error))
    show(rows, {})
    missed = [f"{row.what}: {row.figure:.4g}, must be {row.must}" for row in rows if row.reached is False]
    assert not missed
