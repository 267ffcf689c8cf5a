"""What runs on a worker: one task in one thread, which changes none of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from odeco._util.threads import one_thread
from odeco._util.types import FloatArray
from odeco.errors import SourceError
from odeco.io.reading import sum_of_bits
from odeco.io.rows import check_private_structure, row_slice, to_csr
from odeco.io.source import Block, Source
from odeco.online.dask.client import check_versions
from odeco.online.dask.partitions import Piece
from odeco.online.sums import Part, RowSum, joined
from odeco.online.sums import Question as Kind
from odeco.privacy.clip import clipped_rows


class Task(NamedTuple):
    """The arguments of a task besides rows and block.

    Attributes
    ----------
    kind : {"image", "core", "entries"}
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
        The versions of packages on the client.
    """

    kind: Kind
    order: int
    unit: int
    n_features: int
    name: str
    norm_bound: float | None
    versions: tuple[tuple[str, str], ...]


def add_up(task: Task, block: FloatArray, pieces: list[Piece], blocks: list[Any]) -> Part:
    """Return the sum over the rows of one node; `blocks` are the arrays of pieces that are not in files."""
    check_versions(task.versions)
    with one_thread():
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


def check_count_of(pieces: list[Piece], n_rows: int, name: str) -> None:
    """Raise if pieces have another number of rows than expected: rows would be counted twice, or lost."""
    expected = sum(piece.stop - piece.start for piece in pieces)
    if n_rows != expected:
        raise SourceError(
            f"{name} must have {expected:,} rows from row {pieces[0].first:,} on. It has {n_rows:,}. Pass the "
            "number of rows of each block, or leave it out, so that they are counted."
        )


def join(*parts: Part) -> Part:
    """Return the sum over the rows of consecutive nodes."""
    return joined([*parts])


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
