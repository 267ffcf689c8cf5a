"""Communities from batches of links: no matter how links are cut, ordered, saved, killed or
interrupted.
"""

import numpy as np
import pytest
from interrupts import moments_of, run_traced
from scipy import sparse

import odeco
from odeco._util.files import load_arrays, save_arrays
from odeco.models import Communities
from odeco.models.mmsb.spec import CommunitySpec


def two_groups(seed=0, n_nodes=80):
    """Return a graph of two groups as CSR, and its edges, each once and in any order."""
    rng = np.random.default_rng(seed)
    group = np.arange(n_nodes) % 2
    chances = np.where(group[:, None] == group, 0.5, 0.05)
    upper = np.triu(rng.random((n_nodes, n_nodes)) < chances, 1)
    edges = np.argwhere(upper)
    return sparse.csr_array((upper | upper.T).astype(np.float64)), rng.permutation(edges)


def started(**settings):
    return Communities(2, concentration=0.1, random_state=0, **settings)


def learnt(model):
    return [model.memberships_, model.block_matrix_, model.profiles_, model.prior_]


def assert_same(first, second):
    for one, other in zip(learnt(first), learnt(second), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(CommunitySpec, "first_block", 64)
    monkeypatch.setattr(CommunitySpec, "next_block", 64)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("cuts", [[], [1, 2, 300], list(range(7, 500, 7))])
def test_edges_in_batches_are_the_graph_that_fit_learns_from(cuts):
    links, edges = two_groups()
    model = started()
    for batch in np.split(edges, cuts):
        model.partial_fit(batch, n_nodes=80)
    assert_same(model, started().fit(links))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("as_given", [lambda rows: rows, lambda rows: rows.toarray()])
def test_rows_in_batches_are_the_graph_that_fit_learns_from(as_given):
    links, _ = two_groups()
    for size in (80, 33, 1):
        model = started()
        for first in range(0, 80, size):
            model.partial_fit(as_given(links[first : first + size]))
        assert_same(model, started().fit(links))


@pytest.mark.usefixtures("small_blocks")
def test_links_of_the_same_pair_add_up_in_whatever_order_they_come():
    links, edges = two_groups()
    weights = np.random.default_rng(1).integers(1, 4, len(edges))
    weighted = np.column_stack([edges, weights])
    in_pieces = np.random.default_rng(2).permutation(np.repeat(edges[:, [1, 0]], weights, axis=0))
    once = started().partial_fit(weighted, n_nodes=80)
    often = started()
    for batch in np.array_split(in_pieces, 5):
        often.partial_fit(batch, n_nodes=80)
    assert_same(once, often)
    dense = np.zeros((80, 80))
    dense[edges[:, 0], edges[:, 1]] = weights
    assert_same(once, started().fit(dense + dense.T))
    whole_graphs = started().partial_fit(links).partial_fit(links)
    assert_same(whole_graphs, started().fit(2 * links))


@pytest.mark.usefixtures("small_blocks")
def test_weights_that_are_not_whole_do_not_depend_on_where_batches_end():
    _, edges = two_groups()
    weights = np.random.default_rng(1).uniform(0.5, 1.5, len(edges))
    weighted = np.tile(np.column_stack([edges, weights]), (3, 1))
    models = [started(), started()]
    for model, n_batches in zip(models, (1, 11), strict=True):
        for batch in np.array_split(weighted, n_batches):
            model.partial_fit(batch, n_nodes=80)
    assert_same(*models)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_before", [1, 32, 300])
def test_a_stream_of_links_goes_on_from_a_file_to_the_last_bit(n_before, tmp_path):
    _, edges = two_groups()
    whole = started().partial_fit(edges, n_nodes=80)
    started().partial_fit(edges[:n_before], n_nodes=80).save(tmp_path / "links.npz")
    model = Communities.load(tmp_path / "links.npz").partial_fit(edges[n_before:], n_nodes=80)
    assert_same(model, whole)
    model.save(tmp_path / "links.npz")
    assert_same(Communities.load(tmp_path / "links.npz"), whole)


@pytest.mark.usefixtures("small_blocks")
def test_rows_go_on_from_a_file_with_the_next_node(tmp_path):
    links, _ = two_groups()
    started().partial_fit(links[:33]).save(tmp_path / "links.npz")
    assert_same(
        Communities.load(tmp_path / "links.npz").partial_fit(links[33:]), started().fit(links)
    )


@pytest.mark.usefixtures("small_blocks")
def test_what_is_kept_grows_with_pairs_and_not_with_links():
    links, edges = two_groups()
    model = started()
    for _ in range(10):
        model.partial_fit(edges, n_nodes=80)
        assert len(model._learnt.stream.pairs) <= links.nnz
        assert len(model._learnt.stream.buffer) < 64
    assert model._learnt.stream.n_seen == 20 * len(edges)


def test_too_few_links_are_said_when_communities_are_wanted():
    model = started().partial_fit(np.zeros((0, 2), dtype=int), n_nodes=5)
    with pytest.raises(ValueError, match="A graph must have links"):
        _ = model.memberships_
    model.partial_fit(np.array([[i, j] for i in range(5) for j in range(i)]), n_nodes=5)
    assert model.memberships_.shape == (5, 2)


@pytest.mark.parametrize(
    ("batch", "n_nodes", "text"),
    [
        (
            np.zeros((3, 4)),
            80,
            "Edges must be an array of two nodes each, or two nodes and a weight. Got shape (3, 4)",
        ),
        (np.array([[0, 80]]), 80, "Nodes of edges must be whole numbers from 0 to 79"),
        (np.array([[0, 1.5]]), 80, "Nodes of edges must be whole numbers from 0 to 79"),
        (np.array([[0, 1, -1.0]]), 80, "weights of links must not be negative. Got -1."),
        (
            np.array([[0, 1]]),
            90,
            "`n_nodes` must be the same for all batches. Got 90, and 80 before.",
        ),
        (np.ones((2, 3)), None, "X has 3 features, but Communities is expecting 80 features"),
        (
            np.ones((81, 80)),
            None,
            "A batch must not have more rows than there are nodes. Got shape (81, 80).",
        ),
        (-np.ones((1, 80)), None, "weights of links must not be negative. Got -1."),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_the_stream_is_as_it_was(batch, n_nodes, text):
    links, edges = two_groups()
    model = started().partial_fit(edges[:200], n_nodes=80)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        model.partial_fit(batch, n_nodes=n_nodes)
    assert text in str(caught.value)
    assert_same(model.partial_fit(edges[200:], n_nodes=80), started().fit(links))


def test_fit_ends_a_stream_and_partial_fit_begins_another():
    links, edges = two_groups()
    other, _ = two_groups(1, 60)
    model = started().partial_fit(edges, n_nodes=80).fit(other)
    assert model.n_features_in_ == 60
    assert_same(model, started().fit(other))
    assert_same(model.partial_fit(edges, n_nodes=80), started().fit(links))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("buffer", np.zeros((2, 2)), "two nodes and a weight each"),
        ("buffer", np.full((2, 3), 0.5), "its nodes must be whole numbers"),
        ("buffer", np.full((2, 3), 80.0), "its links must be between its nodes"),
        ("buffer", np.zeros((64, 3)), "fewer links than a block"),
        ("next_node", np.array(80), "its links must be between its nodes"),
        ("pairs", lambda pairs: pairs[::-1].copy(), "its pairs must be in order"),
        ("pairs", lambda pairs: pairs + 80 * 80, "its pairs must be of its nodes"),
        ("context.n_nodes", np.array(81), "its nodes must be its features"),
        ("n_seen", np.array(1), "its links must have been counted"),
        ("weights", lambda weights: -weights, "must hold finite numbers"),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_a_file_of_links_that_contradicts_itself_is_refused(name, value, text, tmp_path):
    path = tmp_path / "links.npz"
    started().partial_fit(two_groups()[1], n_nodes=80).save(path)
    header, arrays = load_arrays(path, "communities model")
    changed = value(arrays[f"stream.{name}"]) if callable(value) else value
    save_arrays(path, "communities model", header, {**arrays, f"stream.{name}": changed})
    with pytest.raises(odeco.FileFormatError, match=text):
        Communities.load(path)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_an_interrupt_at_any_line_leaves_a_stream_of_links_as_it_was():
    _, edges = two_groups(n_nodes=30)
    places = (
        "models/mmsb/estimator.py",
        "models/mmsb/graph.py",
        "models/engine/stream.py",
        "models/engine/estimator.py",
    )
    begun = started().partial_fit(edges[:40], n_nodes=30)

    def push(model):
        return lambda: model.partial_fit(edges[40:80], n_nodes=30)

    def state(model):
        return {
            name: array.tolist() for name, array in model._learnt.stream.to_arrays("stream").items()
        }

    after = Communities(2).partial_fit(edges[:80], n_nodes=30)._learnt.stream.links().toarray()
    moments = moments_of(push(copy_of(begun)), places)
    assert len(moments) > 20
    for moment in moments:
        model = copy_of(begun)
        run_traced(push(model), moment, places)
        assert model._learnt.stream.n_seen in (80, 160), moment
        if model._learnt.stream.n_seen == 80:
            assert state(model) == state(begun)
        else:
            np.testing.assert_array_equal(model._learnt.stream.links().toarray(), after)


def copy_of(model):
    again = Communities(**model.get_params())
    again.__dict__.update(model.__dict__)
    return again
