"""Selection of the number of components of a stream, by held-out rows.

**Cores of a block of rows.** The noise of a sample is neither white nor Gaussian, so no law of
tensors of noise is used. Components are fitted to the core of one part of the rows, with 1, 2, 3, …
of them. The other part is held out, and cut into groups. Let C be a fit and C + D the next, with
one component more. For the core T of a group,

    w(T) = ⟨T − C, D⟩ − ‖D‖²/4,

is by how much half a step from C towards C + D lowers ‖T − C‖². It is linear in T, and the groups
are independent of each other and of C and D. If half of D leads no closer to the moment, the
expectation of w is at most zero. A component that fits noise leads away: D then has nothing in
common with the moment, and w is −‖D‖²/4 on average. A whole step would require more, that D be
right within a half; where the relative error of the weight of a true component is s, w is 3/(4 s)
standard errors above zero, where it would be 1/(2 s).

Two tests decide whether w is above zero. Its mean over its standard error has Student's
distribution. And the number of groups in which it is above zero is binomial: means over many rows
are above and below their expectation equally often. A component with heavy tails, most of which
comes from few rows, varies so much between groups that its mean says little, while it is above zero
in all of them. The p-value is that of both tests together: twice the smaller one.

Components that are too weak to be detected are counted as in tensors: from how far those that are
detected are above the detection level (`expected_undetected`). That level is the larger of two. A
component with a smaller gain than that of the next component, in the rows that it was fitted to,
would not have been found there. And a component must be above zero in nearly all held-out groups:
by a standard deviation of one group. Where many components are expected below the level, one with a
moderate p-value is more likely real than not, and is kept; the evidence then states the doubt.

**Fourth moments.** The number is that of the eigenvectors of the flattening of half of the groups
of rows that the other half confirms. More components than dimensions are found by the subspace
power method and least squares (`odeco.cp.overcomplete`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, ndtr, ndtri, stdtr

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import fitted_weights, refine, removal_costs
from odeco.cp.overcomplete import fit_overcomplete
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.selection import USUAL_CHANCE, USUAL_SPLIT, CPFits, expected_undetected
from odeco.cp.spectrum import FlatteningSpectrum
from odeco.cp.subspace_power import FlattenedProblem, largest_rank, subspace_power_method
from odeco.cp.symmetric import SymmetricProblem
from odeco.cp.whitening import Whitener
from odeco.errors import RankError
from odeco.online.fourth_moment import GroupMeans, PairMoments
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import FactoredTensor, FlattenedTensor
from odeco.tensors.dense import DenseTensor, symmetrize
from odeco.tensors.oracle import Oracle

#: Groups of rows that are held out. Their spread gives the standard errors, with one degree of
#: freedom less.
N_GROUPS = 16

#: The share of a step from one fit to the next that is tested on held-out rows.
_STEP = 0.5

#: Number of further components that are tried before the search ends; twice this number while one
#: is in doubt.
_PATIENCE = 2

#: p-values above this are unremarkable.
_UNREMARKABLE = 0.1

#: The standard error of a held-out value is that of this many values of similar size together.
_POOLED = 20

#: Components must explain this share of what the leading eigenvectors do.
_LEAST_EXPLAINED = 0.5

#: Components that are tried as two, to see if there is one more.
_N_SPLITS = 3


# Cores of a block of rows -------------------------------------------------------------------------


class HeldOut:
    """Fits to one part of the rows, and their tests on the groups of the other.

    Parameters
    ----------
    fitted : array, m x … x m
        The core of the rows that components are fitted to.
    held : sequence of arrays, m x … x m
        The cores of groups of held-out rows.
    most : int
        The largest number of components.
    seed : int
        Draws the starts.
    """

    def __init__(
        self, fitted: FloatArray, held: Sequence[FloatArray], most: int, seed: int
    ) -> None:
        self.tensor = DenseTensor(symmetrize(fitted))
        self._held = [DenseTensor(symmetrize(core)) for core in held]
        problem = SymmetricProblem(self.tensor, self.tensor.squared_norm())
        self.fits = CPFits(problem, np.random.default_rng(seed), max_rank=most)
        self.most = most

    def fit(self, rank: int) -> Components:
        """Return the best fit of `rank` components to the rows for that."""
        return self.fits.fit(rank).components

    def gain(self, rank: int) -> float:
        """Return the root of what the last of `rank` components takes off the squared misfit
        there.
        """
        return math.sqrt(
            max(0.0, self.fits.fit(rank).explained - self.fits.fit(rank - 1).explained)
        )

    def worth(self, old: Components, new: Components) -> FloatArray:
        """Return w for each group: by how much half a step from one fit to another lowers the
        squared misfit.
        """
        with one_blas_thread():
            values = np.array([_inner(new, core) - _inner(old, core) for core in self._held])
        crossed = _inner(old, new)
        squared = _inner(old, old)
        distance = _inner(new, new) - 2 * crossed + squared
        return values - (crossed - squared) - _STEP / 2 * distance

    def worth_of_each(self, components: Components) -> list[FloatArray]:
        """Return w of each component: for a step to it from the others, these with weights fitted
        anew.
        """
        worth = []
        for index in range(components.n_components):
            others = np.delete(components.vectors, index, axis=1)
            weights = fitted_weights(self.fits.problem, others) if others.shape[1] else np.empty(0)
            worth.append(self.worth(Components(weights, others, components.order), components))
        return worth


def p_value(worth: FloatArray) -> float:
    """Return the p-value of w over groups, by its mean and by its signs, if there is no further
    component.
    """
    least = np.finfo(np.float64).eps * float(np.max(np.abs(worth), initial=0.0))
    error = float(np.std(worth, ddof=1)) / math.sqrt(worth.size)
    in_errors = float(np.mean(worth)) / max(error, least) if least > 0 else 0.0
    by_mean = float(stdtr(worth.size - 1, -in_errors))
    by_signs = float(bdtr(int(np.sum(worth <= 0)), worth.size, 0.5))
    return min(1.0, 2 * min(by_mean, by_signs))


class Following(NamedTuple):
    """What comes after the components that are kept.

    Attributes
    ----------
    weight, gain : float
        The weight of the next component, and the root of the decrease of the squared misfit of the
        rows that it was fitted to.
    level : float
        The gain from which on a component would have been kept.
    undetected : float
        The expected number of components below the level.
    chances : list of float
        The p-value of each number of components that was tried.
    """

    weight: float
    gain: float
    level: float
    undetected: float
    chances: list[float]

    @property
    def odds(self) -> float:
        """The odds that the number of components with the smallest p-value is right, against
        chance.

        The expected number of undetected components are the odds before the test. A p-value p < 1/e
        raises them by a factor of at most 1/(−e p ln p) (Sellke, Bayarri and Berger, The American
        Statistician 2001). Of several tests, the smallest p-value is multiplied by their number.
        """
        share = min(self.chances) * len(self.chances)
        if 0 < share < 1 / math.e:
            return self.undetected / (-math.e * share * math.log(share))
        return 0.0


def select_on_held_out(rows: HeldOut) -> tuple[RankEvidence, Components]:
    """Select the number of components of the moment; return the evidence, and their fit.

    Components with small p-values are kept, and then those that are more likely real than not.
    """
    rank, following = _kept(rows, 0)
    doubt = 0.0
    while rank and following is not None and following.odds > 1:
        doubt = max(doubt, 1 / (1 + following.odds))
        rank, following = _kept(rows, rank + 1 + int(np.argmin(following.chances)))
    found = rows.fit(rank).sorted_by_weight()
    return _evidence(rows, found, following, doubt), found


def _kept(rows: HeldOut, rank: int) -> tuple[int, Following | None]:
    """Return the number of components with small p-values, from `rank` on, and what follows them,
    if anything.
    """
    tried = rank + 1
    chances = list[float]()
    fits = rows.fits
    while tried <= rows.most and not fits.exhausted(tried - 1) and _go_on(chances):
        fits.add(
            tried - 1, fits.next(tried - 1)[0]
        )  # started where the last fit leaves most, and all anew
        chances.append(p_value(rows.worth(rows.fit(rank), rows.fit(tried))))
        if chances[-1] <= SIGNIFICANCE:
            rank = tried
            chances = []
        tried += 1
    return rank, _following(rows, rank, chances) if chances else None


def _go_on(chances: list[float]) -> bool:
    """Return whether to try one more component, given the p-values since the last that was kept."""
    in_doubt = bool(chances) and chances[-1] < _UNREMARKABLE
    return len(chances) < (2 * _PATIENCE if in_doubt else _PATIENCE)


def _following(rows: HeldOut, rank: int, chances: list[float]) -> Following:
    old = rows.fit(rank)
    new = rows.fit(rank + 1)
    gain = max(rows.gain(rank + 1), np.finfo(np.float64).tiny)
    deviation = float(np.std(rows.worth(old, new), ddof=1)) / gain
    level = max(gain, deviation / (1 - _STEP / 2))
    # A component that is kept is above the level.
    undetected = expected_undetected(np.maximum(_heights(old) / level, 1.0), 1.0)
    weakest = float(new.weights[int(np.argmin(removal_costs(SymmetricProblem(new), new)))])
    return Following(weakest, gain, level, undetected, chances)


def _evidence(
    rows: HeldOut, found: Components, following: Following | None, doubt: float
) -> RankEvidence:
    """Return the evidence for what was found; `doubt` is the probability that one of them is not
    real.
    """
    rank = found.n_components
    chances = np.array([p_value(each) for each in rows.worth_of_each(found)])
    over = max(doubt, float(np.max(chances, initial=0.0)))
    doubtful: list[int] = []
    if following is None:
        complete = rows.fits.exhausted(rank)  # else there may be more than `most`
        levels = np.zeros(rank)
        confidence = (1.0 - over) * complete
        weights = found.weights
    else:
        complete = False
        least = min(following.chances)
        confidence = math.exp(-following.undetected) * (1 - over) * min(1.0, least / _UNREMARKABLE)
        weights = np.append(found.weights, following.weight)
        levels = np.abs(weights) * (following.level / np.append(_heights(found), following.gain))
        chances = np.append(chances, least)
        doubtful = [
            rank + 1 + place
            for place, chance in enumerate(following.chances)
            if chance < _UNREMARKABLE
        ]
    confidence = confidence if rank else 0.0
    candidates = [rank]
    if confidence < SURE:
        candidates += [rank + 1] if rank < rows.most or not complete else []
        candidates += [rank - 1] if over > SIGNIFICANCE / 10 and rank > 1 else []
        candidates += [other for other in doubtful if other > rank + 1]
    return RankEvidence(rank, weights, levels, chances, confidence, tuple(candidates))


def _heights(components: Components) -> FloatArray:
    """Return for each component the root of the cost of removing it."""
    return np.sqrt(removal_costs(SymmetricProblem(components), components))


def _inner(components: Components, tensor: Oracle) -> float:
    """Return the inner product of components with a tensor."""
    if components.n_components:
        return float(components.weights @ tensor.value(components.vectors))
    return 0.0


# Fourth moments -----------------------------------------------------------------------------------


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
    """Return the number of eigenvectors of the flattening of half of the rows that the other half
    confirms.

    Their values in the other half are unbiased, because those rows had no part in their choice. The
    standard error of such a value is that of the jackknife over its groups; neighbours in the order
    of size have similar ones, and are pooled, because few groups say little. Values are tested at a
    level of `SIGNIFICANCE` divided by their number. The weights of the evidence are these values,
    in coordinates in which the second moment is the identity.

    Components have fewer unknowns than eigenvectors, so that fits of components tell more: where
    the values leave little doubt, the confidence includes the chances that one component less, or
    one more, predicts the other half as well (`_gains`).
    """
    d = whitener.forward.shape[1]
    places = np.arange(len(means.groups))
    later = places % 2 == 1  # W was chosen by the others
    eigenvalues, vectors = np.linalg.eigh(_core(means.of(~later), whitener))
    first = np.argsort(-np.abs(eigenvalues), kind="stable")
    vectors = vectors[:, first]
    signs = np.sign(eigenvalues[first])

    def held_out(moments: PairMoments) -> FloatArray:
        return np.asarray(signs * np.sum(vectors * (_core(moments, whitener) @ vectors), axis=0))

    whole, errors = means.held_out(later, held_out)
    squares = errors**2
    n_pooled = min(_POOLED, len(squares))
    window = np.ones(n_pooled)
    pooled = np.convolve(squares, window, "same") / np.convolve(
        np.ones(len(squares)), window, "same"
    )
    deviations = np.sqrt(np.maximum(pooled, squares / 4))
    rounding = (
        np.finfo(np.float64).eps
        * len(squares)
        * max(float(np.abs(whole).max()), np.finfo(np.float64).tiny)
    )
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
        confidence = math.exp(-expected_undetected(heights[clear], threshold)) * (
            1 - float(chances[clear].max())
        )
    if confidence >= SURE:
        last, following = _gains(means, whitener, rank, most, seed)
        confidence *= (1 - last) * min(1.0, following / USUAL_CHANCE)
    shown = np.argsort(chances, kind="stable")[: rank + 1]
    candidates: tuple[int, ...] = (rank,)
    if confidence < SURE:
        fewer = [rank - 1] if rank > 1 else []
        candidates = (rank, rank + 1, *fewer)
    return RankEvidence(
        rank, whole[shown], threshold * deviations[shown], chances[shown], confidence, candidates
    )


def _gains(
    means: GroupMeans, whitener: Whitener, rank: int, most: int, seed: int
) -> tuple[float, float]:
    """Return the chances that the last of `rank` components, and one more, predict held-out rows no
    better.

    Components C are fitted to half T of the rows. The gain of one more is the decrease of ‖T' − C‖²
    for the other half T', of which only ⟨T', C⟩ is not known exactly: its standard error is that of
    the jackknife over the groups. For one more, the best of several fits counts, and the chance is
    multiplied by their number.
    """
    odd = np.arange(len(means.groups)) % 2 == 1
    halves = (odd, ~odd) if means.basis is None else (odd,)  # W was chosen by rows of the others
    gains = np.zeros(2)
    for later in halves:
        seen = means.of(~later)
        tensor = seen.tensor(whitener, rank)
        fit = fit_fourth(tensor, rank, seed)
        explained = 2 * _inner(fit, tensor) - fit.squared_norm()
        squares = np.sort(np.linalg.eigvalsh(_core(seen, whitener)) ** 2)
        if explained < _LEAST_EXPLAINED * float(squares[-rank:].sum()):
            return 1.0, 1.0  # the tensor is not a sum of `rank` components
        if rank > 1:
            fewer = fit_fourth(seen.tensor(whitener, rank - 1), rank - 1, seed)
        else:
            fewer = no_components(fit.dimension, 4)
        more = _one_more(seen.tensor(whitener, rank + 1), fit, seed) if rank < most else []
        fits = [fewer, *more]
        signs = np.where(
            np.arange(len(fits)) == 0, -1.0, 1.0
        )  # the gain of the last is what the others lack
        excess = [each.squared_norm() - fit.squared_norm() for each in fits]

        def gain(
            moments: PairMoments, fit: Components = fit, fits: list[Components] = fits
        ) -> FloatArray:
            tensor = moments.tensor(whitener, rank + 1)
            overlaps = np.array([_inner(each, tensor) for each in (fit, *fits)])
            return np.asarray(overlaps[1:] - overlaps[0])

        overlaps, errors = means.held_out(later, gain)
        heights = signs * (overlaps - np.array(excess) / 2) / errors
        gains += heights[0], heights[1:].max(initial=-np.inf)
    chances = stdtr(len(halves) * (int(odd.sum()) - 1), -gains / math.sqrt(len(halves)))
    return float(chances[0]), min(1.0, (1 + _N_SPLITS) * float(chances[1]))


def _one_more(
    tensor: FlattenedTensor | FactoredTensor, fit: Components, seed: int
) -> list[Components]:
    """Return fits with one component more: by the subspace power method, and with a component as
    two.

    A fit of one component to two leaves their spread as the curvature of the residual
    (`SymmetricProblem.test_pairs`).
    """
    fits = list[Components]()
    with contextlib.suppress(RankError):  # there is no other component
        fits.append(fit_fourth(tensor, fit.n_components + 1, seed))
    residual = tensor - fit
    problem = SymmetricProblem(tensor, tensor.squared_norm())
    spreads = []
    directions = []
    for weight, vector in zip(fit.weights, fit.vectors.T, strict=True):
        across = np.eye(fit.dimension) - np.outer(vector, vector)
        values, vectors = np.linalg.eigh(
            math.copysign(1.0, weight) * (across @ residual.slice(vector) @ across)
        )
        spreads.append(float(values[-1]))
        directions.append(vectors[:, -1])
    for index in np.argsort(spreads)[::-1][:_N_SPLITS]:
        angle = min(math.sqrt(max(spreads[index], 0.0) / abs(fit.weights[index])), 1.0)
        if angle > 0:
            both = (
                fit.vectors[:, [index]] + np.array([[angle, -angle]]) * directions[index][:, None]
            )
            weights = np.append(np.delete(fit.weights, index), [fit.weights[index] / 2] * 2)
            split = Components(weights, np.hstack([np.delete(fit.vectors, index, axis=1), both]), 4)
            fits.append(refine(problem, split).components)
    return fits


def with_resolution(
    evidence: RankEvidence, means: GroupMeans, whitener: Whitener, inside: Components
) -> RankEvidence:
    """Return the evidence with the angle at which two components may count as one, in whitened
    coordinates.

    The noise is that of the values at the components, where it is largest. With W, the angle is not
    known.
    """
    tensor = means.of(np.ones(len(means.groups), bool)).tensor(whitener, None)
    if not isinstance(tensor, FlattenedTensor):
        return evidence

    def values(moments: PairMoments) -> FloatArray:
        return moments.tensor(whitener, None).value(inside.vectors)

    errors = means.held_out(np.ones(len(means.groups), bool), values)[1]
    deviation = max(
        float(np.sqrt(np.mean(errors**2))), tensor.rounding * float(np.abs(inside.weights).max())
    )
    split, resolution = FlattenedProblem(tensor).test_pairs(inside, deviation)
    confidence = evidence.confidence * min(1.0, split / USUAL_SPLIT)
    return replace(evidence, confidence=confidence, resolution=resolution)


def _too_many_error(means: GroupMeans, rank: int, most: int, dimension: int) -> RankError:
    """Say that a number of components cannot be selected."""
    why = "Their sources are not independent, or too few rows show it. Pass n_components as an int."
    if means.basis is not None:
        why = "Pass more `memory`, so that all moments are added up, or n_components as an int."
    elif not means.cumulant:
        why = (
            "Noise in the rows adds to all of a raw moment: pass moment='cumulant', or "
            "n_components as an int."
        )
    return RankError(
        f"At most {most} components of a fourth moment of {dimension} directions can be told "
        f"apart to select their number. At least {rank} stand clear of the sampling errors. {why}",
        no_components(dimension, 4),
    )


def _core(moments: PairMoments, whitener: Whitener) -> FloatArray:
    """Return the flattening in whitened coordinates, or inside the span of W, whose frame is nearly
    white.
    """
    if moments.basis is not None:
        return moments.core
    tensor = moments.tensor(whitener, None)
    if isinstance(tensor, FlattenedTensor):
        return tensor.matrix
    return moments.core
