"""Gibbs sweeps on a cluster: every lane is a chain of tasks, and the updates of all lanes are merged per sweep.

The lanes, their seeds and the order in which their updates are added are those of one machine, and so is the result.
Tokens and their topics stay on the workers; if one dies, its lanes are drawn again from the start, with the same
random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray, IndexArray
from odeco.io.rows import join_rows
from odeco.models.lda.corpus import RefinedTopics, initial_priors, smooth_with_frequencies, sweep_schedule
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
from odeco.online.dask.client import Cluster, result_of, tried_again, wait_for
from odeco.online.dask.partitions import ClusterRows, Piece
from odeco.online.dask.requests import work_on

#: Updates of lanes are merged before further lanes begin.
_MERGE_PRIORITY = 10


def refine_on_cluster(
    rows: ClusterRows,
    task: Any,
    topic_word: FloatArray,
    *,
    totals: NDArray[np.int64],
    lengths: IndexArray,
    n_sweeps: int,
    seed: int,
    eta: float | None,
    callback: Callable[[int], object],
) -> RefinedTopics:
    """Refine topics by sweeps of collapsed Gibbs sampling; see `odeco.models.lda.corpus.refine_topics`.

    Parameters
    ----------
    rows : ClusterRows
        The documents.
    task : CountTask
        How workers read them.
    topic_word : ndarray of shape (k, V)
        Topics to start from.
    totals, lengths : arrays
        How often each word occurs, and the length of each document.
    n_sweeps, seed, eta, callback
        As there.
    """
    vocabulary = words_that_occur(totals)
    priors, histogram = initial_priors(len(topic_word), n_sweeps, eta), np.bincount(lengths, minlength=1)
    shared = GibbsState.begin(*priors, seed, rows.n_features, histogram, len(vocabulary))
    starts = np.concatenate([[0], np.cumsum(lengths)])
    spans = lane_spans(starts, choose_lanes(int(starts[-1]), max(1, shared.table.size)))
    start = shared.pad(smooth_with_frequencies(topic_word[:, vocabulary], totals[vocabulary]))

    def run() -> tuple[NDArray[np.float32], FloatArray, float]:
        cluster = rows.cluster
        begun = cluster.hold(shared)
        lanes = work_on(rows, list_tokens, (task, cluster.hold(vocabulary)), spans)
        sent = _send_chains(cluster, begun, lanes, cluster.hold(start), sweep_schedule(n_sweeps, eta))
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


def _send_chains(cluster: Cluster, begun: Any, lanes: list[Any], start: Any, sweeps: list[Sweep]) -> list[Any]:
    """Send out the chains of all lanes; return the futures of what is known after each sweep."""
    numbered = list(enumerate(lanes))
    pairs = [cluster.submit(draw_first, begun, lane, number, start, name="draw") for number, lane in numbered]
    known, sent = _merged(cluster, begun, None, pairs), []
    for sweep in sweeps:
        # The topics of a lane stay where they are, while its update travels.
        topics = [cluster.submit(itemgetter(0), pair, name="lane") for pair in pairs]
        pairs = [
            cluster.submit(sweep_lane, known, lane, topics[number], number, sweep.average, name="sweep")
            for number, lane in numbered
        ]
        known = _merged(cluster, known, sweep, pairs)
        sent.append(known)
    return sent


def _merged(cluster: Cluster, known: Any, sweep: Sweep | None, pairs: list[Any]) -> Any:
    changes = [cluster.submit(itemgetter(1), pair, name="lane") for pair in pairs]
    return cluster.submit(merge, known, sweep, *changes, name="merge", priority=_MERGE_PRIORITY)


# ---- on workers ---------------------------------------------------------------------------------------------------


def list_tokens(task: Any, vocabulary: NDArray[np.int64], pieces: list[Piece], blocks: list[Any]) -> Tokens:
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
    """Return the topics of a lane, drawn anew, and what that changes. What is given stays as it is."""
    lane = _lane(tokens, number, topics.copy())
    return lane.topics, shared.next_sweep().sweep(lane, average=average)


def merge(shared: GibbsState, sweep: Sweep | None, *changes: LaneUpdate) -> GibbsState:
    """Return what is known after a sweep, or after the first draw, with the priors learnt from it."""
    return shared.merge(changes) if sweep is None else shared.next_sweep().after(changes, sweep)


def finish(shared: GibbsState) -> tuple[NDArray[np.float32], FloatArray, float]:
    """Return what is wanted of the last sweep."""
    return shared.mean_counts(), shared.alpha, shared.eta


def _lane(tokens: Tokens, number: int, topics: NDArray[np.uint16]) -> Lane:
    return Lane(number, 0, len(tokens.starts) - 1, tokens.starts, tokens.words, topics)
