"""Private rows clipped to a bound, and sums over them in lanes: the sums of lanes are added in
order.

Rows are clipped each on its own, and without a message about any of them. The records of a lane lie
together.

The lanes follow from public numbers alone, never from the number of threads or workers, so that a
sum is always the same: of rows in memory, in files, and on the workers of a cluster.

**Sensitivity.** A declared sensitivity has two parts. One bounds what a record adds, which is
computed from that record and from public arguments, wherever this is done. The other bounds
rounding. Counts are whole multiples of a power of two, and exact in whatever order they are added
(`odeco.privacy.holders.norms`). Other sums declare an error that grows with the number of additions
that a number passes through. With m chunks in l lanes these are at most ⌈m/l⌉ + l, which is convex
in l, hence at most m + 2 for every l from 1 to m: the bound for one lane, plus 2, holds for all
numbers of lanes. So nothing that is declared depends on where a sum is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import as_rows, is_sparse, stored_numbers

#: Rows are added up in chunks of this many, so that rounding errors grow with the number of chunks,
#: not of rows.
ROWS_AT_ONCE = 1024

#: Number of lanes of a small sum. A larger one has a lane for every `LANE_RECORDS`, at most
#: `_MOST_LANES`, and the sums of all lanes together have at most `_MOST_NUMBERS` numbers.
LANES = 4
LANE_RECORDS = 2**16
_MOST_LANES = 256
_MOST_NUMBERS = 2**27

#: A function of the first record of a lane and of its chunks: the sum over the lane.
Lane = Callable[[int, Iterator[Any]], FloatArray]

#: The first record of a lane, and the first after it.
Span = tuple[int, int]


@runtime_checkable
class SilentRows(Protocol):
    """Rows that lie elsewhere, and are read again for every query, such as
    `odeco.privacy.open_private` returns.

    What a row means must depend on what is stored for that row alone, and reading must never raise,
    warn or log because of a value: `silent` says that both hold.
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


@runtime_checkable
class RemoteRows(Protocol):
    """Rows that other processes read and add up, such as `odeco.online.dask.as_cluster_rows`
    returns.

    All that `SilentRows` promise must hold in those processes too.
    """

    silent: bool
    n_rows: int
    n_features: int

    def add_lanes(
        self, lane: Lane, spans: Sequence[Span], height: int, chosen: IndexArray | None = None
    ) -> Iterator[FloatArray]:
        """Yield the sums over spans of rows in order, each read in chunks of `height` rows.

        With `chosen`, spans are those of that array: of numbers of rows, which grow inside every
        span.
        """


def is_elsewhere(rows: Any) -> bool:
    """Return whether rows are read for every query, and silently, so that nothing of them is held
    here.
    """
    return isinstance(rows, SilentRows | RemoteRows) and rows.silent


