"""Topics, privacy, clusters and a stream, from data that every installation of Python has.

    make demo

1. *Topics in one pass.* The documentation strings of Python's library arrive in batches; each is
   read once and none is stored.
2. *With privacy.* The same texts at epsilon = 4: words are chosen and topics are learnt such that
   one text more or less changes the probability of any result by a bounded factor.
3. *A table with strings and gaps.* The functions of the library: how long they are, what they are
   called, and how many words document them, if any do.
4. *A stream.* The third moment of rows with 300 columns, decomposed while they arrive.
"""

from __future__ import annotations

import ast
import resource
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.feature_extraction.text import CountVectorizer

import odeco
from odeco.datasets import python_code, python_documentation
from odeco.decompose.page import privacy_section
from odeco.display.page import Section, table
from odeco.errors import UnreliableTopicsWarning
from odeco.models import TensorLDA, TensorMixture
from odeco.models.lda.display import representative_documents
from odeco.models.lda.explorer import write_topics_report

N_TOPICS, BATCH, TOP_WORDS = 12, 500, 8
N_PRIVATE, EPSILON, DELTA = 8, 4.0, 1e-6
N_CLUSTERS = 4
N_ROWS, N_COLUMNS, N_SOURCES = 60_000, 300, 5
PAGE, CLUSTERS_PAGE = Path("odeco-report.html"), Path("odeco-clusters.html")


def learn_topics(texts: list[str]) -> tuple[TensorLDA, object, np.ndarray]:
    """Push the texts in batches, each once; return the model, the counts and the words."""
    vectorizer = CountVectorizer(
        stop_words="english", token_pattern=r"[a-zA-Z][a-z]{2,}", min_df=5, max_df=0.3
    )
    counts = vectorizer.fit_transform(texts)
    words = vectorizer.get_feature_names_out()
    model = TensorLDA(N_TOPICS, random_state=0)
    for start in range(0, counts.shape[0], BATCH):
        batch = counts[start : start + BATCH]
        model.partial_fit(batch, words=None if start else words)
    return model, counts, words


def learn_privately(texts: list[str]) -> TensorLDA:
    """Choose words and learn topics under differential privacy."""
    model = TensorLDA(
        N_PRIVATE, epsilon=EPSILON, delta=DELTA, neighbour_relation="add_remove", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableTopicsWarning)  # the table says which are clear
        return model.fit_text(texts)


def private_section(model: TensorLDA) -> Section:
    """Return the private topics as a section of the page."""
    words = model.top_words(TOP_WORDS)
    rows = []
    for topic, own in enumerate(words):
        clear = "yes" if model.trust_.clear[topic] else "no"
        rows.append([", ".join(own), f"{model.trust_.signal[topic]:.2f}", clear])
    return Section(
        f"The same texts with privacy, ε = {EPSILON:g}",
        table(["words", "signal", "clear of the noise"], rows, text_columns=[0, 2]),
        model.summary().splitlines()[0],
    )


def table_of_functions() -> dict[str, list[object]]:
    """Return what the code of Python's library says of its functions; the last column has gaps."""
    documented = {each.name: len(each.text.split()) for each in python_documentation()}
    columns: dict[str, list[object]] = {
        name: []
        for name in ("log2 lines", "arguments", "branches", "name", "returns", "log2 words")
    }
    for function in python_code():
        try:
            node = ast.parse(textwrap.dedent(function.text)).body[0]
        except (SyntaxError, IndexError):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = list(ast.walk(node))
        branches = sum(isinstance(x, ast.If | ast.For | ast.While | ast.Try) for x in inside)
        returns = any(isinstance(x, ast.Return) and x.value is not None for x in inside)
        kind = "special" if node.name.startswith("__") else "public"
        if node.name.startswith("_") and kind == "public":
            kind = "private"
        n_words = documented.get(function.name)
        columns["log2 lines"].append(float(np.log2(len(function.text.splitlines()))))
        columns["arguments"].append(len(node.args.args))
        columns["branches"].append(branches)
        columns["name"].append(kind)
        columns["returns"].append("a value" if returns else "nothing")
        columns["log2 words"].append(None if n_words is None else float(np.log2(n_words)))
    return columns


