"""The public data sets as tasks: claims, and which settled facts are learned from and which are tested.

One function a set. A task is the same for every method: no method sees a fact that it is tested on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from benchmarks import covid
from benchmarks.table import VARIABLE, MissingDataError, read

import nousppl as nous

KEYS = ["entity", "attribute"]
FOLDS = 5
AIRLINES = ("aa", "CO", "ua")
"""Their sites define the truth of ``flight``."""
PULL = 5.0
"""Claims that weigh as much as the accuracy of all, where the worst source is looked for."""


@dataclass(frozen=True, eq=False)
class Split:
    """Settled facts to learn from, and others to be tested on."""

    learned: pd.DataFrame
    tested: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Task:
    """One protocol on one data set."""

    data: str
    """Name of the data set."""
    protocol: str
    """What is learned from and what is tested, in words."""
    evidence: nous.Evidence
    """All claims, nothing settled."""
    splits: tuple[Split, ...]
    answers: Mapping[Any, Any] | None = None
    """Closed lists of answers, where there are any."""
    labels: bool = False
    """Whether each question has several labels from a closed list, as crowd-labelling methods need them."""

    @property
    def settled(self) -> bool:
        """Whether anything is settled."""
        return any(len(split.learned) for split in self.splits)

    @property
    def facts(self) -> pd.DataFrame:
        """All facts that are learned from or tested."""
        parts = [part for split in self.splits for part in (split.learned, split.tested)]
        return pd.concat(parts).drop_duplicates(KEYS, ignore_index=True)

    def unsettled(self) -> Task:
        """The same tests with nothing settled, as one split."""
        tested = pd.concat([split.tested for split in self.splits], ignore_index=True)
        return replace(self, protocol="nothing settled", splits=(Split(tested.head(0), tested),))


def shuffled(settled: pd.DataFrame) -> pd.DataFrame:
    """The facts in the order of a hash of entity and attribute: a fixed rule that no row order enters."""
    keys = (settled["entity"] + "\x1f" + settled["attribute"]).to_numpy(object)
    return settled.iloc[np.argsort(pd.util.hash_array(keys, categorize=False), kind="stable")].reset_index(drop=True)


def folds(settled: pd.DataFrame, count: int = FOLDS) -> tuple[Split, ...]:
    """Every fact tested once, the others learned from; folds by hash of the question."""
    facts = shuffled(settled)
    fold = np.arange(len(facts)) % count
    return tuple(Split(facts[fold != k], facts[fold == k]) for k in range(count))


def first(settled: pd.DataFrame, count: int) -> tuple[Split, ...]:
    """The first facts in the order of the hash learned from, the rest tested."""
    facts = shuffled(settled)
    return (Split(facts.iloc[:count], facts.iloc[count:]),)


def usable(claims: pd.DataFrame, settled: pd.DataFrame) -> pd.DataFrame:
    """Facts with a value about questions that have a claim, one each."""
    settled = settled.dropna(subset="value").drop_duplicates(KEYS)
    return settled.merge(claims[KEYS].drop_duplicates(), on=KEYS)


def flight() -> list[Task]:
    """Flight data (Li et al. 2013) without the airlines' own sites; claims on questions with a known truth."""
    claims, settled = read("flight")
    claims = claims[~claims["source"].isin(AIRLINES)]
    settled = usable(claims, settled)
    claims = claims.merge(settled[KEYS], on=KEYS)
    days = np.sort(settled["time"].unique())
    early = settled["time"] <= days[13]
    facts = settled[[*KEYS, "value"]]
    split = Split(facts[early], facts[~early & (settled["time"] <= days[20])])
    task = Task("flight", "first 14 days settled, next 7 tested", nous.Evidence(claims), (split,))
    return [task, task.unsettled()]


def book() -> list[Task]:
    """Authors of books as sellers list them (Dong et al. 2009)."""
    claims, settled = read("book")
    return [Task("book", "300 settled, rest tested", nous.Evidence(claims), first(usable(claims, settled), 300))]


def population() -> list[Task]:
    """City populations in Wikipedia's edits (Pasternack & Roth 2010)."""
    claims, settled = read("population")
    claims = claims.assign(volume=np.log(claims["source"].map(claims["source"].value_counts())))
    return [Task("population", f"{FOLDS} folds", nous.Evidence(claims), folds(usable(claims, settled)))]


