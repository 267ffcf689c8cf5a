"""Weights and unit vectors, which are the result of a decomposition. They are a tensor in CP form, and so an oracle."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, check_count, check_unmasked
from odeco._util.files import load_state, save_arrays
from odeco._util.schema import unit_vectors
from odeco._util.state import State, array_field
from odeco._util.types import FloatArray, IndexArray
from odeco.tensors.oracle import Oracle

#: In this many times more dimensions than components, a d x d matrix would be far larger than they are.
_MANY = 64


@dataclass(frozen=True, eq=False)
class Components(State, Oracle):
    """The tensor Σ λᵢ vᵢ ⊗ … ⊗ vᵢ, given by its weights λᵢ and unit vectors vᵢ.

    Parameters
    ----------
    weights : array of k numbers
        The λᵢ, in any order and of any sign.
    vectors : array, d x k
        The vᵢ, one in each column. A column that is not of unit length is normalised, and its weight is multiplied by
        the p-th power of its length.
    order : int
        The number p of factors vᵢ in each term.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco import Components
    >>> tensor = Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> tensor.image(np.ones((3, 1))).ravel()
    array([2., 1., 0.])
    """

    weights: FloatArray = array_field("k")
    vectors: FloatArray = array_field("d", "k", rule=unit_vectors("d", "k"))
    order: int = array_field(kind="i", low=MINIMUM_ORDER, high=MAX_ORDER, default=3)

    def __init__(self, weights: Any, vectors: Any, order: int = 3) -> None:
        check_unmasked(weights, "array `weights`")
        check_unmasked(vectors, "array `vectors`")
        weights = np.array(weights, dtype=np.float64)
        vectors = np.array(vectors, dtype=np.float64)
        order = check_count("order", order, MINIMUM_ORDER)
        if vectors.ndim != 2 or weights.shape != vectors.shape[1:] or vectors.shape[0] == 0:
            raise ValueError(
                "`vectors` must have shape (d, k), one column for each of the k weights. "
                f"Got weights of shape {weights.shape} and vectors of shape {vectors.shape}."
            )
        if not (np.isfinite(weights).all() and np.isfinite(vectors).all()):
            raise ValueError("Weights and vectors must be finite. Got NaN or infinity. Check how they were made.")
        lengths = np.linalg.norm(vectors, axis=0)
        if not lengths.all():
            raise ValueError(
                f"No vector may be zero. Got a zero column {int(np.argmin(lengths))}. Drop it and its weight."
            )
        if np.any(np.abs(lengths - 1) > 4 * np.finfo(np.float64).eps):  # leave unit vectors untouched to the last bit
            vectors, weights = vectors / lengths, weights * lengths**order
        weights.flags.writeable = vectors.flags.writeable = False
        for name, attribute in (("weights", weights), ("vectors", vectors), ("order", order)):
            object.__setattr__(self, name, attribute)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """Size d of every axis."""
        return int(self.vectors.shape[0])

    @property
    def n_components(self) -> int:
        """Number k of terms."""
        return int(self.vectors.shape[1])

    def largest_first(self) -> IndexArray:
        """Return the indices that sort the weights, largest first; at even orders, largest in absolute value."""
        key = np.abs(self.weights) if self.order % 2 == 0 else self.weights
        return np.argsort(-key, kind="stable")

    def sorted_by_weight(self) -> Components:
        """Return the same components in the order of `largest_first`."""
        first = self.largest_first()
        return Components(self.weights[first], self.vectors[:, first], self.order)

    def to_dense(self) -> FloatArray:
        """Return all dᵖ entries as an array, which is possible for small tensors only."""
        entries = self.vectors * self.weights
        for _ in range(self.order - 1):
            entries = entries[..., None, :] * self.vectors
        total: FloatArray = np.sum(entries, axis=-1)
        return total

    def squared_norm(self) -> float:
        """Return Σᵢⱼ λᵢ λⱼ ⟨vᵢ, vⱼ⟩ᵖ, the sum of the squares of all entries."""
        gram: FloatArray = self.vectors.T @ self.vectors
        return float(self.weights @ gram**self.order @ self.weights)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights, vectors and order to an ``.npz`` file, atomically and without pickle."""
        save_arrays(path, "components", {}, self.to_arrays(""))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        return load_state(path, "components", cls)

    def _image(self, block: FloatArray) -> FloatArray:
        overlaps: FloatArray = self.vectors.T @ block
        return self.vectors @ (self.weights[:, None] * overlaps ** (self.order - 1))

    def unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the unfolding M, V (λλᵀ ∘ Gᵖ⁻¹) Vᵀ with the Gram matrix G of the vectors; None if d ≫ k."""
        if self.dimension > _MANY * self.n_components:
            return None
        gram: FloatArray = self.vectors.T @ self.vectors
        return self.vectors @ (np.outer(self.weights, self.weights) * gram ** (self.order - 1)) @ self.vectors.T

    def _inside(self, basis: FloatArray) -> FloatArray:
        inside: FloatArray = basis.T @ self.vectors
        entries = inside * self.weights
        for _ in range(self.order - 1):
            entries = entries[..., None, :] * inside
        core: FloatArray = np.sum(entries, axis=-1)
        return core

    def _value(self, block: FloatArray) -> FloatArray:
        overlaps: FloatArray = self.vectors.T @ block
        return self.weights @ overlaps**self.order

    def _slice(self, direction: FloatArray) -> FloatArray:
        along = self.weights * (direction @ self.vectors) ** (self.order - 2)
        matrix: FloatArray = (self.vectors * along) @ self.vectors.T
        return (matrix + matrix.T) / 2
