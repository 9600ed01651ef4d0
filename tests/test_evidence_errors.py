"""Every kind of bad table is one clear error: table, column, how many rows, the first of them, what is allowed."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nousppl.errors import EvidenceError, FileError, NousWarning
from nousppl.evidence import Evidence

ZONE = dt.timezone(dt.timedelta(hours=2))


def claims(**columns: list[Any]) -> pd.DataFrame:
    """Two claims of two sources on one question, with other or more columns; None takes a column out."""
    frame = {
        "entity": ["maya"] * 2,
        "attribute": ["diet"] * 2,
        "value": ["vegan", "omnivore"],
        "source": ["ann", "bob"],
    }
    rows = max((len(column) for column in columns.values() if column is not None), default=2)
    frame = {name: (column * rows)[:rows] for name, column in frame.items()} | columns
    return pd.DataFrame({name: column for name, column in frame.items() if column is not None})


def settled(**columns: list[Any]) -> pd.DataFrame:
    """Settled facts on the same question."""
    rows = max((len(column) for column in columns.values() if column is not None), default=1)
    frame = {"entity": ["maya"] * rows, "attribute": ["diet"] * rows, "value": ["vegan"] * rows} | columns
    return pd.DataFrame({name: column for name, column in frame.items() if column is not None})


Case = tuple[Any, Any, Any, str]
FRAMES: dict[str, Case] = {
    "not a table": ([1, 2], None, None, r"claims: expected a pandas DataFrame, got list"),
    "column missing": (claims(source=None), None, None, r"claims: no column 'source' \(found: .*Required: entity, "),
    "column misspelt": (
        claims(source=None, sorce=["ann", "bob"]),
        None,
        None,
        r"claims: no column 'source' \(found 'sorce': is that it\?\)",
    ),
    "column in capitals": (
        claims(entity=None, Entity=["maya"] * 2),
        None,
        None,
        r"no column 'entity' \(found 'Entity'",
    ),
    "settled column missing": (claims(), settled(value=None), None, r"settled: no column 'value'"),
    "sources column missing": (claims(), None, pd.DataFrame({"name": ["ann"]}), r"sources: no column 'source'"),
    "column twice": (
        pd.concat([claims(), claims()[["value"]]], axis=1),
        None,
        None,
        r"claims: column 'value' occurs 2 times",
    ),
    "column without a name": (claims().rename(columns={"value": 3}), None, None, r"claims: column 3 has no text name"),
    "empty": (claims().head(0), None, None, r"claims: the table is empty \(0 rows\)"),
    "value missing": (
        claims(value=["vegan", None]),
        None,
        None,
        r"claims: column 'value': a missing value in 1 of 2 rows; first: row 1 \(entity=.*='bob'\)\. Allowed: a",
    ),
    "value NaN": (claims(value=[np.nan, 1.5]), None, None, r"column 'value': a missing value in 1 of 2"),
    "value blank": (claims(value=["vegan", " \t"]), None, None, r"column 'value': a blank value in 1 of 2"),
    "value endless": (
        claims(value=[1.0, np.inf]),
        None,
        None,
        r"column 'value': a number that is not finite in 1 of 2",
    ),
    "value a great whole number": (
        claims(value=[1, 10**400]),
        None,
        None,
        r"column 'value': a number that is not finite",
    ),
    "value a list": (claims(value=["vegan", ["a"]]), None, None, r"column 'value': a value of no known kind in 1 of 2"),
    "value a date": (claims(value=pd.to_datetime(["2026-01-01"] * 2)), None, None, r"a value of the kind datetime64"),
    "source missing": (claims(source=["ann", None]), None, None, r"column 'source': a missing or blank name in 1 of 2"),
    "entity blank": (claims(entity=["", "maya"]), None, None, r"column 'entity': a missing or blank name in 1 of 2"),
    "attribute NaN": (
        claims(attribute=[1, np.nan]),
        None,
        None,
        r"column 'attribute': a missing or blank name in 1 of 2",
    ),
    "entity mixed": (claims(entity=["maya", 3]), None, None, r"column 'entity': whole numbers and text are mixed"),
    "entity fraction": (claims(entity=[1.5, 2.0]), None, None, r"column 'entity': neither a whole number nor a text"),
    "entity truth value": (claims(entity=[True, False]), None, None, r"column 'entity': neither a whole number nor"),
    "kinds mixed": (
        claims(value=["vegan", "omnivore", 3]),
        None,
        None,
        r"attribute 'diet' mixes numbers \(1 rows\) and text \(2 rows\); the rarer kind in 1 of 3 rows; first: row 2",
    ),
    "one and true": (claims(value=[1, True]), None, None, r"attribute 'diet' mixes numbers \(1 rows\) and booleans"),
    "claim id twice": (
        claims(claim=["a", "a"]),
        None,
        None,
        r"column 'claim': an id that an earlier row has in 1 of 2 rows; first: row 1 ",
    ),
    "claim id missing": (claims(claim=["a", None]), None, None, r"column 'claim': a missing or blank name"),
    "claim id twice, not soft": (
        claims(claim=["a", "a"], weight=[0.5, None], source=["ann", "ann"]),
        None,
        None,
        r"column 'claim': an id that an earlier row has, and no weight in 1 of 2",
    ),
    "soft claim with a value twice": (
        claims(claim=["a", "a"], weight=[0.5, 0.5], source=["ann", "ann"], value=["vegan", "vegan"]),
        None,
        None,
        r"column 'claim': an id with a value that an earlier row of it has",
    ),
    "soft claim of two sources": (
        claims(claim=["a", "a"], weight=[0.5, 0.5]),
        None,
        None,
        r"column 'source': another cell than in the first row of the claim in 1 of 2",
    ),
    "weights above 1": (
        claims(claim=["a", "a"], weight=[0.7, 0.5], source=["ann", "ann"]),
        None,
        None,
        r"column 'weight': weights of one claim that sum above 1 in 2 of 2 rows; first: row 0 ",
    ),
    "weight negative": (claims(weight=[-0.1, 1]), None, None, r"column 'weight': a negative weight in 1 of 2"),
    "weight text": (claims(weight=["much", "1"]), None, None, r"column 'weight': not a finite number in 1 of 2"),
    "weight a date": (
        claims(weight=pd.to_datetime(["2026-01-01"] * 2)),
        None,
        None,
        r"'weight': a cell of the kind datet",
    ),
    "times of two kinds": (
        claims(time=["2026-01-01", 3]),
        None,
        None,
        r"'time': numbers and dates are mixed, the rarer kind in 1 of 2 rows; first: row 1 .*Allowed: numbers, or",
    ),
    "times of two kinds as text": (claims(time=["2026-01-01", "3"]), None, None, r"numbers and dates are mixed"),
    "times with and without a zone": (
        claims(time=["2026-01-01T10:00Z", "2026-01-01T10:00"]),
        None,
        None,
        r"column 'time': time zones are mixed \(first 'UTC'\), another one in 1 of 2",
    ),
    "times of two zones": (
        claims(time=["2026-01-01T10:00+01:00", "2026-01-01T10:00+02:00"]),
        None,
        None,
        r"column 'time': time zones are mixed \(first '\+0100'\)",
    ),
    "timestamps of two zones": (
        claims(time=[dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=ZONE)]),
        None,
        None,
        r"column 'time': time zones are mixed \(first 'UTC'\)",
    ),
    "time and known_at of two kinds": (
        claims(time=["2026-01-01", "2026-01-02"], known_at=[1, 2]),
        None,
        None,
        r"column 'known_at': numbers, where column 'time' has dates without a time zone, in 2 of 2",
    ),
    "settled times of another kind": (
        claims(time=["2026-01-01", "2026-01-02"]),
        settled(time=["2026-01-01T00:00Z"]),
        None,
        r"settled: column 'time': dates with a time zone, where claims has dates without a time zone, in 1 of 1",
    ),
    "time no date": (
        claims(time=["2026-01-01", "soon"]),
        None,
        None,
        r"column 'time': neither a number nor an ISO date",
    ),
    "time endless": (claims(time=[1.0, np.inf]), None, None, r"column 'time': not a finite number in 1 of 2"),
    "origin without ids": (
        claims(origin=[None, "a"]),
        None,
        None,
        r"'origin': an origin, but the table has no column 'claim'",
    ),
    "origin nowhere": (
        claims(claim=["a", "b"], origin=[None, "z"]),
        None,
        None,
        r"column 'origin': an id that no claim has in 1 of 2 rows; first: row 1 .*origin='z'",
    ),
    "origin of another kind": (
        claims(claim=["a", "b"], origin=[None, 3]),
        None,
        None,
        r"'origin': an id that no claim has",
    ),
    "origin itself": (
        claims(claim=["a", "b"], origin=[None, "b"]),
        None,
        None,
        r"column 'origin': the claim itself in 1",
    ),
    "origin later": (
        claims(claim=["a", "b"], origin=["b", None], time=[1, 2]),
        None,
        None,
        r"column 'origin': a later claim in 1 of 2 rows; first: row 0 ",
    ),
    "origin elsewhere": (
        claims(claim=["a", "b"], origin=[None, "a"], entity=["maya", "tom"]),
        None,
        None,
        r"column 'origin': a claim on another question in 1 of 2",
    ),
    "origins in a circle": (
        claims(claim=["a", "b", "c", "d"], origin=["c", "a", "b", "a"], value=["vegan"] * 4, source=["ann"] * 4),
        None,
        None,
        r"column 'origin': claims that repeat each other in a circle in 4 of 4",
    ),
    "ceiling zero": (
        claims(ceiling=[0, 1]),
        None,
        None,
        r"column 'ceiling': a ceiling outside \(0, 1\] in 1 of 2 rows; first: row 0",
    ),
    "ceiling above 1": (claims(ceiling=[None, 1.01]), None, None, r"column 'ceiling': a ceiling outside \(0, 1\]"),
    "derived no truth value": (
        claims(derived=["yes", None]),
        None,
        None,
        r"column 'derived': neither true nor false in 1",
    ),
    "verdict no truth value": (
        claims(),
        settled(verdict=["wrong"]),
        None,
        r"settled: column 'verdict': neither true nor f",
    ),
    "settled value missing": (
        claims(),
        settled(value=[None]),
        None,
        r"settled: column 'value': a missing value in 1 of 1",
    ),
    "settled of another kind": (
        claims(),
        settled(value=[3]),
        None,
        r"settled: column 'value': numbers, where claims have text for the attribute, in 1 of 1",
    ),
    "settled entity of another kind": (
        claims(),
        settled(entity=[3]),
        None,
        r"settled: column 'entity' holds whole numbers",
    ),
    "two truths": (
        claims(),
        settled(value=["vegan", "omnivore"]),
        None,
        r"settled: column 'value': another truth for a question that is settled at this time in 1 of 2 rows",
    ),
    "two truths at one time": (
        claims(),
        settled(value=["vegan", "omnivore"], time=["2026-01-01", "2026-01-01T00:00"]),
        None,
        r"another truth for a question that is settled at this time",
    ),
    "two truths, one for all time": (
        claims(),
        settled(value=["vegan", "omnivore"], time=[None, "2026-01-01"]),
        None,
        r"another truth for a question that is settled at this time",
    ),
    "true and rejected": (
        claims(),
        settled(value=["vegan", "vegan"], verdict=["true", "false"]),
        None,
        r"settled: column 'verdict': an answer rejected that is settled as the truth in 1 of 2",
    ),
    "a source twice": (
        claims(),
        None,
        pd.DataFrame({"source": ["ann", "ann"], "kind": [1, 2]}),
        r"column 'source': a source that an earlier row has in 1 of 2 rows; first: row 1 \(source='ann', kind=2\)",
    ),
    "sources of another kind": (
        claims(),
        None,
        pd.DataFrame({"source": [1]}),
        r"sources: column 'source' holds whole n",
    ),
    "sources share a column": (
        claims(kind=["x", "y"]),
        None,
        pd.DataFrame({"source": ["ann"], "kind": ["x"]}),
        r"sources: column 'kind' in 1 rows is a column of claims as well",
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_bad_tables_are_refused(name: str) -> None:
    first, second, third, match = FRAMES[name]
    with pytest.raises(EvidenceError, match=match):
        Evidence(first, second, third)


@pytest.mark.parametrize("name", [name for name, case in FRAMES.items() if "in 1 of" in case[3]])
def test_the_error_is_gone_without_the_bad_row(name: str) -> None:
    """Each case fails for the row that its message shows and for no other reason."""
    first, second, third, _ = FRAMES[name]
    with pytest.raises(EvidenceError, match="first: row") as caught:
        Evidence(first, second, third)
    table, position = str(caught.value).split(":")[0], int(str(caught.value).split("first: row ")[1].split()[0])
    tables = {"claims": first, "settled": second, "sources": third}
    tables[table] = tables[table].drop(index=tables[table].index[position])
    if len(tables["claims"]):
        Evidence(**tables)


HEAD = "entity,attribute,value,source\n"
FILES: dict[str, tuple[bytes, str]] = {
    "a field too many": (
        f"{HEAD}maya,diet,vegan,ann\nmaya,diet,vegan,bob,5\n".encode(),
        r"claims: line 3 of .* has 5 fields instead of 4: 'maya,diet,vegan,bob,5'",
    ),
    "a field too few": (f"{HEAD}maya,diet,vegan\n".encode(), r"claims: line 2 of .* has 3 fields instead of 4"),
    "no bytes": (b"", r"claims: .* is not a readable csv file"),
    "no rows": (HEAD.encode(), r"claims: the table is empty \(0 rows\)"),
    "not UTF-8": (
        f"{HEAD}maya,diet,caf\xe9,ann\n".encode("latin-1"),
        r"claims: .* is not a readable csv file in UTF-8",
    ),
    "blank value": (f"{HEAD}maya,diet,,ann\n".encode(), r"column 'value': a missing value in 1 of 1"),
    "a column twice": (b"entity,attribute,value,source,value\na,b,c,d,e\n", r"claims: column 'value' occurs 2 times"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_bad_files_are_refused(name: str, ending: str, tmp_path: Path) -> None:
    content, match = FILES[name]
    path = tmp_path / f"claims.{ending}"
    path.write_bytes(gzip.compress(content) if ending == "csv.gz" else content)
    with pytest.raises(EvidenceError, match=match):
        Evidence.from_csv(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"claims: there is no file '.*none\.csv'"):
        Evidence.from_csv(tmp_path / "none.csv")
    broken = tmp_path / "claims.parquet"
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(FileError, match="is not a readable parquet file"):
        Evidence.from_csv(broken)
    cut = tmp_path / "claims.csv.gz"
    cut.write_bytes(gzip.compress(HEAD.encode() + b"maya,diet,vegan,ann\n" * 1000)[:-20])
    with pytest.raises(EvidenceError, match="is not a readable csv file"):
        Evidence.from_csv(cut)


def test_a_misspelt_optional_column_is_a_warning() -> None:
    with pytest.warns(NousWarning, match="claims: column 'cieling' is taken as your own; if it was meant as 'ceiling'"):
        Evidence(claims(cieling=[0.5, None]))


def test_same_value_must_give_values() -> None:
    with pytest.raises(EvidenceError, match="same_value: expected a function of one value, or a mapping, got int"):
        Evidence(claims(), same_value=3)
    with pytest.raises(
        EvidenceError, match="column 'value': same_value gave something else than a value in 2 of 2 rows"
    ):
        Evidence(claims(), same_value=lambda value: None)


def test_messages_stay_short() -> None:
    with pytest.raises(EvidenceError, match=r"1000000 characters") as caught:
        Evidence(
            claims(value=["x" * 1_000_000, None]).iloc[::-1].assign(ceiling=[1.0, 2.0]).assign(value="x" * 1_000_000)
        )
    assert len(str(caught.value)) < 500


PARTS: dict[str, tuple[Any, str]] = {
    "subset": (
        lambda evidence: evidence.subset([0, 7]),
        r"subset: 1 rows are none of the 1 questions; first: 7\. Allowed: 0",
    ),
    "without": (lambda evidence: evidence.without(["nobody"]), r"1 of 1 ids are of no claim in use; first: 'nobody'"),
    "revoke": (lambda evidence: evidence.revoke("nobody"), r"1 of 1 ids are of no claim in use; first: 'nobody'"),
    "revoke twice": (lambda evidence: evidence.revoke(["claim 0"]).revoke(["claim 0"]), "of no claim in use"),
    "before": (lambda evidence: evidence.before("2026-01-01"), r"no row has a time"),
    "with_settled": (
        lambda evidence: evidence.with_settled(settled(value=[1])),
        r"settled: column 'value': numbers, where",
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_bad_parts_are_refused(name: str) -> None:
    take, match = PARTS[name]
    with pytest.raises(EvidenceError, match=match):
        take(Evidence(claims()))


@pytest.mark.parametrize("time", [3, "2026-01-01T00:00Z", "soon", None])
def test_times_asked_for_are_of_the_kind_of_the_evidence(time: object) -> None:
    evidence = Evidence(claims(time=["2026-01-01", "2026-01-02"]))
    with pytest.raises(
        EvidenceError, match=r"is of the kind .*, the evidence has dates without a time zone|neither a number"
    ):
        evidence.known_by(time)
