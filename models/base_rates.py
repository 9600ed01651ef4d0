"""How probable each answer is before any claim."""

from __future__ import annotations

from nousppl.models.layout import Layout
from nousppl.models.namespace import Array, Namespace
from nousppl.models.shaped import shaped_mass


def base_log_mass(xp: Namespace, layout: Layout, data: dict[str, Array], theta: dict[str, Array]) -> Array:
    """(cells,) log base rate of each cell, whatever is settled or rejected."""
    log_prior = data["cell_log_mass"]
    if "base_rates" in theta:
        rates = theta["base_rates"]
        log_rates = rates - xp.take(
            xp.logsumexp_by(rates, data["class_attribute"], rates.shape[0]), data["class_attribute"]
        )
        log_prior = xp.where(data["cell_class"] >= 0, xp.take(log_rates, xp.positive(data["cell_class"])), log_prior)
    return shaped_mass(xp, layout, data, theta, log_prior) if layout.shaped else log_prior
