"""The fit to all documents: spectral topics, for which k and the concentration α₀ are selected, and
Gibbs sweeps.

**The concentration** is selected by document completion. The moments of pairs do not depend on α₀,
and on real text the triples say little about it. Topics are therefore computed for several α₀, and
half of the words of a document predict its other half with each. Candidates that predict as well as
the best, to within a standard error or one 400th of the perplexity, stay in the choice. Of these,
the one whose components leave least of the third moment unexplained is taken, because the true α₀
leaves nothing.

Where documents mix all topics, predictions hardly depend on α₀: all candidates have the same first
and second moments. The small differences that remain come from errors of the topics, and favour a
low α₀, whose topics are blurred. The standard error of a difference between nearly equal
predictions is smaller still, so differences that no reader of topics would notice must not decide.
On real text, where no α₀ explains the third moment and the largest leaves least of it, the
differences are larger than that.

**The number of topics** is selected in two stages. Directions of word pairs that stand clear of
noise bound it; on a small corpus that bound is the answer. On a large corpus of real text hardly
any direction is noise. The documents are therefore divided into halves in three ways, and topics
are estimated from each half for several numbers k. A topic is *replicated* if the other half has
one with (Σᵥ √(pᵥ qᵥ))² > 1/2: the angle between √p and √q is below 45 degrees. With growing k the
number of replicated topics rises to a level R and stays near it. Twice R topics are taken: of still
more, fewer than half can be replicated. The level is far more stable than the k at which half of
the topics are replicated, where the share that is replicated falls slowly and fluctuates.

**Seed words** are topics that a user asks for by some of their words, as a prior of the Gibbs
sweeps. A topic's words have a Dirichlet prior with η for every word. In the topic that a seed word
is of, the prior count of this word is larger by a quarter of the number of times that it occurs in
the documents, and the sweeps start with its words there (Jagarlamudi, Daumé and Udupa 2012 mix seed
topics with others for the same purpose). So a seed word mostly goes to its topic, and takes along
the words around it, but documents in which it means something else can still put it elsewhere. The
prior steers the sweeps only: the topics that are returned are those of the words of the documents.
Prior counts as large as the words' own would move topics away from planted ones by two to four
times their error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize_scalar

from odeco._util.types import FloatArray, IndexArray
from odeco.errors import VocabularyError
from odeco.models.lda.corpus import Corpus
from odeco.models.lda.inference import clearly_better, completion_scores
from odeco.models.lda.moments import WordSums
from odeco.models.lda.params import (
    MAX_AUTO,
    Callback,
    LdaSettings,
    TopicDiagnostics,
    TopicParams,
    diagnose,
)
from odeco.models.lda.spectral import (
    ReducedMoments,
    SpectralTopics,
    misfit,
    misfit_for,
    reduce_moments,
    sum_moments,
    topics_for,
)


def fit_topics(
    corpus: Corpus,
    settings: LdaSettings,
    *,
    seed: int,
    callback: Callback,
    seeds: SeedWords | None = None,
) -> TopicParams:
    """Fit topics to all documents, those of seed words first, then the largest; `callback` receives
    every stage.
    """
    scores = None
    parts = sum_moments(corpus, settings, seed=seed, callback=callback)
    sums = reduce(add, parts)
    if isinstance(settings.n_components, str):
        callback("number of topics", 0, 1)
        k = min(reduce_moments(sums, "clear").directions.shape[1], MAX_AUTO)
        k, scores = select_n_topics(parts, k, concentration=settings.concentration, seed=seed)
        settings = replace(settings, n_components=k if seeds is None else max(k, len(seeds.labels)))
    del parts  # they may be large
    sums.drop_basis()
    found = fit_spectral(sums, corpus, settings, seed=seed)
    if scores is not None:
        found = replace(found, diagnostics=replace(found.diagnostics, selection_scores=scores))
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, callback, seeds) if settings.max_iter else None
    if fitted is None:
        n_tokens = float(corpus.counted.totals.sum())
        prior = settings.topic_word_prior
        fitted = TopicParams.from_shares(
            found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics
        )
    return fitted.largest_first(
        () if seeds is None else seeds.assign(found.topics.topic_word, found.topics.alpha)
    )


def _refined(
    corpus: Corpus,
    found: SpectralFit,
    settings: LdaSettings,
    seed: int,
    callback: Callback,
    seeds: SeedWords | None,
) -> TopicParams | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of
    documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps
    move slowly. Topics of seed words are returned in any case.
    """
    callback("sweeps", 0, settings.max_iter)
    spectral = found.topics
    totals = corpus.counted.totals
    start = spectral.topic_word
    further = dict[str, Any]()
    if seeds is not None:
        start, further["prior"] = seeds.begin(spectral.topic_word, spectral.alpha, totals)
    refined = corpus.refine(
        start,
        n_sweeps=settings.max_iter,
        seed=seed,
        eta=settings.topic_word_prior,
        callback=lambda sweep: callback("sweeps", sweep, settings.max_iter),
        **further,
    )
    fitted = TopicParams.from_counts(
        refined.topic_counts, refined.alpha, refined.eta, found.diagnostics
    )
    if seeds is not None:
        return fitted
    halves = corpus.completion_halves(seed)
    frequencies = totals / totals.sum()
    before, after = (
        completion_scores(halves, each.topic_word, each.alpha, frequencies)
        for each in (spectral, fitted)
    )
    return fitted if clearly_better(after, before) else None


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
    sums: WordSums,
    corpus: Corpus,
    settings: LdaSettings,
    *,
    seed: int,
    before: FloatArray | None = None,
) -> SpectralFit:
    """Estimate topics from sums over documents, with the concentration of the settings or a
    selected one.

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
        Coordinates of earlier topics in the basis of the sums. The topics are put in the order of
        those.
    """
    reduced = reduce_moments(sums, int(settings.n_components))
    earlier = None if before is None else reduced.directions.T @ before
    concentration = settings.concentration
    near = None
    if concentration is None:
        concentration, near = _choose_concentration(reduced, sums, corpus, seed=seed)
    topics = topics_for(concentration, reduced, sums, seed=seed, near=near, before=earlier)
    diagnostics = diagnose(reduced, topics, sums)
    return SpectralFit(topics, diagnostics, concentration, reduced.directions @ topics.coordinates)


