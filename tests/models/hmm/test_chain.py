"""The recursions along sequences agree with sums over all paths; likelihood steps never go down."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from planted_chains import begins_of, chain_of_symbols, chain_of_vectors

from odeco.models.hmm.baum_welch import climbed
from odeco.models.hmm.start import Triples, chain_of_triples, nearest_distributions, starts


def by_paths(chain, rows):
    """Probability of every path with the rows of one sequence, as a dict."""
    table, index = chain.emissions.log_likelihoods(rows)
    likelihoods = np.exp(table)[index]
    found = {}
    for path in product(range(chain.start.size), repeat=len(rows)):
        probability = chain.start[path[0]] * likelihoods[0, path[0]]
        for t in range(1, len(rows)):
            probability *= chain.transitions[path[t - 1], path[t]] * likelihoods[t, path[t]]
        found[path] = probability
    return found


CHAINS = {
    "symbols": lambda: chain_of_symbols(3, 5, seed=1),
    "vectors": lambda: chain_of_vectors(full=False),
    "vectors, full": lambda: chain_of_vectors(full=True),
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_recursions_are_sums_over_all_paths(name):
    chain, k, lengths = CHAINS[name](), 3, (4, 1, 5)
    rng = np.random.default_rng(0)
    rows = np.concatenate([chain.sample(length, rng)[0] for length in lengths])
    begins = begins_of(10, *lengths)
    started, moved, posterior, total, best, best_total = np.zeros(k), np.zeros((k, k)), np.zeros((10, k)), 0.0, [], 0.0
    for first, length in zip(np.flatnonzero(begins), lengths, strict=True):
        paths = by_paths(chain, rows[first : first + length])
        whole = sum(paths.values())
        total += np.log(whole)
        for path, probability in paths.items():
            started[path[0]] += probability / whole
            for t, state in enumerate(path):
                posterior[first + t, state] += probability / whole
                if t:
                    moved[path[t - 1], state] += probability / whole
        likeliest = max(paths, key=paths.get)
        best += likeliest
        best_total += np.log(paths[likeliest])
    expected = chain.expected(rows, begins)
    np.testing.assert_allclose(expected.started, started)
    np.testing.assert_allclose(expected.moved, moved)
    np.testing.assert_allclose(expected.log_likelihood, total)
    np.testing.assert_allclose(chain.log_likelihoods(rows, begins).sum(), total)
    np.testing.assert_allclose(chain.posterior(rows, begins), posterior, atol=1e-12)
    path, likelihood = chain.path(rows, begins)
    assert path.tolist() == list(best)
    assert likelihood == pytest.approx(best_total)


def test_a_sequence_in_two_blocks_has_the_likelihood_of_one():
    chain = chain_of_symbols()
    rows, _ = chain.sample(300, np.random.default_rng(0))
    begins = begins_of(300, 300)
    whole, last = chain.expected_of_block(rows, begins, chain.start)
    first, between = chain.expected_of_block(rows[:120], begins[:120], chain.start)
    second, end = chain.expected_of_block(rows[120:], begins[120:], between)
    assert (first + second).log_likelihood == pytest.approx(whole.log_likelihood)
    assert (first + second).moved.sum() == pytest.approx(299)
    np.testing.assert_allclose(end, last)


def test_sums_over_groups_of_sequences_are_those_of_all_together(monkeypatch):
    chain = chain_of_vectors()
    rows, _ = chain.sample(1000, np.random.default_rng(0))
    begins = begins_of(1000, *([7] * 100 + [300]))
    together = chain.expected(rows, begins)
    monkeypatch.setattr("odeco.models.hmm.baum_welch._GROUP", 64)
    apart = chain.expected(rows, begins)
    for name in ("started", "moved", "emitted", "log_likelihood"):
        np.testing.assert_allclose(getattr(apart, name), getattr(together, name), rtol=1e-9, atol=1e-9)
    assert apart.n_rows == 1000


@pytest.mark.parametrize("name", CHAINS)
def test_no_step_lowers_the_likelihood(name):
    truth = CHAINS[name]()
    rng = np.random.default_rng(3)
    rows, _ = truth.sample(800, rng)
    begins = begins_of(800, 500, 300)
    chain = truth.at(truth.coordinates() + 0.2 * rng.standard_normal(truth.coordinates().size))
    likelihoods = [climbed(chain, rows, begins, n_steps=n, tolerance=0.0).log_likelihood for n in (1, 3, 6, 9, 12)]
    # Priors of thousandths of a row can lower the likelihood of 800 rows by no more than their share.
    assert np.all(np.diff(likelihoods) > -1e-4)
    assert likelihoods[-1] > likelihoods[0]


@pytest.mark.parametrize("name", CHAINS)
def test_coordinates_say_the_model(name):
    chain = CHAINS[name]()
    again = chain.at(chain.coordinates())
    np.testing.assert_allclose(again.transitions, chain.transitions)
    np.testing.assert_allclose(again.emissions.coordinates(), chain.emissions.coordinates(), atol=1e-9)


def test_shares_do_not_change_by_a_move():
    chain = chain_of_symbols(5)
    np.testing.assert_allclose(chain.shares @ chain.transitions, chain.shares, atol=1e-12)
    assert np.all(np.diff(chain.ordered().shares) <= 1e-12)


def test_triples_do_not_go_from_one_sequence_to_the_next():
    rows = np.array([0, 1, 2, 0, 1, 0, 0, 0, 0, 2])
    found = Triples.of(rows, begins_of(10, 3, 2, 1, 4), 3)
    cells = {(int(a), int(b), int(c)): share * 3 for a, b, c, share in zip(*found.symbols, found.shares, strict=True)}
    assert found.n_triples == 3
    assert cells == {(0, 1, 2): 1, (0, 0, 0): 1, (0, 0, 2): 1}


def test_large_alphabets_are_counted_as_small_ones(monkeypatch):
    rows = np.random.default_rng(0).integers(6, size=500)
    dense = Triples.of(rows, begins_of(500, 500), 6)
    monkeypatch.setattr("odeco.models.hmm.start._MOST_DENSE", 0)
    listed = Triples.of(rows, begins_of(500, 500), 6)
    for one, other in zip((*dense.symbols, dense.shares), (*listed.symbols, listed.shares), strict=True):
        np.testing.assert_array_equal(one, other)


def test_exact_triples_give_the_model():
    # The moments of the model itself, without noise: what is left is what the start mixes in, a hundredth, and the
    # least probability of a move.
    truth = chain_of_symbols(4, 12)
    shares, moves, emitted = truth.shares, truth.transitions, truth.emissions.probabilities
    table = np.einsum("g,ga,gh,hb,hi,ic->abc", shares, emitted, moves, emitted, moves, emitted)
    cells = np.flatnonzero(table.ravel() > 0)
    symbols = (cells // 144, cells // 12 % 12, cells % 12)
    found, explained = chain_of_triples(Triples(symbols, table.ravel()[cells], 12, 1), 4, seed=0)
    found_emitted = found.emissions.probabilities
    distances = np.abs(found_emitted[:, None] - emitted[None]).sum(axis=2) / 2
    order = np.argmin(distances, axis=0)
    assert sorted(order) == [0, 1, 2, 3]
    assert explained == pytest.approx(1, abs=1e-3)
    assert distances.min(axis=0).max() < 0.02
    assert np.abs(found.transitions[np.ix_(order, order)] - moves).max() < 0.05


def test_fewer_symbols_than_states_begin_at_random():
    rows = np.random.default_rng(0).integers(2, size=100)
    chain, other = starts(rows, begins_of(100, 100), 2, 3, full=False, seed=0)
    assert not np.allclose(chain.emissions.probabilities, other.emissions.probabilities)
    assert chain.emissions.probabilities.shape == (3, 2)


def test_the_nearest_distribution_is_one():
    rows = np.array([[0.2, 0.3, 0.5], [2.0, -1.0, 0.5], [-1.0, -2.0, -0.5]])
    found = nearest_distributions(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.all(found >= 0)
    np.testing.assert_allclose(found[0], rows[0])
    # (4, -2, 1)/3 after division by the sum; less 1/3 each, and nothing below zero, it sums to one.
    np.testing.assert_allclose(found[1], [1, 0, 0], atol=1e-12)
