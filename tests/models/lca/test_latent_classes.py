"""Latent classes as an estimator: what is learnt, from which kinds of answers, and what is
refused.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from planted_answers import draw_classes, draw_codes
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from odeco.models import LatentClasses

#: How 216 students answered four yes/no questions on a conflict of roles (Stouffer and Toby 1951):
#: how many gave each of the sixteen patterns. Goodman (Biometrika 61, 1974) fits two classes with a
#: likelihood ratio of 2.720.
ROLE_CONFLICT = [42, 23, 6, 25, 6, 24, 7, 38, 1, 4, 1, 6, 2, 9, 2, 20]
PATTERNS = np.array([[(number >> bit) & 1 for bit in (3, 2, 1, 0)] for number in range(16)])


#: What scikit-learn tries with weights that this model cannot do; `test_weights.py` tests what it
#: can.
NOT_WITH_WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "respondents who were left out gave answers that no other gave"
    ),
}


@pytest.mark.slow
@parametrize_with_checks([LatentClasses()], expected_failed_checks=lambda _: NOT_WITH_WEIGHTS)
def test_it_is_an_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_two_classes_of_role_conflict_are_those_that_goodman_published():
    X = np.repeat(PATTERNS, ROLE_CONFLICT, axis=0)
    model = LatentClasses(2, smoothing=0, tol=1e-12, max_iter=5000, random_state=0).fit(X)
    expected = 216 * np.exp(model.score_samples(PATTERNS))
    ratio = 2 * np.sum(ROLE_CONFLICT * np.log(ROLE_CONFLICT / expected))
    assert ratio == pytest.approx(2.720, abs=5e-4)  # the digits that were published


@pytest.mark.parametrize(
    ("sizes", "k", "missing"),
    [
        ([4] * 12, 6, 0.0),
        ([3] * 15, 5, 0.3),
        ([2] * 18, 8, 0.3),
        ([2, 3, 4, 5, 2, 3, 4, 5, 6], 4, 0.1),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_classes_are_found_as_well_as_maximum_likelihood_can(sizes, k, missing, seed):
    truth, questions = draw_classes(sizes, k, seed)
    X, _ = draw_codes(truth, questions, 6_000, seed + 10, missing)
    new, _ = draw_codes(truth, questions, 6_000, seed + 20, missing)
    model = LatentClasses(k, random_state=seed).fit(X)
    p = k - 1 + k * questions.n_free
    # Wilks: n times the gap of new respondents is half a chi-square with p degrees of freedom, and
    # so is how much the respondents learnt from are likelier than under the truth. Four deviations;
    # that of the mean over new respondents comes on top, and is measured row by row.
    ahead = truth.posterior(questions.indicators(new).astype(float))[1] - model.score_samples(new)
    bound = (p / 2 + 4 * np.sqrt(p / 2)) / len(X) + 4 * ahead.std() / np.sqrt(len(new))
    assert ahead.mean() < bound
    of_truth = truth.posterior(questions.indicators(X).astype(float))[1].mean()
    assert model.score(X) > of_truth
    assert model.converged_


def test_probabilities_and_weights_are_those_of_the_classes():
    truth, questions = draw_classes([3] * 12, 3, seed=5, sharpness=0.3)
    X, labels = draw_codes(truth, questions, 8_000, seed=6)
    model = LatentClasses(3, random_state=0).fit(X)
    assert np.all(np.diff(model.class_weights_) <= 0)
    # Classes this sharp are told apart in all but a few respondents, so each is estimated from its
    # own respondents: a probability deviates by at most 1/(2 √n_h), and five deviations of the
    # smallest class bound all 108 of them.
    found = np.concatenate([part.T for part in model.answer_probabilities_])
    distance = np.abs(found[:, :, None] - truth.answers[:, None, :]).max(axis=0)
    match = distance.argmin(axis=1)
    assert sorted(match.tolist()) == [0, 1, 2]
    assert distance.min(axis=1).max() < 5 / (2 * np.sqrt(8_000 * truth.weights.min()))
    np.testing.assert_allclose(
        model.class_weights_, truth.weights[match], atol=5 / (2 * np.sqrt(8_000))
    )
    assert np.mean(match[model.predict(X)] == labels) > 0.95
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3])
def test_the_number_of_classes_is_found(k):
    truth, questions = draw_classes([3] * 12, k, seed=k)
    X, _ = draw_codes(truth, questions, 3_000, seed=1)
    model = LatentClasses("auto", random_state=0).fit(X)
    assert model.n_components_ == k
    assert k in model.selection_scores_


def test_the_number_of_threads_changes_no_bit(monkeypatch):
    truth, questions = draw_classes([3] * 9, 3, seed=0)
    X, _ = draw_codes(truth, questions, 5_000, seed=1, missing=0.1)
    found = []
    for threads in ("1", "4"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(LatentClasses(3, random_state=0).fit(X).answer_probabilities_)
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


# ---- kinds of answers ----------------------------------------------------------------------------


def table_of(codes):
    """Return the same answers as numbers with NaN, texts, categoricals, pandas integers and yes or
    no.
    """
    often = ["never", "sometimes", "often"]
    numbers = pd.Series(np.where(codes[:, 0] < 0, np.nan, codes[:, 0]))
    texts = pd.Series([None if code < 0 else often[code] for code in codes[:, 1]], dtype=object)
    ordered = pd.Series(pd.Categorical.from_codes(codes[:, 2], often, ordered=True))
    whole = pd.Series([pd.NA if code < 0 else int(code) for code in codes[:, 3]], dtype="Int64")
    strings = pd.Series(
        [pd.NA if code < 0 else often[code] for code in codes[:, 4]], dtype="string"
    )
    rest = {f"q{place}": codes[:, place] for place in range(5, codes.shape[1])}
    return pd.DataFrame(
        {
            "numbers": numbers,
            "texts": texts,
            "ordered": ordered,
            "whole": whole,
            "strings": strings,
            **rest,
        }
    )


def test_answers_of_every_kind_give_the_same_classes():
    truth, questions = draw_classes([3] * 8, 3, seed=2)
    codes, _ = draw_codes(truth, questions, 2_000, seed=3, missing=0.1)
    plain = LatentClasses(3, random_state=0).fit(codes)
    model = LatentClasses(3, random_state=0).fit(table_of(codes))
    assert [own.tolist() for own in model.categories_] == [
        [0.0, 1.0, 2.0],
        ["never", "often", "sometimes"],
        ["never", "sometimes", "often"],
        [0.0, 1.0, 2.0],
        ["never", "often", "sometimes"],
        *[[0, 1, 2]] * 3,
    ]
    # The order of answers differs in two questions, and nothing else; sums of the same numbers may
    # round differently.
    assert model.score(table_of(codes)) == pytest.approx(plain.score(codes), abs=1e-6)
    named = model.set_output(transform="pandas").transform(table_of(codes)[:5])
    assert list(named.columns) == ["latentclasses0", "latentclasses1", "latentclasses2"]
    assert "numbers = " in model.summary() or "texts = " in model.summary()
    drawn, _ = model.sample(3)
    assert drawn.shape == (3, 8)
    assert set(drawn[:, 1]) <= {"never", "sometimes", "often"}


def test_yes_and_no_and_texts_in_arrays_are_answers():
    rng = np.random.default_rng(0)
    bits = rng.random((60, 4)) < 0.5
    model = LatentClasses(2, random_state=0).fit(bits)
    assert [own.tolist() for own in model.categories_] == [[False, True]] * 4
    texts = np.where(bits, "yes", "no")
    as_texts = LatentClasses(2, random_state=0).fit(texts)
    assert np.array_equal(as_texts.predict(texts), model.predict(bits))
    assert np.array_equal(as_texts.predict(texts.astype(object)), model.predict(bits))


def test_minus_one_is_missing_unless_it_is_an_answer():
    votes = np.random.default_rng(0).integers(-1, 2, size=(50, 5))
    assert [own.tolist() for own in LatentClasses().fit(votes).categories_] == [[0, 1]] * 5
    assert [own.tolist() for own in LatentClasses(missing_values=None).fit(votes).categories_] == [
        [-1, 0, 1]
    ] * 5


def test_respondents_without_an_answer_belong_to_classes_as_all_do():
    truth, questions = draw_classes([3] * 6, 2, seed=0)
    X, _ = draw_codes(truth, questions, 500, seed=0)
    model = LatentClasses(2, random_state=0).fit(X)
    blank = np.full((1, 6), -1)
    np.testing.assert_allclose(model.predict_proba(blank)[0], model.class_weights_)
    assert model.score_samples(blank)[0] == pytest.approx(0, abs=1e-12)


def test_answers_can_be_named_and_unknown_ones_are_refused_or_missing():
    X = np.random.default_rng(0).integers(0, 3, size=(80, 4))
    model = LatentClasses(2, random_state=0).fit(X, categories=[4, [2, 1, 0], 3, 3])
    assert [own.size for own in model.categories_] == [4, 3, 3, 3]
    assert model.answer_probabilities_[0][:, 3] == pytest.approx(0, abs=1e-9)  # nobody gave it
    strange = X[:3].copy()
    strange[1, 2] = 7
    with pytest.raises(
        ValueError, match=r"was fitted\. x2 has np\.int64\(7\) in row 1\. Name all answers"
    ):
        model.predict(strange)
    blank = X[:3].copy()
    blank[1, 2] = -1
    tolerant = clone(model).set_params(handle_unknown="missing").fit(X)
    assert np.array_equal(tolerant.predict_proba(strange), tolerant.predict_proba(blank))


def test_a_series_is_refused_as_any_array_with_one_axis_is():
    with pytest.raises(ValueError, match=r"[Ee]xpected.* 2"):
        LatentClasses().fit(pd.Series([0, 1, 0, 1]))


def test_it_is_a_step_of_a_pipeline():
    X = np.random.default_rng(0).integers(0, 3, size=(80, 4))
    pipeline = make_pipeline(FunctionTransformer(), LatentClasses(2, random_state=0)).fit(X)
    assert pipeline.transform(X).shape == (80, 2)
    assert pipeline.predict(X).shape == (80,)


# ---- what is derived -----------------------------------------------------------------------------


def test_criteria_count_the_parameters():
    X = np.repeat(PATTERNS, ROLE_CONFLICT, axis=0)
    model = LatentClasses(2, random_state=0).fit(X)
    total = model.score_samples(X).sum()
    assert model.aic(X) == pytest.approx(-2 * total + 2 * 9)
    assert model.bic(X) == pytest.approx(-2 * total + 9 * np.log(216))
    assert model.score(X) == pytest.approx(total / 216)


def test_samples_are_of_the_model():
    truth, questions = draw_classes([2, 3, 4], 2, seed=1)
    X, _ = draw_codes(truth, questions, 1_000, seed=0)
    model = LatentClasses(2, random_state=0).fit(X)
    drawn, labels = model.sample(20_000, random_state=0)
    for place, probabilities in enumerate(model.answer_probabilities_):
        for h in range(2):
            seen = np.bincount(
                drawn[labels == h, place], minlength=probabilities.shape[1]
            ) / np.sum(labels == h)
            # Five deviations of a share of n respondents, each at most 1/(2 √n).
            assert np.abs(seen - probabilities[h]).max() < 5 / (2 * np.sqrt(np.sum(labels == h)))


def test_the_summary_begins_with_a_verdict():
    X = np.repeat(PATTERNS, ROLE_CONFLICT, axis=0)
    first, second, *_ = LatentClasses(2, random_state=0).fit(X).summary().splitlines()
    assert first == "2 classes."
    assert second.startswith("216 respondents to 4 questions; mean log-likelihood -2.3")
    # Four classes of four yes/no questions have 19 numbers; the table of 16 patterns has 15 to
    # explain.
    assert (
        "more than the questions can identify" in LatentClasses(4, random_state=0).fit(X).summary()
    )
    assert (
        "1 iterations were not enough"
        in LatentClasses(2, max_iter=1, tol=0, random_state=0).fit(X).summary()
    )


def test_the_summary_names_a_question_that_is_nearly_an_id():
    # Every fifth of 200 respondents shares the id of another: 160 different answers, and three
    # questions that depend.
    X = np.repeat(PATTERNS, ROLE_CONFLICT, axis=0)[:200]
    ids = np.where(np.arange(200) % 5 == 4, np.arange(200) - 1, np.arange(200))
    summary = LatentClasses(1, random_state=0).fit(np.column_stack([X, ids])).summary()
    assert "160 different answers, nearly as an id has" in summary
    assert summary.startswith(
        "One class: the model takes answers to different questions to be independent."
    )
    assert "as an id has" not in LatentClasses(1, random_state=0).fit(X).summary()


def test_the_picture_has_a_row_for_each_class_and_a_column_for_each_answer():
    X = np.repeat(PATTERNS, ROLE_CONFLICT, axis=0)
    model = LatentClasses(2, random_state=0).fit(X)
    figure = model.plot()
    image = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(image, np.hstack(model.answer_probabilities_))


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 0}, "`n_components` must be an int of at least 1"),
        ({"n_starts": 0}, "`n_starts` must be an int of at least 1"),
        ({"max_iter": 0}, "`max_iter` must be an int of at least 1"),
        ({"tol": -1}, "`tol` must be a number in"),
        ({"smoothing": -1}, "`smoothing` must be a number of at least 0"),
        ({"missing_values": [1]}, "`missing_values` must be a number, a text or None"),
        ({"handle_unknown": "ignore"}, "`handle_unknown` must be one of"),
        ({"epsilon": 1.0}, "A private model needs `epsilon` and `delta`. Got no `delta`"),
        ({"ledger": "x"}, "`ledger` is for private models"),
    ],
)
def test_settings_are_checked_before_anything_is_learnt(settings, message):
    model = LatentClasses().fit(PATTERNS)
    before = model.class_weights_
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        model.set_params(**settings).fit(PATTERNS)
    assert model.class_weights_ is before


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        (
            np.random.default_rng(0).random((300, 2)),
            ValueError,
            "at most 250 different answers. x0 has 300",
        ),
        (np.full((5, 2), np.nan), ValueError, "must have an answer. x0 has none"),
        (
            np.array([["a", 1], [2, 1]], dtype=object),
            ValueError,
            "all numbers or all texts. x0 has both",
        ),
        (pd.DataFrame({"x": [{1}, {2}]}), TypeError, "must be a string or a number. Got set"),
    ],
)
def test_what_is_no_answer_is_refused(X, kind, message):
    with pytest.raises(kind, match=message):
        LatentClasses().fit(X)


@pytest.mark.parametrize(
    "categories",
    [[2, 2], [[0, 0], 2, 2, 2], [[0, None], 2, 2, 2], [0, 2, 2, 2], [["a", 1], 2, 2, 2]],
)
def test_answers_that_cannot_be_are_refused(categories):
    with pytest.raises(ValueError, match=r"categories|answer"):
        LatentClasses().fit(PATTERNS, categories=categories)


def test_one_random_number_or_none_gives_classes_even_for_one_or_two_questions():
    for n_questions in (1, 2):
        model = LatentClasses(3, random_state=0).fit(PATTERNS[:, :n_questions])
        assert np.isfinite(model.score(PATTERNS[:, :n_questions]))
        assert "more than the questions can identify" in model.summary()


#: Patterns of answers to four questions with their frequencies (Dayton 1998), and the largest
#: log-likelihood that is published for two classes (manual of poLCA 1.6).
CHEATING = (
    "0000 207 1000 10 0100 13 1100 11 0010 7 1010 1 0110 1 1110 1 0001 46 1001 3 0101 4 1101 4 "
    "0011 5 1011 2 0111 2 1111 2"
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_published_maximum_is_reached_by_default(seed):
    words = CHEATING.split()
    X = np.repeat(
        [[int(cell) for cell in pattern] for pattern in words[::2]],
        [int(n) for n in words[1::2]],
        axis=0,
    )
    model = LatentClasses(2, random_state=seed).fit(X)
    assert model.score_samples(X).sum() == pytest.approx(-440.0271, abs=1e-3)
    assert "of the best 8 starts found the same likelihood" in model.summary()
    assert LatentClasses("auto", random_state=seed).fit(X).n_components_ == 2


def test_standard_errors_of_sharp_classes_are_those_of_known_classes():
    # If the class of each respondent is known, a probability p of n respondents has the standard
    # error √(p (1 − p) / n). Twelve questions of 0.9 and 0.1 leave one respondent in ten thousand
    # in doubt. Scores estimate the information to within about √(2 / n) of it, here 6 %, of which
    # five are allowed.
    rng = np.random.default_rng(0)
    truth = rng.random(2000) < 0.3
    X = (rng.random((2000, 12)) < np.where(truth, 0.9, 0.1)[:, None]).astype(int)
    X[rng.random(X.shape) < 0.1] = -1
    model = LatentClasses(2, random_state=0).fit(X)
    weights, answers = model.standard_errors(X)
    np.testing.assert_allclose(weights, np.sqrt(0.3 * 0.7 / 2000), rtol=0.1)
    for question, (errors, own) in enumerate(
        zip(answers, model.answer_probabilities_, strict=True)
    ):
        n = np.array([np.sum((X[:, question] >= 0) & (model.predict(X) == h)) for h in range(2)])
        np.testing.assert_allclose(errors, np.sqrt(own * (1 - own) / n[:, None]), rtol=0.3)


def test_standard_errors_of_too_many_probabilities_are_refused():
    X = np.random.default_rng(0).integers(50, size=(100, 40))
    with pytest.raises(ValueError, match="at most 3,000 probabilities"):
        LatentClasses(3, n_starts=1, max_iter=1).fit(X).standard_errors(X)
