"""Every declared sensitivity against every neighbour: none moves further, and one as far where that
is claimed.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odeco.privacy import sensitivity
from odeco.privacy.sensitivity import RecordSensitivities

SQRT3, SQRT5 = math.sqrt(3), math.sqrt(5)


def unit(block):
    return block / np.linalg.norm(block, axis=0)


def blocks():
    rng = np.random.default_rng(7)
    sparse = np.zeros((5, 2))
    sparse[0, 0] = sparse[3, 1] = 1.0
    cases = {
        "one random": unit(rng.standard_normal((5, 1))),
        "one sparse": unit(np.array([[0.0, 0.0, 2.0, -1.0, 0.0]]).T),
        "one axis": np.eye(4)[:, [1]],
        "one flat": np.full((4, 1), -0.5),
        "one with a tie": unit(np.array([[3.0, -3.0, 1.0, 0.5]]).T),
        "one of two dimensions": unit(np.array([[1.0, 2.0]]).T),
        "one of one dimension": np.array([[-1.0]]),
        "one not of unit length": np.array([[3.0, -1.0, 2.0]]).T,
        "random": unit(rng.standard_normal((5, 4))),
        "orthogonal": np.linalg.qr(rng.standard_normal((5, 3)))[0],
        "equal": unit(np.repeat(rng.standard_normal((5, 1)), 3, axis=1)),
        "sparse": sparse,
        "axes": np.eye(4),
        "many": unit(rng.standard_normal((3, 12))),
    }
    return [pytest.param(block, id=name) for name, block in cases.items()]


def symmetric_changes(dimension, order, *, literal):
    """Every T' - T: `literal` adds all p! orders of the indices, otherwise each different one
    once.
    """
    for indices in itertools.combinations_with_replacement(range(dimension), order):
        change = np.zeros((dimension,) * order)
        for arrangement in itertools.permutations(indices):
            if literal:
                change[arrangement] += 1
            else:
                change[arrangement] = 1
        yield change


def contract(tensor, vectors):
    """T(I, u, ..., u), or T(u, ..., u) if there are as many vectors as axes; from the
    definition.
    """
    for vector in reversed(vectors):
        tensor = tensor @ vector
    return tensor


def image_moved(change, block):
    return np.linalg.norm([contract(change, [u] * (change.ndim - 1)) for u in block.T])


def value_moved(change, block):
    return np.linalg.norm([contract(change, [u] * change.ndim) for u in block.T])


def core_moved(change, matrix):
    return np.linalg.norm(np.einsum("ijk,ia,jb,kc->abc", change, matrix, matrix, matrix))


def open_core_moved(change, matrix):
    return np.linalg.norm(np.einsum("ijk,jb,kc->ibc", change, matrix, matrix))


def furthest(moved, question, order, *, literal):
    changes = symmetric_changes(question.shape[0], order, literal=literal)
    return max(moved(change, question) for change in changes)


@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("block", blocks())
def test_literal_neighbours_move_image_and_value_exactly_as_declared(block, order):
    assert furthest(image_moved, block, order, literal=True) == pytest.approx(
        sensitivity.literal_image(block, order), rel=1e-12
    )
    assert furthest(value_moved, block, order, literal=True) == pytest.approx(
        sensitivity.literal_value(block, order), rel=1e-12
    )


def test_the_paper_s_constants_are_the_literal_sensitivities_of_one_vector():
    u = unit(np.random.default_rng(0).standard_normal((20, 1)))
    assert sensitivity.literal_image(u) == pytest.approx(6 * np.abs(u).max() ** 2, rel=1e-14)
    assert sensitivity.literal_value(u) == pytest.approx(6 * np.abs(u).max() ** 3, rel=1e-14)


@pytest.mark.parametrize("block", blocks())
def test_distinct_entry_neighbours_move_the_image_exactly_as_declared_at_order_three(block):
    assert furthest(image_moved, block, 3, literal=False) == pytest.approx(
        sensitivity.distinct_entry_image(block), rel=1e-12
    )


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("block", blocks())
def test_distinct_entry_neighbours_never_move_an_answer_further_and_for_one_column_as_far(
    block, order
):
    block = block[:4]
    image, value = (
        furthest(moved, block, order, literal=False) for moved in (image_moved, value_moved)
    )
    declared_image = sensitivity.distinct_entry_image(block, order)
    declared_value = sensitivity.distinct_entry_value(block, order)
    assert image <= declared_image * (1 + 1e-12)
    assert value <= declared_value * (1 + 1e-12)
    if block.shape[1] == 1:
        assert image == pytest.approx(declared_image, rel=1e-12)
        assert value == pytest.approx(declared_value, rel=1e-12)


def test_formulas_for_one_vector_and_order_three_are_those_of_the_derivation():
    u = unit(np.random.default_rng(1).standard_normal((9, 1)))
    a, b, c = np.sort(np.abs(u.ravel()))[::-1][:3]
    pairs = math.sqrt(a**2 * b**2 + a**2 * c**2 + b**2 * c**2)
    image = max(2 * pairs, math.sqrt(4 * a**2 * b**2 + a**4), a**2)
    assert sensitivity.distinct_entry_image(u) == pytest.approx(image, rel=1e-14)
    assert sensitivity.distinct_entry_value(u) == pytest.approx(
        max(6 * a * b * c, 3 * a**2 * b, a**3), rel=1e-14
    )


@given(st.integers(0, 2**32), st.integers(3, 12), st.integers(1, 6), st.sampled_from([1, 3, 9]))
def test_pruned_searches_find_what_trying_all_triples_finds(seed, dimension, width, power):
    rng = np.random.default_rng(seed)
    block = (
        rng.standard_normal((dimension, width)) ** power
    )  # high powers make a few rows stand out
    squares = block**2
    gram, core_gram = squares @ squares.T, block @ block.T
    best = core_best = 0.0
    for i, j, k in itertools.product(range(dimension), repeat=3):
        g = core_gram[np.ix_([i, j, k], [i, j, k])]
        permanent = sum(
            math.prod(g[row, order[row]] for row in range(3))
            for order in itertools.permutations(range(3))
        )
        if len({i, j, k}) == 3:
            best = max(best, 4 * (gram[i, j] + gram[i, k] + gram[j, k]))
            core_best = max(core_best, 6 * permanent)
        elif i == j != k:
            best = max(best, 4 * gram[i, k] + gram[i, i])
            core_best = max(
                core_best, 6 * permanent / 4
            )  # three of six orders: half the sum, a quarter of its square
        elif i == j == k:
            best = max(best, gram[i, i])
            core_best = max(core_best, core_gram[i, i] ** 3)
    assert sensitivity.distinct_entry_image(np.hstack([block, 0 * block])) == pytest.approx(
        math.sqrt(best), rel=1e-9
    )
    assert sensitivity.distinct_entry_core(block) == pytest.approx(math.sqrt(core_best), rel=1e-9)


@pytest.mark.parametrize("matrix", blocks())
def test_neighbours_move_cores_exactly_as_declared(matrix):
    for moved, is_open in ((core_moved, False), (open_core_moved, True)):
        literal = sensitivity.literal_core(matrix, open_axis=is_open)
        distinct = sensitivity.distinct_entry_core(matrix, open_axis=is_open)
        assert furthest(moved, matrix, 3, literal=True) == pytest.approx(literal, rel=1e-12)
        assert furthest(moved, matrix, 3, literal=False) == pytest.approx(distinct, rel=1e-12)
        longest = np.linalg.norm(matrix, axis=1).max()
        assert distinct <= (2 * SQRT3 * longest**2 if is_open else 6 * longest**3) * (1 + 1e-12)


@pytest.mark.parametrize("question", blocks())
def test_above_the_exact_dimension_the_bounds_hold(question, monkeypatch):
    exact_image = sensitivity.distinct_entry_image(question)
    cores = [
        sensitivity.distinct_entry_core(question, open_axis=is_open) for is_open in (False, True)
    ]
    monkeypatch.setattr(sensitivity, "EXACT_DIMENSION", 0)
    assert sensitivity.distinct_entry_image(question) >= exact_image * (1 - 1e-12)
    bounds = [
        sensitivity.distinct_entry_core(question, open_axis=is_open) for is_open in (False, True)
    ]
    assert all(bound >= core * (1 - 1e-12) for bound, core in zip(bounds, cores, strict=True))


# ---- records -------------------------------------------------------------------------------------

BOUND, N_RECORDS = 1.7, 40


def record_image_of(x, block, order):
    return np.outer(x, (x @ block) ** (order - 1)) / N_RECORDS


def record_value_of(x, block, order):
    return (x @ block) ** order / N_RECORDS


def records(block, answer, order):
    """Records of the largest norm: random ones, the columns, and those that climb to a long answer
    step by step.
    """
    rng = np.random.default_rng(3)
    starts = [*rng.standard_normal((20, block.shape[0])), *block.T]
    # |answer|² is a sum of even powers of x @ block, so this step never goes down.
    power = 2 * (order - 1) if answer is record_image_of else 2 * order
    for start in starts:
        x = start / np.linalg.norm(start)
        yield BOUND * x
        for _ in range(60):
            step = block @ (x @ block) ** (power - 1)
            if np.linalg.norm(step) == 0:
                break
            x = step / np.linalg.norm(step)
        yield BOUND * x


def furthest_record(block, answer, order, *, replace):
    answers = [answer(x, block, order) for x in records(block, answer, order)]
    if not replace:
        return max(np.linalg.norm(a) for a in answers)
    answers += [answer(-x, block, order) for x in records(block, answer, order)]
    answers.append(np.zeros_like(answers[0]))
    flat = np.reshape(answers, (len(answers), -1))
    return max(np.linalg.norm(flat - one, axis=1).max() for one in flat)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("order", [3, 4])
@pytest.mark.parametrize("block", blocks())
def test_no_record_moves_an_answer_further_than_declared_and_some_as_far_where_claimed(
    block, order, replace
):
    gram = np.abs(block.T @ block)
    single = block.shape[1] == 1
    simple = single or np.allclose(gram, np.eye(len(gram))) or np.allclose(gram, 1)
    bounds = RecordSensitivities(BOUND, N_RECORDS, order, replace=replace)
    for answer, declared in (
        (record_image_of, bounds.image(block)),
        (record_value_of, bounds.value(block)),
    ):
        moved = furthest_record(block, answer, order, replace=replace)
        assert moved <= declared * (1 + 1e-12)
        odd_or_removed = order % 2 == 1 or not replace
        if (simple and odd_or_removed) or (single and answer is record_value_of):
            assert moved >= 0.99 * declared


def test_one_unit_vector_costs_what_the_table_says():
    u = unit(np.random.default_rng(2).standard_normal((6, 1)))
    for factor, replace in ((1, False), (2, True)):
        bounds = RecordSensitivities(BOUND, N_RECORDS, replace=replace)
        assert bounds.image(u) == pytest.approx(factor * BOUND**3 / N_RECORDS)
        assert bounds.value(u) == pytest.approx(factor * BOUND**3 / N_RECORDS)


def test_ten_random_candidates_cost_hardly_more_than_one_and_equal_ones_their_root():
    block = unit(np.random.default_rng(4).standard_normal((100, 10)))
    assert 1 <= RecordSensitivities(1.0, 1, replace=False).image(block) < 1.1
    assert RecordSensitivities(1.0, 1, replace=False).image(block[:, [0] * 10]) == pytest.approx(
        math.sqrt(10)
    )


def test_the_block_formula_for_records_is_a_bound_and_not_attained_by_three_vectors_in_a_plane():
    angles = np.arange(3) * 2 * np.pi / 3
    block = np.array([np.cos(angles), np.sin(angles)])
    moved = furthest_record(block, record_image_of, 3, replace=False) * N_RECORDS / BOUND**3
    assert moved == pytest.approx(math.sqrt(9 / 8), rel=1e-6)
    assert RecordSensitivities(1.0, 1, replace=False).image(block) == pytest.approx(
        math.sqrt(3 / 2)
    )


@pytest.mark.parametrize("order", [2, 3, 4])
def test_records_move_cores_and_the_tensor_itself_as_declared(order):
    rng = np.random.default_rng(6)
    dimension = 4
    for matrix in (np.linalg.qr(rng.standard_normal((dimension, 2)))[0], np.eye(dimension)):
        for is_open in (False, True):
            left = np.linalg.svd(matrix)[0]
            xs = BOUND * np.vstack([unit(rng.standard_normal((dimension, 30))).T, left.T, -left.T])

            def core(x, matrix=matrix, is_open=is_open):
                result = x if is_open else x @ matrix
                for _ in range(order - 1):
                    result = np.multiply.outer(result, x @ matrix)
                return result.ravel() / N_RECORDS

            cores = np.array([core(x) for x in xs])
            removed = np.linalg.norm(cores, axis=1).max()
            replaced = max(np.linalg.norm(cores - one, axis=1).max() for one in cores)
            for moved, replace in ((removed, False), (replaced, True)):
                bounds = RecordSensitivities(BOUND, N_RECORDS, order, replace=replace)
                declared = bounds.core(matrix, open_axis=is_open)
                assert moved == pytest.approx(declared, rel=1e-9)
                if matrix.shape[1] == dimension:
                    assert declared == pytest.approx(bounds.entries(), rel=1e-12)


# ---- mutants: what the tests above would say to the mistakes that one makes ----------------------


@pytest.mark.parametrize("constant", [2 * SQRT5, 2 * SQRT3, 5.7])
def test_a_smaller_constant_than_six_is_refuted_by_a_literal_neighbour(constant):
    u = unit(np.random.default_rng(8).standard_normal((5, 1)))
    assert furthest(image_moved, u, 3, literal=True) > constant * np.abs(u).max() ** 2 * 1.01


def test_the_constant_2_root_3_is_right_for_distinct_entries_and_attained_by_a_flat_vector():
    u = np.full((4, 1), 0.5)
    assert furthest(image_moved, u, 3, literal=False) == pytest.approx(2 * SQRT3 * 0.25, rel=1e-12)


@pytest.mark.parametrize("literal", [True, False])
def test_forgetting_the_number_of_candidates_is_refuted_by_a_neighbour(literal):
    declare = sensitivity.literal_image if literal else sensitivity.distinct_entry_image
    block = unit(np.repeat(np.random.default_rng(9).standard_normal((5, 1)), 6, axis=1))
    assert furthest(image_moved, block, 3, literal=literal) > 2 * declare(block[:, [0]])


def test_add_remove_declared_for_replace_is_refuted_by_a_record():
    u = unit(np.random.default_rng(10).standard_normal((5, 1)))
    removed = RecordSensitivities(BOUND, N_RECORDS, replace=False).image(u)
    assert furthest_record(u, record_image_of, 3, replace=True) > 1.98 * removed


def test_the_norm_of_a_block_of_separate_answers_is_refuted_as_a_bound_when_candidates_collapse():
    block = unit(np.repeat(np.random.default_rng(11).standard_normal((5, 1)), 4, axis=1))
    assert furthest_record(block, record_image_of, 3, replace=False) > 1.9 * BOUND**3 / N_RECORDS
