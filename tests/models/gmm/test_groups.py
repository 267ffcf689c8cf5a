"""Groups of a mixture: components are joined unless there are fewer rows between them than at
either.
"""

import math

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from odeco.models import TensorMixture
from odeco.models.emissions.gaussians import Gaussians
from odeco.models.gmm.groups import gap_evidence, group_numbers


def two_spheres(distance, weight=0.5):
    means = np.array([[0.0, 0.0], [distance, 0.0]])
    return Gaussians(np.array([weight, 1 - weight]), means, np.ones(2))


def groups(model, rows, weights=None):
    return group_numbers(model, rows, model.posterior(rows)[0], weights)


def test_spheres_that_are_apart_are_two_groups_and_those_of_one_gaussian_are_one():
    # Five deviations apart, 150 rows each: 0.79 of them at either side, 0.18 between. Of one
    # Gaussian most are between.
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((300, 2)) + [5.0, 0.0] * (np.arange(300) % 2)[:, None]
    assert groups(two_spheres(5.0), apart)[0] == 2
    one = rng.standard_normal((300, 2))
    assert (
        groups(Gaussians(np.full(2, 0.5), np.array([[-0.5, 0.0], [0.5, 0.0]]), np.ones(2)), one)[0]
        == 1
    )


def test_a_weight_counts_as_equal_rows():
    model, rng = two_spheres(4.0), np.random.default_rng(1)
    rows = rng.standard_normal((60, 2)) + [4.0, 0.0] * (np.arange(60) % 2)[:, None]
    for number in (1, 2, 5):
        repeated = np.repeat(rows, number, axis=0)
        assert groups(model, rows, np.full(60, float(number)))[0] == groups(model, repeated)[0]


def fitted_gaussians(model):
    fit = model._learnt.fit
    return fit.context.in_own_units(fit.params)


def share_between(deviation):
    """Return the share of the middle in it and one side, for components at -1 and 1 with this
    deviation.
    """

    def mass(low, high):
        return sum(np.diff(norm.cdf([low, high], mean, deviation))[0] for mean in (-1, 1))

    return mass(-0.5, 0.5) / (mass(-0.5, 0.5) + mass(0.5, 1.5))


@pytest.mark.parametrize("n_rows", [200, 1000])
def test_an_even_density_shows_a_gap_as_often_as_the_comparison_predicts(n_rows):
    # Halves of an even density over four units have a deviation of 1/√3. Both comparisons must
    # prefer their share p to 1/2: the middle has at most the share log 2(1 − p) / (log 2(1 − p) −
    # log 2p) of half of the rows; the two statistics are normal with a correlation of 1/2.
    p = share_between(1 / math.sqrt(3))
    least = math.log(2 * (1 - p)) / (math.log(2 * (1 - p)) - math.log(2 * p))
    expected = multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]]).cdf(
        np.full(2, (least - 0.5) * 2 * (n_rows / 2) ** 0.5)
    )
    model, rng = (
        Gaussians(np.full(2, 0.5), np.array([[-1.0, 0.0], [1.0, 0.0]]), np.full(2, 1 / 3)),
        np.random.default_rng(2),
    )
    found = [
        gap_evidence(
            model,
            0,
            1,
            np.column_stack([rng.uniform(-2, 2, n_rows), np.zeros(n_rows)]),
            np.ones(n_rows),
        )
        > 0
        for _ in range(2000)
    ]
    # Numbers of rows are whole, which moves the chance by less than a third.
    assert np.mean(found) < 1.33 * expected + 3 * math.sqrt(expected / 2000)


@pytest.mark.parametrize(("n_rows", "most"), [(50, 0.40), (200, 0.08)])
def test_two_groups_show_their_gap(n_rows, most):
    # Four deviations apart: each side misses it if the middle has more than the share above, where
    # p is expected of (157 + 341)/1000 of the rows; the bounds are twice the normal tail of one
    # side, plus three standard errors.
    model, rng = two_spheres(4.0), np.random.default_rng(4)
    found = []
    for _ in range(500):
        rows = rng.standard_normal((n_rows, 2)) + [4.0, 0.0] * (np.arange(n_rows) % 2)[:, None]
        found.append(gap_evidence(model, 0, 1, rows, np.ones(n_rows)) > 0)
    assert 1 - np.mean(found) < most


def test_few_rows_leave_open_whether_an_even_density_is_one_group():
    # Evenly spaced rows are likelier by the share 1/2 than by p: in nats by n/2 times log 1 / (2
    # √(p (1 − p))).
    model = Gaussians(np.full(2, 0.5), np.array([[-1.0, 0.0], [1.0, 0.0]]), np.full(2, 1 / 3))
    p = share_between(1 / math.sqrt(3))
    strong = 3.0 / (-math.log(2 * math.sqrt(p * (1 - p))) / 2)  # so many rows are strong evidence
    for n_rows, expected in ((round(0.3 * strong), (1, 2)), (round(3 * strong), (1, 1))):
        rows = np.column_stack([-2 + 4 * (np.arange(n_rows) + 0.5) / n_rows, np.zeros(n_rows)])
        assert groups(model, rows) == expected


def shape_of(name, rng, n=1000):
    angles = rng.uniform(0, 2 * np.pi, n)
    return {
        "heavy tails": lambda: rng.standard_t(3, (n, 2)),
        "skewed": lambda: rng.exponential(size=(n, 2)),
        "square": lambda: rng.random((n, 2)),
        "ring": lambda: (
            5 * np.column_stack([np.cos(angles), np.sin(angles)])
            + 0.3 * rng.standard_normal((n, 2))
        ),
    }[name]()


@pytest.mark.parametrize(
    ("name", "k"), [("heavy tails", 5), ("skewed", 14), ("square", 10), ("ring", 12)]
)
def test_components_that_cover_a_shape_without_a_gap_are_one_group(name, k):
    # As many components as "auto" selects. To be alone, one must show a gap to each of its
    # neighbours, of which each is found by chance in a few percent of cases. Along the chord of two
    # arcs the density of a ring does have a gap: a ring is only called fewer groups than
    # components.
    numbers = []
    for seed in range(5):
        rows = shape_of(name, np.random.default_rng(seed))
        model = TensorMixture(k, covariance_type="full", standardize=False, random_state=0).fit(
            rows
        )
        numbers.append(groups(fitted_gaussians(model), rows)[0])
    most = k - 1 if name == "ring" else 1
    assert sum(number > most for number in numbers) <= 1


def test_rows_with_missing_values_are_placed_in_the_middle():
    model, rng = two_spheres(5.0), np.random.default_rng(3)
    rows = rng.standard_normal((400, 2)) + [5.0, 0.0] * (np.arange(400) % 2)[:, None]
    rows[:20, 0] = np.nan
    assert groups(model, rows)[0] == 2
