"""Topics from a stream, the same with privacy, and clusters of images: all from data that every installation has.

    make demo

1. *A stream.* The documents are the functions of Python's standard library, as the words of their code. They arrive in
   batches; each is read once and none is stored. The page shows how the topics converge.
2. *With privacy.* The same functions, at epsilon = 8: one function more or less among them changes the probability of
   any result by a bounded factor. The documentation strings need no protection: the vocabulary comes from them.
3. *Not text.* Handwritten digits, as a mixture of Gaussians.
"""

from __future__ import annotations

import keyword
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer
from sklearn.metrics import adjusted_rand_score

from odeco.datasets import python_code, python_documentation
from odeco.decompose.page import privacy_section
from odeco.display.page import Figures, Section, table
from odeco.display.style import LIGHT, drawn_in
from odeco.errors import UnreliableTopicsWarning
from odeco.models import TensorLDA, TensorMixture
from odeco.models.lda.display import representative_documents, summarise_topics
from odeco.models.lda.page import write_topics_report

N_TOPICS, N_WORDS, TOP_WORDS, BATCH = 4, 300, 8, 500
#: Shorter functions are left out, and so is a package of a hundred modules that have the same functions.
FEWEST_WORDS, LEFT_OUT = 3, "encodings"
EPSILON, DELTA = 8.0, 1e-6
N_CLUSTERS = 10
REPORT = Path("odeco-report.html")
WORD = r"[a-z]{3,}"


def public_words() -> list[str]:
    """Return the words that most documentation strings use: a vocabulary that is independent of the functions."""
    small = sorted(ENGLISH_STOP_WORDS | {*map(str.lower, keyword.kwlist), "self", "cls"})
    vectorizer = CountVectorizer(stop_words=small, token_pattern=WORD)
    counts = vectorizer.fit_transform(document.text for document in python_documentation())
    spread = np.asarray((counts > 0).sum(axis=0)).ravel()
    chosen = np.sort(np.argsort(-spread, kind="stable")[:N_WORDS])
    return vectorizer.get_feature_names_out()[chosen].tolist()


