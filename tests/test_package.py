"""What is installed is the tree: the wheel, the public names, the first commands of the README."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import nousppl

ROOT = Path(__file__).parents[1]
FOLDERS = {"nousppl": "nousppl", "models": "nousppl/models", "inference": "nousppl/inference"}
LEFT_OUT = (".git", ".venv*", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "tests", "notebooks")
HEAVY = ("arviz", "jax", "matplotlib", "numpyro", "pandas", "sklearn", "torch", "typer")


def python(code: str, *, cwd: Path | None = None) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def in_tree(root: Path) -> set[str]:
    """Files of the package as they should be installed, links not followed."""
    found = set()
    for folder, installed in FOLDERS.items():
        for path in (root / folder).rglob("*"):
            inside = path.relative_to(root / folder)
            linked = folder == "nousppl" and inside.parts[0] in ("models", "inference")
            if path.is_file() and "__pycache__" not in inside.parts and not linked:
                found.add(f"{installed}/{inside.as_posix()}")
    return found


def build(root: Path, out: Path) -> Path:
    """The wheel of the tree at `root`, built without a network."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def in_wheel(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the repository; a build in place would bring back deleted modules."""
    copy = tmp_path_factory.mktemp("tree") / "nousppl"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, tmp_path_factory.mktemp("wheel"))


def test_wheel_holds_the_tree_and_nothing_else(wheel: Path) -> None:
    names = in_wheel(wheel)
    assert {name for name in names if ".dist-info/" not in name} == in_tree(ROOT)
    assert "nousppl/py.typed" in names
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)


def test_wheel_names_the_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert "nousppl = nousppl.cli:app" in archive.read(entry_points).decode()


def test_wheel_can_be_imported_by_itself(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import nousppl.models.hierarchy as h; print(h.__file__)"
    assert python(code, cwd=tmp_path) == str(tmp_path / "nousppl" / "models" / "hierarchy.py")


def test_a_subfolder_that_the_build_does_not_know_is_noticed(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (copy / "models" / "more").mkdir()
    (copy / "models" / "more" / "__init__.py").write_text("", encoding="utf-8")
    assert in_tree(copy) - in_wheel(build(copy, tmp_path / "out")) == {"nousppl/models/more/__init__.py"}


# Public names


def test_import_is_quick_and_loads_nothing_heavy() -> None:
    code = f"""
import sys, time
start = time.perf_counter()
import nousppl
print(round(time.perf_counter() - start, 3), [name for name in {HEAVY} if name in sys.modules])
"""
    seconds, heavy = python(code).split(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 1


@pytest.mark.parametrize("name", nousppl.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(nousppl, name).__name__.rpartition(".")[2] == name
    assert name in dir(nousppl)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "nousppl" / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    homes = {alias.name: node.module for node in imports for alias in node.names}
    assert set(nousppl.__all__) == set(homes) - {"import_module", "TYPE_CHECKING", "Any"}
    assert {name: homes[name] for name in nousppl._HOMES} == nousppl._HOMES


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'nousppl' has no attribute 'Evidense'"):
        nousppl.Evidense  # noqa: B018


def test_version_is_that_of_the_distribution() -> None:
    assert nousppl.__version__ == importlib.metadata.version("nousppl")


def test_importing_the_package_changes_nothing_for_the_process() -> None:
    code = f"""
import ast, importlib, importlib.util, pathlib, sys
root = pathlib.Path({str(ROOT)!r})
sys.path.insert(0, str(root / "tests"))
from conftest import shared_state
import nousppl
texts = {{path: path.read_text(encoding="utf-8") for path in (root / "nousppl").rglob("*.py")}}
for folder in ("models", "inference"):
    texts |= {{root / "nousppl" / folder / path.name: path.read_text() for path in (root / folder).glob("*.py")}}
for text in texts.values():
    for node in ast.walk(ast.parse(text)):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            # Extras may be missing, and a package that only arviz 1.x brings.
            if not name.startswith("nousppl") and importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)
before = shared_state()
torch = importlib.util.find_spec("torch") is not None
for path in texts:
    if torch or not path.stem.startswith("torch_"):
        importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
after = shared_state()
print([name for name in before if before[name] != after[name]])
"""
    assert python(code) == "[]"


# Requirements and first commands


def test_every_requirement_has_a_lower_bound_that_is_met() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in map(Requirement, project["dependencies"]):
        assert any(part.operator == ">=" for part in requirement.specifier), requirement
        if requirement.marker is None or requirement.marker.evaluate():
            installed = Version(importlib.metadata.version(requirement.name))
            assert installed in requirement.specifier, f"{requirement.name} {installed}"


def test_every_import_is_a_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(part for extra in project["optional-dependencies"].values() for part in extra)]
    required = {Requirement(part).name for part in asked}
    homes = importlib.metadata.packages_distributions()
    imported = set()
    for path in [path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            imported |= {name.partition(".")[0] for name in names}
    foreign = {homes.get(name, [name])[0].lower() for name in imported - sys.stdlib_module_names}
    assert foreign - required - {"nousppl", "crowdkit", "pyro"} == set()


def test_first_code_block_of_the_readme_is_two_complete_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert block is not None
    use, test = block[1].splitlines()
    assert use.startswith("python3 -m venv") and use.endswith("nousppl demo")
    assert test.startswith("python3 -m venv") and test.endswith("pytest -q -n 2") and '".[test,pyro]"' in test
