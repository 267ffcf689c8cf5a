"""The fit to all documents: spectral topics, for which k and the concentration α₀ are selected, and Gibbs sweeps.

**The concentration** is selected by document completion. The moments of pairs do not depend on α₀, and on real text the
triples say little about it. Topics are therefore computed for several α₀, and half of the words of a document predict
its other half with each. Candidates that predict as well as the best, to within a standard error or one 400th of the
perplexity, stay in the choice. Of these, the one whose components leave least of the third moment unexplained is taken,
because the true α₀ leaves nothing.

Where documents mix all topics, predictions hardly depend on α₀: all candidates have the same first and second moments.
The small differences that remain come from errors of the topics, and favour a low α₀, whose topics are blurred. The
standard error of a difference between nearly equal predictions is smaller still, so differences that no reader of
topics would notice must not decide. On real text, where no α₀ explains the third moment and the largest leaves least of
it, the differences are larger than that.

**The number of topics** is selected in two stages. Directions of word pairs that stand clear of noise bound it; on a
small corpus that bound is the answer. On a large corpus of real text hardly any direction is noise. The documents are
therefore divided in blocks into two halves, and topics are estimated from each half for several numbers k. A topic is
*replicated* if the other half has one with (Σᵥ √(pᵥ qᵥ))² > 1/2: the angle between √p and √q is below 45 degrees. The
largest k is taken for which at least half of the topics are replicated: beyond it a topic is more likely wrong than
right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.corpus import Corpus
from odeco.models.lda.inference import clearly_better, completion_scores
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import MAX_AUTO, Callback, LdaSettings, TopicDiagnostics, TopicParams, diagnose
from odeco.models.lda.spectral import (
    ReducedMoments,
    SpectralTopics,
    misfit_for,
    reduce_moments,
    sum_halves,
    sum_moments,
    topics_for,
)


def fit_topics(corpus: Corpus, settings: LdaSettings, *, seed: int, callback: Callback) -> TopicParams:
    """Fit topics to all documents; `callback` receives every stage of the work."""
    scores = None
    if settings.n_components == "auto":
        halves = sum_halves(corpus, settings, seed=seed, callback=callback)
        sums = halves[0] + halves[1]
        callback("number of topics", 0, 1)
        most = min(reduce_moments(sums, "auto").directions.shape[1], MAX_AUTO)
        k, scores = select_n_topics(halves, most, concentration=settings.concentration, seed=seed)
        settings = replace(settings, n_components=k)
        del halves  # they may be large
    else:
        sums = sum_moments(corpus, settings, seed=seed, callback=callback)
    sums.drop_basis()
    found = fit_spectral(sums, corpus, settings, seed=seed)
    if scores is not None:
        found = replace(found, diagnostics=replace(found.diagnostics, selection_scores=scores))
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, callback) if settings.max_iter else None
    if fitted is None:
        n_tokens, prior = float(corpus.word_totals().sum()), settings.topic_word_prior
        fitted = TopicParams.from_shares(
            found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics
        )
    return fitted


def _refined(
    corpus: Corpus, found: SpectralFit, settings: LdaSettings, seed: int, callback: Callback
) -> TopicParams | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    callback("sweeps", 0, settings.max_iter)
    spectral = found.topics
    refined = corpus.refined(
        spectral.topic_word,
        n_sweeps=settings.max_iter,
        seed=seed,
        eta=settings.topic_word_prior,
        callback=lambda sweep: callback("sweeps", sweep, settings.max_iter),
    )
    topic_word = refined.topic_word
    totals = corpus.word_totals()
    halves, frequencies = corpus.completion_halves(seed), totals / totals.sum()
    before, after = (
        completion_scores(halves, topics, alpha, frequencies, n_jobs=settings.n_jobs)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    sizes = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * corpus.n_words
    return TopicParams(topic_word, sizes, refined.alpha, refined.eta, found.diagnostics)


@dataclass(frozen=True, eq=False)
class SpectralFit:
    """Topics estimated from sums over documents.

    Attributes
    ----------
    topics : SpectralTopics
        The topics.
    diagnostics : TopicDiagnostics
        How far to trust them.
    concentration : float
        The α₀ that they were estimated with.
    coordinates : array, m x k
        Their coordinates in the basis of the sums.
    """

    topics: SpectralTopics
    diagnostics: TopicDiagnostics
    concentration: float
    coordinates: FloatArray


def fit_spectral(
    sums: WordSums, corpus: Corpus, settings: LdaSettings, *, seed: int, before: FloatArray | None = None
) -> SpectralFit:
    """Estimate topics from sums over documents, with the concentration of the settings or a selected one.

    Parameters
    ----------
    sums : WordSums
        The moments of all documents so far.
    corpus : Corpus
        Documents on which candidates for the concentration are compared.
    settings : LdaSettings
        The settings of the model.
    seed : int
        Seed of the search.
    before : array, m x k, optional
        Coordinates of earlier topics in the basis of the sums. The topics are put in the order of those.
    """
    reduced = reduce_moments(sums, settings.n_components)
    earlier = None if before is None else reduced.directions.T @ before
    concentration, near = settings.concentration, None
    if concentration is None:
        concentration, near = _choose_concentration(reduced, sums, corpus, seed=seed, n_jobs=settings.n_jobs)
    topics = topics_for(concentration, reduced, sums, seed=seed, near=near, before=earlier)
    diagnostics = diagnose(reduced, topics, sums.n_documents, sums)
    return SpectralFit(topics, diagnostics, concentration, reduced.directions @ topics.coordinates)


#: The candidates for α₀ are about a factor of two apart.
CONCENTRATIONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


#: The candidate with this index is tried first.
_START = 4


#: The search stops in a direction after a candidate that is this many standard errors worse than the best.
_HOPELESS = 4.0


#: Predictions are as good if a word loses less than this of its log-likelihood: one 400th of the perplexity.
_UNNOTICED = 2.5e-3


#: Between the neighbours of the selected candidate, the α₀ that leaves least of the third moment is tried as well.
#: Golden section finds it in this many steps: each raises a factor of four to the power 0.62, so it is met to 5 %.
_N_SECTIONS = 8


_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate: a score for each document, the part left unexplained, and the coordinates of the topics."""

    scores: FloatArray
    misfit: float
    coordinates: FloatArray


