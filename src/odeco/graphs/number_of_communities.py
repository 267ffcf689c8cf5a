"""How many communities a graph shows: the negative eigenvalues of its Bethe Hessian.

For a graph with degrees D and mean excess degree r² = Σd²/Σd − 1, the matrix H = (r² − 1) I − r A + D has one negative
eigenvalue for each community that links can tell from chance, and all others lie above zero (Saade, Krzakala and
Zdeborová 2014; Le and Levina 2015). The criterion of topics is not used: it takes rows for independent, and the rows of
a symmetric matrix are not, so that it would find too many.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco.topics.lda_settings import MOST_AUTOMATIC

#: Smaller graphs are asked for all eigenvalues.
_SMALL = 500
#: So many eigenvalues are asked for first; then twice as many, until one is on the other side.
_FIRST = 16
_TOLERANCE = 1e-3


def count_communities(links: Any) -> int:
    """Return how many communities a symmetric CSR array of links shows, from 1 to 100."""
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    excess = math.sqrt(max(float(degrees @ degrees / degrees.sum()) - 1, 1.0))
    matrix = sparse.csr_array(excess * links - sparse.diags_array(degrees))
    level = excess**2 - 1
    most = min(MOST_AUTOMATIC, links.shape[0])
    if links.shape[0] <= _SMALL:
        values = np.linalg.eigvalsh(matrix.toarray())
        return int(np.clip(np.sum(values > level), 1, most))
    asked = _FIRST
    while True:
        start = np.random.default_rng(0).standard_normal(links.shape[0])
        values = sparse_linalg.eigsh(matrix, asked, which="LA", v0=start, tol=_TOLERANCE, return_eigenvectors=False)
        above = int(np.sum(values > level))
        if above < asked or asked >= most:
            return int(np.clip(above, 1, most))
        asked = min(2 * asked, most)
