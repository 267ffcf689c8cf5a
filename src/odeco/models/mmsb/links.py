"""Graphs from whatever holds them: checked, made symmetric, with whole numbers of links.

Links that arrive in batches: how often each pair of nodes was linked, and no more.

Counts of three-stars do not add up over batches: two links of a node make a pair with every link that it had before.
Sums of fixed size would do for the eigenvectors only, and for these badly: a sketch of the links in some hundred
directions takes as much room as the links themselves, where nodes have about as many, and loses most of the signal. So
the links are kept. What is kept does not grow with the number of links that arrive but with the number of pairs that
are linked: two numbers each. Whole numbers of links have exact sums, so that what is learnt does not depend on the
order of links, and is what `fit` learns from all of them. Other weights are added up in the order in which they arrive,
in blocks of a fixed size: the last bits depend on that order, and nothing on where batches end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse

from odeco._util.schema import Rule, array, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import check_structure, to_csr
from odeco.models.engine.latent_model import RowStream

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
    return sparse.csr_array(np.asarray(matrix))


def as_links(rows: Any) -> Any:
    """Return rows of an adjacency matrix with whole numbers of links, or raise if a weight cannot be.

    Whole weights say how often two nodes are linked. Others are divided by a quarter of their mean and rounded, so that
    the weakest links are dropped.
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

    The links of a directed graph count at both of their ends: what is added up is A + Aᵀ.
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


#: Links are sorted into those that are there in blocks of this many.
BLOCK = 2**18


@dataclass(eq=False)
class LinkStream(RowStream):
    """Where communities that learn from batches of links stand.

    Attributes
    ----------
    held : array, m x 3
        Links that wait for their block: two nodes, and the weight.
    n_rows : int
        Number of entries fed so far, those that wait included.
    pairs : array of int
        The pairs of nodes that are linked, as i n + j, in order.
    weights : array
        The weight of each of them.
    n_pairs : array of n numbers
        How many of the pairs each node begins.
    next_node : int
        The node whose row of the adjacency matrix comes next, if rows are what is fed.
    seed : int
        Seed of what is learnt.
    """

    RULES: ClassVar[Mapping[str, Rule]] = {
        "held": array(None, None, low=0),
        "n_rows": array(kind="i", low=0),
        "pairs": array("pairs", kind="i", low=0),
        "weights": array("pairs", low=0),
        "n_pairs": array("n_features", kind="i", low=0),
        "next_node": array(kind="i", low=0),
        "seed": array(kind="i", low=0),
    }

    pairs: IndexArray
    weights: FloatArray
    n_pairs: IndexArray
    next_node: int
    seed: int

    @classmethod
    def begin(cls, n_nodes: int, seed: int) -> LinkStream:
        """Return a stream that has seen no link."""
        no_pairs, no_weights, n_pairs = np.zeros(0, np.int64), np.zeros(0), np.zeros(n_nodes, np.int64)
        return cls(np.zeros((0, 3)), 0, no_pairs, no_weights, n_pairs, 0, seed)

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote, from arrays that obey the rules; raise if they contradict each other."""
        stream = super().from_arrays(prefix, arrays)
        held, n = stream.held, stream.n_nodes
        require(held.shape[1] == 3, "its links must be two nodes and a weight each")
        require(len(held) < BLOCK, "fewer links than a block may wait")
        require(bool(np.all(held[:, :2] == np.rint(held[:, :2]))), "its nodes must be whole numbers")
        require(held[:, :2].max(initial=0) < n and stream.next_node < n, "its links must be between its nodes")
        require(bool(np.all(np.diff(stream.pairs) > 0)), "its pairs must be in order")
        require(stream.pairs.max(initial=0) < n**2, "its pairs must be of its nodes")
        require(np.array_equal(_begun_by(stream.pairs, n), stream.n_pairs), "its pairs must be as many as it says")
        require(len(stream.pairs) + len(held) <= stream.n_rows, "its links must have been counted")
        return stream

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.n_pairs)

    @property
    def next_size(self) -> int:
        """The number of links of the next block."""
        return BLOCK

    def after_edges(self, edges: FloatArray) -> LinkStream:
        """Return the stream after more edges, m x 3: each is a link at both of its ends. This one stays as it was."""
        return self.updated(np.stack([edges, edges[:, [1, 0, 2]]], axis=1).reshape(-1, 3))

    def after_rows(self, rows: Any) -> LinkStream:
        """Return the stream after more rows of an adjacency matrix, as CSR; after the last node the first follows."""
        entries = rows.tocoo()
        nodes = (self.next_node + entries.coords[0]) % self.n_nodes
        after = self.updated(np.column_stack([nodes, entries.coords[1], entries.data]).astype(np.float64))
        after.next_node = (self.next_node + rows.shape[0]) % self.n_nodes
        return after

    def absorb(self, block: Any) -> None:
        """Sort links into those that are there."""
        self.pairs, self.weights = self._with(block)
        self.n_pairs = _begun_by(self.pairs, self.n_nodes)

    def links(self) -> Any:
        """Return all links so far as a CSR array, n x n."""
        pairs, weights = self._with(self.held)
        ends = np.divmod(pairs, self.n_nodes)
        return sparse.coo_array((weights, ends), shape=(self.n_nodes, self.n_nodes)).tocsr()

    def _with(self, block: FloatArray) -> tuple[IndexArray, FloatArray]:
        """Return the pairs and their weights after a block."""
        ends = block[:, :2].astype(np.int64)
        new, place = np.unique(ends[:, 0] * self.n_nodes + ends[:, 1], return_inverse=True)
        added = np.bincount(place, block[:, 2], len(new))
        at: IndexArray = np.asarray(np.searchsorted(self.pairs, new))
        known = at < len(self.pairs)
        known[known] = self.pairs[at[known]] == new[known]
        weights = self.weights.copy()
        weights[at[known]] += added[known]
        return np.insert(self.pairs, at[~known], new[~known]), np.insert(weights, at[~known], added[~known])


def _begun_by(pairs: IndexArray, n_nodes: int) -> IndexArray:
    """Return how many pairs each node begins."""
    return np.bincount(pairs // n_nodes, minlength=n_nodes)
