"""The cases of ``private_models.py models``, and the settings of ``private_models.py plans``."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.metrics import adjusted_rand_score

import odeco
from odeco._util.types import FloatArray, IndexArray
from odeco.models import (
    Communities,
    LatentClasses,
    TensorHMM,
    TensorICA,
    TensorLDA,
    TensorMixture,
    plan_classes,
    plan_communities,
    plan_hmm,
    plan_mixture,
    plan_sources,
    plan_topics,
)
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.private import matched_share
from odeco.models.ica.private import matched_correlations
from odeco.models.lda.inference import completion_perplexity
from odeco.privacy import gdp_mu
from peers.private_kmeans import DELTA, clipped, nearest, peers_of, tuples_of
from peers.private_peers import (
    class_posterior,
    dp_em_classes,
    dp_em_states,
    edge_flips,
    fast_ica,
    two_way_classes,
)
from peers.private_spectral import CONCENTRATIONS, learn_spectrally
from peers.private_variational import best_settings, learn_variationally

#: Results of each method, for each of its settings.
Others = dict[str, list[float]]

#: The result of a model, the trivial one and those of others, by ε.
Made = tuple[Callable[[float | None], float], Callable[[float], float], Callable[[float], Others]]

#: An interpreter that has diffprivlib, if there is one.
DIFFPRIVLIB = os.environ.get("DIFFPRIVLIB_PYTHON")


@dataclass(frozen=True)
class Case:
    """A model with data.

    Attributes
    ----------
    make : callable
        Takes a seed and returns three functions of ε: the result of the model, which takes None for
        no privacy, the trivial private answer, and the results of others by name, for each of their
        settings.
    neighbours : str
        What a neighbour replaces.
    best : callable
        The better of results: `max` or `min`.
    """

    make: Callable[[int], Made]
    neighbours: str
    best: Callable[..., Any] = max


def private(epsilon: float | None, **further: Any) -> dict[str, Any]:
    """Return the settings of a private model, or none."""
    return {} if epsilon is None else {"epsilon": epsilon, "delta": DELTA, **further}


def mixture_case(kind: str, n_rows: int) -> Case:
    """Return the case of four elongated clusters in six dimensions; mean log-likelihood of 5,000
    other rows.
    """

    def make(seed: int) -> Made:
        rng = np.random.default_rng([seed, n_rows])
        means, deviations = (
            4 * rng.standard_normal((4, 6)),
            np.exp(0.5 * rng.standard_normal((4, 6))),
        )
        labels = rng.integers(0, 4, n_rows + 5000)
        rows = means[labels] + deviations[labels] * rng.standard_normal((len(labels), 6))

        def score(k: int, epsilon: float | None) -> float:
            settings = private(epsilon, norm_bound="auto")
            model = TensorMixture(k, covariance_type=kind, random_state=seed, **settings)  # type: ignore[arg-type]
            return float(model.fit(rows[5000:].copy()).score_samples(rows[:5000]).mean())

        own = rows[5000:]
        length = float(np.sqrt(np.square(own).sum(axis=1).mean()))
        tuples = tuples_of(own, 4, 1.3 * length, seed)

        def others(epsilon: float) -> Others:
            """Half of ε is for centres, half for what a density needs besides."""
            found = peers_of(own, 4, length, 1.0, epsilon / 2, seed, tuples, DIFFPRIVLIB)
            return {
                name: [
                    float(
                        around(own, each, kind, epsilon / 2, seed).posterior(rows[:5000])[1].mean()
                    )
                    for each in tried
                ]
                for name, tried in found.items()
            }

        return lambda epsilon: score(4, epsilon), lambda epsilon: score(1, epsilon), others

    return Case(make, "row")


def around(
    rows: FloatArray, centres: FloatArray, kind: str, epsilon: float, seed: int
) -> Gaussians:
    """Return components at centres, with noisy weights and a noisy common covariance of the rows
    nearest to them.

    A row adds 1 to the count of its centre, and the outer product of its offset, divided by the
    squared radius to which offsets are clipped: a vector of norm at most √2. Inner products are not
    negative, so two are apart by at most 2. Twice the root mean square of offsets is taken to be
    public as radius.
    """
    rng, labels, (n, d) = np.random.default_rng(seed), nearest(rows, centres), rows.shape
    radius = 2 * math.sqrt(float(np.square(rows - centres[labels]).sum(axis=1).mean()))
    offsets, deviation = clipped(rows - centres[labels], radius), 2 / gdp_mu(epsilon, DELTA)
    counts = np.bincount(labels, minlength=len(centres)) + deviation * rng.standard_normal(
        len(centres)
    )
    used = counts > deviation
    used[counts.argmax()] = True
    noise = np.triu(deviation * rng.standard_normal((d, d)))
    covariance = (
        offsets.T @ offsets
        + radius**2 * (noise + np.triu(noise, 1).T) * np.where(np.eye(d), 1, 0.5**0.5)
    ) / n
    mean = max(float(np.trace(covariance)) / d, 1e-3 * radius**2 / d)
    values, vectors = np.linalg.eigh(covariance)
    common = {
        "spherical": np.asarray(mean),
        "diag": np.maximum(np.diag(covariance), 0.1 * mean),
        "full": (vectors * np.maximum(values, 0.1 * mean)) @ vectors.T,
    }
    return Gaussians(
        counts[used] / counts[used].sum(), centres[used], np.stack([common[kind]] * int(used.sum()))
    )


def classes_case(n_respondents: int) -> Case:
    """Return the case of five classes, 12 questions with three answers; mean log-likelihood of
    5,000 others.
    """

    def make(seed: int) -> Made:
        rng = np.random.default_rng([seed, n_respondents])
        answers, labels = (
            rng.dirichlet(np.ones(3), (5, 12)),
            rng.integers(0, 5, n_respondents + 5000),
        )
        codes = (
            (rng.random((len(labels), 12, 1)) > answers[labels].cumsum(axis=2))
            .sum(axis=2)
            .clip(max=2)
        )

        def score(k: int, epsilon: float | None) -> float:
            model = LatentClasses(k, random_state=seed, **private(epsilon))
            return float(
                model.fit(codes[5000:].copy(), categories=3).score_samples(codes[:5000]).mean()
            )

        def others(epsilon: float) -> Others:
            chosen = (codes[:5000, :, None] == np.arange(3)).reshape(5000, -1).astype(np.float64)
            asked: Any = (codes[5000:], 3, 5, epsilon, seed)
            methods = {"DP-EM": dp_em_classes(*asked), "two-way margins": two_way_classes(*asked)}
            return {
                name: [float(class_posterior(chosen, *classes)[1].mean()) for classes in tried]
                for name, tried in methods.items()
            }

        return lambda epsilon: score(5, epsilon), lambda epsilon: score(1, epsilon), others

    return Case(make, "respondent")


def states_case(n_sequences: int) -> Case:
    """Return the case of three states and eight symbols, 20 of them in a sequence; share of symbols
    assigned right.
    """

    def make(seed: int) -> Made:
        rng = np.random.default_rng([seed, n_sequences])
        transitions = 0.6 * np.eye(3) + 0.4 * rng.dirichlet(np.ones(3), 3)
        emissions, states = rng.dirichlet(np.full(8, 0.3), 3), np.empty((n_sequences, 20), np.int64)
        states[:, 0] = rng.integers(0, 3, n_sequences)
        for place in range(1, 20):
            before = transitions[states[:, place - 1]].cumsum(axis=1)
            states[:, place] = (rng.random((n_sequences, 1)) > before).sum(axis=1).clip(max=2)
        symbols = (
            (rng.random((n_sequences, 20, 1)) > emissions[states].cumsum(axis=2))
            .sum(axis=2)
            .clip(max=7)
        )
        lengths = np.full(n_sequences, 20)

        def share(epsilon: float | None) -> float:
            model = TensorHMM(
                3, emissions="categorical", n_symbols=8, random_state=seed, **private(epsilon)
            )
            found = model.fit(symbols.reshape(-1, 1), lengths=lengths).predict(
                symbols.reshape(-1, 1), lengths=lengths
            )
            return matched_share(states.ravel(), found, 3)

        def others(epsilon: float) -> Others:
            found = dp_em_states(symbols, 8, 3, epsilon, seed)
            return {"DP-EM": [matched_share(states.ravel(), each.ravel(), 3) for each in found]}

        return share, lambda _: float(np.bincount(states.ravel()).max() / states.size), others

    return Case(make, "sequence")


def topics_case(n_documents: int) -> Case:
    """Return the case of five topics and 300 words, 60 in a document; perplexity of 1,000 other
    documents.
    """

    def make(seed: int) -> Made:
        rng = np.random.default_rng([seed, n_documents])
        topics = np.exp(1.5 * rng.standard_normal((5, 300))) / (np.arange(300) + 2.7)
        topics /= topics.sum(axis=1, keepdims=True)
        words = rng.dirichlet(np.full(5, 0.2), n_documents + 1000) @ topics
        counts = rng.multinomial(60, words / words.sum(axis=1, keepdims=True)).astype(np.float64)

        def perplexity(k: int, epsilon: float | None) -> float:
            model = TensorLDA(k, random_state=seed, **private(epsilon)).fit(counts[1000:].copy())
            return float(model.perplexity(counts[:1000]))

        def others(epsilon: float) -> Others:
            """Others are for an emptied document. To replace one is to empty it and to fill it:
            they get half of ε.
            """
            guarantee: Any = {
                "epsilon": epsilon / 2,
                "delta": DELTA / (1 + math.exp(epsilon / 2)),
                "seed": seed,
            }
            train, settings = sparse.csr_array(counts[1000:]), best_settings(epsilon / 2)
            spectral = [
                learn_spectrally(train, 5, concentration=each, **guarantee)
                for each in CONCENTRATIONS
            ]
            variational = learn_variationally(train, 5, settings=settings, **guarantee)
            judged = sparse.csr_array(counts[:1000])
            return {
                "spectral": [completion_perplexity(judged, judged, *each) for each in spectral],
                "variational": [completion_perplexity(judged, judged, *variational)],
            }

        return (
            lambda epsilon: perplexity(5, epsilon),
            lambda epsilon: perplexity(1, epsilon),
            others,
        )

    return Case(make, "document", min)


def planted_sources(n_rows: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return rows of five columns, and the sources that they are mixed from."""
    rng = np.random.default_rng([seed, n_rows])
    sources = np.column_stack(
        [
            rng.uniform(-1, 1, n_rows),
            rng.laplace(size=n_rows),
            rng.exponential(size=n_rows),
            rng.choice([-1.0, 1.0], n_rows) + 0.3 * rng.standard_normal(n_rows),
            rng.standard_t(5, n_rows),
        ]
    )
    sources = (sources - sources.mean(axis=0)) / sources.std(axis=0)
    return sources @ rng.standard_normal((5, 5)), sources


