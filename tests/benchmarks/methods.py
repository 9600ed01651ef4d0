"""The methods of the scoreboard: baselines, other packages' where they are installed, and our model for each set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
from benchmarks import covid, crowd
from benchmarks.data_sets import KEYS, Task

import nousppl as nous

Forecaster = Callable[[nous.Evidence, int], nous.Beliefs]


@dataclass(frozen=True)
class Method:
    """A way to forecast a task."""

    name: str
    make: Callable[[Task], Forecaster]
    """The forecaster for a task: a function of (evidence, seed)."""
    learns: bool = False
    """Whether settled facts change what it does."""
    needs_facts: bool = False
    """Whether it makes sense only where something is settled."""
    labels: bool = False
    """Whether it is for labels from closed lists."""
    other: bool = False
    """Whether it is from another package."""

    def fits(self, task: Task) -> bool:
        """Whether the method is meant for such a task."""
        return (task.settled or not self.needs_facts) and (task.labels or not self.labels)


@dataclass(frozen=True)
class Spec:
    """Our model for a data set and how it is fitted."""

    model: Callable[[Task], nous.TrustModel]
    options: nous.SVI
    learn_from: str | None = None

    def forecast(self, task: Task, evidence: nous.Evidence, seed: int) -> nous.Beliefs:
        """Fit on all questions, or on those of the task where only settled ones are learned from, and answer these."""
        asked = pd.MultiIndex.from_frame(evidence.questions).isin(pd.MultiIndex.from_frame(task.facts[KEYS]))
        chosen = evidence.subset(np.flatnonzero(asked))
        learned = evidence if self.learn_from == "all" else chosen
        return self.model(task).fit(learned, self.options, seed, self.learn_from).posteriors(chosen)


def _flight(task: Task) -> nous.TrustModel:
    """Sites that republish each other; easy and hard questions, since a change of plan leaves all sites wrong.

    From claims alone it cannot be told that sites are wrong together, and affinities would explain it away: there the
    priors of correlated errors and traps temper what a hierarchy without origins believes.
    """
    answers = dict.fromkeys(task.evidence.questions["attribute"].unique(), 50)
    formula = "1 + (1|attribute) + (1|source)"
    if not task.settled:
        errors = nous.Errors(difficulty="mixture", trap=True, correlation=True)
        return nous.TrustModel(formula, origin=None, errors=errors, answers=answers)
    origin = nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=2)
    errors = nous.Errors(difficulty="mixture")
    return nous.TrustModel(f"{formula} + (1|attribute:source)", "1 + (1|source)", origin, errors, answers=answers)


def _book(task: Task) -> nous.TrustModel:
    """Sellers that copy each other's lists of authors; most lists are easy, some are not."""
    origin = nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=4)
    errors = nous.Errors(difficulty="mixture")
    return nous.TrustModel("1 + (1|source)", "1", origin, errors, answers={"authors": 30})


def _population(task: Task) -> nous.TrustModel:
    """Most editors have one claim, so that how much an editor writes tells more than its name."""
    errors = nous.Errors(popularity=False, difficulty=False)
    answers = dict.fromkeys(task.evidence.questions["attribute"].unique(), 12)
    return nous.TrustModel("1 + volume + (1|source)", origin=None, errors=errors, answers=answers)


def _speaker(task: Task) -> nous.TrustModel:
    errors = nous.Errors(popularity=False, difficulty=False)
    formula = "1 + (1|source) + (1|party) + (1|job) + (1|context) + (1|party:context)"
    return nous.TrustModel(formula, origin=None, errors=errors, answers=task.answers)


FAST = nous.SVI(full_size=60, steps=1500)
OURS: dict[str, Spec] = {
    "flight": Spec(_flight, nous.SVI(full_size=100, steps=1500)),
    "book": Spec(_book, nous.SVI(full_size=60)),
    "population": Spec(_population, FAST, "settled"),
    "liar": Spec(_speaker, FAST, "settled"),
    "covid_rumor": Spec(lambda task: covid.model(echoes=True), covid.OPTIONS, "settled"),
    "crowd": Spec(lambda task: crowd.model(task.answers), crowd.OPTIONS, "all"),
}
"""Our specification for each data set; "crowd" stands for all crowd sets that are not named."""


def _ours(task: Task) -> Forecaster:
    name = task.data.partition(" + ")[0]
    return partial((OURS[name] if name in OURS else OURS["crowd"]).forecast, task)


def _baseline(rule: Callable[..., nous.Beliefs]) -> Callable[[Task], Forecaster]:
    return lambda task: partial(rule, answers=task.answers)


def _peer(name: str, **options: bool) -> Callable[[Task], Forecaster]:
    return lambda task: partial(getattr(nous.peers, name), answers=task.answers, **options)


PEERS = ("one_coin", "glad", "mace", "mmsr", "wawa", "zero_based_skill")


def methods() -> dict[str, Method]:
    """All methods that can run here, by the short name that the command line takes."""
    found = {
        "majority": Method("majority vote", _baseline(nous.baselines.majority)),
        "best_source": Method("best source", _baseline(nous.baselines.best_source), learns=True, needs_facts=True),
        "ours": Method("nousppl", _ours, learns=True),
    }
    if find_spec("crowdkit") is None:
        return found
    for name in ("dawid_skene", *PEERS):
        title = f"crowd-kit {getattr(nous.peers, name).name}"
        blind = {"true_labels": False} if name == "dawid_skene" else {}
        found[name] = Method(title, _peer(name, **blind), labels=True, other=True)
    title = "crowd-kit DawidSkene, true labels"
    found["dawid_skene_true"] = Method(title, _peer("dawid_skene"), True, True, labels=True, other=True)
    return found
