"""Communities are found under differential privacy for edges: from pairs of nodes that were flipped at random.

Every pair of nodes is released once, flipped with the chance q = 1/(1 + e^ε) (`odeco.privacy.holders.graph`). All else
is post-processing, and may use the released graph as often as it likes. With bits b, the numbers (b − q)/(1 − 2q) have
the links as their mean, and the variance v = q (1 − q)/(1 − 2q)².

1. The leading eigenvectors. Noise alone has eigenvalues up to s = 2 √(n v + d), where no node has more than d links:
   twice the root of the largest sum of variances of a row (Bandeira and van Handel 2016). A direction of size t plus
   noise has the eigenvalue t + s²/(4t), whose eigenvector has a squared cosine of 1 − s²/(4t²) with that direction
   (Benaych-Georges and Nadakuditi 2011). It is 1/2 where the eigenvalue is 3 s/(2√2). Those above that count: there are
   no more communities than these, even if more were asked for.
2. k-means of their rows, divided by their lengths: nodes of a community have different numbers of links.
3. A few rounds of moving every node to the community that makes its numbers of links to all communities likeliest.

Noisy products with blocks of vectors have a small bound, but need the budget of several rounds, and found less on all
graphs that were tried.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr
from sklearn.cluster import KMeans

from odeco._util.arguments import check_count, check_number
from odeco._util.threads import one_blas_thread
from odeco._util.types import DataArray, FloatArray, IndexArray
from odeco.models.engine.private import (
    MakeReleaser,
    PrivatePlan,
    Releaser,
    assignment_verdict,
    matched_share,
    plan_fit,
)
from odeco.models.mmsb.blocks import profiles_of
from odeco.privacy.holders.graph import PrivateLinks
from odeco.privacy.ledger_file import PureGuarantee

#: The largest number of nodes: all pairs are in memory.
MAX_NODES = 5000

#: An eigenvector counts if its eigenvalue exceeds this multiple of the largest of noise.
_CLEAR = 3 / (2 * math.sqrt(2))

#: Starts of k-means, and rounds of moving nodes.
_N_STARTS, _N_ROUNDS = 10, 10


def find_private_communities(
    held: PrivateLinks, releaser: Releaser, n_components: int, *, seed: int
) -> dict[str, FloatArray | IndexArray]:
    """Return at most k communities, those that stand clear of noise, as the fields of `CommunityParams`.

    Parameters
    ----------
    held : PrivateLinks
        The holder of the graph.
    releaser : Releaser
        Releases its pairs with noise.
    n_components : int
        Number k of communities.
    seed : int
        Seed of k-means; the noise does not depend on it.
    """
    n = held.n_nodes
    noisy, deviation = releaser.release(held.pairs(), share=1.0)
    flipped = float(ndtr(-0.5 / deviation))
    links = np.zeros((n, n), dtype=np.float32)
    links[np.triu_indices(n, 1)] = ((noisy > 0.5) - flipped) / (1 - 2 * flipped)
    links += links.T
    variance = flipped * (1 - flipped) / (1 - 2 * flipped) ** 2
    with one_blas_thread():
        degrees = _shrunk(links.sum(axis=1, dtype=np.float64), n * variance)
        noise = 2 * math.sqrt(n * variance + float(degrees.max()))
        vectors = _leading(links, noise, min(n_components, n - 1))
        labels = _clusters(vectors, seed)
        for _ in range(_N_ROUNDS):
            labels, shares = _moved(links, labels, variance)
    k, members = shares.shape[1], np.eye(shares.shape[1])[labels]
    sizes, between = members.sum(axis=0), members.T @ (links @ members)
    n_pairs = np.maximum(np.outer(sizes, sizes) - np.diag(sizes), 1.0)
    blocks = np.clip(between / n_pairs, 0.0, 1.0)
    return {
        "profiles": profiles_of(np.maximum(n_pairs * blocks, 1e-3), shares, degrees),
        "prior": (sizes + 1) / (n + k),
        "memberships": shares,
        "blocks": blocks,
        "degrees": degrees,
        "labels": labels,
    }


def _leading(links: DataArray, noise: float, number: int) -> FloatArray:
    """Return the eigenvectors that count, times their eigenvalues; one at least. Those of noise are up to `noise`."""
    n = len(links)
    start = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    values, vectors = np.linalg.eigh(links) if number > n // 2 else eigsh(links, number, which="LM", v0=start)
    order = np.argsort(-np.abs(values), kind="stable")[:number]
    n_clear = int(np.sum(np.abs(values[order]) > _CLEAR * noise))
    order = order[: max(n_clear, 1)]
    return np.asarray(vectors[:, order] * values[order], dtype=np.float64)


def _clusters(vectors: FloatArray, seed: int) -> IndexArray:
    """Return as many clusters of rows as there are columns, by directions; longer rows count for more."""
    lengths = np.linalg.norm(vectors, axis=1)
    directions = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)[:, None]
    k = vectors.shape[1]
    model = KMeans(k, n_init=_N_STARTS if k > 1 else 1, random_state=seed)
    return np.asarray(model.fit(directions, sample_weight=lengths + 1e-300).labels_, dtype=np.int64)


def _moved(links: DataArray, labels: IndexArray, variance: float) -> tuple[IndexArray, FloatArray]:
    """Return the likeliest community of each node, the largest first, and the probability of each for each node.

    The number of links of a node to the nodes of a community is that of all its links, times what a community has on
    average, plus noise of the variance v for each pair.
    """
    n, k = len(labels), int(labels.max()) + 1
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    members = np.eye(k)[np.argsort(order)[labels]]
    sizes = members.sum(axis=0)
    counts = np.asarray(links @ members, dtype=np.float64)
    profile = np.maximum(members.T @ counts, 1e-9)
    profile /= profile.sum(axis=1, keepdims=True)
    degrees = np.maximum(counts.sum(axis=1), 1.0)
    expected = degrees[:, None, None] * profile
    costs = np.sum((counts[:, None, :] - expected) ** 2 / (expected + variance * sizes + 1e-9), axis=2) / 2
    logs = np.log((sizes + 1) / (n + k)) - costs
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(shares.argmax(axis=1)), shares


def _shrunk(degrees: FloatArray, variance: float) -> FloatArray:
    """Return noisy degrees, the nearer to their mean the more of their variance is noise; none below 0."""
    mean, spread = float(degrees.mean()), max(float(degrees.var()), np.finfo(np.float64).tiny)
    return np.maximum(mean + max(1 - variance / spread, 0.0) * (degrees - mean), 0.0)


#: Communities count as found if this share of nodes is assigned to its own.
_FOUND = 0.9


def plan_communities(
    n_components: int,
    *,
    n_nodes: int,
    epsilon: float,
    delta: float = 0.0,
    degree: float = 50.0,
    ratio: float = 10.0,
    seed: int = 0,
) -> PrivatePlan:
    """Say what private communities would be learnt from, and simulate how well they would be found.

    Parameters
    ----------
    n_components, n_nodes : int
        Number of communities, and of nodes.
    epsilon, delta : float
        The guarantee; δ is not used.
    degree : float
        Mean number of links of a node.
    ratio : float
        How much likelier a link within a community is than one between two.
    seed : int
        Of the simulation.

    Notes
    -----
    Simulated are communities of equal size, in which every node has the same number of links on average.

    Examples
    --------
    >>> from odeco.models import plan_communities
    >>> plan_communities(2, n_nodes=400, epsilon=4.0, degree=60.0).found
    True
    """
    n = check_count("n_nodes", n_nodes, 2, MAX_NODES)
    k = check_count("n_components", n_components, 1, n)
    degree, ratio = check_number("degree", degree, 0.0, float(n)), check_number("ratio", ratio, 0.0, math.inf)
    guarantee = PureGuarantee(epsilon, delta)

    def program(simulated: MakeReleaser, rng: np.random.Generator) -> FloatArray:
        labels = np.arange(n) % k
        rates = np.where(labels[:, None] == labels, ratio, 1.0)
        chances = np.minimum(rates * (degree / rates.sum(axis=1).mean()), 1.0)
        held = PrivateLinks(np.triu(rng.random((n, n)) < chances, 1))
        seed_of_starts, seed_of_noise = rng.integers(2**31, size=2).tolist()
        releaser = simulated(np.random.default_rng(seed_of_noise))
        found: Any = find_private_communities(held, releaser, k, seed=seed_of_starts)["labels"]
        return np.array([matched_share(labels, found, k)])

    n_pairs = n * (n - 1) // 2
    what = f"{k} simulated communities, {degree:g} links per node, {ratio:g} times as likely within them"
    return plan_fit(
        program,
        guarantee,
        n_pairs,
        n_pairs,
        unit="edge",
        neighbour_relation="add_remove",
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=_FOUND,
        records=f"pairs of {n:,} nodes",
        verdict=lambda agreements: assignment_verdict(agreements, _FOUND, what, "nodes in their own community"),
    )
