"""What is declared covers what a neighbour does: to signed and non-negative records, to tensors of
every order, to entries that are stored twice, and to the rounding errors of both neighbours.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from sealing import record

import odeco
from odeco.privacy import EntryLevel, RecordLevel, epsilon_of, gdp_mu
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.answers import HeldAnswers
from odeco.privacy.holders.documents import BoundedCounts, WordVotes
from odeco.privacy.holders.rows import BoundedRows
from odeco.privacy.holders.sequences import PrivateSequences
from odeco.privacy.holders.tables import Levels
from odeco.privacy.noise import SeededNoiseForTests, grid_of, rounding_slack
from odeco.privacy.sensitivity import RecordSensitivities
from odeco.privacy.sums import PrivateSums
from odeco.private import decompose_privately, plan_privacy
from odeco.tensors.coordinates import PackedCoordinates, flattened, flattening_of_packed

D = 4
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def unit_columns(seed, width, dimension=D):
    block = np.random.default_rng(seed).standard_normal((dimension, width))
    return block / np.linalg.norm(block, axis=0)


# ---- records without negative numbers ------------------------------------------------------------


def nonnegative_pairs(generator, norm):
    """Yield pairs of records without negative entries: along axes, at random, equal, and one of
    them zero.
    """
    axes = np.eye(D)
    yield from ((norm * axes[i], norm * axes[j]) for i in range(D) for j in range(D))
    yield norm * axes[0], np.zeros(D)
    for _ in range(60):
        x, y = np.abs(generator.standard_normal((2, D))) * (generator.random((2, D)) < 0.6)
        yield x * norm / max(np.linalg.norm(x), 1e-9), y * norm / max(np.linalg.norm(y), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("users", [False, True])
def test_no_non_negative_record_moves_an_answer_further_than_root_two_and_some_as_far(order, users):
    generator = np.random.default_rng(order)
    n, norm = 12, 2.0
    rest = np.abs(generator.standard_normal((n, D)))
    groups = np.arange(n) // 3 if users else None
    mine = slice(0, 3) if users else slice(0, 1)
    settings = {"norm_bound": norm, "order": order, "nonnegative": True, "groups": groups}
    closest = {}
    for basis in (
        np.eye(D)[:, :2],
        np.eye(D)[:, :1],
        unit_columns(1, 2),
        unit_columns(2, 1),
        -np.eye(D)[:, :1],
    ):
        for x, y in nonnegative_pairs(generator, norm):
            held = []
            for record_of_one in (x, y):
                rows = rest.copy()
                rows[mine] = record_of_one
                held.append(RecordLevel(rows, **settings))
            asked = ["image", "value", "core", *(["slab"] if order == 3 else [])]
            for question in asked:
                before, after = (getattr(each, question)(basis) for each in held)
                name = "sensitivity" if question == "image" else f"{question}_sensitivity"
                declared = getattr(held[0], name)(basis)
                moved = np.linalg.norm(before - after)
                assert moved <= declared
                key = (question, basis.shape[1])
                closest[key] = max(closest.get(key, 0.0), moved / declared)
            if order < 5:
                before, after = (each.packed() for each in held)
                assert np.linalg.norm(before - after) <= held[0].packed_sensitivity()
                closest["packed"] = max(
                    closest.get("packed", 0.0),
                    np.linalg.norm(before - after) / held[0].packed_sensitivity(),
                )
    # With one column two answers cannot be √2 apart, for they lie on one line: only its value has a
    # sharper bound.
    attained = [key for key in closest if key == "packed" or key[1] == 2 or key[0] == "value"]
    assert min(closest[key] for key in attained) > 0.99
    assert max(closest.values()) <= 1


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_negative_numbers_are_cut_record_by_record_and_the_sharper_bound_never_meets_one(kind):
    rows = np.array([[3.0, -4.0], [-1.0, -1.0], [0.5, 0.25], [np.nan, 1.0], [1.0, -np.inf]])
    held = RecordLevel(kind(rows), norm_bound=1.0, nonnegative=True)
    kept = held._rows if isinstance(held._rows, np.ndarray) else held._rows.toarray()
    np.testing.assert_allclose(kept, [[0.6, 0], [0, 0], [0.5, 0.25], [0, 0], [0, 0]], atol=1e-9)
    assert "non-negative" in held.neighbours


def test_signed_records_refute_root_two_at_an_odd_order():
    question, settings = np.eye(2)[:, :1], {"norm_bound": 1.0, "n_records": 1, "replace": True}
    moved = np.linalg.norm(
        RecordLevel(np.eye(2)[:1], norm_bound=1.0).image(question)
        - RecordLevel(-np.eye(2)[:1], norm_bound=1.0).image(question)
    )
    assert moved > 1.99 > 1.4 * RecordSensitivities(nonnegative=True, **settings).image(question)


def test_non_negative_records_get_less_noise_and_the_plan_and_the_report_say_so():
    rows = np.abs(np.random.default_rng(0).standard_normal((50, D)))
    common = {**BUDGET, "unit": "record", "norm_bound": 1.0}
    for mechanism in ("input", "joint", "core", "subspace", "wang2016"):
        signed, cut = (
            decompose_privately(
                rows, 1, **common, mechanism=mechanism, nonnegative=flag, rng=0
            ).privacy
            for flag in (None, True)
        )
        release = (
            0 if mechanism == "joint" else -1
        )  # its later questions depend on the noise of the earlier ones
        ratio = signed.charges[release].sensitivity / cut.charges[release].sensitivity
        expected = (
            2 if mechanism == "wang2016" else math.sqrt(2)
        )  # whose last release is a single value
        assert ratio == pytest.approx(expected, rel=1e-6)
        assert "non-negative" in cut.neighbours
    plans = [
        plan_privacy(dimension=20, n_components=2, n_units=1000, nonnegative=flag, **common)[
            "joint"
        ].smallest_signal
        for flag in (None, True)
    ]
    assert plans[0] / plans[1] == pytest.approx(math.sqrt(2))


# ---- tensors of every order ----------------------------------------------------------------------


@pytest.mark.parametrize("order", [4, 5])
@pytest.mark.parametrize("relation", ["distinct", "literal"])
@pytest.mark.parametrize("width", [1, 2])
def test_no_neighbour_of_a_tensor_of_higher_order_moves_an_answer_further_than_declared(
    order, relation, width
):
    d = 3
    T = odeco.symmetrize(np.random.default_rng(0).standard_normal((d,) * order))
    basis = unit_columns(1, width, d)
    first = EntryLevel(T, neighbour_relation=relation)
    declared = (first.sensitivity(basis), first.value_sensitivity(basis))
    closest = np.zeros(2)
    for index in itertools.combinations_with_replacement(range(d), order):
        change = np.zeros((d,) * order)
        for permuted in itertools.permutations(index):
            change[permuted] = change[permuted] + 1.0 if relation == "literal" else 1.0
        second = EntryLevel(T + change, neighbour_relation=relation)
        moved = [
            np.linalg.norm(first.image(basis) - second.image(basis)),
            np.linalg.norm(first.value(basis) - second.value(basis)),
        ]
        assert (np.array(moved) <= declared).all()
        closest = np.maximum(closest, np.divide(moved, declared))
    if width == 1 or relation == "literal":  # for blocks of distinct entries it is a bound
        assert closest.min() > 0.99


def test_answers_of_a_tensor_of_order_four_are_those_of_its_lower_entries():
    array = np.random.default_rng(0).standard_normal((3,) * 4)
    symmetric = np.empty_like(array)
    for index in np.ndindex(array.shape):
        symmetric[index] = array[tuple(sorted(index, reverse=True))]
    U, held = unit_columns(0, 2, 3), EntryLevel(array)
    np.testing.assert_allclose(held.image(U), np.einsum("ijkl,ja,ka,la->ia", symmetric, U, U, U))
    np.testing.assert_allclose(
        held.value(U), np.einsum("ijkl,ia,ja,ka,la->a", symmetric, U, U, U, U)
    )
    assert (held.order, held.n_units) == (4, 15)
    for ask in (
        held.packed,
        lambda: held.core(U),
        lambda: held.slab(U),
        RecordLevel(U, norm_bound=1.0, order=5).packed,
    ):
        with pytest.raises(ValueError, match=r"needs a tensor of order 3\. Got order [45]\."):
            ask()


@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("users", [False, True])
def test_no_record_moves_the_entries_of_order_four_further_than_declared_and_some_as_far(
    relation, users
):
    """Signed records at all angles: √2 B⁴/n is attained by orthogonal ones, B⁴/n by blanking
    one.
    """
    generator, n, norm = np.random.default_rng(0), 12, 2.0
    rest, mine = generator.standard_normal((n, D)), slice(0, 3) if users else slice(0, 1)
    settings = {"norm_bound": norm, "order": 4, "groups": np.arange(n) // 3 if users else None}
    closest = 0.0
    for angle in np.linspace(0, np.pi, 9):
        turn = np.linalg.qr(generator.standard_normal((D, D)))[0]
        x, y = (
            3 * turn[:, 0],
            3 * (np.cos(angle) * turn[:, 0] + np.sin(angle) * turn[:, 1]),
        )  # clipped to the bound
        held = []
        for record_of_one in (x, np.zeros(D) if relation == "add_remove" else y):
            rows = rest.copy()
            rows[mine] = record_of_one
            held.append(RecordLevel(rows, neighbour_relation=relation, **settings))
        moved = np.linalg.norm(held[0].packed() - held[1].packed())
        closest = max(closest, moved / held[0].packed_sensitivity())
    assert 0.999 < closest <= 1


def test_entries_of_order_four_are_those_of_the_clipped_rows():
    rows = np.random.default_rng(0).standard_normal((50, 4))
    held = RecordLevel(rows, norm_bound=1.0, order=4, groups=np.arange(50) % 7)
    kept = rows / np.maximum(np.linalg.norm(rows, axis=1), 1)[:, None]
    shares = 1 / np.bincount(np.arange(50) % 7)[np.arange(50) % 7] / 7
    expected = np.einsum("n,ni,nj,nk,nl->ijkl", shares, kept, kept, kept, kept)
    np.testing.assert_allclose(
        flattening_of_packed(held.packed(), 4), flattened(expected), atol=1e-12
    )
    packed = held.packed() * held.packed_units()
    np.testing.assert_allclose(packed, expected[tuple(PackedCoordinates(4, 4).tuples)], atol=1e-12)
    assert np.linalg.norm(held.packed()) == pytest.approx(np.linalg.norm(expected))


def test_more_components_than_columns_are_found_privately_where_the_plan_says_so():
    """At the planned signal nine of ten components are found; the weights here are 1.5 times as
    large.
    """
    generator, d, k = np.random.default_rng(1), 6, 8
    vectors = generator.standard_normal((d, k))
    vectors /= np.linalg.norm(vectors, axis=0)
    n, budget = 40_000, {"epsilon": 1.0, "delta": 1e-6}
    plan = plan_privacy(
        dimension=d, n_components=k, unit="record", n_units=n, norm_bound=1.0, order=4, **budget
    )
    assert plan.best == "input"
    epsilon = 1.0 * plan.mechanisms[0].smallest_signal * k * 1.5  # about: noise falls as 1/ε
    rows = np.repeat(vectors.T, n // k, axis=0)
    settings = {"unit": "record", "norm_bound": 1.0, "order": 4, "epsilon": epsilon, "delta": 1e-6}
    found = decompose_privately(rows, k, rng=0, noise=SeededNoiseForTests(0), **settings)
    truth = odeco.Components(np.full(k, 1 / k), vectors, 4)
    cosines = odeco.match(found, truth).cosines
    assert np.mean(cosines > 0.9) >= 0.75
    assert [charge.count for charge in found.privacy.charges] == [1]
    with pytest.raises(ValueError, match=r"in \[1, 15\]\. Got 16"):
        decompose_privately(rows, 16, **settings)
    with pytest.raises(ValueError, match="finds at most as many components as columns"):
        decompose_privately(rows, k, mechanism="joint", **settings)
    with pytest.raises(ValueError, match="must be at most 4 here"):
        decompose_privately(np.zeros((4,) * 4), 5, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("mechanism", ["wang2016", "joint", "auto"])
def test_strong_components_of_a_tensor_of_order_four_are_found_within_the_budget(mechanism):
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 2)))[0]
    T = 5e4 * np.einsum("ia,ja,ka,la->ijkl", *[vectors] * 4)
    result = decompose_privately(T, 2, **BUDGET, mechanism=mechanism, entry_limit=1e6, rng=0)
    assert np.abs(vectors.T @ result.vectors).max(axis=0).min() > 0.9
    assert result.order == 4
    assert result.privacy.epsilon_spent <= 1.0
    with pytest.raises(
        ValueError,
        match=r"^mechanism='input' takes tensors of order 3\. Got order 4\. Take 'joint' or",
    ):
        decompose_privately(T, 2, **BUDGET, mechanism="input")
    planned = plan_privacy(dimension=5, n_components=2, order=4, **BUDGET)
    assert {plan.mechanism for plan in planned.mechanisms} == {"wang2016", "joint"}


# ---- entries that are stored twice ---------------------------------------------------------------


def test_a_row_whose_entries_are_stored_in_pieces_is_clipped_by_its_sum():
    """Entry 0 is stored 25 times as 0.2: each piece is short, their sum, 5, is beyond the
    bound, 1.
    """
    pieces = sparse.csr_array(
        (np.full(25, 0.2), np.zeros(25, dtype=np.int32), [0, 25, 25]), shape=(2, 3)
    )
    whole = sparse.csr_array(np.array([[5.0, 0, 0], [0, 0, 0]]))
    question = np.eye(3)[:, :1]
    for nonnegative in (False, True):
        held = RecordLevel(
            pieces, norm_bound=1.0, neighbour_relation="add_remove", nonnegative=nonnegative
        )
        np.testing.assert_allclose(
            held.image(question), RecordLevel(whole, norm_bound=1.0).image(question), rtol=1e-9
        )
        assert np.linalg.norm(held.image(question)) <= held.sensitivity(
            question
        )  # against the row of zeros
    opposite = sparse.csr_array(
        (np.array([5.0, -5.0]), np.zeros(2, dtype=np.int32), [0, 2]), shape=(1, 3)
    )
    for nonnegative in (False, True):  # the sum is zero, whatever its pieces are
        held = RecordLevel(opposite, norm_bound=1.0, nonnegative=nonnegative)
        np.testing.assert_array_equal(held.image(question), 0.0)
    online = odeco.OnlineDecomposer(
        1, batch_size=2, norm_bound=1.0, rng=0, noise=SeededNoiseForTests(0), **BUDGET
    )
    plain = odeco.OnlineDecomposer(
        1, batch_size=2, norm_bound=1.0, rng=0, noise=SeededNoiseForTests(0), **BUDGET
    )
    _, first = record(lambda: online.partial_fit(pieces))
    _, second = record(lambda: plain.partial_fit(whole))
    np.testing.assert_allclose(first.exact[0], second.exact[0], rtol=1e-9)


# ---- rounding ------------------------------------------------------------------------------------


def exact_image(rows, question):
    """Return (1/n) Σ x ⟨x, u⟩² without any rounding, as fractions."""
    u = [Fraction(float(number)) for number in question[:, 0]]
    total = [Fraction(0)] * len(u)
    for row in rows:
        x = [Fraction(float(number)) for number in row]
        factor = sum(a * b for a, b in zip(x, u, strict=True)) ** 2
        total = [each + a * factor for each, a in zip(total, x, strict=True)]
    return [each / len(rows) for each in total]


def rounding_error(computed, exact):
    """Return the Euclidean distance of computed numbers from exact ones."""
    return math.sqrt(
        sum((Fraction(float(a)) - b) ** 2 for a, b in zip(np.ravel(computed), exact, strict=True))
    )


def rows_that_round(n, seed):
    """Return rows within the norm 1, so that clipping leaves every bit as it is."""
    rows = np.random.default_rng(seed).standard_normal((n, 3))
    return 0.999 * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_what_records_declare_covers_the_rounding_errors_of_both_neighbours():
    rows, u = rows_that_round(3000, 0), unit_columns(0, 1, 3)
    other = rows.copy()
    other[17] = -other[17]
    held = [RecordLevel(each, norm_bound=1.0) for each in (rows, other)]
    errors = [
        rounding_error(each.image(u), exact_image(data, u))
        for each, data in zip(held, (rows, other), strict=True)
    ]
    assert min(errors) > 0
    true_bound = RecordSensitivities(1.0, 3000, replace=True).image(u)
    assert held[0].sensitivity(u) - true_bound >= sum(errors)


def test_what_a_stream_declares_covers_the_rounding_errors_of_both_neighbours():
    n, rows = 3000, rows_that_round(3000, 1)
    errors, paid = [], []
    for sign in (1.0, -1.0):
        data = rows.copy()
        data[17] *= sign
        online = odeco.OnlineDecomposer(
            1,
            method="power",
            batch_size=n,
            n_restarts=1,
            n_iterations=2,
            norm_bound=1.0,
            rng=0,
            noise=SeededNoiseForTests(0),
            **BUDGET,
        )
        online.partial_fit(np.zeros((0, 3)))
        question = online._run.solver.query.block
        _, seen = record(lambda online=online, data=data: online.partial_fit(data))
        errors.append(rounding_error(seen.exact[0], exact_image(data, question)))
        charge = online._account.ledger.charges[0]
        paid.append(charge.sensitivity - rounding_slack(3, grid_of(charge.scale)))
    assert min(errors) > 0
    assert min(paid) - RecordSensitivities(1.0, n, replace=True).image(question) >= sum(errors)


# ---- streams -------------------------------------------------------------------------------------


def test_a_user_with_at_most_m_rows_of_a_stream_is_protected_by_an_m_th_of_mu():
    """The rule of the documentation: m rows in one batch move its answer by at most m times what is
    declared.
    """
    m, n, mu = 4, 20, gdp_mu(1.0, 1e-6)
    assert gdp_mu(epsilon_of(mu / m, 1e-6), 1e-6) <= mu / m
    rows = rows_that_round(n, 2)
    answers = []
    for sign in (1.0, -1.0):
        data = rows.copy()
        data[:m] = sign * np.eye(3)[0]
        online = odeco.OnlineDecomposer(
            1,
            method="power",
            batch_size=n,
            n_restarts=1,
            n_iterations=2,
            norm_bound=1.0,
            rng=0,
            **BUDGET,
        )
        _, seen = record(lambda online=online, data=data: online.partial_fit(data))
        answers.append(seen.exact[0])
    declared = online._account.ledger.charges[0].sensitivity
    assert np.linalg.norm(answers[0] - answers[1]) <= m * declared


def test_a_stream_ends_where_its_rows_are_too_many_for_delta():
    """A δ of 1/n would be kept by publishing one of n rows in full, so the rows of all batches
    count.
    """
    online = odeco.OnlineDecomposer(
        1,
        batch_size=40,
        epsilon=1.0,
        delta=1e-2,
        norm_bound=1.0,
        rng=0,
        noise=SeededNoiseForTests(0),
    )
    online.partial_fit(np.ones((80, 3)))
    with pytest.raises(
        ValueError, match=r"^`delta` must be below 1/n = 0\.00833 for 120 records\. Got 0\.01\."
    ):
        online.partial_fit(np.ones((40, 3)))
    assert (online.n_rows, len(online._account.ledger.charges)) == (80, 2)


# ---- labels of users, types of entries, warnings in threads --------------------------------------


def as_objects(labels):
    made = np.empty(len(labels), dtype=object)
    made[:] = labels
    return made


HOLDERS_OF_USERS = {
    "rows": lambda groups: RecordLevel(np.eye(len(groups)), norm_bound=1.0, groups=groups),
    "documents": lambda groups: BoundedCounts(np.eye(len(groups)), groups=groups),
    "votes": lambda groups: WordVotes(
        np.eye(len(groups)), np.arange(len(groups)).astype(str), groups=groups
    ),
}


@pytest.mark.parametrize("make", HOLDERS_OF_USERS.values(), ids=HOLDERS_OF_USERS)
def test_labels_of_users_that_sorting_would_scatter_are_refused(make):
    # Sorted as objects, the two rows of user 1 stay apart: NaN is neither smaller nor larger, and
    # so are sets. Each would be a unit of its own, and the user would move an answer twice as far
    # as declared.
    sets = [frozenset({1}), frozenset({2}), frozenset({1})]
    for labels in (
        [1.0, math.nan, 1.0],
        [1.0, math.nan, 2.0],
        sets,
        ["a", None, "a"],
        [[1], [2], [1]],
    ):
        with pytest.raises(ValueError, match="`groups` must hold labels that can be sorted"):
            make(as_objects(labels))
    records = np.array(
        [(math.nan, 1), (0.0, 1), (math.nan, 1)], dtype=[("user", float), ("site", int)]
    )
    with pytest.raises(ValueError, match="`groups` must hold labels that can be sorted"):
        make(records)  # NumPy takes NaN for itself in an array of floats, but not within a record
    for labels in (
        as_objects(["b", "a", "b"]),
        as_objects([1, 0.5, True]),
        np.array([1.0, math.nan, 1.0]),
    ):
        held = make(labels)
        n_units = held.n_records if isinstance(held, BoundedCounts) else held.n_units
        assert n_units == 2


def test_whether_a_tensor_is_refused_does_not_depend_on_an_entry():
    # NumPy makes whole numbers of the first list, and objects of the second: neighbours, of which
    # one was refused.
    for entry in (2**64 - 1, 2**64):
        with pytest.raises(TypeError, match="must be an array"):
            EntryLevel([[[entry]]])
    with pytest.raises(TypeError, match="masked"):
        EntryLevel(np.ma.masked_array(np.ones((2, 2, 2)), mask=True))
    # In double precision the second is infinite, and infinite entries count as 0: neighbours that
    # were 65,536 times the change of an entry apart.
    for entry in ("1.797e308", "1.8e308"):
        with pytest.raises(ValueError, match="at most 64 bits"):
            EntryLevel(np.full((1, 1, 1), np.longdouble(entry)), entry_change=1e303)


@pytest.mark.filterwarnings("error")
def test_a_sum_over_respondents_gives_no_warning_about_one_of_them():
    # Threads do not inherit np.errstate, and the views of some respondents overflow where those of
    # others do not.
    questions = Levels(np.full(3, 2))
    codes = np.random.default_rng(0).integers(-1, 2, (5_000, 3))
    maps = tuple(np.full((6, 2), size) for size in (1e300, 1e155, 1.7e308))
    held = HeldAnswers(questions.indicators(codes), questions)
    assert np.isfinite(held.core(maps, (1.0, 1.0, 1.0)).answer()).all()

    def overflowing(given):
        return np.exp(1e5 * given[:, :2])

    assert np.isfinite(held.step(overflowing, 2).answer()).all()


# ---- neighbours from the ends of double precision ------------------------------------------------

SIZES = [0.0, 5e-324, 1e-308, 1e-200, 0.3, 1.0, 1e150, 1.7e308, math.inf]
EXTREME = np.array([*SIZES, *(-size for size in SIZES), math.nan])


def extreme_pair(generator, shape, mine, relation):
    """Draw an array of numbers from the ends of double precision, and a neighbour whose rows `mine`
    differ.
    """
    rows = generator.choice(EXTREME, shape)
    other = rows.copy()
    drawn = generator.choice(EXTREME, rows[mine].shape)
    other[mine] = (
        math.nan if relation == "add_remove" else -rows[mine] if generator.random() < 0.3 else drawn
    )
    return rows, other


def moved(first, second):
    """Return the distance of two answers, computed with their largest number as the unit."""
    gap = np.ravel(first) - np.ravel(second)
    unit = np.abs(gap).max(initial=0.0) or 1.0
    return unit * np.linalg.norm(gap / unit)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2]])
def test_no_extreme_row_moves_an_answer_further_than_declared(relation, groups):
    generator = np.random.default_rng(0)
    for bound, order, nonnegative in itertools.product((1e-60, 1.0, 1e50), (3, 4), (False, True)):
        settings = {
            "norm_bound": bound,
            "order": order,
            "nonnegative": nonnegative,
            "groups": groups,
        }
        for width in (1, 2, 3):
            pair = extreme_pair(generator, (5, 3), slice(0, 2 if groups else 1), relation)
            held = [RecordLevel(rows, neighbour_relation=relation, **settings) for rows in pair]
            block = generator.standard_normal((3, width))
            one = held[0]
            asked = {
                "image": one.sensitivity(block),
                "value": one.value_sensitivity(block),
                "core": one.core_sensitivity(block),
            }
            for name, declared in asked.items():
                assert moved(*(getattr(each, name)(block) for each in held)) <= declared
            assert (
                moved(*(each.second_moment() for each in held)) <= one.second_moment_sensitivity()
            )
            if order == 3:
                assert moved(*(each.slab(block) for each in held)) <= one.slab_sensitivity(block)
            if order < 5:
                assert moved(*(each.packed() for each in held)) <= one.packed_sensitivity()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
def test_no_extreme_record_moves_a_sum_of_a_model_further_than_declared(relation):
    generator = np.random.default_rng(1)
    sums = PrivateSums(Guarantee(1.0, 1e-3), 6, record="record", neighbour_relation=relation)
    queries = []
    for bound in (5e-324, 1e-300, 1.0, 1.7e308):
        for _ in range(10):
            held = [
                BoundedRows(rows, bound) for rows in extreme_pair(generator, (6, 3), 0, relation)
            ]
            mean, whitener = (
                generator.standard_normal(3),
                10.0 ** generator.integers(-3, 4) * np.eye(3)[:, :2],
            )
            wild = 1e300 * generator.standard_normal(
                (3, 2)
            )  # responsibilities that are far from probabilities
            queries += [
                [each.seconds() for each in held],
                [each.thirds(mean, whitener, 0.5) for each in held],
                [each.shares(lambda rows, wild=wild: rows @ wild, 2, mean, 0.5) for each in held],
            ]
    for _ in range(40):
        symbols, other = extreme_pair(generator, (6, 5), 0, relation)
        symbols[1:] = other[1:] = np.resize([0, 1, 2, 2, 1, 0, 0], (5, 5))
        if generator.random() < 0.7:  # else the first sequence has something that is no symbol
            symbols[0] = generator.integers(0, 3, 5)
        queries.append(
            [PrivateSequences(each.ravel(), np.full(6, 5), 3).query() for each in (symbols, other)]
        )
    for query, neighbour in queries:
        assert moved(query.answer(), neighbour.answer()) <= sums.sensitivity(query)
