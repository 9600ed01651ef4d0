"""Terms that do not keep to the protocol, have no place in a model or cannot use a column are refused."""

from __future__ import annotations

from typing import Any

import numpyro.distributions as dist
import pytest
from own_terms import (
    on_log_lag,
    quotes,
    recent,
    some_evidence,
    wears_off,
)

import nousppl as nous
from nousppl.models.terms import SAID, declare


def twice(xp: Any, sample: Any, columns: Any) -> Any:
    return (sample("a", dist.Normal(0.0, 1.0)) + sample("a", dist.Normal(0.0, 1.0))) * columns["age"]


def number(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", dist.Normal(0.0, 1.0))


def nothing(xp: Any, sample: Any, columns: Any) -> Any:
    return None


def averages(xp: Any, sample: Any, columns: Any) -> Any:
    return columns["age"] - columns["age"].mean()


def fails(xp: Any, sample: Any, columns: Any) -> Any:
    return xp.cosine(columns["age"])


def lists(xp: Any, sample: Any, columns: Any) -> Any:
    return sum(columns[name] for name in columns)


def no_prior(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", 1.0) * columns["age"]


def no_size(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a", dist.Normal(0.0, 1.0), 0) * columns["age"]


def no_name(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("a b", dist.Normal(0.0, 1.0)) * columns["age"]


def by_number(xp: Any, sample: Any, columns: Any) -> Any:
    return columns[3]


def peeks(xp: Any, sample: Any, columns: Any) -> Any:
    return columns["value"]


def agrees(xp: Any, sample: Any, pairs: Any) -> Any:
    return xp.where(pairs.same("value"), 1.0, pairs.lag)


def log(xp: Any, sample: Any, pairs: Any) -> Any:
    return sample("strangers", dist.Normal(0.0, 1.0)) + pairs.lag


def age(xp: Any, sample: Any, columns: Any) -> Any:
    return sample("x", dist.Normal(0.0, 1.0)) + columns["age"]


DECLARING = [
    ("reliability", twice, r"terms\['reliability'\]: twice: sample\('a', \.\.\.\) is called twice"),
    ("reliability", number, r"must give an array of shape \(claims,\), here \(5,\), but gave shape \(\)"),
    ("reliability", nothing, "must give an array of shape .* but gave None"),
    ("reliability", averages, "what it gives for a row depends on other rows"),
    ("reliability", fails, "fails failed with AttributeError: .*cosine"),
    ("reliability", lists, "lists failed with TypeError: the columns of a term cannot be listed"),
    ("reliability", no_prior, "sample.'a', .*a prior must be a scalar numpyro distribution"),
    ("reliability", no_size, r"sample\('a', size=0\): the size is a whole number from 1, or None"),
    ("reliability", no_name, r"sample\('a b', \.\.\.\): the name of a parameter is a word"),
    ("reliability", by_number, "reads the column 3: the name of a column is text"),
    ("reliability", peeks, "reads the column 'value': only what is known before a claim is read may enter"),
    ("origin", agrees, "reads the column 'value'"),
    ("origin", wears_off, "wears_off failed with TypeError"),
    ("reliability", lambda xp, sample, columns: columns["age"], "is no term; give functions with a name"),
    ("reliability", "wears_off", "is no term; give functions with a name"),
    ("reliability", dict, "is no term; give functions with a name"),
]


@pytest.mark.parametrize(("part", "function", "message"), DECLARING)
def test_a_term_that_does_not_keep_to_the_protocol_is_refused(part: str, function: Any, message: str) -> None:
    with pytest.raises(nous.ModelError, match=message):
        nous.TrustModel(terms={part: [function]})


MODELS: list[tuple[dict[str, Any], str]] = [
    ({"terms": {"errors": [wears_off]}}, r"no part 'errors' takes terms; allowed are \['reliability', 'freshness'"),
    ({"terms": {"reliability": wears_off}}, "must be a list of functions"),
    ({"terms": {"reliability": [wears_off, wears_off]}}, "two terms are called 'wears_off'"),
    ({"terms": {"origin": [quotes]}, "origin": None}, r"no part 'origin' that takes terms in this model; there are"),
    ({"terms": {"freshness": [wears_off]}, "origin": None}, r"no part 'freshness' that takes terms"),
    ({"terms": {"popularity": [wears_off]}}, r'popularity has one with Errors\(popularity="1"\)'),
    ({"terms": {"origin": [log]}}, r"its parameter 'strangers' would be called 'log_strangers', as another one"),
    ({"terms": {"reliability": [age]}, "reliability": "1 + age_x"}, "would be called 'age_x', as another one"),
    (
        {"terms": {"reliability": [wears_off]}, "priors": {"reliability": {"slope": dist.Normal(0, 1)}}},
        "wears_off_slope",
    ),
]


@pytest.mark.parametrize(("given", "message"), MODELS)
def test_terms_where_there_is_no_place_for_them_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(nous.ModelError, match=message):
        nous.TrustModel(**given)


def test_what_a_claim_says_is_no_column() -> None:
    for column in SAID:

        def reads(xp: Any, sample: Any, pairs: Any, column: str = column) -> Any:
            return pairs.earlier[column]

        with pytest.raises(nous.ModelError, match=f"reads the column '{column}'"):
            declare("origin", reads)


COLUMNS: list[tuple[Any, str]] = [
    (lambda t: t.drop(columns="age"), r"wears_off: there is no column 'age'"),
    (
        lambda t: t.assign(age=t["age"].where(t.index > 2)),
        r"column 'age' is missing in 3 of 12 rows.*do without",
    ),
    (lambda t: t.assign(age="old"), r"wears_off: column 'age' must hold numbers; it holds for example 'old'"),
    (lambda t: t.assign(age=-2.0), r"wears_off gives nan for 12 of 12 claims, first where claim age = -2"),
]


@pytest.mark.parametrize(("change", "message"), COLUMNS)
def test_columns_that_a_term_cannot_use_are_refused(change: Any, message: str) -> None:
    evidence = nous.Evidence(change(some_evidence(1, 4, 3).claims))
    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [wears_off]})
    with pytest.raises(nous.ModelError, match=message):
        model.fit(evidence, nous.SVI(steps=100), learn_from="all")
    with pytest.raises(nous.ModelError, match=message):
        model.program(evidence, learn_from="all")
    with pytest.raises(nous.ModelError, match=message):
        model.default_trust(draws=3).posteriors(evidence)


def test_columns_of_pairs_are_checked_too() -> None:
    claims = some_evidence(1, 4, 3).claims
    model = nous.TrustModel("1", "1", answers={"x": 5}, terms={"origin": [recent]})
    with pytest.raises(nous.ModelError, match=r"terms\['origin'\]: recent: column 'channel' is missing in 1 of 12"):
        model.fit(nous.Evidence(claims.assign(channel=claims["channel"].where(claims.index != 4))))
    logs = nous.TrustModel("1", "1", answers={"x": 5}, terms={"origin": [on_log_lag]})
    with pytest.raises(nous.ModelError, match="on_log_lag gives nan for 12 of 12 pairs, first where lag = 1, later"):
        logs.default_trust(draws=2).posteriors(nous.Evidence(claims.assign(age=-1.0)))


def test_a_term_that_branches_on_values_is_refused_where_it_is_compiled() -> None:
    def branches(xp: Any, sample: Any, columns: Any) -> Any:
        slope = sample("slope", dist.Normal(0.0, 1.0))
        return slope * columns["age"] if slope > 0.0 else 0.0 * columns["age"]

    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [branches]})
    with pytest.raises(nous.ModelError, match="branches failed with TracerBoolConversionError"):
        model.fit(some_evidence(1, 4, 3), nous.SVI(steps=100), learn_from="all")


def test_a_term_keeps_to_what_it_declared() -> None:
    calls = []

    def unsteady(xp: Any, sample: Any, columns: Any) -> Any:
        calls.append(1)
        name, column = ("a", "age") if len(calls) <= 2 else ("b", "age")
        if len(calls) == 5:
            name, column = "a", "place"
        return sample(name, dist.Normal(0.0, 1.0)) * columns[column]

    model = nous.TrustModel("1", origin=None, answers={"x": 5}, terms={"reliability": [unsteady]})
    evidence = some_evidence(1, 4, 3)
    trust = model.default_trust(draws=2)
    for message in ("declares 'b', which", "declares 'b', which", "reads 'claim place', which"):
        with pytest.raises(nous.ModelError, match=f"{message} it did not when the model was made"):
            trust.posteriors(evidence)
