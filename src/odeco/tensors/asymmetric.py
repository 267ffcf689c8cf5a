"""An asymmetric tensor as a symmetric one of dimension d₁ + d₂ + …, of which no entry is formed."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from odeco._util.threads import map_blocks
from odeco._util.types import DataArray, FloatArray
from odeco.tensors.entries import EntryTensor, as_entries

#: Numbers in the intermediate products of one block of leading indices.
_BLOCK_SIZE = 2**19


@final
class AsymmetricTensor(EntryTensor):
    """The symmetric embedding of a d₁ x d₂ x … x dₚ array T.

    Its value at u = (x, y, …) is p! T(x, y, …), and the part of its image that belongs to x is (p−1)! T(I, y, …). A
    term λ a ⊗ b ⊗ … of T makes (a, b, …)/√p an eigenvector of the embedding, with the eigenvalue λ (p−1)! p^(1−p/2).
    Other signs of a, b, … give 2ᵖ⁻¹ − 1 more eigenvectors, up to a common sign, whose eigenvalues have the same
    absolute value (Ragnarsson and Van Loan 2013).

    Parameters
    ----------
    entries : array, d₁ x d₂ x … x dₚ
        The array, of float32, float64 or integers, with p of 3 or more.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.tensors import AsymmetricTensor
    >>> tensor = AsymmetricTensor(np.ones((2, 3, 4)))
    >>> tensor.dimension, tensor.parts
    (9, (2, 3, 4))
    """

    def __init__(self, entries: Any) -> None:
        self.entries: DataArray = np.ascontiguousarray(as_entries(entries, equal_sizes=False))
        self._scaled = self._scale(self.entries)
        self.order, self.dimension = self.entries.ndim, sum(self.entries.shape)
        self.rounding = float(np.finfo(self.entries.dtype).eps)

    @property
    def parts(self) -> tuple[int, ...]:
        """The sizes d₁, d₂, … of the parts of a vector."""
        return self.entries.shape

    def _unit_squared_norm(self) -> float:
        """Return p! times the sum of the squares of the entries, because the embedding holds each entry p! times."""
        squares = sum(np.sum(np.square(part, dtype=np.float64)) for part in self._scaled)
        return math.factorial(self.order) * float(squares)

    def split(self, vectors: FloatArray) -> tuple[FloatArray, ...]:
        """Return the unit vectors a, b, … that the columns (a, b, …)/√p of `vectors` are made of."""
        pieces = np.split(vectors, np.cumsum(self.parts)[:-1])
        return tuple(piece / np.linalg.norm(piece, axis=0) for piece in pieces)

    def term_weights(self, eigenvalues: FloatArray) -> FloatArray:
        """Return the weights λ of the terms of T whose embeddings have the given eigenvalues."""
        factor: float = self.order ** (self.order / 2 - 1) / math.factorial(self.order - 1)
        return eigenvalues * factor

    def _unit_image(self, block: FloatArray) -> FloatArray:
        n_columns = block.shape[1]
        parts = [piece.astype(self.entries.dtype) for piece in np.split(block, np.cumsum(self.parts)[:-1])]
        row_size = math.prod(self.parts[1:-1]) * n_columns
        height = max(1, _BLOCK_SIZE // max(1, row_size))
        blocks = [slice(start, start + height) for start in range(0, self.parts[0], height)]
        total = [np.zeros((size, n_columns)) for size in self.parts]
        images = map_blocks(
            lambda rows: _leave_one_out(self._scaled[rows], [parts[0][rows], *parts[1:]]), blocks, parallel=True
        )
        for rows, (first, *others) in zip(blocks, images, strict=True):
            total[0][rows] = first
            for axis, piece in enumerate(others, start=1):
                total[axis] += piece
        return math.factorial(self.order - 1) * np.concatenate(total)


def _leave_one_out(entries: DataArray, parts: list[DataArray]) -> list[DataArray]:
    """Return T(I, y, z, …), T(x, I, z, …), … for every column of the blocks x, y, z, ….

    The indices are treated from the last to the first. The product that leaves an index open has all parts before it as
    factors. Then this index is contracted with its own part.
    """
    n_columns = parts[0].shape[1]
    before = [parts[0]]
    for part in parts[1:-1]:
        before.append((before[-1][:, None, :] * part).reshape(-1, n_columns))
    products_open = [entries.reshape(-1, parts[-1].shape[0]).T @ before[-1]]
    rest = entries.reshape(-1, parts[-1].shape[0]) @ parts[-1]
    for part, products in zip(reversed(parts[1:-1]), reversed(before[:-1]), strict=True):
        rest = rest.reshape(-1, part.shape[0], n_columns)
        products_open.append(np.einsum("nl,nrl->rl", products, rest))
        rest = np.einsum("nrl,rl->nl", rest, part)
    return [rest, *reversed(products_open)]
