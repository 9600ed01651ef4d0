"""True for a while: marginal, readable program and sums over the end agree; no fade before the end, off after."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from test_five_ways import apart, joint
from test_three_ways import grid_of, joint_by_reference, joint_by_witness, written

import nousppl as nous
from nousppl import period_arrays, periods
from nousppl.asking import ready
from nousppl.compile import compile_problem
from nousppl.inference.backend import JAX
from nousppl.inference.exact import theta_of
from nousppl.models import one_of, program, while_true
from nousppl.models import shaped as shaped_models
from nousppl.shown import by_state
from nousppl.trust import Trust

torch_enumeration = pytest.importorskip("nousppl.inference.torch_enumeration")
torch = pytest.importorskip("torch")
from nousppl.inference.torch_backend import Torch  # noqa: E402

SINGLE, DOUBLE = 1e-5, 1e-10
K = 4
"""Plausible ends in the random questions; at most two are stated."""
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"origin": None},
    "echoes": {"origin": nous.Origin(strong="same_source + same_channel")},
    "unordered": {"origin": nous.Origin(order="unknown", orders=2)},
    "trap": {"errors": nous.Errors(trap=True)},
    "changing neighbours": {"change": "1"},
}
ASKED = (-3.0, 2.0, 6.0, 11.5)
"""Before everything, among the claims, and after the stated ends."""


def random_states(seed: int, questions: int) -> nous.Evidence:
    """Questions about who is away, some with known and uncertain ends, ceilings, notes and settled facts, beside
    ordinary ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(questions):
        ends = rng.permutation([(8.0, None), (9.5, 2.0)])[: rng.integers(1, 3)]
        for j in range(4):
            says = bool(rng.random() < 0.7)
            until, sd = ends[rng.integers(len(ends))] if says and rng.random() < 0.6 else (None, None)
            row = {
                "entity": f"e{q}",
                "attribute": "away",
                "value": says,
                "until": until,
                "until_sd": sd,
                "source": f"s{rng.integers(3)}",
                "channel": f"c{rng.integers(2)}",
                "time": 1.7 * j + float(rng.random()),
                "derived": bool(rng.random() < 0.15),
                "ceiling": 0.6 if rng.random() < 0.3 else None,
            }
            rows += [row, row | {"attribute": "colour", "value": str(rng.choice(["red", "blue"])), "until": None}]
            rows[-1] |= {"until_sd": None, "derived": False}
    settled = pd.DataFrame(
        [("e0", True, 3.0, True), ("e0", False, 10.0, True), ("e1", True, 7.0, False)],
        columns=["entity", "value", "time", "verdict"],
    )
    return nous.Evidence(pd.DataFrame(rows), settled=settled.assign(attribute="away"))


def case(seed: int, name: str, questions: int = 4) -> tuple[nous.Evidence, Trust]:
    evidence = random_states(seed, questions)
    given = {"shapes": {"away": nous.WhileTrue()}, "errors": nous.Errors(difficulty=False), "answers": {"away": K}}
    priors = {"state": {"log_duration": nous_normal(1.5, 0.5)}}
    return evidence, nous.TrustModel(**(given | MODELS[name]), priors=priors).default_trust(seed=seed, draws=1)


def nous_normal(mean: float, sd: float) -> Any:
    import numpyro.distributions as dist

    return dist.Normal(mean, sd)


def of_states(evidence: nous.Evidence) -> list[int]:
    return np.flatnonzero(evidence.questions["attribute"] == "away").tolist()


# ---------------------------------------------------------------------------------------------------------- three ways


@partial(jax.jit, static_argnums=(0, 1))
def jax_logs(layout: Any, features: Any, data: Any, draw: Any) -> Any:
    theta = theta_of(features, draw, None)
    return program.truth_logs(JAX, layout, data, theta, *one_of.likelihood(JAX, layout, data, theta))


