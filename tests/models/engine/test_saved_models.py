"""What is saved can be loaded: every model, fitted with odd but accepted parameters and data, shows
itself and is kept.

A case that a model refuses is no case: the law is about what `fit` accepts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from odeco.cli.models import MODELS
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture

RNG = np.random.default_rng(0)
ROWS = np.concatenate([RNG.normal(size=(60, 3)), RNG.normal(size=(60, 3)) + 6])
HOLES = np.where(RNG.random(ROWS.shape) < 0.2, np.nan, ROWS)
SOURCES = RNG.laplace(size=(300, 3)) @ RNG.normal(size=(3, 3))
GAUSSIAN = RNG.normal(size=(400, 3))
ANSWERS = RNG.integers(0, 3, (100, 5))
WORDS = RNG.poisson(1.0, (60, 30))
LETTERS = list("abcab" * 20)
SYMBOLS = np.array([0, 1, 2, 0, 1] * 20)
COUNTS = RNG.poisson(5, (100, 2))
CAMPS = np.arange(40) // 20
LINKS = np.triu(RNG.random((40, 40)) < np.where(CAMPS[:, None] == CAMPS, 0.5, 0.05), 1).astype(
    float
)
GRAPH = LINKS + LINKS.T


def stretched(rows: np.ndarray, factor: float) -> np.ndarray:
    """Return rows whose first column is in another unit."""
    return rows * np.where(np.arange(rows.shape[1]) == 0, factor, 1.0)


#: For each model, by its command: the estimator, odd parameters, and odd data.
CASES: list[tuple[str, Any, dict[str, Any], Any]] = [
    *(
        ("mixture", TensorMixture, given, rows)
        for given in (
            {},
            {"reg_covar": 1e6},
            {"reg_covar": 1e-300},
            {"tol": 1e300},
            {"tol": 0.0, "max_iter": 3},
            {"n_starts": 0},
            {"n_components": 1},
            {"n_components": 30},
            {"standardize": True},
            {"covariance_type": "spherical", "reg_covar": 1e6},
            {"covariance_type": "diag", "max_iter": 1},
            {"covariance_type": "full", "reg_covar": 1e6},
        )
        for rows in (ROWS, stretched(ROWS, 1e65), HOLES)
    ),
    ("mixture", TensorMixture, {}, stretched(ROWS, 1e80)),
    ("mixture", TensorMixture, {}, np.column_stack([ROWS, np.ones(len(ROWS))])),
    ("mixture", TensorMixture, {"n_components": "auto"}, ROWS),
    ("hmm", TensorHMM, {"n_symbols": 4}, LETTERS),
    ("hmm", TensorHMM, {"n_symbols": 4, "n_components": 1}, LETTERS),
    ("hmm", TensorHMM, {"n_symbols": 4, "max_iter": 0}, LETTERS),
    ("hmm", TensorHMM, {"n_symbols": 4}, ["a"] * 30),
    *(
        ("hmm", TensorHMM, {"max_iter": n_iter}, rows)
        for n_iter in (0, 1)
        for rows in (LETTERS, SYMBOLS, ROWS, HOLES)
    ),
    *(
        ("hmm", TensorHMM, {"emissions": "poisson", "max_iter": n_iter}, COUNTS)
        for n_iter in (0, 5)
    ),
    ("hmm", TensorHMM, {"emissions": "poisson"}, COUNTS * 10**15),
    ("hmm", TensorHMM, {"tol": 1e300}, ROWS),
    (
        "hmm",
        TensorHMM,
        {"transition_mask": np.array([[True, True], [False, True]]), "max_iter": 0},
        ROWS,
    ),
    *(
        ("hmm", TensorHMM, {"covariance_type": kind}, stretched(ROWS, unit))
        for kind in ("diag", "full")
        for unit in (1e80, 1e130, 1e-80)
    ),
    ("hmm", TensorHMM, {}, np.zeros((50, 2))),
    *(("ica", TensorICA, {}, stretched(SOURCES, unit)) for unit in (1.0, 1e80, 1e-80)),
    ("ica", TensorICA, {"n_components": "auto"}, GAUSSIAN),
    ("ica", TensorICA, {"max_iter": 1, "tol": 1e300}, SOURCES),
    *(
        ("classes", LatentClasses, given, ANSWERS)
        for given in (
            {},
            {"smoothing": 0.0},
            {"smoothing": 1e-320},
            {"smoothing": 1e300},
            {"n_starts": 1, "max_iter": 1},
            {"n_components": 1},
        )
    ),
    ("classes", LatentClasses, {}, np.zeros((40, 4), int)),
    *(
        ("communities", Communities, given, GRAPH)
        for given in ({}, {"concentration": 1e-300}, {"n_components": 5})
    ),
    ("communities", Communities, {"n_sweeps": 2, "concentration": 1e99}, GRAPH),
    *(("communities", Communities, {}, GRAPH * unit) for unit in (1e-300, 0.3)),
    *(
        ("topics", TensorLDA, {"max_iter": 2, **given}, WORDS)
        for given in (
            {},
            {"max_iter": 0},
            {"n_components": 1},
            {"topic_word_prior": 1e-30},
            {"topic_word_prior": 1e30},
            {"doc_topic_concentration": 1e-30},
            {"doc_topic_concentration": 1e30},
        )
    ),
]

NAMES = [
    f"{number}-{command}-{'-'.join(map(str, given))}"
    for number, (command, _, given, _) in enumerate(CASES)
]


def test_every_model_of_the_registry_is_tested():
    assert {command for command, *_ in CASES} == set(MODELS)


def assert_shows_itself_and_comes_back(model: Any, folder: Any) -> None:
    assert model.summary()
    assert model.plot().savefig(folder / "figure.svg") is None
    model.write_report(folder / "page.html")
    model.save(folder / "model.npz")
    again = type(model).load(folder / "model.npz")
    assert again.summary() == model.summary()
    known = {
        name: value for name, value in model.get_params().items() if name != "transition_mask"
    }  # it is in the fit
    assert known.items() <= again.get_params().items()
    one, other = (each._learnt.fit.to_arrays("") for each in (model, again))
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("command", "estimator", "given", "data"), CASES, ids=NAMES)
def test_what_is_fitted_shows_itself_and_comes_back_from_its_file(
    command, estimator, given, data, tmp_path
):
    settings = {"n_components": 2, "random_state": 0, **given}
    assert_shows_itself_and_comes_back(estimator(**settings).fit(data), tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("estimator", "given", "data"),
    [
        (TensorMixture, {"reg_covar": 1e6}, stretched(ROWS, 1e65)),
        (TensorHMM, {"n_symbols": 4}, SYMBOLS),
        (TensorHMM, {"max_iter": 0}, ROWS),
        (TensorHMM, {"covariance_type": "full"}, stretched(ROWS, 1e130)),
        (TensorICA, {}, stretched(SOURCES, 1e80)),
        (LatentClasses, {"smoothing": 0.0}, ANSWERS),
        (TensorLDA, {"max_iter": 2, "topic_word_prior": 1e-30}, WORDS),
    ],
)
def test_a_stream_shows_itself_and_comes_back_from_its_file(estimator, given, data, tmp_path):
    model = estimator(**{"n_components": 2, "random_state": 0, **given}).partial_fit(data)
    assert_shows_itself_and_comes_back(model, tmp_path)


@pytest.mark.parametrize(
    ("model", "data", "text"),
    [
        (
            TensorMixture(2, reg_covar=1e300),
            ROWS,
            "`reg_covar` must be a number of at least 0 and at most 1e\\+06",
        ),
        (
            LatentClasses(2, smoothing=np.inf),
            ANSWERS,
            "`smoothing` must be a number of at least 0, and finite",
        ),
        (
            TensorLDA(2, topic_word_prior=1e-300),
            WORDS,
            "`topic_word_prior` must be a number of at least 1e-30",
        ),
    ],
)
def test_parameters_that_leave_no_model_are_refused(model, data, text):
    with pytest.raises(ValueError, match=text):
        model.fit(data)


def test_symbols_that_did_not_occur_have_their_numbers_as_names():
    model = TensorHMM(2, n_symbols=4, random_state=0).fit(LETTERS)
    assert model.symbol_names_ == ["a", "b", "c", "3"]
    assert model.emissionprob_.shape == (2, 4)


def test_a_start_without_iterations_has_its_own_likelihood():
    model = TensorHMM(2, max_iter=0, random_state=0).fit(ROWS)
    assert model._learnt.fit.info.log_likelihood == pytest.approx(model.score(ROWS))
