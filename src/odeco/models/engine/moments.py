"""Moments that several models start from: mean and covariance of rows, and three views of a hidden
class.

**Three views** are parts of a record that are independent given its hidden class.

Let E[x_a | h] = A_h, E[x_b | h] = B_h and E[x_c | h] = C_h, with k classes of probability w_h. The
pairs of views are P_ac = Σ w_h A_h C_hᵀ and so on. In coordinates of k directions each, R_a = P_bc
P_ac⁻¹ takes A_h to B_h, and R_c = P_ba P_ca⁻¹ takes C_h to B_h. So E[(R_a x_a)(R_c x_c)ᵀ] = Σ w_h
B_h B_hᵀ is symmetric; it whitens, and the third moment of R_a x_a, x_b and R_c x_c becomes a core
with orthonormal components b_h of weights 1/√w_h (Anandkumar et al., Tensor decompositions for
learning latent variable models, 2014, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.small import decompose_whitened
from odeco.models.engine.rows import count_rows, mean_of, split, times
from odeco.tensors.dense import symmetrize


@dataclass(frozen=True, eq=False)
class SecondMoment:
    """The mean of rows, and their scatter matrix Σ (x − mean)(x − mean)ᵀ.

    Attributes
    ----------
    mean : array, d
        The mean.
    scatter : array, d x d
        The scatter matrix; of one row, as which a known distribution counts, it is the covariance.
    n_rows : float
        Number of rows, each counted by its weight.
    """

    mean: FloatArray
    scatter: FloatArray
    n_rows: float = 1

    @classmethod
    def of_block(cls, block: Any) -> SecondMoment:
        """Return the moment of one block of rows."""
        mean, (rows, weights) = mean_of(block), split(block)
        centred = times(rows - mean, None if weights is None else np.sqrt(weights))
        return cls(mean, centred.T @ centred, count_rows(block))

    def __add__(self, other: SecondMoment) -> SecondMoment:
        n_rows, offset = self.n_rows + other.n_rows, other.mean - self.mean
        mean = self.mean + offset * (other.n_rows / n_rows)
        between = np.outer(offset, offset) * (self.n_rows * other.n_rows / n_rows)
        return SecondMoment(mean, self.scatter + other.scatter + between, n_rows)

    @property
    def covariance(self) -> FloatArray:
        """The covariance, divided by the number of rows."""
        return np.asarray(self.scatter / self.n_rows)

    @property
    def variance(self) -> float:
        """The mean variance of a feature."""
        return float(np.trace(self.covariance)) / len(self.mean)


#: By default, a direction of the second moment is amplified no more than if it had this share of
#: the strongest.
_LEAST_SHARE = 1e-3

#: Singular values below this share of the largest are not inverted.
_LEAST_INVERTED = 1e-6

#: Of matrices with more rows or columns than this, only the leading singular vectors are computed.
_MOST_DENSE = 1500


@dataclass(frozen=True, eq=False)
class ThreeViews:
    """What three views say about the classes.

    Attributes
    ----------
    weights : array
        The probability of each class, at least a tenth of the uniform.
    detectors : three arrays, each features of the view x k
        ⟨detector of class h, E[x | g]⟩ is 1/√w_h for g = h and 0 otherwise. So the mean of one
        view, weighted by the product of the detectors of class h on the other two, is E[x | h].
    explained : float
        Share of the whitened third moment that the classes explain.
    """

    weights: FloatArray
    detectors: tuple[FloatArray, FloatArray, FloatArray]
    explained: float


def classes_of_three_views(
    pairs: tuple[Any, Any, Any],
    frequencies: tuple[FloatArray, FloatArray, FloatArray],
    triples: Callable[[FloatArray, FloatArray, FloatArray], FloatArray],
    n_components: int,
    *,
    seed: int,
    n_starts: int = 3,
    least_share: float = _LEAST_SHARE,
) -> ThreeViews:
    """Find the classes that make three views independent.

    Parameters
    ----------
    pairs : three arrays or sparse arrays
        The means of x_a x_bᵀ, x_b x_cᵀ and x_a x_cᵀ.
    frequencies : three arrays
        The size of each feature of a view, above zero. Features are divided by the roots of these
        before directions are chosen: among plain counts, frequent ones would decide alone.
    triples : callable
        Takes three matrices A, B, C with k columns each, and returns the mean of (Aᵀx_a) ⊗ (Bᵀx_b)
        ⊗ (Cᵀx_c), a k x k x k array.
    n_components : int
        Number k of classes; at most the number of features of each view.
    seed : int
        Seed of the starts of the decomposition.
    n_starts : int
        Number of starts.
    least_share : float
        A direction of the second moment is amplified no more than if it had this share of the
        strongest: the more noise in the weak ones, the larger it should be.
    """
    k = n_components
    ab, bc, ac = pairs
    scales = tuple(1 / np.sqrt(each) for each in frequencies)
    with one_blas_thread():
        left, right = _leading(_scaled(ac, scales[0], scales[2]), k)
        middle = _leading(
            _stacked(_scaled(ab.T, scales[1], scales[0]), _scaled(bc, scales[1], scales[2])), k
        )[0]
        basis_a, basis_b, basis_c = (
            left * scales[0][:, None],
            middle * scales[1][:, None],
            right * scales[2][:, None],
        )
        inner_ac, inner_bc, inner_ab = (
            basis_a.T @ (ac @ basis_c),
            basis_b.T @ (bc @ basis_c),
            basis_a.T @ (ab @ basis_b),
        )
        to_b_from_a = inner_bc @ np.linalg.pinv(inner_ac, rcond=_LEAST_INVERTED)
        to_b_from_c = inner_ab.T @ np.linalg.pinv(inner_ac.T, rcond=_LEAST_INVERTED)
        second = to_b_from_a @ inner_ac @ to_b_from_c.T
        values, vectors = np.linalg.eigh((second + second.T) / 2)
        # Of noise alone, the strongest direction may be negative: it must not be amplified without
        # bound.
        strongest = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
        whiten = vectors / np.sqrt(np.maximum(values, least_share * strongest))
    maps = (
        basis_a @ (to_b_from_a.T @ whiten),
        basis_b @ whiten,
        basis_c @ (to_b_from_c.T @ whiten),
    )
    core = symmetrize(triples(*maps)).astype(np.float64, copy=False)
    found = decompose_whitened(core, seed=seed, n_starts=n_starts)
    vectors = _completed(found.vectors, k)
    strengths = np.append(found.weights, np.full(k - found.weights.size, np.inf))
    weights = np.maximum(1 / np.maximum(strengths, 1.0) ** 2, 0.1 / k)
    return ThreeViews(
        weights / weights.sum(),
        (maps[0] @ vectors, maps[1] @ vectors, maps[2] @ vectors),
        found.explained,
    )


def _scaled(matrix: Any, rows: FloatArray, columns: FloatArray) -> Any:
    """Return a matrix with its rows and columns multiplied, dense as dense and sparse as sparse."""
    if hasattr(matrix, "multiply"):
        return matrix.multiply(rows[:, None]).multiply(columns[None, :]).tocsr()
    return rows[:, None] * matrix * columns[None, :]


def _stacked(first: Any, second: Any) -> Any:
    """Return two matrices side by side."""
    if hasattr(first, "multiply"):
        return sparse.hstack([first, second], format="csr")
    return np.hstack([first, second])


def _leading(matrix: Any, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the k leading left and right singular vectors of a matrix, as columns."""
    is_sparse = hasattr(matrix, "multiply")
    if max(matrix.shape) <= _MOST_DENSE or k >= min(matrix.shape) - 1:
        left, _, right = np.linalg.svd(
            matrix.toarray() if is_sparse else matrix, full_matrices=False
        )
        return left[:, :k], right[:k].T
    left, values, right = sparse_linalg.svds(matrix, k, v0=np.ones(min(matrix.shape)))
    order = np.argsort(-values)
    return left[:, order], right[order].T


def _completed(vectors: FloatArray, k: int) -> FloatArray:
    """Return orthonormal columns, completed to k if a core has fewer components."""
    complement = np.linalg.svd(vectors, full_matrices=True)[0][:, vectors.shape[1] :]
    return np.hstack([vectors, complement])[:, :k]
