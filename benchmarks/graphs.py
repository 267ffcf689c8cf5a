"""Communities: memberships beside SPACL, NMF and LDA; partitions beside Leiden and spectral clustering.

    python benchmarks/graphs.py [--quick] [--data FOLDER]

Planted graphs of the mixed-membership block model with k = 10 communities, mean degree 50, p/q = 20 and α₀ = 1. The
error is the share of memberships in the wrong place: half of the mean L1 distance, after the best permutation. Median
and worst over seeds; CPU seconds on one thread, median. SPACL (Mao, Sarkar, Chakrabarti 2021) is written here; NMF is
scikit-learn's with the Kullback-Leibler loss, which is the likelihood of a Poisson block model, and LDA is its
`LatentDirichletAllocation`, both with the adjacency matrix for counts.

Partitions are judged by their normalised mutual information with the known one: the largest component of the political
blogs (`polblogs.npz` in FOLDER, if it is there) and Zachary's karate club (from networkx). Spectral clustering is that
of scikit-learn, and the one with regularised degrees that is written here.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

from odeco._types import FloatArray
from odeco.models import Communities

Memberships = Callable[[Any, int, int], FloatArray]


def planted(n: int, k: int, seed: int, *, degree: float = 50, ratio: float = 20) -> tuple[Any, FloatArray]:
    """Return a graph and its memberships; links are drawn by pairs of communities, so that no n x n array is made."""
    rng = np.random.default_rng([20250, seed])
    memberships = rng.dirichlet(np.full(k, 1 / k), n)
    base = degree / n / (ratio / k + (k - 1) / k)
    mass, shares = memberships.sum(axis=0), np.cumsum(memberships, axis=0)
    ends: list[tuple[Any, Any]] = []
    for a in range(k):
        for b in range(a, k):
            rate = ratio * base / 2 if a == b else base
            number = rng.poisson(mass[a] * mass[b] * rate)
            one, other = (np.searchsorted(shares[:, c], rng.random(number) * shares[-1, c]) for c in (a, b))
            ends.append((one, other))
    rows, columns = (np.concatenate(side) for side in zip(*ends, strict=True))
    kept = rows != columns
    links = sparse.coo_array((np.ones(int(kept.sum())), (rows[kept], columns[kept])), shape=(n, n)).tocsr()
    links = sparse.csr_array(links + links.T)
    links.data[:] = 1
    return links, memberships


def error(found: FloatArray, truth: FloatArray) -> float:
    """Return half of the mean L1 distance after the best permutation."""
    rows, columns = linear_sum_assignment(-found.T @ truth)
    ordered = found[:, rows[np.argsort(columns)]]
    return float(np.abs(ordered - truth).sum(axis=1).mean() / 2)


def _shares(matrix: FloatArray) -> FloatArray:
    positive = np.maximum(matrix, 0)
    shares: FloatArray = positive / np.maximum(positive.sum(axis=1, keepdims=True), 1e-12)
    return shares


def _tensor(links: Any, k: int, seed: int) -> FloatArray:
    return Communities(k, random_state=seed, n_jobs=1).fit(links).memberships_


def _leading(links: Any, k: int) -> FloatArray:
    values, vectors = sparse_linalg.eigsh(links.astype(float), k, which="LA", v0=np.ones(links.shape[0]))
    ordered: FloatArray = vectors[:, np.argsort(-values)]
    return ordered


def _spacl(links: Any, k: int, seed: int) -> FloatArray:  # noqa: ARG001 - it draws nothing
    """Prune far eigenvector rows with few neighbours, take pure nodes by successive projection, and solve."""
    from sklearn.neighbors import NearestNeighbors

    vectors = _leading(links, k)
    norms = np.linalg.norm(vectors, axis=1)
    far = np.flatnonzero(norms > np.quantile(norms, 0.95))
    near = NearestNeighbors(n_neighbors=10).fit(vectors[far]).kneighbors(vectors[far])[0].mean(axis=1)
    candidates = np.setdiff1d(np.arange(len(vectors)), far[near > np.quantile(near, 0.75)])
    left, pure = vectors[candidates].copy(), []
    for _ in range(k):
        chosen = int(np.argmax(np.sum(left**2, axis=1)))
        pure.append(candidates[chosen])
        direction = left[chosen] / np.linalg.norm(left[chosen])
        left -= np.outer(left @ direction, direction)
    return _shares(vectors @ np.linalg.inv(vectors[pure]))


def _nmf(links: Any, k: int, seed: int) -> FloatArray:
    from sklearn.decomposition import NMF

    model = NMF(k, init="nndsvda", solver="mu", beta_loss="kullback-leibler", max_iter=200, random_state=seed)
    weights = model.fit_transform(links)
    return _shares(weights * model.components_.sum(axis=1))


def _lda(links: Any, k: int, seed: int) -> FloatArray:
    from sklearn.decomposition import LatentDirichletAllocation

    shares: FloatArray = LatentDirichletAllocation(k, random_state=seed, max_iter=10).fit_transform(links)
    return shares


METHODS: dict[str, Memberships] = {"Communities": _tensor, "SPACL": _spacl, "NMF": _nmf, "LDA": _lda}


def _partition_of(method: Memberships) -> Callable[[Any, int, int], Any]:
    return lambda links, k, seed: method(links, k, seed).argmax(axis=1)


def _leiden(links: Any, k: int, seed: int) -> Any:  # noqa: ARG001 - it chooses its own number
    import igraph
    import leidenalg

    upper = sparse.triu(links).tocoo()
    graph = igraph.Graph(links.shape[0], list(zip(*(each.tolist() for each in upper.coords), strict=True)))
    return leidenalg.find_partition(graph, leidenalg.ModularityVertexPartition, seed=seed).membership


def _regularised(links: Any, k: int, seed: int) -> Any:
    """Cluster the normalised rows of eigenvectors, with the mean degree added to degrees (Qin and Rohe 2013)."""
    from sklearn.cluster import KMeans

    degrees = np.asarray(links.sum(axis=1))
    scale = sparse.diags_array(1 / np.sqrt(degrees + degrees.mean()))
    vectors = _leading(sparse.csr_array(scale @ links @ scale), k)
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return KMeans(k, n_init=10, random_state=seed).fit_predict(rows)


def _spectral(links: Any, k: int, seed: int) -> Any:
    from sklearn.cluster import SpectralClustering

    matrix = sparse.csr_matrix(links)
    return SpectralClustering(k, affinity="precomputed", random_state=seed).fit_predict(matrix)


PARTITIONS: dict[str, Callable[[Any, int, int], Any]] = {
    "Communities": _partition_of(_tensor),
    "Leiden": _leiden,
    "spectral, regularised": _regularised,
    "spectral clustering": _spectral,
    "NMF": _partition_of(_nmf),
}


def real_graphs(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Return graphs whose partition is known."""
    graphs: dict[str, tuple[Any, Any]] = {}
    if (folder / "polblogs.npz").exists():
        stored = np.load(folder / "polblogs.npz")
        n, edges = int(stored["n_nodes"]), stored["edges"]
        arcs = sparse.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
        links = sparse.csr_array(((arcs + arcs.T) > 0).astype(float))
        links = sparse.csr_array(links - sparse.diags_array(links.diagonal()))
        links.eliminate_zeros()
        parts = csgraph.connected_components(links)[1]
        own = np.flatnonzero(parts == np.bincount(parts).argmax())
        graphs["political blogs"] = links[own][:, own], stored["value"][own]
    try:
        import networkx
    except ImportError:
        return graphs
    club = networkx.karate_club_graph()
    matrix = sparse.csr_array(networkx.to_scipy_sparse_array(club, dtype=float, weight=None))
    graphs["karate club"] = matrix, np.array([club.nodes[node]["club"] == "Officer" for node in club])
    return graphs


