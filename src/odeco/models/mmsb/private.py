"""Communities are found under differential privacy for edges: from pairs of nodes that were flipped
at random.

Every pair of nodes is released once, flipped with the chance q = 1/(1 + e^ε)
(`odeco.privacy.holders.graph`). All else is post-processing, and may use the released graph as
often as it likes. With bits b, the numbers (b − q)/(1 − 2q) have the links as their mean, and the
variance v = q (1 − q)/(1 − 2q)².

1. The leading eigenvectors. Noise alone has eigenvalues up to s = 2 √(n v + d), where no node has
   more than d links: twice the root of the largest sum of variances of a row (Bandeira and van
   Handel 2016). A direction of size t plus noise has the eigenvalue t + s²/(4t), whose eigenvector
   has a squared cosine of 1 − s²/(4t²) with that direction (Benaych-Georges and Nadakuditi 2011).
   The first always counts. If the second stands clear of s, there are communities, and others count
   too, unless they are clearly below s, where noise alone has many: step 3 finds more than
   directions show that noise nearly hides. There are no more communities than these, even if more
   were asked for.
2. k-means of their rows, divided by their lengths: nodes of a community have different numbers of
   links.
3. A few rounds of moving every node to the community that makes its numbers of links to all
   communities likeliest. Nodes count by w = d/(d + n v), for d links: links to nodes of few links
   say little beside the noise of a pair. All communities are equally likely beforehand, or the
   largest would get all nodes that noise hides.
4. The probabilities of communities for a node rest on the same numbers as the communities, so they
   are too sure. How much too sure is seen on a graph that is drawn from what was found, flipped and
   partitioned in the same way: the log-likelihoods are multiplied by the number, at most 1, with
   which probabilities hold there on average.

A direction may stand clear of noise because of a few nodes of many links while most nodes are lost
in it. So the mean of these probabilities is reported: about this share of nodes is in its own
community.

Noisy products with blocks of vectors have a small bound, but need the budget of several rounds, and
found less on all graphs that were tried.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh
from scipy.special import ndtr, softmax
from sklearn.cluster import KMeans

from odeco._util.arguments import check_count, check_number
from odeco._util.threads import one_blas_thread
from odeco._util.types import BoolArray, DataArray, FloatArray, IndexArray
from odeco.models.engine.private import PrivatePlan, Releaser, Simulated, matched_share, plan_fit
from odeco.models.mmsb.blocks import profiles_of
from odeco.privacy.guarantee import PureGuarantee
from odeco.privacy.holders.graph import PrivateLinks

#: The largest number of nodes: all pairs are in memory.
MAX_NODES = 5000

#: The largest eigenvalue of a symmetric matrix of noise is s (1 + T n^(-2/3) / 2), where T follows
#: the law of Tracy and Widom (1996). This T is exceeded with a chance of 1e-4, and a direction is
#: clear if its eigenvalue needs a larger one.
_CLEAR = 4.4

#: If the second is clear, directions count whose eigenvalues exceed this multiple. Chosen among 0,
#: 0.95, 1, 1.03 and 1.06 on ten kinds of planted graphs, of which two have fewer communities than
#: were asked for.
_LIKELY = 0.95

#: Communities count as found if this share of nodes is assigned to its own.
FOUND = 0.9

#: For its community, a node counts as if it had this share of the mean number of links at least:
#: noise may hide all.
_LEAST_LINKS = 0.01

#: Starts of k-means, and rounds of moving nodes.
_N_STARTS = 10
_N_ROUNDS = 10


def find_private_communities(
    held: PrivateLinks, releaser: Releaser, n_components: int, *, seed: int
) -> tuple[dict[str, FloatArray | IndexArray], int]:
    """Return at most k communities as the fields of `CommunityParams`, and how many directions
    stand clear of noise.

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
    links = _unbiased(noisy > 0.5, flipped, n)
    with one_blas_thread():
        labels, evidence, degrees, n_clear = _partition(links, flipped, n_components, seed)
        k = evidence.shape[1]
        members = np.eye(k)[labels]
        sizes = members.sum(axis=0)
        between = members.T @ (links @ members)
        n_pairs = np.maximum(np.outer(sizes, sizes) - np.diag(sizes), 1.0)
        blocks = np.clip(between / n_pairs, 0.0, 1.0)
        shares = softmax(evidence, axis=1)
        if k > 1:
            certainty = _certainty(labels, degrees, between, flipped, seed)
            shares = softmax(certainty * evidence, axis=1)
    fields: dict[str, FloatArray | IndexArray] = {
        "profiles": profiles_of(np.maximum(n_pairs * blocks, 1e-3), shares, degrees),
        "prior": (sizes + 1) / (n + k),
        "memberships": shares,
        "blocks": blocks,
        "degrees": degrees,
        "labels": labels,
    }
    return fields, n_clear


