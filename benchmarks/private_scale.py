"""How many documents private topics need: the perplexity against the number of documents, at one ε.

    python benchmarks/private_scale.py  10,000 to 1,000,000 documents at epsilon = 1
    python benchmarks/private_scale.py --sizes 10000 100000

Documents are drawn from the open topics of the Debian corpus (k = 20), with its lengths. Beside the
private model stand the topics that the documents were drawn from: no open model of these documents
can be better. Held out are 2,000 further documents.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from topic_corpora import read_corpus
from topics import THREADS

from odeco.models import TensorLDA
from odeco.models.lda.inference import completion_perplexity, split_documents
from odeco.models.lda.private_topics import GenerativeModel
from odeco.privacy.holders.documents import LENGTH_EDGES

AT_ONCE, HELD_OUT = 50_000, 2_000


def law_of(folder: Path, k: int) -> GenerativeModel:
    """Return how the documents of the Debian corpus come about, according to its open topics."""
    train = read_corpus(folder, "debian_packages", 1).train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TensorLDA(k, max_iter=20, random_state=0, n_jobs=THREADS).fit(train)
    lengths = np.asarray(train.sum(axis=1)).ravel()
    bins = np.searchsorted(LENGTH_EDGES, lengths, side="right") - 1
    chances = np.bincount(bins, minlength=LENGTH_EDGES.size) / bins.size
    alpha = model.doc_topic_prior_
    return GenerativeModel(model.topic_word_, alpha / alpha.sum(), float(alpha.sum()), chances)


def draw(law: GenerativeModel, n_documents: int, rng: np.random.Generator) -> Any:
    """Return the word counts of simulated documents."""
    sizes = [min(AT_ONCE, n_documents - start) for start in range(0, n_documents, AT_ONCE)]
    return sparse.vstack([law.simulate(size, rng).astype(np.int32) for size in sizes], format="csr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[10_000, 30_000, 100_000, 300_000, 1_000_000]
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--k", type=int, default=20)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    law = law_of(options.data, options.k)
    observed, held_out = split_documents(law.simulate(HELD_OUT, rng).astype(np.int64), rng)
    alpha = law.concentration * law.shares
    truth = completion_perplexity(observed, held_out, law.topics, alpha)
    unigram = completion_perplexity(observed, held_out, law.frequencies[None, :], np.ones(1))
    print(
        f"{law.topics.shape[1]:,} words, k = {options.k}, epsilon = {options.epsilon:g}, delta = "
        f"1/n², one document emptied or the reverse; true topics {truth:,.0f}, word frequencies "
        f"{unigram:,.0f}"
    )
    print(
        f"{'documents':>10} {'perplexity':>10} {'above the truth':>15} {'clear':>5} {'seconds':>8}"
    )
    for n_documents in options.sizes:
        counts = draw(law, n_documents, rng)
        model = TensorLDA(
            options.k,
            epsilon=options.epsilon,
            delta=1 / n_documents**2,
            neighbour_relation="add_remove",
            random_state=0,
        )
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which topics are clear is in the table
            model.fit(counts)
        seconds = time.perf_counter() - start
        found = completion_perplexity(observed, held_out, model.topic_word_, model.doc_topic_prior_)
        clear = model.diagnostics_.n_clear
        print(
            f"{n_documents:10,} {found:10,.0f} {found / truth - 1:15.0%} {clear:5} {seconds:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
