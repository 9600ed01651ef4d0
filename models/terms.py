"""Terms of one's own: a plain function adds to a linear predictor, or weighs pairs of claims.

A term names its parameters and reads its columns as it goes, so that the function is all there is to write::

    def wears_off(xp, sample, columns):
        slope = sample("slope", dist.HalfNormal(1.0))
        return -slope * xp.log1p(columns["age"])

    def quotes(xp, sample, pairs):
        b, c = sample("b", dist.Normal(0.0, 1.0)), sample("c", dist.Normal(0.0, 1.0))
        weight = b + c * pairs.later["quoted_words"]
        return xp.where(pairs.same("channel"), weight, -xp.log1p(pairs.lag))

    nous.TrustModel(terms={"reliability": [wears_off], "origin": [quotes]})

`Term` and `PairTerm` say what such a function may do. It is first called on a few dummy rows (`declare`), which tells
its parameters and columns; from then on it is called with the values of the parameters and with the real columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nousppl.errors import ModelError, NousError
from nousppl.models.namespace import Arithmetic, Array
from nousppl.models.on_numpy import AllDraws, Numpy, Trial
from nousppl.models.priors import Prior

Read = tuple[str, str]
"""What a term reads: "claim", "later", "earlier" or "same" and a column, or ("lag", "")."""
Table = Mapping[Read, Array]
"""What is read -> (rows,) numbers."""
Fetch = Callable[[Read], Array]

PAIRS = "origin"
"""The part of a model whose terms weigh pairs of claims; those of the other parts are of claims."""
LARGEST = 20.0
"""Largest log weight of a pair: beyond it nothing changes any more."""
LAG = ("lag", "")
SAID = ("value", "weight", "origin", "denies")
"""Columns that are known only when a claim is read."""
DUMMIES = {
    "claim": (1.0, 2.0, 3.0, 2.0, 5.0),
    "later": (1.0, 2.0, 3.0, 2.0, 5.0),
    "earlier": (0.5, 1.0, 1.0, 2.0, 4.0),
    "same": (1.0, 0.0, 1.0, 0.0, 1.0),
    "lag": (0.5, 1.0, 2.0, 1.0, 1.0),
}
FEWER = 3
AT_ONCE = 2_000_000
"""Draws times rows up to which a term is called on all draws together."""


class Sample(Protocol):
    """Declares a parameter of a term and gives its value."""

    def __call__(self, name: str, prior: Any, size: int | None = None) -> Array:
        """The value: a number, or (size,) numbers.

        Args:
            name: of the parameter; ``slope`` of a reliability term ``wears_off`` is ``reliability_wears_off_slope``
                among the draws and ``priors={"reliability": {"wears_off_slope": ...}}``.
            prior: scalar numpyro distribution, of each element.
            size: number of elements; None for a number.
        """
        ...


class Term(Protocol):
    """A term of the linear predictor of reliability (logit), freshness (log concentration) or popularity (log beta).

    It must be pure and work row by row: claims come in batches and padded, so what it gives for a claim may depend on
    that claim's row only (no means or sums over rows), and it may not branch on values (``xp.where`` does). It declares
    the same parameters each time. It is recognised by its name and by the function object itself.

    It must be finite and have a gradient on every row: arguments of ``xp.log`` and of powers must be in range also in
    the branch of ``xp.where`` that is not taken. Fits compute in single precision, so subtract what numbers such as
    timestamps have in common when the table is made.
    """

    def __call__(self, xp: Arithmetic, sample: Sample, columns: Mapping[str, Array], /) -> Array:
        """(claims,) what is added.

        Args:
            xp: the functions that jax, torch and numpy share, see ``nousppl.models.namespace.Arithmetic``; arrays also
                take ``+ - * / **``, comparisons and ``abs``.
            sample: declares a parameter, see `Sample`.
            columns: (claims,) numbers of the claims or their sources by column, as they stand: not standardised as
                those of formulas are; truth values are 0 and 1. What a claim says (``value``) cannot be read.
        """
        ...


class Pairs(Protocol):
    """The listed pairs of a claim and an earlier one of the same question: for each claim its ``Origin.max_listed``
    most recent ones."""

    later: Mapping[str, Array]
    """Column -> (pairs,) numbers of the later claim, as they stand."""
    earlier: Mapping[str, Array]
    """The same of the earlier claim."""

    @property
    def lag(self) -> Array:
        """(pairs,) time between the two, in days or units of ``time``; 0 where it is not known."""
        ...

    def same(self, column: str) -> Array:
        """(pairs,) True where the two have the same value in a column of any kind."""
        ...


class PairTerm(Protocol):
    """A pair feature: the log of what it adds to the strong weight with which a claim repeats an earlier one.

    The weight halves with the half-life as all weights do, several terms add up, and pairs that are not listed get
    nothing. A log weight of ``-inf``, a constant in ``xp.where``, is a weight of 0; above 20 it makes no difference any
    more. What `Term` says holds here too: a pair's weight may depend on that pair only.
    """

    def __call__(self, xp: Arithmetic, sample: Sample, pairs: Pairs, /) -> Array:
        """(pairs,) log weight; ``xp`` and ``sample`` as in `Term`."""
        ...


class OwnTerm(NamedTuple):
    """A term and what it declared. Equal to another one only where the function is the same object."""

    part: str
    """"reliability", "freshness", "popularity" or "origin"."""
    name: str
    """Name of the function."""
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    """As the function calls them."""
    reads: tuple[Read, ...]

    @property
    def where(self) -> str:
        """As errors call it."""
        return f"terms[{self.part!r}]: {self.name}"

    @property
    def full_name(self) -> str:
        """Under which it is saved, ``module:qualified name``."""
        return full_name(self.function)

    def key(self, parameter: str) -> str:
        """Name of a parameter among the priors of its part."""
        return f"{self.name}_{parameter}"

    def site(self, parameter: str) -> str:
        """Name of a parameter's site."""
        return f"{self.part}_{self.key(parameter)}"


