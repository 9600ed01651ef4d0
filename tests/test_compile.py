"""From tables to arrays: sizes, order of rows, sums along chains, long questions, padding, batches of a fit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpy.typing import NDArray
from random_evidence import random_case

import nousppl as nous
from nousppl import asking, fitting, padding
from nousppl.asking import Answers, ready
from nousppl.blueprint import draw_up
from nousppl.compile import Problem, compile_problem, difficulty_nodes
from nousppl.encode import Encoded
from nousppl.inference.backend import JAX
from nousppl.inference.exact import posterior_cells
from nousppl.models.origin import before, running_sums, strong_sums
from nousppl.models.program import log_likelihood
from nousppl.trust import Trust

Floats = NDArray[np.float64]


def compiled(trust: Trust, evidence: nous.Evidence) -> tuple[Encoded, Problem]:
    encoded = trust.encoded(evidence)
    return encoded, compile_problem(encoded, np.arange(len(evidence.questions)), trust.model.order_seed)


def table(n: int, values: int = 3, sources: int = 5, seed: int = 0, **columns: Any) -> pd.DataFrame:
    """Claims about one question at different times."""
    rng = np.random.default_rng(seed)
    frame = {
        "entity": "e",
        "attribute": "x",
        "value": rng.choice([f"v{i:03d}" for i in range(values)], n),
        "source": rng.choice([f"s{i}" for i in range(sources)], n),
        "channel": rng.choice(["mail", "web"], n),
        "time": np.sort(rng.uniform(0, 50, n)),
    }
    return pd.DataFrame(frame | columns)


# ------------------------------------------------------------------------------------------------- sizes, immutable


def test_a_small_problem_by_hand() -> None:
    frame = pd.DataFrame(
        [
            ("a", "c1", "x", "s", 1.0, 1.0),
            ("a", "c2", "y", "t", 2.0, 1.0),
            ("a", "c3", "x", "t", 3.0, 0.6),
            ("a", "c3", "y", "t", 3.0, 0.3),
            ("b", "c4", "x", "s", 1.0, 1.0),
            ("b", "c5", "x", "t", 1.0, 1.0),
        ],
        columns=["entity", "claim", "value", "source", "time", "weight"],
    ).assign(attribute="q")
    evidence = nous.Evidence(frame)
    model = nous.TrustModel(origin=nous.Origin(orders=3), answers={"q": 5})
    encoded, problem = compiled(model.default_trust(draws=1), evidence)
    layout = problem.layout
    # Question b has a tie, and so three orders.
    assert (layout.questions, layout.instances, layout.slots, layout.rows) == (2, 1 + 3, 3 + 3 * 2, 4 + 3 * 2)
    assert (layout.cells, layout.icells) == (3 + 2, 3 + 3 * 2)
    assert layout.soft and layout.orders and layout.origins and layout.open and not layout.notes
    assert list(encoded.coded.claim_id[problem.claims[:3]]) == ["c1", "c2", "c3"]
    assert sorted(encoded.coded.claim_id[problem.claims[3:]]) == ["c4", "c5"]
    assert list(encoded.cells.value[problem.cells]) == ["x", "y", "other", "x", "other"]
    assert list(encoded.cells.count[problem.cells]) == [1, 1, 3, 1, 4]
    np.testing.assert_allclose(np.exp(problem.data["cell_log_mass"]), [0.2, 0.2, 0.6, 0.2, 0.8])
    assert sorted(problem.slot_claim[:3]) == [0, 1, 2] and sorted(problem.slot_claim[3:]) == [3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize("seed", range(8))
def test_every_array_has_the_size_that_the_layout_says(seed: int) -> None:
    evidence, model = random_case(seed, questions=4)
    _, problem = compiled(model.default_trust(draws=1), evidence)
    sizes = problem.layout._asdict()
    roomy = problem.layout._replace(**{name: sizes[name] + 5 if sizes[name] else 0 for name in padding.SIZES})
    padded = padding.pad(problem, roomy)
    for name, array in problem.data.items():
        dimension = padding._DIMENSION.get(name) or padding._DIMENSION.get(name.split("_")[0])
        if dimension is None:
            assert name in ("nodes", "node_log_weights") or name.startswith("claim_")
            continue
        assert array.shape[-1] == sizes[dimension], name
        assert padded[name].shape[-1] == sizes[dimension] + 5 * (sizes[dimension] > 0), name


def test_a_problem_cannot_be_changed() -> None:
    evidence, model = random_case(0, questions=2)
    _, problem = compiled(model.default_trust(draws=1), evidence)
    arrays = [*problem.data.values(), problem.questions, problem.claims, problem.cells, problem.slot_claim]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'claims'"):
        problem.claims = problem.cells  # type: ignore[misc]


# ----------------------------------------------------------------------------------------------- arrival of the rows


def untidy(ids: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ties, missing times, exact duplicates, twins that differ in their channel only, soft claims."""
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "entity": rng.choice(["e", "f", "g"], n),
            "attribute": "x",
            "value": rng.choice(["a", "b", "c"], n),
            "source": rng.choice(["s", "t", "u"], n),
            "channel": rng.choice(["mail", "web"], n),
            "text": rng.choice(["it is late", "late it is", "no news"], n),
            "time": np.where(rng.random(n) < 0.3, np.nan, rng.integers(0, 4, n).astype(float)),
        }
    )
    if ids:
        frame = frame.assign(claim=[f"c{i:02d}" for i in range(n)], weight=1.0)
        soft = frame.iloc[::7].assign(weight=0.3, value=frame["value"].iloc[::7].map({"a": "b", "b": "c", "c": "a"}))
        frame.loc[frame.index[::7], "weight"] = 0.6
        frame = pd.concat([frame, soft], ignore_index=True)
    settled = pd.DataFrame({"entity": ["g", "e"], "attribute": "x", "value": ["a", "b"], "verdict": ["true", "false"]})
    return frame, settled


