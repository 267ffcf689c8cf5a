"""No row is longer than the bound after clipping, whatever it holds, and rows within the bound stay
as they are.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from odeco.privacy.holders.lanes import clipped_rows

#: Bounds as users have them, and as small and large as a private run allows them.
BOUNDS = [1.0, 1e-3, 1e-16, 1e-60, 1e60]


def wild_rows():
    generator = np.random.default_rng(0)
    sizes = 10.0 ** generator.uniform(-320, 308, size=(300, 1))
    rows = sizes * generator.standard_normal((300, 4)).clip(-1, 1)
    special = [
        [1e308] * 4,
        [5e-324] * 4,
        [0.0] * 4,
        [1e308, 5e-324, 0, 0],
        [1.7976931348623157e308, 0, 0, 0],
    ]
    return np.vstack([rows, special])


def exact_squared_norm(row):
    return sum(Fraction(float(number)) ** 2 for number in row)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_no_row_is_longer_than_the_bound_in_exact_arithmetic(bound, kind):
    rows = wild_rows()
    clipped = clipped_rows(kind(rows), bound)
    clipped = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
    limit = Fraction(bound) ** 2
    for row, after in zip(rows, clipped, strict=True):
        assert np.isfinite(after).all()
        assert exact_squared_norm(after) <= limit
        if exact_squared_norm(row) <= limit * Fraction(99, 100):
            assert np.array_equal(row, after)
        elif (
            np.abs(after).max() > 1e-290
        ):  # where nothing is lost to the smallest numbers, the direction stays
            unit = row / np.abs(row).max()
            assert np.allclose(after / np.abs(after).max(), unit, rtol=1e-12)
            assert exact_squared_norm(after) >= limit * Fraction(98, 100)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_row_that_is_not_finite_becomes_zeros_and_touches_no_other(bad, kind):
    rows = np.array([[0.1, 0.2], [bad, 1e308], [3.0, 4.0]])
    clipped = clipped_rows(kind(rows), 1.0)
    clipped = clipped if isinstance(clipped, np.ndarray) else clipped.toarray()
    assert np.array_equal(clipped[0], [0.1, 0.2])
    assert np.array_equal(clipped[1], [0.0, 0.0])
    assert np.allclose(clipped[2], [0.6, 0.8])


@pytest.mark.parametrize("claims_order", [True, False])
def test_entries_of_one_column_are_added_up_before_the_norm_is_taken(claims_order):
    # Ten times 0.9 in one column are 9; taken one by one they would have the norm 2.8 and stay 9 /
    # 2.8 times too long.
    rows = sparse.csr_array((np.full(10, 0.9), np.zeros(10, int), [0, 10]), shape=(1, 3))
    rows.has_canonical_format = claims_order  # whoever made the array may be wrong about it
    assert clipped_rows(rows, 1.0).toarray()[0, 0] == pytest.approx(1.0, rel=1e-9)


def test_the_margin_of_very_wide_rows_covers_a_sum_of_as_many_squares():
    # A sum of 2²⁵ squares may err by 2²⁵ units of 2⁻⁵³, so a norm by half of that: rows of (1 +
    # 0.49 · 2⁻²⁸)/2 each, squared, were 2 · 10⁻¹⁰ longer than the bound. A row that stores one
    # number shows the margin as well.
    width = 2**25
    row = sparse.csr_array((np.array([2.0]), np.array([7]), np.array([0, 1])), shape=(1, width))
    assert 1 - 2 * width * 2.0**-53 < clipped_rows(row, 1.0).data[0] <= 1 - width * 2.0**-54