def liar() -> list[Task]:
    """Statements of politicians, at least half true or not (Wang 2017), predicted in order, in blocks."""
    claims, settled = read("liar")
    claims = claims.assign(**{name: claims[name].fillna("none") for name in ("job", "party", "context")})
    order = claims.assign(time=claims["time"].astype(int))[[*KEYS, "time"]]
    facts = usable(claims, settled).merge(order, on=KEYS).sort_values("time", ignore_index=True)[[*KEYS, "value"]]
    starts = range(START, len(facts), BLOCK)
    splits = tuple(Split(facts.iloc[:start], facts.iloc[start : start + BLOCK]) for start in starts)
    protocol = f"in order after {START:,}, blocks of {BLOCK:,}"
    return [Task("liar", protocol, nous.Evidence(claims), splits, {"true": ["F", "T"]})]


START, BLOCK = 2000, 1000
"""Statements of ``liar`` that are only learned from, and how many are predicted at once from all before them."""


def covid_rumor() -> list[Task]:
    """COVID-19 rumours (Cheng et al. 2021) without the fact-checkers."""
    evidence, settled = covid.data()
    return [Task("covid_rumor", f"{FOLDS} folds", evidence, folds(settled), {"true": ["F", "T"]}, labels=True)]


def crowd(name: str) -> list[Task]:
    """Crowd labels from a closed list: a tenth settled, and nothing; the same questions are tested in both."""
    claims, settled = read(name)
    settled = usable(claims, settled)
    labels = {
        a: sorted({*part["value"], *settled.loc[settled["attribute"] == a, "value"]})
        for a, part in claims.groupby("attribute")
    }
    tenth = Task(name, "10 % settled", nous.Evidence(claims), first(settled, len(settled) // 10), labels, labels=True)
    none = replace(tenth, splits=(Split(settled.head(0), settled),), protocol="nothing settled")
    return [none, tenth]


LOADERS: dict[str, Callable[[], list[Task]]] = {
    "flight": flight,
    "book": book,
    "population": population,
    "liar": liar,
    "covid_rumor": covid_rumor,
}


def names() -> list[str]:
    """Data sets in the folder of public data sets that have a protocol here, in order.

    Raises:
        MissingDataError: the folder is not named or holds none.
    """
    root = Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or not root.is_dir():
        raise MissingDataError(f"the folder of public data sets is named by --data or ${VARIABLE}; there is no {root}")
    there = [path.name for path in sorted(root.iterdir()) if (path / "claims.csv.gz").is_file()]
    found = [name for name in LOADERS if name in there] + [name for name in there if name.startswith("crowd_")]
    if not found:
        raise MissingDataError(f"{root} holds none of {', '.join(LOADERS)} and no crowd_ set")
    return found


def load(name: str) -> list[Task]:
    """The tasks of one data set.

    Raises:
        MissingDataError: it is not there.
    """
    return LOADERS[name]() if name in LOADERS else crowd(name)


def worst_source(task: Task) -> Any:
    """The source that is right least often, of those with claims on a tenth of the facts, or on the most where none is.

    Its accuracy on all facts is shrunk towards that of all claims.
    """
    claims = task.evidence.claims.merge(task.facts, on=KEYS, suffixes=("", "_true"))
    right = (claims["value"] == claims["value_true"]).groupby(claims["source"]).agg(["sum", "count"])
    level = right["sum"].sum() / right["count"].sum()
    wide = right["count"] >= min(len(task.facts) / 10, right["count"].max())
    return ((right["sum"] + PULL * level) / (right["count"] + PULL))[wide].idxmin()


def with_copies(task: Task, count: int) -> Task:
    """The task with identical copies of its worst source added under new names."""
    claims = task.evidence.claims.drop(columns="claim")
    source = worst_source(task)
    own = claims[claims["source"] == source]
    added = [own.assign(source=f"{source}, copy {k + 1}") for k in range(count)]
    evidence = nous.Evidence(pd.concat([claims, *added], ignore_index=True))
    return replace(task, data=f"{task.data} + {count} copies", evidence=evidence)
