"""Who reads the rows that a run pulls: this process, or the workers of a cluster. The run does not know which."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from odeco.io.coerce import as_source
from odeco.io.reading import Passes
from odeco.io.source import is_on_cluster
from odeco.online.dominance import ColumnSquares
from odeco.online.run import Run
from odeco.online.tree import rows_per_chunk, rows_per_unit


class Reader(Protocol):
    """Rows that a run can be fed with.

    Attributes
    ----------
    n_features : int
        Their width.
    repeatable : bool
        Whether they can be read again.
    digest : str or None
        The digest of the rows read of the current pass, where the fingerprint does not tell enough.
    squares : ColumnSquares
        How large each column is, in the rows that this process has seen.
    columns : sequence of str or None
        The names of the columns, where there are any.
    """

    n_features: int
    repeatable: bool
    digest: str | None
    squares: ColumnSquares
    columns: Sequence[str] | None

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do."""

    def compare_with(self, digest: str | None) -> None:
        """Compare rows that are read again with those before; `digest` is that of an interrupted run."""

    def feed(self, run: Run) -> Iterator[int]:
        """Feed a run from its next row to the last one, or until it is complete.

        Yields now and then, each time the number of rows that are done and not taken in yet.
        """


class Here:
    """Rows that this process reads, block by block."""

    digest: str | None = None

    def __init__(self, data: Any, **selection: Any) -> None:
        source = as_source(data, **selection)
        if source.repeatable and not getattr(source, "sparse", False):
            # Dense blocks of the size of a chunk need no joining. Of sparse rows so few would make many small products.
            source = as_source(data, batch_rows=rows_per_chunk(source.n_features), **selection)
        self._source = source
        self.n_features, self.repeatable = source.n_features, source.repeatable
        self.squares = ColumnSquares()
        self.columns: Sequence[str] | None = getattr(source, "columns", None)
        self._passes: Passes | None = None

    def fingerprint(self) -> str:
        """Return that of the source."""
        return self._source.fingerprint()

    def compare_with(self, digest: str | None) -> None:
        """Compare every pass with the first, where the fingerprint does not tell enough."""
        self._passes = Passes(self._source, digest)

    def feed(self, run: Run) -> Iterator[int]:
        """Push block after block."""
        row, passes = run.batches.next_row(run), self._passes
        for rows in self._source.iterate_from(row) if passes is None else passes.read_from(row):
            run.push(rows)
            self.squares.update(rows)
            self.digest = None if passes is None else passes.digest
            yield 0


class Elsewhere:
    """Rows that the workers of a cluster read; sums over them arrive here."""

    repeatable = True
    digest: str | None = None

    def __init__(self, data: Any, client: Any, **selection: Any) -> None:
        self._rows = cluster_rows(data, None, client=client, **selection)
        self.n_features = self._rows.n_features
        self.squares = ColumnSquares()  # no row passes through this process
        self.columns: Sequence[str] | None = self._rows.columns

    def fingerprint(self) -> str:
        """Return that of the rows."""
        return str(self._rows.fingerprint())

    def compare_with(self, digest: str | None) -> None:
        """Do nothing: the fingerprint tells enough."""

    def feed(self, run: Run) -> Iterator[int]:
        """Ask one question after the other, each of all rows that it can be asked of."""
        total = run.total
        if total.held.waiting or total.n_rows % rows_per_unit(self.n_features, sparse=self._rows.sparse):
            run.begin_batch_again()  # a run that was begun elsewhere, and left in the middle of a leaf
        while not run.is_complete and run.batches.next_row(run) < self._rows.n_rows:
            stretches = run.batches.stretches(run, self._rows.n_rows)
            with closing(ask_cluster(self._rows, run, stretches)) as steps:
                yield from steps


def cluster_rows(
    data: Any, n_features: int | None, *, private: bool = False, client: Any = None, **selection: Any
) -> Any:
    """Return rows that a cluster can get at, of the width that is wanted."""
    from odeco.online.dask.partitions import as_cluster_rows  # Dask takes a second, and may be missing

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


def ask_cluster(rows: Any, run: Run, stretches: list[tuple[int, int, int]]) -> Generator[int, None, None]:
    """Ask the question of a run about rows of a cluster, and let the run take in what comes back."""
    from odeco.online.dask.requests import ask, sum_over_rows

    total = run.total
    order = sum_over_rows(rows, total.question, total.block, total.order, run.answerer.norm_bound)
    for part, n_ahead in ask(rows, order, stretches):
        if part is not None:
            run.take(part, dense=not rows.sparse)
        yield n_ahead


def reader_of(data: Any, client: Any = None, **selection: Any) -> Reader:
    """Return who reads the rows: a cluster, if they are there or a client is given. A selection is one of columns."""
    on_cluster = client is not None or is_on_cluster(data)
    return Elsewhere(data, client, **selection) if on_cluster else Here(data, **selection)
