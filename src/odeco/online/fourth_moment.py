"""Fourth cumulants and moments from sums over pairs of coordinates, and their components.

`PairMoments` holds M = E[zzᵀ], the moments of pairs of coordinates (`odeco.online.pair_sums`), or its product with a
matrix W. With z_c = K z for the pairs of y − μ, the central moment is K M Kᵀ, and the cumulant is this minus what a
Gaussian with the same covariance C has, p pᵀ + 2 C ⊗ C for the pairs p of C. It is decomposed in coordinates
in which C is the identity: there the sampling errors of all pairs have about the same size. So is a raw moment whose
number of components is selected, from rows without noise. With a given number it is decomposed as it is, because noise
in the rows is part of a raw moment, and as large as the components where all directions are made equal.

More components than dimensions are found by the subspace power method and least squares (`odeco.cp.overcomplete`).
Their errors are those of the jackknife over groups of rows: each group is left out in turn, and all components take one
Gauss-Newton step (Busing, Meijer and van der Leeden 1999, for groups of unequal size). Their number is that of the
eigenvectors of the flattening of half of the groups of rows that the other half confirms.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, FloatArray
from odeco.cp.fit import refine
from odeco.cp.overcomplete import USUAL_CHANCE, USUAL_SPLIT, FlattenedProblem, fit_overcomplete
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.selection import expected_undetected
from odeco.cp.subspace_power import FlatteningSpectrum, largest_rank, subspace_power_method
from odeco.cp.symmetric import SymmetricProblem
from odeco.cp.whitening import Whitener
from odeco.errors import RankError
from odeco.online.pair_sums import as_matrix
from odeco.power.gauss_newton_step import gauss_newton_step
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import PackedCoordinates
from odeco.tensors.flattened import FactoredTensor, FlattenedTensor

#: In the frame, a direction with less than this share of the largest variance is rounding error.
_MIN_VARIANCE = 1e-10

#: The standard error of a held-out value is that of this many values of similar size together.
_POOLED = 20

#: Components must explain this share of what the leading eigenvectors do.
_LEAST_EXPLAINED = 0.5

#: Components that are tried as two, to see if there is one more.
_N_SPLITS = 3

#: The jackknife and the choice of a number need groups of at least this many rows.
_FEWEST_ROWS = 10

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
    n_rows: int,
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
        The sum over each group, divided by the number of all rows: distinct entries, or products with W.
    n_rows : int
        The number of all rows.
    frame, basis, cumulant
        As in `PairMoments`.
    n_components, seed
        Their number, and the seed of the starts.
    """
    with one_blas_thread():
        means = _GroupMeans(groups, frame, basis, cumulant)
        moments, evidence, counts = means.of(np.ones(len(groups), bool)), None, n_rows * groups[:, -1]
        enough = float(counts.min()) >= _FEWEST_ROWS
        whitener = moments.whitener()
        if n_components is not None and not cumulant:  # as they are: whitening would enlarge the noise in the rows
            whitener = Whitener(np.eye(len(frame)), np.eye(len(frame)))
        if n_components is None:
            if not enough:
                raise ValueError(
                    f"The number of components of a fourth moment is selected from {len(groups)} groups of at least "
                    f"{_FEWEST_ROWS} rows. Got {n_rows} rows in all. Pass more rows, or n_components as an int."
                )
            evidence = _select(means, whitener, seed)
            n_components = evidence.rank
        if n_components == 0:
            return FourthComponents(no_components(len(frame), 4), None, evidence, moments, (), counts)
        tensor = moments.tensor(whitener, n_components)
        inside = _fit(tensor, n_components, seed)
        if evidence is not None:
            evidence = _with_resolution(evidence, means, whitener, inside)
        lift: FloatArray = np.linalg.solve(frame[:, :-1].T, whitener.backward).astype(np.float64, copy=False)
        found = _lifted(inside, lift)
        left_out = list[tuple[PairMoments, Components]]()
        if enough:
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


