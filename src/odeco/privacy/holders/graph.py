"""The holder of a private graph: which pairs of nodes are linked, each pair flipped at random.

**Neighbours** are two graphs on the same nodes that differ in one edge, which only one of them has.
The nodes are public, and so is their number n. A pair of nodes is linked, 1, or not, 0: weights,
directions and loops are dropped, and an entry that is no number above 0 is no link. So neighbours
differ in one of n (n − 1)/2 bits, and the distance of these vectors is exactly 1: bits are exact,
and no rounding error has to be declared.

**Randomised response.** Each bit b gets noise of deviation σ ≥ (1 + g)/μ, rounded to a grid g that
divides 1/2 (`odeco.privacy.noise.noise_scale`), and all that is kept of the sum is whether it
exceeds 1/2. With the noise G, q = P(G > 1/2) is the chance that a 0 is kept as 1, and P(1 + G ≤
1/2) = P(G ≥ 1/2) ≥ q that a 1 is kept as 0. As q ≥ Φ(−(1/2 + g/2)/σ) ≥ Φ(−μ/2), both chances are at
least Φ(−μ/2) = 1/(1 + e^ε) for the μ of `PureGuarantee`: whatever is kept of a bit is at most e^ε
times as likely for one value as for the other. All other bits are the same, and are flipped
independently. That is ε-differential privacy, with δ = 0 (Warner 1965). A ledger is charged the μ
of the noise, of which the kept bits are post-processing.

A node with all its edges is not protected: it changes n − 1 bits at once, and noise that hides
these hides the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from odeco._util.types import FloatArray
from odeco.privacy.sums import Query


class PrivateLinks:
    """The pairs of nodes of a private graph, in the order of the upper triangle of its adjacency
    matrix.

    Parameters
    ----------
    adjacency : array or sparse array, n x n
        Any numbers. A pair is linked if one of its two entries is above 0.
    """

    def __init__(self, adjacency: Any) -> None:
        links = sparse.coo_array(adjacency)
        self.n_nodes = int(adjacency.shape[0])
        self.n_records = self.n_terms = self.n_nodes * (self.n_nodes - 1) // 2
        linked = (links.data > 0) & (links.row != links.col)
        low = np.minimum(links.row, links.col)[linked].astype(np.int64)
        high = np.maximum(links.row, links.col)[linked].astype(np.int64)
        self._places = low * (2 * self.n_nodes - low - 1) // 2 + high - low - 1

    def pairs(self) -> Query:
        """Return the query of all bits."""
        return Query(
            "pairs of nodes, each flipped at random",
            self._bits,
            self.n_records,
            1.0,
            signed=False,
            exact=True,
        )

    def _bits(self) -> FloatArray:
        bits = np.zeros(self.n_records)
        bits[self._places] = 1.0
        return bits
