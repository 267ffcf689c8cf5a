"""Likelihood steps that are looked ahead along: two of them say where many would lead."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from odeco._types import FloatArray
from odeco.latent.likelihood import Climbed, Model, Step


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
        As for `odeco.latent.likelihood.climb`; the tolerance is for one step, and looked at in every third.
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
