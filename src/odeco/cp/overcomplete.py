"""CP fits with more components than dimensions, at order 4 and above, and their number.

The flattening of the tensor has the number of components for its rank, and `odeco.cp.subspace_power` finds them in its
span. From there all are fitted together by least squares (`odeco.cp.fit.refine`). Three tests follow, as for fewer
components (`odeco.cp.selection`):

* The fit must leave no more than the noise that the other singular values of the flattening show. If it leaves more, it
  is started again with other starts.
* What it leaves must look like noise: its largest value on the sphere is compared with that of Gaussian noise.
* A component must be worth its place. What the squared misfit gains by it, with all others fitted anew, is to first
  order the square of its weight over its standard error, in units of the variance of the noise (Wald's test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import Fit, polish, refine, strongest
from odeco.cp.rank import SIGNIFICANCE, RankEvidence
from odeco.cp.selection import USUAL_CHANCE as USUAL_CHANCE
from odeco.cp.selection import USUAL_SPLIT as USUAL_SPLIT
from odeco.cp.selection import Callback, RankSelection, Stage, evidence_of, rounding_error, what_is_left
from odeco.cp.spectrum import FEWEST_FOR_A_LAW
from odeco.cp.subspace_power import FlatteningSpectrum, largest_rank, subspace_power_method
from odeco.cp.symmetric import SymmetricProblem, standard_errors
from odeco.errors import RankError
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import flattened
from odeco.tensors.dense import DenseTensor, PackedTensor
from odeco.tensors.entries import InUnit
from odeco.tensors.flattened import FlattenedTensor
from odeco.tensors.oracle import Oracle

#: A flattening with more entries than this is not formed, and one with more rows or columns is not searched for a rank.
_MAX_ENTRIES, _MAX_ROWS = 2**27, 2000

#: Eigenvalues of the Gram matrix of the unfolding up to this multiple of the rounding error of the largest are zero.
_ROUNDING_MULTIPLE = 100.0

#: Starts of the subspace power method, and the multiple of the noise in the flattening that a good fit leaves.
_N_STARTS, _NOISE_FACTOR = 4, 1.5

#: A fit whose misfit is below this share of the squared norm is continued to the last digit.
_LITTLE = 1e-12

#: The largest number of components that are added to, or removed from, the rank of the flattening.
_MAX_CHANGES = 5


class FlattenedProblem(SymmetricProblem):
    """The least-squares fit of a tensor that is given by its flattening."""

    def __init__(self, tensor: FlattenedTensor) -> None:
        super().__init__(tensor, tensor.squared_norm())
        self.tensor, self.flattening = tensor, self
        self._misfits: dict[Components, float] = {}

    @property
    def has_entries(self) -> bool:
        """The flattening has them."""
        return True

    @cached_property
    def spectrum(self) -> FlatteningSpectrum:
        """The singular values of the flattening."""
        return FlatteningSpectrum.of(self.tensor.matrix, self.tensor.rounding)

    def misfit(self, components: Components) -> float:
        """Return ‖T − C‖² from the flattening."""
        if components not in self._misfits:
            self._misfits[components] = self.tensor.minus(components).squared_norm()
        return self._misfits[components]

    def residual(self, components: Components) -> FlattenedProblem:
        """Return the tensor minus components."""
        return FlattenedProblem(self.tensor.minus(components))

    without = residual

    def inside(self, bases: Sequence[FloatArray]) -> FlattenedProblem:
        """Return the tensor in the coordinates of an orthonormal basis."""
        return FlattenedProblem(self.tensor.within(bases[0]))

    def divided(self, scales: Sequence[FloatArray]) -> FlattenedProblem:
        """Return the tensor in coordinates that are divided by the scales."""
        return FlattenedProblem(self.tensor.divided(scales[0]))

    def _unfolding(self) -> FloatArray:
        return self.tensor.rows.unfolding(self.tensor.matrix)

    def noise_beside(self, rank: int) -> float | None:
        """Return the squared norm of the noise by the singular values after the first `rank` ones, if these are clear.

        None if the unfolding has enough eigenvalues to show it: this spectrum takes longer.
        """
        enough = self.oracle.dimension - rank >= FEWEST_FOR_A_LAW
        return None if enough or self.spectrum.n_clear < rank else self._noise_beside(rank)

    def suggested_rank(self) -> int | None:
        """Return the rank of the flattening, if it is at most d and there is noise to tell it from."""
        rank, size = self.spectrum.n_clear, self.spectrum.values.size
        return rank if rank <= self.oracle.dimension and self.spectrum.n_usable == size else None

    def start(self, rank: int, generator: np.random.Generator) -> Components | None:
        """Return what the subspace power method finds; None for few components, where other starts are faster."""
        if 2 * rank < self.oracle.dimension or self.spectrum.n_clear < rank:
            return None
        tensor = self.tensor
        return subspace_power_method(
            tensor.matrix, tensor.dimension, tensor.order, rank, generator, spectrum=self.spectrum
        )

    def _noise_beside(self, rank: int) -> float:
        free = max(1, self.tensor.columns.size - rank)
        return self.spectrum.noise_after(rank) / free * self.tensor.matrix.size

    def expected_misfit(self, rank: int) -> float:
        """Return the squared norm that noise leaves beside `rank` components, by the other singular values."""
        free = max(0.0, 1 - rank * self.oracle.dimension / self.n_entries)
        return max(rounding_error(self), _NOISE_FACTOR * self._noise_beside(rank) * free)


def flattened_problem(oracle: Oracle, flattening: FloatArray) -> tuple[FlattenedProblem, FloatArray]:
    """Return the problem of an oracle with this flattening, and a basis of its coordinates.

    The basis spans the unfolding, so that a tensor that does not depend on all directions is searched in those that it
    depends on.
    """
    dimension = oracle.dimension
    tensor = FlattenedTensor(flattening, dimension, oracle.order, rounding=oracle.rounding)
    with one_blas_thread():
        values, vectors = np.linalg.eigh(tensor.unfolding_gram())
    used = values > _ROUNDING_MULTIPLE * max(oracle.rounding, float(np.finfo(np.float64).eps)) * values[-1]
    if used.all():
        return FlattenedProblem(tensor), np.eye(dimension)
    basis = vectors[:, used]
    return FlattenedProblem(tensor.within(basis)), basis


def in_packed_coordinates(oracle: Oracle) -> Oracle:
    """Return a tensor of order 4 or more as its flattening where products are then faster: if all entries are given.

    An image reads every distinct pair of half of the indices once, instead of all entries.
    """
    given = oracle.oracle if isinstance(oracle, InUnit) else oracle
    exact = oracle.rounding <= float(np.finfo(np.float64).eps)
    if not exact or not isinstance(given, DenseTensor | PackedTensor):
        return oracle
    flattening = oracle.flattening() if max(_shape(oracle)) <= _MAX_ROWS else None
    return oracle if flattening is None else FlattenedTensor(flattening, oracle.dimension, oracle.order)


def fit_overcomplete(
    oracle: Oracle, rank: int, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection:
    """Fit a given number of components, which may be larger than the dimension."""
    n_rows, n_columns = _shape(oracle)
    if n_rows * n_columns > _MAX_ENTRIES:
        raise ValueError(
            f"At most {_MAX_ENTRIES:,} entries of a flattening are held in memory, which more components than "
            f"dimensions need. Got dimension {oracle.dimension} and order {oracle.order}, with {n_rows:,} x "
            f"{n_columns:,} of them. Pass n_components of at most {oracle.dimension}."
        )
    matrix = oracle.flattening()
    flattening = flattened(oracle.inside(np.eye(oracle.dimension))) if matrix is None else matrix
    problem, basis = flattened_problem(oracle, flattening)
    most = max(basis.shape[1], largest_rank(basis.shape[1], oracle.order))
    if rank > most:
        raise ValueError(
            f"`n_components` must be at most {most}, because the tensor depends on {basis.shape[1]} directions only. "
            f"Got {rank}."
        )
    with one_blas_thread():
        known = min(rank, problem.spectrum.n_usable)
        fit = _best_fit(problem, known, generator, callback)
        if known < rank:
            raise RankError(
                f"The tensor must have {rank} components. Its flattening has rank {known}. Pass n_components={known}; "
                "the components found are in `error.found`.",
                problem.outside([basis], fit.components).sorted_by_weight(),
            )
        _, chance = _next(problem, fit, generator)
        return _selection(problem, basis, fit, None, chance)


def select_overcomplete(
    given: SymmetricProblem, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection | None:
    """Fit the number of components that the flattening suggests.

    None if it is not larger than the dimension, or if no flattening is known.
    """
    oracle = given.oracle
    flattening = oracle.flattening() if oracle.order > 3 and max(_shape(oracle)) <= _MAX_ROWS else None
    if flattening is None:
        return None
    problem, basis = flattened_problem(oracle, flattening)
    if isinstance(given, FlattenedProblem) and basis.shape[1] == oracle.dimension:
        problem = given  # whose spectrum is computed once
    dimension, order = problem.oracle.dimension, problem.oracle.order
    most = largest_rank(dimension, order)
    rank = problem.spectrum.n_clear
    if not dimension < rank <= most:
        return None
    with one_blas_thread():
        fit = _best_fit(problem, rank, generator, callback)
        one, chance = _next(problem, fit, generator)
        for _ in range(_MAX_CHANGES):
            if chance > SIGNIFICANCE or fit.components.n_components == most:
                break
            fit = refine(problem, fit.components.joined(one))
            one, chance = _next(problem, fit, generator)
        for _ in range(_MAX_CHANGES):
            heights = heights_of(problem, fit.components, _deviation(problem, fit))
            weakest = int(np.argmin(heights))
            if problem.noise.chance(float(heights[weakest])) <= SIGNIFICANCE:
                break
            fit = refine(problem, fit.components.take(np.delete(np.arange(heights.size), weakest)))
            one, chance = _next(problem, fit, generator)
        found, misfit = fit.components, problem.misfit(fit.components)
        rank = found.n_components
        supported = problem.spectrum.n_clear == rank and misfit <= problem.expected_misfit(rank)
        exhausted, deviation = misfit <= rounding_error(problem), _deviation(problem, fit)
        heights = heights_of(problem, found, deviation)
        flags = {"exhausted": exhausted, "supported": supported}
        evidence = evidence_of(problem, found, one, chance, heights, deviation, **flags)
        if problem.spectrum.n_clear not in (rank, *evidence.candidates):
            evidence = replace(evidence, candidates=(*evidence.candidates, problem.spectrum.n_clear))
        return _selection(problem, basis, fit, evidence, chance)


def _shape(oracle: Oracle) -> tuple[int, int]:
    """Return the numbers of rows and of columns of the flattening."""
    degrees = (oracle.order // 2, oracle.order - oracle.order // 2)
    n_rows, n_columns = (math.comb(oracle.dimension + degree - 1, degree) for degree in degrees)
    return n_rows, n_columns


def _best_fit(problem: FlattenedProblem, rank: int, generator: np.random.Generator, callback: Callback | None) -> Fit:
    """Return the first fit that leaves no more than the noise in the flattening, or the best of several."""
    oracle, expected = problem.oracle, problem.expected_misfit(rank)
    best = refine(problem, no_components(oracle.dimension, oracle.order))
    best_misfit = problem.whole
    for _ in range(_N_STARTS):
        if callback is not None:
            callback(Stage(f"fitting {rank} components", best.components))
        start = subspace_power_method(
            problem.tensor.matrix, oracle.dimension, oracle.order, rank, generator, spectrum=problem.spectrum
        )
        fit = refine(problem, start)
        misfit = problem.misfit(fit.components)
        if rounding_error(problem) < misfit <= _LITTLE * problem.whole:
            fit = polish(problem, fit.components)
            misfit = problem.misfit(fit.components)
        if best.components.n_components == 0 or misfit < best_misfit:
            best, best_misfit = fit, misfit
        if best_misfit <= expected:
            break
    return best


def _next(problem: FlattenedProblem, fit: Fit, generator: np.random.Generator) -> tuple[Components, float]:
    """Return the strongest component of what a fit leaves, and the probability that noise has one as strong."""
    if problem.misfit(fit.components) <= rounding_error(problem):
        return fit.components.take([]), 1.0
    one = strongest(problem.without(fit.components), generator)
    return one, problem.noise.chance(problem.noise.height(float(one.weights[0]), _deviation(problem, fit)))


def _deviation(problem: FlattenedProblem, fit: Fit) -> float:
    squared_norm = max(problem.misfit(fit.components), rounding_error(problem))
    return problem.noise.deviation(squared_norm, fit.components.n_components)


def _selection(
    problem: FlattenedProblem, basis: FloatArray, fit: Fit, evidence: RankEvidence | None, chance: float
) -> RankSelection:
    """Return a fit in the coordinates of the whole tensor, with what it leaves."""
    outside = replace(fit, components=problem.outside([basis], fit.components))
    left = what_is_left(problem, problem.misfit(fit.components), chance)
    return RankSelection(outside, evidence, _deviation(problem, fit), left)


def heights_of(problem: SymmetricProblem, components: Components, deviation: float) -> FloatArray:
    """Return what each component is worth, in the unit of the law of the noise."""
    errors = standard_errors(components, deviation)[0]
    heights: FloatArray = np.abs(components.weights) / (errors * problem.noise.unit)
    return heights
