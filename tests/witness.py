"""The model of one question written a third time, in plain Python: explicit sums over truth, origins and difficulty.

It shares no line with the package, is slow on purpose, and writes the formulas as ``nousppl.models.dense`` does.
Rules of the model can be taken out one at a time (``without``), so that a test can show what goes wrong without them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

FRESH = -1
"""The origin of a claim whose source looked for itself; the other origins are the indices of earlier claims."""

RULES = {
    "originality": "a stranger's weight counts the chance that the earlier claim is not itself a repeat",
    "origins counted": "the popularity of a wrong answer counts origins, not repeats",
    "clip": "where answers are open a wrong answer is never more probable than its cap",
    "own notes": "an own note that repeats nothing has likelihood 1",
    "ceiling": "the reliability stays below the ceiling of the channel",
    "shares": "a soft claim counts as an origin by what it says, leaving out its chance of saying nothing",
    "known before": "text similarity multiplies the matches; it does not enter the weights",
    "confusion": "the wrong answers of a closed list have a law of their own by source and true answer",
    "trap": "now and then a question looks as if its truth were another draw from the base rates",
    "correlation": "the truth given the claims follows a power of the posterior of independent claims",
    "change": "the truth is drawn anew now and then",
    "popularity fades": "a wrong answer was popular in its day",
    "pins": "a settled truth holds at its time",
    "rejections": "a rejected answer is not the truth from then on",
    "denials": "what a fresh claim denies is seldom the truth",
    "denied since": "a value that has been denied since is repeated more, or less",
    "lasting": "a claim may be about a moment",
}

Grid = Sequence[tuple[float, float]]
"""Nodes of the question's difficulty, in standard deviations, each with its probability."""

NO_DIFFICULTY: Grid = ((0.0, 1.0),)


@dataclass(frozen=True)
class Plain:
    """A ``DenseQuestion`` as lists and floats."""

    prior: list[float]
    weights: list[list[float]]
    logit: list[list[float]]
    ceiling: list[float]
    difficulty_sd: float
    alpha: list[float]
    base: list[list[float]]
    strong: list[list[float]]
    rho: list[list[float]]
    copy_error: float
    beta: float | list[float] | None
    closed: bool
    confusion: list[list[list[float]]] | None = None
    base_rates: list[float] | None = None
    trap: float | None = None
    hard: float | None = None
    correlation: float | None = None
    change: Any = None
    denies: list[int] | None = None
    denial: float = 1.0
    lasting: list[float] | None = None
    strong_denied: list[list[float]] | None = None
    law: list[list[list[float]]] | None = None
    random: list[float] | None = None

    @property
    def values(self) -> int:
        return len(self.prior) if self.random is None else len(self.random)


def plain(question: Any) -> Plain:
    """The question with every array turned into lists."""
    if isinstance(question, Plain):
        return question
    fields = question._asdict().items()
    return Plain(**{name: value.tolist() if hasattr(value, "tolist") else value for name, value in fields})


def equispaced(count: int, width: float = 5.0) -> Grid:
    """``count`` equispaced nodes over +-``width`` standard deviations, with normal weights that sum to one."""
    nodes = [width * (2 * i / (count - 1) - 1) for i in range(count)]
    heights = [math.exp(-d * d / 2) for d in nodes]
    return [(d, height / sum(heights)) for d, height in zip(nodes, heights, strict=True)]


# ------------------------------------------------------------------------------------------------------ what was said


@dataclass(frozen=True)
class Reading:
    """One sequence of values and all about it that does not depend on the truth: lists over claims in event order."""

    question: Plain
    said: list[list[float]]
    share: list[list[float]]
    r: list[float]
    w: list[list[float]]
    popularity: list[list[float]]
    without: frozenset[str]

    @property
    def K(self) -> int:
        return len(self.question.prior)

    @property
    def V(self) -> int:
        return self.question.values

    @property
    def n(self) -> int:
        return len(self.said)