def _choose_concentration(
    reduced: ReducedMoments, sums: WordSums, corpus: Corpus, *, seed: int, n_jobs: int
) -> tuple[float, FloatArray]:
    """Return the best of `CONCENTRATIONS`, or a value near it, and the coordinates of its topics as a start."""
    halves = corpus.completion_halves(seed)
    frequencies = sums.first_moment()
    trials: dict[float, _Trial] = {}

    def attempt(candidate: float, near: FloatArray | None) -> _Trial:
        topics = topics_for(candidate, reduced, sums, seed=seed, near=near)
        scores = completion_scores(halves, topics.topic_word, topics.alpha, frequencies, n_jobs=n_jobs)
        trials[candidate] = _Trial(scores, topics.misfit, topics.coordinates)
        return trials[candidate]

    start = attempt(CONCENTRATIONS[_START], None)
    for candidates in (CONCENTRATIONS[_START + 1 :], CONCENTRATIONS[:_START][::-1]):
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
        return misfit_for(math.exp(place), reduced, seed=seed, near=near)

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
    """Return whether a candidate predicts worse than the best: noticeably, and by `n_errors` standard errors."""
    best = max(trials.values(), key=lambda each: float(each.scores.sum()))
    gaps = best.scores - trial.scores
    noticed = float(gaps.mean()) > _UNNOTICED
    return noticed and float(gaps.sum()) > n_errors * float(gaps.std()) * math.sqrt(gaps.size)


#: These numbers of topics are tried first, up to the number of clear directions.
TOPIC_NUMBERS = (1, 2, 3, 5, 10, 20, 40, 80)


#: Larger numbers are not tried if a smaller share than this is replicated: there it would have to rise above a half.
_TOO_FEW = 1 / 3


#: Then the numbers between the best and the next are halved, until they differ by less than this share.
_NEAR = 1 / 8


#: The concentration α₀ that topics are compared with, where none is given. Which are replicated hardly depends on it.
_CONCENTRATION = 1.0


#: Two topics are the same if the square of their affinity is above this.
_SAME = 0.5


def select_n_topics(
    halves: tuple[WordSums, WordSums], most: int, *, concentration: float | None, seed: int
) -> tuple[int, IndexArray]:
    """Select the number of topics.

    Parameters
    ----------
    halves : two WordSums
        The moments of two halves of the documents, in one basis.
    most : int
        The largest number: that of the directions that are clear of noise in all documents.
    concentration : float or None
        The α₀ to compare topics with.
    seed : int
        Seed of the searches.

    Returns
    -------
    n_topics : int
        The number that was selected.
    scores : array, c x 2
        The numbers that were tried, and for each the number of topics that the other half of the documents replicated.
    """
    if any(half.n_usable == 0 for half in halves):
        return most, np.zeros((0, 2), dtype=np.int64)
    alpha = _CONCENTRATION if concentration is None else concentration
    tried = {most: _n_replicated(halves, most, alpha, seed)}
    for k in (each for each in TOPIC_NUMBERS if each < most and 2 * tried[most] < most):
        tried[k] = _n_replicated(halves, k, alpha, seed)
        if tried[k] < _TOO_FEW * k and k > TOPIC_NUMBERS[3]:  # a few large topics may look different in each half
            break
    while (between := _midpoint(tried)) is not None:
        tried[between] = _n_replicated(halves, between, alpha, seed)
    return _largest_replicated(tried), np.array(sorted(tried.items()), dtype=np.int64)


def _largest_replicated(tried: dict[int, int]) -> int:
    """Return the largest number of topics of which at least half were replicated, or 1."""
    return max((k for k, again in tried.items() if 2 * again >= k), default=1)


def _midpoint(tried: dict[int, int]) -> int | None:
    """Return a number half-way between the largest that will do and the next that was tried, unless these are near."""
    best = _largest_replicated(tried)
    following = min((k for k in tried if k > best), default=best)
    return (best + following) // 2 if following - best > max(1.0, _NEAR * best) else None


def _n_replicated(halves: tuple[WordSums, WordSums], k: int, concentration: float, seed: int) -> int:
    one, other = (_root_topics(half, k, concentration, seed + place) for place, half in enumerate(halves))
    affinities = one @ other.T
    matched = affinities[linear_sum_assignment(-affinities)]
    return int(np.sum(matched**2 > _SAME))


def _root_topics(half: WordSums, k: int, concentration: float, seed: int) -> FloatArray:
    """Return the square roots of the topics of one half, one per row; only of those that its moments hold."""
    topics = topics_for(concentration, reduce_moments(half, k), half, seed=seed)
    roots: FloatArray = np.sqrt(topics.topic_word[np.isfinite(topics.weights)])
    return roots
