"""Private methods of others for the cases of ``private_models.py models``, as their papers have
them or better.

Each function yields one result for each of its settings, of which the best is taken after the fact.
Noise is Gaussian and composed exactly, which is tighter than in the papers; δ is `DELTA`, and a
neighbour replaces one record. For communities a neighbour has one edge more or less, and δ is 0.

*DP-EM* (Park, Foulds, Chaudhuri and Welling, AISTATS 2017, arXiv:1605.06995) adds noise to the
sufficient statistics of every EM iteration, from a random start. *Two-way margins* (Nixon,
Barrientos, Reiter and Slavković 2022, arXiv:2201.10545) release all tables of two questions, and
fit latent classes to them. *Edge flips* (Hehir, Slavković and Niu 2022, arXiv:2105.12615) cluster
the leading eigenvectors of a graph whose edges are flipped at random. For the sources of one table
no private method was found (those of Imtiaz et al., arXiv:1910.12913, are about several sites that
share noise): *FastICA* here has noise in its whitening and in every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from odeco._util.types import FloatArray, IndexArray
from odeco.privacy import gdp_mu
from peers.private_kmeans import DELTA, clipped

#: Numbers of iterations that are tried.
N_ITERATIONS = (3, 10, 30)
#: Starts of a fit to what was released.
_N_STARTS, _N_STEPS = 5, 200
#: FastICA: the share of μ² of the whitening, and the clipping of whitened rows, in multiples of √d.
_OF_WHITENING, _CLIPPED = 0.4, (1.5, 2.5)
#: No probability is smaller.
_LEAST = 1e-3


def as_probabilities(counts: FloatArray) -> FloatArray:
    """Return noisy counts as probabilities along the last axis."""
    positive = np.maximum(counts, 0.0) + 1e-12
    shares = positive / positive.sum(axis=-1, keepdims=True)
    return np.asarray((1 - _LEAST) * shares + _LEAST / shares.shape[-1])


def dp_em_classes(
    codes: IndexArray, n_answers: int, k: int, epsilon: float, seed: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield weights and answers of classes by DP-EM.

    With probabilities r of classes, a respondent adds r to the counts of classes, and r at one
    answer of each of Q questions: a vector of norm at most √(Q + 1), without negative entries. Two
    are apart by at most √(2 (Q + 1)).
    """
    n_questions = codes.shape[1]
    chosen = (codes[:, :, None] == np.arange(n_answers)).reshape(len(codes), -1).astype(np.float64)
    for n_iterations in N_ITERATIONS:
        rng = np.random.default_rng(seed)
        deviation = math.sqrt(2 * (n_questions + 1) * n_iterations) / gdp_mu(epsilon, DELTA)
        weights, answers = np.full(k, 1 / k), rng.dirichlet(np.ones(n_answers), (k, n_questions))
        for _ in range(n_iterations):
            shares = class_posterior(chosen, weights, answers)[0]
            counts = shares.sum(axis=0) + deviation * rng.standard_normal(k)
            table = shares.T @ chosen + deviation * rng.standard_normal((k, chosen.shape[1]))
            weights, answers = (
                as_probabilities(counts),
                as_probabilities(table.reshape(answers.shape)),
            )
        yield weights, answers


