"""The documents that topics are learnt from, on one machine or on a cluster; and their Gibbs
sampling.

`LocalCorpus` has all that learning needs of documents; `ClusterCorpus` has the same methods.

**Gibbs sampling** refines approximate topics. Documents are divided into lanes, whose number
depends on the corpus only. In a sweep each lane works on its own copy of the word-topic counts as
they were when the sweep began, with its own random numbers (seed, sweep, lane), and the updates of
all lanes are added in the order of the lanes (AD-LDA, Newman et al. 2009). The result is therefore
the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import iadd
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.counts import (
    N_PARTS,
    UNIT_DOCUMENTS,
    CountChunk,
    count_chunks,
    divide_documents,
)
from odeco.models.lda.gibbs import Sampler, Sweep, Tokens
from odeco.models.lda.inference import split_sample
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import LdaSettings
from odeco.online.tree import Part, carried, collected

if TYPE_CHECKING:
    from odeco.models.lda.cluster import ClusterCorpus

#: Documents, on one machine or on a cluster.
Corpus: TypeAlias = "LocalCorpus | ClusterCorpus"

#: The prior of a topic's words starts here if it is to be learnt.
_START_ETA = 0.05

#: The prior that annealing starts from has at most this mass, and at most this share of the mean
#: length of documents: a larger one would hide what the few words of a short text say.
_LARGEST_START = 100.0
_LENGTHS_START = 0.5

#: The mean over the last sweeps is returned, over this share of them.
_AVERAGED = 0.2

#: The first draw trusts the given topics this far, and the frequencies of the whole corpus for the
#: rest.
_TRUST = 0.5


@dataclass(frozen=True)
class RefinedTopics:
    """Topics after refinement.

    Parameters
    ----------
    alpha : ndarray of shape (k,), float64
        Prior of a document's topics, learnt.
    topic_counts : ndarray of shape (k, V), float32
        Expected number of tokens of each word that belong to each topic. Its sum is the number of
        tokens.
    eta : float
        Prior of a topic's words, learnt or given.
    """

    alpha: FloatArray
    topic_counts: NDArray[np.float32]
    eta: float

    @classmethod
    def from_words(
        cls,
        words: NDArray[np.int64],
        n_features: int,
        counts: NDArray[np.float32],
        alpha: FloatArray,
        eta: float,
    ) -> RefinedTopics:
        """Return topics whose counts are given for the words that occur."""
        expected = np.zeros((len(counts), n_features), dtype=np.float32)
        expected[:, words] = counts
        return cls(alpha, expected, eta)

    @property
    def topic_word(self) -> FloatArray:
        """Topics as distributions over words: `topic_counts` plus `eta`, scaled to sum to one; made
        at each access.
        """
        smoothed = self.topic_counts.astype(np.float64)
        smoothed += self.eta
        smoothed /= smoothed.sum(axis=1, keepdims=True)
        return smoothed


@dataclass(frozen=True)
class BatchTopics:
    """The contribution of a batch of documents to known topics.

    Parameters
    ----------
    words : ndarray of shape (m,), int64
        The words that occur in the batch.
    topic_counts : ndarray of shape (k, m), float32
        Expected number of the batch's tokens of each of these words that belong to each topic.
    alpha : ndarray of shape (k,), float64
        Prior of a document's topics as this batch alone would have it, learnt from the one given.
    """

    words: NDArray[np.int64]
    topic_counts: NDArray[np.float32]
    alpha: FloatArray


def refine_topics(
    counts: Any,
    topic_word: FloatArray,
    *,
    n_sweeps: int,
    seed: int,
    n_jobs: int = 1,
    eta: float | None = None,
    prior: FloatArray | None = None,
    callback: Callable[[int], object] | None = None,
) -> RefinedTopics:
    """Refine topics by sweeps of collapsed Gibbs sampling, and learn the priors.

    Parameters
    ----------
    counts : csr_array of shape (n, V), integers
        Number of times that each word occurs in each document.
    topic_word : ndarray of shape (k, V)
        Topics to start from. Words may have probability zero.
    n_sweeps : int
        Number of times that each token's topic is drawn anew, at least 1.
    seed : int
        Seed of all draws, not negative.
    n_jobs : int
        Number of threads, or -1 for all cores. The result does not depend on it.
    eta : float or None
        Prior of a topic's words; None learns it.
    prior : ndarray of shape (k, V), optional
        Further prior counts of words in topics, such as those of seed words. They are not part of
        the result.
    callback : callable or None
        Called with the number of sweeps that are done, after every sweep.

    Notes
    -----
    The prior of a document's topics starts flat, with as much mass as there are sweeps, but no more
    than half of the mean length of documents, and is learnt down to its size as the sweeps go on.
    Until then documents spread over more topics than they will in the end, so that topics can still
    leave a poor optimum.

    The topics returned are means of the probabilities that the draws were made with, not of the
    draws: the same mean with less noise (Rao-Blackwell). The last fifth of the sweeps counts.

    Examples
    --------
    >>> from scipy import sparse
    >>> counts = sparse.csr_array(
    ...     np.array([[9, 8, 0, 0], [0, 0, 7, 9], [8, 9, 0, 0], [0, 0, 9, 9]])
    ... )
    >>> rough = np.array([[0.4, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.4]])
    >>> refined = refine_topics(counts, rough, n_sweeps=20, seed=0, eta=0.01)
    >>> np.round(refined.topic_word, 1)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    tokens = Tokens.from_counts(counts)
    priors = initial_priors(
        len(topic_word), n_sweeps, eta, len(tokens.words) / max(counts.shape[0], 1)
    )
    sampler = Sampler(tokens, *priors, seed=seed, n_jobs=n_jobs)
    totals = np.bincount(tokens.words, minlength=len(tokens.vocabulary))
    known = None if prior is None else prior[:, tokens.vocabulary].astype(np.float32)
    sampler.start(
        smooth_with_frequencies(topic_word[:, tokens.vocabulary], totals),
        known,
        None if known is None else known.sum(axis=1, dtype=np.float64),
    )
    for number, sweep in enumerate(sweep_schedule(n_sweeps, eta), start=1):
        sampler.sweep(sweep)
        if callback is not None:
            callback(number)
    state = sampler.state
    return RefinedTopics.from_words(
        tokens.vocabulary, counts.shape[1], state.mean_counts(), state.alpha, state.eta
    )


