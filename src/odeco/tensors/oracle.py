"""A symmetric tensor known only by its products with vectors.

A solver never sees the entries of a tensor T of order p. It queries an oracle for T(I, u, …, u),
the *image* of a vector u, or for T(u, u, …, u), its *value*, always for a block of vectors at once.
An oracle may hold entries, samples or a stream, and it may charge a privacy budget for its replies.
`check_oracle` checks whether an oracle obeys the laws that the library relies on.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np

from odeco._util.arguments import as_generator, check_unmasked
from odeco._util.types import FloatArray, RngLike

#: Numbers in a block of vectors when a core is computed from images.
_NUMBERS_AT_ONCE = 2**22


class Oracle(ABC):
    """A symmetric tensor that is known by its products with blocks of vectors.

    To write one, set `dimension` and `order` and define `_image`; the laws that it must obey are
    checked by `odeco.check_oracle`.

    Attributes
    ----------
    dimension : int
        Size d of every axis.
    order : int
        Number p of axes, 3 or more.
    exact : bool
        Whether the same query always has the same reply, at no cost but time. The power method
        stops early only if this is true. It is false for a stream, which reads fresh rows for every
        query, and for a private oracle, whose replies cost privacy budget.
    rounding : float
        The relative rounding error of the replies; by default that of double precision.
    parts : tuple of int
        The sizes of the parts of a vector: one part for a symmetric tensor, p parts for the
        symmetric embedding of an asymmetric one. The power method keeps the parts of a vector at
        equal length. With each component it also subtracts the components that differ from it only
        in the signs of their parts.

    Examples
    --------
    The sum of the cubes of all coordinates, an oracle that stores no entry:

    >>> import numpy as np, odeco
    >>> class Cubes(odeco.Oracle):
    ...     order = 3
    ...
    ...     def __init__(self, dimension):
    ...         self.dimension = dimension
    ...
    ...     def _image(self, block):
    ...         return block**2
    >>> odeco.check_oracle(Cubes(4))
    >>> (2 * Cubes(4)).value(np.ones((4, 1)))
    array([8.])
    """

    dimension: int
    order: int
    exact: bool = True
    rounding: float = float(np.finfo(np.float64).eps)

    _parts: tuple[int, ...] = ()

    @property
    def parts(self) -> tuple[int, ...]:
        """The sizes of the parts of a vector."""
        return self._parts or (self.dimension,)

    @final
    def image(self, block: Any) -> FloatArray:
        """Return T(I, u, …, u) for every column u of a d x L block."""
        checked = as_block(block, self.dimension)
        if checked.size:
            return self._image(checked)
        return np.zeros_like(checked)

    @final
    def value(self, block: Any) -> FloatArray:
        """Return T(u, u, …, u) for every column u of a d x L block."""
        checked = as_block(block, self.dimension)
        if checked.size:
            return self._value(checked)
        return np.zeros(0)

    @final
    def inside(self, basis: Any) -> FloatArray:
        """Return T(Q, Q, …, Q) for a d x m basis Q: a small tensor of mᵖ entries, the core."""
        return self._inside(as_block(basis, self.dimension))

    @final
    def slice(self, direction: Any) -> FloatArray:
        """Return T(I, I, u, …, u) for one vector u of d numbers: a symmetric d x d matrix.

        It is made from the images of 2d vectors, at order 3, if the oracle has no faster way.
        """
        return self._slice(as_block(np.atleast_2d(direction).T, self.dimension)[:, 0])

    def squared_norm(self) -> float | None:
        """Return the sum of the squares of all entries, or None if that is not known."""
        return None

    def unfolding_gram(self) -> FloatArray | None:
        """Return M Mᵀ for the d x dᵖ⁻¹ unfolding M of the tensor, or None if that would take d²
        images or more.
        """
        return None

    def flattening(self) -> FloatArray | None:
        """Return T as a matrix from packed coordinates of degree ⌈p/2⌉ to those of degree ⌊p/2⌋.

        Entry (I, J) is T[I, J] times the root of the number of arrangements of the tuples I and J
        (`odeco.tensors.coordinates`), so that the matrix has the norm of the tensor. None if it
        would have to be made from many images.
        """
        return None

    @abstractmethod
    def _image(self, block: FloatArray) -> FloatArray: ...

    def _inside(self, basis: FloatArray) -> FloatArray:
        return polarised_inside(self._image, basis, self.order)

    def _value(self, block: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("il,il->l", block, self._image(block))
        return values

    def _slice(self, direction: FloatArray) -> FloatArray:
        return slice_by_images(self._image, direction, self.order)

    def __add__(self, other: Oracle) -> Oracle:
        return Sum(self, other)

    def __sub__(self, other: Oracle) -> Oracle:
        return Sum(self, -other)

    def __mul__(self, factor: float) -> Oracle:
        return Scaled(self, float(factor))

    __rmul__ = __mul__

    def __neg__(self) -> Oracle:
        return self * -1.0


class SensitiveOracle(Oracle):
    """An oracle that holds data and declares how far its replies for neighbouring data can be
    apart.

    Noise can be scaled only to a sensitivity that is declared, so a `PrivateOracle` accepts no
    other kind of oracle.

    Attributes
    ----------
    neighbours : str
        The neighbour relation in words: which change of the data the guarantee hides.
    silent : bool
        Whether the oracle never raises, warns or logs because of a value that it holds, and whether
        the sensitivities that it declares cover the rounding errors of its replies. Noise makes its
        replies private only if both hold.
    """

    neighbours: str
    silent: bool = False

    @final
    def sensitivity(self, block: Any) -> float:
        """Return the largest Euclidean change of ``image(block)``, all columns together, between
        neighbours.
        """
        return self._sensitivity(as_block(block, self.dimension))

    @final
    def value_sensitivity(self, block: Any) -> float:
        """Return the largest Euclidean change of ``value(block)``, all columns together, between
        neighbours.
        """
        return self._value_sensitivity(as_block(block, self.dimension))

    @abstractmethod
    def _sensitivity(self, block: FloatArray) -> float: ...

    @abstractmethod
    def _value_sensitivity(self, block: FloatArray) -> float: ...


@final
class Sum(Oracle):
    """The sum A + B of two tensors."""

    def __init__(self, first: Oracle, second: Oracle) -> None:
        check_same_shape((first.dimension, first.order), (second.dimension, second.order))
        self.first = first
        self.second = second
        self.dimension = first.dimension
        self.order = first.order
        self.exact = first.exact and second.exact
        self.rounding = max(first.rounding, second.rounding)
        self._parts = first.parts

    def flattening(self) -> FloatArray | None:
        """Return the sum of the flattenings, or None if one is not known."""
        first = self.first.flattening()
        second = self.second.flattening()
        if first is None or second is None:
            return None
        return first + second

    def _image(self, block: FloatArray) -> FloatArray:
        return self.first._image(block) + self.second._image(block)

    def _inside(self, basis: FloatArray) -> FloatArray:
        return self.first._inside(basis) + self.second._inside(basis)

    def _value(self, block: FloatArray) -> FloatArray:
        return self.first._value(block) + self.second._value(block)

    def _slice(self, direction: FloatArray) -> FloatArray:
        return self.first._slice(direction) + self.second._slice(direction)


class Rescaled(Oracle):
    """A tensor whose replies are those of another one, times a number that a subclass knows."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._parts = oracle.parts
        self.dimension = oracle.dimension
        self.order = oracle.order
        self.exact = oracle.exact
        self.rounding = oracle.rounding

    @abstractmethod
    def _rescaled(self, reply: FloatArray) -> FloatArray: ...

    def flattening(self) -> FloatArray | None:
        """Return the flattening, or None if that is not known."""
        known = self.oracle.flattening()
        if known is None:
            return None
        return self._rescaled(known)

    def _image(self, block: FloatArray) -> FloatArray:
        return self._rescaled(self.oracle._image(block))

    def _inside(self, basis: FloatArray) -> FloatArray:
        return self._rescaled(self.oracle._inside(basis))

    def _value(self, block: FloatArray) -> FloatArray:
        return self._rescaled(self.oracle._value(block))

    def _slice(self, direction: FloatArray) -> FloatArray:
        return self._rescaled(self.oracle._slice(direction))


