"""One question of an evidence at one draw of the parameters, written out as a ``DenseQuestion``: for the readable
programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_softmax

from nousppl.asking import bias_sources, parameter_draws
from nousppl.blueprint import Blueprint
from nousppl.compile import Problem, compile_problem
from nousppl.domains import is_confused
from nousppl.encode import Encoded
from nousppl.errors import ModelError
from nousppl.models.denial import LOG_DENIAL
from nousppl.models.dense import Change, DenseQuestion
from nousppl.models.program import COPY_ERROR
from nousppl.number_written import with_number
from nousppl.pair_world import PairWorld
from nousppl.parts import MOST_CELLS
from nousppl.period_arrays import law_of_states
from nousppl.periods import cells_of
from nousppl.sets import Chances, law_of_lists

Draws = dict[str, NDArray[np.float64]]


class Written(NamedTuple):
    """A question written out, in one of the orders that are averaged."""

    question: DenseQuestion
    answers: tuple[Any, ...]
    """(K,) the answers; unnamed ones are "other 1", "other 2" and so on."""
    claims: NDArray[np.int64]
    """(n,) claim of the evidence behind each claim, in this order."""
    lists: Chances | None = None
    """Where its answers are sets of items: what its sources do with them."""

    @property
    def values(self) -> NDArray[np.int64]:
        """(n,) answer that each claim names; -1 for a soft claim."""
        weights = self.question.weights
        return np.where(weights.max(1) > 1.0 - 1e-9, weights.argmax(1), -1)


def write_out(
    blueprint: Blueprint,
    encoded: Encoded,
    draws: Draws,
    question: int,
    draw: int = 0,
    seed: int = 0,
    problem: Problem | None = None,
    laws: bool = True,
) -> list[Written]:
    """Write a question out, once for each order that its likelihood is averaged over.

    Args:
        blueprint: of the trust.
        encoded: the evidence in the trust's encoding.
        draws: site -> (draws, ...).
        question: index of the question.
        draw: which draw of the parameters.
        seed: that keys the orders.
        problem: the question compiled, where that is at hand.
        laws: whether to write out the laws of lists of items, which take long for many items.

    Raises:
        ModelError: the question is in parts.
    """
    chosen = {name: value[draw : draw + 1] for name, value in draws.items()}
    problem = _alone(encoded, question, seed) if problem is None else problem
    theta = {n: np.asarray(value[0]) for n, value in parameter_draws(blueprint, encoded, chosen, problem).items()}
    world = PairWorld(encoded, problem, len(encoded.features), blueprint.text_grid)
    layout, claims, shaped = problem.layout, len(problem.claims), bool(encoded.cells.shaped[question])
    counts = np.ones(layout.cells, int) if shaped else np.rint(encoded.cells.count[problem.cells]).astype(int)
    expand = np.repeat(np.arange(layout.cells), counts)
    rates = _mass(blueprint, problem, theta)[expand] / counts[expand]
    stays = encoded.settled is None or shaped
    mass = rates * np.exp(problem.data["cell_log_possible"])[expand] if stays else rates
    confusion = _confusion(blueprint, encoded, problem, theta)
    logit = theta["logit"][:claims, None] + _bias(blueprint, encoded, problem, theta, expand)
    alpha = np.exp(theta["log_concentration"][:claims]) * world.looks if encoded.origin is not None else world.looks
    beta = _betas(encoded, theta, claims)
    # An unnamed answer is never what a claim says.
    weights = np.where(encoded.cells.other[problem.cells], 0.0, _weights(problem, claims, layout.cells))[:, expand]
    out = []
    for order in range(layout.instances):
        base = strong = np.zeros((claims, claims))
        ratio, place = base + 1.0, world.place(order)
        if encoded.origin is not None:
            base, strong, ratio, place = world.weights(theta, order, base)
        pairs = np.ix_(by := np.argsort(place), by)
        dense = DenseQuestion(
            prior=mass,
            weights=weights[by],
            logit=logit[by],
            ceiling=encoded.coded.claim_ceiling[problem.claims][by],
            difficulty_sd=float(theta.get("errors_difficulty_sd", theta.get("errors_hard_shift", 0.0))),
            alpha=alpha[by],
            base=base[pairs],
            strong=strong[pairs],
            rho=np.where(world.match[pairs] > 0.0, ratio[pairs], 1.0),
            copy_error=COPY_ERROR,
            beta=beta[by] if isinstance(beta, np.ndarray) else beta,
            closed=bool(encoded.cells.closed[question]),
            confusion=None if confusion is None else confusion[by],
            base_rates=rates,
            trap=_chance(theta, "trap"),
            hard=_hard(encoded, question, theta),
            correlation=_chance(theta, "correlation"),
            change=None if stays else _change(problem, theta, order, expand),
        )
        dense = _beside(dense, encoded, problem, world, theta, order, expand)
        lists, labels = _chances(encoded, question, theta, by), _labels(encoded, problem.cells, counts)
        if encoded.cells.measured[question]:
            dense, labels = with_number(dense, blueprint, encoded, chosen, problem, theta, by)
        dense = _of_shape(dense, encoded, problem, theta, by, lists if laws else None)
        out.append(Written(dense, labels, problem.claims[by], lists))
    return out


def _alone(encoded: Encoded, question: int, seed: int) -> Problem:
    """The question compiled by itself, where it is in one part."""
    parts = len(encoded.parts.of(np.array([question])))
    if parts > 1:
        row = encoded.coded.questions.iloc[question]
        raise ModelError(
            f"entity {row['entity']!r}, attribute {row['attribute']!r}: {len(encoded.parts.names(question))} items, "
            f"which its lists treat in too many ways for a program of their sets; a question in {parts} parts is not "
            f"written out. Allowed are at most {MOST_CELLS} sets: 12 items, or more that are named together"
        )
    return compile_problem(encoded, np.array([question]), seed)


def _of_shape(
    dense: DenseQuestion,
    encoded: Encoded,
    problem: Problem,
    theta: dict[str, Any],
    order: NDArray[np.int64],
    lists: Chances | None,
) -> DenseQuestion:
    """The question with the laws of its claims where it is of another shape than one of several."""
    question, states = int(problem.questions[0]), encoded.cells.periods
    if states is not None and states.attribute[question] >= 0:
        dense = _of_states(dense, encoded, problem, theta, order)
    elif lists is not None:
        dense = _with_lists(dense, encoded, question, problem.claims[order], lists)
    return dense if dense.law is None else _passing(dense)


def _passing(question: DenseQuestion) -> DenseQuestion:
    """A question of another shape, with how far its claims are meant to last in their laws."""
    question = question._replace(denies=None, strong_denied=None)
    if question.lasting is None:
        return question
    lasts = question.lasting[:, None, None]
    law = lasts * np.asarray(question.law) + (1.0 - lasts) * np.asarray(question.random)
    return question._replace(law=law, lasting=None)


def _with_lists(
    dense: DenseQuestion, encoded: Encoded, question: int, claims: NDArray[np.int64], lists: Chances
) -> DenseQuestion:
    """A set-valued question: its claims have the laws of lists of items."""
    assert encoded.cells.items is not None
    size = float(encoded.cells.size[question])
    law, weights, random, _ = law_of_lists(encoded.cells.items, question, claims, size, lists)
    return dense._replace(law=law, weights=weights, random=random, beta=None, difficulty_sd=0.0, hard=None)


def _chances(encoded: Encoded, question: int, theta: dict[str, Any], order: NDArray[np.int64]) -> Chances | None:
    """What the sources of a set-valued question do with its items, claims in the given order; None for others."""
    items = encoded.cells.items
    if items is None or items.attribute[question] < 0:
        return None
    denial = float(expit(theta["items_logit_denial"]))
    return Chances(
        expit(theta["logit_sensitivity"][order]),
        expit(theta["logit_specificity"][order]),
        denial,
        denial * float(expit(theta["items_logit_slip"])),
        float(expit(theta["items_logit_prevalence"][items.attribute[question]])),
    )


def _of_states(
    dense: DenseQuestion, encoded: Encoded, problem: Problem, theta: dict[str, Any], order: NDArray[np.int64]
) -> DenseQuestion:
    """A question about what is true for a while: its claims have the laws of statements."""
    states = encoded.cells.periods
    assert states is not None
    cells, claims = cells_of(states, problem.questions, problem.at), problem.claims[order]
    right = np.minimum(expit(theta["logit"][: len(claims)][order]), dense.ceiling)
    stated = float(expit(theta["state_logit_stated"][states.attribute[problem.questions[0]]]))
    times = encoded.coded.claim_time[claims]
    law, weights, random, _ = law_of_states(states, cells, claims, times, right, stated)
    return dense._replace(law=law, weights=weights, random=random, beta=None, difficulty_sd=0.0, hard=None)


def _change(problem: Problem, theta: dict[str, Any], order: int, expand: NDArray[np.int64]) -> Change | None:
    """How the truth changes, claims in one of their orders; None where it does not."""
    known = problem.settled
    if known is None:
        return None
    of_cell = np.searchsorted(expand, known.cell)
    facts = list(zip(known.time.tolist(), of_cell.tolist(), known.rejected.tolist(), strict=True))
    return Change(
        rate=float(np.exp(theta["log_rate"][0])),
        times=tuple(problem.times[problem.data["slot_instance"] == order].tolist()),
        at=float(problem.at[0]),
        pins=tuple((time, cell) for time, cell, rejected in facts if not rejected),
        rejections=tuple((time, cell) for time, cell, rejected in facts if rejected),
    )


def _beside(
    question: DenseQuestion,
    encoded: Encoded,
    problem: Problem,
    world: PairWorld,
    theta: dict[str, Any],
    order: int,
    expand: NDArray[np.int64],
) -> DenseQuestion:
    """The question in one order of its claims, with what they deny and how far they are meant to last."""
    place = world.place(order)
    by = np.argsort(place)
    if encoded.passing:
        question = question._replace(lasting=encoded.coded.claim_lasting[problem.claims][by])
    if encoded.denied_cell is None:
        return question
    cell = encoded.denied_cell[problem.claims][by]
    answer = np.where(cell >= 0, np.searchsorted(expand, cell - problem.cells[0]), -1)
    question = question._replace(denies=answer, denial=float(np.exp(theta.get("errors_log_denial", LOG_DENIAL))))
    if encoded.origin is None or not encoded.origin.denied:
        return question
    # Only listed pairs know what has been denied since.
    apart = place[:, None] - place[None, :]
    near = (apart > 0) & (apart <= encoded.origin.max_listed)
    strong = world.weights(theta, order, near.astype(np.float64))[1]
    return question._replace(strong_denied=strong[np.ix_(by, by)])


def _betas(encoded: Encoded, theta: dict[str, Any], claims: int) -> NDArray[np.float64] | float | None:
    """beta of all claims, or of each where it has a formula; None where popularity does not matter."""
    if not encoded.errors.shared:
        return None
    return np.exp(theta["log_beta"][:claims]) if "log_beta" in theta else float(np.exp(theta["errors_log_popularity"]))


def _hard(encoded: Encoded, question: int, theta: dict[str, Any]) -> float | None:
    """Chance that the question is hard; None where the model knows no easy and hard questions."""
    if "errors_logit_hard" not in theta:
        return None
    effects = np.r_[0.0, theta.get("errors_logit_hard|attribute", np.zeros(0))]
    return float(expit(theta["errors_logit_hard"] + effects[encoded.attribute_level[question]]))


def _mass(blueprint: Blueprint, problem: Problem, theta: dict[str, Any]) -> NDArray[np.float64]:
    """(cells,) prior probability of each cell, whatever is settled or rejected."""
    data = problem.data
    log_mass = np.array(data["cell_log_mass"])
    if "state_logit_on" in theta and problem.layout.period_cells:
        log_mass[data["periodcell_cell"]] = _mass_of_states(data, theta)
    if "items_logit_prevalence" in theta and problem.layout.set_cells:
        holds = log_expit(theta["items_logit_prevalence"][data["anycell_attribute"]])
        lacks = log_expit(-theta["items_logit_prevalence"][data["anycell_attribute"]])
        log_mass[data["anycell_cell"]] += data["anycell_true"] * holds + data["anycell_false"] * lacks
    if "base_rates" in theta:
        names = [attribute for attribute, _ in blueprint.domains.classes]
        log_rates = np.empty(len(names))
        for attribute in blueprint.domains.lists:
            mine = np.array([name == attribute for name in names])
            log_rates[mine] = log_softmax(theta["base_rates"][mine])
        klass = data["cell_class"]
        log_mass = np.where(klass >= 0, log_rates[np.maximum(klass, 0)], log_mass)
    return np.exp(log_mass)


def _mass_of_states(data: dict[str, NDArray[Any]], theta: dict[str, Any]) -> NDArray[np.float64]:
    """(period cells,) log prior mass of the cells of what is true for a while."""
    attribute = data["periodcell_attribute"]
    logit, mean = theta["state_logit_on"][attribute], np.exp(theta["state_log_duration"][attribute])
    begin, width = data["periodcell_begin"] / mean, data["periodcell_width"] / mean
    inside = -begin + np.where(data["periodcell_last"], 0.0, np.log(-np.expm1(-width)))
    given_on = data["periodcell_log"] + np.where(data["periodcell_open"], inside, 0.0)
    return np.where(data["periodcell_on"], log_expit(logit) + given_on, log_expit(-logit))


def _chance(theta: dict[str, Any], name: str) -> float | None:
    site = f"errors_logit_{name}"
    return float(expit(theta[site])) if site in theta else None


def _confusion(
    blueprint: Blueprint, encoded: Encoded, problem: Problem, theta: dict[str, Any]
) -> NDArray[np.float64] | None:
    """(claims, K, K) law of the wrong answers of each claim by true answer, where the question has learned ones."""
    klass = np.asarray(problem.data["cell_class"])
    if "errors_confusion" not in theta or klass[0] < 0 or encoded.confusion_start[klass[0]] < 0:
        return None
    size, pairs = len(klass), len(theta["errors_confusion"])
    logits = np.repeat(theta["errors_confusion"][None], len(problem.claims), axis=0)
    if "errors_confusion|source" in theta:
        logits = logits + theta["errors_confusion|source"].reshape(-1, pairs)[bias_sources(encoded, problem.claims)[1]]
    first = sum(len(v) * (len(v) - 1) for v in _confused_before(blueprint, int(klass[0])))
    mine = logits[:, first : first + size * (size - 1)].reshape(-1, size, size - 1)
    out = np.zeros((len(mine), size, size))
    for z in range(size):
        out[:, z, np.arange(size) != z] = np.exp(log_softmax(mine[:, z], axis=-1))
    return out


def _confused_before(blueprint: Blueprint, klass: int) -> list[tuple[Any, ...]]:
    """Closed lists with rows of confusion that come before the list of a class."""
    attribute = blueprint.domains.classes[klass][0]
    names = list(blueprint.domains.lists)
    before = (blueprint.domains.lists[name] for name in names[: names.index(attribute)])
    return [answers for answers in before if is_confused(answers)]


def _labels(encoded: Encoded, cells: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[Any, ...]:
    labels: list[Any] = []
    for cell, count in zip(cells, counts, strict=True):
        labels += [f"other {i + 1}" for i in range(count)] if encoded.cells.other[cell] else [encoded.cells.value[cell]]
    return tuple(labels)


def _weights(problem: Problem, claims: int, cells: int) -> NDArray[np.float64]:
    out = np.zeros((claims, cells))
    data = problem.data
    first = data["slot_instance"][data["row_slot"]] == 0
    out[problem.slot_claim[data["row_slot"][first]], data["row_icell"][first]] = data["row_weight"][first]
    return out


def _bias(
    blueprint: Blueprint, encoded: Encoded, problem: Problem, theta: dict[str, Any], expand: NDArray[np.int64]
) -> NDArray[np.float64]:
    claims, classes = len(problem.claims), len(blueprint.domains.classes)
    if "errors_bias" not in theta:
        return np.zeros((claims, len(expand)))
    klass = np.asarray(problem.data["cell_class"])[expand]
    inside = klass >= 0
    shift = np.where(inside, theta["errors_bias"][np.maximum(klass, 0)], 0.0)[None, :].repeat(claims, 0)
    if "errors_bias|source" in theta:
        by_source = theta["errors_bias|source"].reshape(-1, classes)[bias_sources(encoded, problem.claims)[1]]
        shift = shift + np.where(inside, by_source[:, np.maximum(klass, 0)], 0.0)
    return shift
