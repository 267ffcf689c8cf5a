"""Pieces of rows, and how a worker reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from odeco._util.threads import one_thread
from odeco._util.types import IndexArray
from odeco.errors import SourceError
from odeco.io.rows import check_private_structure, row_slice, to_csr
from odeco.io.source import Block, Source
from odeco.online.dask.client import check_versions
from odeco.privacy.sources import read_silently


class Piece(NamedTuple):
    """Rows of one file or block.

    Attributes
    ----------
    source : Source, or a delayed array
        A file, which a worker opens, or a block, which Dask computes.
    start, stop : int
        Rows of the file; all rows of a block.
    first : int
        The first of these rows, counted over all files or blocks; if only some are chosen, over all
        that are.
    chosen : array of int or None
        How often each of these rows counts; None if each counts once.
    """

    source: Any
    start: int
    stop: int
    first: int
    chosen: IndexArray | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows that count."""
        if self.chosen is None:
            return self.stop - self.start
        return int(self.chosen.sum())


def read(
    pieces: list[Piece],
    blocks: list[Any],
    n_features: int,
    name: str,
    columns: tuple[str, ...] | None = None,
) -> Iterator[Block]:
    """Yield the rows of pieces, checked; an error names the file, or the collection, and the row in
    it.
    """
    for number, piece in enumerate(pieces):
        if isinstance(piece.source, Source):
            found = _first_rows(piece.source.iterate_from(piece.start), piece.stop - piece.start)
        else:
            found = _GivenBlock(blocks[number], n_features, name, columns).iterate_from(piece.first)
        yield from found if piece.chosen is None else _chosen_rows(found, piece.chosen)


def _first_rows(blocks: Iterator[Block], left: int) -> Iterator[Block]:
    for rows in blocks:
        yield rows if rows.shape[0] <= left else row_slice(rows, 0, left)
        left -= int(rows.shape[0])
        if left <= 0:
            break


def _chosen_rows(blocks: Iterator[Block], chosen: IndexArray) -> Iterator[Block]:
    start = 0
    for rows in blocks:
        yield rows[np.repeat(np.arange(rows.shape[0]), chosen[start : start + rows.shape[0]])]
        start += rows.shape[0]


class _GivenBlock(Source):
    """A block of a Dask collection; errors count its rows from the first of the collection."""

    def __init__(
        self, block: Any, n_features: int, name: str, columns: tuple[str, ...] | None
    ) -> None:
        self._block = block
        self.n_features = n_features
        self.name = name
        self.columns = columns

    def fingerprint(self) -> str:
        """Return the name; it is not used."""
        return self.name

    def _blocks(self, row: int) -> Iterator[Any]:  # noqa: ARG002 - errors count from there
        yield _as_array(self._block)


def _as_array(block: Any) -> Any:
    if hasattr(block, "tocsr"):
        return to_csr(block)
    return np.ascontiguousarray(block)


def check_count_of(pieces: list[Piece], n_rows: int, name: str) -> None:
    """Raise if pieces have another number of rows than expected: rows would be counted twice, or
    lost.
    """
    expected = sum(piece.n_rows for piece in pieces)
    if n_rows != expected:
        raise SourceError(_wrong_count(expected, pieces[0].first, n_rows, name))


def _wrong_count(expected: int, first: int, n_rows: int, name: str) -> str:
    return (
        f"{name} must have {expected:,} rows from row {first:,} on. It has {n_rows:,}. Pass the "
        "number of rows of each block, or leave it out, so that they are counted."
    )


class PrivateFault(NamedTuple):
    """What a task of a private run returns instead of raising; its text depends on public facts
    only.

    Dask writes what a task raises into the log of the worker, with the arguments of the task.
    """

    text: str


def run_silently(
    work: Callable[[Iterator[Any]], Any], versions: Any, pieces: list[Piece], blocks: list[Any]
) -> Any:
    """Return what `work` makes of the rows of pieces, or a `PrivateFault`; it never raises, warns
    or logs.
    """
    try:
        check_versions(versions)
    except RuntimeError as error:
        return PrivateFault(str(error))
    faults: list[str] = []
    try:
        with one_thread(), np.errstate(all="ignore"):
            return work(_read_privately(pieces, blocks, faults))
    except Exception:  # noqa: BLE001 - its text may quote a record
        return PrivateFault(faults[0] if faults else PRIVATE_FAULT)


#: What is said where anything else might depend on a record.
PRIVATE_FAULT = "Rows of a private run could not be added up on a worker. Nothing was released."


def _read_privately(pieces: list[Piece], blocks: list[Any], faults: list[str]) -> Iterator[Any]:
    """Yield the rows of pieces, invalid ones included; what is wrong with a file itself is added to
    `faults`.
    """
    for number, piece in enumerate(pieces):
        found = _silent_rows(
            piece, None if isinstance(piece.source, Source) else blocks[number], faults
        )
        yield from found if piece.chosen is None else _chosen_rows(found, piece.chosen)


def _silent_rows(piece: Piece, block: Any, faults: list[str]) -> Iterator[Any]:
    try:
        if block is None:
            yield from read_silently(piece.source, piece.start, piece.stop)
            return
        if isinstance(block, PrivateFault):
            raise SourceError(block.text)
        rows = _as_array(block)
        size = piece.stop - piece.start
        if rows.shape[0] != size:  # both are public
            raise SourceError(_wrong_count(size, piece.first, rows.shape[0], "A block"))
    except SourceError as error:  # it names the file, and no record
        faults.append(str(error))
        raise
    check_private_structure(rows)
    yield rows
