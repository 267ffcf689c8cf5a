"""Rows of data of which every one, or every user's, is to be protected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np
from scipy import sparse

from odeco._util.arguments import MINIMUM_ORDER, check_choice, check_count, check_norm_bound
from odeco._util.threads import map_blocks, one_blas_thread
from odeco._util.types import FloatArray
from odeco.io.rows import as_rows, check_private_rows
from odeco.privacy.holders.lanes import (
    LANES,
    ROWS_AT_ONCE,
    RowLane,
    is_elsewhere,
    lane_spans,
    n_lanes,
    sum_in_lanes,
    within,
)
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

#: Monomials of degree 4 of rows that are held at a time.
_MONOMIALS = 2**22

#: Lanes are handed to threads from this many rows times numbers of the answer on; below, that takes
#: longer than adding.
_PARALLEL_WORK = 2**20


@final
class RecordLevel(DataHolder):
    """The moment (1/n) Σ x⊗ᵖ of n rows, each clipped to a norm; or the mean over users of each
    user's own mean.

    Parameters
    ----------
    rows : array or CSR array, n x d, or SilentRows, or RemoteRows
        The data. A row with NaN or infinity counts as a row of zeros. Rows in files that
        `odeco.privacy.open_private` has opened, and rows of a cluster, are read again for every
        query, and never held here; the answers are bit-identical (`odeco.privacy.holders.lanes`).
    norm_bound : float
        The bound B on the Euclidean norm of a row: longer rows are scaled down to it. Must be known
        without looking at the data.
    neighbour_relation : {"replace", "add_remove"}
        What a neighbour may do to one record (or to all rows of one user): replace it by any other,
        or blank it, so that it adds nothing. The number of rows is public either way.
    order : int
        The order p of the moment.
    groups : array of n labels, optional
        Which user each row belongs to; public. The unit is then the user.
    nonnegative : bool
        Cut negative numbers to 0. Replacing a record then costs √2 instead of 2 at odd orders.

    Notes
    -----
    *Non-negative records.* If no entry of x and y is negative, ⟨x, y⟩ ≥ 0, so that |x⊗ᵖ − y⊗ᵖ|²,
    which is |x|²ᵖ + |y|²ᵖ − 2⟨x, y⟩ᵖ, is at most 2B²ᵖ at every order. It stays so for the means of
    two users: their inner product is a mean of such ⟨x, y⟩ᵖ. Rows are cut after they are clipped,
    which shortens them further.

    *Users.* With ``groups`` the tensor is (1/G) Σ_g (1/n_g) Σ_{x in g} x⊗ᵖ. Each user's own mean
    has norm at most Bᵖ, being an average of tensors within that norm, so all that holds for one
    record of n holds for one user of G, with nothing to clip beyond the rows. What the guarantee
    hides is the *values* of all rows of one user: which row belongs to whom, and so the number of
    rows of each, is taken to be public.

    *Rounding.* A chunk of c rows is one matrix product, and the m chunks are added up, in a few
    lanes, so every number errs by at most about c + m + p d units of roundoff times the sum of the
    absolute values of its terms, which is at most Bᵖ times the gain of the query. Twice that is
    added to the sensitivity: 10⁻⁸ of it for a thousand records, 10⁻⁴ for ten million.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.privacy import RecordLevel
    >>> data = RecordLevel(np.eye(4), norm_bound=1.0)
    >>> round(data.sensitivity(np.eye(4)), 6)  # four orthogonal queries: 2 B³ / n
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
        self.nonnegative = nonnegative
        self.neighbour_relation = neighbour_relation
        self._rows: Any = rows
        if is_elsewhere(rows):
            self.n_rows = rows.n_rows
            self.dimension = rows.n_features
        else:
            checked = as_private_rows(rows)
            self.n_rows, self.dimension = (int(size) for size in checked.shape)
            self._rows = within(checked, self.norm_bound, nonnegative)
            (self._rows if isinstance(self._rows, np.ndarray) else self._rows.data).setflags(
                write=False
            )
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
        if users:
            whom = "all rows of one user"
            public = "which row is whose"
        else:
            whom = "one row"
            public = "their number"
        rows = "non-negative and of norm" if self.nonnegative else "of norm"
        return f"{whom}, each {rows} at most {self.norm_bound:g}, {act}; {public} public"

    def second_moment(self) -> FloatArray:
        """Return (1/n) Σ x xᵀ."""
        return self._added_up(_add_second, (self.dimension, self.dimension)) / self.n_units

    def second_moment_sensitivity(self) -> float:
        """Return the largest Euclidean change of `second_moment`, every entry counted as often as
        it stands there.
        """
        return self.sensitivities.entries(2) + self._rounding(0, self.norm_bound**2)

    def packed(self) -> FloatArray:
        """Return the distinct entries, each divided by its `packed_units`."""
        if self.order == 4:
            entries = PackedCoordinates(self.dimension, 4)
            return (
                self._added_up(partial(_add_packed_fourth, entries), (entries.size,), whole=True)
                / self.n_units
            )
        check_order_three(self.order)
        total = self._added_up(_add_packed, (math.comb(self.dimension + 2, 3),), whole=True)
        return total / self.n_units / self.packed_units()

    def packed_sensitivity(self) -> float:
        """Return Bᵖ/n, twice that if replaced (see `RecordSensitivities.entries`), and the
        rounding.
        """
        return self.sensitivities.entries() + self._rounding(0, self.norm_bound**self.order)

    def _image(self, block: FloatArray) -> FloatArray:
        return self._added_up(partial(_add_image, block, self.order), block.shape) / self.n_units

    def _value(self, block: FloatArray) -> FloatArray:
        return (
            self._added_up(partial(_add_value, block, self.order), block.shape[1:]) / self.n_units
        )

    def _core(self, basis: FloatArray) -> FloatArray:
        width = basis.shape[1]
        total = self._added_up(
            partial(_add_core, basis, self.order), (width, width ** (self.order - 1))
        )
        return total.reshape((width,) * self.order) / self.n_units

    def _slab(self, basis: FloatArray) -> FloatArray:
        _, _, factors = column_pairs(basis.shape[1])
        shape = (factors.size, self.dimension)
        n_scratch = factors.size * min(ROWS_AT_ONCE, self.n_rows) + math.prod(shape)
        return self._added_up(partial(_add_slab, basis), shape, n_scratch).T * (
            factors / self.n_units
        )

    def _sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.image(block) + self._block_rounding(block, self.order - 1)

    def _value_sensitivity(self, block: FloatArray) -> float:
        return self.sensitivities.value(block) + self._block_rounding(block, self.order)

    def _core_sensitivity(self, basis: FloatArray) -> float:
        with (
            one_blas_thread()
        ):  # matrices this small are slowed down by threads that wait for each other
            exact = self.sensitivities.core(basis)
        return exact + self._rounding(
            self.order, (self.norm_bound * float(np.linalg.norm(basis))) ** self.order
        )

    def _slab_sensitivity(self, basis: FloatArray) -> float:
        with one_blas_thread():
            exact = replace(self.sensitivities, order=3).core(basis, open_axis=True)
        return exact + self._rounding(2, self.norm_bound**3 * float(np.linalg.norm(basis)) ** 2)

    def _block_rounding(self, block: FloatArray, n_products: int) -> float:
        gains = np.linalg.norm(block, axis=0) ** n_products
        return self._rounding(
            n_products, self.norm_bound**self.order * float(np.linalg.norm(gains))
        )

    def _rounding(self, n_products: int, largest: float) -> float:
        """Return how far rounding can move two neighbours' answers apart, if `n_products` inner
        products go in.
        """
        depth: int = (
            min(ROWS_AT_ONCE, self.n_rows)
            + self.n_rows // ROWS_AT_ONCE
            + n_products * self.dimension
        )
        return 2 * (depth + LANES + 16) * ROUNDOFF * largest

    def _added_up(
        self,
        add: Callable[[FloatArray, Any, FloatArray, FloatArray], None],
        shape: tuple[int, ...],
        n_scratch: int = 0,
        *,
        whole: bool = False,
    ) -> FloatArray:
        """Return the sum over all rows of what `add` adds; a `whole` one is large: as few lanes as
        can be, one by one.

        No number passes through more additions than there are chunks, and two
        (`odeco.privacy.holders.lanes`).
        """
        rows = self._rows
        size = math.prod(shape)
        lane = RowLane(add, shape, n_scratch, None if self.unit == "record" else self._weights)
        if is_elsewhere(rows):
            lane = replace(lane, norm_bound=self.norm_bound, nonnegative=self.nonnegative)
        spans = lane_spans(self.n_rows, n_lanes(self.n_rows, size, fewest=1 if whole else LANES))
        parallel = not whole and spans[0][1] * size >= _PARALLEL_WORK
        return sum_in_lanes(rows, lane, spans, parallel=parallel)


