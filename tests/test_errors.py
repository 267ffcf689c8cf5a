"""Bad input: an error of the right class, which begins with what must hold and says what was given."""

from __future__ import annotations

import numpy as np
import pytest

import odeco
from odeco import Components
from odeco.datasets import gaussian_noise, planted_orthogonal
from odeco.power import Schedule
from odeco.tensors import AsymmetricTensor, DenseTensor, PackedTensor, SparseTensor


def cube(size=4):
    return planted_orthogonal(size, 2, rng=0).to_dense()


def with_entry(value):
    T = cube()
    T[1, 2, 3] = value
    return T


def asymmetric():
    T = np.zeros((3, 3, 3))
    T[0, 1, 2], T[1, 0, 2], T[0, 2, 1], T[2, 0, 1], T[1, 2, 0], T[2, 1, 0] = (
        0.31,
        0.27,
        0.31,
        0.31,
        0.31,
        0.31,
    )
    return T


TENSOR_ERRORS = {
    "matrix": (
        np.eye(4),
        ValueError,
        (
            "The tensor must have order 3 or more. Got order 2, shape (4, 4). For a matrix use "
            "numpy.linalg.eigh."
        ),
    ),
    "vector": (
        np.ones(4),
        ValueError,
        (
            "The tensor must have order 3 or more. Got order 1, shape (4,). For a matrix use "
            "numpy.linalg.eigh."
        ),
    ),
    "unequal sizes": (
        np.ones((2, 3, 4)),
        ValueError,
        (
            "The tensor must have equal sizes. Got shape (2, 3, 4). For an asymmetric one call "
            "odeco.decompose_asymmetric."
        ),
    ),
    "asymmetric entries": (
        asymmetric(),
        ValueError,
        "The tensor is not symmetric: T[0, 1, 2] = 0.31 but T[1, 0, 2] = 0.27. Call "
        "odeco.symmetrize(T) (--symmetrize), or odeco.decompose_asymmetric (--asymmetric).",
    ),
    "NaN": (
        with_entry(np.nan),
        ValueError,
        "The tensor must be finite. Got T[1, 2, 3] = nan. Replace or drop what is not a number.",
    ),
    "infinity": (
        with_entry(-np.inf),
        ValueError,
        "The tensor must be finite. Got T[1, 2, 3] = -inf. Replace or drop what is not a number.",
    ),
    "half precision": (
        np.ones((2, 2, 2), dtype=np.float16),
        TypeError,
        (
            "The tensor must hold float32, float64 or integers. Got float16. Convert it with "
            "astype(float)."
        ),
    ),
    "complex": (
        np.ones((2, 2, 2), dtype=complex),
        TypeError,
        (
            "The tensor must hold float32, float64 or integers. Got complex128. Convert it with "
            "astype(float)."
        ),
    ),
    "text": (
        "tensor.npy",
        TypeError,
        (
            "The tensor must hold float32, float64 or integers. Got <U10. Convert it with "
            "astype(float)."
        ),
    ),
    "empty": (
        np.empty((0, 0, 0)),
        ValueError,
        "The tensor must not be empty. Got shape (0, 0, 0). Check how it was made.",
    ),
    "all zero": (
        np.zeros((3, 3, 3)),
        ValueError,
        (
            "The tensor must hold a non-zero entry. Got all zeros, shape (3, 3, 3). Check how it "
            "was made."
        ),
    ),
}


@pytest.mark.parametrize("case", TENSOR_ERRORS)
def test_a_bad_tensor_is_refused(case):
    tensor, kind, text = TENSOR_ERRORS[case]
    with pytest.raises(kind) as caught:
        odeco.decompose(tensor, 1)
    first_sentence = text.partition(". ")[0]
    assert str(caught.value).startswith(first_sentence)
    assert "Got" in str(caught.value) or "Got" not in text


