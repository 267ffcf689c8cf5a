"""Rows on a cluster: in files that all workers can open, or in the blocks of a Dask collection."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from scipy import sparse

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import SourceError
from odeco.io.coerce import as_source, pieces_of
from odeco.io.errors import source_error
from odeco.io.reading import cut_into
from odeco.io.rows import is_sparse, row_slice, stored_numbers, to_csr
from odeco.io.source import chosen_columns, names_of
from odeco.io.text_rows import CsvFile
from odeco.online.dask.client import Cluster, cluster_faults, find_cluster, tried_again
from odeco.online.dask.pieces import Piece, PrivateFault, run_silently
from odeco.online.dask.tasks import Order, PrivateError, ask
from odeco.online.tree import rows_per_chunk
from odeco.privacy.holders.lanes import Lane, Span
from odeco.privacy.sources import PrivateRows


class ClusterRows(Protocol):
    """Rows that workers can read.

    Attributes
    ----------
    n_rows, n_features : int
        Their number, and their width.
    sparse : bool
        Whether they are CSR.
    name : str
        Their name in errors.
    cluster : Cluster
        The cluster that reads them.
    in_files : bool
        Whether they are in files; otherwise they are blocks of a Dask collection.
    silent : bool
        Whether they can be read for a private run, without an error that depends on a row.
    columns : tuple of str or None
        The names of the columns, if they have names.
    """

    n_rows: int
    n_features: int
    sparse: bool
    name: str
    cluster: Cluster
    in_files: bool
    silent: bool
    columns: tuple[str, ...] | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the pieces that hold the rows from `start` to `stop`."""

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do."""

    def renewed(self) -> ClusterRows:
        """Return the same rows under new keys, so that a task that Dask has given up is computed
        again.
        """

    def add_lanes(
        self, lane: Lane, spans: Sequence[Span], height: int, chosen: IndexArray | None = None
    ) -> Iterator[FloatArray]:
        """Let workers add up spans of rows for a private run; see
        `odeco.privacy.holders.lanes.RemoteRows`.
        """


#: What is wrong with files whose reader names rows in its errors.
NOT_SILENT = (
    "Rows in files must be opened by odeco.privacy.open_private for a private run. Got files "
    "whose errors name rows. Pass odeco.online.dask.as_cluster_rows(open_private(paths), client), "
    "or a Dask collection."
)


class _Rows:
    n_rows: int
    n_features: int
    cluster: Cluster
    silent: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_features

    def add_lanes(
        self: Any, lane: Lane, spans: Sequence[Span], height: int, chosen: IndexArray | None = None
    ) -> Iterator[FloatArray]:
        """Let workers add up spans of rows for a private run, and yield the sums in order.

        Rows, and sums without noise, are all that workers have. The ledger, the noise and
        everything after it are here.
        """
        if not self.silent:
            raise ValueError(NOT_SILENT)
        rows = self if chosen is None else ChosenRows(self, chosen)
        unit = max(stop - start for start, stop in spans)  # so that every span is one task
        order = Order(add_lane, (self.cluster.versions, height), lane, unit, private=True)
        for answer in ask(rows, order, [(start, start, stop) for start, stop in spans]):
            if answer.part is not None:
                yield cast("FloatArray", answer.part)


def add_lane(task: Any, lane: Lane, pieces: list[Piece], blocks: list[Any]) -> Any:
    """Return the sum over one span of private rows, on a worker."""
    versions, height = task
    return run_silently(
        lambda rows: lane(pieces[0].first, cut_into(rows, height)), versions, pieces, blocks
    )


class FileRows(_Rows):
    """The rows of files on storage that client and workers share. The client reads their headers
    only.
    """

    in_files = True

    def __init__(self, data: Any, cluster: Cluster, **selection: Any) -> None:
        self.silent = isinstance(data, PrivateRows)
        source: Any = data if self.silent else as_source(data, **selection)
        self.sparse: bool = getattr(source, "sparse", False)
        if not (self.sparse or self.silent):
            source = as_source(data, batch_rows=rows_per_chunk(source.n_features), **selection)
        self._source = source
        self.name: str = getattr(source, "name", "the files")
        in_order = source.n_rows is None or pieces_of(source, 0, 0) is None or _is_csv(source)
        if in_order:
            raise SourceError(
                "Rows for a cluster must be in files whose headers state their number: .npy, "
                f".npz, .parquet or .arrow. Got {self.name}. Convert it."
            )
        self.n_rows = source.n_rows
        self.n_features = source.n_features
        self.cluster = cluster
        self.columns: tuple[str, ...] | None = getattr(source, "columns", None)

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the files that hold these rows, and where in them."""
        found = []
        first = start
        for file, begins, ends in pieces_of(self._source, start, stop) or []:
            found.append(Piece(file, begins, ends, first))
            first += ends - begins
        return found

    def fingerprint(self) -> str:
        """Return the fingerprint of the files."""
        return str(self._source.fingerprint())

    def renewed(self) -> FileRows:
        """Return the rows themselves: every task that reads files has a key of its own."""
        return self


