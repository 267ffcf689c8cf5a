"""Every kind of source gives the same rows in every pass, from any row on, in blocks of any
size.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from kinds import N_FEATURES, N_ROWS, read

from odeco.errors import SourceError
from odeco.io import BatchSource, as_source, rebatch, skip_rows


def test_every_source_gives_all_rows_in_order_and_again_in_a_second_pass(held):
    data, rows = held
    source = as_source(data)
    assert isinstance(source, BatchSource)
    assert (source.n_features, source.repeatable, source.n_rows in (N_ROWS, None)) == (
        N_FEATURES,
        True,
        True,
    )
    np.testing.assert_array_equal(read(source), rows)
    np.testing.assert_array_equal(read(source), rows)


def test_every_source_yields_blocks_of_at_most_batch_rows(held):
    data, rows = held
    blocks = list(as_source(data, batch_rows=3))
    assert max(block.shape[0] for block in blocks) <= 3
    assert min(block.shape[0] for block in blocks) >= 1
    assert all(
        isinstance(block, np.ndarray | sp.csr_array) and block.dtype == np.float64
        for block in blocks
    )
    np.testing.assert_array_equal(read(blocks), rows)


@pytest.mark.parametrize("n", [0, 1, 6, 7, 10, 20, 22])
def test_every_source_can_start_at_any_row(held, n):
    data, rows = held
    np.testing.assert_array_equal(read(skip_rows(as_source(data, batch_rows=4), n)), rows[n:])


def test_every_source_can_start_behind_its_last_row_and_no_further(held):
    data, _ = held
    assert list(skip_rows(as_source(data), N_ROWS)) == []
    with pytest.raises(
        SourceError,
        match=r"must hold at least the 24 rows to be skipped\. It holds 23\. Pass the data",
    ):
        list(skip_rows(as_source(data), N_ROWS + 1))


def test_every_source_can_be_rebatched(held):
    data, rows = held
    batches = list(rebatch(as_source(data, batch_rows=4), 5))
    assert [batch.shape for batch in batches] == [(5, N_FEATURES)] * 4 + [(3, N_FEATURES)]
    np.testing.assert_array_equal(read(batches), rows)


def test_every_source_has_a_short_fingerprint_that_reading_does_not_change(held):
    data, _ = held
    source = as_source(data)
    before = source.fingerprint()
    list(source)
    assert source.fingerprint() == before
    assert 0 < len(before) < 120
    assert "\n" not in before


def test_the_width_can_be_demanded(held):
    data, _ = held
    assert as_source(data, n_features=N_FEATURES).n_features == N_FEATURES


def test_passes_can_be_interleaved(held):
    data, rows = held
    source = as_source(data, batch_rows=4)
    if hasattr(data, "to_arrow_reader"):  # a connection of DuckDB has one result at a time
        with pytest.raises(SourceError, match="one pass at a time"):
            list(zip(source, source, strict=True))
        return
    pairs = list(zip(source, source, strict=True))
    np.testing.assert_array_equal(read([first for first, _ in pairs]), rows)
    np.testing.assert_array_equal(read([second for _, second in pairs]), rows)
