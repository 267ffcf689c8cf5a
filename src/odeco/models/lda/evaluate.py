"""Evaluate topics by document completion (how well they predict held-out words) and by coherence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.inference import document_topics, log_likelihood

#: `completion_scores` looks at a sample of at most this many documents.
_MOST_DOCUMENTS = 500

#: `completion_scores` finds the proportions of a document in this many rounds.
_N_ITERATIONS = 20

#: `completion_scores` gives every topic this share of the frequencies of all words, so that no word is impossible.
_SMOOTHING = 0.01


@dataclass(frozen=True)
class Coherence:
    """Coherence of each topic, measured on its leading words.

    Parameters
    ----------
    npmi : ndarray of shape (k,)
        Mean normalised pointwise mutual information of word pairs: 1 if they always come together, 0 if by chance.
    umass : ndarray of shape (k,)
        Mean log((documents with both + 1) / documents with the more probable word), as of Mimno et al. 2011.
    """

    npmi: FloatArray
    umass: FloatArray


def split_documents(counts: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return two CSR arrays of counts: each token of a document goes to the first or the second by a fair coin.

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
        half = sparse.csr_array((data, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
        half.eliminate_zeros()
        halves.append(half)
    return halves[0], halves[1]


def completion_perplexity(
    observed: Any, held_out: Any, topic_word: FloatArray, alpha: FloatArray, *, n_jobs: int = 1
) -> float:
    """Return exp(-log-likelihood of a held-out token), given topics inferred from the observed half of its document.

    Parameters
    ----------
    observed, held_out : csr_array of shape (n, V)
        Two halves of the same documents, as `split_documents` makes them.
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words; rows are scaled to sum to one.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.
    n_jobs : int
        How many threads, or -1 for all cores. The result does not depend on it.

    Returns
    -------
    float
        Infinite if a held-out word has no chance at all.
    """
    topics = topic_word / topic_word.sum(axis=1, keepdims=True)
    proportions = document_topics(observed, topics, alpha, n_jobs=n_jobs)
    total = log_likelihood(held_out, topics, proportions, n_jobs=n_jobs).sum()
    return float(np.exp(-total / held_out.sum()))


def split_sample(counts: Any, *, seed: int) -> tuple[Any, Any]:
    """Return the two halves of a sample of documents, which is spread evenly over those given.

    Documents of which a half would be empty are left out.
    """
    usable = long_enough(counts)
    return split_chosen(counts[usable[spread_evenly(usable.size)]], seed=seed)


def long_enough(counts: Any) -> IndexArray:
    """Return the documents that have a word for each of two halves."""
    return np.flatnonzero(np.asarray(counts.sum(axis=1)) >= 2)


def spread_evenly(n_documents: int) -> IndexArray:
    """Return which of so many documents are taken into a sample."""
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
    n_jobs: int,
    sizes: FloatArray | None = None,
) -> FloatArray:
    """Return for each document the mean log-likelihood of a word of one half, given topics inferred from the other.

    Parameters
    ----------
    halves : pair of csr_arrays of shape (n, V)
        The half that is known and the half that is hidden, as `split_sample` makes them.
    topic_word : array of shape (k, V)
        Each topic's distribution over words, or its counts if their totals are given as `sizes`.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.
    frequencies : ndarray of shape (V,)
        Frequencies of all words; a small share of them is mixed into every topic.
    n_jobs : int
        How many threads, or -1 for all cores. The result does not depend on it.
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
    mixed += _SMOOTHING * frequencies[words]
    proportions = document_topics(known[:, words], mixed, alpha, n_iterations=_N_ITERATIONS, n_jobs=n_jobs)
    # The mean over its words, because otherwise one very long document would outweigh all others.
    scores: FloatArray = log_likelihood(hidden[:, words], mixed, proportions) / np.asarray(hidden.sum(axis=1))
    return scores


def clearly_better(scores: FloatArray, others: FloatArray) -> bool:
    """Return whether documents score better than with others, by more than a standard error of the difference."""
    gaps = scores - others
    return float(gaps.sum()) > float(gaps.std()) * math.sqrt(gaps.size)


def coherence(topic_word: FloatArray, counts: Any, top: int = 10) -> Coherence:
    """Return how often the leading words of each topic come together in the documents of a reference corpus.

    Parameters
    ----------
    topic_word : ndarray of shape (k, V)
        Each topic's distribution over words.
    counts : csr_array of shape (n, V)
        The reference corpus; only whether a word occurs in a document matters.
    top : int
        How many leading words; all pairs of them are averaged.

    Notes
    -----
    NPMI of words i and j is log(p_ij / (p_i p_j)) / -log(p_ij) with p the share of documents that hold them; it is -1
    if no document holds both, and 1 if every document does.
    """
    leaders = np.argsort(-topic_word, axis=1, kind="stable")[:, :top]
    words, places = np.unique(leaders, return_inverse=True)
    together = _documents_with_both(counts, words)
    n_documents = counts.shape[0]
    alone = np.diagonal(together)
    # The more probable word of a pair comes first, because UMass conditions on it.
    first, second = np.triu_indices(leaders.shape[1], 1)
    places = places.reshape(leaders.shape)
    one, other = places[:, first], places[:, second]
    both, one_alone, other_alone = together[one, other], alone[one], alone[other]
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(both * n_documents / (one_alone * other_alone)) / -np.log(both / n_documents)
    npmi = np.where(both == 0, -1.0, np.where(both == n_documents, 1.0, information))
    umass = np.log((both + 1) / np.maximum(one_alone, 1))
    return Coherence(npmi.mean(axis=1), umass.mean(axis=1))


def _documents_with_both(counts: Any, words: NDArray[np.int64]) -> FloatArray:
    """Return, for each pair of the given words, the number of documents that hold both."""
    occurs = (counts[:, words] > 0).astype(np.float64)
    return np.asarray((occurs.T @ occurs).toarray(), dtype=np.float64)