def as_private_rows(rows: Any) -> Any:
    """Return private rows as `as_rows` does, without a message that depends on one of them."""
    check_private_rows(rows)
    checked = as_rows(rows)
    if checked.shape[0] == 0:
        raise ValueError(
            "Rows must not be empty. Got 0 rows. Their number is public, so this is no leak."
        )
    return checked


# ---- what the rows of a chunk add to a sum: functions that another process can get ---------------


def _add_second(total: FloatArray, rows: Any, weights: FloatArray, _scratch: FloatArray) -> None:
    total += _dense(rows.T @ _times(rows, weights))


def _add_image(
    block: FloatArray,
    order: int,
    total: FloatArray,
    rows: Any,
    weights: FloatArray,
    _scratch: FloatArray,
) -> None:
    total += rows.T @ (weights[:, None] * (rows @ block) ** (order - 1))


def _add_value(
    block: FloatArray,
    order: int,
    total: FloatArray,
    rows: Any,
    weights: FloatArray,
    _scratch: FloatArray,
) -> None:
    total += weights @ (rows @ block) ** order


def _add_core(
    basis: FloatArray,
    order: int,
    total: FloatArray,
    rows: Any,
    weights: FloatArray,
    _scratch: FloatArray,
) -> None:
    inside = _projected(rows, basis)
    powers = inside * weights
    for _ in range(order - 2):
        powers = (powers[:, None, :] * inside[None, :, :]).reshape(-1, inside.shape[1])
    total += inside @ powers.T


