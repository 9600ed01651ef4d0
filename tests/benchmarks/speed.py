"""Times on this machine, side by side with crowd-kit where it does the same work."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from benchmarks.table import Row, at_most, folder, read, shown, watch

import nousppl as nous
from nousppl.asking import CHUNK, chunks
from nousppl.compile import compile_problem

OPTIONS = "full_size=20, learning_rate=0.05, steps=700"
MODEL = f"""
import nousppl as nous
errors = nous.Errors(popularity=False, difficulty=False, bias="source")
answers = {{"label": ["0", "1"]}}
model = nous.TrustModel(origin=None, errors=errors, base_rates="learned", answers=answers)
options = nous.SVI({OPTIONS})
"""
"""Hierarchical Dawid & Skene: each worker's rates of right answers for either truth are partially pooled."""
OURS = (
    MODEL
    + """
import sys
evidence = nous.Evidence.from_csv(sys.argv[1])
beliefs = model.fit(evidence, options, learn_from="all").posteriors(evidence)
"""
)
THEIRS = """
import sys
import pandas as pd
from crowdkit.aggregation import DawidSkene
table = pd.read_csv(sys.argv[1], dtype=str).rename(columns={"entity": "task", "source": "worker", "value": "label"})
DawidSkene(n_iter=100).fit_predict_proba(table)
"""
REPEATS = 3
SIZES = range(1, 51)
"""Claims on the questions of the warm posteriors."""
QUESTIONS = 200


def cold(program: str, path: Path) -> float:
    """Seconds of a program in a process of its own, imports and reading included; the best of a few."""
    times = []
    for _ in range(REPEATS):
        with watch() as taken:
            subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True)
        times.append(taken.wall)
    return min(times)


def product() -> list[Row]:
    """Crowd labels of product pairs: 24,945 claims, nothing settled."""
    from crowdkit.aggregation import DawidSkene

    path = folder("crowd_product") / "claims.csv.gz"
    claims, settled = read("crowd_product")
    table = claims.rename(columns={"entity": "task", "source": "worker", "value": "label"})
    scope: dict[str, object] = {}
    exec(MODEL, scope)
    model, options = scope["model"], scope["options"]
    assert isinstance(model, nous.TrustModel) and isinstance(options, nous.SVI)
    evidence = nous.Evidence.from_csv(path)
    ours, theirs = [], []
    for _ in range(REPEATS + 1):
        with watch() as taken:
            beliefs = model.fit(evidence, options, learn_from="all").posteriors(evidence)
        ours.append((taken.wall, taken.cpu))
        with watch() as taken:
            DawidSkene(n_iter=100).fit_predict_proba(table)
        theirs.append((taken.wall, taken.cpu))
    warm, peer = np.min(ours[1:], axis=0), np.min(theirs[1:], axis=0)
    cold_ours, cold_peer = cold(OURS, path), cold(THEIRS, path)
    where, n = "crowd_product, nothing settled, against crowd-kit's DawidSkene(n_iter=100)", len(claims)
    times = f"best of {REPEATS}: %.2f s and %.2f s"
    return [
        at_most(
            "fit and posteriors, new process: ratio",
            f"{where}; {times % (cold_ours, cold_peer)}",
            n,
            cold_ours / cold_peer,
            4,
        ),
        at_most("fit and posteriors, warm: ratio", f"{where}; {times % (warm[0], peer[0])}", n, warm[0] / peer[0], 1),
        shown("the same in processor time", f"{where}; {times % (warm[1], peer[1])}", n, warm[1] / peer[1]),
        at_most("log loss of that fit", "crowd_product", len(settled), beliefs.score(settled)["log_loss"], 0.25),
    ]


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Names of what jax compiles in the block."""
    import jax

    names: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Finished XLA compilation" in record.getMessage():
                names.append(record.getMessage())

    logger, listener = logging.getLogger("jax._src.dispatch"), Listener()
    level = logger.level
    with jax.log_compiles():
        logger.addHandler(listener)
        logger.setLevel(logging.DEBUG)
        try:
            yield names
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)


def one_question() -> list[Row]:
    """A belief about one question under a fitted trust, questions of 1 to 50 claims, 200 draws."""
    world = nous.datasets.world(QUESTIONS, seed=1, claims=60.0)
    rng = np.random.default_rng(0)
    sizes = dict(zip(world.claims["entity"].unique(), rng.permutation(np.resize(list(SIZES), QUESTIONS)), strict=True))
    place = world.claims.groupby("entity").cumcount()
    claims = world.claims[place < world.claims["entity"].map(sizes)]
    evidence = nous.Evidence(claims, settled=world.settled)
    formula = "1 + (1|kind) + (1|source)"
    model = nous.TrustModel(formula, formula, nous.Origin(strong="same_source + same_channel"), answers=world.answers)
    trust = model.fit(evidence, nous.SVI(steps=300))
    asked = nous.Evidence(claims)
    questions = [asked.question(*key) for key in asked.questions.itertuples(index=False)]
    with compilations() as names:
        for question in questions:
            trust.posterior(question)
    times = []
    for question in questions:
        with watch() as taken:
            trust.posterior(question)
        times.append(taken.wall)
    most = max(len(question.claims) for question in questions)
    where = f"world, questions of 1 to {most} claims, 200 draws"
    return [
        at_most("one posterior, warm: median", where, len(times), 1000 * float(np.median(times)), 5, " ms"),
        shown("one posterior, warm: 95 %, ms", where, len(times), 1000 * float(np.quantile(times, 0.95))),
        at_most("compilations for all of them", f"{QUESTIONS} questions of different sizes", QUESTIONS, len(names), 6),
    ]


def flights() -> list[Row]:
    """Compile all flight claims: encode them and lay out all questions, in chunks as posteriors do."""
    path = folder("flight") / "claims.csv.gz"
    with watch() as reading:
        evidence = nous.Evidence.from_csv(path)
        n = len(evidence.coded.claim_question)
    trust = nous.TrustModel(answers=None).default_trust()
    with watch() as taken:
        encoded = trust.encoded(evidence)
        pieces = chunks(encoded, np.arange(len(evidence.questions)), CHUNK // 8)
        slots = sum(compile_problem(encoded, piece, 0).layout.slots for piece in pieces)
    return [
        shown("flight: read and check, seconds", "flight, all claims", n, reading.wall),
        at_most(
            "flight: compile",
            f"encode and lay out all questions, {slots:,} places in up to 8 orders",
            n,
            taken.wall,
            60,
            " s",
        ),
    ]
