"""Random small tables of claims with every feature of the model on or off, for tests that compare ways to compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
import pandas as pd

import nousppl as nous

FEATURES = (
    "origin",
    "lag",
    "text",
    "popularity",
    "difficulty",
    "bias",
    "closed",
    "soft",
    "notes",
    "ceiling",
    "rejected",
    "undated",
    "lineage",
)
"""What can be on or off. Off: no echoes, weights that do not fade, no texts, uniform errors, no difficulty, no
class bias, an open list of answers, hard claims, no own notes, no ceilings, nothing rejected, all claims dated (some at
the same time), no claim with a given origin, no trap, errors
independent, all pairs of sources strangers, all errors equally shared, no terms of the user's own."""
ALSO = {"trap": 1 / 2, "correlation": 1 / 2, "affinity": 1 / 2, "shared by claim": 1 / 3, "own terms": 1 / 2}
"""The same with their chances, drawn from a stream of their own: a feature more leaves the other choices of a seed as
they are."""
ASKED = {"change", "denials", "lasting"}
"""On only where it is given: truths that change, which no trap, correlated errors or undated claims go with; claims
that deny an answer, in every other model with an origin a pair feature; claims not meant to last. What is drawn for the
latter two has a stream of its own."""
WORDS = ["the train is late", "a train is late today", "no trains run", "trains as planned", "nobody knows"]
SHARED = "1 + length + (1|channel) + (length|source)"
"""How far errors are shared, where that differs from claim to claim: a number, groups of the claims, a slope."""
STRONG = ["same_source", "same_channel", "same_source + same_channel", None]


def longer(xp: Any, sample: Any, columns: Any) -> Any:
    """A term of claims: a vector of parameters, a number."""
    slope, level = sample("slope", dist.HalfNormal(1.0)), sample("level", dist.Normal(0.0, 1.0), 2)
    return xp.where(columns["length"] > 0.0, level[0], level[1]) - slope * columns["length"]


def quoted(xp: Any, sample: Any, pairs: Any) -> Any:
    """A term of pairs: all that it can read, and two parameters."""
    near = sample("near", dist.Normal(0.0, 1.0)) - xp.log1p(pairs.lag)
    far = sample("far", dist.Normal(0.0, 1.0)) * pairs.later["length"] - pairs.earlier["length"]
    return xp.where(pairs.same("channel"), near, far)


def doubled(xp: Any, sample: Any, pairs: Any) -> Any:
    """A second one, without parameters, that gives some pairs no weight."""
    return xp.where(pairs.same("source"), xp.log(2.0 + pairs.later["length"]), -np.inf)


def random_case(
    seed: int,
    *,
    questions: int | None = None,
    claims: int | None = None,
    named: int | None = None,
    K: int | None = None,
    **features: bool,
) -> tuple[nous.Evidence, nous.TrustModel]:
    """An evidence and a model.

    ``questions`` (default 1 to 3) of ``claims`` each (default 1 to 5), which name some of ``named`` answers (default 2
    to 4); ``K`` answers where the list is open (default 2 to 6, at least as many as a question names). Each of
    ``FEATURES`` is on or off as given, else by a fair coin; those of ``ALSO`` by their chances.
    """
    if unknown := set(features) - {*FEATURES, *ALSO, *ASKED}:
        raise TypeError(f"no such features: {sorted(unknown)}; there are {(*FEATURES, *ALSO, *ASKED)}")
    rng, also, beside = (np.random.default_rng(one) for one in (seed, (seed, 1), (seed, 2)))
    on = {name: bool(rng.random() < 0.5) for name in FEATURES}
    on |= {name: bool(also.random() < chance) for name, chance in ALSO.items()} | dict.fromkeys(ASKED, False) | features
    if on["change"]:
        on |= dict.fromkeys(("trap", "correlation", "undated"), False)
    on["bias"] &= on["closed"]
    on["shared by claim"] &= on["popularity"]
    size = int(rng.integers(2, 5)) if named is None else named
    values = ["a", "b", "c", "d"][:size]
    asked = int(rng.integers(1, 4)) if questions is None else questions
    frame = pd.concat([_claims(rng, f"e{q:02d}", values, on, claims) for q in range(asked)], ignore_index=True)
    frame = _beside(beside, frame, values, on)
    settled, names = None, frame[["entity", "value"]]
    if on["denials"]:
        names = pd.concat([names, frame[["entity", "denies"]].dropna().set_axis(names.columns, axis=1)])
    if on["rejected"]:
        rejected = [f"e{q:02d}" for q in range(0, asked, 2)]
        settled = pd.DataFrame({"entity": rejected, "attribute": "x", "value": values[0], "verdict": "false"})
    if on["change"]:
        settled = pd.concat([settled, _settled(also, asked, values, on["rejected"])], ignore_index=True)
    if settled is not None:
        names = pd.concat([names, settled[["entity", "value"]]])
    most = int(names.groupby("entity")["value"].nunique().max())
    size_open = max(most, int(rng.integers(2, 7)) if K is None else K)
    return nous.Evidence(frame, settled=settled), _model(rng, seed, values if on["closed"] else size_open, on)


