"""Questions about numbers (``Number``) as arrays: values in units of their attribute, rounding cells, settled ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from nousppl.coded import Coded
from nousppl.errors import ModelError
from nousppl.models.shapes import Number
from nousppl.ragged import Floats, Ints, offsets

FARTHEST = 2.0**53
"""Multiples of the resolution beyond which numbers are not told apart."""
FREEDOM = 3.0
"""Degrees of freedom of the law of claims that are no proper measurements: Student's t with the attribute's scale."""
RANGE = 8.0
"""A repetition that goes wrong comes out as any of the rounding cells within so many scales of the attribute."""
Scales = Mapping[Any, tuple[float, float]]
"""Attribute -> its centre and scale."""


@dataclass(frozen=True)
class Numbers:
    """The questions about numbers of an evidence, in units of their attributes."""

    attributes: tuple[Any, ...]
    """Attributes that are numbers, the axis of their parameters."""
    attribute: Ints
    """(Q,) place among `attributes`; -1 for questions of another shape."""
    centre: Floats
    """(attributes,) in the unit of the values."""
    scale: Floats
    """(attributes,) in the unit of the values."""
    step: Floats
    """(attributes,) width of the rounding cells."""
    code: Ints
    """(answers,) rounding cell of each of ``coded.answers``, a multiple of the resolution; 0 for other shapes."""
    value: Floats
    """(answers,) middle of that cell."""
    log_wide: Floats
    """(answers,) log mass of the cell under the law of claims that are no proper measurements."""
    truth: Floats
    """(Q,) settled truth; NaN where there is none."""
    gap_offset: Ints
    """(Q + 1,) where the gaps of each question start."""
    gap: Floats
    """(gaps,) middles of the rounding cells of rejected values, in which the truth does not lie; those of a question
    ascend. A question with a settled truth has none."""

    def gaps_of(self, question: int) -> tuple[tuple[float, float], ...]:
        """Rounding cells in which the truth of a question does not lie, in the unit of the values: low and high."""
        attribute = self.attribute[question]
        centre, scale, half = self.centre[attribute], self.scale[attribute], 0.5 * self.step[attribute]
        middles = self.gap[self.gap_offset[question] : self.gap_offset[question + 1]]
        return tuple((float(centre + scale * (x - half)), float(centre + scale * (x + half))) for x in middles)

    def size(self, attribute: Ints) -> Floats:
        """How many values a repetition that goes wrong may come out as, of questions about these attributes."""
        return np.maximum(np.ceil(RANGE / self.step[attribute]), 2.0)


def number_shapes(shapes: Mapping[Any, Any]) -> dict[Any, Number]:
    """The attributes that are numbers."""
    return {attribute: shape for attribute, shape in shapes.items() if isinstance(shape, Number)}


def find_scales(coded: Coded | None, shapes: Mapping[Any, Any], known: Scales, given: Any = ()) -> dict[Any, Any]:
    """Centre and scale of the attributes that are numbers, where they are known or can be found.

    Args:
        coded: an evidence.
        shapes: attribute -> shape.
        known: those that were found before, which stay.
        given: attributes whose answers are declared.

    Raises:
        ModelError: values that are no numbers, or answers of a number are declared.
    """
    out = dict(known)
    for attribute, shape in number_shapes(shapes).items():
        if attribute in given:
            raise ModelError(f"answers[{attribute!r}]: the attribute is a number (shapes=...), any value is allowed")
        if attribute in out:
            continue
        if shape.centre is not None and shape.scale is not None:
            out[attribute] = shape.centre, shape.scale
        elif coded is not None and attribute in coded.attributes:
            centre, scale = _centre_and_scale(coded, attribute, shape)
            out[attribute] = (
                centre if shape.centre is None else shape.centre,
                scale if shape.scale is None else shape.scale,
            )
    return out


def _centre_and_scale(coded: Coded, attribute: Any, shape: Number) -> tuple[float, float]:
    """Median of the claims of an attribute, and their robust standard deviation."""
    place = coded.attributes.get_loc(attribute)
    values = _as_numbers(coded, attribute, np.flatnonzero(coded.question_attribute[_question(coded)] == place))
    answer = coded.row_answer[coded.question_attribute[coded.claim_question[coded.row_claim]] == place]
    said = values[answer] if len(answer) else values[np.isfinite(values)]
    centre = float(np.median(said))
    spread = 1.4826 * float(np.median(np.abs(said - centre)))
    # Where half of all claims are the same number, by what the others are.
    spread = spread or float(np.std(said))
    return centre, max(spread, shape.resolution)


def _question(coded: Coded) -> Ints:
    return coded.answers["question"].to_numpy(np.int64)


def _as_numbers(coded: Coded, attribute: Any, mine: Ints) -> Floats:
    """(answers,) the values of an attribute, NaN for the others.

    Raises:
        ModelError: some are no numbers.
    """
    out = np.full(len(coded.answers), np.nan)
    given = coded.answer_value[mine]
    read = [Number.number(value) for value in given]
    bad = [value for value, found in zip(given, read, strict=True) if found is None]
    if bad:
        entity = coded.questions["entity"].iat[_question(coded)[mine[[v is bad[0] for v in given]][0]]]
        raise ModelError(
            f"claims or settled: attribute {attribute!r} is a number (shapes=...), but {len(bad)} of its values are "
            f"not, first {bad[0]!r} of entity {entity!r}; allowed are numbers"
        )
    out[mine] = read
    return out


def find_numbers(coded: Coded, shapes: Mapping[Any, Any], scales: Scales) -> Numbers | None:
    """The questions about numbers of an evidence; None in a model without.

    Raises:
        ModelError: values that are no numbers, soft claims, a truth that is rejected too, or two truths of a question.
    """
    kinds = number_shapes(shapes)
    if not kinds:
        return None
    names = pd.Index(list(kinds), dtype=object)
    attribute = np.asarray(names.get_indexer(coded.questions["attribute"].astype(object)), np.int64)
    centre, scale = (np.array([scales.get(a, (0.0, 1.0))[i] for a in kinds]) for i in range(2))
    resolution = np.array([shape.resolution for shape in kinds.values()], np.float64)
    of_answer = attribute[_question(coded)]
    raw = np.full(len(coded.answers), np.nan)
    for i, name in enumerate(kinds):
        mine = np.flatnonzero(of_answer == i)
        raw[mine] = _as_numbers(coded, name, mine)[mine]
    held = np.flatnonzero(of_answer >= 0)
    _refuse_far(coded, held, raw[held], resolution[of_answer[held]])
    code = np.zeros(len(raw), np.int64)
    # A little more than half, so that 0.285 and 28.5 fall on the same side whatever their last digit in base 2.
    code[held] = np.floor(raw[held] / resolution[of_answer[held]] + 0.5 + 1e-9).astype(np.int64)
    value, log_wide, step = np.zeros(len(raw)), np.zeros(len(raw)), resolution / scale
    value[held] = (code[held] * resolution[of_answer[held]] - centre[of_answer[held]]) / scale[of_answer[held]]
    log_wide[held] = log_wide_mass(value[held], step[of_answer[held]])
    _refuse_soft(coded, attribute)
    truth = _truths(coded, attribute, raw)
    gap_offset, gap = _gaps(coded, attribute, code, value, truth, resolution)
    known = attribute >= 0
    truth[known] = (truth[known] - centre[attribute[known]]) / scale[attribute[known]]
    return Numbers(tuple(kinds), attribute, centre, scale, step, code, value, log_wide, truth, gap_offset, gap)


def _refuse_far(coded: Coded, held: Ints, value: Floats, resolution: Floats) -> None:
    """Numbers so large that neighbouring multiples of the resolution are one and the same in double precision."""
    far = np.abs(value) > FARTHEST * resolution
    if far.any():
        first = int(far.argmax())
        row = coded.questions.iloc[int(_question(coded)[held[first]])]
        most = f"{FARTHEST * resolution[first]:g}, 2^53 times the resolution"
        raise ModelError(
            f"claims or settled: column 'value' is {value[first]:g} for entity {row['entity']!r}, attribute "
            f"{row['attribute']!r}; allowed are numbers up to {most}"
        )


def log_wide_mass(value: Floats, step: Floats) -> Floats:
    """Log mass of rounding cells under the law of claims that are no proper measurements; in units of the scale."""
    away = np.abs(value)
    mass = student_t.sf(away - 0.5 * step, FREEDOM) - student_t.sf(away + 0.5 * step, FREEDOM)
    narrow = student_t.logpdf(away, FREEDOM) + np.log(step)
    return np.where(step < 1e-3, narrow, np.log(np.maximum(mass, 1e-300)))


def _refuse_soft(coded: Coded, attribute: Ints) -> None:
    rows = np.diff(coded.row_start)
    first = coded.row_start[:-1]
    soft = (attribute[coded.claim_question] >= 0) & ((rows > 1) | (coded.row_weight[first] < 1.0 - 1e-9))
    if soft.any():
        claim = int(np.flatnonzero(soft)[0])
        raise ModelError(
            f"claims: column 'weight': {int(soft.sum())} claims about numbers are soft, first "
            f"{coded.claim_id[claim]!r}; a claim about a number is one value with weight 1"
        )


def _truths(coded: Coded, attribute: Ints, raw: Floats) -> Floats:
    """(Q,) settled numbers, NaN where there is none."""
    out = np.full(len(attribute), np.nan)
    mine = np.flatnonzero((attribute[coded.settled_question] >= 0) & ~coded.settled_rejected)
    for i in mine:
        question, found = int(coded.settled_question[i]), float(raw[coded.settled_answer[i]])
        if not np.isnan(out[question]) and out[question] != found:
            raise ModelError(
                f"{_where(coded, question)} is settled as {float(out[question])!r} and as {found!r}; a number has one "
                "truth"
            )
        out[question] = found
    return out


def _where(coded: Coded, question: int) -> str:
    row = coded.questions.iloc[question]
    return f"settled: entity {row['entity']!r}, attribute {row['attribute']!r}"


def _gaps(
    coded: Coded, attribute: Ints, code: Ints, value: Floats, truth: Floats, resolution: Floats
) -> tuple[Ints, Floats]:
    """(Q + 1,) where the rejected rounding cells of each question start, and their middles; see `Numbers`."""
    mine = np.flatnonzero((attribute[coded.settled_question] >= 0) & coded.settled_rejected)
    question, answer = coded.settled_question[mine].astype(np.int64), coded.settled_answer[mine]
    cell = resolution[attribute[question]]
    with np.errstate(invalid="ignore"):
        clash = np.flatnonzero(np.floor(truth[question] / cell + 0.5 + 1e-9) == code[answer])
    if len(clash):
        i = int(clash[0])
        raise ModelError(
            f"{_where(coded, int(question[i]))} is settled as {float(truth[question[i]])!r} and column 'verdict' "
            f"rejects {coded.answer_value[answer[i]]!r}, which rounds to the same (resolution {float(cell[i])!r})"
        )
    both = np.stack([question, code[answer]])[:, np.isnan(truth[question])]
    _, first = np.unique(both, axis=1, return_index=True)
    kept = np.flatnonzero(np.isnan(truth[question]))[first]
    return offsets(np.bincount(question[kept], minlength=len(truth))), value[answer[kept]]
