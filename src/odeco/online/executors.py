"""Who adds up the rows of a run: threads of this process, or the workers of a cluster.

Both give bit-identical results, because sums over rows form a fixed tree (`odeco.online.tree`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from odeco._util.types import FloatArray
from odeco.errors import SourceError
from odeco.io.coerce import as_source
from odeco.io.errors import as_subject
from odeco.io.reading import Passes
from odeco.io.source import BatchSource, Source
from odeco.online.columns import ColumnSquares
from odeco.online.dask.partitions import ClusterRows
from odeco.online.dask.requests import add_up_on_cluster, cluster_rows
from odeco.online.dask.tasks import Segment
from odeco.online.private import check_kind
from odeco.online.queries import Images
from odeco.online.run import Mean, Run
from odeco.online.tree import rows_per_chunk, rows_per_unit


class Step(NamedTuple):
    """A run after more rows, and the number of rows that workers have added up and the run has not
    taken yet.
    """

    run: Run
    n_ahead: int = 0


class Executor(Protocol):
    """Rows, and who adds them up.

    Attributes
    ----------
    n_features : int
        Their width.
    columns : sequence of str or None
        The names of the columns, if they have names.
    repeatable : bool
        Whether they can be read again.
    digest : str or None
        The checksum of the rows read in the current pass; None if the fingerprint identifies the
        data.
    squares : ColumnSquares
        The squares of each column, in the rows that were read here.
    """

    n_features: int
    columns: Sequence[str] | None
    repeatable: bool
    digest: str | None
    squares: ColumnSquares

    def fingerprint(self) -> str:
        """Return a short string that identifies the rows."""

    def compare_with(self, digest: str | None) -> None:
        """Compare every pass with the first, if the fingerprint does not identify the rows."""

    def feed(self, run: Run, mean: Mean) -> Iterator[Step]:
        """Yield the run after every block of rows, from its next row to the last one, or until it
        needs no more.
        """


class Threads:
    """Rows that this process reads, block by block; threads work on the lanes of each chunk."""

    digest: str | None = None

    def __init__(self, data: Any, *, centred: bool = False, **selection: Any) -> None:
        source: BatchSource = as_source(data, **selection)
        if source.repeatable and not getattr(source, "sparse", False):
            # Dense blocks of the size of a chunk need no joining. Sparse blocks of this height
            # would be slow.
            height = rows_per_chunk(source.n_features)
            # What has no fingerprint may be a query, which is not run twice to read it once.
            if isinstance(source, Source) and source.identified:
                source = as_source(data, batch_rows=height, **selection)
            else:
                source = as_source(source, batch_rows=height)
        self._source = CentredSource(source) if centred else source
        self._passes: Passes | None = None
        self.n_features = source.n_features
        self.repeatable = source.repeatable
        self.columns: Sequence[str] | None = getattr(source, "columns", None)
        self.squares = ColumnSquares()

    def fingerprint(self) -> str:
        """Return the fingerprint of the source."""
        return self._source.fingerprint()

    def compare_with(self, digest: str | None) -> None:
        """Compare every pass with the first, if the fingerprint does not identify the source."""
        self._passes = Passes(self._source, digest)

    def feed(self, run: Run, mean: Mean) -> Iterator[Step]:
        """Yield the run after every block of rows."""
        passes = self._passes
        for rows in (
            self._source.iterate_from(run.row) if passes is None else passes.read_from(run.row)
        ):
            *_, run = run.steps(rows, mean)
            self.squares.update(rows)
            self.digest = None if passes is None else passes.digest
            yield Step(run)
            if run.done:
                return


class CentredSource(Source):
    """The rows of a source minus their mean, which is added up in a pass of its own before the
    first row is used.
    """

    def __init__(self, source: Any) -> None:
        if not source.repeatable or getattr(source, "sparse", False):
            what = "sparse rows" if source.repeatable else "rows that can be read once only"
            raise ValueError(
                "The third cumulant takes dense rows that can be read again, for their mean. Got "
                f"{what}. Pass an array or a file, or subtract the mean yourself and take "
                "moment='raw'."
            )
        self._source = source
        self.name = source.name
        self.path = None
        self.n_features = source.n_features
        self.n_rows = getattr(source, "n_rows", None)
        self.columns = getattr(source, "columns", None)
        self.identified = getattr(source, "identified", False)

    def fingerprint(self) -> str:
        """Return that of the source, and that its rows are centred."""
        return f"{self._source.fingerprint()}:centred"

    @cached_property
    def mean(self) -> FloatArray:
        """The mean of all rows, which does not depend on how they are cut."""
        last = np.eye(self.n_features + 1)[:, -1:]
        query = Images(last, 2)  # of rows (x, 1), the image of (0, 1) at order 2 is Σ (x, 1)
        total = query.empty()
        for block in self._source.iterate_from(0):
            total = total.with_rows(
                query, np.column_stack([block, np.ones(len(block), block.dtype)])
            )
        return np.asarray(total.value(query)[:-1, 0])

    def _blocks(self, row: int) -> Iterator[Any]:
        mean = self.mean
        for block in self._source.iterate_from(row):
            yield (block - mean).astype(block.dtype)


class Workers:
    """Rows on a cluster: its workers add them up, and the sums come back."""

    repeatable = True
    digest: str | None = None
    _checksum: int | None = None  # of the rows of the last whole pass

    def __init__(self, data: Any, *, client: Any, centred: bool = False, **selection: Any) -> None:
        if centred:
            raise ValueError(
                "The third cumulant is that of rows that this process reads. Got rows on a "
                "cluster. Subtract their mean there, such as rows - rows.mean(axis=0) of a Dask "
                "array, and take moment='raw'."
            )
        self._rows = cluster_rows(data, None, client=client, **selection)
        self.n_features = self._rows.n_features
        self.columns: Sequence[str] | None = self._rows.columns
        self.squares = ColumnSquares()

    def fingerprint(self) -> str:
        """Return the fingerprint of the rows."""
        return str(self._rows.fingerprint())

    def compare_with(self, digest: str | None) -> None:
        """Do nothing: the fingerprint identifies the rows."""

    def feed(self, run: Run, mean: Mean) -> Iterator[Step]:
        """Yield the run after every node of the tree, and while workers add up others."""
        if run.sum.waiting or run.sum.n_rows % rows_per_unit(
            self.n_features, sparse=self._rows.sparse
        ):
            run = run.again(
                run.n_closed
            )  # it stopped in the middle of a leaf, in a process that reads rows
        checksum = 0
        first = run.row
        for step, part_sum in _steps_on_cluster(self._rows, run, mean, 0):
            run = step.run
            checksum += part_sum
            yield step
        if first == 0 and run.row == self._rows.n_rows:
            self._compare(checksum % 2**64)

    def _compare(self, checksum: int) -> None:
        """Raise if a whole pass had other rows than the one before."""
        if self._checksum not in (None, checksum):
            raise SourceError(
                f"{as_subject(self._rows.name)} must give the same rows each time they are "
                "computed. They differ between two passes. Use functions that always return the "
                "same rows, such as those of a file or of a fixed seed, or keep the rows with "
                "`persist()`."
            )
        self._checksum = checksum


def push_on_cluster(rows: ClusterRows, run: Run, mean: Mean) -> Iterator[Run]:
    """Yield the run after every part of rows that are pushed, which the workers of a cluster add
    up.
    """
    for step, _ in _steps_on_cluster(rows, run, mean, run.row):
        yield step.run


def _steps_on_cluster(
    rows: ClusterRows, run: Run, mean: Mean, first: int
) -> Iterator[tuple[Step, int]]:
    """Yield a run after every part that workers have added up, with the checksum of its rows.

    The first of the rows is row `first` of the run. Each query goes to all rows for which it is
    known.
    """
    while not run.done and run.row - first < rows.n_rows:
        segments = _segments(run, run.row - first, rows.n_rows)
        with closing(
            add_up_on_cluster(rows, run.solver.query, mean.norm_bound, segments)
        ) as answers:
            for part, n_ahead in answers:
                checksum = 0
                if part is not None:
                    if mean.norm_bound is not None:
                        check_kind(sparse=run.sparse, sparse_now=rows.sparse)
                    run = run.with_part(part, mean, sparse=rows.sparse)
                    checksum = part.checksum
                yield Step(run, n_ahead), checksum


def _segments(run: Run, row: int, n_rows: int) -> list[Segment]:
    """Return the batches with the query of a run: the first row of each, and its rows that are
    still to be read.
    """
    found = []
    start = row - run.sum.n_rows
    for size in run.solver.query.sizes or (n_rows - start,):
        if start >= n_rows:
            break
        found.append((start, max(start, row), min(start + size, n_rows)))
        start += size
    return found
