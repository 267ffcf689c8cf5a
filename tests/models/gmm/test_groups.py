"""Groups of a mixture: components are joined unless there are fewer rows between them than at either."""

import math

import numpy as np
import pytest

from odeco.models import TensorMixture
from odeco.models.engine.gaussians import Gaussians
from odeco.models.gmm.groups import groups_of, has_gap


def two_spheres(distance, weight=0.5):
    means = np.array([[0.0, 0.0], [distance, 0.0]])
    return Gaussians(np.array([weight, 1 - weight]), means, np.ones(2))


def groups(model, rows, weights=None):
    return groups_of(model, rows, model.posterior(rows)[0], weights)


def test_the_overlap_is_the_entropy_of_the_posterior():
    model = two_spheres(4.0)
    rows = np.array([[2.0, 0.0]])  # in the middle, where both are equally probable
    assert groups(model, rows) == (pytest.approx(1.0), 1)
    assert groups(model, np.zeros((50, 2)))[0] < 0.01


def test_spheres_that_are_apart_are_two_groups_and_those_of_one_gaussian_are_one():
    # Five deviations apart, 150 rows each: 0.79 of them at either side, 0.18 between. Of one Gaussian most are between.
    rng = np.random.default_rng(0)
    apart = rng.standard_normal((300, 2)) + [5.0, 0.0] * (np.arange(300) % 2)[:, None]
    assert groups(two_spheres(5.0), apart)[1] == 2
    one = rng.standard_normal((300, 2))
    assert groups(Gaussians(np.full(2, 0.5), np.array([[-0.5, 0.0], [0.5, 0.0]]), np.ones(2)), one)[1] == 1


def test_a_weight_counts_as_equal_rows():
    model, rng = two_spheres(4.0), np.random.default_rng(1)
    rows = rng.standard_normal((60, 2)) + [4.0, 0.0] * (np.arange(60) % 2)[:, None]
    for number in (1, 2, 5):
        repeated = np.repeat(rows, number, axis=0)
        assert groups(model, rows, np.full(60, float(number)))[1] == groups(model, repeated)[1]


def test_an_even_density_shows_a_gap_in_four_of_a_hundred_cases():
    # Both of two tests of 10 % reject, whose normal statistics have a correlation of 1/2: in 3.7 % of cases, and less
    # because numbers of rows are whole. 2,000 cases have a standard error of 0.4 %.
    model, rng = two_spheres(2.0), np.random.default_rng(2)
    found = [
        has_gap(model, 0, 1, np.column_stack([rng.uniform(-1, 3, 200), np.zeros(200)]), np.ones(200))
        for _ in range(2000)
    ]
    assert 0.015 < np.mean(found) < 0.037 + 3 * math.sqrt(0.037 * 0.963 / 2000)


def shape_of(name, rng, n=1000):
    angles = rng.uniform(0, 2 * np.pi, n)
    return {
        "heavy tails": lambda: rng.standard_t(3, (n, 2)),
        "skewed": lambda: rng.exponential(size=(n, 2)),
        "square": lambda: rng.random((n, 2)),
        "ring": lambda: 5 * np.column_stack([np.cos(angles), np.sin(angles)]) + 0.3 * rng.standard_normal((n, 2)),
    }[name]()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "k"), [("heavy tails", 5), ("skewed", 14), ("square", 10), ("ring", 12)])
def test_components_that_cover_a_shape_without_a_gap_are_one_group(name, k, seed):
    # As many components as "auto" selects. To be alone, one must show a gap to each of its neighbours, of which each is
    # found by chance in 4 % of cases. A ring has 12 pairs of neighbours, and three gaps, which make three groups of it,
    # in 1 % of cases. Few, long arcs would not do: along their chord the density of a ring has a gap.
    rows = shape_of(name, np.random.default_rng(seed))
    model = TensorMixture(k, covariance_type="full", standardize=False, random_state=0).fit(rows)
    assert groups(model._learnt.fit.params, rows)[1] <= (2 if name == "ring" else 1)


def test_rows_with_missing_values_are_placed_in_the_middle():
    model, rng = two_spheres(5.0), np.random.default_rng(3)
    rows = rng.standard_normal((400, 2)) + [5.0, 0.0] * (np.arange(400) % 2)[:, None]
    rows[:20, 0] = np.nan
    assert groups(model, rows)[1] == 2
