"""The frozen histories as tables, as `nousppl.Evidence` takes them; what they are stands in histories/README.md."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "histories"
DEFAULTS = {"lasting": 1.0, "hedging": 0.0}
LABELS = ("history", "trap", "field")
"""Columns of the claims that are for reports only: no model may see them."""
DISAGREE, OTHER = "sources disagree", "other"


def read() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Claims, with empty cells of `lasting` and `hedging` filled by what they mean, and truths."""
    claims = pd.read_csv(FOLDER / "claims.csv").fillna(DEFAULTS)
    return claims, pd.read_csv(FOLDER / "truths.csv")