@pytest.mark.parametrize("ids", [True, False])
def test_the_order_of_the_rows_changes_no_bit(ids: bool) -> None:
    frame, settled = untidy(ids)
    model = nous.TrustModel(origin=nous.Origin(strong="same_source + same_channel", text="text"), answers={"x": 6})
    trust = model.default_trust(draws=20)
    rng = np.random.default_rng(1)
    evidences = [nous.Evidence(frame, settled=settled)]
    for _ in range(3):
        rows, facts = rng.permutation(len(frame)), rng.permutation(len(settled))
        evidences.append(nous.Evidence(frame.iloc[rows], settled=settled.iloc[facts]))
    assert np.isnan(evidences[0].coded.claim_time).any()
    batched = [trust.posteriors(evidence) for evidence in evidences]
    single = [trust.posterior(evidence.question("e", "x")) for evidence in evidences]
    for beliefs, belief in zip(batched[1:], single[1:], strict=True):
        for name in ("probability", "sd", "support"):
            np.testing.assert_array_equal(getattr(beliefs, name), getattr(batched[0], name))
        np.testing.assert_array_equal(belief.samples, single[0].samples)
        np.testing.assert_array_equal(belief.log_odds, single[0].log_odds)
        np.testing.assert_array_equal(belief.origins.to_numpy(), single[0].origins.to_numpy())
        assert list(belief.origins.index) == list(single[0].origins.index)


def test_a_question_is_answered_alone_as_among_others() -> None:
    """The random orders of a question do not depend on what else is asked."""
    frame, settled = untidy(ids=False)
    trust = nous.TrustModel(answers={"x": 6}).default_trust(draws=20)
    together = trust.posteriors(nous.Evidence(frame, settled=settled)).probabilities
    alone = trust.posteriors(nous.Evidence(frame[frame["entity"] == "f"])).probabilities
    np.testing.assert_allclose(together[together["entity"] == "f"]["probability"], alone["probability"], atol=1e-6)


# ------------------------------------------------------------------------------------------------ sums along chains


def test_running_sums_are_those_of_a_double_loop() -> None:
    rng = np.random.default_rng(0)
    key = np.sort(rng.integers(0, 6, 200))
    position = np.arange(200) - np.searchsorted(key, key)
    time = np.concatenate([np.sort(rng.uniform(0, 30, count)) for count in np.bincount(key) if count])
    values, rate = rng.uniform(size=200), 0.1
    with jax.enable_x64(True):
        args = (jnp.asarray(values), jnp.asarray(position), jnp.asarray(time))
        faded = running_sums(JAX, *args, rate, rounds=8)
        plain = running_sums(JAX, args[0], args[1], None, rate, rounds=8)
        sums = {
            (True, True): faded,
            (False, True): before(JAX, faded, args[1], args[2], rate),
            (True, False): plain,
            (False, False): before(JAX, plain, args[1], None, rate),
        }
        for (inclusive, fading), found in sums.items():
            expected = np.zeros(200)
            for j in range(200):
                for k in range(j + inclusive):
                    if key[k] == key[j]:
                        expected[j] += values[k] * (np.exp(-rate * (time[j] - time[k])) if fading else 1.0)
            np.testing.assert_allclose(found, expected, atol=1e-12)


