"""The number of components of a fourth moment, and their fit.

More components than dimensions are found by the subspace power method and least squares (`odeco.cp.overcomplete`).
Their number is that of the eigenvectors of the flattening of half of the groups of rows that the other half confirms.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import numpy as np
from scipy.special import ndtr, ndtri, stdtr

from odeco._util.types import FloatArray
from odeco.cp.fit import refine
from odeco.cp.overcomplete import fit_overcomplete
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.selection import USUAL_CHANCE, USUAL_SPLIT, expected_undetected
from odeco.cp.spectrum import FlatteningSpectrum
from odeco.cp.subspace_power import FlattenedProblem, largest_rank, subspace_power_method
from odeco.cp.symmetric import SymmetricProblem
from odeco.cp.whitening import Whitener
from odeco.errors import RankError
from odeco.online.fourth_moment import GroupMeans, PairMoments
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import FactoredTensor, FlattenedTensor

#: The standard error of a held-out value is that of this many values of similar size together.
_POOLED = 20

#: Components must explain this share of what the leading eigenvectors do.
_LEAST_EXPLAINED = 0.5

#: Components that are tried as two, to see if there is one more.
_N_SPLITS = 3


def fit_fourth(tensor: FlattenedTensor | FactoredTensor, rank: int, seed: int) -> Components:
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


def select_fourth_rank(means: GroupMeans, whitener: Whitener, seed: int) -> RankEvidence:
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


def _gains(means: GroupMeans, whitener: Whitener, rank: int, most: int, seed: int) -> tuple[float, float]:
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
        fit = fit_fourth(tensor, rank, seed)
        explained = 2 * float(fit.weights @ tensor.value(fit.vectors)) - fit.squared_norm()
        squares = np.sort(np.linalg.eigvalsh(_core(seen, whitener)) ** 2)
        if explained < _LEAST_EXPLAINED * float(squares[-rank:].sum()):
            return 1.0, 1.0  # no sum of so few components
        fewer = (
            fit_fourth(seen.tensor(whitener, rank - 1), rank - 1, seed) if rank > 1 else no_components(fit.dimension, 4)
        )
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
        fits.append(fit_fourth(tensor, fit.n_components + 1, seed))
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


def with_resolution(evidence: RankEvidence, means: GroupMeans, whitener: Whitener, inside: Components) -> RankEvidence:
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


def _too_many_error(means: GroupMeans, rank: int, most: int, dimension: int) -> RankError:
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
