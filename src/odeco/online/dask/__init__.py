"""Rows on a Dask cluster: bit-identical results on any number of workers."""

from odeco.online.dask.partitions import ClusterRows, as_cluster_rows, from_delayed

__all__ = [
    "ClusterRows",
    "as_cluster_rows",
    "from_delayed",
]
