"""Questions about many items in parts: as exact as the sum over all sets up to what is stated, and one path with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from test_five_ways import apart, by_marginal

import nousppl as nous
from nousppl import items, parts
from nousppl.arviz_groups import claims as claims_table
from nousppl.asking import ready
from nousppl.blueprint import draw_up
from nousppl.compile import compile_problem
from nousppl.inference.backend import JAX
from nousppl.inference.exact import theta_of
from nousppl.models.program import question_logs
from nousppl.parts import alike, cut

FEW, MANY = 10, 30
MEAN, MOST = 1e-3, 0.01
"""What probabilities of items in parts may be off where lists may be copied, on average and at most."""
SINGLE = 2e-5
ECHOES = nous.Origin(strong="same_source + same_channel")
MODELS: dict[str, dict[str, Any]] = {
    "echoes": {"origin": ECHOES},
    "text": {
        "origin": nous.Origin(text="wording", lag=False),
        "answers": {"allergy": [f"i{k:02d}" for k in range(11)]},
    },
    "unordered": {"origin": nous.Origin(order="unknown", orders=2)},
}


def random_claims(seed: int, questions: int, size: int, claims: int, copies: float = 0.4) -> pd.DataFrame:
    """Lists of items with denials, some of them copied from an earlier one; notes of one's own, and claims that are not
    meant to last."""
    rng = np.random.default_rng(seed)
    names = np.array([f"i{k:02d}" for k in range(size)])
    rows = []
    for q in range(questions):
        true, said = rng.random(size) < 0.35, []
        for j in range(claims):
            named = rng.random(size) < np.where(true, 0.7, 0.06)
            lists = named, ~named & (rng.random(size) < np.where(true, 0.01, 0.1))
            said.append(said[rng.integers(j)] if j and rng.random() < copies else lists)
            rows.append(
                {
                    "entity": f"e{q}",
                    "attribute": "allergy",
                    "value": "; ".join(names[said[j][0]]) or "none",
                    "denies": "; ".join(names[said[j][1]]) or None,
                    "source": f"s{rng.integers(5)}",
                    "channel": f"c{rng.integers(3)}",
                    "wording": " ".join(rng.choice(["is", "allergic", "to", "perhaps"], 3)),
                    "time": float(j),
                    "derived": bool(rng.random() < 0.1),
                    "lasting": float(rng.choice([1.0, 1.0, 0.4, 0.0])),
                }
            )
    return pd.DataFrame(rows)


SETTLED = pd.DataFrame(
    [("e0", "allergy", "i01; i05", True), ("e1", "allergy", "i03; i07", False), ("e2", "allergy", "i02", True)],
    columns=["entity", "attribute", "value", "verdict"],
)


def trust_of(shape: nous.AnyOf | None = None, draws: int = 10, **given: Any) -> nous.Trust:
    return nous.TrustModel(shapes={"allergy": shape or nous.AnyOf()}, **given).default_trust(draws=draws)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions of more than 6 items are in parts."""
    monkeypatch.setattr(parts, "MOST_CELLS", 64)


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Compiled code of another rule must not be used."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def items_of(beliefs: nous.Beliefs) -> NDArray[np.float64]:
    return beliefs.items.sort_values(["entity", "item"])["probability"].to_numpy()


