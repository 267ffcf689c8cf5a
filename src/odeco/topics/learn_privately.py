"""Topics are learnt under differential privacy: from four releases, and from nothing else.

1. A histogram of how concentrated documents are. The bound b on what a document adds follows from it.
2. The frequencies of the words; they are public from then on.
3. The moment of pairs, every entry once. Its leading eigenvectors that stand clear of the noise are the span of the
   topics, and its eigenvalues, freed of what the noise adds to them, are their strength.
4. The moment of triples in that span.

The corrections that latent Dirichlet allocation needs, whitening, the tensor power method and un-whitening use these
four answers only: they are post-processing.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls
from scipy.sparse.linalg import eigsh

from odeco._types import FloatArray
from odeco.privacy import (
    Ledger,
    LedgerFile,
    NoiseSource,
    PrivacyReport,
    Releaser,
    SecureNoise,
    as_ledger,
    check_delta_for,
    gdp_mu,
)
from odeco.tensors import symmetrize
from odeco.topics.bounded_counts import HISTOGRAM_EDGES, BoundedCounts
from odeco.topics.concentration import CANDIDATES
from odeco.topics.diagnostics import diagnose
from odeco.topics.fitted import FittedTopics
from odeco.topics.spectral import ReducedMoments, SpectralTopics, topics_at

#: Each of the four releases gets this share of μ².
SHARES = {"histogram": 0.01, "words": 0.10, "pairs": 0.54, "triples": 0.35}
#: The bound is chosen such that this share of the documents counts in full.
_COUNTED_IN_FULL = 0.5
#: Every topic gets this share of the frequencies of all words: no word is impossible because noise has hidden it.
_BACKGROUND = 0.05
#: Every topic has at least this share of the documents.
_LEAST_SHARE = 1e-3
#: The words that do not stand clear of the noise have together at least this share of all words.
_LEAST_LEFT = 0.01
#: All pairs of at most this many words are released at once; more would take more than a gigabyte.
_MOST_WORDS = 10_000
#: The largest eigenvalue of noise is this many units of its fluctuation above the edge with a chance of 1 in 1,000
#: (Tracy and Widom).
_EDGE_QUANTILE = 3.3


@dataclass(frozen=True, eq=False)
class PrivateTopics:
    """Topics found under differential privacy. All of it may be published.

    Attributes
    ----------
    fitted : FittedTopics
        The topics that stand clear of the noise, and after them the rest, which are copies of what the frequencies of
        all words leave unexplained. In its diagnostics, `eigenvalues` are those of the noisy moment of pairs,
        `eigenvalue_errors` the standard deviation that the noise gives each of them, and `noise_level` what the largest
        eigenvalue of the noise alone exceeds with a chance of 1 in 1,000.
        What is guaranteed is part of it: it is said of these topics and of no others.
    bound : float
        No document adds more than this.
    """

    fitted: FittedTopics
    bound: float


def learn_privately(
    held: BoundedCounts,
    n_components: int,
    *,
    concentration: float | None,
    epsilon: float,
    delta: float,
    seed: int,
    ledger: LedgerFile | str | os.PathLike[str] | None = None,
    bound: float | None = None,
    noise: NoiseSource | None = None,
) -> PrivateTopics:
    """Learn k topics such that no document (or user) can be told from the result.

    Parameters
    ----------
    held : BoundedCounts
        The documents.
    n_components : int
        Number k of topics.
    concentration : float or None
        The concentration α₀. With None, that one of `CANDIDATES` is taken whose components explain most of the released
        triples: with the true α₀ that is all but the noise.
    epsilon, delta : float
        The guarantee.
    seed : int
        Seed of everything that is drawn after the releases; the noise does not depend on it.
    ledger : LedgerFile or path, optional
        The budget of all runs on these documents together. It pays for this one too, or refuses it.
    bound : float, optional
        A bound that is known without the documents; the first release is then left out.
    noise : NoiseSource, optional
        Where the noise comes from; by default from the operating system.

    Notes
    -----
    The releases are Gaussian mechanisms of √share μ each, with the sensitivities that `BoundedCounts` declares for a
    bound that is itself released; together they are μ-GDP.
    """
    _check_size(held.n_words)
    unit = "user" if held.of_users else "document"
    check_delta_for(delta, held.n_units, unit)
    budget = Ledger(gdp_mu(epsilon, delta), within=as_ledger(ledger))
    releaser = Releaser(budget, SecureNoise() if noise is None else noise)
    bound = _release_bound(held, releaser) if bound is None else bound
    frequencies, weight = _release_words(held, releaser, bound)
    pairs, deviation = _release_pairs(held, releaser, bound)
    eigenvalues, directions = _leading(pairs, min(n_components + 10, held.n_words - 1), seed)
    edge = 2 * deviation * math.sqrt(held.n_words)
    level = edge + _EDGE_QUANTILE * deviation * held.n_words ** (-1 / 6)
    n_clear = min(n_components, int(np.sum(eigenvalues > level)))
    basis = directions[:, :n_clear]
    strengths = (eigenvalues[:n_clear] + np.sqrt(eigenvalues[:n_clear] ** 2 - edge**2)) / 2
    triples = np.zeros((0, 0, 0)) if n_clear == 0 else _release_triples(held, releaser, bound, basis)
    reduced = ReducedMoments(
        directions=np.eye(n_clear),
        eigenvalues=eigenvalues / weight,
        # Off the diagonal an entry of the noise deviates by this; along an eigenvector the noise is √2 times that.
        eigenvalue_errors=np.full(eigenvalues.size, math.sqrt(2) * deviation / weight),
        noise_level=level / weight,
        clear=np.arange(max(n_components, eigenvalues.size)) < n_clear,
        first=basis.T @ frequencies,
        pairs=np.diag(strengths) / weight,
        triples=triples / weight,
    )
    moments = _NoisyMoments(frequencies, basis * (strengths / weight))
    topics = _filled_up(_best_topics(concentration, reduced, moments, seed), n_components, frequencies)
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=held.neighbours,
        mechanism="word frequencies, pairs of words, and triples in the span of the topics",
    )
    diagnostics = diagnose(reduced, topics, held.n_documents)
    totals = held.n_documents * topics.alpha / topics.alpha.sum()
    return PrivateTopics(FittedTopics(topics.topic_word, totals, topics.alpha, 0.0, diagnostics, report), bound)


@dataclass(frozen=True, eq=False)
class _NoisyMoments:
    """What un-whitening asks of the moments, answered from what was released."""

    frequencies: FloatArray
    image: FloatArray

    def first_moment(self) -> FloatArray:
        return self.frequencies

    def pair_image_of(self, coordinates: FloatArray) -> FloatArray:
        image: FloatArray = (self.image @ coordinates).T
        return image


def _best_topics(
    concentration: float | None, reduced: ReducedMoments, moments: _NoisyMoments, seed: int
) -> SpectralTopics:
    """Return the topics for the given concentration, or for the candidate whose components explain most."""
    if reduced.first.size == 0:  # nothing stands clear of the noise
        nothing = np.zeros(0)
        return SpectralTopics(
            np.zeros((0, moments.frequencies.size)), nothing, nothing, nothing, nothing, 0.0, np.zeros((0, 0))
        )
    candidates = CANDIDATES if concentration is None else (concentration,)
    found = [topics_at(each, reduced, moments, seed=seed) for each in candidates]
    return max(found, key=lambda topics: topics.explained)


def _release_bound(held: BoundedCounts, releaser: Releaser) -> float:
    """Return the bound on what a document adds, read off a noisy histogram."""
    histogram, _ = releaser.release(
        f"histogram of the concentration of documents, {HISTOGRAM_EDGES.size} bins",
        held.histogram,
        size=HISTOGRAM_EDGES.size,
        sensitivity=held.histogram_sensitivity(),
        noise_multiplier=_multiplier(releaser, "histogram"),
    )
    reached = np.cumsum(histogram) >= _COUNTED_IN_FULL * histogram.sum()
    return float(HISTOGRAM_EDGES[int(np.argmax(reached))] if reached.any() else HISTOGRAM_EDGES[-1])


def _release_words(held: BoundedCounts, releaser: Releaser, bound: float) -> tuple[FloatArray, float]:
    """Return the frequencies of the words, and the mean weight of a document."""
    words, scale = releaser.release(
        f"frequencies of {held.n_words} words, and the weight of all documents",
        lambda: held.words(bound),
        size=held.n_words + 1,
        sensitivity=held.words_sensitivity(bound),
        noise_multiplier=_multiplier(releaser, "words"),
    )
    weight = max(float(words[-1]), scale) / bound
    # Words that do not stand clear of the noise share what the others leave, evenly: the sum is known to be the weight.
    # The threshold is about the largest of as many draws of noise as there are words.
    clear = words[:-1] > math.sqrt(2 * math.log(held.n_words)) * scale
    left = max(weight - float(words[:-1][clear].sum()), _LEAST_LEFT * weight)
    frequencies = np.where(clear, words[:-1], left / max(1, int(np.sum(~clear))))
    return frequencies / frequencies.sum(), weight


def _release_pairs(held: BoundedCounts, releaser: Releaser, bound: float) -> tuple[FloatArray, float]:
    """Return the noisy moment of pairs, and the standard deviation of the noise off its diagonal."""
    n_words = held.n_words
    lower = np.tril_indices(n_words)
    packed, scale = releaser.release(
        f"pairs of words, {lower[0].size} distinct entries",
        lambda: held.pairs(bound),
        size=lower[0].size,
        sensitivity=held.pairs_sensitivity(bound),
        noise_multiplier=_multiplier(releaser, "pairs"),
    )
    packed[lower[0] != lower[1]] *= math.sqrt(0.5)
    matrix = np.empty((n_words, n_words))
    matrix[lower] = packed
    matrix.T[lower] = packed
    return matrix, scale * math.sqrt(0.5)


def _release_triples(held: BoundedCounts, releaser: Releaser, bound: float, basis: FloatArray) -> FloatArray:
    """Return the noisy moment of triples in a basis, m x m x m numbers."""
    width = basis.shape[1]
    core, _ = releaser.release(
        f"triples of words in {width} directions, {width}^3 numbers",
        lambda: held.triples(bound, basis),
        size=width**3,
        sensitivity=held.triples_sensitivity(bound, basis),
        noise_multiplier=_multiplier(releaser, "triples"),
    )
    return symmetrize(core).astype(np.float64)


def _multiplier(releaser: Releaser, name: str) -> float:
    """Return the noise multiplier that spends the share of a release."""
    return 1 / (releaser.ledger.mu_limit * math.sqrt(SHARES[name]))


def _leading(matrix: FloatArray, width: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues and their eigenvectors, largest first."""
    if 4 * width > matrix.shape[0]:
        values, vectors = np.linalg.eigh(matrix)
    else:
        start = np.random.default_rng(seed).standard_normal((matrix.shape[0],))
        # Eigenvalues in the bulk of the noise lie so close that finding them exactly would take for ever.
        values, vectors = eigsh(matrix, k=width, which="LA", v0=start, tol=1e-4)
    first = np.argsort(values)[::-1][:width]
    return values[first], vectors[:, first]


