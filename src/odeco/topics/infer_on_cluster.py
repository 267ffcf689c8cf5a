"""What documents on a cluster are about, given topics: each worker infers its own."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from odeco._types import FloatArray
from odeco.dask import ClusterRows, Piece, result_of, versions, work_on
from odeco.rows import nodes
from odeco.topics.corpus_on_cluster import CountTask
from odeco.topics.counts import UNIT_DOCUMENTS
from odeco.topics.fitted import FittedTopics
from odeco.topics.infer import document_topics, log_likelihood


def proportions_on_cluster(rows: ClusterRows, fitted: FittedTopics, n_iterations: int) -> Any:
    """Return the expected proportions of topics in each document as a Dask array, which is made when it is wanted."""
    dask, array = import_module("dask"), import_module("dask.array")
    held = dask.delayed((fitted.topic_word, fitted.alpha), pure=True, traverse=False)
    infer, task, parts = dask.delayed(infer_topics, pure=True), _task(rows), []
    for start, stop in nodes(0, rows.n_rows, UNIT_DOCUMENTS, UNIT_DOCUMENTS):
        pieces = rows.pieces(start, stop)
        places = pieces if rows.in_files else [piece._replace(source=None) for piece in pieces]
        blocks = [] if rows.in_files else [piece.source for piece in pieces]
        made = infer(task, held, n_iterations, dask.delayed(places, traverse=False), blocks)
        parts.append(array.from_delayed(made, (stop - start, fitted.alpha.size), np.float64))
    return array.concatenate(parts)


def likelihood_on_cluster(rows: ClusterRows, fitted: FittedTopics, n_iterations: int) -> tuple[float, float]:
    """Return the log-likelihood of the words of all documents, and how many words they have."""
    held = rows.cluster.hold((fitted.topic_word, fitted.alpha))
    ranges = nodes(0, rows.n_rows, UNIT_DOCUMENTS, UNIT_DOCUMENTS)
    futures = work_on(rows, measure_likelihood, (_task(rows), held, n_iterations), ranges)
    found = [result_of(future) for future in futures]
    # Of each document, so that they are added up in the order of one machine.
    return float(np.sum(np.concatenate([each for each, _ in found]))), float(sum(n_words for _, n_words in found))


def _task(rows: ClusterRows) -> CountTask:
    return CountTask(rows.n_features, rows.name, versions())


# ---- on workers ---------------------------------------------------------------------------------------------------


def infer_topics(
    task: CountTask, held: tuple[FloatArray, FloatArray], n_iterations: int, pieces: list[Piece], blocks: list[Any]
) -> FloatArray:
    """Return the proportions of topics in some documents."""
    return np.concatenate(
        [
            document_topics(counts.astype(np.int64), *held, n_iterations=n_iterations)
            for _, counts in task.read(pieces, blocks)
        ]
    )


def measure_likelihood(
    task: CountTask, held: tuple[FloatArray, FloatArray], n_iterations: int, pieces: list[Piece], blocks: list[Any]
) -> tuple[FloatArray, float]:
    """Return the log-likelihood of each of some documents, and the number of their words."""
    found, n_words = [], 0.0
    for _, checked in task.read(pieces, blocks):
        counts = checked.astype(np.int64)
        proportions = document_topics(counts, *held, n_iterations=n_iterations)
        found.append(log_likelihood(counts, held[0], proportions))
        n_words += float(counts.sum())
    return np.concatenate(found), n_words
