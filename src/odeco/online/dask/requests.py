"""Sums over rows on a cluster: tasks for its workers, which return the parts of a sum in order.

A task runs in one thread of a worker, and changes none of its arguments.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from odeco._util.threads import one_thread
from odeco._util.types import FloatArray
from odeco.io.reading import sum_of_bits
from odeco.io.rows import is_sparse
from odeco.online.block import QuantizedRows, RowLimit, first_threshold, join_kept, selected
from odeco.online.dask.client import check_versions
from odeco.online.dask.partitions import NOT_SILENT, ClusterRows, as_cluster_rows
from odeco.online.dask.pieces import Piece, PrivateFault, check_count_of, read, run_silently
from odeco.online.dask.tasks import Answer, Order, Segment, ask
from odeco.online.run import Run
from odeco.online.sums import KeptRows, Question, RowSum, check_size
from odeco.online.sums import Question as Kind
from odeco.online.tree import ALL_ROWS, Part, rows_per_unit
from odeco.privacy.holders.lanes import clipped_rows


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
    columns : tuple of str or None
        The names of the columns of a Dask dataframe, for errors.
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
    columns: tuple[str, ...] | None = None


def add_up(task: Task, block: FloatArray, pieces: list[Piece], blocks: list[Any]) -> Part | PrivateFault:
    """Return the sum over the rows of one node; `blocks` are the arrays of pieces that are not in files."""
    if task.norm_bound is not None:
        part: Part | PrivateFault = run_silently(partial(_add_clipped, task, block), task.versions, pieces, blocks)
        return part
    check_versions(task.versions)
    with one_thread():
        if task.kind == "rows":
            return _pick_rows(task, pieces, blocks)
        total, checksum = RowSum(task.kind, block, task.order), 0
        for rows in read(pieces, blocks, task.n_features, task.name, task.columns):
            total.update(rows)
            checksum += sum_of_bits(rows) if blocks else 0  # a file that changes is noticed by its reader
    check_count_of(pieces, total.n_rows, task.name)
    return total.part(task.unit)._replace(checksum=checksum % 2**64)


def _add_clipped(task: Task, block: FloatArray, private_rows: Iterator[Any]) -> Part:
    """Return the sum over clipped rows, without a checksum: an error must not depend on rows."""
    total = RowSum(task.kind, block, task.order)
    for rows in private_rows:
        total.update(clipped_rows(rows, task.norm_bound or 0.0))
    return total.part(task.unit)


def _pick_rows(task: Task, pieces: list[Piece], blocks: list[Any]) -> Part:
    """Return rows of a node that are evenly spaced over all rows: what is kept of it in the end, and little more."""
    kept, checksum, n_rows, threshold = list[Any](), 0, 0, ALL_ROWS
    for rows in read(pieces, blocks, task.n_features, task.name, task.columns):
        check_size(rows, task.order, of=rows)
        first, limit = pieces[0].first + n_rows, task.limit
        if limit is not None:
            threshold = first_threshold(task.n_rows, limit.most(sparse=is_sparse(rows)))
        picked = rows[selected(first, first + int(rows.shape[0]), threshold) - first]
        kept.append(QuantizedRows.of(picked) if limit and limit.quantizes(task.n_rows, picked) else picked)
        checksum, n_rows = checksum + (sum_of_bits(rows) if blocks else 0), n_rows + int(rows.shape[0])
    check_count_of(pieces, n_rows, task.name)
    return Part(n_rows, task.unit, (), checksum % 2**64, join_kept(kept), threshold)


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
    names = None if rows.in_files else rows.columns  # files know theirs
    task = Task(question, order, unit, rows.n_features, rows.name, norm_bound, known, rows.n_rows, limit, names)
    return Order(add_up, task, block, unit, private=norm_bound is not None)


def cluster_rows(
    data: Any, n_features: int | None, *, private: bool = False, client: Any = None, **selection: Any
) -> ClusterRows:
    """Return rows that the workers of a cluster can read, of the width of a run."""
    rows = as_cluster_rows(data, client, **selection)
    if n_features not in (None, rows.n_features):
        raise ValueError(
            f"Rows must have shape (n, {n_features}). Got shape {rows.shape}. Take rows of one width for all of a run."
        )
    if private and not rows.silent:
        raise ValueError(NOT_SILENT)
    return rows


def sum_on_cluster(rows: ClusterRows, run: Run, segments: Sequence[Segment]) -> Generator[Answer, None, None]:
    """Let workers add up what the question of a run needs, and give the sums to the run; yield what `ask` yields.

    A large block is cut into groups of columns, and the rows are read once for each.
    """
    total = run.total
    limit = total.limit if isinstance(total, KeptRows) else None
    first: list[list[Part]] = []  # the parts of each group of columns but the last
    *groups, last = column_groups(rows, total.question, total.block)
    for block in groups:
        order = sum_over_rows(rows, total.question, block, total.order, run.mean.norm_bound)
        first.append([])
        for answer in ask(rows, order, segments):
            first[-1] += [] if answer.part is None else [answer.part]
            yield Answer(None, 0)
    order = sum_over_rows(rows, total.question, last, total.order, run.mean.norm_bound, limit)
    for answer in ask(rows, order, segments):
        if answer.part is not None:
            run.take(_side_by_side([*(parts.pop(0) for parts in first), answer.part]), dense=not rows.sparse)
        yield answer


#: Numbers in the sum that a task returns, if rows are CSR: half a gigabyte. A task takes about four times that.
_MOST_NUMBERS = 2**26


def column_groups(rows: ClusterRows, question: Question, block: FloatArray) -> list[FloatArray]:
    """Return a block in groups of columns, so that the images of each are small enough for a worker.

    The image of a column of CSR rows is added up by itself, so that the groups give the bits of the whole block. (All
    are larger than the block from which on `odeco.online.tree` takes two lanes.) For dense rows, products of
    another width may have other last bits, so their blocks are not cut.
    """
    if question != "image" or not rows.sparse or block.size <= _MOST_NUMBERS:
        return [block]
    number = -(-block.shape[1] // max(1, _MOST_NUMBERS // block.shape[0]))
    return [np.ascontiguousarray(group) for group in np.array_split(block, number, axis=1)]


def _side_by_side(parts: Sequence[Part]) -> Part:
    """Return the part of a block from those of its groups of columns."""
    if len(parts) == 1:
        return parts[0]
    each = zip(*(part.levels for part in parts), strict=True)
    levels = tuple(None if own[0] is None else np.hstack([*map(np.asarray, own)]) for own in each)
    return parts[0]._replace(levels=levels)