def whole_and_parts(
    trust: nous.Trust, claims: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, settled: pd.DataFrame | None = None
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Probabilities of items, and log densities of questions, with all sets summed over and in parts."""
    out = []
    for most in (4096, 64):
        monkeypatch.setattr(parts, "MOST_CELLS", most)
        evidence = nous.Evidence(claims, settled=settled)
        assert trust.encoded(evidence).parts.split == (most == 64)
        out.append((items_of(trust.posteriors(evidence)), trust.log_likelihood(evidence).to_numpy()))
    return out


@pytest.mark.parametrize("settled", ["whole", "items"])
def test_without_copies_parts_are_exact(settled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trust = trust_of(nous.AnyOf(settled=settled), origin=None)
    claims = random_claims(1, 3, FEW, 6)
    whole, part = whole_and_parts(trust, claims, monkeypatch, SETTLED)
    np.testing.assert_allclose(part[0], whole[0], atol=SINGLE)
    np.testing.assert_allclose(part[1], whole[1], rtol=SINGLE)
    evidence = nous.Evidence(claims, settled=SETTLED)
    first, second = (trust.posterior(evidence.question(name, "allergy")).probabilities for name in ("e0", "e1"))
    np.testing.assert_allclose(first[["i01", "i05"]], 1.0, atol=1e-6)
    np.testing.assert_allclose(second[["i03", "i07"]], 0.0, atol=1e-6)
    assert (first.drop(["i01", "i05"]).max() < 1e-6) == (settled == "whole")


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_close_to_the_sum_over_all_sets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, part = whole_and_parts(trust_of(**MODELS[name]), random_claims(2, 5, FEW, 6), monkeypatch, SETTLED)
    off = np.abs(part[0] - whole[0])
    assert off.mean() < MEAN and off.max() < MOST
    # Orders are averaged in each part by itself.
    assert np.abs(part[1] - whole[1]).mean() < (0.3 if name == "unordered" else 0.02)


FIND_ITEMS = items.find_items
BROKEN: dict[str, tuple[str, Any]] = {
    "parts hear of each other": ("nousppl.models.parts.ROUNDS", 0),
    "whole lists are compared": ("nousppl.items._variants", lambda parts, of_set, said, denied: denied),
    "items elsewhere count once": (
        "nousppl.cells.find_items",
        lambda parts, *given: replace(found := FIND_ITEMS(parts, *given), absent=found.absent[parts.whole]),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, monkeypatch: pytest.MonkeyPatch, traced_anew: None) -> None:
    claims = random_claims(2, 5, FEW, 6)
    more = claims.iloc[:1].assign(entity="other", value="; ".join(f"x{k}" for k in range(6)), denies=None)
    trust = trust_of(origin=ECHOES)
    monkeypatch.setattr(*BROKEN[rule])
    whole, part = whole_and_parts(trust, pd.concat([claims, more], ignore_index=True), monkeypatch)
    assert np.abs(part[0] - whole[0]).mean() > 3 * MEAN or np.abs(part[1] - whole[1]).mean() > 1.0


def many_items(seed: int = 3, copies: float = 0.0) -> pd.DataFrame:
    claims = random_claims(seed, 1, MANY, 8, copies)
    return claims.drop(columns=["derived", "lasting"])


def test_thirty_items_are_answered() -> None:
    """At once and by themselves, whatever the order of rows and of items, with points that add up."""
    claims, trust = many_items(), trust_of(origin=ECHOES)
    evidence = nous.Evidence(claims)
    start = time.perf_counter()
    beliefs = trust.posteriors(evidence)
    belief = trust.posterior(evidence.question("e0", "allergy"))
    assert time.perf_counter() - start < 60.0 and len(belief.parts) > 1
    p = belief.probabilities
    assert p.index.tolist() == sorted(p.index) and len(p) > 20
    np.testing.assert_allclose(items_of(beliefs), p, atol=SINGLE)
    np.testing.assert_allclose(belief.points[list(p.index)].sum(), np.log(p) - np.log1p(-p), atol=1e-6)
    np.testing.assert_allclose(belief.origins.sum(axis=1), 1.0, atol=1e-9)
    top = beliefs.frame.iloc[0]
    named = beliefs.cell_answer[np.argmax(np.where(beliefs.cell_other, 0.0, beliefs.probability))]
    assert belief.probability_of(named) == pytest.approx(beliefs.probability[~beliefs.cell_other].max(), abs=1e-5)
    assert beliefs.probability.sum() == pytest.approx(1.0) and top["claims"] == 8 and len(beliefs) == 1
    assert np.isfinite(belief.entropy) and belief.surprise(belief.answer) == pytest.approx(-np.log2(belief.probability))
    log = belief.history()
    assert len(log) == 8 * len(p) and np.isfinite(log["surprise"]).all()
    assert set(log["value"]) == {"; ".join(sorted(v.split("; "))) for v in claims["value"]}
    assert "8 claims" in repr(belief) and len(belief.to_dict()["items"]) == len(p)
    again = trust.posterior(nous.Evidence(claims.sample(frac=1.0, random_state=1)).question("e0", "allergy"))
    pd.testing.assert_series_equal(again.probabilities, p, atol=1e-7, rtol=0.0)


def test_order_of_names_matters_little() -> None:
    """Which items share a part goes by their names where lists say nothing; what is believed hardly does."""
    claims, trust = many_items(4, copies=0.5), trust_of(origin=ECHOES)
    turned = {f"i{k:02d}": f"i{(7 * k) % MANY:02d}" for k in range(MANY)}

    def rename(text: Any) -> Any:
        return "; ".join(turned.get(item, item) for item in text.split("; ")) if isinstance(text, str) else text

    found = trust.posteriors(nous.Evidence(claims)).items.set_index("item")["probability"]
    other = trust.posteriors(nous.Evidence(claims.assign(**{c: claims[c].map(rename) for c in ("value", "denies")})))
    back = other.items.set_index("item")["probability"].reindex([turned[item] for item in found.index])
    assert np.abs(back.to_numpy() - found.to_numpy()).max() < MOST


def test_a_copy_of_a_long_list_does_not_count_twice() -> None:
    claims = many_items(5).iloc[:2].assign(channel=["a", "b"])
    copied = pd.concat([claims, claims.iloc[[1] * 4].assign(channel="b", time=[2.0, 3.0, 4.0, 5.0])], ignore_index=True)
    believed = {}
    for name, origin in (("copies", ECHOES), ("independent", None)):
        trust = trust_of(origin=origin, draws=50)
        once, often = (trust.posterior(nous.Evidence(rows).question("e0", "allergy")) for rows in (claims, copied))
        believed[name] = np.abs(often.probabilities - once.probabilities.reindex(often.names)).mean()
        if origin is not None:
            assert often.effective_claims < 2.3 and (often.origins["fresh"].iloc[2:] < 0.1).all()
            each = np.array([part.belief.fresh for part in often.parts])
            assert np.abs(each - each.mean(0)).max() < 0.02
    assert believed["copies"] < 0.02 < 5 * 0.02 < believed["independent"]


def test_parts_beside_other_questions(small: None) -> None:
    """Questions that are not in parts are answered as without them, and in several chunks too."""
    claims = random_claims(6, 3, FEW, 6, copies=0.2)
    short = random_claims(7, 2, 3, 4).assign(entity=lambda table: "f" + table["entity"])
    colour = claims.assign(attribute="colour", value="red", denies=None).iloc[:6]
    trust = trust_of(origin=ECHOES, answers={"colour": ["red", "blue"]})
    together = nous.Evidence(pd.concat([claims, short, colour], ignore_index=True), settled=SETTLED)
    answers = trust.posteriors(together)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MOST_CELLS", 4096)
        whole = trust.posteriors(nous.Evidence(together.claims, settled=SETTLED)).probabilities
    mine = answers.probabilities.merge(whole, on=["entity", "attribute", "answer"])
    mine = mine[mine["entity"].str.startswith("f") | (mine["attribute"] == "colour")]
    assert len(mine) >= 6
    np.testing.assert_allclose(mine["probability_x"], mine["probability_y"], atol=SINGLE)
    assert answers.questions.shape == together.questions.shape and len(trust.encoded(together).parts.whole) > 7
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nousppl.asking.CHUNK", 30)
        pieces = trust.posteriors(together)
    np.testing.assert_allclose(pieces.probability, answers.probability, atol=SINGLE)
    np.testing.assert_allclose(items_of(pieces), items_of(answers), atol=SINGLE)
    assert np.isfinite(answers.score(SETTLED[SETTLED["verdict"]])["log_loss"])
    assert 0.0 < answers.score_items(SETTLED[SETTLED["verdict"]])["accuracy"] <= 1.0


@pytest.mark.long
def test_fits_on_both_backends(small: None) -> None:
    claims = random_claims(8, 6, FEW, 5)
    evidence = nous.Evidence(claims)
    model = nous.TrustModel(shapes={"allergy": nous.AnyOf()}, origin=ECHOES)
    method = nous.SVI(steps=60)
    fitted = model.fit(evidence, method, learn_from="all")
    assert fitted.record["questions"] == 6 and fitted.record["claims"] == 30
    assert fitted.sources["claims"].sum() == 30
    pytest.importorskip("torch")
    other = model.fit(evidence, method, learn_from="all", backend="pyro")
    a, b = (items_of(trust.posteriors(evidence)) for trust in (fitted, other))
    assert np.abs(a - b).mean() < 0.02


def test_densities_on_both_backends(small: None) -> None:
    torch = pytest.importorskip("torch")
    from nousppl.inference.torch_backend import Torch

    evidence, trust = nous.Evidence(random_claims(9, 2, FEW, 5)), trust_of(origin=ECHOES, draws=1)
    with jax.enable_x64(True):
        found = by_marginal(evidence, trust, Torch(torch.float64))
        assert apart(found, by_marginal(evidence, trust, JAX)) < 1e-10


@pytest.mark.long
def test_gradients_need_no_messages(small: None, traced_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages have no gradient; that of the density agrees with differences all the same, once they are at rest."""
    monkeypatch.setattr("nousppl.models.parts.ROUNDS", 8)
    evidence, trust = nous.Evidence(random_claims(9, 2, FEW, 5)), trust_of(origin=ECHOES, draws=1)
    encoded = trust.encoded(evidence)
    with jax.enable_x64(True):
        problem = compile_problem(encoded, np.arange(2), trust.model.order_seed)
        data, draws = ready(trust.blueprint, encoded, problem, problem.layout, trust.asked(), len(problem.claims))
        first = {name: jax.numpy.asarray(value[0]) for name, value in draws.items()}

        @jax.jit
        def density(moved: dict[str, Any]) -> Any:
            theta = theta_of(trust.blueprint.plan.features, first | moved, None)
            return question_logs(JAX, problem.layout, JAX.arrays(data), theta).sum()

        for name in ("items_logit_prevalence", "log_concentration", "logit_sensitivity", "origin_same_source"):
            value, step = first[name], 1e-4
            slope = jax.grad(density)({name: value})[name].sum()
            expected = (density({name: value + step}) - density({name: value - step})) / (2.0 * step)
            np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-4)


