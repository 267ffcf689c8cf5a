"""Communities beside SPACL, NMF, LDA, Leiden and spectral clustering: memberships, partitions,
hidden links, a stream.

    python benchmarks/graphs.py [--quick] [--data FOLDER] [--part planted blocks partitions hidden
    stream]

planted: graphs of the mixed-membership block model with k = 10 communities, mean degree 50, p/q =
20 and α₀ = 1. The error is the share of memberships in the wrong place: half of the mean L1
distance, after the best permutation.

blocks: the rates of links within and between communities that are found, divided by the true ones:
for these graphs, and for blocks of 500, 300 and 100 nodes of one community each with rates 0.2 and
0.01; the mean over communities.

partitions: normalised mutual information with a known partition: the largest component of the
political blogs (`polblogs.npz` in FOLDER, if it is there), Zachary's karate club (networkx), the
ten nearest neighbours of the images of handwritten digits that scikit-learn ships, and planted
partitions: five unequal blocks, and 42 as unequal as departments.

hidden: graphs without a known partition, the largest component of co-authors (`cond-mat-2005.npz`
in FOLDER) and the characters of Les Misérables (networkx, weights dropped). A tenth of the links is
hidden. Each method's memberships Π give pairs the score πᵢᵀRπⱼ, with R the links between groups
divided by those expected from degrees. The figure is how often a hidden link has a higher score
than a pair of nodes that is not linked, both drawn by degree (AUC).

stream: 10,000,000 contacts along the links of a planted graph, in batches; saved, read again and
gone on with halfway.

Every method gets k, but for Leiden and "auto", in several settings (`graph_peers.py`): the table
shows the best setting in hindsight by the median. Median and worst over seeds; CPU seconds on one
thread of one run, median.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from peers import graph_peers as peers
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csgraph

from odeco._util.types import FloatArray
from odeco.models import Communities

Settings = dict[str, peers.Method]
#: What a graph is judged by: takes memberships, and returns a figure.
Judge = Callable[[FloatArray], float]


def _communities(**settings: Any) -> peers.Method:
    return lambda links, k, seed: (
        Communities(k, random_state=seed, n_jobs=1, **settings).fit(links).memberships_
    )


def _automatic(links: Any, k: int, seed: int) -> FloatArray:  # noqa: ARG001 - it chooses its own number
    return _communities()(links, "auto", seed)  # type: ignore[arg-type]


def _partition(links: Any, k: Any, seed: int) -> FloatArray:
    return peers.one_of_each(Communities(k, random_state=seed, n_jobs=1).fit(links).labels_)


OURS: dict[str, Settings] = {
    "Communities": {"": _communities()},
    'Communities, "auto"': {"": _automatic},
}
SHARES: dict[str, Settings] = {
    "NMF": {
        "KL": peers.nmf("kullback-leibler", "nndsvda"),
        "KL, best of 3": peers.nmf("kullback-leibler", "random", 3),
        "Frobenius": peers.nmf("frobenius", "nndsvda"),
    },
    "LDA": {"prior 1/k": peers.lda(None), "prior 0.05": peers.lda(0.05)},
}
OUR_PARTITIONS: dict[str, Settings] = {
    "Communities": {"": _partition},
    'Communities, "auto"': {"": lambda links, _, seed: _partition(links, "auto", seed)},
}
PURE: dict[str, Settings] = {
    "SPACL": {"pruned": peers.spacl(True), "all nodes": peers.spacl(False)}
}
PARTITIONS: dict[str, Settings] = {
    "Leiden": {f"resolution {value:g}": peers.leiden(value) for value in (0.25, 0.5, 1, 2, 4)},
    "Leiden, as it comes": {"resolution 1": peers.leiden(1)},
    "spectral, regularised": {"": peers.regularised},
    "spectral clustering": {
        each: peers.spectral(each) for each in ("kmeans", "cluster_qr", "discretize")
    },
}


def planted(
    n: int, k: int, seed: int, *, degree: float = 50, ratio: float = 20
) -> tuple[Any, FloatArray]:
    """Return a graph and its memberships; links are drawn by pairs of communities, so that no n x n
    array is made.
    """
    rng = np.random.default_rng([20250, seed])
    memberships = rng.dirichlet(np.full(k, 1 / k), n)
    base = degree / n / (ratio / k + (k - 1) / k)
    mass, shares = memberships.sum(axis=0), np.cumsum(memberships, axis=0)
    ends: list[tuple[Any, Any]] = []
    for a in range(k):
        for b in range(a, k):
            rate = ratio * base / 2 if a == b else base
            number = rng.poisson(mass[a] * mass[b] * rate)
            one, other = (
                np.searchsorted(shares[:, c], rng.random(number) * shares[-1, c]) for c in (a, b)
            )
            ends.append((one, other))
    rows, columns = (np.concatenate(side) for side in zip(*ends, strict=True))
    kept = rows != columns
    links = sparse.coo_array(
        (np.ones(int(kept.sum())), (rows[kept], columns[kept])), shape=(n, n)
    ).tocsr()
    links = sparse.csr_array(links + links.T)
    links.data[:] = 1
    return links, memberships


def error(found: FloatArray, truth: FloatArray) -> float:
    """Return half of the mean L1 distance after the best permutation; communities without a match
    count as wrong.
    """
    wide = np.zeros((len(found), max(found.shape[1], truth.shape[1])))
    wide[:, : found.shape[1]] = found
    rows, columns = linear_sum_assignment(-wide.T @ truth)
    ordered = wide[:, rows[np.argsort(columns)]]
    left = 1 - ordered.sum(axis=1)
    return float((np.abs(ordered - truth).sum(axis=1) + left).mean() / 2)


def agreement(truth: Any) -> Judge:
    from sklearn.metrics import normalized_mutual_info_score

    return lambda memberships: float(
        normalized_mutual_info_score(truth, memberships.argmax(axis=1))
    )


def compare(
    title: str, methods: dict[str, Settings], graphs: list[tuple[Any, Judge]], k: int, *, low: bool
) -> None:
    """Print for each method its best setting: median and worst over graphs, the seed of each being
    its place.
    """
    print(f"\n{title}\n{'':24}{'median':>8}{'worst':>8}{'seconds':>9}{'groups':>8}  setting")
    worst, better = (max, min) if low else (min, max)
    for name, settings in methods.items():
        tables = {}
        for setting, run in settings.items():
            results = []
            for seed, (links, judge) in enumerate(graphs):
                start = time.process_time()
                found = run(links, k, seed)
                seconds = time.process_time() - start
                results.append((judge(found), seconds, len(np.unique(found.argmax(axis=1)))))
            tables[setting] = np.array(results).T
        best = better(tables, key=lambda setting: float(np.median(tables[setting][0])))
        figures, times, groups = tables[best]
        print(
            f"{name:24}{np.median(figures):8.3f}{worst(figures):8.3f}{np.median(times):9.2f}{np.median(groups):8.0f}  "
            f"{best}",
            flush=True,
        )


def compare_memberships(n: int, k: int, n_seeds: int) -> None:
    graphs: list[tuple[Any, Judge]] = []
    for seed in range(n_seeds):
        links, truth = planted(n, k, seed)
        graphs.append((links, lambda found, truth=truth: error(found, truth)))  # type: ignore[misc]
    alike: Settings = {"": lambda links, k, seed: np.full((links.shape[0], k), 1 / k)}  # noqa: ARG005
    title = (
        f"planted, n = {n:,}, k = {k}, {n_seeds} graphs: share of memberships in the wrong place"
    )
    compare(title, {**OURS, **PURE, **SHARES, "all shares equal": alike}, graphs, k, low=True)


def measure_blocks(n: int, k: int, n_seeds: int) -> None:
    """Print the rates within and between communities, divided by the true ones: of each seed."""
    base = 50 / n / (20 / k + (k - 1) / k)
    sizes = (500, 300, 100)
    group = np.repeat(np.arange(3), sizes)
    print("\nrates found, divided by the true ones: within, between")
    for title, rates in (
        (f"planted, n = {n:,}, k = {k}", (20 * base, base)),
        (f"blocks of {sizes}", (0.2, 0.01)),
    ):
        found = []
        for seed in range(n_seeds):
            if title.startswith("planted"):
                links, number = planted(n, k, seed)[0], k
            else:
                chances = np.where(group[:, None] == group, *rates)
                upper = np.triu(np.random.default_rng(seed).random(chances.shape) < chances, 1)
                links, number = sparse.csr_array((upper | upper.T).astype(float)), 3
            blocks = Communities(number, random_state=seed, n_jobs=1).fit(links).block_matrix_
            own = np.eye(number, dtype=bool)
            found.append(
                f"{blocks[own].mean() / rates[0]:.2f}, {blocks[~own].mean() / rates[1]:.2f}"
            )
        print(f"{title:30}{'; '.join(found)}", flush=True)


def _without_loops(links: Any) -> Any:
    simple = sparse.csr_array((links + links.T) > 0).astype(float)
    simple = sparse.csr_array(simple - sparse.diags_array(simple.diagonal()))
    simple.eliminate_zeros()
    return simple


def _stored(path: Path) -> tuple[Any, Any, Any]:
    """Return the largest component of a stored graph, which nodes it has, and the file."""
    stored = np.load(path)
    n, edges = int(stored["n_nodes"]), stored["edges"]
    arcs = sparse.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
    links = _without_loops(arcs)
    parts = csgraph.connected_components(links)[1]
    own = np.flatnonzero(parts == np.bincount(parts).argmax())
    return links[own][:, own], own, stored


def real_graphs(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Return graphs whose partition is known."""
    from sklearn.datasets import load_digits
    from sklearn.neighbors import kneighbors_graph

    graphs: dict[str, tuple[Any, Any]] = {}
    if (folder / "polblogs.npz").exists():
        links, own, stored = _stored(folder / "polblogs.npz")
        graphs["political blogs"] = links, stored["value"][own]
    try:
        import networkx
    except ImportError:
        pass
    else:
        club = networkx.karate_club_graph()
        matrix = sparse.csr_array(networkx.to_scipy_sparse_array(club, dtype=float, weight=None))
        graphs["karate club"] = (
            matrix,
            np.array([club.nodes[node]["club"] == "Officer" for node in club]),
        )
    images, digits = load_digits(return_X_y=True)
    graphs["digits, 10 neighbours"] = _without_loops(kneighbors_graph(images, 10)), digits
    graphs["unequal blocks"] = unequal_blocks(
        [400, 250, 150, 100, 60], degree=15, ratio=10, spread=0.5, seed=70
    )
    sizes = np.maximum(np.random.default_rng(70).lognormal(2.8, 0.9, 42), 4).astype(int)
    graphs["departments"] = unequal_blocks(sizes, degree=32, ratio=60, spread=1.0, seed=70)
    return graphs