def one_by_one(encoded: Encoded, problem: Problem, weights: dict[int, float], rate: float) -> list[list[float]]:
    """Strong weight before each claim and of same-value claims, and number of same-value claims, by a double loop."""
    coded = encoded.coded
    codes = [column[problem.claims] for column in encoded.features]
    value, time = coded.row_answer[problem.claims], coded.claim_time[problem.claims]
    out = []
    for j in range(len(value)):
        total, same, count = 0.0, 0.0, 0.0
        for k in range(j):
            shared = sum(1 << f for f, code in enumerate(codes) if code[j] == code[k])
            fading = float(np.exp(-rate * (time[j] - time[k])))
            total += weights.get(shared, 0.0) * fading
            same += weights.get(shared, 0.0) * fading * (value[j] == value[k])
            count += fading * (value[j] == value[k])
        out.append([total, same, count])
    return out


@pytest.mark.parametrize("lag", [True, False])
def test_strong_weights_are_those_of_a_double_loop(lag: bool) -> None:
    strong = nous.Origin(strong="same_source + same_channel", lag=lag)
    trust = nous.TrustModel(origin=strong, answers={"x": 9}).default_trust(draws=1)
    encoded, problem = compiled(trust, nous.Evidence(table(120)))
    source, channel, rate = 2.0, 0.7, 0.05 if lag else 0.0
    weights = {1: source, 2: channel, 3: source * channel}
    with jax.enable_x64(True):
        data = {name: jnp.asarray(array) for name, array in problem.data.items()}
        moebius = [source, channel, source * channel - source - channel]
        found = strong_sums(JAX, problem.layout, data, {"strong": moebius, "rate": rate})
        np.testing.assert_allclose(np.stack(found, 1), one_by_one(encoded, problem, weights, rate), atol=1e-10)


def test_pairs_are_listed_by_recency_and_never_by_value() -> None:
    """Whatever others said in between, a claim is compared with the same-value claims among the last five, no more."""
    frame = table(80, values=2, text="so it is")
    origin = nous.Origin(text="text", max_listed=5)
    trust = nous.TrustModel(origin=origin, answers={"x": 9}).default_trust(draws=1)
    for seed in range(3):
        frame["value"] = np.random.default_rng(seed).choice(["a", "b"], 80, p=[0.8, 0.2])
        encoded, problem = compiled(trust, nous.Evidence(frame))
        value = encoded.coded.row_answer[problem.claims]
        expected = {(j, k) for j in range(80) for k in range(max(0, j - 5), j) if value[j] == value[k]}
        pairs = list(zip(problem.data["pair_row"], problem.data["pair_origin_slot"], strict=True))
        assert len(pairs) == len(expected) and set(pairs) == expected


def test_only_texts_are_capped() -> None:
    """Weights and counts reach back to the first claim, however few pairs of texts are listed."""
    frame = table(200, text="so it is")
    beliefs = [
        nous.TrustModel(origin=nous.Origin(text=text, max_listed=1), answers={"x": 9}).default_trust(draws=5)
        for text in ("text", None)
    ]
    problems = [compiled(trust, nous.Evidence(frame))[1] for trust in beliefs]
    assert problems[0].layout.pairs < 200
    for name in ("chain_order", "chain_position", "chain_time"):
        np.testing.assert_array_equal(problems[0].data[name], problems[1].data[name])
    assert problems[0].data["chain_position"][0].max() == 199


# ------------------------------------------------------------------------------------------------- long, wide questions


def test_many_named_answers_cost_little_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more than 64 named answers the rarer ones keep their own popularity where they are the truth: their share of
    the belief may be off by a factor, and is tiny."""
    rng = np.random.default_rng(0)
    frame = table(600, values=300, sources=40)
    frame["value"] = np.where(rng.random(600) < 0.2, "v000", frame["value"])
    trust = nous.TrustModel(answers={"x": 400}).default_trust(draws=20)
    evidence = nous.Evidence(frame)
    assert len(evidence.coded.answers) > 200
    tracked = trust.posteriors(evidence)
    monkeypatch.setattr("nousppl.compile.TRACKED", 10_000)
    whole = trust.posteriors(evidence)
    assert compiled(trust, evidence)[1].layout.entries > 30_000
    assert np.abs(tracked.probability - whole.probability).max() < 2e-3


LONG = """
import sys
import numpy as np, pandas as pd
import nousppl as nous
n, ask = int(sys.argv[1]), sys.argv[2] == "ask"
rng = np.random.default_rng(0)
frame = pd.DataFrame({"entity": "e", "attribute": "x", "value": "a", "source": "s", "time": np.arange(n) / 1000})
if ask:
    frame["value"] = rng.choice(list("abcde"), n, p=[0.8, 0.05, 0.05, 0.05, 0.05])
    frame["source"] = rng.choice([f"s{i}" for i in range(1000)], n)
