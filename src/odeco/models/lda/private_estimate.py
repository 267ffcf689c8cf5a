"""Estimate topics from noisy sums: word frequencies, pairs of the most frequent words, and EM steps over all words.

Everything here is post-processing of released numbers, whether they come from private or from simulated documents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from odeco._util.state import State, array_field, part_field, require
from odeco._util.types import FloatArray
from odeco.models.engine.private import Releaser
from odeco.models.lda.deconvolve import (
    GenerativeModel,
    confusion_matrix,
    damping,
    deconvolution_deviations,
    deconvolve,
    expected_centres,
    simulate,
)
from odeco.models.lda.pairs import NoisyPairs, matrix_of_pairs, starting_topics
from odeco.models.lda.private_public import PublicDocuments
from odeco.privacy.holders.documents import LENGTH_EDGES, BoundedCounts

if TYPE_CHECKING:
    from odeco.models.lda.private_plan import ReleasePlan

#: The number of points of the prior of a frequency, and of iterations that fit it.
_N_POINTS, _N_DENOISE_ROUNDS = 60, 200


#: The lowest point is this share of the noise: nothing below is distinguishable from zero.
_LOWEST = 0.02


#: Between iterations this share of the prior of a point goes to each of its neighbours, so that it stays smooth.
_DENOISE_SPREAD = 0.05


@dataclass(frozen=True, eq=False)
class NoisySums(State):
    """Sums over documents, with the standard deviation of the noise in each."""

    values: FloatArray = array_field(None)
    deviations: FloatArray = array_field(None, low=0)

    @classmethod
    def of(cls, values: FloatArray, deviation: float) -> NoisySums:
        """Return the sums of one release, in which the noise of all is the same."""
        return cls(values, np.full(values.size, deviation))

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.values.size == self.deviations.size > 0, "each of its noisy sums must have a deviation")
        require(bool(np.all(self.deviations > 0)), "its noisy sums must have noise")

    def added(self, other: NoisySums) -> NoisySums:
        """Return the sums over the documents of both."""
        return NoisySums(self.values + other.values, np.hypot(self.deviations, other.deviations))

    def combined(self, other: NoisySums) -> NoisySums:
        """Return the mean of both by inverse variances; this one is known up to a factor, which the totals set."""
        factor = max(float(other.values.sum()), _TINY) / max(float(self.values.sum()), _TINY)
        own, further = (factor * self.deviations) ** -2.0, other.deviations**-2.0
        values = (factor * self.values * own + other.values * further) / (own + further)
        return NoisySums(values, (own + further) ** -0.5)


_TINY = 1e-9


def word_frequencies(sums: NoisySums) -> tuple[FloatArray, FloatArray]:
    """Return the frequencies of the words, which sum to one, and their standard deviations.

    They are the posterior means of non-negative numbers seen through Gaussian noise. The prior, which all words share,
    is fitted to the numbers themselves: nonparametric maximum likelihood on a grid of logarithms (empirical Bayes).
    """
    lowest = _LOWEST * float(np.median(sums.deviations))
    points = np.geomspace(lowest, max(1.05 * float(sums.values.max()), 10 * lowest), _N_POINTS)
    distances = ((sums.values[:, None] - points) / sums.deviations[:, None]) ** 2
    likelihood = np.exp(-0.5 * (distances - distances.min(axis=1, keepdims=True)))
    prior = np.full(_N_POINTS, 1 / _N_POINTS)
    for _ in range(_N_DENOISE_ROUNDS):
        prior *= likelihood.T @ (1 / (likelihood @ prior))
        prior = np.convolve(
            np.pad(prior, 1, mode="edge"), [_DENOISE_SPREAD, 1 - 2 * _DENOISE_SPREAD, _DENOISE_SPREAD], mode="valid"
        )
        prior /= prior.sum()
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    means = posterior @ points
    variances = np.maximum(posterior @ points**2 - means**2, 0.0)
    return means / means.sum(), np.sqrt(variances) / means.sum()


#: Every topic gets this share of the frequencies of all words: no word is impossible because noise has hidden it.
_BACKGROUND = 0.05


#: Every topic has at least this share of what it would have if all were alike.
_LEAST_SHARE = 0.1


#: No word is taken for rarer than this when its feature is scaled.
_LEAST_FREQUENCY = 1e-6


#: Variance that the shares of a word among the topics are expected to have.
_SPREAD = 0.05


#: The number of rounds of deconvolution after a step, each with the topics of the one before.
_N_ROUNDS = 3


#: The number of words simulated in a round: for each word of each topic, at least, and at most.
_SIMULATED_OF_EACH, _FEWEST_SIMULATED, _MOST_SIMULATED = 200, 2_000, 40_000


#: A simulated document has at most this many words.
_LONGEST = 400


#: A bin of lengths below this many standard deviations of its noise counts as empty.
_CLEAR_LENGTH = 3.0


@dataclass(frozen=True, eq=False)
class Evidence(State):
    """All that was released so far, accumulated: what a stream keeps between batches.

    Attributes
    ----------
    lengths : NoisySums
        Of the histogram of lengths.
    words : NoisySums
        Of the frequencies of words.
    scales : array
        The factor of the feature of each word.
    gram, image : arrays, k x k and V x k
        The evidence of all steps about the words: see `deconvolve`; `image` is still to be divided by frequencies.
    topics : array, k x V
        The topics.
    shares : array
        How much of all words belongs to each topic.
    public : array, k x V, or None
        The number of words of each kind in each topic of public documents, by the topics of the last step.
    """

    lengths: NoisySums = part_field(NoisySums)
    words: NoisySums = part_field(NoisySums)
    scales: FloatArray = array_field("n_features", low=0)
    gram: FloatArray = array_field("k", "k")
    image: FloatArray = array_field("n_features", "k")
    topics: FloatArray = array_field("k", "n_features", low=0, high=1)
    shares: FloatArray = array_field("k", low=0, high=1)
    public: FloatArray | None = array_field("k", "n_features", low=0, default=None)

    def check(self) -> None:
        """Raise `ValueError` if the fields of a file contradict each other."""
        require(self.words.values.size == self.scales.size, "it must have a frequency for every word")
        require(self.lengths.values.size == LENGTH_EDGES.size, f"it must have {LENGTH_EDGES.size} bins of lengths")
        require(bool(np.all(self.topics.sum(axis=1) > 0)), "every topic must have words")

    def discounted(self, share: float) -> Evidence:
        """Return the evidence with every document counted only this share."""
        return replace(
            self,
            lengths=NoisySums(share * self.lengths.values, share * self.lengths.deviations),
            words=NoisySums(self.words.values, self.words.deviations / share**0.5),
            gram=share * self.gram,
            image=share * self.image,
        )


@dataclass(frozen=True, eq=False)
class PrivateEstimate(State):
    """Topics, and how certain they are.

    Attributes
    ----------
    evidence : Evidence
        All releases, and the topics.
    frequencies : array
        Of the words.
    deviations : array, k x V
        Standard deviations that the noise gives to the topics' words.
    concentration : float
        The sum of the Dirichlet parameters.
    n_steps : int
        Number of EM steps.
    pairs : NoisyPairs or None
        The noisy pairs of the most frequent words, if they were released.
    """

    evidence: Evidence = part_field(Evidence)
    frequencies: FloatArray = array_field("n_features", low=0)
    deviations: FloatArray = array_field("k", "n_features", low=0)
    concentration: float = array_field(low=0)
    n_steps: int = array_field(kind="i", low=1)
    pairs: NoisyPairs | None = part_field(NoisyPairs, default=None)

    @property
    def generative(self) -> GenerativeModel:
        """The distribution of documents that these topics imply."""
        return _generative(self.evidence.topics, self.concentration * self.evidence.shares, self.evidence.lengths)

    def largest_first(self) -> PrivateEstimate:
        """Return the topics in the order of their shares."""
        return self.permuted(np.argsort(-self.evidence.shares, kind="stable"))


def _generative(topics: FloatArray, alpha: FloatArray, lengths: NoisySums) -> GenerativeModel:
    """Return the distribution of documents with a noisy histogram of lengths."""
    chances = np.where(lengths.values > _CLEAR_LENGTH * lengths.deviations, lengths.values, 0.0) + 1e-9
    return GenerativeModel(topics, alpha, np.clip(LENGTH_EDGES, 2, _LONGEST), chances / chances.sum())


@dataclass(frozen=True, eq=False)
class _Step:
    """One step: the topics it had, the sums it gave (divided by the scales), its noise, and shares of public words."""

    topics: FloatArray
    sums: FloatArray
    noise: float
    public: FloatArray | None


def estimate_private_topics(
    held: BoundedCounts,
    releaser: Releaser,
    plan: ReleasePlan,
    n_components: int,
    *,
    concentration: float,
    rng: np.random.Generator,
    public: PublicDocuments | None = None,
    before: Evidence | None = None,
) -> PrivateEstimate:
    """Make the releases of the plan, and return the topics that follow.

    Parameters
    ----------
    held : BoundedCounts
        The holder of the documents, private or simulated.
    releaser : Releaser
        Answers its queries with noise.
    plan : ReleasePlan
        The queries, with their shares of the budget.
    n_components : int
        Number k of topics.
    concentration : float
        The sum α₀ of the Dirichlet parameters.
    rng : Generator
        Draws what is simulated, and where factorisation begins.
    public : PublicDocuments, optional
        Documents that need no protection. The releases are the same with them and without.
    before : Evidence, optional
        The evidence of earlier batches; then no pairs are released.
    """
    lengths = NoisySums.of(*releaser.release(held.lengths(), share=plan.lengths))
    words = released = NoisySums.of(*releaser.release(held.words(), share=plan.words))
    if before is not None:
        lengths, words = before.lengths.added(lengths), before.words.combined(words)
    frequencies, _ = word_frequencies(words)
    if public is not None:
        further = NoisySums(*public.words(frequencies, released.values, released.deviations))
        public = public if math.isfinite(public.spread) else None
        if public is not None and before is None:
            lengths = replace(lengths, values=public.among(lengths.values, public.held.lengths()))
            words = further.combined(replace(words, values=public.among(words.values, public.held.words())))
            frequencies, _ = word_frequencies(words)
    pairs, shares = None, np.full(n_components, 1 / n_components)
    scales = np.maximum(frequencies, _LEAST_FREQUENCY) ** plan.power
    scales /= np.sqrt(np.sum(scales**2 * frequencies))
    if before is not None:
        topics, shares, scales = before.topics, before.shares, before.scales
    elif plan.pairs > 0:
        chosen = np.sort(np.argsort(-frequencies, kind="stable")[: plan.n_pair_words])
        packed, deviation = releaser.release(held.pairs(chosen), share=plan.pairs)
        pairs = NoisyPairs(chosen, matrix_of_pairs(packed, chosen.size), deviation)
        matrix = pairs.matrix if public is None else public.added(pairs, held.n_units)
        topics = starting_topics(matrix, chosen, frequencies, n_components, rng)
        if public is not None:
            smoothing, n_prior = concentration / n_components, _SPREAD / plan.spread
            topics, _ = _mixed(public.start(topics, frequencies, chosen, smoothing, n_prior))
    else:
        topics = np.tile(frequencies, (n_components, 1))
    model = _Model(lengths, words, scales, topics, shares, concentration, plan.spread, public, before, rng)
    for share in plan.steps:
        asked = (model.topics, scales, concentration / n_components)
        sums, noise = releaser.release(held.responsibilities(*asked), share=share)
        if public is not None and before is None:
            sums = public.among(sums, public.held.responsibilities(*asked))
        model.update(sums, noise)
    return model.estimate(pairs, plan.kept)


def _mixed(joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return topics, k x V, of joint probabilities, with a share of the frequencies of all words; and their sizes."""
    sizes = joint.sum(axis=1, keepdims=True)
    topics = (1 - _BACKGROUND) * joint / np.maximum(sizes, 1e-12) + _BACKGROUND * joint.sum(axis=0)
    return topics / topics.sum(axis=1, keepdims=True), sizes[:, 0]


