"""``Trust``: what was learned of the sources. It answers questions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import kin, saving, summaries
from nousppl.arviz_bridge import container
from nousppl.asking import Answers, OneQuestion
from nousppl.belief import Belief
from nousppl.beliefs import Beliefs
from nousppl.blueprint import Blueprint
from nousppl.compile import compile_problem
from nousppl.densify import write_out
from nousppl.encode import Encoded
from nousppl.errors import InferenceError, QuestionError
from nousppl.evidence import Evidence
from nousppl.inference.options import NUTS, SVI
from nousppl.model import TrustModel, options_of
from nousppl.models import reference
from nousppl.models.layout import Layout
from nousppl.question import Question
from nousppl.unfold import Unfolded, origins

if TYPE_CHECKING:
    from os import PathLike

    import xarray as xr

    from nousppl.padding import Mould

Draws = dict[str, NDArray[np.float64]]

WORK = 50_000_000
"""Likelihoods (draws x nodes x orders x claims x answers) above which a belief averages over fewer draws."""
FEWEST_DRAWS = 20
ASKED_DRAWS = 200
"""Draws of the parameters that a belief averages over, unless it is told otherwise."""


@dataclass(frozen=True, eq=False, repr=False)
class Trust:
    """The fitted hierarchy: draws of all parameters, and the encoding that new claims are read with.

    Attributes:
        model: the specification.
        blueprint: encodings, domains and parameters.
        posterior_draws: site -> (chains, draws) or (chains, draws, size); group effects on their natural scale.
        sample_stats: per draw or step, as the method gives them.
        table: one row a source that was seen, see `sources`.
        record: how the fit was made: method, seed, learn_from, settled facts, claims, whether it converged, advice.
        seen: (entity, attribute) of the questions whose settled truth was learned from.
        svi: the variational state of an SVI fit, else None.
        mcmc: ``numpyro.infer.MCMC`` of a NUTS fit (of one on pyro a list of ``pyro.infer.MCMC``), else None.
        learned: a weak reference to the evidence of the fit, see `evidence`; None where there is none.
    """

    model: TrustModel
    blueprint: Blueprint
    posterior_draws: Draws
    sample_stats: Mapping[str, NDArray[Any]]
    table: pd.DataFrame
    record: Mapping[str, Any]
    seen: frozenset[tuple[Any, Any]] = frozenset()
    svi: Any = None
    mcmc: Any = None
    learned: weakref.ref[Evidence] | None = None
    _encoded: Any = field(default_factory=weakref.WeakKeyDictionary, init=False)
    _thinned: dict[int, Draws] = field(default_factory=dict, init=False)

    def posterior(self, question: Question) -> Belief:
        """The belief about one question given its claims.

        Raises:
            ModelError: its claims do not fit the model (missing column, value outside a closed list).
        """
        encoded = self.encoded(question.evidence)
        return unfold(self, encoded, question)

    def program(self, question: Question) -> Callable[[], None]:
        """The readable probabilistic program of one question at the posterior mean of the parameters: a numpyro model
        without arguments, with sites ``truth``, ``origin_j`` and ``claim_j``, that ``numpyro.render_model`` can draw.

        Where the order of claims is not known it is written out in the first of the orders that are averaged.
        """
        mean = {name: value.mean(0, keepdims=True) for name, value in self.flat.items()}
        encoded = self.encoded(question.evidence)
        written = write_out(self.blueprint, encoded, mean, question.index, seed=self.model.order_seed)[0]
        return partial(reference.program, written.question, written.values)

    def posteriors(self, evidence: Evidence, known_by: Any = None, draws: int | None = None) -> Beliefs:
        """The beliefs about all questions of an evidence, in one batched call.

        Args:
            evidence: claims, and settled facts if they are to be used: a question whose truth is settled there has
                probability 1 on it.
            known_by: use only claims and settled facts that were known by this time.
            draws: number of draws of the parameters to average over; default all, at most 200.
        """
        return self._posteriors(evidence if known_by is None else evidence.known_by(known_by), draws)

    def _posteriors(self, evidence: Evidence, draws: int | None = None, mould: Mould | None = None) -> Beliefs:
        encoded = self.encoded(evidence)
        index = np.arange(len(evidence.questions))
        answers = Answers(self.blueprint, encoded, self.asked(draws), self.model.order_seed, mould)
        mean, sd, support = answers.cells(index)
        cells, questions = encoded.cells, evidence.questions
        keys = zip(questions["entity"], questions["attribute"], strict=True)
        return Beliefs(
            questions=questions.reset_index(drop=True),
            cell_question=np.repeat(index, np.diff(cells.offset)),
            cell_answer=cells.value,
            cell_other=cells.other,
            cell_count=cells.count,
            probability=mean,
            sd=sd,
            support=support,
            claims=np.diff(encoded.claim_offset),
            seen=np.array([key in self.seen for key in keys], bool),
            meta={"draws": len(next(iter(self.asked(draws).values()))), "method": self.record["method"]},
        )

    def log_likelihood(self, evidence: Evidence) -> xr.DataArray:
        """Log density of every question under every draw, for arviz: dimensions (chain, draw, question), in nats.

        It is that of the claims of the question, truths and origins summed out, and where its truth is settled in the
        evidence that of claims and truth together; ``entity`` and ``attribute`` are coordinates of ``question``.
        """
        answers = Answers(self.blueprint, self.encoded(evidence), self.flat, self.model.order_seed)
        logs = answers.questions(np.arange(len(evidence.questions)))
        shape = next(iter(self.posterior_draws.values())).shape[:2]
        return saving.by_question(logs.reshape(*shape, -1), evidence.questions)

    @property
    def evidence(self) -> Evidence | None:
        """What was learned from, as long as it is held elsewhere too; None for a trust read from a file."""
        return None if self.learned is None else self.learned()

    def encoded(self, evidence: Evidence) -> Encoded:
        """The evidence in this trust's encoding; kept as long as the evidence lives."""
        if evidence not in self._encoded:
            self._encoded[evidence] = self.blueprint.encode(evidence)
        out: Encoded = self._encoded[evidence]
        return out

    def asked(self, draws: int | None = None) -> Draws:
        """Site -> (draws, ...): chains end to end, evenly thinned to the number that beliefs average over."""
        most = ASKED_DRAWS if draws is None else draws
        if most < 1:
            raise QuestionError(f"draws={draws}: at least 1 is needed")
        total = int(np.prod(next(iter(self.posterior_draws.values())).shape[:2]))
        if most not in self._thinned:
            chosen = np.unique(np.linspace(0, total - 1, min(most, total)).astype(int))
            self._thinned[most] = {name: value[chosen] for name, value in self.flat.items()}
        return self._thinned[most]

    @cached_property
    def flat(self) -> Draws:
        """Site -> (draws, ...) with all chains end to end."""
        return {n: v.reshape(-1, *v.shape[2:]) for n, v in self.posterior_draws.items()}

    def update(
        self,
        evidence: Evidence,
        method: str | SVI = "svi",
        seed: int = 0,
        progress: Any = False,
        backend: str = "numpyro",
    ) -> Trust:
        """Go on with this fit on an evidence with new claims or new settled facts, from where it ended.

        Args:
            evidence: everything that is to be learned from, what this trust was learned from included.
            method: "svi" or ``nousppl.SVI`` with options.
            seed: of everything random in the fit.
            progress: see `TrustModel.fit`.
            backend: see `TrustModel.fit`; it need not be the one that this trust was fitted on.

        Raises:
            InferenceError: another method; NUTS has nothing to go on from.
        """
        options = options_of(method)
        if isinstance(options, NUTS):
            raise InferenceError("update goes on by SVI; fit again for draws by NUTS")
        learned = str(self.record["learn_from"])
        learn_from = None if learned == "nothing" else learned
        return self.model._fit(evidence, options, seed, learn_from, progress, previous=self, backend=backend)

    @property
    def sources(self) -> pd.DataFrame:
        """One row a source: reliability and freshness (mean over its claims, with 90 % interval), number of claims and
        of settled facts it was seen on. Reliability is P(right | fresh); freshness the log concentration of looking
        for itself."""
        return self.table

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Every group effect and standard deviation: part, term, level, mean, sd and 90 % interval on the logit or log
        scale."""
        return summaries.groups(self.blueprint, self.flat)

    @cached_property
    def echoes(self) -> pd.DataFrame:
        """Pairs of sources by the weight with which the one repeats the other, where the model has affinities; see
        `nousppl.kin.echoes`."""
        return kin.echoes(self.blueprint, self.flat)

    @property
    def echo_groups(self) -> list[frozenset[Any]]:
        """Groups of sources that echo each other, by their `echoes`; see `nousppl.kin.echo_groups`."""
        return kin.echo_groups(self.echoes)

    @cached_property
    def status(self) -> str:
        """How the fit went, in words, with advice."""
        return summaries.status(self.record, self.blueprint, self.flat)

    @cached_property
    def idata(self) -> Any:
        """The draws as arviz holds them: ``InferenceData`` with arviz 0.x, ``DataTree`` with 1.x; groups posterior,
        sample_stats and constant_data (the table of sources). `to_arviz` has more."""
        return self.to_arviz()

    def to_arviz(
        self,
        evidence: Evidence | None = None,
        log_likelihood: bool = False,
        prior: bool = False,
        posterior_predictive: bool = False,
        seed: int = 0,
    ) -> Any:
        """`idata` with more groups, so that ``arviz.loo``, ``plot_ppc_pava`` and the like run on it as it is.

        The groups are posterior, sample_stats and constant_data (the table of sources), and those asked for:

        * with an evidence: constant_data also has the claims (``claim_value``, ``claim_source``, ``claim_question``,
          ``claim_time``) and the questions, and observed_data the ``value`` of each claim;
        * log_likelihood: ``questions``, by draw and question, of the questions that were learned from (settled truths
          that the fit has not seen are left aside);
        * posterior_predictive: what is predicted is whether the most probable answer of a question is its truth, for
          questions that are settled in the evidence and whose truth the fit has not seen, from their claims alone:
          ``right`` (0 or 1, by ``fact``), a binary outcome with the belief's probability. observed_data then holds what
          came true and nothing else, so that ``plot_ppc_pava`` compares the two: the curve lies on the diagonal where
          questions believed with probability p turn out right in a share p of the cases. Claims' values are not
          predicted: `TrustModel.prior_predictive` and `TrustModel.simulate` draw those;
        * prior: draws of the parameters from their priors, as many as the posterior has, in one chain.

        Args:
            evidence: default the evidence of the fit, while that is still held, where a group needs one.
            log_likelihood: whether to compute that group.
            prior: whether to draw that group.
            posterior_predictive: whether to compute that group and its observed_data.
            seed: of the draws of prior and posterior_predictive.

        Raises:
            QuestionError: no evidence is at hand, it is not that of the fit (log_likelihood), or the fit has seen all
                its settled truths (posterior_predictive).
        """
        from nousppl.arviz_groups import groups

        wanted = {"log_likelihood": log_likelihood, "prior": prior, "posterior_predictive": posterior_predictive}
        return container(groups(self, evidence, **wanted, seed=seed))

    @property
    def default(self) -> bool:
        """Whether this is a trust without a fit."""
        return bool(self.record["method"] == "prior")

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one netCDF file, atomically; arviz opens it too."""
        saving.save(self, Path(path))

    def __repr__(self) -> str:
        return f"<Trust: {len(self.table)} sources, {len(self.blueprint.plan.sites)} parameters; {self.status}>"


