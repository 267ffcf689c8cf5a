"""Rows: what comes from outside is checked, sums do not depend on how rows arrive, and a bad row
changes nothing.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from test_streams import planted_rows

from odeco.online import RowSum
from odeco.online import tree as _chunks
from odeco.online.queries import Core, Entries, Images
from odeco.online.sums import Sum
from odeco.online.tree import rows_per_chunk


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of a few rows, so that small data have many."""
    monkeypatch.setattr(_chunks, "_DENSE_SIZE", 100)
    monkeypatch.setattr(_chunks, "_ENOUGH_ROWS", 7)
    monkeypatch.setattr(_chunks, "_SPARSE_ROWS", 9)
    monkeypatch.setattr(_chunks, "_SPARSE_SIZE", 40)


@pytest.mark.usefixtures("small_chunks")
class TestRowSums:
    @pytest.mark.parametrize("kind", ["dense", "single", "csr"])
    @pytest.mark.parametrize("question", ["image", "core", "entries"])
    @pytest.mark.parametrize("order", [3, 4])
    def test_cuts_change_no_bit(self, kind, question, order):
        if question == "entries" and order != 3:
            pytest.skip("entries are those of order 3")
        generator = np.random.default_rng(0)
        rows = generator.standard_normal((101, 10)) * (generator.random((101, 10)) < 0.5)
        rows = {"dense": rows, "single": rows.astype(np.float32), "csr": sparse.csr_array(rows)}[
            kind
        ]
        block = generator.standard_normal((10, 4))
        queries = {"image": Images, "core": Core, "entries": Entries}
        query = queries[question](block, order)
        whole = query.empty().with_rows(query, rows)
        for seed in range(10):
            cuts = np.sort(np.random.default_rng(seed).integers(0, 102, size=seed * 5))
            pieces = query.empty()
            for start, stop in zip([0, *cuts], [*cuts, 101], strict=True):
                pieces = Sum.from_arrays(
                    pieces.with_rows(query, rows[start:stop]).to_arrays("sum"), "sum"
                )
                pieces.check_for(query)
            assert np.array_equal(pieces.total(query), whole.total(query))
            assert pieces.n_rows == 101

    @given(seed=st.integers(0, 2**32 - 1), order=st.integers(3, 5))
    def test_sums_are_what_they_say(self, seed, order):
        generator = np.random.default_rng(seed)
        rows, block = generator.standard_normal((23, 5)), generator.standard_normal((5, 3))
        image, core = RowSum("image", block, order), RowSum("core", block, order)
        image.update(rows)
        core.update(sparse.csr_array(rows))
        np.testing.assert_allclose(
            image.total(), rows.T @ (rows @ block) ** (order - 1), rtol=1e-12
        )
        inside = rows @ block
        letters = "abcde"[:order]
        expected = np.einsum(
            ",".join("n" + letter for letter in letters) + "->" + letters, *[inside] * order
        )
        np.testing.assert_allclose(core.total(), expected, rtol=1e-10, atol=1e-10)
        entries = RowSum("entries", np.empty((5, 0)), 3)
        entries.update(sparse.csr_array(rows))
        cubes = np.einsum("ni,nj,nk->ijk", rows, rows, rows)
        distinct = [cubes[i, j, k] for i in range(5) for j in range(i + 1) for k in range(j + 1)]
        np.testing.assert_allclose(entries.total(), distinct, rtol=1e-10, atol=1e-10)

    def test_partitions_can_be_added(self):
        rows, _ = planted_rows(50, 6)
        parts = [RowSum("image", np.eye(6), 3) for _ in range(3)]
        for part, piece in zip(parts, np.array_split(rows, 3), strict=True):
            part.update(piece)
        together = parts[0] + parts[1] + parts[2]
        assert together.n_rows == 50
        np.testing.assert_allclose(together.mean(), rows.T @ rows**2 / 50, rtol=1e-12)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
    @pytest.mark.parametrize("row", [0, 13, 49])
    def test_a_bad_row_leaves_the_sum_as_it_was(self, bad, kind, row):
        rows, _ = planted_rows(50, 6)
        total = RowSum("image", np.random.default_rng(0).standard_normal((6, 2)), 3)
        total.update(kind(rows[:33]))
        before, spoilt = total.total().copy(), rows.copy()
        spoilt[row, 2] = bad
        name = "NaN" if np.isnan(bad) else "infinity"
        with pytest.raises(
            ValueError,
            match=rf"^Row {row} holds {name} in column 2\. Nothing of this batch was used;",
        ):
            total.update(kind(spoilt))
        assert np.array_equal(total.total(), before)
        assert total.n_rows == 33
        total.update(kind(rows))
        assert total.n_rows == 83

    def test_rows_too_large_to_be_cubed_say_so(self):
        total = RowSum("image", np.eye(3), 3)
        with pytest.raises(
            ValueError, match=r"The largest entry is 1e\+200\. .*divide all rows by a constant"
        ):
            total.update(np.full((40, 3), 1e200))
        assert total.n_rows == 0
        with pytest.raises(ValueError, match=r"divide all rows by a constant"):
            total.update(
                np.full((1, 3), 1e200)
            )  # too few for a chunk: found out before they wait for one
        assert total.n_rows == 0

    def test_a_change_of_kind_is_refused(self):
        total = RowSum("image", np.eye(3), 3)
        total.update(np.ones((1, 3)))
        with pytest.raises(
            ValueError, match=r"It began with dense float64 rows\. Got CSR float64\."
        ):
            total.update(sparse.csr_array(np.ones((1, 3))))
        with pytest.raises(
            ValueError, match=r"Rows must have shape \(n, 3\)\. Got shape \(1, 4\)\."
        ):
            total.update(np.ones((1, 4)))
        with pytest.raises(
            TypeError, match=r"Rows must hold float32, float64 or integers\. Got <U1\."
        ):
            total.update(np.array([["a"]]))


