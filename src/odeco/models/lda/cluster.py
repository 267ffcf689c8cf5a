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
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.threads import one_thread
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import DocumentError, WordCountError
from odeco.io.documents import TextPart
from odeco.io.reading import rebatch
from odeco.io.rows import join_rows
from odeco.models.lda.corpus import (
    RefinedTopics,
    initial_priors,
    smooth_with_frequencies,
    sum_leaves,
    sums_of_part,
    sweep_schedule,
)
from odeco.models.lda.counts import (
    N_PARTS,
    UNIT_DOCUMENTS,
    DocumentWeight,
    as_counts,
    count_chunks,
    divide_documents,
)
from odeco.models.lda.gibbs import (
    GibbsState,
    Lane,
    LaneUpdate,
    Sweep,
    Tokens,
    choose_lanes,
    lane_spans,
    words_that_occur,
)
from odeco.models.lda.inference import document_topics, log_likelihood, split_chosen, spread_evenly
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import LdaSettings
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
from odeco.online.dask.requests import cluster_rows
from odeco.online.dask.tasks import Order, PrivateError, ask, leaf_height, work_on
from odeco.online.tree import Part, joined, nodes

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA


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


class Counted(NamedTuple):
    """How often each word occurs, the number of documents that contain it, and the length of each
    document.
    """

    totals: IndexArray
    frequency: IndexArray
    lengths: IndexArray


@dataclass
class ClusterCorpus:
    """Documents on a cluster, with the methods of `LocalCorpus`."""

    rows: ClusterRows
    settings: LdaSettings
    vocabulary: IndexArray | None = None
    _counted: list[Counted] = field(default_factory=list)

    @property
    def n_documents(self) -> int:
        """Number of documents."""
        return self.rows.n_rows

    @property
    def n_words(self) -> int:
        """The size of the vocabulary."""
        if self.vocabulary is None:
            return self.rows.n_features
        return int(self.vocabulary.size)

    def among(self, vocabulary: IndexArray) -> ClusterCorpus:
        """Return the same documents over a smaller vocabulary."""
        return ClusterCorpus(self.rows, self.settings, vocabulary, self._counted)

    def sums(self, basis: FloatArray | None = None, *, core: bool = True) -> WordSums:
        """Return the sums over all documents."""
        task = (_task(self.rows), self.settings.document_weight, core)
        order = Order(sum_words, task, (basis, self.vocabulary), UNIT_DOCUMENTS)
        parts = [
            part
            for part, _ in ask(self.rows, order, [(0, 0, self.n_documents)])
            if part is not None
        ]
        empty = WordSums(self.n_words, basis, core=core)
        if parts:
            return sums_of_part(empty, joined(parts))
        return empty

    def parts(self) -> list[ClusterCorpus]:
        """Return the documents in `N_PARTS` parts; see `divide_documents`. Each sum over a part
        reads all documents.
        """
        task = (_task(self.rows), self.n_documents)
        held = self.rows.cluster.hold(self._count().frequency)
        futures = work_on(self.rows, divide, (task, held), self._ranges())
        parts = np.concatenate([result_of(future) for future in futures])
        rows = [ChosenRows(self.rows, np.flatnonzero(parts == part)) for part in range(N_PARTS)]
        return [ClusterCorpus(each, self.settings) for each in rows]

    def word_totals(self) -> FloatArray:
        """Return how often each word occurs."""
        return self._count().totals.astype(np.float64)

    def completion_halves(self, seed: int) -> tuple[Any, Any]:
        """Return the two halves of a sample of documents: these few come to the client."""
        usable = np.flatnonzero(self._count().lengths >= 2)
        found = []
        chosen = usable[spread_evenly(usable.size)]
        for start, stop in self._ranges():
            own = chosen[(chosen >= start) & (chosen < stop)]
            if own.size:
                found += work_on(self.rows, pick, (_task(self.rows), own), [(start, stop)])
        documents = [result_of(future) for future in found]
        if documents:
            counts = sparse.vstack(documents, format="csr")
        else:
            counts = sparse.csr_array((0, self.n_words))
        return split_chosen(counts, seed=seed)

    def refined(
        self,
        topic_word: FloatArray,
        *,
        n_sweeps: int,
        seed: int,
        eta: float | None,
        callback: Callable[[int], object],
    ) -> RefinedTopics:
        """Return topics after some Gibbs sweeps; see `odeco.models.lda.corpus.refine_topics`."""
        rows = self.rows
        task = _task(self.rows)
        totals, _, lengths = self._count()
        vocabulary = words_that_occur(totals)
        priors = initial_priors(
            len(topic_word), n_sweeps, eta, int(lengths.sum()) / max(lengths.size, 1)
        )
        histogram = np.bincount(lengths, minlength=1)
        shared = GibbsState.begin(*priors, seed, rows.n_features, histogram, len(vocabulary))
        starts = np.concatenate([[0], np.cumsum(lengths)])
        spans = lane_spans(starts, choose_lanes(int(starts[-1]), max(1, shared.table.size)))
        start = shared.pad(smooth_with_frequencies(topic_word[:, vocabulary], totals[vocabulary]))

        def run() -> tuple[NDArray[np.float32], FloatArray, float]:
            cluster = rows.cluster
            lanes = work_on(rows, list_tokens, (task, cluster.hold(vocabulary)), spans)
            sweeps = sweep_schedule(n_sweeps, eta)
            sent = _send_chains(cluster, cluster.hold(shared), lanes, cluster.hold(start), sweeps)
            result = cluster.submit(finish, sent[-1], name="topics")
            for number in range(n_sweeps):
                while not wait_for(sent[number]):
                    pass
                result_of(sent[number], fetch=False)
                sent[number] = None
                callback(number + 1)
            found: tuple[NDArray[np.float32], FloatArray, float] = result_of(result)
            return found

        return RefinedTopics.from_words(vocabulary, rows.n_features, *tried_again(run))

    def _count(self) -> Counted:
        """Return counts of words, and the length of each document. Workers count at the first
        call.
        """
        if not self._counted:
            futures = work_on(self.rows, count_lengths, (_task(self.rows),), self._ranges())
            totals, frequency, lengths = zip(
                *(result_of(future) for future in futures), strict=True
            )
            self._counted.append(
                Counted(np.sum(totals, axis=0), np.sum(frequency, axis=0), np.concatenate(lengths))
            )
        return self._counted[0]

    def _ranges(self) -> list[tuple[int, int]]:
        """Return the stretches of documents that workers read at a time."""
        height = leaf_height(UNIT_DOCUMENTS, [self.n_documents], self.rows.cluster.n_threads)
        return nodes(0, self.n_documents, UNIT_DOCUMENTS, height)


