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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray
from odeco.models.lda.counts import as_counts
from odeco.models.lda.diagnostics import TopicDiagnostics
from odeco.models.lda.learn import fit_public
from odeco.models.lda.private_estimate import (
    Evidence,
    NoisySums,
    PrivateEstimate,
    PublicTopics,
    estimate_private_topics,
)
from odeco.models.lda.private_releases import PrivateReleases, plan_releases, public_is_enough
from odeco.models.lda.private_vocabulary import PrivateVocabulary
from odeco.models.lda.result import FittedTopics
from odeco.models.lda.settings import LdaSettings
from odeco.models.lda.trust import TopicTrust, measure_trust
from odeco.privacy.calibration import check_delta, check_delta_for, check_epsilon
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger import Charge, Ledger
from odeco.privacy.ledger_file import Guarantee, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from odeco.models.lda.estimator import TensorLDA


#: What `PrivacyReport` calls this.
_MECHANISM = "word frequencies, pairs of frequent words, and likelihood steps over all words"


#: What it adds to that if it started from public documents.
_STARTED = "; started from public documents, which are not protected"


#: The sum of the Dirichlet parameters where none is given: a document has few topics.
DEFAULT_CONCENTRATION = 1.0


#: So many eigenvalues of the pairs are shown beyond the number of topics.
_FURTHER = 10


def learn_privately(
    held: BoundedCounts,
    n_components: int,
    *,
    concentration: float | None,
    guarantee: Guarantee,
    seed: int,
    public: PublicTopics | None = None,
    noise: NoiseSource | None = None,
) -> FittedTopics:
    """Learn k topics such that no document (or user) can be told from the result.

    Parameters
    ----------
    held : BoundedCounts
        The documents.
    n_components : int
        Number k of topics.
    concentration : float or None
        The concentration α₀; None takes 1.
    guarantee : Guarantee
        The budget.
    seed : int
        Seed of everything that is drawn after the releases; the noise does not depend on it.
    public : PublicTopics, optional
        What public documents say. If it is enough (`public_is_enough`) no pairs are released, and the steps get their
        share; if not, it is not used.
    noise : NoiseSource, optional
        Where the noise comes from; by default from the operating system.

    Notes
    -----
    Every release is a Gaussian mechanism of √share μ for a sum of sensitivity 1, or √2 (`BoundedCounts`), whose
    question depends on earlier releases only; the shares sum to one, so all together are μ-GDP.
    """
    unit = "user" if held.of_users else "document"
    check_delta_for(guarantee.delta, held.n_units, unit)
    mu, rng = guarantee.mu, np.random.default_rng(seed)
    concentration = DEFAULT_CONCENTRATION if concentration is None else concentration
    releaser = Releaser(Ledger(mu, within=as_ledger(guarantee.ledger)), SecureNoise() if noise is None else noise)
    noise_of_all = held.sensitivity(1) / mu
    public = if_enough(public, held, n_components, noise_of_all)
    plan = plan_releases(
        held.n_words, n_components, n_units=held.n_units, unit_noise=noise_of_all, started=public is not None
    )
    answers = PrivateReleases(held, releaser, mu)
    found = estimate_private_topics(answers, plan, n_components, concentration=concentration, rng=rng, public=public)
    found = largest_first(found)
    trust = measure_trust(found, plan, n_units=held.n_units, unit_noise=noise_of_all, rng=rng)
    report = PrivacyReport.of(
        releaser,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        unit=unit,
        neighbours=held.neighbours,
        mechanism=mechanism_of(public),
    )
    return fitted_privately(found, trust, held.n_documents, report)


def if_enough(public: PublicTopics | None, held: BoundedCounts, k: int, unit_noise: float) -> PublicTopics | None:
    """Return what public documents say if it is enough to start topics from, and else None."""
    if public is None:
        return None
    n_public = float(public.counts.sum())
    enough = public_is_enough(n_public, held.n_words, k, n_units=held.n_units, unit_noise=unit_noise)
    return public if enough else None


def mechanism_of(public: PublicTopics | None) -> str:
    """Return how the answers were made, for the reader of the guarantee."""
    return _MECHANISM if public is None else _MECHANISM + _STARTED


def largest_first(found: PrivateEstimate) -> PrivateEstimate:
    """Return the same topics, in the order of their shares."""
    order = np.argsort(-found.evidence.shares, kind="stable")
    own = found.evidence
    evidence: Evidence = replace(
        own,
        gram=own.gram[np.ix_(order, order)],
        image=own.image[:, order],
        topics=own.topics[order],
        shares=own.shares[order],
        public=None if own.public is None else PublicTopics(own.public.counts[order]),
    )
    law = replace(found.law, topics=evidence.topics, alpha=found.law.alpha[order])
    return replace(found, evidence=evidence, law=law, deviations=found.deviations[order])


