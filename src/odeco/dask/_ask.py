"""A question goes out to the cluster, about rows that follow each other; sums over them come back, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from odeco._types import FloatArray
from odeco.dask._client import MOST_TRIES, Cluster, import_distributed, result_of, versions, wait_for
from odeco.dask._rows import ClusterRows, unit_of
from odeco.dask._work import Task, add_up, join
from odeco.rows import RADIX, Part, nodes
from odeco.rows import Question as Kind

#: So many leaves a thread, if there are as many, so that the last to finish are not waited for long.
_LEAVES_PER_THREAD = 3
#: Nodes are joined before further leaves are added up: what is joined takes less memory.
_JOIN_PRIORITY = 10

#: The first row of a sum, and where a stretch or a node of it begins and ends among all rows.
Stretch = tuple[int, int, int]


class Question(NamedTuple):
    """What is asked: of which kind, about which block, of which order, and for a private run the bound on norms."""

    kind: Kind
    block: FloatArray
    order: int
    norm_bound: float | None = None


class Answer(NamedTuple):
    """What has come back: the sum over the rows that follow, or None while they are worked on; and rows done ahead."""

    part: Part | None
    n_ahead: int


def ask(rows: ClusterRows, question: Question, stretches: Sequence[Stretch]) -> Iterator[Answer]:
    """Send a question out about some stretches of rows, and yield the parts of their sums in order.

    Parameters
    ----------
    rows : ClusterRows
        The rows.
    question : Question
        What is asked.
    stretches : sequence of (origin, start, stop)
        Rows `start` to `stop`, of a sum that began with row `origin`. A part never reaches from one stretch into the
        next.

    Notes
    -----
    The block is held as the result of one task: it leaves the client once, and can be made again if the worker that has
    it dies. All nodes are sent out at once, and those of one parent are joined on a worker. A task that lost several
    workers in turn, which Dask then gives up, is asked again.
    """
    unit, killed, n_tries = unit_of(rows), import_distributed().scheduler.KilledWorker, 0
    largest = [
        (origin, origin + begins, origin + ends)
        for origin, start, stop in stretches
        for begins, ends in nodes(start - origin, stop - origin, unit, unit * RADIX**64)
    ]
    while largest:
        sent = _Sent(rows, question, largest)
        try:
            for number in range(len(largest)):
                while not wait_for(sent.futures[number]):
                    yield Answer(None, sent.n_ahead())
                part: Part = result_of(sent.futures[number])
                largest = largest[1:]
                sent.take(number)
                yield Answer(part, sent.n_ahead())
        except killed:
            n_tries += 1
            if n_tries == MOST_TRIES:
                raise


class _Sent:
    """Nodes that have been sent out: their futures, and those of the leaves below them that are not done."""

    def __init__(self, rows: ClusterRows, question: Question, largest: Sequence[Stretch]) -> None:
        cluster = rows.cluster
        height = _leaf_height(rows, largest, cluster.n_threads)
        leaves = [leaf for node in largest for leaf in _leaves(node, height, unit_of(rows))]
        found = iter(_submit(cluster, rows, question, leaves))
        self._undone: list[tuple[int, int, Any]] = []
        self._done = [0] * len(largest)
        self.futures: list[Any] = []
        for number, node in enumerate(largest):
            own = {leaf: next(found) for leaf in _leaves(node, height, unit_of(rows))}
            self._undone += [(number, stop - start, future) for (_, start, stop), future in own.items()]
            self.futures.append(_joined(cluster, node, own, unit_of(rows)))

    def n_ahead(self) -> int:
        """Return how many rows workers have done of nodes that were not taken yet."""
        undone = []
        for number, n_rows, future in self._undone:
            if future.status == "finished":
                self._done[number] += n_rows
            else:
                undone.append((number, n_rows, future))
        self._undone = undone  # what is done and joined can then be let go of
        return sum(self._done)

    def take(self, number: int) -> None:
        """Let go of a node that has arrived."""
        self.futures[number] = None
        self._undone = [each for each in self._undone if each[0] != number]
        self._done[number] = 0


def _leaf_height(rows: ClusterRows, largest: Sequence[Stretch], n_threads: int) -> int:
    """Return how many rows a leaf of the work has: as many as leave enough of them for all threads."""
    sizes, height = [stop - start for _, start, stop in largest], unit_of(rows)
    while height < max(sizes):
        if sum(-(-size // (height * RADIX)) for size in sizes) < _LEAVES_PER_THREAD * n_threads:
            break
        height *= RADIX
    return height


def _leaves(node: Stretch, height: int, unit: int) -> list[Stretch]:
    origin, start, stop = node
    cuts = nodes(start - origin, stop - origin, unit, height)
    return [(origin, origin + begins, origin + ends) for begins, ends in cuts]


def _submit(cluster: Cluster, rows: ClusterRows, question: Question, leaves: Sequence[Stretch]) -> list[Any]:
    """Return the futures of leaves."""
    task = Task(
        question.kind, question.order, unit_of(rows), rows.n_features, rows.name, question.norm_bound, versions()
    )
    held = cluster.hold(question.block)
    pieces = [rows.pieces(start, stop) for _, start, stop in leaves]
    if rows.in_files:
        return [cluster.submit(add_up, task, held, each, [], name="sum") for each in pieces]
    calls = []
    for each in pieces:
        places, blocks = [piece._replace(source=None) for piece in each], [piece.source for piece in each]
        calls.append((add_up, (task, held, places, blocks)))
    return cluster.compute(calls, name="sum")


def _joined(cluster: Cluster, node: Stretch, leaves: dict[Stretch, Any], unit: int) -> Any:
    """Return the future of a node: that of a leaf, or of what joins its children."""
    if node in leaves:
        return leaves[node]
    origin, start, stop = node
    height = unit
    while height * RADIX < stop - start:
        height *= RADIX
    edges = [*range(start, stop, height), stop]
    children = [(origin, begins, ends) for begins, ends in pairwise(edges)]
    futures = [_joined(cluster, child, leaves, unit) for child in children]
    return cluster.submit(join, *futures, name="join", priority=_JOIN_PRIORITY)
