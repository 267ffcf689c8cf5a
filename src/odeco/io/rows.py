"""Rows as the library works with them: two-dimensional arrays of float32 or float64, dense or CSR.

`as_rows` checks rows from outside. The products of SciPy trust the indices of a CSR array and read
the memory that they point to, so every CSR array from outside is checked here first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.arguments import as_numpy, largest
from odeco._util.types import FloatArray
from odeco.errors import BadRowError
from odeco.io.errors import source_error


def is_sparse(rows: Any) -> bool:
    """Tell CSR from dense."""
    return bool(sparse.issparse(rows))


def stored_numbers(rows: Any) -> NDArray[Any]:
    """Return the numbers that dense or CSR rows store."""
    numbers: NDArray[Any] = rows.data if is_sparse(rows) else rows
    return numbers


def row_slice(rows: Any, start: int, stop: int) -> Any:
    """Return ``rows[start:stop]`` without copying the stored numbers."""
    if not is_sparse(rows):
        return rows[start:stop]
    pointers = rows.indptr[start : stop + 1]
    first = int(pointers[0])
    last = int(pointers[-1])
    return csr_view(
        rows.data[first:last], rows.indices[first:last], pointers - first, rows.shape[1]
    )


def csr_view(
    data: NDArray[Any], indices: NDArray[Any], pointers: NDArray[Any], n_features: int
) -> sparse.csr_array[Any, Any]:
    """Return a CSR array that shares memory with its parts; SciPy's constructor copies short
    slices.
    """
    view: Any = sparse.csr_array((len(pointers) - 1, n_features), dtype=data.dtype)
    # Set one by one: the constructor would also copy 64-bit indices that fit into 32 bits.
    view.data = data
    view.indices = indices
    view.indptr = pointers.astype(
        indices.dtype, copy=False
    )  # SciPy's products copy both if their types differ
    return view  # type: ignore[no-any-return]


def join_rows(pieces: list[Any]) -> Any:
    """Return pieces, all dense or all CSR, as one array; a single piece is not copied."""
    if len(pieces) == 1:
        return pieces[0]
    if is_sparse(pieces[0]):
        return sparse.csr_array(sparse.vstack(pieces, format="csr"))
    return np.concatenate(pieces)


@dataclass(frozen=True)
class CsrFault:
    """The first fault of a CSR array.

    Attributes
    ----------
    kind : {"pointers", "index"}
        Whether its row pointers or a column index are wrong.
    row : int
        The first row at fault.
    index : int
        The column index at fault.
    """

    kind: Literal["pointers", "index"]
    row: int
    index: int = 0


def as_rows(rows: Any, n_features: int | None = None) -> Any:
    """Return rows as a checked float32 or float64 array or CSR array, without a copy where
    possible.

    Integers and booleans are converted to float64. Whether the numbers are finite is not checked
    here: the sum over them shows it at no cost.
    """
    if isinstance(rows, np.ma.MaskedArray):
        raise TypeError(
            "Rows must not be masked. Got a MaskedArray, whose hidden entries would be read as "
            "numbers. Fill them with X.filled(value), or drop those rows."
        )
    array: Any = to_csr(rows) if sparse.issparse(rows) else as_numpy(rows)
    if array.dtype.kind not in "iub" and array.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"Rows must hold float32, float64 or integers. Got {array.dtype}. Convert them with "
            "astype(float)."
        )
    if (
        array.ndim != 2
        or array.shape[1] == 0
        or (n_features is not None and array.shape[1] != n_features)
    ):
        wanted = "(n, d)" if n_features is None else f"(n, {n_features})"
        remedy = (
            "If it is a tensor, call odeco.decompose."
            if array.ndim > 2
            else "Pass X[None, :] for a single row."
        )
        raise ValueError(f"Rows must have shape {wanted}. Got shape {array.shape}. {remedy}")
    if is_sparse(array):
        check_structure(array)
        array = csr_view(array.data, array.indices, array.indptr, array.shape[1])
    return array.astype(np.float64) if array.dtype.kind in "iub" else array


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array in a type that sparse arrays can have: half precision becomes single, and the
    order of bytes that of this machine.
    """
    kind = np.dtype(np.float32) if array.dtype == np.float16 else array.dtype.newbyteorder("=")
    return array.astype(kind, copy=False)


