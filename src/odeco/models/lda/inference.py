"""Infer the topics of documents: expected proportions by collapsed variational Bayes, and log-likelihoods."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from odeco._util.types import FloatArray
from odeco.models.lda.gibbs_kernels import compiled

#: A document is done when its topic counts move by less than this share of its length.
TOLERANCE = 1e-4

#: A thread works on this many documents at a time.
_BLOCK = 512

#: Numbers between arrays of one scratch array: more than any vectorised loop takes at a time.
_GAP = 64


def document_topics(
    counts: Any, topic_word: FloatArray, alpha: FloatArray, *, n_iterations: int = 100, n_jobs: int = 1
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
        The most rounds; a document stops when its topic counts move by less than 1e-4 of its length.
    n_jobs : int
        How many threads, or -1 for all cores. The result does not depend on it.

    Returns
    -------
    ndarray of shape (n, k)
        Rows sum to one. An empty document has the mean of the prior.

    Notes
    -----
    This is the fixed point of zero-order collapsed variational Bayes (Asuncion et al. 2009): the probabilities of a
    token's topic are proportional to topic_word[k, w] (alpha_k + expected count of k among the document's other
    tokens). A word that no topic knows tells nothing and is left out.

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

    def infer(first: int, last: int) -> None:
        _infer(first, last, counts.indptr, words, data, by_word, prior, n_iterations, TOLERANCE, proportions)

    _for_each_block(infer, counts.shape[0], n_jobs)
    return proportions


def log_likelihood(counts: Any, topic_word: FloatArray, proportions: FloatArray, *, n_jobs: int = 1) -> FloatArray:
    """Return the log-likelihood of each document: the sum over its tokens of log(sum over k of proportion times topic).

    Parameters
    ----------
    counts : csr_array of shape (n, V)
        How often each word occurs in each document.
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words.
    proportions : ndarray of shape (n, k)
        Each document's topic proportions.
    n_jobs : int
        How many threads, or -1 for all cores.

    Returns
    -------
    ndarray of shape (n,)
        0 for an empty document; minus infinity if it holds a word to which its topics give no chance.
    """
    words, by_word = _words_that_occur(counts, topic_word)
    data = np.asarray(counts.data, dtype=np.float64)
    shares = np.ascontiguousarray(proportions, dtype=np.float64)
    likelihoods = np.empty(counts.shape[0])

    def measure(first: int, last: int) -> None:
        _measure(first, last, counts.indptr, words, data, by_word, shares, likelihoods)

    _for_each_block(measure, counts.shape[0], n_jobs)
    return likelihoods


def _words_that_occur(counts: Any, topic_word: FloatArray) -> tuple[NDArray[np.int32], FloatArray]:
    """Return the topics as rows, one for each word that occurs, as the second of two arrays.

    The first says which of these rows belongs to each stored entry of the counts.
    """
    occurs = np.zeros(counts.shape[1], dtype=np.bool_)
    occurs[counts.indices] = True
    places = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return places[counts.indices], np.ascontiguousarray(topic_word[:, occurs].T, dtype=np.float64)


def _for_each_block(work: Callable[[int, int], None], n_documents: int, n_jobs: int) -> None:
    """Call `work` with the first row of every block of documents and the row after its last."""
    n_threads = os.cpu_count() or 1 if n_jobs < 0 else n_jobs
    starts = range(0, n_documents, _BLOCK)
    stops = [min(start + _BLOCK, n_documents) for start in starts]
    if n_threads <= 1 or len(starts) <= 1:
        for start, stop in zip(starts, stops, strict=True):
            work(start, stop)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in pool.map(work, starts, stops):
            pass


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
    # Everything that is written here lies in one array, far from the rest. A vectorised loop first compares addresses,
    # and runs one by one if what it reads and what it writes are close: its rounding would depend on where arrays lie.
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
            # A word without any chance gets no topic, now or later, because its row of zeros is kept.
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
                # A loop that stores does not sum: its vectorised form would depend on the addresses of the arrays.
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
