"""Collapsed Gibbs sampling of the topics of all tokens, in lanes, with the Dirichlet priors learnt
from the counts.

`GibbsState` is an immutable state that all lanes share; a `Lane` has the tokens of one. `Sampler`
runs all in this process; on a cluster every lane is a chain of tasks with the same two classes.

The priors are learnt by Minka's fixed point on histograms of counts. With h[n] groups of n tokens,
the sum over groups of digamma(n + a) - digamma(a) is the sum over j of t[j] / (a + j), where t[j]
is the number of groups with more than j tokens. An iteration takes one division for each entry of
t.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from odeco._util.types import FloatArray
from odeco.models.lda import gibbs_kernels as kernels

#: No prior is learnt to be smaller, since a topic that no document uses would otherwise be lost for
#: good.
_SMALLEST_PRIOR = 1e-4

#: Word counts up to this share a histogram. The few that are larger are terms of their own.
_CAP = 4096


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
    flat = np.minimum(word_counts, _CAP).astype(np.int64).ravel()
    tail = exceedances(np.bincount(flat, minlength=2))
    steps = np.arange(len(tail))
    large = word_counts[word_counts > _CAP].astype(np.float64)
    for _ in range(n_iterations):
        gain = np.sum(tail / (eta + steps)) + np.sum(digamma(large + eta) - digamma(_CAP + eta))
        loss = n_features * np.sum(digamma(totals + n_features * eta) - digamma(n_features * eta))
        eta = max(float(eta * gain / loss), _SMALLEST_PRIOR)
    return eta


Result = TypeVar("Result")


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
    """A corpus as a list of tokens, document after document, over the words that occur in it.

    Parameters
    ----------
    starts : ndarray of shape (n + 1,)
        The place at which each document begins, and that at which the last one ends.
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
    def from_counts(cls, counts: Any, vocabulary: NDArray[np.int64] | None = None) -> Tokens:
        """List the tokens of CSR counts. The vocabulary has all of their words; by default, the
        words that occur.
        """
        repeats = np.asarray(counts.data, dtype=np.int64)
        if vocabulary is None:
            vocabulary = words_that_occur(
                np.bincount(counts.indices, weights=repeats, minlength=counts.shape[1])
            )
        places = np.zeros(counts.shape[1], dtype=np.int32)
        places[vocabulary] = np.arange(len(vocabulary), dtype=np.int32)
        words = np.repeat(places[counts.indices], repeats)
        starts = np.concatenate([[0], np.cumsum(repeats)])[counts.indptr]
        return cls(starts.astype(np.int64), words, vocabulary, counts.shape[1])


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
class Lane:
    """The documents from `first` to `last` of a list of tokens, and the topics of all of its
    tokens, which change.
    """

    number: int
    first: int
    last: int
    starts: NDArray[np.int64]
    words: NDArray[np.int32]
    topics: NDArray[np.uint16]


