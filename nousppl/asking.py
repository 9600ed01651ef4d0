"""From draws of the parameters to beliefs: one question in full, or all questions in one batched call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from nousppl.blueprint import Blueprint, confusion_index
from nousppl.compile import Problem, compile_problem
from nousppl.difficulty import node_grid
from nousppl.encode import Encoded
from nousppl.models.hierarchy import Design
from nousppl.models.program import OF_QUESTIONS, PARTS, Plan, Predictor
from nousppl.models.terms import by_draw, by_read
from nousppl.padding import Mould, ladder, pad, pad_last, roomy, rounded
from nousppl.ragged import mix, uniform
from nousppl.shown import by_state, shown_sizes
from nousppl.unfold import Logs
from nousppl.whole_lists import WholeLists, in_order, whole_lists

if TYPE_CHECKING:
    from nousppl.models.layout import Layout

Floats = NDArray[np.float64]
Draws = dict[str, NDArray[np.float64]]

FEW_LABELS = 64
"""Up to this many new levels at once their effects are remembered from question to question."""
FEW_SOURCES = 16
"""Effects by source are padded to those of at least so many, so that small questions share compiled code."""
CHUNK = 100_000
"""Claims that are answered at once under up to ``FULL`` draws; fewer under more."""
FULL = 200
NUMBERS = 20_000_000
"""Likelihoods (draws x nodes x orders x claims x answers) of one question that are in memory at once."""


def linear_draws(predictor: Predictor, design: Design, draws: Draws, claims: NDArray[np.int64]) -> Floats:
    """(draws, claims) linear predictor of some claims under each draw; levels that the fit did not know are drawn from
    their group's law, by a hash of their label, so that a new source is the same new source in every question."""
    count = len(next(iter(draws.values())))
    total = np.zeros((count, len(claims)), working_dtype())
    for column, name in enumerate(predictor.fixed):
        if name:
            total += np.outer(draws[name], design.fixed[claims, column])
    for group, name in zip(design.groups, predictor.groups, strict=True):
        index, back = np.unique(group.index[claims], return_inverse=True)
        effects = level_draws(name, index, group.new_levels, draws)
        total += effects[:, back] * group.value[claims]
    if predictor.own:
        total += own_draws(predictor, design, draws, claims)
    return total


def own_draws(predictor: Predictor, design: Design, draws: Draws, claims: NDArray[np.int64]) -> Floats:
    """(draws, claims) sum of the user's own terms of a predictor under each draw."""
    return by_draw(predictor.own, by_read(predictor.own, design.own[:, claims]), draws, len(claims))


def pair_draws(plan: Plan, problem: Problem, draws: Draws) -> Floats:
    """(draws, listed) what the user's own pair terms add to the strong weights of listed pairs under each draw, before
    it fades; (draws, 0) where there are none."""
    if not plan.pair_terms:
        return np.zeros((len(next(iter(draws.values()))), 0))
    return by_draw(plan.pair_terms, by_read(plan.pair_terms, problem.data["listed_own"]), draws, problem.layout.listed)


def working_dtype() -> type[np.floating[Any]]:
    """The precision that jax works in: single unless the user switched to double."""
    from jax import config

    return np.float64 if config.read("jax_enable_x64") else np.float32


def level_draws(name: str, index: NDArray[np.int32], new_levels: tuple[str, ...], draws: Draws) -> Floats:
    """(draws, len(index)) effects of some levels; those beyond the known ones are new."""
    sigma = draws[name + "_sigma"]
    known = draws[name].shape[1] if name in draws else 0
    out = np.empty((len(sigma), len(index)), working_dtype())
    old = index < known
    if old.any():
        out[:, old] = draws[name][:, index[old]]
    if not old.all():
        labels = np.array([new_levels[i - known] for i in index[~old]], object)
        out[:, ~old] = sigma[:, None] * noise(name, labels, len(sigma))
    return out


def noise(name: str, labels: NDArray[np.object_], count: int) -> Floats:
    """(count, labels) standard normal numbers that depend on the name, the label and the draw alone."""
    if len(labels) <= FEW_LABELS:
        return np.stack([_noise_of(name, str(label), count) for label in labels], axis=1)
    return _noise(np.array([f"{name}\x1f{label}" for label in labels], object), count)


@lru_cache(maxsize=4096)
def _noise_of(name: str, label: str, count: int) -> Floats:
    return _noise(np.array([f"{name}\x1f{label}"], object), count)[:, 0]


def _noise(labels: NDArray[np.object_], count: int) -> Floats:
    keys = pd.util.hash_array(labels, categorize=False)
    bits = mix(np.broadcast_to(keys, (count, len(keys))), np.arange(count, dtype=np.uint64)[:, None])
    return np.asarray(ndtri(uniform(bits)))


