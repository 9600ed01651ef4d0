"""What a claim says beside its value: what it denies, and how far it is meant to last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nousppl._soft import Grouping
from nousppl._values import KINDS, SameValue, Vocabulary, join, read_values
from nousppl.tables import Table, is_blank, plain

DENIED = "a value of the attribute, other than the one that the claim names, or a blank for none"
LASTING = "a number from 0 (meant for the moment only) to 1 (meant to last), or a blank for 1"


def read_denials(
    table: Table, values: NDArray[np.int64], vocabulary: Vocabulary, same_value: SameValue | None
) -> tuple[NDArray[np.int64], Vocabulary]:
    """Code (rows,) of the value that each row denies, -1 for none, and a vocabulary that holds these values as well.

    Args:
        table: the claims.
        values: (rows,) code of the value of each row.
        vocabulary: of the values.
        same_value: as in ``nousppl.Evidence``.

    Raises:
        EvidenceError: a cell is no value, of another kind than the values of its attribute, or the claim's own value.
    """
    none = np.full(len(table), -1, dtype=np.int64)
    if "denies" not in table or (blank := is_blank(table.frame["denies"])).all():
        return none, vocabulary
    # Rows that deny nothing stand with their value, which was checked, so that rows keep their places in messages.
    cells = plain(table.frame["denies"]).astype(object)
    filled = cells.where(~blank, plain(table.frame["value"]).astype(object))
    named = Table(table.name, table.frame.assign(denies=filled))
    codes, theirs = read_values(named, same_value, column="denies", allowed=DENIED)
    vocabulary, place = join(vocabulary, theirs)
    denied, kinds = place[codes], vocabulary.kinds
    other = ~blank & (kinds[denied] != kinds[values])
    if other.any():
        first = int(other.argmax())
        problem = f"{KINDS[kinds[denied[first]]]}, where values of the attribute are {KINDS[kinds[values[first]]]},"
        table.refuse("denies", other, problem, DENIED)
    table.refuse("denies", ~blank & (denied == values), "the value that the claim itself names", DENIED)
    return np.where(blank, none, denied), vocabulary


def refuse_soft_denials(table: Table, denied: NDArray[np.int64], group: Grouping) -> None:
    """Refuse soft claims that deny a value: what a reader who is not sure of the value makes of it is not defined."""
    soft = np.bincount(group.claim, minlength=len(group.first)) > 1
    soft |= np.bincount(group.claim, group.weight, minlength=len(group.first)) < 1.0
    bad = np.zeros(len(table), dtype=bool)
    bad[group.kept] = soft[group.claim] & (denied[group.kept] >= 0)
    table.refuse(
        "denies", bad, "a denial in a soft claim", "a blank where a claim has several values or a weight below 1"
    )


def read_lasting(table: Table) -> NDArray[np.float64]:
    """(rows,) how far each row is meant to last, 0 to 1; 1 where nothing is said.

    Raises:
        EvidenceError: a number outside that range, or none.
    """
    if "lasting" not in table:
        return np.ones(len(table))
    lasting = table.numbers("lasting")
    table.refuse("lasting", (lasting < 0) | (lasting > 1), "a number outside [0, 1]", LASTING)
    return np.where(np.isnan(lasting), 1.0, lasting)