#: The candidates for α₀ are about a factor of two apart.
CONCENTRATIONS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)

#: Candidates are compared in at most this many directions of word pairs: a trial takes time in
#: proportion to k⁴.
_MAX_DIRECTIONS = 64

#: The candidate with this index is tried first.
_START = 4

#: The search stops in a direction after a candidate that is this many standard errors worse than
#: the best.
_HOPELESS = 4.0

#: Predictions are as good if a word loses less than this of its log-likelihood: one 400th of the
#: perplexity.
_UNNOTICED = 2.5e-3

#: Between the neighbours of the selected candidate, the α₀ that leaves least of the third moment is
#: tried as well, to within this part of it.
_TOLERANCE = 0.05


@dataclass(frozen=True, eq=False)
class _Trial:
    """A candidate: a score for each document, the part left unexplained, and the coordinates of the
    topics.
    """

    scores: FloatArray
    misfit: float
    coordinates: FloatArray


def _choose_concentration(
    reduced: ReducedMoments, sums: WordSums, corpus: Corpus, *, seed: int
) -> tuple[float, FloatArray | None]:
    """Return the best of `CONCENTRATIONS`, or a value near it, and the coordinates of its topics as
    a start.

    Of more than `_MAX_DIRECTIONS` directions only the first are used, and there is no start for all
    topics.
    """
    halves = corpus.completion_halves(seed)
    frequencies = sums.first_moment()
    n_directions = reduced.directions.shape[1]
    reduced = reduced.leading(_MAX_DIRECTIONS)
    trials: dict[float, _Trial] = {}

    def attempt(candidate: float, near: FloatArray | None) -> _Trial:
        topics = topics_for(candidate, reduced, sums, seed=seed, near=near)
        scores = completion_scores(halves, topics.topic_word, topics.alpha, frequencies)
        left = misfit(
            candidate, reduced, topics.coordinates, topics.weights[: topics.coordinates.shape[1]]
        )
        trials[candidate] = _Trial(scores, left, topics.coordinates)
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
    return chosen, trials[chosen].coordinates if n_directions <= _MAX_DIRECTIONS else None


