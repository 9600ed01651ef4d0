"""``TrustModel``: the specification of a source-trust hierarchy, and how it is fitted."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nousppl import fitting, summaries, updating
from nousppl.blueprint import Blueprint, draw_up
from nousppl.default_priors import priors_of
from nousppl.encode import Encoded
from nousppl.errors import InferenceError, ModelError
from nousppl.evidence import Evidence
from nousppl.inference.options import NUTS, SVI, check_backend
from nousppl.models.priors import Prior
from nousppl.models.program import OF_QUESTIONS, PARTS
from nousppl.models.shapes import Shape, checked_shapes
from nousppl.models.specification import Errors, Origin
from nousppl.models.terms import PAIRS, Declared, PairTerm, Term, declare

if TYPE_CHECKING:
    import pandas as pd

    from nousppl.generate import Truth
    from nousppl.padding import Mould
    from nousppl.programs import Program
    from nousppl.trust import Trust

Draws = dict[str, NDArray[np.float64]]
ENOUGH = 30
"""Settled facts from which learning from them alone is the default."""


class TrustModel:
    """The specification of a source-trust hierarchy. It is not changed by a fit.

    Args:
        reliability: formula of logit P(right | fresh) over columns of claims and sources.
        freshness: formula of the log concentration of looking for oneself; its intercept is 0 unless it is given a
            prior.
        origin: how claims repeat earlier ones; None for no echoes.
        errors: how fresh claims go wrong.
        change: formula of the log rate, per day or unit of ``time``, at which truths are drawn anew from the base
            rates, over ``entity`` and ``attribute``, such as "1 + (1|attribute)"; None for truths that stay. The truth
            is then a continuous-time Markov chain, settled facts hold at their time only, and wrong answers lose their
            popularity at the same rate.
        base_rates: "uniform" or "learned" (closed lists of answers).
        answers: attribute -> K, the number of plausible answers of an open domain, or the closed list of answers. For
            other attributes K is one more than the number of different values named.
        priors: part -> name -> scalar numpyro distribution, in place of the default; `priors` shows all.
        order_seed: keys the random orders that are averaged where the order of claims is not known.
        terms: part -> functions of your own, each added to the linear predictor of "reliability", "freshness" or, where
            that has a formula, "popularity" (`nousppl.models.terms.Term`); those of "origin" weigh listed pairs of
            claims (`nousppl.models.terms.PairTerm`). A term names its parameters as it goes::

                def wears_off(xp, sample, columns):
                    return -sample("slope", dist.HalfNormal(1.0)) * xp.log1p(columns["age"])

                TrustModel(terms={"reliability": [wears_off]})

            The parameter is ``reliability_wears_off_slope`` in the draws. Columns are numbers as they stand in the
            tables; ``xp`` has what jax, torch and numpy share. Fits on both backends, beliefs, programs and simulations
            all use it. A file keeps the names of terms only: `nousppl.load` is given the functions again.
        shapes: attribute -> shape of its answers: `nousppl.OneOf` (default); `nousppl.AnyOf`, of whose items
            ``answers`` then gives the number or the closed list; `nousppl.WhileTrue`, of whose plausible ends it gives
            the number; `nousppl.Number`, which has no ``answers``.

    Raises:
        ModelError: something that does not make sense.
    """

    def __init__(
        self,
        reliability: str = "1 + (1|source)",
        freshness: str = "1 + (1|source)",
        origin: Origin | None = Origin(),  # noqa: B008 (frozen)
        errors: Errors = Errors(),  # noqa: B008 (frozen)
        base_rates: str = "uniform",
        answers: Mapping[Any, Any] | None = None,
        priors: Mapping[str, Mapping[str, Any]] | None = None,
        order_seed: int = 0,
        change: str | None = None,
        terms: Mapping[str, Sequence[Term | PairTerm]] | None = None,
        shapes: Mapping[Any, Shape] | None = None,
    ) -> None:
        if base_rates not in ("uniform", "learned"):
            raise ModelError(f"base_rates={base_rates!r}: allowed are 'uniform' and 'learned'")
        if change is not None:
            _refuse_with_change(origin, errors)
        self.change = change
        self.reliability = reliability
        self.freshness = freshness
        self.origin = origin
        self.errors = errors
        self.base_rates = base_rates
        self.answers = dict(answers or {})
        self.shapes = checked_shapes(shapes)
        self.given_priors = {part: {n: Prior.of(p) for n, p in given.items()} for part, given in (priors or {}).items()}
        self.order_seed = order_seed
        self.declared = _declared(terms or {})
        priors_of(self)

    @property
    def terms(self) -> dict[str, tuple[Term | PairTerm, ...]]:
        """Part -> terms of the user's own."""
        return {part: tuple(one.term.function for one in declared) for part, declared in self.declared.items()}

    def priors(self) -> dict[str, dict[str, Prior]]:
        """The prior of every parameter by part and name; that of a group's spread under the group's name."""
        return priors_of(self)

    def fit(
        self,
        evidence: Evidence,
        method: str | SVI | NUTS = "svi",
        seed: int = 0,
        learn_from: str | None = None,
        progress: Any = False,
        backend: str = "numpyro",
    ) -> Trust:
        """Learn the trust.

        Args:
            evidence: claims, and settled facts if there are any.
            method: "svi", "nuts", or `nousppl.SVI` / `nousppl.NUTS` with options.
            seed: of everything random in the fit.
            learn_from: "settled" (only questions whose truth is settled), "all" (the others too, their truths
                summed out), or "cut" (the hierarchy from settled truths, then base rates and difficulties from all
                questions); default "settled" where at least 30 truths are settled. Facts are assumed to be settled
                at random.
            progress: True shows the progress with the loss; or a function of (steps taken, loss).
            backend: "numpyro" or "pyro" (the extra ``pyro``), on which the parameters are fitted. The trust is the same
                up to rounding for SVI, and answers by jax in either case.

        Raises:
            ModelError: the evidence does not fit the model, or the backend is not there.
            InferenceError: the fit cannot be made.
        """
        return self._fit(evidence, options_of(method), seed, learn_from, progress, backend=backend)

    def _fit(
        self,
        evidence: Evidence,
        options: SVI | NUTS,
        seed: int,
        learn_from: str | None,
        progress: Any = False,
        mould: Mould | None = None,
        previous: Trust | None = None,
        backend: str = "numpyro",
    ) -> Trust:
        from nousppl.trust import Trust

        check_backend(backend)
        settled_questions = evidence.coded.settled_truths
        learn_from = resolve_learn_from(evidence, learn_from)
        blueprint = draw_up(self, evidence, None if learn_from == "all" else settled_questions)
        encoded = blueprint.encode(evidence)
        start = None
        if previous is not None and isinstance(options, SVI):
            known = (previous.blueprint, previous.flat, previous.svi)
            start = updating.start(*known, blueprint, encoded, options.full_size, learn_from)
        with summaries.reporter(progress) as report:
            blueprint, result, settled = fitting.fit(
                blueprint, encoded, options, learn_from, seed, report, mould, start, backend
            )
        draws = fitting.natural_effects(blueprint, encoded, result.draws, learn_from)
        name = type(options).__name__.lower()
        record = {
            "method": name,
            "backend": backend,
            "seed": seed,
            "learn_from": learn_from,
            "settled": settled,
            "questions": encoded.parts.questions,
            "claims": encoded.parts.claims,
            "converged": bool(result.converged),
            "advice": result.advice,
        }
        table = summaries.sources(blueprint, encoded, draws)
        seen = _seen(encoded) if settled else frozenset()
        kept = {"svi": result.backend} if name == "svi" else {"mcmc": result.backend}
        return Trust(self, blueprint, draws, result.stats, table, record, seen, learned=weakref.ref(evidence), **kept)

    def program(self, evidence: Evidence, backend: str = "numpyro", learn_from: str | None = None) -> Program:
        """The program that `fit` fits on an evidence, as a numpyro or pyro model to run or draw: its parameters, and
        one observed site for the questions, truths and origins summed out.

        It is a function without arguments for ``MCMC``, ``SVI``, ``Predictive`` (with ``observed=False`` what is
        observed is drawn) and ``log_likelihood`` (by question); ``samples(trust)`` are the draws of a trust in it.

        Args:
            evidence: claims, and settled facts if there are any.
            backend: "numpyro" or "pyro".
            learn_from: "settled" or "all", see `fit`.

        Raises:
            ModelError: the evidence does not fit the model, or the backend is not there.
        """
        from nousppl.programs import make

        return make(self, evidence, backend, learn_from)

    def default_trust(self, seed: int = 0, draws: int = 200) -> Trust:
        """A trust without a fit: draws of the priors. Every source is new to it."""
        from nousppl.trust import Trust

        blueprint = draw_up(self, None)
        record = {"method": "prior", "seed": seed, "learn_from": "nothing", "settled": 0, "questions": 0, "claims": 0}
        record |= {"converged": True, "advice": "draws of the priors, nothing was learned"}
        return Trust(self, blueprint, prior_draws(blueprint, seed, draws), {}, summaries.no_sources(), record)

    def simulate(
        self, design: pd.DataFrame, seed: int, parameters: Mapping[str, Any] | None = None
    ) -> tuple[Truth, Evidence]:
        """Draw parameters (or take those given), truths, origins and values for a table of claims without values.

        See `nousppl.generate.simulate`.
        """
        from nousppl.generate import simulate

        return simulate(self, design, seed, parameters)

    def prior_predictive(self, evidence: Evidence, seed: int) -> tuple[Truth, Evidence]:
        """One draw of the values of an evidence's claims from the prior: same questions, sources and times, other
        values."""
        return self.simulate(evidence.claims.drop(columns="value"), seed)

    def __repr__(self) -> str:
        parts = ("reliability", "freshness", "origin", "errors", "change", "base_rates", "answers", "shapes")
        shown = [f"{part}={getattr(self, part)!r}" for part in parts]
        own = {part: [one.term.name for one in declared] for part, declared in self.declared.items()}
        return f"TrustModel({', '.join(shown + ([f'terms={own}'] if own else []))})"


