"""What a summary says of rows that are no mixture of independent sources, and that it does not say
it of others.
"""

import math

import numpy as np
import pytest

from odeco.models import TensorICA
from odeco.models.ica.assumptions import caution_of


def independent(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    kinds = (
        rng.laplace(size=n),
        rng.exponential(size=n),
        rng.uniform(size=n),
        rng.standard_t(3, n),
        rng.poisson(1, n),
    )
    return np.array(kinds, dtype=float)


def multivariate_t(seed: int, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) / np.sqrt(rng.chisquare(5, (n, 1)) / 5)


def test_independent_sources_depend_on_each_other_by_chance_in_at_most_one_of_a_thousand_sets():
    # 0.2 of 200 are expected, and the probability of three or more is 0.001.
    assert sum(caution_of(independent(seed, 300))[0] != "" for seed in range(200)) <= 2


def test_what_leaks_from_one_source_into_another_is_no_dependence():
    found = 0
    for seed in range(100):
        sources, rng = independent(seed, 2000), np.random.default_rng([seed, 1])
        sources /= sources.std(axis=1, keepdims=True)
        # Estimates err by about one over the root of the number of rows.
        found += (
            caution_of((np.eye(5) + rng.standard_normal((5, 5)) / math.sqrt(2000)) @ sources)[0]
            != ""
        )
    assert found <= 2  # as above: 0.1 are expected


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_what_leaks_into_a_source_of_two_values_is_no_dependence(share):
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sources = np.vstack([rng.random((2, 500)) < share, rng.laplace(size=(1, 500))]).astype(
            float
        )
        sources /= sources.std(axis=1, keepdims=True)
        found += caution_of((np.eye(3) + 0.03 * rng.standard_normal((3, 3))) @ sources)[0] != ""
    assert found <= 2


def test_rows_with_one_scale_for_all_columns_are_no_mixture_of_sources():
    model = TensorICA(random_state=0).fit(multivariate_t(0, 2000, 4))
    assert (
        "4 of the sources depend on others: the rows may be no mixture of 4 independent"
        in model.summary()
    )
    assert "it depends on source" in model._repr_html_()


def test_the_partner_of_a_source_is_the_one_that_it_depends_on():
    sources = np.vstack([independent(0, 2000)[:3], multivariate_t(1, 2000, 2).T])
    doubt, partners = caution_of(sources)
    assert "depend on others" in doubt
    assert partners.tolist() == [-1, -1, -1, 4, 3]


def test_slow_signals_are_not_said_to_depend_on_each_other():
    for seed in range(30):
        steps = np.random.default_rng(seed).laplace(size=(3, 2000))
        signals = np.zeros_like(steps)
        for t in range(1, 2000):
            signals[:, t] = 0.98 * signals[:, t - 1] + steps[:, t]
        assert caution_of(signals)[0].count("depend on others") == 0  # 0.03 are expected
    rising = np.sort(multivariate_t(0, 2000, 2), axis=0).T  # the same order, whatever the values
    assert "look dependent" in caution_of(rising)[0]


@pytest.mark.parametrize(("n", "d"), [(50, 3), (200, 10), (2000, 5)])
def test_no_source_of_gaussian_rows_is_separated(n, d):
    # At a level of 1 %, one of 12 models is wrong with a probability of 0.11, and two with 0.006.
    wrong = 0
    for seed in range(4):
        model = TensorICA(random_state=0).fit(np.random.default_rng(seed).standard_normal((n, d)))
        wrong += not model.summary().startswith(
            f"None of {d} sources is separated: all look Gaussian in held-out rows"
        )
    assert wrong <= 1


def test_the_doubt_is_saved_and_carried_through_a_stream(tmp_path):
    rows = multivariate_t(0, 30_000, 3)
    stream = TensorICA(random_state=0)
    for batch in np.array_split(rows, 4):
        stream.partial_fit(batch)
    stream.save(tmp_path / "stream.npz")
    for model in (stream, TensorICA.load(tmp_path / "stream.npz")):
        assert "3 of the sources depend on others" in model.summary()