def _between(chosen: float, reduced: ReducedMoments, near: FloatArray, seed: int) -> float:
    """Return the α₀ within a factor of two that leaves least of the third moment unexplained."""
    found = minimize_scalar(
        lambda place: misfit_for(math.exp(place), reduced, seed=seed, near=near),
        bounds=(math.log(chosen / 2), math.log(2 * chosen)),
        method="bounded",
        options={"xatol": _TOLERANCE},
    )
    return math.exp(found.x)


def _chosen(trials: dict[float, _Trial]) -> float:
    """Return the candidate that leaves least of the third moment, of those that predict as well as
    the best.
    """
    as_good = [candidate for candidate, trial in trials.items() if not _worse(trial, trials, 1)]
    return min(as_good, key=lambda candidate: trials[candidate].misfit)


def _worse(trial: _Trial, trials: dict[float, _Trial], n_errors: float) -> bool:
    """Return whether a candidate predicts worse than the best: noticeably, and by `n_errors`
    standard errors.
    """
    best = max(trials.values(), key=lambda each: float(each.scores.sum()))
    gaps = best.scores - trial.scores
    noticed = float(gaps.mean()) > _UNNOTICED
    return noticed and float(gaps.sum()) > n_errors * float(gaps.std()) * math.sqrt(gaps.size)


#: If not all clear directions make topics that are replicated, these numbers of topics are tried,
#: √2 apart.
TOPIC_NUMBERS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91)

#: The concentration α₀ that topics are compared with, where none is given. Which are replicated
#: hardly depends on it.
_CONCENTRATION = 1.0

#: Two topics are the same if the square of their affinity is above this.
_SAME = 0.5


def select_n_topics(
    parts: list[WordSums], most: int, *, concentration: float | None, seed: int
) -> tuple[int, IndexArray]:
    """Select the number of topics.

    Parameters
    ----------
    parts : four WordSums
        The moments of parts of the documents, in one basis.
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
        The numbers that were tried, and for each the number of topics that the other half of the
        documents replicated, the mean over three ways to make halves of the parts, rounded.
    """
    tried: dict[int, float] = {}
    alpha = _CONCENTRATION if concentration is None else concentration

    def attempt(numbers: list[int]) -> None:
        counts = np.zeros(len(numbers))
        for pairing in range(1, len(parts)):
            halves = (
                parts[0] + parts[pairing],
                reduce(add, (*parts[1:pairing], *parts[pairing + 1 :])),
            )
            if any(half.n_usable == 0 for half in halves):
                return
            counts += [_n_replicated(halves, k, alpha, seed) for k in numbers]
        tried.update(zip(numbers, counts / (len(parts) - 1), strict=True))

    attempt([most])
    if tried and 2 * tried[most] < most:
        attempt([k for k in TOPIC_NUMBERS if k < most])
    selected = min(most, max(1, round(2 * max(tried.values(), default=most))))
    if tried and selected not in tried:
        attempt([selected])
    scores = [(k, round(again)) for k, again in sorted(tried.items())]
    return selected, np.array(scores, dtype=np.int64).reshape(-1, 2)


def _n_replicated(
    halves: tuple[WordSums, WordSums], k: int, concentration: float, seed: int
) -> int:
    one, other = (
        _root_topics(half, k, concentration, seed + place) for place, half in enumerate(halves)
    )
    affinities = one @ other.T
    matched = affinities[linear_sum_assignment(-affinities)]
    return int(np.sum(matched**2 > _SAME))


