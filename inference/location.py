"""Group effects centred on what lies above them: the coordinates that the sampler moves in.

Where a level has many claims they tell its whole predictor, intercept and coarser effects included, and not its own
effect alone: effect and intercept are then nearly the same number with opposite signs, and a sampler that moves one at
a time crawls. In the coordinates ``effect + all that lies above it`` they are nearly independent (hierarchical
centring; Gelfand, Sahu & Carlin 1995, "Efficient parametrisations for normal linear mixed models"). The map between
the two adds to each coordinate a function of coarser ones, so its Jacobian is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nousppl.models.program import OF_QUESTIONS, Plan, Predictor

Values = dict[str, Any]
Arrays = dict[str, Any]


class Link(NamedTuple):
    """What lies above the levels of one group term."""

    site: str
    """Site of the group effects."""
    fixed: tuple[str, ...]
    """Sites of coefficients whose column is the same in all claims of a level."""
    groups: tuple[str, ...]
    """Sites of the coarser effects, one level of which holds all claims of a level."""


def links(plan: Plan, data: dict[str, Any]) -> tuple[tuple[Link, ...], Arrays]:
    """The links of a problem, coarsest terms first, and their arrays.

    What lies above two terms of which neither is finer than the other is given to the one with more levels: the
    claims cannot tell both sums. Slopes have nothing above them.

    Args:
        plan: the parameters.
        data: arrays of the problem and its designs, numpy.
    """
    out: list[Link] = []
    arrays: Arrays = {}
    for predictor in plan.predictors:
        found, more = _of_predictor(plan, predictor, data)
        out += found
        arrays |= more
    return tuple(out), arrays


def _of_predictor(plan: Plan, predictor: Predictor, data: dict[str, Any]) -> tuple[list[Link], Arrays]:
    sizes = {site.name: site.size or 0 for site in plan.sites if site.scale and site.prior.family == "Normal"}
    # What only pads a problem are claims that are none of its slots', and questions that weigh nothing.
    if predictor.part == OF_QUESTIONS:
        real = np.flatnonzero(np.asarray(data["question_weight"]) > 0.0)
    else:
        real = np.unique(data["slot_claim"])
    value, index, fixed_columns = (data[f"{predictor.part} {what}"][:, real] for what in ("value", "index", "fixed"))
    terms = {
        name: index[place]
        for place, name in enumerate(predictor.groups)
        if name in sizes and bool((value[place] == 1.0).all())
    }
    columns = {name: fixed_columns[place] for place, name in enumerate(predictor.fixed) if name}
    finest_first = sorted(terms, key=lambda name: -sizes[name])
    taken: dict[str, set[str]] = {}
    above: dict[str, set[str]] = {}
    out, arrays = [], {}
    for name in finest_first:
        levels, size = terms[name], sizes[name]
        # An item that a finer term has is free to this one only where that finer term has this one too.
        free = [
            item
            for item in (*columns, *terms)
            if item != name and all(name in above[finer] for finer in taken.get(item, ()))
        ]
        fixed: list[str] = []
        groups: list[str] = []
        for item in free:
            whole = columns[item] if item in columns else terms[item]
            if item in terms and sizes[item] >= size:
                continue
            by_level = _by_level(levels, whole, size)
            if by_level is None:
                continue
            (fixed if item in columns else groups).append(item)
            arrays[f"above {name} {item}"] = by_level
            taken.setdefault(item, set()).add(name)
        above[name] = {*fixed, *groups}
        if above[name]:
            out.append(Link(name, tuple(fixed), tuple(groups)))
    return out[::-1], arrays


def _by_level(levels: NDArray[np.int32], whole: NDArray[Any], size: int) -> NDArray[Any] | None:
    """(size,) the one value in the claims of each level, 0 for levels without claims; None where some have several."""
    out = np.zeros(size, whole.dtype)
    out[levels] = whole
    return out if bool((out[levels] == whole).all()) else None


def mover(plan: Plan, chain: tuple[Link, ...]) -> Callable[[Values, Values, Arrays, float], Values]:
    """The map between the coordinates.

    It takes the parameters by the name of their slot (group effects raw, in one of the two coordinates), the standard
    deviations of groups on their natural scale, the arrays (those of `links`, the exponents ``centred <site>``), and
    a sign: 1 to add what lies above effects, as far as they are centred, -1 to take it away.
    """
    scales = {site.name: site.scale or "" for site in plan.sites}

    def move(values: Values, natural: Values, data: Arrays, sign: float) -> Values:
        out, effects = dict(values), {}

        def effect(name: str, raw: Any) -> Any:
            return raw * natural[scales[name]] ** (1.0 - data["centred " + name])

        linked = {link.site for link in chain}
        for link in chain:
            total = sum(values[name] * data[f"above {link.site} {name}"] for name in link.fixed)
            for name in link.groups:
                if name not in linked:
                    effects[name] = effect(name, values[name + "_raw"])
                total = total + effects[name][data[f"above {link.site} {name}"]]
            given = values[link.site + "_raw"]
            centred = data["centred " + link.site]
            moved = given + sign * centred * total * natural[scales[link.site]] ** (centred - 1.0)
            out[link.site + "_raw"] = moved
            effects[link.site] = effect(link.site, given if sign > 0 else moved)
        return out

    return move