def _declared(terms: Mapping[str, Sequence[Term | PairTerm]]) -> dict[str, tuple[Declared, ...]]:
    """Call every term once, to learn its parameters and columns."""
    allowed = [*(part for part in PARTS if part != OF_QUESTIONS), PAIRS]
    out = {}
    for part, given in terms.items():
        if part not in allowed:
            raise ModelError(f"terms: no part {part!r} takes terms; allowed are {allowed}")
        if not isinstance(given, list | tuple):
            raise ModelError(f"terms[{part!r}] must be a list of functions, got {given!r}")
        declared = tuple(declare(part, function) for function in given)
        names = [one.term.name for one in declared]
        again = [name for name in names if names.count(name) > 1]
        if again:
            raise ModelError(f"terms[{part!r}]: two terms are called {again[0]!r}; rename one")
        if declared:
            out[part] = declared
    return out


def _refuse_with_change(origin: Origin | None, errors: Errors) -> None:
    for name in ("trap", "correlation"):
        if getattr(errors, name):
            raise ModelError(
                f"Errors({name}=True) beside change=...: it is a law of the truth given all claims, for truths that "
                f"stay; allowed is {name}=False"
            )
    if origin is not None and origin.order == "unknown":
        raise ModelError(
            "Origin(order='unknown') beside change=...: truths that change need the times of the claims; allowed is "
            "order='time'"
        )


