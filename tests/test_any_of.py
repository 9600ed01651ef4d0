"""Any of several items: the marginal, the readable program and brute force agree, and lists do what lists should."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from test_five_ways import apart, by_marginal
from test_three_ways import grid_of, joint_by_reference, joint_by_witness, written

import nousppl as nous
from nousppl.inference.backend import JAX
from nousppl.models import any_of, shaped
from nousppl.trust import Trust

ITEMS = ["eggs", "milk", "nuts"]
SINGLE, DOUBLE = 1e-5, 1e-10
MODELS: dict[str, dict[str, Any]] = {
    "plain": {"origin": None},
    "echoes": {"origin": nous.Origin(strong="same_source + same_channel")},
    "text": {"origin": nous.Origin(text="wording", lag=False)},
    "closed": {"answers": {"allergy": [*ITEMS, "soy"], "colour": ["red", "blue"]}, "errors": nous.Errors(bias="class")},
    "unordered": {"origin": nous.Origin(order="unknown", orders=2)},
    "trap": {"errors": nous.Errors(trap=True)},
    "passing": {},
    "changing neighbours": {"change": "1"},
}


def random_lists(seed: int, questions: int) -> nous.Evidence:
    """Questions about allergies, with lists, denials, notes of one's own and settled facts, beside ordinary ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for q, j in itertools.product(range(questions), range(4)):
        named = [item for item in ITEMS if rng.random() < 0.5]
        denied = [item for item in ITEMS if item not in named and rng.random() < 0.3]
        rows.append(
            {
                "entity": f"e{q}",
                "attribute": "allergy",
                "value": ";".join(rng.permutation(named)) or "none",
                "denies": "; ".join(denied) or None,
                "source": f"s{rng.integers(3)}",
                "channel": f"c{rng.integers(2)}",
                "wording": " ".join(rng.choice(["is", "allergic", "to", "perhaps"], 3)),
                "time": float(j + rng.integers(2)),
                "derived": bool(rng.random() < 0.15),
            }
        )
        value = str(rng.choice(["red", "blue"]))
        rows.append(rows[-1] | {"attribute": "colour", "value": value, "denies": None, "derived": False})
    settled = pd.DataFrame(
        [
            ("e0", "allergy", "milk; eggs", 9.0, True),
            ("e1", "allergy", "nuts", 9.0, False),
            ("e2", "colour", "red", 9.0, True),
        ],
        columns=["entity", "attribute", "value", "time", "verdict"],
    )
    return nous.Evidence(pd.DataFrame(rows), settled=settled)


def case(seed: int, name: str, questions: int = 4) -> tuple[nous.Evidence, Trust]:
    evidence = random_lists(seed, questions)
    if name == "passing":
        lasting = np.random.default_rng(seed).choice([0.0, 0.4, 1.0], len(evidence.claims))
        evidence = nous.Evidence(evidence.claims.assign(lasting=lasting), settled=evidence.settled)
    given = {"shapes": {"allergy": nous.AnyOf()}, "errors": nous.Errors(difficulty=False)} | MODELS[name]
    return evidence, nous.TrustModel(**given).default_trust(seed=seed, draws=1)


def of_lists(evidence: nous.Evidence) -> list[int]:
    return np.flatnonzero(evidence.questions["attribute"] == "allergy").tolist()


def brute(evidence: nous.Evidence, trust: Trust, joint: Any = joint_by_witness) -> NDArray[np.float64]:
    """log P(set, claims) of all sets of the questions about allergies, orders averaged."""
    out = []
    for index in of_lists(evidence):
        orders = written(trust, evidence, index)
        total = sum(joint(one, grid_of(trust, evidence, index)) for one in orders) / len(orders)
        with np.errstate(divide="ignore"):
            out.append(np.log(total))
    return np.concatenate(out)


def marginal(evidence: nous.Evidence, trust: Trust, xp: Any) -> NDArray[np.float64]:
    logs, cells = by_marginal(evidence, trust, xp), trust.encoded(evidence).cells.offset
    return np.concatenate([logs[cells[q] : cells[q + 1]] for q in of_lists(evidence)])


