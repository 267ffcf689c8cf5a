"""Rows, dense or CSR, looked at without copying them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def is_sparse(rows: Any) -> bool:
    """Tell CSR from dense."""
    return bool(sparse.issparse(rows))


def stored_numbers(rows: Any) -> NDArray[Any]:
    """Return the numbers that dense or CSR rows store."""
    numbers: NDArray[Any] = rows.data if is_sparse(rows) else rows
    return numbers


def row_slice(rows: Any, start: int, stop: int) -> Any:
    """Return ``rows[start:stop]`` without copying what is stored."""
    if not is_sparse(rows):
        return rows[start:stop]
    pointers = rows.indptr[start : stop + 1]
    first, last = int(pointers[0]), int(pointers[-1])
    return csr_view(rows.data[first:last], rows.indices[first:last], pointers - first, rows.shape[1])


def csr_view(
    data: NDArray[Any], indices: NDArray[Any], pointers: NDArray[Any], n_features: int
) -> sparse.csr_array[Any, Any]:
    """Return a CSR array that shares memory with its parts: SciPy's own constructor copies short slices."""
    view: Any = sparse.csr_array((len(pointers) - 1, n_features), dtype=data.dtype)
    # Set one by one: the constructor would also copy 64-bit indices that fit into 32 bits.
    view.data, view.indices = data, indices
    view.indptr = pointers.astype(indices.dtype, copy=False)  # SciPy's products copy both if their types differ
    checked: sparse.csr_array[Any, Any] = view
    return checked


def join_rows(pieces: list[Any]) -> Any:
    """Return pieces of one kind, all dense or all CSR, as one; a single piece as it is."""
    if len(pieces) == 1:
        return pieces[0]
    if is_sparse(pieces[0]):
        return sparse.csr_array(sparse.vstack(pieces, format="csr"))
    return np.concatenate(pieces)