def match(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def read(question: Any, values: Iterable[int], without: Collection[str] = ()) -> Reading:
    """What claim j says is ``values[j]``, or its row of ``weights`` where that is -1 (a soft claim)."""
    q, values = plain(question), [int(x) for x in values]
    if unknown := set(without) - set(RULES):
        raise ValueError(f"no such rules: {unknown}")
    V, n = q.values, len(values)
    said = [[float(v == x) for v in range(V)] if x >= 0 else q.weights[j] for j, x in enumerate(values)]
    share = said if "shares" in without else [[weight / sum(row) for weight in row] for row in said]

    strong = [[strong_weight(q, share, j, k, without) for k in range(j)] for j in range(n)]
    r: list[float] = []
    for k in range(n):
        repeats = sum((q.base[k][m] + strong[k][m]) * match(share[k], share[m]) for m in range(k))
        r.append(q.alpha[k] / (q.alpha[k] + repeats) if q.alpha[k] + repeats > 0 else 0.0)

    kept = [1.0] * n if "originality" in without else r
    w = [[q.base[j][k] * kept[k] + strong[j][k] for k in range(j)] for j in range(n)]
    if "known before" in without:
        w = [[w[j][k] * (1 + (q.rho[j][k] - 1) * match(share[j], share[k])) for k in range(j)] for j in range(n)]

    counted = [1.0] * n if "origins counted" in without else r
    popularity = [
        [sum(counted[k] * share[k][x] * fading(q, j, k, without) for k in range(j)) for x in range(V)] for j in range(n)
    ]
    return Reading(q, said, share, r, w, popularity, frozenset(without))


def strong_weight(q: Plain, share: list[list[float]], j: int, k: int, without: Collection[str]) -> float:
    """Strong weight of a pair, by how much of what claim k says has been denied by a claim between the two."""
    if q.strong_denied is None or "denied since" in without:
        return q.strong[j][k]
    assert q.denies is not None
    denied = sum(share[k][v] for v in {v for v in q.denies[k + 1 : j] if v >= 0})
    return denied * q.strong_denied[j][k] + (1 - denied) * q.strong[j][k]


def fading(question: Plain, j: int, k: int, without: Collection[str]) -> float:
    """Chance that the truth was not drawn anew between two claims."""
    change = question.change
    if change is None or not {"change", "popularity fades"}.isdisjoint(without):
        return 1.0
    return math.exp(-change.rate * (change.times[j] - change.times[k]))


# ---------------------------------------------------------------------------------------- the law of one claim's value


def reliability(x: Reading, j: int, z: int, d: float) -> float:
    a = 1 / (1 + math.exp(-(x.question.logit[j][z] + x.question.difficulty_sd * d)))
    return a if "ceiling" in x.without else min(a, x.question.ceiling[j])


def wrong_answer_law(x: Reading, j: int, z: int, a: float) -> list[float]:
    """u_j(. ; z): the answers that a fresh claim gives when it is wrong; 0 at z."""
    q, K, n = x.question, x.K, x.popularity[j]
    uniform = 1 / (K - 1)
    c = [uniform] * K if q.confusion is None or "confusion" in x.without else q.confusion[j][z]
    beta = q.beta[j] if isinstance(q.beta, list) else q.beta
    if beta is None or K == 2:
        return [0.0 if v == z else c[v] for v in range(K)]
    u = [0.0 if v == z else (n[v] + beta * c[v]) / (sum(n) - n[z] + beta) for v in range(K)]
    cap = max(a / (1 - a) if a < 1 else math.inf, uniform)
    if q.closed or "clip" in x.without or max(u) <= cap:
        return u
    t = (max(u) - cap) / (max(u) - uniform)
    return [0.0 if v == z else (1 - t) * u[v] + t * uniform for v in range(K)]


def fresh_law(x: Reading, j: int, z: int, d: float) -> list[float]:
    if x.question.law is not None:
        return x.question.law[j][z]
    a = reliability(x, j, z, d)
    u = wrong_answer_law(x, j, z, a)
    return [a if v == z else (1 - a) * u[v] for v in range(x.K)]


def stated(x: Reading, j: int, z: int, d: float) -> float:
    """Probability of what a fresh claim says and, relative to a random choice, of what it denies."""
    q, K = x.question, x.K
    p = likelihood(x, j, fresh_law(x, j, z, d))
    y = -1 if q.denies is None or "denials" in x.without else q.denies[j]
    if y >= 0 and x.said[j][z] == 0:
        w = at_random(x, j)
        p *= sum(w) * (q.denial if y == z else 1) / (sum(w) + (q.denial - 1) * w[z])
    lasting = 1.0 if q.lasting is None or "lasting" in x.without else q.lasting[j]
    return lasting * p + (1 - lasting) / K


def at_random(x: Reading, j: int) -> list[float]:
    """Weights of what claim j may deny at random: values named before it have 1, all the others 1 together."""
    own = [v for v in range(x.K) if x.said[j][v] > 0]
    named = [v for v in range(x.K) if v not in own and any(x.said[k][v] > 0 for k in range(j))]
    rest = [v for v in range(x.K) if v not in own and v not in named]
    return [1.0 if v in named else 1 / len(rest) if v in rest else 0.0 for v in range(x.K)]


def repeat_law(x: Reading, j: int, k: int) -> list[float]:
    """What a repetition of claim k says, times the likelihood ratio of the texts where it says what k said."""
    eps = x.question.copy_error
    rho = 1.0 if "known before" in x.without else x.question.rho[j][k]
    return [rho * (1 - eps) * x.share[k][v] + eps * random_law(x)[v] for v in range(x.V)]


def random_law(x: Reading) -> list[float]:
    return x.question.random or [1 / x.K] * x.K


def likelihood(x: Reading, j: int, law: Sequence[float]) -> float:
    """Probability of what claim j says, under a law of its value."""
    none = 1 - sum(x.said[j])
    return none / x.V + sum(weight * p for weight, p in zip(x.said[j], law, strict=True))


def is_silent(x: Reading, j: int) -> bool:
    """An own note that repeats nothing: it can be neither fresh nor a repetition, and so says nothing."""
    return x.question.alpha[j] + sum(x.w[j]) == 0


# ---------------------------------------------------------------------------- the joint probability and its plain sums


def origin_factors(x: Reading, j: int, z: int, d: float) -> dict[int, float]:
    """P(o_j) P(x_j | o_j, z, d) for each origin o_j."""
    if is_silent(x, j):
        return {FRESH: stated(x, j, z, d) if "own notes" in x.without else 1.0}
    total = x.question.alpha[j] + sum(x.w[j])
    factors = {FRESH: x.question.alpha[j] / total * stated(x, j, z, d)}
    for k in range(j):
        factors[k] = x.w[j][k] / total * likelihood(x, j, repeat_law(x, j, k))
    return factors


def looks(x: Reading, z: int) -> Iterator[tuple[int, float]]:
    """What a question with truth z may look like, with the probability of each."""
    q = x.question
    if q.trap is None or "trap" in x.without:
        yield z, 1.0
        return
    assert q.base_rates is not None
    for y in range(x.K):
        yield y, (1 - q.trap) * (y == z) + q.trap * q.base_rates[y]


def joint(x: Reading, grid: Grid = NO_DIFFICULTY) -> Iterator[tuple[int, tuple[int, ...], float]]:
    """Every (truth, origins) with P(truth, origins, x), once for each node of the difficulty and each look of the
    question; claims as if independent, whatever their correlation."""
    if x.question.hard is not None:
        grid = ((0.0, 1.0 - x.question.hard), (-1.0, x.question.hard))
    for z in range(x.K):
        for (y, look), (d, weight) in itertools.product(looks(x, z), grid):
            factors = [origin_factors(x, j, y, d) for j in range(x.n)]
            for origins in itertools.product(*factors):
                given = math.prod(factors[j][o] for j, o in enumerate(origins))
                yield z, origins, x.question.prior[z] * look * weight * given


def evidence(question: Any, values: Iterable[int], grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()) -> float:
    """P(x), summed over the truth, the origins and the difficulty."""
    return math.fsum(p for _, _, p in joint(read(question, values, without), grid))


def posterior(
    question: Any, values: Iterable[int], grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()
) -> list[float]:
    """P(z | x), K numbers."""
    x = read(question, values, without)
    parts: list[list[float]] = [[] for _ in range(x.K)]
    for z, _, p in joint(x, grid):
        parts[z].append(p)
    sums = [math.fsum(part) for part in parts]
    return [p / math.fsum(sums) for p in sums]


def origins(
    question: Any, values: Iterable[int], grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()
) -> list[list[float]]:
    """(n, n+1): P(o_j = fresh | x) in column 0, P(o_j = k | x) in column 1 + k; zeros for a silent own note."""
    x = read(question, values, without)
    table = [[0.0] * (x.n + 1) for _ in range(x.n)]
    total = 0.0
    for _, assignment, p in joint(x, grid):
        total += p
        for j, o in enumerate(assignment):
            if not is_silent(x, j):
                table[j][1 + o] += p
    return [[p / total for p in row] for row in table]


def total_probability(question: Any, grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()) -> float:
    """Sum of P(x) over all sequences of hard values, and of answers denied where claims deny one: 1, times K for every
    silent own note."""
    q = plain(question)
    n, K = len(q.alpha), q.values
    parts = []
    for values in itertools.product(range(K), repeat=n):
        for denies in itertools.product(*(targets(q, j, values[j]) for j in range(n))):
            said = q if q.denies is None else replace(q, denies=list(denies))
            x = read(said, values, without)
            chances = [at_random(x, j)[y] / sum(at_random(x, j)) for j, y in enumerate(denies) if y >= 0]
            parts.append(evidence(said, values, grid, without) * math.prod(chances))
    return math.fsum(parts)


def targets(q: Plain, j: int, value: int) -> list[int]:
    """What claim j may deny."""
    if q.denies is None or q.denies[j] < 0:
        return [-1]
    return [y for y in range(len(q.prior)) if y != value]


# ------------------------------------------------------------------------------ the marginal, claim after claim


def claim_marginal(x: Reading, j: int, z: int, d: float) -> float:
    """P(x_j | earlier claims, z, d) with the origin summed out by the closed formula."""
    if is_silent(x, j):
        return stated(x, j, z, d) if "own notes" in x.without else 1.0
    q = x.question
    W = sum(x.w[j])
    f = q.alpha[j] / (q.alpha[j] + W)
    repeats = 0.0
    for v in range(x.V):
        if x.said[j][v] == 0:
            continue
        rho = [1.0] * j if "known before" in x.without else q.rho[j]
        M = sum(x.w[j][k] * rho[k] * x.share[k][v] for k in range(j))
        m = ((1 - q.copy_error) * M + q.copy_error * random_law(x)[v] * W) / (q.alpha[j] + W)
        repeats += x.said[j][v] * m
    return f * stated(x, j, z, d) + (1 - f) * (1 - sum(x.said[j])) / x.V + repeats


def log_marginal(
    question: Any, values: Iterable[int], grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()
) -> list[float]:
    """log P(z, x) for each z, claim after claim; feasible for a few hundred claims."""
    x = read(question, values, without)
    q = x.question
    given = []
    for y in range(x.K):
        terms = []
        for d, weight in grid:
            factors = [weight, *(claim_marginal(x, j, y, d) for j in range(x.n))]
            terms.append(sum(math.log(p) for p in factors) if min(factors) > 0 else -math.inf)
        given.append(log_sum_exp(terms))
    if q.correlation is not None and "correlation" not in x.without:
        return correlated(q, given, sum(x.r), without)
    result = []
    for z, prior in enumerate(q.prior):
        terms = [given[y] + math.log(look) for y, look in looks(x, z) if look > 0]
        result.append(math.log(prior) + log_sum_exp(terms) if prior > 0 else -math.inf)
    return result


def correlated(question: Any, given: Sequence[float], originals: float, without: Collection[str] = ()) -> list[float]:
    """log P(z, x): the law of independent claims times a power of their posterior, from log P(x | looks like y) and the
    expected number of originals among the claims."""
    q = plain(question)
    assert q.base_rates is not None and q.correlation is not None
    power = 1 / (1 + (max(originals, 1.0) - 1) * q.correlation)
    log_evidence = log_sum_exp([math.log(b) + g for b, g in zip(q.base_rates, given, strict=True)])
    tempered = [power * (math.log(b) + g) for b, g in zip(q.base_rates, given, strict=True)]
    law = [math.exp(t - log_sum_exp(tempered)) for t in tempered]
    result = []
    for z, prior in enumerate(q.prior):
        p = law[z]
        if q.trap is not None and "trap" not in without:
            p = (1 - q.trap) * law[z] + q.trap * q.base_rates[z]
        result.append(log_evidence + math.log(p) if prior > 0 else -math.inf)
    return result


def marginal_posterior(
    question: Any, values: Iterable[int], grid: Grid = NO_DIFFICULTY, without: Collection[str] = ()
) -> list[float]:
    """P(z | x) from ``log_marginal``."""
    logs = log_marginal(question, values, grid, without)
    return [math.exp(p - log_sum_exp(logs)) for p in logs]


def log_sum_exp(terms: Sequence[float]) -> float:
    top = max(terms)
    return top if math.isinf(top) else top + math.log(math.fsum(math.exp(t - top) for t in terms))


# ------------------------------------------------------------------------------------------------- a truth that changes


def log_marginal_at(
    question: Any,
    values: Iterable[int],
    grid: Grid = NO_DIFFICULTY,
    without: Collection[str] = (),
    origin: tuple[int, int] | None = None,
) -> list[float]:
    """log P(z(at) = z, x, what is settled) for each z where the truth changes: an explicit sum over where regimes begin
    and over the truth of each regime; with ``origin``, a claim and where it comes from, that as well."""
    x = read(question, values, without)
    change = x.question.change
    times = sorted({*change.times, change.at, *(t for t, _ in change.pins), *(t for t, _ in change.rejections)})
    times = [t for t in times if t > -math.inf]
    parts: list[list[float]] = [[] for _ in range(x.K)]
    for node, weight in grid:
        held = [[claim_marginal(x, j, z, node) for z in range(x.K)] for j in range(x.n)]
        if origin is not None:
            held[origin[0]] = [origin_factors(x, origin[0], z, node)[origin[1]] for z in range(x.K)]
        at_time = [[_said_at(x, held, t, z, without) for z in range(x.K)] for t in times]
        for jumps in itertools.product((False, True), repeat=len(times) - 1):
            law = weight
            for jump, begin, end in zip(jumps, times, times[1:], strict=False):
                stay = 1.0 if "change" in without else math.exp(-change.rate * (end - begin))
                law *= 1 - stay if jump else stay
            if law == 0:
                continue
            regimes = _regimes(jumps)
            totals = [
                [x.question.prior[z] * math.prod(at_time[i][z] for i in regime) for z in range(x.K)]
                for regime in regimes
            ]
            mine = next(i for i, regime in enumerate(regimes) if times.index(change.at) in regime)
            rest = law * math.prod(math.fsum(t) for i, t in enumerate(totals) if i != mine)
            for z in range(x.K):
                parts[z].append(rest * totals[mine][z])
    sums = [math.fsum(part) for part in parts]
    return [math.log(p) if p > 0 else -math.inf for p in sums]


def _regimes(jumps: Sequence[bool]) -> list[list[int]]:
    """Indices of times that lie in one regime, for each regime."""
    out = [[0]]
    for i, jump in enumerate(jumps, 1):
        if jump:
            out.append([])
        out[-1].append(i)
    return out


def _said_at(x: Reading, held: list[list[float]], time: float, z: int, without: Collection[str]) -> float:
    """Probability of everything observed at a time, the truth being z."""
    change = x.question.change
    if "pins" not in without and any(t == time and v != z for t, v in change.pins):
        return 0.0
    if "rejections" not in without and any(t <= time and v == z for t, v in change.rejections):
        return 0.0
    return math.prod(held[j][z] for j in range(x.n) if change.times[j] == time)