def compare_partitions(folder: Path, n_seeds: int) -> None:
    """Print how well partitions agree with known ones."""
    from sklearn.metrics import normalized_mutual_info_score

    for name, (links, truth) in real_graphs(folder).items():
        k, chosen = len(np.unique(truth)), Communities("auto", random_state=0).fit(links).n_components_
        print(f"\n{name}, {links.shape[0]:,} nodes, {k} groups, {n_seeds} seeds ('auto' finds {chosen})")
        print(f"{'':22}{'median':>8}{'worst':>8}{'seconds':>9}{'groups':>8}")
        for method, run in PARTITIONS.items():
            results = []
            for seed in range(n_seeds):
                start = time.process_time()
                labels = run(links, k, seed)
                seconds = time.process_time() - start
                results.append((normalized_mutual_info_score(truth, labels), seconds, len(np.unique(labels))))
            agreement, seconds_, groups = np.array(results).T
            print(
                f"{method:22}{np.median(agreement):8.2f}{agreement.min():8.2f}{np.median(seconds_):9.2f}"
                f"{np.median(groups):8.0f}",
                flush=True,
            )


def compare_memberships(n: int, k: int, n_seeds: int) -> None:
    """Print the errors of memberships on planted graphs."""
    print(f"\nplanted, n = {n:,}, k = {k}, {n_seeds} seeds\n{'':22}{'median':>8}{'worst':>8}{'seconds':>9}")
    graphs = [planted(n, k, seed) for seed in range(n_seeds)]
    for name, method in METHODS.items():
        results = []
        for seed, (links, truth) in enumerate(graphs):
            start = time.process_time()
            found = method(links, k, seed)
            results.append((error(found, truth), time.process_time() - start))
        errors, seconds = np.array(results).T
        print(f"{name:22}{np.median(errors):8.3f}{errors.max():8.3f}{np.median(seconds):9.2f}", flush=True)
    alike = [error(np.full_like(truth, 1 / k), truth) for _, truth in graphs]
    print(f"{'all shares equal':22}{np.median(alike):8.3f}{np.max(alike):8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="communities, beside SPACL, NMF, LDA, Leiden and spectral clustering")
    parser.add_argument("--quick", action="store_true", help="graphs of 2,000 nodes, and two seeds")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="a folder with polblogs.npz")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    Communities(2, random_state=0).fit(np.ones((9, 9)))  # compiles what the first fit would wait for
    compare_partitions(chosen.data, 2 if chosen.quick else 5)
    compare_memberships(2000 if chosen.quick else 10_000, 10, 2 if chosen.quick else 3)


if __name__ == "__main__":
    main()
