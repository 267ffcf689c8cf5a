"""``odeco bench``: the speed of this machine, beside that of the bare matrix products that the work consists of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from rich.table import Table
from scipy import sparse

from odeco.cli import options as _options
from odeco.cli.output import console, emit_json
from odeco.datasets.planted import planted_orthogonal
from odeco.display.progress import progress_bar
from odeco.online.sums import RowSum
from odeco.tensors.dense import DenseTensor

N_CANDIDATES = 32

Line = tuple[str, str, float, str, float]


@click.command("bench")
@click.option("--quick", is_flag=True, help="Smaller problems, fewer repeats: a few seconds.")
@_options.threads
@_options.json_output
def command(quick: bool, threads: int | None, as_json: bool) -> None:
    r"""Measure this machine: matrix products, images of a tensor, rows of a stream; about twenty seconds.

    Every line is compared with the bare matrix products that the work consists of, measured alternately on the same
    numbers; the best time of each counts. Above 1 the library is faster than the products, because it uses symmetry or
    more threads.

    \b
    Examples:
      odeco bench
      odeco bench --quick --json
    """
    lines: list[Line] = []
    jobs = _jobs(quick)
    with _options.limited(threads), progress_bar(only_on_terminal=True) as show_progress:
        for number, job in enumerate(jobs):
            show_progress("measuring", number, len(jobs))
            lines.append(job(3 if quick else 10))
    if as_json:
        keys = ("work", "what", "rate", "unit", "beside_bare_products")
        emit_json({"kind": "bench", "lines": [dict(zip(keys, line, strict=True)) for line in lines]})
        return
    table = Table("work", "on", "rate", "unit", "beside bare products", box=None, pad_edge=False)
    for column in (table.columns[2], table.columns[4]):
        column.justify = "right"
    for work, what, rate, unit, share in lines:
        table.add_row(work, what, f"{rate:,.3g}" if rate < 1000 else f"{rate:,.0f}", unit, f"{share:.2f}")
    console().print(table)


def _jobs(quick: bool) -> list[Callable[[int], Line]]:
    size = 1000 if quick else 2000
    dimensions = (50, 100) if quick else (100, 200)
    n_rows = 20_000 if quick else 200_000
    kinds = (np.float64, np.float32)
    jobs: list[Callable[[int], Line]] = []
    jobs += [lambda repeats, kind=kind: _product(size, kind, repeats) for kind in kinds]  # type: ignore[misc]
    jobs += [
        lambda repeats, d=d, kind=kind: _image(d, kind, repeats)  # type: ignore[misc]
        for d in dimensions
        for kind in kinds
    ]
    jobs += [lambda repeats, kind=kind: _dense_rows(n_rows, 200, kind, repeats) for kind in kinds]  # type: ignore[misc]
    jobs += [lambda repeats: _sparse_rows(n_rows // 4, 20_000, repeats)]
    return jobs


def _best(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the best time of each, measured alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, kept in zip((first, second), times, strict=True):
            time.sleep(0.1)  # threads of the linear algebra library spin for a while after a product
            begun = time.perf_counter()
            work()
            kept.append(time.perf_counter() - begun)
    return min(times[0]), min(times[1])


def _product(size: int, kind: type, repeats: int) -> Line:
    square: np.ndarray[Any, Any] = np.random.default_rng(0).standard_normal((size, size)).astype(kind)
    seconds, _ = _best(lambda: square @ square, lambda: None, repeats)
    return "matrix product", f"{size:,} x {size:,} {np.dtype(kind)}", 2 * size**3 / seconds / 1e9, "GFLOP/s", 1.0


def _image(dimension: int, kind: type, repeats: int) -> Line:
    entries: np.ndarray[Any, Any] = planted_orthogonal(dimension, 3, rng=0).to_dense().astype(kind)
    tensor, unfolding = DenseTensor(entries), entries.reshape(dimension**2, dimension)
    block = np.random.default_rng(0).standard_normal((dimension, N_CANDIDATES))
    typed: np.ndarray[Any, Any] = block.astype(kind)

    theirs, own = _best(lambda: unfolding @ typed, lambda: tensor.image(block), repeats)
    what = f"d = {dimension}, {N_CANDIDATES} candidates, {np.dtype(kind)}"
    return "images of a tensor", what, N_CANDIDATES / own, "images/s", theirs / own


def _dense_rows(n_rows: int, dimension: int, kind: type, repeats: int) -> Line:
    rows: np.ndarray[Any, Any] = np.random.default_rng(0).standard_normal((n_rows, dimension)).astype(kind)
    what = f"d = {dimension}, {N_CANDIDATES} candidates, {np.dtype(kind)}"
    return "rows of a stream, dense", what, *_rows(rows, repeats)


def _sparse_rows(n_rows: int, dimension: int, repeats: int) -> Line:
    per_row, generator = 100, np.random.default_rng(0)
    indices = np.sort(generator.integers(dimension, size=(n_rows, per_row), dtype=np.int32), axis=1).ravel()
    pointers = np.arange(0, n_rows * per_row + 1, per_row, dtype=np.int32)
    data = generator.standard_normal(n_rows * per_row).astype(np.float32)
    rows = sparse.csr_array((data, indices, pointers), shape=(n_rows, dimension))
    what = f"d = {dimension:,}, {per_row} numbers per row, float32"
    return "rows of a stream, CSR", what, *_rows(rows, max(2, repeats // 3))


def _rows(rows: Any, repeats: int) -> tuple[float, str, float]:
    theirs, own = rows_beside_products(rows, repeats)
    return rows.shape[0] / own, "rows/s", theirs / own


def rows_beside_products(rows: Any, repeats: int) -> tuple[float, float]:
    """Return the seconds that the two bare products take, and those of an image of the rows' moment."""
    block = np.random.default_rng(0).standard_normal((rows.shape[1], N_CANDIDATES))
    typed = block.astype(rows.dtype)

    def bare() -> object:
        overlaps = rows @ typed
        return rows.T @ np.square(overlaps, out=overlaps)

    def ours() -> object:
        total = RowSum("image", block, order=3)
        total.update(rows)
        return total.total()

    return _best(bare, ours, repeats)
