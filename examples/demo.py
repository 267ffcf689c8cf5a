"""Learn what the functions of Python's standard library are about: as a stream, and once more in private.

    make demo

Every Python installation carries its own corpus. The documents are the functions of the standard library, as the words
of their code. The vocabulary comes from elsewhere, the documentation strings, because a private model must not choose
its words from what it protects. Topics are then learnt twice. Openly: functions arrive in batches, each is seen once
and none is kept. Privately, at epsilon = 4: whoever sees the topics can hardly tell whether any one function was in the
library as it is or quite another. Beside each private topic stands how far it is to be trusted.
"""

from __future__ import annotations

import keyword
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from odeco.corpus import python_code, python_documentation
from odeco.models import TensorLDA, UnreliableTopicsWarning, summarise_topics
from odeco.report import Section, again_section, privacy_section, table, write_page

N_TOPICS, N_WORDS, TOP_WORDS, BATCH = 6, 300, 8, 500
#: Left out are shorter functions, and a package of a hundred modules with the same functions in each.
FEWEST_WORDS, LEFT_OUT = 3, "encodings"
EPSILON, DELTA = 4.0, 1e-6
REPORT = Path("odeco-report.html")
WORD = r"[a-z]{3,}"


def public_vocabulary() -> list[str]:
    """Return the words that most documentation strings use, without Python's own and the small words of English."""
    small = sorted(ENGLISH_STOP_WORDS | {*map(str.lower, keyword.kwlist), "self", "cls"})
    vectorizer = CountVectorizer(stop_words=small, token_pattern=WORD, binary=True)
    counts = vectorizer.fit_transform(document.text for document in python_documentation())
    spread = np.asarray(counts.sum(axis=0)).ravel()
    return sorted(vectorizer.get_feature_names_out()[np.argsort(-spread, kind="stable")[:N_WORDS]])


def top_words(topic: np.ndarray, words: np.ndarray) -> str:
    return ", ".join(words[np.argsort(-topic, kind="stable")[:TOP_WORDS]])


def learn_openly(counts, console: Console) -> TensorLDA:
    """Push the documents in batches, each once."""
    model = TensorLDA(N_TOPICS, random_state=0)
    for start in track(range(0, counts.shape[0], BATCH), "learning from a stream", console=console):
        model.partial_fit(counts[start : start + BATCH])
    return model


def learn_privately(counts) -> TensorLDA:
    model = TensorLDA(N_TOPICS, epsilon=EPSILON, delta=DELTA, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableTopicsWarning)  # the table says which topics are clear of the noise
        return model.fit(counts)


def side_by_side(openly: TensorLDA, privately: TensorLDA) -> list[tuple[int, int, float]]:
    """Pair the topics of both models so that the cosines are largest: open topic, private topic, cosine."""
    first, second = (
        model.topic_word_ / np.linalg.norm(model.topic_word_, axis=1, keepdims=True) for model in (openly, privately)
    )
    cosines = first @ second.T
    rows, columns = linear_sum_assignment(-cosines)
    return [(int(i), int(j), float(cosines[i, j])) for i, j in zip(rows, columns, strict=True)]


def main() -> None:
    progress, console = Console(stderr=True), Console()
    begun = time.perf_counter()
    with progress.status("reading the standard library (nothing of it is executed)"):
        vocabulary = public_vocabulary()
        functions = [each.text for each in python_code() if not each.module.startswith(LEFT_OUT)]
    counts = CountVectorizer(vocabulary=vocabulary, token_pattern=WORD).fit_transform(functions)
    counts = counts[np.asarray(counts.sum(axis=1)).ravel() >= FEWEST_WORDS]
    counts = counts[np.random.default_rng(0).permutation(counts.shape[0])]
    console.print(
        f"{counts.shape[0]:,} functions of {FEWEST_WORDS} words and more, {N_WORDS} words known, read in "
        f"{time.perf_counter() - begun:.1f} s; "
        "the tensor of their word triples is never formed"
    )

    begun = time.perf_counter()
    openly = learn_openly(counts, progress)
    words, topics = np.array(vocabulary), openly.topic_word_
    streamed = time.perf_counter() - begun
    begun = time.perf_counter()
    privately = learn_privately(counts)
    trust = privately.trust_
    summary = summarise_topics(privately, words, counts)
    console.print(
        f"{N_TOPICS} topics from a stream in {streamed:.1f} s; privately in {time.perf_counter() - begun:.1f} s, "
        f"{int(np.sum(trust.clear))} of them clear\n"
    )

    titles = ["openly, each function seen once", f"privately, ε = {EPSILON:g}", "trust", "cosine"]
    shown = Table(*titles, box=None, pad_edge=False)
    rows = []
    for i, j, cosine in side_by_side(openly, privately):
        hidden = ", ".join(word for word, _ in summary.leading_words(j, TOP_WORDS))
        mark = "" if trust.clear[j] else " (noise)"
        rows.append([top_words(topics[i], words), hidden, f"{trust.likeness[j]:.2f}{mark}", f"{cosine:.2f}"])
        shown.add_row(*rows[-1])
    console.print(shown)
    write_page(
        REPORT,
        title="What the functions of Python's library are about",
        subtitle=f"{N_TOPICS} topics of {counts.shape[0]:,} functions, learnt from a stream and in private",
        facts={
            "functions": f"{counts.shape[0]:,}",
            "words": str(N_WORDS),
            "private topics clear": f"{int(np.sum(trust.clear))} of {N_TOPICS}",
        },
        sections=[
            Section(
                "Topics side by side",
                table(["openly", "privately", "trust", "cosine"], rows, text_columns=[0, 1]),
                "The words of each topic, most frequent first, paired by their likeness; words of private topics that "
                "are not clear of their noise are left out. Trust is the cosine with the same topic without noise that "
                "is to be expected. What is guaranteed below holds for the private topics; those learnt openly stand "
                "here to compare with: the cosine with them is exact, and not private.",
            ),
            privacy_section(privately.privacy_),
            again_section(f"{Path(sys.executable).name} examples/demo.py"),
        ],
    )
    console.print(f"\nwrote {REPORT}")


if __name__ == "__main__":
    main()
