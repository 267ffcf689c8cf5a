"""TensorHMM: models that were planted are found, in one go and in a stream; what cannot be done is
said.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from interrupts import moments_of, run_traced
from planted_hmms import begins_of, pairing, symbols_hmm, vectors_hmm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from odeco import FileFormatError
from odeco._util.files import load_arrays, save_arrays
from odeco.models import TensorHMM
from odeco.models.hmm.spec import HMMSpec

SYMBOLS = symbols_hmm()
VECTORS = vectors_hmm()


def drawn(hmm, n_rows, seed=0):
    return hmm.sample(n_rows, np.random.default_rng(seed))


def mean_likelihood(hmm, rows):
    return hmm.log_likelihoods(rows, begins_of(len(rows), len(rows))).mean()


#: What scikit-learn tries with weights that this model cannot do; `test_weights.py` tests what it
#: can.
NOT_WITH_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "all rows are one sequence, which has one weight"
    ),
    "check_sample_weights_not_overwritten": "all rows are one sequence, which has one weight",
}


@pytest.mark.slow
@parametrize_with_checks(
    [TensorHMM(random_state=0)], expected_failed_checks=lambda _: NOT_WITH_WEIGHTS
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_a_model_of_symbols_is_found():
    rows, states = drawn(SYMBOLS, 40_000)
    model = TensorHMM(4, random_state=0).fit(rows)
    order = pairing(model.emissionprob_, SYMBOLS.emissions.probabilities)
    # The rarest state has 4,000 rows or more. If half of what is known about their states is lost,
    # counts of 12 symbols err by some sum of sqrt(p / 2,000) / 2 <= sqrt(12 / 2,000) / 2 = 0.04 in
    # total variation; twice that is allowed.
    errors = np.abs(model.emissionprob_[order] - SYMBOLS.emissions.probabilities).sum(axis=1) / 2
    assert SYMBOLS.stationary.min() > 0.1
    assert errors.max() < 0.08
    assert np.abs(model.transmat_[np.ix_(order, order)] - SYMBOLS.transitions).max() < 0.08
    np.testing.assert_allclose(model.stationary_[order], SYMBOLS.stationary, atol=0.08)
    # 4 (11 + 3) + 3 free numbers cost half a row each: 59 / 2 / 40,000 = 0.0007 nats; three times
    # that is allowed.
    fresh, _ = drawn(SYMBOLS, 40_000, seed=1)
    assert model.score(fresh) > mean_likelihood(SYMBOLS, fresh) - 0.0022
    # Paths of the model are as good as those of the truth: within three standard deviations of a
    # share of 40,000 rows.
    truly = np.mean(SYMBOLS.viterbi(rows, begins_of(40_000, 40_000))[0] == states)
    assert np.mean(np.argsort(order)[model.predict(rows)] == states) > truly - 3 * 0.5 / 200


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_a_model_of_vectors_is_found_even_where_only_spreads_differ(covariance_type):
    truth = vectors_hmm(full=covariance_type == "full")
    rows, _ = drawn(truth, 10_000)
    model = TensorHMM(3, covariance_type=covariance_type, random_state=0).fit(rows)
    spreads = (
        model.covars_ if covariance_type == "diag" else np.diagonal(model.covars_, axis1=1, axis2=2)
    )
    true_spreads = np.diagonal(vectors_hmm(True).emissions.covariances, axis1=1, axis2=2)
    order = pairing(
        np.hstack([model.means_, spreads]), np.hstack([truth.emissions.means, true_spreads])
    )
    # The rarest state has some 2,500 rows, a standard deviation of at most 2, and rows that are
    # told apart with some error: 2 / sqrt(2,500) = 0.04, of which five are allowed.
    assert np.abs(model.means_[order] - truth.emissions.means).max() < 0.2
    assert np.abs(spreads[order] / true_spreads - 1).max() < 0.2
    # At most 3 (5 + 2) + 2 free numbers of half a row each: 0.0012 nats; three times that is
    # allowed.
    fresh, _ = drawn(truth, 10_000, seed=1)
    assert model.score(fresh) > mean_likelihood(truth, fresh) - 0.0036


def test_steps_do_not_stop_short_of_the_truth():
    rows, _ = drawn(SYMBOLS, 20_000)
    rough = TensorHMM(4, max_iter=0, random_state=0).fit(rows)
    model = TensorHMM(4, random_state=0).fit(rows)
    assert rough.score(rows) < model.score(rows)
    assert model.score(rows) > mean_likelihood(
        SYMBOLS, rows
    )  # it is fitted to these rows, and the truth is not


@pytest.mark.slow
@pytest.mark.parametrize("hmm", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_the_number_of_states_is_found(hmm):
    rows, _ = drawn(hmm, 12_000)
    model = TensorHMM("auto", random_state=0).fit(rows)
    assert model.n_components_ == hmm.n_states
    assert model.selection_scores_[hmm.n_states] > model.selection_scores_[hmm.n_states - 1]
    assert f"Cross-validation chose {hmm.n_states} states" in model.summary()


def test_lengths_say_where_sequences_begin():
    # Every sequence begins with symbol 0, and has it nowhere else: the state that emits it is that
    # of the start.
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 3, size=900)
    rows[::3] = 0
    told = TensorHMM(2, random_state=0).fit(rows, lengths=[3] * 300)
    assert told.startprob_[told.emissionprob_[:, 0].argmax()] > 0.99
    assert told.predict(rows, lengths=[3] * 300).shape == (900,)
    assert told.score(rows, lengths=[3] * 300) != told.score(rows)
    with pytest.raises(
        ValueError,
        match=re.escape("sum to the number of rows, 900. Got 2 of type int64 that sum to 7."),
    ):
        told.fit(rows, lengths=[3, 4])
    with pytest.raises(ValueError, match="Pass lengths by name"):
        TensorHMM(3).fit(rows, [3] * 300)
    for bad in ([0, 900], [-1, 901], [450.0, 450.0], [[900]]):
        with pytest.raises(ValueError, match="`lengths` must be whole numbers of at least 1"):
            told.predict(rows, lengths=bad)


def test_short_sequences_and_few_symbols_are_learnt_too():
    rows = np.random.default_rng(0).integers(2, size=400)
    for model, lengths in (
        (TensorHMM(3, random_state=0), None),
        (TensorHMM(2, random_state=0), [2] * 200),
    ):
        model.fit(rows, lengths=lengths)
        assert np.isfinite(model.score(rows, lengths=lengths))


def test_likelihoods_of_rows_add_up_to_the_score():
    rows, _ = drawn(VECTORS, 500)
    model = TensorHMM(3, random_state=0).fit(rows)
    lengths = [100, 400]
    assert model.score_samples(rows, lengths).mean() == pytest.approx(
        model.score(rows, lengths=lengths)
    )
    likelihood, path = model.decode(rows, lengths)
    assert likelihood < 500 * model.score(rows, lengths=lengths)  # one path of all
    np.testing.assert_array_equal(path, model.predict(rows, lengths))
    np.testing.assert_allclose(model.predict_proba(rows, lengths).sum(axis=1), 1)


@pytest.mark.parametrize("hmm", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_what_is_drawn_from_a_model_is_like_it(hmm):
    rows, _ = drawn(hmm, 5000)
    model = TensorHMM(hmm.n_states, random_state=0).fit(rows)
    again, states = model.sample(5000, random_state=0)
    assert again.shape == (5000, 2 if hmm is VECTORS else 1)
    # Standard deviations of shares and means over 5,000 rows that stay some rows in a state: below
    # 0.03; five of them.
    assert np.abs(np.bincount(states) / 5000 - model.stationary_).max() < 0.15
    assert abs(model.score(again) - model.score(rows)) < 0.15
    np.testing.assert_array_equal(
        model.sample(7, random_state=1)[1], model.sample(7, random_state=1)[1]
    )
    assert model.sample(1, random_state=3)[0].shape[0] == 1


# ---- streams -------------------------------------------------------------------------------------


@pytest.fixture
def short_blocks(monkeypatch):
    monkeypatch.setattr(HMMSpec, "first_block", 3000)
    monkeypatch.setattr(HMMSpec, "next_block", 500)


def fed(model, rows, cuts, begins):
    """Feed rows in batches: those that do not begin a sequence go on with the last."""
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        inside = np.flatnonzero(begins[first:last])
        places = np.unique(np.append(0, inside))
        model.partial_fit(
            rows[first:last],
            lengths=np.diff(np.append(places, last - first)),
            goes_on=not begins[first],
        )
    return model


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("hmm", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_a_stream_does_not_depend_on_where_batches_end(hmm, tmp_path):
    rows, _ = drawn(hmm, 6200)
    begins = begins_of(6200, 100, 2000, 1, 4000, 99)
    setting = {"n_symbols": 12} if hmm is SYMBOLS else {}
    whole = fed(TensorHMM(3, random_state=0, **setting), rows, [], begins)
    cut = fed(
        TensorHMM(3, random_state=0, **setting), rows, [50, 100, 2999, 3000, 3001, 6100], begins
    )
    resumed = fed(TensorHMM(3, random_state=0, **setting), rows[:4100], [700], begins)
    resumed.save(tmp_path / "model.npz")
    resumed = TensorHMM.load(tmp_path / "model.npz")
    resumed.partial_fit(rows[4100:6101], goes_on=True).partial_fit(rows[6101:])
    for name, expected in whole._learnt.stream.to_arrays("stream").items():
        np.testing.assert_array_equal(cut._learnt.stream.to_arrays("stream")[name], expected)
        np.testing.assert_array_equal(resumed._learnt.stream.to_arrays("stream")[name], expected)
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)
    assert whole.n_samples_seen_ == 6200
    assert whole.n_iter_ == 8  # a first block, six whole ones, and the rows that wait


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("hmm", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_a_stream_goes_on_learning(hmm):
    rows, _ = drawn(hmm, 60_000)
    fresh, _ = drawn(hmm, 20_000, seed=1)
    setting = {"n_symbols": 12} if hmm is SYMBOLS else {}
    first = TensorHMM(hmm.n_states, random_state=0, **setting).partial_fit(rows[:3000])
    gap = mean_likelihood(hmm, fresh) - first.score(fresh)
    # The cost of free numbers falls as one over the number of rows: to a twentieth, of which a half
    # must be seen.
    later = first.partial_fit(rows[3000:], goes_on=True)
    assert mean_likelihood(hmm, fresh) - later.score(fresh) < gap / 2


def test_a_stream_before_its_first_block_is_full_is_a_fit():
    rows, _ = drawn(VECTORS, 900)
    stream = (
        TensorHMM(3, random_state=0).partial_fit(rows[:400]).partial_fit(rows[400:], goes_on=True)
    )
    np.testing.assert_array_equal(stream.means_, TensorHMM(3, random_state=0).fit(rows).means_)


@pytest.mark.slow
@pytest.mark.usefixtures("short_blocks")
def test_an_interrupt_leaves_a_stream_as_it_was_or_as_it_is_after():
    rows, _ = drawn(VECTORS, 4000)
    settings = {"max_iter": 3, "random_state": 0}
    expected = TensorHMM(3, **settings).partial_fit(rows[:2000]).partial_fit(rows[2000:]).means_
    places = ("models/hmm/estimator.py", "models/engine/stream.py", "models/engine/estimator.py")
    moments = moments_of(
        lambda: TensorHMM(3, **settings).partial_fit(rows[:2000]).partial_fit(rows[2000:]), places
    )
    assert len(moments) > 60
    before = TensorHMM(3, **settings).partial_fit(rows[:2000])
    for moment in moments[::8]:
        model = clone(before)
        model.__dict__.update(before.__dict__)
        run_traced(lambda model=model: model.partial_fit(rows[2000:]), moment, places)
        assert model._learnt.stream.n_seen in (2000, 4000)
        if model._learnt.stream.n_seen == 2000:
            model.partial_fit(rows[2000:])
        np.testing.assert_array_equal(model.means_, expected)


# ---- faces ---------------------------------------------------------------------------------------


def test_names_of_features_are_in_summary_and_picture():
    rows, _ = drawn(VECTORS, 600)
    model = TensorHMM(3, random_state=0).fit(pd.DataFrame(rows, columns=["wind", "rain"]))
    assert model.summary().startswith("3 states.")
    assert "rain" in model.summary()
    labels = [label.get_text() for axes in model.plot().axes for label in axes.get_xticklabels()]
    assert {"wind", "rain"} <= set(labels)


def test_a_model_of_symbols_has_summary_and_picture():
    rows, _ = drawn(SYMBOLS, 600)
    model = TensorHMM(2, max_iter=1, random_state=0).fit(rows)
    assert "Not checked on halves" in model.summary()
    assert "Fitted to 600 rows of 12 symbols" in model.summary()
    assert "1 iterations were not enough to converge; raise max_iter." in model.summary()
    assert "probability of x0" in [axes.get_ylabel() for axes in model.plot().axes]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["symbols", "diag", "full"])
def test_there_is_no_verdict_on_states_where_rows_are_independent(kind, seed):
    # Under independence, the further parameters of two states gain half a nat each; BIC asks for
    # log(2,000) / 2 = 3.8.
    rng = np.random.default_rng(seed)
    rows = (
        rng.integers(4, size=2000)
        if kind == "symbols"
        else rng.standard_normal((2000, 2)) @ [[1, 0.5], [0, 1]]
    )
    settings = {} if kind == "symbols" else {"covariance_type": kind}
    if kind == "diag":
        rows = rng.standard_normal((2000, 2))
    model = TensorHMM(2, random_state=0, **settings).fit(rows)
    assert model.summary().startswith("One state explains the data better than 2 states do (BIC).")


def test_it_stands_in_a_pipeline():
    rows, _ = drawn(VECTORS, 2000)
    alone = TensorHMM(3, random_state=0).fit(StandardScaler().fit_transform(rows))
    within = make_pipeline(StandardScaler(), TensorHMM(3, random_state=0)).fit(rows)
    np.testing.assert_array_equal(
        within.predict(rows), alone.predict(StandardScaler().fit_transform(rows))
    )


@pytest.mark.parametrize("factor", [2.0**-60, 2.0**60])
def test_vectors_in_another_unit_have_the_same_states(factor):
    rows, _ = drawn(VECTORS, 1500)
    model = TensorHMM(3, random_state=0).fit(rows)
    scaled = TensorHMM(3, random_state=0).fit(rows * factor)
    np.testing.assert_allclose(scaled.transmat_, model.transmat_, rtol=1e-6)
    np.testing.assert_allclose(scaled.means_, model.means_ * factor, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("bad", ["large", "one outlier", "small"])
def test_numbers_whose_squares_overflow_or_underflow_are_refused_in_plain_words(
    bad, covariance_type
):
    rows, _ = drawn(VECTORS, 600)
    good = TensorHMM(2, covariance_type=covariance_type, random_state=0).fit(rows)
    if bad == "one outlier":
        rows[17, 1] = 1e200
    else:
        rows *= 1e200 if bad == "large" else 1e-200
    with pytest.raises(ValueError, match=r"(divide|Multiply) all rows by a constant"):
        TensorHMM(2, covariance_type=covariance_type, random_state=0).fit(rows)
    if bad != "small":
        with pytest.raises(ValueError, match="divide all rows by a constant"):
            good.predict(rows)


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_rows_far_from_all_states_have_a_finite_posterior(covariance_type):
    rows, _ = drawn(VECTORS, 600)
    model = TensorHMM(2, covariance_type=covariance_type, random_state=0).fit(1e-30 * rows)
    np.testing.assert_allclose(model.predict_proba([[1e139, -1e139], [0.0, 0.0]]).sum(axis=1), 1)


def test_more_states_than_rows_are_refused_at_once():
    for rows in (np.arange(5) % 3, np.random.default_rng(0).standard_normal((5, 2))):
        with pytest.raises(ValueError, match="at least 1000 rows for n_components=1000"):
            TensorHMM(1000).fit(rows)


def test_constant_rows_have_a_model():
    model = TensorHMM(2, random_state=0).fit(np.full((50, 2), 7.0))
    np.testing.assert_allclose(model.means_, 7)
    assert np.isfinite(model.score(np.full((5, 2), 7.0)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "`n_components` must be an int of at least 1. Got 0."),
        (
            {"emissions": "gamma"},
            "`emissions` must be one of 'auto', 'categorical', 'gaussian', 'poisson'. Got 'gamma'.",
        ),
        (
            {"covariance_type": "tied"},
            "`covariance_type` must be one of 'diag', 'full'. Got 'tied'.",
        ),
        ({"max_iter": -1}, "`max_iter` must be an int of at least 0. Got -1."),
        ({"tol": -1.0}, "`tol` must be a number of at least 0, and finite. Got -1.0."),
        ({"n_symbols": 2}, "whole numbers from 0 below the number of symbols, 2. Got 2 in row 2."),
        ({"n_symbols": 5, "emissions": "gaussian"}, "`n_symbols` is for symbols."),
    ],
)
def test_bad_settings_are_refused_and_change_nothing(settings, message):
    rows = np.arange(30) % 3
    model = TensorHMM(2, random_state=0).fit(rows)
    before = model.emissionprob_
    with pytest.raises(ValueError, match=re.escape(message)):
        model.set_params(**settings).fit(rows)
    assert model.emissionprob_ is before
    assert model.n_features_in_ == 1


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match=re.escape("Got -1 in row 1.")):
        TensorHMM(2, emissions="categorical").fit([0, -1, 2, 1])
    with pytest.raises(ValueError, match=re.escape("Got 0.5 in row 0.")):
        TensorHMM(2, emissions="categorical").fit([[0.5], [1.0], [2.0]])
    with pytest.raises(
        ValueError, match=re.escape("Symbols must stand in one column. Got 2 columns.")
    ):
        TensorHMM(2, emissions="categorical").fit(np.zeros((5, 2), int))
    model = TensorHMM(2, random_state=0).fit(np.arange(30) % 3)
    with pytest.raises(
        ValueError, match=re.escape("below the number of symbols, 3. Got 3 in row 0")
    ):
        model.predict([3, 1, 2])
    with pytest.raises(AttributeError, match="Only a model of vectors has `means_`"):
        _ = model.means_
    with pytest.raises(NotFittedError):
        TensorHMM(2).sample()
    with pytest.raises(ValueError, match="`n_symbols` must be given for partial_fit"):
        TensorHMM(2).partial_fit([0, 1, 2])


# ---- names of symbols ----------------------------------------------------------------------------


def test_texts_are_symbols_and_their_names_stay_with_the_model(tmp_path):
    codes = np.arange(600) // 5 % 3
    texts = np.array(["rain", "sun", "fog"])[codes]
    model = TensorHMM(2, max_iter=3, random_state=0).fit(texts)
    assert model.symbol_names_ == ["fog", "rain", "sun"]
    assert "sun (" in model.summary()
    labels = [label.get_text() for axes in model.plot().axes for label in axes.get_xticklabels()]
    assert {"fog", "rain", "sun"} <= set(labels)
    model.save(tmp_path / "model.npz")
    again = TensorHMM.load(tmp_path / "model.npz")
    assert again.symbol_names_ == model.symbol_names_
    for asked in (texts, texts.tolist(), texts.astype(object)[:, None], np.array([1, 2, 0])[codes]):
        np.testing.assert_array_equal(again.predict(asked), model.predict(texts))
    table = pd.DataFrame({"weather": texts})
    assert "weather is" in TensorHMM(2, max_iter=3, random_state=0).fit(table).summary()
    with pytest.raises(
        ValueError, match=re.escape("among the names of the model. Got 'snow' in row 1.")
    ):
        model.predict(["sun", "snow"])


def test_names_can_be_given_and_a_stream_keeps_them(tmp_path):
    texts = np.array(["rain", "sun", "fog"])[np.arange(600) // 5 % 3]
    names = ["sun", "rain", "fog", "snow"]
    model = TensorHMM(2, max_iter=3, random_state=0).fit(texts, symbol_names=names)
    assert model.emissionprob_.shape == (2, 4)
    stream = TensorHMM(2, max_iter=3, random_state=0).partial_fit(texts[:300], symbol_names=names)
    stream.save(tmp_path / "model.npz")
    stream = TensorHMM.load(tmp_path / "model.npz").partial_fit(texts[300:], goes_on=True)
    assert stream.symbol_names_ == names
    np.testing.assert_array_equal(stream.emissionprob_, model.emissionprob_)
    numbers = TensorHMM(2, max_iter=3, random_state=0).fit(np.arange(30) % 3)
    assert numbers.symbol_names_ == ["0", "1", "2"]


def test_names_that_do_not_fit_are_refused():
    texts = ["a", "b"] * 20
    with pytest.raises(ValueError, match=re.escape("Got 2 names, 1 of them distinct.")):
        TensorHMM(2).fit(texts, symbol_names=["a", "a"])
    with pytest.raises(ValueError, match=re.escape("n_symbols=3 of them. Got 2 names")):
        TensorHMM(2, n_symbols=3).fit(texts, symbol_names=["a", "b"])
    with pytest.raises(ValueError, match="`symbol_names` is for symbols"):
        TensorHMM(2).fit(np.zeros((20, 2)), symbol_names=["a", "b"])
    with pytest.raises(ValueError, match="`n_symbols` must be given for partial_fit"):
        TensorHMM(2).partial_fit(texts)
    model = TensorHMM(2).partial_fit(texts, symbol_names=["a", "b"])
    with pytest.raises(ValueError, match="`symbol_names` must be those of the first batch"):
        model.partial_fit(texts, symbol_names=["b", "a"])
    with pytest.raises(AttributeError, match="Only a model of symbols has `symbol_names_`"):
        _ = TensorHMM(2).fit(np.random.default_rng(0).standard_normal((30, 2))).symbol_names_


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hmm", [SYMBOLS, VECTORS], ids=["symbols", "vectors"])
def test_a_file_gives_the_same_model(hmm, tmp_path):
    rows, _ = drawn(hmm, 800)
    model = TensorHMM(3, random_state=0).fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorHMM.load(tmp_path / "model.npz")
    assert again.score(rows) == model.score(rows)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.sample(20, 0)[0], model.sample(20, 0)[0])


def test_a_file_with_a_move_that_cannot_be_is_refused(tmp_path):
    model = TensorHMM(2, random_state=0).fit(np.arange(30) % 3)
    model.save(tmp_path / "model.npz")
    header, arrays = load_arrays(tmp_path / "model.npz", "hidden Markov model")
    for bad in (np.eye(2), np.full((2, 2), 0.4)):
        save_arrays(
            tmp_path / "bad.npz",
            "hidden Markov model",
            header,
            {**arrays, "fit.params.transitions": bad},
        )
        with pytest.raises(FileFormatError, match=r"bad\.npz.*`fit\.params\.transitions`"):
            TensorHMM.load(tmp_path / "bad.npz")


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("carry", np.array([0.5, 0.4])),
        ("carry", np.zeros(3)),
        ("statistics.emissions", -np.ones((2, 3))),
        ("statistics.emissions", np.ones((2, 4))),
        ("statistics.n", np.array(2999.0)),
        ("context.n_symbols", np.array(4)),
        ("buffer", np.array([[0.0, 3.0]] * 100)),
        ("buffer", np.array([[0.0, 1.0, 1.0]] * 100)),
    ],
)
def test_a_damaged_stream_is_refused(name, value, tmp_path):
    TensorHMM(2, n_symbols=3, max_iter=1, random_state=0).partial_fit(
        np.arange(3600) // 5 % 3
    ).save(tmp_path / "m.npz")
    header, arrays = load_arrays(tmp_path / "m.npz", "hidden Markov model")
    assert f"stream.{name}" in arrays
    save_arrays(
        tmp_path / "bad.npz", "hidden Markov model", header, {**arrays, f"stream.{name}": value}
    )
    with pytest.raises(FileFormatError, match=r"bad\.npz"):
        TensorHMM.load(tmp_path / "bad.npz")


def counts_of_two_states(n=600):
    rng = np.random.default_rng(5)
    states = np.repeat(rng.integers(2, size=n // 20), 20)
    return rng.poisson(np.array([[3.0, 20.0], [9.0, 20.0]])[states]), states


def test_rates_of_counts_are_found(tmp_path):
    # A rate λ of 200 rows or more deviates by √(λ / 200), at most 0.32; five of these.
    rows, states = counts_of_two_states()
    model = TensorHMM(2, emissions="poisson", random_state=0).fit(rows)
    order = np.argsort(model.rates_[:, 0])
    np.testing.assert_allclose(model.rates_[order], [[3, 20], [9, 20]], atol=1.6)
    assert np.mean(np.argsort(order)[model.predict(rows)] == states) > 0.9
    assert model.bic(rows) > model.aic(rows) > -2 * model.score_samples(rows).sum()
    assert "2 counts" in model.summary()
    drawn_rows, _ = model.sample(50, random_state=0)
    assert np.array_equal(drawn_rows, np.floor(drawn_rows))
    model.save(tmp_path / "model.npz")
    assert np.array_equal(TensorHMM.load(tmp_path / "model.npz").rates_, model.rates_)
    with pytest.raises(ValueError, match="Counts must be whole numbers from 0"):
        model.predict(rows + 0.5)
    with pytest.raises(AttributeError, match="Only a model of vectors has"):
        model.means_  # noqa: B018
    with pytest.raises(AttributeError, match="Only a model of counts has"):
        TensorHMM(2).fit(rows.astype(float)).rates_  # noqa: B018


def test_a_stream_of_counts_gives_what_a_fit_gives():
    rows, _ = counts_of_two_states()
    whole = TensorHMM(2, emissions="poisson", random_state=0).fit(rows)
    stream = TensorHMM(2, emissions="poisson", random_state=0)
    for batch in np.array_split(rows, 4):
        stream.partial_fit(batch, goes_on=True)
    assert np.array_equal(stream.rates_, whole.rates_)


def test_whole_numbers_that_may_be_counts_are_not_taken_as_symbols():
    rows, _ = counts_of_two_states()
    with pytest.raises(ValueError, match="may be symbols, counts or measurements"):
        TensorHMM(2).fit(rows[:, 1])
    assert (
        TensorHMM(2, emissions="categorical", random_state=0).fit(rows[:, 1]).emissionprob_.shape[0]
        == 2
    )


def test_sequences_may_be_given_by_name():
    rows, _ = counts_of_two_states()
    names = np.repeat(["b", "a", "c"], 200)
    by_name = TensorHMM(2, emissions="poisson", random_state=0).fit(rows, lengths=names)
    by_length = TensorHMM(2, emissions="poisson", random_state=0).fit(rows, lengths=[200] * 3)
    assert np.array_equal(by_name.rates_, by_length.rates_)
    assert np.array_equal(by_name.predict(rows, names), by_length.predict(rows, [200] * 3))
    with pytest.raises(ValueError, match="must be neighbours"):
        by_name.predict(rows, np.roll(names, 100))


def test_a_state_that_is_left_for_good_is_called_transient():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(10, 1, size=(40, 1)), rng.normal(0, 1, size=(200, 1))])
    text = TensorHMM(2, random_state=0).fit(rows).summary()
    assert "transient, left for good after 40.0 rows" in text