def _beside(rng: np.random.Generator, frame: pd.DataFrame, values: list[str], on: dict[str, bool]) -> pd.DataFrame:
    """What hard claims deny, and how far claims are meant to last."""
    if on["denials"]:
        hard = (frame["weight"] == 1.0) & ~frame["claim"].duplicated(keep=False)
        denied = [str(rng.choice([v for v in values if v != value])) for value in frame["value"]]
        frame["denies"] = pd.Series(denied, dtype=object).where(hard & (rng.random(len(frame)) < 0.6), None)
    if on["lasting"]:
        names = frame["claim"].unique()
        lasting = np.where(rng.random(len(names)) < 0.5, rng.choice([0.0, 0.3, 0.8], len(names)), np.nan)
        frame["lasting"] = frame["claim"].map(dict(zip(names, lasting, strict=True)))
    return frame


def _settled(rng: np.random.Generator, asked: int, values: list[str], rejected: bool) -> pd.DataFrame:
    """Truths settled at some times, before, among and after the claims; and a rejection with a time."""
    rows = []
    for q in range(asked):
        times = rng.choice([0.0, 2.0, 3.0, 50.0], int(rng.integers(0, 3)), replace=False)
        kept = values[1:] if rejected and q % 2 == 0 else values
        rows += [(f"e{q:02d}", str(rng.choice(kept)), "true", time) for time in times]
        if rejected and q % 2 and len(values) > 2:
            rows = [row for row in rows if row[0] != f"e{q:02d}" or row[1] != values[2]]
            rows.append((f"e{q:02d}", values[2], "false", float(rng.choice([1.5, 6.0]))))
    return pd.DataFrame(rows, columns=["entity", "value", "verdict", "time"]).assign(attribute="x")


def features_of(evidence: nous.Evidence, model: nous.TrustModel) -> dict[str, bool]:
    """Which features of the model and of the evidence are on."""
    origin, errors, coded = model.origin, model.errors, evidence.coded
    closed = isinstance(model.answers["x"], list)
    return {
        "origin": origin is not None,
        "no strong weights": origin is not None and origin.strong is None,
        "two features": origin is not None and len(origin.features) == 2,
        "lag": origin is not None and origin.lag,
        "text": origin is not None and origin.text is not None,
        "unknown order": origin is not None and origin.order == "unknown",
        "popularity": errors.shared,
        "errors shared by claim": errors.shared_formula is not None,
        "difficulty": bool(errors.difficulty),
        "easy or hard": errors.mixture,
        "bias by class": errors.bias == "class",
        "bias by source": errors.bias == "source",
        "confusion": errors.bias != "none" and len(model.answers["x"]) > 2,
        "trap": errors.trap,
        "correlation": errors.correlation,
        "closed": closed,
        "base rates": model.base_rates == "learned" and closed,
        "soft": "weight" in evidence.claims and bool((evidence.claims["weight"] < 1).any()),
        "notes": bool(coded.claim_derived.any()),
        "ceiling": bool(np.isfinite(coded.claim_ceiling).any()),
        "rejected": bool(coded.settled_rejected.any()),
        "undated": bool(np.isnan(coded.claim_time).any()),
        "affinity": origin is not None and origin.affinity is not None,
        "own terms": "reliability" in model.terms,
        "own pair terms": "origin" in model.terms,
        "lineage": bool((coded.claim_origin >= 0).any()),
        "denials": bool((coded.claim_denied >= 0).any()),
        "denied since": origin is not None and origin.denied,
        "lasting": bool((coded.claim_lasting < 1.0).any()),
        "change": model.change is not None,
        "truths at times": model.change is not None and bool((~coded.settled_rejected).any()),
    }


