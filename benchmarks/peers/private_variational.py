"""A private variational method from the literature, as a baseline: noise on expected sufficient
statistics.

Park, Foulds, Chaudhuri and Welling, *Variational Bayes in private settings (VIPS)*, 2020,
arXiv:1611.00340. Each round of variational Bayes for latent Dirichlet allocation asks once for the
expected counts of words in topics, with Gaussian noise, and cuts off what is negative. Documents
are cut to at most N words, drawn at random, so one adds at most N to the sum of all counts, hence
an array of norm at most N: that is the paper's sensitivity.

A round takes all documents, or each with the same chance (the paper's batches); then parameters
move a part of the way, (τ + round)^−κ. Rounds of all documents are composed exactly, by the
Gaussian mechanism, rounds of batches by the Rényi divergence of the Gaussian mechanism on a sample
(Mironov, Talwar and Zhang 2019), which is tighter than the paper's. Which of `TRIED` is used for an
ε was chosen on documents of their own (`topic_corpora.read_parts`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, logsumexp

from odeco.privacy import gdp_mu

N_INNER, BLOCK, ETA = 15, 2_000, 0.01
#: Orders of the divergence that composes batches.
ORDERS = np.concatenate([np.arange(2, 65), 2 ** np.arange(7, 11)])


@dataclass(frozen=True)
class VariationalSettings:
    """How many words of a document count, how many rounds there are, and which share of the
    documents one takes.

    `power` and `delay` are κ and τ of the learning rate; with all documents in a round nothing of
    the past is kept.
    """

    most_words: int = 50
    n_rounds: int = 5
    share: float = 1.0
    power: float = 0.5
    delay: float = 1.0

    def __str__(self) -> str:
        taken = (
            "all documents"
            if self.share == 1
            else f"{self.share:.0%} of the documents, κ = {self.power:g}"
        )
        return f"{self.n_rounds} rounds of {taken}, {self.most_words} words of each"

    def noise_multiplier(self, epsilon: float, delta: float) -> float:
        """Return the noise of a round, in sensitivities."""
        if self.share == 1:
            return math.sqrt(self.n_rounds) / gdp_mu(epsilon, delta)
        above = lambda scale: _epsilon_of(scale, self.share, self.n_rounds, delta) - epsilon  # noqa: E731
        return float(brentq(above, 0.3, 1e4, rtol=1e-3)) * 1.001


TRIED = (
    *(VariationalSettings(words, rounds) for words in (10, 25, 50) for rounds in (1, 2, 5, 10)),
    *(
        VariationalSettings(words, rounds, 0.1, power)
        for words in (5, 10, 25, 50)
        for rounds in (10, 40, 160)
        for power in (0.5, 0.9)
    ),
)


#: The best on the choice part of the Debian corpus, by ε.
CHOSEN = {1.0: VariationalSettings(25, 40, 0.1, 0.5), 4.0: VariationalSettings(25, 10)}


def best_settings(epsilon: float) -> VariationalSettings:
    """Return the settings that were chosen for the nearest ε."""
    return CHOSEN[min(CHOSEN, key=lambda known: abs(math.log(known / epsilon)))]


def learn_variationally(
    counts: Any,
    k: int,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    settings: VariationalSettings,
    noise_share: float = 1.0,
) -> tuple[Any, Any]:
    """Return topics and Dirichlet parameters; neighbours empty one document.

    Only with a `noise_share` of 1 this is private: a smaller one makes few documents as noisy as
    many would be.
    """
    rng = np.random.default_rng(seed)
    counts, alpha = _cut(counts, settings.most_words, rng), np.full(k, 1 / k)
    noise = noise_share * settings.most_words * settings.noise_multiplier(epsilon, delta)
    parameters = rng.gamma(100.0, 0.01, (k, counts.shape[1]))
    for number in range(settings.n_rounds):
        table = np.exp(digamma(parameters) - digamma(parameters.sum(axis=1, keepdims=True)))
        taken = (
            counts if settings.share == 1 else counts[rng.random(counts.shape[0]) < settings.share]
        )
        noisy = _expected_counts(taken, table, alpha) + noise * rng.standard_normal(
            parameters.shape
        )
        rate = 1.0 if settings.share == 1 else (settings.delay + number) ** -settings.power
        parameters = (1 - rate) * parameters + rate * (
            ETA + np.maximum(noisy / settings.share, 0.0)
        )
    return parameters / parameters.sum(axis=1, keepdims=True), alpha


def _epsilon_of(scale: float, share: float, n_rounds: int, delta: float) -> float:
    """Return the ε of rounds that each take a document with the chance `share`, with noise of so
    many sensitivities.
    """
    best = np.inf
    for order in ORDERS.tolist():
        kept = np.arange(order + 1)
        chances = gammaln(order + 1) - gammaln(kept + 1) - gammaln(order - kept + 1)
        chances = chances + (order - kept) * math.log1p(-share) + kept * math.log(share)
        divergence = float(logsumexp(chances + kept * (kept - 1) / (2 * scale**2))) / (order - 1)
        converted = math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        best = min(best, n_rounds * divergence + converted)
    return best


def _cut(counts: Any, most_words: int, rng: np.random.Generator) -> Any:
    """Return documents of at most N words each: of a longer one, every word stays with a chance
    below N/length.
    """
    counts = sparse.csr_array(counts).astype(np.int64)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    chances = np.repeat(
        np.minimum(1.0, 0.8 * most_words / np.maximum(lengths, 1)), np.diff(counts.indptr)
    )
    long = np.repeat(lengths > most_words, np.diff(counts.indptr))
    kept = np.where(long, rng.binomial(counts.data, chances), counts.data)
    cut: Any = sparse.csr_array(
        (kept.astype(float), counts.indices, counts.indptr), shape=counts.shape
    )
    left = np.asarray(cut.sum(axis=1)).ravel()
    cut.data *= np.repeat(np.minimum(1.0, most_words / np.maximum(left, 1)), np.diff(cut.indptr))
    return cut


def _expected_counts(counts: Any, table: Any, alpha: Any) -> Any:
    """Return the expected number of each word in each topic, k x V."""
    k = table.shape[0]
    total = np.zeros(table.T.shape)
    for start in range(0, counts.shape[0], BLOCK):
        rows = counts[start : start + BLOCK]
        owner, words = (
            np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)),
            table.T[rows.indices],
        )
        ones, places = np.ones(owner.size), np.arange(owner.size)
        member = sparse.csr_array((ones, places, rows.indptr), shape=(rows.shape[0], owner.size))
        shares = np.full((rows.shape[0], k), 1 / k)
        for _ in range(N_INNER):
            gamma = alpha + member @ _dealt(shares, owner, words, rows.data)
            shares = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True)))
        by_word = sparse.csr_array(
            (ones, (rows.indices, places)), shape=(total.shape[0], owner.size)
        )
        total += by_word @ _dealt(shares, owner, words, rows.data)
    return total.T


def _dealt(shares: Any, owner: Any, words: Any, numbers: Any) -> Any:
    """Return how many of each word of each document belong to each topic."""
    dealt = shares[owner] * words
    dealt *= (numbers / np.maximum(dealt.sum(axis=1), 1e-300))[:, None]
    return dealt
