"""Private topics: a program over noisy sums of documents. All but its releases is post-processing.

1. A histogram of lengths, and sums of features of words. Frequencies of words are posterior means.
2. Pairs of the most frequent words. A factorisation without negative numbers gives starting topics.
3. Five EM steps over all words. A step divides each word of a document over the topics by the
   *other* words of the document. What it confuses is estimated on documents simulated from the
   topics: the same query is computed on them.
4. The shares of a word among the topics are posterior means, given all steps and the known noise.

**Trust.** The noise of every release is known, so the part of a topic that is signal follows from
it without another run. How many topics there are is seen from the pairs: their eigenvalues above
the edge of noise.

The queries, their sensitivities and proofs are those of
`odeco.privacy.holders.documents.BoundedCounts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.datasets import planted_topics
from odeco.models.engine.private import Releaser
from odeco.privacy.holders.documents import LENGTH_EDGES, BoundedCounts
from odeco.privacy.holders.protocol import NeighbourRelation

#: Frequencies of words get at least this share of μ², and half of it at this strength of the
#: signal, n μ / √(V k): with less, topics cannot be found, and frequencies are all that is left.
_LEAST_WORDS = 0.1
_HALF_AT = 5.0

#: Share of μ² of the histogram of lengths.
_LENGTHS = 0.01

#: Share of pairs of what lengths and words leave.
_PAIRS = 0.2

#: The number of words whose pairs are released. The noise in their eigenvalues grows as the root of
#: it.
_N_PAIR_WORDS = 500

#: The number of EM steps. Each starts from better topics, and all of them count.
N_STEPS = 5

#: A feature is multiplied by the frequency of its word to this power: between equal features (0)
#: and equal norms (−½).
_POWER = -0.25

#: Variance of the shares of a word around the centres of their prior; see `posterior_of_shares`.
_SPREAD = 0.005

#: A centre gives one of these parts of a word to one topic.
_PARTS = (0.2, 0.4, 0.6, 0.8, 1.0)

#: The number of simulated words.
_N_SIMULATED = 100_000

#: The largest eigenvalue of noise exceeds the edge by this many units of its fluctuation once in
#: 1,000 cases (Tracy and Widom 1996).
_TRACY_WIDOM = 3.3


@dataclass(frozen=True)
class BudgetShares:
    """Shares of μ² of the releases: lengths, words, pairs and every step. They sum to one, with
    `N_STEPS` steps.
    """

    lengths: float
    words: float
    pairs: float
    step: float


def share_budget(
    n_units: float,
    mu: float,
    neighbour_relation: NeighbourRelation,
    n_words: int,
    n_components: int,
) -> BudgetShares:
    """Return the shares of the releases, from public numbers."""
    signal = n_units * mu
    if neighbour_relation == "replace":
        signal /= math.sqrt(2)
    strength = signal / math.sqrt(n_words * n_components)
    words = max(_LEAST_WORDS, 1 / (1 + (strength / _HALF_AT) ** 2)) * (1 - _LENGTHS)
    pairs = _PAIRS * (1 - _LENGTHS - words)
    return BudgetShares(_LENGTHS, words, pairs, (1 - _LENGTHS - words - pairs) / N_STEPS)


@dataclass(frozen=True)
class NoisySums:
    """Released sums, and the standard deviation of the noise in each."""

    values: FloatArray
    deviations: FloatArray


@dataclass(frozen=True)
class GenerativeModel:
    """What documents are drawn from.

    Attributes
    ----------
    topics : array, k x V
        The topics.
    shares : array of k numbers
        The share of all words that belongs to each.
    concentration : float
        The sum of the Dirichlet parameters of the proportions of topics in a document.
    length_chances : array
        The probability of each length of `LENGTH_EDGES`.
    """

    topics: FloatArray
    shares: FloatArray
    concentration: float
    length_chances: FloatArray

    @property
    def frequencies(self) -> FloatArray:
        """The frequencies of all words."""
        return self.shares @ self.topics

    @property
    def mean_length(self) -> float:
        """The mean number of words of a document."""
        return float(np.sum(LENGTH_EDGES * self.length_chances))

    def simulate(self, n_documents: int, rng: np.random.Generator) -> Any:
        """Return the word counts of simulated documents as a CSR array."""
        return planted_topics(
            n_documents,
            self.topics.shape[1],
            np.maximum(self.concentration * self.shares, 1e-3),
            document_length=rng.choice(LENGTH_EDGES, n_documents, p=self.length_chances),
            topics=self.topics,
            rng=rng,
        ).counts


@dataclass(frozen=True)
class Step:
    """An EM step: the topics that it had, k x V, its sums of scaled features, V x k, and the noise
    in each.
    """

    topics: FloatArray
    sums: FloatArray
    deviation: float


@dataclass(frozen=True)
class Evidence:
    """What all steps say of the shares p of a word among the topics: an image of mean Gp and
    covariance G/w.

    Attributes
    ----------
    gram : array, k x k
        G.
    image : array, V x k
        The image of each word.
    weights : array
        The w of each word.
    """

    gram: FloatArray
    image: FloatArray
    weights: FloatArray


@dataclass(frozen=True)
class PrivateTopics:
    """Topics, largest first, and what the known noise says of them.

    Attributes
    ----------
    model : GenerativeModel
        The topics, with their shares.
    deviations : array, k x V
        Standard deviations of the probabilities of words: given the noise, and by how much the last
        step changed them.
    signal : array of k numbers
        The root of the part of each topic that is signal; see `measure_signal`.
    eigenvalues : array
        Of the released pairs, largest first.
    pair_deviation : float
        The standard deviation of the noise in each pair.
    """

    model: GenerativeModel
    deviations: FloatArray
    signal: FloatArray
    eigenvalues: FloatArray
    pair_deviation: float

    @property
    def noise_edge(self) -> float:
        """The largest eigenvalue that noise alone would give."""
        n_words = self.eigenvalues.size
        return self.pair_deviation * (
            2 * math.sqrt(n_words) + _TRACY_WIDOM * math.pow(n_words, -1 / 6)
        )

    @property
    def n_shown(self) -> int:
        """The number of directions of the pairs that stand clear of noise."""
        return int(np.sum(self.eigenvalues > self.noise_edge))


def learn_private_topics(
    held: BoundedCounts,
    releaser: Releaser,
    shares: BudgetShares,
    n_components: int,
    *,
    concentration: float,
    rng: np.random.Generator,
) -> PrivateTopics:
    """Make the releases, and return the topics that follow from them.

    Parameters
    ----------
    held : BoundedCounts
        The holder of the documents, private or simulated.
    releaser : Releaser
        Answers its queries with noise.
    shares : BudgetShares
        The share of each release.
    n_components : int
        Number k of topics.
    concentration : float
        The sum α₀ of the Dirichlet parameters.
    rng : Generator
        Draws what is simulated, and where the factorisation begins.
    """
    k = n_components
    lengths, deviation = releaser.release(held.lengths(), share=shares.lengths)
    length_chances = estimate_lengths(lengths, deviation)
    sums, deviation = releaser.release(held.words(), share=shares.words)
    words = NoisySums(sums, np.full(sums.size, deviation))
    frequencies = estimate_frequencies(words)
    frequent = np.sort(np.argsort(-frequencies, kind="stable")[:_N_PAIR_WORDS])
    packed, pair_deviation = releaser.release(held.pairs(frequent), share=shares.pairs)
    pairs = unpack_pairs(packed, frequent.size)
    topics = start_topics(pairs, frequent, frequencies, k, rng)
    model = GenerativeModel(topics, np.full(k, 1 / k), concentration, length_chances)
    scales = frequencies**_POWER
    scales /= math.sqrt(float(scales**2 @ frequencies))
    steps: list[Step] = []
    for _ in range(N_STEPS):
        query = held.responsibilities(model.topics, scales, concentration / k)
        step = Step(model.topics, *releaser.release(query, share=shares.step))
        steps.append(step)
        words = combine_sums(words, sum_over_topics(step, scales))
        frequencies = estimate_frequencies(words)
        evidence = collect_evidence(steps, model, frequencies, scales, rng)
        means, variances = posterior_of_shares(evidence, model.shares)
        factors = frequencies * correct_repeats(model).T
        joint = means.T * factors
        sizes = joint.sum(axis=1, keepdims=True)
        changes = joint / sizes - model.topics
        model = replace(model, topics=joint / sizes, shares=sizes[:, 0] / sizes.sum())
    total = max(float(words.values.sum()), 1.0)
    relative = means.T * (words.deviations / total / frequencies)
    known = (variances.T + relative**2) * (factors / sizes) ** 2
    deviations = np.sqrt(known + changes**2)
    order = np.argsort(-model.shares, kind="stable")
    return PrivateTopics(
        replace(model, topics=model.topics[order], shares=model.shares[order]),
        deviations[order],
        measure_signal(model, evidence, frequencies)[order],
        np.asarray(np.linalg.eigvalsh(pairs)[::-1], dtype=np.float64),
        pair_deviation,
    )


def estimate_lengths(counts: FloatArray, deviation: float) -> FloatArray:
    """Return the probability of each of `LENGTH_EDGES`, of the bins that are clear of noise; of one
    word, none.
    """
    clear = (counts > 3 * deviation) & (LENGTH_EDGES > 1)
    kept = np.where(clear, counts, 0.0)
    kept[LENGTH_EDGES.searchsorted(30)] += 1e-9  # if none is clear
    return np.asarray(kept / kept.sum())


def estimate_frequencies(sums: NoisySums, n_points: int = 60, n_rounds: int = 100) -> FloatArray:
    """Return frequencies of words: posterior means under a prior that is fitted to the sums of all
    words.

    The prior is a mixture of normal distributions around geometrically spaced points, as wide as
    half of the distance to the next; EM fits their weights (adaptive shrinkage, Stephens 2017).
    """
    least = float(sums.deviations.min()) / n_points
    points = np.geomspace(least, max(float(sums.values.max()), 2 * least), n_points)
    widths = points * (points[1] / points[0] - 1) / 2
    noise = sums.deviations[:, None] ** 2
    variances = noise + widths**2
    exponents = (sums.values[:, None] - points) ** 2 / variances + np.log(variances)
    likelihood = np.exp((exponents.min(axis=1, keepdims=True) - exponents) / 2)
    prior = np.full(n_points, 1 / n_points)
    for _ in range(n_rounds):
        prior *= likelihood.T @ (1 / (likelihood @ prior)) / len(likelihood)
    given_point = (sums.values[:, None] * widths**2 + points * noise) / variances
    weights = likelihood * prior
    means = np.sum(weights * np.maximum(given_point, least), axis=1) / weights.sum(axis=1)
    return np.asarray(means / means.sum())


def unpack_pairs(packed: FloatArray, n_words: int) -> FloatArray:
    """Return the symmetric matrix with these numbers above its diagonal, which is zero."""
    matrix = np.zeros((n_words, n_words))
    matrix[np.triu_indices(n_words, 1)] = packed
    return matrix + matrix.T


def start_topics(
    pairs: FloatArray,
    frequent: IndexArray,
    frequencies: FloatArray,
    n_components: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Return starting topics, k x V: of frequent words by the factors of their pairs, of others by
    frequencies.
    """
    fits = [factorise(pairs, n_components, rng) for _ in range(3)]
    factors, _ = min(fits, key=lambda fit: fit[1])
    of_pairs = (factors / factors.sum(axis=0)).T * frequencies[frequent].sum()
    topics = np.tile(frequencies, (n_components, 1))
    topics[:, frequent] = 0.9 * of_pairs + 0.1 * frequencies[frequent]
    return np.asarray(topics / topics.sum(axis=1, keepdims=True))


