"""Likelihood steps from a start, and from the best of several.

Likelihood steps that are looked ahead along: two of them say where many would lead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from odeco._util.types import FloatArray

Model = TypeVar("Model")

#: Takes a model, and returns the next one with the mean log-likelihood of the one it was given.
Step = Callable[[Model], tuple[Model, float]]


@dataclass(frozen=True, eq=False)
class Climbed(Generic[Model]):
    """A model after likelihood steps.

    Attributes
    ----------
    model : object
        Where they ended.
    log_likelihood : float
        The mean log-likelihood before the last step, which the last can only have raised.
    n_steps : int
        How many steps were taken.
    converged : bool
        Whether the last of them raised it by less than the tolerance.
    """

    model: Model
    log_likelihood: float
    n_steps: int
    converged: bool


def climb(step: Step[Model], start: Model, *, n_steps: int, tolerance: float) -> Climbed[Model]:
    """Take likelihood steps until one raises the mean log-likelihood by less than a tolerance, or n steps are done."""
    model, before = start, float("-inf")
    for number in range(1, n_steps + 1):
        model, likelihood = step(model)
        if likelihood - before < tolerance:
            return Climbed(model, likelihood, number, True)
        before = likelihood
    return Climbed(model, before, n_steps, False)


def best_of(
    starts: Iterable[Model],
    step: Step[Model],
    *,
    n_trial_steps: int,
    n_steps: int,
    tolerance: float,
    climber: Callable[..., Climbed[Model]] = climb,
) -> Climbed[Model]:
    """Take a few steps from every start, and the rest from where the likelihood is highest then.

    The steps are those of `climb`, or of another climber with the same arguments.
    """
    trials = [climber(step, start, n_steps=n_trial_steps, tolerance=tolerance) for start in starts]
    best = max(trials, key=lambda trial: trial.log_likelihood)
    if best.converged or n_steps <= best.n_steps:
        return best
    rest = climber(step, best.model, n_steps=n_steps - best.n_steps, tolerance=tolerance)
    return Climbed(rest.model, rest.log_likelihood, best.n_steps + rest.n_steps, rest.converged)


@dataclass(frozen=True, eq=False)
class Winner(Generic[Model]):
    """The model that won a race, and the number of the start that it came from."""

    model: Model
    number: int


def race(starts: Sequence[Model], step: Step[Model], *, n_first_steps: int, tolerance: float) -> Winner[Model]:
    """Take a few steps from every start; the likelier half takes twice as many more, and so on until one is left."""

    def further(at: Climbed[Model]) -> Climbed[Model]:
        return at if at.converged else climb(step, at.model, n_steps=n_steps, tolerance=tolerance)

    n_steps = n_first_steps
    running = [(number, further(Climbed(start, float("-inf"), 0, False))) for number, start in enumerate(starts)]
    while len(running) > 1:
        running = sorted(running, key=lambda each: -each[1].log_likelihood)[: (len(running) + 1) // 2]
        if len(running) > 1:
            n_steps *= 2
            running = [(number, further(at)) for number, at in running]
    number, at = running[0]
    return Winner(at.model, number)


def climb_ahead(
    step: Step[Model],
    start: Model,
    *,
    n_steps: int,
    tolerance: float,
    coordinates: Callable[[Model], FloatArray],
    model_at: Callable[[FloatArray, Model], Model],
) -> Climbed[Model]:
    """Climb by likelihood steps, of which every third begins where the two before it point to.

    Parameters
    ----------
    step, start, n_steps, tolerance
        As for `odeco.models.engine.em.climb`; the tolerance is for one step, and looked at in every third.
    coordinates : callable
        Returns a model as a vector, in coordinates in which a step far along a line still means something.
    model_at : callable
        Takes such a vector, and a model to take the rest from, and returns a model.

    Notes
    -----
    Two steps go from z₀ by r, and from there by r + v. If they shrink by a constant factor, all further ones lead to
    z₀ + 2 a r + a² v with a about |r| / |v|. The third step is taken from there, and kept if the likelihood there is
    higher than after the first; so the likelihood never falls (Varadhan and Roland, Simple and globally convergent
    methods for accelerating the convergence of any EM algorithm, 2008, scheme S3).
    """
    model, likelihood, done = start, -math.inf, 0
    while done < n_steps:
        if n_steps - done < 3:
            model, likelihood = step(model)
            done += 1
            continue
        first, before = step(model)
        second, likelihood = step(first)
        done += 2
        if likelihood - before < tolerance:
            return Climbed(second, likelihood, done, True)
        origin, one, two = coordinates(model), coordinates(first), coordinates(second)
        along, bend = one - origin, two - 2 * one + origin
        length = max(1.0, float(np.linalg.norm(along)) / max(float(np.linalg.norm(bend)), np.finfo(float).tiny))
        reached, there = step(model_at(origin + 2 * length * along + length**2 * bend, second))
        done += 1
        model = second
        if there > likelihood:
            model, likelihood = reached, there
    return Climbed(model, likelihood, done, False)
