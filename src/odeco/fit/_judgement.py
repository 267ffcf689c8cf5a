"""How many components there are: as many as stand clear of the noise that the others leave.

Three kinds of evidence are combined.

* The unfolding says in how many directions the tensor points (`_spectrum`). That is where the fit begins.
* What a fit leaves must look like noise. The largest value on the sphere of what is left is compared with that of
  Gaussian noise of the same norm (`odeco.rank`), and as long as it is larger, one more component is fitted.
* A component must be worth its place. The weakest is left out, the others are fitted anew, and what that costs is
  compared with what the largest value of noise would have gained.

Components that are too weak to be seen leave no trace but one: the weakest of those seen are then hardly clear of the
noise themselves. `hidden_components` turns this into an expected number, and the confidence is the chance of none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from odeco._types import FloatArray
from odeco.components import Components
from odeco.fit._gauss_newton import Fit, refine
from odeco.fit._spectrum import Spectrum, spectrum_of
from odeco.fit._starts import fit_in_span, removal_costs
from odeco.norms import squared_norm
from odeco.oracle import Oracle
from odeco.rank import SIGNIFICANCE, RankEvidence, chance_of_noise, clear_height, ground_state
from odeco.search import Plan, run

#: Restarts, and the most steps, of the search for one more component in what is left.
_RESTARTS, _ITERATIONS = 12, 60
#: With so many imagined components of typical spread the spread of few components is estimated.
_PRIOR_SPREAD, _PRIOR_COUNT = math.log(2), 2


@dataclass(frozen=True, eq=False)
class Judged:
    """A fit with the number of components that the tensor itself suggests.

    Attributes
    ----------
    fit : Fit
        The components.
    evidence : RankEvidence
        Why so many.
    deviation : float
        Standard deviation of the noise at a unit vector.
    next_height : float
        The largest value of what is left, in units of √d standard deviations.
    """

    fit: Fit
    evidence: RankEvidence
    deviation: float
    next_height: float


class Judge:
    """Fits of one tensor with different numbers of components, each made once."""

    def __init__(self, oracle: Oracle, generator: np.random.Generator, *, most: int) -> None:
        self.oracle, self.generator = oracle, generator
        self.dimension, self.order, self.most = oracle.dimension, oracle.order, most
        self.whole = squared_norm(oracle, rng=generator)
        self.spectrum: Spectrum = spectrum_of(oracle, most, generator)
        self.size = math.comb(self.dimension + self.order - 1, self.order)
        self._fits: dict[int, Fit] = {}

    def fit(self, rank: int) -> Fit:
        """Return the best fit of `rank` components that is known."""
        if rank not in self._fits:
            spectrum = self.spectrum
            if rank == 0:
                none = Components(np.empty(0), np.empty((self.dimension, 0)), self.order)
                self._fits[0] = refine(self.oracle, none)
            elif rank <= min(spectrum.n_usable, spectrum.directions.shape[1]):
                strengths = np.sqrt(spectrum.eigenvalues[:rank])
                basis = spectrum.directions[:, :rank]
                self._fits[rank] = fit_in_span(self.oracle, basis, strengths, self.generator, whole=self.whole)
            else:
                self._fits[rank] = self._with_one_more(rank - 1, self.next(rank - 1))
        return self._fits[rank]

    def offer(self, found: Fit) -> None:
        """Keep a fit if it is better than the one that is known."""
        rank = found.components.n_components
        if rank not in self._fits or found.explained > self._fits[rank].explained:
            self._fits[rank] = found

    def deviation(self, rank: int, *, spare: int = 0) -> float:
        """Return the standard deviation at a unit vector of what a fit leaves.

        A component takes d degrees of freedom; one of `spare` that fit noise takes E₀² d, the square of its maximum.
        """
        misfit = max(self.whole - self.fit(rank).explained, np.finfo(np.float64).eps * self.whole)
        free = self.size - (rank - spare) * self.dimension - spare * ground_state(self.order) ** 2 * self.dimension
        return math.sqrt(misfit / max(free, 1.0))

    def exhausted(self, rank: int) -> bool:
        """Return whether a fit leaves nothing but rounding error."""
        floor = 100 * max(self.oracle.rounding, np.finfo(np.float64).eps)
        return self.whole - self.fit(rank).explained <= floor * self.whole

    def next(self, rank: int) -> Components:
        """Return the strongest single component of what a fit leaves, found by the paper's loop."""
        left = self.oracle - self.fit(rank).components
        return run(left, Plan(1, _RESTARTS, _ITERATIONS, 1e-4), rng=self.generator).components

    def height(self, amount: float, deviation: float) -> float:
        """Return a weight in units of √d standard deviations."""
        return abs(amount) / (deviation * math.sqrt(self.dimension))

    def gain(self, rank: int) -> float:
        """Return the root of what the last of `rank` components takes off the squared misfit."""
        components = self.fit(rank).components
        others = np.delete(np.arange(rank), int(np.argmin(removal_costs(components))))
        fewer = Components(components.weights[others], components.vectors[:, others], self.order)
        self.offer(refine(self.oracle, fewer, whole=self.whole))
        return math.sqrt(max(0.0, self.fit(rank).explained - self.fit(rank - 1).explained))

    def _with_one_more(self, rank: int, one: Components) -> Fit:
        return refine(self.oracle, joined(self.fit(rank).components, one), whole=self.whole)

    def add(self, rank: int, one: Components) -> None:
        """Fit one more component, started where it was found, or all anew."""
        self.offer(self._with_one_more(rank, one))
        if rank + 1 <= min(self.spectrum.n_usable, self.spectrum.directions.shape[1]):
            known = self._fits.pop(rank + 1)
            self.fit(rank + 1)
            self.offer(known)


