"""Slices T(I, I, θ, …, θ) of a tensor that answers only with images.

The image of θ + t x is a polynomial in t whose linear coefficient is (p−1) T(I, x, θ, …, θ). Its odd part is
(image(θ + t x) − image(θ − t x)) / 2. That is asked for at as many values of t as there are odd powers below p, with x
along every axis, and the linear coefficients are the solution of a small linear system.
"""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray


def slice_width(dimension: int, order: int) -> int:
    """Return how many vectors `slice_question` has: 2d at order 3, 4d at orders 4 and 5."""
    return 2 * (order // 2) * dimension


def slice_question(direction: FloatArray, order: int) -> FloatArray:
    """Return the block whose images tell the slice of a tensor of this order along `direction`."""
    identity = np.eye(direction.size)
    return np.hstack([direction[:, None] + sign * t * identity for t in _nodes(order) for sign in (1, -1)])


def slice_from_images(images: FloatArray, order: int) -> FloatArray:
    """Return the slice, a symmetric d x d matrix, from the images of its `slice_question`."""
    nodes = _nodes(order)
    dimension = images.shape[0]
    by_sign = images.reshape(dimension, nodes.size, 2, dimension)
    odd = (by_sign[:, :, 0] - by_sign[:, :, 1]) / 2
    powers = nodes ** (2 * np.arange(nodes.size)[:, None] + 1)
    coefficients = np.linalg.solve(powers, np.eye(nodes.size)[0])
    matrix: FloatArray = np.einsum("t,itj->ij", coefficients, odd) / (order - 1)
    return (matrix + matrix.T) / 2


def _nodes(order: int) -> FloatArray:
    count = order // 2
    nodes: FloatArray = np.sin(np.pi * (np.arange(count) + 1) / (2 * count))
    return nodes
