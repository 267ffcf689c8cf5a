"""Whether the trust of private topics is what it says: `TopicTrust.signal` beside cosines with the
truth.

    python benchmarks/private_trust.py planted  planted topics, from deep in noise to far above it
    python benchmarks/private_trust.py noise         documents without topics, and documents that are lost in noise
    python benchmarks/private_trust.py text          real text: beside open topics, and the same method without noise

Cosines are taken after subtracting the frequencies of all words, each topic with its own match.
Trust is the cosine that is expected of the noise. A topic that is called clear should have at least
half of what sets it apart: a cosine of 0.71 or more. Each table has, by trust: how many topics, and
their mean cosine with the truth; and at the end, of topics that are called clear the share that is,
and of those that are the share that is called so.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from peers.topic_corpora import read_corpus

from odeco.datasets import planted_topics
from odeco.models import TensorLDA
from odeco.models.engine.private import SimulatedSums
from odeco.models.lda.params import CLEAR, TopicTrust
from odeco.models.lda.private import DEFAULT_CONCENTRATION, FOUND, similarity
from odeco.models.lda.private_topics import learn_private_topics, share_budget
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.holders.protocol import NeighbourRelation

EDGES = (0.0, 0.4, FOUND, 0.8, 0.9, CLEAR, 0.98, 1.01)
RELATION: NeighbourRelation = "add_remove"
#: Topics, documents, words, length of documents, α of a topic, ε.
PLANTED = [
    (k, n_documents, n_words, length, alpha, epsilon)
    for k, n_documents, n_words, length, alpha in (
        (3, 20_000, 60, 40, 0.2),
        (6, 8_000, 150, 40, 0.15),
        (10, 20_000, 300, 50, 0.1),
        (5, 5_000, 100, 60, 1.0),
    )
    for epsilon in (0.1, 0.3, 1.0, 3.0)
]
#: Documents and ε without topics: every document is drawn from the same frequencies. The last is
#: far above the noise.
NOTHING = [(300, 0.1), (3_000, 0.1), (3_000, 1.0), (20_000, 1.0), (20_000, 8.0)]


def fit(counts: Any, k: int, epsilon: float, seed: int) -> TensorLDA:
    delta = counts.shape[0] ** -2.0
    model = TensorLDA(
        k, epsilon=epsilon, delta=delta, neighbour_relation=RELATION, random_state=seed
    )
    return model.fit(counts)


def frequencies_of(counts: Any) -> Any:
    totals = np.asarray(counts.sum(axis=0), dtype=float).ravel()
    return totals / totals.sum()


def show(title: str, trust: list[TopicTrust], truth: list[Any]) -> None:
    said = np.concatenate([each.signal for each in trust])
    clear = np.concatenate([each.clear for each in trust])
    true = np.concatenate(truth)
    print(f"\n{title}: {said.size} topics")
    print(f"{'trust':>14} {'topics':>7} {'mean trust':>11} {'mean cosine':>12}")
    for low, high in pairwise(EDGES):
        own = (said >= low) & (said < high)
        if own.any():
            name = f"{low:.2f} to {min(high, 1):.2f}"
            print(f"{name:>14} {own.sum():7} {said[own].mean():11.2f} {true[own].mean():12.2f}")
    really = true >= FOUND
    right = f"{np.mean(really[clear]):.0%} of {clear.sum()}" if clear.any() else "none"
    found = f"{np.mean(clear[really]):.0%} of {really.sum()}" if really.any() else "none"
    print(f"called clear and clear: {right}; clear and called so: {found}", flush=True)


def _by_found(model: TensorLDA, truth: Any, frequencies: Any) -> Any:
    return similarity(model.topic_word_, truth, frequencies)


def planted(n_seeds: int) -> None:
    trust, truth = [], []
    for k, n_documents, n_words, length, alpha, epsilon in PLANTED:
        for seed in range(n_seeds):
            corpus = planted_topics(
                n_documents, n_words, np.full(k, alpha), document_length=length, rng=seed
            )
            model = fit(corpus.counts, k, epsilon, seed)
            trust.append(model.trust_)
            truth.append(_by_found(model, corpus.topics, corpus.topics.mean(axis=0)))
    show(f"planted topics, {len(PLANTED)} settings, {n_seeds} seeds", trust, truth)


def noise(n_seeds: int) -> None:
    print(
        "\n"
        "documents of 40 words without topics, and 300 with three: topics called clear, of "
        f"{n_seeds} fits each"
    )
    frequencies = 1 / (np.arange(100) + 2.7)
    for n_documents, epsilon in NOTHING:
        n_clear = 0
        for seed in range(n_seeds):
            rng = np.random.default_rng(seed)
            counts = rng.multinomial(40, frequencies / frequencies.sum(), size=n_documents)
            n_clear += fit(counts, 5, epsilon, seed).diagnostics_.n_clear
        print(
            f"{n_documents:,} documents, epsilon {epsilon:g}: {n_clear} of {5 * n_seeds}",
            flush=True,
        )
    n_clear = 0
    for seed in range(n_seeds):
        corpus = planted_topics(300, 40, [0.5, 0.5], document_length=10, rng=seed)
        n_clear += fit(corpus.counts, 3, 0.1, seed).diagnostics_.n_clear
    print(f"300 documents of 10 words with two topics, epsilon 0.1: {n_clear} of {3 * n_seeds}")


def text(folder: Path, names: list[str], epsilons: list[float], n_seeds: int) -> None:
    for name in names:
        train = read_corpus(folder, name, 1).train
        frequencies, k = frequencies_of(train), 20
        opened = TensorLDA(k, max_iter=20, random_state=0).fit(train).topic_word_
        for epsilon in epsilons:
            exact = without_noise(train, k, epsilon)
            models = [fit(train, k, epsilon, seed) for seed in range(n_seeds)]
            trust = [model.trust_ for model in models]
            for what, truth in (("open topics", opened), ("the same without noise", exact)):
                cosines = [_by_found(model, truth, frequencies) for model in models]
                show(f"{name}, epsilon {epsilon:g}, beside {what}", trust, cosines)


def without_noise(counts: Any, k: int, epsilon: float) -> Any:
    """Return the topics of the same releases, with about a thousandth of their noise."""
    held, guarantee, rng = (
        BoundedCounts(counts),
        Guarantee(epsilon, counts.shape[0] ** -2.0),
        np.random.default_rng(0),
    )
    n = held.n_records
    shares = share_budget(n, guarantee.mu, "add_remove", held.n_words, k)
    sums = SimulatedSums(
        guarantee, n, n // 1000 + 1, record="document", neighbour_relation="add_remove", rng=rng
    )
    found = learn_private_topics(
        held, sums, shares, k, concentration=DEFAULT_CONCENTRATION, rng=rng
    )
    return found.model.topics


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["planted", "noise", "text"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpora", nargs="+", default=["debian_packages", "associated_press"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 4.0])
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # which topics are clear is what is counted
    if given.what == "planted":
        planted(given.seeds)
    elif given.what == "noise":
        noise(given.seeds)
    else:
        text(given.folder, given.corpora, given.epsilons, given.seeds)


if __name__ == "__main__":
    main()
