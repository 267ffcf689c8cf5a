"""Collapsed Gibbs sampling of the topics of all tokens, in lanes, with the Dirichlet priors learnt
from the counts.

`GibbsState` is an immutable state that all lanes share, and `Tokens` are those of one lane.
`ThreadLanes` has all lanes in this process; on a cluster every lane is a chain of tasks.

The priors are learnt by Minka's fixed point on histograms of counts. With h[n] groups of n tokens,
the sum over groups of digamma(n + a) - digamma(a) is the sum over j of t[j] / (a + j), where t[j]
is the number of groups with more than j tokens. An iteration takes one division for each entry of
t.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from odeco._util.threads import count_threads
from odeco._util.types import FloatArray
from odeco.models.lda import gibbs_kernels as kernels

#: No prior is learnt to be smaller, since a topic that no document uses would otherwise be lost for
#: good.
_SMALLEST_PRIOR = 1e-4


def exceedances(histogram: NDArray[Any]) -> FloatArray:
    """Return t[..., j], the number of groups that hold more than j, from h[..., n], the number that
    hold n.
    """
    reversed_sums = np.cumsum(histogram[..., ::-1], axis=-1, dtype=np.float64)[..., ::-1]
    return np.ascontiguousarray(reversed_sums[..., 1:])


def learn_alpha(
    alpha: FloatArray,
    topic_exceedances: FloatArray,
    length_exceedances: FloatArray,
    n_iterations: int,
) -> FloatArray:
    """Return the prior of a document's topics, moved towards the most likely one.

    Parameters
    ----------
    alpha : ndarray of shape (k,)
        Where to start.
    topic_exceedances : ndarray of shape (k, longest)
        For each topic, the number of documents with more than j tokens of it.
    length_exceedances : ndarray of shape (longest,)
        The number of documents with more than j tokens.
    n_iterations : int
        Number of steps.
    """
    steps = np.arange(topic_exceedances.shape[1])
    lengths = np.arange(len(length_exceedances))
    for _ in range(n_iterations):
        gain = np.einsum("kj,kj->k", topic_exceedances, 1 / (alpha[:, None] + steps))
        alpha = np.maximum(
            alpha * gain / np.sum(length_exceedances / (alpha.sum() + lengths)), _SMALLEST_PRIOR
        )
    return alpha


def learn_eta(eta: float, word_counts: NDArray[Any], n_features: int, n_iterations: int) -> float:
    """Return the prior of a topic's words (one number for all), moved towards the most likely one.

    Parameters
    ----------
    eta : float
        Where to start.
    word_counts : ndarray of shape (words, k)
        Number of tokens of each word in each topic. Words that never occur may be left out.
    n_features : int
        Size of the vocabulary, with the words left out.
    n_iterations : int
        Number of steps.
    """
    totals = word_counts.sum(axis=0, dtype=np.float64)
    if not totals.any():
        return eta
    tail = exceedances(np.bincount(word_counts.astype(np.int64).ravel(), minlength=2))
    steps = np.arange(len(tail))
    for _ in range(n_iterations):
        gain = np.sum(tail / (eta + steps))
        loss = n_features * np.sum(digamma(totals + n_features * eta) - digamma(n_features * eta))
        eta = max(float(eta * gain / loss), _SMALLEST_PRIOR)
    return eta


#: The largest number of lanes.
_MOST_LANES = 16

#: Below this many tokens a second lane saves less time than its thread costs.
_FEWEST_TOKENS = 5_000

#: The expected topics of a document are found in this many steps before its first topics are drawn.
_START_STEPS = 5

#: After a sweep each prior takes this many steps towards the most likely one.
_ALPHA_STEPS = 3
_ETA_STEPS = 2


@dataclass(frozen=True)
class Tokens:
    """Documents as a list of tokens, document after document.

    Parameters
    ----------
    starts : ndarray of shape (n + 1,)
        The place at which each document begins, and that at which the last one ends.
    words : ndarray of shape (tokens,), int32
        Each token's word, as a place in the vocabulary.
    """

    starts: NDArray[np.int64]
    words: NDArray[np.int32]

    @classmethod
    def from_counts(cls, counts: Any, vocabulary: NDArray[np.int64]) -> Tokens:
        """List the tokens of CSR counts. The ascending vocabulary has all of their words."""
        repeats = np.asarray(counts.data, dtype=np.int64)
        places = np.zeros(counts.shape[1], dtype=np.int32)
        places[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
        words = np.repeat(places[counts.indices], repeats)
        starts = np.concatenate([[0], np.cumsum(repeats)])[counts.indptr]
        return cls(starts.astype(np.int64), words)


def words_that_occur(frequencies: NDArray[Any]) -> NDArray[np.int64]:
    """Return the words that occur, given how often each does; raise if one does too often to be
    counted.
    """
    if frequencies.max(initial=0) >= kernels.LARGEST_COUNT:
        raise ValueError(
            f"A word may occur at most {kernels.LARGEST_COUNT - 1:,} times in documents refined "
            f"at once. Word {frequencies.argmax()} occurs {int(frequencies.max()):,} times. Drop "
            "it, or call partial_fit on parts of the corpus."
        )
    return np.flatnonzero(frequencies)


def lane_spans(starts: NDArray[np.int64], n_lanes: int) -> list[tuple[int, int]]:
    """Divide documents into at most `n_lanes` ranges with about the same number of tokens.

    `starts` are the places at which the documents begin, and that at which the last one ends.
    """
    cuts = np.searchsorted(starts[:-1], np.linspace(0, starts[-1], n_lanes + 1)[1:-1]).tolist()
    return [(first, last) for first, last in pairwise([0, *cuts, len(starts) - 1]) if first < last]


def choose_lanes(n_tokens: int, n_cells: int) -> int:
    """Return the number of lanes that are worth their copies of the counts: a power of two, given
    by the corpus alone.

    Copying and adding a cell takes some 1/40 of the time of a draw. So with at most 2 tokens /
    cells lanes, copying takes at most 1/20 of a sweep.
    """
    if n_tokens < _FEWEST_TOKENS:
        return 1
    worth = min(max(2 * n_tokens // n_cells, 2), _MOST_LANES)
    return 1 << (worth.bit_length() - 1)


@dataclass(frozen=True, eq=False)
class LaneUpdate:
    """The result of a lane in a sweep: its topics, the changes of the counts, its histogram and its
    expected counts.
    """

    topics: NDArray[np.uint16]
    table: NDArray[np.float32]
    totals: FloatArray
    histogram: NDArray[np.int64]
    expected: NDArray[np.float32]


class Sweep(NamedTuple):
    """The use of a sweep: whether it counts in the mean, and whether the prior of words is learnt
    from it.
    """

    average: bool
    learns_eta: bool = False


@dataclass(frozen=True, eq=False)
class GibbsState:
    """The shared state when a sweep begins. No array in it is ever changed.

    Attributes
    ----------
    alpha, eta : array, float
        Prior of a document's topics, and of a topic's words.
    seed : int
        Seed of all draws.
    n_features : int
        Size V of the whole vocabulary.
    lengths : array
        The number of documents with 0, 1, 2, … tokens.
    table, totals : arrays
        Word-topic counts, padded to the width of the kernels, and their sums.
    histogram : array
        Entry [k, n] is the number of documents with n tokens of topic k in the last sweep.
    expected, n_averaged : array, int
        The sum of expected counts over the sweeps that are averaged, and their number.
    n_swept : int
        Number of sweeps so far.
    """

    alpha: FloatArray
    eta: float
    seed: int
    n_features: int
    lengths: NDArray[np.int64]
    table: NDArray[np.float32]
    totals: FloatArray
    histogram: NDArray[np.int64]
    expected: NDArray[np.float32]
    n_averaged: int = 0
    n_swept: int = 0

    @classmethod
    def begin(
        cls,
        alpha: FloatArray,
        eta: float,
        seed: int,
        n_features: int,
        lengths: NDArray[np.int64],
        n_words: int,
    ) -> GibbsState:
        """Return the state before the first topics are drawn, over `n_words` words that occur."""
        prior = np.array(alpha, dtype=np.float64)
        width = -(-len(prior) // kernels.WIDTH) * kernels.WIDTH
        empty = np.zeros((n_words, width), dtype=np.float32)
        histogram = np.zeros((len(prior), len(lengths)), dtype=np.int64)
        nothing = np.zeros(width)
        return cls(prior, float(eta), seed, n_features, lengths, empty, nothing, histogram, empty)

    def beside(self, known: NDArray[np.float32], totals: FloatArray) -> GibbsState:
        """Return the state with the counts of other tokens, which stay as they are.

        Parameters
        ----------
        known : ndarray of shape (k, m)
            The counts of those words that occur.
        totals : ndarray of shape (k,)
            Their totals, over all words.
        """
        padding = self.table.shape[1] - len(totals)
        return replace(self, table=self.pad(known), totals=np.pad(totals, (0, padding)))

    def pad(self, topic_rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return topics, k x m, in the layout of the kernels: m rows, padded."""
        rows = np.zeros(self.table.shape, dtype=np.float32)
        rows[:, : len(self.alpha)] = topic_rows.T
        return rows

    def draw(self, number: int, lane: Tokens, rows: NDArray[np.float32]) -> LaneUpdate:
        """Draw the first topics of a lane, given topics as `pad` makes them."""
        topics = np.zeros(len(lane.words), dtype=np.uint16)
        kernels.draw_topics(
            lane.starts, lane.words, topics, rows, self._padded_alpha(), len(self.alpha),
            _START_STEPS, self._lane_seed(0, number),
        )  # fmt: skip
        table = np.zeros_like(self.table)
        kernels.count_topics(lane.words, topics, table)
        totals = np.bincount(topics, minlength=table.shape[1]).astype(np.float64)
        return LaneUpdate(topics, table, totals, np.zeros_like(self.histogram), table[:0])

    def sweep(
        self, number: int, lane: Tokens, before: NDArray[np.uint16], *, average: bool
    ) -> LaneUpdate:
        """Draw the topics of a lane anew, given those before."""
        topics = before.copy()
        table = self.table.copy()
        totals = self.totals.copy()
        histogram = np.zeros_like(self.histogram)
        n_averaged = len(table) if average else 0
        expected = np.zeros((n_averaged, table.shape[1]), dtype=np.float32)
        kernels.sweep_documents(
            lane.starts, lane.words, topics, table, totals, self._padded_alpha(),
            np.float32(self.eta), self.eta * self.n_features, len(self.alpha),
            self._lane_seed(self.n_swept + 1, number), expected, histogram,
        )  # fmt: skip
        table -= self.table
        totals -= self.totals
        return LaneUpdate(topics, table, totals, histogram, expected)

    def merge(self, changes: Iterable[LaneUpdate], sweep: Sweep | None = None) -> GibbsState:
        """Return the state after the changes of all lanes, which are added in the order of the
        lanes: after a sweep, with the priors moved towards the most likely ones, or else after the
        first draw.
        """
        average = sweep is not None and sweep.average
        table = self.table.copy()
        totals = self.totals.copy()
        histogram = np.zeros_like(self.histogram)
        expected = self.expected.copy() if average else self.expected
        for lane in changes:
            table += lane.table
            totals += lane.totals
            histogram += lane.histogram
            if average:
                expected += lane.expected
        merged = replace(self, table=table, totals=totals, histogram=histogram, expected=expected)
        if sweep is None:
            return merged
        largest = int(np.flatnonzero(histogram.any(axis=0)).max(initial=0))
        tails = exceedances(histogram[:, : largest + 1])
        lengths = exceedances(np.pad(self.lengths, (0, max(0, 2 - len(self.lengths)))))
        alpha = learn_alpha(self.alpha, tails, lengths, _ALPHA_STEPS)
        eta = self.eta
        if sweep.learns_eta:
            eta = learn_eta(eta, table[:, : len(alpha)], self.n_features, _ETA_STEPS)
        return replace(
            merged,
            alpha=alpha,
            eta=eta,
            n_averaged=self.n_averaged + average,
            n_swept=self.n_swept + 1,
        )

    def mean_counts(self) -> NDArray[np.float32]:
        """Return the expected number of tokens of each word in each topic, k x m: the mean over
        averaged sweeps.
        """
        mean: NDArray[np.float32] = self.expected[:, : len(self.alpha)].T / np.float32(
            self.n_averaged
        )
        return np.ascontiguousarray(mean)

    def _padded_alpha(self) -> NDArray[np.float32]:
        return np.pad(self.alpha, (0, self.table.shape[1] - len(self.alpha))).astype(np.float32)

    def _lane_seed(self, sweep: int, number: int) -> np.uint64:
        words = np.random.SeedSequence([self.seed, sweep, number]).generate_state(1, np.uint64)
        return np.uint64(words[0])


