"""Blocks cut smaller, or with the first rows left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from odeco.rows import row_slice
from odeco.sources import _errors


def split(block: Any, rows: int) -> Iterator[Any]:
    """Yield a block in pieces of at most `rows` rows, as views; nothing if it has no rows."""
    n_rows = block.shape[0]
    if 0 < n_rows <= rows:
        yield block
        return
    for start in range(0, n_rows, rows):
        yield row_slice(block, start, min(start + rows, n_rows))


def discard(blocks: Iterable[Any], n: int, name: str, path: Path | None = None) -> Iterator[Any]:
    """Yield what follows the first `n` rows; raise if there are fewer."""
    left = n
    for block in blocks:
        n_rows = block.shape[0]
        if left < n_rows:
            yield row_slice(block, left, n_rows) if left else block
        left = max(0, left - n_rows)
    if left:
        raise _errors.too_short(name, path, n, n - left)
