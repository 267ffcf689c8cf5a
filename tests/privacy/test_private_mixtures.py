"""Private mixtures: no row moves a sum by more than declared, and nothing is learnt but from what
is released.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from neighbours import check_blank_rows, largest_move
from scipy.stats import chi2
from sealing import plain, play_back, record

from odeco.errors import BudgetExhausted
from odeco.models import TensorMixture, plan_mixture
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.private import moment_of_seconds
from odeco.models.gmm.private import budget_of
from odeco.models.gmm.start import span_of
from odeco.privacy import LedgerFile
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.norms import suggested_units
from odeco.privacy.holders.rows import (
    CONSTANT,
    BoundedRows,
    UnboundedRows,
    packed_cube,
    packed_matrix,
    unpacked_cube,
    unpacked_matrix,
)
from odeco.privacy.sums import PrivateSums

D, K = 4, 3
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
    "variances": lambda held: held.shares(
        lambda rows: MODEL.posterior(rows)[0], K, CENTRE, 0.7, "diag"
    ),
    "covariances": lambda held: held.shares(
        lambda rows: MODEL.posterior(rows)[0], K, CENTRE, 0.7, "full"
    ),
    "columns": lambda held: held.column_counts(),
}
BUDGET = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": 6.0}


def holder_for(question):
    return UnboundedRows if question == "columns" else lambda rows: BoundedRows(rows, BOUND)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_row_moves_a_sum_by_more_than_declared(question, relation):
    worst = largest_move(
        QUESTIONS[question], holder_for(question), relation, bound=BOUND, centre=CENTRE
    )
    assert worst > 0.6  # the bound is no idle one


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_worst_neighbours_reach_what_is_declared(question):
    ask = QUESTIONS[question]
    hold = holder_for(question)
    declared = PrivateSums(Guarantee(1.0, 1e-6), 1, record="row").sensitivity(
        ask(hold(np.zeros((1, D))))
    )
    # For seconds: products that vanish, c² + ⟨x, v⟩ = 0. For thirds: opposite rows. For shares:
    # rows beyond the radius on both sides of the centre, which belong to one component each. For
    # columns: rows in no common bin.
    angle = math.acos(-(CONSTANT**2))
    far = 1.001 * RADIUS * math.sqrt(SPAN.strengths[1]) * SPAN.basis[:, 1]
    pairs = {
        "seconds": (np.array([1.0, 0, 0, 0]), np.array([math.cos(angle), math.sin(angle), 0, 0])),
        "thirds": (SPAN.mean + far, SPAN.mean - far),
        "columns": (np.ones(D), -np.ones(D)),
    } | dict.fromkeys(
        ("shares", "variances", "covariances"), (MODEL.means[0] * 1.8, MODEL.means[1] * 1.8)
    )
    moved = np.linalg.norm(
        np.subtract(*(ask(hold(BOUND * row[None])).answer() for row in pairs[question]))
    )
    assert moved <= declared
    assert (
        moved > {"seconds": 0.999, "thirds": 0.99, "columns": 0.999}.get(question, 0.8) * declared
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_blank_row_adds_nothing_and_a_row_depends_on_no_other(question):
    check_blank_rows(QUESTIONS[question], holder_for(question), D)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_a_row_at_the_radius_adds_what_is_declared(kind):
    """With certain responsibilities, a row along an axis adds (1, u, u²) of norm √3 to one
    component.
    """
    row = BOUND * (CENTRE - 0.7001 * np.eye(D)[:1])
    query = BoundedRows(row, BOUND).shares(
        lambda rows: np.eye(K)[np.zeros(len(rows), int)], K, CENTRE, 0.7, kind
    )
    assert np.linalg.norm(query.answer()) == pytest.approx(math.sqrt(3), rel=1e-6)
    assert query.bound == math.sqrt(3)


def test_a_function_that_returns_no_probabilities_moves_a_sum_by_no_more():
    sums = PrivateSums(Guarantee(1.0, 1e-6), 1, record="row")
    for numbers in (1e9, -1.0, np.nan, np.inf):

        def query(row, numbers=numbers):
            return BoundedRows(row, BOUND).shares(
                lambda rows: np.full((len(rows), K), numbers), K, CENTRE, 0.7
            )

        one, other = np.eye(D)[:1], -np.eye(D)[:1]
        moved = np.linalg.norm(query(one).answer() - query(other).answer())
        assert moved <= sums.sensitivity(query(one))


def test_packed_arrays_have_the_norm_of_the_whole_ones():
    rng = np.random.default_rng(2)
    vector = rng.standard_normal(5)
    matrix, cube = (
        np.multiply.outer(vector, vector),
        np.einsum("i,j,l->ijl", vector, vector, vector),
    )
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


SETTINGS = {
    "one": {"k": 1},
    "spheres": {},
    "diag": {"covariance_type": "diag", "epsilon": 50.0},
    "full": {"covariance_type": "full", "epsilon": 50.0},
    "standardized": {"standardize": True, "norm_bound": "auto"},
}


@pytest.mark.parametrize("other", [1, 2, 3])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_same_releases_give_the_same_mixture_whatever_the_rows_are(settings, other):
    data = tables()
    model, seen = record(lambda: private_model(data[0], **settings))
    played, unseen = play_back(lambda: private_model(data[other], **settings), seen.released)
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert any(not np.array_equal(a, b) for a, b in zip(seen.exact, unseen.exact, strict=True))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_release_of_a_mixture_has_the_noise_that_its_charge_says(settings):
    model, seen = record(lambda: private_model(tables()[0], **settings))
    report, epsilon = model["privacy_"], settings.get("epsilon", 2.0)
    assert seen.scales == [charge.scale for charge in report.charges]
    assert len(seen.scales) == (
        1 if settings.get("k") == 1 else 4 if "standardize" in settings else 3
    )
    assert report.epsilon_spent == pytest.approx(epsilon, rel=1e-6)
    assert report.epsilon_spent <= epsilon
    for exact, scale, released in zip(seen.exact, seen.scales, seen.released, strict=True):
        low, high = chi2.ppf(
            [1e-9, 1 - 1e-9], exact.size
        )  # the noise is that of the operating system
        assert low < np.sum(((released - exact) / scale) ** 2) < high


def test_a_private_mixture_finds_clear_components():
    # Four spheres, 12 deviations apart. By the plan for these numbers, which the rows are not asked
    # for, all are found.
    n, d = 20_000, 4
    assert (
        plan_mixture(4, n_rows=n, n_features=d, epsilon=2.0, delta=1e-6, separation=12.0).agreement
        > 0.99
    )
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


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_private_covariances_are_those_of_the_components(kind):
    """Three clusters, elongated along different axes. At ε = 8 the noise in a variance is below a
    tenth of the mean.

    Its deviation is 4 d √6 k/(n μ √0.3) of the mean variance of rows, for d = k = 3, n = 60,000, μ
    = 1.6: 0.003, or for full ones, with a share of 0.18, 0.004. Rows of 80 around the means have
    variances up to 0.09 of that.
    """
    rng = np.random.default_rng(6)
    labels, deviations = rng.integers(0, 3, 60_000), np.array([[3.0, 1, 1], [1, 3, 1], [1, 1, 3]])
    rows = 15 * np.eye(3)[labels] + deviations[labels] * rng.standard_normal((60_000, 3))
    settings = {
        "epsilon": 8.0,
        "delta": 1e-6,
        "norm_bound": "auto",
        "covariance_type": kind,
        "random_state": 0,
    }
    model = TensorMixture(3, **settings).fit(rows)
    order = np.argsort(model.means_.argmax(axis=1))
    found = model.covariances_[order]
    found = np.sqrt(found if kind == "diag" else np.einsum("kii->ki", found))
    np.testing.assert_allclose(found, deviations, rtol=0.25)
    assert model.covariance_type_ == kind
    assert {each.mechanism for each in model.privacy_.charges} == {
        "counts of rows by their norm",
        "second moment",
        "third moment, whitened",
        "statistics of an EM iteration",
    }
    one = TensorMixture(1, **settings).fit(rows)
    assert model.score_samples(rows).mean() > one.score_samples(rows).mean() + 0.5


@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
def test_with_little_budget_all_of_it_goes_to_one_component(kind):
    """Public numbers decide: with ε = 0.02, noise of the second moment is beyond the variance of
    all 2,000 rows.
    """
    rows = np.random.default_rng(7).standard_normal((2000, 5)) + 4 * np.eye(5)[np.arange(2000) % 3]
    settings = {
        "epsilon": 0.02,
        "delta": 1e-6,
        "norm_bound": 9.0,
        "covariance_type": kind,
        "random_state": 0,
    }
    model = TensorMixture(3, **settings).fit(rows)
    assert [each.mechanism for each in model.privacy_.charges] == ["second moment"]
    assert np.ptp(model.means_, axis=0).max() == 0.0
    assert not model.converged_
    plan = plan_mixture(
        3, n_rows=2000, n_features=5, epsilon=0.02, delta=1e-6, covariance_type=kind
    )
    assert [each.what for each in plan.releases] == ["second moment"]


@pytest.mark.parametrize(
    ("n_rows", "n_features", "k"), [(3_000, 3, 4), (5_000, 20, 15), (2_000, 20, 2)]
)
def test_spheres_are_one_where_noise_hides_their_counts_or_the_second_moment(n_rows, n_features, k):
    # A replaced row moves the counts by at most 2, with half of μ²: n/k rows are 7.5 deviations
    # from this μ on. The second moment, with the constant c, moves by at most √2 (1 + c²), with 0.3
    # of μ²: the largest eigenvalue of the noise, √(2d) deviations, is 1.7 times the mean variance
    # 1/d of n rows from that μ on.
    of_counts = 7.5 * 2 / math.sqrt(0.5) * k / n_rows
    of_moment = (
        n_features
        * math.sqrt(2 * n_features)
        * math.sqrt(2)
        * (1 + CONSTANT**2)
        / (math.sqrt(0.3) * n_rows * 1.7)
    )
    mu = max(of_counts, of_moment)
    assert budget_of("spherical", n_rows, n_features, k, 0.99 * mu) == ((1.0, 0.0, 0.0), False)
    assert budget_of("spherical", n_rows, n_features, k, 1.01 * mu) == ((0.3, 0.2, 0.5), False)


@pytest.mark.parametrize(("n_rows", "n_features", "k"), [(3_000, 6, 4), (2_000, 20, 2)])
def test_full_covariances_have_one_component_where_noise_in_means_is_a_third_of_the_spread_of_rows(
    n_rows, n_features, k
):
    # In the EM iteration a row moves (count, step/2) of one component by at most 2 if it is
    # replaced, and it has 0.18 of μ²: in units of the standard deviation 1/√d of rows, a mean has
    # noise of 2 √d (2/(√0.18 μ)) k/n.
    mu = 2 * math.sqrt(n_features) * 2 / math.sqrt(0.18) * k / n_rows / 0.3
    assert budget_of("full", n_rows, n_features, k, 0.99 * mu) == ((1.0, 0.0, 0.0), False)
    assert budget_of("full", n_rows, n_features, k, 1.01 * mu)[0] == (0.7, 0.12, 0.18)


def test_centres_and_scales_are_those_of_the_columns():
    """By noisy counts with the whole budget: within a fifth, the width of a bin, of the deviation
    or of the centre.
    """
    rng = np.random.default_rng(8)
    centres, deviations = np.array([0.0, 100.0, -3e6, 0.02]), np.array([1.0, 30.0, 1e6, 1e-3])
    rows = centres + deviations * rng.standard_normal((20_000, 4))
    for scale in (0.0, 30.0):
        counts = UnboundedRows(rows).column_counts().answer().reshape(4, -1)
        centre, spread = suggested_units(counts + scale * rng.standard_normal(counts.shape), scale)
        assert np.all(np.abs(centre - centres) < 0.2 * np.maximum(deviations, np.abs(centres)))
        assert np.all(spread > 0.7 * deviations)
        assert np.all(spread < 1.5 * np.maximum(deviations, 0.2 * np.abs(centres)))
    assert counts.sum() == 4 * 20_000
    lost = suggested_units(1e6 * rng.standard_normal(counts.shape), 1e6)
    assert np.isfinite(lost).all()
    assert np.all(lost[1] > 0)


def test_a_standardised_mixture_is_that_of_columns_in_any_unit():
    """Columns in other units, far from zero: components that are clear are found in all of them."""
    rng = np.random.default_rng(9)
    labels, units = rng.integers(0, 2, 20_000), np.array([1e-3, 1.0, 1e4])
    rows = units * (10 + 6 * np.eye(3)[labels] + rng.standard_normal((20_000, 3)))
    settings = {"epsilon": 2.0, "delta": 1e-6, "norm_bound": "auto", "random_state": 0}
    model = TensorMixture(2, **settings, standardize=True).fit(rows)
    agreement = np.mean(model.predict(rows) == labels)
    assert max(agreement, 1 - agreement) > 0.99
    assert model.privacy_.charges[0].mechanism == "counts of numbers by column"
    assert model.privacy_.epsilon_spent <= 2.0
    np.testing.assert_allclose(np.sort(model.means_[:, 1]), [10, 16], atol=1.0)
    assert "Columns were standardised" in model.summary()
    plan = plan_mixture(2, n_rows=20_000, n_features=3, epsilon=2.0, delta=1e-6, standardize=True)
    assert [each.what for each in plan.releases] == [
        each.mechanism for each in model.privacy_.charges
    ]


@pytest.mark.parametrize(
    "settings", [{"covariance_type": "diag"}, {"covariance_type": "full"}, {"standardize": True}]
)
def test_saved_private_mixtures_come_back(settings, tmp_path):
    rows = np.random.default_rng(3).standard_normal((5000, 3)) + 9 * np.eye(3)[np.arange(5000) % 3]
    model = TensorMixture(
        3, **(BUDGET | {"norm_bound": "auto", "epsilon": 8.0} | settings), random_state=0
    ).fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert again.privacy_ == model.privacy_


def test_a_plan_knows_that_less_budget_finds_less():
    plans = [
        plan_mixture(5, n_rows=3000, n_features=8, epsilon=each, delta=1e-6) for each in (0.05, 8.0)
    ]
    assert plans[0].agreement < 0.7 < plans[1].agreement
    assert plans[0].releases[0].noise > plans[1].releases[0].noise
    assert "would not be found" in str(plans[0])
    assert "30%" in str(plans[1])
    model = TensorMixture(2, **BUDGET).fit(tables()[0])
    plan = plan_mixture(2, n_rows=300, n_features=3, epsilon=2.0, delta=1e-6)
    # The noise of the second release depends on what the first releases; that of the others is
    # known beforehand.
    charges, planned = model.privacy_.charges, plan.releases
    assert [each.mechanism for each in charges] == [each.what for each in planned]
    assert [charges[0].scale, charges[2].scale] == pytest.approx(
        [planned[0].noise, planned[2].noise], rel=1e-9
    )


def test_a_mixture_deep_in_noise_says_so():
    # With ε = 0.05 the noise of a count is above two hundred rows, and five times that is more than
    # all 300.
    model = TensorMixture(2, **(BUDGET | {"epsilon": 0.05}), random_state=0).fit(tables()[0])
    assert not model.converged_
    assert model.summary().startswith("2 components, deep in noise: do not trust them.")
    assert "iterations were not enough" not in model.summary()


def test_a_shared_ledger_pays_for_mixtures_until_it_is_used_up(tmp_path):
    path = tmp_path / "rows.ledger"
    LedgerFile.create(path, data="people", unit="record", epsilon=2.5, delta=1e-6)
    rows = tables()[0]
    model = TensorMixture(2, **BUDGET, ledger=path, random_state=0).fit(rows)
    with pytest.raises(BudgetExhausted):
        TensorMixture(2, **BUDGET, ledger=path).fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    assert again.ledger is None  # the file may be published, and where a ledger lies is private
    assert b"rows.ledger" not in (tmp_path / "model.npz").read_bytes()
    np.testing.assert_array_equal(again.means_, model.means_)


@pytest.mark.parametrize("standardize", ["auto", False])
@pytest.mark.parametrize("outlier", [1e6, 0.0])
def test_the_estimator_scales_no_row_by_the_others(standardize, outlier):
    """Columns of very different scales: their deviations depend on single rows, so nothing may be
    divided by them.
    """
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
        with pytest.raises(
            ValueError, match=f"^The {name} of a private model must not choose between models"
        ):
            getattr(model, name)(rows)
    assert model.score_samples(rows).shape == (300,)
    with pytest.raises(ValueError, match="is fitted to all rows at once"):
        TensorMixture(2, **BUDGET).partial_fit(rows)
    with pytest.raises(ValueError, match="must be an int for a private model"):
        TensorMixture("auto", **BUDGET).fit(rows)
    with pytest.raises(ValueError, match="must choose its bound itself"):
        TensorMixture(2, **BUDGET, standardize=True).fit(rows)
    with pytest.raises(ValueError, match="at most one component more than there are features"):
        TensorMixture(5, **BUDGET).fit(rows)
    with pytest.raises(TypeError, match="must be a NumPy array or a table"):
        TensorMixture(2, **BUDGET).fit(rows.tolist())
    with pytest.raises(ValueError, match="delta"):
        TensorMixture(2, **(BUDGET | {"delta": 0.1})).fit(rows)
