"""A mixture is learnt from rows: several starts on a part of them, the best by likelihood, then steps over all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from odeco._threads import one_blas_thread
from odeco._types import FloatArray
from odeco.latent.likelihood import climb, race
from odeco.latent.number_of_components import ChosenNumber, choose_number
from odeco.mixtures.gaussians import CovarianceType, Gaussians
from odeco.mixtures.moments import second_moment
from odeco.mixtures.starts import can_be_spectral, seeded_start, spectral_start, whitened_start
from odeco.mixtures.steps import step

#: Starts are tried on so many rows, or on so many for each component if that is more.
_TRIAL_ROWS, _TRIAL_ROWS_EACH = 5_000, 200
#: Seeds are drawn, and nearest centres found, among so many of these; or among so many for each component.
_SEED_ROWS, _SEED_ROWS_EACH = 2_000, 50
#: So many steps are taken from every start before the better half of them goes on.
_FIRST_STEPS = 5
#: Up to so many rows twice as many starts are tried: there they cost little, and luck counts for more.
_FEW_ROWS = 2_000
#: How many components there are is chosen with so many rows to learn from, half as many to judge by, and at most so
#: many components.
_CHOICE_ROWS, MOST_AUTOMATIC = 10_000, 50

#: Third powers of numbers with such a variance stay in the range of double precision.
_SMALLEST, _LARGEST = 1e-140, 1e140


@dataclass(frozen=True)
class LearningPlan:
    """How a mixture is learnt.

    Attributes
    ----------
    kind : {"spherical", "diag", "full"}
        What covariances may be.
    n_steps : int
        The most likelihood steps over all rows.
    tolerance : float
        Steps end when one raises the mean log-likelihood by less than this.
    regularity : float
        Every variance gets this share of the mean variance of the features.
    n_starts : int
        Starts by k-means++ that are tried beside those of the third moment.
    parallel : bool
        Whether to use all cores; the result does not depend on it.
    """

    kind: CovarianceType = "spherical"
    n_steps: int = 100
    tolerance: float = 1e-4
    regularity: float = 1e-6
    n_starts: int = 5
    parallel: bool = False


@dataclass(frozen=True, eq=False)
class Learnt:
    """A mixture that was learnt.

    Attributes
    ----------
    model : Gaussians
        The mixture, largest component first.
    log_likelihood : float
        Mean log-likelihood of the rows before the last step.
    n_steps : int
        Number of likelihood steps over all rows.
    converged : bool
        Whether the last of them gained less than the tolerance.
    start : str
        Which start was the best, in words.
    floor : float
        What was added to every variance.
    """

    model: Gaussians
    log_likelihood: float
    n_steps: int
    converged: bool
    start: str
    floor: float


def learn(rows: FloatArray, n_components: int, plan: LearningPlan, *, seed: int) -> Learnt:
    """Learn k components from rows, of which there must be at least k."""
    if len(rows) < n_components:
        raise ValueError(
            f"There must be at least as many rows as components. Got n_samples={len(rows)} and "
            f"n_components={n_components}. Pass more rows, or fewer components."
        )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # what cannot be told is said below
        moment = second_moment(rows, parallel=plan.parallel)
    if not (moment.variance == 0 or _SMALLEST < moment.variance < _LARGEST):
        raise ValueError(
            f"The variance of rows must be between {_SMALLEST:g} and {_LARGEST:g}, so that its powers can be told from "
            f"zero and are finite. It is {moment.variance:.3g}. Multiply all rows by a constant."
        )
    # Rows that are all the same have no variance: any positive one describes them.
    floor = plan.regularity * moment.variance if moment.variance > 0 else 1.0
    floor = max(floor, float(np.finfo(np.float64).tiny))
    rng = np.random.default_rng(seed)
    part = _part(rows, max(_TRIAL_ROWS, _TRIAL_ROWS_EACH * n_components), rng)

    def on_part(model: Gaussians) -> tuple[Gaussians, float]:
        return step(model, part, floor)

    starts = []
    with one_blas_thread():  # parts are small: handing them to threads takes longer than the work
        if can_be_spectral(n_components, rows.shape[1]):
            starts.append(spectral_start(rows, moment, n_components, seed=seed, parallel=plan.parallel))
            guess = climb(
                on_part, starts[0].gaussians(plan.kind, floor), n_steps=_FIRST_STEPS, tolerance=plan.tolerance
            )
            starts.append(whitened_start(part, moment, guess.model, seed=seed))
        # Where the third moment cannot help, more seeds must; and where rows are few, they cost nothing.
        n_seeded = plan.n_starts * (1 if starts and len(rows) > _FEW_ROWS else 2)
        n_seeded = 1 if n_components == 1 else max(n_seeded, 0 if starts else 1)
        fewer = max(_SEED_ROWS, _SEED_ROWS_EACH * n_components)
        starts += [seeded_start(_part(part, fewer, rng), moment, n_components, rng) for _ in range(n_seeded)]
        begun = [start.gaussians(plan.kind, floor) for start in starts]
        first = race(begun, on_part, n_first_steps=_FIRST_STEPS, tolerance=plan.tolerance)
    model, name = first.model, starts[first.number].name
    ended = climb(
        lambda model: step(model, rows, floor, parallel=plan.parallel),
        model,
        n_steps=plan.n_steps,
        tolerance=plan.tolerance,
    )
    return Learnt(largest_first(ended.model), ended.log_likelihood, ended.n_steps, ended.converged, name, floor)


def largest_first(model: Gaussians) -> Gaussians:
    """Return the same components in the order of their weights."""
    order = np.argsort(-model.weights, kind="stable")
    return Gaussians(model.weights[order], model.means[order], model.covariances[order])


def choose_n_components(rows: FloatArray, plan: LearningPlan, *, seed: int) -> ChosenNumber:
    """Choose how many components rows have, by the likelihood of rows that were not learnt from."""
    rng = np.random.default_rng(seed)
    part = _part(rows, 3 * _CHOICE_ROWS // 2, rng, shuffled=True)
    n_learnt = max(1, 2 * len(part) // 3)
    learnt_from, judged_by = part[:n_learnt], part[n_learnt:]
    if len(judged_by) < 2:
        return ChosenNumber(1, {}, clear=False)

    def score(number: int) -> FloatArray:
        return learn(learnt_from, number, replace(plan, parallel=False), seed=seed).model.about(judged_by)[1]

    return choose_number(score, most=max(1, min(MOST_AUTOMATIC, n_learnt // 5)))


def _part(rows: FloatArray, size: int, rng: np.random.Generator, *, shuffled: bool = False) -> FloatArray:
    """Return so many rows, drawn at random, or all of them if there are no more."""
    if len(rows) <= size:
        return rows[rng.permutation(len(rows))] if shuffled else rows
    drawn = rng.choice(len(rows), size, replace=False, shuffle=shuffled)
    return rows[drawn if shuffled else np.sort(drawn)]
