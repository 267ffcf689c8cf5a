"""Two choices for a graph: the number of communities, and how mixed its nodes are.

**The number of communities** is that before the largest gap in the spectrum, among those that are detectable. For a
graph with degrees D and mean excess degree r² = Σd²/Σd − 1, the Bethe Hessian H = (r² − 1) I − r A + D has one negative
eigenvalue for each community that links distinguish from chance, and all others lie above zero (Saade, Krzakala and
Zdeborová 2014; Le and Levina 2015). That bounds the number. Where degrees differ much, and in any large graph, H counts
parts of communities too. So among these numbers the one is taken after which the eigenvalues of the links, divided by
the roots of degrees at both ends, fall most: the span of the eigenvectors before the largest gap is the one that links
determine best (Davis and Kahan 1970). A tenth of the mean is added to degrees, because nodes with few links would have
eigenvectors of their own otherwise (Qin and Rohe 2013).

The criterion for topics is not used: it assumes independent rows, and those of a symmetric matrix are not independent,
so it would select too many.

**How mixed nodes are** is selected by held-out links. The profiles that moments give depend on the concentration α₀
with which they are corrected. A tenth of the links is held out, communities are learnt from the others for several α₀,
and the α₀ is taken under which the held-out links are most likely. A link is held out at both of its ends; otherwise
the memberships of one end would reveal it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import FEWEST_WORDS
from odeco.models.lda.inference import log_likelihood
from odeco.models.lda.params import LdaSettings
from odeco.models.lda.spectral import reduce_moments, sum_moments, topics_for
from odeco.models.mmsb.blocks import Spectrum, agree

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
    n_values = min(_FIRST, most)
    while True:
        above = int(np.sum(_largest(matrix, n_values) > level))
        if above < n_values or n_values >= most:
            return max(above, 1)
        n_values = min(2 * n_values, most)


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


#: From nodes that have one community each to nodes that belong to many.
CANDIDATES = (0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


#: Taken if there are too few links to hold any out.
_DEFAULT = 0.1


#: The share of the links that a split holds out.
_HELD_OUT = 0.1


#: A graph with at least this number of links is split once; a smaller one several times, at most `_MAX_SPLITS`.
_ENOUGH_LINKS, _MAX_SPLITS = 10_000, 20


#: Iterations for the memberships of a node, for each candidate.
_N_ITERATIONS = 10


#: The share of a held-out link that is attributed to chance, in proportion to degrees: no link is impossible.
_CHANCE = 0.01


def choose_concentration(links: Any, settings: LdaSettings, *, seed: int) -> float:
    """Return the candidate for α₀ with which communities make held-out links most likely.

    A small graph has few links to hold out, and a single split of it would leave the choice to chance. So its links
    are split several times. Of the candidates whose likelihood is within one standard error of the best, the smallest
    is taken: nodes are not called mixed unless held-out links show it.
    """
    rng = np.random.default_rng(seed)
    n_splits = int(np.clip(np.ceil(_ENOUGH_LINKS / (links.sum() / 2)), 1, _MAX_SPLITS))
    splits = [split_links(links, rng) for _ in range(n_splits)]
    scores = [
        _scores(known, held_out, links, settings, seed=seed)
        for known, held_out in splits
        if held_out.nnz and float(known.sum(axis=1).max()) >= FEWEST_WORDS
    ]
    if not scores:
        return _DEFAULT
    behind = np.array(scores).T
    behind = behind[np.argmax(behind.sum(axis=1))] - behind  # candidates x splits
    error = behind.std(axis=1, ddof=1) * np.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return CANDIDATES[int(np.flatnonzero(behind.sum(axis=1) <= error)[0])]


def _scores(known: Any, held_out: Any, links: Any, settings: LdaSettings, *, seed: int) -> list[float]:
    """Return the log-likelihood of held-out links under communities learnt from the others, for each candidate."""
    corpus = LocalCorpus(known, settings)
    k = min(int(settings.n_components), corpus.sums().n_supported)  # fewer links may support fewer communities
    sums = sum_moments(corpus, replace(settings, n_components=k), seed=seed, callback=lambda *_: None)
    sums.drop_basis()
    reduced = reduce_moments(sums, k)
    spectrum = Spectrum.of(known, k)
    degrees = np.asarray(links.sum(axis=0), dtype=np.float64)
    chance = degrees / degrees.sum()
    scores, near = [], None
    for candidate in CANDIDATES:
        topics = topics_for(candidate, reduced, sums, seed=seed, near=near)
        near = topics.coordinates
        profiles, shares = agree(
            known, spectrum, topics.topic_word, topics.alpha, n_iterations=_N_ITERATIONS, n_jobs=settings.n_jobs
        )
        # A small share of each link is attributed to chance.
        mixed = (1 - _CHANCE) * profiles + _CHANCE * chance
        scores.append(float(np.sum(log_likelihood(held_out, mixed, shares, n_jobs=settings.n_jobs))))
    return scores


def split_links(links: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two symmetric CSR arrays that sum to the links: training links, and held-out links."""
    upper = sparse.csr_array(sparse.triu(links, 1))
    taken = rng.binomial(upper.data.astype(np.int64), _HELD_OUT).astype(np.float64)
    parts = []
    for data in (upper.data - taken, taken):
        part = sparse.csr_array((data, upper.indices.copy(), upper.indptr.copy()), shape=upper.shape)
        part = sparse.csr_array(part + part.T)
        part.eliminate_zeros()
        part.sort_indices()
        parts.append(part)
    return parts[0], parts[1]
