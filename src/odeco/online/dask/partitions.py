"""Where the rows are: in files that all workers can open, or in the blocks of a Dask collection."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from odeco._util.arguments import check_count
from odeco.errors import SourceError
from odeco.io.coerce import as_source
from odeco.io.files import pieces_of
from odeco.io.rows import is_sparse, row_slice, stored_numbers, to_csr
from odeco.io.source import BatchSource, chosen_columns, names_of
from odeco.online.dask.client import Cluster, find_cluster
from odeco.online.tree import rows_per_chunk


class Piece(NamedTuple):
    """Rows of one file, or of one block: what to read, where it begins and ends there, and its first row in all rows.

    Attributes
    ----------
    source : Source, or a delayed array
        A file, which a worker opens, or a block, which Dask brings there.
    start, stop : int
        Rows of the file; of a block it is all of them.
    first : int
        Where these rows begin among all rows.
    """

    source: Any
    start: int
    stop: int
    first: int


class ClusterRows(Protocol):
    """Rows that workers can get at.

    Attributes
    ----------
    n_rows, n_features : int
        How many there are, and their width.
    sparse : bool
        Whether they are CSR.
    name : str
        What errors call them.
    cluster : Cluster
        Who works on them.
    in_files : bool
        Whether workers read them from files; otherwise they are blocks of a Dask collection.
    columns : tuple of str or None
        The names of the columns, where there are some.
    """

    n_rows: int
    n_features: int
    sparse: bool
    name: str
    cluster: Cluster
    in_files: bool
    columns: tuple[str, ...] | None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return where the rows from `start` to `stop` are."""

    def fingerprint(self) -> str:
        """Return a short string that very probably changes if the rows do."""


class _Shaped:
    n_rows: int
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_rows, self.n_features


