"""Two halves of the rows: what they are, and that they agree on what is there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.io import as_source
from odeco.online.halves import Half


def planted_rows(n_rows, seed=0):
    """Return rows whose third moment has three orthogonal components: skewed sources of mean zero, and noise."""
    generator = np.random.default_rng(seed)
    directions = np.linalg.qr(generator.standard_normal((8, 3)))[0].T * [[1.2], [1.0], [0.8]]
    return (generator.exponential(size=(n_rows, 3)) - 1) @ directions + 0.3 * generator.standard_normal((n_rows, 8))


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
def test_planted_components_are_in_both_halves_and_noise_is_not():
    result = odeco.split_half(planted_rows(20_000), "auto", rng=0)
    assert result.verdict.startswith("3 of 3 components found in both halves")
    # The cube of an exponential variable less its mean has mean 2 and variance 261: over 10,000 rows a weight has a
    # standard error of 8 %, so that those of two halves differ by 11 %, and their mean difference is below three times
    # that over √3.
    assert result.factor_match_score > 1 - 0.2
    assert result.first.n_rows == result.second.n_rows == 10_000
    again = odeco.split_half(planted_rows(20_000), "auto", rng=0)
    np.testing.assert_array_equal(again.second.vectors, result.second.vectors)
    # One component more than there are: what it fits is the noise of its own half.
    more = odeco.split_half(planted_rows(20_000), 4, rng=0)
    assert np.sort(more.match.cosines)[1] > 0.99
    assert more.match.cosines.min() < 0.95
    assert more.verdict.startswith("3 of 4 components")


def test_the_names_of_columns_stay_and_streams_are_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(planted_rows(2000), columns=list("abcdefgh"))
    result = odeco.split_half(table, 3, drop="a", rng=0)
    assert result.first.names == tuple("bcdefgh")
    with pytest.raises(ValueError, match="readable again"):
        odeco.split_half(iter([planted_rows(100)]), 2)
