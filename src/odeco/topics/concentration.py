"""Choose the concentration α₀ of the topics of a document by how well it predicts words.

The moments of pairs alone say nothing about α₀, and on real text the triples say little. So topics are made for several
α₀, and those are kept with which half of the words of a document predict its other half as well as with the best, to
within a standard error. Of these the one is taken whose components explain most of the third moment: with the true α₀
that is all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from odeco._types import FloatArray
from odeco.topics.inference import document_topics, log_likelihood
from odeco.topics.spectral import ReducedMoments, topics_at
from odeco.topics.sums import WordSums

#: Candidates, a factor of about two apart,
CANDIDATES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: of which the first to be tried is this one.
_START = 4
#: Candidates further away are not tried after one that is so many standard errors worse than the best.
_HOPELESS = 4.0
#: So many documents judge them, with so many rounds of inference for each.
_MOST_DOCUMENTS, _N_ITERATIONS = 500, 20
#: Words that a topic lacks are given this share of probability, so that none is impossible.
_SMOOTHING = 0.01


@dataclass(frozen=True, eq=False)
class _Trial:
    """What was found with one candidate: the score of each document, share explained, and where topics lie."""

    scores: FloatArray
    explained: float
    coordinates: FloatArray


def choose_concentration(
    reduced: ReducedMoments, sums: WordSums, counts: Any, *, seed: int, n_jobs: int
) -> tuple[float, FloatArray]:
    """Return the best of `CANDIDATES`, and the coordinates of its topics, to be found again from there."""
    known, hidden = _halves(_sample(counts), seed)
    frequencies = sums.first_moment()
    trials: dict[int, _Trial] = {}

    def attempt(index: int, near: FloatArray | None) -> _Trial:
        topics = topics_at(CANDIDATES[index], reduced, sums, seed=seed, near=near)
        scores = _scores(topics.topic_word, topics.alpha, frequencies, known, hidden, n_jobs)
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


def completion_scores(
    topic_word: Any,
    alpha: FloatArray,
    frequencies: FloatArray,
    counts: Any,
    *,
    seed: int,
    n_jobs: int,
    sizes: FloatArray,
) -> FloatArray:
    """Return the mean log-likelihood of half of the words of some documents, proportions inferred from the other half.

    Rows of `topic_word` are divided by `sizes`.
    """
    known, hidden = _halves(_sample(counts), seed)
    return _scores(topic_word, alpha, frequencies, known, hidden, n_jobs, sizes)


def clearly_better(scores: FloatArray, others: FloatArray) -> bool:
    """Return whether documents score better, by more than a standard error of the difference."""
    gaps = scores - others
    return float(gaps.sum()) > float(gaps.std()) * math.sqrt(gaps.size)


def _scores(
    topic_word: Any,
    alpha: FloatArray,
    frequencies: FloatArray,
    known: Any,
    hidden: Any,
    n_jobs: int,
    sizes: FloatArray | None = None,
) -> FloatArray:
    if known.shape[0] == 0:
        return np.zeros(1)
    words = np.union1d(known.indices, hidden.indices)
    mixed = topic_word[:, words].astype(np.float64)
    if sizes is not None:
        mixed /= sizes[:, None]
    mixed *= 1 - _SMOOTHING
    mixed += _SMOOTHING * frequencies[words]
    proportions = document_topics(known[:, words], mixed, alpha, n_iterations=_N_ITERATIONS, n_jobs=n_jobs)
    # A mean over its words: else one very long document would outweigh all others.
    scores: FloatArray = log_likelihood(hidden[:, words], mixed, proportions) / np.asarray(hidden.sum(axis=1))
    return scores


def _sample(counts: Any) -> Any:
    """Return documents of at least two words, spread evenly over those given."""
    usable = np.flatnonzero(np.asarray(counts.sum(axis=1)) >= 2)
    chosen = usable[np.linspace(0, usable.size - 1, min(usable.size, _MOST_DOCUMENTS)).astype(np.int64)]
    return sparse.csr_array(counts[chosen]).astype(np.int64)


def _halves(sample: Any, seed: int) -> tuple[Any, Any]:
    """Return two CSR arrays of counts, the words of documents dealt to one or the other."""
    known = sample.copy()
    known.data = np.random.default_rng(seed).binomial(sample.data, 0.5)
    hidden = sample.copy()
    hidden.data = sample.data - known.data
    for half in (known, hidden):
        half.eliminate_zeros()
    both = np.flatnonzero((np.diff(known.indptr) > 0) & (np.diff(hidden.indptr) > 0))
    return known[both], hidden[both]
