"""Parts of the model engine."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from odeco._util.state import array_field
from odeco.models.engine.em import best_of, em, successive_halving
from odeco.models.engine.fit import NoContext
from odeco.models.engine.moments import classes_of_three_views
from odeco.models.engine.selection import fold_numbers, select_number
from odeco.models.engine.spec import Spec
from odeco.models.engine.stream import BlockStream
from odeco.privacy import gdp_mu
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.sums import PrivateSums, Query


def planted_views(n_classes, rng, sizes=(7, 6, 8)):
    weights = rng.dirichlet(np.full(n_classes, 5.0))
    return weights, [rng.dirichlet(np.full(size, 0.5), n_classes).T for size in sizes]


@pytest.mark.parametrize("seed", range(5))
def test_exact_moments_of_three_views_give_the_classes(seed):
    rng = np.random.default_rng(seed)
    weights, (a, b, c) = planted_views(4, rng)
    pairs = ((a * weights) @ b.T, (b * weights) @ c.T, (a * weights) @ c.T)
    frequencies = tuple(view @ weights for view in (a, b, c))

    def triples(p, q, r):
        return np.einsum("h,ih,jh,kh->ijk", weights, p.T @ a, q.T @ b, r.T @ c)

    found = classes_of_three_views(pairs, frequencies, triples, 4, seed=0)
    order = np.argsort(weights)
    np.testing.assert_allclose(np.sort(found.weights), weights[order], atol=1e-6)
    assert found.explained == pytest.approx(1)
    by_weight = np.argsort(found.weights)
    for view, detector in zip((a, b, c), found.detectors, strict=True):
        seen = detector[:, by_weight].T @ view[:, order]
        np.testing.assert_allclose(seen, np.diag(1 / np.sqrt(weights[order])), atol=1e-5)


class Blocks(Spec):
    """The first block has five rows, and the others three."""

    first_block, next_block = 5, 3


@dataclass(frozen=True, eq=False)
class Means(BlockStream):
    """The mean of each block."""

    means: np.ndarray = array_field(None, "d", default=np.zeros((0, 2)))

    def absorb(self, spec, block):
        return replace(
            self, means=np.vstack([self.means, block.mean(axis=0)]), n_blocks=self.n_blocks + 1
        )


@pytest.mark.parametrize("cuts", [[], [1], [4, 5, 6], list(range(1, 20))])
def test_a_stream_of_rows_does_not_depend_on_where_batches_end(cuts):
    spec, rows = Blocks(None), np.random.default_rng(0).standard_normal((20, 2))
    empty = Means.begin(NoContext(), 0, rows)
    stream = empty
    for batch in np.split(rows, cuts):
        stream = stream.update(spec, batch)
    whole = empty.update(spec, rows)
    for name, value in whole.to_arrays("stream").items():
        np.testing.assert_array_equal(stream.to_arrays("stream")[name], value)
    assert len(stream.means) == 6
    assert not len(empty.means)


def test_a_stream_is_read_again_as_it_was_written():
    stream = Means.begin(NoContext(), 7, np.ones((1, 2))).update(Blocks(None), np.ones((6, 2)))
    again = Means.from_arrays(stream.to_arrays("x"), "x", parts={"context": NoContext})
    again.verify(Blocks(None), 2)
    assert (again.n_seen, type(again.n_seen), again.seed) == (6, int, 7)
    np.testing.assert_array_equal(again.means, stream.means)
    with pytest.raises(ValueError, match="in blocks or in the buffer"):
        replace(again, n_seen=7).verify(Blocks(None), 2)


def test_em_ends_when_an_iteration_gains_little_or_all_are_used_up():
    halve = lambda x: (x / 2, -abs(x))  # noqa: E731
    ended = em(halve, 1.0, max_iter=100, tol=1e-3)
    assert ended.converged
    assert ended.n_iter == 11  # the gain of step m is 2^-(m-1): step 11 gains less than 1e-3
    cut = em(halve, 1.0, max_iter=3, tol=1e-3)
    assert not cut.converged
    assert cut.params == 1 / 8


def test_the_best_start_is_the_one_that_is_highest_after_a_few_steps():
    step = lambda x: (x - 0.1 * np.sign(x) * min(1, abs(x)), -abs(x))  # noqa: E731
    best = best_of([5.0, -0.3, 2.0], step, first_iter=2, max_iter=200, tol=1e-9)
    assert best.log_likelihood > -1e-3
    assert -0.3 < best.params < 0


def planted_likelihood(truth, *, gain, n=1000, spurious=0.5, hidden=0):
    """Return a `learn` of components of four parameters: real ones gain, others gain 1/2 inside and
    lose outside.
    """

    def learn(k, kept):
        real = 0.0 if hidden and k < 1 + hidden else gain * (min(k, truth) - 1)
        excess = 4 * max(k - truth, 0)
        rows = np.full(n, (real + spurious * excess) / n)
        rows[~kept] -= (spurious + 5 / 8) * excess / n  # held-out rows lose 5/8 for each parameter
        return rows, 4 * k

    return learn


@pytest.mark.parametrize("truth", [1, 2, 3, 7])
def test_the_smallest_number_is_selected_that_none_of_the_next_three_beats(truth):
    chosen = select_number(
        planted_likelihood(truth, gain=40), fold_numbers(np.arange(1000)), most=20
    )
    assert chosen.n_components == truth
    assert chosen.near_ties == (truth,)
    assert set(chosen.tried) == set(range(1, truth + 4))


def test_a_component_must_gain_on_rows_learnt_from_and_on_held_out_rows():
    folds = fold_numbers(np.arange(1000))
    assert select_number(planted_likelihood(2, gain=4 * 1.4), folds, most=9).n_components == 1
    assert select_number(planted_likelihood(2, gain=4 * 1.6), folds, most=9).n_components == 2
    # Components that sit on a few rows gain much where they were learnt, and lose elsewhere.
    assert select_number(planted_likelihood(1, gain=0, spurious=9), folds, most=9).n_components == 1


@pytest.mark.parametrize(("hidden", "selected"), [(3, 4), (4, 1)])
def test_components_that_only_show_together_are_found_three_ahead(hidden, selected):
    learn = planted_likelihood(4, gain=40, hidden=hidden)
    assert (
        select_number(
            learn, fold_numbers(np.arange(1000)), most=4 if hidden == 4 else 9
        ).n_components
        == selected
    )


def test_larger_tables_are_held_out_in_fewer_folds_and_scores_stay_comparable():
    fits = []

    def learn(k, kept):
        fits.append(kept.mean())
        return np.full(20_000, -1.0), 4 * k

    chosen = select_number(learn, fold_numbers(np.arange(20_000)), most=2)
    assert fits == [1.0, 1.0, 0.8]
    assert chosen.held_out == {1: pytest.approx(-20_000)}


def test_folds_are_fifths_of_a_permutation():
    folds = fold_numbers(np.random.default_rng(0).permutation(103))
    assert np.bincount(folds).tolist() == [21, 21, 20, 21, 20]


@pytest.mark.parametrize(
    ("relation", "signed", "factor"),
    [
        ("replace", True, 2),
        ("replace", False, np.sqrt(2)),
        ("add_remove", True, 1),
        ("add_remove", False, 1),
    ],
)
def test_releases_of_a_model_add_up_to_its_budget(relation, signed, factor):
    sums = PrivateSums(Guarantee(1.0, 1e-6), 100, record="row", neighbour_relation=relation)
    query = Query("sum", lambda: np.zeros(10), 10, bound=3.0, signed=signed)
    assert sums.sensitivity(query) == pytest.approx(3 * factor)
    for share in (0.3, 0.7):
        answer, deviation = sums.release(query, share=share)
        assert answer.shape == (10,)
        assert deviation == pytest.approx(3 * factor / gdp_mu(1.0, 1e-6) / np.sqrt(share))
    report = sums.report("two sums")
    assert report.private
    assert report.epsilon_spent == pytest.approx(1.0)
    assert report.mu <= gdp_mu(1.0, 1e-6)


def test_successive_halving_keeps_the_start_that_is_ahead_in_the_end():
    """Starts rise by steps of their own up to a height of their own; the quickest is not the one
    that rises highest.
    """
    steps = np.array([0.1, 5.0, 1.0, 0.2])
    heights = np.array([9.0, 6.0, 12.0, 9.0])
    taken = [0] * 4

    def step(model):
        number, height = model
        taken[number] += 1
        return (number, min(height + steps[number], heights[number])), height

    def run(starts, max_iter):
        return [em(step, start, max_iter=max_iter, tol=1e-9) for start in starts]

    params, number = successive_halving([(number, 0.0) for number in range(4)], run, first_iter=4)
    assert number == 2
    assert params == (2, 12.0)  # after 4 + 8 steps; the others have taken 4, or ended at 6
    assert taken == [4, 4, 12, 4]
