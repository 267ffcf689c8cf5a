"""A topic model in use: texts, leading words, topics over time or by class, labels, documents of
each topic, merged topics.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.fit import Fit, Info, fitted
from odeco.models.engine.spec import Learnt
from odeco.models.lda.counts import are_texts
from odeco.models.lda.display import (
    draw_topics,
    leading_words,
    lift,
    relevance,
    representative_documents,
)
from odeco.models.lda.inference import coherence, completion_perplexity, split_documents
from odeco.models.lda.params import Callback, TopicParams
from odeco.models.lda.private_vocabulary import keep_words
from odeco.models.lda.vocabulary import (
    MAX_SHARE,
    MAX_WORDS,
    MIN_DOCUMENTS,
    RELEVANCE,
    STOP_WORDS,
    TOP_WORDS,
    Tokenizer,
    Words,
    as_words,
    count_words,
    n_unreachable,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A page shows this number of typical documents for each topic.
_N_TYPICAL = 3


@dataclass(frozen=True, eq=False)
class Perplexity:
    """How well half of a document's words predict the other half, for held-out documents.

    Attributes
    ----------
    topics, unigram : float
        Perplexity by the topics, and by the frequencies of words alone, as if there were no topics.
    n_documents : int
        Number of held-out documents.
    """

    topics: float
    unigram: float
    n_documents: int


@dataclass(frozen=True, eq=False)
class GroupShares:
    """Shares of topics in groups of documents.

    Attributes
    ----------
    groups : array of g labels
        The groups, sorted.
    shares : array, g x k
        Share of each topic in each group; rows sum to one. NaN for a group without a known word.
    errors : array, g x k
        Standard errors of the shares; NaN for a group with fewer than two documents of known words.
    n_documents : array of g numbers
        Number of documents of each group with at least one known word. Others say nothing, and are
        left out.
    """

    groups: NDArray[Any]
    shares: FloatArray
    errors: FloatArray
    n_documents: IndexArray


class TopicUse:
    """What an estimator of topics does with words and texts, and says of documents and topics."""

    n_components: Any
    n_features_in_: int
    fit: Any
    _encode: Any
    _fit_for: Any
    _learnt: Learnt
    _names: Any
    _proportions: Any
    _specify_topics: Any

    def fit_text(
        self,
        texts: Iterable[str],
        y: Any = None,  # noqa: ARG002 - scikit-learn's signature
        *,
        words: Sequence[str] | None = None,
        tokenizer: Tokenizer = "words",
        min_documents: int = MIN_DOCUMENTS,
        max_share: float = MAX_SHARE,
        max_words: int = MAX_WORDS,
        stop_words: Iterable[str] | Literal["english"] = "english",
        groups: Any = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> Self:
        """Learn topics from texts, as ``odeco learn topics`` does; the model keeps the words and
        the tokenizer.

        Parameters
        ----------
        texts : iterable of str
            The documents. They are read once and not kept.
        y : object
            Ignored.
        words : sequence of str, optional
            Count these words, and no others.
        tokenizer : {"words", "blanks"}
            The definition of a word. ``"words"``: it begins with a letter and has 2 to 200
            characters; texts are lowercased, and what follows an apostrophe is left out.
            ``"blanks"``: any 1 to 200 characters between blanks, as they are; for text that was
            tokenized and cleaned elsewhere.
        min_documents, max_share, max_words
            Words in fewer documents, or in a larger share of them, are left out; then the most
            frequent are kept. A private model chooses its words by noisy votes instead, with
            `max_words` alone.
        stop_words : iterable of str or "english"
            Left out in any case; ``()`` leaves out none.
        groups, callback, progress
            As for `fit`.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * [
        ...     5 * "A cat and a mouse. ",
        ...     5 * "Shares, bonds; ",
        ...     5 * "Two bonds, three shares: ",
        ... ]
        >>> model = TensorLDA(2, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> [sorted(words) for words in model.top_words(2)]
        [['bonds', 'shares'], ['cat', 'mouse']]
        >>> model.transform_text(["The cat saw a mouse, and a mouse the cat."]).round(1)
        array([[0., 1.]])
        """
        spec = self._specify_topics()
        private = spec.is_private(groups)
        settings = spec.settings
        left_out = STOP_WORDS if stop_words == "english" else stop_words
        given = None if words is None else as_words(words, tokenizer)
        counted = count_words(
            checked_texts(texts, private), given, tokenizer=tokenizer, allow_empty=private
        )
        vocabulary = None
        if words is None:
            limits: Any = {
                "min_documents": min_documents,
                "max_share": max_share,
                "max_words": max_words,
            }
            budget = {
                name: getattr(settings, name)
                for name in ("epsilon", "delta", "neighbour_relation", "ledger")
            }
            counted, vocabulary = keep_words(
                counted, groups=groups, stop_words=left_out, **limits, **budget
            )
        kept = {"words": counted.words, "tokenizer": tokenizer, "vocabulary": vocabulary}
        self.fit(counted.counts, groups=groups, callback=callback, progress=progress, **kept)
        return self

    def transform_text(self, texts: Iterable[str]) -> FloatArray:
        """Return the expected proportions of topics in each text, texts x topics; rows sum to one.

        Texts are split as those that the model was learnt from. Words that it does not know are
        ignored. A text without a known word has the mean of the prior.
        """
        check_is_fitted(self)
        proportions: FloatArray = self._proportions(self._count_texts(texts))
        return proportions

    @property
    def words_(self) -> Words:
        """The words that the columns count."""
        if self._fit_for("words_").context.words is None and not hasattr(self, "feature_names_in_"):
            raise AttributeError(
                "`words_` are known if the model is given the words of its "
                f"{self.n_features_in_:,} columns. It was not. Call fit_text, or fit with `words`."
            )
        return self._known_words()

    tokenizer_ = fitted(
        lambda fit: fit.context.tokenizer or None,
        (
            "How texts were split into words; None if the model was fitted to counts without "
            "naming it."
        ),
    )
    shares_ = fitted("params.shares", "Share of all words that belongs to each topic.")

    def lift(self) -> FloatArray:
        """Return how many times more probable each word is in each topic than in all text, k x
        V.
        """
        params: TopicParams = self._fit_for("lift").params
        return lift(params.topic_word, params.shares)

    def relevance(self, weight: float = RELEVANCE) -> FloatArray:
        """Return how well each word represents each topic, k x V: λ log p(word | topic) + (1 − λ)
        log lift.

        Parameters
        ----------
        weight : float
            λ. With 1 the order of words is that of their probabilities, with 0 that of their lift.
        """
        params: TopicParams = self._fit_for("relevance").params
        return relevance(params.topic_word, params.shares, weight)

    def top_words(self, n_words: int = TOP_WORDS, *, relevance: float = 1.0) -> list[list[str]]:
        """Return the leading words of each topic.

        Parameters
        ----------
        n_words : int
            Number of words of each topic.
        relevance : float
            The λ by whose relevance words are ordered; 1 orders by probability.

        Notes
        -----
        A model that does not know its words names them by their columns: ``x0``, ``x1`` and so on.
        Of a private topic, words that do not stand clear of their noise are left out, so it may
        have fewer.
        """
        names = self._known_words()
        return [names[places].tolist() for places in self._leading(n_words, relevance)]

    def coherence(self, X: Any) -> FloatArray:
        """Return how often the leading words of each topic come together in documents (NPMI, from
        −1 to 1).

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts or texts, as for `topics_over`. The result is not private.
        """
        return coherence(self._fit_for("coherence").params.topic_word, self._counts_of(X))

    def completion_perplexity(self, X: Any, *, seed: int = 0) -> Perplexity:
        """Return how well half of the words of held-out documents predict the other half.

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts or texts, as for `topics_over`, that the model was not fitted to. The result
            is not private.
        seed : int
            Of the coin that divides the words of each document.
        """
        params: TopicParams = self._fit_for("completion_perplexity").params
        counts = self._counts_of(X).astype(np.int64)
        halves = split_documents(counts, np.random.default_rng(seed))
        frequencies = (params.shares @ params.topic_word)[None, :]
        return Perplexity(
            completion_perplexity(*halves, params.topic_word, params.alpha),
            completion_perplexity(*halves, frequencies, np.ones(1)),
            counts.shape[0],
        )

    def write_report(
        self, path: str | os.PathLike[str], *, title: str = "Topics", rows: Any = None
    ) -> None:
        """Write the topics as one HTML page that needs no network: the explorer of topics.

        Parameters
        ----------
        path : path
            Where to write. An old file is replaced only by a complete one.
        title : str
            The heading.
        rows : list of str or array, documents x words, optional
            Documents to measure coherence with; texts are also shown, those that are typical of
            each topic. The page of private topics shows none.
        """
        from odeco.models.lda.explorer import (
            write_topics_report,
        )  # Matplotlib takes half a second, and may be missing

        check_is_fitted(self)
        model: Any = self
        npmi = examples = None
        if rows is not None and self._learnt.privacy is None:
            texts = list(rows) if are_texts(rows) else []
            counts = self._counts_of(texts or rows)
            npmi = self.coherence(counts)
            if texts:
                examples = [
                    [(f"document {place}", texts[place], share) for place, share in shown]
                    for shown in representative_documents(model, counts, _N_TYPICAL)
                ]
        write_topics_report(model, path, title=title, npmi=npmi, examples=examples)

    def plot_topics(
        self, n_words: int = TOP_WORDS, *, relevance: float = 1.0, n_columns: int = 5
    ) -> Figure:
        """Draw the leading words of each topic as bars, and return the Matplotlib figure.

        Parameters
        ----------
        n_words : int
            Number of words of each topic.
        relevance : float
            The λ by whose relevance words are ordered; the bars are probabilities in any case.
        n_columns : int
            Number of topics side by side.
        """
        params: TopicParams = self._fit_for("plot_topics").params
        leading = self._leading(n_words, relevance)
        n_columns = check_count("n_columns", n_columns)
        return draw_topics(
            params.topic_word, params.shares, self._known_words(), leading, n_columns
        )

    def _count_texts(self, texts: Iterable[str]) -> Any:
        """Return the counts of the model's words in texts."""
        words = [str(word) for word in self.words_]
        tokenizer = self.tokenizer_
        if tokenizer is None:
            _warn_of_words_in_no_text(words)
        return count_words(
            checked_texts(texts, private=False), words, tokenizer=tokenizer or "words"
        ).counts

    def _known_words(self) -> Words:
        """Return the words, or the names of the columns."""
        words = self._fit_for("words").context.words
        return np.asarray(self._names() if words is None else words, dtype=np.str_)

    def _leading(self, n_words: int, weight: float) -> list[IndexArray]:
        """Return the places of the leading words of each topic; of private topics only those that
        are clear.
        """
        return leading_words(
            self._fit_for("topic_word_").params, check_count("n_words", n_words), weight
        )

    def topics_over(self, X: Any, by: Any) -> GroupShares:
        """Return the share of each topic in groups of documents: over time, or by class.

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts, or texts, which are split as in `transform_text`.
        by : array of labels
            The group of each document: a class, a year, or a month
            (``dates.astype("datetime64[M]")``).

        Notes
        -----
        With the number w of known words of a document and its proportions θ (see `transform`), a
        share is s = Σ w θ / Σ w, and its standard error √(n/(n − 1) Σ w² (θ − s)²) / Σ w, for n
        independent documents of a group. It says how much the share would vary between samples of
        documents. It takes the topics as given, and documents of one author or one thread as
        independent. Proportions are means of the posterior: in short texts they are pulled towards
        the prior, so that differences between groups look smaller than they are. The result is not
        private.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * ["cat mouse cat mouse", "shares bonds shares bonds"]
        >>> model = TensorLDA(2, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> table = model.topics_over(["bonds bonds", "shares", "mouse cat"], [2024, 2024, 2025])
        >>> (
        ...     table.groups.tolist(),
        ...     table.shares.argmax(axis=1)
        ...     == model.transform_text(["bonds", "cat"]).argmax(axis=1),
        ... )
        ([2024, 2025], array([ True,  True]))
        """
        counts = self._counts_of(X)
        groups, places = _grouped(by, counts.shape[0])
        weights = np.asarray(counts.sum(axis=1), dtype=np.float64)
        proportions = self._proportions(counts)
        members: Any = sparse.csc_array(
            (np.ones(places.size), places, np.arange(places.size + 1)),
            shape=(groups.size, places.size),
        )
        n_documents = np.bincount(places, weights > 0, groups.size).astype(np.int64)
        mass = (members @ weights)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = members @ (weights[:, None] * proportions) / mass
            squares = members @ (weights[:, None] * (proportions - shares[places])) ** 2
            errors = np.sqrt(squares * (n_documents / (n_documents - 1))[:, None]) / mass
        errors[n_documents < 2] = np.nan
        return GroupShares(groups, shares, errors, n_documents)

    def topic_labels(self, n_words: int = 3) -> list[str]:
        """Return a label for each topic: its most characteristic words, by relevance, such as
        ``"ship, sail, sea"``.

        If two topics have the same label, take more words. A private topic may have fewer words, or
        none. Topics of `seed_words` have the labels given there.
        """
        labels: Any = self._fit_for("topic_labels").context.labels
        given: list[str] = [] if labels is None else labels.tolist()
        return given + [
            ", ".join(words) for words in self.top_words(n_words, relevance=RELEVANCE)[len(given) :]
        ]

    def representative_documents(
        self, X: Any, n_documents: int = 3
    ) -> list[list[tuple[int, float]]]:
        """Return for each topic the documents in which its share is largest: their row numbers, and
        this share.

        Parameters
        ----------
        X : array or CSR array, documents x words, or sequence of str
            Word counts or texts, as for `topics_over`.
        n_documents : int
            Number of documents of each topic; fewer if documents are nearly the same (more than
            half of the words of two documents together are common to both), of which the first is
            kept. The result is not private.
        """
        return representative_documents(
            self, self._counts_of(X), check_count("n_documents", n_documents)
        )

    def merge_topics(self, groups: Iterable[Iterable[int]]) -> Self:
        """Return a copy of the model in which the topics of each group are one; this model stays as
        it is.

        Parameters
        ----------
        groups : iterable of iterables of int
            The topics to merge, such as ``[[1, 4], [2, 6, 7]]``. Other topics stay; all are sorted
            by share again.

        Notes
        -----
        The Dirichlet parameter of a merged topic is the sum of theirs, which is exact: sums of
        Dirichlet proportions are Dirichlet. Its words are their mean, by share. The model is
        therefore that of documents in which both topics keep their ratio; where one of them is
        alone, it fits worse than before. If you need only the shares of documents, add the columns
        of `transform` instead. The evidence of the third moment and the numbers of topics tried
        belong to the topics before: they are NaN and empty. `partial_fit` begins a new stream.

        Examples
        --------
        >>> from odeco.models import TensorLDA
        >>> texts = 200 * [
        ...     "cat mouse cat mouse",
        ...     "shares bonds shares bonds",
        ...     "rain wind rain wind",
        ... ]
        >>> model = TensorLDA(3, max_iter=0, random_state=0).fit_text(texts, max_share=1.0)
        >>> merged = model.merge_topics([[0, 2]])
        >>> merged.n_components_, merged.shares_.round(2)
        (2, array([0.67, 0.33]))
        """
        fit = self._fit_for("merge_topics")
        params: TopicParams = fit.params
        if params.trust is not None:
            raise ValueError(
                "Merged topics must come from a model that is not private: how far to trust "
                "merged private topics is not known. Got a private model. Add the columns of "
                "transform."
            )
        owners = _owners(groups, params.alpha.size)
        k = int(owners.max()) + 1
        members = np.equal.outer(np.arange(k), owners).astype(np.float64)
        totals = members @ params.totals
        alone = members.sum(axis=1) == 1
        first = members.argmax(axis=1)
        found: Any = {
            name: np.where(alone, getattr(params.diagnostics, name)[first], np.nan)
            for name in ("weights", "residuals", "negative_mass")
        }
        diagnostics = replace(
            params.diagnostics,
            n_components=k,
            selection_scores=np.zeros((0, 2), dtype=np.int64),
            **found,
        )
        topic_word = (members * params.totals / totals[:, None]) @ params.topic_word
        merged_params = TopicParams(
            topic_word, totals, members @ params.alpha, params.eta, diagnostics
        )
        merged = copy.copy(self)
        merged.n_components = k
        info = Info(fit.info.n_samples, n_iter=fit.info.n_iter)
        merged._learnt = Learnt(
            merged._specify_topics(),
            self._learnt.seed,
            Fit(merged_params.largest_first(), replace(fit.context, labels=None), info),
            None,
        )
        return merged

    def _counts_of(self, X: Any) -> Any:
        """Return the counts of the model's words in documents: in texts, or in checked word
        counts.
        """
        context = self._fit_for("topics of documents").context
        if are_texts(X):
            return self._count_texts(X)
        return self._encode(X, context)[0]


def _owners(groups: Iterable[Iterable[int]], k: int) -> IndexArray:
    """Return for each of k topics its number after merging; merged topics have that of the first of
    their group.
    """
    listed = [[check_count("topic", topic, low=0) for topic in group] for group in groups]
    members = [topic for group in listed for topic in group]
    if len(set(members)) < len(members) or max(members, default=0) >= k:
        raise ValueError(
            f"`groups` must have topics from 0 to {k - 1}, each of them once at most. Got {listed}."
        )
    owners = np.arange(k)
    for group in listed:
        owners[group] = min(group, default=0)
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)


