"""``Trust``: what was learned of the sources. It answers questions."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nousppl import kin, saving, summaries
from nousppl.arviz_bridge import container
from nousppl.asking import Answers
from nousppl.beliefs import Beliefs
from nousppl.believe import ASKED_DRAWS, AnyBelief, believe
from nousppl.believe_all import asked_at, believe_all
from nousppl.blueprint import Blueprint
from nousppl.densify import write_out
from nousppl.encode import Encoded
from nousppl.errors import InferenceError, QuestionError
from nousppl.evidence import Evidence
from nousppl.inference.enumeration import NUMPYRO
from nousppl.inference.options import NUTS, SVI, check_backend
from nousppl.model import TrustModel, options_of
from nousppl.models.reference import QuestionProgram
from nousppl.question import Question
from nousppl.timeline import Timeline, timeline

Floats = NDArray[np.float64]

if TYPE_CHECKING:
    from os import PathLike

    import xarray as xr

    from nousppl.models.sites import Sites
    from nousppl.padding import Mould

Draws = dict[str, NDArray[np.float64]]


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

    def posterior(self, question: Question, at: Any = None, known_by: Any = None) -> AnyBelief:
        """The belief about one question given its claims.

        Args:
            question: of any evidence.
            at: the time asked about, in the past or in the future (date, timestamp, ISO text or number); default that
                of the latest claim or settled fact of the evidence. It matters where truths change
                (``TrustModel(change=...)``): an old truth is believed less, until it is confirmed, and what was true
                in the past is seen in the light of what was said since.
            known_by: use only claims and settled facts that were known by this time.

        Raises:
            ModelError: its claims do not fit the model (missing column, value outside a closed list).
            QuestionError: nothing was said of it by then; a time of another kind than those of the evidence.
        """
        if known_by is not None:
            question = question.evidence.known_by(known_by).question(question.entity, question.attribute)
        return believe(self, self.encoded(question.evidence), question, asked_at(question.evidence, at))

    def timeline(self, question: Question, times: Any = None) -> Timeline:
        """Which answer was the truth from when until when, where truths change: each time seen in the light of all that
        was claimed and settled before and after it (the smoother). What was replaced keeps its dates.

        Args:
            question: of any evidence; ``evidence.known_by(time)`` gives the history as it looked then.
            times: when to ask; default at each claim and settled fact of the question and at the latest time of the
                evidence, and more closely where the top answer changes in between: to 1/4096 of the time between two
                events.

        Returns:
            A ``Timeline``: ``probabilities`` (a row a time, a column an answer) and ``periods`` (answer, since, until,
            probability, claims).

        Raises:
            QuestionError: truths do not change in this model; a time of another kind than those of the evidence.
            ModelError: its claims do not fit the model.
        """
        return timeline(self, question, times)

    def program(self, question: Question, backend: str = "numpyro") -> QuestionProgram:
        """The readable probabilistic program of one question at the posterior mean of the parameters: a function
        without arguments that must be given, with sites ``truth``, ``origin_j`` and ``claim_j``, that
        ``numpyro.render_model`` or ``pyro.render_model`` can draw. Called with ``observed=False`` it draws the claims.

        Where the order of claims is not known it is written out in the first of the orders that are averaged.

        Args:
            question: of any evidence that this trust can answer.
            backend: whose model it is, "numpyro" or "pyro"; the latter needs the extra ``pyro`` and works in torch's
                default precision.

        Raises:
            ModelError: there is no such backend, or what it needs is not installed.
        """
        check_backend(backend)
        mean = {name: value.mean(0, keepdims=True) for name, value in self.flat.items()}
        encoded = self.encoded(question.evidence)
        written = write_out(self.blueprint, encoded, mean, question.index, seed=self.model.order_seed)[0]
        return QuestionProgram(_sites(backend), written.question, written.values, written.answers)

    def posteriors(self, evidence: Evidence, at: Any = None, known_by: Any = None, draws: int | None = None) -> Beliefs:
        """The beliefs about all questions of an evidence, in one batched call.

        Args:
            evidence: claims, and settled facts if they are to be used: a question whose truth is settled there has
                probability 1 on it (at its time, where truths change).
            at: the time asked about, see `posterior`; or a sequence with the time of each question of
                ``evidence.questions``.
            known_by: use only claims and settled facts that were known by this time.
            draws: number of draws of the parameters to average over; default all, at most 200.
        """
        evidence = evidence if known_by is None else evidence.known_by(known_by)
        return self._posteriors(evidence, draws, at=at)

    def _posteriors(
        self, evidence: Evidence, draws: int | None = None, mould: Mould | None = None, at: Any = None
    ) -> Beliefs:
        return believe_all(self, evidence, draws, mould, at)

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
          that the fit has not seen are left aside). Small variational fits keep draws by importance, with copies;
          the attribute ``efficiency`` of ``questions`` is their effective share, which ``arviz.loo`` takes as ``reff``;
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


def _sites(backend: str) -> Sites:
    """What the readable program is run in."""
    if backend == "pyro":
        from nousppl.inference.torch_enumeration import Pyro

        return Pyro()
    return NUMPYRO


def posterior(question: Question, trust: Trust | None = None, at: Any = None, known_by: Any = None) -> AnyBelief:
    """The belief about a question, see `Trust.posterior`; without a trust, under the weakly informative default
    trust."""
    return (default_trust() if trust is None else trust).posterior(question, at, known_by)


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
