"""Diagnostics of topics that were estimated from moments, and warnings if they are unreliable."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from odeco._util.types import FloatArray, IndexArray
from odeco.errors import UnreliableTopicsWarning
from odeco.models.lda.moments import WordSums
from odeco.models.lda.spectral import ReducedMoments, SpectralTopics

#: A topic of which more than this share was negative is more noise than signal.
_MOST_NEGATIVE = 1 / 3


@dataclass(frozen=True, eq=False)
class TopicDiagnostics:
    """What the moments say about the topics.

    Attributes
    ----------
    n_documents : int
        Number of documents seen.
    n_empty, n_short, n_tokens : int or None
        Number of documents without a word, of those with one or two words (which add nothing), and of words seen. None
        in a private model.
    n_components : int
        Number of topics.
    n_clear : int
        How many eigenvalues are clear of noise: the number of topics that the pairs of words support, but not more than
        were looked at. In a private model, how many topics are clear, as far as is known (see `TopicTrust`).
    eigenvalues, eigenvalue_errors : arrays
        Strength of the directions that whitening divides by, largest first, with standard errors; more than k of them.
    noise_level : float
        The largest eigenvalue that documents without topics would show.
    reliable : array of k bool
        Which of the k whitening directions are clear of noise; in a private model, which topics are.
    concentration : float
        The α₀ that the moments were corrected with.
    weights, residuals : arrays
        Weights and residuals of the components of the whitened third moment, one for each topic; NaN for a topic that
        this moment does not hold.
    explained : float
        Share of the squared norm of the whitened third moment that the components explain.
    negative_mass : array
        For each topic the share of its mass that was negative and was cut off.
    selection_scores : array, c x 2
        If the number of topics was left to the data: numbers that were tried, and how many topics of each were found
        again in the other half of the documents.
    """

    n_documents: int
    n_empty: int | None
    n_short: int | None
    n_tokens: int | None
    n_components: int
    n_clear: int
    eigenvalues: FloatArray
    eigenvalue_errors: FloatArray
    noise_level: float
    reliable: NDArray[np.bool_]
    concentration: float
    weights: FloatArray
    residuals: FloatArray
    explained: float
    negative_mass: FloatArray
    selection_scores: IndexArray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))

    @property
    def n_replicated(self) -> int | None:
        """How many topics were found again in the other half of the documents; None if that was not tried."""
        found = self.selection_scores[self.selection_scores[:, 0] == self.n_components, 1]
        return int(found[0]) if found.size else None

    @property
    def mean_length(self) -> float | None:
        """Mean number of words in a document; None in a private model."""
        return None if self.n_tokens is None else self.n_tokens / max(self.n_documents, 1)


def diagnose(
    reduced: ReducedMoments, topics: SpectralTopics, n_documents: int, sums: WordSums | None = None
) -> TopicDiagnostics:
    """Collect the diagnostics of an estimate, in the order of `topics`; `sums` are None in a private model."""
    k = topics.alpha.size
    return TopicDiagnostics(
        n_documents=n_documents,
        n_empty=None if sums is None else sums.n_empty,
        n_short=None if sums is None else sums.n_short,
        n_tokens=None if sums is None else sums.n_tokens,
        n_components=k,
        n_clear=int(reduced.clear.sum()),
        eigenvalues=reduced.eigenvalues,
        eigenvalue_errors=reduced.eigenvalue_errors,
        noise_level=reduced.noise_level,
        reliable=reduced.clear[:k],
        concentration=float(topics.alpha.sum()),
        weights=topics.weights,
        residuals=topics.residuals,
        explained=topics.explained,
        negative_mass=topics.negative_mass,
    )


def warn_if_fewer(asked: int | str, learnt: int, n_documents: int) -> None:
    """Warn if fewer topics were learnt than asked for."""
    if isinstance(asked, str) or asked == learnt:
        return
    warnings.warn(
        "There must be as many distinct words as topics, and as many documents of three words. Got "
        f"n_components={asked} and {n_documents:,} documents that support {learnt}: so many were learnt. "
        "Lower n_components, or pass more documents.",
        UnreliableTopicsWarning,
        stacklevel=3,  # the line of the user that called fit
    )


def warn_if_unreliable(diagnostics: TopicDiagnostics) -> None:
    """Warn if the documents are too short or too few for this number of topics, with advice."""
    found = diagnostics
    bad = np.flatnonzero(~found.reliable)
    n_negative = int(np.sum(~(found.negative_mass <= _MOST_NEGATIVE)))
    if bad.size == 0 and n_negative == 0:
        return
    k = found.n_components
    are = "is" if bad.size == 1 else "are"
    if bad.size and found.mean_length is None:  # a private model judges the topics themselves
        what = f"{bad.size} of {k} topics {are} not clear of noise"
    elif bad.size:
        what = f"Of the {k} directions of word pairs that they rest on, {bad.size} {are} not clear of noise"
    else:
        what = f"{n_negative} of {k} topics had more than a third of their mass negative"
    of_length = "" if found.mean_length is None else f" of {found.mean_length:.1f} words on average"
    warnings.warn(
        f"All topics must stand clear of noise to be trusted. {what}, with {found.n_documents:,} documents{of_length}. "
        f"{_advice(found, bad)}",
        UnreliableTopicsWarning,
        stacklevel=3,  # the line of the user that called fit
    )


def _advice(found: TopicDiagnostics, bad: IndexArray) -> str:
    """Return what to do: take fewer topics if that many are not there, and else look at what stands out."""
    if found.n_clear < found.n_components:
        fewer = f", or lower n_components to {found.n_clear}" if found.n_clear else ""
        return f"Pass more or longer documents, or prune rare words{fewer}."
    if bad.size and bad[0] < found.eigenvalues.size and found.eigenvalues[bad[0]] > found.noise_level:
        return (
            f"Direction {bad[0]} is strong, but in few documents only: its strength differs between groups of "
            "documents by as much as its size. Look for documents that are very long or come many times, and weigh "
            'documents equally (document_weight="equal") or drop these.'
        )
    return "Pass more or longer documents, prune rare words, or lower n_components."
