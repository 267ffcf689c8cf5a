"""The documents that topics are learnt from, and their Gibbs sampling.

A `Corpus` has all that learning needs of documents. It is made of a few things that depend on where
the documents are: `LocalCorpus` has them in this process, `ClusterCorpus` on a cluster.

**Gibbs sampling** refines approximate topics. Documents are divided into lanes, whose number
depends on the corpus only. In a sweep each lane works on its own copy of the word-topic counts as
they were when the sweep began, with its own random numbers (seed, sweep, lane), and the updates of
all lanes are added in the order of the lanes (AD-LDA, Newman et al. 2009). The result is therefore
the same for any number of threads or workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from operator import iadd
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import row_slice
from odeco.models.lda.counts import (
    N_PARTS,
    UNIT_DOCUMENTS,
    CountChunk,
    count_chunks,
    divide_documents,
)
from odeco.models.lda.gibbs import (
    GibbsState,
    Lanes,
    Sweep,
    ThreadLanes,
    Tokens,
    choose_lanes,
    lane_spans,
    words_that_occur,
)
from odeco.models.lda.inference import document_topics, log_likelihood, split_chosen, spread_evenly
from odeco.models.lda.moments import WordSums
from odeco.online.tree import Part, carried, collected

#: Some documents as checked counts, each time with the number of the first.
Documents: TypeAlias = Iterator[tuple[int, Any]]

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


class Counted(NamedTuple):
    """How often each word occurs, the number of documents that contain it, and the length of each
    document.
    """

    totals: IndexArray
    frequency: IndexArray
    lengths: IndexArray


@dataclass(frozen=True)
class RefinedTopics:
    """Topics after refinement.

    Parameters
    ----------
    words : ndarray of shape (m,), int64
        The words that occur.
    counts : ndarray of shape (k, m), float32
        Expected number of tokens of each of these words that belong to each topic. Its sum is the
        number of tokens.
    alpha : ndarray of shape (k,), float64
        Prior of a document's topics, learnt.
    eta : float
        Prior of a topic's words, learnt or given.
    n_words : int
        Size V of the vocabulary.
    """

    words: NDArray[np.int64]
    counts: NDArray[np.float32]
    alpha: FloatArray
    eta: float
    n_words: int

    @property
    def topic_counts(self) -> NDArray[np.float32]:
        """The counts of all words, k x V; made at each access."""
        expected = np.zeros((len(self.counts), self.n_words), dtype=np.float32)
        expected[:, self.words] = self.counts
        return expected


class Corpus(ABC):
    """Documents to learn from."""

    n_documents: int
    n_words: int

    @abstractmethod
    def choose(self, documents: IndexArray) -> Self:
        """Return the documents with these numbers."""

    @abstractmethod
    def map(self, work: Callable[..., Any], *held: Any) -> list[Any]:
        """Return the results of ``work(documents, *held)`` for parts of the documents, in order."""

    @abstractmethod
    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents in a basis (`WordSums`), added in a fixed tree."""

    @abstractmethod
    def lanes(self, vocabulary: IndexArray, spans: Sequence[tuple[int, int]]) -> Lanes:
        """Return ranges of the documents as lanes of tokens of these words."""

    @cached_property
    def counted(self) -> Counted:
        """What is counted in all documents."""
        totals, frequency, lengths = zip(*self.map(count_lengths, self.n_words), strict=True)
        return Counted(np.sum(totals, axis=0), np.sum(frequency, axis=0), np.concatenate(lengths))

    @cached_property
    def words(self) -> IndexArray:
        """The words that occur; raise if one does too often for Gibbs sampling."""
        return words_that_occur(self.counted.totals)

    def parts(self) -> list[Self]:
        """Return the documents in `N_PARTS` parts; see `divide_documents`."""
        found = self.map(divide, self.counted.frequency, self.n_documents)
        parts = np.concatenate(found)
        return [self.choose(np.flatnonzero(parts == part)) for part in range(N_PARTS)]

    def completion_halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents, which is spread evenly over all that have
        two words.
        """
        usable = np.flatnonzero(self.counted.lengths >= 2)
        sample = self.map(pick, usable[spread_evenly(usable.size)])
        return split_chosen(sparse.vstack(sample, format="csr"), seed=seed)

    def log_likelihood(
        self, topic_word: FloatArray, alpha: FloatArray, n_iterations: int
    ) -> tuple[float, float]:
        """Return the log-likelihood of the words of all documents, and their number of words."""
        found = self.map(measure_likelihood, topic_word, alpha, n_iterations)
        likelihoods, n_words = zip(*found, strict=True)
        # Of each document, so that they are added up in one order.
        return float(np.sum(np.concatenate(likelihoods))), float(sum(n_words))

    def refine(
        self,
        topic_word: FloatArray,
        *,
        n_sweeps: int,
        seed: int,
        eta: float | None = None,
        prior: FloatArray | None = None,
        callback: Callable[[int], object] = lambda _: None,
    ) -> RefinedTopics:
        """Refine topics by sweeps of collapsed Gibbs sampling, and learn the priors.

        Parameters
        ----------
        topic_word : ndarray of shape (k, V)
            Topics to start from. Words may have probability zero.
        n_sweeps : int
            Number of times that each token's topic is drawn anew, at least 1.
        seed : int
            Seed of all draws, not negative.
        eta : float or None
            Prior of a topic's words; None learns it.
        prior : ndarray of shape (k, V), optional
            Further prior counts of words in topics, such as those of seed words. They are not part
            of the result.
        callback : callable
            Called with the number of sweeps that are done, after every sweep.

        Notes
        -----
        The prior of a document's topics starts flat, with as much mass as there are sweeps, but no
        more than half of the mean length of documents, and is learnt down to its size as the sweeps
        go on. Until then documents spread over more topics than they will in the end, so that
        topics can still leave a poor optimum.

        The topics returned are means of the probabilities that the draws were made with, not of the
        draws: the same mean with less noise (Rao-Blackwell). The last fifth of the sweeps counts.

        Examples
        --------
        >>> from scipy import sparse
        >>> counts = sparse.csr_array(
        ...     np.array([[9, 8, 0, 0], [0, 0, 7, 9], [8, 9, 0, 0], [0, 0, 9, 9]])
        ... )
        >>> rough = np.array([[0.4, 0.2, 0.2, 0.2], [0.2, 0.2, 0.2, 0.4]])
        >>> refined = LocalCorpus(counts).refine(rough, n_sweeps=20, seed=0, eta=0.01)
        >>> np.round(refined.topic_counts)
        array([[17., 17.,  0.,  0.],
               [ 0.,  0., 16., 18.]], dtype=float32)
        """
        totals = self.counted.totals
        mean_length = int(totals.sum()) / max(self.n_documents, 1)
        mass = min(n_sweeps, _LARGEST_START, max(_LENGTHS_START * mean_length, 1.0))
        k = len(topic_word)
        start_eta = _START_ETA if eta is None else eta
        state = self._begin(np.full(k, mass / k), start_eta, seed)
        if prior is not None:
            known = prior[:, self.words].astype(np.float32)
            state = state.beside(known, known.sum(axis=1, dtype=np.float64))
        # The first draw mixes the topics with the frequencies of the whole corpus.
        rows = topic_word[:, self.words].astype(np.float32)
        rows *= _TRUST
        frequencies = totals[self.words] / max(1, int(totals.sum()))
        rows += ((1 - _TRUST) * frequencies).astype(np.float32)
        n_averaged = max(1, int(n_sweeps * _AVERAGED))
        # The prior of words hardly moves after the first few sweeps, and counting the counts takes
        # a tenth of a sweep.
        sweeps = [
            Sweep(sweep > n_sweeps - n_averaged, eta is None and (sweep <= 5 or sweep % 5 == 0))
            for sweep in range(1, n_sweeps + 1)
        ]
        return self._swept(state, rows, sweeps, callback)

    def refine_beside(
        self,
        topic_counts: NDArray[np.floating[Any]],
        alpha: FloatArray,
        eta: float,
        *,
        n_sweeps: int,
        seed: int,
    ) -> RefinedTopics:
        """Return what these documents add to the word counts of the topics learnt so far.

        The topics of their tokens are drawn given the counts so far and each other; the counts so
        far stay. The prior of a document's topics is learnt from these documents alone.

        Parameters
        ----------
        topic_counts : ndarray of shape (k, V)
            Number of tokens of each word in each topic so far.
        alpha : ndarray of shape (k,)
            Prior of a document's topics to start from.
        eta, n_sweeps, seed
            As for `refine`; `eta` is given.
        """
        known = np.asarray(topic_counts[:, self.words], dtype=np.float32)
        totals = topic_counts.sum(axis=1, dtype=np.float64)
        state = self._begin(alpha, eta, seed).beside(known, totals)
        rows = (known + eta) / (totals + self.n_words * eta)[:, None]
        n_averaged = max(1, n_sweeps // 2)
        sweeps = [Sweep(sweep > n_sweeps - n_averaged) for sweep in range(1, n_sweeps + 1)]
        return self._swept(state, rows, sweeps)

    def _begin(self, alpha: FloatArray, eta: float, seed: int) -> GibbsState:
        lengths = np.bincount(self.counted.lengths, minlength=1)
        return GibbsState.begin(alpha, eta, seed, self.n_words, lengths, len(self.words))

    def _swept(
        self,
        state: GibbsState,
        topic_word: NDArray[Any],
        sweeps: Sequence[Sweep],
        callback: Callable[[int], object] = lambda _: None,
    ) -> RefinedTopics:
        """Draw first topics, given topics over the words that occur, and sweep."""
        starts = np.concatenate([[0], np.cumsum(self.counted.lengths)])
        n_lanes = choose_lanes(int(starts[-1]), max(1, state.table.size))
        lanes = self.lanes(self.words, lane_spans(starts, n_lanes))
        current: Any = lanes.draw(state, state.pad(topic_word))
        for number, sweep in enumerate(sweeps, start=1):
            current = lanes.sweep(current, sweep)
            callback(number)
        last = lanes.fetch(current)
        return RefinedTopics(self.words, last.mean_counts(), last.alpha, last.eta, self.n_words)


class LocalCorpus(Corpus):
    """Documents in the memory of this process, as checked counts."""

    def __init__(self, counts: Any) -> None:
        self._counts = counts
        self.n_documents, self.n_words = (int(size) for size in counts.shape)

    def choose(self, documents: IndexArray) -> LocalCorpus:
        """Return the documents with these numbers."""
        return LocalCorpus(self._counts[documents])

    def map(self, work: Callable[..., Any], *held: Any) -> list[Any]:
        """Return the result of ``work(documents, *held)`` for all documents, in a list."""
        starts = range(0, max(self.n_documents, 1), UNIT_DOCUMENTS)
        blocks = (
            (start, row_slice(self._counts, start, min(start + UNIT_DOCUMENTS, self.n_documents)))
            for start in starts
        )
        return [work(blocks, *held)]

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents, added in the same tree as on a cluster."""
        start = partial(WordSums, self.n_words, basis, core=core)
        return sum_chunks(self._chunks, start)

    def lanes(self, vocabulary: IndexArray, spans: Sequence[tuple[int, int]]) -> ThreadLanes:
        """Return ranges of the documents as lanes of tokens of these words."""
        tokens = [Tokens.from_counts(row_slice(self._counts, *span), vocabulary) for span in spans]
        return ThreadLanes(tokens)

    @cached_property
    def _chunks(self) -> list[CountChunk]:
        return list(count_chunks(self._counts))


