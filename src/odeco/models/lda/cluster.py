"""Topics of documents on a Dask cluster: counted, fitted and inferred where the documents are.

Workers sum the moments of their documents, and sweep over them. The client has the lengths of
documents, and a sample of at most 500. Of texts, only words and their frequencies come to the
client. The topics are bit-identical to those of one machine: the sums form the tree of
`odeco.models.lda.corpus`, and the lanes of a sweep, their seeds and the order in which their
updates are added are those of `odeco.models.lda.gibbs`. Every lane is a chain of tasks. Tokens and
their topics stay on the workers; if one dies, its lanes are drawn again from the start, with the
same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odeco._util.threads import one_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import DocumentError, WordCountError
from odeco.io.documents import TextPart
from odeco.io.reading import rebatch
from odeco.io.rows import join_rows
from odeco.models.lda.corpus import Corpus, Documents, RefinedTopics, sum_leaves, sums_of_part
from odeco.models.lda.counts import UNIT_DOCUMENTS, as_counts, count_chunks
from odeco.models.lda.gibbs import GibbsState, LaneUpdate, Sweep, Tokens
from odeco.models.lda.inference import document_topics
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import TopicParams
from odeco.models.lda.vocabulary import Tokenizer, Words, count_words, select_vocabulary
from odeco.online.dask.client import (
    Cluster,
    check_versions,
    find_cluster,
    result_of,
    tried_again,
    wait_for,
)
from odeco.online.dask.partitions import ChosenRows, ClusterRows, from_delayed
from odeco.online.dask.pieces import PRIVATE_FAULT, Piece, PrivateFault, check_count_of, read
from odeco.online.dask.tasks import Order, PrivateError, ask, leaf_height, work_on
from odeco.online.tree import Part, joined, nodes

#: Updates of lanes are merged before further lanes begin.
_MERGE_PRIORITY = 10


class CountTask(NamedTuple):
    """The task of reading word counts on a worker."""

    n_words: int
    name: str
    versions: tuple[tuple[str, str], ...]

    def read(self, pieces: list[Piece], blocks: list[Any]) -> Iterator[tuple[int, Any]]:
        """Yield documents as checked counts, `UNIT_DOCUMENTS` at a time, each time with the first
        one's number.
        """
        check_versions(self.versions)
        first = pieces[0].first
        for rows in rebatch(read(pieces, blocks, self.n_words, self.name), UNIT_DOCUMENTS):
            try:
                counts = as_counts(rows, self.n_words)
            except WordCountError as error:
                raise WordCountError(
                    f"{error} Counted from document {first:,} of {self.name}."
                ) from None
            yield first, counts
            first += int(rows.shape[0])
        check_count_of(pieces, first - pieces[0].first, self.name)


class ClusterCorpus(Corpus):
    """Documents on a cluster."""

    def __init__(self, rows: ClusterRows) -> None:
        self.rows = rows
        self.n_documents = rows.n_rows
        self.n_words = rows.n_features

    def choose(self, documents: IndexArray) -> ClusterCorpus:
        """Return the documents with these numbers. Each pass over them reads all documents."""
        return ClusterCorpus(ChosenRows(self.rows, documents))

    def map(self, work: Callable[..., Any], *held: Any) -> list[Any]:
        """Return the results of ``work(documents, *held)`` for what workers read at a time."""
        height = leaf_height(UNIT_DOCUMENTS, [self.n_documents], self.rows.cluster.n_threads)
        ranges = nodes(0, self.n_documents, UNIT_DOCUMENTS, height)
        return [result_of(future) for future in self._submit(work, held, ranges)]

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents."""
        held = (self.n_words, basis, core)
        order = Order(on_worker, (_task(self.rows), sum_words), held, UNIT_DOCUMENTS)
        answers = ask(self.rows, order, [(0, 0, self.n_documents)])
        parts = [part for part, _ in answers if part is not None]
        empty = WordSums(self.n_words, basis, core=core)
        return sums_of_part(empty, joined(parts)) if parts else empty

    def refine(self, *topics: Any, **sweeps: Any) -> RefinedTopics:
        """Return topics after some Gibbs sweeps; all of them again if workers died."""
        return tried_again(lambda: super(ClusterCorpus, self).refine(*topics, **sweeps))

    def lanes(self, vocabulary: IndexArray, spans: Sequence[tuple[int, int]]) -> ClusterLanes:
        """Return ranges of the documents as lanes of tokens of these words."""
        return ClusterLanes(self.rows.cluster, self._submit(list_tokens, (vocabulary,), spans))

    def _submit(
        self, work: Callable[..., Any], held: tuple[Any, ...], ranges: Sequence[tuple[int, int]]
    ) -> list[Any]:
        """Return the futures of ``work(documents, *held)`` for ranges of the documents."""
        task = (_task(self.rows), work)
        return work_on(self.rows, on_worker, (task, self.rows.cluster.hold(held)), ranges)


