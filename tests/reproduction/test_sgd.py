"""Online gradient descent: its gradients are those of its objectives, and it finds what it must
find.

The planted streams are single-topic rows: x is one of k orthonormal vectors v_j, with probability
p_j. Every batch then has the tensor Σ f_j v_j ⊗ … ⊗ v_j, where f_j is the share of topic j in the
batch: vectors are free of sampling error, weights are not.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco import Components
from reproduction.baselines import online_sgd, tune_learning_rate
from reproduction.baselines.sgd import overlap_slope, residual_slope

PROBABILITIES = np.array([0.5, 0.3, 0.2])


def single_topic_rows(probabilities, dimension, n_rows, seed):
    generator = np.random.default_rng(seed)
    vectors = np.linalg.qr(generator.standard_normal((dimension, probabilities.size)))[0]
    return vectors.T[generator.choice(probabilities.size, size=n_rows, p=probabilities)], vectors


def dense_moment(rows, order):
    letters = "abcde"[:order]
    return (
        np.einsum(",".join("n" + letter for letter in letters) + "->" + letters, *[rows] * order)
        / rows.shape[0]
    )


def central_differences(objective, vectors, step=1e-5):
    gradient = np.empty_like(vectors)
    for index in np.ndindex(vectors.shape):
        nudge = np.zeros_like(vectors)
        nudge[index] = step
        difference = objective(vectors + nudge) - objective(vectors - nudge)
        gradient[index] = difference[index[1]] / (2 * step)
        # A restart must not feel the vectors of another.
        assert np.all(np.delete(difference, index[1]) == 0)
    return gradient


@pytest.fixture(params=["dense", "CSR"])
def batch(request):
    rows = np.random.default_rng(0).standard_normal((40, 4))
    return rows if request.param == "dense" else sparse.csr_array(rows)


@pytest.fixture
def vectors():
    return np.random.default_rng(1).standard_normal((4, 2, 3))


# Central differences of step h err by h² times a third derivative and by rounding over h: some 1e-8
# here.


@pytest.mark.parametrize("order", [3, 4, 5])
def test_the_gradient_of_the_residual_is_that_of_finite_differences(batch, vectors, order):
    gradient = residual_slope(vectors, batch, order)[2]
    expected = central_differences(lambda at: residual_slope(at, batch, order)[0], vectors)
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("variance", [0.0, 0.7])
def test_the_gradient_of_the_overlap_is_that_of_finite_differences(batch, vectors, variance):
    gradient = overlap_slope(vectors, batch, variance)[2]
    expected = central_differences(lambda at: overlap_slope(at, batch, variance)[0], vectors)
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("order", [3, 4])
def test_the_residual_is_the_distance_between_dense_tensors(batch, vectors, order):
    moment = dense_moment(np.asarray(batch.toarray() if sparse.issparse(batch) else batch), order)
    objective, values, _ = residual_slope(vectors, batch, order)
    for restart in range(2):
        fitted = Components(np.ones(3), vectors[:, restart], order)
        distance = 0.5 * np.sum((moment - fitted.to_dense()) ** 2) - 0.5 * np.sum(moment**2)
        assert objective[restart] == pytest.approx(distance)
        lengths = np.linalg.norm(vectors[:, restart], axis=0)
        unit_values = odeco.tensors.DenseTensor(moment).value(vectors[:, restart] / lengths)
        np.testing.assert_allclose(values[restart], unit_values * lengths**order)


@pytest.mark.parametrize("variance", [0.0, 0.7])
def test_the_overlap_is_that_of_the_dense_moment_or_cumulant(batch, vectors, variance):
    moment = dense_moment(np.asarray(batch.toarray() if sparse.issparse(batch) else batch), 4)
    identity = np.eye(4)
    for pairing in ("ab,cd->abcd", "ac,bd->abcd", "ad,bc->abcd"):
        moment = moment - variance**2 * np.einsum(pairing, identity, identity)
    objective, values, _ = overlap_slope(vectors, batch, variance)
    for restart in range(2):
        block = vectors[:, restart]
        overlaps = np.einsum("abcd,ai,bi,cj,dj->ij", moment, block, block, block, block)
        assert objective[restart] == pytest.approx(overlaps.sum() - np.trace(overlaps))
        np.testing.assert_allclose(values[restart], np.diagonal(overlaps))


@pytest.mark.parametrize("seed", range(3))
def test_huang_recovers_single_topics_to_the_sampling_error_of_their_weights(seed):
    rate, size, n_steps = 0.05, 100, 4000
    rows, vectors = single_topic_rows(PROBABILITIES, 6, size * n_steps, seed)
    found = online_sgd(rows, 3, batch_size=size, learning_rate=rate, rng=seed)
    matched = odeco.match(found, Components(PROBABILITIES, vectors))
    # Near the truth a step shrinks the part of v_j across its direction by 1 − 3 η p_j^(4/3). The
    # steps of the second half add up to η n_steps / 4 = 50, so whatever was left of an angle has
    # shrunk by exp(−3 · 50 · 0.2^(4/3)).
    assert np.all(
        matched.angles < np.pi / 2 * np.exp(-3 * 50 * PROBABILITIES.min() ** (4 / 3)) + 1e-7
    )
    # A weight follows the shares f of its topic by λ ← (1 − c) λ + c f with c = 9 η p^(4/3). At a
    # constant rate its variance is p (1 − p) / size · c / (2 − c); the falling rate only makes it
    # smaller.
    c = 9 * rate * PROBABILITIES ** (4 / 3)
    deviations = np.sqrt(PROBABILITIES * (1 - PROBABILITIES) / size * c / (2 - c))
    assert np.all(np.abs(matched.weight_errors) < 4 * deviations)


@pytest.mark.parametrize("seed", range(3))
def test_ge_recovers_single_topics_to_the_error_of_its_own_noise(seed):
    rate, size, n_steps = 0.1, 50, 4000
    rows, vectors = single_topic_rows(PROBABILITIES, 3, size * n_steps, seed)
    found = online_sgd(rows, 3, variant="ge2015", batch_size=size, learning_rate=rate, rng=seed)
    assert found.order == 4
    matched = odeco.match(found, Components(PROBABILITIES, vectors, 4))
    # At the truth the gradient of every batch is 0. Near it a step shrinks the part of u_i along
    # v_j by 1 − 4 η p_j, and the unit noise adds a variance of η² / d.
    variance = 1.0
    for step in range(n_steps):
        now = rate * min(1.0, 2 * (1 - step / n_steps))
        variance = (1 - 4 * now * PROBABILITIES.min()) ** 2 * variance + now**2 / 3
    largest = (
        np.sqrt(2) * 4 * np.sqrt(variance)
    )  # four deviations in each of the two directions across
    assert largest < 0.25
    assert np.all(matched.angles < largest)
    # A weight is p cos⁴ and its mean over the last 1,000 batches has the sampling error of their
    # rows. The angles of that quarter have not settled: their variance is at most that of the rate
    # at its beginning, η / 2 · 1 / (8 p d).
    sampling = 4 * np.sqrt(PROBABILITIES * (1 - PROBABILITIES) / (size * n_steps / 4))
    loss = PROBABILITIES * 2 * 2 * (rate / 2) / (8 * PROBABILITIES.min() * 3)
    assert np.all(np.abs(matched.weight_errors) < sampling + loss)


def test_scaled_rows_give_the_same_vectors_and_scaled_weights():
    rows, _ = single_topic_rows(PROBABILITIES, 5, 20_000, 0)
    for variant, order, data in (("huang2015", 3, rows), ("ge2015", 4, rows[:, :3])):
        once = online_sgd(data, 3, variant=variant, batch_size=50, rng=0)
        # Powers of two, so that rounding is the same.
        twice = online_sgd(2 * data, 3, variant=variant, batch_size=50, rng=0)
        np.testing.assert_allclose(once.vectors, twice.vectors, atol=1e-9)
        np.testing.assert_allclose(2**order * once.weights, twice.weights, rtol=1e-9)


@pytest.mark.parametrize("variant", ["huang2015", "ge2015"])
def test_the_same_seed_gives_the_same_bits_however_rows_are_cut(variant):
    rows, _ = single_topic_rows(PROBABILITIES, 3, 5000, 0)
    pieces = [rows[start:stop] for start, stop in itertools.pairwise([0, 7, 1000, 4321, 5000])]
    whole = online_sgd(rows, 3, variant=variant, batch_size=64, rng=3)
    cut = online_sgd(
        iter(pieces), 3, variant=variant, batch_size=64, n_rows=5000, rng=np.random.default_rng(3)
    )
    other = online_sgd(rows, 3, variant=variant, batch_size=64, rng=4)
    assert np.array_equal(whole.vectors, cut.vectors)
    assert np.array_equal(whole.weights, cut.weights)
    assert not np.array_equal(whole.vectors, other.vectors)


def test_sparse_and_single_precision_rows_give_what_dense_double_ones_give():
    rows = np.eye(6)[np.random.default_rng(0).choice(3, size=20_000, p=PROBABILITIES)]
    dense = online_sgd(rows, 3, batch_size=100, rng=0)
    for other in (sparse.csr_array(rows), rows.astype(np.float32)):
        found = online_sgd(other, 3, batch_size=100, rng=0)
        # Single precision rounds each step by 1e-7, and the descent forgets old roundings.
        np.testing.assert_allclose(np.abs(found.vectors), np.abs(dense.vectors), atol=1e-4)
        np.testing.assert_allclose(found.weights, dense.weights, atol=1e-4)


def test_tuning_prefers_the_rate_that_converges():
    rows, _ = single_topic_rows(PROBABILITIES, 6, 20_000, 0)
    # The first moves nowhere in 200 steps; the last overshoots, as 9 η p^(4/3) is far above 2.
    rates = (1e-4, 0.3, 1e3)
    assert tune_learning_rate(rows, 3, batch_size=100, learning_rates=rates, rng=0) == 0.3


def test_rates_that_run_away_are_refused():
    rows, _ = single_topic_rows(PROBABILITIES, 6, 5000, 0)
    with pytest.raises(ValueError, match=r"must stay finite.*smaller learning_rate than 1e"):
        online_sgd(rows, 3, batch_size=100, learning_rate=1e6, rng=0)
    with pytest.raises(ValueError, match=r"None of \[1000000.0\] does"):
        tune_learning_rate(rows, 3, batch_size=100, learning_rates=[1e6], rng=0)
    with pytest.raises(ValueError, match=r"None of \[\] does"):
        tune_learning_rate(rows, 3, batch_size=100, learning_rates=[], rng=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "adam"}, "`variant` must be one of 'huang2015', 'ge2015'. Got 'adam'"),
        ({"variant": "ge2015"}, "must be the dimension of the rows .* Got 2 for dimension 4"),
        ({"variant": "ge2015", "order": 3}, "`order` must be 4 .* Got 3"),
        ({"order": 2}, "`order` must be an int of at least 3"),
        ({"learning_rate": 0}, "`learning_rate` must be a number above 0, and finite. Got 0"),
        (
            {"learning_rate": float("nan")},
            "`learning_rate` must be a number above 0, and finite. Got nan",
        ),
        ({"gaussian_variance": -1.0}, "`gaussian_variance` must be a number of at least 0"),
        ({"gaussian_variance": 1.0}, '`gaussian_variance` must be 0 for variant="huang2015"'),
        ({"n_restarts": 0}, "`n_restarts` must be an int of at least 1"),
        ({"batch_size": 0}, "`batch_size` must be an int of at least 1"),
        ({"batch_size": 11}, "at least one batch of 11 rows. Got 10 rows"),
        ({"n_rows": 20}, "must be 20 rows for 10 steps. The stream ended after 5 steps"),
        ({"dimension": 5}, "5"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        online_sgd(np.ones((10, 4)), 2, **({"batch_size": 2} | arguments))


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="`n_rows` must be given"):
        online_sgd(iter([np.ones((10, 4))]), 2, batch_size=2)
    with pytest.raises(ValueError, match="non-zero row"):
        online_sgd(np.zeros((10, 4)), 2, batch_size=2)
    with pytest.raises(ValueError, match="NaN"):
        online_sgd(np.full((10, 4), np.nan), 2, batch_size=2)
