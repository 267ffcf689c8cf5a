"""The power method with unknown rank: components are found until several in a row do not stand clear of the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from odeco._util.arguments import check_tolerance
from odeco._util.scale import put_back
from odeco.cp.rank import RankEvidence, enough_seen, evidence_from_deflation, ground_state, no_signal_error
from odeco.decompose.result import structure_of
from odeco.errors import RankError
from odeco.power.power_method import Callback, PowerSolver, Schedule, step
from odeco.tensors.components import Components
from odeco.tensors.entries import InUnit
from odeco.tensors.oracle import Oracle, squared_norm


def usable_tolerance(tol: float, oracle: Oracle) -> float:
    """Return a tolerance that the oracle's rounding allows; 0, a fixed count, where it must not be asked again."""
    tolerance = check_tolerance(tol)
    return max(tolerance, 8 * oracle.rounding) if tolerance > 0 and oracle.exact else 0.0


def search_to_noise(
    oracle: InUnit, plan: Schedule, generator: np.random.Generator, callback: Callback | None
) -> tuple[PowerSolver, RankEvidence]:
    """Find components until several in a row do not stand clear of the noise, and drop those."""
    if not oracle.exact:
        raise ValueError(
            'n_components="auto" needs an oracle that can be asked again. '
            f"{type(oracle.oracle).__name__} is not exact. Pass n_components as an int."
        )
    search = PowerSolver.start(plan, order=oracle.order, parts=oracle.parts, rng=generator, rounding=oracle.rounding)
    whole = oracle.squared_norm()
    remaining: list[float] = []
    evidence = evidence_from_deflation(np.empty(0), np.empty(0), oracle.dimension, oracle.order)
    while not (search.done or enough_seen(len(search.found), evidence, oracle.dimension)):
        try:
            search = step(oracle, search)
        except RankError:  # nothing is left, so there is no noise either
            break
        if callback is not None:
            callback(search)
        if len(search.found) > len(remaining):
            weights = search.components.weights
            if whole is None:
                remaining.append(squared_norm(oracle - search.components, rng=generator))
            else:  # λ is the value at v, so taking out λ v⊗ᵖ lowers the squared norm by λ²
                remaining.append(whole - float(weights @ weights))
            evidence = evidence_from_deflation(weights, np.array(remaining), oracle.dimension, oracle.order)
    if evidence.rank == 0:
        exponent = oracle.exponent or 0
        weights = put_back(evidence.weights, exponent, "weights")
        raise no_signal_error(weights, put_back(evidence.noise_levels, exponent, "noise levels"), search.components)
    search = replace(search, found=search.found[: evidence.rank], stage="done")
    return search, _if_orthogonal(evidence, search.components)


def _if_orthogonal(evidence: RankEvidence, found: Components) -> RankEvidence:
    """Set the confidence to 0 if what was found is not orthogonal: its weights then are not those of components.

    Noise whose largest value is E₀ √d standard deviations turns a vector of weight λ by one of these over √p λ in each
    of the d − 1 directions around it.
    """
    deviations = evidence.noise_levels[: evidence.rank] / (ground_state(found.order) * math.sqrt(found.dimension))
    turned = deviations * math.sqrt((found.dimension - 1) / found.order) / np.abs(found.weights)
    structure = structure_of(found.vectors, turned, left="noise", complete=False)
    return evidence if structure.kind == "orthogonal" else replace(evidence, confidence=0.0)
