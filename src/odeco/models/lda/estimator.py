"""The estimator of topics: latent Dirichlet allocation by tensor decomposition, refined by a few Gibbs sweeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from odeco._util.types import FloatArray
from odeco.display.progress import reporting
from odeco.io.source import is_on_cluster
from odeco.models.lda.cluster import learn_on_cluster, likelihood_there, proportions_there, rows_on_cluster
from odeco.models.lda.corpus import LocalCorpus
from odeco.models.lda.counts import DocumentWeight, as_counts
from odeco.models.lda.diagnostics import warn_if_fewer, warn_if_unreliable
from odeco.models.lda.files import load_model, save_model
from odeco.models.lda.inference import document_topics, log_likelihood
from odeco.models.lda.learn import fit_topics
from odeco.models.lda.private import PrivateTopicStream, fit_privately, update_privately
from odeco.models.lda.private_vocabulary import PrivateVocabulary
from odeco.models.lda.result import FittedTopics
from odeco.models.lda.settings import (
    Callback,
    check_private,
    check_private_batches,
    check_settings,
    checked_words,
    columns_kept_on_failure,
    validated,
    validated_privately,
)
from odeco.models.lda.stream import TopicStream
from odeco.models.lda.text import TextTopics
from odeco.models.lda.vocabulary import MAX_ITER, Tokenizer, Words
from odeco.privacy.holders.protocol import NeighbourRelation


class TensorLDA(TextTopics, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by decomposing the third moment of words, refined by a few Gibbs sweeps.

    Randomised subspace iteration whitens the pairs of words, the tensor power method decomposes the triples in the
    whitened coordinates, and what it finds is un-whitened and projected onto the simplex. That takes a few passes over
    the documents and needs no start. Collapsed Gibbs sampling then refines these topics.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of topics. Fewer are learnt, with a warning, if there are fewer distinct words, or fewer documents of
        three words. ``"auto"`` takes the number, at most 100, for which the directions of word pairs stand clear
        of noise and two halves of the documents agree on most topics; `diagnostics_.selection_scores`
        lists the numbers tried. `partial_fit` needs a number.
    doc_topic_concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters that the moments are corrected with; it is small if a document has few
        topics. ``"auto"`` takes the value with which half of a document's words best predict the other half.
    max_iter : int
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
    max_doc_update_iter : int
        The most rounds in which `transform` finds the proportions of a document.
    epsilon, delta : float, optional
        With both, the model is private: what `fit` learns is (ε, δ)-differentially private. δ must be below one over
        the number of units. See *Private models*.
    unit : {"document", "user"}
        Whom privacy protects: one document, or all documents of one user (see `fit`).
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a document (or all of a user) is replaced by any other, or
        that it is there or not (blanked; the number of documents is public). The first needs √2 times the noise.
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
    verbose : int
        With 1, `fit` writes a line to stdout when a stage of its work begins; with 2, one for every sweep too.

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
    words_ : array of str
        The words that the columns count, if the model knows them (see `fit` and `fit_text`).
    tokenizer_ : str or None
        How texts were cut into these words, if the model knows it.
    shares_ : array
        Share of all words that belongs to each topic.
    n_iter_ : int
        Number of Gibbs sweeps over each document, or of EM steps of a private model.
    n_components_ : int
        Number of topics.
    n_samples_seen_ : int
        Number of documents seen.
    n_features_in_, feature_names_in_
        As in every estimator of scikit-learn.

    Notes
    -----
    After `fit`, topics are in the order of their shares, largest first. `partial_fit` keeps the order of the first
    batch, so that a topic keeps its number. After `fit`, `partial_fit` begins a new stream.

    **Private models.** With `epsilon` and `delta`, noisy sums over documents are all that is learnt from them: a
    histogram of lengths, the frequencies of the words, pairs of the most frequent words, and twice the words of all
    documents dealt to the topics so far. Each document adds an array of norm 1 to each sum, whatever it says.
    Neighbours are two corpora of the same size that differ in one document (or all of one user): replaced by any other,
    or with ``neighbour_relation="add_remove"`` blanked. The number of documents, their users and the vocabulary are
    public: one that was read off the same documents is covered only if `choose_vocabulary_privately` chose it, for the
    same neighbours, and `fit` is told. A document with a count that is negative, not whole or not finite counts as
    empty, without a message. There are no Gibbs sweeps, which would look at the documents without noise. `partial_fit`
    asks every batch on its own, with the whole budget: a document is in one batch, so each has (ε, δ) as long as no
    document is fed twice. `trust_` says which topics, and which of their words, would be found again under other noise;
    with public documents, and in later batches, that is not known. `transform` of a document shows that document: only
    the model is private. See docs/privacy.md.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable models*, 2014,
    arXiv:1210.7559. Wang and Anandkumar, *Online and Differentially-Private Tensor Decomposition*, 2016,
    arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.datasets.planted import planted_topics
    >>> from odeco.models import TensorLDA
    >>> corpus = planted_topics(2000, 30, [0.3, 0.2, 0.1], rng=0)
    >>> model = TensorLDA(3, max_iter=0, random_state=0).fit(corpus.counts)
    >>> model.topic_word_.shape, model.transform(corpus.counts[:5]).shape
    ((3, 30), (5, 3))
    """

    _seed: int

    def __init__(
        self,
        n_components: int | Literal["auto"] = 10,
        *,
        doc_topic_concentration: float | Literal["auto"] = "auto",
        max_iter: int = MAX_ITER,
        topic_word_prior: float | None = None,
        document_weight: DocumentWeight = "length",
        n_oversamples: int = 10,
        n_passes: int = 4,
        forget: float | None = None,
        max_doc_update_iter: int = 50,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Literal["document", "user"] = "document",
        neighbour_relation: NeighbourRelation = "replace",
        public: Any = None,
        ledger: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_concentration = doc_topic_concentration
        self.max_iter = max_iter
        self.topic_word_prior = topic_word_prior
        self.document_weight = document_weight
        self.n_oversamples = n_oversamples
        self.n_passes = n_passes
        self.forget = forget
        self.max_doc_update_iter = max_doc_update_iter
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.neighbour_relation = neighbour_relation
        self.public = public
        self.ledger = ledger
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        groups: Any = None,
        vocabulary: PrivateVocabulary | None = None,
        words: Sequence[str] | Words | None = None,
        tokenizer: Tokenizer | None = None,
        callback: Callback | None = None,
        progress: bool = False,
        client: Any = None,
    ) -> Self:
        """Learn topics from word counts.

        Parameters
        ----------
        X : array or CSR array, documents x words
            Word counts; or those of a Dask array or dataframe, which stay on their cluster, or with `client` the paths
            of files, as `odeco.online.dask.as_cluster_rows` takes them; bit-identical to one machine.
        y : object
            Ignored.
        groups : array of labels, optional
            For ``unit="user"``: whose each document is. Every user counts once.
        vocabulary : PrivateVocabulary, optional
            For private models: the words that `X` counts, if they were read off the same documents by
            `choose_vocabulary_privately`. What they have cost is then part of ε and δ, and of `privacy_`.
        words : sequence of str, optional
            The words that the columns count, such as ``vectoriser.get_feature_names_out()``. The model keeps them, in
            its file too. By default the names of the columns of a dataframe, or the words of `vocabulary`.
        tokenizer : {"words", "blanks"}, optional
            How texts were cut into these words, for `transform_text`; see `fit_text`.
        callback : callable, optional
            Called with the stage ("pairs", "triples", "number of topics" or "sweeps"), how much of it is done, and of
            how much. A private fit does not call it, and shows no progress.
        progress : bool
            Whether to show a bar on stderr, by rich or tqdm if one of them is installed.
        client : dask.distributed.Client, optional
            The cluster; by default that of the process, for Dask collections only.
        """
        settings, private = check_settings(self), check_private(self, groups, vocabulary)
        seed, on_cluster = self._draw_seed(), client is not None or is_on_cluster(X)
        if private and on_cluster:
            raise ValueError(
                "A private model is learnt on one machine. Got rows of a cluster. Pass an array of counts."
            )
        with (
            columns_kept_on_failure(self),
            reporting(callback, progress=progress, verbose=self.verbose, silent=private) as report,
        ):
            if on_cluster:
                counts = rows_on_cluster(self, X, client, reset=True)
                fitted = learn_on_cluster(counts, settings, seed=seed, callback=report).by_share()
            elif private:
                counts = validated_privately(self, X, reset=True)
                fitted = fit_privately(self, counts, groups, settings, vocabulary, seed)
            else:
                counts = as_counts(validated(self, X, reset=True))
                fitted = fit_topics(LocalCorpus(counts, settings), settings, seed=seed, callback=report).by_share()
            known = vocabulary.words if words is None and vocabulary is not None else words
            n_documents, names = counts.shape[0], checked_words(known, self.n_features_in_)
            self._take(fitted, None, seed, n_documents, names, tokenizer)
        warn_if_fewer(self.n_components, self.n_components_, n_documents)
        if fitted.trust is None or fitted.trust.known:
            warn_if_unreliable(fitted.diagnostics)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        words: Sequence[str] | Words | None = None,
        tokenizer: Tokenizer | None = None,
        vocabulary: PrivateVocabulary | None = None,
    ) -> Self:
        """Learn from one more batch of documents; none is kept, and memory does not grow.

        The topics are worked out when they are next asked for. If anything ends the call early, an interrupt included,
        the model is as it was before; a model that takes more than 256 MB is not copied for that, and must then be
        loaded again from where it was last saved. The first batch should hold at least k documents of three words:
        with fewer, fewer topics are learnt, with a warning, in all batches.

        `words` and `tokenizer` are as for `fit`; those of the first batch are kept.

        A private model asks each batch with the whole budget (see *Private models*): no document may be fed twice.
        ``unit="user"`` and ``ledger`` are refused, and so is a private `vocabulary`: what it has cost the documents of
        which batch is not known. Take words that were not read off these documents.
        """
        settings = check_settings(self, in_batches=True)
        private = check_private(self, None, vocabulary, in_batches=True)
        if private:
            check_private_batches(self, vocabulary)
        stream = getattr(self, "_stream", None)
        before = stream if isinstance(stream, PrivateTopicStream if private else TopicStream) else None
        with columns_kept_on_failure(self):
            after: TopicStream | PrivateTopicStream
            if private:
                counts = validated_privately(self, X, reset=before is None)
                after = update_privately(self, cast("PrivateTopicStream | None", before), counts, settings)
            else:
                counts = as_counts(validated(self, X, reset=before is None))
                if before is None:
                    after = TopicStream.begin(settings, counts, self._draw_seed())
                else:
                    self._fitted = None  # the topics before this batch may be large, and can be worked out again
                    after = cast("TopicStream", before).updated(counts)
            names = checked_words(words, self.n_features_in_)
            if before is not None:
                names, tokenizer = self._words, self._tokenizer
            self._take(None, after, after.seed, after.n_documents, names, tokenizer)
        if before is None:
            warn_if_fewer(self.n_components, self.n_components_, self.n_samples_seen_)
        return self

    def _take(
        self,
        fitted: FittedTopics | None,
        stream: TopicStream | PrivateTopicStream | None,
        seed: int,
        n_documents: int,
        words: Words | None,
        tokenizer: Tokenizer | None,
    ) -> None:
        """Make what was learnt the model's own, in one step: an interrupt finds all of it, or nothing."""
        n_components = stream.n_components if stream is not None else cast("FittedTopics", fitted).alpha.size
        learnt = {"_fitted": fitted, "_stream": stream, "_seed": seed, "_words": words, "_tokenizer": tokenizer}
        self.__dict__.update(learnt, n_samples_seen_=n_documents, n_components_=n_components)

    def transform(self, X: Any) -> FloatArray:
        """Return the expected proportions of topics in each document, documents x topics; rows sum to one.

        Those of documents on a cluster are a Dask array, which workers make when it is wanted.
        """
        check_is_fitted(self)
        if is_on_cluster(X):
            return cast("FloatArray", proportions_there(self, X))
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

    def _inferred(self, X: Any) -> tuple[Any, FloatArray]:
        """Return the checked counts of documents, and the proportions of topics in each."""
        check_is_fitted(self)
        counts = as_counts(validated(self, X, reset=False)).astype(np.int64)
        return counts, self._proportions(counts)

    def _proportions(self, counts: Any) -> FloatArray:
        """Return the proportions of topics in documents whose columns are known to be the words of the model."""
        settings, fitted = check_settings(self), self._fitted_topics("topic_word_")
        return document_topics(
            counts,
            fitted.topic_word,
            fitted.alpha,
            n_iterations=settings.max_doc_update_iter,
            n_jobs=settings.n_jobs,
        )

    def _likelihood(self, X: Any) -> tuple[float, float]:
        """Return the log-likelihood of the words of documents, and how many words they have."""
        if is_on_cluster(X):
            check_is_fitted(self)
            return likelihood_there(self, X)
        counts, proportions = self._inferred(X)
        return float(np.sum(log_likelihood(counts, self.topic_word_, proportions))), float(counts.sum())

    def _draw_seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = True  # whole numbers; scikit-learn has no nearer tag for counts
        return tags