class ClusterLanes:
    """Lanes on the workers of a cluster. States are futures of `GibbsState`, and so are topics."""

    def __init__(self, cluster: Cluster, tokens: list[Any]) -> None:
        self._cluster = cluster
        self._tokens = tokens
        self._topics: list[Any] = []

    def draw(self, state: GibbsState, rows: NDArray[np.float32]) -> Any:
        """Return the state after the first topics were drawn."""
        held = (self._cluster.hold(state), self._cluster.hold(rows))
        updates = [
            self._cluster.submit(draw_lane, number, lane, *held, name="draw")
            for number, lane in enumerate(self._tokens)
        ]
        return self._merged(held[0], None, updates)

    def sweep(self, state: Any, sweep: Sweep) -> Any:
        """Return the state after the topic of every token was drawn anew."""
        updates = [
            self._cluster.submit(
                sweep_lane, number, lane, state, self._topics[number], sweep.average, name="sweep"
            )
            for number, lane in enumerate(self._tokens)
        ]
        return self._merged(state, sweep, updates)

    def fetch(self, state: Any) -> GibbsState:
        """Return the state itself."""
        found: GibbsState = result_of(state)
        return found

    def _merged(self, state: Any, sweep: Sweep | None, updates: list[Any]) -> Any:
        # The topics of a lane stay where they are, while the changes of the counts travel.
        self._topics = [
            self._cluster.submit(attrgetter("topics"), update, name="lane") for update in updates
        ]
        changes = [self._cluster.submit(without_topics, update, name="lane") for update in updates]
        merged = self._cluster.submit(
            merge, state, sweep, *changes, name="merge", priority=_MERGE_PRIORITY
        )
        while not wait_for(merged):
            pass
        result_of(merged, fetch=False)
        return merged


class _Census(NamedTuple):
    """The words of a partition: the number of documents that contain each, and how often it
    occurs.
    """

    words: Words
    frequency: FloatArray
    totals: FloatArray
    n_documents: int


def count_words_on_cluster(
    texts: Any,
    words: Sequence[str] | None = None,
    *,
    tokenizer: Tokenizer = "words",
    client: Any = None,
    private: bool = False,
    **limits: Any,
) -> tuple[ClusterRows, Words]:
    """Count the words of texts on a cluster: the given ones, or those that may distinguish topics.

    Parameters
    ----------
    texts : Dask bag of str, Dask series of str, or the list that `odeco.io.documents.text_parts`
    returns
        The documents, such as ``dask.bag.read_text("/shared/*.txt")`` or
        ``dask.dataframe.read_parquet("/shared/*.parquet")["text"]``.
    words : sequence of str, optional
        The words to count. Without them the texts are read once more, and words are left out that
        are rare, everywhere, or stop words.
    tokenizer : {"words", "blanks"}
        The definition of a word; see `TensorLDA.fit_text`.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.
    private : bool
        Whether the texts, which are then `text_parts`, must stay private: no error quotes them.
        Without `words` all words are counted. Which there are is private too, until
        `choose_vocabulary_privately` has chosen some of them.
    **limits
        Which words are left out: `min_documents`, `max_share`, `max_words` and `stop_words`, as for
        `TensorLDA.fit_text`.

    Returns
    -------
    rows : ClusterRows
        The counts, for `TensorLDA.fit`. They are counted again for every pass.
    words : array of str
        The words, one for each column.

    Examples
    --------
    >>> import dask.bag  # doctest: +SKIP
    >>> counts, words = count_words_on_cluster(
    ...     dask.bag.read_text("/shared/*.txt")
    ... )  # doctest: +SKIP
    >>> TensorLDA(20).fit(counts, words=words, tokenizer="words")  # doctest: +SKIP
    """
    dask = import_module("dask")
    cluster = find_cluster(client)
    parts = list(texts.to_delayed() if hasattr(texts, "to_delayed") else texts)
    n_rows = None

    def delayed(work: Callable[..., Any]) -> Any:
        return dask.delayed(partial(_silently, work) if private else work, pure=False)

    if words is None:
        census = delayed(_census)
        found: list[_Census] = cluster.client.gather(
            cluster.client.compute([census(part, tokenizer) for part in parts])
        )
        for each in found:
            if isinstance(each, PrivateFault):
                raise PrivateError(each.text)
        n_rows = [each.n_documents for each in found]
        whole = _joined(found)
        kept = slice(None) if private else select_vocabulary(*whole, **limits)
        # Private texts without any word have one that is in none of them: an error would depend on
        # the texts.
        words = whole.words[kept].tolist() or ["x"]
    counted = delayed(_counted)
    held = dask.delayed(list(words), pure=True, traverse=False)
    blocks = [counted(part, held, tokenizer) for part in parts]
    rows = from_delayed(
        blocks, n_features=len(words) if n_rows else None, n_rows=n_rows, client=client
    )
    return rows, np.asarray(words, dtype=np.str_)


