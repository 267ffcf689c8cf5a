"""Topics from text: perplexity and coherence against time, beside scikit-learn, gensim and
tomotopy.

    python benchmarks/topics.py                            real text, k = 20, 50 and 200
    python benchmarks/topics.py --short                    3 to 8 words drawn from each document
    python benchmarks/topics.py --planted  planted topics: error and time beside scikit-learn
    python benchmarks/topics.py --private  the same real text under differential privacy
    python benchmarks/topics.py --quick  a small corpus and short runs, to see that it works

Corpora: words in at least 20 documents and at most a tenth of them (this drops stop words),
documents of at least 12 tokens. A tenth of the documents is held out, the same for every method;
newsgroups comes with its test documents. Each token of a test document is observed or held out by a
fair coin; proportions are inferred from the observed half by the same fixed point for every method,
given its topics and its alpha, and the perplexity is that of the held-out half. Coherence is the
mean NPMI of the ten leading words in the training documents.

Numbers of topics with fewer than 100 documents each are left out.

Time is that of training alone: a peer's conversion of the corpus to its own format is not counted,
ours (from CSR) is. Compiled functions are called once before; that time is printed, and is short
when they are on disk from an earlier run. The settings of the sweeps were chosen while looking at
the split of seed 0; the default is another. On real text all methods use two threads. With
--processor-time seconds are those of all processors together, for a machine that has other work. A
peer that is not installed is left out, and said to be.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from peers.private_topics import MODELS, compare_private
from peers.topic_corpora import Corpus, read_corpus, read_parts
from scipy.optimize import linear_sum_assignment

from odeco.datasets import planted_topics
from odeco.models import TensorLDA
from odeco.models.lda.inference import coherence, completion_perplexity

THREADS = 2
PLANTED_SWEEPS = 10
#: A number of topics is tried on a corpus with at least so many documents for each.
DOCUMENTS_PER_TOPIC = 100
SWEEPS = (0, 1, 2, 5, 10, 20, 40, 80, 160, 320)


@dataclass(frozen=True)
class Fit:
    """Topics after some time of training."""

    setting: str
    seconds: float
    topic_word: Any
    alpha: Any


class Clock:
    """What training is timed with."""

    read: ClassVar[Callable[[], float]] = time.perf_counter


Method = Callable[[Any, int, float], Iterator[Fit]]


def ours(train: Any, k: int, longest: float) -> Iterator[Fit]:
    for sweeps in SWEEPS:
        model = TensorLDA(k, max_iter=sweeps, random_state=0, n_jobs=THREADS)
        start = Clock.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice on directions that are not reliable
            model.fit(train)
        seconds = Clock.read() - start
        yield Fit(f"{sweeps} sweeps", seconds, model.topic_word_, model.doc_topic_prior_)
        if seconds > 0.8 * longest:
            return


def scikit_learn(train: Any, k: int, longest: float, batch_size: int = 1024) -> Iterator[Fit]:
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        k, batch_size=batch_size, total_samples=train.shape[0], random_state=0, n_jobs=THREADS
    )
    seconds, epoch = 0.0, 0
    while seconds < longest:
        start = Clock.read()
        model.partial_fit(train)  # one online pass in batches
        seconds += Clock.read() - start
        epoch += 1
        topics = model.components_ / model.components_.sum(axis=1, keepdims=True)
        yield Fit(
            f"batches of {batch_size}, {epoch} epochs",
            seconds,
            topics,
            np.full(k, model.doc_topic_prior_),
        )


def gensim(train: Any, k: int, longest: float) -> Iterator[Fit]:
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LdaMulticore

    documents = list(Sparse2Corpus(train, documents_columns=False))
    words = {word: str(word) for word in range(train.shape[1])}
    passes, seconds = 1, 0.0
    while seconds < longest / 2:
        start = Clock.read()
        model = LdaMulticore(
            documents,
            k,
            words,
            workers=THREADS,
            passes=passes,
            chunksize=1000,
            alpha="asymmetric",
            random_state=0,
        )
        seconds = Clock.read() - start
        yield Fit(
            f"asymmetric alpha, {passes} passes",
            seconds,
            model.get_topics().astype(float),
            model.alpha,
        )
        passes *= 3


def tomotopy(train: Any, k: int, longest: float, alpha: float = 0.1) -> Iterator[Fit]:
    import tomotopy as tp

    model = tp.LDAModel(tw=tp.TermWeight.ONE, k=k, alpha=alpha, eta=0.01, seed=1)
    for row in range(train.shape[0]):
        part = slice(train.indptr[row], train.indptr[row + 1])
        model.add_doc(np.repeat(train.indices[part], train.data[part]).astype(str).tolist())
    seconds, done = 0.0, 0
    for wanted in (10, 20, 40, 80, 160, 320, 640, 1280, 2560):
        start = Clock.read()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two workers do not give the same result twice
            model.train(wanted - done, workers=THREADS)
        seconds += Clock.read() - start
        done = wanted
        topics = np.full((k, train.shape[1]), 1e-12)
        places = np.array([int(word) for word in model.used_vocabs])
        for topic in range(k):
            topics[topic, places] = model.get_topic_word_dist(topic)
        yield Fit(
            f"alpha from {alpha}, {wanted} iterations",
            seconds,
            topics,
            np.array(model.alpha, dtype=float),
        )
        if seconds > longest:
            return


def factorise(train: Any, k: int, longest: float) -> Iterator[Fit]:
    """Non-negative matrix factorisation of tf-idf; without a prior of its own, so that α is 5 in
    all or 1.
    """
    from sklearn.decomposition import NMF
    from sklearn.feature_extraction.text import TfidfTransformer

    start = Clock.read()
    weighted = TfidfTransformer().fit_transform(train)
    topics = NMF(k, init="nndsvda", random_state=0).fit(weighted).components_ + 1e-6
    seconds = Clock.read() - start
    if seconds <= longest:
        for mass in (1.0, 5.0):
            yield Fit(
                f"tf-idf, α₀ = {mass:g}",
                seconds,
                topics / topics.sum(axis=1, keepdims=True),
                np.full(k, mass / k),
            )


METHODS: dict[str, list[Method]] = {
    "odeco": [ours],
    "scikit-learn": [scikit_learn, lambda train, k, longest: scikit_learn(train, k, longest, 4096)],
    "gensim": [gensim],
    "tomotopy": [tomotopy, lambda train, k, longest: tomotopy(train, k, longest, 1.0)],
    "NMF": [factorise],
}
MODULES = {
    "odeco": "odeco",
    "scikit-learn": "sklearn",
    "gensim": "gensim",
    "tomotopy": "tomotopy",
    "NMF": "sklearn",
}


def compare(corpus: Corpus, k: int, budgets: list[float], names: list[str]) -> None:
    """Print one corpus: a row a fit, then who is lowest within each budget."""
    shape = corpus.train.shape
    print(
        "\n"
        f"{corpus.name}: {shape[0]:,} documents, {shape[1]:,} words, {corpus.train.sum():,} "
        f"tokens; {corpus.observed.shape[0]:,} test documents; k = {k}"
    )
    print(f"{'library':>12}  {'setting':<36} {'seconds':>8} {'perplexity':>10} {'NPMI':>6}")
    reached: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for name in names:
        for method in METHODS[name]:
            for fit in method(corpus.train, k, max(budgets)):
                perplexity = completion_perplexity(
                    corpus.observed,
                    corpus.held_out,
                    fit.topic_word,
                    np.asarray(fit.alpha, dtype=float),
                )
                npmi = coherence(fit.topic_word, corpus.train).mean()
                reached[name].append((fit.seconds, perplexity))
                print(
                    (
                        f"{name:>12}  {fit.setting:<36} {fit.seconds:8.2f} {perplexity:10.1f} "
                        f"{npmi:6.3f}"
                    ),
                    flush=True,
                )
    print(
        f"\nlowest perplexity within a time\n{'seconds':>12}"
        + "".join(f"{name:>14}" for name in names)
        + "  lowest"
    )
    for budget in budgets:
        best = {
            name: min((p for s, p in fits if s <= budget), default=np.inf)
            for name, fits in reached.items()
        }
        cells = "".join(
            f"{best[name]:14.1f}" if np.isfinite(best[name]) else f"{'-':>14}" for name in names
        )
        lowest = min(names, key=best.__getitem__)
        print(f"{budget:12g}{cells}  {lowest if np.isfinite(best[lowest]) else '-'}")
    own = reached.get("odeco", [])
    for name in names:
        if name != "odeco" and reached[name] and own:
            seconds, perplexity = min(reached[name], key=lambda fit: (fit[1], fit[0]))
            faster = min((s for s, p in own if p <= perplexity), default=np.inf)
            print(
                (
                    f"the best of {name}, {perplexity:.1f} in {seconds:.1f} s, is passed by odeco "
                    f"in {faster:.2f} s"
                ),
                end="",
            )
            print(
                f": 1/{seconds / faster:.1f} of the time"
                if np.isfinite(faster)
                else " (not reached)"
            )


def topic_error(found: Any, truth: Any) -> float:
    """Return the mean L1 distance of topics after the best matching."""
    distances = np.abs(found[:, None, :] - truth[None, :, :]).sum(axis=2)
    return float(distances[linear_sum_assignment(distances)].mean())


def compare_planted(sizes: list[int], numbers: list[int], seeds: int, n_documents: int) -> None:
    """Print planted topics: mean L1 error and time of ours and of scikit-learn's online method."""
    from sklearn.decomposition import LatentDirichletAllocation

    print(
        "\n"
        f"planted topics: {n_documents:,} documents of 100 tokens, alpha = 0.1 each, mean of "
        f"{seeds} seeds; ours with {PLANTED_SWEEPS} sweeps, scikit-learn's online method with 10 "
        "epochs, the true alpha and one thread"
    )
    print(
        f"{'k':>4} {'words':>6} {'error':>8} {'sklearn':>8} {'seconds':>8} {'sklearn':>8} "
        f"{'time ratio':>10}"
    )
    for k in numbers:
        for n_words in sizes:
            rows = []
            for seed in range(seeds):
                corpus = planted_topics(
                    n_documents, n_words, np.full(k, 0.1), document_length=100, rng=seed
                )
                start = time.perf_counter()
                mine = TensorLDA(k, max_iter=PLANTED_SWEEPS, random_state=seed, n_jobs=THREADS).fit(
                    corpus.counts
                )
                middle = time.perf_counter()
                theirs = LatentDirichletAllocation(
                    k,
                    learning_method="online",
                    max_iter=10,
                    random_state=seed,
                    n_jobs=1,
                    doc_topic_prior=0.1,
                ).fit(corpus.counts)
                end = time.perf_counter()
                scaled = theirs.components_ / theirs.components_.sum(axis=1, keepdims=True)
                errors = (
                    topic_error(mine.topic_word_, corpus.topics),
                    topic_error(scaled, corpus.topics),
                )
                rows.append((*errors, middle - start, end - middle))
            error, other, seconds, longer = np.mean(rows, axis=0)
            ratio = f"1/{longer / seconds:.1f}"
            print(
                (
                    f"{k:4} {n_words:6,} {error:8.4f} {other:8.4f} {seconds:8.3f} {longer:8.3f} "
                    f"{ratio:>10}"
                ),
                flush=True,
            )


