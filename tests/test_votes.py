"""Where nothing is settled, a majority of copies is not taken for the truth."""

from __future__ import annotations

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous
from nousppl import fitting, votes
from nousppl.blueprint import draw_up
from nousppl.compile import Problem, compile_problem
from nousppl.encode import Encoded
from nousppl.errors import ModelError

QUESTIONS, HONEST, COPIES = 150, 5, 6
ANSWERS = {"x": ["F", "T"]}
ERRORS = nous.Errors(popularity=False, difficulty=False)
PAIRS = nous.Origin(strong=None, affinity="source", lag=False, order="unknown", orders=1)


def crowd(seed: int = 0, copies: int = COPIES) -> tuple[nous.Evidence, pd.DataFrame]:
    """Honest sources that are right four times in five, and one that guesses, with copies; the truths beside."""
    rng = np.random.default_rng(seed)
    truth = rng.random(QUESTIONS) < 0.5
    said = [np.where(rng.random(QUESTIONS) < 0.8, truth, ~truth) for _ in range(HONEST)]
    guess = rng.random(QUESTIONS) < 0.5
    names = [f"honest {k}" for k in range(HONEST)] + [f"guess {k}" for k in range(copies + 1)]
    entity = [f"q{q:03d}" for q in range(QUESTIONS)]
    parts = [
        pd.DataFrame({"entity": entity, "attribute": "x", "value": np.where(value, "T", "F"), "source": name})
        for name, value in zip(names, [*said, *[guess] * (copies + 1)], strict=True)
    ]
    facts = pd.DataFrame({"entity": entity, "attribute": "x", "value": np.where(truth, "T", "F")})
    return nous.Evidence(pd.concat(parts, ignore_index=True)), facts


def compiled(evidence: nous.Evidence) -> tuple[Encoded, Problem]:
    """The evidence encoded and compiled for a model with affinities."""
    encoded = draw_up(nous.TrustModel(origin=PAIRS, errors=ERRORS, answers=ANSWERS), evidence).encode(evidence)
    return encoded, compile_problem(encoded, np.arange(QUESTIONS))


def right(shares: np.ndarray, facts: pd.DataFrame) -> float:
    """Share of the questions in which most of the vote is for the truth; cells are F, T."""
    return float(((shares.reshape(-1, 2)[:, 1] > 0.5) == (facts["value"] == "T").to_numpy()).mean())


def test_copies_agree_beyond_the_usual_and_others_do_not() -> None:
    encoded, problem = compiled(crowd()[0])
    affinity = encoded.affinity
    assert affinity is not None
    close = votes.excess([problem], encoded)
    assert close is not None
    labels = np.array(affinity.labels)
    guess = [
        labels[k].startswith("guess") & labels[j].startswith("guess")
        for k, j in zip(affinity.later, affinity.earlier, strict=True)
    ]
    assert close[guess].min() > 0.9
    assert close[~np.array(guess)].max() < 0.3


def test_copies_share_one_vote() -> None:
    evidence, facts = crowd()
    encoded, problem = compiled(evidence)
    close = votes.excess([problem], encoded)
    assert close is not None
    (shared,) = votes.share_votes([problem], encoded, close)
    assert right(problem.data["cell_vote"], facts) < 0.65
    assert right(shared.data["cell_vote"], facts) > 0.85
    sums = np.bincount(problem.data["cell_question"], shared.data["cell_vote"])
    np.testing.assert_allclose(sums, 1.0)


def test_a_fit_starts_from_the_shared_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, facts = crowd()
    compiled_for_the_fit: list[Problem] = []

    def stop(blueprint: object, encoded: Encoded, problems: list[Problem], mould: object = None) -> None:
        compiled_for_the_fit.extend(problems)
        raise RuntimeError("compiled")

    monkeypatch.setattr(fitting, "batched", stop)
    model = nous.TrustModel("1 + (1|source)", "1", PAIRS, ERRORS, answers=ANSWERS)
    with pytest.raises(RuntimeError, match="compiled"):
        model.fit(evidence, learn_from="all")
    (problem,) = compiled_for_the_fit
    assert right(problem.data["cell_vote"], facts) > 0.85


def test_without_pairs_nothing_is_shared() -> None:
    evidence, _ = crowd()
    encoded = draw_up(nous.TrustModel(origin=None, errors=ERRORS, answers=ANSWERS), evidence).encode(evidence)
    problem = compile_problem(encoded, np.arange(QUESTIONS))
    assert votes.excess([problem], encoded) is None


def accuracy(evidence: nous.Evidence, facts: pd.DataFrame) -> float:
    """Of a fit to the claims alone, where strangers hardly ever repeat each other."""
    rare = {"origin": {"strangers": dist.Normal(-10.0, 0.3)}}
    model = nous.TrustModel("1 + (1|source)", "1", PAIRS, ERRORS, answers=ANSWERS, priors=rare)
    trust = model.fit(evidence, nous.SVI(full_size=20, learning_rate=0.05, steps=900), learn_from="all")
    return float(trust.posteriors(evidence).score(facts)["accuracy"])


@pytest.mark.slow
def test_a_majority_of_copies_is_seen_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started from plain votes, and all pairs as strangers, the fit stays with the copies, which seem always right."""
    evidence, facts = crowd(copies=10)
    assert accuracy(evidence, facts) > 0.85
    monkeypatch.setattr(fitting, "excess", lambda problems, encoded: None)
    assert accuracy(evidence, facts) < 0.7


def certainty(copies: int, strong: str | None) -> float:
    """Log-odds of what three honest sources say against copies by one source, errors correlated."""
    said = [("T", f"honest {k}") for k in range(3)] + [("F", "guess")] * copies
    claims = pd.DataFrame(said, columns=["value", "source"]).assign(entity="e", attribute="x", time=range(len(said)))
    errors = nous.Errors(popularity=False, difficulty=False, correlation=True)
    origin = nous.Origin(strong=strong, lag=False)
    model = nous.TrustModel(origin=origin, errors=errors, answers=ANSWERS)
    p = model.default_trust(seed=0, draws=200).posterior(nous.Evidence(claims).question("e", "x")).probabilities["T"]
    return float(np.log(p / (1 - p)))


def test_repetitions_do_not_discount_those_who_looked() -> None:
    """Ten times as many change little where they are known for repetitions, and drown the rest where not."""
    with_source = certainty(4, "same_source") - certainty(40, "same_source")
    assert with_source < 0.35
    assert certainty(40, "same_source") > 0.5
    assert certainty(40, None) < 0.0


def test_correlation_goes_with_origins() -> None:
    model = nous.TrustModel(origin=PAIRS, errors=nous.Errors(correlation=True), answers=ANSWERS)
    with pytest.raises(ModelError, match="power posterior, which no claims can be drawn from"):
        model.simulate(crowd()[0].claims.drop(columns="value"), seed=0)
