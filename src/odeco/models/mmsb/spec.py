"""Communities are learnt as topics: a node is a document, and its neighbours are the words.

In the mixed-membership block model two nodes are linked with probability πᵢᵀ B πⱼ. Given the
memberships of node i, its neighbours are independent, and each is drawn in two steps: a community a
with a probability that grows with πᵢₐ, then a node j with a probability in proportion to (B πⱼ)ₐ,
the *profile* of the community. That is latent Dirichlet allocation with profiles for topics. Its
third moment, over ordered triples of neighbours of one node, counts three-stars (Anandkumar, Ge,
Hsu and Kakade 2014; Huang et al. 2015); it is projected on a few directions and never formed. The
nodes that are linked to are those that link, so a link is used twice, once from either end;
`blocks.agree` makes both agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from odeco._util.state import State, array_field, require
from odeco._util.threads import on_threads
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.description import Description
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.spec import Spec
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import FEWEST_WORDS
from odeco.models.lda.fitting import fit_topics
from odeco.models.lda.inference import document_topics
from odeco.models.lda.params import LdaSettings
from odeco.models.mmsb.blocks import Spectrum, agree, block_matrix, choose_concentration
from odeco.models.mmsb.display import describe
from odeco.models.mmsb.graph import GraphContext, LinkStream, as_adjacency
from odeco.models.mmsb.partition import count_communities, likeliest_partition, link_rates
from odeco.models.mmsb.private import FOUND, find_private_communities
from odeco.privacy.guarantee import PureGuarantee
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.engine.private import Releaser

#: The largest ε of private communities.
_MAX_EPSILON = 30.0


@dataclass(frozen=True, eq=False)
class CommunityParams(State):
    """The parameters of communities.

    Attributes
    ----------
    profiles : array, k x n
        For each community the distribution of its links over nodes.
    prior : array
        Dirichlet parameters of memberships.
    memberships : array, n x k
        The share of a node's links that go through each community.
    blocks : array, k x k
        Expected number of links between two nodes that belong to one community each.
    degrees : array
        Number of links of each node.
    labels : array of int
        The block of each node in the likeliest partition that was found.
    distinguishable : int
        Number of communities and parts of communities that links distinguish from chance; 0 if k
        was given.
    deviations : float
        How far the weakest community is above chance, in standard deviations of random graphs, if k
        was selected.
    link_rates : array, k x k, or None
        Links for each pair of nodes of two communities, each node counted where its share is
        largest; None for those of `blocks`.
    """

    profiles: FloatArray = array_field("k", "n_features", low=0, high=1)
    prior: FloatArray = array_field("k", low=0)
    memberships: FloatArray = array_field("n_features", "k", low=0, high=1)
    blocks: FloatArray = array_field("k", "k", low=0)
    degrees: FloatArray = array_field("n_features", low=0)
    labels: IndexArray = array_field("n_features", kind="i", low=0)
    distinguishable: int = array_field(kind="i", low=0, default=0)
    deviations: float = array_field(low=0, default=0.0)
    link_rates: FloatArray | None = array_field("k", "k", low=0, default=None)

    def check(self) -> None:
        """Raise `ValueError` unless there is a community, each has a prior, and each node is in
        one.
        """
        require(
            self.prior.size > 0 and bool(np.all(self.prior > 0)),
            "it must have communities, each with a prior",
        )
        require(bool(np.all(self.labels < self.prior.size)), "its nodes must be in its communities")


class CommunitySpec(Spec):
    """The mixed-membership block model."""

    Params: ClassVar = CommunityParams
    Context: ClassVar = GraphContext
    Stream: ClassVar = LinkStream
    first_block = 2**18
    next_block = 2**18
    record = "node"
    component = "community"
    mechanism = "randomised response"
    Guarantee: ClassVar = PureGuarantee
    protected = "edge"
    neighbours = "one edge, added or removed; the nodes are public"

    def prepare(self, rows: Any, context: Any) -> Any:
        """Return the rows of an adjacency matrix as a symmetric CSR array of links."""
        return as_adjacency(rows)

    def fit_rows(self, rows: Any, base: Any, seed: int) -> Fit:
        """Learn communities, on one thread if that is asked for."""
        with on_threads(self.settings.n_jobs):
            return super().fit_rows(rows, base, seed)

    def fit(self, data: Any, base: Any, seed: int) -> Fit:
        """Learn communities from a symmetric CSR array of links, or raise if it has none."""
        if not data.nnz:
            raise ValueError(
                "A graph must have links for communities to be found. It has none. Pass another."
            )
        k = self.settings.n_components
        concentration = self.settings.concentration
        if k != "auto" and k > data.shape[0]:
            raise ValueError(
                f"There must be at least as many nodes as communities. Got {data.shape[0]} nodes "
                f"and n_components={k}. Pass fewer communities."
            )
        if float(data.sum(axis=1).max()) < FEWEST_WORDS:
            raise ValueError(
                "A node of the graph must have three links: communities are found from triples "
                f"of neighbours. Got {data.shape[0]} nodes with at most two links each. Pass a "
                "graph with more links."
            )
        # There are no more communities than nodes with three links.
        most = LocalCorpus(data).sums().n_supported
        counted = count_communities(data, seed=seed) if k == "auto" else None
        k = min(counted.selected if counted else int(k), most)
        if concentration == "auto":
            concentration = choose_concentration(data, self._as_topics(k, None), seed=seed)
        topics = self._as_topics(k, concentration)
        found = fit_topics(LocalCorpus(data), topics, seed=seed, callback=lambda *_: None)
        spectrum = Spectrum.of(data, len(found.alpha))
        n_iterations = self.settings.max_inference_iter
        profiles, shares = agree(
            data, spectrum, found.topic_word, found.alpha, n_iterations=n_iterations
        )
        params = CommunityParams(
            profiles=profiles,
            prior=found.alpha,
            memberships=shares,
            blocks=block_matrix(data, spectrum, found.topic_word, shares),
            degrees=np.asarray(data.sum(axis=1), dtype=np.float64),
            labels=likeliest_partition(data, shares, np.random.default_rng(seed)),
            distinguishable=counted.distinguishable if counted else 0,
            deviations=counted.deviations if counted else 0.0,
            link_rates=link_rates(data, shares.argmax(axis=1), len(found.alpha)),
        )
        return Fit(params, base, Info(data.nnz))

    def check_private(self) -> None:
        """Require what flips of pairs can do."""
        if self.settings.delta is not None:
            raise ValueError(
                "Private communities have δ = 0: pairs of nodes are flipped at random, and "
                f"nothing else is released. Got delta={self.settings.delta!r}. Leave it out."
            )
        if self.settings.epsilon > _MAX_EPSILON:
            raise ValueError(
                f"`epsilon` of private communities must be at most {_MAX_EPSILON:g}: with more, "
                f"no pair is ever flipped. Got {self.settings.epsilon!r}. Lower it."
            )

    def learn_privately(
        self, holder: Any, context: GraphContext, releaser: Releaser, *, seed: int
    ) -> Fit:
        """Learn from pairs of nodes that were flipped at random."""
        k = int(self.settings.n_components)
        fields, n_clear = find_private_communities(holder, releaser, k, seed=seed)
        params = CommunityParams(**fields)  # type: ignore[arg-type]
        found = len(params.prior)
        share = float(params.memberships.max(axis=1).mean())
        init = f"flipped pairs of nodes; {n_clear} of {k} directions stand clear of noise" + (
            f", and about {share:.0%} of nodes are in their own of {found} communities"
            if found > 1
            else ""
        )
        return Fit(
            params,
            context,
            Info(holder.n_records, converged=n_clear == k and share >= FOUND, init=init),
        )

    def memberships(self, links: Any, params: CommunityParams) -> FloatArray:
        """Return the memberships of nodes, from their links to the nodes of the model."""
        n_iterations = self.settings.max_inference_iter
        with on_threads(self.settings.n_jobs):
            return document_topics(links, params.profiles, params.prior, n_iterations=n_iterations)

    def describe(
        self, fit: Fit, names: list[str], privacy: PrivacyReport | None, rows: Any = None
    ) -> Description:
        """Return communities in words and pictures."""
        described = describe(fit.params, names)
        if privacy is None:
            return described
        facts = (f"Learnt from {fit.info.init}.", *described.facts)
        return replace(described, facts=facts)

    def verify(self, state: Any) -> None:
        """Raise `ValueError` if a fit contradicts the number of nodes of its graph."""
        if isinstance(state, Fit):
            require(
                state.context.n_nodes == len(state.params.degrees),
                "its nodes must be those of its context",
            )

    def _as_topics(self, k: int, concentration: float | None) -> LdaSettings:
        """Return the settings of the topic model that communities are."""
        return LdaSettings(k, concentration, self.settings.n_sweeps)
