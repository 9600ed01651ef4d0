"""How fresh claims go wrong: rows of confusion, traps, and errors that go together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import witness
from numpy.typing import NDArray
from scipy.special import logit
from test_three_ways import DOUBLE, SINGLE, case, differences, log_evidences, written

import nousppl as nous
from nousppl.errors import InferenceError, ModelError
from nousppl.inference import exact
from nousppl.models import one_of, program
from nousppl.models.priors import Prior
from nousppl.trust import Trust

ANSWERS = ["a", "b", "c"]
AT_ONCE = {"origin": None, "base_rates": "learned"}


def votes(count: int, workers: int, answers: list[str], seed: int = 0) -> pd.DataFrame:
    """Claims of every worker on every question, right three times out of five."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(len(answers), size=count)
    said = np.where(
        rng.random((count, workers)) < 0.6, truth[:, None], rng.integers(len(answers), size=(count, workers))
    )
    question, worker = np.divmod(np.arange(count * workers), workers)
    return pd.DataFrame(
        {
            "entity": [f"q{i:04d}" for i in question],
            "attribute": "x",
            "source": [f"w{i:02d}" for i in worker],
            "value": np.array(answers)[said.ravel()],
        }
    )


def fixed(value: float) -> Any:
    return dist.Normal(value, 1e-6)


def trust_of(evidence: nous.Evidence, draws: dict[str, NDArray[np.float64]], **model: Any) -> Trust:
    """A fitted trust whose draws are replaced: one draw, given by site."""
    spec = nous.TrustModel(**{"answers": {"x": ANSWERS}, **AT_ONCE, **model})
    trust = spec.fit(evidence, method=nous.SVI(steps=1, draws=1), learn_from="all")
    known = {name: np.asarray(draws.get(name, np.zeros_like(old)), np.float64) for name, old in trust.flat.items()}
    own = {name: value.reshape(1, 1, *trust.flat[name].shape[1:]) for name, value in known.items()}
    return Trust(spec, trust.blueprint, own, {}, trust.table, trust.record)


# ------------------------------------------------------------------------------------------------- rows of confusion


