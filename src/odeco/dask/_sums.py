"""The questions of a search, as orders to workers."""

from __future__ import annotations

from odeco._types import FloatArray
from odeco.dask._ask import Order
from odeco.dask._client import versions
from odeco.dask._rows import ClusterRows
from odeco.dask._work import Task, add_up
from odeco.rows import Question, rows_per_unit


def sum_over_rows(
    rows: ClusterRows, question: Question, block: FloatArray, order: int, norm_bound: float | None = None
) -> Order:
    """Return the order to answer a question of a search: see `odeco.rows.RowSum`.

    With `norm_bound`, for a private run, rows are cut to it, and nothing is said about any of them.
    """
    unit = rows_per_unit(rows.n_features, sparse=rows.sparse)
    task = Task(question, order, unit, rows.n_features, rows.name, norm_bound, versions())
    return Order(add_up, task, block, unit)
