"""Weights and unit vectors, which are the result of a decomposition. They are a tensor in CP form,
and so an oracle.

Measures of components: how well they match the true ones, and how evenly they use the coordinates.
CP tensors of TensorLy are read and made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

# it imports its submodules when they are used; importing optimize takes longer than importing odeco
import scipy

from odeco._util.arguments import MAX_ORDER, MINIMUM_ORDER, check_count, check_unmasked
from odeco._util.files import load_state, save_arrays
from odeco._util.state import State, array_field, unit_vectors
from odeco._util.types import FloatArray, IndexArray
from odeco.tensors.coordinates import flattening_coordinates
from odeco.tensors.oracle import Oracle

#: In this many times more dimensions than components, a d x d matrix would be far larger than they
#: are.
_MANY = 64


@dataclass(frozen=True, eq=False)
class Components(State, Oracle):
    """The tensor Σ λᵢ vᵢ ⊗ … ⊗ vᵢ, given by its weights λᵢ and unit vectors vᵢ.

    Parameters
    ----------
    weights : array of k numbers
        The λᵢ, in any order and of any sign.
    vectors : array, d x k
        The vᵢ, one in each column. A column that is not of unit length is normalised, and its
        weight is multiplied by the p-th power of its length.
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
                "`vectors` must have shape (d, k), one column for each of the k weights. Got "
                f"weights of shape {weights.shape} and vectors of shape {vectors.shape}."
            )
        if not (np.isfinite(weights).all() and np.isfinite(vectors).all()):
            raise ValueError(
                "Weights and vectors must be finite. Got NaN or infinity. Check how they were made."
            )
        lengths = np.linalg.norm(vectors, axis=0)
        if not lengths.all():
            raise ValueError(
                f"No vector may be zero. Got a zero column {int(np.argmin(lengths))}. Drop it and "
                "its weight."
            )
        if np.any(
            np.abs(lengths - 1) > 4 * np.finfo(np.float64).eps
        ):  # leave unit vectors untouched to the last bit
            vectors = vectors / lengths
            weights = weights * lengths**order
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
        """Return the indices that sort the weights, largest first; at even orders, largest in
        absolute value.
        """
        key = np.abs(self.weights) if self.order % 2 == 0 else self.weights
        return np.argsort(-key, kind="stable")

    def sorted_by_weight(self) -> Components:
        """Return the same components in the order of `largest_first`."""
        return self.take(self.largest_first())

    def positive(self) -> Components:
        """Return the same tensor without negative weights at odd orders, where −λ v⊗ᵖ = λ (−v)⊗ᵖ.

        >>> Components([-2.0], [[1.0], [0.0]], 3).positive().weights
        array([2.])
        """
        if self.order % 2 == 0:
            return self
        signs = np.where(self.weights < 0, -1.0, 1.0)
        return Components(signs * self.weights, signs * self.vectors, self.order)

    def take(self, indices: Any) -> Components:
        """Return some of the components, in the order of the indices."""
        return Components(self.weights[indices], self.vectors[:, indices], self.order)

    def joined(self, others: Components) -> Components:
        """Return these components and others."""
        weights = np.concatenate([self.weights, others.weights])
        vectors = np.hstack([self.vectors, others.vectors])
        return Components(weights, vectors, self.order)

    def to_dense(self) -> FloatArray:
        """Return all dᵖ entries as an array, which is possible for small tensors only."""
        return sum_of_products(self.weights, [self.vectors] * self.order)

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

    def to_tensorly(self) -> Any:
        """Return a `tensorly.cp_tensor.CPTensor` with the vectors along every axis, for TensorLy
        and tlviz.
        """
        return as_tensorly(self.weights, [self.vectors] * self.order)

    @classmethod
    def from_tensorly(cls, tensor: Any, *, tol: float = 1e-6) -> Self:
        """Read a CP tensor of TensorLy: `to_tensorly` returns it, and so does `parafac`.

        The vectors of a term must agree along all axes, up to sign and length, within a distance of
        `tol` between unit vectors. Those along the first axis are taken.
        """
        return cls._from_factors(*read_tensorly(tensor), tol)

    @classmethod
    def _from_factors(cls, weights: FloatArray, factors: list[FloatArray], tol: float) -> Self:
        vectors, signs = common_factor(factors, tol)
        return cls(weights * signs, vectors, len(factors))

    def _image(self, block: FloatArray) -> FloatArray:
        overlaps: FloatArray = self.vectors.T @ block
        return self.vectors @ (self.weights[:, None] * overlaps ** (self.order - 1))

    def unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the unfolding M, V (λλᵀ ∘ Gᵖ⁻¹) Vᵀ with the Gram matrix G of the vectors;
        None if d ≫ k.
        """
        if self.dimension > _MANY * self.n_components:
            return None
        gram: FloatArray = self.vectors.T @ self.vectors
        return (
            self.vectors
            @ (np.outer(self.weights, self.weights) * gram ** (self.order - 1))
            @ self.vectors.T
        )

    def flattening(self) -> FloatArray:
        """Return Σ λᵢ pᵢ qᵢᵀ with the packed powers p and q of the vectors."""
        rows, columns = flattening_coordinates(self.dimension, self.order)
        powers = rows.powers(self.vectors)
        right = powers if columns is rows else columns.powers(self.vectors)
        return (powers * self.weights) @ right.T

    def _inside(self, basis: FloatArray) -> FloatArray:
        return sum_of_products(self.weights, [basis.T @ self.vectors] * self.order)

    def _value(self, block: FloatArray) -> FloatArray:
        overlaps: FloatArray = self.vectors.T @ block
        return self.weights @ overlaps**self.order

    def _slice(self, direction: FloatArray) -> FloatArray:
        along = self.weights * (direction @ self.vectors) ** (self.order - 2)
        matrix: FloatArray = (self.vectors * along) @ self.vectors.T
        return (matrix + matrix.T) / 2


def sum_of_products(weights: FloatArray, factors: Sequence[FloatArray]) -> FloatArray:
    """Return Σ λᵢ aᵢ ⊗ bᵢ ⊗ … as an array, for a matrix of columns along each axis."""
    entries = factors[0] * weights
    for factor in factors[1:]:
        entries = entries[..., None, :] * factor
    total: FloatArray = np.sum(entries, axis=-1)
    return total


def no_components(dimension: int, order: int) -> Components:
    """Return no components of vectors of d numbers: the zero tensor."""
    return Components(np.empty(0), np.empty((dimension, 0)), order)


class HasComponents(Protocol):
    """Anything with weights and vectors: `Components` and every result."""

    @property
    def weights(self) -> FloatArray:
        """The k weights."""

    @property
    def vectors(self) -> FloatArray:
        """The k unit vectors, one in each column."""

    @property
    def order(self) -> int:
        """The order of the tensor they belong to."""


class HasFactors(Protocol):
    """Anything with weights and a matrix for each axis: asymmetric results, and CP tensors of
    TensorLy.
    """

    @property
    def weights(self) -> Any:
        """The k weights."""

    @property
    def factors(self) -> Any:
        """One matrix for each axis, with k columns of any length."""


@dataclass(frozen=True, eq=False)
class Match:
    """Which found component stands for which true one, and how well.

    Attributes
    ----------
    found_index : array of integers
        For each true component, the index of the one that was found, or −1 if there is none.
    cosines : array
        For each true component, its inner product with the one that was found, in [0, 1]; 0 if
        there is none. For terms a ⊗ b ⊗ … it is the product of the cosines along all axes.
    weight_errors : array
        For each true component, the weight that was found minus the true weight. A missing weight
        counts as 0.
    factor_match_score : float
        The mean over components of the product of the cosines along all axes, times one minus the
        relative difference of the weights, |λ − λ'| / max(|λ|, |λ'|): 1 for equal decompositions. A
        component without a partner counts as 0, on either side (Acar, Dunlavy, Kolda and Mørup
        2011).
    """

    found_index: IndexArray
    cosines: FloatArray
    weight_errors: FloatArray
    factor_match_score: float

    @property
    def angles(self) -> FloatArray:
        """Angles between found and true vectors, in radians."""
        return np.arccos(np.clip(self.cosines, -1, 1))


def shown_angle(error: float) -> str:
    """Return the standard error of an angle, in radians, as text.

    No two directions are more than π/2 apart, so a standard error of that size or more means that
    the vector is not determined.

    Examples
    --------
    >>> from odeco.tensors.components import shown_angle
    >>> shown_angle(0.0123), shown_angle(1.8e8)
    ('0.012', 'not determined')
    """
    if error < math.pi / 2:
        return f"{error:.2g}"
    return "not determined"


def match(found: HasComponents | HasFactors, truth: HasComponents | HasFactors) -> Match:
    """Pair found components with true ones, or those of two fits, so that the sum of their cosines
    is largest.

    Both may be symmetric or asymmetric: `Components`, any result of odeco, and CP tensors of
    TensorLy. At odd orders (λ, v) and (−λ, −v) are the same component; at even orders (λ, v) and
    (λ, −v) are; of a term λ a ⊗ b ⊗ … any two signs may change. So a found component is given the
    sign of the true one before cosines and weights are compared.

    Parameters
    ----------
    found, truth : Components, a result, or a CP tensor of TensorLy
        The components to pair; those of `found` are given the signs of `truth`.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> truth = odeco.Components([2.0, 1.0], np.eye(3)[:, :2])
    >>> found = odeco.Components([1.1, -2.0], np.eye(3)[:, [1, 0]] * [1, -1])
    >>> result = odeco.match(found, truth)
    >>> result.found_index, result.cosines, result.weight_errors.round(6)
    (array([1, 0]), array([1., 1.]), array([0. , 0.1]))
    >>> round(result.factor_match_score, 3)
    0.955
    """
    if hasattr(found, "factors") or hasattr(truth, "factors"):
        found_weights, found_factors = _as_terms(found)
        true_weights, true_factors = _as_terms(truth)
        sizes, true_sizes = (
            [len(factor) for factor in factors] for factors in (found_factors, true_factors)
        )
        if sizes != true_sizes:
            raise ValueError(
                f"Found and true terms must share their shape. Got {sizes} and {true_sizes}."
            )
        pairs = zip(true_factors, found_factors, strict=True)
        inner: FloatArray = np.prod([true.T @ other for true, other in pairs], axis=0)
        products = inner
        signs = np.sign(inner)
    else:
        if found.order != truth.order or found.vectors.shape[0] != truth.vectors.shape[0]:
            raise ValueError(
                "Found and true components must share dimension and order. Got dimension "
                f"{found.vectors.shape[0]}, order {found.order} and dimension "
                f"{truth.vectors.shape[0]}, order {truth.order}."
            )
        found_weights = found.weights
        true_weights = truth.weights
        inner = truth.vectors.T @ found.vectors
        products = inner**truth.order
        signs = np.sign(inner) if truth.order % 2 else np.ones_like(inner)
    rows, columns = scipy.optimize.linear_sum_assignment(np.abs(inner), maximize=True)
    found_index = np.full(true_weights.size, -1)
    cosines = np.zeros(true_weights.size)
    weights = np.zeros(true_weights.size)
    found_index[rows] = columns
    cosines[rows] = np.abs(inner[rows, columns])
    weights[rows] = found_weights[columns] * signs[rows, columns]
    errors = weights - true_weights
    larger = np.maximum(
        np.maximum(np.abs(weights), np.abs(true_weights)), np.finfo(np.float64).tiny
    )[rows]
    alike = np.maximum(1 - np.abs(errors[rows]) / larger, 0.0)
    n_components = max(found_weights.size, true_weights.size, 1)
    return Match(
        found_index, cosines, errors, float(np.abs(products[rows, columns]) @ alike) / n_components
    )


def _as_terms(given: HasComponents | HasFactors) -> tuple[FloatArray, list[FloatArray]]:
    """Return weights and a matrix of unit vectors for each axis."""
    if hasattr(given, "factors"):
        return unit_factors(given.weights, given.factors)
    return given.weights, [given.vectors] * given.order


def incoherence(components: Components) -> float:
    """Return μ₀ = (d/k) maxᵢ ‖Vᵀeᵢ‖²: 1 if the components are spread evenly over coordinates, d/k
    at worst.

    The paper defines it in Assumption 4.1. The noise of its private algorithm is proportional to
    it.

    Parameters
    ----------
    components : Components
        The components.

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


