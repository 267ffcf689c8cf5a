"""Private mixtures: no row moves a sum by more than declared, and nothing is learnt but from what is released."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2
from sealing import plain, play_back, record

from odeco.errors import BudgetExhausted
from odeco.models import TensorMixture, plan_mixture
from odeco.models.engine.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.private import moment_of_seconds
from odeco.models.gmm.start import span_of
from odeco.privacy import LedgerFile
from odeco.privacy.holders.rows import (
    CONSTANT,
    BoundedRows,
    packed_cube,
    packed_matrix,
    unpacked_cube,
    unpacked_matrix,
)
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.sums import PrivateSums

N, D, K = 6, 4, 3
BOUND = 2.5
RELEASED = np.random.default_rng(9)
SPAN = span_of(SecondMoment(RELEASED.uniform(-0.2, 0.2, D), np.diag([0.5, 0.3, 0.1, 0.1])), K, 0.1)
RADIUS = 1.7
MODEL = Gaussians(np.array([0.5, 0.3, 0.2]), RELEASED.uniform(-0.5, 0.5, (K, D)), np.full(K, 0.05))
CENTRE = np.array([0.3, -0.1, 0.0, 0.2])
QUESTIONS = {
    "seconds": lambda held: held.seconds(),
    "thirds": lambda held: held.thirds(SPAN.mean, SPAN.whitener, RADIUS),
    "shares": lambda held: held.shares(lambda rows: MODEL.posterior(rows)[0], K, CENTRE, 0.7),
}
BUDGET = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 6.0}


def random_row(rng):
    """Return a row of any length; now and then one that is huge, tiny, along an axis, or no number."""
    kind = rng.integers(8)
    direction = rng.standard_normal(D)
    if kind == 0:
        return np.full(D, [np.nan, np.inf, 1e308, 5e-324][rng.integers(4)])
    if kind == 1:
        return BOUND * rng.choice([-10, 10]) * np.eye(D)[rng.integers(D)]
    if kind == 2:
        return 1e200 * direction
    return BOUND * rng.uniform(0, 2) * direction / np.linalg.norm(direction)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_row_moves_a_sum_by_more_than_declared(question, relation):
    ask = QUESTIONS[question]
    asked = ask(BoundedRows(np.zeros((N, D)), BOUND))
    sums = PrivateSums(Guarantee(1.0, 1e-6), N, record="row", neighbour_relation=relation)
    declared = sums.sensitivity(asked)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(300):
        rows = np.array([random_row(rng) for _ in range(N)])
        other = rows.copy()
        other[2] = np.nan if relation == "add_remove" else random_row(rng)
        answers = [ask(BoundedRows(each, BOUND)).answer() for each in (rows, other)]
        assert answers[0].shape == (asked.size,)
        moved = float(np.linalg.norm(answers[0] - answers[1]))
        assert moved <= declared
        worst = max(worst, moved / declared)
    assert worst > 0.6  # the bound is no idle one


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_worst_neighbours_reach_what_is_declared(question):
    ask = QUESTIONS[question]
    asked = ask(BoundedRows(np.zeros((1, D)), BOUND))
    sums = PrivateSums(Guarantee(1.0, 1e-6), 1, record="row")
    declared = sums.sensitivity(asked)
    # For seconds: products that vanish, c² + ⟨x, v⟩ = 0. For thirds: opposite rows. For shares: rows beyond the radius
    # on both sides of the centre, which belong to one component each.
    angle = math.acos(-(CONSTANT**2))
    far = 1.001 * RADIUS * math.sqrt(SPAN.strengths[1]) * SPAN.basis[:, 1]
    pairs = {
        "seconds": (np.array([1.0, 0, 0, 0]), np.array([math.cos(angle), math.sin(angle), 0, 0])),
        "thirds": (SPAN.mean + far, SPAN.mean - far),
        "shares": (MODEL.means[0] * 1.8, MODEL.means[1] * 1.8),
    }
    moved = np.linalg.norm(
        np.subtract(*(ask(BoundedRows(BOUND * row[None], BOUND)).answer() for row in pairs[question]))
    )
    assert moved <= declared
    assert moved > {"seconds": 0.999, "thirds": 0.99, "shares": 0.8}[question] * declared


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_blank_row_adds_nothing_and_a_row_depends_on_no_other(question):
    ask = QUESTIONS[question]
    rng = np.random.default_rng(1)
    rows = rng.uniform(-1, 1, (9, D))
    alone = sum(ask(BoundedRows(row[None], BOUND)).answer() for row in rows)
    np.testing.assert_allclose(ask(BoundedRows(rows, BOUND)).answer(), alone, atol=1e-12)
    blank = np.full((3, D), np.nan)
    blank[1] = [1.0, np.inf, 0.0, 0.0]
    np.testing.assert_array_equal(ask(BoundedRows(blank, BOUND)).answer(), 0.0)


def test_a_function_that_returns_no_probabilities_moves_a_sum_by_no_more():
    sums = PrivateSums(Guarantee(1.0, 1e-6), 1, record="row")
    for numbers in (1e9, -1.0, np.nan, np.inf):

        def query(row, numbers=numbers):
            return BoundedRows(row, BOUND).shares(lambda rows: np.full((len(rows), K), numbers), K, CENTRE, 0.7)

        one, other = np.eye(D)[:1], -np.eye(D)[:1]
        moved = np.linalg.norm(query(one).answer() - query(other).answer())
        assert moved <= sums.sensitivity(query(one))


def test_packed_arrays_have_the_norm_of_the_whole_ones():
    rng = np.random.default_rng(2)
    vector = rng.standard_normal(5)
    matrix, cube = np.multiply.outer(vector, vector), np.einsum("i,j,l->ijl", vector, vector, vector)
    assert np.linalg.norm(packed_matrix(matrix)) == pytest.approx(np.linalg.norm(matrix))
    assert np.linalg.norm(packed_cube(cube)) == pytest.approx(np.linalg.norm(cube))
    np.testing.assert_allclose(unpacked_matrix(packed_matrix(matrix), 5), matrix)
    np.testing.assert_allclose(unpacked_cube(packed_cube(cube), 5), cube)


def test_the_second_moment_is_that_of_the_rows():
    rows = np.random.default_rng(3).uniform(-1, 1, (40, D))
    moment = moment_of_seconds(BoundedRows(rows, 2.0).seconds().answer(), 40, D)
    np.testing.assert_allclose(2.0 * moment.mean, rows.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(4.0 * moment.covariance, np.cov(rows.T, bias=True), atol=1e-12)


def private_model(rows, k=2, **settings):
    model = TensorMixture(k, **(BUDGET | settings), random_state=0).fit(rows)
    names = ("weights_", "means_", "covariances_", "lower_bound_", "n_iter_", "init_", "privacy_")
    return {name: getattr(model, name) for name in names}


def tables():
    rng = np.random.default_rng(4)
    clusters = 4 * np.eye(3)[rng.integers(0, 2, 300)] + rng.standard_normal((300, 3))
    return clusters, np.zeros((300, 3)), np.full((300, 3), np.nan), 1e300 * clusters


@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize("k", [1, 2])
def test_the_same_releases_give_the_same_mixture_whatever_the_rows_are(k, other):
    data = tables()
    model, seen = record(lambda: private_model(data[0], k))
    played, unseen = play_back(lambda: private_model(data[other], k), seen.released)
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert any(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize("k", [1, 2])
def test_every_release_of_a_mixture_has_the_noise_that_its_charge_says(k):
    model, seen = record(lambda: private_model(tables()[0], k))
    report = model["privacy_"]
    assert seen.scales == [charge.scale for charge in report.charges]
    assert len(seen.scales) == (1 if k == 1 else 3)
    assert report.epsilon_spent == pytest.approx(2.0, rel=1e-6)
    assert report.epsilon_spent <= 2.0
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf([1e-9, 1 - 1e-9], exact.size)  # the noise is that of the operating system
        assert low < np.sum(((released - exact) / scale) ** 2) < high


def test_a_private_mixture_finds_clear_components():
    # Four spheres, 12 deviations apart. By the plan for these numbers, which the rows are not asked for, all are found.
    n, d = 20_000, 4
    assert plan_mixture(4, n_rows=n, n_features=d, epsilon=2.0, delta=1e-6, separation=12.0).agreement > 0.99
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, n)
    rows = 12 / math.sqrt(2) * np.eye(4)[labels] + rng.standard_normal((n, d))
    model = TensorMixture(4, epsilon=2.0, delta=1e-6, norm_bound=13.0, random_state=0).fit(rows)
    assert len({*zip(labels.tolist(), model.predict(rows).tolist(), strict=True)}) == 4
    assert model.privacy_.private
    assert "Private: epsilon 2" in model.summary()
    assert "4 of 4 components stand clear of noise" in model.init_
    assert model.converged_
    assert model.sample(5)[0].shape == (5, 4)


def test_a_plan_knows_that_less_budget_finds_less():
    plans = [plan_mixture(5, n_rows=3000, n_features=8, epsilon=each, delta=1e-6) for each in (0.05, 8.0)]
    assert plans[0].agreement < 0.7 < plans[1].agreement
    assert plans[0].releases[0].noise > plans[1].releases[0].noise
    assert "would not be found" in str(plans[0])
    assert "35%" in str(plans[1])
    model = TensorMixture(2, **BUDGET).fit(tables()[0])
    plan = plan_mixture(2, n_rows=300, n_features=3, epsilon=2.0, delta=1e-6)
    # The noise of the second release depends on what the first releases; that of the others is known beforehand.
    charges, planned = model.privacy_.charges, plan.releases
    assert [each.mechanism for each in charges] == [each.what for each in planned]
    assert [charges[0].scale, charges[2].scale] == pytest.approx([planned[0].noise, planned[2].noise], rel=1e-9)


def test_a_mixture_deep_in_noise_says_so():
    # With ε = 0.05 the noise of a count is above two hundred rows, and five times that is more than all 300.
    model = TensorMixture(2, **(BUDGET | {"epsilon": 0.05}), random_state=0).fit(tables()[0])
    assert not model.converged_
    assert model.summary().startswith("2 components, deep in noise: do not trust them.")
    assert "iterations were not enough" not in model.summary()


def test_a_shared_ledger_pays_for_mixtures_until_it_is_used_up(tmp_path):
    path = tmp_path / "rows.ledger"
    LedgerFile.create(path, epsilon=2.5, delta=1e-6)
    rows = tables()[0]
    model = TensorMixture(2, **BUDGET, ledger=path, random_state=0).fit(rows)
    with pytest.raises(BudgetExhausted):
        TensorMixture(2, **BUDGET, ledger=path).fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    np.testing.assert_array_equal(again.means_, model.means_)


@pytest.mark.parametrize("standardize", ["auto", False])
@pytest.mark.parametrize("outlier", [1e6, 0.0])
def test_the_estimator_scales_no_row_by_the_others(standardize, outlier):
    """Columns of very different scales: their deviations depend on single rows, so nothing may be divided by them."""
    rows = np.random.default_rng(0).standard_normal((300, D)) * [1e-4, 1e-3, 1e-2, 1.0]
    neighbour = rows.copy()
    neighbour[7] = [outlier, 0, 0, 0]
    model = TensorMixture(2, standardize=standardize, **BUDGET)
    one, other = (model._hold(each, model._specify())[0].seconds() for each in (rows, neighbour))
    assert np.linalg.norm(one.answer() - other.answer()) <= 2 * one.bound


def test_what_a_private_mixture_cannot_do_is_refused():
    rows = tables()[0]
    model = TensorMixture(2, **BUDGET).fit(rows)
    for name in ("score", "bic", "aic"):
        with pytest.raises(ValueError, match=f"^The {name} of a private model must not choose between models"):
            getattr(model, name)(rows)
    assert model.score_samples(rows).shape == (300,)
    with pytest.raises(ValueError, match="is fitted to all rows at once"):
        TensorMixture(2, **BUDGET).partial_fit(rows)
    with pytest.raises(ValueError, match="must be an int for a private model"):
        TensorMixture("auto", **BUDGET).fit(rows)
    with pytest.raises(ValueError, match="A private mixture has spheres"):
        TensorMixture(2, **BUDGET, covariance_type="full").fit(rows)
    with pytest.raises(ValueError, match="at most one component more than there are features"):
        TensorMixture(5, **BUDGET).fit(rows)
    with pytest.raises(TypeError, match="must be a NumPy array or a table"):
        TensorMixture(2, **BUDGET).fit(rows.tolist())
    with pytest.raises(ValueError, match="delta"):
        TensorMixture(2, **(BUDGET | {"delta": 0.1})).fit(rows)
