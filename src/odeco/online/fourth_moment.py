"""Fourth cumulants and moments from sums over pairs of coordinates.

`PairMoments` holds M = E[zzᵀ], the moments of pairs of coordinates (`odeco.online.pair_sums`), or its product with a
matrix W. With z_c = K z for the pairs of y − μ, the central moment is K M Kᵀ, and the cumulant is this minus what a
Gaussian with the same covariance C has, p pᵀ + 2 C ⊗ C for the pairs p of C.

Rows are added up in groups. Standard errors are those of the jackknife, which leaves out one group after another
(Busing, Meijer and van der Leeden 1999, for groups of unequal size).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odeco._util.types import BoolArray, FloatArray
from odeco.cp.rank import RankEvidence
from odeco.cp.whitening import Whitener
from odeco.online.pair_sums import as_matrix
from odeco.tensors.components import Components
from odeco.tensors.coordinates import FactoredTensor, FlattenedTensor, PackedCoordinates

#: In the frame, a direction with less than this share of the largest variance is rounding error.
_MIN_VARIANCE = 1e-10


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
    def of(cls, mean: FloatArray, frame: FloatArray, basis: FloatArray | None, *, cumulant: bool) -> PairMoments:
        """Return the moments whose distinct entries, or whose products with W, are given as one vector."""
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
        """The point that moments are taken about, in the frame: the mean, or the origin of the rows."""
        return self._frame_mean if self.cumulant else -self.frame[:, -1] @ self.frame[:, :-1]

    @cached_property
    def second(self) -> FloatArray:
        """The second moment about the centre, in the frame: the covariance of a cumulant."""
        mean, centre = self._frame_mean, self.centre
        moment = self.pairs.slices(self.products[: self.pairs.size, -1:], self.products[:1])[:, :, 0]
        return np.asarray(moment - np.outer(mean, centre) - np.outer(centre, mean) + np.outer(centre, centre))

    @property
    def covariance(self) -> FloatArray:
        """The second moment about the centre, of the rows as they are."""
        back = np.linalg.inv(self.frame[:, :-1])
        return np.asarray(back.T @ self.second @ back)

    @property
    def mean(self) -> FloatArray:
        """The mean of the rows as they are."""
        return np.asarray(self.frame[:, -1] + np.linalg.solve(self.frame[:, :-1].T, self._frame_mean))

    @cached_property
    def flattening(self) -> FloatArray:
        """The flattening of the fourth moment about the centre, or of the cumulant, times W."""
        pairs, centre, size = self.pairs, self.centre, self.pairs.size
        shift = _pack(pairs, _symmetric_products(centre)) / math.sqrt(2)  # pairs of y μᵀ + μ yᵀ, by √2 y
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
        """Return the map to coordinates in which the second moment is the identity, for directions that have one."""
        values, vectors = np.linalg.eigh(self.second)  # nearly white already where rows vary at all
        used = values > _MIN_VARIANCE * max(float(values[-1]), 0.0)
        if not used.any():
            raise ValueError(
                "Rows must vary for a fourth moment to be decomposed. All rows are equal. Pass other rows."
            )
        roots = np.sqrt(values[used])
        return Whitener(vectors[:, used] / roots, vectors[:, used] * roots)

    def tensor(self, whitener: Whitener, rank: int | None) -> FlattenedTensor | FactoredTensor:
        """Return the tensor in whitened coordinates; with W, as a matrix of this rank (Nyström's method)."""
        forward = whitener.forward.T
        if self.basis is None:
            half = congruent(forward, self.core, self.pairs)
            whole = congruent(forward, np.ascontiguousarray(half.T), self.pairs)
            return FlattenedTensor((whole + whole.T) / 2, forward.shape[0], 4)
        values, vectors = np.linalg.eigh(self.core)
        first = np.argsort(-np.abs(values), kind="stable")
        kept = first[: len(first) if rank is None else rank]
        left, root = np.linalg.qr(congruent(forward, self.flattening @ vectors[:, kept], self.pairs))
        inner, turned = np.linalg.eigh((root / values[kept]) @ root.T)
        noise = values[first[len(kept) :]] * math.sqrt(self.pairs.size / len(values))  # of all pairs, not those of W
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
        """Return the moments of the chosen groups; the last number of a sum is the number of its rows."""
        total = chosen @ self.groups
        return PairMoments.of(total / total[-1], self.frame, self.basis, cumulant=self.cumulant)

    def held_out(self, chosen: BoolArray, values: Callable[[PairMoments], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return values of the moments of the chosen groups, and their standard errors."""
        whole = values(self.of(chosen))
        parts = np.array([values(self.of(chosen & ~one)) for one in np.eye(len(chosen), dtype=bool)[chosen]])
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
