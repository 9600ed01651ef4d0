"""Claims whose origin is given: what is said of them, and their place among the origins of a question's claims."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nousppl.encode import Encoded


def status_of(encoded: Encoded, start: int, j: int) -> str:
    """What is to be said of claim j of the question whose claims begin at ``start``; mostly nothing."""
    coded = encoded.coded
    if not encoded.used[start + j]:
        return f"repeats {coded.claim_id[coded.claim_origin[start + j]]} (given)"
    notes = ["own note"] if coded.claim_derived[start + j] else []
    if coded.claim_denied[start + j] >= 0:
        notes.append(f"denies {coded.answer_value[coded.claim_denied[start + j]]}")
    if coded.claim_lasting[start + j] < 1.0:
        notes.append(f"lasting {coded.claim_lasting[start + j]:g}")
    return "; ".join(notes)


def with_lineage(
    encoded: Encoded, start: int, used: NDArray[np.bool_], among: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Origins among all claims of a question, those whose origin is given included."""
    n = len(used)
    out = np.zeros((n, n + 1))
    kept = np.flatnonzero(used)
    out[np.ix_(kept, np.concatenate([[0], kept + 1]))] = among
    given = np.flatnonzero(~used)
    out[given, encoded.coded.claim_origin[start + given] - start + 1] = 1.0
    return out
