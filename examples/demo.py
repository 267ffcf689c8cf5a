"""Learn the components of a real stream: which words the documentation of Python's library uses together.

    make demo

Every Python installation carries its own corpus: the documentation strings of its standard library. Each is a row of
word frequencies, scaled to the sphere and centred. The third moment of such rows is a tensor of some hundred million
entries, which is never formed: rows are pushed as a stream, and the components are found from a few batches and
refined by those that follow.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
import time
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import sparse

import odeco

N_COMPONENTS, N_WORDS, TOP_WORDS = 8, 500, 8
STOP_WORDS = """
the a an of to in is and or for if be with that this by on as are it not from when which will at can
may has have was all any also one than then its into but no only used use using you see each other
same such via per does do so must should would there their these those been being more most some out
over up like just get set new how
"""


def documentation_strings() -> list[str]:
    """Return the documentation strings of the standard library, in the order of its files."""
    found = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts or "test" in path.parts or "tests" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found += [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    return found


def word_counts(texts: list[str]) -> tuple[sparse.csr_array, list[str]]:
    """Return how often each of the most frequent words occurs in each text that has at least five of them."""
    stop_words = set(STOP_WORDS.split())
    words = [[w for w in re.findall(r"[a-z]{3,}", text.lower()) if w not in stop_words] for text in texts]
    spread = Counter(word for text in words for word in set(text))
    vocabulary = [word for word, _ in spread.most_common(N_WORDS)]
    index = {word: number for number, word in enumerate(vocabulary)}
    rows = [Counter(index[word] for word in text if word in index) for text in words]
    rows = [row for row in rows if sum(row.values()) >= 5]
    pointers = np.cumsum([0] + [len(row) for row in rows])
    indices = np.array([word for row in rows for word in row])
    data = np.array([count for row in rows for count in row.values()], dtype=float)
    return sparse.csr_array((data, indices, pointers), shape=(len(rows), len(vocabulary))), vocabulary


def main() -> None:
    begun = time.perf_counter()
    counts, vocabulary = word_counts(documentation_strings())
    lengths = sparse.linalg.norm(counts, axis=1)
    rows = sparse.diags_array(1 / lengths) @ np.sqrt(counts)
    rows = (rows.toarray() - rows.mean(axis=0)) * np.sqrt(len(vocabulary))
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    print(
        f"{rows.shape[0]:,} documentation strings, {rows.shape[1]:,} words, read in {time.perf_counter() - begun:.1f} s"
    )
    print(f"their third moment has {rows.shape[1] ** 3:,} entries; it is never formed")

    begun = time.perf_counter()
    online = odeco.OnlineDecomposer(N_COMPONENTS, method="core", batch_size=len(rows) // 6, rng=0)
    for start in range(0, len(rows), 250):
        online.partial_fit(rows[start : start + 250])
        progress = online.progress
        bar = "#" * int(30 * progress.fraction)
        print(f"\r[{bar:<30}] {progress.n_rows:6,} rows, {progress.stage:<20}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    result = online.result()
    print(f"{N_COMPONENTS} components in {time.perf_counter() - begun:.1f} s, every row read once\n")
    for number, (weight, vector) in enumerate(zip(result.weights, result.vectors.T, strict=True), 1):
        top = [vocabulary[i] for i in np.argsort(-vector)[:TOP_WORDS]]
        print(f"{number:2d}. weight {weight:9.1f}  {', '.join(top)}")


if __name__ == "__main__":
    main()
