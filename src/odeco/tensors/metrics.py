"""Measures of components: how well they match the true ones, and how evenly they use the coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy  # it imports its submodules when they are used; importing optimize takes longer than importing odeco

from odeco._util.types import FloatArray, IndexArray
from odeco.tensors.components import Components


class HasComponents(Protocol):
    """Anything with weights and vectors: `Components` and every result."""

    @property
    def weights(self) -> FloatArray:
        """The k weights."""
        ...

    @property
    def vectors(self) -> FloatArray:
        """The k unit vectors, one in each column."""
        ...

    @property
    def order(self) -> int:
        """The order of the tensor they belong to."""
        ...


@dataclass(frozen=True, eq=False)
class Match:
    """Which found component stands for which true one, and how well.

    Attributes
    ----------
    found_index : array of integers
        For each true component, the index of the one that was found, or −1 if there is none.
    cosines : array
        For each true component, its inner product with the one that was found, in [0, 1]; 0 if there is none.
    weight_errors : array
        For each true component, the weight that was found minus the true weight. A missing weight counts as 0.
    """

    found_index: IndexArray
    cosines: FloatArray
    weight_errors: FloatArray

    @property
    def angles(self) -> FloatArray:
        """Angles between found and true vectors, in radians."""
        return np.arccos(np.clip(self.cosines, -1, 1))


def shown_angle(error: float) -> str:
    """Return the standard error of an angle, in radians, as text.

    No two directions are more than π/2 apart, so a standard error of that size or more means that the vector is not
    determined.

    Examples
    --------
    >>> from odeco.tensors.metrics import shown_angle
    >>> shown_angle(0.0123), shown_angle(1.8e8)
    ('0.012', 'not determined')
    """
    return f"{error:.2g}" if error < math.pi / 2 else "not determined"


def match(found: HasComponents, truth: HasComponents) -> Match:
    """Pair found components with true ones so that the sum of their cosines is largest.

    At odd orders (λ, v) and (−λ, −v) are the same component; at even orders (λ, v) and (λ, −v) are. So a
    found vector is given the sign of the true one before cosines and weights are compared.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> truth = odeco.Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> found = odeco.Components([1.1, -2.0], np.eye(3)[:, [1, 0]] * [1, -1])
    >>> result = odeco.match(found, truth)
    >>> result.found_index, result.cosines, result.weight_errors.round(6)
    (array([1, 0]), array([1., 1.]), array([0. , 0.1]))
    """
    if found.order != truth.order or found.vectors.shape[0] != truth.vectors.shape[0]:
        raise ValueError(
            "Found and true components must share dimension and order. "
            f"Got dimension {found.vectors.shape[0]}, order {found.order} "
            f"and dimension {truth.vectors.shape[0]}, order {truth.order}."
        )
    inner: FloatArray = truth.vectors.T @ found.vectors
    rows, columns = scipy.optimize.linear_sum_assignment(np.abs(inner), maximize=True)
    found_index = np.full(truth.weights.size, -1)
    cosines, weights = np.zeros(truth.weights.size), np.zeros(truth.weights.size)
    found_index[rows], cosines[rows] = columns, np.abs(inner[rows, columns])
    flips = np.sign(inner[rows, columns]) if truth.order % 2 == 1 else 1.0
    weights[rows] = found.weights[columns] * flips
    return Match(found_index, cosines, weights - truth.weights)


def incoherence(components: Components) -> float:
    """Return μ₀ = (d/k) maxᵢ ‖Vᵀeᵢ‖²: 1 if the components are spread evenly over coordinates, d/k at worst.

    The paper defines it in Assumption 4.1. The noise of its private algorithm is proportional to it.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> odeco.incoherence(odeco.Components([1.0], np.full((4, 1), 0.5)))
    1.0
    >>> odeco.incoherence(odeco.Components([1.0], np.eye(4)[:, :1]))
    4.0
    """
    largest_row = float(np.max(np.sum(components.vectors**2, axis=1)))
    return components.dimension / components.n_components * largest_row
