"""Rows on a Dask cluster: the same results as on one machine, to the last bit, on any number of workers.

Every question of a search is a sum over rows. Here the rows of a question are cut into nodes of the tree in which sums
are added up anyway (`odeco.rows`); workers add up nodes, and join them, and the client gets a few arrays. Workers open
files themselves, so no row passes through the client or the scheduler.

The files: `_client` finds the cluster and checks that its machines have what they need, `_rows` says where rows are,
`_work` is what runs on workers, `_ask` sends a question out and brings its sum back.

Dask is imported only here, so `odeco` itself does without.
"""

from odeco.dask._ask import Answer, Question, ask
from odeco.dask._client import Cluster, dashboard_link, find_cluster
from odeco.dask._rows import ClusterRows, as_cluster_rows, from_delayed

__all__ = [
    "Answer",
    "Cluster",
    "ClusterRows",
    "Question",
    "as_cluster_rows",
    "ask",
    "dashboard_link",
    "find_cluster",
    "from_delayed",
]
