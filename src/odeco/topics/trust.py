"""How far private topics are to be trusted: what they would be under other noise.

The topics that were found are taken for the truth. Documents are drawn from them, as many as there are (or fewer, with
less noise in proportion), and the whole private run is done again on these, with fresh noise. A topic that comes out
as it went in would have been found; one that does not might as well be noise. No real document is asked. This is about
noise alone: not about whether text is a mixture of topics, nor about what public documents got wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from odeco._types import FloatArray
from odeco.topics.bounded_counts import BoundedCounts
from odeco.topics.private_answers import SimulatedAnswers
from odeco.topics.private_plan import ReleasePlan
from odeco.topics.private_topics import FoundPrivately, PublicTopics, find_private_topics
from odeco.topics.simulate import TopicLaw, simulate

#: The run is done again so often.
N_AGAIN = 2
#: So many words of documents are drawn for each.
_SIMULATED_WORDS = 300_000
#: A topic is clear if at least half of what sets it apart from all words would be found again: cos² ≥ 1/2.
CLEAR = 0.5**0.5
#: The weight of a word in a topic must be this many standard deviations of its noise.
_CLEAR_WORD = 2.0


@dataclass(frozen=True, eq=False)
class TopicTrust:
    """How far to trust each private topic, and each of its words.

    Attributes
    ----------
    likeness : array of k numbers
        The cosine that is to be expected between a topic and the same topic found without noise, both after
        subtracting the frequencies of all words: 1 if nothing of it is noise, 0 if all is.
    deviations : array, k x V
        Standard deviations that the noise gives to the probabilities of words in topics.
    """

    likeness: FloatArray
    deviations: FloatArray

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which topics are clear: at least half of what sets them apart from all words is signal (likeness² ≥ 1/2)."""
        return np.asarray(self.likeness >= CLEAR)

    def clear_words(self, topic_word: FloatArray) -> NDArray[np.bool_]:
        """Return which words of which topics, k x V, have at least twice the standard deviation of their noise."""
        return np.asarray(topic_word >= _CLEAR_WORD * self.deviations)


def measure_trust(
    found: FoundPrivately,
    plan: ReleasePlan,
    *,
    n_units: int,
    unit_noise: float,
    rng: np.random.Generator,
) -> TopicTrust:
    """Find the topics again in documents that are drawn from them.

    Parameters
    ----------
    found : FoundPrivately
        The topics.
    plan : ReleasePlan
        How they were found.
    n_units : int
        Number of documents, or of users; public.
    unit_noise : float
        Standard deviation of the noise of a release that has the whole budget.
    rng : Generator
        Draws documents and noise.
    """
    law = found.law
    again = [topics_again(law, plan, n_units, unit_noise, rng, found.evidence.public) for _ in range(N_AGAIN)]
    likenesses = [likeness(law.topics, topics, _frequencies(law)) for topics in again]
    moved = np.mean([np.sum((topics - law.topics) ** 2, axis=1) for topics in again], axis=0)
    # The deviations say which words are surer than others, given the topics of each step. That these are noisy too
    # makes all of them larger: how much is seen from the topics that were found again.
    said = np.maximum(np.sum(found.deviations**2, axis=1), np.finfo(float).tiny)
    factors = np.sqrt(np.maximum(moved / said, 1.0))
    return TopicTrust(np.mean(likenesses, axis=0), found.deviations * factors[:, None])


def topics_again(
    law: TopicLaw,
    plan: ReleasePlan,
    n_units: int,
    unit_noise: float,
    rng: np.random.Generator,
    public: PublicTopics | None = None,
) -> FloatArray:
    """Draw documents once, learn their topics privately, and return these in the order of the true ones."""
    n_drawn = min(n_units, max(1, round(_SIMULATED_WORDS / law.mean_length)))
    held = BoundedCounts(simulate(law, n_drawn, rng).counts())
    answers = SimulatedAnswers(held, unit_noise * n_drawn / n_units, rng)
    k, concentration = law.topics.shape[0], float(law.alpha.sum())
    found = find_private_topics(answers, plan, k, concentration=concentration, rng=rng, public=public)
    cosines = _cosines(law.topics, found.evidence.topics, _frequencies(law))
    matched: FloatArray = found.evidence.topics[linear_sum_assignment(-cosines)[1]]
    return matched


def likeness(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
    """Return the cosine of each true topic with its match, both after subtracting the frequencies of all words."""
    cosines = _cosines(truth, found, frequencies)
    return np.clip(cosines[linear_sum_assignment(-cosines)], -1.0, 1.0)


def _frequencies(law: TopicLaw) -> FloatArray:
    frequencies: FloatArray = law.alpha / law.alpha.sum() @ law.topics
    return frequencies


def _cosines(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
    return _apart(truth, frequencies) @ _apart(found, frequencies).T


def _apart(topics: FloatArray, frequencies: FloatArray) -> FloatArray:
    rest = topics - frequencies
    norms = np.linalg.norm(rest, axis=1, keepdims=True)
    apart: FloatArray = np.divide(rest, norms, out=np.zeros_like(rest), where=norms > 1e-12)
    return apart
