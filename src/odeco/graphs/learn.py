"""Communities are learnt as topics: a node is a document, and its neighbours are the words.

In the mixed-membership block model two nodes are linked with the chance πᵢᵀ B πⱼ. Given the memberships of node i, its
neighbours are independent, and each is drawn in two steps: a community a with a chance that grows with πᵢₐ, then a node
j with a chance in proportion to (B πⱼ)ₐ, the *profile* of the community. That is latent Dirichlet allocation with
profiles for topics. Its third moment, over ordered triples of neighbours of one node, counts three-stars (Anandkumar,
Ge, Hsu and Kakade 2014; Huang et al. 2015); it is asked in a few directions and never formed. The nodes that are linked
to are those that link, so that a link is used twice, once from either end; `rounds` makes both agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from odeco._schema import array, require
from odeco._types import FloatArray
from odeco.graphs.blocks import Spectrum, block_matrix
from odeco.graphs.concentration import choose_concentration
from odeco.graphs.number_of_communities import count_communities
from odeco.graphs.rounds import agree
from odeco.latent.state import State
from odeco.topics.corpus import CorpusHere
from odeco.topics.infer import document_topics
from odeco.topics.lda_settings import LdaSettings
from odeco.topics.learn_at_once import learn_at_once


@dataclass(eq=False)
class FittedCommunities(State):
    """What was learnt of communities.

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
    """

    RULES: ClassVar = {
        "profiles": array("k", "n_features", low=0, high=1),
        "prior": array("k", low=0),
        "memberships": array("n_features", "k", low=0, high=1),
        "blocks": array("k", "k", low=0),
        "degrees": array("n_features", low=0),
    }

    profiles: FloatArray
    prior: FloatArray
    memberships: FloatArray
    blocks: FloatArray
    degrees: FloatArray

    @classmethod
    def from_arrays(cls, prefix: str, arrays: Mapping[str, Any]) -> Self:
        """Return what `to_arrays` wrote; there must be a community, and a prior above zero."""
        read = super().from_arrays(prefix, arrays)
        require(read.prior.size > 0 and bool(np.all(read.prior > 0)), "it must have communities, each with a prior")
        return read


def learn_communities(links: Any, settings: LdaSettings, *, seed: int) -> FittedCommunities:
    """Learn communities from a symmetric CSR array of links, or raise if it has none."""
    if not links.nnz:
        raise ValueError("A graph must have links for communities to be found. It has none. Pass another.")
    if settings.n_components == "auto":
        settings = replace(settings, n_components=count_communities(links))
    if settings.concentration is None:
        settings = replace(settings, concentration=choose_concentration(links, settings, seed=seed))
    found = learn_at_once(CorpusHere(links, settings), settings, seed=seed, tell=lambda *_: None)
    n_iterations, n_jobs = settings.n_inference_iterations, settings.n_jobs
    spectrum = Spectrum.of(links, len(found.alpha))
    agreed = agree(links, spectrum, found.topic_word, found.alpha, n_iterations=n_iterations, n_jobs=n_jobs)
    return FittedCommunities(
        profiles=agreed.profiles,
        prior=found.alpha,
        memberships=agreed.shares,
        blocks=block_matrix(links, spectrum, found.topic_word, agreed.shares),
        degrees=np.asarray(links.sum(axis=1), dtype=np.float64),
    )


def memberships_of(links: Any, profiles: FloatArray, prior: FloatArray, settings: LdaSettings) -> FloatArray:
    """Return the memberships of nodes, from their links to the nodes of the model."""
    return document_topics(links, profiles, prior, n_iterations=settings.n_inference_iterations, n_jobs=settings.n_jobs)
