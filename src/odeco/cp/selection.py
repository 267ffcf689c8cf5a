"""How many components there are: as many as stand clear of the noise that the others leave.

Three kinds of evidence are combined.

* The unfolding says in how many directions the tensor points (`_spectrum`). That is where the fit begins.
* What a fit leaves must look like noise. The largest value on the sphere of what is left is compared with that of
  Gaussian noise of the same norm (`odeco.cp.rank`), and as long as it is larger, one more component is fitted.
* A component must be worth its place. The weakest is left out, the others are fitted anew, and what that costs is
  compared with what the largest value of noise would have gained.

Components that are too weak to be seen leave no trace but one: the weakest of those seen are then hardly clear of the
noise themselves. `expected_undetected` turns this into an expected number, and the confidence is the chance of none.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtr

from odeco._util.types import FloatArray
from odeco.cp.gauss_newton import Fit, refine
from odeco.cp.rank import SIGNIFICANCE, SURE, NoiseLaw, RankEvidence, SymmetricNoise
from odeco.cp.spectrum import Spectra, spectrum_of
from odeco.cp.starts import fit_in_span, removal_costs
from odeco.errors import RankError
from odeco.power.schedule import Plan
from odeco.power.solver import run, zero_image_error
from odeco.tensors.components import Components
from odeco.tensors.norms import squared_norm
from odeco.tensors.oracle import Oracle

#: Restarts, and the most steps, of the search for one more component in what is left; and the residual at which it
#: ends: values err by its square, and whatever is kept is fitted anew.
_RESTARTS, _ITERATIONS, _ROUGHLY = 12, 25, 1e-2

#: One component after another is found to this residual, before all are fitted together.
_LOOP_TOLERANCE = 1e-6

#: What noise shows with a chance below this makes one look twice.
_USUAL_CHANCE = 0.1

#: With so many imagined components of typical spread the spread of few components is estimated.
_PRIOR_SPREAD, _PRIOR_COUNT = math.log(3), 2


@dataclass(frozen=True, eq=False)
class Stage:
    """What a fit is doing, for a callback.

    Attributes
    ----------
    doing : str
        What comes next, in words.
    components : Components
        The components of the best fit so far; there may be none.
    """

    doing: str
    components: Components


@dataclass(frozen=True, eq=False)
class RankSelection:
    """A fit with the number of components that the tensor itself suggests.

    Attributes
    ----------
    fit : Fit
        The components.
    evidence : RankEvidence or None
        Why so many, if the number was not given.
    deviation : float
        Standard deviation of the noise at a unit vector.
    left : {"nothing", "noise", "more"}
        What is left of the tensor: rounding error, what looks like noise, or something that noise would not show.
    """

    fit: Fit
    evidence: RankEvidence | None
    deviation: float
    left: Literal["nothing", "noise", "more"]


#: A callback for stages.
Report = Callable[[Stage], object]


class CPFits:
    """Fits of one tensor with different numbers of components, each made once."""

    def __init__(self, oracle: Oracle, generator: np.random.Generator, report: Report | None, *, max_rank: int) -> None:
        self.oracle, self.generator, self._report = oracle, generator, report
        self.dimension, self.order, self.max_rank = oracle.dimension, oracle.order, max_rank
        self.noise: NoiseLaw = SymmetricNoise(self.dimension, self.order)
        self.whole, self.spectrum = self._measured()
        self._fits: dict[int, Fit] = {}

    def _measured(self) -> tuple[float, Spectra]:
        """Return the squared norm of the tensor, and in how many directions it points."""
        whole = squared_norm(self.oracle, rng=self.generator)
        return whole, Spectra((spectrum_of(self.oracle, self.max_rank, self.generator),))

    def fit(self, rank: int) -> Fit:
        """Return the best fit of `rank` components that is known."""
        if rank not in self._fits:
            self.report(f"fitting {rank} components")
            if rank == 0:
                self._fits[0] = self.refined(self.nothing)
            elif rank <= self.spectrum.n_usable:
                self._fits[rank] = self._fit_in_span(rank)
            else:
                self._fits[rank] = self._with_one_more(rank - 1, self.next(rank - 1))
        return self._fits[rank]

    def _fit_in_span(self, rank: int) -> Fit:
        """Return a fit of `rank` components that starts in the span of as many directions."""
        (basis, strengths), *_ = self.spectrum.leading(rank)
        return fit_in_span(self.oracle, basis, strengths, self.generator, whole=self.whole)

    def refined(self, start: Components) -> Fit:
        """Move components to the nearest least-squares optimum."""
        return refine(self.oracle, start, whole=self.whole)

    def loop(self, plan: Plan, *, without: Components | None = None) -> Components:
        """Return what the paper's loop finds in the tensor, or in what components leave of it."""
        return run(self.oracle if without is None else self.oracle - without, plan, rng=self.generator).components

    def costs(self, components: Components) -> FloatArray:
        """Return by how much the squared misfit grows if a component is left out."""
        return removal_costs(components)

    def report(self, doing: str) -> None:
        """Say what comes next."""
        if self._report is not None:
            best = max(self._fits.values(), key=lambda fit: fit.explained, default=None)
            self._report(Stage(doing, self.nothing if best is None else best.components))

    def offer(self, found: Fit) -> None:
        """Keep a fit if it is better than the one that is known."""
        rank = found.components.n_components
        if rank not in self._fits or found.explained > self._fits[rank].explained:
            self._fits[rank] = found

    def deviation(self, rank: int, *, spare: int = 0) -> float:
        """Return the standard deviation at a unit vector of what a fit leaves.

        One of `spare` components that fit noise takes the square of the largest value of noise.
        """
        misfit = max(self.whole - self.fit(rank).explained, np.finfo(np.float64).eps * self.whole)
        noise = self.noise
        free = noise.n_entries - (rank - spare) * noise.freedom - spare * (noise.typical * noise.unit) ** 2
        return math.sqrt(misfit / max(free, 1.0))

    @property
    def nothing(self) -> Components:
        """No components."""
        return Components(np.empty(0), np.empty((self.dimension, 0)), self.order)

    def left(self, rank: int, chance: float) -> Literal["nothing", "noise", "more"]:
        """Return what a fit leaves, given the chance that noise shows the strongest component of it."""
        if self.exhausted(rank):
            return "nothing"
        return "noise" if chance > SIGNIFICANCE else "more"

    def exhausted(self, rank: int) -> bool:
        """Return whether a fit leaves nothing but rounding error."""
        floor = 100 * max(self.oracle.rounding, np.finfo(np.float64).eps)
        return self.whole - self.fit(rank).explained <= floor * self.whole

    def next(self, rank: int) -> Components:
        """Return the strongest single component of what a fit leaves, found by the paper's loop."""
        self.report(f"looking at what {rank} components leave")
        return self.loop(Plan(1, _RESTARTS, _ITERATIONS, _ROUGHLY), without=self.fit(rank).components)

    def height(self, amount: float, deviation: float) -> float:
        """Return a weight in the units of the law of the noise (√d standard deviations)."""
        return abs(amount) / (deviation * self.noise.unit)

    def gain(self, rank: int) -> float:
        """Return the root of what the last of `rank` components takes off the squared misfit."""
        components = self.fit(rank).components
        others = np.delete(np.arange(rank), int(np.argmin(self.costs(components))))
        fewer = Components(components.weights[others], components.vectors[:, others], self.order)
        self.offer(self.refined(fewer))
        return math.sqrt(max(0.0, self.fit(rank).explained - self.fit(rank - 1).explained))

    def _with_one_more(self, rank: int, one: Components) -> Fit:
        return self.refined(joined(self.fit(rank).components, one))

    def add(self, rank: int, one: Components) -> None:
        """Fit one more component, started where it was found, or all anew."""
        self.offer(self._with_one_more(rank, one))
        if rank + 1 <= self.spectrum.n_usable:
            known = self._fits.pop(rank + 1)
            self.fit(rank + 1)  # all anew
            self.offer(known)