ARGUMENT_ERRORS = {
    "n_components of 0": (
        {"n_components": 0},
        "`n_components` must be an int in [1, 4] for a tensor of dimension 4 and order 3 (more "
        "cannot be told apart; in a moment of order 4, up to 6 can). Got 0.",
    ),
    "n_components above d": (
        {"n_components": 50},
        "`n_components` must be an int in [1, 4] for a tensor of dimension 4 and order 3 (more "
        "cannot be told apart; in a moment of order 4, up to 6 can). Got 50.",
    ),
    "n_components not an int": (
        {"n_components": 2.0},
        "`n_components` must be an int in [1, 4] for a tensor of dimension 4 and order 3 (more "
        "cannot be told apart; in a moment of order 4, up to 6 can). Got 2.0.",
    ),
    "n_components a bool": (
        {"n_components": True},
        "`n_components` must be an int in [1, 4] for a tensor of dimension 4 and order 3 (more "
        "cannot be told apart; in a moment of order 4, up to 6 can). Got True.",
    ),
    "n_components another word": (
        {"n_components": "all"},
        "`n_components` must be an int in [1, 4] for a tensor of dimension 4 and order 3 (more "
        "cannot be told apart; in a moment of order 4, up to 6 can). Got 'all'.",
    ),
    "n_restarts": ({"n_restarts": 0}, "`n_restarts` must be an int of at least 1. Got 0."),
    "n_iterations": ({"n_iterations": -3}, "`n_iterations` must be an int of at least 1. Got -3."),
    "tol": (
        {"tol": -1},
        "`tol` must be a number in [0, 1). Got -1. Pass 0 for a fixed number of iterations.",
    ),
    "tol of NaN": (
        {"tol": np.nan},
        "`tol` must be a number in [0, 1). Got nan. Pass 0 for a fixed number of iterations.",
    ),
    "rng": (
        {"rng": "seed"},
        ("`rng` must be None, an int. Got 'seed'. Pass a seed such as rng=0."),
    ),
    "whiten": ({"whiten": "svd"}, "`whiten` must be one of 'tensor', 'slice'. Got 'svd'."),
    "whiten by a matrix of another size": (
        {"whiten": np.ones((4, 3))},
        "A second moment must be a symmetric d x d matrix. Got shape (4, 3).",
    ),
    "whiten by a poor moment": (
        {"whiten": np.diag([1.0, 0, 0, 0])},
        "A second moment must have 2 positive eigenvalues to whiten 2 components. It has 1. Lower "
        "n_components, or pass the moment of the same components as the tensor.",
    ),
}


@pytest.mark.parametrize("case", ARGUMENT_ERRORS)
def test_a_bad_argument_is_refused(case):
    arguments, text = ARGUMENT_ERRORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        odeco.decompose(cube(), **{"n_components": 2, **arguments})
    first_sentence = text.partition(". ")[0]
    assert str(caught.value).startswith(first_sentence)
    assert "Got" in str(caught.value) or "Got" not in text


def test_a_rank_that_is_too_high_ends_with_the_components_found():
    truth = planted_orthogonal(6, 2, rng=0)
    for tensor in (truth, truth.to_dense(), truth.to_dense().astype(np.float32)):
        with pytest.raises(odeco.RankError) as caught:
            odeco.decompose(tensor, 4, rng=0)
        assert str(caught.value) == (
            "The image of every start is zero: the tensor has rank 2, but n_components=4. The 2 "
            "components found are in `error.found`."
        )
        np.testing.assert_allclose(caught.value.found.weights, [2, 1], rtol=1e-6)


def test_an_oracle_that_answers_zero_is_refused():
    zero = 0.0 * planted_orthogonal(6, 2, rng=0)
    with pytest.raises(odeco.RankError) as caught:
        odeco.decompose(zero, 1, rng=0)
    assert (
        str(caught.value)
        == "The tensor must hold a non-zero entry. All its images are zero. Check how it was made."
    )


def test_a_rank_too_high_for_whitening_says_so():
    with pytest.raises(
        ValueError, match=r"must span 4 dimensions.*span 2\. Lower n_components to 2\."
    ):
        odeco.decompose(planted_orthogonal(6, 2, rng=0), 4, whiten="tensor", rng=0)


def test_a_run_that_did_not_converge_warns_with_the_remedy():
    with pytest.warns(odeco.ConvergenceWarning) as caught:
        result = odeco.decompose(gaussian_noise(30, rng=0), 1, n_iterations=3, rng=0)
    assert str(caught[0].message).startswith("Component 0 did not converge: its residual is ")
    assert str(caught[0].message).endswith(
        "Raise n_iterations, raise tol if that is accurate enough, or lower n_components if the "
        "weight is at the noise level."
    )
    assert caught[0].filename == __file__
    assert not result.converged.all()
    assert np.isfinite(result.residuals).all()


