"""Links that arrive in batches: how often each pair of nodes was linked, and no more.

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

from odeco._schema import Rule, array, require
from odeco._types import FloatArray, IndexArray
from odeco.latent.row_stream import RowStream

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