def select_rank(
    oracle: Oracle,
    generator: np.random.Generator,
    *,
    max_rank: int,
    report: Report | None = None,
    fits_class: type[CPFits] = CPFits,
) -> RankSelection:
    """Fit as many components as the tensor suggests, at most `max_rank`."""
    tensor = fits_class(oracle, generator, report, max_rank=max_rank)
    rank = _first_guess(tensor)
    one, chance = _next(tensor, rank)
    while rank < max_rank and chance <= SIGNIFICANCE:
        tensor.add(rank, one)
        rank += 1
        one, chance = _next(tensor, rank)
    last = _last_height(tensor, rank)
    while rank and tensor.noise.chance(last) > SIGNIFICANCE:
        rank -= 1
        last = _last_height(tensor, rank)
        one, chance = _next(tensor, rank)
    return RankSelection(
        tensor.fit(rank), _evidence(tensor, rank, one, chance, last), tensor.deviation(rank), tensor.left(rank, chance)
    )


def fit_rank(
    oracle: Oracle,
    n_components: int,
    generator: np.random.Generator,
    *,
    report: Report | None = None,
    fits_class: type[CPFits] = CPFits,
) -> RankSelection:
    """Fit the number of components that is asked for."""
    tensor = fits_class(oracle, generator, report, max_rank=n_components)
    usable = tensor.spectrum.n_usable
    if usable < n_components and tensor.exhausted(usable):
        raise zero_image_error(n_components, tensor.fit(usable).components.sorted_by_weight())
    _, chance = _next(tensor, n_components)
    if chance <= SIGNIFICANCE and tensor.spectrum.n_clear < n_components:
        # Deep in noise, the unfolding hides orthogonal components that the loop still finds.
        tensor.report("one component after another")
        plan = Plan.default(tensor.dimension, n_components, tolerance=_LOOP_TOLERANCE)
        with contextlib.suppress(RankError):
            tensor.offer(tensor.refined(tensor.loop(plan)))
        _, chance = _next(tensor, n_components)
    return RankSelection(
        tensor.fit(n_components), None, tensor.deviation(n_components), tensor.left(n_components, chance)
    )


