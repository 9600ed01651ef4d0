"""Which entities may be one and the same: how far what is believed of them lies apart, and what speaks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from nousppl._values import read_values
from nousppl.errors import EvidenceError
from nousppl.ragged import offsets, place_in_group, ranges
from nousppl.tables import Table, shorten

if TYPE_CHECKING:
    from nousppl.beliefs import Beliefs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PROBABLE = 0.1
"""Probability from which an answer is a reason to compare two entities."""
MET = 100_000_000
"""Pairs of entities that are put together at most by common answers; the commonest answers are left out beyond it."""
SCORED = 4_000_000
"""Pairs of entities that are scored at once."""
FLOOR = 0.01
"""Least Bayes factor of an attribute in the search for candidates: a clash may be a mistake."""
COMPARED = 200_000
"""Pairs of questions that are compared at once."""
WIDER = 4
"""Times as many pairs are looked at by what they have in common as are kept by their Bayes factor."""
STEPS, TOLERANCE = 200, 1e-6
PAIR = ("entity", "other")


def identity(
    beliefs: Beliefs,
    most: int = 10,
    least_shared: int = 1,
    pairs: pd.DataFrame | Iterable[tuple[Any, Any]] | None = None,
    by_attribute: bool = False,
    base_rates: str | None = None,
) -> pd.DataFrame:
    """Pairs of entities that may be one and the same, the likeliest first.

    Two beliefs about one attribute are laid on the answers that either of them names; what a belief leaves to answers
    that nobody named is spread evenly over these, so that an answer named for one entity only has the probability
    "other" / (number of unnamed answers) for the other one. Nothing is rounded or floored. Where the two domains differ
    in size or do not hold all the answers named, the domain is the larger one, or as many answers as are named.

    Args:
        beliefs: of any model, on any number of entities.
        most: candidates of an entity. They are found by answers that two entities share, each with probability at least
            .1: of the ``4 * most`` others for whom these speak most, the `most` with the greatest Bayes factor. Where
            answers in common put together more than 100 million pairs, the commonest ones are left out of this search
            (not of the comparison).
        least_shared: fewest attributes that there are beliefs about for both.
        pairs: compare these pairs instead: a frame with columns entity and other, or tuples.
        by_attribute: a row for each pair and shared attribute instead.
        base_rates: what law of the truths the beliefs were formed with, as in ``TrustModel``: "uniform" or "learned";
            default what the beliefs say of themselves, else "uniform".

    Returns:
        A row a pair: ``entity``, ``other``, ``shared`` (number of attributes), ``divergence`` and ``log_bayes_factor``,
        sorted by falling log_bayes_factor, then by rising divergence, then by name.

        ``divergence``: the mean over shared attributes of ``KL(p || q) + KL(q || p)`` in bits (Jeffreys 1946); times
        ``shared`` it is the sum. It is infinite where one belief rules out what the other one holds possible, as
        settled facts do, and small between two vague beliefs.

        ``log_bayes_factor``: the sum over shared attributes of the log of how much likelier the evidence is if both
        have the same truth than if both truths are drawn from the base rates, in nats: with base rates ``pi`` and
        likelihoods ``L = p / (law the beliefs were formed with)``,
        ``log sum_v pi L_1 L_2 - log sum_v pi L_1 - log sum_v pi L_2``, which is ``log sum_v p q / pi`` where the
        beliefs were formed with ``pi``. It is 0 where either belief says nothing. Added to the log prior odds of being
        the same it gives the posterior odds; it takes attributes, and the claims about either entity, as independent
        given the truths, and truths as lasting. The base rates are the most probable ones given all these beliefs (EM),
        with one more entity of which nothing is known.

        By attribute: ``entity``, ``other``, ``attribute``, ``divergence``, ``log_bayes_factor`` and ``agreement``, the
        probability ``sum_v p q`` that both truths are equal; pairs in the same order, attributes by log_bayes_factor.

    Raises:
        EvidenceError: `most` or `least_shared` below 1, an unknown law, a pair of an unknown entity or of one with
            itself.
    """
    for name, value in (("most", most), ("least_shared", least_shared)):
        if value < 1:
            raise EvidenceError(f"identity: {name}={value}. Allowed: a whole number from 1 on.")
    law = base_rates or beliefs.meta.get("base_rates", "uniform")
    if law not in ("uniform", "learned"):
        raise EvidenceError(f"identity: base_rates={law!r}. Allowed: 'uniform', 'learned'.")
    people = _Population(beliefs, learned=law == "learned")
    first, second = people.candidates(most) if pairs is None else people.named(pairs)
    pair, mine, theirs = people.shared(first, second)
    shared = np.bincount(pair, minlength=len(first))
    kept = shared >= least_shared
    within = kept[pair]
    pair, mine, theirs = pair[within], mine[within], theirs[within]
    parts = [people.compare(*piece) for piece in _pieces(mine, theirs)]
    terms = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0)] * 3
    divergence, factor = (np.bincount(pair, term, len(first)) for term in terms[:2])
    names = people.entities
    table = pd.DataFrame({"entity": names[first], "other": names[second], "shared": shared})
    table["divergence"], table["log_bayes_factor"] = divergence / np.maximum(shared, 1), factor
    order = np.lexsort((second, first, table["divergence"], -factor))
    order = order[kept[order]]
    if not by_attribute:
        return table.iloc[order].reset_index(drop=True)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(order))
    rows = np.lexsort((people.attribute[mine], -terms[1], rank[pair]))
    out = table.loc[pair[rows], [*PAIR]].reset_index(drop=True)
    out["attribute"] = people.attributes[people.attribute[mine[rows]]]
    out["divergence"], out["log_bayes_factor"], out["agreement"] = (term[rows] for term in terms)
    return out


class _Compared(NamedTuple):
    """Of pairs of beliefs (n,): divergence in bits, log Bayes factor in nats, chance that both truths are equal."""

    divergence: Floats
    factor: Floats
    agreement: Floats


class _Population:
    """Beliefs by entity and attribute, their named answers coded, and how common each answer is."""

    def __init__(self, beliefs: Beliefs, learned: bool) -> None:
        questions = beliefs.questions
        self.entity, self.entities = pd.factorize(questions["entity"], sort=True)
        self.attribute, self.attributes = pd.factorize(questions["attribute"], sort=True)
        self.key = self.entity * len(self.attributes) + self.attribute
        self.by_key = np.argsort(self.key, kind="stable")
        other, named = beliefs.cell_other, np.flatnonzero(~beliefs.cell_other)
        size = len(questions)
        self.question = beliefs.cell_question[named].astype(np.int64)
        self.code, self.answer_attribute = self._answers(beliefs.cell_answer[named])
        order = np.lexsort((self.code, self.question))
        self.question, self.code = self.question[order], self.code[order]
        self.probability = beliefs.probability[named][order]
        self.start = offsets(np.bincount(self.question, minlength=size))
        self.names = np.diff(self.start)
        unnamed = np.zeros((2, size))
        unnamed[:, beliefs.cell_question[other]] = beliefs.probability[other], beliefs.cell_count[other]
        self.other, self.count = unnamed
        self.each = np.divide(self.other, self.count, out=np.zeros(size), where=self.count > 0)
        self.size = self.names + self.count
        self.rate, self.law = self._rates(learned)
        self.seen = self._expected(self.rate / self.law)
        weight = np.sqrt(self.rate[self.code]) * (self.probability / self.law[self.code] - self.each[self.question])
        weight /= self.seen[self.question]
        self.leaning = sparse.csr_array((weight, self.code, self.start), shape=(size, len(self.rate)))

    def _answers(self, values: NDArray[np.object_]) -> tuple[Ints, Ints]:
        """Code of each named answer among those of all attributes, and the attribute of each code."""
        value, vocabulary = read_values(Table("beliefs", pd.DataFrame({"value": values})))
        joint = self.attribute[self.question] * max(len(vocabulary), 1) + value
        found, code = np.unique(joint, return_inverse=True)
        return code.astype(np.int64), found // max(len(vocabulary), 1)

    def _rates(self, learned: bool) -> tuple[Floats, Floats]:
        """(codes,) base rate of each named answer, and the law that beliefs were formed with, up to a factor by
        attribute."""
        size, of = len(self.attributes), self.answer_attribute
        names = np.bincount(of, minlength=size)
        whole = np.zeros(size)
        np.maximum.at(whole, self.attribute, self.size)
        whole = np.maximum(whole, names)
        people = np.bincount(self.attribute, minlength=size)
        rate = even = 1.0 / whole[of]
        mean = (np.bincount(self.code, self.probability, len(of)) + even) / (people + 1)[of]
        for _ in range(STEPS):
            seen = self._expected(rate)
            every = np.bincount(self.attribute, self.each / seen, size)
            more = (self.probability - self.each[self.question]) / seen[self.question]
            new = (rate * (np.bincount(self.code, more, len(of)) + every[of]) + even) / (people + 1)[of]
            moved = np.abs(new - rate).max(initial=0.0)
            rate = np.maximum(new, 0.0)
            if moved < TOLERANCE:
                break
        # Beliefs formed with learned rates have these as their mean (open domains are uniform in every model).
        closed = np.bincount(self.attribute, self.count, size) == 0
        by_law = learned & closed[of]
        return np.where(by_law, mean, rate), np.where(by_law, mean, 1.0)

    def _expected(self, weight: Floats) -> Floats:
        """(questions,) sum over all answers of the probability times a weight (codes,), those that are not named with
        what is left of the base rates."""
        size = len(self.entity)
        named = np.bincount(self.question, weight[self.code] * self.probability, size)
        return named + self.each * np.maximum(1.0 - np.bincount(self.question, weight[self.code], size), 0.0)

    def candidates(self, most: int) -> tuple[Ints, Ints]:
        """Pairs of entities that have probable answers in common: for each the `most` likeliest others."""
        first, second = self._met(most * WIDER)
        pair, mine, theirs = self.shared(first, second)
        factor = [self.factor(*piece) for piece in _pieces(mine, theirs)]
        score = np.bincount(pair, np.concatenate(factor), len(first)) if factor else np.zeros(len(first))
        entity, place = np.concatenate([first, second]), np.tile(np.arange(len(first)), 2)
        order = np.lexsort((place, -score[place], entity))
        best = np.unique(place[order][place_in_group(entity[order]) < most])
        return first[best], second[best]

    def _met(self, most: int) -> tuple[Ints, Ints]:
        """Pairs of entities with probable answers in common: for each the `most` for whom these speak most, against
        having none in common."""
        size = len(self.entities)
        probable = self.probability >= PROBABLE
        met = np.bincount(self.code[probable], minlength=len(self.rate)).astype(np.int64)
        rarest = np.argsort(met, kind="stable")
        too_common = np.zeros(len(met), bool)
        too_common[rarest[np.cumsum(met[rarest] * (met[rarest] - 1) // 2) > MET]] = True
        cells = np.flatnonzero(probable & ~too_common[self.code])
        unnamed = np.ones((len(self.attributes), size))
        unnamed[self.attribute, self.entity] = self.each / self.seen
        tables = []
        for attribute in range(len(self.attributes)):
            mine = cells[self.answer_attribute[self.code[cells]] == attribute]
            _, column = np.unique(self.code[mine], return_inverse=True)
            shape = (size, int(column.max(initial=-1)) + 1)
            if shape[1]:
                where = self.entity[self.question[mine]], column
                table = sparse.csr_array((self.leaning.data[mine], where), shape=shape)
                tables.append((table, table.T.tocsr(), unnamed[attribute]))
        rows = max(SCORED // max(size, 1), 1)
        pairs = [_best(tables, first, min(rows, size - first), size, most) for first in range(0, size, rows)]
        pair = np.unique(np.concatenate([*pairs, np.zeros(0, np.int64)]))
        return pair // size, pair % size

    def named(self, pairs: pd.DataFrame | Iterable[tuple[Any, Any]]) -> tuple[Ints, Ints]:
        """The pairs that were asked for."""
        frame = pairs if isinstance(pairs, pd.DataFrame) else pd.DataFrame([*pairs], columns=[*PAIR])
        missing = [column for column in PAIR if column not in frame]
        if missing:
            raise EvidenceError(f"pairs: no column {missing[0]!r} (found: {', '.join(map(str, frame.columns))}).")
        places = []
        for column in PAIR:
            place = pd.Index(self.entities).get_indexer(pd.Index(frame[column]))
            problem = "an entity that the beliefs do not hold"
            Table("pairs", frame).refuse(column, place < 0, problem, f"entities such as {shorten(self.entities[0])}")
            places.append(place.astype(np.int64))
        Table("pairs", frame).refuse("other", places[0] == places[1], "an entity and itself", "two entities")
        return places[0], places[1]

    def shared(self, first: Ints, second: Ints) -> tuple[Ints, Ints, Ints]:
        """For each attribute that both of a pair have: the pair, the question of the first and that of the second."""
        start = offsets(np.bincount(self.entity, minlength=len(self.entities)))
        number = np.diff(start)[first]
        pair = np.repeat(np.arange(len(first)), number)
        mine = self.by_key[ranges(start[first], number)]
        wanted = second[pair] * len(self.attributes) + self.attribute[mine]
        sorted_key = self.key[self.by_key]
        place = np.minimum(np.searchsorted(sorted_key, wanted), max(len(sorted_key) - 1, 0))
        there = sorted_key[place] == wanted
        return pair[there], mine[there], self.by_key[place[there]]

    def compare(self, mine: Ints, theirs: Ints) -> _Compared:
        """Two beliefs about one attribute, for many pairs of them."""
        size = len(mine)
        pair, p, q = self._union(mine, theirs)
        union = np.bincount(pair, minlength=size).astype(np.float64)
        whole = np.maximum.reduce([self.size[mine], self.size[theirs], union])
        each = []
        for question in (mine, theirs):
            unnamed = whole - self.names[question]
            each.append(np.divide(self.other[question], unnamed, out=np.zeros(size), where=unnamed > 0))
        p, q = np.where(np.isnan(p), each[0][pair], p), np.where(np.isnan(q), each[1][pair], q)
        left = whole - union
        divergence = np.bincount(pair, _jeffreys(p, q), size) + left * _jeffreys(*each)
        agreement = np.bincount(pair, p * q, size) + left * each[0] * each[1]
        return _Compared(divergence, self.factor(mine, theirs), agreement)

    def factor(self, mine: Ints, theirs: Ints) -> Floats:
        """(n,) log Bayes factor of two beliefs about one attribute having the same truth, for many pairs of them.

        With ``r`` the likelihood of an answer that is not named and ``Z = sum_v pi L``, both sums of the definition are
        over named answers only: the factor is ``1 - (1 - r_1/Z_1)(1 - r_2/Z_2) + sum_v pi (L_1 - r_1)(L_2 - r_2) / (Z_1
        Z_2)``, the last sum over the answers that both name.
        """
        unnamed = self.each / self.seen
        first, second = unnamed[mine], unnamed[theirs]
        common = self.leaning[mine].multiply(self.leaning[theirs]).sum(axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(first + second - first * second + common, 0.0)))

    def _union(self, mine: Ints, theirs: Ints) -> tuple[Ints, Floats, Floats]:
        """For each answer that either of two beliefs names: the pair, and its probability in each, NaN where it is not
        named."""
        joint, sides = [], []
        for question in (mine, theirs):
            cell = ranges(self.start[question], self.names[question])
            pair = np.repeat(np.arange(len(mine)), self.names[question])
            joint.append(pair * len(self.rate) + self.code[cell])
            sides.append(self.probability[cell])
        # A sort: np.unique by hashing is several times slower on as many different codes.
        found = np.sort(np.concatenate(joint))
        found = found[np.r_[True, found[1:] != found[:-1]][: len(found)]]
        out = np.full((2, len(found)), np.nan)
        for side in (0, 1):
            out[side, np.searchsorted(found, joint[side])] = sides[side]
        return found // max(len(self.rate), 1), out[0], out[1]


def _jeffreys(p: Floats, q: Floats) -> Floats:
    """``(p - q) log2(p / q)``; 0 where they are equal, infinite where one is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p == q, 0.0, (p - q) * (np.log2(p) - np.log2(q)))


