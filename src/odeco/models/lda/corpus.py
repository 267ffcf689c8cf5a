"""The documents that topics are learnt from, here or on a cluster: `Corpus` is all that learning needs of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, Protocol, Self

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.counts import UNIT_DOCUMENTS, CountChunk, count_chunks
from odeco.models.lda.inference import split_sample
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import LdaSettings
from odeco.models.lda.refine import RefinedTopics, refine_topics
from odeco.online.sums import Part, carried, collected


class Corpus(Protocol):
    """Documents: sums over them, a sample of them, and Gibbs sweeps over them."""

    @property
    def n_documents(self) -> int:
        """Number of documents."""

    @property
    def n_words(self) -> int:
        """The size of the vocabulary."""

    def among(self, vocabulary: IndexArray) -> Self:
        """Return the same documents over a smaller vocabulary that holds all words of documents of three words."""

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents in a basis; see `WordSums`."""

    def split(self) -> tuple[Self, Self]:
        """Return two halves of the documents.

        Consecutive documents often repeat each other, as replies do, or versions of one text. Blocks of √n documents
        therefore go to the two halves in turn: what only a few neighbours share is then mostly in one of them.
        """

    def word_totals(self) -> FloatArray:
        """Return how often each word occurs."""

    def completion_halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents; see `split_sample`."""

    def refined(
        self, topic_word: FloatArray, *, n_sweeps: int, seed: int, eta: float | None, callback: Callable[[int], object]
    ) -> RefinedTopics:
        """Return topics after some Gibbs sweeps; see `refine_topics`."""


class LocalCorpus:
    """Documents in the memory of this process, as checked counts."""

    def __init__(self, counts: Any, settings: LdaSettings, chunks: tuple[CountChunk, ...] | None = None) -> None:
        self._counts, self._settings, self._chunks = counts, settings, chunks
        self.n_documents, self.n_words = (int(size) for size in counts.shape)

    def among(self, vocabulary: IndexArray) -> LocalCorpus:
        """Return the same documents over a smaller vocabulary."""
        narrow = LocalCorpus(self._counts, self._settings, tuple(chunk.among(vocabulary) for chunk in self._cut()))
        narrow.n_words = vocabulary.size
        return narrow

    def split(self) -> tuple[LocalCorpus, LocalCorpus]:
        """Return two halves of the documents, in alternating blocks of √n."""
        second = np.arange(self.n_documents) // math.isqrt(self.n_documents) % 2 == 1
        first_half, second_half = (
            LocalCorpus(self._counts[np.flatnonzero(own)], self._settings) for own in (~second, second)
        )
        return first_half, second_half

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents, added in the same tree as on a cluster."""
        settings = self._settings

        def start() -> WordSums:
            return WordSums(
                self.n_words, basis, core=core, document_weight=settings.document_weight, parallel=settings.parallel
            )

        return sum_chunks(self._cut(), start)

    def word_totals(self) -> FloatArray:
        """Return how often each word occurs."""
        return np.asarray(self._counts.sum(axis=0))

    def completion_halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents."""
        return split_sample(self._counts, seed=seed)

    def refined(
        self, topic_word: FloatArray, *, n_sweeps: int, seed: int, eta: float | None, callback: Callable[[int], object]
    ) -> RefinedTopics:
        """Return topics after some Gibbs sweeps."""
        counts, n_jobs = self._counts.astype(np.int64), self._settings.n_jobs
        return refine_topics(
            counts, topic_word, n_sweeps=n_sweeps, seed=seed, n_jobs=n_jobs, eta=eta, callback=callback
        )

    def _cut(self) -> tuple[CountChunk, ...]:
        if self._chunks is None:
            self._chunks = tuple(count_chunks(self._counts, document_weight=self._settings.document_weight))
        return self._chunks


def sum_chunks(chunks: Iterable[CountChunk], start: Callable[[], WordSums]) -> WordSums:
    """Return the sums over chunks that begin at the start of a leaf; `start` makes sums that are empty."""
    n_documents, leaves = 0, []
    for chunk in chunks:
        leaves.append((n_documents // UNIT_DOCUMENTS, chunk))
        n_documents += chunk.n_documents
    if not leaves or leaves[-1][0] == 0:  # a single leaf is its own sum
        sums = start()
        sums.add(chunk for _, chunk in leaves)
        return sums
    by_leaf = groupby(leaves, lambda leaf: leaf[0])
    return sums_of_part(start(), sum_leaves(([chunk for _, chunk in leaf] for _, leaf in by_leaf), start))


def sum_leaves(leaves: Iterable[Iterable[CountChunk]], start: Callable[[], WordSums]) -> Part:
    """Return the sum over leaves, each of `UNIT_DOCUMENTS` documents but for the last, as one array per level."""
    whole = Part(0, UNIT_DOCUMENTS, ())
    for leaf in leaves:
        sums = start()
        sums.add(leaf)
        n_rows = whole.n_rows + sums.n_documents
        levels = carried(whole.levels, sums.to_vector(), 0, n_rows, UNIT_DOCUMENTS, _add)
        whole = Part(n_rows, UNIT_DOCUMENTS, levels)
    return whole


def sums_of_part(sums: WordSums, part: Part) -> WordSums:
    """Return sums that are empty with what `sum_leaves` gave."""
    size = next(array.size for array in part.levels if array is not None)
    sums.set_vector(collected(part.levels, None, np.empty(size)))
    return sums


def _add(total: FloatArray, node: Any) -> FloatArray:
    total += node
    return total