class FileRows(_Shaped):
    """The rows of files on storage that client and workers share. The client reads their headers only."""

    in_files = True

    def __init__(self, data: Any, cluster: Cluster, **selection: Any) -> None:
        source = as_source(data, **selection)
        self.sparse: bool = getattr(source, "sparse", False)
        if not self.sparse:
            source = as_source(data, batch_rows=rows_per_chunk(source.n_features), **selection)
        self._source: BatchSource = source
        self.name: str = getattr(source, "name", "the files")
        if source.n_rows is None or pieces_of(source, 0, 0) is None:
            raise SourceError(
                f"Rows for a cluster must be in files whose headers tell how many there are: .npy, .npz, .parquet, "
                f".arrow or svmlight. Got {self.name}. Convert it."
            )
        self.n_rows, self.n_features, self.cluster = source.n_rows, source.n_features, cluster
        self.columns: tuple[str, ...] | None = getattr(source, "columns", None)

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the files that hold these rows, and where in them."""
        found, first = [], start
        for file, begins, ends in pieces_of(self._source, start, stop) or []:
            found.append(Piece(file, begins, ends, first))
            first += ends - begins
        return found

    def fingerprint(self) -> str:
        """Return that of the files."""
        return self._source.fingerprint()


class BlockRows(_Shaped):
    """The rows of blocks that Dask makes when they are wanted, and may make again."""

    in_files = False

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
        self._blocks, self._edges = list(blocks), list(itertools.accumulate(counts, initial=0))
        self.n_rows, self.n_features, self.sparse = self._edges[-1], n_features, sparse
        self.name, self.cluster, self.columns = name, cluster, columns
        if not (self.n_rows and n_features):
            raise SourceError(
                f"Rows must have at least one row and one column. Got {self.n_rows:,} x {n_features:,} in {name}."
            )

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the blocks that hold these rows; of one that holds others too, a part that is cut where it lies."""
        cut = import_module("dask").delayed(_cut, pure=True)
        found, number = [], bisect_right(self._edges, start) - 1
        while start < stop:
            begins, ends = self._edges[number], min(stop, self._edges[number + 1])
            block, size = self._blocks[number], ends - start
            if size:
                whole = size == self._edges[number + 1] - begins
                found.append(Piece(block if whole else cut(block, start - begins, ends - begins), 0, size, start))
            start, number = ends, number + 1
        return found

    def fingerprint(self) -> str:
        """Return kind and shape, and a digest of the first row, the last and one between them."""
        rows = sorted({0, self.n_rows // 2, self.n_rows - 1})
        lazy = [self.pieces(row, row + 1)[0].source for row in rows]
        digest = hashlib.sha256()
        for row in self.cluster.client.gather(self.cluster.client.compute(lazy)):
            parts = (row.indices, row.data) if is_sparse(row) else (np.asarray(row),)
            for part in parts:
                digest.update(np.ascontiguousarray(part).tobytes())
        kind = "csr" if self.sparse else "dense"
        return f"dask:{kind}:{self.n_rows}x{self.n_features}:{digest.hexdigest()[:16]}"


def as_cluster_rows(
    data: Any,
    client: Any = None,
    *,
    columns: Sequence[str] | str | None = None,
    drop: Sequence[str] | str | None = None,
) -> ClusterRows:
    """Return rows that the workers of a cluster can get at.

    Parameters
    ----------
    data : Dask array, Dask dataframe, path, list of paths, or what `from_delayed` returns
        A Dask array may have any chunks, of NumPy arrays or of CSR arrays; a dataframe must hold numbers. Paths must
        lead to the same files on all machines.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.
    columns, drop : sequence of str, optional
        The names of the columns of a table to read, in this order, or of those to leave out.
    """
    cluster = None if isinstance(data, FileRows | BlockRows) else find_cluster(client)
    if cluster is not None and type(data).__module__.partition(".")[0] != "dask":
        return FileRows(data, cluster, columns=columns, drop=drop)
    data = chosen_columns(data, columns, drop)
    if cluster is None:
        rows: ClusterRows = data
        return rows
    names = names_of(data) if hasattr(data, "to_dask_array") else None
    if hasattr(data, "to_dask_array"):
        data = data.to_dask_array(lengths=True)
    if not hasattr(data, "chunks"):
        raise TypeError(f"Rows must be a Dask array or dataframe. Got {type(data).__name__}. Convert it.")
    if data.ndim != 2:
        raise SourceError(f"The Dask array must have two axes, rows x columns. It has {data.ndim}. Reshape it.")
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
    """Return rows whose blocks, NumPy or CSR arrays, are made by delayed calls or are futures.

    Parameters
    ----------
    blocks : iterable of dask.delayed objects or futures
        The blocks, in order; all dense or all CSR.
    n_features : int, optional
        Their width.
    n_rows : sequence of int, optional
        How many rows each has. Without both, every block is made once to count them.
    client : dask.distributed.Client, optional
        The cluster; by default that of the process.

    Examples
    --------
    >>> import dask, odeco.online.dask  # doctest: +SKIP
    >>> blocks = [dask.delayed(scipy.sparse.load_npz)(path) for path in paths]  # doctest: +SKIP
    >>> odeco.decompose_stream(odeco.online.dask.from_delayed(blocks), 5)  # doctest: +SKIP
    """
    dask, cluster = import_module("dask"), find_cluster(client)
    lazy = [block if hasattr(block, "dask") else dask.delayed(block) for block in blocks]
    if not lazy:
        raise SourceError("Rows must come in at least one block. Got none.")
    looks = dask.delayed(_look, pure=False)
    known = n_features is not None and n_rows is not None
    shapes = cluster.client.gather(cluster.client.compute([looks(block) for block in (lazy[:1] if known else lazy)]))
    width, kinds = shapes[0][1], {shape[2] for shape in shapes}
    if n_features is not None:
        width = check_count("n_features", n_features)
    counts = [shape[0] for shape in shapes] if n_rows is None else [check_count("n_rows", n, 0) for n in n_rows]
    if len(counts) != len(lazy) or len(kinds) > 1:
        raise SourceError(
            f"Blocks must be all dense or all CSR, with one number of rows each. Got {len(lazy)} blocks, "
            f"{len(counts)} numbers and {len(kinds)} kinds."
        )
    return BlockRows(lazy, counts, width, sparse=kinds.pop(), name="the delayed blocks", cluster=cluster)


def _look(block: Any) -> tuple[int, int, bool]:
    return int(block.shape[0]), int(block.shape[1]), is_sparse(block)


def _cut(block: Any, start: int, stop: int) -> Any:
    """Return some rows of a block, as a copy: a view would take the whole block along."""
    if sparse.issparse(block):
        return row_slice(to_csr(block), start, stop).copy()
    return stored_numbers(np.asarray(block))[start:stop].copy()