@dataclass(frozen=True, eq=False)
class LaneUpdate:
    """The result of a lane in a sweep: the changes of the counts, its histogram and its expected
    counts.
    """

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
        empty = np.zeros(
            (n_words, -(-len(prior) // kernels.WIDTH) * kernels.WIDTH), dtype=np.float32
        )
        histogram = np.zeros((len(prior), len(lengths)), dtype=np.int64)
        nothing = np.zeros(empty.shape[1])
        return cls(prior, float(eta), seed, n_features, lengths, empty, nothing, histogram, empty)

    def pad(self, topic_rows: NDArray[Any]) -> NDArray[np.float32]:
        """Return topics, k x m, in the layout of the kernels: m rows, padded."""
        rows = np.zeros(self.table.shape, dtype=np.float32)
        rows[:, : len(self.alpha)] = topic_rows.T
        return rows

    def draw(self, lane: Lane, rows: NDArray[np.float32]) -> None:
        """Draw the first topics of a lane, given topics as `pad` makes them."""
        kernels.draw_topics(
            lane.first, lane.last, lane.starts, lane.words, lane.topics, rows,
            self._padded_alpha(), len(self.alpha),
            _START_STEPS, self._lane_seed(lane.number),
        )  # fmt: skip

    def count(self, lane: Lane) -> LaneUpdate:
        """Return the counts of the topics of a lane that were just drawn."""
        table = np.zeros_like(self.table)
        inside = slice(lane.starts[lane.first], lane.starts[lane.last])
        kernels.count_topics(
            lane.starts[lane.first : lane.last + 1], lane.words, lane.topics, table
        )
        totals = np.bincount(lane.topics[inside], minlength=table.shape[1]).astype(np.float64)
        return LaneUpdate(table, totals, np.zeros_like(self.histogram), table[:0])

    def sweep(self, lane: Lane, *, average: bool) -> LaneUpdate:
        """Draw the topics of a lane anew, in place; return the changes."""
        table = self.table.copy()
        totals = self.totals.copy()
        histogram = np.zeros_like(self.histogram)
        expected = np.zeros(
            self.table.shape if average else (0, self.table.shape[1]), dtype=np.float32
        )
        kernels.sweep_documents(
            lane.first, lane.last, lane.starts, lane.words, lane.topics, table, totals,
            self._padded_alpha(),
            np.float32(self.eta), self.eta * self.n_features, len(self.alpha),
            self._lane_seed(lane.number), expected,
            histogram,
        )  # fmt: skip
        table -= self.table
        totals -= self.totals
        return LaneUpdate(table, totals, histogram, expected)

    def next_sweep(self) -> GibbsState:
        """Return the state of the next sweep, whose draws have other seeds."""
        return replace(self, n_swept=self.n_swept + 1)

    def merge(self, changes: Iterable[LaneUpdate], *, average: bool = False) -> GibbsState:
        """Return the state after the changes of all lanes, which are added in the order of the
        lanes.
        """
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
        n_averaged = self.n_averaged + average
        return replace(
            self,
            table=table,
            totals=totals,
            histogram=histogram,
            expected=expected,
            n_averaged=n_averaged,
        )

    def after(self, changes: Iterable[LaneUpdate], sweep: Sweep) -> GibbsState:
        """Return the state after a sweep: counts, and the priors, moved towards the most likely
        ones.
        """
        merged = self.merge(changes, average=sweep.average)
        largest = int(np.flatnonzero(merged.histogram.any(axis=0)).max(initial=0))
        tails = exceedances(merged.histogram[:, : largest + 1])
        lengths = exceedances(np.pad(self.lengths, (0, max(0, 2 - len(self.lengths)))))
        alpha = learn_alpha(self.alpha, tails, lengths, _ALPHA_STEPS)
        eta = self.eta
        if sweep.learns_eta:
            eta = learn_eta(eta, merged.table[:, : len(alpha)], self.n_features, _ETA_STEPS)
        return replace(merged, alpha=alpha, eta=eta)

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

    def _lane_seed(self, number: int) -> np.uint64:
        return np.uint64(
            np.random.SeedSequence([self.seed, self.n_swept, number]).generate_state(1, np.uint64)[
                0
            ]
        )


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
        Number of threads, or -1 for all cores.
    """

    def __init__(
        self, tokens: Tokens, alpha: FloatArray, eta: float, *, seed: int, n_jobs: int
    ) -> None:
        lengths = np.bincount(np.diff(tokens.starts), minlength=1)
        self.state = GibbsState.begin(
            alpha, eta, seed, tokens.n_features, lengths, len(tokens.vocabulary)
        )
        n_lanes = choose_lanes(len(tokens.words), max(1, self.state.table.size))
        self.topics = np.zeros(len(tokens.words), dtype=np.uint16)
        self._lanes = [
            Lane(number, *span, tokens.starts, tokens.words, self.topics)
            for number, span in enumerate(lane_spans(tokens.starts, n_lanes))
        ]
        self._n_jobs = max(1, min(os.cpu_count() or 1 if n_jobs < 0 else n_jobs, len(self._lanes)))

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
        state = self.state
        rows = self.state.pad(topic_word)

        def draw(lane: Lane) -> LaneUpdate:
            state.draw(lane, rows)
            return state.count(lane)

        before = state if known is None else replace(state, table=state.pad(known))
        self.state = before.merge(self._each_lane(draw))
        if known_totals is not None:
            self.state.totals[: len(state.alpha)] += known_totals

    def sweep(self, sweep: Sweep) -> None:
        """Draw the topic of every token anew, and learn the priors."""
        state = self.state.next_sweep()
        self.state = state.after(
            self._each_lane(lambda lane: state.sweep(lane, average=sweep.average)), sweep
        )

    def _each_lane(self, work: Callable[[Lane], Result]) -> Iterator[Result]:
        """Yield the result of the work of each lane, in the order of the lanes.

        Updates are large. At most one more of them than there are threads exists at a time: one can
        be added up while the threads work on the next.
        """
        if self._n_jobs == 1:
            yield from map(work, self._lanes)
            return
        running: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self._n_jobs) as pool:
            for lane in self._lanes:
                if len(running) > self._n_jobs:
                    yield running.popleft().result()
                running.append(pool.submit(work, lane))
            while running:
                yield running.popleft().result()
