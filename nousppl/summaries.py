"""Tables and words about a fitted trust."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from nousppl.asking import linear_draws
from nousppl.blueprint import Blueprint
from nousppl.checks import IDENTIFIED
from nousppl.encode import Encoded

Draws = Mapping[str, NDArray[np.float64]]
QUANTILES = (0.05, 0.95)
COLUMNS = [
    "reliability",
    "reliability_lower",
    "reliability_upper",
    "freshness",
    "freshness_lower",
    "freshness_upper",
    "claims",
    "settled",
]
SHOWN: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "reliability": expit,
    "freshness": np.asarray,
    "sensitivity": expit,
    "specificity": expit,
}
"""Parts of the table of sources -> what is shown of their predictors."""
FEW = 200_000
"""Different claims above which the table of sources is made from a sample of them."""


def no_sources() -> pd.DataFrame:
    """The table of sources of a trust that has seen none."""
    return pd.DataFrame(columns=COLUMNS, index=pd.Index([], name="source"))


def sources(blueprint: Blueprint, encoded: Encoded, draws: Draws) -> pd.DataFrame:
    """One row a source: means over its claims of reliability and log concentration, with 90 % intervals over draws."""
    flat = {n: v.reshape(-1, *v.shape[2:]) for n, v in draws.items()}
    coded, plan = encoded.coded, blueprint.plan
    claims, weight = _kinds_of_claim(encoded)
    source = coded.claim_source[claims]
    total = np.bincount(source, weights=weight, minlength=len(coded.sources))
    table = pd.DataFrame(index=pd.Index(coded.sources, name="source"))

    def put(name: str, by_claim: NDArray[Any]) -> None:
        by_source = (
            np.stack([np.bincount(source, weights=weight * row, minlength=len(total)) for row in by_claim]) / total
        )
        table[name] = by_source.mean(0)
        table[f"{name}_lower"], table[f"{name}_upper"] = np.quantile(by_source, QUANTILES, axis=0)

    for predictor in plan.predictors:
        if predictor.part in SHOWN:
            put(
                predictor.part,
                SHOWN[predictor.part](linear_draws(predictor, encoded.designs[predictor.part], flat, claims)),
            )
    if "freshness" not in encoded.designs:
        table[["freshness", "freshness_lower", "freshness_upper"]] = np.inf
    question, of_claim = coded.claim_question[: encoded.parts.claims], coded.claim_source[: encoded.parts.claims]
    table["claims"] = np.bincount(of_claim, minlength=len(total))
    settled = encoded.settled_cell[question] >= 0
    table["settled"] = np.bincount(of_claim[settled], minlength=len(total))
    return table


def _kinds_of_claim(encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """One claim of every combination of source and covariates, and how many claims it stands for."""
    columns = [encoded.coded.claim_source.astype(np.int64)]
    for design in (encoded.designs[part] for part in SHOWN if part in encoded.designs):
        columns += [g.index.astype(np.int64) for g in design.groups]
        columns += [pd.factorize(c)[0].astype(np.int64) for c in design.fixed.T]
        columns += [pd.factorize(g.value)[0].astype(np.int64) for g in design.groups]
        columns += [pd.factorize(c)[0].astype(np.int64) for c in design.own]
    codes = columns[0]
    for column in columns[1:]:
        codes = pd.factorize(codes * (int(column.max(initial=0)) + 1) + column)[0].astype(np.int64)
    _, first, count = np.unique(codes[: encoded.parts.claims], return_index=True, return_counts=True)
    if len(first) > FEW:
        keep = np.linspace(0, len(first) - 1, FEW).astype(int)
        keep = np.union1d(keep, np.unique(encoded.coded.claim_source[first], return_index=True)[1])
        first, count = first[keep], count[keep]
    return first, count.astype(float)


def groups(blueprint: Blueprint, flat: Draws) -> pd.DataFrame:
    """Long table of group effects: part, term, level ("sd" for the standard deviation), mean, sd, lower, upper."""
    rows: list[tuple[str, str, list[str], NDArray[np.float64]]] = []
    for part, encoding in blueprint.encodings.items():
        for term, levels in encoding.levels.items():
            name = f"{part}_{term}"
            rows.append((part, term, ["sd"], flat[name + "_sigma"][:, None]))
            if name in flat:
                rows.append((part, term, list(levels), flat[name]))
    frames = []
    for part, term, names, values in rows:
        lower, upper = np.quantile(values, QUANTILES, axis=0)
        frames.append(
            pd.DataFrame(
                {
                    "part": part,
                    "term": term,
                    "level": names,
                    "mean": values.mean(0),
                    "sd": values.std(0),
                    "lower": lower,
                    "upper": upper,
                }
            )
        )
    if not frames:
        return pd.DataFrame(columns=["part", "term", "level", "mean", "sd", "lower", "upper"])
    return pd.concat(frames, ignore_index=True)


def status(record: Mapping[str, Any], blueprint: Blueprint, flat: Draws) -> str:
    """How the fit went and what it rests on."""
    said = [str(record["advice"])]
    if record["method"] != "prior":
        basis = f"learned from {record['settled']} settled facts" if record["settled"] else "nothing was settled"
        every = f"all {record['questions']} questions"
        scopes = {"all": f" and {every}", "cut": f", base rates and difficulties from {every}"}
        scope = scopes.get(str(record["learn_from"]), "")
        said.append(f"{basis}{scope} (facts are assumed to be settled at random)")
        contraction = echo_contraction(blueprint, flat)
        if contraction is not None and record["converged"]:
            found = "echoes not identified" if contraction < IDENTIFIED else "echoes identified"
            said.append(f"{found}: the data narrowed the weight of strangers by {max(contraction, 0.0):.0%}")
    return "; ".join(said)


def echo_contraction(blueprint: Blueprint, flat: Draws) -> float | None:
    """1 minus posterior over prior standard deviation of the log weight of strangers; None without origins."""
    for site in blueprint.plan.sites:
        if site.name == "origin_log_strangers":
            prior = site.prior.parameters.get("scale")
            return None if prior is None else float(1.0 - flat[site.name].std() / prior)
    return None


@contextmanager
def reporter(progress: Any) -> Iterator[Callable[[int, float], None] | None]:
    """A function that is told steps and loss; a line on stderr that is rewritten where ``progress`` is True."""
    if not progress:
        yield None
        return
    if callable(progress):
        yield progress
        return

    def show(steps: int, loss: float) -> None:
        sys.stderr.write(f"\rfit: {steps} steps, loss {loss:.1f}   ")
        sys.stderr.flush()

    yield show
    sys.stderr.write("\n")
