"""Links that arrive in batches: the weight of each pair of nodes is stored, and nothing else.

Counts of three-stars do not add up over batches: two links of a node form a pair with every link that it had before.
Sums of fixed size would serve the eigenvectors only, and these badly: a sketch of the links in some hundred directions
takes as much room as the links themselves, if nodes have about as many, and loses most of the signal. So the links are
stored. What is stored grows with the number of linked pairs, two numbers for each, and not with the number of links
that arrive. Whole numbers of links have exact sums, so the result does not depend on the order of links, and equals
that of `fit` on all of them. Other weights are added up in the order in which they arrive, in blocks of a fixed size:
the last bits depend on that order, but not on where batches end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse

from odeco._util.state import State, array_field, require
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.fit import Fit
from odeco.models.engine.spec import Spec
from odeco.models.engine.stream import BlockStream


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
        Number of entries of the adjacency matrix so far, those in the buffer included. An edge has two.
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
        """Return the stream after more edges, m x 3, or after more rows of the adjacency matrix, as CSR.

        An edge is a link at both of its ends. After the row of the last node that of the first follows.
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
        """Raise `ValueError` unless the stream, which may come from an untrusted file, can go on."""
        n, buffer = n_features, self.waiting
        require(self.n_nodes == n, "its nodes must be its features")
        require(buffer.ndim == 2 and buffer.shape[1] == 3, "its links must be two nodes and a weight each")
        require(buffer.dtype == np.float64 and bool(np.all(np.isfinite(buffer))), "its links must be finite numbers")
        require(len(buffer) < spec.next_block, "its buffer must have fewer links than a block")
        ends = buffer[:, :2]
        require(bool(np.all(ends == np.rint(ends))), "its nodes must be whole numbers")
        require(buffer.min(initial=0) >= 0, "its links must not be negative")
        require(ends.max(initial=0) < n and self.next_node < n, "its links must be between its nodes")
        require(self.pairs.dtype == np.int64, "its pairs must be numbers of 64 bits, which others are added to")
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
        return np.insert(self.pairs, at[~known], new[~known]), np.insert(weights, at[~known], added[~known])
