"""The holder of private rows of numbers: sums over rows, with a proved bound on what one row adds.

Rows are divided by the public bound of their norm and clipped, so |x| ≤ 1. A row that is not finite
is blank: it adds nothing to any sum. What a row adds depends on that row, on public numbers and on
earlier releases, and on no other row. The bounds, and why a replaced row moves a sum by √2 times
the bound and not twice:

- `seconds` adds y yᵀ for y = (x, c), or y = (z, c) for z as below, clipped to 1. Its norm is |y|² ≤
  1 + c². For two rows ⟨y yᵀ, v vᵀ⟩ = ⟨y, v⟩² ≥ 0.
- `thirds` adds z⊗z⊗z for z = Λ^(−1/2) Vᵀ(x − m), clipped to a radius ρ; the basis, m, Λ and ρ were
  released or follow from what was. Its norm is |z|³ ≤ ρ³. Two rows may be opposite: ⟨z⊗z⊗z, v⊗v⊗v⟩
  = ⟨z, v⟩³ ≥ −ρ⁶, so twice the bound.
- `fourths` adds y⊗y⊗y⊗y for y = (z, c), z clipped to a radius ρ as above. Its norm is |y|⁴ ≤ (ρ² +
  c²)². For two rows ⟨y⊗⁴, v⊗⁴⟩ = ⟨y, v⟩⁴ ≥ 0. Through the constant c, all moments up to the fourth
  are part of it.
- `shares` adds (r, r ⊗ u) for responsibilities r of components for x, and u = (x − m)/ρ clipped to
  1. Its squared norm is |r|² (1 + |u|²) ≤ 2: whatever function gives r, `as_probabilities` makes
  its entries at least 0 and their sum at most 1. For two rows the product is ⟨r, s⟩ (1 + ⟨u, v⟩) ≥
  0. The function must treat each row by itself. For covariances it also adds r ⊗ u∘u, the squares
  of u, or r ⊗ u uᵀ. Both have at most the norm |r| |u|² ≤ 1, so that the squared norm of all is at
  most 3; and products of at least 0, as ⟨u∘u, v∘v⟩ ≥ 0 and ⟨u uᵀ, v vᵀ⟩ = ⟨u, v⟩² ≥ 0.

Sums of symmetric arrays are packed: each distinct entry once, times the root of its multiplicity.
So their norm is that of the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odeco._util.types import FloatArray
from odeco.privacy.holders.lanes import as_probabilities, clipped_rows
from odeco.privacy.holders.norms import N_COLUMN_BINS, RowNorms, count_columns
from odeco.privacy.holders.protocol import unit_weights
from odeco.privacy.sums import Query, sum_over_blocks
from odeco.tensors.coordinates import PackedCoordinates, places_of
from odeco.tensors.dense import sum_of_cubes

#: The constant coordinate c of `seconds`: through it the means of features are part of their second
#: moment. They need less precision than the rest, so it is small.
CONSTANT = math.sqrt(0.1)

#: Rows that are worked on at a time, and products of two of their numbers where these are formed.
_BLOCK = 8192
_PAIRS_SIZE = 2**20


class BoundedRows:
    """Rows divided by the bound of their norm and clipped to the unit ball; blank where they are
    not finite.

    Parameters
    ----------
    rows : array, rows x features
        Rows; any numbers.
    norm_bound : float
        The largest norm, which is public.
    groups : array of labels, optional
        Which user each row belongs to; public. A user adds the mean of what the own rows add
        (`unit_weights`).
    """

    def __init__(self, rows: Any, norm_bound: float, groups: Any = None) -> None:
        with np.errstate(all="ignore"):  # a warning about the rows would be an answer without noise
            clipped = clipped_rows(rows, norm_bound)
            weights, self.n_records = unit_weights(groups, len(rows))
            self._counts: FloatArray = weights * np.isfinite(rows).all(
                axis=1
            )  # what a row counts; 0 if it is blank
            # Bounds near the ends of double precision must not make a quotient of rounding errors.
            self._rows: FloatArray = clipped_rows(clipped / norm_bound, 1.0)
        self.n_terms, self.n_features = rows.shape
        self.norm_bound = norm_bound

    def seconds(self, mean: FloatArray | float = 0.0, whitener: FloatArray | None = None) -> Query:
        """Return the query of Σ y yᵀ, packed; of rows as they are, or of z = (x − mean) whitener,
        clipped to 1.
        """
        width = (self.n_features if whitener is None else whitener.shape[1]) + 1

        def block_sum(block: tuple[FloatArray, FloatArray]) -> FloatArray:
            rows, counts = block
            near = rows if whitener is None else clipped_rows((rows - mean) @ whitener, 1.0)
            extended = (
                np.hstack([near, np.full((len(rows), 1), CONSTANT)]) * np.sqrt(counts)[:, None]
            )
            product: FloatArray = extended.T @ extended
            return product

        return Query(
            "second moment" if whitener is None else "second moment, whitened",
            lambda: packed_matrix(self._sum(block_sum)),
            size=width * (width + 1) // 2,
            bound=1 + CONSTANT**2,
            signed=False,
        )

    def thirds(self, mean: FloatArray, whitener: FloatArray, radius: float) -> Query:
        """Return the query of Σ z⊗z⊗z, packed; z = (x − mean) whitener, clipped to the radius."""
        width = whitener.shape[1]

        def block_sum(block: tuple[FloatArray, FloatArray]) -> FloatArray:
            rows, counts = block
            white = clipped_rows((rows - mean) @ whitener, radius)
            return sum_of_cubes(white * np.cbrt(counts)[:, None])

        return Query(
            "third moment, whitened",
            lambda: packed_cube(self._sum(block_sum)),
            size=width * (width + 1) * (width + 2) // 6,
            bound=radius**3,
            signed=True,
        )

    def fourths(
        self, mean: FloatArray, whitener: FloatArray, radius: float, constant: float
    ) -> Query:
        """Return the query of Σ y⊗y⊗y⊗y, in packed coordinates; y = (z, constant), z as for
        `thirds`.
        """
        width = whitener.shape[1] + 1
        pairs = PackedCoordinates(width, 2)
        fours = PackedCoordinates(width, 4)
        first = places_of(fours.tuples[:2])
        second = places_of(fours.tuples[2:])
        factors = fours.scales / (pairs.scales[first] * pairs.scales[second])

        def block_sum(block: tuple[FloatArray, FloatArray]) -> FloatArray:
            rows, counts = block
            near = clipped_rows((rows - mean) @ whitener, radius)
            products = pairs.powers(np.vstack([near.T, np.full(len(rows), constant)]))
            return (products * counts) @ products.T

        return Query(
            "moments up to the fourth, whitened",
            lambda: (
                self._sum(block_sum, max(64, _PAIRS_SIZE // pairs.size))[first, second] * factors
            ),
            size=fours.size,
            bound=(radius**2 + constant**2) ** 2,
            signed=False,
        )

    def shares(
        self,
        responsibilities: Callable[[FloatArray], FloatArray],
        n_components: int,
        centre: FloatArray,
        radius: float,
        covariance_type: str = "spherical",
    ) -> Query:
        """Return the query of Σ (r, r ⊗ u), for covariances also r ⊗ u∘u or r ⊗ u uᵀ, packed: k
        rows.
        """
        d = self.n_features
        width = {"spherical": 0, "diag": d, "full": d * (d + 1) // 2}[covariance_type]

        def block_sum(block: tuple[FloatArray, FloatArray]) -> FloatArray:
            rows, counts = block
            shares = as_probabilities(responsibilities(rows)) * counts[:, None]
            near = clipped_rows((rows - centre) / radius, 1.0)
            sums = [shares.sum(axis=0)[:, None], shares.T @ near]
            if covariance_type == "diag":
                sums.append(shares.T @ near**2)
            elif covariance_type == "full":
                sums.append(
                    np.stack([packed_matrix((near * each[:, None]).T @ near) for each in shares.T])
                )
            return np.hstack(sums)

        return Query(
            "statistics of an EM iteration",
            lambda: self._sum(block_sum).ravel(),
            size=n_components * (1 + d + width),
            bound=math.sqrt(3 if width else 2),
            signed=False,
        )

    def _sum(
        self, block_sum: Callable[[tuple[FloatArray, FloatArray]], FloatArray], height: int = _BLOCK
    ) -> FloatArray:
        starts = range(0, len(self._rows), height)
        return sum_over_blocks(
            block_sum,
            (
                (self._rows[start : start + height], self._counts[start : start + height])
                for start in starts
            ),
        )


class UnboundedRows(RowNorms):
    """Dense rows whose bound is still to be chosen, from the counts of their norms."""

    def __init__(self, rows: FloatArray, groups: Any = None) -> None:
        super().__init__(rows, groups)
        self._groups = groups
        self.n_records = self.n_units
        self.n_terms = len(rows)

    def within(self, norm_bound: float) -> BoundedRows:
        """Return the holder of the rows for a bound on their norm."""
        return BoundedRows(self._rows, norm_bound, self._groups)

    def column_counts(self) -> Query:
        """Return the query of the counts of numbers by column; `odeco.privacy.holders.norms` has
        the bound.
        """
        return Query(
            "counts of numbers by column",
            lambda: sum_over_blocks(self._count_columns, range(0, len(self._rows), _BLOCK)).ravel(),
            size=N_COLUMN_BINS * self.n_features,
            bound=math.sqrt(self.n_features),
            signed=False,
        )

    def standardized(self, centre: FloatArray, scale: FloatArray, norm_bound: float) -> BoundedRows:
        """Return the holder of (x − centre)/scale for a bound on their norm; both were released, or
        are public.
        """
        with np.errstate(all="ignore"):  # a warning about the rows would be an answer without noise
            return BoundedRows((self._rows - centre) / scale, norm_bound, self._groups)

    def _count_columns(self, start: int) -> FloatArray:
        part = slice(start, start + _BLOCK)
        return count_columns(self._rows[part], self._weights[part])


def packed_matrix(matrix: FloatArray) -> FloatArray:
    """Return the distinct entries of a symmetric matrix, times the roots of their
    multiplicities.
    """
    first, second = np.triu_indices(len(matrix))
    return np.asarray(matrix[first, second] * np.where(first == second, 1.0, math.sqrt(2)))


def unpacked_matrix(packed: FloatArray, size: int) -> FloatArray:
    """Return the symmetric matrix that `packed_matrix` packed."""
    first, second = np.triu_indices(size)
    matrix = np.zeros((size, size))
    matrix[first, second] = packed / np.where(first == second, 1.0, math.sqrt(2))
    matrix[second, first] = matrix[first, second]
    return matrix


def _distinct(size: int) -> tuple[Any, FloatArray]:
    """Return the indices of the distinct entries i ≤ j ≤ l of a cube, and the roots of their
    multiplicities.
    """
    i, j, l = np.indices((size,) * 3)
    places = np.nonzero((i <= j) & (j <= l))
    n_equal = (places[0] == places[1]).astype(np.int64) + (places[1] == places[2])
    return places, np.sqrt(np.array([6.0, 3.0, 1.0])[n_equal])


def packed_cube(cube: FloatArray) -> FloatArray:
    """Return the distinct entries of a symmetric cube, times the roots of their multiplicities."""
    places, roots = _distinct(len(cube))
    return np.asarray(cube[places] * roots)


def unpacked_cube(packed: FloatArray, size: int) -> FloatArray:
    """Return the symmetric cube that `packed_cube` packed."""
    (i, j, l), roots = _distinct(size)
    cube = np.zeros((size,) * 3)
    for places in ((i, j, l), (i, l, j), (j, i, l), (j, l, i), (l, i, j), (l, j, i)):
        cube[places] = packed / roots
    return cube