def judge(oracle: Oracle, generator: np.random.Generator, *, most: int) -> Judged:
    """Fit as many components as the tensor suggests, at most `most`."""
    tensor = Judge(oracle, generator, most=most)
    rank = _first_guess(tensor)
    one, height = _next(tensor, rank)
    while rank < most and chance_of_noise(height, tensor.dimension, tensor.order) <= SIGNIFICANCE:
        tensor.add(rank, one)
        rank += 1
        one, height = _next(tensor, rank)
    last = tensor.height(tensor.gain(rank), tensor.deviation(rank)) if rank else 0.0
    while rank and chance_of_noise(last, tensor.dimension, tensor.order) > SIGNIFICANCE:
        rank -= 1
        last = tensor.height(tensor.gain(rank), tensor.deviation(rank)) if rank else 0.0
        one, height = _next(tensor, rank)
    return _judged(tensor, rank, one, height, last)


def _first_guess(tensor: Judge) -> int:
    """Return the rank of the unfolding, or all directions if what remains of it does not look like noise."""
    rank, deep = (min(number, tensor.most) for number in (tensor.spectrum.n_clear, tensor.spectrum.n_usable))
    if tensor.spectrum.rest_is_noise(rank) or deep <= rank:
        return rank
    won = math.sqrt(max(0.0, tensor.fit(deep).explained - tensor.fit(rank).explained) / (deep - rank))
    height = tensor.height(won, tensor.deviation(deep, spare=deep - rank))
    return deep if height > ground_state(tensor.order) else rank


def _next(tensor: Judge, rank: int) -> tuple[Components, float]:
    if tensor.exhausted(rank):
        return tensor.fit(0).components, 0.0
    one = tensor.next(rank)
    return one, tensor.height(float(one.weights[0]), tensor.deviation(rank))


def _judged(tensor: Judge, rank: int, one: Components, height: float, last: float) -> Judged:
    found = tensor.fit(rank)
    deviation = tensor.deviation(rank)
    heights = np.array([tensor.height(math.sqrt(cost), deviation) for cost in removal_costs(found.components)])
    if rank:  # the other vectors give way too, where one is left out; the weakest tells by how much
        heights *= last / np.min(heights)
    threshold = clear_height(tensor.dimension, tensor.order)
    chances = np.array([chance_of_noise(each, tensor.dimension, tensor.order) for each in (*heights, height)])
    confidence = math.exp(-hidden_components(heights, threshold)) * (1 - float(np.max(chances[:-1], initial=0.0)))
    candidates: tuple[int, ...] = (rank,)
    weights = np.concatenate([found.components.weights, one.weights[:1]])
    level = ground_state(tensor.order) * deviation * math.sqrt(tensor.dimension)
    evidence = RankEvidence(
        rank, weights, np.full(weights.size, level), chances[: weights.size], confidence, candidates
    )
    return Judged(found, evidence, deviation, height)


def hidden_components(heights: FloatArray, threshold: float) -> float:
    """Return how many components below the threshold are to be expected beside those above it.

    The logarithms of all heights are taken to be a sample of a normal law, seen where they are above the threshold. With
    the mean and the spread of the k seen (and a little prior spread, for where k is small), the chance q that one more
    lies below follows Student's law, and k q / (1 − q) lie below for k above.
    """
    if heights.size == 0:
        return 1.0
    logs = np.log(heights)
    freedom = heights.size - 1 + _PRIOR_COUNT
    spread = math.sqrt((float(np.sum((logs - logs.mean()) ** 2)) + _PRIOR_COUNT * _PRIOR_SPREAD**2) / freedom)
    distance = (float(logs.mean()) - math.log(threshold)) / (spread * math.sqrt(1 + 1 / heights.size))
    below = float(stdtr(freedom, -distance))
    return heights.size * below / (1 - below)


def joined(first: Components, second: Components) -> Components:
    """Return the components of both."""
    weights = np.concatenate([first.weights, second.weights])
    return Components(weights, np.concatenate([first.vectors, second.vectors], axis=1), first.order)