def sources_case(n_rows: int) -> Case:
    """Return the case of independent sources; the mean correlation with them. Trivial are private
    principal axes.
    """

    def make(seed: int) -> Made:
        rows, sources = planted_sources(n_rows, seed)

        def found(epsilon: float | None) -> float:
            model = TensorICA(random_state=seed, **private(epsilon, norm_bound="auto")).fit(rows)
            return float(matched_correlations(model.transform(rows), sources).mean())

        def trivial(epsilon: float) -> float:
            axes = odeco.private_subspace(
                rows, 5, epsilon=epsilon, delta=DELTA, norm_bound="auto"
            ).basis
            return float(matched_correlations(rows @ axes, sources).mean())

        def others(epsilon: float) -> Others:
            tried = fast_ica(rows, epsilon, seed)
            return {
                "noisy FastICA": [
                    float(matched_correlations(each, sources).mean()) for each in tried
                ]
            }

        return found, trivial, others

    return Case(make, "row")


def graph_case(draw: Callable[[int], tuple[Any, IndexArray]], k: int) -> Case:
    """Return the case of communities of a graph; the adjusted Rand index. Trivial is one community,
    with 0.
    """

    def make(seed: int) -> Made:
        graph, labels = draw(seed)

        def found(epsilon: float | None) -> float:
            return float(
                adjusted_rand_score(
                    labels, Communities(k, epsilon=epsilon, random_state=seed).fit(graph).labels_
                )
            )

        def others(epsilon: float) -> Others:
            tried = edge_flips(graph, k, epsilon, seed)
            return {"edge flips": [float(adjusted_rand_score(labels, each)) for each in tried]}

        return found, lambda _: 0.0, others

    return Case(make, "edge")


