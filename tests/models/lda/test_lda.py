"""TensorLDA: topics that were planted are found, in one go and in a stream; what cannot be done is
said.
"""

from __future__ import annotations

import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from odeco import FileFormatError
from odeco.datasets import planted_topics
from odeco.errors import UnreliableTopicsWarning, WordCountError
from odeco.models import TensorLDA

pytestmark = pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")

#: Three topics over six words, and how far apart they are in L1: 2 (0.35 + 0.35) = 1.4.
FIXTURE_TOPICS = np.full((3, 6), 0.05) + 0.35 * np.repeat(np.eye(3), 2, axis=1)
FIXTURE_DISTANCE = 1.4


def distances(found, truth):
    """L1 distances of topics from the true ones, paired so that their sum is smallest."""
    table = np.abs(found[:, None, :] - truth[None]).sum(axis=2)
    rows, columns = linear_sum_assignment(table)
    return table[rows, columns][np.argsort(columns)]


#: scikit-learn wants at least one iteration of every estimator with `max_iter`; without sweeps
#: there is none.
SPECTRAL = TensorLDA(2, max_iter=0, random_state=0)


#: scikit-learn tries weights with numbers that are no counts.
NO_COUNTS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "documents are counts of words"
    for kind in ("dense", "sparse")
}


@pytest.mark.slow
@parametrize_with_checks(
    [TensorLDA(2), SPECTRAL],
    expected_failed_checks=lambda model: (
        NO_COUNTS | ({"check_transformer_n_iter": "no sweeps"} if model is SPECTRAL else {})
    ),
)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def test_the_fixture_is_recovered():
    # A topic is recovered if it is nearer to its own than to any other: its error is below half of
    # their distance.
    corpus = planted_topics(5000, 6, [20, 10, 5], topics=FIXTURE_TOPICS, rng=0)
    told = TensorLDA(3, doc_topic_concentration=35.0, max_iter=0, random_state=0).fit(corpus.counts)
    errors = distances(told.topic_word_, corpus.topics)
    assert errors.max() < FIXTURE_DISTANCE / 2
    # Largest first: 20, 10, 5 in that order.
    assert np.argmin(
        np.abs(told.topic_word_[:, None] - corpus.topics).sum(axis=2), axis=1
    ).tolist() == [0, 1, 2]
    assert told.doc_topic_prior_.sum() == pytest.approx(35)
    chosen = TensorLDA(3, max_iter=0, random_state=0).fit(corpus.counts)
    assert distances(chosen.topic_word_, corpus.topics).max() < FIXTURE_DISTANCE / 2


def test_sixteen_times_the_documents_take_away_at_least_half_of_the_error():
    # Errors of moments fall as 1/√n, so to a quarter; half leaves room for the spread of one draw
    # of each.
    errors = []
    for n_documents in (1000, 16_000):
        corpus = planted_topics(n_documents, 100, [0.3, 0.2, 0.2, 0.1], document_length=50, rng=1)
        model = TensorLDA(4, doc_topic_concentration=0.8, max_iter=0, random_state=0).fit(
            corpus.counts
        )
        errors.append(distances(model.topic_word_, corpus.topics).mean())
    assert errors[1] < errors[0] / 2


def test_refinement_lowers_the_error_of_a_rough_start():
    # 400 short documents over 300 words: the spectral topics are rough, and the likelihood uses
    # every word.
    corpus = planted_topics(400, 300, [0.1] * 5, document_length=60, rng=2)
    rough, refined = (TensorLDA(5, max_iter=n, random_state=0).fit(corpus.counts) for n in (0, 30))
    assert (
        distances(refined.topic_word_, corpus.topics).mean()
        < distances(rough.topic_word_, corpus.topics).mean()
    )
    assert refined.perplexity(corpus.counts) < rough.perplexity(corpus.counts)


@pytest.mark.parametrize("refine", [0, 3])
def test_a_stream_ends_as_near_to_the_truth_as_all_documents_at_once(refine):
    # Only what lies outside the basis is dropped, which is noise: the stream may be off from the
    # fit by no more than the fit is off from the truth.
    corpus = planted_topics(6000, 150, [0.3, 0.2, 0.2, 0.1], document_length=60, rng=3)
    whole = TensorLDA(4, max_iter=0, random_state=0).fit(corpus.counts)
    stream = TensorLDA(4, max_iter=refine, random_state=0)
    for start in range(0, 6000, 300):
        stream.partial_fit(corpus.counts[start : start + 300])
    error = distances(whole.topic_word_, corpus.topics).mean()
    assert distances(stream.topic_word_, whole.topic_word_).mean() < error
    assert stream.n_samples_seen_ == 6000