def sweep_schedule(n_sweeps: int, eta: float | None) -> list[Sweep]:
    """Return the sweeps of a refinement; `eta` is None if it is to be learnt."""
    n_averaged = max(1, int(n_sweeps * _AVERAGED))
    # The prior of words hardly moves after the first few sweeps, and counting the counts takes a
    # tenth of a sweep.
    return [
        Sweep(sweep > n_sweeps - n_averaged, eta is None and (sweep <= 5 or sweep % 5 == 0))
        for sweep in range(1, n_sweeps + 1)
    ]


def initial_priors(
    n_topics: int, n_sweeps: int, eta: float | None, mean_length: float
) -> tuple[FloatArray, float]:
    """Return the priors that a refinement starts with, of the topics of a document and of the words
    of a topic.
    """
    mass = min(n_sweeps, _LARGEST_START, max(_LENGTHS_START * mean_length, 1.0))
    flat = np.full(n_topics, mass / n_topics)
    return flat, _START_ETA if eta is None else eta


def smooth_with_frequencies(topic_word: FloatArray, totals: NDArray[Any]) -> NDArray[np.float32]:
    """Return topics over the words that occur, mixed with the frequencies of the whole corpus."""
    rows = topic_word.astype(np.float32)
    rows *= _TRUST
    rows += ((1 - _TRUST) * (totals / max(1, int(totals.sum())))).astype(np.float32)
    return rows


