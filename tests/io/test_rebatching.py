"""Batches of a given size, whatever the sizes of the blocks that come in."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from kinds import cut, dense_rows, read, to_dense

from odeco.errors import SourceError
from odeco.io import as_source, rebatch, skip_rows


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 12), st.booleans(), st.booleans())
def test_rebatched_rows_are_those_of_the_concatenation(sizes, batch_size, sparse, single):
    rows = np.arange(2.0 * sum(sizes)).reshape(-1, 2).astype("f4" if single else "f8")
    blocks = np.split(rows, np.cumsum(sizes)[:-1]) if sizes else []
    batches = list(
        rebatch(iter([sp.csr_array(block) if sparse else block for block in blocks]), batch_size)
    )
    expected = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
    assert [batch.shape for batch in batches] == [batch.shape for batch in expected]
    for batch, wanted in zip(batches, expected, strict=True):
        assert batch.dtype == rows.dtype
        assert isinstance(batch, sp.csr_array if sparse else np.ndarray)
        np.testing.assert_array_equal(to_dense(batch), wanted)


def test_a_batch_within_one_block_is_not_copied():
    rows = dense_rows()
    assert all(np.shares_memory(batch, rows) for batch in rebatch(rows, 5))


def test_rebatching_reads_no_further_than_it_must():
    taken = []
    blocks = (taken.append(1) or block for block in cut(dense_rows()))
    next(rebatch(blocks, 6))
    assert len(taken) == 2


def test_what_was_skipped_can_be_rebatched():
    batches = list(rebatch(skip_rows(cut(dense_rows()), 9), 6))
    assert [len(batch) for batch in batches] == [6, 6, 2]
    np.testing.assert_array_equal(read(batches), dense_rows()[9:])


def test_dense_and_sparse_rows_are_not_joined():
    blocks = iter([np.ones((3, 2)), sp.csr_array(np.ones((2, 2)))])
    with pytest.raises(SourceError) as raised:
        list(rebatch(blocks, 5))
    assert str(raised.value) == (
        "The blocks of one batch must be all dense or all CSR. Row 3 begins a block of the other "
        "kind. Convert the blocks to one of the two."
    )


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_sizes_are_checked_before_reading(size):
    with pytest.raises(
        ValueError, match=f"^`batch_size` must be an int of at least 1. Got {size!r}.$"
    ):
        rebatch(dense_rows(), size)
    if size is not None:
        with pytest.raises(
            ValueError, match=f"^`batch_rows` must be an int of at least 1. Got {size!r}.$"
        ):
            as_source(dense_rows(), batch_rows=size)


@pytest.mark.parametrize("n", [-1, 1.0])
def test_the_number_of_rows_to_skip_is_checked_before_reading(n):
    with pytest.raises(ValueError, match=f"^`n` must be an int of at least 0. Got {n!r}.$"):
        skip_rows(dense_rows(), n)
