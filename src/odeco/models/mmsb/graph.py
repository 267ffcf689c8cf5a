"""Graphs from whatever holds them, checked and made symmetric, and links that arrive in batches.

**Batches.** The weight of each pair of nodes is stored, and nothing else. Counts of three-stars do
not add up over batches: two links of a node form a pair with every link that it had before. Sums of
fixed size would serve the eigenvectors only, and these badly: a sketch of the links in some hundred
directions takes as much room as the links themselves, if nodes have about as many, and loses most
of the signal. So the links are stored. What is stored grows with the number of linked pairs, two
numbers for each, and not with the number of links that arrive. Whole numbers of links have exact
sums, so the result does not depend on the order of links, and equals that of `fit` on all of them.
Other weights are added up in the order in which they arrive, in blocks of a fixed size: the last
bits depend on that order, but not on where batches end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.io.graphs import Graph, graph_of_edges
from odeco.io.rows import check_structure, native, to_csr
from odeco.io.source import check_cells, names_of
from odeco.models.engine.fit import Fit
from odeco.models.engine.spec import Spec
from odeco.models.engine.stream import BlockStream

#: Weights that are not whole numbers are scaled so that their mean is this, and rounded.
_MEAN_WEIGHT = 4.0

#: Counts up to this number are exact in double precision.
_MAX_LINKS = 2.0**53


def named_graph(value: Any) -> Graph | None:
    """Return a graph whose nodes have names: of networkx, of igraph, or a table of edges; None for
    anything else.

    A table of edges has two columns of nodes, and a third one if edges have weights. None of these
    libraries is imported.
    """
    if all(hasattr(value, name) for name in ("nodes", "edges", "is_directed", "is_multigraph")):
        edges = list(value.edges(data="weight", default=1))
        ends = [(edge[0], edge[1]) for edge in edges]
        weights: Any = [edge[-1] for edge in edges]
        return graph_of_edges(ends, weights, list(value.nodes), directed=value.is_directed())
    if all(hasattr(value, name) for name in ("vs", "es", "get_edgelist")):
        known = value.vs.attributes()
        names = value.vs["name"] if "name" in known else list(range(value.vcount()))
        ends = [(names[first], names[last]) for first, last in value.get_edgelist()]
        weights = value.es["weight"] if "weight" in value.es.attributes() else np.ones(len(ends))
        return graph_of_edges(ends, weights, names, directed=value.is_directed())
    names = names_of(value)
    if names is None and hasattr(value, "iloc") and hasattr(value, "columns"):  # called 0, 1, 2
        names = list(value.columns)
    if names is None or len(names) not in (2, 3):
        return None
    check_cells(value)
    columns = [np.asarray(value[name]).tolist() for name in names]
    n_rows = len(columns[0])
    if n_rows == len(names) and all(isinstance(cell, int | float) for cell in columns[0]):
        return None  # a matrix
    weights = columns[2] if len(names) == 3 else np.ones(n_rows)
    return graph_of_edges(list(zip(columns[0], columns[1], strict=True)), weights)


def as_sparse(matrix: Any) -> Any:
    """Return rows of an adjacency matrix as CSR, of any kind of array."""
    if sparse.issparse(matrix):
        rows = to_csr(matrix)
        check_structure(rows)
        return rows
    array = native(np.asarray(matrix))
    if array.dtype.kind == "O":
        raise TypeError(
            "An adjacency matrix must hold numbers. Got texts or other objects. Convert them with "
            "astype(float)."
        )
    return sparse.csr_array(array)


def as_links(rows: Any) -> Any:
    """Return rows of an adjacency matrix with whole numbers of links; raise if a weight is
    negative.

    Whole weights are numbers of links. Other weights are divided by a quarter of their mean and
    rounded, so the weakest links are dropped.
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
            f"Whole weights count links, and must sum to at most 2**53. Their sum is {total:.3g}. "
            "Divide all weights by a constant."
        )
    if weights.size and float(weights.min()) < 0:
        raise ValueError(
            "Negative values in data passed to Communities: weights of links must not be "
            f"negative. Got {weights.min():g}. Drop these links, or pass their size."
        )


def as_edges(edges: Any, n_nodes: int) -> FloatArray:
    """Return a list of edges as an array, m x 3: two nodes, and the weight. Loops are dropped."""
    given = np.asarray(edges)
    if given.ndim != 2 or given.shape[1] not in (2, 3) or given.dtype.kind not in "iuf":
        raise ValueError(
            "Edges must be an array of two nodes each, or two nodes and a weight. Got shape "
            f"{given.shape} of {given.dtype}. Pass the numbers of nodes, m x 2 or m x 3, or a "
            "matrix without `n_nodes`."
        )
    full = np.ones((len(given), 3))
    full[:, : given.shape[1]] = given
    ends = full[:, :2]
    if (
        not np.all(np.isfinite(full))
        or np.any(ends != np.rint(ends))
        or np.any((ends < 0) | (ends >= n_nodes))
    ):
        raise ValueError(
            f"Nodes of edges must be whole numbers from 0 to {n_nodes - 1:,}, and weights finite. "
            "Got others. Number the nodes so, or pass a larger `n_nodes`."
        )
    check_weights(full[:, 2])
    return np.asarray(full[ends[:, 0] != ends[:, 1]])


