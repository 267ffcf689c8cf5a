"""Topics are learnt under differential privacy: from noisy sums over documents, and from nothing else.

1. A histogram of the lengths of documents.
2. The frequencies of the words, which are public from then on.
3. Pairs of the most frequent words. A factorisation without negative numbers gives starting topics.
4. Two likelihood steps over all words. Each deals the words of every document to the topics so far.

A unit adds an array of norm 1 to each sum (`BoundedCounts`). All between the releases is post-processing
(`private_topics`), and so is how far the topics are to be trusted (`trust`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odeco._util.types import FloatArray
from odeco.models.lda.diagnostics import TopicDiagnostics
from odeco.models.lda.private_estimate import Evidence, FoundPrivately, PublicTopics, find_private_topics
from odeco.models.lda.private_releases import ReleasedAnswers, plan_releases, public_is_enough
from odeco.models.lda.result import FittedTopics
from odeco.models.lda.trust import TopicTrust, measure_trust
from odeco.privacy.calibration import check_delta_for
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.ledger import Ledger
from odeco.privacy.ledger_file import Guarantee, as_ledger
from odeco.privacy.noise import NoiseSource, SecureNoise
from odeco.privacy.release import Releaser
from odeco.privacy.report import PrivacyReport

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
    answers = ReleasedAnswers(held, releaser, mu)
    found = find_private_topics(answers, plan, n_components, concentration=concentration, rng=rng, public=public)
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


def largest_first(found: FoundPrivately) -> FoundPrivately:
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


def fitted_privately(found: FoundPrivately, trust: TopicTrust, n_documents: int, report: PrivacyReport) -> FittedTopics:
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
    return FittedTopics(evidence.topics, totals, found.law.alpha, 0.0, diagnostics, report, trust)


def _spectrum(found: FoundPrivately, k: int) -> tuple[FloatArray, float, float]:
    """Return the leading eigenvalues of the noisy pairs, their standard deviation, and the level of noise."""
    pairs = found.pairs
    if pairs is None:
        return np.zeros(0), 0.0, 0.0
    # Off the diagonal an entry of the noise deviates by this; along an eigenvector the noise is √2 times that.
    return pairs.eigenvalues()[: k + _FURTHER], 2**0.5 * pairs.deviation, pairs.noise_level
