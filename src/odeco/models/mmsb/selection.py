"""The number of communities of a graph: those before the largest gap in its spectrum, among those that are detectable.

For a graph with degrees D and mean excess degree r² = Σd²/Σd − 1, the Bethe Hessian H = (r² − 1) I − r A + D has one
negative eigenvalue for each community that links distinguish from chance, and all others lie above zero (Saade,
Krzakala and Zdeborová 2014; Le and Levina 2015). That bounds the number. Where degrees differ much, and in any large
graph, H counts parts of communities too. So among these numbers the one is taken after which the eigenvalues of the
links, divided by the roots of degrees at both ends, fall most: the span of the eigenvectors before the largest gap is
the one that links determine best (Davis and Kahan 1970). A tenth of the mean is added to degrees, because nodes with
few links would have eigenvectors of their own otherwise (Qin and Rohe 2013).

The criterion for topics is not used: it assumes independent rows, and those of a symmetric matrix are not independent,
so it would select too many.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray

#: The largest number of communities that is selected.
_MAX_AUTO = 100

#: All eigenvalues of a graph with at most this number of nodes are computed.
_SMALL = 500

#: This number of eigenvalues is computed first, then twice as many, until one is on the other side.
_FIRST = 16

_TOLERANCE = 1e-3

#: The share of the mean degree that is added to degrees.
_ADDED = 0.1


def count_communities(links: Any) -> int:
    """Return the number of communities in a symmetric CSR array of links, from 1 to 100."""
    most = count_detectable(links)
    if most <= 2:
        return most
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    scale = sparse.diags_array(1 / np.sqrt(degrees + _ADDED * degrees.mean()))
    values = _largest(sparse.csr_array(scale @ links @ scale), most + 1)
    # The first eigenvalue is that of the whole graph, and larger than the others whatever these are.
    return 2 + int(np.argmax(values[1:-1] - values[2:]))


def count_detectable(links: Any) -> int:
    """Return the number of communities that links distinguish from chance, from 1 to 100: negative eigenvalues of H."""
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    excess = math.sqrt(max(float(degrees @ degrees / degrees.sum()) - 1, 1.0))
    matrix = sparse.csr_array(excess * links - sparse.diags_array(degrees))
    level = excess**2 - 1
    most = min(_MAX_AUTO, links.shape[0] - 1)
    asked = min(_FIRST, most)
    while True:
        above = int(np.sum(_largest(matrix, asked) > level))
        if above < asked or asked >= most:
            return max(above, 1)
        asked = min(2 * asked, most)


def _largest(matrix: Any, number: int) -> FloatArray:
    """Return the largest eigenvalues of a symmetric CSR array, in decreasing order."""
    with one_blas_thread():
        if matrix.shape[0] <= _SMALL:
            values = np.linalg.eigvalsh(matrix.toarray())
        else:
            start = np.random.default_rng(0).standard_normal(matrix.shape[0])
            values = sparse_linalg.eigsh(
                matrix, number, which="LA", v0=start, tol=_TOLERANCE, return_eigenvectors=False
            )
    return np.asarray(np.sort(values)[::-1][:number])