@pytest.mark.parametrize("name", MODELS)
def test_marginal_is_brute_force(name: str) -> None:
    evidence, trust = case(3, name)
    if name == "echoes":
        assert apart(marginal(evidence, trust, JAX), brute(evidence, trust)) < SINGLE
    with jax.enable_x64(True):
        assert apart(marginal(evidence, trust, JAX), brute(evidence, trust)) < DOUBLE


def test_five_ways_agree() -> None:
    torch = pytest.importorskip("torch")
    from test_five_ways import joint

    from nousppl.inference import torch_enumeration
    from nousppl.inference.torch_backend import Torch

    evidence, trust = case(4, "echoes", questions=2)
    with jax.enable_x64(True):
        expected = brute(evidence, trust)
        found = {
            "marginal, torch": marginal(evidence, trust, Torch(torch.float64)),
            "program, numpyro": brute(evidence, trust, joint_by_reference),
            "program, pyro": brute(
                evidence, trust, lambda one, grid: joint(torch_enumeration, one, grid, dtype=torch.float64)
            ),
        }
    assert {way: apart(logs, expected) < DOUBLE for way, logs in found.items()} == dict.fromkeys(found, True)


def test_probabilities_sum_to_one_over_all_lists() -> None:
    """Sum of P(claims) over every list of two items, named, denied or passed over, of three claims."""
    lists = []
    for state in itertools.product(range(3), repeat=2):
        named, denied = ([item for item, s in zip("ab", state, strict=True) if s == kind] for kind in (1, 2))
        lists.append((";".join(named) or "none", ";".join(denied)))
    rows = []
    for number, said in enumerate(itertools.product(lists, repeat=3)):
        for j, (value, denies) in enumerate(said):
            rows.append((f"e{number:03d}", "list", value, denies or None, f"s{j % 2}", float(j)))
    claims = pd.DataFrame(rows, columns=["entity", "attribute", "value", "denies", "source", "time"])
    model = nous.TrustModel(shapes={"list": nous.AnyOf()}, answers={"list": ["a", "b"]})
    evidence, trust = nous.Evidence(claims), model.default_trust(draws=2)
    logs = trust.log_likelihood(evidence).to_numpy().reshape(2, -1)
    np.testing.assert_allclose(np.exp(logs.astype(float)).sum(1), 1.0, rtol=1e-4)


def test_single_beliefs_are_those_of_the_batch() -> None:
    evidence, trust = case(5, "echoes")
    table = trust.posteriors(evidence).probabilities
    for index in of_lists(evidence):
        question = evidence.question(*evidence.questions.iloc[index])
        belief = trust.posterior(question)
        mine = table[(table["entity"] == question.entity) & (table["attribute"] == "allergy")]
        np.testing.assert_allclose(belief.whole.path[-1], mine["probability"], atol=SINGLE)
        assert belief.probabilities.index.tolist() == ITEMS
        total = belief.points[ITEMS].sum()
        open_ = (belief.probabilities > 0.0) & (belief.probabilities < 1.0)
        p = belief.probabilities[open_]
        np.testing.assert_allclose(total[open_], np.log(p) - np.log1p(-p), atol=1e-6)
        assert np.isinf(total[~open_]).all()
        log = belief.history()
        assert len(log) == 3 * (4 + len(question.settled)) and log["item"].tolist()[:3] == ITEMS
        last = log[log["event"] == "claim"].set_index("item")["posterior"].iloc[-3:]
        np.testing.assert_allclose(last[ITEMS], belief.probabilities, atol=1e-12)


def test_what_is_settled_is_certain() -> None:
    evidence, trust = case(3, "echoes")
    whole = trust.posterior(evidence.question("e0", "allergy"))
    assert whole.answer == ("eggs", "milk") and whole.probability == pytest.approx(1.0)
    assert trust.posterior(evidence.question("e1", "allergy")).probabilities["nuts"] == 0.0
    part = nous.TrustModel(shapes={"allergy": nous.AnyOf(settled="items")}).default_trust(draws=5)
    found = part.posterior(evidence.question("e0", "allergy")).probabilities
    assert found["milk"] == found["eggs"] == 1.0 and 0.0 < found["nuts"] < 1.0


