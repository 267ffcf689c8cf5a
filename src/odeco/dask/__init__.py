"""Rows on a Dask cluster: the same results as on one machine, to the last bit, on any number of workers.

Every question of a search is a sum over rows. Here the rows of a question are cut into nodes of the tree in which sums
are added up anyway (`odeco.rows`); workers add up nodes, and join them, and the client gets a few arrays. Workers open
files themselves, so no row passes through the client or the scheduler.

The files: `_client` finds the cluster and knows what must be the same on its machines, `_rows` says where rows are,
`_work` is what runs on workers, `_ask` sends an order out and brings sums back, `_sums` has the orders of a search.

Dask is imported only here, so `odeco` itself does without.
"""

from odeco.dask._ask import Answer, Order, ask, leaf_height, work_on
from odeco.dask._client import Cluster, check_versions, find_cluster, result_of, tried_again, versions, wait_for
from odeco.dask._rows import ClusterRows, Piece, as_cluster_rows, from_delayed
from odeco.dask._sums import sum_over_rows
from odeco.dask._work import check_count_of, read

__all__ = [
    "Answer",
    "Cluster",
    "ClusterRows",
    "Order",
    "Piece",
    "as_cluster_rows",
    "ask",
    "check_count_of",
    "check_versions",
    "find_cluster",
    "from_delayed",
    "leaf_height",
    "read",
    "result_of",
    "sum_over_rows",
    "tried_again",
    "versions",
    "wait_for",
    "work_on",
]