def marginal(evidence: nous.Evidence, trust: Trust, at: float | None = None, xp: Any = None) -> list[Any]:
    """log P(cell, claims) of all cells of each question about a state, and whether it is on at the time asked about."""
    xp = Torch(torch.float64) if xp is None else xp
    encoded, index = trust.encoded(evidence), np.arange(len(evidence.questions))
    times = np.full(len(index), encoded.latest if at is None else at)
    problem = compile_problem(encoded, index, trust.model.order_seed, times)
    with jax.enable_x64(xp is not JAX or jax.config.jax_enable_x64):
        data, draws = ready(trust.blueprint, encoded, problem, problem.layout, trust.asked(), len(problem.claims))
    data, first = xp.arrays(data), xp.arrays({name: np.asarray(value)[0] for name, value in draws.items()})
    if xp is JAX:
        logs = jax_logs(problem.layout, trust.blueprint.plan.features, data, first)
    else:
        plan = program.Plan((), (), trust.blueprint.plan.features)
        theta = program.constants(xp, plan, first, None)
        theta |= {name: first[name] for name in program.PARTS.values() if name in first}
        layout = problem.layout
        logs = program.truth_logs(xp, layout, data, theta, *one_of.likelihood(xp, layout, data, theta))
    cells = encoded.cells.offset
    found = [np.asarray(logs[cells[q] : cells[q + 1]], np.float64) for q in of_states(evidence)]
    on = [periods.cells_of(encoded.cells.periods, np.array([q]), times[[q]]).on for q in of_states(evidence)]
    return list(zip(found, on, strict=True))


def summed(parts: list[Any]) -> NDArray[np.float64]:
    """log P(on, claims) and log P(off, claims) of each question."""
    with np.errstate(divide="ignore"):
        return np.array([[np.log(np.exp(logs)[side].sum()) for side in (on, ~on)] for logs, on in parts])


def below(end: tuple[float, float], time: float) -> float:
    """Distribution function of a normal end."""
    return 0.5 * math.erfc((end[0] - time) / (end[1] * math.sqrt(2.0)))


def ends_by_hand(ends: list[tuple[float, float]], times: list[float], mean: float) -> list[tuple[int, float, Any]]:
    """Candidates for the end of a state that is on at first, by intervals: which, probability, and the time up to which
    the state is on."""
    start, edges = times[0], [*times, math.inf]
    out: list[tuple[int, float, Any]] = []
    for number, (end, sd) in enumerate(ends):
        if sd == 0.0:
            out.append((number, 1 / K, end))
            continue
        alive = 1.0 - below((end, sd), start)
        for low, high in itertools.pairwise(edges):
            mass = (below((end, sd), high) if high < math.inf else 1.0) - below((end, sd), low)
            out.append((number, mass / alive / K, low))
    for low, high in itertools.pairwise(edges):
        mass = math.exp(-(low - start) / mean) - (math.exp(-(high - start) / mean) if high < math.inf else 0.0)
        out.append((-1, mass * (K - len(ends)) / K, low))
    return out


