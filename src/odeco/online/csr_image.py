"""The image Σ x (xᵀu)² of CSR rows in one loop, which reads every stored number twice while the cache holds it.

SciPy makes two products with an intermediate of n x L numbers between them. One loop over rows needs L numbers. It adds
the same numbers in the same order as SciPy's products do, and so gives bit-identical results: it is used where it pays
and numba is installed, and nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from odeco._util.types import DataArray

#: Products of stored numbers and columns below which compiling, or loading what was compiled, takes longer.
_ENOUGH_WORK = 2**25

#: Bytes of vectors that a cache holds: below, SciPy's products are as fast.
_CACHED_BYTES = 2**22


def fused_image(rows: Any, block: DataArray) -> DataArray | None:
    """Return Xᵀ (X U)² of CSR rows; None where SciPy's products are as good, or numba is missing."""
    pays = rows.nnz * block.shape[1] >= _ENOUGH_WORK and block.nbytes >= _CACHED_BYTES
    if not pays or find_spec("numba") is None:
        return None
    total = np.zeros(block.shape, block.dtype)
    _kernel()(rows.data, rows.indices, rows.indptr, np.ascontiguousarray(block), total)
    return total


@cache
def _kernel() -> Callable[..., None]:
    from numba import njit  # takes half a second, and may be missing

    compiled: Callable[..., None] = njit(nogil=True, cache=True)(_add_images)
    return compiled


def _add_images(data: Any, indices: Any, indptr: Any, block: Any, total: Any) -> None:  # pragma: no cover - compiled
    n_columns = block.shape[1]
    products = np.zeros(n_columns, block.dtype)
    for row in range(len(indptr) - 1):
        start, stop = indptr[row], indptr[row + 1]
        products[:] = 0
        for place in range(start, stop):
            number, column = data[place], indices[place]
            for j in range(n_columns):
                products[j] += number * block[column, j]
        for j in range(n_columns):
            products[j] *= products[j]
        for place in range(start, stop):
            number, column = data[place], indices[place]
            for j in range(n_columns):
                total[column, j] += number * products[j]