def planted_graph(n_nodes: int, degree: float) -> Callable[[int], tuple[Any, IndexArray]]:
    """Return a function that draws four communities of equal size, links ten times as likely within
    them.
    """

    def draw(seed: int) -> tuple[Any, IndexArray]:
        rng, labels = np.random.default_rng([seed, n_nodes]), np.arange(n_nodes) % 4
        rates = np.where(labels[:, None] == labels, 10.0, 1.0)
        links = np.triu(
            rng.random((n_nodes, n_nodes)) < rates * (degree / rates.sum(axis=1).mean()), 1
        )
        return sparse.csr_array((links + links.T).astype(np.float64)), labels

    return draw


def political_blogs(folder: Path) -> Callable[[int], tuple[Any, IndexArray]]:
    """Return a function that reads the largest component of the political blogs, and their two
    camps.
    """

    def draw(_seed: int) -> tuple[Any, IndexArray]:
        stored = np.load(folder / "polblogs.npz")
        n, edges = int(stored["n_nodes"]), stored["edges"]
        arcs = sparse.coo_array(
            (np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n)
        ).tocsr()
        links = ((arcs + arcs.T) > 0).astype(np.float64)
        parts = sparse.csgraph.connected_components(links)[1]
        own = np.flatnonzero(parts == np.bincount(parts).argmax())
        return links[own][:, own], stored["value"][own].astype(np.int64)

    return draw


