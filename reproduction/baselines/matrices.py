"""Methods that reduce a tensor to matrices: to slices or to its unfolding.

The paper's Appendix B takes the eigenvectors of one random slice; simultaneous diagonalisation
takes many slices at once (Kuleshov, Chaganty and Liang 2015). Tensor PCA is power iteration from
the strongest direction of the unfolding (Richard and Montanari 2014).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # it imports its submodules when they are used; importing sparse.linalg takes long

from odeco import Components
from odeco.tensors import DenseTensor, as_oracle
from reproduction.arguments import DataArray, FloatArray, RngLike, check_count


def random_slice(tensor: Any, n_components: int, *, rng: RngLike = None) -> Components:
    """Return the top eigenvectors of T(I, I, θ, …, θ) for one random unit vector θ.

    For orthogonal components the slice is Σ λᵢ ⟨vᵢ, θ⟩ᵖ⁻² vᵢ vᵢᵀ, so its eigenvectors are the vᵢ.
    The overlaps ⟨vᵢ, θ⟩ are about 1/√d, and two eigenvalues can lie close together. Both make the
    method fragile under noise.

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
    >>> from reproduction.baselines import random_slice
    >>> random_slice(odeco.Components([2.0, 1.0], np.eye(3)[:, :2]), 2, rng=0).weights.round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    k = check_count("n_components", n_components, 1, oracle.dimension)
    theta = np.random.default_rng(rng).standard_normal(oracle.dimension)
    eigenvalues, eigenvectors = np.linalg.eigh(oracle.slice(theta / np.linalg.norm(theta)))
    top = np.argsort(-np.abs(eigenvalues))[:k]
    return positive_components(
        oracle.value(eigenvectors[:, top]), eigenvectors[:, top], oracle.order
    )


def positive_components(values: FloatArray, vectors: FloatArray, order: int) -> Components:
    """Return components sorted by weight; at odd orders a vector's sign is turned so that its
    weight is positive.
    """
    signs = np.where(values < 0, -1.0, 1.0) if order % 2 == 1 else np.ones_like(values)
    found = Components(values * signs, vectors * signs, order)
    first = found.largest_first()
    return Components(found.weights[first], found.vectors[:, first], order)


def simultaneous_diagonalization(
    tensor: Any,
    n_components: int,
    *,
    n_slices: int | None = None,
    n_sweeps: int = 50,
    rng: RngLike = None,
) -> Components:
    """Return the orthogonal vectors that make many random slices T(I, I, θ) as diagonal as
    possible, all at once.

    This is Jacobi's method with the rotation angles of Cardoso and Souloumiac (1996). It works in
    the span of the strongest directions of all slices together. The paper cites it as the best of
    the methods that reduce tensors to matrices.

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
    Kuleshov, Chaganty and Liang, *Tensor Factorization via Matrix Factorization*, 2015,
    arXiv:1501.07320.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import simultaneous_diagonalization
    >>> simultaneous_diagonalization(
    ...     odeco.Components([2.0, 1.0], np.eye(3)[:, :2]), 2, rng=0
    ... ).weights.round(6)
    array([2., 1.])
    """
    oracle = as_oracle(tensor)
    k = check_count("n_components", n_components, 1, oracle.dimension)
    directions = np.random.default_rng(rng).standard_normal(
        (n_slices or 2 * k + 5, oracle.dimension)
    )
    slices = np.stack([oracle.slice(theta / np.linalg.norm(theta)) for theta in directions])
    basis = np.linalg.svd(np.concatenate(list(slices), axis=1), full_matrices=False)[0][:, :k]
    vectors = basis @ _joint_diagonalizer(basis.T @ slices @ basis, n_sweeps)
    return positive_components(oracle.value(vectors), vectors, oracle.order)


def _joint_diagonalizer(matrices: FloatArray, n_sweeps: int) -> FloatArray:
    """Return the rotation that minimises the sum of all squared off-diagonal entries, by sweeps of
    plane rotations.
    """
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