def fitted_privately(
    found: PrivateEstimate, trust: TopicTrust, n_documents: int, report: PrivacyReport
) -> FittedTopics:
    """Return the topics as a model keeps them; every number in it is released or follows from what is."""
    evidence, k = found.evidence, found.evidence.shares.size
    eigenvalues, error, level = _spectrum(found, k)
    diagnostics = TopicDiagnostics(
        n_documents=n_documents,
        n_empty=None,
        n_short=None,
        n_tokens=None,
        n_components=k,
        n_clear=int(trust.clear.sum()),
        eigenvalues=eigenvalues,
        eigenvalue_errors=np.full(eigenvalues.size, error),
        noise_level=level,
        reliable=trust.clear,
        concentration=float(found.law.alpha.sum()),
        weights=np.full(k, np.nan),
        residuals=np.full(k, np.nan),
        explained=0.0,
        negative_mass=np.zeros(k),
    )
    totals = n_documents * evidence.shares
    return FittedTopics(evidence.topics, totals, found.law.alpha, 0.0, diagnostics, report, trust, found.n_steps)


def _spectrum(found: PrivateEstimate, k: int) -> tuple[FloatArray, float, float]:
    """Return the leading eigenvalues of the noisy pairs, their standard deviation, and the level of noise."""
    pairs = found.pairs
    if pairs is None:
        return np.zeros(0), 0.0, 0.0
    # Off the diagonal an entry of the noise deviates by this; along an eigenvector the noise is √2 times that.
    return pairs.eigenvalues()[: k + _FURTHER], 2**0.5 * pairs.deviation, pairs.noise_level


def fit_privately(
    model: TensorLDA, counts: Any, groups: Any, settings: LdaSettings, vocabulary: PrivateVocabulary | None, seed: int
) -> FittedTopics:
    """Learn with all of ε and δ, or with what a private vocabulary has left of them."""
    held = BoundedCounts(counts, groups=groups, neighbour_relation=model.neighbour_relation)
    n_components, guarantee = _promised(model)
    left = guarantee
    if vocabulary is not None:
        vocabulary.check_fits(n_words=held.n_words, unit=model.unit, neighbours=held.neighbours)
        epsilon, delta = vocabulary.left(guarantee.epsilon, guarantee.delta)
        left = replace(guarantee, epsilon=epsilon, delta=delta)
    fitted = learn_privately(
        held,
        n_components,
        concentration=settings.concentration,
        guarantee=left,
        public=_public_topics(model, settings, n_components, seed),
        seed=seed,
    )
    if vocabulary is None or fitted.privacy is None:
        return fitted
    return replace(fitted, privacy=vocabulary.joined(fitted.privacy, guarantee.epsilon, guarantee.delta))


def update_privately(
    model: TensorLDA, before: PrivateTopicStream | None, counts: Any, settings: LdaSettings
) -> PrivateTopicStream:
    """Return the stream after one more batch; a batch is asked with the whole budget."""
    n_components, guarantee = _promised(model)
    seed = model._draw_seed() if before is None else before.seed
    return learn_batch_privately(
        before,
        BoundedCounts(counts, neighbour_relation=model.neighbour_relation),
        n_components,
        concentration=settings.concentration,
        guarantee=guarantee,
        forget=settings.forget,
        public=None if before is not None else _public_topics(model, settings, n_components, seed),
        seed=seed,
    )


def _promised(model: TensorLDA) -> tuple[int, Guarantee]:
    """Return the number of topics and the guarantee that a private model is asked for."""
    n_components = min(check_count("n_components", model.n_components), model.n_features_in_)
    return n_components, Guarantee(check_epsilon(model.epsilon), check_delta(model.delta), model.ledger)


def _public_topics(model: TensorLDA, settings: LdaSettings, n_components: int, seed: int) -> PublicTopics | None:
    if model.public is None:
        return None
    counts = as_counts(model.public, model.n_features_in_)
    return PublicTopics(fit_public(counts, replace(settings, n_components=n_components), seed=seed))