def _select(means: _GroupMeans, whitener: Whitener, seed: int) -> RankEvidence:
    """Return the number of eigenvectors of the flattening of half of the rows that the other half confirms.

    Their values in the other half are unbiased, because those rows had no part in their choice. The standard error of
    such a value is that of the jackknife over its groups; neighbours in the order of size have similar ones, and
    are pooled, because few groups say little. Values are tested at a level of `SIGNIFICANCE` divided by their number.
    The weights of the evidence are these values, in coordinates in which the second moment is the identity.

    Components have fewer unknowns than eigenvectors, so that fits of components tell more: where the values leave
    little doubt, the confidence includes the chances that one component less, or one more, predicts the other half
    as well (`_gains`).
    """
    d, places = whitener.forward.shape[1], np.arange(len(means.groups))
    later = places % 2 == 1  # W was chosen by the others
    eigenvalues, vectors = np.linalg.eigh(_core(means.of(~later), whitener))
    first = np.argsort(-np.abs(eigenvalues), kind="stable")
    vectors, signs = vectors[:, first], np.sign(eigenvalues[first])

    def held_out(moments: PairMoments) -> FloatArray:
        return np.asarray(signs * np.sum(vectors * (_core(moments, whitener) @ vectors), axis=0))

    whole, errors = means.held_out(later, held_out)
    squares = errors**2
    n_pooled = min(_POOLED, len(squares))
    window = np.ones(n_pooled)
    pooled = np.convolve(squares, window, "same") / np.convolve(np.ones(len(squares)), window, "same")
    deviations = np.sqrt(np.maximum(pooled, squares / 4))
    rounding = np.finfo(np.float64).eps * len(squares) * max(float(np.abs(whole).max()), np.finfo(np.float64).tiny)
    heights = whole / np.maximum(deviations, rounding)
    chances = np.minimum(1.0, ndtr(-heights) * len(heights))
    clear = chances <= SIGNIFICANCE
    rank = int(np.sum(clear))
    most = max(d, largest_rank(d, 4)) if means.basis is None else means.basis.shape[1] // 2
    if rank > most:
        raise _too_many_error(means, rank, most, d)
    threshold = float(-ndtri(SIGNIFICANCE / len(heights)))
    confidence = 0.0
    if rank:
        confidence = math.exp(-expected_undetected(heights[clear], threshold)) * (1 - float(chances[clear].max()))
    if confidence >= SURE:
        last, following = _gains(means, whitener, rank, most, seed)
        confidence *= (1 - last) * min(1.0, following / USUAL_CHANCE)
    shown = np.argsort(chances, kind="stable")[: rank + 1]
    candidates = (rank,) if confidence >= SURE else (rank, rank + 1, *([rank - 1] if rank > 1 else []))
    return RankEvidence(rank, whole[shown], threshold * deviations[shown], chances[shown], confidence, candidates)


def _gains(means: _GroupMeans, whitener: Whitener, rank: int, most: int, seed: int) -> tuple[float, float]:
    """Return the chances that the last of `rank` components, and one more, predict held-out rows no better.

    Components C are fitted to half T of the rows. The gain of one more is the decrease of ‖T' − C‖² for the other half
    T', of which only ⟨T', C⟩ is not known exactly: its standard error is that of the jackknife over the groups. For one
    more, the best of several fits counts, and the chance is multiplied by their number.
    """
    odd = np.arange(len(means.groups)) % 2 == 1
    halves = (odd, ~odd) if means.basis is None else (odd,)  # W was chosen by rows of the others
    gains = np.zeros(2)
    for later in halves:
        seen = means.of(~later)
        tensor = seen.tensor(whitener, rank)
        fit = _fit(tensor, rank, seed)
        explained = 2 * float(fit.weights @ tensor.value(fit.vectors)) - fit.squared_norm()
        squares = np.sort(np.linalg.eigvalsh(_core(seen, whitener)) ** 2)
        if explained < _LEAST_EXPLAINED * float(squares[-rank:].sum()):
            return 1.0, 1.0  # no sum of so few components
        fewer = _fit(seen.tensor(whitener, rank - 1), rank - 1, seed) if rank > 1 else no_components(fit.dimension, 4)
        more = _one_more(seen.tensor(whitener, rank + 1), fit, seed) if rank < most else []
        fits = [fewer, *more]
        signs = np.where(np.arange(len(fits)) == 0, -1.0, 1.0)  # the gain of the last is what the others lack
        excess = [each.squared_norm() - fit.squared_norm() for each in fits]

        def gain(moments: PairMoments, fit: Components = fit, fits: list[Components] = fits) -> FloatArray:
            tensor = moments.tensor(whitener, rank + 1)
            overlaps = np.array([float(each.weights @ tensor.value(each.vectors)) for each in (fit, *fits)])
            return np.asarray(overlaps[1:] - overlaps[0])

        overlaps, errors = means.held_out(later, gain)
        heights = signs * (overlaps - np.array(excess) / 2) / errors
        gains += heights[0], heights[1:].max(initial=-np.inf)
    chances = stdtr(len(halves) * (int(odd.sum()) - 1), -gains / math.sqrt(len(halves)))
    return float(chances[0]), min(1.0, (1 + _N_SPLITS) * float(chances[1]))