evidence = nous.Evidence(frame)
trust = nous.TrustModel().default_trust(draws=40)
if ask:
    one = trust.posterior(evidence.question("e", "x"))
    assert len(one.path) == n + 2 and np.isfinite(one.log_odds).all()
    many = trust.posteriors(evidence, draws=len(one.samples)).probabilities.set_index("answer")["probability"]
    assert abs(one.probabilities - many).max() < 0.01
else:
    from nousppl.compile import compile_problem
    layout = compile_problem(trust.encoded(evidence), np.array([0])).layout
    assert layout.slots == n and layout.entries == n
# Of this program: ru_maxrss begins with that of the process that has started it.
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 2**20)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "what", "gigabytes"),
    [(100_000, "ask", 2.5), pytest.param(1_000_000, "compile", 3.0, marks=pytest.mark.long)],
)
def test_memory_of_long_questions_is_bounded(claims: int, what: str, gigabytes: float) -> None:
    """A hundred thousand claims on one question are answered; a flood of a million repeats is compiled."""
    run = subprocess.run(
        [sys.executable, "-c", LONG, str(claims), what], capture_output=True, text=True, check=False, timeout=500
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert float(run.stdout.split()[-1]) < gigabytes


@pytest.mark.parametrize(("claims", "ceiling"), [(8, None), (300, 0.6), (2000, None)])
def test_difficulty_has_enough_nodes(claims: int, ceiling: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    priors = {"errors": {"difficulty_sd": dist.LogNormal(0.0, 0.01)}}
    errors = nous.Errors(popularity=False, difficulty=True)
    model = nous.TrustModel(origin=None, errors=errors, answers={"x": ["v000", "v001", "v002"]}, priors=priors)
    frame = table(claims, sources=300) if ceiling is None else table(claims, sources=300, ceiling=ceiling)
    trust, evidence = model.default_trust(draws=4), nous.Evidence(frame)
    found = trust.posteriors(evidence).probability
    monkeypatch.setattr("nousppl.compile.difficulty_nodes", lambda n, smooth=True: 10 * difficulty_nodes(n, smooth) + 1)
    np.testing.assert_allclose(found, trust.posteriors(evidence).probability, atol=1e-3 if ceiling else 2e-5)


# --------------------------------------------------------------------------------------------------- padding, chunks


def cells_in(trust: Trust, evidence: nous.Evidence, layout: Any = None) -> Floats:
    """(draws, cells) log posterior with the problem's own sizes, or padded."""
    encoded, problem = compiled(trust, evidence)
    layout = problem.layout if layout is None else layout(problem.layout)
    size = max(layout.slots, len(problem.claims))
    data, draws = ready(trust.blueprint, encoded, problem, layout, trust.asked(), size)
    logs, _ = posterior_cells(layout, trust.blueprint.plan.features, data, draws, True)
    return np.exp(logs[:, : problem.layout.cells])


@pytest.mark.parametrize("seed", [0, 2])
def test_padding_changes_no_belief(seed: int) -> None:
    evidence, model = random_case(seed, questions=1, claims=5)
    trust = model.default_trust(draws=3)
    exact = cells_in(trust, evidence)
    np.testing.assert_allclose(exact.sum(1), 1.0, atol=1e-6)
    for padded in (padding.ladder, lambda layout: padding.rounded([layout, padding.ladder(layout)])):
        np.testing.assert_allclose(cells_in(trust, evidence, padded), exact, atol=2e-6)


def test_padding_of_many_questions_changes_no_belief() -> None:
    evidence, model = random_case(3, questions=30, soft=True, undated=True)
    trust = model.default_trust(draws=3)
    padded = cells_in(trust, evidence, lambda layout: padding.rounded([layout]))
    np.testing.assert_allclose(padded, cells_in(trust, evidence), atol=2e-6)


def test_chunks_change_no_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, model = random_case(2, questions=40, difficulty=False)
    trust = model.default_trust(draws=3)
    whole = trust.posteriors(evidence)
    monkeypatch.setattr(asking, "CHUNK", 200)
    answers = Answers(trust.blueprint, trust.encoded(evidence), trust.asked(), trust.model.order_seed)
    pieces = list(asking.chunks(trust.encoded(evidence), np.arange(40), answers._chunk()))
    assert len(pieces) > 1 and np.concatenate(pieces).tolist() == list(range(40))
    parts = trust.posteriors(evidence)
    for name in ("probability", "sd", "support"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=3e-6)


def test_parts_of_a_long_question_change_no_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of draws and of nodes, which bound the memory, against all at once."""
    evidence, model = random_case(6, questions=1, claims=5, origin=True, difficulty=True, soft=True, undated=True)
    trust, question = model.default_trust(draws=7), evidence.question("e00", "x")
    whole = trust.posterior(question)
    expected = {name: getattr(whole, name) for name in ("samples", "path", "log_odds", "fresh", "origins")}
    layout = compiled(trust, evidence)[1].layout
    one = layout.slots * layout.cells
    for numbers, blocks in ((6 * one, (1, 6)), (4 * one * layout.nodes, (4, layout.nodes))):
        monkeypatch.setattr(asking, "NUMBERS", numbers)
        question_at = asking.OneQuestion(
            trust.blueprint, trust.encoded(evidence), trust.asked(), compiled(trust, evidence)[1]
        )
        assert (question_at.draw_step, question_at.node_step) == blocks
        parts = trust.posterior(question)
        for name, value in expected.items():
            np.testing.assert_allclose(getattr(parts, name), value, rtol=2e-5, atol=2e-6)


# ------------------------------------------------------------------------------------------------ batches of a fit


def test_batches_with_and_without_long_questions_are_laid_out_alike() -> None:
    rng = np.random.default_rng(0)
    sizes = np.r_[300, np.full(60, 4)]
    frame = pd.DataFrame({"entity": np.repeat([f"e{i:02d}" for i in range(len(sizes))], sizes), "attribute": "x"})
    frame["source"], frame["value"] = rng.choice(list("stuvw"), len(frame)), rng.choice(list("abc"), len(frame))
    frame["time"] = np.arange(len(frame), dtype=float)
    trust = nous.TrustModel(answers={"x": 5}).fit(
        nous.Evidence(frame), nous.SVI(batch_claims=200, steps=100, draws=10), learn_from="all"
    )
    assert "batches" in trust.status and np.isfinite(trust.sample_stats["loss"]).all()


def test_batches_cover_each_question_once_with_the_right_weight() -> None:
    features = dict.fromkeys(("soft", "text", "origin", "bias", "closed", "popularity"), True)
    evidence, model = random_case(11, questions=50, difficulty=False, rejected=False, **features)
    blueprint = draw_up(model, evidence)
    encoded = blueprint.encode(evidence)
    everything = fitting.learned_questions(encoded, "all")
    parts = fitting.split(everything, encoded, batch_claims=80, seed=0)
    assert len(parts) > 3 and sorted(np.concatenate(parts)) == list(range(50))
    assert fitting.split(everything, encoded, batch_claims=10_000, seed=0)[0].tolist() == list(range(50))

    rng = np.random.default_rng(0)
    values = {
        s.name: jnp.asarray(np.abs(rng.normal(size=() if s.size is None else s.size)) + 0.1)
        for s in blueprint.plan.sites
    }

    def total(questions: list[NDArray[np.int64]]) -> list[float]:
        problems = [compile_problem(encoded, q, 0) for q in questions]
        layout, shared, stacked = fitting.batched(blueprint, encoded, problems)
        batches = [shared | {n: jnp.asarray(a[i]) for n, a in stacked.items()} for i in range(len(questions))]
        density = jax.jit(jax.value_and_grad(lambda v, data: log_likelihood(JAX, blueprint.plan, layout, data, v)))
        found = [density(values, data) for data in batches]
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
        return [float(value) for value, _ in found]

    whole, scaled = total([everything]), total(parts)
    assert np.mean(scaled) == pytest.approx(whole[0], rel=1e-4)
    assert np.std(scaled) > 0.01 * abs(whole[0])


@pytest.mark.parametrize("seed", range(4))
def test_rows_lie_in_the_order_of_the_chains_of_all_claims(seed: int) -> None:
    """So that sums over what came before in a question gather nothing."""
    evidence, model = random_case(seed, questions=3, claims=5, soft=True, undated=True)
    encoded = draw_up(model, evidence).encode(evidence)
    problem = compile_problem(encoded, np.arange(encoded.parts.questions))
    np.testing.assert_array_equal(problem.data["chain_order"][0], np.arange(problem.layout.rows))
    assert (problem.data["chain_order"][1] != np.arange(problem.layout.rows)).any()