@pytest.mark.parametrize("refine", [0, 2])
def test_topics_of_a_stream_keep_their_names(refine):
    corpus = planted_topics(3000, 80, [0.3] * 4, document_length=60, rng=4)
    stream = TensorLDA(4, max_iter=refine, random_state=0)
    names = None
    for start in range(0, 3000, 250):
        stream.partial_fit(corpus.counts[start : start + 250])
        nearest = np.argmin(
            np.abs(stream.topic_word_[:, None] - corpus.topics).sum(axis=2), axis=1
        ).tolist()
        names = names or nearest
        assert nearest == names


def test_a_stream_forgets_what_it_is_told_to_forget():
    before = planted_topics(4000, 60, [0.3] * 3, document_length=50, rng=5)
    after = planted_topics(4000, 60, [0.3] * 3, document_length=50, rng=6)
    errors = {}
    for forget in (None, 500):
        stream = TensorLDA(3, max_iter=0, forget=forget, random_state=0)
        for corpus in (before, after):
            for start in range(0, 4000, 200):
                stream.partial_fit(corpus.counts[start : start + 200])
        errors[forget] = distances(stream.topic_word_, after.topics).mean()
    # After 8 half-lives 1/256 of the weight is old. Without forgetting it is half, and six topics
    # share three places.
    apart = distances(before.topics, after.topics).mean()
    assert errors[500] < apart / 4 < errors[None]


@pytest.mark.parametrize("refine", [0, 2])
def test_a_saved_stream_goes_on_to_the_last_bit(tmp_path, refine):
    corpus = planted_topics(1500, 50, [0.3] * 3, document_length=30, rng=7)
    settings = {"max_iter": refine, "forget": 1000.0, "random_state": 0}
    left_alone, stopped = TensorLDA(3, **settings), TensorLDA(3, **settings)
    for index, start in enumerate(range(0, 1500, 150)):
        batch = corpus.counts[start : start + 150]
        left_alone.partial_fit(batch)
        stopped.partial_fit(batch)
        if index in (0, 3, 4):
            stopped.save(tmp_path / "topics.npz")
            stopped = TensorLDA.load(tmp_path / "topics.npz")
    for name in ("topic_word_", "doc_topic_prior_", "components_"):
        np.testing.assert_array_equal(getattr(stopped, name), getattr(left_alone, name))
    assert stopped.n_samples_seen_ == 1500
    np.testing.assert_array_equal(
        stopped.diagnostics_.eigenvalues, left_alone.diagnostics_.eigenvalues
    )


def test_a_saved_model_is_the_same_model(tmp_path):
    pandas = pytest.importorskip("pandas")
    corpus = planted_topics(300, 8, [0.3] * 2, document_length=30, rng=8)
    frame = pandas.DataFrame(corpus.counts.toarray(), columns=[f"word{i}" for i in range(8)])
    model = TensorLDA(2, max_iter=2, random_state=0).fit(frame)
    model.save(tmp_path / "topics.npz")
    again = TensorLDA.load(tmp_path / "topics.npz")
    assert again.get_params() == model.get_params()
    assert again.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    assert again.perplexity(frame) == model.perplexity(frame)
    assert again.diagnostics_.explained == model.diagnostics_.explained
    frame.to_csv(tmp_path / "topics.csv")
    with pytest.raises(FileFormatError, match=r"topics\.csv is not a complete odeco file"):
        TensorLDA.load(tmp_path / "topics.csv")


def test_a_model_with_a_generator_is_not_saved(tmp_path):
    corpus = planted_topics(300, 8, [0.3] * 2, document_length=30, rng=8)
    model = TensorLDA(2, max_iter=0, random_state=np.random.RandomState(0)).fit(corpus.counts)
    with pytest.raises(
        ValueError,
        match=r"`random_state` must be None or an int for a model to be saved\. Got Random",
    ):
        model.save(tmp_path / "topics.npz")
    assert not (tmp_path / "topics.npz").exists()