def _unbiased(bits: BoolArray, flipped: float, n: int) -> DataArray:
    """Return the symmetric matrix of flipped pairs whose mean is that of the links."""
    links = np.zeros((n, n), dtype=np.float32)
    links[np.triu_indices(n, 1)] = (bits - flipped) / (1 - 2 * flipped)
    links += links.T
    return links


def _partition(
    links: DataArray, flipped: float, n_components: int, seed: int, *, all_count: bool = False
) -> tuple[IndexArray, FloatArray, FloatArray, int]:
    """Return the community of each node, the largest first, its log-likelihoods, the number of its
    links, and n_clear.

    There are no more communities than directions that count, which are all if `all_count`.
    """
    n = len(links)
    variance = flipped * (1 - flipped) / (1 - 2 * flipped) ** 2
    degrees = _shrunk(links.sum(axis=1, dtype=np.float64), n * variance)
    noise = 2 * math.sqrt(n * variance + float(degrees.max()))
    vectors, n_clear = _leading(links, 0.0 if all_count else noise, min(n_components, n - 1))
    labels = _clusters(vectors, seed)
    k = int(labels.max()) + 1
    expected = np.maximum(degrees, max(_LEAST_LINKS * float(degrees.mean()), 1e-6))
    for _ in range(_N_ROUNDS):
        evidence = _log_likelihoods(links, np.eye(k)[labels], expected, variance)
        labels = evidence.argmax(axis=1)
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    return np.argsort(order)[labels], evidence[:, order], degrees, n_clear


def _certainty(
    labels: IndexArray, degrees: FloatArray, between: FloatArray, flipped: float, seed: int
) -> float:
    """Return what log-likelihoods are to be multiplied by, at most 1, for probabilities that hold
    on average.

    It is what a graph needs that is drawn from the communities found: there the mean probability of
    the community of a node must be the share of nodes that are in their own.
    """
    n = len(labels)
    k = len(between)
    rng = np.random.default_rng(seed)
    totals = np.maximum(np.bincount(labels, degrees, minlength=k), 1e-6)
    rates = (np.maximum(between, 0.0) / np.outer(totals, totals))[np.ix_(labels, labels)]
    rates *= np.outer(degrees, degrees)
    chances = flipped + (1 - 2 * flipped) * np.minimum(rates, 1.0)[np.triu_indices(n, 1)]
    drawn = _unbiased(rng.random(chances.size) < chances, flipped, n)
    found, evidence, _, _ = _partition(drawn, flipped, k, seed, all_count=True)
    share = matched_share(labels, found, k)

    def excess(certainty: float) -> float:
        return float(softmax(certainty * evidence, axis=1).max(axis=1).mean()) - share

    if excess(1.0) <= 0:
        return 1.0
    if excess(0.0) < 0:
        return float(brentq(excess, 0.0, 1.0))
    return 0.0