def _model(rng: np.random.Generator, seed: int, answers: list[str] | int, on: dict[str, bool]) -> nous.TrustModel:
    origin = None
    if on["origin"]:
        strong = STRONG[rng.integers(4)]
        if on["denials"] and seed % 2:
            strong = "repeats_denied" if strong is None else f"{strong} + repeats_denied"
        origin = nous.Origin(
            strong=strong,
            lag=on["lag"],
            text="text" if on["text"] else None,
            affinity="source" if on["affinity"] else None,
            order="unknown" if on["undated"] and rng.random() < 0.3 else "time",
            orders=3,
        )
    bias = ["class", "source"][rng.integers(2)] if on["bias"] else "none"
    terms = {"reliability": [longer]} if on["own terms"] else {}
    if on["own terms"] and origin is not None:
        terms |= {"freshness": [longer], "origin": [quoted, doubled]}
    if on["own terms"] and on["shared by claim"]:
        terms |= {"popularity": [longer]}
    return nous.TrustModel(
        origin=origin,
        errors=nous.Errors(
            popularity=SHARED if on["shared by claim"] else on["popularity"],
            difficulty=on["difficulty"] and (True, "mixture")[seed % 2],
            bias=bias,
            trap=on["trap"],
            correlation=on["correlation"],
        ),
        answers={"x": answers},
        base_rates="learned" if rng.random() < 0.3 else "uniform",
        order_seed=seed,
        terms=terms,
        change="1" if on["change"] else None,
        # Some changes in the time that the claims span.
        priors={"change": {"1": dist.Normal(-2.5, 1.0)}} if on["change"] else None,
    )


def _claims(
    rng: np.random.Generator, entity: str, values: list[str], on: dict[str, bool], count: int | None
) -> pd.DataFrame:
    n = int(rng.integers(1, 6)) if count is None else count
    time = rng.choice([1.0, 2.0, 5.0, 40.0], n)
    if on["undated"]:
        time = np.where(rng.random(n) < 0.4, np.nan, time)
    frame = pd.DataFrame(
        {
            "claim": [f"{entity} {i}" for i in range(n)],
            "entity": entity,
            "attribute": "x",
            # A skewed law, so that values repeat and popularity grows.
            "value": rng.choice(values, n, p=rng.dirichlet(np.full(len(values), 0.7))),
            "source": rng.choice(["s", "t", "u"], n),
            "channel": rng.choice(["mail", "web"], n),
            "time": time,
            "text": rng.choice(WORDS, n),
            "weight": 1.0,
        }
    )
    frame["length"] = frame["text"].str.len() / 20.0 - 1.0
    if on["notes"]:
        frame["derived"] = rng.random(n) < 0.4
        frame.loc[rng.integers(n), "derived"] = True
    if on["ceiling"]:
        frame["ceiling"] = np.where(rng.random(n) < 0.5, rng.uniform(0.1, 0.9, n), np.nan)
        frame.loc[rng.integers(n), "ceiling"] = 0.6
    if on["lineage"]:
        frame["origin"] = _lineage(rng, frame)
    return _soft(rng, frame, values) if on["soft"] else frame


def _lineage(rng: np.random.Generator, frame: pd.DataFrame) -> list[str | None]:
    """Now and then a claim is known to repeat one of a strictly earlier time."""
    out: list[str | None] = []
    for j in range(len(frame)):
        earlier = frame["claim"][frame["time"] < frame["time"][j]].to_list()
        out.append(str(rng.choice(earlier)) if earlier and rng.random() < 0.4 else None)
    return out


def _soft(rng: np.random.Generator, frame: pd.DataFrame, values: list[str]) -> pd.DataFrame:
    """One claim at least, and half of the others, become readings with weights on two answers."""
    rows = []
    always = int(rng.integers(len(frame)))
    for place, (_, row) in enumerate(frame.iterrows()):
        if place != always and rng.random() < 0.5:
            rows.append(row)
            continue
        weights = rng.dirichlet(np.ones(3))
        for value, weight in zip(rng.permutation(values)[:2], weights, strict=False):
            rows.append(row.copy())
            rows[-1]["value"], rows[-1]["weight"] = value, weight
    return pd.DataFrame(rows).reset_index(drop=True)
