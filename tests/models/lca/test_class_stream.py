"""Respondents who arrive in batches: one pass, the same bits however they are cut, saved or
interrupted.
"""

from __future__ import annotations

import numpy as np
import pytest
from interrupts import moments_of, run_traced
from planted_answers import draw_classes, draw_codes

from odeco.errors import FileFormatError
from odeco.models import LatentClasses
from odeco.models.lca.spec import ClassSpec

TRUTH, QUESTIONS = draw_classes([3] * 9, 3, seed=0)
CODES, _ = draw_codes(TRUTH, QUESTIONS, 700, seed=1, missing=0.1)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few respondents, so that a short stream has some of both kinds and leaves some
    waiting.
    """
    monkeypatch.setattr(ClassSpec, "first_block", 200)
    monkeypatch.setattr(ClassSpec, "next_block", 70)


def learnt(model):
    return [model.class_weights_, *model.answer_probabilities_, np.array(model.log_likelihood_)]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(learnt(one), learnt(other), strict=True))


def begun(n_rows, **settings):
    return LatentClasses(3, random_state=0, **settings).partial_fit(CODES[:n_rows], categories=3)


#: Few steps, for tests that learn at every moment of an interrupt.
BRIEF = {"n_starts": 2, "max_iter": 3}


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cuts", [[1, 2, 199, 200, 201], [350], list(range(30, 690, 30))])
def test_the_result_does_not_depend_on_where_batches_end(cuts):
    whole, model = begun(700), LatentClasses(3, random_state=0)
    for batch in np.split(CODES, cuts):
        model.partial_fit(batch, categories=3)
    assert model.n_samples_seen_ == 700
    assert same(model, whole)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_rows", [1, 150, 200, 333])
def test_a_stream_that_is_saved_goes_on_to_the_same_bits(n_rows, tmp_path):
    begun(n_rows).save(tmp_path / "model.npz")
    model = LatentClasses.load(tmp_path / "model.npz").partial_fit(CODES[n_rows:])
    assert same(model, begun(700))


@pytest.mark.usefixtures("small_blocks")
def test_an_interrupt_leaves_a_stream_as_before_or_as_after():
    places = ("models/lca/estimator.py", "models/engine/stream.py", "models/engine/estimator.py")
    expected = begun(700, **BRIEF)

    def push(model):
        return lambda: model.partial_fit(CODES[150:420])

    moments = moments_of(push(begun(150, **BRIEF)), places)
    assert len(moments) > 50
    for moment in moments:
        model = begun(150, **BRIEF)
        run_traced(push(model), moment, places)
        n_rows = model.n_samples_seen_
        assert n_rows in (150, 420), moment
        if moment % 9 == 0:
            assert same(model.partial_fit(CODES[n_rows:]), expected), moment


def test_a_fit_that_is_interrupted_leaves_the_model_as_it_was():
    places = (
        "models/lca/estimator.py",
        "models/engine/estimator.py",
        "models/engine/spec.py",
        "models/engine/em.py",
    )
    other = np.random.default_rng(0).integers(0, 2, size=(40, 5))

    def fit(model):
        return lambda: model.fit(other)

    model = LatentClasses(2, **BRIEF, random_state=0).fit(CODES[:100])
    expected = model.predict_proba(CODES[:5])
    for moment in moments_of(fit(LatentClasses(2, **BRIEF, random_state=0)), places):
        run_traced(fit(model), moment, places)
        if model.n_features_in_ == 5:  # it was the last line
            model = LatentClasses(2, **BRIEF, random_state=0).fit(CODES[:100])
        assert np.array_equal(model.predict_proba(CODES[:5]), expected), moment


def test_a_bad_batch_leaves_the_stream_as_it_was():
    model = begun(100)
    before = model._learnt
    with pytest.raises(ValueError, match=r"x0 has np\.int64\(9\) in row 0"):
        model.partial_fit(np.full((3, 9), 9))
    with pytest.raises(ValueError, match="expecting 9 features"):
        model.partial_fit(CODES[:3, :4])
    assert model._learnt is before


@pytest.mark.slow
def test_one_pass_is_nearly_as_good_as_maximum_likelihood():
    n_rows = 3 * ClassSpec.first_block
    codes, _ = draw_codes(TRUTH, QUESTIONS, n_rows, seed=2, missing=0.2)
    new, _ = draw_codes(TRUTH, QUESTIONS, 10_000, seed=3, missing=0.2)
    model = LatentClasses(3, random_state=0).partial_fit(codes)
    ahead = TRUTH.posterior(QUESTIONS.indicators(new).astype(float))[1] - model.score_samples(new)
    p = 2 + 3 * QUESTIONS.n_free
    # Maximum likelihood from n respondents has a gap of p/2n. The first third of the stream alone
    # has three times that: a pass must be clearly below what the first block would be, and is
    # allowed twice the optimum.
    deviation = ahead.std() / np.sqrt(len(new))
    assert ahead.mean() < 2 * p / (2 * n_rows) + 4 * deviation + 4 * np.sqrt(p / 2) / n_rows


def test_a_stream_needs_as_many_respondents_as_classes_and_may_choose_their_number():
    assert 3 in LatentClasses("auto", random_state=0).partial_fit(CODES).selection_scores_
    model = LatentClasses(2).partial_fit(CODES[:1])
    with pytest.raises(
        ValueError, match=r"at least as many respondents as components\. Got n_samples=1"
    ):
        model.predict(CODES[:1])


def test_before_the_first_block_is_complete_a_stream_gives_what_fit_gives():
    assert same(begun(700), LatentClasses(3, random_state=0).fit(CODES, categories=3))


def test_numbers_that_single_precision_rounds_stay_the_answers_they_were(tmp_path):
    tenths = CODES[:100, :4] / 10 + 0.1
    model = LatentClasses(2, random_state=0).partial_fit(tenths)
    model.save(tmp_path / "model.npz")
    again = LatentClasses.load(tmp_path / "model.npz").partial_fit(tenths)
    assert again.categories_[0].tolist() == np.unique(tenths[:, 0]).tolist()
    assert again.predict(tenths).shape == (100,)


def test_a_fitted_model_is_read_as_it_was_written(tmp_path):
    texts = np.array(["no", "yes", 'it\'s "so"'])[np.maximum(CODES[:100, :4], 0)]
    model = LatentClasses(2, random_state=0).fit(texts)
    model.save(tmp_path / "model.npz")
    again = LatentClasses.load(tmp_path / "model.npz")
    assert same(model, again)
    assert [own.tolist() for own in again.categories_] == [
        own.tolist() for own in model.categories_
    ]
    assert np.array_equal(again.predict_proba(texts), model.predict_proba(texts))
    (tmp_path / "model.npz").write_bytes((tmp_path / "model.npz").read_bytes()[:-200])
    with pytest.raises(FileFormatError, match=r"model\.npz is not a complete odeco file"):
        LatentClasses.load(tmp_path / "model.npz")
