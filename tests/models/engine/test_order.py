"""Whether rows of a component are in random order, and what a summary says if they are not."""

import numpy as np
import pytest

from odeco.models import LatentClasses, TensorMixture
from odeco.models.engine.order import is_ordered


def two_groups(seed: int, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n)
    return rng.standard_normal((n, 3)) + 6 * labels[:, None], labels


def series(seed: int, n: int, slope: float) -> np.ndarray:
    steps = np.random.default_rng(seed).standard_normal((n, 2))
    rows = steps.copy()
    for t in range(1, n):
        rows[t] = slope * rows[t - 1] + steps[t]
    return rows


def test_independent_rows_are_in_order_by_chance_in_at_most_one_of_a_thousand_sets():
    # 0.2 of 200 are expected, and the probability of three or more is 0.001.
    assert sum(is_ordered(*two_groups(seed)) for seed in range(200)) <= 2


@pytest.mark.parametrize("share", [0.3, 0.01])
def test_independent_answers_are_in_order_as_seldom_also_if_some_are_rare(share):
    found = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found += is_ordered((rng.random((200, 20)) < share).astype(float), rng.integers(3, size=200))
    assert found <= 2


def test_rows_sorted_by_component_pass_and_rows_sorted_otherwise_do_not():
    rows, labels = two_groups(0)
    by_label, by_column = np.argsort(labels, kind="stable"), np.argsort(rows[:, 1])
    assert not is_ordered(rows[by_label], labels[by_label])
    assert is_ordered(rows[by_column], labels[by_column])


def test_rows_of_a_series_are_in_order_also_if_values_are_missing():
    # The correlation of neighbours is 0.5, and chance has 1/√300 = 0.06.
    rows, labels = series(0, 300, 0.5), np.zeros(300, np.int64)
    assert is_ordered(rows, labels)
    assert is_ordered(np.where(np.random.default_rng(1).random(rows.shape) < 0.2, np.nan, rows), labels)


def test_the_certainty_of_the_components_of_a_series_has_a_condition():
    rows = series(0, 200, 0.9)
    model = TensorMixture("auto", covariance_type="full", random_state=0)
    stated = "rows are independent draws (within components their order is not random, as in a series))"
    assert stated in model.fit(rows).summary()
    shuffled = model.fit(np.random.default_rng(0).permutation(rows)).summary()
    assert stated not in shuffled
    assert "exactly" in shuffled


def test_the_certainty_of_classes_has_a_condition_if_respondents_repeat_their_neighbour():
    rng = np.random.default_rng(0)
    answers = np.repeat((rng.random((100, 5)) < 0.5).astype(int), 3, axis=0)  # each of 100 respondents three times
    said = LatentClasses("auto", random_state=0).fit(answers).summary()
    assert "rows are independent draws (within components their order is not random" in said
