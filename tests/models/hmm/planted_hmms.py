"""Sequences from models that are known."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical, Gaussian


def begins_of(n_rows, *lengths):
    begins = np.zeros(n_rows, bool)
    begins[np.append(0, np.cumsum(lengths)[:-1]).astype(int)] = True
    return begins


def symbols_hmm(n_states=4, n_symbols=12, seed=0):
    """States that stay half of the time; each has symbols that the others rarely have."""
    rng = np.random.default_rng(seed)
    moves = 0.5 * np.eye(n_states) + 0.5 * rng.dirichlet(np.ones(n_states), n_states)
    return HMM(
        np.full(n_states, 1 / n_states),
        moves,
        Categorical(rng.dirichlet(np.full(n_symbols, 0.3), n_states)),
    )


def vectors_hmm(full=False):
    """Three states in a plane, some 5 standard deviations apart; the last two differ only in their
    spread.
    """
    means = np.array([[-3.0, 0.0], [3.0, 0.0], [3.0, 0.0]])
    covariances = np.array([np.eye(2), 0.1 * np.eye(2), [[4.0, 1.5], [1.5, 4.0]]])
    moves = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    spread = covariances if full else np.diagonal(covariances, axis1=1, axis2=2)
    return HMM(np.full(3, 1 / 3), moves, Gaussian(means, spread, np.zeros(2), np.ones(2)))


def pairing(found, truth):
    """For each true row, the found row that belongs to it: their distances sum to the least."""
    distances = np.abs(found[:, None] - truth[None]).reshape(len(found), len(truth), -1).sum(axis=2)
    rows, columns = linear_sum_assignment(distances)
    return rows[np.argsort(columns)]