def refine_batch(
    counts: Any,
    topic_counts: NDArray[np.floating[Any]],
    alpha: FloatArray,
    eta: float,
    *,
    n_sweeps: int,
    seed: int,
    n_jobs: int = 1,
) -> BatchTopics:
    """Return the contribution of a batch of documents to the word counts of the topics learnt so
    far.

    The topics of the batch's tokens are drawn given the counts so far and each other; the counts so
    far stay. A stream of batches is ``topic_counts *= memory; topic_counts[:, batch.words] +=
    batch.topic_counts``, where ``memory`` is 1, or less to forget gradually.

    Parameters
    ----------
    counts : csr_array of shape (n, V), integers
        The batch.
    topic_counts : ndarray of shape (k, V)
        Number of tokens of each word in each topic so far.
    alpha : ndarray of shape (k,)
        Prior of a document's topics to start from.
    eta, n_sweeps, seed, n_jobs
        As for `refine_topics`; `eta` is given.
    """
    tokens = Tokens.from_counts(counts)
    known = np.asarray(topic_counts[:, tokens.vocabulary], dtype=np.float32)
    totals = topic_counts.sum(axis=1, dtype=np.float64)
    sampler = Sampler(tokens, alpha, eta, seed=seed, n_jobs=n_jobs)
    sampler.start((known + eta) / (totals + tokens.n_features * eta)[:, None], known, totals)
    n_averaged = max(1, n_sweeps // 2)
    for sweep in range(1, n_sweeps + 1):
        sampler.sweep(Sweep(average=sweep > n_sweeps - n_averaged))
    return BatchTopics(tokens.vocabulary, sampler.state.mean_counts(), sampler.state.alpha)


class LocalCorpus:
    """Documents in the memory of this process, as checked counts: sums over them, a sample, and
    Gibbs sweeps.
    """

    def __init__(
        self, counts: Any, settings: LdaSettings, chunks: tuple[CountChunk, ...] | None = None
    ) -> None:
        self._counts = counts
        self._settings = settings
        self._chunks = chunks
        self.n_documents, self.n_words = (int(size) for size in counts.shape)

    def among(self, vocabulary: IndexArray) -> LocalCorpus:
        """Return the same documents over a smaller vocabulary that holds all words of documents of
        three words.
        """
        narrow = LocalCorpus(
            self._counts, self._settings, tuple(chunk.among(vocabulary) for chunk in self._cut())
        )
        narrow.n_words = vocabulary.size
        return narrow

    def parts(self) -> list[LocalCorpus]:
        """Return the documents in `N_PARTS` parts; see `divide_documents`."""
        parts = divide_documents(self._counts)
        return [
            LocalCorpus(self._counts[np.flatnonzero(parts == part)], self._settings)
            for part in range(N_PARTS)
        ]

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents in a basis (`WordSums`), added in the same tree as on
        a cluster.
        """
        return sum_chunks(
            self._cut(),
            partial(WordSums, self.n_words, basis, core=core, parallel=self._settings.parallel),
        )

    def word_totals(self) -> FloatArray:
        """Return how often each word occurs."""
        return np.asarray(self._counts.sum(axis=0))

    def completion_halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents; see `split_sample`."""
        return split_sample(self._counts, seed=seed)

    def refined(self, topic_word: FloatArray, **sweeps: Any) -> RefinedTopics:
        """Return topics after some Gibbs sweeps; the arguments are those of `refine_topics`."""
        return refine_topics(
            self._counts.astype(np.int64), topic_word, n_jobs=self._settings.n_jobs, **sweeps
        )

    def _cut(self) -> tuple[CountChunk, ...]:
        if self._chunks is None:
            self._chunks = tuple(
                count_chunks(self._counts, document_weight=self._settings.document_weight)
            )
        return self._chunks


def sum_chunks(chunks: Iterable[CountChunk], start: Callable[[], WordSums]) -> WordSums:
    """Return the sums over chunks that begin at the start of a leaf; `start` makes sums that are
    empty.
    """
    n_documents = 0
    leaves = []
    for chunk in chunks:
        leaves.append((n_documents // UNIT_DOCUMENTS, chunk))
        n_documents += chunk.n_documents
    if not leaves or leaves[-1][0] == 0:  # a single leaf is its own sum
        sums = start()
        sums.add(chunk for _, chunk in leaves)
        return sums
    by_leaf = groupby(leaves, lambda leaf: leaf[0])
    return sums_of_part(
        start(), sum_leaves(([chunk for _, chunk in leaf] for _, leaf in by_leaf), start)
    )


def sum_leaves(leaves: Iterable[Iterable[CountChunk]], start: Callable[[], WordSums]) -> Part:
    """Return the sum over leaves, each of `UNIT_DOCUMENTS` documents but for the last, as one array
    per level.
    """
    whole = Part(0, UNIT_DOCUMENTS, ())
    for leaf in leaves:
        sums = start()
        sums.add(leaf)
        n_rows = whole.n_rows + sums.n_documents
        levels = carried(whole.levels, sums.to_vector(), 0, n_rows, UNIT_DOCUMENTS, iadd)
        whole = Part(n_rows, UNIT_DOCUMENTS, levels)
    return whole


def sums_of_part(sums: WordSums, part: Part) -> WordSums:
    """Return empty sums filled with the result of `sum_leaves`."""
    size = next(array.size for array in part.levels if array is not None)
    sums.set_vector(collected(part.levels, None, np.empty(size)))
    return sums
