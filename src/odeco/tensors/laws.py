"""A function that checks whether an oracle obeys the laws that the library relies on."""

from __future__ import annotations

import numpy as np

from odeco._util.arguments import as_generator
from odeco._util.types import FloatArray, RngLike
from odeco.tensors.oracle import Oracle

#: Slices, which have d² numbers, are checked up to this dimension.
_MAX_SLICED = 1000


def check_oracle(oracle: Oracle, *, rng: RngLike = 0, tol: float | None = None) -> None:
    """Raise `AssertionError` if `oracle` breaks a law that solvers rely on.

    The laws, for a symmetric tensor T of order p:

    1. *Shape*: the ``image`` of a d x L block is d x L, and its ``value`` has L numbers. Both are finite, and the block
       is left unchanged.
    2. *Homogeneity*: the image of 2u is 2ᵖ⁻¹ times the image of u, and the value of 2u is 2ᵖ times the value of u.
    3. *Value*: ``value(u)`` is ⟨u, image(u)⟩.
    4. *Block*: the image of a block consists of the images of its columns.
    5. *Symmetry*: the number T(x, y, …, y) is ⟨x, image(y)⟩, and also the derivative of ``value(y + tx) / p`` at t = 0.
       Both agree.
    6. *Slice*: ``slice(u)`` is symmetric, and ``slice(u) @ u`` is the image of u.
    7. *Norm*: if ``squared_norm`` is known, no value on the sphere exceeds its root.

    Parameters
    ----------
    oracle : Oracle
        The oracle to check. It must be exact: if the replies of yours vary, check the oracle that it wraps.
    rng : None, int or numpy.random.Generator
        Draws the test vectors.
    tol : float, optional
        The relative error that is allowed; by default a thousand times the oracle's rounding.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> odeco.check_oracle(odeco.Components([2.0, 1.0], np.eye(3)[:, :2]))
    """
    if not oracle.exact:
        raise ValueError(
            "check_oracle needs an oracle whose replies can be repeated. "
            f"{type(oracle).__name__} is not exact. Check the oracle that it wraps."
        )
    generator = as_generator(rng)
    tolerance = 1000 * oracle.rounding if tol is None else tol
    block = generator.standard_normal((oracle.dimension, 5)) / np.sqrt(oracle.dimension)
    before = block.copy()
    image = oracle.image(block)
    _law(image.shape == block.shape, "Shape: the image of a d x L block is d x L")
    value = oracle.value(block)
    _law(value.shape == (5,), "Shape: the value of a d x L block has L numbers")
    scale = max(float(np.abs(image).max()), np.finfo(np.float64).tiny)
    _law(bool(np.isfinite(image).all() and np.isfinite(value).all()), "Shape: images and values are finite")
    _law(np.array_equal(block, before), "Shape: the block is left unchanged")
    _close(oracle.image(2 * block), 2 ** (oracle.order - 1) * image, scale, tolerance, "Homogeneity of image")
    _close(oracle.value(2 * block), 2**oracle.order * value, scale, tolerance, "Homogeneity of value")
    _close(value, np.sum(block * image, axis=0), scale, tolerance, "Value: value(u) = <u, image(u)>")
    singly = np.concatenate([oracle.image(block[:, [column]]) for column in range(5)], axis=1)
    _close(image, singly, scale, tolerance, "Block: the image of a block consists of the images of its columns")
    _check_symmetry(oracle, generator, tolerance)
    if oracle.dimension <= _MAX_SLICED:
        matrix = oracle.slice(block[:, 0])
        _close(matrix, matrix.T, scale, tolerance, "Slice: it is symmetric")
        _close(matrix @ block[:, 0], image[:, 0], scale, 100 * tolerance, "Slice: slice(u) u = image(u)")
    squared_norm = oracle.squared_norm()
    if squared_norm is not None:
        on_sphere = oracle.value(block / np.linalg.norm(block, axis=0))
        bound = np.sqrt(max(squared_norm, 0.0)) * (1 + tolerance)
        _law(bool(np.all(np.abs(on_sphere) <= bound)), "Norm: no value on the sphere exceeds the norm")


def _check_symmetry(oracle: Oracle, generator: np.random.Generator, tolerance: float) -> None:
    # value(y + tx) is a polynomial of degree p in t; its derivative at 0 is p T(x, y, …, y) if T is symmetric.
    x, y = generator.standard_normal((2, oracle.dimension)) / np.sqrt(oracle.dimension)
    nodes = np.cos(np.pi * (np.arange(oracle.order + 1) + 0.5) / (oracle.order + 1))
    values = oracle.value(y[:, None] + x[:, None] * nodes)
    derivative = np.polynomial.polynomial.polyfit(nodes, values, oracle.order)[1] / oracle.order
    scale = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    expected = np.array(x @ oracle.image(y[:, None])[:, 0])
    _close(np.array(derivative), expected, scale, 10 * tolerance, "Symmetry: T(x, y, …, y) = <x, image(y)>")


def _close(left: FloatArray, right: FloatArray, scale: float, tolerance: float, law: str) -> None:
    size = max(scale, float(np.abs(right).max()))
    error = float(np.abs(left - right).max()) / size
    _law(error <= tolerance, f"{law}. Relative error {error:.1e}, allowed {tolerance:.1e}")


def _law(holds: bool, law: str) -> None:
    if not holds:
        raise AssertionError(f"The oracle breaks a law. {law}.")