def test_parts_are_no_questions_of_their_own_to_others(small: None) -> None:
    """To arviz a question in parts is one question; and what lists deny is no matter of the kappa of denials."""
    evidence = nous.Evidence(random_claims(5, 2, 10, 6))
    model = nous.TrustModel(shapes={"allergy": nous.AnyOf()})
    assert trust_of().encoded(evidence).parts.split
    table = claims_table(trust_of(), evidence)
    assert table.sizes["question"] == 2 and table["question_answers"].shape == (2,)
    assert "errors_log_denial" not in {site.name for site in draw_up(model, evidence).plan.sites}
    others = nous.Evidence(evidence.claims.assign(attribute="colour", denies=["blue", *[None] * 11], value="red"))
    assert "errors_log_denial" in {site.name for site in draw_up(model, others).plan.sites}


def test_what_parts_refuse(small: None) -> None:
    evidence, trust = nous.Evidence(random_claims(6, 1, FEW, 6, copies=0.2)), trust_of(origin=ECHOES)
    question = evidence.question("e0", "allergy")
    with pytest.raises(nous.ModelError, match="items, which its lists treat in too many ways"):
        trust.program(question)
    with pytest.raises(nous.QuestionError, match="items have too many sets for a belief about each"):
        _ = trust.posterior(question).whole
    with pytest.raises(nous.QuestionError, match="'soy' is no item"):
        trust.posterior(question).probability_of("soy")
    program = trust.model.program(evidence, learn_from="all")
    with pytest.raises(nous.ModelError, match="a program draws no claims about numbers, lists of items and states"):
        program.simulator({}, 0)


def test_items_are_cut_by_the_lists_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts of at most 64 sets and about equal size; what occurs together stays together; names settle ties."""
    lists = [[f"a{k}" for k in range(6)], [f"b{k}" for k in range(6)], ["c0", "c1"]]
    names = sorted(name for listed in lists for name in listed)
    groups = alike(set(names), lists)
    assert [len(group) for part in cut(groups) for group in part] == [6, 6, 2]
    rng = np.random.default_rng(1)
    names = [f"i{k:02d}" for k in range(MANY)]
    lists = [[name for name in names if rng.random() < 0.5] for _ in range(12)]
    found = cut(alike(set(names), lists))
    assert sorted(name for part in found for group in part for name in group) == names
    assert {len(part) for part in found} <= {5, 6} and found == cut(alike(set(names), lists))
    together = [["a1", "b1", "c1"], ["a2", "b2", "c2"]]
    monkeypatch.setattr(parts, "PART_CELLS", 8)
    some = alike({"a1", "a2", "b1", "b2", "c1", "c2"}, [*together, ["a1", "a2"], ["b1", "b2"]])
    assert cut(some) == tuple(tuple((name,) for name in listed) for listed in together)
