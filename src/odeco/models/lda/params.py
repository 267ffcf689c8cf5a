"""Settings, parameters and diagnostics of a topic model, and how far to trust private topics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from odeco._util.state import State, array_field, part_field
from odeco._util.types import FloatArray, IndexArray
from odeco.errors import UnreliableTopicsWarning

if TYPE_CHECKING:
    from odeco.models.lda.moments import WordSums
    from odeco.models.lda.spectral import ReducedMoments, SpectralTopics


#: Receives the stage of the work, the number of finished steps and that of all steps.
Callback = Callable[[str, int, int], object]


#: The largest number of topics that is selected.
MAX_AUTO = 100

#: Subspace iteration keeps this number of directions beyond that of topics.
N_OVERSAMPLES = 10


@dataclass(frozen=True)
class LdaSettings:
    """Checked settings of a fit, as `TensorLDA` has them; `concentration` is None if it is to be
    selected.
    """

    n_components: int | Literal["auto"]
    concentration: float | None
    max_iter: int
    topic_word_prior: float | None = None

    def basis_size(self, n_words: int) -> int:
        """Return the number of directions that subspace iteration keeps."""
        k = MAX_AUTO if isinstance(self.n_components, str) else self.n_components
        return min(k + N_OVERSAMPLES, n_words)


#: Prior count of every word in every topic where none is given and none is learnt.
_DEFAULT_TOPIC_WORD_PRIOR = 0.01

#: A topic with a larger negative share of its mass is more noise than signal.
_MAX_NEGATIVE = 1 / 3

#: A private topic is clear if noise is at most a tenth of what sets it apart from all words, in
#: squares.
CLEAR = 0.9**0.5

#: The probability of a word in a private topic must be at least this many standard deviations of
#: its noise.
_CLEAR_WORD = 2.0


@dataclass(frozen=True, eq=False)
class TopicDiagnostics(State):
    """Evidence for the topics from the moments.

    Attributes
    ----------
    n_documents : int
        Number of documents seen.
    n_empty, n_short, n_tokens : int or None
        Number of documents without a word, of those with one or two words (which add nothing), and
        of words seen. None in a private model.
    n_components : int
        Number of topics.
    n_clear : int
        Number of eigenvalues that are clear of noise: the number of topics that the pairs of words
        support, at most the number that was computed. In a private model, the number of topics that
        are known to be clear (see `TopicTrust`).
    eigenvalues, eigenvalue_errors : arrays
        Strength of the directions that whitening divides by, largest first, with standard errors;
        more than k of them. The errors are NaN if there are too few documents to estimate them.
    noise_level : float
        The largest eigenvalue that documents without topics would show.
    reliable : array of k bool
        Which of the k whitening directions are clear of noise; in a private model, which topics
        are.
    concentration : float
        The α₀ that the moments were corrected with.
    weights, residuals : arrays
        Weights and residuals of the components of the whitened third moment, one for each topic;
        NaN for a topic that this moment does not hold.
    explained : float
        Share of the squared norm of the whitened third moment that the components explain.
    negative_mass : array
        For each topic the share of its mass that was negative and was set to zero.
    selection_scores : array, c x 2
        With ``n_components="auto"``: the numbers of topics that were tried, and how many topics of
        each were replicated in the other half of the documents, on average over three ways to make
        halves.
    """

    n_documents: int = array_field(kind="i", low=0)
    n_components: int = array_field(kind="i", low=1)
    n_clear: int = array_field(kind="i", low=0)
    eigenvalues: FloatArray = array_field("directions")
    eigenvalue_errors: FloatArray = array_field("directions", low=0, nan=True)
    noise_level: float = array_field()
    reliable: NDArray[np.bool_] = array_field(None, kind="b")
    concentration: float = array_field()
    weights: FloatArray = array_field("k", nan=True)
    residuals: FloatArray = array_field("k", nan=True)
    explained: float = array_field()
    negative_mass: FloatArray = array_field("k", nan=True)
    n_empty: int | None = array_field(kind="i", low=0, default=None)
    n_short: int | None = array_field(kind="i", low=0, default=None)
    n_tokens: int | None = array_field(kind="i", low=0, default=None)
    selection_scores: IndexArray = array_field(
        None, None, kind="i", low=0, default=np.zeros((0, 2), dtype=np.int64)
    )

    @property
    def n_replicated(self) -> int | None:
        """Number of topics that were replicated in the other half of the documents; None if that
        was not tried.
        """
        found = self.selection_scores[self.selection_scores[:, 0] == self.n_components, 1]
        if found.size:
            return int(found[0])
        return None

    @property
    def mean_length(self) -> float | None:
        """Mean number of words in a document; None in a private model."""
        if self.n_tokens is None:
            return None
        return self.n_tokens / max(self.n_documents, 1)


@dataclass(frozen=True, eq=False)
class TopicTrust(State):
    """How far to trust each private topic, and each of its words, by the noise that was added.

    Attributes
    ----------
    signal : array of k numbers
        The cosine that each topic can be expected to have with what it would be without the noise,
        both after subtracting the frequencies of all words: 1 if nothing of it is noise, 0 if all
        is.
    n_shown : int
        The number of directions of the released pairs of words that stand clear of noise.
    deviations : array, k x V
        Standard deviations of the probabilities of words in topics.
    """

    signal: FloatArray = array_field("k", low=0, high=1)
    n_shown: int = array_field(kind="i", low=0)
    deviations: FloatArray = array_field("k", "n_features", low=0)

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which topics are clear: noise is at most a tenth of what sets them apart from all words,
        signal² ≥ 0.9.

        At most as many are as the pairs show, the surest first; none if they show one direction, as
        documents without topics do.
        """
        ranks = np.argsort(np.argsort(-self.signal, kind="stable"))
        shown = (ranks < self.n_shown) & (self.n_shown > 1)
        return np.asarray(shown & (self.signal >= CLEAR))

    def clear_words(self, topic_word: FloatArray) -> NDArray[np.bool_]:
        """Return which words of which topics, k x V, have at least twice the standard deviation of
        their noise.
        """
        return np.asarray(topic_word >= _CLEAR_WORD * self.deviations)


