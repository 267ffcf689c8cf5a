"""The recursions along sequences agree with sums over all paths; EM never lowers the likelihood."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from planted_hmms import begins_of, symbols_hmm, vectors_hmm

from odeco.models.hmm.baum_welch import baum_welch
from odeco.models.hmm.emissions import Poisson
from odeco.models.hmm.start import Triples, hmm_of_triples, project_to_simplex, spectral_starts


def by_paths(hmm, rows):
    """Probability of every path with the rows of one sequence, as a dict."""
    table, index = hmm.emissions.log_likelihoods(rows)
    likelihoods = np.exp(table)[index]
    found = {}
    for path in product(range(hmm.n_states), repeat=len(rows)):
        probability = hmm.initial[path[0]] * likelihoods[0, path[0]]
        for t in range(1, len(rows)):
            probability *= hmm.transitions[path[t - 1], path[t]] * likelihoods[t, path[t]]
        found[path] = probability
    return found


MODELS = {
    "symbols": lambda: symbols_hmm(3, 5, seed=1),
    "vectors": lambda: vectors_hmm(full=False),
    "vectors, full": lambda: vectors_hmm(full=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_recursions_are_sums_over_all_paths(name):
    hmm, k, lengths = MODELS[name](), 3, (4, 1, 5)
    rng = np.random.default_rng(0)
    rows = np.concatenate([hmm.sample(length, rng)[0] for length in lengths])
    begins = begins_of(10, *lengths)
    initial, transitions, posterior, total, best, best_total = (
        np.zeros(k),
        np.zeros((k, k)),
        np.zeros((10, k)),
        0.0,
        [],
        0.0,
    )
    for first, length in zip(np.flatnonzero(begins), lengths, strict=True):
        paths = by_paths(hmm, rows[first : first + length])
        whole = sum(paths.values())
        total += np.log(whole)
        for path, probability in paths.items():
            initial[path[0]] += probability / whole
            for t, state in enumerate(path):
                posterior[first + t, state] += probability / whole
                if t:
                    transitions[path[t - 1], state] += probability / whole
        likeliest = max(paths, key=paths.get)
        best += likeliest
        best_total += np.log(paths[likeliest])
    statistics = hmm.e_step(rows, begins)
    np.testing.assert_allclose(statistics.initial, initial)
    np.testing.assert_allclose(statistics.transitions, transitions)
    np.testing.assert_allclose(statistics.log_likelihood, total)
    np.testing.assert_allclose(hmm.log_likelihoods(rows, begins).sum(), total)
    np.testing.assert_allclose(hmm.posterior(rows, begins), posterior, atol=1e-12)
    path, likelihood = hmm.viterbi(rows, begins)
    assert path.tolist() == list(best)
    assert likelihood == pytest.approx(best_total)


def test_a_sequence_in_two_blocks_has_the_likelihood_of_one():
    hmm = symbols_hmm()
    rows, _ = hmm.sample(300, np.random.default_rng(0))
    begins = begins_of(300, 300)
    whole, last = hmm.e_step_block(rows, begins, hmm.initial)
    first, between = hmm.e_step_block(rows[:120], begins[:120], hmm.initial)
    second, end = hmm.e_step_block(rows[120:], begins[120:], between)
    assert (first + second).log_likelihood == pytest.approx(whole.log_likelihood)
    assert (first + second).transitions.sum() == pytest.approx(299)
    np.testing.assert_allclose(end, last)


def test_sums_over_groups_of_sequences_are_those_of_all_together(monkeypatch):
    hmm = vectors_hmm()
    rows, _ = hmm.sample(1000, np.random.default_rng(0))
    begins = begins_of(1000, *([7] * 100 + [300]))
    together = hmm.e_step(rows, begins)
    monkeypatch.setattr("odeco.models.hmm.baum_welch._BLOCK", 64)
    apart = hmm.e_step(rows, begins)
    for name in ("initial", "transitions", "emissions", "log_likelihood"):
        np.testing.assert_allclose(
            getattr(apart, name), getattr(together, name), rtol=1e-9, atol=1e-9
        )
    assert apart.n == 1000


@pytest.mark.parametrize("name", MODELS)
def test_no_iteration_lowers_the_likelihood(name):
    truth = MODELS[name]()
    rng = np.random.default_rng(3)
    rows, _ = truth.sample(800, rng)
    begins = begins_of(800, 500, 300)
    hmm = truth.from_vector(truth.to_vector() + 0.2 * rng.standard_normal(truth.to_vector().size))
    likelihoods = [
        baum_welch(hmm, rows, begins, max_iter=n, tol=0.0).log_likelihood for n in (1, 3, 6, 9, 12)
    ]
    # Priors of thousandths of a row can lower the likelihood of 800 rows by no more than their
    # share.
    assert np.all(np.diff(likelihoods) > -1e-4)
    assert likelihoods[-1] > likelihoods[0]


@pytest.mark.parametrize("name", MODELS)
def test_a_vector_is_the_model(name):
    hmm = MODELS[name]()
    again = hmm.from_vector(hmm.to_vector())
    np.testing.assert_allclose(again.transitions, hmm.transitions)
    np.testing.assert_allclose(again.emissions.to_vector(), hmm.emissions.to_vector(), atol=1e-9)


def test_the_stationary_distribution_does_not_change_by_a_transition():
    hmm = symbols_hmm(5)
    np.testing.assert_allclose(hmm.stationary @ hmm.transitions, hmm.stationary, atol=1e-12)
    assert np.all(np.diff(hmm.most_frequent_first().stationary) <= 1e-12)


def test_triples_do_not_go_from_one_sequence_to_the_next():
    rows = np.array([0, 1, 2, 0, 1, 0, 0, 0, 0, 2])
    found = Triples.of_rows(rows, begins_of(10, 3, 2, 1, 4), 3)
    cells = {
        (int(a), int(b), int(c)): share * 3
        for a, b, c, share in zip(*found.symbols, found.frequencies, strict=True)
    }
    assert found.n_triples == 3
    assert cells == {(0, 1, 2): 1, (0, 0, 0): 1, (0, 0, 2): 1}


def test_large_alphabets_are_counted_as_small_ones(monkeypatch):
    rows = np.random.default_rng(0).integers(6, size=500)
    dense = Triples.of_rows(rows, begins_of(500, 500), 6)
    monkeypatch.setattr("odeco.models.hmm.start._MAX_DENSE", 0)
    listed = Triples.of_rows(rows, begins_of(500, 500), 6)
    for one, other in zip(
        (*dense.symbols, dense.frequencies), (*listed.symbols, listed.frequencies), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_exact_triples_give_the_model():
    # The moments of the model itself, without noise: what is left is what the start mixes in, a
    # hundredth, and the least probability of a move.
    truth = symbols_hmm(4, 12)
    shares, moves, emitted = truth.stationary, truth.transitions, truth.emissions.probabilities
    table = np.einsum("g,ga,gh,hb,hi,ic->abc", shares, emitted, moves, emitted, moves, emitted)
    cells = np.flatnonzero(table.ravel() > 0)
    symbols = (cells // 144, cells // 12 % 12, cells % 12)
    found, explained = hmm_of_triples(Triples(symbols, table.ravel()[cells], 12, 1), 4, seed=0)
    found_emitted = found.emissions.probabilities
    distances = np.abs(found_emitted[:, None] - emitted[None]).sum(axis=2) / 2
    order = np.argmin(distances, axis=0)
    assert sorted(order) == [0, 1, 2, 3]
    assert explained == pytest.approx(1, abs=1e-3)
    assert distances.min(axis=0).max() < 0.02
    assert np.abs(found.transitions[np.ix_(order, order)] - moves).max() < 0.05


def test_fewer_symbols_than_states_begin_at_random():
    rows = np.random.default_rng(0).integers(2, size=100)
    hmm, other = spectral_starts(rows, begins_of(100, 100), 2, 3, emissions=Poisson.of_rows, seed=0)
    assert not np.allclose(hmm.emissions.probabilities, other.emissions.probabilities)
    assert hmm.emissions.probabilities.shape == (3, 2)


def test_the_nearest_distribution_is_one():
    rows = np.array([[0.2, 0.3, 0.5], [2.0, -1.0, 0.5], [-1.0, -2.0, -0.5]])
    found = project_to_simplex(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.all(found >= 0)
    np.testing.assert_allclose(found[0], rows[0])
    # (4, -2, 1)/3 after division by the sum; less 1/3 each, and nothing below zero, it sums to one.
    np.testing.assert_allclose(found[1], [1, 0, 0], atol=1e-12)
