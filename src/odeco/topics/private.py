"""Topics under differential privacy: four releases, and everything else made of them.

1. A histogram of how concentrated documents are, from which the bound b on what a document adds follows.
2. The frequencies of the words; public from then on.
3. The moment of pairs, every entry once. Its leading eigenvectors that stand clear of the noise are the span of the
   topics, and its eigenvalues, freed of what the noise adds to them, their strength.
4. The moment of triples in that span.

The corrections that latent Dirichlet allocation needs, whitening, the tensor power method and un-whitening use these
four answers only: post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls
from scipy.sparse.linalg import eigsh

from odeco._types import FloatArray
from odeco.privacy import Ledger, NoiseSource, PrivacyReport, Releaser, SecureNoise, check_delta_for, gdp_mu
from odeco.tensors import symmetrize
from odeco.topics.bounded import HISTOGRAM_EDGES, BoundedCounts
from odeco.topics.concentration import CANDIDATES
from odeco.topics.diagnostics import TopicDiagnostics
from odeco.topics.spectral import ReducedMoments, SpectralTopics, topics_at

#: Share of μ² that each of the four releases gets.
SHARES = {"histogram": 0.01, "words": 0.10, "pairs": 0.54, "triples": 0.35}
#: The bound is such that this share of the documents counts in full.
COUNTED_IN_FULL = 0.5
#: Share of the frequencies of all words in every topic: none is impossible there because noise has hidden it.
BACKGROUND = 0.05
#: Share of a topic in the documents, at the least; and of all words that do not stand clear of the noise.
LEAST_SHARE, LEAST_LEFT = 1e-3, 0.01
#: All pairs of so many words are released at once; more would take more than a gigabyte.
MOST_WORDS = 10_000
#: Noise alone exceeds its edge by so many units of the fluctuation there with a chance of 1 in 1,000 (Tracy and Widom).
_EDGE_QUANTILE = 3.3


@dataclass(frozen=True, eq=False)
class PrivateTopics:
    """Topics found under differential privacy. All of it may be published.

    Attributes
    ----------
    topics : SpectralTopics
        The topics that stand clear of the noise, and after them the rest: copies of what the frequencies of all words
        leave unexplained.
    n_clear : int
        How many stand clear.
    eigenvalues : array
        Those of the noisy moment of pairs, largest first.
    eigenvalue_error : float
        Standard deviation that the noise gives each of them.
    noise_level : float
        What the largest eigenvalue of the noise alone exceeds with a chance of 1 in 1,000.
    frequencies : array
        How often each word occurs.
    bound : float
        What no document adds more than.
    privacy : PrivacyReport
        What is guaranteed to whom, and every release that was made.
    """

    topics: SpectralTopics
    n_clear: int
    eigenvalues: FloatArray
    eigenvalue_error: float
    noise_level: float
    frequencies: FloatArray
    bound: float
    privacy: PrivacyReport

    def diagnostics(self, n_documents: int) -> TopicDiagnostics:
        """Return what the noisy moments say about the topics."""
        k = self.topics.alpha.size
        return TopicDiagnostics(
            n_documents=n_documents,
            n_empty=None,
            n_short=None,
            n_tokens=None,
            n_components=k,
            n_clear=self.n_clear,
            eigenvalues=self.eigenvalues,
            eigenvalue_errors=np.full(self.eigenvalues.size, self.eigenvalue_error),
            noise_level=self.noise_level,
            reliable=np.arange(k) < self.n_clear,
            concentration=float(self.topics.alpha.sum()),
            weights=self.topics.weights,
            residuals=self.topics.residuals,
            explained=self.topics.explained,
            negative_mass=self.topics.negative_mass,
        )


def learn_privately(
    held: BoundedCounts,
    n_components: int,
    *,
    concentration: float | None,
    epsilon: float,
    delta: float,
    seed: int,
    bound: float | None = None,
    noise: NoiseSource | None = None,
) -> PrivateTopics:
    """Learn k topics such that no document (or user) can be told from the result.

    Without a `concentration` α₀, that one of `CANDIDATES` is taken whose components explain most of the released
    triples: with the true α₀ that is all but the noise.

    With a `bound` that is known without the documents the first release is left out.

    Privacy: the releases are Gaussian mechanisms of √share μ each, with the sensitivities that `BoundedCounts`
    declares for a bound that is itself released; together they are μ-GDP.
    """
    _check_size(held.n_words)
    unit = "user" if held.of_users else "document"
    check_delta_for(delta, held.n_units, unit)
    releaser = Releaser(Ledger(gdp_mu(epsilon, delta)), SecureNoise() if noise is None else noise)
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
        first=basis.T @ frequencies,
        pairs=np.diag(strengths) / weight,
        triples=triples / weight,
    )
    moments = _NoisyMoments(frequencies, basis * (strengths / weight))
    topics = _best_topics(concentration, reduced, moments, seed)
    report = PrivacyReport.of(
        releaser,
        epsilon=epsilon,
        delta=delta,
        unit=unit,
        neighbours=held.neighbours,
        mechanism="word frequencies, pairs of words, and triples in the span of the topics",
    )
    return PrivateTopics(
        topics=_filled_up(topics, n_components, frequencies),
        n_clear=n_clear,
        eigenvalues=reduced.eigenvalues,
        eigenvalue_error=float(reduced.eigenvalue_errors[0]),
        noise_level=reduced.noise_level,
        frequencies=frequencies,
        bound=bound,
        privacy=report,
    )


@dataclass(frozen=True, eq=False)
class _NoisyMoments:
    """What un-whitening asks of the moments, answered from what was released."""

    frequencies: FloatArray
    image: FloatArray

    def first_moment(self) -> FloatArray:
        return self.frequencies

    def pair_image_of(self, block: FloatArray) -> FloatArray:
        image: FloatArray = (self.image @ block).T
        return image


def _best_topics(
    concentration: float | None, reduced: ReducedMoments, moments: _NoisyMoments, seed: int
) -> SpectralTopics:
    if reduced.first.size == 0:  # nothing stands clear of the noise
        nothing = np.zeros(0)
        return SpectralTopics(
            np.zeros((0, moments.frequencies.size)), nothing, nothing, nothing, nothing, 0.0, np.zeros((0, 0))
        )
    candidates = CANDIDATES if concentration is None else (concentration,)
    found = [topics_at(each, reduced, moments, seed=seed) for each in candidates]
    return max(found, key=lambda topics: topics.explained)


def _release_bound(held: BoundedCounts, releaser: Releaser) -> float:
    histogram, _ = releaser.release(
        f"histogram of the concentration of documents, {HISTOGRAM_EDGES.size} bins",
        held.histogram,
        size=HISTOGRAM_EDGES.size,
        sensitivity=held.histogram_sensitivity(),
        noise_multiplier=_multiplier(releaser, "histogram"),
    )
    reached = np.cumsum(histogram) >= COUNTED_IN_FULL * histogram.sum()
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
    clear = words[:-1] > math.sqrt(2 * math.log(held.n_words)) * scale  # the largest of so many draws of noise alone
    left = max(weight - float(words[:-1][clear].sum()), LEAST_LEFT * weight)
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
    return 1 / (releaser.ledger.mu_limit * math.sqrt(SHARES[name]))


def _leading(matrix: FloatArray, width: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues and their eigenvectors, largest first."""
    if 4 * width > matrix.shape[0]:
        values, vectors = np.linalg.eigh(matrix)
    else:
        start = np.random.default_rng(seed).standard_normal((matrix.shape[0],))
        # Eigenvalues in the bulk of the noise lie so close that they would take for ever; those clear of it do not.
        values, vectors = eigsh(matrix, k=width, which="LA", v0=start, tol=1e-4)
    first = np.argsort(values)[::-1][:width]
    return values[first], vectors[:, first]