def tensor_pca(
    tensor: Any,
    n_components: int,
    *,
    n_iterations: int = 100,
    tol: float = 1e-12,
    rng: RngLike = None,
) -> Components:
    """Return components found one by one, each by power iteration from the first singular vector of
    the unfolding.

    The tensor, less what was found, is unfolded to a matrix with ⌊p/2⌋ of its axes as rows. For one
    strong component λ v⊗ᵖ its first left singular vector is near v⊗…⊗v, of which the same step,
    once more, makes v. There the power iteration u ← T(I, u, …, u), normalised, begins. There are
    no restarts.

    Parameters
    ----------
    tensor : array or DenseTensor
        A symmetric tensor given by its entries.
    n_components : int
        The number k of components.
    n_iterations : int
        The largest number of power steps for each component.
    tol : float
        The iteration stops once the relative residual is at most this.
    rng : None, int or numpy.random.Generator
        Draws the starts of the Lanczos iterations that find singular vectors.

    Notes
    -----
    Deviation from the paper, which has one component: each that is found is subtracted, and the
    same is done to the rest. Singular vectors that belong to equal singular values are mixtures of
    components; the power iteration then goes to one of these, which need not be the strongest.

    References
    ----------
    Richard and Montanari, *A statistical model for tensor PCA*, 2014, arXiv:1411.1076.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from reproduction.baselines import tensor_pca
    >>> tensor_pca(
    ...     odeco.Components([2.0, 1.0], np.eye(3)[:, :2]).to_dense(), 2, rng=0
    ... ).weights.round(6)
    array([2., 1.])
    """
    oracle = tensor if isinstance(tensor, DenseTensor) else DenseTensor(tensor)
    generator = np.random.default_rng(rng)
    k = check_count("n_components", n_components, 1, oracle.dimension)
    check_count("n_iterations", n_iterations)
    found = Components(np.empty(0), np.empty((oracle.dimension, 0)), oracle.order)
    for _ in range(k):
        start = _unfolded_direction(oracle.entries, found, generator)
        weight, vector = _power_iteration(oracle, found, start, n_iterations, tol)
        found = Components(
            np.append(found.weights, weight), np.append(found.vectors, vector, axis=1), oracle.order
        )
    return positive_components(found.weights, found.vectors, oracle.order)


def _unfolded_direction(
    entries: DataArray, found: Components, generator: np.random.Generator
) -> FloatArray:
    """Return the d x 1 direction that unfolding finds in a tensor less the components found."""
    n_axes = entries.ndim // 2
    matrix = entries.reshape(entries.shape[0] ** n_axes, -1)
    left, right = (_outer_powers(found.vectors, power) for power in (n_axes, entries.ndim - n_axes))
    direction = _first_left_vector(matrix, found.weights, left, right, generator)
    while n_axes > 1:  # a vector of d^n numbers is near v⊗…⊗v, itself a tensor to be unfolded
        rows = n_axes // 2
        direction = np.linalg.svd(
            direction.reshape(entries.shape[0] ** rows, -1), full_matrices=False
        )[0][:, 0]
        n_axes = rows
    return direction[:, None]


def _first_left_vector(
    matrix: DataArray,
    weights: FloatArray,
    left: FloatArray,
    right: FloatArray,
    generator: np.random.Generator,
) -> FloatArray:
    """Return the first left singular vector of M − Σ λᵢ lᵢ rᵢᵀ, by Lanczos iteration on it times
    its transpose.
    """

    def times(vector: FloatArray) -> FloatArray:
        # A vector of the matrix's own precision: NumPy would copy the matrix otherwise.
        across = matrix.T @ vector.astype(matrix.dtype) - right @ (weights * (left.T @ vector))
        return matrix @ across.astype(matrix.dtype) - left @ (weights * (right.T @ across))

    size = matrix.shape[0]
    start: FloatArray = generator.standard_normal((size,))
    if size == 1:
        return start
    squared = scipy.sparse.linalg.LinearOperator((size, size), matvec=times, dtype=np.float64)
    # The start of a power iteration needs few digits; singular values that lie close together need
    # not be separated.
    vectors: FloatArray = scipy.sparse.linalg.eigsh(squared, k=1, v0=start, tol=1e-6)[1]
    return vectors[:, 0]


def _outer_powers(vectors: FloatArray, power: int) -> FloatArray:
    """Return v⊗…⊗v, `power` times, as a column for every column v."""
    columns = vectors
    for _ in range(power - 1):
        rows = columns.shape[0] * vectors.shape[0]
        columns = (columns[:, None, :] * vectors[None, :, :]).reshape(rows, vectors.shape[1])
    return columns


def _power_iteration(
    oracle: DenseTensor, found: Components, vector: FloatArray, n_iterations: int, tol: float
) -> tuple[float, FloatArray]:
    """Return the weight and the vector at which the power iteration on a tensor less the components
    found ends.
    """
    image = oracle.image(vector) - found.image(vector)
    for _ in range(n_iterations):
        length = float(np.linalg.norm(image))
        weight = float(np.sum(vector * image))
        if length == 0 or np.linalg.norm(image - weight * vector) <= tol * abs(weight):
            break
        vector = image / length
        image = oracle.image(vector) - found.image(vector)
    return float(np.sum(vector * image)), vector
