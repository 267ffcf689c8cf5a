"""The concentration α₀ of the topics of a document is chosen by how well it predicts words.

The moments of pairs alone say nothing about α₀, and on real text the triples say little. So topics are made for several
α₀. Half of the words of a document predict its other half well or less well with each of them. All α₀ stay in the
choice that predict as well as the best, to within a standard error; of these the one is taken whose components explain
most of the third moment, because with the true α₀ that is all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from odeco._types import FloatArray
from odeco.topics.corpus import Corpus
from odeco.topics.diagnostics import TopicDiagnostics, diagnose
from odeco.topics.evaluate import completion_scores
from odeco.topics.lda_settings import LdaSettings
from odeco.topics.moments import WordSums
from odeco.topics.spectral import ReducedMoments, SpectralTopics, reduce_moments, topics_at

#: The candidates for α₀ are about a factor of two apart.
CANDIDATES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: The candidate with this index is tried first.
_START = 4
#: The search stops in a direction after a candidate that is this many standard errors worse than the best.
_HOPELESS = 4.0


@dataclass(frozen=True, eq=False)
class FoundTopics:
    """Topics that the sums of documents give.

    Attributes
    ----------
    topics : SpectralTopics
        The topics.
    diagnostics : TopicDiagnostics
        How far to trust them.
    concentration : float
        The α₀ that they were found with.
    places : array, m x k
        Their coordinates in the basis of the sums.
    """

    topics: SpectralTopics
    diagnostics: TopicDiagnostics
    concentration: float
    places: FloatArray


def find_topics(
    sums: WordSums, corpus: Corpus, settings: LdaSettings, *, seed: int, places: FloatArray | None = None
) -> FoundTopics:
    """Return the topics that the sums of documents give, for the concentration in the settings or the best one.

    Parameters
    ----------
    sums : WordSums
        The moments of all documents so far.
    corpus : Corpus
        Documents that judge the candidates for the concentration.
    settings : LdaSettings
        The settings of the model.
    seed : int
        Seed of the search.
    places : array, m x k, optional
        Coordinates of earlier topics in the basis of the sums. The topics come in the order of those.
    """
    reduced = reduce_moments(sums, settings.n_components)
    before = None if places is None else reduced.directions.T @ places
    concentration, near = settings.concentration, None
    if concentration is None:
        concentration, near = _choose_concentration(reduced, sums, corpus, seed=seed, n_jobs=settings.n_jobs)
    topics = topics_at(concentration, reduced, sums, seed=seed, near=near, before=before)
    diagnostics = diagnose(reduced, topics, sums.n_documents, sums)
    return FoundTopics(topics, diagnostics, concentration, reduced.directions @ topics.coordinates)


@dataclass(frozen=True, eq=False)
class _Trial:
    """What one candidate gives: a score for each document, the share explained, and the places of the topics."""

    scores: FloatArray
    explained: float
    coordinates: FloatArray


def _choose_concentration(
    reduced: ReducedMoments, sums: WordSums, corpus: Corpus, *, seed: int, n_jobs: int
) -> tuple[float, FloatArray]:
    """Return the best of `CANDIDATES`, and the coordinates of its topics, from which they are found again."""
    halves = corpus.halves(seed)
    frequencies = sums.first_moment()
    trials: dict[int, _Trial] = {}

    def attempt(index: int, near: FloatArray | None) -> _Trial:
        topics = topics_at(CANDIDATES[index], reduced, sums, seed=seed, near=near)
        scores = completion_scores(halves, topics.topic_word, topics.alpha, frequencies, n_jobs=n_jobs)
        return _Trial(scores, topics.explained, topics.coordinates)

    trials[_START] = attempt(_START, None)
    for indices in (range(_START + 1, len(CANDIDATES)), range(_START - 1, -1, -1)):
        near = trials[_START].coordinates
        for index in indices:
            trials[index] = attempt(index, near)
            near = trials[index].coordinates
            best = max(trials.values(), key=lambda trial: float(trial.scores.sum()))
            if _standard_errors_below(trials[index], best) > _HOPELESS:
                break
    as_good = [index for index, trial in trials.items() if _standard_errors_below(trial, best) <= 1]
    chosen = max(as_good, key=lambda index: trials[index].explained)
    return CANDIDATES[chosen], trials[chosen].coordinates


def _standard_errors_below(trial: _Trial, best: _Trial) -> float:
    """Return by how many standard errors of the difference a candidate predicts worse than another."""
    gaps = best.scores - trial.scores
    spread = float(gaps.std()) * math.sqrt(gaps.size)
    return float(gaps.sum()) / spread if spread > 0 else 0.0