def _last_height(tensor: CPFits, rank: int) -> float:
    """Return what the weakest component is worth, in the units of the noise."""
    return tensor.height(tensor.gain(rank), tensor.deviation(rank)) if rank else 0.0


def _first_guess(tensor: CPFits) -> int:
    """Return the rank of the unfolding, or all directions if what remains of it does not look like noise."""
    rank, deep = (min(number, tensor.max_rank) for number in (tensor.spectrum.n_clear, tensor.spectrum.n_usable))
    if tensor.spectrum.rest_is_noise(rank) or deep <= rank:
        return rank
    won = math.sqrt(max(0.0, tensor.fit(deep).explained - tensor.fit(rank).explained) / (deep - rank))
    height = tensor.height(won, tensor.deviation(deep, spare=deep - rank))
    return deep if height > tensor.noise.typical else rank


def _next(tensor: CPFits, rank: int) -> tuple[Components, float]:
    """Return the strongest component of what is left, and the chance that noise shows one as strong."""
    if tensor.exhausted(rank):
        return tensor.nothing, 1.0
    one = tensor.next(rank)
    height = tensor.height(float(one.weights[0]), tensor.deviation(rank))
    return one, tensor.noise.chance(height)


def _evidence(tensor: CPFits, rank: int, one: Components, chance: float, last: float) -> RankEvidence:
    """Return each weight with the chance that it is noise, and how sure all of that is."""
    found, deviation = tensor.fit(rank).components, tensor.deviation(rank)
    heights = np.array([tensor.height(math.sqrt(cost), deviation) for cost in tensor.costs(found)])
    if rank:  # the other vectors give way too where one is left out; the weakest tells by how much
        heights *= last / np.min(heights)
    kept = np.array([tensor.noise.chance(height) for height in heights])
    over = float(np.max(kept, initial=0.0))
    # Where nothing is left, there is nothing for a component to hide in.
    hidden = 0.0 if tensor.exhausted(rank) else expected_undetected(heights, tensor.noise.clear)
    confidence = math.exp(-hidden) * (1 - over) * min(1.0, chance / _USUAL_CHANCE)
    confidence = 0.0 if tensor.spectrum.n_clear > rank or (chance <= SIGNIFICANCE and one.n_components) else confidence
    candidates = [rank]
    if confidence < SURE:
        candidates += [rank + 1] if rank < tensor.max_rank else []
        candidates += [rank - 1] if over > SIGNIFICANCE / 10 and rank > 1 else []
        candidates += [tensor.spectrum.n_clear] if tensor.spectrum.n_clear > rank + 1 else []
    level = tensor.noise.typical * tensor.noise.unit * deviation
    weights = np.concatenate([found.weights, one.weights])
    chances = np.concatenate([kept, [chance][: one.n_components]])
    return RankEvidence(rank, weights, np.full(weights.size, level), chances, confidence, tuple(candidates))


def expected_undetected(heights: FloatArray, threshold: float) -> float:
    """Return how many components below the threshold are to be expected beside those above it.

    The logarithms of all heights are taken to be a sample of a normal law, seen where they are above the threshold.
    With the mean and the spread of the k seen (and a little prior spread, for where k is small), the chance q that one
    more lies below follows Student's law, and k q / (1 − q) lie below for k above.
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
