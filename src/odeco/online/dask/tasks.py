"""Tasks over the rows of a cluster: one for every leaf of a tree, joined on workers, fetched in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from odeco.errors import ClusterError
from odeco.io.rows import join_rows
from odeco.online.dask.client import (
    MAX_TRIES,
    Cluster,
    cluster_faults,
    import_distributed,
    result_of,
    wait_for,
)
from odeco.online.dask.pieces import PRIVATE_FAULT, PrivateFault
from odeco.online.tree import RADIX, Part, joined, nodes

if TYPE_CHECKING:
    from odeco.online.dask.partitions import ClusterRows

#: Leaves per thread, if there are enough of them, so that all threads finish at about the same
#: time.
_LEAVES_PER_THREAD = 3


#: The priority of tasks that join nodes, above those that add up leaves: joined nodes take less
#: memory.
_JOIN_PRIORITY = 10


#: The first row of a sum, and where a segment or a node of it begins and ends among all rows.
Segment = tuple[int, int, int]


class Order(NamedTuple):
    """What workers do with the rows of a node.

    Attributes
    ----------
    work : callable
        Called with `task`, `held`, pieces and blocks; returns the sum over the rows of a node as a
        `Part`.
    task : object
        Its arguments; small.
    held : object
        A large argument that all tasks share. It is sent once.
    unit : int
        The number of rows in a leaf of the tree.
    private : bool
        Whether an error must not depend on a row.
    """

    work: Callable[..., Any]
    task: Any
    held: Any
    unit: int
    private: bool = False


class Answer(NamedTuple):
    """The sum over the next rows, or None while workers add them up; and the number of rows added
    up beyond these.
    """

    part: Part | None
    n_ahead: int


def ask(rows: ClusterRows, order: Order, segments: Sequence[Segment]) -> Iterator[Answer]:
    """Let workers add up some segments of rows, and yield the parts of their sums in order.

    Parameters
    ----------
    rows : ClusterRows
        The rows.
    order : Order
        What to add up.
    segments : sequence of (origin, start, stop)
        Rows `start` to `stop` of a sum that begins with row `origin`. A part never extends over two
        segments.

    Notes
    -----
    The block is the result of one task: it is sent once, and can be computed again if the worker
    that has it dies. All nodes are submitted at once, and those of one parent are joined on a
    worker. A task that Dask gives up because several workers died under it is submitted again, with
    rows under new keys.
    """
    with _hidden_errors() if order.private else nullcontext(), cluster_faults(rows.cluster):
        yield from _ask(rows, order, segments)


@contextmanager
def _hidden_errors() -> Iterator[None]:
    """Replace errors that may quote a record, such as those of the tasks that compute the blocks of
    a collection.
    """
    try:
        yield
    except (ClusterError, PrivateError, ModuleNotFoundError):
        raise
    except Exception:  # noqa: BLE001 - its text may quote a record
        raise PrivateError(PRIVATE_FAULT) from None


class PrivateError(RuntimeError):
    """An error of a private run on a cluster whose text depends on public facts only."""


def _ask(rows: ClusterRows, order: Order, segments: Sequence[Segment]) -> Iterator[Answer]:
    unit = order.unit
    killed = import_distributed().scheduler.KilledWorker
    n_tries = 0
    largest = [
        (origin, origin + begins, origin + ends)
        for origin, start, stop in segments
        for begins, ends in nodes(start - origin, stop - origin, unit, unit * RADIX**64)
    ]
    while largest:
        sent = _Sent(rows, order, largest)
        try:
            for number in range(len(largest)):
                while not wait_for(sent.futures[number]):
                    yield Answer(None, sent.n_ahead())
                part: Part = result_of(sent.futures[number])
                if isinstance(part, PrivateFault):
                    raise PrivateError(part.text)
                largest = largest[1:]
                sent.take(number)
                yield Answer(part, sent.n_ahead())
        except killed:
            n_tries += 1
            if n_tries == MAX_TRIES:
                raise
            rows = rows.renewed()


class _Sent:
    """Nodes that were submitted: their futures, and those of the leaves below them that are not
    done.
    """

    def __init__(self, rows: ClusterRows, order: Order, largest: Sequence[Segment]) -> None:
        cluster = rows.cluster
        height = leaf_height(
            order.unit, [stop - start for _, start, stop in largest], cluster.n_threads
        )
        leaves = [leaf for node in largest for leaf in _leaves(node, height, order.unit)]
        arguments = (order.task, cluster.hold(order.held))
        found = iter(
            work_on(rows, order.work, arguments, [(start, stop) for _, start, stop in leaves])
        )
        self._undone: list[tuple[int, int, Any]] = []
        self._done = [0] * len(largest)
        self.futures: list[Any] = []
        for number, node in enumerate(largest):
            own = {leaf: next(found) for leaf in _leaves(node, height, order.unit)}
            self._undone += [
                (number, stop - start, future) for (_, start, stop), future in own.items()
            ]
            self.futures.append(_joined(cluster, node, own, order.unit))

    def n_ahead(self) -> int:
        """Return the number of rows that workers have added up in nodes that were not taken yet."""
        undone = []
        for number, n_rows, future in self._undone:
            if future.status == "finished":
                self._done[number] += n_rows
            else:
                undone.append((number, n_rows, future))
        self._undone = undone  # so that the futures of joined nodes are released
        return sum(self._done)

    def take(self, number: int) -> None:
        """Release a node that has arrived."""
        self.futures[number] = None
        self._undone = [each for each in self._undone if each[0] != number]
        self._done[number] = 0


def leaf_height(unit: int, sizes: Sequence[int], n_threads: int) -> int:
    """Return the number of rows in a task: the largest that leaves enough tasks for all threads."""
    height = unit
    while height < max(sizes):
        if sum(-(-size // (height * RADIX)) for size in sizes) < _LEAVES_PER_THREAD * n_threads:
            break
        height *= RADIX
    return height


def _leaves(node: Segment, height: int, unit: int) -> list[Segment]:
    origin, start, stop = node
    cuts = nodes(start - origin, stop - origin, unit, height)
    return [(origin, origin + begins, origin + ends) for begins, ends in cuts]


def work_on(
    rows: ClusterRows,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
    ranges: Sequence[tuple[int, int]],
) -> list[Any]:
    """Return the futures of ``work(*arguments, pieces, blocks)`` for some ranges of rows."""
    pieces = [rows.pieces(start, stop) for start, stop in ranges]
    if rows.in_files:
        return [rows.cluster.submit(work, *arguments, each, [], name="rows") for each in pieces]
    calls = []
    for each in pieces:
        places = [piece._replace(source=None) for piece in each]
        blocks = [piece.source for piece in each]
        calls.append((work, (*arguments, places, blocks)))
    return rows.cluster.compute(calls, name="rows")


def _joined(cluster: Cluster, node: Segment, leaves: dict[Segment, Any], unit: int) -> Any:
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


def join(*parts: Any) -> Part | PrivateFault:
    """Return the sum over the rows of consecutive nodes, or their rows that are kept; a fault, if
    there is one.
    """
    for part in parts:
        if isinstance(part, PrivateFault):
            return part
    first: Part = parts[0]
    if first.rows is None:
        return joined([*parts])
    n_rows, checksum = (
        sum(getattr(part, name) for part in parts) for name in ("n_rows", "checksum")
    )
    return first._replace(
        n_rows=n_rows, checksum=checksum % 2**64, rows=join_rows([part.rows for part in parts])
    )
