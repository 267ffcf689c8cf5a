"""A stream of sorted rows is worse than a fit, and says so; one of shuffled rows does not.

Shares of k components in blocks of n rows differ by Σ √(p (1 − p) / n) · 0.4 in total variation if
rows are in random order, 0.01 for four equal components and 8,192 rows. By label, a block has one
component, and differs from the blocks before it by about one half.
"""

from __future__ import annotations

import numpy as np
import pytest

from odeco.models import LatentClasses, TensorMixture

N_ROWS = 45_000


def planted(kind, seed):
    """Return rows of three components, and the component of each."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, N_ROWS)
    if kind is TensorMixture:
        centres = 4 * random.standard_normal((3, 4))
        return centres[labels] + random.standard_normal((N_ROWS, 4)), labels
    answers = random.uniform(0.1, 0.9, (3, 8))
    return (random.random((N_ROWS, 8)) < answers[labels]).astype(int), labels


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", [TensorMixture, LatentClasses])
def test_sorted_rows_are_said_to_look_sorted_and_shuffled_ones_are_not(kind, seed, tmp_path):
    rows, labels = planted(kind, seed)
    shuffled = kind(3, random_state=0).partial_fit(rows)
    assert "Rows look sorted" not in shuffled.summary()
    in_order = kind(3, random_state=0).partial_fit(rows[np.argsort(labels, kind="stable")])
    assert "Rows look sorted" in in_order.summary()
    in_order.save(tmp_path / "model.npz")
    assert kind.load(tmp_path / "model.npz").summary() == in_order.summary()
    assert in_order.score(rows) < shuffled.score(rows)


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [20_001, 20_005, 28_200])
def test_a_few_rows_after_a_block_do_not_look_sorted(n_rows):
    """The shares of components in one row differ from those before it by most of all rows."""
    rows, _ = planted(TensorMixture, 1)
    model = TensorMixture(3, random_state=0).partial_fit(rows[:n_rows])
    assert "Rows look sorted" not in model.summary()


@pytest.mark.slow
def test_a_few_rows_with_most_of_the_weight_do_not_look_sorted():
    rows, _ = planted(TensorMixture, 1)
    weights = np.where(np.arange(N_ROWS) % 3000 == 0, 1e4, 1e-3)
    model = TensorMixture(3, random_state=0).partial_fit(rows, sample_weight=weights)
    assert "Rows look sorted" not in model.summary()
