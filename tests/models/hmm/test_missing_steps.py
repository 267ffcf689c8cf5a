"""Missing values in hidden Markov models: likelihoods are sums over what is missing, and what is
planted is found.
"""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from planted_hmms import begins_of, pairing, symbols_hmm, vectors_hmm
from scipy.stats import multivariate_normal, poisson

from odeco.models import TensorHMM
from odeco.models.hmm.baum_welch import HMM, baum_welch
from odeco.models.hmm.emissions import Poisson
from odeco.models.hmm.spec import HMMSpec


def counts_hmm():
    moves = np.array([[0.9, 0.1], [0.2, 0.8]])
    return HMM(
        np.full(2, 0.5), moves, Poisson(np.array([[1.0, 6.0], [8.0, 2.0]]), np.array([4.0, 4.0]))
    )


MODELS = {
    "vectors": lambda: vectors_hmm(full=False),
    "vectors, full": lambda: vectors_hmm(full=True),
    "counts": counts_hmm,
}


def density(emissions, state, row):
    """Return the likelihood of the observed columns of a row."""
    seen = ~np.isnan(row)
    if not seen.any():
        return 1.0
    mean = emissions.means[state][seen]
    if isinstance(emissions, Poisson):
        return float(np.prod(poisson(mean).pmf(row[seen])))
    own = emissions.covariances[state]
    return multivariate_normal(
        mean, (own if own.ndim == 2 else np.diag(own))[np.ix_(seen, seen)]
    ).pdf(row[seen])


@pytest.mark.parametrize("name", MODELS)
def test_likelihood_posterior_and_path_are_those_of_the_observed_values(name):
    hmm, lengths = MODELS[name](), (5, 3)
    rng = np.random.default_rng(0)
    rows = np.concatenate([hmm.sample(length, rng)[0] for length in lengths])
    rows[1, 0] = rows[3, 1] = rows[4] = rows[5] = np.nan
    begins, total, best, posterior = begins_of(8, *lengths), 0.0, [], np.zeros((8, hmm.n_states))
    for first, length in zip(np.flatnonzero(begins), lengths, strict=True):
        paths = {}
        for path in product(range(hmm.n_states), repeat=length):
            moves = [hmm.initial[path[0]], *(hmm.transitions[a, b] for a, b in pairwise(path))]
            emitted = [
                density(hmm.emissions, state, rows[first + t]) for t, state in enumerate(path)
            ]
            paths[path] = float(np.prod(moves) * np.prod(emitted))
        whole = sum(paths.values())
        total += np.log(whole)
        best += max(paths, key=paths.get)
        for path, probability in paths.items():
            posterior[first + np.arange(length), path] += probability / whole
    assert hmm.log_likelihoods(rows, begins).sum() == pytest.approx(total, rel=1e-10)
    np.testing.assert_allclose(hmm.posterior(rows, begins), posterior, atol=1e-10)
    assert hmm.viterbi(rows, begins)[0].tolist() == best


def test_the_likelihood_with_a_missing_symbol_is_the_sum_over_symbols():
    hmm = symbols_hmm(3, 5)
    rows, begins = hmm.sample(30, np.random.default_rng(0))[0], begins_of(30, 20, 10)
    gaps = rows.copy()
    gaps[[4, 25]] = 5
    scores = []
    for one, other in product(range(5), repeat=2):
        rows[[4, 25]] = one, other
        scores.append(hmm.log_likelihoods(rows, begins).sum())
    assert hmm.log_likelihoods(gaps, begins).sum() == pytest.approx(np.logaddexp.reduce(scores))
    statistics = hmm.e_step(gaps, begins)
    assert statistics.emissions.sum() == pytest.approx(28)
    assert statistics.transitions.sum() == pytest.approx(28)


@pytest.mark.parametrize("name", [*MODELS, "symbols"])
def test_no_iteration_lowers_the_likelihood(name):
    hmm = symbols_hmm(3, 6) if name == "symbols" else MODELS[name]()
    rows, begins = hmm.sample(600, np.random.default_rng(0))[0], begins_of(600, 600)
    hidden = np.random.default_rng(1).random(np.shape(rows)) < 0.3
    gaps = np.where(hidden, 6, rows) if name == "symbols" else np.where(hidden, np.nan, rows)
    at = baum_welch(hmm.split(np.random.default_rng(2)), gaps, begins, max_iter=1, tol=0.0).params
    scores = []
    for _ in range(25):
        statistics = at.e_step(gaps, begins)
        scores.append(statistics.log_likelihood / 600)
        at = at.m_step(statistics)
    # The M step maximises with a prior of at most a tenth of a row per state, of which there are
    # six.
    assert np.diff(scores).min() > -0.6 / 600
    assert scores[-1] > scores[0]


@pytest.mark.parametrize("full", [False, True])
def test_planted_states_are_found_in_spite_of_gaps(full):
    truth, n = vectors_hmm(full), 6000
    rows, path = truth.sample(n, np.random.default_rng(3))
    gaps = np.where(np.random.default_rng(4).random(rows.shape) < 0.2, np.nan, rows)
    gaps[1000:1050] = np.nan
    model = TensorHMM(3, covariance_type="full" if full else "diag", random_state=0).fit(gaps)
    order = pairing(
        np.hstack([model.means_, model.covars_.reshape(3, -1)]),
        np.hstack([truth.emissions.means, truth.emissions.covariances.reshape(3, -1)]),
    )
    # Five standard errors of means and variances: of the rows of a state, 80 % have a column and 64
    # % both. States can be told apart in most rows; what rows of uncertain states lose is taken as
    # another half.
    shares = np.bincount(path, minlength=3) * 0.64 / 2
    deviations = np.sqrt(truth.emissions.variances)
    assert np.all(
        np.abs(model.means_[order] - truth.emissions.means)
        < 5 * deviations / np.sqrt(shares)[:, None]
    )
    found = model._learnt.fit.params.emissions.variances[order]
    assert np.all(
        np.abs(found - truth.emissions.variances) < 5 * deviations**2 * np.sqrt(2 / shares)[:, None]
    )
    errors = np.sqrt(truth.transitions * (1 - truth.transitions) / shares[:, None])
    assert np.all(np.abs(model.transmat_[np.ix_(order, order)] - truth.transitions) < 5 * errors)


