"""Components found under noise, with the errors that the known noise implies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from odeco._util.state import State, array_field, part_field, usable_array
from odeco._util.types import FloatArray
from odeco.cp.rank import SIGNIFICANCE, ground_state
from odeco.cp.symmetric import standard_errors
from odeco.tensors.components import Components

#: A Lipschitz function of Gaussian noise exceeds its mean by this many standard deviations with
#: chance `SIGNIFICANCE`.
_TAIL = math.sqrt(-2 * math.log(SIGNIFICANCE))


@dataclass(frozen=True, eq=False)
class Found(State):
    """Components, with the errors that the known noise implies; see
    `odeco.PrivateDecomposition`.
    """

    components: Components = part_field(Components)
    weight_errors: FloatArray = array_field("k", rule=usable_array("k", low=0))
    angle_errors: FloatArray = array_field("k", rule=usable_array("k", low=0))
    noise_floors: FloatArray = array_field("k", rule=usable_array("k", low=0))


def found_in_images(
    found: Components, errors: FloatArray, image_errors: FloatArray, n_looks: int
) -> Found:
    """Return how far noise of these sizes, in weights and images, may have moved the best of
    `n_looks` candidates.
    """
    highest = float(
        -ndtri(SIGNIFICANCE / n_looks)
    )  # the largest of n normal values exceeds it with that chance, at most
    return Found(found, errors, _angles_of(image_errors, found), errors * highest)


def found_in_core(found: Components, scale: float, width: int, outside: FloatArray) -> Found:
    """Return how far the noise of a core may have moved what was found in it.

    The core is symmetrised, so its noise has standard deviation `scale` at every unit vector, and
    `scale`/√p for each coordinate of the image at right angles to it.
    """
    errors = np.full(found.n_components, scale)
    inside = _angles_of(scale * math.sqrt((width - 1) / (found.order * found.dimension)), found)
    floors = errors * noise_ceiling(found.order, width)
    return Found(found, errors, np.minimum(np.hypot(inside, outside), math.pi / 2), floors)


def found_in_entries(found: Components, scale: float, units: tuple[float, float, float]) -> Found:
    """Return how far noise on every distinct entry may have moved what was found, at order 3, in
    units of entries.
    """
    errors = scale * _value_errors(units, found.vectors)
    # A coordinate of E(I, v, v) is Σ 2 E_ijk v_j v_k over j < k, up to terms with equal indices.
    coordinate = scale * math.sqrt(2) * units[0]
    return Found(
        found, errors, _angles_of(coordinate, found), errors * noise_ceiling(3, found.dimension)
    )


def found_by_least_squares(found: Components, scale: float) -> Found:
    """Return how far symmetric noise of this deviation at every unit vector may have moved a fit of
    all together.
    """
    floors = np.full(found.n_components, scale * noise_ceiling(found.order, found.dimension))
    return Found(found, *standard_errors(found, scale), floors)


def _value_errors(units: tuple[float, float, float], vectors: FloatArray) -> FloatArray:
    """Return the standard deviation of E(v, v, v) for independent noise E of these units on the
    distinct entries.

    An entry counts as often as it stands in the array, m = 6, 3 or 1 times, so the variance is Σ m²
    unit² Π v² over distinct entries. The three sums are symmetric functions of v², which power sums
    give (Newton's identities).
    """
    one, two, three = (np.sum(vectors**power, axis=0) for power in (2, 4, 6))
    sums = ((one**3 - 3 * one * two + 2 * three) / 6, one * two - three, three)
    terms = [(m * unit) ** 2 * total for m, unit, total in zip((6, 3, 1), units, sums, strict=True)]
    deviations: FloatArray = np.sqrt(np.sum(terms, axis=0))
    return deviations


def _angles_of(coordinate_errors: FloatArray | float, components: Components) -> FloatArray:
    """Return the angle, to first order, by which noise of this size on each coordinate of the image
    turns a vector.
    """
    sizes = np.maximum(np.abs(components.weights), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        angles: FloatArray = np.asarray(coordinate_errors) * math.sqrt(components.dimension) / sizes
    return np.minimum(angles, math.pi / 2)


def noise_ceiling(order: int, dimension: int) -> float:
    """Return what symmetric noise exceeds on the unit sphere with chance `SIGNIFICANCE`, at most,
    in its deviations.
    """
    return ground_state(order) * math.sqrt(dimension) + _TAIL
