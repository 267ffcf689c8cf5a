"""All components at once: the components of Algorithm 1, at a fraction of its questions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import ORACLES
from threadpoolctl import threadpool_limits

import odeco
from odeco import Components, RankError
from odeco.datasets import gaussian_noise
from odeco.power import Plan, Together, run, run_together
from odeco.tensors import AsymmetricTensor, DenseTensor, Oracle
from odeco.tensors.oracle import slice_by_images

#: Noiseless components come out to rounding: sums of some hundred products, each with an error of 1e-16.
EXACT = 1e-12


def planted(dimension, weights, order=3, seed=0):
    vectors = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimension, len(weights))))[0]
    return Components(weights, vectors, order)


def noisy(truth, sigma, seed=0):
    return DenseTensor(truth.to_dense() + sigma * gaussian_noise(truth.dimension, rng=seed).entries)


def at_once(dimension, n_components, order=3, seed=0):
    """Return a search that begins with a slice."""
    search = Together.start(n_components, order=order, parts=(dimension,), tolerance=1e-10, seed=seed)
    assert search.stage == "slice", "this problem is so small that the loop is cheaper"
    return search


def asked(search, oracle):
    """Return the answer to the question of a search."""
    if search.question == "slice":
        return oracle.slice(search.candidates[:, 0])
    return {"image": oracle.image, "value": oracle.value}[search.question](search.candidates)


def stages(oracle, n_components, **settings):
    passed = []
    search = run_together(oracle, n_components, callback=lambda now: passed.append(now.stage), **settings)
    return search, passed


def errors(found, truth):
    """Return the largest error of a weight and of a vector, once components are matched."""
    pairs = odeco.match(found, truth)
    vectors = found.vectors[:, pairs.found_index]
    vectors = vectors * np.sign(np.sum(vectors * truth.vectors, axis=0))
    return np.abs(pairs.weight_errors).max(), np.linalg.norm(vectors - truth.vectors, axis=0).max()


@pytest.mark.parametrize(
    ("dimension", "weights", "order"),
    [
        (40, np.linspace(2, 1, 20), 3),
        (40, np.linspace(2, 1, 40), 3),
        (40, np.ones(40), 3),
        (40, np.geomspace(1e4, 1, 20), 3),
        (40, [1.0] * 19 + [1e-6], 3),
        (20, np.linspace(2, 1, 12), 4),
        (20, np.linspace(-2, 1, 20), 4),
        (20, -np.ones(12), 4),
        (12, np.linspace(2, 1, 12), 5),
    ],
)
def test_components_without_noise_are_exact_and_the_loop_is_not_needed(dimension, weights, order):
    truth = planted(dimension, np.asarray(weights), order)
    search, passed = stages(truth, len(weights), rng=0)
    largest = np.abs(truth.weights).max()
    assert "climb" in passed
    assert "loop" not in passed
    weight_error, vector_error = errors(search.components, truth)
    assert weight_error <= EXACT * largest
    assert vector_error <= EXACT * largest / np.abs(truth.weights).min()
    assert all(pair.residual <= EXACT * largest for pair in search.found)


@pytest.mark.parametrize("entries", [np.eye(30), np.eye(30)[::-1]])
def test_components_along_the_axes_come_with_positive_weights(entries):
    """The eigenvectors of a slice are the axes to the last bit, some with the wrong sign, and settle at once."""
    found = run_together(Components(np.linspace(2, 1, 30), entries), 30, rng=0).components
    np.testing.assert_allclose(found.weights, np.linspace(2, 1, 30), rtol=EXACT)
    assert np.all(np.sum(found.vectors * entries, axis=0) > 1 - EXACT)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.integers(12, 24),
    order=st.sampled_from([3, 3, 4]),
    share=st.floats(0.5, 1.0),
    spread=st.sampled_from([1.0, 2.0, 30.0]),
    sigma=st.sampled_from([0.0, 1e-6, 1e-3]),
)
def test_it_finds_what_the_loop_finds(seed, dimension, order, share, spread, sigma):
    """Both find eigenvectors of the tensor with what was found before subtracted.

    They differ by the order in which equally large ones are found: subtracting one before or after another changes it
    by the square of their overlap. With noise of sigma an entry overlaps are about sigma √d / λ, and λ is at least 1;
    a factor of 10 allows for the largest of them.
    """
    if order == 4:
        dimension, sigma = min(dimension, 14), 0.0
    k = round(share * dimension)
    generator = np.random.default_rng(seed)
    weights = generator.permutation(np.geomspace(spread, 1, k))
    if order == 4:
        weights *= generator.choice([-1, 1], size=k)
    truth = planted(dimension, weights, order, seed)
    tensor = DenseTensor(truth.to_dense()) if sigma == 0 else noisy(truth, sigma, seed)
    found = run_together(tensor, k, rng=seed)
    loop = run(tensor, Plan.default(dimension, k, tolerance=1e-10), rng=seed)
    allowed = 1e-8 + 10 * sigma**2 * dimension
    assert max(errors(found.components, loop.components)) <= allowed * spread
    assert max(pair.residual / abs(pair.weight) for pair in found.found) <= 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1e-3, 5e-3, 1e-2, 2e-2])
def test_up_to_the_noise_at_which_the_loop_finds_all_nothing_is_lost(sigma):
    truth = planted(50, np.linspace(2, 1, 25), seed=3)
    tensor = noisy(truth, sigma, seed=4)
    loop = run(tensor, Plan.default(50, 25, tolerance=1e-10), rng=0).components
    search, passed = stages(tensor, 25, rng=0)
    assert np.all(odeco.match(loop, truth).cosines > 0.9)
    assert np.all(odeco.match(search.components, truth).cosines > 0.9)
    assert "loop" not in passed
    assert np.all(odeco.match(search.components, loop).cosines > 1 - 1e-4)


def test_the_largest_of_more_components_are_found():
    weights = np.linspace(5, 1, 40)
    truth = planted(50, weights, seed=5)
    search, passed = stages(truth, 15, rng=1)
    assert "climb" in passed
    np.testing.assert_allclose(np.sort(search.components.weights)[::-1], weights[:15], rtol=EXACT)


@pytest.mark.parametrize("rank", [1, 7, 19])
def test_a_tensor_of_lower_rank_is_told_with_what_was_found(rank):
    truth = planted(40, np.linspace(2, 1, rank))
    with pytest.raises(RankError, match=rf"the tensor has rank {rank}, but n_components=20") as caught:
        run_together(truth, 20, rng=0)
    assert max(errors(caught.value.found, truth)) <= EXACT


def test_a_tensor_of_zeros_is_told():
    with pytest.raises(RankError, match="must hold a non-zero entry"):
        run_together(Components(np.zeros(3), np.eye(30)[:, :3]), 15, rng=0)


def test_few_components_in_many_dimensions_are_left_to_the_loop():
    search, passed = stages(planted(2000, [2.0, 1.0]), 2, rng=0)
    assert set(passed) == {"loop", "done"}
    np.testing.assert_allclose(search.components.weights, [2, 1], rtol=EXACT)


def test_vectors_of_several_parts_are_left_to_the_loop():
    generator = np.random.default_rng(0)
    factors = [np.linalg.qr(generator.standard_normal((size, 6)))[0] for size in (6, 7, 8)]
    tensor = AsymmetricTensor(np.einsum("r,ir,jr,kr->ijk", np.linspace(2, 1, 6), *factors))
    search, passed = stages(tensor, 6, rng=0)
    assert set(passed) == {"loop", "done"}
    np.testing.assert_allclose(np.abs(tensor.term_weights(search.components.weights)), np.linspace(2, 1, 6))


class _Shy(Oracle):
    """A tensor whose first slice shows nothing of its last component."""

    order = 3

    def __init__(self, truth, direction):
        along = truth.vectors.T @ direction
        assert abs(along[-1]) < 1e-12
        self.truth, self.dimension = truth, truth.dimension

    def _image(self, block):
        return self.truth.image(block)


def test_a_component_that_the_first_slice_does_not_show_is_found_by_the_second():
    search = at_once(40, 20)
    direction = search.candidates[:, 0]
    generator = np.random.default_rng(1)
    hidden = generator.standard_normal(40)
    hidden -= (hidden @ direction) * direction
    vectors = np.linalg.qr(np.column_stack([hidden, generator.standard_normal((40, 19))]))[0][:, ::-1]
    truth = Components(np.linspace(2, 1, 20), vectors)
    oracle = _Shy(truth, direction)
    n_slices = 0
    while not search.done:
        n_slices += search.question == "slice"
        search = search.advance(asked(search, oracle))
        assert search.stage != "loop"
    assert n_slices >= 2
    assert max(errors(search.components, truth)) <= EXACT


def test_what_joint_steps_do_not_find_the_loop_finds():
    """The climbers are sent astray: their images are answered with zero, so nothing is found before the loop."""
    truth = planted(40, np.linspace(2, 1, 20))
    search = at_once(40, 20)
    while not search.done:
        answer = asked(search, truth)
        search = search.advance(0 * answer if search.stage == "climb" else answer)
    assert search.loop is not None
    assert max(errors(search.components, truth)) <= EXACT


def test_components_that_are_not_orthogonal_do_not_explain_the_tensor():
    """All that a search can find are eigenvectors. Their misfit to the tensor tells that it is not a sum of them."""
    vectors = np.random.default_rng(0).standard_normal((40, 25))
    truth = Components(np.ones(25), vectors / np.linalg.norm(vectors, axis=0))
    search = run_together(truth, 25, rng=0)
    found = search.components
    misfit = truth.squared_norm() - 2 * found.weights @ truth.value(found.vectors) + found.squared_norm()
    assert misfit > 0.01 * truth.squared_norm()
    assert search.misfits().max() > 0.01
    assert run_together(planted(40, np.ones(25)), 25, rng=0).misfits().max() <= EXACT


@pytest.mark.slow
def test_the_same_rng_gives_the_same_bits_on_any_number_of_threads():
    tensor = noisy(planted(140, np.linspace(2, 1, 30)), 1e-3)
    results = []
    for n_threads in (1, 2, 4):
        with threadpool_limits(n_threads):
            results.append(run_together(tensor, 30, rng=7))
    for other in results[1:]:
        np.testing.assert_array_equal(other.components.vectors, results[0].components.vectors)
        np.testing.assert_array_equal(other.components.weights, results[0].components.weights)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0, 1.0])
def test_a_search_that_is_saved_after_every_answer_ends_at_the_same_bits(sigma, tmp_path):
    """With noise of 1 nothing stands clear of it, so the search ends with the loop."""
    truth = planted(20, np.linspace(2, 1, 20))
    tensor = noisy(truth, sigma)
    expected, passed = stages(tensor, 20, rng=np.random.default_rng(3))
    search = Together.start(20, parts=(20,), tolerance=1e-10, rng=np.random.default_rng(3))
    seen = set()
    while not search.done:
        search = search.advance(asked(search, tensor))
        if search.stage not in seen or search.n_answered % 50 == 0:
            search.save(tmp_path / "search.npz")
            search = Together.load(tmp_path / "search.npz")
        seen.add(search.stage)
    assert seen >= {"slice", "climb", "polish", "done"}
    assert ("loop" in seen) == (sigma > 0)
    np.testing.assert_array_equal(search.components.vectors, expected.components.vectors)
    assert [pair.history for pair in search.found] == [pair.history for pair in expected.found]
    assert search.n_answered == expected.n_answered == len(passed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: header.update(stage="climb"), "there must be climbers while they climb"),
        (lambda header, arrays: header.update(stage="loop"), "must hold the loop"),
        (lambda header, arrays: header.update(stage="done"), "all components must be found at the end"),
        (lambda header, arrays: header["plan"].update(n_components=41), "there must be 1 to d components"),
        (lambda header, arrays: arrays.update(loop_values=np.zeros(3)), "no arrays of a loop that has not begun"),
        (lambda header, arrays: arrays.update(signs=np.zeros(3)), "climbers"),
    ],
)
def test_a_state_that_does_not_fit_together_is_refused(change, message):
    header, arrays = at_once(40, 20).to_arrays()
    change(header, arrays)
    with pytest.raises(ValueError, match=message):
        Together.SCHEMA.check(header, arrays)


def test_progress_is_told_in_words_and_numbers():
    truth = planted(40, np.linspace(2, 1, 20))
    search = at_once(40, 20)
    assert search.plan_in_words == "20 components at once"
    assert search.doing == "a slice, 0 of 20 components"
    while not search.done:
        search = search.advance(asked(search, truth))
        assert search.n_answered <= search.n_questions
    assert search.doing == "done, 20 of 20 components"
    tracked = search.tracked(n_rows=5)
    np.testing.assert_array_equal(tracked.components.weights, search.components.sorted_by_weight().weights)


def test_an_oracle_that_cannot_be_asked_again_is_refused():
    oracle = _Shy(planted(5, [1.0, 1.0]), np.zeros(5))
    oracle.exact = False
    with pytest.raises(ValueError, match=r"_Shy is not exact\. Take `run`\."):
        run_together(oracle, 2)


def test_a_fixed_number_of_iterations_is_refused():
    with pytest.raises(ValueError, match=r"`tolerance` must be above 0\. Got 0\."):
        run_together(planted(5, [1.0, 1.0]), 2, tolerance=0)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("order", [3, 4, 5])
def test_the_slice_of_every_oracle_is_that_of_its_images(name, order):
    oracle = ORACLES[name](np.random.default_rng(order), 4, order)
    direction = np.random.default_rng(1).standard_normal(oracle.dimension)
    matrix = oracle.slice(direction)
    by_images = slice_by_images(oracle.image, direction, oracle.order)
    np.testing.assert_allclose(matrix, by_images, atol=1e4 * oracle.rounding * max(1, np.abs(by_images).max()))


def test_the_slice_of_sums_and_multiples_is_the_sum_and_the_multiple():
    first, second = planted(6, np.ones(4), seed=1), planted(6, np.ones(5), seed=2)
    direction = np.random.default_rng(1).standard_normal(6)
    expected = 2 * first.slice(direction) - second.slice(direction)
    np.testing.assert_allclose((2 * first - second).slice(direction), expected, atol=EXACT)