def _grouped(by: Any, n_documents: int) -> tuple[NDArray[Any], IndexArray]:
    """Return the sorted groups, and the place of the group of each document."""
    labels = np.asarray(by)
    if labels.shape != (n_documents,):
        raise ValueError(
            f"`by` must have one label for each of {n_documents:,} documents. Got shape "
            f"{labels.shape}."
        )
    # Only a missing value (None, NaN, NaT) is None or differs from itself.
    n_missing = int(np.sum((labels != labels) | (labels == None)))  # noqa: E711 - cell by cell
    if n_missing:
        raise ValueError(
            f"`by` must have no missing label. Got {n_missing:,} of them. Drop these documents."
        )
    groups, places = np.unique(labels, return_inverse=True)
    return groups, places.astype(np.int64)


def checked_texts(texts: Iterable[str], private: bool) -> Iterator[str]:
    """Yield texts; raise if one is not a str. In a private model it counts as empty, without a
    message.
    """
    if isinstance(texts, str):
        raise TypeError("`texts` must be a sequence of texts. Got one text. Put it into a list.")
    if hasattr(texts, "columns") or hasattr(texts, "column_names"):
        raise TypeError(
            f"`texts` must be a sequence of texts. Got a {type(texts).__name__} with several "
            "columns. Pass the column that holds the texts, such as table['text']."
        )
    for number, text in enumerate(texts):
        if isinstance(text, str):
            yield text
        elif private:
            yield ""
        else:
            raise TypeError(
                f"Every text must be a str. Got {type(text).__name__} at place {number}. Convert "
                "it."
            )


def _warn_of_words_in_no_text(words: Sequence[str]) -> None:
    """Warn if a model that was learnt from counts has words that the default tokenizer cannot find
    in a text.
    """
    n_lost = n_unreachable(words)
    if n_lost:
        warnings.warn(
            "A model must know how texts were split into words to find all of its words in new "
            f"ones. This one was learnt from counts, and {n_lost:,} of its {len(words):,} words "
            "are never found. Pass `tokenizer` to fit, or count the new texts as the first, and "
            "call transform.",
            UserWarning,
            stacklevel=4,
        )
