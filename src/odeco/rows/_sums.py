"""Sums over rows: of images, x (xᵀu)ᵖ⁻¹ for every candidate u, and of cores, (Qᵀx) ⊗ … ⊗ (Qᵀx).

The unit of a stream is an accumulator with ``update`` and ``+``: one object serves a stream, a batch and a partition.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Literal

import numpy as np
from scipy import sparse

from odeco._threads import map_blocks
from odeco._types import DataArray, FloatArray
from odeco.rows._checks import as_rows, bad_row_error, check_same_kind
from odeco.rows._chunks import WIDE, Chunks
from odeco.rows._views import row_slice

Question = Literal["image", "core"]

#: A chunk is worked on in this many lanes, whatever the number of threads, so that the sum is always the same.
_LANES = 4
#: A sum of this many numbers is added up in lanes too; a CSR chunk then has but two.
_LARGE = 2**18
#: A lane takes so many numbers of dense rows at a time, but not fewer rows than that.
_CACHED_SIZE, _FEWEST_CACHED_ROWS = 2**18, 192
#: Products below which handing lanes to threads takes longer than making them.
_PARALLEL_WORK = 2**22
#: Numbers in the intermediate products of a core.
_CORE_SIZE = 2**19
#: Rows that are not finite are found by the sum that they spoil, so no warning is wanted on the way to it.
_quiet = np.errstate(all="ignore")


class RowSum:
    """The sum over rows of what one question needs; rows may arrive in pieces of any size.

    Parameters
    ----------
    question : {"image", "core"}
        ``"image"``: Σ x (xᵀu)ᵖ⁻¹ for every column u of `block`. ``"core"``: Σ (Qᵀx)⊗ᵖ for the basis Q = `block`.
    block : array, d x L or d x m
        The candidates, or the basis.
    order : int
        The order p of the moment.

    Attributes
    ----------
    n_rows : int
        Rows taken in so far.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.moments import RowSum
    >>> total = RowSum("image", np.eye(2)[:, :1], order=3)
    >>> total.update([[1.0, 5.0]])
    >>> total.update([[2.0, 1.0], [0.0, 7.0]])
    >>> total.n_rows, total.total().ravel()
    (3, array([9., 9.]))
    """

    def __init__(self, question: Question, block: FloatArray, order: int) -> None:
        self.question, self.block, self.order = question, np.ascontiguousarray(block), order
        self.n_rows = 0
        self._chunks = Chunks()
        self._sum: FloatArray | None = None
        self._spare: FloatArray | None = None  # where the next sum goes while this one may still be needed
        self._typed_block: DataArray = self.block

    def update(self, rows: Any) -> None:
        """Add rows, a dense or CSR array. If one of them is not finite, none is used.

        NaN and infinity in a row reach every number of its contribution, so it is the sum that is looked at, and the
        rows only if it is not finite: looking at all rows would cost a fifth of the time.
        """
        checked = as_rows(rows, self.block.shape[0])
        waiting = self._chunks.snapshot()
        if waiting:
            check_same_kind(waiting[0], checked)
        before, n_before = self._sum, self.n_rows
        try:
            for chunk in self._chunks.push(checked):
                contribution = self._contribution(chunk)
                _check_finite(contribution, checked)
                # The sum as it was is kept until all rows are in: a later chunk may be bad, or the user end it all.
                self._include(contribution, untouched=before)
            left = self._chunks.rest()
            if left is not None:
                self._check_waiting(left, checked)
            self.n_rows = n_before + int(checked.shape[0])
        except BaseException:
            self._sum, self.n_rows = before, n_before
            self._chunks.restore(waiting)
            raise

    def total(self) -> FloatArray:
        """Return the sum over all rows so far. Rows that wait for a full chunk are counted, and go on waiting."""
        rest = self._chunks.rest()
        total = np.zeros(self.shape) if self._sum is None else self._sum
        return total if rest is None else total + self._contribution(rest)

    def mean(self) -> FloatArray:
        """Return the sum divided by the number of rows: the answer to the question."""
        return self.total() / self.n_rows

    def finish(self) -> FloatArray:
        """Return the mean and let go of sum and rows: the question is answered, and memory wanted for the next."""
        total = self.total()
        self._sum, self._spare, self._chunks, self._typed_block = None, None, Chunks(), self.block
        total /= self.n_rows
        return total

    def let_go_of_rows(self) -> None:
        """Add rows that wait to the sum, so that no row is kept. Later sums may differ from others in the last bits."""
        if self._chunks.rest() is not None:
            # In one step, so that rows are never both in the sum and waiting.
            self._sum, self._chunks = self.total(), Chunks()

    def copy(self) -> RowSum:
        """Return a sum that can go on without changing this one."""
        twin = RowSum(self.question, self.block, self.order)
        twin.n_rows, twin._sum = self.n_rows, None if self._sum is None else self._sum.copy()
        twin._chunks.restore(self._chunks.snapshot())
        return twin

    def __add__(self, other: RowSum) -> RowSum:
        """Return the sum over the rows of both, for partitions that were read apart."""
        both = RowSum(self.question, self.block, self.order)
        both._sum, both.n_rows = self.total() + other.total(), self.n_rows + other.n_rows
        return both

    def to_arrays(self) -> dict[str, Any]:
        """Return what is needed to go on later, as named arrays; the question is kept by whoever asked it."""
        arrays: dict[str, Any] = {"n_rows": np.array(self.n_rows)}
        if self._sum is not None:
            arrays["sum"] = self._sum
        rest = self._chunks.rest()
        if isinstance(rest, np.ndarray):
            arrays["rows"] = rest
        elif rest is not None:
            arrays |= {"data": rest.data, "indices": rest.indices, "indptr": rest.indptr, "shape": np.array(rest.shape)}
        return arrays

    def restore(self, arrays: dict[str, Any]) -> None:
        """Take up what `to_arrays` gave."""
        self.n_rows = int(arrays["n_rows"])
        self._sum = arrays.get("sum")
        if "rows" in arrays:
            self._chunks.restore([arrays["rows"]])
        elif "data" in arrays:
            stored = (arrays["data"], arrays["indices"], arrays["indptr"])
            self._chunks.restore([sparse.csr_array(stored, shape=tuple(arrays["shape"]))])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sum."""
        return self.block.shape if self.question == "image" else (self.block.shape[1],) * self.order

    def _check_waiting(self, waiting: Any, rows: Any) -> None:
        """Raise if rows that wait are not finite, or so large that their powers, summed over a chunk, might not be."""
        stored = waiting if isinstance(waiting, np.ndarray) else waiting.data
        high, low = float(stored.max(initial=0.0)), float(stored.min(initial=0.0))
        limit = (float(np.finfo(stored.dtype).max) / 2**40) ** (1 / self.order) / math.sqrt(waiting.shape[1])
        if not (-limit <= low and high <= limit):  # so written that NaN fails it too
            raise bad_row_error(rows)

    def _include(self, contribution: DataArray, *, untouched: FloatArray | None) -> None:
        if self._sum is None:
            self._sum = contribution.astype(np.float64)
        elif self._sum is untouched:
            spare = np.empty_like(self._sum) if self._spare is None else self._spare
            add_in_place(self._sum, contribution, out=spare)
            self._sum, self._spare = spare, self._sum
        else:
            add_in_place(self._sum, contribution)

    def _contribution(self, chunk: Any) -> DataArray:
        if self._typed_block.dtype != chunk.dtype:
            self._typed_block = self.block.astype(chunk.dtype)
        block = self._typed_block
        if self.question == "core":
            return _core(chunk, block, self.order)
        if isinstance(chunk, np.ndarray) and chunk.shape[1] >= WIDE:
            return _image_by_columns(chunk, block, self.order)
        return _image_by_rows(chunk, block, self.order)


