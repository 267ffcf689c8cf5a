"""Memory of TensorLDA: flat in the number of documents of a stream, and a vocabulary of a million
hashed words.

    python benchmarks/topics_memory.py

Each row of the table is a process of its own, which draws its documents batch by batch (100 words
each by Zipf's law, seven in ten of them words of the document's own topic) and prints its peak
resident size, imports included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from odeco.errors import UnreliableTopicsWarning
from odeco.models import TensorLDA

DOCUMENT_LENGTH, BATCH = 100, 2_000


def peak_megabytes() -> float:
    """Return the peak resident size of this process so far (Linux; ru_maxrss would start at that of
    the parent).
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def batches(n_documents: int, n_words: int, n_topics: int) -> Iterator[Any]:
    """Yield batches of counts: words by Zipf's law, in the order of the document's topic; then
    hashed.
    """
    generator = np.random.default_rng(0)
    for start in range(0, n_documents, BATCH):
        n = min(BATCH, n_documents - start)
        topics = generator.integers(n_topics, size=n)
        ranks = np.minimum(generator.zipf(1.3, size=(n, DOCUMENT_LENGTH)), n_words) - 1
        own = generator.random((n, DOCUMENT_LENGTH)) < 0.7
        # A hash spreads (topic, rank) over the vocabulary; words of no topic share one numbering.
        keys = np.where(own, topics[:, None] + 1, 0) * np.int64(2_654_435_761) + ranks * np.int64(
            40_503
        )
        words = (keys % n_words).ravel()
        rows = np.repeat(np.arange(n), DOCUMENT_LENGTH)
        counts = sparse.coo_array(
            (np.ones(words.size, dtype=np.int64), (rows, words)), shape=(n, n_words)
        )
        yield sparse.csr_array(counts)


def measure(method: str, n_documents: int, n_words: int, n_topics: int, refine: int) -> None:
    """Run in a process of its own: learn topics and print megabytes and seconds."""
    warnings.simplefilter("ignore", UnreliableTopicsWarning)
    model = TensorLDA(n_topics, max_iter=refine, random_state=0)
    source = batches(n_documents, n_words, n_topics)
    counts = sparse.csr_array(sparse.vstack(list(source))) if method == "fit" else None
    start = time.perf_counter()
    if counts is not None:
        model.fit(counts)
    else:
        for batch in source:
            model.partial_fit(batch)
    print(peak_megabytes(), time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--measure", nargs=5, metavar=("METHOD", "DOCUMENTS", "WORDS", "TOPICS", "REFINE")
    )
    parser.add_argument("--quick", action="store_true", help="fewer documents")
    arguments = parser.parse_args()
    if arguments.measure:
        method, *numbers = arguments.measure
        measure(method, *(int(number) for number in numbers))
        return
    scale = 1 if arguments.quick else 4
    cases = [("partial_fit", n * scale, 10_000, 20, 5) for n in (5_000, 10_000, 20_000)]
    cases += [
        (method, 5_000 * scale, 1_000_000, 50, refine)
        for method in ("fit", "partial_fit")
        for refine in (0, 5)
    ]
    print(f"Documents of {DOCUMENT_LENGTH} words; peak resident size, imports included")
    print(
        f"{'method':>12} {'documents':>10} {'words':>10} {'topics':>7} {'refine':>7} "
        f"{'peak MB':>8} {'seconds':>8}"
    )
    for case in cases:
        command = [sys.executable, __file__, "--measure", *(str(number) for number in case)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peak, seconds = (float(number) for number in output.split())
        method, n_documents, n_words, n_topics, refine = case
        print(
            (
                f"{method:>12} {n_documents:10,} {n_words:10,} {n_topics:7} {refine:7} "
                f"{peak:8,.0f} {seconds:8.1f}"
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
