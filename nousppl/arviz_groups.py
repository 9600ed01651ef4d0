"""A trust as arviz reads it, with the groups that need the evidence or the priors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from nousppl import beliefs_arviz, saving
from nousppl.arviz_bridge import efficiency
from nousppl.evidence import Evidence
from nousppl.learned import evidence_of, learned_from, unseen_facts, without_later_facts, without_truths
from nousppl.model import prior_draws
from nousppl.value_text import question_names, write

if TYPE_CHECKING:
    from nousppl.trust import Trust


def groups(
    trust: Trust,
    evidence: Evidence | None,
    *,
    log_likelihood: bool,
    prior: bool,
    posterior_predictive: bool,
    seed: int,
) -> dict[str, xr.Dataset]:
    """Group -> dataset; see `nousppl.trust.Trust.to_arviz`."""
    out = saving.datasets(trust)
    if prior:
        count = int(np.prod(_shape(trust)))
        out["prior"] = saving.named(trust.blueprint, prior_draws(trust.blueprint, seed, count))
    if log_likelihood or posterior_predictive:
        evidence = evidence_of(trust, evidence, "to_arviz")
    if evidence is None:
        return out
    out["constant_data"] = out.get("constant_data", xr.Dataset()).merge(claims(trust, evidence))
    out["observed_data"] = _values(out["constant_data"])
    if log_likelihood:
        part = learned_from(trust, without_later_facts(trust, evidence), "to_arviz(log_likelihood=True)")
        logs = trust.log_likelihood(part)
        if logs.sizes["chain"] == 1:
            logs.attrs["efficiency"] = efficiency(logs)
        out["log_likelihood"] = logs.to_dataset(name="questions")
    if posterior_predictive:
        asked = unseen_facts(trust, evidence)
        beliefs = trust.posteriors(without_truths(asked))
        out |= beliefs_arviz.predicted(beliefs, asked.settled, _shape(trust), seed)
    return out


def claims(trust: Trust, evidence: Evidence) -> xr.Dataset:
    """Who said what about what: by ``claim`` its value (that of the largest weight where it is soft), source, question
    and time (days since 1970-01-01 for dates, else the number), by ``question`` the numbers of its claims and of its
    plausible answers K."""
    coded, encoded = evidence.coded, trust.encoded(evidence)
    names = np.array(question_names(coded.questions["entity"], coded.questions["attribute"]), object)
    top = np.lexsort((-coded.row_weight, coded.row_claim))[coded.row_start[:-1]]
    values = [write(value) for value in coded.answer_value[coded.row_answer[top]]]
    return xr.Dataset(
        {
            "claim_value": ("claim", np.array(values, object)),
            "claim_source": ("claim", np.array([str(source) for source in coded.sources[coded.claim_source]], object)),
            "claim_question": ("claim", names[coded.claim_question]),
            "claim_time": ("claim", coded.claim_time),
            "question_claims": ("question", np.diff(coded.claim_start)),
            "question_answers": ("question", encoded.cells.size[: len(names)]),
        },
        {
            "claim": np.array([str(name) for name in coded.claim_id], object),
            "question": names,
            "entity": ("question", coded.questions["entity"].to_numpy(object)),
            "attribute": ("question", coded.questions["attribute"].to_numpy(object)),
        },
    )


def _values(constant: xr.Dataset) -> xr.Dataset:
    """The values of the claims, which are what was observed as long as no settled truths are predicted."""
    return constant.set_coords(["claim_source", "claim_question"])[["claim_value"]].rename(claim_value="value")


def _shape(trust: Trust) -> tuple[int, int]:
    """Number of chains and of draws of each."""
    chains, draws = next(iter(trust.posterior_draws.values())).shape[:2]
    return int(chains), int(draws)