def n_lanes(n_records: int, size: int, fewest: int = LANES) -> int:
    """Return the number of lanes for a sum of `size` numbers."""
    most = max(fewest, min(_MOST_LANES, _MOST_NUMBERS // max(1, size)))
    return min(most, max(fewest, -(-n_records // LANE_RECORDS)))


def lane_spans(n_rows: int, number: int) -> list[Span]:
    """Return where lanes begin and end, in whole chunks; fewer lanes than `number` if there are
    fewer chunks.
    """
    height = -(-_n_chunks(0, n_rows) // number) * ROWS_AT_ONCE
    return [(start, min(start + height, n_rows)) for start in range(0, n_rows, height)]


@dataclass(frozen=True)
class RowLane:
    """The sum over a lane of rows: all that another process must know about it, besides the rows.

    Attributes
    ----------
    add : callable
        Adds what rows, with what each of them counts, contribute to an array; it also gets numbers
        to write on, since asking the system for large arrays, chunk after chunk, takes longer than
        filling them.
    shape : tuple of int
        The shape of the sum.
    n_scratch : int
        How many numbers there are to write on.
    weights : array or None
        What each of all rows counts; None if every row counts once.
    norm_bound : float or None
        The norm to which rows are clipped; None if they are taken as they are.
    nonnegative : bool
        Whether negative numbers are cut to 0 after that.
    """

    add: Callable[[FloatArray, Any, FloatArray, FloatArray], None]
    shape: tuple[int, ...]
    n_scratch: int = 0
    weights: FloatArray | None = None
    norm_bound: float | None = None
    nonnegative: bool = False

    def __call__(self, first: int, chunks: Iterator[Any]) -> FloatArray:
        """Return the sum over the chunks of a lane."""
        total = np.zeros(self.shape)
        scratch = np.empty(self.n_scratch)
        with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
            for chunk in chunks:
                if self.norm_bound is None:
                    rows = chunk
                else:
                    rows = within(as_rows(chunk), self.norm_bound, self.nonnegative)
                last = first + rows.shape[0]
                if self.weights is None:
                    weights = np.ones(rows.shape[0])
                else:
                    weights = self.weights[first:last]
                self.add(total, rows, weights, scratch)
                first = last
        return total


def within(rows: Any, norm_bound: float, nonnegative: bool) -> Any:
    """Return rows within the bound; what becomes of a row depends on that row alone."""
    admitted = clipped_rows(rows, norm_bound)
    if nonnegative:
        numbers = stored_numbers(admitted)
        np.maximum(numbers, 0.0, out=numbers)
    return admitted


def sum_in_lanes(rows: Any, lane: RowLane, spans: Sequence[Span], *, parallel: bool) -> FloatArray:
    """Return the sum over rows in memory, in files or on a cluster; `parallel` is for those in
    memory.
    """
    if isinstance(rows, RemoteRows):
        sums = rows.add_lanes(lane, spans, ROWS_AT_ONCE)
    elif isinstance(rows, SilentRows):  # read from front to back, lane after lane
        chunks = rows.chunks(ROWS_AT_ONCE)
        sums = map_blocks(
            lambda span: lane(span[0], islice(chunks, _n_chunks(*span))), spans, parallel=False
        )
    else:
        sums = map_blocks(lambda span: lane(span[0], _cut(rows, *span)), spans, parallel=parallel)
    total = np.zeros(lane.shape) if len(spans) > 1 else next(sums)
    for each in sums:
        total += each
    return total


def _n_chunks(start: int, stop: int) -> int:
    return -(-(stop - start) // ROWS_AT_ONCE)


def _cut(rows: Any, start: int, stop: int) -> Iterator[Any]:
    return (
        rows[first : min(first + ROWS_AT_ONCE, stop)] for first in range(start, stop, ROWS_AT_ONCE)
    )


# ---- rows within a bound -------------------------------------------------------------------------

#: The scaled norm is below the bound by this share of it, and for rows of very many numbers by
#: more, see `_allowed`.
_MARGIN = 2.0**-32

#: Squares of numbers between 1 over this and this are normal, and so are quotients of two such
#: numbers.
_SURE = 1e100

#: Numbers of dense rows that are clipped while the cache holds them.
_CACHED_SIZE = 2**17


def clipped_rows(rows: Any, norm_bound: float) -> Any:
    """Return rows in double precision, those that are not finite as zeros and those beyond the
    bound scaled down to it.

    What becomes of a row depends on that row alone. Rows are scaled to a norm that is below the
    bound by more than rounding errors (`_allowed`). Rows so long or so short that their squares, or
    the factor that brings them within the bound, would leave the normal range of double precision
    are divided by a power of two first.
    """
    if is_sparse(rows):
        return _clipped_sparse(rows, norm_bound)
    data = np.empty(rows.shape)
    height = max(1, _CACHED_SIZE // max(1, rows.shape[1]))
    starts = range(0, rows.shape[0], height)

    def clip(lane: int) -> None:
        for start in starts[lane::LANES]:
            part = slice(start, start + height)
            _clip_dense(rows[part], data[part], norm_bound)

    for _ in map_blocks(clip, range(LANES), parallel=len(starts) >= LANES):
        pass
    return data


def _allowed(norm_bound: float, n_numbers: int) -> float:
    """Return the largest norm to which rows of `n_numbers` numbers are scaled.

    A sum of m squares errs by at most m units of roundoff of 2⁻⁵³, in whatever order it is made, so
    its root by half as many. Dividing, multiplying and the root itself err by four more at most,
    for which the other half has room.
    """
    return norm_bound * (1 - max(_MARGIN, n_numbers * 2.0**-53))


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clip_dense(rows: Any, data: FloatArray, norm_bound: float) -> None:
    """Write the clipped rows to `data`."""
    data[:] = rows
    allowed = _allowed(norm_bound, data.shape[1])
    squares = np.einsum("ij,ij->i", data, data)
    lengths = np.sqrt(squares)
    # So written that NaN is unsure too.
    sure = (squares > _SURE**-2) & (squares < _SURE**2) & (allowed > 1 / _SURE)
    factors = np.where(lengths > allowed, allowed / lengths, 1.0)
    data *= np.where(sure, factors, 1.0)[:, None]
    if not sure.all():
        some = data[~sure]
        largest = np.abs(some).max(axis=1, initial=0.0)

        def norms(exponents: IndexArray) -> FloatArray:
            lengths: FloatArray = np.linalg.norm(np.ldexp(some, exponents[:, None]), axis=1)
            return lengths

        units, factors = _in_units(largest, norms, allowed)
        scaled = np.where(
            (factors == 0)[:, None], 0.0, np.ldexp(some, units[:, None]) * factors[:, None]
        )
        data[~sure] = np.where(np.isnan(factors)[:, None], some, scaled)


@np.errstate(all="ignore")  # a warning about the data would be an answer without noise
def _clipped_sparse(rows: Any, norm_bound: float) -> Any:
    kept = sparse.csr_array(rows, dtype=np.float64, copy=True)
    kept.has_canonical_format = False  # the flag may be wrong
    kept.sum_duplicates()
    n_rows = kept.shape[0]
    owner = np.repeat(np.arange(n_rows), np.diff(kept.indptr))
    largest = np.zeros(n_rows)
    np.maximum.at(largest, owner, np.abs(kept.data))  # NaN and infinity stay what they are

    def norms(exponents: IndexArray) -> FloatArray:
        return np.sqrt(
            np.bincount(owner, np.ldexp(kept.data, exponents[owner]) ** 2, minlength=n_rows)
        )

    units, factors = _in_units(largest, norms, _allowed(norm_bound, kept.shape[1]))
    scaled = np.ldexp(kept.data, units[owner]) * factors[owner]
    kept.data = np.where(
        np.isnan(factors[owner]), kept.data, np.where(factors[owner] == 0, 0.0, scaled)
    )
    return kept


def _in_units(
    largest: FloatArray, norms: Callable[[IndexArray], FloatArray], allowed: float
) -> tuple[IndexArray, FloatArray]:
    """Return for rows with these largest entries the exponent of a power of two, and the factor
    after it.

    Times 2 to that exponent, the largest entry of a row is between 1/2 and 1, and its norm between
    1/2 and √d: nothing over- or underflows, and the factor is no subnormal number. The factor is
    NaN for rows within the bound, which stay as they are, and 0 for rows that are not finite.
    `norms` returns the norms of all rows times powers of two.
    """
    usable = np.isfinite(largest)
    exponents = -np.frexp(np.where(usable, largest, 0.0))[1].astype(np.int64)
    lengths = norms(exponents)
    within = np.ldexp(lengths, -exponents) <= allowed
    factors = np.where(
        usable & np.isfinite(lengths), np.where(within, np.nan, allowed / lengths), 0.0
    )
    return exponents, factors


def as_probabilities(numbers: FloatArray) -> FloatArray:
    """Return rows of numbers as probabilities whose sum is at most one, whatever the numbers are.

    Not a number and negative count as 0, and a row with a sum above one is divided by it. What
    becomes of a row depends on that row alone. Responsibilities, which have these properties but
    for rounding, stay as they are.
    """
    with np.errstate(all="ignore"):  # a warning about the data would be an answer without noise
        usable = np.where(numbers > 0, np.minimum(numbers, 1.0), 0.0)
        probabilities: FloatArray = usable / np.maximum(usable.sum(axis=1, keepdims=True), 1.0)
    return probabilities
