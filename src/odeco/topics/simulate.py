"""Documents are drawn from topics: what a private model would say of them costs nothing, as no real document is asked."""

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
    """Words one by one: in which document each is, which word, and of which topic; and how long the documents are."""

    documents: IndexArray
    words: IndexArray
    topics: IndexArray
    lengths: IndexArray
    n_words: int

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
    return SimulatedTokens(documents, np.minimum(words, n_words - 1), topics, lengths, n_words)
