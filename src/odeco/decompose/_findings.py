"""What is said of components that were found: by a search, or by a fit of all of them."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from odeco._scale import put_back
from odeco._types import FloatArray
from odeco.components import Components
from odeco.decompose._unit import Unit
from odeco.errors import ConvergenceWarning
from odeco.fit import Judged
from odeco.oracle import Oracle
from odeco.rank import no_signal_error
from odeco.result import Decomposition
from odeco.search import Search, zero_image_error

#: A fit has converged if what it still misses is this share of its standard errors.
_ENOUGH = 0.01


def described(search: Search, *, tolerance: float) -> Decomposition:
    """Sort what a finished search has found, and judge each component."""
    found = search.components
    order = found.largest_first()
    residuals = np.array([np.nan if pair.residual is None else pair.residual for pair in search.found])[order]
    return Decomposition(
        components=found.sorted_by_weight(),
        residuals=residuals,
        converged=residuals <= tolerance * np.abs(found.weights[order]),
        n_iterations=np.array([pair.n_iterations for pair in search.found])[order],
        n_agreed=np.array([pair.n_agreed for pair in search.found])[order],
        histories=tuple(search.found[i].history for i in order),
        n_restarts=search.plan.n_restarts,
    )


def sorted_fit(oracle: Oracle, judged: Judged, tolerance: float, angle_errors: FloatArray) -> Decomposition:
    """Sort a fit by weight, and judge whether it converged."""
    found = judged.fit
    order = found.components.largest_first()
    components = found.components.sorted_by_weight()
    residuals = found.residuals[order]
    # A fit need not be exact to more digits than the noise leaves of it.
    enough = np.maximum(max(tolerance, 8 * oracle.rounding), _ENOUGH * angle_errors) * np.abs(components.weights)
    evidence = judged.evidence
    if evidence is not None:
        first = np.concatenate([order, np.arange(order.size, evidence.weights.size)])
        evidence = replace(evidence, weights=evidence.weights[first], chances=evidence.chances[first])
    return Decomposition(
        components=components,
        residuals=residuals,
        converged=residuals <= enough,
        n_iterations=np.full(order.size, max(1, len(found.history))),
        n_agreed=np.ones(order.size, dtype=np.intp),
        histories=(found.history,) * order.size,
        rank_evidence=evidence,
    )


def explained_by(oracle: Oracle, components: Components) -> float | None:
    """Return 1 − ‖T − C‖² / ‖T‖², with ⟨T, C⟩ = Σ λᵢ T(vᵢ, …, vᵢ)."""
    whole = oracle.squared_norm()
    if whole is None or not oracle.exact:
        return None
    inner = float(components.weights @ oracle.value(components.vectors))
    return (2 * inner - components.squared_norm()) / whole


def require_signal(unit: Unit, judged: Judged) -> None:
    """Raise if no component stands clear of the noise."""
    evidence = judged.evidence
    if evidence is None or evidence.rank:
        return
    if evidence.weights.size == 0:
        raise zero_image_error(1, judged.fit.components)
    weights = put_back(evidence.weights, unit.exponent, "weights")
    levels = put_back(evidence.noise_levels, unit.exponent, "noise levels")
    raise no_signal_error(weights, levels, judged.fit.components)


def warn_if_unconverged(result: Decomposition, *, stacklevel: int) -> None:
    """Warn about the worst component that did not converge, with the remedy."""
    if result.converged.all():
        return
    worst = int(np.argmax(np.where(result.converged, 0, result.residuals / np.abs(result.weights))))
    residual, weight = float(result.residuals[worst]), float(result.weights[worst])
    # All that the loop is told about its steps would lead a fit of all components away from itself.
    looped = result.n_restarts is not None
    remedy = "Raise n_iterations, raise tol" if looped else "Raise tol"
    text = (
        f"Component {worst + 1} did not converge: its residual is {residual:.1e}, or {residual / abs(weight):.1e} of "
        f"its weight {weight:.3g}, after {result.n_iterations[worst]} {'iterations' if looped else 'steps'}. {remedy} "
        "if that is accurate enough, or lower n_components if the weight is at the noise level."
    )
    warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)