def as_adjacency(matrix: Any) -> Any:
    """Return the links of a graph as a symmetric CSR array without loops.

    The links of a directed graph count at both of their ends: the result is A + Aᵀ.
    """
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            "An adjacency matrix must have a row and a column for each node. Got shape "
            f"{matrix.shape}. Pass a square matrix, or a networkx graph."
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

    A node sends half of its links: each through a community that is drawn from its memberships, to
    a node that is drawn from the profile of the community. Two nodes may be linked several times;
    loops are dropped.
    """
    n_nodes, k = memberships.shape
    numbers = rng.poisson(np.asarray(degrees) / 2)
    senders: IndexArray = np.repeat(np.arange(n_nodes), numbers)
    cumulated = np.cumsum(memberships, axis=1)[senders]
    through = np.minimum(
        np.sum(cumulated < rng.uniform(size=senders.size)[:, None] * cumulated[:, -1:], axis=1),
        k - 1,
    )
    receivers = np.empty_like(senders)
    for community in range(k):
        own = np.flatnonzero(through == community)
        totals = np.cumsum(profiles[community])
        drawn = np.searchsorted(totals, rng.uniform(size=own.size) * totals[-1], side="right")
        receivers[own] = np.minimum(drawn, n_nodes - 1)
    kept = senders != receivers
    shape = (n_nodes, n_nodes)
    links = sparse.coo_array(
        (np.ones(int(kept.sum())), (senders[kept], receivers[kept])), shape=shape
    ).tocsr()
    return sparse.csr_array(links + links.T)


@dataclass(frozen=True, eq=False)
class GraphContext(State):
    """The number of nodes of a graph."""

    n_nodes: int = array_field(kind="i", low=2)


@dataclass(frozen=True, eq=False)
class LinkStream(BlockStream):
    """A stream of links.

    Attributes
    ----------
    buffer : array, m x 3
        Links of the block that is not complete yet: two nodes, and the weight.
    n_seen : int
        Number of entries of the adjacency matrix so far, those in the buffer included. An edge has
        two.
    pairs : array of int
        The pairs of nodes that are linked, as i n + j, in increasing order.
    weights : array
        The weight of each of them.
    next_node : int
        The node whose row of the adjacency matrix comes next, if rows arrive.
    """

    pairs: IndexArray = array_field("pairs", kind="i", low=0, default=np.zeros(0, np.int64))
    weights: FloatArray = array_field("pairs", low=0, default=np.zeros(0))
    next_node: int = array_field(kind="i", low=0, default=0)

    @classmethod
    def begin(cls, base: State, seed: int, rows: Any) -> Self:  # noqa: ARG003 - links are stored in one type
        """Return a stream that has seen no link."""
        return cls(np.zeros((0, 3)), seed, context=base)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.context.n_nodes)

    def update(self, spec: Spec, rows: Any) -> Self:
        """Return the stream after more edges, m x 3, or after more rows of the adjacency matrix, as
        CSR.

        An edge is a link at both of its ends. After the row of the last node that of the first
        follows.
        """
        if not sparse.issparse(rows):
            return super().update(spec, np.stack([rows, rows[:, [1, 0, 2]]], axis=1).reshape(-1, 3))
        matrix: Any = rows
        entries = matrix.tocoo()
        nodes = (self.next_node + entries.coords[0]) % self.n_nodes
        links = np.column_stack([nodes, entries.coords[1], entries.data]).astype(np.float64)
        after = super().update(spec, links)
        return replace(after, next_node=(self.next_node + entries.shape[0]) % self.n_nodes)

    def absorb(self, spec: Spec, block: Any) -> Self:  # noqa: ARG002 - the links alone matter
        """Return the stream after a block of links."""
        pairs, weights = self._with(block)
        return replace(self, n_blocks=self.n_blocks + 1, pairs=pairs, weights=weights)

    def result(self, spec: Spec) -> Fit:
        """Return the model of all links so far."""
        return spec.fit_rows(self.links(), self.context, self.seed)

    def links(self) -> Any:
        """Return all links so far as a CSR array, n x n."""
        pairs, weights = self._with(self.waiting)
        ends = np.divmod(pairs, self.n_nodes)
        return sparse.coo_array((weights, ends), shape=(self.n_nodes, self.n_nodes)).tocsr()

    def verify(self, spec: Spec, n_features: int) -> None:
        """Raise `ValueError` unless the stream, which may come from an untrusted file, can go
        on.
        """
        n = n_features
        buffer = self.waiting
        require(self.n_nodes == n, "its nodes must be its features")
        require(
            buffer.ndim == 2 and buffer.shape[1] == 3,
            "its links must be two nodes and a weight each",
        )
        require(
            buffer.dtype == np.float64 and bool(np.all(np.isfinite(buffer))),
            "its links must be finite numbers",
        )
        require(len(buffer) < spec.next_block, "its buffer must have fewer links than a block")
        ends = buffer[:, :2]
        require(bool(np.all(ends == np.rint(ends))), "its nodes must be whole numbers")
        require(buffer.min(initial=0) >= 0, "its links must not be negative")
        require(
            ends.max(initial=0) < n and self.next_node < n, "its links must be between its nodes"
        )
        require(
            self.pairs.dtype == np.int64,
            "its pairs must be numbers of 64 bits, which others are added to",
        )
        require(bool(np.all(np.diff(self.pairs) > 0)), "its pairs must be in order")
        require(self.pairs.max(initial=0) < n**2, "its pairs must be of its nodes")
        require(len(self.pairs) + len(buffer) <= self.n_seen, "its links must have been counted")

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
        return np.insert(self.pairs, at[~known], new[~known]), np.insert(
            weights, at[~known], added[~known]
        )
