"""Which claims are echoes of which, over many questions: tables made of the origins that beliefs hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from nousppl.belief import Belief
from nousppl.number_belief import NumberBelief

COLUMNS = ["entity", "attribute", "claim", "source", "value", "origin", "origin_source", "origin_value", "probability"]


def echo_pairs(beliefs: Iterable[Belief | NumberBelief], least: float = 0.01) -> pd.DataFrame:
    """Pairs of claims of which one may repeat the other.

    Args:
        beliefs: beliefs about different questions.
        least: pairs with a smaller probability are left out.

    Returns:
        A row a pair: entity, attribute; claim, source, value of the one that repeats; origin, origin_source,
        origin_value of the one that it may repeat; probability.
    """
    parts = [_pairs_of(belief, least) for belief in beliefs]
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def _pairs_of(belief: Belief | NumberBelief, least: float) -> pd.DataFrame:
    claims = belief.points.iloc[1:-1]
    repeats = belief.origins.to_numpy()[:, 1:]
    later, earlier = np.nonzero(repeats >= least)
    mine = claims[["claim", "source", "value"]].iloc[later].reset_index(drop=True)
    theirs = claims[["claim", "source", "value"]].iloc[earlier].reset_index(drop=True)
    theirs.columns = ["origin", "origin_source", "origin_value"]
    pairs = pd.concat([mine, theirs], axis=1)
    pairs["probability"] = repeats[later, earlier]
    pairs.insert(0, "entity", belief.question.entity)
    pairs.insert(1, "attribute", belief.question.attribute)
    return pairs


def likeliest_origins(pairs: pd.DataFrame, least: float = 0.5) -> pd.DataFrame:
    """Claims that are echoes with probability at least ``least``, surest first, with what each most likely repeats.

    Args:
        pairs: what :func:`echo_pairs` gives.
        least: least probability of repeating anything.

    Returns:
        The columns of ``pairs`` (``probability`` is that of this origin), and ``echo``, that of repeating any claim.
    """
    keys = ["entity", "attribute", "claim"]
    echo = pairs.groupby(keys, sort=False)["probability"].transform("sum").astype(float)
    table = pairs.assign(echo=echo).sort_values(["echo", "probability"], ascending=False, kind="stable")
    return table[table["echo"] >= least].drop_duplicates(keys).reset_index(drop=True)


def most_echoed(pairs: pd.DataFrame) -> pd.DataFrame:
    """Claims by how often they are expected to be repeated, most first.

    Returns:
        A row a claim that may have been repeated: entity, attribute, claim, source, value, ``echoes`` (expected number
        of claims that repeat it).
    """
    return _summed(pairs, ["entity", "attribute", "origin", "origin_source", "origin_value"]).rename(
        columns={"origin": "claim", "origin_source": "source", "origin_value": "value"}
    )


def who_repeats_whom(pairs: pd.DataFrame) -> pd.DataFrame:
    """Pairs of sources by the expected number of claims in which ``source`` repeats ``origin_source``, most first."""
    return _summed(pairs, ["source", "origin_source"])


def _summed(pairs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    table = pairs.groupby(list(keys), sort=False, dropna=False)["probability"].sum().rename("echoes").reset_index()
    return table.sort_values("echoes", ascending=False, kind="stable").reset_index(drop=True)