def unfold(trust: Trust, encoded: Encoded, question: Question) -> Belief:
    """Compute the belief about one question in full."""
    problem = compile_problem(encoded, np.array([question.index]), trust.model.order_seed)
    asked = OneQuestion(trust.blueprint, encoded, trust.asked(affordable(problem.layout)), problem)
    unfolded = Unfolded(problem, asked.parts)
    samples, path, log_odds = unfolded.path()
    start, stop = encoded.claim_offset[question.index : question.index + 2]
    used = encoded.used[start:stop]
    after = np.concatenate([[0], np.cumsum(used)])
    cells = slice(encoded.cells.offset[question.index], encoded.cells.offset[question.index + 1])
    other = bool(encoded.cells.other[cells][-1])

    def origins_of() -> NDArray[np.float64]:
        features = len(encoded.features)
        among = origins(encoded, problem, unfolded, asked.parameters, features, trust.blueprint.text_grid)
        return with_lineage(encoded, int(start), used, among)

    def fresh_of() -> NDArray[np.float64]:
        out = np.zeros(len(used))
        out[used] = unfolded.fresh()
        return out

    return Belief(
        question=question,
        answers=tuple(encoded.cells.value[cells]),
        open=other,
        others=int(encoded.cells.count[cells][-1]) if other else 0,
        samples=samples,
        path=path[after],
        log_odds=log_odds[after],
        origins_of=origins_of,
        fresh_of=fresh_of,
        status=tuple(_status(encoded, int(start), j) for j in range(int(stop - start))),
    )


