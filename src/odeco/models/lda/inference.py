"""Infer the topics of documents, and evaluate topics.

The expected proportions of topics in a document come from collapsed variational Bayes. Topics are
evaluated by document completion (how well they predict held-out words from the other words of a
document) and by the coherence of their leading words.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.gibbs_kernels import compiled

#: A document is done when its topic counts move by less than this share of its length.
TOLERANCE = 1e-4

#: A thread works on this many documents at a time.
_BLOCK = 512

#: Numbers between arrays of one scratch array: more than any vectorised loop takes at a time.
_GAP = 64


def document_topics(
    counts: Any,
    topic_word: FloatArray,
    alpha: FloatArray,
    *,
    n_iterations: int = 100,
) -> FloatArray:
    """Return the expected topic proportions of each document, the topics given.

    Parameters
    ----------
    counts : csr_array of shape (n, V)
        How often each word occurs in each document.
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.
    n_iterations : int
        The most rounds; a document stops when its topic counts move by less than 1e-4 of its
        length.

    Returns
    -------
    ndarray of shape (n, k)
        Rows sum to one. An empty document has the mean of the prior.

    Notes
    -----
    This is the fixed point of zero-order collapsed variational Bayes (Asuncion et al. 2009): the
    probabilities of a token's topic are proportional to topic_word[k, w] (alpha_k + expected count
    of k among the document's other tokens). A word that no topic has is left out.

    Examples
    --------
    >>> from scipy import sparse
    >>> topics = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    >>> counts = sparse.csr_array(np.array([[3, 5, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]))
    >>> document_topics(counts, topics, np.ones(2))
    array([[0.9, 0.1],
           [0.5, 0.5],
           [0.5, 0.5]])
    """
    words, by_word = _words_that_occur(counts, topic_word)
    proportions = np.empty((counts.shape[0], len(alpha)))
    prior = np.asarray(alpha, dtype=np.float64)
    data = np.asarray(counts.data, dtype=np.float64)

    def infer(first: int) -> None:
        last = min(first + _BLOCK, counts.shape[0])
        _infer(
            first,
            last,
            counts.indptr,
            words,
            data,
            by_word,
            prior,
            n_iterations,
            TOLERANCE,
            proportions,
        )

    for _ in map_blocks(infer, range(0, counts.shape[0], _BLOCK), parallel=True):
        pass
    return proportions


def log_likelihood(counts: Any, topic_word: FloatArray, proportions: FloatArray) -> FloatArray:
    """Return the log-likelihood of each document: the sum over its tokens of log(sum over k of
    proportion times topic).

    Parameters
    ----------
    counts : csr_array of shape (n, V)
        How often each word occurs in each document.
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words.
    proportions : ndarray of shape (n, k)
        Each document's topic proportions.

    Returns
    -------
    ndarray of shape (n,)
        0 for an empty document; minus infinity if it holds a word to which its topics give no
        chance.
    """
    words, by_word = _words_that_occur(counts, topic_word)
    data = np.asarray(counts.data, dtype=np.float64)
    shares = np.ascontiguousarray(proportions, dtype=np.float64)
    likelihoods = np.empty(counts.shape[0])

    def measure(first: int) -> None:
        _measure(
            first,
            min(first + _BLOCK, counts.shape[0]),
            counts.indptr,
            words,
            data,
            by_word,
            shares,
            likelihoods,
        )

    for _ in map_blocks(measure, range(0, counts.shape[0], _BLOCK), parallel=True):
        pass
    return likelihoods


def _words_that_occur(counts: Any, topic_word: FloatArray) -> tuple[NDArray[np.int32], FloatArray]:
    """Return the topics as rows, one for each word that occurs, as the second of two arrays.

    The first has the number of the row that belongs to each stored entry of the counts.
    """
    occurs = np.zeros(counts.shape[1], dtype=np.bool_)
    occurs[counts.indices] = True
    places = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return places[counts.indices], np.ascontiguousarray(topic_word[:, occurs].T, dtype=np.float64)


@compiled
def _infer(  # noqa: C901 - the hot loop, in one piece
    first: int,
    last: int,
    starts: NDArray[Any],
    words: NDArray[Any],
    counts: FloatArray,
    by_word: FloatArray,
    alpha: FloatArray,
    n_iterations: int,
    tolerance: float,
    proportions: FloatArray,
) -> None:
    n_topics = alpha.shape[0]
    most = 1
    for document in range(first, last):
        most = max(most, starts[document + 1] - starts[document])
    # Everything that is written here lies in one array, far from the rest. A vectorised loop first
    # compares addresses, and runs one by one if what it reads and what it writes are close: its
    # rounding would depend on where arrays lie.
    scratch = np.empty(most * n_topics + 3 * n_topics + 5 * _GAP)
    at = _GAP
    token_topics = scratch[at : at + most * n_topics].reshape(most, n_topics)
    at += most * n_topics + _GAP
    in_document = scratch[at : at + n_topics]
    at += n_topics + _GAP
    weight = scratch[at : at + n_topics]
    at += n_topics + _GAP
    prior = scratch[at : at + n_topics]
    prior[:] = alpha
    for document in range(first, last):
        start = starts[document]
        n_distinct = starts[document + 1] - start
        length = 0.0
        in_document[:] = 0.0
        for place in range(n_distinct):
            row = by_word[np.uint64(words[start + place])]
            total = 0.0
            for k in range(n_topics):
                total += row[k] * prior[k]
            # A word without any chance gets no topic, now or later, because its row of zeros is
            # kept.
            scale = 1.0 / total if total > 0.0 else 0.0
            count = counts[start + place]
            length += count if total > 0.0 else 0.0
            own = token_topics[place]
            for k in range(n_topics):
                own[k] = row[k] * prior[k] * scale
                in_document[k] += count * own[k]
        for _ in range(n_iterations):
            moved = 0.0
            for place in range(n_distinct):
                row = by_word[np.uint64(words[start + place])]
                own = token_topics[place]
                count = counts[start + place]
                # A loop that stores does not sum: its vectorised form would depend on the addresses
                # of the arrays.
                for k in range(n_topics):
                    weight[k] = row[k] * (prior[k] + max(in_document[k] - own[k], 0.0))
                total = 0.0
                for k in range(n_topics):
                    total += weight[k]
                if total <= 0.0:
                    continue
                scale = 1.0 / total
                for k in range(n_topics):
                    moved += abs(count * (weight[k] * scale - own[k]))
                for k in range(n_topics):
                    value = weight[k] * scale
                    in_document[k] += count * (value - own[k])
                    own[k] = value
            if moved <= tolerance * length:
                break
        total = 0.0
        for k in range(n_topics):
            total += in_document[k] + prior[k]
        for k in range(n_topics):
            proportions[document, k] = (in_document[k] + prior[k]) / total


@njit(cache=True, nogil=True, error_model="numpy")  # without fastmath, since infinities count here
def _measure(
    first: int,
    last: int,
    starts: NDArray[Any],
    words: NDArray[Any],
    counts: FloatArray,
    by_word: FloatArray,
    proportions: FloatArray,
    likelihoods: FloatArray,
) -> None:
    for document in range(first, last):
        total = 0.0
        share = proportions[document]
        for place in range(starts[document], starts[document + 1]):
            row = by_word[np.uint64(words[place])]
            chance = 0.0
            for k in range(share.shape[0]):
                chance += share[k] * row[k]
            if counts[place] > 0.0:
                total += counts[place] * np.log(chance)
        likelihoods[document] = total


#: `completion_scores` uses a sample of at most this many documents.
_MOST_DOCUMENTS = 500

#: `completion_scores` finds the proportions of a document in this many rounds.
_N_ITERATIONS = 20

#: `completion_scores` gives every topic this share of the frequencies of all words, so that no word
#: is impossible.
_SMOOTHING = 0.01


def split_documents(counts: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two CSR arrays of counts: each token of a document goes to the first or the second
    with probability 1/2.

    Parameters
    ----------
    counts : csr_array of shape (n, V), integers
        Documents.
    rng : numpy.random.Generator
        The coin.
    """
    observed = rng.binomial(counts.data, 0.5).astype(counts.data.dtype)
    halves = []
    for data in (observed, counts.data - observed):
        half = sparse.csr_array(
            (data, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape
        )
        half.eliminate_zeros()
        halves.append(half)
    return halves[0], halves[1]


def completion_perplexity(
    observed: Any, held_out: Any, topic_word: FloatArray, alpha: FloatArray
) -> float:
    """Return exp(-log-likelihood of a held-out token), given topics inferred from the observed half
    of its document.

    Parameters
    ----------
    observed, held_out : csr_array of shape (n, V)
        Two halves of the same documents, as `split_documents` makes them.
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words; rows are scaled to sum to one.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.

    Returns
    -------
    float
        Infinite if a held-out word has no chance at all.
    """
    topics = topic_word / topic_word.sum(axis=1, keepdims=True)
    proportions = document_topics(observed, topics, alpha)
    total = log_likelihood(held_out, topics, proportions).sum()
    return float(np.exp(-total / held_out.sum()))


def spread_evenly(n_documents: int) -> IndexArray:
    """Return which of `n_documents` documents are taken into a sample."""
    return np.linspace(0, n_documents - 1, min(n_documents, _MOST_DOCUMENTS)).astype(np.int64)


def split_chosen(counts: Any, *, seed: int) -> tuple[Any, Any]:
    """Return the two halves of documents; those of which a half is empty are left out."""
    sample = sparse.csr_array(counts).astype(np.int64)
    known, hidden = split_documents(sample, np.random.default_rng(seed))
    both = np.flatnonzero((np.diff(known.indptr) > 0) & (np.diff(hidden.indptr) > 0))
    return known[both], hidden[both]


def completion_scores(
    halves: tuple[Any, Any],
    topic_word: Any,
    alpha: FloatArray,
    frequencies: FloatArray,
    *,
    sizes: FloatArray | None = None,
) -> FloatArray:
    """Return for each document the mean log-likelihood of a word of one half, given topics inferred
    from the other.

    Parameters
    ----------
    halves : pair of csr_arrays of shape (n, V)
        The half that is known and the half that is hidden, as `split_chosen` makes them.
    topic_word : array of shape (k, V)
        Each topic's distribution over words, or its counts if their totals are given as `sizes`.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.
    frequencies : ndarray of shape (V,)
        Frequencies of all words; a small share of them is mixed into every topic.
    sizes : ndarray of shape (k,), optional
        Rows of `topic_word` are divided by these.

    Returns
    -------
    ndarray of shape (n,)
        A single 0 if there is no document.
    """
    known, hidden = halves
    if known.shape[0] == 0:
        return np.zeros(1)
    words = np.union1d(known.indices, hidden.indices)
    mixed = topic_word[:, words].astype(np.float64)
    if sizes is not None:
        mixed /= sizes[:, None]
    mixed *= 1 - _SMOOTHING
    own = frequencies[words]
    if not own.all():  # words of documents that are too short to count
        own = np.maximum(own, own[own > 0].min(initial=1.0))
    mixed += _SMOOTHING * own
    proportions = document_topics(known[:, words], mixed, alpha, n_iterations=_N_ITERATIONS)
    # The mean over its words, because otherwise one very long document would outweigh all others.
    scores: FloatArray = log_likelihood(hidden[:, words], mixed, proportions) / np.asarray(
        hidden.sum(axis=1)
    )
    return scores


def clearly_better(scores: FloatArray, others: FloatArray) -> bool:
    """Return whether documents score better than with others, by more than a standard error of the
    difference.
    """
    gaps = scores - others
    return float(gaps.sum()) > float(gaps.std()) * math.sqrt(gaps.size)


def coherence(topic_word: FloatArray, counts: Any, top: int = 10) -> FloatArray:
    """Return how often the leading words of each topic come together in the documents of a
    reference corpus.

    Parameters
    ----------
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words.
    counts : csr_array of shape (n, V)
        The reference corpus; only whether a word occurs in a document matters.
    top : int
        Number of leading words; all pairs of them are averaged.

    Notes
    -----
    NPMI of words i and j is log(p_ij / (p_i p_j)) / -log(p_ij) with p the share of documents that
    hold them; it is -1 if no document holds both, and 1 if every document does.
    """
    occurs = sparse.csc_array(counts) > 0
    first, second = np.triu_indices(min(top, topic_word.shape[1]), 1)
    npmi = []
    for row in topic_word:
        leaders = np.argsort(-row, kind="stable")[:top]
        present = occurs[:, leaders].astype(np.float64)
        together = (present.T @ present).toarray() / counts.shape[0]
        alone = np.diagonal(together)
        both = together[first, second]
        with np.errstate(divide="ignore", invalid="ignore"):
            information = np.log(both / (alone[first] * alone[second])) / -np.log(both)
        npmi.append(np.where(both == 0, -1.0, np.where(both == 1, 1.0, information)).mean())
    return np.array(npmi)