@dataclass(eq=False)
class _Model:
    """Topics that are improved by every step."""

    lengths: NoisySums
    words: NoisySums
    scales: FloatArray
    topics: FloatArray
    shares: FloatArray
    concentration: float
    spread: float
    public: PublicDocuments | None
    before: Evidence | None
    rng: np.random.Generator
    steps: list[_Step] = field(default_factory=list)
    affinities: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    def update(self, sums: FloatArray, noise: float) -> None:
        """Update the topics with the sums of a step that had the current topics."""
        k = self.topics.shape[0]
        public = None if self.public is None else self.public.by_topic(self.topics, self.concentration / k)
        step = _Step(self.topics, sums / self.scales[:, None], noise, public)
        self.steps.append(step)
        self.words = self.words.combined(NoisySums(step.sums.sum(axis=1), noise * np.sqrt(k) / self.scales))
        self.frequencies, self.frequency_deviations = word_frequencies(self.words)
        for _ in range(_N_ROUNDS):
            self._deconvolve()

    def _deconvolve(self) -> None:
        k = self.topics.shape[0]
        self.gram, self.image = np.zeros((k, k)), np.zeros(self.topics.T.shape)
        if self.before is not None:
            self.gram, self.image = self.before.gram.copy(), self.before.image.copy()
        generative = _generative(self.topics, self.concentration * self.shares, self.lengths)
        n_tokens = min(max(_SIMULATED_OF_EACH * self.topics.size, _FEWEST_SIMULATED), _MOST_SIMULATED)
        tokens = None
        # The first topics say what is confused only if they do not come from noisy pairs.
        if self.affinities.size or self.before is not None:
            tokens = simulate(generative, max(1, round(n_tokens / generative.mean_length)), self.rng)
        weights = self.scales**2 * self.frequencies
        new, public, qualities = np.zeros((k, k)), np.zeros(self.image.shape), 0.0
        for step in self.steps:
            confused = np.eye(k) if tokens is None else confusion_matrix(tokens, step.topics, self.concentration / k)
            # The number of words, by the part of the sums over topics that agrees with the frequencies.
            total = max(float(weights @ step.sums.sum(axis=1) / (weights @ self.frequencies)), step.noise)
            quality = (total / step.noise) ** 2
            gram = quality * confused @ confused.T
            self.gram, new = self.gram + gram, new + gram
            self.image += quality / total * step.sums @ confused.T
            if step.public is not None:
                public += quality * step.public @ confused.T
                qualities += quality
        self.weights = (self.frequencies * self.scales) ** 2
        image = self.image / self.frequencies[:, None]
        if self.public is not None:
            # Both kinds of evidence are about the shares of a word that the same matrix confuses. That of public words
            # has the variance of one word, about `_SPREAD`, divided by their number; earlier batches share the matrix.
            all_batches = float(np.trace(self.gram) / np.trace(new))
            further = self.public.certainty() / (_SPREAD * all_batches * qualities)
            both = self.weights + further
            image = (self.weights[:, None] * image + further[:, None] * all_batches * public) / both[:, None]
            self.weights = both
        prior = expected_centres(image, self.gram, self.weights, self.spread, self.shares)
        precision = np.full(self.weights.size, 1 / self.spread)
        affinities = deconvolve(image, self.gram, self.weights, precision, prior, prior)
        joint = (affinities * self.frequencies[:, None]).T
        if tokens is not None:
            joint /= damping(tokens, self.topics)
            joint /= joint.sum()
        self.topics, sizes = _mixed(joint)
        self.shares = np.maximum(sizes, _LEAST_SHARE / k)
        self.shares /= self.shares.sum()
        self.affinities, self.background = affinities, joint.sum(axis=0)

    def estimate(self, pairs: NoisyPairs | None, kept: float) -> PrivateEstimate:
        """Return the topics, of whose difference from the frequencies of all words a share is kept."""
        # Relative deviations of what the topics have of each word: that of its shares, and that of its frequency.
        # Noise moves the centres of the prior too: the shares move about as they would if their prior had no centres.
        precision = np.full(self.weights.size, 1 / _SPREAD)
        spread = deconvolution_deviations(self.gram, self.weights, precision)
        relative = np.hypot(spread, self.affinities * (self.frequency_deviations / self.frequencies)[:, None])
        deviations = kept * relative.T * self.background / self.shares[:, None]
        topics = (1 - kept) * self.background + kept * self.topics
        divided = self.steps[-1].public
        public = None if self.public is None or divided is None else (divided * self.public.n_words[:, None]).T
        evidence = Evidence(self.lengths, self.words, self.scales, self.gram, self.image, topics, self.shares, public)
        return PrivateEstimate(evidence, self.background, deviations, self.concentration, len(self.steps), pairs)
