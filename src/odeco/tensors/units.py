"""Tensors of any size: computed in a unit that is a power of two, answered in the unit that they were given in.

Entries of 1e-200 have squares that double precision cannot hold, and so have their answers. `in_unit` gives whoever
decomposes a tensor the same tensor in a unit in which its entries are of ordinary size, and the exponent of the unit.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, final

import numpy as np

from odeco._util.scale import largest, put_back, times_power_of_two, unit_exponent
from odeco._util.types import DataArray, FloatArray
from odeco.tensors.components import Components
from odeco.tensors.oracle import Oracle, polarised_inside, slice_by_images


class EntryTensor(Oracle):
    """A tensor given by its entries, which it holds over a power of two if they are very small or very large.

    Attributes
    ----------
    exponent : int
        The exponent of that power: 0 at ordinary sizes, where the entries are not copied.
    """

    exponent: int = 0

    def _taken(self, entries: Any) -> DataArray:
        """Choose the unit, and return the entries in it."""
        # Squares of answers are added up, so entries must leave room for two factors and many terms.
        size = max(abs(float(entries.max())), abs(float(entries.min())))
        self.exponent = unit_exponent(size, 2, entries.dtype)
        taken: DataArray = times_power_of_two(entries, -self.exponent)
        return taken

    @final
    def squared_norm(self) -> float:
        """Return the sum of the squares of all entries."""
        return float(put_back(self._unit_squared_norm(), 2 * self.exponent, "squares of the entries"))

    @final
    def _image(self, block: FloatArray) -> FloatArray:
        return self._answered(self._unit_image(block), "entries of an image")

    @final
    def _slice(self, direction: FloatArray) -> FloatArray:
        return self._answered(self._unit_slice(direction), "entries of a slice")

    def _answered(self, answer: FloatArray, what: str) -> FloatArray:
        if self.exponent:
            put_back(largest(answer), self.exponent, what)
        in_own_unit: FloatArray = times_power_of_two(answer, self.exponent)
        return in_own_unit

    @final
    def _inside(self, basis: FloatArray) -> FloatArray:
        return self._answered(self._unit_inside(basis), "entries of a core")

    @final
    def unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the unfolding M, or None if that is not known."""
        known = self._unit_unfolding_gram()
        return None if known is None else put_back(known, 2 * self.exponent, "squares of the entries")

    def _unit_inside(self, basis: FloatArray) -> FloatArray:
        """Return T(Q, …, Q) for the entries in their unit."""
        return polarised_inside(self._unit_image, basis, self.order)

    def _unit_unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the entries in their unit, or None if that is not known."""
        return None

    @abstractmethod
    def _unit_image(self, block: FloatArray) -> FloatArray:
        """Answer for the entries in their unit."""

    def _unit_slice(self, direction: FloatArray) -> FloatArray:
        """Answer with a slice of the entries in their unit."""
        return slice_by_images(self._unit_image, direction, self.order)

    @abstractmethod
    def _unit_squared_norm(self) -> float:
        """Return the sum of the squares of all entries in their unit."""


@final
class InUnit(Oracle):
    """A tensor in a unit in which its answers are of ordinary size.

    Of a tensor that is known by its entries or components the unit is theirs; of any other it is chosen at the first
    answer.

    Attributes
    ----------
    exponent : int or None
        The exponent of the unit, once it is chosen.
    """

    def __init__(self, oracle: Oracle) -> None:
        self.exponent: int | None = oracle.exponent if isinstance(oracle, EntryTensor) else None
        if isinstance(oracle, Components):
            self.exponent = unit_exponent(largest(oracle.weights), 2, oracle.weights.dtype)
            if self.exponent:
                weights = times_power_of_two(oracle.weights, -self.exponent)
                oracle = Components(weights, oracle.vectors, oracle.order)
        self.oracle = oracle
        self.dimension, self.order = oracle.dimension, oracle.order
        self.exact, self.rounding = oracle.exact, oracle.rounding

    @property
    def parts(self) -> tuple[int, ...]:
        """Sizes of the pieces that a vector is made of."""
        return self.oracle.parts

    def put_back(self, found: Components) -> Components:
        """Return components of this tensor as components of the tensor in its own unit."""
        return Components(put_back(found.weights, self.exponent or 0, "weights"), found.vectors, found.order)

    def squared_norm(self) -> float | None:
        """Return the squared norm in the unit, or None if that is not known."""
        if isinstance(self.oracle, EntryTensor):
            return self.oracle._unit_squared_norm()
        known = self.oracle.squared_norm()
        if known is None or isinstance(self.oracle, Components) or not self.exponent:
            return known
        # Squares of very small or very large numbers are not known: they are 0 or infinite.
        return float(times_power_of_two(known, -2 * self.exponent)) if 0 < known < np.inf else None

    def unfolding_gram(self) -> FloatArray | None:
        """Return the Gram matrix of the unfolding in the unit, or None if that is not known."""
        if isinstance(self.oracle, EntryTensor):
            return self.oracle._unit_unfolding_gram()
        return self.oracle.unfolding_gram() if isinstance(self.oracle, Components) else None

    def _inside(self, basis: FloatArray) -> FloatArray:
        if isinstance(self.oracle, EntryTensor):
            return self.oracle._unit_inside(basis)
        return self._scaled(self.oracle.inside(basis))

    def _image(self, block: FloatArray) -> FloatArray:
        if isinstance(self.oracle, EntryTensor):
            return self.oracle._unit_image(block)
        return self._scaled(self.oracle.image(block))

    def _value(self, block: FloatArray) -> FloatArray:
        if isinstance(self.oracle, EntryTensor):
            return super()._value(block)
        return self._scaled(self.oracle.value(block))

    def _slice(self, direction: FloatArray) -> FloatArray:
        if isinstance(self.oracle, EntryTensor):
            return self.oracle._unit_slice(direction)
        return self._scaled(self.oracle.slice(direction))

    def _scaled(self, answer: FloatArray) -> FloatArray:
        if isinstance(self.oracle, Components):
            return answer
        if self.exponent is None:
            size = largest(answer)
            self.exponent = unit_exponent(size, 2, answer.dtype) if size else None
        scaled: FloatArray = times_power_of_two(answer, -(self.exponent or 0))
        return scaled
