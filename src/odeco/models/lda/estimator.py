"""The estimator of topics: latent Dirichlet allocation by tensor decomposition, refined by a few
Gibbs sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_n_features, check_is_fitted, validate_data

from odeco._util.threads import on_threads
from odeco._util.types import FloatArray, IndexArray
from odeco.display.progress import reporting
from odeco.errors import WordCountError
from odeco.io.rows import (
    as_weights,
    check_private_structure,
    check_structure,
    to_csr,
)
from odeco.io.source import is_on_cluster
from odeco.models.engine.agreement import Records
from odeco.models.engine.fit import fitted
from odeco.models.engine.parameters import (
    N_JOBS,
    Constraint,
    choice,
    count,
    count_or_flag,
    n_components,
    number,
    optional,
    or_auto,
    param,
)
from odeco.models.engine.private_estimator import PrivateEstimator, check_private_numbers
from odeco.models.engine.spec import Learnt
from odeco.models.lda.counts import are_texts, as_counts
from odeco.models.lda.fitting import check_seed_words
from odeco.models.lda.inference import document_topics
from odeco.models.lda.params import Callback, TopicTrust, warn_if_unreliable
from odeco.models.lda.private_vocabulary import PrivateVocabulary
from odeco.models.lda.spec import TopicContext, TopicSpec
from odeco.models.lda.use import TopicUse
from odeco.models.lda.vocabulary import MAX_ITER, Tokenizer, Words
from odeco.online.dask.partitions import ChosenRows
from odeco.online.dask.requests import cluster_rows
from odeco.privacy.holders.documents import BoundedCounts
from odeco.privacy.holders.lanes import RemoteRows
from odeco.privacy.report import PrivacyReport

#: Documents are repeated at most to this number.
_MAX_REPEATED = 10**8

#: The proportions of topics in a document are found in at most this many rounds.
_N_ROUNDS = 50


def _repeated(weights: FloatArray) -> IndexArray:
    """Return the number of each document as often as it counts."""
    if np.any(weights != np.rint(weights)) or weights.sum() > _MAX_REPEATED:
        raise ValueError(
            "`sample_weight` of documents must be whole numbers that sum to at most "
            f"{_MAX_REPEATED:,}: documents are repeated. Their sum is {weights.sum():g}. Round "
            "them, or multiply all by a constant first."
        )
    return np.repeat(np.arange(len(weights)), weights.astype(np.int64))


#: Single precision, as Gibbs sweeps have it, can hold numbers from 1e-30 to 1e30.
_POSITIVE = number(1e-30, 1e30)


@dataclass(eq=False, repr=False)
class TensorLDA(TopicUse, ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation by decomposing the third moment of words, refined by a few Gibbs
    sweeps.

    Randomised subspace iteration whitens the pairs of words, the tensor power method decomposes the
    triples in the whitened coordinates, and what it finds is un-whitened and projected onto the
    simplex. That takes a few passes over the documents and needs no start. Collapsed Gibbs sampling
    then refines these topics.

    Parameters
    ----------
    n_components : int or "auto"
        Number k of topics, at most that of distinct words, and of documents of three words.
        ``"auto"`` takes twice the number of topics that two halves of the documents agree on, but
        at most 100, and no more than directions of word pairs stand clear of noise;
        `diagnostics_.selection_scores` lists the numbers tried. `partial_fit` needs a number.
    doc_topic_concentration : float or "auto"
        The sum α₀ of the Dirichlet parameters that the moments are corrected with; it is small if a
        document has few topics. ``"auto"`` takes the value with which half of a document's words
        best predict the other half.
    max_iter : int
        Number of Gibbs sweeps; 0 gives the pure spectral topics. The sweeps also learn the
        Dirichlet parameters. Their topics are taken if they predict half of the words of documents
        from the other half clearly better.
    topic_word_prior : float, optional
        Prior count η of every word in every topic. By default the sweeps learn it; without sweeps
        it is 0.01.
    seed_words : dict of str to list of str, optional
        Topics that you ask for: a label, and words that belong to the topic, such as ``{"sport":
        ["ball", "team"]}``; or a list of lists of words. They are a prior of the sweeps: in its
        topic a seed word has a quarter of its uses as prior counts. These topics come first, in
        this order. A private model, which has no sweeps, refuses them, and so does `partial_fit`.
    forget : float, optional
        In `partial_fit`, a document counts half after this many further documents. By default none
        is forgotten.
    epsilon, delta : float, optional
        With both, the model is private: what `fit` learns is (ε, δ)-differentially private. δ must
        be below one over the number of units. See *Private models*.
    unit : {"document", "user"}
        Whom privacy protects: one document, or all documents of one user (see `fit`).
    neighbour_relation : {"replace", "add_remove"}
        For private models: whether the guarantee hides that a document (or all of a user) is
        replaced by any other, or that it is there or not (blanked; the number of documents is
        public). The first needs √2 times the noise.
    ledger : path, optional
        For private models: the file of the budget of all models of these documents together, made
        once with `odeco.privacy.LedgerFile.create`. It pays for each fit too, or refuses it; copies
        of the estimator, as a search over settings makes them, share it.
    random_state : int, RandomState instance or None
        Draws the first basis, the starts of the power method and the sweeps.
    n_jobs : int or None
        1 runs everything on one thread, other values on all cores. The result does not depend
        on it.
    verbose : int
        With 1, `fit` writes a line to stdout when a stage of its work begins; with 2, one for every
        sweep too.

    Attributes
    ----------
    topic_word_ : array, k x V
        The topics; each row is a distribution over words.
    components_ : array, k x V
        The topics as pseudo-counts, as in scikit-learn's `LatentDirichletAllocation`: how many
        words of each kind belong to each topic, plus the prior. Rows divided by their sums are
        `topic_word_`. Made anew at each access.
    doc_topic_prior_ : array
        Dirichlet parameters α of the proportions of topics in a document.
    topic_word_prior_ : float
        The η that was used.
    diagnostics_ : TopicDiagnostics
        How far to trust the spectral topics. Topics are in the order of `topic_word_`.
    privacy_ : PrivacyReport
        The guarantee of a private model, with every release. Other models do not have it.
    trust_ : TopicTrust
        How far to trust each topic of a private model, and each of its words. Other models do not
        have it.
    words_ : array of str
        The words that the columns count, if the model knows them (see `fit` and `fit_text`).
    tokenizer_ : str or None
        How texts were split into these words, if the model knows it.
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
    After `fit`, topics are in the order of their shares, largest first, but for those of seed
    words. `partial_fit` keeps the order of the first batch, so that a topic keeps its number; after
    `fit` it begins a new stream.

    **Private models.** With `epsilon` and `delta`, noisy sums over documents are all that is learnt
    from them: a histogram of lengths, the frequencies of the words, pairs of the most frequent
    words, and five times the words of all documents by topic (EM steps). Each document adds an
    array of norm 1 to each sum, whatever it contains. Neighbours are two corpora of the same size
    that differ in one document (or all of one user): replaced by any other, or with
    ``neighbour_relation="add_remove"`` blanked. The number of documents, their users and the
    vocabulary are public: a vocabulary from the same documents is covered only if
    `choose_vocabulary_privately` chose it, for the same neighbours, and it is passed to `fit`. A
    document with a count that is negative, not whole or not finite counts as empty, without a
    message. There are no Gibbs sweeps, which would look at the documents without noise, and no
    `partial_fit`: each release sums over all documents. `trust_` says which topics, and which of
    their words, stand clear of the noise that was added. `transform` of a document shows that
    document: only the model is private. See docs/privacy.md.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky, *Tensor decompositions for learning latent variable
    models*, 2014, arXiv:1210.7559. Wang and Anandkumar, *Online and Differentially-Private Tensor
    Decomposition*, 2016, arXiv:1606.06237.

    Examples
    --------
    >>> import numpy as np
    >>> from odeco.datasets import planted_topics
    >>> from odeco.models import TensorLDA
    >>> corpus = planted_topics(2000, 30, [0.3, 0.2, 0.1], rng=0)
    >>> model = TensorLDA(3, max_iter=0, random_state=0).fit(corpus.counts)
    >>> model.topic_word_.shape, model.transform(corpus.counts[:5]).shape
    ((3, 30), (5, 3))
    """

    n_components: int | Literal["auto"] = n_components(10)
    doc_topic_concentration: float | Literal["auto"] = param("auto", or_auto(_POSITIVE.check))
    max_iter: int = param(MAX_ITER, count(0), "Number of Gibbs sweeps.", option="--max-iter")
    topic_word_prior: float | None = param(None, optional(_POSITIVE))
    seed_words: Any = param(None, optional(Constraint(check_seed_words)))
    forget: float | None = param(None, optional(_POSITIVE))
    unit: Literal["document", "user"] = param("document", choice("document", "user"))
    n_jobs: int | None = param(None, N_JOBS)
    verbose: int = param(0, count_or_flag())

    _SPEC: ClassVar = TopicSpec
    _KIND: ClassVar = "topic model"

    topic_word_ = fitted("params.topic_word", "Topics as distributions over words, k x V.")
    components_ = fitted(
        lambda fit: fit.params.topic_word * fit.params.totals[:, None],
        "Topics as pseudo-counts, k x V.",
    )
    doc_topic_prior_ = fitted(
        "params.alpha", "Dirichlet parameters of the proportions of topics in a document."
    )
    topic_word_prior_ = fitted("params.eta", "Prior count of every word in every topic.")
    diagnostics_ = fitted("params.diagnostics", "How far to trust the spectral topics.")
    n_components_ = fitted(lambda fit: len(fit.params.alpha), "Number of topics.")

    @property
    def trust_(self) -> TopicTrust:
        """How far to trust the topics of a private model, and their words."""
        trust = self._fit_for("trust_").params.trust
        if trust is None:
            raise AttributeError(
                "Only a private model has `trust_`. This TensorLDA was fitted without privacy."
            )
        return cast("TopicTrust", trust)

    def fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        sample_weight: Any = None,
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
            Word counts; or those of a Dask array or dataframe, which stay on their cluster, or with
            `client` the paths of files, as `odeco.online.dask.as_cluster_rows` takes them;
            bit-identical to one machine. Files for a private model are opened by
            `odeco.privacy.open_private`.
        y : object
            Ignored.
        sample_weight : array of int, optional
            How often each document counts, a whole number; by default once. Documents are repeated,
            so time and memory grow with the sum of the weights. Private models have no weights.
        groups : array of labels, optional
            For ``unit="user"``: the user of each document. Every user counts once.
        vocabulary : PrivateVocabulary, optional
            For private models: the words that `X` counts, if `choose_vocabulary_privately` chose
            them from the same documents. What they have cost is then part of ε and δ, and of
            `privacy_`.
        words : sequence of str, optional
            The words that the columns count, such as ``vectoriser.get_feature_names_out()``. The
            model keeps them, in its file too. By default the names of the columns of a dataframe,
            or the words of `vocabulary`.
        tokenizer : {"words", "blanks"}, optional
            How texts were split into these words, for `transform_text`; see `fit_text`.
        callback : callable, optional
            Called with the stage ("pairs", "triples", "number of topics" or "sweeps"), how much of
            it is done, and of how much. A private fit does not call it, and shows no progress.
        progress : bool
            Whether to show a bar on stderr, by rich or tqdm if one of them is installed.
        client : dask.distributed.Client, optional
            The cluster; by default that of the process, for Dask collections only.
        """
        private = self._specify_topics().is_private(groups, vocabulary)
        side: dict[str, Any] = {"words": words, "tokenizer": tokenizer}
        if private:
            side |= {"groups": groups, "vocabulary": vocabulary}
        with (
            self._features_kept_on_failure(),
            reporting(callback, progress=progress, verbose=self.verbose, silent=private) as report,
        ):
            if client is not None or is_on_cluster(X):
                X = cluster_rows(X, None, private=private, client=client)
            self._fit(X, sample_weight, callback=report, **side)
        warn_if_unreliable(self._learnt.fit.params.diagnostics)
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        sample_weight: Any = None,
        *,
        words: Sequence[str] | Words | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> Self:
        """Learn from one more batch of documents; none is kept, and memory does not grow.

        The topics are computed when they are next needed. If anything ends the call early, an
        interrupt included, the model is as it was before. The first batch must have at least k
        distinct words, and k documents of three words.

        `sample_weight`, `words` and `tokenizer` are as for `fit`; the words of the first batch are
        kept. A private model is refused.
        """
        return self._partial_fit(X, sample_weight, words=words, tokenizer=tokenizer)

    def transform(self, X: Any) -> FloatArray:
        """Return the expected proportions of topics in each document, documents x topics; rows sum
        to one.

        Those of documents on a cluster are a Dask array, which workers compute when it is needed.
        """
        check_is_fitted(self)
        fit = self._learnt.fit
        counts = self._encode(X, fit.context)[0]
        if is_on_cluster(X):
            from odeco.models.lda.cluster import proportions_on_cluster  # which imports Dask

            return cast("FloatArray", proportions_on_cluster(counts, fit.params, _N_ROUNDS))
        return self._proportions(counts)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: ARG002 - scikit-learn's
        """Return the log-likelihood of the words of documents, given the topics and the proportions
        that fit them.

        `sample_weight` is as for `fit`.

        A private model refuses: a search over settings calls this, and would choose by the exact
        documents that each model was made to hide. Choose the settings on public documents, with
        `perplexity`.
        """
        if hasattr(self, "privacy_"):
            raise ValueError(
                "The score of a private model must not choose between models: it is exact, and no "
                "budget pays for it. Got a call of score. For documents that need no protection "
                "call perplexity."
            )
        return self._likelihood(self._weigh(X, sample_weight, {})[0])[0]

    def perplexity(self, X: Any) -> float:
        """Return exp(−log-likelihood per word). For held-out words of seen documents use document
        completion.
        """
        likelihood, n_words = self._likelihood(X)
        return float(np.exp(-likelihood / max(n_words, 1.0)))

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    def _specify_topics(self) -> TopicSpec:
        return cast("TopicSpec", self._specify())

    def _weigh(
        self, X: Any, sample_weight: Any, side: dict[str, Any]
    ) -> tuple[Any, None, dict[str, Any]]:
        """Return documents, each as often as it counts: Gibbs sampling draws a topic for every
        single word.
        """
        if sample_weight is not None and is_on_cluster(X):
            rows = cluster_rows(X, None)
            repeats = _repeated(as_weights(sample_weight, rows.n_rows, self._SPEC.record))
            return ChosenRows(rows, repeats), None, side
        X, weights, side = super()._weigh(X, sample_weight, side)
        if weights is None or np.all(weights == 1):
            return X, None, side
        return _safe_indexing(X, _repeated(weights)), None, side

    def _encode(
        self, X: Any, context: Any = None, words: Any = None, tokenizer: Any = None
    ) -> tuple[Any, Any]:
        """Return checked word counts as a CSR array or those of a cluster, and what is known of
        their columns.
        """
        if is_on_cluster(X):
            counts: Any = cluster_rows(X, None)
            self._check_width(counts, reset=context is None)
        else:
            counts = self._checked_counts(X, reset=context is None)
        # Words are checked in every batch; those of the first are kept.
        given = TopicContext.of(counts.shape[1], words, tokenizer)
        return counts, given if context is None else context

    def _check_width(self, rows: Any, *, reset: bool) -> None:
        """Compare the number of columns of rows on a cluster with that of the model, or set it."""
        if reset:
            self.__dict__.pop("feature_names_in_", None)
        _check_n_features(self, rows, reset=reset)

    def _checked_counts(self, X: Any, *, reset: bool) -> Any:
        """Return checked word counts in memory as a CSR array."""
        if are_texts(X):
            remedy = "fit_text" if reset else "transform_text"
            raise WordCountError(
                f"Word counts must be numbers, documents x words. Got texts. Call {remedy}, or "
                "count them first."
            )
        if sparse.issparse(X):
            X = to_csr(X)
            check_structure(X)
        return as_counts(self._checked(X, reset=reset, accept_sparse="csr", dtype="numeric"))

    def _learn_privately(
        self, X: Any, spec: Any, guarantee: Any, seed: int, groups: Any, side: dict[str, Any]
    ) -> Learnt:
        """Return what is learnt of private documents; a private vocabulary is part of the
        guarantee.
        """
        vocabulary: PrivateVocabulary | None = side["vocabulary"]
        if vocabulary is None:
            return super()._learn_privately(X, spec, guarantee, seed, groups, side)
        left = vocabulary.left(guarantee)
        learnt = super()._learn_privately(X, spec, left, seed, groups, side)
        learnt.privacy = vocabulary.combined(cast("PrivacyReport", learnt.privacy), guarantee)
        return learnt

    def _hold(
        self,
        X: Any,
        spec: Any,
        *,
        groups: Any,
        words: Any = None,
        tokenizer: Any = None,
        vocabulary: PrivateVocabulary | None = None,
    ) -> tuple[BoundedCounts, TopicContext]:
        """Return a data holder of private documents, and what is known of their columns."""
        relation = spec.settings.neighbour_relation
        held = BoundedCounts(self._private_counts(X), groups=groups, neighbour_relation=relation)
        k = spec.settings.n_components
        most = min(held.n_words, held.n_documents)  # both are public
        if k > most:
            raise ValueError(
                f"`n_components` must be at most {most:,} for these documents: there must be at "
                "least as many words in the vocabulary, and documents, as topics. Got "
                f"n_components={k}, n_samples={held.n_documents} and n_features={held.n_words}. "
                "Lower it, or pass more documents."
            )
        if vocabulary is not None:
            vocabulary.check_fits(n_words=held.n_words, unit=held.unit, neighbours=held.neighbours)
            words = vocabulary.words if words is None else words
        return held, TopicContext.of(held.n_words, words, tokenizer)

    def _private_counts(self, X: Any) -> Any:
        """Return private word counts as an array, without a message that depends on one of them.

        Whether they are finite is not checked here.
        """
        if isinstance(X, RemoteRows):
            self._check_width(X, reset=True)
            return X
        check_private_numbers(X, "word counts", sparse=True)
        check_private_structure(X)
        return validate_data(self, X, accept_sparse="csr", dtype="numeric", ensure_all_finite=False)

    def _records(self, X: Any, sample_weight: Any = None, **_: Any) -> Records:
        """Return documents, of which texts are counted once."""
        counts = self._count_texts(X) if are_texts(X) else X
        return super()._records(counts, sample_weight)

    def _signature(self, X: Any, **_: Any) -> FloatArray:  # noqa: ARG002 - topics are compared by their words
        """Return what each topic has beyond the words of all text, as columns."""
        topics = self.topic_word_
        return np.asarray((topics - self._learnt.fit.params.shares @ topics).T)

    def _proportions(self, counts: Any) -> FloatArray:
        """Return the proportions of topics in documents whose columns are known to be the words of
        the model.
        """
        spec = self._specify_topics()
        params = self._learnt.fit.params
        with on_threads(spec.settings.n_jobs):
            return document_topics(counts, params.topic_word, params.alpha, n_iterations=_N_ROUNDS)

    def _likelihood(self, X: Any) -> tuple[float, float]:
        """Return the log-likelihood of the words of documents, and the number of their words."""
        check_is_fitted(self)
        spec = self._specify_topics()
        params = self._learnt.fit.params
        corpus = spec.prepare(self._counts_of(X), self._learnt.fit.context)
        with on_threads(spec.settings.n_jobs):
            return corpus.log_likelihood(params.topic_word, params.alpha, _N_ROUNDS)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.input_tags.categorical = (
            True  # whole numbers; scikit-learn has no nearer tag for counts
        )
        return tags
