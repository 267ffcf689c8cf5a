"""CP fits with more components than dimensions, symmetric of order 3 or asymmetric: random starts, and perturbation.

No matrix has the components of such a tensor for its range, and the starts of `odeco.cp.fit.fit_in_span` find d of them
at most. A random tensor determines up to `CPProblem.n_identifiable` of them. Up to some share of that number,
Gauss-Newton steps (`odeco.cp.fit.refine`) from random vectors reach the components. Where they end at another optimum,
a part of the components is replaced by random vectors, and the fit goes on from there if this lowers the misfit
(iterated local search); after several failures in a row all components are drawn anew.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import Fit, polish, refine, strongest, with_weights
from odeco.cp.overcomplete import heights_of
from odeco.cp.problem import CPProblem
from odeco.cp.rank import SIGNIFICANCE
from odeco.cp.selection import Callback, Left, RankSelection, Stage, evidence_of, rounding_error, what_is_left
from odeco.cp.symmetric import SymmetricProblem
from odeco.tensors.components import Components, no_components

#: The largest number of steps in all, from a random start, and after a perturbation.
_MAX_STEPS, _START_STEPS, _PERTURBED_STEPS = 400, 80, 30

#: With an unknown rank: the largest number of steps for each rank, the largest dimension, the largest rank over it, the
#: largest share of the variance of the entries that noise has, and the factor by which one more component lowers the
#: standard deviation if it is not of noise.
_SELECTION_STEPS, _MAX_DIMENSION, _MAX_RATIO, _LITTLE_NOISE, _FLAT = 120, 20, 1.5, 0.03, 0.7

#: A matrix whose smallest eigenvalue is below this share of the largest counts as singular.
_LEAST_EIGENVALUE = 1e-6

#: The largest share of components that are replaced at once, and the number of failures after which all are drawn anew.
_SHARE, _MAX_FAILURES = 0.3, 6

#: What looks like noise may still be the misfit of a bad optimum: perturbations or starts that must not lower it. A bad
#: optimum leaves a good part of a component, so one is enough where less than this share of the squared norm is left.
_N_CONFIRMATIONS, _HARDLY_ANY = 5, 1e-6

#: A perturbation succeeds if it lowers the misfit to this share.
_BETTER = 0.98

#: A fit that leaves less than this share of the squared norm is continued to the last digit, and its misfit is computed
#: from the entries.
_LITTLE = 1e-10


def fit_from_random_starts(
    problem: CPProblem, rank: int, generator: np.random.Generator, *, callback: Callback | None = None
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
                callback(Stage(f"fitting {rank} components", problem.outside(bases, search.best.components)))
            search.advance()
    fit = replace(search.best, components=problem.outside(bases, search.best.components))
    return RankSelection(fit, None, search.deviation, search.left)


def select_from_random_starts(
    problem: SymmetricProblem, generator: np.random.Generator, *, callback: Callback | None = None
) -> RankSelection | None:
    """Fit the smallest number of components above the dimension that leaves nothing, or what looks like noise.

    What looks like noise must not be lowered much by one more component. None if no number up to `_MAX_RATIO` times the
    dimension is found, or in many dimensions, where it would take too long.
    """
    dimension = problem.oracle.dimension
    most = min(problem.n_identifiable, int(_MAX_RATIO * dimension) + 1)
    if dimension > _MAX_DIMENSION or not problem.has_entries:
        return None
    previous: _Search | None = None
    with one_blas_thread():
        for rank in range(dimension + 1, most + 1):
            search = _Search(problem, rank, generator, max_steps=_SELECTION_STEPS)
            while not search.done:
                if callback is not None:
                    callback(Stage(f"fitting {rank} components", search.best.components))
                search.advance()
            found = search if search.exhausted else previous
            if found is not None and (search.exhausted or search.deviation > _FLAT * found.deviation):
                if not is_isolated(found.best.components):
                    return None
                fit, chance = found.best, 1.0 if found.exhausted else found.chance
                # A larger rank would have components that are not determined.
                flags = {"exhausted": found.exhausted, "supported": True}
                heights = heights_of(problem, fit.components, found.deviation)
                evidence = evidence_of(
                    problem, fit.components, found.largest, chance, heights, found.deviation, **flags
                )
                return RankSelection(fit, evidence, found.deviation, found.left)
            previous = search if search.complete else None
    return None


def is_isolated(components: Components) -> bool:
    """Return whether no other components near these have the same sum: their Gauss-Newton matrix is not singular.

    More components than a tensor has fit it in a continuum of ways.
    """
    vectors, order = components.vectors, components.order
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
        The probability that noise has a value as large as the largest one of what the best fit leaves, or makes a
        component look like two.
    largest : Components
        The component at the largest value; none if nothing is left.
    """

    def __init__(
        self, problem: CPProblem, rank: int, generator: np.random.Generator, *, max_steps: int = _MAX_STEPS
    ) -> None:
        self._problem, self._rank, self._generator, self._max_steps = problem, rank, generator, max_steps
        self.largest = no_components(problem.oracle.dimension, problem.oracle.order)
        self._n_steps, self._n_failures, self._n_idle = 0, 0, 0
        self.best, self.chance, self._misfit = self._start(), 0.0, math.inf
        self._current = self.best
        self._look()

    @property
    def exhausted(self) -> bool:
        """Whether the best fit leaves nothing but rounding error."""
        return self._misfit <= rounding_error(self._problem)

    @property
    def done(self) -> bool:
        """Whether nothing is left, or what looks like noise and is not lowered any more, or the steps are used up."""
        wanted = 1 if self._misfit <= _HARDLY_ANY * self._problem.whole else _N_CONFIRMATIONS
        confirmed = self.left == "noise" and self._n_idle >= wanted
        return self.exhausted or confirmed or self._n_steps >= self._max_steps

    @property
    def left(self) -> Left:
        """What the best fit leaves."""
        return what_is_left(self._problem, self._misfit, self.chance)

    @property
    def complete(self) -> bool:
        """Whether the best fit explains far more than it would of noise."""
        variance = self._problem.whole / self._problem.n_entries
        return self.left != "more" and self.deviation**2 <= _LITTLE_NOISE * variance

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise at a unit vector, if the best fit leaves nothing else."""
        squared_norm = max(self._misfit, rounding_error(self._problem))
        return self._problem.noise.deviation(squared_norm, self._rank)

    def advance(self) -> None:
        """Perturb the current fit, or start anew after several failures."""
        whole = self._problem.whole
        if self._n_failures == _MAX_FAILURES:
            self._n_failures, self._current = 0, self._start()
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
        kept = self._current.components.vectors[:, self._generator.permutation(self._rank)[n_replaced:]]
        new = self._generator.standard_normal((kept.shape[0], n_replaced))
        return self._refined(np.hstack([kept, new]), _PERTURBED_STEPS)

    def _refined(self, directions: FloatArray, max_steps: int) -> Fit:
        start = with_weights(self._problem, directions, self._generator)
        fit = refine(self._problem, start, max_steps=max_steps)
        self._n_steps += max(1, len(fit.history))
        return fit

    def _look(self) -> None:
        """Look at what the best fit leaves."""
        problem = self._problem
        self._misfit = problem.whole - self.best.explained
        if self._misfit <= _LITTLE * problem.whole:
            self.best = polish(problem, self.best.components)
            self._misfit = problem.misfit(self.best.components)
        if not self.exhausted:
            self.largest = strongest(problem.without(self.best.components), self._generator)
            self.chance = problem.noise.chance(problem.noise.height(float(self.largest.weights[0]), self.deviation))
            if self.chance > SIGNIFICANCE:  # a component that stands for two leaves little at any one vector
                self.chance = min(self.chance, problem.test_pairs(self.best.components, self.deviation)[0])
