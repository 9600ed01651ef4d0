"""Compiled code is kept between processes where that is asked for, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nousppl as nous

PROGRAM = """
import collections, sys
import jax, jax.numpy as jnp
import nousppl as nous

events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **more: events.update([event.rpartition("/")[2]]))
jax.jit(lambda x: jnp.sin(x) + 1.0)(jnp.ones(3)).block_until_ready()
if len(sys.argv) > 1:
    nous.keep_compiled(sys.argv[1])
jax.jit(lambda x: jnp.cos(x) + 2.0)(jnp.ones(5)).block_until_ready()
print(events["cache_hits"], events["cache_misses"])
"""


def hits_and_misses(*folder: Path) -> tuple[int, int]:
    """Functions found in the folder and functions compiled by a process that compiled something before."""
    command = [sys.executable, "-c", PROGRAM, *map(str, folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    hits, misses = done.stdout.split()
    return int(hits), int(misses)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "compiled"
    hits, misses = hits_and_misses(folder)
    assert hits == 0 and misses > 0
    assert hits_and_misses(folder) == (misses, 0)


def test_nothing_is_kept_unasked(tmp_path: Path) -> None:
    assert hits_and_misses() == (0, 0)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(nous.FileError, match="compiled code cannot be kept in .*taken"):
        nous.keep_compiled(taken)


def test_the_command_line_keeps_it_too(tmp_path: Path) -> None:
    claims = tmp_path / "claims.csv"
    claims.write_text("entity,attribute,value,source\nmaya,diet,vegan,anna\n")
    environment = os.environ | {"NOUSPPL_COMPILED": str(tmp_path / "kept")}
    script = "from nousppl.cli import app; app()"
    arguments = ["fit", str(claims), "--learn-from", "all", "--out", str(tmp_path / "trust.nc")]
    subprocess.run([sys.executable, "-c", script, *arguments], env=environment, check=True, capture_output=True)
    assert list((tmp_path / "kept").iterdir())
