"""Topics of documents: latent Dirichlet allocation by tensor decomposition, refined by a few likelihood sweeps."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._arguments import check_count
from odeco._types import FloatArray
from odeco.privacy import check_delta, check_epsilon
from odeco.topics import files as _lda_file
from odeco.topics.bounded import BoundedCounts
from odeco.topics.concentration import choose_concentration, clearly_better, completion_scores
from odeco.topics.counts import DocumentWeight, as_counts, count_chunks
from odeco.topics.diagnostics import TopicDiagnostics, diagnose, warn_if_unreliable
from odeco.topics.gibbs import refine_topics
from odeco.topics.inference import document_topics, log_likelihood
from odeco.topics.learnt import LearntTopics, smoothed
from odeco.topics.online import OnlineLda
from odeco.topics.private import learn_privately
from odeco.topics.settings import LdaSettings, check_private, check_settings, check_supported, size_of_basis
from odeco.topics.spectral import SpectralTopics, find_basis, reduce_moments, topics_at
from odeco.topics.sums import WordSums, check_usable


class TensorLDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by decomposing the third moment of words, refined by a few Gibbs sweeps.

    Pairs of words are whitened by randomised subspace iteration, triples in the whitened coordinates are decomposed by
    the tensor power method, and what is found is un-whitened and projected onto the simplex. That takes a few passes
    over the documents and needs no start. The topics are then refined by collapsed Gibbs sampling, begun with them.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of topics. ``"auto"`` takes as many as pairs of words stand clear of noise, at most 100; see
        `diagnostics_`. Not with `partial_fit`.
    doc_topic_concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters that the moments are corrected with: small if a document has few topics.
        ``"auto"`` takes the value with which half of a document's words best predict the other half.
    refine : int
        Number of Gibbs sweeps; 0 gives the pure spectral topics. The sweeps also learn the Dirichlet parameters. Their
        topics are taken if they predict half of the words of documents from the other half clearly better.
    topic_word_prior : float, optional
        Prior count η of every word in every topic. By default it is learnt in the sweeps, and 0.01 without them.
    document_weight : {"length", "equal"}
        Whether a document counts in the moments as often as it has words, or once. Both are without bias; on real text
        longer documents tell more.
    n_oversamples : int
        Directions beyond k that subspace iteration keeps.
    n_passes : int
        Steps of subspace iteration.
    forget : float, optional
        For `partial_fit`: after how many further documents a document counts half. By default none is forgotten.
    n_inference_iterations : int
        Rounds in which the proportions of a document are found by `transform`.
    epsilon, delta : float, optional
        For a private model, both: what `fit` learns is (ε, δ)-differentially private, with δ below one over the number
        of units. See *Private models*.
    unit : {"document", "user"}
        Whom that protects: one document, or all documents of one user (see `fit`).
    random_state : int, RandomState instance or None
        Draws the first basis, the starts of the power method and the sweeps.
    n_jobs : int or None
        Number of threads of the sweeps; 1 runs everything on one thread, None and −1 on all cores. The result does not
        depend on it.

    Attributes
    ----------
    topic_word_ : array, k x V
        The topics; each row is a distribution over words.
    components_ : array, k x V
        The same as pseudo-counts, as in scikit-learn's `LatentDirichletAllocation`: how many words of each kind belong
        to each topic, plus the prior. Rows divided by their sums are `topic_word_`. Made anew at each access.
    doc_topic_prior_ : array
        Dirichlet parameters α of the proportions of topics in a document.
    topic_word_prior_ : float
        The η that was used.
    diagnostics_ : TopicDiagnostics
        How far to trust the spectral topics. Topics are in the order of `topic_word_`.
    privacy_ : PrivacyReport
        Of a private model: what is guaranteed to whom, and every release that was made.
    n_components_ : int
        Number of topics.
    n_documents_ : int
        Documents seen.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    After `fit`, topics are in the order of the Dirichlet parameters that the moments gave them, largest first; sweeps
    change the sizes of topics but not their order. `partial_fit` keeps the order of the first batch. After `fit`,
    `partial_fit` begins a new stream.

    **Private models.** With `epsilon` and `delta`, four noisy answers are all that is learnt from the documents: a
    histogram of how concentrated they are, the frequencies of the words, pairs of words, and triples in the span of
    the topics. What a document can add is bounded by construction. Neighbours are two corpora of the same size that
    differ in one document (or all of one user), replaced by any other. The number of documents, their users and the
    vocabulary are public: a vocabulary that was read off the same documents is not covered. A document with a
    count that is none counts as empty, without a message. There is no refinement, which would look at the documents
    again, and no `partial_fit`. Topics that do not stand clear of the noise are copies of what the others leave
    unexplained of the word frequencies; they come last. `transform` of a document shows that document: only the model
    is private. See docs/privacy.md.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable models*, 2014,
    arXiv:1210.7559. Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016,
    arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.datasets import planted_topics
    >>> from odeco.models import TensorLDA
    >>> corpus = planted_topics(2000, 30, [0.3, 0.2, 0.1], rng=0)
    >>> model = TensorLDA(3, refine=0, random_state=0).fit(corpus.counts)
    >>> model.topic_word_.shape, model.transform(corpus.counts[:5]).shape
    ((3, 30), (5, 3))
    """

    def __init__(
        self,
        n_components: int | Literal["auto"] = 10,
        *,
        doc_topic_concentration: float | Literal["auto"] = "auto",
        refine: int = 20,
        topic_word_prior: float | None = None,
        document_weight: DocumentWeight = "length",
        n_oversamples: int = 10,
        n_passes: int = 4,
        forget: float | None = None,
        n_inference_iterations: int = 50,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Literal["document", "user"] = "document",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_concentration = doc_topic_concentration
        self.refine = refine
        self.topic_word_prior = topic_word_prior
        self.document_weight = document_weight
        self.n_oversamples = n_oversamples
        self.n_passes = n_passes
        self.forget = forget
        self.n_inference_iterations = n_inference_iterations
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        groups: Any = None,
        callback: Callable[[str, int, int], object] | None = None,
    ) -> Self:
        """Learn topics from word counts, documents x words; sparse or dense.

        With ``unit="user"``, `groups` holds one label a document: whose it is. Every user counts once. The `callback`
        is told the stage ("pairs", "triples", "sweeps"), and how much of it is done of how much.
        """
        settings = check_settings(self)
        if check_private(self, groups):
            return self._fit_privately(X, groups, settings)
        counts = as_counts(self._validated(X, reset=True))
        seed = self._draw_seed()
        tell: Callable[[str, int, int], object] = (lambda *_: None) if callback is None else callback
        spectral, diagnostics = _spectral(counts, settings, seed, tell)
        learnt = _refined(counts, spectral, diagnostics, settings, seed, tell) if settings.refine else None
        if learnt is None:
            prior = settings.topic_word_prior
            learnt = smoothed(spectral.topic_word, spectral.alpha, float(counts.sum()), prior, diagnostics)
        self._learnt: LearntTopics | None = learnt
        self._online: OnlineLda | None = None
        self.__dict__.pop("privacy_", None)  # of an earlier fit
        self._seed, self.n_documents_, self.n_components_ = seed, counts.shape[0], learnt.alpha.size
        warn_if_unreliable(diagnostics, stacklevel=2)
        return self

    def _fit_privately(self, X: Any, groups: Any, settings: LdaSettings) -> Self:
        """Learn from noisy answers only; whether all counts are finite, say, is known to nobody."""
        counts = validate_data(self, X, reset=True, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)
        seed = self._draw_seed()
        found = learn_privately(
            BoundedCounts(counts, groups=groups),
            check_count("n_components", self.n_components),
            concentration=settings.concentration,
            epsilon=check_epsilon(self.epsilon),
            delta=check_delta(self.delta),
            seed=seed,
        )
        topics, diagnostics = found.topics, found.diagnostics(counts.shape[0])
        totals = counts.shape[0] * topics.alpha / topics.alpha.sum()
        self._learnt = LearntTopics(topics.topic_word, totals, topics.alpha, 0.0, diagnostics)
        self._online, self.privacy_ = None, found.privacy
        self._seed, self.n_documents_, self.n_components_ = seed, counts.shape[0], topics.alpha.size
        warn_if_unreliable(diagnostics, stacklevel=3)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Learn from one more batch of documents; none is kept, and memory does not grow.

        The first batch must hold at least k documents of three words. The topics are worked out when they are next
        asked for.
        """
        settings = check_settings(self, online=True)
        if self.epsilon is not None or self.delta is not None:
            raise ValueError("A private model is learnt from all documents at once. Got partial_fit. Call fit.")
        online: OnlineLda | None = getattr(self, "_online", None)
        counts = as_counts(self._validated(X, reset=online is None))
        if online is None:
            online = OnlineLda(settings, counts.shape[1], self._draw_seed())
            online.check_first(counts)
        self._learnt, self._online, self._seed = None, online, online.seed
        online.update(counts)
        self.n_documents_, self.n_components_ = online.n_documents, online.n_components
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the expected proportions of topics in each document, documents x topics; rows sum to one."""
        counts = self._counts_for_topics(X)
        return self._proportions(counts)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the log-likelihood of the words of documents, given the topics and the proportions that fit them."""
        counts = self._counts_for_topics(X)
        return float(np.sum(log_likelihood(counts, self.topic_word_, self._proportions(counts))))

    def perplexity(self, X: Any) -> float:
        """Return exp(−log-likelihood per word). For unseen words of seen documents use document completion."""
        counts = self._counts_for_topics(X)
        likelihood = float(np.sum(log_likelihood(counts, self.topic_word_, self._proportions(counts))))
        return float(np.exp(-likelihood / max(float(counts.sum()), 1.0)))

    @property
    def topic_word_(self) -> FloatArray:
        """Topics as distributions over words, k x V."""
        return self._answer("topic_word_").topic_word

    @property
    def components_(self) -> FloatArray:
        """Topics as pseudo-counts, k x V."""
        answer = self._answer("components_")
        return answer.topic_word * answer.totals[:, None]

    @property
    def doc_topic_prior_(self) -> FloatArray:
        """Dirichlet parameters of the proportions of topics in a document."""
        return self._answer("doc_topic_prior_").alpha

    @property
    def topic_word_prior_(self) -> float:
        """Prior count of every word in every topic."""
        return self._answer("topic_word_prior_").eta

    @property
    def diagnostics_(self) -> TopicDiagnostics:
        """How far to trust the spectral topics."""
        return self._answer("diagnostics_").diagnostics

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_documents_")

    def _answer(self, name: str) -> LearntTopics:
        """Return what was learnt, worked out anew if documents have come since."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"`{name}` must be learnt first. This TensorLDA is not fitted. Call fit.")
        if self._learnt is None and self._online is not None:
            self._learnt = self._online.learnt()
        return cast("LearntTopics", self._learnt)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, with where its stream stands, to an ``.npz`` file: atomically and without pickle."""
        check_is_fitted(self)
        _lda_file.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TensorLDA:
        """Read what `save` wrote. A stream goes on from there as if it had not been interrupted, to the last bit."""
        return _lda_file.load(cls, path)

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")

    def _counts_for_topics(self, X: Any) -> Any:
        check_is_fitted(self)
        return as_counts(self._validated(X, reset=False)).astype(np.int64)

    def _proportions(self, counts: Any) -> FloatArray:
        settings = check_settings(self)
        return document_topics(
            counts,
            self.topic_word_,
            self.doc_topic_prior_,
            n_iterations=settings.n_inference_iterations,
            n_jobs=settings.n_jobs,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # whole numbers; scikit-learn has no nearer tag for counts
        return tags


def _refined(
    counts: Any,
    spectral: SpectralTopics,
    diagnostics: TopicDiagnostics,
    settings: LdaSettings,
    seed: int,
    tell: Callable[[str, int, int], object],
) -> LearntTopics | None:
    """Return the topics after some Gibbs sweeps, or None if they do not predict the words of documents clearly better.

    That is so where documents mix all topics evenly: the moments are then exact, and sweeps move slowly.
    """
    tell("sweeps", 0, settings.refine)
    refined = refine_topics(
        counts.astype(np.int64),
        spectral.topic_word,
        spectral.alpha,
        n_sweeps=settings.refine,
        seed=seed,
        n_jobs=settings.n_jobs,
        eta=settings.topic_word_prior,
        callback=lambda sampler: tell("sweeps", sampler.n_swept, settings.refine),
    )
    topic_word = refined.topic_word
    frequencies, ones = np.asarray(counts.sum(axis=0)) / counts.sum(), np.ones(spectral.alpha.size)
    before, after = (
        completion_scores(topics, alpha, frequencies, counts, seed=seed, n_jobs=settings.n_jobs, sizes=ones)
        for topics, alpha in ((spectral.topic_word, spectral.alpha), (topic_word, refined.alpha))
    )
    if not clearly_better(after, before):
        return None
    totals = refined.topic_counts.sum(axis=1, dtype=np.float64) + refined.eta * counts.shape[1]
    return LearntTopics(topic_word, totals, refined.alpha, refined.eta, diagnostics)


def _spectral(
    counts: Any, settings: LdaSettings, seed: int, tell: Callable[[str, int, int], object]
) -> tuple[SpectralTopics, TopicDiagnostics]:
    """Return the topics that the moments of all documents give."""
    n_words = counts.shape[1]
    chunks = tuple(count_chunks(counts, weigh=settings.weigh))
    words = WordSums(n_words)
    words.update(chunks)
    check_usable(words)
    check_supported(settings.n_components, words)
    size = size_of_basis(settings, n_words)
    tell("pairs", 0, 1)
    basis = find_basis(chunks, n_words, size, n_passes=settings.n_passes, seed=seed, parallel=settings.parallel)
    tell("triples", 0, 1)
    sums = WordSums(n_words, basis, weigh=settings.weigh, parallel=settings.parallel)
    sums.update(chunks)
    del basis, chunks
    sums.drop_basis()
    reduced = reduce_moments(sums, settings.n_components)
    concentration, near = settings.concentration, None
    if concentration is None:
        concentration, near = choose_concentration(reduced, sums, counts, seed=seed, n_jobs=settings.n_jobs)
    topics = topics_at(concentration, reduced, sums, seed=seed, near=near)
    return topics, diagnose(sums, reduced, topics)
