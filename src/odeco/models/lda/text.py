"""The words of a TensorLDA: fit texts, apply the model to texts, and return leading words in
several forms.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from odeco._util.arguments import check_count
from odeco._util.types import FloatArray, IndexArray
from odeco.models.engine.fit import fitted
from odeco.models.lda.counts import are_texts
from odeco.models.lda.display import (
    draw_topics,
    leading_words,
    lift,
    relevance,
    representative_documents,
    summarise_topics,
)
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
    numbered,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A page shows this number of typical documents for each topic.
_N_TYPICAL = 3


class TopicWords:
    """The words of an estimator of topics."""

    n_features_in_: int
    fit: Any
    transform: Any
    _fit_for: Any
    _specify_topics: Any
    _proportions: Any

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
        known: Any = self._fit_for("words_").context.words
        if known is None:
            known = getattr(self, "feature_names_in_", None)
        if known is None:
            raise AttributeError(
                "`words_` are known if the model is given the words of its "
                f"{self.n_features_in_:,} columns. It was not. Call fit_text, or fit with `words`."
            )
        return np.asarray(known, dtype=np.str_)

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
        from odeco.models.lda.page import (
            write_topics_report,
        )  # Matplotlib takes half a second, and may be missing

        check_is_fitted(self)
        model: Any = self
        counts = None if hasattr(self, "privacy_") else rows
        examples = None
        if counts is not None and are_texts(counts):
            texts = list(checked_texts(counts, private=False))
            tokenizer: Tokenizer = model.tokenizer_ or "words"
            counts = count_words(
                texts, [str(word) for word in self.words_], tokenizer=tokenizer
            ).counts
            examples = [
                [(f"document {place}", texts[place], share) for place, share in shown]
                for shown in representative_documents(model, counts, _N_TYPICAL)
            ]
        write_topics_report(
            summarise_topics(model, None, counts), path, title=title, examples=examples
        )

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
        """Return the words, or the numbers of the columns."""
        self._fit_for("words")
        try:
            return self.words_
        except AttributeError:
            return numbered(self.n_features_in_)

    def _leading(self, n_words: int, weight: float) -> list[IndexArray]:
        """Return the places of the leading words of each topic; of private topics only those that
        are clear.
        """
        return leading_words(
            self._fit_for("topic_word_").params, check_count("n_words", n_words), weight
        )


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
