"""Planted problems: tensors whose components are known, for tests, benchmarks and experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy import sparse

from odeco._util.arguments import as_generator, check_choice, check_count, check_n_components
from odeco._util.types import FloatArray, RngLike
from odeco.power.operator_norm import operator_norm
from odeco.tensors.components import Components
from odeco.tensors.dense import DenseTensor, symmetrize
from odeco.tensors.oracle import Oracle

#: Weights of the rank-3 tensor of the paper's Appendix A.
APPENDIX_A_WEIGHTS = (1.0, 0.75, 0.5)

NoiseModel = Literal["gaussian", "adversarial", "weakly correlated"]


def planted_orthogonal(
    dimension: int, n_components: int, *, order: int = 3, weights: Any = None, rng: RngLike = None
) -> Components:
    """Return components with uniformly random orthonormal vectors.

    Parameters
    ----------
    dimension, n_components : int
        The dimension d, and the number k of components.
    order : int
        The order p of the tensor.
    weights : array of k numbers, optional
        The weights; by default they fall evenly from 2 to 1.
    rng : None, int or numpy.random.Generator
        Draws the vectors.

    Examples
    --------
    >>> from odeco.datasets.planted import planted_orthogonal
    >>> planted_orthogonal(10, 3, rng=0).weights
    array([2. , 1.5, 1. ])
    """
    k = check_n_components(n_components, dimension)
    generator = as_generator(rng)
    vectors = np.linalg.qr(generator.standard_normal((dimension, k)))[0]
    return Components(np.linspace(2, 1, k) if weights is None else weights, vectors, order)


def planted_independent(
    dimension: int,
    n_components: int,
    *,
    order: int = 3,
    coherence: float = 0.3,
    weights: Any = None,
    rng: RngLike = None,
) -> Components:
    """Return linearly independent components, any two of which have about the same cosine.

    Parameters
    ----------
    dimension, n_components : int
        The dimension d, and the number k of components.
    order : int
        The order p of the tensor.
    coherence : float
        The cosine of two components, about.
    weights : array of k numbers, optional
        The weights; by default they fall evenly from 2 to 1.
    rng : None, int or numpy.random.Generator
        Draws the vectors.
    """
    basis = planted_orthogonal(dimension, n_components, order=order, weights=weights, rng=rng)
    common = np.sum(basis.vectors, axis=1, keepdims=True) / np.sqrt(n_components)
    vectors = np.sqrt(1 - coherence) * basis.vectors + np.sqrt(coherence) * common
    return Components(basis.weights, vectors / np.linalg.norm(vectors, axis=0), order)


def gaussian_noise(dimension: int, *, order: int = 3, rng: RngLike = None) -> DenseTensor:
    """Return a symmetrised array of independent standard normal entries (Appendix A, model 1).

    Parameters
    ----------
    dimension : int
        The size of each axis.
    order : int
        Number of axes.
    rng : None, int or numpy.random.Generator
        Seeds what is drawn.
    """
    check_count("dimension", dimension)
    return DenseTensor(symmetrize(as_generator(rng).standard_normal((dimension,) * order)))


@final
class AdversarialNoise(Oracle):
    """The noise Σᵢ v⊗eᵢ⊗eᵢ + eᵢ⊗v⊗eᵢ + eᵢ⊗eᵢ⊗v, which pulls every image towards one vector v (Appendix A, model 2).

    The image of u is E(I, u, u) = ‖u‖² v + 2 ⟨v, u⟩ u, which takes O(d) operations. For a unit vector v the operator
    norm is 3, and it is reached at v.

    Parameters
    ----------
    vector : array of d numbers
        The vector v.
    """

    order = 3

    def __init__(self, vector: Any) -> None:
        self.vector: FloatArray = np.array(vector, dtype=np.float64)
        self.dimension = self.vector.size

    def squared_norm(self) -> float:
        """Return 3d + 6, for a unit vector v."""
        return float(3 * self.dimension + 6) * float(self.vector @ self.vector)

    def _image(self, block: FloatArray) -> FloatArray:
        return np.outer(self.vector, np.sum(block**2, axis=0)) + 2 * (self.vector @ block) * block


@final
class WeaklyCorrelatedNoise(Oracle):
    """The noise Σᵢ eᵢ⊗eᵢ⊗eᵢ over the coordinates from `first` on, orthogonal to the signal (Appendix A, model 3).

    The image of u is the square of u in each of these coordinates, which takes O(d) operations. The operator norm is 1.

    Parameters
    ----------
    dimension : int
        The dimension d.
    first : int
        The first coordinate that has noise.
    """

    order = 3

    def __init__(self, dimension: int, first: int) -> None:
        self.dimension = check_count("dimension", dimension, 2)
        self.first = check_count("first", first, 0, dimension - 1)

    def squared_norm(self) -> float:
        """Return the number of terms."""
        return float(self.dimension - self.first)

    def _image(self, block: FloatArray) -> FloatArray:
        image: FloatArray = block**2
        image[: self.first] = 0
        return image


def appendix_a(
    dimension: int, noise: NoiseModel, sigma: float, *, rng: RngLike = None, n_restarts: int = 100
) -> tuple[Oracle, Components]:
    """Return the noisy tensor of the paper's Appendix A, and its true components.

    The true components are the first three coordinate vectors, with weights 1, 0.75 and 0.5.

    Parameters
    ----------
    dimension : int
        The dimension d.
    noise : {"gaussian", "adversarial", "weakly correlated"}
        The model of the noise.
    sigma : float
        The operator norm to which the noise is scaled.
    rng : None, int or numpy.random.Generator
        Draws the noise.
    n_restarts : int
        The number of starts from which `operator_norm` measures the noise before it is scaled.
    """
    check_choice("noise", noise, ("gaussian", "adversarial", "weakly correlated"))
    generator = as_generator(rng)
    k = len(APPENDIX_A_WEIGHTS)
    check_n_components(k, dimension)
    truth = Components(APPENDIX_A_WEIGHTS, np.eye(dimension)[:, :k])
    raw: Oracle
    if noise == "gaussian":
        raw = gaussian_noise(dimension, rng=generator)
    elif noise == "adversarial":
        raw = AdversarialNoise(truth.vectors[:, 1])
    else:
        raw = WeaklyCorrelatedNoise(dimension, k)
    return truth + (sigma / operator_norm(raw, n_restarts=n_restarts, rng=generator)) * raw, truth


@dataclass(frozen=True, eq=False)
class TopicCorpus:
    """Documents drawn from known topics.

    Attributes
    ----------
    counts : CSR array of integers, documents x words
        The number of times that each document holds each word.
    topics : array, topics x words
        The true topics; each row is a distribution.
    alpha : array
        The true Dirichlet parameters of the proportions of topics.
    proportions : array, documents x topics
        The true proportions of each document.
    """

    counts: Any
    topics: FloatArray
    alpha: FloatArray
    proportions: FloatArray


def planted_topics(
    n_documents: int,
    n_words: int,
    alpha: Any,
    *,
    document_length: Any = 100,
    topics: Any = None,
    sparsity: float = 0.1,
    rng: RngLike = None,
) -> TopicCorpus:
    """Return documents drawn from latent Dirichlet allocation, with the topics that they were drawn from.

    Parameters
    ----------
    n_documents, n_words : int
        The number of documents, and the number of words in the vocabulary.
    alpha : array of k positive numbers
        The Dirichlet parameters of the proportions of topics in a document.
    document_length : int or array of n_documents ints
        The number of words in each document.
    topics : array, k x n_words, optional
        The topics; by default drawn from a symmetric Dirichlet distribution with parameter `sparsity`.
    sparsity : float
        The smaller this is, the fewer words a drawn topic has.
    rng : None, int or numpy.random.Generator
        Draws topics, proportions and words.

    Examples
    --------
    >>> from odeco.datasets.planted import planted_topics
    >>> corpus = planted_topics(1000, 50, [0.5, 0.3, 0.2], document_length=20, rng=0)
    >>> corpus.counts.shape, int(corpus.counts.sum()), corpus.topics.shape
    ((1000, 50), 20000, (3, 50))
    """
    generator = as_generator(rng)
    check_count("n_documents", n_documents)
    check_count("n_words", n_words)
    alpha = np.array(alpha, dtype=np.float64)
    if topics is None:
        topics = generator.dirichlet(np.full(n_words, sparsity), size=alpha.size)
    topics = np.array(topics, dtype=np.float64)
    if topics.shape != (alpha.size, n_words):
        raise ValueError(
            f"`topics` must hold a row of {n_words} words for each of the {alpha.size} numbers in `alpha`. "
            f"Got shape {topics.shape}."
        )
    proportions = generator.dirichlet(alpha, size=n_documents)
    lengths = np.broadcast_to(np.asarray(document_length, dtype=np.int64), (n_documents,))
    # Given its topic, a word does not depend on its document. So all words of one topic are drawn at once.
    by_topic = generator.multinomial(lengths, proportions)
    documents = [np.repeat(np.arange(n_documents), column) for column in by_topic.T]
    words = [
        generator.choice(n_words, size=len(place), p=topic) for place, topic in zip(documents, topics, strict=True)
    ]
    places = (np.concatenate(documents), np.concatenate(words))
    counts = sparse.coo_array((np.ones(places[0].size, dtype=np.int64), places), shape=(n_documents, n_words))
    return TopicCorpus(sparse.csr_array(counts), topics, alpha, proportions)
