"""How far noise moved a fit: standard errors of weights and vectors from the Gauss-Newton matrix.

If the noise has the same variance at every unit vector, a least-squares fit has the covariance σ² H⁻¹ for small noise.
Its part across the span of the components has a closed form. Its part in the span takes k² unknowns: they are solved
for exactly up to a number of components; beyond it, what one component's error does to the others is neglected there.
"""

from __future__ import annotations

import math

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.components import Components
from odeco.fit._gauss_newton import as_points

#: Up to this many components the system in their span is solved exactly: it has k² unknowns.
_MOST_EXACT = 24


def standard_errors(components: Components, deviation: float) -> tuple[FloatArray, FloatArray]:
    """Return the standard errors of weights and of vectors, the latter as angles in radians, at most π/2.

    `deviation` is the standard deviation of the noise at a unit vector.
    """
    order, k, dimension = components.order, components.n_components, components.dimension
    if k == 0:
        return np.zeros(0), np.zeros(0)
    signs, points = as_points(components)
    lengths = np.linalg.norm(points, axis=0)
    with one_blas_thread():
        gram: FloatArray = points.T @ points
        pairs = signs[:, None] * signs
        inner = order * pairs * gram ** (order - 1)
        outer = order * (order - 1) * pairs * gram ** (order - 2)
        across = np.diagonal(np.linalg.pinv(inner, hermitian=True))
        n_inside = min(k, dimension)
        if k <= _MOST_EXACT:
            basis, root = np.linalg.qr(points)
            n_inside = basis.shape[1]
            matrix = np.einsum("ab,ij->aibj", np.eye(n_inside), inner) + np.einsum("aj,ji,bi->aibj", root, outer, root)
            size = n_inside * k
            covariance = np.linalg.pinv(matrix.reshape(size, size), hermitian=True).reshape(n_inside, k, n_inside, k)
            blocks = np.einsum("aibi->iab", covariance)
            units = root / lengths
            along = np.einsum("ai,iab,bi->i", units, blocks, units)
            beside = np.einsum("iaa->i", blocks) - along
        else:  # H has the own second term of each component, which counts (p − 1) times along it
            along = across / order
            beside = (n_inside - 1) * across
    turned = np.maximum(beside + (dimension - n_inside) * across, 0.0)
    angles = np.minimum(deviation * np.sqrt(turned) / lengths, math.pi / 2)
    weights: FloatArray = deviation * np.sqrt(np.maximum(along, 0.0)) * order * lengths ** (order - 1)
    return weights, angles
