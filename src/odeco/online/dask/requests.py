"""Sums over rows on a cluster: tasks for its workers, which return the parts of a sum in order.

A task runs in one thread of a worker, and changes none of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from odeco._util.threads import one_thread
from odeco._util.types import FloatArray
from odeco.errors import SourceError
from odeco.io.reading import sum_of_bits
from odeco.io.rows import check_private_structure, is_sparse, row_slice, to_csr
from odeco.io.source import Block, Source
from odeco.online.block import QuantizedRows, join_kept
from odeco.online.dask.client import (
    MAX_TRIES,
    Cluster,
    check_versions,
    cluster_faults,
    import_distributed,
    result_of,
    wait_for,
)
from odeco.online.dask.partitions import ClusterRows, Piece, as_cluster_rows
from odeco.online.kept_rows import KeptRows, RowLimit, first_threshold, selected
from odeco.online.run import Run
from odeco.online.sums import Question, RowSum, check_size
from odeco.online.sums import Question as Kind
from odeco.online.tree import ALL_ROWS, RADIX, Part, joined, nodes, rows_per_unit
from odeco.privacy.clip import clipped_rows


class Task(NamedTuple):
    """The arguments of a task besides rows and block.

    Attributes
    ----------
    kind : {"image", "core", "entries", "rows"}
        The question.
    order : int
        The order of the moment.
    unit : int
        Rows of a leaf.
    n_features : int
        The width of the rows.
    name : str
        The name of the rows in errors.
    norm_bound : float or None
        For a private run, the norm to which rows are clipped; no error then depends on a row.
    versions : tuple
        The versions of packages on the client, and the kernels of linear algebra on the workers.
    n_rows : int
        The number of all rows.
    limit : RowLimit or None
        Where rows are kept: the most of them.
    """

    kind: Kind
    order: int
    unit: int
    n_features: int
    name: str
    norm_bound: float | None
    versions: tuple[tuple[str, str], ...]
    n_rows: int
    limit: RowLimit | None = None


def add_up(task: Task, block: FloatArray, pieces: list[Piece], blocks: list[Any]) -> Part:
    """Return the sum over the rows of one node; `blocks` are the arrays of pieces that are not in files."""
    check_versions(task.versions)
    with one_thread():
        if task.kind == "rows":
            return _pick_rows(task, pieces, blocks)
        total, checksum = RowSum(task.kind, block, task.order), 0
        if task.norm_bound is None:
            for rows in read(pieces, blocks, task.n_features, task.name):
                total.update(rows)
                checksum += sum_of_bits(rows)
        else:  # without a checksum: an error must not depend on rows
            _add_privately(total, blocks, task.norm_bound)
        part = total.part(task.unit)._replace(checksum=checksum % 2**64)
    check_count_of(pieces, total.n_rows, task.name)
    return part


def _pick_rows(task: Task, pieces: list[Piece], blocks: list[Any]) -> Part:
    """Return rows of a node that are evenly spaced over all rows: what is kept of it in the end, and little more."""
    kept, checksum, n_rows, threshold = list[Any](), 0, 0, ALL_ROWS
    for rows in read(pieces, blocks, task.n_features, task.name):
        check_size(rows, task.order, of=rows)
        first, limit = pieces[0].first + n_rows, task.limit
        if limit is not None:
            threshold = first_threshold(task.n_rows, limit.most(sparse=is_sparse(rows)))
        picked = rows[selected(first, first + int(rows.shape[0]), threshold) - first]
        kept.append(QuantizedRows.of(picked) if limit and limit.quantizes(task.n_rows, picked) else picked)
        checksum, n_rows = checksum + sum_of_bits(rows), n_rows + int(rows.shape[0])
    check_count_of(pieces, n_rows, task.name)
    return Part(n_rows, task.unit, (), checksum % 2**64, join_kept(kept), threshold)


def check_count_of(pieces: list[Piece], n_rows: int, name: str) -> None:
    """Raise if pieces have another number of rows than expected: rows would be counted twice, or lost."""
    expected = sum(piece.stop - piece.start for piece in pieces)
    if n_rows != expected:
        raise SourceError(
            f"{name} must have {expected:,} rows from row {pieces[0].first:,} on. It has {n_rows:,}. Pass the "
            "number of rows of each block, or leave it out, so that they are counted."
        )


def join(*parts: Part) -> Part:
    """Return the sum over the rows of consecutive nodes, or their rows that are kept."""
    if parts[0].rows is None:
        return joined([*parts])
    n_rows, checksum = (sum(getattr(part, name) for part in parts) for name in ("n_rows", "checksum"))
    return parts[0]._replace(n_rows=n_rows, checksum=checksum % 2**64, rows=join_kept([part.rows for part in parts]))


def read(pieces: list[Piece], blocks: list[Any], n_features: int, name: str) -> Iterator[Block]:
    """Yield the rows of pieces, checked; an error names the file, or the collection, and the row in it."""
    for number, piece in enumerate(pieces):
        if isinstance(piece.source, Source):
            left = piece.stop - piece.start
            for rows in piece.source.iterate_from(piece.start):
                yield rows if rows.shape[0] <= left else row_slice(rows, 0, left)
                left -= int(rows.shape[0])
                if left <= 0:
                    break
        else:
            yield from _GivenBlock(blocks[number], n_features, name).iterate_from(piece.first)


class _GivenBlock(Source):
    """A block of a Dask collection; errors count its rows from the first of the collection."""

    def __init__(self, block: Any, n_features: int, name: str) -> None:
        self._block, self.n_features, self.name = block, n_features, name

    def fingerprint(self) -> str:
        """Return the name; it is not used."""
        return self.name

    def _blocks(self, row: int) -> Iterator[Any]:  # noqa: ARG002 - errors count from there
        yield _as_array(self._block)


def _as_array(block: Any) -> Any:
    return to_csr(block) if hasattr(block, "tocsr") else np.ascontiguousarray(block)


def _add_privately(total: RowSum, blocks: list[Any], norm_bound: float) -> None:
    """Clip rows and add them up. No error depends on a value."""
    try:
        for block in blocks:
            rows = _as_array(block)
            check_private_structure(rows)
            total.update(clipped_rows(rows, norm_bound))
    except Exception:  # noqa: BLE001 - its text may quote a record
        raise RuntimeError("Rows of a private run could not be added up on a worker. Nothing was released.") from None


#: Leaves per thread, if there are enough of them, so that all threads finish at about the same time.
_LEAVES_PER_THREAD = 3


#: The priority of tasks that join nodes, above those that add up leaves: joined nodes take less memory.
_JOIN_PRIORITY = 10


#: The first row of a sum, and where a segment or a node of it begins and ends among all rows.
Segment = tuple[int, int, int]


class Order(NamedTuple):
    """What workers do with the rows of a node.

    Attributes
    ----------
    work : callable
        Called with `task`, `held`, pieces and blocks; returns the sum over the rows of a node as a `Part`.
    task : object
        Its arguments; small.
    held : object
        A large argument that all tasks share. It is sent once.
    unit : int
        The number of rows in a leaf of the tree.
    """

    work: Callable[..., Part]
    task: Any
    held: Any
    unit: int


class Answer(NamedTuple):
    """The sum over the next rows, or None while workers add them up; and the number of rows added up beyond these."""

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
        Rows `start` to `stop` of a sum that begins with row `origin`. A part never extends over two segments.

    Notes
    -----
    The block is the result of one task: it is sent once, and can be computed again if the worker that has it dies. All
    nodes are submitted at once, and those of one parent are joined on a worker. A task that Dask gives up because
    several workers died under it is submitted again, with rows under new keys.
    """
    with cluster_faults(rows.cluster):
        yield from _ask(rows, order, segments)