def _image_by_rows(chunk: Any, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own rows; results of lanes are added in order."""
    dense = isinstance(chunk, np.ndarray)
    height = max(_FEWEST_CACHED_ROWS, _CACHED_SIZE // chunk.shape[1]) if dense else chunk.shape[0]

    @_quiet
    def contract(rows: slice) -> DataArray:
        total: DataArray | None = None
        for start in range(rows.start, rows.stop, height):  # rows that the cache holds between the two products
            part = row_slice(chunk, start, min(start + height, rows.stop))
            answer: DataArray = part.T @ _power(part @ block, order - 1)
            total = answer if total is None else np.add(total, answer, out=total)
        return np.zeros(block.shape, chunk.dtype) if total is None else total

    n_lanes = 2 if block.size >= _LARGE else _LANES
    parallel = chunk.size * block.shape[1] >= _PARALLEL_WORK
    answers = map_blocks(contract, _lanes(chunk.shape[0], n_lanes), parallel=parallel)
    total = next(answers)
    for answer in answers:
        add_in_place(total, answer)
    return total


def add_in_place(total: DataArray, part: DataArray, out: DataArray | None = None) -> None:
    """Add `part` to `total`, in lanes if they are large; the result goes to `out`, if given."""
    target = total if out is None else out

    @_quiet
    def add(rows: slice) -> None:
        np.add(total[rows], part[rows], out=target[rows])

    for _ in map_blocks(add, _lanes(total.shape[0]), parallel=total.size >= _LARGE):
        pass


def _image_by_columns(chunk: DataArray, block: DataArray, order: int) -> DataArray:
    """Xᵀ (X U)ᵖ⁻¹, each lane with its own columns: the first product is added up, the second needs no adding."""
    lanes = _lanes(chunk.shape[1])
    overlaps = np.zeros((chunk.shape[0], block.shape[1]), chunk.dtype)

    @_quiet
    def project(columns: slice) -> DataArray:
        part: DataArray = chunk[:, columns] @ block[columns]
        return part

    for part in map_blocks(project, lanes, parallel=True):
        overlaps += part
    powers = _quiet(_power)(overlaps, order - 1)
    answer = np.empty(block.shape, chunk.dtype)

    @_quiet
    def contract(columns: slice) -> None:
        np.matmul(chunk[:, columns].T, powers, out=answer[columns])

    for _ in map_blocks(contract, lanes, parallel=True):
        pass
    return answer


def _core(chunk: Any, basis: DataArray, order: int) -> FloatArray:
    """Σ (Qᵀx)⊗ᵖ as one matrix product of size m x mᵖ⁻¹, in double precision."""
    size = basis.shape[1]
    height = max(1, _CORE_SIZE // size ** (order - 1))
    edges = [*range(0, chunk.shape[0], height), chunk.shape[0]]
    slices = [slice(start, stop) for start, stop in itertools.pairwise(edges)]

    @_quiet
    def contract(rows: slice) -> FloatArray:
        inside = (row_slice(chunk, rows.start, rows.stop) @ basis).astype(np.float64)
        powers = inside
        for _ in range(order - 2):
            powers = (powers[:, :, None] * inside[:, None, :]).reshape(inside.shape[0], -1)
        part: FloatArray = inside.T @ powers
        return part

    total = np.zeros((size, size ** (order - 1)))
    for part in map_blocks(contract, slices, parallel=True):
        total += part
    return total.reshape((size,) * order)


def _power(array: DataArray, exponent: int) -> DataArray:
    return np.square(array, out=array) if exponent == 2 else array**exponent


def _lanes(size: int, most: int = _LANES) -> list[slice]:
    edges = [size * lane // most for lane in range(most + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


def _check_finite(array: DataArray, rows: Any) -> None:
    """Raise if `array`, which was computed from `rows`, is not finite, naming the row that is to blame."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(np.add.reduce(array, axis=None))
    if not math.isfinite(total) and not bool(np.isfinite(array).all()):
        raise bad_row_error(rows)
