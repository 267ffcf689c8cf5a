"""Private topics: fit all documents at once, or a stream of batches, under differential privacy.

A private model learns from noisy sums over documents, and from nothing else:

1. A histogram of the lengths of documents.
2. The frequencies of the words, which are public from then on.
3. Pairs of the most frequent words. A non-negative factorisation gives starting topics.
4. Two to five EM steps over all words. Each distributes the words of every document over the current topics.

Public documents are queried in the same way, without noise (`private_public`).

A unit adds an array of norm 1 to each sum (`BoundedCounts`). Everything between the releases is post-processing
(`private_estimate`), and so is the assessment of how far to trust the topics (`private_plan`).

In a stream, every batch is queried with the whole budget. A document is in one batch, so changing it changes the
releases of that batch alone: batches compose in parallel, and every document has (ε, δ) however long the stream goes
on. `Evidence` accumulates what was released; no document is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from odeco._util.state import State, array_field, part_field, require
from odeco.models.engine.fit import Fit, Info
from odeco.models.engine.private import guarantee_of
from odeco.models.lda.params import TopicDiagnostics, TopicParams, TopicTrust
from odeco.models.lda.private_estimate import Evidence, PrivateEstimate, estimate_private_topics
from odeco.models.lda.private_plan import ReleasePlan, measure_trust, plan_releases, signal_of
from odeco.models.lda.private_public import PublicDocuments
from odeco.models.lda.private_vocabulary import PrivateVocabulary
from odeco.privacy.calibration import check_delta_for
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger_file import Guarantee
from odeco.privacy.noise import NoiseSource
from odeco.privacy.report import PrivacyReport
from odeco.privacy.sums import PrivateSums

if TYPE_CHECKING:
    from odeco.models.lda.spec import TopicContext, TopicSpec

#: The mechanism, as `PrivacyReport` names it, and what is added if there are public documents.
_MECHANISM = "word frequencies, pairs of frequent words, and EM steps over all words"
_HELPED = "; with public documents, which are not protected"

#: The sum of the Dirichlet parameters where none is given: a document has few topics.
DEFAULT_CONCENTRATION = 1.0

#: The diagnostics have this many eigenvalues of the pairs beyond the number of topics.
_FURTHER = 10


def learn_privately(
    spec: TopicSpec,
    held: BoundedCounts,
    context: TopicContext,
    vocabulary: PrivateVocabulary | None = None,
    *,
    seed: int,
    noise: NoiseSource | None = None,
) -> tuple[Fit, PrivacyReport]:
    """Fit topics to all documents under differential privacy, and return them with the guarantee.

    Parameters
    ----------
    spec : TopicSpec
        The settings of the model.
    held : BoundedCounts
        The holder of the documents.
    context : TopicContext
        The words of the columns, and public documents.
    vocabulary : PrivateVocabulary, optional
        The words, if they were chosen from the same documents. Topics are learnt with what is left of ε and δ.
    seed : int
        Seed of everything that is drawn after the releases; the noise does not depend on it.
    noise : NoiseSource, optional
        The source of the noise; by default the operating system.

    Notes
    -----
    Every release is a Gaussian mechanism of √share μ for a sum of sensitivity 1, or √2 (`BoundedCounts`), whose
    query depends on earlier releases only; the shares sum to one, so all together are μ-GDP.
    """
    guarantee = cast("Guarantee", guarantee_of(spec))
    _check_n_topics(spec, held)
    left = guarantee
    if vocabulary is not None:
        vocabulary.check_fits(n_words=held.n_words, unit=held.unit, neighbours=held.neighbours)
        left = vocabulary.left(guarantee)
        context = replace(context, words=vocabulary.words) if context.words is None else context
    rng, sums = np.random.default_rng(seed), _private_sums(held, left, noise=noise)
    found, plan = _estimate(spec, held, sums, rng, public=PublicDocuments.of(context.public(held.n_words)))
    found = found.largest_first()
    trust = measure_trust(found, plan, left, held.n_units, held.neighbour_relation, rng)
    report = sums.report(_mechanism(found))
    if vocabulary is not None:
        report = vocabulary.combined(report, guarantee)
    info = Info(held.n_documents, n_iter=found.n_steps)
    return Fit(_params(found, trust, held.n_documents), context, info), report


def _check_n_topics(spec: TopicSpec, held: BoundedCounts) -> None:
    """Raise if there are fewer words than topics, or fewer documents; both numbers are public."""
    k, most = spec.settings.n_components, min(held.n_words, held.n_documents)
    if k > most:
        raise ValueError(
            f"`n_components` must be at most {most:,} for these documents: there must be at least as many words in the "
            f"vocabulary, and documents, as topics. Got n_components={k}, n_samples={held.n_documents} and "
            f"n_features={held.n_words}. Lower it, or pass more documents."
        )


def _private_sums(held: BoundedCounts, guarantee: Guarantee, **further: Any) -> PrivateSums:
    """Return what releases the queries of a holder; `further` arguments are those of `PrivateSums`."""
    return PrivateSums(
        guarantee,
        held.n_units,
        record=held.unit,
        neighbour_relation=held.neighbour_relation,
        neighbours=held.neighbours,
        **further,
    )


def _estimate(
    spec: TopicSpec,
    held: BoundedCounts,
    sums: PrivateSums,
    rng: np.random.Generator,
    *,
    public: PublicDocuments | None = None,
    before: Evidence | None = None,
) -> tuple[PrivateEstimate, ReleasePlan]:
    """Make the releases, and return the topics that follow, with the plan of the releases.

    After earlier batches no pairs are released, and the steps get their share.
    """
    k, concentration = spec.settings.n_components, spec.algorithm.concentration
    signal = signal_of(held.n_units, sums.guarantee.mu, held.neighbour_relation)
    plan = plan_releases(held.n_words, k, signal, started=before is not None)
    if concentration is None:
        concentration = DEFAULT_CONCENTRATION
    found = estimate_private_topics(
        held, sums, plan, k, concentration=concentration, rng=rng, public=public, before=before
    )
    return found, plan


def _mechanism(found: PrivateEstimate) -> str:
    return _MECHANISM if found.evidence.public is None else _MECHANISM + _HELPED


def _params(found: PrivateEstimate, trust: TopicTrust, n_documents: int) -> TopicParams:
    """Return the parameters of the model; every number in them is released or follows from released numbers."""
    evidence, k = found.evidence, found.evidence.shares.size
    alpha = found.concentration * evidence.shares
    eigenvalues, error, level = np.zeros(0), 0.0, 0.0
    if found.pairs is not None:
        eigenvalues, level = found.pairs.eigenvalues()[: k + _FURTHER], found.pairs.noise_level
        # Along an eigenvector, the noise is √2 times that of an entry off the diagonal.
        error = 2**0.5 * found.pairs.deviation
    diagnostics = TopicDiagnostics(
        n_documents=n_documents,
        n_components=k,
        n_clear=int(trust.clear.sum()),
        eigenvalues=eigenvalues,
        eigenvalue_errors=np.full(eigenvalues.size, error),
        noise_level=level,
        reliable=trust.clear,
        concentration=float(alpha.sum()),
        weights=np.full(k, np.nan),
        residuals=np.full(k, np.nan),
        explained=0.0,
        negative_mass=np.zeros(k),
    )
    totals = n_documents * evidence.shares
    return TopicParams(evidence.topics, totals, alpha, 0.0, diagnostics, trust)


@dataclass(frozen=True, eq=False)
class PrivateTopicStream(State):
    """All releases of the private batches so far. All of it may be published.

    Attributes
    ----------
    seed : int
        Seed of all draws after the releases.
    context : State
        The words of the columns.
    n_seen, n_batches : int
        Number of documents and of batches.
    estimate : PrivateEstimate
        The topics after the last batch, with all that was released, accumulated.
    """

    seed: int = array_field(kind="i", low=0)
    context: Any = part_field()
    n_seen: int = array_field(kind="i", low=1)
    n_batches: int = array_field(kind="i", low=1)
    estimate: PrivateEstimate = part_field(PrivateEstimate)

    def result(self, spec: TopicSpec) -> Fit:
        """Return the topics after the last batch, with how far to trust them.

        Trust is measured after the first batch. Later batches release no pairs, so after them it is unknown; see
        `private_plan`.
        """
        evidence, relation = self.estimate.evidence, spec.settings.neighbour_relation
        guarantee = cast("Guarantee", guarantee_of(spec))
        # The noise of B batches adds up to √B times that of one: n documents count as n/√B with the noise of one batch.
        n_units = max(1, round(self.n_seen / self.n_batches**0.5))
        signal = signal_of(n_units, guarantee.mu, relation)
        plan = plan_releases(evidence.scales.size, evidence.shares.size, signal)
        rng = np.random.default_rng([self.seed, self.n_batches, 1])
        trust = measure_trust(self.estimate, plan, guarantee, n_units, relation, rng)
        info = Info(self.n_seen, n_iter=self.estimate.n_steps)
        return Fit(_params(self.estimate, trust, self.n_seen), self.context, info)

    def verify(self, spec: TopicSpec, n_features: int) -> None:
        """Raise `ValueError` unless the stream, which may come from a file of anyone, can go on."""
        k = self.estimate.evidence.shares.size
        require(k == spec.settings.n_components, "it must have the topics of its parameters")
        check_delta_for(float(spec.settings.delta or 0.0), self.n_seen, "document")
        pairs = self.estimate.pairs
        require(pairs is None or int(pairs.words.max(initial=0)) < n_features, "its pairs must be of its words")


def update_privately(
    spec: TopicSpec,
    before: PrivateTopicStream | None,
    privacy: PrivacyReport | None,
    held: BoundedCounts,
    context: TopicContext,
    *,
    seed: int,
    noise: NoiseSource | None = None,
) -> tuple[PrivateTopicStream, PrivacyReport]:
    """Return the stream after one more batch, with its guarantee; the stream before stays as it is.

    Parameters
    ----------
    spec, noise
        As for `learn_privately`.
    before, privacy : PrivateTopicStream or None, PrivacyReport or None
        The stream so far, and its guarantee.
    held : BoundedCounts
        The holder of the documents of the batch.
    context : TopicContext
        Of the first batch: the words of the columns, and public documents.
    seed : int
        Seed of the stream.

    Notes
    -----
    Each release names its batch as the data that it is about. Batches are divided by position, and neighbours replace
    a document or blank it at its place, so the pieces satisfy what `Ledger` requires of them. δ must be below one over
    the number of all documents of the stream. A batch has a ledger of its own that has paid for the earlier ones, so a
    batch that fails leaves no trace.
    """
    guarantee, evidence = cast("Guarantee", guarantee_of(spec)), None
    number, n_documents, forget = 1, held.n_documents, spec.settings.forget
    if before is None:
        _check_n_topics(spec, held)
    else:
        number, n_documents, evidence = before.n_batches + 1, n_documents + before.n_seen, before.estimate.evidence
        if forget is not None:
            evidence = evidence.discounted(0.5 ** (held.n_documents / forget))
    check_delta_for(guarantee.delta, n_documents, "document")
    earlier = () if privacy is None else privacy.charges
    public = PublicDocuments.of(context.public(held.n_words))
    sums = _private_sums(held, guarantee, earlier=earlier, data=f"batch {number}", noise=noise)
    found, _ = _estimate(spec, held, sums, np.random.default_rng([seed, number]), public=public, before=evidence)
    if before is None:
        found = found.largest_first()
    report = sums.report(_mechanism(found), private=privacy is None or privacy.private)
    return PrivateTopicStream(seed, context, n_documents, number, found), report
