"""Split-half replication of every model: what is there is found again in halves, and what chance
made is not.
"""

from __future__ import annotations

import numpy as np
import pytest

from odeco.datasets import planted_topics
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.models.engine.agreement import best_jaccard, check_halves, compare, divide
from odeco.online import SplitHalf


def spheres(seed, n=400, k=3):
    rng = np.random.default_rng(seed)
    return 8.0 * np.eye(k)[rng.integers(k, size=n)] + rng.standard_normal((n, k))


def answers(seed, n=600):
    rng = np.random.default_rng(seed)
    group = rng.integers(2, size=n)
    return np.where(rng.random((n, 8)) < np.where(group, 0.9, 0.1)[:, None], "yes", "no")


def sessions(seed, n=200):
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [[0, *rng.choice([1, 2], size=3), *rng.choice([3, 4], size=4)] for _ in range(n)]
    )
    return rows, {"lengths": np.full(n, 8)}


def mixed_signals(seed, n=4_000):
    rng = np.random.default_rng(seed)
    return rng.laplace(size=(n, 3)) @ rng.standard_normal((3, 3))


def blocks(seed, n=120):
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 3
    links = np.triu(rng.random((n, n)) < np.where(group[:, None] == group, 0.5, 0.03), 1)
    return (links | links.T).astype(float)


CASES = {
    "mixture": (lambda: TensorMixture(3, random_state=0), lambda: (spheres(0), {})),
    "classes": (lambda: LatentClasses(2, random_state=0), lambda: (answers(0), {})),
    "states": (lambda: TensorHMM(3, random_state=0), lambda: sessions(0)),
    "sources": (lambda: TensorICA(random_state=0), lambda: (mixed_signals(0), {})),
    "communities": (lambda: Communities(3, random_state=0), lambda: (blocks(0), {})),
    "topics": (
        lambda: TensorLDA(3, max_iter=10, random_state=0),
        lambda: (planted_topics(2_000, 60, [0.2, 0.2, 0.2], rng=0).counts, {}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_planted_components_are_found_again_said_and_saved(name, tmp_path):
    make, data = CASES[name]
    rows, side = data()
    model = make().fit(rows, **side)
    assert "Not checked on halves: model.split_half(X)." in model.summary()
    found = model.split_half(rows, **side)
    assert found.found_again.tolist() == [6] * model.n_components_
    assert found.agreement > 0.8
    assert "found again in every half-sample." in model.summary()
    assert "Not checked" not in model.summary()
    model.save(tmp_path / "model.npz")
    assert type(model).load(tmp_path / "model.npz").summary() == model.summary()


def test_a_cut_through_one_gaussian_is_not_established():
    # A single Gaussian has no components: where fits cut it is chance. A component with most of the
    # rows is found again all the same; of two more, one or both are not.
    model = TensorMixture(3, covariance_type="spherical", random_state=0)
    for seed in range(5):
        rows = np.random.default_rng(seed).standard_normal((300, 4))
        assert not model.fit(rows).split_half(rows).is_established.all()
        assert "not established" in model.summary()


def test_a_check_belongs_to_its_fit_and_counts_are_of_its_components():
    rows = spheres(1)
    model = TensorMixture(3, random_state=0).fit(rows)
    model.split_half(rows, n_pairs=1)
    assert "every half-sample" in model.summary()
    model.fit(rows)
    assert "Not checked" in model.summary()
    assert SplitHalf(np.array([6, 4, 1]), 6, 0.5).describe("class", "classes") == (
        "3 classes: 1 found again in every half-sample, 1 in most, 1 not established (2)."
    )
    assert (
        SplitHalf(np.array([2]), 2, 1.0).verdict == "1 component, found again in every half-sample."
    )


def test_weights_and_missing_values_go_with_their_rows():
    rows = spheres(2)
    rows[::7, 0] = np.nan
    model = TensorMixture(3, random_state=0).fit(rows, sample_weight=np.full(400, 2.0))
    assert model.split_half(rows, sample_weight=np.full(400, 2.0)).found_again.tolist() == [6, 6, 6]


def test_halves_share_no_record_and_have_all():
    for one, other in divide(11, 4, np.random.default_rng(0)):
        assert sorted([*one, *other]) == list(range(11))
        assert len(one) == 5


def test_a_component_is_found_again_if_it_shares_most_records():
    own = np.array([0, 0, 0, 0, 1, 1, 2])
    other = np.array([3, 3, 3, 1, 1, 1, 1])
    # 3 of 4 records; 2 of 4; 1 of 4.
    np.testing.assert_allclose(best_jaccard(own, other, 3), [3 / 4, 2 / 4, 1 / 4])
    assert compare(own, own, 3) == 1.0
    assert (
        compare(np.zeros(5, int), np.zeros(5, int), 2) == 0.0
    )  # halves that lost all their components
    assert compare(own, None, 3) == 0.0


def test_halves_that_are_too_small_find_nothing():
    found = check_halves(np.arange(4), lambda *_: None, 4, 4, n_pairs=2, seed=0)
    assert found.found_again.tolist() == [0, 0, 0, 0]
    assert (found.n_halves, found.agreement) == (4, 0.0)


def test_halves_that_all_fail_are_an_error_and_no_finding():
    rows = np.arange(8.0)[:, None]
    model = TensorMixture(5, covariance_type="spherical", random_state=0).fit(rows)
    with pytest.raises(ValueError, match="Halves of the data must be enough"):
        model.split_half(rows)
    assert "Not checked" in model.summary()


def test_symbols_without_a_name_are_known_to_halves():
    rows = list("abcab" * 40)
    model = TensorHMM(2, n_symbols=4, random_state=0).fit(rows)
    assert model.split_half(rows).found_again.tolist() == [6, 6]


def test_a_private_model_is_not_checked_on_exact_rows():
    rows = spheres(3)
    model = TensorMixture(2, epsilon=1.0, delta=1e-4, norm_bound=20.0, random_state=0).fit(rows)
    with pytest.raises(ValueError, match="no budget pays for it"):
        model.split_half(rows)


@pytest.mark.parametrize("k", ["auto", 3])
def test_a_mixture_does_not_depend_on_the_order_in_which_rows_are_listed(k):
    rows = spheres(4, n=150)
    rows[5] = rows[17]
    whole = TensorMixture(k, random_state=0).fit(rows)
    for seed in range(3):
        permutation = np.random.default_rng(seed).permutation(150)
        other = TensorMixture(k, random_state=0).fit(rows[permutation])
        np.testing.assert_array_equal(whole.means_, other.means_)


def test_classes_do_not_depend_on_the_order_of_respondents():
    rows = answers(5, n=100)
    whole = LatentClasses(2, random_state=0).fit(rows)
    other = LatentClasses(2, random_state=0).fit(rows[::-1])
    np.testing.assert_array_equal(whole.class_weights_, other.class_weights_)


def test_percentages_of_states_are_shares_of_the_rows():
    rows, side = sessions(1)
    model = TensorHMM(3, random_state=0).fit(rows, **side)
    states = model.predict(rows, side["lengths"])
    counted = np.bincount(states, minlength=3) / len(rows)
    np.testing.assert_allclose(model.state_shares_, counted, atol=0.01)
    # One row in eight is the first of its session. Sessions end, so the chain alone would say that
    # it is never entered.
    assert "12.5%" in model.summary()
    assert model.stationary_.min() < 0.01
