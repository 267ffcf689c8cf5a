"""The estimator of communities of a graph."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.latent_model import LatentModel
from odeco.models.lda.inference import log_likelihood
from odeco.models.lda.settings import LdaSettings
from odeco.models.mmsb.learn import FittedCommunities, check_settings, learn_communities, memberships_of
from odeco.models.mmsb.links import (
    LinkStream,
    as_adjacency,
    as_edges,
    as_links,
    as_sparse,
    check_weights,
    draw_links,
    from_networkx,
    is_graph,
)


class Communities(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentModel):  # type: ignore[misc]
    """Communities of a graph that overlap: the mixed-membership block model, from counts of three-stars.

    Every node belongs to several communities, in shares that sum to one. How often a node is linked to three others at
    once says what the communities are: these counts are a symmetric tensor, which is decomposed in a few directions and
    never formed. No start is needed, and no sampler.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of communities. ``"auto"`` takes at most as many as links tell from chance (the negative eigenvalues of
        the Bethe Hessian), and 100; of these, those before the largest gap in the spectrum of the links.
    concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters that the moments are corrected with: small if nodes have one community
        each. ``"auto"`` takes the value with which nine tenths of the links best predict the others.
    refine : int
        Number of Gibbs sweeps over the links after that. They help where links do not follow the model closely.
    n_inference_iterations : int
        The most rounds in which the memberships of a node are found.
    random_state : int, RandomState instance or None
        Draws the first basis and the starts.
    n_jobs : int or None
        Number of threads; the result does not depend on it.

    Attributes
    ----------
    memberships_ : array, n x k
        The shares of each node; rows sum to one. It is the share of the node's links that go through a community.
    labels_ : array
        The community in which each node has its largest share.
    block_matrix_ : array, k x k
        Expected number of links between a node that belongs to one community only, and one that belongs to another,
        both with as many links as their communities have on average.
    profiles_ : array, k x n
        For each community the distribution of its links over nodes.
    prior_ : array
        Dirichlet parameters of memberships.
    n_components_ : int
        Number of communities, the largest first.
    n_features_in_, feature_names_in_
        Number of nodes, and their names if a networkx graph or a table gave them.

    Notes
    -----
    A graph is an adjacency matrix, dense or sparse, or a networkx graph. Weights are numbers of links; those that are
    not whole are scaled and rounded. Loops are dropped. A **directed** graph is taken as undirected, with A + Aᵀ: who
    links to whom within a pair is not used. Nodes with fewer than three links say nothing about communities, and get
    their memberships like all others.

    Nodes of one community may have very different numbers of links: a node's degree says nothing about its memberships.

    `partial_fit` keeps the links, each pair of nodes once: memory grows with the number of pairs that are linked, and
    not with the number of links that arrive. Three-star counts do not add up over batches.

    For a hard partition of a graph whose number of groups nobody knows, Leiden does as well or better; what this gives
    beyond that is the shares. There is no private mode: a node takes part in the rows of all its neighbours, so that
    one node can change a three-star count without a useful bound.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, *A tensor approach to learning mixed membership community models*, 2014,
    arXiv:1302.2684. Huang, Niranjan, Hakeem, Anandkumar, *Online tensor methods for learning latent variable models*,
    2015, arXiv:1309.0787. Karrer, Newman, *Stochastic blockmodels and community structure in networks*, 2011,
    arXiv:1008.3926. Le, Levina, *Estimating the number of communities in networks by spectral methods*, 2015,
    arXiv:1507.00827.

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

    _KIND: ClassVar[str] = "communities model"
    _FITTED = FittedCommunities
    _STREAM = LinkStream

    def __init__(
        self,
        n_components: int | Literal["auto"] = 2,
        *,
        concentration: float | Literal["auto"] = "auto",
        refine: int = 0,
        n_inference_iterations: int = 50,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.concentration = concentration
        self.refine = refine
        self.n_inference_iterations = n_inference_iterations
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn communities from a graph: an adjacency matrix, n x n, or a networkx graph."""
        settings = self._check_settings()
        with self._names_kept_on_failure():
            matrix = self._validated(X, reset=True, least=2)
            seed = self._draw_seed()
            self._take(learn_communities(as_adjacency(matrix), settings, seed=seed), None, seed)
        return self

    def partial_fit(self, X: Any, y: Any = None, *, n_nodes: int | None = None) -> Self:  # noqa: ARG002 - as above
        """Take more links. They are kept, each pair of nodes once; communities are learnt when they are asked for.

        Parameters
        ----------
        X : array or sparse array, or networkx graph
            More rows of the adjacency matrix, m x n, in the order of nodes. After the row of the last node that of the
            first follows, and adds to what is there: a matrix n x n holds some more links of the whole graph. With
            `n_nodes`, a list of edges: two nodes each, or two nodes and a weight, m x 2 or m x 3. Each counts at both
            of its ends.
        y : object
            Ignored.
        n_nodes : int, optional
            Number of nodes, if edges are passed.

        Notes
        -----
        What is learnt does not depend on how links are cut into batches, and is what `fit` learns from all of them. If
        anything ends the call early, an interrupt included, the model is as it was before. After `fit`, a new stream
        begins.
        """
        self._check_settings()
        stream = getattr(self, "_stream", None)
        with self._names_kept_on_failure():
            if n_nodes is None:
                rows = self._validated_rows(X, stream)
                stream = stream or LinkStream.begin(rows.shape[1], self._draw_seed())
                self._take(None, stream.after_rows(rows), stream.seed)
            else:
                edges = as_edges(X, self._checked_n_nodes(n_nodes, stream))
                stream = stream or LinkStream.begin(n_nodes, self._draw_seed())
                self._take(None, stream.after_edges(edges), stream.seed)
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the memberships of nodes from their links to the nodes of the model (m x n): m x k."""
        return self._inferred(X)[1]

    def fit_predict(self, X: Any, y: Any = None) -> IndexArray:  # noqa: ARG002 - scikit-learn's signature
        """Learn communities, and return the one in which each node has its largest share."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> IndexArray:
        """Return the community in which each node (a row of links, m x n) has its largest share."""
        labels: IndexArray = np.argmax(self.transform(X), axis=1)
        return labels

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the mean log-likelihood of a link, given the profiles and the memberships that fit the rows."""
        links, memberships = self._inferred(X)
        total = float(np.sum(log_likelihood(links, self.profiles_, memberships)))
        return total / max(float(links.sum()), 1.0)

    def sample(self) -> Any:
        """Return a new graph on the same nodes with the same degrees on average, as a symmetric CSR array."""
        check_is_fitted(self)
        fitted = self._learnt("sample")
        return draw_links(fitted.memberships, fitted.profiles, fitted.degrees, check_random_state(self.random_state))

    def summary(self) -> str:
        """Return what was found, in words: the verdict first, then a line for each community."""
        check_is_fitted(self)
        from odeco.models.mmsb.display import describe

        return describe(self)

    def plot(self) -> Any:
        """Return a Matplotlib figure: links between communities, and how far nodes share them."""
        check_is_fitted(self)
        from odeco.models.mmsb.display import draw

        return draw(self)

    @property
    def memberships_(self) -> FloatArray:
        """The shares of each node, n x k."""
        return self._of_fitted("memberships_").memberships

    @property
    def labels_(self) -> IndexArray:
        """The community in which each node has its largest share."""
        labels: IndexArray = np.argmax(self._of_fitted("labels_").memberships, axis=1)
        return labels

    @property
    def block_matrix_(self) -> FloatArray:
        """Expected number of links between nodes of one community each, k x k."""
        return self._of_fitted("block_matrix_").blocks

    @property
    def profiles_(self) -> FloatArray:
        """The distribution of the links of each community over nodes, k x n."""
        return self._of_fitted("profiles_").profiles

    @property
    def prior_(self) -> FloatArray:
        """Dirichlet parameters of memberships."""
        return self._of_fitted("prior_").prior

    @property
    def n_components_(self) -> int:
        """Number of communities."""
        return len(self._of_fitted("n_components_").prior)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _fitted_from_stream(self) -> FittedCommunities:
        return learn_communities(as_adjacency(self._stream.links()), self._check_settings(), seed=self._seed)

    def _of_fitted(self, name: str) -> FittedCommunities:
        fitted: FittedCommunities = self._learnt(name)
        return fitted

    def _inferred(self, X: Any) -> tuple[Any, FloatArray]:
        check_is_fitted(self)
        fitted = self._of_fitted("memberships_")
        links = as_links(self._validated(X, reset=False))
        return links, memberships_of(links, fitted.profiles, fitted.prior, self._check_settings())

    def _check_settings(self) -> LdaSettings:
        return check_settings(self)

    def _validated_rows(self, X: Any, stream: LinkStream | None) -> Any:
        """Return more rows of an adjacency matrix as CSR, or raise if they do not go on with those so far."""
        named = getattr(self, "feature_names_in_", None) if stream is not None else None
        rows = self._validated(X, reset=stream is None, named=named)
        if rows.shape[0] > rows.shape[1]:
            raise ValueError(
                f"A batch must not have more rows than there are nodes. Got shape {rows.shape}. Pass rows of an "
                "adjacency matrix, or a list of edges with `n_nodes`."
            )
        check_weights(rows.data)
        return rows

    def _checked_n_nodes(self, n_nodes: int, stream: LinkStream | None) -> int:
        n_nodes = check_count("n_nodes", n_nodes, 2)
        if stream is not None and n_nodes != stream.n_nodes:
            raise ValueError(
                f"`n_nodes` must be the same for all batches. Got {n_nodes}, and {stream.n_nodes} before. Pass the "
                "number of all nodes from the first batch on."
            )
        if stream is None:
            self.__dict__.pop("feature_names_in_", None)
        self.n_features_in_ = n_nodes
        return n_nodes

    def _validated(self, X: Any, *, reset: bool, least: int = 1, named: Any = None) -> Any:
        names = None
        if is_graph(X):
            X, names = from_networkx(X)
            if named is not None and list(named) != names:
                raise ValueError(
                    "Graphs of one stream must have the same nodes, in the same order. Got others. Add all nodes to "
                    "each graph first."
                )
        rows = validate_data(self, X, reset=reset, accept_sparse="csr", ensure_min_samples=least)
        if names is not None and reset:
            self.feature_names_in_ = np.array(names, dtype=object)
        return as_sparse(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.pairwise = True
        return tags
