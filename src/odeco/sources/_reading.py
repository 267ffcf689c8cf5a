"""What algorithms do with a source: read it in batches of one size, and take up a pass where it was interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from odeco._arguments import check_count
from odeco.rows import is_sparse, join_rows, row_slice
from odeco.sources import _errors
from odeco.sources._coerce import as_source
from odeco.sources._source import Block


def rebatch(source: Any, batch_size: int) -> Iterator[Block]:
    """Start a pass whose blocks have exactly `batch_size` rows, the last perhaps fewer, however they were cut before.

    Parameters
    ----------
    source : BatchSource, iterator of blocks, or anything that `as_source` accepts
        The rows. An iterator, such as `skip_rows` returns, is read on from where it is.
    batch_size : int
        Number of rows in every block but the last.

    Returns
    -------
    iterator of blocks
        The same rows in the same order. A batch that lies inside one block is a view of it; others are joined
        once, so every row is copied at most once.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.sources import rebatch
    >>> [len(batch) for batch in rebatch([np.zeros((3, 2)), np.zeros((4, 2))], 2)]
    [2, 2, 2, 1]
    """
    batch_size = check_count("batch_size", batch_size)
    return cut_into(source if isinstance(source, Iterator) else as_source(source), batch_size)


def skip_rows(source: Any, n: int) -> Iterator[Block]:
    """Start a pass at row `n`, counted from 0: by seeking where the source can, else by reading and dropping.

    Parameters
    ----------
    source : BatchSource, or anything that `as_source` accepts
        The rows.
    n : int
        How many rows to leave out; all of them at most.

    Returns
    -------
    iterator of blocks
        The rows from `n` on. Errors count rows from the start of the source, not from `n`.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.sources import skip_rows
    >>> next(skip_rows(np.arange(8.0).reshape(4, 2), 3))
    array([[6., 7.]])
    """
    return as_source(source).iterate_from(check_count("n", n, 0))


def cut_into(blocks: Iterable[Block], batch_size: int) -> Iterator[Block]:
    """Yield the rows of blocks in batches of exactly `batch_size` rows, the last perhaps of fewer."""
    pieces: list[Any] = []
    held = 0
    for block in blocks:
        start, n_rows = 0, block.shape[0]
        while start < n_rows:
            stop = min(n_rows, start + batch_size - held)
            pieces.append(row_slice(block, start, stop))
            held, start = held + stop - start, stop
            if held == batch_size:
                yield _join(pieces)
                pieces, held = [], 0
    if pieces:
        yield _join(pieces)


def _join(pieces: list[Any]) -> Block:
    sparse = [is_sparse(piece) for piece in pieces]
    if len(set(sparse)) > 1:
        before = pieces[: sparse.index(not sparse[0])]
        raise _errors.mixed_kinds("one batch", None, sum(piece.shape[0] for piece in before))
    joined: Block = join_rows(pieces)
    return joined
