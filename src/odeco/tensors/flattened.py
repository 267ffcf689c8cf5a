"""A symmetric tensor given by its flattening: a matrix between packed coordinates of half its order."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.tensors.components import Components
from odeco.tensors.coordinates import flattening_coordinates
from odeco.tensors.oracle import Oracle


@final
class FlattenedTensor(Oracle):
    """A symmetric tensor given by its flattening, whose products are matrix products.

    Parameters
    ----------
    flattening : array, C(d+h−1, h) x C(d+g−1, g) with h = ⌊p/2⌋ and g = ⌈p/2⌉
        Entry (I, J) is T[I, J] times the root of the number of arrangements of the sorted tuples I and J, in the order
        of `odeco.tensors.coordinates`. It must come from a symmetric tensor: T[I, J] depends on the indices only.
    dimension, order : int
        The d and p of the tensor.
    rounding : float
        The relative rounding error of the entries.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.tensors import FlattenedTensor
    >>> truth = odeco.Components([2.0, 1.0], np.eye(3)[:, :2], order=4)
    >>> FlattenedTensor(truth.flattening(), 3, 4).image(np.ones((3, 1))).ravel()
    array([2., 1., 0.])
    """

    def __init__(
        self, flattening: Any, dimension: int, order: int, *, rounding: float = float(np.finfo(np.float64).eps)
    ) -> None:
        self.matrix: FloatArray = np.asarray(flattening, dtype=np.float64)
        self.dimension, self.order, self.rounding = dimension, order, rounding
        self.rows, self.columns = flattening_coordinates(dimension, order)
        if self.matrix.shape != (self.rows.size, self.columns.size):
            raise ValueError(
                f"The flattening must have shape ({self.rows.size}, {self.columns.size}) for a tensor of dimension "
                f"{dimension} and order {order}. Got shape {self.matrix.shape}."
            )

    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(np.vdot(self.matrix, self.matrix))

    def flattening(self) -> FloatArray:
        """Return the matrix."""
        return self.matrix

    def unfolding_gram(self) -> FloatArray:
        """Return M Mᵀ for the d x dᵖ⁻¹ unfolding M."""
        with one_blas_thread():
            gram: FloatArray = self.rows.gram_of_unfolding(self.matrix)
        return gram

    def within(self, basis: FloatArray) -> FlattenedTensor:
        """Return the tensor in the coordinates of an orthonormal basis."""
        with one_blas_thread():
            rows = self.rows.within(basis)
            core = rows.T @ self.matrix @ (rows if self.columns is self.rows else self.columns.within(basis))
        return FlattenedTensor(core, basis.shape[1], self.order, rounding=self.rounding)

    def divided(self, scales: FloatArray) -> FlattenedTensor:
        """Return the tensor in coordinates that are divided by scales."""
        rows, columns = (each.powers(scales[:, None])[:, 0] / each.scales for each in (self.rows, self.columns))
        matrix = self.matrix / rows[:, None] / columns
        return FlattenedTensor(matrix, self.dimension, self.order, rounding=self.rounding)

    def minus(self, components: Components) -> FlattenedTensor:
        """Return the tensor minus components, as a flattening."""
        with one_blas_thread():
            left = self.matrix - components.flattening()
        return FlattenedTensor(left, self.dimension, self.order, rounding=self.rounding)

    def _image(self, block: FloatArray) -> FloatArray:
        return self.rows.contract(self._half(block), block)

    def _value(self, block: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("il,il->l", self.rows.powers(block), self._half(block))
        return values

    def _slice(self, direction: FloatArray) -> FloatArray:
        block = direction[:, None]
        if self.rows.degree == 1:
            return self.columns.slices(self.matrix.T @ block, block)[:, :, 0]
        return self.rows.slices(self._half(block), block)[:, :, 0]

    def _half(self, block: FloatArray) -> FloatArray:
        """Return T(I, …, I, u, …, u) in the coordinates of the rows."""
        with one_blas_thread():  # results must not depend on the number of threads
            half: FloatArray = self.matrix @ self.columns.powers(block)
        return half


@final
class FactoredTensor(Oracle):
    """A symmetric tensor of even order whose flattening has low rank: it is known by its eigenvectors.

    Parameters
    ----------
    vectors : array, C(d+h−1, h) x k with h = p/2
        Orthonormal eigenvectors of the flattening, in packed coordinates.
    values : array
        Its eigenvalues.
    dimension, order : int
        The d and p of the tensor.
    noise : array
        Other eigenvalues, which are noise: the scale for the errors of the vectors.
    """

    rounding = float(np.finfo(np.float64).eps)

    def __init__(
        self, vectors: FloatArray, values: FloatArray, dimension: int, order: int = 4, noise: Any = ()
    ) -> None:
        self.vectors, self.values, self.dimension, self.order = vectors, values, dimension, order
        self.noise: FloatArray = np.asarray(noise, np.float64)
        self.rows = flattening_coordinates(dimension, order)[0]

    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(self.values @ self.values)

    def __matmul__(self, packed: FloatArray) -> FloatArray:
        """Return the flattening times vectors in packed coordinates."""
        with one_blas_thread():  # results must not depend on the number of threads
            product: FloatArray = self.vectors @ (self.values[:, None] * (self.vectors.T @ packed))
        return product

    def _image(self, block: FloatArray) -> FloatArray:
        return self.rows.contract(self @ self.rows.powers(block), block)
