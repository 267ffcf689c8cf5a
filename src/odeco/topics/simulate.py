"""Documents are drawn from topics: what is learnt from these costs nothing, as no real document is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from odeco._types import FloatArray, IndexArray


@dataclass(frozen=True, eq=False)
class TopicLaw:
    """How documents come about: latent Dirichlet allocation, with a distribution of lengths.

    Attributes
    ----------
    topics : array, k x V
        The topics.
    alpha : array
        Dirichlet parameters of the shares of topics in a document.
    lengths, chances : arrays
        The numbers of words that a document may have, and how likely each is.
    """

    topics: FloatArray
    alpha: FloatArray
    lengths: IndexArray
    chances: FloatArray

    @property
    def mean_length(self) -> float:
        """Expected number of words in a document."""
        return float(self.lengths @ self.chances)


@dataclass(frozen=True, eq=False)
class SimulatedTokens:
    """Words one by one: in which document each is, which word, and of which topic; and how long the documents are.

    `repeats` says how often the word stands in its document.
    """

    documents: IndexArray
    words: IndexArray
    topics: IndexArray
    lengths: IndexArray
    repeats: IndexArray
    n_words: int

    @property
    def weights(self) -> FloatArray:
        """What each word adds to the features of its document: √count/√length, shared by its repeats."""
        weights: FloatArray = 1 / np.sqrt(self.repeats * self.lengths[self.documents])
        return weights

    def counts(self) -> Any:
        """Return the word counts of the documents as a CSR array."""
        shape = (self.lengths.size, self.n_words)
        ones = np.ones(self.words.size)
        counts: Any = sparse.coo_array((ones, (self.documents, self.words)), shape=shape).tocsr()
        return counts


def simulate(law: TopicLaw, n_documents: int, rng: np.random.Generator) -> SimulatedTokens:
    """Draw documents."""
    k, n_words = law.topics.shape
    proportions = rng.dirichlet(np.maximum(law.alpha, 1e-3), n_documents)
    lengths = rng.choice(law.lengths, n_documents, p=law.chances)
    documents = np.repeat(np.arange(n_documents), lengths)
    borders = np.cumsum(proportions, axis=1)[:, :-1] + np.arange(n_documents)[:, None]
    topics = np.searchsorted(borders.ravel(), documents + rng.random(documents.size), side="right")
    topics = np.clip(topics - documents * (k - 1), 0, k - 1)
    heights = np.cumsum(law.topics, axis=1)
    heights = heights / heights[:, -1:] + np.arange(k)[:, None]
    words = np.searchsorted(heights.ravel(), topics + rng.random(documents.size), side="right") - topics * n_words
    words = np.minimum(words, n_words - 1)
    _, place, repeats = np.unique(documents * n_words + words, return_inverse=True, return_counts=True)
    return SimulatedTokens(documents, words, topics, lengths, repeats[place], n_words)
