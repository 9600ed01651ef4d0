"""Which of several trusts, or of several forecasters that were held to the same questions, predicts better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import saving
from nousppl.arviz_bridge import Loo, loo, stacking_weights
from nousppl.errors import QuestionError
from nousppl.evidence import Evidence
from nousppl.held_out import KEYS, CrossValidation
from nousppl.learned import evidence_of, learned_from
from nousppl.trust import Trust

Floats = NDArray[np.float64]
RESAMPLES = 9999
"""Sign patterns that the permutation test draws."""


def compare(
    candidates: Mapping[str, Trust | CrossValidation],
    evidence: Evidence | None = None,
    reference: str | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare trusts by leave-one-question-out, or cross-validations on the questions that all of them held out.

    Trusts are compared by how well each predicts the claims *and* the settled truth of a question that it did not see
    (Pareto-smoothed importance sampling, Vehtari et al. 2017), so a better law of who repeats whom counts there even
    where the truths are found equally well; cross-validations are compared by the truths alone. Trusts must have been
    learned from the same questions.

    Args:
        candidates: name -> ``Trust``, or name -> ``CrossValidation``; two or more.
        evidence: what all trusts were learned from; default the evidence of the first fit, while that is still held.
        reference: name of the candidate that differences are taken to; default the best.
        seed: of the permutation test.

    Returns:
        A row a candidate, best first. Of trusts: elpd (expected log predictive density of all questions, nats, large is
        good), elpd_diff (to the reference), diff_se (standard error of the paired difference), parameters (effective
        number), weight (stacking), bad_k (share of questions whose importance ratios are too heavy-tailed to be
        trusted), n, note. Of cross-validations: log_loss and accuracy, for each the paired difference to the reference
        (_diff), its standard error (_se) and p (log loss: sign-flip permutation test; accuracy: sign test on the
        questions that only one of the two gets right, McNemar 1947), and n. Standard errors take questions as
        independent.

    Raises:
        QuestionError: the candidates are not about the same questions, claims and truths, or cannot be compared.
        InferenceError: a trust has too few draws to leave questions out by importance.
    """
    names = [str(name) for name in candidates]
    if len(names) < 2:
        raise QuestionError(f"compare: {len(names)} candidates given; at least 2 are needed")
    if reference is not None and reference not in candidates:
        raise QuestionError(f"compare: reference={reference!r} is none of the candidates {names}")
    trusts = {name: one for name, one in candidates.items() if isinstance(one, Trust)}
    runs = {name: one for name, one in candidates.items() if isinstance(one, CrossValidation)}
    if len(trusts) == len(names):
        return _by_loo(trusts, evidence, reference)
    if len(runs) == len(names):
        return _by_held_out(runs, reference, seed)
    kinds = {name: type(one).__name__ for name, one in candidates.items()}
    raise QuestionError(
        f"compare: {kinds}; allowed are only Trust, or only CrossValidation (of cross_validate or prequential)"
    )


def _by_loo(trusts: dict[str, Trust], evidence: Evidence | None, reference: str | None) -> pd.DataFrame:
    parts = {name: learned_from(one, evidence_of(one, evidence, name), name) for name, one in trusts.items()}
    first = next(iter(parts))
    for name, part in parts.items():
        if _what(part) != _what(parts[first]):
            raise QuestionError(
                f"compare: {first!r} was learned from {len(parts[first].questions)} questions and {name!r} from "
                f"{len(part.questions)}, not the same questions, claims and settled truths; fit both on one evidence "
                "with the same learn_from"
            )
    found = {
        name: loo(one.log_likelihood(parts[name]), saving.datasets(one)["posterior"]) for name, one in trusts.items()
    }
    weights = stacking_weights(found)
    best = reference or max(found, key=lambda name: float(found[name].elpd.sum()))
    rows = []
    for name, one in found.items():
        difference, error = paired(one.elpd, found[best].elpd)
        n = len(one.elpd)
        # A shape that is no number is bad too.
        bad = float(1.0 - (one.pareto_k <= one.good_k).mean())
        row = {"elpd": one.elpd.sum(), "elpd_diff": difference * n, "diff_se": error * n, "parameters": one.parameters}
        rows.append({**row, "weight": weights[name], "bad_k": bad, "n": n, "note": _note(one, bad)})
    table = pd.DataFrame(rows, index=pd.Index(found, name="candidate"))
    return table.sort_values("elpd", ascending=False, kind="stable")