def _add_slab(
    basis: FloatArray, total: FloatArray, rows: Any, weights: FloatArray, scratch: FloatArray
) -> None:
    # A column of the basis is a line of `inside`: whole lines are multiplied, and lie as the
    # product wants.
    inside = _projected(rows, basis)
    weighted = inside * weights
    n_pairs = len(total) * rows.shape[0]
    pairs = scratch[:n_pairs].reshape(len(total), -1)
    for column in range(basis.shape[1]):
        start = column * (column + 1) // 2
        np.multiply(inside[: column + 1], weighted[column], out=pairs[start : start + column + 1])
    if isinstance(rows, np.ndarray):
        total += np.matmul(
            pairs, rows, out=scratch[n_pairs : n_pairs + total.size].reshape(total.shape)
        )
    else:
        total += np.asarray((rows.T @ pairs.T).T)


def _add_packed(total: FloatArray, rows: Any, weights: FloatArray, _scratch: FloatArray) -> None:
    columns = np.ascontiguousarray(_dense(rows).T)
    weighted = columns * weights
    d = len(columns)
    lower = np.tri(d, dtype=bool)

    def add(first: int) -> None:
        size = first + 1
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            slab = (columns[:size] * weighted[first]) @ columns[
                :size
            ].T  # T[i, j, k] for i = first ≥ j, k
        total[packed_slab(first)] += slab[lower[:size, :size]]

    for _ in map_blocks(add, range(d), parallel=columns.size * d >= _PARALLEL_WORK):
        pass


def _add_packed_fourth(
    entries: PackedCoordinates,
    total: FloatArray,
    rows: Any,
    weights: FloatArray,
    _scratch: FloatArray,
) -> None:
    """Add xᵢxⱼxₖxₗ for i ≤ j ≤ k ≤ l, each times the root of the number of its arrangements."""
    height = max(1, _MONOMIALS // entries.size)
    for start in range(0, rows.shape[0], height):
        part = slice(start, start + height)
        total += entries.powers(np.ascontiguousarray(_dense(rows[part]).T)) @ weights[part]


def _projected(rows: Any, basis: FloatArray) -> FloatArray:
    """Return (X W)ᵀ: for few columns almost twice as fast as X W."""
    if isinstance(rows, np.ndarray):
        return basis.T @ rows.T
    return np.ascontiguousarray((rows @ basis).T)


def _dense(array: Any) -> FloatArray:
    dense: FloatArray = array if isinstance(array, np.ndarray) else array.toarray()
    return dense


def _times(rows: Any, weights: FloatArray) -> Any:
    if isinstance(rows, np.ndarray):
        return rows * weights[:, None]
    return sparse.diags_array(weights) @ rows