@final
class Scaled(Rescaled):
    """The multiple c A of a tensor."""

    def __init__(self, oracle: Oracle, factor: float) -> None:
        super().__init__(oracle)
        self.factor = factor

    def squared_norm(self) -> float | None:
        """Return c² times the squared norm of A, or None if that is not known."""
        norm = self.oracle.squared_norm()
        if norm is None:
            return None
        return self.factor**2 * norm

    def unfolding_gram(self) -> FloatArray | None:
        """Return c² times the Gram matrix of A, or None if that is not known."""
        gram = self.oracle.unfolding_gram()
        if gram is None:
            return None
        return self.factor**2 * gram

    def _rescaled(self, reply: FloatArray) -> FloatArray:
        return self.factor * reply


def slice_by_images(
    image: Callable[[FloatArray], FloatArray], direction: FloatArray, order: int
) -> FloatArray:
    """Return T(I, I, θ, …, θ) from images alone.

    The image of θ + t x is a polynomial in t whose linear coefficient is (p−1) T(I, x, θ, …, θ).
    The odd part of the polynomial is (image(θ + t x) − image(θ − t x)) / 2. It is evaluated at one
    value of t for each odd power, with x along every axis, and the linear coefficients are the
    solution of a small linear system.
    """
    n_odd = order // 2
    nodes = np.sin(np.pi * (np.arange(n_odd) + 1) / (2 * n_odd))
    coefficients = np.linalg.solve(nodes ** (2 * np.arange(n_odd)[:, None] + 1), np.eye(n_odd)[0])
    identity = np.eye(direction.size)
    centre = direction[:, None]
    odd = [(image(centre + t * identity) - image(centre - t * identity)) / 2 for t in nodes]
    matrix: FloatArray = np.tensordot(coefficients, odd, axes=1) / (order - 1)
    return (matrix + matrix.T) / 2


