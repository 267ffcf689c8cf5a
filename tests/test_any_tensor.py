"""Any symmetric tensor, by default: the right components, the right number of them, and honest
words about both.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import odeco
from odeco.cp.fit import refine
from odeco.cp.rank import SIGNIFICANCE, chance_of_noise, clear_height
from odeco.cp.selection import expected_undetected, select_rank
from odeco.cp.symmetric import SymmetricProblem, standard_errors
from odeco.decompose.symmetric import warn_if_unconverged
from odeco.power import Schedule, run
from odeco.tensors import Components, DenseTensor, Oracle, SparseTensor
from odeco.tensors.oracle import polarised_inside


def planted(dimension, k, cosine, noise, *, order=3, seed=0, signs=False):
    """Return a tensor of random unit vectors with a common cosine, with noise of a share of its
    norm, and the truth.
    """
    generator = np.random.default_rng([seed, dimension, k, order])
    if cosine == 0:
        vectors = np.linalg.qr(generator.standard_normal((dimension, k)))[0]
    else:
        common = generator.standard_normal((dimension, 1))
        own = generator.standard_normal((dimension, k))
        vectors = math.sqrt(1 - cosine) * own + math.sqrt(cosine) * common
    weights = generator.uniform(1, 3, k) * (generator.choice([-1, 1], k) if signs else 1)
    truth = Components(weights, vectors / np.linalg.norm(vectors, axis=0), order)
    entries = truth.to_dense()
    error = odeco.symmetrize(generator.standard_normal(entries.shape))
    return entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error, truth


def least_cosine(result, truth):
    return float(odeco.match(result, truth).cosines.min())


def test_the_first_tensor_of_a_new_user():
    """Six random unit vectors in 40 dimensions, without noise and with 1 % of it, the rank
    unknown.
    """
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((40, 6))
    truth = Components(generator.uniform(1, 3, 6), vectors / np.linalg.norm(vectors, axis=0))
    error = odeco.symmetrize(generator.standard_normal((40, 40, 40)))
    for noise, left in ((0.0, "nothing"), (0.01, "noise")):
        entries = truth.to_dense()
        entries += noise * np.linalg.norm(entries) / np.linalg.norm(error) * error
        result = odeco.decompose(entries, "auto", rng=0)
        assert result.weights.size == 6
        assert result.rank_evidence.candidates == (6,)
        assert result.rank_evidence.confidence > 0.99
        assert result.structure.kind == "independent"
        assert result.structure.left == left
        assert least_cosine(result, truth) > 0.999
        assert result.verdict.startswith(
            "6 components, independent but not orthogonal; they explain "
        )
        assert result.verdict.endswith(
            {"nothing": "nothing is left", "noise": "what is left looks like noise"}[left]
        )


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0, 0.01, 0.05])
@pytest.mark.parametrize("cosine", [0, 0.3, 0.6])
@pytest.mark.parametrize(
    ("dimension", "k", "order"), [(20, 3, 3), (16, 16, 3), (30, 8, 3), (10, 4, 4), (7, 3, 5)]
)
def test_components_and_their_number_are_found(dimension, k, order, cosine, noise):
    entries, truth = planted(dimension, k, cosine, noise, order=order, seed=1)
    best = refine(
        SymmetricProblem(DenseTensor(entries)), truth
    )  # least squares, started at the truth
    if least_cosine(best.components, truth) < 0.95:
        pytest.skip("least squares itself does not recover them")
    given = odeco.decompose(entries, k, rng=0)
    assert least_cosine(given, truth) > 0.95
    np.testing.assert_allclose(given.explained * np.sum(entries**2), best.explained, rtol=1e-6)
    automatic = odeco.decompose(entries, "auto", rng=0)
    evidence = automatic.rank_evidence
    assert evidence.rank == k or (evidence.confidence < 0.95 and k in evidence.candidates)
    if cosine == 0:
        assert given.structure.kind == "orthogonal"


@pytest.mark.parametrize("order", [3, 4, 5])
def test_weights_of_either_sign(order):
    entries, truth = planted(9, 4, 0.4, 0.001, order=order, seed=3, signs=True)
    result = odeco.decompose(entries, "auto", rng=0)
    assert result.weights.size == 4
    if order % 2:
        np.testing.assert_allclose(result.weights, np.sort(np.abs(truth.weights))[::-1], rtol=0.02)
    else:
        np.testing.assert_allclose(result.weights, truth.sorted_by_weight().weights, rtol=0.02)


def test_errors_are_as_large_as_they_say():
    """Over many draws of noise, the deviation of a nearly parallel pair is that of its error
    bars.
    """
    vectors = np.eye(8)[:, :3].copy()
    vectors[:, 1] = 0.9 * vectors[:, 0] + math.sqrt(1 - 0.81) * vectors[:, 1]
    truth = Components([3.0, 2.0, 1.0], vectors)
    exact, generator = truth.to_dense(), np.random.default_rng(5)
    deviation = 0.01
    weights, angles = [], []
    for _ in range(60):
        error = odeco.symmetrize(generator.standard_normal(exact.shape))
        # symmetrised white noise has this standard deviation at a unit vector: 1
        found = refine(SymmetricProblem(DenseTensor(exact + deviation * error)), truth).components
        weights.append(found.weights - truth.weights)
        angles.append(np.arccos(np.clip(np.sum(found.vectors * truth.vectors, axis=0), -1, 1)))
    weight_errors, angle_errors = standard_errors(truth, deviation)
    np.testing.assert_allclose(
        np.sqrt(np.mean(np.square(weights), axis=0)), weight_errors, rtol=0.3
    )
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(angles), axis=0)), angle_errors, rtol=0.3)


def test_errors_of_many_components_are_those_of_the_exact_system(monkeypatch):
    _, truth = planted(30, 10, 0, 0, seed=2)
    exact = standard_errors(truth, 0.1)
    monkeypatch.setattr("odeco.cp.symmetric._MAX_EXACT", 5)
    for one, other in zip(standard_errors(truth, 0.1), exact, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=1e-6
        )  # orthogonal components do not disturb each other


@pytest.mark.parametrize("seed", range(3))
def test_least_squares_ends_at_a_stationary_point_and_lowers_the_misfit(seed):
    entries, truth = planted(12, 5, 0.5, 0.05, seed=seed)
    tensor = DenseTensor(entries)
    start = Components(
        truth.weights, truth.vectors + 0.1 * np.random.default_rng(seed).standard_normal((12, 5))
    )
    found = refine(SymmetricProblem(tensor), start)
    misfits = [np.sum((entries - each.to_dense()) ** 2) for each in (start, found.components)]
    assert misfits[1] < misfits[0]
    np.testing.assert_allclose(misfits[1], np.sum(entries**2) - found.explained, rtol=1e-8)
    assert found.residuals.max() < 1e-6
    for column in range(5):  # the gradient, entry by entry
        left = entries - found.components.to_dense()
        vector = found.components.vectors[:, column]
        assert np.linalg.norm(np.einsum("ijk,j,k->i", left, vector, vector)) < 1e-6


@pytest.mark.slow
def test_the_law_of_noise_holds_on_pure_noise():
    """The chance is an upper bound: levels that it calls 1 in 4 are reached by at most about 1 in 4
    draws.
    """
    generator, dimension = np.random.default_rng(0), 10
    heights = []
    for _ in range(120):
        noise = DenseTensor(odeco.symmetrize(generator.standard_normal((dimension,) * 3)))
        highest = run(noise, Schedule(1, 30, 100, 1e-4), rng=generator).components.weights[0]
        # symmetrised white noise has standard deviation 1 at a unit vector
        heights.append(highest / math.sqrt(dimension))
    for height in (1.65, 1.75, 1.85):
        chance = chance_of_noise(height, dimension, 3)
        reached = np.mean(np.array(heights) > height)
        assert reached <= chance + 3 * math.sqrt(chance / len(heights)) + 0.01
        assert chance < 10 * max(
            reached, 1 / len(heights)
        )  # and it is not a bound that says nothing


@pytest.mark.parametrize(("dimension", "order"), [(3, 3), (20, 3), (20, 4), (200, 3), (60, 5)])
def test_the_law_of_noise_falls_from_one(dimension, order):
    heights = np.linspace(1.0, 4.0, 60)
    chances = [chance_of_noise(height, dimension, order) for height in heights]
    assert chances[0] == 1
    assert all(first >= second for first, second in itertools.pairwise(chances))
    assert chance_of_noise(clear_height(dimension, order), dimension, order) == pytest.approx(
        SIGNIFICANCE, rel=0.02
    )


@pytest.mark.parametrize("seed", range(4))
def test_noise_alone_has_no_components(seed):
    noise = odeco.symmetrize(np.random.default_rng(seed).standard_normal((25, 25, 25)))
    with pytest.raises(odeco.RankError, match="must stand clear of the noise"):
        odeco.decompose(noise, "auto", rng=seed)


def test_the_spectrum_of_noise_is_clear_of_nothing_and_that_of_components_is_not():
    generator = np.random.default_rng(1)

    def spectra(entries):
        return SymmetricProblem(DenseTensor(entries)).spectra(10, generator)

    noise = odeco.symmetrize(generator.standard_normal((30, 30, 30)))
    assert spectra(noise).n_clear == 0
    assert spectra(noise).rest_is_noise(0)
    entries, _ = planted(30, 7, 0.3, 0.01)
    assert spectra(entries).n_clear == 7
    flat, _ = planted(
        30, 30, 0, 0
    )  # equally strong in all directions: no noise is as even, or as uneven, as that
    assert not spectra(flat).rest_is_noise(0)


def test_a_gap_between_components_and_noise_makes_sure_and_none_makes_unsure():
    assert expected_undetected(np.array([1000.0, 800.0, 900.0]), 2.0) < 0.01
    assert expected_undetected(np.array([8.0, 4.0, 2.1]), 2.0) > 0.3
    assert expected_undetected(np.empty(0), 2.0) == 1.0


def test_more_components_than_dimensions_are_not_explained_where_their_number_is_not_searched_for():
    """At order 3 it is searched for up to d = 20."""
    generator = np.random.default_rng(2)
    vectors = generator.standard_normal((24, 30))
    entries = Components(np.ones(30), vectors / np.linalg.norm(vectors, axis=0)).to_dense()
    result = odeco.decompose(entries, "auto", rng=0)
    assert result.structure.kind == "unexplained"
    assert result.structure.left == "more"
    assert result.rank_evidence.confidence == 0
    assert "do not explain all of it" in result.verdict


def generic(dimension, k, seed):
    """Return a tensor of random components without noise, and the truth."""
    generator = np.random.default_rng([seed, dimension, k])
    vectors = generator.standard_normal((dimension, k))
    truth = Components(generator.uniform(1, 2, k), vectors / np.linalg.norm(vectors, axis=0))
    return truth.to_dense(), truth


@pytest.mark.parametrize(("dimension", "k"), [(3, 3), (5, 5), (8, 8), (8, 10), (10, 12), (12, 18)])
def test_all_components_of_a_tensor_without_noise_are_found_up_to_more_than_dimensions(
    dimension, k
):
    """A generic tensor has one decomposition of k components if k < (d+1)(d+2)/6."""
    entries, truth = generic(dimension, k, 7)
    result = odeco.decompose(entries, "auto", rng=0)
    assert result.weights.size == k
    assert result.structure.left == "nothing"
    assert least_cosine(result, truth) > 1 - 1e-9


@pytest.mark.parametrize(("dimension", "k"), [(5, 6), (6, 8), (6, 9), (7, 11), (10, 20), (9, 17)])
@pytest.mark.parametrize("seed", [3, 4])
def test_components_that_are_not_found_are_not_called_noise_with_confidence(dimension, k, seed):
    entries, truth = generic(dimension, k, seed)
    try:
        result = odeco.decompose(entries, "auto", rng=0)
    except odeco.RankError:
        return
    right = result.weights.size == k and least_cosine(result, truth) > 0.99
    assert right or result.rank_evidence.confidence < 0.95
    assert result.explained > 0.99 or result.structure.left != "noise"


def test_half_of_the_norm_is_never_called_noise():
    entries, _ = generic(10, 14, 0)
    result = odeco.decompose(entries, 3, rng=0)
    assert result.explained < 0.75
    assert result.structure.left in ("unclear", "more")


@pytest.mark.filterwarnings("ignore::odeco.ConvergenceWarning")
def test_the_loop_does_not_trust_itself_on_components_that_are_not_orthogonal():
    entries, _ = planted(20, 4, 0.5, 0.001)
    assert odeco.decompose(entries, "auto", method="power", rng=0).rank_evidence.confidence == 0
    entries, _ = planted(20, 4, 0, 0.01)
    assert odeco.decompose(entries, "auto", method="power", rng=0).rank_evidence.confidence > 0.99


class Hidden(Oracle):
    """A tensor that answers images and nothing else."""

    def __init__(self, inner):
        self.inner, self.dimension, self.order = inner, inner.dimension, inner.order

    def _image(self, block):
        return self.inner.image(block)


def test_an_oracle_that_answers_images_only_is_judged_as_well():
    entries, truth = planted(30, 4, 0.5, 0.001)
    result = odeco.decompose(Hidden(DenseTensor(entries)), "auto", rng=0)
    assert result.weights.size == 4
    assert least_cosine(result, truth) > 0.999


def test_a_hundred_thousand_dimensions_take_no_square_of_them():
    places = np.array([[5, 5, 5], [99_999, 99_999, 99_999], [5, 99_999, 99_999]])
    result = odeco.decompose(SparseTensor(places, [3.0, 2.0, 0.1], 100_000), 2, rng=0)
    assert result.vectors.shape == (100_000, 2)


@pytest.mark.parametrize("order", [3, 4])
def test_the_tensor_inside_a_basis_from_images_is_that_from_entries(order):
    generator = np.random.default_rng(order)
    tensor = DenseTensor(odeco.symmetrize(generator.standard_normal((6,) * order)))
    basis = generator.standard_normal((6, 3))
    expected = tensor.entries
    for _ in range(order):
        expected = np.moveaxis(np.tensordot(expected, basis, axes=(0, 0)), -1, order - 1)
    for answer in (
        tensor.inside(basis),
        polarised_inside(tensor.image, basis, order),
        (2 * tensor).inside(basis) / 2,
    ):
        np.testing.assert_allclose(answer, expected, atol=1e-12)
    unfolding = tensor.entries.reshape(6, -1)
    np.testing.assert_allclose(tensor.unfolding_gram(), unfolding @ unfolding.T, atol=1e-12)


def test_the_evidence_of_the_unfolding_is_not_overruled_in_silence():
    """Where the unfolding shows more directions than components were kept, the confidence is
    zero.
    """
    entries, _ = planted(20, 5, 0.3, 0.01)
    selection = select_rank(
        SymmetricProblem(DenseTensor(entries), float(np.sum(entries**2))),
        np.random.default_rng(0),
        max_rank=3,
    )
    assert selection.evidence.rank == 3
    assert selection.evidence.confidence == 0


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_confidence_means_what_it_says(n_seeds):
    """Of planted tensors, from easy to impossible ones, hardly any rank that is said with 0.95 is
    wrong.
    """
    said, right = [], []
    for seed in range(n_seeds):
        for dimension, k in ((12, 3), (12, 8)):
            for cosine in (0.3, 0.6, 0.9):
                for noise in (0.02, 0.1):
                    entries, _ = planted(dimension, k, cosine, noise, seed=100 + seed)
                    try:
                        evidence = odeco.decompose(entries, "auto", rng=seed).rank_evidence
                    except odeco.RankError:
                        continue
                    said.append(evidence.confidence)
                    right.append(evidence.rank == k)
    sure = np.array(said) >= 0.95
    assert sure.sum() >= 3 * n_seeds
    assert np.mean(np.array(right)[sure]) >= 0.95


def test_a_result_begins_with_its_verdict_and_shows_ten_components():
    entries, _ = planted(30, 12, 0.2, 0.02)
    lines = repr(odeco.decompose(entries, "auto", rng=0)).splitlines()
    assert lines[0].startswith(
        "Decomposition: 12 components, independent but not orthogonal; they explain 99.9 % of T"
    )
    assert lines[1].split() == [
        "#",
        "weight",
        "±",
        "(1",
        "s.e.)",
        "angle",
        "error,",
        "rad",
        "largest",
        "coordinates",
    ]
    assert [line.split()[0] for line in lines[2:12]] == [str(i) for i in range(10)]
    assert lines[12] == "… and 2 more"


def test_a_fit_that_did_not_converge_is_not_sent_to_the_loop():
    entries, _ = planted(20, 4, 0, 0.01)
    for method, remedies in (
        ("cp", "steps. Raise tol if"),
        ("power", "iterations. Raise n_iterations, raise tol if"),
    ):
        result = odeco.decompose(entries, 4, method=method, rng=0)
        unfinished = dataclasses.replace(result, converged=np.array([True, True, False, True]))
        with pytest.warns(
            odeco.ConvergenceWarning, match="^Component 2 did not converge"
        ) as caught:
            warn_if_unconverged(unfinished, stacklevel=1)
        assert remedies in str(caught[0].message)