def _best(tables: list[Any], first: int, rows: int, size: int, most: int) -> Ints:
    """Codes ``smaller * size + larger`` of the `most` best pairs of each of some entities, as far as anything speaks
    for them."""
    flat = np.zeros(rows * size)
    for table, turned, unnamed in tables:
        common = table[first : first + rows] @ turned
        row, column = np.repeat(np.arange(rows), np.diff(common.indptr)), common.indices
        one, two = unnamed[first + row], unnamed[column]
        apart = np.maximum(one + two - one * two, FLOOR)
        flat[row * size + column] += np.log1p(np.maximum(common.data / apart, FLOOR - 1.0))
    score = flat.reshape(rows, size)
    entity = first + np.arange(rows)
    score[np.arange(rows), entity] = 0.0
    most = min(most, size)
    best = np.argpartition(score, size - most, axis=1)[:, size - most :]
    row, place = np.nonzero(np.take_along_axis(score, best, 1) > 0.0)
    other = best[row, place]
    return np.minimum(entity[row], other) * size + np.maximum(entity[row], other)


def _pieces(mine: Ints, theirs: Ints) -> Iterable[tuple[Ints, Ints]]:
    return ((mine[at : at + COMPARED], theirs[at : at + COMPARED]) for at in range(0, len(mine), COMPARED))
