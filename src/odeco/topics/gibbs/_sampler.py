"""The state of a Gibbs sampler over the tokens of a corpus, and its sweeps in lanes."""

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
from odeco.topics.gibbs import _kernels as kernels
from odeco.topics.gibbs import _priors as priors

Answer = TypeVar("Answer")

_MOST_LANES = 16
#: Below this many tokens a second lane saves less time than its thread costs.
_FEWEST_TOKENS = 5_000
#: The start trusts the given topics this far, and the frequencies of the whole corpus for the rest.
_TRUST = 0.5
_START_STEPS = 5


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

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return len(self.starts) - 1

    def lanes(self, n_lanes: int) -> list[tuple[int, int]]:
        """Cut the documents into stretches of about equally many tokens."""
        levels = np.linspace(0, len(self.words), n_lanes + 1)[1:-1]
        cuts = [0, *np.searchsorted(self.starts[:-1], levels).tolist(), self.n_documents]
        return [(first, last) for first, last in pairwise(cuts) if first < last]


def choose_lanes(n_tokens: int, n_cells: int) -> int:
    """Return how many lanes are worth their copies of the counts: a power of two that depends on the corpus only.

    Copying and adding a cell takes some 1/40 of the time of a draw. So with at most 2 tokens / cells lanes it takes
    1/20 of a sweep.
    """
    if n_tokens < _FEWEST_TOKENS:
        return 1
    worth = min(max(2 * n_tokens // n_cells, 2), _MOST_LANES)
    return 1 << (worth.bit_length() - 1)


class Sampler:
    """Topics of all tokens, and the counts that follow from them.

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
        How many threads; -1 for all cores.
    known : ndarray of shape (k, m), optional
        Counts of other tokens that stay as they are, for the words of `tokens`.
    known_totals : ndarray of shape (k,), optional
        Their totals, over all words.
    n_lanes : int, optional
        How many lanes; chosen by the size of the corpus.
    """

    def __init__(
        self,
        tokens: Tokens,
        alpha: FloatArray,
        eta: float,
        *,
        seed: int,
        n_jobs: int,
        known: NDArray[np.float32] | None = None,
        known_totals: FloatArray | None = None,
        n_lanes: int | None = None,
    ) -> None:
        self.tokens = tokens
        self.alpha = np.array(alpha, dtype=np.float64)
        self.eta = float(eta)
        self.n_swept = 0
        self.topics = np.zeros(len(tokens.words), dtype=np.uint16)
        self._seed = seed
        self._n_topics = len(alpha)
        self._width = -(-self._n_topics // kernels.WIDTH) * kernels.WIDTH
        self._shape = (len(tokens.vocabulary), self._width)
        self._known = known
        self._known_totals = known_totals
        self._lanes = tokens.lanes(n_lanes or choose_lanes(len(tokens.words), max(1, self._shape[0] * self._width)))
        self._n_jobs = max(1, min(os.cpu_count() or 1 if n_jobs < 0 else n_jobs, len(self._lanes)))
        lengths = np.diff(tokens.starts)
        self._longest = int(lengths.max(initial=0))
        self._length_exceedances = priors.exceedances(np.bincount(lengths, minlength=2))
        self._n_averaged = 0
        self._table = np.empty((0, self._width), dtype=np.float32)
        self._totals = np.zeros(self._width)

    def start(self, topic_word: FloatArray) -> None:
        """Draw first topics given a topic-word matrix of shape (k, V)."""
        frequencies = np.bincount(self.tokens.words, minlength=self._shape[0]) / max(1, len(self.tokens.words))
        rows = self._padded(topic_word[:, self.tokens.vocabulary])
        rows *= _TRUST
        rows[:, : self._n_topics] += ((1 - _TRUST) * frequencies[:, None]).astype(np.float32)
        self._draw(rows)

    def start_from_known(self) -> None:
        """Draw first topics given the known counts."""
        if self._known is None or self._known_totals is None:
            raise ValueError("The known counts must be given to start from them. There are none. Call start.")
        smoothed = (self._known + self.eta) / (self._known_totals + self.tokens.n_features * self.eta)[:, None]
        self._draw(self._padded(smoothed))

    def sweep(self, *, average: bool) -> None:
        """Draw the topic of every token anew; take the probabilities into the mean if `average`."""
        self.n_swept += 1
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

    def learn_alpha(self, n_iterations: int = 3) -> None:
        """Move the prior of a document's topics towards the most likely one for the topics just drawn."""
        largest = int(np.flatnonzero(self._histogram.any(axis=0)).max(initial=0))
        tails = priors.exceedances(self._histogram[:, : largest + 1])
        self.alpha = priors.learn_alpha(self.alpha, tails, self._length_exceedances, n_iterations)

    def learn_eta(self, n_iterations: int = 2) -> None:
        """Move the prior of a topic's words towards the most likely one for the topics just drawn."""
        self.eta = priors.learn_eta(self.eta, self._table[:, : self._n_topics], self.tokens.n_features, n_iterations)

    def counts(self) -> NDArray[np.float32]:
        """Return how many tokens of each word have each topic just now, k x m."""
        drawn = np.zeros(self._shape, dtype=np.float32)
        kernels.count_topics(self.tokens.starts, self.tokens.words, self.topics, drawn)
        return np.ascontiguousarray(drawn[:, : self._n_topics].T)

    def mean_counts(self) -> NDArray[np.float32]:
        """Return how many tokens of each word are expected to have each topic, k x m: the mean over averaged sweeps."""
        if self._n_averaged == 0:
            return self.counts()
        mean: NDArray[np.float32] = self._expected[:, : self._n_topics].T / np.float32(self._n_averaged)
        return np.ascontiguousarray(mean)

    def _padded(self, topic_rows: NDArray[Any]) -> NDArray[np.float32]:
        rows = np.zeros(self._shape, dtype=np.float32)
        rows[:, : self._n_topics] = topic_rows.T
        return rows

    def _padded_alpha(self) -> NDArray[np.float32]:
        return np.pad(self.alpha, (0, self._width - self._n_topics)).astype(np.float32)

    def _lane_seed(self, number: int) -> np.uint64:
        return np.uint64(np.random.SeedSequence([self._seed, self.n_swept, number]).generate_state(1, np.uint64)[0])

    def _draw(self, rows: NDArray[np.float32]) -> None:
        tokens, alpha = self.tokens, self._padded_alpha()

        def draw_lane(number: int) -> None:
            kernels.draw_topics(
                *self._lanes[number], tokens.starts, tokens.words, self.topics, rows, alpha, self._n_topics,
                _START_STEPS, self._lane_seed(number),
            )  # fmt: skip

        for _ in self._each_lane(draw_lane):
            pass
        self._table = np.zeros(self._shape, dtype=np.float32) if self._known is None else self._padded(self._known)
        kernels.count_topics(tokens.starts, tokens.words, self.topics, self._table)
        self._totals = np.bincount(self.topics, minlength=self._width).astype(np.float64)
        if self._known_totals is not None:
            self._totals[: self._n_topics] += self._known_totals

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

        Answers are large: at most one more than there are threads exists at a time, so that one can be added up while
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
    """What a lane did in a sweep: changes of the counts, its histogram and its expected counts."""

    table: NDArray[np.float32]
    totals: FloatArray
    histogram: NDArray[np.int64]
    expected: NDArray[np.float32]
