"""Private topics: fit all documents at once, or a stream of batches, under differential privacy.

A private model learns from noisy sums over documents, and from nothing else:

1. A histogram of the lengths of documents.
2. The frequencies of the words, which are public from then on.
3. Pairs of the most frequent words. A non-negative factorisation gives starting topics.
4. Two EM steps over all words. Each distributes the words of every document over the current topics.

A unit adds an array of norm 1 to each sum (`BoundedCounts`). Everything between the releases is post-processing
(`private_estimate`), and so is the assessment of how far to trust the topics (`trust`).

In a stream, every batch is queried with the whole budget. A document is in one batch, so changing it changes the
releases of that batch alone: batches compose in parallel, and every document has (ε, δ) however long the stream goes
on. `Evidence` accumulates what was released; no document is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.schema import require
from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray
from odeco.models.engine.fit import Fit, Info, NoContext
from odeco.models.lda.params import TopicDiagnostics, TopicParams, TopicTrust
from odeco.models.lda.private_estimate import Evidence, PrivateEstimate, PublicTopics, estimate_private_topics
from odeco.models.lda.private_releases import PrivateReleases, plan_releases, public_is_enough
from odeco.models.lda.trust import measure_trust
from odeco.privacy.calibration import check_delta_for
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger import Charge, Ledger
from odeco.privacy.ledger_file import Guarantee, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.lda.spec import TopicSpec

#: The mechanism, as `PrivacyReport` names it, and what is added if it started from public documents.
_MECHANISM = "word frequencies, pairs of frequent words, and EM steps over all words"
_STARTED = "; started from public documents, which are not protected"

#: The sum of the Dirichlet parameters where none is given: a document has few topics.
DEFAULT_CONCENTRATION = 1.0

#: The diagnostics have this many eigenvalues of the pairs beyond the number of topics.
_FURTHER = 10


def learn_privately(
    held: BoundedCounts,
    n_components: int,
    *,
    concentration: float | None,
    guarantee: Guarantee,
    seed: int,
    public: PublicTopics | None = None,
    context: State | None = None,
    noise: NoiseSource | None = None,
) -> tuple[Fit, PrivacyReport]:
    """Fit k topics under differential privacy, and return them with the guarantee.

    Parameters
    ----------
    held : BoundedCounts
        The holder of the documents.
    n_components : int
        Number k of topics.
    concentration : float or None
        The concentration α₀; None takes 1.
    guarantee : Guarantee
        The budget.
    seed : int
        Seed of everything that is drawn after the releases; the noise does not depend on it.
    public : PublicTopics, optional
        What public documents say. If they suffice (`public_is_enough`) no pairs are released, and the steps get their
        share; otherwise it is not used.
    context : State, optional
        The words of the columns, for the fit that is returned.
    noise : NoiseSource, optional
        The source of the noise; by default the operating system.

    Notes
    -----
    Every release is a Gaussian mechanism of √share μ for a sum of sensitivity 1, or √2 (`BoundedCounts`), whose
    query depends on earlier releases only; the shares sum to one, so all together are μ-GDP.
    """
    unit = "user" if held.of_users else "document"
    check_delta_for(guarantee.delta, held.n_units, unit)
    mu, rng = guarantee.mu, np.random.default_rng(seed)
    releaser = Releaser(Ledger(mu, within=as_ledger(guarantee.ledger)), SecureNoise() if noise is None else noise)
    unit_noise = held.sensitivity(1) / mu
    public = _usable(public, held, n_components, unit_noise)
    plan = plan_releases(
        held.n_words, n_components, n_units=held.n_units, unit_noise=unit_noise, started=public is not None
    )
    found = estimate_private_topics(
        PrivateReleases(held, releaser, mu),
        plan,
        n_components,
        concentration=DEFAULT_CONCENTRATION if concentration is None else concentration,
        rng=rng,
        public=public,
    ).largest_first()
    trust = measure_trust(found, plan, n_units=held.n_units, unit_noise=unit_noise, rng=rng)
    report = PrivacyReport.of(
        releaser,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        unit=unit,
        neighbours=held.neighbours,
        mechanism=_MECHANISM if public is None else _MECHANISM + _STARTED,
    )
    info = Info(held.n_documents, n_iter=found.n_steps)
    return Fit(_params(found, trust, held.n_documents), context or NoContext(), info), report


def _usable(public: PublicTopics | None, held: BoundedCounts, k: int, unit_noise: float) -> PublicTopics | None:
    """Return what public documents say if they suffice to start topics from, otherwise None."""
    if public is None:
        return None
    n_public = float(public.counts.sum())
    enough = public_is_enough(n_public, held.n_words, k, n_units=held.n_units, unit_noise=unit_noise)
    return public if enough else None


def _params(found: PrivateEstimate, trust: TopicTrust, n_documents: int) -> TopicParams:
    """Return the parameters of the model; every number in them is released or follows from released numbers."""
    evidence, k = found.evidence, found.evidence.shares.size
    eigenvalues, error, level = _spectrum(found, k)
    diagnostics = TopicDiagnostics(
        n_documents=n_documents,
        n_components=k,
        n_clear=int(trust.clear.sum()),
        eigenvalues=eigenvalues,
        eigenvalue_errors=np.full(eigenvalues.size, error),
        noise_level=level,
        reliable=trust.clear,
        concentration=float(found.generative.alpha.sum()),
        weights=np.full(k, np.nan),
        residuals=np.full(k, np.nan),
        explained=0.0,
        negative_mass=np.zeros(k),
    )
    totals = n_documents * evidence.shares
    return TopicParams(evidence.topics, totals, found.generative.alpha, 0.0, diagnostics, trust)


def _spectrum(found: PrivateEstimate, k: int) -> tuple[FloatArray, float, float]:
    """Return the leading eigenvalues of the noisy pairs, their standard deviation, and the level of noise."""
    pairs = found.pairs
    if pairs is None:
        return np.zeros(0), 0.0, 0.0
    # Off the diagonal an entry of the noise deviates by this; along an eigenvector the noise is √2 times that.
    return pairs.eigenvalues()[: k + _FURTHER], 2**0.5 * pairs.deviation, pairs.noise_level


@dataclass(frozen=True, eq=False)
class PrivateTopicStream(State):
    """What private batches have released so far. All of it may be published.

    Attributes
    ----------
    seed : int
        Seed of what is drawn after the releases.
    context : State
        The words of the columns.
    n_seen, n_batches : int
        Number of documents and of batches.
    unit_noise : float
        Standard deviation of the noise of a release that has the whole budget of a batch.
    estimate : PrivateEstimate
        The topics after the last batch, with all that was released, accumulated.
    """

    seed: int = array_field(kind="i", low=0)
    context: Any = part_field()
    n_seen: int = array_field(kind="i", low=1)
    n_batches: int = array_field(kind="i", low=1)
    unit_noise: float = array_field(low=0)
    estimate: PrivateEstimate = part_field(PrivateEstimate)

    @property
    def n_components(self) -> int:
        """Number of topics."""
        return int(self.estimate.evidence.shares.size)

    def result(self, spec: TopicSpec) -> Fit:  # noqa: ARG002 - as every stream has it
        """Return the topics after the last batch, with how far to trust them.

        That is measured after the first batch. Later batches release no pairs, so after them it is unknown (`trust`).
        """
        evidence = self.estimate.evidence
        noise, k = self.unit_noise * self.n_batches**0.5, evidence.shares.size
        started = evidence.public is not None
        plan = plan_releases(evidence.scales.size, k, n_units=self.n_seen, unit_noise=noise, started=started)
        rng = np.random.default_rng([self.seed, self.n_batches, 1])
        trust = measure_trust(self.estimate, plan, n_units=self.n_seen, unit_noise=noise, rng=rng)
        info = Info(self.n_seen, n_iter=self.estimate.n_steps)
        return Fit(_params(self.estimate, trust, self.n_seen), self.context, info)

    def verify(self, spec: TopicSpec, n_features: int) -> None:
        """Raise `ValueError` unless the stream, which may come from a file of anyone, can go on."""
        k, wanted = self.estimate.evidence.shares.size, spec.settings.n_components
        require(isinstance(wanted, int) and min(wanted, n_features) == k, "it must have the topics of its parameters")
        pairs = self.estimate.pairs
        require(pairs is None or int(pairs.words.max(initial=0)) < n_features, "its pairs must be of its words")


def update_privately(
    before: PrivateTopicStream | None,
    privacy: PrivacyReport | None,
    held: BoundedCounts,
    n_components: int,
    *,
    context: State,
    concentration: float | None,
    guarantee: Guarantee,
    forget: float | None,
    seed: int,
    public: PublicTopics | None = None,
    noise: NoiseSource | None = None,
) -> tuple[PrivateTopicStream, PrivacyReport]:
    """Return the stream after one more batch, with its guarantee; the stream before stays as it is.

    Parameters
    ----------
    before, privacy : PrivateTopicStream or None, PrivacyReport or None
        The stream so far, and its guarantee.
    held : BoundedCounts
        The holder of the documents of the batch.
    n_components, concentration, guarantee, public, noise
        As for `learn_privately`; `public` counts with the first batch only.
    context : State
        The words of the columns.
    forget : float or None
        A document counts half after this many further documents.
    seed : int
        Seed of a stream that begins.

    Notes
    -----
    Each release names its batch as the data that it is about. Batches are divided by position, and neighbours replace
    a document or blank it at its place, so the pieces satisfy what `Ledger` requires of them. δ must be below one over
    the number of all documents of the stream.
    """
    number = 1 if before is None else before.n_batches + 1
    n_documents = held.n_documents + (0 if before is None else before.n_seen)
    seed = seed if before is None else before.seed
    check_delta_for(guarantee.delta, n_documents, "document")
    if before is not None and privacy is not None:
        _check_same(before, privacy, held, n_components, guarantee)
    mu, rng = guarantee.mu, np.random.default_rng([seed, number])
    ledger = _ledger(mu, () if privacy is None else privacy.charges)
    releaser = Releaser(ledger, SecureNoise() if noise is None else noise, data=f"batch {number}")
    public = _usable(public, held, n_components, held.sensitivity(1) / mu)
    plan = plan_releases(
        held.n_words,
        n_components,
        n_units=held.n_units,
        unit_noise=held.sensitivity(1) / mu,
        started=public is not None or before is not None,
    )
    found = estimate_private_topics(
        PrivateReleases(held, releaser, mu),
        plan,
        n_components,
        concentration=DEFAULT_CONCENTRATION if concentration is None else concentration,
        rng=rng,
        public=public,
        before=None if before is None else _discounted(before.estimate.evidence, held.n_documents, forget),
    )
    if before is None:
        found = found.largest_first()
    report = PrivacyReport.of(
        releaser,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        unit="document",
        neighbours=held.neighbours,
        mechanism=_MECHANISM if found.evidence.public is None else _MECHANISM + _STARTED,
        private=privacy is None or privacy.private,
    )
    first = report.charges[0]  # with a share of 1 its noise would be sensitivity / μ
    unit_noise = first.sensitivity / (mu if report.private else first.mu)
    return PrivateTopicStream(seed, context, n_documents, number, unit_noise, found), report


def _discounted(evidence: Evidence, n_documents: int, forget: float | None) -> Evidence:
    return evidence if forget is None else evidence.discounted(0.5 ** (n_documents / forget))


def _ledger(mu: float, charges: tuple[Charge, ...]) -> Ledger:
    """Return a ledger of its own that has paid for earlier batches: a batch that fails leaves no trace."""
    ledger = Ledger(mu)
    for charge in charges:
        ledger.charge(**charge.to_fields())
    return ledger


def _check_same(
    before: PrivateTopicStream, privacy: PrivacyReport, held: BoundedCounts, n_components: int, guarantee: Guarantee
) -> None:
    now = (guarantee.epsilon, guarantee.delta, held.neighbours, n_components)
    then = (privacy.epsilon, privacy.delta, privacy.neighbours, before.estimate.evidence.shares.size)
    if privacy.private and now != then:
        raise ValueError(
            "All batches of a private stream must have the same epsilon, delta, neighbours and number of topics. "
            f"It began with {then}. Got {now}. Set them back, or begin a new model."
        )