def _ask(rows: ClusterRows, order: Order, segments: Sequence[Segment]) -> Iterator[Answer]:
    unit, killed, n_tries = order.unit, import_distributed().scheduler.KilledWorker, 0
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
                largest = largest[1:]
                sent.take(number)
                yield Answer(part, sent.n_ahead())
        except killed:
            n_tries += 1
            if n_tries == MAX_TRIES:
                raise
            rows = rows.renewed()


class _Sent:
    """Nodes that were submitted: their futures, and those of the leaves below them that are not done."""

    def __init__(self, rows: ClusterRows, order: Order, largest: Sequence[Segment]) -> None:
        cluster = rows.cluster
        height = leaf_height(order.unit, [stop - start for _, start, stop in largest], cluster.n_threads)
        leaves = [leaf for node in largest for leaf in _leaves(node, height, order.unit)]
        arguments = (order.task, cluster.hold(order.held))
        found = iter(work_on(rows, order.work, arguments, [(start, stop) for _, start, stop in leaves]))
        self._undone: list[tuple[int, int, Any]] = []
        self._done = [0] * len(largest)
        self.futures: list[Any] = []
        for number, node in enumerate(largest):
            own = {leaf: next(found) for leaf in _leaves(node, height, order.unit)}
            self._undone += [(number, stop - start, future) for (_, start, stop), future in own.items()]
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
    rows: ClusterRows, work: Callable[..., Any], arguments: tuple[Any, ...], ranges: Sequence[tuple[int, int]]
) -> list[Any]:
    """Return the futures of ``work(*arguments, pieces, blocks)`` for some ranges of rows."""
    pieces = [rows.pieces(start, stop) for start, stop in ranges]
    if rows.in_files:
        return [rows.cluster.submit(work, *arguments, each, [], name="rows") for each in pieces]
    calls = []
    for each in pieces:
        places, blocks = [piece._replace(source=None) for piece in each], [piece.source for piece in each]
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


