"""Rows of data, dense or CSR: checked, cut, clipped and added up. Everything that is a sum over rows begins here."""

from odeco.rows._checks import as_rows, bad_row_error, check_private_rows
from odeco.rows._chunks import rows_per_chunk
from odeco.rows._clip import clipped_rows
from odeco.rows._sums import RowSum
from odeco.rows._views import csr_view, is_sparse, join_rows, row_slice, stored_numbers

__all__ = [
    "RowSum",
    "as_rows",
    "bad_row_error",
    "check_private_rows",
    "clipped_rows",
    "csr_view",
    "is_sparse",
    "join_rows",
    "row_slice",
    "rows_per_chunk",
    "stored_numbers",
]