def _send_chains(
    cluster: Cluster, begun: Any, lanes: list[Any], start: Any, sweeps: list[Sweep]
) -> list[Any]:
    """Send out the chains of all lanes; return the futures of the states after each sweep."""
    numbered = list(enumerate(lanes))
    pairs = [
        cluster.submit(draw_first, begun, lane, number, start, name="draw")
        for number, lane in numbered
    ]
    known = _merged(cluster, begun, None, pairs)
    sent = []
    for sweep in sweeps:
        # The topics of a lane stay where they are, while its update travels.
        topics = [cluster.submit(itemgetter(0), pair, name="lane") for pair in pairs]
        pairs = [
            cluster.submit(
                sweep_lane, known, lane, topics[number], number, sweep.average, name="sweep"
            )
            for number, lane in numbered
        ]
        known = _merged(cluster, known, sweep, pairs)
        sent.append(known)
    return sent


def _merged(cluster: Cluster, known: Any, sweep: Sweep | None, pairs: list[Any]) -> Any:
    changes = [cluster.submit(itemgetter(1), pair, name="lane") for pair in pairs]
    return cluster.submit(merge, known, sweep, *changes, name="merge", priority=_MERGE_PRIORITY)


def as_cluster_counts(
    model: TensorLDA, X: Any, client: Any = None, *, reset: bool = False, private: bool = False
) -> Any:
    """Return documents on a cluster; their counts are checked where they are."""
    rows = cluster_rows(X, None, private=private, client=client)
    if reset:
        model.__dict__.pop("feature_names_in_", None)
        model.n_features_in_ = rows.n_features
    elif rows.n_features != model.n_features_in_:
        raise ValueError(
            f"X has {rows.n_features} features, but TensorLDA is expecting {model.n_features_in_} "
            "features as input."
        )
    return rows


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
    if words is None:
        census = dask.delayed(partial(_silently, _census) if private else _census, pure=False)
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
    counted = dask.delayed(partial(_silently, _counted) if private else _counted, pure=False)
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
    texts = list(texts)
    if not texts:
        return _Census(np.array([], dtype=np.str_), np.zeros(0), np.zeros(0), 0)
    counted = count_words(texts, tokenizer=tokenizer, allow_empty=True)
    counts = counted.counts
    n_words = counted.words.size
    frequency = np.bincount(counts.indices, minlength=n_words).astype(np.float64)
    totals = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
    return _Census(counted.words, frequency, totals, len(texts))