def by_hand(evidence: nous.Evidence, trust: Trust, index: int, at: float) -> list[float]:
    """log P(on, claims) and log P(off, claims): sums over candidates and intervals, origins by the witness."""
    question = evidence.question(*evidence.questions.iloc[index])
    claims, draw = question.claims, {name: value[0, 0] for name, value in trust.posterior_draws.items()}
    until, sd = claims["until"].astype(float), claims["until_sd"].astype(float).fillna(0.0)
    stated = list(zip(until, sd, strict=True))
    ends = sorted({end for end in stated if not math.isnan(end[0])})
    facts = list(question.settled[["value", "verdict", "time"]].itertuples(index=False))
    start = min([*claims["time"], *(time for _, _, time in facts)])
    times = sorted({*claims["time"], *(time for _, _, time in facts), max(at, start)})
    p_on, p_stated = (1 / (1 + math.exp(-float(draw[f"state_logit_{n}"][0]))) for n in ("on", "stated"))
    mean = math.exp(float(draw["state_log_duration"][0]))
    cells = [(-2, 1 - p_on, -math.inf)] + [(c, p_on * p, low) for c, p, low in ends_by_hand(ends, times, mean)]
    agrees = [all((t <= low) == (v == (str(s).lower() == "true")) for v, s, t in facts) for _, _, low in cells]
    totals = [0.0, 0.0]
    with jax.enable_x64(True):
        orders = written(trust, evidence, index)
    first = min(evidence.coded.claim_start[index : index + 1])
    for one in orders:
        laws, said = [], []
        for j, claim in enumerate(one.claims - first):
            a = min(1 / (1 + math.exp(-float(one.question.logit[j, 0]))), float(one.question.ceiling[j]))
            laws.append([claim_law(a, p_stated, claims["time"].iloc[claim] <= low, c) for c, _, low in cells])
            says, end = bool(claims["value"].iloc[claim]), stated[claim]
            said.append(0 if not says else 1 if math.isnan(end[0]) else 2 + ends.index(end))
        np.testing.assert_allclose(np.sum(laws, axis=2), 1.0, atol=1e-12)
        whole = one.question._replace(
            prior=np.array([p for _, p, _ in cells]),
            law=np.array(laws),
            weights=np.eye(K + 2)[said],
            random=np.full(K + 2, 1 / (K + 2)),
        )
        parts = np.exp(witness.log_marginal(whole, said)) / len(orders)
        for possible, part, (_, _, low) in zip(agrees, parts, cells, strict=True):
            totals[int(not max(at, start) <= low)] += part * possible
    density = sum(-math.log(mean) - (end - start) / mean for end, _ in ends)
    return [math.log(total) + density if total else -math.inf for total in totals]


def claim_law(a: float, stated: float, on: bool, candidate: int) -> list[float]:
    """Law of a fresh claim: it is not so, it is so, it is so until each of the K ends."""
    right = a if on else 1 - a
    among = [(a if end == candidate else (1 - a) / (K - 1)) if on else 1 / K for end in range(K)]
    if candidate == -1:
        # One of the ends that nobody stated is the true one, say the last.
        among = [(1 - a) / (K - 1)] * (K - 1) + [a] if on else among
    return [1 - right, right * (1 - stated), *(right * stated * p for p in among)]


def hand(evidence: nous.Evidence, trust: Trust, at: float) -> NDArray[np.float64]:
    return np.array([by_hand(evidence, trust, q, at) for q in of_states(evidence)])


@pytest.mark.parametrize("name", ["echoes", "plain", "unordered", "changing neighbours"])
def test_the_marginal_is_the_sum_over_ends(name: str) -> None:
    evidence, trust = case(3, name)
    for at in ASKED if name == "echoes" else ASKED[1:2]:
        expected = hand(evidence, trust, at)
        assert apart(summed(marginal(evidence, trust, at)).ravel(), expected.ravel()) < DOUBLE


def test_in_single_and_double_precision_with_jax() -> None:
    evidence, trust = case(3, "echoes")
    expected = hand(evidence, trust, 6.0)
    assert apart(summed(marginal(evidence, trust, 6.0, JAX)).ravel(), expected.ravel()) < SINGLE
    with jax.enable_x64(True):
        assert apart(summed(marginal(evidence, trust, 6.0, JAX)).ravel(), expected.ravel()) < DOUBLE


def cellwise(evidence: nous.Evidence, trust: Trust, index: int, joint_of: Any) -> NDArray[np.float64]:
    """log P(cell, claims) from the written-out question; the density of stated ends is in no program of the values."""
    with jax.enable_x64(True):
        orders = written(trust, evidence, index)
    total = sum(joint_of(one, grid_of(trust, evidence, index)) for one in orders) / len(orders)
    states, log_mean = trust.encoded(evidence).cells.periods, trust.posterior_draws["state_log_duration"][0, 0, 0]
    with np.errstate(divide="ignore"):
        return np.log(total) - states.heard[index] * log_mean - states.lead[index] / np.exp(log_mean)


@pytest.mark.parametrize("name", MODELS)
def test_the_program_written_out_is_the_marginal(name: str) -> None:
    evidence, trust = case(5, name)
    for index, (logs, _) in zip(of_states(evidence), marginal(evidence, trust), strict=True):
        assert apart(logs, cellwise(evidence, trust, index, joint_by_witness)) < DOUBLE


