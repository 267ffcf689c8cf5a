"""What is released is private, what is refused releases nothing, and what comes back is what was
promised.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import warnings

import numpy as np
import pytest
from scipy import sparse

import odeco
from odeco.cp import Whitened, Whitener
from odeco.datasets import planted_orthogonal
from odeco.decompose import PrivateDecomposition
from odeco.errors import BudgetExhausted
from odeco.online import SampleMoment
from odeco.privacy import EntryLevel, Ledger, PrivateOracle, RecordLevel, gdp_mu, noise_multiplier
from odeco.privacy.holders.protocol import multiplicities, pack, unpack
from odeco.privacy.noise import SecureNoise, SeededNoiseForTests, grid_of
from odeco.privacy.oracle import merge_duplicates
from odeco.private import decompose_privately
from odeco.private.mechanisms import MECHANISMS

D = 6
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
FOR_TENSORS = [each.name for each in MECHANISMS.values() if not each.needs_second_moment]


def unit_columns(seed, width, dimension=D):
    block = np.random.default_rng(seed).standard_normal((dimension, width))
    return block / np.linalg.norm(block, axis=0)


def topics(n, dimension, k, seed):
    """Rows that are one of k orthonormal topics each."""
    generator = np.random.default_rng(seed)
    vectors = np.linalg.qr(generator.standard_normal((dimension, k)))[0]
    labels = np.arange(n) % k
    return vectors[:, labels].T, odeco.Components(np.bincount(labels) / n, vectors)


# ---- who holds the data --------------------------------------------------------------------------


def entry_neighbours(relation):
    for index in itertools.combinations_with_replacement(range(D), 3):
        change = np.zeros((D,) * 3)
        for permuted in itertools.permutations(index):
            if relation == "literal":
                change[permuted] += 1.0
            else:
                change[permuted] = 1.0
        yield change


def questions_of(holder, basis):
    """Every question with its declared sensitivity."""
    yield holder.image(basis), holder.sensitivity(basis)
    yield holder.value(basis), holder.value_sensitivity(basis)
    yield holder.core(basis), holder.core_sensitivity(basis)
    yield holder.slab(basis), holder.slab_sensitivity(basis)
    yield holder.packed(), holder.packed_sensitivity()
    if isinstance(holder, RecordLevel):
        yield holder.second_moment(), holder.second_moment_sensitivity()


@pytest.mark.parametrize("relation", ["literal", "distinct"])
@pytest.mark.parametrize("width", [1, 3])
def test_no_entry_neighbour_moves_an_answer_beyond_what_is_declared_and_some_come_near(
    relation, width
):
    T = planted_orthogonal(D, 3, rng=0).to_dense()
    basis = unit_columns(1, width)
    first = [*questions_of(EntryLevel(T, neighbour_relation=relation), basis)]
    closest = np.zeros(len(first))
    for change in entry_neighbours(relation):
        second = questions_of(EntryLevel(T + change, neighbour_relation=relation), basis)
        for i, ((before, declared), (after, same)) in enumerate(zip(first, second, strict=True)):
            moved = np.linalg.norm(before - after)
            assert moved <= declared == same
            closest[i] = max(closest[i], moved / declared)
    exact = (
        [0, 2, 3, 4] if width > 1 and relation == "distinct" else range(5)
    )  # that of a block of values is a bound
    assert closest[list(exact)].min() > 0.99


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_no_record_neighbour_moves_an_answer_beyond_what_is_declared_and_some_come_near(
    relation, kind
):
    generator = np.random.default_rng(0)
    rows = 3 * generator.standard_normal((40, D))
    groups = np.arange(40) // 4
    basis = np.linalg.qr(unit_columns(1, 3))[0]
    settings = {"norm_bound": 2.0, "neighbour_relation": relation}
    for labels in (None, groups):
        mine = slice(0, 1) if labels is None else slice(0, 4)
        closest = 0.0
        for trial in range(100):
            direction = basis[:, trial % 3] if trial < 6 else generator.standard_normal(D)
            rows[mine] = 1e3 * direction
            other = rows.copy()
            other[mine] = -rows[mine] if relation == "replace" else 0.0
            pairs = [
                questions_of(RecordLevel(kind(each), groups=labels, **settings), basis)
                for each in (rows, other)
            ]
            for (before, declared), (after, _) in zip(*pairs, strict=True):
                moved = np.linalg.norm(before - after)
                assert moved <= declared
                closest = max(closest, moved / declared)
        assert closest > 0.99


def test_answers_are_those_of_the_tensor_and_nothing_bad_gets_in():
    T = planted_orthogonal(D, 3, rng=0).to_dense()
    U = unit_columns(0, 3)
    rows = np.random.default_rng(0).standard_normal((9000, D))
    factors = np.minimum(1, 2 / np.linalg.norm(rows, axis=1))
    clipped = rows * factors[:, None]
    clipped[17] = 0
    rows[17, 2] = np.nan
    moment = np.einsum("ni,nj,nk->ijk", clipped, clipped, clipped, optimize=True) / 9000
    entries = T.copy()
    entries[1, 0, 0] = entries[0, 1, 0] = entries[0, 0, 1] = np.inf
    cleaned = np.where(np.isfinite(entries), entries, 0)
    for holder, tensor in [
        (EntryLevel(entries), cleaned),
        (RecordLevel(rows, norm_bound=2.0), moment),
        (RecordLevel(sparse.csr_array(rows), norm_bound=2.0), moment),
    ]:
        np.testing.assert_allclose(
            holder.image(U), np.einsum("ijk,jl,kl->il", tensor, U, U), atol=1e-9
        )
        np.testing.assert_allclose(
            holder.value(U), np.einsum("ijk,il,jl,kl->l", tensor, U, U, U), atol=1e-9
        )
        np.testing.assert_allclose(
            holder.core(U), np.einsum("ijk,ia,jb,kc->abc", tensor, U, U, U), atol=1e-9
        )
        np.testing.assert_allclose(
            unpack(holder.packed() * holder.packed_units(), D), tensor, atol=1e-9
        )
        slab = np.einsum("ijk,ja,kb->iab", tensor, U, U)
        np.testing.assert_allclose(np.linalg.norm(holder.slab(U)), np.linalg.norm(slab), rtol=1e-8)


def test_packing_keeps_every_distinct_entry_once():
    T = odeco.symmetrize(np.random.default_rng(0).standard_normal((4, 4, 4)))
    packed = pack(lambda i: T[i, : i + 1, : i + 1], 4)
    np.testing.assert_allclose(unpack(packed, 4), T, rtol=1e-14)
    assert multiplicities(4) @ packed**2 == pytest.approx(np.sum(T**2))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_huge_tiny_and_bad_rows_stay_within_the_bound_without_a_word(kind):
    rows = np.array([[1e300, 1e300], [5e-324, 0], [np.nan, 1], [1, -np.inf], [3, 4], [0.3, 0.4]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = decompose_privately(
            kind(rows),
            1,
            **BUDGET,
            unit="record",
            norm_bound=1.0,
            mechanism="joint",
            rng=0,
            n_iterations=2,
        )
    assert np.isfinite(result.weights).all()
    with np.errstate(all="ignore"):
        held = RecordLevel(kind(rows), norm_bound=1.0)._rows
    norms = np.linalg.norm(held if isinstance(held, np.ndarray) else held.toarray(), axis=1)
    np.testing.assert_allclose(norms, [1, 0, 0, 0, 1, 0.5], atol=1e-9)
    assert (norms <= 1).all()


@pytest.mark.parametrize(
    ("holder", "names"),
    [
        (
            lambda: RecordLevel(np.eye(3), norm_bound=1.0),
            ["norm_bound", "neighbour_relation", "n_units", "order", "_rows"],
        ),
        (
            lambda: RecordLevel(sparse.csr_array(np.eye(3)), norm_bound=1.0),
            ["norm_bound", "_weights"],
        ),
        (
            lambda: EntryLevel(np.zeros((2, 2, 2))),
            ["entry_change", "entry_limit", "entry_units", "_entries"],
        ),
    ],
)
def test_a_holder_cannot_be_changed_after_it_was_made(holder, names):
    made = holder()
    declared = made.sensitivity(np.eye(made.dimension))
    for name in names:
        with pytest.raises(AttributeError) as error:
            setattr(made, name, 0.5)
        assert str(error.value) == (
            "A holder of private data must stay as it was made: noise is scaled to what it "
            f"declared then. Got another `{name}`. Make a new {type(made).__name__}."
        )
        with pytest.raises(
            AttributeError, match=r"^A holder of private data must stay as it was made"
        ):
            delattr(made, name)
    for name in ("_rows", "_entries", "_weights"):
        array = getattr(made, name, np.empty(0))
        stored = array if isinstance(array, np.ndarray) else array.data
        if stored.size:
            with pytest.raises(ValueError, match=r"read-only"):
                stored[...] = 5.0
    assert made.sensitivity(np.eye(made.dimension)) == declared


def test_what_the_caller_does_to_his_rows_later_changes_nothing():
    rows = np.eye(3)
    holder = RecordLevel(rows, norm_bound=1.0)
    before = holder.image(np.eye(3))
    rows *= 1e6
    np.testing.assert_array_equal(holder.image(np.eye(3)), before)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_answers_are_the_same_for_any_number_of_threads(kind, monkeypatch):
    # More chunks than lanes, and answers large enough to be shared among threads.
    rows = np.random.default_rng(0).standard_normal((9000, 40))
    basis = np.linalg.qr(unit_columns(1, 12, 40))[0]
    answers = []
    for n_threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        holder = RecordLevel(kind(rows), norm_bound=2.0)
        answers.append([answer for answer, _ in questions_of(holder, basis)])
    for one, two in zip(*answers, strict=True):
        np.testing.assert_array_equal(one, two)


def test_overflow_in_a_thread_is_answered_without_a_word():
    rows = np.full((5000, 40), 1e150)  # their cubes overflow
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holder = RecordLevel(rows, norm_bound=1e160)
        assert holder.slab(np.eye(40)[:, :12]).shape == (40, 78)


# ---- the oracle that pays ------------------------------------------------------------------------


def test_only_who_declares_a_sensitivity_is_accepted():
    inner = EntryLevel(planted_orthogonal(D, 3, rng=0).to_dense())
    whitener = Whitener(np.eye(D)[:, :2], np.eye(D)[:, :2])
    with pytest.raises(TypeError) as error:
        PrivateOracle(Whitened(inner, whitener), Ledger(1.0), noise_multiplier=5.0)
    assert str(error.value) == (
        "Whitened declares no sensitivity, so no noise makes its answers private. Make the data "
        "private first."
    )
    private = PrivateOracle(inner, Ledger(1.0), noise_multiplier=5.0)
    assert Whitened(private, whitener).image(np.eye(2)).shape == (2, 2)
    assert not private.exact


def test_an_exhausted_budget_refuses_before_anything_is_computed_and_leaves_the_ledger_as_it_was():
    class Counting(odeco.SensitiveOracle):
        dimension, order, neighbours, silent, n_asked = 3, 3, "none", True, 0

        def _image(self, block):
            self.n_asked += 1
            return block

        def _sensitivity(self, block):
            return 1.0

        _value_sensitivity = _sensitivity

    for release in ("joint", "separate"):
        holder, ledger = Counting(), Ledger(0.5)
        oracle = PrivateOracle(holder, ledger, noise_multiplier=2.5, release=release)
        oracle.image(np.eye(3)[:, :1])
        charges = ledger.charges
        with pytest.raises(
            BudgetExhausted, match=r"^Budget exhausted: this query would bring mu to 0\.\d+, above"
        ):
            oracle.image(np.eye(3)[:, :2])
        assert ledger.charges == charges
        assert holder.n_asked == 1
        with pytest.raises(ValueError, match=r"^A query must be finite"):
            oracle.image(np.full((3, 1), np.nan))
        assert holder.n_asked == len(ledger.charges) == 1


@pytest.mark.slow
@pytest.mark.parametrize("release", ["joint", "separate"])
def test_noise_is_the_multiplier_times_the_declared_sensitivity_and_lies_on_its_grid(release):
    holder = EntryLevel(planted_orthogonal(D, 3, rng=0).to_dense())
    block, ledger = unit_columns(0, 3), Ledger(1e3)
    oracle = PrivateOracle(
        holder, ledger, noise_multiplier=4.0, release=release, noise=SeededNoiseForTests(0)
    )
    for question, declare in (("image", holder.sensitivity), ("value", holder.value_sensitivity)):
        exact = getattr(holder, question)(block)
        n = 3000
        draws = np.array([getattr(oracle, question)(block) - exact for _ in range(n)])
        joint = 4 * declare(block)
        expected = (
            [4 * declare(block[:, [i]]) for i in range(3)] if release == "separate" else [joint] * 3
        )
        measured = draws.std(axis=0).reshape(-1, 3)
        np.testing.assert_allclose(measured / expected, 1, atol=5 / math.sqrt(2 * n))
        np.testing.assert_allclose(oracle.last_scales, expected, rtol=1e-6)
        answer = getattr(oracle, question)(block)
        np.testing.assert_array_equal(answer % [grid_of(scale) for scale in oracle.last_scales], 0)
    n_releases = sum(charge.count for charge in ledger.charges)
    assert ledger.mu == pytest.approx(math.sqrt(n_releases) / 4, rel=1e-8)
    assert all(charge.sensitivity / charge.scale <= 0.25 for charge in ledger.charges)


def test_near_duplicates_are_asked_once_and_answered_alike():
    u, v = np.eye(D)[:, 0], np.eye(D)[:, 3]
    near = u + 0.1 * np.eye(D)[:, 1]
    block = np.stack([u, v, -near / np.linalg.norm(near), u], axis=1)
    asked, members, signs = merge_duplicates(block, 0.9)
    assert asked.shape == (D, 2)
    np.testing.assert_array_equal(members, [0, 1, 0, 0])
    np.testing.assert_array_equal(signs, [1, 1, -1, 1])
    np.testing.assert_array_equal(asked[:, 1], v)
    rows = np.random.default_rng(0).standard_normal((30, D))
    for order in (3, 4):
        holder = RecordLevel(rows, norm_bound=3.0, order=order)
        oracle = PrivateOracle(holder, Ledger(1e9), noise_multiplier=1e-6, merge=0.9)
        np.testing.assert_allclose(
            oracle.image(block), holder.image(asked)[:, members] * signs ** (order - 1), atol=1e-4
        )
        np.testing.assert_allclose(
            oracle.value(block), holder.value(asked)[members] * signs**order, atol=1e-4
        )
    # Four candidates cost as two.
    joint = PrivateOracle(holder, Ledger(1.0), noise_multiplier=5.0, merge=0.9)
    joint.image(block)
    assert joint.last_scales[0] < 5.0 * holder.sensitivity(block) / 1.4


def test_only_the_noise_of_the_operating_system_is_private():
    class Pretender:
        is_private = True

        def gaussian(self, shape, scale):
            return np.zeros(shape)

    holder = RecordLevel(np.eye(3), norm_bound=1.0)
    for noise, private in [
        (None, True),
        (SecureNoise(), True),
        (SeededNoiseForTests(0), False),
        (Pretender(), False),
    ]:
        assert (
            PrivateOracle(holder, Ledger(1.0), noise_multiplier=9.0, noise=noise).is_private
            is private
        )


def test_an_oracle_that_may_speak_without_noise_is_refused():
    class Talkative(odeco.SensitiveOracle):
        dimension, order, neighbours = 3, 3, "none"

        def _image(self, block):
            return block

        def _sensitivity(self, block):
            return 1.0

        _value_sensitivity = _sensitivity

    with pytest.raises(TypeError, match=r"^Talkative may reveal its data without noise"):
        PrivateOracle(Talkative(), Ledger(1.0), noise_multiplier=9.0)
    with pytest.raises(
        TypeError,
        match=r"^SampleMoment declares no sensitivity, so no noise makes its answers private",
    ):
        PrivateOracle(SampleMoment(np.eye(3)), Ledger(1.0), noise_multiplier=9.0)


def test_nothing_can_take_the_place_of_the_noise_of_the_operating_system():
    with pytest.raises(AttributeError):
        SecureNoise().gaussian = lambda shape, scale: np.zeros(shape)


@pytest.mark.parametrize("size", [1e-80, 1e80])
def test_a_question_whose_sensitivity_would_underflow_is_refused(size):
    ledger = Ledger(1.0)
    oracle = PrivateOracle(RecordLevel(np.eye(3), norm_bound=1.0), ledger, noise_multiplier=9.0)
    with pytest.raises(
        ValueError, match=r"^The largest entry of each column of a query must lie between"
    ):
        oracle.image(size * np.eye(3)[:, :1])
    assert ledger.mu == 0


def test_the_sensitivity_of_a_tiny_question_does_not_underflow():
    holder = RecordLevel(np.eye(3), norm_bound=1.0)
    unit = holder.sensitivity(np.eye(3)[:, :1])
    assert holder.sensitivity(1e-80 * np.eye(3)[:, :1]) == pytest.approx(1e-160 * unit, rel=1e-6)


def test_private_rows_must_be_an_array():
    with pytest.raises(
        TypeError, match=r"^Private rows must be a NumPy array or a CSR array\. Got list\."
    ):
        RecordLevel([[1.0, 0.0]], norm_bound=1.0)


# ---- the recipe ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["auto", *FOR_TENSORS])
def test_every_mechanism_finds_strong_components_of_a_tensor_within_its_budget(mechanism):
    # Four times what the planner says that Algorithm 3 needs.
    truth = planted_orthogonal(30, 3, weights=[6000.0, 5500.0, 5000.0], rng=1)
    result = decompose_privately(truth.to_dense(), 3, **BUDGET, mechanism=mechanism, rng=0)
    found = odeco.match(result, truth)
    assert found.cosines.min() > 0.95
    assert result.clear.all()
    # Five standard errors, and what the turn of a vector takes from its weight: λ(1 − cos³).
    allowed = 5 * result.weight_errors + 3 * result.weights * result.angle_errors**2
    assert (np.abs(found.weight_errors) < allowed[found.found_index]).all()
    assert (found.angles < 3 * result.angle_errors[found.found_index]).all()
    limit = gdp_mu(1.0, 1e-6)
    assert 0.99 * limit < result.privacy.mu <= limit * (1 + 1e-9)
    assert result.privacy.epsilon_spent <= 1.0 == result.privacy.epsilon
    assert result.privacy.private


@pytest.mark.parametrize("mechanism", ["auto", *MECHANISMS])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_every_mechanism_finds_strong_components_of_rows_within_its_budget(mechanism, unit):
    rows, truth = topics(60_000, 10, 2, seed=0)
    rows = sparse.csr_array(rows) if mechanism == "core" else rows
    settings = {
        "unit": unit,
        "norm_bound": 1.0,
        "groups": np.arange(60_000) // 2 if unit == "user" else None,
    }
    result = decompose_privately(rows, 2, **BUDGET, **settings, mechanism=mechanism, rng=0)
    found = odeco.match(result, truth)
    assert found.cosines.min() > 0.95
    assert result.clear.all()
    assert (found.angles < 3 * result.angle_errors[found.found_index]).all()
    assert 0.99 < result.privacy.mu / gdp_mu(1.0, 1e-6) <= 1 + 1e-9


def test_even_orders_work_where_they_are_offered():
    rows, truth = topics(200_000, 5, 2, seed=0)
    result = decompose_privately(
        rows,
        2,
        **BUDGET,
        unit="record",
        norm_bound=1.0,
        order=4,
        mechanism="joint",
        rng=0,
        n_iterations=5,
    )
    assert (
        odeco.match(result, odeco.Components(truth.weights, truth.vectors, 4)).cosines.min() > 0.9
    )
    with pytest.raises(
        ValueError, match=r"^mechanism='core' takes tensors of order 3\. Got order 4\."
    ):
        decompose_privately(
            rows[:9], 2, **BUDGET, unit="record", norm_bound=1.0, order=4, mechanism="core"
        )


def without_signal(mechanism, dimension):
    """Return a tensor of zeros, or rows of zeros for a mechanism that needs rows."""
    if MECHANISMS[mechanism].needs_second_moment:
        return RecordLevel(np.zeros((10, dimension)), norm_bound=1.0)
    return np.zeros((dimension,) * 3)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_data_without_signal_show_nothing_clear_of_the_noise(mechanism):
    # Each floor is passed with a chance of at most 1 in 1,000 for each of 3 x 10 components.
    data = without_signal(mechanism, 12)
    clear = [
        decompose_privately(
            data, 3, **BUDGET, mechanism=mechanism, rng=i, noise=SeededNoiseForTests(i)
        ).clear.any()
        for i in range(10)
    ]
    assert sum(clear) <= 1


def test_all_zeros_and_bad_entries_are_answered_without_a_word():
    T = np.zeros((4, 4, 4))
    T[0, 0, 0] = np.nan
    T[1, 2, 3] = 5.0  # not symmetric
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mechanism in FOR_TENSORS:
            result = decompose_privately(T.copy(), 1, **BUDGET, mechanism=mechanism, rng=0)
            assert np.isfinite(result.weights).all()


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_the_smallest_tensors_and_rows_are_answered(dimension):
    for mechanism in FOR_TENSORS:
        result = decompose_privately(
            np.zeros((dimension,) * 3), dimension, **BUDGET, mechanism=mechanism, rng=0
        )
        assert np.isfinite(result.vectors).all()
    for mechanism in ("auto", *MECHANISMS):
        settings = {"unit": "record", "norm_bound": 1.0, "mechanism": mechanism}
        assert decompose_privately(
            np.zeros((1, dimension)), 1, **BUDGET, **settings
        ).weights.shape == (1,)
    rows = np.eye(dimension)
    assert (
        decompose_privately(
            rows, 1, **BUDGET, unit="record", norm_bound=1.0, order=5
        ).privacy.mechanism
        == "joint"
    )


def test_seeded_noise_says_that_nothing_is_private():
    truth = planted_orthogonal(8, 1, weights=[1000.0], rng=0)
    first, second = (
        decompose_privately(truth.to_dense(), 1, **BUDGET, rng=0, noise=SeededNoiseForTests(3))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.vectors, second.vectors)
    assert not first.privacy.private
    assert first.privacy.epsilon == first.privacy.epsilon_spent == first.privacy.mu == math.inf
    assert json.loads(first.privacy.to_json())["epsilon"] == "infinity"


def test_rng_never_touches_the_noise():
    T = planted_orthogonal(8, 1, weights=[1000.0], rng=0).to_dense()
    first, second = (
        decompose_privately(T, 1, **BUDGET, mechanism="joint", rng=0).weights for _ in range(2)
    )
    assert (first != second).all()


def test_nothing_comes_back_but_what_is_listed():
    T = planted_orthogonal(8, 2, weights=[1e4, 9e3], rng=0).to_dense()
    result = decompose_privately(T, 2, **BUDGET, rng=0)
    public = {name for name in dir(result) if not name.startswith("_")}
    errors = {"angle_errors", "weight_errors", "noise_floors", "clear", "estimate"}
    ways_to_look = {"verdict", "summary", "to_frame", "plot", "with_names"}
    held = {"components", "weights", "vectors", "order", "privacy", "names", "norm_bound"}
    ways_to_files = {"check", "from_arrays", "is_in", "permuted", "to_arrays"}
    assert public == held | errors | ways_to_look | ways_to_files
    assert {field.name for field in dataclasses.fields(PrivateDecomposition)} <= public
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.privacy = None
    document = json.loads(result.privacy.to_json())
    assert document["epsilon"] == 1.0
    assert document["unit"] == "entry"
    assert document["charges"][0]["count"] == 1
    assert "entry" in document["neighbours"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epsilon": 0.0}, r"^`epsilon` must be a number above 0"),
        ({"epsilon": -1.0}, r"^`epsilon` must be a number above 0"),
        ({"epsilon": math.inf}, r"^`epsilon` must be a number above 0"),
        ({"delta": 0.0}, r"^`delta` must be a number above 0"),
        ({"delta": 1.0}, r"^`delta` must be a number above 0"),
        (
            {"delta": 0.2},
            r"^`delta` must be below 1/n = 0\.1 for 10 records\. Got 0\.2\. Take one far below",
        ),
        (
            {"norm_bound": None},
            (
                r"^`norm_bound` must be a positive number.*known without looking at the data, or "
                r"chosen under privacy"
            ),
        ),
        ({"norm_bound": 0.0}, r"^`norm_bound` must be a positive number"),
        ({"unit": "user"}, r"^`groups` must be given for unit='user' and for no other"),
        ({"unit": "person"}, r"^`unit` must be one of 'entry', 'record', 'user'\. Got 'person'\.$"),
        (
            {"unit": "user", "groups": [1, 2]},
            r"^`groups` must hold one label per row: shape \(10,\)\. Got shape \(2,\)\.$",
        ),
        ({"n_iterations": 0}, r"^`n_iterations` must be an int of at least 1"),
        (
            {"mechanism": "subspace", "order": 4},
            r"^mechanism='subspace' takes tensors of order 3\. Got order 4\.",
        ),
        ({"mechanism": "magic"}, r"^`mechanism` must be one of"),
        ({"calibration": "paper"}, r"^calibration='paper' must go with mechanism='wang2016'"),
        (
            {"neighbour_relation": "distinct"},
            r"^`neighbour_relation` must be one of 'replace', 'add_remove'",
        ),
        (
            {"unit": "entry", "norm_bound": None},
            r"^A private tensor must be a d x d x d array of real numbers",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_refused(settings, text):
    arguments = {**BUDGET, "unit": "record", "norm_bound": 1.0, **settings}
    with pytest.raises(ValueError, match=text):
        decompose_privately(np.eye(10)[:, :4], 1, **arguments)


@pytest.mark.parametrize("missing", ["epsilon", "delta"])
def test_epsilon_and_delta_have_no_defaults(missing):
    arguments = {name: value for name, value in BUDGET.items() if name != missing}
    with pytest.raises(TypeError, match=missing):
        decompose_privately(np.zeros((3, 3, 3)), 1, **arguments)


# ---- mutants -------------------------------------------------------------------------------------


def test_noise_for_a_count_without_the_restarts_is_refused_by_the_ledger(monkeypatch):
    # K = k (R + 1) in place of k L (R + 1).
    short = "odeco.private.mechanisms.mechanism.noise_multiplier"
    monkeypatch.setattr(short, lambda e, d, n: noise_multiplier(e, d, n // 8))
    with pytest.raises(BudgetExhausted):
        decompose_privately(
            np.zeros((4, 4, 4)), 2, **BUDGET, mechanism="wang2016", n_restarts=8, rng=0
        )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_noise_five_percent_short_is_refused_by_the_ledger(monkeypatch, mechanism):
    from odeco.privacy import release as _release

    true_scale = _release.noise_scale
    monkeypatch.setattr(_release, "noise_scale", lambda *arguments: 0.95 * true_scale(*arguments))
    with pytest.raises(BudgetExhausted):
        decompose_privately(without_signal(mechanism, 4), 2, **BUDGET, mechanism=mechanism, rng=0)
