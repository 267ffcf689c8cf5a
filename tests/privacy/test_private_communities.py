"""Private communities: an edge moves one bit, bits are flipped often enough, and nothing else is
learnt from.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr
from sealing import plain, play_back, record
from sklearn.metrics import adjusted_rand_score

from odeco.errors import BudgetExhausted
from odeco.models import Communities, plan_communities
from odeco.privacy import LedgerFile
from odeco.privacy.guarantee import PureGuarantee
from odeco.privacy.holders.graph import PrivateLinks
from odeco.privacy.noise import grid_of
from odeco.privacy.sums import PrivateSums

N = 7
WEIGHTS = [0.0, -0.0, 1.0, -1.0, 2.5, 5e-324, 1e308, np.inf, -np.inf, np.nan]


def random_graph(rng):
    """Return an adjacency matrix of any numbers: directed, weighted, with loops, dense or sparse
    with repeats.
    """
    kind = rng.integers(4)
    matrix = rng.choice(WEIGHTS, size=(N, N), p=[0.5, *[0.5 / 9] * 9])
    if kind == 0:
        rows, columns = rng.integers(0, N, (2, 30))  # some places several times
        return sparse.coo_array((rng.choice(WEIGHTS, 30), (rows, columns)), shape=(N, N)).tocsr()
    return sparse.csr_array(matrix) if kind == 1 else matrix


def with_pair(graph, pair, values):
    """Return a graph whose two entries of a pair of nodes are others."""
    dense = graph.copy() if isinstance(graph, np.ndarray) else graph.tocoo()
    if isinstance(dense, np.ndarray):
        dense[pair], dense[pair[::-1]] = values
        return dense
    kept = ~(
        ((dense.row == pair[0]) & (dense.col == pair[1]))
        | ((dense.row == pair[1]) & (dense.col == pair[0]))
    )
    rows, columns = np.append(dense.row[kept], pair), np.append(dense.col[kept], pair[::-1])
    return sparse.coo_array((np.append(dense.data[kept], values), (rows, columns)), shape=(N, N))


def test_no_edge_moves_the_bits_by_more_than_declared():
    rng, worst = np.random.default_rng(0), 0.0
    sums = PrivateSums(PureGuarantee(1.0, 0.0), 21, record="edge", neighbour_relation="add_remove")
    for _ in range(600):
        graph = random_graph(rng)
        pair = tuple(sorted(rng.choice(N, 2, replace=False).tolist()))
        one, other = (
            PrivateLinks(with_pair(graph, pair, rng.choice(WEIGHTS, 2))).pairs() for _ in range(2)
        )
        moved = float(np.linalg.norm(one.answer() - other.answer()))
        assert moved <= sums.sensitivity(one) == 1.0
        assert one.answer().shape == (one.size,)
        worst = max(worst, moved)
    assert worst == 1.0


def test_the_bits_are_those_of_the_upper_triangle():
    links = np.triu(np.random.default_rng(1).random((9, 9)) < 0.4, 1)
    for graph in (
        links,
        links.T,
        links + links.T,
        3 * links + np.eye(9),
        sparse.csr_array(links.T),
    ):
        np.testing.assert_array_equal(
            PrivateLinks(graph).pairs().answer(), links[np.triu_indices(9, 1)]
        )


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 20.0])
def test_pairs_are_flipped_as_often_as_epsilon_says(epsilon):
    """By the noise that a run gets: as it is rounded to a grid, half a step may count on either
    side.
    """
    held = PrivateLinks(np.zeros((40, 40)))
    sums = PrivateSums(
        PureGuarantee(epsilon, 0.0), held.n_records, record="edge", neighbour_relation="add_remove"
    )
    scale = sums.noise(held.pairs(), 1.0)
    least = float(ndtr(-(0.5 + grid_of(scale) / 2) / scale))
    assert math.log((1 - least) / least) <= epsilon
    # What the rounding of all pairs together is charged (`noise_scale`), and the room that the
    # budget leaves.
    slack = 2.0**-30 * (scale * math.sqrt(held.n_records) + 1)
    assert math.log((1 - least) / least) == pytest.approx(epsilon, rel=2 * slack + 1e-8)


@pytest.mark.parametrize("linked", [0.0, 1.0])
def test_released_pairs_have_that_share_of_flips(linked):
    graph = np.full((400, 400), linked)
    _, seen = record(lambda: Communities(2, epsilon=1.0, random_state=0).fit(graph))
    share = np.mean((seen.released[0] > 0.5) != (linked > 0))
    # 79,800 flips of chance 0.269 have a standard error of 0.0016.
    assert share == pytest.approx(1 / (1 + math.e), abs=0.01)


def planted(n=300, k=3, degree=50.0, ratio=10.0, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, k, n)
    rates = np.where(labels[:, None] == labels, ratio, 1.0)
    links = np.triu(rng.random((n, n)) < rates * (degree / rates.sum(axis=1).mean()), 1)
    return (links + links.T).astype(float), labels


def learnt(graph, epsilon=2.0, **settings):
    model = Communities(3, epsilon=epsilon, random_state=0, **settings).fit(graph)
    names = (
        "memberships_",
        "labels_",
        "block_matrix_",
        "profiles_",
        "prior_",
        "converged_",
        "n_samples_seen_",
    )
    return {name: getattr(model, name) for name in names} | {
        "privacy": model.privacy_,
        "said": model.summary(),
    }


@pytest.mark.parametrize("other", [0.0, 1.0, np.nan, 1e308])
def test_the_same_releases_give_the_same_communities_whatever_the_graph_is(other):
    model, seen = record(lambda: learnt(planted()[0]))
    played, unseen = play_back(lambda: learnt(np.full((300, 300), other)), seen.released)
    assert seen.scales == unseen.scales
    assert plain(model) == plain(played)
    assert not np.array_equal(seen.exact[0], unseen.exact[0])


def test_all_that_is_kept_of_a_noisy_pair_is_its_bit():
    """The guarantee has δ = 0 because of that: the noisy numbers would tell more."""
    model, seen = record(lambda: learnt(planted()[0]))
    bits = np.where(seen.released[0] > 0.5, 1e3, -1e3)
    assert plain(model) == plain(play_back(lambda: learnt(planted()[0]), [bits])[0])


def test_the_report_states_what_was_spent(tmp_path):
    report = learnt(planted()[0], 1.0)["privacy"]
    assert (report.epsilon, report.delta, report.unit) == (1.0, 0.0, "edge")
    assert report.epsilon_spent == pytest.approx(1.0, rel=1e-6)
    assert report.epsilon_spent <= 1.0
    assert report.adversary_accuracy == pytest.approx(math.e / (1 + math.e), rel=1e-6)
    assert "one edge, added or removed; the nodes are public" in report.statement
    assert len(report.charges) == 1
    model = Communities(3, epsilon=1.0, random_state=0).fit(planted()[0])
    model.save(tmp_path / "model.npz")
    again = Communities.load(tmp_path / "model.npz")
    assert again.privacy_ == model.privacy_
    np.testing.assert_array_equal(again.memberships_, model.memberships_)


def test_a_shared_ledger_is_charged_the_gaussian_noise(tmp_path):
    graph = planted()[0]
    for epsilon, is_enough in ((1.0, False), (8.0, True)):
        LedgerFile.create(
            tmp_path / f"{epsilon}", data="people", unit="edge", epsilon=epsilon, delta=1e-6
        )
        if is_enough:
            Communities(3, epsilon=1.0, ledger=tmp_path / f"{epsilon}").fit(graph)
        else:
            with pytest.raises(BudgetExhausted):
                Communities(3, epsilon=1.0, ledger=tmp_path / f"{epsilon}").fit(graph)


@pytest.mark.slow
def test_communities_are_found_as_planned_and_not_where_there_are_none():
    assert plan_communities(3, n_nodes=300, epsilon=2.0, degree=50.0, ratio=10.0).found
    graph, labels = planted()
    model = Communities(3, epsilon=2.0, random_state=0).fit(sparse.csr_array(graph))
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    assert "3 of 3 directions stand clear of noise, and about" in model.summary()
    assert model.converged_
    assert model.sample().shape == (300, 300)
    rng = np.random.default_rng(3)
    for epsilon in (0.1, 1.0, 8.0):
        links = np.triu(rng.random((300, 300)) < 0.15, 1)
        alone = Communities(3, epsilon=epsilon, random_state=0).fit(links)
        assert alone.n_components_ == 1
        assert not alone.converged_
        assert "1 of 3 directions stand clear of noise." in alone.summary()
    plans = [plan_communities(3, n_nodes=300, epsilon=each) for each in (0.2, 4.0)]
    assert plans[0].agreement < plans[1].agreement


@pytest.mark.slow
def test_communities_count_whose_directions_noise_nearly_hides():
    """Four communities of 75 nodes with 40 links each, ε = 1: noise is nearly as large as their
    three directions.

    Links are 0.37 likelier within communities: the directions have the size t = 0.37 · 75 = 28. The
    largest noise is s = 2 √(300 · 0.92 + 40) = 36, and their eigenvalues are t + s²/(4t) = 39 on
    average. If only those counted that are clear by a margin, there would be three communities or
    fewer in most graphs. On average the result must be better than any partition into three is.
    """
    found, labels = [], np.arange(300) % 4
    rates = np.where(labels[:, None] == labels, 10.0, 1.0)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        links = np.triu(rng.random((300, 300)) < rates * (40 / rates.sum(axis=1).mean()), 1)
        found.append(
            adjusted_rand_score(
                labels, Communities(4, epsilon=1.0, random_state=0).fit(links).labels_
            )
        )
    assert np.mean(found) > adjusted_rand_score(labels, np.minimum(labels, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "spread", "degree"), [(1.3, 0.7, 50.0), (1.5, 0.0, 40.0), (1.5, 0.9, 60.0)]
)
def test_as_many_nodes_as_stated_are_in_their_own_community(epsilon, spread, degree):
    """Two communities whose nodes differ in their links: directions are clear, and nodes of few
    links are not.

    Five graphs of 400 nodes: the share of nodes errs by 0.01 (√(0.25/2000)). It must be right
    within four of these, and 0.03 for what one simulation errs by.
    """
    stated, true = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        labels, sizes = rng.integers(0, 2, 400), np.exp(spread * rng.standard_normal(400))
        rates = np.where(labels[:, None] == labels, 6.0, 1.0) * np.outer(sizes, sizes)
        links = np.triu(rng.random((400, 400)) < rates * (degree / rates.sum(axis=1).mean()), 1)
        model = Communities(2, epsilon=epsilon, random_state=seed).fit(links)
        if model.n_components_ == 2:
            stated.append(model.memberships_.max(axis=1).mean())
            true.append(max(np.mean(model.labels_ == labels), np.mean(model.labels_ != labels)))
            assert model.converged_ == (stated[-1] >= 0.9)
    assert len(true) >= 3
    assert np.mean(stated) == pytest.approx(np.mean(true), abs=0.07)
    if spread:
        assert np.mean(true) < 0.97


def test_a_graph_without_links_has_no_communities():
    for epsilon in (0.1, 3.0, 30.0):
        model = Communities(2, epsilon=epsilon, random_state=0).fit(np.zeros((40, 40)))
        assert np.isfinite(model.memberships_).all()
        assert not model.converged_


def test_what_private_communities_cannot_do_is_refused():
    graph = planted()[0]
    with pytest.raises(ValueError, match="have δ = 0"):
        Communities(3, epsilon=1.0, delta=1e-6).fit(graph)
    with pytest.raises(ValueError, match="`delta` is for private models"):
        Communities(3, delta=1e-6).fit(graph)
    with pytest.raises(ValueError, match="at most 30"):
        Communities(3, epsilon=31.0).fit(graph)
    with pytest.raises(ValueError, match="neighbour_relation"):
        Communities(3, epsilon=1.0, neighbour_relation="replace").fit(graph)
    with pytest.raises(ValueError, match="must be an int for a private model"):
        Communities("auto", epsilon=1.0).fit(graph)
    with pytest.raises(ValueError, match="all edges at once"):
        Communities(3, epsilon=1.0).partial_fit(graph)
    with pytest.raises(ValueError, match="The score of a private model"):
        Communities(3, epsilon=1.0).fit(graph).score(graph)
    with pytest.raises(TypeError, match="must be a NumPy array or a SciPy sparse array"):
        Communities(3, epsilon=1.0).fit(graph.tolist())
    for shape in ((3, 4), (5001, 5001), (1, 1)):
        with pytest.raises(ValueError, match="a row and a column for each of 2 to 5,000 nodes"):
            Communities(1, epsilon=1.0).fit(sparse.csr_array(shape))