def test_wide_rows_are_summed_alike():
    generator = np.random.default_rng(0)
    rows, block = (
        generator.standard_normal((3, _chunks.WIDE)),
        generator.standard_normal((_chunks.WIDE, 2)),
    )
    total = RowSum("image", block, 3)
    for row in np.concatenate([rows] * 70):
        total.update(row[None])
    assert total.n_rows == 210 > rows_per_chunk(_chunks.WIDE)
    np.testing.assert_allclose(total.total(), 70 * rows.T @ (rows @ block) ** 2, rtol=1e-9)


def test_single_precision_rows_keep_a_double_precision_sum():
    rows = np.full((200_000, 40), 0.1, np.float32)
    total = RowSum("image", np.eye(40)[:, :1], 3)
    total.update(rows)
    expected = 200_000 * float(np.float32(0.1)) ** 3
    # At most 2,048 terms are added up in single precision, where plain summation errs by up to
    # 2,048 / 2 roundings.
    assert total.total()[0, 0] == pytest.approx(expected, rel=2048 / 2 * 2**-24)


def test_a_push_that_fails_leaves_the_sum_as_it_was_even_with_rows_waiting():
    # 8,192 rows fill a chunk; 4,808 wait; the next push completes a chunk larger than itself and
    # leaves a rest.
    rows = np.random.default_rng(0).standard_normal((17_500, 6))
    bad = rows[13_000:].copy()
    bad[-1, 0] = np.nan
    total, block = RowSum("image", np.eye(6)[:, :2], 3), np.eye(6)[:, :2]
    total.update(rows[:8_192])
    total.update(rows[8_192:13_000])
    with pytest.raises(ValueError, match="Row 4,499 holds NaN in column 0"):
        total.update(bad)
    assert total.n_rows == 13_000
    total.update(rows[13_000:])
    straight = RowSum("image", block, 3)
    straight.update(rows)
    assert np.array_equal(total.total(), straight.total())
