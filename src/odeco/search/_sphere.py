"""Unit vectors in blocks: drawn uniformly, and normalised part by part."""

from __future__ import annotations

import math

import numpy as np

from odeco._types import FloatArray


def uniform_starts(generator: np.random.Generator, parts: tuple[int, ...], n_starts: int) -> FloatArray:
    """Draw unit vectors uniformly on the sphere, each part on its own and all parts of equal length."""
    block = generator.standard_normal((sum(parts), n_starts))
    return normalise(block, parts, block)


def uniform_within(basis: FloatArray, n_vectors: int, generator: np.random.Generator) -> FloatArray:
    """Draw unit vectors uniformly on the sphere within the span of an orthonormal basis, d x m."""
    return basis @ uniform_starts(generator, (basis.shape[1],), n_vectors)


def normalise(block: FloatArray, parts: tuple[int, ...], fallback: FloatArray) -> FloatArray:
    """Scale every column to unit length, each of its parts to 1/√(number of parts).

    Where a part is zero, that of `fallback` is taken: a zero image tells nothing about where to go.
    """
    result = np.empty_like(block)
    start = 0
    for size in parts:
        rows = slice(start, start + size)
        part, scaled = block[rows], result[rows]
        largest = np.maximum(part.max(axis=0), -part.min(axis=0))
        # Dividing by the largest first keeps squares from under- and overflowing.
        np.divide(part, np.where(largest > 0, largest, 1.0), out=scaled)
        scaled[:, largest == 0] = fallback[rows][:, largest == 0]
        scaled /= column_norms(scaled) * math.sqrt(len(parts))
        start += size
    return result


def column_norms(block: FloatArray) -> FloatArray:
    """Return the length of every column."""
    squares: FloatArray = np.einsum("il,il->l", block, block)
    return np.sqrt(squares)