def factorise(
    matrix: FloatArray, n_components: int, rng: np.random.Generator, n_rounds: int = 200
) -> tuple[FloatArray, float]:
    """Return H ≥ 0 for which H Hᵀ is near to a matrix off its diagonal, and the squared distance.

    Multiplicative updates for matrices with negative entries (Ding, Li and Jordan 2010). The
    diagonal is that of H Hᵀ.
    """
    gains = np.maximum(matrix, 0.0)
    losses = np.maximum(-matrix, 0.0)
    size = math.sqrt(max(float(matrix.sum()), 1.0) / matrix.size / n_components)
    factors = size * np.abs(rng.standard_normal((len(matrix), n_components))) + 1e-9
    for _ in range(n_rounds):
        diagonal = np.sum(factors**2, axis=1, keepdims=True)
        raised = gains @ factors + diagonal * factors
        lowered = losses @ factors + factors @ (factors.T @ factors) + 1e-9
        factors = factors * np.sqrt(raised / lowered)
    rest = matrix - factors @ factors.T
    np.fill_diagonal(rest, 0.0)
    return factors, float(np.sum(rest**2))


def sum_over_topics(step: Step, scales: FloatArray) -> NoisySums:
    """Return the sums of a step over all topics, of features that are not scaled."""
    deviation = step.deviation * math.sqrt(len(step.topics))
    return NoisySums(step.sums.sum(axis=1) / scales, deviation / scales)


