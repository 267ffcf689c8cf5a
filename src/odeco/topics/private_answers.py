"""Who answers the questions of a private model: the documents, with noise that is paid for, or simulated documents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from odeco._types import FloatArray, IndexArray
from odeco.privacy import Releaser
from odeco.topics.bounded_counts import LENGTH_EDGES, BoundedCounts


class Answers(Protocol):
    """Answers with noise; each takes its share of μ², and comes with the standard deviation of its noise."""

    def lengths(self, share: float) -> tuple[FloatArray, float]:
        """Return how many units have documents of so many words."""
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
class ReleasedAnswers:
    """Answers of private documents. Each is a Gaussian mechanism of √share μ, and is charged before it is computed.

    Attributes
    ----------
    held : BoundedCounts
        The documents; no unit adds an array of norm above 1 to any answer.
    releaser : Releaser
        Pays and draws the noise.
    mu : float
        The budget that shares are shares of.
    """

    held: BoundedCounts
    releaser: Releaser
    mu: float

    def lengths(self, share: float) -> tuple[FloatArray, float]:
        """Release how many units have documents of so many words."""
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
        what = f"words dealt to topics by the other words of a document, {n_words} x {k} numbers"
        ask = self.held.responsibilities
        return self._release(what, lambda: ask(topics.T, scales, smoothing), topics.size, share)

    def _release(
        self, what: str, answer: Callable[[], FloatArray], size: int, share: float
    ) -> tuple[FloatArray, float]:
        multiplier = 1 / (self.mu * math.sqrt(share))
        sensitivity = self.held.sensitivity(size)
        return self.releaser.release(what, answer, size=size, sensitivity=sensitivity, noise_multiplier=multiplier)


@dataclass(frozen=True, eq=False)
class SimulatedAnswers:
    """Answers of simulated documents, with noise of the same size: no real document is asked, and nothing is paid.

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
        """Simulate how many units have documents of so many words."""
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
