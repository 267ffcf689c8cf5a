"""Private topics: planted ones are found, in batches and with public documents too, and what is called clear is so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from sklearn.base import clone

from odeco._util.files import load_arrays, save_arrays
from odeco.datasets import planted_topics
from odeco.errors import FileFormatError, UnreliableTopicsWarning
from odeco.models import TensorLDA, choose_vocabulary_privately, plan_topics
from odeco.models.lda.deconvolve import deconvolve, expected_centres
from odeco.models.lda.private import learn_privately
from odeco.models.lda.private_plan import plan_releases, signal_of, similarity
from odeco.privacy import gdp_mu
from odeco.privacy.calibration import epsilon_of
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.noise import SeededNoiseForTests
from odeco.privacy.sums import PrivateSums


@pytest.mark.slow
def test_an_attacker_who_knows_all_but_the_noise_certifies_the_claimed_mu_and_not_more():
    # One document of three words against three others: nothing in common, so that every release gives all of its share.
    # The histogram of lengths is the same for both and gives nothing: 1 % of mu squared.
    # Rates near 0.16 from 1,000 runs have a standard error of 0.0116, and mu, of slope 1/0.24 in each, one of 0.068.
    mu, n_runs = 2.0, 1_000
    held = [BoundedCounts(np.kron([[1.0, 0.0], [0.0, 1.0]][i : i + 1], np.full(3, 12.0))) for i in range(2)]
    plan, guarantee = plan_releases(6, 2, 1.0), Guarantee(epsilon_of(mu, 1e-3), 1e-3)
    topics, scales, words = np.random.default_rng(0).dirichlet(np.ones(6), 2), np.ones(6), np.arange(6)
    queries = [
        [each.words(), each.pairs(words), *(each.responsibilities(topics, scales, 0.5) for _ in plan.steps)]
        for each in held
    ]
    shares, exact = [plan.words, plan.pairs, *plan.steps], [[query.answer() for query in each] for each in queries]
    wrong = []
    for truth in range(2):
        noise, mistakes = SeededNoiseForTests(truth), 0
        for _ in range(n_runs):
            sums, ratio = PrivateSums(guarantee, 1, record="document", noise=noise), 0.0
            for query, share, first, second in zip(queries[truth], shares, *exact, strict=True):
                answer, scale = sums.release(query, share=share)
                ratio += float(np.sum((answer - (first + second) / 2) * (second - first))) / scale**2
            mistakes += (ratio > 0) != bool(truth)
        wrong.append(mistakes / n_runs)
    certified = -ndtri(wrong[0]) - ndtri(wrong[1])
    assert 0.87 * mu < certified < 1.12 * mu


# ---- the estimator -------------------------------------------------------------------------------------------------


def topic_error(found, truth):
    """Return the mean L1 distance of topics to the true ones, each with its own."""
    distances = np.abs(found[:, None] - truth[None]).sum(axis=2)
    first, second = linear_sum_assignment(distances)
    return float(distances[first, second].mean())


@pytest.mark.slow
def test_planted_topics_of_100_000_documents_are_found_at_epsilon_1():
    # The bar: L1 error below 0.3.
    corpus = planted_topics(100_000, 60, [0.3, 0.25, 0.2, 0.15, 0.1], document_length=50, rng=0)
    model = TensorLDA(5, epsilon=1.0, delta=1e-10, random_state=0).fit(corpus.counts)
    assert topic_error(model.topic_word_, corpus.topics) < 0.3
    assert model.diagnostics_.n_clear == 5
    assert model.privacy_.private
    assert 0.999 < model.privacy_.epsilon_spent <= 1.0
    assert model.privacy_.unit == "document"


def test_every_release_has_noise_for_its_share_of_the_budget():
    corpus = planted_topics(3_000, 20, [0.5, 0.5], document_length=30, rng=1)
    spec, held = TensorLDA(2, epsilon=2.0, delta=1e-6)._specify(), BoundedCounts(corpus.counts)
    _, privacy = learn_privately(spec, held, spec.Context(), seed=0, noise=SeededNoiseForTests(0))
    mu = gdp_mu(2.0, 1e-6)
    plan = plan_releases(20, 2, signal_of(3_000, mu, "replace"))
    assert not privacy.private  # the noise is known
    shares = (plan.lengths, plan.words, plan.pairs, *plan.steps)
    assert sum(shares) == pytest.approx(1.0)
    for charge, share in zip(privacy.charges, shares, strict=True):
        assert charge.sensitivity / charge.scale == pytest.approx(math.sqrt(share) * mu, rel=1e-6)
        assert charge.sensitivity >= math.sqrt(2)


@pytest.mark.slow
def test_deep_in_noise_hardly_a_topic_is_clear_and_a_warning_says_so():
    # What is promised is that hardly a topic of nothing but noise is clear: here at most one in nine, 2 of 18.
    # `benchmarks/private_trust.py noise` has found none of 144.
    corpus = planted_topics(300, 40, [0.5, 0.5], document_length=10, rng=2)
    n_clear = 0
    for seed in range(6):
        with pytest.warns(
            UnreliableTopicsWarning,
            match=r"of 3 topics (is|are) not clear of noise, with 300 documents\. Pass more or longer documents",
        ):
            model = TensorLDA(3, epsilon=0.1, delta=1e-6, random_state=seed).fit(corpus.counts)
        assert model.diagnostics_.n_clear == int(model.trust_.clear.sum())
        assert model.diagnostics_.n_tokens is None  # not even the number of words is told
        n_clear += model.diagnostics_.n_clear
    assert n_clear <= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_topic_that_is_called_clear_is_one():
    # From deep in noise to far above it. Clear says that at least half of what sets a topic apart is signal; of topics
    # that are called clear at least four in five must be: the similarity is an expectation, one draw lies around it.
    right = n_clear = n_noise = 0
    for epsilon in (0.05, 0.2, 0.4, 2.0):
        corpus = planted_topics(8_000, 150, np.full(6, 0.15), document_length=40, rng=1)
        model = TensorLDA(6, epsilon=epsilon, delta=1e-9, random_state=1).fit(corpus.counts)
        actual = similarity(model.topic_word_, corpus.topics, corpus.topics.mean(axis=0))
        clear = model.trust_.clear
        n_clear += int(clear.sum())
        right += int(np.sum(actual[clear] >= 0.5**0.5))
        n_noise += int(np.sum(actual < 0.5**0.5))
    assert right >= 0.8 * n_clear
    assert n_clear >= 5
    assert n_noise >= 5  # there were topics to be wrong about


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_the_weights_of_words_deviate_under_other_noise_as_much_as_is_said():
    # The same documents with two draws of noise: the difference has twice the variance. What is said is measured on
    # fewer and smoothed documents, so it may be too large; too small by half would leave words in that are noise.
    corpus = planted_topics(20_000, 60, np.full(3, 0.2), document_length=40, rng=0)
    first, second = (TensorLDA(3, epsilon=1.0, delta=1e-9, random_state=0).fit(corpus.counts) for _ in range(2))
    distances = np.abs(first.topic_word_[:, None] - second.topic_word_[None]).sum(axis=2)
    order = linear_sum_assignment(distances)[1]
    moved = first.topic_word_ - second.topic_word_[order]
    said = math.sqrt(2) * first.trust_.deviations
    ratio = float(np.sqrt(np.mean(moved**2) / np.mean(said**2)))
    assert 0.02 < ratio < 1.5


# Whether topics stand clear is up to the noise, and not what is tested here.
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_users_count_once_and_are_the_unit():
    corpus = planted_topics(4_000, 20, [0.5, 0.5], document_length=30, rng=3)
    groups = np.arange(4_000) // 4
    model = TensorLDA(2, epsilon=4.0, delta=1e-6, unit="user", random_state=0).fit(corpus.counts, groups=groups)
    assert model.privacy_.unit == "user"
    assert "all documents of one user" in model.privacy_.neighbours
    assert model.privacy_.charges[0].sensitivity == pytest.approx(math.sqrt(2), rel=1e-6)


# Whether topics stand clear is up to the noise, and not what is tested here.
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_private_model_is_saved_with_its_guarantee_and_nothing_of_the_documents(tmp_path):
    corpus = planted_topics(4_000, 20, [0.5, 0.5], document_length=30, rng=4)
    model = TensorLDA(2, epsilon=4.0, delta=1e-6, random_state=0).fit(corpus.counts)
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    assert np.array_equal(again.topic_word_, model.topic_word_)
    public = {"topic_word", "alpha", "totals", "eta"}
    parts = ("fit.params.diagnostics.", "fit.params.trust.", "fit.info.")
    with np.load(tmp_path / "model.npz", allow_pickle=False) as archive:
        own = {name for name in archive.files if not name.startswith(parts)}
    assert own == {"header", "fit.context.tokenizer", *(f"fit.params.{name}" for name in public)}


@pytest.mark.parametrize(
    ("settings", "groups", "text"),
    [
        ({"epsilon": 1.0}, None, "A private model needs `epsilon` and `delta`. Got no `delta`"),
        ({"delta": 1e-6}, None, "Got no `epsilon`"),
        ({"epsilon": 0.0, "delta": 1e-6}, None, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.2}, None, "`delta` must be below 1/n = 0.1 for 10 documents"),
        ({"epsilon": 1.0, "delta": 1e-6, "unit": "user"}, None, "`groups` must be given for unit='user'"),
        ({"epsilon": 1.0, "delta": 1e-6}, np.zeros(10), "`groups` must be given for unit='user' and for no other"),
        ({"epsilon": 1.0, "delta": 1e-6, "n_components": "auto"}, None, "`n_components` must be an int"),
    ],
)
def test_what_is_no_guarantee_is_refused(settings, groups, text):
    model = TensorLDA(**{"n_components": 2, **settings})
    with pytest.raises((ValueError, TypeError), match=text):
        model.fit(np.ones((10, 4)), groups=groups)
    assert not hasattr(model, "privacy_")


# Whether topics stand clear is up to the noise, and not what is tested here.
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_model_that_is_learnt_again_without_privacy_no_longer_promises_it(method):
    corpus = planted_topics(500, 20, [0.5, 0.5], document_length=30, rng=5)
    model = TensorLDA(2, max_iter=0, epsilon=4.0, delta=1e-6, random_state=0).fit(corpus.counts)
    getattr(model.set_params(epsilon=None, delta=None), method)(corpus.counts)
    assert not hasattr(model, "privacy_")


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_guarantee_goes_with_the_topics_it_is_about_into_a_file_and_never_with_others(tmp_path):
    corpus = planted_topics(500, 20, [0.5, 0.5], document_length=30, rng=5)
    model = TensorLDA(2, max_iter=0, epsilon=4.0, delta=1e-6, random_state=0).fit(corpus.counts)
    model.save(tmp_path / "private.npz")
    again = TensorLDA.load(tmp_path / "private.npz")
    assert again.privacy_ == model.privacy_
    again.set_params(epsilon=None, delta=None)
    assert again.privacy_ == model.privacy_  # a parameter is a wish for the next fit, not what was learnt
    again.partial_fit(corpus.counts)
    again.save(tmp_path / "open.npz")
    loaded = TensorLDA.load(tmp_path / "open.npz")
    for each in (again, loaded):
        assert not hasattr(each, "privacy_")
    with pytest.raises(AttributeError, match="was fitted without privacy"):
        _ = loaded.privacy_


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_file_that_claims_a_guarantee_for_a_stream_is_refused(tmp_path):
    corpus = planted_topics(500, 20, [0.5, 0.5], document_length=30, rng=5)
    private = TensorLDA(2, max_iter=0, epsilon=4.0, delta=1e-6, random_state=0).fit(corpus.counts)
    TensorLDA(2, max_iter=0, random_state=0).partial_fit(corpus.counts).save(tmp_path / "model.npz")
    header, arrays = load_arrays(tmp_path / "model.npz", "topic model")
    save_arrays(tmp_path / "model.npz", "topic model", {**header, "privacy": private.privacy_.to_json()}, arrays)
    with pytest.raises(FileFormatError, match="it must have a guarantee if its model is private"):
        TensorLDA.load(tmp_path / "model.npz")


SECRET = "a diagnosis"


@pytest.mark.parametrize(
    "documents",
    [[[1, 2], [SECRET, 3]], [[1.0, 2.0], [3.0, 4.0]], np.array([[1, SECRET]], dtype=object), np.array([["1", SECRET]])],
)
def test_a_private_fit_refuses_by_type_and_quotes_nothing(documents):
    model = TensorLDA(2, epsilon=1.0, delta=1e-6)
    with pytest.raises(TypeError, match=r"^Private word counts must be") as caught:
        model.fit(documents)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("private", [True, False])
def test_damaged_sparse_counts_are_refused_before_anything_reads_past_their_end(form, private):
    counts = form(np.ones((4, 3)))
    counts.indices[5] = 10**8
    model = TensorLDA(2, **({"epsilon": 1.0, "delta": 1e-6} if private else {}))
    with pytest.raises(ValueError, match=r"indices|index") as caught:
        model.fit(counts)
    if private:
        assert "is not named" in str(caught.value)


def test_a_fit_that_fails_leaves_topics_and_their_words_as_they_were():
    corpus = planted_topics(500, 20, [0.5, 0.5], document_length=30, rng=5)
    model = TensorLDA(2, max_iter=0, random_state=0).fit(corpus.counts)
    before = model.topic_word_.copy()
    with pytest.raises(ValueError, match=r"."):
        model.fit(np.full((3, 7), -1.0))
    assert model.n_features_in_ == 20
    assert np.array_equal(model.topic_word_, before)


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_private_model_has_no_score_that_a_search_could_choose_by():
    corpus = planted_topics(500, 20, [0.5, 0.5], document_length=30, rng=5)
    model = TensorLDA(2, epsilon=4.0, delta=1e-6, random_state=0).fit(corpus.counts)
    with pytest.raises(ValueError, match="it is exact, and no budget pays for it"):
        model.score(corpus.counts)
    assert model.perplexity(corpus.counts) > 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_no_topic_of_documents_without_topics_is_called_clear():
    # What EM steps make of noise are sharp topics, which documents that are drawn from them show again.
    frequencies = 1 / (np.arange(100) + 2.7)
    for seed in range(4):
        counts = np.random.default_rng(seed).multinomial(40, frequencies / frequencies.sum(), size=20_000)
        model = TensorLDA(5, epsilon=1.0, delta=1e-9, neighbour_relation="add_remove", random_state=seed).fit(counts)
        assert not model.trust_.clear.any()


# ---- streams ------------------------------------------------------------------------------------------------------


def streamed(counts, n_batches, epsilon=2.0, **settings):
    model = TensorLDA(3, epsilon=epsilon, delta=1e-9, random_state=0, **settings)
    for part in np.array_split(np.arange(counts.shape[0]), n_batches):
        model.partial_fit(counts[part])
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_private_stream_pays_for_each_batch_apart_and_gets_better():
    corpus = planted_topics(16_000, 60, np.full(3, 0.2), document_length=40, rng=3)
    truth, frequencies = corpus.topics, corpus.topics.mean(axis=0)
    first, all_of_them = streamed(corpus.counts[:2_000], 1, 0.4), streamed(corpus.counts, 8, 0.4)
    assert all_of_them.privacy_.epsilon_spent <= 0.4
    names = [charge.data for charge in all_of_them.privacy_.charges]
    assert set(names) == {(f"batch {number}",) for number in range(1, 9)}
    assert "one document" in all_of_them.privacy_.neighbours
    assert all_of_them.n_samples_seen_ == 16_000
    pairs = [(first, all_of_them)]
    pairs += [(streamed(corpus.counts[:2_000], 1, 0.4), streamed(corpus.counts, 8, 0.4)) for _ in range(4)]
    learnt = [[similarity(truth, model.topic_word_, frequencies).mean() for model in pair] for pair in pairs]
    # The noise of eight batches is √8 times that of one, and the signal eight times. ε is such that one batch shows
    # something: where even eight are deep in noise, which is better is chance. Noise is drawn anew in every test. A
    # first batch may be lucky, and one stream in five ends at other topics; five of them do not.
    first_batches, streams = np.mean(learnt, axis=0)
    assert streams > first_batches


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
@pytest.mark.parametrize("public", [False, True])
def test_a_private_stream_goes_on_from_its_file(tmp_path, public):
    corpus = planted_topics(3_000, 30, np.full(3, 0.2), document_length=40, rng=3)
    helped = {"public": corpus.counts[:300]} if public else {}
    model = streamed(corpus.counts[:1_000], 1, forget=5_000.0, **helped)
    model.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert np.array_equal(again.topic_word_, model.topic_word_)
    again.partial_fit(corpus.counts[1_000:])
    assert again.n_samples_seen_ == 3_000
    assert again.privacy_.charges[: len(model.privacy_.charges)] == model.privacy_.charges
    assert {charge.data for charge in again.privacy_.charges} == {("batch 1",), ("batch 2",)}
    if public:
        assert (again.public != model.public).nnz == 0


@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_a_stream_that_is_fed_what_it_cannot_take_stays_as_it_was():
    corpus = planted_topics(1_000, 30, np.full(3, 0.2), document_length=40, rng=3)
    model = streamed(corpus.counts, 1)
    topics, privacy = model.topic_word_.copy(), model.privacy_
    with pytest.raises(ValueError, match=r"X has 7 features"):
        model.partial_fit(np.ones((3, 7)))
    with pytest.raises(ValueError, match="All batches of a private stream must have the same epsilon"):
        model.set_params(epsilon=3.0).partial_fit(corpus.counts)
    assert np.array_equal(model.topic_word_, topics)
    assert model.privacy_ == privacy


def test_a_private_stream_refuses_a_vocabulary_of_its_own_documents_and_stays_as_it_was():
    chosen = choose_vocabulary_privately(["red apple", "green apple"] * 1000, epsilon=4.0, delta=1e-8)
    model = TensorLDA(2, epsilon=8.0, delta=1e-8)
    with pytest.raises(ValueError, match="The words of a private stream must not be chosen from its documents"):
        model.partial_fit(np.ones((10, chosen.words.size)), vocabulary=chosen)
    assert not hasattr(model, "n_samples_seen_")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"unit": "user"}, "A private stream protects documents"),
        ({"ledger": "texts.ledger"}, "A private stream keeps its own ledger, by batches"),
        ({"delta": 0.2}, "`delta` must be below 1/n = 0.1 for 10 documents"),
    ],
)
def test_what_a_private_stream_cannot_promise_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        TensorLDA(2, **{"epsilon": 1.0, "delta": 1e-6, **settings}).partial_fit(np.ones((10, 4)))


# ---- public documents ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::odeco.errors.UnreliableTopicsWarning")
def test_public_documents_help_and_cost_nothing(tmp_path):
    corpus = planted_topics(4_000, 100, np.full(5, 0.2), document_length=40, rng=3)
    truth, frequencies = corpus.topics, corpus.topics.mean(axis=0)
    settings = {"epsilon": 0.3, "delta": 1e-8, "random_state": 0}  # so little that public documents decide
    public = corpus.counts[:400]
    alone = TensorLDA(5, **settings).fit(corpus.counts[400:])
    helped = clone(TensorLDA(5, **settings, public=public)).fit(corpus.counts[400:])
    learnt = [similarity(truth, model.topic_word_, frequencies).mean() for model in (alone, helped)]
    assert learnt[1] > learnt[0]
    assert helped.privacy_.epsilon_spent <= 0.3
    assert "public documents" in helped.privacy_.mechanism
    helped.save(tmp_path / "model.npz")
    again = TensorLDA.load(tmp_path / "model.npz")
    assert (again.public != public).nnz == 0
    # No pairs are released that could show how many topics there are: no topic is called clear, and none noise.
    assert alone.trust_.known
    assert alone.trust_.message == ""
    assert np.isnan(again.trust_.similarity).all()
    assert not again.trust_.known
    assert again.trust_.message.startswith("How far to trust the topics is not known")
    assert not again.trust_.clear.any()
    assert again.trust_.clear_words(again.topic_word_).any()


def test_how_far_to_trust_topics_is_known_of_the_first_batch_and_not_of_later_ones():
    corpus = planted_topics(20_000, 30, np.full(3, 0.2), document_length=40, rng=3)
    model = streamed(corpus.counts[:10_000], 1)
    assert model.trust_.known
    assert not model.partial_fit(corpus.counts[10_000:]).trust_.known
    assert model.diagnostics_.n_clear == 0


def test_one_topic_needs_no_pairs_to_be_judged():
    corpus = planted_topics(2_000, 30, [1.0], document_length=40, rng=3)
    with pytest.warns(UnreliableTopicsWarning):
        assert TensorLDA(1, epsilon=1.0, delta=1e-7, random_state=0).fit(corpus.counts).trust_.known


def test_public_documents_are_for_private_models_and_share_their_words():
    with pytest.raises(ValueError, match="`public` is for private models"):
        TensorLDA(2, public=np.ones((5, 4))).fit(np.ones((10, 4)))
    with pytest.raises(ValueError, match="All batches must share one vocabulary"):
        TensorLDA(2, epsilon=1.0, delta=1e-6, public=np.ones((5, 3))).fit(np.ones((10, 4)))


# ---- the planner ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_planner_expects_little_of_few_documents_and_all_topics_of_many():
    settings = {"n_words": 100, "epsilon": 1.0, "delta": 1e-9}
    # The noise of a step is 10 for each of 300 numbers: 100 documents are lost in it, 50,000 are not.
    few, many = (plan_topics(3, n_units=number, **settings) for number in (100, 50_000))
    assert few.n_expected < many.n_expected == 3
    assert few.agreement < 0.5 < many.agreement
    assert "of 3 topics in simulated text of this kind 3 would be clear" in str(many)
    assert "pairs of the 100 most frequent words" in str(many)
    with pytest.raises(ValueError, match="`n_words` must be"):
        plan_topics(3, n_units=10, n_words=1, epsilon=1.0, delta=1e-9)


def test_the_centre_of_a_word_is_its_posterior_mean_by_densities_of_the_whole_evidence():
    # Given the centre c, b = G p + noise of covariance G/w has the mean G c and the covariance G/w + s G².
    rng, spread, sizes = np.random.default_rng(0), 0.01, np.array([0.5, 0.3, 0.2])
    factor = rng.standard_normal((3, 3))
    gram, weights = factor @ factor.T + np.eye(3), rng.uniform(0.1, 300, 40)
    truth = np.vstack([np.tile(sizes, (20, 1)), np.repeat(np.eye(3), 8, axis=0)[:20]])
    noise = np.linalg.cholesky(gram) @ rng.standard_normal((3, 40)) / np.sqrt(weights)
    image = truth @ gram + noise.T
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    centres = np.array([[(1 - share) * sizes + share * unit for unit in np.eye(3)] for share in shares])
    densities = np.array(
        [
            [
                [multivariate_normal.pdf(b, gram @ centre, gram / w + spread * gram @ gram) for centre in row]
                for row in centres
            ]
            for b, w in zip(image, weights, strict=True)
        ]
    )
    prior = np.full(6, 1 / 6)
    for _ in range(50):
        posterior = (densities @ sizes) * prior
        prior = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
    joint = densities * prior[:, None] * sizes
    expected = np.einsum("vsj,sjk->vk", joint, centres) / joint.sum(axis=(1, 2))[:, None]
    found = expected_centres(image, gram, weights, spread, sizes)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    # It is between topics, and what follows from it is nearer to the truth than what a flat prior gives.
    precision = np.ones(40)
    flat = deconvolve(image, gram, weights, precision / 0.05, np.tile(sizes, (40, 1)), np.tile(sizes, (40, 1)))
    centred = deconvolve(image, gram, weights, precision / spread, found, found)
    assert np.sum((centred - truth) ** 2) < np.sum((flat - truth) ** 2)


@pytest.mark.parametrize(
    ("strength", "n_steps", "n_pair_words", "spread"),
    [(3.0, 2, 100, 0.05), (32**0.5, 2, 200, 0.00025**0.5), (10.0, 4, 300, 0.005), (80.0, 5, 600, 0.005)],
)
def test_more_signal_is_divided_among_more_steps_and_all_of_the_budget_is_used(strength, n_steps, n_pair_words, spread):
    plan = plan_releases(1_000, 10, strength * 100)
    assert (len(plan.steps), plan.n_pair_words, plan.spread) == (n_steps, n_pair_words, pytest.approx(spread))
    assert plan.lengths + plan.words + plan.pairs + sum(plan.steps) == pytest.approx(1, abs=1e-12)
    assert len(plan_releases(1_000, 10, strength * 100, started=True).steps) == 2
