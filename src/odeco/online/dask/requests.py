"""Sums over rows on a cluster: tasks for its workers, which return the parts of a sum in order.

A task runs in one thread of a worker, and changes none of its arguments.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from odeco._util.threads import one_thread
from odeco.io.reading import sum_of_bits
from odeco.io.rows import join_rows
from odeco.online.block import first_threshold, selected
from odeco.online.dask.client import check_versions
from odeco.online.dask.partitions import NOT_SILENT, ClusterRows, as_cluster_rows
from odeco.online.dask.pieces import Piece, PrivateFault, check_count_of, read, run_silently
from odeco.online.dask.tasks import Answer, Order, Segment, ask
from odeco.online.queries import Query
from odeco.online.sums import check_size
from odeco.online.tree import ALL_ROWS, Part, rows_per_unit
from odeco.privacy.holders.lanes import clipped_rows


class Task(NamedTuple):
    """The arguments of a task besides rows and query.

    Attributes
    ----------
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
    columns : tuple of str or None
        The names of the columns of a Dask dataframe, for errors.
    """

    unit: int
    n_features: int
    name: str
    norm_bound: float | None
    versions: tuple[tuple[str, str], ...]
    n_rows: int
    columns: tuple[str, ...] | None = None


def add_up(task: Task, query: Query, pieces: list[Piece], blocks: list[Any]) -> Part | PrivateFault:
    """Return the sum over the rows of one node; `blocks` are the arrays of pieces that are not in
    files.
    """
    if task.norm_bound is not None:
        found: Part | PrivateFault = run_silently(
            partial(_add_clipped, task, query), task.versions, pieces, blocks
        )
        return found
    check_versions(task.versions)
    with one_thread():
        if query.keeps_rows:
            return _pick_rows(task, query, pieces, blocks)
        total: Any = query.empty()
        checksum = 0
        for rows in read(pieces, blocks, task.n_features, task.name, task.columns):
            total = total.with_rows(query, rows)
            checksum += (
                sum_of_bits(rows) if blocks else 0
            )  # a file that changes is noticed by its reader
    check_count_of(pieces, total.n_rows, task.name)
    part: Part = total.as_part(query, task.unit)
    return part._replace(checksum=checksum % 2**64)


def _add_clipped(task: Task, query: Query, private_rows: Iterator[Any]) -> Part:
    """Return the sum over clipped rows, without a checksum: an error must not depend on rows."""
    total: Any = query.empty()
    for rows in private_rows:
        total = total.with_rows(query, clipped_rows(rows, task.norm_bound or 0.0))
    part: Part = total.as_part(query, task.unit)
    return part


def _pick_rows(task: Task, query: Query, pieces: list[Piece], blocks: list[Any]) -> Part:
    """Return rows of a node that are evenly spaced over all rows: what is kept of it in the end,
    and little more.
    """
    kept = list[Any]()
    checksum = 0
    n_rows = 0
    threshold = ALL_ROWS
    for rows in read(pieces, blocks, task.n_features, task.name, task.columns):
        check_size(rows, query.order, rows)
        first = pieces[0].first + n_rows
        limit = query.limit
        if limit is not None:
            threshold = first_threshold(task.n_rows, limit.n_rows)
        kept.append(rows[selected(first, first + int(rows.shape[0]), threshold) - first])
        checksum = checksum + (sum_of_bits(rows) if blocks else 0)
        n_rows = n_rows + int(rows.shape[0])
    check_count_of(pieces, n_rows, task.name)
    return Part(n_rows, task.unit, (), checksum % 2**64, join_rows(kept), threshold)


def sum_over_rows(rows: ClusterRows, query: Query, norm_bound: float | None = None) -> Order:
    """Return the order for a query.

    With `norm_bound`, for a private run, rows are clipped to it, and no error depends on a row.
    Where rows are kept up to a limit, workers return little more than that.
    """
    unit = rows_per_unit(rows.n_features, sparse=rows.sparse)
    names = None if rows.in_files else rows.columns  # files know theirs
    task = Task(
        unit, rows.n_features, rows.name, norm_bound, rows.cluster.versions, rows.n_rows, names
    )
    return Order(add_up, task, replace(query, sizes=()), unit, private=norm_bound is not None)


def cluster_rows(
    data: Any,
    n_features: int | None,
    *,
    private: bool = False,
    client: Any = None,
    **selection: Any,
) -> ClusterRows:
    """Return rows that the workers of a cluster can read, of the width of a run."""
    rows = as_cluster_rows(data, client, **selection)
    if n_features not in (None, rows.n_features):
        raise ValueError(
            f"Rows must have shape (n, {n_features}). Got shape {rows.shape}. Take rows of one "
            "width for all of a run."
        )
    if private and not rows.silent:
        raise ValueError(NOT_SILENT)
    return rows


def add_up_on_cluster(
    rows: ClusterRows, query: Query, norm_bound: float | None, segments: Sequence[Segment]
) -> Generator[Answer, None, None]:
    """Let workers add up what a query needs over segments of rows; yield what `ask` yields.

    A large block is cut into groups of columns, and the rows are read once for each.
    """
    first: list[list[Part]] = []  # the parts of each group of columns but the last
    *groups, last = column_groups(rows, query)
    for group in groups:
        first.append([])
        for answer in ask(rows, sum_over_rows(rows, group, norm_bound), segments):
            first[-1] += [] if answer.part is None else [answer.part]
            yield Answer(None, 0)
    for answer in ask(rows, sum_over_rows(rows, last, norm_bound), segments):
        if answer.part is None:
            yield answer
        else:
            yield Answer(
                _side_by_side([*(parts.pop(0) for parts in first), answer.part]), answer.n_ahead
            )


#: Numbers in the sum that a task returns, if rows are CSR: half a gigabyte. A task takes about four
#: times that.
_MOST_NUMBERS = 2**26


def column_groups(rows: ClusterRows, query: Query) -> list[Query]:
    """Return a query in groups of columns of its block, so that the images of each are small enough
    for a worker.

    The image of a column of CSR rows is added up by itself, so that the groups give the bits of the
    whole block. (All are larger than the block from which on `odeco.online.tree` takes two lanes.)
    For dense rows, products of another width may have other last bits, so their blocks are not cut.
    """
    block = query.block
    if not query.by_column or not rows.sparse or block.size <= _MOST_NUMBERS:
        return [query]
    number = -(-block.shape[1] // max(1, _MOST_NUMBERS // block.shape[0]))
    return [replace(query, block=group) for group in np.array_split(block, number, axis=1)]


def _side_by_side(parts: Sequence[Part]) -> Part:
    """Return the part of a block from those of its groups of columns."""
    if len(parts) == 1:
        return parts[0]
    each = zip(*(part.levels for part in parts), strict=True)
    levels = tuple(None if own[0] is None else np.hstack([*map(np.asarray, own)]) for own in each)
    return parts[0]._replace(levels=levels)
