"""decompose with more components than dimensions."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import odeco
from odeco.cp.overcomplete import is_isolated
from odeco.cp.symmetric import _share_left
from odeco.tensors import DenseTensor, PackedTensor, SparseTensor


def planted(dimension, k, *, order=4, noise=0.0, seed=0):
    """Return random components with weights of both signs, and the entries of their tensor with
    Gaussian noise.
    """
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((dimension, k))
    weights = generator.uniform(1, 2, k) * (generator.choice([-1, 1], k) if order % 2 == 0 else 1)
    truth = odeco.Components(weights, vectors / np.linalg.norm(vectors, axis=0), order)
    entries = odeco.symmetrize(truth.to_dense())
    error = odeco.symmetrize(generator.standard_normal(entries.shape))
    return truth, entries + noise * np.linalg.norm(entries) / np.linalg.norm(error) * error


@pytest.mark.parametrize(
    ("order", "dimension", "k"), [(4, 6, 11), (4, 10, 20), (4, 10, 30), (5, 6, 12), (6, 5, 15)]
)
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_the_number_is_found_with_the_components(order, dimension, k, noise):
    truth, entries = planted(dimension, k, order=order, noise=noise)
    result = odeco.decompose(entries, "auto", rng=0)
    assert len(result.weights) == k
    assert result.rank_evidence.confidence > 0.95
    assert result.structure.kind == "overcomplete"
    assert result.structure.left == ("noise" if noise else "nothing")
    assert result.converged.all()
    matched = odeco.match(result, truth)
    assert matched.cosines.min() > 1 - max(1e-12, (100 * noise) ** 2)
    if noise:
        # Errors in units of their standard errors have a mean square of 1, here over k and k (d −
        # 1) of them.
        ratios = matched.angles / result.angle_errors[matched.found_index]
        assert 0.7 < np.sqrt(np.mean(ratios**2)) < 1.4
    given = odeco.decompose(entries, k, rng=0)
    assert odeco.match(given, truth).cosines.min() > 1 - max(1e-12, (100 * noise) ** 2)


def test_any_kind_of_tensor_and_any_scale():
    truth, entries = planted(6, 10)
    indices = np.unique(np.sort(np.indices(entries.shape).reshape(4, -1).T), axis=0)
    for tensor in (
        truth,
        PackedTensor.from_dense(entries),
        SparseTensor(indices, entries[tuple(indices.T)], 6),
        DenseTensor(entries * 2.0**-900),
        odeco.Components(truth.weights * 2.0**-900, truth.vectors, 4),
    ):
        for k in (10, "auto"):
            found = odeco.decompose(tensor, k, rng=0)
            assert len(found.weights) == 10
            assert odeco.match(found, truth).cosines.min() > 1 - 1e-9


def test_components_in_a_subspace_are_found_there():
    truth, _ = planted(6, 10)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((9, 6)))[0]
    inside = odeco.Components(truth.weights, basis @ truth.vectors, 4)
    result = odeco.decompose(inside, "auto", rng=0)
    assert len(result.weights) == 10
    assert odeco.match(result, inside).cosines.min() > 1 - 1e-9
    with pytest.raises(ValueError, match="at most 15"):
        odeco.decompose(inside, 20, rng=0)


def test_more_than_can_be_told_apart_are_refused_with_the_largest_number():
    _, entries = planted(6, 10)
    with pytest.raises(ValueError, match=r"in \[1, 15\].*Got 16"):
        odeco.decompose(entries, 16, rng=0)


def test_more_than_there_are_say_how_many_there_are():
    truth, entries = planted(6, 10)
    with pytest.raises(odeco.errors.RankError) as caught:
        odeco.decompose(entries, 12, rng=0)
    assert odeco.match(caught.value.found, truth).cosines.min() > 1 - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_shows_no_components(seed):
    entries = odeco.symmetrize(np.random.default_rng(seed).standard_normal((8,) * 4))
    try:
        result = odeco.decompose(entries, "auto", rng=0)
    except odeco.errors.RankError:
        return
    assert result.rank_evidence.confidence < 0.95


@pytest.mark.parametrize("seed", range(4))
def test_a_number_that_noise_hides_is_not_stated_with_confidence(seed):
    truth, entries = planted(5, 9, noise=0.03, seed=seed)
    result = odeco.decompose(entries, "auto", rng=0)
    assert len(result.weights) == truth.n_components or result.rank_evidence.confidence < 0.95


@pytest.mark.parametrize("noise", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize(("dimension", "k"), [(10, 13), (20, 30)])
def test_at_order_3_random_starts_find_more_components_than_dimensions(dimension, k, noise):
    truth, entries = planted(dimension, k, order=3, noise=noise)
    result = odeco.decompose(entries, k, rng=0)
    assert result.structure.kind == "overcomplete"
    assert result.structure.left == ("noise" if noise else "nothing")
    matched = odeco.match(result, truth)
    if noise:
        # Errors in units of their standard errors have a mean square of 1, here over k and k (d −
        # 1) of them.
        ratios = matched.angles / result.angle_errors[matched.found_index]
        assert 0.7 < np.sqrt(np.mean(ratios**2)) < 1.4
    else:
        assert matched.cosines.min() > 1 - 1e-12


def test_at_order_3_more_than_is_identifiable_is_refused_with_the_advice_to_use_order_4():
    _, entries = planted(10, 13, order=3)
    with pytest.raises(ValueError, match=r"in \[1, 21\].*order 4, up to 45 can\). Got 22"):
        odeco.decompose(entries, 22, rng=0)


def test_at_order_3_components_in_a_subspace_are_found_there():
    truth, _ = planted(8, 10, order=3)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((12, 8)))[0]
    inside = odeco.Components(truth.weights, basis @ truth.vectors)
    result = odeco.decompose(inside, 10, rng=0)
    assert odeco.match(result, inside).cosines.min() > 1 - 1e-9


def test_at_order_3_the_number_is_selected_where_the_residual_allows_it():
    generator = np.random.default_rng(2)
    vectors = generator.standard_normal((16, 20))
    truth = odeco.Components(np.ones(20), vectors / np.linalg.norm(vectors, axis=0))
    result = odeco.decompose(truth.to_dense(), "auto", rng=0)
    assert len(result.weights) == 20
    assert odeco.match(result, truth).cosines.min() > 1 - 1e-9


def test_components_that_fit_in_a_continuum_of_ways_are_not_isolated():
    truth, _ = planted(6, 7, order=3)
    assert is_isolated(truth)
    parallel = np.hstack([truth.vectors, truth.vectors[:, :1]])
    assert not is_isolated(odeco.Components(np.append(truth.weights, 1.0), parallel))


@pytest.mark.parametrize(("order", "dimension", "k"), [(4, 4, 6), (5, 3, 4), (3, 5, 5)])
def test_what_others_make_up_for_is_the_projection_onto_all_changes_of_the_components(
    order, dimension, k
):
    truth, _ = planted(dimension, k, order=order)
    v, across = truth.vectors[:, 1], np.random.default_rng(1).standard_normal(dimension)
    s = across - (across @ v) * v
    s /= np.linalg.norm(s)

    def product(*vectors):
        return odeco.symmetrize(functools.reduce(np.multiply.outer, vectors)).ravel()

    left_by_a_pair = product(*[v] * (order - 2), s, s)
    axes = np.eye(dimension)
    changes = np.stack(
        [product(*[u] * (order - 1), axis) for u in truth.vectors.T for axis in axes], axis=1
    )
    rest = left_by_a_pair - changes @ np.linalg.lstsq(changes, left_by_a_pair, rcond=None)[0]
    share = rest @ rest / (left_by_a_pair @ left_by_a_pair)
    assert _share_left(truth, 1, np.outer(s, s)) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_the_number_is_stated_with_a_resolution(seed):
    """A pair at a third of the resolution may count as one; one at three times the resolution is
    found, or doubted.
    """
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((8, 12))
    vectors /= np.linalg.norm(vectors, axis=0)
    across = generator.standard_normal(8)
    across -= (across @ vectors[:, 0]) * vectors[:, 0]
    across /= np.linalg.norm(across)
    error = odeco.symmetrize(generator.standard_normal((8,) * 4))
    resolution = odeco.decompose(
        planted(8, 12, noise=0.01, seed=seed)[1], "auto", rng=0
    ).rank_evidence.resolution
    assert 0 < resolution < 0.5
    for angle in (resolution / 3, 3 * resolution):
        vectors[:, 1] = np.cos(angle) * vectors[:, 0] + np.sin(angle) * across
        entries = odeco.Components(np.ones(12), vectors, 4).to_dense()
        entries = entries + 0.01 * np.linalg.norm(entries) / np.linalg.norm(error) * error
        evidence = odeco.decompose(odeco.symmetrize(entries), "auto", rng=0).rank_evidence
        assert evidence.rank == 12 or evidence.confidence < 0.95 or angle < evidence.resolution


@pytest.mark.parametrize(("order", "dimension"), [(4, 6), (5, 5), (6, 4)])
def test_where_nothing_is_left_a_pair_within_the_resolution_counts_as_one(order, dimension):
    truth, _ = planted(dimension, dimension + 3, order=order)
    vectors = truth.vectors.copy()
    vectors[:, 1] = vectors[:, 0] + 1e-7 * np.random.default_rng(0).standard_normal(dimension)
    close = odeco.Components(truth.weights, vectors, order)
    evidence = odeco.decompose(odeco.symmetrize(close.to_dense()), "auto", rng=0).rank_evidence
    assert evidence.rank == dimension + 2
    angle = np.linalg.norm(close.vectors[:, 1] - close.vectors[:, 0])
    # Rounding errors hide λ t² down to a share e of the tensor: an angle of about the root of e.
    assert angle < evidence.resolution < 1e-4


@pytest.mark.parametrize(
    ("order", "dimension", "k"), [(4, 8, 3), (4, 8, 7), (4, 8, 8), (5, 6, 6), (6, 4, 4)]
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_up_to_d_components_are_found_through_the_flattening(order, dimension, k, noise):
    truth, entries = planted(dimension, k, order=order, noise=noise, seed=k)
    packed = PackedTensor.from_dense(entries)
    for tensor, number in ((entries, k), (entries, "auto"), (packed, k)):
        result = odeco.decompose(tensor, number, rng=0)
        assert len(result.weights) == k
        assert result.structure.left == ("noise" if noise else "nothing")
        # Errors of an angle of some hundred times the noise; without noise, rounding errors.
        assert odeco.match(result, truth).cosines.min() > 1 - max(1e-12, (100 * noise) ** 2)


def test_a_good_fit_of_d_components_is_not_started_again(monkeypatch):
    # The unfolding has no direction left to show the noise; the flattening has.
    def fail(*_):
        raise AssertionError("a good fit was started again at matrix pencils")

    monkeypatch.setattr("odeco.cp.selection.fit_by_pencils", fail)
    for seed in range(3):
        truth, entries = planted(10, 10, noise=0.01, seed=seed)
        assert odeco.match(odeco.decompose(entries, 10, rng=0), truth).cosines.min() > 0.99


@pytest.mark.parametrize(("order", "dimension"), [(3, 1), (3, 2)])
def test_a_number_is_not_certain_if_as_many_components_fit_any_tensor(order, dimension):
    # d components have d² unknowns, and the tensor C(d+2, 3) entries: 1 and 4, as many.
    found = 0
    for seed in range(20):
        noise = odeco.symmetrize(np.random.default_rng(seed).standard_normal((dimension,) * order))
        try:
            evidence = odeco.decompose(noise, "auto", rng=0).rank_evidence
        except odeco.RankError:
            continue
        found += evidence.rank == dimension
        assert evidence.rank < dimension or evidence.confidence == 0
    assert found