def unequal_blocks(
    sizes: Any, *, degree: float, ratio: float, spread: float, seed: int
) -> tuple[Any, Any]:
    """Return a degree-corrected block model without its isolated nodes, and the block of each node.

    Nodes have log-normal propensities with the deviation `spread`, and are linked `ratio` times as
    often within blocks.
    """
    rng = np.random.default_rng(seed)
    block = np.repeat(np.arange(len(sizes)), sizes)
    propensity = np.exp(spread * rng.normal(size=block.size))
    rates = np.where(block[:, None] == block, ratio, 1.0) * np.outer(propensity, propensity)
    rates *= degree * block.size / (rates.sum() - np.trace(rates))
    upper = np.triu(rng.random(rates.shape) < -np.expm1(-rates), 1)
    links = (upper | upper.T).astype(float)
    linked = links.sum(axis=1) > 0
    return sparse.csr_array(links[linked][:, linked]), block[linked]


def compare_partitions(folder: Path, n_seeds: int) -> None:
    for name, (links, truth) in real_graphs(folder).items():
        k = len(np.unique(truth))
        title = (
            f"{name}, {links.shape[0]:,} nodes, {k} groups, {n_seeds} seeds: normalised mutual "
            "information"
        )
        compare(
            title,
            {**OUR_PARTITIONS, **PARTITIONS, **SHARES},
            [(links, agreement(truth))] * n_seeds,
            k,
            low=False,
        )


