"""Transitions that are fixed at zero: kept by fits, streams and files."""

import numpy as np
import pytest

from odeco.models import TensorHMM

CYCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
MEANS = np.array([[0.0], [4.0], [9.0]])


def cycles(n: int, seed: int = 0):
    rng, path = np.random.default_rng(seed), np.zeros(n, int)
    for t in range(1, n):
        path[t] = (path[t - 1] + (rng.random() < 0.2)) % 3
    return MEANS[path] + rng.standard_normal((n, 1)), path


@pytest.mark.parametrize("emissions", ["gaussian", "categorical"])
@pytest.mark.parametrize("seed", range(3))
def test_forbidden_transitions_stay_zero_and_states_have_the_places_of_the_mask(emissions, seed):
    rows, path = cycles(1500, seed)
    if emissions == "categorical":
        rows = np.clip(np.rint(rows[:, 0]), -1, 10).astype(int) + 1
    model = TensorHMM(3, emissions=emissions, transition_mask=CYCLE, random_state=seed).fit(rows)
    assert np.all(model.transmat_[~CYCLE] == 0)
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1)
    np.testing.assert_allclose(np.diagonal(model.transmat_), 0.8, atol=0.08)
    # States are known up to a rotation of the cycle, which the mask allows.
    found = model.predict(rows)
    assert max(np.mean((found + shift) % 3 == path) for shift in range(3)) > 0.9
    free = TensorHMM(3, emissions=emissions, random_state=seed).fit(rows)
    assert free.aic(rows) - 2 * free.score(rows) * -len(rows) == pytest.approx(
        model.aic(rows) - 2 * model.score(rows) * -len(rows) + 2 * 3
    )
    assert model.score(rows) <= free.score(rows) + 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_a_chain_that_ends_in_its_last_state_is_found(seed):
    rng = np.random.default_rng(seed)
    k = 8
    mask = np.eye(k, dtype=bool) | np.eye(k, k=1, dtype=bool)
    lengths = rng.integers(10, 30, (60, k))
    path = np.concatenate([np.repeat(np.arange(k), own) for own in lengths])
    means = 6.0 * rng.permutation(k)[:, None]
    rows = means[path] + rng.standard_normal((len(path), 1))
    model = TensorHMM(k, transition_mask=mask, random_state=0).fit(
        rows, lengths=lengths.sum(axis=1)
    )
    np.testing.assert_allclose(model.means_, means, atol=0.5)
    assert model.startprob_[0] > 0.9
    assert np.all(model.transmat_[~mask] == 0)


def test_a_row_that_no_allowed_path_explains_has_a_likelihood():
    rows, _ = cycles(600)
    model = TensorHMM(3, transition_mask=CYCLE, random_state=0).fit(rows)
    assert np.isfinite(model.score(np.array([[0.0], [9.0], [4.0], [0.0], [1e6]])))


def test_streams_and_files_keep_the_mask(tmp_path):
    rows, _ = cycles(2**16 + 3 * 2**13 + 500)
    half = 2**16 + 2**13 + 100
    whole = TensorHMM(3, transition_mask=CYCLE, random_state=0, max_iter=10).partial_fit(rows)
    model = TensorHMM(3, transition_mask=CYCLE.tolist(), random_state=0, max_iter=10).partial_fit(
        rows[:half]
    )
    model.save(tmp_path / "model.npz")
    again = TensorHMM.load(tmp_path / "model.npz").partial_fit(rows[half:], goes_on=True)
    assert np.array_equal(again.transmat_, whole.transmat_)
    assert np.all(again.transmat_[~CYCLE] == 0)
    assert np.all(again.transmat_[CYCLE] > 0.1)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.array([[True, True], [False, False]]), "Got none from state 1"),
        (np.ones((2, 2)), "array of bool"),
        (np.ones((2, 3), bool), "square"),
        (np.ones((3, 3), bool), "Pass n_components=3"),
    ],
)
def test_a_mask_that_cannot_hold_is_refused(mask, message):
    with pytest.raises(ValueError, match=message):
        TensorHMM(2, transition_mask=mask).fit(np.arange(20.0)[:, None])


def test_private_models_and_selection_refuse_a_mask():
    symbols = np.arange(300) % 3
    with pytest.raises(ValueError, match="transition_mask"):
        TensorHMM(
            3, emissions="categorical", n_symbols=3, epsilon=1.0, delta=1e-3, transition_mask=CYCLE
        ).fit(symbols)
    with pytest.raises(ValueError, match="Pass n_components=3"):
        TensorHMM("auto", transition_mask=CYCLE).fit(symbols)
