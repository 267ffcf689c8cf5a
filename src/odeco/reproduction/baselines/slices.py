"""Methods that reduce a tensor to slices.

The paper's Appendix B takes the eigenvectors of one random slice; simultaneous diagonalisation takes many slices at
once (Kuleshov, Chaganty and Liang 2015).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odeco._util.arguments import as_generator, check_n_components
from odeco._util.types import FloatArray, RngLike
from odeco.tensors.components import Components
from odeco.tensors.dense import as_oracle


def random_slice(tensor: Any, n_components: int, *, rng: RngLike = None) -> Components:
    """Return the top eigenvectors of T(I, I, θ, …, θ) for one random unit vector θ.

    For orthogonal components the slice is Σ λᵢ ⟨vᵢ, θ⟩ᵖ⁻² vᵢ vᵢᵀ, so its eigenvectors are the vᵢ. The overlaps ⟨vᵢ, θ⟩
    are about 1/√d, and two eigenvalues can lie close together. Both make the method fragile under noise.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor with orthogonal components.
    n_components : int
        The number k of components.
    rng : None, int or numpy.random.Generator
        Draws θ.

    References
    ----------
    Wang and Anandkumar 2016, arXiv:1606.06237, Appendix B.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.reproduction.baselines import random_slice
    >>> random_slice(odeco.Components([2.0, 1.0], np.eye(3)[:, :2]), 2, rng=0).weights.round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    k = check_n_components(n_components, oracle.dimension)
    theta = as_generator(rng).standard_normal(oracle.dimension)
    eigenvalues, eigenvectors = np.linalg.eigh(oracle.slice(theta / np.linalg.norm(theta)))
    top = np.argsort(-np.abs(eigenvalues))[:k]
    return positive_components(oracle.value(eigenvectors[:, top]), eigenvectors[:, top], oracle.order)


def positive_components(values: FloatArray, vectors: FloatArray, order: int) -> Components:
    """Return components sorted by weight; at odd orders a vector's sign is turned so that its weight is positive."""
    signs = np.where(values < 0, -1.0, 1.0) if order % 2 == 1 else np.ones_like(values)
    found = Components(values * signs, vectors * signs, order)
    first = found.largest_first()
    return Components(found.weights[first], found.vectors[:, first], order)


def simultaneous_diagonalization(
    tensor: Any, n_components: int, *, n_slices: int | None = None, n_sweeps: int = 50, rng: RngLike = None
) -> Components:
    """Return the orthogonal vectors that make many random slices T(I, I, θ) as diagonal as possible, all at once.

    This is Jacobi's method with the rotation angles of Cardoso and Souloumiac (1996). It works in the span of the
    strongest directions of all slices together. The paper cites it as the best of the methods that reduce tensors to
    matrices.

    Parameters
    ----------
    tensor : array or Oracle
        A symmetric tensor with orthogonal components.
    n_components : int
        The number k of components.
    n_slices : int, optional
        The number of random slices; by default 2k + 5.
    n_sweeps : int
        The largest number of sweeps over all pairs of coordinates.
    rng : None, int or numpy.random.Generator
        Draws the slices.

    References
    ----------
    Kuleshov, Chaganty and Liang, *Tensor Factorization via Matrix Factorization*, 2015, arXiv:1501.07320.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.reproduction.baselines import simultaneous_diagonalization
    >>> simultaneous_diagonalization(odeco.Components([2.0, 1.0], np.eye(3)[:, :2]), 2, rng=0).weights.round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    k = check_n_components(n_components, oracle.dimension)
    directions = as_generator(rng).standard_normal((n_slices or 2 * k + 5, oracle.dimension))
    slices = np.stack([oracle.slice(theta / np.linalg.norm(theta)) for theta in directions])
    basis = np.linalg.svd(np.concatenate(list(slices), axis=1), full_matrices=False)[0][:, :k]
    vectors = basis @ _joint_diagonalizer(basis.T @ slices @ basis, n_sweeps)
    return positive_components(oracle.value(vectors), vectors, oracle.order)


def _joint_diagonalizer(matrices: FloatArray, n_sweeps: int) -> FloatArray:
    """Return the rotation that minimises the sum of all squared off-diagonal entries, by sweeps of plane rotations."""
    matrices = matrices.copy()
    size = matrices.shape[1]
    rotation = np.eye(size)
    for _ in range(n_sweeps):
        largest = 0.0
        for p in range(size - 1):
            for q in range(p + 1, size):
                difference = matrices[:, p, p] - matrices[:, q, q]
                double = 2 * matrices[:, p, q]
                on, off = difference @ difference - double @ double, 2 * difference @ double
                angle = 0.25 * float(np.arctan2(off, on))
                largest = max(largest, abs(angle))
                c, s = np.cos(angle), np.sin(angle)
                turn = np.array([[c, -s], [s, c]])
                matrices[:, :, [p, q]] = matrices[:, :, [p, q]] @ turn
                matrices[:, [p, q], :] = turn.T @ matrices[:, [p, q], :]
                rotation[:, [p, q]] = rotation[:, [p, q]] @ turn
        if largest < 1e-14:
            break
    return rotation