def class_posterior(
    chosen: FloatArray, weights: FloatArray, answers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of classes, and log-likelihoods, of respondents; `chosen` has a 1 for
    each answer.
    """
    logs = np.log(weights) + chosen @ np.log(answers).reshape(len(weights), -1).T
    top = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - top)
    total = shares.sum(axis=1, keepdims=True)
    return shares / total, (np.log(total) + top)[:, 0]


def two_way_classes(
    codes: IndexArray, n_answers: int, k: int, epsilon: float, seed: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield weights and answers of classes that fit noisy tables of all pairs of questions, by the
    best of some starts.

    A respondent adds 1 to one cell of each of P tables: two are apart by at most √(2 P).
    """
    rng, n_questions = np.random.default_rng(seed), codes.shape[1]
    pairs = np.array(list(combinations(range(n_questions), 2)))
    chosen = (codes[:, :, None] == np.arange(n_answers)).astype(np.float64)
    tables = np.stack([chosen[:, first].T @ chosen[:, second] for first, second in pairs])
    noisy = tables + math.sqrt(2 * len(pairs)) / gdp_mu(epsilon, DELTA) * rng.standard_normal(
        tables.shape
    )
    cells = as_probabilities(noisy.reshape(len(pairs), -1)).reshape(tables.shape)
    best = (-math.inf, np.empty(0), np.empty(0))
    for _ in range(_N_STARTS):
        weights, answers = np.full(k, 1 / k), rng.dirichlet(np.ones(n_answers), (k, n_questions))
        for _ in range(_N_STEPS):
            joint = weights[:, None, None, None] * np.einsum(
                "kpa,kpb->kpab", *(answers[:, each] for each in pairs.T)
            )
            total = joint.sum(axis=0)
            shares = joint * (cells / total)
            table = np.zeros(answers.shape)
            for each, (first, second) in enumerate(pairs):
                table[:, first] += shares[:, each].sum(axis=2)
                table[:, second] += shares[:, each].sum(axis=1)
            weights, answers = as_probabilities(shares.sum(axis=(1, 2, 3))), as_probabilities(table)
        best = max(
            best, (float(np.sum(cells * np.log(total))), weights, answers), key=lambda each: each[0]
        )
    yield best[1], best[2]


def dp_em_states(
    symbols: IndexArray, n_symbols: int, k: int, epsilon: float, seed: int
) -> Iterator[IndexArray]:
    """Yield the likeliest state of each symbol by DP-EM; all sequences have the same length l.

    The expected counts of a sequence add up to 1, l − 1 and l for first states, transitions and
    emissions. Their vector has a norm of at most √(1 + (l − 1)² + l²), and no negative entry: two
    are apart by at most √2 times as much.
    """
    length = symbols.shape[1]
    for n_iterations in N_ITERATIONS:
        rng = np.random.default_rng(seed)
        deviation = math.sqrt(2 * (1 + (length - 1) ** 2 + length**2) * n_iterations) / gdp_mu(
            epsilon, DELTA
        )
        first, moves = np.full(k, 1 / k), 0.5 * np.eye(k) + 0.5 / k
        emissions = rng.dirichlet(np.ones(n_symbols), k)
        for _ in range(n_iterations):
            shares, pairs = _forward_backward(symbols, first, moves, emissions)
            table = np.stack(
                [shares[symbols == each].sum(axis=0) for each in range(n_symbols)], axis=1
            )
            noisy = [
                each + deviation * rng.standard_normal(each.shape)
                for each in (shares[:, 0].sum(axis=0), pairs, table)
            ]
            first, moves, emissions = map(as_probabilities, noisy)
        yield _forward_backward(symbols, first, moves, emissions)[0].argmax(axis=2)


def _forward_backward(
    symbols: IndexArray, first: FloatArray, moves: FloatArray, emissions: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return probabilities of states, n x l x k, and expected numbers of transitions."""
    (n, length), k = symbols.shape, len(first)
    likely = emissions.T[symbols]
    forward, backward, pairs = np.empty((n, length, k)), np.ones((n, length, k)), np.zeros((k, k))
    for place in range(length):
        now = likely[:, place] * (first if place == 0 else forward[:, place - 1] @ moves)
        forward[:, place] = now / now.sum(axis=1, keepdims=True)
    for place in range(length - 2, -1, -1):
        after = likely[:, place + 1] * backward[:, place + 1]
        joint = forward[:, place, :, None] * moves * after[:, None, :]
        pairs += np.sum(joint / joint.sum(axis=(1, 2), keepdims=True), axis=0)
        before = after @ moves.T
        backward[:, place] = before / before.sum(axis=1, keepdims=True)
    shares = forward * backward
    return shares / shares.sum(axis=2, keepdims=True), pairs


def fast_ica(rows: FloatArray, epsilon: float, seed: int) -> Iterator[FloatArray]:
    """Yield sources by FastICA (tanh, all at once) with noise.

    Rows are clipped at the 0.95 quantile of their norms, which is taken to be public. Two outer
    products of norm at most b² are apart by at most √2 b². In an iteration a whitened row z of norm
    at most r adds z tanh(Wz)ᵀ and 1 − tanh²(Wz), of norm at most √(d (r² + 1)); two are apart by at
    most twice as much.
    """
    (n, d), mu = rows.shape, gdp_mu(epsilon, DELTA)
    centred = rows - rows.mean(axis=0)  # exact, in favour of the method
    bound = float(np.quantile(np.linalg.norm(centred, axis=1), 0.95))
    inside = clipped(centred, bound)
    for n_iterations in N_ITERATIONS[1:]:
        for multiple in _CLIPPED:
            rng = np.random.default_rng(seed)
            scale = math.sqrt(2) * bound**2 / (n * mu * math.sqrt(_OF_WHITENING))
            noise = np.triu(scale * rng.standard_normal((d, d)))
            values, vectors = np.linalg.eigh(inside.T @ inside / n + noise + np.triu(noise, 1).T)
            whitener = vectors / np.sqrt(np.maximum(values, scale))
            radius = multiple * math.sqrt(d)
            white = clipped(centred @ whitener, radius)
            deviation = (
                2 * math.sqrt(d * (radius**2 + 1) * n_iterations / (1 - _OF_WHITENING)) / (n * mu)
            )
            turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
            for _ in range(n_iterations):
                bent = np.tanh(white @ turn.T)
                image = bent.T @ white / n + deviation * rng.standard_normal((d, d))
                slope = np.mean(1 - bent**2, axis=0) + deviation * rng.standard_normal(d)
                left, _, right = np.linalg.svd(image - slope[:, None] * turn)
                turn = left @ right
            yield centred @ whitener @ turn.T


def edge_flips(graph: Any, k: int, epsilon: float, seed: int) -> Iterator[IndexArray]:
    """Yield communities by k-means of the leading eigenvectors of a graph of which every pair of
    nodes is flipped.

    A pair is flipped with the chance q = 1/(1 + e^ε). The rows of the eigenvectors are scaled to
    norm 1, or not.
    """
    rng, links = np.random.default_rng(seed), graph.toarray() > 0
    chance = 1 / (1 + math.exp(epsilon))
    flips = np.triu(rng.random(links.shape) < chance, 1)
    noisy = (links ^ (flips | flips.T)).astype(np.float64)
    np.fill_diagonal(noisy, 0.0)
    values, vectors = np.linalg.eigh((noisy - chance) / (1 - 2 * chance))
    leading = vectors[:, np.argsort(-np.abs(values))[:k]]
    for rows in (
        leading,
        leading / np.maximum(np.linalg.norm(leading, axis=1, keepdims=True), 1e-12),
    ):
        yield KMeans(k, n_init=10, random_state=seed).fit_predict(rows)
