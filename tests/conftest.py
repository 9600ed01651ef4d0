"""What every test is held to: it leaves the state that all code of a process shares as it found it."""

import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import nousppl as nous
from nousppl.datasets import world
from nousppl.simulate import World

JAX_SETTINGS = (
    "jax_enable_x64",
    "jax_debug_nans",
    "jax_disable_jit",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
    "jax_platforms",
)


def pytest_configure(config: pytest.Config) -> None:
    """Most of the time of the tests would go into optimising code that runs once.

    What is long runs optimised, and so does what tests start as processes: the command line, the notebooks, the README.
    JAX_DISABLE_MOST_OPTIMIZATIONS=0 has all tests run so.
    """
    given = "JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ
    if not given and "not long" in config.getoption("markexpr"):
        jax.config.update("jax_disable_most_optimizations", True)


def shared_state() -> dict[str, object]:
    """What is set for the whole process, by name; of jax and torch only what is loaded already."""
    generator = np.random.get_state(legacy=False)  # noqa: NPY002
    handlers = [handler for handler in logging.root.handlers if not type(handler).__module__.startswith("_pytest")]
    state: dict[str, object] = {
        "random numbers of the standard library": random.getstate(),
        "global random numbers of numpy": (generator["state"]["key"].tobytes(), generator["state"]["pos"]),
        "numpy's treatment of floating-point errors": np.geterr(),
        "warnings filters": list(warnings.filters),
        "level of the root logger": logging.root.level,
        "handlers of the root logger": handlers,
    }
    if jax := sys.modules.get("jax"):
        state |= {name: getattr(jax.config, name, None) for name in JAX_SETTINGS}
    if torch := sys.modules.get("torch"):
        state["torch default type"] = torch.get_default_dtype()
        state["torch threads"] = torch.get_num_threads()
        state["torch random numbers"] = torch.random.get_rng_state().numpy().tobytes()
    return state


def foreign_modules() -> set[str]:
    """Names of what is loaded, this package aside."""
    return {name for name in tuple(sys.modules) if not name.startswith("nousppl")}


@pytest.fixture(autouse=True)
def shared_state_is_left_alone() -> Iterator[None]:
    before, loaded = shared_state(), foreign_modules()
    yield
    after = shared_state()
    if foreign_modules() - loaded:
        # Some libraries add filters or draw numbers while they are loaded; arviz does.
        after |= {name: before[name] for name in ("warnings filters", "global random numbers of numpy")}
    changed = [name for name in before if before[name] != after[name]]
    assert not changed, f"the test changed for the whole process: {', '.join(changed)}"


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings for processes that tests start: they keep what they compile in one folder, as several fit the same."""
    folder: Path = tmp_path_factory.getbasetemp()
    # One worker among several has a folder in that of the run.
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "compiled"
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@pytest.fixture(scope="module")
def small() -> World:
    """A world that fits are cheap on."""
    return world(questions=200, sources=20, seed=3)


@pytest.fixture(scope="module")
def evidence(small: World) -> nous.Evidence:
    """All its claims, all its truths settled."""
    return nous.Evidence(small.claims, settled=small.settled)
