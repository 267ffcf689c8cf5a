"""Expectation-maximisation: plain, with SQUAREM, and with several starts, of which successive
halving selects one.

All functions take an EM step: it maps parameters to the next ones, and returns with them the mean
log-likelihood of the parameters that it was given. They know nothing else about a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from odeco._util.stages import LOG
from odeco._util.types import FloatArray

Params = TypeVar("Params")

#: Takes parameters, and returns the next ones with the mean log-likelihood of those it was given.
Step = Callable[[Params], tuple[Params, float]]


@dataclass(frozen=True, eq=False)
class EMResult(Generic[Params]):
    """Parameters after EM iterations.

    Attributes
    ----------
    params : object
        The parameters after the last iteration.
    log_likelihood : float
        The mean log-likelihood before the last iteration, which can only have raised it; without
        one, of the start.
    n_iter : int
        Number of iterations.
    converged : bool
        Whether the last iteration raised the mean log-likelihood by less than the tolerance.
    """

    params: Params
    log_likelihood: float = -math.inf
    n_iter: int = 0
    converged: bool = False


def em(step: Step[Params], start: Params, *, max_iter: int, tol: float) -> EMResult[Params]:
    """Iterate until the mean log-likelihood rises by less than `tol`, or for `max_iter`
    iterations.
    """
    params, before = start, -math.inf
    for n_iter in range(1, max_iter + 1):
        LOG.debug("EM iteration %d", n_iter)
        params, likelihood = step(params)
        if likelihood - before < tol:
            return EMResult(params, likelihood, n_iter, True)
        before = likelihood
    return EMResult(params, before, max_iter, False)


def squarem(
    step: Step[Params],
    start: Params,
    *,
    max_iter: int,
    tol: float,
    to_vector: Callable[[Params], FloatArray],
    from_vector: Callable[[FloatArray, Params], Params],
) -> EMResult[Params]:
    """EM with SQUAREM extrapolation: every third iteration starts where the two before it point to.

    Parameters
    ----------
    step, start, max_iter
        As for `em`.
    tol : float
        EM ends when all further iterations together would raise the mean log-likelihood by less, if
        their gains shrink as they do now.
    to_vector : callable
        Returns parameters as a vector, in coordinates in which a long step along a line still gives
        parameters.
    from_vector : callable
        Takes such a vector, and parameters for what the vector does not hold; returns parameters.

    Notes
    -----
    Two iterations move z₀ by r, and then by r + v. If they shrink by a constant factor, all further
    ones lead to z₀ + 2 a r + a² v with a about |r| / |v|. The third iteration starts there. Its
    result is used if the likelihood there is higher than after the first, so the likelihood never
    falls (Varadhan and Roland, *Simple and globally convergent methods for accelerating the
    convergence of any EM algorithm*, 2008, scheme S3).
    """
    if not max_iter:
        return EMResult(start, step(start)[1])
    params, likelihood, done = start, -math.inf, 0
    while done < max_iter:
        LOG.debug("EM iteration %d", done + 1)
        if max_iter - done < 3:
            params, likelihood = step(params)
            done += 1
            continue
        first, before = step(params)
        second, likelihood = step(first)
        done += 2
        origin, one, two = to_vector(params), to_vector(first), to_vector(second)
        along, bend = one - origin, two - 2 * one + origin
        length = max(
            1.0,
            float(np.linalg.norm(along)) / max(float(np.linalg.norm(bend)), np.finfo(float).tiny),
        )
        # If steps shrink by a factor c = 1 − 1/length, gains shrink by c², and their sum is about
        # length/2 of the last.
        if (likelihood - before) * max(length / 2, 1.0) < tol:
            return EMResult(second, likelihood, done, True)
        extrapolated, there = step(
            from_vector(origin + 2 * length * along + length**2 * bend, second)
        )
        done += 1
        params = second
        if there > likelihood:
            params, likelihood = extrapolated, there
    return EMResult(params, likelihood, done, False)


def successive_halving(
    starts: Sequence[Params],
    run: Callable[[list[Params], int], list[EMResult[Params]]],
    *,
    first_iter: int,
) -> tuple[Params, int]:
    """Run EM from every start; the likelier half goes on for twice as long, until one is left.

    `run` takes starts and a number of iterations, and returns the result of each.

    Returns
    -------
    params : object
        The parameters that are left.
    number : int
        The place of their start in `starts`.
    """
    n_iter = first_iter
    running = [(number, EMResult(start)) for number, start in enumerate(starts)]
    while True:
        going = [(number, at.params) for number, at in running if not at.converged]
        further = run([params for _, params in going], n_iter) if going else []
        running = [each for each in running if each[1].converged]
        running += zip([number for number, _ in going], further, strict=True)
        running.sort(key=lambda each: (-each[1].log_likelihood, each[0]))
        running = running[: (len(running) + 1) // 2]
        if len(running) == 1:
            number, best = running[0]
            return best.params, number
        n_iter *= 2


def best_of(
    starts: Iterable[Params],
    step: Step[Params],
    *,
    first_iter: int,
    max_iter: int,
    tol: float,
    run: Callable[..., EMResult[Params]] = em,
) -> EMResult[Params]:
    """Run a few iterations from every start, and all others from where the likelihood is highest
    then.

    `run` is `em`, or another function with its arguments.
    """
    trials = [run(step, start, max_iter=first_iter, tol=tol) for start in starts]
    best = max(trials, key=lambda trial: trial.log_likelihood)
    if best.converged or max_iter <= best.n_iter:
        return best
    rest = run(step, best.params, max_iter=max_iter - best.n_iter, tol=tol)
    return EMResult(rest.params, rest.log_likelihood, best.n_iter + rest.n_iter, rest.converged)