@pytest.mark.parametrize(
    ("block", "shape"),
    [(np.ones(4), r"\(4,\)"), (np.ones((3, 2)), r"\(3, 2\)"), (np.ones((4, 2, 2)), r"\(4, 2, 2\)")],
)
def test_a_question_of_the_wrong_shape_is_refused(block, shape):
    with pytest.raises(
        ValueError,
        match=rf"must have shape \(4, L\), one vector in each column\. Got shape {shape}\.",
    ):
        DenseTensor(cube()).image(block)


CONSTRUCTOR_ERRORS = {
    "packed of the wrong length": (
        lambda: PackedTensor(np.ones(9), 3),
        "`packed` must hold the 10 distinct entries of a tensor of dimension 3 and order 3: shape "
        "(10,). Got shape (9,).",
    ),
    "packed NaN": (
        lambda: PackedTensor(np.r_[np.ones(9), np.nan], 3),
        "The array `packed` must be finite. Got T[9] = nan. Replace or drop what is not a number.",
    ),
    "sparse matrix": (
        lambda: SparseTensor([[0, 1]], [1.0], 3),
        (
            "`indices` must have shape (n, order) with n positive and order 3 or more. Got shape "
            "(1, 2)."
        ),
    ),
    "sparse lengths": (
        lambda: SparseTensor([[0, 1, 2]], [1.0, 2.0], 3),
        "`values` must hold one number for each row of `indices`: shape (1,). Got shape (2,).",
    ),
    "sparse index out of range": (
        lambda: SparseTensor([[0, 1, 3]], [1.0], 3),
        "Indices must lie in [0, 2] for a tensor of dimension 3. Got 0 to 3. Count from 0.",
    ),
    "sparse float indices": (
        lambda: SparseTensor([[0.0, 1.0, 2.0]], [1.0], 3),
        "`indices` must be integers. Got float64. Convert them with indices.astype(int).",
    ),
    "sparse entries that disagree": (
        lambda: SparseTensor([[0, 1, 2], [2, 1, 0]], [1.0, 2.0], 3),
        "The tensor is not symmetric: T[0, 1, 2] = 1 in one listing but 2 in another. List each "
        "entry once, or make its permutations agree.",
    ),
    "components of different lengths": (
        lambda: Components([1.0], np.eye(3)),
        "`vectors` must have shape (d, k), one column for each of the k weights. Got weights of "
        "shape (1,) and vectors of shape (3, 3).",
    ),
    "a zero vector": (
        lambda: Components([1.0, 1.0], [[1.0, 0.0], [0.0, 0.0]]),
        "No vector may be zero. Got a zero column 1. Drop it and its weight.",
    ),
    "components of NaN": (
        lambda: Components([np.nan], np.ones((2, 1))),
        "Weights and vectors must be finite. Got NaN or infinity. Check how they were made.",
    ),
    "components of order 2": (
        lambda: Components([1.0], np.ones((2, 1)), 2),
        "`order` must be an int of at least 3. Got 2.",
    ),
    "a sum of different shapes": (
        lambda: Components([1.0], np.ones((2, 1))) + Components([1.0], np.ones((3, 1)), 4),
        (
            "Tensors in a sum must share dimension and order. Got dimension 2, order 3 and "
            "dimension 3, order 4."
        ),
    ),
    "a schedule without a known source of weights": (
        lambda: Schedule(1, 1, 1, weight_from="guess"),
        "`weight_from` must be one of 'image', 'value', 'last_image'. Got 'guess'.",
    ),
    "an asymmetric matrix": (
        lambda: AsymmetricTensor(np.ones((2, 3))),
        (
            "The tensor must have order 3 or more. Got order 2, shape (2, 3). For a matrix use "
            "numpy.linalg.eigh."
        ),
    ),
    "more terms than a shape determines": (
        lambda: odeco.decompose_asymmetric(np.ones((2, 3, 4)), 4),
        "`n_components` must be an int in [1, 3] for a tensor of shape (2, 3, 4). Got 4.",
    ),
    "a match of different dimensions": (
        lambda: odeco.match(Components([1.0], np.ones((2, 1))), Components([1.0], np.ones((3, 1)))),
        (
            "Found and true components must share dimension and order. Got dimension 2, order 3 "
            "and dimension 3, order 3."
        ),
    ),
}


@pytest.mark.parametrize("case", CONSTRUCTOR_ERRORS)
def test_what_cannot_be_built_says_why(case):
    build, text = CONSTRUCTOR_ERRORS[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        build()
    first_sentence = text.partition(". ")[0]
    assert str(caught.value).startswith(first_sentence)
    assert "Got" in str(caught.value) or "Got" not in text
