"""The estimator of topics: latent Dirichlet allocation by tensor decomposition, refined by a few Gibbs sweeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from odeco._arguments import check_count
from odeco._types import FloatArray
from odeco.privacy import PrivacyReport, check_delta, check_epsilon
from odeco.rows import check_private_structure, check_structure, to_csr
from odeco.sources import is_on_cluster
from odeco.topics.bounded_counts import BoundedCounts, NeighbourRelation
from odeco.topics.corpus import CorpusHere
from odeco.topics.counts import DocumentWeight, as_counts
from odeco.topics.diagnostics import TopicDiagnostics, warn_if_unreliable
from odeco.topics.fitted import FittedTopics
from odeco.topics.infer import document_topics, log_likelihood
from odeco.topics.lda_file import load_model, save_model
from odeco.topics.lda_settings import LdaSettings, Tell, check_private, check_private_batches, check_settings
from odeco.topics.learn_at_once import learn_at_once, learn_public
from odeco.topics.learn_in_batches import TopicStream
from odeco.topics.learn_privately import Guarantee, learn_privately
from odeco.topics.learn_privately_in_batches import PrivateTopicStream, learn_batch_privately
from odeco.topics.private_topics import PublicTopics
from odeco.topics.private_vocabulary import PrivateVocabulary
from odeco.topics.trust import TopicTrust


class TensorLDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by decomposing the third moment of words, refined by a few Gibbs sweeps.

    Randomised subspace iteration whitens the pairs of words, the tensor power method decomposes the triples in the
    whitened coordinates, and what it finds is un-whitened and projected onto the simplex. That takes a few passes over
    the documents and needs no start. Collapsed Gibbs sampling then refines these topics.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of topics. ``"auto"`` takes the number, at most 100, for which the directions of word pairs stand clear
        of noise and two halves of the documents agree on most topics; `diagnostics_.tried` says what was tried.
        `partial_fit` needs a number.
    doc_topic_concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters that the moments are corrected with; it is small if a document has few
        topics. ``"auto"`` takes the value with which half of a document's words best predict the other half.
    refine : int
        Number of Gibbs sweeps; 0 gives the pure spectral topics. The sweeps also learn the Dirichlet parameters. Their
        topics are taken if they predict half of the words of documents from the other half clearly better.
    topic_word_prior : float, optional
        Prior count η of every word in every topic. By default the sweeps learn it; without sweeps it is 0.01.
    document_weight : {"length", "equal"}
        Whether a document counts in the moments as often as it has words, or once. Both are without bias; on real text
        longer documents tell more.
    n_oversamples : int
        How many directions beyond k subspace iteration keeps.
    n_passes : int
        Number of steps of subspace iteration.
    forget : float, optional
        In `partial_fit`, a document counts half after this many further documents. By default none is forgotten.
    n_inference_iterations : int
        The most rounds in which `transform` finds the proportions of a document.
    epsilon, delta : float, optional
        With both, the model is private: what `fit` learns is (ε, δ)-differentially private. δ must be below one over
        the number of units. See *Private models*.
    unit : {"document", "user"}
        Whom privacy protects: one document, or all documents of one user (see `fit`).
    neighbour_relation : {"replace", "add or remove"}
        For private models: whether the guarantee hides that a document (or all of a user) is replaced by any other, or
        that it is there or not (emptied; the number of documents is public). The first needs √2 times the noise.
    public : array or CSR array, documents x words, optional
        For private models: word counts, over the same vocabulary, of documents that need NO protection: other text, or
        documents whose owners agreed. Open topics of these are where the private ones start. They cost no budget,
        and nothing hides them: the model shows what they say.
    ledger : path, optional
        For private models: the file of the budget of all models of these documents together, made once with
        `odeco.privacy.LedgerFile.create`. It pays for each fit too, or refuses it; copies of the estimator, as a
        search over settings makes them, share it.
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
        The topics as pseudo-counts, as in scikit-learn's `LatentDirichletAllocation`: how many words of each kind
        belong to each topic, plus the prior. Rows divided by their sums are `topic_word_`. Made anew at each access.
    doc_topic_prior_ : array
        Dirichlet parameters α of the proportions of topics in a document.
    topic_word_prior_ : float
        The η that was used.
    diagnostics_ : TopicDiagnostics
        How far to trust the spectral topics. Topics are in the order of `topic_word_`.
    privacy_ : PrivacyReport
        What a private model guarantees to whom, and every release that was made. Other models do not have it.
    trust_ : TopicTrust
        How far to trust each topic of a private model, and each of its words. Other models do not have it.
    n_components_ : int
        Number of topics.
    n_documents_ : int
        Number of documents seen.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    After `fit`, topics are in the order of the Dirichlet parameters that the moments gave them, largest first; sweeps
    change the sizes of topics but not their order. `partial_fit` keeps the order of the first batch. After `fit`,
    `partial_fit` begins a new stream.

    **Private models.** With `epsilon` and `delta`, noisy sums over documents are all that is learnt from them: a
    histogram of lengths, the frequencies of the words, pairs of the most frequent words, and twice the words of all
    documents dealt to the topics so far. Each document adds an array of norm 1 to each sum, whatever it says.
    Neighbours are two corpora of the same size that differ in one document (or all of one user): replaced by any other,
    or with ``neighbour_relation="add or remove"`` emptied. The number of documents, their users and the vocabulary are
    public: one that was read off the same documents is covered only if `choose_vocabulary_privately` chose it, for the
    same neighbours, and `fit` is told. A document with a count that is negative, not whole or not finite counts as
    empty, without a message. There are no Gibbs sweeps, which would look at the documents without noise. `partial_fit`
    asks every batch on its own, with the whole budget: a document is in one batch, so each has (ε, δ) as long as no
    document is fed twice. `trust_` says which topics, and which of their words, would be found again under other noise.
    `transform` of a document shows that document: only the model is private. See docs/privacy.md.

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

    _fitted: FittedTopics | None
    _stream: TopicStream | PrivateTopicStream | None
    _seed: int
    n_documents_: int
    n_components_: int

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
        neighbour_relation: NeighbourRelation = "replace",
        public: Any = None,
        ledger: str | os.PathLike[str] | None = None,
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
        self.neighbour_relation = neighbour_relation
        self.public = public
        self.ledger = ledger
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        groups: Any = None,
        vocabulary: PrivateVocabulary | None = None,
        callback: Tell | None = None,
        client: Any = None,
    ) -> Self:
        """Learn topics from word counts.

        Parameters
        ----------
        X : array or CSR array, documents x words
            Word counts; or those of a Dask array or dataframe, which stay on their cluster, or with `client` the paths
            of files, as `odeco.dask.as_cluster_rows` takes them. The topics have the same bits as on one machine.
        y : object
            Ignored.
        groups : array of labels, optional
            For ``unit="user"``: whose each document is. Every user counts once.
        vocabulary : PrivateVocabulary, optional
            For private models: the words that `X` counts, if they were read off the same documents by
            `choose_vocabulary_privately`. What they have cost is then part of ε and δ, and of `privacy_`.
        callback : callable, optional
            Called with the stage ("pairs", "triples", "number of topics" or "sweeps"), how much of it is done, and of
            how much. A private fit does not call it.
        client : dask.distributed.Client, optional
            The cluster; by default that of the process, for Dask collections only.
        """
        settings = check_settings(self)
        seed = self._draw_seed()
        with self._words_kept_on_failure():
            if client is not None or is_on_cluster(X):
                rows = self._validated_on_cluster(X, client, reset=True)
                if check_private(self, groups, vocabulary):
                    raise ValueError(
                        "A private model is learnt on one machine. Got rows of a cluster. Pass an array of counts."
                    )
                fitted, counts = self._fitted_on_cluster(rows, settings, seed, callback), rows
            elif check_private(self, groups, vocabulary):
                counts = self._validated_privately(X, reset=True)
                held = BoundedCounts(counts, groups=groups, neighbour_relation=self.neighbour_relation)
                fitted = self._learn_privately(held, settings, vocabulary, seed)
            else:
                counts = as_counts(self._validated(X, reset=True))
                tell: Tell = (lambda *_: None) if callback is None else callback
                fitted = learn_at_once(CorpusHere(counts, settings), settings, seed=seed, tell=tell)
            self._take(fitted, None, seed, counts.shape[0], fitted.alpha.size)
        warn_if_unreliable(fitted.diagnostics)
        return self

    def _learn_privately(
        self, held: BoundedCounts, settings: LdaSettings, vocabulary: PrivateVocabulary | None, seed: int
    ) -> FittedTopics:
        """Learn with all of ε and δ, or with what a private vocabulary has left of them."""
        n_components, guarantee = self._promised()
        left = guarantee
        if vocabulary is not None:
            vocabulary.check_fits(n_words=held.n_words, unit=self.unit, neighbours=held.neighbours)
            epsilon, delta = vocabulary.left(guarantee.epsilon, guarantee.delta)
            left = replace(guarantee, epsilon=epsilon, delta=delta)
        fitted = learn_privately(
            held,
            n_components,
            concentration=settings.concentration,
            guarantee=left,
            public=self._public_topics(settings, seed),
            seed=seed,
        )
        if vocabulary is None or fitted.privacy is None:
            return fitted
        return replace(fitted, privacy=vocabulary.joined(fitted.privacy, guarantee.epsilon, guarantee.delta))

    def partial_fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        vocabulary: PrivateVocabulary | None = None,
    ) -> Self:
        """Learn from one more batch of documents; none is kept, and memory does not grow.

        The first batch must hold at least k documents of three words. The topics are worked out when they are next
        asked for. If anything ends the call early, an interrupt included, the model is as it was before; a model that
        takes more than 256 MB is not copied for that, and must then be loaded again from where it was last saved.

        A private model asks each batch with the whole budget (see *Private models*): no document may be fed twice.
        ``unit="user"`` and ``ledger`` are refused, and so is a private `vocabulary`: what it has cost the documents of
        which batch is not known. Take words that were not read off these documents.
        """
        settings = check_settings(self, in_batches=True)
        if check_private(self, None, vocabulary, in_batches=True):
            check_private_batches(self, vocabulary)
            return self._partial_fit_privately(X, settings)
        stream = getattr(self, "_stream", None)
        stream = stream if isinstance(stream, TopicStream) else None
        with self._words_kept_on_failure():
            counts = as_counts(self._validated(X, reset=stream is None))
            if stream is None:
                after = TopicStream.begin(settings, counts, self._draw_seed())
            else:
                self._fitted = None  # the topics before this batch may be large, and can be worked out again
                after = stream.updated(counts)
            self._take(None, after, after.seed, after.sums.n_documents, after.n_components)
        return self

    def _partial_fit_privately(self, X: Any, settings: LdaSettings) -> Self:
        stream = getattr(self, "_stream", None)
        before = stream if isinstance(stream, PrivateTopicStream) else None
        with self._words_kept_on_failure():
            counts = self._validated_privately(X, reset=before is None)
            n_components, guarantee = self._promised()
            seed = self._draw_seed() if before is None else before.seed
            after = learn_batch_privately(
                before,
                BoundedCounts(counts, neighbour_relation=self.neighbour_relation),
                n_components,
                concentration=settings.concentration,
                guarantee=guarantee,
                forget=settings.forget,
                public=None if before is not None else self._public_topics(settings, seed),
                seed=seed,
            )
            self._take(None, after, after.seed, after.n_documents, after.n_components)
        return self

    def _promised(self) -> tuple[int, Guarantee]:
        """Return the number of topics and the guarantee that a private model is asked for."""
        n_components = check_count("n_components", self.n_components)
        return n_components, Guarantee(check_epsilon(self.epsilon), check_delta(self.delta), self.ledger)

    def _public_topics(self, settings: LdaSettings, seed: int) -> PublicTopics | None:
        if self.public is None:
            return None
        return PublicTopics(learn_public(as_counts(self.public, self.n_features_in_), settings, seed=seed))

    @contextmanager
    def _words_kept_on_failure(self) -> Iterator[None]:
        """Go back to the words of the topics that the model has, if learning others fails."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: vars(self)[name] for name in names if name in vars(self)}
        try:
            yield
        except BaseException:
            for name in names:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def _take(
        self,
        fitted: FittedTopics | None,
        stream: TopicStream | PrivateTopicStream | None,
        seed: int,
        n_documents: int,
        n_components: int,
    ) -> None:
        """Make what was learnt the model's own, in one step: an interrupt finds all of it, or nothing."""
        learnt = {"_fitted": fitted, "_stream": stream, "_seed": seed}
        self.__dict__.update(learnt, n_documents_=n_documents, n_components_=n_components)

    def transform(self, X: Any) -> FloatArray:
        """Return the expected proportions of topics in each document, documents x topics; rows sum to one.

        Those of documents on a cluster are a Dask array, which workers make when it is wanted.
        """
        if is_on_cluster(X):
            return cast("FloatArray", self._asked_of_cluster("proportions_on_cluster", X))
        return self._inferred(X)[1]

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002 - scikit-learn's signature
        """Return the log-likelihood of the words of documents, given the topics and the proportions that fit them.

        A private model refuses: a search over settings calls this, and would choose by the exact documents that each
        model was made to hide. Choose the settings on public documents, with `perplexity`.
        """
        if hasattr(self, "privacy_"):
            raise ValueError(
                "The score of a private model must not choose between models: it is exact, and no budget pays for it. "
                "Got a call of score. For documents that need no protection call perplexity."
            )
        return self._likelihood(X)[0]

    def perplexity(self, X: Any) -> float:
        """Return exp(−log-likelihood per word). For unseen words of seen documents use document completion."""
        likelihood, n_words = self._likelihood(X)
        return float(np.exp(-likelihood / max(n_words, 1.0)))

    @property
    def topic_word_(self) -> FloatArray:
        """Topics as distributions over words, k x V."""
        return self._fitted_topics("topic_word_").topic_word

    @property
    def components_(self) -> FloatArray:
        """Topics as pseudo-counts, k x V."""
        fitted = self._fitted_topics("components_")
        return fitted.topic_word * fitted.totals[:, None]

    @property
    def doc_topic_prior_(self) -> FloatArray:
        """Dirichlet parameters of the proportions of topics in a document."""
        return self._fitted_topics("doc_topic_prior_").alpha

    @property
    def topic_word_prior_(self) -> float:
        """Prior count of every word in every topic."""
        return self._fitted_topics("topic_word_prior_").eta

    @property
    def diagnostics_(self) -> TopicDiagnostics:
        """How far to trust the spectral topics."""
        return self._fitted_topics("diagnostics_").diagnostics

    @property
    def privacy_(self) -> PrivacyReport:
        """What is guaranteed about the topics, if they are private: it belongs to them and goes with them."""
        privacy = self._fitted_topics("privacy_").privacy
        if privacy is None:
            raise AttributeError("`privacy_` is what a private model has. This TensorLDA was learnt without privacy.")
        return privacy

    @property
    def trust_(self) -> TopicTrust:
        """How far to trust the topics of a private model, and their words."""
        trust = self._fitted_topics("trust_").trust
        if trust is None:
            raise AttributeError("`trust_` is what a private model has. This TensorLDA was learnt without privacy.")
        return trust

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, with where its stream stands, to an ``.npz`` file: atomically and without pickle."""
        check_is_fitted(self)
        save_model(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TensorLDA:
        """Read what `save` wrote. A stream goes on from there as if it had not been interrupted, to the last bit."""
        return load_model(cls, path)

    def _fitted_topics(self, name: str) -> FittedTopics:
        """Return what was learnt, worked out anew if documents have come since; `name` is what the caller wants."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"`{name}` must be learnt first. This TensorLDA is not fitted. Call fit.")
        if self._fitted is None and self._stream is not None:
            self._fitted = self._stream.fitted()
        return cast("FittedTopics", self._fitted)

    def _inferred(self, X: Any) -> tuple[Any, FloatArray]:
        """Return the checked counts of documents, and the proportions of topics in each."""
        check_is_fitted(self)
        counts = as_counts(self._validated(X, reset=False)).astype(np.int64)
        settings, fitted = check_settings(self), self._fitted_topics("topic_word_")
        proportions = document_topics(
            counts,
            fitted.topic_word,
            fitted.alpha,
            n_iterations=settings.n_inference_iterations,
            n_jobs=settings.n_jobs,
        )
        return counts, proportions

    def _likelihood(self, X: Any) -> tuple[float, float]:
        """Return the log-likelihood of the words of documents, and how many words they have."""
        if is_on_cluster(X):
            return cast("tuple[float, float]", self._asked_of_cluster("likelihood_on_cluster", X))
        counts, proportions = self._inferred(X)
        return float(np.sum(log_likelihood(counts, self.topic_word_, proportions))), float(counts.sum())

    def _asked_of_cluster(self, name: str, X: Any) -> Any:
        """Return what a function of `infer_on_cluster` answers about documents there."""
        from odeco.topics import infer_on_cluster  # Dask takes a second, and may be missing

        check_is_fitted(self)
        rows, n_rounds = self._validated_on_cluster(X, None, reset=False), check_settings(self).n_inference_iterations
        return getattr(infer_on_cluster, name)(rows, self._fitted_topics("topic_word_"), n_rounds)

    def _fitted_on_cluster(self, rows: Any, settings: LdaSettings, seed: int, callback: Tell | None) -> FittedTopics:
        from odeco.topics.corpus_on_cluster import CorpusOnCluster  # Dask takes a second, and may be missing

        tell: Tell = (lambda *_: None) if callback is None else callback
        return learn_at_once(CorpusOnCluster(rows, settings), settings, seed=seed, tell=tell)

    def _validated_on_cluster(self, X: Any, client: Any, *, reset: bool) -> Any:
        """Return documents on a cluster; their counts are checked where they are."""
        from odeco.dask import as_cluster_rows

        rows = as_cluster_rows(X, client)
        if reset:
            self.__dict__.pop("feature_names_in_", None)
            self.n_features_in_ = rows.n_features
        elif rows.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {rows.n_features} features, but TensorLDA is expecting {self.n_features_in_} features as input."
            )
        return rows

    def _validated(self, X: Any, *, reset: bool) -> Any:
        if sparse.issparse(X):
            X = to_csr(X)
            check_structure(X)
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric")

    def _validated_privately(self, X: Any, *, reset: bool) -> Any:
        """Return word counts as an array, without a word that depends on one of them.

        What NumPy makes of a list, and what it says about a cell that is no number, depends on the cells. So only
        arrays of numbers are taken, and whether a count is finite is not asked here.
        """
        types = {dtype.kind for dtype in X.dtypes} if hasattr(X, "dtypes") and hasattr(X, "iloc") else None
        if types is None and not (isinstance(X, np.ndarray) or sparse.issparse(X)):
            raise TypeError(
                "Private word counts must be a NumPy array, a CSR array or a table of numbers. "
                f"Got {type(X).__name__}. Convert them."
            )
        if not (types or {X.dtype.kind}) <= set("iufb"):
            raise TypeError("Private word counts must be numbers. Got another type of array or column. Convert them.")
        check_private_structure(X)
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_documents_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # whole numbers; scikit-learn has no nearer tag for counts
        return tags