def as_tensorly(weights: FloatArray, factors: Sequence[FloatArray]) -> Any:
    """Return a `tensorly.cp_tensor.CPTensor`, with arrays of the backend that TensorLy is set
    to.
    """
    import tensorly

    arrays = [tensorly.tensor(np.array(factor)) for factor in factors]
    return tensorly.cp_tensor.CPTensor((tensorly.tensor(np.array(weights)), arrays))


def read_tensorly(tensor: Any) -> tuple[FloatArray, list[FloatArray]]:
    """Return the weights and unit vectors of what TensorLy calls a CP tensor: weights, or None, and
    factors.
    """
    import tensorly

    weights, factors = tensor
    arrays = [tensorly.to_numpy(factor) for factor in factors]
    return unit_factors(None if weights is None else tensorly.to_numpy(weights), arrays)


def unit_factors(weights: Any, factors: Sequence[Any]) -> tuple[FloatArray, list[FloatArray]]:
    """Return factors with unit columns, and weights multiplied by the lengths; weights of None are
    ones.
    """
    matrices = [np.array(factor, dtype=np.float64) for factor in factors]
    widths = {matrix.shape[1] if matrix.ndim == 2 else -1 for matrix in matrices}
    if (
        len(widths) != 1
        or -1 in widths
        or (weights is not None and np.shape(weights) != tuple(widths))
    ):
        raise ValueError(
            "Factors must be matrices with one column for each weight. Got factors of shapes "
            f"{[matrix.shape for matrix in matrices]} and weights of shape {np.shape(weights)}."
        )
    total = np.ones(widths.pop()) if weights is None else np.array(weights, dtype=np.float64)
    for axis, matrix in enumerate(matrices):
        lengths = np.linalg.norm(matrix, axis=0)
        if not (np.isfinite(lengths).all() and lengths.all()):
            raise ValueError(
                "Columns of factors must be finite and not zero. Got "
                f"{matrix[:, np.argmin(lengths)]} along axis {axis}. Drop the terms that are zero."
            )
        if np.any(
            np.abs(lengths - 1) > 4 * np.finfo(np.float64).eps
        ):  # leave unit vectors untouched to the last bit
            matrices[axis] = matrix / lengths
            total = total * lengths
    return total, matrices


def common_factor(factors: Sequence[FloatArray], tol: float) -> tuple[FloatArray, FloatArray]:
    """Return the one matrix that all factors are, and the signs that make them so; raise if they
    differ.
    """
    first = factors[0]
    signs = np.ones(factors[0].shape[1])
    for axis, factor in enumerate(factors[1:], start=1):
        if factor.shape != first.shape:
            raise ValueError(
                _not_symmetric(f"Axes 0 and {axis} have {len(first)} and {len(factor)} entries.")
            )
        flips = np.where(np.sum(first * factor, axis=0) < 0, -1.0, 1.0)
        distances = np.linalg.norm(first - factor * flips, axis=0)
        if np.any(distances > tol):
            worst = int(np.argmax(distances))
            raise ValueError(
                _not_symmetric(
                    f"The vectors of term {worst} along axes 0 and {axis} differ by "
                    f"{distances[worst]:.1e}."
                )
            )
        signs = signs * flips
    return first, signs


def _not_symmetric(what: str) -> str:
    return (
        f"The terms must have the same vector along every axis. {what} Read it with "
        "AsymmetricDecomposition, or raise tol if that is accurate enough."
    )
