"""README.md is right: its commands exist, its example prints what it shows, and its map names real modules."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlparse

import nbformat
import pytest
import typer
from printed import differences

from nousppl import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str = r"\w*") -> list[str]:
    """Code blocks of a kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_first_code_block_is_two_commands() -> None:
    assert len(blocks()[0].splitlines()) == 2
    assert blocks("bash")[0] == blocks()[0]


def test_example_is_short() -> None:
    (example,) = blocks("python")
    assert 12 <= len(example.splitlines()) <= 18


@pytest.mark.slow
def test_example_prints_what_is_shown(tmp_path: Path, compiled: dict[str, str]) -> None:
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env=os.environ | compiled,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(differences(blocks("text")[0], done.stdout)) == []


def test_words_about_the_example_hold() -> None:
    shown, scores = blocks("text")
    assert shown.startswith("Belief(maya · diet): halal 0.")
    assert shown.count(" kosher ") == 9 + 1
    assert re.search(r"^n +72\.00$", shown, re.MULTILINE)
    accuracy = re.search(r"^accuracy +(\S+) +(\S+)$", scores, re.MULTILINE)
    assert accuracy is not None and float(accuracy[1]) > float(accuracy[2])


def test_comparison_is_that_of_the_notebook() -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "01_quick_start.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if "scores" in cell.metadata.get("tags", [])]
    assert list(differences(blocks("text")[1], cell.outputs[0].text)) == []


def test_module_map_names_real_modules() -> None:
    named = re.findall(r"`(nousppl(?:\.\w+)+)`", section("What is where"))
    assert len(named) > 20
    assert [name for name in named if find_spec(name) is None] == []


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert "notebooks/belief.png" in targets
    assert [target for target in targets if not urlparse(target).scheme and not (ROOT / target).is_file()] == []


COMMANDS = [line.split("#")[0].split() for line in blocks("bash")[1].splitlines()]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_exist(words: list[str]) -> None:
    program, name, *arguments = words
    assert program == "nousppl"
    command = typer.main.get_command(cli.app).commands[name]
    context = command.make_context(name, list(arguments))
    assert context.command.name == name


def test_every_command_is_shown() -> None:
    assert {words[1] for words in COMMANDS} == set(typer.main.get_command(cli.app).commands)
