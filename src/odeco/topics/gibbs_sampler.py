"""The Gibbs sampler holds the topics of all tokens of a corpus, and sweeps over them in lanes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from odeco._types import FloatArray
from odeco.topics import gibbs_kernels as kernels
from odeco.topics import gibbs_priors as priors

Answer = TypeVar("Answer")

_MOST_LANES = 16
#: Below this many tokens a second lane saves less time than its thread costs.
_FEWEST_TOKENS = 5_000
#: The expected topics of a document are found in this many steps before its first topics are drawn.
_START_STEPS = 5
#: After a sweep each prior takes this many steps towards the most likely one.
_ALPHA_STEPS, _ETA_STEPS = 3, 2


@dataclass(frozen=True)
class Tokens:
    """A corpus as a list of tokens, document after document, over the words that occur in it.

    Parameters
    ----------
    starts : ndarray of shape (n + 1,)
        Where each document begins.
    words : ndarray of shape (tokens,), int32
        Each token's word, as a place in `vocabulary`.
    vocabulary : ndarray, int64
        The words that occur, ascending.
    n_features : int
        Size V of the whole vocabulary.
    """

    starts: NDArray[np.int64]
    words: NDArray[np.int32]
    vocabulary: NDArray[np.int64]
    n_features: int

    @classmethod
    def of(cls, counts: Any) -> Tokens:
        """List the tokens of a CSR array of counts."""
        repeats = np.asarray(counts.data, dtype=np.int64)
        frequencies = np.bincount(counts.indices, weights=repeats, minlength=counts.shape[1])
        if frequencies.max(initial=0) >= kernels.LARGEST_COUNT:
            raise ValueError(
                f"A word may occur at most {kernels.LARGEST_COUNT - 1:,} times in documents refined at once. "
                f"Word {frequencies.argmax()} occurs {int(frequencies.max()):,} times. "
                "Drop it, or call partial_fit on parts of the corpus."
            )
        vocabulary = np.flatnonzero(frequencies)
        places = np.zeros(counts.shape[1], dtype=np.int32)
        places[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
        words = np.repeat(places[counts.indices], repeats)
        starts = np.concatenate([[0], np.cumsum(repeats)])[counts.indptr]
        return cls(starts.astype(np.int64), words, vocabulary, counts.shape[1])

    def lanes(self, n_lanes: int) -> list[tuple[int, int]]:
        """Cut the documents into at most `n_lanes` stretches of about equally many tokens."""
        levels = np.linspace(0, len(self.words), n_lanes + 1)[1:-1]
        cuts = [0, *np.searchsorted(self.starts[:-1], levels).tolist(), len(self.starts) - 1]
        return [(first, last) for first, last in pairwise(cuts) if first < last]


def choose_lanes(n_tokens: int, n_cells: int) -> int:
    """Return how many lanes are worth their copies of the counts: a power of two that depends on the corpus only.

    Copying and adding a cell takes some 1/40 of the time of a draw. So with at most 2 tokens / cells lanes, copying
    takes at most 1/20 of a sweep.
    """
    if n_tokens < _FEWEST_TOKENS:
        return 1
    worth = min(max(2 * n_tokens // n_cells, 2), _MOST_LANES)
    return 1 << (worth.bit_length() - 1)


class Sampler:
    """The topics of all tokens of a corpus, and the counts that follow from them.

    Parameters
    ----------
    tokens : Tokens
        The corpus.
    alpha : ndarray of shape (k,)
        Prior of a document's topics.
    eta : float
        Prior of a topic's words.
    seed : int
        Seed of all draws.
    n_jobs : int
        How many threads, or -1 for all cores.
    """

    def __init__(self, tokens: Tokens, alpha: FloatArray, eta: float, *, seed: int, n_jobs: int) -> None:
        self.tokens = tokens
        self.alpha = np.array(alpha, dtype=np.float64)
        self.eta = float(eta)
        self.topics = np.zeros(len(tokens.words), dtype=np.uint16)
        self._seed, self._n_swept, self._n_averaged = seed, 0, 0
        self._n_topics = len(alpha)
        self._width = -(-self._n_topics // kernels.WIDTH) * kernels.WIDTH
        self._shape = (len(tokens.vocabulary), self._width)
        self._lanes = tokens.lanes(choose_lanes(len(tokens.words), max(1, self._shape[0] * self._width)))
        self._n_jobs = max(1, min(os.cpu_count() or 1 if n_jobs < 0 else n_jobs, len(self._lanes)))
        lengths = np.diff(tokens.starts)
        self._longest = int(lengths.max(initial=0))
        self._length_exceedances = priors.exceedances(np.bincount(lengths, minlength=2))
        self._table = np.empty((0, self._width), dtype=np.float32)
        self._totals = np.zeros(self._width)

    def start(
        self,
        topic_word: NDArray[Any],
        known: NDArray[np.float32] | None = None,
        known_totals: FloatArray | None = None,
    ) -> None:
        """Draw first topics.

        Parameters
        ----------
        topic_word : ndarray of shape (k, m)
            Topics over the words of `tokens.vocabulary`.
        known : ndarray of shape (k, m), optional
            Counts of other tokens of these words, which stay as they are.
        known_totals : ndarray of shape (k,), optional
            Totals of the other tokens, over all words.
        """
        tokens, alpha, rows = self.tokens, self._padded_alpha(), self._padded(topic_word)

        def draw_lane(number: int) -> None:
            kernels.draw_topics(
                *self._lanes[number], tokens.starts, tokens.words, self.topics, rows, alpha, self._n_topics,
                _START_STEPS, self._lane_seed(number),
            )  # fmt: skip

        for _ in self._each_lane(draw_lane):
            pass
        self._table = np.zeros(self._shape, dtype=np.float32) if known is None else self._padded(known)
        kernels.count_topics(tokens.starts, tokens.words, self.topics, self._table)
        self._totals = np.bincount(self.topics, minlength=self._width).astype(np.float64)
        if known_totals is not None:
            self._totals[: self._n_topics] += known_totals

    def sweep(self, *, average: bool) -> None:
        """Draw the topic of every token anew; take the probabilities into the mean if `average`."""
        self._n_swept += 1
        table, totals = self._table.copy(), self._totals.copy()
        histogram = np.zeros((self._n_topics, self._longest + 1), dtype=np.int64)
        if average and self._n_averaged == 0:
            self._expected = np.zeros(self._shape, dtype=np.float32)
        for lane in self._each_lane(lambda number: self._sweep_lane(number, average)):
            table += lane.table
            totals += lane.totals
            histogram += lane.histogram
            if average:
                self._expected += lane.expected
        self._table, self._totals, self._histogram = table, totals, histogram
        self._n_averaged += average

    def learn_alpha(self) -> None:
        """Move the prior of a document's topics towards the most likely one for the topics just drawn."""
        largest = int(np.flatnonzero(self._histogram.any(axis=0)).max(initial=0))
        tails = priors.exceedances(self._histogram[:, : largest + 1])
        self.alpha = priors.learn_alpha(self.alpha, tails, self._length_exceedances, _ALPHA_STEPS)

    def learn_eta(self) -> None:
        """Move the prior of a topic's words towards the most likely one for the topics just drawn."""
        self.eta = priors.learn_eta(self.eta, self._table[:, : self._n_topics], self.tokens.n_features, _ETA_STEPS)

    def mean_counts(self) -> NDArray[np.float32]:
        """Return how many tokens of each word are expected to have each topic, k x m: the mean over averaged sweeps."""
        mean: NDArray[np.float32] = self._expected[:, : self._n_topics].T / np.float32(self._n_averaged)
        return np.ascontiguousarray(mean)

    def _padded(self, topic_rows: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.zeros(self._shape, dtype=np.float32)
        rows[:, : self._n_topics] = topic_rows.T
        return rows

    def _padded_alpha(self) -> NDArray[np.float32]:
        return np.pad(self.alpha, (0, self._width - self._n_topics)).astype(np.float32)

    def _lane_seed(self, number: int) -> np.uint64:
        return np.uint64(np.random.SeedSequence([self._seed, self._n_swept, number]).generate_state(1, np.uint64)[0])

    def _sweep_lane(self, number: int, average: bool) -> _Changes:
        table, totals = self._table.copy(), self._totals.copy()
        histogram = np.zeros((self._n_topics, self._longest + 1), dtype=np.int64)
        expected = np.zeros(self._shape if average else (0, self._width), dtype=np.float32)
        kernels.sweep_documents(
            *self._lanes[number], self.tokens.starts, self.tokens.words, self.topics, table, totals,
            self._padded_alpha(), np.float32(self.eta), self.eta * self.tokens.n_features, self._n_topics,
            self._lane_seed(number), expected, histogram,
        )  # fmt: skip
        table -= self._table
        totals -= self._totals
        return _Changes(table, totals, histogram, expected)

    def _each_lane(self, work: Callable[[int], Answer]) -> Iterator[Answer]:
        """Yield what the work of each lane answers, in the order of the lanes.

        Answers are large. At most one more of them than there are threads exists at a time: one can be added up while
        the threads work on the next.
        """
        numbers = range(len(self._lanes))
        if self._n_jobs == 1:
            yield from map(work, numbers)
            return
        running: deque[Future[Answer]] = deque()
        with ThreadPoolExecutor(self._n_jobs) as pool:
            for number in numbers:
                if len(running) > self._n_jobs:
                    yield running.popleft().result()
                running.append(pool.submit(work, number))
            while running:
                yield running.popleft().result()


@dataclass(frozen=True)
class _Changes:
    """What a lane did in a sweep: the changes of the counts, its histogram and its expected counts."""

    table: NDArray[np.float32]
    totals: FloatArray
    histogram: NDArray[np.int64]
    expected: NDArray[np.float32]
