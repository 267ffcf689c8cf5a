"""What privacy costs topics of real text: `python benchmarks/topics.py --private` prints these
tables.

Neighbours empty one document (or the reverse); the number of documents and the vocabulary are taken
to be public. For each ε: the median and the range of the perplexity over draws of noise, the mean
cosine of matched topics with the open ones and their coherence; the number that is called clear,
and the processor time of a fit, trust included, are those of the first draw. The former mechanism,
the variational and the spectral one, and neighbours that replace a document have one draw.

Settings of odeco and of the variational method were chosen on other documents
(`topic_corpora.read_parts`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco.models import TensorLDA
from odeco.models.engine.private import SimulatedSums
from odeco.models.lda.inference import coherence, completion_perplexity
from odeco.models.lda.params import TopicTrust
from odeco.models.lda.private import DEFAULT_CONCENTRATION
from odeco.models.lda.private_topics import (
    NoisySums,
    estimate_frequencies,
    learn_private_topics,
    share_budget,
)
from odeco.privacy import gdp_mu
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.holders.protocol import NeighbourRelation
from peers.private_moments import learn_by_moments
from peers.private_spectral import CONCENTRATIONS, learn_spectrally
from peers.private_variational import best_settings, learn_variationally

if TYPE_CHECKING:
    from peers.topic_corpora import Corpus

THREADS = 1
#: What can stand in the table.
MODELS = ("frequencies", "moments", "variational", "spectral", "odeco", "replaced")
RELATION: NeighbourRelation = "add_remove"
#: Topics, Dirichlet parameters, and how many topics are called clear, if that is known.
Fitted = tuple[Any, Any, int | None]


def compare_private(
    corpus: Corpus, k: int, epsilons: list[float], draws: int, models: Collection[str]
) -> None:
    """Print one corpus."""
    train, (n_documents, n_words) = corpus.train, corpus.train.shape
    delta = 1 / n_documents**2
    print(
        "\n"
        f"{corpus.name}: {n_documents:,} documents, {n_words:,} words, k = {k}; delta = "
        f"{delta:.1e}, one document emptied, or the reverse"
    )
    print(
        f"{'model':<44} {'perplexity':>10} {'range':>15} {'cosine':>7} {'NPMI':>6} {'clear':>5} "
        f"{'seconds':>8}"
    )
    opened = _open(train, k)
    show = _Shown(corpus, opened[0])
    frequencies = np.asarray(train.sum(axis=0), dtype=float)[None, :] + 0.5
    show("exact word frequencies", lambda _: (frequencies / frequencies.sum(), np.ones(1), None), 1)
    show("open topics, 20 sweeps", lambda _: opened, 1)
    for epsilon in epsilons:
        print(f"epsilon = {epsilon:g}")
        guarantee: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        for model in models:
            for name, method, n_draws in _methods(model, train, k, guarantee, draws):
                show(f"  {name}", method, n_draws)


def _methods(
    model: str, train: Any, k: int, guarantee: dict[str, Any], draws: int
) -> Iterator[tuple[str, Callable[[int], Fitted], int]]:
    """Yield what stands for one of `MODELS` in the table: a name, a method that takes a seed, and
    how many draws.
    """
    ours = partial(_ours, train, k, **guarantee)
    if model == "frequencies":
        yield "private word frequencies, whole budget", partial(_unigram, train, **guarantee), draws
    elif model == "moments":
        yield (
            "moments (the former mechanism)",
            partial(_without_trust, learn_by_moments, train, k, **guarantee),
            1,
        )
    elif model == "variational":
        learn = partial(learn_variationally, settings=best_settings(guarantee["epsilon"]))
        yield "variational (Park et al.)", partial(_without_trust, learn, train, k, **guarantee), 1
    elif model == "spectral":
        for concentration in CONCENTRATIONS:
            learn = partial(learn_spectrally, concentration=concentration)
            name = f"spectral (DeCarolis et al.), sum of alpha {concentration:g}"
            yield name, partial(_without_trust, learn, train, k, **guarantee), 1
    elif model == "odeco":
        yield "odeco", ours, draws
    else:
        yield "odeco, a document replaced", partial(ours, relation="replace"), 1


class _Shown:
    """Prints a line for a method: what its topics are like, over draws of noise."""

    def __init__(self, corpus: Corpus, opened: Any) -> None:
        self.corpus, self.opened = corpus, opened

    def __call__(self, name: str, method: Callable[[int], Fitted], draws: int) -> None:
        rows, seconds = [], []
        for draw in range(draws):
            start = time.process_time()
            topics, alpha, clear = method(draw)
            seconds.append(time.process_time() - start)
            observed, held_out = self.corpus.observed, self.corpus.held_out
            rows.append(
                (
                    completion_perplexity(observed, held_out, topics, alpha),
                    matched_cosine(topics, self.opened)
                    if len(topics) == len(self.opened)
                    else np.nan,
                    coherence(topics, self.corpus.train).mean(),
                    np.nan if clear is None else clear,
                )
            )
        perplexity, cosine, npmi, _ = np.median(rows, axis=0)
        n_clear = float(rows[0][-1])
        values = [row[0] for row in rows]
        spread = f"{min(values):,.0f} to {max(values):,.0f}" if draws > 1 else ""
        cells = [f"{cosine:7.2f}" if np.isfinite(cosine) else " " * 7, f"{npmi:6.3f}"]
        cells += [f"{n_clear:5.0f}" if np.isfinite(n_clear) else " " * 5, f"{seconds[0]:8.1f}"]
        print(f"{name:<44} {perplexity:10,.0f} {spread:>15} {' '.join(cells)}", flush=True)


def matched_cosine(topics: Any, others: Any) -> float:
    """Return the mean cosine of topics with their matches, matched such that it is largest."""
    first, second = (
        each / np.linalg.norm(each, axis=1, keepdims=True) for each in (topics, others)
    )
    cosines = first @ second.T
    return float(cosines[linear_sum_assignment(-cosines)].mean())


def _open(train: Any, k: int) -> Fitted:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TensorLDA(k, max_iter=20, random_state=0, n_jobs=THREADS).fit(train)
    return model.topic_word_, model.doc_topic_prior_, None


def _without_trust(
    learn: Callable[..., Any], train: Any, k: int, seed: int, **guarantee: float
) -> Fitted:
    topics, alpha = learn(train, k, **guarantee, seed=seed)
    return topics, alpha, None


def _ours(
    train: Any, k: int, seed: int, *, epsilon: float, delta: float, relation: Any = RELATION
) -> Fitted:
    """Return what a draw of noise gives."""
    held, guarantee, rng = (
        BoundedCounts(train),
        Guarantee(epsilon, delta),
        np.random.default_rng(seed),
    )
    n_units = held.n_records
    shares = share_budget(n_units, guarantee.mu, relation, held.n_words, k)
    sums = SimulatedSums(
        guarantee, n_units, n_units, record="document", neighbour_relation=relation, rng=rng
    )
    found = learn_private_topics(
        held, sums, shares, k, concentration=DEFAULT_CONCENTRATION, rng=rng
    )
    trust = TopicTrust(found.signal, found.n_shown, found.deviations)
    return found.model.topics, DEFAULT_CONCENTRATION * found.model.shares, int(trust.clear.sum())


def _unigram(train: Any, seed: int, *, epsilon: float, delta: float) -> Fitted:
    held, scale = BoundedCounts(train, neighbour_relation=RELATION), 1 / gdp_mu(epsilon, delta)
    noise = np.random.default_rng(seed).normal(scale=scale, size=held.n_words)
    frequencies = estimate_frequencies(
        NoisySums(held.words().answer() + noise, np.full(held.n_words, scale))
    )
    return frequencies[None, :], np.ones(1), None
