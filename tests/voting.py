"""A forecaster that every test can afford."""

from __future__ import annotations

import pandas as pd

import nousppl as nous


def vote(evidence: nous.Evidence, seed: int) -> nous.Beliefs:
    """Shares of votes; a settled truth that is in the evidence is told as it stands."""
    claims = evidence.claims
    counts = claims.groupby(["entity", "attribute", "value"]).size().rename("votes").reset_index()
    facts = evidence.settled[["entity", "attribute", "value"]].assign(votes=1e6)
    both = pd.concat([counts, facts], ignore_index=True) if len(facts) else counts
    table = both.groupby(["entity", "attribute", "value"], as_index=False)["votes"].sum()
    keys = ["entity", "attribute"]
    others = table[keys].drop_duplicates().assign(value="other", votes=1.0)
    table = pd.concat([table, others], ignore_index=True)
    table["probability"] = table["votes"] / table.groupby(keys)["votes"].transform("sum")
    table["other"] = table["value"] == "other"
    return nous.Beliefs.from_frame(table.rename(columns={"value": "answer"}).drop(columns="votes"))
