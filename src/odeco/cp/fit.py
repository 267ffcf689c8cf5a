"""Least-squares CP fit: all components of a tensor together, symmetric or asymmetric, through
images alone.

A tensor is a `CPProblem` (`odeco.cp.problem`). `refine` takes damped Gauss-Newton steps
(Levenberg-Marquardt) to the nearest optimum; a step costs one image of all components.
`fit_in_span` makes several starts in the span of the unfolding and returns the best fit:

* *Halfway whitened.* The unfolding of Σ λᵢ aᵢ⊗ᵖ has M Mᵀ = A (λλᵀ ∘ Gᵖ⁻¹) Aᵀ, with the Gram matrix
  G of the aᵢ. Coordinates divided by its singular values would make nearly parallel aᵢ nearly
  orthogonal, and would multiply the noise in the weakest directions by the same factor; divided by
  their square roots they do the first well enough and the second far less. Power iteration of many
  vectors there ends near components.
* *Matrix pencil.* Two random slices are A D Aᵀ and A E Aᵀ with diagonal D and E, so that the aᵢ are
  the eigenvectors of (A D Aᵀ)(A E Aᵀ)⁻¹ = A D E⁻¹ A⁻¹, whatever the signs of the weights (Harshman
  1972; Leurgans, Ross and Abel 1993). Noise mixes those whose eigenvalues are close, and of many
  components some always are.
* *Exchange.* The weakest components of the best fit so far are replaced by stronger ones in its
  residual.

None of them always succeeds, so they take turns until two fits agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.cp.problem import CPProblem, Fit
from odeco.power.steps import choose_shifts, normalise, power_step, uniform_starts
from odeco.tensors.components import Components, no_components
from odeco.tensors.oracle import Oracle

#: The largest number of accepted steps. Near the optimum of a good fit the number of correct digits
#: doubles with each.
_MAX_STEPS = 60

#: Damping: the first value, its factor after a step that failed, and after one that succeeded; a
#: fit ends at the last.
_FIRST_DAMPING = 1e-3
_MORE = 8.0
_LESS = 0.1
_MAX_DAMPING = 1e6

#: A step that lowers the squared misfit by less than this share of its mean over the entries is
#: negligible: it changes the fit by a thousandth of its standard errors.
NEGLIGIBLE = 1e-6

#: A step that is this share of the components changes only their last digit.
_LAST_DIGIT = 1e-15

#: The largest number of steps from the entries.
_MAX_POLISHES = 8

#: The largest number of starts, and for the fit from each: the largest number of steps, and what is
#: negligible.
_MAX_STARTS = 9
_START_STEPS = 40
_START_NEGLIGIBLE = 1e-3

#: Starts at random vectors: their number, the steps from each, how many of them go on, and the
#: directions of each unfolding beyond the rank among which they are looked for.
_N_RANDOM = 24
_RANDOM_STEPS = 25
_N_CONTINUED = 6
MORE_DIRECTIONS = 5

#: Components cancel each other if the squared norm of their sum is below this share of the sum of
#: their squared norms: of two with the same weight, if their rank-one tensors have a cosine below
#: −0.85.
CANCELLED = 0.15

#: Fits whose misfits differ by less than this share are the same.
_SAME = 1e-4

#: A component starts with at least this share of the largest weight, because one of weight zero
#: would never move.
_MIN_WEIGHT = 1e-2

#: Halfway whitening takes no direction for weaker than this share of the strongest.
_MIN_STRENGTH = 1e-8

#: Power iteration begins at the vectors of this number of random slices, and at as many random
#: vectors. Nearly orthogonal components are reached in about log₂ log₂ of the precision plus log₂ k
#: steps.
SLICES = 2
_POWER_STEPS = 20

#: The search for the strongest component: the numbers of its random starts and, at most, of their
#: images. It ends when the largest value has risen by less than this share over the last images.
_SEARCH_STARTS = 12
_SEARCH_IMAGES = 50
SEARCH_GAIN = 1e-2
_SEARCH_PATIENCE = 4

#: Vectors whose cosine is above this have reached, or are approaching, the same component.
_CLOSE = 0.9


def refine(
    problem: CPProblem,
    start: Components,
    *,
    negligible: float = NEGLIGIBLE,
    tolerance: float = 1e-10,
    max_steps: int = _MAX_STEPS,
) -> Fit:
    """Move components to the nearest least-squares optimum.

    A step that does not lower the misfit is repeated with more damping.

    Parameters
    ----------
    problem, start
        The tensor and the first components.
    negligible : float
        If the squared norm of the tensor is known, the fit also ends when a step lowers the squared
        misfit by less than this share of its mean over the entries.
    tolerance : float
        The fit ends when a step is shorter than this share of the components.
    max_steps : int
        The largest number of steps that succeed; the same number may fail.
    """
    with (
        one_blas_thread()
    ):  # once for all steps: each of them would set and lift the limit many times
        signs, points = problem.as_points(start)
        images = problem.image(points)
        gain = problem.gain(signs, points, images)
        damping = _FIRST_DAMPING
        history = list[float]()
        converged = points.shape[1] == 0
        for _ in range(2 * max_steps):
            if converged or len(history) == max_steps or damping > _MAX_DAMPING:
                break
            step = problem.step(signs, points, problem.descent(signs, points, images), damping)
            length = float(np.linalg.norm(step) / np.linalg.norm(points))
            tried_images = problem.image(points + step)
            tried_gain = problem.gain(signs, points + step, tried_images)
            won = tried_gain - gain
            # Between gains that differ by less than their rounding errors, the later one is taken:
            # its step is shorter.
            doubtful = 16 * problem.oracle.rounding * abs(gain)
            too_little = negligible / problem.noise.n_entries * max(0.0, problem.whole - gain)
            converged = length <= tolerance or doubtful < won <= too_little
            if won >= -doubtful:
                points = points + step
                images = tried_images
                gain = tried_gain
                damping *= _LESS
                history.append(length)
            else:
                damping *= _MORE
        components = problem.from_points(signs, points)
        residuals = problem.residuals(components, points, images)
        return Fit(components, gain, residuals, tuple(history), converged)


def fit_in_span(
    problem: CPProblem,
    rank: int,
    leading: Sequence[tuple[FloatArray, FloatArray]],
    generator: np.random.Generator,
    variance: float | None = None,
) -> Fit:
    """Return the best fit of `rank` components, started in the span of the leading directions of
    each unfolding.

    `leading` has the directions and their singular values. A fit that leaves no more in this span
    than noise of the given variance at a unit vector is taken at once.
    """
    bases = [basis for basis, _ in leading]
    scales = [_halfway(strengths) for _, strengths in leading]
    core = problem.inside(bases)
    enough = _SAME**2 * core.whole
    if (
        variance is not None
    ):  # noise in the core, without what the components fit: its mean and two standard deviations
        free = max(1, core.noise.n_entries - rank * core.noise.freedom)
        enough = max(enough, variance * (free + 2 * math.sqrt(2 * free)))

    best = Fit(
        no_components(rank, problem.oracle.order), -math.inf, np.empty(0), (), converged=False
    )
    for attempt in range(_MAX_STARTS):
        if attempt % 3 == 1:
            directions = _exchanged(core, best.components, generator)
        elif attempt % 3 == 2 or attempt == 0:
            directions = _whitened(core, rank, scales, generator)
        else:
            directions = core.pencil_vectors(rank, attempt // 3 - 1, generator)
        start = with_weights(core, directions, generator)
        found = refine(core, start, negligible=_START_NEGLIGIBLE, max_steps=_START_STEPS)
        agreed = abs(found.explained - best.explained) <= _SAME * abs(core.whole - found.explained)
        best = found if found.explained > best.explained else best
        if agreed or core.whole - best.explained <= enough:
            break
    return refine(problem, problem.outside(bases, best.components))


def fit_from_random_vectors(
    problem: CPProblem,
    rank: int,
    leading: Sequence[tuple[FloatArray, FloatArray]],
    generator: np.random.Generator,
) -> Fit:
    """Return the best fit that starts at random vectors in the span of the leading directions
    (successive halving).

    A tensor that is far from every sum of `rank` components has many optima. From those that power
    iteration and pencils lead to, weights may grow without bound, while others fit better.
    """
    bases = [basis for basis, _ in leading]
    core = problem.inside(bases)
    fits = []
    for _ in range(_N_RANDOM):
        start = with_weights(
            core, generator.standard_normal((core.oracle.dimension, rank)), generator
        )
        fits.append(refine(core, start, negligible=_START_NEGLIGIBLE, max_steps=_RANDOM_STEPS))
    fits.sort(key=lambda fit: fit.explained, reverse=True)
    continued = [
        refine(core, fit.components, negligible=_START_NEGLIGIBLE, max_steps=_START_STEPS)
        for fit in fits[:_N_CONTINUED]
    ]
    best = max(continued, key=lambda fit: fit.explained)
    return refine(problem, problem.outside(bases, best.components))


def fit_by_pencils(
    problem: CPProblem,
    rank: int,
    leading: Sequence[tuple[FloatArray, FloatArray]],
    generator: np.random.Generator,
    n_pencils: int,
) -> list[Fit]:
    """Return the fits that start at random matrix pencils in the span of the leading directions.

    Where there is hardly any noise, a pencil gives all components at once, however different their
    weights are, or however close some of their vectors.
    """
    bases = [basis for basis, _ in leading]
    core = problem.inside(bases)
    fits = []
    for attempt in range(n_pencils):
        vectors = core.normalised(core.pencil_vectors(rank, attempt, generator), generator)
        start = Components(fitted_weights(core, vectors), vectors, core.oracle.order)
        if np.all(start.weights != 0):
            fits.append(polish(problem, problem.outside(bases, start)))
    return fits


def polish(problem: CPProblem, start: Components) -> Fit:
    """Move components to the nearest optimum, to the last digit."""
    return refine(problem, start, negligible=0.0, tolerance=_LAST_DIGIT)


def polish_by_entries(problem: CPProblem, fit: Fit) -> Fit:
    """Return a fit after steps whose gradient is that of the residual tensor, formed from the
    entries.

    Images of the tensor and of the components differ by rounding errors of their own size, which
    nearly collinear components magnify by the condition number of H. Rounding errors of the
    residual tensor act as noise in its entries does, and are magnified by its root only. Steps are
    not damped: one along a curved valley raises the misfit until the next one corrects it. The best
    of all is returned.
    """
    signs, points = problem.as_points(fit.components)
    components = fit.components
    best = fit
    history = list(fit.history)
    misfit = least = problem.misfit(components)
    n_idle = 0
    while misfit > 0 and n_idle < 2 and len(history) < len(fit.history) + _MAX_POLISHES:
        # In points of weight 1 no weight occurs in H: very different ones do not make it
        # ill-conditioned.
        scale = np.abs(components.weights) ** (1 / components.order)
        unit = points / scale
        descent = signs * problem.residual(components).image(unit)
        step = problem.step(signs, unit, descent, 0.0) / scale ** (components.order - 1)
        points = points + step
        history.append(float(np.linalg.norm(step) / np.linalg.norm(points)))
        components = problem.from_points(signs, points)
        misfit = problem.misfit(components)
        n_idle = 0 if misfit < 0.5 * least else n_idle + 1
        if misfit < least:
            images = problem.image(points)
            residuals = problem.residuals(components, points, images)
            best = Fit(
                components,
                problem.gain(signs, points, images),
                residuals,
                tuple(history),
                converged=True,
            )
            least = misfit
    return best


def _halfway(strengths: FloatArray) -> FloatArray:
    """Return the scales that whiten directions with these strengths halfway."""
    scales: FloatArray = np.sqrt(np.maximum(strengths / strengths[0], _MIN_STRENGTH))
    return scales


def _whitened(
    core: CPProblem, rank: int, scales: Sequence[FloatArray], generator: np.random.Generator
) -> FloatArray:
    """Return the limits of power iteration of many vectors, in coordinates that are whitened
    halfway.
    """
    whitened = core.divided(scales)
    slices = [whitened.slice_vectors(rank, generator) for _ in range(SLICES)]
    block = np.hstack([*slices, generator.standard_normal((core.oracle.dimension, SLICES * rank))])
    distinct = power_limits(whitened.oracle, block, max_count=rank)
    filled = np.hstack([distinct, slices[0][:, : rank - distinct.shape[1]]])
    return np.concatenate(scales)[:, None] * filled


def _exchanged(
    core: CPProblem, components: Components, generator: np.random.Generator
) -> FloatArray:
    """Return vectors of components with the weakest replaced by stronger ones in what they
    leave.
    """
    rank = components.n_components
    left = core.without(components)
    block = generator.standard_normal((core.oracle.dimension, 2 * SLICES * rank))
    new = power_limits(left.oracle, block, max_count=rank)
    gains = np.abs(left.values(new))
    costs = removal_costs(core, components)
    weakest = np.argsort(costs)
    count = max(1, int(np.sum(gains > np.sqrt(costs[weakest[: gains.size]]))))
    return np.hstack([np.delete(components.vectors, weakest[:count], axis=1), new[:, :count]])


def strongest(
    problem: CPProblem, generator: np.random.Generator, gain: float = SEARCH_GAIN
) -> Components:
    """Return the strongest component that power iteration of several random vectors finds.

    It ends when the largest value has risen by less than the share `gain` over the last images.
    Values err by the square of the error of a vector, and a component that is kept is fitted anew.
    """
    oracle = problem.oracle
    order = problem.oracle.order
    block = uniform_starts(generator, oracle.parts, _SEARCH_STARTS)
    signs = np.ones(_SEARCH_STARTS)
    shifts = np.zeros(_SEARCH_STARTS)
    values = np.zeros(_SEARCH_STARTS)
    best = []
    for n_images in range(1, _SEARCH_IMAGES + 1):
        images = oracle.image(block)
        before = values
        values = np.einsum("il,il->l", block, images)
        signs, shifts = choose_shifts(
            signs,
            shifts,
            before,
            values,
            order=order,
            n_images=n_images,
            may_shift=True,
            rounding=oracle.rounding,
        )
        best.append(float(np.max(signs * values)))
        if n_images > _SEARCH_PATIENCE and best[-1] <= (1 + gain) * best[-1 - _SEARCH_PATIENCE]:
            break
        block = power_step(block, images, signs, shifts, oracle.parts)
    vector = block[:, [int(np.argmax(signs * values))]]
    return Components(problem.values(vector), vector, order)


def power_limits(oracle: Oracle, block: FloatArray, *, max_count: int) -> FloatArray:
    """Return the different limits of vectors under power iteration, at most `max_count`, largest
    values first.
    """
    block = normalise(block, oracle.parts, block)
    for _ in range(_POWER_STEPS):
        block = normalise(oracle.image(block), oracle.parts, block)
    block = block[:, np.argsort(-np.abs(oracle.value(block)), kind="stable")]
    pieces = np.split(block, np.cumsum(oracle.parts)[:-1])
    close = np.logical_and.reduce(
        [np.abs(piece.T @ piece) * len(pieces) > _CLOSE for piece in pieces]
    )
    kept: list[int] = []
    for index in range(block.shape[1]):
        if len(kept) < max_count and not np.any(close[index, kept]):
            kept.append(index)
    return block[:, kept]


def with_weights(
    problem: CPProblem, directions: FloatArray, generator: np.random.Generator
) -> Components:
    """Return components in given directions with the weights that fit best, none of them too small
    to move.
    """
    vectors = problem.normalised(directions, generator)
    weights = fitted_weights(problem, vectors)
    least = _MIN_WEIGHT * max(float(np.max(np.abs(weights))), np.finfo(np.float64).tiny)
    weights = np.where(weights < 0, np.minimum(weights, -least), np.maximum(weights, least))
    return Components(weights, vectors, problem.oracle.order)


def fitted_weights(problem: CPProblem, vectors: FloatArray) -> FloatArray:
    """Return the weights that fit best for given unit vectors."""
    with one_blas_thread():
        weights: FloatArray = scipy.linalg.lstsq(
            problem.gram(vectors), problem.values(vectors), cond=1e-12
        )[0]
    return weights


def removal_costs(problem: CPProblem, components: Components) -> FloatArray:
    """Return by how much the squared misfit grows if a component is left out and the other weights
    are fitted anew.

    With the Gram matrix Γ of the rank-one tensors of the components, it is λᵢ² over the diagonal of
    Γ⁻¹.
    """
    with one_blas_thread():
        inverse = np.linalg.pinv(problem.gram(components.vectors), hermitian=True)
    return components.weights**2 / np.diagonal(inverse)


def cancelled_share(gram: FloatArray, weights: FloatArray) -> float:
    """Return the squared norm of a sum of components over the sum of their squared norms: the least
    of pairs and all.

    `gram` has the inner products of their rank-one tensors. The share is 1 if they are orthogonal,
    and tends to 0 in a fit that diverges: components with ever larger weights then cancel each
    other ever more closely.
    """
    if weights.size == 0:
        return 1.0
    inner = weights[:, None] * weights * gram
    sums = np.add.outer(np.diagonal(inner), np.diagonal(inner))
    return float(min(np.min((sums + 2 * inner) / sums), np.sum(inner) / np.trace(inner)))


def real_eigenvectors(matrix: FloatArray) -> FloatArray:
    """Return eigenvectors, of which noise makes pairs of complex ones. Each pair spans two real
    directions.
    """
    vectors = np.linalg.eig(matrix)[1]
    return np.where(np.signbit(vectors.imag), vectors.real - vectors.imag, vectors.real)
