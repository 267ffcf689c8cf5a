"""Two halves of the rows: what they are, and that they agree on what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.io import as_source
from odeco.online.halves import Half


def planted_rows(n_rows, seed=0):
    """Return rows whose third moment has three orthogonal components: skewed sources of mean zero,
    and noise.
    """
    generator = np.random.default_rng(seed)
    directions = np.linalg.qr(generator.standard_normal((8, 3)))[0].T * [[1.2], [1.0], [0.8]]
    return (
        generator.exponential(size=(n_rows, 3)) - 1
    ) @ directions + 0.3 * generator.standard_normal((n_rows, 8))


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 7, 101])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_the_halves_share_no_row_have_all_rows_and_do_not_depend_on_blocks(batch_rows, kind):
    rows = np.arange(1.0, 102.0)[:, None] * [1.0, -1.0]
    halves = [
        [
            row
            for block in Half(as_source(kind(rows), batch_rows=batch_rows), 5, in_first=each)
            for row in (block if kind is np.asarray else block.toarray())[:, 0]
        ]
        for each in (True, False)
    ]
    assert sorted(halves[0] + halves[1]) == list(rows[:, 0])
    assert abs(len(halves[0]) - len(halves[1])) == 1
    expected = [block[:, 0] for block in Half(as_source(rows), 5, in_first=True)]
    np.testing.assert_array_equal(halves[0], np.concatenate(expected))
    assert halves[0][:50] != list(rows[::2, 0][:50])  # random, not alternating


@pytest.mark.slow
def test_planted_components_are_found_again_and_noise_is_not():
    rows = planted_rows(20_000)
    result = odeco.split_half(rows, odeco.decompose_stream(rows, 3, rng=0), rng=0)
    assert result.found_again.tolist() == [6, 6, 6]
    assert result.n_halves == 6
    assert result.agreement > 0.99
    assert result.verdict == "3 components, each found again in every half-sample."
    # One component more than there are: what it fits is the noise of its own half.
    more = odeco.split_half(rows, odeco.decompose_stream(rows, 4, rng=0), n_pairs=2, rng=0)
    assert sorted(more.found_again)[1:] == [4, 4, 4]
    assert min(more.found_again) <= 2
    assert "3 found again in every half-sample, 1 not established (" in more.verdict


def test_the_names_of_columns_stay_and_streams_are_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(planted_rows(2000), columns=list("abcdefgh"))
    found = odeco.decompose_stream(table, 3, drop="a", rng=0)
    result = odeco.split_half(table, found, n_pairs=1, drop="a", rng=0)
    assert len(result.found_again) == 3
    with pytest.raises(ValueError, match="readable again"):
        odeco.split_half(iter([planted_rows(100)]), found)
