from odeco.online.dask.partitions import ClusterRows as ClusterRows
from odeco.online.dask.partitions import as_cluster_rows as as_cluster_rows
from odeco.online.dask.partitions import from_delayed as from_delayed
