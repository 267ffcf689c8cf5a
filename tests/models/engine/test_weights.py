"""`sample_weight`: a row of weight w counts as w equal rows, in every model of the registry."""

import functools

import numpy as np
import pytest
from models.engine.toy import PoissonMixture
from scipy import sparse

from odeco.cli.models import MODELS
from odeco.datasets import planted_topics
from odeco.models import Communities, LatentClasses, TensorHMM, TensorICA, TensorLDA, TensorMixture
from odeco.models.emissions.normal import GaussianPart
from odeco.models.engine.moments import SecondMoment
from odeco.models.engine.rows import Weighted, split
from odeco.models.engine.stream import BlockStream
from odeco.models.gmm.start import span_of, third_moment

N = 240
LENGTH = 8

#: Sums over the same numbers in another order: n rows times the rounding of one, with room for
#: solves of small systems.
ROUNDING = 1e-9

#: Where EM ends depends on its starts, of which some are random; gains below `tol` leave parameters
#: within its root.
OPTIMUM = 1e-5


def mixture_rows(rng):
    return rng.standard_normal((N, 3)) + 8 * np.eye(3)[rng.integers(3, size=N)]


def answers(rng):
    return (rng.random((N, 7)) < np.where(rng.integers(2, size=N), 0.95, 0.1)[:, None]).astype(int)


def counts(rng):
    return rng.poisson(np.array([[1.0, 20.0], [20.0, 1.0]])[rng.integers(2, size=N)])


def with_holes(rows, rng):
    return np.where(rng.random(rows.shape) < 0.1, np.nan, rows)


