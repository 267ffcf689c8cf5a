"""Input that a model cannot say anything about: what it says then is true in any unit, or an error
before any work.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_wine

import odeco
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture

ROWS = np.random.default_rng(0).normal(size=(60, 4))
CODES = np.random.default_rng(0).integers(0, 3, size=(60, 4))
GRAPH = np.kron(np.eye(2, dtype=np.int64), np.ones((8, 8), dtype=np.int64))


def blobs(offset: float) -> np.ndarray:
    """Two spheres in the plane, apart along the first column."""
    rows = np.random.default_rng(1).normal(size=(400, 2))
    rows[:200, 0] += offset
    return rows


# ---- units ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mixture_warns_of_a_column_that_decides_by_its_unit_and_names_it():
    wine = load_wine(as_frame=True).data
    with pytest.warns(
        odeco.DominantColumnWarning, match="'proline', outweighs .* standardize=True"
    ) as caught:
        model = TensorMixture(
            3, covariance_type="spherical", standardize=False, random_state=0
        ).fit(wine)
    assert caught[0].message.column == 12
    assert caught[0].message.share > 0.99
    assert caught[0].message.agreement < 0.6
    assert caught[0].filename == __file__
    assert "Only proline separates components" in model.summary()
    with pytest.warns(odeco.DominantColumnWarning, match="^Column 12 outweighs"):
        TensorMixture(6, covariance_type="spherical", standardize=False, random_state=0).fit(
            wine.to_numpy()
        )
    assert "Only " not in TensorMixture(3, random_state=0).fit(wine).summary()


def test_no_warning_if_components_do_not_depend_on_the_unit():
    rows = blobs(20.0)
    assert rows.var(axis=0)[0] > 0.9 * rows.var(axis=0).sum()
    summary = TensorMixture(2, covariance_type="spherical", random_state=0).fit(rows).summary()
    assert "Only x0 separates components" in summary
    wine = load_wine().data
    TensorMixture(3, covariance_type="diag", random_state=0).fit(wine)
    TensorMixture(1, random_state=0).fit(wine)
    TensorMixture(3, random_state=0).fit(wine[:, 12:])


def test_a_private_mixture_does_not_look_at_its_rows_for_the_warning():
    wine = load_wine().data
    private = {"epsilon": 5.0, "delta": 1e-4, "norm_bound": 2000.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error", odeco.DominantColumnWarning)
        TensorMixture(3, random_state=0, **private).fit(wine)


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["diag", "full"])
def test_states_do_not_depend_on_the_unit_of_a_column(covariance_type):
    states = np.repeat(np.arange(30) % 3, 20)
    rows = np.array([[0.0, 0, 0], [6, 0, 1], [0, 6, 2]])[states] + np.random.default_rng(0).normal(
        size=(600, 3)
    )
    found = [
        TensorHMM(3, covariance_type=covariance_type, random_state=0)
        .fit(rows * scale)
        .predict(rows * scale)
        for scale in ([1.0, 1.0, 1.0], [1.0, 1.0, 1e4])
    ]
    pairs = np.unique(np.column_stack(found), axis=0, return_counts=True)[1]
    assert np.sort(pairs)[-3:].sum() >= 0.99 * len(rows)


@pytest.mark.parametrize("kind", ["spherical", "diag", "full"])
def test_one_component_explains_equal_rows_better_than_two(kind):
    text = TensorMixture(2, covariance_type=kind, random_state=0).fit(np.ones((50, 3))).summary()
    assert text.startswith("One component explains the data better than 2 components do (BIC).")


def test_one_state_explains_equal_rows_of_a_sequence_better_than_two():
    text = TensorHMM(2, max_iter=3, random_state=0).fit(np.ones((50, 2))).summary()
    assert text.startswith("One state explains the data better than 2 states do (BIC).")


def test_a_small_component_far_away_is_found_again():
    rows = blobs(0.0)
    rows[:8] += 20
    model = TensorMixture(2, random_state=0).fit(rows)
    assert model.split_half(rows).found_again.tolist() == [6, 6]


@pytest.mark.parametrize("scale", [1e-160, 1e-170, 1e-200, 1e-300, 1e170])
def test_a_mixture_refuses_rows_whose_variance_underflows(scale):
    with pytest.raises(ValueError, match=r"deviation of a column .* must be between .* Multiply"):
        TensorMixture(2, random_state=0).fit(blobs(9.0) * scale)


@pytest.mark.parametrize("scale", [1e-80, 1e100])
def test_the_powers_of_rows_of_a_mixture_may_leave_double_precision(scale):
    rows = blobs(9.0)
    model = TensorMixture(2, random_state=0).fit(rows * scale)
    labels = TensorMixture(2, random_state=0).fit_predict(rows)
    np.testing.assert_array_equal(model.predict(rows * scale), labels)


# ---- more components than the data can have ------------------------------------------------------


@pytest.mark.parametrize("k", [1000, 10**9, 10**18])
@pytest.mark.parametrize(
    ("model", "data"),
    [
        (TensorMixture, ROWS),
        (TensorHMM, ROWS),
        (TensorICA, ROWS),
        (LatentClasses, CODES),
        (Communities, GRAPH),
    ],
)
def test_more_components_than_the_data_can_have_are_refused_before_any_work(model, data, k):
    with pytest.raises(ValueError, match=r"must be (at least|at most|an int in) .*Got"):
        model(k).fit(data)
    with pytest.raises(ValueError, match=r"must be (at least|at most|an int in) .*Got"):
        model(k).partial_fit(data).summary()


@pytest.mark.parametrize("k", [10**9, 10**18])
@pytest.mark.parametrize(
    "use",
    [
        lambda k: odeco.decompose(np.ones((3, 3, 3)), k),
        lambda k: odeco.decompose_asymmetric(np.ones((3, 4, 5)), k),
        lambda k: odeco.decompose_stream([ROWS], k),
        lambda k: odeco.OnlineDecomposer(k).partial_fit(ROWS),
        lambda k: odeco.decompose_privately(
            ROWS, k, unit="record", epsilon=1.0, delta=1e-6, norm_bound=1.0
        ),
        lambda k: TensorMixture(k, epsilon=1.0, delta=1e-6, norm_bound=1.0).fit(ROWS),
        lambda k: LatentClasses(k, epsilon=1.0, delta=1e-6).fit(CODES, categories=[range(3)] * 4),
        lambda k: TensorHMM(k, emissions="categorical", n_symbols=3, epsilon=1.0, delta=1e-6).fit(
            CODES[:, :1]
        ),
    ],
)
def test_a_number_of_components_beyond_all_memory_is_refused(use, k):
    with pytest.raises(ValueError, match="omponents"):
        use(k)


# ---- masks, series -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "data"),
    [
        *[(TensorMixture, ROWS), (TensorHMM, ROWS), (TensorICA, ROWS)],
        *[(LatentClasses, CODES), (Communities, GRAPH), (TensorLDA, CODES)],
    ],
)
def test_masks_are_refused_by_every_model(model, data):
    masked = np.ma.masked_equal(data, data.max())
    for hidden in (masked, list(masked)):
        for use in (model(2).fit, model(2).partial_fit):
            with pytest.raises(TypeError, match="must not be masked"):
                use(hidden)


@pytest.mark.parametrize(
    "model", [TensorMixture, TensorHMM, TensorICA, LatentClasses, Communities, TensorLDA]
)
def test_a_series_is_refused_by_every_model(model):
    pd = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="2-dimensional"):
        model(2).fit(pd.Series([1.0, 2.0, 3.0]))


def test_answers_that_float32_does_not_have():
    answers = np.random.default_rng(0).choice([0.1, 0.3, 0.7], size=(60, 4))
    model = LatentClasses(2, random_state=0).partial_fit(answers).partial_fit(answers)
    assert model.predict(answers).shape == (60,)
    assert LatentClasses(2, random_state=0).fit(answers).predict(answers).shape == (60,)


def test_classes_of_a_million_questions_are_refused_at_once():
    with pytest.raises(ValueError, match="at most 10,000 questions"):
        LatentClasses(2).fit(np.zeros((2, 10**6), dtype=np.int8))


@pytest.mark.parametrize("model", [TensorMixture, TensorHMM, LatentClasses])
def test_a_ledger_that_is_no_path_is_refused(model):
    with pytest.raises(TypeError, match="`ledger` must be a path"):
        model(2, epsilon=1.0, delta=1e-6, ledger=0.5).fit(CODES)


def test_too_many_inference_iterations_are_refused():
    with pytest.raises(ValueError, match="max_inference_iter"):
        Communities(2, max_inference_iter=10**30).fit(GRAPH)
