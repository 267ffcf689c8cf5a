"""The fitted attributes of a TensorLDA, and the words of its topics in the forms that other libraries read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.figure import Figure

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.lda.diagnostics import TopicDiagnostics
from odeco.models.lda.display import draw_topics, lift, relevance
from odeco.models.lda.private import PrivateTopicStream
from odeco.models.lda.result import FittedTopics
from odeco.models.lda.stream import TopicStream
from odeco.models.lda.trust import TopicTrust
from odeco.models.lda.vocabulary import RELEVANCE, TOP_WORDS, Tokenizer, Words, numbered
from odeco.privacy.report import PrivacyReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class LearntTopics:
    """The learnt side of a TensorLDA: topics, priors, diagnostics, guarantee; worked out anew after every batch."""

    _fitted: FittedTopics | None
    _stream: TopicStream | PrivateTopicStream | None
    n_samples_seen_: int
    n_components_: int

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
    def n_iter_(self) -> int:
        """Number of Gibbs sweeps over each document, or of EM steps of a private model."""
        return self._fitted_topics("n_iter_").n_iter

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

    def _fitted_topics(self, name: str) -> FittedTopics:
        """Return what was learnt, worked out anew if documents have come since; `name` is what the caller wants."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError(f"`{name}` must be learnt first. This TensorLDA is not fitted. Call fit.")
        if self._fitted is None and self._stream is not None:
            self._fitted = self._stream.fitted()
        return cast("FittedTopics", self._fitted)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_samples_seen_")


class TopicWords(LearntTopics):
    """The side of a TensorLDA that is read: words, relevance, lists, a figure."""

    _words: Words | None
    _tokenizer: Tokenizer | None
    transform: Any

    @property
    def words_(self) -> Words:
        """The words that the columns count."""
        fitted = self._fitted_topics("words_")
        known: Any = self._words if self._words is not None else getattr(self, "feature_names_in_", None)
        if known is None:
            raise AttributeError(
                f"`words_` are known if the model is told what its {fitted.topic_word.shape[1]:,} columns count. It was"
                " not. Call fit_text, or fit with `words`."
            )
        return np.asarray(known, dtype=np.str_)

    @property
    def tokenizer_(self) -> Tokenizer | None:
        """How texts were cut into words; None if the model was learnt from counts and not told."""
        self._fitted_topics("tokenizer_")
        return self._tokenizer

    @property
    def shares_(self) -> FloatArray:
        """Share of all words that belongs to each topic."""
        totals = self._fitted_topics("shares_").totals
        return np.asarray(totals / totals.sum())

    def lift(self) -> FloatArray:
        """Return how many times more probable each word is in each topic than in all text, k x V."""
        return lift(self._fitted_topics("lift").topic_word, self.shares_)

    def relevance(self, weight: float = RELEVANCE) -> FloatArray:
        """Return how well each word stands for each topic, k x V: λ log p(word | topic) + (1 − λ) log lift.

        Parameters
        ----------
        weight : float
            λ. With 1 the order of words is that of their probabilities, with 0 that of their lift.
        """
        return relevance(self._fitted_topics("relevance").topic_word, self.shares_, weight)

    def top_words(self, n_words: int = TOP_WORDS, *, relevance: float = 1.0) -> list[list[str]]:
        """Return the leading words of each topic, as gensim's `CoherenceModel` takes them.

        Parameters
        ----------
        n_words : int
            How many words of each topic.
        relevance : float
            The λ by whose relevance words are ordered; 1 orders by probability.

        Notes
        -----
        A model that does not know its words names them by their columns: ``[0]``, ``[1]`` and so on. Of a private
        topic, words that do not stand clear of their noise are left out, so it may have fewer.
        """
        names = self._names()
        return [names[places].tolist() for places in self._leading(n_words, relevance)]

    def show_topics(
        self, num_topics: int = -1, num_words: int = TOP_WORDS, formatted: bool = True
    ) -> list[tuple[int, str]] | list[tuple[int, list[tuple[str, float]]]]:
        """Return topics with their leading words and probabilities, in the form of gensim's `LdaModel.show_topics`.

        Parameters
        ----------
        num_topics : int
            How many topics, largest first after `fit`; −1 for all.
        num_words : int
            How many words of each.
        formatted : bool
            Whether words come as text, such as ``0.043*"ship" + 0.031*"sea"``, or as pairs.
        """
        topic_word, names = self._fitted_topics("show_topics").topic_word, self._names()
        first = self._leading(num_words, 1.0)[: None if num_topics < 0 else num_topics]
        pairs = [
            (topic, [(str(names[place]), float(topic_word[topic, place])) for place in places])
            for topic, places in enumerate(first)
        ]
        if not formatted:
            return pairs
        return [(topic, " + ".join(f'{weight:.3f}*"{word}"' for word, weight in words)) for topic, words in pairs]

    def to_pyldavis(self, X: Any) -> dict[str, Any]:
        """Return the arguments of ``pyLDAvis.prepare``, for documents with their counts of the model's words.

        The result shows these documents as they are, whether or not the model is private: their lengths, their topics
        and how often each word occurs. Words that do not occur in them are left out, as pyLDAvis divides by that.

        Examples
        --------
        >>> import pyLDAvis  # doctest: +SKIP
        >>> pyLDAvis.prepare(**model.to_pyldavis(counts))  # doctest: +SKIP
        """
        proportions = self.transform(X)
        totals = np.asarray(X.sum(axis=0), dtype=np.float64).ravel()
        occurs = totals > 0
        topic_word = self._fitted_topics("to_pyldavis").topic_word[:, occurs]
        return {
            "topic_term_dists": topic_word / topic_word.sum(axis=1, keepdims=True),
            "doc_topic_dists": proportions,
            "doc_lengths": np.asarray(X.sum(axis=1), dtype=np.int64).ravel(),
            "vocab": self._names()[occurs].tolist(),
            "term_frequency": totals[occurs].astype(np.int64),
            "sort_topics": False,
        }

    def plot_topics(self, n_words: int = TOP_WORDS, *, relevance: float = 1.0, n_columns: int = 5) -> Figure:
        """Draw the leading words of each topic as bars, and return the Matplotlib figure.

        Parameters
        ----------
        n_words : int
            How many words of each topic.
        relevance : float
            The λ by whose relevance words are ordered; the bars are probabilities in any case.
        n_columns : int
            How many topics stand side by side.
        """
        n_columns, fitted = check_count("n_columns", n_columns), self._fitted_topics("plot_topics")
        return draw_topics(fitted.topic_word, self.shares_, self._names(), self._leading(n_words, relevance), n_columns)

    def _names(self) -> Words:
        """Return the words, or the numbers of the columns."""
        try:
            return self.words_
        except AttributeError:
            return numbered(self._fitted_topics("words_").topic_word.shape[1])

    def _leading(self, n_words: int, weight: float) -> list[IndexArray]:
        """Return the places of the leading words of each topic; of private topics only those that are clear."""
        fitted, n_words = self._fitted_topics("topic_word_"), check_count("n_words", n_words)
        scores = fitted.topic_word if weight == 1 else self.relevance(weight)
        order = np.argsort(-scores, axis=1, kind="stable")
        if fitted.trust is None:
            return list(order[:, :n_words])
        clear = fitted.trust.clear_words(fitted.topic_word)
        return [row[own[row]][:n_words] for row, own in zip(order, clear, strict=True)]