def test_planted_rates_and_symbols_are_found_in_spite_of_gaps():
    truth, n = counts_hmm(), 4000
    rows, path = truth.sample(n, np.random.default_rng(0))
    hidden = np.random.default_rng(1).random(n) < 0.2
    gaps = np.where(np.random.default_rng(2).random(rows.shape) < 0.2, np.nan, rows)
    model = TensorHMM(2, emissions="poisson", random_state=0).fit(gaps)
    order = pairing(model.rates_, truth.emissions.means)
    errors = np.sqrt(
        truth.emissions.means / (0.8 * np.bincount(path)[:, None] / 2)
    )  # half, for uncertain states
    assert np.all(np.abs(model.rates_[order] - truth.emissions.means) < 5 * errors)

    truth = symbols_hmm(2, 6, seed=3)
    rows, _ = truth.sample(n, np.random.default_rng(0))
    gaps = np.where(hidden, np.nan, rows)[:, None]
    model = TensorHMM(2, emissions="categorical", random_state=0).fit(gaps)
    # The log-likelihood of observed symbols is above that under the truth by half of a χ² variable,
    # for many rows, with as many degrees of freedom as there are free numbers: 1 + 2 + 10. Five
    # deviations above its mean are allowed.
    gain = n * (
        model.score(gaps) - truth.log_likelihoods(np.where(hidden, 6, rows), begins_of(n, n)).mean()
    )
    assert 0 < gain < 13 / 2 + 5 * np.sqrt(13 / 2)


def test_rows_to_come_are_forecast_by_missing_ones():
    truth = vectors_hmm()
    rows, _ = truth.sample(300, np.random.default_rng(0))
    model = TensorHMM(3, random_state=0).fit(rows)
    last = model.predict_proba(rows)[-1]
    coming = model.predict_proba(np.vstack([rows, np.full((3, 2), np.nan)]))[-3:]
    for step in range(3):
        np.testing.assert_allclose(
            coming[step], last @ np.linalg.matrix_power(model.transmat_, step + 1), atol=1e-10
        )
    np.testing.assert_allclose(
        model.score_samples(np.vstack([rows, np.full((3, 2), np.nan)]))[-3:], 0.0, atol=1e-12
    )


def test_texts_and_codes_may_be_missing():
    truth = symbols_hmm(2, 4)
    rows, _ = truth.sample(400, np.random.default_rng(0))
    hidden = np.random.default_rng(1).random(400) < 0.2
    codes = np.where(hidden, np.nan, rows)[:, None]
    texts = np.array(list("abcd"), dtype=object)[rows]
    texts[hidden] = None
    model = TensorHMM(2, emissions="categorical", random_state=0).fit(codes)
    for given in (texts[:, None], pytest.importorskip("pandas").DataFrame({"event": texts})):
        other = TensorHMM(2, random_state=0).fit(given)
        np.testing.assert_array_equal(other.emissionprob_, model.emissionprob_)
        assert other.symbol_names_ == list("abcd")
        np.testing.assert_array_equal(other.predict(given), model.predict(codes))
    with pytest.raises(ValueError, match="from 0 to 3, some of which are missing"):
        TensorHMM(2).fit(codes)
    with pytest.raises(ValueError, match="Column 0 has none"):
        TensorHMM(2, emissions="categorical", n_symbols=4).fit(np.full((50, 1), np.nan))
    with pytest.raises(ValueError, match="Column 1 has none"):
        TensorHMM(2).fit(np.column_stack([rows + 0.5, np.full(400, np.nan)]))


@pytest.mark.parametrize("name", ["vectors", "counts", "symbols"])
def test_a_stream_with_gaps_does_not_depend_on_batches(name, monkeypatch, tmp_path):
    monkeypatch.setattr(HMMSpec, "first_block", 300)
    monkeypatch.setattr(HMMSpec, "next_block", 100)
    truth = symbols_hmm(2, 6) if name == "symbols" else MODELS[name]()
    rows, _ = truth.sample(560, np.random.default_rng(0))
    rows = rows[:, None] if name == "symbols" else rows
    gaps = np.where(np.random.default_rng(1).random(rows.shape) < 0.2, np.nan, rows)
    gaps[340:350] = np.nan
    how = {
        "symbols": {"emissions": "categorical", "n_symbols": 6},
        "counts": {"emissions": "poisson"},
    }.get(name, {})
    whole = TensorHMM(2, random_state=0, **how).partial_fit(gaps)
    pieces = TensorHMM(2, random_state=0, **how).partial_fit(gaps[:345])
    pieces.save(tmp_path / "model.npz")
    pieces = TensorHMM.load(tmp_path / "model.npz").partial_fit(gaps[345:], goes_on=True)
    np.testing.assert_array_equal(whole.transmat_, pieces.transmat_)
    assert np.isfinite(whole.score(gaps))
