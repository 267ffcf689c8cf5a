"""What `graphs.py` compares communities with: each peer in several settings, from several starts.

A method is a function of links, a number of groups and a seed. Of several starts of one setting the
one is taken that the method itself likes best. Settings are compared by the caller, who takes the
best in hindsight: no peer loses by a choice that was made for it here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.types import FloatArray

#: Links, number of groups, seed; returns memberships, n x k.
Method = Callable[[Any, int, int], FloatArray]


def shares_of(matrix: FloatArray) -> FloatArray:
    positive = np.maximum(matrix, 0)
    total = positive.sum(axis=1, keepdims=True)
    shares: FloatArray = np.where(
        total > 0, positive / np.maximum(total, 1e-12), 1 / matrix.shape[1]
    )
    return shares


def one_of_each(labels: Any) -> FloatArray:
    """Return memberships of nodes that have one group each."""
    places = np.unique(labels, return_inverse=True)[1]
    memberships: FloatArray = np.eye(places.max() + 1)[places]
    return memberships


def leading(links: Any, k: int) -> FloatArray:
    values, vectors = sparse_linalg.eigsh(
        links.astype(float), k, which="LA", v0=np.ones(links.shape[0])
    )
    ordered: FloatArray = vectors[:, np.argsort(-values)]
    return ordered


def spacl(prune: bool) -> Method:
    """Return the method of Mao, Sarkar and Chakrabarti (2021): pure nodes by successive projection
    of eigenvectors.
    """
    from sklearn.neighbors import NearestNeighbors

    def run(links: Any, k: int, seed: int) -> FloatArray:  # noqa: ARG001 - it draws nothing
        vectors = leading(links, k)
        candidates = np.arange(len(vectors))
        if prune:
            norms = np.linalg.norm(vectors, axis=1)
            far = np.flatnonzero(norms > np.quantile(norms, 0.95))
            near = (
                NearestNeighbors(n_neighbors=10)
                .fit(vectors[far])
                .kneighbors(vectors[far])[0]
                .mean(axis=1)
            )
            candidates = np.setdiff1d(candidates, far[near > np.quantile(near, 0.75)])
        left, pure = vectors[candidates].copy(), []
        for _ in range(k):
            chosen = int(np.argmax(np.sum(left**2, axis=1)))
            pure.append(candidates[chosen])
            direction = left[chosen] / np.linalg.norm(left[chosen])
            left -= np.outer(left @ direction, direction)
        return shares_of(vectors @ np.linalg.inv(vectors[pure]))

    return run


def nmf(loss: str, start: str, n_starts: int = 1) -> Method:
    """Return scikit-learn's NMF; with the Kullback-Leibler loss it is the likelihood of a Poisson
    block model.
    """
    from sklearn.decomposition import NMF

    def run(links: Any, k: int, seed: int) -> FloatArray:
        best, least = None, np.inf
        for number in range(n_starts):
            solver = "mu" if loss == "kullback-leibler" else "cd"
            model = NMF(
                k,
                init=start,
                solver=solver,
                beta_loss=loss,
                max_iter=200,
                random_state=97 * number + seed,
            )
            weights = model.fit_transform(links)
            if model.reconstruction_err_ < least:
                best, least = (
                    shares_of(weights * model.components_.sum(axis=1)),
                    model.reconstruction_err_,
                )
        assert best is not None
        return best

    return run


def lda(prior: float | None) -> Method:
    """Return scikit-learn's LDA with the adjacency matrix for counts."""
    from sklearn.decomposition import LatentDirichletAllocation

    def run(links: Any, k: int, seed: int) -> FloatArray:
        model = LatentDirichletAllocation(k, doc_topic_prior=prior, random_state=seed, max_iter=10)
        shares: FloatArray = model.fit_transform(links)
        return shares

    return run


def leiden(resolution: float) -> Method:
    """Return Leiden's modularity at a resolution; it chooses the number of groups itself."""
    import igraph
    import leidenalg

    def run(links: Any, k: int, seed: int) -> FloatArray:  # noqa: ARG001 - it chooses its own number
        upper = sparse.triu(links).tocoo()
        graph = igraph.Graph(
            links.shape[0], list(zip(*(each.tolist() for each in upper.coords), strict=True))
        )
        kind = leidenalg.RBConfigurationVertexPartition
        found = leidenalg.find_partition(
            graph, kind, resolution_parameter=resolution, seed=seed, n_iterations=-1
        )
        return one_of_each(found.membership)

    return run


def regularised(links: Any, k: int, seed: int) -> FloatArray:
    """Cluster the normalised rows of eigenvectors, with the mean degree added to degrees (Qin and
    Rohe 2013).
    """
    from sklearn.cluster import KMeans

    degrees = np.asarray(links.sum(axis=1))
    scale = sparse.diags_array(1 / np.sqrt(degrees + degrees.mean()))
    vectors = leading(sparse.csr_array(scale @ links @ scale), k)
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return one_of_each(KMeans(k, n_init=10, random_state=seed).fit_predict(rows))


def spectral(assign: str) -> Method:
    """Return scikit-learn's spectral clustering."""
    from sklearn.cluster import SpectralClustering

    def run(links: Any, k: int, seed: int) -> FloatArray:
        model = SpectralClustering(
            k, affinity="precomputed", assign_labels=assign, random_state=seed
        )
        return one_of_each(model.fit_predict(sparse.csr_matrix(links)))

    return run
