"""A private variational method from the literature, as a baseline: noise on expected sufficient statistics.

Park, Foulds, Chaudhuri and Welling, *Variational Bayes in private settings (VIPS)*, 2020, arXiv:1611.00340. Each round
of variational Bayes for latent Dirichlet allocation asks once for the expected counts of words in topics, with Gaussian
noise, and cuts off what is negative. Documents are cut to at most N words, drawn at random, so one adds at most N to
the sum of all counts, hence an array of norm at most N: that is the paper's sensitivity.

Two things are in its favour here: all documents are used in every round (with small batches the noise is the same
relative to the signal, in the regime of many rounds), and rounds are composed exactly, by the Gaussian mechanism.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import digamma

from odeco.privacy import Ledger, Releaser, SecureNoise, gdp_mu

MOST_WORDS, N_ROUNDS, N_INNER, BLOCK, ETA = 50, 5, 15, 2_000, 0.01


def learn_variationally(counts: Any, k: int, *, epsilon: float, delta: float, seed: int) -> tuple[Any, Any]:
    """Return topics and Dirichlet parameters; neighbours empty one document."""
    rng = np.random.default_rng(seed)
    counts = _cut(counts, rng)
    mu, alpha = gdp_mu(epsilon, delta), np.full(k, 1 / k)
    releaser = Releaser(Ledger(mu), SecureNoise())
    parameters = rng.gamma(100.0, 0.01, (k, counts.shape[1]))
    for number in range(N_ROUNDS):
        table = np.exp(digamma(parameters) - digamma(parameters.sum(axis=1, keepdims=True)))
        noisy, _ = releaser.release(
            f"expected counts, round {number + 1}",
            partial(_expected_counts, counts, table, alpha),
            size=parameters.size,
            sensitivity=float(MOST_WORDS),
            noise_multiplier=math.sqrt(N_ROUNDS) / mu,
        )
        parameters = ETA + np.maximum(noisy, 0.0)
    return parameters / parameters.sum(axis=1, keepdims=True), alpha


def _cut(counts: Any, rng: np.random.Generator) -> Any:
    """Return documents of at most N words each: of a longer one, every word stays with the chance N/length."""
    counts = sparse.csr_array(counts).astype(np.int64)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    chances = np.repeat(np.minimum(1.0, 0.8 * MOST_WORDS / np.maximum(lengths, 1)), np.diff(counts.indptr))
    long = np.repeat(lengths > MOST_WORDS, np.diff(counts.indptr))
    kept = np.where(long, rng.binomial(counts.data, chances), counts.data)
    cut: Any = sparse.csr_array((kept.astype(float), counts.indices, counts.indptr), shape=counts.shape)
    left = np.asarray(cut.sum(axis=1)).ravel()
    cut.data *= np.repeat(np.minimum(1.0, MOST_WORDS / np.maximum(left, 1)), np.diff(cut.indptr))
    return cut


def _expected_counts(counts: Any, table: Any, alpha: Any) -> Any:
    """Return the expected number of each word in each topic, k x V."""
    k = table.shape[0]
    total = np.zeros(table.T.shape)
    for start in range(0, counts.shape[0], BLOCK):
        rows = counts[start : start + BLOCK]
        owner, words = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), table.T[rows.indices]
        shares = np.full((rows.shape[0], k), 1 / k)
        for _ in range(N_INNER):
            dealt = shares[owner] * words
            dealt *= (rows.data / np.maximum(dealt.sum(axis=1), 1e-300))[:, None]
            member = sparse.csr_array((np.ones(owner.size), np.arange(owner.size), rows.indptr))
            gamma = alpha + member @ dealt
            shares = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True)))
        dealt = shares[owner] * words
        dealt *= (rows.data / np.maximum(dealt.sum(axis=1), 1e-300))[:, None]
        by_word = sparse.csr_array(
            (np.ones(owner.size), (rows.indices, np.arange(owner.size))), shape=(total.shape[0], owner.size)
        )
        total += by_word @ dealt
    return total.T