def _what(evidence: Evidence) -> tuple[Any, ...]:
    """Everything that a likelihood is a likelihood of."""
    coded = evidence.coded
    answers = coded.answer_value[coded.settled_answer].tolist()
    facts = zip(coded.settled_question.tolist(), map(repr, answers), coded.settled_rejected.tolist(), strict=True)
    return coded.questions.to_numpy().tolist(), np.sort(coded.claim_key).tolist(), sorted(facts)


def _note(one: Loo, bad: float) -> str:
    if not bad:
        return ""
    return f"{bad:.1%} of the questions have a Pareto k above {one.good_k:.2f}: take more draws, or cross_validate"


def paired(one: Floats, other: Floats) -> tuple[float, float]:
    """Mean of the differences of two scores of the same n questions, and its standard error."""
    difference = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    n = len(difference)
    error = float(difference.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return float(difference.mean()), error


def permutation_p(difference: Floats, seed: int) -> float:
    """Two-sided p of a mean difference of 0 by flipping signs at random; 1 where all differences are 0."""
    from scipy.stats import permutation_test

    if not difference.any():
        return 1.0
    result = permutation_test(
        (difference,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(10_000_000 // len(difference), 1),
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def sign_p(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """Two-sided p of the sign test on questions that only one of two gets right; 1 where there are none."""
    from scipy.stats import binomtest

    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    total = only_one + only_other
    return float(binomtest(only_one, total).pvalue) if total else 1.0


def _by_held_out(runs: dict[str, CrossValidation], reference: str | None, seed: int) -> pd.DataFrame:
    points = _aligned(runs)
    best = reference or min(points, key=lambda name: float(points[name]["log_loss"].mean()))
    against = points[best]
    rows = []
    for name, mine in points.items():
        row: dict[str, Any] = {}
        # A number has no top answer that could be right.
        judged = (mine["right"].notna() & against["right"].notna()).to_numpy()
        right = [points["right"].to_numpy()[judged].astype(bool) for points in (mine, against)]
        loss = [points["log_loss"].to_numpy(np.float64) for points in (mine, against)]
        for score, (own, other) in (("log_loss", loss), ("accuracy", right)):
            row[score] = float(own.mean()) if len(own) else np.nan
            row[f"{score}_diff"], row[f"{score}_se"] = paired(own, other) if len(own) else (np.nan, np.nan)
            row[f"{score}_p"] = 1.0
        if name != best:
            row["log_loss_p"] = permutation_p(loss[0] - loss[1], seed)
            row["accuracy_p"] = sign_p(*right)
        rows.append({**row, "n": len(mine)})
    table = pd.DataFrame(rows, index=pd.Index(points, name="candidate"))
    return table.sort_values("log_loss", kind="stable")


def _aligned(runs: dict[str, CrossValidation]) -> dict[str, pd.DataFrame]:
    """The pointwise scores of all runs with their questions in one order.

    Raises:
        QuestionError: not the same questions and truths.
    """
    first = next(iter(runs))
    wanted = runs[first].pointwise[KEYS]
    truths = runs[first].settled.set_index(KEYS)["value"].groupby(level=KEYS).first()
    out = {}
    for name, run in runs.items():
        own = run.settled.set_index(KEYS)["value"].groupby(level=KEYS).first()
        missing, extra = truths.index.difference(own.index), own.index.difference(truths.index)
        if len(missing) or len(extra):
            alone = [*missing, *extra]
            raise QuestionError(
                f"compare: {first!r} held out {len(truths)} questions and {name!r} {len(own)}: {len(alone)} are not in "
                f"both, first {alone[0]}; hold out the same questions"
            )
        other = (own.reindex(truths.index) != truths).to_numpy()
        if other.any():
            raise QuestionError(
                f"compare: the settled truths of {first!r} and {name!r} differ in {int(other.sum())} of {len(truths)} "
                f"questions, first {truths.index[int(other.argmax())]}"
            )
        out[name] = run.pointwise.set_index(KEYS).loc[pd.MultiIndex.from_frame(wanted)].reset_index()
    return out
