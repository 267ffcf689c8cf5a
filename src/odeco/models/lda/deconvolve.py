"""Deconvolution of noisy topics: which topics a word belongs to, given what several private steps released.

A step distributes the words of documents over topics according to the other words of each document. It can only guess
these: a word of topic i goes to topic j with probability Q[i, j], the confusion matrix. Q follows from the topics
alone, by applying the same step to simulated documents, so the deconvolution is post-processing. Simulated documents
are drawn from the generative model of latent Dirichlet allocation; no real document is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from odeco._util.threads import map_blocks
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.gibbs_kernels import compiled
from odeco.privacy.holders.document_kernels import find_shares
from odeco.privacy.holders.documents import N_ROUNDS


@dataclass(frozen=True, eq=False)
class GenerativeModel:
    """The distribution of documents: latent Dirichlet allocation, with a distribution of lengths.

    Attributes
    ----------
    topics : array, k x V
        The topics.
    alpha : array
        Dirichlet parameters of the shares of topics in a document.
    lengths, length_probabilities : arrays
        The numbers of words that a document may have, and the probability of each.
    """

    topics: FloatArray
    alpha: FloatArray
    lengths: IndexArray
    length_probabilities: FloatArray

    @property
    def mean_length(self) -> float:
        """Expected number of words in a document."""
        return float(self.lengths @ self.length_probabilities)


@dataclass(frozen=True, eq=False)
class SimulatedTokens:
    """Simulated documents, token by token: the document, word and topic of each; and the lengths of the documents.

    `repeats` is how often the word of a token occurs in its document.
    """

    documents: IndexArray
    words: IndexArray
    topics: IndexArray
    lengths: IndexArray
    repeats: IndexArray
    n_words: int

    @property
    def weights(self) -> FloatArray:
        """The contribution of each word to the features of its document: √count/√length, shared by its repeats."""
        weights: FloatArray = 1 / np.sqrt(self.repeats * self.lengths[self.documents])
        return weights

    def counts(self) -> Any:
        """Return the word counts of the documents as a CSR array."""
        shape = (self.lengths.size, self.n_words)
        ones = np.ones(self.words.size)
        counts: Any = sparse.coo_array((ones, (self.documents, self.words)), shape=shape).tocsr()
        return counts


def simulate(model: GenerativeModel, n_documents: int, rng: np.random.Generator) -> SimulatedTokens:
    """Draw documents."""
    k, n_words = model.topics.shape
    proportions = rng.dirichlet(np.maximum(model.alpha, 1e-3), n_documents)
    lengths = rng.choice(model.lengths, n_documents, p=model.length_probabilities)
    documents = np.repeat(np.arange(n_documents), lengths)
    borders = np.cumsum(proportions, axis=1)[:, :-1] + np.arange(n_documents)[:, None]
    topics = np.searchsorted(borders.ravel(), documents + rng.random(documents.size), side="right")
    topics = np.clip(topics - documents * (k - 1), 0, k - 1)
    heights = np.cumsum(model.topics, axis=1)
    heights = heights / heights[:, -1:] + np.arange(k)[:, None]
    words = np.searchsorted(heights.ravel(), topics + rng.random(documents.size), side="right") - topics * n_words
    words = np.minimum(words, n_words - 1)
    _, place, repeats = np.unique(documents * n_words + words, return_inverse=True, return_counts=True)
    return SimulatedTokens(documents, words, topics, lengths, repeats[place], n_words)


#: Steps of projected gradients, with momentum.
_N_STEPS = 40

#: The number of bins of words by their probability, to estimate how repeats damp them.
_N_BINS = 24

#: A thread solves for this many words at a time.
_BLOCK = 1024


def confusion_matrix(tokens: SimulatedTokens, topics: FloatArray, smoothing: float) -> FloatArray:
    """Return Q, k x k: Q[i, j] is the share of the words of topic i that a step with these topics assigns to topic j.

    `topics` are those that the step had, k x V. The documents may come from other topics, which count as the truth.
    """
    k = topics.shape[0]
    if k == 1:
        return np.ones((1, 1))
    counts, table = tokens.counts(), np.ascontiguousarray(topics.T, dtype=np.float32)
    shares = np.empty((tokens.lengths.size, k), dtype=np.float32)
    small = np.float32(smoothing)
    starts = range(0, shares.shape[0], _BLOCK)

    def fill(start: int) -> None:
        stop = min(start + _BLOCK, shares.shape[0])
        _find_all_shares(start, stop, counts.indptr, counts.indices, counts.data, table, small, N_ROUNDS, shares)

    for _ in map_blocks(fill, starts, parallel=True):
        pass
    own = shares[tokens.documents]
    of_word = own * table[tokens.words]
    lengths = tokens.lengths[tokens.documents].astype(np.float32)
    # What the other words of the document say: its expected counts without this token.
    rest = own * (lengths + k * small)[:, None] - of_word / of_word.sum(axis=1, keepdims=True)
    rest = np.maximum(rest, np.float32(0.1) * small)
    rest *= (tokens.weights / rest.sum(axis=1))[:, None]
    weights = np.bincount(tokens.topics, tokens.weights, k)
    assigned = np.stack([np.bincount(tokens.topics, rest[:, topic], k) for topic in range(k)], axis=1)
    identity = np.eye(k)
    found: FloatArray = np.where(weights[:, None] > 0, assigned / np.maximum(weights, 1e-9)[:, None], identity)
    return found


def damping(tokens: SimulatedTokens, topics: FloatArray) -> FloatArray:
    """Return how much a word of a topic adds to the features of its document, on average, k x V; up to a factor.

    The root of a count counts repeats less, so words that are frequent in a topic seem rarer than they are. How much is
    a smooth function of the word's chance in the topic: a parabola of logarithms, fitted to the simulated words.
    """
    chances = np.log(topics[tokens.topics, tokens.words])
    level = np.unique(np.quantile(chances, np.linspace(0, 1, _N_BINS + 1)))
    place = np.clip(np.searchsorted(level, chances, side="right") - 1, 0, max(level.size - 2, 0))
    sizes = np.bincount(place)
    used = sizes > 0
    if used.sum() < 4:
        return np.ones_like(topics)
    middle = np.bincount(place, chances)[used] / sizes[used]
    height = np.log(np.bincount(place, tokens.weights)[used] / sizes[used])
    # The parabola is not extrapolated: beyond the simulated range, its value at the end is taken.
    fitted = np.polynomial.Polynomial.fit(middle, height, 2, w=np.sqrt(sizes[used]))
    damped: FloatArray = np.exp(fitted(np.clip(np.log(topics), middle.min(), middle.max())))
    return damped


@compiled
def _find_all_shares(
    first: int,
    last: int,
    entries: NDArray[np.int32],
    words: NDArray[np.int32],
    counts: FloatArray,
    topics: NDArray[np.float32],
    smoothing: np.float32,
    n_rounds: int,
    shares: NDArray[np.float32],
) -> None:
    room = np.empty(topics.shape[1], np.float32)
    for document in range(first, last):
        start, stop = entries[document], entries[document + 1]
        find_shares(words[start:stop], counts[start:stop], topics, smoothing, n_rounds, shares[document], room)


def deconvolve(
    image: FloatArray, gram: FloatArray, weights: FloatArray, precision: FloatArray, prior: FloatArray, near: FloatArray
) -> FloatArray:
    """Return for each word the shares p of topics that minimise w (pᵀGp/2 − bᵀp) + (a/2) |p − p₀|² on the simplex.

    Parameters
    ----------
    image : array, V x k
        The b of each word.
    gram : array, k x k
        G.
    weights, precision : arrays
        The w and a of each word.
    prior : array, V x k
        The p₀ of each word.
    near : array, V x k
        Where to begin.
    """
    steepest = float(np.linalg.eigvalsh(gram)[-1])
    shares = near.copy()
    wanted, matrix = np.ascontiguousarray(image), np.ascontiguousarray(gram)

    def solve(start: int) -> None:
        stop = min(start + _BLOCK, shares.shape[0])
        _descend(start, stop, wanted, matrix, steepest, weights, precision, prior, shares, _N_STEPS)

    for _ in map_blocks(solve, range(0, shares.shape[0], _BLOCK), parallel=True):
        pass
    return shares


@compiled
def _descend(
    first: int,
    last: int,
    image: FloatArray,
    gram: FloatArray,
    steepest: float,
    weights: FloatArray,
    precision: FloatArray,
    prior: FloatArray,
    shares: FloatArray,
    n_steps: int,
) -> None:
    k = gram.shape[0]
    ahead, moved, falling = np.empty(k), np.empty(k), np.empty(k)
    for word in range(first, last):
        weight, hold, own = weights[word], precision[word], shares[word]
        step = 1.0 / (1.01 * steepest * weight + hold)
        ahead[:] = own
        speed = 1.0
        for _ in range(n_steps):
            for a in range(k):
                slope = -image[word, a]
                for b in range(k):
                    slope += gram[a, b] * ahead[b]
                moved[a] = ahead[a] - step * (weight * slope + hold * (ahead[a] - prior[word, a]))
            # Onto the simplex: the same number is taken off all, and what is negative becomes zero.
            for a in range(k):
                place = a
                while place > 0 and falling[place - 1] < moved[a]:
                    falling[place] = falling[place - 1]
                    place -= 1
                falling[place] = moved[a]
            running, level = 0.0, 0.0
            for place in range(k):
                value = falling[place]
                running += value
                if value - (running - 1.0) / (place + 1) > 0.0:
                    level = (running - 1.0) / (place + 1)
            faster = (1.0 + np.sqrt(1.0 + 4.0 * speed * speed)) / 2.0
            for a in range(k):
                value = max(moved[a] - level, 0.0)
                ahead[a] = value + (speed - 1.0) / faster * (value - own[a])
                own[a] = value
            speed = faster


#: Of the share of a word that is in one topic alone, the values that the prior of its shares has; 0 is another one.
_IN_ONE_TOPIC = (0.2, 0.4, 0.6, 0.8, 1.0)

#: The number of iterations that fit the prior.
_N_PRIOR_ROUNDS = 50


def expected_centres(
    image: FloatArray, gram: FloatArray, weights: FloatArray, spread: float, sizes: FloatArray
) -> FloatArray:
    """Return for each word the p₀ of `deconvolve`, V x k: about which topics it belongs to, given its evidence.

    Parameters
    ----------
    image, gram, weights
        As for `deconvolve`.
    spread : float
        The variance of shares around a centre.
    sizes : array
        The shares q of topics among all words.

    Notes
    -----
    Most words either belong to topics as all words do, or to a large part to one topic. The prior of the shares p of a
    word is therefore a mixture of normal distributions of variance s around the centres c = (1 − λ) q + λ eⱼ, where j
    has the probability qⱼ. That of λ is fitted to all words: nonparametric maximum likelihood on six values (empirical
    Bayes). The b of a word has the mean Gp and the covariance G/w. In coordinates of the eigenvectors of G, with
    eigenvalues g, its likelihood given c is Π exp(w (b c − g c²/2)/(1 + s w g)), up to a factor without c. The
    posterior mean of p given c is linear in c (without the simplex, `deconvolve` with p₀ = c and a = 1/s), so the one
    over all centres is that of p₀ = E[c | b].
    """
    values, vectors = np.linalg.eigh(gram)
    scaled = weights[:, None] / (1 + spread * weights[:, None] * np.maximum(values, 0.0))
    alone = np.concatenate([share * np.eye(sizes.size) + (1 - share) * sizes for share in _IN_ONE_TOPIC])
    centres = np.vstack([sizes, alone])
    inside = centres @ vectors
    chances = (scaled * (image @ vectors)) @ inside.T - (scaled * np.maximum(values, 0.0)) @ (inside.T**2 / 2)
    chances = np.exp(chances - chances.max(axis=1, keepdims=True))
    chances[:, 1:] *= np.tile(sizes, len(_IN_ONE_TOPIC))
    # The first centre is the one with λ = 0; then there are as many as topics for every other λ.
    starts = np.append(0, 1 + sizes.size * np.arange(len(_IN_ONE_TOPIC)))
    by_share = np.add.reduceat(chances, starts, axis=1)
    prior = np.full(starts.size, 1 / starts.size)
    for _ in range(_N_PRIOR_ROUNDS):
        posterior = by_share * prior
        prior = np.mean(posterior / posterior.sum(axis=1, keepdims=True), axis=0)
    chances *= np.repeat(prior, np.diff(starts, append=chances.shape[1]))
    return np.asarray(chances @ centres / chances.sum(axis=1, keepdims=True))


def deconvolution_deviations(gram: FloatArray, weights: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the standard deviations of `deconvolve` that the noise of the steps gives, V x k.

    The noise in b has the covariance G/w, so without the simplex p would have that of A⁻¹ w G A⁻¹ with A = w G + a I.
    Being held on the simplex, a convex set, brings two solutions nearer to each other and not further apart.
    """
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)
    spread = weights[:, None] * values / (weights[:, None] * values + precision[:, None]) ** 2
    deviations: FloatArray = np.sqrt(spread @ (vectors**2).T)
    return deviations
