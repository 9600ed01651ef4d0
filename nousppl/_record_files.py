"""Everything on record of an evidence in files, what is revoked, rejected, replaced and merged included."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nousppl import value_text
from nousppl._files import read_table
from nousppl._writing import replacing
from nousppl.errors import EvidenceError

if TYPE_CHECKING:
    from nousppl.evidence import Evidence

ENDING, KIND = ".parquet", "value_kind"


def write_record(evidence: Evidence, folder: Path) -> None:
    """See `nousppl.Evidence.write`."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"claims": _all_claims(evidence), "settled": evidence._settled.stated(evidence._record.facts)}
    for name, table in (tables | {"sources": evidence.sources}).items():
        if "value" in table:
            kinds = pd.Series([value_text.kind_of(value) for value in table["value"]], dtype="str")
            texts = pd.Series([value_text.write(value) for value in table["value"]], dtype="str")
            table = table.reset_index(drop=True).assign(value=texts, **{KIND: kinds})
        with replacing(folder / f"{name}{ENDING}") as part:
            table.to_parquet(part, index=False)


def read_record(folder: Path) -> dict[str, pd.DataFrame | None]:
    """The tables that `write_record` wrote; None for settled facts and sources where there are none."""
    found: dict[str, pd.DataFrame | None] = {}
    for name in ("claims", "settled", "sources"):
        table = read_table(folder / f"{name}{ENDING}", name)
        if "value" in table:
            table = table.assign(value=_values(table, name)).drop(columns=KIND)
        found[name] = table if len(table) or name == "claims" else None
    return found


def _values(table: pd.DataFrame, name: str) -> pd.Series[Any]:
    if KIND not in table:
        raise EvidenceError(f"{name}: no column {KIND!r}. Allowed: files that Evidence.write wrote.")
    values = [value_text.read(text, kind) for text, kind in zip(table["value"], table[KIND], strict=True)]
    return pd.Series(values, dtype=object)


def _all_claims(evidence: Evidence) -> pd.DataFrame:
    """Claims in use and those revoked; an origin that is not on record any more is the one that stands for it."""
    record = evidence._record
    used = evidence.claims.assign(revoked=False)
    if "weight" in used:
        used["weight"] = record.rows.weight
    whole = pd.concat([used, evidence.revoked.assign(revoked=True)], ignore_index=True)
    if "origin" in whole:
        origin = record.claims.origin[record.rows.claim]
        stands = np.full(len(whole), None, dtype=object)
        stands[: len(used)][origin >= 0] = record.claims.id.to_numpy(dtype=object)[origin[origin >= 0]]
        there = whole["origin"].isin(whole["claim"])
        whole["origin"] = whole["origin"].where(there, pd.Series(stands, dtype=whole["origin"].dtype))
    return whole