def states(rng):
    return np.repeat(rng.integers(2, size=N // 4), 4)


def sources(rng):
    return np.column_stack([rng.uniform(-2, 2, N), rng.exponential(size=N)]) @ np.array(
        [[2.0, 1.0], [1.0, 1.0]]
    )


#: For each model: its estimator, rows, further arguments of `fit`, and the number of rows of a
#: record.
CASES = {
    "mixture": (
        TensorMixture(3, covariance_type="diag", tol=1e-13, max_iter=500, random_state=0),
        mixture_rows,
        1,
    ),
    "mixture, spherical": (
        TensorMixture(3, covariance_type="spherical", tol=1e-13, max_iter=500, random_state=0),
        mixture_rows,
        1,
    ),
    "mixture, full, standardised": (
        TensorMixture(
            3, covariance_type="full", standardize=True, tol=1e-13, max_iter=500, random_state=0
        ),
        lambda rng: mixture_rows(rng) * [1, 1e3, 1e-3],
        1,
    ),
    "mixture, missing values": (
        TensorMixture(3, covariance_type="full", tol=1e-13, max_iter=3000, random_state=0),
        lambda rng: with_holes(mixture_rows(rng), rng),
        1,
    ),
    "hmm, missing values": (
        TensorHMM(2, tol=1e-13, max_iter=3000, random_state=0),
        lambda rng: with_holes(5 * states(rng)[:, None] + rng.standard_normal((N, 2)), rng),
        LENGTH,
    ),
    "classes": (LatentClasses(2, tol=1e-14, max_iter=3000, random_state=0), answers, 1),
    "hmm": (
        TensorHMM(2, tol=1e-13, max_iter=500, random_state=0),
        lambda rng: states(rng) * 2 + rng.integers(3, size=N),
        LENGTH,
    ),
    "hmm, vectors": (
        TensorHMM(2, tol=1e-13, max_iter=500, random_state=0),
        lambda rng: 5 * states(rng)[:, None] + rng.standard_normal((N, 2)),
        LENGTH,
    ),
    "hmm, counts": (
        TensorHMM(2, emissions="poisson", tol=1e-13, max_iter=500, random_state=0),
        lambda rng: rng.poisson(1 + 15 * states(rng)[:, None] + np.zeros((N, 2))),
        LENGTH,
    ),
    "ica": (TensorICA(tol=1e-11, random_state=0), sources, 1),
    "toy": (PoissonMixture(2, tol=1e-13, max_iter=500, random_state=0), counts, 1),
}

by_case = pytest.mark.parametrize("name", CASES)


def case(name, seed=0):
    """Return the estimator, rows, weights of records, repeated rows, and the arguments for both
    kinds of rows.
    """
    model, make, length = CASES[name]
    rng = np.random.default_rng(seed)
    rows, weights = make(rng), rng.integers(0, 4, N // length)
    repeated = np.repeat(rows.reshape(N // length, length, -1), weights, axis=0).reshape(
        -1, *rows.shape[1:]
    )
    if length == 1:
        return model, rows, weights, repeated, {}, {}
    return (
        model,
        rows,
        weights,
        repeated,
        {"lengths": np.full(N // length, length)},
        {"lengths": np.full(weights.sum(), length)},
    )


def quick(name):
    """Return the estimator with its own tolerance."""
    model = CASES[name][0]
    return model.__class__(**model.get_params() | {"tol": model.__class__().tol})


@functools.cache
def plain_fit(name):
    """Return the model of rows without weights."""
    _, rows, _, _, side, _ = case(name)
    return quick(name).fit(rows, **side)


def fitted_numbers(model):
    """Return all parameters of a fit."""
    fit = model._learnt.fit
    return {
        name: value for name, value in fit.params.to_arrays("").items() if value.dtype.kind == "f"
    }


def assert_same(one, other, tolerance):
    first, second = fitted_numbers(one), fitted_numbers(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        scale = max(1.0, float(np.abs(value).max(initial=0.0)))
        np.testing.assert_allclose(
            value, second[name], rtol=tolerance, atol=tolerance * scale, err_msg=name
        )


def test_every_model_of_the_registry_is_tested():
    assert set(MODELS) == {name.split(",")[0] for name in CASES if name != "toy"} | {
        "communities",
        "topics",
    }


@pytest.mark.slow
@by_case
def test_a_weight_is_a_number_of_equal_rows(name):
    model, rows, weights, repeated, side, own = case(name)
    one = model.__class__(**model.get_params()).fit(rows, sample_weight=weights, **side)
    other = model.__class__(**model.get_params()).fit(repeated, **own)
    assert_same(one, other, OPTIMUM)
    assert one.n_samples_seen_ == np.sum(weights > 0) * (N // len(weights))


@by_case
def test_scores_and_criteria_count_rows_by_weights(name):
    model, rows, weights, repeated, side, own = case(name)
    found = plain_fit(name)
    for method in ("score", "aic", "bic") if hasattr(model, "bic") else ("score",):
        weighted = getattr(found, method)(rows, sample_weight=weights, **side)
        assert weighted == pytest.approx(getattr(found, method)(repeated, **own), rel=ROUNDING)


@pytest.mark.parametrize("name", [name for name in CASES if name != "ica"])  # which has no E step
def test_the_statistics_of_an_e_step_are_linear_in_weights(name):
    _, rows, weights, repeated, side, own = case(name)
    found = plain_fit(name)
    spec, fit = found._learnt.spec, found._learnt.fit

    def statistics(each, arguments, row_weights=None):
        data = spec.prepare(found._encode(each, fit.context, **arguments)[0], fit.context)
        total, _ = spec.statistics(
            fit.params, data if row_weights is None else Weighted(data, row_weights), fit.context
        )
        return total.to_arrays("")

    by_row = np.repeat(weights, N // len(weights)).astype(float)
    expected = statistics(repeated, own)
    for key, value in statistics(rows, side, by_row).items():
        np.testing.assert_allclose(
            value, expected[key], rtol=ROUNDING, atol=ROUNDING * np.abs(value).max(), err_msg=key
        )
    halves = (statistics(rows, side, by_row * share) for share in (0.3, 0.7))
    origin = {key: value for key, value in expected.items() if "origin" in key}
    for key, value in functools.reduce(
        lambda a, b: {each: a[each] + b[each] for each in a}, halves
    ).items():
        if key not in origin:
            np.testing.assert_allclose(
                value, expected[key], rtol=ROUNDING, atol=ROUNDING * np.abs(value).max()
            )


@by_case
def test_a_row_of_weight_zero_is_left_out_whatever_it_holds(name):
    _, rows, weights, _, side, _ = case(name)
    if not np.issubdtype(rows.dtype, np.floating):
        rows = (
            rows + 0
        )  # whole numbers have no NaN: a symbol, an answer or a count that is not there
        rows[np.repeat(weights == 0, N // len(weights))] = 17
    else:
        rows[np.repeat(weights == 0, N // len(weights))] = np.nan
    kept = np.repeat(weights > 0, N // len(weights))
    own = {"lengths": side["lengths"][weights > 0]} if side else {}
    one = quick(name).fit(rows, sample_weight=weights, **side)
    other = quick(name).fit(rows[kept], sample_weight=weights[weights > 0], **own)
    for key, value in fitted_numbers(one).items():
        np.testing.assert_array_equal(value, fitted_numbers(other)[key])


@by_case
def test_weights_of_one_change_nothing(name):
    _, rows, weights, _, side, _ = case(name)
    one = quick(name).fit(rows, sample_weight=np.ones(len(weights)), **side)
    for key, value in fitted_numbers(one).items():
        np.testing.assert_array_equal(value, fitted_numbers(plain_fit(name))[key])


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (-1.0, "not negative"),
        (np.nan, "must be finite"),
        (np.inf, "must be finite"),
        ("all zero", "at least one weight above zero"),
        ("too few", "one number for each"),
        ("a column", "one number for each"),
        ("texts", "one number for each"),
        ("too large", "must be finite"),
    ],
)
@by_case
def test_bad_weights_are_refused_and_the_model_stays(name, bad, says):
    _, rows, weights, _, side, _ = case(name)
    found = plain_fit(name)
    before = fitted_numbers(found)
    given = np.ones(len(weights))
    if isinstance(bad, float):
        given[3] = bad
    given = {
        "all zero": np.zeros(len(weights)),
        "too few": given[:-1],
        "a column": given[:, None],
        "texts": given.astype(str),
        "too large": np.full(len(weights), 1e308),
    }.get(bad, given)
    stream = {**side, **({"symbol_names": list("abcde")} if name == "hmm" else {})}
    for call in (
        lambda: found.fit(rows, sample_weight=given, **side),
        lambda: found.score(rows, sample_weight=given, **side),
        lambda: found.partial_fit(rows, sample_weight=given, **stream),
    ):
        with pytest.raises(ValueError, match=says):
            call()
    assert all(np.array_equal(value, fitted_numbers(found)[key]) for key, value in before.items())


# Streams ------------------------------------------------------------------------------------------


@pytest.fixture
def short_blocks(monkeypatch):
    """Make the blocks of streams short."""
    for name in CASES:
        monkeypatch.setattr(CASES[name][0]._SPEC, "first_block", 96)
        monkeypatch.setattr(CASES[name][0]._SPEC, "next_block", 32)


def pushed(name, cuts, weights_of_rows):
    """Return the model after batches that end at these rows, which are ends of sequences."""
    model, rows, _, _, side, _ = case(name)
    found, length = model.__class__(**model.get_params()), N // len(side.get("lengths", rows))
    if name == "hmm":
        found.set_params(n_symbols=5)
    for start, stop in zip([0, *cuts], [*cuts, N], strict=True):
        own = {"lengths": np.full((stop - start) // length, length)} if side else {}
        found.partial_fit(rows[start:stop], sample_weight=weights_of_rows[start:stop], **own)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("short_blocks")
@by_case
def test_batches_of_weighted_rows_do_not_change_a_bit(name, tmp_path):
    weights = np.repeat(np.random.default_rng(5).uniform(0, 2, N // LENGTH), LENGTH)
    whole, cut = pushed(name, [], weights), pushed(name, [8, 104, 128, 200], weights)
    for key, value in fitted_numbers(whole).items():
        np.testing.assert_array_equal(value, fitted_numbers(cut)[key])
    assert whole._learnt.stream.is_weighted
    cut.save(tmp_path / "model.npz")
    again = cut.__class__.load(tmp_path / "model.npz")
    for key, value in fitted_numbers(again).items():
        np.testing.assert_array_equal(value, fitted_numbers(whole)[key])


@pytest.mark.slow
@pytest.mark.usefixtures("short_blocks")
@by_case
def test_a_stream_of_rows_with_weights_ends_near_that_of_repeated_rows(name):
    model, rows, _, _, side, _ = case(name)
    length = N // len(side.get("lengths", rows))
    weights = np.repeat(np.random.default_rng(5).integers(1, 4, N // LENGTH), LENGTH)
    found = pushed(name, [], weights)
    stream = found._learnt.stream
    assert (
        stream.count_blocks(found._learnt.spec) == weights[: 96 + 32 * (stream.n_blocks - 1)].sum()
    )
    repeated = rows.reshape(-1, length, *rows.shape[1:])
    repeated = np.repeat(repeated, weights[::length], axis=0).reshape(-1, *rows.shape[1:])
    own = {"lengths": np.full(len(repeated) // length, length)} if side else {}
    if isinstance(found, TensorICA):
        return  # each block takes one Newton step, which repeated rows cut elsewhere
    # One pass is not EM to the end: its likelihood is within 2 % of the best, for separated
    # components.
    best = model.__class__(**model.get_params()).fit(repeated, **own)
    assert found.score(repeated, **own) > best.score(repeated, **own) - 0.02 * abs(
        best.score(repeated, **own)
    )


@pytest.mark.usefixtures("short_blocks")
def test_a_stream_may_have_batches_with_weights_and_without():
    rows, ones = mixture_rows(np.random.default_rng(0)), np.ones(N)
    weights = np.where(np.arange(N) < 150, 1.0, 2.0)
    mixed = (
        TensorMixture(3, covariance_type="diag", random_state=0)
        .partial_fit(rows[:150])
        .partial_fit(rows[150:], sample_weight=weights[150:])
    )
    given = TensorMixture(3, covariance_type="diag", random_state=0).partial_fit(
        rows, sample_weight=weights
    )
    plain = TensorMixture(3, covariance_type="diag", random_state=0).partial_fit(rows)
    of_ones = TensorMixture(3, covariance_type="diag", random_state=0).partial_fit(
        rows, sample_weight=ones
    )
    for key, value in fitted_numbers(mixed).items():
        np.testing.assert_array_equal(value, fitted_numbers(given)[key])
    for key, value in fitted_numbers(plain).items():
        np.testing.assert_array_equal(value, fitted_numbers(of_ones)[key])
    assert isinstance(given._learnt.stream, BlockStream)


def test_weights_that_were_divided_by_their_sum_are_warned_of():
    rows = mixture_rows(np.random.default_rng(0))
    for model, side in (
        (TensorMixture(2, covariance_type="diag"), {}),
        (TensorHMM(2), {"lengths": np.full(N, 1)}),
    ):
        with pytest.warns(UserWarning, match="A weight is a number of rows") as warned:
            model.set_params(random_state=0).fit(rows, sample_weight=np.full(N, 1 / N), **side)
        assert warned[0].filename == __file__


# Single models ------------------------------------------------------------------------------------


def test_the_moments_of_starts_are_those_of_repeated_rows():
    rng = np.random.default_rng(1)
    rows, weights = mixture_rows(rng), rng.integers(0, 4, N)
    weighted, repeated = Weighted(rows, weights.astype(float)), np.repeat(rows, weights, axis=0)
    one, other = SecondMoment.of_block(weighted), SecondMoment.of_block(repeated)
    np.testing.assert_allclose(one.mean, other.mean, rtol=ROUNDING)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=ROUNDING, atol=ROUNDING)
    assert one.n_rows == other.n_rows
    span = span_of(other, 3)
    np.testing.assert_allclose(
        third_moment(weighted, span), third_moment(repeated, span), atol=1e-8
    )
    assert split(repeated) == (repeated, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixture", "classes", "hmm, vectors"])
def test_the_planted_number_is_selected_by_weights(name):
    # Copies of one row in several folds would be learnt from and held out: repeated rows select too
    # many here.
    model, rows, weights, _, side, _ = case(name)
    settings = model.get_params() | {"n_components": "auto", "tol": 1e-5}
    found = model.__class__(**settings).fit(rows, sample_weight=weights + 1, **side)
    assert found.n_components_ == model.n_components
    # The score of held-out rows is a mean over rows; folds lose more than rows learnt from, by a
    # parameter for a row.
    n_parameters = found._n_parameters()
    score = found.score(rows, sample_weight=weights + 1, **side)
    assert score - 5 * n_parameters / N < found.selection_scores_[model.n_components] < score


def test_standard_errors_are_those_of_repeated_respondents():
    model, rows, weights, repeated, _, _ = case("classes")
    found = LatentClasses(2, random_state=0).fit(rows, sample_weight=weights)
    own, other = found.standard_errors(rows, sample_weight=weights), found.standard_errors(repeated)
    np.testing.assert_allclose(own[0], other[0], rtol=1e-6)
    np.testing.assert_allclose(np.array(own[1]), np.array(other[1]), rtol=1e-6)
    assert model.n_components == 2


def test_ica_with_more_rows_than_its_first_block(monkeypatch):
    monkeypatch.setattr(TensorICA._SPEC, "first_block", 60)
    model, rows, weights, repeated, _, _ = case("ica")
    one = TensorICA(tol=1e-11, random_state=0).fit(rows, sample_weight=weights)
    other = TensorICA(tol=1e-11, random_state=0).fit(repeated)
    np.testing.assert_allclose(one.components_, other.components_, rtol=OPTIMUM, atol=OPTIMUM)
    assert model.n_components is None


def test_more_sources_than_columns_have_no_weights():
    rows = np.random.default_rng(0).laplace(size=(300, 3))
    model = TensorICA(5, random_state=0)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="at most as many sources as columns"):
            learn(rows, sample_weight=np.arange(300))


def test_weights_of_sequences_are_one_for_each_or_one_for_each_row():
    model, rows, weights, _, side, _ = case("hmm")
    one = model.__class__(**model.get_params()).fit(rows, sample_weight=weights, **side)
    other = model.__class__(**model.get_params()).fit(
        rows, sample_weight=np.repeat(weights, LENGTH), **side
    )
    np.testing.assert_array_equal(one.transmat_, other.transmat_)
    for learn in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="same for all rows of a sequence"):
            learn(rows, sample_weight=np.arange(N), **side)
    stream = TensorHMM(2, random_state=0).partial_fit(
        rows[:, None] * 1.0, sample_weight=weights, **side
    )
    with pytest.raises(ValueError, match="`goes_on` must be False"):
        stream.partial_fit(rows[:, None] * 1.0, goes_on=True)


def test_documents_are_repeated():
    counts = planted_topics(200, 12, [0.3, 0.2, 0.1], rng=0).counts
    weights = np.random.default_rng(0).integers(0, 4, 200)
    repeated = sparse.csr_array(counts)[np.repeat(np.arange(200), weights)]
    one = TensorLDA(3, max_iter=5, random_state=0).fit(counts, sample_weight=weights)
    other = TensorLDA(3, max_iter=5, random_state=0).fit(repeated)
    np.testing.assert_array_equal(one.topic_word_, other.topic_word_)
    assert one.score(counts, sample_weight=weights) == other.score(repeated)
    one.partial_fit(counts, sample_weight=weights)
    np.testing.assert_array_equal(one.topic_word_, other.partial_fit(repeated).topic_word_)
    with pytest.raises(ValueError, match="must be whole numbers"):
        one.fit(counts, sample_weight=weights + 0.5)


def test_private_models_have_no_weights():
    rows = np.random.default_rng(0).standard_normal((200, 3))
    private = {"epsilon": 1.0, "delta": 1e-5, "random_state": 0}
    for model, data, side in (
        (TensorMixture(2, norm_bound=3.0, **private), rows, {}),
        (LatentClasses(2, **private), (rows > 0).astype(int), {"categories": 2}),
        (
            TensorHMM(2, emissions="categorical", n_symbols=2, **private),
            (rows[:, 0] > 0).astype(int),
            {},
        ),
        (TensorLDA(2, **private), (rows > 0).astype(int), {}),
    ):
        with pytest.raises(ValueError, match="runs without privacy"):
            model.fit(data, sample_weight=np.ones(200), **side)
        assert "_learnt" not in vars(model)


def test_a_node_of_a_graph_has_no_weight():
    with pytest.raises(TypeError, match="sample_weight"):
        Communities(2).fit(np.ones((4, 4)), sample_weight=np.ones(4))


def test_a_mixture_of_elongated_rows_by_weights_is_that_of_its_definition():
    # One component: the weighted mean and covariance, and the variance floor of `reg_covar` times
    # the variance.
    rng = np.random.default_rng(2)
    rows, weights = rng.standard_normal((50, 2)) * [1, 3], rng.uniform(0.1, 2, 50)
    model = TensorMixture(1, covariance_type="full", standardize=False, random_state=0).fit(
        rows, sample_weight=weights
    )
    mean = weights @ rows / weights.sum()
    covariance = np.cov(rows.T, aweights=weights, ddof=0)
    floor = model.reg_covar * np.diag(covariance)
    np.testing.assert_allclose(model.means_[0], mean, rtol=1e-12)
    np.testing.assert_allclose(model.covariances_[0], covariance + np.diag(floor), rtol=1e-10)
    assert isinstance(model._learnt.fit.params.numbers, GaussianPart)
