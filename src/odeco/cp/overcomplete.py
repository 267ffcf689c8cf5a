"""CP fits with more components than dimensions, and their number.

*At order 4 and above* the flattening of the tensor has the number of components for its rank, and
`odeco.cp.subspace_power` finds them in its span. From there all are fitted together by least
squares (`odeco.cp.fit.refine`). Three tests follow, as for fewer components (`odeco.cp.selection`):

* The fit must leave no more than the noise that the other singular values of the flattening show.
  If it leaves more, it is started again with other starts.
* What it leaves must look like noise: its largest value on the sphere is compared with that of
  Gaussian noise.
* A component must be worth its place. What the squared misfit gains by it, with all others fitted
  anew, is to first order the square of its weight over its standard error, in units of the variance
  of the noise (Wald's test).

*At order 3, and for asymmetric tensors*, no matrix has the components for its range, and the starts
of `odeco.cp.fit.fit_in_span` find d of them at most. A random tensor determines up to
`CPProblem.n_identifiable` of them. Up to some share of that number, Gauss-Newton steps from random
vectors reach the components. Where they end at another optimum, a part of the components is
replaced by random vectors, and the fit goes on from there if this lowers the misfit (iterated local
search); after several failures in a row all components are drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import polish, refine, strongest, with_weights
from odeco.cp.problem import (
    Callback,
    CPProblem,
    Fit,
    Left,
    RankSelection,
    Stage,
    rounding_error,
    what_is_left,
)
from odeco.cp.rank import SIGNIFICANCE, RankEvidence
from odeco.cp.selection import evidence_of, leaves_as_many_as_it_fits
from odeco.cp.subspace_power import (
    FlattenedProblem,
    flattened_problem,
    largest_rank,
    subspace_power_method,
)
from odeco.cp.symmetric import SymmetricProblem, standard_errors
from odeco.errors import RankError
from odeco.tensors.components import Components, no_components
from odeco.tensors.coordinates import FlattenedTensor, flattened
from odeco.tensors.dense import DenseTensor, PackedTensor
from odeco.tensors.entries import InUnit
from odeco.tensors.oracle import Oracle

#: A flattening with more entries than this is not formed, and one with more rows or columns is not
#: searched for a rank.
_MAX_ENTRIES = 2**27
_MAX_ROWS = 2000

#: The largest number of starts of the subspace power method.
_N_STARTS = 4

#: A fit whose misfit is below this share of the squared norm is continued to the last digit.
_TINY = 1e-12

#: The largest number of components that are added to, or removed from, the rank of the flattening.
_MAX_CHANGES = 5


def in_packed_coordinates(oracle: Oracle) -> Oracle:
    """Return a tensor of order 4 or more as its flattening where products are then faster: if all
    entries are given.

    An image reads every distinct pair of half of the indices once, instead of all entries.
    """
    given = oracle.oracle if isinstance(oracle, InUnit) else oracle
    exact = oracle.rounding <= float(np.finfo(np.float64).eps)
    if not exact or not isinstance(given, DenseTensor | PackedTensor):
        return oracle
    flattening = oracle.flattening() if max(_shape(oracle)) <= _MAX_ROWS else None
    if flattening is None:
        return oracle
    return FlattenedTensor(flattening, oracle.dimension, oracle.order)


def fit_overcomplete(
    oracle: Oracle, rank: int, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection:
    """Fit a given number of components, which may be larger than the dimension."""
    n_rows, n_columns = _shape(oracle)
    if n_rows * n_columns > _MAX_ENTRIES:
        raise ValueError(
            f"At most {_MAX_ENTRIES:,} entries of a flattening are held in memory, which more "
            f"components than dimensions need. Got dimension {oracle.dimension} and order "
            f"{oracle.order}, with {n_rows:,} x {n_columns:,} of them. Pass n_components of at "
            f"most {oracle.dimension}."
        )
    matrix = oracle.flattening()
    flattening = flattened(oracle.inside(np.eye(oracle.dimension))) if matrix is None else matrix
    problem, basis = flattened_problem(oracle, flattening)
    most = max(basis.shape[1], largest_rank(basis.shape[1], oracle.order))
    if rank > most:
        raise ValueError(
            f"`n_components` must be at most {most}, because the tensor depends on "
            f"{basis.shape[1]} directions only. Got {rank}."
        )
    with one_blas_thread():
        known = min(rank, problem.spectrum.n_usable)
        fit = _best_fit(problem, known, generator, callback)
        if known < rank:
            raise RankError(
                f"The tensor must have {rank} components. Its flattening has rank {known}. Pass "
                f"n_components={known}; the components found are in `error.found`.",
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
    if oracle.order > 3 and max(_shape(oracle)) <= _MAX_ROWS:
        flattening = oracle.flattening()
    else:
        flattening = None
    if flattening is None:
        return None
    problem, basis = flattened_problem(oracle, flattening)
    if isinstance(given, FlattenedProblem) and basis.shape[1] == oracle.dimension:
        problem = given  # whose spectrum is computed once
    dimension = problem.oracle.dimension
    order = problem.oracle.order
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
        found = fit.components
        misfit = problem.misfit(fit.components)
        rank = found.n_components
        supported = problem.spectrum.n_clear == rank and misfit <= problem.expected_misfit(rank)
        exhausted = misfit <= rounding_error(problem)
        deviation = _deviation(problem, fit)
        heights = heights_of(problem, found, deviation)
        flags = {"exhausted": exhausted, "supported": supported}
        evidence = evidence_of(problem, found, one, chance, heights, deviation, **flags)
        if problem.spectrum.n_clear not in (rank, *evidence.candidates):
            evidence = replace(
                evidence, candidates=(*evidence.candidates, problem.spectrum.n_clear)
            )
        return _selection(problem, basis, fit, evidence, chance)


def _shape(oracle: Oracle) -> tuple[int, int]:
    """Return the numbers of rows and of columns of the flattening."""
    degrees = (oracle.order // 2, oracle.order - oracle.order // 2)
    n_rows, n_columns = (math.comb(oracle.dimension + degree - 1, degree) for degree in degrees)
    return n_rows, n_columns


def _best_fit(
    problem: FlattenedProblem, rank: int, generator: np.random.Generator, callback: Callback | None
) -> Fit:
    """Return the first fit that leaves no more than the noise in the flattening, or the best of
    several.
    """
    oracle = problem.oracle
    expected = problem.expected_misfit(rank)
    best = refine(problem, no_components(oracle.dimension, oracle.order))
    best_misfit = problem.whole
    for _ in range(_N_STARTS):
        if callback is not None:
            callback(Stage(f"fitting {rank} components", best.components))
        start = subspace_power_method(
            problem.tensor.matrix,
            oracle.dimension,
            oracle.order,
            rank,
            generator,
            spectrum=problem.spectrum,
        )
        fit = refine(problem, start)
        misfit = problem.misfit(fit.components)
        if rounding_error(problem) < misfit <= _TINY * problem.whole:
            fit = polish(problem, fit.components)
            misfit = problem.misfit(fit.components)
        if best.components.n_components == 0 or misfit < best_misfit:
            best = fit
            best_misfit = misfit
        if best_misfit <= expected:
            break
    return best


def _next(
    problem: FlattenedProblem, fit: Fit, generator: np.random.Generator
) -> tuple[Components, float]:
    """Return the strongest component of what a fit leaves, and the probability that noise has one
    as strong.
    """
    if problem.misfit(fit.components) <= rounding_error(problem):
        return fit.components.take([]), 1.0
    one = strongest(problem.without(fit.components), generator)
    return one, problem.noise.chance(
        problem.noise.height(float(one.weights[0]), _deviation(problem, fit))
    )


def _deviation(problem: FlattenedProblem, fit: Fit) -> float:
    squared_norm = max(problem.misfit(fit.components), rounding_error(problem))
    return problem.noise.deviation(squared_norm, fit.components.n_components)


def _selection(
    problem: FlattenedProblem,
    basis: FloatArray,
    fit: Fit,
    evidence: RankEvidence | None,
    chance: float,
) -> RankSelection:
    """Return a fit in the coordinates of the whole tensor, with what it leaves."""
    outside = replace(fit, components=problem.outside([basis], fit.components))
    follows_law = problem.flattening_is_noise(fit.components.n_components)
    misfit = problem.misfit(fit.components)
    left = what_is_left(problem, misfit, chance, follows_law=follows_law)
    return RankSelection(outside, evidence, _deviation(problem, fit), left)


def heights_of(problem: SymmetricProblem, components: Components, deviation: float) -> FloatArray:
    """Return what each component is worth, in the unit of the law of the noise."""
    errors = standard_errors(components, deviation)[0]
    return np.abs(components.weights) / (errors * problem.noise.unit)


#: The largest number of steps in all, from a random start, and after a perturbation.
_MAX_STEPS = 400
_START_STEPS = 80
_PERTURBED_STEPS = 30

#: With an unknown rank: the largest number of steps for each rank, the largest dimension, the
#: largest rank over it, the largest share of the variance of the entries that noise has, and the
#: factor by which one more component lowers the standard deviation if it is not of noise.
_SELECTION_STEPS = 120
_MAX_DIMENSION = 20
_MAX_RATIO = 1.5
_LITTLE_NOISE = 0.03
_FLAT = 0.7

#: The largest rank of a tensor without noise, over its dimension; and the number of steps for one
#: rank, times the dimension.
_MAX_EXACT = 2
_EXACT_STEPS = 8000

#: A matrix whose smallest eigenvalue is below this share of the largest counts as singular.
_LEAST_EIGENVALUE = 1e-6

#: The largest share of components that are replaced at once, and the number of failures after which
#: all are drawn anew.
_SHARE = 0.3
_MAX_FAILURES = 6

#: What looks like noise may still be the misfit of a bad optimum: perturbations or starts that must
#: not lower it. A bad optimum leaves a good part of a component, so one is enough where less than
#: this share of the squared norm is left.
_N_CONFIRMATIONS = 5
_HARDLY_ANY = 1e-6

#: A perturbation succeeds if it lowers the misfit to this share.
_BETTER = 0.98

#: A fit that leaves less than this share of the squared norm is continued to the last digit, and
#: its misfit is computed from the entries.
_LITTLE = 1e-10


def fit_from_random_starts(
    problem: CPProblem,
    rank: int,
    generator: np.random.Generator,
    *,
    callback: Callback | None = None,
) -> RankSelection:
    """Fit a given number of components that is larger than the dimension, or than every axis."""
    spectra = problem.spectra(problem.oracle.dimension, generator)
    used = [basis for basis, _ in spectra.leading(problem.oracle.dimension)]
    bases = [basis if basis.shape[1] < basis.shape[0] else np.eye(len(basis)) for basis in used]
    widths = [basis.shape[1] for basis in bases]
    whole = problem.has_entries and sum(widths) == problem.oracle.dimension
    core = problem if whole else problem.inside(bases)
    most = max(*widths, core.n_identifiable)
    if rank > most:
        raise ValueError(
            f"`n_components` must be at most {most}, because the tensor depends on "
            f"{' x '.join(map(str, widths))} directions only. Got {rank}."
        )
    with one_blas_thread():
        search = _Search(core, rank, generator)
        while not search.done:
            if callback is not None:
                callback(
                    Stage(
                        f"fitting {rank} components", problem.outside(bases, search.best.components)
                    )
                )
            search.advance()
    fit = replace(search.best, components=problem.outside(bases, search.best.components))
    return RankSelection(fit, None, search.deviation, search.left)


def select_exact(
    problem: SymmetricProblem, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection | None:
    """Fit the smallest number of components, at least as many as dimensions, that leaves nothing.

    It is below the number that a random tensor determines, so that the components have fewer
    unknowns than the tensor has entries: noise would be left. None if there is no such number, or
    in many dimensions, where it would take too long.
    """
    dimension = problem.oracle.dimension
    most = min(problem.n_identifiable, _MAX_EXACT * dimension)
    if dimension > _MAX_DIMENSION or not problem.has_entries or most < dimension:
        return None
    max_steps = _EXACT_STEPS // dimension
    with one_blas_thread():
        if not _suffices(problem, most, generator, max_steps).hardly_any:
            return None
        rank = dimension
        search = _suffices(problem, rank, generator, _SELECTION_STEPS, callback)
        while not search.hardly_any and rank < most:
            rank += 1
            search = _suffices(problem, rank, generator, _SELECTION_STEPS, callback)
        while search.hardly_any and rank > dimension:  # a smaller number may have been missed
            smaller = _suffices(problem, rank - 1, generator, max_steps, callback)
            if not smaller.hardly_any:
                break
            rank = rank - 1
            search = smaller
        while not (search.exhausted or search.n_steps >= 2 * max_steps):
            search.advance()
        # A larger rank would have components that are not determined.
        determined = search.exhausted and is_isolated(search.best.components)
        if determined:
            return _selection_of(problem, search)
        return None


def _suffices(
    problem: SymmetricProblem,
    rank: int,
    generator: np.random.Generator,
    max_steps: int,
    callback: Callback | None = None,
) -> _Search:
    """Return a search for an exact fit, which ends where hardly anything is left."""
    search = _Search(problem, rank, generator)
    while not search.hardly_any and search.n_steps < max_steps:
        if callback is not None:
            callback(Stage(f"fitting {rank} components", search.best.components))
        search.advance()
    return search


def select_from_random_starts(
    problem: SymmetricProblem, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection | None:
    """Fit the smallest number of components above the dimension that leaves what looks like noise.

    One more component must not lower that much. None if no number up to `_MAX_RATIO` times the
    dimension is found, or in many dimensions, where it would take too long.
    """
    dimension = problem.oracle.dimension
    most = min(problem.n_identifiable, int(_MAX_RATIO * dimension) + 1)
    if dimension > _MAX_DIMENSION or not problem.has_entries:
        return None
    found: _Search | None = None
    with one_blas_thread():
        for rank in range(dimension + 1, most + 1):
            search = _Search(problem, rank, generator, max_steps=_SELECTION_STEPS)
            while not search.done:
                if callback is not None:
                    callback(Stage(f"fitting {rank} components", search.best.components))
                search.advance()
            if found is not None and search.deviation > _FLAT * found.deviation:
                determined = is_isolated(found.best.components)
                if determined:
                    return _selection_of(problem, found)
                return None
            found = search if search.complete else None
    return None


def _selection_of(problem: SymmetricProblem, search: _Search) -> RankSelection:
    """Return what a search has found, with its evidence."""
    rank = search.best.components.n_components
    evidence = evidence_of(
        problem,
        search.best.components,
        search.largest,
        1.0 if search.exhausted else search.chance,
        heights_of(problem, search.best.components, search.deviation),
        search.deviation,
        exhausted=search.exhausted,
        supported=search.exhausted or leaves_as_many_as_it_fits(problem, rank),
    )
    return RankSelection(search.best, evidence, search.deviation, search.left)


def is_isolated(components: Components) -> bool:
    """Return whether no other components near these have the same sum: their Gauss-Newton matrix is
    not singular.

    More components than a tensor has fit it in a continuum of ways.
    """
    vectors = components.vectors
    order = components.order
    gram: FloatArray = vectors.T @ vectors
    matrix = np.einsum("ab,ij->aibj", np.eye(vectors.shape[0]), gram ** (order - 1))
    matrix += (order - 1) * np.einsum("aj,ji,bi->aibj", vectors, gram ** (order - 2), vectors)
    values = np.linalg.eigvalsh(matrix.reshape(vectors.size, vectors.size))
    return bool(values[0] > _LEAST_EIGENVALUE * values[-1])


class _Search:
    """An iterated local search for the best fit of a number of components.

    Attributes
    ----------
    best : Fit
        The best fit so far.
    chance : float
        The probability that noise has a value as large as the largest one of what the best fit
        leaves, or makes a component look like two.
    largest : Components
        The component at the largest value; none if nothing is left.
    """

    def __init__(
        self,
        problem: CPProblem,
        rank: int,
        generator: np.random.Generator,
        *,
        max_steps: int = _MAX_STEPS,
    ) -> None:
        self._problem = problem
        self._rank = rank
        self._generator = generator
        self._max_steps = max_steps
        self.largest = no_components(problem.oracle.dimension, problem.oracle.order)
        self.n_steps = 0
        self._n_failures = 0
        self._n_idle = 0
        self.best = self._start()
        self.chance = 0.0
        self.misfit = math.inf
        self._current = self.best
        self._look()

    @property
    def exhausted(self) -> bool:
        """Whether the best fit leaves nothing but rounding error."""
        return self.misfit <= rounding_error(self._problem)

    @property
    def hardly_any(self) -> bool:
        """Whether the best fit leaves hardly anything."""
        return self.misfit <= _HARDLY_ANY * self._problem.whole

    @property
    def done(self) -> bool:
        """Whether nothing is left, or what looks like noise and is not lowered any more, or the
        steps are used up.
        """
        wanted = 1 if self.hardly_any else _N_CONFIRMATIONS
        confirmed = self.chance > SIGNIFICANCE and self._n_idle >= wanted
        return self.exhausted or confirmed or self.n_steps >= self._max_steps

    @property
    def left(self) -> Left:
        """What the best fit leaves."""
        return what_is_left(self._problem, self.misfit, self.chance, follows_law=False)

    @property
    def complete(self) -> bool:
        """Whether the best fit explains far more than it would of noise."""
        variance = self._problem.whole / self._problem.noise.n_entries
        explained = self.exhausted or self.chance > SIGNIFICANCE
        return explained and self.deviation**2 <= _LITTLE_NOISE * variance

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise at a unit vector, if the best fit leaves nothing
        else.
        """
        squared_norm = max(self.misfit, rounding_error(self._problem))
        return self._problem.noise.deviation(squared_norm, self._rank)

    def advance(self) -> None:
        """Perturb the current fit, or start anew after several failures."""
        whole = self._problem.whole
        if self._n_failures == _MAX_FAILURES:
            self._n_failures = 0
            self._current = self._start()
        else:
            found = self._perturbed()
            improved = whole - found.explained < _BETTER * (whole - self._current.explained)
            self._n_failures = 0 if improved else self._n_failures + 1
            self._current = found if improved else self._current
        better = whole - self._current.explained < _BETTER * (whole - self.best.explained)
        self._n_idle = 0 if better else self._n_idle + 1
        if better:
            self.best = self._current
            self._look()

    def _start(self) -> Fit:
        shape = (self._problem.oracle.dimension, self._rank)
        return self._refined(self._generator.standard_normal(shape), _START_STEPS)

    def _perturbed(self) -> Fit:
        n_replaced = max(1, round(_SHARE * self._rank * self._generator.random()))
        kept = self._current.components.vectors[
            :, self._generator.permutation(self._rank)[n_replaced:]
        ]
        new = self._generator.standard_normal((kept.shape[0], n_replaced))
        return self._refined(np.hstack([kept, new]), _PERTURBED_STEPS)

    def _refined(self, directions: FloatArray, max_steps: int) -> Fit:
        start = with_weights(self._problem, directions, self._generator)
        fit = refine(self._problem, start, max_steps=max_steps)
        self.n_steps += max(1, len(fit.history))
        return fit

    def _look(self) -> None:
        """Look at what the best fit leaves."""
        problem = self._problem
        self.misfit = problem.whole - self.best.explained
        if self.misfit <= _LITTLE * problem.whole:
            self.best = polish(problem, self.best.components)
            self.misfit = problem.misfit(self.best.components)
        if not self.exhausted:
            self.largest = strongest(problem.without(self.best.components), self._generator)
            self.chance = problem.noise.chance(
                problem.noise.height(float(self.largest.weights[0]), self.deviation)
            )
            if (
                self.chance > SIGNIFICANCE
            ):  # a component that stands for two leaves little at any one vector
                self.chance = min(
                    self.chance, problem.test_pairs(self.best.components, self.deviation)[0]
                )