class Lanes(Protocol):
    """The tokens of lanes and their topics, and who draws these: threads, or workers of a cluster.

    A state may be a `GibbsState`, or what stands for one on a cluster.
    """

    def draw(self, state: GibbsState, rows: NDArray[np.float32]) -> Any:
        """Return the state after the first topics were drawn, given topics as `pad` makes them."""

    def sweep(self, state: Any, sweep: Sweep) -> Any:
        """Return the state after the topic of every token was drawn anew."""

    def fetch(self, state: Any) -> GibbsState:
        """Return the state itself."""


class ThreadLanes:
    """Lanes in the memory of this process."""

    def __init__(self, tokens: list[Tokens]) -> None:
        self.tokens = tokens
        self.topics: list[Any] = [None] * len(tokens)

    def draw(self, state: GibbsState, rows: NDArray[np.float32]) -> GibbsState:
        """Return the state after the first topics were drawn."""
        return state.merge(
            self._each_lane(lambda number: state.draw(number, self.tokens[number], rows))
        )

    def sweep(self, state: GibbsState, sweep: Sweep) -> GibbsState:
        """Return the state after the topic of every token was drawn anew."""

        def draw(number: int) -> LaneUpdate:
            before = self.topics[number]
            return state.sweep(number, self.tokens[number], before, average=sweep.average)

        return state.merge(self._each_lane(draw), sweep)

    def fetch(self, state: GibbsState) -> GibbsState:
        """Return the state itself."""
        return state

    def _each_lane(self, draw: Callable[[int], LaneUpdate]) -> Iterator[LaneUpdate]:
        """Yield the update of each lane, in the order of the lanes.

        Updates are large. At most one more of them than there are threads exists at a time: one can
        be added up while the threads work on the next.
        """

        def work(number: int) -> LaneUpdate:
            update = draw(number)
            self.topics[number] = update.topics
            return update

        running: deque[Future[LaneUpdate]] = deque()
        n_threads = count_threads()
        with ThreadPoolExecutor(n_threads) as pool:
            for number in range(len(self.tokens)):
                if len(running) > n_threads:
                    yield running.popleft().result()
                running.append(pool.submit(work, number))
            while running:
                yield running.popleft().result()