class Declared(NamedTuple):
    """A term with the priors of its parameters."""

    term: OwnTerm
    priors: tuple[Prior, ...]
    sizes: tuple[int | None, ...]


def full_name(function: Any) -> str:
    """``module:qualified name`` of a function, or of the class of an object that is called."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"


class Columns(Mapping[str, Array]):
    """Columns by name, fetched when they are read."""

    def __init__(self, kind: str, fetch: Fetch) -> None:
        self._kind, self._fetch = kind, fetch

    def __getitem__(self, column: str) -> Array:
        return self._fetch((self._kind, column))

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the columns of a term cannot be listed: read them by name")

    def __len__(self) -> int:
        raise TypeError("the columns of a term cannot be counted: read them by name")


class FetchedPairs:
    """`Pairs`, fetched when they are read."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self.later, self.earlier = Columns("later", fetch), Columns("earlier", fetch)

    @property
    def lag(self) -> Array:
        """See `Pairs`."""
        return self._fetch(LAG)

    def same(self, column: str) -> Array:
        """See `Pairs`."""
        return self._fetch(("same", column)) > 0.5


# ------------------------------------------------------------------------------------------------------ declaring


class _Trial:
    """One call on dummy rows, which remembers what is declared and what is read."""

    def __init__(self, where: str, rows: int) -> None:
        self.where, self.rows = where, rows
        self.reads: dict[Read, NDArray[np.float64]] = {}
        self.priors: dict[str, tuple[Prior, int | None]] = {}

    def fetch(self, read: Read) -> NDArray[np.float64]:
        kind, column = read
        if not isinstance(column, str):
            raise ModelError(f"{self.where} reads the column {column!r}: the name of a column is text")
        if column in SAID:
            raise ModelError(
                f"{self.where} reads the column {column!r}: only what is known before a claim is read may enter, so "
                f"not {', '.join(SAID)}"
            )
        return self.reads.setdefault(read, np.array(DUMMIES[kind][: self.rows]))

    def sample(self, name: str, prior: Any, size: int | None = None) -> NDArray[np.float64]:
        if not isinstance(name, str) or not name.isidentifier():
            raise ModelError(f"{self.where}: sample({name!r}, ...): the name of a parameter is a word such as 'slope'")
        if name in self.priors:
            raise ModelError(f"{self.where}: sample({name!r}, ...) is called twice; each parameter is declared once")
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise ModelError(
                f"{self.where}: sample({name!r}, size={size!r}): the size is a whole number from 1, or None"
            )
        try:
            found = Prior.of(prior)
        except (ModelError, TypeError, ValueError) as error:
            raise ModelError(f"{self.where}: sample({name!r}, ...): {error}") from error
        self.priors[name] = (found, size)
        # Inside the support of nearly every prior; what comes out of it is not judged.
        middle = 0.5 * (found.parameters["low"] + found.parameters["high"]) if found.family == "Uniform" else 0.5
        return np.array(middle) if size is None else np.full(size, middle)