def lists_of(*rows: tuple[str, str, str | None]) -> nous.Evidence:
    """Claims of one question: source, list, what is denied."""
    table = pd.DataFrame(rows, columns=["source", "value", "denies"])
    return nous.Evidence(table.assign(entity="e", attribute="allergy", time=np.arange(len(table), dtype=float)))


def believed(evidence: nous.Evidence, **given: Any) -> pd.Series:
    trust = nous.TrustModel(shapes={"allergy": nous.AnyOf()}, **given).default_trust(draws=50)
    return trust.posterior(evidence.question("e", "allergy")).probabilities


def test_silence_is_weak_evidence_and_a_denial_strong() -> None:
    before = believed(lists_of(("a", "milk; nuts", None)))["nuts"]
    silent = believed(lists_of(("a", "milk; nuts", None), ("b", "milk", None)))["nuts"]
    denied = believed(lists_of(("a", "milk; nuts", None), ("b", "milk", "nuts")))["nuts"]
    assert denied < silent - 0.1 < before - 0.1


def test_a_list_is_copied_whole() -> None:
    """Two equal lists of three items may be one; that they agree on one item more makes it likelier."""
    same = nous.Origin(strong="same_channel", lag=False)
    given = {"source": ["a", "b"], "channel": "c", "entity": "e", "attribute": "allergy", "time": [0.0, 1.0]}
    model = nous.TrustModel(shapes={"allergy": nous.AnyOf()}, origin=same)
    fresh = {}
    for value in ("eggs", "eggs; milk; nuts"):
        evidence = nous.Evidence(pd.DataFrame(given | {"value": value}))
        fresh[value] = model.default_trust().posterior(evidence.question("e", "allergy")).origins.iloc[1, 0]
    assert fresh["eggs; milk; nuts"] < fresh["eggs"] < 1.0