CASES: dict[str, Case] = (
    {
        f"mixture, {kind}, n = {n:,} (log-likelihood)": mixture_case(kind, n)
        for n in (2_000, 20_000)
        for kind in ("spherical", "diag", "full")
    }
    | {f"classes, n = {n:,} (log-likelihood)": classes_case(n) for n in (2_000, 20_000)}
    | {f"states, n = {n:,} (share of symbols)": states_case(n) for n in (1_000, 10_000)}
    | {f"topics, n = {n:,} (perplexity)": topics_case(n) for n in (2_000, 10_000)}
    | {
        f"sources, n = {n:,} (correlation)": sources_case(n)
        for n in (2_000, 5_000, 20_000, 100_000)
    }
    | {
        f"communities, {n:,} nodes, {degree} links each (Rand index)": graph_case(
            planted_graph(n, degree), 4
        )
        for n, degree in ((300, 40), (300, 80), (1000, 80))
    }
    | {
        "communities, political blogs (Rand index)": graph_case(
            political_blogs(Path("../shared/data")), 2
        )
    }
)

#: A plan for each ε and seed.
PLANS: dict[str, Callable[[float, int], Any]] = {
    "mixture": lambda epsilon, seed: plan_mixture(
        4, n_rows=3_000, n_features=6, epsilon=epsilon, delta=DELTA, separation=8.0, seed=seed
    ),
    "sources": lambda epsilon, seed: plan_sources(
        3, n_rows=5_000, n_features=3, epsilon=epsilon, delta=DELTA, seed=seed
    ),
    "classes": lambda epsilon, seed: plan_classes(
        3,
        n_respondents=3_000,
        categories=3,
        n_questions=12,
        epsilon=epsilon,
        delta=DELTA,
        seed=seed,
    ),
    "states": lambda epsilon, seed: plan_hmm(
        2, n_sequences=2_000, length=20, n_symbols=6, epsilon=epsilon, delta=DELTA, seed=seed
    ),
    "topics": lambda epsilon, seed: plan_topics(
        5, n_units=3_000, n_words=200, epsilon=epsilon, delta=1e-9, seed=seed
    ),
    "communities": lambda epsilon, seed: plan_communities(
        3, n_nodes=200, degree=40.0, epsilon=epsilon, seed=seed
    ),
}


#: For each mechanism the dimension, and the number of components, of a tensor that is planned for.
TENSORS = {"input": (16, 4), "core": (16, 4), "subspace": (30, 3)}


@cache
def n_rows_of(mechanism: str, dimension: int, k: int, epsilon: float) -> int:
    """Return how many rows make the weight 1/k the one from which on a plan says that all
    components are found.

    The noise falls as 1/n, and so does that weight.
    """
    public: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "unit": "record",
        "norm_bound": 1.0,
    }
    plan = odeco.plan_privacy(dimension=dimension, n_components=k, n_units=100_000, **public)[
        mechanism
    ]
    return int(np.ceil(k * plan.sure_signal * 100_000))


def all_found(mechanism: str, dimension: int, k: int, epsilon: float, seed: int) -> bool:
    """Return whether all components are found; rows are k orthonormal vectors, all equally
    often.
    """
    vectors = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, k)))[0]
    rows = vectors[:, np.arange(n_rows_of(mechanism, dimension, k, epsilon)) % k].T
    public: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": DELTA,
        "unit": "record",
        "norm_bound": 1.0,
    }
    found = odeco.decompose_privately(rows, k, mechanism=mechanism, rng=seed, **public)
    return bool(
        odeco.match(found, odeco.Components(np.full(k, 1 / k), vectors)).cosines.min() >= 0.9
    )
