"""Partitions of a graph: spectral clustering, refined by moves of nodes; and the number of
communities.

The degree-corrected *planted partition model* says how likely a partition is. Two nodes with dᵢ and
dⱼ links expect ω dᵢ dⱼ/2m links, with one rate ω within blocks and another between them. The
log-likelihood is that of modularity with the resolution that the rates imply (Newman 2016,
arXiv:1606.02319). One rate for each pair of blocks would be likelier, but for sparse graphs the
likeliest of all such partitions is far from the planted one: it has small blocks of noise.

**The number of communities** is found by comparing the graph with random ones. If there are k
communities, the graph looks like one in which all links between two of them are exchanged at random
(`rewired`), so that the (k+1)-th eigenvalue of the normalised adjacency matrix is as large as
chance makes it. The number is the smallest k of which this is true. Because the random graphs have
the degrees and communities of the given one, neither unequal degrees nor unequal sizes count as
communities. The number is found by doubling and bisection.

Communities may have parts, which links distinguish too. So of the numbers up to this one, the
largest is selected whose partition is about as good as the best: in its likelihood in the planted
partition model, and in its modularity, which is that likelihood at a fixed resolution. Both numbers
are stated.

The criterion for topics is not used: it assumes independent rows, and those of a symmetric matrix
are not independent, so it would select too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import stdtrit
from sklearn.cluster import kmeans_plusplus

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.models.mmsb.blocks import leading_eigenpairs

#: All eigenvectors of a graph with at most this number of nodes are computed.
_SMALL = 100

#: The share of the mean degree that is added to degrees: nodes with few links would have
#: eigenvectors of their own otherwise (Qin and Rohe 2013).
_ADDED = 0.1

#: Residuals of eigenvectors. The error of an eigenvalue is of the order of their square.
_TOLERANCE = 1e-2

#: Rounds of k-means, its starts, and rounds of moves.
_N_LLOYD = 30
_N_STARTS = 8
_N_ROUNDS = 30

#: Rounds in which the ends of links are exchanged.
_N_EXCHANGES = 20

#: Added to numbers of links, so that none is impossible.
_LEAST_LINKED = 0.1


def normalized_spectrum(links: Any, number: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues, in decreasing order, and eigenvectors of the normalised
    adjacency matrix.

    Links are divided by the roots of the degrees at both ends, so that the largest eigenvalue is
    near 1, whatever the degrees are.
    """
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    scale = sparse.diags_array(1 / np.sqrt(degrees + _ADDED * degrees.mean()))
    matrix = sparse.csr_array(scale @ links @ scale)
    values, vectors = leading_eigenpairs(
        matrix, number, which="LA", tolerance=_TOLERANCE, small=_SMALL
    )
    order = np.argsort(-values, kind="stable")[:number]
    return values[order], vectors[:, order]


def spectral_partitions(vectors: FloatArray, k: int, rng: np.random.Generator) -> list[IndexArray]:
    """Return the block of each node by spectral clustering, from several starts, the best first.

    Spectral clustering is k-means of the directions of the nodes in the k leading eigenvectors.
    """
    if k == 1:
        return [np.zeros(len(vectors), dtype=np.int64)]
    rows = vectors[:, :k] / np.maximum(np.linalg.norm(vectors[:, :k], axis=1, keepdims=True), 1e-12)
    found = [_spherical_k_means(rows, k, int(rng.integers(2**31))) for _ in range(_N_STARTS)]
    return [labels for _, labels in sorted(found, key=lambda each: -each[0])]


def _spherical_k_means(rows: FloatArray, k: int, seed: int) -> tuple[float, IndexArray]:
    """Return the mean cosine of unit rows with the centres of their blocks, and the blocks."""
    centres, _ = kmeans_plusplus(rows, k, random_state=seed)
    labels: IndexArray = np.zeros(0, dtype=np.int64)
    with one_blas_thread():
        for _ in range(_N_LLOYD):
            cosines = rows @ centres.T
            before = labels
            labels = np.argmax(cosines, axis=1)
            if np.array_equal(before, labels):
                break
            sums = _indicators(labels, k).T @ rows
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
    return float(cosines.max(axis=1).mean()), labels


