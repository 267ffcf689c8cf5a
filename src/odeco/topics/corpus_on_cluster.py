"""Documents on a cluster: workers sum the moments of their words, and sweep over them; the client never holds them.

The sums are the tree of `odeco.topics.corpus`, and the lanes of a sweep are those of `odeco.topics.gibbs_sampler`, so
the topics are those of one machine to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._threads import one_thread
from odeco._types import FloatArray, IndexArray
from odeco.dask import (
    ClusterRows,
    Order,
    Piece,
    ask,
    check_count_of,
    check_versions,
    leaf_height,
    read,
    result_of,
    versions,
    work_on,
)
from odeco.errors import WordCountError
from odeco.rows import Part, joined, nodes
from odeco.sources import rebatch
from odeco.topics.corpus import vectors_added_up, with_vectors
from odeco.topics.counts import UNIT_DOCUMENTS, DocumentWeight, as_counts, count_chunks
from odeco.topics.evaluate import long_enough, split_chosen, spread_evenly
from odeco.topics.gibbs_on_cluster import refine_on_cluster
from odeco.topics.lda_settings import LdaSettings
from odeco.topics.moments import WordSums
from odeco.topics.refine import RefinedTopics


class CountTask(NamedTuple):
    """What a worker needs to know to read word counts."""

    n_words: int
    name: str
    versions: tuple[tuple[str, str], ...]

    def read(self, pieces: list[Piece], blocks: list[Any]) -> Iterator[tuple[int, Any]]:
        """Yield documents as checked counts, `UNIT_DOCUMENTS` at a time, each time with the first one's number."""
        check_versions(self.versions)
        first = pieces[0].first
        for rows in rebatch(read(pieces, blocks, self.n_words, self.name), UNIT_DOCUMENTS):
            try:
                counts = as_counts(rows, self.n_words)
            except WordCountError as error:
                raise WordCountError(f"{error} Counted from document {first:,} of {self.name}.") from None
            yield first, counts
            first += int(rows.shape[0])
        check_count_of(pieces, first - pieces[0].first, self.name)


class Look(NamedTuple):
    """What is learnt of documents at a first look: words of each kind, lengths, and how many have two words."""

    word_totals: NDArray[np.int64]
    lengths: NDArray[np.int64]
    n_long_enough: int

    @property
    def n_tokens(self) -> int:
        """How many words they have in all."""
        return int(self.word_totals.sum())


@dataclass
class CorpusOnCluster:
    """Documents on a cluster."""

    rows: ClusterRows
    settings: LdaSettings
    vocabulary: IndexArray | None = None
    _looks: list[tuple[int, int, Look]] = field(default_factory=list)

    @property
    def n_documents(self) -> int:
        """How many documents there are."""
        return self.rows.n_rows

    @property
    def n_words(self) -> int:
        """The size of the vocabulary."""
        return self.rows.n_features if self.vocabulary is None else int(self.vocabulary.size)

    def among(self, vocabulary: IndexArray) -> CorpusOnCluster:
        """Return the same documents over a smaller vocabulary."""
        return CorpusOnCluster(self.rows, self.settings, vocabulary, self._looks)

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents."""
        task = (self._task(), self.settings.weigh, core)
        order = Order(sum_words, task, (basis, self.vocabulary), UNIT_DOCUMENTS)
        parts = [part for part, _ in ask(self.rows, order, [(0, 0, self.n_documents)]) if part is not None]
        return with_vectors(WordSums(self.n_words, basis, core=core, weigh=self.settings.weigh), joined(parts))

    def in_two(self) -> tuple[CorpusOnCluster, CorpusOnCluster]:
        """Refuse: the halves are dealt by document, and partitions hold many."""
        raise ValueError(
            "`n_components` must be an int on a cluster. Got 'auto'. Fit a part of the documents on one machine with "
            "'auto', and take its n_components_."
        )

    def word_totals(self) -> FloatArray:
        """Return how often each word occurs."""
        totals: FloatArray = np.sum([look.word_totals for _, _, look in self._looked()], axis=0).astype(np.float64)
        return totals

    def halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents: these few come to the client."""
        looks = self._looked()
        edges = np.cumsum([0, *(look.n_long_enough for _, _, look in looks)])
        chosen = spread_evenly(int(edges[-1]))
        futures = []
        for (start, stop, _), (first, last) in zip(looks, itertools.pairwise(edges), strict=True):
            ranks = chosen[(chosen >= first) & (chosen < last)] - first
            if ranks.size:
                futures += work_on(self.rows, pick, (self._task(), ranks), [(start, stop)])
        found = [result_of(future) for future in futures]
        counts = sparse.vstack(found, format="csr") if found else sparse.csr_array((0, self.n_words))
        return split_chosen(counts, seed=seed)

    def refined(
        self, topic_word: FloatArray, *, n_sweeps: int, seed: int, eta: float | None, callback: Callable[[int], object]
    ) -> RefinedTopics:
        """Return topics after some Gibbs sweeps."""
        looks = self._looked()
        lengths = np.zeros(max(len(look.lengths) for _, _, look in looks), dtype=np.int64)
        for _, _, look in looks:
            lengths[: len(look.lengths)] += look.lengths
        return refine_on_cluster(
            self.rows,
            self._task(),
            topic_word,
            totals=self.word_totals(),
            lengths=lengths,
            first_documents=self._first_documents,
            n_sweeps=n_sweeps,
            seed=seed,
            eta=eta,
            callback=callback,
        )

    def _task(self) -> CountTask:
        return CountTask(self.rows.n_features, self.rows.name, versions())

    def _looked(self) -> list[tuple[int, int, Look]]:
        """Return what is known of each stretch of documents; the first time, workers look at them."""
        if not self._looks:
            height = leaf_height(UNIT_DOCUMENTS, [self.n_documents], self.rows.cluster.n_threads)
            ranges = nodes(0, self.n_documents, UNIT_DOCUMENTS, height)
            futures = work_on(self.rows, look_at, (self._task(),), ranges)
            self._looks += [(*cut, result_of(future)) for cut, future in zip(ranges, futures, strict=True)]
        return self._looks

    def _first_documents(self, levels: FloatArray) -> list[int]:
        """Return for each level the first document that begins after so many words or more."""
        looks = self._looked()
        before = list(itertools.accumulate((look.n_tokens for _, _, look in looks), initial=0))
        futures = []
        for level in levels:
            place = max(number for number in range(len(looks)) if number == 0 or before[number] < level)
            start, stop, _ = looks[place]
            futures += work_on(self.rows, find_document, (self._task(), float(level), before[place]), [(start, stop)])
        return [int(result_of(future)) for future in futures]