def sum_over_rows(
    rows: ClusterRows,
    question: Question,
    block: FloatArray,
    order: int,
    norm_bound: float | None = None,
    limit: RowLimit | None = None,
) -> Order:
    """Return the order for the question of a solver: see `odeco.online.RowSum`.

    With `norm_bound`, for a private run, rows are clipped to it, and no error depends on a row. Where rows are kept up
    to a `limit`, workers return little more than that.
    """
    unit, known = rows_per_unit(rows.n_features, sparse=rows.sparse), rows.cluster.versions
    task = Task(question, order, unit, rows.n_features, rows.name, norm_bound, known, rows.n_rows, limit)
    return Order(add_up, task, block, unit)


def cluster_rows(
    data: Any, n_features: int | None, *, private: bool = False, client: Any = None, **selection: Any
) -> ClusterRows:
    """Return rows that the workers of a cluster can read, of the width of a run."""
    rows = as_cluster_rows(data, client, **selection)
    if n_features not in (None, rows.n_features):
        raise ValueError(
            f"Rows must have shape (n, {n_features}). Got shape {rows.shape}. Take rows of one width for all of a run."
        )
    if private and rows.in_files:
        raise ValueError(
            "A private run on a cluster takes a Dask collection. Got files, whose errors name rows. Read them with "
            "dask.array or dask.dataframe."
        )
    return rows


def sum_on_cluster(rows: ClusterRows, run: Run, segments: Sequence[Segment]) -> Generator[Answer, None, None]:
    """Let workers add up what the question of a run needs, and give the sums to the run; yield what `ask` yields."""
    total = run.total
    limit = total.limit if isinstance(total, KeptRows) else None
    order = sum_over_rows(rows, total.question, total.block, total.order, run.mean.norm_bound, limit)
    for answer in ask(rows, order, segments):
        if answer.part is not None:
            run.take(answer.part, dense=not rows.sparse)
        yield answer