def _joined(parts: list[_Census]) -> _Census:
    """Return the words of all partitions, in alphabetical order."""
    words, places = np.unique(np.concatenate([part.words for part in parts]), return_inverse=True)
    frequency = np.zeros(words.size)
    totals = np.zeros(words.size)
    np.add.at(frequency, places, np.concatenate([part.frequency for part in parts]))
    np.add.at(totals, places, np.concatenate([part.totals for part in parts]))
    return _Census(words, frequency, totals, sum(part.n_documents for part in parts))


def _counted(texts: Iterable[str], words: list[str], tokenizer: Tokenizer) -> Any:
    texts = list(texts)
    if not texts:
        return count_words(["x"], words, tokenizer=tokenizer).counts[:0]
    return count_words(texts, words, tokenizer=tokenizer).counts


def proportions_on_cluster(model: TensorLDA, X: Any) -> Any:
    """Return the expected proportions of topics in each document as a Dask array, computed when it
    is needed.
    """
    dask = import_module("dask")
    array = import_module("dask.array")
    rows = as_cluster_counts(model, X)
    params = model._learnt.fit.params
    n_iterations = model.max_inference_iter
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


def likelihood_on_cluster(model: TensorLDA, X: Any) -> tuple[float, float]:
    """Return the log-likelihood of the words of all documents, and their number of words."""
    rows = as_cluster_counts(model, X)
    params = model._learnt.fit.params
    n_iterations = model.max_inference_iter
    held = rows.cluster.hold((params.topic_word, params.alpha))
    ranges = nodes(0, rows.n_rows, UNIT_DOCUMENTS, UNIT_DOCUMENTS)
    futures = work_on(rows, measure_likelihood, (_task(rows), held, n_iterations), ranges)
    found = [result_of(future) for future in futures]
    # Of each document, so that they are added up in the order of one machine.
    return float(np.sum(np.concatenate([each for each, _ in found]))), float(
        sum(n_words for _, n_words in found)
    )


def _task(rows: ClusterRows) -> CountTask:
    return CountTask(rows.n_features, rows.name, rows.cluster.versions)


# ---- on workers ----------------------------------------------------------------------------------


def sum_words(
    task: tuple[CountTask, DocumentWeight, bool],
    held: tuple[FloatArray | None, IndexArray | None],
    pieces: list[Piece],
    blocks: list[Any],
) -> Part:
    """Return the sums over the documents of one node."""
    counts, document_weight, core = task
    basis, vocabulary = held
    n_words = counts.n_words if vocabulary is None else int(vocabulary.size)

    def leaves() -> Iterator[Any]:
        for first, documents in counts.read(pieces, blocks):
            cut = count_chunks(documents, document_weight=document_weight, first=first)
            yield cut if vocabulary is None else (chunk.among(vocabulary) for chunk in cut)

    with one_thread():
        return sum_leaves(leaves(), partial(WordSums, n_words, basis, core=core, parallel=False))