def _root_topics(half: WordSums, k: int, concentration: float, seed: int) -> FloatArray:
    """Return the square roots of the topics of one half, one per row; only of those that its
    moments hold.
    """
    topics = topics_for(concentration, reduce_moments(half, k), half, seed=seed)
    roots: FloatArray = np.sqrt(topics.topic_word[np.isfinite(topics.weights)])
    return roots


#: In its topic a seed word has this share of its uses as prior counts.
_PRIOR_SHARE = 0.25

#: A seeded topic starts from its seed words with this weight, and from a spectral topic for the
#: rest.
_SEED_SHARE = 0.5


def check_seed_words(name: str, value: Any) -> dict[str, tuple[str, ...]]:
    """Return seed words by label; a list of topics is labelled by their first words."""
    if isinstance(value, Mapping):
        topics = value
    else:
        topics = dict(enumerate(value)) if isinstance(value, Sequence) else {}
    good = not isinstance(value, str) and all(
        isinstance(words, Sequence)
        and not isinstance(words, str)
        and words
        and all(isinstance(w, str) for w in words)
        for words in topics.values()
    )
    if not good or not topics:
        raise ValueError(
            f"`{name}` must have a list of words for each of some topics, such as {{'sport': "
            f"['ball', 'team']}}. Got {value!r}."
        )
    listed = [word for words in topics.values() for word in words]
    twice = next((word for word in listed if listed.count(word) > 1), None)
    if twice is not None:
        raise ValueError(
            f"`{name}` must have each word once. Got {twice!r} more often. Leave it in one topic."
        )
    labels = [str(label) if isinstance(value, Mapping) else topics[label][0] for label in topics]
    return {label: tuple(words) for label, words in zip(labels, topics.values(), strict=True)}


@dataclass(frozen=True, eq=False)
class SeedWords:
    """Seed words as columns of the counts.

    Attributes
    ----------
    labels : list of str
        The names of the topics.
    places : list of arrays
        For each of them the columns of its words.
    """

    labels: list[str]
    places: list[IndexArray]

    @classmethod
    def of(cls, topics: dict[str, tuple[str, ...]], words: NDArray[np.str_] | None) -> SeedWords:
        """Find seed words among the words of the columns."""
        if words is None:
            raise VocabularyError(
                "`seed_words` must be found among the words of the columns. Got counts without "
                "words. Pass `words` to fit, or call fit_text."
            )
        columns = {word: place for place, word in enumerate(words.tolist())}
        missing = [word for listed in topics.values() for word in listed if word not in columns]
        if missing:
            raise VocabularyError(
                "Every seed word must be in the vocabulary. Got "
                f"{', '.join(map(repr, missing[:5]))}{' and others' if len(missing) > 5 else ''}, "
                "which is not: it may be misspelt, rare, or a stop word. Leave it out, or loosen "
                "the pruning of the vocabulary."
            )
        places = [
            np.array([columns[word] for word in listed], dtype=np.int64)
            for listed in topics.values()
        ]
        return cls(list(topics), places)

    def assign(self, topic_word: FloatArray, alpha: FloatArray) -> IndexArray:
        """Return the topic of each seed: those to which its words belong most, no topic twice."""
        joint = alpha[:, None] * topic_word
        shares = joint / np.maximum(joint.sum(axis=0), np.finfo(np.float64).tiny)
        score = np.array([shares[:, places].mean(axis=1) for places in self.places])
        return np.asarray(linear_sum_assignment(-score)[1])

    def begin(
        self, topic_word: FloatArray, alpha: FloatArray, totals: IndexArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return topics to start from, and the prior counts, k x V, of all words."""
        start = topic_word.copy()
        prior = np.zeros(topic_word.shape)
        for topic, places in zip(self.assign(topic_word, alpha), self.places, strict=True):
            prior[topic, places] = _PRIOR_SHARE * totals[places]
            start[topic] *= 1 - _SEED_SHARE
            start[topic, places] += (
                _SEED_SHARE * totals[places] / max(float(totals[places].sum()), 1.0)
            )
        return start, prior