def combine_sums(first: NoisySums, second: NoisySums) -> NoisySums:
    """Return the mean of both by inverse variances; the totals set the factor between them."""
    factor = max(float(second.values.sum()), 1.0) / max(float(first.values.sum()), 1.0)
    own = (factor * first.deviations) ** -2.0
    further = second.deviations**-2.0
    values = (factor * first.values * own + second.values * further) / (own + further)
    return NoisySums(values, (own + further) ** -0.5)


def collect_evidence(
    steps: list[Step],
    model: GenerativeModel,
    frequencies: FloatArray,
    scales: FloatArray,
    rng: np.random.Generator,
) -> Evidence:
    """Return what all steps say of the shares of words.

    The sums of a step of N units are N s f Qᵀp for a word of frequency f and scale s, plus noise of
    deviation σ. (N/σ)² Q times them, divided by N s f, has the mean Gp and the covariance G/(s f)²,
    with G = (N/σ)² Q Qᵀ. The noise of the steps is independent, so their evidence adds up.
    """
    k, n_words = model.topics.shape
    expected = scales * frequencies
    gram = np.zeros((k, k))
    image = np.zeros((n_words, k))
    n_documents = max(1, round(_N_SIMULATED / model.mean_length))
    simulated = BoundedCounts(model.simulate(n_documents, rng))
    for step in steps:
        confused = estimate_confusion(model, simulated, step.topics)
        total = float(expected @ step.sums.sum(axis=1) / (expected @ expected))
        total = max(total, step.deviation)
        quality = (total / step.deviation) ** 2
        gram += quality * confused @ confused.T
        image += quality / total * (step.sums / expected[:, None]) @ confused.T
    return Evidence(gram, image, expected**2)


