"""Split and merge: which states are merged, at what cost, and that EM then leaves bad local
optima.
"""

import numpy as np
import pytest
from planted_hmms import begins_of, symbols_hmm, vectors_hmm

from odeco.models.hmm.baum_welch import HMM, HMMStatistics, baum_welch
from odeco.models.hmm.emissions import Categorical
from odeco.models.hmm.start import merge_costs, merge_states, merge_statistics, split_merge_starts

MODELS = pytest.mark.parametrize(
    "truth", [symbols_hmm(4, 12), vectors_hmm(), vectors_hmm(full=True)]
)


def drawn(truth, n_rows, seed=0):
    return truth.sample(n_rows, np.random.default_rng([seed, 1]))[0], begins_of(n_rows, n_rows)


def with_a_twin(truth, state):
    """The same model, of which one state has a twin that takes half of its work."""
    k = truth.n_states
    order = np.append(np.arange(k), state)
    entered = np.ones(k + 1)
    entered[[state, k]] = 0.5
    moves = truth.transitions[np.ix_(order, order)] * entered
    return HMM(truth.initial[order] * entered, moves, truth.emissions.permuted(order))


@MODELS
def test_a_twin_costs_nothing_and_is_merged(truth):
    rows, begins = drawn(truth, 3000)
    k = truth.n_states
    twins = with_a_twin(truth, 1)
    statistics = twins.e_step(rows, begins)
    pairs, costs = merge_costs(twins, statistics)
    assert pairs[np.argmin(costs)].tolist() == [1, k]
    # Both have the same distributions of everything, so the sums of logarithms cancel: rounding is
    # left. The prior of a tenth of a row with the variance of all rows counts twice for two states
    # of vectors.
    assert costs.min() < 1
    assert np.sort(costs)[1] > 20
    again = merge_states(twins, rows, begins, k)
    assert again.n_states == k
    assert (
        again.log_likelihoods(rows, begins).sum() >= twins.log_likelihoods(rows, begins).sum() - 1
    )


def test_costs_are_those_of_counts_that_are_known():
    # Two states with 3 and 1 symbols of one kind, and 1 and 3 of another, and no moves: 8 rows with
    # a half each have 8 log 1/2, and alone 2 (3 log 3/4 + log 1/4).
    statistics = HMMStatistics(
        8, 0.0, np.zeros(2), np.zeros((2, 2)), np.array([[3.0, 1.0], [1.0, 3.0]])
    )
    hmm = HMM(np.full(2, 0.5), np.full((2, 2), 0.5), Categorical(np.full((2, 2), 0.5)))
    alone, together = 2 * (3 * np.log(3 / 4) + np.log(1 / 4)), 8 * np.log(1 / 2)
    assert merge_costs(hmm, statistics)[1] == pytest.approx(alone - together)


@MODELS
def test_one_state_can_be_left(truth):
    rows, begins = drawn(truth, 500)
    assert merge_states(truth, rows, begins, 1).initial.tolist() == [1.0]


@MODELS
def test_merged_counts_are_sums(truth):
    rows, begins = drawn(truth, 500)
    statistics = truth.e_step(rows, begins)
    together = merge_statistics(statistics, np.zeros(truth.n_states, int))
    assert together.transitions.shape == (1, 1)
    assert together.transitions[0, 0] == pytest.approx(499)
    np.testing.assert_allclose(together.emissions[0], statistics.emissions.sum(axis=0))


@MODELS
def test_split_states_are_distributions_near_those_they_come_from(truth):
    double = truth.split(np.random.default_rng(0))
    np.testing.assert_allclose(double.transitions.sum(axis=1), 1)
    assert double.initial.sum() == pytest.approx(1)
    rows, begins = drawn(truth, 1000)
    assert np.isfinite(double.log_likelihoods(rows, begins)).all()


def test_split_and_merge_leaves_a_local_optimum():
    # From a model in which two states stand for one, and one for two, EM ends far below the truth;
    # after states were split and merged it does not.
    truth = symbols_hmm(4, 12)
    rows, begins = drawn(truth, 20_000)
    emitted = truth.emissions.probabilities
    rng = np.random.default_rng(0)
    near = emitted[0] * rng.uniform(0.8, 1.2, 12)
    stuck = np.array([emitted[0], near / near.sum(), (emitted[1] + emitted[2]) / 2, emitted[3]])
    moves = 0.7 * np.eye(4) + 0.3 / 4
    begun = HMM(np.full(4, 0.25), moves, Categorical(0.99 * stuck + 0.01 / 12))
    best = float(truth.log_likelihoods(rows, begins).mean())
    bad = baum_welch(begun, rows, begins, max_iter=6, tol=0.0)
    mended = [
        baum_welch(each, rows, begins, max_iter=30, tol=0.0).log_likelihood
        for each in split_merge_starts(bad.params, rows, begins, seed=0)
    ]
    # 59 free numbers are worth half a row each: fitted to these rows, a model is above the truth.
    assert max(mended[1:]) > best
