"""Components that need only be independent, where the noise of a sample lets them be told apart."""

from __future__ import annotations

import math

import numpy as np

from odeco.components import Components
from odeco.fit import fit_given, standard_errors
from odeco.tensors import DenseTensor

#: A weight that is so many standard errors from zero is one; a vector that errs by less than this angle points somewhere.
_LEAST_WEIGHT, _MOST_ANGLE = 2.0, math.pi / 4


def fit_independent(tensor: DenseTensor, n_components: int, seed: int) -> Components | None:
    """Fit components that need only be independent; None if they are not determined.

    Deep in noise two components can fit it by cancelling each other, with weights that grow without bound. Their own
    standard errors say so. Components that are taken to be orthogonal are then the better guess.
    """
    judged = fit_given(tensor, n_components, np.random.default_rng(seed))
    found = judged.fit.components
    if judged.left == "nothing":
        return found
    weight_errors, angle_errors = standard_errors(found, judged.deviation)
    determined = (np.abs(found.weights) >= _LEAST_WEIGHT * weight_errors) & (angle_errors < _MOST_ANGLE)
    return found if determined.all() else None
