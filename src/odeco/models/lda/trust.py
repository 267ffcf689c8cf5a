"""How far private topics are to be trusted: what they would be under other noise.

The topics that were found are taken for the truth, with further ones if the released pairs of words show more than
that (`further_topics`). Documents are drawn from them, as many as there are (or fewer, with less noise in proportion),
and the whole private run is done again on these, with fresh noise, several times. A topic that comes out as it went in
would have been found; one that does not might as well be noise. Nor can more of it be signal than the known variance of
the noise leaves over. No real document is asked.

How many topics there are is seen from the released pairs of words. With public documents, and in the later batches of
a stream, none are released. If the topics found were taken for all there are, what public documents say would come out
again whether it is right or not, and trust would be too high: so there it is not known, and said to be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from odeco._util.types import FloatArray
from odeco.models.lda.pairs import TopicLaw, simulate
from odeco.models.lda.private_estimate import FoundPrivately, find_private_topics, with_further_topics
from odeco.models.lda.private_releases import ReleasePlan, SimulatedAnswers
from odeco.privacy.holders.documents import BoundedCounts

#: The run is done again so often. If the truth is like one more run, it is below the lowest of these one time in five.
_N_AGAIN = 4

#: So many words of documents are drawn for each.
_SIMULATED_WORDS = 200_000

#: A topic is clear if at least half of what sets it apart from all words would be found again: cos² ≥ 1/2.
CLEAR = 0.5**0.5

#: What is said of topics whose trust is not known.
_NOT_KNOWN = (
    "How far to trust the topics is not known: with public documents, and in later batches of a stream, no pairs of "
    "words are released that could show it."
)

#: The weight of a word in a topic must be this many standard deviations of its noise.
_CLEAR_WORD = 2.0


@dataclass(frozen=True, eq=False)
class TopicTrust:
    """How far to trust each private topic, and each of its words.

    Attributes
    ----------
    likeness : array of k numbers
        The cosine between a topic and what is found again of it under other noise, both after subtracting the
        frequencies of all words: 1 if nothing of it is noise, 0 if all is. It is the lowest of four runs, so the
        cosine with the topic that would be found without noise should be below it one time in five. NaN if it is not
        known.
    deviations : array, k x V
        Standard deviations that the noise gives to the probabilities of words in topics. Where trust is not known, they
        are those for the topics that the steps started from, which is less.
    """

    likeness: FloatArray
    deviations: FloatArray

    @property
    def known(self) -> bool:
        """Whether it is known how far to trust the topics."""
        return not np.isnan(self.likeness).any()

    @property
    def said(self) -> str:
        """What is to be said of all topics together: why their trust is not known, or nothing."""
        return "" if self.known else _NOT_KNOWN

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which topics are clear: every run finds half of what sets them apart from all words, likeness² ≥ 1/2.

        None is, if that is not known.
        """
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

    Returns
    -------
    TopicTrust
        With a likeness of NaN if no pairs were released that could show how many topics there are.
    """
    k = found.evidence.shares.size
    if found.pairs is None and k > 1:
        return TopicTrust(np.full(k, np.nan), found.deviations)
    drawn_from = with_further_topics(found.law, found.pairs, rng)
    again = _Again(found.law.topics, drawn_from, plan, n_units, unit_noise)
    likenesses, distances, n_shown = again.runs(rng)
    moved = np.mean(distances**2, axis=0)
    # The deviations say which words are surer than others, given the topics of each step. That these are noisy too
    # makes all of them larger: how much is seen from the topics that were found again.
    said = np.maximum(np.sum(found.deviations**2, axis=1), np.finfo(float).tiny)
    factors = np.sqrt(np.maximum(moved / said, 1.0))
    # Noise has its part in what sets a topic apart. A topic whose part is all of it is near to the frequencies of all
    # words, and what comes out again of that is chance.
    apart = np.sum((found.law.topics - found.frequencies) ** 2, axis=1)
    signal = np.sqrt(np.clip(1 - said / np.maximum(apart, np.finfo(float).tiny), 0.0, 1.0))
    cosines = np.minimum(likenesses.min(axis=0), signal)
    if found.pairs is not None and found.pairs.n_clear() <= 1 < min(n_shown):
        # Documents of these topics would show in pairs of words that there are topics, and the real ones do not.
        cosines = np.minimum(cosines, 0.0)
    return TopicTrust(cosines, found.deviations * factors[:, None])


def expected_likeness(
    law: TopicLaw, plan: ReleasePlan, *, n_units: int, unit_noise: float, rng: np.random.Generator
) -> FloatArray:
    """Return how much would be found of each topic in documents of a law: the lowest cosine of some runs."""
    lowest: FloatArray = _Again(law.topics, law, plan, n_units, unit_noise).runs(rng)[0].min(axis=0)
    return lowest


@dataclass(frozen=True, eq=False)
class _Again:
    """Private runs on documents that are drawn from a law: of the topics that are looked for, or of further ones."""

    topics: FloatArray
    law: TopicLaw
    plan: ReleasePlan
    n_units: int
    unit_noise: float

    def runs(self, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, list[int]]:
        """Return the cosines and the distances of the topics and what each run finds of them, both runs x k.

        And how many directions of pairs of words stand clear of noise in each; 0 if no pairs are released.
        """
        frequencies = self.law.alpha / self.law.alpha.sum() @ self.law.topics
        cosines, distances, n_shown = [], [], []
        for _ in range(_N_AGAIN):
            run = self._run(rng)
            found = run.evidence.topics
            all_cosines = _cosines(self.topics, found, frequencies)
            places = linear_sum_assignment(-all_cosines)
            cosines.append(np.clip(all_cosines[places], -1.0, 1.0))
            distances.append(np.linalg.norm(found[places[1]] - self.topics, axis=1))
            n_shown.append(0 if run.pairs is None else run.pairs.n_clear())
        return np.array(cosines), np.array(distances), n_shown

    def _run(self, rng: np.random.Generator) -> FoundPrivately:
        law, k = self.law, self.topics.shape[0]
        n_drawn = min(self.n_units, max(1, round(_SIMULATED_WORDS / law.mean_length)))
        held = BoundedCounts(simulate(law, n_drawn, rng).counts())
        # Both signal and noise shrink in proportion. That fewer documents are drawn makes topics less like each other.
        answers = SimulatedAnswers(held, self.unit_noise * n_drawn / self.n_units, rng)
        concentration = float(law.alpha.sum())
        return find_private_topics(answers, self.plan, k, concentration=concentration, rng=rng)


def likeness(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
    """Return the cosine of each true topic with its match, both after subtracting the frequencies of all words."""
    cosines = _cosines(truth, found, frequencies)
    return np.clip(cosines[linear_sum_assignment(-cosines)], -1.0, 1.0)


def _cosines(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
    return _apart(truth, frequencies) @ _apart(found, frequencies).T


def _apart(topics: FloatArray, frequencies: FloatArray) -> FloatArray:
    rest = topics - frequencies
    norms = np.linalg.norm(rest, axis=1, keepdims=True)
    apart: FloatArray = np.divide(rest, norms, out=np.zeros_like(rest), where=norms > 1e-12)
    return apart