# ---- on workers ---------------------------------------------------------------------------------------------------


def sum_words(
    task: tuple[CountTask, DocumentWeight, bool],
    held: tuple[FloatArray | None, IndexArray | None],
    pieces: list[Piece],
    blocks: list[Any],
) -> Part:
    """Return the sums over the documents of one node."""
    (counts, weigh, core), (basis, vocabulary) = task, held
    n_words = counts.n_words if vocabulary is None else int(vocabulary.size)

    def start() -> WordSums:
        return WordSums(n_words, basis, core=core, weigh=weigh, parallel=False)

    def leaves() -> Iterator[Any]:
        for first, documents in counts.read(pieces, blocks):
            cut = count_chunks(documents, weigh=weigh, first=first)
            yield cut if vocabulary is None else (chunk.among(vocabulary) for chunk in cut)

    with one_thread():
        return vectors_added_up(leaves(), start)


def look_at(task: CountTask, pieces: list[Piece], blocks: list[Any]) -> Look:
    """Return what is to be known of some documents."""
    totals, lengths, n_long = np.zeros(task.n_words, dtype=np.int64), np.zeros(1, dtype=np.int64), 0
    for _, counts in task.read(pieces, blocks):
        totals += np.bincount(counts.indices, weights=counts.data, minlength=task.n_words).astype(np.int64)
        own = np.bincount(np.asarray(counts.sum(axis=1), dtype=np.int64))
        longest = max(len(own), len(lengths))
        lengths = np.pad(lengths, (0, longest - len(lengths))) + np.pad(own, (0, longest - len(own)))
        n_long += long_enough(counts).size
    return Look(totals, lengths, n_long)


def pick(task: CountTask, ranks: IndexArray, pieces: list[Piece], blocks: list[Any]) -> Any:
    """Return those documents of the given ranks among the ones that have two words."""
    found, n_before = [], 0
    for _, counts in task.read(pieces, blocks):
        usable = long_enough(counts)
        own = ranks[(ranks >= n_before) & (ranks < n_before + usable.size)] - n_before
        found.append(counts[usable[own]])
        n_before += usable.size
    return sparse.vstack(found, format="csr")


def find_document(task: CountTask, level: float, before: int, pieces: list[Piece], blocks: list[Any]) -> int:
    """Return the first document that begins after `level` words of all, or the one after the last."""
    end = pieces[0].first
    for first, counts in task.read(pieces, blocks):
        ends = before + np.cumsum(np.asarray(counts.sum(axis=1), dtype=np.int64))
        starts = np.concatenate([[before], ends[:-1]])
        place = int(np.searchsorted(starts, level))
        if place < starts.size:
            return first + place
        before, end = int(ends[-1]), first + starts.size
    return end
