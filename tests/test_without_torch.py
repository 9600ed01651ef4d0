"""Where torch is not installed everything but the second backend works, and the message says what to install."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

import nousppl as nous

CODE = """
import sys
asked_for = []
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "pyro"):
            asked_for.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())

import nousppl as nous
world = nous.datasets.world(questions=20, sources=8, seed=0)
evidence = nous.Evidence(world.claims, settled=world.settled)
model = nous.TrustModel(origin=None, errors=nous.Errors(popularity=False, difficulty=False), answers=world.answers)
trust = model.fit(evidence, nous.SVI(steps=100, draws=5))
question = evidence.question(*evidence.questions.iloc[0][["entity", "attribute"]])
print(trust.posterior(question), model.program(evidence), question.program(trust))
print(asked_for)
"""


def test_fits_programs_and_beliefs_do_not_ask_for_torch() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_message_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyro", None)
    claims = pd.DataFrame({"entity": ["e"], "attribute": "x", "value": "v", "source": "s"})
    model, evidence = nous.TrustModel(answers={"x": 3}), nous.Evidence(claims)
    for use in (model.fit, model.program, model.default_trust().update):
        with pytest.raises(nous.ModelError, match=r"needs torch and pyro, .* pip install nousppl\[pyro\]"):
            use(evidence, backend="pyro")
    with pytest.raises(nous.ModelError, match=r"needs torch and pyro"):
        evidence.question("e", "x").program(backend="pyro")


def test_other_backends_have_no_program() -> None:
    claims = pd.DataFrame({"entity": ["e"], "attribute": "x", "value": "v", "source": "s"})
    with pytest.raises(nous.ModelError, match="backend='torch': allowed are 'numpyro' and 'pyro'"):
        nous.Evidence(claims).question("e", "x").program(backend="torch")
