"""Fourth cumulants and moments from sums over pairs of coordinates, and their components.

`PairMoments` holds M = E[zzᵀ], the moments of pairs of coordinates (`odeco.online.pair_sums`), or its product with a
matrix W. With z_c = K z for the pairs of y − μ, the central moment is K M Kᵀ, and the cumulant is this minus what a
Gaussian with the same covariance C has, p pᵀ + 2 C ⊗ C for the pairs p of C. Both are decomposed in coordinates in
which C, or the raw second moment, is the identity: there the sampling errors of all pairs have about the same size.

More components than dimensions are found by the subspace power method and least squares (`odeco.cp.overcomplete`).
Their errors are those of the jackknife over groups of rows: each group is left out in turn, and all components take one
Gauss-Newton step (Busing, Meijer and van der Leeden 1999, for groups of unequal size). Their number is that of the
eigenvectors of the flattening of the earlier half of the rows that the later half confirms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import refine
from odeco.cp.overcomplete import fit_overcomplete
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.selection import expected_undetected
from odeco.cp.subspace_power import FlatteningSpectrum, largest_rank, subspace_power_method
from odeco.cp.symmetric import SymmetricProblem
from odeco.cp.whitening import Whitener
from odeco.online.pair_sums import as_matrix
from odeco.power.gauss_newton_step import gauss_newton_step
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import PackedCoordinates
from odeco.tensors.flattened import FactoredTensor, FlattenedTensor

#: In the frame, a direction with less than this share of the largest variance is rounding error.
_MIN_VARIANCE = 1e-10

#: The standard error of a held-out value is that of this many values of similar size together.
_POOLED = 20

#: The jackknife needs this many groups, and the choice of a number twice as many.
MIN_GROUPS = 4

#: The relative residual at which the Gauss-Newton step of the jackknife is solved.
_STEP_TOLERANCE = 1e-6


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


def jackknife(whole: FloatArray, parts: FloatArray, counts: FloatArray) -> FloatArray:
    """Return standard errors of estimates from those without each of several groups of rows."""
    ratios = (counts.sum() / counts).reshape(-1, *[1] * whole.ndim)
    pseudo = ratios * whole - (ratios - 1) * parts
    mean = whole * len(counts) - np.sum((1 - 1 / ratios) * parts, axis=0)
    return np.asarray(np.sqrt(np.mean((pseudo - mean) ** 2 / (ratios - 1), axis=0)))


def decompose_pairs(
    groups: FloatArray,
    counts: FloatArray,
    frame: FloatArray,
    basis: FloatArray | None,
    n_components: int | None,
    seed: int,
    *,
    cumulant: bool,
) -> FourthComponents:
    """Return the components of the fourth moment of all groups of rows together; None selects their number.

    Parameters
    ----------
    groups : array, G x n
        The mean of each group: distinct entries, or products with W.
    counts : array
        The number of rows of each.
    frame, basis, cumulant
        As in `PairMoments`.
    n_components, seed
        Their number, and the seed of the starts.
    """
    with one_blas_thread():
        means = _GroupMeans(groups, counts, frame, basis, cumulant)
        moments, evidence = means.of(np.ones(len(counts), bool)), None
        whitener = moments.whitener()
        if n_components is None:
            evidence = _select(means, whitener)
            n_components = evidence.rank
        if n_components == 0:
            return FourthComponents(no_components(len(frame), 4), None, evidence, moments, (), counts)
        tensor = moments.tensor(whitener, n_components)
        inside = _fit(tensor, n_components, seed)
        lift: FloatArray = np.linalg.solve(frame[:, :-1].T, whitener.backward).astype(np.float64, copy=False)
        found = _lifted(inside, lift)
        left_out = list[tuple[PairMoments, Components]]()
        if len(counts) >= MIN_GROUPS:
            for number in range(len(counts)):
                without = means.of(np.arange(len(counts)) != number)
                stepped = _one_step(without.tensor(whitener, n_components), inside)
                left_out.append((without, _lifted(stepped, lift)))
    result = FourthComponents(found, None, evidence, moments, tuple(left_out), counts)
    if left_out:
        weights = result.jackknife(found.weights, [each.weights for _, each in left_out])
        angles = np.linalg.norm(result.jackknife(found.vectors, [each.vectors for _, each in left_out]), axis=0)
        result = replace(result, errors=(weights, np.minimum(angles, math.pi / 2)))
    return result


@dataclass(frozen=True, eq=False)
class _GroupMeans:
    """The means of groups of rows, from which the moments of any of them follow."""

    groups: FloatArray
    counts: FloatArray
    frame: FloatArray
    basis: FloatArray | None
    cumulant: bool

    def of(self, chosen: Any) -> PairMoments:
        """Return the moments of the chosen groups."""
        shares = np.where(chosen, self.counts, 0.0)
        return PairMoments.of(shares @ self.groups / shares.sum(), self.frame, self.basis, cumulant=self.cumulant)


def _fit(tensor: FlattenedTensor | FactoredTensor, rank: int, seed: int) -> Components:
    """Return the least-squares fit of the tensor."""
    generator = np.random.default_rng(seed)
    if isinstance(tensor, FlattenedTensor):
        return fit_overcomplete(tensor, rank, generator).fit.components
    values = np.concatenate([tensor.values, tensor.noise])
    first = np.argsort(-np.abs(tensor.values), kind="stable")
    values[: len(first)] = tensor.values[first]
    vectors = tensor.vectors[:, first]
    spectrum = FlatteningSpectrum(values, vectors, vectors, tensor.rounding)
    start = subspace_power_method(tensor, tensor.dimension, 4, rank, generator, spectrum=spectrum)  # type: ignore[arg-type]
    return refine(SymmetricProblem(tensor, tensor.squared_norm()), start).components


def _one_step(tensor: FlattenedTensor | FactoredTensor, found: Components) -> Components:
    """Return components after one Gauss-Newton step towards the least-squares fit of another tensor."""
    problem = SymmetricProblem(tensor)
    signs, points = problem.as_points(found)
    descent = problem.descent(signs, points, problem.image(points))
    step = gauss_newton_step(points, signs, descent, 4, damping=0.0, tolerance=_STEP_TOLERANCE)
    return problem.from_points(signs, points + step)


def _lifted(inside: Components, lift: FloatArray) -> Components:
    """Return components of the whitened tensor as components of that of the rows."""
    vectors = lift @ inside.vectors
    lengths = np.linalg.norm(vectors, axis=0)
    return Components(inside.weights * lengths**4, vectors / lengths, 4)


def _select(means: _GroupMeans, whitener: Whitener) -> RankEvidence:
    """Return the number of eigenvectors of the flattening of earlier rows that later rows confirm.

    Their values in the later rows are unbiased, because those rows had no part in their choice. The standard error of
    such a value is that of the jackknife over the later groups; neighbours in the order of size have similar ones, and
    are pooled, because few groups say little. Values are tested at a level of `SIGNIFICANCE` divided by their number.
    The weights of the evidence are these values, in coordinates in which the second moment is the identity.
    """
    n_groups, d = len(means.counts), whitener.forward.shape[1]
    if n_groups < 2 * MIN_GROUPS:
        raise ValueError(
            f"The number of components of a fourth moment is selected from at least {2 * MIN_GROUPS} groups of rows. "
            f"Got {int(means.counts.sum())} rows. Pass more rows, or n_components as an int."
        )
    later = np.arange(n_groups) >= n_groups // 2
    earlier = _core(means.of(~later), whitener)
    eigenvalues, vectors = np.linalg.eigh(earlier)
    first = np.argsort(-np.abs(eigenvalues), kind="stable")
    vectors, signs = vectors[:, first], np.sign(eigenvalues[first])

    def held_out(chosen: Any) -> FloatArray:
        return np.asarray(signs * np.sum(vectors * (_core(means.of(chosen), whitener) @ vectors), axis=0))

    whole = held_out(later)
    places = np.flatnonzero(later)
    parts = np.array([held_out(later & (np.arange(n_groups) != place)) for place in places])
    squares = jackknife(whole, parts, means.counts[later]) ** 2
    n_pooled = min(_POOLED, len(squares))
    window = np.ones(n_pooled)
    pooled = np.convolve(squares, window, "same") / np.convolve(np.ones(len(squares)), window, "same")
    deviations = np.sqrt(np.maximum(pooled, squares / 4))
    rounding = np.finfo(np.float64).eps * len(squares) * max(float(np.abs(whole).max()), np.finfo(np.float64).tiny)
    heights = whole / np.maximum(deviations, rounding)
    chances = np.minimum(1.0, ndtr(-heights) * len(heights))
    clear = chances <= SIGNIFICANCE
    most = max(d, largest_rank(d, 4)) if means.basis is None else means.basis.shape[1] // 2
    rank = min(int(np.sum(clear)), most)
    threshold = float(-ndtri(SIGNIFICANCE / len(heights)))
    confidence = 0.0
    if 0 < rank < most:
        confidence = math.exp(-expected_undetected(heights[clear], threshold)) * (1 - float(chances[clear].max()))
    shown = np.argsort(chances, kind="stable")[: rank + 1]
    candidates = (rank,) if confidence >= SURE else (rank, rank + 1, *([rank - 1] if rank > 1 else []))
    return RankEvidence(rank, whole[shown], threshold * deviations[shown], chances[shown], confidence, candidates)


def _core(moments: PairMoments, whitener: Whitener) -> FloatArray:
    """Return the flattening in whitened coordinates, or inside the span of W, whose frame is nearly white."""
    if moments.basis is not None:
        return moments.core
    tensor = moments.tensor(whitener, None)
    return tensor.matrix if isinstance(tensor, FlattenedTensor) else moments.core
