"""Components that need only be independent, where the noise of a sample lets them be told apart."""

from __future__ import annotations

import math

import numpy as np

from odeco._scale import norm_exponent
from odeco.components import Components
from odeco.errors import RankError
from odeco.fit import fit_given, standard_errors
from odeco.tensors import DenseTensor

#: A weight must be so many standard errors from zero, and a vector err by less than this angle.
_LEAST_WEIGHT, _MOST_ANGLE = 2.0, math.pi / 4


def fit_independent(tensor: DenseTensor, n_components: int, seed: int) -> Components | None:
    """Fit components that need only be independent; None if they are not determined.

    Weights that differ by more than double precision holds are not determined by least squares either, while the loop
    subtracts the large ones before it looks for the small.
    Deep in noise two components can fit it by cancelling each other, with weights that grow without bound. Their own
    standard errors say so. Components that are taken to be orthogonal are then the better guess.
    """
    shift = norm_exponent(tensor.squared_norm())
    try:
        judged = fit_given(DenseTensor(np.ldexp(tensor.entries, -shift)), n_components, np.random.default_rng(seed))
    except RankError:
        return None
    found = judged.fit.components
    if judged.left != "nothing":
        weight_errors, angle_errors = standard_errors(found, judged.deviation)
        determined = (np.abs(found.weights) >= _LEAST_WEIGHT * weight_errors) & (angle_errors < _MOST_ANGLE)
        if not determined.all():
            return None
    return _times_power_of_two(found, shift)


def _times_power_of_two(components: Components, exponent: int) -> Components:
    return Components(np.ldexp(components.weights, exponent), components.vectors, components.order)
