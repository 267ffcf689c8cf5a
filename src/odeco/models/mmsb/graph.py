"""Graphs from whatever holds them: checked, made symmetric, with whole numbers of links."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import check_structure, to_csr

#: Weights that are not whole numbers are scaled so that their mean is this, and rounded.
_MEAN_WEIGHT = 4.0

#: Counts up to this number are exact in double precision.
_MAX_LINKS = 2.0**53


def is_graph(value: Any) -> bool:
    """Return whether this is a graph of networkx, which is not imported for that."""
    return all(hasattr(value, name) for name in ("nodes", "edges", "is_directed", "is_multigraph"))


def from_networkx(graph: Any) -> tuple[Any, list[str]]:
    """Return the adjacency matrix of a networkx graph, and the names of its nodes."""
    nodes = list(graph.nodes)
    place = {node: index for index, node in enumerate(nodes)}
    edges = list(graph.edges(data="weight", default=1))
    ends = np.array([(place[edge[0]], place[edge[1]]) for edge in edges], dtype=np.int64).reshape(-1, 2)
    weights = np.array([edge[-1] for edge in edges], dtype=np.float64)
    links = sparse.coo_array((weights, (ends[:, 0], ends[:, 1])), shape=(len(nodes), len(nodes))).tocsr()
    return links if graph.is_directed() else links + links.T, [str(node) for node in nodes]


def as_sparse(matrix: Any) -> Any:
    """Return rows of an adjacency matrix as CSR, of any kind of array."""
    if sparse.issparse(matrix):
        rows = to_csr(matrix)
        check_structure(rows)
        return rows
    array = np.asarray(matrix)
    if array.dtype.kind == "O":
        raise TypeError(
            "An adjacency matrix must hold numbers. Got texts or other objects. Convert them with astype(float)."
        )
    return sparse.csr_array(array)


def as_links(rows: Any) -> Any:
    """Return rows of an adjacency matrix with whole numbers of links; raise if a weight is negative.

    Whole weights are numbers of links. Other weights are divided by a quarter of their mean and rounded, so the weakest
    links are dropped.
    """
    links = sparse.csr_array(rows, dtype=np.float64, copy=True)
    links.sum_duplicates()
    check_weights(links.data)
    if np.any(links.data != np.rint(links.data)):
        links.data = np.rint(links.data * (_MEAN_WEIGHT / links.data.mean()))
    links.eliminate_zeros()
    return links


def check_weights(weights: FloatArray) -> None:
    """Raise if a weight of a link is negative, or if whole weights cannot be counted exactly."""
    total = float(weights.sum())
    if total > _MAX_LINKS and not np.any(weights != np.rint(weights)):
        raise ValueError(
            f"Whole weights count links, and must sum to at most 2**53. Their sum is {total:.3g}. Divide all weights "
            "by a constant."
        )
    if weights.size and float(weights.min()) < 0:
        raise ValueError(
            f"Negative values in data passed to Communities: weights of links must not be negative. "
            f"Got {weights.min():g}. Drop these links, or pass their size."
        )


def as_edges(edges: Any, n_nodes: int) -> FloatArray:
    """Return a list of edges as an array, m x 3: two nodes, and the weight. Loops are dropped."""
    given = np.asarray(edges)
    if given.ndim != 2 or given.shape[1] not in (2, 3) or given.dtype.kind not in "iuf":
        raise ValueError(
            f"Edges must be an array of two nodes each, or two nodes and a weight. Got shape {given.shape} of "
            f"{given.dtype}. Pass the numbers of nodes, m x 2 or m x 3, or a matrix without `n_nodes`."
        )
    full = np.ones((len(given), 3))
    full[:, : given.shape[1]] = given
    ends = full[:, :2]
    if not np.all(np.isfinite(full)) or np.any(ends != np.rint(ends)) or np.any((ends < 0) | (ends >= n_nodes)):
        raise ValueError(
            f"Nodes of edges must be whole numbers from 0 to {n_nodes - 1:,}, and weights finite. Got others. Number "
            "the nodes so, or pass a larger `n_nodes`."
        )
    check_weights(full[:, 2])
    return np.asarray(full[ends[:, 0] != ends[:, 1]])


def as_adjacency(matrix: Any) -> Any:
    """Return the links of a graph as a symmetric CSR array without loops.

    The links of a directed graph count at both of their ends: the result is A + Aᵀ.
    """
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"An adjacency matrix must have a row and a column for each node. Got shape {matrix.shape}. "
            "Pass a square matrix, or a networkx graph."
        )
    links = as_links(matrix)
    if (links != links.T).nnz:
        links = sparse.csr_array(links + links.T)
    loops = links.diagonal()
    if loops.any():
        links = sparse.csr_array(links - sparse.diags_array(loops))
        links.eliminate_zeros()
    links.sort_indices()
    return links


def draw_links(memberships: Any, profiles: Any, degrees: Any, rng: np.random.RandomState) -> Any:
    """Return a new graph on the same nodes, as a symmetric CSR array.

    A node sends half of its links: each through a community that is drawn from its memberships, to a node that is drawn
    from the profile of the community. Two nodes may be linked several times; loops are dropped.
    """
    n_nodes, k = memberships.shape
    numbers = rng.poisson(np.asarray(degrees) / 2)
    senders: IndexArray = np.repeat(np.arange(n_nodes), numbers)
    cumulated = np.cumsum(memberships, axis=1)[senders]
    through = np.minimum(np.sum(cumulated < rng.uniform(size=senders.size)[:, None] * cumulated[:, -1:], axis=1), k - 1)
    receivers = np.empty_like(senders)
    for community in range(k):
        own = np.flatnonzero(through == community)
        totals = np.cumsum(profiles[community])
        drawn = np.searchsorted(totals, rng.uniform(size=own.size) * totals[-1], side="right")
        receivers[own] = np.minimum(drawn, n_nodes - 1)
    kept = senders != receivers
    shape = (n_nodes, n_nodes)
    links = sparse.coo_array((np.ones(int(kept.sum())), (senders[kept], receivers[kept])), shape=shape).tocsr()
    return sparse.csr_array(links + links.T)
