"""What all solvers have in common, so that an oracle, a stream or a file need not know which solver it serves.

The power iteration of a block of unit vectors, and the uniform draws from which it starts, are here too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import Sizes
from odeco._util.types import FloatArray
from odeco.cp.rank import RankEvidence
from odeco.tensors.components import Components


def uniform_starts(generator: np.random.Generator, parts: tuple[int, ...], n_starts: int) -> FloatArray:
    """Draw unit vectors uniformly on the sphere, each part on its own and all parts of equal length."""
    block = generator.standard_normal((sum(parts), n_starts))
    return normalise(block, parts, block)


def normalise(block: FloatArray, parts: tuple[int, ...], fallback: FloatArray) -> FloatArray:
    """Scale every column to unit length, each of its parts to 1/√(number of parts).

    A part that is zero has no direction, and is replaced by that of `fallback`.
    """
    result = np.empty_like(block)
    start = 0
    for size in parts:
        rows = slice(start, start + size)
        part, scaled = block[rows], result[rows]
        largest = np.maximum(part.max(axis=0), -part.min(axis=0))
        # Dividing by the largest first keeps squares from under- and overflowing.
        np.divide(part, np.where(largest > 0, largest, 1.0), out=scaled)
        scaled[:, largest == 0] = fallback[rows][:, largest == 0]
        scaled /= column_norms(scaled) * math.sqrt(len(parts))
        start += size
    return result


def column_norms(block: FloatArray) -> FloatArray:
    """Return the length of every column."""
    squares: FloatArray = np.einsum("il,il->l", block, block)
    return np.sqrt(squares)


def choose_shifts(
    signs: FloatArray,
    shifts: FloatArray,
    before: FloatArray,
    values: FloatArray,
    *,
    order: int,
    n_images: int,
    may_shift: bool,
    rounding: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the sign and the shift of each iterate: SS-HOPM (Kolda and Mayo 2011), with shifts only where needed.

    At an odd order an iterate and its negative have opposite values, so maximisation is enough. At an even order an
    iterate whose first value is negative minimises. The value of a maximising iterate never falls once its shift
    exceeds (p−1) times the largest value, so after finitely many doublings nothing can cycle. Where no shift is needed
    it stays 0, and convergence stays quadratic.

    Parameters
    ----------
    signs, shifts : arrays of L numbers
        For each iterate: whether it maximises (+1) or minimises (−1), and its shift so far.
    before, values : arrays of L numbers
        Its last value and its present one.
    order, n_images : int
        The order of the tensor, and the number of images of these iterates so far, the present one included.
    may_shift : bool
        Whether shifts may be raised at all.
    rounding : float
        The relative rounding error of the images.
    """
    if order % 2 == 0 and n_images == 1:
        return np.where(values < 0, -1.0, 1.0), shifts
    worse = signs * values < signs * before - 10 * rounding * np.abs(before)
    if may_shift and n_images > 1 and worse.any():
        return signs, np.where(worse, np.maximum(2 * shifts, np.abs(before)), shifts)
    return signs, shifts


def power_step(
    iterates: FloatArray, images: FloatArray, signs: FloatArray, shifts: FloatArray, parts: tuple[int, ...]
) -> FloatArray:
    """Return the normalised image of every iterate (Algorithm 1, line 4), plus its shift where it has one."""
    direction = images
    if shifts.any() or np.any(signs < 0):
        direction = signs * images + shifts * iterates
    return normalise(direction, parts, iterates)


class Solver(Protocol):
    """The immutable state of an algorithm that learns a tensor from the replies of an oracle, one query at a time.

    Make the `query` with the vectors `probes`, pass the reply to `advance`, which returns the next state, until `done`.
    """

    #: Whether probes may converge to the same vector, so that a private release may merge those that have.
    probes_converge: ClassVar[bool]

    #: Whether the components were read off the last reply, whose rows they then stand for. If not, as where they were
    #: found in the span of earlier replies, the first image of a tracker replaces them.
    found_in_reply: ClassVar[bool]

    @property
    def order(self) -> int:
        """The order of the tensor or moment."""

    @property
    def query(self) -> Literal["image", "value", "core", "entries", "pairs", "rows"]:
        """What is needed next: T(I, u, …, u), T(u, …, u), T(Q, …, Q), all entries, or the rows themselves."""

    @property
    def probes(self) -> FloatArray:
        """The vectors of the next query, as the columns of a d x L array."""

    @property
    def components(self) -> Components:
        """The components found so far; there may be none."""

    @property
    def done(self) -> bool:
        """Whether no further reply is needed."""

    @property
    def n_queries(self) -> int | None:
        """The number of queries in all; None if there is no end."""

    @property
    def n_replies(self) -> int:
        """The number of replies so far."""

    @property
    def rank_evidence(self) -> RankEvidence | None:
        """The evidence for the number of components, if that was not given."""

    @property
    def confirmed(self) -> NDArray[np.bool_] | None:
        """Which components rows confirm that did not find them; None if all, or if none were held out."""

    @property
    def status(self) -> str:
        """What the next reply is for, for a progress display."""

    @property
    def description(self) -> str:
        """What its queries consist of, for an error message."""

    def advance(self, reply: FloatArray, n_rows: int | None = None) -> Self:
        """Return the state after the reply to `query`, which is a mean over `n_rows` rows if the data are rows."""

    def end_pass(self) -> Self:
        """Return the state after the end of a pass over the data."""

    def standard_errors(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the standard errors of weights and of angles in radians, or None if they are unknown."""

    def noise_ratio(self, n_rows: int) -> float | None:
        """Return the noise in `components` over that in one reply, a mean over `n_rows` rows; None if not averaged."""

    def to_arrays(self, prefix: str) -> dict[str, Any]:
        """Return the state as named arrays; see `odeco._util.state.State`."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], prefix: str, sizes: Sizes | None = None) -> Self:
        """Return the state that `to_arrays` wrote."""


class SolverDefaults:
    """What most solvers have in common: they act on every reply at once, and hold out no rows."""

    probes_converge: ClassVar[bool] = False
    found_in_reply: ClassVar[bool] = False

    #: The number of components is given.
    rank_evidence: RankEvidence | None = None

    @property
    def confirmed(self) -> NDArray[np.bool_] | None:
        """None: no rows are held out."""
        return None

    def end_pass(self) -> Self:
        """Return the state itself: the end of a pass changes nothing."""
        return self

    def standard_errors(self) -> None:
        """Return None: they are unknown."""

    def noise_ratio(self, n_rows: int) -> None:
        """Return None: components are not averaged."""