@dataclass(frozen=True, eq=False)
class TopicParams(State):
    """The parameters of a topic model, with its diagnostics.

    Attributes
    ----------
    topic_word : array, k x V
        The topics; rows are distributions.
    totals : array
        Number of words in each topic, prior counts included.
    alpha : array
        Dirichlet parameters of the proportions of topics in a document.
    eta : float
        Prior count of every word in every topic.
    diagnostics : TopicDiagnostics
        How far to trust the spectral topics.
    trust : TopicTrust or None
        How far to trust private topics; None for others.
    """

    topic_word: FloatArray = array_field("k", "n_features", low=0, high=1)
    totals: FloatArray = array_field("k", low=0)
    alpha: FloatArray = array_field("k", low=0)
    eta: float = array_field(low=0)
    diagnostics: TopicDiagnostics = part_field(TopicDiagnostics)
    trust: TopicTrust | None = part_field(TopicTrust, default=None)

    @property
    def shares(self) -> FloatArray:
        """Share of all words that belongs to each topic."""
        return np.asarray(self.totals / self.totals.sum())

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which topics are clear of the noise that was added; all of a model without privacy."""
        if self.trust is None:
            return np.ones(len(self.alpha), dtype=bool)
        return self.trust.clear

    @property
    def clear_words(self) -> NDArray[np.bool_]:
        """Which words of which topics, k x V, are clear of the noise that was added."""
        if self.trust is None:
            return np.ones(self.topic_word.shape, dtype=bool)
        return self.trust.clear_words(self.topic_word)

    @classmethod
    def from_shares(
        cls,
        topic_word: FloatArray,
        alpha: FloatArray,
        n_tokens: float,
        eta: float | None,
        diagnostics: TopicDiagnostics,
    ) -> TopicParams:
        """Return topics that share `n_tokens` words in proportion to `alpha`."""
        sizes = n_tokens * alpha / alpha.sum()
        prior = _DEFAULT_TOPIC_WORD_PRIOR if eta is None else eta
        return cls.from_counts(topic_word * sizes[:, None], alpha, prior, diagnostics)

    @classmethod
    def from_counts(
        cls, topic_counts: Any, alpha: FloatArray, eta: float, diagnostics: TopicDiagnostics
    ) -> TopicParams:
        """Return the topics of word counts, k x V, with the prior added."""
        totals = topic_counts.sum(axis=1, dtype=np.float64) + eta * topic_counts.shape[1]
        topic_word = topic_counts.astype(np.float64)
        topic_word += eta
        topic_word /= totals[:, None]
        return cls(topic_word, totals, alpha, float(eta), diagnostics)

    def largest_first(self, first: Sequence[int] | IndexArray = ()) -> TopicParams:
        """Return the topics in the order of their sizes, but for those that come `first`, with
        their diagnostics.
        """
        sizes = self.totals.copy()
        sizes[list(first)] = np.inf
        order = np.argsort(-sizes, kind="stable")
        order[: len(first)] = first
        if np.array_equal(order, np.arange(order.size)):
            return self
        return self.permuted(order)


def diagnose(reduced: ReducedMoments, topics: SpectralTopics, sums: WordSums) -> TopicDiagnostics:
    """Collect the diagnostics of an estimate, in the order of `topics`."""
    k = topics.alpha.size
    return TopicDiagnostics(
        n_documents=sums.n_documents,
        n_empty=sums.n_empty,
        n_short=sums.n_short,
        n_tokens=sums.n_tokens,
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


def warn_if_unreliable(diagnostics: TopicDiagnostics) -> None:
    """Warn if the documents are too short or too few for this number of topics, with advice."""
    found = diagnostics
    bad = np.flatnonzero(~found.reliable)
    n_negative = int(np.sum(~(found.negative_mass <= _MAX_NEGATIVE)))
    if bad.size == 0 and n_negative == 0:
        return
    k = found.n_components
    are = "is" if bad.size == 1 else "are"
    if bad.size and found.mean_length is None:  # a private model assesses the topics themselves
        what = f"{bad.size} of {k} topics {are} not clear of noise"
    elif bad.size:
        what = (
            f"Of the {k} directions of word pairs that they rest on, {bad.size} {are} not clear "
            "of noise"
        )
    else:
        what = f"{n_negative} of {k} topics had more than a third of their mass negative"
    of_length = "" if found.mean_length is None else f" of {found.mean_length:.1f} words on average"
    warnings.warn(
        f"All topics must stand clear of noise to be trusted. {what}, with {found.n_documents:,} "
        f"documents{of_length}. {_advice(found, bad)}",
        UnreliableTopicsWarning,
        stacklevel=3,  # the line of the user that called fit
    )


def _advice(found: TopicDiagnostics, bad: IndexArray) -> str:
    """Return what to do: take fewer topics if the documents support fewer, or look at what is
    unreliable.
    """
    if found.n_clear < found.n_components:
        fewer = f", or lower n_components to {found.n_clear}" if found.n_clear else ""
        return f"Pass more or longer documents, or prune rare words{fewer}."
    if (
        bad.size
        and bad[0] < found.eigenvalues.size
        and found.eigenvalues[bad[0]] > found.noise_level
    ):
        return (
            f"Direction {bad[0]} is strong, but in few documents only: its strength differs "
            "between groups of documents by as much as its size. Look for documents that are very "
            "long or come many times, and drop these."
        )
    return "Pass more or longer documents, prune rare words, or lower n_components."