def count_lengths(task: CountTask, pieces: list[Piece], blocks: list[Any]) -> Counted:
    """Return what is counted in some documents."""
    totals = np.zeros(task.n_words, dtype=np.int64)
    frequency = np.zeros(task.n_words, dtype=np.int64)
    lengths = []
    for _, counts in task.read(pieces, blocks):
        totals += np.bincount(counts.indices, weights=counts.data, minlength=task.n_words).astype(
            np.int64
        )
        frequency += np.bincount(counts.indices, minlength=task.n_words)
        lengths.append(np.asarray(counts.sum(axis=1), dtype=np.int64))
    return Counted(totals, frequency, np.concatenate(lengths))


def divide(
    task: tuple[CountTask, int], frequency: IndexArray, pieces: list[Piece], blocks: list[Any]
) -> Any:
    """Return the part of each of some documents."""
    counts, n_documents = task
    found = [
        divide_documents(each, frequency, n_documents) for _, each in counts.read(pieces, blocks)
    ]
    return np.concatenate(found).astype(np.uint8)


def pick(task: CountTask, documents: IndexArray, pieces: list[Piece], blocks: list[Any]) -> Any:
    """Return the documents with the given numbers."""
    found = [
        counts[documents[(documents >= first) & (documents < first + counts.shape[0])] - first]
        for first, counts in task.read(pieces, blocks)
    ]
    return sparse.vstack(found, format="csr")


def list_tokens(
    task: CountTask, vocabulary: NDArray[np.int64], pieces: list[Piece], blocks: list[Any]
) -> Tokens:
    """Return the tokens of the documents of a lane."""
    counts = join_rows([counts for _, counts in task.read(pieces, blocks)])
    return Tokens.from_counts(counts.astype(np.int64), vocabulary)


def draw_first(
    shared: GibbsState, tokens: Tokens, number: int, start: NDArray[np.float32]
) -> tuple[NDArray[np.uint16], LaneUpdate]:
    """Return the first topics of a lane, and their counts."""
    lane = _lane(tokens, number, np.zeros(len(tokens.words), dtype=np.uint16))
    shared.draw(lane, start)
    return lane.topics, shared.count(lane)


def sweep_lane(
    shared: GibbsState, tokens: Tokens, topics: NDArray[np.uint16], number: int, average: bool
) -> tuple[NDArray[np.uint16], LaneUpdate]:
    """Return the topics of a lane, drawn anew, and the changes of the counts. No argument is
    changed.
    """
    lane = _lane(tokens, number, topics.copy())
    return lane.topics, shared.next_sweep().sweep(lane, average=average)


def merge(shared: GibbsState, sweep: Sweep | None, *changes: LaneUpdate) -> GibbsState:
    """Return the state after a sweep, or after the first draw, with the priors learnt from it."""
    if sweep is None:
        return shared.merge(changes)
    return shared.next_sweep().after(changes, sweep)


def finish(shared: GibbsState) -> tuple[NDArray[np.float32], FloatArray, float]:
    """Return the expected counts and the priors after the last sweep."""
    return shared.mean_counts(), shared.alpha, shared.eta


def _lane(tokens: Tokens, number: int, topics: NDArray[np.uint16]) -> Lane:
    return Lane(number, 0, len(tokens.starts) - 1, tokens.starts, tokens.words, topics)


def infer_topics(
    task: CountTask,
    held: tuple[FloatArray, FloatArray],
    n_iterations: int,
    pieces: list[Piece],
    blocks: list[Any],
) -> FloatArray:
    """Return the proportions of topics in some documents."""
    return np.concatenate(
        [
            document_topics(counts.astype(np.int64), *held, n_iterations=n_iterations)
            for _, counts in task.read(pieces, blocks)
        ]
    )


def measure_likelihood(
    task: CountTask,
    held: tuple[FloatArray, FloatArray],
    n_iterations: int,
    pieces: list[Piece],
    blocks: list[Any],
) -> tuple[FloatArray, float]:
    """Return the log-likelihood of each of some documents, and the number of their words."""
    found = []
    n_words = 0.0
    for _, checked in task.read(pieces, blocks):
        counts = checked.astype(np.int64)
        proportions = document_topics(counts, *held, n_iterations=n_iterations)
        found.append(log_likelihood(counts, held[0], proportions))
        n_words += float(counts.sum())
    return np.concatenate(found), n_words
