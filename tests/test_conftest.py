"""The check of shared state fires on every kind of change, and on nothing else."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CHANGES = {
    "random numbers of the standard library": "import random; random.random()",
    "global random numbers of numpy": "import numpy; numpy.random.seed(3)",
    "numpy's treatment of floating-point errors": "import numpy; numpy.seterr(all='raise')",
    "warnings filters": "import warnings; warnings.simplefilter('ignore')",
    "level of the root logger": "import logging; logging.root.setLevel(10)",
    "handlers of the root logger": "import logging; logging.root.addHandler(logging.NullHandler())",
    "jax_enable_x64": "jax.config.update('jax_enable_x64', True)",
}
CLEAN = "import numpy; numpy.random.default_rng(3).random()"


def test_a_test_that_changes_shared_state_fails(pytester: pytest.Pytester) -> None:
    bodies = [*CHANGES.values(), CLEAN]
    tests = [f"def test_{i}():\n    {body}\n" for i, body in enumerate(bodies)]
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile("import jax\n\n" + "\n".join(tests))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(bodies), errors=len(CHANGES))
    for name in CHANGES:
        result.stdout.fnmatch_lines([f"*the test changed for the whole process: {name}"])