def test_both_readable_programs_are_the_marginal() -> None:
    claims = [("a", True, 0.0, 5.0, 1.0), ("b", True, 1.0, None, None)]
    evidence = states_of(*claims)
    trust = nous.TrustModel(shapes={"away": nous.WhileTrue()}).default_trust(seed=1, draws=1)
    logs = marginal(evidence, trust)[0][0]
    with jax.enable_x64(True):
        assert apart(logs, cellwise(evidence, trust, 0, joint_by_reference)) < DOUBLE
    pyro = partial(joint, torch_enumeration, dtype=torch.float64)
    assert apart(logs, cellwise(evidence, trust, 0, pyro)) < DOUBLE


# -------------------------------------------------------------------------------------------------------------- beliefs


def states_of(*rows: tuple[Any, ...], **columns: Any) -> nous.Evidence:
    """Claims on one question: source, value, time, until, until_sd."""
    table = pd.DataFrame(rows, columns=["source", "value", "time", "until", "until_sd"]).assign(entity="e", **columns)
    return nous.Evidence(table.assign(attribute="away"))


def reliable(**given: Any) -> Trust:
    """A trust in sources that are right for certain and look for themselves."""
    priors = {"reliability": {"1": nous_normal(25.0, 0.01), "source": prior_of_nothing()}}
    given = {"shapes": {"away": nous.WhileTrue()}, "origin": None, "errors": nous.Errors(difficulty=False)} | given
    return nous.TrustModel(priors=priors, **given).default_trust(draws=20)


def prior_of_nothing() -> Any:
    import numpyro.distributions as dist

    return dist.HalfNormal(1e-3)


def p_on(trust: Trust, evidence: nous.Evidence, at: Any) -> float:
    return float(trust.posterior(evidence.question("e", "away"), at=at).probabilities[True])


@pytest.mark.parametrize("change", [None, "1"])
def test_no_fade_before_a_known_end_and_off_after_it(change: str | None) -> None:
    evidence, trust = states_of(("a", True, 0.0, 60.0, None)), reliable(change=change)
    before = [p_on(trust, evidence, at) for at in (0.0, 1.0, 30.0, 59.9, 60.0)]
    np.testing.assert_allclose(before, before[0], atol=1e-6, rtol=0)
    assert before[0] > 0.999
    assert p_on(trust, evidence, 60.1) < 1e-6


def test_an_uncertain_end_follows_its_law() -> None:
    evidence, trust = states_of(("a", True, 0.0, 60.0, 5.0)), reliable()
    for at in (40.0, 55.0, 60.0, 70.0):
        assert p_on(trust, evidence, at) == pytest.approx(1.0 - below((60.0, 5.0), at), abs=1e-5)
    table = trust.posterior(evidence.question("e", "away"), at=55.0).ends
    assert table["end"].tolist() == ["never on", "stated", "not stated"]
    assert table["probability"].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        table.loc[1, ["lower", "median", "upper"]].astype(float), [51.78, 60.0, 68.22], atol=0.02
    )


def test_an_end_that_nobody_stated_fades_by_the_mean_duration() -> None:
    evidence, trust = states_of(("a", True, 0.0, None, None)), reliable()
    mean = np.exp(trust.flat["state_log_duration"][:, 0])
    for at in (0.0, 3.0, 100.0):
        assert p_on(trust, evidence, at) == pytest.approx(np.exp(-at / mean).mean(), abs=1e-5)


def test_later_evidence_says_when_it_ended() -> None:
    evidence = states_of(("a", True, 0.0, None, None), ("b", False, 10.0, None, None), ("c", True, 4.0, None, None))
    trust, question = reliable(), evidence.question("e", "away")
    table = trust.posterior(question, at=7.0).ends
    assert table["probability"].iloc[-1] == pytest.approx(1.0, abs=1e-6)
    assert 4.0 < table["lower"].iloc[-1] < table["upper"].iloc[-1] < 10.0
    assert p_on(trust, evidence, 3.9) > 1 - 1e-6 > 0.9 > p_on(trust, evidence, 7.0) > 0.1 > p_on(trust, evidence, 11.0)
    known = trust.posterior(question, at=7.0, known_by=5.0)
    mean = np.exp(trust.flat["state_log_duration"][:, 0])
    # What is known by then weighs the draws too.
    weight = np.exp(-4.0 / mean)
    assert known.probabilities[True] == pytest.approx((weight * np.exp(-3.0 / mean) / weight).mean(), abs=1e-5)


