"""Set-valued questions with too many sets to sum over, laid out in parts: each has some of the items, and the lists of
all claims restricted to them.

A part is a question of its own to all that is compiled. Parts come after the questions of the evidence, so that these
keep their places, and the first part of a question has the place of the whole. Given the origins of the claims the
items are independent of each other, so that the parts share nothing but the origins; ``nousppl.models.parts`` joins
them again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.evidence import Evidence
from nousppl.models.shapes import AnyOf
from nousppl.ragged import Ints, offsets, ranges

ALONE = 12
"""Up to this many items each is a group of its own."""
MOST_CELLS = 4096
"""Most cells of a question that is laid out as a whole."""
PART_CELLS = 64
"""Most cells of a part, or those of one group: 6 items."""
DENIES = "denies"
"""Column of the claims with the items that are denied."""

Listed = tuple[str, ...]
Groups = tuple[Listed, ...]


@dataclass(frozen=True, eq=False)
class Parts:
    """An evidence with each set-valued question that is too large in parts: Q questions and J claims, and those of the
    parts beyond the first of each, claims once for each part."""

    coded: Coded
    covariates: pd.DataFrame
    """A row a claim, aligned with `coded`."""
    time_kind: str | None
    questions: int
    """Q: questions of the evidence, which come first."""
    claims: int
    """J: claims of the evidence, which come first."""
    whole: Ints
    """(Q + further parts,) question of the evidence that each is a part of; itself of those that are no part."""
    groups: Mapping[int, Groups]
    """Set-valued question or part -> its groups of items."""
    named: Mapping[int, Listed]
    """Answer of a set-valued question -> the items that it lists, of whichever part."""
    denied: Mapping[int, Listed]
    """Claim -> the items that it denies."""

    @property
    def split(self) -> bool:
        """Whether some question is in parts."""
        return len(self.whole) > self.questions

    def of(self, questions: Ints) -> Ints:
        """Questions of the evidence, sorted, and then all their further parts."""
        if not self.split:
            return questions
        mine = np.flatnonzero(np.isin(self.whole, questions))
        return np.concatenate([questions, mine[mine >= self.questions]])

    def names(self, question: int) -> Listed:
        """All items of a question of the evidence, part by part."""
        parts = self.of(np.array([question])).tolist()
        return tuple(name for part in parts for group in self.groups[part] for name in group)


def find_parts(evidence: Evidence, shapes: Mapping[Any, AnyOf], closed: Mapping[Any, tuple[Any, ...]]) -> Parts:
    """Group the items of all set-valued questions, and lay out in parts those with too many sets.

    Args:
        evidence: claims and settled facts.
        shapes: set-valued attribute -> shape.
        closed: attribute -> closed list of items, where there is one.

    Raises:
        ModelError: an item outside a closed list.
    """
    coded, frame = evidence.coded, evidence.covariates
    size, claims = len(coded.questions), len(coded.claim_question)
    whole = Parts(coded, frame, evidence.time_kind, size, claims, np.arange(size), {}, {}, {})
    if not shapes:
        return whole
    attribute = pd.Index(list(shapes), dtype=object).get_indexer(coded.questions["attribute"].astype(object))
    named, denied = _named(coded, attribute, shapes), _denied(coded, frame, attribute, shapes)
    lists: dict[int, list[Listed]] = {int(q): [] for q in np.flatnonzero(attribute >= 0)}
    of_answer = coded.answers["question"].to_numpy()
    for answer, listed in named.items():
        lists[int(of_answer[answer])].append(listed)
    for claim, listed in denied.items():
        lists[int(coded.claim_question[claim])].append(listed)
    groups: dict[int, Groups] = {}
    several: dict[int, tuple[Groups, ...]] = {}
    for question, of_question in lists.items():
        items = _items(coded, question, list(shapes)[attribute[question]], of_question, closed)
        found = alike(items, of_question) if len(items) > ALONE else {item: [item] for item in sorted(items)}
        groups[question] = tuple(tuple(group) for group in found.values())
        if math.prod(len(group) + 1 for group in groups[question]) > MOST_CELLS:
            several[question] = cut(alike(items, of_question))
            groups[question] = several[question][0]
    whole = replace(whole, groups=groups, named=named, denied=denied)
    return _with_further(whole, several) if several else whole


def alike(items: set[str], lists: Sequence[Listed]) -> dict[Any, list[str]]:
    """Items by which of the lists hold them, in sorted order."""
    sets = [frozenset(listed) for listed in lists]
    out: dict[Any, list[str]] = {}
    for item in sorted(items):
        out.setdefault(tuple(item in listed for listed in sets), []).append(item)
    return out


def cut(groups: Mapping[tuple[bool, ...], list[str]]) -> tuple[Groups, ...]:
    """Groups of items in parts of about the same size: each begins with the first group that is left and goes on with
    those that occur in the same lists as its groups, so that it shows whole lists as far as it can."""
    held = np.array(list(groups), float).reshape(len(groups), -1)
    names = [tuple(group) for group in groups.values()]
    same = held @ held.T + (1.0 - held) @ (1.0 - held).T
    width = np.log([len(group) + 1.0 for group in names])
    most = math.log(PART_CELLS) + 1e-9
    enough = width.sum() / math.ceil(width.sum() / most) - 1e-9
    left, out = np.ones(len(names), bool), []
    while left.any():
        part = [int(left.argmax())]
        left[part] = False
        likeness, total = same[part[0]].copy(), width[part[0]]
        while total < enough and (fits := left & (total + width <= most)).any():
            part.append(int(np.where(fits, likeness, -1.0).argmax()))
            left[part[-1]] = False
            likeness, total = likeness + same[part[-1]], total + width[part[-1]]
        out.append(tuple(names[group] for group in sorted(part)))
    return tuple(out)


def _items(
    coded: Coded, question: int, name: Any, lists: Sequence[Listed], closed: Mapping[Any, tuple[Any, ...]]
) -> set[str]:
    """Items of a question: those of its lists, or of the closed list."""
    items = {item for listed in lists for item in listed}
    if name not in closed:
        return items
    allowed = {str(item) for item in closed[name]}
    if items - allowed:
        raise ModelError(
            f"answers[{name!r}]: item {min(items - allowed)!r} of entity "
            f"{coded.questions['entity'].iat[question]!r} is outside its closed list; allowed are {sorted(allowed)}"
        )
    return allowed


def _named(coded: Coded, attribute: NDArray[np.intp], shapes: Mapping[Any, AnyOf]) -> dict[int, Listed]:
    """Items that each answer of a set-valued question lists."""
    of_answer = attribute[coded.answers["question"].to_numpy()]
    by_place = list(shapes.values())
    return {int(a): by_place[of_answer[a]].items(coded.answer_value[a]) for a in np.flatnonzero(of_answer >= 0)}


def _denied(
    coded: Coded, frame: pd.DataFrame, attribute: NDArray[np.intp], shapes: Mapping[Any, AnyOf]
) -> dict[int, Listed]:
    """Items that each claim denies."""
    if DENIES not in frame:
        return {}
    by_place, given = list(shapes.values()), frame[DENIES]
    mine = np.flatnonzero((attribute[coded.claim_question] >= 0) & given.notna().to_numpy())
    values = given.to_numpy(object)
    return {int(j): by_place[attribute[coded.claim_question[j]]].items(values[j]) for j in mine}


def _with_further(whole: Parts, several: Mapping[int, tuple[Groups, ...]]) -> Parts:
    """The evidence with the claims, answers and settled facts of some questions once more for each further part."""
    coded = whole.coded
    of = np.repeat(list(several), [len(parts) - 1 for parts in several.values()]).astype(np.int64)
    further = [part for parts in several.values() for part in parts[1:]]
    claims = _Again(coded.claim_start, of)
    answers = _Again(coded.answer_start, of)
    facts = _Again(coded.settled_start, of)
    rows = _Again(coded.row_start, claims.taken)
    question = len(coded.questions) + np.arange(len(of))
    more = replace(
        coded,
        questions=pd.concat([coded.questions, coded.questions.iloc[of]], ignore_index=True),
        question_attribute=np.concatenate([coded.question_attribute, coded.question_attribute[of]]),
        answers=pd.concat(
            [coded.answers, coded.answers.iloc[answers.taken].assign(question=answers.owner(question))],
            ignore_index=True,
        ),
        claim_question=np.concatenate([coded.claim_question, claims.owner(question).astype(np.int32)]),
        claim_denied=np.concatenate([coded.claim_denied, claims.moved(coded.claim_denied, answers)]),
        claim_origin=np.concatenate([coded.claim_origin, claims.moved(coded.claim_origin, claims)]),
        claim_index=coded.claim_index.append(coded.claim_index[claims.taken]),
        row_claim=np.concatenate([coded.row_claim, rows.owner(claims.places).astype(np.int32)]),
        row_answer=np.concatenate([coded.row_answer, rows.moved(coded.row_answer, answers, claims.part)]),
        settled_question=np.concatenate([coded.settled_question, facts.owner(question).astype(np.int32)]),
        settled_answer=np.concatenate([coded.settled_answer, facts.moved(coded.settled_answer, answers)]),
        **{name: claims.longer(getattr(coded, name)) for name in _OF_CLAIMS},
        **{name: facts.longer(getattr(coded, name)) for name in _OF_FACTS},
        row_weight=rows.longer(coded.row_weight),
    )
    position = np.concatenate([np.arange(whole.claims), claims.taken])
    return replace(
        whole,
        coded=more,
        covariates=whole.covariates.iloc[position].reset_index(drop=True),
        whole=np.concatenate([whole.whole, of]),
        groups={**whole.groups, **dict(zip(question.tolist(), further, strict=True))},
        named=answers.same(whole.named),
        denied=claims.same(whole.denied),
    )


_OF_CLAIMS = (
    "claim_time",
    "claim_known_at",
    "claim_source",
    "claim_ceiling",
    "claim_derived",
    "claim_lasting",
    "claim_key",
)
_OF_FACTS = ("settled_time", "settled_known_at", "settled_rejected")


class _Again:
    """Elements of some owners taken once more and put after all others.

    Args:
        start: (owners + 1,) elements of owner i are start[i] : start[i + 1].
        of: owners, each as often as its elements are taken.
    """

    def __init__(self, start: Ints, of: Ints) -> None:
        counts = np.diff(start)[of]
        self.taken = ranges(start[:-1][of], counts)
        self.part = np.repeat(np.arange(len(of)), counts)
        """(taken,) which of the owners given."""
        self.total = int(start[-1])
        self.places = self.total + np.arange(len(self.taken))
        self.shift = self.total + offsets(counts)[:-1] - start[:-1][of]
        """(owners given,) how far on the element is than the one it is taken from."""

    def owner(self, names: NDArray[Any]) -> NDArray[Any]:
        """(taken,) what the owner of each is called."""
        return names[self.part]

    def longer(self, values: NDArray[Any]) -> NDArray[Any]:
        """All values, and those of the elements taken once more."""
        return np.concatenate([values, values[self.taken]])

    def moved(self, index: NDArray[Any], to: _Again, part: Ints | None = None) -> NDArray[Any]:
        """(taken,) an index of each into elements of the same owner, -1 for none, moved to those taken once more."""
        old = index[self.taken]
        shift = to.shift[self.part if part is None else part[self.part]]
        return np.where(old >= 0, old + shift, -1).astype(index.dtype)

    def same(self, known: Mapping[int, Listed]) -> dict[int, Listed]:
        """What is known of elements, of those taken once more too."""
        pairs = zip(self.places.tolist(), self.taken.tolist(), strict=True)
        return {**known, **{place: known[old] for place, old in pairs if old in known}}
