"""T(I, u, u) at order 3 from one third of the entries.

A symmetric tensor is cut into slabs by its largest index: the slab [k₀, k₁) holds every entry whose largest index lies
there. Such an entry can be read with that index first, so a slab needs ``T[k₀:k₁, :k₁, :k₁]`` and nothing else. In all,
a third of the tensor is read, and a third of the products of the unfolding are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odeco._threads import map_blocks
from odeco._types import DataArray, FloatArray

#: Below this dimension handing a slab to a thread takes longer than contracting it.
PARALLEL_DIMENSION = 128
#: Numbers in the intermediate product of a slab: 4 MB, which the second-level cache of two cores can hold.
INTERMEDIATE_SIZE = 2**19


def image_from_slabs(read_slab: Callable[[int, int], DataArray], block: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """Return T(I, u, u) for every column of `block`, where ``read_slab(k₀, k₁)`` is ``T[k₀:k₁, :k₁, :k₁]``.

    Products are made in `dtype`, and added up over slabs in double precision.
    """
    dimension, n_columns = block.shape
    rows = np.ascontiguousarray(block.T, dtype=dtype)
    height = int(np.clip(INTERMEDIATE_SIZE // max(1, dimension * n_columns), 4, 32))
    slabs = [(start, min(start + height, dimension)) for start in range(0, dimension, height)]

    def contract(slab: tuple[int, int]) -> DataArray:
        return contract_slab(read_slab(*slab), rows[:, : slab[1]], slab[1] - slab[0])

    total = np.zeros((n_columns, dimension))
    parallel = dimension >= PARALLEL_DIMENSION
    for (_, stop), part in zip(slabs, map_blocks(contract, slabs, parallel=parallel), strict=True):
        total[:, :stop] += part
    return total.T


def contract_slab(slab: DataArray, rows: DataArray, height: int) -> DataArray:
    """Return what the entries of one slab contribute to T(I, u, u), for every row u of `rows`.

    Write u = (w, x), where x holds the last `height` coordinates, which are those of the slab. T(I, u, u) is a sum over
    pairs of indices. The slab contributes

    * all pairs to an answer inside the slab: T(·, w, w) + 2 T(·, x, w) + T(·, x, x);
    * the pairs that touch the slab to an answer outside of it: 2 T(·, x, w) + T(·, x, x).

    The one product z = T[slab](·, (w, x/2)) gives both: 2⟨x, z⟩ outside, and ⟨(w, 3x/2), z⟩ + T(·, x, x)/4 inside.
    """
    size = rows.shape[1]
    outside = size - height
    halved = rows.copy()
    halved[:, outside:] *= 0.5
    product = np.matmul(halved, slab).transpose(1, 0, 2)  # L x height x size, as the slices of the slab are symmetric
    in_slab = rows[:, outside:]
    halved[:, outside:] *= 3
    result = np.empty_like(rows)
    result[:, :outside] = np.matmul(2 * in_slab[:, None, :], product[:, :, :outside])[:, 0]
    corner = np.matmul(in_slab, slab[:, outside:, outside:]).transpose(1, 0, 2)
    result[:, outside:] = np.matmul(product, halved[:, :, None])[:, :, 0]
    result[:, outside:] += 0.25 * np.matmul(corner, in_slab[:, :, None])[:, :, 0]
    return result
