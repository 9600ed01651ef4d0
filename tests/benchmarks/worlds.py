"""A world whose true parameters are known: beliefs against those of the true parameters, and cover of intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
from benchmarks.table import Row, at_most, shown

import nousppl as nous
from nousppl.blueprint import Blueprint
from nousppl.simulate import World

QUESTIONS = 3000
SEEDS = 20
SMALL = {"questions": 800, "sources": 60}
"""Size of the worlds of the cover, one for every seed."""
COVER = (0.88, 0.99)


def model(world: World) -> nous.TrustModel:
    """The model that the world is drawn from, with the default priors."""
    formula = "1 + (1|kind) + (1|source)"
    return nous.TrustModel(formula, formula, nous.Origin(strong="same_source + same_channel"), answers=world.answers)


def true_trust(trust: nous.Trust, world: World) -> nous.Trust:
    """The trust of someone who knows the true parameters: one draw."""
    true, blueprint = world.parameters, trust.blueprint
    draws = {
        "reliability_Intercept": np.array(true.intercept),
        "origin_log_strangers": np.array(true.log_w0),
        "origin_same_source": np.array(true.log_same_source),
        "origin_same_channel": np.array(true.log_same_channel),
        "origin_half_life": np.array(true.half_life),
        "errors_log_popularity": np.log(true.beta),
    }
    for part, encoding in blueprint.encodings.items():
        for column, table in (("kind", true.kind), ("source", true.source)):
            draws[f"{part}_1|{column}"] = table[part].reindex(list(encoding.levels[f"1|{column}"])).to_numpy()
            draws[f"{part}_1|{column}_sigma"] = np.array(table[part].std())
    assert set(draws) == set(blueprint.plan.names)
    chained = {name: np.asarray(value)[None, None] for name, value in draws.items()}
    return nous.Trust(trust.model, blueprint, chained, {}, trust.table, trust.record, trust.seen)


def losses() -> list[Row]:
    """Learned on one half, tested on the other; the same evidence is asked under the true parameters."""
    world = nous.datasets.world(QUESTIONS)
    evidence = nous.Evidence(world.claims, settled=world.learn)
    trust = model(world).fit(evidence, learn_from="all", seed=0)
    settled = model(world).fit(evidence, learn_from="settled", seed=0)
    known = true_trust(trust, world)
    loss, less, best = (float(t.posteriors(evidence).score(world.test)["log_loss"]) for t in (trust, settled, known))
    where = f"world of {QUESTIONS:,} questions, half settled, half tested"
    return [
        shown("the world: log loss", f"{where}; learned from all claims", len(world.test), loss),
        shown("the world: log loss", f"{where}; learned from settled questions only", len(world.test), less),
        shown("the world: log loss of the true parameters", where, len(world.test), best),
        at_most("the world: ratio of the two", where, len(world.test), loss / best, 1.02),
    ]


def interval(trust: nous.Trust, part: str) -> pd.DataFrame:
    """95 % interval of the predictor of the average source of each kind."""
    draws, blueprint = trust.asked(1000), trust.blueprint
    effect = draws[f"{part}_1|kind"]
    if part == "reliability":
        effect = effect + draws["reliability_Intercept"][:, None]
    lower, upper = np.quantile(effect, [0.025, 0.975], axis=0)
    return pd.DataFrame({"lower": lower, "upper": upper}, index=list(kinds(blueprint, part)))


def kinds(blueprint: Blueprint, part: str) -> tuple[str, ...]:
    """Kinds in the order of their effects."""
    return blueprint.encodings[part].levels["1|kind"]


def inside(seed: int) -> dict[str, list[bool]]:
    """Whether the truth lies inside the interval, for each kind, for reliability and for freshness."""
    world = nous.datasets.world(seed=seed, **SMALL)
    evidence = nous.Evidence(world.claims, settled=world.learn)
    options = nous.SVI(draws=1000)
    trust = model(world).fit(evidence, method=options, learn_from="settled", seed=seed)
    out = {}
    for part in ("reliability", "freshness"):
        truth = world.parameters.kind[part] + (world.parameters.intercept if part == "reliability" else 0.0)
        bounds = interval(trust, part).loc[truth.index]
        out[part] = list((bounds["lower"] <= truth) & (truth <= bounds["upper"]))
    return out


def cover() -> list[Row]:
    """Share of kinds whose true level lies inside its nominal 95 % interval, over seeds."""
    found = [inside(seed) for seed in range(SEEDS)]
    where = (
        f"{SEEDS} worlds of {SMALL['questions']:,} questions and {SMALL['sources']} sources, half settled, 5 kinds each"
    )
    rows = []
    for part in ("reliability", "freshness"):
        hits = [hit for result in found for hit in result[part]]
        share = float(np.mean(hits))
        if part == "reliability":
            reached = bool(COVER[0] <= share <= COVER[1])
            rows.append(
                Row(
                    "the world: reliability of kinds inside 95 % interval",
                    where,
                    len(hits),
                    share,
                    "88 to 99 %",
                    reached,
                )
            )
        else:
            rows.append(shown("the world: freshness of kinds inside 95 % interval", where, len(hits), share))
    return rows


def rows() -> list[Row]:
    """All rows."""
    return losses() + cover()
