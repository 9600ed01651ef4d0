"""Priors as plain values: a family and its parameters, the same for both backends and for the saved file."""

from __future__ import annotations

from typing import Any, NamedTuple

from nousppl.errors import ModelError


class Prior(NamedTuple):
    """A univariate prior, named by its family in ``numpyro.distributions`` (and ``pyro.distributions``)."""

    family: str
    """For instance "Normal", "HalfNormal", "LogNormal"."""
    parameters: dict[str, float]
    """Scalar parameters by name, for instance ``{"loc": 0.0, "scale": 1.0}``."""

    @classmethod
    def of(cls, distribution: Any) -> Prior:
        """The prior that a numpyro (or pyro) distribution object stands for.

        Raises:
            ModelError: the object is no scalar distribution.
        """
        if isinstance(distribution, Prior):
            return distribution
        names = getattr(distribution, "arg_constraints", None)
        if names is None or getattr(distribution, "event_shape", None) != () or distribution.batch_shape != ():
            raise ModelError(
                f"a prior must be a scalar numpyro distribution such as dist.Normal(0, 1), got {distribution!r}"
            )
        parameters = {name: float(getattr(distribution, name)) for name in names if hasattr(distribution, name)}
        return cls(type(distribution).__name__, parameters)

    def __str__(self) -> str:
        inside = ", ".join(f"{value:.4g}" for value in self.parameters.values())
        return f"{self.family}({inside})"


def normal(loc: float, scale: float) -> Prior:
    """Normal prior."""
    return Prior("Normal", {"loc": loc, "scale": scale})


def half_normal(scale: float) -> Prior:
    """Half-normal prior of a standard deviation."""
    return Prior("HalfNormal", {"scale": scale})


def log_normal(loc: float, scale: float) -> Prior:
    """Log-normal prior of a positive quantity."""
    return Prior("LogNormal", {"loc": loc, "scale": scale})


def student_t(df: float) -> Prior:
    """Student's t prior with location 0 and scale 1."""
    return Prior("StudentT", {"df": df, "loc": 0.0, "scale": 1.0})
