"""The releases of a private model, their shares of the budget, and how far its topics can be trusted.

The plan of the releases needs public numbers only.

**Trust.** The private run is repeated on simulated documents, under other noise. The estimated topics are taken as the
truth, with further topics if the released pairs of words show more (`add_further_topics`). The real number of documents
(or fewer, with less noise in proportion) is drawn from them, and the whole private run is repeated on these several
times, with fresh noise. A topic that is recovered would have been found; one that is not may be noise. The part of a
topic that is signal is also bounded by the known variance of the noise. No real document is used.

The released pairs of words show how many topics there are. In the later batches of a stream none are released. With
public documents, what they say would be recovered from simulated ones whether it is right or not, and trust would be
too high. In both cases it is therefore reported as unknown.

`plan_topics` repeats the run in the same way before any document is touched, on simulated text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray
from odeco.models.engine.private import PrivatePlan, Releaser, Simulated, SimulatedSums, plan_fit
from odeco.models.lda.deconvolve import GenerativeModel, simulate
from odeco.models.lda.pairs import add_further_topics
from odeco.models.lda.params import CLEAR, TopicTrust
from odeco.models.lda.private_estimate import PrivateEstimate, estimate_private_topics
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.holders.protocol import NeighbourRelation
from odeco.privacy.ledger_file import Guarantee

#: Share of μ² of the histogram of lengths.
_LENGTHS = 0.01

#: Each with little signal, and with much: the share of the frequencies of words if topics are started; what pairs get
#: of all that lengths and words leave; and the power of its frequency that the feature of a word is multiplied with
#: (below zero, rare words count more).
_STARTED_WORDS, _PAIRS, _POWER = (0.3, 0.08), (0.1 / 0.69, 0.15 / 0.91), (0.25, -0.25)

#: Of how many words pairs are released, at some strengths of the signal: the noise in their eigenvalues grows as the
#: root of that.
_PAIR_WORDS = {4.0: 100.0, 8.0: 300.0, 24.0: 300.0, 72.0: 600.0}

#: The share of the frequencies of words at some strengths of the signal, with logarithmic steps in between. Topics that
#: nobody could find must not make the frequencies worse, which are all that is left then.
_WORDS = {1.5: 0.97, 4.0: 0.6, 9.0: 0.45, 18.0: 0.08}

#: What topics keep of their difference from the frequencies of all words, at some strengths of the signal.
_KEPT = {9.0: 0.75, 18.0: 1.0}

#: Variance of the shares of a word among the topics around the centres of their prior (`expected_centres`), with little
#: signal and with much; logarithms are interpolated.
_SPREAD = (0.05, 0.005)

#: Between these, signal goes from little to much: what `signal_of` returns, divided by the root of the number of words
#: times topics.
_LITTLE, _MUCH = 4.0, 8.0

#: Pairs of at least this many words are released for each topic.
_PAIR_WORDS_OF_TOPIC = 5

#: The parts of the rest for the steps, from some strengths of the signal on: the last ones have better topics. More
#: steps start from better topics each, and all of them count (`deconvolve`), but little signal is soon divided too far.
_STEPS: dict[float, tuple[int, ...]] = {0.0: (1, 2), 8.0: (1, 1, 1, 2), 18.0: (1, 1, 1, 2, 2)}


@dataclass(frozen=True)
class ReleasePlan:
    """Shares of μ² of the releases, and the number of frequent words whose pairs are released.

    Attributes
    ----------
    lengths, words, pairs : float
        Shares of the histogram of lengths, of the frequencies of words, and of the pairs; that of pairs is 0 if
        starting topics are known.
    steps : tuple of float
        Share of each step.
    n_pair_words : int
        Number of words whose pairs are released.
    power : float
        The feature of a word is multiplied by its frequency to this power.
    kept : float
        What topics keep of their difference from the frequencies of all words: the less signal, the less of it is more
        than noise.
    spread : float
        Variance of the shares of a word among the topics around the centres of their prior.
    """

    lengths: float
    words: float
    pairs: float
    steps: tuple[float, ...]
    n_pair_words: int
    power: float
    kept: float
    spread: float


def signal_of(n_units: float, mu: float, neighbour_relation: NeighbourRelation) -> float:
    """Return the number of units, divided by the noise of a release that has the whole budget."""
    return n_units * mu / (math.sqrt(2) if neighbour_relation == "replace" else 1.0)


def plan_releases(n_words: int, n_components: int, signal: float, *, started: bool = False) -> ReleasePlan:
    """Plan the releases of a model from public numbers.

    Parameters
    ----------
    n_words, n_components : int
        Number of words and topics.
    signal : float
        As `signal_of` returns it.
    started : bool
        Whether starting topics are known without these documents: then no pairs are released.

    Notes
    -----
    The shares of word frequencies and what topics keep were chosen on documents that are part of no reported figure,
    2,331 of Debian and 432 of newsgroups at strengths from 1 to 9. With little signal, most of the budget goes to the
    frequencies, so that topics are hardly worse than frequencies alone, whatever the noise. The other rules were
    checked on such documents too: `python benchmarks/topic_choices.py private` changes one rule at a time.

    The number of steps, that of words whose pairs are released with much signal, and the spread around centres were
    chosen on newsgroups and the Associated Press, at strengths from 1.7 to 75. Four or five steps instead of two lower
    the perplexity by 0.4 to 1.7 % at eight strengths from 9.7 on, and change it by less than its spread below; pairs of
    600 words instead of 300 lower it by 0.8 % at 75, and not at 25.
    """
    strength = signal / math.sqrt(n_words * n_components)
    much = min(1.0, max(0.0, math.log(strength / _LITTLE) / math.log(_MUCH / _LITTLE)))
    started_words, pairs, power = (little + much * (most - little) for little, most in (_STARTED_WORDS, _PAIRS, _POWER))
    words, kept, pair_words = (
        float(np.interp(math.log(strength), np.log(list(knots)), list(knots.values())))
        for knots in (_WORDS, _KEPT, _PAIR_WORDS)
    )
    steps = _STEPS[max(least for least in _STEPS if least <= strength)]
    if started:  # what is known from elsewhere is more than noise, however little signal there is
        words, kept, steps = started_words, 1.0, _STEPS[0.0]
    pairs = 0.0 if started or n_components == 1 else pairs * (1 - _LENGTHS - words)
    rest = 1 - _LENGTHS - words - pairs
    return ReleasePlan(
        lengths=_LENGTHS,
        words=words,
        pairs=pairs,
        steps=tuple(rest * part / sum(steps) for part in steps),
        n_pair_words=min(n_words, max(round(pair_words), _PAIR_WORDS_OF_TOPIC * n_components)),
        power=power,
        kept=kept,
        spread=_SPREAD[0] ** (1 - much) * _SPREAD[1] ** much,
    )


#: The run is repeated this many times. If the truth is like one more run, it is below the lowest of these in one case
#: of five.
_N_AGAIN = 4


#: The number of words of simulated documents for each.
_SIMULATED_WORDS = 200_000


def measure_trust(
    found: PrivateEstimate,
    plan: ReleasePlan,
    guarantee: Guarantee,
    n_units: int,
    neighbour_relation: NeighbourRelation,
    rng: np.random.Generator,
) -> TopicTrust:
    """Find the topics again in documents that are drawn from them.

    Parameters
    ----------
    found : PrivateEstimate
        The topics.
    plan : ReleasePlan
        How they were found.
    guarantee : Guarantee
        The budget that they were found with.
    n_units : int
        Number of documents, or of users; public.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorLDA`.
    rng : Generator
        Draws documents and noise.

    Returns
    -------
    TopicTrust
        With a similarity of NaN if no pairs were released that could show how many topics there are, and with public
        documents.
    """
    k = found.evidence.shares.size
    if k > 1 and (found.pairs is None or found.evidence.public is not None):
        return TopicTrust(np.full(k, np.nan), found.deviations)
    topics, drawn_from = found.generative.topics, add_further_topics(found.generative, found.pairs, rng)
    n_drawn = _n_drawn(n_units, drawn_from)
    budget = Guarantee(guarantee.epsilon, guarantee.delta)  # no ledger is charged
    law: Any = {"record": "document", "neighbour_relation": neighbour_relation, "rng": rng}
    runs = (
        _find_again(topics, drawn_from, plan, n_drawn, SimulatedSums(budget, n_units, n_drawn, **law), rng)
        for _ in range(_N_AGAIN)
    )
    similarities, distances = map(np.array, zip(*runs, strict=True))
    moved = np.mean(distances**2, axis=0)
    # The deviations say which words are surer than others, given the topics of each step. That these are noisy too
    # makes all of them larger: how much is seen from the topics that were found again.
    stated = np.maximum(np.sum(found.deviations**2, axis=1), np.finfo(float).tiny)
    factors = np.sqrt(np.maximum(moved / stated, 1.0))
    # Noise has its part in what sets a topic apart. A topic whose part is all of it is near to the frequencies of all
    # words, and what comes out again of that is chance.
    apart = np.sum((topics - found.frequencies) ** 2, axis=1)
    signal = np.sqrt(np.clip(1 - stated / np.maximum(apart, np.finfo(float).tiny), 0.0, 1.0))
    cosines = np.minimum(similarities.min(axis=0), signal)
    if found.pairs is not None and found.pairs.n_clear() <= 1:
        # Pairs of words do not show that there are topics. What steps make of noise comes out again all the same: a
        # topic that was found is a sharp one, and sharp topics are found again.
        cosines = np.minimum(cosines, 0.0)
    return TopicTrust(cosines, found.deviations * factors[:, None])


def _n_drawn(n_units: int, generative: GenerativeModel) -> int:
    """Return the number of documents to simulate.

    With fewer documents, signal and noise shrink in proportion. Their sampling errors are larger, so runs agree less.
    """
    return min(n_units, max(1, round(_SIMULATED_WORDS / generative.mean_length)))


def _find_again(
    topics: FloatArray,
    generative: GenerativeModel,
    plan: ReleasePlan,
    n_drawn: int,
    releaser: Releaser,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Make a private run on documents drawn from a generative model, which has the given topics or others too.

    Returns the cosine and the distance of each topic and what the run finds of it.
    """
    held, concentration = BoundedCounts(simulate(generative, n_drawn, rng).counts()), float(generative.alpha.sum())
    run = estimate_private_topics(held, releaser, plan, len(topics), concentration=concentration, rng=rng)
    cosines = _cosines(topics, run.evidence.topics, generative.alpha / generative.alpha.sum() @ generative.topics)
    places = linear_sum_assignment(-cosines)
    distances = np.linalg.norm(run.evidence.topics[places[1]] - topics, axis=1)
    return np.clip(cosines[places], -1.0, 1.0), distances


def similarity(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
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


#: Words of usual text: the w-th most frequent has a frequency of about 1/(w + 2.7) (Zipf and Mandelbrot).
_OFFSET = 2.7


#: In a topic a word is this many times as frequent as elsewhere or as rare, in the middle: e to a normal variable.
_CONTRAST = 1.5


def plan_topics(
    n_components: int,
    *,
    n_units: int,
    n_words: int,
    epsilon: float,
    delta: float,
    document_length: int = 50,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Return what a private model would release, and how many topics it would find in simulated documents.

    Parameters
    ----------
    n_components : int
        Number of topics.
    n_units, n_words : int
        Number of documents (or users), and of words in the vocabulary.
    epsilon, delta : float
        The guarantee.
    document_length : int
        Number of words of a document, about.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorLDA`.
    seed : int
        Of the simulated text.

    Notes
    -----
    The text is simulated: frequencies of words as 1/(rank + 2.7), topics that multiply them by e^(1.5 z) with z normal,
    and documents with few topics each (α₀ = 1). Topics of real text may be harder to find, or easier. The agreement of
    a topic is the cosine of what would be found with the truth, without the frequencies of all words: the lowest of
    eight runs, each with topics of its own.

    Examples
    --------
    >>> from odeco.models import plan_topics
    >>> plan = plan_topics(3, n_units=5_000, n_words=200, epsilon=1.0, delta=1e-8)
    >>> 0 <= plan.n_expected <= 3, round(sum(release.share for release in plan.releases), 6)
    (True, 1.0)
    """
    k = check_count("n_components", n_components)
    n_units, n_words = check_count("n_units", n_units), check_count("n_words", n_words, 2)
    document_length = check_count("document_length", document_length, 2)
    guarantee = Guarantee(epsilon, delta)
    plan = plan_releases(n_words, k, signal_of(n_units, guarantee.mu, neighbour_relation))
    lengths, chances = np.array([document_length]), np.ones(1)
    n_drawn = min(n_units, max(1, round(_SIMULATED_WORDS / document_length)))

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        topics = np.exp(_CONTRAST * rng.standard_normal((k, n_words))) / (np.arange(n_words) + _OFFSET)
        topics /= topics.sum(axis=1, keepdims=True)
        generative = GenerativeModel(topics, np.full(k, 1 / k), lengths, chances)
        return _find_again(topics, generative, plan, n_drawn, simulated(rng)[0], rng)[0]

    return plan_fit(
        program,
        guarantee,
        n_units,
        n_drawn,
        unit="unit",
        neighbour_relation=neighbour_relation,
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=CLEAR,
        records=f"units of {document_length:,} words, each adds an array of norm 1 to every release",
        verdict=f"of {k} topics in simulated text of this kind {{number}} would be clear (mean cosine {{mean:.2f}})",
    )
