"""Rows of data of which every one, or every user's, is to be protected."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
from scipy import sparse

from odeco._util.arguments import MINIMUM_ORDER, check_choice, check_count, check_norm_bound
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray
from odeco.io.rows import as_rows, check_private_rows, stored_numbers
from odeco.privacy.clip import clipped_rows
from odeco.privacy.holders.protocol import (
    RELATIONS,
    ROUNDOFF,
    DataHolder,
    NeighbourRelation,
    check_order_three,
    column_pairs,
    packed_slab,
    unit_weights,
)
from odeco.privacy.sensitivity import RecordSensitivities
from odeco.tensors.coordinates import PackedCoordinates

#: Rows are added up in chunks of this many, so that rounding errors grow with the number of chunks, not of rows.
ROWS_AT_ONCE = 1024

#: Monomials of degree 4 of rows that are held at a time.
_MONOMIALS = 2**22

#: Number of lanes that share the chunks, whatever the number of threads, so that a sum is always the same.
_LANES = 4

#: Lanes are handed to threads from this many rows times numbers of the answer on; below, that takes longer than adding.
_PARALLEL_WORK = 2**20


@runtime_checkable
class SilentRows(Protocol):
    """Rows that lie elsewhere, and are read again for every query, such as `odeco.privacy.open_private` returns.

    What a row means must depend on what is stored for that row alone, and reading must never raise, warn or log because
    of a value: `silent` says that both hold.
    """

    @property
    def silent(self) -> bool:
        """Whether reading them never raises, warns or logs because of a value."""

    @property
    def n_rows(self) -> int:
        """Number of rows; public."""

    @property
    def n_features(self) -> int:
        """Number of columns; public."""

    def chunks(self, height: int) -> Iterator[Any]:
        """Start a fresh pass in chunks of exactly `height` rows, the last perhaps of fewer."""


@final
class RecordLevel(DataHolder):
    """The moment (1/n) Σ x⊗ᵖ of n rows, each clipped to a norm; or the mean over users of each user's own mean.

    Parameters
    ----------
    rows : array or CSR array, n x d, or SilentRows
        The data. A row with NaN or infinity counts as a row of zeros. Rows in files that `odeco.privacy.open_private`
        has opened are read again for every query, and never held as a whole; the answers are bit-identical.
    norm_bound : float
        The bound B on the Euclidean norm of a row: longer rows are scaled down to it. Must be known without looking at
        the data.
    neighbour_relation : {"replace", "add_remove"}
        What a neighbour may do to one record (or to all rows of one user): replace it by any other, or blank it, so
        that it adds nothing. The number of rows is public either way.
    order : int
        The order p of the moment.
    groups : array of n labels, optional
        Which user each row belongs to; public. The unit is then the user.
    nonnegative : bool
        Cut negative numbers to 0. Replacing a record then costs √2 instead of 2 at odd orders.

    Notes
    -----
    *Non-negative records.* If no entry of x and y is negative, ⟨x, y⟩ ≥ 0, so that |x⊗ᵖ − y⊗ᵖ|², which is
    |x|²ᵖ + |y|²ᵖ − 2⟨x, y⟩ᵖ, is at most 2B²ᵖ at every order. It stays so for the means of two users: their inner
    product is a mean of such ⟨x, y⟩ᵖ. Rows are cut after they are clipped, which shortens them further.

    *Users.* With ``groups`` the tensor is (1/G) Σ_g (1/n_g) Σ_{x in g} x⊗ᵖ. Each user's own mean has norm at most Bᵖ,
    being an average of tensors within that norm, so all that holds for one record of n holds for one user of G, with
    nothing to clip beyond the rows. What the guarantee hides is the *values* of all rows of one user: which row
    belongs to whom, and so the number of rows of each, is taken to be public.

    *Rounding.* A chunk of c rows is one matrix product, and the m chunks are added up, in a few lanes, so every number
    errs by at most about c + m + p d units of roundoff times the sum of the absolute values of its terms, which is at
    most Bᵖ times the gain of the query. Twice that is added to the sensitivity: 10⁻⁸ of it for a thousand records,
    10⁻⁴ for ten million.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy import RecordLevel
    >>> data = RecordLevel(np.eye(4), norm_bound=1.0)
    >>> round(data.sensitivity(np.eye(4)), 6)  # replaced: 2 B³ / n, for four orthogonal queries together
    0.5
    """

    #: 1/√(how often an entry stands in the full array), so that norms are those of the full array.
    entry_units = (6**-0.5, 3**-0.5, 1.0)

    def __init__(
        self,
        rows: Any,
        *,
        norm_bound: float,
        neighbour_relation: NeighbourRelation = "replace",
        order: int = 3,
        groups: Any = None,
        nonnegative: bool = False,
    ) -> None:
        check_choice("neighbour_relation", neighbour_relation, tuple(RELATIONS))
        self.norm_bound = check_norm_bound(norm_bound)
        self.order = check_count("order", order, MINIMUM_ORDER)
        self.nonnegative, self.neighbour_relation = nonnegative, neighbour_relation
        self._rows: Any = rows
        if isinstance(rows, SilentRows) and rows.silent:
            self.n_rows, self.dimension = rows.n_rows, rows.n_features
        else:
            checked = as_private_rows(rows)
            self.n_rows, self.dimension = (int(size) for size in checked.shape)
            self._rows = self._admitted(checked)
            (self._rows if isinstance(self._rows, np.ndarray) else self._rows.data).setflags(write=False)
        self._weights, self.n_units = unit_weights(groups, self.n_rows)
        self._weights.setflags(write=False)
        self.unit = "record" if groups is None else "user"
        known = (self.norm_bound, self.n_units, self.order)
        replaced = neighbour_relation == "replace"
        self.sensitivities = RecordSensitivities(*known, replace=replaced, nonnegative=nonnegative)
        self.seal()

    @property
    def neighbours(self) -> str:  # type: ignore[override]
        """The neighbour relation in words."""
        act = RELATIONS[self.neighbour_relation]
        users = self.unit == "user"
        whom, public = ("all rows of one user", "which row is whose") if users else ("one row", "their number")
        rows = "non-negative and of norm" if self.nonnegative else "of norm"
        return f"{whom}, each {rows} at most {self.norm_bound:g}, {act}; {public} public"

    def second_moment(self) -> FloatArray:
        """Return (1/n) Σ x xᵀ."""

        def part(rows: Any, weights: FloatArray, _scratch: FloatArray) -> FloatArray:
            return _dense(rows.T @ _times(rows, weights))

        return self._added_up((self.dimension, self.dimension), part) / self.n_units

    def second_moment_sensitivity(self) -> float:
        """Return the largest Euclidean change of `second_moment`, every entry counted as often as it stands there."""
        return self.sensitivities.entries(2) + self._rounding(0, self.norm_bound**2)

    def packed(self) -> FloatArray:
        """Return the distinct entries, each divided by its `packed_units`."""
        if self.order == 4:
            return self._packed_fourth()
        check_order_three(self.order)
        d = self.dimension
        total, lower = np.zeros(math.comb(d + 2, 3)), np.tri(d, dtype=bool)
        for rows, weights in self._chunks():  # not in lanes: each would hold all entries
            columns = np.ascontiguousarray(_dense(rows).T)
            weighted = columns * weights

            def add(first: int, columns: FloatArray = columns, weighted: FloatArray = weighted) -> None:
                size = first + 1
                with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
                    slab = (columns[:size] * weighted[first]) @ columns[:size].T  # T[i, j, k] for i = first ≥ j, k
                total[packed_slab(first)] += slab[lower[:size, :size]]

            for _ in map_blocks(add, range(d), parallel=columns.size * d >= _PARALLEL_WORK):
                pass
        return total / self.n_units / self.packed_units()

    def _packed_fourth(self) -> FloatArray:
        """Return Σ xᵢxⱼxₖxₗ / n for i ≤ j ≤ k ≤ l, each times the root of the number of its arrangements."""
        entries = PackedCoordinates(self.dimension, 4)
        height = max(1, _MONOMIALS // entries.size)
        total = np.zeros(entries.size)
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            for rows, weights in self._chunks():
                for start in range(0, rows.shape[0], height):
                    part = slice(start, start + height)
                    total += entries.powers(np.ascontiguousarray(_dense(rows[part]).T)) @ weights[part]
        return total / self.n_units

    def packed_sensitivity(self) -> float:
        """Return Bᵖ/n, twice that if replaced (see `RecordSensitivities.entries`), and the rounding."""
        return self.sensitivities.entries() + self._rounding(0, self.norm_bound**self.order)

    def _image(self, block: FloatArray) -> FloatArray:
        def part(rows: Any, weights: FloatArray, _scratch: FloatArray) -> FloatArray:
            image: FloatArray = rows.T @ (weights[:, None] * (rows @ block) ** (self.order - 1))
            return image

        return self._added_up(block.shape, part) / self.n_units

    def _value(self, block: FloatArray) -> FloatArray:
        def part(rows: Any, weights: FloatArray, _scratch: FloatArray) -> FloatArray:
            values: FloatArray = weights @ (rows @ block) ** self.order
            return values

        return self._added_up(block.shape[1:], part) / self.n_units

    def _core(self, basis: FloatArray) -> FloatArray:
        width = basis.shape[1]

        def part(rows: Any, weights: FloatArray, _scratch: FloatArray) -> FloatArray:
            inside = _projected(rows, basis)
            powers = inside * weights
            for _ in range(self.order - 2):
                powers = (powers[:, None, :] * inside[None, :, :]).reshape(-1, inside.shape[1])
            core: FloatArray = inside @ powers.T
            return core

        total = self._added_up((width, width ** (self.order - 1)), part)
        return total.reshape((width,) * self.order) / self.n_units

    def _slab(self, basis: FloatArray) -> FloatArray:
        width = basis.shape[1]
        _, _, factors = column_pairs(width)
        shape = (factors.size, self.dimension)

        def part(rows: Any, weights: FloatArray, scratch: FloatArray) -> FloatArray:
            # A column of the basis is a line of `inside`: whole lines are multiplied, and lie as the product wants.
            inside = _projected(rows, basis)
            weighted = inside * weights
            n_pairs = factors.size * rows.shape[0]
            pairs = scratch[:n_pairs].reshape(factors.size, -1)
            for column in range(width):
                start = column * (column + 1) // 2
                np.multiply(inside[: column + 1], weighted[column], out=pairs[start : start + column + 1])
            if not isinstance(rows, np.ndarray):
                return np.asarray((rows.T @ pairs.T).T)
            return np.matmul(pairs, rows, out=scratch[n_pairs : n_pairs + math.prod(shape)].reshape(shape))

        n_scratch = factors.size * min(ROWS_AT_ONCE, self.n_rows) + math.prod(shape)
        return self._added_up(shape, part, n_scratch).T * (factors / self.n_units)

    def _sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.image(block) + self._block_rounding(block, self.order - 1)

    def _value_sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.value(block) + self._block_rounding(block, self.order)

    def _core_sensitivity(self, basis: FloatArray) -> float:
        with one_blas_thread():  # matrices this small are slowed down by threads that wait for each other
            exact = self.sensitivities.core(basis)
        return exact + self._rounding(self.order, (self.norm_bound * float(np.linalg.norm(basis))) ** self.order)

    def _slab_sensitivity(self, basis: FloatArray) -> float:
        with one_blas_thread():
            exact = replace(self.sensitivities, order=3).core(basis, open_axis=True)
        return exact + self._rounding(2, self.norm_bound**3 * float(np.linalg.norm(basis)) ** 2)

    def _block_rounding(self, block: FloatArray, n_products: int) -> float:
        gains = np.linalg.norm(block, axis=0) ** n_products
        return self._rounding(n_products, self.norm_bound**self.order * float(np.linalg.norm(gains)))

    def _rounding(self, n_products: int, largest: float) -> float:
        """Return how far rounding can move two neighbours' answers apart, if `n_products` inner products go in."""
        depth = min(ROWS_AT_ONCE, self.n_rows) + self.n_rows // ROWS_AT_ONCE + n_products * self.dimension
        return 2 * (depth + _LANES + 16) * ROUNDOFF * largest

    def _added_up(
        self,
        shape: tuple[int, ...],
        part: Callable[[Any, FloatArray, FloatArray], FloatArray],
        n_scratch: int = 0,
    ) -> FloatArray:
        """Return the sum over chunks of what `part` makes of their rows and weights.

        `part` also gets `n_scratch` numbers to write on: asking the system for large arrays, chunk after chunk, takes
        longer than filling them. Each lane adds up chunks that lie together, and the lanes are added in order: no
        number passes through more additions than there are chunks and lanes.
        """
        n_chunks = -(-self.n_rows // ROWS_AT_ONCE)
        share = -(-n_chunks // _LANES)
        lanes = [range(lane * share, min((lane + 1) * share, n_chunks)) for lane in range(min(_LANES, n_chunks))]

        def add_lane(chunks: Iterator[tuple[Any, FloatArray]]) -> FloatArray:
            total, scratch = np.zeros(shape), np.empty(n_scratch)
            with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
                for rows, weights in chunks:
                    total += part(rows, weights, scratch)
            return total

        total = np.zeros(shape)
        if isinstance(self._rows, SilentRows):  # read from front to back, lane after lane
            chunks = self._chunks()
            for lane in lanes:
                total += add_lane(itertools.islice(chunks, len(lane)))
            return total
        parallel = share * ROWS_AT_ONCE * math.prod(shape) >= _PARALLEL_WORK
        for each in map_blocks(lambda lane: add_lane(map(self._chunk, lane)), lanes, parallel=parallel):
            total += each
        return total

    def _chunks(self) -> Iterator[tuple[Any, FloatArray]]:
        """Yield all rows, clipped, in chunks of `ROWS_AT_ONCE`, with what each row counts."""
        if not isinstance(self._rows, SilentRows):
            yield from map(self._chunk, range(-(-self.n_rows // ROWS_AT_ONCE)))
            return
        for number, rows in enumerate(self._rows.chunks(ROWS_AT_ONCE)):
            yield self._admitted(as_rows(rows)), self._weights[_place(number)]

    def _chunk(self, number: int) -> tuple[Any, FloatArray]:
        return self._rows[_place(number)], self._weights[_place(number)]

    def _admitted(self, rows: Any) -> Any:
        """Return rows within the bound; what becomes of a row depends on that row alone."""
        admitted = clipped_rows(rows, self.norm_bound)
        if self.nonnegative:
            numbers = stored_numbers(admitted)
            np.maximum(numbers, 0.0, out=numbers)
        return admitted


def as_private_rows(rows: Any) -> Any:
    """Return private rows as `as_rows` does, without a message that depends on one of them."""
    check_private_rows(rows)
    checked = as_rows(rows)
    if checked.shape[0] == 0:
        raise ValueError("Rows must not be empty. Got 0 rows. Their number is public, so this is no leak.")
    return checked


def _place(number: int) -> slice:
    return slice(number * ROWS_AT_ONCE, (number + 1) * ROWS_AT_ONCE)


def _projected(rows: Any, basis: FloatArray) -> FloatArray:
    """Return (X W)ᵀ: for few columns almost twice as fast as X W."""
    return basis.T @ rows.T if isinstance(rows, np.ndarray) else np.ascontiguousarray((rows @ basis).T)


def _dense(array: Any) -> FloatArray:
    dense: FloatArray = array if isinstance(array, np.ndarray) else array.toarray()
    return dense


def _times(rows: Any, weights: FloatArray) -> Any:
    return rows * weights[:, None] if isinstance(rows, np.ndarray) else sparse.diags_array(weights) @ rows
