"""Spare states: which are merged, what it costs, and that steps no longer end where two states share one's work."""

import numpy as np
import pytest
from planted_chains import begins_of, chain_of_symbols, chain_of_vectors

from odeco.models.hmm.baum_welch import Chain, Expected, climbed
from odeco.models.hmm.emissions import Symbols
from odeco.models.hmm.start import merged, merged_to, merger_costs, starts_around

CHAINS = pytest.mark.parametrize("truth", [chain_of_symbols(4, 12), chain_of_vectors(), chain_of_vectors(full=True)])


def drawn(truth, n_rows, seed=0):
    return truth.sample(n_rows, np.random.default_rng([seed, 1]))[0], begins_of(n_rows, n_rows)


def with_a_twin(truth, state):
    """The same model, of which one state has a twin that takes half of its work."""
    k = truth.start.size
    order = np.append(np.arange(k), state)
    entered = np.ones(k + 1)
    entered[[state, k]] = 0.5
    moves = truth.transitions[np.ix_(order, order)] * entered
    return Chain(truth.start[order] * entered, moves, truth.emissions.ordered(order))


@CHAINS
def test_a_twin_costs_nothing_and_is_merged(truth):
    rows, begins = drawn(truth, 3000)
    k = truth.start.size
    twins = with_a_twin(truth, 1)
    expected = twins.expected(rows, begins)
    pairs, costs = merger_costs(twins, expected)
    assert pairs[np.argmin(costs)].tolist() == [1, k]
    # Both have the same distributions of everything, so the sums of logarithms cancel: rounding is left. The prior of a
    # tenth of a row with the variance of all rows counts twice for two states of vectors.
    assert costs.min() < 1
    assert np.sort(costs)[1] > 20
    again = merged_to(twins, rows, begins, k)
    assert again.start.size == k
    assert again.log_likelihoods(rows, begins).sum() >= twins.log_likelihoods(rows, begins).sum() - 1


def test_costs_are_those_of_counts_that_are_known():
    # Two states with 3 and 1 symbols of one kind, and 1 and 3 of another, and no moves: 8 rows with a half each have
    # 8 log 1/2, and alone 2 (3 log 3/4 + log 1/4).
    expected = Expected(np.zeros(2), np.zeros((2, 2)), np.array([[3.0, 1.0], [1.0, 3.0]]), 0.0, 8)
    chain = Chain(np.full(2, 0.5), np.full((2, 2), 0.5), Symbols(np.full((2, 2), 0.5)))
    alone, together = 2 * (3 * np.log(3 / 4) + np.log(1 / 4)), 8 * np.log(1 / 2)
    assert merger_costs(chain, expected)[1] == pytest.approx(alone - together)


@CHAINS
def test_one_state_can_be_left(truth):
    rows, begins = drawn(truth, 500)
    assert merged_to(truth, rows, begins, 1).start.tolist() == [1.0]


@CHAINS
def test_merged_counts_are_sums(truth):
    rows, begins = drawn(truth, 500)
    expected = truth.expected(rows, begins)
    together = merged(expected, np.zeros(truth.start.size, int))
    assert together.moved.shape == (1, 1)
    assert together.moved[0, 0] == pytest.approx(499)
    np.testing.assert_allclose(together.emitted[0], expected.emitted.sum(axis=0))


@CHAINS
def test_doubled_states_are_distributions_near_those_they_come_from(truth):
    double = truth.doubled(np.random.default_rng(0))
    np.testing.assert_allclose(double.transitions.sum(axis=1), 1)
    assert double.start.sum() == pytest.approx(1)
    rows, begins = drawn(truth, 1000)
    assert np.isfinite(double.log_likelihoods(rows, begins)).all()


def test_states_that_share_the_work_of_one_are_mended():
    # Steps from a model in which two states stand for one, and one for two, end far below the truth; they do not once
    # states were doubled and merged.
    truth = chain_of_symbols(4, 12)
    rows, begins = drawn(truth, 20_000)
    emitted = truth.emissions.probabilities
    rng = np.random.default_rng(0)
    near = emitted[0] * rng.uniform(0.8, 1.2, 12)
    stuck = np.array([emitted[0], near / near.sum(), (emitted[1] + emitted[2]) / 2, emitted[3]])
    moves = 0.7 * np.eye(4) + 0.3 / 4
    begun = Chain(np.full(4, 0.25), moves, Symbols(0.99 * stuck + 0.01 / 12))
    best = float(truth.log_likelihoods(rows, begins).mean())
    bad = climbed(begun, rows, begins, n_steps=6, tolerance=0.0)
    mended = [
        climbed(each, rows, begins, n_steps=30, tolerance=0.0).log_likelihood
        for each in starts_around(bad.model, rows, begins, seed=0)
    ]
    # 59 free numbers are worth half a row each: fitted to these rows, a model is above the truth.
    assert max(mended[1:]) > best