def parameter_draws(blueprint: Blueprint, encoded: Encoded, draws: Draws, problem: Problem) -> dict[str, Any]:
    """What the likelihood needs of each draw: predictors of the claims and questions of a problem, affinities of its
    pairs of sources, weights ``listed`` of its listed pairs where the user's own terms weigh pairs, and the other
    parameters; double precision."""
    plan, claims, links = blueprint.plan, problem.claims, problem.links
    out: dict[str, Any] = {}
    for predictor in plan.predictors:
        rows = problem.questions if predictor.part == OF_QUESTIONS else claims
        out[PARTS[predictor.part]] = linear_draws(predictor, encoded.designs[predictor.part], draws, rows)
    if problem.layout.listed:
        out["listed"] = pair_draws(plan, problem, draws)
    predicted = tuple(f"{part}_" for part in PARTS)
    own = {term.site(name) for term in plan.pair_terms for name in term.parameters}
    for site in plan.sites:
        if site.name in own:
            continue
        if site.scale is None and not site.name.startswith(predicted) and not site.name.endswith("_sigma"):
            out[site.name] = draws[site.name]
    if "errors_logit_hard|attribute" in draws:
        out["errors_logit_hard|attribute"] = draws["errors_logit_hard|attribute"]
    if len(links):
        out["origin_affinity"] = draws["origin_affinity"][:, links]
    if encoded.bias_level is not None:
        for name, width in widths(blueprint).items():
            out[name] = _source_draws(blueprint, encoded, draws, claims, name, width)
    return out


def widths(blueprint: Blueprint) -> dict[str, int]:
    """Site of effects by source -> number of effects of a source."""
    domains = blueprint.domains
    sizes = {"errors_bias|source": len(domains.classes), "errors_confusion|source": len(domains.confusion_rows)}
    return {name: size for name, size in sizes.items() if size}