def to_csr(rows: Any) -> Any:
    """Return a sparse array as CSR, with its indices checked first: SciPy's conversions trust
    them.
    """
    if rows.format in ("csc", "bsr"):
        rows.check_format(full_check=True)
    elif rows.format == "coo" and rows.nnz:
        sizes = zip(rows.coords, rows.shape, strict=True)
        if any(places.min() < 0 or places.max() >= size for places, size in sizes):
            raise ValueError(
                "Indices of sparse rows must lie within their shape. They do not. Make the array "
                "again."
            )
    return rows if rows.format == "csr" else rows.tocsr()


def csr_fault(array: Any) -> CsrFault | None:
    """Return the first fault that would make a product read outside of the array, or None."""
    data = array.data
    indices = array.indices
    pointers = array.indptr
    falling = np.flatnonzero(np.diff(pointers) < 0)
    if (
        pointers.ndim != 1
        or len(pointers) != array.shape[0] + 1
        or pointers[0] != 0
        or falling.size
    ):
        return CsrFault("pointers", int(falling[0]) if falling.size else 0)
    n_stored = int(pointers[-1])
    if data.ndim != 1 or indices.ndim != 1 or min(data.size, indices.size) < n_stored:
        return CsrFault(
            "pointers",
            int(np.searchsorted(pointers, min(data.size, indices.size), side="right")) - 1,
        )
    indices = indices[:n_stored]
    # Read as unsigned, a negative index is a huge one: one comparison finds both.
    if indices.size and indices.view(f"u{indices.itemsize}").max() >= array.shape[1]:
        place = int(np.flatnonzero((indices < 0) | (indices >= array.shape[1]))[0])
        return CsrFault("index", row_of(place, pointers), int(indices[place]))
    return None


def check_structure(rows: Any) -> None:
    """Raise if rows are a CSR array with a fault that would make a product read outside of it."""
    is_csr = sparse.issparse(rows) and getattr(rows, "format", None) == "csr"
    fault = csr_fault(rows) if is_csr else None
    if fault is not None:
        raise source_error(
            fault.kind, "CSR rows", None, fault.row, index=fault.index, largest=rows.shape[1] - 1
        )


def check_private_rows(rows: Any) -> None:
    """Raise unless rows are an array: the type that NumPy gives to a list, and so an error, depends
    on its values.
    """
    if not (isinstance(rows, np.ndarray) or sparse.issparse(rows)):
        raise TypeError(
            f"Private rows must be a NumPy array or a CSR array. Got {type(rows).__name__}. "
            "Convert them."
        )
    check_private_structure(rows)


def check_private_structure(rows: Any) -> None:
    """Raise if a product would read outside of a sparse array; the error does not name the row."""
    try:
        if sparse.issparse(rows):
            check_structure(to_csr(rows))
    except ValueError:
        raise ValueError(
            "Private sparse rows must have indices within their shape. They do not. Make the "
            "array again. The row at fault is not named."
        ) from None


def check_same_kind(before: Any, rows: Any) -> None:
    """Raise if rows are of another kind or type than those before: their sums would not be
    bit-identical.
    """
    kinds = [f"{'CSR' if is_sparse(each) else 'dense'} {each.dtype}" for each in (before, rows)]
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"All rows of a run must be of one kind. It began with {kinds[0]} rows. Got "
            f"{kinds[1]}. Convert these rows."
        )


