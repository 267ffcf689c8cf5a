"""The concentration α₀ of the topics of a document is chosen by how well it predicts words.

The moments of pairs alone say nothing about α₀, and on real text the triples say little. So topics are made for several
α₀. Half of the words of a document predict its other half well or less well with each of them. All α₀ stay in the
choice that predict as well as the best: to within a standard error, or to within one 400th of the perplexity. Of
these the one is taken whose components leave least of the third moment unexplained, because the true α₀ leaves nothing.

Where documents mix all topics, predictions hardly depend on α₀: all candidates have the same first and second moments.
The small differences that are left are not about α₀ but about the errors of the topics, and favour a low one, whose
topics are blurred. The standard error of a difference between nearly equal predictions is smaller still. That is why
differences which no reader of topics would notice do not decide. On real text, where no α₀ explains the third moment
and the largest leaves least of it, they are soon noticed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from odeco._util.types import FloatArray
from odeco.models.lda.corpus import Corpus
from odeco.models.lda.diagnostics import TopicDiagnostics, diagnose
from odeco.models.lda.evaluate import completion_scores
from odeco.models.lda.moments import WordSums
from odeco.models.lda.settings import LdaSettings
from odeco.models.lda.spectral import ReducedMoments, SpectralTopics, misfit_at, reduce_moments, topics_at

#: The candidates for α₀ are about a factor of two apart.
CANDIDATES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

#: The candidate with this index is tried first.
_START = 4

#: The search stops in a direction after a candidate that is this many standard errors worse than the best.
_HOPELESS = 4.0

#: Predictions are as good if a word loses less than this of its log-likelihood: one 400th of the perplexity.
_UNNOTICED = 2.5e-3

#: Between the candidates beside the chosen one, that α₀ is tried too which leaves least of the third moment, found in
#: so many steps of golden section: each cuts a factor of four to its power of 0.62, so it is met to within 5 %.
_N_SECTIONS = 8

_GOLDEN = (math.sqrt(5) - 1) / 2


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
    """What one candidate gives: a score for each document, what it leaves unexplained, and the places of the topics."""

    scores: FloatArray
    misfit: float
    coordinates: FloatArray


def _choose_concentration(
    reduced: ReducedMoments, sums: WordSums, corpus: Corpus, *, seed: int, n_jobs: int
) -> tuple[float, FloatArray]:
    """Return the best of `CANDIDATES` or beside it, and the coordinates of its topics, to find them again from."""
    halves = corpus.halves(seed)
    frequencies = sums.first_moment()
    trials: dict[float, _Trial] = {}

    def attempt(candidate: float, near: FloatArray | None) -> _Trial:
        topics = topics_at(candidate, reduced, sums, seed=seed, near=near)
        scores = completion_scores(halves, topics.topic_word, topics.alpha, frequencies, n_jobs=n_jobs)
        trials[candidate] = _Trial(scores, topics.misfit, topics.coordinates)
        return trials[candidate]

    start = attempt(CANDIDATES[_START], None)
    for candidates in (CANDIDATES[_START + 1 :], CANDIDATES[:_START][::-1]):
        near = start.coordinates
        for candidate in candidates:
            trial = attempt(candidate, near)
            near = trial.coordinates
            if _worse(trial, trials, _HOPELESS):
                break
    chosen = _chosen(trials)
    attempt(_between(chosen, reduced, trials[chosen].coordinates, seed), trials[chosen].coordinates)
    chosen = _chosen(trials)
    return chosen, trials[chosen].coordinates


def _between(chosen: float, reduced: ReducedMoments, near: FloatArray, seed: int) -> float:
    """Return the α₀ within a factor of two that leaves least of the third moment unexplained."""

    def misfit(place: float) -> float:
        return misfit_at(math.exp(place), reduced, seed=seed, near=near)

    low, high = math.log(chosen / 2), math.log(2 * chosen)
    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_first, at_second = misfit(first), misfit(second)
    for _ in range(_N_SECTIONS):
        if at_first < at_second:
            high, second, at_second = second, first, at_first
            first = high - _GOLDEN * (high - low)
            at_first = misfit(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + _GOLDEN * (high - low)
            at_second = misfit(second)
    return math.exp((low + high) / 2)


def _chosen(trials: dict[float, _Trial]) -> float:
    """Return the candidate that leaves least of the third moment, of those that predict as well as the best."""
    as_good = [candidate for candidate, trial in trials.items() if not _worse(trial, trials, 1)]
    return min(as_good, key=lambda candidate: trials[candidate].misfit)


def _worse(trial: _Trial, trials: dict[float, _Trial], n_errors: float) -> bool:
    """Return whether a candidate predicts worse than the best: noticeably, and by so many standard errors."""
    best = max(trials.values(), key=lambda each: float(each.scores.sum()))
    gaps = best.scores - trial.scores
    noticed = float(gaps.mean()) > _UNNOTICED
    return noticed and float(gaps.sum()) > n_errors * float(gaps.std()) * math.sqrt(gaps.size)
