"""Private models of sequences: how far one sequence can move what is released, and what is learnt
from it.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from odeco.errors import BudgetExhausted
from odeco.models import TensorHMM
from odeco.models.hmm.baum_welch import HMM
from odeco.models.hmm.emissions import Categorical
from odeco.models.hmm.private import find_private_hmm, plan_hmm, project_table, table_em_step
from odeco.privacy import LedgerFile, gdp_mu
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.sequences import PrivateSequences
from odeco.privacy.noise import SeededNoiseForTests
from odeco.privacy.sums import PrivateSums

N_SYMBOLS = 2
#: Every sequence of at most five of two symbols, and some that are none.
EVERY = [
    np.array(each, float)
    for length in range(6)
    for each in itertools.product(range(N_SYMBOLS), repeat=length)
]
EVERY += [
    np.array(each)
    for each in ([0.5, 0, 1], [np.nan] * 4, [0, 1, 2.0, 1], [-1.0, 0, 0], [np.inf, 1, 1])
]
OTHERS = [np.array([0.0, 1, 1, 0]), np.array([1.0, 1, 1, 1, 1])]


def held(sequences, n_symbols=N_SYMBOLS):
    return PrivateSequences(
        np.concatenate(sequences), np.array([len(each) for each in sequences]), n_symbols
    )


def test_no_neighbour_moves_the_table_by_more_than_is_declared():
    tables = [held([*OTHERS, sequence]).triples() for sequence in EVERY]
    blank = held([*OTHERS, np.zeros(1)]).triples()
    query = held(OTHERS).query()
    assert query.size == N_SYMBOLS**3
    declared = {
        relation: PrivateSums(
            Guarantee(1.0, 1e-6), 3, record="sequence", neighbour_relation=relation
        ).sensitivity(query)
        for relation in ("replace", "add_remove")
    }
    replaced = max(np.linalg.norm(one - other) for one, other in itertools.combinations(tables, 2))
    blanked = max(np.linalg.norm(each - blank) for each in tables)
    assert replaced <= declared["replace"]
    assert blanked <= declared["add_remove"]
    # Both are reached: by two sequences without a triple in common, and by one with any.
    assert replaced == pytest.approx(np.sqrt(2))
    assert blanked == pytest.approx(1)


def test_a_sequence_with_something_that_is_no_symbol_is_blank():
    for sequence in EVERY[-5:]:
        np.testing.assert_array_equal(held([*OTHERS, sequence]).triples(), held(OTHERS).triples())


def test_triples_are_those_of_each_sequence_divided_by_their_norm():
    table = held([np.array([0.0, 0, 0, 0, 1]), np.array([1.0, 1]), np.array([1.0, 0, 1])]).triples()
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0], expected[0, 0, 1], expected[1, 0, 1] = 2 / np.sqrt(5), 1 / np.sqrt(5), 1
    np.testing.assert_allclose(table, expected.ravel())


def planted(n_sequences, length, seed):
    """Five states that stay half of the time, and twenty symbols."""
    rng = np.random.default_rng(seed)
    moves = 0.5 * np.eye(5) + 0.5 * rng.dirichlet(np.ones(5), 5)
    emits = np.maximum(rng.dirichlet(np.full(20, 0.3), 5), 1e-9)
    truth = HMM(np.full(5, 0.2), moves, Categorical(emits / emits.sum(axis=1, keepdims=True)))
    shares = HMM(truth.stationary, moves, truth.emissions)
    rows, _ = shares.sample(
        n_sequences * length, rng
    )  # a long walk in pieces, each of which begins in the middle
    return shares, rows, [length] * n_sequences


def test_a_step_on_a_table_is_a_step_on_its_triples():
    truth, rows, _ = planted(40, 3, seed=0)
    table = np.zeros((20, 20, 20))
    np.add.at(table, tuple(rows.reshape(-1, 3).T), 1.0)
    begins = np.arange(120) % 3 == 0
    found, likelihood = table_em_step(truth, table)
    expected = truth.e_step(rows, begins)
    wanted = truth.m_step(expected)
    assert likelihood == pytest.approx(expected.log_likelihood / 40)
    np.testing.assert_allclose(found.initial, wanted.initial)
    np.testing.assert_allclose(found.transitions, wanted.transitions)
    np.testing.assert_allclose(found.emissions.probabilities, wanted.emissions.probabilities)


def test_a_private_model_learns_most_of_what_there_is_to_learn():
    # What moves tell about the next symbol is the gap between the model and the frequencies alone.
    # Of 20,000 sequences with epsilon = 1 at most a tenth of it may be lost.
    truth, rows, lengths = planted(20_000, 50, seed=0)
    model = TensorHMM(
        5, emissions="categorical", n_symbols=20, epsilon=1.0, delta=1e-6, random_state=0
    )
    model.fit(rows, lengths=lengths)
    fresh, _ = truth.sample(50_000, np.random.default_rng(9))
    begins = np.arange(50_000) == 0
    best = truth.log_likelihoods(fresh, begins).mean()
    alone = np.log(np.bincount(rows, minlength=20) / rows.size)[fresh].mean()
    assert best - model.score_samples(fresh).mean() < (best - alone) / 10
    assert model.n_samples_seen_ == 20_000
    assert model.converged_
    assert model.summary().startswith("5 states, which all stand clear of the noise of privacy.")
    report = model.privacy_
    assert report.private
    assert report.epsilon_spent == pytest.approx(1.0)
    assert report.mu <= gdp_mu(1.0, 1e-6)
    with pytest.raises(
        ValueError, match="The score of a private model must not choose between models"
    ):
        model.score(rows)


def test_what_noise_hides_is_said():
    _, rows, lengths = planted(100, 20, seed=1)
    model = TensorHMM(
        5, emissions="categorical", n_symbols=20, epsilon=0.5, delta=1e-6, random_state=0
    )
    model.fit(rows, lengths=lengths)
    assert model.summary().startswith("5 states, partly hidden by noise")


def test_directions_of_pure_noise_do_not_stand_clear():
    rng = np.random.default_rng(0)
    assert project_table(3.0 * rng.standard_normal((20, 20, 20)), 4, 3.0 * 1.05)[1] == 0


def test_the_noise_alone_decides_what_two_fits_differ_in():
    rows = planted(300, 10, seed=0)[1]
    lengths = np.full(300, 10)

    def fitted(seed):
        held = PrivateSequences(rows, lengths, 20)
        sums = PrivateSums(
            Guarantee(1.0, 1e-6), held.n_records, record="sequence", noise=SeededNoiseForTests(seed)
        )
        return find_private_hmm(held, sums, 3, max_iter=5, tol=0.0, seed=0)[0].params.transitions

    np.testing.assert_array_equal(fitted(0), fitted(0))
    assert not np.array_equal(fitted(0), fitted(1))


@pytest.mark.parametrize(
    ("relation", "sensitivity"), [("replace", np.sqrt(2)), ("add_remove", 1.0)]
)
def test_the_sensitivity_that_was_found_by_brute_force_is_charged(relation, sensitivity):
    model = TensorHMM(
        2,
        emissions="categorical",
        n_symbols=3,
        epsilon=1.0,
        delta=1e-6,
        neighbour_relation=relation,
    )
    (charge,) = model.fit(np.arange(600) % 3, lengths=[6] * 100).privacy_.charges
    assert charge.sensitivity == pytest.approx(sensitivity)
    assert charge.scale == pytest.approx(sensitivity / gdp_mu(1.0, 1e-6))


def test_a_ledger_pays_for_a_fit_or_refuses_it(tmp_path):
    rows, path = np.arange(600) % 3, tmp_path / "all.ledger"
    LedgerFile.create(path, data="people", unit="sequence", epsilon=1.0, delta=1e-6)
    settings = {
        "emissions": "categorical",
        "n_symbols": 3,
        "epsilon": 1.0,
        "delta": 1e-6,
        "ledger": path,
    }
    TensorHMM(2, random_state=0, **settings).fit(rows, lengths=[6] * 100)
    with pytest.raises(BudgetExhausted, match="Budget exhausted"):
        TensorHMM(2, random_state=0, **settings).fit(rows, lengths=[6] * 100)


def test_a_private_model_is_read_again_with_its_guarantee(tmp_path):
    model = TensorHMM(
        2, emissions="categorical", n_symbols=3, epsilon=1.0, delta=1e-6, random_state=0
    )
    model.fit(np.arange(600) % 3, lengths=[6] * 100).save(tmp_path / "model.npz")
    assert TensorHMM.load(tmp_path / "model.npz").privacy_ == model.privacy_


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delta": None}, "A private model needs `epsilon` and `delta`. Got no `delta`."),
        (
            {"emissions": "auto"},
            "A private model is one of symbols, at most 100, whose number is public.",
        ),
        ({"n_symbols": None}, "Got emissions='categorical' and n_symbols=None."),
        ({"n_symbols": 101}, "n_symbols=101"),
        ({"n_components": "auto"}, "must be an int for a private model. Got 'auto'."),
        ({"n_components": 4}, "must be at most n_symbols=3. Got 4."),
        (
            {"neighbour_relation": "swap"},
            "`neighbour_relation` must be one of 'replace', 'add_remove'.",
        ),
        ({"epsilon": None, "delta": None, "ledger": "x"}, "`ledger` is for private models."),
        ({"delta": 0.1}, "delta"),
    ],
)
def test_what_cannot_be_private_is_refused(settings, message):
    model = TensorHMM(2, emissions="categorical", n_symbols=3, epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=re.escape(message)):
        model.set_params(**settings).fit(np.arange(60) % 3, lengths=[3] * 20)


def test_rows_that_would_have_to_be_looked_at_are_refused():
    model = TensorHMM(2, emissions="categorical", n_symbols=3, epsilon=1.0, delta=1e-6)
    with pytest.raises(
        TypeError, match="Private symbols must be one column of a NumPy array of numbers"
    ):
        model.fit([0, 1, 2])
    with pytest.raises(ValueError, match="A private model is fitted to all sequences at once"):
        model.partial_fit(np.arange(60) % 3)


def test_a_plan_has_the_release_of_the_fit_and_says_what_can_be_found():
    settings = {"n_symbols": 6, "epsilon": 1.0, "delta": 1e-6}
    plan = plan_hmm(2, n_sequences=20_000, length=30, **settings)
    (release,) = plan.releases
    model = TensorHMM(2, emissions="categorical", random_state=0, **settings)
    (charge,) = model.fit(np.arange(60_000) % 6, lengths=[3] * 20_000).privacy_.charges
    assert release.noise == pytest.approx(charge.scale)
    assert plan.found
    assert not plan_hmm(5, n_sequences=100, length=20, **{**settings, "n_symbols": 20}).found
    assert "sequences of about 30 of 6 symbols" in str(plan)
