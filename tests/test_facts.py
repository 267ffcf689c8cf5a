"""Facts from outside: published extremes, a known trap, and another library's contractions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.power import PowerSolver, Schedule, run, step
from odeco.tensors import DenseTensor, SparseTensor
from reproduction.baselines import ss_hopm

# Kofidis and Regalia 2002, as printed by Kolda and Mayo 2011, example 3.5; indices count from 1.
KOFIDIS_REGALIA = {
    "1111": 0.2883, "1112": -0.0031, "1113": 0.1973, "1122": -0.2485, "1123": -0.2939, "1133": 0.3847, "1222": 0.2972,
    "1223": 0.1862, "1233": 0.0919, "1333": -0.3619, "2222": 0.1241, "2223": -0.3420, "2233": 0.2127, "2333": 0.2727,
    "3333": -0.3054,
}  # fmt: skip
MAXIMA = [0.8893, 0.8169, 0.3633]
MINIMA = [-1.0954, -0.5629, -0.0451]


@pytest.fixture(scope="module")
def kofidis_regalia():
    indices = [[int(digit) - 1 for digit in key] for key in KOFIDIS_REGALIA]
    return SparseTensor(indices, list(KOFIDIS_REGALIA.values()), 3)


def test_ss_hopm_finds_the_published_extremes(kofidis_regalia):
    np.testing.assert_allclose(ss_hopm(kofidis_regalia, shift=4, rng=0).weights, MAXIMA, atol=1e-4)
    np.testing.assert_allclose(ss_hopm(kofidis_regalia, shift=-4, rng=0).weights, MINIMA, atol=1e-4)


def test_operator_norm_takes_both_signs_into_account(kofidis_regalia):
    assert odeco.operator_norm(kofidis_regalia, rng=0) == pytest.approx(1.0954, abs=1e-4)
    assert odeco.operator_norm(-1 * kofidis_regalia, rng=0) == pytest.approx(1.0954, abs=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_the_loop_converges_to_an_extreme_where_plain_iteration_cycles(kofidis_regalia, seed):
    pair = run(kofidis_regalia, Schedule(1, 1, 500, tolerance=1e-10), rng=seed).found[0]
    assert pair.residual < 1e-9
    assert min(abs(pair.weight - extreme) for extreme in MAXIMA + MINIMA) < 1e-4


def test_plain_iteration_does_cycle(kofidis_regalia):
    """The published two-cycle, so that the test above guards against something real."""
    u = odeco.power.steps.uniform_starts(np.random.default_rng(0), (3,), 50)
    for _ in range(1000):
        u = kofidis_regalia.image(u)
        u /= np.linalg.norm(u, axis=0)
    after = kofidis_regalia.image(u)
    after /= np.linalg.norm(after, axis=0)
    assert np.abs(kofidis_regalia.value(u) - kofidis_regalia.value(after)).max() > 0.05


def test_starts_on_the_sphere_find_what_starts_in_the_positive_orthant_miss():
    d = 50
    ones = np.full((d, 1), d**-0.5)
    others = np.linalg.qr(np.hstack([ones, np.random.default_rng(0).standard_normal((d, 3))]))[0][
        :, 1:
    ]
    tensor = Components([0.3, 1.0, 0.9, 0.8], np.hstack([ones, others]))
    for seed in range(5):
        assert run(tensor, Schedule(1, 10, 50), rng=seed).found[0].weight == pytest.approx(1.0)
    positive = np.random.default_rng(0).random((d, 100))
    for _ in range(50):
        positive = tensor.image(positive / np.linalg.norm(positive, axis=0))
    assert tensor.value(positive / np.linalg.norm(positive, axis=0)).max() == pytest.approx(0.3)


@pytest.mark.parametrize(("order", "dimension"), list(itertools.product([3, 4, 5], [2, 5])))
def test_pyttb_makes_the_same_contractions(order, dimension):
    pyttb = pytest.importorskip("pyttb")
    generator = np.random.default_rng(order * dimension)
    entries = odeco.symmetrize(generator.standard_normal((dimension,) * order))
    theirs, ours = pyttb.tensor(entries), DenseTensor(entries)
    for u in generator.standard_normal((3, dimension)):
        np.testing.assert_allclose(
            ours.image(u[:, None])[:, 0], theirs.ttsv(u, 0), rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(
            ours.value(u[:, None])[0], theirs.ttsv(u), rtol=1e-10, atol=1e-12
        )


@pytest.mark.slow
def test_pyttb_symmetrizes_alike():
    pyttb = pytest.importorskip("pyttb")
    entries = np.random.default_rng(0).standard_normal((4, 4, 4))
    np.testing.assert_allclose(
        odeco.symmetrize(entries), pyttb.tensor(entries).symmetrize().data, rtol=1e-12
    )


def test_values_of_a_candidate_never_get_worse_once_shifted(kofidis_regalia):
    search = PowerSolver.start(Schedule(1, 20, 300, tolerance=1e-12), order=4, parts=(3,), rng=0)
    losses = np.zeros(20)
    while search.stage == "iterate":
        before = search
        search = step(kofidis_regalia, search)
        if search.stage == "iterate" and search.iteration > 1:
            losses += search.signs * (search.values - before.values) < -1e-12
    assert (
        losses.max() <= 6
    )  # each loss at least doubles the shift, which is enough at 3 times the norm 1.0954
