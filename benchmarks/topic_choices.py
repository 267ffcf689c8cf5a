"""What topics choose for themselves: the concentration α₀, the number of topics, a private
vocabulary.

    python benchmarks/topic_choices.py concentration     planted documents: errors with α₀ chosen, and with α₀ given
    python benchmarks/topic_choices.py number            planted documents: the number of topics that "auto" takes
    python benchmarks/topic_choices.py number --data     real text: what "auto" takes, beside perplexity over k
    python benchmarks/topic_choices.py stability         real text: what "auto" takes by seed, and by order of documents
    python benchmarks/topic_choices.py vocabulary        real text: how many words a private vocabulary has
    python benchmarks/topic_choices.py private  real text: whether the rules of private topics stand
    python benchmarks/topic_choices.py variational  real text: settings of the variational baseline

Real text is read from the folder --folder, as by benchmarks/topics.py, and split and pruned as
there: --corpus names it, and --documents takes so many of its documents, spread evenly, to save
time. The last two use documents that no figure is reported of (`private_choices.py`), for every
--epsilons.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from private_choices import choose_private
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from topic_corpora import read_corpus

from odeco.datasets import planted_topics
from odeco.errors import VocabularyError
from odeco.models import TensorLDA, choose_vocabulary_privately
from odeco.models.lda.inference import completion_perplexity
from odeco.models.lda.params import MAX_AUTO
from odeco.models.lda.vocabulary import STOP_WORDS, CountedWords

#: Three topics over six words.
SIX_WORDS = np.full((3, 6), 0.05) + 0.35 * np.repeat(np.eye(3), 2, axis=1)
#: Documents, words, α, length, topics.
MIXED: dict[str, tuple[int, int, list[float], int, Any]] = {
    "six words, (20, 10, 5)": (5000, 6, [20.0, 10.0, 5.0], 100, SIX_WORDS),
    "the same, 1,000 documents": (1000, 6, [20.0, 10.0, 5.0], 100, SIX_WORDS),
    "six words, (10, 10, 10)": (5000, 6, [10.0] * 3, 100, SIX_WORDS),
    "k = 5, α₀ = 20": (10_000, 100, [8.0, 4.0, 4.0, 2.0, 2.0], 60, None),
    "k = 8, α₀ = 24": (10_000, 200, [3.0] * 8, 80, None),
    "k = 10, α₀ = 10": (10_000, 300, [1.0] * 10, 60, None),
    "k = 5, α₀ = 5": (5000, 100, [1.0] * 5, 100, None),
    "k = 4, α₀ = 0.8, short": (5000, 100, [0.3, 0.2, 0.2, 0.1], 20, None),
    "k = 3, α₀ = 0.6": (3000, 200, [0.3, 0.2, 0.1], 100, None),
}
#: Topics, documents, length, words, α of each topic, sparsity.
PLANTED = [
    (3, 300, 30, 100, 0.3, 0.1),
    (5, 2000, 50, 200, 0.2, 0.1),
    (5, 5000, 100, 200, 2.0, 0.1),
    (10, 1000, 30, 300, 0.1, 0.1),
    (10, 2000, 50, 300, 0.1, 0.1),
    (20, 2000, 30, 500, 0.05, 0.05),
    (20, 5000, 100, 500, 0.2, 0.05),
    (40, 10_000, 60, 1000, 0.05, 0.05),
]


def topic_error(found: Any, truth: Any) -> float:
    """Return the mean L1 distance of topics to the true ones, each with its own."""
    distances = np.abs(found[:, None] - truth[None]).sum(axis=2)
    return float(distances[linear_sum_assignment(distances)].mean())


def concentration(n_seeds: int) -> None:
    print(
        "| documents | error, α₀ chosen: mean (largest) | error, α₀ given: mean (largest) | α₀ "
        "chosen |"
    )
    print("|---|---|---|---|")
    for name, (n_documents, n_words, alpha, length, topics) in MIXED.items():
        chosen, given, values = [], [], []
        for seed in range(n_seeds):
            corpus = planted_topics(
                n_documents, n_words, alpha, document_length=length, topics=topics, rng=1000 + seed
            )
            model = TensorLDA(len(alpha), max_iter=0, random_state=0).fit(corpus.counts)
            told = TensorLDA(
                len(alpha), doc_topic_concentration=sum(alpha), max_iter=0, random_state=0
            )
            chosen.append(topic_error(model.topic_word_, corpus.topics))
            given.append(topic_error(told.fit(corpus.counts).topic_word_, corpus.topics))
            values.append(model.diagnostics_.concentration)
        print(
            f"| {name} | {np.mean(chosen):.3f} ({max(chosen):.3f}) | {np.mean(given):.3f} "
            f"({max(given):.3f}) | {min(values):.3g} to {max(values):.3g} |",
            flush=True,
        )


def number_planted(n_seeds: int) -> None:
    print(
        "| topics | documents x words, length | α of a topic | directions clear of noise | topics "
        "chosen |"
    )
    print("|---|---|---|---|---|")
    for k, n_documents, length, n_words, alpha, sparsity in PLANTED:
        clear, chosen = [], []
        for seed in range(n_seeds):
            corpus = planted_topics(
                n_documents,
                n_words,
                [alpha] * k,
                document_length=length,
                sparsity=sparsity,
                rng=seed,
            )
            model = TensorLDA("auto", max_iter=0, random_state=0).fit(corpus.counts)
            clear.append(model.diagnostics_.n_clear)
            chosen.append(model.n_components_)
        shown = f"{min(clear)} to {max(clear)} | {min(chosen)} to {max(chosen)}"
        print(f"| {k} | {n_documents:,} x {n_words:,}, {length} | {alpha} | {shown} |", flush=True)


def number_of_real(
    folder: Path, name: str, n_documents: int | None, sweeps: int, sizes: list[int]
) -> None:
    corpus = read_corpus(folder, name, 1)
    train = corpus.train
    if n_documents is not None:
        train = train[
            np.linspace(0, train.shape[0] - 1, min(n_documents, train.shape[0])).astype(np.int64)
        ]
    print(f"{name}: {train.shape[0]:,} documents, {train.shape[1]:,} words")
    start = time.perf_counter()
    spectral = TensorLDA("auto", max_iter=0, random_state=0).fit(train)
    found, seconds = spectral.diagnostics_, time.perf_counter() - start
    tried = ", ".join(f"{again} of {k}" for k, again in found.selection_scores.tolist())
    print(
        f"auto: {spectral.n_components_} topics, {found.n_clear} directions clear of noise, "
        f"{seconds:.0f} s"
    )
    print(f"found again: {tried}")
    for k in sorted({*sizes, spectral.n_components_}):
        model = TensorLDA(k, max_iter=sweeps, random_state=0).fit(train)
        perplexity = completion_perplexity(
            corpus.observed, corpus.held_out, model.topic_word_, model.doc_topic_prior_
        )
        note = " <- auto" if k == spectral.n_components_ else ""
        print(f"k = {k}: perplexity {perplexity:,.0f} after {sweeps} sweeps{note}", flush=True)


def stability(folder: Path, n_documents: int | None, n_seeds: int, *, short: bool) -> None:
    """Print what "auto" takes by seed and by order of documents; another order of words makes other
    halves.
    """
    print(
        "| documents | fine | auto, by seed | by order of the documents | by order of the words |"
    )
    print("|---|---|---|---|---|")
    for name, every in (("associated_press", 1), ("newsgroups", 1), ("debian_packages", 4)):
        train = read_corpus(folder, name, 1, short=short).train[::every][:n_documents]
        by_seed, by_order, by_words = [], [], []
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            order, columns = rng.permutation(train.shape[0]), rng.permutation(train.shape[1])
            by_seed.append(TensorLDA("auto", max_iter=0, random_state=seed).fit(train).diagnostics_)
            by_order.append(
                TensorLDA("auto", max_iter=0, random_state=0).fit(train[order]).diagnostics_
            )
            by_words.append(
                TensorLDA("auto", max_iter=0, random_state=0).fit(train[:, columns]).diagnostics_
            )
        clear = [min(each.n_clear, MAX_AUTO) for each in by_seed + by_order + by_words]
        chosen = [
            ", ".join(str(each.n_components) for each in found)
            for found in (by_seed, by_order, by_words)
        ]
        label = f"{name}{', 3 to 8 words each' if short else ''}, {train.shape[0]:,}"
        print(f"| {label} | {min(clear)} to {max(clear)} | {' | '.join(chosen)} |", flush=True)


def vocabulary(folder: Path) -> None:
    print("| documents | ε | words | share of all words that are no stop words | threshold |")
    print("|---|---|---|---|---|")
    for name in ("debian_packages", "newsgroups_train", "associated_press"):
        with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
            counts = sparse.csr_array(
                (file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"])
            )
            words = file["vocabulary"]
        totals = np.where(
            np.isin(words, sorted(STOP_WORDS)), 0.0, np.asarray(counts.sum(axis=0)).ravel()
        )
        for epsilon in (1.0, 2.0, 4.0, 8.0):
            said = f"| {name}, {counts.shape[0]:,} | {epsilon:g} |"
            try:
                chosen = choose_vocabulary_privately(
                    CountedWords(counts, words, words.size),
                    epsilon=epsilon,
                    delta=counts.shape[0] ** -2.0,
                )
            except VocabularyError:
                print(f"{said} none | | |", flush=True)
                continue
            covered = totals[np.isin(words, chosen.words)].sum() / totals.sum()
            print(
                f"{said} {chosen.words.size:,} | {covered:.0%} | {chosen.threshold:.0f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        choices=["concentration", "number", "stability", "vocabulary", "private", "variational"],
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--data", action="store_true", help="real text instead of planted documents"
    )
    parser.add_argument(
        "--short", action="store_true", help="stability: 3 to 8 words drawn from each document"
    )
    parser.add_argument("--folder", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="newsgroups")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--draws", type=int, default=5, help="of noise")
    parser.add_argument("--documents", type=int)
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--k", type=int, nargs="*", default=[5, 10, 20, 30, 50, 80])
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # advice on directions that are not clear of noise
    if given.what == "concentration":
        concentration(given.seeds)
    elif given.what == "stability":
        stability(given.folder, given.documents, given.seeds, short=given.short)
    elif given.what == "vocabulary":
        vocabulary(given.folder)
    elif given.what in ("private", "variational"):
        variational = given.what == "variational"
        choose_private(
            given.folder, given.corpus, 20, given.epsilons, given.draws, variational=variational
        )
    elif given.data:
        number_of_real(given.folder, given.corpus, given.documents, given.sweeps, given.k)
    else:
        number_planted(given.seeds)


if __name__ == "__main__":
    main()