def test_one_thread_and_many_give_the_same_bits():
    corpus = planted_topics(3000, 200, [0.3] * 4, rng=9)
    assert corpus.counts.nnz > 2**16  # so that threads are used at all
    models = [
        TensorLDA(4, max_iter=2, random_state=0, n_jobs=n_jobs).fit(corpus.counts)
        for n_jobs in (1, None)
    ]
    np.testing.assert_array_equal(models[0].topic_word_, models[1].topic_word_)


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 3, 8])
def test_the_spectrum_tells_how_many_topics_there_are(k):
    # With topics on disjoint words the k-th eigenvalue of pairs is at least about αⱼ/α₀(α₀+1) ‖μⱼ‖²
    # for the smallest topic, 1/k · 1/2 · 1/(160/k) = 1/320 here, some hundred times the noise level
    # 2 √(max f / n l(l−1)) ≈ 3e-5.
    topics = np.repeat(np.eye(k), 160 // k, axis=1)
    topics /= topics.sum(axis=1, keepdims=True)
    corpus = planted_topics(4000, topics.shape[1], [1 / k] * k, topics=topics, rng=10)
    model = TensorLDA("auto", max_iter=0, random_state=0).fit(corpus.counts)
    assert model.n_components_ == k == model.diagnostics_.n_clear
    assert model.topic_word_.shape[0] == k


def test_standard_errors_of_eigenvalues_are_their_spread_between_corpora():
    # Eight groups give a standard error to within 1/√14 = 27 %, thirty corpora the spread to 13 %;
    # the mean over four eigenvalues is within a factor of two at more than three standard
    # deviations.
    values, errors = [], []
    topics = np.random.default_rng(11).dirichlet(np.full(40, 0.2), size=4)
    for seed in range(30):
        corpus = planted_topics(
            400, 40, [0.4, 0.3, 0.2, 0.1], topics=topics, document_length=40, rng=seed
        )
        diagnostics = (
            TensorLDA(4, doc_topic_concentration=1.0, max_iter=0, random_state=0)
            .fit(corpus.counts)
            .diagnostics_
        )
        values.append(diagnostics.eigenvalues[:4])
        errors.append(diagnostics.eigenvalue_errors[:4])
    ratio = np.mean(np.mean(errors, axis=0) / np.std(values, axis=0, ddof=1))
    assert 0.5 < ratio < 2


def test_too_few_documents_are_warned_about_with_advice():
    corpus = planted_topics(30, 200, [0.1] * 10, document_length=10, rng=12)
    with pytest.warns(UnreliableTopicsWarning) as caught:
        model = TensorLDA(10, max_iter=0, random_state=0).fit(corpus.counts)
    message = str(caught[0].message)
    n_bad = int(np.sum(~model.diagnostics_.reliable))
    assert n_bad > 0
    assert message.startswith(
        "All topics must stand clear of noise to be trusted. Of the 10 directions of word pairs "
        f"that they rest on, {n_bad} are not clear of noise, with 30 documents of 10.0 words on "
        "average. Pass more or longer documents"
    )
    np.testing.assert_allclose(model.topic_word_.sum(axis=1), 1)
    enough = planted_topics(3000, 20, [0.3] * 3, rng=12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TensorLDA(3, max_iter=0, random_state=0).fit(enough.counts)


def test_identical_documents_have_one_direction_and_still_give_topics():
    # The second moment has rank one, so nine of ten topics are drawn at random; none may be NaN.
    model = TensorLDA(4, max_iter=0, random_state=0).fit(np.tile([3, 2, 1, 1, 1], (20, 1)))
    np.testing.assert_allclose(model.topic_word_.sum(axis=1), 1)
    assert np.isfinite(model.doc_topic_prior_).all()
    assert np.isnan(model.diagnostics_.weights).any() or not model.diagnostics_.reliable.all()


def test_empty_documents_are_counted_and_get_the_prior():
    corpus = planted_topics(500, 20, [0.4, 0.2], document_length=30, rng=13)
    counts = sparse.csr_array(
        sparse.vstack([corpus.counts, sparse.csr_array((7, 20), dtype=np.int64)])
    )
    model = TensorLDA(2, max_iter=2, random_state=0).fit(counts)
    assert model.diagnostics_.n_empty == 7
    assert model.diagnostics_.n_documents == 507
    expected = model.doc_topic_prior_ / model.doc_topic_prior_.sum()
    np.testing.assert_allclose(model.transform(counts[-2:]), np.tile(expected, (2, 1)), atol=1e-9)


@pytest.mark.parametrize("refine", [0, 2])
def test_components_are_counts_that_give_the_topics(refine):
    corpus = planted_topics(500, 20, [0.4, 0.2], document_length=30, rng=14)
    model = TensorLDA(2, max_iter=refine, random_state=0).fit(corpus.counts)
    normalised = model.components_ / model.components_.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(normalised, model.topic_word_, atol=1e-12)
    # All words, and the prior for each of the 2 x 20 places; counts of the sweeps are summed in
    # single precision.
    expected = corpus.counts.sum() + 40 * model.topic_word_prior_
    assert model.components_.sum() == pytest.approx(expected, rel=1e-5)
    assert model.get_feature_names_out().tolist() == ["tensorlda0", "tensorlda1"]
    assert model.score(corpus.counts) == pytest.approx(
        -np.log(model.perplexity(corpus.counts)) * corpus.counts.sum()
    )


def test_transform_finds_the_proportions_that_documents_were_drawn_with():
    # With 2,000 words a proportion is known to about √(p(1−p)/2000) ≤ 0.011 times how much topics
    # overlap; the error of the topics adds as much as their L1 distance. Five times that is never
    # reached.
    corpus = planted_topics(2000, 50, [0.5, 0.5], document_length=2000, rng=15)
    model = TensorLDA(2, max_iter=0, random_state=0).fit(corpus.counts)
    errors = distances(model.topic_word_, corpus.topics)
    order = np.argmin(np.abs(model.topic_word_[:, None] - corpus.topics).sum(axis=2), axis=0)
    apart = np.abs(corpus.topics[0] - corpus.topics[1]).sum() / 2
    found = model.transform(corpus.counts)[:, order]
    assert np.abs(found - corpus.proportions).max() < 5 * (0.011 + errors.max()) / apart


def test_pandas_comes_out_if_asked_for():
    pandas = pytest.importorskip("pandas")
    corpus = planted_topics(300, 8, [0.3] * 2, document_length=30, rng=8)
    model = TensorLDA(2, max_iter=0, random_state=0).set_output(transform="pandas")
    shown = model.fit_transform(corpus.counts.toarray())
    assert isinstance(shown, pandas.DataFrame)
    assert shown.columns.tolist() == ["tensorlda0", "tensorlda1"]


USABLE = np.array([[2, 1, 1], [1, 2, 1], [1, 1, 2], [3, 0, 1]])


@pytest.mark.parametrize(
    ("settings", "counts", "message"),
    [
        (
            {"n_components": 2},
            [[1, 1, 0], [0, 0, 0]],
            "At least one document must hold three words. Got 2 documents, 1 of them empty, and a "
            "vocabulary of n_features=3. Join short documents, or loosen the pruning of the "
            "vocabulary.",
        ),
        (
            {"n_components": 2},
            -USABLE,
            (
                "Word counts must not be negative. Negative values in data: counts[0, 0] = -2. "
                "Check how it was made."
            ),
        ),
        (
            {"n_components": 2},
            USABLE / 2,
            "Word counts must be whole numbers. Got counts[0, 1] = 0.5. Pass counts, such as "
            "those of CountVectorizer, not frequencies or tf-idf.",
        ),
        ({"n_components": 0}, USABLE, "`n_components` must be an int of at least 1. Got 0."),
        (
            {"n_components": 2, "max_iter": -1},
            USABLE,
            "`max_iter` must be an int of at least 0. Got -1.",
        ),
        (
            {"n_components": 2, "doc_topic_concentration": 0},
            USABLE,
            (
                "`doc_topic_concentration` must be a number of at least 1e-30 and at most 1e+30. "
                "Got 0."
            ),
        ),
        (
            {"n_components": 2, "forget": -5},
            USABLE,
            "`forget` must be a number of at least 1e-30 and at most 1e+30. Got -5.",
        ),
    ],
)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_what_cannot_be_done_is_refused(settings, counts, message, method):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        getattr(TensorLDA(**settings), method)(counts)


def test_a_batch_that_is_refused_changes_nothing():
    corpus = planted_topics(400, 20, [0.4, 0.2], document_length=30, rng=16)
    stream = TensorLDA(2, max_iter=0, random_state=0).partial_fit(corpus.counts[:200])
    before = stream.topic_word_.copy()
    bad = corpus.counts[200:].toarray()
    with pytest.raises(
        ValueError, match="X has 19 features, but TensorLDA is expecting 20 features as input"
    ):
        stream.partial_fit(bad[:, 1:])
    with pytest.raises(ValueError, match="Word counts must not be negative"):
        stream.partial_fit(-bad)
    np.testing.assert_array_equal(stream.topic_word_, before)
    assert stream.n_samples_seen_ == 200
    untouched = TensorLDA(2, max_iter=0, random_state=0).partial_fit(corpus.counts[:200])
    for model in (stream, untouched):
        model.partial_fit(corpus.counts[200:])
    np.testing.assert_array_equal(stream.topic_word_, untouched.topic_word_)


def test_the_number_of_topics_of_a_stream_is_not_left_to_the_data():
    with pytest.raises(
        ValueError,
        match=r"`n_components` must be an int for partial_fit\. Got 'auto'\. Fit a first part",
    ):
        TensorLDA("auto").partial_fit(USABLE)


def test_what_is_not_learnt_is_not_there():
    model = TensorLDA(2)
    assert not hasattr(model, "components_")
    with pytest.raises(
        AttributeError, match=r"`topic_word_` must be learnt first\. This TensorLDA is not fitted\."
    ):
        _ = model.topic_word_
    with pytest.raises(NotFittedError):
        model.transform(USABLE)


@pytest.mark.parametrize(
    ("method", "for_texts"),
    [("fit", "fit_text"), ("partial_fit", "fit_text"), ("transform", "transform_text")],
)
@pytest.mark.parametrize("container", [list, tuple, np.array])
def test_texts_in_place_of_counts_name_the_method_for_texts(method, for_texts, container):
    model = TensorLDA(2, max_iter=0, random_state=0).fit(USABLE)
    with pytest.raises(WordCountError, match=rf"Got texts\. Call {for_texts}"):
        getattr(model, method)(container(["a text", "another"]))


def test_a_number_of_topics_whose_moment_would_fill_the_memory_is_refused_at_once():
    # The third moment of 817 topics has 817³ numbers, 4.1 GiB; it was computed for minutes without
    # a word.
    corpus = planted_topics(1_000, 900, [0.1] * 3, document_length=50, rng=0)
    for method in ("fit", "partial_fit"):
        with pytest.raises(
            ValueError, match=r"`n_components` must be at most 502 for these documents.*1 GiB"
        ):
            getattr(TensorLDA(817, max_iter=0, random_state=0), method)(corpus.counts)


def test_four_threads_that_push_batches_lose_no_document():
    corpus = planted_topics(1_680, 12, [0.5, 0.5], document_length=20, rng=0)
    model = TensorLDA(2, max_iter=0, random_state=0).partial_fit(corpus.counts[:80])
    batches = [corpus.counts[start : start + 40] for start in range(80, 1_680, 40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(model.partial_fit, batches))
    assert model.n_samples_seen_ == 1_680
    assert model.diagnostics_.n_tokens == int(corpus.counts.sum())


def test_a_summary_begins_with_a_verdict_and_names_the_words_of_every_topic():
    corpus = planted_topics(2_000, 30, [0.3, 0.2, 0.1], rng=0)
    model = TensorLDA(3, max_iter=0, random_state=0).fit(
        corpus.counts, words=[f"word{place}" for place in range(30)]
    )
    verdict, support, fact, *rest = model.summary().splitlines()
    topics = [line for line in rest if line.split()[0].isdigit()]
    assert verdict == "3 topics."
    assert support == "All directions of word pairs that they rest on stand clear of noise."
    assert "2,000 documents" in fact
    assert [line.split()[0] for line in topics] == ["0", "1", "2"]
    assert all(
        top[0] in line for top, line in zip(model.top_words(1, relevance=0.6), topics, strict=True)
    )
    # The heat map and its scale, and the strength of the directions of word pairs.
    assert len(model.plot().axes) == 3
