"""CP tensors of other libraries: weights and factor matrices as TensorLy and pyttb hold them, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odeco._util.types import FloatArray


def as_tensorly(weights: FloatArray, factors: Sequence[FloatArray]) -> Any:
    """Return a `tensorly.cp_tensor.CPTensor`, with arrays of the backend that TensorLy is set to."""
    import tensorly

    arrays = [tensorly.tensor(np.array(factor)) for factor in factors]
    return tensorly.cp_tensor.CPTensor((tensorly.tensor(np.array(weights)), arrays))


def as_pyttb(weights: FloatArray, factors: Sequence[FloatArray]) -> Any:
    """Return a `pyttb.ktensor`."""
    from pyttb.ktensor import ktensor

    return ktensor([np.array(factor) for factor in factors], np.array(weights))


def read_tensorly(tensor: Any) -> tuple[FloatArray, list[FloatArray]]:
    """Return the weights and unit vectors of what TensorLy calls a CP tensor: weights, or None, and factors."""
    import tensorly

    weights, factors = tensor
    arrays = [tensorly.to_numpy(factor) for factor in factors]
    return unit_factors(None if weights is None else tensorly.to_numpy(weights), arrays)


def read_pyttb(tensor: Any) -> tuple[FloatArray, list[FloatArray]]:
    """Return the weights and unit vectors of a `pyttb.ktensor`."""
    return unit_factors(tensor.weights, tensor.factor_matrices)


def unit_factors(weights: Any, factors: Sequence[Any]) -> tuple[FloatArray, list[FloatArray]]:
    """Return factors with unit columns, and weights multiplied by the lengths; weights of None are ones."""
    matrices = [np.array(factor, dtype=np.float64) for factor in factors]
    widths = {matrix.shape[1] if matrix.ndim == 2 else -1 for matrix in matrices}
    if len(widths) != 1 or -1 in widths or (weights is not None and np.shape(weights) != tuple(widths)):
        raise ValueError(
            "Factors must be matrices with one column for each weight. "
            f"Got factors of shapes {[matrix.shape for matrix in matrices]} and weights of shape {np.shape(weights)}."
        )
    total = np.ones(widths.pop()) if weights is None else np.array(weights, dtype=np.float64)
    for axis, matrix in enumerate(matrices):
        lengths = np.linalg.norm(matrix, axis=0)
        if not (np.isfinite(lengths).all() and lengths.all()):
            raise ValueError(
                f"Columns of factors must be finite and not zero. Got {matrix[:, np.argmin(lengths)]} along axis "
                f"{axis}. Drop the terms that are zero."
            )
        if np.any(np.abs(lengths - 1) > 4 * np.finfo(np.float64).eps):  # leave unit vectors untouched to the last bit
            matrices[axis], total = matrix / lengths, total * lengths
    return total, matrices


def common_factor(factors: Sequence[FloatArray], tol: float) -> tuple[FloatArray, FloatArray]:
    """Return the one matrix that all factors are, and the signs that make them so; raise if they differ."""
    first, signs = factors[0], np.ones(factors[0].shape[1])
    for axis, factor in enumerate(factors[1:], start=1):
        if factor.shape != first.shape:
            raise ValueError(_not_symmetric(f"Axes 0 and {axis} have {len(first)} and {len(factor)} entries."))
        flips = np.where(np.sum(first * factor, axis=0) < 0, -1.0, 1.0)
        distances = np.linalg.norm(first - factor * flips, axis=0)
        if np.any(distances > tol):
            worst = int(np.argmax(distances))
            raise ValueError(
                _not_symmetric(f"The vectors of term {worst} along axes 0 and {axis} differ by {distances[worst]:.1e}.")
            )
        signs = signs * flips
    return first, signs


def _not_symmetric(what: str) -> str:
    return (
        f"The terms must have the same vector along every axis. {what} "
        "Read it with AsymmetricDecomposition, or raise tol if that is accurate enough."
    )
