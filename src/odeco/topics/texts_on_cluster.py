"""Texts that lie on a cluster become word counts there; only words, and how often they occur, come to the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from odeco._types import FloatArray
from odeco.dask import ClusterRows, find_cluster, from_delayed
from odeco.topics.defaults import MAX_SHARE, MAX_WORDS, MIN_DOCUMENTS
from odeco.topics.vocabulary import STOP_WORDS, Cut, Words, count_words, kept_places


class _Census(NamedTuple):
    """The words of a partition: in how many of its documents each is, and how often it occurs."""

    words: Words
    frequency: FloatArray
    totals: FloatArray
    n_documents: int


def count_words_on_cluster(
    texts: Any,
    words: Sequence[str] | None = None,
    *,
    min_documents: int = MIN_DOCUMENTS,
    max_share: float = MAX_SHARE,
    max_words: int = MAX_WORDS,
    stop_words: Iterable[str] = STOP_WORDS,
    cut: Cut = "words",
    client: Any = None,
) -> tuple[ClusterRows, Words]:
    """Count the words of texts on a cluster: the given ones, or those that may tell topics apart.

    Parameters
    ----------
    texts : Dask bag of str, or Dask series of str
        The documents, such as ``dask.bag.read_text("/shared/*.txt")`` or
        ``dask.dataframe.read_parquet("/shared/*.parquet")["text"]``.
    words : sequence of str, optional
        The words to count. Without them the texts are read once more, and words are left out that are rare,
        everywhere, or stop words; the other parameters are those of ``odeco topics``.
    cut : {"words", "blanks"}
        What a word is; see `TensorLDA.fit_text`.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.

    Returns
    -------
    rows : ClusterRows
        The counts, for `TensorLDA.fit`. They are counted anew for every question.
    words : array of str
        The words, one for each column.

    Examples
    --------
    >>> import dask.bag  # doctest: +SKIP
    >>> counts, words = count_words_on_cluster(dask.bag.read_text("/shared/*.txt"))  # doctest: +SKIP
    >>> TensorLDA(20).fit(counts, words=words, cut="words")  # doctest: +SKIP
    """
    dask, cluster = import_module("dask"), find_cluster(client)
    parts, n_rows = list(texts.to_delayed()), None
    if words is None:
        census = dask.delayed(_census, pure=False)
        found: list[_Census] = cluster.client.gather(cluster.client.compute([census(part, cut) for part in parts]))
        n_rows = [each.n_documents for each in found]
        whole = _joined(found)
        places = kept_places(
            *whole,
            min_documents=min_documents,
            max_share=max_share,
            max_words=max_words,
            stop_words=stop_words,
        )
        words = whole.words[places].tolist()
    counted = dask.delayed(_counted, pure=False)
    blocks = [counted(part, list(words), cut) for part in parts]
    rows = from_delayed(blocks, n_features=len(words) if n_rows else None, n_rows=n_rows, client=client)
    return rows, np.asarray(words, dtype=np.str_)


def _census(texts: Iterable[str], cut: Cut) -> _Census:
    texts = list(texts)
    if not texts:
        return _Census(np.array([], dtype=np.str_), np.zeros(0), np.zeros(0), 0)
    counted = count_words(texts, cut=cut, may_be_none=True)
    counts, n_words = counted.counts, counted.words.size
    frequency = np.bincount(counts.indices, minlength=n_words).astype(np.float64)
    totals = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
    return _Census(counted.words, frequency, totals, len(texts))


def _joined(parts: list[_Census]) -> _Census:
    """Return the words of all partitions, in alphabetical order."""
    words, places = np.unique(np.concatenate([part.words for part in parts]), return_inverse=True)
    frequency, totals = np.zeros(words.size), np.zeros(words.size)
    np.add.at(frequency, places, np.concatenate([part.frequency for part in parts]))
    np.add.at(totals, places, np.concatenate([part.totals for part in parts]))
    return _Census(words, frequency, totals, sum(part.n_documents for part in parts))


def _counted(texts: Iterable[str], words: list[str], cut: Cut) -> Any:
    texts = list(texts)
    if not texts:
        return count_words(["x"], words, cut=cut).counts[:0]
    return count_words(texts, words, cut=cut).counts