def test_single_beliefs_are_those_of_the_batch() -> None:
    evidence, trust = case(3, "echoes")
    for at in (2.0, 9.0):
        beliefs = trust.posteriors(evidence, at=at)
        table = beliefs.probabilities.assign(support=beliefs.support, sd=beliefs.sd)
        assert len(beliefs.frame) == len(evidence.questions)
        for index in of_states(evidence)[2:3]:
            question = evidence.question(*evidence.questions.iloc[index])
            belief = trust.posterior(question, at=at)
            mine = table[(table["entity"] == question.entity) & (table["attribute"] == "away")].set_index("answer")
            assert belief.answers == (True, False) and mine.index.tolist() == [True, False]
            np.testing.assert_allclose(belief.probabilities, mine["probability"], atol=SINGLE)
            assert belief.effective_claims == pytest.approx(mine["support"][belief.answer], abs=10 * SINGLE)
            assert belief.path.shape == (len(question) + 2, 2)
            np.testing.assert_allclose(belief.path.sum(1), 1.0)
            total, p = belief.points["points"].sum(), belief.probability
            assert total == pytest.approx(np.log(p) - np.log1p(-p) if p < 1 else np.inf, abs=1e-6)
            assert belief.ends["probability"].sum() == pytest.approx(1.0)


def test_what_is_settled_holds_at_its_time() -> None:
    evidence, trust = case(3, "echoes")
    on = []
    for at in (2.0, 3.0, 6.0, 7.0, 10.0, 12.0):
        table = trust.posteriors(evidence, at=at).probabilities
        on.append(table[(table["attribute"] == "away") & (table["answer"] == True)]["probability"].to_numpy())  # noqa: E712
    away, rejected = np.array(on).T[:2]
    np.testing.assert_allclose(away[[0, 1, 4, 5]], [1.0, 1.0, 0.0, 0.0], atol=SINGLE)
    assert 0.0 < away[2] < 1.0
    np.testing.assert_allclose(rejected[3:], 0.0, atol=SINGLE)
    assert rejected[2] > 0.0


def test_dates_and_the_order_of_rows() -> None:
    rows = [("a", True, "2026-03-01", "2026-03-20", 1.0), ("b", True, "2026-03-05", None, None)]
    evidence, trust = states_of(*rows), reliable()
    belief = trust.posterior(evidence.question("e", "away"), at="2026-03-10")
    assert belief.probabilities[True] > 0.99
    stated = belief.ends.iloc[1]
    assert stated["until"] == pd.Timestamp("2026-03-20") and abs((stated["median"] - stated["until"]).days) <= 1
    turned = states_of(*rows[::-1])
    assert p_on(trust, turned, "2026-03-19") == pytest.approx(p_on(trust, evidence, "2026-03-19"), abs=1e-6)
    numbers = states_of(("a", True, 0.0, 19.0, 1.0), ("b", True, 4.0, None, None))
    assert p_on(trust, numbers, 18.0) == pytest.approx(p_on(trust, evidence, "2026-03-19"), abs=1e-6)


def test_a_copy_of_an_end_is_no_second_statement() -> None:
    """Two equal dates from one channel are one; that they agree on the date makes a copy likelier."""
    model = nous.TrustModel(shapes={"away": nous.WhileTrue()}, origin=nous.Origin(strong="same_channel", lag=False))
    trust = model.default_trust(draws=50)
    fresh = {}
    for until in (None, 30.0):
        evidence = states_of(("a", True, 0.0, until, None), ("b", True, 1.0, until, None), channel="c")
        fresh[until] = trust.posterior(evidence.question("e", "away")).origins.iloc[1, 0]
    assert fresh[30.0] < fresh[None] < 1.0
    # Another date is no copy.
    evidence = states_of(("a", True, 0.0, 30.0, None), ("b", True, 1.0, 31.0, None), channel="c")
    assert trust.posterior(evidence.question("e", "away")).origins.iloc[1, 0] > 0.9


