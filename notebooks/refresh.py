"""Runs every notebook here and the example of README.md, and saves what they print and draw.

The picture of the README is the output of the notebook cell tagged "picture"; its two blocks of text are what the
example and the notebook cell tagged "scores" print. Usage: ``python notebooks/refresh.py``
"""

import base64
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


def tagged(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    """Outputs of the one cell with a tag."""
    (cell,) = [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]
    return cell.outputs


def run(path: Path) -> nbformat.NotebookNode:
    """Executes a notebook in a fresh kernel, and saves it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3", timeout=900, record_timing=False).execute(cwd=str(HERE))
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, path)
    return notebook


def show(blocks: list[str]) -> None:
    """Puts texts into the blocks of README.md that are marked as text."""
    texts = iter(blocks)
    old = README.read_text(encoding="utf-8")
    new = re.sub(r"(?ms)^```text\n.*?^```", lambda _: f"```text\n{next(texts).rstrip()}\n```", old)
    README.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    notebooks = {path.name: run(path) for path in sorted(HERE.glob("*.ipynb"))}
    first = notebooks["01_quick_start.ipynb"]
    (picture,) = tagged(first, "picture")
    (HERE / "belief.png").write_bytes(base64.b64decode(picture.data["image/png"]))
    example = re.search(r"(?ms)^```python\n(.*?)^```", README.read_text(encoding="utf-8"))
    printed = subprocess.run([sys.executable, "-c", example[1]], capture_output=True, text=True, check=True).stdout
    show([printed, tagged(first, "scores")[0].text])
