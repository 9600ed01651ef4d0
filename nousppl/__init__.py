"""What is true, how sure may one be, and which voices are echoes: truth discovery with probabilistic programs.

The public names are loaded when they are first used, so that ``import nousppl`` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nousppl.errors import (
    EvidenceError,
    FileError,
    InferenceError,
    ModelError,
    NousError,
    NousWarning,
    QuestionError,
)

if TYPE_CHECKING:
    from nousppl import baselines, datasets, diagnostics, peers
    from nousppl.belief import Belief
    from nousppl.beliefs import Beliefs
    from nousppl.comparison import compare
    from nousppl.evidence import Evidence
    from nousppl.held_out import CrossValidation
    from nousppl.identities import identity
    from nousppl.in_order import prequential
    from nousppl.inference.compiled import keep_compiled
    from nousppl.inference.options import NUTS, SVI
    from nousppl.model import TrustModel
    from nousppl.models.shapes import AnyOf, Number, OneOf, WhileTrue
    from nousppl.models.specification import Errors, Origin
    from nousppl.power_scaling import sensitivity
    from nousppl.question import Question
    from nousppl.simulation_calibration import simulation_based_calibration
    from nousppl.trust import Trust, default_trust, load, posterior
    from nousppl.validation import cross_validate

    __version__: str

__all__ = [
    "NUTS",
    "SVI",
    "AnyOf",
    "Belief",
    "Beliefs",
    "CrossValidation",
    "Errors",
    "Evidence",
    "EvidenceError",
    "FileError",
    "InferenceError",
    "ModelError",
    "NousError",
    "NousWarning",
    "Number",
    "OneOf",
    "Origin",
    "Question",
    "QuestionError",
    "Trust",
    "TrustModel",
    "WhileTrue",
    "baselines",
    "compare",
    "cross_validate",
    "datasets",
    "default_trust",
    "diagnostics",
    "identity",
    "keep_compiled",
    "load",
    "peers",
    "posterior",
    "prequential",
    "sensitivity",
    "simulation_based_calibration",
]

_HOMES = {
    "NUTS": "nousppl.inference.options",
    "SVI": "nousppl.inference.options",
    "AnyOf": "nousppl.models.shapes",
    "Number": "nousppl.models.shapes",
    "Belief": "nousppl.belief",
    "Beliefs": "nousppl.beliefs",
    "CrossValidation": "nousppl.held_out",
    "Errors": "nousppl.models.specification",
    "Evidence": "nousppl.evidence",
    "OneOf": "nousppl.models.shapes",
    "Origin": "nousppl.models.specification",
    "Question": "nousppl.question",
    "Trust": "nousppl.trust",
    "TrustModel": "nousppl.model",
    "WhileTrue": "nousppl.models.shapes",
    "compare": "nousppl.comparison",
    "cross_validate": "nousppl.validation",
    "default_trust": "nousppl.trust",
    "identity": "nousppl.identities",
    "keep_compiled": "nousppl.inference.compiled",
    "load": "nousppl.trust",
    "posterior": "nousppl.trust",
    "prequential": "nousppl.in_order",
    "sensitivity": "nousppl.power_scaling",
    "simulation_based_calibration": "nousppl.simulation_calibration",
}


def __getattr__(name: str) -> Any:
    if name in ("baselines", "datasets", "diagnostics", "peers"):
        return import_module(f"nousppl.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("nousppl")
    if name not in _HOMES:
        raise AttributeError(f"module 'nousppl' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