def all_finite(numbers: NDArray[Any]) -> bool:
    """Tell whether all numbers are finite.

    A sum is finite only if all its terms are, and takes a fraction of the time of a test of each.
    Finite terms may overflow, so if the sum is not finite, each term is tested.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.add.reduce(numbers, axis=None))) or bool(
            np.isfinite(numbers).all()
        )


def first_fault(rows: Any, *, missing: bool = False) -> tuple[int, int, str] | None:
    """Return row and column of the first number that is not finite, and "NaN" or "infinity"; None
    if all are finite.

    With `missing`, NaN is a missing value and no fault.
    """
    stored = stored_numbers(rows)
    if stored.dtype.kind != "f" or all_finite(stored):
        return None
    bad = np.argwhere(np.isinf(stored) if missing else ~np.isfinite(stored))
    if bad.size == 0:
        return None
    first = tuple(bad[0].tolist())
    row, column = (
        (row_of(first[0], rows.indptr), int(rows.indices[first[0]])) if is_sparse(rows) else first
    )
    return row, column, "NaN" if np.isnan(stored[first]) else "infinity"


def check_columns(rows: NDArray[Any], names: Sequence[str]) -> None:
    """Raise if a column has no observed value."""
    empty = np.isnan(np.fmax.reduce(rows, axis=0))
    if empty.any():
        column = int(np.argmax(empty))
        name = f"{names[column]!s} (column {column})" if len(names) else f"Column {column}"
        raise ValueError(
            f"Every column must have a value that is not missing. {name} has none in "
            f"{len(rows):,} rows. Leave it out, or pass rows in which it has values."
        )


def bad_row_error(rows: Any) -> BadRowError:
    """Return the error for rows whose sum is not usable: a row is not finite, or its powers over-
    or underflow.
    """
    fault = first_fault(rows)
    if fault is None:
        size = largest(stored_numbers(rows))
        must = "small enough for their powers to be finite"
        remedy = "divide"
        if size < 1:
            must = "large enough for their powers not to vanish"
            remedy = "multiply"
        return BadRowError(
            f"Rows must be {must}. The largest entry is {size:.3g}. Nothing of this batch was "
            f"used; {remedy} all rows by a constant."
        )
    return BadRowError(
        f"Row {fault[0]:,} holds {fault[2]} in column {fault[1]}. Nothing of this batch was used; "
        "fix or drop the row and call partial_fit again."
    )


def row_of(place: int, pointers: NDArray[Any]) -> int:
    """Return the row of a CSR array that the stored number at `place` belongs to."""
    return int(np.searchsorted(pointers, place, side="right")) - 1


def as_weights(weights: Any, n_rows: int, record: str = "row") -> FloatArray:
    """Return the weight of each row as a number of at least 0, of which one is positive."""
    given = np.asarray(weights)
    if given.shape != (n_rows,) or given.dtype.kind not in "iufb":
        raise ValueError(
            f"`sample_weight` must be one number for each {record}, of which there are "
            f"{n_rows:,}. Got shape {given.shape} of {given.dtype}. Pass an array of {n_rows:,} "
            "numbers, or None."
        )
    with np.errstate(over="ignore"):
        numbers = np.array(given, dtype=np.float64)
        usable = np.isfinite(numbers) & (numbers >= 0)
        total = float(numbers.sum())
    if not usable.all():
        place = int(np.argmin(usable))
        raise ValueError(
            f"`sample_weight` must be finite and not negative: a {record} of weight 2 counts "
            f"twice. Got {numbers[place]:g} for {record} {place:,}. Set it to 0 to leave that "
            f"{record} out."
        )
    if total == np.inf:
        raise ValueError(
            "The sum of `sample_weight` must be finite. It is not. Divide all weights by a "
            "constant."
        )
    if not numbers.any():
        raise ValueError(
            f"`sample_weight` must have at least one weight above zero. All {n_rows:,} are zero. "
            f"Pass a positive weight for every {record} that counts."
        )
    return numbers


def check_no_weights(weights: Any, record: str) -> None:
    """Raise if the records of a private run have weights."""
    if weights is not None:
        raise ValueError(
            f"`sample_weight` is for runs without privacy: a weight has no bound, so one {record} "
            "could decide the result, and noise for such a bound would hide it. Got weights. "
            "Leave them out."
        )