def estimate_confusion(
    model: GenerativeModel, simulated: BoundedCounts, topics: FloatArray
) -> FloatArray:
    """Return Q: of the words of topic i of the model, a step that has other `topics` gives Q[i, j]
    to topic j.

    The part of topic i of each simulated word is known, and the sums of the step are linear in it
    but for sampling errors, which grow as the root of the frequency: weighted least squares.
    """
    k, n_words = topics.shape
    query = simulated.responsibilities(topics, np.ones(n_words), model.concentration / k)
    parts = (model.topics * model.shares[:, None]).T
    roots = np.sqrt(parts.sum(axis=1, keepdims=True))
    solution = np.linalg.lstsq(parts / roots, query.answer() / roots, rcond=None)[0]
    confused = np.maximum(solution, 0.0) + 1e-9 * np.eye(k)
    return np.asarray(confused / confused.sum(axis=1, keepdims=True))


def correct_repeats(model: GenerativeModel) -> FloatArray:
    """Return how many words of a topic stand behind the feature of one, V x k: features are roots
    of counts.

    Beside a word of frequency q in topic i, its document has about L (q + αf)/(1 + α) more of the
    same, where L is the mean length and f the frequency of the word in all text: (1 + αpᵢ)/(1 + α)
    is the mean share of a topic in the documents of one of its words. Each of so many words weighs
    one over the root of their number.
    """
    alpha = model.concentration
    repeats = model.mean_length * (model.topics + alpha * model.frequencies) / (1 + alpha)
    return np.sqrt(1 + repeats.T)


