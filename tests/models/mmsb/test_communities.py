"""Communities of graphs: memberships that are found, graphs that are taken, and that the estimator
behaves.
"""

import copy

import numpy as np
import pandas as pd
import pytest
from interrupts import moments_of, run_traced
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import odeco
from odeco.models import Communities
from odeco.models.mmsb.blocks import split_links
from odeco.models.mmsb.graph import as_adjacency
from odeco.models.mmsb.partition import (
    count_communities,
    likeliest_partition,
    merge_blocks,
    refine_partition,
    rewired,
)


def planted(n_nodes, k, *, degree, ratio, concentration, seed):
    """Return a graph of the mixed-membership block model, as CSR, and its memberships."""
    rng = np.random.default_rng(seed)
    memberships = rng.dirichlet(np.full(k, concentration / k), n_nodes)
    base = degree / n_nodes / (ratio / k + (k - 1) / k)
    chances = memberships @ (base * (1 + (ratio - 1) * np.eye(k))) @ memberships.T
    links = np.triu(rng.random((n_nodes, n_nodes)) < chances, 1).astype(np.int64)
    return sparse.csr_array(links + links.T), memberships


def in_order(found, truth):
    rows, columns = linear_sum_assignment(-found.T @ truth)
    return found[:, rows[np.argsort(columns)]]


def distance(found, truth):
    """Return half of the mean L1 distance of memberships, which is the share that is in the wrong
    place.
    """
    return np.abs(in_order(found, truth) - truth).sum(axis=1).mean() / 2


@pytest.mark.slow
@parametrize_with_checks([Communities(random_state=0)])
def test_scikit_learn_accepts_communities(estimator, check):
    check(estimator)


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_found_as_well_as_links_allow(seed):
    # A node has some 60 links, and each goes through one of its communities. If it were known
    # through which, a share would be known to √(π(1 − π)/60) ≤ 0.065, and all four of them to at
    # most 4 x 0.065 / 2 = 0.13 in half of L1. Twice that, as it is not known.
    links, truth = planted(1500, 4, degree=60, ratio=20, concentration=1.0, seed=seed)
    model = Communities(4, random_state=seed).fit(links)
    assert distance(model.memberships_, truth) < 0.26
    nothing_known = np.full_like(truth, 1 / 4)
    assert distance(model.memberships_, truth) < distance(nothing_known, truth) / 2
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1)


