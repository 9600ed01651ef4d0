"""Forward sampling of a state that is true for a while: whether it is on, its plausible ends, and what claims say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nousppl.asking import parameter_draws
from nousppl.blueprint import Blueprint
from nousppl.compile import Problem
from nousppl.densify import Written
from nousppl.encode import Encoded
from nousppl.models.dense import DenseQuestion
from nousppl.simulate import FRESH, pick_origin, share

Floats = NDArray[np.float64]
Draws = dict[str, NDArray[np.float64]]
NONE = -1
"""Stands for an end where none is stated."""


class States(NamedTuple):
    """The law of one state and of the n claims about it, in event order."""

    times: Floats
    """(n,)"""
    right: Floats
    """(n,) P(right | fresh)."""
    lasting: Floats
    """(n,) how far each claim is meant to last; what is not may say anything."""
    on: float
    """Chance that it is on at the first time."""
    stated: float
    """Chance that a claim that it is on states an end."""
    duration: float
    """Mean time from the first time to a plausible end."""
    ends: int
    """K, number of plausible ends."""


class SimulatedState(NamedTuple):
    """One draw of a state with n claims."""

    on: bool
    """Whether it is on at the first time."""
    ends: Floats
    """(K,) plausible ends."""
    true: int
    """Which of them is the true one."""
    says: NDArray[np.bool_]
    """(n,) whether each claim says that it is on."""
    stated: NDArray[np.int64]
    """(n,) which of the ends it states, or ``NONE``."""
    origins: NDArray[np.int64]
    """(n,) the claim that each claim repeats, ``FRESH`` or ``NOTE``."""

    def at(self, time: float) -> bool:
        """Whether it is on at a time."""
        return bool(self.on and time <= self.ends[self.true])


def simulate_state(rng: np.random.Generator, question: DenseQuestion, law: States) -> SimulatedState:
    """Draw a state, its ends, the origins and what the claims say, by ``nousppl.models.while_true.log_fresh``.

    In one point the draw departs from that law, which knows no dates of claims: an end that has passed is not stated,
    since tables may not hold one. A claim that would state one states another end that has not passed, by the same law
    among these, and none where there is none; a repetition then repeats that the state is on without the end.

    Args:
        rng: source of randomness.
        question: the origins of its claims, in event order; its laws are not read.
        law: of the state and its claims.
    """
    n, start = len(law.times), float(law.times.min(initial=np.inf))
    ends = start + law.duration * rng.exponential(size=law.ends) if n else np.zeros(law.ends)
    state = SimulatedState(
        bool(rng.random() < law.on),
        ends,
        int(rng.integers(law.ends)),
        np.zeros(n, bool),
        np.full(n, NONE, np.int64),
        np.full(n, FRESH, np.int64),
    )
    says, stated, origins, originality = state.says, state.stated, state.origins, np.zeros(n)
    for j in range(n):
        origins[j] = pick_origin(rng.random(), question, j, originality, question.strong[j, :j])
        if origins[j] >= 0 and rng.random() >= question.copy_error:
            says[j], stated[j] = says[origins[j]], stated[origins[j]]
        elif origins[j] != FRESH or rng.random() >= law.lasting[j]:
            # A repetition that goes wrong, a note that can repeat nothing, a claim about a moment: anything.
            value = int(rng.integers(law.ends + 2))
            says[j], stated[j] = value > 0, value - 2 if value > 1 else NONE
        else:
            says[j], stated[j] = _fresh(rng, state, law, j)
        if stated[j] != NONE and ends[stated[j]] < law.times[j]:
            stated[j] = NONE
        same = (says[:j] == says[j]) & (stated[:j] == stated[j])
        repeated = float(((question.base[j, :j] + question.strong[j, :j]) * same).sum())
        originality[j] = share(question.alpha[j], repeated)
    return state


def _fresh(rng: np.random.Generator, state: SimulatedState, law: States, j: int) -> tuple[bool, int]:
    """What a source says that looks for itself: whether the state is on, and which end it states."""
    on = state.at(law.times[j])
    says = on == bool(rng.random() < law.right[j])
    if not says or rng.random() >= law.stated:
        return says, NONE
    if on and rng.random() < law.right[j]:
        return says, state.true
    others = np.flatnonzero(state.ends >= law.times[j])
    others = others[others != state.true] if on else others
    if len(others):
        return says, int(rng.choice(others))
    return says, state.true if on else NONE


def states_of(blueprint: Blueprint, encoded: Encoded, draws: Draws, problem: Problem, written: Written) -> States:
    """The law of a question about a state at one value of the parameters.

    Args:
        blueprint: of the model.
        encoded: the design with any values.
        draws: site -> (1, ...), the parameters.
        problem: the question, compiled.
        written: the question written out, whose claims are in event order.
    """
    states, question = encoded.cells.periods, int(problem.questions[0])
    assert states is not None
    theta = {name: np.asarray(value[0]) for name, value in parameter_draws(blueprint, encoded, draws, problem).items()}
    place, attribute = np.searchsorted(problem.claims, written.claims), int(states.attribute[question])
    coded = encoded.coded
    return States(
        times=coded.claim_time[written.claims],
        right=np.minimum(expit(theta["logit"][: len(problem.claims)][place]), coded.claim_ceiling[written.claims]),
        lasting=coded.claim_lasting[written.claims],
        on=float(expit(theta["state_logit_on"][attribute])),
        stated=float(expit(theta["state_logit_stated"][attribute])),
        duration=float(np.exp(theta["state_log_duration"][attribute])),
        ends=int(states.ends[question]),
    )