def warm_up() -> None:
    """Compile all that is compiled, and print how long it took."""
    corpus = planted_topics(500, 40, np.full(3, 0.1), rng=0)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TensorLDA(3, max_iter=2, random_state=0, n_jobs=THREADS).fit(corpus.counts)
    completion_perplexity(corpus.counts, corpus.counts, model.topic_word_, model.doc_topic_prior_)
    print(f"compiling, or reading what was compiled earlier: {time.perf_counter() - start:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--corpora", nargs="+", default=["debian_packages", "newsgroups", "associated_press"]
    )
    parser.add_argument("--k", nargs="+", type=int, default=[20, 50, 200])
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="seconds of all processors instead of the clock",
    )
    parser.add_argument("--budgets", nargs="+", type=float, default=[2, 5, 15, 45, 100])
    parser.add_argument("--libraries", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0, 4.0, 8.0])
    parser.add_argument("--draws", type=int, default=5, help="of noise, for private topics")
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=MODELS, help="private topics and baselines"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the split into training and test")
    options = parser.parse_args()
    missing = [
        name for name in options.libraries if importlib.util.find_spec(MODULES[name]) is None
    ]
    names = [name for name in options.libraries if name not in missing]
    for name in missing:
        print(f"{name} is not installed and is left out")
    if options.processor_time:
        Clock.read = time.process_time
    warm_up()
    if options.planted:
        compare_planted(
            [200] if options.quick else [200, 1_000, 5_000],
            [5, 10],
            1 if options.quick else 3,
            5_000,
        )
        return
    corpora = ["associated_press"] if options.quick else options.corpora
    for name in corpora:
        if options.private:
            reported = read_parts(options.data, name, options.seed)[1]
            compare_private(reported, options.k[0], options.epsilons, options.draws, options.models)
            continue
        corpus = read_corpus(options.data, name, options.seed, short=options.short)
        numbers = [k for k in options.k if DOCUMENTS_PER_TOPIC * k <= corpus.train.shape[0]]
        for k in options.k[:1] if options.quick else numbers:
            compare(corpus, k, [1.0, 3.0] if options.quick else options.budgets, names)


if __name__ == "__main__":
    main()