def bias_sources(encoded: Encoded, claims: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One claim of each source of some claims, and the source of each claim among these."""
    assert encoded.bias_level is not None
    _, first, back = np.unique(encoded.bias_level[claims], return_index=True, return_inverse=True)
    return first, back


def _source_draws(
    blueprint: Blueprint, encoded: Encoded, draws: Draws, claims: NDArray[np.int64], name: str, width: int
) -> Floats:
    """(draws, sources * width) effects of each source in the order of `bias_sources`."""
    assert encoded.bias_level is not None and blueprint.bias is not None
    levels = len(next(iter(blueprint.bias.levels.values())))
    one_of_each = claims[bias_sources(encoded, claims)[0]]
    level = encoded.bias_level[one_of_each]
    count = len(draws[name + "_sigma"])
    out = np.empty((count, len(level), width), working_dtype())
    old = level < levels
    if old.any():
        out[:, old] = draws[name].reshape(count, levels, width)[:, level[old]]
    new = np.flatnonzero(~old)
    if len(new):
        sources = encoded.coded.sources.to_numpy()[encoded.coded.claim_source[one_of_each[new]]]
        for k in range(width):
            out[:, new, k] = draws[name + "_sigma"][:, None] * noise(f"{name}{k}", sources, count)
    return out.reshape(count, -1)


def ready(
    blueprint: Blueprint, encoded: Encoded, problem: Problem, layout: Layout, draws: Draws, claims_size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Padded arrays of a problem and its parameter draws, claims padded too."""
    data = pad(problem, layout)
    data["claim_ceiling"] = pad_last(data["claim_ceiling"], claims_size, np.inf)
    data["claim_zero"] = pad_last(data["claim_zero"], claims_size)
    classes = blueprint.domains.classes
    if classes:
        names = list(blueprint.domains.lists)
        data["class_attribute"] = np.array([names.index(a) for a, _ in classes], np.int32)
    if blueprint.text_grid is not None:
        data["text_grid"] = blueprint.text_grid
    if layout.nodes:
        grid, log_weights = node_grid(layout.nodes)
        data["nodes"], data["node_log_weights"] = grid, log_weights
    sources = 1
    if encoded.bias_level is not None:
        back = bias_sources(encoded, problem.claims)[1]
        data["claim_bias_level"] = pad_last(back.astype(np.int32), claims_size)
        sources = min(1 << max(int(back.max(initial=0)), FEW_SOURCES - 1).bit_length(), claims_size)
    if layout.confusion:
        data["confusion_row"] = confusion_index(blueprint, sources)
    parameters = parameter_draws(blueprint, encoded, draws, problem)
    if layout.listed:
        parameters["listed"] = pad_last(
            parameters.get("listed", np.zeros((len(parameters["logit"]), 0))), layout.listed
        )
    if layout.links:
        parameters["origin_affinity"] = pad_last(parameters["origin_affinity"], layout.links)
    for part, name in PARTS.items():
        if name in parameters:
            size = layout.questions if part == OF_QUESTIONS else claims_size
            parameters[name] = pad_last(parameters[name], size)
    for name, width in widths(blueprint).items():
        if name in parameters:
            parameters[name] = pad_last(parameters[name], sources * width)
    return data, parameters


def chunks(encoded: Encoded, questions: NDArray[np.int64], size: int = CHUNK) -> Iterator[NDArray[np.int64]]:
    """Consecutive questions with about ``size`` claims (in all their orders) together."""
    parts = np.bincount(encoded.parts.whole)[questions]
    claims = parts * np.diff(encoded.claim_offset)[questions] + 1
    bound = (np.cumsum(claims) - 1) // size
    cuts = np.flatnonzero(np.diff(bound)) + 1
    yield from np.split(questions, cuts)


class Found(NamedTuple):
    """Posterior of the answers of many questions in order, and after them of further parts of these: of their cells,
    and of what is true for a while of True and False."""

    mean: Floats
    """(answers,) probability."""
    sd: Floats
    """(answers,) its standard deviation over draws."""
    support: Floats
    """(answers,) fresh witnesses."""
    lists: tuple[WholeLists, ...]
    """Whole lists of the questions that are in parts."""


class Answers:
    """Posterior of the cells of many questions, chunk after chunk.

    Chunks are padded to common sizes; one alone is not, unless a mould is given that later calls use too.
    """

    def __init__(
        self, blueprint: Blueprint, encoded: Encoded, draws: Draws, seed: int, mould: Mould | None = None
    ) -> None:
        self.blueprint, self.encoded, self.draws, self.seed, self.mould = blueprint, encoded, draws, seed, mould

    def cells(self, questions: NDArray[np.int64], at: Floats | None = None) -> Found:
        """The posterior of all answers of the questions, at the times (questions,) or (1,) asked about."""
        from nousppl.inference.exact import posterior_cells

        parts, lists, asked, counts = [], [], [], []
        for problem, layout, size in self.pieces(questions, at):
            data, parameters = ready(self.blueprint, self.encoded, problem, layout, self.draws, size)
            logs, support = posterior_cells(layout, self.blueprint.plan.features, data, parameters, True)
            kept = np.exp(np.asarray(logs[:, : problem.layout.cells], np.float64))
            cells, sizes = self.encoded.cells, np.diff(self.encoded.cells.offset)[problem.questions]
            fresh = support[: problem.layout.cells]
            lists += whole_lists(self.encoded, problem, kept, fresh) if problem.layout.parts else []
            asked.append(problem.questions)
            counts.append(shown_sizes(cells.periods, problem.questions, sizes))
            kept, fresh = by_state(cells.periods, problem.questions, sizes, problem.at, kept, fresh)
            parts.append((kept.mean(0), kept.std(0), fresh))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if lists:
            columns = in_order(np.concatenate(asked), np.concatenate(counts), columns)
        mean, sd, support = columns
        return Found(mean, sd, support, tuple(lists))

    def questions(self, questions: NDArray[np.int64]) -> Floats:
        """(draws, questions) log density of the claims of each question, and of its truth where that is settled."""
        from nousppl.inference.exact import posterior_questions

        parts = []
        for problem, layout, size in self.pieces(questions):
            data, parameters = ready(self.blueprint, self.encoded, problem, layout, self.draws, size)
            found = posterior_questions(layout, self.blueprint.plan.features, data, parameters)
            logs = found[:, : problem.layout.questions].astype(np.float64)
            parts.append(self._of_wholes(logs, problem) if problem.layout.parts else logs)
        return np.concatenate(parts, axis=1)

    def _of_wholes(self, logs: Floats, problem: Problem) -> Floats:
        """(draws, questions of the evidence) sums over the parts of each."""
        mine = int((problem.questions < self.encoded.parts.questions).sum())
        whole = np.searchsorted(problem.questions[:mine], self.encoded.parts.whole[problem.questions])
        out = np.zeros((len(logs), mine))
        np.add.at(out.T, whole, logs.T)
        return out

    def pieces(self, questions: NDArray[np.int64], at: Floats | None = None) -> Iterator[tuple[Problem, Layout, int]]:
        """Chunks of the questions compiled, each with the layout and the number of claims to pad it to."""
        pieces = list(chunks(self.encoded, questions, self._chunk()))
        mould = self.mould if self.mould is not None or len(pieces) == 1 else Mould(room=1.0)
        times = None if at is None else np.broadcast_to(at, len(questions))
        for piece in pieces:
            asked = None if times is None else times[np.searchsorted(questions, piece)]
            problem = compile_problem(self.encoded, piece, self.seed, asked)
            if mould is None:
                yield problem, problem.layout, max(len(problem.claims), 1)
            else:
                yield problem, *mould.hold(problem.layout, max(len(problem.claims), 1))

    def _chunk(self) -> int:
        origin = self.encoded.origin
        share = min(1.0, FULL / len(next(iter(self.draws.values()))))
        return int(CHUNK * share) // (origin.orders if origin is not None else 1)


def shaped(problem: Problem) -> bool:
    """Whether a question is of another shape than one of several."""
    return problem.layout.shaped and bool(problem.data["question_shaped"].all())


def _padded(problem: Problem) -> Layout:
    """The layout that a single question is padded to."""
    if problem.layout.questions > 1:
        # In parts, which have not each an entry for the claims of all.
        return rounded([problem.layout])
    return roomy(problem.layout) if shaped(problem) else ladder(problem.layout)


class OneQuestion:
    """The likelihoods of the claims of one question, some draws and nodes at a time, so that memory is bounded."""

    def __init__(self, blueprint: Blueprint, encoded: Encoded, draws: Draws, problem: Problem) -> None:
        from nousppl.inference.exact import block_size

        # Of other shapes, the number of cells goes by no other size.
        self.problem, self.layout = problem, _padded(problem)
        self.features = blueprint.plan.features
        self.data, self.parameters = ready(blueprint, encoded, problem, self.layout, draws, self.layout.slots)
        self.draws = len(self.parameters["logit"])
        one = problem.layout.slots * problem.layout.cells
        self.node_step = min(max(self.layout.nodes, 1), max(NUMBERS // max(one, 1), 1))
        self.draw_step = min(self.draws, max(NUMBERS // max(one * self.node_step, 1), 1))
        self.jax_step = min(self.draw_step, block_size(self.layout._replace(nodes=self.node_step), self.draws))
        self._only: list[list[Logs]] | None = None

    def parts(self) -> Iterable[Iterable[Logs]]:
        """For each block of draws the likelihoods at each block of nodes; they are kept where there is one of each."""
        if self.draw_step < self.draws or self.node_step < self.layout.nodes:
            return (self._nodes(start) for start in range(0, self.draws, self.draw_step))
        if self._only is None:
            self._only = [list(self._nodes(0))]
        return self._only

    def part(self, place: int) -> Iterator[Iterator[Logs]]:
        """The same of one part of a question: claims and cells of the others left out."""
        data, cell = self.problem.data, self.problem.data["cell_question"] == place
        of_icell = data["icell_question"]
        slot = of_icell[np.searchsorted(data["icell_instance"], data["slot_instance"])] == place
        entry = of_icell[data["entry_icell"]] == place
        return ((logs.of(slot, entry, cell) for logs in nodes) for nodes in self.parts())

    def _nodes(self, start: int) -> Iterator[Logs]:
        """The likelihoods under ``draw_step`` draws from ``start`` on."""
        stop = min(start + self.draw_step, self.draws)
        if not self.layout.nodes:
            yield self._logs(start, stop, self.data)
            return
        nodes, weights = self.data["nodes"], self.data["node_log_weights"]
        for first in range(0, len(nodes), self.node_step):
            index = np.arange(first, first + self.node_step)
            inside = np.minimum(index, len(nodes) - 1)
            log_weights = np.where(index < len(nodes), weights[inside], -np.inf)
            yield self._logs(start, stop, self.data | {"nodes": nodes[inside], "node_log_weights": log_weights})

    def _logs(self, start: int, stop: int, data: dict[str, Any]) -> Logs:
        from nousppl.inference.exact import claim_by_claim

        small = self.problem.layout
        # What pads is left out before anything is copied: this is most of the time that a single belief takes.
        sizes = (small.slots, small.entries, small.cells, small.cells, None, None, small.slots, small.slots, None, None)
        blocks = []
        for first in range(start, stop, self.jax_step):
            index = np.minimum(np.arange(first, first + self.jax_step), self.draws - 1)
            whole = first == 0 and self.jax_step == self.draws
            draws = self.parameters if whole else {n: value[index] for n, value in self.parameters.items()}
            kept = min(self.jax_step, stop - first)
            found = claim_by_claim(self.layout, self.features, data, draws)
            pairs = zip(found, sizes, strict=True)
            blocks.append([None if x is None else np.asarray(x)[:kept][..., :size] for x, size in pairs])
        return Logs(*(_joined(parts) for parts in zip(*blocks, strict=True)))  # type: ignore[arg-type]


def _joined(parts: tuple[NDArray[Any] | None, ...]) -> Floats | None:
    """Blocks of draws end to end, in double precision."""
    there = [part for part in parts if part is not None]
    if len(there) == 1:
        return there[0].astype(np.float64)
    return np.concatenate(there).astype(np.float64) if there else None