def blocks_of_nodes(sizes, seed, *, within=0.2, between=0.01, propensities=None):
    """Return a graph in which every node is of one block, and the block of each node."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    chances = np.where(group[:, None] == group, within, between)
    if propensities is not None:
        chances = chances * np.outer(propensities, propensities)
    links = np.triu(rng.random(chances.shape) < chances, 1)
    return sparse.csr_array((links | links.T).astype(float)), group


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", [(300, 300, 300), (500, 300, 100)])
def test_the_block_matrix_of_blocks_is_that_of_the_links(sizes, seed):
    # With the blocks known, a rate p over m pairs is known to √(p/m). They are not known here:
    # nodes get shares that are known from d links each, so that about 1/d of a node's links is
    # counted in another block than its own, at either end of a link: a rate may be off by 2/d of
    # the rates that are mixed up, on top of four deviations.
    links, group = blocks_of_nodes(sizes, seed)
    model = Communities(3, random_state=seed).fit(links)
    shares = in_order(model.memberships_, np.eye(3)[group])
    assert np.all(shares.argmax(axis=1) == group)
    order = [int(np.argmax(np.all(shares[:, [a]] == model.memberships_, axis=0))) for a in range(3)]
    found, truth = (
        model.block_matrix_[np.ix_(order, order)],
        np.where(np.eye(3, dtype=bool), 0.2, 0.01),
    )
    n_pairs = np.outer(sizes, sizes) / np.where(np.eye(3, dtype=bool), 2, 1)
    least_degree = 0.2 * min(sizes) + 0.01 * (900 - min(sizes))
    allowed = 4 * np.sqrt(truth / n_pairs) + 2 / least_degree * 0.2
    assert np.all(np.abs(found - truth) < allowed)


@pytest.mark.parametrize("seed", range(2))
def test_the_block_matrix_of_mixed_nodes_is_found(seed):
    # The concentration is given, because it says how far nodes are mixed, and the rates follow from
    # that. The third eigenvalue of the expected links is degree x (ratio − 1)/(ratio + k − 1)/(1 +
    # α₀) = 25 for degree 60, and noise, of operator norm 2√60 = 15, turns its eigenvector by an
    # angle of sine √60/25 = 0.31. A rate is quadratic in the eigenvectors: it may be off by the
    # square of that, a tenth of the rates within.
    links, _ = planted(1500, 4, degree=60, ratio=20, concentration=1.0, seed=seed)
    rate = 60 / 1500 / (20 / 4 + 3 / 4)
    found = Communities(4, concentration=1.0, random_state=seed).fit(links).block_matrix_
    diagonal = np.eye(4, dtype=bool)
    assert abs(found[diagonal].mean() / (20 * rate) - 1) < 0.1
    assert abs(found[~diagonal].mean() - rate) < 0.1 * 20 * rate


@pytest.mark.slow
def test_nodes_of_one_community_may_have_very_different_numbers_of_links():
    # Degrees differ by a factor of nine. The node with the fewest expects 300 x 0.2 x 5/3 / 3 = 33
    # links in its block, and 1.7 in each other: the chance that another gets more is below 1e-8,
    # and 900 nodes have it.
    propensities = np.tile(np.array([1 / 3, 5 / 3, 3.0]) / (5 / 3), 300)
    links, group = blocks_of_nodes((300, 300, 300), 0, propensities=propensities)
    model = Communities("auto", random_state=0).fit(links)
    assert model.n_components_ == 3
    assert np.all(in_order(model.memberships_, np.eye(3)[group]).argmax(axis=1) == group)


@pytest.mark.slow
def test_parts_of_communities_are_not_counted_as_communities():
    # Two camps of 200 nodes, in each of which two halves are linked twice as often within as
    # between. A node has 62 links, and noise ends at 2√62 = 16. The expected links have the
    # eigenvalues 62, 58 for the camps and 20 for the halves: four parts are told from chance. Two
    # camps have a modularity of 60/62 - 1/2, four halves of 40/62 - 1/4.
    rng = np.random.default_rng(0)
    part = np.repeat(np.arange(4), 100)
    camp = part // 2
    chances = np.where(part[:, None] == part, 0.4, np.where(camp[:, None] == camp, 0.2, 0.01))
    upper = np.triu(rng.random((400, 400)) < chances, 1)
    links = as_adjacency(sparse.csr_array((upper | upper.T).astype(float)))
    counted = count_communities(links)
    assert counted.distinguishable == 4
    assert counted.selected == 2
    assert (
        "2 were selected: finer partitions are less likely"
        in Communities("auto", random_state=0).fit(links).summary()
    )


@pytest.mark.parametrize("seed", range(3))
def test_unequal_blocks_with_unequal_degrees_are_all_counted(seed):
    # The smallest block has 60 of 960 nodes. Its nodes have some 12 of their 17 links within the
    # block, where degrees let expect one: the eigenvalue 12/17 = 0.7 is above that of chance, 2/√17
    # = 0.49.
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(5), [400, 250, 150, 100, 60])
    propensities = np.exp(0.5 * rng.normal(size=group.size))
    size = np.bincount(group)[group]
    chances = np.where(group[:, None] == group, 12 / np.sqrt(np.outer(size, size)), 5 / group.size)
    chances = chances * np.outer(propensities, propensities) / np.mean(propensities) ** 2
    upper = np.triu(rng.random(chances.shape) < chances, 1)
    links = as_adjacency(sparse.csr_array((upper | upper.T).astype(float)))
    assert count_communities(links, seed=seed).selected == 5


def test_a_rewired_graph_has_the_degrees_and_the_links_between_blocks():
    links, group = blocks_of_nodes((80, 50, 30), 0)
    links = as_adjacency(links)
    drawn = rewired(links, group, np.random.default_rng(0))
    blocks = np.eye(3)[group]
    np.testing.assert_array_equal(drawn @ blocks, links @ blocks)
    assert np.mean(drawn.data > 1) < 0.01
    # Of 160 x 159 / 2 pairs, a random graph links few of those that were linked: a fifth within
    # blocks.
    assert drawn.multiply(links).sum() < links.sum() / 2


def test_moves_of_nodes_find_the_planted_partition():
    links, group = blocks_of_nodes((120, 80, 60), 1)
    wrong = np.where(
        np.random.default_rng(0).random(260) < 0.4,
        np.random.default_rng(1).integers(0, 3, 260),
        group,
    )
    _, labels = refine_partition(as_adjacency(links), wrong, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(labels, group)


def test_parts_of_blocks_are_merged_again():
    links, group = blocks_of_nodes((120, 80, 60), 1)
    parts = (
        3 * np.random.default_rng(0).integers(0, 3, 260) + group
    )  # each block is cut into three at random
    labels = merge_blocks(as_adjacency(links), parts, 3)
    np.testing.assert_array_equal(labels[:, None] == labels, group[:, None] == group)


def test_a_start_with_two_blocks_in_one_and_another_cut_in_two_is_left_behind():
    links, group = blocks_of_nodes((120, 80, 60), 1)
    links, wrong = as_adjacency(links), np.where(group == 0, np.arange(260) % 2, 2)
    alone = refine_partition(links, wrong, 3, np.random.default_rng(0))[0]
    labels = likeliest_partition(links, np.eye(3)[wrong], np.random.default_rng(0))
    assert refine_partition(links, labels, 3, np.random.default_rng(0))[0] >= alone
    np.testing.assert_array_equal(labels[:, None] == labels, group[:, None] == group)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_block_matrix_implies_the_links_and_no_more_than_one_for_a_pair(seed):
    # Forty blocks of very different sizes: moments alone give rates that no graph can have.
    rng = np.random.default_rng(seed)
    sizes = np.maximum(rng.lognormal(2.8, 0.9, 40), 4).astype(int)
    links, _ = blocks_of_nodes(
        sizes,
        seed,
        within=0.5,
        between=0.01,
        propensities=np.exp(0.5 * rng.normal(size=sizes.sum())),
    )
    model = Communities(40, random_state=0).fit(links)
    shares, rates = model.memberships_, model.block_matrix_
    implied = shares.sum(axis=0) @ rates @ shares.sum(axis=0) - np.sum((shares @ rates) * shares)
    assert rates.max() <= 1
    assert implied == pytest.approx(links.sum())


@pytest.mark.parametrize("concentration", [0.01, 1.0])
def test_hidden_links_tell_how_mixed_nodes_are(concentration):
    # The candidates are a factor of two apart at the most; pure nodes and mixed ones, a factor of a
    # hundred.
    links, _ = planted(1200, 3, degree=50, ratio=20, concentration=concentration, seed=0)
    chosen = float(Communities(3, random_state=0).fit(links).prior_.sum())
    assert abs(np.log10(chosen / concentration)) < 1


def test_hidden_links_are_hidden_at_both_ends_and_none_is_lost():
    links = as_adjacency(planted(300, 2, degree=20, ratio=20, concentration=0.3, seed=0)[0])
    known, hidden = split_links(links, np.random.default_rng(0))
    assert (known + hidden != links).nnz == 0
    assert (known != known.T).nnz == 0
    # A binomial number of 3,000 links with chance 0.1: four deviations are 66.
    assert abs(hidden.sum() / 2 - 0.1 * links.sum() / 2) < 4 * np.sqrt(0.09 * links.sum() / 2)


def test_profiles_that_span_too_little_still_give_a_block_matrix():
    # A star has two eigenvalues that are not zero; three communities cannot be told apart.
    star = np.zeros((12, 12))
    star[0, 1:] = star[1:, 0] = 1
    model = Communities(3, random_state=0).fit(star)
    assert np.all(np.isfinite(model.block_matrix_))
    np.testing.assert_allclose(model.memberships_.sum(axis=1), 1)


@pytest.mark.parametrize(("n_nodes", "k"), [(400, 2), (400, 4), (900, 5)])
def test_auto_finds_the_number_of_planted_communities(n_nodes, k):
    # The k-th eigenvalue of the expected links is about degree x (ratio − 1)/(ratio + k − 1)/(1 +
    # α₀), 18 for k = 5; noise ends at about twice the root of the degree, 11.
    links, _ = planted(n_nodes, k, degree=30, ratio=20, concentration=0.3, seed=k)
    assert Communities("auto", random_state=0).fit(links).n_components_ == k


def test_a_random_graph_has_one_community():
    rng = np.random.default_rng(0)
    links = np.triu(rng.random((600, 600)) < 0.05, 1)
    assert (
        count_communities(as_adjacency(sparse.csr_array((links | links.T).astype(float)))).selected
        == 1
    )


def test_dense_sparse_and_tables_give_the_same_bits():
    links, _ = planted(200, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    names = [f"node {i}" for i in range(200)]
    table = pd.DataFrame(links.toarray(), columns=names)
    models = [
        Communities(2, random_state=0).fit(each)
        for each in (links, links.toarray(), links.tocoo(), table)
    ]
    for model in models[1:]:
        np.testing.assert_array_equal(model.memberships_, models[0].memberships_)
    assert list(models[3].feature_names_in_) == names
    assert "node " in models[3].summary()


class Graph:
    """What is asked of a networkx graph."""

    def __init__(self, nodes, edges, directed):
        self.nodes, self._edges, self._directed = nodes, edges, directed

    def edges(self, data, default):
        assert data == "weight"
        return [(*edge[:2], edge[2] if len(edge) > 2 else default) for edge in self._edges]

    def is_directed(self):
        return self._directed

    def is_multigraph(self):
        return False


@pytest.mark.parametrize("directed", [False, True])
def test_a_networkx_graph_is_its_adjacency_matrix(directed):
    links, _ = planted(120, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    upper = sparse.triu(links).tocoo()
    names = [f"n{i}" for i in range(120)]
    edges = [(names[i], names[j]) for i, j in zip(*upper.coords, strict=True)]
    of_graph = Communities(2, random_state=0).fit(Graph(names, edges, directed))
    of_matrix = Communities(2, random_state=0).fit(links)
    np.testing.assert_array_equal(of_graph.memberships_, of_matrix.memberships_)
    assert list(of_graph.feature_names_in_) == names


def test_graphs_of_networkx_itself_are_taken():
    networkx = pytest.importorskip("networkx")
    graph = networkx.karate_club_graph()
    assert Communities(2, random_state=0).fit(graph).memberships_.shape == (34, 2)


def test_links_of_a_directed_graph_count_at_both_ends_and_loops_at_none():
    directed = np.array([[5, 1, 0], [0, 0, 2], [0, 0, 0]])
    np.testing.assert_array_equal(
        as_adjacency(directed).toarray(), [[0, 1, 0], [1, 0, 2], [0, 2, 0]]
    )
    weighted = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 1.5], [0.0, 1.5, 0.0]])
    np.testing.assert_array_equal(
        as_adjacency(weighted).toarray(), [[0, 2, 0], [2, 0, 6], [0, 6, 0]]
    )


def test_new_nodes_are_placed_by_their_links():
    links, truth = planted(600, 3, degree=50, ratio=30, concentration=0.2, seed=1)
    model = Communities(3, random_state=0).fit(links[:500, :500])
    new = links[500:, :500]
    placed = model.transform(new)
    assert placed.shape == (100, 3)
    old = in_order(np.vstack([model.memberships_, placed]), truth)
    # Nearly all nodes have one community; what 50 links say about a new node they say about an old
    # one.
    right = old.argmax(axis=1) == truth.argmax(axis=1)
    assert right[500:].mean() > right[:500].mean() - 4 * np.sqrt(0.25 / 100)
    np.testing.assert_array_equal(model.predict(new), placed.argmax(axis=1))
    np.testing.assert_array_equal(clone(model).fit_predict(links), clone(model).fit(links).labels_)


def test_a_drawn_graph_has_the_degrees_and_the_communities_of_the_graph():
    links, _ = planted(500, 3, degree=40, ratio=30, concentration=0.2, seed=2)
    model = Communities(3, random_state=0).fit(links)
    drawn = model.sample(random_state=0)
    assert (drawn != drawn.T).nnz == 0
    assert not drawn.diagonal().any()
    # 10,000 links of a Poisson number, less loops (a share of 1/n of them): four deviations are 4
    # %.
    assert drawn.sum() == pytest.approx(links.sum(), rel=0.05)
    again = Communities(3, random_state=0).fit(drawn)
    agree = in_order(again.memberships_, model.memberships_).argmax(axis=1) == model.labels_
    # By chance they agree in no more than the share of the largest community; this is nearer to all
    # than to that.
    chance = np.bincount(model.labels_).max() / 500
    assert agree.mean() > (1 + chance) / 2


def test_likelihood_is_higher_with_the_right_number():
    links, _ = planted(600, 3, degree=50, ratio=30, concentration=0.2, seed=1)
    scores = [
        Communities(k, random_state=0).fit(links[:500, :500]).score(links[500:, :500])
        for k in (1, 3)
    ]
    assert scores[1] > scores[0]


def test_a_model_of_communities_is_read_again_as_it_was_written(tmp_path):
    links, _ = planted(150, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    model = Communities("auto", random_state=0).fit(links)
    model.save(tmp_path / "graph.npz")
    again = Communities.load(tmp_path / "graph.npz")
    np.testing.assert_array_equal(again.memberships_, model.memberships_)
    np.testing.assert_array_equal(again.transform(links), model.transform(links))
    assert again.summary() == model.summary()
    assert again.get_params() == model.get_params()


def test_a_damaged_model_of_communities_is_refused(tmp_path):
    from odeco._util.files import load_arrays, save_arrays

    links, _ = planted(100, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    path = tmp_path / "graph.npz"
    Communities(2, random_state=0).fit(links).save(path)
    header, arrays = load_arrays(path, "communities model")
    for name, value in (
        ("fit.params.prior", np.zeros(2)),
        ("fit.params.memberships", -arrays["fit.params.memberships"]),
    ):
        save_arrays(path, "communities model", header, {**arrays, name: value})
        with pytest.raises(odeco.FileFormatError, match=r"graph\.npz"):
            Communities.load(path)
    save_arrays(path, "communities model", header, {**arrays, "stream.buffer": np.zeros(2)})
    with pytest.raises(odeco.FileFormatError, match=r"graph\.npz"):
        Communities.load(path)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (np.ones((4, 3)), "must have a row and a column for each node. Got shape (4, 3)."),
        (np.zeros((4, 4)), "A graph must have links for communities to be found. It has none."),
        (-np.ones((4, 4)), "weights of links must not be negative. Got -1."),
    ],
)
def test_what_is_no_graph_is_refused_and_the_model_is_as_it_was(graph, text):
    links, _ = planted(100, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    model = Communities(2, random_state=0).fit(links)
    before = model.memberships_
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        model.fit(graph)
    assert text in str(caught.value)
    np.testing.assert_array_equal(model.memberships_, before)
    assert model.n_features_in_ == 100


def test_settings_of_communities_are_checked():
    links, _ = planted(100, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    with pytest.raises(ValueError, match="`n_components` must be an int of at least 1"):
        Communities(0).fit(links)
    with pytest.raises(ValueError, match="`concentration` must be"):
        Communities(2, concentration=-1.0).fit(links)


@pytest.mark.slow
def test_an_interrupt_leaves_communities_as_they_were_or_as_they_will_be():
    links, _ = planted(120, 2, degree=20, ratio=20, concentration=0.3, seed=0)
    other, _ = planted(80, 2, degree=20, ratio=20, concentration=0.3, seed=1)
    begun = Communities(2, concentration=0.3, random_state=0).fit(other)
    before, after = begun.memberships_, clone(begun).fit(links).memberships_
    places = ("models/mmsb/estimator.py", "models/mmsb/spec.py", "models/engine/estimator.py")
    moments = moments_of(lambda: clone(begun).fit(links), places)
    assert len(moments) > 20
    for moment in moments:
        model = copy.deepcopy(begun)
        run_traced(lambda model=model: model.fit(links), moment, places)
        expected = before if model.n_features_in_ == 80 else after
        np.testing.assert_array_equal(model.memberships_, expected)


def test_a_summary_begins_with_a_verdict_and_a_plot_shows_every_node():
    links, _ = planted(300, 3, degree=40, ratio=30, concentration=0.2, seed=2)
    model = Communities(3, random_state=0).fit(links)
    assert model.summary().startswith("3 communities; links within one are ")
    assert " times as frequent as links between two.\n300 nodes, " in model.summary()
    assert Communities(1, random_state=0).fit(links).summary().startswith("One community: ")
    left, right = model.plot().axes[:2]
    assert left.get_xlim() == (-0.5, 299.5)
    assert right.images[0].get_array().shape == (3, 3)


#: Zachary's karate club (1977): the links of its 34 members, as pairs of numbers.
KARATE = """
0-1 0-2 0-3 0-4 0-5 0-6 0-7 0-8 0-10 0-11 0-12 0-13 0-17 0-19 0-21 0-31 1-2 1-3 1-7 1-13 1-17 1-19 1-21 1-30 2-3 2-7
2-8 2-9 2-13 2-27 2-28 2-32 3-7 3-12 3-13 4-6 4-10 5-6 5-10 5-16 6-16 8-30 8-32 8-33 9-33 13-33 14-32 14-33 15-32 15-33
18-32 18-33 19-33 20-32 20-33 22-32 22-33 23-25 23-27 23-29 23-32 23-33 24-25 24-27 24-31 25-31 26-29 26-33 27-33 28-31
28-33 29-32 29-33 30-32 30-33 31-32 31-33 32-33
"""


def test_what_is_said_of_links_is_what_the_graph_has():
    """Mixed nodes take up links between communities in the model, so that its block matrix would
    say too much.
    """
    links, _ = planted(300, 2, degree=30, ratio=30, concentration=0.5, seed=8)
    model = Communities(2, random_state=0).fit(links)
    own = model.memberships_.argmax(axis=1)
    same = own[:, None] == own
    np.fill_diagonal(same, False)
    pairs = ~np.eye(300, dtype=bool)
    dense = links.toarray()
    ratio = dense[same].mean() / dense[pairs & ~same].mean()
    assert f"links within one are {ratio:.1f} times as frequent" in model.summary()
    for community in range(2):
        members = own == community
        inside = dense[members][:, members].sum() / (members.sum() * (members.sum() - 1))
        outside = dense[members][:, ~members].mean()
        text = (
            f"{members.sum()} nodes, {inside:.2g} links between two of them, {outside:.2g} to a "
            "node outside"
        )
        assert text in model.summary()


@pytest.mark.parametrize("order", range(4))
def test_the_karate_club_splits_in_two_in_any_order_of_its_members(order):
    # A single split for the concentration put 32 of 34 members into one community in one order out
    # of eight.
    edges = np.array([pair.split("-") for pair in KARATE.split()], dtype=int)
    members = np.random.default_rng(order).permutation(34)
    links = np.zeros((34, 34))
    links[tuple(members[edges].T)] = 1
    model = Communities("auto", random_state=0).fit(links + links.T)
    assert model.n_components_ == 2
    assert np.bincount(model.labels_).min() >= 15
    assert "2 communities; links within one are" in model.summary()


def test_communities_that_links_do_not_show_are_not_called_clear():
    # Links drawn by chance alone, and nodes that are taken to be mixed: there is nothing to tell
    # apart.
    rng = np.random.default_rng(0)
    links = np.triu(rng.random((15, 15)) < 0.2, 1).astype(float)
    summary = Communities(2, concentration=4.0, random_state=0).fit(links + links.T).summary()
    assert "do not tell apart" in summary
    assert "times as frequent" not in summary


def test_weights_that_cannot_be_counted_are_refused():
    links = np.full((5, 5), 1e30)
    with pytest.raises(ValueError, match=r"must sum to at most 2\*\*53"):
        Communities(2).fit(links)


def test_a_ring_is_refused_in_the_words_of_graphs():
    ring = np.roll(np.eye(20), 1, axis=0)
    with pytest.raises(ValueError, match="three links"):
        Communities("auto").fit(ring + ring.T)


def test_nodes_that_are_named_belong_to_the_community():
    """In a bipartite graph the links of a group all go to the other one."""
    adjacency = np.zeros((14, 14))
    adjacency[:6, 6:] = adjacency[6:, :6] = 1
    model = Communities(2, random_state=0).fit(adjacency)
    lines = model.summary().splitlines()[-2:]
    for line in lines:
        own = int(line.split()[0])
        named = [int(name.removeprefix("x")) for name in line.split("; ")[1].split(", ")]
        assert all(model.labels_[node] == own for node in named), line