def polarised_inside(
    image: Callable[[FloatArray], FloatArray], basis: FloatArray, order: int
) -> FloatArray:
    """Return T(Q, …, Q) from images alone.

    By polarisation T(I, a, b, …) is a signed sum of the images of a ± b ± …. There are about
    mᵖ⁻¹/(p−1)! different choices of columns a, b, … of Q, and 2ᵖ⁻² choices of signs for each.
    """
    width = basis.shape[1]
    n_others = order - 1
    choices = np.array(list(itertools.combinations_with_replacement(range(width), n_others)))
    core = np.empty((width,) * order)
    count = max(1, _NUMBERS_AT_ONCE // basis.shape[0])
    for start in range(0, len(choices), count):
        chosen = choices[start : start + count]
        total = np.zeros((basis.shape[0], len(chosen)))
        for signs in itertools.product(
            (1.0, -1.0), repeat=n_others - 1
        ):  # the opposite signs would give the same term
            mixed = sum(sign * basis[:, chosen[:, i]] for i, sign in enumerate((1.0, *signs)))
            total += math.prod(signs) * image(np.asarray(mixed))
        total /= 2 ** (n_others - 1) * math.factorial(n_others)
        for places in itertools.permutations(range(n_others)):
            core[(slice(None), *chosen[:, places].T)] = basis.T @ total
    return core


def squared_norm(oracle: Oracle, *, rng: RngLike = None, n_probes: int = 32) -> float:
    """Return the sum of the squares of all entries: exactly where the oracle knows it, else an
    unbiased estimate.

    The mean of ‖T(I, g₁, …, gₚ₋₁)‖² over independent standard normal vectors is the squared norm,
    and by polarisation T(I, g₁, …, gₚ₋₁) is a signed sum of images of ±g₁ ± … ± gₚ₋₁.
    """
    known = oracle.squared_norm()
    if known is not None:
        return known
    n_others = oracle.order - 1
    probes = as_generator(rng).standard_normal((n_others, oracle.dimension, n_probes))
    total = np.zeros((oracle.dimension, n_probes))
    for signs in itertools.product(
        (1.0, -1.0), repeat=n_others - 1
    ):  # the opposite signs would give the same term
        total += math.prod(signs) * oracle.image(np.tensordot((1.0, *signs), probes, axes=1))
    total /= 2 ** (n_others - 1) * math.factorial(n_others)
    return float(np.mean(np.sum(total**2, axis=0)))


def as_block(block: Any, dimension: int) -> FloatArray:
    """Return the vectors of a query as a float64 array of shape (dimension, L)."""
    check_unmasked(block, "block")
    array: FloatArray = np.asarray(block, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != dimension:
        raise ValueError(
            f"A block must have shape ({dimension}, L), one vector in each column. Got shape "
            f"{array.shape}. Pass u[:, None] for a single vector u."
        )
    return array


def check_same_shape(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Raise if two tensors that are to be added differ in dimension or order."""
    if first != second:
        raise ValueError(
            f"Tensors in a sum must share dimension and order. Got dimension {first[0]}, order "
            f"{first[1]} and dimension {second[0]}, order {second[1]}."
        )


#: Slices, which have d² numbers, are checked up to this dimension.
_MAX_SLICED = 1000


def check_oracle(oracle: Oracle, *, rng: RngLike = 0, tol: float | None = None) -> None:
    """Raise `AssertionError` if `oracle` breaks a law that solvers rely on.

    The laws, for a symmetric tensor T of order p:

    1. *Shape*: the ``image`` of a d x L block is d x L, and its ``value`` has L numbers. Both are
       finite, and the block is left unchanged.
    2. *Homogeneity*: the image of 2u is 2ᵖ⁻¹ times the image of u, and the value of 2u is 2ᵖ times
       the value of u.
    3. *Value*: ``value(u)`` is ⟨u, image(u)⟩.
    4. *Block*: the image of a block consists of the images of its columns.
    5. *Symmetry*: the number T(x, y, …, y) is ⟨x, image(y)⟩, and also the derivative of ``value(y +
       tx) / p`` at t = 0. Both agree.
    6. *Slice*: ``slice(u)`` is symmetric, and ``slice(u) @ u`` is the image of u.
    7. *Norm*: if ``squared_norm`` is known, no value on the sphere exceeds its root.

    Parameters
    ----------
    oracle : Oracle
        The oracle to check. It must be exact: if the replies of yours vary, check the oracle that
        it wraps.
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
            f"check_oracle needs an oracle whose replies can be repeated. {type(oracle).__name__} "
            "is not exact. Check the oracle that it wraps."
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
    _law(
        bool(np.isfinite(image).all() and np.isfinite(value).all()),
        "Shape: images and values are finite",
    )
    _law(np.array_equal(block, before), "Shape: the block is left unchanged")
    _close(
        oracle.image(2 * block),
        2 ** (oracle.order - 1) * image,
        scale,
        tolerance,
        "Homogeneity of image",
    )
    _close(
        oracle.value(2 * block), 2**oracle.order * value, scale, tolerance, "Homogeneity of value"
    )
    _close(
        value, np.sum(block * image, axis=0), scale, tolerance, "Value: value(u) = <u, image(u)>"
    )
    singly = np.concatenate([oracle.image(block[:, [column]]) for column in range(5)], axis=1)
    _close(
        image,
        singly,
        scale,
        tolerance,
        "Block: the image of a block consists of the images of its columns",
    )
    _check_symmetry(oracle, generator, tolerance)
    if oracle.dimension <= _MAX_SLICED:
        matrix = oracle.slice(block[:, 0])
        _close(matrix, matrix.T, scale, tolerance, "Slice: it is symmetric")
        _close(
            matrix @ block[:, 0],
            image[:, 0],
            scale,
            100 * tolerance,
            "Slice: slice(u) u = image(u)",
        )
    squared_norm = oracle.squared_norm()
    if squared_norm is not None:
        on_sphere = oracle.value(block / np.linalg.norm(block, axis=0))
        bound = np.sqrt(max(squared_norm, 0.0)) * (1 + tolerance)
        _law(
            bool(np.all(np.abs(on_sphere) <= bound)),
            "Norm: no value on the sphere exceeds the norm",
        )


def _check_symmetry(oracle: Oracle, generator: np.random.Generator, tolerance: float) -> None:
    # value(y + tx) is a polynomial of degree p in t; its derivative at 0 is p T(x, y, …, y) if T is
    # symmetric.
    x, y = generator.standard_normal((2, oracle.dimension)) / np.sqrt(oracle.dimension)
    nodes = np.cos(np.pi * (np.arange(oracle.order + 1) + 0.5) / (oracle.order + 1))
    values = oracle.value(y[:, None] + x[:, None] * nodes)
    derivative = np.polynomial.polynomial.polyfit(nodes, values, oracle.order)[1] / oracle.order
    scale = max(float(np.abs(values).max()), np.finfo(np.float64).tiny)
    expected = np.array(x @ oracle.image(y[:, None])[:, 0])
    _close(
        np.array(derivative),
        expected,
        scale,
        10 * tolerance,
        "Symmetry: T(x, y, …, y) = <x, image(y)>",
    )


def _close(left: FloatArray, right: FloatArray, scale: float, tolerance: float, law: str) -> None:
    size = max(scale, float(np.abs(right).max()))
    error = float(np.abs(left - right).max()) / size
    _law(error <= tolerance, f"{law}. Relative error {error:.1e}, allowed {tolerance:.1e}")


def _law(holds: bool, law: str) -> None:
    if not holds:
        raise AssertionError(f"The oracle breaks a law. {law}.")
