"""Rows of data, dense or CSR: checked, looked at, cut, clipped and added up.

`RowSum` is the one seam at which rows become numbers: a question goes in, then rows or another sum over the same
question, and a sum with its number of rows comes out. Private records are added up in `odeco.privacy`, where the proof
of their sensitivity needs to know in which order.
"""

from odeco.rows._checks import (
    all_finite,
    as_rows,
    bad_row_error,
    check_private_rows,
    check_private_structure,
    check_structure,
    csr_fault,
    first_bad_row,
    to_csr,
)
from odeco.rows._chunks import rows_per_chunk, rows_per_unit
from odeco.rows._clip import clipped_rows
from odeco.rows._sums import MOST_LEVELS, Held, Question, RowSum
from odeco.rows._tree import RADIX, Part, carried, collected, joined, nodes
from odeco.rows._views import csr_view, is_sparse, join_rows, row_slice, stored_numbers

__all__ = [
    "MOST_LEVELS",
    "RADIX",
    "Held",
    "Part",
    "Question",
    "RowSum",
    "all_finite",
    "as_rows",
    "bad_row_error",
    "carried",
    "check_private_rows",
    "check_private_structure",
    "check_structure",
    "clipped_rows",
    "collected",
    "csr_fault",
    "csr_view",
    "first_bad_row",
    "is_sparse",
    "join_rows",
    "joined",
    "nodes",
    "row_slice",
    "rows_per_chunk",
    "rows_per_unit",
    "stored_numbers",
    "to_csr",
]