def dawid_skene(claims: pd.DataFrame, rates: NDArray[Any], rows: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """(questions, answers) posterior of Dawid & Skene (1979), equation 2.5, with given matrices."""
    out = []
    for _, mine in claims.groupby("entity"):
        law = np.log(rates)
        for source, value in zip(mine["source"], mine["value"], strict=True):
            law = law + np.log(rows[source][:, ANSWERS.index(value)])
        law = np.exp(law - law.max())
        out.append(law / law.sum())
    return np.array(out)


def test_dawid_skene_is_a_special_case() -> None:
    """Any matrices of Dawid and Skene are some values of the parameters, and the beliefs are theirs."""
    rng = np.random.default_rng(1)
    claims = votes(30, 4, ANSWERS)
    sources, size = sorted(claims["source"].unique()), len(ANSWERS)
    rows = {source: rng.dirichlet(np.ones(size), size) for source in sources}
    rates = np.array([0.5, 0.3, 0.2])
    right = np.array([[logit(rows[s][z, z]) for z in range(size)] for s in sources])
    wrong = np.array([[np.log(rows[s][z, x]) for z in range(size) for x in range(size) if x != z] for s in sources])
    draws = {"errors_bias|source": right.ravel(), "errors_confusion|source": wrong.ravel(), "base_rates": np.log(rates)}
    evidence = nous.Evidence(claims)
    errors = nous.Errors(popularity=False, difficulty=False, bias="source")
    beliefs = trust_of(evidence, draws, errors=errors).posteriors(evidence)
    found = beliefs.probabilities.pivot(index="entity", columns="answer", values="probability")[ANSWERS]
    np.testing.assert_allclose(found.to_numpy(), dawid_skene(claims, rates, rows), atol=SINGLE)


def test_confusion_is_learned() -> None:
    """Where b is true everyone errs to c, and where c is true to b: settled facts show it."""
    claims = votes(200, 5, ANSWERS, seed=2)
    truth = claims.groupby("entity")["value"].agg(lambda said: said.mode()[0])
    swap = {"b": "c", "c": "b", "a": "a"}
    of_claim = claims["entity"].map(truth)
    claims["value"] = np.where(claims["value"] == of_claim, of_claim, of_claim.map(swap))
    settled = truth.rename("value").reset_index().assign(attribute="x")
    errors = nous.Errors(popularity=False, difficulty=False, bias="class")
    model = nous.TrustModel(origin=None, errors=errors, answers={"x": ANSWERS})
    trust = model.fit(nous.Evidence(claims, settled=settled), seed=0)
    rows = trust.flat["errors_confusion"].mean(0).reshape(3, 2)  # a: b, c;  b: a, c;  c: a, b
    assert rows[1, 1] - rows[1, 0] > 1.5
    assert rows[2, 1] - rows[2, 0] > 1.5


def test_confusion_is_for_short_closed_lists() -> None:
    """Two answers need none, an open domain and a long list have none."""
    long = [f"v{i:02d}" for i in range(21)]
    model = nous.TrustModel(errors=nous.Errors(bias="source"), answers={"t": ["T", "F"], "k": 5, "long": long})
    assert "confusion" not in model.priors()["errors"]
    model = nous.TrustModel(
        errors=nous.Errors(bias="source"), answers={"t": ["T", "F"], "x": ANSWERS, "y": list("abcd")}
    )
    sizes = {site.name: site.size for site in model.default_trust().blueprint.plan.sites}
    assert sizes["errors_confusion"] == 3 * 2 + 4 * 3
    assert model.priors()["errors"]["confusion|source"] == Prior("HalfNormal", {"scale": 0.7})


def test_pairs_of_several_lists_do_not_mix() -> None:
    """An attribute in front of another in the declaration shifts no pair."""
    errors = nous.Errors(popularity=False, difficulty=False, bias="class")
    claims = votes(6, 3, ANSWERS)
    both = pd.concat(
        [claims, claims.assign(attribute="y", value=claims["value"].map(dict(zip("abc", "dfe", strict=True))))]
    )
    answers = {"y": ["d", "e", "f", "g"], "x": ANSWERS}
    evidence = nous.Evidence(both)
    shift = np.random.default_rng(0).normal(0, 2, 4 * 3 + 3 * 2)
    trust = trust_of(evidence, {"errors_confusion": shift}, errors=errors, answers=answers)
    alone = trust_of(nous.Evidence(claims), {"errors_confusion": shift[12:]}, errors=errors)
    mine = trust.posteriors(evidence).probabilities.query("attribute == 'x'")["probability"].to_numpy()
    np.testing.assert_allclose(mine, alone.posteriors(nous.Evidence(claims)).probabilities["probability"], atol=SINGLE)


# ------------------------------------------------------------------------------------------- traps and correlation


def pair(errors: dict[str, Any], priors: dict[str, Any]) -> tuple[nous.Evidence, Trust, Trust]:
    """Votes, and trusts without and with something in the errors; the other parameters are fixed and the same."""
    evidence = nous.Evidence(votes(8, 5, ANSWERS, seed=4))
    plain = {"popularity": False, "difficulty": False}
    known = {"reliability": {"1": fixed(0.4), "source": dist.HalfNormal(1e-6)}, "base_rates": {"logit": fixed(0.0)}}
    trusts = [
        nous.TrustModel(
            errors=nous.Errors(**plain, **more), answers={"x": ANSWERS}, priors=given, **AT_ONCE
        ).default_trust(draws=2)
        for more, given in (({}, known), (errors, known | {"errors": priors}))
    ]
    return evidence, trusts[0], trusts[1]


def probabilities(trust: Trust, evidence: nous.Evidence) -> NDArray[np.float64]:
    return trust.posteriors(evidence).probabilities["probability"].to_numpy().reshape(-1, len(ANSWERS))


def test_a_trap_mixes_the_belief_with_the_base_rates() -> None:
    """P(z | x) = (1 - trap) P(z | x, no trap) + trap base rate: the claims say nothing in a trap."""
    evidence, without, with_trap = pair({"trap": True}, {"logit_trap": fixed(logit(0.2))})
    expected = 0.8 * probabilities(without, evidence) + 0.2 / 3
    np.testing.assert_allclose(probabilities(with_trap, evidence), expected, atol=SINGLE)


def test_correlation_is_a_power_of_the_posterior() -> None:
    """Five claims that correlate by .25 count as 5 / (1 + 4 x .25) = 2.5."""
    evidence, without, correlated = pair({"correlation": True}, {"logit_correlation": fixed(logit(0.25))})
    expected = probabilities(without, evidence) ** 0.5
    np.testing.assert_allclose(
        probabilities(correlated, evidence), expected / expected.sum(1, keepdims=True), atol=10 * SINGLE
    )


def test_one_claim_is_not_discounted() -> None:
    one = nous.Evidence(votes(8, 1, ANSWERS, seed=4))
    _, without, correlated = pair({"correlation": True}, {"logit_correlation": fixed(logit(0.9))})
    np.testing.assert_allclose(probabilities(correlated, one), probabilities(without, one), atol=SINGLE)


def test_points_of_correlated_claims_add_up() -> None:
    both = {"trap": True, "correlation": True}
    evidence, _, trust = pair(both, {"logit_trap": fixed(-2.0), "logit_correlation": fixed(0.0)})
    for entity, attribute in evidence.questions.itertuples(index=False):
        belief = trust.posterior(evidence.question(entity, attribute))
        p = belief.probability
        assert belief.points["points"].sum() == pytest.approx(np.log(p / (1 - p)), abs=1e-6)
        # After one claim nothing is discounted yet: the same belief as on a question of that claim alone.
        first = evidence.claims.query("entity == @entity").head(1)
        assert belief.path[1] == pytest.approx(probabilities(trust, nous.Evidence(first))[0], abs=SINGLE)


@pytest.mark.parametrize("settled", [False, True])
def test_only_settled_facts_move_trap_and_correlation(settled: bool) -> None:
    """The density of the claims alone is the same at any trap and correlation; with the truth it is not."""
    claims = votes(6, 4, ANSWERS, seed=5)
    facts = claims.drop_duplicates("entity")[["entity", "attribute"]].assign(value="a") if settled else None
    errors = nous.Errors(popularity=False, difficulty=False, bias="source", trap=True, correlation=True)
    trust = nous.TrustModel(errors=errors, answers={"x": ANSWERS}, **AT_ONCE).default_trust(seed=1, draws=3)
    evidence = nous.Evidence(claims, settled=facts)
    with jax.enable_x64(True):
        before = log_evidences(evidence, trust)
        for name in ("errors_logit_trap", "errors_logit_correlation"):
            trust.posterior_draws[name][:] = 0.7
        trust._thinned.clear()
        after = log_evidences(evidence, trust)
    apart = np.abs(after - before).max()
    assert apart > 0.05 if settled else apart < 1e-10


def test_settled_facts_teach_the_trap() -> None:
    """Where the sources agree on something wrong in three questions of ten, facts show it; without them it stays."""
    rng = np.random.default_rng(0)
    claims = votes(150, 6, ["T", "F"], seed=6)
    truth = claims.groupby("entity")["value"].agg(lambda said: said.mode()[0]).rename("value").reset_index()
    trapped = rng.random(len(truth)) < 0.3
    truth["value"] = np.where(trapped, truth["value"].map({"T": "F", "F": "T"}), truth["value"])
    errors = nous.Errors(difficulty=False, bias="class", trap=True)
    model = nous.TrustModel(origin=None, errors=errors, answers={"x": ["T", "F"]})
    short = nous.SVI(steps=1500)
    taught = model.fit(nous.Evidence(claims, settled=truth.assign(attribute="x")), method=short)
    untaught = model.fit(nous.Evidence(claims), method=short)
    prior = model.priors()["errors"]["logit_trap"].parameters
    draws = untaught.flat["errors_logit_trap"]
    assert draws.mean() == pytest.approx(prior["loc"], abs=0.3 * prior["scale"])
    assert draws.std() == pytest.approx(prior["scale"], rel=0.3)
    assert taught.flat["errors_logit_trap"].mean() > prior["loc"] + 1.5 * prior["scale"]


# ----------------------------------------------------------------------------------- a fit in batches, words of refusal


def test_batches_end_where_the_full_fit_ends() -> None:
    """Confusion, trap and correlation with a quarter of the questions settled, whole and in batches."""
    claims = votes(240, 5, ANSWERS, seed=7)
    truth = claims.groupby("entity")["value"].agg(lambda said: said.mode()[0]).rename("value").reset_index()
    evidence = nous.Evidence(claims, settled=truth[::4].assign(attribute="x"))
    errors = nous.Errors(popularity=False, difficulty=False, bias="source", trap=True, correlation=True)
    model = nous.TrustModel(errors=errors, answers={"x": ANSWERS}, **AT_ONCE)
    whole, parts = (model.fit(evidence, method=nous.SVI(batch_claims=size), learn_from="all") for size in (10_000, 400))
    found = {name: (whole.flat[name], parts.flat[name]) for name in whole.flat}
    for name in ("errors_confusion", "errors_logit_trap", "errors_logit_correlation", "errors_bias", "base_rates"):
        one, other = found[name]
        assert np.abs(one.mean(0) - other.mean(0)).max() < 0.5 * one.std(0).max(), name
    assert np.abs(probabilities(whole, evidence) - probabilities(parts, evidence)).mean() < 0.02


def test_correlation_is_refused_where_it_makes_no_sense() -> None:
    with pytest.raises(ModelError, match=r"Errors\(trap=0.05\): allowed are True and False"):
        nous.Errors(trap=0.05)  # type: ignore[arg-type]
    model = nous.TrustModel(origin=None, errors=nous.Errors(correlation=True), answers={"x": ANSWERS})
    claims = votes(2, 2, ANSWERS)
    with pytest.raises(ModelError, match=r"power posterior, which no claims can be drawn from"):
        model.simulate(claims.drop(columns="value"), seed=0)
    with pytest.raises(InferenceError, match=r"no generative program of the claims"):
        model.default_trust().program(nous.Evidence(claims).question("q0000", "x"))()


def test_simulated_claims_follow_traps_and_confusion() -> None:
    """With perfect sources and traps in half of the questions, half of the truths and a third of the rest are named."""
    design = votes(3000, 2, ANSWERS)[["entity", "attribute", "source"]]
    errors = nous.Errors(popularity=False, difficulty=False, bias="class", trap=True)
    model = nous.TrustModel(origin=None, errors=errors, answers={"x": ANSWERS})
    given = {"reliability_Intercept": 20.0, "reliability_1|source_sigma": 0.0, "errors_bias": np.zeros(3)}
    given |= {"reliability_1|source": np.zeros(2), "errors_confusion": np.zeros(6), "errors_logit_trap": 0.0}
    truth, evidence = model.simulate(design, 0, given)
    said = evidence.claims.groupby("entity")["value"]
    assert (said.nunique() == 1).all()
    right = said.first().to_numpy() == truth.settled["value"].to_numpy()
    assert right.mean() == pytest.approx(0.5 + 0.5 / 3, abs=4 * 0.5 / np.sqrt(3000))
    given |= {"reliability_Intercept": -20.0, "errors_logit_trap": -20.0, "errors_confusion": np.array([5.0, 0] * 3)}
    truth, evidence = model.simulate(design, 0, given)
    first = {"a": "b", "b": "a", "c": "a"}  # the first of the wrong answers
    said_first = evidence.claims["value"] == evidence.claims["entity"].map(
        truth.settled.set_index("entity")["value"].map(first)
    )
    assert said_first.mean() == pytest.approx(1 / (1 + np.exp(-5.0)), abs=4 * 0.1 / np.sqrt(6000))


# ------------------------------------------------------------------------------------------------ negative controls

ON = {"closed": True, "bias": True, "trap": True, "correlation": True, "origin": False, "soft": True}


@pytest.fixture
def traced_anew() -> Iterator[None]:
    exact.witnesses.clear_cache()
    yield
    exact.witnesses.clear_cache()


def worst_difference(origin: bool = False) -> float:
    on = ON | {"origin": origin}
    evidence, trust = case(5, questions=6, claims=4, named=4, difficulty=False, rejected=True, **on)
    return float(np.max(differences(evidence, trust)))


@pytest.mark.parametrize("origin", [False, True])
def test_three_ways_agree_with_everything_on(origin: bool) -> None:
    with jax.enable_x64(True):
        assert worst_difference(origin) < DOUBLE


BROKEN = {
    "no confusion": (one_of, "confusion", lambda xp, layout, data, theta: data["term_uniform"]),
    "no trap, no correlation": (
        program,
        "constants",
        lambda *given: {n: v for n, v in CONSTANTS(*given).items() if n not in ("trap", "correlation")},
    ),
    "a trap adds nothing": (program, "log_add", lambda xp, one, other: one),
    "repetitions count": (
        program,
        "originals",
        lambda xp, layout, data, originality: ORIGINALS(xp, layout, data, originality * 0.0 + 1.0),
    ),
}
CONSTANTS, ORIGINALS = program.constants, program.originals


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_noticed(rule: str, traced_anew: None, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, broken = BROKEN[rule]
    monkeypatch.setattr(place, name, broken)
    if name == "constants":
        monkeypatch.setattr(exact, name, broken)
    assert not worst_difference(origin=rule == "repetitions count") < 100 * SINGLE


@pytest.mark.parametrize("rule", ["confusion", "trap", "correlation"])
def test_the_witness_knows_the_rules(rule: str) -> None:
    """Brute force agrees with every rule in it, and no longer with one taken out."""
    evidence, trust = case(5, questions=6, claims=4, named=4, difficulty=False, rejected=True, popularity=False, **ON)
    apart = {(): 0.0, (rule,): 0.0}
    for index, (entity, attribute) in enumerate(evidence.questions.itertuples(index=False)):
        (one,) = written(trust, evidence, index)
        belief = trust.posterior(evidence.question(entity, attribute)).probabilities[list(one.answers)]
        for without in apart:
            exact_one = witness.marginal_posterior(one.question, one.values, without=without)
            apart[without] = max(apart[without], float(np.abs(belief - exact_one).max()))
    assert apart[()] < SINGLE
    assert apart[(rule,)] > 100 * SINGLE


def test_a_saved_trust_answers_the_same(tmp_path: Path) -> None:
    """Rows of confusion by source, trap and correlation are in the file."""
    evidence = nous.Evidence(votes(10, 4, ANSWERS, seed=8))
    errors = nous.Errors(popularity=False, difficulty=False, bias="source", trap=True, correlation=True)
    model = nous.TrustModel(errors=errors, answers={"x": ANSWERS}, **AT_ONCE)
    trust = model.fit(evidence, method=nous.SVI(steps=50, draws=5), learn_from="all")
    trust.save(tmp_path / "trust.nc")
    again = nous.load(tmp_path / "trust.nc")
    assert again.model.errors == errors
    np.testing.assert_array_equal(probabilities(again, evidence), probabilities(trust, evidence))
