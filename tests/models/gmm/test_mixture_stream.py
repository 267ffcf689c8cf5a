"""Mixtures that learn in one pass: no matter how rows are cut, saved, killed or interrupted."""

from __future__ import annotations

import numpy as np
import pytest
from interrupts import moments_of, run_traced
from planted_mixture import drawn, largest_gap, planted

import odeco
from odeco._util.files import load_arrays, save_arrays
from odeco.models import TensorMixture
from odeco.models.gmm.spec import MixtureSpec

KINDS = ("spherical", "diag", "full")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(MixtureSpec, "first_block", 200)
    monkeypatch.setattr(MixtureSpec, "next_block", 64)


def learnt(model):
    return [
        model.weights_,
        model.means_,
        model.covariances_,
        model.lower_bound_,
        model.n_samples_seen_,
        model.n_iter_,
    ]


def assert_same(first, second):
    for one, other in zip(learnt(first), learnt(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("small_blocks")
def test_what_is_learnt_does_not_depend_on_where_batches_end(kind):
    rows, _ = drawn(planted(3, 4, 6.0), 500)
    models = []
    for cuts in ([], [1, 2, 300], list(range(7, 500, 7))):
        model = TensorMixture(3, covariance_type=kind, random_state=0, n_starts=1)
        for batch in np.split(rows, cuts):
            model.partial_fit(batch)
        models.append(model)
    assert_same(models[0], models[1])
    assert_same(models[0], models[2])


@pytest.mark.parametrize("n_before", [1, 150, 200, 333])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("small_blocks")
def test_a_stream_goes_on_from_a_file_to_the_last_bit(kind, n_before, tmp_path):
    rows, _ = drawn(planted(3, 4, 6.0), 500)
    whole = TensorMixture(3, covariance_type=kind, random_state=0, n_starts=1).partial_fit(rows)
    TensorMixture(3, covariance_type=kind, random_state=0, n_starts=1).partial_fit(
        rows[:n_before]
    ).save(tmp_path / "model.npz")
    model = TensorMixture.load(tmp_path / "model.npz").partial_fit(rows[n_before:])
    assert_same(model, whole)
    model.save(tmp_path / "model.npz")
    assert_same(TensorMixture.load(tmp_path / "model.npz"), whole)


def test_a_model_is_read_as_it_was_written(tmp_path):
    rows, _ = drawn(planted(3, 4, 6.0), 300)
    model = TensorMixture("auto", random_state=0, covariance_type="spherical").fit(rows)
    model.save(tmp_path / "model.npz")
    again = TensorMixture.load(tmp_path / "model.npz")
    assert_same(model, again)
    assert (again.selection_scores_, again.init_, again.converged_) == (
        model.selection_scores_,
        model.init_,
        model.converged_,
    )
    assert again.get_params() == model.get_params()


def test_one_pass_is_nearly_as_good_as_many():
    k, d, n, m = 6, 8, 50_000, 10_000
    truth = planted(k, d, 6.0)
    rows, _ = drawn(truth, n)
    judged, _ = drawn(truth, m, 9)
    model = TensorMixture(k, random_state=0, covariance_type="spherical", n_starts=1)
    for batch in np.split(rows, 10):
        model.partial_fit(batch)
    # Rows a fraction f of the way back count 1 − f times: three quarters of the rows count, in the
    # end.
    assert truth.posterior(judged)[1].mean() - model.score(judged) < largest_gap(
        k * (d + 1) + k - 1, 0.75 * n, m
    )


@pytest.mark.usefixtures("small_blocks")
def test_memory_holds_an_incomplete_block_and_no_more():
    rows, _ = drawn(planted(3, 4, 6.0), 1000)
    model = TensorMixture(3, random_state=0, covariance_type="spherical")
    for batch in np.array_split(rows, 13):
        model.partial_fit(batch)
        assert len(model._learnt.stream.buffer) < 200
    assert len(model._learnt.stream.buffer) == (1000 - 200) % 64
    assert model.n_samples_seen_ == 1000


@pytest.mark.usefixtures("small_blocks")
def test_the_first_block_says_how_many_components_there_are():
    rows, _ = drawn(planted(2, 4, 12.0), 400)
    model = TensorMixture("auto", random_state=0, covariance_type="spherical").partial_fit(rows)
    assert model.n_components_ == 2
    assert 2 in model.selection_scores_


def test_before_the_first_block_is_complete_a_stream_gives_what_fit_gives():
    rows, _ = drawn(planted(3, 4, 6.0), 500)
    streamed = TensorMixture(3, random_state=0, covariance_type="spherical")
    for batch in np.split(rows, [100, 350]):
        streamed.partial_fit(batch)
    assert_same(streamed, TensorMixture(3, random_state=0, covariance_type="spherical").fit(rows))


def test_too_few_rows_are_said_when_the_mixture_is_wanted():
    model = TensorMixture(5, random_state=0, covariance_type="spherical").partial_fit(np.eye(3))
    with pytest.raises(ValueError, match="at least as many rows as components"):
        model.predict(np.eye(3))
    assert model.n_samples_seen_ == 3
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.partial_fit(np.eye(4))
    assert model.n_samples_seen_ == 3


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_an_interrupt_at_any_line_leaves_a_stream_as_it_was():
    rows, _ = drawn(planted(2, 3, 6.0), 420)
    places = ("models/gmm/estimator.py", "models/engine/stream.py", "models/engine/estimator.py")

    def begun():
        return TensorMixture(
            2, random_state=0, covariance_type="spherical", n_starts=1
        ).partial_fit(rows[:210])

    def push(model):
        return lambda: model.partial_fit(rows[210:350])

    expected = begun().partial_fit(rows[210:])
    moments = moments_of(push(begun()), places)
    assert len(moments) > 40
    for moment in moments:
        model = begun()
        run_traced(push(model), moment, places)
        assert model.n_samples_seen_ in (210, 350), moment
        assert_same(model.partial_fit(rows[model.n_samples_seen_ :]), expected)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("fit.params.weights", np.array([0.5, 0.1]), "must sum to one"),
        ("fit.params.parts.0.covariances", np.array([1.0, -1.0]), "must hold finite numbers"),
        (
            "fit.params.parts.0.covariances",
            np.stack([-np.eye(3), np.eye(3)]),
            "must be positive definite",
        ),
        ("fit.params.parts.0.means", np.zeros((2, 5)), "a part for each kind of its columns"),
        ("fit.params.parts.0.covariances", np.ones((2, 3)), "a part for each kind of its columns"),
        ("fit.context.kind", np.array("diag"), "of the kind that its settings name"),
        ("fit.context.centre", np.zeros(5), "numbers"),
        ("stream.n_blocks", np.array(0), "in blocks or in the buffer"),
        ("stream.buffer", np.zeros((70, 3)), "fewer rows than a block"),
        ("stream.statistics.n", np.array(7.0), "must stand for its rows"),
        ("stream.statistics.sums", np.ones((7, 2)), "its sums must go with its columns"),
        ("stream.n_seen", np.array(1), "in blocks or in the buffer"),
        ("stream.surplus", np.array(1), "unknown"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_files_that_contradict_themselves_are_refused(name, value, text, tmp_path):
    rows, _ = drawn(planted(2, 3, 6.0), 300)
    model = TensorMixture(2, random_state=0, covariance_type="spherical").partial_fit(rows)
    assert model.n_components_ == 2  # so that the file holds both parts
    model.save(tmp_path / "model.npz")
    header, arrays = load_arrays(tmp_path / "model.npz", "mixture")
    save_arrays(tmp_path / "model.npz", "mixture", header, {**arrays, name: value})
    with pytest.raises(odeco.FileFormatError, match=text):
        TensorMixture.load(tmp_path / "model.npz")
