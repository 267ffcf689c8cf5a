"""How many topics there are is judged twice: which directions stand clear of noise, and which topics are found again.

The first says how many topics the pairs of words can support. On a small corpus that is the answer; on a large one of
real text hardly any direction is noise, and there is always room for one more. So the documents are dealt to two
halves, in blocks, and topics are looked for in each, for several numbers k. A topic is *found again* if the other half
has one with which it shares more than half of its square: (Σᵥ √(pᵥ qᵥ))² > 1/2, that is, the angle between √p and √q is
below 45 degrees and they are nearer to each other than to having nothing in common. What the other half of the same
documents does not show is no finding. The largest k is taken for which at least half of the topics are found again:
beyond it a topic is more likely wrong than right.

Topics are learnt from all documents at once: `TensorLDA.fit` without privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.concentration import FoundTopics, find_topics
from odeco.models.lda.corpus import Corpus, CorpusHere
from odeco.models.lda.evaluate import clearly_better, completion_scores
from odeco.models.lda.moments import WordSums
from odeco.models.lda.result import FittedTopics, fitted_by_shares
from odeco.models.lda.settings import MOST_AUTOMATIC, LdaSettings, Tell
from odeco.models.lda.spectral import reduce_moments, sum_halves, sum_moments, topics_at

#: These numbers of topics are tried first, as far as directions stand clear.
CANDIDATES = (1, 2, 3, 5, 10, 20, 40, 80)

#: Larger numbers are not tried if a smaller share than this is found again: there it would have to rise above a half.
_TOO_FEW = 1 / 3

#: Then the numbers between the best and the next are halved, until they differ by less than this share.
_NEAR = 1 / 8

#: The concentration α₀ that topics are compared with, where none is given. Which are found again hardly depends on it.
_CONCENTRATION = 1.0

#: Two topics are the same if the square of their affinity is above this.
_SAME = 0.5


@dataclass(frozen=True, eq=False)
class NumberOfTopics:
    """A number of topics, and what speaks for it.

    Attributes
    ----------
    n_components : int
        The number that was chosen.
    tried : array, c x 2
        Numbers of topics that were tried, and how many of each were found again in the other half of the documents.
    """

    n_components: int
    tried: IndexArray


def choose_number(
    halves: tuple[WordSums, WordSums], most: int, *, concentration: float | None, seed: int
) -> NumberOfTopics:
    """Choose the number of topics, up to a most that noise allows.

    Parameters
    ----------
    halves : two WordSums
        The moments of two halves of the documents, in one basis.
    most : int
        How many directions stand clear of noise in all documents.
    concentration : float or None
        The α₀ to compare topics with.
    seed : int
        Seed of the searches.
    """
    if any(half.n_usable == 0 for half in halves):
        return NumberOfTopics(most, np.zeros((0, 2), dtype=np.int64))
    alpha = _CONCENTRATION if concentration is None else concentration
    tried = {most: _n_found_again(halves, most, alpha, seed)}
    for k in (each for each in CANDIDATES if each < most and 2 * tried[most] < most):
        tried[k] = _n_found_again(halves, k, alpha, seed)
        if tried[k] < _TOO_FEW * k and k > CANDIDATES[3]:  # a few large topics may look different in each half
            break
    while (between := _half_way(tried)) is not None:
        tried[between] = _n_found_again(halves, between, alpha, seed)
    return NumberOfTopics(_largest(tried), np.array(sorted(tried.items()), dtype=np.int64))


def _largest(tried: dict[int, int]) -> int:
    """Return the largest number of topics of which at least half were found again, or 1."""
    return max((k for k, again in tried.items() if 2 * again >= k), default=1)


def _half_way(tried: dict[int, int]) -> int | None:
    """Return a number half-way between the largest that will do and the next that was tried, unless these are near."""
    best = _largest(tried)
    following = min((k for k in tried if k > best), default=best)
    return (best + following) // 2 if following - best > max(1.0, _NEAR * best) else None


def _n_found_again(halves: tuple[WordSums, WordSums], k: int, concentration: float, seed: int) -> int:
    one, other = (_roots(half, k, concentration, seed + place) for place, half in enumerate(halves))
    affinities = one @ other.T
    matched = affinities[linear_sum_assignment(-affinities)]
    return int(np.sum(matched**2 > _SAME))


def _roots(half: WordSums, k: int, concentration: float, seed: int) -> FloatArray:
    """Return the roots of the topics of one half, a row each; only of those that its moments hold."""
    topics = topics_at(concentration, reduce_moments(half, k), half, seed=seed)
    roots: FloatArray = np.sqrt(topics.topic_word[np.isfinite(topics.weights)])
    return roots


def learn_at_once(corpus: Corpus, settings: LdaSettings, *, seed: int, tell: Tell) -> FittedTopics:
    """Learn topics from all documents; `tell` hears of every stage of the work."""
    if settings.n_components == "auto":
        sums, number = _sums_and_number(corpus, settings, seed, tell)
        settings = replace(settings, n_components=number.n_components)
    else:
        (sums, settings), number = sum_moments(corpus, settings, seed=seed, tell=tell), None
    sums.drop_basis()
    found = find_topics(sums, corpus, settings, seed=seed)
    if number is not None:
        found = replace(found, diagnostics=replace(found.diagnostics, tried=number.tried))
    del sums  # they may be large, and the sweeps take memory too
    fitted = _refined(corpus, found, settings, seed, tell) if settings.refine else None
    if fitted is None:
        n_tokens, prior = float(corpus.word_totals().sum()), settings.topic_word_prior
        fitted = fitted_by_shares(found.topics.topic_word, found.topics.alpha, n_tokens, prior, found.diagnostics)
    return fitted


def learn_public(counts: Any, settings: LdaSettings, *, seed: int) -> FloatArray:
    """Return how many words of each kind public documents have in each of their topics, k x V."""
    fitted = learn_at_once(CorpusHere(counts, settings), settings, seed=seed, tell=lambda *_: None)
    if fitted.alpha.size != settings.n_components:
        raise ValueError(
            "Public documents must have as many distinct words, and documents of three words, as there are topics. "
            f"Got n_components={settings.n_components}, and enough for {fitted.alpha.size}. Pass more of them, or none."
        )
    return np.maximum(fitted.topic_word * fitted.totals[:, None] - fitted.eta, 0.0)


def _sums_and_number(corpus: Corpus, settings: LdaSettings, seed: int, tell: Tell) -> tuple[WordSums, NumberOfTopics]:
    """Return the moments of all documents, and the number of topics that their two halves agree on."""
    halves = sum_halves(corpus, settings, seed=seed, tell=tell)
    sums = halves[0] + halves[1]
    tell("number of topics", 0, 1)
    most = min(reduce_moments(sums, "auto").directions.shape[1], MOST_AUTOMATIC)
    return sums, choose_number(halves, most, concentration=settings.concentration, seed=seed)


def _refined(corpus: Corpus, found: FoundTopics, settings: LdaSettings, seed: int, tell: Tell) -> FittedTopics | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    Sweeps do not help where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    tell("sweeps", 0, settings.refine)
    spectral = found.topics
    refined = corpus.refined(
        spectral.topic_word,
        n_sweeps=settings.refine,
        seed=seed,
        eta=settings.topic_word_prior,
        callback=lambda sweep: tell("sweeps", sweep, settings.refine),
    )
    topic_word = refined.topic_word
    totals = corpus.word_totals()
    halves, frequencies = corpus.halves(seed), totals / totals.sum()
    before, after = (
        completion_scores(halves, topics, alpha, frequencies, n_jobs=settings.n_jobs)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    sizes = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * corpus.n_words
    return FittedTopics(topic_word, sizes, refined.alpha, refined.eta, found.diagnostics)