def _is_csv(source: Any) -> bool:
    """Tell whether a worker would have to read a file from its first record on."""
    return any(isinstance(file, CsvFile) for file in getattr(source, "_files", [source]))


class BlockRows(_Rows):
    """The rows of blocks that Dask computes when they are needed, and may compute again."""

    in_files = False
    silent = True

    def __init__(
        self,
        blocks: Sequence[Any],
        counts: Sequence[int],
        n_features: int,
        *,
        sparse: bool,
        name: str,
        cluster: Cluster,
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self._blocks = list(blocks)
        self._edges = list(itertools.accumulate(counts, initial=0))
        self._counts = list(counts)
        self.n_rows = self._edges[-1]
        self.n_features = n_features
        self.sparse = sparse
        self.name = name
        self.cluster = cluster
        self.columns = columns
        if not (self.n_rows and n_features):
            raise SourceError(
                f"Rows must have at least one row and one column. Got {self.n_rows:,} x "
                f"{n_features:,} in {name}."
            )

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the blocks that hold these rows; of a block with other rows too, a part that is
        cut on its worker.
        """
        cut = import_module("dask").delayed(_cut, pure=True)
        found = []
        number = bisect_right(self._edges, start) - 1
        while start < stop:
            begins = self._edges[number]
            ends = min(stop, self._edges[number + 1])
            block = self._blocks[number]
            size = ends - start
            if size:
                whole = size == self._edges[number + 1] - begins
                found.append(
                    Piece(
                        block if whole else cut(block, start - begins, ends - begins),
                        0,
                        size,
                        start,
                    )
                )
            start = ends
            number = number + 1
        return found

    def fingerprint(self) -> str:
        """Return kind and shape, and a digest of the first row, the last and one between them."""
        places = sorted({0, self.n_rows // 2, self.n_rows - 1})
        digest = hashlib.sha256()
        for row in _computed(
            self, lambda rows: [rows.pieces(place, place + 1)[0].source for place in places]
        ):
            parts = (row.indices, row.data) if is_sparse(row) else (np.asarray(row),)
            for part in parts:
                digest.update(np.ascontiguousarray(part).tobytes())
        kind = "csr" if self.sparse else "dense"
        return f"dask:{kind}:{self.n_rows}x{self.n_features}:{digest.hexdigest()[:16]}"

    def renewed(self) -> BlockRows:
        """Return the same rows under new keys.

        Dask remembers that it gave up a task for as long as anybody wants its result, and does not
        try it again under the same key. Here the graph of a block becomes the argument of one new
        task. (The `clone` of Dask leaves the old keys inside fused tasks.) Blocks that are futures
        keep their keys: how they were computed is not known here.
        """
        return BlockRows(
            [_renewed(block) for block in self._blocks],
            self._counts,
            self.n_features,
            sparse=self.sparse,
            name=self.name,
            cluster=self.cluster,
            columns=self.columns,
        )


def _renewed(block: Any) -> Any:
    dask = import_module("dask")
    if import_module("distributed").futures_of(block):
        return block
    culled = dask.optimize(block)[0]
    graph = import_module("cloudpickle").dumps((dict(culled.__dask_graph__()), culled.key))
    return dask.delayed(_compute_graph, pure=False)(graph)


def _compute_graph(graph: bytes) -> Any:
    """Compute a block on a worker, in one task."""
    return import_module("dask").get(*pickle.loads(graph))  # noqa: S301 - it was made by the client


def _computed(rows: BlockRows, lazy: Callable[[BlockRows], list[Any]]) -> list[Any]:
    """Return the results of delayed values that depend on the blocks of rows; repeated if workers
    die.
    """
    current = [rows]

    def attempt() -> list[Any]:
        rows = current[0]
        current[0] = current[0].renewed()
        results: list[Any] = rows.cluster.client.gather(rows.cluster.client.compute(lazy(rows)))
        return results

    with cluster_faults(rows.cluster):
        return tried_again(attempt)


class _RowsOfOthers(_Rows):
    """Rows that are made of others where they are read."""

    def __init__(self, rows: ClusterRows) -> None:
        self._rows = rows
        self.n_rows = rows.n_rows
        self.n_features = rows.n_features
        self.sparse = rows.sparse
        self.name = rows.name
        self.cluster = rows.cluster
        self.columns = rows.columns
        self.in_files = rows.in_files
        self.silent = rows.silent


class ChosenRows(_RowsOfOthers):
    """Some rows of others by their numbers, which must not fall where they are read together; some
    may be repeated.
    """

    def __init__(self, rows: ClusterRows, chosen: IndexArray) -> None:
        super().__init__(rows)
        self._chosen = chosen
        self.n_rows = chosen.size

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the pieces between the first and the last of these rows, with those that are
        chosen.
        """
        numbers = self._chosen[start:stop]
        found = []
        for piece in self._rows.pieces(int(numbers[0]), int(numbers[-1]) + 1):
            size = piece.stop - piece.start
            first, last = np.searchsorted(numbers, [piece.first, piece.first + size])
            if first < last:
                chosen = np.bincount(numbers[first:last] - piece.first, minlength=size)
                found.append(piece._replace(first=start + int(first), chosen=chosen))
        return found

    def fingerprint(self) -> str:
        """Return the fingerprint of all rows, and the number of those that are chosen."""
        return f"{self._rows.fingerprint()}:{self.n_rows}"

    def renewed(self) -> ChosenRows:
        """Return the same rows under new keys."""
        return ChosenRows(self._rows.renewed(), self._chosen)


class SelectedColumns(_RowsOfOthers):
    """Private rows whose columns are sums of columns of others: `columns`, times `rows` from the
    left.
    """

    def __init__(self, rows: ClusterRows, columns: Any) -> None:
        super().__init__(rows)
        self._columns = columns
        self.n_features = int(columns.shape[1])

    def add_lanes(
        self, lane: Lane, spans: Sequence[Span], height: int, chosen: IndexArray | None = None
    ) -> Iterator[FloatArray]:
        """Let workers add up spans of rows; they select the columns."""
        return self._rows.add_lanes(SelectingLane(lane, self._columns), spans, height, chosen)


@dataclass(frozen=True)
class SelectingLane:
    """A lane over rows whose columns a worker selects."""

    lane: Lane
    columns: Any

    def __call__(self, first: int, chunks: Iterator[Any]) -> FloatArray:
        """Return the sum over a lane."""
        return self.lane(first, (chunk @ self.columns.astype(chunk.dtype) for chunk in chunks))


def as_cluster_rows(
    data: Any,
    client: Any = None,
    *,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
) -> ClusterRows:
    """Return rows that the workers of a cluster can read.

    Parameters
    ----------
    data : Dask array or dataframe, path, list of paths, result of `from_delayed` or `open_private`
        A Dask array may have any chunks, of NumPy arrays or of CSR arrays; a dataframe must hold
        numbers. Paths must lead to the same files on all machines. Files for a private run are
        opened by `odeco.privacy.open_private`.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.
    columns, drop : sequence of str, optional
        The names of the columns of a table to read, in this order, or of those to leave out.
    """
    cluster = None if isinstance(data, _Rows) else find_cluster(client)
    if cluster is not None and type(data).__module__.partition(".")[0] != "dask":
        return FileRows(data, cluster, columns=columns, drop=drop)
    data = chosen_columns(data, columns, drop)
    if cluster is None:
        rows: ClusterRows = data
        return rows
    names = names_of(data) if hasattr(data, "to_dask_array") else None
    if hasattr(data, "to_dask_array"):
        for column, dtype in data.dtypes.items():
            if dtype.kind not in "iufb":
                raise source_error("column", "the Dask dataframe", column=column, what=dtype)
        data = data.to_dask_array(lengths=True)
    if not hasattr(data, "chunks"):
        raise TypeError(
            f"Rows must be a Dask array or dataframe. Got {type(data).__name__}. Convert it."
        )
    if data.ndim != 2:
        raise SourceError(
            f"The Dask array must have two axes, rows x columns. It has {data.ndim}. Reshape it."
        )
    if any(np.isnan(size) for size in data.chunks[0]):
        data = data.compute_chunk_sizes()
    if data.numblocks[1] > 1:
        data = data.rechunk({1: -1})
    return BlockRows(
        data.to_delayed().reshape(-1),
        data.chunks[0],
        int(data.shape[1]),
        sparse=is_sparse(data._meta),
        name="the Dask array",
        cluster=cluster,
        columns=names,
    )


def from_delayed(
    blocks: Iterable[Any],
    *,
    n_features: int | None = None,
    n_rows: Sequence[int] | None = None,
    client: Any = None,
) -> ClusterRows:
    """Return rows whose blocks, NumPy or CSR arrays, are delayed values or futures.

    Parameters
    ----------
    blocks : iterable of dask.delayed objects or futures
        The blocks, in order; all dense or all CSR.
    n_features : int, optional
        Their width.
    n_rows : sequence of int, optional
        The number of rows of each block. Without this or `n_features`, every block is computed once
        to count them.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.

    Examples
    --------
    >>> import dask, odeco.online.dask  # doctest: +SKIP
    >>> blocks = [dask.delayed(scipy.sparse.load_npz)(path) for path in paths]  # doctest: +SKIP
    >>> odeco.decompose_stream(odeco.online.dask.from_delayed(blocks), 5)  # doctest: +SKIP
    """
    dask = import_module("dask")
    cluster = find_cluster(client)
    lazy = [block if hasattr(block, "dask") else dask.delayed(block) for block in blocks]
    if not lazy:
        raise SourceError("Rows must come in at least one block. Got none.")
    looks = dask.delayed(_look, pure=False)
    known = n_features is not None and n_rows is not None
    unknown = BlockRows(
        lazy, [1] * len(lazy), 1, sparse=False, name="the delayed blocks", cluster=cluster
    )
    shapes = _computed(
        unknown,
        lambda rows: [looks(block) for block in (rows._blocks[:1] if known else rows._blocks)],
    )
    for shape in shapes:
        if isinstance(shape, PrivateFault):
            raise PrivateError(shape.text)
    width = shapes[0][1]
    kinds = {shape[2] for shape in shapes}
    if n_features is not None:
        width = check_count("n_features", n_features)
    if n_rows is None:
        counts = [shape[0] for shape in shapes]
    else:
        counts = [check_count("n_rows", n, 0) for n in n_rows]
    if len(counts) != len(lazy) or len(kinds) > 1:
        raise SourceError(
            f"Blocks must be all dense or all CSR, with one number of rows each. Got {len(lazy)} "
            f"blocks, {len(counts)} numbers and {len(kinds)} kinds."
        )
    return BlockRows(
        lazy, counts, width, sparse=kinds.pop(), name="the delayed blocks", cluster=cluster
    )


def _look(block: Any) -> Any:
    if isinstance(block, PrivateFault):
        return block
    return (int(block.shape[0]), int(block.shape[1]), is_sparse(block))


def _cut(block: Any, start: int, stop: int) -> Any:
    """Return some rows of a block, as a copy: a view would keep the whole block in memory."""
    if isinstance(block, PrivateFault):
        return block
    if sparse.issparse(block):
        return row_slice(to_csr(block), start, stop).copy()
    return stored_numbers(np.asarray(block))[start:stop].copy()