def likeliest_partition(links: Any, shares: FloatArray, rng: np.random.Generator) -> IndexArray:
    """Return the likeliest of refined partitions: from the largest shares of nodes (n x k), and
    spectral clustering.

    Moves of single nodes cannot undo a start in which two blocks are one, and another is cut in
    two. So spectral clustering into more than k blocks gives starts too: blocks are merged until k
    are left. Blocks have the numbers of the communities in which most of their nodes have their
    shares.
    """
    n, k = shares.shape
    if k == 1:
        return np.zeros(n, dtype=np.int64)
    vectors = normalized_spectrum(links, min(2 * k, n - 1))[1]
    starts = [np.argmax(shares, axis=1), *spectral_partitions(vectors, k, rng)]
    for n_blocks in sorted({min(k + (k + 1) // 2, n - 1), min(2 * k, n - 1)}):
        if n_blocks > k:
            _, labels = refine_partition(
                links, spectral_partitions(vectors, n_blocks, rng)[0], n_blocks, rng
            )
            starts.append(merge_blocks(links, labels, k))
    _, labels = max(
        (refine_partition(links, each, k, rng) for each in starts), key=lambda each: each[0]
    )
    communities: IndexArray = linear_sum_assignment(
        _indicators(labels, k).T @ shares, maximize=True
    )[1]
    return communities[labels]


def refine_partition(
    links: Any, labels: IndexArray, k: int, rng: np.random.Generator
) -> tuple[float, IndexArray]:
    """Return the log-likelihood of a partition into k blocks after moves of nodes that raise it,
    and the partition.

    All nodes of one half move at once, then those of the other: neighbours that would exchange
    their blocks for ever are in different halves sooner or later. The likeliest partition on the
    way is returned.
    """
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    best = (-np.inf, labels)
    for _ in range(_N_ROUNDS):
        before = labels
        half = rng.random(len(labels)) < 0.5
        for moving in (half, ~half):
            likelihood, fits = _planted_partition(
                (links @ _indicators(labels, k)).toarray(), labels, degrees
            )
            best = max(best, (likelihood, labels), key=lambda each: each[0])
            labels = np.where(moving, np.argmax(fits, axis=1), labels)
        if np.array_equal(before, labels):
            break
    return best


def merge_blocks(links: Any, labels: IndexArray, k: int) -> IndexArray:
    """Return a partition into at most k blocks: those two are merged whose union is likeliest,
    until k are left.
    """
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    total = float(degrees.sum())
    labels = np.unique(labels, return_inverse=True)[1]
    while (n_blocks := int(labels.max()) + 1) > k:
        indicators = _indicators(labels, n_blocks)
        ends = np.bincount(labels, degrees, n_blocks)
        between = (indicators.T @ links @ indicators).toarray()
        ones, others = np.triu_indices(n_blocks, 1)
        expected = (ends @ ends + 2 * ends[ones] * ends[others]) / total
        best = int(
            np.argmax(
                _log_likelihood(np.trace(between) + 2 * between[ones, others], expected, total)[0]
            )
        )
        one = ones[best]
        other = others[best]
        labels = np.where(labels == other, one, np.where(labels > other, labels - 1, labels))
    return labels


def modularity(links: Any, labels: IndexArray) -> float:
    """Return the share of links within blocks, less the share that degrees let expect (Newman and
    Girvan 2004).
    """
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    shares = np.bincount(labels, degrees) / degrees.sum()
    inside = float((links @ _indicators(labels, shares.size))[np.arange(len(labels)), labels].sum())
    return inside / float(degrees.sum()) - float(shares @ shares)


def link_rates(links: Any, labels: IndexArray, k: int) -> FloatArray:
    """Return the links for each pair of nodes of two blocks, a k x k array; 0 where there is no
    such pair.
    """
    members = _indicators(labels, k)
    counts = np.bincount(labels, minlength=k)
    pairs = np.outer(counts, counts) - np.diag(counts)
    rates: FloatArray = (members.T @ links @ members).toarray() / np.maximum(pairs, 1)
    return rates


def _indicators(labels: IndexArray, k: int) -> Any:
    """Return the block of each node as a sparse matrix of zeros and ones, n x k."""
    n = len(labels)
    return sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, k))


def _planted_partition(
    to_blocks: Any, labels: IndexArray, degrees: FloatArray
) -> tuple[float, FloatArray]:
    """Return the log-likelihood of a partition, up to a constant, and that of each node in each
    block (n x k).
    """
    ends = np.bincount(labels, degrees, to_blocks.shape[1])
    total = float(degrees.sum())
    inside = float(to_blocks[np.arange(len(labels)), labels].sum())
    expected = float(ends @ ends) / total
    likelihood, within, between = _log_likelihood(inside, expected, total)
    return likelihood, to_blocks * np.log(within / between) - (within - between) / total * np.outer(
        degrees, ends
    )


def _log_likelihood(inside: Any, expected: Any, total: float) -> tuple[Any, Any, Any]:
    """Return the log-likelihood of partitions, up to a constant, and the rates ω within and between
    blocks.

    With m_in = `inside` links within blocks (counted at both ends, as 2m = `total` is), of which
    the squares of the blocks' degrees let e_in = Σ K_a²/2m expect, the rates are ω_in = m_in/e_in
    and ω_out = (2m − m_in)/(2m − e_in).
    """
    outside = total - inside
    within = (inside + _LEAST_LINKED) / (expected + _LEAST_LINKED)
    between = (outside + _LEAST_LINKED) / (total - expected + _LEAST_LINKED)
    return inside * np.log(within) + outside * np.log(between), within, between


def rewired(links: Any, labels: IndexArray, rng: np.random.Generator) -> Any:
    """Return a random graph in which every node has as many neighbours in each block as before.

    For each pair of blocks, the ends of its links in the second block are exchanged at random, and
    a link keeps its weight. So the graph has the blocks, the degrees and the mixed memberships of
    the given one, and is random otherwise. Loops and pairs that are linked twice are exchanged
    again, together with some others; the few that are left after some rounds are dropped, or added
    up.
    """
    n = links.shape[0]
    upper = sparse.triu(links, 1).tocoo()
    ends = np.stack(upper.coords).astype(np.int64)
    of_blocks = labels[ends]
    within = of_blocks[0] == of_blocks[1]
    swapped = np.where(within, rng.random(ends.shape[1]) < 0.5, of_blocks[0] > of_blocks[1])
    first, second = np.where(swapped, ends[::-1], ends)
    pairs = labels[first] * (labels.max() + 1) + labels[second]
    wrong = np.ones(first.size, dtype=bool)
    for _ in range(_N_EXCHANGES):
        again = np.flatnonzero(wrong | (rng.random(first.size) < 2 * wrong.mean()))
        of_again = pairs[again]
        shuffled = np.lexsort((rng.random(again.size), of_again))
        second[again[np.argsort(of_again, kind="stable")]] = second[again[shuffled]]
        keys = np.minimum(first, second) * n + np.maximum(first, second)
        wrong = np.ones(first.size, dtype=bool)
        wrong[np.unique(keys, return_index=True)[1]] = False
        wrong |= first == second
        if not wrong.any():
            break
    kept = first != second
    graph = sparse.coo_array(
        (upper.data[kept], (first[kept], second[kept])), shape=links.shape
    ).tocsr()
    return sparse.csr_array(graph + graph.T)


#: The largest number of communities that is selected.
_MAX_AUTO = 100

#: This number of eigenvalues is computed first.
_FIRST = 16

#: The least standard deviation of an eigenvalue: eigenvalues are computed to about this.
_EIGENVALUE_ERROR = 1e-3

#: Random graphs with which a graph of at most this number of nodes is compared: large graphs differ
#: less from each other, and take longer. An eigenvalue must exceed theirs by more than another
#: random graph would in one case of `_ONE_IN`.
_N_RANDOM = {500: 20, 5_000: 5}
_ONE_IN = 100

#: The same for larger graphs.
_FEWEST_RANDOM = 3

#: Partitions are compared for at most this many numbers of blocks, in geometric progression.
_N_PARTITIONS = 15

#: A partition is about as good as the best if it has this share of its likelihood, compared with
#: one block.
_ABOUT_AS_GOOD = 0.95


@dataclass(frozen=True)
class CommunityCount:
    """The number of communities that was selected.

    Attributes
    ----------
    selected : int
        The number of communities, from 1 to 100.
    distinguishable : int
        The number of communities, and of parts of communities, that links distinguish from chance.
    deviations : float
        How far the weakest of the distinguishable ones is above chance, in standard deviations of
        random graphs.
    """

    selected: int
    distinguishable: int
    deviations: float


def count_communities(links: Any, *, seed: int = 0) -> CommunityCount:
    """Return the number of communities in a symmetric CSR array of links."""
    rng = np.random.default_rng(seed)
    most = min(_MAX_AUTO, links.shape[0] - 1)
    n_values = min(_FIRST, most)
    values, vectors = normalized_spectrum(links, n_values + 1)
    chance: dict[int, tuple[float, float]] = {}
    n_random = next(
        (number for size, number in _N_RANDOM.items() if links.shape[0] <= size), _FEWEST_RANDOM
    )
    # Student's t, for the next of n numbers whose mean and deviation are known from the others.
    enough = float(stdtrit(n_random - 1, 1 - 1 / _ONE_IN)) * math.sqrt(1 + 1 / n_random)

    def deviations(k: int) -> float:
        """Return how far the (k+1)-th eigenvalue is above those of random graphs with k
        communities.
        """
        nonlocal values, vectors
        if k >= len(values):
            values, vectors = normalized_spectrum(links, min(2 * k, most) + 1)
        if k not in chance:
            labels = spectral_partitions(vectors, k, rng)[0]
            random = [
                normalized_spectrum(rewired(links, labels, rng), k + 1)[0][k]
                for _ in range(n_random)
            ]
            chance[k] = (
                float(np.mean(random)),
                max(float(np.std(random, ddof=1)), _EIGENVALUE_ERROR),
            )
        return (float(values[k]) - chance[k][0]) / chance[k][1]

    # more than `low`, and at most `high` communities
    low = 0
    high = 1
    while deviations(high) > enough and high < most:
        low = high
        high = min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if deviations(middle) > enough else (low, middle)
    numbers = np.unique(np.rint(np.geomspace(1, high, _N_PARTITIONS)).astype(int)).tolist()
    refined = [
        refine_partition(links, spectral_partitions(vectors, k, rng)[0], k, rng) for k in numbers
    ]
    scores = np.array([(likelihood, modularity(links, labels)) for likelihood, labels in refined])
    good = np.all(scores >= _ABOUT_AS_GOOD * scores.max(axis=0), axis=1)
    if good.any():
        selected = numbers[int(np.flatnonzero(good)[-1])]
    else:
        selected = numbers[int(np.argmax(scores[:, 0]))]
    return CommunityCount(selected, high, deviations(high - 1) if high > 1 else 0.0)