@dataclass(frozen=True, eq=False)
class PrivateTopicStream:
    """What private batches have said so far. All of it may be published.

    Attributes
    ----------
    seed : int
        Seed of what is drawn after the releases.
    n_documents, n_batches : int
        Number of documents and of batches.
    evidence : Evidence
        What was released, summed up.
    privacy : PrivacyReport
        What is guaranteed, with every release.
    found : PrivateEstimate or None
        The topics after the last batch; None of a stream that was read from a file, which holds them apart.
    """

    seed: int
    n_documents: int
    n_batches: int
    evidence: Evidence
    privacy: PrivacyReport
    found: PrivateEstimate | None

    @property
    def n_components(self) -> int:
        """Number of topics."""
        return int(self.evidence.shares.size)

    def fitted(self) -> FittedTopics:
        """Return the topics as they are now, with how far they are to be trusted.

        That is measured on the first batch. Later ones release no pairs, so after them it is not known (`trust`).
        """
        if self.found is None:
            raise RuntimeError("A stream that was read from a file must come with its topics. This one did not.")
        first = self.privacy.charges[0]  # with a share of 1 its noise would be sensitivity / μ
        mu = Guarantee(self.privacy.epsilon, self.privacy.delta).mu if self.privacy.private else first.mu
        noise = first.sensitivity / mu * self.n_batches**0.5
        n_words, n_units = self.evidence.scales.size, self.n_documents
        started = self.evidence.public is not None
        plan = plan_releases(n_words, self.n_components, n_units=n_units, unit_noise=noise, started=started)
        rng = np.random.default_rng([self.seed, self.n_batches, 1])
        trust = measure_trust(self.found, plan, n_units=self.n_documents, unit_noise=noise, rng=rng)
        return fitted_privately(self.found, trust, self.n_documents, self.privacy)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the stream stands beside its topics, as a JSON header and named arrays."""
        own = self.evidence
        arrays = {
            "lengths": np.stack([own.lengths.values, own.lengths.deviations]),
            "words": np.stack([own.words.values, own.words.deviations]),
            "scales": own.scales,
            "gram": own.gram,
            "image": own.image,
            "shares": own.shares,
        }
        if own.public is not None:
            arrays["public"] = own.public.counts
        return {"seed": self.seed, "n_batches": self.n_batches}, arrays

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, Any], fitted: FittedTopics) -> PrivateTopicStream:
        """Return the stream that `to_arrays` described, with the topics that were saved beside it."""
        if fitted.privacy is None:
            raise ValueError("A private stream must have a guarantee. This one has none.")
        evidence = Evidence(
            lengths=NoisySums(*arrays["lengths"]),
            words=NoisySums(*arrays["words"]),
            scales=arrays["scales"],
            gram=arrays["gram"],
            image=arrays["image"],
            topics=fitted.topic_word,
            shares=arrays["shares"],
            public=PublicTopics(arrays["public"]) if "public" in arrays else None,
        )
        n_documents = fitted.diagnostics.n_documents
        return cls(header["seed"], n_documents, header["n_batches"], evidence, fitted.privacy, None)


def learn_batch_privately(
    before: PrivateTopicStream | None,
    held: BoundedCounts,
    n_components: int,
    *,
    concentration: float | None,
    guarantee: Guarantee,
    forget: float | None,
    seed: int,
    public: PublicTopics | None = None,
    noise: NoiseSource | None = None,
) -> PrivateTopicStream:
    """Return the stream after one more batch; the one before stays as it is.

    Parameters
    ----------
    before : PrivateTopicStream or None
        The stream so far.
    held : BoundedCounts
        The documents of the batch.
    n_components, concentration, guarantee, public, noise
        As for `learn_privately`; `public` counts with the first batch only.
    forget : float or None
        A document counts half after this many further documents.
    seed : int
        Seed of a stream that begins.

    Notes
    -----
    Each release names its batch as the piece of data that it is about. Batches are cut by position, and neighbours
    replace a document or blank it at its place, so the pieces satisfy what `Ledger` asks of them.
    """
    number = 1 if before is None else before.n_batches + 1
    n_documents = held.n_documents + (0 if before is None else before.n_documents)
    seed = seed if before is None else before.seed
    check_delta_for(guarantee.delta, n_documents, "document")
    if before is not None:
        _check_same(before, held, n_components, guarantee)
    mu, rng = guarantee.mu, np.random.default_rng([seed, number])
    ledger = _ledger(mu, () if before is None else before.privacy.charges)
    releaser = Releaser(ledger, SecureNoise() if noise is None else noise, data=f"batch {number}")
    public = if_enough(public, held, n_components, held.sensitivity(1) / mu)
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
        before=None if before is None else _faded(before.evidence, held.n_documents, forget),
    )
    if before is None:
        found = largest_first(found)
    report = PrivacyReport.of(
        releaser,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        unit="document",
        neighbours=held.neighbours,
        mechanism=mechanism_of(found.evidence.public),
        private=before is None or before.privacy.private,
    )
    return PrivateTopicStream(seed, n_documents, number, found.evidence, report, found)


def _faded(evidence: Evidence, n_documents: int, forget: float | None) -> Evidence:
    return evidence if forget is None else evidence.faded(0.5 ** (n_documents / forget))


def _ledger(mu: float, charges: tuple[Charge, ...]) -> Ledger:
    """Return a ledger of its own that has paid for earlier batches: a batch that fails leaves no trace."""
    ledger = Ledger(mu)
    for charge in charges:
        ledger.charge(**charge.to_fields())
    return ledger


def _check_same(before: PrivateTopicStream, held: BoundedCounts, n_components: int, guarantee: Guarantee) -> None:
    now = (guarantee.epsilon, guarantee.delta, held.neighbours, n_components)
    promised = before.privacy
    then = (promised.epsilon, promised.delta, promised.neighbours, before.n_components)
    if promised.private and now != then:
        raise ValueError(
            "All batches of a private stream must have the same epsilon, delta, neighbours and number of topics. "
            f"It began with {then}. Got {now}. Set them back, or begin a new model."
        )