def _leading(links: DataArray, noise: float, number: int) -> tuple[FloatArray, int]:
    """Return the eigenvectors that count beside this noise, times their eigenvalues, and how many
    stand clear of it.
    """
    n = len(links)
    start = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    if number > n // 2:
        values, vectors = np.linalg.eigh(links)
    else:
        values, vectors = eigsh(links, number, which="LM", v0=start)
    order = np.argsort(-np.abs(values), kind="stable")[:number]
    sizes = np.abs(values[order])
    n_clear = int(np.sum(sizes > noise * (1 + _CLEAR * n ** (-2 / 3) / 2)))
    n_likely = int(np.sum(sizes > _LIKELY * noise))
    order = order[: n_likely if n_clear > 1 else 1]
    return np.asarray(vectors[:, order] * values[order], dtype=np.float64), max(n_clear, 1)


def _clusters(vectors: FloatArray, seed: int) -> IndexArray:
    """Return as many clusters of rows as there are columns, by directions; longer rows count for
    more.
    """
    lengths = np.linalg.norm(vectors, axis=1)
    directions = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)[:, None]
    k = vectors.shape[1]
    model = KMeans(k, n_init=_N_STARTS if k > 1 else 1, random_state=seed)
    return np.asarray(model.fit(directions, sample_weight=lengths + 1e-300).labels_, dtype=np.int64)


def _log_likelihoods(
    links: DataArray, members: FloatArray, degrees: FloatArray, variance: float
) -> FloatArray:
    """Return the log-likelihood of each community for each node, by its links to the nodes of all
    communities.

    Nodes i and j of communities c and h have d_i d_j r_ch links on average, plus noise of the
    variance v. What counts is x_ih = Σ_j w_j L_ij over the nodes of h, with the variance Σ_j w_j²
    (v + d_i d_j r_ch).
    """
    weights = members * (degrees / (degrees + len(degrees) * variance))[:, None]
    counts = np.asarray(links @ weights, dtype=np.float64)
    sizes = np.maximum(degrees @ weights, 1e-30)  # a community may have lost all of its nodes
    rates = np.maximum(weights.T @ counts, 0.0) / np.outer(sizes, sizes)
    expected = degrees[:, None, None] * (rates * sizes)
    variances = variance * np.sum(weights**2, axis=0) + degrees[:, None, None] * (
        rates * (degrees @ weights**2)
    )
    return np.asarray(
        -np.sum((counts[:, None, :] - expected) ** 2 / np.maximum(variances, 1e-9), axis=2) / 2
    )


def _shrunk(degrees: FloatArray, variance: float) -> FloatArray:
    """Return noisy degrees, the nearer to their mean the more of their variance is noise; none
    below 0.
    """
    mean = float(degrees.mean())
    spread = max(float(degrees.var()), np.finfo(np.float64).tiny)
    return np.maximum(mean + max(1 - variance / spread, 0.0) * (degrees - mean), 0.0)


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
    Simulated are communities of equal size, in which every node has the same number of links on
    average.

    Examples
    --------
    >>> from odeco.models import plan_communities
    >>> plan_communities(2, n_nodes=400, epsilon=4.0, degree=60.0).found
    True
    """
    n = check_count("n_nodes", n_nodes, 2, MAX_NODES)
    k = check_count("n_components", n_components, 1, n)
    degree = check_number("degree", degree, 0.0, float(n))
    ratio = check_number("ratio", ratio, 0.0, math.inf)
    guarantee = PureGuarantee(epsilon, delta)

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        labels = np.arange(n) % k
        rates = np.where(labels[:, None] == labels, ratio, 1.0)
        chances = np.minimum(rates * (degree / rates.sum(axis=1).mean()), 1.0)
        held = PrivateLinks(np.triu(rng.random((n, n)) < chances, 1))
        releaser, seed = simulated(rng)
        found: Any = find_private_communities(held, releaser, k, seed=seed)[0]["labels"]
        return np.array([matched_share(labels, found, k)])

    n_pairs = n * (n - 1) // 2
    return plan_fit(
        program,
        guarantee,
        n_pairs,
        n_pairs,
        unit="edge",
        neighbour_relation="add_remove",
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=FOUND,
        records=f"pairs of {n:,} nodes",
        verdict=f"{k} simulated communities, {degree:g} links per node, {ratio:g} times as likely "
        "within them, {expected}: {mean:.0%} of nodes in their own community",
    )
