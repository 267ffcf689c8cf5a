"""Subspace power method: more components than dimensions, from the flattening of a symmetric tensor
of order 4 or more.

The flattening of Σ λᵢ aᵢ⊗ᵖ is Σ λᵢ pᵢ qᵢᵀ, where pᵢ and qᵢ are the powers of degrees h = ⌊p/2⌋ and
g = ⌈p/2⌉ of aᵢ in packed coordinates. Its rank is the number k of components, also where k is
larger than d, and its rows span the qᵢ. For an orthonormal basis R of that span, f(x) = ‖Rᵀx⊗ᵍ‖² on
the unit sphere is at most 1, and up to a number of components (`largest_rank`) it is 1 at the aᵢ
alone. So components are found by power iteration on f. They are subtracted from the flattening by
Wedderburn's rank reduction, which leaves the span of the others (Kileel and Pereira, *Subspace
power method for symmetric tensor decomposition*, arXiv:1912.04007).

A block of starts is iterated as one, and all components that it reaches are subtracted together.

Noise E of variance s in every coordinate leaves the span, and the other singular values of the
flattening follow the law of Marchenko and Pastur; at even orders, where the flattening is
symmetric, the eigenvalues follow Wigner's semicircle law, whose squares have the same shape.
`FlatteningSpectrum.n_clear` counts the singular values that stand clear of this law.
`FlattenedProblem` is the least-squares fit that goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import scipy  # it imports its submodules when they are used

from odeco._util.arguments import as_generator, check_count
from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, DataArray, FloatArray, IndexArray, RngLike
from odeco.cp.problem import rounding_error
from odeco.cp.spectrum import FEWEST_FOR_A_LAW, ROUNDING_MULTIPLE, FlatteningSpectrum, Spectra
from odeco.cp.symmetric import SymmetricProblem
from odeco.errors import RankError
from odeco.tensors.components import Components
from odeco.tensors.coordinates import FlattenedTensor, PackedCoordinates, flattening_coordinates
from odeco.tensors.oracle import Oracle

#: The number of starts: a multiple of the components that are left, between these bounds.
_STARTS_PER_COMPONENT = 2
_MIN_STARTS = 16
_MAX_STARTS = 128

#: Iterations between two looks at which starts have reached a component, the largest number of
#: looks, and the share of the starts after whose arrival no others are waited for.
_STAGE = 25
_MAX_STAGES = 8
_ENOUGH = 0.4

#: Blocks of starts without any arrival, after which the best of them is taken for a component.
_MAX_BLOCKS = 4

#: The shift, in units of 1 − f, with which the iteration does not cycle; it vanishes at a
#: component.
_SHIFT = 0.35

#: A start has reached a component if 1 − f is at most this, or this multiple of what noise takes
#: off f.
_ARRIVED = 1e-6
_NOISE_FACTOR = 3.0

#: Arrived starts are iterated until they move less than this, at most this number of times.
_POLISHED = 1e-7
_POLISH_STEPS = 100

#: Steps in the whole span before a start is tested.
_CORRECTION = 4

#: Two vectors whose cosine differs from 1 by less than this are the same component, and a power
#: whose part outside of the span of others is less than this is none of its own.
_SAME = 1e-5
_LEAST_NEW = 1e-3

#: A good fit leaves at most this multiple of the noise in the flattening.
_GOOD_FIT = 1.5


def largest_rank(dimension: int, order: int) -> int:
    """Return the largest number of generic components that the subspace power method can tell
    apart; 0 at order 3.

    At even orders p = 2h this is C(d+h−1, h) − d: from there on the span of the powers has other
    powers in it (Kileel and Pereira, Proposition 3.1). At odd orders p = 2h+1 it is C(d+h−1, h),
    the number of rows of the flattening.
    """
    if order < 4:
        return 0
    n_rows = math.comb(dimension + order // 2 - 1, order // 2)
    return max(0, n_rows - dimension if order % 2 == 0 else n_rows)


def subspace_power_method(
    flattening: FloatArray,
    dimension: int,
    order: int,
    n_components: int | Literal["auto"],
    rng: RngLike = None,
    *,
    spectrum: FlatteningSpectrum | None = None,
) -> Components:
    """Return the components of a symmetric tensor that is given by its flattening.

    Their weights fit the flattening best for their vectors. With noise, a least-squares fit from
    here improves all of them together (`odeco.cp.overcomplete`).

    Parameters
    ----------
    flattening : array, C(d+h−1, h) x C(d+g−1, g) with h = ⌊p/2⌋ and g = ⌈p/2⌉
        The tensor as a matrix between packed coordinates (`odeco.tensors.coordinates`).
    dimension, order : int
        The d and p of the tensor; p is 4 or more.
    n_components : int or "auto"
        The number k of components; ``"auto"`` is the number of singular values that stand clear of
        the noise.
    rng : None, int or numpy.random.Generator
        Draws the starts.
    spectrum : FlatteningSpectrum, optional
        The spectrum of the flattening, if it is known.

    Raises
    ------
    RankError
        If the flattening has a rank below `n_components`; the components of that rank are in
        ``error.found``.

    Notes
    -----
    Deviations from the paper: blocks of starts; all components that a block reaches are subtracted
    at once; the shift is proportional to 1 − f; and a start counts as arrived by what noise is
    expected to take off f.

    Examples
    --------
    >>> import numpy as np, odeco
    >>> from odeco.cp.subspace_power import subspace_power_method
    >>> vectors = np.random.default_rng(0).standard_normal((6, 9))
    >>> truth = odeco.Components(np.ones(9), vectors, order=4)
    >>> found = subspace_power_method(truth.flattening(), 6, 4, "auto", rng=0)
    >>> found.n_components, bool(odeco.match(found, truth).cosines.min() > 1 - 1e-6)
    (9, True)
    """
    generator = as_generator(rng)
    if spectrum is None:
        rounding = float(np.finfo(flattening.dtype).eps)
        spectrum = FlatteningSpectrum.of(np.asarray(flattening, np.float64), rounding)
    most = max(dimension, largest_rank(dimension, order))
    if isinstance(n_components, str):
        n_components = min(most, spectrum.n_clear)
    k = check_count(
        "n_components",
        n_components,
        0,
        most,
        f" for a tensor of dimension {dimension} and order {order}",
    )
    rows, columns = flattening_coordinates(dimension, order)
    rank = min(k, spectrum.n_usable)
    with one_blas_thread():
        vectors = _components_of_span(spectrum, rank, rows, columns, generator)
        gram: FloatArray = (vectors.T @ vectors) ** order
        values = np.sum(rows.powers(vectors) * (flattening @ columns.powers(vectors)), axis=0)
        weights = scipy.linalg.lstsq(gram, values)[0] if rank else np.zeros(0)
    found = Components(weights, vectors, order)
    if rank < k:
        raise RankError(
            (
                f"The tensor must have {k} components. Its flattening has rank {rank}. Pass "
                f"n_components={rank}."
            ),
            found,
        )
    return found


class _Span:
    """The span of the rows of a flattening, and what noise takes off f at a component.

    To first order noise E turns the basis R of the span by Eᵀ L D⁻ᵀ outside of it, so that a power
    q = R c loses ‖Eᵀ L D⁻ᵀ c‖², which is about s times the number of free columns times ‖D⁻ᵀ c‖².
    """

    def __init__(self, spectrum: FlatteningSpectrum, rank: int, columns: PackedCoordinates) -> None:
        self.basis = spectrum.right[:, :rank]
        self.columns = columns
        self._values = spectrum.values[:rank, None]
        self._noise = spectrum.noise_after(rank)

    def arrived(self, block: FloatArray) -> tuple[BoolArray, FloatArray]:
        """Return which vectors are components, and the values of f."""
        inside = self.basis.T @ self.columns.powers(block)
        values = np.einsum("ml,ml->l", inside, inside)
        lost = _NOISE_FACTOR * self._noise * np.sum((inside / self._values) ** 2, axis=0)
        return 1 - values <= np.maximum(_ARRIVED, lost), values

    def polish(self, block: FloatArray) -> FloatArray:
        """Return the limits of unit vectors under the power method, largest f first, and one for
        each of them.
        """
        block = block[:, ~_repeated(block)]
        moving = np.arange(block.shape[1])
        for _ in range(_POLISH_STEPS):
            before = block[:, moving]
            moved = self.columns.contract(
                self.basis @ (self.basis.T @ self.columns.powers(before)), before
            )
            moved /= np.linalg.norm(moved, axis=0)
            block[:, moving] = moved
            moving = moving[np.linalg.norm(moved - before, axis=0) > _POLISHED]
            if moving.size == 0:
                break
        inside = self.basis.T @ self.columns.powers(block)
        largest_first: IndexArray = np.argsort(
            -np.einsum("ml,ml->l", inside, inside), kind="stable"
        )
        return block[:, largest_first]


def _components_of_span(
    spectrum: FlatteningSpectrum,
    rank: int,
    rows: PackedCoordinates,
    columns: PackedCoordinates,
    generator: np.random.Generator,
) -> FloatArray:
    """Return unit vectors whose powers lie in the span of the leading singular vectors, as far as
    noise lets them.
    """
    left = spectrum.left[:, :rank]
    right = spectrum.right[:, :rank]
    core = np.diag(spectrum.values[:rank])
    span = _Span(spectrum, rank, columns)
    found = np.empty((rows.dimension, 0))
    n_blocks = _MAX_BLOCKS
    while found.shape[1] < rank:
        new, arrived = _next_components(span, right, found, generator, n_blocks)
        n_blocks = (
            n_blocks if arrived else 1
        )  # the span is not one of powers: others will hardly arrive either
        found = np.hstack([found, new])
        # Wedderburn: M − P W Qᵀ with W = (Qᵀ M⁺ P)⁻¹ has the rank of M less that of P.
        inside_right = right.T @ columns.powers(new)
        inside_left = inside_right if columns is rows else left.T @ rows.powers(new)
        solved_left = np.linalg.solve(core, inside_left)
        solved_right = solved_left if columns is rows else np.linalg.solve(core.T, inside_right)
        core = core - inside_left @ np.linalg.solve(inside_right.T @ solved_left, inside_right.T)
        kept_right = _complement(solved_left)
        kept_left = kept_right if columns is rows else _complement(solved_right)
        core = kept_left.T @ core @ kept_right
        right = right @ kept_right
        left = right if columns is rows else left @ kept_left
    return found


def _next_components(
    span: _Span, right: FloatArray, found: FloatArray, generator: np.random.Generator, n_blocks: int
) -> tuple[FloatArray, bool]:
    """Return the different components that a block of starts reaches; the best start and False if
    none does.

    `right` is the basis of what the components found leave of the span.
    """
    columns = span.columns
    n_left = right.shape[1]
    n_starts = min(_MAX_STARTS, max(_MIN_STARTS, _STARTS_PER_COMPONENT * n_left))
    best = np.empty((columns.dimension, 1))
    best_value = -1.0
    for _ in range(n_blocks):
        block = generator.standard_normal((columns.dimension, n_starts))
        block /= np.linalg.norm(block, axis=0)
        arrived = np.empty((columns.dimension, 0))
        n_arrived = -1
        for _ in range(_MAX_STAGES):
            block = _iterate(right, block, columns, _STAGE)
            # What was subtracted has left its errors in `right`; the whole span has those of the
            # tensor alone.
            near = _iterate(span.basis, block, columns, _CORRECTION)
            here, values = span.arrived(near)
            if values.max() > best_value:
                best = near[:, [int(np.argmax(values))]]
                best_value = float(values.max())
            n_before = n_arrived
            n_arrived = arrived.shape[1] + int(np.sum(here))
            arrived = np.hstack([arrived, near[:, here]])
            block = block[:, ~here]
            if (
                n_arrived >= min(n_left, _ENOUGH * n_starts)
                or n_arrived == n_before > 0
                or block.shape[1] == 0
            ):
                break
        reached = _different(span.polish(arrived), found, right, columns) if n_arrived else arrived
        if reached.shape[1]:
            return reached[:, :n_left], True
    return best, False


def _iterate(
    right: FloatArray, block: FloatArray, columns: PackedCoordinates, n_steps: int
) -> FloatArray:
    """Return unit vectors after steps of the shifted power method."""
    for _ in range(n_steps):
        inside = right.T @ columns.powers(block)
        missing = np.clip(1 - np.einsum("ml,ml->l", inside, inside), 0, 1)
        block = columns.contract(right @ inside, block) + _SHIFT * missing * block
        block /= np.linalg.norm(block, axis=0)
    return block


def _repeated(block: FloatArray) -> BoolArray:
    """Return which vectors are the same component as one before them."""
    repeated: BoolArray = np.triu(np.abs(block.T @ block), 1).max(axis=0, initial=0.0) > 1 - _SAME
    return repeated


def _different(
    block: FloatArray, found: FloatArray, right: FloatArray, columns: PackedCoordinates
) -> FloatArray:
    """Return the vectors that differ from those before them and from those found, with linearly
    independent powers.
    """
    known = np.abs(found.T @ block).max(axis=0, initial=0.0) > 1 - _SAME
    block = block[:, ~(known | _repeated(block))]
    inside = right.T @ columns.powers(block)
    _, root, pivots = scipy.linalg.qr(inside, mode="economic", pivoting=True)
    sizes = np.abs(np.diagonal(root))
    return block[:, np.sort(pivots[: int(np.sum(sizes > _LEAST_NEW))])]


def _complement(vectors: DataArray) -> FloatArray:
    """Return an orthonormal basis of the complement of the span of the columns."""
    return np.linalg.qr(vectors, mode="complete")[0].astype(np.float64)[:, vectors.shape[1] :]


class FlattenedProblem(SymmetricProblem):
    """The least-squares fit of a tensor that is given by its flattening."""

    def __init__(self, tensor: FlattenedTensor) -> None:
        super().__init__(tensor, tensor.squared_norm())
        self.tensor = tensor
        self._misfits: dict[Components, float] = {}

    @property
    def has_entries(self) -> bool:
        """The flattening has them."""
        return True

    @cached_property
    def spectrum(self) -> FlatteningSpectrum:
        """The singular values of the flattening."""
        return FlatteningSpectrum.of(self.tensor.matrix, self.tensor.rounding)

    def misfit(self, components: Components) -> float:
        """Return ‖T − C‖² from the flattening."""
        if components not in self._misfits:
            self._misfits[components] = self.tensor.minus(components).squared_norm()
        return self._misfits[components]

    def residual(self, components: Components) -> FlattenedProblem:
        """Return the tensor minus components."""
        return FlattenedProblem(self.tensor.minus(components))

    without = residual

    def inside(self, bases: Sequence[FloatArray]) -> FlattenedProblem:
        """Return the tensor in the coordinates of an orthonormal basis."""
        return FlattenedProblem(self.tensor.within(bases[0]))

    def divided(self, scales: Sequence[FloatArray]) -> FlattenedProblem:
        """Return the tensor in coordinates that are divided by the scales."""
        return FlattenedProblem(self.tensor.divided(scales[0]))

    def _unfolding(self) -> FloatArray:
        return self.tensor.rows.unfolding(self.tensor.matrix)

    def noise_beside(self, rank: int) -> float | None:
        """Return the squared norm of the noise by the singular values after the first `rank` ones,
        if these are clear.

        None if the unfolding has enough eigenvalues to show it: this spectrum takes longer.
        """
        enough = self.oracle.dimension - rank >= FEWEST_FOR_A_LAW
        if enough or self.spectrum.n_clear < rank:
            return None
        return self._noise_beside(rank)

    def suggested_rank(self) -> int | None:
        """Return the rank of the flattening, if it is at most d and there is noise to tell it
        from.
        """
        rank = self.spectrum.n_clear
        size = self.spectrum.values.size
        if rank <= self.oracle.dimension and self.spectrum.n_usable == size:
            return rank
        return None

    def rest_is_noise(self, rank: int, spectra: Spectra) -> bool:  # noqa: ARG002
        """Return whether what the flattening has beside `rank` components follows the law of
        noise.
        """
        return self.flattening_is_noise(rank)

    def flattening_is_noise(self, rank: int) -> bool:
        """Return whether enough singular values follow the first `rank` ones, and none stands clear
        of the others.
        """
        n_rest = self.spectrum.values.size - rank
        return n_rest >= FEWEST_FOR_A_LAW and self.spectrum.n_clear <= rank

    def start(self, rank: int, generator: np.random.Generator) -> Components | None:
        """Return what the subspace power method finds; None for few components, where other starts
        are faster.
        """
        if 2 * rank < self.oracle.dimension or self.spectrum.n_clear < rank:
            return None
        tensor = self.tensor
        return subspace_power_method(
            tensor.matrix, tensor.dimension, tensor.order, rank, generator, spectrum=self.spectrum
        )

    def _noise_beside(self, rank: int) -> float:
        free = max(1, self.tensor.columns.size - rank)
        return self.spectrum.noise_after(rank) / free * self.tensor.matrix.size

    def expected_misfit(self, rank: int) -> float:
        """Return the squared norm that noise leaves beside `rank` components, by the other singular
        values.
        """
        free = max(0.0, 1 - rank * self.oracle.dimension / self.noise.n_entries)
        return max(rounding_error(self), _GOOD_FIT * self._noise_beside(rank) * free)


def flattened_problem(
    oracle: Oracle, flattening: FloatArray
) -> tuple[FlattenedProblem, FloatArray]:
    """Return the problem of an oracle with this flattening, and a basis of its coordinates.

    The basis spans the unfolding, so that a tensor that does not depend on all directions is
    searched in those that it depends on.
    """
    dimension = oracle.dimension
    tensor = FlattenedTensor(flattening, dimension, oracle.order, rounding=oracle.rounding)
    with one_blas_thread():
        values, vectors = np.linalg.eigh(tensor.unfolding_gram())
    used = (
        values
        > ROUNDING_MULTIPLE * max(oracle.rounding, float(np.finfo(np.float64).eps)) * values[-1]
    )
    if used.all():
        return FlattenedProblem(tensor), np.eye(dimension)
    basis = vectors[:, used]
    return FlattenedProblem(tensor.within(basis)), basis