def declare(part: str, function: Any) -> Declared:
    """Call a function on dummy rows to learn what it declares and reads.

    Raises:
        ModelError: it is no function with a name, fails, declares a parameter twice, gives another shape than (rows,),
            mixes rows, or reads what a claim says.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function) or isinstance(function, type) or not str(name).isidentifier():
        raise ModelError(f"terms[{part!r}]: {function!r} is no term; give functions with a name (def, no lambda)")
    try:
        hash(function)
    except TypeError as error:
        raise ModelError(f"terms[{part!r}]: {name} cannot be told apart from other terms: {error}") from error
    term = OwnTerm(part, str(name), function, (), ())
    trials = [_Trial(term.where, rows) for rows in (len(DUMMIES["claim"]), FEWER)]
    whole, some = (np.asarray(_call(term, Trial(), t.sample, t.fetch, t.rows), np.float64) for t in trials)
    first, second = trials
    if first.priors != second.priors or set(first.reads) != set(second.reads):
        raise ModelError(f"{term.where}: two calls declare different parameters or read different columns")
    if not np.allclose(whole[:FEWER], some, rtol=1e-9, atol=0.0, equal_nan=True):
        raise ModelError(
            f"{term.where}: what it gives for a row depends on other rows; claims come in batches, so a term works row "
            "by row (no means or sums over rows)"
        )
    priors, sizes = zip(*first.priors.values(), strict=True) if first.priors else ((), ())
    return Declared(term._replace(parameters=tuple(first.priors), reads=tuple(first.reads)), priors, sizes)


def _call(term: OwnTerm, xp: Any, sample: Any, fetch: Fetch, *size: int) -> Array:
    rest = FetchedPairs(fetch) if term.part == PAIRS else Columns("claim", fetch)
    try:
        with np.errstate(all="ignore"):
            out = term.function(xp, sample, rest)
    except NousError:
        raise
    except Exception as error:
        raise ModelError(
            f"{term.where} failed with {type(error).__name__}: {error}; see nousppl.models.terms for what a term may do"
        ) from error
    shape = getattr(out, "shape", None)
    if shape is None or tuple(shape) != size:
        of = "pairs" if term.part == PAIRS else "claims"
        got = f"shape {tuple(shape)}" if shape is not None else repr(out)
        raise ModelError(f"{term.where} must give an array of shape ({of},), here {size}, but gave {got}")
    return out


# ------------------------------------------------------------------------------------------------------ evaluating


def evaluate(xp: Any, term: OwnTerm, table: Table, values: Mapping[str, Array], *size: int) -> Array:
    """(rows,) what a term gives.

    Args:
        xp: the namespace, see `Term`.
        term: the term.
        table: what it reads.
        values: parameters by site.
        size: number of claims, or of pairs; before it that of draws where all are taken together.

    Raises:
        ModelError: it fails, gives another shape, or asks for what it did not declare.
    """

    def sample(name: str, prior: Any, size: int | None = None) -> Array:
        if name not in term.parameters:
            raise ModelError(f"{term.where} declares {name!r}, which it did not when the model was made")
        return values[term.site(name)]

    def fetch(read: Read) -> Array:
        if read not in term.reads:
            raise ModelError(f"{term.where} reads {' '.join(read)!r}, which it did not when the model was made")
        return table[read]

    return _call(term, xp, sample, fetch, *size)


def reads_of(terms: tuple[OwnTerm, ...]) -> tuple[Read, ...]:
    """Everything that some terms read, each once: the rows of the array that holds it."""
    return tuple(dict.fromkeys(read for term in terms for read in term.reads))


def by_read(terms: tuple[OwnTerm, ...], rows: Array) -> dict[Read, Array]:
    """What is read -> its row of such an array."""
    return {read: rows[i] for i, read in enumerate(reads_of(terms))}


def added(xp: Any, terms: tuple[OwnTerm, ...], table: Table, values: Mapping[str, Array], rows: int) -> Array:
    """(rows,) sum of some terms of claims."""
    return sum(evaluate(xp, term, table, values, rows) for term in terms)


def pair_weights(xp: Any, terms: tuple[OwnTerm, ...], table: Table, values: Mapping[str, Array], rows: int) -> Array:
    """(pairs,) what some pair terms add to the strong weights, before they fade."""
    logs = [evaluate(xp, term, table, values, rows) for term in terms]
    return sum(xp.exp(xp.minimum(log, xp.array(LARGEST))) for log in logs)


def by_draw(
    terms: tuple[OwnTerm, ...], table: Table, draws: Mapping[str, NDArray[np.float64]], rows: int
) -> NDArray[np.float64]:
    """(draws, rows) `added` of terms of claims, or `pair_weights`, under each draw; numpy, double precision.

    Raises:
        ModelError: besides what `evaluate` refuses, a term gives NaN or infinity; only the log weight of a pair may be
            -inf.
    """
    out = np.zeros((len(next(iter(draws.values()))), rows))
    for term in terms:
        sites = [term.site(name) for name in term.parameters]
        value = _under(term, table, {site: draws[site] for site in sites}, rows)
        _refuse(term, table, value)
        out += np.exp(np.minimum(value, LARGEST)) if term.part == PAIRS else value
    return out


def _under(term: OwnTerm, table: Table, draws: Mapping[str, NDArray[Any]], rows: int) -> NDArray[np.float64]:
    """(draws, rows) what a term gives under each draw; (1, rows) where it has no parameters."""

    def one(d: int) -> NDArray[np.float64]:
        return np.asarray(evaluate(Numpy(), term, table, {n: v[d] for n, v in draws.items()}, rows), np.float64)

    count = len(next(iter(draws.values()))) if draws else 1
    if 3 < count <= AT_ONCE // max(rows, 1):
        # Most terms only broadcast, which is many times faster than a call for each draw; some draws tell whether so.
        together = {n: v[:, None] if v.ndim == 1 else v.T[:, :, None] for n, v in draws.items()}
        try:
            found = np.asarray(evaluate(AllDraws(), term, table, together, count, rows), np.float64)
        except Exception:
            found = None
        some = (0, count // 2, count - 1)
        if found is not None and all(np.allclose(found[d], one(d), 1e-9, 0.0, equal_nan=True) for d in some):
            return found
    return np.stack([one(d) for d in range(count)])


def _refuse(term: OwnTerm, table: Table, value: NDArray[np.float64]) -> None:
    bad = np.isnan(value) | ((value == np.inf) if term.part == PAIRS else np.isinf(value))
    if bad.any():
        draw, row = np.unravel_index(int(np.argmax(bad)), bad.shape)
        read = ", ".join(f"{' '.join(read).strip()} = {np.asarray(table[read])[row]:g}" for read in term.reads)
        raise ModelError(
            f"{term.where} gives {value[draw, row]} for {int(bad.any(0).sum())} of {value.shape[1]} "
            f"{'pairs' if term.part == PAIRS else 'claims'}, first where {read or 'nothing is read'}"
        )
