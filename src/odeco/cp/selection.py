"""Rank selection: keep the components that stand clear of the noise that the others leave.

Three kinds of evidence are combined.

* The rank of the unfolding (`odeco.cp.spectrum.Spectra`), where the search begins.
* What a fit leaves must look like noise. The largest value of the residual on the sphere is
  compared with that of Gaussian noise of the same norm. While it is larger, one more component is
  fitted.
* A component must be worth its place. The weakest is left out, the others are fitted anew, and the
  increase of the misfit is compared with the gain that the largest value of noise would bring.

Components that are too weak to be detected leave one trace: the weakest of those detected are then
hardly clear of the noise themselves. `expected_undetected` estimates their number from this, and
the confidence includes the probability that there is none.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from operator import itemgetter

import numpy as np
from scipy.special import stdtr

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.fit import (
    CANCELLED,
    MORE_DIRECTIONS,
    SEARCH_GAIN,
    cancelled_share,
    fit_by_pencils,
    fit_from_random_vectors,
    fit_in_span,
    polish,
    polish_by_entries,
    power_limits,
    refine,
    removal_costs,
    strongest,
    with_weights,
)
from odeco.cp.problem import (
    Callback,
    CPProblem,
    Fit,
    RankSelection,
    Stage,
    rounding_error,
    what_is_left,
)
from odeco.cp.rank import SIGNIFICANCE, SURE, RankEvidence
from odeco.cp.spectrum import FEWEST_FOR_A_LAW
from odeco.errors import RankError
from odeco.power.power_method import Schedule, zero_image_error
from odeco.tensors.components import Components, no_components

#: Misfits below this share of the squared norm are computed from the entries: a difference would
#: lose their digits.
_CANCELS = 1e-6

#: Up to this number of independent entries a fit that leaves hardly anything is polished to the
#: last digit.
_FEW_ENTRIES = 5000

#: A fit that leaves more than this multiple of the noise in the unfolding is started again, at this
#: number of pencils.
_NOISE_FACTOR = 2.0
_N_PENCILS = 6

#: Pencils are tried only if the squared norm of the noise is at most this share of that of the
#: tensor.
_LITTLE_NOISE = 1e-4

#: Components that may be hidden are fitted by this number of steps, before it is known whether
#: there are any.
_QUICK_STEPS = 5

#: A rough fit ends when a step lowers the squared misfit by less than this share, and in any case
#: after this number of steps. A component is worth far more than noise if it is this multiple of
#: what noise hardly ever reaches.
_ROUGH = 1e-3
_ROUGH_STEPS = 12
_FAR = 2.0

#: One component after another is found to this residual, before all are fitted together.
_LOOP_TOLERANCE = 1e-6

#: p-values above these are unremarkable; smaller ones lower the confidence in proportion. The first
#: is for a bound on the chance of one more component, which pure noise seldom reaches; the second
#: for the chance of a pair.
USUAL_CHANCE = 0.3
USUAL_SPLIT = 0.1

#: Where it is not clear whether the strongest component of a residual is noise, a second search
#: goes on for longer.
_SECOND_GAIN = 1e-4

#: The prior of the spread of log-heights: a factor of 3.5, with the weight of half an observation.
#: So one or two components say little about the weights of others, which is the truth: they may
#: span many powers of ten.
_PRIOR_SPREAD = math.log(3.5)
_PRIOR_COUNT = 0.5


class CPFits:
    """Fits of one tensor with different numbers of components, each made once."""

    def __init__(
        self,
        problem: CPProblem,
        generator: np.random.Generator,
        callback: Callback | None = None,
        *,
        max_rank: int,
    ) -> None:
        self.problem = problem
        self.generator = generator
        self.max_rank = max_rank
        self._callback = callback
        self.noise = problem.noise
        self.whole = problem.whole
        self._floor = rounding_error(problem)
        self.spectrum = problem.spectra(max_rank, generator)
        self._fits: dict[int, Fit] = {}
        self._accurate: dict[Fit, float] = {}
        self._sharp: set[Fit] = set()

    def fit(self, rank: int) -> Fit:
        """Return the best fit of `rank` components that is known."""
        if rank not in self._fits:
            self.report(f"fitting {rank} components")
            if rank == 0:
                self._fits[0] = refine(self.problem, self.nothing)
            elif rank <= self.spectrum.n_usable:
                start = self.problem.start(rank, self.generator)
                if start is not None:
                    self._fits[rank] = refine(self.problem, start)
                if start is None or self.misfit(rank) > self._expected(rank):
                    variance = self._variance(rank)
                    leading = self.spectrum.leading(rank)
                    self.offer(fit_in_span(self.problem, rank, leading, self.generator, variance))
                self._improve(rank)
            else:
                left = self.problem.without(self.fit(rank - 1).components)
                one = strongest(left, self.generator)
                self._fits[rank] = refine(self.problem, self.fit(rank - 1).components.joined(one))
        return self._fits[rank]

    def report(self, status: str) -> None:
        """Pass the stage to the callback."""
        if self._callback is not None:
            best = max(self._fits.values(), key=lambda fit: fit.explained, default=None)
            self._callback(Stage(status, self.nothing if best is None else best.components))

    def offer(self, found: Fit) -> None:
        """Keep a fit if it is better than the one that is known."""
        rank = found.components.n_components
        if rank not in self._fits or self._misfit(found) < self._misfit(self._fits[rank]):
            self._fits[rank] = found

    def misfit(self, rank: int) -> float:
        """Return the squared norm of what a fit leaves."""
        return self._misfit(self.fit(rank))

    def _misfit(self, fit: Fit) -> float:
        """Return the squared norm of what a fit leaves: a difference, or from the entries where
        that would cancel.
        """
        difference = self.whole - fit.explained
        if difference > _CANCELS * self.whole or not self.problem.has_entries:
            return difference
        if fit not in self._accurate:
            self._accurate[fit] = self.problem.misfit(fit.components)
        return self._accurate[fit]

    def _variance(self, rank: int) -> float | None:
        """Return the variance of noise at a unit vector, if the unfolding has it beside `rank`
        clear directions.
        """
        noise = self.problem.noise_beside(rank)
        if noise is None and self.problem.has_entries and self.spectrum.n_clear >= rank:
            noise = self.spectrum.noise_after(rank)
        if noise is None:
            return None
        return noise / self.noise.n_entries

    def _expected(self, rank: int) -> float:
        """Return the squared norm that a good fit leaves at most."""
        noise = self.problem.noise_beside(rank) or self.spectrum.noise_after(rank) or 0.0
        return max(_NOISE_FACTOR * noise, self._floor)

    def _improve(self, rank: int) -> None:
        """Start again at matrix pencils if a fit leaves more than the noise in the unfolding, or
        ran out of steps.

        Pencils are for tensors with little noise, and there must be no more components than are
        clear of it.
        """
        expected = self._expected(rank)
        if (
            expected > _NOISE_FACTOR * _LITTLE_NOISE * self.whole
            or self.spectrum.n_clear < rank - 1
        ):
            return
        if self.misfit(rank) > expected:
            self.offer(polish(self.problem, self.fit(rank).components))
        if self.misfit(rank) > expected or not self.fit(rank).converged:
            leading = self.spectrum.leading(rank)
            for found in fit_by_pencils(self.problem, rank, leading, self.generator, _N_PENCILS):
                self.offer(found)

    def deviation(self, rank: int) -> float:
        """Return the standard deviation of the residual at a unit vector."""
        return self.noise.deviation(max(self.misfit(rank), self._floor), rank)

    def hidden_heights(self, rank: int, found: Fit) -> FloatArray:
        """Return the heights of components if those beyond `rank` ones fit nothing but noise; none
        if all do so.

        Where many components of similar weight are left, none is higher than the noise that the
        others look like together. So the noise is what a fit with more components leaves, where one
        that fits noise takes the square of its largest value. They fit more than noise if their
        mean height is above that of noise.
        """
        noise = self.noise
        n_more = found.components.n_components - rank
        free = noise.n_entries - rank * noise.freedom - n_more * (noise.typical * noise.unit) ** 2
        deviation = math.sqrt(max(self._misfit(found), self._floor) / max(free, 1.0))
        won = max(0.0, self.misfit(rank) - self._misfit(found))
        if self.noise.height(math.sqrt(won / n_more), deviation) <= noise.typical:
            return np.empty(0)
        return np.sqrt(removal_costs(self.problem, found.components)) / (deviation * noise.unit)

    def fit_quickly(self, rank: int, n_more: int) -> Fit:
        """Fit up to `n_more` components of what a fit leaves beside its own, by a few steps."""
        known = self.fit(rank).components
        block = self.generator.standard_normal((self.problem.oracle.dimension, 2 * n_more))
        new = power_limits(self.problem.without(known).oracle, block, max_count=n_more)
        start = with_weights(self.problem, np.hstack([known.vectors, new]), self.generator)
        return refine(self.problem, start, max_steps=_QUICK_STEPS)

    @property
    def nothing(self) -> Components:
        """No components."""
        oracle = self.problem.oracle
        return no_components(oracle.dimension, oracle.order)

    def exhausted(self, rank: int) -> bool:
        """Return whether a fit leaves nothing but rounding error."""
        return self.misfit(rank) <= self._floor

    def next(self, rank: int) -> tuple[Components, float]:
        """Return the strongest component of what a fit leaves, and the probability that noise has
        one as strong.

        There is no component if only rounding error is left.
        """
        if self.noise.n_entries <= _FEW_ENTRIES:
            self._sharpen(rank)
        if self.exhausted(rank):
            return self.nothing, 1.0
        self.report(f"looking at what {rank} components leave")
        left = self.problem.without(self.fit(rank).components)
        found = list[tuple[Components, float]]()
        for gain in (SEARCH_GAIN, _SECOND_GAIN):
            one = strongest(left, self.generator, gain)
            weight = float(one.weights[0])
            real = weight**2 > self._floor  # what may be rounding error is no component
            found.append(
                (
                    one,
                    self.noise.chance(self.noise.height(weight, self.deviation(rank)))
                    if real
                    else 1.0,
                )
            )
            if not SIGNIFICANCE < found[-1][1] < USUAL_CHANCE:  # where it is not clear, look again
                break
        if found[0][1] <= SIGNIFICANCE and self._sharpen(rank):
            return self.next(rank)
        return min(found, key=itemgetter(1))

    def _sharpen(self, rank: int) -> bool:
        """Return whether steps from the entries improve a fit that may be off by the rounding
        errors of images.
        """
        fit = self.fit(rank)
        usable = self.problem.has_entries and self.misfit(rank) <= _CANCELS * self.whole
        if rank == 0 or fit in self._sharp or not usable:
            return False
        self.offer(polish_by_entries(self.problem, fit))
        self._sharp.add(self.fit(rank))
        return self.fit(rank) is not fit

    def gain(self, rank: int) -> float:
        """Return the root of what the last of `rank` components takes off the squared misfit.

        It is 0 if that may be rounding error. Where the unfolding says that fewer components do not
        suffice, and so does a rough fit of them by far, that is enough.
        """
        components = self.fit(rank).components
        fewer = components.take(
            np.delete(np.arange(rank), int(np.argmin(removal_costs(self.problem, components))))
        )
        clear = max(self.spectrum.n_clear, self.problem.suggested_rank() or 0)
        if rank <= clear:
            rough = refine(
                self.problem,
                fewer,
                negligible=_ROUGH * self.noise.n_entries,
                max_steps=_ROUGH_STEPS,
            )
            lowered = self._misfit(rough) - self.misfit(rank)
            far = _FAR * self.noise.clear() * self.noise.unit * self.deviation(rank)
            if lowered > max(self._floor, far**2):
                return math.sqrt(lowered)
            fewer = rough.components
        else:
            self.fit(rank - 1)
        self.offer(refine(self.problem, fewer))
        if rank > clear:  # one component more may make up for rounding errors of the others
            self._sharpen(rank - 1)
        lowered = self.misfit(rank - 1) - self.misfit(rank)
        if lowered > self._floor:
            return math.sqrt(lowered)
        return 0.0

    def selection(self, rank: int, evidence: RankEvidence | None, chance: float) -> RankSelection:
        """Return the best fit of `rank` components, with what it leaves."""
        sure = evidence is not None and evidence.confidence >= SURE
        follows_law = sure or self.problem.rest_is_noise(rank, self.spectrum)
        left = what_is_left(self.problem, self.misfit(rank), chance, follows_law=follows_law)
        return RankSelection(self.fit(rank), evidence, self.deviation(rank), left)

    def add(self, rank: int, one: Components) -> None:
        """Fit one more component, started where it was found, or all anew."""
        self.offer(refine(self.problem, self.fit(rank).components.joined(one)))
        if rank + 1 <= self.spectrum.n_usable:
            known = self._fits.pop(rank + 1)
            self.fit(rank + 1)  # all anew
            self.offer(known)


def select_rank(
    problem: CPProblem,
    generator: np.random.Generator,
    *,
    max_rank: int,
    callback: Callback | None = None,
) -> RankSelection:
    """Fit the number of components that the tensor suggests, at most `max_rank`."""
    with one_blas_thread():
        fits = CPFits(problem, generator, callback, max_rank=max_rank)
        # Linearly independent components are no more than the rank of the unfolding, and others are
        # not unique.
        max_rank = min(max_rank, fits.spectrum.n_usable)
        rank = _first_guess(fits)
        one, chance = fits.next(rank)
        while rank < max_rank and chance <= SIGNIFICANCE:
            fits.add(rank, one)
            rank += 1
            one, chance = fits.next(rank)
        last = _last_height(fits, rank)
        while rank and fits.noise.chance(last) > SIGNIFICANCE:
            rank -= 1
            last = _last_height(fits, rank)
            one, chance = fits.next(rank)
        evidence = _evidence(fits, rank, one, chance, last)
        return fits.selection(rank, evidence, chance)


def fit_rank(
    problem: CPProblem,
    rank: int,
    generator: np.random.Generator,
    *,
    callback: Callback | None = None,
) -> RankSelection:
    """Fit a given number of components."""
    with one_blas_thread():
        fits = CPFits(problem, generator, callback, max_rank=rank)
        usable = fits.spectrum.n_usable
        if usable < rank and fits.exhausted(usable):
            raise zero_image_error(rank, fits.fit(usable).components.sorted_by_weight())
        fits.fit(rank)
        _, chance = fits.next(rank)
        found = fits.fit(rank).components
        if (
            chance <= SIGNIFICANCE
            and cancelled_share(problem.gram(found.vectors), found.weights) < CANCELLED
        ):
            fits.report("starting again at random vectors")
            leading = fits.spectrum.leading(rank + MORE_DIRECTIONS)
            fits.offer(fit_from_random_vectors(problem, rank, leading, generator))
            _, chance = fits.next(rank)
        if chance <= SIGNIFICANCE and fits.spectrum.n_clear < rank:
            # Deep in noise, the unfolding hides orthogonal components that the power method still
            # finds.
            fits.report("one component after another")
            plan = Schedule.default(problem.oracle.dimension, rank, tolerance=_LOOP_TOLERANCE)
            with contextlib.suppress(RankError):
                fits.offer(refine(problem, problem.run(plan, generator)))
            _, chance = fits.next(rank)
        return fits.selection(rank, None, chance)


def _last_height(fits: CPFits, rank: int) -> float:
    """Return what the weakest component is worth, in the units of the noise."""
    if rank:
        return fits.noise.height(fits.gain(rank), fits.deviation(rank))
    return 0.0


def _first_guess(fits: CPFits) -> int:
    """Return the rank of the unfolding, or more if what remains of it is not noise.

    Components that hide each other are looked for quickly. If none is found although the rest of
    the spectrum is not that of noise, all directions are fitted.
    """
    spectrum = fits.spectrum
    suggested = fits.problem.suggested_rank()
    if suggested is not None:
        return min(suggested, fits.max_rank, spectrum.n_usable)
    rank, deep = (min(number, fits.max_rank) for number in (spectrum.n_clear, spectrum.n_usable))
    if deep <= rank or (spectrum.rest_is_noise(rank) and spectrum.n_rest(rank) >= FEWEST_FOR_A_LAW):
        return rank
    # Noise would fill all directions: where some are empty, and as many components as there are
    # others leave nothing, there is none, however much the last of them look like it.
    if deep == spectrum.n_usable < max(
        each.eigenvalues.size for each in spectrum.spectra
    ) and fits.exhausted(deep):
        return deep
    heights = fits.hidden_heights(rank, fits.fit_quickly(rank, deep - rank))
    if heights.size:
        return max(rank, int(np.sum(heights > fits.noise.typical)))
    if spectrum.rest_is_noise(rank):
        return rank
    if fits.hidden_heights(rank, fits.fit(deep)).size:
        return deep
    return rank


def _evidence(fits: CPFits, rank: int, one: Components, chance: float, last: float) -> RankEvidence:
    """Return each weight with the chance that it is noise, and how sure all of that is."""
    found = fits.fit(rank).components
    deviation = fits.deviation(rank)
    n_clear = fits.spectrum.n_clear
    heights = np.array(
        [
            fits.noise.height(math.sqrt(cost), deviation)
            for cost in removal_costs(fits.problem, found)
        ]
    )
    if rank:  # the other vectors give way too where one is left out; the weakest tells by how much
        heights *= last / np.min(heights)
    exhausted = fits.exhausted(rank)
    supported = n_clear <= rank and (exhausted or leaves_as_many_as_it_fits(fits.problem, rank))
    flags = {"exhausted": exhausted, "supported": supported}
    evidence = evidence_of(fits.problem, found, one, chance, heights, deviation, **flags)
    if evidence.confidence >= SURE:
        return evidence
    others = [rank + 1] if rank < fits.max_rank else []
    others += [rank - 1] if rank > 1 and np.max(evidence.chances[:rank]) > SIGNIFICANCE / 10 else []
    others += [n_clear] if n_clear > rank + 1 else []
    return replace(evidence, candidates=(rank, *others))


def leaves_as_many_as_it_fits(problem: CPProblem, rank: int) -> bool:
    """Return whether a fit leaves at least as many numbers as it has unknowns.

    With fewer, more components without any noise may look like it.
    """
    return 2 * rank * problem.noise.freedom <= problem.noise.n_entries


def evidence_of(
    problem: CPProblem,
    found: Components,
    one: Components,
    chance: float,
    heights: FloatArray,
    deviation: float,
    *,
    exhausted: bool,
    supported: bool,
) -> RankEvidence:
    """Return each weight of a fit with the chance that it is noise, and how certain the rank is.

    Parameters
    ----------
    problem, found
        The tensor and the components of the fit.
    one, chance
        The strongest component of what the fit leaves, if any, and the probability that noise has
        one as strong.
    heights
        What each component is worth, in the unit of the law of the noise.
    deviation
        The standard deviation of the noise at a unit vector.
    exhausted, supported
        Whether the fit leaves nothing but rounding error, and whether all else agrees with the
        rank.
    """
    rank = found.n_components
    noise = problem.noise
    split, resolution = problem.test_pairs(found, deviation)
    # Where nothing is left, there is nothing for a component to hide in.
    if exhausted:
        hidden = 0.0
        split = 1.0
    else:
        hidden = expected_undetected(heights, noise.clear())
    kept = np.array([noise.chance(height) for height in heights])
    certain = math.exp(-hidden) * (1 - float(np.max(kept, initial=0.0)))
    confidence = certain * min(1.0, chance / USUAL_CHANCE, split / USUAL_SPLIT)
    testable = rank * noise.freedom < noise.n_entries  # as many unknowns as entries fit any tensor
    confidence = confidence if supported and testable and chance > SIGNIFICANCE else 0.0
    weights = np.concatenate([found.weights, one.weights])
    levels = np.full(weights.size, noise.typical * noise.unit * deviation)
    chances = np.concatenate([kept, [chance][: one.n_components]])
    candidates = (rank,) if confidence >= SURE else (rank, rank - 1, rank + 1)
    return RankEvidence(rank, weights, levels, chances, confidence, candidates, resolution)


def expected_undetected(heights: FloatArray, threshold: float) -> float:
    """Return how many components below the threshold are to be expected beside those above it.

    The logarithms of all heights are taken to be a sample of a normal law, seen where they are
    above the threshold. With the mean and the spread of the k seen (and a little prior spread, for
    where k is small), the chance q that one more lies below follows Student's law, and k q / (1 −
    q) lie below for k above.
    """
    if heights.size == 0:
        return 1.0
    logs = np.log(heights)
    freedom = heights.size - 1 + _PRIOR_COUNT
    spread = math.sqrt(
        (float(np.sum((logs - logs.mean()) ** 2)) + _PRIOR_COUNT * _PRIOR_SPREAD**2) / freedom
    )
    distance = (float(logs.mean()) - math.log(threshold)) / (
        spread * math.sqrt(1 + 1 / heights.size)
    )
    below = float(stdtr(freedom, -distance))
    return heights.size * below / (1 - below)
