"""Fourth moments and cumulants of rows: sums over pairs of coordinates, and what is made of them.

A row x has the coordinates y = ((x − c) F, 1) in a *frame*: a map F and a shift c that are near the
whitener and the mean of the rows, so that later subtractions lose no digits, and a constant for the
lower moments. Its pairs yᵢyⱼ with i ≤ j, in packed coordinates (`odeco.tensors.coordinates`), are a
vector z with C(d+2, 2) numbers, and M = E[zzᵀ] has all moments up to the fourth. `sum_entries` and
`sum_products` add up M, or its product with a matrix W, over one chunk of rows, in double
precision.

Every row is added to one of `N_GROUPS` groups, which are drawn at random. So groups are alike in
whatever order rows come: sorted, or with a period. The draws depend on the rows of the chunk, and
on nothing else, so that every reader of the chunk makes the same ones. Standard errors are those of
the jackknife, which leaves out one group after another (Busing, Meijer and van der Leeden 1999, for
groups of unequal size).

`PairMoments` holds M or M W. With z_c = K z for the pairs of y − μ, the central moment is K M Kᵀ,
and the cumulant is this minus what a Gaussian with the same covariance C has, p pᵀ + 2 C ⊗ C for
the pairs p of C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.threads import map_blocks
from odeco._util.types import BoolArray, DataArray, FloatArray, IndexArray
from odeco.cp.rank import RankEvidence
from odeco.cp.whitening import Whitener
from odeco.io.rows import is_sparse, stored_numbers
from odeco.tensors.components import Components
from odeco.tensors.coordinates import FactoredTensor, FlattenedTensor, PackedCoordinates

#: The number of groups that rows are dealt to; groups of even numbers are one half of the rows.
N_GROUPS = 10

#: Numbers in the pairs of the rows that are multiplied at a time.
_PAIRS_SIZE = 2**20

#: Rows times numbers of a sum below which threads take longer than one thread.
_PARALLEL_WORK = 2**22

#: In the frame, a direction with less than this share of the largest variance is rounding error.
_MIN_VARIANCE = 1e-10


# Sums over a chunk --------------------------------------------------------------------------------


def n_entries(dimension: int) -> int:
    """Return the number of distinct moments up to the fourth."""
    return math.comb(dimension + 4, 4)


def n_pairs(dimension: int) -> int:
    """Return the number of pairs of coordinates, the constant included."""
    return math.comb(dimension + 2, 2)


def width_of(block: DataArray) -> int:
    """Return the number m of columns of the matrix W that a block holds beside its frame."""
    return int(block.shape[1] - block.shape[0] - 1) // int(block.shape[0])


def with_columns(frame: FloatArray, packed: FloatArray) -> FloatArray:
    """Return the block of a query for M W: the frame, d x (d+1), and every column of W as a
    symmetric matrix.
    """
    d = frame.shape[0]
    matrices = PackedCoordinates(d, 2).slices(packed, packed)
    return np.hstack([frame, matrices.transpose(0, 2, 1).reshape(d, -1)])


def group_numbers(chunk: Any) -> IndexArray:
    """Return the group of each row, drawn with a seed that is the sum of the bits of all numbers in
    the rows.
    """
    numbers = np.ascontiguousarray(stored_numbers(chunk))
    key = int(np.sum(numbers.view(f"u{numbers.dtype.itemsize}"), dtype=np.uint64))
    groups: IndexArray = np.random.default_rng(key).integers(N_GROUPS, size=chunk.shape[0])
    return groups


def sum_entries(chunk: Any, frame: FloatArray) -> FloatArray:
    """Return Σ yᵢyⱼyₖyₗ for i ≤ j ≤ k ≤ l of every group; the last number is that of its rows.

    For every j, there is one product of the pairs (i, j) with all (k, l), k ≥ j.
    """
    size = frame.shape[0] + 1
    first, second = np.triu_indices(size)  # in the order of k, then l
    starts = np.searchsorted(first, np.arange(size))

    def contract(columns: FloatArray) -> FloatArray:
        pairs = columns[first] * columns[second]
        parts = [
            (columns[: j + 1] * columns[j]) @ pairs[start:].T for j, start in enumerate(starts)
        ]
        return np.concatenate([part.ravel() for part in parts])

    return _added(contract, chunk, frame, (n_entries(size - 1),))


def sum_products(chunk: Any, block: FloatArray) -> FloatArray:
    """Return Σ z (zᵀW, √2 yᵀ, 1), C(d+2, 2) x (m+d+1), of every group: M times W and the pairs with
    the constant.
    """
    d = block.shape[0]
    m = width_of(block)
    frame = block[:, : d + 1]
    pairs = PackedCoordinates(d + 1, 2)
    inner = PackedCoordinates(d, 2)
    matrices = block[:, d + 1 :].reshape(d, m, d)
    weights = matrices[inner.tuples[0], :, inner.tuples[1]] * inner.scales[:, None]

    def contract(columns: FloatArray) -> FloatArray:
        powers = pairs.powers(columns)
        values = np.vstack([weights.T @ powers[: inner.size], powers[inner.size :]])
        product: FloatArray = powers @ values.T
        return product

    return _added(contract, chunk, frame, (pairs.size, m + d + 1))


def _added(contract: Any, chunk: Any, frame: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return the sums over the rows of every group, in their order, whatever the number of
    threads.
    """
    d = frame.shape[0]
    groups = group_numbers(chunk)
    height = max(64, _PAIRS_SIZE // n_pairs(d))

    totals = np.zeros((N_GROUPS, *shape))

    def sum_group(number: int) -> None:
        rows = np.flatnonzero(groups == number)
        with np.errstate(all="ignore"):  # rows that are not finite are found by their sum
            for start in range(0, len(rows), height):
                part = chunk[rows[start : start + height]]
                dense = (part.toarray() if is_sparse(part) else part).astype(np.float64) - frame[
                    :, d
                ]
                columns = np.ones((d + 1, dense.shape[0]))
                np.matmul(frame[:, :d].T, dense.T, out=columns[:d])
                totals[number] += contract(columns)

    for _ in map_blocks(
        sum_group, range(N_GROUPS), parallel=chunk.shape[0] * math.prod(shape) >= _PARALLEL_WORK
    ):
        pass
    return totals


def as_matrix(entries: FloatArray, dimension: int) -> FloatArray:
    """Return M from its distinct entries, which are in the order of `sum_entries`."""
    scales = PackedCoordinates(dimension + 1, 2).scales
    matrix: FloatArray = entries[_places(dimension)]
    matrix *= scales[:, None]
    matrix *= scales
    return matrix


@lru_cache(maxsize=2)
def _places(dimension: int) -> NDArray[np.int32]:
    """Return where each entry of M is among the distinct ones."""
    size = dimension + 1
    tuples = PackedCoordinates(size, 2).tuples.astype(np.int32)
    first = np.arange(size)
    tails = (size - first) * (size - first + 1) // 2  # pairs (k, l) with k ≥ j
    slabs = np.concatenate([[0], np.cumsum((first + 1) * tails)]).astype(np.int32)
    tails = tails.astype(np.int32)
    places = np.empty((tuples.shape[1],) * 2, np.int32)
    for row, (a, b) in enumerate(tuples.T):
        i, j, k, ell = np.sort(np.vstack([np.full_like(tuples, [[a], [b]]), tuples]), axis=0)
        places[row] = slabs[j] + i * tails[j] + (tails[j] - tails[k]) + (ell - k)
    return places


# The moments of all rows --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PairMoments:
    """The moments of pairs of coordinates, averaged over rows.

    Attributes
    ----------
    products : array, C(d+2, 2) x (m+d+1)
        M times W and times the pairs with the constant; M itself if there is no W.
    frame : array, d x (d+1)
        The map and the shift of the coordinates.
    basis : array, C(d+1, 2) x m, or None
        W, with orthonormal columns.
    cumulant : bool
        Whether the cumulant is decomposed, instead of the raw moment.
    """

    products: FloatArray
    frame: FloatArray
    basis: FloatArray | None
    cumulant: bool

    @classmethod
    def of(
        cls, mean: FloatArray, frame: FloatArray, basis: FloatArray | None, *, cumulant: bool
    ) -> PairMoments:
        """Return the moments whose distinct entries, or whose products with W, are given as one
        vector.
        """
        d = frame.shape[0]
        if basis is None:
            return cls(as_matrix(mean, d), frame, None, cumulant)
        return cls(mean.reshape(-1, basis.shape[1] + d + 1), frame, basis, cumulant)

    @cached_property
    def pairs(self) -> PackedCoordinates:
        """The packed coordinates of pairs without the constant."""
        return PackedCoordinates(self.frame.shape[0], 2)

    @property
    def _frame_mean(self) -> FloatArray:
        """The mean of the rows in the frame."""
        return np.asarray(self.products[self.pairs.size : -1, -1] / math.sqrt(2))

    @property
    def centre(self) -> FloatArray:
        """The point that moments are taken about, in the frame: the mean, or the origin of the
        rows.
        """
        if self.cumulant:
            return self._frame_mean
        return -self.frame[:, -1] @ self.frame[:, :-1]

    @cached_property
    def second(self) -> FloatArray:
        """The second moment about the centre, in the frame: the covariance of a cumulant."""
        mean = self._frame_mean
        centre = self.centre
        moment = self.pairs.slices(self.products[: self.pairs.size, -1:], self.products[:1])[
            :, :, 0
        ]
        return np.asarray(
            moment - np.outer(mean, centre) - np.outer(centre, mean) + np.outer(centre, centre)
        )

    @property
    def covariance(self) -> FloatArray:
        """The second moment about the centre, of the rows as they are."""
        back = np.linalg.inv(self.frame[:, :-1])
        return np.asarray(back.T @ self.second @ back)

    @property
    def mean(self) -> FloatArray:
        """The mean of the rows as they are."""
        return np.asarray(
            self.frame[:, -1] + np.linalg.solve(self.frame[:, :-1].T, self._frame_mean)
        )

    @cached_property
    def flattening(self) -> FloatArray:
        """The flattening of the fourth moment about the centre, or of the cumulant, times W."""
        pairs = self.pairs
        centre = self.centre
        size = self.pairs.size
        shift = _pack(pairs, _symmetric_products(centre)) / math.sqrt(
            2
        )  # pairs of y μᵀ + μ yᵀ, by √2 y
        constant = pairs.powers(centre[:, None])
        basis = np.eye(size) if self.basis is None else self.basis
        m = basis.shape[1]
        right = self.products[:, :m] - self.products[:, m:-1] @ (shift.T @ basis)
        right += self.products[:, -1:] @ (constant.T @ basis)
        moment = right[:size] - shift @ right[size:-1] + constant @ right[-1:]
        if self.cumulant:
            own = _pack(pairs, self.second[:, :, None])
            moment = moment - own @ (own.T @ basis) - 2 * congruent(self.second, basis, pairs)
        return np.asarray(moment)

    @cached_property
    def core(self) -> FloatArray:
        """The flattening inside the span of W, a symmetric matrix."""
        core = self.flattening if self.basis is None else self.basis.T @ self.flattening
        return np.asarray(core + core.T) / 2

    def whitener(self) -> Whitener:
        """Return the map to coordinates in which the second moment is the identity, for directions
        that have one.
        """
        values, vectors = np.linalg.eigh(self.second)  # nearly white already where rows vary at all
        used = values > _MIN_VARIANCE * max(float(values[-1]), 0.0)
        if not used.any():
            raise ValueError(
                "Rows must vary for a fourth moment to be decomposed. All rows are equal. Pass "
                "other rows."
            )
        roots = np.sqrt(values[used])
        return Whitener(vectors[:, used] / roots, vectors[:, used] * roots)

    def tensor(self, whitener: Whitener, rank: int | None) -> FlattenedTensor | FactoredTensor:
        """Return the tensor in whitened coordinates; with W, as a matrix of this rank (Nyström's
        method).
        """
        forward = whitener.forward.T
        if self.basis is None:
            half = congruent(forward, self.core, self.pairs)
            whole = congruent(forward, np.ascontiguousarray(half.T), self.pairs)
            return FlattenedTensor((whole + whole.T) / 2, forward.shape[0], 4)
        values, vectors = np.linalg.eigh(self.core)
        first = np.argsort(-np.abs(values), kind="stable")
        kept = first[: len(first) if rank is None else rank]
        left, root = np.linalg.qr(
            congruent(forward, self.flattening @ vectors[:, kept], self.pairs)
        )
        inner, turned = np.linalg.eigh((root / values[kept]) @ root.T)
        noise = values[first[len(kept) :]] * math.sqrt(
            self.pairs.size / len(values)
        )  # of all pairs, not those of W
        return FactoredTensor(left @ turned, inner, forward.shape[0], noise=noise)


def _symmetric_products(vector: FloatArray) -> FloatArray:
    """Return eᵢ vᵀ + v eᵢᵀ for every i, d x d x d."""
    d = len(vector)
    products = np.zeros((d, d, d))
    place = np.arange(d)
    products[place, :, place] += vector
    products[:, place, place] += vector[:, None]
    return products


def _pack(pairs: PackedCoordinates, matrices: FloatArray) -> FloatArray:
    """Return symmetric matrices, d x d x m, in packed coordinates."""
    return np.asarray(matrices[pairs.tuples[0], pairs.tuples[1]] * pairs.scales[:, None])


def congruent(matrix: FloatArray, packed: FloatArray, pairs: PackedCoordinates) -> FloatArray:
    """Return A S Aᵀ in packed coordinates for the symmetric matrix S in every column."""
    symmetric = pairs.slices(packed, packed)
    turned = np.tensordot(matrix, np.tensordot(matrix, symmetric, (1, 0)), (1, 1))
    return _pack(PackedCoordinates(len(matrix), 2), turned)


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """The sums over groups of rows, from which the moments of any of them follow."""

    groups: FloatArray
    frame: FloatArray
    basis: FloatArray | None
    cumulant: bool

    def of(self, chosen: Any) -> PairMoments:
        """Return the moments of the chosen groups; the last number of a sum is the number of its
        rows.
        """
        total = chosen @ self.groups
        return PairMoments.of(total / total[-1], self.frame, self.basis, cumulant=self.cumulant)

    def held_out(
        self, chosen: BoolArray, values: Callable[[PairMoments], FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Return values of the moments of the chosen groups, and their standard errors."""
        whole = values(self.of(chosen))
        parts = np.array(
            [values(self.of(chosen & ~one)) for one in np.eye(len(chosen), dtype=bool)[chosen]]
        )
        return whole, jackknife(whole, parts, self.groups[chosen, -1])


def jackknife(whole: FloatArray, parts: FloatArray, counts: FloatArray) -> FloatArray:
    """Return standard errors of estimates from those without each of several groups of rows."""
    ratios = (counts.sum() / counts).reshape(-1, *[1] * whole.ndim)
    pseudo = ratios * whole - (ratios - 1) * parts
    mean = whole * len(counts) - np.sum((1 - 1 / ratios) * parts, axis=0)
    return np.asarray(np.sqrt(np.mean((pseudo - mean) ** 2 / (ratios - 1), axis=0)))


@dataclass(frozen=True, eq=False)
class FourthComponents:
    """Components of a fourth moment or cumulant of rows.

    Attributes
    ----------
    components : Components
        Weights and vectors in the coordinates of the rows.
    errors : tuple of arrays or None
        The standard errors of weights and of angles; None if there are too few groups of rows.
    rank_evidence : RankEvidence or None
        The evidence for their number, if it was selected.
    moments : PairMoments
        The moments of all rows.
    left_out : tuple of (moments, components)
        For each group of rows, the result without it.
    counts : array
        The number of rows of each group.
    """

    components: Components
    errors: tuple[FloatArray, FloatArray] | None
    rank_evidence: RankEvidence | None
    moments: PairMoments
    left_out: tuple[tuple[PairMoments, Components], ...]
    counts: FloatArray

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles (in radians), or None."""
        return self.errors

    def jackknife(self, whole: FloatArray, parts: list[FloatArray]) -> FloatArray:
        """Return the standard error of an estimate, given the estimates without each group."""
        return jackknife(whole, np.array(parts), self.counts)