# ---- the work of a pass, here or on workers ------------------------------------------------------


def count_lengths(documents: Documents, n_words: int) -> Counted:
    """Return what is counted in some documents."""
    totals = np.zeros(n_words, dtype=np.int64)
    frequency = np.zeros(n_words, dtype=np.int64)
    lengths = []
    for _, counts in documents:
        of_words = np.bincount(counts.indices, weights=counts.data, minlength=n_words)
        totals += of_words.astype(np.int64)
        frequency += np.bincount(counts.indices, minlength=n_words)
        lengths.append(np.asarray(counts.sum(axis=1), dtype=np.int64))
    return Counted(totals, frequency, np.concatenate(lengths))


def divide(documents: Documents, frequency: IndexArray, n_documents: int) -> IndexArray:
    """Return the part of each of some documents."""
    return np.concatenate(
        [divide_documents(counts, frequency, n_documents) for _, counts in documents]
    )


def pick(documents: Documents, chosen: IndexArray) -> Any:
    """Return the documents with these numbers, of which there may be none."""
    found = []
    for first, counts in documents:
        own = chosen[(chosen >= first) & (chosen < first + counts.shape[0])]
        found.append(counts[own - first])
    return sparse.vstack(found, format="csr")


def measure_likelihood(
    documents: Documents, topic_word: FloatArray, alpha: FloatArray, n_iterations: int
) -> tuple[FloatArray, float]:
    """Return the log-likelihood of each of some documents, and the number of their words."""
    found = []
    n_words = 0.0
    for _, counts in documents:
        proportions = document_topics(counts, topic_word, alpha, n_iterations=n_iterations)
        found.append(log_likelihood(counts, topic_word, proportions))
        n_words += float(counts.sum())
    return np.concatenate(found), n_words


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
