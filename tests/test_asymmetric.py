"""Asymmetric tensors whose terms are not orthogonal: found as well as least squares can, and their
number too.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from click.testing import CliRunner

import odeco
from odeco.cli.decompose import decompose as decompose_command
from odeco.cp.asymmetric import AsymmetricProblem, SparseProblem, term_angle_errors
from odeco.cp.fit import refine
from odeco.cp.rank import SIGNIFICANCE, n_identifiable_terms, product_noise
from odeco.decompose import AsymmetricDecomposition
from odeco.decompose.page import write_report
from odeco.power import Schedule
from odeco.tensors import AsymmetricTensor, SparseAsymmetricTensor
from odeco.tensors.asymmetric import as_terms, entries_of, factors_of

SHAPES = [((10, 12, 14), 5), ((6, 7, 8, 9), 4)]


def planted(shape, k, cosine, noise, seed):
    """Return terms of which every two have the same cosine along every axis, and their tensor with
    noise.
    """
    generator = np.random.default_rng(seed)
    root = np.linalg.cholesky((1 - cosine) * np.eye(k) + cosine)
    factors = [np.linalg.qr(generator.standard_normal((size, k)))[0] @ root.T for size in shape]
    terms = as_terms(factors, np.linspace(2, 1, k) * generator.choice([-1, 1], k))
    entries, errors = entries_of(terms, shape), generator.standard_normal(shape)
    return terms, entries + noise * np.linalg.norm(entries) / np.linalg.norm(errors) * errors


def misfit(entries, result):
    return float(np.sum((entries - result.to_dense()) ** 2))


@pytest.mark.parametrize(("shape", "k"), SHAPES)
@pytest.mark.parametrize("cosine", [0, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0, 0.01, 0.05])
def test_the_fit_is_as_good_as_least_squares_from_the_truth(shape, k, cosine, noise):
    terms, entries = planted(shape, k, cosine, noise, seed=1)
    result = odeco.decompose_asymmetric(entries, k, rng=0)
    ideal = refine(AsymmetricProblem(AsymmetricTensor(entries)), terms)
    left = np.sum((entries - entries_of(ideal.components, shape)) ** 2)
    # Either fit ends where a step gains a millionth of the misfit for an entry.
    assert misfit(entries, result) <= left * (1 + 1e-6) + 1e-16
    assert result.converged.all()
    for found, true in zip(
        result.factors, factors_of(ideal.components.sorted_by_weight(), shape), strict=True
    ):
        # Both are within a few thousandths of their standard errors of the same optimum.
        np.testing.assert_allclose(
            np.abs(np.sum(found * true, axis=0)), 1, atol=1e-6 if noise else 1e-12
        )
    assert result.explained == pytest.approx(
        1 - misfit(entries, result) / np.sum(entries**2), abs=1e-12
    )
    if noise == 0:
        np.testing.assert_allclose(result.weights, np.abs(terms.weights), rtol=1e-8)
    assert result.structure.left == ("noise" if noise else "nothing")
    assert result.structure.kind == ("independent" if cosine else "orthogonal")


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "k"), SHAPES)
@pytest.mark.parametrize("cosine", [0, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0, 0.01, 0.05])
def test_their_number_is_found(shape, k, cosine, noise):
    for seed in range(3):
        result = odeco.decompose_asymmetric(
            planted(shape, k, cosine, noise, seed)[1], "auto", rng=seed
        )
        assert len(result.weights) == result.rank_evidence.rank == k
        assert result.verdict.startswith(f"{k} components")
    if noise == 0:
        assert result.rank_evidence.confidence == pytest.approx(1)


def test_noise_alone_has_no_terms():
    for seed in range(5):
        with pytest.raises(odeco.RankError, match="must stand clear of the noise"):
            odeco.decompose_asymmetric(
                np.random.default_rng(seed).standard_normal((8, 9, 10)), "auto", rng=seed
            )


def test_the_largest_value_of_noise_is_below_its_bound_and_near_it():
    # Of 40 tensors a share of SIGNIFICANCE = 0.005 may pass; that one does has a chance of 0.2 even
    # if the bound were exact, and it is far from that. One random slice, a Gaussian matrix, reaches
    # two thirds of the bound: 2 √20.
    parts, generator = (20, 20, 20), np.random.default_rng(0)
    law, heights = product_noise(parts), []
    for _ in range(40):
        problem = AsymmetricProblem(AsymmetricTensor(generator.standard_normal(parts)))
        found = problem.run(Schedule(1, n_restarts=12, n_iterations=60, tolerance=1e-4), generator)
        heights.append(abs(found.weights[0]) / law.unit)
    assert max(heights) < law.clear()
    assert 2 / 3 < np.mean(heights) < law.typical
    assert law.chance(law.clear()) == pytest.approx(SIGNIFICANCE)
    assert law.chance(law.typical) == 1


def test_a_fit_is_a_minimum():
    shape = (4, 5, 6)
    terms, entries = planted(shape, 3, 0.3, 0.2, seed=0)
    fit = refine(AsymmetricProblem(AsymmetricTensor(entries)), terms)
    base = np.sum((entries - entries_of(fit.components, shape)) ** 2)
    generator = np.random.default_rng(1)
    for _ in range(10):
        moved = [
            factor + 1e-4 * generator.standard_normal(factor.shape)
            for factor in factors_of(fit.components, shape)
        ]
        moved[0] = moved[0] * fit.components.weights
        assert np.sum((entries - entries_of(as_terms(moved), shape)) ** 2) > base
    assert np.max(fit.residuals) < 1e-4 * np.min(np.abs(fit.components.weights))
    left = AsymmetricProblem(AsymmetricTensor(entries)).without(fit.components).oracle
    assert np.sum(left.entries**2) == pytest.approx(base)
    assert fit.explained == pytest.approx(np.sum(entries**2) - base)


@pytest.mark.parametrize("exponent", [-700, -3, 400])
def test_automatic_terms_scale_with_the_tensor(exponent):
    entries = planted((5, 6, 7), 3, 0.5, 0.01, seed=0)[1]
    expected = odeco.decompose_asymmetric(entries, "auto", rng=0)
    result = odeco.decompose_asymmetric(np.ldexp(entries, exponent), "auto", rng=0)
    for found, true in zip(result.factors, expected.factors, strict=True):
        np.testing.assert_array_equal(found, true)
    np.testing.assert_array_equal(np.ldexp(result.weights, -exponent), expected.weights)
    np.testing.assert_array_equal(
        np.ldexp(result.rank_evidence.noise_levels, -exponent), expected.rank_evidence.noise_levels
    )
    assert result.explained == expected.explained
    assert result.verdict == expected.verdict


def test_the_loop_stays_for_orthogonal_terms():
    _, entries = planted((6, 7, 8), 4, 0, 0, seed=0)
    fitted = odeco.decompose_asymmetric(entries, 4, rng=0)
    for settings in ({"method": "power"}, {"n_restarts": 12}, {"n_iterations": 40}):
        looped = odeco.decompose_asymmetric(entries, 4, rng=0, **settings)
        assert looped.structure is None
        assert looped.explained == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(looped.weights, fitted.weights, rtol=1e-9)
        np.testing.assert_allclose(looped.to_dense(), fitted.to_dense(), atol=1e-9)


def test_what_cannot_be_asked_is_refused():
    entries = np.ones((2, 3, 4))
    with pytest.raises(ValueError, match="`method` must be one of"):
        odeco.decompose_asymmetric(entries, 1, method="tensor")
    with pytest.raises(ValueError, match='n_components="auto" needs method="cp"'):
        odeco.decompose_asymmetric(entries, "auto", method="power")
    with pytest.raises(
        odeco.RankError, match="the tensor has rank 1, but n_components=2"
    ) as caught:
        odeco.decompose_asymmetric(entries, 2, rng=0)
    assert caught.value.found.weights == pytest.approx([math.sqrt(24)])
    with pytest.raises(ValueError, match="must hold a non-zero entry"):
        odeco.decompose_asymmetric(0 * entries, "auto", rng=0)


def test_a_judged_result_is_saved_and_shown(tmp_path):
    _, entries = planted((6, 7, 8), 3, 0.5, 0.01, seed=0)
    result = odeco.decompose_asymmetric(entries, "auto", rng=0)
    odeco.save_result(result, tmp_path / "result.npz")
    again = odeco.load_result(tmp_path / "result.npz")
    assert (again.verdict, again.structure, again.explained) == (
        result.verdict,
        result.structure,
        result.explained,
    )
    np.testing.assert_array_equal(again.rank_evidence.chances, result.rank_evidence.chances)
    write_report(result, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "confidence in the rank" in page
    assert "largest cosine of two along an axis" in page
    np.save(tmp_path / "tensor.npy", entries)
    done = CliRunner().invoke(
        decompose_command, [str(tmp_path / "tensor.npy"), "--asymmetric", "-k", "auto"]
    )
    assert done.exit_code == 0
    assert done.stdout.startswith(result.verdict)
    assert "rank 3 selected" in done.stdout


def test_terms_of_single_precision_are_found_to_its_digits():
    terms, entries = planted((10, 12, 14), 4, 0.5, 0, seed=0)
    result = odeco.decompose_asymmetric(entries.astype(np.float32), "auto", rng=0)
    assert isinstance(result, AsymmetricDecomposition)
    # Rounding makes errors of 6e-8 of the entries; terms with a cosine of 0.5 along each axis
    # multiply them by little.
    np.testing.assert_allclose(result.weights, np.abs(terms.weights), rtol=1e-6)


def partly_symmetric(shape, axes, k, cosine, noise, seed):
    """Return terms with the same vectors along some axes, and their tensor with noise that is not
    symmetric.
    """
    terms, _ = planted(shape, k, cosine, 0, seed)
    factors = factors_of(terms, shape)
    for axis in axes:
        factors[axis] = factors[axes[0]]
    terms = as_terms(factors, terms.weights)
    entries, errors = entries_of(terms, shape), np.random.default_rng(seed).standard_normal(shape)
    return terms, entries + noise * np.linalg.norm(entries) / np.linalg.norm(errors) * errors


PARTLY = [
    ((9, 9, 7), (0, 1), 4),
    ((7, 8, 8), (1, 2), 4),
    ((5, 5, 6, 5), (0, 1, 3), 3),
    ((6, 4, 6, 5), (0, 2), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "axes", "k"), PARTLY)
@pytest.mark.parametrize(
    ("cosine", "noise"), [(0, 0), (0, 0.05), (0.5, 0), (0.5, 0.05), (0.9, 0), (0.9, 0.01)]
)
def test_partly_symmetric_terms_are_found_with_their_number(shape, axes, k, cosine, noise):
    for seed in range(3):
        terms, entries = partly_symmetric(shape, axes, k, cosine, noise, seed)
        entries = odeco.symmetrize(entries, axes=axes)
        result = odeco.decompose_asymmetric(entries, "auto", symmetric=axes, rng=seed)
        assert result.rank_evidence.rank == k
        for axis in axes:
            np.testing.assert_array_equal(result.factors[axis], result.factors[axes[0]])
        ideal = refine(AsymmetricProblem(AsymmetricTensor(entries), axes), terms)
        left = np.sum((entries - entries_of(ideal.components, shape)) ** 2)
        assert misfit(entries, result) <= left * (1 + 1e-6) + 1e-16
        assert result.converged.all()
        assert result.structure.left == ("noise" if noise else "nothing")


@pytest.mark.parametrize(("shape", "axes", "k"), PARTLY)
def test_errors_of_shared_vectors_are_those_that_are_stated(shape, axes, k):
    stated, seen = [], []
    for seed in range(30):
        terms, entries = partly_symmetric(shape, axes, k, 0, 0.02, seed)
        entries = odeco.symmetrize(entries, axes=axes)
        problem = AsymmetricProblem(AsymmetricTensor(entries), axes)
        fit = refine(problem, terms)
        deviation = math.sqrt(
            (problem.whole - fit.explained) / (problem.noise.n_entries - k * problem.noise.freedom)
        )
        stated.append(term_angle_errors(fit.components, shape, deviation, axes))
        pairs = zip(factors_of(fit.components, shape), factors_of(terms, shape), strict=True)
        seen.append(
            [
                np.sqrt(np.maximum(2 - 2 * np.abs(np.sum(one * two, axis=0)), 0))
                for one, two in pairs
            ]
        )
    # Of 30 runs with k terms whose angles have several degrees of freedom each, the mean square
    # errs by less than 10 % in one standard deviation.
    ratio = np.sqrt(np.mean(np.square(seen), axis=(0, 2)) / np.mean(np.square(stated), axis=(0, 2)))
    np.testing.assert_allclose(ratio, 1, atol=0.2)


def test_the_largest_value_of_partly_symmetric_noise_is_below_its_bound():
    # As for noise without symmetry: 40 tensors, each passes with a chance of at most 0.005.
    parts, axes, generator, heights = (15, 15, 10), (0, 1), np.random.default_rng(0), []
    law = product_noise(parts, axes)
    norms = []
    for _ in range(40):
        noise = odeco.symmetrize(generator.standard_normal(parts), axes=axes)
        found = AsymmetricProblem(AsymmetricTensor(noise), axes).run(
            Schedule(1, n_restarts=12, n_iterations=60, tolerance=1e-4), generator
        )
        heights.append(abs(found.weights[0]) / law.unit)
        norms.append(np.sum(noise**2))
    assert max(heights) < law.clear()
    assert 2 / 3 < np.mean(heights) < law.typical
    # The variance at a ⊗ a ⊗ c stays 1, and the squared norm is that of the distinct entries.
    assert np.mean(norms) == pytest.approx(law.n_entries, rel=0.02)
    with pytest.raises(odeco.RankError, match="must stand clear of the noise"):
        odeco.decompose_asymmetric(noise, "auto", symmetric=axes, rng=0)


def test_what_is_not_symmetric_along_the_axes_is_refused():
    entries = np.arange(36.0).reshape(3, 3, 4) + 1
    with pytest.raises(
        ValueError, match=r"not symmetric along axes \(0, 1\).*symmetrize\(T, axes=\(0, 1\)\)"
    ):
        odeco.decompose_asymmetric(entries, 1, symmetric=(0, 1))
    with pytest.raises(ValueError, match="equal sizes there"):
        odeco.decompose_asymmetric(entries, 1, symmetric=(1, 2))
    for wrong in ((0,), (0, 0), (0, 3), 1, "ab", (0.5, 1)):
        with pytest.raises(ValueError, match="Axes must be two or more different ints"):
            odeco.decompose_asymmetric(entries, 1, symmetric=wrong)
    with pytest.raises(ValueError, match="must leave out an axis"):
        odeco.decompose_asymmetric(np.ones((2, 2, 2)), 1, symmetric=(0, 1, 2))
    with pytest.raises(ValueError, match='`symmetric` needs method="cp"'):
        odeco.decompose_asymmetric(np.ones((2, 2, 2)), 1, symmetric=(0, 1), method="power")
    averaged = odeco.symmetrize(entries, axes=(1, 0))
    np.testing.assert_array_equal(averaged, (entries + entries.transpose(1, 0, 2)) / 2)
    with pytest.raises(ValueError, match="Axes must be"):
        odeco.symmetrize(entries, axes=(0,))


def sparse_terms(shape, k, n_support, seed):
    """Return terms whose vectors have few non-zero coordinates, and the coordinates and values of
    their entries.
    """
    generator = np.random.default_rng(seed)
    factors = [np.zeros((size, k)) for size in shape]
    for factor in factors:
        for column in factor.T:
            column[generator.choice(column.size, n_support, replace=False)] = generator.normal(
                1, 1, n_support
            )
    terms = as_terms(factors, np.linspace(2, 1, k))
    indices, values = [], []
    for term in range(k):
        vectors = [factor[:, term] for factor in factors_of(terms, shape)]
        grid = np.stack(np.meshgrid(*(np.flatnonzero(v) for v in vectors), indexing="ij"), axis=-1)
        grid = grid.reshape(-1, len(shape))
        indices.append(grid)
        products = [vector[column] for vector, column in zip(vectors, grid.T, strict=True)]
        values.append(terms.weights[term] * np.prod(products, axis=0))
    return terms, np.concatenate(indices), np.concatenate(values)


@pytest.mark.parametrize("shape", [(20, 25, 30), (3000, 2000, 1500), (12, 1200, 13, 14)])
@pytest.mark.parametrize("count", [4, "auto"])
def test_terms_of_a_sparse_tensor_are_found_without_its_zeros(shape, count):
    terms, indices, values = sparse_terms(shape, 4, 6, seed=0)
    tensor = SparseAsymmetricTensor(indices, values, shape)
    result = odeco.decompose_asymmetric(tensor, count, rng=0)
    assert result.verdict.startswith("4 components")
    assert result.explained == pytest.approx(1)
    np.testing.assert_allclose(result.weights, terms.weights, rtol=1e-7)
    for found, true in zip(result.factors, factors_of(terms, shape), strict=True):
        np.testing.assert_allclose(np.abs(np.sum(found * true, axis=0)), 1, atol=1e-10)


def test_a_sparse_tensor_is_the_dense_one():
    shape, generator = (6, 7, 8), np.random.default_rng(0)
    terms, indices, values = sparse_terms(shape, 3, 3, seed=1)
    dense = np.zeros(shape)
    np.add.at(dense, tuple(indices.T), values)  # where terms overlap, entries are listed twice
    assert len(np.unique(indices, axis=0)) < len(indices)
    noise = 0.01 * generator.standard_normal(shape)
    everywhere = np.stack(np.indices(shape), axis=-1).reshape(-1, 3)
    tensor = SparseAsymmetricTensor(
        np.concatenate([indices, everywhere]), np.concatenate([values, noise.ravel()]), shape
    )
    expected, block = AsymmetricTensor(dense + noise), generator.standard_normal((21, 4))
    np.testing.assert_allclose(tensor.image(block), expected.image(block), atol=1e-12)
    assert tensor.squared_norm() == pytest.approx(expected.squared_norm())
    bases = [np.linalg.qr(generator.standard_normal((size, 3)))[0] for size in shape]
    np.testing.assert_allclose(
        tensor.contract(bases), np.einsum("ijk,ia,jb,kc", dense + noise, *bases), atol=1e-12
    )
    found, true = (odeco.decompose_asymmetric(each, "auto", rng=0) for each in (tensor, expected))
    assert odeco.match(found, true).factor_match_score == pytest.approx(1, abs=1e-5)
    assert found.verdict == true.verdict
    looped = odeco.decompose_asymmetric(tensor, 2, method="power", rng=0)
    np.testing.assert_allclose(
        looped.weights,
        odeco.decompose_asymmetric(expected, 2, method="power", rng=0).weights,
        rtol=1e-9,
    )
    left = SparseProblem(tensor).without(terms).oracle
    np.testing.assert_allclose(
        left.image(block),
        AsymmetricTensor(noise).image(block),
        atol=1e-9 * np.abs(expected.image(block)).max(),
    )


@pytest.mark.parametrize("exponent", [-700, 400])
def test_terms_of_a_sparse_tensor_scale_with_it(exponent):
    _, indices, values = sparse_terms((8, 9, 10), 3, 4, seed=0)
    expected = odeco.decompose_asymmetric(
        SparseAsymmetricTensor(indices, values, (8, 9, 10)), "auto", rng=0
    )
    scaled = SparseAsymmetricTensor(indices, np.ldexp(values, exponent), (8, 9, 10))
    result = odeco.decompose_asymmetric(scaled, "auto", rng=0)
    np.testing.assert_array_equal(result.factors[0], expected.factors[0])
    np.testing.assert_array_equal(np.ldexp(result.weights, -exponent), expected.weights)


def test_what_is_no_sparse_tensor_is_refused():
    with pytest.raises(ValueError, match="must lie in the axes of shape"):
        SparseAsymmetricTensor([[0, 1, 4]], [1.0], (2, 3, 4))
    with pytest.raises(ValueError, match="one column for each of the 4 axes"):
        SparseAsymmetricTensor([[0, 1, 2]], [1.0], (2, 3, 4, 5))
    with pytest.raises(TypeError, match="must be integers"):
        SparseAsymmetricTensor([[0.5, 1, 2]], [1.0], (2, 3, 4))
    with pytest.raises(ValueError, match="finite"):
        SparseAsymmetricTensor([[0, 1, 2]], [np.nan], (2, 3, 4))
    with pytest.raises(ValueError, match="non-zero entry"):
        SparseAsymmetricTensor([[0, 1, 2]] * 2, [1.0, -1.0], (2, 3, 4))
    with pytest.raises(TypeError, match="`symmetric` needs a dense array"):
        odeco.decompose_asymmetric(
            SparseAsymmetricTensor([[0, 1, 2]], [1.0], (3, 3, 4)), 1, symmetric=(0, 1)
        )


def test_a_fit_that_diverges_says_that_components_cancel():
    # a ⊗ a ⊗ b + a ⊗ b ⊗ a + b ⊗ a ⊗ a has rank 3 and is a limit of tensors of rank 2 (de Silva and
    # Lim 2008): the misfit of two terms has no minimum, and comes close to that of the noise only
    # with weights that grow.
    a, b = np.eye(6)[:2]
    entries = sum(
        np.einsum("i,j,k->ijk", *factors) for factors in ((a, a, b), (a, b, a), (b, a, a))
    )
    entries = entries + 1e-3 * np.random.default_rng(0).standard_normal(entries.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", odeco.ConvergenceWarning)
        result = odeco.decompose_asymmetric(entries, 2, rng=0)
    assert result.structure.kind == "cancelling"
    assert "cancel each other" in result.verdict
    assert result.weights.min() > 2 * np.linalg.norm(entries)


@pytest.mark.slow
def test_a_measured_tensor_is_fitted_as_well_as_by_the_best_of_ten_runs_of_parafac():
    datasets = pytest.importorskip("tensorly.datasets")
    entries = np.asarray(datasets.load_covid19_serology().tensor, dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", odeco.ConvergenceWarning)
        result = odeco.decompose_asymmetric(entries, 3, rng=0)
    # parafac(n_iter_max=1000, init="random", tol=1e-8), random_state 0 to 9: 1 - 0.5303 of the norm
    # is left
    assert 1 - math.sqrt(misfit(entries, result) / np.sum(entries**2)) >= 0.5303
    assert result.structure.kind == "cancelling"


@pytest.mark.parametrize(
    ("shape", "k"), [((5, 8, 9), 8), ((30, 6, 7), 12), ((6, 7, 8), 10), ((4, 5, 6, 7), 10)]
)
@pytest.mark.parametrize("noise", [0, 0.01])
def test_there_may_be_more_terms_than_the_smallest_axis_has_entries(shape, k, noise):
    generator = np.random.default_rng([k, *shape])
    terms = as_terms([generator.standard_normal((size, k)) for size in shape], np.linspace(2, 1, k))
    entries, errors = entries_of(terms, shape), generator.standard_normal(shape)
    entries = entries + noise * np.linalg.norm(entries) / np.linalg.norm(errors) * errors
    result = odeco.decompose_asymmetric(entries, k, rng=0)
    ideal = refine(AsymmetricProblem(AsymmetricTensor(entries)), terms)
    left = np.sum((entries - entries_of(ideal.components, shape)) ** 2)
    assert misfit(entries, result) <= left * (1 + 1e-3) + 1e-16
    assert result.structure.kind == "overcomplete"


def test_more_terms_than_a_shape_determines_are_refused():
    # entries over unknowns of a term: 120 / 12 and 64 / 10, of which 4 x 4 x 4 determines one less
    # than 6; three rank-one 2 x 3 matrices span a plane that meets the others, of codimension 2 and
    # degree 3, nowhere else
    for shape, most in (
        ((4, 5, 6), 9),
        ((4, 4, 4), 5),
        ((2, 3, 4), 3),
        ((2, 5, 5), 5),
        ((100, 3, 4), 6),
    ):
        assert n_identifiable_terms(shape) == most
        with pytest.raises(ValueError, match=rf"in \[1, {max(most, min(shape))}\]"):
            odeco.decompose_asymmetric(np.random.default_rng(0).standard_normal(shape), most + 1)


def test_a_pair_of_terms_counts_as_one_up_to_the_stated_resolution():
    shape, k = (8, 9, 10), 3
    for angle_over_resolution in (0.3, 2.0):
        generator = np.random.default_rng(0)
        factors = [np.linalg.qr(generator.standard_normal((size, k)))[0] for size in shape]
        errors = generator.standard_normal(shape)
        angle = 0.5
        for _ in range(
            3
        ):  # the resolution depends on the noise, whose norm is a share of that of the tensor
            turned = [
                np.column_stack([f[:, :2], np.cos(angle) * f[:, 1] + np.sin(angle) * f[:, 2]])
                for f in factors
            ]
            entries = entries_of(as_terms(turned, np.ones(k)), shape)
            entries = entries + 0.01 * np.linalg.norm(entries) / np.linalg.norm(errors) * errors
            evidence = odeco.decompose_asymmetric(entries, "auto", rng=0).rank_evidence
            angle = angle_over_resolution * evidence.resolution
        assert 0 < evidence.resolution < 0.5
        assert evidence.rank == (2 if angle_over_resolution < 1 else 3)


@pytest.mark.parametrize(("shape", "k"), [((2, 3, 4), 3), ((2, 6, 7), 6), ((2, 4, 4), 4)])
def test_the_terms_of_a_matrix_pencil_are_found_up_to_its_second_largest_axis(shape, k):
    generator = np.random.default_rng([k, *shape])
    terms = as_terms([generator.standard_normal((size, k)) for size in shape], np.linspace(2, 1, k))
    result = odeco.decompose_asymmetric(entries_of(terms, shape), k, rng=0)
    cosines = [
        np.abs(a.T @ b) for a, b in zip(result.factors, factors_of(terms, shape), strict=True)
    ]
    # Of a term all vectors agree: a cosine of 1 − e²/2 for errors e of rounding that the pencil
    # magnifies.
    assert np.prod(cosines, axis=0).max(axis=0).min() > 1 - 1e-6


@pytest.mark.parametrize(
    ("shape", "axes", "most"), [((5, 5, 4), (0, 1), 6), ((3, 8, 8), (1, 2), 8)]
)
def test_partly_symmetric_terms_may_be_more_than_the_smallest_axis_has_entries(shape, axes, most):
    # Kruskal: k terms are unique if the sum of min(size, k) is at least 2k + 2
    generator = np.random.default_rng(shape)
    for k in range(min(shape) + 1, most + 1):
        factors = [generator.standard_normal((size, k)) for size in shape]
        factors[axes[1]] = factors[axes[0]]
        entries = entries_of(as_terms(factors, np.linspace(2, 1, k)), shape)
        result = odeco.decompose_asymmetric(
            odeco.symmetrize(entries, axes=axes), k, symmetric=axes, rng=0
        )
        assert misfit(entries, result) <= 1e-12 * np.sum(entries**2)
        np.testing.assert_array_equal(result.factors[axes[0]], result.factors[axes[1]])
    with pytest.raises(ValueError, match=rf"in \[1, {most}\]"):
        odeco.decompose_asymmetric(odeco.symmetrize(entries, axes=axes), most + 1, symmetric=axes)


@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 2, 2), None), ((2, 3, 3), None), ((3, 3, 2), (0, 1))]
)
def test_a_number_is_not_certain_if_so_many_terms_fit_any_tensor(shape, axes):
    # As many unknowns as entries: noise is fitted exactly wherever the eigenvalues of its pencil
    # are real.
    found = 0
    for seed in range(40):
        noise = np.random.default_rng(seed).standard_normal(shape)
        noise = noise if axes is None else odeco.symmetrize(noise, axes=axes)
        try:
            evidence = odeco.decompose_asymmetric(
                noise, "auto", symmetric=axes, rng=0
            ).rank_evidence
        except odeco.RankError:
            continue
        found += 1
        assert evidence.confidence < 0.95
    assert found
