"""Every notebook runs in a fresh kernel, and still says what it was saved with."""

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from printed import differences

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NEEDS = {"02_two_backends": "pyro"}
"""What a notebook needs besides the package: an extra of that name."""
QUICK_START = FOLDER / "01_quick_start.ipynb"
SECONDS = 900


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def execute(
    notebook: nbformat.NotebookNode, folder: Path, settings: dict[str, str] | None = None
) -> nbformat.NotebookNode:
    """The notebook with the outputs of a fresh kernel that runs in `folder`."""
    client = NotebookClient(notebook, kernel_name="python3", timeout=SECONDS)
    return client.execute(cwd=str(folder), env=os.environ | (settings or {}))


def printed(cell: nbformat.NotebookNode) -> str:
    """Text of the outputs of a cell, pictures and warnings aside."""
    parts = [
        output.text if output.output_type == "stream" else output.data["text/plain"]
        for output in cell.outputs
        if output.get("name") != "stderr" and "image/png" not in output.get("data", {})
    ]
    return "\n".join(part.rstrip("\n") for part in parts)


def tagged(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def faults(saved: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> Iterator[str]:
    """What a run prints otherwise than the saved notebook, in cells tagged as stable."""
    for old, new in zip(tagged(saved, "stable"), tagged(fresh, "stable"), strict=True):
        yield from differences(printed(old), printed(new))


@pytest.fixture(scope="module")
def saved() -> str:
    return "\n".join(printed(cell) for cell in read(QUICK_START).cells if cell.cell_type == "code")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_run_prints_what_is_saved(path: Path, tmp_path: Path, compiled: dict[str, str]) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem], reason="the notebook is about an extra that is not installed")
    fresh = execute(read(path), tmp_path, compiled)
    assert list(faults(read(path), fresh)) == []
    assert list(tmp_path.iterdir()) == [], "the notebook leaves files behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_saved_complete_and_clean(path: Path) -> None:
    notebook = read(path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "saved from one run"
    assert len(notebook.cells) <= 25
    assert notebook.metadata.kernelspec.name == "python3"
    assert tagged(notebook, "stable")
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)
    text = json.dumps(notebook)
    assert [
        place for place in ("site-packages", "/home/", "/root/", "/tmp/", str(FOLDER.parent)) if place in text
    ] == []


@pytest.mark.parametrize(
    "said",
    [
        "halal 0.",
        ": clear",
        "c0050 ",
        "sources disagree",
        "kosher 0.",
        "no miscalibration",
        "over-confident by",
        "True",
    ],
)
def test_quick_start_says(saved: str, said: str) -> None:
    assert said in saved


def test_quick_start_has_pictures() -> None:
    images = [output for cell in read(QUICK_START).cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in images) == 4


def test_picture_of_the_readme_is_that_of_the_notebook() -> None:
    ((cell,), picture) = tagged(read(QUICK_START), "picture"), (FOLDER / "belief.png").read_bytes()
    assert base64.b64decode(cell.outputs[0].data["image/png"]) == picture
    assert len(picture) < 200_000


# The checks fire


def notebook_of(*sources: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": ["stable"]}) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


@pytest.mark.slow
def test_an_error_in_a_cell_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(notebook_of("1 + 1", "1 / 0"), tmp_path)


@pytest.mark.slow
def test_another_verdict_is_noticed(tmp_path: Path) -> None:
    before, after = execute(notebook_of("print('clear')"), tmp_path), execute(notebook_of("print('unclear')"), tmp_path)
    assert list(faults(before, after)) == ["'unclear' is printed, and shown is 'clear'"]


@pytest.mark.parametrize(
    ("shown", "fresh"),
    [
        ("halal 0.90: clear", "kosher 0.90: clear"),
        ("halal 0.90: clear", "halal 0.88: clear"),
        ("n 72", "n 71"),
        ("n 1,475", "n 1,476"),
        ("points +2.20", "points -2.20"),
        ("[0.73, 0.99]", "[0.73, 0.97]"),
        ("right 93.1%", "right 92.9%"),
        ("c0050  1.00", "c0051  1.00"),
        ("2026-01-11", "2026-01-12"),
        ("one\ntwo", "one"),
    ],
)
def test_what_differs_is_found(shown: str, fresh: str) -> None:
    assert list(differences(shown, fresh))


@pytest.mark.parametrize(
    ("shown", "fresh"),
    [("halal 0.90: clear", "halal  0.91: clear"), ("[0.73, 0.99]", "[0.72, 1.00]"), ("-0.20", "-0.19"), ("a\n", "a")],
)
def test_the_last_digit_may_differ(shown: str, fresh: str) -> None:
    assert list(differences(shown, fresh)) == []
