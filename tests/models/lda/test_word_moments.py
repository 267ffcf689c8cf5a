"""Moments of words against counting every pair and triple of positions by hand."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odeco._util.threads import on_threads
from odeco.datasets import planted_topics
from odeco.errors import WordCountError
from odeco.models.lda.counts import as_counts, count_chunks, multiply, sample_for_triples
from odeco.models.lda.moments import WordSums, check_usable, corrected_core

#: Sums of some thousand products of numbers of size one, in double precision.
ROUNDING = 1e-12


def enumerate_positions(counts):
    """Moments of words, pairs and triples from all ordered tuples of distinct positions of
    documents, each of which counts as often as it has words.
    """
    n_words = counts.shape[1]
    sums = [np.zeros((n_words,) * order) for order in (1, 2, 3)]
    weight = 0.0
    for row in counts:
        document = np.repeat(np.arange(n_words), row)
        if document.size < 3:
            continue
        weight += document.size
        for total in sums:
            tuples = list(itertools.permutations(document, total.ndim))
            for place in tuples:
                total[place] += document.size / len(tuples)
    return [total / weight for total in sums]


def update(sums, counts):
    """Add documents to sums."""
    sums.add(count_chunks(as_counts(counts, sums.n_words), sums.n_documents))


def pair_image(sums):
    """The image of the whole basis under the moment of pairs."""
    return sums.pair_image_of(np.eye(sums.basis.shape[1])).T


def small_corpus(seed, n_documents=12, n_words=5):
    counts = np.random.default_rng(seed).integers(0, 3, size=(n_documents, n_words))
    counts[0] = 0
    counts[1] = np.eye(n_words, dtype=int)[0] * 2
    counts[2] = 1
    return counts


@given(seed=st.integers(0, 2**32 - 1))
def test_sums_are_the_mean_over_all_tuples_of_distinct_positions(seed):
    counts = small_corpus(seed)
    first, pairs, triples = enumerate_positions(counts)
    basis = np.random.default_rng(seed).standard_normal((5, 4))
    sums = WordSums(5, basis)
    update(sums, counts)
    np.testing.assert_allclose(sums.first_moment(), first, atol=ROUNDING)
    np.testing.assert_allclose(pair_image(sums), pairs @ basis, atol=ROUNDING)
    np.testing.assert_allclose(
        sums.pair_image_of(np.eye(4)[:, :2]), (pairs @ basis)[:, :2].T, atol=ROUNDING
    )
    np.testing.assert_allclose(sums.first_core(), basis.T @ first, atol=ROUNDING)
    np.testing.assert_allclose(sums.pair_core(), basis.T @ pairs @ basis, atol=ROUNDING)
    expected = np.einsum("abc,ai,bj,ck->ijk", triples, basis, basis, basis)
    np.testing.assert_allclose(sums.triple_core(), expected, atol=ROUNDING)


def test_in_many_directions_the_core_of_triples_has_single_precision():
    # Above 64 directions products are in single precision. Each entry is a sum of 40 + 5 products
    # and their repeated words: rounding is a few units of 2⁻²⁴ of the largest of them.
    counts = small_corpus(0, n_documents=40)
    triples = enumerate_positions(counts)[2]
    basis = np.random.default_rng(0).standard_normal((5, 70))
    sums = WordSums(5, basis)
    update(sums, counts)
    expected = np.einsum("abc,ai,bj,ck->ijk", triples, basis, basis, basis, optimize=True)
    assert np.abs(sums.triple_core() - expected).max() < 1e-5 * np.abs(expected).max()


def sample_of(counts, n_directions):
    """The only chunk of these documents, and its sample in a basis of the first words."""
    (chunk,) = count_chunks(as_counts(counts))
    basis = np.eye(
        counts.shape[1], n_directions, dtype=np.float32 if n_directions > 64 else np.float64
    )
    inside = multiply(chunk.rows, basis)
    return chunk, inside, *sample_for_triples(chunk, inside)


def test_a_sample_for_triples_has_the_sum_of_all_documents_on_average():
    # Document i is kept with probability pᵢ = min(1, 48 ℓᵢ), by its leverage score ℓᵢ, and then has
    # its weight over pᵢ. The number of documents has the variance Σ pᵢ(1 − pᵢ), the sum of weights
    # Σ (1/pᵢ − 1) wᵢ²: four standard errors.
    counts = np.random.default_rng(0).poisson(0.3, size=(9_000, 80))
    chunk, all_inside, sample, inside = sample_of(counts, 70)
    rows = np.sqrt(chunk.pair)[:, None] * all_inside
    chances = np.minimum(
        1, 48 * np.einsum("ni,ij,nj->n", rows, np.linalg.inv(rows.T @ rows), rows, optimize=True)
    )
    assert chances.sum() <= 48 * 70 + ROUNDING * 9_000
    assert len(inside) == sample.rows.shape[0] == sample.triple.size
    assert abs(len(inside) - chances.sum()) < 4 * np.sqrt(np.sum(chances * (1 - chances)))
    error = np.sqrt(np.sum((1 / chances - 1) * chunk.triple**2))
    assert abs(sample.triple.sum() - chunk.triple.sum()) < 4 * error


def test_a_sample_for_triples_keeps_the_only_document_of_a_direction():
    # Its leverage score is 1, so it is kept, and counts once.
    counts = np.random.default_rng(0).poisson(0.5, size=(9_000, 80))
    counts[:, 0], counts[4_567, 0] = 0, 5
    chunk, inside, sample, kept = sample_of(counts, 70)
    only, place = np.flatnonzero(inside[:, 0]), np.flatnonzero(kept[:, 0])
    assert place.size == 1
    np.testing.assert_allclose(sample.triple[place], chunk.triple[only])


@pytest.mark.parametrize(("n_documents", "n_directions"), [(5_000, 64), (3_300, 70)])
def test_in_few_directions_or_with_few_documents_all_are_in_the_sample(n_documents, n_directions):
    counts = np.random.default_rng(0).poisson(0.5, size=(n_documents, 80))
    chunk, inside, sample, kept = sample_of(counts, n_directions)
    assert sample is chunk
    assert kept is inside


def test_group_cores_are_those_of_every_eighth_document():
    counts = small_corpus(0, n_documents=40)
    basis = np.random.default_rng(0).standard_normal((5, 3))
    sums = WordSums(5, basis)
    update(sums, counts)
    for group in range(8):
        pairs = enumerate_positions(counts[group::8])[1]
        np.testing.assert_allclose(sums.pair_cores()[group], basis.T @ pairs @ basis, atol=ROUNDING)


@given(alpha=st.lists(st.floats(0.05, 10), min_size=2, max_size=5))
def test_the_correction_leaves_only_the_topics(alpha):
    # In the basis of the topics the moments of words are those of the Dirichlet distribution
    # itself: E[θᵢθⱼ] = αᵢ(αⱼ+δᵢⱼ)/α₀(α₀+1), and so on. The corrected ones must be diagonal, with
    # the entries of the theorem.
    a, a0, k = np.array(alpha), sum(alpha), len(alpha)
    unit = np.eye(k)
    pairs = (np.outer(a, a) + np.diag(a)) / (a0 * (a0 + 1))
    triples = np.zeros((k, k, k))
    for i, j, l in itertools.product(range(k), repeat=3):
        triples[i, j, l] = a[i] * (a[j] + unit[i, j]) * (a[l] + unit[i, l] + unit[j, l])
    triples /= a0 * (a0 + 1) * (a0 + 2)
    second, third = corrected_core(triples, pairs, a / a0, a0)
    expected = np.zeros((k, k, k))
    expected[range(k), range(k), range(k)] = 2 * a / (a0 * (a0 + 1) * (a0 + 2))
    np.testing.assert_allclose(second, np.diag(a / (a0 * (a0 + 1))), atol=ROUNDING)
    np.testing.assert_allclose(third, expected, atol=ROUNDING)


def test_partitions_and_batches_give_the_sums_of_the_whole():
    counts = small_corpus(3, n_documents=48)
    basis = np.random.default_rng(1).standard_normal((5, 4))
    whole, parts = WordSums(5, basis), WordSums(5, basis)
    update(whole, counts)
    for start in range(
        0, 48, 8
    ):  # a multiple of the groups, so that a part deals its documents alike
        part = WordSums(5, basis)
        update(part, counts[start : start + 8])
        parts = parts + part
    for name, array in whole.save().to_arrays("").items():
        np.testing.assert_allclose(parts.save().to_arrays("")[name], array, atol=1e-9, err_msg=name)


def test_one_thread_and_many_give_the_same_bits():
    corpus = planted_topics(3000, 400, [0.3] * 4, rng=0)
    basis = np.random.default_rng(0).standard_normal((400, 9))
    arrays = []
    for n_jobs in (1, None):
        sums = WordSums(400, basis)
        with on_threads(n_jobs):
            update(sums, corpus.counts)
        arrays.append(sums.save().to_arrays(""))
    assert corpus.counts.nnz > 2**16  # so that threads are used at all
    for name, array in arrays[0].items():
        np.testing.assert_array_equal(array, arrays[1][name], err_msg=name)


def test_large_and_small_chunks_hold_the_same_documents(monkeypatch):
    counts = as_counts(planted_topics(500, 60, [0.3] * 3, document_length=10, rng=0).counts)
    basis = np.random.default_rng(0).standard_normal((60, 4))
    whole, cut = WordSums(60, basis), WordSums(60, basis)
    update(whole, counts)
    monkeypatch.setattr("odeco.models.lda.counts._CHUNK_SIZE", 100)
    monkeypatch.setattr("odeco.models.lda.counts._BLOCK_HEIGHT", 7)
    assert len(list(count_chunks(counts))) > 10
    update(cut, counts)
    np.testing.assert_allclose(cut.triple_core(), whole.triple_core(), atol=ROUNDING)
    np.testing.assert_allclose(pair_image(cut), pair_image(whole), atol=ROUNDING)
    np.testing.assert_allclose(cut.pair_cores(), whole.pair_cores(), atol=ROUNDING)


def test_forgetting_gives_documents_before_less_weight():
    early, late = small_corpus(5), small_corpus(6)
    basis = np.random.default_rng(0).standard_normal((5, 3))
    sums = WordSums(5, basis)
    update(sums, early)
    sums.decay(0.25)
    update(sums, late)
    lengths = [counts.sum(axis=1)[counts.sum(axis=1) >= 3] for counts in (early, late)]
    weights = [0.25 * lengths[0].sum(), lengths[1].sum()]
    pairs = [enumerate_positions(counts)[1] for counts in (early, late)]
    expected = (weights[0] * pairs[0] + weights[1] * pairs[1]) / sum(weights)
    np.testing.assert_allclose(pair_image(sums), expected @ basis, atol=ROUNDING)
    squares = [np.sum(length / (length - 1)) for length in lengths]
    assert sums.pair_variance() == pytest.approx((squares[0] / 16 + squares[1]) / sum(weights) ** 2)


def test_a_basis_of_everything_moves_without_loss():
    # With m = V the span of the image is everything, so what is carried along is exact.
    counts = small_corpus(7, n_documents=60)
    first, pairs, triples = enumerate_positions(counts)
    sums = WordSums(5, np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0])
    update(sums, counts)
    gram = sums.image_gram()
    mixing = np.random.default_rng(1).standard_normal((5, 5))
    sums.move(mixing, np.linalg.inv(sums.pair_core()) @ gram @ mixing)
    basis = sums.basis
    accuracy = 1e-12 * np.linalg.cond(pairs) ** 2 * np.linalg.cond(mixing)
    np.testing.assert_allclose(pair_image(sums), pairs @ basis, atol=accuracy)
    np.testing.assert_allclose(sums.first_core(), basis.T @ first, atol=accuracy)
    expected = np.einsum("abc,ai,bj,ck->ijk", triples, basis, basis, basis)
    np.testing.assert_allclose(sums.triple_core(), expected, atol=accuracy)


def test_a_dropped_basis_is_no_longer_in_memory_and_the_sums_still_are():
    counts = small_corpus(8)
    basis = np.random.default_rng(0).standard_normal((5, 3))
    sums, kept = WordSums(5, basis.copy()), WordSums(5, basis)
    for each in (sums, kept):
        update(each, counts)
    held = weakref.ref(sums.basis)
    sums.drop_basis()
    assert held() is None
    for ask in ("first_moment", "first_core", "pair_core", "triple_core"):
        np.testing.assert_array_equal(getattr(sums, ask)(), getattr(kept, ask)())


def test_short_and_empty_documents_are_counted_and_add_nothing():
    sums = WordSums(3)
    update(sums, [[0, 0, 0], [1, 1, 0], [0, 0, 2], [1, 1, 1]])
    assert (sums.n_documents, sums.n_empty, sums.n_short, sums.n_usable, sums.n_tokens) == (
        4,
        1,
        2,
        1,
        7,
    )
    np.testing.assert_allclose(sums.first_moment(), 1 / 3)


def test_another_vocabulary_is_refused_and_nothing_is_added():
    sums = WordSums(3)
    update(sums, [[1, 1, 1]])
    with pytest.raises(WordCountError) as caught:
        update(sums, [[1, 1]])
    assert str(caught.value) == (
        "All batches must share one vocabulary. It has 3 words. Got 2 columns. Count the batch "
        "with the vectoriser of the first."
    )
    assert sums.n_documents == 1


def test_documents_without_a_triple_are_refused():
    sums = WordSums(2)
    update(sums, [[1, 1], [0, 0]])
    with pytest.raises(WordCountError) as caught:
        check_usable(sums)
    assert str(caught.value) == (
        "At least one document must hold three words. Got 2 documents, 1 of them empty, and a "
        "vocabulary of n_features=2. Join short documents, or loosen the pruning of the "
        "vocabulary."
    )


def test_planted_documents_have_their_lengths_and_topics():
    lengths = np.arange(1, 401)
    corpus = planted_topics(400, 20, [2.0, 1.0], document_length=lengths, rng=0)
    np.testing.assert_array_equal(corpus.counts.sum(axis=1), lengths)
    np.testing.assert_allclose(corpus.topics.sum(axis=1), 1)
    np.testing.assert_allclose(corpus.proportions.sum(axis=1), 1)
    # Given its proportions, a document of l words has l θμ of each on average, with at most that
    # variance.
    expected = lengths[:, None] * (corpus.proportions @ corpus.topics)
    deviations = (corpus.counts.toarray() - expected).sum(axis=0) / np.sqrt(expected.sum(axis=0))
    assert np.abs(deviations).max() < 5  # 20 words; a normal number is beyond 5 once in 1.7 million
    with pytest.raises(
        ValueError,
        match=r"`topics` must hold a row of 20 words for each of the 2 numbers in `alpha`\.",
    ):
        planted_topics(4, 20, [2.0, 1.0], topics=np.ones((2, 3)))
