"""The steps of a run over 10⁹ rows or documents, each measured on a small part and multiplied.

    python benchmarks/extrapolation.py

Times are processor times of one thread (BLAS and readers limited to one), so they hold per core and
do not depend on what else the machine does. Rows have 100 float32 columns; an image has 20 vectors.
Documents have 100 words each, drawn from 50,000 by Zipf's law; topics are 100.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import parquet
from threadpoolctl import threadpool_limits

from odeco.io import as_source
from odeco.io.documents import read_documents
from odeco.models.lda.vocabulary import count_words
from odeco.online import RowSum

N_ROWS, N_COLUMNS, N_VECTORS = 400_000, 100, 20
N_DOCUMENTS, N_WORDS, LENGTH, N_TOPICS = 20_000, 50_000, 100, 100
TARGET = 1e9


def measure(name: str, count: int, run: Callable[[], object], repeats: int = 3) -> None:
    """Print how many a core does per second, and the hours that a core needs for the target."""
    best = float("inf")
    for _ in range(repeats):
        before = time.process_time()
        run()
        best = min(best, time.process_time() - before)
    rate = count / best
    print(f"{name:>44} {rate / 1e3:14,.1f} {TARGET / rate / 3600:18.2f}", flush=True)


def exhaust(blocks: Iterator[Any]) -> None:
    for _ in blocks:
        pass


def main() -> None:
    arrow.set_cpu_count(1)
    arrow.set_io_thread_count(1)
    generator = np.random.default_rng(0)
    print(f"{'step':>44} {'thousand/s/core':>14} {'core hours for 10⁹':>18}")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        rows = generator.standard_normal((N_ROWS, N_COLUMNS), dtype=np.float32)
        np.save(folder / "rows.npy", rows)
        table = arrow.table({f"x{i}": rows[:, i] for i in range(N_COLUMNS)})
        parquet.write_table(
            table, folder / "rows.parquet", use_dictionary=False, row_group_size=50_000
        )
        vectors = generator.standard_normal((N_COLUMNS, N_VECTORS))

        def image() -> None:
            total = RowSum("image", vectors, 3)
            for start in range(0, N_ROWS, 8192):
                total.update(rows[start : start + 8192])

        measure(
            "rows: read .npy and check",
            N_ROWS,
            lambda: exhaust(iter(as_source(folder / "rows.npy"))),
        )
        measure(
            "rows: decode Parquet and check",
            N_ROWS,
            lambda: exhaust(iter(as_source(folder / "rows.parquet"))),
        )
        measure("rows: an image of 20 vectors", N_ROWS, image)

        share = 1 / np.arange(1, N_WORDS + 1)
        words = np.array([f"word{number}" for number in range(N_WORDS)])
        drawn = generator.choice(words, (N_DOCUMENTS, LENGTH), p=share / share.sum())
        texts = [" ".join(own) for own in drawn]
        (folder / "texts.txt").write_text("\n".join(texts) + "\n")
        measure(
            "documents: read lines",
            N_DOCUMENTS,
            lambda: exhaust(read_documents([folder / "texts.txt"])),
        )
        measure(
            "documents: count words of a vocabulary",
            N_DOCUMENTS,
            lambda: count_words(texts, words.tolist()),
        )
        counts = count_words(texts, words.tolist()).counts.astype(np.float64)
        topics = generator.standard_normal((N_WORDS, N_TOPICS))

        def contract() -> None:
            total = RowSum("image", topics, 3)
            total.update(counts)
            total.total()

        measure("documents: an image of 100 vectors", N_DOCUMENTS, contract)


if __name__ == "__main__":
    main()
