"""Public documents beside private ones: what they say counts by how certain it is, next to what was released.

The private releases are those of a fit without public documents. Public documents are queried in the same way, without
noise. What they say counts twice:

**As if they were private.** The released sums over private documents plus the exact sums over public ones are the sums
over all documents, with the noise that they would have if all were private. So to be public costs a document nothing of
what it says: the fit is the one with all documents private, to begin with.

**By variances.** They have no noise, so the answers to each query say more than that where noise is large:

* frequencies of words are combined with the sums over all, by inverse variances;
* pairs of the most frequent words, where the topics start, count more often;
* words by topic in every EM step are further evidence. A word of a public document is divided over topics according to
  the other words of its document, as private ones are, so that the same confusion matrix applies to both
  (`odeco.models.lda.deconvolve`).

The more signal the released sums have, the less this second part counts. Where their words are not those of the private
ones, as far as the released frequencies show, both count less (`spread_of`, `likeness`). Those of other text do not
count: the fit is then the one without them. In later batches of a stream only the second part counts: they were among
the documents of the first.

**Privacy.** `PublicDocuments` is made from public counts alone. Its methods take public numbers, released arrays, and
topics, which were computed from such. No method is given a data holder of private documents or an answer of one, so
all that follows is a function of public numbers and of releases: post-processing, which costs nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.pairs import NoisyPairs, matrix_of_pairs
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.sums import Query

#: How many independent words a word of a public document counts as: words of one document are alike.
_INDEPENDENT = 0.5

#: No word is expected less often in all public documents together.
_LEAST_EXPECTED = 0.2


class PublicDocuments:
    """Public documents that are queried as private ones are.

    Parameters
    ----------
    counts : CSR array, documents x words
        Word counts of documents that need no protection.

    Attributes
    ----------
    held : BoundedCounts
        Their queries, whose answers need no noise.
    n_words : array
        How often each word occurs in all of them.
    spread : float
        The variance of what they say, in units of that of sampling; at least 1, and infinite if they are other text.
    alike : float
        How often each counts as if it were private: once, and not at all if they are other text; see `likeness`.
    """

    def __init__(self, counts: Any) -> None:
        self.held, self.spread, self.alike = BoundedCounts(counts), 1.0, 1.0
        self.n_words: FloatArray = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
        lengths = np.maximum(np.asarray(counts.sum(axis=1), dtype=np.float64).ravel(), 1.0)
        # The features of a document: the roots of its counts, divided by the root of its length.
        self._features = counts.multiply(1 / lengths[:, None]).tocsr().sqrt()
        self._sums = self.held.words().answer()

    @classmethod
    def of(cls, counts: Any) -> PublicDocuments | None:
        """Return public documents, or None if there are none with words."""
        return None if counts is None or counts.sum() == 0 else cls(counts)

    def words(self, frequencies: FloatArray, released: FloatArray, deviations: FloatArray) -> tuple[FloatArray, ...]:
        """Return their sums of features and the deviations of these, and set their spread.

        Parameters
        ----------
        frequencies : array
            Of all words, by the released sums.
        released, deviations : arrays
            The released sums of features, with the deviations of their noise.
        """
        # A sum of independent numbers has the variance of its expected sum of squares: about the same share of each.
        share = float(self._features.multiply(self._features).sum() / self._sums.sum())
        variances = share * np.maximum(frequencies * self._sums.sum(), _LEAST_EXPECTED)
        self.spread = spread_of(self._sums, variances, released, deviations)
        self.alike = likeness(self._sums, variances, frequencies)
        self.spread = self.spread / self.alike if self.alike else math.inf
        return self._sums, np.sqrt(self.spread * variances)

    def among(self, released: FloatArray, query: Query) -> FloatArray:
        """Return a released sum over private documents, and theirs beside it: they count as if they were private.

        Parameters
        ----------
        released : array
            The released sum.
        query : Query
            The same query, of public documents.
        """
        return np.asarray(released + self.alike * query.answer())

    def added(self, pairs: NoisyPairs, n_units: int) -> FloatArray:
        """Return the matrix of released pairs plus that of public ones, each pair as often as is best for both.

        Noise of deviation s in the pairs of v words has eigenvalues of s√v in the mean square. The sum of φφᵀ over m
        documents errs by about √(mκ), where κ is the largest eigenvalue of the mean of |φ|² φφᵀ (matrix Bernstein). Of
        n private and m public documents, counted ω times, the mean errs least for ω = 1 + s²v/(nκ). The second term is
        divided by the spread of public ones.
        """
        own = self._features[:, pairs.words].toarray()
        square = float(np.linalg.eigvalsh((own.T * np.sum(own**2, axis=1)) @ own)[-1]) / len(own)
        noise = pairs.deviation**2 * pairs.words.size
        times = self.alike + noise / (n_units * max(square, np.finfo(np.float64).tiny)) / self.spread
        public = matrix_of_pairs(self.held.pairs(pairs.words).answer(), pairs.words.size)
        return np.asarray(pairs.matrix + times * public)

    def certainty(self) -> FloatArray:
        """Return how many independent words they have of each kind."""
        return np.asarray(_INDEPENDENT * self.n_words / self.spread)

    def by_topic(self, topics: FloatArray, smoothing: float) -> FloatArray:
        """Return the shares of topics among their words, V x k, each by the other words of its document.

        Parameters
        ----------
        topics : array, k x V
            The topics of an EM step.
        smoothing : float
            As for `BoundedCounts.responsibilities`.
        """
        ones = np.ones(topics.shape[1])
        sums = self.held.responsibilities(topics, ones, smoothing).answer().reshape(topics.T.shape)
        return np.asarray(sums / np.maximum(sums.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny))

    def start(
        self, topics: FloatArray, frequencies: FloatArray, known: IndexArray, smoothing: float, n_prior: float
    ) -> FloatArray:
        """Return starting topics with the words that pairs say nothing about as public documents divide them.

        The shares that such a word has without them are those of all words. They count as the prior that the steps will
        have around these: with much signal it is narrow, and public words that are not like private ones would be a
        worse start than none.

        Parameters
        ----------
        topics : array, k x V
            The topics of pairs.
        frequencies : array
            Of all words.
        known : array of indices
            The words that pairs were released of.
        smoothing : float
            As for `by_topic`.
        n_prior : float
            How many words the prior counts as: the variance of the shares of one word, divided by that of the prior.
        """
        shares, certainty = topics.T / topics.sum(axis=0)[:, None], self.certainty()[:, None]
        mixed = (n_prior * shares + certainty * self.by_topic(topics, smoothing)) / (n_prior + certainty)
        mixed[known] = shares[known]
        return np.asarray((mixed * frequencies[:, None]).T)


def spread_of(sums: FloatArray, variances: FloatArray, released: FloatArray, deviations: FloatArray) -> float:
    """Return the variance of public frequencies around the private ones, in units of that of sampling; at least 1.

    Parameters
    ----------
    sums, variances : arrays
        Sums over public documents, with the variances that sampling gives them.
    released, deviations : arrays
        The same sums over private documents, with the deviations of their noise.
    """
    ours, theirs = max(float(sums.sum()), 1e-9), max(float(released.sum()), 1e-9)
    differences = sums / ours - released / theirs
    noise, sampling = (deviations / theirs) ** 2, variances / ours**2
    weights = (noise + sampling) ** -2.0
    return max(1.0, float(weights @ (differences**2 - noise) / (weights @ sampling)))


def likeness(sums: FloatArray, variances: FloatArray, frequencies: FloatArray) -> float:
    """Return 1 if public words are as frequent as private ones, 0 if they have little to do with each other.

    The private frequencies are posterior means, given the released sums. If public documents were drawn like private
    ones, their frequencies would have the same means, so that a regression on these would have the slope 1; that of
    unrelated text has the slope 0. Slopes up to 1/2 count as unrelated, after two standard errors were added.

    Parameters
    ----------
    sums, variances : arrays
        Sums over public documents, with the variances that sampling gives them.
    frequencies : array
        The private frequencies, by the released sums.
    """
    total, weights = max(float(sums.sum()), 1e-9), 1 / (frequencies + 1 / frequencies.size)
    apart = weights * (frequencies - weights @ frequencies / weights.sum())
    spread = float(apart @ frequencies)
    if spread <= np.finfo(np.float64).tiny:
        return 1.0
    slope, error = float(apart @ sums) / (total * spread), math.sqrt(float(apart**2 @ variances)) / (total * spread)
    return min(max(2 * (slope + 2 * error) - 1, 0.0), 1.0)