def learn_clusters(functions: dict[str, list[object]]) -> TensorMixture:
    """Return clusters of the table, checked on halves of its rows."""
    counts = {"arguments": "count", "branches": "count"}
    model = TensorMixture(N_CLUSTERS, columns=counts, random_state=0).fit(functions)
    model.split_half(functions)
    return model


def decompose_stream() -> tuple[object, float]:
    """Push rows of five skewed sources in noise; return the components, and the worst cosine."""
    random = np.random.default_rng(0)
    vectors = np.linalg.qr(random.standard_normal((N_COLUMNS, N_SOURCES)))[0]
    online = odeco.OnlineDecomposer(N_SOURCES, rng=0)
    for _ in range(60):
        sources = random.exponential(size=(N_ROWS // 60, N_SOURCES)) - 1
        online.partial_fit(
            sources @ vectors.T + 0.5 * random.standard_normal((len(sources), N_COLUMNS))
        )
    result = online.result()
    return result, float(np.abs(result.vectors.T @ vectors).max(axis=1).min())


def main() -> None:
    console = Console()
    progress = Console(stderr=True)

    with progress.status("reading Python's library (nothing of it is executed)"):
        documents = list(python_documentation())
        order = np.random.default_rng(0).permutation(len(documents))
        documents = [documents[place] for place in order]
        texts = [each.text for each in documents]

    begun = time.perf_counter()
    with progress.status("1. topics, each text once"):
        topics, counts, words = learn_topics(texts)
    seconds = time.perf_counter() - begun
    shown = Table(f"{N_TOPICS} topics of {len(texts):,} texts, each read once", box=None)
    for own in topics.top_words(TOP_WORDS):
        shown.add_row(", ".join(own))
    console.print(shown)
    n_entries = len(words) ** 3
    console.print(
        f"{seconds:.1f} s. The third moment of {len(words):,} words has {n_entries:.1e} entries, "
        f"{n_entries * 8 / 1e12:.1f} TB; it was never formed.\n"
    )

    begun = time.perf_counter()
    with progress.status("2. the same with privacy"):
        private = learn_privately(texts)
    console.print(
        f"[bold]The same with privacy[/bold] (ε = {EPSILON:g}, δ = {DELTA:g}), words included"
    )
    console.print(f"{private.summary()}\n{time.perf_counter() - begun:.1f} s\n", markup=False)

    with progress.status("3. clusters of a table with strings and gaps"):
        functions = table_of_functions()
        clusters = learn_clusters(functions)
        odeco.write_report(
            clusters, CLUSTERS_PAGE, rows=functions, title="Functions of Python's library"
        )
    console.print("[bold]Functions of Python's library[/bold]: numbers, counts, strings, gaps")
    console.print(f"{clusters.summary()}\n", markup=False)

    with progress.status("4. a stream"):
        result, cosine = decompose_stream()
    console.print(f"[bold]A stream[/bold] of {N_ROWS:,} rows in 60 pieces, none of which is kept")
    console.print(
        f"{result.verdict}; the worst cosine with the truth is {cosine:.3f}", markup=False
    )

    shown_documents = representative_documents(topics, counts, 3)
    examples = [
        [(documents[place].name, documents[place].text[:400], share) for place, share in chosen]
        for chosen in shown_documents
    ]
    write_topics_report(
        topics,
        PAGE,
        npmi=topics.coherence(counts),
        title="What the documentation of Python's library is about",
        examples=examples,
        command=f"{Path(sys.executable).name} examples/demo.py",
        more=[private_section(private), privacy_section(private.privacy_)],
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(
        f"\npeak memory {peak:.0f} MB; wrote {PAGE} and {CLUSTERS_PAGE}: open them in a browser"
    )


if __name__ == "__main__":
    main()
