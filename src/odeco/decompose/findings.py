"""A tensor in the unit that it is decomposed in, and the way back.

What is said of components that were found: by a search, or by a fit of all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from odeco._util.arguments import check_choice
from odeco._util.scale import norm_exponent, put_back
from odeco._util.types import FloatArray
from odeco.cp.rank import no_signal_error
from odeco.cp.selection import RankSelection
from odeco.decompose.result import Decomposition
from odeco.errors import ConvergenceWarning, RankError
from odeco.power.solver import Search, zero_image_error
from odeco.tensors.components import Components
from odeco.tensors.norms import squared_norm
from odeco.tensors.oracle import Oracle
from odeco.tensors.units import InUnit


@dataclass(frozen=True)
class Unit:
    """A tensor over a power of two, and the way back.

    The loop normalises whatever it is told, so that it does without a shift; see `norm_exponent`.
    """

    given: InUnit
    shift: int = 0

    @classmethod
    def of(cls, given: InUnit, generator: np.random.Generator) -> Unit:
        """Return the unit in which the norm is between 1/2 and 1, or about that where it can only be estimated."""
        size = squared_norm(given, rng=generator) if given.exact else 0.0
        return cls(given, norm_exponent(size))

    @property
    def oracle(self) -> Oracle:
        """The tensor in the unit."""
        return self.given * 2.0**-self.shift

    @property
    def exponent(self) -> int:
        """The exponent of the unit."""
        return (self.given.exponent or 0) + self.shift

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put what an error has found back into the unit that the tensor was given in."""
        try:
            yield
        except RankError as error:
            weights = put_back(error.found.weights, self.exponent, "weights")
            error.found = Components(weights, error.found.vectors, error.found.order)
            raise

    def put_back(self, result: Decomposition) -> Decomposition:
        """Put a result back into the unit that the tensor was given in."""
        exponent, evidence, errors = self.exponent, result.rank_evidence, result.weight_errors
        if exponent == 0:
            return result
        if evidence is not None:
            weights, levels = (
                put_back(each, exponent, "weights") for each in (evidence.weights, evidence.noise_levels)
            )
            evidence = replace(evidence, weights=weights, noise_levels=levels)
        weights = put_back(result.weights, exponent, "weights")
        return replace(
            result,
            components=Components(weights, result.vectors, result.order),
            residuals=put_back(result.residuals, exponent, "residuals"),
            rank_evidence=evidence,
            weight_errors=None if errors is None else put_back(errors, exponent, "errors of weights"),
        )


def choose_method(method: str, needs_power: Mapping[str, bool]) -> str:
    """Return "cp" or "power"; `needs_power` names the settings that only the power method knows, and whether given."""
    check_choice("method", method, ("auto", "cp", "power"))
    given = [name for name, is_given in needs_power.items() if is_given]
    if method == "cp" and given:
        raise ValueError(f'`method` must be "auto" or "power" with {given[0]}. Got "cp". Leave out one of the two.')
    return "cp" if method != "power" and not given else "power"


#: A fit has converged if what it still misses is this share of its standard errors.
_ENOUGH = 0.01


def described(search: Search, *, tolerance: float) -> Decomposition:
    """Sort what a finished search has found, with the residual of each component."""
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


def sorted_fit(oracle: Oracle, selection: RankSelection, tolerance: float, angle_errors: FloatArray) -> Decomposition:
    """Sort a fit by weight, and check whether it converged."""
    found = selection.fit
    order = found.components.largest_first()
    components = found.components.sorted_by_weight()
    residuals = found.residuals[order]
    # A fit need not be exact to more digits than the noise leaves of it.
    enough = np.maximum(max(tolerance, 8 * oracle.rounding), _ENOUGH * angle_errors) * np.abs(components.weights)
    evidence = selection.evidence
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


def require_signal(unit: Unit, selection: RankSelection) -> None:
    """Raise if no component stands clear of the noise."""
    evidence = selection.evidence
    if evidence is None or evidence.rank:
        return
    if evidence.weights.size == 0:
        raise zero_image_error(1, selection.fit.components)
    weights = put_back(evidence.weights, unit.exponent, "weights")
    levels = put_back(evidence.noise_levels, unit.exponent, "noise levels")
    raise no_signal_error(weights, levels, selection.fit.components)


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