def affordable(layout: Layout) -> int:
    """Number of draws that the belief about a question averages over: fewer, but at least 20, for very long ones."""
    one = layout.slots * layout.cells * max(layout.nodes, 1)
    return int(np.clip(WORK // max(one, 1), FEWEST_DRAWS, ASKED_DRAWS))


def _status(encoded: Encoded, start: int, j: int) -> str:
    coded = encoded.coded
    if coded.claim_origin[start + j] >= 0:
        return f"repeats {coded.claim_id[coded.claim_origin[start + j]]} (given)"
    return "own note" if coded.claim_derived[start + j] else ""


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


def posterior(question: Question, trust: Trust | None = None) -> Belief:
    """The belief about a question; without a trust, under the weakly informative default trust."""
    return (default_trust() if trust is None else trust).posterior(question)


@lru_cache(maxsize=1)
def default_trust() -> Trust:
    """The trust of someone who knows no source yet: 200 draws of the priors of ``TrustModel()``."""
    return TrustModel().default_trust()


def load(path: str | PathLike[str], terms: saving.Functions = ()) -> Trust:
    """Read a trust that was saved.

    Args:
        path: the file.
        terms: the functions that its model had as terms of its own (``TrustModel(terms=...)``): a file keeps their
            names and no code. They are recognised by module and name; a mapping "module:name" -> function is for those
            that have moved since.

    Raises:
        FileError: the file is missing, damaged, not a trust, or from a newer version.
        ModelError: a term is missing, or is not the one that the trust was learned with.
    """
    return saving.load(Path(path), terms)


__all__ = ["Trust", "TrustModel", "default_trust", "load", "posterior"]