def hidden_link_judge(links: Any, seed: int) -> tuple[Any, Judge]:
    """Return links without a tenth of them, and how well memberships tell those from pairs that are
    not linked.
    """
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng([40, seed])
    upper = sparse.triu(links, 1).tocoo()
    ends = np.column_stack(upper.coords)
    taken = rng.random(len(ends)) < 0.1
    known = sparse.coo_array(
        (np.ones(int((~taken).sum())), tuple(ends[~taken].T)), shape=links.shape
    ).tocsr()
    known = sparse.csr_array(known + known.T)
    others = rng.choice(ends.ravel(), (4 * int(taken.sum()), 2))
    loose = (np.asarray(links[others[:, 0], others[:, 1]]).ravel() == 0) & (
        others[:, 0] != others[:, 1]
    )
    pairs = np.vstack([ends[taken], others[loose]])
    is_link = np.arange(len(pairs)) < taken.sum()

    def judge(memberships: FloatArray) -> float:
        between = memberships.T @ (known @ memberships)
        through = np.maximum(between.sum(axis=1), 1e-12)
        rates = between * (between.sum() / np.outer(through, through))
        one, other = memberships[pairs[:, 0]], memberships[pairs[:, 1]]
        return float(roc_auc_score(is_link, np.einsum("ij,ij->i", one @ rates, other)))

    return known, judge


