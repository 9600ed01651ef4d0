"""The architecture as a test: who may import whom, no cycles, no long functions, no long modules."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"nousppl": "nousppl", "models": "nousppl.models", "inference": "nousppl.inference"}
LONGEST_FUNCTION = 60
LONGEST_MODULE = 400

# Lowest first. A module imports its own layer and lower ones only.
LAYERS = {
    "errors": "errors",
    "tools": "arviz_bridge calibration checks coded mixture ragged rank_tests value_text _keys _lineage _report "
    "_writing",
    "evidence": "tables evidence folds question _denials _files _merging _notes _reading _record _record_files "
    "_settling _soft _sources _times _values",
    "models": "models.*",
    "compile": "affinity alike parts items sets numbers number_layout number_worlds own settled shaped statements "
    "periods period_arrays shown domains cells encode default_priors blueprint slots lanes listed denied difficulty "
    "text compile votes padding beside simulate "
    "simulate_lists pair_world unfold unfold_time",
    "inference": "inference.*",
    "fit": "asking whole_lists number_asking number_simulate number_written densify fitting importance kin "
    "simulate_states summaries updating",
    "belief": "belief items_belief periods_belief lineage number_belief number_believe number_beliefs believe "
    "believe_all delta_log beliefs beliefs_arviz beliefs_files beliefs_items beliefs_rows display echoes held_out "
    "identities plotting timeline",
    "trust": "arviz_groups generate learned model programs ranked saving simulated_sets simulation_calibration trust",
    "use": "ballots baselines comparison config datasets diagnostics in_order peers power_scaling report validation",
    "command line": "cli console demo",
    "names": "__init__",
}
# Models know no tables; inference knows neither tables nor what compiled them.
APART = {("models", "evidence"), ("inference", "evidence"), ("inference", "compile")}


def sources(root: Path) -> dict[str, str]:
    """Text of every module by its installed name, links not followed."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in (root / folder).glob("*.py"):
            name = package if path.stem == "__init__" else f"{package}.{path.stem}"
            found[name] = path.read_text(encoding="utf-8")
    return found


def layer_of(module: str) -> int | None:
    """Number of the layer a module is placed in, or None."""
    short = "__init__" if module == "nousppl" else module.removeprefix("nousppl.")
    folder = f"{short.partition('.')[0]}.*"
    return next(
        (i for i, names in enumerate(LAYERS.values()) if short in names.split() or folder in names.split()), None
    )


def for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(node: ast.AST, modules: set[str], inside_functions: bool) -> Iterator[str]:
    """Modules of the package that are imported below `node` at run time."""
    for child in ast.iter_child_nodes(node):
        if for_types_only(child) or (not inside_functions and isinstance(child, ast.FunctionDef)):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in modules)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield from (name for name in [inner if inner in modules else child.module] if name in modules)
        else:
            yield from imports(child, modules, inside_functions)


def graph(texts: dict[str, str], inside_functions: bool) -> dict[str, set[str]]:
    return {name: set(imports(ast.parse(text), set(texts), inside_functions)) for name, text in texts.items()}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    docstring = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    return function.end_lineno - function.lineno + 1 - (docstring.end_lineno - docstring.lineno + 1 if docstring else 0)


def import_faults(texts: dict[str, str]) -> Iterator[str]:
    names = list(LAYERS)
    placed = {name: number for name in texts if (number := layer_of(name)) is not None}
    yield from (f"{name} is in no layer" for name in texts if name not in placed)
    for name, used in graph(texts, inside_functions=True).items():
        for other in sorted(used & placed.keys() if name in placed else []):
            low, high = names[placed[name]], names[placed[other]]
            if placed[other] > placed[name]:
                yield f"{name} ({low}) imports {other} ({high}), a higher layer"
            if (low, high) in APART:
                yield f"{name} ({low}) imports {other} ({high}), which it must not know"
    try:
        TopologicalSorter(graph(texts, inside_functions=False)).prepare()
    except CycleError as error:
        yield f"import cycle: {' -> '.join(error.args[1])}"


def shape_faults(name: str, text: str) -> Iterator[str]:
    if len(text.splitlines()) > LONGEST_MODULE:
        yield f"{name} has {len(text.splitlines())} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > LONGEST_FUNCTION:
            yield f"{name}.{node.name} has {body_lines(node)} lines"
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{name} has a relative import"
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("models", "inference"):
            yield f"{name} imports {node.module} from the top, a second copy of every class"


def faults(root: Path) -> list[str]:
    """Everything in the tree at `root` that breaks a rule, in words."""
    texts = sources(root)
    return [*import_faults(texts), *(fault for name, text in texts.items() for fault in shape_faults(name, text))]


def test_the_tree_keeps_the_rules() -> None:
    assert faults(ROOT) == []


def test_every_placed_module_exists() -> None:
    texts = sources(ROOT)
    short = {name.removeprefix("nousppl.") for name in texts} | {"__init__"}
    assert [n for names in LAYERS.values() for n in names.split() if "*" not in n and n not in short] == []


def test_the_two_folders_are_flat_and_linked() -> None:
    for folder in ("models", "inference"):
        assert [p.name for p in (ROOT / folder).iterdir() if p.is_dir() and p.name != "__pycache__"] == []
        assert (ROOT / "nousppl" / folder).resolve() == ROOT / folder


BROKEN = [
    ("models/a.py", "from nousppl.inference import b\n", "models.a (models) imports nousppl.inference.b (inference)"),
    ("models/a.py", "def f():\n    import nousppl.cli\n", "imports nousppl.cli (command line), a higher layer"),
    ("nousppl/errors.py", "from nousppl import evidence\n", "nousppl.errors (errors) imports nousppl.evidence"),
    ("models/a.py", "from nousppl.evidence import X\n", "imports nousppl.evidence (evidence), which it must not know"),
    ("inference/b.py", "from nousppl.models.a import X\nfrom nousppl.inference.c import Y\n", "import cycle: "),
    ("nousppl/tables.py", "from nousppl import Evidence\n", "imports nousppl (names), a higher layer"),
    ("models/a.py", "from models.c import X\n", "imports models.c from the top"),
    ("models/a.py", "from .c import X\n", "has a relative import"),
    ("nousppl/surprise.py", "", "nousppl.surprise is in no layer"),
    ("models/a.py", "x = 1\n" * (LONGEST_MODULE + 1), "nousppl.models.a has 401 lines"),
    ("models/a.py", "def f():\n" + "    x = 1\n" * LONGEST_FUNCTION, "nousppl.models.a.f has 61 lines"),
]
SOUND = {
    "nousppl/__init__.py": "from nousppl.evidence import X\n",
    "nousppl/errors.py": "",
    "nousppl/tables.py": "from nousppl.errors import E\n",
    "nousppl/evidence.py": "from nousppl import tables\nif TYPE_CHECKING:\n    from nousppl.cli import app\n",
    "nousppl/cli.py": "from nousppl.evidence import X\n",
    "models/a.py": f'def f():\n    """Words.{chr(10) * LONGEST_FUNCTION}"""\n',
    "inference/b.py": "from nousppl.models.a import X\n",
    "inference/c.py": "from nousppl.inference.b import X\n",
}


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_a_sound_tree_has_no_faults(tmp_path: Path) -> None:
    plant(tmp_path, SOUND)
    assert faults(tmp_path) == []


@pytest.mark.parametrize(("name", "text", "fault"), BROKEN)
def test_each_rule_fires(tmp_path: Path, name: str, text: str, fault: str) -> None:
    plant(tmp_path, SOUND | {name: text})
    assert any(fault in found for found in faults(tmp_path))