def _filled_up(topics: SpectralTopics, n_components: int, frequencies: FloatArray) -> SpectralTopics:
    """Mix a little of the frequencies of all words into every topic, and add the topics that were not found.

    The frequencies are the mean of all topics, each with its share. Non-negative least squares says which part of them
    the topics found explain; what is left of the frequencies stands for all topics that were not found.
    """
    topic_word = (1 - _BACKGROUND) * topics.topic_word + _BACKGROUND * frequencies
    n_missing = n_components - topics.topic_word.shape[0]
    if n_missing == 0:
        return replace(topics, topic_word=topic_word)
    shares = nnls(topics.topic_word.T, frequencies)[0] if topics.alpha.size else np.zeros(0)
    shares /= max(1.0, float(shares.sum()))
    rest = np.maximum(frequencies - shares @ topics.topic_word, 0.0) + _BACKGROUND * frequencies
    shares = np.maximum(np.append(shares, np.full(n_missing, (1 - shares.sum()) / n_missing)), _LEAST_SHARE)
    concentration = float(topics.alpha.sum()) if topics.alpha.size else 1.0
    nothing = np.full(n_missing, np.nan)
    return replace(
        topics,
        topic_word=np.concatenate([topic_word, np.tile(rest / rest.sum(), (n_missing, 1))]),
        alpha=concentration * shares / shares.sum(),
        negative_mass=np.append(topics.negative_mass, nothing),
        weights=np.append(topics.weights, nothing),
        residuals=np.append(topics.residuals, nothing),
    )


def _check_size(n_words: int) -> None:
    if not 2 <= n_words <= _MOST_WORDS:
        raise ValueError(
            f"Private topics take a vocabulary of 2 to {_MOST_WORDS:,} words, since all pairs of them are released. "
            f"Got {n_words:,}. Prune the vocabulary by a list that does not come from these documents."
        )