def _silently(work: Callable[..., Any], texts: TextPart, *arguments: Any) -> Any:
    """Return what `work` makes of private texts, or a `PrivateFault`: Dask logs what a task
    raises.
    """
    try:
        return work(texts, *arguments)
    except (
        DocumentError,
        OSError,
    ) as error:  # of a reader of private texts: it names the file, and no record
        return PrivateFault(str(error))
    except Exception:  # noqa: BLE001 - its text may quote a record
        return PrivateFault(PRIVATE_FAULT)


def _census(texts: Iterable[str], tokenizer: Tokenizer) -> _Census:
    counted = count_words(texts, tokenizer=tokenizer, allow_empty=True)
    counts = counted.counts
    frequency = np.bincount(counts.indices, minlength=counted.words.size).astype(np.float64)
    totals = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
    return _Census(counted.words, frequency, totals, counts.shape[0])


def _joined(parts: list[_Census]) -> _Census:
    """Return the words of all partitions, in alphabetical order."""
    words, places = np.unique(np.concatenate([part.words for part in parts]), return_inverse=True)
    frequency = np.zeros(words.size)
    totals = np.zeros(words.size)
    np.add.at(frequency, places, np.concatenate([part.frequency for part in parts]))
    np.add.at(totals, places, np.concatenate([part.totals for part in parts]))
    return _Census(words, frequency, totals, sum(part.n_documents for part in parts))


def _counted(texts: Iterable[str], words: list[str], tokenizer: Tokenizer) -> Any:
    return count_words(texts, words, tokenizer=tokenizer, allow_empty=True).counts


def proportions_on_cluster(rows: ClusterRows, params: TopicParams, n_iterations: int) -> Any:
    """Return the expected proportions of topics in each document as a Dask array, computed when it
    is needed.
    """
    dask = import_module("dask")
    array = import_module("dask.array")
    held = dask.delayed((params.topic_word, params.alpha), pure=True, traverse=False)
    infer = dask.delayed(infer_topics, pure=True)
    task = _task(rows)
    parts = []
    for start, stop in nodes(0, rows.n_rows, UNIT_DOCUMENTS, UNIT_DOCUMENTS):
        pieces = rows.pieces(start, stop)
        places = pieces if rows.in_files else [piece._replace(source=None) for piece in pieces]
        blocks = [] if rows.in_files else [piece.source for piece in pieces]
        made = infer(task, held, n_iterations, dask.delayed(places, traverse=False), blocks)
        parts.append(array.from_delayed(made, (stop - start, params.alpha.size), np.float64))
    return array.concatenate(parts)


def _task(rows: ClusterRows) -> CountTask:
    return CountTask(rows.n_features, rows.name, rows.cluster.versions)


# ---- on workers ----------------------------------------------------------------------------------


def on_worker(
    task: tuple[CountTask, Callable[..., Any]],
    held: tuple[Any, ...],
    pieces: list[Piece],
    blocks: list[Any],
) -> Any:
    """Return ``work(documents, *held)`` for the documents of some pieces."""
    counts, work = task
    with one_thread():
        return work(counts.read(pieces, blocks), *held)


def sum_words(documents: Documents, n_words: int, basis: FloatArray | None, core: bool) -> Part:
    """Return the sums over the documents of one node."""
    leaves = (count_chunks(counts, first) for first, counts in documents)
    return sum_leaves(leaves, partial(WordSums, n_words, basis, core=core))


def list_tokens(documents: Documents, vocabulary: NDArray[np.int64]) -> Tokens:
    """Return the tokens of the documents of a lane."""
    return Tokens.from_counts(join_rows([counts for _, counts in documents]), vocabulary)


def draw_lane(
    number: int, lane: Tokens, state: GibbsState, rows: NDArray[np.float32]
) -> LaneUpdate:
    """Return the first topics of a lane, and their counts."""
    return state.draw(number, lane, rows)


def sweep_lane(
    number: int, lane: Tokens, state: GibbsState, topics: NDArray[np.uint16], average: bool
) -> LaneUpdate:
    """Return the topics of a lane, drawn anew, and the changes of the counts."""
    return state.sweep(number, lane, topics, average=average)


def without_topics(update: LaneUpdate) -> LaneUpdate:
    """Return the changes of the counts alone."""
    return replace(update, topics=update.topics[:0])


def merge(state: GibbsState, sweep: Sweep | None, *changes: LaneUpdate) -> GibbsState:
    """Return the state after the changes of all lanes."""
    return state.merge(changes, sweep)


def infer_topics(
    task: CountTask,
    held: tuple[FloatArray, FloatArray],
    n_iterations: int,
    pieces: list[Piece],
    blocks: list[Any],
) -> FloatArray:
    """Return the proportions of topics in some documents."""
    with one_thread():
        return np.concatenate(
            [
                document_topics(counts, *held, n_iterations=n_iterations)
                for _, counts in task.read(pieces, blocks)
            ]
        )
