"""What a private model releases, with which share of the budget, and the two ways to answer its queries.

The plan needs public numbers only. `PrivateReleases` answers from the documents, with noise that is charged to the
ledger; `SimulatedReleases` from simulated documents, with noise of the same size, at no charge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy.holders.documents import LENGTH_EDGES, BoundedCounts
from odeco.privacy.release import Releaser

#: Share of μ² of the histogram of lengths.
_LENGTHS = 0.01

#: Each with little signal, and with much: the share of the frequencies of words, and that of pairs; of how many words
#: pairs are released (the noise in their eigenvalues grows as the root of that); and the power of its frequency that
#: the feature of a word is multiplied with (below zero, rare words count more).
_WORDS, _PAIRS, _PAIR_WORDS, _POWER = (0.3, 0.08), (0.1, 0.15), (100, 300), (0.25, -0.25)

#: Between these, signal goes from little to much: documents, divided by the noise of a release that has the whole
#: budget and by the root of the number of words times topics.
_LITTLE, _MUCH = 4.0, 8.0

#: Pairs of at least this many words are released for each topic.
_PAIR_WORDS_OF_TOPIC = 5

#: Topics start from public documents if these have this many words of each topic, for each unit of signal.
_PUBLIC_WORDS = 20.0

#: The shares of the rest for the steps: the last has better topics.
_STEPS = (1 / 3, 2 / 3)


@dataclass(frozen=True)
class ReleasePlan:
    """Shares of μ² of the releases, and how many of the most frequent words have their pairs released.

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
    """

    lengths: float
    words: float
    pairs: float
    steps: tuple[float, ...]
    n_pair_words: int
    power: float

    @property
    def total(self) -> float:
        """What all releases together take of the budget."""
        return self.lengths + self.words + self.pairs + sum(self.steps)


def public_is_enough(n_public: float, n_words: int, n_components: int, *, n_units: int, unit_noise: float) -> bool:
    """Return whether public documents of `n_public` words start topics better than private pairs would.

    A topic that they have few words of is known less well than one that is read off noisy pairs, if there is much
    signal in these: the more documents, and the less noise, words and topics, the more public words it takes. How many
    was seen on Debian and the Associated Press at ε = 1 to 8, with 1 %, 2 % and 5 % of the documents public: between 10
    and 27 words of each topic for each unit of signal both starts are within a few hundredths of each other.
    """
    return n_public / n_components >= _PUBLIC_WORDS * _strength(n_words, n_components, n_units, unit_noise)


def _strength(n_words: int, n_components: int, n_units: int, unit_noise: float) -> float:
    return n_units / (unit_noise * math.sqrt(n_words * n_components))


def plan_releases(
    n_words: int, n_components: int, *, n_units: int, unit_noise: float, started: bool = False
) -> ReleasePlan:
    """Plan the releases of a model from public numbers.

    Parameters
    ----------
    n_words, n_components, n_units : int
        Number of words, topics, and documents or users.
    unit_noise : float
        Standard deviation of the noise of a release that has the whole budget.
    started : bool
        Whether starting topics are known without these documents: then no pairs are released.

    Notes
    -----
    The rules were checked on documents that no figure is reported of: `python benchmarks/topic_choices.py private`
    changes one of them at a time. On 2,331 documents of Debian none of 16 other ways is better by one in a hundred,
    neither at ε = 1 nor at ε = 4, median of three draws. On 88 of the Associated Press none is at ε = 1; at ε = 4 twice
    the share of word frequencies is, by 1.0 %, with 22 documents to evaluate.
    """
    strength = _strength(n_words, n_components, n_units, unit_noise)
    much = min(1.0, max(0.0, math.log(strength / _LITTLE) / math.log(_MUCH / _LITTLE)))
    words, pairs, pair_words, power = (
        little + much * (most - little) for little, most in (_WORDS, _PAIRS, _PAIR_WORDS, _POWER)
    )
    pairs = 0.0 if started or n_components == 1 else pairs
    rest = 1 - _LENGTHS - words - pairs
    return ReleasePlan(
        lengths=_LENGTHS,
        words=words,
        pairs=pairs,
        steps=tuple(rest * share for share in _STEPS),
        n_pair_words=min(n_words, max(round(pair_words), _PAIR_WORDS_OF_TOPIC * n_components)),
        power=power,
    )


class Releases(Protocol):
    """Releases with noise; each takes its share of μ², and comes with the standard deviation of its noise."""

    def lengths(self, share: float) -> tuple[FloatArray, float]:
        """Return a histogram of the lengths of documents, in units."""
        ...

    def words(self, share: float) -> tuple[FloatArray, float]:
        """Return the sum of the features of each word."""
        ...

    def pairs(self, words: IndexArray, share: float) -> tuple[FloatArray, float]:
        """Return the sums of the products of the features of two of these words."""
        ...

    def step(self, topics: FloatArray, scales: FloatArray, smoothing: float, share: float) -> tuple[FloatArray, float]:
        """Return the sums of the features of each word by topic, V x k; `topics` are k x V."""
        ...


@dataclass(frozen=True, eq=False)
class PrivateReleases:
    """Releases of private documents. Each is a Gaussian mechanism of √share μ, and is charged before it is computed.

    Attributes
    ----------
    held : BoundedCounts
        The documents; no unit adds an array of norm above 1 to any sum.
    releaser : Releaser
        Pays and draws the noise.
    mu : float
        The budget that shares are shares of.
    """

    held: BoundedCounts
    releaser: Releaser
    mu: float

    def lengths(self, share: float) -> tuple[FloatArray, float]:
        """Release a histogram of the lengths of documents, in units."""
        what = f"lengths of documents, {LENGTH_EDGES.size} bins"
        return self._release(what, self.held.lengths, LENGTH_EDGES.size, share)

    def words(self, share: float) -> tuple[FloatArray, float]:
        """Release the sum of the features of each word."""
        return self._release(f"frequencies of {self.held.n_words} words", self.held.words, self.held.n_words, share)

    def pairs(self, words: IndexArray, share: float) -> tuple[FloatArray, float]:
        """Release the sums of the products of the features of two of these words."""
        size = math.comb(words.size, 2)
        what = f"pairs of the {words.size} most frequent words, {size} numbers"
        return self._release(what, lambda: self.held.pairs(words), size, share)

    def step(self, topics: FloatArray, scales: FloatArray, smoothing: float, share: float) -> tuple[FloatArray, float]:
        """Release the sums of the features of each word by topic."""
        k, n_words = topics.shape
        what = f"EM step: words by topic, given the other words of a document, {n_words} x {k} numbers"
        ask = self.held.responsibilities
        return self._release(what, lambda: ask(topics.T, scales, smoothing), topics.size, share)

    def _release(
        self, what: str, answer: Callable[[], FloatArray], size: int, share: float
    ) -> tuple[FloatArray, float]:
        multiplier = 1 / (self.mu * math.sqrt(share))
        sensitivity = self.held.sensitivity(size)
        return self.releaser.release(what, answer, size=size, sensitivity=sensitivity, noise_multiplier=multiplier)


@dataclass(frozen=True, eq=False)
class SimulatedReleases:
    """Releases of simulated documents, with noise of the same size: no real document is used, and nothing is charged.

    Attributes
    ----------
    held : BoundedCounts
        Simulated documents.
    unit_noise : float
        Standard deviation of the noise of a release that has the whole budget.
    rng : Generator
        Draws the noise.
    """

    held: BoundedCounts
    unit_noise: float
    rng: np.random.Generator

    def lengths(self, share: float) -> tuple[FloatArray, float]:
        """Simulate a histogram of the lengths of documents, in units."""
        return self._noisy(self.held.lengths(), share)

    def words(self, share: float) -> tuple[FloatArray, float]:
        """Simulate the sum of the features of each word."""
        return self._noisy(self.held.words(), share)

    def pairs(self, words: IndexArray, share: float) -> tuple[FloatArray, float]:
        """Simulate the sums of the products of the features of two of these words."""
        return self._noisy(self.held.pairs(words), share)

    def step(self, topics: FloatArray, scales: FloatArray, smoothing: float, share: float) -> tuple[FloatArray, float]:
        """Simulate the sums of the features of each word by topic."""
        return self._noisy(self.held.responsibilities(topics.T, scales, smoothing), share)

    def _noisy(self, exact: FloatArray, share: float) -> tuple[FloatArray, float]:
        deviation = self.unit_noise / math.sqrt(share)
        return exact + deviation * self.rng.standard_normal(exact.shape), deviation