def compare_hidden(folder: Path, n_seeds: int, *, large: bool) -> None:
    partitions = {
        name: PARTITIONS[name]
        for name in ("Leiden", "Leiden, as it comes", "spectral, regularised")
    }
    try:
        import networkx
    except ImportError:
        pass
    else:
        novel = networkx.to_scipy_sparse_array(
            networkx.les_miserables_graph(), dtype=float, weight=None
        )
        graphs = [hidden_link_judge(sparse.csr_array(novel), seed) for seed in range(4 * n_seeds)]
        title = (
            f"Les Misérables, {novel.shape[0]} nodes, k = 6, {4 * n_seeds} seeds: AUC of hidden "
            "links"
        )
        compare(title, {**OURS, **partitions, **SHARES}, graphs, 6, low=False)
    if large and (folder / "cond-mat-2005.npz").exists():
        links = _stored(folder / "cond-mat-2005.npz")[0]
        graphs = [hidden_link_judge(links, seed) for seed in range(n_seeds)]
        title = (
            f"co-authors, {links.shape[0]:,} nodes, k = 20, {n_seeds} seeds: AUC of hidden links"
        )
        methods = {**OURS, **partitions, "NMF": {"KL": SHARES["NMF"]["KL"]}}
        compare(title, methods, graphs, 20, low=False)


def measure_stream(n_links: int, n_nodes: int) -> None:
    """Print memory and time of a stream of contacts, and whether one that was saved and read again
    ends the same.
    """
    links, truth = planted(n_nodes, 10, 0)
    upper = sparse.triu(links, 1).tocoo()
    ends = np.column_stack(upper.coords)
    model = Communities(10, concentration=1.0, random_state=0, n_jobs=1)
    resumed = None
    size, start = 100_000, time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number, first in enumerate(range(0, n_links, size)):
        batch = ends[
            np.random.default_rng([7, number]).integers(len(ends), size=min(size, n_links - first))
        ]
        model.partial_fit(batch, n_nodes=n_nodes)
        if resumed is not None:
            resumed.partial_fit(batch, n_nodes=n_nodes)
        if first == n_links // 2:
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder) / "links.npz")
                resumed = Communities.load(Path(folder) / "links.npz")
    seconds, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resumed is not None
    start = time.process_time()
    found = model.memberships_
    learning = time.process_time() - start
    same = bool(np.array_equal(found, resumed.memberships_))
    print(
        "\n"
        f"stream of {n_links:,} contacts, {n_nodes:,} nodes, {len(ends):,} pairs: {seconds:.1f} s "
        f"for two streams, {(after - before) / 1024:.0f} MB more than before; learning "
        f"{learning:.1f} s, error {error(found, truth):.3f}; the same bits after a file: {same}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="communities, beside SPACL, NMF, LDA, Leiden and spectral clustering"
    )
    parser.add_argument("--quick", action="store_true", help="small graphs, and two seeds")
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="a folder with polblogs.npz"
    )
    everything = ("planted", "blocks", "partitions", "hidden", "stream")
    parser.add_argument("--part", nargs="+", choices=everything, default=everything)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    Communities(2, random_state=0).fit(
        np.ones((9, 9))
    )  # compiles what the first fit would wait for
    if "partitions" in chosen.part:
        compare_partitions(chosen.data, 2 if chosen.quick else 5)
    if "hidden" in chosen.part:
        compare_hidden(chosen.data, 2, large=not chosen.quick)
    if "stream" in chosen.part:
        measure_stream(10**6 if chosen.quick else 10**7, 2000 if chosen.quick else 10_000)
    if "blocks" in chosen.part:
        measure_blocks(2000 if chosen.quick else 10_000, 10, 2 if chosen.quick else 3)
    if "planted" in chosen.part:
        compare_memberships(2000 if chosen.quick else 10_000, 10, 2 if chosen.quick else 3)


if __name__ == "__main__":
    main()
