"""The static side of a compiled problem: sizes and switches on which the array code is specialised."""

from __future__ import annotations

from typing import NamedTuple


class Lanes(NamedTuple):
    """Runs of events laid end to end in lanes of one length, for questions with about the same number of answers."""

    width: int
    """Most cells of a question."""
    steps: int
    """Length of a lane."""
    lanes: int
    """Number of lanes."""
    runs: int
    """Number of runs."""


class NumberSet(NamedTuple):
    """Questions about numbers with about as many claims, in as many orders."""

    width: int
    """No question has more claims: 2, 8, 32 and so on; the set is known by this and its orders."""
    orders: int
    """Most orders of a question."""
    questions: int
    claims: int
    """Claims of a question that its arrays hold, at most ``width``."""
    gaps: int = 0
    """Rejected values of a question that its arrays hold."""

    @property
    def prefix(self) -> str:
        """What the names of the arrays of the set begin with."""
        return f"number{self.width}x{self.orders} "


class Layout(NamedTuple):
    """Sizes and switches; hashable, so that code is compiled once per layout.

    A *slot* is a claim in one of the averaged orders of its question, an *instance* a question in one order, a *row*
    one value that a claim names (soft claims name several), a *cell* one answer of a question ("other" is one), an
    *icell* a cell in an instance, an *entry* a slot and a cell whose likelihood differs from that of a cell not named
    before, a *term* an entry and a row.
    """

    questions: int
    instances: int
    slots: int
    rows: int
    cells: int
    icells: int
    entries: int
    terms: int
    pairs: int
    """Listed pairs whose text was compared; 0 where the model has no text."""
    kin: int
    """Listed pairs of a row and an earlier slot with the same value whose sources have an affinity of their own."""
    apart: int
    """The same for pairs that say something else."""
    links: int
    """Pairs of sources that these are pairs of."""
    listed: int
    """Listed pairs of slots that pair terms of the user's own weigh; 0 where the model has none."""
    echoed: int
    """The same of two rows with the same value."""
    denied: int
    """Listed pairs of slots of which the value of the earlier one has been denied in between; 0 where that is no pair
    feature of the model."""
    again: int
    """The same of two rows with the same value."""
    slot_blocks: int
    """Blocks of slots in which long sums are taken, so that millions of small terms add up accurately; 0 where none is
    long."""
    entry_blocks: int
    """The same for the entries."""
    rounds: int
    """No chain is longer than ``2 ** rounds``."""
    nodes: int
    """Quadrature nodes of the normal difficulty; 0 where there is none."""
    mixture: bool
    """True where a question is easy or hard."""
    groups: int
    """Groups of pair features, ``2 ** features - 1``."""
    origins: bool
    lag: bool
    popularity: bool
    soft: bool
    bias: bool
    confusion: int
    """Learned rows of confusion, one for each true answer; 0 where there are none."""
    full: bool
    """True where every cell of every question has its own entries: no likelihood of an answer not named is needed."""
    notes: bool
    """True where some claims are the assistant's own notes."""
    ceiling: bool
    open: bool
    """True where some domains are open, so that the popularity of wrong answers may have to be clipped."""
    orders: bool
    """True where some question is averaged over several orders."""
    in_place: bool = False
    """True where the slots are the claims in their own order, so that nothing need be gathered."""
    denials: bool = False
    """True where some claims deny an answer."""
    lasting: bool = False
    """True where some claims are not meant to last, or only in part."""
    change: bool = False
    """True where truths change."""
    pinned: bool = False
    """True where they do and something is settled or rejected."""
    shaped: bool = False
    """True where some questions have another shape than one of several."""
    sets: int = 0
    """Entries of set-valued questions."""
    set_cells: int = 0
    """Cells of set-valued questions."""
    parts: bool = False
    """True where some set-valued questions of the evidence are in parts."""
    numbers: tuple[NumberSet, ...] = ()
    """Questions about numbers, by the number of their claims and orders."""
    points: int = 64
    """Intervals that the integral over a number is cut into, and one."""
    periods: int = 0
    """Entries of questions about what is true for a while."""
    period_cells: int = 0
    """Cells of these questions."""
    lanes: tuple[Lanes, ...] = ()
    """By width, where truths change; see ``nousppl.models.change``."""

    @property
    def families(self) -> int:
        """Families of chains: by instance, by value, and by both within each feature group."""
        return 2 + 2 * self.groups