def _filled_up(topics: SpectralTopics, n_components: int, frequencies: FloatArray) -> SpectralTopics:
    """Mix a little of the frequencies of all words into every topic, and add what they leave unexplained as the rest.

    The frequencies are the mean of all topics, each with its share. Those found explain a part of it, by non-negative
    least squares; what is left of the frequencies stands for all topics that were not found.
    """
    topic_word = (1 - BACKGROUND) * topics.topic_word + BACKGROUND * frequencies
    n_missing = n_components - topics.topic_word.shape[0]
    if n_missing == 0:
        return replace(topics, topic_word=topic_word)
    shares = nnls(topics.topic_word.T, frequencies)[0] if topics.alpha.size else np.zeros(0)
    shares /= max(1.0, float(shares.sum()))
    rest = np.maximum(frequencies - shares @ topics.topic_word, 0.0) + BACKGROUND * frequencies
    shares = np.maximum(np.append(shares, np.full(n_missing, (1 - shares.sum()) / n_missing)), LEAST_SHARE)
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
    if not 2 <= n_words <= MOST_WORDS:
        raise ValueError(
            f"Private topics take a vocabulary of 2 to {MOST_WORDS:,} words, since all pairs of them are released. "
            f"Got {n_words:,}. Prune the vocabulary by a list that does not come from these documents."
        )