def _one_more(tensor: FlattenedTensor | FactoredTensor, fit: Components, seed: int) -> list[Components]:
    """Return fits with one component more: by the subspace power method, and with a component as two.

    A fit of one component to two leaves their spread as the curvature of the residual (`SymmetricProblem.test_pairs`).
    """
    fits = list[Components]()
    with contextlib.suppress(RankError):  # there is no other component
        fits.append(_fit(tensor, fit.n_components + 1, seed))
    residual, problem = tensor - fit, SymmetricProblem(tensor, tensor.squared_norm())
    spreads, directions = [], []
    for weight, vector in zip(fit.weights, fit.vectors.T, strict=True):
        across = np.eye(fit.dimension) - np.outer(vector, vector)
        values, vectors = np.linalg.eigh(math.copysign(1.0, weight) * (across @ residual.slice(vector) @ across))
        spreads.append(float(values[-1]))
        directions.append(vectors[:, -1])
    for index in np.argsort(spreads)[::-1][:_N_SPLITS]:
        angle = min(math.sqrt(max(spreads[index], 0.0) / abs(fit.weights[index])), 1.0)
        if angle > 0:
            both = fit.vectors[:, [index]] + np.array([[angle, -angle]]) * directions[index][:, None]
            weights = np.append(np.delete(fit.weights, index), [fit.weights[index] / 2] * 2)
            split = Components(weights, np.hstack([np.delete(fit.vectors, index, axis=1), both]), 4)
            fits.append(refine(problem, split).components)
    return fits


def _with_resolution(
    evidence: RankEvidence, means: _GroupMeans, whitener: Whitener, inside: Components
) -> RankEvidence:
    """Return the evidence with the angle at which two components may count as one, in whitened coordinates.

    The noise is that of the values at the components, where it is largest. With W, the angle is not known.
    """
    tensor = means.of(np.ones(len(means.groups), bool)).tensor(whitener, None)
    if not isinstance(tensor, FlattenedTensor):
        return evidence

    def values(moments: PairMoments) -> FloatArray:
        return moments.tensor(whitener, None).value(inside.vectors)

    errors = means.held_out(np.ones(len(means.groups), bool), values)[1]
    deviation = max(float(np.sqrt(np.mean(errors**2))), tensor.rounding * float(np.abs(inside.weights).max()))
    split, resolution = FlattenedProblem(tensor).test_pairs(inside, deviation)
    confidence = evidence.confidence * min(1.0, split / USUAL_SPLIT)
    return replace(evidence, confidence=confidence, resolution=resolution)


def _too_many_error(means: _GroupMeans, rank: int, most: int, dimension: int) -> RankError:
    """Say that a number of components cannot be selected."""
    why = "Their sources are not independent, or too few rows show it. Pass n_components as an int."
    if means.basis is not None:
        why = "Pass more `memory`, so that all moments are added up, or n_components as an int."
    elif not means.cumulant:
        why = "Noise in the rows adds to all of a raw moment: pass moment='cumulant', or n_components as an int."
    return RankError(
        f"At most {most} components of a fourth moment of {dimension} directions can be told apart to select their "
        f"number. At least {rank} stand clear of the sampling errors. {why}",
        no_components(dimension, 4),
    )


def _core(moments: PairMoments, whitener: Whitener) -> FloatArray:
    """Return the flattening in whitened coordinates, or inside the span of W, whose frame is nearly white."""
    if moments.basis is not None:
        return moments.core
    tensor = moments.tensor(whitener, None)
    return tensor.matrix if isinstance(tensor, FlattenedTensor) else moments.core
