"""What does not fit the model is refused when evidence is encoded: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpyro.distributions as dist
import pandas as pd
import pytest

import nousppl as nous

CLAIMS = pd.DataFrame(
    {
        "entity": ["ann", "ann", "bob"],
        "attribute": "diet",
        "value": ["vegan", "halal", "vegan"],
        "source": ["s", "t", "s"],
        "kind": ["site", "site", "person"],
    }
)


def settled(value: str, verdict: str = "true", entity: str = "ann", time: float = 1.0) -> dict[str, Any]:
    return {"entity": entity, "attribute": "diet", "value": value, "verdict": verdict, "time": time}


def fit(model: nous.TrustModel, facts: list[dict[str, Any]] | None = None, claims: pd.DataFrame = CLAIMS) -> Any:
    table = None if facts is None else pd.DataFrame(facts)
    return model.fit(nous.Evidence(claims, settled=table), learn_from="all")


ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "claim outside a closed list": (
        lambda: fit(nous.TrustModel(answers={"diet": ["vegan", "kosher"]})),
        nous.ModelError,
        r"1 answers of attribute 'diet' are outside its closed list, first 'halal' \(entity 'ann'\); "
        r"allowed are \['vegan', 'kosher'\]",
    ),
    "settled value outside a closed list": (
        lambda: fit(nous.TrustModel(answers={"diet": ["vegan", "halal"]}), [settled("kosher")]),
        nous.ModelError,
        r"outside its closed list, first 'kosher' \(entity 'ann'\)",
    ),
    "K smaller than the named answers": (
        lambda: fit(nous.TrustModel(answers={"diet": 2}), [settled("kosher")]),
        nous.ModelError,
        r"answers\['diet'\] = 2: 1 questions name more answers, first entity 'ann' with 3",
    ),
    "K below 2": (
        lambda: fit(nous.TrustModel(answers={"diet": 1})),
        nous.ModelError,
        r"answers\['diet'\] = 1: a question needs at least 2 plausible answers",
    ),
    "answers of the wrong kind": (
        lambda: fit(nous.TrustModel(answers={"diet": "vegan"})),
        nous.ModelError,
        r"answers\['diet'\] = 'vegan': give K \(a whole number\) or the list of answers",
    ),
    "a list that repeats an answer": (
        lambda: fit(nous.TrustModel(answers={"diet": ["vegan", "vegan"]})),
        nous.ModelError,
        r"a closed list needs 2 or more different answers",
    ),
    "every answer of a closed list rejected": (
        lambda: fit(
            nous.TrustModel(answers={"diet": ["vegan", "halal"]}),
            [settled("vegan", "false"), settled("halal", "false")],
        ),
        nous.ModelError,
        r"all 2 answers of entity 'ann', attribute 'diet' are rejected; in a closed list one must remain",
    ),
    "two truths at different times": (
        lambda: fit(nous.TrustModel(), [settled("vegan"), settled("halal", time=2.0)]),
        nous.ModelError,
        r"entity 'ann', attribute 'diet' is settled as 'halal' and as 'vegan'|settled as 'vegan' and as 'halal'",
    ),
    "a truth that is rejected too": (
        lambda: fit(nous.TrustModel(), [settled("vegan"), settled("vegan", "false", time=2.0)]),
        nous.ModelError,
        r"'vegan' is both the settled truth and rejected for entity 'ann'",
    ),
    "a formula that names a missing column": (
        lambda: fit(nous.TrustModel(reliability="1 + (1|channel)")),
        nous.ModelError,
        r"channel",
    ),
    "a pair feature of a missing column": (
        lambda: fit(nous.TrustModel(origin=nous.Origin(strong="same_channel"))),
        nous.ModelError,
        r"same_channel needs column 'channel' in claims or sources; there are \[",
    ),
    "a pair feature with missing values": (
        lambda: fit(
            nous.TrustModel(origin=nous.Origin(strong="same_kind")), claims=CLAIMS.assign(kind=["site", None, "person"])
        ),
        nous.ModelError,
        r"column 'kind' is missing in 1 claims, first in row .*'halal'",
    ),
    "text from a missing column": (
        lambda: fit(nous.TrustModel(origin=nous.Origin(text="words"))),
        nous.ModelError,
        r"Origin\(text='words'\): no such column",
    ),
    "a pair feature of another kind": (
        lambda: nous.TrustModel(origin=nous.Origin(strong="lag")),
        nous.ModelError,
        r"'lag' is no pair feature; allowed are same_source and same_<column>",
    ),
    "an unknown order": (lambda: nous.Origin(order="random"), nous.ModelError, r"allowed are 'time' and 'unknown'"),
    "an unknown bias": (lambda: nous.Errors(bias="both"), nous.ModelError, r"allowed are 'none', 'class' and 'source'"),
    "an unknown difficulty": (
        lambda: nous.Errors(difficulty="hard"),
        nous.ModelError,
        r"allowed are True, False, 'auto' and 'mixture'",
    ),
    "a class bias without closed lists": (
        lambda: fit(nous.TrustModel(errors=nous.Errors(bias="class"))),
        nous.ModelError,
        r"Errors\(bias='class'\): give the closed lists of answers",
    ),
    "a prior of an unknown part": (
        lambda: nous.TrustModel(priors={"trust": {}}),
        nous.ModelError,
        r"no part 'trust' in this model; there are \['reliability'",
    ),
    "a prior of an unknown parameter": (
        lambda: nous.TrustModel(priors={"reliability": {"kind": dist.HalfNormal(1.0)}}),
        nous.ModelError,
        r"priors\['reliability'\]: no parameter 'kind'; there are \['1', 'source'\]",
    ),
    "a prior that is no distribution": (
        lambda: nous.TrustModel(priors={"reliability": {"1": 1.0}}),
        nous.ModelError,
        r"a prior must be a scalar numpyro distribution",
    ),
    "unknown base rates": (
        lambda: nous.TrustModel(base_rates="flat"),
        nous.ModelError,
        r"allowed are 'uniform' and 'learned'",
    ),
    "an unknown method": (
        lambda: nous.TrustModel().fit(nous.Evidence(CLAIMS), method="em"),
        nous.InferenceError,
        r"method='em': allowed are 'svi', 'nuts'",
    ),
    "an unknown way to learn": (
        lambda: nous.TrustModel().fit(nous.Evidence(CLAIMS), learn_from="some"),
        nous.InferenceError,
        r"learn_from='some': allowed are 'settled', 'all' and 'cut'",
    ),
    "nothing settled to learn from": (
        lambda: nous.TrustModel().fit(nous.Evidence(CLAIMS), learn_from="settled"),
        nous.InferenceError,
        r"no truth is settled: give settled=\.\.\., or learn_from='all'",
    ),
    "a simulation without declared answers": (
        lambda: nous.TrustModel().simulate(CLAIMS.drop(columns="value"), seed=0),
        nous.ModelError,
        r"answers of attribute 'diet' are not declared",
    ),
    "a simulation with an unknown parameter": (
        lambda: nous.TrustModel(answers={"diet": 3}).simulate(CLAIMS.drop(columns="value"), 0, {"trust": 1.0}),
        nous.ModelError,
        r"no parameter 'trust' in this model",
    ),
    "a simulation with a parameter of another size": (
        lambda: nous.TrustModel(answers={"diet": 3}).simulate(
            CLAIMS.drop(columns="value"), 0, {"reliability_1|source": [1.0, 2.0, 3.0]}
        ),
        nous.ModelError,
        r"parameter 'reliability_1\|source' must have shape \(2,\), got \(3,\)",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_one_clear_error(name: str) -> None:
    attempt, kind, match = ERRORS[name]
    with pytest.raises(kind, match=match):
        attempt()


def test_the_user_s_own_answer_may_not_be_called_other() -> None:
    claims = CLAIMS.assign(value=["other", "halal", "vegan"])
    with pytest.raises(nous.ModelError, match="'other'"):
        fit(nous.TrustModel(), claims=claims)