def test_a_repetition_that_is_given_adds_nothing_unless_it_states_another_end() -> None:
    trust = nous.TrustModel(shapes={"away": nous.WhileTrue()}).default_trust(draws=20)
    rows = [("a", True, 0.0, 30.0, None), ("b", True, 1.0, 30.0, None), ("b", True, 2.0, 40.0, None)]
    evidence = states_of(*rows, claim=["x", "y", "z"], origin=[None, "x", "x"])
    belief = trust.posterior(evidence.question("e", "away"), at=35.0)
    assert belief.status == ("", "repeats x (given)", "")
    np.testing.assert_array_equal(belief.path[1], belief.path[2])
    assert belief.path[3, 0] > belief.path[2, 0] + 0.05


def test_a_saved_trust_answers_the_same(tmp_path: Any) -> None:
    evidence, trust = case(3, "echoes")
    trust.save(tmp_path / "trust.nc")
    loaded = nous.load(tmp_path / "trust.nc")
    question = evidence.question("e2", "away")
    for name in ("probabilities", "ends"):
        found, expected = (getattr(one.posterior(question, at=6.0), name) for one in (loaded, trust))
        assert found.equals(expected)


WRONG = {
    "'yes' is no value of what is true for a while": [("a", "yes", 0.0, None, None)],
    "column 'until': an end before the claim itself in 1 claims": [("a", True, 5.0, 4.0, None)],
    "column 'until': an end of what is claimed not to be so in 1 claims": [("a", False, 5.0, 6.0, None)],
    "column 'until_sd': a negative number in 1 claims": [("a", True, 5.0, 6.0, -1.0)],
    "column 'until_sd': a spread without an end in 1 claims": [("a", True, 5.0, None, 1.0)],
    "column 'until': dates without a time zone, where 'time' has numbers": [("a", True, 5.0, "2026-03-01", None)],
    "claims: column 'time' is missing in 1 rows": [("a", True, None, None, None), ("a", True, 1.0, None, None)],
}


@pytest.mark.parametrize("words", WRONG)
def test_words_for_bad_claims(words: str) -> None:
    with pytest.raises(nous.ModelError, match=words):
        reliable().posterior(states_of(*WRONG[words]).question("e", "away"))


def test_states_as_text_are_states() -> None:
    """As a csv file holds them whose column has other values too."""
    rows = [("a", True, 0.0, 4.0, None), ("b", False, 2.0, None, None)]
    texts = [(source, str(says), *rest) for source, says, *rest in rows]
    found = [reliable().posterior(states_of(*some).question("e", "away")).probabilities for some in (rows, texts)]
    pd.testing.assert_series_equal(*found)


def test_words_for_other_bad_input() -> None:
    one = states_of(("a", True, 0.0, 4.0, None))
    question, shapes = one.question("e", "away"), {"away": nous.WhileTrue()}
    with pytest.raises(nous.ModelError, match="1 soft claims on what is true for a while"):
        nous.TrustModel(shapes=shapes).fit(nous.Evidence(one.claims.assign(weight=0.5)))
    with pytest.raises(nous.ModelError, match="has no list of answers"):
        reliable(answers={"away": [True, False]}).posterior(question)
    three = states_of(*(("a", True, 0.0, end, None) for end in (4.0, 5.0, 6.0)))
    with pytest.raises(nous.ModelError, match="plausible ends is at least that of the stated ones"):
        reliable(answers={"away": 2}).posterior(three.question("e", "away"))
    back = pd.DataFrame({"entity": "e", "attribute": "away", "value": [False, True], "time": [5.0, 6.0]})
    with pytest.raises(nous.ModelError, match="does not come back"):
        reliable().posterior(one.with_settled(back).question("e", "away"))
    undated = one.with_settled(back[["entity", "attribute", "value"]].iloc[:1])
    with pytest.raises(nous.ModelError, match="settled: column 'time' is missing"):
        reliable().posterior(undated.question("e", "away"))


