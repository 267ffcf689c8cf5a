"""How many communities a graph shows: those before the largest gap in its spectrum, of those that are no chance.

For a graph with degrees D and mean excess degree r² = Σd²/Σd − 1, the matrix H = (r² − 1) I − r A + D has one negative
eigenvalue for each community that links can tell from chance, and all others lie above zero (Saade, Krzakala and
Zdeborová 2014; Le and Levina 2015). That is the most that can be found. Where degrees differ much, and in any large
graph, it counts parts of communities too. So of these numbers the one is taken after which the eigenvalues of the
links, divided by the roots of degrees at both ends, fall most: the span of the eigenvectors before the largest gap is
the one that links determine best (Davis and Kahan 1970). A tenth of the mean is added to degrees, or nodes with few
links would have eigenvectors of their own (Qin and Rohe 2013).

The criterion of topics is not used: it takes rows for independent, and the rows of a symmetric matrix are not, so that
it would find too many.

The settings of communities are checked here, once, before anything is learnt.

Communities are learnt as topics: a node is a document, and its neighbours are the words.

In the mixed-membership block model two nodes are linked with the chance πᵢᵀ B πⱼ. Given the memberships of node i, its
neighbours are independent, and each is drawn in two steps: a community a with a chance that grows with πᵢₐ, then a node
j with a chance in proportion to (B πⱼ)ₐ, the *profile* of the community. That is latent Dirichlet allocation with
profiles for topics. Its third moment, over ordered triples of neighbours of one node, counts three-stars (Anandkumar,
Ge, Hsu and Kakade 2014; Huang et al. 2015); it is asked in a few directions and never formed. The nodes that are linked
to are those that link, so that a link is used twice, once from either end; `rounds` makes both agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from scipy.sparse import linalg as sparse_linalg

from odeco._util.arguments import check_number
from odeco._util.schema import array, require
from odeco._util.threads import one_blas_thread
from odeco._util.types import FloatArray
from odeco.models.engine.latent_model import State
from odeco.models.lda import settings as lda_settings
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.inference import document_topics
from odeco.models.lda.learn import fit_topics
from odeco.models.lda.settings import MOST_AUTOMATIC, LdaSettings
from odeco.models.mmsb.blocks import Spectrum, agree, block_matrix
from odeco.models.mmsb.concentration import choose_concentration

#: Smaller graphs are asked for all eigenvalues.
_SMALL = 500

#: So many eigenvalues are asked for first; then twice as many, until one is on the other side.
_FIRST = 16

_TOLERANCE = 1e-3

#: This share of the mean degree is added to degrees.
_ADDED = 0.1


def count_communities(links: Any) -> int:
    """Return how many communities a symmetric CSR array of links shows, from 1 to 100."""
    most = count_told_from_chance(links)
    if most <= 2:
        return most
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    scale = sparse.diags_array(1 / np.sqrt(degrees + _ADDED * degrees.mean()))
    values = _largest(sparse.csr_array(scale @ links @ scale), most + 1)
    # The first eigenvalue is that of the whole graph, and larger than the others whatever these are.
    return 2 + int(np.argmax(values[1:-1] - values[2:]))


def count_told_from_chance(links: Any) -> int:
    """Return how many communities links tell from chance, from 1 to 100: the negative eigenvalues of H."""
    degrees = np.asarray(links.sum(axis=1), dtype=np.float64)
    excess = math.sqrt(max(float(degrees @ degrees / degrees.sum()) - 1, 1.0))
    matrix = sparse.csr_array(excess * links - sparse.diags_array(degrees))
    level = excess**2 - 1
    most = min(MOST_AUTOMATIC, links.shape[0] - 1)
    asked = min(_FIRST, most)
    while True:
        above = int(np.sum(_largest(matrix, asked) > level))
        if above < asked or asked >= most:
            return max(above, 1)
        asked = min(2 * asked, most)


def _largest(matrix: Any, number: int) -> FloatArray:
    """Return so many of the largest eigenvalues of a symmetric CSR array, the largest first."""
    with one_blas_thread():
        if matrix.shape[0] <= _SMALL:
            values = np.linalg.eigvalsh(matrix.toarray())
        else:
            start = np.random.default_rng(0).standard_normal(matrix.shape[0])
            values = sparse_linalg.eigsh(
                matrix, number, which="LA", v0=start, tol=_TOLERANCE, return_eigenvectors=False
            )
    return np.asarray(np.sort(values)[::-1][:number])


def check_settings(model: Any) -> LdaSettings:
    """Return the settings of communities, as those of topics, or raise."""
    if model.concentration != "auto":
        check_number("concentration", model.concentration, 0.0, np.inf)
    return lda_settings.check_settings(_AsTopics(model))


class _AsTopics:
    """The settings of communities under the names that topics have for them."""

    def __init__(self, model: Any) -> None:
        self.n_components = model.n_components
        self.doc_topic_concentration = model.concentration
        self.max_iter, self.n_jobs = model.refine, model.n_jobs
        self.max_doc_update_iter = model.n_inference_iterations
        self.document_weight, self.topic_word_prior, self.forget = "length", None, None
        self.n_oversamples, self.n_passes = 10, 4


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
    found = fit_topics(LocalCorpus(links, settings), settings, seed=seed, callback=lambda *_: None)
    n_iterations, n_jobs = settings.max_doc_update_iter, settings.n_jobs
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
    return document_topics(links, profiles, prior, n_iterations=settings.max_doc_update_iter, n_jobs=settings.n_jobs)