def posterior_of_shares(evidence: Evidence, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the posterior means and variances of the shares of each word among the topics, V x k.

    The prior is a mixture of normal distributions of variance `_SPREAD` around the centres (1 − λ)
    q + λ eⱼ: a part λ of a word belongs to one topic, and the rest to topics as all words do. Topic
    j has the probability qⱼ, the share of all words; the distribution of λ is fitted to all words.
    Given a centre, the mean is the best linear predictor.
    """
    k = sizes.size
    weights = evidence.weights[:, None]
    values, vectors = np.linalg.eigh(evidence.gram)
    values = np.maximum(values, 0.0)
    of_parts = [part * np.eye(k) + (1 - part) * sizes for part in _PARTS]
    centres = np.concatenate([sizes[None], *of_parts])
    rotated = centres @ vectors
    image = evidence.image @ vectors
    precision = weights / (1 + _SPREAD * weights * values)
    exponents = (precision * image) @ rotated.T - (precision * values) @ (rotated.T**2 / 2)
    chances = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    chances[:, 1:] *= np.tile(sizes, len(_PARTS))
    first_centres = np.append(0, 1 + k * np.arange(len(_PARTS)))
    by_part = np.add.reduceat(chances, first_centres, axis=1)
    prior = np.full(first_centres.size, 1 / first_centres.size)
    for _ in range(50):
        prior *= np.mean(by_part / (by_part @ prior)[:, None], axis=0)
    chances *= np.repeat(prior, np.diff(first_centres, append=chances.shape[1]))
    chances /= chances.sum(axis=1, keepdims=True)
    centre = chances @ rotated
    means = (centre + _SPREAD * precision * (image - centre * values)) @ vectors.T
    means = np.maximum(means, 1e-9)
    means /= means.sum(axis=1, keepdims=True)
    around = _SPREAD / (1 + _SPREAD * weights * values) @ vectors.T**2
    among = chances @ centres**2 - (chances @ centres) ** 2
    return means, around + np.maximum(among, 0.0)


def measure_signal(
    model: GenerativeModel, evidence: Evidence, frequencies: FloatArray
) -> FloatArray:
    """Return for each topic √(1 − noise/distance²), of its distance from the frequencies of all
    words.

    The image of a word has noise of covariance G/w, and given a centre the shares follow from it by
    a linear map. So this is the cosine that the topic can be expected to have with what it would be
    without noise, both without the frequencies of all words.
    """
    values, vectors = np.linalg.eigh(evidence.gram)
    precisions = evidence.weights[:, None] * np.maximum(values, 0.0)
    variances = precisions / (precisions + 1 / _SPREAD) ** 2 @ vectors.T**2
    noise = frequencies**2 @ variances
    apart = np.sum((model.topics - model.frequencies) ** 2, axis=1) * model.shares**2
    return np.asarray(np.sqrt(np.clip(1 - noise / np.maximum(apart, 1e-300), 0.0, 1.0)))
