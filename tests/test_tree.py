"""Sums over rows as trees: parts that were added up elsewhere give the bits of one reader, in any
cut into nodes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from odeco.online import tree as _chunks
from odeco.online.queries import Core, Images
from odeco.online.tree import RADIX, joined, nodes, rows_per_unit

D, L, N = 10, 4, 1500
GENERATOR = np.random.default_rng(0)
DENSE = GENERATOR.standard_normal((N, D)) * (GENERATOR.random((N, D)) < 0.5)
KINDS = {"dense": DENSE, "single": DENSE.astype(np.float32), "csr": sparse.csr_array(DENSE)}
BLOCK = GENERATOR.standard_normal((D, L))


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """Chunks of a few rows, so that small data make a tree of several levels."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {
            "_DENSE_SIZE": 40,
            "_ENOUGH_ROWS": 3,
            "_SPARSE_ROWS": 5,
            "_SPARSE_SIZE": 12,
        }.items():
            patch.setattr(_chunks, name, size)
        yield


IMAGES = Images(BLOCK, 3)


def added_up(rows, query=IMAGES):
    return query.empty().with_rows(query, rows)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    query=st.sampled_from([IMAGES, Core(BLOCK, 3)]),
    n_rows=st.integers(1, N),
    height=st.integers(0, 4),
    group=st.integers(1, 9),
)
def test_nodes_added_up_apart_give_the_bits_of_one_reader(kind, query, n_rows, height, group):
    rows = KINDS[kind][:n_rows]
    unit = rows_per_unit(D, sparse=kind == "csr")
    cuts = nodes(0, n_rows, unit, unit * RADIX**height)
    parts = [added_up(rows[start:stop], query).as_part(query, unit) for start, stop in cuts]
    whole = added_up(rows, query)
    total = query.empty()
    for part in parts:
        total = total.with_part(query, part)
    assert total.n_rows == n_rows
    assert np.array_equal(total.value(query), whole.value(query))
    # Nodes of one parent may be joined before they arrive, and joining writes to none of them.
    before = [[None if each is None else each.copy() for each in part.levels] for part in parts]
    span = unit * RADIX ** (height + 1)
    parents = []
    for number, (start, stop) in enumerate(nodes(0, n_rows, unit, span)):
        inside = [
            part for (first, _), part in zip(cuts, parts, strict=True) if start <= first < stop
        ]
        parents.append(
            joined(inside) if number % group == 0 else joined([joined([each]) for each in inside])
        )
    together = joined(parents)
    fresh = query.empty().with_part(query, together)
    assert np.array_equal(fresh.total(query), added_up(rows, query).total(query))
    for part, copies in zip(parts, before, strict=True):
        for array, copy in zip(part.levels, copies, strict=True):
            assert (array is None and copy is None) or np.array_equal(array, copy)


@given(n_rows=st.integers(1, N), height=st.integers(0, 4))
def test_nodes_cover_all_rows_once_and_begin_at_multiples_of_their_height(n_rows, height):
    cuts = nodes(0, n_rows, 3, 3 * RADIX**height)
    assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])]
    assert cuts[-1][1] == n_rows
    for start, stop in cuts:
        size = 3
        while size < stop - start:
            size *= RADIX
        assert start % size == 0
        assert size <= 3 * RADIX**height


def test_a_sum_goes_on_with_rows_after_parts_as_if_it_had_read_all():
    unit = rows_per_unit(D, sparse=False)
    total = IMAGES.empty()
    for start, stop in nodes(0, 40 * unit, unit, 8 * unit):
        total = total.with_part(IMAGES, added_up(DENSE[start:stop]).as_part(IMAGES, unit))
    total = total.with_rows(IMAGES, DENSE[40 * unit :])
    assert np.array_equal(total.total(IMAGES), added_up(DENSE).total(IMAGES))


def test_a_part_that_begins_elsewhere_is_added_all_the_same():
    unit = rows_per_unit(D, sparse=False)
    total = added_up(DENSE[: unit + 1])
    for start, stop in ((unit + 1, 10 * unit), (10 * unit, 10 * unit + 2), (10 * unit + 2, 500)):
        total = total.with_part(IMAGES, added_up(DENSE[start:stop]).as_part(IMAGES, unit))
    total = total.with_rows(IMAGES, DENSE[500:])
    assert total.n_rows == N
    # Sums of N terms in another order differ by N roundings of the sum of absolute values, at most.
    most = np.abs(DENSE).T @ (DENSE @ BLOCK) ** 2
    assert (np.abs(total.total(IMAGES) - added_up(DENSE).total(IMAGES)) <= N * 2**-52 * most).all()
