"""Private topic models: the fit to all documents under differential privacy, and its plan on
simulated text.

A private model learns from noisy sums over documents and from nothing else (`private_topics` has
the program). A unit adds an array of norm 1 to each sum (`BoundedCounts`). Everything between the
releases is post-processing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray
from odeco.models.engine.private import PrivatePlan, Releaser, Simulated, plan_fit
from odeco.models.lda.params import TopicDiagnostics, TopicParams, TopicTrust
from odeco.models.lda.private_topics import (
    GenerativeModel,
    PrivateTopics,
    learn_private_topics,
    share_budget,
)
from odeco.privacy.guarantee import Guarantee
from odeco.privacy.holders.documents import LENGTH_EDGES, BoundedCounts
from odeco.privacy.holders.protocol import NeighbourRelation

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA

#: The sum of the Dirichlet parameters where none is given: a document has few topics.
DEFAULT_CONCENTRATION = 1.0

#: The diagnostics have this many eigenvalues of the pairs beyond the number of topics.
_FURTHER = 10


def fit_privately(
    held: BoundedCounts, releaser: Releaser, settings: TensorLDA, *, seed: int
) -> TopicParams:
    """Return the topics that follow from noisy sums over all documents.

    Every release is a Gaussian mechanism of √share μ for a sum of sensitivity 1, or √2
    (`BoundedCounts`), whose query depends on earlier releases only; the shares sum to one, so all
    together are μ-GDP.
    """
    k = int(settings.n_components)
    given = settings.doc_topic_concentration
    relation = settings.neighbour_relation
    found = learn_private_topics(
        held,
        releaser,
        share_budget(held.n_records, releaser.guarantee.mu, relation, held.n_words, k),
        k,
        concentration=DEFAULT_CONCENTRATION if isinstance(given, str) else given,
        rng=np.random.default_rng(seed),
    )
    return _params(found, held.n_documents)


def _params(found: PrivateTopics, n_documents: int) -> TopicParams:
    """Return the parameters of the model; every number in them is released or follows from released
    numbers.
    """
    model = found.model
    k = model.shares.size
    trust = TopicTrust(found.signal, found.n_shown, found.deviations)
    eigenvalues = found.eigenvalues[: k + _FURTHER]
    alpha = model.concentration * model.shares
    diagnostics = TopicDiagnostics(
        n_documents=n_documents,
        n_components=k,
        n_clear=int(trust.clear.sum()),
        eigenvalues=eigenvalues,
        # Along an eigenvector, the noise is √2 times that of an entry off the diagonal.
        eigenvalue_errors=np.full(eigenvalues.size, 2**0.5 * found.pair_deviation),
        noise_level=found.noise_edge,
        reliable=trust.clear,
        concentration=float(alpha.sum()),
        weights=np.full(k, np.nan),
        residuals=np.full(k, np.nan),
        explained=0.0,
        negative_mass=np.zeros(k),
    )
    return TopicParams(model.topics, n_documents * model.shares, alpha, 0.0, diagnostics, trust)


def similarity(truth: FloatArray, found: FloatArray, frequencies: FloatArray) -> FloatArray:
    """Return the cosine of each true topic with its match, both after subtracting the frequencies
    of all words.
    """
    cosines = _apart(truth, frequencies) @ _apart(found, frequencies).T
    matched: FloatArray = cosines[linear_sum_assignment(-cosines)]
    return np.clip(matched, -1.0, 1.0)


def _apart(topics: FloatArray, frequencies: FloatArray) -> FloatArray:
    rest = topics - frequencies
    norms = np.linalg.norm(rest, axis=1, keepdims=True)
    apart: FloatArray = np.divide(rest, norms, out=np.zeros_like(rest), where=norms > 1e-12)
    return apart


#: Words of usual text: the w-th most frequent has a frequency of about 1/(w + 2.7) (Zipf and
#: Mandelbrot).
_OFFSET = 2.7

#: In a topic a word is this many times as frequent as elsewhere or as rare, in the middle: e to a
#: normal variable.
_CONTRAST = 1.5

#: At most this many words are simulated for a plan; the noise of fewer documents is smaller in
#: proportion.
_PLANNED_WORDS = 200_000

#: A simulated topic counts as found if at least half of what sets it apart from all words is: cos²
#: ≥ ½.
FOUND = 0.5**0.5


def plan_topics(
    n_components: int,
    *,
    n_units: int,
    n_words: int,
    epsilon: float,
    delta: float,
    document_length: int = 50,
    neighbour_relation: NeighbourRelation = "replace",
    seed: int = 0,
) -> PrivatePlan:
    """Return what a private model would release, and how many topics it would find in simulated
    documents.

    Parameters
    ----------
    n_components : int
        Number of topics.
    n_units, n_words : int
        Number of documents (or users), and of words in the vocabulary.
    epsilon, delta : float
        The guarantee.
    document_length : int
        Number of words of a document, about.
    neighbour_relation : {"replace", "add_remove"}
        As for `TensorLDA`.
    seed : int
        Of the simulated text.

    Notes
    -----
    The text is simulated: frequencies of words as 1/(rank + 2.7), topics that multiply them by
    e^(1.5 z) with z normal, and documents with few topics each (α₀ = 1). Topics of real text may be
    harder to find, or easier. The agreement of a topic is the cosine of what would be found with
    the truth, without the frequencies of all words: the lowest of eight runs, each with topics of
    its own.

    Examples
    --------
    >>> from odeco.models import plan_topics
    >>> plan = plan_topics(3, n_units=5_000, n_words=200, epsilon=1.0, delta=1e-8)
    >>> 0 <= plan.n_expected <= 3, round(sum(release.share for release in plan.releases), 6)
    (True, 1.0)
    """
    k = check_count("n_components", n_components)
    n_units = check_count("n_units", n_units)
    n_words = check_count("n_words", n_words, 2)
    document_length = check_count("document_length", document_length, 2)
    guarantee = Guarantee(epsilon, delta)
    shares = share_budget(n_units, guarantee.mu, neighbour_relation, n_words, k)
    n_drawn = min(n_units, max(1, round(_PLANNED_WORDS / document_length)))
    lengths = np.zeros(LENGTH_EDGES.size)
    lengths[np.abs(LENGTH_EDGES - document_length).argmin()] = 1.0

    def program(simulated: Simulated, rng: np.random.Generator) -> FloatArray:
        topics = np.exp(_CONTRAST * rng.standard_normal((k, n_words))) / (
            np.arange(n_words) + _OFFSET
        )
        topics /= topics.sum(axis=1, keepdims=True)
        truth = GenerativeModel(topics, np.full(k, 1 / k), DEFAULT_CONCENTRATION, lengths)
        held = BoundedCounts(truth.simulate(n_drawn, rng))
        releaser, _ = simulated(rng)
        found = learn_private_topics(
            held, releaser, shares, k, concentration=DEFAULT_CONCENTRATION, rng=rng
        )
        return similarity(topics, found.model.topics, truth.frequencies)

    return plan_fit(
        program,
        guarantee,
        n_units,
        n_drawn,
        unit="unit",
        neighbour_relation=neighbour_relation,
        rng=np.random.default_rng(seed),
        n_components=k,
        threshold=FOUND,
        records=(
            f"units of {document_length:,} words, each adds an array of norm 1 to every release"
        ),
        verdict=(
            f"of {k} topics in simulated text of this kind {{number}} would be found (mean cosine "
            "{mean:.2f})"
        ),
    )
