"""The estimator of communities of a graph."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import as_random_state, check_count, check_number
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.agreement import Records
from odeco.models.engine.fit import fitted
from odeco.models.engine.parameters import N_JOBS, choice, count, n_components, or_auto, param
from odeco.models.engine.private_estimator import PrivateEstimator
from odeco.models.lda.inference import log_likelihood
from odeco.models.mmsb.graph import (
    GraphContext,
    as_adjacency,
    as_edges,
    as_links,
    as_sparse,
    check_weights,
    draw_links,
    named_graph,
)
from odeco.models.mmsb.private import MAX_NODES
from odeco.models.mmsb.spec import CommunitySpec
from odeco.privacy.holders.graph import PrivateLinks
from odeco.privacy.holders.protocol import NeighbourRelation


@dataclass(eq=False, repr=False)
class Communities(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Overlapping communities of a graph: the mixed-membership block model, from counts of
    three-stars.

    Every node belongs to several communities, in shares that sum to one. The counts of three-stars
    (a node linked to three others) are a symmetric tensor whose components are the communities. It
    is decomposed in a few directions and never formed. Neither a start nor a sampler is needed.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of communities. ``"auto"`` counts the groups, at most 100, that links distinguish
        from chance: from random graphs with the same degrees and communities. Of the numbers up to
        this one, it selects the largest whose partition is about as good as the best; others are
        parts of communities. The summary states both.
    concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters with which the moments are corrected: small if nodes
        have one community each. ``"auto"`` takes the value with which nine tenths of the links best
        predict the others.
    n_sweeps : int
        Number of Gibbs sweeps over the links after that. They help if links do not follow the model
        closely.
    max_inference_iter : int
        The largest number of iterations in which the memberships of a node are found.
    epsilon : float, optional
        Communities are found under ε-differential privacy for edges. See *Private communities*.
    neighbour_relation : {"add_remove"}
        One edge is added or removed.
    ledger : path, optional
        For private communities: the file of the budget of all models of this graph together.
    random_state : int, RandomState instance or None
        Draws the first basis, the starts, the held-out links, and what `sample` draws.
    n_jobs : int or None
        Number of threads; the result does not depend on it.

    Attributes
    ----------
    memberships_ : array, n x k
        The shares of each node; rows sum to one. It is the share of the node's links that go
        through a community.
    labels_ : array
        One community for each node: the likeliest partition that was found (degree-corrected block
        model). It starts from the largest shares and from spectral clustering, and nodes are moved
        as long as that raises the likelihood.
    block_matrix_ : array, k x k
        Expected number of links between a node that belongs to one community only, and one that
        belongs to another, both with as many links as their communities have on average. No entry
        exceeds the largest weight of a link, and with `memberships_` it implies as many links as
        there are.
    profiles_ : array, k x n
        For each community the distribution of its links over nodes.
    prior_ : array
        Dirichlet parameters of memberships.
    n_components_ : int
        Number of communities, the largest first.
    n_features_in_, feature_names_in_
        Number of nodes, and their names if a networkx graph or a table has some.
    n_samples_seen_ : int
        Number of entries of the adjacency matrix seen; an edge has two.

    Notes
    -----
    A graph is an adjacency matrix, dense or sparse, or a networkx graph. Weights are numbers of
    links; those that are not whole are scaled and rounded. Loops are dropped. A **directed** graph
    is treated as undirected, with A + Aᵀ: the direction of a link is not used. Nodes with fewer
    than three links say nothing about communities, but get memberships like all others.

    Nodes of one community may have very different numbers of links: a node's degree says nothing
    about its memberships.

    `partial_fit` stores the links, each pair of nodes once: memory grows with the number of linked
    pairs, and not with the number of links that arrive. Three-star counts do not add up over
    batches.

    `labels_` is a partition of this graph; `predict` takes each row alone, and returns its largest
    share.

    **Private communities.** With `epsilon`, every pair of nodes is flipped with the chance 1/(1 +
    e^ε), linked or not, and nothing else is learnt from (`odeco.privacy.holders.graph` has the
    proof; δ is 0, and `delta` is left out). Neighbours are two graphs on the same nodes, which are
    public, that differ in one edge. Weights and directions are dropped; there are at most 5,000
    nodes. `memberships_` are then the probabilities of the one community of a node, degrees are
    noisy. There is one community unless the second direction of the graph stands clear of noise,
    and none for directions that are clearly below it. About as large a share of nodes is in its own
    community as the largest memberships are on average; `summary` states it, and `converged_` is
    true if it is 90 % and all directions are clear. `labels_` are for the nodes of the private
    graph, and may be published. In a ledger, ε = 1 counts as μ = 1.23: ledgers add up Gaussian
    noise. A node with all its edges is not protected: one node can change n − 1 pairs, and noise
    that hides as many hides the graph. `groups`, `partial_fit` and `score` are refused.
    `plan_communities` says beforehand what can be expected.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, *A tensor approach to learning mixed membership community models*,
    2014, arXiv:1302.2684. Huang, Niranjan, Hakeem, Anandkumar, *Online tensor methods for learning
    latent variable models*, 2015, arXiv:1309.0787. Karrer, Newman, *Stochastic blockmodels and
    community structure in networks*, 2011, arXiv:1008.3926. Qin, Rohe, *Regularized spectral
    clustering under the degree-corrected stochastic blockmodel*, 2013, arXiv:1309.4111.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.models import Communities
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1], 60)
    >>> chance = np.where(group[:, None] == group, 0.4, 0.02)
    >>> links = np.triu(rng.random((120, 120)) < chance, 1).astype(int)
    >>> model = Communities(2, random_state=0).fit(links + links.T)
    >>> share = np.mean(model.labels_ == group)
    >>> bool(max(share, 1 - share) > 0.95)
    True
    """

    n_components: int | Literal["auto"] = n_components(2)
    concentration: float | Literal["auto"] = param(
        "auto", or_auto(lambda name, value: check_number(name, value, 0.0, 1e100))
    )
    n_sweeps: int = param(0, count(0, 10**9), "The number of Gibbs sweeps over the links.")
    max_inference_iter: int = param(50, count(1, 10**9))
    neighbour_relation: NeighbourRelation = param("add_remove", choice("add_remove"))
    n_jobs: int | None = param(None, N_JOBS)

    _SPEC: ClassVar = CommunitySpec
    _KIND: ClassVar = "communities model"

    memberships_ = fitted("params.memberships", "The shares of each node, n x k.")
    labels_ = fitted(
        "params.labels", "One community for each node: the likeliest partition that was found."
    )
    block_matrix_ = fitted(
        "params.blocks", "Expected number of links between nodes of one community each, k x k."
    )
    profiles_ = fitted(
        "params.profiles", "The distribution of the links of each community over nodes, k x n."
    )
    prior_ = fitted("params.prior", "Dirichlet parameters of memberships.")
    n_components_ = fitted(lambda fit: len(fit.params.prior), "Number of communities.")

    def fit(self, X: Any, y: Any = None) -> Self:  # type: ignore[override]  # noqa: ARG002 - a node has no weight
        """Learn communities.

        Parameters
        ----------
        X : array or sparse array, n x n, graph of networkx or igraph, or table of edges
            The adjacency matrix; its entries are the weights of links. A node has no weight
            besides. A table of edges has two columns of nodes, and a third one of weights if there
            are any.
        y : object
            Ignored.
        """
        return self._fit(X)

    def partial_fit(self, X: Any, y: Any = None, *, n_nodes: int | None = None) -> Self:  # type: ignore[override]  # noqa: ARG002
        """Add more links. They are stored, each pair of nodes once; communities are computed when
        they are needed.

        Parameters
        ----------
        X : array or sparse array, or networkx graph
            More rows of the adjacency matrix, m x n, in the order of nodes. After the row of the
            last node that of the first follows, and is added: a matrix n x n holds more links of
            the whole graph. With `n_nodes`, a list of edges: two nodes each, or two nodes and a
            weight, m x 2 or m x 3. Each counts at both of its ends.
        y : object
            Ignored.
        n_nodes : int, optional
            Number of nodes, if edges are passed.

        Notes
        -----
        The result does not depend on how links are cut into batches, and equals that of `fit` on
        all of them. If anything ends the call early, an interrupt included, the model is as it was
        before. After `fit`, a new stream begins. Several threads may call this: no link is lost.
        """
        return self._partial_fit(X, in_batches=True, n_nodes=n_nodes)

    def transform(self, X: Any) -> FloatArray:
        """Return the memberships of nodes from their links to the nodes of the model (m x n): m x
        k.
        """
        return self._inferred(X)[1]

    def fit_predict(self, X: Any, y: Any = None) -> IndexArray:  # noqa: ARG002 - scikit-learn's signature
        """Learn communities, and return `labels_`."""
        return np.asarray(self.fit(X).labels_)

    def predict(self, X: Any) -> IndexArray:
        """Return the community in which each node (a row of links, m x n) has its largest share."""
        return np.asarray(np.argmax(self.transform(X), axis=1))

    def _index_of(self, X: Any) -> Any:
        graph = named_graph(X)
        if graph is None:
            return super()._index_of(X)
        return graph.names

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean log-likelihood of a link, given the profiles and the memberships that fit
        the rows.
        """
        self._refuse_scores("score")
        links, memberships = self._inferred(X)
        total = float(np.sum(log_likelihood(links, self.profiles_, memberships)))
        return total / max(float(links.sum()), 1.0)

    def sample(self, *, random_state: Any = None) -> Any:
        """Return a new graph on the same nodes with the same degrees on average, as a symmetric CSR
        array.

        Each call draws another one, unless `random_state` repeats a draw.
        """
        check_is_fitted(self)
        params = self._fit_for("sample").params
        return draw_links(
            params.memberships,
            params.profiles,
            params.degrees,
            as_random_state(random_state),
        )

    def _records(self, X: Any, sample_weight: Any = None) -> Records:  # noqa: ARG002 - nodes have no weights
        """Return links; a half of them makes a graph on the same nodes."""
        links = sparse.triu(as_adjacency(self._validated(X, reset=False)), 1).tocoo()

        def take(places: IndexArray) -> tuple[Any, dict[str, Any]]:
            own = (links.data[places], (links.row[places], links.col[places]))
            upper = sparse.csr_array(own, shape=links.shape)
            return upper + upper.T, {}

        return Records(links.nnz, take, most=links.nnz)

    def _signature(self, X: Any, **_: Any) -> IndexArray:  # noqa: ARG002 - of the nodes of its own graph
        return np.asarray(self.labels_)

    def _inferred(self, X: Any) -> tuple[Any, FloatArray]:
        check_is_fitted(self)
        fit = self._fit_for("memberships_")
        links = as_links(self._validated(X, reset=False))
        return links, self._learnt.spec.memberships(links, fit.params)  # type: ignore[attr-defined]

    def _encode(
        self,
        X: Any,
        context: GraphContext | None = None,
        *,
        in_batches: bool = False,
        n_nodes: int | None = None,
    ) -> tuple[Any, GraphContext]:
        """Return rows of an adjacency matrix as CSR, or edges as an array m x 3, and the number of
        nodes.
        """
        if n_nodes is not None:
            n_nodes = self._checked_n_nodes(n_nodes, context)
            return as_edges(X, n_nodes), GraphContext(n_nodes)
        named = getattr(self, "feature_names_in_", None) if context is not None else None
        rows = self._validated(X, reset=context is None, least=1 if in_batches else 2, named=named)
        if in_batches and rows.shape[0] > rows.shape[1]:
            raise ValueError(
                f"A batch must not have more rows than there are nodes. Got shape {rows.shape}. "
                "Pass rows of an adjacency matrix, or a list of edges with `n_nodes`."
            )
        check_weights(rows.data)
        return rows, GraphContext(rows.shape[1])

    def _hold(self, X: Any, spec: Any, *, groups: Any = None) -> tuple[PrivateLinks, GraphContext]:  # noqa: ARG002
        """Return a holder of a private graph, without a message that depends on one of its
        links.
        """
        if groups is not None:
            raise ValueError(
                "`groups` are of records. Got them with a graph, whose edges are protected. Leave "
                "them out."
            )
        is_array: Any = sparse.issparse(X) or isinstance(X, np.ndarray)
        if not is_array or X.dtype.kind not in "iufb":
            raise TypeError(
                "A private graph must be a NumPy array or a SciPy sparse array of numbers. Got "
                "another type. Convert it, such as with networkx.to_scipy_sparse_array."
            )
        if X.ndim != 2 or X.shape[0] != X.shape[1] or not 2 <= X.shape[0] <= MAX_NODES:
            raise ValueError(
                f"A private graph must have a row and a column for each of 2 to {MAX_NODES:,} "
                f"nodes: all pairs are released. Got shape {X.shape}. Pass the part of the graph "
                "that you want."
            )
        self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = X.shape[0]
        return PrivateLinks(X), GraphContext(X.shape[0])

    def _checked_n_nodes(self, n_nodes: int, context: GraphContext | None) -> int:
        n_nodes = check_count("n_nodes", n_nodes, 2)
        if context is not None and n_nodes != context.n_nodes:
            raise ValueError(
                f"`n_nodes` must be the same for all batches. Got {n_nodes}, and "
                f"{context.n_nodes} before. Pass the number of all nodes from the first batch on."
            )
        if context is None:
            self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = n_nodes
        return n_nodes

    def _validated(self, X: Any, *, reset: bool, least: int = 1, named: Any = None) -> Any:
        graph = named_graph(X)
        names = None if graph is None else graph.names
        if graph is not None:
            X = graph.adjacency
            if named is None and not reset:
                named = vars(self).get("feature_names_in_")
            if named is not None and list(named) != names:
                raise ValueError(
                    "Graphs of one stream must have the same nodes, in the same order. Got "
                    "others. Add all nodes to each graph first."
                )
        with warnings.catch_warnings():
            if graph is not None:  # its names were compared
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            rows = self._checked(X, reset=reset, accept_sparse="csr", ensure_min_samples=least)
        if names is not None and reset:
            self.feature_names_in_ = np.array(names, dtype=object)
        return as_sparse(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.pairwise = True
        return tags
