"""How documents come about if text has more topics than were asked for: as many as the noisy pairs of words show.

Topics that mix others depend on where a run happens to end: with other noise other topics are mixed. Documents that are
drawn from the topics found do not show that, since they hold these and no others. So where the pairs show more topics
than were asked for, documents are drawn from all of these. This is post-processing of what was released.
"""

from __future__ import annotations

import numpy as np

from odeco._types import FloatArray
from odeco.topics.factorise_pairs import NoisyPairs, factorise
from odeco.topics.simulate import TopicLaw

#: Steps of expectation and maximisation, for the topics found that a further topic consists of.
_N_ROUNDS = 50


def with_further_topics(law: TopicLaw, pairs: NoisyPairs | None, rng: np.random.Generator) -> TopicLaw:
    """Return a law with as many topics as pairs show, or the same if they show no more than it has.

    Parameters
    ----------
    law : TopicLaw
        The topics that were found.
    pairs : NoisyPairs or None
        What was released about pairs of the most frequent words, if anything was.
    rng : Generator
        Draws where the factorisation of the pairs begins.

    Notes
    -----
    The pairs, without the directions that may be noise, are factorised again. Each factor is a topic among the frequent
    words, and its squared mass its share. What it has of the other words is that of the mixture of topics found which
    is nearest to it in likelihood.
    """
    n_topics = 0 if pairs is None else min(pairs.n_clear(), pairs.words.size)
    if pairs is None or n_topics <= law.topics.shape[0]:
        return law
    factors = factorise(pairs.without_noise(), n_topics, rng)
    masses = factors.sum(axis=0)
    frequent = (factors / masses).T
    topics = _mixtures(frequent, law.topics[:, pairs.words]) @ law.topics
    topics[:, pairs.words] = frequent * topics[:, pairs.words].sum(axis=1, keepdims=True)
    topics /= topics.sum(axis=1, keepdims=True)
    return TopicLaw(topics, law.alpha.sum() * masses**2 / np.sum(masses**2), law.lengths, law.chances)


def _mixtures(wanted: FloatArray, topics: FloatArray) -> FloatArray:
    """Return the weights, rows that sum to one, with which topics make up each wanted one."""
    topics = topics / topics.sum(axis=1, keepdims=True)
    weights = np.full((wanted.shape[0], topics.shape[0]), 1 / topics.shape[0])
    for _ in range(_N_ROUNDS):
        weights *= (wanted / np.maximum(weights @ topics, np.finfo(float).tiny)) @ topics.T
    return weights