def test_items_that_are_named_together_are_summed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fourteen items in four groups: the same belief as with each item by itself."""
    names = [f"i{k:02d}" for k in range(14)]
    lists = [names[:8], names[:8], names[5:], names[:5] + names[8:12]]
    evidence = lists_of(*((f"s{j}", "; ".join(listed), None) for j, listed in enumerate(lists)))
    trust = nous.TrustModel(shapes={"allergy": nous.AnyOf()}).default_trust(draws=2)
    belief = trust.posterior(evidence.question("e", "allergy"))
    assert len(belief.whole.answers) == 6 * 4 * 5 * 3 and sorted(belief.names) == names
    monkeypatch.setattr("nousppl.parts.ALONE", 14)
    monkeypatch.setattr("nousppl.parts.MOST_CELLS", 1 << 14)
    one_by_one = trust.posterior(nous.Evidence(evidence.claims).question("e", "allergy"))
    assert len(one_by_one.whole.answers) == 1 << 14
    expected = one_by_one.probabilities[list(belief.names)]
    np.testing.assert_allclose(belief.probabilities, expected, atol=1e-5)
    assert belief.entropy == pytest.approx(one_by_one.entropy, abs=1e-3)
    some = tuple(names[3:9])
    assert belief.probability_of(some) == pytest.approx(one_by_one.probability_of(some), rel=1e-3)


def test_items_that_are_treated_in_too_many_ways_are_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"s{j}", f"i{j:02d}; i{j + 1:02d}", None) for j in range(13)]
    in_parts = believed(lists_of(*rows))
    monkeypatch.setattr("nousppl.parts.MOST_CELLS", 1 << 14)
    np.testing.assert_allclose(in_parts, believed(lists_of(*rows)), atol=2e-3)


def test_words_for_bad_input() -> None:
    one = lists_of(("a", "milk", None))
    with pytest.raises(nous.ModelError, match="column 'denies' of 1 claims lists an item that the value names"):
        believed(lists_of(("a", "milk; nuts", "nuts")))
    with pytest.raises(nous.ModelError, match="item 'milk' of entity 'e' is outside its closed list"):
        believed(one, answers={"allergy": ["eggs", "nuts"]})
    with pytest.raises(nous.ModelError, match="shapes\\['allergy'\\] = 'any of'"):
        nous.TrustModel(shapes={"allergy": "any of"})
    with pytest.raises(nous.ModelError, match="differ in their formulas"):
        nous.TrustModel(shapes={"a": nous.AnyOf(), "b": nous.AnyOf(sensitivity="1")})
    soft = one.claims.assign(weight=0.5)
    with pytest.raises(nous.ModelError, match="1 soft claims on lists of items"):
        believed(nous.Evidence(soft))
    both = pd.DataFrame(
        {"entity": ["e", "e"], "attribute": "allergy", "value": ["milk", "milk"], "verdict": [True, False]}
    )
    with pytest.raises((nous.ModelError, nous.EvidenceError)):
        believed(one.with_settled(both))


def test_a_saved_trust_answers_the_same(tmp_path: Any) -> None:
    evidence, trust = case(3, "closed")
    trust.save(tmp_path / "trust.nc")
    loaded = nous.load(tmp_path / "trust.nc")
    question = evidence.question("e3", "allergy")
    pd.testing.assert_series_equal(loaded.posterior(question).probabilities, trust.posterior(question).probabilities)


# -------------------------------------------------------------------------------------------------- negative controls


def without_denials(data: dict[str, Any]) -> dict[str, Any]:
    moved = {f"any_{z}_silent": data[f"any_{z}_silent"] + data[f"any_{z}_denied"] for z in ("true", "false")}
    return data | moved | {f"any_{z}_denied": 0.0 * data[f"any_{z}_denied"] for z in ("true", "false")}


def no_silence(data: dict[str, Any]) -> dict[str, Any]:
    return data | {f"any_{z}_silent": 0.0 * data[f"any_{z}_silent"] for z in ("true", "false")}


def of_the_question(xp: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Without the items of the attribute that are none of the question's; it has three."""
    others = sum(data[f"any_{z}_{said}"] for z in ("true", "false") for said in ("named", "denied", "silent"))
    return data | {"any_false_silent": data["any_false_silent"] - (others - 3.0)}


LOG_FRESH, EITHER = any_of.log_fresh, shaped.either_origin
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "denials": (any_of, "log_fresh", lambda xp, sizes, data, theta: LOG_FRESH(xp, sizes, without_denials(data), theta)),
    "silence": (
        any_of,
        "log_fresh",
        lambda xp, sizes, data, theta: LOG_FRESH(xp, sizes, no_silence(data), theta),
    ),
    "items elsewhere": (
        any_of,
        "log_fresh",
        lambda xp, sizes, data, theta: LOG_FRESH(xp, sizes, of_the_question(xp, data), theta),
    ),
    "prevalence": (any_of, "log_mass", lambda xp, sizes, data, theta: 0.0 * data["anycell_true"]),
    "copies": (
        shaped,
        "either_origin",
        lambda xp, sizes, data, echo, log_fresh, slot: EITHER(
            xp, sizes, data, echo._replace(repeated=0.0 * echo.repeated + 1e-30), log_fresh, slot
        ),
    ),
}


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Compiled code of another rule must not be used."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch, traced_anew: None) -> None:
    evidence, trust = case(3, "echoes")
    if rule == "items elsewhere":
        # The other questions of the attribute know two more items.
        domains = replace(trust.blueprint.domains, size={"allergy": 5}, declared=frozenset(["allergy"]))
        trust = replace(trust, blueprint=replace(trust.blueprint, domains=domains))
    expected = brute(evidence, trust)
    monkeypatch.setattr(*BROKEN[rule])
    assert apart(marginal(evidence, trust, JAX), expected) > 1e-3
