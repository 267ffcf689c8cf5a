"""Two choices for a graph: the number of communities, and how mixed its nodes are.

**The number of communities** is found by comparing the graph with random ones. If there are k communities, the graph
looks like one in which all links between two of them are exchanged at random (`rewired`), so that the (k+1)-th
eigenvalue of the normalised adjacency matrix is as large as chance makes it. The number is the smallest k of which this
is true. Because the random graphs have the degrees and communities of the given one, neither unequal degrees nor
unequal sizes count as communities. The number is found by doubling and bisection.

Communities may have parts, which links distinguish too. So of the numbers up to this one, the largest is selected whose
partition (`partition.py`) is about as good as the best: in its likelihood in the planted partition model, and in its
modularity, which is that likelihood at a fixed resolution. Both numbers are stated.

The criterion for topics is not used: it assumes independent rows, and those of a symmetric matrix are not independent,
so it would select too many.

**How mixed nodes are** is selected by held-out links. The profiles that moments give depend on the concentration α₀
with which they are corrected. A tenth of the links is held out, communities are learnt from the others for several α₀,
and the α₀ is taken under which the held-out links are most likely. A link is held out at both of its ends; otherwise
the memberships of one end would reveal it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import stdtrit

from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import FEWEST_WORDS
from odeco.models.lda.inference import log_likelihood
from odeco.models.lda.params import LdaSettings
from odeco.models.lda.spectral import reduce_moments, sum_moments, topics_for
from odeco.models.mmsb.blocks import Spectrum, agree
from odeco.models.mmsb.partition import modularity, normalized_spectrum, refine_partition, rewired, spectral_partitions

#: The largest number of communities that is selected.
_MAX_AUTO = 100

#: This number of eigenvalues is computed first.
_FIRST = 16

#: The least standard deviation of an eigenvalue: eigenvalues are computed to about this.
_TOLERANCE = 1e-3

#: Random graphs with which a graph of at most this number of nodes is compared: large graphs differ less from each
#: other, and take longer. An eigenvalue must exceed theirs by more than another random graph would in one case of
#: `_ONE_IN`.
_N_RANDOM, _ONE_IN = {500: 20, 5_000: 5}, 100

#: The same for larger graphs.
_FEWEST_RANDOM = 3

#: Partitions are compared for at most this many numbers of blocks, in geometric progression.
_N_PARTITIONS = 15

#: A partition is about as good as the best if it has this share of its likelihood, compared with one block.
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
        How far the weakest of the distinguishable ones is above chance, in standard deviations of random graphs.
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
    n_random = next((number for size, number in _N_RANDOM.items() if links.shape[0] <= size), _FEWEST_RANDOM)
    # Student's t, for the next of n numbers whose mean and deviation are known from the others.
    enough = float(stdtrit(n_random - 1, 1 - 1 / _ONE_IN)) * math.sqrt(1 + 1 / n_random)

    def deviations(k: int) -> float:
        """Return how far the (k+1)-th eigenvalue is above those of random graphs with k communities."""
        nonlocal values, vectors
        if k >= len(values):
            values, vectors = normalized_spectrum(links, min(2 * k, most) + 1)
        if k not in chance:
            labels = spectral_partitions(vectors, k, rng)[0]
            random = [normalized_spectrum(rewired(links, labels, rng), k + 1)[0][k] for _ in range(n_random)]
            chance[k] = float(np.mean(random)), max(float(np.std(random, ddof=1)), _TOLERANCE)
        return (float(values[k]) - chance[k][0]) / chance[k][1]

    low, high = 0, 1  # more than `low`, and at most `high` communities
    while deviations(high) > enough and high < most:
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if deviations(middle) > enough else (low, middle)
    numbers = np.unique(np.rint(np.geomspace(1, high, _N_PARTITIONS)).astype(int)).tolist()
    refined = [refine_partition(links, spectral_partitions(vectors, k, rng)[0], k, rng) for k in numbers]
    scores = np.array([(likelihood, modularity(links, labels)) for likelihood, labels in refined])
    good = np.all(scores >= _ABOUT_AS_GOOD * scores.max(axis=0), axis=1)
    selected = numbers[int(np.flatnonzero(good)[-1])] if good.any() else numbers[int(np.argmax(scores[:, 0]))]
    return CommunityCount(selected, high, deviations(high - 1) if high > 1 else 0.0)


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
    (sums,) = sum_moments(corpus, replace(settings, n_components=k), seed=seed, callback=lambda *_: None)
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