# ---------------------------------------------------------------------------------------------------- negative controls

CELLS, FACTORS, EITHER = periods.cells_of, period_arrays.factors, shaped_models.either_origin


def no_cut(states: Any, questions: Any, at: Any) -> Any:
    """The intervals are those between claims, whatever time is asked about."""
    cells = CELLS(states, questions, states.start[questions])
    of = np.searchsorted(questions, cells.question)
    return cells._replace(asked=np.maximum(at, states.start[questions])[of])


def one_end_a_claim(states: Any, questions: Any, at: Any) -> Any:
    """The interval of an end says nothing about the claims: on at all of them."""
    cells = CELLS(states, questions, at)
    return cells._replace(low=np.where(cells.high > cells.low, cells.high, cells.low))


def test_an_end_that_is_certain_to_lie_elsewhere_has_a_bound() -> None:
    """A stated end long past in a state that is on: nothing of it is left, and the belief says so without failing."""
    claims = pd.DataFrame(
        {"entity": "ann", "attribute": "away", "value": True, "source": ["s0", "s1"], "time": [0.0, 1.0]}
    ).assign(until=[10.0, np.nan], until_sd=[1.0, np.nan])
    model = nous.TrustModel(
        shapes={"away": nous.WhileTrue()}, answers={"away": 3}, errors=nous.Errors(difficulty=False)
    )
    trust = model.default_trust(draws=5)
    evidence = nous.Evidence(claims).settle("ann", "away", True, time=500.0)
    belief = trust.posterior(evidence.question("ann", "away"), at=-60.0)
    assert belief.probability == pytest.approx(1.0, abs=0.05)
    ends = belief.ends
    assert (ends["lower"].dropna() <= ends["upper"].dropna()).all()


def test_sums_in_single_precision_are_no_more_than_certain() -> None:
    evidence, trust = case(3, "echoes", questions=1)
    encoded = trust.encoded(evidence)
    sizes, at = np.diff(encoded.cells.offset)[:1], np.array([2.0])
    draws = np.full((1, int(sizes[0])), 1.0 + 1e-7)
    shown, _ = by_state(encoded.cells.periods, np.array([0]), sizes, at, draws, np.zeros(int(sizes[0])))
    assert shown.shape == (1, 2) and shown.max() == 1.0


def any_end(states: Any, says: Any, stated: Any, on: Any, component: Any, ends: Any) -> Any:
    """Whatever end is stated counts as the true one."""
    return FACTORS(states, says, stated, on, np.where(stated > 0, stated, component), ends)


def no_copies(xp: Any, sizes: Any, data: Any, echo: Any, log_fresh: Any, slot: Any) -> Any:
    return EITHER(xp, sizes, data, echo._replace(repeated=0.0 * echo.repeated + 1e-30), log_fresh, slot)


def stays_for_ever(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return MASS(xp, layout, data, theta | {"log_duration": theta["log_duration"] + 5.0})


def no_density(xp: Any, layout: Any, data: Any, theta: Any) -> Any:
    return 0.0 * data["periodcell_lead"]


MASS = while_true.log_mass
BROKEN: dict[str, list[tuple[Any, str, Any]]] = {
    "the cut at the time asked about": [(periods, "cells_of", no_cut)],
    "one end for all claims": [(periods, "cells_of", one_end_a_claim)],
    "the stated end": [(period_arrays, "factors", any_end)],
    "copies": [(shaped_models, "either_origin", no_copies)],
    "mean duration": [(while_true, "log_mass", stays_for_ever)],
    "density of stated ends": [
        (while_true, "log_stated", lambda xp, layout, data, theta: 0.0 * data["periodcell_lead"])
    ],
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, trust = case(3, "echoes", questions=6)
    expected = hand(evidence, trust, 6.0)
    for one in BROKEN[rule]:
        monkeypatch.setattr(*one)
    found = summed(marginal(evidence, trust, 6.0))
    both = np.isfinite(found) & np.isfinite(expected)
    assert np.abs(found - expected)[both].max() > 1e-3