def prior_draws(blueprint: Blueprint, seed: int, count: int) -> Draws:
    """(1, count, ...) draws of every parameter from its prior."""
    import jax

    from nousppl.inference.backend import distribution

    out: Draws = {}
    for i, site in enumerate(blueprint.plan.sites):
        key = jax.random.fold_in(jax.random.key(seed), i)
        shape = (1, count) if site.size is None else (1, count, site.size)
        value = np.asarray(distribution(site.prior).sample(key, shape), np.float64)
        out[site.name] = value if site.scale is None else value * out[site.scale][..., None]
    return out


def options_of(method: str | SVI | NUTS) -> SVI | NUTS:
    """The options of a method given by name or with its options.

    Raises:
        InferenceError: there is no such method.
    """
    if isinstance(method, SVI | NUTS):
        return method
    if method not in ("svi", "nuts"):
        raise InferenceError(f"method={method!r}: allowed are 'svi', 'nuts', nousppl.SVI(...) and nousppl.NUTS(...)")
    return SVI() if method == "svi" else NUTS()


def resolve_learn_from(evidence: Evidence, given: str | None) -> str:
    """What is learned from: as given, else settled facts where there are enough of them."""
    if given is not None:
        return given
    return "settled" if len(evidence.coded.settled_truths) >= ENOUGH else "all"


def _seen(encoded: Encoded) -> frozenset[tuple[Any, Any]]:
    chosen = encoded.coded.questions[encoded.settled_cell >= 0]
    return frozenset(zip(chosen["entity"], chosen["attribute"], strict=True))