def matched(found: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the found topic for each wanted one, by the largest sum of cosines, and the cosines."""
    first, second = (topics / np.linalg.norm(topics, axis=1, keepdims=True) for topics in (wanted, found))
    cosines = first @ second.T
    rows, columns = linear_sum_assignment(-cosines)
    return columns, cosines[rows, columns]


def learn_openly(counts, console: Console) -> tuple[TensorLDA, list[tuple[int, np.ndarray]]]:
    """Push the documents in batches, each once; return the model, and the topics after 1, 2, 4, 8, … batches."""
    model, history = TensorLDA(N_TOPICS, random_state=0), []
    starts = range(0, counts.shape[0], BATCH)
    for number, start in enumerate(track(starts, "1. topics from a stream", console=console), 1):
        model.partial_fit(counts[start : start + BATCH])
        if number & (number - 1) == 0 or number == len(starts):
            history.append((model.n_samples_seen_, model.topic_word_.copy()))
    return model, history


def learn_privately(counts) -> TensorLDA:
    model = TensorLDA(N_TOPICS, epsilon=EPSILON, delta=DELTA, neighbour_relation="add_remove", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableTopicsWarning)  # the table says which topics are clear of the noise
        return model.fit(counts)


def sharpening(history, words: np.ndarray, figures: Figures) -> Section:
    """Show the cosines of the topics after each batch with those at the end."""
    final = history[-1][1]
    cosines = np.array([matched(topics, final)[1] for _, topics in history])
    numbers = [number for number, _ in history]
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    with drawn_in():
        axes = figure.subplots()
    for topic in range(N_TOPICS):
        colour = LIGHT.series[topic % len(LIGHT.series)]
        label = f"{topic} {words[final[topic].argmax()]}"
        axes.plot(numbers, cosines[:, topic], marker="o", color=colour, label=label)
    axes.set_xscale("log")
    axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
    axes.minorticks_off()
    axes.set_xlabel("functions seen, each once")
    axes.set_ylabel("cosine with the topic at the end")
    with drawn_in():
        axes.legend(loc="lower right", ncols=2)
    description = "The cosine of each topic with the topic at the end, over the number of functions seen."
    lead = "Functions arrive in batches of 500 and are not stored. The topics can be read after each batch."
    return Section("How the topics converged as functions arrived", figures.html(figure, description), lead)


def beside(openly: TensorLDA, privately: TensorLDA, words: np.ndarray) -> list[list[str]]:
    """Return the words of each open topic and of its private counterpart, the trust in that, and their cosine."""
    summary, trust = summarise_topics(privately, words), privately.trust_
    twins, cosines = matched(privately.topic_word_, openly.topic_word_)
    rows = []
    for topic, twin in enumerate(twins):
        shown = ", ".join(words[np.argsort(-openly.topic_word_[topic], kind="stable")[:TOP_WORDS]])
        hidden = ", ".join(word for word, _ in summary.leading_words(int(twin), TOP_WORDS))
        mark = "" if trust.clear[twin] else " (noise)"
        rows.append([shown, hidden, f"{trust.similarity[twin]:.2f}{mark}", f"{cosines[topic]:.2f}"])
    return rows


def private_section(rows: list[list[str]]) -> Section:
    return Section(
        "The same with privacy",
        table(["openly", f"privately, ε = {EPSILON:g}", "trust", "cosine"], rows, text_columns=[0, 1]),
        "Topics are paired by their cosines; words of private topics that are not clear of their noise are left out. "
        "Trust is the estimate of the private model itself. The cosine with the open topic is here to check it: it is "
        "exact, and not private. The vocabulary comes from documentation strings, which are public.",
    )


def digits_section(figures: Figures) -> tuple[Section, str]:
    """Learn clusters of images, and show the mean of each."""
    images, truth = load_digits(return_X_y=True)
    model = TensorMixture(N_CLUSTERS, random_state=0).fit(images)
    score = adjusted_rand_score(truth, model.predict(images))
    figure = Figure(figsize=(10, 1.7), layout="constrained")
    for axes, mean, weight in zip(figure.subplots(1, N_CLUSTERS), model.means_, model.weights_, strict=True):
        axes.imshow(mean.reshape(8, 8), cmap="Blues")
        axes.set_title(f"{weight:.0%}", color=LIGHT.muted, fontsize=9)
        axes.axis("off")
    verdict = model.summary().splitlines()[0]
    lead = (
        f"{len(images):,} images of 8 x 8 pixels, without their labels, as a mixture of {N_CLUSTERS} Gaussians: the "
        f"mean of each cluster and its share. {verdict} The adjusted Rand index with the true digits is {score:.2f}."
    )
    return Section("Not text: handwritten digits", figures.html(figure, "The mean image of each cluster."), lead), (
        f"{N_CLUSTERS} clusters of {len(images):,} handwritten digits: adjusted Rand index {score:.2f} with the truth"
    )


def main() -> None:
    progress, console = Console(stderr=True), Console()
    console.print(
        "This learns (1) topics from a stream of the functions of Python's library, (2) the same with privacy, and (3) "
        f"clusters of handwritten digits, and writes {REPORT}. It takes less than a minute."
    )
    with progress.status("reading the standard library (nothing of it is executed)"):
        vocabulary = public_words()
        functions = [each for each in python_code() if not each.module.startswith(LEFT_OUT)]
    counts = CountVectorizer(vocabulary=vocabulary, token_pattern=WORD).fit_transform(each.text for each in functions)
    long_enough = np.flatnonzero(np.asarray(counts.sum(axis=1)).ravel() >= FEWEST_WORDS)
    order = np.random.default_rng(0).permutation(long_enough)
    counts, functions, words = counts[order], [functions[place] for place in order], np.array(vocabulary)

    begun = time.perf_counter()
    openly, history = learn_openly(counts, progress)
    streamed = time.perf_counter() - begun
    begun = time.perf_counter()
    with Progress(console=progress, transient=True) as bar:
        bar.add_task("2. the same with privacy", total=None)
        privately = learn_privately(counts)
        rows = beside(openly, privately, words)
    hidden = time.perf_counter() - begun
    figures = Figures()
    digits, sentence = digits_section(figures)

    shown = Table("openly, each function seen once", f"privately, ε = {EPSILON:g}", "trust", "cosine", box=None)
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    clear = int(np.sum(privately.trust_.clear))
    console.print(
        f"\n{N_TOPICS} topics of {counts.shape[0]:,} functions from a stream in {streamed:.1f} s; privately in "
        f"{hidden:.1f} s, {clear} of {N_TOPICS} clear of the noise\n{sentence}"
    )
    examples = [
        [(functions[place].name, functions[place].text[:400], share) for place, share in chosen]
        for chosen in representative_documents(openly, counts, 3)
    ]
    write_topics_report(
        summarise_topics(openly, words, counts),
        REPORT,
        title="What the functions of Python's library are about",
        examples=examples,
        command=f"{Path(sys.executable).name} examples/demo.py",
        more=[sharpening(history, words, figures), private_section(rows), privacy_section(privately.privacy_), digits],
    )
    console.print(f"wrote {REPORT}: open it in a browser")


if __name__ == "__main__":
    main()
