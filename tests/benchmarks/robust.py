"""Floods and discredit: many copies of one claim, under the default trust (draws of the priors, nothing learned)."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pandas as pd
from benchmarks.table import Row, at_least, at_most
from numpy.typing import NDArray

import nousppl as nous
from nousppl.asking import parameter_draws, ready
from nousppl.believe import ASKED_DRAWS
from nousppl.compile import compile_problem
from nousppl.inference.exact import posterior_cells

Floats = NDArray[np.float64]

COPIES = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
HONEST = 2
DRAWS = 16
"""Draws of the priors that a flood is measured under: a million messages take a second or two for each."""
FLOOD_RELIABILITY = 0.95
BAD = (1, 10, 100, 1000, 10_000)
BAD_RELIABILITY, CEILING = 0.3, 0.2
HONEST_RELIABILITY = 0.95
"""As reliable as the honest sources of the flood."""
CONFIRMATIONS = 5
MILLISECOND = 1 / 86_400_000
"""In days. Copies follow each other so closely that the lag between the first and the last does not matter."""


def model(answers: int, strong: str = "same_source") -> nous.TrustModel:
    """The default model, but for reliabilities that are given as logits in the column ``rel``."""
    priors = {"reliability": {"rel": dist.Normal(1.0, 1e-6)}}
    return nous.TrustModel("0 + rel", origin=nous.Origin(strong=strong), answers={"a": answers}, priors=priors)


def claims(*groups: tuple[str, int, str, str, float]) -> pd.DataFrame:
    """Claims one after the other, a millisecond apart.

    Args:
        groups: (value, number of claims, source, channel, reliability); a source or channel that ends in "*" is
            another one for every claim.
    """
    parts = []
    for value, count, source, channel, right in groups:
        number = np.arange(count).astype(str)
        names = [np.char.add(name[:-1], number) if name.endswith("*") else name for name in (source, channel)]
        part = pd.DataFrame({"value": value, "source": names[0], "channel": names[1]}, index=np.arange(count))
        parts.append(part.assign(rel=np.log(right / (1 - right))))
    table = pd.concat(parts, ignore_index=True).assign(entity="e", attribute="a")
    return table.assign(time=np.arange(len(table)) * MILLISECOND)


def cell_logs(trust: nous.Trust, table: pd.DataFrame, draws: int) -> tuple[list[str], Floats]:
    """Answers, and (draws, answers) log probability of each under each draw of the trust."""
    encoded = trust.encoded(nous.Evidence(table))
    problem = compile_problem(encoded, np.array([0]), trust.model.order_seed)
    data, parameters = ready(trust.blueprint, encoded, problem, problem.layout, trust.asked(draws), len(table))
    logs, _ = posterior_cells(problem.layout, trust.blueprint.plan.features, data, parameters, False)
    return list(encoded.cells.value), np.asarray(logs, np.float64)


def flood(answers: int, first: bool) -> list[Row]:
    """Copies of a wrong claim by one source in its channel, against two honest strangers, all equally reliable."""
    trust = model(answers).default_trust()
    draws = trust.asked(DRAWS)
    leads, odds = [], []
    for n in COPIES:
        groups = [
            ("wrong", n, "flood", "flood", FLOOD_RELIABILITY),
            ("right", HONEST, "honest*", "c*", FLOOD_RELIABILITY),
        ]
        names, logs = cell_logs(trust, claims(*(groups if first else groups[::-1])), DRAWS)
        wrong, right = (logs[:, names.index(value)] for value in ("wrong", "right"))
        leads.append(float((np.exp(right) - np.exp(wrong)).mean()))
        odds.append(wrong - right)
    concentration = flood_concentration(trust, draws)
    # The sum over the first copies is harmonic; the logarithm is its law from ten copies on.
    gain = np.diff(odds[1:], axis=0) / np.diff(np.log(COPIES[1:]))[:, None]
    ratio = np.abs(gain) / (concentration / np.exp(draws["origin_same_source"]))
    where = f"K = {answers}, flood {'first' if first else 'last'}, n = 1 to {COPIES[-1]:,}, default trust"
    return [
        Row("flood: least lead of the right answer", where, len(COPIES), min(leads), "> 0", min(leads) > 0),
        at_most(
            "flood: change of log-odds from n = 10, in (α/w) ln(n2/n1)",
            where,
            (len(COPIES) - 1) * DRAWS,
            float(ratio.max()),
            1.05,
        ),
    ]


def flood_concentration(trust: nous.Trust, draws: dict[str, Floats]) -> Floats:
    """(draws,) α of the source that floods."""
    encoded = trust.encoded(nous.Evidence(claims(("wrong", 1, "flood", "flood", FLOOD_RELIABILITY))))
    parameters = parameter_draws(trust.blueprint, encoded, draws, compile_problem(encoded, np.array([0])))
    return np.exp(parameters["log_concentration"][:, 0])


def discredit(strong: str, source: str, channel: str, first: bool, ceiling: bool) -> float:
    """Least probability of the true answer over the numbers of bad sources that repeat it."""
    trust = model(8, strong).default_trust()
    least = 1.0
    for count in BAD:
        bad = ("true", count, source, channel, BAD_RELIABILITY)
        honest = ("true", CONFIRMATIONS, "honest*", "h*", HONEST_RELIABILITY)
        liar = ("lie", 1, "liar", "l", BAD_RELIABILITY)
        table = claims(*((bad, honest, liar) if first else (honest, liar, bad)))
        if ceiling:
            table["ceiling"] = np.where(table["rel"] < 0, CEILING, 1.0)
        names, logs = cell_logs(trust, table, ASKED_DRAWS)
        least = min(least, float(np.exp(logs[:, names.index("true")]).mean()))
    return least


def discredited() -> list[Row]:
    """The true answer repeated by bad sources does not destroy it."""
    out = []
    variants = {
        "one channel, first": ("same_source + same_channel", "bad*", "flood", True),
        "one channel, last": ("same_source + same_channel", "bad*", "flood", False),
        "one source, first": ("same_source", "bad", "flood", True),
        "one source, last": ("same_source", "bad", "flood", False),
        "unrelated strangers, first": ("same_source", "bad*", "b*", True),
    }
    for name, variant in variants.items():
        for ceiling in (False, True):
            capped = f"ceiling {CEILING:g}" if ceiling else f"reliability {BAD_RELIABILITY:g}"
            where = f"bad sources: {name}, M = 1 to {BAD[-1]:,}, {capped}; K = 8, default trust"
            out.append(at_least("discredit: least P(true)", where, len(BAD), discredit(*variant, ceiling), 0.99))
    return out


def rows() -> list[Row]:
    """All rows."""
    return [row for answers in (2, 8) for first in (True, False) for row in flood(answers, first)] + discredited()
